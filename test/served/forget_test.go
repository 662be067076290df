package served_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// The folder of a configuration is removed and made again, as deployments do. What is written to it
// then counts as before, long before the minute is over after which all files are compared.
func TestNames15AConfigurationThatIsRemovedAndMadeAgainIsWatchedAgain(t *testing.T) {
	t.Parallel()
	archive := rig.Fakes(fmt.Sprintf("a: {transport: http, url: %q}", overHTTP(t, fmt.Sprintf(rig.Tool, "post"))))
	stands := map[string]func(dir string) (working string, args []string){
		"where it was started": func(dir string) (string, []string) { return dir, nil },
		"elsewhere": func(dir string) (string, []string) {
			return t.TempDir(), []string{"--config", filepath.Join(dir, "switchboard.yaml")}
		},
	}
	for name, stand := range stands {
		for era, modern := range map[string]bool{"legacy": false, "modern": true} {
			t.Run(era+" "+name, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(rig.LayOut(t, strings.ReplaceAll(archive, "\n-- ", "\n-- conf/")), "conf")
				working, args := stand(dir)
				g := rig.Serve(t, working, append(args, "--data", filepath.Join(t.TempDir(), "data"))...)
				s := g.Open(t, "/mcp", modern)
				refused := func() bool { return strings.Contains(g.Readyz(), "configuration_refused") }
				text := map[string]string{}
				for _, name := range []string{"switchboard.yaml", "tenants/default/tenant.yaml", "tenants/default/tasks/all.yaml"} {
					text[name] = rig.ReadFile(t, filepath.Join(dir, name))
				}
				for range 2 { // also a second time
					if err := os.RemoveAll(dir); err != nil {
						t.Fatal(err)
					}
					rig.Eventually(t, "it is noticed that the folder is gone", func() string { return rig.ReasonUnless(refused(), "it is not refused") })
					if code := calls(t, s, "post"); code != `{"query":"x"}` {
						t.Errorf("meanwhile a call says %s", code)
					}
					for name, text := range text {
						rig.WriteFile(t, filepath.Join(dir, name), text)
					}
					rig.Eventually(t, "it is noticed that the folder is back", func() string { return rig.ReasonUnless(!refused(), "it is refused") })
				}
				rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), text["tenants/default/tenant.yaml"]+"policy: {deny: [\"a/post\"]}\n")
				rig.Eventually(t, "the veto counts", func() string {
					code := calls(t, s, "post")
					return rig.ReasonUnless(strings.HasPrefix(code, "SB-"), code)
				})
			})
		}
	}
}

// A forgetting is something that makes a store lose what it was to keep, while it is in use.
type forgetting struct {
	forget func()
	repair func() // nil where only a restart or a person helps
	accept bool   // a person accepts what is lost
	lost   bool   // /readyz says that something is lost, and not only that the store is unavailable
	says   string // in status
}

// unkept are the codes of a call of which a receipt, or the outcome, cannot be kept.
var unkept = map[string]bool{"SB-RCPT-001": true, "SB-ROUT-004": true}

// What needs the store is refused from then on, in both eras, over HTTP: a call that was made with a key is made by
// nobody once more. /readyz and status say why. What needs no store is served.
func (f *forgetting) happens(t *testing.T, g *rig.Gateway, executed func() int) {
	t.Helper()
	era := func(modern bool) string { return fmt.Sprint("modern ", modern) }
	sessions := map[bool]rig.Session{}
	for _, modern := range []bool{false, true} {
		sessions[modern] = g.Open(t, "/mcp", modern)
		if got := once(t, sessions[modern], era(modern), "work", `{}`); got.code != "" {
			t.Fatalf("before: %+v", got)
		}
	}
	before := executed()
	refused := func(when string) {
		t.Helper()
		for modern, s := range sessions {
			rig.Eventually(t, when+", a call with a key is refused", func() string {
				if got := once(t, s, era(modern), "work", `{}`); !unkept[got.code] {
					return fmt.Sprintf("%s: %+v", era(modern), got)
				}
				return ""
			})
			if got := once(t, s, era(modern), "work", `{}`); !unkept[got.code] {
				t.Errorf("%s, %s: %+v", when, era(modern), got)
			}
			if code := calls(t, s, "look"); strings.HasPrefix(code, "SB-") {
				t.Errorf("%s, %s: what needs no store says %s", when, era(modern), code)
			}
		}
		rig.Eventually(t, when+", /readyz says so", func() string {
			got := g.Readyz()
			return rig.ReasonUnless(strings.HasPrefix(got, `200 {"ready":true,"store":{"unavailable_since":"2`) && strings.Contains(got, `"lost":true`) == f.lost, got)
		})
		if a := g.AskAdmin(t, "", http.MethodGet, "/v1/status", ""); !regexp.MustCompile(f.says).MatchString(a.Body) {
			t.Errorf("%s, status says %s", when, a.Body)
		}
	}
	f.forget()
	refused("at once")
	if f.repair != nil {
		f.repair()
	}
	if f.accept {
		refused("later")
		if out, errs, code := rig.Command(t, g.Dir, "store", "accept"); code != 0 || !strings.HasPrefix(out, "accepted: ") {
			t.Fatalf("store accept: %d %s %s", code, out, errs)
		}
	}
	if n := executed(); n != before {
		t.Errorf("%d calls were executed meanwhile", n-before)
	}
	if f.repair == nil && !f.accept {
		return
	}
	for modern, s := range sessions {
		rig.Eventually(t, "it goes on", func() string {
			if got := once(t, s, "after "+era(modern), "work", `{}`); got.code != "" {
				return fmt.Sprintf("%+v", got)
			}
			return ""
		})
	}
	rig.Eventually(t, "/readyz says so", func() string { return rig.ReasonUnless(g.Readyz() == `200 {"ready":true}`, g.Readyz()) })
}

// counting are two tools: work, whose calls are counted, and look, which reads alone.
func counting(t *testing.T) (archive string, executed func() int) {
	t.Helper()
	marks := filepath.Join(t.TempDir(), "marks")
	overlay := "-- overlays/a.yaml --\nserver: a\ntools: {look: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}}\n"
	return rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "work"), fmt.Sprintf(rig.Tool, "look"))) + overlay, func() int {
		text, err := os.ReadFile(marks)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(text), "work")
	}
}

func TestNames15ARedisThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(r *redistest.Server) forgetting{
		"its appendonly is switched off": func(r *redistest.Server) forgetting {
			return forgetting{
				forget: func() { r.Do("CONFIG", "SET", "appendonly", "no") },
				repair: func() { r.Do("CONFIG", "SET", "appendonly", "yes") },
				says:   "its appendonly is no.* set appendonly yes",
			}
		},
		"its eviction is switched on": func(r *redistest.Server) forgetting {
			return forgetting{
				forget: func() { r.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru") },
				repair: func() { r.Do("CONFIG", "SET", "maxmemory-policy", "noeviction") },
				says:   "its maxmemory-policy is allkeys-lru",
			}
		},
		"it is emptied": func(r *redistest.Server) forgetting {
			return forgetting{forget: func() { r.Do("FLUSHALL") }, accept: true, lost: true, says: "its mark is gone.*switchboard store accept"}
		},
		"its appendonly is switched off, it is killed, and comes back without it": func(r *redistest.Server) forgetting {
			return forgetting{
				forget: func() {
					r.Do("CONFIG", "SET", "appendonly", "no")
					r.Kill()
					if err := os.RemoveAll(filepath.Join(r.Dir(), "appendonlydir")); err != nil {
						t.Fatal(err)
					}
					r.Start()
				},
				accept: true, lost: true, says: "its mark is gone",
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, executed := counting(t)
			all, redis := replicate(t, rig.LayOut(t, archive), 1)
			f := make(redis)
			f.happens(t, all[0], executed)
		})
	}
}

func TestNames15ADataFolderThatIsRemovedIsRefused(t *testing.T) {
	t.Parallel()
	for name, forget := range map[string]func(data string) error{
		"the folder is removed": os.RemoveAll,
		"the folder is moved":   func(data string) error { return os.Rename(data, data+".old") },
		"the file is replaced": func(data string) error {
			file := filepath.Join(data, "store.db")
			return errors.Join(os.Rename(file, file+".old"), os.WriteFile(file, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, executed := counting(t)
			dir, data := rig.LayOut(t, archive), filepath.Join(t.TempDir(), "data")
			g := rig.Serve(t, dir, "--data", data)
			f := forgetting{lost: true, says: "restart Switchboard", forget: func() {
				if err := forget(data); err != nil {
					t.Fatal(err)
				}
			}}
			f.happens(t, g, executed)
		})
	}
}
