package served_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A charge is what the status says of one item of the context bill.
type charge struct{ Times, Tokens int }

func TestFirstMinutes10TheStatusSaysWhatTheRunHasCost(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, lazily(8000, ""))
	counter, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	g := rig.Serve(t, dir)
	for _, modern := range []bool{false, true} {
		s := g.Open(t, "/mcp", modern)
		sum := func(method string, params ...string) (n int) {
			t.Helper()
			for _, p := range params {
				m, _ := s.Ask(t, method, p)
				n += counter.Count(m.Result)
			}
			return n
		}
		stub := func(args string) string { return `{"name":"aws_helper","arguments":` + args + `}` }
		want := map[string]charge{
			"lists":       {2, sum("tools/list", "", "")},
			"searches":    {2, sum("tools/call", stub(`{"action":"search","query":"read an object"}`), stub(`{"action":"list"}`))},
			"definitions": {1, sum("tools/call", stub(`{"action":"expand","tools":["s3_get_object"]}`))},
		}
		want["lists"] = charge{3, want["lists"].Tokens + sum("tools/list", "")}
		want["results"] = charge{1, sum("tools/call", `{"name":"s3_get_object","arguments":{"bucket":"reports","key":"2026/q3/incidents.csv"}}`)}
		var st struct {
			Context map[string]json.RawMessage
		}
		at := func(item string) (c charge) {
			_ = json.Unmarshal(st.Context[item], &c)
			return c
		}
		rig.Eventually(t, "everything is counted", func() string {
			m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_status","arguments":{}}`)
			var r struct{ Content []struct{ Text string } }
			if err := json.Unmarshal(m.Result, &r); err != nil || json.Unmarshal([]byte(r.Content[0].Text), &st) != nil {
				t.Fatalf("%v: %s", err, m.Raw)
			}
			for _, item := range []string{"lists", "searches", "definitions"} {
				if at(item) != want[item] {
					return fmt.Sprintf("%s: %+v, want %+v", item, at(item), want[item])
				}
			}
			return ""
		})
		if r := at("results"); r.Times < 1 || r.Tokens < want["results"].Tokens/2 {
			t.Errorf("results: %+v, want %+v and the status's own", r, want["results"])
		}
		if lists, full := at("lists"), at("full_lists"); full.Times != 3 || full.Tokens < 4*lists.Tokens {
			t.Errorf("lists %+v, in full %+v", lists, full)
		}
		if n := at("instructions").Times; !modern && n != 1 { // a modern client need not ask
			t.Errorf("instructions: %s", st.Context["instructions"])
		}
	}
	out, errs, code := rig.Command(t, dir, "status")
	if code != 0 || !strings.Contains(out, "CONTEXT") || !strings.Contains(out, " tokens ") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}
