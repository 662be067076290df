//go:build unix

package replay

import (
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/system"
)

// BenchmarkCompare replays 10,000 decisions: of 20 tenants with 50 principals and 10 tasks each.
// Each task has two requirements with 40 candidates of 10 servers (200 tools). The policies are the
// shipped ones and one of the tenant, which reads the principal or does not. The proposal denies
// one server.
func BenchmarkCompare(b *testing.B) {
	b.Run("anybody", func(b *testing.B) { benchmarkCompare(b, "true", "false") })
	b.Run("each", func(b *testing.B) { benchmarkCompare(b, `input.principal.id != "mallory"`, "false") })
	for name, condition := range map[string]string{
		"operator by id":    `input.principal.id == "mallory"`,
		"operator by task":  `startswith(input.task.task_id, "night-")`,
		"operator by clock": `time.clock(time.now_ns())[0] > 23`,
		"operator by all":   `input.principal.id == "mallory"; startswith(input.task.task_id, "night-"); time.clock(time.now_ns())[0] > 23`,
	} {
		b.Run(name, func(b *testing.B) { benchmarkCompare(b, "true", condition) })
	}
}

func benchmarkCompare(b *testing.B, condition, veto string) {
	const tenants, principals, tasks, servers, tools = 20, 50, 10, 10, 20
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := &config.Config{Taxonomy: tax, Tenants: map[switchboard.TenantID]*switchboard.Tenant{}, TenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{}}
	var offers []switchboard.Offer
	var ids []switchboard.ServerID
	for s := range servers {
		id := switchboard.ServerID(fmt.Sprint("server-", s))
		ids = append(ids, id)
		c.Servers = append(c.Servers, switchboard.Server{ID: id, Trust: switchboard.TrustOperator})
		o := switchboard.Offer{Server: id, Version: "1.0.0"}
		for t := range tools {
			o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":"tool_%d","description":"Does what it does, and says so in as many words as such tools do.","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}},
				"annotations":{"readOnlyHint":true},"_meta":{"x-summit-capabilities":[{"verb":"search","resource":%q,"constraints":["readonly"]}]}}`,
				t, []switchboard.Resource{"internet", "codebase", "fs", "aws", "slack", "knowledge_graph", "internet", "codebase", "fs", "aws"}[t/2]))
		}
		offers = append(offers, o)
	}
	own := []switchboard.PolicyFile{{Name: "own.rego", Path: "own.rego", Data: []byte("package switchboard.tenant\n\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n\t" + condition + "\n}\n")}}
	c.Policies = append(policysource.Shipped(), switchboard.PolicyFile{Name: "extra.rego", Path: "extra.rego", Data: []byte("package switchboard\n\ndeny[c.id] contains \"not you\" if {\n\tsome c in input.candidate_tools\n\t" + veto + "\n}\n")})
	for i := range tenants {
		id := switchboard.TenantID(fmt.Sprint("tenant-", i))
		t := &switchboard.Tenant{ID: id, Servers: ids, Tasks: map[switchboard.TaskID]*switchboard.Task{}, Policy: []byte(`{"deny":["*/delete_*"]}`)}
		for n := range tasks {
			task := &switchboard.Task{ID: switchboard.TaskID(fmt.Sprint("task-", n))}
			for _, r := range []switchboard.Resource{"internet", "codebase"} {
				task.Requirements = append(task.Requirements, switchboard.Requirement{Verb: "search", Resource: r, Constraints: []switchboard.Constraint{"readonly"}})
			}
			t.Tasks[task.ID] = task
		}
		c.Tenants[id], c.TenantPolicies[id] = t, own
	}
	in := inputOf(b, c, offers)
	for id, p := range in.Policies {
		in.Policies[id] = p.Memoized() // the recording is not measured, so it may be fast
	}
	st := bind.NewState(in, nil)
	dir := newMemoryRecords(b)
	for id, t := range st.Tenants {
		for who := range principals {
			p := switchboard.Principal{Tenant: id, ID: fmt.Sprint("agent-", who), Auth: switchboard.AuthAPIKey, Mode: switchboard.Autopilot}
			for _, task := range t.Tasks {
				d, err := t.RunPipeline(b.Context(), p, task, decide.Observed{}, time.Now())
				if err != nil || d.Err() != nil || d.Outcomes[0].Considered() < 40 {
					b.Fatal(err, d.Err(), d.Outcomes[0].Considered())
				}
				dir.add(recordOf(t, d, time.Now()))
			}
		}
	}
	dir.readAll(b)
	proposed := switchboard.PolicyFile{Name: "veto.rego", Path: "veto.rego", Data: []byte("package switchboard\n\ndeny[c.id] contains \"no more\" if { some c in input.candidate_tools; c.server == \"server-0\" }\n")}
	began := system.ProcessorTime()
	for b.Loop() {
		d, err := Compare(b.Context(), dir, time.Time{}, "", &Proposal{files: []ProposedFile{{File: proposed}}}, nil)
		if err != nil || d.Replayed != tenants*principals*tasks || d.Changed != d.Replayed || len(d.Broken) > 0 {
			b.Fatalf("%v: %+v", err, d)
		}
	}
	b.ReportMetric((system.ProcessorTime()-began).Seconds()/float64(b.N), "cpu-s/op")
}

// BenchmarkReplayCalls replays 10,000 receipts of calls, each with its own arguments that policy
// reads: as they are, and under a rule that denies one in ten.
func BenchmarkReplayCalls(b *testing.B) {
	const calls = 10_000
	dir := newMemoryRecords(b)
	_, call := newPathCaller(b, dir, pathRule, true)
	for i := range calls {
		call(fmt.Sprintf(`{"path":"/w/%d"}`, i))
		if i%1000 == 999 {
			dir.recorder.archive.Close() // its queue holds fewer
			dir.recorder.archive = archive.New(dir, time.Hour, nil)
		}
	}
	dir.readAll(b)
	flipped := &Proposal{files: []ProposedFile{{File: switchboard.PolicyFile{Name: "new.rego", Path: "new.rego", Data: []byte("package switchboard\n\ndeny[c.id] contains \"seven\" if { some c in input.candidate_tools; endswith(input.call.arguments.path, \"7\") }\n")}}}}
	for name, p := range map[string]*Proposal{"as they are": {}, "flipped": flipped} {
		b.Run(name, func(b *testing.B) {
			began := system.ProcessorTime()
			for b.Loop() {
				d, err := Compare(b.Context(), dir, time.Time{}, "", p, nil)
				changed := 0
				if p == flipped {
					changed = calls / 10
				}
				if err != nil || d.Calls != calls || d.Replayed != calls || len(d.Broken) > 0 || d.Changed != changed {
					b.Fatalf("%v: %+v", err, d)
				}
			}
			b.ReportMetric((system.ProcessorTime()-began).Seconds()/float64(b.N), "cpu-s/op")
		})
	}
}
