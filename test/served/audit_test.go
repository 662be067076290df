package served_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// What the commands find in the store, officers elsewhere find by the API: operators verify the chains of all tenants, everybody exports the receipts
// of their tenant, and authors and admins replay its decisions.
func TestReceiptsAreVerifiedExportedAndReplayedFromElsewhere(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	for _, who := range []string{"agent", "other agent"} {
		s := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys[who])
		for range 5 {
			if got := rig.Call(t, s, "work", `{}`); got != "" {
				t.Fatal(got)
			}
		}
	}
	rig.Eventually(t, "all calls have their receipts", func() string {
		a := g.AskAdmin(t, keys["operator"], "GET", "/v1/receipts?kind=call&tool=work", "")
		return rig.ReasonUnless(strings.Count(a.Body, `"kind":"call"`) == 10, a.Body)
	})
	elsewhere := t.TempDir()
	as := func(who string, code int, args ...string) string {
		t.Helper()
		out, errs, got := rig.CommandAs(t, elsewhere, keys[who], append(args, "--url", g.AdminURL())...)
		if got != code {
			t.Errorf("%q as %s: exit %d\n%s%s", args, who, got, out, errs)
		}
		return out + errs
	}
	t.Run("verify", func(t *testing.T) {
		var part struct {
			Chains []struct {
				Node    string
				Checked int
				Fault   any
			}
			Looked int `json:"looked_at"`
			Of     int
			Next   string
		}
		a := g.AskAdmin(t, keys["operator"], "POST", "/v1/receipts/verify", "{}")
		if err := json.Unmarshal([]byte(a.Body), &part); err != nil || a.Status != http.StatusOK || len(part.Chains) != 1 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if c := part.Chains[0]; c.Fault != nil || c.Checked < 20 || part.Looked != c.Checked || part.Of != c.Checked || part.Next != "" {
			t.Errorf("%s", a.Body)
		}
		for body, status := range map[string]int{`{"nodes":["no/node"]}`: 400, `{"after":"x"}`: 400, `{"checkpoints":[{"v":1,"node":"n1","seq":1,"digest":"sha256:0","time":"2026-11-27T00:00:00Z","key":"k","signature":"s"}]}`: 400, `{"keys":["other"]}`: 200} {
			if a := g.AskAdmin(t, keys["operator"], "POST", "/v1/receipts/verify", body); a.Status != status {
				t.Errorf("%s: %d %s", body, a.Status, a.Body)
			}
		}
		for range 2 { // it changes nothing, so no answer is kept for a key
			a := g.AskAdmin(t, keys["operator"], "POST", "/v1/receipts/verify", "{}", "Idempotency-Key", "one-and-the-same")
			if a.Status != http.StatusOK || a.Header.Get("Idempotency-Replayed") != "" {
				t.Errorf("with a key: %d, replayed %q", a.Status, a.Header.Get("Idempotency-Replayed"))
			}
		}
		if said := as("operator", 0, "receipts", "verify"); !strings.Contains(said, "as it was written: 1 to") || !strings.Contains(said, "held to no checkpoint") {
			t.Errorf("the command says %s", said)
		}
		if said := as("operator", 1, "receipts", "verify", "--key", "other"); !strings.Contains(said, "NOT AS IT WAS WRITTEN") {
			t.Errorf("with another key: %s", said)
		}
		if said := as("viewer", 1, "receipts", "verify"); !strings.Contains(said, "SB-AUTH-002") {
			t.Errorf("a viewer: %s", said)
		}
		if _, errs, code := rig.CommandAs(t, dir, keys["operator"], "receipts", "verify", "--url", g.AdminURL(), "--store", "file:x"); code != 2 || !strings.Contains(errs, "--url or --store") {
			t.Errorf("--url and --store: exit %d %s", code, errs)
		}
	})
	t.Run("export", func(t *testing.T) {
		here, _, _ := rig.Command(t, dir, "receipts", "export", "--tenant", "acme", "--kind", "call")
		if n := strings.Count(here, "\n"); n != 5 || strings.Contains(here, "bob") {
			t.Fatalf("from the store: %d lines\n%s", n, here)
		}
		a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipts/export?kind=call", "")
		if a.Status != http.StatusOK || a.Body != here {
			t.Errorf("a viewer gets %d\n%s\nwhere the store has\n%s", a.Status, a.Body, here)
		}
		if said := as("viewer", 0, "receipts", "export", "--kind", "call"); said != here {
			t.Errorf("the command prints\n%s\nwhere the store has\n%s", said, here)
		}
		if a := g.AskAdmin(t, keys["other admin"], "GET", "/v1/receipts/export", ""); a.Status != http.StatusOK || strings.Contains(a.Body, "acme") || strings.Count(a.Body, `"kind":"call"`) != 5 {
			t.Errorf("an admin of the other tenant: %d %s", a.Status, a.Body)
		}
		if a := g.AskAdmin(t, keys["operator"], "GET", "/v1/receipts/export?kind=call", ""); strings.Count(a.Body, "\n") != 10 {
			t.Errorf("the operator: %d %s", a.Status, a.Body)
		}
		if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipts/export?kind=nothing", ""); a.Status != http.StatusBadRequest {
			t.Errorf("an unknown kind: %d %s", a.Status, a.Body)
		}
		if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipts/export?until=2020-01-01T00:00:00Z", ""); a.Status != http.StatusOK || a.Body != "" {
			t.Errorf("nothing: %d %s", a.Status, a.Body)
		}
	})
	t.Run("replay", func(t *testing.T) {
		list, _, _ := rig.Command(t, dir, "receipts", "list", "--kind", "decision", "--json")
		of := map[string]string{} // a decision of each tenant
		for line := range strings.Lines(list) {
			var one struct {
				ID    string
				Entry struct{ Receipt struct{ Tenant string } }
			}
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatal(err)
			}
			of[one.Entry.Receipt.Tenant] = one.ID
		}
		if len(of) < 2 {
			t.Fatalf("the decisions are %s", list)
		}
		if said := as("operator", 0, "receipts", "replay"); said != "2 decisions, 2 replayed: 2 the same to the byte\n" {
			t.Errorf("all: %s", said)
		}
		said := as("admin", 0, "receipts", "replay", "--tenant", "acme") // it waits for the archive
		if here, _, _ := rig.Command(t, dir, "receipts", "replay", "--tenant", "acme"); said != here || !strings.HasPrefix(said, "1 decision, 1 replayed: 1 the same") {
			t.Errorf("the admin of acme gets %s, where the store has %s", said, here)
		}
		if said := as("operator", 0, "receipts", "replay", of["acme"]); said != "1 decision, 1 replayed: 1 the same to the byte\n" {
			t.Errorf("one: %s", said)
		}
		if said := as("other admin", 2, "receipts", "replay", of["acme"]); strings.Contains(said, "decision,") || !strings.Contains(said, "there is no receipt of that id") {
			t.Errorf("the admin of another tenant: %s", said)
		}
		if said := as("operator", 2, "receipts", "replay", "rubbish"); !strings.Contains(said, "rubbish") {
			t.Errorf("what is no id: %s", said)
		}
	})
}
