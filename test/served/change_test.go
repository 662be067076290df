package served_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// changePath returns the path of requests for a file of the configuration.
func changePath(file string, more ...string) string {
	return "/v1/configuration/file?" + strings.Join(append([]string{"path=" + url.QueryEscape(file)}, more...), "&")
}

// textBody returns the body of a change.
func textBody(t *testing.T, text string) string {
	t.Helper()
	body, err := json.Marshal(map[string]string{"text": text, "reason": "a test"})
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const allTask = "tenants/acme/tasks/all.yaml"

// The whole way of a tenant's admin: look, change, see that clients get it, and take it back.
func TestAnAdminChangesATaskLooksFirstAndRevertsIt(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "servers:\n", "servers:\n  "+strings.ReplaceAll(rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest")), "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))+"\n", 1))
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	lists := func(want ...string) {
		t.Helper()
		if got := rig.ListNames(t, client); !slices.Equal(got, want) {
			t.Errorf("the client lists %q, want %q", got, want)
		}
	}
	lists("work", "rest")
	before := rig.ReadFile(t, filepath.Join(dir, allTask))
	after := "task_id: all # ann\nrequired_capabilities: [{tools: [\"b/*\"]}]\n"

	read := g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "")
	etag := read.Header.Get("ETag")
	look := g.AskAdmin(t, keys["admin"], "PUT", changePath(allTask, "dry_run=true"), textBody(t, after))
	if look.Status != 200 || !strings.Contains(look.Body, `"before":["a/work","b/rest"],"after":["b/rest"]`) || !strings.Contains(look.Body, "+task_id: all # ann") || rig.ReadFile(t, filepath.Join(dir, allTask)) != before {
		t.Errorf("looking: %d %s", look.Status, look.Body)
	}
	if a := g.AskAdmin(t, keys["admin"], "PUT", changePath(allTask), textBody(t, after), "If-Match", etag); a.Status != 200 || a.Header.Get("ETag") == etag {
		t.Fatalf("changing: %d %s", a.Status, a.Body)
	}
	lists("rest") // it is in force when the answer arrives
	if a := g.AskAdmin(t, keys["admin"], "POST", "/v1/configuration/changes/1/revert", `{"reason":"too few"}`); a.Status != 200 {
		t.Errorf("reverting: %d %s", a.Status, a.Body)
	}
	lists("work", "rest")
	if got := rig.ReadFile(t, filepath.Join(dir, allTask)); got != before {
		t.Errorf("after the revert: %q", got)
	}
	if a := g.AskAdmin(t, keys["admin"], "GET", "/v1/configuration/changes", ""); strings.Count(a.Body, `"path":"tenants/acme/tasks/all.yaml"`) != 2 || !strings.Contains(a.Body, `"by":"ann"`) || !strings.Contains(a.Body, `"reverts":"1"`) {
		t.Errorf("the history: %s", a.Body)
	}
	if out, _, _ := rig.Command(t, dir, "receipts", "list"); !strings.Contains(out, "revert tenants/acme/tasks/all.yaml too few") {
		t.Errorf("the receipts:\n%s", out)
	}
}

// A look at a change says what the decisions of the last week would have been, of the officer's tenant alone.
func TestALookSaysWhatLastWeeksDecisionsWouldHaveBeen(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	for _, who := range []string{"agent", "other agent"} {
		rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who]))
	}
	rig.Eventually(t, "both decisions are recorded", func() string {
		a := g.AskAdmin(t, keys["operator"], "GET", "/v1/decisions", "")
		if strings.Count(a.Body, `"id":"n1/`) != 2 {
			return a.Body
		}
		return ""
	})
	type past struct {
		Trial struct {
			Past *struct {
				Looked          int `json:"looked_at"`
				Of              int
				Back            time.Time `json:"looked_back_to"`
				Same, Different int
				Unknown         int
				Changes         []change
			}
		}
	}
	look := func(who, file, text string) (p past, body string) {
		t.Helper()
		rig.Eventually(t, "the look was not cut short", func() string { // its time is limited
			a := g.AskAdmin(t, keys[who], "PUT", changePath(file, "dry_run=true"), textBody(t, text))
			p, body = past{}, a.Body
			if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			if now := p.Trial.Past; now != nil && (now.Looked < now.Of || now.Unknown > 0) {
				return body
			}
			return ""
		})
		return p, body
	}
	const none = "task_id: all\nrequired_capabilities: [{tools: [\"a/none\"]}]\n"
	p, body := look("admin", allTask, none)
	if now := p.Trial.Past; now == nil || now.Looked != 1 || now.Of != 1 || now.Same != 0 || now.Different != 1 || now.Unknown != 0 || time.Since(now.Back) < 6*24*time.Hour ||
		len(now.Changes) == 0 || now.Changes[0].Change != "refused" || now.Changes[0].Tenant != "acme" {
		t.Errorf("without its tools: %s", body)
	}
	if p, body := look("admin", allTask, "# the same\n"+rig.ReadFile(t, filepath.Join(dir, allTask))); p.Trial.Past == nil || p.Trial.Past.Same != 1 || p.Trial.Past.Different != 0 {
		t.Errorf("with a comment: %s", body)
	}
	const without = "package switchboard\n\nallowed_tools contains c.id if some c in input.candidate_tools\n\ndeny[c.id] contains \"no\" if { some c in input.candidate_tools; input.tenant_id == \"umbrella\" }\n"
	if p, body := look("operator", "policies/without.rego", without); p.Trial.Past == nil || p.Trial.Past.Of != 2 || p.Trial.Past.Same != 1 || p.Trial.Past.Different != 1 {
		t.Errorf("without the tools of umbrella: %s", body)
	}
	if p, body := look("admin", allTask, "task_id: other\n"); p.Trial.Past != nil {
		t.Errorf("a change with a fault: %s", body)
	}
	rig.WriteFile(t, filepath.Join(dir, "new.yaml"), none)
	rig.Eventually(t, "the command looks at all decisions", func() string { // its time is limited too
		out, errs, code := rig.Command(t, dir, "config", "put", allTask, "new.yaml", "--dry-run")
		return rig.ReasonUnless(code == 0 && strings.Contains(out, "Last week's decisions: 0 the same, 1 different; looked at 1 of 1 decision, back to ") && strings.Contains(out, "Tasks that could not start any more: acme all (1 decision): SB-CAP-004"),
			fmt.Sprintf("exit %d\n%s%s", code, out, errs))
	})
}

func TestWhatARequestForAChangeMustBe(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	before := rig.ReadFile(t, filepath.Join(dir, allTask))
	etag := g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Header.Get("ETag")
	good := textBody(t, "task_id: all # changed\nrequired_capabilities: [{tools: [\"*/*\"]}]\n")
	for _, tt := range []struct {
		name, who, path, body string
		header                []string
		status                int
		code                  string
	}{
		{"no entity tag", "admin", changePath(allTask), good, nil, 428, "SB-CONF-002"},
		{"an old one", "admin", changePath(allTask), good, []string{"If-Match", `"old"`}, 412, "SB-CONF-002"},
		{"a weak one", "admin", changePath(allTask), good, []string{"If-Match", "W/" + etag}, 428, "SB-CONF-002"},
		{"any", "admin", changePath(allTask), good, []string{"If-Match", "*"}, 428, "SB-CONF-002"},
		{"a new file that exists", "admin", changePath(allTask), good, []string{"If-None-Match", "*"}, 412, "SB-CONF-002"},
		{"a form", "admin", changePath(allTask), "text=x", []string{"Content-Type", "application/x-www-form-urlencoded", "If-Match", etag}, 415, ""},
		{"an unknown member", "admin", changePath(allTask), `{"text":"x","force":true}`, []string{"If-Match", etag}, 400, ""},
		{"a member twice", "admin", changePath(allTask), `{"text":"x","text":"y"}`, []string{"If-Match", etag}, 400, ""},
		{"4 MiB and one byte", "admin", changePath(allTask), textBody(t, strings.Repeat("x", 4<<20)), []string{"If-Match", etag}, 413, ""},
		{"a path that leads out", "operator", changePath("../../etc/passwd"), good, []string{"If-None-Match", "*"}, 404, ""},
		{"a parameter twice", "admin", changePath(allTask, "path=switchboard.yaml"), good, []string{"If-Match", etag}, 400, ""},
		{"a page of another site", "admin", changePath(allTask), good, []string{"If-Match", etag, "Origin", "https://evil.example"}, 403, "SB-AUTH-002"},
		{"a page of this machine", "admin", changePath(allTask), good, []string{"If-Match", etag, "Origin", "http://localhost:3000"}, 403, "SB-AUTH-002"},
		{"a page that hides its origin", "admin", changePath(allTask), good, []string{"If-Match", etag, "Sec-Fetch-Site", "same-site"}, 403, "SB-AUTH-002"},
		{"an author", "author", changePath(allTask), good, []string{"If-Match", etag}, 403, "SB-AUTH-002"},
		{"a viewer", "viewer", changePath(allTask), good, []string{"If-Match", etag}, 403, "SB-AUTH-002"},
		{"another tenant's admin", "other admin", changePath(allTask), good, []string{"If-Match", etag}, 404, ""},
		{"the operator's file, by an admin", "admin", changePath("switchboard.yaml"), good, []string{"If-Match", etag}, 404, ""},
		{"a fault", "admin", changePath(allTask), textBody(t, "task_id: other\n"), []string{"If-Match", etag}, 422, "SB-CONF-001"},
		{"more than the operator gives", "admin", changePath("tenants/acme/tenant.yaml"), textBody(t, "tenant: acme\nmembers: [{key: me, hash: \"sha256:"+strings.Repeat("0", 64)+"\", offices: [approver]}]\n"), []string{"If-Match", g.AskAdmin(t, keys["admin"], "GET", changePath("tenants/acme/tenant.yaml"), "").Header.Get("ETag")}, 422, "SB-CONF-001"},
	} {
		a := g.AskAdmin(t, keys[tt.who], "PUT", tt.path, tt.body, tt.header...)
		if a.Status != tt.status || tt.code != "" && !strings.Contains(a.Body, tt.code) {
			t.Errorf("%s: %d, want %d %s: %.300s", tt.name, a.Status, tt.status, tt.code, a.Body)
		}
	}
	if now := rig.ReadFile(t, filepath.Join(dir, allTask)); now != before {
		t.Errorf("the file was changed: %q", now)
	}
}

// AD-02: after a kill in the middle of a change, the file is the old one or the new one, complete, and the receipt says which.
func TestAD02FiftyKillsInTheMiddleOfAChange(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir, keys := layOutOfficers(t)
	file := filepath.Join(dir, allTask)
	made, open := 0, 0
	for i := range 50 {
		g := rig.Serve(t, dir)
		old := rig.ReadFile(t, file)
		next := fmt.Sprintf("task_id: all # %d\nrequired_capabilities: [{tools: [\"*/*\"]}]\n%s", i, strings.Repeat("# filler\n", 2000))
		row, err := g.Row()
		if err != nil {
			t.Fatal(err)
		}
		etag := g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Header.Get("ETag")
		answered := make(chan int, 1)
		go func() { answered <- putOnce(row.Admin+changePath(allTask), keys["admin"], etag, textBody(t, next)) }()
		time.Sleep(time.Duration(rand.IntN(25_000)) * time.Microsecond)
		_ = g.Cmd.Process.Kill()
		_ = g.Cmd.Wait()
		status := <-answered
		now := rig.ReadFile(t, file)
		if now != old && now != next {
			t.Fatalf("kill %d has left %d bytes: neither the old file nor the new one", i, len(now))
		}
		if status == http.StatusOK && now != next {
			t.Errorf("kill %d: the change was acknowledged, and is gone", i)
		}
		if now == next {
			made++
		}
		if status == 0 {
			open++
		}
	}
	rig.Serve(t, dir)
	out, errs, code := rig.Command(t, dir, "receipts", "export")
	if code != 0 {
		t.Fatalf("exit %d %s", code, errs)
	}
	intents, outcomes := map[string]bool{}, map[string]string{}
	ok := 0
	for line := range strings.Lines(out) {
		var e struct {
			ID    string
			Entry struct {
				Receipt struct {
					Of, Outcome string
					Change      struct{ File string }
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		r := e.Entry.Receipt
		switch {
		case r.Change.File == "":
		case r.Of == "":
			intents[e.ID] = true
		default:
			if outcomes[r.Of] != "" {
				t.Errorf("the change %s has two outcomes", r.Of)
			}
			if outcomes[r.Of] = r.Outcome; r.Outcome == "ok" {
				ok++
			}
		}
	}
	for id := range intents {
		if outcomes[id] == "" {
			t.Errorf("no receipt says what became of the change %s", id)
		}
	}
	if ok != made {
		t.Errorf("%d changes were made, and receipts say it of %d", made, ok)
	}
	t.Logf("50 kills: %d changes made, %d answers lost, %d intents", made, open, len(intents))
}

// putOnce sends a change, and returns the status of the answer; 0 if there is none.
func putOnce(to, key, etag, body string) int {
	req, err := http.NewRequest(http.MethodPut, to, strings.NewReader(body))
	if err != nil {
		return 0
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("If-Match", etag)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// Only the part changes; comments, order and odd indentation stay. The rest is as for a whole file.
func TestAPartOfAFileIsChangedAndEverythingElseStays(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	const path = "tenants/acme/tasks/all.yaml"
	file := filepath.Join(dir, path)
	before := "# for everybody\ntask_id: all   # the only one\n\nrequired_capabilities:\n    # any tool\n    - {tools: [\"*/*\"]}   # of any server\n"
	if err := os.WriteFile(file, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	etag := g.AskAdmin(t, keys["admin"], "GET", changePath(path), "").Header.Get("ETag")
	patch := func(who, body string, header ...string) rig.Answer {
		return g.AskAdmin(t, keys[who], "PATCH", changePath(path), body, header...)
	}
	for _, tt := range []struct {
		name, who, body string
		header          []string
		want            int
	}{
		{"no entity tag", "admin", `{"edits":[{"at":"/token_budget","value":5000}]}`, nil, 428},
		{"an old one", "admin", `{"edits":[{"at":"/token_budget","value":5000}]}`, []string{"If-Match", `"0"`}, 412},
		{"no office", "author", `{"edits":[{"at":"/token_budget","value":5000}]}`, []string{"If-Match", etag}, 403},
		{"another tenant's admin", "other admin", `{"edits":[{"at":"/token_budget","value":5000}]}`, []string{"If-Match", etag}, 404},
		{"no value", "admin", `{"edits":[{"at":"/token_budget"}]}`, []string{"If-Match", etag}, 400},
		{"nothing to remove", "admin", `{"edits":[{"at":"/token_budget","remove":true}]}`, []string{"If-Match", etag}, 422},
		{"the second edit is a fault", "admin", `{"edits":[{"at":"/token_budget","value":5000},{"at":"/nonsense","value":1}]}`, []string{"If-Match", etag}, 422},
		{"no edits", "admin", `{"edits":[]}`, []string{"If-Match", etag}, 400},
	} {
		if a := patch(tt.who, tt.body, tt.header...); a.Status != tt.want {
			t.Errorf("%s: %d, want %d: %s", tt.name, a.Status, tt.want, a.Body)
		}
	}
	if now := rig.ReadFile(t, file); now != before {
		t.Fatalf("the file was changed: %q", now)
	}
	if a := patch("admin", `{"edits":[{"at":"/token_budget","value":5000},{"at":"/required_capabilities/0/tools/-","value":"a/work"}]}`, "If-Match", etag); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	want := strings.Replace(before, `["*/*"]`, `["*/*", a/work]`, 1) + "token_budget: 5000\n"
	if now := rig.ReadFile(t, file); now != want {
		t.Errorf("it is\n%s\nwant\n%s", now, want)
	}
	g.Do(0, `(?s)\+token_budget: 6000.*It would change`, "config", "set", path, "token_budget", "6000", "--dry-run")
	g.Do(0, "changed and in force", "config", "set", path, "token_budget", "--remove", "--reason", "not needed")
	if now := rig.ReadFile(t, file); now != strings.TrimSuffix(want, "token_budget: 5000\n") {
		t.Errorf("after the removal it is\n%s", now)
	}
	g.Do(0, "changed and in force", "config", "revert", "2")
	g.Do(2, "give a value, or --remove", "config", "set", path, "token_budget")
}
