package annotate_test

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// taxonomyOfLabels has the resources that the labels of the data use.
func taxonomyOfLabels(t testing.TB) *switchboard.Taxonomy {
	parents := map[switchboard.Resource]switchboard.Resource{}
	for name := range strings.FieldsSeq(`blockchain browser calendar chat ci_cd cloud compute containers crm database document email host identity
		issue_tracker maps market_data media ml_model observability other payments reference security social vcs weather`) {
		parents[switchboard.Resource(name)] = ""
	}
	taxonomy, err := switchboard.NewTaxonomy(parents, nil)
	if err != nil {
		t.Fatal(err)
	}
	return taxonomy
}

// readCatalog reads the catalog of the data, once for all tests.
var readCatalog = sync.OnceValues(realdata.Servers)

// realServers returns the catalog of the data.
func realServers(t testing.TB) []annotate.ToolServer {
	real, err := readCatalog()
	if err != nil {
		t.Skipf("the data of real servers is absent, so nothing about suggestions for them was tested: %v", err)
	}
	var all []annotate.ToolServer
	for _, s := range real {
		one := annotate.ToolServer{Name: s.Name}
		for _, definition := range s.Tools {
			var named struct{ Name string }
			if err := json.Unmarshal(definition, &named); err != nil {
				t.Fatal(err)
			}
			one.Tools = append(one.Tools, annotate.DefinedTool{Name: named.Name, Definition: definition, Digest: canonical.Sum(definition)})
		}
		all = append(all, one)
	}
	return all
}

// A handLabel is what a person says about a tool.
type handLabel struct {
	Server, Tool string
	Verb         switchboard.Verb
	Resource     switchboard.Resource
	Constraints  []switchboard.Constraint
	Also         struct{ Resource []switchboard.Resource } `json:"also_acceptable"`
}

// A figure counts how many suggestions fit the labels of hand.
type figure struct {
	tools, verb, strict, resource, none  int
	readonly, readonlyHit, readonlyWrong int
	human, humanHit, humanWrong          int
}

func (f *figure) add(g annotate.ToolSuggestion, l *handLabel) {
	f.tools++
	carries := func(c switchboard.Constraint) (label, suggested int) {
		if slices.Contains(l.Constraints, c) {
			label = 1
		}
		if g.Capability != nil && slices.Contains(g.Capability.Constraints, c) {
			suggested = 1
		}
		return label, suggested
	}
	label, suggested := carries(switchboard.ReadOnly)
	f.readonly, f.readonlyHit, f.readonlyWrong = f.readonly+label, f.readonlyHit+label*suggested, f.readonlyWrong+(1-label)*suggested
	label, suggested = carries(switchboard.HumanInTheLoop)
	f.human, f.humanHit, f.humanWrong = f.human+label, f.humanHit+label*suggested, f.humanWrong+(1-label)*suggested
	switch {
	case g.Capability == nil:
		f.none++
		return
	case g.Capability.Resource == l.Resource:
		f.strict++
		f.resource++
	case slices.Contains(l.Also.Resource, g.Capability.Resource):
		f.resource++
	}
	if g.Capability.Verb == l.Verb {
		f.verb++
	}
}

func (f *figure) String() string {
	share := func(n int) float64 { return float64(n) / float64(f.tools) }
	return fmt.Sprintf("%3d tools: verb %.3f, resource %.3f (strict %.3f), no suggestion %d; readonly found %d of %d, wrong %d; human_in_the_loop found %d of %d, wrong %d",
		f.tools, share(f.verb), share(f.resource), share(f.strict), f.none, f.readonlyHit, f.readonly, f.readonlyWrong, f.humanHit, f.human, f.humanWrong)
}

// row returns the figure as a row of the table in docs/labels.md.
func (f *figure) row(name string) string {
	share := func(n int) string { return strings.TrimPrefix(fmt.Sprintf("%.3f", float64(n)/float64(f.tools)), "0") }
	return fmt.Sprintf("| %s | %d | %s | %s | %d of %d | %d |\n", name, f.tools, share(f.verb), share(f.resource), f.readonlyHit, f.readonly, f.readonlyWrong)
}

// A tool without a suggestion counts as wrong. The vocabulary was written with the labels of one half of the servers in
// sight; the other half shows how it does on servers that it was not written for.
func TestSuggestionsFitLabelsMadeByHand(t *testing.T) {
	servers := realServers(t)
	named, unnamed := map[string][]annotate.ToolSuggestion{}, map[string][]annotate.ToolSuggestion{}
	ids, err := readCatalog()
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for i, s := range ids {
		index[s.ID] = i
	}
	taxonomy := taxonomyOfLabels(t)
	var all, first, second, nameless figure
	err = realdata.Lines(realdata.File("labels", "dev.jsonl"), func(line []byte) error {
		var l handLabel
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		if named[l.Server] == nil {
			s := servers[index[l.Server]]
			named[l.Server] = annotate.Suggest(s, taxonomy)
			s.Name = "server"
			unnamed[l.Server] = annotate.Suggest(s, taxonomy)
		}
		find := func(in []annotate.ToolSuggestion) annotate.ToolSuggestion {
			return in[slices.IndexFunc(in, func(g annotate.ToolSuggestion) bool { return g.Tool == l.Tool })]
		}
		g := find(named[l.Server])
		all.add(g, &l)
		if inSight(l.Server) {
			first.add(g, &l)
		} else {
			second.add(g, &l)
		}
		nameless.add(find(unnamed[l.Server]), &l)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all:                      %s", &all)
	t.Logf("half in sight:            %s", &first)
	t.Logf("the other half:           %s", &second)
	t.Logf("without the server's name: %s", &nameless)
	for name, f := range map[string]*figure{"all": &all, "half in sight": &first, "the other half": &second} {
		if float64(f.verb) < .90*float64(f.tools) {
			t.Errorf("%s: the verb is right for %d of %d, want 90 %%", name, f.verb, f.tools)
		}
		if float64(f.resource) < .80*float64(f.tools) {
			t.Errorf("%s: the resource is acceptable for %d of %d, want 80 %%", name, f.resource, f.tools)
		}
	}
	if all.readonlyWrong+nameless.readonlyWrong > 0 {
		t.Errorf("%d tools are suggested readonly and are not", all.readonlyWrong+nameless.readonlyWrong)
	}
	if 2*all.readonlyHit < all.readonly {
		t.Errorf("readonly is suggested for %d of %d tools, want half", all.readonlyHit, all.readonly)
	}
	page, ok := docs.Find("labels")
	if !ok {
		t.Fatal("there is no docs/labels.md")
	}
	want := all.row("all") + first.row("half of the servers in sight") + second.row("the other half") + nameless.row("all, under a server name that says nothing")
	if !strings.Contains(page.Text, want) {
		t.Errorf("docs/labels.md does not have these rows:\n%s", want)
	}
	if want := fmt.Sprintf("(%s without those)", strings.TrimPrefix(fmt.Sprintf("%.3f", float64(all.strict)/float64(all.tools)), "0")); !strings.Contains(page.Text, want) {
		t.Errorf("docs/labels.md does not say %s", want)
	}
}

// inSight reports whether the labels of the server were in sight when the vocabulary was written.
func inSight(server string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(server))
	return h.Sum32()>>7%2 == 0
}

// The bound is CPU time, and generous: the suggestions for 938 servers take half a second.
func TestTheWholeCatalogTakesUnderFiveSeconds(t *testing.T) {
	servers := realServers(t)
	taxonomy := taxonomyOfLabels(t)
	before := cpuTime(t)
	tools, readonly := 0, 0
	for _, s := range servers {
		suggestions := annotate.Suggest(s, taxonomy)
		annotate.WriteProposal("s", suggestions, nil)
		tools += len(suggestions)
		for _, g := range suggestions {
			if g.Capability != nil && slices.Contains(g.Capability.Constraints, switchboard.ReadOnly) {
				readonly++
			}
		}
	}
	took := cpuTime(t) - before
	thousands := func(n int) string { return fmt.Sprintf("%d,%03d", n/1000, n%1000) }
	want := fmt.Sprintf("Of the %s tools of the catalog, which nobody labelled, %s get `readonly`.", thousands(tools), thousands(readonly))
	if page, _ := docs.Find("labels"); !strings.Contains(page.Text, want) {
		t.Errorf("docs/labels.md does not say: %s", want)
	}
	if took.Seconds() > 5 {
		t.Errorf("%d tools of %d servers took %v of CPU time", tools, len(servers), took)
	} else {
		t.Logf("%d tools of %d servers took %v of CPU time", tools, len(servers), took)
	}
}

func BenchmarkSuggestForTheWholeCatalog(b *testing.B) {
	servers := realServers(b)
	taxonomy := taxonomyOfLabels(b)
	for b.Loop() {
		for _, s := range servers {
			annotate.Suggest(s, taxonomy)
		}
	}
}

// Names and descriptions of real servers are the best test of what is written: comments, quotes, line breaks.
func TestSuggestionsForRealServersLoadAsOverlays(t *testing.T) {
	servers := realServers(t)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	taxonomy := taxonomyOfLabels(t)
	terms := "resources:\n"
	for _, r := range taxonomy.Resources() {
		if !slices.Contains(switchboard.BuiltinResources, r) {
			terms += "  " + string(r) + ":\n"
		}
	}
	main, want := "servers:\n", 0
	fsys := fstest.MapFS{"taxonomy.yaml": {Data: []byte(terms)}}
	for i, s := range servers[:120] {
		id := switchboard.ServerID(fmt.Sprintf("s%d", i))
		main += fmt.Sprintf("  %s: {transport: stdio, command: [x]}\n", id)
		text := annotate.WriteProposal(id, annotate.Suggest(s, taxonomy), nil)
		if text == nil {
			continue
		}
		of, rows, err := annotate.ReadProposal("suggested", text)
		if err != nil || of != id {
			t.Fatalf("%s: %v", s.Name, err)
		}
		for _, r := range rows {
			if !strings.HasPrefix(string(r.Digest), "sha256:") {
				t.Fatalf("%s: the suggestion for %s has the digest %q", s.Name, r.Tool, r.Digest)
			}
		}
		want += len(rows)
		fsys["overlays/"+string(id)+".yaml"] = &fstest.MapFile{Data: text}
	}
	fsys["switchboard.yaml"] = &fstest.MapFile{Data: []byte(main)}
	cfg, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys})
	if err == nil {
		err = cfg.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(cfg.Overlays) != want || want < 500 {
		t.Errorf("%d overlays were loaded of %d suggestions", len(cfg.Overlays), want)
	}
}
