package served_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var (
	memoryKills     = flag.Int("memory-kills", 20, "how many `processes` TestTheMemoryCountsEachReceiptOnceAfterKills kills; 50 is what is promised")
	memoryQuestions = flag.Int("memory-questions", 2000, "how many `questions` TestTheMemoryAnswersATenantWithNothingOfAnother asks; 10000 is what is promised")
)

// folding is how long calls may take to appear in the memory: receipts are folded every 10 s, and the lease of a killed process lasts 30 s.
const folding = time.Minute + wait.Bound

// callsOf returns how the calls of the tool work have ended, by tenant, outcome and code, as the receipts say.
func callsOf(t *testing.T, g *rig.Gateway) map[string]uint64 {
	t.Helper()
	a := g.AskAdmin(t, "", "GET", "/v1/receipts/export", "")
	all := map[string]uint64{}
	for line := range bytes.Lines([]byte(a.Body)) {
		var of struct {
			Entry struct {
				Receipt struct{ Kind, Tenant, Server, Tool, Method, Outcome, Code, Given string }
			}
		}
		if err := json.Unmarshal(line, &of); err != nil {
			t.Fatalf("%v: %.200s", err, line)
		}
		if r := of.Entry.Receipt; r.Kind == "call" && r.Method == "tools/call" && r.Server == "a" && r.Tool == "work" {
			if r.Given != "" {
				all[r.Tenant+" kept"]++
				continue
			}
			all[r.Tenant+" "+r.Outcome]++
			if r.Code != "" {
				all[r.Tenant+" "+r.Code]++
			}
		}
	}
	return all
}

// rememberedCalls returns the same as the memory says.
func rememberedCalls(t *testing.T, g *rig.Gateway) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	for _, tenant := range []string{"acme", "umbrella"} {
		a := g.AskAdmin(t, "", "GET", "/v1/memory/tools/a/work?tenant="+tenant, "")
		var r struct {
			Total struct {
				Outcomes map[string]uint64
				Codes    map[string]uint64
				Kept     uint64
			}
		}
		if err := json.Unmarshal([]byte(a.Body), &r); a.Status != 200 || err != nil {
			t.Fatalf("%d %v: %.300s", a.Status, err, a.Body)
		}
		maps.Copy(r.Total.Outcomes, r.Total.Codes)
		if r.Total.Kept > 0 {
			r.Total.Outcomes["kept"] = r.Total.Kept
		}
		for outcome, n := range r.Total.Outcomes {
			all[tenant+" "+outcome] = n
		}
	}
	return all
}

// awaitMemory waits until the memory at g has what the receipts say. More than that would stay. A receipt may be written a moment after its call.
func awaitMemory(t *testing.T, g *rig.Gateway, when string) (want map[string]uint64) {
	t.Helper()
	wait.For(t, folding, when, func() error {
		want = callsOf(t, g)
		if got := rememberedCalls(t, g); !maps.Equal(got, want) {
			return fmt.Errorf("the memory has %v, the receipts %v", got, want)
		}
		return nil
	})
	return want
}

// canaryText is in the arguments, results and errors of calls.
const canaryText = "CANARY-5d1f"

// workers opens a session of each tenant.
func workers(t *testing.T, g *rig.Gateway, keys officers) [2]*rig.HTTPSession {
	t.Helper()
	return [2]*rig.HTTPSession{g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]), g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])}
}

// work makes two calls, whatever their answers are. Some fail.
func work(s *rig.HTTPSession, n int) {
	arguments := fmt.Sprintf(`{"do":"result","bytes":%q}`, `{"content":[{"type":"text","text":"`+canaryText+`"}]}`)
	switch n % 4 {
	case 1:
		arguments = fmt.Sprintf(`{"do":"result","bytes":%q}`, `{"isError":true,"content":[{"type":"text","text":"`+canaryText+`"}]}`)
	case 2:
		arguments = fmt.Sprintf(`{"do":"error","bytes":%q}`, `{"code":-1,"message":"`+canaryText+`"}`)
	case 3:
		arguments = `"` + canaryText + `"` // no object: refused
	}
	s.Try("work", n)
	_, _, _ = s.Exchange(s.Request("tools/call", fmt.Sprintf(`{"name":"work","arguments":%s}`, arguments)))
}

func TestTheMemoryCountsEachReceiptOnceAfterKills(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir, keys := layOutOfficers(t)
	r := rand.New(rand.NewPCG(1, 5))
	for life := range *memoryKills {
		g := rig.Serve(t, dir)
		var calls sync.WaitGroup
		sessions := workers(t, g, keys)
		for n := range 12 {
			calls.Go(func() { work(sessions[n%2], life+n/2) })
		}
		if life%2 == 0 {
			calls.Wait()
		}
		<-time.After(time.Duration(r.IntN(300)) * time.Millisecond) // what is folded at a start is folded soon after it
		g.Signal(t, syscall.SIGKILL)
		_ = g.Cmd.Wait()
		calls.Wait()
	}
	g := rig.Serve(t, dir)
	rig.Eventually(t, "the memory lags behind the receipts", func() string {
		if _, values := g.Metrics(); values["switchboard_memory_lag_receipts"] > 0 && values["switchboard_memory_lag_seconds"] > 0 {
			return ""
		}
		work(workers(t, g, keys)[0], 0)
		return "it does not"
	})
	if want := awaitMemory(t, g, "the memory has the calls of all lives"); want["acme ok"] == 0 || want["umbrella tool_error"] == 0 {
		t.Errorf("the calls were %v", want)
	}
	wait.For(t, folding, "the memory has no lag", func() error {
		if _, values := g.Metrics(); values["switchboard_memory_lag_receipts"] != 0 || values["switchboard_memory_lag_seconds"] != 0 {
			return fmt.Errorf("%v receipts are not counted, the oldest since %v s", values["switchboard_memory_lag_receipts"], values["switchboard_memory_lag_seconds"])
		}
		return nil
	})
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"all ", []string{"memory", "tool", "a/work", "--tenant", "acme"}},
		{"tool_error", []string{"memory", "errors", "a/work", "--tenant", "acme"}},
		{"", []string{"memory", "similar", "a/work", "--tenant", "acme"}},
		{"", []string{"memory", "gaps", "--tenant", "acme"}},
		{"no requirement of a task of tenant acme", []string{"suggest", "ranking", "--tenant", "acme"}},
	} {
		g.Do(0, tt.want, tt.args...)
	}
	g.Do(1, "SB-CAP-001", "memory", "tool", "a/nothing", "--tenant", "acme")
	if said, errs, code := rig.Command(t, dir, "memory", "rebuild"); code != 0 || !strings.Contains(said, "were counted again") {
		t.Errorf("memory rebuild exits %d and says %s%s", code, said, errs)
	}
	awaitMemory(t, g, "the memory has them after it was rebuilt")
	st, err := store.OpenFile(filepath.Join(dir, ".switchboard", "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	pages := 0
	err = st.Dump(t.Context(), func(r store.Record) error {
		if r.Kind == store.KindValue && strings.HasPrefix(r.Group, "memory") {
			pages++
			if bytes.Contains(r.Value.Data, []byte("CANARY")) {
				t.Errorf("the page %s %s has text of a call: %q", r.Group, r.Name, r.Value.Data)
			}
		}
		return nil
	})
	if err != nil || pages < 3 {
		t.Errorf("%d pages: %v", pages, err)
	}
}

func TestTheMemoryOfThreeReplicasCountsEachReceiptOnce(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir, keys := layOutOfficers(t)
	all, _ := replicate(t, dir, 3)
	var calls sync.WaitGroup
	for i, g := range all {
		sessions := workers(t, g, keys)
		for n := range 20 {
			calls.Go(func() { work(sessions[n%2], i+n/2) })
		}
	}
	calls.Wait()
	all[1].Signal(t, syscall.SIGKILL)
	_ = all[1].Cmd.Wait()
	all[1] = rig.Serve(t, all[1].Dir)
	for i, g := range all {
		for _, s := range workers(t, g, keys) {
			work(s, i)
		}
	}
	var want map[string]uint64
	for i, g := range all {
		want = awaitMemory(t, g, fmt.Sprintf("replica %d has the calls of all", i+1))
	}
	if want["acme ok"] == 0 || want["umbrella server_error"] == 0 {
		t.Errorf("the calls were %v", want)
	}
}

// Whatever an officer of one tenant asks, nothing of the other tenant is in an answer: not its tools, its gaps or its figures.
func TestTheMemoryAnswersATenantWithNothingOfAnother(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	main := filepath.Join(dir, "switchboard.yaml")
	text := rig.ReadFile(t, main)
	for _, tenant := range []string{"acme", "umbrella"} { // each has a server of its own, and a requirement that is not met
		own := rig.FakeRow("only-"+tenant, fmt.Sprintf(rig.Tool, tenant+"_tool"))
		own = strings.ReplaceAll(own, "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))
		text = strings.Replace(text, "servers:\n", "servers:\n  "+own+"\n", 1)
		text = strings.Replace(text, tenant+": {servers: [\"*\"]", tenant+": {servers: [a, only-"+tenant+"]", 1)
		task := filepath.Join(dir, "tenants", tenant, "tasks", "all.yaml")
		rig.WriteFile(t, task, fmt.Sprintf("task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}, {tools: [\"a/%s_gap\"], optional: true}]\n", tenant))
	}
	rig.WriteFile(t, main, text)
	g := rig.Serve(t, dir)
	for n := range 8 {
		for tenant, who := range map[string]string{"acme": "agent", "umbrella": "other agent"} {
			s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who])
			work(s, n)
			rig.ListNames(t, s)
			rig.Call(t, s, tenant+"_tool", `{}`)
		}
	}
	who := map[string]string{"acme": "viewer", "umbrella": "other admin"}
	wait.For(t, folding, "both tenants have gaps and calls", func() error {
		for tenant, officer := range who {
			gaps, tool := g.AskAdmin(t, keys[officer], "GET", "/v1/memory/gaps", "").Body, g.AskAdmin(t, keys[officer], "GET", "/v1/memory/tools/only-"+tenant+"/"+tenant+"_tool", "").Body
			if !strings.Contains(gaps, tenant+"_gap") || !strings.Contains(tool, `"attempts":8`) {
				return fmt.Errorf("%s has %s and %s", tenant, gaps, tool)
			}
		}
		return nil
	})
	var asking sync.WaitGroup
	for part := range 4 {
		asking.Go(func() {
			r := rand.New(rand.NewPCG(2, uint64(part)))
			for range *memoryQuestions / 4 {
				me, other := "acme", "umbrella"
				if r.IntN(2) == 0 {
					me, other = other, me
				}
				owner := []string{me, other, "nobody"}[r.IntN(3)]
				tool := "only-" + owner + "/" + owner + "_tool"
				path := []string{"tools/" + tool, "errors/" + tool, "similar/" + tool, "tools/a/work", "errors/a/work", "similar/a/work", "gaps", "ranking"}[r.IntN(8)]
				query := []string{"", "?days=400", "?tenant=" + me, "?tenant=" + other}[r.IntN(4)]
				a := g.AskAdmin(t, keys[who[me]], "GET", "/v1/memory/"+path+query, "")
				want := 200
				if strings.Contains(query, other) || strings.Contains(path, "only-") && owner != me {
					want = 404
				}
				if path == "ranking" && want == 200 && who[me] == "viewer" {
					want = 403 // a suggestion is for those who may rank
				}
				answer := strings.ReplaceAll(a.Body, owner, "OWNER") // a refusal says what was asked for
				if strings.Contains(query, other) {
					answer = strings.ReplaceAll(answer, other, "OTHER")
				}
				if a.Status != want || want == 200 && strings.Contains(a.Body, other) || strings.Contains(answer, other) {
					t.Errorf("%s asks %s%s: %d, want %d: %s", me, path, query, a.Status, want, a.Body)
				}
			}
		})
	}
	asking.Wait()
	a, b := g.AskAdmin(t, keys["viewer"], "GET", "/v1/memory/tools/only-umbrella/umbrella_tool", ""), g.AskAdmin(t, keys["viewer"], "GET", "/v1/memory/tools/only-nobody/nobody_tool", "")
	if a.Status != b.Status || strings.ReplaceAll(a.Body, "umbrella", "nobody") != b.Body {
		t.Errorf("a tool of another tenant gets %s, an unknown one %s", a.Body, b.Body)
	}
}

func TestACapabilityThatAnAgentAsksForIsAGapOfItsTenant(t *testing.T) {
	t.Parallel()
	a := serveAskers(t)
	request(t, a.open(t, "ann", true), "openai_embeddings", why)
	gaps := func(tenant string) string {
		return a.AskAdmin(t, "", "GET", "/v1/memory/gaps?tenant="+tenant, "").Body
	}
	wait.For(t, folding, "the gap", func() error {
		if got := gaps("acme"); !strings.Contains(got, `{"kind":"request","name":"openai_embeddings","count":1,`) || strings.Contains(got, why) {
			return fmt.Errorf("acme has %s", got)
		}
		return nil
	})
	if got := gaps("umbrella"); !strings.Contains(got, `"gaps":[]`) {
		t.Errorf("umbrella has %s", got)
	}
}

// What do I lack for this task: explain names the requirement that nothing meets, gaps say how often it was lacking, and the dossier beside a request says what was found.
func TestWhatATaskLacksIsNamedWithTheDossierOfItsSearch(t *testing.T) {
	t.Parallel()
	text, keys := fillKeys(t, askers)
	const browse = "required_capabilities: [{verb: search, resource: internet}]\n-- tenants/umbrella"
	text = strings.Replace(text, browse, strings.Replace(browse, "}]", "}, {verb: notify, resource: slack, optional: true}]", 1), 1)
	a := &asking{rig.Serve(t, rig.LayOut(t, text)), keys}
	s := a.open(t, "ann", true)
	rig.ListNames(t, s)
	if out, errs, _ := rig.Command(t, a.Dir, "explain", "browse", "--tenant", "acme", "--principal", "ann", "--url", a.URL); !regexp.MustCompile(`needs notify slack, optional\n +NOT MET +filter: no tool has this capability`).MatchString(out) {
		t.Errorf("explain does not name what is lacking:\n%s%s", out, errs)
	}
	request(t, s, "notify slack", why)
	var out string
	wait.For(t, folding, "both gaps, and the dossier", func() error {
		var list struct {
			Dossiers []struct{ ID, Status, Capability, Tenant string }
		}
		if err := json.Unmarshal([]byte(a.AskAdmin(t, "", "GET", "/v1/acquisitions", "").Body), &list); err != nil {
			return err
		}
		out, _, _ = rig.Command(t, a.Dir, "memory", "gaps", "--tenant", "acme", "--url", a.URL)
		if len(list.Dossiers) != 1 {
			return fmt.Errorf("the dossiers are %+v; the gaps are\n%s", list.Dossiers, out)
		}
		d := list.Dossiers[0]
		for _, want := range []string{`(?m)^\d+ +1 +requirement +notify slack .* -$`, `(?m)^1 +1 +request +notify slack .* ` + d.ID + " " + d.Status + "$", `^TIMES .* DOSSIER\n`} {
			if !regexp.MustCompile(want).MatchString(out) {
				return fmt.Errorf("%q is not in\n%s", want, out)
			}
		}
		return nil
	})
	if out, errs, code := rig.Command(t, a.Dir, "memory", "gaps", "--tenant", "umbrella", "--url", a.URL); code != 0 || strings.Contains(out, "slack") {
		t.Errorf("umbrella: exit %d\n%s%s", code, out, errs)
	}
}
