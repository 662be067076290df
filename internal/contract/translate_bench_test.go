package contract_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

// BenchmarkTranslate measures what a contract adds to a call: the check of the arguments against an input schema of 2 KiB, and the
// translation into the arguments of the server. The flat schema has only simple members, and the nested one lists of objects. The
// unique one is the nested one with a keyword that only the whole validator knows. "none" is the same call of the server's own tool.
func BenchmarkTranslate(b *testing.B) {
	var flat, nested strings.Builder
	var own []string
	for i := range 20 {
		fmt.Fprintf(&flat, `,"member_%02d":{"type":"string","maxLength":64,"description":"What this member of the arguments means."}`, i)
		own = append(own, fmt.Sprintf(`"member_%02d":{}`, i))
	}
	for i := range 8 {
		fmt.Fprintf(&nested, `,"list_%02d":{"type":"array","maxItems":16,"items":{"type":"object","properties":{"name":{"type":"string","pattern":"^[a-z]+$"},"count":{"type":"integer","minimum":0},"kind":{"enum":["file","folder"]}},"required":["name"],"additionalProperties":false}}`, i)
		own = append(own, fmt.Sprintf(`"list_%02d":{}`, i))
	}
	for _, tt := range []struct{ name, members, arguments string }{
		{"flat", flat.String(), `{"path":"notes/today.md","member_00":"x","member_07":"some words","member_19":"more words"}`},
		{"nested", nested.String(), `{"path":"notes/today.md","list_00":[{"name":"a","count":1},{"name":"b","kind":"file"}],"list_07":[{"name":"c","count":2,"kind":"folder"}]}`},
		{"unique", strings.Replace(nested.String(), `"maxItems":16`, `"uniqueItems":true`, 1), `{"path":"notes/today.md","list_00":[{"name":"a","count":1},{"name":"b","kind":"file"}],"list_07":[{"name":"c","count":2,"kind":"folder"}]}`},
	} {
		schema := `{"type":"object","additionalProperties":false,"required":["path"],"properties":{"path":{"type":"string","minLength":1}` + tt.members + `}}`
		definition, err := capability.NewTool("read_file", "Reads.", []byte(schema), nil, capability.Hints{})
		if err != nil {
			b.Fatal(err)
		}
		v := readVersion(b, "", capability.Facts{})
		v.Tools = []capability.ContractTool{definition}
		cat := &switchboard.Tool{ID: switchboard.ToolID{Server: "a", Name: "cat"}, Digest: "sha256:cat", Definition: []byte(`{"name":"cat","inputSchema":{"type":"object","properties":{"file":{},` + strings.Join(own, ",") + `},"required":["file"]}}`)}
		row := catRow()
		row.Tools["read_file"].Map = map[string]string{"path": "file"}
		p := provideBy(b, v, cat, row)
		if len(p.Faults()) > 0 {
			b.Fatal(p.Faults())
		}
		chain := contract.Translate(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{}, nil
		}))
		params := []byte(`{"name":"read_file","arguments":` + tt.arguments + `}`)
		for name, tool := range map[string]*switchboard.Tool{"none": cat, fmt.Sprintf("%s, %d bytes", tt.name, len(schema)): p.Provided("io.fs.read")[0]} {
			if name == "none" && tt.name != "flat" {
				continue
			}
			b.Run(name, func(b *testing.B) {
				b.ReportAllocs()
				began := system.ProcessorTime()
				for b.Loop() {
					if _, err := chain.Call(b.Context(), &switchboard.Call{Server: "a", Tool: tool, Params: params}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64((system.ProcessorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
