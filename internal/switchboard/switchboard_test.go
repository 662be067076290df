package switchboard_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestAnIDLeavesNoSeparatorAmbiguous(t *testing.T) {
	for id, good := range map[string]bool{
		"a": true, "brave": true, "local-1": true, "a-b-c": true, strings.Repeat("a", 32): true,
		"": false, "A": false, "a_b": false, "a__b": false, "-a": false, "a-": false, "a--b": false,
		"a.b": false, "a/b": false, "ä": false, "a b": false, "а": false /* Cyrillic */, strings.Repeat("a", 33): false,
	} {
		if err := switchboard.CheckID(id); (err == nil) != good {
			t.Errorf("CheckID(%q) = %v, want good = %v", id, err, good)
		}
	}
}

func TestParseToolID(t *testing.T) {
	for in, want := range map[string]switchboard.ToolID{
		"github/create_issue": {Server: "github", Name: "create_issue"},
		"github/a/b":          {Server: "github", Name: "a/b"},
		"github":              {},
		"/create_issue":       {},
		"git__hub/x":          {},
	} {
		got, err := switchboard.ParseToolID(in)
		if got != want || (err == nil) != (want != switchboard.ToolID{}) {
			t.Errorf("ParseToolID(%q) = %v, %v; want %v", in, got, err, want)
		}
		if err == nil && got.String() != in {
			t.Errorf("ParseToolID(%q).String() = %q", in, got)
		}
	}
}

func TestToolsAreOrderedByServerThenName(t *testing.T) {
	ids := []switchboard.ToolID{{Server: "b", Name: "a"}, {Server: "a-b", Name: "x"}, {Server: "a", Name: "z"}, {Server: "a", Name: "Z"}}
	slices.SortFunc(ids, switchboard.ToolID.Compare)
	if got, want := fmt.Sprint(ids), "[a/Z a/z a-b/x b/a]"; got != want {
		t.Errorf("sorted %s, want %s", got, want)
	}
}

// LK-02: no way of printing reveals a secret, however deeply it is nested.
func TestASecretCannotBePrinted(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	const canary = "canary-8d1f"
	type holder struct {
		Exported switchboard.Secret
		hidden   switchboard.Secret
		m        map[string]switchboard.Secret
	}
	s := switchboard.NewSecret(canary)
	h := holder{Exported: s, hidden: s, m: map[string]switchboard.Secret{"k": s}}
	var out strings.Builder
	for _, v := range []any{s, &s, h, &h, []switchboard.Secret{s}} {
		for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, format+"\n", v)
		}
		enc, _ := json.Marshal(v) // a value that cannot be encoded reveals nothing
		out.Write(enc)
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "v", v)
	}
	if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
		t.Errorf("the secret was printed:\n%s", out.String())
	}
	if s.Reveal() != canary || h.hidden.Reveal() != canary {
		t.Error("Reveal lost the secret")
	}
	if (switchboard.Secret{}).Reveal() != "" || !s.Equal(switchboard.NewSecret(canary)) {
		t.Error("the zero secret is not empty, or equal secrets differ")
	}
}

func TestSecretsAreComparedByTheirTexts(t *testing.T) {
	one, same, other := switchboard.NewSecret("s3cret"), switchboard.NewSecret("s3cret"), switchboard.NewSecret("s3creT")
	if !one.Equal(same) || one.Equal(other) || one.Equal(switchboard.Secret{}) || !(switchboard.Secret{}).Equal(switchboard.NewSecret("")) {
		t.Error("Equal does not say whether the texts are the same")
	}
	if !reflect.DeepEqual([]any{one}, []any{same}) || reflect.DeepEqual([]any{one}, []any{other}) {
		t.Error("reflect.DeepEqual gives another answer than Equal")
	}
	if reflect.TypeFor[switchboard.Secret]().Comparable() {
		t.Error("== compiles, and compares pointers")
	}
}

func TestATaxonomyKnowsItsParents(t *testing.T) {
	tax, err := switchboard.NewTaxonomy(map[switchboard.Resource]switchboard.Resource{"cloud": "", "aws": "cloud", "s3": "aws"}, []switchboard.Constraint{"eu_only"})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(tax.Ancestors("s3")); got != "[aws cloud]" {
		t.Errorf("Ancestors(s3) = %s", got)
	}
	if !tax.HasConstraint("eu_only") || !tax.HasConstraint("readonly") || tax.HasConstraint("nope") || tax.HasResource("nope") {
		t.Error("terms are not as given")
	}
	for name, parents := range map[string]map[switchboard.Resource]switchboard.Resource{
		"a parent that is no resource": {"s3": "clowd"},
		"a cycle":                      {"x": "y", "y": "x"},
		"a term above itself":          {"x": "x"},
	} {
		if _, err := switchboard.NewTaxonomy(parents, nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func FuzzParseToolID(f *testing.F) {
	f.Add("github/create_issue")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := switchboard.ParseToolID(s)
		if err == nil && id.String() != s {
			t.Errorf("ParseToolID(%q).String() = %q", s, id)
		}
	})
}

func TestAStarInAPatternMatchesAnyCharacters(t *testing.T) {
	for _, tt := range []struct {
		pattern, s string
		want       bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"*", "", true},
		{"local-*", "local-files", true},
		{"local-*", "local", false},
		{"*-files", "local-files", true},
		{"l*l-*s", "local-files", true},
		{"a*a", "a", false},
		{"a*b*a", "aba", true},
		{"a*b*a", "aa", false},
		{"**", "x", true},
		{"*ab", "aab", true},
		{"a*bb", "abbb", true},
	} {
		if got := switchboard.MatchPattern(tt.pattern, tt.s); got != tt.want {
			t.Errorf("MatchPattern(%q, %q) = %v", tt.pattern, tt.s, got)
		}
	}
}

func TestAmountsAreExact(t *testing.T) {
	for s, want := range map[string]switchboard.Micros{
		"0": 0, "10": 10_000_000, "10.00": 10_000_000, "0.000001": 1, "1125899906.842624": switchboard.MaxMicros, "0.1": 100_000, "0.30": 300_000,
	} {
		got, err := switchboard.ParseMicros(s)
		if err != nil || got != want {
			t.Errorf("ParseMicros(%q) = %d, %v; want %d", s, int64(got), err, int64(want))
		}
		if again, err := switchboard.ParseMicros(got.String()); err != nil || again != got {
			t.Errorf("%q: %s is read as %d, %v", s, got, int64(again), err)
		}
	}
	for _, s := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", "NaN", "1_000", "010", "0x10", "1,5", " 1", "0.0000001", "1125899906.842625", "99999999999999999999"} {
		if got, err := switchboard.ParseMicros(s); err == nil {
			t.Errorf("ParseMicros(%q) = %v", s, got)
		}
	}
	for m, want := range map[switchboard.Micros]string{0: "0.00", 1: "0.000001", 3_100_000: "3.10", -2_500_000: "-2.50", 10_000_000: "10.00", 3100: "0.0031"} {
		if m.String() != want {
			t.Errorf("%d is written %s, want %s", int64(m), m, want)
		}
	}
}

func TestTheLowerBudgetCounts(t *testing.T) {
	for _, tt := range []struct{ tenant, task, want int }{
		{0, 0, switchboard.DefaultTokenBudget},
		{0, 500, 500},
		{0, 50_000, 50_000},
		{20_000, 0, 20_000},
		{20_000, 6000, 6000},
		{6000, 20_000, 6000}, // the tenant's budget was lowered after the task was written
	} {
		tenant, task := switchboard.Tenant{TokenBudget: tt.tenant}, switchboard.Task{TokenBudget: tt.task}
		if got := tenant.Budget(&task); got != tt.want {
			t.Errorf("tenant %d, task %d: the budget is %d, want %d", tt.tenant, tt.task, got, tt.want)
		}
	}
}

func TestAToolBelongsToAServiceIfAPatternMatchesItsWholeName(t *testing.T) {
	s := switchboard.Service{Name: "s3", Tools: []string{"s3_*", "list_buckets"}}
	for name, want := range map[string]bool{"s3_put": true, "s3_": true, "list_buckets": true, "list_buckets_all": false, "my_s3_put": false, "S3_put": false} {
		if s.Has(name) != want {
			t.Errorf("Has(%q) = %v", name, !want)
		}
	}
	if new(switchboard.Service).Has("") {
		t.Error("a service without patterns has a tool")
	}
}

// Digests that were recorded before budgets and groups existed must not change.
func TestTenantsWithoutBudgetsAndGroupsAreEncodedAsBefore(t *testing.T) {
	text, err := json.Marshal(switchboard.Tenant{Tasks: map[switchboard.TaskID]*switchboard.Task{"t": {Requirements: make([]switchboard.Requirement, 1)}}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"ID":"","Servers":null,"DefaultTask":"","Tasks":{"t":{"ID":"","Requirements":[{"Verb":"","Resource":"","Constraints":null,"Tools":null,"Select":"","Optional":false,"As":""}],"Mode":""}},` +
		`"Ranking":{"Classes":null,"Prefer":null,"Adjust":null},"Limits":null,"Overlays":null,"ByName":false,"Mode":"","Tier":"","Roles":null,"Policy":null}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestATenantTriesTheToolsThatItsPatternsMatch(t *testing.T) {
	tenant := &switchboard.Tenant{Trial: []string{"b-*/*", "files/read_*"}}
	for id, want := range map[string]bool{
		"b-1/x": true, "b-1/x/y": true, "b/x": false, "files/read_file": true, "files/write_file": false, "files/x/read_file": false, "other/read_file": false,
	} {
		tool, err := switchboard.ParseToolID(id)
		if err != nil || tenant.Tries(tool) != want {
			t.Errorf("%s: %t, %v", id, tenant.Tries(tool), err)
		}
	}
	if (&switchboard.Tenant{}).Tries(switchboard.ToolID{Server: "a", Name: "x"}) {
		t.Error("a tenant without a trial tries a tool")
	}
}

// A process that has other walls than its row says is started again.
func TestAProcessFitsARowWithTheSameWallsAlone(t *testing.T) {
	base := func() switchboard.Confinement {
		return switchboard.Confinement{Level: switchboard.SandboxStrict, Read: []string{"/r"}, Write: []string{"/w"}, Exec: []string{"/x"}, Hosts: []switchboard.HostPort{{Name: "a", Port: 1}}}
	}
	c := base()
	if same := base(); !c.Equal(&same) {
		t.Error("the same walls are not equal")
	}
	for name, change := range map[string]func(c *switchboard.Confinement){
		"level": func(c *switchboard.Confinement) { c.Level = switchboard.SandboxOff }, "network": func(c *switchboard.Confinement) { c.AnyNetwork = true },
		"read": func(c *switchboard.Confinement) { c.Read = nil }, "write": func(c *switchboard.Confinement) { c.Write = nil }, "exec": func(c *switchboard.Confinement) { c.Exec = nil },
		"no host": func(c *switchboard.Confinement) { c.Hosts = nil }, "another host": func(c *switchboard.Confinement) { c.Hosts[0].Name = "b" }, "another port": func(c *switchboard.Confinement) { c.Hosts[0].Port = 2 },
	} {
		other := base()
		change(&other)
		if c.Equal(&other) || other.Equal(&c) {
			t.Errorf("with another %s they are equal", name)
		}
	}
	if usual := (switchboard.Confinement{Level: switchboard.SandboxStandard}); !usual.Equal(&switchboard.Confinement{}) {
		t.Error("no level is another one than standard")
	}
}

func TestAHostIsWrittenAsAnOperatorWritesIt(t *testing.T) {
	for want, h := range map[string]switchboard.HostPort{"example.com:443": {Name: "example.com", Port: 443}, "192.0.2.1:80": {Name: "192.0.2.1", Port: 80}, "[2001:db8::1]:443": {Name: "2001:db8::1", Port: 443}} {
		if got := h.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
