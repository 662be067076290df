package admin

import (
	"runtime"
	"strings"
	"testing"
	"time"

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
	if p.begin("acme") != nil || p.begin("acme") == nil || p.begin("umbrella") != nil || p.begin("initech") == nil {
		t.Error("another number of runs begins than may")
	}
	p.end("acme")
	if p.begin("initech") != nil {
		t.Error("none begins after the end of one")
	}
}

func TestALongTextOfATestIsCut(t *testing.T) {
	long := policyFiles(`test_print if { print(concat("", ["x" | some i in numbers.range(1, 9000)])); 1 == 2 }`)
	run, err := NewPolicyTester(nil).run(t.Context(), "acme", long, "", true)
	if err != nil || run.Failed != 1 || len(run.Report.Tests) != 1 || len(run.Report.Tests[0].Output) > maxTestText+10 || len(run.Report.Coverage) == 0 {
		t.Errorf("%+v, %v", run, err)
	}
}
