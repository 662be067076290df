package matcher_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/matcher"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// shelf is a catalog that matches exactly and by prefix, and counts queries.
type shelf struct {
	tools []*switchboard.Tool
	asked *int
}

func (s shelf) Match(v switchboard.Verb, r switchboard.Resource) []*switchboard.Tool {
	*s.asked++
	return s.that(func(t *switchboard.Tool) bool {
		return slices.ContainsFunc(t.Capabilities, func(c switchboard.Capability) bool { return c.Verb == v && c.Resource == r })
	})
}

func (s shelf) Named(pattern string) []*switchboard.Tool {
	*s.asked++
	return s.that(func(t *switchboard.Tool) bool {
		return strings.HasPrefix(t.ID.String(), strings.TrimSuffix(pattern, "*"))
	})
}

func (s shelf) that(ok func(*switchboard.Tool) bool) (found []*switchboard.Tool) {
	for _, t := range s.tools {
		if ok(t) {
			found = append(found, t)
		}
	}
	return found
}

// tool makes a tool from lines such as "write fs readonly rate_limited". Lines after "kept" make Tool.Kept.
func tool(t *testing.T, id string, lines ...string) *switchboard.Tool {
	t.Helper()
	tid, err := switchboard.ParseToolID(id)
	if err != nil {
		t.Fatal(err)
	}
	tool := &switchboard.Tool{ID: tid}
	to := &tool.Capabilities
	for _, line := range lines {
		if line == "kept" {
			to = &tool.Kept
			continue
		}
		c := capability(line)
		c.Source = switchboard.FromTool
		*to = append(*to, c)
	}
	return tool
}

func capability(line string) switchboard.Capability {
	f := strings.Fields(line)
	c := switchboard.Capability{Verb: switchboard.Verb(f[0]), Resource: switchboard.Resource(f[1])}
	for _, k := range f[2:] {
		c.Constraints = append(c.Constraints, switchboard.Constraint(k))
	}
	return c
}

func requirement(line string) *switchboard.Requirement {
	if patterns, ok := strings.CutPrefix(line, "tools "); ok {
		return &switchboard.Requirement{Tools: strings.Fields(patterns)}
	}
	c := capability(line)
	return &switchboard.Requirement{Verb: c.Verb, Resource: c.Resource, Constraints: c.Constraints}
}

// apply runs filter and prune, and returns the remaining and the dropped tools.
func apply(t *testing.T, x *matcher.Index, r *switchboard.Requirement) (on, dropped []string) {
	t.Helper()
	return applyFor(t, x, r, &switchboard.Tenant{ByName: true}, switchboard.Principal{Auth: switchboard.AuthLocal})
}

// applyFor is apply for a principal of a tenant.
func applyFor(t *testing.T, x *matcher.Index, r *switchboard.Requirement, tenant *switchboard.Tenant, who switchboard.Principal) (on, dropped []string) {
	t.Helper()
	q := &decide.Question{Tenant: tenant, Principal: who, Task: &switchboard.Task{ID: "t"}, Requirement: r}
	left := []decide.Candidate(nil)
	for _, s := range []decide.Stage{x.Filter(), matcher.Prune()} {
		var err error
		left, err = s.Apply(t.Context(), q, left, func(c decide.Candidate, why decide.Reason) {
			dropped = append(dropped, c.Tool.ID.String()+": "+s.Name()+": "+why.String())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range left {
		on = append(on, c.Tool.ID.String())
	}
	return on, dropped
}

func TestPruneKeepsToolsThatCarryTheConstraintsInEveryCapability(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for _, tt := range []struct {
		name  string
		tool  []string // its capabilities
		wants string
		lacks string // "" means that it remains
	}{
		{"asked for nothing", []string{"write fs"}, "write fs", ""},
		{"carries it", []string{"read fs readonly"}, "read fs readonly", ""},
		{"carries more", []string{"read fs pii_safe readonly"}, "read fs readonly", ""},
		{"does not carry it", []string{"read fs pii_safe"}, "read fs readonly", "its capability read fs [pii_safe] (tool) lacks readonly"},
		{"carries one of two", []string{"read fs readonly"}, "read fs pii_safe readonly", "its capability read fs [readonly] (tool) lacks pii_safe"},
		{
			"reads, and also writes",
			[]string{"read fs readonly", "write fs"},
			"read fs readonly", "its capability write fs (tool) lacks readonly",
		},
		{
			"carries it elsewhere only",
			[]string{"read fs", "read aws readonly"},
			"read fs readonly", "its capability read fs (tool) lacks readonly",
		},
		{
			"the same capability twice, once without",
			[]string{"read fs", "read fs readonly"},
			"read fs readonly", "its capability read fs (tool) lacks readonly",
		},
		{
			"a weaker source knows that it also writes",
			[]string{"read fs readonly", "kept", "write fs human_in_the_loop"},
			"read fs readonly", "its capability write fs [human_in_the_loop] (tool) lacks readonly",
		},
		{
			"a weaker source says less of the same: the winner wins",
			[]string{"read fs readonly", "kept", "read fs human_in_the_loop"},
			"read fs readonly", "",
		},
		{
			"a weaker source restricts the same, which we enforce",
			[]string{"write fs", "kept", "write fs human_in_the_loop"},
			"write fs human_in_the_loop", "",
		},
		{
			"a weaker source restricts something else",
			[]string{"write fs", "kept", "write aws human_in_the_loop"},
			"write fs human_in_the_loop", "its capability write fs (tool) lacks human_in_the_loop",
		},
		{
			"a weaker source grants what nobody enforces",
			[]string{"write fs", "kept", "write fs readonly"},
			"write fs readonly", "its capability write fs (tool) lacks readonly",
		},
		{
			"weaker sources restrict what only they know of",
			[]string{"write fs rate_limited", "kept", "write aws", "write aws rate_limited"},
			"write fs rate_limited", "",
		},
		{"by name, and it says nothing of itself", nil, "tools a/x", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := matcher.New(shelf{[]*switchboard.Tool{tool(t, "a/x", tt.tool...)}, new(int)}, nil)
			on, dropped := apply(t, x, requirement(tt.wants))
			var want []string
			if tt.lacks != "" {
				want = []string{"a/x: prune: " + tt.lacks}
			}
			if !slices.Equal(dropped, want) {
				t.Errorf("dropped %q, want %q", dropped, want)
			}
			if goes := len(on) == 1; goes != (tt.lacks == "") {
				t.Errorf("%q remain", on)
			}
		})
	}
}

// AZ-12
func TestAttack6ThatAToolIsReadonlyCountsOnlyByTheWordOfAPerson(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	key, local := switchboard.Principal{Auth: switchboard.AuthAPIKey}, switchboard.Principal{Auth: switchboard.AuthLocal}
	const alone = "a/x: prune: only the server itself says that its capability"
	for name, tt := range map[string]struct {
		source switchboard.Source
		kept   switchboard.Source // of one more capability, which is readonly; "" means none
		trust  switchboard.Trust  // of the server
		row    switchboard.Trust  // of the tenant
		who    switchboard.Principal
		drops  string // "" means that it remains
	}{
		"an overlay":         {source: switchboard.FromOverlay, who: key},
		"a tenant's overlay": {source: switchboard.FromTenantOverlay, who: key},
		"the tool itself":    {source: switchboard.FromTool, who: key, drops: alone + " read fs [readonly] (tool) is readonly"},
		"the handshake":      {source: switchboard.FromHandshake, who: key, drops: alone},
		"a manifest, which the server's makers write":   {source: switchboard.FromManifest, who: key, drops: alone},
		"the tool itself, vouched for":                  {source: switchboard.FromTool, trust: switchboard.TrustOperator, who: key},
		"the tool itself, for the local user":           {source: switchboard.FromTool, who: local},
		"the tool itself, where that is enough":         {source: switchboard.FromTool, row: switchboard.TrustDeclared, who: key},
		"an overlay, and the tool of something further": {source: switchboard.FromOverlay, kept: switchboard.FromTool, who: key, drops: alone + " read aws [readonly] (tool) is readonly"},
	} {
		one := tool(t, "a/x", "read fs readonly")
		one.Capabilities[0].Source, one.Trust = tt.source, tt.trust
		if tt.kept != "" {
			one.Kept = []switchboard.Capability{{Verb: "read", Resource: "aws", Constraints: []switchboard.Constraint{switchboard.ReadOnly}, Source: tt.kept}}
		}
		x := matcher.New(shelf{[]*switchboard.Tool{one}, new(int)}, nil)
		on, dropped := applyFor(t, x, requirement("read fs readonly"), &switchboard.Tenant{Trust: tt.row}, tt.who)
		if goes := len(on) == 1; goes != (tt.drops == "") || !goes && !strings.HasPrefix(dropped[0], tt.drops) {
			t.Errorf("%s: %q remain, %q dropped", name, on, dropped)
		}
		if on, dropped := applyFor(t, x, requirement("read fs"), &switchboard.Tenant{Trust: tt.row}, tt.who); len(on) != 1 {
			t.Errorf("%s: %q dropped although readonly is not required", name, dropped)
		}
	}
}

// A constraint that Switchboard enforces needs no source. This holds for pii_safe only.
func TestNames16AToolWhoseResultsAreRedactedOfAllPersonalDataIsPIISafe(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	for _, tt := range []struct {
		redact []switchboard.Detector
		wants  string
		lacks  string
	}{
		{switchboard.PersonalData, "read fs pii_safe", ""},
		{switchboard.Detectors, "read fs pii_safe", ""},
		{switchboard.PersonalData[1:], "read fs pii_safe", "its capability read fs (tool) lacks pii_safe"},
		{nil, "read fs pii_safe", "its capability read fs (tool) lacks pii_safe"},
		{switchboard.Detectors, "read fs pii_safe readonly", "its capability read fs (tool) lacks readonly"},
	} {
		one := tool(t, "a/x", "read fs", "kept", "write aws")
		one.Redact = tt.redact
		x := matcher.New(shelf{[]*switchboard.Tool{one}, new(int)}, nil)
		on, dropped := apply(t, x, requirement(tt.wants))
		if goes := len(on) == 1; goes != (tt.lacks == "") || !goes && dropped[0] != "a/x: prune: "+tt.lacks {
			t.Errorf("redacted by %v, %s required: %q remain, %q dropped", tt.redact, tt.wants, on, dropped)
		}
	}
}

func TestAToolWithoutCapabilitiesCarriesNoConstraint(t *testing.T) {
	x := matcher.New(shelf{[]*switchboard.Tool{tool(t, "a/x")}, new(int)}, nil)
	r := requirement("tools a/x")
	r.Constraints = []switchboard.Constraint{switchboard.ReadOnly}
	on, dropped := apply(t, x, r)
	if want := []string{"a/x: prune: it states no capability that could carry readonly"}; len(on) != 0 || !slices.Equal(dropped, want) {
		t.Errorf("%q remain, %q dropped, want none and %q", on, dropped, want)
	}
}

func TestConstraintsOfTheTaxonomyFileCountToo(t *testing.T) {
	x := matcher.New(shelf{[]*switchboard.Tool{
		tool(t, "a/with", "read fs eu_only readonly"),
		tool(t, "a/without", "read fs readonly"),
	}, new(int)}, nil)
	on, dropped := apply(t, x, requirement("read fs eu_only readonly"))
	if !slices.Equal(on, []string{"a/with"}) || len(dropped) != 1 {
		t.Errorf("%q remain, %q dropped", on, dropped)
	}
}

func TestToolsByName(t *testing.T) {
	tools := []*switchboard.Tool{tool(t, "git/log"), tool(t, "fs/write"), tool(t, "fs/read"), tool(t, "fs/list")}
	for _, tt := range []struct {
		name, wants string
		on, dropped []string
	}{
		{"one", "tools fs/read", []string{"fs/read"}, nil},
		{"in the order of ids", "tools fs/*", []string{"fs/list", "fs/read", "fs/write"}, nil},
		{"each once", "tools git/* fs/r* fs/read", []string{"fs/read", "git/log"}, nil},
		{"nothing", "tools nope/*", nil, nil},
		{"no partial match", "tools fs/read nope/*", nil, []string{"fs/read: filter: no tool is named nope/*, which the requirement names too"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			on, dropped := apply(t, matcher.New(shelf{tools, new(int)}, nil), requirement(tt.wants))
			if !slices.Equal(on, tt.on) || !slices.Equal(dropped, tt.dropped) {
				t.Errorf("%q remain, %q dropped; want %q and %q", on, dropped, tt.on, tt.dropped)
			}
		})
	}
}

func TestByNameIsRefusedToATenantThatMayNotUseNames(t *testing.T) {
	law.Hold(t, law.OnlyNarrower)
	x := matcher.New(shelf{[]*switchboard.Tool{tool(t, "a/x")}, new(int)}, nil)
	q := &decide.Question{Tenant: &switchboard.Tenant{}, Task: &switchboard.Task{ID: "t"}, Requirement: requirement("tools a/*")}
	on, err := x.Filter().Apply(t.Context(), q, nil, decide.Ignore)
	refusal, ok := errors.AsType[*switchboard.Error](err)
	if !ok || refusal.Code != switchboard.CodeNotAuthorized || len(on) != 0 {
		t.Errorf("Apply = %v, %v, want SB-AUTH-002", on, err)
	}
}

func TestTheCatalogIsQueriedOnceForEachAnswer(t *testing.T) {
	asked := 0
	x := matcher.New(shelf{[]*switchboard.Tool{tool(t, "a/x", "read fs")}, &asked}, nil)
	q := &decide.Question{Tenant: &switchboard.Tenant{}, Requirement: requirement("read fs")}
	asked = 0
	for range 5 {
		in, err := x.Filter().Apply(context.Background(), q, nil, decide.Ignore)
		if err != nil || len(in) != 1 {
			t.Fatal(in, err)
		}
		in[0] = decide.Candidate{} // a stage may modify its input
	}
	if asked != 1 {
		t.Errorf("queried %d times", asked)
	}
}

// heap is a catalog that returns all its tools, in no order.
type heap []*switchboard.Tool

func (h heap) Match(switchboard.Verb, switchboard.Resource) []*switchboard.Tool { return h[1:] }
func (h heap) Named(string) []*switchboard.Tool                                 { return h }

func TestCandidatesAreInTheOrderOfTheirIDs(t *testing.T) {
	h := heap{tool(t, "b/x", "read fs"), tool(t, "c/x", "read fs"), tool(t, "a/z", "read fs"), tool(t, "a/y", "read fs")}
	r := requirement("read fs")
	in, err := matcher.New(h, nil).Filter().Apply(t.Context(), &decide.Question{Tenant: &switchboard.Tenant{}, Requirement: r}, nil, decide.Ignore)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range in {
		got = append(got, c.Tool.ID.String())
	}
	if want := []string{"a/y", "a/z", "c/x"}; !slices.Equal(got, want) {
		t.Errorf("candidates are %q, want %q", got, want)
	}
}
