package served_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
)

// The ways in which a reload ends, as the log has them.
const (
	reloaded = "msg=reloaded"
	nothing  = `msg="read again; nothing has changed"`
	refused  = `msg="reload refused`
)

// reloads counts those that ended in one of these ways.
func (g *gateway) reloads(ways ...string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	fresh := g.log.Bytes()[g.scanned:]
	fresh = fresh[:bytes.LastIndexByte(fresh, '\n')+1]
	g.scanned += len(fresh)
	if g.endings == nil {
		g.endings = map[string]int{}
	}
	for _, way := range []string{reloaded, nothing, refused} {
		g.endings[way] += bytes.Count(fresh, []byte(way))
	}
	for _, way := range ways {
		n += g.endings[way]
	}
	return n
}

func (g *gateway) hangUp(t *testing.T) {
	t.Helper()
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// over waits for another reload that ends in one of these ways.
func (g *gateway) over(t *testing.T, before int, ways ...string) {
	t.Helper()
	eventually(t, "the reload is over", func() string {
		if g.reloads(ways...) == before {
			return "it is not"
		}
		return ""
	})
}

// reload lets g read its files now, and returns when all that was written
// before is in force or refused: the reading that answers the second signal
// began after the first had come.
func (g *gateway) reload(t *testing.T) {
	t.Helper()
	for range 2 {
		before := g.reloads(reloaded, nothing, refused)
		g.hangUp(t)
		g.over(t, before, reloaded, nothing, refused)
	}
}

// replace puts a file in place whole, so that no reading sees a part of it.
func replace(t *testing.T, file, text string) {
	t.Helper()
	whole := filepath.Join(t.TempDir(), "whole")
	write(t, whole, text)
	if err := os.Rename(whole, file); err != nil {
		t.Fatal(err)
	}
}

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
	law.Hold(t, law.OneDecision)
	t.Parallel()                   // with what only waits
	const reloads, every = 200, 10 // and every tenth is broken
	policy := func(n int64) string {
		return fmt.Sprintf("package switchboard\nallowed_tools contains %q\n", "a/"+[]string{"one", "two"}[n%2])
	}
	dir := layOut(t, fakes(fakeServer("a", fmt.Sprintf(tool, "one"), fmt.Sprintf(tool, "two"))))
	file := filepath.Join(dir, "policies/p.rego")
	write(t, file, policy(0))
	g := serve(t, dir)
	pipe := stdio(t, dir, true)
	names(t, pipe)

	var n turn
	var stop atomic.Bool
	var certain, uncertain atomic.Int64
	var work sync.WaitGroup
	check := func(s session, tool string) {
		known := n.known.Load()
		got := called(t, s, tool, `{}`)
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
	oneOfTwo := func(who string, s session) {
		if got := names(t, s); len(got) != 1 || got[0] != "one" && got[0] != "two" {
			t.Errorf("%s lists %q: neither policy shows that", who, got)
		}
	}
	for i := range 4 {
		s := g.open(t, "/mcp", i%2 == 0)
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
			if got := called(t, pipe, "one", `{}`); got != "" && got != "SB-CAP-001" {
				t.Errorf("over stdio: %s", got)
			}
		}
	})

	broken := []string{"", "package switchboard\nx := ", policy(0) + "y := input.nope\n", "package other\n", policy(1) + `deny["a/one"] := http.send({})`}
	var modern, legacy session = g.open(t, "/mcp", true), g.open(t, "/mcp", false)
	for i := range reloads {
		if i%every == every/2 {
			before := g.reloads(refused)
			replace(t, file, broken[i/every%len(broken)])
			g.hangUp(t)
			g.over(t, before, refused)
			status, body := g.ready(t)
			if status != 200 || !strings.Contains(body, `"configuration_refused":{"age_seconds":`) {
				t.Errorf("after a broken reload, /readyz: %d %s", status, body)
			}
		} else {
			before := g.reloads(reloaded)
			next := n.written.Add(1)
			replace(t, file, policy(next))
			g.hangUp(t)
			g.over(t, before, reloaded)
			n.known.Store(next)
		}
		for _, s := range []session{modern, legacy} {
			check(s, "one")
			check(s, "two")
		}
	}
	stop.Store(true)
	work.Wait()
	if got := g.reloads(refused); got < reloads/every {
		t.Errorf("%d reloads were refused, want %d at least", got, reloads/every)
	}
	if status, body := g.ready(t); status != 200 || body != `{"ready":true}` {
		t.Errorf("in the end, /readyz: %d %s", status, body)
	}
	last := []string{"one", "two"}[n.written.Load()%2]
	eventually(t, "the client over stdio has the last policy", func() string {
		if got := names(t, pipe); !slices.Equal(got, []string{last}) {
			return fmt.Sprint(got)
		}
		return ""
	})
	t.Logf("%d calls under one policy, %d while it changed", certain.Load(), uncertain.Load())
	if certain.Load() < 2*reloads || uncertain.Load() == 0 {
		t.Error("that proves nothing")
	}
}

// ready asks /readyz.
func (g *gateway) ready(t *testing.T) (status int, body string) {
	t.Helper()
	h := house{gateway: g}
	return h.look(t, "", "/readyz")
}

func TestStatusNamesTheTenantsPolicyAndSinceWhenItsFilesAreFaulty(t *testing.T) {
	t.Parallel()
	h := inhabit(t, "-- switchboard.yaml --\nservers:\n  "+fakeServer("a", fmt.Sprintf(tool, "one"))+"\nTENANTS\n", "", map[string]resident{"acme": {}, "other": {}})
	type policies []struct{ Tenant, Digest, Loaded string }
	status := func() (p policies, faulty []map[string]any) {
		var st struct {
			Policies policies
			Faulty   []map[string]any `json:"configuration_faulty_parts"`
		}
		if text := h.get(t, "acme", "/v1/status"); json.Unmarshal([]byte(text), &st) != nil || len(st.Policies) != 1 || st.Policies[0].Tenant != "acme" {
			t.Fatalf("status: %s", text)
		}
		return st.Policies, st.Faulty
	}
	first, faulty := status()
	if len(first[0].Digest) != len("sha256:")+64 || faulty != nil {
		t.Errorf("%+v, faulty %v", first, faulty)
	}
	write(t, filepath.Join(h.dir, "tenants/other/policies/x.rego"), "package switchboard.tenant\n"+allowAll)
	h.reload(t)
	if same, _ := status(); same[0] != first[0] {
		t.Errorf("another tenant's policy made %+v of %+v", same, first)
	}
	own := filepath.Join(h.dir, "tenants/acme/policies/x.rego")
	write(t, own, "package switchboard.tenant\n"+allowAll)
	h.reload(t)
	second, _ := status()
	if second[0].Digest == first[0].Digest || second[0].Loaded == first[0].Loaded {
		t.Errorf("a new policy left %+v as %+v", first, second)
	}
	write(t, own, "broken")
	h.reload(t)
	again, faulty := status()
	if len(faulty) != 1 || again[0] != second[0] || faulty[0]["part"] != "tenant acme" || faulty[0]["since"] == "" || faulty[0]["faults"] != nil {
		t.Fatalf("after a broken one: %+v, faulty %v", again, faulty)
	}
	write(t, filepath.Join(h.dir, "tenants/other/policies/x.rego"), "broken too")
	h.reload(t)
	if _, later := status(); len(later) != 1 || later[0]["since"] != faulty[0]["since"] {
		t.Errorf("after another tenant's broken one: %v, want %v", later, faulty)
	}
}
