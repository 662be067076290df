package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/join"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/serving"
)

// sharedCmd is the process that the clients of a folder share. "stdio" starts it.
type sharedCmd struct {
	commonFlags
	resultFlags
	lingerFlags
}

// sharedReady is the line on stdout that says that clients can join.
const sharedReady = "ready"

// Run serves clients that join, until the last one has left.
func (s *sharedCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var vars variables
	a, err := s.startApp(ctx, log, app.Options{Data: s.dataDir(), Officers: app.OfficerOptions{Listen: true}, Hurry: hurry(ctx), WholeResults: s.wantsWhole(), Configured: vars.set})
	if err != nil {
		return err
	}
	defer a.Stop()
	watchConfig(ctx, a)
	j, claim, err := s.letJoin(ctx, a, shareOptions{Log: log, Results: s.Results, Linger: s.Linger, Variables: &vars})
	if err != nil {
		return err
	}
	var removed sync.WaitGroup
	defer removed.Wait()
	defer end()
	removed.Go(func() {
		select {
		case <-j.Idle():
			log.Info("no client is left", "linger", s.Linger)
		case <-ctx.Done():
		}
		removeRow(claim, log) // the next client starts another process
	})
	if _, err := fmt.Fprintln(io.out, sharedReady); err != nil {
		return err
	}
	closeStdout()
	j.Serve(ctx)
	return nil
}

// closeStdout gives stdout back to the process that started this one.
func closeStdout() { _ = os.Stdout.Close() }

// shareOptions say how a process lets clients join.
type shareOptions struct {
	Log     *slog.Logger
	Results string
	URL     string        // where it serves HTTP; "" if it does not
	Linger  time.Duration // after the last client; forEver for a process that people end

	// CommandsOnly keeps clients out, and lets commands in.
	CommandsOnly bool

	Variables *variables
}

// aloneIdentity begins the identity of processes that no client joins.
const aloneIdentity = "alone "

// variables are the environment variables that the configuration in force refers to. Clients that join must have the same values.
type variables struct {
	mu       sync.Mutex
	names    []string
	listener *join.Listener
}

// set implements app.Options.Configured.
func (v *variables) set(c *config.Config) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.names = c.Variables
	if v.listener != nil {
		v.listener.SetVariables(v.names)
	}
}

// tell tells the listener the names, now and after each reload.
func (v *variables) tell(l *join.Listener) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listener = l
	l.SetVariables(v.names)
}

// forEver is a Linger that never ends.
const forEver = -1

// letJoin opens a private listener for clients, and writes the row by which they find it.
func (c *commonFlags) letJoin(ctx context.Context, a *app.App, o shareOptions) (*join.Listener, *serving.Claim, error) {
	token := serving.NewToken()
	own := c.identity(o.Results)
	if o.CommandsOnly {
		own = aloneIdentity + own
	}
	j, err := join.Listen(join.Options{
		Token: token, Identity: own, Env: os.LookupEnv, Linger: o.Linger, Log: o.Log,
		RefusePeer: func(conn net.Conn) error { return identity.PeerOf(conn)() },
		Operate:    func(ctx context.Context, conn *join.Joined) { a.ServeOperator(ctx, conn) },
		Handle: func(ctx context.Context, r join.Joiner, conn *join.Joined) {
			if err := a.ServeJoined(ctx, conn, conn, app.JoinedClient{Task: r.Task, Run: r.Run, Connection: r.Connection, Leave: conn.Leave()}); err != nil {
				o.Log.Debug("a client's connection has ended", "err", err)
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	o.Variables.tell(j)
	row := serving.Neighbor{
		Address: j.Addr(), Token: token, Version: version(), Configuration: c.configPath(), Tenant: c.Tenant, Identity: own, URL: o.URL,
	}
	if _, at := a.Addresses(); at != nil {
		_, secure := app.ServesTLS(a)
		row.Admin = localURL(at.String(), secure)
	}
	claim, err := serving.Add(ctx, c.rowFolder(), row)
	if err != nil {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		j.Serve(ended) // closes it
		return nil, nil, fmt.Errorf("let clients share this process: %w", err)
	}
	return j, claim, nil
}

// shareApp lets clients on stdio join a process that serves anyway, until ctx is done. stop waits until they have been served. If
// clients cannot join, the log says why.
func (c *commonFlags) shareApp(ctx context.Context, a *app.App, o shareOptions) (stop func()) {
	if c.rowFolder() == "" || o.CommandsOnly && c.dataDir() == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	j, claim, err := c.letJoin(ctx, a, o)
	if err != nil {
		cancel()
		if c.dataDir() == "" { // the folder of the user's own configuration cannot be written, which matters to commands alone
			o.Log.Debug("commands do not find this Switchboard without a person's key", "err", err)
			return func() {}
		}
		o.Log.Warn("clients and commands in this folder do not find this Switchboard; give commands --url and a person's key", "err", err)
		return func() {}
	}
	var served sync.WaitGroup
	served.Go(func() { j.Serve(ctx) })
	served.Go(func() {
		<-ctx.Done()
		removeRow(claim, o.Log)
	})
	return func() {
		cancel()
		served.Wait()
	}
}

// removeRow removes the row of this process, so that no client finds it any more.
func removeRow(c *serving.Claim, log *slog.Logger) {
	if err := c.Remove(); err != nil {
		log.Warn("the row of this process was not removed", "err", err)
	}
}

// identity returns what a client and the process that it joins must have in common.
func (c *commonFlags) identity(results string) string {
	return serving.Identity(buildVersion(), c.configPath(), string(c.Tenant), results)
}

// buildVersion returns the version. A build that is not of one commit is told apart by its file.
func buildVersion() string {
	b := readBuild()
	if b.Version != "devel" && b.Commit != "" && !b.Modified {
		return b.Version
	}
	program, err := os.Executable()
	if err == nil {
		info, err := os.Stat(runningProgram(program))
		if err == nil {
			return fmt.Sprintf("%s %d %d", b.Version, info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.Version
}

// maxSharedLog is how large the log of shared processes may be when a process starts; then it is put aside.
const maxSharedLog = 4 << 20

// openSharedLog opens the file that gets the stderr of shared processes: their last error, and what Go prints when one crashes. Their
// log is elsewhere; see keepLog.
func openSharedLog(dir string) (*os.File, error) {
	folder := filepath.Join(dir, "logs")
	if err := ownfile.MakeFolders(folder); err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "shared.log")
	info, err := os.Stat(file)
	if err == nil && info.Size() > maxSharedLog {
		err = os.Rename(file, file+".1")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return ownfile.Open(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY)
}
