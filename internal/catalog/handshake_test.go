package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
)

func TestHandshakesDifferWhereTheyMeanSomethingElse(t *testing.T) {
	const b, more = `[{"verb":"read","resource":"fs"}]`, `[{"verb":"write","resource":"fs"}]`
	for _, tt := range []struct{ name, before, after, want string }{
		{"a tool", `{"tools":{"t":{"x-summit-capabilities":` + b + `},"u":{"x-summit-capabilities":` + b + `}}}`, `{"tools":{"t":{"x-summit-capabilities":` + more + `},"u":{"x-summit-capabilities":` + b + `}}}`, "capabilities.tools.t.x-summit-capabilities about t"},
		{"order and spaces", `{"tools":{"t":{"x-summit-capabilities":` + b + `}}}`, `{ "tools" : {"t":{"x-summit-capabilities":[{"resource":"fs","verb":"read"}]}}}`, ""},
		{"what no one reads", `{"logging":{},"tools":{"listChanged":true,"t":{"x-summit-capabilities":` + b + `}}}`, `{"completions":{},"tools":{"t":{"title":"T","x-summit-capabilities":` + b + `}}}`, "capabilities.tools.listChanged, capabilities.tools.t.title"},
		{"an extension", ``, `{"extensions":{"com.example/any":{"version":1,"tools":{"t":{"x-summit-capabilities":` + b + `}}}}}`, "capabilities.extensions.com.example/any.tools.t.x-summit-capabilities about t, capabilities.extensions.com.example/any.version"},
		{"ours in experimental", ``, `{"experimental":{"com.example/x-summit-capabilities":{"tools":{"t":` + b + `}}}}`, "capabilities.experimental.com.example/x-summit-capabilities.tools.t about t"},
		{"lists by tool", ``, `{"x-summit-capabilities":{"t":` + b + `}}`, "capabilities.x-summit-capabilities.t about t"},
		{"objects by tool", ``, `{"x-summit-capabilities":{"tools":{"t":{"x-summit-capabilities":` + b + `}}}}`, "capabilities.x-summit-capabilities.tools.t.x-summit-capabilities about t"},
		{"the tool tools", ``, `{"x-summit-capabilities":{"tools":{"x-summit-capabilities":` + b + `}}}`, "capabilities.x-summit-capabilities.tools.x-summit-capabilities about tools"},
		{"the only tool", ``, `{"x-summit-capabilities":` + b + `}`, "capabilities.x-summit-capabilities about all"},
		{"a list in place of an object", `{"x-summit-capabilities":{"t":` + b + `}}`, `{"x-summit-capabilities":` + b + `}`, "capabilities.x-summit-capabilities about all, capabilities.x-summit-capabilities.t about t"},
		{"a misspelt name", ``, `{"tools":{"t":{"x-summit-capabilties":` + b + `}}}`, "capabilities.tools.t.x-summit-capabilties about all"},
		{"an empty block", ``, `{"tools":{"t":{"x-summit-capabilities":[]}}}`, "capabilities.tools.t.x-summit-capabilities about t"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			statements := func(capabilities string) []byte {
				if s := catalog.HandshakeStatements([]byte(capabilities), nil); s != nil {
					return s
				}
				return []byte("{}")
			}
			all, ok := catalog.DiffHandshakes(statements(tt.before), statements(tt.after))
			var said []string
			for _, d := range all {
				text := strings.Join(d.Path, ".")
				if d.Counts {
					text += " about " + map[bool]string{true: "all", false: d.Tool}[d.Tool == ""]
				}
				said = append(said, text)
			}
			if got := strings.Join(said, ", "); !ok || got != tt.want {
				t.Errorf("they differ in %q, want %q", got, tt.want)
			}
		})
	}
	if s := catalog.HandshakeStatements([]byte(`{"logging":{},"tools":{"listChanged":true},"experimental":{"note":"\u00e9"}}`), nil); s != nil {
		t.Errorf("a handshake that says nothing of tools has the statements %s", s)
	}
	for _, s := range []string{`{"capabilities":{"x-summit-capabilities":1,"x-summit-capabilities":2}`, ``} {
		if d, ok := catalog.DiffHandshakes([]byte(s), []byte("{}")); ok {
			t.Errorf("%s is read as %v", s, fmt.Sprint(d))
		}
	}
}
