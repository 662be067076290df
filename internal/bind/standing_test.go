package bind

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/fstest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/standing"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// standingRules are rules that a random operator adds. All of them concern calls of people who have said yes in advance.
var standingRules = []string{
	`obligations[c.id] contains {"type": "require_approval"} if some c in input.candidate_tools`,
	`obligations[c.id] contains {"type": "require_approval", "standing": false} if { some c in input.candidate_tools; c.server == "a" }`,
	`obligations[c.id] contains {"type": "require_approval", "quorum": 2} if { some c in input.candidate_tools; c.server == "b" }`,
	`deny[c.id] contains "not to eve" if { input.phase == "call"; some c in input.candidate_tools; input.call.arguments.to == "eve" }`,
	`deny[c.id] contains "not by lea" if { input.phase == "approve"; input.approver.id == "lea"; some c in input.candidate_tools }`,
	`deny[c.id] contains "not by max to ops" if { input.phase == "approve"; input.approver.id == "max"; input.call.arguments.to == "ops"; some c in input.candidate_tools }`,
	`deny[c.id] contains "no fetch" if { some c in input.candidate_tools; c.tool == "fetch" }`,
}

// standingTests are tests of arguments, and whether they accept each of standingCalls.
var standingTests = []struct {
	tests string
	fits  [4]bool
}{
	{`{"/to": "any", "/n": "any"}`, [4]bool{true, true, true, true}},
	{`{"/to": {"in": ["ops", "eve"]}}`, [4]bool{true, true, false, false}},
	{`{"/to": {"equals": "ops"}, "/n": "any"}`, [4]bool{true, false, true, false}},
}

var standingCalls = [4]string{`{"to":"ops"}`, `{"to":"eve"}`, `{"to":"ops","n":1}`, `{"n":1}`}

// plainSeal keeps arguments as they are.
type plainSeal struct{}

func (plainSeal) Seal(_, _ string, text []byte) []byte           { return text }
func (plainSeal) Unseal(_, _ string, text []byte) ([]byte, bool) { return text, true }

// standingWorld is a world whose agents call its tools, with people who have said yes in advance.
type standingWorld struct {
	*world
	t       *testing.T
	keeper  *approval.Keeper
	yeses   *standing.Yeskeeper
	longest time.Duration // that the operator allows
	reached bool          // the last call reached its server
}

func newStandingWorld(t *testing.T, w *world) *standingWorld {
	t.Helper()
	s := store.NewMemory()
	t.Cleanup(func() { _ = s.Close() })
	sw := &standingWorld{world: w, t: t, longest: 8 * time.Hour}
	settings := func(switchboard.TenantID) switchboard.ApprovalSettings {
		return switchboard.ApprovalSettings{Standing: sw.longest}
	}
	rules := func(switchboard.TenantID) approval.DecideRules { return approval.DecideRules{} }
	who := func(_ switchboard.TenantID, v *approval.Vote) (switchboard.Officer, error) {
		return *standingOfficer(v.By), nil
	}
	veto := func(ctx context.Context, by *switchboard.Officer, _ *approval.Request, c *switchboard.Call, _ []byte) error {
		if c == nil {
			return nil // the test asks policy about uses
		}
		return w.state.Tenants["acme"].Rules.JudgeApproval(ctx, c, by, time.Now())
	}
	sw.keeper = approval.New(approval.Options{
		Store: s, Sealer: plainSeal{}, Key: switchboard.NewSecret("the key of the bindings"), Arguments: func(c *switchboard.Call) string { return string(c.Params) },
		Effect: func(*switchboard.Call) bool { return true }, Settings: settings, Rules: rules, Officer: who, Veto: veto,
		Describe: func(c *switchboard.Call) (string, bool) { return string(c.Params), true },
	})
	t.Cleanup(sw.keeper.Close)
	sw.yeses = standing.New(standing.Options{Store: s, Requests: sw.keeper, Settings: settings, Rules: rules, Officer: who, Veto: veto})
	sw.keeper.SetStanding(sw.yeses)
	return sw
}

func standingOfficer(id string) *switchboard.Officer {
	return &switchboard.Officer{ID: id, Auth: switchboard.AuthPersonKey, Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeApprover}}}
}

// call makes a call as the gateway does, and returns its error. asks says what demands the person's yes; nil for nothing.
func (w *standingWorld) call(e surface.Entry, arguments string) (asks *switchboard.Approval, err error) {
	w.t.Helper()
	current := func(p switchboard.Principal) (switchboard.Principal, *policy.Policy, error) {
		return w.state.CurrentPolicy(p)
	}
	w.reached = false
	server := switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Yes != nil {
			if err := w.keeper.Use(ctx, c, fmt.Sprint("intent ", w.Uint64()), nil); err != nil {
				return switchboard.Result{}, err
			}
		}
		w.reached = true
		return switchboard.Result{JSON: []byte(`{}`)}, nil
	})
	approve := w.keeper.Require(server)
	look := switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		asks = c.Obligations.Approval
		return approve.Call(ctx, c)
	})
	_, err = policy.Guard(current, nil, nil, look).Call(w.t.Context(), &switchboard.Call{
		Principal: localUser, Task: "t", Method: "tools/call", Server: e.Tool.ID.Server, Tool: e.Tool, Judgments: e.Judgments,
		Params: fmt.Appendf(nil, `{"name":%q,"arguments":%s}`, e.Name, arguments), Trail: &switchboard.Trail{},
	})
	return asks, err
}

// mayCall reports whether policy permits the call without a look at approvals, and whether it vetoes the yes of a person.
func (w *standingWorld) mayCall(e surface.Entry, arguments, person string) (permitted, vetoed bool) {
	c := &switchboard.Call{
		Principal: localUser, Task: "t", Method: "tools/call", Server: e.Tool.ID.Server, Tool: e.Tool, Judgments: e.Judgments,
		Params: fmt.Appendf(nil, `{"name":%q,"arguments":%s}`, e.Name, arguments), Trail: &switchboard.Trail{},
	}
	p := w.state.Tenants["acme"].Rules
	return p.JudgeCall(w.t.Context(), c, time.Now()).Err == nil, p.JudgeApproval(w.t.Context(), c, standingOfficer(person), time.Now()) != nil
}

// A knownYes is what the test knows of a standing yes.
type knownYes struct {
	tool   switchboard.ToolID
	digest switchboard.Digest
	person string
	fits   [4]bool
}

// A world takes about 0.2 s of a processor, since it compiles its policy four times.
var standingWorlds = flag.Int("standing-worlds", 16, "how many random `worlds` TestStandingYesesSpareTheAskingAndNothingElse makes")

// Whatever people have said yes to, in advance or to a capability, a call reaches its server only if it could be made without: its tool is on the surface,
// policy permits it, and no rule vetoes the person. And where a person has to be asked, a call is spared that only by a yes for its tool, its definition and
// its arguments.
func TestStandingYesesSpareTheAskingAndNothingElse(t *testing.T) {
	random := rand.New(rand.NewPCG(law.Seed(t), 2))
	law.Hold(t, law.OnlyNarrower)
	spared, asked, vetoed, denied := 0, 0, 0, 0
	for range *standingWorlds {
		w := &world{Rand: random, offers: map[switchboard.ServerID]map[string]string{}}
		load := func() {
			rules := "package switchboard\nallowed_tools contains c.id if some c in input.candidate_tools\n" + standingRules[0] + "\n"
			for _, rule := range standingRules[1:] {
				if random.IntN(3) == 0 {
					rules += rule + "\n"
				}
			}
			c, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fstest.MapFS{
				"switchboard.yaml": {Data: []byte("servers:\n  a: {transport: stdio, command: [a], class: paid}\n  b: {transport: stdio, command: [b], class: free}\n  c: {transport: stdio, command: [c], class: free}\n" +
					"tenants: {acme: {servers: [\"*\"], allow: [by_name], request: [{verb: read, resource: fs}]}}\n")},
				"policies/p.rego":           {Data: []byte(rules)},
				"tenants/acme/tenant.yaml":  {Data: []byte("tenant: acme\ndefault_task: t\n" + tenantEdits[random.IntN(len(tenantEdits))] + "\n")},
				"tenants/acme/tasks/t.yaml": {Data: []byte("task_id: t\nrequired_capabilities: [" + taskNeeds[random.IntN(len(taskNeeds))] + "]\n")},
			}})
			if err != nil {
				t.Fatal(err)
			}
			w.current = inputOf(t, c, 0)
			for _, id := range []switchboard.ServerID{"a", "b", "c"} {
				if len(w.offers[id]) == 0 || random.IntN(3) == 0 {
					w.changeOffer(id)
				}
			}
			w.rebuild()
		}
		sw := newStandingWorld(t, w)
		var given []knownYes
		added := []switchboard.Addition{{Request: "r-1", Capability: "read fs", Until: time.Now().Add(time.Hour)}}
		for step := range 4 {
			load()
			if step == 3 && random.IntN(2) == 0 {
				sw.longest = 0 // the operator allows no standing yes any more
			}
			s, err := w.Bind(t.Context(), localUser, "t", run.Before{Added: added})
			if err != nil {
				continue // the task cannot be met
			}
			for _, e := range s.Entries() {
				if e.Role == surface.Own || e.Role == surface.Stub {
					continue
				}
				for i, arguments := range standingCalls {
					asks, err := sw.call(e, arguments)
					sw.check(e, arguments, i, asks, err, given)
					code := switchboard.Code("")
					if own, ok := errors.AsType[*switchboard.Error](err); ok {
						code = own.Code
					}
					switch {
					case sw.reached && asks != nil:
						spared++
					case code == switchboard.CodeApprovalPending:
						asked++
						if random.IntN(3) == 0 {
							given = sw.give(e, given)
						}
					case code == switchboard.CodeDenied:
						denied++
					case code == switchboard.CodeApprovalGone:
						vetoed++
					}
				}
			}
		}
	}
	t.Logf("%d calls were spared the asking, %d asked, %d were denied, and %d had a yes that was vetoed", spared, asked, denied, vetoed)
	if spared < 5 || asked < 20 || denied < 5 || vetoed < 1 {
		t.Errorf("%d calls were spared the asking, %d asked, %d were denied, and %d had a yes that was vetoed: the test shows little", spared, asked, denied, vetoed)
	}
}

// check states what is wrong with the outcome of a call.
func (w *standingWorld) check(e surface.Entry, arguments string, i int, asks *switchboard.Approval, err error, all []knownYes) {
	w.t.Helper()
	permitted, _ := w.mayCall(e, arguments, "lea")
	if w.reached && (!permitted || err != nil) {
		w.t.Fatalf("%s %s reached its server, although policy denies it: %v", e.Tool.ID, arguments, err)
	}
	if !w.reached || asks == nil {
		return
	}
	for _, g := range all {
		if _, vetoed := w.mayCall(e, arguments, g.person); g.tool == e.Tool.ID && g.digest == e.Tool.Digest && g.fits[i] && !vetoed {
			if asks.NoStanding || asks.Quorum > 1 || w.longest == 0 {
				w.t.Fatalf("%s %s was spared, although no standing yes counts: %+v", e.Tool.ID, arguments, asks)
			}
			return
		}
	}
	w.t.Fatalf("%s %s reached its server, and no person has said yes to it", e.Tool.ID, arguments)
}

// give makes a standing yes from the request of a call, by a random person with random tests, where that is possible.
func (w *standingWorld) give(e surface.Entry, all []knownYes) []knownYes {
	w.t.Helper()
	requests, err := w.keeper.List(w.t.Context(), "acme")
	if err != nil {
		w.t.Fatal(err)
	}
	tests := standingTests[w.IntN(len(standingTests))]
	terms := standing.YesTerms{Uses: 1000, For: time.Hour}
	if terms.Arguments, err = standing.ParseTests([]byte(tests.tests)); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range requests {
		if r.Target.ID() != e.Tool.ID || r.Target.Definition != e.Tool.Digest || r.StateAt(time.Now()) != approval.Pending {
			continue
		}
		person := []string{"lea", "max"}[w.IntN(2)]
		if _, err := w.yeses.Make(w.t.Context(), standingOfficer(person), "acme", r.ID(), terms); err == nil {
			return append(all, knownYes{e.Tool.ID, e.Tool.Digest, person, tests.fits})
		}
	}
	return all
}
