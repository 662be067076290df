package served_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// One tool changes twice. The log names the class of each change.
func TestTheLogSaysWhatAChangedDefinitionMeans(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))+"\n"))
	s := g.Open(t, "/mcp", false)
	for _, change := range []struct{ definition, want string }{
		{`{"name":"work","description":"does work, and well","inputSchema":{"type":"object"}}`, `level=INFO msg="a server has changed the definition of a tool" server=a tool=work class=words differs=[description]`},
		{`{"name":"work","description":"does work, and well","inputSchema":{"type":"object","required":["x"]},"annotations":{"openWorldHint":true}}`, `level=WARN msg="a server has changed the definition of a tool" server=a tool=work class=narrower differs="[annotations.openWorldHint inputSchema]"`},
	} {
		s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"work","arguments":{"do":"replace","bytes":%q}}`, change.definition))
		rig.Eventually(t, "the log says it", func() string { return rig.ReasonUnless(strings.Contains(g.Logged(), change.want), g.Logged()) })
	}
}
