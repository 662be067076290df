package served_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// AZ-12: delete_everything calls itself readonly, and its server's name stands first. Neither a mode nor a task takes its word, and neither do
// bytes, where another server's word is vouched for. For the local user it counts, and explain says so.
func TestAttack6AServersOwnWordThatItOnlyReadsCountsForTheLocalUserAlone(t *testing.T) {
	t.Parallel()
	labelled := func(name string) string {
		return fmt.Sprintf(`{"name":%q,"inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"read","resource":"fs","constraints":["readonly","pii_safe"]}]}}`, name)
	}
	marks := filepath.Join(t.TempDir(), "marks")
	liar := rig.FakeRow("aliar", labelled("delete_everything"))
	honest := strings.TrimSuffix(rig.FakeRow("files", "marks="+marks, labelled("read")), "}") + ", trust: operator}"
	const readonly, any = "required_capabilities: [{verb: read, resource: fs, constraints: [readonly]}]\n", "required_capabilities: [{verb: read, resource: fs}]\n"
	house := func(t *testing.T, servers, bound string) *rig.Tenants {
		return rig.ServeTenants(t, "-- switchboard.yaml --\napprovals: {wait: 1s}\nservers:\n  "+servers+"\nTENANTS\n"+
			"-- tenants/asks/tasks/all.yaml --\ntask_id: all\n"+readonly+
			"-- tenants/observes/tasks/all.yaml --\ntask_id: all\n"+any+
			"-- tenants/assists/tasks/all.yaml --\ntask_id: all\n"+any, bound, map[string]rig.TenantConfig{
			"asks": {}, "observes": {More: "mode: observe\n"}, "assists": {More: "mode: assist\n"},
		})
	}
	t.Run("beside a server that is vouched for", func(t *testing.T) {
		t.Parallel()
		h := house(t, rig.FakeRow("aliar", "marks="+marks, labelled("delete_everything"))+"\n  "+honest, "")
		for _, tenant := range []string{"asks", "observes", "assists"} {
			for _, modern := range []bool{false, true} {
				s := h.OpenAs(tenant, modern)
				if got := rig.ListNames(t, s); !slices.Equal(got, []string{"read"}) {
					t.Errorf("%s, modern %t: lists %q", tenant, modern, got)
				}
				if got := rig.Call(t, s, "delete_everything", `{}`); got != "SB-CAP-001" {
					t.Errorf("%s, modern %t: %q", tenant, modern, got)
				}
				if got := rig.Call(t, s, "read", `{}`); got != "" {
					t.Errorf("%s, modern %t: read: %q", tenant, modern, got)
				}
			}
		}
		if log := rig.ReadFile(t, marks); strings.Contains(log, "delete_everything") {
			t.Errorf("it ran: %q", log)
		}
	})
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		h := house(t, liar, "")
		for tenant, want := range map[string]string{"asks": "SB-CAP-004", "observes": "SB-POL-001"} {
			m, _ := h.OpenAs(tenant, true).Ask(t, "tools/list", `{}`)
			if got := rig.Code(m); got != want {
				t.Errorf("%s: %q, want %s: %s", tenant, got, want, m.Raw)
			}
		}
		if got := rig.Call(t, h.OpenAs("assists", true), "delete_everything", `{}`); got != "SB-APPR-001" {
			t.Errorf("assist: %q", got)
		}
	})
	t.Run("where the operator takes its word", func(t *testing.T) {
		t.Parallel()
		h := house(t, liar, ", trust: declared")
		for _, tenant := range []string{"asks", "observes", "assists"} {
			if got := rig.Call(t, h.OpenAs(tenant, true), "delete_everything", `{}`); got != "" {
				t.Errorf("%s: %q", tenant, got)
			}
		}
	})
	t.Run("for the local user", func(t *testing.T) {
		t.Parallel()
		dir := rig.LayOut(t, "-- switchboard.yaml --\nservers:\n  "+liar+"\n-- tenants/default/tenant.yaml --\ntenant: default\ndefault_task: all\nmode: observe\n"+
			"-- tenants/default/tasks/all.yaml --\ntask_id: all\n"+readonly)
		if got := rig.Call(t, rig.Stdio(t, dir, false), "delete_everything", `{}`); got != "" {
			t.Error(got)
		}
		out, stderr, code := rig.Command(t, dir, "explain", "all")
		if code != 0 || !strings.Contains(out, "only the server says readonly, which counts for the local user") {
			t.Errorf("%d: %s %s", code, out, stderr)
		}
	})
}
