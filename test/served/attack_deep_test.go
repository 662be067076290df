package served_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A tool with a schema that is too deep is refused, and the other tools of its server are listed and called. A result of that depth is refused.
func TestAttack11ASchemaThatIsTooDeepCostsItsToolAlone(t *testing.T) {
	t.Parallel()
	schema := func(depth int) string {
		return fmt.Sprintf(`{"name":"deep%d","inputSchema":%s{"type":"object"}%s}`, depth, strings.Repeat(`{"type":"object","properties":{"a":`, depth), strings.Repeat("}}", depth))
	}
	args := []string{fmt.Sprintf(rig.Tool, "before"), schema(40), schema(200), fmt.Sprintf(rig.Tool, "behind")} // two levels for each
	server := httptest.NewServer(fakeserver.New(args))
	t.Cleanup(server.Close)
	for name, at := range map[string]string{"stdio": rig.FakeRow("a", args...), "HTTP": fmt.Sprintf("a: {transport: http, url: %q}", server.URL+"/mcp")} {
		t.Run(name, func(t *testing.T) {
			g := rig.Serve(t, rig.LayOut(t, rig.Fakes(at)))
			for _, modern := range []bool{false, true} {
				s := g.Open(t, "/mcp", modern)
				if got := rig.ListNames(t, s); slices.Contains(got, "deep40") || slices.Contains(got, "deep200") || !slices.Contains(got, "before") || !slices.Contains(got, "behind") {
					t.Errorf("modern %t: the tools are %s", modern, got)
				}
				for _, name := range []string{"before", "behind"} {
					if got := rig.Call(t, s, name, `{}`); got != "" {
						t.Errorf("modern %t: %s: %s", modern, name, got)
					}
				}
				if got := rig.Call(t, s, "deep200", `{}`); got != "SB-CAP-001" {
					t.Errorf("modern %t: the tool that is too deep: %s", modern, got)
				}
			}
			for _, name := range []string{"deep40", "deep200"} {
				if log := g.Logged(); !strings.Contains(log, `tool \"`+name+`\"`) || !strings.Contains(log, "more than 61 objects and lists within each other") {
					t.Errorf("the log does not say why %s is refused", name)
				}
			}
		})
	}
}

// Only lists may be that deep: the result of a call is refused, and its call is not made again.
func TestAttack11AResultThatIsTooDeepIsRefused(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	url := rig.ServeResult(t, "work", marks, `{"content":[],"structuredContent":`+strings.Repeat(`{"a":`, 70)+"1"+strings.Repeat("}", 70)+"}")
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("a: {transport: http, url: %q}", url))))
	for i, modern := range []bool{false, true} {
		if got := rig.Call(t, g.Open(t, "/mcp", modern), "work", `{}`); got != "SB-EXEC-003" {
			t.Errorf("modern %t: %q", modern, got)
		}
		rig.AwaitCalls(t, marks, i+1)
	}
}

// TP-10: a tool whose x-mcp-header is no name for a header of its own is refused, with the reason, and its neighbor works.
func TestTP10_AToolWithAForgedHeaderIsRefusedAlone(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"credential": `{"properties":{"a":{"type":"string","x-mcp-header":"Authorization"}}}`,
		"lines":      `{"properties":{"a":{"type":"string","x-mcp-header":"X\r\nY"}}}`,
		"twice":      `{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}}`,
		"any":        `{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"Region"}}}]}`,
	}
	args := []string{"modern", fmt.Sprintf(rig.Tool, "good")}
	for name, schema := range bad {
		args = append(args, fmt.Sprintf(`{"name":%q,"inputSchema":%s}`, name, strings.Replace(schema, "{", `{"type":"object",`, 1)))
	}
	server := httptest.NewServer(fakeserver.New(args))
	t.Cleanup(server.Close)
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(fmt.Sprintf("a: {transport: http, url: %q}", server.URL+"/mcp"))))
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		if got := rig.Call(t, s, "good", `{}`); got != "" {
			t.Errorf("modern %t: the good tool: %s", modern, got)
		}
		for name := range bad {
			if got := rig.Call(t, s, name, `{"a":"x"}`); got != "SB-CAP-001" {
				t.Errorf("modern %t: %s: %q", modern, name, got)
			}
		}
	}
	for name := range bad {
		if log := g.Logged(); !strings.Contains(log, `tool \"`+name+`\"`) || !strings.Contains(log, "x-mcp-header") {
			t.Errorf("the log does not say why %s is refused", name)
		}
	}
}
