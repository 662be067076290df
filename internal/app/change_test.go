package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/large"
)

// openTrials starts an App on an installation, with its servers, and returns it with the folder of its configuration.
func openTrials(t testing.TB, in large.Installation) (*fileChanges, string) {
	t.Helper()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			ID     json.RawMessage
			Method string
		}
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || json.Unmarshal(body, &asked) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := "{}"
		switch asked.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
		case "tools/list":
			n, _ := strconv.Atoi(strings.TrimPrefix(path.Base(r.URL.Path), "server-"))
			result = `{"tools":` + string(in.Definitions(n)) + `}`
		}
		if asked.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, asked.ID, result)
	}))
	t.Cleanup(behind.Close)
	dir := t.TempDir()
	in.Behind, in.Admin = behind.URL, "127.0.0.1:0"
	if _, err := in.WriteConfiguration(dir); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour) // as most files are
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Chtimes(name, old, old)) })
	if err != nil {
		t.Fatal(err)
	}
	main := filepath.Join(dir, "switchboard.yaml")
	a, err := New(context.Background(), Options{
		Log: slog.New(slog.DiscardHandler), Officers: OfficerOptions{File: main, Listen: true},
		Load: func(ctx context.Context, o config.Options) (*config.Config, error) { return config.Load(ctx, main, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Stop)
	if err := a.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &fileChanges{App: a}, dir
}

// draftOf returns the text of a tenant's file with another ranking.
func draftOf(t testing.TB, dir, tenant, ranking string) (name string, text []byte) {
	t.Helper()
	name = "tenants/" + tenant + "/tenant.yaml"
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return name, append(text, ranking...)
}

const otherRanking = "ranking: {prefer: [{verb: search, resource: internet, servers: [server-006]}]}\n"

// A trialWorld is an App with edits of the files of one of its tenants.
type trialWorld struct {
	*fileChanges
	faulty int                 // parts
	texts  map[string][]string // by file in the folder of the tenant
	lines  []string            // that tenant.yaml may get
}

func newTrialWorld(t *testing.T, a *fileChanges, dir string) trialWorld {
	c := a.state.Load().config
	key := func(tenant, row int) string {
		return fmt.Sprintf("{id: other, hash: %q}", fmt.Sprintf("sha256:%x", c.Keys[10*tenant+row].Hash)) // each tenant has ten
	}
	_, own := draftOf(t, dir, large.TenantID(1), "")
	return trialWorld{a, len(c.Faulty), map[string][]string{
		"tenant.yaml":        {string(own)},
		"tasks/look.yaml":    {"task_id: look\nrequired_capabilities: [{verb: search, resource: internet}]\n", "task_id: look\n", "task_id: named\nrequired_capabilities: [{verb: search, resource: internet}]\n"},
		"tasks/more.yaml":    {"task_id: more\nrequired_capabilities: [{verb: read, resource: fs, select: tool}]\n", "task_id: look\nrequired_capabilities: [{verb: search, resource: internet}]\n"},
		"overlays/new.yaml":  {"server: server-006\ntools: {find_invoice_006: {risk_level: high}}\n", "server: none\ntools: {}\n"},
		"policies/own.rego":  {"package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n", "package switchboard.tenant\n\nallowed_tools contains c\n"},
		"policies/data.json": {"{}", "{"},
		"other.yaml":         {"a: 1\n"},
	}, []string{
		otherRanking, "ranking: {clases: [a]}\n", "ranking: {classes: [nothing]}\n", "mode: observe\n", "servers: [server-001, server-006]\n", "servers: [server-9]\n",
		"token_budget: 100\n", "policy: {a: 1}\n", "keys: []\n", "  - " + key(0, 0) + "\n", "  - " + key(1, 0) + "\n", "  - " + key(2, 1) + "\n", "  - " + key(3, 0) + "\n", "default_task: none\n", "nothing", "\t", "# said\n",
	}}
}

func (w *trialWorld) drawEdits(t *rapid.T) map[string][]byte {
	edits := map[string][]byte{}
	names := append(slices.Sorted(maps.Keys(w.texts)), "tenant.yaml", "tenant.yaml", "tenant.yaml", "tenant.yaml")
	for _, name := range rapid.SliceOfN(rapid.SampledFrom(names), 1, 2).Draw(t, "files") {
		text := rapid.SampledFrom(w.texts[name]).Draw(t, name)
		if name == "tenant.yaml" {
			kept := strings.SplitAfter(text, "\n")
			if out := rapid.IntRange(-1, len(kept)-1).Draw(t, "left out"); out >= 0 {
				kept = slices.Delete(kept, out, out+1)
			}
			text = strings.Join(append(kept, rapid.SliceOfN(rapid.SampledFrom(w.lines), 0, 2).Draw(t, "added")...), "")
		}
		name = "tenants/" + large.TenantID(1) + "/" + name
		if edits[name] = []byte(text); rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			edits[name] = nil
		}
	}
	return edits
}

func TestATrialOfATenantsFileReadsNothingElseAndFindsTheSame(t *testing.T) {
	in := large.Installation{Servers: 7, Tools: 5, Tenants: 4}
	a, dir := openTrials(t, in)
	worlds := []trialWorld{newTrialWorld(t, a, dir)}
	a, dir = openTrials(t, in)
	for _, id := range []string{large.TenantID(0), large.TenantID(2)} {
		name, text := draftOf(t, dir, id, "mod: observe\n")
		writeFile(t, filepath.Join(dir, name), text)
	}
	main := filepath.Join(dir, "switchboard.yaml")
	text, err := os.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, main, []byte(strings.Replace(string(text), "allow: [by_name]", "allow: [by_name], permissions: [nothing]", 1))) // a warning
	a.reload(t.Context(), func() {})                                                                                             // two tenants keep their last good state
	again := startApp(t, dir)                                                                                                    // they are not served
	defer again.Stop()
	if err := again.Ready(t.Context()); err != nil { // until then its state has no offers, and its fleet may have some
		t.Fatal(err)
	}
	worlds = append(worlds, newTrialWorld(t, a, dir), newTrialWorld(t, &fileChanges{App: again}, dir))
	rapid.Check(t, func(t *rapid.T) {
		w := &worlds[rapid.IntRange(0, len(worlds)-1).Draw(t, "world")]
		was, edits := w.state.Load(), w.drawEdits(t)
		quick, err1 := w.tryFrom(context.Background(), was, edits, true)
		whole, err2 := (&fileChanges{App: w.App}).tryFrom(context.Background(), was, edits, false) // which remembers no earlier trial
		if err1 != nil || err2 != nil || quick.Config == nil || whole.Config == nil {
			t.Fatal(err1, err2, quick, whole)
		}
		if !quick.Config.SharesOperator(was.config) && (w.faulty == 0 || len(quick.Faults) == w.faulty) {
			t.Error("everything was read")
		}
		if !quick.Config.Equal(whole.Config) {
			t.Errorf("the configuration is\n%+v\nand should be\n%+v", quick.Config, whole.Config)
		}
		less := func(r *change.Reading) change.Reading { only := *r; only.Config, only.Aside = nil, nil; return only }
		if got, want := less(quick), less(whole); !reflect.DeepEqual(got, want) {
			t.Errorf("it finds\n%+v\nand should find\n%+v", got, want)
		}
	})
}

func TestATrialReadsEverythingOnceAnotherFileHasChanged(t *testing.T) {
	a, dir := openTrials(t, large.Installation{Servers: 3, Tools: 2, Tenants: 2})
	name, text := draftOf(t, dir, large.TenantID(0), strings.ReplaceAll(otherRanking, "006", "002"))
	shares := func() bool {
		t.Helper()
		r, err := a.try(t.Context(), map[string][]byte{name: text})
		if err != nil || r.Config == nil {
			t.Fatal(r, err)
		}
		return r.Config.SharesOperator(a.state.Load().config)
	}
	if !shares() {
		t.Error("everything was read although no file has changed")
	}
	other, more := draftOf(t, dir, large.TenantID(1), "mode: observe\n")
	writeFile(t, filepath.Join(dir, other), more)
	if shares() {
		t.Error("a file has changed, and the trial has not read it")
	}
	a.reload(t.Context(), func() {})
	if !shares() {
		t.Error("everything was read although no file has changed since the reload")
	}
	writeFile(t, filepath.Join(dir, path.Dir(other), ".aside.yaml"), nil) // no load reads it
	if shares() {
		t.Error("a folder has changed, and the trial has not read it")
	}
	was := a.state.Load().loadedConfig
	if a.reload(t.Context(), func() {}); !shares() || a.state.Load().loadedConfig != was {
		t.Error("everything was read although a reload has found that nothing has changed")
	}
	writeFile(t, filepath.Join(dir, "overlays/a.yaml"), []byte("server: server-000\ntools: {find_invoice_000: {risk: high}}\n"))
	a.reload(t.Context(), func() {})
	if shares() {
		t.Error("a part of the operator is faulty, and the trial has not read it")
	}
}

func TestATrialSaysWhatTasksGetNowAlsoAfterAnEarlierOne(t *testing.T) {
	a, dir := openTrials(t, large.Installation{Servers: 3, Tools: 4, Tenants: 1})
	name, text := draftOf(t, dir, large.TenantID(0), strings.ReplaceAll(otherRanking, "006", "002"))
	look := func(what string) (before []string, evaluations int64) {
		t.Helper()
		began, _, _, _ := a.engine.Counts()
		r, err := a.try(t.Context(), map[string][]byte{name: text})
		ended, _, _, _ := a.engine.Counts()
		fresh, err2 := (&fileChanges{App: a.App}).try(t.Context(), map[string][]byte{name: text})
		if err != nil || err2 != nil {
			t.Fatal(what, err, err2)
		}
		if !reflect.DeepEqual(r.Tasks, fresh.Tasks) || !reflect.DeepEqual(r.Same, fresh.Same) || len(r.Tasks) != 1 || r.Tasks[0].Task != "look" {
			t.Errorf("%s: it finds\n%+v %+v\nand should find\n%+v %+v", what, r.Tasks, r.Same, fresh.Tasks, fresh.Same)
		}
		return r.Tasks[0].Before, ended - began
	}
	all, first := look("at first")
	again, second := look("once more")
	if !slices.Equal(all, again) || second >= first || second == 0 {
		t.Errorf("the first look evaluates %d times, and gives %v; the second one %d times, and %v", first, all, second, again)
	}
	if err := a.health.Disable(t.Context(), "server-000", ""); err != nil {
		t.Fatal(err)
	}
	less, _ := look("without a server")
	if slices.Equal(less, all) || slices.ContainsFunc(less, func(tool string) bool { return strings.HasPrefix(tool, "server-000/") }) {
		t.Errorf("without server-000 the task gets %v", less)
	}
	if err := a.health.Enable(t.Context(), "server-000"); err != nil {
		t.Fatal(err)
	}
	if back, _ := look("with the server again"); !slices.Equal(back, all) {
		t.Errorf("with server-000 again the task gets %v, and %v before", back, all)
	}
}

func TestATrialRemembersNoDecisionThatDependsOnTheTime(t *testing.T) {
	a, dir := openTrials(t, large.Installation{Servers: 2, Tools: 2, Tenants: 1})
	id := large.TenantID(0)
	writeFile(t, filepath.Join(dir, "tenants", id, "policies/own.rego"), []byte("package switchboard.tenant\n\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n\tinput.now > \"2000\"\n}\n"))
	a.reload(t.Context(), func() {})
	was := a.state.Load()
	if !was.Tenants[switchboard.TenantID(id)].Rules.ReadsClock() {
		t.Fatal("the policy reads no clock")
	}
	name, text := draftOf(t, dir, id, "# said\n")
	look := func() int64 {
		began, _, _, _ := a.engine.Counts()
		if r, err := a.tryFrom(t.Context(), was, map[string][]byte{name: text}, true); err != nil || len(r.Same) == 0 {
			t.Fatal(r, err)
		}
		ended, _, _, _ := a.engine.Counts()
		return ended - began
	}
	if first, second := look(), look(); first == 0 || second != first {
		t.Errorf("the first look evaluates %d times, the second one %d times", first, second)
	}
}

// The whole view of a ranking is measured, as a browser gets it.
func BenchmarkViewOfARanking(b *testing.B) {
	a, _ := openTrials(b, large.Installation{Servers: 500, Tools: 20, Tenants: 100})
	signIn, err := PageAddress(b.Context(), a.App)
	if err != nil {
		b.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	get := func(b *testing.B, address string) {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		resp, err := browser.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // it was only read from
		if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status, err, string(text))
		}
	}
	get(b, signIn)
	view := "http://" + a.adminAt.Addr().String() + "/ranking?tenant=" + large.TenantID(0)
	for _, tt := range []struct{ what, query string }{{"file", ""}, {"draft", "&draft=" + url.QueryEscape(`{"prefer":[{"verb":"read","resource":"fs","servers":["server-042"]}]}`)}} {
		b.Run(tt.what, func(b *testing.B) {
			for b.Loop() {
				get(b, view+tt.query)
			}
		})
	}
}

// Each trial is measured beside one that reads all files.
func BenchmarkTrialOfARanking(b *testing.B) {
	a, dir := openTrials(b, large.Installation{Servers: 500, Tools: 20, Tenants: 100})
	was := a.state.Load()
	for _, tt := range []struct{ what, tenant, ranking string }{
		{"tenant/file", large.TenantID(42), ""},
		{"tenant/draft", large.TenantID(42), strings.ReplaceAll(otherRanking, "006", "212")},
		{"wide/file", large.TenantID(0), ""},
		{"wide/draft", large.TenantID(0), otherRanking},
		{"wide/faulty", large.TenantID(0), "rankin: {}\n"},
	} {
		name, text := draftOf(b, dir, tt.tenant, tt.ranking)
		replace := map[string][]byte{name: text}
		b.Run(tt.what+"/whole", func(b *testing.B) {
			for b.Loop() {
				if r, err := a.tryFrom(b.Context(), was, replace, false); err != nil || len(r.Same)+len(r.Tasks) == 0 && len(r.Faults) == 0 {
					b.Fatal(r, err)
				}
			}
		})
		b.Run(tt.what+"/quick", func(b *testing.B) {
			for b.Loop() {
				if r, err := a.tryFrom(b.Context(), was, replace, was.read.Unchanged()); err != nil || len(r.Same)+len(r.Tasks) == 0 && len(r.Faults) == 0 {
					b.Fatal(r, err)
				}
			}
		})
	}
}
