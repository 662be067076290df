package contract_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The example of docs/equivalents.md does what the page says, and a typing mistake in it gives the error on the page.
func TestTheExampleOfTheDocumentationMovesCalls(t *testing.T) {
	page, err := os.ReadFile("../../docs/equivalents.md")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(string(page))
		if m == nil {
			t.Fatalf("the page has no %s", pattern)
		}
		return m[1]
	}
	example := find("(?s)```yaml overlays/brave.yaml\n(.*?)```")
	given, becomes, fault := find("with `(\\{.*?\\})`"), find("(?s)reaches Google as\\s+`(\\{.*?\\})`"), find("(?s)```text\n(.*?)\n```")

	brave := tool(t, "brave/search_web", schema("query:string! country:string lang:string"), "")
	google := tool(t, "google/web_search", schema("q:string! safe:boolean! num:integer lang:string"), "")
	set := func(text string) *contract.Set {
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
			"switchboard.yaml":    {Data: []byte("servers: {brave: {transport: stdio, command: [b]}, google: {transport: stdio, command: [g]}}\n")},
			"overlays/brave.yaml": {Data: []byte(text)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return contract.New(shelve(brave, google), c.Overlays, all, nil, nil)
	}
	s := set(example)
	es := s.Among([]switchboard.Equivalent{{Tool: google}}).Of(brave)
	if len(es) != 1 {
		t.Fatal(s.Faults())
	}
	got, err := es[0].Params([]byte(`{"arguments":` + given + `}`))
	if want := `{"arguments":` + strings.ReplaceAll(strings.ReplaceAll(becomes, ", ", ","), ": ", ":") + `}`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
	if got := set(strings.Replace(example, "query: q", "query: qq", 1)).Faults(); len(got) == 0 || got[0].Error() != fault {
		t.Errorf("%v, want %s", got, fault)
	}
}
