package served_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

func TestReplicasAskForALimitLessOftenThanTheyCallAndNeverExceedIt(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	const rate, burst, calls = 1000, 500, 1500
	limited := `{"name":"post","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"notify","resource":"slack","constraints":["rate_limited"]}]}}`
	book, url := rig.KeepLedger(t, 0, limited)
	c := rig.ServeReplicas(t, strings.Replace(defaultTask(branches(url)), "default_task: all\n", fmt.Sprintf("default_task: all\nlimits:\n  - {match: {constraint: rate_limited}, rate: %d/s, burst: %d}\n", rate, burst), 1))
	var made atomic.Int64
	granted, begun := 0, time.Now()
	for _, a := range c.Load(calls, 18, nil, &made, c.CallPatiently) {
		switch {
		case a.Good():
			granted++
		case rig.Code(a.Answer) != "SB-ROUT-002":
			t.Error(a)
		}
	}
	most := burst + rate*time.Since(begun).Seconds() + 1
	if n := len(book.Executed); n != granted || n < burst-c.Repeated || float64(n) > most || len(book.Twice()) > 0 {
		t.Errorf("%d calls were granted and %d executed, and %.0f are allowed", granted, n, most)
	}
	asked := 0.0
	for _, g := range c.All {
		_, values := g.Metrics()
		asked += values["switchboard_store_operations_total take ok"]
	}
	if asked == 0 || asked >= calls { // 231 times on a machine with other work besides
		t.Errorf("%d calls asked the store %.0f times", calls, asked)
	}
	t.Logf("%d calls asked the store %.0f times, %d were granted", calls, asked, granted)
}
