//go:build agents

package agents_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/summit-switchboard/switchboard/test/agents"
	"github.com/summit-switchboard/switchboard/test/npmlock"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/programs"
	"github.com/summit-switchboard/switchboard/test/registry"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// An admissionCase is one agent that lacks a capability, and the person who lets a server in for it.
type admissionCase struct {
	t           *testing.T
	dir         string // of the configuration
	admin, key  string // the admin API, and the person's key
	read        string // what the person read
	mu          sync.Mutex
	decided     bool // the person is about to say yes
	asked, done time.Time
	early       bool // the new tool was offered before the yes
	notes       int  // other calls that were made meanwhile
}

// desk is a server whose only tool is what the agent works on with.
func desk(t *testing.T) string {
	server := mcp.NewServer(&mcp.Implementation{Name: "desk", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "take_note", Description: "Takes a note.", InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "the note is taken"}}}, nil
		})
	return listen(t, mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
}

const (
	graph      = "search knowledge_graph"
	graphFound = "found in graph-archive: 2"
	maxNotes   = 60 // before the model gives up
)

// script asks for the capability, works on with another tool until the list has the new one, and calls it.
func (c *admissionCase) script(e *ear) func(agents.Turn) agents.Reply {
	return func(turn agents.Turn) agents.Reply {
		c.mu.Lock()
		defer c.mu.Unlock()
		request, note, helper := turn.Offers("switchboard_request_capability"), turn.Offers("take_note"), turn.Offers("knowledge_graph_helper")
		c.early = c.early || helper != nil && !c.decided
		switch {
		case request == nil || note == nil:
			return agents.Reply{Say: "there is nothing to ask with, or to work with"}
		case turn.Has(graphFound):
			c.done = time.Now()
			return agents.Reply{Say: "this is all: " + graphFound}
		case c.asked.IsZero():
			c.asked = time.Now()
			return agents.Reply{Call: request, Args: fmt.Sprintf(`{"capability":%q,"reason":"the task asks who wrote the parser"}`, graph)}
		case helper != nil:
			return agents.Reply{Call: helper, Args: `{"action":"call","tool":"search_nodes","arguments":{"query":"parser"}}`}
		case c.notes == maxNotes:
			return agents.Reply{Say: "the new tool was never offered: " + strings.Join(turn.Results, "\n")}
		}
		if c.notes++; c.notes > 1 {
			lists := e.answers()
			c.mu.Unlock()
			e.relisted(lists, time.Second) // as long as a model thinks
			c.mu.Lock()
		}
		return agents.Reply{Call: note, Args: fmt.Sprintf(`{"text":"note %d"}`, c.notes)} // Gemini CLI ends at five equal calls
	}
}

// letIn is the person: it waits until there is something to decide, and says yes on the admin API.
func (c *admissionCase) letIn() error {
	for {
		var list struct {
			Dossiers []struct{ ID, Status string }
		}
		text, err := officer.ReadAs(c.t.Context(), c.key, c.admin+"/v1/acquisitions")
		if err == nil {
			err = json.Unmarshal(text, &list)
		}
		switch {
		case err != nil:
			return err
		case len(list.Dossiers) == 0 || list.Dossiers[0].Status == "working":
			<-time.After(50 * time.Millisecond)
			continue
		case list.Dossiers[0].Status != "waiting":
			return errors.New("the dossier is " + list.Dossiers[0].Status)
		}
		one := c.admin + "/v1/acquisitions/" + list.Dossiers[0].ID
		if text, err = officer.ReadAs(c.t.Context(), c.key, one); err != nil {
			return err
		}
		c.mu.Lock()
		c.decided, c.read = true, string(text)
		c.mu.Unlock()
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, one+"/review", strings.NewReader(`{"answer":"yes","note":"we know alice"}`))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+c.key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }() // the body is read
		if text, err = io.ReadAll(resp.Body); err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("the yes: %s %s", resp.Status, text)
		}
		return err
	}
}

// serveSeeker serves a Switchboard with a desk, a registry with a server and a look-alike of it, and a person with a key.
func serveSeeker(t *testing.T, program string) (address string, c *admissionCase) {
	t.Helper()
	npm := registry.Serve(t)
	var listed []any
	for _, one := range []struct{ owner, name string }{{"mallory", "graph-archvie"}, {"alice", "graph-archive"}} { // both packages claim to be alice's
		npm.Publish(t, one.name, "1.0.0", registry.GraphServer(one.name, "io.github.alice/graph-archive", ""), nil)
		listed = append(listed, registry.ListNpm("io.github."+one.owner+"/"+one.name, "Search a knowledge graph of facts.", one.name, "1.0.0", nil))
	}
	out, err := exec.CommandContext(t.Context(), program, "key", "new", "lea", "--operator", "--json").Output()
	var key struct{ Key, Hash string }
	if err == nil {
		err = json.Unmarshal(out, &key)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := write(t, dir, "switchboard.yaml", fmt.Sprintf(`admin: {edit: programs}
registries: [{id: corp, file: registry.json}]
servers:
  desk: {transport: http, url: %q}
operators: [{key: lea, hash: %q}]
tenants:
  default: {servers: ["*"], allow: [by_name], approvers: [{key: lea, hash: %q}], request: [{verb: search, resource: knowledge_graph}]}
`, desk(t), key.Hash, key.Hash))
	write(t, dir, "registry.json", object{"servers": listed})
	write(t, dir, filepath.FromSlash("tenants/default/tenant.yaml"), "tenant: default\ndefault_task: work\n")
	write(t, dir, filepath.FromSlash("tenants/default/tasks/work.yaml"), "task_id: work\nrequired_capabilities: [{tools: [\"desk/*\"]}]\n")
	address = serveIn(t, npm.Env(t), program, config)
	row, err := officer.Row(strings.TrimSuffix(address, "/mcp"), filepath.Join(dir, ".switchboard"))
	if err != nil {
		t.Fatal(err)
	}
	return address, &admissionCase{t: t, dir: dir, admin: row.Admin, key: key.Key}
}

// Each agent that lists again lacks a capability, asks, and works on. A server is found in a registry, with a look-alike beside it, and tried in walls; a person says yes on the admin API; the
// agent lists again, and calls the new tool in the same session. Codex lists once, so it is not here.
func TestAgentsGetFromICannotToItCanInOneSession(t *testing.T) {
	t.Parallel()
	npmlock.NeedClient(t, "acquisition")
	program, err := programs.Plain()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if !a.relists {
			continue
		}
		t.Run(a.name, func(t *testing.T) {
			a.find(t)
			address, c := serveSeeker(t, program)
			e := newEar()
			model := &agents.Model{Script: c.script(e)}
			person := make(chan error, 1)
			go func() { person <- c.letIn() }()
			said := a.run(t, listen(t, model), endpoint{url: e.before(t, address)})
			c.mu.Lock()
			defer c.mu.Unlock()
			heard, lists := e.all()
			defer func() {
				if t.Failed() {
					t.Logf("to Switchboard it said %q; the results are %q", heard, model.Last().Results)
				}
			}()
			if !strings.Contains(said, graphFound) {
				t.Fatalf("in the end it says %q", said)
			}
			if err := wait.Receive(t, "the person's yes", person); err != nil {
				t.Errorf("the person: %v", err)
			}
			if c.early {
				t.Error("the new tool was offered before the yes")
			}
			if !strings.Contains(model.Last().Results[0], "waiting_for_capability") || c.notes == 0 || !model.Last().Has("the note is taken") {
				t.Errorf("it did not work on: %d notes", c.notes)
			}
			opened := 0
			for _, h := range heard {
				if strings.HasPrefix(h, "initialize ") || strings.HasPrefix(h, "server/discover") {
					opened++
				}
			}
			if opened != 1 || lists < 2 || !slices.Contains(heard, "tools/call knowledge_graph_helper") {
				t.Errorf("it opened %d sessions, and listed %d times", opened, lists)
			}
			if !strings.Contains(c.read, "graph-archvie looks like graph-archive") {
				t.Errorf("the person did not read of the look-alike: %s", c.read)
			}
			for _, words := range [][]string{{"receipts", "verify"}, {"receipts", "replay"}} {
				cmd := exec.CommandContext(t.Context(), program, words...)
				cmd.Dir = c.dir
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%q: %v\n%s", words, err, out)
				}
			}
			took := c.done.Sub(c.asked)
			t.Logf("%s from the request to the answer of the new tool, with %d other calls meanwhile", took.Round(time.Millisecond), c.notes)
			if took > time.Minute {
				t.Errorf("all but the person's part took %s", took)
			}
		})
	}
}
