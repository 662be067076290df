package catalog_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// A real is the catalog of real servers. Its labels were made by a program, and are given as the operator's overlays.
type real struct {
	sources  []catalog.Source
	overlays map[switchboard.ToolID]switchboard.Overlay
	tax      *switchboard.Taxonomy
	defined  int // tools, in the servers' own form
}

var readReal = sync.OnceValues(func() (*real, error) {
	dir := realdata.File()
	r := &real{overlays: map[switchboard.ToolID]switchboard.Overlay{}}
	byName := map[string]switchboard.ServerID{}
	err := realdata.Lines(filepath.Join(dir, "catalog", "servers.jsonl.gz"), func(line []byte) error {
		var s struct {
			ID       string
			Category string
			Tools    []json.RawMessage
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return err
		}
		id := switchboard.ServerID("s" + strconv.Itoa(len(byName)))
		byName[s.ID] = id
		src := catalog.Source{Offer: switchboard.Offer{Server: id, Capabilities: []byte(`{"tools":{"listChanged":true}}`)}, Class: "c" + strconv.Itoa(len(byName)%3)}
		for _, t := range s.Tools {
			src.Offer.Tools = append(src.Offer.Tools, bytes.Clone(t))
		}
		r.defined += len(s.Tools)
		r.sources = append(r.sources, src)
		return nil
	})
	if err != nil {
		return nil, err
	}
	resources := map[switchboard.Resource]switchboard.Resource{"web": ""}
	err = realdata.Lines(filepath.Join(dir, "catalog", "capabilities-machine.jsonl.gz"), func(line []byte) error {
		var c struct {
			Server, Tool string
			Verb         switchboard.Verb
			Resource     switchboard.Resource
			Constraints  []switchboard.Constraint
		}
		if err := json.Unmarshal(line, &c); err != nil {
			return err
		}
		resources[c.Resource] = ""
		id := switchboard.ToolID{Server: byName[c.Server], Name: c.Tool}
		o := r.overlays[id]
		o.Capabilities = append(o.Capabilities, switchboard.Capability{Verb: c.Verb, Resource: c.Resource, Constraints: c.Constraints})
		r.overlays[id] = o
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, below := range []switchboard.Resource{"internet", "browser", "social"} {
		resources[below] = "web"
	}
	r.tax, err = switchboard.NewTaxonomy(resources, nil)
	return r, err
})

func realCatalog(t testing.TB) *real {
	t.Helper()
	r, err := readReal()
	if os.IsNotExist(err) {
		t.Skipf("the catalog of real servers is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *real) tenant() *switchboard.Tenant {
	t := &switchboard.Tenant{}
	for _, s := range r.sources {
		t.Servers = append(t.Servers, s.Offer.Server)
	}
	return t
}

func TestRealToolsAreUsableExceptAmbiguousOnes(t *testing.T) {
	r := realCatalog(t)
	s := catalog.Build(r.sources, r.overlays, r.tax)
	refused := map[string]bool{}
	for _, f := range s.Faults() {
		if f.Reason != "belongs to more than one definition" {
			t.Errorf("unexpected: %v", f)
		}
		refused[string(f.Server)+"/"+f.Tool] = true
	}
	// Three servers list one name twice, with different definitions.
	if got, want := len(s.Tools()), r.defined-2*len(refused); len(refused) != 3 || got != want {
		t.Errorf("%d of %d tools are usable, %d names refused", got, r.defined, len(refused))
	}
	v := s.For(r.tenant())
	if v.Len() != len(s.Tools()) || v.Digest() != s.Digest() {
		t.Errorf("a tenant with every server sees %d of %d tools", v.Len(), len(s.Tools()))
	}
	total := 0
	for _, verb := range switchboard.Verbs {
		web := v.Match(verb, "web")
		below := 0
		for _, res := range []switchboard.Resource{"internet", "browser", "social"} {
			below += len(v.Match(verb, res))
		}
		if len(web) != below {
			t.Errorf("%s web finds %d tools, the resources below it %d", verb, len(web), below)
		}
		for _, res := range r.tax.Resources() {
			if r.tax.Parent(res) == "" {
				total += len(v.Match(verb, res))
			}
		}
	}
	if total != len(s.Tools()) {
		t.Errorf("the index leads to %d tools, want all %d", total, len(s.Tools()))
	}
}

func TestShufflesOfTheRealCatalogGiveOneDigest(t *testing.T) {
	law.Hold(t, law.Deterministic)
	r := realCatalog(t)
	s := catalog.Build(r.sources, r.overlays, r.tax)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		shuffled := slices.Clone(r.sources)
		rng.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for i := range shuffled {
			tools := slices.Clone(shuffled[i].Offer.Tools)
			rng.Shuffle(len(tools), func(i, j int) { tools[i], tools[j] = tools[j], tools[i] })
			shuffled[i].Offer.Tools = tools
			shuffled[i].Offer.Stale = rng.IntN(2) == 0
		}
		other := s.Rebuild(shuffled, r.overlays, r.tax)
		if other.Digest() != s.Digest() {
			t.Fatal("the digest depends on the order")
		}
		if !slices.Equal(texts(other.Faults()), texts(s.Faults())) {
			t.Errorf("faults: %q, then %q", texts(s.Faults()), texts(other.Faults()))
		}
	}
}

// Each file of the suite is used as a definition, as a member of one, as a manifest and as a handshake.
func TestJSONTestSuite(t *testing.T) {
	files, err := filepath.Glob(realdata.File("badinput", "JSONTestSuite", "test_parsing", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Skip("JSONTestSuite is not here")
	}
	tax := taxonomy(t)
	usable := func(definition string, manifest []byte) bool {
		src := catalog.Source{Offer: switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(definition)}}}
		if manifest != nil {
			src.Manifest = &catalog.Manifest{Name: "m", Data: manifest}
		}
		s := catalog.Build([]catalog.Source{src}, nil, tax)
		if len(s.Tools()) == 0 && len(s.Faults()) == 0 {
			t.Error("there is neither a tool nor a fault")
		}
		return len(s.Tools()) == 1
	}
	for _, file := range files {
		name := filepath.Base(file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		inside := usable(define("t", `,"x":`+string(text)), nil)
		switch {
		case usable(string(text), nil) || usable(define("t", ""), text):
			t.Errorf("%s is accepted as a definition or a manifest", name)
		case strings.HasPrefix(name, "n_") && inside:
			t.Errorf("%s is accepted in a definition", name)
		case strings.HasPrefix(name, "y_") && !inside && !strings.Contains(name, "duplicated_key"):
			t.Errorf("%s is refused in a definition", name)
		}
	}
}

func TestNaughtyStringsAsNames(t *testing.T) {
	file := realdata.File("badinput", "blns", "blns.json")
	text, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		t.Skipf("the naughty strings are not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var naughty []string
	if err := json.Unmarshal(text, &naughty); err != nil {
		t.Fatal(err)
	}
	for _, name := range naughty {
		spelt, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		s := catalog.Build([]catalog.Source{{
			Offer:    switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(`{"inputSchema":{},"name":` + string(spelt) + `}`), []byte(define("good", ""))}},
			Manifest: &catalog.Manifest{Name: "m", Data: []byte(`{"capabilities":{"tools":{` + string(spelt) + `:{"x-summit-capabilities":[` + string(spelt) + `]}}}}`)},
		}}, nil, taxonomy(t))
		if got := only(t, s).ID.Name; got != "good" {
			t.Errorf("%q is still offered, though its block is malformed", got)
		}
		for _, f := range texts(s.Faults()) {
			if before, shown, ok := strings.Cut(f, `has the character "`); ok { // the only one that is shown as it is
				r, size := utf8.DecodeRuneInString(shown)
				if !unicode.IsGraphic(r) || unicode.IsMark(r) || unicode.IsSpace(r) {
					t.Errorf("a fault of %+q shows %+q", name, r)
				}
				f = before + shown[size:]
			}
			if strings.ContainsFunc(f, func(r rune) bool {
				return r < ' ' || r > '~' && r != '…' && !unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul) && r != 'ー'
			}) {
				t.Errorf("a fault of %+q shows it unescaped: %s", name, f)
			}
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	r := realCatalog(b)
	for b.Loop() {
		if s := catalog.Build(r.sources, r.overlays, r.tax); len(s.Tools()) < 9_000 {
			b.Fatal("tools are missing")
		}
	}
	b.ReportMetric(float64(r.defined), "tools")
}

// One server changes a description.
func BenchmarkRebuild(b *testing.B) {
	r := realCatalog(b)
	s := catalog.Build(r.sources, r.overlays, r.tax)
	largest := 0
	for i := range r.sources {
		if len(r.sources[i].Offer.Tools) > len(r.sources[largest].Offer.Tools) {
			largest = i
		}
	}
	changed := slices.Clone(r.sources)
	tools := slices.Clone(changed[largest].Offer.Tools)
	tools[0] = []byte(strings.Replace(string(tools[0]), `"name"`, `"x":1,"name"`, 1))
	changed[largest].Offer.Tools = tools
	for b.Loop() {
		if next := s.Rebuild(changed, r.overlays, r.tax); next.Digest() == s.Digest() {
			b.Fatal("the change has no effect")
		}
	}
}

func BenchmarkFor(b *testing.B) {
	r := realCatalog(b)
	s := catalog.Build(r.sources, r.overlays, r.tax)
	tenant := r.tenant()
	for b.Loop() {
		if s.For(tenant).Len() < 9_000 {
			b.Fatal("tools are missing")
		}
	}
}

// The shipped rules keep prohibited tools out. No real tool is prohibited by what its server says: only the operator's labels can say that.
func TestNoRealToolIsProhibitedByItsOwnWords(t *testing.T) {
	r := realCatalog(t)
	for _, c := range []struct {
		what     string
		overlays map[switchboard.ToolID]switchboard.Overlay
	}{{"without labels", nil}, {"with the labels of a program", r.overlays}} {
		counts := map[switchboard.RiskClass]int{}
		for _, tool := range catalog.Build(r.sources, c.overlays, r.tax).Tools() {
			counts[tool.Contract.Risk]++
		}
		t.Logf("%s: %d safe, %d low, %d medium, %d high, %d prohibited", c.what,
			counts[switchboard.RiskSafe], counts[switchboard.RiskLow], counts[switchboard.RiskMedium], counts[switchboard.RiskHigh], counts[switchboard.RiskProhibited])
		if counts[switchboard.RiskProhibited] > 0 || counts[""] > 0 {
			t.Errorf("%s: %d are prohibited, and %d have no class", c.what, counts[switchboard.RiskProhibited], counts[""])
		}
	}
}

// For a newcomer nothing changes: the shipped rules keep out none of the real tools.
func TestTheShippedRulesLetRealToolsIn(t *testing.T) {
	r := realCatalog(t)
	gate := shippedGate(t)
	s := (&catalog.Snapshot{}).RebuildBehind(gate, r.sources, nil, r.tax)
	out := 0
	for _, tool := range s.Tools() {
		if tool.Admission != nil {
			out++
			t.Logf("%s is kept out: %s", tool.ID, tool.Admission.Why)
		}
	}
	t.Logf("%d of %d real tools are kept out", out, len(s.Tools()))
	if out > 0 || s.Undecided() || s.Digest() != catalog.Build(r.sources, nil, r.tax).Digest() {
		t.Errorf("%d are kept out, undecided is %v", out, s.Undecided())
	}
}

func shippedGate(t testing.TB) *policy.AdmitGate {
	t.Helper()
	operator, err := policy.Compile(policy.Operator, policysource.Shipped())
	if err != nil {
		t.Fatal(err)
	}
	gate, err := policy.NewEngine(0, 0).NewGate(operator)
	if err != nil || gate == nil {
		t.Fatalf("the shipped rules have the gate %v, %v", gate, err)
	}
	return gate
}

// BenchmarkGate measures the snapshot of all real tools: without the shipped rules, with them, and when one server has changed.
func BenchmarkGate(b *testing.B) {
	r := realCatalog(b)
	gate := shippedGate(b)
	for _, c := range []struct {
		name string
		gate catalog.ToolGate
	}{{"without", nil}, {"with", gate}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				(&catalog.Snapshot{}).RebuildBehind(c.gate, r.sources, nil, r.tax)
			}
		})
	}
	b.Run("one server changes", func(b *testing.B) {
		s := (&catalog.Snapshot{}).RebuildBehind(gate, r.sources, nil, r.tax)
		changed := slices.Clone(r.sources)
		for i := 0; b.Loop(); i++ {
			changed[0].Offer.Version = strconv.Itoa(i)
			s = s.RebuildBehind(gate, changed, nil, r.tax)
		}
	})
}
