package early

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// printTargets is the variable that makes the test a program that prints the target before the first collection, and after it.
const printTargets = "PRINT_TARGETS"

func TestTheTargetIsHighUntilTheFirstCollectionAndThenThatOfTheEnvironment(t *testing.T) {
	if os.Getenv(printTargets) != "" {
		if ending != nil {
			ending.Stop()
		}
		was := target()
		runtime.GC()
		fmt.Println("targets:", was, waitForTarget(was))
		return
	}
	for _, tt := range []struct{ gogc, want string }{
		{"", "800 100"},
		{"50", "800 50"},
		{"900", "900 900"},
		{"off", "off off"},
	} {
		t.Run("GOGC="+tt.gogc, func(t *testing.T) {
			t.Parallel()
			checkTargets(t, tt.gogc, tt.want)
		})
	}
}

func TestWithoutACollectionTheTargetIsUsualAfterTheStart(t *testing.T) {
	if os.Getenv(printTargets) != "" {
		was := target()
		fmt.Println("targets:", was, waitForTarget(was))
		return
	}
	t.Parallel()
	checkTargets(t, "", "800 100")
}

func TestACollectionAfterTheEndLeavesTheTarget(t *testing.T) {
	if os.Getenv(printTargets) != "" {
		End()
		debug.SetGCPercent(25) // as a bridge does
		runtime.GC()
		fmt.Println("targets:", target(), waitForTarget("25"))
		return
	}
	t.Parallel()
	checkTargets(t, "", "25 25")
}

// checkTargets runs the present test as a program.
func checkTargets(t *testing.T, gogc, want string) {
	t.Helper()
	name, _, _ := strings.Cut(t.Name(), "/")
	c := exec.Command(os.Args[0], "-test.run=^"+name+"$") //nolint:gosec // this test
	c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") }), printTargets+"=1")
	if gogc != "" {
		c.Env = append(c.Env, "GOGC="+gogc)
	}
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "targets: "+want+"\n") {
		t.Errorf("%v, want the targets %s; the program printed:\n%s", err, want, out)
	}
}

// target returns the present target in percent.
func target() string {
	sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(sample)
	if n := sample[0].Value.Uint64(); n < 1<<32 {
		return strconv.FormatUint(n, 10)
	}
	return "off"
}

// waitForTarget returns the target when it is not the given one any more. A high target is waited for long; another one
// changes never or within endDelay.
func waitForTarget(was string) string {
	most := endDelay + time.Second
	if was == strconv.Itoa(first) {
		most = time.Minute
	}
	for began := time.Now(); target() == was && time.Since(began) < most; {
		<-time.After(10 * time.Millisecond)
	}
	return target()
}
