package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/record"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// rules are policies that read what a policy can read, each in a file of its own.
var rules = []string{
	`allowed_tools contains c.id if some c in input.candidate_tools`,
	`allowed_tools contains c.id if { some c in input.candidate_tools; c.trust == "operator" }`,
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
	`deny[c.id] contains "first" if { c := input.candidate_tools[0]; input.requirement.verb == "read" }`,
	`obligations[c.id] contains {"type": "enforce_timeout", "timeout": "1s"} if some c in input.candidate_tools`,
}

func drawPolicies(t *rapid.T, label, pkg string) []switchboard.PolicyFile {
	files := []switchboard.PolicyFile{{Name: "notes_test.rego", Path: "notes_test.rego", Data: []byte("never compiled")}}
	for i, rule := range rapid.SliceOfNDistinct(rapid.SampledFrom(rules), 0, 6, rapid.ID).Draw(t, label) {
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
	for _, id := range []switchboard.ServerID{"a", "b", "c"} {
		c.Servers = append(c.Servers, switchboard.Server{
			ID: id, Class: rapid.SampledFrom([]string{"", "free", "paid"}).Draw(t, "class"),
			Trust: rapid.SampledFrom([]switchboard.Trust{"", switchboard.TrustDeclared, switchboard.TrustOperator}).Draw(t, "trust"),
		})
	}
	c.Policies = drawPolicies(t, "policies", "switchboard")
	for _, id := range []switchboard.TenantID{"acme", "umbrella"} {
		tenant := &switchboard.Tenant{
			ID: id, Servers: []switchboard.ServerID{"a", "b", "c"}, ByName: true, DefaultTask: "a",
			Tasks: map[switchboard.TaskID]*switchboard.Task{}, Overlays: map[switchboard.ToolID]switchboard.Overlay{
				{Server: "c", Name: "x"}: {Capabilities: []switchboard.Capability{{Verb: "read", Resource: "fs"}}},
			},
			Mode: rapid.SampledFrom(append([]switchboard.Mode{""}, switchboard.Modes...)).Draw(t, "mode"),
			Tier: rapid.SampledFrom([]string{"", "free", "pro"}).Draw(t, "tier"), Roles: []string{"admin", "writer"},
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
			tenant.Tasks[task] = &switchboard.Task{ID: task, Mode: rapid.SampledFrom([]switchboard.Mode{"", switchboard.Observe}).Draw(t, "task mode"), Requirements: needs}
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

func drawRequirements(t *rapid.T) (rs []switchboard.Requirement) {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) switchboard.Requirement {
		if rapid.IntRange(0, 4).Draw(t, "by name") == 0 {
			return switchboard.Requirement{Tools: []string{"a/*"}}
		}
		return switchboard.Requirement{
			Verb: rapid.SampledFrom([]switchboard.Verb{"read", "write"}).Draw(t, "verb"), Resource: rapid.SampledFrom([]switchboard.Resource{"fs", "cloud"}).Draw(t, "resource"),
			Select:   rapid.SampledFrom([]switchboard.Select{"", switchboard.SelectTool}).Draw(t, "select"),
			Optional: rapid.Bool().Draw(t, "optional"),
		}
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

// recorded makes decisions of every tenant and task at several instants, records
// them in dir, and returns how many there are.
func recorded(t *rapid.T, dir string, c *config.Config, offers []switchboard.Offer) int {
	r, err := read(c, policy.NewEngine(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	st := newState(r, "acme", offers, nil)
	l := record.New(dir, record.Options{})
	n := 0
	for _, p := range []switchboard.Principal{
		{Tenant: "acme", ID: "local", Auth: switchboard.AuthLocal},
		{Tenant: "acme", ID: "ci", Auth: switchboard.AuthAPIKey},
		{Tenant: "acme", ID: "cd", Auth: switchboard.AuthAPIKey},
		{Tenant: "umbrella", ID: "ci", Auth: switchboard.AuthAPIKey},
	} {
		for _, task := range []switchboard.TaskID{"a", "b"} {
			at := time.Now().Add(-time.Duration(rapid.Int64Range(0, int64(20*time.Hour)).Draw(t, "ago")))
			d, err := st.decide(t.Context(), p, task, at)
			if err != nil {
				t.Fatal(err)
			}
			l.Add(func() record.Record { return st.tenants[p.Tenant].record(d, at) })
			n++
		}
	}
	l.Close()
	if s := l.Status(); s.Written != n {
		t.Fatalf("recorded %+v, want %d", s, n)
	}
	return n
}

// tester is a test of either kind.
type tester interface {
	Fatal(args ...any)
	Context() context.Context
}

func compareAll(t tester, dir string, p *Proposal) *Diff {
	d, err := Compare(t.Context(), dir, time.Time{}, "", p, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestWhatIsRecordedIsReplayedToTheByte(t *testing.T) {
	if err := flag.Set("rapid.checks", "30"); err != nil { // each writes to the disk, and waits for it
		t.Fatal(err)
	}
	folder := t.TempDir
	rapid.Check(t, func(t *rapid.T) {
		dir := folder()
		c := drawConfig(t)
		n := recorded(t, dir, c, drawOffers(t))
		for name, p := range map[string]*Proposal{"nothing": {}, "the configuration as it is": {config: c}} {
			d := compareAll(t, dir, p)
			if d.Decisions != n || d.Replayed != n || len(d.NotReplayed)+len(d.Broken) > 0 {
				t.Fatalf("under %s: %+v", name, d)
			}
			if d.Changed != 0 || len(d.Changes) > 0 {
				t.Fatalf("under %s: %+v", name, d.Changes)
			}
		}
	})
}

func TestAServerThatIsAwayIsArchivedAsTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, offers := drawConfig(t), drawOffers(t)
		r, err := read(c, policy.NewEngine(0, 0))
		if err != nil {
			t.Fatal(err)
		}
		var digests []switchboard.Digest
		for _, away := range []bool{false, true} {
			for i := range offers {
				offers[i].Stale = away
			}
			digests = append(digests, newState(r, "acme", offers, nil).tenants["acme"].texts()[textCatalog].Digest)
		}
		if digests[0] != digests[1] {
			t.Fatalf("archived twice: %s", digests)
		}
	})
}

// one is a folder with the records of one configuration.
func one(t *testing.T) (dir string, n int) {
	t.Helper()
	dir = t.TempDir()
	rapid.Custom(func(t *rapid.T) int {
		c := drawConfig(t)
		c.Policies, c.TenantPolicies = nil, nil
		n = recorded(t, dir, c, drawOffers(t))
		return n
	}).Example(1)
	return dir, n
}

func TestNoSecretIsRecorded(t *testing.T) {
	const secret = "hunter2-hunter2"
	dir := t.TempDir()
	rapid.Custom(func(t *rapid.T) int {
		c := drawConfig(t)
		for i := range c.Servers {
			c.Servers[i].Env = map[string]switchboard.Secret{"TOKEN": switchboard.NewSecret(secret)}
			c.Servers[i].URL = "https://" + secret + ".example"
		}
		for i := range c.Keys {
			copy(c.Keys[i].Hash[:], secret)
		}
		return recorded(t, dir, c, drawOffers(t))
	}).Example(1)
	entries, _, err := record.Read(dir, time.Time{})
	if err != nil || len(entries) == 0 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		texts := [][]byte{encode(e)}
		for _, d := range e.Archives {
			text, err := record.ReadArchive(dir, d)
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

func TestWhatCannotBeReplayedIsCountedWithTheReason(t *testing.T) {
	dir, n := one(t)
	entries, _, err := record.Read(dir, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	name := func(d switchboard.Digest) string {
		return filepath.Join(dir, "archive", strings.TrimPrefix(string(d), "sha256:")+".gz")
	}
	if err := os.Remove(name(entries[0].Archives[textTenant])); err != nil {
		t.Fatal(err)
	}
	gone := 0
	for _, e := range entries {
		if e.Archives[textTenant] == entries[0].Archives[textTenant] {
			gone++
		}
	}
	d := compareAll(t, dir, &Proposal{})
	if want := []NotReplayed{{whyGone, gone}}; !slices.Equal(d.NotReplayed, want) || d.Replayed != n-gone || d.Changed != 0 {
		t.Errorf("%+v, want %+v not replayed", d, want)
	}
	if err := os.WriteFile(name(entries[0].Archives[textOperator]), []byte("no archive"), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := compareAll(t, dir, &Proposal{}); d.Replayed != 0 || len(d.Broken) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestAReplayThatDiffersIsAFaultOfOurs(t *testing.T) {
	dir, n := one(t)
	logs, _ := filepath.Glob(filepath.Join(dir, "log", "*"))
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	var e record.Entry
	if err := json.Unmarshal(lines[0], &e); err != nil {
		t.Fatal(err)
	}
	forged := bytes.Replace(e.Decision, []byte(`"catalog":"sha256:`), []byte(`"catalog":"sha256:0`), 1)
	lines[0] = bytes.Replace(lines[0], e.Decision, forged, 1)
	lines[0] = bytes.Replace(lines[0], []byte(`"digest":"`+string(e.Digest)), []byte(`"digest":"`+string(canonical.Sum(forged))), 1)
	if err := os.WriteFile(logs[0], bytes.Join(lines, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	d := compareAll(t, dir, &Proposal{})
	if len(d.Broken) != 1 || d.Broken[0].Recorded != canonical.Sum(forged) || d.Broken[0].Replayed != e.Digest || d.Replayed != n || d.Changed != 0 {
		t.Errorf("%+v", d)
	}
}
