package policysource_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// allSettings are all settings of the shipped policies that the example tenant and docs/policies.md
// use.
const allSettings = `{
	"deny": ["*/*_delete_bucket"],
	"tiers": {"order": ["free", "pro"], "needs": [{"class": "paid_api", "tier": "pro"}]},
	"approval": {"who": ["oncall"], "expires": "30m"},
	"trust": [{"constraints": ["readonly"], "except_tiers": ["pro"]}],
	"business_hours": {"zone": "Europe/Berlin", "days": ["monday", "tuesday", "wednesday", "thursday", "friday"], "from": "08:00", "to": "18:00",
		"deny": [{"tool": "cloud/s3_*", "verb": "write"}]},
	"egress": [{"tool": "web/*", "arguments": ["url"], "hosts": ["example.com", "*.example.org"], "except": ["private.example.org"]},
		{"tool": "files/*", "arguments": ["path"], "roots": ["/srv/data"]}]
}`

// BenchmarkSettings asks the shipped policies about 100 candidates, with all of the example's
// settings, within business hours: for their selection, and for a call of one of them.
func BenchmarkSettings(b *testing.B) {
	operator, err := policy.Compile(policy.Operator, policysource.Shipped())
	if err != nil {
		b.Fatal(err)
	}
	p, err := policy.NewEngine(time.Minute, 0).NewPolicy(&switchboard.Tenant{ID: "acme", Policy: []byte(allSettings)}, operator, nil)
	if err != nil {
		b.Fatal(err)
	}
	var tools []*switchboard.Tool
	for i := range 100 {
		tools = append(tools, &switchboard.Tool{
			ID:           switchboard.ToolID{Server: []switchboard.ServerID{"web", "cloud", "files", "nimbus"}[i%4], Name: fmt.Sprint([]string{"fetch_", "s3_put_", "read_", "search_"}[i%4], i)},
			Class:        []string{"free_api", "paid_api", "local_knowledge", "paid_api"}[i%4],
			Definition:   []byte(`{"annotations":{"readOnlyHint":true}}`),
			Capabilities: []switchboard.Capability{{Verb: []switchboard.Verb{switchboard.Read, switchboard.Write}[i%2], Resource: "fs", Constraints: []switchboard.Constraint{"readonly"}, Source: switchboard.FromOverlay}},
		})
	}
	task := &switchboard.Task{ID: "all"}
	need := &switchboard.Requirement{Tools: []string{"*/*"}}
	who := switchboard.Principal{Tenant: "acme", ID: "ann", Auth: switchboard.AuthAPIKey, Tier: "pro", Mode: switchboard.Autopilot}
	monday := time.Date(2026, 11, 23, 10, 30, 0, 0, time.UTC)
	measure := func(name string, one func()) {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			for b.Loop() {
				began := time.Now()
				one()
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[0].Nanoseconds()), "min-ns")
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
		})
	}
	for _, phase := range []policy.Phase{policy.PhaseSelect, policy.PhaseCall} {
		measure(string(phase)+" of all", func() {
			q := policy.CandidateQuestion{Phase: phase, Principal: who, Task: task, Requirement: need, Candidates: tools, Now: monday, Arguments: []byte(`{"url":"https://example.com/a"}`)}
			a := p.Judge(b.Context(), &q)
			if closed := a.Verdicts[1].Denied; a.Verdicts[0].Denied != nil || (closed != nil) != (phase == policy.PhaseCall) || closed != nil && closed.Code != switchboard.CodeDenied {
				b.Fatalf("%+v", a.Verdicts[:2])
			}
		})
	}
	call := &switchboard.Call{
		Principal: who, Task: "all", Server: "web", Tool: tools[0], Params: []byte(`{"arguments":{"url":"https://example.com/a"}}`),
		Judgments: []*switchboard.Judgment{policy.NewJudgment(task, need, tools)},
	}
	measure("call of one", func() {
		if r := p.JudgeCall(b.Context(), call, monday); r.Err != nil {
			b.Fatal(r.Err)
		}
	})
}
