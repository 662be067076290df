package connect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/clientfile"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Disconnection says what to undo.
type Disconnection struct {
	Client *Client
	Host   *Host
	Config string // the configuration, absolute
	Data   string
	Read   config.Options
}

// An Undone says what Disconnect has done.
type Undone struct {
	Files   []UndoneFile `json:"files"`
	Servers []LeftServer `json:"servers"` // those that were adopted
	Config  string       `json:"config"`
}

// An UndoneFile is a file of the client.
type UndoneFile struct {
	File string `json:"file"`

	// Exact says that the file has the same bytes as before connect; Gone, that there was no file, and there is none again.
	Exact bool `json:"exact,omitempty"`
	Gone  bool `json:"gone,omitempty"`

	// Dropped are the servers that were not put back, because the folder of the file does not exist any more.
	Dropped []string `json:"dropped,omitempty"`

	// Back are the servers that were put back, and Renamed those of them that got another name, because the file has a
	// server of theirs now. Later are the servers that were added since.
	Back    []string          `json:"back,omitempty"`
	Renamed map[string]string `json:"renamed,omitempty"`
	Later   []string          `json:"later,omitempty"`

	// Backup is the file from before connect, or "".
	Backup string `json:"backup,omitempty"`
}

// A LeftServer is an adopted server after Disconnect.
type LeftServer struct {
	ID      switchboard.ServerID `json:"id"`
	Removed bool                 `json:"removed,omitempty"`
	Stays   string               `json:"stays,omitempty"` // why it was not removed
}

// ErrNotConnected means that no record of the client exists, and no entry of ours.
var ErrNotConnected = errors.New("it is not connected")

// Disconnect takes our entries out of the files of the client and puts the adopted servers back. It then removes from the configuration the
// servers that nothing else needs. Without a record there is nothing to put back, but an entry of ours is taken out.
func Disconnect(ctx context.Context, d Disconnection) (*Undone, error) {
	if !exists(recordDir(d.Data).path(d.Client.ID)) && len(d.ownFiles(&record{Config: d.Config})) == 0 {
		return nil, ErrNotConnected
	}
	unlock, err := lock(d.Data)
	if err != nil {
		return nil, err
	}
	defer unlock()
	r, err := recordDir(d.Data).read(d.Client.ID)
	if err != nil {
		return nil, err
	}
	if r == nil {
		r = &record{Client: d.Client.ID, Config: d.Config}
	}
	d.follow(r)
	// Nothing is written if one of the files cannot be.
	for _, f := range r.Files {
		now, err := readFile(f.File)
		if err != nil {
			return nil, err
		}
		if _, err := d.undoText(r, f, now, &UndoneFile{}); err != nil {
			return nil, fmt.Errorf("%w\nNothing was changed: repair the file, and disconnect again", err)
		}
	}
	out := &Undone{Config: r.Config}
	for _, f := range r.Files {
		u, err := d.undoFile(ctx, r, f)
		if err != nil {
			return out, err
		}
		out.Files = append(out.Files, u)
	}
	if out.Servers, err = d.removeServers(ctx, r); err != nil {
		return out, err
	}
	return out, recordDir(d.Data).remove(d.Client.ID)
}

// ownFiles returns the places that have an entry of ours, also one that a person has written. A file that cannot be read has none.
func (d Disconnection) ownFiles(r *record) []Location {
	p := &Plan{options: Options{Client: d.Client, Host: d.Host}, files: map[string]*clientText{}}
	var out []Location
	for _, place := range distinctPlaces(d.Client.places(d.Host)) {
		entries, err := p.entries(place)
		if err == nil && slices.ContainsFunc(entries, func(e clientfile.Entry) bool { return r.isOurs(place, e) }) {
			out = append(out, place)
		}
	}
	return out
}

// isOurs reports whether an entry starts or calls the Switchboard of the record.
func (r *record) isOurs(place Location, e clientfile.Entry) bool {
	if configuration, ours := ourEntry(e); ours {
		return configuration == r.Config
	}
	return slices.ContainsFunc(r.Files, func(f *changedFile) bool {
		return slices.ContainsFunc(f.Entries, func(w written) bool {
			return w.isAt(place, e) || w.Name == e.Name && address(w.Value) != "" && address(w.Value) == address(e.Value)
		})
	})
}

// follow finds our entries where they are now: the client or the user may have renamed the file, or moved the entry to another file. What was taken
// out of a file that does not exist any more goes where our entry is, if that is a file of the same scope. Other files are added to the record.
func (d Disconnection) follow(r *record) {
	known := func(file string) bool {
		return slices.ContainsFunc(r.Files, func(f *changedFile) bool { return f.File == file })
	}
	for _, place := range d.ownFiles(r) {
		if known(place.File) {
			continue
		}
		f := &changedFile{File: place.File}
		for _, old := range r.Files {
			if i := slices.IndexFunc(old.places(r), func(p Location) bool { return p.Scope == place.Scope && p.Dir == place.Dir }); i >= 0 && !exists(old.File) {
				f = old
			}
		}
		if f.File == place.File {
			r.Files = append(r.Files, f)
			continue
		}
		for i := range r.Servers {
			if r.Servers[i].Place.File == f.File {
				r.Servers[i].Place.File = place.File
			}
		}
		for i := range f.Entries {
			f.Entries[i].Place.File = place.File
		}
		f.File, f.Steps = place.File, nil
	}
}

// places returns the places in the file that were changed.
func (f *changedFile) places(r *record) []Location {
	var out []Location
	for _, a := range r.Servers {
		if a.Place.File == f.File {
			out = append(out, a.Place)
		}
	}
	for _, w := range f.Entries {
		out = append(out, w.Place)
	}
	return out
}

// before returns the digest of the file before connect; "" means that there was no file.
func (f *changedFile) before() string {
	if len(f.Steps) == 0 {
		return ""
	}
	return f.Steps[0].Before
}

// undoText returns the text that a file gets, or nil if there is to be no file. out gets what is done.
func (d Disconnection) undoText(r *record, f *changedFile, text []byte, out *UndoneFile) ([]byte, error) {
	*out = UndoneFile{File: f.File}
	before, exact := undoSteps(text, f.Steps)
	switch {
	case exact && before == nil && f.before() == "":
		out.Gone = true // there was no file, and nothing but ours is in it
		return nil, nil
	case exact:
		out.Exact = true
		for _, a := range r.Servers {
			if a.Place.File == f.File {
				out.Back = append(out.Back, a.Entry.Name)
			}
		}
		return before, nil
	case text == nil && !exists(filepath.Dir(f.File)):
		for _, a := range r.Servers {
			if a.Place.File == f.File {
				out.Dropped = append(out.Dropped, a.Entry.Name)
			}
		}
		return nil, nil
	}
	return d.putBack(r, f, text, out)
}

// undoFile puts one file of the client back.
func (d Disconnection) undoFile(ctx context.Context, r *record, f *changedFile) (out UndoneFile, err error) {
	now, err := readFile(f.File)
	if err != nil {
		return out, err
	}
	next, err := d.undoText(r, f, now, &out)
	switch {
	case err != nil:
		return out, err
	case next == nil && now != nil:
		if err := os.Remove(f.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return out, err
		}
		return out, nil
	case next == nil:
		return out, nil
	}
	err = rewrite.File(ctx, f.File, 0o600, func(old []byte) ([]byte, error) { return d.undoText(r, f, old, &out) })
	if err != nil || f.Backup == "" {
		return out, err
	}
	if err := rewrite.Discard(ctx, f.Backup); err != nil { // of a killed process
		return out, err
	}
	backup, err := readFile(f.Backup)
	if err == nil && backup != nil {
		if out.Exact && digestOf(backup) == f.before() {
			return out, os.Remove(f.Backup) // it holds what the file holds
		}
		out.Backup = f.Backup
	}
	return out, nil
}

// undoSteps undoes the changes of a text byte for byte. exact is false if the text is not the result of one of the changes.
func undoSteps(text []byte, steps []step) (out []byte, exact bool) {
	if len(steps) == 0 {
		return nil, false
	}
	for _, s := range slices.Backward(steps) {
		switch digestOf(text) {
		case s.After:
			next, err := clientfile.Apply(text, s.Undo)
			if err != nil {
				return nil, false
			}
			if text = next; s.Before == "" {
				text = nil
			}
		case s.Before: // a killed process did not come to it
			continue
		default:
			return nil, false
		}
		if digestOf(text) != s.Before {
			return nil, false
		}
	}
	return text, true
}

// putBack removes our entries from a text that was changed otherwise, and writes the adopted servers in their place.
func (d Disconnection) putBack(r *record, f *changedFile, text []byte, out *UndoneFile) ([]byte, error) {
	places := f.places(r)
	for _, p := range d.ownFiles(r) {
		if p.File == f.File {
			places = append(places, p) // it has been moved within the file
		}
	}
	done := map[string]bool{}
	for _, place := range places {
		if done[placeKey(place)] {
			continue
		}
		done[placeKey(place)] = true
		next, err := d.putBackAt(r, place, text, out)
		if err != nil {
			return nil, err
		}
		text = next
	}
	return text, nil
}

func (d Disconnection) putBackAt(r *record, place Location, text []byte, out *UndoneFile) ([]byte, error) {
	var present []clientfile.Entry
	if text != nil {
		var err error
		if present, err = clientfile.ListServers(place.File, text, d.Client.form, place.Section); err != nil {
			return nil, err
		}
	}
	names := map[string]clientfile.Entry{}
	var remove []string
	for _, e := range present {
		if r.isOurs(place, e) {
			remove = append(remove, e.Name)
			continue
		}
		names[e.Name] = e
	}
	later := map[string]bool{}
	for name := range names {
		later[name] = true
	}
	var add []clientfile.Entry
	for _, a := range r.Servers {
		if placeKey(a.Place) != placeKey(place) {
			continue
		}
		e := a.Entry
		if now, exists := names[e.Name]; exists {
			if sameJSON(now.Value, e.Value) {
				delete(later, e.Name)
				out.Back = append(out.Back, e.Name)
				continue // a killed process had not taken it out, or it is back already
			}
			for n := 2; ; n++ {
				e.Name = fmt.Sprintf("%s-%d", a.Entry.Name, n)
				if _, exists := names[e.Name]; !exists {
					break
				}
			}
			e.Source = ""
			if out.Renamed == nil {
				out.Renamed = map[string]string{}
			}
			out.Renamed[a.Entry.Name] = e.Name
		}
		names[e.Name] = e
		out.Back = append(out.Back, e.Name)
		add = append(add, e)
	}
	for _, e := range present {
		if later[e.Name] {
			out.Later = append(out.Later, e.Name)
		}
	}
	splices, err := clientfile.Rewrite(place.File, text, d.Client.form, place.Section, remove, add)
	if err != nil || len(splices) == 0 {
		return text, err
	}
	return clientfile.Apply(text, splices)
}

// removeServers removes the rows that connect has written and nothing else needs, with their secrets.
func (d Disconnection) removeServers(ctx context.Context, r *record) ([]LeftServer, error) {
	others, err := recordDir(d.Data).others(d.Client.ID)
	if err != nil {
		return nil, err
	}
	text, err := readFile(r.Config)
	if err != nil {
		return nil, err
	}
	digests := map[switchboard.ServerID]string{}
	if text != nil {
		if digests, err = rowDigests(text); err != nil {
			return nil, err
		}
	}
	var out []LeftServer
	var secrets []secretDigest
	for _, a := range r.Servers {
		if slices.ContainsFunc(out, func(l LeftServer) bool { return l.ID == a.ID }) {
			continue
		}
		l := LeftServer{ID: a.ID}
		digest, exists := digests[a.ID]
		users := usedBy(others, a.ID)
		changed, err := d.changedSecret(r, a)
		switch {
		case err != nil:
			return out, err
		case !exists:
			l.Removed = true // or a process was killed before it wrote the row
		case a.Row == "":
			l.Stays = "it was in the configuration before"
		case len(users) > 0:
			var names []string
			for _, u := range users {
				names = append(names, Find(u.Client).Name)
			}
			l.Stays = strings.Join(names, " and ") + " uses it too"
		case digest != a.Row:
			l.Stays = "its row has been edited"
		case changed != "":
			l.Stays = "its secret in " + changed + " has been changed"
		default:
			err := edit.File(ctx, r.Config, d.Read, func(old []byte) ([]byte, error) { return edit.RemoveServers(r.Config, old, a.ID) })
			if err != nil {
				// Another file may name the server, such as an overlay or a task: then it is the user's.
				l.Stays = "it could not be removed: " + err.Error()
			} else {
				l.Removed = true
			}
		}
		if l.Removed {
			secrets = append(secrets, a.Secrets...)
		}
		out = append(out, l)
	}
	return out, d.removeSecrets(ctx, r, secrets)
}

// changedSecret returns the name of a secret of the server that has another content than connect wrote, or "".
func (d Disconnection) changedSecret(r *record, a adopted) (string, error) {
	for _, s := range a.Secrets {
		text, err := readFile(r.secretPath(s))
		if err != nil {
			return "", err
		}
		if text != nil && digestOf(text) != s.Digest {
			return s.Name, nil
		}
	}
	return "", nil
}

// removeSecrets removes files that connect wrote, unless the configuration still names them or somebody has changed them.
func (d Disconnection) removeSecrets(ctx context.Context, r *record, secrets []secretDigest) error {
	config, err := readFile(r.Config)
	if err != nil {
		return err
	}
	for _, s := range secrets {
		text, err := readFile(r.secretPath(s))
		if err != nil {
			return err
		}
		if text == nil && exists(filepath.Dir(r.secretPath(s))) {
			if err := rewrite.Discard(ctx, r.secretPath(s)); err != nil { // of a killed process
				return err
			}
		}
		if text == nil || digestOf(text) != s.Digest || strings.Contains(string(config), s.Name) {
			continue
		}
		if err := os.Remove(r.secretPath(s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// secretPath returns the path of a secret.
func (r *record) secretPath(s secretDigest) string {
	return filepath.Join(filepath.Dir(r.Config), filepath.FromSlash(s.Name))
}
