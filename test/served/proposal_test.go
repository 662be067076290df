package served_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// layOutProposals lays out officeArchive with a second operator, who may run other programs too.
func layOutProposals(t *testing.T) (dir string, keys officers) {
	t.Helper()
	dir, keys = layOutOfficers(t)
	key, hash := identity.Mint(identity.PersonPrefix)
	keys["second operator"] = key
	main := filepath.Join(dir, "switchboard.yaml")
	text := strings.Replace(rig.ReadFile(t, main), "operators: [", fmt.Sprintf("admin: {edit: programs}\noperators: [{key: oda, hash: %q}, ", hash), 1)
	rig.WriteFile(t, main, text)
	return dir, keys
}

// draft is what a request to make a proposal says.
type draft struct {
	Note   string           `json:"note"`
	Files  []map[string]any `json:"files"`
	Claims []map[string]any `json:"claims,omitempty"`
}

func (d draft) text(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// nextTask replaces the task all by the task next: no part of it alone is a good configuration.
func nextTask(t *testing.T, dir string) draft {
	t.Helper()
	tenant := rig.ReadFile(t, filepath.Join(dir, "tenants/acme/tenant.yaml"))
	return draft{
		Note: "one name for it",
		Files: []map[string]any{
			{"path": "tenants/acme/tasks/next.yaml", "text": "task_id: next\nrequired_capabilities: [{tools: [\"*/*\"]}]\n"},
			{"path": "tenants/acme/tenant.yaml", "text": strings.Replace(tenant, "default_task: all", "default_task: next", 1)},
			{"path": allTask, "delete": true},
		},
		Claims: []map[string]any{{"tenant": "acme", "task": "next", "lists": "a/work"}, {"tenant": "umbrella", "unchanged": true}},
	}
}

// proposalOf returns the proposal of an answer.
func proposalOf(t *testing.T, a rig.Answer, status int) (p struct{ ID, State, Risk, Why string }) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != status {
		t.Fatalf("%d, want %d: %s", a.Status, status, a.Body)
	}
	return p
}

// The whole way by the command line, while a client works on.
func TestAProposalIsMadeShownAppliedAndTakenBack(t *testing.T) {
	t.Parallel()
	dir, keys := layOutProposals(t)
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Fatalf("the client lists %q", got)
	}
	rig.WriteFile(t, filepath.Join(dir, "proposal.yaml"), nextTask(t, dir).text(t))
	as := func(who string, want int, args ...string) string {
		t.Helper()
		out, errs, code := rig.CommandAs(t, t.TempDir(), keys[who], append([]string{"proposals"}, append(args, "--url", g.AdminURL())...)...) // from another machine
		if code != want {
			t.Fatalf("%q as %s: exit %d\n%s%s", args, who, code, out, errs)
		}
		return out + errs
	}
	made := as("admin", 0, "create", "--file", filepath.Join(dir, "proposal.yaml"))
	id := strings.TrimSuffix(strings.Fields(made)[1], ":")
	for _, want := range []string{"risk: medium; it needs somebody who may change the files; 0 of 0 have said yes", "| one name for it", "- task next of acme has a/work", "task next of acme: now"} {
		if !strings.Contains(made, want) {
			t.Errorf("%q is not in\n%s", want, made)
		}
	}
	if out := as("admin", 0, "diff", id); !strings.Contains(out, "-default_task: all\n+default_task: next\n") || !strings.Contains(out, "+task_id: next\n") {
		t.Errorf("the difference:\n%s", out)
	}
	if out := as("other admin", 2, "show", id); !strings.Contains(out, "no proposal of that id") {
		t.Errorf("another tenant's admin: %s", out)
	}
	if out := as("admin", 1, "approve", id); !strings.Contains(out, "you proposed it") {
		t.Errorf("the proposer approves: %s", out)
	}
	if out := as("admin", 0, "apply", id); !strings.Contains(out, "is applied and in force, and its claims hold") {
		t.Errorf("applied: %s", out)
	}
	if g.AskAdmin(t, keys["admin"], "GET", changePath(allTask), "").Status != http.StatusNotFound {
		t.Error("the old task is still there")
	}
	if out := as("admin", 0, "list"); !strings.Contains(out, "applied") {
		t.Errorf("the list: %s", out)
	}
	if out := as("admin", 0, "roll-back", id, "--note", "too early"); !strings.Contains(out, "is rolled back: by ann: too early") {
		t.Errorf("taken back: %s", out)
	}
	if got := rig.ReadFile(t, filepath.Join(dir, allTask)); !strings.Contains(got, "task_id: all") {
		t.Errorf("%q", got)
	}
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Errorf("the client lists %q", got)
	}
	if out, errs, code := rig.Command(t, dir, "receipts", "verify"); code != 0 {
		t.Errorf("receipts verify: exit %d\n%s%s", code, out, errs)
	}
}

// endlessCalls are the calls of four clients at once.
type endlessCalls struct {
	made, lost atomic.Int32
	stop       chan struct{}
	callers    sync.WaitGroup
}

func keepCalling(t *testing.T, g *rig.Gateway, key string) *endlessCalls {
	e := &endlessCalls{stop: make(chan struct{})}
	for range 4 {
		c := g.Open(t, "/mcp", true, "Authorization", "Bearer "+key)
		rig.ListNames(t, c)
		e.callers.Go(func() {
			for {
				select {
				case <-e.stop:
					return
				default:
				}
				if got := rig.Call(t, c, "work", `{}`); strings.HasPrefix(got, "SB-") {
					e.lost.Add(1)
					t.Error("a call got ", got)
				}
				e.made.Add(1)
			}
		})
	}
	return e
}

// end waits until further calls were made, and ends them. None may be lost.
func (e *endlessCalls) end(t *testing.T) {
	t.Helper()
	before := e.made.Load()
	rig.Eventually(t, "calls go on", func() string { return rig.ReasonUnless(e.made.Load() > before+20, fmt.Sprint(e.made.Load())) })
	close(e.stop)
	e.callers.Wait()
	if e.lost.Load() > 0 {
		t.Errorf("%d of %d calls were lost", e.lost.Load(), e.made.Load())
	}
}

// serverB adds a server b to a main file, with a claim that does not hold.
func serverB(main string, args ...string) draft {
	row := strings.ReplaceAll(rig.FakeRow("b", args...), "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))
	return draft{
		Note:   "another server",
		Files:  []map[string]any{{"path": "switchboard.yaml", "text": strings.Replace(main, "servers:\n", "servers:\n  "+row+"\n", 1)}, {"path": "overlays/b.yaml", "text": "server: b\ntools: {rest: {capabilities: [{verb: read, resource: fs}]}}\n"}},
		Claims: []map[string]any{{"tenant": "acme", "task": "all", "lists": "b/rest"}, {"tenant": "acme", "task": "all", "lists": "b/nosuch"}},
	}
}

// A new server that never answers does not hold up the rollback: from the instant when the proposal is in force, the old files are back and in force within 10 s.
func TestAServerThatHangsHoldsUpNoRollback(t *testing.T) {
	t.Parallel()
	dir, keys := layOutProposals(t)
	main := filepath.Join(dir, "switchboard.yaml")
	old := "start_deadline: 12s\n" + rig.ReadFile(t, main) // a wait of that time would be too long
	rig.WriteFile(t, main, old)
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	rig.ListNames(t, client)
	row, err := g.Row()
	if err != nil {
		t.Fatal(err)
	}
	p := proposalOf(t, g.AskAdmin(t, keys["operator"], "POST", "/v1/proposals", serverB(old, "mood=hang").text(t)), http.StatusCreated)
	if a := g.AskAdmin(t, keys["second operator"], "POST", "/v1/proposals/"+p.ID+"/approve", `{"note":"good"}`); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	calls := keepCalling(t, g, keys["agent"])
	before := g.Reloads(rig.Reloaded)
	answered := make(chan int, 1)
	go func() { answered <- postOnce(row.Admin+"/v1/proposals/"+p.ID+"/apply", keys["operator"]) }()
	g.AwaitReload(t, before, rig.Reloaded)
	inForce := time.Now()
	if status := <-answered; status != http.StatusConflict {
		t.Errorf("the answer: %d", status)
	}
	took := time.Since(inForce)
	t.Logf("taken back within %s", took)
	if took > 10*time.Second {
		t.Errorf("the rollback took %s", took)
	}
	if now := rig.ReadFile(t, main); now != old {
		t.Errorf("the file: %q", now)
	}
	if p := proposalOf(t, g.AskAdmin(t, keys["operator"], "GET", "/v1/proposals/"+p.ID, ""), http.StatusOK); p.State != "rolled_back" {
		t.Errorf("%+v", p)
	}
	for _, s := range g.Status().Servers {
		if s.ID == "b" {
			t.Errorf("the server is still in force: %+v", s)
		}
	}
	calls.end(t)
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Errorf("the client lists %q", got)
	}
}

// Where files are not changed here, a proposal is applied once somebody has rolled out its files and they are in force.
func TestAProposalThatIsRolledOutByHandIsNotedAsApplied(t *testing.T) {
	t.Parallel()
	dir, keys := layOutProposals(t)
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "edit: programs", "edit: false", 1))
	g := rig.Serve(t, dir)
	d := nextTask(t, dir)
	p := proposalOf(t, g.AskAdmin(t, keys["admin"], "POST", "/v1/proposals", d.text(t)), http.StatusCreated)
	at := "/v1/proposals/" + p.ID
	if a := g.AskAdmin(t, keys["admin"], "POST", at+"/apply", ""); !strings.Contains(a.Body, "SB-CONF-003") {
		t.Errorf("applied here: %d %s", a.Status, a.Body)
	}
	for _, f := range d.Files {
		if text, ok := f["text"].(string); ok {
			rig.WriteFile(t, filepath.Join(dir, f["path"].(string)), text)
		} else if err := os.Remove(filepath.Join(dir, f["path"].(string))); err != nil {
			t.Fatal(err)
		}
	}
	rig.Eventually(t, "the rollout is noted", func() string {
		now := proposalOf(t, g.AskAdmin(t, keys["admin"], "GET", at, ""), http.StatusOK)
		return rig.ReasonUnless(now.State == "applied" && now.Why == "it was rolled out", now.State+": "+now.Why)
	})
}

// A claim that only the served state can refute takes everything back, and no call of a client is lost meanwhile.
func TestAFailedClaimIsRolledBackWithoutALostCall(t *testing.T) {
	t.Parallel()
	dir, keys := layOutProposals(t)
	main := filepath.Join(dir, "switchboard.yaml")
	old := rig.ReadFile(t, main)
	g := rig.Serve(t, dir)
	client := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
	rig.ListNames(t, client)

	calls := keepCalling(t, g, keys["agent"])
	d := serverB(old, fmt.Sprintf(rig.Tool, "rest"))
	p := proposalOf(t, g.AskAdmin(t, keys["operator"], "POST", "/v1/proposals", d.text(t)), http.StatusCreated)
	if p.Risk != "critical" && p.Risk != "high" {
		t.Errorf("the risk: %s", p.Risk)
	}
	at := "/v1/proposals/" + p.ID
	if a := g.AskAdmin(t, keys["second operator"], "POST", at+"/approve", `{"note":"good"}`); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	begun := time.Now()
	a := g.AskAdmin(t, keys["operator"], "POST", at+"/apply", "")
	if a.Status != http.StatusConflict || !strings.Contains(a.Body, "SB-CONF-004") || !strings.Contains(a.Body, "task all of acme has b/nosuch") || strings.Contains(a.Body, "has b/rest") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	t.Logf("applied, refuted and taken back within %s", time.Since(begun))
	calls.end(t)
	if now := rig.ReadFile(t, main); now != old {
		t.Errorf("the file: %q", now)
	}
	if _, err := os.Stat(filepath.Join(dir, "overlays")); err == nil {
		t.Error("the folder of the new overlay is left")
	}
	if got := rig.ListNames(t, client); !slices.Equal(got, []string{"work"}) {
		t.Errorf("the client lists %q", got)
	}
	if p := proposalOf(t, g.AskAdmin(t, keys["operator"], "GET", at, ""), http.StatusOK); p.State != "rolled_back" {
		t.Errorf("%+v", p)
	}
}

// After a kill in the middle of an application, the files are all old or all new, the next start serves them, and the proposal says which. Each kill comes while the
// proposal is applied: every other one as soon as its state says so, and the others when the journal stands beside the files, or some time later.
func TestTwentyKillsInTheMiddleOfAnApplication(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	eachStore(t, killInTheMiddleOfAnApplication)
}

func killInTheMiddleOfAnApplication(t *testing.T, redis *redistest.Server) {
	dir, keys := layOutProposals(t)
	serve := overStore(t, dir, redis)
	file := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	start := map[string]string{"tenants/acme/tenant.yaml": rig.ReadFile(t, file("tenants/acme/tenant.yaml")), allTask: rig.ReadFile(t, file(allTask))}
	made, unmade, cut := 0, 0, 0
	for i := range 20 {
		for name, text := range start {
			rig.WriteFile(t, file(name), text)
		}
		_ = os.Remove(file("tenants/acme/tasks/next.yaml"))
		g := serve()
		p := proposalOf(t, g.AskAdmin(t, keys["admin"], "POST", "/v1/proposals", nextTask(t, dir).text(t)), http.StatusCreated)
		row, err := g.Row()
		if err != nil {
			t.Fatal(err)
		}
		journal := func() bool { _, err := os.Stat(file(config.JournalFile)); return err == nil }
		applying := func() bool {
			return journal() || proposalOf(t, g.AskAdmin(t, keys["admin"], "GET", "/v1/proposals/"+p.ID, ""), http.StatusOK).State != "open"
		}
		seen, later := applying, time.Duration(0)
		if i%2 == 1 {
			seen, later = journal, time.Duration(rand.IntN(1+i*2000))*time.Microsecond
		}
		answered := make(chan int, 1)
		go func() { answered <- postOnce(row.Admin+"/v1/proposals/"+p.ID+"/apply", keys["admin"]) }()
		status, over := 0, false
		for !over && !seen() {
			select {
			case status = <-answered: // the look came too late
				over = true
			default:
			}
		}
		time.Sleep(later)
		_ = g.Cmd.Process.Kill()
		_ = g.Cmd.Wait()
		if !over {
			status = <-answered
		}
		if status == 0 {
			cut++
		}

		g = serve()
		var now struct{ ID, State, Risk, Why string }
		rig.Eventually(t, "the application is ended", func() string {
			now = proposalOf(t, g.AskAdmin(t, keys["admin"], "GET", "/v1/proposals/"+p.ID, ""), http.StatusOK)
			return rig.ReasonUnless(now.State != "applying", now.State)
		})
		_, goneErr := os.Stat(file(allTask))
		_, newErr := os.Stat(file("tenants/acme/tasks/next.yaml"))
		isNew := goneErr != nil && newErr == nil && strings.Contains(rig.ReadFile(t, file("tenants/acme/tenant.yaml")), "default_task: next")
		isOld := goneErr == nil && newErr != nil && rig.ReadFile(t, file("tenants/acme/tenant.yaml")) == start["tenants/acme/tenant.yaml"]
		switch {
		case now.State == "applied" && isNew:
			made++
		case now.State == "open" && isOld:
			unmade++
			if status == http.StatusOK {
				t.Errorf("kill %d: it was acknowledged, and is gone", i)
			}
			if !strings.Contains(now.Why, "was killed before that") {
				t.Errorf("kill %d came before the application: %q", i, now.Why)
			}
		default:
			t.Fatalf("kill %d: the proposal is %s (%s); the new files are there: %t, the old ones: %t", i, now.State, now.Why, isNew, isOld)
		}
		tasks := g.AskAdmin(t, keys["admin"], "GET", "/v1/tasks?tenant=acme", "").Body
		if strings.Contains(tasks, `"next"`) != isNew {
			t.Errorf("kill %d: %s is served", i, tasks)
		}
		_ = g.Cmd.Process.Kill()
		_ = g.Cmd.Wait()
	}
	t.Logf("20 kills, %d before the answer: %d times the new state, %d times the old one", cut, made, unmade)
	if made == 0 || unmade == 0 || cut < 10 {
		t.Error("the kills did not hit the application")
	}
}

// postOnce sends a request, and returns the status of the answer; 0 if there is none.
func postOnce(to, key string) int {
	req, err := http.NewRequest(http.MethodPost, to, http.NoBody)
	if err != nil {
		return 0
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
