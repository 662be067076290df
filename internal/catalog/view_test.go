package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestATenantLabelsOnlyUnlabelledTools(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for _, tt := range []struct {
		name   string
		in     world
		tenant *switchboard.Overlay
		want   []string
		kept   []string
	}{
		{
			name:   "nobody above has spoken",
			tenant: overlay("read fs readonly", "write fs"),
			want:   []string{"tenant_overlay: read fs readonly", "tenant_overlay: write fs"},
		},
		{
			name:   "a labelled tool gets no further freedom",
			in:     world{tool: own("write fs")},
			tenant: overlay("write fs readonly", "read fs"),
			want:   []string{"tool: write fs"},
			kept:   []string{"tenant_overlay: read fs"},
		},
		{
			name:   "a labelled tool may be restricted",
			in:     world{overlay: overlay("write fs"), tool: own("write fs rate_limited")},
			tenant: overlay("write fs human_in_the_loop pii_safe"),
			want:   []string{"overlay: write fs"},
			kept:   []string{"tenant_overlay: write fs human_in_the_loop", "tool: write fs rate_limited"},
		},
		{
			name:   "a tool that is said to have no capability is labelled",
			in:     world{tool: own()},
			tenant: overlay("read fs"),
			kept:   []string{"tenant_overlay: read fs"},
		},
		{
			name:   "replace is the operator's alone",
			in:     world{tool: own("write fs"), manifest: manifest("read fs readonly")},
			tenant: replacing("read fs rate_limited"),
			want:   []string{"manifest: read fs readonly"},
			kept:   []string{"tenant_overlay: read fs rate_limited", "tool: write fs"},
		},
		{
			name:   "the operator's replace does not bind the tenant's own restrictions",
			in:     world{overlay: replacing("write fs")},
			tenant: overlay("write fs rate_limited"),
			want:   []string{"overlay: write fs"},
			kept:   []string{"tenant_overlay: write fs rate_limited"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.in.build(t)
			id := switchboard.ToolID{Server: "s", Name: "t"}
			before := show(only(t, s).Capabilities)
			v := s.For(&switchboard.Tenant{
				Servers:  []switchboard.ServerID{"s"},
				Overlays: map[switchboard.ToolID]switchboard.Overlay{id: *tt.tenant},
			})
			tool, ok := v.Tool(id)
			if !ok {
				t.Fatal("the tool is missing")
			}
			if got := show(tool.Capabilities); !slices.Equal(got, tt.want) {
				t.Errorf("capabilities = %q, want %q", got, tt.want)
			}
			if got := show(tool.Kept); !slices.Equal(got, tt.kept) {
				t.Errorf("kept = %q, want %q", got, tt.kept)
			}
			plain := s.For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}})
			if plain.Digest() == v.Digest() {
				t.Error("the digest does not cover the overlay")
			}
			if got := show(only(t, s).Capabilities); !slices.Equal(got, before) {
				t.Errorf("another tenant's tool changed to %q", got)
			}
		})
	}
}

func TestATenantCannotReviveARefusedToolAndGetsAFault(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	s := world{tools: []string{define("t", `,"x-summit-capabilities":1`), define("u", "")}}.build(t)
	v := s.For(&switchboard.Tenant{
		Servers: []switchboard.ServerID{"s"},
		Overlays: map[switchboard.ToolID]switchboard.Overlay{
			{Server: "s", Name: "t"}:  *overlay("read fs"),
			{Server: "s", Name: "uu"}: *overlay("read fs human_in_the_loop"),
		},
	})
	if len(v.Match("read", "fs")) != 0 || len(v.Named("s/*")) != 1 {
		t.Errorf("match %v, named %v", ids(v.Match("read", "fs")), ids(v.Named("s/*")))
	}
	want := []string{
		`server "s", tool "t", tenant overlay: the server offers no such tool`,
		`server "s", tool "uu", tenant overlay: the server offers no such tool`,
	}
	if got := texts(v.Faults()); !slices.Equal(got, want) {
		t.Errorf("faults = %q, want %q", got, want)
	}
}

// servers builds servers from "server/tool: capability, capability".
func servers(t testing.TB, lines ...string) *catalog.Snapshot {
	t.Helper()
	by := map[switchboard.ServerID]*catalog.Source{}
	var order []switchboard.ServerID
	for _, line := range lines {
		name, caps, _ := strings.Cut(line, ":")
		id, err := switchboard.ParseToolID(name)
		if err != nil {
			t.Fatal(err)
		}
		if by[id.Server] == nil {
			by[id.Server] = &catalog.Source{Offer: switchboard.Offer{Server: id.Server}}
			order = append(order, id.Server)
		}
		members := ""
		if caps != "" {
			members = own(strings.Split(strings.TrimSpace(caps), ", ")...)
		}
		o := &by[id.Server].Offer
		o.Tools = append(o.Tools, []byte(define(id.Name, members)))
	}
	var all []catalog.Source
	for _, id := range order {
		all = append(all, *by[id])
	}
	return catalog.Build(all, nil, taxonomy(t))
}

func all(ids ...string) *switchboard.Tenant {
	t := &switchboard.Tenant{}
	for _, id := range ids {
		t.Servers = append(t.Servers, switchboard.ServerID(id))
	}
	return t
}

func ids(tools []*switchboard.Tool) string {
	var s []string
	for _, t := range tools {
		s = append(s, t.ID.String())
	}
	return strings.Join(s, " ")
}

func TestMatchFindsTheResourceAndItsDescendants(t *testing.T) {
	v := servers(t,
		"b/two: read aws, read aws readonly, read azure",
		"b/one: read cloud",
		"a/three: read blob",
		"a/four: write blob",
		"c/five: read blob",
		"a/none",
	).For(all("b", "a"))
	for _, tt := range []struct {
		verb     switchboard.Verb
		resource switchboard.Resource
		want     string
	}{
		{"read", "cloud", "a/three b/one b/two"},
		{"read", "aws", "b/two"},
		{"read", "azure", "a/three b/two"},
		{"read", "blob", "a/three"},
		{"write", "cloud", "a/four"},
		{"execute", "cloud", ""},
		{"read", "fs", ""},
		{"", "", ""},
	} {
		if got := ids(v.Match(tt.verb, tt.resource)); got != tt.want {
			t.Errorf("Match(%s, %s) = %s, want %s", tt.verb, tt.resource, got, tt.want)
		}
	}
	if v.Len() != 5 {
		t.Errorf("Len = %d, want 5", v.Len())
	}
}

func TestMatchNeverFindsKeptCapabilities(t *testing.T) {
	s := world{overlay: overlay("read fs"), tool: own("write aws human_in_the_loop")}.build(t)
	v := s.For(all("s"))
	if got := ids(v.Match("write", "aws")) + ids(v.Match("write", "cloud")); got != "" {
		t.Errorf("found %s", got)
	}
	if tool := only(t, s); !tool.Demands(switchboard.HumanInTheLoop) {
		t.Error("the tool's own human_in_the_loop is lost")
	}
}

func TestNamedFollowsPatterns(t *testing.T) {
	v := servers(t, "files/read", "files/read_all", "files/write", "files/a/b", "files-2/read", "web/re ad", "web/x", "hidden/read").
		For(all("files", "files-2", "web"))
	for _, tt := range []struct{ pattern, want string }{
		{"files/read", "files/read"},
		{"files/*", "files/a/b files/read files/read_all files/write"},
		{"files/read*", "files/read files/read_all"},
		{"files/*a*", "files/a/b files/read files/read_all"},
		{"files/*/b", "files/a/b"},
		{"files*/read", "files/read files-2/read"},
		{"*/re*ad", "files/read files-2/read web/re ad"},
		{"*/*", "files/a/b files/read files/read_all files/write files-2/read web/re ad web/x"},
		{"*/**", "files/a/b files/read files/read_all files/write files-2/read web/re ad web/x"},
		{"hidden/read", ""},
		{"files", ""},
		{"*", ""},
		{"/read", ""},
		{"files/", ""},
		{"Files/read", ""},
		{"files/?ead", ""},
		{"file/*", ""},
	} {
		if got := ids(v.Named(tt.pattern)); got != tt.want {
			t.Errorf("Named(%q) = %s, want %s", tt.pattern, got, tt.want)
		}
	}
}

func TestTheDigestCoversWhatDecisionsRead(t *testing.T) {
	law.Hold(t, law.Deterministic)
	base := world{tool: own("read fs"), overlays: map[string]switchboard.Overlay{}}
	digest := func(w world, edit func(*catalog.Source)) switchboard.Digest {
		src := w.sources()
		if edit != nil {
			edit(&src[0])
		}
		o := map[switchboard.ToolID]switchboard.Overlay{}
		if w.overlay != nil {
			o[switchboard.ToolID{Server: "s", Name: "t"}] = *w.overlay
		}
		return catalog.Build(src, o, taxonomy(t)).Digest()
	}
	want := digest(base, nil)
	if !strings.HasPrefix(string(want), "sha256:") {
		t.Fatalf("digest = %q", want)
	}

	same := map[string]func(*catalog.Source){
		"away":                      func(s *catalog.Source) { s.Offer.Stale = true },
		"declared, spelt out":       func(s *catalog.Source) { s.Trust = switchboard.TrustDeclared },
		"other capabilities of MCP": func(s *catalog.Source) { s.Offer.Capabilities = []byte(`{"logging":{}}`) },
		"other white space":         func(s *catalog.Source) { s.Offer.Tools[0] = append([]byte("  "), s.Offer.Tools[0]...) },
	}
	for name, edit := range same {
		if got := digest(base, edit); got != want {
			t.Errorf("%s: the digest changes", name)
		}
	}
	seen := map[switchboard.Digest]string{want: "base"}
	other := func(name string, d switchboard.Digest) {
		if was, ok := seen[d]; ok {
			t.Errorf("%s has the digest of %s", name, was)
		}
		seen[d] = name
	}
	other("another server", digest(base, func(s *catalog.Source) { s.Offer.Server = "z" }))
	other("another class", digest(base, func(s *catalog.Source) { s.Class = "paid" }))
	other("another trust", digest(base, func(s *catalog.Source) { s.Trust = switchboard.TrustOperator }))
	other("another version", digest(base, func(s *catalog.Source) { s.Offer.Version = "2.0" }))
	for name, e := range map[string]switchboard.ToolEvidence{
		"another offer": {Diff: "words"},
		"a person":      {Person: true},
		"words read":    {Read: true},
		"a finding":     {Read: true, Findings: []switchboard.RuleFinding{{Rule: "secrecy", Tier: "looking"}}},
		"a worse one":   {Read: true, Findings: []switchboard.RuleFinding{{Rule: "secrecy", Tier: "blocking"}}},
		"another one":   {Read: true, Findings: []switchboard.RuleFinding{{Rule: "use-me", Tier: "looking"}}},
		"a report":      {Report: &switchboard.ReportFacts{Score: 900, Leave: "walls"}},
		"with walls":    {Report: &switchboard.ReportFacts{Score: 900, Leave: "walls", Walls: []string{"files"}}},
		"that failed":   {Report: &switchboard.ReportFacts{Score: 900, Leave: "walls", Failed: []string{"files"}}},
		"both":          {Read: true, Findings: []switchboard.RuleFinding{{Rule: "secrecy", Tier: "looking"}, {Rule: "use-me", Tier: "looking"}}},
	} {
		other(name, digest(base, func(s *catalog.Source) { s.Offer.Evidence = map[string]*switchboard.ToolEvidence{"t": &e} }))
	}
	if got := digest(base, func(s *catalog.Source) { s.Offer.Evidence = map[string]*switchboard.ToolEvidence{"t": {}} }); got != want {
		t.Error("evidence of nothing changes the digest")
	}
	other("another definition", digest(world{tool: own("read fs") + `,"x":1`}, nil))
	other("another source", digest(world{tool: own("read fs"), overlay: overlay("read fs")}, nil))
	other("another constraint", digest(world{tool: own("read fs"), overlay: overlay("read fs readonly")}, nil))
	other("something kept", digest(world{tool: own("read fs"), overlay: overlay("read aws")}, nil))
	other("nothing kept", digest(world{tool: own("read fs"), overlay: replacing("read aws")}, nil))
	other("refused", digest(world{tool: `,"x-summit-capabilities":1`}, nil))
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"fs": "internet"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other("another parent of a resource", catalog.Build(base.sources(), nil, tax).Digest())
	tax, err = switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"fs": "slack"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	other("yet another parent", catalog.Build(base.sources(), nil, tax).Digest())
	if got := catalog.Build(append(base.sources(), catalog.Source{Offer: switchboard.Offer{Server: "empty"}}), nil, taxonomy(t)).Digest(); got != want {
		t.Error("a server without tools changes the digest")
	}
}

func TestAServerThatReconnectsWithTheSameOfferGivesTheSameDigest(t *testing.T) {
	law.Hold(t, law.Deterministic)
	lines := []string{"a/x: read fs", "a/y: write fs", "b/z: search internet"}
	want := servers(t, lines...)
	slices.Reverse(lines)
	got := servers(t, lines...)
	if got.Digest() != want.Digest() || ids(got.Tools()) != ids(want.Tools()) {
		t.Errorf("tools %s, then %s", ids(want.Tools()), ids(got.Tools()))
	}
	if fmt.Sprint(got.For(all("a", "b")).Digest()) != fmt.Sprint(want.For(all("b", "a", "b")).Digest()) {
		t.Error("the views differ")
	}
}

func TestATenantOnlyRaisesTheClassOfRisk(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for _, tt := range []struct {
		name   string
		in     world
		tenant switchboard.Overlay
		want   switchboard.RiskClass
	}{
		{"it labels what nobody has labelled", world{}, *overlay("read fs readonly"), switchboard.RiskHigh},
		{"it says that the risk is high", world{tool: own("read fs readonly")}, switchboard.Overlay{Contract: switchboard.Contract{RiskLevel: "high"}}, switchboard.RiskHigh},
		{"it says that the risk is low", world{tool: own("write fs")}, switchboard.Overlay{Contract: switchboard.Contract{RiskLevel: "low"}}, switchboard.RiskHigh},
		{"it says nothing about risk", world{tool: own("read fs readonly")}, *overlay("read fs rate_limited"), switchboard.RiskLow},
		{"it says that it attacks", world{tool: own("read fs readonly")}, switchboard.Overlay{Contract: switchboard.Contract{SideEffects: []string{"attacks-accounts"}}}, switchboard.RiskProhibited},
		{"it says that it spends", world{tool: own("read fs readonly")}, switchboard.Overlay{Contract: switchboard.Contract{SideEffects: []string{"costs-money"}}}, switchboard.RiskHigh},
		{"the operator says that it spends, without a budget", world{overlay: &switchboard.Overlay{Contract: switchboard.Contract{SideEffects: []string{"costs-money"}}}}, *overlay("read fs"), switchboard.RiskProhibited},
	} {
		v := tt.in.build(t).For(&switchboard.Tenant{Servers: []switchboard.ServerID{"s"}, Overlays: map[switchboard.ToolID]switchboard.Overlay{{Server: "s", Name: "t"}: tt.tenant}})
		tool, _ := v.Tool(switchboard.ToolID{Server: "s", Name: "t"})
		if tool.Contract.Risk != tt.want {
			t.Errorf("%s: the class is %s, want %s", tt.name, tool.Contract.Risk, tt.want)
		}
	}
}
