package acquire

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/registry"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A library is what a CatalogResearcher reads in a test.
type library struct {
	cfg      *config.Config
	tools    []*switchboard.Tool
	listings map[string]*registry.Listing // by the id of the registry; none means that it cannot be read
	mcpNames map[string]string            // by package; none means that npm cannot be asked about it
	asked    []string
}

func newLibrary(t *testing.T) *library {
	t.Helper()
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &library{
		cfg: &config.Config{
			Taxonomy: tax, Servers: []switchboard.Server{{ID: "files", Transport: switchboard.TransportStdio}, {ID: "vault"}},
			Tenants: map[switchboard.TenantID]*switchboard.Tenant{"acme": {ID: "acme", Servers: []switchboard.ServerID{"files"}}, "umbrella": {ID: "umbrella", Servers: []switchboard.ServerID{"vault"}}},
		},
		listings: map[string]*registry.Listing{}, mcpNames: map[string]string{},
	}
}

func (l *library) researcher() *CatalogResearcher {
	return NewCatalogResearcher(CatalogResearcherOptions{
		State: func(switchboard.TenantID) (*config.Config, []*switchboard.Tool) { return l.cfg, l.tools },
		Need: func(_ switchboard.TenantID, capability string) (*switchboard.Requirement, error) {
			verb, resource, _ := strings.Cut(capability, " ")
			return &switchboard.Requirement{Verb: switchboard.Verb(verb), Resource: switchboard.Resource(resource)}, nil
		},
		Read: func(_ context.Context, row switchboard.ServerRegistry) (*registry.Listing, error) {
			if listing := l.listings[row.ID]; listing != nil {
				return listing, nil
			}
			return nil, errors.New("registry " + row.ID + " cannot be read: connection refused")
		},
		Facts: func(_ context.Context, spec packagelock.Spec) (npm.PackageFacts, error) {
			l.asked = append(l.asked, spec.Name)
			name, ok := l.mcpNames[spec.Name]
			if !ok {
				return npm.PackageFacts{}, fmt.Errorf("npm has no package %s", spec)
			}
			return npm.PackageFacts{Spec: spec, Integrity: "sha512-" + spec.Name, McpName: name}, nil
		},
	})
}

// list lists servers in a registry.
func (l *library) list(id string, entries ...registry.Entry) {
	for i := range entries {
		entries[i].Registry = id
	}
	l.cfg.ServerRegistries = append(l.cfg.ServerRegistries, switchboard.ServerRegistry{ID: id})
	l.listings[id] = &registry.Listing{Registry: id, Entries: entries}
}

func graph(name, pkg string) registry.Entry {
	return registry.Entry{Name: name, Version: "1.0.0", Description: "Search a knowledge graph of facts.", Package: packagelock.Spec{Name: pkg, Version: "1.0.0"}}
}

// pick does research, and returns what would be tried.
func (l *library) pick(t *testing.T, only string) (chosen, why string, found []Prospect) {
	t.Helper()
	found, _, err := l.researcher().Registries(t.Context(), "acme", "search knowledge_graph", only)
	if err != nil {
		t.Fatal(err)
	}
	d := &Dossier{Capability: "search knowledge_graph", Only: only, FoundParts: FoundParts{Candidates: found}}
	if list := shortlist(d); len(list) > 0 {
		return list[0].Package, "", found
	}
	return "", whyNone(d), found
}

func readTool(server switchboard.ServerID, name string, labelled bool, a *switchboard.Admission) *switchboard.Tool {
	t := &switchboard.Tool{
		ID:           switchboard.ToolID{Server: server, Name: name},
		Definition:   []byte(`{"name":"` + name + `","description":"Read the complete contents of a file from the file system.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]},"annotations":{"readOnlyHint":true}}`),
		ToolStanding: switchboard.ToolStanding{Admission: a},
	}
	if labelled {
		t.Capabilities = []switchboard.Capability{{Verb: "read", Resource: "fs"}}
	}
	return t
}

// What is here already is named with the reason why nobody gets it. A tool outside of the tenant's bound has no name, and nothing more is said of it.
func TestToolsThatAreHereAreNamedWithinTheTenantsBound(t *testing.T) {
	suspended := &switchboard.Admission{State: switchboard.LifeSuspended, Why: "it fails missing"}
	deprecated := &switchboard.Admission{State: switchboard.LifeDeprecated, Why: "a person has deprecated it"}
	for name, tt := range map[string]struct {
		tool *switchboard.Tool
		want HereTool
	}{
		"without a label":                {readTool("files", "read_file", false, nil), HereTool{Tool: switchboard.ToolID{Server: "files", Name: "read_file"}, Why: "it has no label", Label: true}},
		"without a label, and suspended": {readTool("files", "read_file", false, suspended), HereTool{Tool: switchboard.ToolID{Server: "files", Name: "read_file"}, Why: "it has no label, and it is suspended: it fails missing"}},
		"suspended":                      {readTool("files", "read_file", true, suspended), HereTool{Tool: switchboard.ToolID{Server: "files", Name: "read_file"}, Why: "it is suspended: it fails missing"}},
		"deprecated":                     {readTool("files", "read_file", true, deprecated), HereTool{Tool: switchboard.ToolID{Server: "files", Name: "read_file"}, Why: "it is deprecated: a person has deprecated it"}},
		"kept out by a policy":           {readTool("files", "read_file", true, nil), HereTool{Tool: switchboard.ToolID{Server: "files", Name: "read_file"}, Why: "it gives the capability, and the task's policy or ranking keeps it out"}},
		"of another tenant":              {readTool("vault", "read_secret_file", true, suspended), HereTool{Why: "it is outside of the tenant's bound; an operator can add a server to the tenant's row"}},
		"of another tenant, no label":    {readTool("vault", "read_secret_file", false, nil), HereTool{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t)
			l.tools = []*switchboard.Tool{tt.tool}
			found, err := l.researcher().Here(t.Context(), "acme", "read fs")
			if err != nil {
				t.Fatal(err)
			}
			if tt.want.Why == "" {
				if len(found) != 0 {
					t.Errorf("it is told of: %+v", found)
				}
				return
			}
			if len(found) != 1 {
				t.Fatalf("found %+v", found)
			}
			got := found[0]
			if sure := got.Confidence; (sure >= minConfidence) != strings.HasPrefix(tt.want.Why, "it has no label") {
				t.Errorf("the confidence is %d", sure)
			}
			if got.Confidence = 0; got != tt.want {
				t.Errorf("found %+v, want %+v", got, tt.want)
			}
		})
	}
	l := newLibrary(t)
	for i := range 3 {
		l.tools = append(l.tools, readTool("vault", fmt.Sprint("read_secret_file_", i), true, nil))
	}
	if found, err := l.researcher().Here(t.Context(), "acme", "read fs"); err != nil || len(found) != 1 {
		t.Errorf("how many tools of another tenant there are is told: %+v, %v", found, err)
	}
	if found, err := l.researcher().Here(t.Context(), "acme", "search internet"); err != nil || len(found) != 0 {
		t.Errorf("for another capability: %+v, %v", found, err)
	}
}

// Of servers that look alike, the one that is tried is never an imitation, and never one of two that nothing tells apart.
func TestAServerThatLooksLikeAnotherIsTriedOnlyIfItIsTheOriginal(t *testing.T) {
	const alice, mallory = "io.github.alice/graph-archive", "io.github.mallory/graph-archvie"
	for name, tt := range map[string]struct {
		change func(l *library, a, m *registry.Entry)
		only   string
		want   string
		why    string
	}{
		"the other's package names the first":  {func(l *library, _, _ *registry.Entry) { l.mcpNames["graph-archvie"] = alice }, "", "graph-archive", ""},
		"both are honest":                      {func(*library, *registry.Entry, *registry.Entry) {}, "", "", "cannot be told from another one"},
		"both are honest, and one is named":    {func(*library, *registry.Entry, *registry.Entry) {}, alice, "graph-archive", ""},
		"the first one's package says nothing": {func(l *library, _, _ *registry.Entry) { l.mcpNames["graph-archive"] = "" }, "", "", "does not name its server"},
		"npm cannot be asked about the first":  {func(l *library, _, _ *registry.Entry) { delete(l.mcpNames, "graph-archive") }, "", "", "npm has no package"},
		"the first cannot be tried":            {func(_ *library, a, _ *registry.Entry) { a.Obstacle = "it needs Docker" }, "", "", "it needs Docker"},
		"the first does something else":        {func(_ *library, a, _ *registry.Entry) { a.Description = "Tells the weather." }, "", "", "cannot be told from another one"},
		"neither package is its own": {func(l *library, _, _ *registry.Entry) {
			l.mcpNames["graph-archvie"], l.mcpNames["graph-archive"] = "io.github.x/y", "io.github.x/y"
		}, "", "", "belongs to \"io.github.x/y\""},
		"the other one owns its scope": {func(l *library, _, m *registry.Entry) {
			m.Name, m.Package.Name = "io.github.a1ice/graph-archive", "@a1ice/graph-archive"
			l.mcpNames[m.Package.Name] = m.Name
		}, "", "", "cannot be told from another one"},
		"the other one owns its scope, and the first is named": {func(l *library, _, m *registry.Entry) {
			m.Name, m.Package.Name = "io.github.a1ice/graph-archive", "@a1ice/graph-archive"
			l.mcpNames[m.Package.Name] = m.Name
		}, alice, "graph-archive", ""},
		"the other one owns its scope, and its package names the first": {func(l *library, _, m *registry.Entry) {
			m.Name, m.Package.Name = "io.github.a1ice/graph-archive", "@a1ice/graph-archive"
			l.mcpNames[m.Package.Name] = alice
		}, "", "", "is not taken"},
		"the names were not compared": {func(l *library, a, m *registry.Entry) {
			a.Remarks = []registry.Remark{{Registry: "corp", Entry: a.Name, Version: a.Version, Rule: registry.RuleUnchecked, Text: "it was not compared"}}
			l.mcpNames["graph-archvie"] = alice
		}, "", "", "it was not compared; an officer can name it"},
		"a configured one looks like the first, too": {func(l *library, _, _ *registry.Entry) {
			l.cfg.Servers = append(l.cfg.Servers, switchboard.Server{ID: "graph-archive"})
		}, "", "", "cannot be told from another one"},
		"the imitation of a configured one, named": {func(l *library, _, _ *registry.Entry) {
			l.cfg.Servers = append(l.cfg.Servers, switchboard.Server{ID: "graph-archive"})
		}, mallory, "", "which is configured here"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLibrary(t)
			l.mcpNames["graph-archive"], l.mcpNames["graph-archvie"] = alice, mallory
			a, m := graph(alice, "graph-archive"), graph(mallory, "graph-archvie")
			tt.change(l, &a, &m)
			l.list("corp", m, a)
			got, why, found := l.pick(t, tt.only)
			if got != tt.want || !strings.Contains(why, tt.why) {
				t.Errorf("%q would be tried, and %q\n%+v", got, why, found)
			}
			if slices.ContainsFunc(found, func(c Prospect) bool { return len(c.Findings) == 0 }) {
				t.Errorf("a person does not read that it looks like another one: %+v", found)
			}
		})
	}
}

// npm is asked about a few servers. One that it was not asked about is not tried, however many liars stand before it.
func TestAServerWhosePackageWasNotCheckedIsNotTried(t *testing.T) {
	l := newLibrary(t)
	var all []registry.Entry
	for _, name := range []string{"alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf"} {
		all = append(all, graph("io.github.mallory/"+name+"-graphs", name+"-package"))
		l.mcpNames[name+"-package"] = "io.github.alice/" + name
	}
	l.list("corp", all...)
	if got, why, found := l.pick(t, ""); got != "" || len(l.asked) != maxAsked || !strings.Contains(found[6].Why, "npm is asked about 5 servers at most") {
		t.Errorf("%q would be tried, %q, after %q\n%+v", got, why, l.asked, found)
	}
	l.asked, l.mcpNames["golf-package"] = nil, "io.github.mallory/golf-graphs"
	if got, why, _ := l.pick(t, "io.github.mallory/golf-graphs"); got != "golf-package" || l.asked[0] != "golf-package" {
		t.Errorf("the one that an officer names: %q, %q, after %q", got, why, l.asked)
	}
}

// What a registry lists under the name of another registry's server is not tried in its place.
func TestTheServerThatIsTriedIsTheOneThatPassedTheGate(t *testing.T) {
	const name = "io.github.alice/graph-archive"
	l := newLibrary(t)
	l.mcpNames["graph-archive"], l.mcpNames["evil"] = name, "io.github.mallory/evil"
	l.list("first", graph(name, "evil"))
	l.list("second", graph(name, "graph-archive"))
	p := newPlant(t)
	found, _, err := l.researcher().Registries(t.Context(), "acme", "search knowledge_graph", "")
	if err != nil || len(found) != 2 || found[0].Package != "evil" {
		t.Fatalf("found %+v, %v", found, err)
	}
	p.found = found
	d := p.walk(agent)
	if d.Status != Waiting || p.started.Package != "graph-archive" || d.Candidates[0].Package != "graph-archive" || len(d.Candidates) != 2 {
		t.Errorf("%s was tried: %s", p.started.Package, d.Text(now()))
	}
	if text := d.Text(now()); !strings.Contains(text, "* "+name+" graph-archive@1.0.0") || !strings.Contains(text, "  "+name+" evil@1.0.0") || !strings.Contains(text, "not taken: the package evil@1.0.0 says that it belongs to \"io.github.mallory/evil\"") {
		t.Errorf("a person reads\n%s", text)
	}
}

func TestARegistryThatCannotBeReadStopsNothingElse(t *testing.T) {
	l := newLibrary(t)
	l.cfg.ServerRegistries = []switchboard.ServerRegistry{{ID: "down"}}
	l.mcpNames["graph-archive"] = "io.github.alice/graph-archive"
	l.list("corp", graph("io.github.alice/graph-archive", "graph-archive"))
	l.listings["corp"].Cut, l.listings["corp"].RefusedCount, l.listings["corp"].Refused = "it has more pages", 2, []registry.RefusedEntry{{Where: "page 1, entry 3", Reason: "its name is not valid"}}
	found, notices, err := l.researcher().Registries(t.Context(), "acme", "search knowledge_graph", "")
	want := []string{"registry down cannot be read: connection refused", "registry corp: it has more pages", "registry corp: entries that were refused: 2; the first, page 1, entry 3: its name is not valid"}
	if err != nil || len(found) != 1 || found[0].Why != "" || !slices.Equal(notices, want) {
		t.Errorf("found %+v, %q, %v", found, notices, err)
	}
	l = newLibrary(t)
	if found, notices, err := l.researcher().Registries(t.Context(), "acme", "search knowledge_graph", ""); err != nil || len(found)+len(notices)+len(l.asked) != 0 {
		t.Errorf("without a registry: %+v, %q, %v; npm was asked about %q", found, notices, err, l.asked)
	}
}

// What a server needs is named, and never given: one that needs a secret is not tried, not even if an officer names it, and npm is not asked about it. A person reads the names of its secrets
// and of its hosts.
func TestAServerThatNeedsASecretIsNotTriedAndItsNeedsAreNamed(t *testing.T) {
	const name = "io.github.alice/graph-archive"
	const why = "it needs GRAPH_TOKEN, GRAPH_USER, and Switchboard proposes no server that gets secrets; an operator can add it: switchboard server add"
	hosts := []string{"api.graphs.example:443", "eu.graphs.example:8443"}
	for what, tt := range map[string]struct {
		change func(*registry.Entry)
		only   string
		tried  string
		why    string
		reads  []string // lines of the dossier
		never  string
	}{
		"it needs secrets": {func(e *registry.Entry) { e.Secrets = []string{"GRAPH_TOKEN", "GRAPH_USER"} }, "", "", why, []string{"    it needs: GRAPH_TOKEN, GRAPH_USER", "    not taken: " + why}, "hosts:"},
		"it needs secrets, and an officer names it": {
			func(e *registry.Entry) { e.Secrets = []string{"GRAPH_TOKEN", "GRAPH_USER"} }, name, "", why, []string{"    it needs: GRAPH_TOKEN, GRAPH_USER", "    not taken: " + why}, "hosts:",
		},
		"it needs a secret, and it is no program": {
			func(e *registry.Entry) {
				e.Secrets, e.Obstacle = []string{"GRAPH_TOKEN"}, "a hosted server cannot be tried in walls"
			}, "", "", "a hosted server cannot be tried in walls", []string{"    it needs: GRAPH_TOKEN", "    not taken: a hosted server cannot be tried in walls"}, "hosts:",
		},
		"it names hosts":          {func(e *registry.Entry) { e.Hosts = hosts }, "", "graph-archive", "", []string{"    hosts: api.graphs.example:443, eu.graphs.example:8443"}, "not taken"},
		"it can get variables":    {func(e *registry.Entry) { e.Variables = []string{"GRAPH_SIZE"} }, "", "graph-archive", "", nil, "GRAPH_SIZE"},
		"it needs nothing of all": {func(*registry.Entry) {}, "", "graph-archive", "", nil, "it needs"},
		"it needs a secret, and names hosts": {
			func(e *registry.Entry) { e.Secrets, e.Hosts = []string{"GRAPH_TOKEN", "GRAPH_USER"}, hosts }, "", "", why,
			[]string{"    hosts: api.graphs.example:443, eu.graphs.example:8443", "    it needs: GRAPH_TOKEN, GRAPH_USER", "    not taken: " + why},
			"* ",
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLibrary(t)
			l.mcpNames["graph-archive"] = name
			e := graph(name, "graph-archive")
			tt.change(&e)
			l.list("corp", e)
			got, because, found := l.pick(t, tt.only)
			if got != tt.tried || !strings.Contains(because, tt.why) || (len(l.asked) > 0) != (tt.tried != "") {
				t.Errorf("%q would be tried, and %q; npm was asked about %q", got, because, l.asked)
			}
			p := newPlant(t)
			p.found = found
			d, err := p.ask(t.Context(), "acme", "search knowledge_graph", agent, "a reason", tt.only)
			if err == nil {
				err = p.WorkAll(t.Context())
			}
			if err == nil {
				d, err = p.Show(t.Context(), lea, d.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			if (d.Status == Waiting) != (tt.tried != "") || p.started.Package != tt.tried || d.Status == Stopped && d.Phase != Research {
				t.Errorf("it is %s at %s, and %q was started", d.Status, d.Phase, p.started.Package)
			}
			text := d.Text(now())
			for _, line := range tt.reads {
				if !strings.Contains(text, "\n"+line+"\n") {
					t.Errorf("a person does not read %q:\n%s", line, text)
				}
			}
			if strings.Contains(text, tt.never) {
				t.Errorf("a person reads %q:\n%s", tt.never, text)
			}
		})
	}
}
