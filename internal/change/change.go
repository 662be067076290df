// Package change changes the files of a configuration for officers: checked as a reload checks them, whole, one after the other, with a history, and with
// receipts, also after a kill.
//
// The package decides which office a file needs, whether a change may be made, and what the history keeps. Package config decides what a configuration means. The
// caller says how a change would change decisions.
package change

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/rewrite"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store keeps the history. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// A ReceiptWriter keeps receipts. See receipt.Ledger.
type ReceiptWriter interface {
	Durable() bool
	Write(ctx context.Context, r *receipt.Receipt) (id string, err error)
	Add(r *receipt.Receipt) (id string)
}

// Options of an Editor.
type Options struct {
	// File is the path of the main file. "" means that the files belong to another program: then nothing can be changed.
	File string

	// Try reads the configuration with files replaced, as a reload would.
	Try func(ctx context.Context, replace map[string][]byte) (*Reading, error)

	// Reload puts the files in force. It returns why they were refused.
	Reload func(ctx context.Context) error

	// Compare compares recorded decisions with a proposal, within bounds. See replay.CompareWithin.
	Compare func(ctx context.Context, b replay.Bounds, p *replay.Proposal) (*replay.Diff, error)

	// Servers returns the servers that are in force.
	Servers func() []switchboard.Server

	// Secrets returns the secrets that commands print that are in force. nil means none.
	Secrets func() map[string]config.PrintedSecret

	// Place names the files among those of other machines that share the store.
	Place string

	Lock   func(ctx context.Context) (release func(), err error) // held during a change; all processes that share the store and the files have the same
	Edit   func() config.EditMode
	Store  Store
	Ledger ReceiptWriter

	// Intent returns the id of the last receipt like r since the instant that has no outcome; "" if there is none.
	Intent func(ctx context.Context, r receipt.Receipt, since time.Time) (id string, err error)

	Timeout time.Duration // for the store and the receipts of one change

	reached func(step string) // of tests: a step of a change was reached
}

// A Reading is what Options.Try has found.
type Reading struct {
	Config   *config.Config     // nil if the configuration as a whole is refused
	Faults   switchboard.Faults // of all parts, and of policies
	Warnings switchboard.Faults
	Tasks    []TaskChange // that would get other tools; only if the caller of Try wants to know
	Same     []TaskChange // that would get the tools that they get now
	Untried  []TaskChange // whose tools are not known, because there are too many tasks; without tools
	Changed  string       // what differs from the configuration in force, in words

	Aside *TaskState // the state that was built aside; nil if there is none
}

// A TaskState is one state, in force or built aside, as far as tasks show it.
type TaskState struct {
	Tasks func(switchboard.TenantID) []switchboard.TaskID // of the tenant, sorted

	// Look returns which tools a task gets now, and for which requirements.
	Look func(ctx context.Context, tenant switchboard.TenantID, task switchboard.TaskID) TaskTools
}

// TaskTools are the tools of a task.
type TaskTools struct {
	Tools        []string // server/tool, in the order of the list
	Requirements []ServedRequirement
	Why          string // why it could not start
}

// A ServedRequirement is a requirement of a task, with the tools that were selected for it.
type ServedRequirement struct {
	Name  string   // verb:resource, or as the task names it otherwise
	Tools []string // server/tool
}

// A TaskChange says how the tools of a task would change.
type TaskChange struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Task   switchboard.TaskID   `json:"task"`
	Before []string             `json:"before"` // server/tool, in the order of the list
	After  []string             `json:"after"`
	Why    string               `json:"why,omitempty"` // why it could not start after the change
}

// A NotFoundError says that there is no such file or change, or that the officer may not see it.
type NotFoundError struct{ Text string }

// Error implements error.
func (e *NotFoundError) Error() string { return e.Text }

// An Editor changes files. Use New. It is safe for concurrent use.
type Editor struct{ o Options }

// New returns an Editor.
func New(o Options) *Editor { return &Editor{o} }

// A ConfigFile is one file of the configuration.
type ConfigFile struct {
	Path   string               `json:"path"` // relative to the folder of the main file, with slashes
	Size   int64                `json:"size"`
	ETag   string               `json:"etag"`
	Tenant switchboard.TenantID `json:"tenant,omitempty"` // whose file it is; "" means the operator's
	Office switchboard.Office   `json:"office"`           // that may change it
}

// ETagOf returns the strong entity tag of a file's content, with its quotes (RFC 9110, section 8.8.3).
func ETagOf(data []byte) string { return `"` + digestOf(data) + `"` }

func digestOf(data []byte) string {
	if data == nil {
		return ""
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// OwnerOf returns the tenant that a file belongs to, "" for the operator, and the least office that may change it. ok is false if no file of a
// configuration has that path.
func (e *Editor) OwnerOf(name string) (tenant switchboard.TenantID, office switchboard.Office, ok bool) {
	if e.o.File == "" || !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") || len(name) > 512 {
		return "", "", false
	}
	parts := strings.Split(name, "/")
	for _, p := range parts {
		if strings.HasPrefix(p, ".") || strings.HasSuffix(p, "~") || strings.HasPrefix(p, "#") {
			return "", "", false
		}
	}
	yaml := strings.HasSuffix(name, ".yaml")
	switch first := parts[0]; {
	case name == filepath.Base(e.o.File), name == "taxonomy.yaml", name == config.AdmittedFile:
		return "", switchboard.OfficeOperator, true
	case first == "overlays", first == config.CapabilitiesFolder: // but not the lock, which "switchboard capability publish" writes
		return "", switchboard.OfficeOperator, len(parts) == 2 && yaml
	case first == config.PackageLocks:
		return "", switchboard.OfficeOperator, len(parts) == 2 && strings.HasSuffix(name, config.PackageLockSuffix)
	case first == "policies":
		return "", switchboard.OfficeOperator, len(parts) >= 2
	case first != "tenants" || len(parts) < 3 || switchboard.CheckID(parts[1]) != nil:
		return "", "", false
	}
	tenant = switchboard.TenantID(parts[1])
	switch parts[2] {
	case "tenant.yaml":
		return tenant, switchboard.OfficeAdmin, len(parts) == 3
	case "tasks", "overlays":
		return tenant, switchboard.OfficeAdmin, len(parts) == 4 && yaml
	case "policies":
		return tenant, switchboard.OfficeAuthor, len(parts) >= 4
	}
	return "", "", false
}

// Permit returns the office by which the officer may read and change the file. The error is a *switchboard.Error; a file that the officer may not see
// gets the answer of one that does not exist.
func (e *Editor) Permit(by *switchboard.Officer, name string) (tenant switchboard.TenantID, office switchboard.Office, err error) {
	tenant, office, ok := e.OwnerOf(name)
	if !ok || tenant != "" && !by.Sees(tenant) || tenant == "" && !by.Operator {
		return "", "", &NotFoundError{Text: fmt.Sprintf("no file of the configuration that you may see can have the path %.200q", name)}
	}
	switch {
	case by.Operator:
		return tenant, switchboard.OfficeOperator, nil
	case by.Holds(switchboard.OfficeAdmin, tenant):
		return tenant, switchboard.OfficeAdmin, nil
	case by.Holds(office, tenant):
		return tenant, office, nil
	}
	return "", "", switchboard.Refuse(switchboard.CodeNotAuthorized, "this file needs the office %s of tenant %s, which you do not hold", office, tenant)
}

// maxListed is how many files Files returns at most, because it reads each of them.
const maxListed = 100

// MainFile returns the name of the main file.
func MainFile(e *Editor) string { return filepath.Base(e.o.File) }

// PlaceOf names the files among those of other machines that share the store.
func PlaceOf(e *Editor) string { return e.o.Place }

// ModeOf says which changes may be made here.
func ModeOf(e *Editor) config.EditMode { return e.o.Edit() }

// Files returns the files behind the path after that the officer may change, sorted by path: at most limit, and at most maxListed. next is not ""
// if there are more: ask for those behind it.
func (e *Editor) Files(by *switchboard.Officer, after string, limit int) (files []ConfigFile, next string, err error) {
	files = []ConfigFile{}
	if e.o.File == "" {
		return files, "", nil
	}
	root, err := os.OpenRoot(filepath.Dir(e.o.File))
	if err != nil {
		return nil, "", err
	}
	defer root.Close() //nolint:errcheck // it was only read from
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && name != "." && strings.HasPrefix(path.Base(name), ".") {
				return fs.SkipDir
			}
			return nil //nolint:nilerr // a folder that cannot be read holds no file that could be changed
		}
		if name > after {
			names = append(names, name)
		}
		return nil
	})
	slices.Sort(names) // WalkDir sorts each folder by itself
	for _, name := range names {
		tenant, _, err := e.Permit(by, name)
		if err != nil {
			continue // the officer does not see it
		}
		text, err := e.read(name)
		if err != nil {
			continue // a link that leads elsewhere, for instance
		}
		if len(files) == min(limit, maxListed) {
			return files, files[len(files)-1].Path, nil
		}
		_, office, _ := e.OwnerOf(name)
		files = append(files, ConfigFile{name, int64(len(text)), ETagOf(text), tenant, office})
	}
	return files, "", err
}

// Read returns the text of a file, nil if there is none.
func (e *Editor) Read(by *switchboard.Officer, name string) ([]byte, error) {
	if _, _, err := e.Permit(by, name); err != nil {
		return nil, err
	}
	return e.read(name)
}

// read reads a file that no link leads out of the folder to, except for the main file, which the operator has placed.
func (e *Editor) read(name string) ([]byte, error) {
	target, err := e.locate(name)
	if err != nil {
		return nil, err
	}
	text, err := document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(target) },
		func() (fs.File, error) { return os.Open(target) }, int64(config.MaxBytes(name)), document.AnyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &NotFoundError{Text: fmt.Sprintf("%s cannot be read: %s", name, document.ErrorText(err))}
	}
	if text == nil {
		text = []byte{}
	}
	return text, nil
}

// locate returns the path of a file on the disk.
func (e *Editor) locate(name string) (string, error) {
	folder, err := filepath.Abs(filepath.Dir(e.o.File)) // the links below are compared by their paths, and those of "." have no beginning in common
	if err != nil {
		return "", err
	}
	target := filepath.Join(folder, filepath.FromSlash(name))
	if name == filepath.Base(e.o.File) {
		return target, nil
	}
	bound := folder
	if parts := strings.Split(name, "/"); parts[0] == "tenants" {
		bound = filepath.Join(folder, "tenants", parts[1]) // no tenant reads or writes another one's files through a link
	}
	real, err := filepath.EvalSymlinks(bound)
	if err != nil {
		return "", &NotFoundError{Text: fmt.Sprintf("the folder %s does not exist; an operator makes it", filepath.ToSlash(path.Dir(name)))}
	}
	for at := target; len(at) > len(bound); at = filepath.Dir(at) {
		found, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Lstat(at); err == nil {
				return "", &NotFoundError{Text: name + " is a link to a file that does not exist"}
			}
			continue
		}
		if err != nil || found != real && !strings.HasPrefix(found, real+string(filepath.Separator)) {
			return "", &NotFoundError{Text: name + " is behind a link that leads out of its folder"}
		}
		return target, nil
	}
	return target, nil
}

// A Wish is a change that an officer wishes: of one file, or of several at once.
type Wish struct {
	FileWish

	// More are further files. All of them are changed, or none: no reader of the configuration sees a part of the change.
	More []FileWish

	By      switchboard.Officer
	Reason  string
	Reverts string // the id of the change that it reverts
	Source  string // what it carries out, such as a proposal

	SkipPast bool // a trial does not look at past decisions

	// Held says that the caller has the right to change the files already; see Hold.
	Held bool

	// Restore puts back what a change that may not stay has replaced: also where files are not changed here any more, and if the old text has faults by now.
	Restore bool
}

// A FileWish is the change of one file.
type FileWish struct {
	Path    string
	Text    []byte // the whole file; nil deletes it
	IfMatch string // the entity tag of the content that it replaces; "" means that there must be no file

	DropFolder bool // see config.JournaledFile
}

// Files returns the wishes of all files.
func (w *Wish) Files() []FileWish { return append([]FileWish{w.FileWish}, w.More...) }

// A Trial says what a change would do.
type Trial struct {
	ETag     string       `json:"etag,omitempty"` // of the present file
	Faults   []string     `json:"faults"`         // why the change would be refused
	Warnings []string     `json:"warnings"`
	Changed  string       `json:"changed"`                   // in words
	Diff     string       `json:"diff"`                      // of the file, unified
	Tasks    []TaskChange `json:"tasks"`                     // that would get other tools
	Same     []TaskChange `json:"same_tasks,omitempty"`      // that would get the tools that they get now; at most 20
	MoreSame int          `json:"more_same_tasks,omitempty"` // further ones
	Untried  int          `json:"tasks_not_tried,omitempty"` // there are too many tasks
	Programs bool         `json:"programs"`                  // it changes what is run

	// Past says what the decisions of the last week would have been. It is nil if the change would be refused, and where nothing is only tried.
	Past *PastDecisions `json:"past,omitempty"`

	proposed *config.Config // nil if it is refused as a whole
	aside    *TaskState
}

// Aside returns the state that the change would make; nil if the change would be refused.
func (t *Trial) Aside() *TaskState { return t.aside }

// Proposed returns the configuration that the change would make; nil if it would be refused as a whole.
func (t *Trial) Proposed() *config.Config { return t.proposed }

// maxSame limits the tasks of a trial that stay as they are.
const maxSame = 20

// Try says what the change would do, and changes nothing.
func (e *Editor) Try(ctx context.Context, w Wish) (*Trial, error) {
	tenant, office, err := permitAll(e, &w)
	if err != nil {
		return nil, err
	}
	old, err := readAll(e, &w)
	if err != nil {
		return nil, err
	}
	t, err := e.try(ctx, w, tenant, office, old)
	oneLook := tenant != "" || office == switchboard.OfficeOperator // decisions are compared for one tenant, or for all
	if err == nil && len(t.Faults) == 0 && t.proposed != nil && !w.SkipPast && oneLook {
		t.Past = comparePast(ctx, &e.o, t.proposed, tenant, office == switchboard.OfficeOperator)
	}
	return t, err
}

// try is Try; old are the present contents of the files, in the order of w.Files.
func (e *Editor) try(ctx context.Context, w Wish, tenant switchboard.TenantID, office switchboard.Office, old [][]byte) (*Trial, error) {
	files := w.Files()
	replace, own := map[string][]byte{}, map[string]bool{}
	var names []string
	var differences strings.Builder
	for i, f := range files {
		if most := config.MaxBytes(f.Path); len(f.Text) > most {
			return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: fmt.Sprintf("the file would have %d bytes; at most %d", len(f.Text), most)}
		}
		replace[f.Path] = f.Text
		names = append(names, f.Path)
		own[filepath.Join(filepath.Dir(e.o.File), filepath.FromSlash(f.Path))] = true
		differences.WriteString(DiffOf(f.Path, old[i], f.Text))
	}
	after, err := e.o.Try(ctx, replace)
	if err != nil {
		return nil, err
	}
	t := &Trial{proposed: after.Config, aside: after.Aside, Warnings: []string{}, Changed: after.Changed, Tasks: after.Tasks, Diff: differences.String()}
	if len(files) == 1 && old[0] != nil {
		t.ETag = ETagOf(old[0])
	}
	if t.Tasks == nil {
		t.Tasks = []TaskChange{}
	}
	if t.Faults, err = e.newFaults(ctx, after, names, &w.By, tenant); err != nil {
		return nil, err
	}
	for _, f := range after.Warnings {
		if own[filepath.Clean(f.File)] {
			t.Warnings = append(t.Warnings, f.String())
		}
	}
	foreign := func(c TaskChange) bool { return tenant != "" && c.Tenant != tenant || !w.By.Sees(c.Tenant) } // a tenant's file changes no other tenant
	t.Same, t.Untried = slices.DeleteFunc(after.Same, foreign), len(slices.DeleteFunc(after.Untried, foreign))
	t.MoreSame = max(0, len(t.Same)-maxSame)
	t.Same = t.Same[:min(len(t.Same), maxSame)]
	if office != switchboard.OfficeOperator {
		t.Tasks = slices.DeleteFunc(t.Tasks, foreign)
	}
	t.Programs = after.Config != nil && (!samePrograms(e.o.Servers(), after.Config.Servers) || !sameCommands(e.o.Secrets, after.Config.Secrets))
	return t, nil
}

// newFaults returns the faults that a reading has and the present files have not, as the officer may see them. names are the changed files.
func (e *Editor) newFaults(ctx context.Context, after *Reading, names []string, by *switchboard.Officer, tenant switchboard.TenantID) ([]string, error) {
	out := []string{}
	if len(after.Faults) == 0 {
		return out, nil
	}
	before, err := e.o.Try(ctx, nil)
	if err != nil {
		return nil, err
	}
	known, changed := map[string]bool{}, map[string]bool{}
	for _, f := range before.Faults {
		known[f.String()] = true
	}
	for _, name := range names {
		changed[filepath.Join(filepath.Dir(e.o.File), filepath.FromSlash(name))] = true
	}
	hidden := false
	for _, f := range after.Faults {
		switch {
		case known[f.String()] && !changed[filepath.Clean(f.File)]: // a fault that was there before, in another file, stays where it is
		case by.Operator || e.isSeen(by, tenant, f.File):
			out = append(out, f.String())
		default:
			hidden = true
		}
	}
	if hidden {
		out = append(out, "another file, which you may not see, would get a fault; an operator can say which")
	}
	return out, nil
}

// ProposeBoundaries returns the configuration with another text of capabilities/boundaries.yaml, which only an operator may propose; nil removes the file.
// Nothing is changed. The error is SB-CONF-001 with the faults that the text would add.
func ProposeBoundaries(ctx context.Context, e *Editor, by *switchboard.Officer, text []byte) (*config.Config, error) {
	if !by.Operator {
		return nil, switchboard.Refuse(switchboard.CodeNotAuthorized, "only an operator may propose boundaries")
	}
	return tryFiles(ctx, e, by, "", map[string][]byte{config.BoundariesPath: text})
}

// Propose returns the configuration with files replaced; a nil text deletes the file. Nothing is changed. The officer must be allowed to change each
// file, and no other tenant than tenant, unless that is "", may own one. The error is SB-CONF-001 with the faults that the files would add.
func (e *Editor) Propose(ctx context.Context, by *switchboard.Officer, tenant switchboard.TenantID, files map[string][]byte) (*config.Config, error) {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := permitFor(e, by, tenant, name); err != nil {
			return nil, err
		}
	}
	return tryFiles(ctx, e, by, tenant, files)
}

// tryFiles returns the configuration with files replaced.
func tryFiles(ctx context.Context, e *Editor, by *switchboard.Officer, tenant switchboard.TenantID, files map[string][]byte) (*config.Config, error) {
	after, err := e.o.Try(ctx, files)
	if err != nil {
		return nil, err
	}
	faults, err := e.newFaults(ctx, after, slices.Sorted(maps.Keys(files)), by, tenant)
	if err != nil {
		return nil, err
	}
	if len(faults) > 0 || after.Config == nil {
		return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: strings.Join(faults, "\n"), Hint: "nothing was compared"}
	}
	return after.Config, nil
}

// permitFor is Permit for a file that no other tenant may own, unless tenant is "".
func permitFor(e *Editor, by *switchboard.Officer, tenant switchboard.TenantID, name string) error {
	owner, _, err := e.Permit(by, name)
	if err == nil && tenant != "" && owner != "" && owner != tenant {
		err = switchboard.Refuse(switchboard.CodeBadArguments, "%.200q is a file of another tenant than %s, which the request is about", name, tenant)
	}
	return err
}

// PolicyFile returns the layer that a file of policies belongs to ("" means the operator's) and its path there. The officer must be allowed to change the
// file, and no other tenant than tenant, unless that is "", may own it. ok is false if the file has no policies.
func (e *Editor) PolicyFile(by *switchboard.Officer, tenant switchboard.TenantID, name string) (owner switchboard.TenantID, rel string, ok bool, err error) {
	if err := permitFor(e, by, tenant, name); err != nil {
		return "", "", false, err
	}
	owner, _, _ = e.OwnerOf(name)
	prefix := "policies/"
	if owner != "" {
		prefix = "tenants/" + string(owner) + "/policies/"
	}
	rel, ok = strings.CutPrefix(name, prefix)
	return owner, rel, ok, nil
}

// isSeen reports whether the file is in the folder of the tenant or, if that is "", of a tenant that the officer sees.
func (e *Editor) isSeen(by *switchboard.Officer, tenant switchboard.TenantID, file string) bool {
	rel, err := filepath.Rel(filepath.Dir(e.o.File), file)
	parts := strings.Split(filepath.ToSlash(rel), "/")
	if err != nil || len(parts) < 3 || parts[0] != "tenants" {
		return false
	}
	owner := switchboard.TenantID(parts[1])
	return owner == tenant || tenant == "" && by.Sees(owner)
}

// samePrograms reports whether the same programs are run, of the same packages and locks, with the same environments.
func samePrograms(a, b []switchboard.Server) bool {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) { // the list in force: only the folder of a tenant was changed
		return true
	}
	program := func(all []switchboard.Server) map[switchboard.ServerID][]any {
		out := map[switchboard.ServerID][]any{}
		for _, s := range all {
			env := map[string]string{}
			for name, v := range s.Env {
				env[name] = v.Reveal()
			}
			if len(s.Command) > 0 || len(env) > 0 || s.Package != (switchboard.Package{}) {
				out[s.ID] = []any{s.Command, s.Dir, env, s.Package}
			}
		}
		return out
	}
	was, now := program(a), program(b)
	for id, p := range now { // a program that is removed runs nothing
		if !reflect.DeepEqual(was[id], p) {
			return false
		}
	}
	return true
}

// sameCommands reports whether each command that prints a secret is one that runs already. A command that is removed runs nothing.
func sameCommands(inForce func() map[string]config.PrintedSecret, now map[string]config.PrintedSecret) bool {
	var was map[string]config.PrintedSecret
	if inForce != nil {
		was = inForce()
	}
	for name, s := range now {
		old, ok := was[name]
		if !ok || !s.SameProgram(&old) {
			return false
		}
	}
	return true
}

// DiffOf returns the unified difference of two texts of a file; "" if they are equal.
func DiffOf(name string, old, text []byte) string {
	return string(diff.Diff("a/"+name, old, "b/"+name, text))
}

// Hold waits for the right to change the files, and keeps it until release is called. All processes that change these files take turns. A change that is made
// meanwhile says so in Wish.Held. A process that is killed loses the right.
func Hold(ctx context.Context, e *Editor) (release func(), err error) {
	if release, err = e.o.Lock(ctx); err != nil {
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "another change is being made; try again when it has ended")
	}
	return release, nil
}

// holdFor is Hold for a wish.
func holdFor(ctx context.Context, e *Editor, w *Wish) (release func(), err error) {
	if w.Held {
		return func() {}, nil
	}
	return Hold(ctx, e)
}

// Apply makes the change, and returns it when it is in force here. A change that is in force is returned with an error too, if its end could not be recorded. The error is a *switchboard.Error: SB-CONF-001 with the faults, SB-CONF-002 if the
// file has another content than IfMatch says, SB-CONF-003 with the difference if files are not changed here, SB-RCPT-001 if no receipt can be written.
func (e *Editor) Apply(ctx context.Context, w Wish) (*Revision, error) {
	tenant, office, err := permitAll(e, &w)
	if err != nil {
		return nil, err
	}
	if len(w.More) > 0 || w.DropFolder {
		return severalFiles{e}.apply(ctx, w, tenant, office)
	}
	target, err := e.locate(w.Path)
	if err != nil {
		return nil, err
	}
	release, err := holdFor(ctx, e, &w)
	if err != nil {
		return nil, err
	}
	defer release()
	c := newRevision(&w, []FileRevision{{Path: w.Path, Office: office, Tenant: tenant}})
	var back []byte // the content before the change
	begin := func(old []byte) error {
		if err := e.admit(ctx, w, tenant, office, [][]byte{old}); err != nil {
			return err
		}
		back = old
		c.setTexts(old, w.Text)
		c.NewFolder = w.Text != nil && !exists(filepath.Dir(target))
		return e.begin(ctx, c)
	}
	if err := e.put(ctx, target, w.Text, begin); err != nil {
		return nil, errors.Join(e.explain(w.Path, err), e.end(ctx, c, false, ""))
	}
	ctx = context.WithoutCancel(ctx) // the file is changed, also if the officer does not wait for the answer
	if err := e.o.Reload(ctx); err != nil {
		note := "the reload refused it, and the file has its old content again"
		if undo := e.put(ctx, target, back, func([]byte) error { return nil }); undo != nil {
			note = "the reload refused it, and the old content could not be put back"
		} else {
			_ = e.o.Reload(ctx) // it was in force before
		}
		refused := &switchboard.Error{Code: switchboard.CodeConfig, Text: note + ": " + err.Error()}
		return nil, errors.Join(refused, e.end(ctx, c, false, note))
	}
	return c, e.end(ctx, c, true, "")
}

// admit refuses a change that may not be made. old are the present contents of the files, in the order of w.Files.
func (e *Editor) admit(ctx context.Context, w Wish, tenant switchboard.TenantID, office switchboard.Office, old [][]byte) error {
	for i, f := range w.Files() {
		if err := admitFile(MainFile(e), &f, old[i]); err != nil {
			return err
		}
	}
	if w.Restore {
		return nil
	}
	t, err := e.try(ctx, w, tenant, office, old)
	if err != nil {
		return err
	}
	if len(t.Faults) > 0 {
		return &switchboard.Error{Code: switchboard.CodeConfig, Text: strings.Join(t.Faults, "\n"), Hint: "nothing was written"}
	}
	switch mode := e.o.Edit(); {
	case mode == config.EditNone:
		return &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: "files are not changed here (admin.edit is false); roll this difference out:\n" + t.Diff}
	case t.Programs && mode != config.EditPrograms:
		return &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: "this changes what is run, which only an edit of the file may do, unless admin.edit is programs; the difference:\n" + t.Diff}
	}
	return nil
}

// admitFile refuses the change of a file that has another content than it assumes.
func admitFile(main string, f *FileWish, old []byte) error {
	present := ""
	if old != nil {
		present = ETagOf(old)
	}
	if present != f.IfMatch {
		err := switchboard.Refuse(switchboard.CodeChangedMeanwhile, "%s was changed meanwhile; nothing was written", f.Path)
		if present != "" {
			err.Hint = "read it again; it has the entity tag " + present + " now"
		} else {
			err.Hint = "there is no such file any more"
		}
		return err
	}
	if old == nil && f.Text == nil {
		return &NotFoundError{Text: "there is no file " + f.Path}
	}
	if f.Text == nil && f.Path == main {
		return &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: f.Path + " is the configuration itself and is not deleted"}
	}
	return nil
}

// put writes the file, or removes it if text is nil. begin is called with the present content, and may refuse.
func (e *Editor) put(ctx context.Context, target string, text []byte, begin func(old []byte) error) error {
	if text == nil {
		return rewrite.Remove(ctx, target, begin)
	}
	if _, err := os.Stat(filepath.Dir(target)); errors.Is(err, fs.ErrNotExist) {
		if err := begin(nil); err != nil {
			return err
		}
		return rewrite.MakeFolder(target, text, 0o600)
	}
	same := errors.New("")
	err := rewrite.File(ctx, target, 0o600, func(old []byte) ([]byte, error) {
		if err := begin(old); err != nil {
			return nil, err
		}
		if bytes.Equal(old, text) && old != nil {
			return nil, same
		}
		return text, nil
	})
	if errors.Is(err, same) {
		return nil
	}
	return err
}

// explain returns err as a *switchboard.Error.
func (e *Editor) explain(name string, err error) error {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own
	}
	if missing, ok := errors.AsType[*NotFoundError](err); ok {
		return missing
	}
	return &switchboard.Error{Code: switchboard.CodeConfig, Text: fmt.Sprintf("%s cannot be written: %s", name, document.ErrorText(err))}
}
