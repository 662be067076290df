package config_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// twoTenants returns a configuration without faults.
func twoTenants() map[string]string {
	return map[string]string{
		"switchboard.yaml": "servers:\n  a: {transport: stdio, command: [a], timeout: 30s}\n  b: {transport: stdio, command: [b], manifest: b.json}\n" +
			"tenants:\n  acme: {servers: [a, b], allow: [by_name], roles: [clerk, boss], tier: [free, pro], token_budget: 9000, result_bytes: 64KiB}\n  beta: {servers: [a]}\n",
		"b.json":                       `{"name": "b"}`,
		"tenants/acme/tenant.yaml":     "tenant: acme\ndefault_task: t\ntoken_budget: 8000\nresult_bytes: 32KiB\nkeys:\n  - {id: one, hash: \"sha256:" + strings.Repeat("1", 64) + "\", roles: [clerk, boss], tier: pro}\n",
		"tenants/acme/tasks/t.yaml":    "task_id: t\ntoken_budget: 7000\nrequired_capabilities: [{tools: [\"b/*\"]}]\n",
		"tenants/acme/overlays/a.yaml": "server: a\ntools: {x: {timeout: 20s}}\n",
		"tenants/acme/overlays/b.yaml": "server: b\ntools: {y: {timeout: 20s}}\n",
		"tenants/beta/tenant.yaml":     "tenant: beta\nkeys: [{id: two, hash: \"sha256:" + strings.Repeat("2", 64) + "\"}]\n",
		"overlays/a.yaml":              "server: a\ntools: {x: {stateful: true}, z: {stateful: true}}\n",
	}
}

// loadAfter loads the files as a reload does while was is in force.
func loadAfter(t *testing.T, files map[string]string, was *config.Config) (*config.Config, error) {
	t.Helper()
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Previous: was, CheckPolicies: func(_ switchboard.TenantID, files []switchboard.PolicyFile) error {
		if slices.ContainsFunc(files, func(f switchboard.PolicyFile) bool { return string(f.Data) == "broken" }) {
			return config.Faults{{File: "tenants/acme/policies/p.rego", Line: 1, Text: "broken"}}
		}
		return nil
	}})
}

func mustLoad(t *testing.T, files map[string]string, was *config.Config) *config.Config {
	t.Helper()
	c, err := loadAfter(t, files, was)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withFiles returns files with some of them replaced.
func withFiles(files map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(files)
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func faultyParts(c *config.Config) (names []string) {
	for _, p := range c.Faulty {
		names = append(names, fmt.Sprint(p.Name, ": ", p.State()))
	}
	return names
}

func TestAFaultyTenantKeepsOnlyWhatTheOperatorStillGrants(t *testing.T) {
	good := mustLoad(t, twoTenants(), nil)
	files := withFiles(twoTenants(), "tenants/acme/tenant.yaml", "rubbish", "switchboard.yaml",
		"servers:\n  a: {transport: stdio, command: [a], timeout: 10s}\n  b: {transport: stdio, command: [b], manifest: b.json}\n"+
			"tenants:\n  acme: {servers: [a], roles: [clerk], tier: [free], token_budget: 5000, result_bytes: 8KiB}\n  beta: {servers: [a]}\n")
	c := mustLoad(t, files, good)
	if got := faultyParts(c); !slices.Equal(got, []string{"tenant acme: its last good state stays in force"}) {
		t.Fatal(got)
	}
	acme := c.Tenants["acme"]
	if !slices.Equal(acme.Servers, []switchboard.ServerID{"a"}) || acme.ByName || acme.TokenBudget != 5000 || acme.ResultBytes != 8<<10 || acme.Tasks["t"].TokenBudget != 5000 {
		t.Errorf("%+v, task %+v", acme, acme.Tasks["t"])
	}
	if len(acme.Overlays) != 1 || acme.Overlays[switchboard.ToolID{Server: "a", Name: "x"}].Contract.Timeout.Seconds() != 10 {
		t.Errorf("overlays %+v", acme.Overlays)
	}
	if k := c.Keys[0]; k.Tenant != "acme" || !slices.Equal(k.Roles, []string{"clerk"}) || k.Tier != "" {
		t.Errorf("key %+v", k)
	}

	// If the operator grants it again, the tenant has it again, although the tenant is still faulty.
	again := mustLoad(t, withFiles(twoTenants(), "tenants/acme/tenant.yaml", "rubbish"), c)
	if got, want := again.Tenants["acme"], good.Tenants["acme"]; got.TokenBudget != want.TokenBudget || !slices.Equal(got.Servers, want.Servers) || !got.ByName {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again.Keys[0].Tier != "pro" {
		t.Errorf("key %+v", again.Keys[0])
	}

	// A tenant without a row has no rights.
	gone := mustLoad(t, withFiles(files, "switchboard.yaml", "servers: {a: {transport: stdio, command: [a]}}\ntenants: {beta: {servers: [a]}}\n"), again)
	if gone.Tenants["acme"] != nil || !gone.Refused["acme"] {
		t.Errorf("%+v", gone.Tenants["acme"])
	}
}

func TestEachPartFallsBackToItsLastGoodState(t *testing.T) {
	good := mustLoad(t, twoTenants(), nil)
	id := func(name string) switchboard.ToolID { return switchboard.ToolID{Server: "a", Name: name} }
	for _, tt := range []struct {
		what         string
		edit         []string
		faulty       []string // expected at a reload
		start        []string // expected at a start; nil if the start is refused
		holds        func(c *config.Config) bool
		holdsAtStart func(c *config.Config) bool
	}{
		{
			"a tenant's policy",
			[]string{"tenants/acme/policies/p.rego", "broken"},
			[]string{"tenant acme: its last good state stays in force"},
			[]string{"tenant acme: it is not served"},
			func(c *config.Config) bool {
				return c.Tenants["acme"].TokenBudget == 8000 && len(c.Keys) == 2 && c.TenantPolicies["acme"] == nil
			},
			func(c *config.Config) bool {
				return c.Tenants["acme"] == nil && len(c.Keys) == 2 && c.TenantPolicies["acme"] == nil && !c.Keyless()
			},
		},
		{
			"one tool",
			[]string{"overlays/a.yaml", "server: a\ntools: {x: {stateful: maybe}, z: {stateful: true}}\n"},
			[]string{"tool a/x: it is not served"},
			[]string{"tool a/x: it is not served"},
			func(c *config.Config) bool {
				return c.Overlays[id("x")].Fault != "" && c.Overlays[id("z")].Contract.Stateful.Holds
			},
			func(c *config.Config) bool { return c.Overlays[id("x")].Fault != "" },
		},
		{
			"a file of overlays, and a tool in it",
			[]string{"overlays/a.yaml", "server: a\ntools: {x: {stateful: maybe}}\nmore: 1\n"},
			[]string{"overlays/a.yaml: its last good state stays in force"},
			nil,
			func(c *config.Config) bool {
				return c.Overlays[id("x")].Contract.Stateful.Holds && c.Overlays[id("z")].Contract.Stateful.Holds
			},
			nil,
		},
		{
			"a manifest",
			[]string{"b.json", "{"},
			[]string{"manifest of b: its last good state stays in force"},
			[]string{"manifest of b: it is not served"},
			func(c *config.Config) bool { return string(c.Manifests["b"].Data) == `{"name": "b"}` },
			func(c *config.Config) bool { return c.Manifests["b"].Fault != "" && c.Manifests["b"].Data == nil },
		},
		{
			"two parts",
			[]string{"b.json", "[]", "tenants/beta/tenant.yaml", "tenant: [\n"},
			[]string{"manifest of b: its last good state stays in force", "tenant beta: its last good state stays in force"},
			[]string{"manifest of b: it is not served", "tenant beta: it is not served"},
			func(c *config.Config) bool { return c.Tenants["beta"] != nil && len(c.Keys) == 2 },
			func(c *config.Config) bool { return c.Tenants["beta"] == nil && len(c.Keys) == 1 && !c.Keyless() },
		},
	} {
		t.Run(tt.what, func(t *testing.T) {
			files := withFiles(twoTenants(), tt.edit...)
			c := mustLoad(t, files, good)
			if got := faultyParts(c); !slices.Equal(got, tt.faulty) || !tt.holds(c) || c.Err() == nil {
				t.Errorf("at a reload: %q: %+v", got, c)
			}
			if got := mustLoad(t, files, c); !slices.Equal(faultyParts(got), tt.faulty) || !tt.holds(got) {
				t.Errorf("at the reload after: %q", faultyParts(got))
			}
			if mended := mustLoad(t, twoTenants(), c); mended.Faulty != nil || mended.Err() != nil {
				t.Errorf("mended: %q", faultyParts(mended))
			}
			c, err := loadAfter(t, files, nil)
			switch {
			case tt.start == nil && err == nil:
				t.Errorf("it starts: %q", faultyParts(c))
			case tt.start != nil && (err != nil || !slices.Equal(faultyParts(c), tt.start) || !tt.holdsAtStart(c)):
				t.Errorf("at a start: %v: %q: %+v", err, faultyParts(c), c)
			}
		})
	}
}

func TestATenantCannotTakeAnothersKeyByNamingItsHash(t *testing.T) {
	good := mustLoad(t, twoTenants(), nil)
	thief := withFiles(twoTenants(), "tenants/acme/tenant.yaml", twoTenants()["tenants/acme/tenant.yaml"]+"  - {id: two, hash: \"sha256:"+strings.Repeat("2", 64)+"\"}\n")
	c := mustLoad(t, thief, good)
	if got := faultyParts(c); !slices.Equal(got, []string{"tenant acme: its last good state stays in force"}) || !slices.Equal(keyOwners(c), keyOwners(good)) {
		t.Errorf("at a reload: %q, keys %q", got, keyOwners(c))
	}
	c = mustLoad(t, thief, nil)
	if got := faultyParts(c); len(c.Tenants) != 0 || len(got) != 2 {
		t.Errorf("at a start: %q, tenants %v", got, c.Tenants)
	}
	// A new tenant names the key.
	comes := withFiles(twoTenants(), "switchboard.yaml", strings.Replace(twoTenants()["switchboard.yaml"], "  beta:", "  aaa: {servers: [a]}\n  beta:", 1),
		"tenants/aaa/tenant.yaml", strings.Replace(twoTenants()["tenants/beta/tenant.yaml"], "beta", "aaa", 1))
	c = mustLoad(t, comes, good)
	if got := faultyParts(c); !slices.Equal(got, []string{"tenant aaa: it is not served"}) || !slices.Equal(keyOwners(c), keyOwners(good)) {
		t.Errorf("a new tenant: %q, keys %q", got, keyOwners(c))
	}
}

// keyOwners returns the served tenants with their keys.
func keyOwners(c *config.Config) (out []string) {
	for _, k := range c.Keys {
		if c.Tenants[k.Tenant] != nil {
			out = append(out, fmt.Sprintf("%s/%s %x", k.Tenant, k.ID, k.Hash[0]))
		}
	}
	return out
}

// The last good manifest must be of the same file and the same server, because another manifest may
// restrict more.
func TestAManifestFallsBackOnlyToACopyOfTheSameFileAndServer(t *testing.T) {
	files := twoTenants()
	good := mustLoad(t, files, nil)
	is := func(old, now string) config.Manifest {
		return mustLoad(t, withFiles(files, "switchboard.yaml", strings.Replace(files["switchboard.yaml"], old, now, 1), "b.json", "{"), good).Manifests["b"]
	}
	if m := is("a", "a"); m.Fault != "" || string(m.Data) != string(good.Manifests["b"].Data) {
		t.Errorf("same file and server: %+v", m)
	}
	for _, edit := range [][2]string{{"manifest: b.json", "manifest: strict.json"}, {"command: [b]", "command: [another]"}} {
		if m := is(edit[0], edit[1]); m.Fault == "" || m.Data != nil {
			t.Errorf("%s: %+v", edit[1], m)
		}
	}
}

func TestAMovedRowAppliesEvenIfItsOldFileIsFaulty(t *testing.T) {
	id := switchboard.ToolID{Server: "a", Name: "x"}
	free := "server: a\ntools: {x: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}]}}\n"
	strict := "server: a\ntools: {x: {capabilities: [{verb: write, resource: fs}], stateful: true}}\n"
	for old, now := range map[string]string{"overlays/z.yaml": "overlays/a.yaml", "overlays/a.yaml": "overlays/z.yaml"} {
		files := withFiles(twoTenants(), old, free, now, "server: a\ntools: {q: {stateful: true}}\n")
		c := mustLoad(t, withFiles(files, now, strict, old, "server: a\ntols: {}\n"), mustLoad(t, files, nil))
		if o := c.Overlays[id]; !o.Contract.Stateful.Holds {
			t.Errorf("moved from %s, now faulty, to %s: %+v", old, now, o)
		}
	}
}

func TestUnreadableKeysOfANewTenantDoNotChangeTheKeylessMode(t *testing.T) {
	files := map[string]string{
		"switchboard.yaml":            "servers:\n  a: {transport: stdio, command: [a]}\ntenants:\n  default: {servers: [a]}\n  beta: {servers: [a]}\n",
		"tenants/default/tenant.yaml": "tenant: default\n",
	}
	broken := withFiles(files, "tenants/beta/tenant.yaml", "tenant: [\n")
	if !mustLoad(t, broken, mustLoad(t, files, nil)).Keyless() {
		t.Error("after a reload, a tenant that cannot be read counts as one with keys")
	}
	if mustLoad(t, broken, nil).Keyless() {
		t.Error("after a start, a tenant that cannot be read does not count as one with keys")
	}
	if c := mustLoad(t, twoTenants(), mustLoad(t, files, nil)); c.Keyless() {
		t.Error("readable keys do not count")
	}
}

func TestADisputedKeyBelongsToNoTenant(t *testing.T) {
	three := strings.Replace(twoTenants()["switchboard.yaml"], "  beta:", "  aaa: {servers: [a]}\n  beta:", 1)
	asBeta := strings.Replace(twoTenants()["tenants/beta/tenant.yaml"], "beta", "aaa", 1)
	files := withFiles(twoTenants(), "switchboard.yaml", three, "tenants/aaa/tenant.yaml", asBeta)
	c := mustLoad(t, files, nil)
	for range 3 { // the result is the same at each reload
		if got := keyOwners(c); !slices.Equal(got, []string{"acme/one 11"}) {
			t.Fatalf("two tenants have the same key, and %q are served", got)
		}
		c = mustLoad(t, files, c)
	}
	// The earlier owner could not be read.
	unread := withFiles(files, "tenants/beta/tenant.yaml", "tenant: [")
	c = mustLoad(t, files, mustLoad(t, unread, nil))
	if got := keyOwners(c); !slices.Equal(got, []string{"acme/one 11"}) {
		t.Errorf("once beta can be read: %q", got)
	}
}

func TestAKeyMovesOnceItsOwnerRemovesIt(t *testing.T) {
	good := mustLoad(t, twoTenants(), nil)
	one := "\nkeys:\n  - {id: one, hash: \"sha256:" + strings.Repeat("1", 64) + "\"}\n"
	moved := withFiles(twoTenants(), "tenants/acme/tenant.yaml", "tenant: acme\ndefault_task: t\n", "tenants/beta/tenant.yaml", "tenant: beta"+one)
	c := mustLoad(t, moved, good)
	if got := keyOwners(c); !slices.Equal(got, []string{"beta/one 11"}) || len(c.Faulty) > 0 {
		t.Errorf("in one edit: %q, %q", got, faultyParts(c))
	}
	// If the owner's file cannot be read, the owner keeps the key.
	c = mustLoad(t, withFiles(moved, "tenants/acme/tenant.yaml", "tenant: ["), good)
	if got := keyOwners(c); !slices.Contains(got, "acme/one 11") || slices.Contains(got, "beta/one 11") {
		t.Errorf("with a faulty owner: %q", got)
	}
	// Two tenants claim the key.
	both := withFiles(moved, "switchboard.yaml", strings.Replace(twoTenants()["switchboard.yaml"], "  beta:", "  aaa: {servers: [a]}\n  beta:", 1), "tenants/aaa/tenant.yaml", "tenant: aaa"+one)
	c = mustLoad(t, both, good)
	if got := keyOwners(c); slices.Contains(got, "aaa/one 11") || slices.Contains(got, "beta/one 11") {
		t.Errorf("with two claims: %q", got)
	}
}

func TestASilentManifestDelaysAReloadOnlyBriefly(t *testing.T) {
	files := withFiles(twoTenants(), "switchboard.yaml", strings.Replace(twoTenants()["switchboard.yaml"], "b.json", "https://example.com/b.json", 1))
	fsys := fstest.MapFS{}
	for name, text := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(text)}
	}
	var patience []bool // whether the deadline of each fetch was the long one
	fetch := func(ctx context.Context, _ string, _ switchboard.Network) ([]byte, error) {
		end, _ := ctx.Deadline()
		long, cancel := context.WithTimeout(t.Context(), config.MaxFetchTime-3e9)
		defer cancel()
		least, _ := long.Deadline()
		patience = append(patience, end.After(least))
		if len(patience) > 1 {
			return nil, errors.New("no answer")
		}
		return []byte("{}"), nil
	}
	first, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Fetch: fetch})
	if err != nil {
		t.Fatal(err)
	}
	second, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Fetch: fetch, Previous: first})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(patience, []bool{true, false}) || string(second.Manifests["b"].Data) != "{}" {
		t.Errorf("patience %v, manifest %q", patience, second.Manifests["b"].Data)
	}
}

// A tenant's faulty file keeps the tenant's budgets, and takes no budget of the operator away.
func TestAFaultyTenantHasTheOperatorsBudgetsOfNow(t *testing.T) {
	main := func(budgets string) string {
		return "servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a], budgets: [" + budgets + "]}}\nbudgets: [{id: all, limit: 1, window: 1d}]\n"
	}
	own := "tenant: acme\nbudgets: [{id: own, limit: 1, window: 1d}]\n"
	files := map[string]string{"switchboard.yaml": main("{id: was, limit: 1, window: 1d}"), "tenants/acme/tenant.yaml": own}
	good := mustLoad(t, files, nil)
	c := mustLoad(t, withFiles(files, "switchboard.yaml", main("{id: is, limit: 1, window: 1d}"), "tenants/acme/tenant.yaml", own+"rubbish: 1\n"), good)
	names := ""
	for _, b := range c.Tenants["acme"].Budgets {
		names += b.Name() + " "
	}
	if len(c.Faulty) != 1 || names != "operator/all row/is tenant/own " {
		t.Errorf("%v: the budgets are %s", faultyParts(c), names)
	}
	if _, err := loadAfter(t, withFiles(files, "switchboard.yaml", main("{id: is, limit: 1, window: 1d, zone: Europe/Berln}")), good); err == nil {
		t.Error("a zone that cannot be loaded is no fault of the operator's file")
	}
}

// A row without an office that the operator gives gives nothing any more, and its mode still narrows what other rows give.
func TestTheModeOfAFaultyTenantsMembersStaysWithoutTheirOffices(t *testing.T) {
	operator := func(offices, issuers string) string {
		return "servers: {a: {transport: stdio, command: [a]}}\nissuers: {idp: {url: \"https://id.example.com\", sign_in: {id: sb}}, other: {url: \"https://id.example.org\", sign_in: {id: sb}}}\n" +
			"tenants: {acme: {servers: [a], allow: [by_name], roles: [clerk], offices: " + offices + ", issuers: " + issuers + "}}\n"
	}
	files := map[string]string{
		"switchboard.yaml":          operator("[admin, viewer]", "[idp, other]"),
		"tenants/acme/tasks/t.yaml": "task_id: t\nrequired_capabilities: [{tools: [\"*/*\"]}]\n",
		"tenants/acme/tenant.yaml": `tenant: acme
default_task: t
members:
  - {issuer: idp, claim: groups, value: dev, offices: [viewer], tasks: [t]}
  - {issuer: idp, claim: groups, value: trainee, offices: [admin], mode: observe}
  - {issuer: idp, claim: groups, value: lead, offices: [admin], tasks: [t], roles: [clerk], mode: assist}
  - {issuer: idp, claim: groups, value: guest, offices: [admin], roles: [clerk]}
  - {issuer: other, claim: groups, value: far, offices: [admin], mode: observe}
`,
	}
	good := mustLoad(t, files, nil)
	if len(good.Faulty) > 0 {
		t.Fatal(good.Faulty)
	}
	c := mustLoad(t, withFiles(files, "tenants/acme/tenant.yaml", "rubbish", "switchboard.yaml", operator("[viewer]", "[idp]")), good)
	var got []string
	for _, r := range c.Claims {
		got = append(got, fmt.Sprintln(r.Value, r.Offices, r.Calls.Tasks, r.Calls.Roles, r.Calls.Mode))
	}
	want := []string{"dev [viewer] [t] [] autopilot\n", "lead [] [] [] assist\n", "trainee [] [] [] observe\n"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A tenant tries what both it and the operator name. A faulty tenant tries no more than the operator lets it try now.
func TestATenantTriesOnlyWhatTheOperatorLetsItTry(t *testing.T) {
	load := func(most, own string, previous *config.Config) *switchboard.Tenant {
		t.Helper()
		c := mustLoad(t, map[string]string{
			"switchboard.yaml":         "servers: {a: {transport: stdio, command: [a]}, b-1: {transport: stdio, command: [b]}}\ntenants: {acme: {servers: [\"*\"]" + most + "}}\n",
			"tenants/acme/tenant.yaml": "tenant: acme\n" + own,
		}, previous)
		return c.Tenants["acme"]
	}
	for _, tt := range []struct {
		most, own string
		want      []string
	}{
		{"", "", nil},
		{", trial: [a]", "", []string{"a/*"}},
		{", trial: [a]", "trial: []\n", nil},
		{", trial: [a, b-1/read]", "trial: [\"*\"]\n", []string{"a/*", "b-1/read"}},
		{", trial: [\"*/read_*\"]", "trial: [a]\n", []string{"a/read_*"}},
		{", trial: [\"b-*\"]", "trial: [b-1/x]\n", []string{"b-1/x"}},
		{", trial: [\"*/read_*\"]", "trial: [\"a/*_all\"]\n", nil}, // a fault: the tenant is not served
	} {
		acme := load(tt.most, tt.own, nil)
		if acme == nil {
			acme = &switchboard.Tenant{}
		}
		if !slices.Equal(acme.Trial, tt.want) {
			t.Errorf("the operator says %q, the tenant %q: %q, want %q", tt.most, tt.own, acme.Trial, tt.want)
		}
	}
	good := mustLoad(t, map[string]string{
		"switchboard.yaml":         "servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a], trial: [a]}}\n",
		"tenants/acme/tenant.yaml": "tenant: acme\n",
	}, nil)
	clipped := mustLoad(t, map[string]string{
		"switchboard.yaml":         "servers: {a: {transport: stdio, command: [a]}}\ntenants: {acme: {servers: [a], trial: [a/read]}}\n",
		"tenants/acme/tenant.yaml": "rubbish",
	}, good)
	if got := clipped.Tenants["acme"].Trial; !slices.Equal(got, []string{"a/read"}) {
		t.Errorf("a faulty tenant tries %q", got)
	}
}

// A fault in admitted.lock refuses the reload as a whole, so that what is in force stays: a part of the pins could let in what a person took out.
func TestAFaultInAdmittedLockRefusesTheConfiguration(t *testing.T) {
	files := map[string]string{
		"switchboard.yaml": "servers: {a: {transport: stdio, command: [a]}}\n",
		"admitted.lock":    "a/x suspended ann 2026-05-03T10:00:00Z d1:" + strings.Repeat("0", 64) + "\nend\n",
	}
	good := mustLoad(t, files, nil)
	if p := good.Admitted[switchboard.PinID{Server: "a", Kind: switchboard.PinTool, Name: "x"}]; p.State != switchboard.LifeSuspended {
		t.Errorf("%+v", good.Admitted)
	}
	if c, err := loadAfter(t, withFiles(files, "admitted.lock", ""), good); err == nil || !strings.HasPrefix(err.Error(), "admitted.lock:1:1: the file is cut off") {
		t.Errorf("%v, %v", c, err)
	}
	gone := mustLoad(t, map[string]string{"switchboard.yaml": files["switchboard.yaml"]}, good)
	if gone.Admitted != nil || config.Changes(good, gone) != "pins -a/x" {
		t.Errorf("%v: %s", gone.Admitted, config.Changes(good, gone))
	}
}
