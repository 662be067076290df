package annotate_test

import (
	"cmp"
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
	Also         struct {
		Verb     []switchboard.Verb
		Resource []switchboard.Resource
	} `json:"also_acceptable"`
}

func (l *handLabel) fitsVerb(g *annotate.ToolSuggestion) bool {
	return g.Capability != nil && (g.Capability.Verb == l.Verb || slices.Contains(l.Also.Verb, g.Capability.Verb))
}

func (l *handLabel) fitsResource(r switchboard.Resource) bool {
	return r == l.Resource || slices.Contains(l.Also.Resource, r)
}

// fits reports whether verb and resource of the suggestion are both acceptable.
func (l *handLabel) fits(g *annotate.ToolSuggestion) bool {
	return l.fitsVerb(g) && l.fitsResource(g.Capability.Resource)
}

// A judgedTool is a suggestion with the label that a person gave to the tool.
type judgedTool struct {
	handLabel
	annotate.ToolSuggestion
}

// judgeLabels returns the suggestions for the tools of a file of labels. serverName, if not "", takes the place of the names of the servers.
func judgeLabels(t *testing.T, file, serverName string) (all []judgedTool) {
	t.Helper()
	servers := realServers(t)
	ids, err := readCatalog()
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for i, s := range ids {
		index[s.ID] = i
	}
	taxonomy := taxonomyOfLabels(t)
	of := map[string][]annotate.ToolSuggestion{}
	err = realdata.Lines(file, func(line []byte) error {
		var one judgedTool
		if err := json.Unmarshal(line, &one.handLabel); err != nil {
			return err
		}
		at, ok := index[one.Server]
		if !ok {
			return fmt.Errorf("the catalog has no server %s", one.Server)
		}
		if of[one.Server] == nil {
			s := servers[at]
			s.Name = cmp.Or(serverName, s.Name)
			of[one.Server] = annotate.Suggest(s, taxonomy)
		}
		i := slices.IndexFunc(of[one.Server], func(g annotate.ToolSuggestion) bool { return g.Tool == one.handLabel.Tool })
		if i < 0 {
			return fmt.Errorf("%s has no tool %s", one.Server, one.handLabel.Tool)
		}
		one.ToolSuggestion = of[one.Server][i]
		all = append(all, one)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The labels that the vocabulary was written with, and those that nothing was written with: random tools of other servers.
func oldLabels(t *testing.T) []judgedTool {
	return judgeLabels(t, realdata.File("labels", "dev.jsonl"), "")
}

func freshLabels(t *testing.T) []judgedTool { return judgeLabels(t, "testdata/labels.jsonl", "") }

// A figure counts how many suggestions fit the labels of hand.
type figure struct {
	tools, verb, resource, first, none   int
	readonly, readonlyHit, readonlyWrong int
}

func figureOf(tools []judgedTool) (f figure) {
	for i := range tools {
		l, g := &tools[i].handLabel, &tools[i].ToolSuggestion
		f.tools++
		is := slices.Contains(l.Constraints, switchboard.ReadOnly)
		said := g.Capability != nil && slices.Contains(g.Capability.Constraints, switchboard.ReadOnly)
		count := func(n *int, ok bool) {
			if ok {
				*n++
			}
		}
		count(&f.readonly, is)
		count(&f.readonlyHit, is && said)
		count(&f.readonlyWrong, said && !is)
		count(&f.none, g.Capability == nil)
		count(&f.verb, l.fitsVerb(g))
		count(&f.resource, slices.ContainsFunc(g.Resources, l.fitsResource))
		count(&f.first, g.Capability != nil && l.fitsResource(g.Capability.Resource))
	}
	return f
}

// row returns the figure as a row of the table in docs/labels.md.
func (f *figure) row(name string) string {
	share := func(n int) string {
		return strings.TrimPrefix(fmt.Sprintf("%.3f", float64(n)/float64(f.tools)), "0")
	}
	return fmt.Sprintf("| %s | %d | %s | %s | %s | %d | %d of %d | %d |\n", name, f.tools, share(f.verb), share(f.resource), share(f.first), f.none, f.readonlyHit, f.readonly, f.readonlyWrong)
}

// requireOnPage reports rows that docs/labels.md does not have.
func requireOnPage(t *testing.T, want string) {
	t.Helper()
	if page, ok := docs.Find("labels"); !ok || !strings.Contains(page.Text, want) {
		t.Errorf("docs/labels.md does not have this:\n%s", want)
	}
}

// A tool without a suggestion counts as wrong. The vocabulary was written with the labels of one half of the servers in sight. The other half shows how it does on servers that it
// was not written for, and the fresh labels show it better: no rule was changed after they were made.
func TestSuggestionsFitLabelsMadeByHand(t *testing.T) {
	old, fresh := oldLabels(t), freshLabels(t)
	var halves [2][]judgedTool
	for _, j := range old {
		half := 1
		if inSight(j.Server) {
			half = 0
		}
		halves[half] = append(halves[half], j)
	}
	rows := ""
	for _, c := range []struct {
		name  string
		tools []judgedTool
		must  bool
	}{
		{"all", old, true},
		{"half of the servers in sight", halves[0], false},
		{"the other half", halves[1], false},
		{"all, under a server name that says nothing", judgeLabels(t, realdata.File("labels", "dev.jsonl"), "server"), false},
		{"fresh labels of other servers", fresh, true},
	} {
		f := figureOf(c.tools)
		rows += f.row(c.name)
		if c.must && (float64(f.verb) < .95*float64(f.tools) || float64(f.resource) < .85*float64(f.tools)) {
			t.Errorf("%s: the verb is acceptable for %d of %d, want 95 %%; the resource for %d, want 85 %%", c.name, f.verb, f.tools, f.resource)
		}
		if f.readonlyWrong > 0 {
			t.Errorf("%s: %d tools are suggested readonly and are not", c.name, f.readonlyWrong)
		}
		if 2*f.readonlyHit < f.readonly {
			t.Errorf("%s: readonly is suggested for %d of %d tools, want half", c.name, f.readonlyHit, f.readonly)
		}
	}
	t.Log("\n" + rows)
	requireOnPage(t, rows)
}

func TestNoFreshLabelIsOfAServerWithAnOldOne(t *testing.T) {
	old, fresh := oldLabels(t), freshLabels(t)
	if len(fresh) < 60 {
		t.Errorf("there are %d fresh labels, want 60", len(fresh))
	}
	for _, f := range fresh {
		if slices.ContainsFunc(old, func(o judgedTool) bool { return o.Server == f.Server }) {
			t.Errorf("%s has an old label", f.Server)
		}
	}
}

// countLeads counts the suggestions in each row of the calibration, and how many of them are right. Suggestions with contradictions have no row.
func countLeads(tools []judgedTool) []annotate.CalibrationRow {
	rows := slices.Clone(annotate.Calibration)
	for i := range rows {
		rows[i].Tools, rows[i].Right = 0, 0
	}
	for i := range tools {
		j := &tools[i]
		if j.Capability == nil || len(j.Contradictions) > 0 {
			continue
		}
		at := len(rows) - 1
		for rows[at].Lead > j.Lead {
			at--
		}
		rows[at].Tools++
		if j.fits(&j.ToolSuggestion) {
			rows[at].Right++
		}
	}
	return rows
}

func TestTheCalibrationIsWhatTheLabelsSay(t *testing.T) {
	if got := countLeads(oldLabels(t)); !slices.Equal(got, annotate.Calibration) {
		t.Errorf("the labels say %v, and the table says %v", got, annotate.Calibration)
	}
}

// The confidence of a suggestion is measured on other tools than those that it is checked with here: on the other half of the servers, and on all old labels for the fresh
// ones.
func TestOfTheLabelsWithAConfidenceOfNinetyAtLeastNinetyPercentAreRight(t *testing.T) {
	old := oldLabels(t)
	half := func(of bool) (tools []judgedTool) {
		for _, j := range old {
			if inSight(j.Server) == of {
				tools = append(tools, j)
			}
		}
		return tools
	}
	table := ""
	for _, c := range []struct {
		name          string
		table, tested []judgedTool
	}{
		{"the other half, by the half in sight", half(true), half(false)},
		{"the half in sight, by the other half", half(false), half(true)},
		{"fresh labels, by all old ones", old, freshLabels(t)},
	} {
		sure, right := 0, 0
		tested := countLeads(c.tested)
		for i, row := range countLeads(c.table) {
			share := row.Share()
			measured := "none"
			if n := tested[i]; n.Tools > 0 {
				measured = fmt.Sprintf("%d of %d (%d %%)", n.Right, n.Tools, 100*n.Right/n.Tools)
			}
			table += fmt.Sprintf("| %s | %d | %d %% | %s |\n", c.name, row.Lead, share, measured)
			if share >= 90 {
				sure, right = sure+tested[i].Tools, right+tested[i].Right
			}
		}
		if sure < 20 || 10*right < 9*sure {
			t.Errorf("%s: of %d labels with a confidence of 90 %%, %d are right", c.name, sure, right)
		}
	}
	t.Log("\n" + table)
	requireOnPage(t, table)
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
		annotate.WriteProposal("s", suggestions, nil, nil)
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
		text := annotate.WriteProposal(id, annotate.Suggest(s, taxonomy), nil, nil)
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
