package conformance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/wait"
)

// A check is one claim of a scenario. A scenario may make it several times.
type check struct{ scenario, id string }

// A verdict is how often a check passed, and how often it failed. The suite also
// has checks that were skipped, warn or inform.
type verdict struct{ passed, failed int }

type results map[check]verdict

// stamp is what the suite appends to the name of a scenario's folder.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT[0-9-]+Z$`)

// read reads the results that a run of the suite left in dir.
func read(dir string) (results, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*", "checks.json"))
	if err != nil {
		return nil, err
	}
	got := results{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var checks []struct{ ID, Status string }
		if err := json.Unmarshal(raw, &checks); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		folder := filepath.Base(filepath.Dir(file))
		scenario := stamp.ReplaceAllString(folder, "")
		if scenario == folder {
			return nil, fmt.Errorf("%s is not the folder of a scenario", folder)
		}
		for _, c := range checks {
			key := check{scenario, c.ID}
			v := got[key]
			switch c.Status {
			case "SUCCESS":
				v.passed++
			case "FAILURE":
				v.failed++
			case "SKIPPED", "WARNING", "INFO":
			default:
				return nil, fmt.Errorf("%s: the status of %s is %q", file, c.ID, c.Status)
			}
			got[key] = v
		}
	}
	return got, nil
}

// sum is what the suite's own summary says.
func (r results) sum() (all verdict) {
	for _, v := range r {
		all.passed += v.passed
		all.failed += v.failed
	}
	return all
}

// worse lists the checks that pass less often, or fail more often, in r than in
// direct. One that was not made does not pass.
func (r results) worse(direct results) map[check]string {
	bad := map[check]string{}
	for _, of := range []results{direct, r} {
		for c := range of {
			if was, is := direct[c], r[c]; is.passed < was.passed || is.failed > was.failed {
				bad[c] = fmt.Sprintf("%d passed and %d failed, direct %d and %d", is.passed, is.failed, was.passed, was.failed)
			}
		}
	}
	return bad
}

// expected reads the checks that are expected to fail in a direction: true for those that
// always fail, false for those that sometimes do.
func expected(t *testing.T, direction string) map[check]bool {
	t.Helper()
	raw, err := os.ReadFile("testdata/expected-failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[check]bool{}
	reason := false
	for n, line := range strings.Split(string(raw), "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0][0] == '#' {
			reason = len(f) > 1 && f[0] == "#"
			continue
		}
		sometimes := len(f) == 4 && f[3] == "sometimes"
		if len(f) != 3 && !sometimes || !reason {
			t.Fatalf("expected-failures.txt:%d: want directions, scenario and check, and perhaps \"sometimes\", below a comment that says why", n+1)
		}
		for d := range strings.SplitSeq(f[0], ",") {
			if !slices.Contains(directions, d) {
				t.Fatalf("expected-failures.txt:%d: there is no direction %q", n+1, d)
			}
			if d == direction {
				all[check{f[1], f[2]}] = !sometimes
			}
		}
	}
	return all
}

// unexpected says what is wrong with the results through Switchboard, held
// against those without it and against the list of what is expected to fail.
func (r results) unexpected(direct results, list map[check]bool) map[check]string {
	wrong, bad := map[check]string{}, r.worse(direct)
	for c, why := range bad {
		if _, known := list[c]; !known {
			wrong[c] = why
		}
	}
	for c, always := range list {
		if _, fails := bad[c]; always && !fails {
			wrong[c] = "it passes as it does direct, so take it out of expected-failures.txt"
		}
	}
	return wrong
}

// baseline is what run gives without Switchboard. The suite's own patience is short: what is
// not as wanted is run once more, on a machine that may be less busy then, and said.
func baseline(t *testing.T, want verdict, run func() results) results {
	t.Helper()
	direct := run()
	if got := direct.sum(); got != want {
		t.Logf("direct, the first time: %d checks pass and %d fail, want %v", got.passed, got.failed, want)
		direct = run()
	}
	if got := direct.sum(); got != want {
		t.Errorf("direct, %d checks pass and %d fail, want %v", got.passed, got.failed, want)
	}
	return direct
}

// compare holds what run gives, which goes through Switchboard, against the
// results without it, and against what is expected to fail. What comes
// out otherwise is run once more as in baseline, and counts if it does so again,
// unless something was late meanwhile: then the test is late.
func compare(t *testing.T, direction string, run func(late *wait.Lateness) results, direct results) {
	t.Helper()
	var first, second wait.Lateness
	through, list := run(&first), expected(t, direction)
	wrong := through.unexpected(direct, list)
	if len(wrong) > 0 {
		for _, c := range sorted(wrong) {
			t.Logf("%s %s %s, the first time: %s", direction, c.scenario, c.id, wrong[c])
		}
		through = run(&second)
		again := through.unexpected(direct, list)
		maps.DeleteFunc(wrong, func(c check, _ string) bool { _, still := again[c]; return !still })
	}
	if len(wrong) > 0 {
		second.State(t)
	}
	for _, c := range sorted(wrong) {
		t.Errorf("%s %s %s: %s", direction, c.scenario, c.id, wrong[c])
	}
	t.Logf("%s: %d of %d checks that pass direct pass through Switchboard", direction, through.sum().passed, direct.sum().passed)
}

func sorted[V any](m map[check]V) []check {
	return slices.SortedFunc(maps.Keys(m), func(a, b check) int {
		return cmp.Or(strings.Compare(a.scenario, b.scenario), strings.Compare(a.id, b.id))
	})
}
