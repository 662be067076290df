package doctor

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
)

// A clockCheck compares clocks.
type clockCheck struct{ *examination }

// Bounds of looking at clocks.
const (
	maxSkew      = 2 * time.Minute // the difference of two clocks that is still well
	maxClocks    = 8               // servers that are asked for their time
	clockTimeout = 3 * time.Second
)

// checkClock compares this machine's clock with the clocks of servers over HTTP, and with the time when this program was made.
func (x clockCheck) checkClock(ctx context.Context) {
	now := time.Now()
	if !x.Made.IsZero() && now.Before(x.Made.Add(-maxSkew)) {
		x.add(Diagnosis{
			Area: Clock, Subject: "this machine", State: Wrong, Cause: "clock",
			What: fmt.Sprintf("its clock shows %s, and this program was made later, on %s", now.Format(time.DateTime), x.Made.Format(time.DateTime)), Remedy: setClock, Command: setClockCommand,
		})
		return
	}
	if x.cfg == nil {
		return
	}
	differ, same := x.compareClocks(ctx)
	switch {
	case differ != "" && same == "":
		x.add(Diagnosis{Area: Clock, Subject: "this machine", State: Wrong, Cause: "clock", What: differ, Remedy: setClock + " If it is right, the clock of the server is wrong", Command: setClockCommand})
	case differ != "":
		x.add(Diagnosis{Area: Clock, Subject: "this machine", State: Note, Cause: "clock", What: differ + "; " + same})
	case same != "":
		x.well(Clock, "this machine", same)
	}
}

const (
	setClock        = "let the system set the clock."
	setClockCommand = "sudo timedatectl set-ntp true"
)

// compareClocks asks servers over HTTP for the time. It returns a text about one that differs, and about one that does not; "" if there is none.
func (x clockCheck) compareClocks(ctx context.Context) (differ, same string) {
	var mu sync.Mutex
	var asked sync.WaitGroup
	n := 0
	for i := range x.cfg.Servers {
		s := &x.cfg.Servers[i]
		if s.Transport != switchboard.TransportHTTP || n == maxClocks {
			continue
		}
		n++
		asked.Go(func() {
			now, ok := askTime(ctx, s)
			if !ok {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if late := time.Until(now).Abs(); late > maxSkew {
				differ = fmt.Sprintf("its clock and that of %s differ by %s", s.ID, roundTime(late))
			} else {
				same = fmt.Sprintf("its clock and that of %s agree", s.ID)
			}
		})
	}
	asked.Wait()
	return differ, same
}

// askTime returns the time by the clock of a server over HTTP. It sends a request without credentials. Any answer has a Date.
func askTime(ctx context.Context, s *switchboard.Server) (now time.Time, ok bool) {
	u, err := endpoint.ParseAddress(s.URL)
	if err != nil {
		return now, false
	}
	ctx, cancel := context.WithTimeout(ctx, clockTimeout)
	defer cancel()
	u.User, u.RawQuery = nil, ""
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, u.String(), http.NoBody)
	if err != nil {
		return now, false
	}
	way := route.New(u, s.Network, nil)
	t := &http.Transport{DialContext: way.DialContext, DialTLSContext: way.DialTLSContext, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}
	resp, err := t.RoundTrip(req) // it follows no redirect
	if err != nil {
		return now, false
	}
	_ = resp.Body.Close()
	now, err = http.ParseTime(resp.Header.Get("Date"))
	return now, err == nil
}
