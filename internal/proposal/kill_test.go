package proposal

import (
	"fmt"
	"maps"
	"path/filepath"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// lastingStores are the stores that outlive a process. Each function returns one that opens an empty store.
var lastingStores = map[string]func(t *testing.T) func() store.Store{
	"file": func(t *testing.T) func() store.Store {
		return func() store.Store {
			st, err := store.OpenFile(filepath.Join(t.TempDir(), "store.db"), store.FileOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
	},
	"redis": func(t *testing.T) func() store.Store {
		redistest.Need(t)
		url, opened := redistest.Start(t).URL(), 0
		return func() store.Store {
			opened++
			st, err := store.OpenRedis(t.Context(), url, store.RedisOptions{Prefix: fmt.Sprint("store-", opened)})
			if err != nil {
				t.Fatal(err)
			}
			return st
		}
	},
}

func closeStore(t *testing.T, st store.Store) {
	t.Helper()
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// A kill at every step of an application, and of its rollback, leaves the complete old or the complete new files and state after the next start, the proposal says which,
// and what the backup has is what was there, byte for byte.
func TestAKillAtEveryStepOfAnApplicationLeavesTheWholeOldOrTheWholeNew(t *testing.T) {
	for kind, open := range lastingStores {
		for name, lie := range map[string]func([]string) []string{"its claims hold": nil, "one does not": alsoTwo} {
			t.Run(kind+", "+name, func(t *testing.T) {
				newStore := open(t)
				old, made, ended := 0, 0, false
				for kill := 1; !ended; kill++ {
					w := newWorldOver(t, newStore())
					before := w.files()
					p, err := w.propose(ann, several())
					if err == nil {
						err = yes(bob)(w, p.ID)
					}
					if err != nil {
						t.Fatal(err)
					}
					w.lie, w.steps, w.kill = lie, 0, kill
					func() {
						defer func() {
							if p := recover(); p != nil && p != (killed{}) {
								panic(p)
							}
						}()
						_, _ = w.Apply(t.Context(), ann, p.ID)
						ended = true
					}()
					w.restart()
					now, _, err := w.stored(p.ID)
					if err != nil {
						t.Fatal(err)
					}
					isOld := maps.Equal(w.files(), before) && w.served.Tenants["acme"].DefaultTask == "all"
					isNew := w.text(taskFile) == "absent" && w.text("tenants/acme/tasks/next.yaml") == *several().Files[0].Text && w.text(tenantFile) == *several().Files[1].Text && w.served.Tenants["acme"].DefaultTask == "next"
					switch now.State {
					case Applied:
						made++
						if !isNew || lie != nil {
							t.Fatalf("killed at step %d, the proposal is %s; the files: %q", kill, now.State, w.files())
						}
					case Open, RolledBack:
						old++
						if !isOld {
							t.Fatalf("killed at step %d, the proposal is %s; the files: %q", kill, now.State, w.files())
						}
					default:
						t.Fatalf("killed at step %d, the proposal is %s: %s", kill, now.State, now.Why)
					}
					if now.State != Open {
						saved, err := w.backup(t.Context(), p)
						if err != nil {
							t.Fatal(err)
						}
						for _, f := range saved.Files {
							if want, ok := before[filepath.FromSlash(f.Path)]; ok != (f.Text != nil) || want != string(f.Text) {
								t.Errorf("the backup of %s is %q, and it was %q", f.Path, f.Text, want)
							}
						}
					}
					closeStore(t, w.store)
				}
				t.Logf("%d kills: %d times the old state, %d times the new one", old+made-1, old, made)
				if old+made < 10 || lie == nil && made < 2 || old < 5 {
					t.Error("too few points were killed")
				}
			})
		}
	}
}
