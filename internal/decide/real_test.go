package decide_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// real is the catalog of real servers. A program made their capabilities: half of the servers state them in a manifest,
// and the operator states them for the others.
type real struct {
	sources  []catalog.Source
	overlays map[switchboard.ToolID]switchboard.Overlay
	tax      *switchboard.Taxonomy
	subset   map[switchboard.ServerID]bool
	offered  []switchboard.Capability // each combination of verb, resource and constraints that some tool has
}

type label struct {
	Verb        switchboard.Verb         `json:"verb"`
	Resource    switchboard.Resource     `json:"resource"`
	Constraints []switchboard.Constraint `json:"constraints"`
}

var readReal = sync.OnceValues(func() (*real, error) {
	dir := realdata.File("catalog")
	r := &real{overlays: map[switchboard.ToolID]switchboard.Overlay{}, subset: map[switchboard.ServerID]bool{}}
	ids := map[string]switchboard.ServerID{}
	err := realdata.Lines(filepath.Join(dir, "servers.jsonl.gz"), func(line []byte) error {
		var s struct {
			ID    string
			Tools []json.RawMessage
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		id := serverID(s.ID, len(ids))
		ids[s.ID] = id
		src := catalog.Source{Offer: switchboard.Offer{Server: id}, Class: []string{"", "free", "paid", "local"}[len(ids)%4]}
		for _, t := range s.Tools {
			src.Offer.Tools = append(src.Offer.Tools, bytes.Clone(t))
		}
		r.sources = append(r.sources, src)
		return nil
	})
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(filepath.Join(dir, "subset.json"))
	if err != nil {
		return nil, err
	}
	var subset []struct{ ID string }
	if err := json.Unmarshal(data, &subset); err != nil {
		return nil, err
	}
	for _, s := range subset {
		r.subset[ids[s.ID]] = true
	}
	return r, r.label(filepath.Join(dir, "capabilities-machine.jsonl.gz"), ids)
})

// label reads the capabilities, and gives all resources on the web one parent.
func (r *real) label(file string, ids map[string]switchboard.ServerID) error {
	parents := map[switchboard.Resource]switchboard.Resource{"web": ""}
	manifests := map[switchboard.ServerID]map[string]map[string][]label{}
	offered := map[string]switchboard.Capability{}
	err := realdata.Lines(file, func(line []byte) error {
		var at struct{ Server, Tool string }
		var l label
		if err := errors.Join(json.Unmarshal(line, &at), json.Unmarshal(line, &l)); err != nil {
			return err
		}
		slices.Sort(l.Constraints)
		parents[l.Resource] = ""
		c := switchboard.Capability{Verb: l.Verb, Resource: l.Resource, Constraints: l.Constraints}
		offered[c.String()] = c
		server := ids[at.Server]
		if strings.HasSuffix(string(server), "0") {
			m := manifests[server]
			if m == nil {
				m = map[string]map[string][]label{}
				manifests[server] = m
			}
			if m[at.Tool] == nil {
				m[at.Tool] = map[string][]label{}
			}
			m[at.Tool]["x-summit-capabilities"] = append(m[at.Tool]["x-summit-capabilities"], l)
			return nil
		}
		id := switchboard.ToolID{Server: server, Name: at.Tool}
		o := r.overlays[id]
		o.Capabilities = append(o.Capabilities, c)
		r.overlays[id] = o
		return nil
	})
	if err != nil {
		return err
	}
	for i, src := range r.sources {
		if tools, ok := manifests[src.Offer.Server]; ok {
			data, err := json.Marshal(map[string]any{"name": "x", "version": "1", "capabilities": map[string]any{"tools": tools}})
			if err != nil {
				return err
			}
			r.sources[i].Manifest = &catalog.Manifest{Name: "x", Data: data}
		}
	}
	for _, below := range []switchboard.Resource{"internet", "browser", "social"} {
		parents[below] = "web"
	}
	for _, s := range slices.Sorted(func(yield func(string) bool) {
		for s := range offered {
			if !yield(s) {
				return
			}
		}
	}) {
		r.offered = append(r.offered, offered[s])
	}
	r.tax, err = switchboard.NewTaxonomy(parents, nil)
	return err
}

// serverID makes an id from a name that is not one. n makes it unique, and a third of the ids end in 0.
func serverID(name string, n int) switchboard.ServerID {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	id := strings.Join(words, "-")
	return switchboard.ServerID(fmt.Sprintf("%s-%d%d", strings.TrimRight(id[:min(len(id), 24)], "-"), n, n%3))
}

func realCatalog(t testing.TB) *real {
	t.Helper()
	r, err := readReal()
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the catalog of real servers is not here (SWITCHBOARD_DATA says where): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// tenant returns one of a few tenants that rank differently.
func (r *real) tenant(n int, sources []catalog.Source) *switchboard.Tenant {
	t := &switchboard.Tenant{ID: switchboard.TenantID(fmt.Sprintf("tenant-%d", n)), ByName: true}
	for _, s := range sources {
		t.Servers = append(t.Servers, s.Offer.Server)
	}
	if n > 0 {
		t.Ranking.Classes = map[string]int{"free": 100 * n, "paid": 200, "local": 300}
	}
	if n > 1 {
		t.Ranking.Adjust = []switchboard.Adjust{{Server: "*1", By: 150}, {Server: "npm-*", By: -100}}
		t.Overlays = map[switchboard.ToolID]switchboard.Overlay{}
		for id, o := range r.overlays {
			if strings.HasPrefix(id.Name, "list_i") {
				o.Capabilities = []switchboard.Capability{{Verb: o.Capabilities[0].Verb, Resource: o.Capabilities[0].Resource, Constraints: []switchboard.Constraint{switchboard.RateLimited}}}
				t.Overlays[id] = o
			}
		}
	}
	if n > 2 {
		for i, c := range r.offered {
			if i%3 == 0 {
				row := switchboard.Prefer{Verb: c.Verb, Resource: c.Resource}
				for j := range 20 {
					row.Servers = append(row.Servers, r.sources[(i*7+j*31)%len(r.sources)].Offer.Server)
				}
				t.Ranking.Prefer = append(t.Ranking.Prefer, row)
			}
		}
	}
	return t
}

// tasks returns various tasks, the same each time.
func (r *real) tasks(n int) []*switchboard.Task {
	rnd := rand.New(rand.NewPCG(1, 2))
	tasks := make([]*switchboard.Task, n)
	for i := range tasks {
		task := &switchboard.Task{ID: switchboard.TaskID(fmt.Sprintf("task-%d", i))}
		for range 1 + rnd.IntN(5) {
			c := r.offered[rnd.IntN(len(r.offered))]
			req := switchboard.Requirement{
				Verb: c.Verb, Resource: c.Resource, Optional: rnd.IntN(2) > 0,
				Select: []switchboard.Select{"", switchboard.SelectServer, switchboard.SelectTool}[rnd.IntN(3)],
			}
			if rnd.IntN(3) > 0 {
				req.Constraints = c.Constraints
			}
			if p := r.tax.Parent(c.Resource); p != "" && rnd.IntN(2) == 0 {
				req.Resource = p
			}
			switch rnd.IntN(12) {
			case 0:
				id := r.sources[rnd.IntN(len(r.sources))].Offer.Server
				req = switchboard.Requirement{Tools: []string{string(id) + "/*", "*/search*"}, Optional: true}
			case 1:
				req = switchboard.Requirement{Tools: []string{"*/*_" + string("abcdefgh"[rnd.IntN(8)]) + "*"}, Constraints: req.Constraints, Optional: true}
			}
			task.Requirements = append(task.Requirements, req)
		}
		tasks[i] = task
	}
	return tasks
}

// pipeline returns the stages that a gateway would build for the tenant.
func (r *real) pipeline(tenant *switchboard.Tenant, s *catalog.Snapshot) (decide.Pipeline, decide.SnapshotDigests) {
	view := s.For(tenant)
	x := matcher.New(view, nil)
	return decide.Pipeline{x.Filter(), matcher.Prune(), ranking.New(tenant.Ranking, view.Named("*/*"))}, decide.SnapshotDigests{Catalog: view.Digest()}
}

const realTenants = 4

// decideAll decides every task, each for one of the tenants, in several goroutines, and returns the records.
func (r *real) decideAll(t *testing.T, snapshot *catalog.Snapshot, sources []catalog.Source, tasks []*switchboard.Task) []string {
	records := make([]string, len(tasks))
	var tenants [realTenants]*switchboard.Tenant
	var pipelines [realTenants]decide.Pipeline
	var digests [realTenants]decide.SnapshotDigests
	for n := range tenants {
		tenants[n] = r.tenant(n, sources)
		pipelines[n], digests[n] = r.pipeline(tenants[n], snapshot)
	}
	var all sync.WaitGroup
	const workers = 3
	for w := range workers {
		all.Go(func() {
			for i := w; i < len(tasks); i += workers {
				n := i % realTenants
				in := decide.Input{
					Tenant: tenants[n], Principal: switchboard.Principal{Tenant: tenants[n].ID, ID: "ann"}, Task: tasks[i], Snapshot: digests[n],
				}
				d, err := pipelines[n].Decide(t.Context(), in)
				if err != nil {
					t.Error(err)
					return
				}
				records[i] = string(d.Canonical())
			}
		})
	}
	all.Wait()
	return records
}

// shuffled returns the sources in another order.
func shuffled(rnd *rand.Rand, sources []catalog.Source) []catalog.Source {
	sources = slices.Clone(sources)
	rnd.Shuffle(len(sources), func(i, j int) { sources[i], sources[j] = sources[j], sources[i] })
	return sources
}

// shuffledTools returns the sources, each with its tools in another order.
func shuffledTools(rnd *rand.Rand, sources []catalog.Source) []catalog.Source {
	sources = slices.Clone(sources)
	for i := range sources {
		tools := slices.Clone(sources[i].Offer.Tools)
		rnd.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
		sources[i].Offer.Tools = tools
	}
	return sources
}

// repeat makes all decisions again in each turn, with the servers in another order. Every fourth time the servers also
// list their tools in another order, and the snapshot is built from nothing. Otherwise it is built from the last
// snapshot, as when servers come and go.
func (r *real) repeat(t *testing.T, turns <-chan uint64, sources []catalog.Source, tasks []*switchboard.Task, want []string) {
	var last *catalog.Snapshot
	for turn := range turns {
		rnd := rand.New(rand.NewPCG(turn, 3))
		sources = shuffled(rnd, sources)
		if turn%4 == 0 || last == nil {
			sources = shuffledTools(rnd, sources)
			last = catalog.Build(sources[:len(sources)/2], r.overlays, r.tax) // start with one half
		}
		last = last.Rebuild(sources, r.overlays, r.tax)
		got := r.decideAll(t, last, sources, tasks)
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("shuffle %d: %s is decided differently:\n%.300s\nand not\n%.300s", turn, tasks[i].ID, got[i], want[i])
				break
			}
		}
	}
}

func TestShufflesOfRealServersGiveTheSameDecisions(t *testing.T) {
	law.Hold(t, law.Deterministic)
	r := realCatalog(t)
	tasks := r.tasks(200)
	var subset []catalog.Source
	for _, s := range r.sources {
		if r.subset[s.Offer.Server] {
			subset = append(subset, s)
		}
	}
	ofSubset, ofAll := 1000, 20
	if testing.Short() || raceEnabled {
		ofSubset, ofAll = 20, 1
		t.Log("with -short or -race there are few shuffles")
	}
	for _, tt := range []struct {
		name    string
		sources []catalog.Source
		n       int
	}{
		{"subset", subset, ofSubset},
		{"everything", r.sources, ofAll},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			want := r.decideAll(t, catalog.Build(tt.sources, r.overlays, r.tax), tt.sources, tasks)
			var met, dropped int
			for _, rec := range want {
				if strings.Contains(rec, `"selected":[{"requirements"`) {
					met++
				}
				dropped += strings.Count(rec, `"missing"`)
			}
			if met < 50 || dropped == 0 {
				t.Errorf("the tasks say little: %d of %d select something, %d candidates are pruned", met, len(tasks), dropped)
			}
			turns := make(chan uint64)
			var all sync.WaitGroup
			for range runtime.GOMAXPROCS(0) {
				all.Go(func() { r.repeat(t, turns, tt.sources, tasks, want) })
			}
			for turn := range tt.n {
				turns <- uint64(turn)
			}
			close(turns)
			all.Wait()
			t.Logf("%d servers, %d shuffles × %d tasks in %v; %d tasks select something, %d candidates are pruned",
				len(tt.sources), tt.n, len(tasks), time.Since(began).Round(time.Millisecond), met, dropped)
		})
	}
}
