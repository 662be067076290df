package served_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// What SDKs drop, reorder or respell: it must come through to the byte.
const oddDefinition = `{"vendor_first":{"z":1,"a":[1.0,1,1e2,-0]},"name":"odd","title":"\u00e4\/","description":"<&>é ","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","oneOf":[{"required":["a"]},{"required":["b"]}],"allOf":[{}],"if":{"properties":{"a":{"const":1}}},"then":{},"else":{},"properties":{"b":{"x-unknown":true,"default":12345678901234567890},"a":{"type":["string","null"]}},"$defs":{"t":{"type":"array","prefixItems":[{}]}}},"annotations":{"readOnlyHint":true,"vendorHint":"kept"},"icons":[{"src":"data:,","theme":"dark"}],"execution":{"unknown":1.50},"_meta":{"com.example/x":1.0},"zz_last":null}`

var oddResults = map[string]string{
	"without content":          `{"structuredContent":{"n":9007199254740993,"f":1.0,"e":1E+2}}`,
	"unknown content type":     `{"content":[{"type":"hologram","data":{"b":1,"a":2}},{"type":"text","text":"\u0041\/","annotations":{"x":1}}],"extra":[1.0,1]}`,
	"unknown fields all over":  `{"x":{"y":[{"z":null}]},"content":[],"isError":true,"_meta":{"com.example/trace":"\ud83d\ude00","n":12345678901234567890}}`,
	"white space":              `{ "content" : [ ] ,  "b":1, "a" : 2 }`,
	"long numbers, no content": `{"a":0.1000000000000000055511151231257827,"b":-0.0,"c":1e400}`,
}

// shapedDefinition promises structured results, to which these are held.
const shapedDefinition = `{"name":"shaped","inputSchema":{"type":"object"},"outputSchema":{"type":"array","items":{"type":"number"},"x-unknown":1.0}}`

const oddError = `{"code":-32099,"message":"odd <&>","data":{"n":1.0,"deep":[9007199254740993]},"unknown":true}`

func oddConfig(transport string) string {
	return fmt.Sprintf(`
-- switchboard.yaml --
token_budget: 1000000
servers:
  odd: {%s, check_input: "off"}
tenants:
  default: {servers: ["*"], allow: [by_name], result_bytes: 1GiB}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["odd/*"]}
`, transport)
}

// behind opens clients of each kind in front of a fake of each era on each
// transport: every combination that part 04 has.
func behind(t *testing.T, tools []string, f func(t *testing.T, clientModern, serverModern bool, s rig.Session), prepare ...func(dir string)) {
	t.Helper()
	for _, serverModern := range []bool{false, true} {
		for _, transport := range []string{"stdio", "http"} {
			era := map[bool]string{false: "legacy", true: "modern"}[serverModern]
			t.Run(transport+" "+era+" server", func(t *testing.T) {
				args := append([]string(nil), tools...)
				if serverModern {
					args = append([]string{"modern"}, args...)
				}
				where := ""
				if transport == "http" {
					server := httptest.NewServer(fakeserver.New(args))
					t.Cleanup(server.Close)
					where = "transport: http, url: " + server.URL + "/mcp"
				} else {
					quoted, _ := json.Marshal(args)
					where = "transport: stdio, command: [FAKE, " + strings.Trim(string(quoted), "[]") + "]"
				}
				dir := rig.LayOut(t, oddConfig(where))
				for _, do := range prepare {
					do(dir)
				}
				rig.EachSession(t, dir, func(t *testing.T, name string, s rig.Session) {
					f(t, strings.HasSuffix(name, "modern"), serverModern, s)
				})
			})
		}
	}
}

// compact is what is compared where our own fields stand between the server's.
func field(t *testing.T, object []byte, name string) string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		t.Errorf("%v: %s", err, object)
	}
	return string(m[name])
}

func TestDefinitionsAndResultsComeThroughToTheByte(t *testing.T) {
	t.Parallel()
	behind(t, []string{oddDefinition, shapedDefinition}, func(t *testing.T, clientModern, serverModern bool, s rig.Session) {
		m, _ := s.Ask(t, "tools/list", "")
		shaped := shapedDefinition
		if !clientModern { // the older protocols know no results that are lists
			shaped = `{"name":"shaped","inputSchema":{"type":"object"}}`
		}
		if got, want := field(t, m.Result, "tools"), "["+oddDefinition+","+shaped+","; !strings.HasPrefix(got, want) {
			t.Errorf("tools/list gives\n%s\nwant, before our own,\n%s", got, want)
		}
		for name, want := range oddResults {
			if serverModern {
				want = strings.TrimSuffix(want, "}") + `,"resultType":"complete"}`
			}
			bytes, _ := json.Marshal(want)
			m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"odd","arguments":{"do":"result","bytes":%s}}`, bytes))
			if clientModern == serverModern && !clientModern {
				if string(m.Result) != want {
					t.Errorf("%s:\n got %s\nwant %s", name, m.Result, want)
				}
				continue
			}
			// Between eras, and for server info, members of ours stand beside
			// the server's, which stay as they are.
			var fields map[string]json.RawMessage
			_ = json.Unmarshal([]byte(want), &fields)
			for k, v := range fields {
				if k == "resultType" || k == "_meta" {
					continue
				}
				if got := field(t, m.Result, k); got != string(v) {
					t.Errorf("%s: %s is %s, want %s", name, k, got, v)
				}
			}
			if has := strings.Contains(string(m.Result), `"resultType":"complete"`); has != clientModern {
				t.Errorf("%s: resultType for a modern client = %v: has = %v: %s", name, clientModern, has, m.Result)
			}
			for k, v := range map[string]string{"com.example/trace": `"\ud83d\ude00"`, "n": "12345678901234567890"} {
				if meta := fields["_meta"]; meta != nil {
					if got := field(t, []byte(field(t, m.Result, "_meta")), k); got != v {
						t.Errorf("%s: _meta %s is %s, want %s", name, k, got, v)
					}
				}
			}
		}
		bytes, _ := json.Marshal(oddError)
		m, _ = s.Ask(t, "tools/call", fmt.Sprintf(`{"name":"odd","arguments":{"do":"error","bytes":%s}}`, bytes))
		if !strings.Contains(string(m.Raw), `"error":`+oddError) {
			t.Errorf("the server's error came as %s", m.Raw)
		}
	})
}

func TestArgumentsReachTheServerAsTheyWereSpelt(t *testing.T) {
	t.Parallel()
	behind(t, []string{oddDefinition}, func(t *testing.T, _, _ bool, s rig.Session) {
		const arguments = `{"z":1.0,"a":9007199254740993,"m":{"k":[1e2,-0,"\u00e4\/"],"b":null}}`
		m, _ := s.Ask(t, "tools/call", `{"name":"odd","arguments":`+arguments+`}`)
		var r struct {
			Content []struct{ Text string }
		}
		_ = json.Unmarshal(m.Result, &r)
		// The fake decodes one level, so that members are sorted there; below it
		// all is as it came.
		const want = `{"a":9007199254740993,"m":{"k":[1e2,-0,"\u00e4/"],"b":null},"z":1.0}`
		if len(r.Content) != 1 || strings.ReplaceAll(r.Content[0].Text, `\/`, `/`) != want {
			t.Errorf("the server got %s", m.Raw)
		}
	})
}

func TestProgressComesInOrderBeforeTheResultUnderTheClientsToken(t *testing.T) {
	t.Parallel()
	behind(t, []string{oddDefinition}, func(t *testing.T, clientModern, _ bool, s rig.Session) {
		params := `{"name":"odd","arguments":{"do":"progress"},"_meta":{"progressToken":"mine-1.0"}}`
		if clientModern {
			params = `{"name":"odd","arguments":{"do":"progress"}}`
			params = strings.Replace(rig.WithMeta(params), `"_meta":{`, `"_meta":{"progressToken":"mine-1.0",`, 1)
		}
		m, said := askRaw(t, s, "tools/call", "odd", params)
		if m.Error != nil || len(said) != 5 {
			t.Fatalf("%d notifications, then %s", len(said), m.Raw)
		}
		for i, n := range said {
			if !strings.Contains(n, `"progressToken":"mine-1.0"`) || !strings.Contains(n, fmt.Sprintf(`"progress":%d.0`, i)) {
				t.Errorf("notification %d is %s", i, n)
			}
		}
	})
}

// askRaw is ask for params that have their own _meta. name is what the header
// Mcp-Name says; "" means none.
func askRaw(t *testing.T, s rig.Session, method, name, params string) (rig.Message, []string) {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	switch s := s.(type) {
	case *rig.HTTPSession:
		header := map[string][]string{}
		if s.Modern {
			header = map[string][]string{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {method}}
			if name != "" {
				header["Mcp-Name"] = []string{name}
			}
		}
		m, r := s.Post(t, body, header)
		return m, r.Said
	case *rig.StdioSession:
		return s.Exchange(t, body)
	}
	panic("a session of no kind")
}
