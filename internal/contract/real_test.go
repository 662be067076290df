package contract

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// readReal reads the catalog of real servers, if it exists.
var readReal = sync.OnceValues(func() ([]catalog.Source, error) {
	servers, err := realdata.Servers()
	var out []catalog.Source
	for i, s := range servers {
		src := catalog.Source{Offer: switchboard.Offer{Server: switchboard.ServerID("s" + strconv.Itoa(i)), Tools: [][]byte{}}}
		for _, t := range s.Tools {
			src.Offer.Tools = append(src.Offer.Tools, t)
		}
		out = append(out, src)
	}
	return out, err
})

// realTools is the catalog, in which the operator vouches for the servers selected by trust.
func realTools(t testing.TB, trust func(i int) bool) *catalog.Snapshot {
	t.Helper()
	sources, err := readReal()
	if os.IsNotExist(err) {
		t.Skipf("the catalog of real servers is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	own := append([]catalog.Source(nil), sources...)
	for i := range own {
		if trust(i) {
			own[i].Trust = switchboard.TrustOperator
		}
	}
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return catalog.Build(own, nil, tax)
}

// Equal arguments prove nothing about what two tools do: hundreds of real tools accept the same arguments and do
// opposite things. So all pairs are tested.
func TestRealToolsAreEquivalentsOnlyIfDeclaredOrEqualOnTwoTrustedServers(t *testing.T) {
	s := realTools(t, func(i int) bool { return i%3 > 0 })
	tools := s.Tools()
	r := rand.New(rand.NewPCG(1, 2))
	overlays := map[switchboard.ToolID]switchboard.Overlay{}
	type pair struct{ from, to switchboard.ToolID }
	told := map[pair]bool{}
	for range 2_000 { // whatever they accept; most are faults
		from, to := tools[r.IntN(len(tools))].ID, tools[r.IntN(len(tools))].ID
		overlays[from] = switchboard.Overlay{Equivalents: append(overlays[from].Equivalents, switchboard.DeclaredEquivalent{Tool: to})}
		told[pair{from, to}] = true
	}
	begin := time.Now()
	set := New(s, overlays, func(switchboard.ServerID) bool { return true }, nil, nil)
	t.Logf("%d declared pairs were checked in %v; %d faults", len(told), time.Since(begin), len(set.Faults()))

	among := make([]switchboard.Equivalent, len(tools))
	for i, tool := range tools {
		among[i].Tool = tool
	}
	wrong := map[pair]bool{}
	for _, f := range set.Faults() {
		wrong[pair{f.Tool, f.Other}] = true
	}
	same, declared := 0, 0
	begin = time.Now()
	group := set.Among(among)
	for _, tool := range tools {
		for _, e := range group.Of(tool) {
			p := pair{tool.ID, e.Tool.ID}
			a, _ := wire.Field(tool.Definition, input)
			b, _ := wire.Field(e.Tool.Definition, input)
			switch {
			case p.from.Server == p.to.Server:
				t.Fatalf("%v are on one server", p)
			case told[p] && !wrong[p]:
				declared++
			case told[p]:
				t.Fatalf("the declaration of %v is faulty", p)
			case tool.Trust == switchboard.TrustOperator && e.Tool.Trust == switchboard.TrustOperator && p.from.Name == p.to.Name && equalJSON(t, a, b):
				same++
			default:
				t.Fatalf("%v are equivalents without a declaration", p)
			}
		}
	}
	t.Logf("%d tools: %d equivalents are the same on two servers, %d are declared; asked in %v", len(tools), same, declared, time.Since(begin))
	if same == 0 || declared == 0 {
		t.Error("there are too few tools")
	}
}

func BenchmarkSet(b *testing.B) {
	s := realTools(b, func(int) bool { return true })
	tools := s.Tools()
	overlays := map[switchboard.ToolID]switchboard.Overlay{}
	for i := range 100 {
		overlays[tools[i*90].ID] = switchboard.Overlay{Equivalents: []switchboard.DeclaredEquivalent{{Tool: tools[i*90+45].ID}}}
	}
	heard := func(switchboard.ServerID) bool { return true }
	b.Run("new, 100 pairs", func(b *testing.B) {
		for b.Loop() {
			knownSchemas.Lock()
			clear(knownSchemas.of)
			knownSchemas.Unlock()
			New(s, overlays, heard, nil, nil)
		}
	})
	set := New(s, overlays, heard, nil, nil)
	b.Run("again, 100 pairs", func(b *testing.B) {
		for b.Loop() {
			New(s, overlays, heard, nil, set)
		}
	})
	b.Run("of 100 candidates", func(b *testing.B) {
		among := make([]switchboard.Equivalent, 100)
		for i := range among {
			among[i].Tool = tools[i*90+45]
		}
		for b.Loop() {
			set.Among(among).Of(tools[0])
		}
	})
}

// equalJSON compares with another parser.
func equalJSON(t *testing.T, a, b []byte) bool {
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

func TestSchemasOfRealToolsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("9,366 tools take some seconds")
	}
	refused, most := map[string]int{}, time.Duration(0)
	n := 0
	for _, tool := range realTools(t, func(int) bool { return false }).Tools() {
		for _, name := range []string{input, output} {
			raw, ok := wire.Field(tool.Definition, name)
			if !ok {
				continue
			}
			n++
			begin := time.Now()
			_, err := compile(raw)
			most = max(most, time.Since(begin))
			if err != nil {
				refused[err.Error()]++
				t.Logf("%s %s: %v", tool.ID, name, err)
			}
		}
	}
	t.Logf("%d schemas, of which the slowest took %v", n, most)
	sum := 0
	for _, k := range refused {
		sum += k
	}
	if sum*100 > n {
		t.Errorf("%d of %d cannot be compiled", sum, n)
	}
}
