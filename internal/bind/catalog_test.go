package bind

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/realdata"
	"github.com/summit-switchboard/switchboard/test/system"
)

var shuffles = flag.Int("shuffles", 3, "how `often` TestNoOrderChangesWhatContractsDecide shuffles; 1000 is what is promised")

const (
	contracts = 200
	providers = 60
)

// A realCatalog is the catalog of real servers, with labels as the operator's overlays.
type realCatalog struct {
	offers   []switchboard.Offer
	overlays map[switchboard.ToolID]switchboard.Overlay
	offered  []switchboard.Capability // that some label names, sorted
	tax      *switchboard.Taxonomy
	serving  []int // the offers of the servers that provide capabilities
}

var readCatalog = sync.OnceValues(func() (*realCatalog, error) {
	servers, err := realdata.Servers()
	if err != nil {
		return nil, err
	}
	labels, err := realdata.Labels()
	if err != nil {
		return nil, err
	}
	r := &realCatalog{overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	ids := map[string]switchboard.ServerID{}
	for i, s := range servers {
		o := switchboard.Offer{Server: switchboard.ServerID(fmt.Sprint("s", i)), Version: "1", Tools: [][]byte{}}
		ids[s.ID] = o.Server
		for _, t := range s.Tools {
			o.Tools = append(o.Tools, t)
		}
		if 5 <= len(o.Tools) && len(o.Tools) <= 30 && len(r.serving) < providers && plainTool(o) >= 0 {
			r.serving = append(r.serving, i)
		}
		r.offers = append(r.offers, o)
	}
	resources := map[switchboard.Resource]switchboard.Resource{}
	offered := map[string]switchboard.Capability{}
	for _, l := range labels {
		c := switchboard.Capability{Verb: switchboard.Verb(l.Verb), Resource: switchboard.Resource(l.Resource)}
		for _, k := range l.Constraints {
			c.Constraints = append(c.Constraints, switchboard.Constraint(k))
		}
		slices.Sort(c.Constraints)
		resources[c.Resource], offered[c.String()] = "", c
		id := switchboard.ToolID{Server: ids[l.Server], Name: l.Tool}
		o := r.overlays[id]
		o.Capabilities = append(o.Capabilities, c)
		r.overlays[id] = o
	}
	for _, name := range slices.Sorted(maps.Keys(offered)) {
		r.offered = append(r.offered, offered[name])
	}
	r.tax, err = switchboard.NewTaxonomy(resources, nil)
	return r, err
})

// plainTool returns the index of a tool that needs no argument; -1 if the server has none.
func plainTool(o switchboard.Offer) int {
	return slices.IndexFunc(o.Tools, func(t []byte) bool {
		schema, ok := wire.Field(t, "inputSchema")
		_, requires := wire.Field(schema, "required")
		return ok && !requires
	})
}

func nameOf(tool []byte) string {
	raw, _ := wire.Field(tool, "name")
	name, _ := wire.String(raw)
	return name
}

// A contractWorld is a configuration with contracts, whose rows can be shuffled, and the servers' offers.
type contractWorld struct {
	*realCatalog
	offers   []switchboard.Offer
	versions []*capability.ContractVersion
	rows     []capability.Boundary
	provides []capability.ProviderRow
	tasks    map[switchboard.TaskID]*switchboard.Task
	states   decide.Atoms
}

// newContractWorld returns the world with 200 contracts and 60 providers: of all servers, or of those that provide.
func newContractWorld(t testing.TB, all bool) *contractWorld {
	t.Helper()
	r, err := readCatalog()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the catalog of real servers is not here (SWITCHBOARD_DATA says where): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	w := &contractWorld{realCatalog: r, offers: r.offers, tasks: map[switchboard.TaskID]*switchboard.Task{}, states: decide.Atoms{}}
	if !all {
		w.offers = nil
		for _, i := range r.serving {
			w.offers = append(w.offers, r.offers[i])
		}
	}
	for i := range 20 {
		w.states[fmt.Sprintf("key.k%02d", i)] = []capability.State{capability.Fresh, capability.Fresh, capability.Stale, capability.Unknown, capability.Red}[i%5]
	}
	w.rows = []capability.Boundary{
		{ID: "ask_for_money", Severity: capability.Hard, SideEffectsAny: []string{capability.CostsMoney}, Decision: capability.RequireApproval, Who: []string{"finance"}},
		{ID: "hands_off", Severity: capability.Hard, IDMatches: `cap\.c.3`, Exceptions: []string{"cap.c13"}, Decision: capability.Deny},
		{ID: "careful", Severity: capability.Soft, RiskLevels: []string{"high"}, Decision: capability.Deny},
	}
	for i := range contracts / 2 {
		w.addContract(t, i)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 12 {
		task := &switchboard.Task{ID: switchboard.TaskID(fmt.Sprint("task-", i))}
		for range 1 + i%5 {
			task.Requirements = append(task.Requirements, switchboard.Requirement{Verb: "read", Resource: "fs", Capability: fmt.Sprintf("cap.c%02d%s", rnd.IntN(contracts/2), []string{"", "@^1", "@1.0.0"}[rnd.IntN(3)]), Optional: true})
		}
		c := r.offered[rnd.IntN(len(r.offered))]
		task.Requirements = append(task.Requirements, switchboard.Requirement{Verb: c.Verb, Resource: c.Resource, Select: switchboard.SelectTool, Optional: true})
		w.tasks[task.ID] = task
	}
	return w
}

// addContract adds two versions of a capability, and who provides them. One capability in four needs no arguments, so that five
// servers provide it. The others have the schema of a real tool. One in ten has a row for a server that does not provide it.
func (w *contractWorld) addContract(t testing.TB, i int) {
	t.Helper()
	id := fmt.Sprintf("cap.c%02d", i)
	row := func(server int, name string) {
		o := w.realCatalog.offers[w.serving[server%providers]]
		w.provides = append(w.provides, capability.ProviderRow{
			Server: o.Server, Ref: capability.Ref{ID: id, Range: "^1"}, Position: fmt.Sprintf("overlays/%s.yaml:%d:3", o.Server, i+1),
			Tools: map[string]*switchboard.DeclaredEquivalent{"do": {Tool: switchboard.ToolID{Server: o.Server, Name: name}}},
		})
	}
	var input []byte
	if i%4 == 0 {
		input = []byte(`{"type":"object","additionalProperties":false}`)
		for j := range 5 {
			o := w.realCatalog.offers[w.serving[(i+7*j)%providers]]
			row(i+7*j, nameOf(o.Tools[plainTool(o)]))
		}
	} else {
		o := w.realCatalog.offers[w.serving[i%providers]]
		tool := o.Tools[i%len(o.Tools)]
		input, _ = wire.Field(tool, "inputSchema")
		row(i, nameOf(tool))
	}
	if i%10 == 9 {
		row(i+3, "no such tool")
	}
	for minor := range 2 {
		tool, err := capability.NewTool("do", fmt.Sprintf("Does %d, as of %d.", i, minor), input, nil, capability.Hints{})
		if err != nil {
			t.Fatal(err)
		}
		v := &capability.ContractVersion{
			ID: id, Number: semver.New(1, uint64(minor), 0, "", ""), Status: capability.Active, Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{switchboard.ReadOnly},
			Tools: []capability.ContractTool{tool}, Permissions: []string{"fs:read"}, Atoms: []string{fmt.Sprintf("key.k%02d", i%20)}, Digest: canonical.Sum(tool.Definition),
		}
		switch {
		case i%9 == 0:
			v.Facts.SideEffects = []string{capability.CostsMoney}
		case i%7 == 0:
			v.Facts.RiskLevel = "high"
		case i%11 == 0:
			v.Permissions = append(v.Permissions, "not:granted")
		}
		if i%5 == 0 {
			v.Capabilities = []capability.Ref{{ID: fmt.Sprintf("cap.c%02d", i+1)}}
		}
		w.versions = append(w.versions, v)
	}
}

// realRules are what all policies of a contractWorld share.
var realRules = sync.OnceValues(func() (*policy.Layer, error) {
	return policy.Compile(policy.Operator, policysource.Shipped())
})

var realEngine = policy.NewEngine(time.Minute, 0)

// input returns the input of a State. All lists are in the order of w.
func (w *contractWorld) input(t testing.TB) Input {
	t.Helper()
	atoms := map[string]*capability.Atom{}
	for id := range w.states {
		atoms[id] = &capability.Atom{ID: id, Kind: "key", Probe: capability.AtomProbe{Env: "X"}}
	}
	registry, err := capability.New(w.versions, atoms, w.rows, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Taxonomy: w.tax, Overlays: w.overlays, Registry: registry, Providers: w.provides, Tenants: map[switchboard.TenantID]*switchboard.Tenant{}}
	acme := &switchboard.Tenant{ID: "acme", ByName: true, Permissions: []string{"fs:read"}, Tasks: maps.Clone(w.tasks)}
	for _, o := range w.offers {
		c.Servers = append(c.Servers, switchboard.Server{ID: o.Server})
		acme.Servers = append(acme.Servers, o.Server)
	}
	slices.Sort(acme.Servers)
	c.Tenants[acme.ID] = acme
	in := Input{Config: c, Operator: policysource.Shipped(), Local: acme.ID, StatusTool: &switchboard.Tool{}, Offers: w.offers}
	operator, err := realRules()
	if err != nil {
		t.Fatal(err)
	}
	if in.Boundaries, err = boundary.Layer(registry.Boundaries); err != nil {
		t.Fatal(err)
	}
	rules, err := realEngine.NewPolicy(acme, in.Boundaries, operator, nil)
	if err != nil {
		t.Fatal(err)
	}
	in.Policies = map[switchboard.TenantID]*policy.Policy{acme.ID: rules.Memoized()}
	return in
}

// A contractWorld is an AtomSource.
func (w *contractWorld) StatesWithin(time.Duration, ...string) map[string]capability.State {
	return w.states
}
func (w *contractWorld) Due(context.Context, ...string) {}
func (w *contractWorld) Want(...string)                 {}

// outcome returns the providers with their faults, all verdicts, and the decision and the surface of each task, as text.
func (w *contractWorld) outcome(t testing.TB, s *State) []string {
	t.Helper()
	p := s.Tenants["acme"].Providers
	out := []string{string(p.Digest()), fmt.Sprint(p.Faults())}
	for _, version := range slices.Sorted(maps.Keys(p.Tools())) {
		for _, tool := range p.Tools()[version] {
			out = append(out, fmt.Sprint(version, tool.ID, tool.Digest))
		}
	}
	verdicts, err := s.ResolveCapabilities(t.Context(), ResolveQuery{Tenant: "acme"}, w)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range verdicts {
		out = append(out, fmt.Sprintf("%+v", v))
	}
	for _, id := range slices.Sorted(maps.Keys(w.tasks)) {
		var decision []byte
		shown, err := s.bindTask(t.Context(), localUser, id, run.Before{}, decide.Observed{Atoms: w.states}, nil, nil, func(_ *Tenant, d *decide.Decision, _ error) func() Record {
			decision = d.Canonical()
			return func() Record { return Record{} }
		})
		if err != nil {
			t.Fatal(id, err)
		}
		out = append(out, string(decision), string(shown.List(switchboard.Tools, true)), string(shown.List(switchboard.Tools, false)))
	}
	return out
}

// shuffle returns w with everything in another order.
func (w *contractWorld) shuffle(rnd *rand.Rand) *contractWorld {
	s := *w
	s.offers, s.versions, s.rows, s.provides = shuffled(rnd, w.offers), shuffled(rnd, w.versions), shuffled(rnd, w.rows), shuffled(rnd, w.provides)
	if rnd.IntN(4) == 0 {
		for i := range s.offers {
			s.offers[i].Tools = shuffled(rnd, s.offers[i].Tools)
		}
	}
	return &s
}

func shuffled[T any](rnd *rand.Rand, list []T) []T {
	list = slices.Clone(list)
	rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// The order of rows, versions, servers, tools and map keys changes no byte of a decision, of a set of providers, of a verdict or
// of a surface. Most shuffles are of the servers that provide capabilities, because the whole catalog takes longer: it gets one
// shuffle in fifty. A State takes the unchanged parts of the State before; one in twenty is built from nothing.
func TestNoOrderChangesWhatContractsDecide(t *testing.T) {
	law.Hold(t, law.Deterministic)
	for _, tt := range []struct {
		name string
		all  bool
		n    int
	}{
		{"the servers that provide", false, *shuffles},
		{"the whole catalog", true, *shuffles / 50},
	} {
		if tt.n == 0 {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			if testing.Short() {
				tt.n = min(tt.n, 5)
			}
			w := newContractWorld(t, tt.all)
			s := NewState(w.input(t), nil)
			want := w.outcome(t, s)
			checkWorld(t, s, want)
			began := time.Now()
			for seed := range tt.n {
				now := w.shuffle(rand.New(rand.NewPCG(uint64(seed), 5)))
				was := s
				if seed%20 == 0 {
					was = nil
				}
				s = NewState(now.input(t), was)
				got := now.outcome(t, s)
				for i := range max(len(got), len(want)) {
					if i >= len(got) || i >= len(want) || got[i] != want[i] {
						t.Fatalf("shuffle %d gives\n%.600s\nand not\n%.600s", seed, got[min(i, len(got)-1)], want[min(i, len(want)-1)])
					}
				}
			}
			t.Logf("%d servers, %d shuffles in %v", len(w.offers), tt.n, time.Since(began).Round(time.Millisecond))
		})
	}
}

// checkWorld fails if the world has too little in it for a claim.
func checkWorld(t *testing.T, s *State, outcome []string) {
	t.Helper()
	p := s.Tenants["acme"].Providers
	all := strings.Join(outcome, "\n")
	if len(p.Tools()) < contracts*3/5 || len(p.Faults()) == 0 {
		t.Errorf("of %d contracts, %d are provided; faults: %d: %v", contracts, len(p.Tools()), len(p.Faults()), p.Faults())
	}
	servers := map[switchboard.ServerID]bool{}
	for _, tools := range p.Tools() {
		for _, tool := range tools {
			servers[tool.ID.Server] = true
		}
	}
	t.Logf("%d contracts are provided by %d servers; %d faults", len(p.Tools()), len(servers), len(p.Faults()))
	for _, part := range []string{"policy:hands_off", "key.k04: red", "approval:finance"} {
		if !strings.Contains(all, part) {
			t.Errorf("nothing says %q", part)
		}
	}
}

// loop measures f, with its processor time beside the time by the clock.
func loop(b *testing.B, f func()) {
	b.Helper()
	b.ReportAllocs()
	began := system.ProcessorTime()
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64((system.ProcessorTime()-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// BenchmarkNewState builds the State of the whole catalog with 200 contracts and 60 providers: from nothing, and after one row has
// changed.
func BenchmarkNewState(b *testing.B) {
	w := newContractWorld(b, true)
	in := w.input(b)
	b.Run("from nothing", func(b *testing.B) {
		loop(b, func() { NewState(in, nil) })
	})
	was := NewState(in, nil)
	w.provides = w.provides[1:]
	changed := w.input(b)
	b.Run("a row changed", func(b *testing.B) {
		loop(b, func() { NewState(changed, was) })
	})
	without := in
	config := *in.Config
	config.Registry, config.Providers = &capability.Registry{}, nil
	without.Config = &config
	b.Run("from nothing without contracts", func(b *testing.B) {
		loop(b, func() { NewState(without, nil) })
	})
}

// BenchmarkResolveCapabilities asks for 200 capabilities at once, with three boundaries and twenty atoms.
func BenchmarkResolveCapabilities(b *testing.B) {
	w := newContractWorld(b, true)
	s := NewState(w.input(b), nil)
	var refs []string
	for _, v := range w.versions {
		if v.GrantedTo([]string{"fs:read"}, nil) {
			refs = append(refs, v.Name())
		}
	}
	for i := 0; len(refs) < contracts; i++ {
		refs = append(refs, refs[i])
	}
	loop(b, func() {
		all, err := s.ResolveCapabilities(b.Context(), ResolveQuery{Tenant: "acme", Capabilities: refs}, w)
		if err != nil || len(all) != contracts {
			b.Fatal(len(all), err)
		}
	})
}

// BenchmarkChoose decides for a task with five requirements, of capabilities and of verb and resource. The policy's answers are
// remembered, so that its evaluation is not measured, and asked each time.
func BenchmarkChoose(b *testing.B) {
	w := newContractWorld(b, true)
	by := map[string]*switchboard.Task{"capability": {ID: "c"}, "verb and resource": {ID: "v"}}
	for i := range 5 {
		by["capability"].Requirements = append(by["capability"].Requirements, switchboard.Requirement{Verb: "read", Resource: "fs", Capability: fmt.Sprintf("cap.c%02d@^1", i*4), Optional: true})
		c := w.offered[i*len(w.offered)/5]
		by["verb and resource"].Requirements = append(by["verb and resource"].Requirements, switchboard.Requirement{Verb: c.Verb, Resource: c.Resource, Constraints: c.Constraints, Optional: true})
	}
	s := NewState(w.input(b), nil)
	for _, name := range slices.Sorted(maps.Keys(by)) {
		b.Run(name, func(b *testing.B) {
			candidates := 0
			loop(b, func() {
				d, err := s.Tenants["acme"].RunPipeline(b.Context(), localUser, by[name], decide.Observed{Atoms: w.states}, time.Time{})
				if err != nil {
					b.Fatal(err)
				}
				candidates = 0
				for i := range d.Outcomes {
					candidates += d.Outcomes[i].Considered()
				}
			})
			b.ReportMetric(float64(candidates), "candidates")
		})
	}
}
