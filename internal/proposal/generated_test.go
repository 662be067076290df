package proposal

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A generator makes random drafts, good and bad ones, of several files with claims.
type generator struct{ *rand.Rand }

func (g generator) pick(of ...string) string { return of[g.IntN(len(of))] }

// edits are the files that a draft may have, each with texts that keep the configuration good by themselves, and some that do not.
func (g generator) edit() FileDraft {
	n := g.IntN(1000)
	switch g.IntN(9) {
	case 0:
		return FileDraft{Path: taskFile, Text: new(fmt.Sprintf("task_id: all # %d\nrequired_capabilities: [{tools: [%q]}]\n", n, g.pick("a/*", "b/*", "*/one", "a/two")))}
	case 1:
		return FileDraft{Path: tenantFile, Text: new(fmt.Sprintf("tenant: acme # %d\ndefault_task: %s\n%s", n, g.pick("all", "all", "next"), g.pick("", "", "mode: assist\n", "ranking: {prefer: [{verb: search, resource: internet, servers: [b]}]}\n", "nonsense: 1\n")))}
	case 2:
		return FileDraft{Path: "tenants/acme/tasks/next.yaml", Text: new(fmt.Sprintf("task_id: next # %d\nrequired_capabilities: [{tools: [\"a/*\"]}]\n", n))}
	case 3:
		return FileDraft{Path: taskFile, Delete: true}
	case 4:
		return FileDraft{Path: "tenants/acme/policies/extra.rego", Text: new(fmt.Sprintf("package switchboard.tenant # %d\n", n))}
	case 5:
		return FileDraft{Path: "overlays/a.yaml", Text: new(startFiles["overlays/a.yaml"] + fmt.Sprintf("# %d\n", n))}
	case 6:
		return FileDraft{Path: "switchboard.yaml", Text: new(strings.Replace(startFiles["switchboard.yaml"], "7420", g.pick("7420", "7421", "x"), 1) + fmt.Sprintf("# %d\n", n))}
	case 7:
		return FileDraft{Path: g.pick("../x", "tenants/umbrella/tenant.yaml", "notes.txt", "./switchboard.yaml"), Text: new("x: 1\n")}
	}
	return FileDraft{Path: "taxonomy.yaml", Text: new(fmt.Sprintf("resources: {ledger: {}, extra%d: {}}\n", n))}
}

func (g generator) claim() StatedClaim {
	tool := g.pick("a/one", "a/two", "b/one", "b/two")
	switch g.IntN(5) {
	case 0:
		return StatedClaim{Tenant: "acme", Task: switchboard.TaskID(g.pick("all", "all", "next")), Lists: tool}
	case 1:
		return StatedClaim{Tenant: "acme", Task: "all", Hides: tool}
	case 2:
		return StatedClaim{Tenant: switchboard.TenantID(g.pick("acme", "umbrella")), Unchanged: true}
	case 3:
		return StatedClaim{Tenant: "acme", Decisions: 1 + g.IntN(30)}
	}
	return StatedClaim{Tenant: "umbrella", Task: "all", Lists: tool}
}

// Whatever is proposed, by whomever: what is refused changes nothing; nothing is applied without its yeses; what is applied has exactly its texts, and its claims hold; what is taken back leaves the
// bytes that were there; and no agent gets anything critical.
func TestTwoHundredGeneratedProposals(t *testing.T) {
	stores := maps.Clone(lastingStores)
	stores["memory"] = func(*testing.T) func() store.Store {
		return func() store.Store { return store.NewMemory() }
	}
	for kind, open := range stores {
		t.Run(kind, func(t *testing.T) { generateProposals(t, open(t)) })
	}
}

// generateProposals makes two hundred proposals, and carries out what becomes of each. newStore opens an empty store.
func generateProposals(t *testing.T, newStore func() store.Store) {
	g := generator{rand.New(rand.NewPCG(28, 4))}
	count := map[string]int{}
	var w *world
	for n := range 200 {
		if n%10 == 0 {
			if w != nil {
				closeStore(t, w.store)
			}
			w = newWorldOver(t, newStore())
		}
		d := &Draft{Note: fmt.Sprint("number ", n)}
		for range 1 + g.IntN(3) {
			d.Files = append(d.Files, g.edit())
		}
		for range g.IntN(3) {
			d.Claims = append(d.Claims, g.claim())
		}
		by := []*switchboard.Officer{nil, ann, ops}[g.IntN(3)]
		who := agent
		if by != nil {
			who = ByOfficer(by)
		}
		before := w.files()
		p, err := w.Create(t.Context(), who, by, d)
		if !maps.Equal(w.files(), before) {
			t.Fatalf("%d: a trial has changed files", n)
		}
		if err != nil {
			count["refused at once"]++
			continue
		}
		if who.Agent && p.Risk == Critical {
			t.Fatalf("%d: an agent proposes %+v", n, p.Parts)
		}
		for range g.IntN(3) { // perhaps not enough
			_, _ = w.Decide(t.Context(), []*switchboard.Officer{ann, bob, ops, oda}[g.IntN(4)], p.ID, true, "")
		}
		now, _, err := w.stored(p.ID)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(now.Votes, func(v PersonVote) bool { return v.By == who.ID }) {
			t.Fatalf("%d: the proposer has said yes", n)
		}
		w.lie = nil
		if g.IntN(2) == 0 {
			w.lie = alsoTwo
		}
		p, err = w.Apply(t.Context(), ops, p.ID)
		if !w.world().FilesUnchanged() {
			t.Fatalf("%d: what is served was not made from the files", n)
		}
		lied := w.lie != nil
		w.lie = nil
		switch {
		case err == nil:
			count["applied, "+string(p.Risk)]++
			if now.yeses() < now.Needed || len(p.Broken) > 0 {
				t.Fatalf("%d: %+v", n, p)
			}
			for _, f := range d.Files {
				if want := f.bytes(); want == nil && w.text(f.Path) != "absent" || want != nil && w.text(f.Path) != string(want) {
					t.Fatalf("%d: %s is %q", n, f.Path, w.text(f.Path))
				}
			}
			if g.IntN(2) == 0 {
				if _, err = w.RollBack(t.Context(), ops, p.ID, ""); err != nil || !maps.Equal(w.files(), before) || !w.world().FilesUnchanged() {
					t.Fatalf("%d: taken back: %v; the files: %q", n, err, w.files())
				}
				count["taken back"]++
			}
		case !maps.Equal(w.files(), before):
			t.Fatalf("%d: %v; the files: %q", n, err, w.files())
		case p.State == RolledBack:
			count["rolled back"]++
			if !lied {
				t.Fatalf("%d: %v", n, err)
			}
		default:
			count["refused when applied: "+reason(err)]++
		}
	}
	closeStore(t, w.store)
	t.Log(count)
	if count["refused at once"] < 40 || count["applied, low"]+count["applied, medium"]+count["applied, high"] < 20 || count["taken back"] < 5 || count["rolled back"] < 2 {
		t.Error("too few of each are generated")
	}
}
