package early

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
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
		fmt.Println("targets:", target(), targetAfterCollection())
		return
	}
	for _, tt := range []struct{ gogc, want string }{
		{"", "800 100"},
		{"50", "800 50"},
		{"900", "900 900"},
		{"off", "off off"},
	} {
		t.Run("GOGC="+tt.gogc, func(t *testing.T) {
			c := exec.Command(os.Args[0], "-test.run="+t.Name()[:strings.Index(t.Name(), "/")]) //nolint:gosec // this test
			c.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") }), printTargets+"=1")
			if tt.gogc != "" {
				c.Env = append(c.Env, "GOGC="+tt.gogc)
			}
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "targets: "+tt.want+"\n") {
				t.Errorf("%v, want the targets %s; the program printed:\n%s", err, tt.want, out)
			}
		})
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

// targetAfterCollection returns the target once a collection has changed it. It waits for 10 seconds at most.
func targetAfterCollection() string {
	was := target()
	runtime.GC()
	for began := time.Now(); target() == was && was == strconv.Itoa(first) && time.Since(began) < 10*time.Second; {
		runtime.Gosched()
	}
	return target()
}
