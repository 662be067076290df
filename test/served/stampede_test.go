package served_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// info is one of the numbers that a Redis says of itself.
func info(t *testing.T, redis *redistest.Server, section, name string) int {
	t.Helper()
	for line := range strings.Lines(fmt.Sprint(redis.Do("info", section))) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			n, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("Redis says nothing of %s", name)
	return 0
}

// crowd has clients of s call, one pause after the other, until the function that it
// returns is called.
func (s *survivor) crowd(clients []*client, pause time.Duration) (disperse func()) {
	var calling sync.WaitGroup
	from := 1
	for _, l := range s.all {
		from = max(from, l.ID+1)
	}
	for i, c := range clients {
		calling.Go(func() {
			for id := from + i; ; id += len(clients) {
				if _, there := s.call(c, id, false, false); !there {
					return
				}
				<-time.After(pause)
			}
		})
	}
	return func() {
		s.close(true)
		calling.Wait()
		s.close(false)
	}
}

// since returns how many calls of s that need the store were served after they were made
// in a span of time, how soon after its beginning the first, and how many of all were
// answered within it.
func (s *survivor) since(from time.Time, within time.Duration) (served int, first time.Duration, answered int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all {
		if l.Began.After(from) && l.Good() && l.tool == "post" {
			if served++; served == 1 || l.End.Sub(from) < first {
				first = l.End.Sub(from)
			}
		}
		if l.End.After(from) && l.End.Before(from.Add(within)) {
			answered++
		}
	}
	return served, first, answered
}

// Whatever waits for a Redis that is away does not come all at once when that is back, and
// nothing is left of it afterwards.
func TestACrowdDoesNotStormTheStoreWhenThatIsBack(t *testing.T) {
	t.Parallel()
	const sessions = 64
	for what, outage := range map[string]func(*redistest.Server) (back time.Time, commands, connections int){
		"paused for 10 s": func(r *redistest.Server) (time.Time, int, int) {
			commands, connections := info(t, r, "stats", "total_commands_processed"), info(t, r, "stats", "total_connections_received")
			r.Pause()
			<-time.After(10 * time.Second)
			r.Resume()
			return time.Now(), commands, connections
		},
		"killed and started again": func(r *redistest.Server) (time.Time, int, int) {
			r.Kill()
			<-time.After(3 * time.Second)
			mend(t, r)
			r.Start()
			return time.Now(), 0, 0
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			s := newSurvivor(t, redis)
			s.live()
			g := &rig.Gateway{T: t, URL: s.url, Dir: s.dir}
			var clients []*client
			for i := range sessions {
				clients = append(clients, &client{HTTPSession: g.Open(t, "/mcp", i%2 == 0)})
			}
			const pause = 100 * time.Millisecond // so that there is room for all receipts while it is away
			served := func(from time.Time) {
				t.Helper()
				rig.Eventually(t, "calls are answered", func() string {
					if n, _, _ := s.since(from, 0); n < 4*sessions {
						return fmt.Sprint(n)
					}
					return ""
				})
			}
			size := func() map[string]float64 {
				_, all := g.Metrics()
				return all
			}

			disperse := s.crowd(clients, pause)
			served(time.Now())
			disperse()
			before, connected := size(), info(t, redis, "clients", "connected_clients")

			disperse = s.crowd(clients, pause)
			served(time.Now())
			back, commands, connections := outage(redis)
			<-time.After(time.Until(back.Add(time.Second)))
			commands = info(t, redis, "stats", "total_commands_processed") - commands
			connections = info(t, redis, "stats", "total_connections_received") - connections
			_, _, answered := s.since(back, time.Second)
			served(back)
			disperse()
			_, first, _ := s.since(back, 0)
			t.Logf("in the first second: %d commands and %d connections, for %d calls; the first that needs the store is served after %s", commands, connections, answered, first)

			// A call asks for some twenty commands, those within scripts included.
			if most := 50*answered + 10_000; commands > most || connections > 4*sessions {
				t.Errorf("%d commands and %d connections came in the first second, of %d and %d at most", commands, connections, most, 4*sessions)
			}
			if first > 15*time.Second {
				t.Errorf("it was served again after %s", first)
			}
			for name, more := range map[string]float64{"go_goroutines": sessions, "process_open_fds": sessions, "process_resident_memory_bytes": 64 << 20} {
				now := 0.0
				rig.Eventually(t, name+" is what it was", func() string {
					if now = size()[name]; now > before[name]+more {
						return fmt.Sprintf("%.0f, and %.0f before", now, before[name])
					}
					return ""
				})
				t.Logf("%s: %.0f before, %.0f afterwards", name, before[name], now)
			}
			t.Logf("%d connections to Redis before, %d afterwards", connected, info(t, redis, "clients", "connected_clients"))
			s.stop()
			s.judge(true)
		})
	}
}
