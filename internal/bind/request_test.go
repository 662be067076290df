package bind

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// requestRows are rows of the operator that a random tenant has.
var requestRows = []string{
	"{verb: read, resource: fs}", "{verb: read, resource: fs}", "{verb: read, resource: fs, constraints: [readonly]}", "{verb: search, resource: internet}",
	"{verb: search, resource: cloud}", "{verb: write, resource: fs}", `{capability: "openai.*"}`, `{capability: "*"}`,
}

// askedFor are capabilities that people may have said yes to, by whatever rows there were then.
var askedFor = []string{
	"read fs", "read fs", "read fs", "read fs [readonly]", "search internet", "search internet [pii_safe]", "write fs", "search aws", "execute fs", "openai.embed", "tools */*", "*", "read nowhere", "",
}

// Whatever people have said yes to, a run shows nothing that the task does not give, and that no row of the operator gives through filter, prune and policy.
func TestYesesAreNeverWiderThanBoundPolicyAndRows(t *testing.T) {
	random := rand.New(rand.NewPCG(law.Seed(t), 1))
	law.Hold(t, law.OnlyNarrower)
	added, withheld := 0, 0
	w := &world{Rand: random, offers: map[switchboard.ServerID]map[string]string{}}
	// Most random rows and tasks leave no yes anything to give: more are tried until some have.
	for tried := 0; tried < 16 || tried < 400 && (added == 0 || withheld < 20); tried++ {
		rows := requestRows[random.IntN(len(requestRows))]
		for range random.IntN(2) {
			rows += ", " + requestRows[random.IntN(len(requestRows))]
		}
		edit := tenantEdits[random.IntN(len(tenantEdits))]
		need := taskNeeds[random.IntN(len(taskNeeds))]
		c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
			"switchboard.yaml": {Data: []byte("servers:\n  a: {transport: stdio, command: [a], class: paid}\n  b: {transport: stdio, command: [b], class: free}\n  c: {transport: stdio, command: [c], class: free}\n" +
				"tenants: {acme: {servers: [\"*\"], allow: [by_name], request: [" + rows + "]}}\n")},
			"taxonomy.yaml":             {Data: []byte("resources: {cloud: {}, aws: {parent: cloud}}\n")},
			"tenants/acme/tenant.yaml":  {Data: []byte("tenant: acme\ndefault_task: t\n" + edit + "\n")},
			"tenants/acme/tasks/t.yaml": {Data: []byte("task_id: t\nrequired_capabilities: [" + need + "]\n")},
		}})
		if err != nil {
			continue // two rows for one capability
		}
		for range 10 {
			w.current = inputOf(t, c, time.Minute)
			for _, id := range []switchboard.ServerID{"a", "b", "c"} {
				w.changeOffer(id)
			}
			w.rebuild()
			var all []switchboard.Addition
			for i := range 1 + random.IntN(6) {
				all = append(all, switchboard.Addition{Request: fmt.Sprint("r-", i), Capability: askedFor[random.IntN(len(askedFor))], Until: time.Now().Add(time.Hour)})
			}
			plain, err := w.Bind(t.Context(), localUser, "t", run.Before{})
			if err != nil {
				continue // the task cannot be met
			}
			wider, err := w.Bind(t.Context(), localUser, "t", run.Before{Added: all})
			if err != nil {
				t.Fatalf("with %v the task cannot be met: %v", all, err)
			}
			may := toolsOf(plain)
			tenant := w.state.Tenants["acme"]
			for _, row := range tenant.Request {
				if row.Named != "" {
					continue
				}
				d, err := tenant.RunPipeline(t.Context(), localUser, &switchboard.Task{ID: "row", Requirements: []switchboard.Requirement{row.Requirement}}, decide.Observed{}, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range d.Outcomes {
					for _, c := range slices.Concat(o.Selected, o.Others) {
						may[c.Tool.ID] = true
					}
				}
			}
			for id := range toolsOf(wider) {
				if !may[id] {
					t.Fatalf("rows %s, %s, task %s: yeses to %v give %s", rows, edit, need, all, id)
				}
			}
			if len(toolsOf(wider)) > len(toolsOf(plain)) {
				added++
			}
			for _, a := range all {
				if _, err := lazyexpand.AllowedRequest(a.Capability, tenant.Request, tenant.Taxonomy, nil); err != nil {
					withheld++
				}
			}
			var d *decide.Decision
			if d, err = w.state.decideRun(t.Context(), localUser, "t", run.Before{Added: all}, decide.Observed{}); err != nil {
				t.Fatal(err)
			}
			again, err := w.state.DecideTask(t.Context(), localUser, d.Task, decide.Observed{}, time.Now())
			if err != nil || again.Digest() != d.Digest() {
				t.Fatalf("the recorded task is decided differently: %v", err)
			}
		}
	}
	if added == 0 || withheld < 20 {
		t.Errorf("only %d yeses gave a tool, and %d did not count: the test shows little", added, withheld)
	}
}

// toolsOf returns the tools that a surface leads to.
func toolsOf(s *surface.Surface) map[switchboard.ToolID]bool {
	all := map[switchboard.ToolID]bool{}
	for _, e := range s.Entries() {
		if e.Role != surface.Own && e.Role != surface.Stub {
			all[e.Tool.ID] = true
		}
	}
	return all
}
