package served_test

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// A tool with a schema that is too deep is refused, and the other tools of its server are listed and called. A result of that depth is refused.
func TestAttack11ASchemaThatIsTooDeepCostsItsToolAlone(t *testing.T) {
	t.Parallel()
	schema := func(depth int) string {
		return fmt.Sprintf(`{"name":"deep%d","inputSchema":%s{"type":"object"}%s}`, depth, strings.Repeat(`{"type":"object","properties":{"a":`, depth), strings.Repeat("}}", depth))
	}
	args := []string{fmt.Sprintf(tool, "before"), schema(40), schema(200), fmt.Sprintf(tool, "behind")} // two levels for each
	server := httptest.NewServer(newFake(args))
	t.Cleanup(server.Close)
	for name, at := range map[string]string{"stdio": fakeServer("a", args...), "HTTP": fmt.Sprintf("a: {transport: http, url: %q}", server.URL+"/mcp")} {
		t.Run(name, func(t *testing.T) {
			g := serve(t, layOut(t, fakes(at)))
			for _, modern := range []bool{false, true} {
				s := g.open(t, "/mcp", modern)
				if got := names(t, s); slices.Contains(got, "deep40") || slices.Contains(got, "deep200") || !slices.Contains(got, "before") || !slices.Contains(got, "behind") {
					t.Errorf("modern %t: the tools are %s", modern, got)
				}
				for _, name := range []string{"before", "behind"} {
					if got := called(t, s, name, `{}`); got != "" {
						t.Errorf("modern %t: %s: %s", modern, name, got)
					}
				}
				if got := called(t, s, "deep200", `{}`); got != "SB-CAP-001" {
					t.Errorf("modern %t: the tool that is too deep: %s", modern, got)
				}
			}
			for _, name := range []string{"deep40", "deep200"} {
				if log := g.logged(); !strings.Contains(log, `tool \"`+name+`\"`) || !strings.Contains(log, "more than 64 objects and lists within each other") {
					t.Errorf("the log does not say why %s is refused", name)
				}
			}
		})
	}
}
