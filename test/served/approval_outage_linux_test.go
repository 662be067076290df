package served_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// await waits until the server has so many executions more.
func (m *yesMarket) await(more int64) {
	m.t.Helper()
	want := m.server.Total() + more
	rig.Eventually(m.t, "calls are executed", func() string {
		n := m.server.Total()
		return rig.ReasonUnless(n >= want, fmt.Sprintf("%d, want %d", n, want))
	})
}

// outage has agents buy before, during and after it. lost is that of judge; nil means that nothing may be lost.
func (m *yesMarket) outage(seed uint64, during func(g *rig.Gateway), lost func(*boughtCall) bool) {
	t := m.t
	t.Helper()
	g := m.start()
	stop := make(chan struct{})
	done := m.work(0, 16, seed, stop, g)
	m.await(16)
	during(g)
	close(stop)
	done()
	rig.Eventually(t, "a session can be opened", func() string { // which writes
		s := &rig.HTTPSession{URL: g.URL + "/mcp", Header: http.Header{"Authorization": {"Bearer " + m.agents[0]}}}
		a, resp, err := s.Exchange(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
		return rig.ReasonUnless(resp.Header.Get("Mcp-Session-Id") != "", fmt.Sprint(string(a.Raw), err))
	})
	stop = make(chan struct{})
	done = m.work(16, 16, seed+1, stop, g)
	m.await(16) // it goes on by itself
	close(stop)
	done()
	executed, excused := m.judge(g, lost)
	m.judgeMoney(int64(excused))
	t.Logf("%d calls executed, of %d asked; of %d the store may have lost something; refused: %v", executed, m.next.Load(), excused, m.refused)
}

// While Redis does not answer for 10 s, and while a file cannot grow, no yes is used twice, no decision is lost and no account is over its limit.
func TestAP12AnOutageOfTheStoreUsesNoYesTwice(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	seed := law.Seed(t)
	t.Run("redis is paused for 10 s", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		redis := redistest.Start(t)
		m := newYesMarket(t, redis.URL())
		m.outage(seed, func(*rig.Gateway) {
			redis.Pause()
			<-time.After(10 * time.Second)
			redis.Resume()
		}, nil)
		if m.refused["SB-ROUT-004"]+m.refused["SB-RCPT-001"] == 0 {
			t.Errorf("refused: %v", m.refused)
		}
	})
	t.Run("a file may not grow", func(t *testing.T) {
		t.Parallel()
		m := newYesMarket(t, "")
		m.outage(seed, func(g *rig.Gateway) {
			may := func(bytes uint64) {
				if err := unix.Prlimit(g.Cmd.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil); err != nil {
					t.Fatal(err)
				}
			}
			info, err := os.Stat(filepath.Join(m.dir, ".switchboard", "store.db-wal"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			may(uint64(info.Size()) + 10_000)
			rig.Eventually(t, "calls are refused", func() string {
				m.mu.Lock()
				defer m.mu.Unlock()
				return rig.ReasonUnless(m.refused["SB-ROUT-004"]+m.refused["SB-RCPT-001"] > 0, fmt.Sprint(m.refused))
			})
			may(unix.RLIM_INFINITY)
		}, nil)
	})
}

// A replica of Redis takes the place of its master during traffic. What the replica had not received is lost, as docs/state.md says, and nothing else: with
// min-replicas-to-write 1 and min-replicas-max-lag 1 these are the writes of the last seconds before the master refuses to write.
func TestAP12AFailoverLosesNoMoreThanTheReplicaHadNotReceived(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	seed := law.Seed(t)
	promoted := func(w *redistest.Watched) {
		redistest.Until(t, "the replica is master", func() error {
			role, err := w.Replica.Try("role")
			if err == nil && !strings.HasPrefix(fmt.Sprint(role), "[master") {
				err = fmt.Errorf("%v", role)
			}
			return err
		})
	}
	// affected reports which calls were decided or executed between two instants. The replica gets each write within a second if it is not stopped.
	affected := func(m *yesMarket, from, to *time.Time) func(*boughtCall) bool {
		var mu sync.Mutex
		at := map[string]time.Time{}
		m.server.OnExecute(func(id string) {
			mu.Lock()
			defer mu.Unlock()
			at[id] = time.Now()
		})
		return func(b *boughtCall) bool {
			mu.Lock()
			defer mu.Unlock()
			return near(b.decided, from.Add(-time.Second), *to) || near(at[fmt.Sprint(b.id)], from.Add(-time.Second), *to)
		}
	}
	t.Run("a replica that follows", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		w := redistest.StartWatched(t)
		m := newYesMarket(t, w.URL())
		var from, to time.Time
		m.outage(seed, func(*rig.Gateway) {
			from = time.Now()
			w.Master.Kill()
			promoted(w)
			to = time.Now()
		}, affected(m, &from, &to))
	})
	t.Run("a replica that has stopped", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		w := redistest.StartWatched(t)
		w.Master.Do("config", "set", "min-replicas-to-write", "1")
		w.Master.Do("config", "set", "min-replicas-max-lag", "1")
		m := newYesMarket(t, w.URL())
		var from, refusing, to time.Time
		m.outage(seed, func(*rig.Gateway) {
			from = time.Now()
			w.Replica.Pause()
			rig.Eventually(t, "the master refuses to write", func() string {
				_, err := w.Master.Try("set", "a key of the test", "x")
				return rig.ReasonUnless(err != nil, "it writes")
			})
			refusing = time.Now()
			<-time.After(time.Second) // what had passed the master by then
			before := m.server.Total()
			<-time.After(2 * time.Second)
			if n := m.server.Total(); n != before {
				t.Errorf("%d calls were executed while no replica follows", n-before)
			}
			w.Master.Kill()
			w.Replica.Resume()
			promoted(w)
			to = time.Now()
		}, affected(m, &from, &to))
		t.Logf("the master refused to write after %s", refusing.Sub(from))
	})
}

// near reports whether at is from one instant to another.
func near(at, from, to time.Time) bool { return !at.Before(from) && !at.After(to) }
