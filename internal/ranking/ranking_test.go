package ranking_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tools makes tools from "server/tool" or "server/tool class".
func tools(t *testing.T, lines ...string) (ts []*switchboard.Tool) {
	t.Helper()
	for _, line := range lines {
		id, class, _ := strings.Cut(line, " ")
		tid, err := switchboard.ParseToolID(id)
		if err != nil {
			t.Fatal(err)
		}
		ts = append(ts, &switchboard.Tool{ID: tid, Class: class})
	}
	return ts
}

// rank orders the tools and returns each with its place and score.
func rank(ctx context.Context, t rapid.TB, r switchboard.Ranking, req switchboard.Requirement, ts []*switchboard.Tool) (order []string) {
	t.Helper()
	in := make([]decide.Candidate, len(ts))
	for i, tool := range ts {
		in[i].Tool = tool
	}
	stage := ranking.New(r, ts)
	out, err := stage.Apply(ctx, &decide.Question{Requirement: &req}, slices.Clone(in), decide.Ignore)
	if err != nil {
		t.Fatal(err)
	}
	// Candidates in the order of their ids are not sorted again; the result is the same.
	slices.SortFunc(in, func(a, b decide.Candidate) int { return a.Tool.ID.Compare(b.Tool.ID) })
	fast, err := stage.Apply(ctx, &decide.Question{Requirement: &req}, in, decide.Ignore)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range out {
		if f := fast[i]; f.Tool != c.Tool || f.Place != c.Place || f.Score != c.Score {
			t.Fatalf("from sorted candidates %s comes %dth, from others it is %s", f.Tool.ID, i, c.Tool.ID)
		}
		order = append(order, fmt.Sprintf("%s %d %d", c.Tool.ID, c.Place, c.Score))
	}
	return order
}

func TestRank(t *testing.T) {
	search := switchboard.Requirement{Verb: "search", Resource: "internet"}
	all := []string{"brave/web paid", "brave/news paid", "google/web free", "kagi/web paid", "zeta/web"}
	classes := map[string]int{"free": 100, "paid": 200}
	prefer := func(verb, resource string, servers ...switchboard.ServerID) switchboard.Prefer {
		return switchboard.Prefer{Verb: switchboard.Verb(verb), Resource: switchboard.Resource(resource), Servers: servers}
	}
	for _, tt := range []struct {
		name  string
		r     switchboard.Ranking
		req   switchboard.Requirement
		tools []string
		want  []string
	}{
		{
			"nothing said: by bytes",
			switchboard.Ranking{},
			search, all,
			[]string{"brave/news 0 0", "brave/web 0 0", "google/web 0 0", "kagi/web 0 0", "zeta/web 0 0"},
		},
		{
			"by class, the highest first, and no class is 0",
			switchboard.Ranking{Classes: classes},
			search, all,
			[]string{"brave/news 0 200", "brave/web 0 200", "kagi/web 0 200", "google/web 0 100", "zeta/web 0 0"},
		},
		{
			"every adjust that matches counts",
			switchboard.Ranking{Classes: classes, Adjust: []switchboard.Adjust{
				{Server: "bra*", By: -150}, {Server: "*", By: 5}, {Server: "*a*e", By: -1}, {Server: "kagi", By: 1}, {Server: "kag", By: 1000},
			}},
			search, all,
			[]string{"kagi/web 0 206", "google/web 0 105", "brave/news 0 54", "brave/web 0 54", "zeta/web 0 5"},
		},
		{
			"a negative score comes after none",
			switchboard.Ranking{Adjust: []switchboard.Adjust{{Server: "brave", By: -1}}},
			search, all,
			[]string{"google/web 0 0", "kagi/web 0 0", "zeta/web 0 0", "brave/news 0 -1", "brave/web 0 -1"},
		},
		{
			"preferred before any score, in the row's order",
			switchboard.Ranking{Classes: classes, Prefer: []switchboard.Prefer{
				prefer("search", "internet", "zeta", "away", "google"),
			}},
			search, all,
			[]string{"zeta/web 1 0", "google/web 3 100", "brave/news 0 200", "brave/web 0 200", "kagi/web 0 200"},
		},
		{
			"only the first row that fits",
			switchboard.Ranking{Prefer: []switchboard.Prefer{
				prefer("read", "internet", "kagi"), prefer("search", "fs", "kagi"),
				prefer("search", "internet", "zeta", "zeta"), prefer("search", "internet", "google"),
			}},
			search, all,
			[]string{"zeta/web 1 0", "brave/news 0 0", "brave/web 0 0", "google/web 0 0", "kagi/web 0 0"},
		},
		{
			"a first row that names nobody here is still the first",
			switchboard.Ranking{Prefer: []switchboard.Prefer{
				prefer("search", "internet", "away"), prefer("search", "internet", "zeta"),
			}},
			search,
			[]string{"google/web", "zeta/web"},
			[]string{"google/web 0 0", "zeta/web 0 0"},
		},
		{
			"by name nobody is preferred",
			switchboard.Ranking{Prefer: []switchboard.Prefer{prefer("", "", "zeta")}},
			switchboard.Requirement{Tools: []string{"*/*"}},
			[]string{"google/web", "zeta/web"},
			[]string{"google/web 0 0", "zeta/web 0 0"},
		},
		{
			"bytes, not letters",
			switchboard.Ranking{},
			search,
			[]string{"a/b", "a/B", "a/_", "a-b/x", "a0/x", "a/a10", "a/a9"},
			[]string{"a/B 0 0", "a/_ 0 0", "a/a10 0 0", "a/a9 0 0", "a/b 0 0", "a-b/x 0 0", "a0/x 0 0"},
		},
		{"none", switchboard.Ranking{}, search, nil, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := rank(t.Context(), t, tt.r, tt.req, tools(t, tt.tools...)); !slices.Equal(got, tt.want) {
				t.Errorf("order is\n %q, want\n %q", got, tt.want)
			}
		})
	}
}

// AZ-12
func TestAttack6AServerForWhichTheOperatorVouchesComesBeforeBytesAndAfterScores(t *testing.T) {
	search := switchboard.Requirement{Verb: "search", Resource: "internet"}
	ts := tools(t, "aliar/find", "bing/find cheap", "files/find", "files/other", "zeta/find")
	for _, tool := range ts {
		if tool.ID.Server == "files" {
			tool.Trust = switchboard.TrustOperator
		} else {
			tool.Trust = switchboard.TrustDeclared
		}
	}
	got := rank(t.Context(), t, switchboard.Ranking{Classes: map[string]int{"cheap": 100}}, search, ts)
	if want := []string{"bing/find 0 100", "files/find 0 0", "files/other 0 0", "aliar/find 0 0", "zeta/find 0 0"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	prefer := switchboard.Ranking{Prefer: []switchboard.Prefer{{Verb: "search", Resource: "internet", Servers: []switchboard.ServerID{"aliar"}}}}
	if got := rank(t.Context(), t, prefer, search, ts); got[0] != "aliar/find 1 0" {
		t.Errorf("a server that the tenant prefers comes after %s", got[0])
	}
}

func TestAnUnknownServerIsNotRanked(t *testing.T) {
	stage := ranking.New(switchboard.Ranking{}, tools(t, "a/x"))
	_, err := stage.Apply(t.Context(), &decide.Question{Requirement: &switchboard.Requirement{}}, []decide.Candidate{{Tool: tools(t, "b/x")[0]}}, decide.Ignore)
	if err == nil {
		t.Error("an unknown server was ranked")
	}
}

// TestTheOrderIsTheRule compares the order with the documented rule, applied to one candidate at a time.
func TestTheOrderIsTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.MapOf(rapid.SampledFrom([]string{"x", "y", "z"}), rapid.IntRange(-2, 2)).Draw(t, "classes")
		ids := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) switchboard.ServerID {
			return switchboard.ServerID(rapid.StringMatching(`[ab]{1,3}(-[a0]{1,2})?`).Draw(t, "id"))
		}), 0, 150, rapid.ID).Draw(t, "servers")
		var ts []*switchboard.Tool
		for _, id := range ids {
			class := rapid.SampledFrom([]string{"", "x", "y", "z", "w"}).Draw(t, "class")
			for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[aB_]{1,2}`), 1, 3, rapid.ID).Draw(t, "tools") {
				ts = append(ts, &switchboard.Tool{ID: switchboard.ToolID{Server: id, Name: name}, Class: class})
			}
		}
		r := switchboard.Ranking{Classes: classes}
		for range rapid.IntRange(0, 3).Draw(t, "adjusts") {
			r.Adjust = append(r.Adjust, switchboard.Adjust{
				Server: rapid.StringMatching(`[ab*]{1,4}`).Draw(t, "pattern"), By: rapid.IntRange(-3, 3).Draw(t, "by"),
			})
		}
		if len(ids) > 0 {
			for range rapid.IntRange(0, 2).Draw(t, "rows") {
				r.Prefer = append(r.Prefer, switchboard.Prefer{
					Verb: rapid.SampledFrom([]switchboard.Verb{"read", "write"}).Draw(t, "verb"), Resource: "fs",
					Servers: rapid.SliceOfN(rapid.SampledFrom(ids), 0, 4).Draw(t, "row"),
				})
			}
		}
		req := switchboard.Requirement{Verb: "read", Resource: "fs"}

		type keyed struct {
			place, score int
			tool         *switchboard.Tool
		}
		var want []keyed
		for _, tool := range ts {
			want = append(want, keyed{place(r, req, tool), serverScore(r, tool), tool})
		}
		slices.SortFunc(want, func(a, b keyed) int {
			preferred := func(k keyed) int {
				if k.place == 0 {
					return 1 << 30
				}
				return k.place
			}
			if c := preferred(a) - preferred(b); c != 0 {
				return c
			}
			if c := b.score - a.score; c != 0 {
				return c
			}
			return a.tool.ID.Compare(b.tool.ID)
		})
		var order []string
		for _, k := range want {
			order = append(order, fmt.Sprintf("%s %d %d", k.tool.ID, k.place, k.score))
		}

		shuffled := rapid.Permutation(ts).Draw(t, "shuffled") // law: the order of the input never matters
		if got := rank(t.Context(), t, r, req, shuffled); !slices.Equal(got, order) {
			t.Fatalf("order is\n %q, want\n %q", got, order)
		}
	})
}

func place(r switchboard.Ranking, req switchboard.Requirement, t *switchboard.Tool) int {
	for _, row := range r.Prefer {
		if row.Verb == req.Verb && row.Resource == req.Resource {
			return slices.Index(row.Servers, t.ID.Server) + 1
		}
	}
	return 0
}

func serverScore(r switchboard.Ranking, t *switchboard.Tool) int {
	n := r.Classes[t.Class]
	for _, a := range r.Adjust {
		if glob(a.Server, string(t.ID.Server)) {
			n += a.By
		}
	}
	return n
}

// glob is the obvious, exponential matcher.
func glob(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		return glob(pattern[1:], s) || s != "" && glob(pattern, s[1:])
	default:
		return s != "" && s[0] == pattern[0] && glob(pattern[1:], s[1:])
	}
}
