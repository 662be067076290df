package verdict_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// dropped returns why the stage drops the tools, by the tools' names.
func dropped(t testing.TB, s decide.Stage, atoms decide.Atoms, tools ...*switchboard.Tool) map[string]string {
	t.Helper()
	var in []decide.Candidate
	for _, tool := range tools {
		in = append(in, decide.Candidate{Tool: tool})
	}
	why := map[string]string{}
	left, err := s.Apply(t.Context(), &decide.Question{Atoms: atoms}, in, func(c decide.Candidate, r decide.Reason) { why[c.Tool.ID.Name] = r.String() })
	if err != nil || len(left)+len(why) != len(tools) {
		t.Fatal(left, why, err)
	}
	return why
}

func toolOf(name, version string) *switchboard.Tool {
	return &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: name}, Contract: switchboard.Contract{Capability: version}}
}

func TestTheStageDropsWhatHasARedAtom(t *testing.T) {
	t.Parallel()
	f := readFixture(t)
	got := dropped(t, verdict.Stage(f.registry(t)), f.states,
		toolOf("linkedin", "cap.publish.linkedin@1.0.0"), toolOf("page", "cap.publish.fb_page@1.0.0"), toolOf("blog", "cap.publish.daily_blog@1.0.0"),
		toolOf("wipe", "cap.fs.wipe@1.0.0"), toolOf("old", "cap.fs.read@0.1.0"), toolOf("plain", ""))
	want := map[string]string{
		"linkedin": "acc.brian.linkedin: red",
		"wipe":     "cap.fs.read@^2: no active version",
		"old":      "cap.fs.read@0.1.0: the registry has no such version",
	}
	if !sameJSON(got, want) {
		t.Errorf("dropped: %q, want %q", got, want)
	}
	if got := dropped(t, verdict.Stage(f.registry(t)), nil, toolOf("linkedin", "cap.publish.linkedin@1.0.0")); len(got) > 0 {
		t.Errorf("atoms that were never probed drop %q", got)
	}
}

// The stage and the verdict agree in every registry: together with TestRegoAndAModelJudgeTheSameRows, so do the stages and
// "resolve".
func TestTheStageDropsWhatTheVerdictCallsNo(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(7, 25))
	for range 10_000 {
		f := drawFixture(t, random.IntN)
		r := f.registry(t)
		s := verdict.Stage(r)
		for _, v := range f.versions {
			no := verdict.Judge(r, v, f.states, nil)
			got := dropped(t, s, f.states, toolOf("x", v.Name()))["x"]
			if got != strings.Join(no.Blocking, "; ") || (got != "") != (no.Verdict == verdict.No) {
				t.Fatalf("the stage says %q, and the verdict is %s", got, render(no))
			}
		}
	}
}

func TestADiamondAndACycleOfCapabilitiesCountEachAtomOnce(t *testing.T) {
	t.Parallel()
	f := &fixture{atoms: map[string]*capability.Atom{}, versions: []*capability.ContractVersion{
		newVersion(t, "a@1.0.0", []string{"srv.x"}, []string{"b", "c"}), newVersion(t, "b@1.0.0", []string{"srv.x", "srv.y"}, []string{"d"}),
		newVersion(t, "c@1.0.0", nil, []string{"d"}), newVersion(t, "d@1.0.0", []string{"srv.y"}, []string{"a"}),
	}}
	r := f.registry(t)
	v := verdict.Judge(r, f.versions[0], map[string]capability.State{"srv.y": capability.Stale, "srv.x": capability.Red}, nil)
	if !slices.Equal(v.Blocking, []string{"srv.x: red"}) || !slices.Equal(v.RequiredActions, []string{"probe:srv.y"}) {
		t.Error(render(v))
	}
}
