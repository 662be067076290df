package served_test

import (
	"fmt"
	"maps"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// saving is how long a process may take to write what it has counted: it writes once a minute.
const saving = time.Minute + wait.Bound

// The history of metrics has the calls of all replicas, each once: while they run, after one is killed, after one stops, and after both have come back.
func TestTheHistoryHasTheCallsOfAllReplicasOnceAlsoAfterAKillAndAStop(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	dir, keys := layOutOfficers(t)
	all, _ := replicate(t, dir, 3)
	want := map[string][4]int64{}
	call := func(g *rig.Gateway, who, tenant string, n int64) {
		t.Helper()
		s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who])
		for range n {
			if got := rig.Call(t, s, "work", `{}`); got != "" {
				t.Fatalf("a call: %s", got)
			}
		}
		sum := want[tenant+" a"]
		sum[0], sum[3] = sum[0]+n, sum[3]+n
		want[tenant+" a"] = sum
	}
	steps := []string{"10s", "1m", "15m"}
	// A reader may get what the store had 5 seconds ago. More calls than there are would stay, so what a replica sees too late is all that
	// is waited for.
	see := func(when string, g *rig.Gateway) {
		t.Helper()
		wait.For(t, saving, when, func() error {
			for _, step := range steps {
				if got := pastCalls(t, g, keys["operator"], "?step="+step); got["acme a"][0] < want["acme a"][0] || got["umbrella a"][0] < want["umbrella a"][0] {
					return fmt.Errorf("steps of %s have %v, want %v", step, got, want)
				}
			}
			return nil
		})
		for _, step := range steps {
			if got := pastCalls(t, g, keys["operator"], "?step="+step); !maps.Equal(got, want) {
				t.Errorf("%s, steps of %s have %v, want %v", when, step, got, want)
			}
		}
		if got := pastCalls(t, g, keys["viewer"], "?step=15m"); len(got) != 1 || got["acme a"] != want["acme a"] {
			t.Errorf("%s, an officer of acme sees %v", when, got)
		}
	}
	for i, g := range all {
		call(g, "agent", "acme", int64(3+i))
		call(g, "other agent", "umbrella", int64(1+10*i))
	}
	for i, g := range all {
		see(fmt.Sprintf("at replica %d", i), g)
	}

	all[1].Signal(t, syscall.SIGKILL)
	_ = all[1].Cmd.Wait()
	see("after a kill, at the first", all[0])
	see("after a kill, at the third", all[2])
	killed := rig.Serve(t, all[1].Dir)
	see("after a kill, at the one that was killed", killed)

	// What was counted last is written at a stop.
	call(killed, "agent", "acme", 7)
	killed.Signal(t, syscall.SIGTERM)
	killed.Signal(t, syscall.SIGTERM) // it need not wait for load balancers
	killed.AwaitEnd(t)
	see("after a stop, at the first", all[0])
	see("after a stop, at the third", all[2])
	stopped := rig.Serve(t, all[1].Dir)
	see("after a stop, at the one that was stopped", stopped)
	call(stopped, "other agent", "umbrella", 2)
	see("after another start and more calls", stopped)

	// What it has read at its start is not written again, by this process or by the next one.
	stopped.Signal(t, syscall.SIGTERM)
	stopped.Signal(t, syscall.SIGTERM)
	stopped.AwaitEnd(t)
	for i, g := range []*rig.Gateway{all[0], all[2], rig.Serve(t, all[1].Dir)} {
		see(fmt.Sprintf("at the end, at the %d. process", i+1), g)
	}
}
