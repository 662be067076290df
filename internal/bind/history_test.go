package bind

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// tenantEdits are the configurations of the tenant that a history switches between.
var tenantEdits = []string{
	"ranking: {classes: [paid, free]}",
	"ranking: {classes: [free, paid]}",
	"servers: [a, b]",
	"policy: {deny: [\"a/web_search\"]}",
	"policy: {deny: [\"*/fetch\"]}",
}

// taskNeeds are the requirements of its task.
var taskNeeds = []string{
	"{verb: search, resource: internet}",
	"{verb: search, resource: internet, select: tool, as: find}",
	"{verb: search, resource: internet}, {verb: read, resource: fs, optional: true}",
	"{verb: search, resource: internet, load: on_demand, group: web}, {verb: read, resource: fs, optional: true}",
	"{tools: [\"*/*\"]}",
}

// definitions are the definitions that a server may offer for a tool.
var definitions = []string{
	`{"name":%q,"inputSchema":{"type":"object","properties":{"query":{"type":"string"}}},"_meta":{"x-summit-capabilities":[{"verb":%q,"resource":%q}]}}`,
	`{"name":%q,"description":"other words","inputSchema":{"type":"object","properties":{"query":{"type":"string"}}},"_meta":{"x-summit-capabilities":[{"verb":%q,"resource":%q}]}}`,
	`{"name":%q,"inputSchema":{"type":"object","properties":{"query":{"type":"string"}},"required":["query"]},"_meta":{"x-summit-capabilities":[{"verb":%q,"resource":%q}]}}`,
}

// loadAllConfigs loads a configuration for every edit with every need.
func loadAllConfigs(t *testing.T) (all []Input) {
	t.Helper()
	for _, edit := range tenantEdits {
		for _, need := range taskNeeds {
			c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
				"switchboard.yaml": {Data: []byte("servers:\n  a: {transport: stdio, command: [a], class: paid}\n  b: {transport: stdio, command: [b], class: free}\n  c: {transport: stdio, command: [c], class: free}\n" +
					"tenants: {acme: {servers: [\"*\"], allow: [by_name]}}\n")},
				"tenants/acme/tenant.yaml":  {Data: []byte("tenant: acme\ndefault_task: t\n" + edit + "\n")},
				"tenants/acme/tasks/t.yaml": {Data: []byte("task_id: t\nrequired_capabilities: [" + need + "]\n")},
			}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, inputOf(t, c, 0))
		}
	}
	return all
}

// 10,000 histories take minutes: go test -run Histories -histories 10000.
var histories = flag.Int("histories", 600, "how many random histories TestNamesHoldInRandomHistories goes through")

// A world is a configuration, servers and their health. It is a run.Binder, as App is.
type world struct {
	*rand.Rand
	all     []Input
	current Input
	offers  map[switchboard.ServerID]map[string]string // definitions by tool
	ailing  map[switchboard.ToolID]health.State
	state   *State
}

var localUser = switchboard.Principal{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal}

// rebuild builds the state of the present configuration and offers.
func (w *world) rebuild() {
	var offers []switchboard.Offer
	for _, id := range slices.Sorted(maps.Keys(w.offers)) {
		o := switchboard.Offer{Server: id, Tools: [][]byte{}}
		for _, tool := range slices.Sorted(maps.Keys(w.offers[id])) {
			o.Tools = append(o.Tools, []byte(w.offers[id][tool]))
		}
		offers = append(offers, o)
	}
	in := w.current
	in.Offers = offers
	w.state = NewState(in, w.state)
}

// changeOffer gives the server a new random offer.
func (w *world) changeOffer(id switchboard.ServerID) {
	tools := map[string]string{}
	for _, what := range [][3]string{{"web_search", "search", "internet"}, {"google", "search", "internet"}, {"fetch", "read", "fs"}, {"b__web_search", "read", "fs"}} {
		if w.IntN(3) > 0 {
			tools[what[0]] = fmt.Sprintf(definitions[w.IntN(len(definitions))], what[0], what[1], what[2])
		}
	}
	w.offers[id] = tools
}

func (w *world) Resolve(p switchboard.Principal, task switchboard.TaskID) (switchboard.TaskID, error) {
	return w.state.ResolveTask(p, task)
}

func (w *world) Bind(ctx context.Context, p switchboard.Principal, task switchboard.TaskID, was run.Before) (*surface.Surface, error) {
	return w.state.bindTask(ctx, p, task, was, decide.Observed{Unfit: UnfitTools(w.ailing, was)}, w.ailing, nil, func(*Tenant, *decide.Decision, error) func() Record {
		return func() Record { return Record{} }
	})
}

func (*world) Lasts(switchboard.TenantID) bool { return true }

func (*world) Starting(switchboard.TenantID) ([]switchboard.ServerID, <-chan struct{}) {
	return nil, nil
}

// A listClient is one client and the entries that it was shown.
type listClient struct {
	id   switchboard.RunID // of its run; "" for the base run
	name string            // of a client of the base run
	seen map[string]surface.Entry
}

// change makes one random change.
func (w *world) change(ctx context.Context, g *run.Runs) {
	servers := []switchboard.ServerID{"a", "b", "c"}
	id := servers[w.IntN(len(servers))]
	switch w.IntN(5) {
	case 0:
		w.current = w.all[w.IntN(len(w.all))]
	case 1:
		w.changeOffer(id)
	case 2:
		delete(w.offers, id) // as if it had not answered since a restart
	case 3:
		if server := (switchboard.ToolID{Server: id}); w.ailing[server] == "" {
			w.ailing = map[switchboard.ToolID]health.State{server: []health.State{health.Lost, health.Quarantine}[w.IntN(2)]}
		} else {
			w.ailing = map[switchboard.ToolID]health.State{}
		}
		g.ReplaceServers(ctx, func(s *surface.Surface) []switchboard.ServerID {
			return LostServers(w.ailing, func(id switchboard.ToolID) bool { return w.ailing[switchboard.ToolID{Server: id.Server}] == "" }, s)
		})
		return
	default:
		return
	}
	w.rebuild()
	g.Rebind(ctx)
}

func (w *world) runOf(t *testing.T, g *run.Runs, v *listClient) *run.Run {
	r, err := g.Base(t.Context(), localUser, "t")
	if v.id != "" {
		r, err = g.Find(t.Context(), localUser, v.id)
	}
	if err != nil || r == nil || r.Err() != nil {
		return nil
	}
	return r
}

// After any edits, crashes, restarts and reloads, a client that has expanded nothing gets the same
// list as a new client that is bound to the same tools. A name that a client was ever shown leads
// to a selected tool: the tool that it was last shown for, or one that may stand in for it.
// Otherwise the client is told which tool serves the requirement, that none does, or that there is
// no such tool.
func TestNamesHoldInRandomHistories(t *testing.T) {
	law.Hold(t, law.OneDecision)
	all := loadAllConfigs(t)
	calls := map[surface.Way]int{}
	for seed := range uint64(*histories) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 17)), all: all, current: all[0], offers: map[switchboard.ServerID]map[string]string{}, ailing: map[switchboard.ToolID]health.State{}}
		runHistory(t, w, calls)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("calls by surface.Way: %v", calls)
	for way := range surface.Unmet + 1 {
		if calls[way] < *histories/100 {
			t.Errorf("%d calls went way %d: too few for a claim", calls[way], way)
		}
	}
}

func runHistory(t *testing.T, w *world, calls map[surface.Way]int) {
	ctx := t.Context()
	for _, id := range []switchboard.ServerID{"a", "b", "c"} {
		w.changeOffer(id)
	}
	w.rebuild()
	st := store.NewMemory()
	nothing := surface.New(surface.Input{})
	g := run.New(w, nothing, st)
	viewers := []*listClient{{name: "one", seen: map[string]surface.Entry{}}, {name: "two", seen: map[string]surface.Entry{}}}
	if r, err := g.Open(ctx, localUser, "t", ""); err == nil {
		viewers = append(viewers, &listClient{id: r.ID(), seen: map[string]surface.Entry{}})
	}
	for range 6 + w.IntN(6) {
		switch w.IntN(3) {
		case 0:
			w.change(ctx, g)
		case 1:
			if w.IntN(4) == 0 { // a restart
				g = run.New(w, nothing, st)
				if w.IntN(2) == 0 {
					w.rebuild()
				}
			}
		}
		v := viewers[w.IntN(len(viewers))]
		r := w.runOf(t, g, v)
		if r == nil {
			continue
		}
		if w.IntN(2) == 0 {
			w.list(t, g, r, v)
		}
		w.call(t, g, r, v, calls)
	}
}

// list lists the tools for the client, and compares with the list of a new client.
func (w *world) list(t *testing.T, g *run.Runs, r *run.Run, v *listClient) {
	s := r.Surface()
	modern := v.id == ""
	g.RecordListed(t.Context(), r, v.name, s.Table(modern))
	for e := range s.All() {
		if modern && e.Role != surface.Member || !modern && e.Usable() {
			v.seen[e.Name] = e
		}
	}
	fresh, err := run.New(w, surface.New(surface.Input{}), store.NewMemory()).Base(t.Context(), localUser, "t")
	if err != nil || len(s.Expanded()) > 0 {
		return
	}
	ids := func(s *surface.Surface) (ids []switchboard.ToolID) {
		for _, e := range s.Entries() {
			ids = append(ids, e.Tool.ID)
		}
		return ids
	}
	if slices.Equal(ids(s), ids(fresh.Surface())) && string(s.List(switchboard.Tools, modern)) != string(fresh.Surface().List(switchboard.Tools, modern)) {
		t.Errorf("a new client gets\n%s\nand the old one\n%s", fresh.Surface().List(switchboard.Tools, modern), s.List(switchboard.Tools, modern))
	}
}

// call calls a name that the client was shown, and checks where the call goes.
func (w *world) call(t *testing.T, g *run.Runs, r *run.Run, v *listClient, calls map[surface.Way]int) {
	names := slices.Sorted(maps.Keys(v.seen))
	if len(names) == 0 {
		return
	}
	name := names[w.IntN(len(names))]
	o, s := v.seen[name], r.Surface()
	way := s.Route(r.Seen(v.name), name, false)
	calls[way.Kind]++
	e := way.Entry
	if now, listed := s.Lookup(name); listed && now.Usable() && now.Tool.ID == o.Tool.ID && now.Tool.Digest == o.Tool.Digest && (way.Kind != surface.Forward || e.Tool.ID != o.Tool.ID) {
		t.Errorf("%s is still %s, as it was shown, but the call goes elsewhere", name, o.Tool.ID)
	}
	if way.Kind == surface.Forward || way.Kind == surface.Changed {
		if now, ok := s.Lookup(e.Name); !ok || now.Tool != e.Tool {
			t.Errorf("%s goes to %s, which is not selected", name, e.Tool.ID)
		}
	}
	switch way.Kind {
	case surface.Forward:
		same := e.Tool.ID == o.Tool.ID && (e.Tool.ID.Server == "" || e.Tool.Digest == o.Tool.Digest)
		shared := slices.ContainsFunc(o.Serves, func(key string) bool { return !strings.HasPrefix(key, "tools ") && slices.Contains(e.Serves, key) })
		if !same && (!shared || e.Tool.ID.Name != o.Tool.ID.Name || !(*contract.Set)(nil).MayStandIn(e.Tool, o.Tool)) {
			t.Errorf("%s was shown for %s and goes to %s, which may not stand in:\n%s\n%s", name, o.Tool.ID, e.Tool.ID, o.Tool.Definition, e.Tool.Definition)
		}
	case surface.Changed:
		g.RecordShown(t.Context(), r, v.name, surface.SightOf(e))
		v.seen[e.Name] = e
	case surface.Unmet:
		for _, other := range s.Entries() {
			if slices.ContainsFunc(o.Serves, func(key string) bool { return !strings.HasPrefix(key, "tools ") && slices.Contains(other.Serves, key) }) {
				t.Errorf("%s is unmet, and %s serves %q", name, other.Tool.ID, o.Serves)
			}
		}
	case surface.Unknown:
		d, err := w.state.DecideConfigured(t.Context(), localUser, "t", decide.Observed{}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		denied := false
		for _, out := range d.Outcomes {
			denied = denied || slices.ContainsFunc(out.Dropped, func(c decide.Dropped) bool { return c.Stage == policy.StageName && c.Tool.ID == o.Tool.ID })
			if slices.ContainsFunc(slices.Concat(out.Selected, out.Others), func(c decide.Candidate) bool { return c.Tool.ID == o.Tool.ID }) {
				t.Errorf("%s was shown for %s and is unknown, although policy lets the tool serve %s", name, o.Tool.ID, out.Requirement)
			}
		}
		if bound := !slices.Contains(w.state.Tenants["acme"].Servers, o.Tool.ID.Server); !denied && !bound {
			t.Errorf("%s was shown for %s and is unknown, although neither policy nor the tenant's bound has removed the tool", name, o.Tool.ID)
		}
	}
}
