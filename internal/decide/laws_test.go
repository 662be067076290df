package decide_test

import (
	"path"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// world is a small random catalog, taxonomy and tenant. It is a matcher.Catalog that returns tools in its own random
// order.
type world struct {
	tools  []*switchboard.Tool
	tax    *switchboard.Taxonomy
	tenant *switchboard.Tenant
	auth   switchboard.Auth
}

func (w world) Match(v switchboard.Verb, r switchboard.Resource) (found []*switchboard.Tool) {
	for _, t := range w.tools {
		if slices.ContainsFunc(t.Capabilities, func(c switchboard.Capability) bool {
			return c.Verb == v && (c.Resource == r || slices.Contains(w.tax.Ancestors(c.Resource), r))
		}) {
			found = append(found, t)
		}
	}
	return found
}

func (w world) Named(pattern string) (found []*switchboard.Tool) {
	for _, t := range w.tools {
		if ok, _ := path.Match(pattern, t.ID.String()); ok {
			found = append(found, t)
		}
	}
	return found
}

func (w world) pipeline() decide.Pipeline {
	x := matcher.New(w, nil)
	return decide.Pipeline{x.Filter(), matcher.Prune(), ranking.New(w.tenant.Ranking, w.tools)}
}

func (w world) shuffled(t *rapid.T) world {
	w.tools = rapid.Permutation(w.tools).Draw(t, "shuffled")
	return w
}

var (
	someVerbs     = []switchboard.Verb{"read", "write"}
	someResources = []switchboard.Resource{"fs", "aws", "s3", "cloud"} // s3 under aws under cloud
	constraints   = switchboard.BuiltinConstraints
	someServers   = []switchboard.ServerID{"a", "a-b", "a0", "b", "c"}
)

func drawConstraints(t *rapid.T, label string) []switchboard.Constraint {
	cs := rapid.SliceOfDistinct(rapid.SampledFrom(constraints), rapid.ID).Draw(t, label)
	slices.Sort(cs)
	return cs
}

func drawCapability(t *rapid.T, source switchboard.Source) switchboard.Capability {
	return switchboard.Capability{
		Verb: rapid.SampledFrom(someVerbs).Draw(t, "verb"), Resource: rapid.SampledFrom(someResources).Draw(t, "resource"),
		Constraints: drawConstraints(t, "carries"), Source: source,
	}
}

func drawWorld(t *rapid.T) world {
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud", "s3": "aws"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := world{tax: tax, tenant: &switchboard.Tenant{ID: "acme", ByName: true, Trust: rapid.SampledFrom([]switchboard.Trust{"", switchboard.TrustDeclared}).Draw(t, "row")}}
	w.auth = rapid.SampledFrom([]switchboard.Auth{switchboard.AuthAPIKey, switchboard.AuthLocal}).Draw(t, "auth")
	trusts := map[switchboard.ServerID]switchboard.Trust{}
	classes := map[switchboard.ServerID]string{}
	for _, s := range someServers {
		trusts[s] = rapid.SampledFrom([]switchboard.Trust{switchboard.TrustDeclared, switchboard.TrustOperator}).Draw(t, "trust")
		classes[s] = rapid.SampledFrom([]string{"", "free", "paid"}).Draw(t, "class")
	}
	ids := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) switchboard.ToolID {
		return switchboard.ToolID{Server: rapid.SampledFrom(someServers).Draw(t, "server"), Name: rapid.StringMatching(`[xY_]{1,2}`).Draw(t, "name")}
	}), rapid.ID).Draw(t, "tools")
	for _, id := range ids {
		tool := &switchboard.Tool{ID: id, Class: classes[id.Server], Trust: trusts[id.Server]}
		source := rapid.SampledFrom(switchboard.Sources).Draw(t, "source")
		for range rapid.IntRange(0, 2).Draw(t, "capabilities") {
			tool.Capabilities = append(tool.Capabilities, drawCapability(t, source))
		}
		for range rapid.IntRange(0, 1).Draw(t, "kept") {
			tool.Kept = append(tool.Kept, drawCapability(t, switchboard.FromTool))
		}
		w.tools = append(w.tools, tool)
	}
	w.tenant.Ranking = switchboard.Ranking{
		Classes: map[string]int{"free": rapid.IntRange(-1, 1).Draw(t, "free"), "paid": rapid.IntRange(-1, 1).Draw(t, "paid")},
		Prefer: []switchboard.Prefer{{
			Verb: "read", Resource: rapid.SampledFrom(someResources).Draw(t, "prefer"),
			Servers: rapid.SliceOfDistinct(rapid.SampledFrom(someServers), rapid.ID).Draw(t, "preferred"),
		}},
		Adjust: []switchboard.Adjust{{Server: "a*", By: rapid.IntRange(-1, 1).Draw(t, "by")}},
	}
	return w
}

func drawRequirement(t *rapid.T) switchboard.Requirement {
	r := switchboard.Requirement{
		Verb: rapid.SampledFrom(someVerbs).Draw(t, "verb"), Resource: rapid.SampledFrom(someResources).Draw(t, "resource"),
		Constraints: drawConstraints(t, "requires"),
		Select:      rapid.SampledFrom([]switchboard.Select{"", switchboard.SelectServer, switchboard.SelectTool}).Draw(t, "select"),
		Optional:    rapid.Bool().Draw(t, "optional"),
	}
	if rapid.IntRange(0, 4).Draw(t, "by name") == 0 {
		r.Verb, r.Resource = "", ""
		r.Tools = rapid.SliceOfN(rapid.SampledFrom([]string{"*/*", "a/*", "*/x*", "b/x"}), 1, 2).Draw(t, "patterns")
	}
	return r
}

func (w world) input(rs ...switchboard.Requirement) decide.Input {
	return decide.Input{
		Tenant: w.tenant, Principal: switchboard.Principal{Tenant: "acme", ID: "ann", Auth: w.auth},
		Task: &switchboard.Task{ID: "t", Requirements: rs},
	}
}

func must(t *rapid.T, w world, rs ...switchboard.Requirement) *decide.Decision {
	d, err := w.pipeline().Decide(t.Context(), w.input(rs...))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ids(cs []decide.Candidate) (ids []switchboard.ToolID) {
	for _, c := range cs {
		ids = append(ids, c.Tool.ID)
	}
	return ids
}

// survivors returns the candidates that every stage kept, in order.
func survivors(o *decide.RequirementOutcome) []switchboard.ToolID {
	return append(ids(o.Selected), ids(o.Others)...)
}

// vouchedThroughout is the rule about trusted sources, written differently than in the code: no fact about the tool
// comes from its server alone.
func vouchedThroughout(t *switchboard.Tool) bool {
	if t.Trust == switchboard.TrustOperator {
		return true
	}
	said := t.Capabilities
	for _, k := range t.Kept {
		if !slices.ContainsFunc(t.Capabilities, func(c switchboard.Capability) bool { return c.Verb == k.Verb && c.Resource == k.Resource }) {
			said = append(slices.Clone(said), k)
		}
	}
	return !slices.ContainsFunc(said, func(c switchboard.Capability) bool {
		return !slices.Contains([]switchboard.Source{switchboard.FromOverlay, switchboard.FromTenantOverlay}, c.Source)
	})
}

// carriesThroughout is the rule of prune, written differently than in the code: a call of the tool may do anything that
// the tool, or a weaker source, says it does.
func carriesThroughout(t *switchboard.Tool, c switchboard.Constraint) bool {
	type deed struct {
		verb     switchboard.Verb
		resource switchboard.Resource
	}
	enforced := map[deed]bool{}
	stated := map[deed]bool{}
	for _, k := range t.Kept {
		if c == switchboard.HumanInTheLoop || c == switchboard.RateLimited {
			enforced[deed{k.Verb, k.Resource}] = enforced[deed{k.Verb, k.Resource}] || k.Carries(c)
		}
	}
	for _, k := range t.Capabilities {
		stated[deed{k.Verb, k.Resource}] = true
		if !k.Carries(c) && !enforced[deed{k.Verb, k.Resource}] {
			return false
		}
	}
	for _, k := range t.Kept {
		if d := (deed{k.Verb, k.Resource}); !stated[d] && !k.Carries(c) && !enforced[d] {
			return false
		}
	}
	return len(stated) > 0
}

func TestOnlyACandidateWithEveryConstraintSurvives(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	rapid.Check(t, func(t *rapid.T) {
		w, r := drawWorld(t), drawRequirement(t)
		o := must(t, w, r).Outcomes[0]
		alive := survivors(&o)
		found, unmatched := w.Match(r.Verb, r.Resource), false
		if r.ByName() {
			for _, p := range r.Tools {
				more := w.Named(p)
				unmatched = unmatched || len(more) == 0
				found = append(found, more...)
			}
		}
		for _, tool := range w.tools {
			want := slices.Contains(found, tool) && !unmatched
			for _, c := range r.Constraints {
				want = want && carriesThroughout(tool, c)
				if c == switchboard.ReadOnly && w.auth != switchboard.AuthLocal && w.tenant.Trust != switchboard.TrustDeclared {
					want = want && vouchedThroughout(tool)
				}
			}
			if got := slices.Contains(alive, tool.ID); got != want {
				t.Fatalf("%s: %s with %v, kept %v: survives %v, want %v", r.String(), tool.ID, tool.Capabilities, tool.Kept, got, want)
			}
		}
		if len(alive)+len(o.Dropped) != o.Considered() {
			t.Fatalf("%d of %d candidates are recorded", len(alive)+len(o.Dropped), o.Considered())
		}
		for _, d := range o.Dropped {
			why := d.Reason
			if why.Missing != "" && (!slices.Contains(r.Constraints, why.Missing) || why.Capability != nil && why.Capability.Carries(why.Missing) && why.Missing != switchboard.ReadOnly) {
				t.Fatalf("%s was dropped because %s", d.Tool.ID, why)
			}
			if why.String() == "" {
				t.Fatalf("%s was dropped without a reason", d.Tool.ID)
			}
		}
	})
}

func TestAddingAConstraintNeverAddsACandidate(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	rapid.Check(t, func(t *rapid.T) {
		w, r := drawWorld(t), drawRequirement(t)
		more := r
		more.Constraints = append(slices.Clone(r.Constraints), rapid.SampledFrom(constraints).Draw(t, "added"))
		slices.Sort(more.Constraints)
		more.Constraints = slices.Compact(more.Constraints)
		d := must(t, w, r, more)
		before, after := survivors(&d.Outcomes[0]), survivors(&d.Outcomes[1])
		rest := slices.DeleteFunc(slices.Clone(before), func(id switchboard.ToolID) bool { return !slices.Contains(after, id) })
		if !slices.Equal(rest, after) { // the order of the rest does not change either
			t.Fatalf("%s leaves %v, %s leaves %v", r.String(), before, more.String(), after)
		}
	})
}

func TestTiesAreResolvedByTrustThenByBytes(t *testing.T) {
	law.Hold(t, law.Deterministic)
	rapid.Check(t, func(t *rapid.T) {
		w, r := drawWorld(t), drawRequirement(t)
		o := must(t, w, r).Outcomes[0]
		all := append(slices.Clone(o.Selected), o.Others...)
		for i := 1; i < len(all); i++ {
			a, b := all[i-1], all[i]
			if a.Place != b.Place || a.Score != b.Score {
				continue
			}
			first, second := a.Tool.Trust == switchboard.TrustOperator, b.Tool.Trust == switchboard.TrustOperator
			if a.Place == 0 && first != second { // a server that the ranking places keeps its place
				if second {
					t.Fatalf("%s comes before %s, although the operator vouches for the latter", a.Tool.ID, b.Tool.ID)
				}
			} else if a.Tool.ID.Compare(b.Tool.ID) >= 0 {
				t.Fatalf("%s comes before %s", a.Tool.ID, b.Tool.ID)
			}
		}
		if len(o.Selected) > 0 && r.Select != switchboard.SelectTool && !r.ByName() {
			first := all[0].Tool.ID.Server
			for _, c := range all {
				if (c.Tool.ID.Server == first) != slices.Contains(o.Selected, c) {
					t.Fatalf("%s comes first of %v, but %v are selected", first, ids(all), ids(o.Selected))
				}
			}
		}
	})
}

func TestTheOrderOfTheCatalogNeverMatters(t *testing.T) {
	law.Hold(t, law.Deterministic)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		rs := rapid.SliceOfN(rapid.Custom(drawRequirement), 0, 4).Draw(t, "requirements")
		a, b := must(t, w, rs...), must(t, w.shuffled(t), rs...)
		if string(a.Canonical()) != string(b.Canonical()) || a.Digest() != b.Digest() {
			t.Fatalf("got\n%s\nand\n%s", a.Canonical(), b.Canonical())
		}
	})
}

func TestATaskSeesExactlyTheToolsOfItsRequirements(t *testing.T) {
	law.Hold(t, law.OneDecision)
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		rs := rapid.SliceOfN(rapid.Custom(drawRequirement), 0, 4).Draw(t, "requirements")
		d := must(t, w, rs...)
		err := d.Err()
		if err != nil && len(d.Selected) > 0 {
			t.Fatalf("the task may not start, and %q would be shown", show(d.Selected))
		}
		// Selected are exactly the tools that the requirements selected, each once.
		for i := range d.Outcomes {
			for _, c := range d.Outcomes[i].Selected {
				n := 0
				for _, s := range d.Selected {
					if s.Tool == c.Tool {
						n++
						if !slices.Contains(s.Requirements, i) || !slices.IsSorted(s.Requirements) {
							t.Fatalf("%s was selected by %d too, and says %v", c.Tool.ID, i, s.Requirements)
						}
					}
				}
				if n != 1 && err == nil {
					t.Fatalf("%s is there %d times", c.Tool.ID, n)
				}
			}
		}
	})
}
