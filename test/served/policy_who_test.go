package served_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// What a reload takes from a key, it takes from whatever is open: also from a
// request that has begun to come in before.
func TestAReloadThatTakesARoleOrTierReachesWhatIsOpen(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+
		rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "one"), fmt.Sprintf(rig.Tool, "two"), fmt.Sprintf(rig.Tool, "three"), fmt.Sprintf(rig.Tool, "four"))+"\nTENANTS\n",
		", tier: [pro, free], roles: [analyst]", map[string]rig.TenantConfig{"acme": {Key: "roles: [analyst], tier: pro", Rego: rig.AllowAll + `
deny["a/two"] contains "x" if not "analyst" in input.principal.roles
deny["a/three"] contains "x" if input.user_tier != "pro"
deny["a/four"] contains "x" if { input.phase == "call"; not "analyst" in input.principal.roles }
`}})
	open := h.Clients(t, "acme")
	open["a run of its own"] = h.Open(t, "/mcp/runs/"+rig.MintRun(t, h.Gateway, h.Keys["acme"], "all"), true, "Authorization", "Bearer "+h.Keys["acme"])
	for name, s := range open {
		if got := rig.ListNames(t, s); !slices.Equal(got, []string{"four", "one", "three", "two"}) {
			t.Fatalf("%s lists %q", name, got)
		}
		if got := rig.Call(t, s, "two", `{}`); got != "" {
			t.Fatalf("%s: %s", name, got)
		}
	}
	// The list shows it, so that nothing but who is calling can refuse it.
	slow := h.Begin(t, "acme", "tools/call", "four", `{"name":"four","arguments":{}}`)

	before := rig.ReadFile(t, marks)
	for file, change := range map[string][2]string{
		"switchboard.yaml":         {"tier: [pro, free], roles: [analyst]", "tier: [free]"},
		"tenants/acme/tenant.yaml": {", roles: [analyst], tier: pro", ""},
	} {
		file = filepath.Join(h.Dir, file)
		rig.ReplaceFile(t, file, strings.Replace(rig.ReadFile(t, file), change[0], change[1], 1))
	}
	h.Reload(t)
	if m := slow(); rig.Code(m) != "SB-POL-001" {
		t.Errorf("what began to come in before: %s", m.Raw)
	}
	for name, s := range open {
		rig.Eventually(t, name+" lists what is left", func() string { // stdio reloads by itself
			if got := rig.ListNames(t, s); !slices.Equal(got, []string{"four", "one"}) {
				return fmt.Sprint(got)
			}
			return ""
		})
		for _, tool := range []string{"two", "three"} {
			if got := rig.Call(t, s, tool, `{}`); got != "SB-CAP-001" {
				t.Errorf("%s: %s: %q", name, tool, got)
			}
		}
		if got := rig.Call(t, s, "one", `{}`); got != "" {
			t.Errorf("%s: one: %q", name, got)
		}
	}
	if after := strings.TrimPrefix(rig.ReadFile(t, marks), before); strings.Trim(after, "one\n") != "" {
		t.Errorf("executed since: %q", after)
	}
}

// desk is a server with a tool that reads and one that writes.
func desk(marks string) string {
	return "-- switchboard.yaml --\napprovals: {wait: 1s}\nservers:\n  " + rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "look"), fmt.Sprintf(rig.Tool, "edit")) + "\nTENANTS\n" + `
-- overlays/a.yaml --
server: a
tools:
  look: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}
  edit: {capabilities: [{verb: write, resource: fs}]}
`
}

func TestTheModeSaysWhatAnAgentMayDoAlone(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.OnlyNarrower)
	marks := filepath.Join(t.TempDir(), "marks")
	h := rig.ServeTenants(t, desk(marks), "", map[string]rig.TenantConfig{
		"free":     {},
		"assists":  {More: "mode: assist\n"},
		"observes": {More: "mode: observe\n"},
		"by-key":   {More: "mode: assist\n", Key: "mode: observe"},
	})
	for _, tt := range []struct {
		tenant string
		lists  []string
		edit   string
	}{
		{"assists", []string{"edit", "look"}, "SB-APPR-001"},
		{"observes", []string{"look"}, "SB-CAP-001"},
		{"by-key", []string{"look"}, "SB-CAP-001"},
		{"free", []string{"edit", "look"}, ""},
	} {
		clients := map[string]rig.Session{"http/legacy": h.OpenAs(tt.tenant, false), "http/modern": h.OpenAs(tt.tenant, true)}
		if tt.tenant != "by-key" { // over stdio there is none
			clients = h.Clients(t, tt.tenant)
		}
		for name, s := range clients {
			if got := rig.ListNames(t, s); !slices.Equal(got, tt.lists) {
				t.Errorf("%s, %s: it lists %q", tt.tenant, name, got)
			}
			if got := rig.Call(t, s, "look", `{}`); got != "" {
				t.Errorf("%s, %s: look: %s", tt.tenant, name, got)
			}
			before := rig.ReadFile(t, marks)
			m, _ := s.Ask(t, "tools/call", `{"name":"edit","arguments":{}}`)
			if got := rig.Code(m); got != tt.edit || (rig.ReadFile(t, marks) != before) != (tt.edit == "") {
				t.Errorf("%s, %s: edit: %s, want %q", tt.tenant, name, m.Raw, tt.edit)
			}
			if tt.edit == "SB-APPR-001" && !strings.Contains(string(m.Result), `"isError":true`) {
				t.Errorf("%s, %s: the model is not told: %s", tt.tenant, name, m.Raw)
			}
		}
	}
}
