package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/record"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// BenchmarkCompare replays 10,000 decisions: of 20 tenants with 50 principals and
// 10 tasks each, of two requirements with 40 candidates of 10 servers each (200
// tools), under the shipped policies and one of the tenant's own, which looks at
// who asks or does not. What is proposed denies one server.
func BenchmarkCompare(b *testing.B) {
	b.Run("anybody", func(b *testing.B) { benchmarkCompare(b, "true") })
	b.Run("each", func(b *testing.B) { benchmarkCompare(b, `input.principal.id != "mallory"`) })
}

func benchmarkCompare(b *testing.B, condition string) {
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
	reading, err := read(c, policy.NewEngine(0, 0))
	if err != nil {
		b.Fatal(err)
	}
	st := newState(reading, "tenant-0", offers, nil)
	dir := b.TempDir()
	l := record.New(dir, record.Options{Queue: tenants * principals * tasks})
	for id, t := range st.tenants {
		for who := range principals {
			p := switchboard.Principal{Tenant: id, ID: fmt.Sprint("agent-", who), Auth: switchboard.AuthAPIKey, Mode: switchboard.Autopilot}
			for _, task := range t.Tasks {
				d, err := t.decide(b.Context(), p, task, time.Now())
				if err != nil || d.Err() != nil || d.Outcomes[0].Considered() < 40 {
					b.Fatal(err, d.Err(), d.Outcomes[0].Considered())
				}
				when := time.Now()
				l.Add(func() record.Record { return t.record(d, when) })
			}
		}
	}
	for l.Status().Written < tenants*principals*tasks {
		time.Sleep(time.Millisecond) // it is no part of what is measured
	}
	l.Close()
	veto := switchboard.PolicyFile{Name: "veto.rego", Path: "veto.rego", Data: []byte("package switchboard\n\ndeny[c.id] contains \"no more\" if { some c in input.candidate_tools; c.server == \"server-0\" }\n")}
	for b.Loop() {
		d, err := Compare(b.Context(), dir, time.Time{}, "", &Proposal{file: &veto}, nil)
		if err != nil || d.Replayed != tenants*principals*tasks || d.Changed != d.Replayed || len(d.Broken) > 0 {
			b.Fatalf("%v: %+v", err, d)
		}
	}
}
