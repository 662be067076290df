package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A running is the Switchboard that serves a configuration while a command changes it.
type running struct {
	target *taskTarget // nil if none serves
	before admin.StatusReport
	fault  error // before could not be read
}

// findRunning finds the Switchboard that serves the configuration, before the change.
func (w *locationFlags) findRunning(ctx context.Context) *running {
	if w.URL == "" {
		if _, ok := (&commonFlags{Config: w.Config, Data: w.Data}).findServing(""); !ok {
			return &running{}
		}
	}
	r := &running{target: w.asTarget()}
	r.fault = r.target.fetchInto(ctx, "/v1/status", &r.before)
	return r
}

// tellAdded says whether the running Switchboard serves the new server. It returns errNegative if the change was refused,
// and if the server does not start. If no Switchboard runs, tellAdded says how to start one.
func (r *running) tellAdded(ctx context.Context, io streams, file string, id switchboard.ServerID, wait time.Duration) error {
	started := func(st *admin.StatusReport) bool {
		i := indexOfServer(st, id)
		return i >= 0 && st.Servers[i].State != "starting"
	}
	st, err := r.await(ctx, io, file, wait, started)
	if st == nil || err != nil {
		return err
	}
	i := indexOfServer(st, id)
	switch {
	case i < 0:
		fmt.Fprintf(io.out, "the running Switchboard has taken the change; it does not serve %s\n", id)
		return errNegative
	case st.Servers[i].State == "ready":
		s := st.Servers[i]
		fmt.Fprintf(io.out, "the running Switchboard serves it: %s\n", count(s.Served, "tool"))
		return nil
	case st.Servers[i].State == "starting":
		fmt.Fprintf(io.out, "the running Switchboard has taken the change; %s is still starting: see switchboard status\n", id)
		return nil
	}
	fmt.Fprintf(io.out, "the running Switchboard has taken the change, but %s does not start: %s\n", id, serverRemarks(&st.Servers[i]))
	writeTrouble(io.out, &st.Servers[i])
	fmt.Fprintf(io.out, "\nTo take it out again: switchboard server remove %s\n", id)
	return errNegative
}

// tellRemoved says whether the running Switchboard has ended the servers.
func (r *running) tellRemoved(ctx context.Context, io streams, file string, ids []switchboard.ServerID, wait time.Duration) error {
	gone := func(st *admin.StatusReport) bool {
		return !slices.ContainsFunc(ids, func(id switchboard.ServerID) bool { return indexOfServer(st, id) >= 0 })
	}
	st, err := r.await(ctx, io, file, wait, gone)
	if st == nil || err != nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "the running Switchboard has ended %s\n", joinIDs(ids))
	return err
}

// await waits until the running Switchboard has loaded the change and done holds, for at most the time wait. It returns the
// last status. If no Switchboard runs, or if it has not taken the change, await says so, and the status is nil.
func (r *running) await(ctx context.Context, io streams, file string, wait time.Duration, done func(*admin.StatusReport) bool) (*admin.StatusReport, error) {
	if r.target == nil {
		fmt.Fprintf(io.out, "no Switchboard serves this configuration now. To start one: switchboard serve --config %s\n", shellWord(file))
		return nil, nil
	}
	if r.fault != nil {
		fmt.Fprintf(io.out, "the Switchboard at %s serves this configuration and takes the change by itself, but its status cannot be read: %v\n", r.target.URL, r.fault)
		return nil, nil
	}
	for began := time.Now(); ; {
		var st admin.StatusReport
		if err := r.target.fetchInto(ctx, "/v1/status", &st); err != nil {
			return nil, err
		}
		loaded := !st.Loaded.Equal(r.before.Loaded)
		switch late := time.Since(began) >= wait; {
		case loaded && (done(&st) || late):
			return &st, nil
		case st.Refused != nil && (r.before.Refused == nil || !st.Refused.When.Equal(r.before.Refused.When)):
			fmt.Fprintf(io.out, "the running Switchboard refuses the change and serves as before:\n%s\n", strings.TrimSpace(st.Refused.Why))
			return nil, errNegative
		case late:
			fmt.Fprintln(io.out, "the running Switchboard has not taken the change yet: see switchboard status")
			return nil, errNegative
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// indexOfServer returns the index of a server in a status, or -1.
func indexOfServer(st *admin.StatusReport, id switchboard.ServerID) int {
	return slices.IndexFunc(st.Servers, func(s admin.ServerStatus) bool { return s.ID == id })
}

// shellWord quotes a word for a shell, if that is necessary.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,~") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
