package connect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Options say what to connect, and how.
type Options struct {
	Client *Client
	Host   *Host
	Config string // the configuration, absolute; it may not exist yet
	Head   string // the first lines of a configuration that is made
	Data   string // the data folder of the configuration, for the records
	Target SwitchboardEntry

	// Scopes are the scopes that are connected: their servers are adopted, and each gets our entry. ScopeUser includes ScopeLocal.
	Scopes []Scope

	// Keep says that no server is adopted.
	Keep bool

	// Read says how the configuration is read.
	Read config.Options
}

// ErrChanged means that a file has changed since Prepare. Prepare again.
var ErrChanged = errors.New("a file has changed in the meantime")

// A FileChange is what Apply does to one file.
type FileChange struct {
	File          string
	Before, After []byte // Before is nil if there is no file
}

// A Plan is what connecting a client would change.
type Plan struct {
	Servers []*Server // in the files of the client, in the chosen scopes

	// Elsewhere are the servers in the scopes that were not chosen.
	Elsewhere []*Server

	// Entry is the name of our entry, and Place where it stands.
	Entry string
	Place Location

	// Problems are texts for people: a file of the client cannot be read, or a setting makes the client ignore our
	// entry.
	Problems []string

	Changes []FileChange // of the client's files
	Config  FileChange   // of the configuration

	options Options
	record  *record // as it will be
	before  string  // the digest of the record file's text
	files   map[string]*clientText
	main    []Location // where our entry is to stand, one place for each chosen scope
	ours    map[string][]clientfile.Entry
	made    []string // the files that Apply has made: secrets and backups
}

// A clientText is a file of the client as it is.
type clientText struct {
	text []byte // nil if there is none
	err  error
}

// placeKey identifies a place.
func placeKey(p Location) string { return p.File + "\x00" + strings.Join(p.Section, "\x00") }

// distinctPlaces returns the places, without any that leads to the file of an earlier place by another name, such as a link.
func distinctPlaces(places []Location) []Location {
	var out []Location
	seen := map[string]bool{}
	for _, p := range places {
		real := p
		if file, err := filepath.EvalSymlinks(p.File); err == nil {
			real.File = file
		} else if dir, err := filepath.EvalSymlinks(filepath.Dir(p.File)); err == nil {
			real.File = filepath.Join(dir, filepath.Base(p.File))
		}
		if key := placeKey(real); !seen[key] {
			seen[key] = true
			out = append(out, p)
		}
	}
	return out
}

// Prepare reads the files of the client and the configuration, and returns what would change. It writes nothing. The error is
// switchboard.Faults if a file is faulty that would have to be written.
func Prepare(ctx context.Context, o Options) (*Plan, error) {
	p := &Plan{options: o, files: map[string]*clientText{}, ours: map[string][]clientfile.Entry{}}
	if err := p.readRecord(); err != nil {
		return nil, err
	}
	if err := p.readPlaces(); err != nil {
		return nil, err
	}
	text, err := readFile(o.Config)
	if err != nil {
		return nil, err
	}
	p.Config = FileChange{File: o.Config, Before: text}
	if err := p.decide(ctx); err != nil {
		return nil, err
	}
	return p, p.compute()
}

func (p *Plan) readRecord() error {
	text, err := readFile(recordDir(p.options.Data).path(p.options.Client.ID))
	if err != nil {
		return err
	}
	p.before = digestOf(text)
	r, err := recordDir(p.options.Data).read(p.options.Client.ID)
	if err != nil {
		return err
	}
	if r == nil {
		r = &record{Client: p.options.Client.ID, Config: p.options.Config}
	}
	p.record = r
	return nil
}

// readFile returns the content of a file, or nil if there is none.
func readFile(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case text == nil:
		return []byte{}, nil
	}
	return text, nil
}

// text returns a file of the client.
func (p *Plan) text(file string) *clientText {
	if t, ok := p.files[file]; ok {
		return t
	}
	t := &clientText{}
	info, err := os.Stat(file)
	switch {
	case err == nil && !info.Mode().IsRegular():
		t.err = fmt.Errorf("%s is no regular file", file)
	case err == nil && info.Size() > int64(p.options.Client.form.MaxBytes()):
		t.err = fmt.Errorf("%s is larger than %d bytes", file, p.options.Client.form.MaxBytes())
	default:
		t.text, t.err = readFile(file)
	}
	p.files[file] = t
	return t
}

// entries returns the servers of a place.
func (p *Plan) entries(place Location) ([]clientfile.Entry, error) {
	t := p.text(place.File)
	if t.err != nil || t.text == nil {
		return nil, t.err
	}
	return clientfile.ListServers(place.File, t.text, p.options.Client.form, place.Section)
}

// readPlaces finds the servers of all places, and where our entry is to stand.
func (p *Plan) readPlaces() error {
	o := p.options
	broken := map[string]error{}
	mains := map[Scope]Location{}
	holds := map[Scope]bool{} // our entry
	for _, place := range distinctPlaces(o.Client.places(o.Host)) {
		chosen := slices.Contains(o.Scopes, place.Scope) || place.Scope == ScopeLocal && slices.Contains(o.Scopes, ScopeUser)
		entries, err := p.entries(place)
		if err != nil {
			if broken[place.File] == nil {
				broken[place.File] = err
				p.Problems = append(p.Problems, "not touched: "+err.Error())
			}
		}
		isMain := place.Scope != ScopeLocal && chosen
		if _, has := mains[place.Scope]; isMain && (!has || mains[place.Scope].File != place.File && p.text(mains[place.Scope].File).text == nil && p.text(place.File).text != nil) {
			mains[place.Scope] = place
		}
		for _, e := range entries {
			s := &Server{Name: e.Name, Place: place, entry: e}
			ours, err := p.isOurs(place, e)
			switch {
			case err != nil && chosen:
				return err
			case err != nil:
			case ours:
				p.ours[placeKey(place)] = append(p.ours[placeKey(place)], e)
				if isMain && !holds[place.Scope] {
					mains[place.Scope], holds[place.Scope] = place, true
				}
			case chosen:
				p.Servers = append(p.Servers, s)
			default:
				p.Elsewhere = append(p.Elsewhere, s)
			}
		}
	}
	for _, scope := range o.Scopes {
		place, ok := mains[scope]
		if !ok {
			return fmt.Errorf("%s has no file of scope %s", o.Client.Name, scope)
		}
		if err := broken[place.File]; err != nil {
			return err
		}
		if info, err := os.Stat(place.File); err == nil && info.Mode().Perm()&0o200 == 0 {
			return fmt.Errorf("%s is read-only, and so was not touched; make it writable (chmod u+w), or write the entry yourself: switchboard connect --print", place.File)
		}
		if blocked, t := o.Client.blocked, p.text(place.File); blocked != nil && t.text != nil {
			values, err := clientfile.Values(place.File, t.text, o.Client.form)
			if err != nil {
				return err
			}
			if why := blocked(values); why != "" {
				p.Problems = append(p.Problems, why)
			}
		}
		p.main = append(p.main, place)
	}
	p.Place = p.main[0]
	return nil
}

// isOurs reports whether an entry is ours. It is an error if it belongs to another configuration.
func (p *Plan) isOurs(place Location, e clientfile.Entry) (bool, error) {
	for _, f := range p.record.Files {
		for _, w := range f.Entries {
			if w.isAt(place, e) {
				return true, nil
			}
		}
	}
	configuration, ours := ourEntry(e)
	if ours && configuration != p.options.Config {
		return false, fmt.Errorf("%s: its entry %s starts Switchboard with another configuration, %s; disconnect that first: switchboard disconnect %s --config %s",
			place.File, document.Shown(e.Name), configuration, p.options.Client.ID, configuration)
	}
	return ours, nil
}

// address returns the address in an entry, or "".
func address(value json.RawMessage) string {
	var o struct{ URL, HTTPURL string }
	if json.Unmarshal(value, &o) != nil {
		return ""
	}
	if o.URL != "" {
		return o.URL
	}
	return o.HTTPURL
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// decide decides which servers can move.
func (p *Plan) decide(ctx context.Context) error {
	o := p.options
	if o.Keep {
		for _, s := range p.Servers {
			s.Stays = "--keep"
		}
		return nil
	}
	a := &adopter{client: o.Client, opts: o.Read, have: importer.Present{
		HasSecret: p.hasSecret,
		Listen:    cmp.Or(config.ListenAddress(o.Config), config.DefaultListen),
	}}
	if p.Config.Before != nil {
		opts := o.Read
		opts.Text = p.Config.Before
		cfg, err := config.Load(ctx, o.Config, opts)
		if err != nil {
			return err
		}
		a.have.Servers = cfg.Servers
		places, err := edit.ListServers(o.Config, p.Config.Before)
		if err != nil {
			return err
		}
		for _, s := range places {
			a.have.IDs = append(a.have.IDs, s.ID)
		}
	}
	for _, s := range p.Servers {
		if s.Stays = p.heldBack(s); s.Stays == "" {
			a.adopt(s)
		}
	}
	return nil
}

// hasSecret reports whether a file of that name exists for another secret. A file that our record names, without a row in the
// configuration, was left by a killed process: it is written again.
func (p *Plan) hasSecret(name string) bool {
	for _, a := range p.record.Servers {
		if slices.ContainsFunc(a.Secrets, func(s secretDigest) bool { return s.Name == name }) && !strings.Contains(string(p.Config.Before), name) {
			return false
		}
	}
	return exists(filepath.Join(filepath.Dir(p.options.Config), filepath.FromSlash(name)))
}

// Candidates returns the servers that would be adopted, with their secrets.
func (p *Plan) Candidates() []switchboard.Server {
	var out []switchboard.Server
	for _, s := range p.Servers {
		if s.Stays == "" && !slices.ContainsFunc(out, func(o switchboard.Server) bool { return o.ID == s.ID }) {
			out = append(out, s.resolved)
		}
	}
	return out
}

// Leave says that the servers of an id stay where they are, and why. The plan then changes nothing for them.
func (p *Plan) Leave(id switchboard.ServerID, why string) error {
	for _, s := range p.Servers {
		if s.Stays == "" && s.ID == id {
			s.Stays, s.ID, s.Shared, s.Secrets = why, "", false, nil
		}
	}
	return p.compute()
}

// Changed reports whether Apply would change anything.
func (p *Plan) Changed() bool {
	return len(p.Changes) > 0 || p.Config.After != nil && string(p.Config.After) != string(p.Config.Before)
}

// compute fills in the changes.
func (p *Plan) compute() error {
	if err := p.computeConfig(); err != nil {
		return err
	}
	r, err := p.copyRecord()
	if err != nil {
		return err
	}
	texts := map[string][]byte{}
	var order []string
	p.Changes = nil
	change := func(place Location, remove []string, add []clientfile.Entry) error {
		old, edited := texts[place.File]
		if !edited {
			old = p.text(place.File).text
			order = append(order, place.File)
		}
		splices, err := clientfile.Rewrite(place.File, old, p.options.Client.form, place.Section, remove, add)
		if err != nil {
			return err
		}
		next, err := clientfile.Apply(old, splices)
		if err != nil {
			return err
		}
		f := r.file(place.File)
		f.Steps = append(f.Steps, step{digestOf(old), digestOf(next), clientfile.Invert(old, splices)})
		texts[place.File] = next
		return nil
	}
	for _, place := range distinctPlaces(p.options.Client.places(p.options.Host)) {
		remove, add, err := p.changesOf(place, r)
		if err != nil {
			return err
		}
		if len(remove) == 0 && len(add) == 0 {
			continue
		}
		if err := change(place, remove, add); err != nil {
			return err
		}
	}
	for _, file := range order {
		p.Changes = append(p.Changes, FileChange{File: file, Before: p.text(file).text, After: texts[file]})
	}
	p.record = r
	return p.recordServers(r)
}

// changesOf returns the names to remove from a place, and our entry if it is to be added there.
func (p *Plan) changesOf(place Location, r *record) (remove []string, add []clientfile.Entry, err error) {
	stays := map[string]bool{}
	for _, s := range p.Servers {
		switch {
		case placeKey(s.Place) != placeKey(place):
		case s.Stays == "":
			remove = append(remove, s.Name)
		default:
			stays[s.Name] = true
		}
	}
	if !slices.ContainsFunc(p.main, func(m Location) bool { return placeKey(m) == placeKey(place) }) {
		return remove, nil, nil
	}
	entry, err := p.options.Client.entry(Name, p.options.Target)
	if err != nil {
		return nil, nil, err
	}
	present := false
	for _, e := range p.ours[placeKey(place)] {
		if !present && startsSame(e, entry) {
			p.Entry, present = e.Name, true
			continue
		}
		remove = append(remove, e.Name)
	}
	if present {
		return remove, nil, nil
	}
	for n := 2; stays[entry.Name]; n++ {
		entry.Name = fmt.Sprintf("%s-%d", Name, n)
	}
	p.Entry = entry.Name
	f := r.file(place.File)
	f.Entries = append(slices.DeleteFunc(f.Entries, func(w written) bool { return placeKey(w.Place) == placeKey(place) }), written{place, entry.Name, entry.Value})
	return remove, []clientfile.Entry{entry}, nil
}

// startsSame reports whether two entries start or call the same: the user may have added other keys to ours.
func startsSame(a, b clientfile.Entry) bool {
	var x, y map[string]any
	if json.Unmarshal(a.Value, &x) != nil || json.Unmarshal(b.Value, &y) != nil {
		return false
	}
	for k, v := range y {
		if !reflect.DeepEqual(x[k], v) {
			return false
		}
	}
	return true
}

// computeConfig fills in the change of the configuration.
func (p *Plan) computeConfig() error {
	var rows []edit.Server
	for _, s := range p.Servers {
		if s.Stays == "" && s.row != nil {
			rows = append(rows, *s.row)
		}
	}
	old := p.Config.Before
	if old == nil {
		old = []byte(p.options.Head)
		if len(rows) == 0 {
			old = append(old, "servers: {}\n"...)
		}
	}
	next, err := edit.AddServers(p.options.Config, old, rows)
	if err != nil {
		return err
	}
	p.Config.After = next
	return nil
}

// copyRecord returns a copy of the record as it is on the disk.
func (p *Plan) copyRecord() (*record, error) {
	r, err := recordDir(p.options.Data).read(p.options.Client.ID)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = &record{Client: p.options.Client.ID, Config: p.options.Config}
	}
	return r, nil
}

// recordServers adds the adopted servers to the record.
func (p *Plan) recordServers(r *record) error {
	digests, err := rowDigests(p.Config.After)
	if err != nil {
		return err
	}
	others, err := recordDir(p.options.Data).others(p.options.Client.ID)
	if err != nil {
		return err
	}
	mine := map[switchboard.ServerID]adopted{}
	for _, other := range append(others, r) {
		for _, a := range other.Servers {
			if a.Row != "" {
				mine[a.ID] = a // a row that connect has written, for whichever client
			}
		}
	}
	for _, s := range p.Servers {
		if s.Stays != "" {
			continue
		}
		a := adopted{Place: s.Place, Entry: s.entry, ID: s.ID}
		if s.row != nil {
			a.Row = digests[s.ID]
			for _, f := range s.contents {
				a.Secrets = append(a.Secrets, secretDigest{f.Name, digestOf([]byte(f.Content.Reveal()))})
			}
			mine[s.ID] = a
		} else if was, ok := mine[s.ID]; ok {
			a.Row, a.Secrets = was.Row, was.Secrets
		}
		// Another server of the same name, which was adopted before, is not forgotten.
		r.Servers = append(slices.DeleteFunc(r.Servers, func(o adopted) bool {
			return placeKey(o.Place) == placeKey(a.Place) && o.Entry.Name == a.Entry.Name && sameJSON(o.Entry.Value, a.Entry.Value)
		}), a)
	}
	return nil
}
