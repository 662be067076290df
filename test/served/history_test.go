package served_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// pastCalls returns what the officer with the key sees of the history: for each tenant and server, the calls, the failures, the refusals and the
// number of calls with a latency.
func pastCalls(t *testing.T, g *rig.Gateway, key, query string) map[string][4]int64 {
	t.Helper()
	a := g.AskAdmin(t, key, "GET", "/v1/metrics/history"+query, "")
	var past struct {
		Series []struct {
			Tenant, Server string
			Points         []struct {
				Calls, Failed, Refused int64
				Buckets                []int64
			}
		}
	}
	if err := json.Unmarshal([]byte(a.Body), &past); a.Status != 200 || err != nil {
		t.Fatalf("%d %v: %.300s", a.Status, err, a.Body)
	}
	all := map[string][4]int64{}
	for _, s := range past.Series {
		sum := all[s.Tenant+" "+s.Server]
		for _, p := range s.Points {
			sum[0], sum[1], sum[2] = sum[0]+p.Calls, sum[1]+p.Failed, sum[2]+p.Refused
			for _, n := range p.Buckets {
				sum[3] += n
			}
		}
		all[s.Tenant+" "+s.Server] = sum
	}
	return all
}

func TestTheHistoryShowsTheCallsOfEachTenantAndOutlivesARestart(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	call := func(who, arguments, meta string) {
		t.Helper()
		s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who])
		s.Ask(t, "tools/call", fmt.Sprintf(`{"_meta":{%s},"name":"work","arguments":%s}`, meta, arguments))
	}
	see := func(when, who, query string, want map[string][4]int64) {
		t.Helper()
		if got := pastCalls(t, g, keys[who], query); !maps.Equal(got, want) {
			t.Errorf("%s, the %s sees %v with %q, want %v", when, who, got, query, want)
		}
	}
	for range 3 {
		call("agent", `{}`, `"x":1`)
	}
	call("agent", `{"do":"error","bytes":"{\"code\":1,\"message\":\"no\"}"}`, `"x":1`)
	for _, arguments := range []string{`{}`, `{"other":1}`} { // the second one is refused, because it has the key of the first one
		call("agent", arguments, `"io.switchboard/idempotency-key":"k"`)
	}
	call("other agent", `{}`, `"x":1`)
	acme, umbrella := [4]int64{6, 1, 1, 5}, [4]int64{1, 0, 0, 1}
	for _, step := range []string{"10s", "1m", "15m"} {
		see("at first", "operator", "?step="+step, map[string][4]int64{"acme a": acme, "umbrella a": umbrella})
	}
	see("at first", "operator", "?tenant=umbrella", map[string][4]int64{"umbrella a": umbrella})
	see("at first", "operator", "?server=a", map[string][4]int64{"acme a": acme, "umbrella a": umbrella})
	see("at first", "operator", "?server=b", map[string][4]int64{})
	see("at first", "viewer", "", map[string][4]int64{"acme a": acme})
	see("at first", "other admin", "?server=a", map[string][4]int64{"umbrella a": umbrella})
	for query, want := range map[string]int{"?tenant=umbrella": 404, "?step=1h": 400, "?from=yesterday": 400, "?to=2001-01-01T00:00:00Z": 400} {
		if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/metrics/history"+query, ""); a.Status != want {
			t.Errorf("%s: %d, want %d: %s", query, a.Status, want, a.Body)
		}
	}
	var page struct {
		Spans    []struct{ Refused int64 }
		Refusals []struct {
			Code   string
			Counts []int64
		}
	}
	a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/now", "")
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Refusals) != 1 || page.Refusals[0].Code != "SB-CAP-006" || len(page.Refusals[0].Counts) != 4 || page.Refusals[0].Counts[3] != page.Spans[3].Refused {
		t.Errorf("now has other refusals than the history: %s", a.Body)
	}
	if metrics := g.AskAdmin(t, keys["operator"], "GET", "/metrics", "").Body; !strings.Contains(metrics, `switchboard_calls_total{outcome="SB-CAP-006",server="a",tenant="acme"} 1`+"\n") {
		t.Error("the metrics have another number of refusals")
	}
	if a := g.AskAdmin(t, keys["other admin"], "GET", "/v1/now", ""); !strings.Contains(a.Body, `"refusals":[]`) {
		t.Errorf("another tenant sees refusals: %s", a.Body)
	}
	g.Do(0, `(?m)^SB-CAP-006( +[01]){3} +1$`, "now")
	g.Do(0, `(?m)^acme +a +6 +1 +1 +0 +\S+s +\S+s +\S{24}$`, "metrics", "--history", "--step", "10s")

	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	g = rig.Serve(t, dir)
	see("after a restart", "operator", "?step=15m", map[string][4]int64{"acme a": acme, "umbrella a": umbrella})
	call("agent", `{}`, `"x":1`)
	acme[0], acme[3] = acme[0]+1, acme[3]+1
	see("after a restart and one more call", "viewer", "", map[string][4]int64{"acme a": acme})
	var past struct{ Series []any }
	if err := json.Unmarshal([]byte(g.Do(0, "", "metrics", "--history", "--json", "--tenant", "umbrella", "--since", "1h")), &past); err != nil || len(past.Series) != 1 {
		t.Errorf("%+v, %v", past, err)
	}
}

// spentBy returns the sums of what the receipts say was settled, by tenant, and of all tenants under "".
func spentBy(t *testing.T, dir string) map[string]switchboard.Micros {
	t.Helper()
	out, errs, code := rig.Command(t, dir, "receipts", "export")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, errs)
	}
	sums := map[string]switchboard.Micros{}
	for line := range strings.Lines(out) {
		var one struct {
			Entry struct {
				Receipt struct {
					Tenant, Kind string
					Price        struct{ Settled switchboard.Micros }
				}
			}
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		r := one.Entry.Receipt
		if r.Kind == "call" {
			sums[r.Tenant] += r.Price.Settled
			sums[""] += r.Price.Settled
		}
	}
	return sums
}

func TestWhatNowSaysWasSpentIsTheSumOfTheReceipts(t *testing.T) {
	t.Parallel()
	dir, keys := pricedOfficers(t)
	rig.WriteFile(t, dir+"/overlays/a.yaml", "server: a\ntools:\n  work: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}], price: {call: 2.50, most: 2.50, reported: true}}\n")
	g := rig.Serve(t, dir)
	agent, other := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]), g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])
	work := func(s *rig.HTTPSession, arguments string) {
		t.Helper()
		s.Ask(t, "tools/call", `{"name":"work","arguments":`+arguments+`}`)
	}
	states := func(amount string) string {
		return `{"do":"result","bytes":"{\"content\":[],\"_meta\":{\"io.switchboard/cost\":{\"amount\":\"` + amount + `\"}}}"}`
	}
	work(agent, `{}`)
	work(agent, states("0.31"))
	work(agent, states("0.000001"))
	work(agent, `{"do":"error","bytes":"{\"code\":1,\"message\":\"no\"}"}`)
	work(other, states("0"))
	work(other, states("1.20"))
	const ofAcme, ofUmbrella, ofAll = "5.310001", "1.20", "6.510001"
	see := func(when string) {
		t.Helper()
		for who, want := range map[string]string{"viewer": ofAcme, "other admin": ofUmbrella, "operator": ofAll} {
			var o struct {
				Spends []struct {
					Unit    string
					Amounts []string
				}
			}
			a := g.AskAdmin(t, keys[who], "GET", "/v1/now", "")
			if err := json.Unmarshal([]byte(a.Body), &o); err != nil || len(o.Spends) != 1 || o.Spends[0].Unit != "EUR" || len(o.Spends[0].Amounts) != 4 || o.Spends[0].Amounts[3] != want || o.Spends[0].Amounts[1] != want {
				t.Errorf("%s, the %s sees %+v, %v; want %s", when, who, o.Spends, err, want)
			}
		}
	}
	see("at first")
	rig.Eventually(t, "all receipts", func() string {
		got := spentBy(t, dir)
		return rig.ReasonUnless(got["acme"].String() == ofAcme && got["umbrella"].String() == ofUmbrella && got[""].String() == ofAll, fmt.Sprint(got))
	})
	if metrics := g.AskAdmin(t, keys["viewer"], "GET", "/metrics", "").Body; !strings.Contains(metrics, "\n"+`switchboard_spent_total{server="a",tenant="acme",unit="EUR"} `+ofAcme+"\n") || strings.Contains(metrics, `spent_total{server="a",tenant="umbrella"`) {
		t.Error("the metrics have another amount for acme, or one of another tenant")
	}
	g.Do(0, `(?m)^LAST .* TOKENS SPARED +SPENT EUR$`, "now")
	g.Do(0, `(?m)^14d +6 .* `+ofAll+`$`, "now")
	g.Do(0, "", "server", "disable", "a", "--reason", "before the restart")
	g.Do(0, "", "server", "enable", "a")
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	g = rig.Serve(t, dir)
	see("after a restart")

	// So do the states of the server, with their causes.
	var server struct {
		Changes []struct {
			Process, To string
			Cause       struct{ Message string }
		}
		Band []struct{ State string }
	}
	a := g.AskAdmin(t, keys["operator"], "GET", "/v1/servers/a", "")
	if err := json.Unmarshal([]byte(a.Body), &server); err != nil {
		t.Fatal(err, a.Body)
	}
	processes, disabled := map[string]bool{}, ""
	for _, c := range server.Changes {
		processes[c.Process] = true
		if c.To == "disabled" {
			disabled += c.Cause.Message
		}
	}
	if !strings.Contains(disabled, "before the restart") || len(processes) != 2 || !strings.Contains(fmt.Sprint(server.Band), "healthy") || !strings.Contains(fmt.Sprint(server.Band), "disabled") {
		t.Errorf("after a restart the states are %s", a.Body)
	}
}
