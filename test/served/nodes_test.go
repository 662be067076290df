package served_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestReplicasOverAClusterOutliveOneOfThemAndANode(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	cluster := redistest.StartCluster(t, 3)
	outlived(t, cluster.URL(), func() {
		cluster.Nodes[1].Kill()
		<-time.After(3 * time.Second)
		cluster.Nodes[1].Start()
	})
}

func TestReplicasOverSentinelOutliveOneOfThemAndTheMaster(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	watched := redistest.StartWatched(t)
	outlived(t, watched.URL(), func() {
		watched.Master.Kill()
		redistest.Until(t, "the replica is master", func() error {
			role, err := watched.Replica.Try("role")
			if err == nil && !strings.HasPrefix(fmt.Sprint(role), "[master") {
				err = fmt.Errorf("%v", role)
			}
			return err
		})
	})
}

// outlived has a client of each era call three replicas that share the store, of which one is
// killed, and then part of the store.
func outlived(t *testing.T, store string, part func()) {
	t.Helper()
	const calls = 200 // at least
	book, url := rig.KeepLedger(t, 2*time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
	c := rig.ServeReplicasOn(t, store, defaultTask(branches(url)))
	var made atomic.Int64
	stop, result := make(chan struct{}), make(chan []rig.Attempt, 1)
	var away atomic.Bool     // from when on a refusal is what it comes to
	var patient atomic.Int64 // before, the store may be late: so long at most, in ns
	// Also when the test is late.
	defer func() {
		if twice := book.Twice(); len(twice) > 0 {
			t.Errorf("executed more than once: %q", twice)
		}
	}()
	var late wait.Lateness
	go func() {
		defer close(result)
		result <- c.Load(1<<30, 2, stop, &made, func(s *rig.HTTPSession, id int) rig.Attempt {
			if away.Load() {
				return c.CallOnce(s, id)
			}
			began := time.Now()
			a := c.CallPatiently(s, id)
			if took := int64(time.Since(began)); !away.Load() && took > patient.Load() {
				patient.Store(took) // of two at once either will do
			}
			return a
		})
	}()
	after := func(n int64) {
		t.Helper()
		rig.Eventually(t, "calls are made", func() string {
			if made.Load() < n {
				return fmt.Sprint(made.Load())
			}
			return ""
		})
	}
	after(calls / 4)
	killing := time.Now()
	c.End(c.TakeTurn()[0], syscall.SIGKILL)
	killed := time.Now()
	after(made.Load() + calls/4)
	probers := []*rig.HTTPSession{c.Open(t, "prober", false), c.Open(t, "prober", true)}
	gone := time.Now()
	away.Store(true)
	part()
	back := time.Now()
	after(made.Load() + calls/4)
	key := 0
	for _, prober := range probers { // until all of it serves again
		for range 12 {
			rig.Eventually(t, "a call with a key is served", func() string {
				key++
				if got := once(t, prober, fmt.Sprint("again ", key), "post", "{}"); got.code != "" {
					return fmt.Sprintf("%+v", got)
				}
				return ""
			})
		}
	}
	whole := time.Now()
	close(stop)
	all := <-result
	lost, refused := 0, map[string]int{}
	for _, a := range all {
		n := book.CountOf(fmt.Sprint(a.ID))
		code := rig.Code(a.Answer)
		switch unknown := a.Err != nil || a.Status == http.StatusBadGateway || code == "SB-EXEC-004"; {
		case a.Good() && n == 1:
		case unknown && n <= 1 && a.Began.Before(killed) && a.End.After(killing):
			lost++
		case (code == "SB-ROUT-004" || code == "SB-RCPT-001" || a.Status == http.StatusServiceUnavailable) && n == 0 && a.End.After(gone) && a.Began.Before(whole):
			refused[code]++
		case wait.TimedOut(a.Err) && n <= 1:
			late.Add("%v", a)
		default:
			t.Errorf("executed %d times, %s after part of the store was killed: %v", n, a.Began.Sub(gone), a)
		}
	}
	if took := time.Duration(patient.Load()); took > rig.Patience/3 {
		late.Add("with the store there, a call took %s", took)
	}
	if ending := killed.Sub(killing); lost > 2 && ending > 50*time.Millisecond { // a client that has lost one call makes another while the replica still ends
		late.Add("%d calls were lost while the replica ended, which took %s", lost, ending)
	} else if lost > 2 {
		t.Errorf("%d calls were lost, of 2 that can have been under way", lost)
	}
	if len(all) < calls {
		t.Errorf("%d calls were made, want %d", len(all), calls)
	}
	out, errs, code := rig.Command(t, c.Dir, "receipts", "verify")
	if code != 0 {
		t.Errorf("receipts verify: %s%s", out, errs)
	}
	t.Logf("%d calls, %d lost with the replica, refused while part of the store was away: %v; all was served %s after it was back", len(all), lost, refused, whole.Sub(back))
	late.State(t)
}
