package served_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// The chaos matrix: every fault, on every transport, of every kind of tool, with
// an equivalent on another server and without one. `make chaos` prints it.

const straight = "straight" // the server that never fails

// With the race detector everything takes longer, and other packages are tested at
// the same time: it has more time, and does without the deterministic tools, whose
// calls go the way of the idempotent ones.
var (
	chaosDeadline = time.Second     // of a call
	chaosSlack    = 5 * time.Second // that it may take longer over real sockets, on a busy machine
	chaosTools    = fault.Tools
)

// companies are whether the server that fails stands alone.
var companies = []string{"alone", "spare"}

// A stage is a Switchboard with servers that fail: for each transport one whose
// tools have no equivalent, and one whose tools have theirs on a server that does
// not fail.
type stage struct {
	ledger  fault.Ledger
	gateway *rig.Gateway
	cues    map[string]*fault.Cue // by server
}

func init() {
	if programs.HasRace() {
		chaosDeadline, chaosSlack = 3*time.Second, 10*time.Second
		chaosTools = []string{fault.Stateful, fault.Idempotent}
	}
}

// serverOf is the server that fails.
func serverOf(on fault.Transport, company string) string {
	return strings.ToLower(strings.ReplaceAll(string(on), " ", "-")) + "-" + company
}

// newStage starts all of it, for the transports on which there is the fault.
func newStage(t *testing.T, f *fault.Fault) *stage {
	t.Helper()
	s := &stage{ledger: fault.Ledger(filepath.Join(t.TempDir(), "ledger")), cues: map[string]*fault.Cue{}}
	over := func(on fault.Transport, name string) (url string, restart func()) {
		h := fault.NewHandler(on, name, s.ledger)
		behind := httptest.NewServer(h)
		t.Cleanup(func() {
			behind.CloseClientConnections()
			behind.Close()
		})
		return behind.URL + "/mcp", h.Restart
	}
	const settings = "trust: operator, max_result: 1MiB"
	var servers, taxonomy, prefer, tasks, overlays []string
	can := func(server string, resources ...string) {
		text := "\n-- overlays/" + server + ".yaml --\nserver: " + server + "\ntools:"
		for _, tool := range fault.Tools {
			text += "\n  " + tool + ":\n    capabilities:"
			for _, resource := range resources {
				text += "\n      - {verb: read, resource: " + resource + "}"
			}
		}
		overlays = append(overlays, text)
	}
	var spared []string
	for _, on := range fault.Transports {
		for _, company := range companies {
			if !f.On(on) {
				continue
			}
			name := serverOf(on, company)
			var how string
			if on == fault.Stdio {
				p, err := fault.NewPipes()
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				s.cues[name] = &p.Cue
				command, _ := json.Marshal(append([]string{rig.FakeProgram, "fault-program"}, p.Args(rig.FakeProgram, "fault-server", name, string(s.ledger))...))
				how = "transport: stdio, command: " + string(command)
			} else {
				url, restart := over(on, name)
				p, err := fault.NewHTTP(on, url, restart)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Close)
				s.cues[name] = &p.Cue
				how = "transport: http, url: " + p.URL
			}
			servers = append(servers, fmt.Sprintf("%s: {%s, %s, timeout: %s}", name, how, settings, chaosDeadline))
			taxonomy = append(taxonomy, name+": {}")
			prefer = append(prefer, fmt.Sprintf("- {verb: read, resource: %s, servers: [%s]}", name, name))
			tasks = append(tasks, fmt.Sprintf("\n-- tenants/default/tasks/%s.yaml --\ntask_id: %s\nrequired_capabilities: [{verb: read, resource: %s}]", name, name, name))
			can(name, name)
			if company == "spare" {
				spared = append(spared, name)
			}
		}
	}
	url, _ := over(fault.Modern, straight)
	servers = append(servers, fmt.Sprintf("%s: {transport: http, url: %s, %s}", straight, url, settings))
	can(straight, spared...)
	s.gateway = rig.Serve(t, rig.LayOut(t, "\n-- switchboard.yaml --\nstart_deadline: 30s\nservers:\n  "+strings.Join(servers, "\n  ")+
		"\ntenants:\n  default: {servers: [\"*\"]}\n-- taxonomy.yaml --\nresources:\n  "+strings.Join(taxonomy, "\n  ")+
		"\n-- tenants/default/tenant.yaml --\ntenant: default\nranking:\n  prefer:\n    "+strings.Join(prefer, "\n    ")+
		strings.Join(tasks, "")+strings.Join(overlays, "")+"\n"))
	return s
}

// A cell is one call of the matrix, and what came of it.
type cell struct {
	on            fault.Transport
	tool, company string
	key           string

	outcome string        // "answer", "answer, moved", or the code
	took    time.Duration // until then
	back    time.Duration // from the end of the fault until the server serves a client again
	total   int           // executions, on both servers
	tries   int           // of calls before and after
	late    string        // what did not come within patience
}

func (c *cell) String() string {
	if c.total == 1 && strings.HasPrefix(c.outcome, "answer") {
		return c.outcome
	}
	return fmt.Sprintf("%s, %d×", c.outcome, c.total)
}

// call makes the call of a cell, at a server that is well, and one after it at
// once that meets no fault. Then it waits until the server is well again.
func (s *stage) call(t *testing.T, f *fault.Fault, c *cell) {
	client := s.wait(t, c)
	if client == nil {
		return
	}
	cue := s.cues[serverOf(c.on, c.company)]
	cue.Arm(fault.Order{Kind: f.Kind, Key: c.key})
	began := time.Now()
	answer, came := c.make(t, client, c.key)
	c.took = time.Since(began)
	cue.Disarm()
	if !came {
		return
	}
	c.outcome = c.judge(t, answer, c.key)
	if said := strings.Contains(string(answer.Result), `"io.switchboard/moved":{"served_by":`); said != (c.outcome == moved) {
		t.Errorf("%s: %s, and what is said of it is: %s", c.key, c.outcome, answer.Raw)
	}
	if c.took > chaosDeadline+chaosSlack {
		c.late = fmt.Sprintf("it took %v: %s", c.took, answer.Raw)
	}
	if answer, came := c.make(t, client, c.key+after); came {
		c.judge(t, answer, c.key+after)
	}
	c.leave(t, client)
	began = time.Now()
	if client := s.wait(t, c); client != nil {
		c.leave(t, client)
	}
	c.back = time.Since(began)
}

// moved is the outcome of a call that the server which does not fail has answered.
const moved = "answer, moved"

// after ends the key of the call that follows at once.
const after = " after"

// wait returns a new client, which is of a run of its own, once the server serves
// it, or nil with the reason in the cell if that is late.
func (s *stage) wait(t *testing.T, c *cell) *rig.HTTPSession {
	why := ""
	for end := time.Now().Add(rig.Patience); time.Now().Before(end); <-time.After(50 * time.Millisecond) {
		client := &rig.HTTPSession{URL: s.gateway.URL + "/mcp/tasks/" + serverOf(c.on, c.company), Header: http.Header{}}
		m, resp, err := client.Exchange(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
		if err != nil {
			c.broken(t, "initialize", err)
			return nil
		}
		why = string(m.Raw)
		if client.ID = resp.Header.Get("Mcp-Session-Id"); m.Error != nil || client.ID == "" {
			continue
		}
		c.tries++
		key := fmt.Sprint(c.key, " before ", c.tries)
		answer, came := c.make(t, client, key)
		if !came {
			return nil
		}
		if why = c.judge(t, answer, key); why == "answer" {
			return client
		}
		c.leave(t, client)
	}
	c.late = "the server is not well: " + why
	return nil
}

// leave ends the session of a client.
func (c *cell) leave(t *testing.T, client *rig.HTTPSession) {
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	if err := client.Leave(ctx); err != nil {
		c.broken(t, "the end of the session", err)
	}
}

// make makes a call. If no answer came, it has said so.
func (c *cell) make(t *testing.T, client *rig.HTTPSession, key string) (answer rig.Message, came bool) {
	body, extra := client.Request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"key":%q}}`, c.tool, key))
	answer, _, err := client.Exchange(body, extra)
	if err != nil {
		c.broken(t, key, err)
	}
	return answer, err == nil
}

// broken takes the error that came in place of an answer.
func (c *cell) broken(t *testing.T, what string, err error) {
	if wait.TimedOut(err) {
		c.late = fmt.Sprintf("%s: %v", what, err)
		return
	}
	t.Errorf("%s: %s: %v", c.key, what, err)
}

// judge names the outcome of a call. It must be the answer to this very call, or
// an error with a code.
func (c *cell) judge(t *testing.T, m rig.Message, key string) string {
	code := rig.Code(m)
	if code == "" {
		var r struct{ Content []struct{ Text string } }
		_ = json.Unmarshal(m.Result, &r) // which then has no text
		text := ""
		if len(r.Content) == 1 {
			text = r.Content[0].Text
		}
		switch text {
		case fault.Answer(serverOf(c.on, c.company), c.tool, key):
			return "answer"
		case fault.Answer(straight, c.tool, key):
			return moved
		}
	}
	if !strings.HasPrefix(code, "SB-") {
		t.Errorf("%s has neither its own answer nor an error with a code: %.500s", key, m.Raw)
	}
	return code
}

// promises are the codes by which a call was not executed.
var promises = []string{"SB-DISC-001", "SB-DISC-002", "SB-EXEC-002", "SB-ROUT-001", "SB-ROUT-002", "SB-ROUT-003", "SB-ROUT-004"}

// audit holds what the client was told against what the servers did.
func (s *stage) audit(t *testing.T, f *fault.Fault, c *cell) {
	for _, key := range []string{c.key, c.key + after} {
		byServer, err := s.ledger.Executed(key)
		if err != nil {
			t.Fatal(err)
		}
		total := 0
		for server, n := range byServer {
			total += n
			if n > 1 {
				t.Errorf("%s was executed %d times by %s", key, n, server)
			}
			if server != serverOf(c.on, c.company) && (server != straight || c.company == "alone") {
				t.Errorf("%s was executed by %s, which is no equivalent", key, server)
			}
		}
		if c.tool == fault.Stateful && total > 1 {
			t.Errorf("%s was executed %d times", key, total)
		}
		if key == c.key {
			c.total = total
		}
	}
	if strings.HasPrefix(c.outcome, "answer") && c.total == 0 || slices.Contains(promises, c.outcome) && c.total > 0 {
		t.Errorf("%s was executed %d times, and the client was told: %s", c.key, c.total, c.outcome)
	}
	if want := c.must(f); want != "" && c.outcome != want && c.outcome != "" { // "" has been told of
		t.Errorf("%s: %s, want %s", c.key, c.outcome, want)
	}
	if c.outcome == moved && c.must(f) != moved {
		t.Errorf("%s was moved", c.key)
	}
}

// must is the outcome that a cell has to have; "" stands for an error with a code,
// whichever fits.
func (c *cell) must(f *fault.Fault) string {
	// What a server refuses is no failure of its, but that it has forgotten a
	// session: that it has done nothing is only its word then.
	fails := !strings.HasPrefix(string(f.Kind), "4") || f.Kind == fault.Status404 && c.on != fault.Modern
	switch {
	case f.Answers:
		return "answer"
	case c.company == "spare" && (f.Kind == fault.Refuse || fails && c.tool != fault.Stateful):
		return moved
	}
	return ""
}

func TestChaosEveryRequestEndsRightlyAndNoneIsExecutedTwice(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	results := map[fault.Kind][]*cell{}
	var mu sync.Mutex
	began := time.Now()
	t.Run("faults", func(t *testing.T) {
		for _, f := range fault.Table {
			t.Run(string(f.Kind), func(t *testing.T) {
				t.Parallel()
				cells := chaos(t, &f)
				mu.Lock()
				defer mu.Unlock()
				results[f.Kind] = cells
			})
		}
	})
	table := matrix(results)
	took := time.Since(began)
	t.Logf("%v\n%s", took, table)
	if file := os.Getenv("CHAOS_TABLE"); file != "" {
		rig.WriteFile(t, file, table)
	}
}

// chaos is all of one fault. Calls of one server follow each other.
func chaos(t *testing.T, f *fault.Fault) (cells []*cell) {
	s := newStage(t, f)
	var work sync.WaitGroup
	for _, on := range fault.Transports {
		for _, company := range companies {
			if !f.On(on) {
				continue
			}
			var own []*cell
			for _, tool := range chaosTools {
				own = append(own, &cell{on: on, tool: tool, company: company, key: fmt.Sprintf("%s, %s, %s, %s", f.Kind, on, tool, company)})
			}
			cells = append(cells, own...)
			work.Go(func() {
				for _, c := range own {
					s.call(t, f, c)
				}
			})
		}
	}
	work.Wait()
	for _, c := range cells {
		if c.took > 0 { // it was made
			s.audit(t, f, c)
		}
	}
	for _, c := range cells {
		if c.late != "" {
			wait.Late(t, "%s: %s", c.key, c.late)
		}
	}
	return cells
}

// matrix is the whole table.
func matrix(results map[fault.Kind][]*cell) string {
	var b strings.Builder
	b.WriteString("| fault | transport |")
	for _, tool := range chaosTools {
		fmt.Fprintf(&b, " %s | with equivalent |", tool)
	}
	b.WriteString(" slowest | back after |\n|---|---|" + strings.Repeat("---|", 2*len(chaosTools)+2) + "\n")
	for _, f := range fault.Table {
		if results[f.Kind] == nil {
			continue // it was not asked for
		}
		for _, on := range fault.Transports {
			fmt.Fprintf(&b, "| %s | %s |", f.Kind, on)
			if !f.On(on) {
				fmt.Fprintf(&b, " none: %s |\n", f.About(on))
				continue
			}
			var slowest, back time.Duration
			for _, tool := range chaosTools {
				for _, company := range companies {
					for _, c := range results[f.Kind] {
						if c.on == on && c.tool == tool && c.company == company {
							fmt.Fprintf(&b, " %s |", c)
							slowest, back = max(slowest, c.took), max(back, c.back)
						}
					}
				}
			}
			fmt.Fprintf(&b, " %.2f s | %.2f s |\n", slowest.Seconds(), back.Seconds())
		}
	}
	return b.String()
}
