package admin

import (
	"errors"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func policyFiles(test string) []switchboard.PolicyFile {
	return []switchboard.PolicyFile{
		{Name: "own.rego", Path: "own.rego", Data: []byte("package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n")},
		{Name: "own_test.rego", Path: "own_test.rego", Data: []byte("package own_test\n\nimport data.switchboard.tenant\n\n" + test + "\n")},
	}
}

func TestTestsOfPoliciesEndWithinTheirBounds(t *testing.T) {
	slow := policyFiles("test_slow if { count({[x, y, z] | some x in numbers.range(1, 3000); some y in numbers.range(1, 3000); some z in numbers.range(1, 3000)}) < 0 }")
	p := NewPolicyTester(nil)
	p.time = time.Second
	run, err := p.run(t.Context(), "acme", slow, "", false)
	if err != nil || !strings.Contains(run.Stopped, "longer than 1s") && !strings.Contains(run.Stopped, "memory") || run.Report != nil {
		t.Errorf("%+v, %v", run, err)
	}
	runtime.GC() // else the garbage of the first run hides the growth
	p.time, p.memory = 20*time.Second, 1<<20
	if run, err := p.run(t.Context(), "acme", slow, "", false); err != nil || !strings.Contains(run.Stopped, "memory") {
		t.Errorf("%+v, %v", run, err)
	}
}

// Counts of rules take long. They take no place from authors, who test and check, and authors take none from them.
func TestPoliciesAreTestedAndRulesCountedWithinBoundsOfTheirOwn(t *testing.T) {
	p := NewPolicyTester(NewReader(ReaderOptions{
		Configuration: func() Configuration { return Configuration{State: &bind.State{Config: &config.Config{}}} }, Store: store.NewMemory(),
	}))
	const tenant = "acme"
	for name, tt := range map[string]struct {
		own, other *evaluationPlaces
		do         func() error
	}{
		"test":  {p.tests, p.counts, func() error { _, err := p.Run(t.Context(), tenant, nil, "", false); return err }},
		"check": {p.tests, p.counts, func() error { _, err := p.Check(t.Context(), tenant, PolicyTrial{}); return err }},
		"count": {p.counts, p.tests, func() error { _, err := p.CountRules(t.Context(), tenant, time.Now(), false); return err }},
	} {
		take := func(places *evaluationPlaces, id switchboard.TenantID) func() {
			t.Helper()
			release, err := places.take(id)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return release
		}
		overloaded := func(err error) bool {
			e, ok := errors.AsType[*switchboard.Error](err)
			return ok && e.Code == switchboard.CodeOverloaded
		}
		other := take(tt.other, tenant)
		alsoOther := take(tt.other, "umbrella")
		if err := tt.do(); err != nil {
			t.Errorf("%s waits for what is no %s: %v", name, name, err)
		}
		other()
		alsoOther()
		first := take(tt.own, tenant)
		if err := tt.do(); !overloaded(err) {
			t.Errorf("a second %s of a tenant: %v", name, err)
		}
		first()
		first, second := take(tt.own, "umbrella"), take(tt.own, "initech")
		if err := tt.do(); !overloaded(err) {
			t.Errorf("a third %s: %v", name, err)
		}
		second()
		if err := tt.do(); err != nil {
			t.Errorf("after the end of one %s: %v", name, err)
		}
		first()
	}
}

func TestTheRulesInForceAreCompiledOnceForEachReload(t *testing.T) {
	var last lastRules
	layer := func(file string) []switchboard.PolicyFile {
		files := policyFiles("")[:1]
		files[0].Path = file + ".rego"
		return files
	}
	state := func(file string) *bind.State {
		return &bind.State{Config: &config.Config{TenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{"acme": layer(file), "other": layer("other")}}}
	}
	for _, tt := range []struct {
		name   string
		c      Configuration
		tenant switchboard.TenantID
		want   string
	}{
		{"at first", Configuration{State: state("a"), Digest: "d1"}, "acme", "a"},
		{"another file in the same configuration, which cannot be", Configuration{State: state("b"), Digest: "d1"}, "acme", "a"},
		{"another configuration", Configuration{State: state("b"), Digest: "d2"}, "acme", "b"},
		{"the same one, loaded again", Configuration{State: state("c"), Digest: "d2", Loaded: time.Unix(1, 0)}, "acme", "c"},
		{"another tenant", Configuration{State: state("c"), Digest: "d2", Loaded: time.Unix(1, 0)}, "other", "other"},
		{"without a digest", Configuration{State: state("d")}, "acme", "d"},
		{"again without a digest", Configuration{State: state("e")}, "acme", "e"},
	} {
		rules, err := last.read(&tt.c, tt.tenant, false)
		if err != nil || len(rules) == 0 || path.Base(rules[0].row.File) != tt.want+".rego" {
			t.Errorf("%s: %+v %v, want %s", tt.name, rules, err, tt.want)
		}
	}
}

func TestCountsOfRulesAreRememberedWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all ruleMemories
		keep := func(id switchboard.TenantID, decisions int) *replay.RuleMemory {
			m := &replay.RuleMemory{}
			all.keep(id, &ruleMemory{RuleMemory: m, decisions: decisions})
			time.Sleep(time.Minute)
			return m
		}
		keep("first", maxRemembered/2)
		second := keep("second", maxRemembered/2)
		third := keep("third", 1)
		if len(all.of) != 2 || all.of["first"] != nil {
			t.Errorf("%d decisions of these tenants are remembered: %v", maxRemembered+1, slices.Collect(maps.Keys(all.of)))
		}
		if all.take("second") != second || all.take("second") == second {
			t.Error("a memory is not for one count at a time")
		}
		kept := func() *ruleMemory {
			all.mu.Lock()
			defer all.mu.Unlock()
			return all.of["third"]
		}
		time.Sleep(rememberedRules - time.Minute - time.Second)
		if m := kept(); m == nil || m.RuleMemory != third {
			t.Error("a memory is dropped too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if kept() != nil {
			t.Error("a memory that is not used stays")
		}
	})
}

func TestALongTextOfATestIsCut(t *testing.T) {
	long := policyFiles(`test_print if { print(concat("", ["x" | some i in numbers.range(1, 9000)])); 1 == 2 }`)
	run, err := NewPolicyTester(nil).run(t.Context(), "acme", long, "", true)
	if err != nil || run.Failed != 1 || len(run.Report.Tests) != 1 || len(run.Report.Tests[0].Output) > maxTestText+10 || len(run.Report.Coverage) == 0 {
		t.Errorf("%+v, %v", run, err)
	}
}
