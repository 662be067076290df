package verdict_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verdict"
)

// model is boundaries.rego in Go, for these tests alone.
func model(rows []capability.Boundary, c switchboard.Contract) (fired []verdict.Fired) {
	id, _, _ := strings.Cut(c.Capability, "@")
	for _, b := range rows {
		isCase := func(account string) bool {
			return slices.Contains(strings.Split(strings.ToLower(account), "."), strings.ToLower(b.Decision.Account()))
		}
		effect := func(e string) bool { return slices.Contains(c.SideEffects, e) }
		switch {
		case slices.Contains(b.Exceptions, id):
		case len(b.SideEffectsAny) > 0 && !slices.ContainsFunc(b.SideEffectsAny, effect):
		case len(b.CostClasses) > 0 && !slices.Contains(b.CostClasses, c.CostClass):
		case len(b.RiskLevels) > 0 && !slices.Contains(b.RiskLevels, c.RiskLevel):
		case b.IDMatches != "" && !regexp.MustCompile(`\A(?:`+b.IDMatches+`)\z`).MatchString(id):
		default:
			f := verdict.Fired{Row: b.ID, Who: b.Who, File: b.File, Line: b.Line}
			switch name := b.Decision.Account(); {
			case b.Severity == capability.Soft:
				f.Effect, f.Text = verdict.Warn, string(b.Decision)+", but the row is soft"
			case b.Decision == capability.Deny:
				f.Effect = verdict.Block
			case b.Decision == capability.RequireApproval:
				f.Effect = verdict.Ask
			case b.Decision == capability.Advise:
				f.Effect, f.Text = verdict.Warn, "advised against"
			case slices.ContainsFunc(c.Accounts, isCase):
				f.Effect, f.Text = verdict.Warn, "acts as "+name
			default:
				f.Effect, f.Text = verdict.Block, "no "+name+" account in deps"
			}
			fired = append(fired, f)
		}
	}
	return fired
}

// A draw returns a number from 0 to below n.
type draw func(n int) int

// some returns some of the texts, in their order.
func some[T any](d draw, all ...T) (out []T) {
	for _, x := range all {
		if d(3) == 0 {
			out = append(out, x)
		}
	}
	return out
}

// drawFixture draws a small registry, in which facts, clauses and ids meet often.
func drawFixture(t testing.TB, d draw) *fixture {
	f := &fixture{atoms: map[string]*capability.Atom{}, states: map[string]capability.State{}}
	ids := []string{"cap.a", "cap.b", "cap.b.c", "io.fs"}
	atoms := []string{"acc.brian.x", "acc.Ann.y", "key.brian", "srv.z"}
	for _, id := range atoms {
		if d(8) == 0 {
			continue // an atom that nothing defines
		}
		kind, _, _ := strings.Cut(id, ".")
		f.atoms[id] = &capability.Atom{ID: id, Kind: map[string]string{"acc": "account"}[kind], Critical: d(2) == 0}
		if d(3) > 0 {
			f.atoms[id].Probe.Env = "X"
		}
		if s := []capability.State{"", capability.Stale, capability.Red, capability.Unknown, capability.Fresh}[min(4, d(9))]; s != "" {
			f.states[id] = s
		}
	}
	for _, id := range ids[:1+d(len(ids))] {
		v := newVersion(t, id+"@1.0.0", some(d, atoms...), some(d, ids...))
		v.Status = []capability.Status{capability.Active, capability.Deprecated, capability.Retired}[max(0, d(12)-9)]
		v.Facts.SideEffects = some(d, "costs-money", "reads", "writes")
		v.Facts.RiskLevel = append([]string{""}, capability.RiskLevels...)[d(5)]
		v.Facts.CostClass = append([]switchboard.CostClass{""}, switchboard.CostClasses...)[d(4)]
		if d(6) == 0 {
			v.Facts.ApprovalAsked, v.Facts.Approval = true, some(d, "ann", "finance")
		}
		f.versions = append(f.versions, v)
	}
	for i := range d(5) {
		f.rows = append(f.rows, drawRow(d, fmt.Sprint("row", i), ids))
	}
	return f
}

func drawRow(d draw, name string, ids []string) capability.Boundary {
	b := capability.Boundary{
		ID: name, Severity: capability.Hard, SideEffectsAny: some(d, "costs-money", "reads", "writes"), Exceptions: some(d, ids[:2]...),
		CostClasses: some(d, switchboard.CostClasses...), RiskLevels: some(d, capability.RiskLevels...),
		IDMatches: []string{"", "", `cap\..*`, `cap\.b`, `cap\.(a|b)`, `.*\.fs|x`}[d(6)],
		Decision:  []capability.RowDecision{capability.Deny, capability.RequireApproval, capability.Advise, "deny_unless_account:brian", "deny_unless_account:ANN"}[d(5)],
		File:      "b.yaml", Line: 1 + d(9),
	}
	if d(4) == 0 {
		b.Severity = capability.Soft
	}
	if b.Decision == capability.RequireApproval {
		b.Who = some(d, "finance", "owner")
	}
	return b
}

// firedRows returns the rows that fire for each version.
func (f *fixture) firedRows(t testing.TB) [][]verdict.Fired {
	t.Helper()
	r := f.registry(t)
	fired, err := boundary.Fired(t.Context(), layerOf(t, r, nil), r, f.candidates(r))
	if err != nil {
		t.Fatal(err)
	}
	return fired
}

// candidates returns the candidates in whose place the versions are judged.
func (f *fixture) candidates(r *capability.Registry) (tools []*switchboard.Tool) {
	for _, v := range f.versions {
		tools = append(tools, boundary.Candidate(r, v))
	}
	return tools
}

// judgeAll returns the verdicts on all versions.
func (f *fixture) judgeAll(t testing.TB) []verdict.Verdict {
	t.Helper()
	r := f.registry(t)
	all, err := boundary.NewAnswers(layerOf(t, r, nil), r, nil).Judge(t.Context(), f.versions, f.atomStates)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestRegoAndAModelJudgeTheSameRows compares boundaries.rego with the model, for "resolve" and for the layer of policy that
// removes candidates and obliges calls.
func TestRegoAndAModelJudgeTheSameRows(t *testing.T) {
	t.Parallel()
	registries := 10_000
	if testing.Short() {
		registries = 500
	}
	engine := policy.NewEngine(time.Minute, 0)
	random := rand.New(rand.NewPCG(25, 13))
	counts := map[verdict.Name]int{}
	for n := range registries {
		f := drawFixture(t, random.IntN)
		r := f.registry(t)
		l := layerOf(t, r, nil)
		fired, err := boundary.Fired(t.Context(), l, r, f.candidates(r))
		if err != nil {
			t.Fatal(err)
		}
		q := &policy.CandidateQuestion{Phase: policy.PhaseSelect, Requirement: &switchboard.Requirement{}}
		for i, v := range f.versions {
			c := r.Restrict(switchboard.Contract{}, v)
			q.Candidates = append(q.Candidates, &switchboard.Tool{ID: switchboard.ToolID{Server: "s", Name: v.ID}, Contract: c})
			if want := model(r.Boundaries, c); !sameRows(fired[i], want) {
				t.Fatalf("registry %d: Rego and the model differ about %+v under %+v:\n%+v\n%+v", n, c, r.Boundaries, fired[i], want)
			}
		}
		p, err := engine.NewPolicy(&switchboard.Tenant{ID: "acme"}, l)
		if err != nil {
			t.Fatal(err)
		}
		for i, judged := range p.Judge(t.Context(), q).Verdicts {
			v := verdict.Judge(r, f.versions[i], nil, fired[i])
			asks := slices.ContainsFunc(v.RequiredActions, func(s string) bool { return strings.HasPrefix(s, "approval:") })
			if denied := judged.Denied != nil; denied != (v.Verdict == verdict.Blocked) || (judged.Obligations.Approval != nil || q.Candidates[i].AsksPerson()) != asks {
				t.Fatalf("registry %d: the policy says %v %+v, and the verdict is %s", n, judged.Denied, judged.Obligations, render(v))
			}
			counts[v.Verdict]++
		}
	}
	t.Log(counts)
}

// sameRows compares rows that fire.
func sameRows(a, b []verdict.Fired) bool { return len(a)+len(b) == 0 || sameJSON(a, b) }

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(x, y)
}

// drawFrom draws from rapid.
func drawFrom(t *rapid.T) draw {
	return func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
}

// rank is the place of a verdict, the most permissive first.
func rank(v verdict.Verdict) int { return slices.Index(verdict.Names, v.Verdict) }

func TestMoreClausesNeverMakeARowFireMoreOften(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawFrom(rt)
		f := drawFixture(t, d)
		row, more := drawRow(d, "row", []string{"cap.a", "cap.b"}), drawRow(d, "more", []string{"cap.a", "cap.b"})
		f.rows = []capability.Boundary{row}
		before := f.firedRows(t)
		if len(row.SideEffectsAny) == 0 {
			row.SideEffectsAny = more.SideEffectsAny
		}
		if len(row.CostClasses) == 0 {
			row.CostClasses = more.CostClasses
		}
		if len(row.RiskLevels) == 0 {
			row.RiskLevels = more.RiskLevels
		}
		row.IDMatches = cmp.Or(row.IDMatches, more.IDMatches)
		f.rows = []capability.Boundary{row}
		for i, after := range f.firedRows(t) {
			if len(after) > len(before[i]) {
				rt.Fatalf("%+v fires for %s only with more clauses", row, f.versions[i].Name())
			}
		}
	})
}

func TestOneMoreRowOrRedAtomNeverMakesAVerdictMorePermissive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawFrom(rt)
		f := drawFixture(t, d)
		before := f.judgeAll(t)
		if d(2) == 0 {
			f.rows = append(f.rows, drawRow(d, "one-more", []string{"cap.a", "cap.b"}))
		} else {
			f.states[[]string{"acc.brian.x", "acc.Ann.y", "key.brian", "srv.z"}[d(4)]] = capability.Red
		}
		for i, after := range f.judgeAll(t) {
			if rank(after) < rank(before[i]) {
				rt.Fatalf("more permissive:\n%s\n%s", render(before[i]), render(after))
			}
		}
	})
}

func TestTheOrderOfFilesRowsAndKeysChangesNoByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawFrom(rt)
		f := drawFixture(t, d)
		versions := slices.Clone(f.versions)
		before, digest := f.judgeAll(t), f.registry(t).Digest()
		shuffle(d, f.rows)
		shuffle(d, f.versions)
		f.atoms, f.states = maps.Clone(f.atoms), maps.Clone(f.states)
		if f.registry(t).Digest() != digest {
			rt.Fatal("the registry has another digest")
		}
		f.versions = versions
		if after := f.judgeAll(t); !sameJSON(before, after) {
			rt.Fatalf("%+v\n%+v", before, after)
		}
	})
}

// shuffle shuffles the list, and the texts in its elements that are sets.
func shuffle[T any](d draw, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := d(i + 1)
		list[i], list[j] = list[j], list[i]
	}
	for _, x := range list {
		if v, ok := any(x).(*capability.ContractVersion); ok {
			shuffle(d, v.Atoms)
			shuffle(d, v.Capabilities)
		}
	}
}

func TestAnExceptionAffectsItsOwnRowAlone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := drawFrom(rt)
		f := drawFixture(t, d)
		if len(f.rows) == 0 {
			return
		}
		before := f.firedRows(t)
		row, id := &f.rows[d(len(f.rows))], f.versions[d(len(f.versions))].ID
		row.Exceptions = append(slices.Clone(row.Exceptions), id)
		for i, after := range f.firedRows(t) {
			want := before[i]
			if f.versions[i].ID == id {
				want = slices.DeleteFunc(slices.Clone(want), func(x verdict.Fired) bool { return x.Row == row.ID })
			}
			if !sameRows(want, after) {
				rt.Fatalf("an exception for %s of %s changes what fires for %s: %+v, want %+v", id, row.ID, f.versions[i].ID, after, want)
			}
		}
	})
}
