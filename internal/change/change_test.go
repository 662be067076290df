package change

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ledger keeps receipts in memory.
type ledger struct {
	mu      sync.Mutex
	written []receipt.Receipt
	err     error // of the next intents
}

func (l *ledger) Durable() bool { return true }

func (l *ledger) Write(_ context.Context, r *receipt.Receipt) (string, error) {
	if l.err != nil {
		return "", l.err
	}
	return l.Add(r), nil
}

func (l *ledger) Add(r *receipt.Receipt) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written = append(l.written, *r)
	return fmt.Sprint("n1/", len(l.written))
}

// A world is an editor over a folder with two tenants.
type world struct {
	*Editor
	dir     string
	ledger  *ledger
	store   store.Store
	mode    config.EditMode
	onLoad  func()      // if set, is called before each reading
	refuses atomic.Bool // the next reloads
	reloads atomic.Int32
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), ledger: &ledger{}, store: store.NewMemory(), mode: config.EditFiles}
	for name, text := range map[string]string{
		"switchboard.yaml":               "servers:\n  a: {transport: stdio, command: [run, a]}\ntenants:\n  acme: {servers: [\"*\"], allow: [by_name]}\n  umbrella: {servers: [\"*\"]}\n",
		"tenants/acme/tenant.yaml":       "tenant: acme # ours\ndefault_task: all\n",
		"tenants/acme/tasks/all.yaml":    "task_id: all\nrequired_capabilities: [{tools: [\"a/*\"]}]\n",
		"tenants/umbrella/tenant.yaml":   "tenant: umbrella\n",
		"tenants/umbrella/broken/x.yaml": "",
	} {
		file := filepath.Join(w.dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.Editor = w.editor()
	return w
}

// editor returns another editor of the same files.
func (w *world) editor() *Editor {
	main := filepath.Join(w.dir, "switchboard.yaml")
	load := func(ctx context.Context, replace map[string][]byte) (*Reading, error) {
		if w.onLoad != nil {
			w.onLoad()
		}
		was, _ := config.Load(ctx, main, config.Options{})
		c, err := config.Load(ctx, main, config.Options{Replace: replace, Previous: was})
		if faults, ok := errors.AsType[switchboard.Faults](err); ok {
			return &Reading{Faults: faults}, nil
		}
		if err != nil {
			return nil, err
		}
		faults, _ := errors.AsType[switchboard.Faults](c.Err())
		return &Reading{Config: c, Faults: faults}, nil
	}
	var mu sync.Mutex
	return New(Options{
		File: main, Try: load, Place: "here", Store: w.store, Ledger: w.ledger, Timeout: 10 * time.Second,
		Edit: func() config.EditMode { return w.mode },
		Servers: func() []switchboard.Server {
			c, err := config.Load(context.Background(), main, config.Options{})
			if err != nil {
				return nil
			}
			return c.Servers
		},
		Secrets: func() map[string]config.PrintedSecret {
			c, err := config.Load(context.Background(), main, config.Options{})
			if err != nil {
				return nil
			}
			return c.Secrets
		},
		Intent: func(_ context.Context, r receipt.Receipt, _ time.Time) (id string, err error) {
			for i, x := range w.ledger.written {
				one := fmt.Sprint("n1/", i+1)
				ended := slices.ContainsFunc(w.ledger.written, func(o receipt.Receipt) bool { return o.Of == one })
				if x.Change == r.Change && x.Of == "" && !ended {
					id = one
				}
			}
			return id, nil
		},
		Lock: func(context.Context) (func(), error) { mu.Lock(); return mu.Unlock, nil },
		Reload: func(context.Context) error {
			w.reloads.Add(1)
			if w.refuses.Load() {
				w.refuses.Store(false)
				return errors.New("the reload says no")
			}
			return nil
		},
	})
}

func (w *world) text(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(name)))
	if errors.Is(err, os.ErrNotExist) {
		return "absent"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	ops = switchboard.Officer{ID: "ops", Auth: switchboard.AuthPersonKey, Operator: true}
	ann = switchboard.Officer{ID: "ann", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeAdmin}}}
	art = switchboard.Officer{ID: "art", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeAuthor}}}
	vic = switchboard.Officer{ID: "vic", Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeViewer}}}
)

const tenantFile = "tenants/acme/tenant.yaml"

// reason names a refusal: its code, or "not found".
func reason(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return string(own.Code)
	}
	if _, ok := errors.AsType[*NotFoundError](err); ok {
		return "not found"
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestWhoMayChangeWhichFile(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct {
		path               string
		ops, ann, art, vic string
	}{
		{"switchboard.yaml", "", "not found", "not found", "not found"},
		{"taxonomy.yaml", "", "not found", "not found", "not found"},
		{"admitted.lock", "", "not found", "not found", "not found"},
		{"overlays/a.yaml", "", "not found", "not found", "not found"},
		{"capabilities/io.fs.read.yaml", "", "not found", "not found", "not found"},
		{"policies/deep/er.rego", "", "not found", "not found", "not found"},
		{tenantFile, "", "", "SB-AUTH-002", "SB-AUTH-002"},
		{"tenants/acme/tasks/new.yaml", "", "", "SB-AUTH-002", "SB-AUTH-002"},
		{"tenants/acme/policies/own.rego", "", "", "", "SB-AUTH-002"},
		{"tenants/umbrella/tenant.yaml", "", "not found", "not found", "not found"},
		{"tenants/nosuch/tenant.yaml", "", "not found", "not found", "not found"},
	} {
		for who, want := range map[*switchboard.Officer]string{&ops: tt.ops, &ann: tt.ann, &art: tt.art, &vic: tt.vic} {
			if _, _, err := w.Permit(who, tt.path); reason(err) != want {
				t.Errorf("%s at %s: %q, want %q", who.ID, tt.path, reason(err), want)
			}
		}
	}
	for _, path := range []string{
		"", ".", "..", "../x.yaml", "/etc/passwd", "tenants/acme/../umbrella/tenant.yaml", "tenants/acme/tenant.yaml/", "./switchboard.yaml", `tenants\acme\tenant.yaml`, "tenants//acme/tenant.yaml",
		"secret", "tenants/acme/admitted.lock", "policies.lock", "manifests/a.json", "capabilities/published.lock", "capabilities/deep/x.yaml", "tenants/acme/.hidden.yaml", "tenants/acme/tasks/deep/x.yaml", "tenants/acme/tasks/x.txt", "tenants/ACME/tenant.yaml", "tenants/acme", "tenants/acme/tenant.yaml~", "x\x00.yaml", strings.Repeat("a", 600),
	} {
		if _, _, err := w.Permit(&ops, path); reason(err) != "not found" {
			t.Errorf("%.40q: %v", path, err)
		}
	}
}

// A published version is as immutable to the admin side as to a reload, and the refusal has the same words.
func TestAPublishedVersionIsNotChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const name = "capabilities/io.look.yaml"
	text := "id: io.look\nversion: 1.0.0\nstatus: testing\nverb: read\nresource: fs\n"
	apply := func(text []byte) error {
		old, err := w.Read(&ops, name)
		if err != nil {
			t.Fatal(err)
		}
		wish := Wish{FileWish: FileWish{Path: name, Text: text}, By: ops}
		if old != nil {
			wish.IfMatch = ETagOf(old)
		}
		_, err = w.Apply(t.Context(), wish)
		return err
	}
	if err := apply([]byte(text)); err != nil {
		t.Fatal(err)
	}
	main, lock := filepath.Join(w.dir, "switchboard.yaml"), filepath.Join(w.dir, config.CapabilitiesFolder, capability.LockFile)
	active := strings.Replace(text, "testing", "active", 1)
	if err := apply([]byte(active)); err == nil || !strings.Contains(err.Error(), "switchboard capability publish io.look@1.0.0") {
		t.Errorf("active before it is published: %v", err)
	}
	registry, err := config.ReadRegistry(main, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	locked, err := capability.AddToLock(lock, nil, registry.Versions("io.look")[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(lock, locked, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := apply([]byte(active)); err != nil {
		t.Errorf("the status of a published version: %v", err)
	}
	for what, text := range map[string][]byte{"changed": []byte(strings.Replace(active, "verb: read", "verb: write", 1)), "deleted": nil} {
		refused := apply(text)
		_, atLoad := config.Load(t.Context(), main, config.Options{Replace: map[string][]byte{name: text}})
		if reason(refused) != "SB-CONF-001" || atLoad == nil || !strings.Contains(refused.Error(), strings.Split(atLoad.Error(), "\n")[0]) || w.text(t, name) != active {
			t.Errorf("%s: %v\nat load: %v", what, refused, atLoad)
		}
	}
}

func TestAChangeIsCheckedWrittenWholeAndKept(t *testing.T) {
	w := newWorld(t)
	before := w.text(t, tenantFile)
	c, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme # ours\nmode: observe\ndefault_task: all\n"), IfMatch: ETagOf([]byte(before))}, By: ann, Reason: "quiet week"})
	if err != nil {
		t.Fatal(err)
	}
	if w.reloads.Load() != 1 || !strings.Contains(w.text(t, tenantFile), "mode: observe") {
		t.Errorf("%d reloads; the file: %s", w.reloads.Load(), w.text(t, tenantFile))
	}
	r := w.ledger.written
	if len(r) != 2 || r[0].Outcome != "" || r[1].Outcome != receipt.OK || r[1].Of != "n1/1" || r[1].Change != (receipt.FileChange{File: tenantFile, Office: "admin", Before: c.BeforeDigest, After: c.AfterDigest}) ||
		r[1].Principal.ID != "ann" || r[1].Tenant != "acme" || r[1].Note != "quiet week" {
		t.Errorf("the receipts: %+v", r)
	}
	history, err := w.History(t.Context(), &ann)
	if err != nil || len(history) != 1 || history[0].ID != "1" || history[0].Before != nil {
		t.Errorf("%+v, %v", history, err)
	}
	if history, _ := w.History(t.Context(), &vic); len(history) != 0 {
		t.Errorf("a viewer sees %+v", history)
	}
	if one, err := w.Show(t.Context(), &ann, "1"); err != nil || *one.Before != before || !strings.Contains(one.Diff(), "+mode: observe\n") {
		t.Errorf("%+v, %v", one, err)
	}

	// A revert of a revert is the change again.
	for i, want := range []string{before, *c.After} {
		if _, err := w.Revert(t.Context(), ann, fmt.Sprint(i+1), ""); err != nil {
			t.Fatal(err)
		}
		if got := w.text(t, tenantFile); got != want {
			t.Errorf("after revert %d: %q, want %q", i+1, got, want)
		}
	}
	if _, err := w.Revert(t.Context(), ann, "2", ""); reason(err) != "SB-CONF-002" {
		t.Errorf("a revert of what was changed since: %v", err)
	}
}

func TestAChangeThatMayNotBeMadeWritesNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		wish  Wish
		setUp func(w *world)
		want  string
		says  string
	}{
		{name: "no entity tag", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\n")}, By: ann}, want: "SB-CONF-002"},
		{name: "an old entity tag", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\n"), IfMatch: ETagOf([]byte("old"))}, By: ann}, want: "SB-CONF-002", says: "now"},
		{name: "a new file that exists no more", wish: Wish{FileWish: FileWish{Path: "tenants/acme/tasks/gone.yaml", Text: []byte("task_id: gone\n"), IfMatch: `"x"`}, By: ann}, want: "SB-CONF-002"},
		{name: "a fault", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\nmod: observe\n")}, By: ann}, want: "SB-CONF-001", says: `did you mean "mode"?`},
		{name: "rubbish", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("\x00\xff")}, By: ann}, want: "SB-CONF-001"},
		{name: "too large", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte(strings.Repeat("# x\n", 1<<20))}, By: ann}, want: "SB-CONF-001", says: "bytes"},
		{name: "a fault in a file of another tenant", wish: Wish{FileWish: FileWish{Path: "switchboard.yaml", Text: []byte("servers:\n  a: {transport: stdio, command: [run, a]}\ntenants:\n  umbrella: {servers: [\"*\"]}\n")}, By: ops}, want: "SB-CONF-001", says: "tenants/acme"},
		{name: "another program", wish: Wish{FileWish: FileWish{Path: "switchboard.yaml", Text: []byte("servers:\n  a: {transport: stdio, command: [run, b]}\ntenants:\n  acme: {servers: [\"*\"], allow: [by_name]}\n  umbrella: {servers: [\"*\"]}\n")}, By: ops}, want: "SB-CONF-003", says: "-  a: {transport: stdio, command: [run, a]}"},
		{name: "no edit", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\nmode: observe\n")}, By: ann}, setUp: func(w *world) { w.mode = config.EditNone }, want: "SB-CONF-003", says: "+mode: observe"},
		{name: "the configuration itself is deleted", wish: Wish{FileWish: FileWish{Path: "switchboard.yaml"}, By: ops}, want: "SB-CONF-003"},
		{name: "what is not there is deleted", wish: Wish{FileWish: FileWish{Path: "tenants/acme/tasks/gone.yaml"}, By: ann}, want: "not found"},
		{name: "no receipt", wish: Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\nmode: observe\n")}, By: ann}, setUp: func(w *world) { w.ledger.err = switchboard.Refuse(switchboard.CodeReceipt, "full") }, want: "SB-RCPT-001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			if tt.setUp != nil {
				tt.setUp(w)
			}
			before := w.text(t, tt.wish.Path)
			if tt.wish.IfMatch == "" && before != "absent" && tt.name != "no entity tag" {
				tt.wish.IfMatch = ETagOf([]byte(before))
			}
			_, err := w.Apply(t.Context(), tt.wish)
			if reason(err) != tt.want || err != nil && !strings.Contains(err.Error()+hintOf(err), tt.says) {
				t.Errorf("%q: %v", reason(err), err)
			}
			if now := w.text(t, tt.wish.Path); now != before {
				t.Errorf("the file was changed: %q", now)
			}
			if len(w.ledger.written) > 0 || w.reloads.Load() > 0 {
				t.Errorf("%d receipts, %d reloads", len(w.ledger.written), w.reloads.Load())
			}
		})
	}
}

func hintOf(err error) string {
	if own, ok := errors.AsType[*switchboard.Error](err); ok {
		return own.Hint
	}
	return ""
}

func TestProgramsChangeWhereTheOperatorLetsThem(t *testing.T) {
	w := newWorld(t)
	w.mode = config.EditPrograms
	text := strings.Replace(w.text(t, "switchboard.yaml"), "[run, a]", "[run, b]", 1)
	if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: "switchboard.yaml", Text: []byte(text), IfMatch: ETagOf([]byte(w.text(t, "switchboard.yaml")))}, By: ops}); err != nil {
		t.Error(err)
	}
}

// A package is a program: neither a new one, nor another version, nor another lock comes in without the operator's programs.
func TestAPackageIsAProgram(t *testing.T) {
	row := func(p switchboard.Package) []switchboard.Server { return []switchboard.Server{{ID: "a", Package: p}} }
	was := row(switchboard.Package{Name: "clock", Version: "1.0.0", Lock: "one"})
	for name, now := range map[string][]switchboard.Server{
		"a new server":    append(slices.Clone(was), switchboard.Server{ID: "b", Package: was[0].Package}),
		"another package": row(switchboard.Package{Name: "clokc", Version: "1.0.0", Lock: "one"}),
		"another version": row(switchboard.Package{Name: "clock", Version: "1.0.1", Lock: "one"}),
		"another lock":    row(switchboard.Package{Name: "clock", Version: "1.0.0", Lock: "two"}),
	} {
		if samePrograms(was, now) {
			t.Errorf("%s runs the same programs", name)
		}
	}
	if !samePrograms(was, row(was[0].Package)) || !samePrograms(was, []switchboard.Server{}) {
		t.Error("the same package, or none, runs another program")
	}
}

// A stolen session of an operator must not run code: neither by the change nor by the trial of it.
func TestACommandThatPrintsASecretIsAProgram(t *testing.T) {
	w := newWorld(t)
	ran := filepath.Join(w.dir, "ran")
	before := w.text(t, "switchboard.yaml")
	text := strings.Replace(before, "servers:", "secrets: {x: {command: [touch, "+ran+"]}}\nservers:", 1)
	text = strings.Replace(text, "command: [run, a]", "command: [run, a], env: {TOKEN: \"${secret:x}\"}", 1)
	_, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: "switchboard.yaml", Text: []byte(text), IfMatch: ETagOf([]byte(before))}, By: ops})
	if reason(err) != "SB-CONF-003" || !strings.Contains(err.Error(), "changes what is run") {
		t.Errorf("%v", err)
	}
	alone := strings.Replace(text, ", env: {TOKEN: \"${secret:x}\"}", "", 1)
	_, err = w.Apply(t.Context(), Wish{FileWish: FileWish{Path: "switchboard.yaml", Text: []byte(alone), IfMatch: ETagOf([]byte(before))}, By: ops})
	if reason(err) != "SB-CONF-003" {
		t.Errorf("a command that nothing refers to: %v", err)
	}
	if _, err := os.Stat(ran); err == nil || w.text(t, "switchboard.yaml") != before {
		t.Error("the command was run, or the file was changed")
	}
}

// A fault that was there before, in another file, does not stop a change: a fault stays where it is.
func TestAnotherTenantsFaultStopsNoChange(t *testing.T) {
	w := newWorld(t)
	if err := os.WriteFile(filepath.Join(w.dir, "tenants/umbrella/tenant.yaml"), []byte("tenant: umbrella\nbroken: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\n"), IfMatch: ETagOf([]byte(w.text(t, tenantFile)))}, By: ann}); err != nil {
		t.Error(err)
	}
	_, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: "tenants/umbrella/tenant.yaml", Text: []byte("tenant: umbrella\nbroken: false\n"), IfMatch: ETagOf([]byte(w.text(t, "tenants/umbrella/tenant.yaml")))}, By: ops})
	if reason(err) != "SB-CONF-001" {
		t.Errorf("a change that leaves the fault in its own file: %v", err)
	}
}

func TestAReloadThatIsRefusedPutsTheOldTextBack(t *testing.T) {
	w := newWorld(t)
	before := w.text(t, tenantFile)
	w.refuses.Store(true)
	_, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: []byte("tenant: acme\n"), IfMatch: ETagOf([]byte(before))}, By: ann})
	if reason(err) != "SB-CONF-001" || w.text(t, tenantFile) != before || w.reloads.Load() != 2 {
		t.Errorf("%v; %d reloads; the file: %q", err, w.reloads.Load(), w.text(t, tenantFile))
	}
	if r := w.ledger.written; len(r) != 2 || r[1].Outcome != receipt.Refused {
		t.Errorf("the receipts: %+v", r)
	}
	if history, _ := w.History(t.Context(), &ann); len(history) != 0 {
		t.Errorf("the history: %+v", history)
	}
}

// AD-01: of a hundred writers with one entity tag, one wins.
func TestAD01OfAHundredWritersWithOneEntityTagOneWins(t *testing.T) {
	w := newWorld(t)
	etag := ETagOf([]byte(w.text(t, tenantFile)))
	var won, lost atomic.Int32
	var writers sync.WaitGroup
	for i := range 100 {
		writers.Go(func() {
			_, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: fmt.Appendf(nil, "tenant: acme # %d\n", i), IfMatch: etag}, By: ann})
			switch reason(err) {
			case "":
				won.Add(1)
			case "SB-CONF-002":
				lost.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if won.Load() != 1 || lost.Load() != 99 {
		t.Errorf("%d won, %d lost", won.Load(), lost.Load())
	}
}

func TestFilesBehindLinksThatLeadOutAreNeitherReadNorWritten(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(t.TempDir(), "secret.yaml")
	if err := os.WriteFile(outside, []byte("task_id: secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{
		"tenants/acme/tasks/out.yaml":   outside,
		"tenants/acme/tasks/other.yaml": filepath.Join(w.dir, "tenants/umbrella/tenant.yaml"),
		"tenants/acme/tasks/gone.yaml":  filepath.Join(w.dir, "nowhere"),
		"tenants/acme/overlays":         t.TempDir(),
	} {
		if err := os.Symlink(to, filepath.Join(w.dir, filepath.FromSlash(link))); err != nil {
			t.Fatal(err)
		}
		path := link
		if link == "tenants/acme/overlays" {
			path += "/new.yaml"
		}
		if text, err := w.Read(&ann, path); reason(err) != "not found" {
			t.Errorf("%s is read: %q, %v", path, text, err)
		}
		if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: path, Text: []byte("x: 1\n")}, By: ann}); reason(err) != "not found" {
			t.Errorf("%s is written: %v", path, err)
		}
	}
	files, _, err := w.Files(&ann, "", maxListed)
	if err != nil || slices.ContainsFunc(files, func(f ConfigFile) bool { return strings.Contains(f.Path, "out") || strings.Contains(f.Path, "other") }) {
		t.Errorf("%+v, %v", files, err)
	}
}

// A start in the folder of the configuration names the main file without a folder.
func TestFilesBesideARelativeMainFileAreFound(t *testing.T) {
	w := newWorld(t)
	if err := os.MkdirAll(filepath.Join(w.dir, "policies", "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := []string{"policies/data/a.json", "policies/data.json", "taxonomy.yaml"}
	for _, name := range want {
		if err := os.WriteFile(filepath.Join(w.dir, filepath.FromSlash(name)), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(w.dir)
	w.o.File = "switchboard.yaml"
	for _, name := range want {
		if text, err := w.Read(&ops, name); err != nil || string(text) != "{}\n" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	var got []string
	files, next, err := w.Files(&ops, "", maxListed)
	for _, f := range files {
		got = append(got, f.Path)
	}
	var parts []ConfigFile
	for after := ""; ; {
		part, next, err := w.Files(&ops, after, 2)
		if err != nil || len(part) == 0 || len(part) > 2 {
			t.Fatalf("behind %q are %d files, %v", after, len(part), err)
		}
		parts = append(parts, part...)
		if after = next; next == "" {
			break
		}
	}
	if !slices.Equal(parts, files) || next != "" {
		t.Errorf("in parts %v, at once %v and %q", parts, files, next)
	}
	all := slices.Concat(want, []string{"switchboard.yaml", "tenants/acme/tasks/all.yaml", "tenants/acme/tenant.yaml", "tenants/umbrella/tenant.yaml"})
	slices.Sort(all)
	if err != nil || !slices.Equal(got, all) {
		t.Errorf("%q, %v, want %q", got, err, all)
	}
}

func TestANewFileBringsItsFolder(t *testing.T) {
	w := newWorld(t)
	const path = "tenants/acme/policies/own.rego"
	if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: path, Text: []byte("package switchboard.tenant\n")}, By: art}); err != nil {
		t.Fatal(err)
	}
	if got := w.text(t, path); got != "package switchboard.tenant\n" {
		t.Errorf("%q", got)
	}
	if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: path, Text: []byte("package switchboard.tenant\n")}, By: art}); reason(err) != "SB-CONF-002" {
		t.Errorf("a new file that exists: %v", err)
	}
	if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: path, IfMatch: ETagOf([]byte(w.text(t, path)))}, By: art}); err != nil || w.text(t, path) != "absent" {
		t.Errorf("deleted: %v, %q", err, w.text(t, path))
	}
}

func TestTheLastFiftyChangesAreKept(t *testing.T) {
	w := newWorld(t)
	for i := range 53 {
		if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: fmt.Appendf(nil, "tenant: acme # %d\n", i), IfMatch: ETagOf([]byte(w.text(t, tenantFile)))}, By: ann}); err != nil {
			t.Fatal(err)
		}
	}
	history, err := w.History(t.Context(), &ops)
	if err != nil || len(history) != maxKept || history[0].ID != "53" || history[49].ID != "4" {
		t.Errorf("%d changes, %v", len(history), err)
	}
	if _, err := w.Show(t.Context(), &ops, "3"); reason(err) != "not found" {
		t.Errorf("the fourth last one: %v", err)
	}
}

// AD-02, the part after the kill: the next start says which content the file has.
func TestAD02TheNextStartSaysWhatAKillHasLeft(t *testing.T) {
	for name, tt := range map[string]struct {
		left    string
		outcome receipt.CallOutcome
		note    string
		kept    int
	}{
		"the new file":           {"tenant: acme # new\n", receipt.OK, "was made", 1},
		"the old file":           {"", receipt.Refused, "was not made", 0},
		"somebody's own content": {"tenant: acme # mine\n", receipt.Refused, "neither", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := &Revision{By: "ann", Auth: switchboard.AuthPersonKey, FileRevision: FileRevision{Office: switchboard.OfficeAdmin, Tenant: "acme", Path: tenantFile}}
			c.setTexts([]byte(w.text(t, tenantFile)), []byte("tenant: acme # new\n"))
			if err := w.begin(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			if tt.left != "" {
				if err := os.WriteFile(filepath.Join(w.dir, tenantFile), []byte(tt.left), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			next := w.editor()
			for range 2 { // the second time there is nothing to find
				if err := next.Recover(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			r := w.ledger.written
			if len(r) != 2 || r[1].Outcome != tt.outcome || r[1].Of != "n1/1" || !strings.Contains(r[1].Note, tt.note) {
				t.Errorf("the receipts: %+v", r)
			}
			if history, err := next.History(t.Context(), &ops); err != nil || len(history) != tt.kept {
				t.Errorf("%+v, %v", history, err)
			}
		})
	}
}

// A trial says which tasks of the file's tenant stay as they are, at most 20, and how many were not tried; and it leaves the past out if it is asked to.
func TestATrialCountsTheTasksThatItDoesNotShow(t *testing.T) {
	w := newWorld(t)
	try, looks := w.o.Try, 0
	o := w.o
	o.Try = func(ctx context.Context, replace map[string][]byte) (*Reading, error) {
		r, err := try(ctx, replace)
		for range 25 {
			r.Same = append(r.Same, TaskChange{Tenant: "acme"}, TaskChange{Tenant: "umbrella"})
			r.Untried = append(r.Untried, TaskChange{Tenant: "umbrella"})
		}
		r.Untried = append(r.Untried, TaskChange{Tenant: "acme"})
		return r, err
	}
	o.Compare = func(context.Context, replay.Bounds, *replay.Proposal) (*replay.Diff, error) {
		looks++
		return nil, errors.New("no store")
	}
	wish := Wish{FileWish: FileWish{Path: "tenants/acme/tenant.yaml", Text: []byte("tenant: acme\ndefault_task: all\n")}, By: switchboard.Officer{ID: "ops", Operator: true}}
	for _, skip := range []bool{true, false} {
		wish.SkipPast = skip
		got, err := New(o).Try(t.Context(), wish)
		if err != nil || len(got.Same) != 20 || got.MoreSame != 5 || got.Untried != 1 || (got.Past == nil) != skip {
			t.Errorf("%+v %v", got, err)
		}
	}
	if looks != 1 {
		t.Errorf("it has looked at the past %d times", looks)
	}
}
