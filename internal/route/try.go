package route

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
)

// A StepResult says how one step of a connection went.
type StepResult struct {
	Step Leg
	Text string // what was found; "" after an error
	Err  error  // nil if it went well
}

// String returns one line without a password.
func (s StepResult) String() string {
	if s.Err != nil {
		return string(s.Step) + ": FAILED: " + s.Err.Error()
	}
	return string(s.Step) + ": well: " + s.Text
}

// acceptTime is how long Try waits after the handshake for a server that refuses the client certificate only then.
const acceptTime = 300 * time.Millisecond

// Try opens a connection to the server at u as Dial does, and closes it. It returns the steps in their order; only the last one can
// have failed.
func (r *ServerRoute) Try(ctx context.Context, u *url.URL) (all []StepResult) {
	secure := u.Scheme == "https"
	port := "80"
	if secure {
		port = "443"
	}
	address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port))
	next := u.Hostname()
	if r.proxy != nil {
		next = r.proxy.Hostname()
	}
	if _, err := netip.ParseAddr(next); err != nil && r.err == nil {
		ctx, cancel := context.WithTimeout(ctx, dial.Timeout)
		found, err := net.DefaultResolver.LookupHost(ctx, next)
		cancel()
		if err != nil {
			return append(all, StepResult{Step: StepResolve, Err: err})
		}
		slices.Sort(found)
		all = append(all, StepResult{Step: StepResolve, Text: next + " is at " + strings.Join(found[:min(len(found), 8)], ", ")})
	}
	c, err := r.dial(ctx, address, secure, func(s Leg, text string) { all = append(all, StepResult{Step: s, Text: text}) })
	if err == nil {
		defer c.Close() //nolint:errcheck // nothing was sent
		if !secure {
			return all
		}
		// A server says nothing before the first request, except that it refuses us.
		_ = c.SetReadDeadline(time.Now().Add(acceptTime))
		_, err = c.Read(make([]byte, 1))
		if text, _ := explainAlert(err); text == "" {
			return all
		}
		all = all[:len(all)-1]
	}
	return append(all, StepResult{Step: failedStep(err), Err: err})
}

// failedStep returns the step that err belongs to.
func failedStep(err error) Leg {
	if e, ok := errors.AsType[*StepError](err); ok {
		return e.Step
	}
	if text, _ := explainAlert(err); text != "" {
		return StepTLS
	}
	return StepConnect
}
