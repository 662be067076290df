package proposal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// killed is the panic that stands for the end of the process.
type killed struct{}

// A ledger keeps receipts in memory.
type ledger struct {
	w       *world
	written []receipt.Receipt
}

func (l *ledger) Durable() bool { return true }

func (l *ledger) Write(_ context.Context, r *receipt.Receipt) (string, error) {
	l.w.step("receipt")
	if l.w.unrecorded && r.Of != "" {
		return "", errors.New("the disk is full")
	}
	return l.Add(r), nil
}

func (l *ledger) Add(r *receipt.Receipt) string {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.written = append(l.written, *r)
	return fmt.Sprint("n1/", len(l.written))
}

// A world is a book over a folder with two tenants. Each server has the tools one and two.
type world struct {
	*Keeper
	t      *testing.T
	dir    string
	store  store.Store
	ledger *ledger
	mode   config.EditMode

	mu     sync.Mutex
	served *config.Config

	kill  int                           // the step at which the process ends; 0 means none
	steps int                           // so far
	lie   func(tools []string) []string // what the served state does to each list
	past  func() *replay.Diff
	tried func(*change.Reading) // changes what a trial finds

	read map[string]string // the files that the state in force was made from

	lock chan struct{} // holds a value while a process changes files

	unrecorded bool // no outcome of a change can be recorded

	revoked []string // the ids of officers whose keys are gone
}

const (
	tenantFile = "tenants/acme/tenant.yaml"
	taskFile   = "tenants/acme/tasks/all.yaml"
)

var startFiles = map[string]string{
	"switchboard.yaml": `listen: 127.0.0.1:7420
servers:
  a: {transport: stdio, command: [run, a]}
  b: {transport: stdio, command: [run, b]}
operators: [{key: ops, hash: "sha256:1111111111111111111111111111111111111111111111111111111111111111"}]
tenants:
  acme: {servers: ["*"], allow: [by_name]}
  umbrella: {servers: ["*"], allow: [by_name]}
`,
	tenantFile:                          "tenant: acme # ours\r\ndefault_task: all\r\n", // as editors of Windows write it
	taskFile:                            "task_id: all\nrequired_capabilities: [{tools: [\"a/*\"]}]\n",
	"tenants/umbrella/tenant.yaml":      "tenant: umbrella\ndefault_task: all\n",
	"tenants/umbrella/tasks/all.yaml":   "task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n",
	"overlays/a.yaml":                   "server: a\ntools:\n  one: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}\n",
	"policies/shipped.rego":             "package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\n",
	"capabilities/io.look.yaml":         "id: io.look\nversion: 1.0.0\nstatus: testing\nverb: read\nresource: fs\n",
	"taxonomy.yaml":                     "resources: {ledger: {}}\n",
	"tenants/acme/policies/veto.rego":   "package switchboard.tenant\nallowed_tools contains c.id if some c in input.candidate_tools\n",
	"tenants/acme/overlays/labels.yaml": "server: b\ntools:\n  one: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}\n",
}

func newWorld(t *testing.T) *world { return newWorldOver(t, store.NewMemory()) }

// newWorldOver returns a world that keeps its proposals in a store.
func newWorldOver(t *testing.T, st store.Store) *world {
	w := &world{t: t, dir: t.TempDir(), store: st, mode: config.EditFiles, lock: make(chan struct{}, 1)}
	w.ledger = &ledger{w: w}
	for name, text := range startFiles {
		w.write(name, text)
	}
	w.start()
	return w
}

// another starts another process of the same files and the same store.
func (w *world) another() *world {
	other := &world{t: w.t, dir: w.dir, store: w.store, mode: w.mode, lock: w.lock}
	other.ledger = &ledger{w: other}
	other.start()
	return other
}

func (w *world) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, filepath.FromSlash(name))
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) text(name string) string {
	text, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(name)))
	if err != nil {
		return "absent"
	}
	return string(text)
}

// files returns the content of each file, with the names of folders.
func (w *world) files() map[string]string {
	out := map[string]string{}
	err := filepath.WalkDir(w.dir, func(name string, d os.DirEntry, err error) error {
		rel, _ := filepath.Rel(w.dir, name)
		if err != nil || d.IsDir() {
			out[rel+"/"] = ""
			return err
		}
		out[rel] = w.text(filepath.ToSlash(rel))
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// step ends the process at the step that the test wants.
func (w *world) step(string) {
	w.mu.Lock()
	w.steps++
	end := w.steps == w.kill
	w.mu.Unlock()
	if end {
		panic(killed{})
	}
}

// A steppedStore is a step at each write.
type steppedStore struct {
	store.Store
	w *world
}

func (s steppedStore) Apply(ctx context.Context, c store.Change) (store.Version, error) {
	s.w.step("before a write")
	v, err := s.Store.Apply(ctx, c)
	s.w.step("after a write")
	return v, err
}

// lasting returns the files without the journal, which means nothing once the files are exchanged.
func (w *world) lasting() map[string]string {
	files := w.files()
	delete(files, config.JournalFile)
	return files
}

func (w *world) world() *TaskWorld {
	read := w.read
	return &TaskWorld{tasksOf(w.served, w.lie), w.served, func() bool { return maps.Equal(w.lasting(), read) }}
}

func (w *world) loadFiles(replace map[string][]byte) (*config.Config, error) {
	w.mu.Lock()
	was := w.served
	w.mu.Unlock()
	return config.Load(context.Background(), filepath.Join(w.dir, "switchboard.yaml"), config.Options{Replace: replace, Previous: was})
}

// start starts the process: it reads the files.
func (w *world) start() {
	w.t.Helper()
	w.kill, w.steps = 0, 0
	c, err := w.loadFiles(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	w.served, w.read = c, w.lasting()
	st := steppedStore{w.store, w}
	editor := change.New(change.Options{
		File: filepath.Join(w.dir, "switchboard.yaml"), Place: "here", Store: st, Ledger: w.ledger, Timeout: 10 * time.Second,
		Edit:    func() config.EditMode { return w.mode },
		Servers: func() []switchboard.Server { return w.served.Servers },
		Intent:  func(context.Context, receipt.Receipt, time.Time) (string, error) { return "", nil },
		Lock: func(ctx context.Context) (func(), error) {
			select {
			case w.lock <- struct{}{}:
				return func() { <-w.lock }, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		Try: func(_ context.Context, replace map[string][]byte) (*change.Reading, error) {
			c, err := w.loadFiles(replace)
			if faults, ok := errors.AsType[switchboard.Faults](err); ok {
				return &change.Reading{Faults: faults}, nil
			}
			if err != nil {
				return nil, err
			}
			faults, _ := errors.AsType[switchboard.Faults](c.Err())
			r := &change.Reading{Config: c, Faults: faults, Changed: config.Changes(w.served, c), Aside: tasksOf(c, nil)}
			if w.tried != nil && replace != nil {
				w.tried(r)
			}
			return r, nil
		},
		Reload: func(context.Context) error {
			w.step("before the reload")
			c, err := w.loadFiles(nil)
			if err != nil {
				return err
			}
			w.mu.Lock()
			w.served, w.read = c, w.lasting()
			w.mu.Unlock()
			w.step("after the reload")
			return nil
		},
		Compare: func(context.Context, replay.Bounds, *replay.Proposal) (*replay.Diff, error) { return w.diff(), nil },
	})
	w.Keeper = New(Options{
		Editor: editor, Store: st, Log: slog.New(slog.DiscardHandler),
		Record: func(r receipt.Receipt, do func() error) error {
			id, err := w.ledger.Write(context.Background(), &r)
			if err != nil {
				return err
			}
			err = do()
			if r.Of, r.Outcome = id, receipt.OK; err != nil {
				r.Outcome = receipt.Refused
			}
			w.ledger.Add(&r)
			return err
		},
		Officer: func(_ switchboard.TenantID, v *PersonVote) (switchboard.Officer, error) {
			for _, o := range []*switchboard.Officer{ann, bob, cid, ops, oda, olf} {
				if o.Credential == v.Credential && !slices.Contains(w.revoked, o.ID) {
					return *o, nil
				}
			}
			if v.Auth == switchboard.AuthDataFolder {
				return *local, nil
			}
			return switchboard.Officer{}, errors.New("the key is gone")
		},
		Served:  func() *TaskWorld { return w.world() },
		Compare: func(context.Context, replay.Bounds, *config.Config) (*replay.Diff, error) { return w.diff(), nil },
		Told:    func(*KeptProposal, string) {},
	})
}

func (w *world) diff() *replay.Diff {
	if w.past != nil {
		return w.past()
	}
	return &replay.Diff{Looked: &replay.LookedAt{}}
}

// restart ends the process and starts the next one, which recovers.
func (w *world) restart() {
	w.t.Helper()
	w.start()
	if err := errors.Join(w.o.Editor.Recover(w.t.Context()), w.Recover(w.t.Context())); err != nil {
		w.t.Fatal(err)
	}
	w.start() // with what the recovery has left
}

// tasksOf decides as simply as possible: by name, or with the server that the tenant prefers for what is searched.
func tasksOf(c *config.Config, lie func([]string) []string) *change.TaskState {
	return &change.TaskState{
		Tasks: func(t switchboard.TenantID) []switchboard.TaskID {
			if c.Tenants[t] == nil {
				return nil
			}
			return slices.Sorted(maps.Keys(c.Tenants[t].Tasks))
		},
		Look: func(_ context.Context, t switchboard.TenantID, id switchboard.TaskID) change.TaskTools {
			tenant := c.Tenants[t]
			out := change.TaskTools{Tools: []string{}}
			for _, r := range tenant.Tasks[id].Requirements {
				met := change.ServedRequirement{Name: string(r.Verb) + ":" + string(r.Resource)}
				for _, s := range tenant.Servers {
					for _, name := range []string{"one", "two"} {
						tool := string(s) + "/" + name
						byName := slices.ContainsFunc(r.Tools, func(p string) bool { ok, _ := path.Match(p, tool); return ok })
						preferred := r.Verb != "" && len(tenant.Ranking.Prefer) > 0 && tenant.Ranking.Prefer[0].Servers[0] == s && name == "one"
						if byName || preferred {
							met.Tools = append(met.Tools, tool)
						}
					}
				}
				out.Tools = append(out.Tools, met.Tools...)
				out.Requirements = append(out.Requirements, met)
				if len(met.Tools) == 0 {
					return change.TaskTools{Tools: []string{}, Why: "nothing meets " + met.Name}
				}
			}
			if lie != nil {
				out.Tools = lie(out.Tools)
			}
			return out
		},
	}
}

func admin(id string) *switchboard.Officer {
	return &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey, Credential: "key of " + id, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeAdmin}}}
}

func operator(id string) *switchboard.Officer {
	return &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey, Credential: "key of " + id, Operator: true}
}

var (
	ann, bob, cid = admin("ann"), admin("bob"), admin("cid")
	ops, oda, olf = operator("ops"), operator("oda"), operator("olf")
	local         = &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}
	agent         = Proposer{ID: "robot", Auth: switchboard.AuthAPIKey, Agent: true, Tenant: "acme"}
)

// ofAgent returns the draft with the claims that an agent may make.
func ofAgent(d *Draft) *Draft {
	d.Claims = slices.DeleteFunc(d.Claims, func(c StatedClaim) bool { return c.Tenant != "acme" })
	return d
}

// propose creates a proposal by an officer.
func (w *world) propose(by *switchboard.Officer, d *Draft) (*KeptProposal, error) {
	return w.Create(w.t.Context(), ByOfficer(by), by, d)
}

// reason names a refusal: its code, or "not found".
func reason(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return string(own.Code)
	}
	if _, ok := errors.AsType[*change.NotFoundError](err); ok {
		return "not found"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// swap is a draft that gives task all the tools of server b.
func swap() *Draft {
	return &Draft{
		Note:  "b is faster",
		Files: []FileDraft{{Path: taskFile, Text: new("task_id: all\nrequired_capabilities: [{tools: [\"b/*\"]}]\n")}},
		Claims: []StatedClaim{
			{Tenant: "acme", Task: "all", Lists: "b/one"},
			{Tenant: "acme", Task: "all", Lists: "b/two"},
			{Tenant: "acme", Task: "all", Hides: "a/one"},
			{Tenant: "acme", Task: "all", Hides: "a/two"},
			{Tenant: "acme", Unchanged: true},
			{Tenant: "umbrella", Unchanged: true},
		},
	}
}

// several is a draft of several files of acme, of which no part alone is a good configuration. It needs one yes.
func several() *Draft {
	return &Draft{
		Note: "one task, and the search",
		Files: []FileDraft{
			{Path: "tenants/acme/tasks/next.yaml", Text: new("task_id: next\nrequired_capabilities: [{verb: search, resource: internet}, {tools: [\"a/*\"]}]\n")},
			{Path: tenantFile, Text: new("tenant: acme\ndefault_task: next\nranking: {prefer: [{verb: search, resource: internet, servers: [b]}]}\n")},
			{Path: taskFile, Delete: true},
		},
		Claims: []StatedClaim{
			{Tenant: "acme", Task: "next", Meets: "search:internet", By: "b/one"}, {Tenant: "acme", Task: "next", Hides: "b/two"}, {Tenant: "umbrella", Unchanged: true}, {Tenant: "acme", Decisions: 7},
		},
	}
}

func join(lines ...string) string { return strings.Join(lines, "\n") }

// stored returns a proposal as it is stored.
func (w *world) stored(id string) (*KeptProposal, store.Version, error) {
	return w.load(w.t.Context(), id)
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.dir, filepath.FromSlash(name))); err != nil {
		w.t.Fatal(err)
	}
}
