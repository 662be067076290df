package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// A turn is which of two policies are in force: those from known to written.
// Turns that are even allow one alone, and odd ones two.
type turn struct{ known, written atomic.Int64 }

// wants says what a call that began under known may be told; "" is its result.
func (n *turn) wants(tool string, known int64) []string {
	yes := int64(0)
	if tool == "two" {
		yes = 1
	}
	switch {
	case known != n.written.Load():
		return []string{"", "SB-CAP-001"}
	case known%2 == yes:
		return []string{""}
	}
	return []string{"SB-CAP-001"}
}

// PO-04, PO-07: a veto holds for whatever begins once it is said to be in
// force; a policy that is broken is never in force, and never silently; nobody
// is judged by two policies, and no call is lost.
func TestPO07_TwoHundredReloadsUnderLoadDecideNothingWrong(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.OneDecision)
	t.Parallel()                   // with what only waits
	const reloads, every = 200, 10 // and every tenth is broken
	policy := func(n int64) string {
		return fmt.Sprintf("package switchboard\nallowed_tools contains %q\n", "a/"+[]string{"one", "two"}[n%2])
	}
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"), fmt.Sprintf(rig.Tool, "two"))))
	file := filepath.Join(dir, "policies/p.rego")
	rig.WriteFile(t, file, policy(0))
	g := rig.Serve(t, dir)
	pipe := rig.Stdio(t, dir, true)
	rig.ListNames(t, pipe)

	var n turn
	var stop atomic.Bool
	var certain, uncertain atomic.Int64
	var work sync.WaitGroup
	check := func(s rig.Session, tool string) {
		known := n.known.Load()
		got := rig.Call(t, s, tool, `{}`)
		wants := n.wants(tool, known)
		if !slices.Contains(wants, got) {
			t.Errorf("turn %d: a call of %s: %q, want one of %q", known, tool, got, wants)
		}
		if len(wants) == 1 {
			certain.Add(1)
		} else {
			uncertain.Add(1)
		}
	}
	oneOfTwo := func(who string, s rig.Session) {
		if got := rig.ListNames(t, s); len(got) != 1 || got[0] != "one" && got[0] != "two" {
			t.Errorf("%s lists %q: neither policy shows that", who, got)
		}
	}
	for i := range 4 {
		s := g.Open(t, "/mcp", i%2 == 0)
		work.Go(func() {
			for j := 0; !stop.Load(); j++ {
				check(s, []string{"one", "two"}[(i/2+j)%2])
				if j%4 == 0 {
					oneOfTwo(fmt.Sprint("client ", i), s)
				}
			}
		})
	}
	work.Go(func() { // it reloads by itself: nobody knows when
		for !stop.Load() {
			oneOfTwo("the client over stdio", pipe)
			if got := rig.Call(t, pipe, "one", `{}`); got != "" && got != "SB-CAP-001" {
				t.Errorf("over stdio: %s", got)
			}
		}
	})

	broken := []string{"", "package switchboard\nx := ", policy(0) + "y := input.nope\n", "package other\n", policy(1) + `deny["a/one"] := http.send({})`}
	var modern, legacy rig.Session = g.Open(t, "/mcp", true), g.Open(t, "/mcp", false)
	for i := range reloads {
		if i%every == every/2 {
			before := g.Reloads(rig.ReloadRefused)
			rig.ReplaceFile(t, file, broken[i/every%len(broken)])
			g.SendHangUp(t)
			g.AwaitReload(t, before, rig.ReloadRefused)
			status, body := g.Ready(t)
			if status != 200 || !strings.Contains(body, `"configuration_refused":{"age_seconds":`) {
				t.Errorf("after a broken reload, /readyz: %d %s", status, body)
			}
		} else {
			before := g.Reloads(rig.Reloaded)
			next := n.written.Add(1)
			rig.ReplaceFile(t, file, policy(next))
			g.SendHangUp(t)
			g.AwaitReload(t, before, rig.Reloaded)
			n.known.Store(next)
		}
		for _, s := range []rig.Session{modern, legacy} {
			check(s, "one")
			check(s, "two")
		}
	}
	stop.Store(true)
	work.Wait()
	if got := g.Reloads(rig.ReloadRefused); got < reloads/every {
		t.Errorf("%d reloads were refused, want %d at least", got, reloads/every)
	}
	if status, body := g.Ready(t); status != 200 || body != `{"ready":true}` {
		t.Errorf("in the end, /readyz: %d %s", status, body)
	}
	last := []string{"one", "two"}[n.written.Load()%2]
	rig.Eventually(t, "the client over stdio has the last policy", func() string {
		if got := rig.ListNames(t, pipe); !slices.Equal(got, []string{last}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	t.Logf("%d calls under one policy, %d while it changed", certain.Load(), uncertain.Load())
	if certain.Load() < 2*reloads || uncertain.Load() == 0 {
		t.Error("that proves nothing")
	}
}

func TestStatusNamesTheTenantsPolicyAndSinceWhenItsFilesAreFaulty(t *testing.T) {
	t.Parallel()
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", fmt.Sprintf(rig.Tool, "one"))+"\nTENANTS\n", "", map[string]rig.TenantConfig{"acme": {}, "other": {}})
	type policies []struct{ Tenant, Digest, Loaded string }
	status := func() (p policies, faulty []map[string]any) {
		var st struct {
			Policies policies
			Faulty   []map[string]any `json:"configuration_faulty_parts"`
		}
		if text := h.AskAdmin(t, "", http.MethodGet, "/v1/status?tenant=acme", "").Body; json.Unmarshal([]byte(text), &st) != nil || len(st.Policies) != 1 || st.Policies[0].Tenant != "acme" {
			t.Fatalf("status: %s", text)
		}
		return st.Policies, st.Faulty
	}
	first, faulty := status()
	if len(first[0].Digest) != len("sha256:")+64 || faulty != nil {
		t.Errorf("%+v, faulty %v", first, faulty)
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "tenants/other/policies/x.rego"), "package switchboard.tenant\n"+rig.AllowAll)
	h.Reload(t)
	if same, _ := status(); same[0] != first[0] {
		t.Errorf("another tenant's policy made %+v of %+v", same, first)
	}
	own := filepath.Join(h.Dir, "tenants/acme/policies/x.rego")
	rig.WriteFile(t, own, "package switchboard.tenant\n"+rig.AllowAll)
	h.Reload(t)
	second, _ := status()
	if second[0].Digest == first[0].Digest || second[0].Loaded == first[0].Loaded {
		t.Errorf("a new policy left %+v as %+v", first, second)
	}
	rig.WriteFile(t, own, "broken")
	h.Reload(t)
	again, faulty := status()
	if len(faulty) != 1 || again[0] != second[0] || faulty[0]["part"] != "tenant acme" || faulty[0]["since"] == "" || !strings.Contains(fmt.Sprint(faulty[0]["faults"]), "tenants/acme/policies/x.rego:1:1") {
		t.Fatalf("after a broken one: %+v, faulty %v", again, faulty)
	}
	rig.WriteFile(t, filepath.Join(h.Dir, "tenants/other/policies/x.rego"), "broken too")
	h.Reload(t)
	if _, later := status(); len(later) != 1 || later[0]["since"] != faulty[0]["since"] {
		t.Errorf("after another tenant's broken one: %v, want %v", later, faulty)
	}
}
