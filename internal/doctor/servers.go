package doctor

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/route"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// A serverCheck starts the servers.
type serverCheck struct{ *examination }

// stopGrace is how long the servers that were started may take to end by themselves.
const stopGrace = time.Second

// checkServers starts each server as Switchboard does, lists its tools, and ends it. If a process serves the configuration, it is asked instead: a
// second copy of a server may disturb the first.
func (x serverCheck) checkServers(ctx context.Context, run servingProcesses, cannot unusable) {
	if x.cfg == nil {
		x.add(Diagnosis{Area: Servers, Subject: "all", State: Note, Cause: "not-started", What: "none was started, because the configuration does not load"})
		return
	}
	if status, from := x.statusFrom(ctx, run); from != nil {
		x.reportServing(ctx, status.Servers, from)
		x.reportNotices(status.Notices)
		return
	}
	tokens := &tokenSources{x: x, without: x.openTokens(ctx, false)}
	defer tokens.close()
	var started sync.WaitGroup
	slots := make(chan struct{}, x.Parallel)
	for i := range x.cfg.Servers {
		s := x.cfg.Servers[i]
		if why := cannot[s.ID]; why != "" {
			x.add(Diagnosis{Area: Servers, Subject: string(s.ID), State: Note, Cause: "not-started", What: "it was not started: " + why})
			continue
		}
		started.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() != nil {
				return
			}
			defer x.begin(string(s.ID))()
			state := tokens.startServer(ctx, s)
			if ctx.Err() == nil {
				x.reportServer(ctx, &s, &state)
			}
		})
	}
	started.Wait()
}

// statusFrom asks a process that serves the configuration for its status, until no server is starting any more.
func (x serverCheck) statusFrom(ctx context.Context, run servingProcesses) (status *ServingStatus, from *servingProcess) {
	if x.ReadStatus == nil {
		return nil, nil
	}
	for _, p := range run {
		if p.Configuration != x.Config || !p.answers() {
			continue
		}
		for began := time.Now(); ; {
			status, err := x.ReadStatus(ctx, p.Neighbor)
			if err != nil {
				break
			}
			starting := slices.ContainsFunc(status.Servers, func(st upstream.ServerStatus) bool { return st.State == upstream.StateStarting })
			if !starting || time.Since(began) > x.Wait {
				return status, p
			}
			select {
			case <-ctx.Done():
				return nil, nil
			case <-time.After(pollInterval):
			}
		}
	}
	return nil, nil
}

// pollInterval is the interval between two questions for the servers of a process.
const pollInterval = 200 * time.Millisecond

// reportServing adds the servers of a Switchboard that runs.
func (x serverCheck) reportServing(ctx context.Context, states []upstream.ServerStatus, from *servingProcess) {
	for i := range x.cfg.Servers {
		s := &x.cfg.Servers[i]
		j := slices.IndexFunc(states, func(st upstream.ServerStatus) bool { return st.ID == s.ID })
		if j < 0 {
			x.add(Diagnosis{
				Area: Servers, Subject: string(s.ID), State: Wrong, Cause: "not-served",
				What:   fmt.Sprintf("the Switchboard that runs (pid %d) does not serve it: it has not taken the configuration as it is now", from.PID),
				Remedy: "look why, and restart that Switchboard if it does not say", Command: x.ours("status"),
			})
			continue
		}
		x.reportServer(ctx, s, &states[j])
	}
}

// reportNotices adds the recipients that notices could not be delivered to.
func (x serverCheck) reportNotices(all []notice.Backlog) {
	for i := range all {
		b := &all[i]
		f := Diagnosis{Area: Running, Subject: "notices for " + b.Recipient, State: Wrong, Cause: "undelivered", What: b.String()}
		switch {
		case b.Undelivered():
			f.Remedy = fmt.Sprintf(`look at the program that receives them: it must answer with a status from 200 to 299 within 15 seconds. If its address or its secret is wrong, correct "notify" in %s: Switchboard then tries at once. After 24 hours a notice is given up`, x.Config)
		case b.Fault != "":
			f.State = Note // nothing waits any more
		default:
			continue // they are on their way
		}
		x.add(f)
	}
}

// A tokenSources has the tokens for the servers. The store is opened only for a server that demands a token: opening it writes to it.
type tokenSources struct {
	x       serverCheck
	without *TokenSource // for a server that nobody has connected
	kept    *TokenSource // with the connections in the store; nil if there are none
	open    sync.Once
}

// startServer is serverCheck.startServer with the token that the server demands, if somebody has connected it.
func (t *tokenSources) startServer(ctx context.Context, s switchboard.Server) upstream.ServerStatus {
	state := t.x.startServer(ctx, s, t.without)
	if !needsConnection(&state) {
		return state
	}
	t.open.Do(func() { t.kept = t.x.openTokens(ctx, true) })
	if t.kept == nil {
		return state
	}
	return t.x.startServer(ctx, s, t.kept)
}

func (t *tokenSources) close() {
	for _, source := range []*TokenSource{t.without, t.kept} {
		if source != nil {
			_ = source.Close() // what was renewed is durable already
		}
	}
}

// openTokens opens a source of tokens. Without one, a server that demands a token is refused.
func (x serverCheck) openTokens(ctx context.Context, kept bool) *TokenSource {
	if x.OpenTokens == nil {
		return nil
	}
	source, err := x.OpenTokens(ctx, x.cfg, kept)
	if err != nil {
		x.add(Diagnosis{Area: Servers, Subject: "all", State: Note, Cause: "connections-unread", What: "the connections of servers that demand a sign-in were not read: " + err.Error()})
		return nil
	}
	return source
}

// needsConnection reports whether a person has to connect the server first.
func needsConnection(st *upstream.ServerStatus) bool {
	return st.LastFailure != nil && st.LastFailure.NeedsConnection
}

// startServer starts one server, and returns how it is. It ends the server.
func (x serverCheck) startServer(ctx context.Context, s switchboard.Server, tokens *TokenSource) (state upstream.ServerStatus) {
	answered := make(chan struct{}, 1)
	o := upstream.Options{
		Name: "switchboard", Version: x.Version, OnePrincipal: true, Guard: []string{x.Program, "guard"},
		StartDeadline: time.Millisecond, // so that its status counts every start as slow, and has its last output
		OnLink: func(switchboard.ServerID, bool, *upstream.Failure) {
			select {
			case answered <- struct{}{}:
			default:
			}
		},
	}
	if tokens != nil {
		o.Credentials = tokens.Of
	}
	if s.Package.Name != "" {
		dir, err := os.MkdirTemp("", "switchboard-doctor-") // so that nothing of a Switchboard that runs is touched
		if err != nil {
			dir = ""
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.Prepare = npm.NewKeeper(dir, nil, slog.New(slog.DiscardHandler)).Prepare
	}
	fleet := upstream.New(o)
	fleet.Set([]switchboard.Server{s})
	timer := time.NewTimer(x.Wait)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	case <-ctx.Done():
	}
	if all := fleet.Status(); len(all) == 1 {
		state = all[0]
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopGrace)
	defer cancel()
	fleet.Close(ending)
	return state
}

// reportServer adds what was found about one server.
func (x serverCheck) reportServer(ctx context.Context, s *switchboard.Server, st *upstream.ServerStatus) {
	f := Diagnosis{Area: Servers, Subject: string(s.ID)}
	switch {
	case st.State == upstream.StateReady && st.LastFailure == nil:
		f.State, f.What = Well, readyText(st)
		if st.Tools == 0 {
			f.State, f.Cause, f.What = Note, "no-tools", f.What+": no task can use it"
			f.Remedy = "look into the documents of the server: it may need a setting before it offers tools"
		}
		x.add(f)
		if st.Note != "" {
			x.add(Diagnosis{Area: Servers, Subject: string(s.ID), State: Note, Cause: "left-out", What: st.Note})
		}
		return
	case needsConnection(st):
		f.State, f.Cause, f.What = Wrong, "needs-connection", st.LastFailure.Message
		f.Remedy, f.Command = "sign in at its provider once", x.ours("server", "connect", string(s.ID))
		x.add(f)
		return
	case st.LastFailure == nil:
		f.State, f.Cause, f.What = Wrong, "silent", fmt.Sprintf("it has not answered in %s", roundTime(x.Wait))
	default:
		f.State, f.Cause, f.What = Wrong, "does-not-start", st.LastFailure.Message
		f.Remedy, f.Output = st.LastFailure.Remedy, st.LastFailure.Stderr
		if st.State == upstream.StateStarting {
			f.Cause = "silent"
		}
	}
	x.explainServer(&f, s)
	if s.Transport == switchboard.TransportHTTP {
		f.Output = tryConnection(ctx, s)
	}
	x.add(f)
}

// tryConnection returns the steps of a connection to a server over HTTP.
func tryConnection(ctx context.Context, s *switchboard.Server) (lines []string) {
	u, err := endpoint.ParseAddress(s.URL)
	if err != nil {
		return nil
	}
	for _, step := range route.New(u, s.Network, nil).Try(ctx, u) {
		lines = append(lines, step.String())
	}
	return lines
}

// readyText describes a server that works.
func readyText(st *upstream.ServerStatus) string {
	text := "ready, " + count(st.Tools, "tool")
	if name := strings.TrimSpace(st.Name + " " + st.Release); name != "" {
		text += " (" + name + ")"
	}
	return text
}

// explainServer adds what the failure means, and a remedy.
func (x serverCheck) explainServer(f *Diagnosis, s *switchboard.Server) {
	m, known := ExplainOutput(f.Output)
	if s.Transport == switchboard.TransportHTTP {
		m, known = ExplainConnection(f.What)
	}
	if known {
		f.Cause = m.Cause
		f.What = m.Claim + ": " + f.What
		f.Remedy, f.Command = cmp.Or(f.Remedy, m.Remedy), m.Command
	}
	if f.Remedy != "" {
		return
	}
	switch {
	case s.Transport == switchboard.TransportHTTP:
		f.Remedy = "look whether a server of MCP is at its address, and correct its \"url\" or \"headers\""
		if u, err := url.Parse(s.URL); err == nil && u.User == nil && u.RawQuery == "" {
			f.Command = commandLine("curl", "-i", s.URL)
		}
	case f.Cause == "silent":
		f.Remedy = cmp.Or(process.SlowStartRemedy(s.Command), "run its command by hand, to see what it waits for, or give it more time: switchboard doctor --wait 5m")
	default:
		f.Remedy = "run its command by hand, in its folder and with its variables, to see more: its output above says what is missing"
	}
}

// roundTime returns a time as a reader wants it.
func roundTime(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
