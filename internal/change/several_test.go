package change

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// The change of the tests below: a new task, a default that names it, a new layer of policies, and the end of the old task. No part of it alone is a good configuration.
const (
	newTask   = "tenants/acme/tasks/next.yaml"
	oldTask   = "tenants/acme/tasks/all.yaml"
	newPolicy = "tenants/acme/policies/own.rego"
)

func severalWish(w *world, t *testing.T) Wish {
	t.Helper()
	return Wish{
		FileWish: FileWish{Path: newTask, Text: []byte("task_id: next\nrequired_capabilities: [{tools: [\"a/*\"]}]\n")},
		More: []FileWish{
			{Path: tenantFile, Text: []byte("tenant: acme # ours\ndefault_task: next\n"), IfMatch: ETagOf([]byte(w.text(t, tenantFile)))},
			{Path: oldTask, IfMatch: ETagOf([]byte(w.text(t, oldTask)))},
			{Path: newPolicy, Text: []byte("package switchboard.tenant\nallowed_tools contains c.id if some c in input.candidate_tools\n")},
		},
		By: ann, Reason: "one task", Source: "proposal x",
	}
}

// meaning returns what a reader of the configuration sees: the default task, the tasks and the policies of acme. It reads as every process does.
func (w *world) meaning(t *testing.T) string {
	t.Helper()
	c, err := config.Load(context.Background(), filepath.Join(w.dir, "switchboard.yaml"), config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Faulty {
		if p.Tenant == "acme" { // umbrella has a fault of its own
			t.Fatal("a reader sees a part of the change: ", p.Faults)
		}
	}
	acme := c.Tenants["acme"]
	return fmt.Sprint(acme.DefaultTask, " ", slices.Sorted(maps.Keys(acme.Tasks)), " ", len(c.TenantPolicies["acme"]))
}

const (
	oldMeaning = "all [all] 0"
	newMeaning = "next [next] 1"
)

// files returns the content of each file of the folder, with the names of empty folders.
func (w *world) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(w.dir, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(w.dir, name)
		if d.IsDir() {
			out[rel+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(name)
		out[rel] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSeveralFilesChangeAsOneAndAreRevertedAsOne(t *testing.T) {
	w := newWorld(t)
	before := w.files(t)
	c, err := w.Apply(t.Context(), severalWish(w, t))
	if err != nil {
		t.Fatal(err)
	}
	if got := w.meaning(t); got != newMeaning || w.reloads.Load() != 1 {
		t.Errorf("%s; %d reloads", got, w.reloads.Load())
	}
	if r := w.ledger.written; len(r) != 8 || r[0].Change.File != newTask || r[0].Outcome != "" || r[7].Change.File != newPolicy || r[7].Outcome != receipt.OK || r[7].Of != "n1/4" {
		t.Errorf("the receipts: %+v", r)
	}
	history, err := w.History(t.Context(), &ann)
	if err != nil || len(history) != 1 || len(history[0].More) != 3 || history[0].Source != "proposal x" || history[0].More[0].Before != nil {
		t.Errorf("%+v, %v", history, err)
	}
	if history, _ := w.History(t.Context(), &art); len(history) != 0 {
		t.Errorf("an author, who may change one of the files, sees %+v", history)
	}
	for _, want := range []string{oldMeaning, newMeaning} {
		if c, err = w.Revert(t.Context(), ann, c.ID, ""); err != nil {
			t.Fatal(err)
		}
		if got := w.meaning(t); got != want {
			t.Errorf("after the revert: %s, want %s", got, want)
		}
		if want == oldMeaning && !maps.Equal(w.files(t), before) {
			t.Errorf("after the revert the folder has\n%v\nand had\n%v", w.files(t), before)
		}
	}
}

func TestSeveralFilesThatMayNotBeChangedAreAllLeftAlone(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(w *world, wish *Wish)
		want  string
	}{
		"one is stale":            {func(_ *world, wish *Wish) { wish.More[0].IfMatch = `"old"` }, "SB-CONF-002"},
		"one exists":              {func(_ *world, wish *Wish) { wish.More[1].IfMatch = "" }, "SB-CONF-002"},
		"one is another tenant's": {func(_ *world, wish *Wish) { wish.More[2].Path = "tenants/umbrella/policies/own.rego" }, "not found"},
		"one is the operator's":   {func(_ *world, wish *Wish) { wish.More[2].Path = "policies/own.rego" }, "not found"},
		"one has a fault":         {func(_ *world, wish *Wish) { wish.More[0].Text = []byte("tenant: acme\ndefault_task: none\n") }, "SB-CONF-001"},
		"one is named twice":      {func(_ *world, wish *Wish) { wish.More = append(wish.More, wish.FileWish) }, "SB-CAP-003"},
		"one has two spellings":   {func(_ *world, wish *Wish) { wish.More[2].Path = "tenants/acme/tasks/NEXT.yaml" }, "SB-CAP-003"},
		"one has two paths by a link": {func(w *world, wish *Wish) {
			link(w, "tenants/acme/tasks/also.yaml", tenantFile)
			wish.More[2].Path = "tenants/acme/tasks/also.yaml"
		}, "SB-CAP-003"},
		"nothing is changed here":   {func(w *world, _ *Wish) { w.mode = config.EditNone }, "SB-CONF-003"},
		"no receipt can be written": {func(w *world, _ *Wish) { w.ledger.err = switchboard.Refuse(switchboard.CodeReceipt, "full") }, "SB-RCPT-001"},
		"there are too many":        {func(_ *world, wish *Wish) { wish.More = slices.Repeat(wish.More, 22) }, "SB-CAP-003"},
		"they are too long together": {func(_ *world, wish *Wish) {
			for i := range 6 {
				wish.More = append(wish.More, FileWish{Path: fmt.Sprintf("tenants/acme/policies/%d.rego", i), Text: []byte("package switchboard.tenant\n" + strings.Repeat("#\n", 450_000))})
			}
		}, "SB-CONF-001"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			wish := severalWish(w, t)
			tt.spoil(w, &wish)
			before := w.files(t)
			if _, err := w.Apply(t.Context(), wish); reason(err) != tt.want {
				t.Errorf("%q: %v", reason(err), err)
			}
			if !maps.Equal(w.files(t), before) || w.reloads.Load() > 0 || len(w.ledger.written) > 0 {
				t.Errorf("%d reloads, %d receipts, the folder: %v", w.reloads.Load(), len(w.ledger.written), w.files(t))
			}
		})
	}
}

func link(w *world, name, to string) {
	_ = os.Symlink(filepath.Join(w.dir, to), filepath.Join(w.dir, name)) // the test says what is wrong without it
}

func TestAReloadThatRefusesSeveralFilesPutsAllBack(t *testing.T) {
	w := newWorld(t)
	before := w.files(t)
	w.refuses.Store(true)
	if _, err := w.Apply(t.Context(), severalWish(w, t)); reason(err) != "SB-CONF-001" || !maps.Equal(w.files(t), before) || w.reloads.Load() != 2 {
		t.Errorf("%v; %d reloads; the folder: %v", err, w.reloads.Load(), w.files(t))
	}
	if r := w.ledger.written; len(r) != 8 || r[7].Outcome != receipt.Refused {
		t.Errorf("the receipts: %+v", r)
	}
}

// An edit by hand between the look and the exchange is not overwritten, and no other file keeps its new content.
func TestAnEditByHandDuringTheExchangeStaysAndTheRestIsTakenBack(t *testing.T) {
	w := newWorld(t)
	before := w.files(t)
	w.o.reached = func(step string) {
		if step == "first file exchanged" {
			if err := os.WriteFile(filepath.Join(w.dir, tenantFile), []byte("tenant: acme # by hand\ndefault_task: all\n"), 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := w.Apply(t.Context(), severalWish(w, t)); err == nil {
		t.Fatal("it was made")
	}
	before[tenantFile] = "tenant: acme # by hand\ndefault_task: all\n"
	w.o.reached = nil
	if err := w.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.files(t); !maps.Equal(got, before) {
		t.Errorf("the folder: %v", got)
	}
}

// A folder that a change has made goes when the change is taken back, but nothing goes with it that somebody has put there at that very instant.
func TestWhatIsPutIntoAMadeFolderAtTheLastInstantStays(t *testing.T) {
	for name, put := range map[string]string{"another file": "tenants/acme/policies/other.rego", "another text of the file": newPolicy} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, err := w.Apply(t.Context(), severalWish(w, t))
			if err != nil {
				t.Fatal(err)
			}
			reached := false
			w.o.reached = func(step string) {
				if step == "folder looked at" {
					reached = true
					if err := os.WriteFile(filepath.Join(w.dir, put), []byte("package switchboard.tenant # by hand\n"), 0o600); err != nil {
						t.Error(err)
					}
				}
			}
			_, err = w.Revert(t.Context(), ann, c.ID, "")
			if (err == nil) != (put != newPolicy) || !reached {
				t.Errorf("reached: %t, %v", reached, err)
			}
			files := w.files(t)
			if got := files[filepath.FromSlash(put)]; got != "package switchboard.tenant # by hand\n" {
				t.Errorf("%s is %q", put, got)
			}
			if _, ok := files[filepath.FromSlash(newPolicy)]; ok != (put == newPolicy) {
				t.Errorf("the file of the change is there: %t", ok)
			}
			for file := range files {
				if strings.Contains(file, "switchboard-old") {
					t.Errorf("%s is left", file)
				}
			}
		})
	}
}

// killed is the panic that stands for the end of the process.
type killed struct{}

// A kill at each point of a change of several files leaves the complete old or the complete new configuration to every reader, at once and after the next start; and
// the receipts and the history say which.
func TestAKillAtAnyPointLeavesTheWholeOldOrTheWholeNew(t *testing.T) {
	stores := map[string]func(t *testing.T) func() store.Store{
		"file": func(t *testing.T) func() store.Store {
			path := filepath.Join(t.TempDir(), "store.db")
			return func() store.Store {
				st, err := store.OpenFile(path, store.FileOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
		},
		"redis": func(t *testing.T) func() store.Store {
			redistest.Need(t)
			url := redistest.Start(t).URL()
			return func() store.Store {
				st, err := store.OpenRedis(t.Context(), url, store.RedisOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return st
			}
		},
	}
	steps := []struct {
		at, want string
		receipts int // intents that the next start must answer
	}{
		{"noted", oldMeaning, 0},
		{"begun", oldMeaning, 4},
		{"journal next", oldMeaning, 4},
		{"journal written", newMeaning, 4},
		{"first file exchanged", newMeaning, 4},
		{"exchanged", newMeaning, 4},
		{"in force", newMeaning, 4},
		{"journal removed", newMeaning, 4},
		{"told", newMeaning, 0},
	}
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) {
			reopen := open(t)
			for _, tt := range steps {
				t.Run(tt.at, func(t *testing.T) {
					w := newWorld(t)
					w.store = reopen()
					w.Editor = w.editor()
					w.o.Place = t.Name()
					before := w.files(t)
					w.o.reached = func(step string) {
						if step == tt.at {
							panic(killed{})
						}
					}
					func() {
						defer func() {
							if p := recover(); p != (killed{}) {
								t.Fatal("no kill: ", p)
							}
						}()
						_, err := w.Apply(t.Context(), severalWish(w, t))
						t.Error("it has ended: ", err)
					}()
					_ = w.store.Close()
					if got := w.meaning(t); got != tt.want {
						t.Errorf("after the kill a reader sees %s, want %s", got, tt.want)
					}
					written := len(w.ledger.written)
					w.store = reopen()
					defer w.store.Close() //nolint:errcheck // the test is over
					next := w.editor()
					next.o.Place = t.Name()
					for range 2 { // the second start finds nothing
						if err := next.Recover(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					if got := w.meaning(t); got != tt.want {
						t.Errorf("after the start a reader sees %s, want %s", got, tt.want)
					}
					if files := w.files(t); tt.want == oldMeaning && !maps.Equal(files, before) || files[config.JournalFile] != "" {
						t.Errorf("the folder: %v", files)
					}
					outcome := receipt.OK
					if tt.want == oldMeaning {
						outcome = receipt.Refused
					}
					if got := len(w.ledger.written) - written; got != tt.receipts {
						t.Errorf("the next start writes %d receipts, want %d", got, tt.receipts)
					}
					for _, r := range w.ledger.written {
						if r.Of != "" && r.Outcome != outcome {
							t.Errorf("a receipt: %+v", r)
						}
					}
					kept, err := next.Show(t.Context(), &ops, last(t, next))
					if tt.want == newMeaning && (err != nil || kept.Path != newTask || len(kept.More) != 3) || tt.want == oldMeaning && kept != nil && kept.When.After(time.Now().Add(-time.Hour)) && kept.Reason == t.Name() {
						t.Errorf("the history: %+v, %v", kept, err)
					}
				})
			}
		})
	}
}

// last returns the id of the last change, "0" if there is none.
func last(t *testing.T, e *Editor) string {
	t.Helper()
	all, err := e.History(t.Context(), &ops)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		return "0"
	}
	return all[0].ID
}

// Another reader never sees a part of the change, at any step.
func TestNoReaderSeesAPartOfTheChange(t *testing.T) {
	w := newWorld(t)
	seen := map[string]bool{}
	w.o.reached = func(string) { seen[w.meaning(t)] = true }
	if _, err := w.Apply(t.Context(), severalWish(w, t)); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || !seen[oldMeaning] || !seen[newMeaning] {
		t.Errorf("readers have seen %v", seen)
	}
}

func TestAJournalThatIsNoneRefusesTheConfiguration(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"", "{}", "[]", `[{"path":"../x"}]`, `[{"path":"x","more":1}]`, `[{"path":"x"}] []`} {
		if err := os.WriteFile(filepath.Join(w.dir, config.JournalFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(t.Context(), filepath.Join(w.dir, "switchboard.yaml"), config.Options{}); err == nil || !strings.Contains(err.Error(), config.JournalFile) {
			t.Errorf("%q: %v", text, err)
		}
		if err := w.Recover(t.Context()); err == nil {
			t.Errorf("%q is finished", text)
		}
	}
}

func TestAChangeThatTakesBackARecentOneIsFound(t *testing.T) {
	w := newWorld(t)
	first := w.text(t, tenantFile)
	wish := func(text string) []FileWish { return []FileWish{{Path: tenantFile, Text: []byte(text)}} }
	for i, text := range []string{"tenant: acme # 1\n", "tenant: acme # 2\n"} {
		if _, err := w.Apply(t.Context(), Wish{FileWish: FileWish{Path: tenantFile, Text: []byte(text), IfMatch: ETagOf([]byte(w.text(t, tenantFile)))}, By: ann}); err != nil {
			t.Fatal(i, err)
		}
	}
	for text, want := range map[string]string{first: "1", "tenant: acme # 1\n": "2", "tenant: acme # 3\n": "", "tenant: acme # 2\n": ""} {
		c, err := FindTakenBack(t.Context(), w.Editor, wish(text))
		if err != nil || (c == nil) != (want == "") || c != nil && c.ID != want {
			t.Errorf("%q takes back %+v, want %q, %v", text, c, want, err)
		}
	}
}
