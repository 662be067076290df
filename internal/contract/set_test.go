package contract

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type few map[switchboard.ToolID]*switchboard.Tool

func (f few) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) { t, ok := f[id]; return t, ok }

func TestOnlyChangedDeclarationsAreCheckedAgain(t *testing.T) {
	a, b := switchboard.ToolID{Server: "a", Name: "x"}, switchboard.ToolID{Server: "b", Name: "x"}
	tools := func(version switchboard.Digest, input string) few {
		return few{
			a: {ID: a, Digest: "sha256:a", Definition: []byte(`{"name":"x","inputSchema":{}}`)},
			b: {ID: b, Digest: version, Definition: []byte(`{"name":"x","inputSchema":` + input + `}`)},
		}
	}
	heard := func(switchboard.ServerID) bool { return true }
	overlays := map[switchboard.ToolID]switchboard.Overlay{a: {Equivalents: []switchboard.DeclaredEquivalent{{Tool: b}}}}
	first := New(tools("sha256:b1", `{}`), overlays, heard, nil, nil)
	same := New(tools("sha256:b1", `{}`), overlays, heard, nil, first)
	if same.move(a, b) == nil || same.move(a, b) != first.move(a, b) {
		t.Error("an unchanged declaration is checked again")
	}
	other := New(tools("sha256:b2", `{"required":["y"]}`), overlays, heard, nil, first)
	if len(other.Faults()) != 1 {
		t.Errorf("a changed tool is not checked again: %v", other.Faults())
	}
	again := map[switchboard.ToolID]switchboard.Overlay{a: {Equivalents: []switchboard.DeclaredEquivalent{{Tool: b, Drop: []string{"z"}}}}}
	if s := New(tools("sha256:b1", `{}`), again, heard, nil, first); len(s.Faults()) != 1 {
		t.Errorf("a new declaration is not checked: %v", s.Faults())
	}
}
