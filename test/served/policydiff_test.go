package served_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// veto is a tenant's policy under which another server serves.
const veto = `package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains "nimbus is out of contract" if {
	some c in input.candidate_tools
	c.server == "nimbus"
}
`

type diff struct {
	Decisions, Replayed, Changed int
	Changes                      []change
	Broken                       []any
}

type change struct{ Change, Tool, From, To, Why string }

func policyDiff(t *testing.T, dir string, args ...string) (d diff, code int) {
	t.Helper()
	out, errs, code := command(t, dir, append([]string{"policy", "diff", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("policy diff %q: %v\n%s%s", args, err, out, errs)
	}
	return d, code
}

// What policy diff says of a proposed file comes true when that is put in place.
func TestAProposedVetoIsShownBeforeItIsInForce(t *testing.T) {
	dir := layOut(t, samples)
	proposed := filepath.Join("tenants", "default", "policies", "veto.rego")
	write(t, filepath.Join(dir, "proposed", proposed), veto)
	g := serve(t, dir)
	var open []session
	for range 20 {
		open = append(open, g.open("/mcp", false), g.open("/mcp", true), g.open("/mcp/tasks/impossible", true))
	}
	for _, modern := range []bool{false, true} {
		open = append(open, stdio(t, dir, modern))
	}
	before := 0
	for _, s := range open {
		if m, _ := s.ask(t, "tools/list", ""); m.Error == nil {
			before++
		}
	}
	if before != 42 {
		t.Fatalf("%d clients have tools, want 42", before)
	}
	var d diff
	var code int
	eventually(t, "two tasks are recorded", func() string {
		if d, code = policyDiff(t, dir, "--against", "proposed"); d.Decisions < 2 {
			return "not yet"
		}
		return ""
	})
	// One record for each task, and at most one more of each process that began
	// before another had written its own.
	if d.Decisions > 5 || d.Replayed != d.Decisions || len(d.Broken) > 0 {
		t.Errorf("of 62 sessions there are %+v", d)
	}
	const why = "policy: the tenant's policy denies it: nimbus is out of contract"
	for _, want := range []change{
		{Change: "denied", Tool: "nimbus/web_search", Why: why},
		{Change: "moved", From: "nimbus", To: "atlas", Why: why},
	} {
		if code != 1 || !slices.Contains(d.Changes, want) {
			t.Errorf("exit %d, and %+v is not among %+v", code, want, d.Changes)
		}
	}
	if d, code := policyDiff(t, dir, "--against", "."); code != 0 || d.Changed != 0 || d.Replayed < 2 {
		t.Errorf("under what is in force: exit %d, %+v", code, d)
	}

	text, err := os.ReadFile(filepath.Join(dir, "proposed", proposed))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, proposed), string(text))
	eventually(t, "the veto is in force", func() string {
		if got := names(t, open[0]); !slices.Contains(got, "search_web") || slices.Contains(got, "web_search") {
			return strings.Join(got, " ")
		}
		return ""
	})
	// What was decided under it is recorded too, and now it changes the old only.
	eventually(t, "what is decided now is recorded", func() string {
		now, _ := policyDiff(t, dir, "--against", "proposed")
		if now.Decisions == d.Decisions || now.Changed != d.Changed || now.Replayed != now.Decisions {
			return "not yet"
		}
		return ""
	})
}

func TestServingGoesOnWhereNothingCanBeRecorded(t *testing.T) {
	dir := layOut(t, samples)
	write(t, filepath.Join(dir, ".switchboard"), "a file where the folder should be")
	g := serve(t, dir)
	s := g.open("/mcp", true)
	if m, _ := s.ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); m.Error != nil {
		t.Errorf("a call: %s", m.raw)
	}
	eventually(t, "it is said", func() string {
		out, _, code := command(t, dir, "status", "--url", g.url)
		if code != 1 || !strings.Contains(out, " not recorded in .switchboard: mkdir .switchboard: not a directory") {
			return out
		}
		return ""
	})
	if !strings.Contains(g.logged(), "level=ERROR msg=\"decisions cannot be recorded") {
		t.Errorf("the log does not say it:\n%s", g.logged())
	}
}
