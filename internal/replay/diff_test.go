package replay

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Masterminds/semver/v3"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// allowRules are rules that allow tools. Each layer has one of them.
var allowRules = []string{
	`allowed_tools contains c.id if some c in input.candidate_tools`,
	`allowed_tools contains c.id if { some c in input.candidate_tools; c.trust == "operator" }`,
	`allowed_tools contains c.id if { some c in input.candidate_tools; c.trust == "nobody" }`,
	`allowed_tools := [c.id | some c in input.candidate_tools; c.tool != "y"]`,
}

// denyRules are rules that read every input of a policy, each in a file of its own.
var denyRules = []string{
	`deny[c.id] contains sprintf("not for %s", [input.principal.id]) if { some c in input.candidate_tools; not "admin" in input.principal.roles }`,
	`deny[c.id] contains "tier" if { some c in input.candidate_tools; input.user_tier == "free"; c.class == "paid" }`,
	`deny[c.id] contains input.mode if { some c in input.candidate_tools; input.mode != "autopilot" }`,
	`deny[c.id] contains input.now if { some c in input.candidate_tools; time.clock(time.parse_rfc3339_ns(input.now))[0] < 12 }`,
	`deny[c.id] contains "odd" if { some c in input.candidate_tools; time.now_ns() % 2 == 1 }`,
	`deny[c.id] contains "dice" if { some c in input.candidate_tools; rand.intn(c.id, 3) == 0 }`,
	`deny[c.id] contains "task" if { some c in input.candidate_tools; input.task.task_id == "b" }`,
	`deny[c.id] contains "word" if { some c in input.candidate_tools; c.server in input.tenant_policy.never }`,
	`deny[c.id] contains "data" if { some c in input.candidate_tools; c.server == data.switchboard.tenant.settings.server }`,
	`deny[c.id] contains "an error" if { some c in input.candidate_tools; 1 / count(c.capabilities[_].constraints) > 5 }`,
	`deny[c.id] contains "read" if { some c in input.candidate_tools; c.annotations.readOnlyHint == true }`,
	`deny[c.id] contains c.contract.sources.stateful.source if { some c in input.candidate_tools; c.contract.stateful }`,
	`deny[c.id] contains "once" if { some c in input.candidate_tools; c.contract.timeout_ms < 2000; not c.contract.repeatable }`,
	`deny[c.id] contains "first" if { c := input.candidate_tools[0]; input.requirement.verb == "read" }`,
	`obligations[c.id] contains {"type": "enforce_timeout", "timeout": "1s"} if some c in input.candidate_tools`,
	`obligations[c.id] contains {"type": "notify", "who": "ops"} if { some c in input.candidate_tools; c.server == "b" }`,
	`deny[c.id] contains sprintf("not %v", [input.call.arguments.path]) if { some c in input.candidate_tools; startswith(input.call.arguments.path, "/etc") }`,
	`deny[c.id] contains "deep" if { some c in input.candidate_tools; input.call.arguments.opts.deep; input.phase == "call" }`,
	`deny[c.id] contains "any" if { some c in input.candidate_tools; some v in input.call.arguments; v == "x" }`,
	`obligations[c.id] contains {"type": "log", "level": "info"} if { some c in input.candidate_tools; input.call.arguments.n > 3 }`,
	`deny[c.id] contains sprintf("dear: %v", [input.call.cost]) if { some c in input.candidate_tools; input.call.cost > 0.04 }`,
	`deny[c.id] contains "cheap" if { some c in input.candidate_tools; input.call.cost == 0.02; input.call.cost < 0.020001 }`,
	`deny[c.id] contains c.contract.cost_class if { some c in input.candidate_tools; c.contract.price.call > 0.03 }`,
	`deny[c.id] contains "phase" if { some c in input.candidate_tools; input.phase == "call"; c.server == "c" }`,
}

func drawPolicies(t *rapid.T, label, pkg string) []switchboard.PolicyFile {
	files := []switchboard.PolicyFile{{Name: "notes_test.rego", Path: "notes_test.rego", Data: []byte("never compiled")}}
	drawn := rapid.SliceOfNDistinct(rapid.SampledFrom(denyRules), 0, 6, rapid.ID).Draw(t, label)
	for i, rule := range append(drawn, rapid.SampledFrom(allowRules).Draw(t, label+" allows")) {
		name := fmt.Sprintf("%d.rego", i)
		files = append(files, switchboard.PolicyFile{Name: label + "/" + name, Path: name, Data: []byte("package " + pkg + "\n\n" + rule + "\n")})
	}
	if pkg == "switchboard.tenant" {
		files = append(files, switchboard.PolicyFile{Name: "settings.json", Path: "settings.json", Data: []byte(`{"switchboard":{"tenant":{"settings":{"server":"b"}}}}`)})
	}
	return files
}

func drawConfig(t *rapid.T) *config.Config {
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud"}, []switchboard.Constraint{"eu"})
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Config{Taxonomy: tax, Tenants: map[switchboard.TenantID]*switchboard.Tenant{}, TenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{}}
	if rapid.IntRange(0, 3).Draw(t, "contracts") > 0 {
		drawContracts(t, c)
	}
	for _, id := range []switchboard.ServerID{"a", "b", "c"} {
		c.Servers = append(c.Servers, switchboard.Server{
			ID: id, Class: rapid.SampledFrom([]string{"", "free", "paid"}).Draw(t, "class"),
			Trust: rapid.SampledFrom([]switchboard.Trust{"", switchboard.TrustDeclared, switchboard.TrustOperator}).Draw(t, "trust"),
		})
	}
	c.Overlays = map[switchboard.ToolID]switchboard.Overlay{{Server: "a", Name: "x"}: {Contract: switchboard.Contract{
		Idempotent: switchboard.Fact{Holds: rapid.Bool().Draw(t, "idempotent"), Source: switchboard.FromOverlay, Trusted: true},
		Timeout:    time.Second,
		CostClass:  rapid.SampledFrom([]switchboard.CostClass{"", switchboard.CostPaid}).Draw(t, "cost class"),
	}, Price: rapid.SampledFrom([]*switchboard.Price{
		nil,
		{},
		{Call: 20_000},
		{Call: 50_000},
		{Call: 10_000, Each: []switchboard.ElementPrice{{Pointer: "/opts/deep", Micros: 10_000}, {Pointer: "/opts/other", Micros: 1}}},
		{Call: 1, Most: 45_000, Reported: true},
	}).Draw(t, "price")}}
	c.Policies = drawPolicies(t, "policies", "switchboard")
	for _, id := range []switchboard.TenantID{"acme", "umbrella"} {
		tenant := &switchboard.Tenant{
			ID: id, Servers: []switchboard.ServerID{"a", "b", "c"}, ByName: true, DefaultTask: "a",
			Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{
				{Server: "c", Name: "x"}: {
					Capabilities: []switchboard.Capability{{Verb: "read", Resource: "fs"}},
					Contract:     switchboard.Contract{Stateful: switchboard.Fact{Holds: rapid.Bool().Draw(t, "stateful"), Source: switchboard.FromTenantOverlay}},
				},
			},
			RecordInputs: rapid.Bool().Draw(t, "record inputs"),
			TokenBudget:  rapid.SampledFrom([]int{0, 900}).Draw(t, "budget"),
			OnFull:       rapid.SampledFrom([]switchboard.OnFull{"", switchboard.OnFullCollapse}).Draw(t, "on full"),
			Declare:      rapid.SampledFrom([][]switchboard.Requirement{nil, {{Verb: "read", Resource: "fs"}}}).Draw(t, "declare"),
			Mode:         rapid.SampledFrom(append([]switchboard.Mode{""}, switchboard.Modes...)).Draw(t, "mode"),
			Permissions:  rapid.SampledFrom([][]string{nil, {"fs:read"}, {"fs:read"}}).Draw(t, "permissions"),
			Tier:         rapid.SampledFrom([]string{"", "free", "pro"}).Draw(t, "tier"), Roles: []string{"admin", "writer"},
			Ranking: switchboard.Ranking{
				Classes: map[string]int{"paid": rapid.IntRange(-1, 1).Draw(t, "paid")},
				Prefer:  []switchboard.Prefer{{Verb: "read", Resource: "fs", Servers: []switchboard.ServerID{"b"}}},
			},
		}
		if rapid.Bool().Draw(t, "word") {
			tenant.Policy = []byte(`{"never":["a","<b>"]}`)
		}
		needs := drawRequirements(t)
		for _, task := range []switchboard.TaskID{"a", "b"} {
			if rapid.Bool().Draw(t, "other needs") {
				needs = drawRequirements(t)
			}
			tenant.Tasks[task] = &switchboard.Task{ID: task, Mode: rapid.SampledFrom([]switchboard.Mode{"", switchboard.Observe}).Draw(t, "task mode"), Requirements: needs, TokenBudget: rapid.SampledFrom([]int{0, 500}).Draw(t, "task's budget")}
		}
		if rapid.Bool().Draw(t, "own policies") {
			c.TenantPolicies[id] = drawPolicies(t, "own", "switchboard.tenant")
		}
		c.Tenants[id] = tenant
		for _, who := range []string{"ci", "cd"} {
			c.Keys = append(c.Keys, config.Key{
				Tenant: id, ID: who, Hash: canonicalHash(string(id) + who), Tier: rapid.SampledFrom([]string{"free", "pro"}).Draw(t, "key's tier"),
				Mode: rapid.SampledFrom(switchboard.Modes).Draw(t, "key's mode"), Tasks: []switchboard.TaskID{"a", "b"},
			})
		}
	}
	return c
}

func canonicalHash(id string) (h [32]byte) {
	copy(h[:], id)
	return h
}

// atomIDs are the atoms of all registries that are drawn.
var atomIDs = []string{"acc.brian.page", "key.page", "srv.files"}

// drawContracts adds a registry, and rows that say who provides its capabilities.
func drawContracts(t *rapid.T, c *config.Config) {
	atoms := map[string]*capability.Atom{}
	for i, id := range atomIDs {
		atoms[id] = &capability.Atom{ID: id, Kind: []string{"account", "key", "server"}[i], Critical: true, Probe: capability.AtomProbe{Env: "X"}}
	}
	rows := rapid.SliceOfNDistinct(rapid.SampledFrom([]capability.Boundary{
		{ID: "ask_for_money", Severity: capability.Hard, SideEffectsAny: []string{capability.CostsMoney}, Decision: capability.RequireApproval, Who: []string{"finance"}},
		{ID: "not_the_old_one", Severity: capability.Hard, IDMatches: `cap\.post`, Decision: capability.Deny},
		{ID: "only_brian", Severity: capability.Hard, RiskLevels: []string{"high"}, Decision: capability.DenyUnlessAccount + "brian"},
		{ID: "careful", Severity: capability.Soft, RiskLevels: []string{"high", "low"}, Decision: capability.Deny},
	}), 0, 4, func(b capability.Boundary) string { return b.ID }).Draw(t, "boundaries")
	var versions []*capability.ContractVersion
	for _, name := range []string{"cap.read@1.0.0", "cap.read@1.1.0", "cap.post@1.0.0"} {
		id, number, _ := strings.Cut(name, "@")
		tool, err := capability.NewTool("do", name, nil, nil, capability.Hints{})
		if err != nil {
			t.Fatal(err)
		}
		v := &capability.ContractVersion{
			ID: id, Number: semver.MustParse(number), Status: rapid.SampledFrom([]capability.Status{capability.Active, capability.Active, capability.Deprecated}).Draw(t, "status"),
			Verb: "read", Resource: "fs", Constraints: []switchboard.Constraint{switchboard.ReadOnly}, Tools: []capability.ContractTool{tool}, Permissions: []string{"fs:read"},
			Atoms: rapid.SliceOfDistinct(rapid.SampledFrom(atomIDs), rapid.ID).Draw(t, "atoms"),
			Facts: capability.Facts{
				SideEffects: rapid.SampledFrom([][]string{nil, {capability.CostsMoney}}).Draw(t, "side effects"),
				RiskLevel:   rapid.SampledFrom([]string{"", "low", "high"}).Draw(t, "risk"), ApprovalAsked: rapid.Bool().Draw(t, "approval"),
			},
		}
		if id == "cap.post" {
			v.Capabilities = []capability.Ref{{ID: "cap.read", Range: "^1"}}
		}
		v.Digest = canonical.SumOf(v)
		versions = append(versions, v)
	}
	var err error
	if c.Registry, err = capability.New(versions, atoms, rows, nil); err != nil {
		t.Fatal(err)
	}
	for _, server := range []switchboard.ServerID{"a", "b", "c"} {
		for _, id := range []string{"cap.read", "cap.post"} {
			c.Providers = append(c.Providers, capability.ProviderRow{Server: server, Ref: capability.Ref{ID: id, Range: "^1"}, Tools: map[string]*switchboard.DeclaredEquivalent{
				"do": {Tool: switchboard.ToolID{Server: server, Name: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "provides by")}},
			}})
		}
	}
}

// drawAtoms draws the states of atoms. Those of an atom that is left out are unknown.
func drawAtoms(t *rapid.T) decide.Atoms {
	return rapid.MapOf(rapid.SampledFrom(atomIDs), rapid.SampledFrom([]capability.State{capability.Fresh, capability.Fresh, capability.Stale, capability.Red})).Draw(t, "states")
}

func drawRequirements(t *rapid.T) (rs []switchboard.Requirement) {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) switchboard.Requirement {
		switch rapid.IntRange(0, 6).Draw(t, "by") {
		case 0:
			return switchboard.Requirement{Tools: []string{"a/*"}}
		case 1, 2:
			return switchboard.Requirement{Verb: "read", Resource: "fs", Capability: rapid.SampledFrom([]string{"cap.read", "cap.read@1.0.0", "cap.post@^1"}).Draw(t, "capability"), Optional: rapid.Bool().Draw(t, "optional")}
		}
		r := switchboard.Requirement{
			Verb: rapid.SampledFrom([]switchboard.Verb{"read", "write"}).Draw(t, "verb"), Resource: rapid.SampledFrom([]switchboard.Resource{"fs", "cloud"}).Draw(t, "resource"),
			Select:   rapid.SampledFrom([]switchboard.Select{"", switchboard.SelectTool}).Draw(t, "select"),
			Optional: rapid.Bool().Draw(t, "optional"),
		}
		if r.Select == "" && rapid.Bool().Draw(t, "on demand") {
			r.OnDemand, r.Group, r.Stub = true, "x", "x_helper"
		}
		return r
	}), 1, 3).Draw(t, "requirements")
}

func drawOffers(t *rapid.T) (offers []switchboard.Offer) {
	for _, id := range []switchboard.ServerID{"a", "b", "c"} {
		o := switchboard.Offer{Server: id, Version: "1", Stale: rapid.Bool().Draw(t, "stale")}
		for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x", "y", "z.z-1"}), 1, 3, rapid.ID).Draw(t, "tools") {
			o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":%q, "description":"\u00fc <&>", "annotations":{"readOnlyHint":%v}, "inputSchema":{"type":"object"},
				"_meta":{"x-summit-capabilities":[{"verb":%q,"resource":%q,"constraints":["readonly"]}]}}`, name, rapid.Bool().Draw(t, "hint"),
				rapid.SampledFrom([]string{"read", "write"}).Draw(t, "does"), rapid.SampledFrom([]string{"fs", "aws"}).Draw(t, "to")))
		}
		offers = append(offers, o)
	}
	return offers
}

// decideAndRecord makes decisions for every tenant and task at several times, records them, and
// returns their number.
func decideAndRecord(t *rapid.T, in *memoryRecords, c *config.Config, offers []switchboard.Offer) int {
	st := newState(t, c, offers)
	n := 0
	for _, p := range []switchboard.Principal{
		{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal},
		{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey},
		{Tenant: "acme", ID: "cd", Auth: switchboard.AuthAPIKey},
		{Tenant: "umbrella", ID: "ci", Auth: switchboard.AuthAPIKey},
	} {
		for _, task := range []switchboard.TaskID{"a", "b"} {
			at := time.Now().Add(-time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(t, "ago")))
			d, err := st.DecideConfigured(t.Context(), p, task, decide.Observed{Atoms: drawAtoms(t)}, at)
			if err != nil {
				t.Fatal(err)
			}
			if len(d.Atoms) > 0 {
				in.withAtoms++
			}
			in.add(recordOf(st.Tenants[p.Tenant], d, at))
			n++
		}
	}
	if all := in.readAll(t); len(all) != n {
		t.Fatalf("recorded %d, want %d", len(all), n)
	}
	return n
}

// A tester is a *testing.T or a *rapid.T.
type tester interface {
	Fatal(args ...any)
	Context() context.Context
}

func compareAll(t tester, of Records, p *Proposal) *Diff {
	d, err := Compare(t.Context(), of, time.Time{}, "", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Each configuration has eight decisions: go test -run EveryDecision -replays 1250 replays 10,000.
var replays = flag.String("replays", "30", "how many configurations TestAReplayReproducesEveryDecisionToTheByte draws")

func TestAReplayReproducesEveryDecisionToTheByte(t *testing.T) {
	law.Hold(t, law.Deterministic)
	if err := flag.Set("rapid.checks", *replays); err != nil {
		t.Fatal(err)
	}
	decisions, withAtoms := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		dir := newMemoryRecords(t)
		c := drawConfig(t)
		n := decideAndRecord(t, dir, c, drawOffers(t))
		for name, p := range map[string]*Proposal{"nothing": {}, "the configuration as it is": {config: c}} {
			d := compareAll(t, dir, p)
			if d.Decisions != n || d.Replayed != n || len(d.NotReplayed)+len(d.Broken) > 0 {
				t.Fatalf("under %s: %+v", name, d)
			}
			if d.Changed != 0 || len(d.Changes) > 0 {
				t.Fatalf("under %s: %+v", name, d.Changes)
			}
		}
		decisions, withAtoms = decisions+n, withAtoms+dir.withAtoms
	})
	t.Logf("%d decisions are replayed; %d of them depend on the states of atoms", decisions, withAtoms)
	if decisions >= 1000 && withAtoms*20 < decisions { // of fewer decisions, too many may be without atoms by chance
		t.Error("too few decisions depend on atoms for a claim")
	}
}

func TestALostServerDoesNotChangeTheArchivedCatalog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawConfig(t), drawOffers(t)
		var digests []switchboard.Digest
		for _, away := range []bool{false, true} {
			for i := range offers {
				offers[i].Stale = away
			}
			digests = append(digests, basisTextsOf(newState(t, c, offers).Tenants["acme"])[textCatalog].Digest)
		}
		if digests[0] != digests[1] {
			t.Fatalf("archived twice: %s", digests)
		}
	})
}

// sampleRecords returns the records of one configuration, and their number.
func sampleRecords(t *testing.T) (dir *memoryRecords, n int) {
	t.Helper()
	dir = newMemoryRecords(t)
	rapid.Custom(func(t *rapid.T) int {
		c := drawConfig(t)
		c.Policies, c.TenantPolicies = nil, nil
		drawContracts(t, c)
		n = decideAndRecord(t, dir, c, drawOffers(t))
		return n
	}).Example(1)
	return dir, n
}

func TestNoSecretIsRecorded(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const secret = "hunter2-hunter2"
	dir := newMemoryRecords(t)
	rapid.Custom(func(t *rapid.T) int {
		c := drawConfig(t)
		for i := range c.Servers {
			c.Servers[i].Env = map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret(secret)}
			c.Servers[i].URL = "https://" + secret + ".example"
		}
		for i := range c.Keys {
			copy(c.Keys[i].Hash[:], secret)
		}
		return decideAndRecord(t, dir, c, drawOffers(t))
	}).Example(1)
	all := dir.readAll(t)
	if len(all) == 0 {
		t.Fatal("nothing was recorded")
	}
	for _, e := range all {
		var texts [][]byte
		for _, d := range append(slices.Collect(maps.Values(e.refs)), e.digest, e.basis) {
			text, err := archive.Read(t.Context(), dir, d)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		for _, text := range texts {
			for _, s := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), hex.EncodeToString([]byte(secret))} {
				if bytes.Contains(text, []byte(s)) {
					t.Errorf("%s holds %s", text, s)
				}
			}
		}
	}
}

func TestDecisionsThatCannotBeReplayedAreCountedByReason(t *testing.T) {
	for _, name := range []string{textTenant, textCapabilities} {
		t.Run(name, func(t *testing.T) { countGone(t, name) })
	}
}

// countGone replays decisions of which one text of the basis is gone.
func countGone(t *testing.T, name string) {
	dir, n := sampleRecords(t)
	all := dir.readAll(t)
	put := func(d switchboard.Digest, data []byte) {
		t.Helper()
		if _, err := dir.Apply(t.Context(), store.Change{Group: "archive/" + string(d), Writes: []store.Write{{Name: "text", Was: store.Any, Data: data}}}); err != nil {
			t.Fatal(err)
		}
	}
	if all[0].refs[name] == "" {
		t.Fatalf("the basis has no text %s", name)
	}
	put(all[0].refs[name], nil)
	gone := 0
	for _, e := range all {
		if e.refs[name] == all[0].refs[name] {
			gone++
		}
	}
	d := compareAll(t, dir, &Proposal{})
	if want := []NotReplayed{{Why: whyGone, Decisions: gone}}; !slices.Equal(d.NotReplayed, want) || d.Replayed != n-gone || d.Changed != 0 {
		t.Errorf("%+v, want %+v not replayed", d, want)
	}
	put(all[0].refs[textOperator], []byte("no archive"))
	if d := compareAll(t, dir, &Proposal{}); d.Replayed != 0 || len(d.Broken) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestAReplayThatDiffersIsReportedAsBroken(t *testing.T) {
	dir, n := sampleRecords(t)
	e := dir.readAll(t)[0]
	text, err := archive.Read(t.Context(), dir, e.digest)
	if err != nil {
		t.Fatal(err)
	}
	forged := archive.TextOf(bytes.Replace(text, []byte(`"catalog":"sha256:`), []byte(`"catalog":"sha256:0`), 1))
	a := archive.New(dir, time.Hour, nil)
	a.Put(forged)
	a.Close()
	chain, err := receipt.Open(t.Context(), dir, receipt.ChainOptions{Node: "another", Key: receipt.NewKey(), DigestKey: receipt.NewKey()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := chain.Write(t.Context(), &receipt.Receipt{Kind: receipt.Decision, Decision: forged.Digest, Basis: e.basis}); err != nil {
		t.Fatal(err)
	}
	d := compareAll(t, dir, &Proposal{})
	if len(d.Broken) != 1 || d.Broken[0].Recorded != forged.Digest || d.Broken[0].Replayed != e.digest || d.Replayed != n+1 || d.Changed != 0 {
		t.Errorf("%+v", d)
	}
	if err := chain.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
