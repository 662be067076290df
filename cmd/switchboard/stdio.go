package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/bridge"
	"github.com/summit-switchboard/switchboard/internal/heap/early"
	"github.com/summit-switchboard/switchboard/internal/join"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type stdioCmd struct {
	commonFlags
	resultFlags
	lingerFlags
	Task  switchboard.TaskID `help:"The task to bind. Without it, the tenant's default task." placeholder:"ID"`
	Alone bool               `help:"Serve this client by itself, with servers of its own, instead of sharing them with the other clients of this folder." env:"SWITCHBOARD_ALONE"`
}

// lingerFlags say when the process that clients share ends.
type lingerFlags struct {
	Linger time.Duration `help:"How long the process that clients share stays after its last client has left." placeholder:"TIME" default:"30s" env:"SWITCHBOARD_LINGER"`
}

// Run serves the client that started this process, until the client disconnects.
func (s *stdioCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if s.Alone || s.dataDir() == "" {
		return s.serveAlone(ctx, io, log)
	}
	if s.MCPConfig == "" {
		if _, err := os.Stat(s.Config); err != nil { // before any folder is made beside it
			return s.serveAlone(ctx, io, log)
		}
	}
	c := joiner{cmd: s, hurry: hurry(ctx), log: log, run: app.NewRunID()}
	defer c.stop()
	return bridge.Run(ctx, bridge.Options{
		In: io.in, Out: io.raw, Connect: c.connect, Hurry: c.hurry, Log: log,
		MaxIn: app.MaxMessage, MaxOut: maxBridgedMessage, IsStopping: app.IsStopping,
		TooLong: app.TooLong(), Malformed: app.Malformed, IDInUse: app.IDInUse(),
		Refuse: func(id []byte, method string, modern bool, e *switchboard.Error) []byte {
			return app.RefusalOf(name, version(), id, method, modern, e)
		},
	})
}

// maxBridgedMessage limits the bytes of one message to a client.
const maxBridgedMessage = 256 << 20

// serveAlone serves the client in this process.
func (s *stdioCmd) serveAlone(ctx context.Context, io streams, log *slog.Logger) error {
	var vars variables
	a, err := s.startApp(ctx, log, app.Options{
		Data: s.dataDir(), Officers: app.OfficerOptions{Listen: s.dataDir() != ""}, Hurry: hurry(ctx), WholeResults: s.wantsWhole(), Configured: vars.set,
	})
	if err != nil {
		return err
	}
	defer a.Stop()
	watchConfig(ctx, a)
	defer s.shareApp(ctx, a, shareOptions{Log: log, Results: s.Results, Linger: forEver, Variables: &vars, CommandsOnly: true})()
	return a.ServeStdio(ctx, io.in, io.raw, s.Task)
}

// A joiner finds or starts the process that serves a client.
type joiner struct {
	cmd   *stdioCmd
	hurry <-chan struct{}
	log   *slog.Logger
	run   switchboard.RunID

	strangers []string // rows that the client has been told about
	alone     []func() // stop what this process serves itself
}

// How long a client waits for the process that others, or it itself, have started.
const startPatience = 45 * time.Second

// connect implements bridge.Options.Connect.
func (c *joiner) connect(ctx context.Context, n int) (bridge.Connection, error) {
	c.stop() // what was served here did not stay
	waiting, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	conn, err := c.joinOrStart(waiting, n)
	if err == nil || ctx.Err() != nil {
		return conn, errors.Join(err, ctx.Err())
	}
	c.log.Warn("this client has servers of its own, because it cannot share those of other clients", "why", err)
	return c.serveAlone(n)
}

// bridgeGCPercent is the target of the garbage collector in a bridge.
const bridgeGCPercent = 25

// joinOrStart joins the process that serves the folder. If none does, it starts one.
func (c *joiner) joinOrStart(ctx context.Context, n int) (bridge.Connection, error) {
	dir := c.cmd.dataDir()
	request := join.Joiner{Identity: c.cmd.identity(c.cmd.Results), Task: c.cmd.Task, Run: c.run, Connection: n}
	failed := map[string]bool{} // ids of rows whose process does not answer
	for range 3 {
		conn, err := c.joinAny(dir, request, failed)
		if conn != nil || err != nil {
			return conn, err
		}
		release, err := serving.LockStart(ctx, dir, func() bool { return c.mayJoin(dir, request.Identity, failed) })
		switch {
		case err != nil:
			return nil, err
		case release == nil: // another client has started one
			continue
		}
		if !c.mayJoin(dir, request.Identity, failed) {
			err = c.start(ctx)
		}
		release()
		if err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no process that serves this folder stays")
}

// joinAny joins one of the processes that serve the folder. It returns no connection if none lets clients join.
func (c *joiner) joinAny(dir string, r join.Joiner, failed map[string]bool) (bridge.Connection, error) {
	rows, err := serving.Rows(dir)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(rows, func(a, b serving.Neighbor) int { // "serve" first, since it stays
		return strings.Compare(b.URL, a.URL)
	})
	for _, row := range rows {
		if strings.HasPrefix(row.Identity, aloneIdentity) {
			continue
		}
		if row.Identity != r.Identity {
			c.reportStranger(row)
			continue
		}
		if failed[row.ID] {
			continue
		}
		conn, err := join.Dial(row.Address, row.Token, r, os.LookupEnv)
		if err == nil {
			// A bridge needs little memory, and there is one for each client: give back what the start of the program has left.
			early.End()
			debug.SetGCPercent(bridgeGCPercent)
			debug.FreeOSMemory()
			c.log.Debug("joined", "pid", row.PID, "address", row.Address)
			return conn, nil
		}
		failed[row.ID] = true
		if other, ok := errors.AsType[*join.DifferenceError](err); ok {
			c.reportOnce(row, other.Error())
			continue
		}
		c.log.Warn("cannot join the Switchboard that serves this folder", "pid", row.PID, "why", err)
	}
	return nil, nil
}

// mayJoin reports whether a process serves the folder that has not failed.
func (c *joiner) mayJoin(dir, identity string, failed map[string]bool) bool {
	rows, err := serving.Rows(dir)
	return err == nil && slices.ContainsFunc(rows, func(r serving.Neighbor) bool { return r.Identity == identity && !failed[r.ID] })
}

// reportStranger tells the client about a process of another identity.
func (c *joiner) reportStranger(row serving.Neighbor) {
	what := "its --results or program file is another one"
	switch {
	case row.Version != version():
		what = fmt.Sprintf("its version is %s, and this is %s", row.Version, version())
	case row.Configuration != c.cmd.configPath():
		what = fmt.Sprintf("its configuration is %s", row.Configuration)
	case row.Tenant != c.cmd.Tenant:
		what = fmt.Sprintf("its tenant is %s", row.Tenant)
	}
	c.reportOnce(row, what)
}

// reportOnce tells the client, once, about a process that it does not join.
func (c *joiner) reportOnce(row serving.Neighbor, what string) {
	if slices.Contains(c.strangers, row.ID) {
		return
	}
	c.strangers = append(c.strangers, row.ID)
	c.log.Warn("another Switchboard serves from this folder, and this client does not join it", "pid", row.PID, "why", what)
}

// start starts the process that clients share, and returns when they can join it. It runs in a session of its own, so that neither
// the end of this client nor a signal of its terminal reaches it.
func (c *joiner) start(ctx context.Context) error {
	program, err := ownProgram()
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(c.cmd.dataDir())
	if err != nil {
		return err
	}
	args := []string{program, "shared", "--data", dir, "--tenant", string(c.cmd.Tenant), "--results", c.cmd.Results, "--linger", c.cmd.Linger.String()}
	if c.cmd.MCPConfig != "" {
		args = append(args, "--mcp-config", c.cmd.configPath())
	} else {
		args = append(args, "--config", c.cmd.configPath())
	}
	log, err := openSharedLog(dir)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the process has its own copy
	cmd := &exec.Cmd{Path: runningProgram(program), Args: args, Dir: filepath.Dir(c.cmd.configPath()), Stderr: log, SysProcAttr: detached()}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(io.LimitReader(said, 16<<10)).ReadString('\n')
		line <- strings.TrimSpace(text)
		_ = cmd.Wait()
	}()
	select {
	case text := <-line:
		if text != sharedReady {
			return fmt.Errorf("the process that clients would share does not start; %s says why", log.Name())
		}
		c.log.Info("started the Switchboard that the clients of this folder share", "pid", cmd.Process.Pid, "log", log.Name())
		return nil
	case <-ctx.Done():
		_ = cmd.Process.Kill()
		return fmt.Errorf("the process that clients would share is not ready after %s", startPatience)
	}
}

// runningProgram returns the file to start for the same program: on Linux the file that runs now, even if an upgrade has replaced it
// at its path.
func runningProgram(path string) string {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe"
	}
	return path
}

// serveAlone serves the client in this process, over pipes.
func (c *joiner) serveAlone(n int) (bridge.Connection, error) {
	debug.SetGCPercent(early.Usual) // it was a bridge before, perhaps
	ctx, cancel := context.WithCancel(context.Background())
	a, err := c.cmd.startApp(ctx, c.log, app.Options{Data: c.cmd.dataDir(), Hurry: c.hurry, WholeResults: c.cmd.wantsWhole()})
	if err != nil {
		cancel()
		return nil, err
	}
	watchConfig(ctx, a)
	near, far := newPipes()
	served := make(chan struct{})
	go func() {
		defer close(served)
		err := a.ServeJoined(ctx, far, far, app.JoinedClient{Task: c.cmd.Task, Run: c.run, Connection: n})
		_ = far.out.CloseWithError(errors.Join(io.EOF, err))
	}()
	c.alone = append(c.alone, func() {
		cancel()
		<-served
		a.Stop()
	})
	return near, nil
}

// stop ends what this process serves itself.
func (c *joiner) stop() {
	for _, stop := range c.alone {
		stop()
	}
	c.alone = nil
}

// A pipes is one end of a connection in memory.
type pipes struct {
	*io.PipeReader
	out *io.PipeWriter
}

func newPipes() (near, far pipes) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return pipes{r1, w2}, pipes{r2, w1}
}

// Write implements io.Writer.
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

// Close closes both directions.
func (p pipes) Close() error { return errors.Join(p.PipeReader.Close(), p.out.Close()) }

// CloseWrite implements bridge.Connection.
func (p pipes) CloseWrite() error { return p.out.Close() }

// SetWriteDeadline does nothing: the reader is in this process, and always reads.
func (pipes) SetWriteDeadline(time.Time) error { return nil }
