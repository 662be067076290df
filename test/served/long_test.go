package served_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A longResult is what the tests look at of a result.
type longResult struct {
	Content []struct{ Type, Text, Data string }
	Meta    struct {
		Preview struct {
			Handle string
			Bytes  int
		} `json:"io.switchboard/preview"`
	} `json:"_meta"`
	IsError bool
}

func longOf(t *testing.T, m rig.Message) (r longResult) {
	t.Helper()
	if err := json.Unmarshal(m.Result, &r); err != nil || len(r.Content) == 0 {
		t.Fatalf("%v: %.300s", err, m.Raw)
	}
	return r
}

const longResults = `
-- switchboard.yaml --
servers:
  long: {transport: http, url: "%s"}
  masked: {transport: http, url: "%s"}
tenants:
  default: {servers: ["*"], allow: [by_name], result_bytes: 32KiB}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
-- tenants/default/policies/own.rego --
package switchboard.tenant
` + rig.AllowAll + `
obligations["masked/who"] contains {"type": "redact", "fields": ["/structuredContent/email"]}
`

func TestFirstMinutes9ALongResultIsAPreviewAndAllOfItCanBeRead(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := 0; b.Len() < 1<<20; i++ {
		fmt.Fprintf(&b, "%d. Der Hafenmeister zeichnet das Logbuch; item %x\n", i, i*i)
	}
	whole := b.String()
	const image = `{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"}`
	marks := filepath.Join(t.TempDir(), "marks")
	dir := rig.LayOut(t, fmt.Sprintf(longResults,
		rig.ServeResult(t, "look", marks, `{"content":[`+image+`,{"type":"text","text":`+string(wire.AppendString(nil, whole))+`}]}`),
		rig.ServeResult(t, "who", marks, `{"content":[],"structuredContent":{"email":"secret@example.com","notes":"`+strings.Repeat("note ", 10_000)+`"}}`)))
	counter, err := token.New("o200k_base")
	if err != nil {
		t.Fatal(err)
	}
	calls, reads := 0, 0
	read := func(t *testing.T, s rig.Session, args string) longResult {
		t.Helper()
		reads++
		m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_read","arguments":`+args+`}`)
		return longOf(t, m)
	}
	var stranger string // the handle of another run
	rig.EachSession(t, dir, func(t *testing.T, name string, s rig.Session) {
		m, _ := s.Ask(t, "tools/list", "")
		if n := strings.Count(string(m.Result), `"name":"switchboard_read"`); n != 1 {
			t.Errorf("switchboard_read is listed %d times", n)
		}
		calls++
		m, _ = s.Ask(t, "tools/call", `{"name":"look","arguments":{}}`)
		r := longOf(t, m)
		if n := counter.Count(m.Result); n > 2000 || r.Meta.Preview.Bytes != len(whole) || len(r.Content) != 2 || r.Content[1].Data != "iVBORw0KGgo=" && r.Content[0].Data != "iVBORw0KGgo=" {
			t.Errorf("%d tokens, %.500s", n, m.Result)
		}
		handle := r.Meta.Preview.Handle
		var got strings.Builder
		for got.Len() < len(whole) {
			piece := read(t, s, fmt.Sprintf(`{"handle":%q,"range":"%d-%d"}`, handle, got.Len(), got.Len()+32<<10)).Content[0].Text
			if len(piece) > 32<<10 {
				t.Fatalf("a piece of %d bytes", len(piece))
			}
			_, body, _ := strings.Cut(piece, "\n")
			got.WriteString(body)
		}
		if got.String() != whole {
			t.Error("what was read is not the result")
		}
		if found := read(t, s, `{"handle":"`+handle+`","search":"9999. der hafenmeister"}`).Content[0].Text; !strings.Contains(found, "occurs in it 1 time, 1 shown") {
			t.Errorf("found: %s", found)
		}
		if stranger != "" && !strings.Contains(name, "modern") { // modern clients of one principal share a run
			if r := read(t, s, `{"handle":"`+stranger+`"}`); !r.IsError || !strings.Contains(r.Content[0].Text, "no result is kept under this handle") {
				t.Errorf("another run's result: %+v", r)
			}
			reads--
		}
		stranger = handle
		calls++
		m, _ = s.Ask(t, "tools/call", `{"name":"look","arguments":{},"_meta":{"io.switchboard/results":"whole"}}`)
		if r := longOf(t, m); r.Content[1].Text != whole || r.Meta.Preview.Handle != "" {
			t.Errorf("a program gets %.300s", m.Result)
		}

		calls++
		m, _ = s.Ask(t, "tools/call", `{"name":"who","arguments":{}}`)
		handle = longOf(t, m).Meta.Preview.Handle
		if piece := read(t, s, `{"handle":"`+handle+`","path":"/email"}`).Content[0].Text; !strings.HasSuffix(piece, "\n[redacted]") {
			t.Errorf("what is redacted: %s", piece)
		}
		if piece := read(t, s, `{"handle":"`+handle+`","search":"secret"}`).Content[0].Text; !strings.Contains(piece, "does not occur") || strings.Contains(string(m.Raw), "secret@") {
			t.Errorf("what is redacted: %s", piece)
		}
	})
	if n := strings.Count(rig.ReadFile(t, marks), "\n"); n != calls {
		t.Errorf("the servers were called %d times, and not %d", n, calls)
	}
	if out, errs, code := rig.Command(t, dir, "call", "look"); code != 0 || len(out) < len(whole) {
		t.Errorf("switchboard call prints %d bytes, exit %d %s", len(out), code, errs)
	}
	m, _ := rig.Stdio(t, dir, false, "--results", "whole").Ask(t, "tools/call", `{"name":"look","arguments":{}}`)
	if r := longOf(t, m); r.Content[1].Text != whole {
		t.Errorf("stdio --results whole gives %.300s", m.Result)
	}
}

func TestFirstMinutes9AResultCanBeReadAsLongAsPolicyAllowsIts(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, fmt.Sprintf(longResults,
		rig.ServeResult(t, "look", "", `{"content":[{"type":"text","text":"`+strings.Repeat("look ", 10_000)+`"}]}`), rig.ServeResult(t, "who", "", `{"content":[]}`)))
	g := rig.Serve(t, dir)
	s := g.Open(t, "/mcp", false)
	m, _ := s.Ask(t, "tools/call", `{"name":"look","arguments":{}}`)
	ask := `{"name":"switchboard_read","arguments":{"handle":"` + longOf(t, m).Meta.Preview.Handle + `"}}`
	if m, _ = s.Ask(t, "tools/call", ask); longOf(t, m).IsError {
		t.Fatalf("%s", m.Raw)
	}
	layer := filepath.Join(dir, "tenants/default/policies/own.rego")
	rig.ReplaceFile(t, layer, rig.ReadFile(t, layer)+"\ndeny[\"long/look\"] contains \"not now\"\n")
	g.Reload(t)
	if m, _ = s.Ask(t, "tools/call", ask); rig.Code(m) != "SB-CAP-003" || strings.Contains(string(m.Raw), "look look") {
		t.Errorf("after policy has denied the tool: %.300s", m.Raw)
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	given := map[string]int{}
	out, _, _ := rig.Command(t, dir, "receipts", "export")
	for line := range strings.Lines(out) {
		var one struct {
			Entry struct {
				Receipt struct{ Kind, Tool, Given, Outcome string }
			}
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatal(err)
		}
		if r := one.Entry.Receipt; r.Kind == "call" {
			given[r.Tool+" "+r.Given]++
		}
	}
	if given["look "] != 1 || given["look kept"] != 1 {
		t.Errorf("receipts: %v", given)
	}
}
