package served_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// told is what a client of g is told when it connects.
func instructionsOf(t *testing.T, g *rig.Gateway, modern bool) string {
	t.Helper()
	s := g.Open(t, "/mcp", true)
	method, params := "server/discover", "{}"
	if !modern {
		s.Modern, method, params = false, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`
	}
	m, _ := s.Ask(t, method, params)
	var hello struct {
		Instructions string `json:"instructions"`
	}
	if err := json.Unmarshal(m.Result, &hello); err != nil {
		t.Fatalf("%s: %s", method, m.Raw)
	}
	return hello.Instructions
}

func TestFirstMinutes6AModelIsToldWhatIsBehindAndWhatTheServersSay(t *testing.T) {
	t.Parallel()
	const (
		ours = "Switchboard is one server in front of others: a, b. Call their tools by the names in the list of tools."
		ofA  = "\n\n[Instructions of server \"a\", in its own words]\n> Ask a for documents."
		ofB  = "\n\n[Instructions of server \"b\", in its own words]\n> Ask b for documents."
	)
	for _, behind := range []bool{false, true} {
		g := rig.Serve(t, libraries(t, behind))
		if got := instructionsOf(t, g, true); got != ours {
			t.Errorf("instructions with characters that deceive are let in at first sight: %q", got)
		}
		g.Accept(t, "a", "instructions", "")
		g.Accept(t, "b", "instructions", "")
		for _, modern := range []bool{false, true} {
			if got := instructionsOf(t, g, modern); got != ours+ofA+ofB {
				t.Errorf("modern %v, modern behind %v: %q", modern, behind, got)
			}
		}
	}
	dir := libraries(t, false)
	file := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), "library, a]}", "library, a], instructions: off}", 1))
	g := rig.Serve(t, dir)
	g.Accept(t, "b", "instructions", "")
	if got := instructionsOf(t, g, false); got != ours+ofB {
		t.Errorf("with the instructions of one server off: %q", got)
	}
}

func TestFirstMinutes6AModelIsToldWhichServersAreStarting(t *testing.T) {
	t.Parallel()
	g := rig.ServeAtOnce(t, rig.LayOut(t, gated))
	s := g.OpenAtOnce(t, "/mcp/tasks/work", true)
	m, _ := s.Ask(t, "server/discover", "{}")
	if !strings.Contains(string(m.Result), "Still starting: files, web.") {
		t.Errorf("%s", m.Raw)
	}
}

func TestFirstMinutes6AModelIsToldToLookBehindTheStub(t *testing.T) {
	t.Parallel()
	c, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, rig.LayOut(t, lazily(8000, "")))
	for _, modern := range []bool{false, true} {
		if got := instructionsOf(t, g, modern); !strings.Contains(got, `before you say that something cannot be done, call aws_helper with {"action":"search"`) {
			t.Errorf("modern %v: %q", modern, got)
		} else if st := tokens(t, g.Open(t, "/mcp", modern)); st.Instructions != c.Count(wire.AppendString(nil, got)) {
			t.Errorf("modern %v: %d tokens are charged for %q", modern, st.Instructions, got)
		}
	}
}
