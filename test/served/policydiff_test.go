package served_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
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
	Decisions, Calls, Replayed, Changed int
	Changes                             []change
	Broken                              []any
	NotReplayed                         []notReplayed `json:"not_replayed"`
}

type change struct {
	Change, Of, Tenant, Tool, From, To, Why string
	Decisions                               int
}

type notReplayed struct {
	Why, Of   string
	Decisions int
}

func policyDiff(t *testing.T, dir string, args ...string) (d diff, code int) {
	t.Helper()
	out, errs, code := rig.Command(t, dir, append([]string{"policy", "diff", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatalf("policy diff %q: %v\n%s%s", args, err, out, errs)
	}
	return d, code
}

// What policy diff says of a proposed file comes true when that is put in place.
func TestAProposedVetoIsShownBeforeItIsInForce(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples)
	proposed := filepath.Join("tenants", "default", "policies", "veto.rego")
	rig.WriteFile(t, filepath.Join(dir, "proposed", proposed), veto)
	g := rig.Serve(t, dir)
	var open []rig.Session
	for range 20 {
		open = append(open, g.Open(t, "/mcp", false), g.Open(t, "/mcp", true), g.Open(t, "/mcp/tasks/impossible", true))
	}
	for _, modern := range []bool{false, true} {
		open = append(open, rig.Stdio(t, dir, modern))
	}
	before := 0
	for _, s := range open {
		if m, _ := s.Ask(t, "tools/list", ""); m.Error == nil {
			before++
		}
	}
	if before != 42 {
		t.Fatalf("%d clients have tools, want 42", before)
	}
	var d diff
	var code int
	rig.Eventually(t, "two tasks are recorded", func() string {
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
		{Change: "denied", Tenant: "default", Tool: "nimbus/web_search", Why: why},
		{Change: "moved", Tenant: "default", From: "nimbus", To: "atlas", Why: why},
	} {
		if code != 1 || !slices.ContainsFunc(d.Changes, func(c change) bool { c.Decisions = 0; return c == want }) {
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
	rig.WriteFile(t, filepath.Join(dir, proposed), string(text))
	rig.Eventually(t, "the veto is in force", func() string {
		if got := rig.ListNames(t, open[0]); !slices.Contains(got, "search_web") || slices.Contains(got, "web_search") {
			return strings.Join(got, " ")
		}
		return ""
	})
	// What was decided under it is recorded too, and now it changes the old only.
	rig.Eventually(t, "what is decided now is recorded", func() string {
		now, _ := policyDiff(t, dir, "--against", "proposed")
		if now.Decisions == d.Decisions || now.Changed != d.Changed || now.Replayed != now.Decisions {
			return "not yet"
		}
		return ""
	})
}

// pathRule is a tenant's, on the arguments of calls.
const pathRule = rig.AllowAll + `
deny[c.id] contains sprintf("outside of the workspace: %s", [input.call.arguments.path]) if {
	some c in input.candidate_tools
	not startswith(input.call.arguments.path, "/w/")
}
`

// What policy said of calls is recorded, and what a proposal would say of them is
// told; of arguments only what a tenant wants to have kept, and never a credential.
func TestAProposedRuleOnArgumentsIsShownOnTheCallsThatWereMade(t *testing.T) {
	t.Parallel() // it waits for records
	const private, token = "what nobody looks at", "ghp_0123456789abcdefABCDEF"
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "open"), fmt.Sprintf(rig.Tool, "close"))+"\nTENANTS\n-- overlays/a.yaml --\nserver: a\ntools: {open: {flow: []}}\n", "", map[string]rig.TenantConfig{
		"acme":     {Rego: pathRule, More: "record: policy_inputs\n"},
		"umbrella": {Rego: pathRule},
		"initech":  {Rego: rig.AllowAll},
	})
	for _, tenant := range []string{"acme", "umbrella", "initech"} {
		for _, modern := range []bool{false, true} {
			s := h.OpenAs(tenant, modern)
			for path, want := range map[string]string{"/w/a": "", "/w/b": "", "/etc": "SB-POL-001", "/w/" + token: ""} {
				if tenant == "initech" {
					want = "" // no rule of its looks at arguments
				}
				if got := rig.Call(t, s, "open", fmt.Sprintf(`{"path":%q,"text":%q}`, path, private)); got != want {
					t.Errorf("%s: %s: %q, want %q", tenant, path, got, want)
				}
			}
		}
	}
	if t.Failed() {
		return // nothing would come
	}
	var d diff
	rig.Eventually(t, "the calls are recorded", func() string {
		if d, _ = policyDiff(t, h.Dir, "--against", "."); d.Calls < 8 {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	// Each of four calls that two tenants made twice is recorded once.
	if d.Calls != 8 || d.Changed != 0 || len(d.Broken) > 0 || d.Replayed != d.Decisions-5 || len(d.NotReplayed) != 1 || d.NotReplayed[0].Of != "call" || !strings.Contains(d.NotReplayed[0].Why, "record: policy_inputs") {
		t.Errorf("under what is in force: %+v", d)
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "stricter.rego"), `package switchboard.tenant
deny[c.id] contains "b is closed" if {
	some c in input.candidate_tools
	input.call.arguments.path == "/w/b"
}
`)
	d, code := policyDiff(t, h.Dir, "--against", "stricter.rego", "--tenant", "acme")
	want := []change{{Change: "denied", Of: "call", Tenant: "acme", Tool: "a/open", Why: "SB-POL-001: the tenant's policy denies it: b is closed", Decisions: 1}}
	if code != 1 || !slices.Equal(d.Changes, want) || d.Changed != 1 || d.Calls != 4 {
		t.Errorf("exit %d, %+v; want %+v", code, d, want)
	}
	out, _, _ := rig.Command(t, h.Dir, "policy", "diff", "--against", "stricter.rego", "--tenant", "acme")
	for _, want := range []string{", of which 4 on calls,", "acme    a/open  1 call     SB-POL-001: the tenant's policy denies it: b is closed", "  1 call: their arguments were not recorded"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "laxer", "own.rego"), "package switchboard.tenant\n"+rig.AllowAll)
	d, _ = policyDiff(t, h.Dir, "--against", "laxer", "--tenant", "acme")
	want = []change{{Change: "allowed", Of: "call", Tenant: "acme", Tool: "a/open", Why: "it was not: SB-POL-001: the tenant's policy denies it: outside of the workspace: /etc", Decisions: 1}}
	if !slices.Equal(d.Changes, want) {
		t.Errorf("%+v; want %+v", d.Changes, want)
	}

	n := 0
	for _, text := range archived(t, h.Dir) {
		for _, secret := range []string{private, token, h.Keys["acme"]} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is archived: %s", secret, text)
			}
		}
		if strings.Contains(text, `"tenant":"umbrella"`) {
			if n++; strings.Contains(text, "/etc") || strings.Contains(text, "/w/") {
				t.Errorf("recorded is what nobody wants to have recorded: %s", text)
			}
		}
	}
	if n == 0 {
		t.Error("nothing is archived of umbrella")
	}
}

// askingRule asks a person about some calls and denies others by their cost.
const askingRule = rig.AllowAll + `
obligations["a/open"] contains {"type": "require_approval"} if startswith(input.call.arguments.path, "/pay")
deny[c.id] contains "too dear" if {
	some c in input.candidate_tools
	input.call.cost > 0.02
}
`

// Calls that had a price and a person's yes replay to the byte. A proposed rule that asks about calls which nobody was asked about does not deny them: they
// are listed as calls that would ask.
func TestCallsWithPricesAndApprovalsReplayAndAProposedRuleThatAsksDeniesNone(t *testing.T) {
	t.Parallel() // it waits for records
	law.Hold(t, law.Deterministic)
	h := rig.ServeTenants(t, "-- switchboard.yaml --\napprovals: {wait: 1s}\nbudgets: [{id: paid, limit: 1, window: forever}]\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "open"))+
		"\nTENANTS\n-- overlays/a.yaml --\nserver: a\ntools:\n  open: {flow: [], price: {call: 0.001, each: {/texts: 0.01}}}\n", "",
		map[string]rig.TenantConfig{"acme": {Rego: askingRule, More: "record: policy_inputs\n"}})
	for _, modern := range []bool{false, true} {
		s := h.OpenAs("acme", modern)
		pay := fmt.Sprintf(`{"path":"/pay/%v","texts":["a"]}`, modern)
		m, _ := s.Ask(t, "tools/call", `{"name":"open","arguments":`+pay+`}`)
		request := requestID.FindStringSubmatch(string(m.Raw))
		if rig.Code(m) != "SB-APPR-001" || request == nil {
			t.Fatalf("%s", m.Raw)
		}
		if a := h.AskAdmin(t, "", "POST", "/v1/approvals/"+request[1]+"/approve", "{}"); a.Status != http.StatusOK {
			t.Fatal(a)
		}
		for arguments, want := range map[string]string{pay: "", `{"path":"/w/b"}`: "", `{"path":"/w/c","texts":["a"]}`: "", `{"path":"/w/d","texts":["a","b"]}`: "SB-POL-001"} {
			if got := rig.Call(t, s, "open", arguments); got != want {
				t.Errorf("%s: %q, want %q", arguments, got, want)
			}
		}
	}
	var d diff
	rig.Eventually(t, "the calls are recorded", func() string {
		if d, _ = policyDiff(t, h.Dir, "--against", "."); d.Calls < 5 {
			return fmt.Sprintf("%+v", d)
		}
		return ""
	})
	if d.Changed != 0 || len(d.Broken) > 0 || len(d.NotReplayed) > 0 || d.Replayed != d.Decisions {
		t.Errorf("under what is in force: %+v", d)
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "asks", "own.rego"), "package switchboard.tenant\n"+askingRule+"\nobligations[\"a/open\"] contains {\"type\": \"require_approval\"} if input.call.arguments.path == \"/w/b\"\n")
	d, code := policyDiff(t, h.Dir, "--against", "asks", "--tenant", "acme")
	want := []change{{Change: "would_ask", Of: "call", Tenant: "acme", Tool: "a/open", From: "nothing", To: "approval", Why: "obligations of the policies", Decisions: 1}}
	if code != 1 || !slices.Equal(d.Changes, want) || len(d.Broken) > 0 {
		t.Errorf("exit %d, %+v; want %+v", code, d, want)
	}
	if out, errs, code := rig.Command(t, h.Dir, "receipts", "verify"); code != 0 || !strings.Contains(out, "as it was written: 1 to") {
		t.Errorf("verify: exit %d %s%s", code, out, errs)
	}
	out, _, _ := rig.Command(t, h.Dir, "receipts", "export")
	if paid, yes := strings.Count(out, `"price":{"held":11000,"settled":11000}`), strings.Count(out, `"approval":{"request":"`); paid != 4 || yes < 4 {
		t.Errorf("%d receipts have the price and %d an approval:\n%s", paid, yes, out)
	}
}

// archived returns all that the store of a folder keeps: texts that are archived, as they
// were, and receipts.
func archived(t *testing.T, dir string) (texts []string) {
	t.Helper()
	st, err := store.OpenFile(filepath.Join(dir, ".switchboard", "store.db"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }() // it was only read from
	err = st.Dump(t.Context(), func(r store.Record) error {
		text := append(r.Value.Data, r.Entry.Data...)
		if strings.HasPrefix(r.Group, "archive/") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				return err
			}
			if text, err = io.ReadAll(z); err != nil {
				return err
			}
		}
		texts = append(texts, string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

func TestAFolderThatCannotBeWrittenIsSaidAtTheStart(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, samples)
	rig.WriteFile(t, filepath.Join(dir, ".switchboard"), "a file where the folder should be")
	out, errs, code := rig.Command(t, dir, "serve", "--listen", "127.0.0.1:0")
	for _, want := range []string{"SB-CONF-001: the store cannot be opened", ".switchboard", "--data DIR", "memory:"} {
		if code == 0 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("exit %d, and it does not say %q: %s%s", code, want, out, errs)
		}
	}
}
