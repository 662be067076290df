package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

var update = flag.Bool("update", false, "write the files of the reference")

// The OpenAPI document and the page for people are generated, so that they say what the routes are.
func TestTheReferenceOfTheAPIIsThatOfTheRoutes(t *testing.T) {
	a := New(Options{Version: "1"})
	a.make.Do(a.makeRoutes)
	text, err := a.huma.OpenAPI().MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", " "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	for name, want := range map[string][]byte{"../../../docs/openapi.json": indented.Bytes(), "../../../docs/api.md": pageOf(a.huma.OpenAPI())} {
		if *update {
			if err := os.WriteFile(name, want, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the routes say (%v); run this test with -update", name, err)
		}
	}
}

// pageOf returns the page of the reference.
func pageOf(doc *huma.OpenAPI) []byte {
	var b bytes.Buffer
	b.WriteString(apiHead)
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		item := doc.Paths[path]
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if op == nil {
				continue
			}
			fmt.Fprintf(&b, "\n## %s %s\n\n%s. %s\n", op.Method, path, op.Summary, op.Description)
			if len(op.Parameters) > 0 {
				b.WriteString("\n| parameter | in | |\n| --- | --- | --- |\n")
			}
			for _, p := range op.Parameters {
				what := p.Description
				if what == "" {
					what = p.Schema.Description
				}
				if len(p.Schema.Examples) > 0 {
					what = strings.TrimSpace(fmt.Sprintf("%s Such as `%v`.", what, p.Schema.Examples[0]))
				}
				if p.Required && p.In != "path" {
					what = strings.TrimSpace("required. " + what)
				}
				fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, p.In, what)
			}
			if op.RequestBody != nil {
				for _, m := range op.RequestBody.Content {
					writeMembers(&b, doc, m.Schema)
				}
			}
		}
	}
	return b.Bytes()
}

// writeMembers writes the members of a body.
func writeMembers(b *bytes.Buffer, doc *huma.OpenAPI, s *huma.Schema) {
	if s.Ref != "" {
		s = doc.Components.Schemas.SchemaFromRef(s.Ref)
	}
	b.WriteString("\nThe body is a JSON object:\n\n| member | type | |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		what := p.Description
		if slices.Contains(s.Required, name) {
			what = strings.TrimSpace("required. " + what)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, p.Type, what)
	}
}

const apiHead = `# The admin API

This page is generated from the routes; [openapi.json](openapi.json) has the schemas of all answers (OpenAPI 3.1), and ` + "`GET /v1/openapi.json`" + ` serves it; a client can be generated from it, as a test does for TypeScript (` + "`test/npm/testdata/round`" + `). [operators.md](operators.md) says
where the API is, and who may use it.

Send a person's key with each request: ` + "`Authorization: Bearer swo_…`" + `. Bodies are JSON, at most 4 MiB; an unknown member or parameter, and one that is there twice, is refused. A refusal is a problem (RFC 9457):
` + "`{\"title\": …, \"status\": …, \"detail\": …, \"code\": \"SB-AUTH-002\", \"hint\": …, \"faults\": [{\"where\": \"body.reason\", \"text\": …}]}`" + `. [Errors](errors/README.md) explains the codes.

Lists are given in parts of ` + "`limit`" + ` entries, 1 to 500, 50 if it is absent. They have ` + "`next`" + ` if there is more: ask again with ` + "`after=NEXT`" + `. An entry that comes or goes meanwhile moves no other one out of a part. A file has a strong entity tag in ` + "`ETag`" + `; a change of a file needs it in ` + "`If-Match`" + `, or ` + "`If-None-Match: *`" + ` for a new file (428, 412).

A request that changes something can have an ` + "`Idempotency-Key`" + `: whoever has lost the answer sends the same request again. [operators.md](operators.md#repeat-a-request) has the rules.
`
