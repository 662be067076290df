package served_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// writeZone adds a time zone to a database of the test's own: its days begin at the time of day of midnight. So a window of one day can end within a test.
func writeZone(t *testing.T, zones, name string, midnight time.Time) {
	t.Helper()
	const day = 24 * 60 * 60
	east := int32(day - midnight.Unix()%day) // seconds
	if east > day/2 {
		east -= day
	}
	file := append([]byte("TZif"), make([]byte, 16)...)
	for _, n := range []uint32{0, 0, 0, 0, 1, 2} { // no transitions, one type, two bytes of names
		file = binary.BigEndian.AppendUint32(file, n)
	}
	file = binary.BigEndian.AppendUint32(file, uint32(east))
	rig.WriteFile(t, filepath.Join(zones, name), string(append(file, 0, 0, 'X', 0)))
}

// A dailySpending is a spending whose budget has a limit for each day of a zone of its own.
type dailySpending struct {
	*spending
	zones    string
	midnight time.Time // when the day of the budget ends
}

// newDaily configures a budget whose day ends after that time.
func newDaily(t *testing.T, redis *redistest.Server, limit string, ends time.Duration) *dailySpending {
	t.Helper()
	s := &dailySpending{spending: newSpending(t, redis, 0), zones: t.TempDir()}
	s.start = func() *rig.Gateway {
		args := []string{"-v", "serve", "--listen", "127.0.0.1:0"}
		if redis != nil {
			args = append(args, "--data", filepath.Join(t.TempDir(), "data"))
		}
		cmd := rig.Switchboard(t, args...)
		cmd.Env = append(os.Environ(), "ZONEINFO="+s.zones)
		g := rig.ServeBy(t, s.dir, cmd)
		g.AwaitServers()
		return g
	}
	s.midnight = time.Now().Add(ends).Truncate(time.Second)
	writeZone(t, s.zones, "Test/Now", s.midnight)
	writeZone(t, s.zones, "Test/Back", s.midnight.Add(time.Hour))
	main := filepath.Join(s.dir, "switchboard.yaml")
	text := strings.Replace(rig.ReadFile(t, main), fmt.Sprintf("limit: 0.%06d, window: forever", priceLimit), "limit: "+limit+", window: 1d, zone: Test/Now", 1)
	if !strings.Contains(text, "Test/Now") {
		t.Fatalf("the budget is not in\n%s", text)
	}
	rig.WriteFile(t, main, text)
	return s
}

// accounts returns the accounts of the budget.
func (s *dailySpending) accounts() (all []store.AccountState) {
	s.t.Helper()
	where := "file:" + filepath.Join(s.dir, ".switchboard", "store.db")
	if s.redis != nil {
		where = s.redis.URL()
	}
	st, err := store.Open(s.t.Context(), where, store.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	states, err := st.Accounts(s.t.Context(), budget.Group("default"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, a := range states {
		if strings.Contains(a.Name, "/paid ") {
			all = append(all, a)
		}
	}
	return all
}

// beforeMidnight does something that has to be done before the day of the budget ends, with days that end later and later until it is. do reports whether
// it was in time.
func beforeMidnight(t *testing.T, redis *redistest.Server, do func(t *testing.T, ends time.Duration) bool) {
	t.Helper()
	for ends, done := 8*time.Second, false; !done && !t.Failed(); ends *= 2 {
		if ends > 3*time.Minute {
			wait.Late(t, "what has to be done before the day ends took more than %v", ends/2)
		}
		if redis != nil {
			redis.Do("FLUSHALL")
		}
		t.Run(ends.String(), func(t *testing.T) { done = do(t, ends) })
	}
}

// BU-07 of the security cases: three processes spend over the end of a window, and then their clocks are set back by an hour. Each day has its own limit, once.
func TestBU07TheEndOfAWindowAndAClockThatGoesBackGiveNoSecondLimit(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	const most = 5 // calls in a day
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		beforeMidnight(t, redis, func(t *testing.T, ends time.Duration) bool {
			s := newDaily(t, redis, fmt.Sprintf("0.%06d", most*pricedAt), ends)
			var all []*rig.Gateway
			for range 3 {
				all = append(all, s.start())
			}
			var open []*rig.HTTPSession
			for i := range 6 {
				open = append(open, all[i%3].Open(t, "/mcp", i%2 == 0))
			}
			if time.Until(s.midnight) < time.Second {
				return false
			}
			var next, before, refusedAfter atomic.Int64
			var late wait.Lateness
			var working sync.WaitGroup
			for _, web := range open {
				working.Go(func() {
					for time.Now().Before(s.midnight.Add(time.Second)) || s.server.Total() < 2*most && time.Now().Before(s.midnight.Add(wait.Bound)) {
						began := time.Now()
						switch a := web.Try("post", int(2*next.Add(1))); {
						case a.Good() && time.Now().Before(s.midnight):
							before.Add(1)
						case a.Good():
						case rig.Code(a.Answer) != "SB-COST-001":
							late.Add("%v", a)
						case began.After(s.midnight):
							refusedAfter.Add(1)
						}
						<-time.After(10 * time.Millisecond)
					}
				})
			}
			working.Wait()
			late.State(t)
			switch total := s.server.Total(); {
			case total < 2*most && before.Load() < most: // the machine was too slow to spend the limit of the first day
				return false
			case total > 2*most || total < 2*most && refusedAfter.Load() > 0:
				t.Errorf("%d calls are executed, %d of them were answered before midnight", total, before.Load())
			case total < 2*most:
				wait.Late(t, "%d calls are executed", total)
			}
			check := func(when string) {
				t.Helper()
				if settled := s.awaitSettled(); settled != pricedAt*s.server.Total() {
					t.Errorf("%s: %d is settled for %d calls", when, settled, s.server.Total())
				}
				days := s.accounts()
				if len(days) != 2 || days[0].Settled > most*pricedAt || days[1].Settled > most*pricedAt {
					t.Errorf("%s: the days are %+v", when, days)
				}
			}
			check("after midnight")
			main := filepath.Join(s.dir, "switchboard.yaml")
			for _, zone := range []string{"Test/Back", "Test/Now"} { // a clock of the zone that is an hour behind shows the day before
				text := rig.ReadFile(t, main)
				from, rest, _ := strings.Cut(text, "zone: ")
				_, rest, _ = strings.Cut(rest, ",")
				rig.WriteFile(t, main, from+"zone: "+zone+","+rest)
				for _, g := range all {
					g.Reload(t)
				}
				for _, web := range open {
					if a := web.Try("post", int(2*next.Add(1))); rig.Code(a.Answer) != "SB-COST-001" {
						t.Errorf("%s: %v", zone, a)
					}
				}
				check(zone)
			}
			return true
		})
	})
}

// BU-09 of the security cases: a call is held before its window ends and settled after. It counts in its own window, and takes no room in the next one.
func TestBU09ACallThatEndsInTheNextWindowCountsInItsOwn(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		beforeMidnight(t, redis, func(t *testing.T, ends time.Duration) bool {
			s := newDaily(t, redis, "0.001", ends)
			g := s.start()
			at, end := make(chan struct{}), make(chan struct{})
			s.server.OnExecute(func(id string) {
				if id == "2" {
					close(at)
					<-end
				}
			})
			legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
			first := make(chan rig.Attempt, 1)
			go func() { first <- legacy.Try("post", 2) }()
			select {
			case <-at:
			case a := <-first:
				close(end)
				t.Fatalf("it was answered before it ended: %v", a)
			case <-time.After(wait.Bound):
				close(end)
				wait.Late(t, "the call does not come")
			}
			held := s.accounts()
			if over := modern.Try("post", 4); time.Now().After(s.midnight) {
				close(end)
				<-first
				return false
			} else if rig.Code(over.Answer) != "SB-COST-001" || len(held) != 1 || held[0].Held != pricedAt {
				t.Errorf("before midnight: %v, with %+v", over, held)
			}
			<-time.After(time.Until(s.midnight))
			if a := modern.Try("post", 6); !a.Good() {
				t.Errorf("the next day has no room: %v", a)
			}
			if a := legacy.At(g).Try("post", 8); rig.Code(a.Answer) != "SB-COST-001" {
				t.Errorf("the next day has room for two: %v", a)
			}
			close(end)
			if a := wait.Receive(t, "the answer of the call", first); !a.Good() {
				t.Errorf("the call of the day before: %v", a)
			}
			if settled := s.awaitSettled(); settled != 2*pricedAt || s.server.Total() != 2 {
				t.Errorf("%d is settled for %d calls", settled, s.server.Total())
			}
			days := s.accounts()
			if len(days) != 2 || days[0].Settled != pricedAt || days[1].Settled != pricedAt {
				t.Errorf("the days are %+v", days)
			}
			return true
		})
	})
}
