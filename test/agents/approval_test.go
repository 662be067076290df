//go:build agents && unix

package agents_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// maxResumes limits how often a model resumes a call that waits. At the default wait of 45 seconds, an approval that is late needs one or two.
const maxResumes = 10

// A mailer is a server with the tool send. It counts the calls for each recipient.
type mailer struct {
	mu   sync.Mutex
	sent map[string]int // by recipient
}

func (m *mailer) server() *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "mail", Version: "1"}, nil)
	m.addSend(server, "send")
	return server
}

// addSend adds the tool, with another name.
func (m *mailer) addSend(server *mcp.Server, name string) {
	server.AddTool(&mcp.Tool{Name: name, Description: "Sends a mail.", InputSchema: json.RawMessage(`{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}`)},
		func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var a struct{ To string }
			if err := json.Unmarshal(r.Params.Arguments, &a); err != nil {
				return nil, err
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			m.sent[a.To]++
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: sentTo(a.To)}}}, nil
		})
}

// sentTo is the result of send.
func sentTo(to string) string { return "the mail to " + to + " is sent" }

func (m *mailer) calls(to string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sent[to]
}

// serveMail serves a mailer behind a Switchboard where each mail needs a person, with these settings of approvals. It returns the address for agents and
// the configuration.
func serveMail(t *testing.T, program string, server *mcp.Server, approvals string) (address, config string) {
	t.Helper()
	dir := t.TempDir()
	url := listen(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	config = write(t, dir, "switchboard.yaml", fmt.Sprintf("servers:\n  mail: {transport: http, url: %q}\ntenants: {default: {servers: [\"*\"], allow: [by_name]}}\n%s", url, approvals))
	write(t, dir, filepath.FromSlash("tenants/default/tenant.yaml"), "tenant: default\ndefault_task: work\n")
	write(t, dir, filepath.FromSlash("tenants/default/tasks/work.yaml"), "task_id: work\nrequired_capabilities: [{tools: [\"mail/*\"]}]\n")
	write(t, dir, filepath.FromSlash("tenants/default/policies/own.rego"), `package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

obligations["mail/send"] contains {"type": "require_approval"}

# A rule that names who decides keeps the form of a client from deciding.
obligations["mail/send_reviewed"] contains {"type": "require_approval", "who": ["oncall"]}
`)
	return serve(t, program, config), config
}

// endpoint returns a Switchboard with the ear before it: at the address, or a process of the agent's own that joins the one at the address.
func (e *ear) endpoint(t *testing.T, transport, program, address, config string) endpoint {
	t.Helper()
	if transport == "http" {
		return endpoint{url: e.before(t, address)}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return endpoint{command: []string{self, "relay", listen(t, e), program, "stdio", "--config", config}}
}

// starts has an element for each agent that starts beside others. A start takes seconds of a processor, and then most agents wait.
var starts = make(chan struct{}, 3)

// awaitTurn waits until the client may start. The next client may start after this one's first call, or after end is called.
func (e *ear) awaitTurn() (end func()) {
	starts <- struct{}{}
	e.called = sync.OnceFunc(func() { <-starts })
	return e.called
}

// asksForProgress reports whether the client wants to know how each of its calls goes on.
func (e *ear) asksForProgress() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.ContainsFunc(e.messages, func(m heardMessage) bool { return m.Method == "tools/call" && m.Params.Meta.ProgressToken == nil })
}

// elicitation returns the capability "elicitation" that the client declares, at its start or with each request; "" is none.
func (e *ear) elicitation() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.messages {
		if declared := string(m.Params.Capabilities.Elicitation) + string(m.Params.Meta.Capabilities.Elicitation); declared != "" {
			return declared
		}
	}
	return ""
}

// approve is a person with commands: it watches the requests of a Switchboard until the test is over, and approves each call after the time that after
// returns for its recipient; for 0, never.
func approve(t *testing.T, program, config string, after func(to string) time.Duration) {
	t.Helper()
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), program, append(args, "--config", config)...).CombinedOutput()
		if err != nil && t.Context().Err() == nil {
			t.Errorf("switchboard %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	watch := exec.CommandContext(t.Context(), program, "approvals", "watch", "--json", "--config", config)
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	var people sync.WaitGroup
	people.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			began := time.Now()
			var row struct{ ID, State string }
			if err := json.Unmarshal(lines.Bytes(), &row); err != nil || row.State != "pending" {
				continue
			}
			people.Go(func() {
				shown := recipient.FindStringSubmatch(run("approvals", "show", row.ID))
				if shown == nil {
					t.Errorf("request %s shows no recipient", row.ID)
					return
				}
				delay := after(shown[1])
				if delay == 0 {
					return
				}
				select {
				case <-time.After(time.Until(began.Add(delay))):
				case <-t.Context().Done():
					return
				}
				run("approvals", "approve", row.ID)
			})
		}
	})
	t.Cleanup(func() {
		people.Wait()
		_ = watch.Wait()
	})
}

var (
	recipient = regexp.MustCompile(`"to": "([^"]*)"`)
	requestID = regexp.MustCompile(`request ([a-z0-9]{16}-[0-9]+)`)
)

// A correspondence is one conversation of an agent whose model sends one mail, and resumes the call for as long as it waits.
type correspondence struct {
	name    string        // of what the test claims
	delay   time.Duration // until a person approves the call; 0 is never
	timeout time.Duration // of the agent; 0 is its default
}

var correspondences = []correspondence{ // those that take longest begin first
	{name: "late", delay: 90 * time.Second},
	{name: "impatient", timeout: 30 * time.Second},
	{name: "soon", delay: 5 * time.Second},
}

// model returns the model of a conversation about a mail to this recipient.
func (c correspondence) model(to string) *agents.Model {
	return &agents.Model{Script: func(turn agents.Turn) agents.Reply {
		send, resume := turn.Offers("send"), turn.Offers("switchboard_resume")
		if len(turn.Results) == 0 {
			if send == nil {
				return agents.Reply{Say: "there is nothing to send with"}
			}
			return agents.Reply{Call: send, Args: fmt.Sprintf(`{"to":%q}`, to)}
		}
		last := turn.Results[len(turn.Results)-1]
		waits := requestID.FindStringSubmatch(last)
		if c.delay == 0 || waits == nil || resume == nil || len(turn.Results) > maxResumes {
			return agents.Reply{Say: "this is all: " + last}
		}
		return agents.Reply{Call: resume, Args: fmt.Sprintf(`{"request":%q}`, waits[1])}
	}}
}

// Each agent calls a tool that needs a person, over HTTP and over stdio, with the default wait. A person approves the call by command: after 5 seconds, and
// the call's own result has the answer; and in a second run after 90, and the result of switchboard_resume has it. No agent gives up, and the server counts
// one call. An agent whose own timeout is shorter gives up, or progress keeps it waiting.
func TestAgentsWaitForThePersonWhoApprovesTheirCall(t *testing.T) {
	t.Parallel()
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	all[0].find(t) // so that no agent waits for the packages
	mail := &mailer{sent: map[string]int{}}
	address, config := serveMail(t, program, mail.server(), "")
	approve(t, program, config, func(to string) time.Duration {
		i := slices.IndexFunc(correspondences, func(c correspondence) bool { return strings.HasPrefix(to, c.name) })
		return correspondences[max(i, 0)].delay
	})
	var running sync.WaitGroup
	for _, c := range correspondences {
		for _, a := range all {
			for _, transport := range []string{"http", "stdio"} {
				if c.timeout != 0 && transport == "stdio" {
					continue // it is the same timeout
				}
				e, to := newEar(), c.name+"-"+rand.Text()
				end := e.awaitTurn()
				running.Go(func() {
					defer end()
					t.Run(a.name+"/"+transport+"/"+c.name, func(t *testing.T) {
						a.find(t)
						model := c.model(to)
						s := e.endpoint(t, transport, program, address, config)
						s.timeout = c.timeout
						said := a.runFor(t, c.delay+patience, listen(t, model), s)
						c.check(t, a, e, to, said, model.Last().Results)
						if n, want := mail.calls(to), map[bool]int{true: 1}[c.delay != 0]; n != want {
							t.Errorf("the server counts %d calls, want %d", n, want)
						}
					})
				})
			}
		}
	}
	running.Wait()
}

// check checks the results of a conversation.
func (c correspondence) check(t *testing.T, a agent, e *ear, to, said string, results []string) {
	t.Helper()
	heard, _ := e.all()
	defer func() {
		if t.Failed() {
			t.Logf("to Switchboard it said %q; the results are %q", heard, results)
		}
	}()
	if len(results) == 0 {
		t.Fatal("the model got no result")
	}
	if !e.asksForProgress() {
		t.Error("its call has no progress token")
	}
	waited := strings.Contains(results[0], "SB-APPR-001")
	if c.delay == 0 {
		if waited != a.asked.extends {
			t.Errorf("with a timeout of its own of %s, its call is answered after the wait: %t, want %t", c.timeout, waited, a.asked.extends)
		}
		return
	}
	if !strings.Contains(said, sentTo(to)) {
		t.Errorf("in the end it says %q", said)
	}
	for _, r := range results[:len(results)-1] {
		if !strings.Contains(r, "SB-APPR-001") {
			t.Errorf("a call that waits has the result %.600s", r)
		}
	}
	resumed := slices.Contains(heard, "tools/call switchboard_resume")
	switch {
	case c.delay > approval.DefaultWait && (!waited || !resumed):
		t.Error("the call did not wait for its person until it was resumed")
	case c.delay < approval.DefaultWait && (waited || resumed):
		wait.Late(t, "the person's command took so long that the call was resumed")
	}
}
