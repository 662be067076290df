package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

type serveCmd struct {
	common
	results
	Listen string `help:"Listen on ADDR instead of the configured address; port 0 picks a free one." placeholder:"ADDR"`
}

// Run serves until it is told to stop.
func (s *serveCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	a, err := s.start(ctx, log, app.Options{Serves: true, Listen: s.Listen, Data: s.data(), Replica: true, Hurry: again(ctx), WholeResults: s.whole()})
	if err != nil {
		return err
	}
	defer a.Stop()
	defer announce(&s.common, a.Addr(), log)()
	watch(ctx, a)
	// The first line on stdout is the address, for people and scripts alike.
	if _, err := fmt.Fprintf(io.out, "http://%s/mcp\n", a.Addr()); err != nil {
		return err
	}
	return a.Serve(ctx)
}

type stdioCmd struct {
	common
	results
	Task switchboard.TaskID `help:"The task to bind. Without it, the tenant's default task." placeholder:"ID"`
}

// results says what clients get of a result that is too long for a model.
type results struct {
	Results string `help:"What clients get of a result that is longer than result_bytes: bounded, a preview and a handle; or whole." enum:"bounded,whole" default:"bounded" env:"SWITCHBOARD_RESULTS"`
}

func (r results) whole() bool { return r.Results == "whole" }

// Run serves the client that started this process, until it hangs up.
func (s *stdioCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	a, err := s.start(ctx, log, app.Options{Data: s.data(), Hurry: again(ctx), WholeResults: s.whole()})
	if err != nil {
		return err
	}
	defer a.Stop()
	watch(ctx, a)
	return a.ServeStdio(ctx, io.in, io.raw, s.Task)
}

// again hears the signals that come once one has ended ctx.
func again(ctx context.Context) <-chan os.Signal {
	more := make(chan os.Signal, 1)
	context.AfterFunc(ctx, func() { signal.Notify(more, os.Interrupt, syscall.SIGTERM) })
	return more
}

// watch reloads, from now on, when files change or on SIGHUP, which until then
// ends the process: whoever has read our address may send one, also while calls
// in flight finish.
func watch(ctx context.Context, a *app.App) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go a.Watch(ctx, hup)
}

// data is the folder for what Switchboard writes itself; "" where there is none.
func (c *common) data() string {
	if c.Data != "" || c.MCPConfig != "" {
		return c.Data
	}
	return filepath.Join(filepath.Dir(c.Config), ".switchboard")
}

// start starts the Switchboard that the flags describe, with the rest of o.
func (c *common) start(ctx context.Context, log *slog.Logger, o app.Options) (*app.App, error) {
	program, err := self()
	if err != nil {
		return nil, err
	}
	if err := harden(); err != nil {
		log.Warn("servers that run as this user may read our environment", "err", err)
	}
	o.Guard = []string{program, "guard"}
	o.Load = func(ctx context.Context, o config.Options) (*config.Config, error) { return c.load(ctx, log, o) }
	o.Tenant, o.Log, o.Name, o.Version = c.Tenant, log, name, version()
	return app.New(ctx, o)
}

// load reads the configuration that the flags name, with the rest of o. A part that is faulty is no
// error: see config.Config.Faulty.
func (c *common) load(ctx context.Context, log *slog.Logger, o config.Options) (*config.Config, error) {
	o.Env, o.Fetch = os.LookupEnv, fetch
	if c.MCPConfig != "" {
		cfg, mapping, err := config.LoadMCPServers(c.MCPConfig, o)
		for _, m := range mapping {
			what := []any{"name", m.Name, "id", m.ID}
			if len(m.Note) > 0 {
				what = append(what, "note", m.Note)
			}
			if m.Name != string(m.ID) || len(m.Note) > 0 {
				log.Info("server of "+c.MCPConfig, what...)
			}
		}
		return cfg, err
	}
	if _, err := os.Stat(c.Config); os.IsNotExist(err) {
		if o.Watch != nil {
			o.Watch(c.Config)
		}
		return nil, fmt.Errorf(`there is no %s here. Start in one of these ways:
  switchboard demo                             shows what Switchboard does, with sample servers
  switchboard serve --mcp-config FILE          serves the mcpServers JSON that your client already has
  switchboard import FILE                      turns that JSON into a switchboard.yaml to build on
  switchboard serve --config FILE              serves a configuration that stands elsewhere`, c.Config)
	}
	return config.Load(ctx, c.Config, o)
}

// loadWhole is load for who needs every part of the configuration.
func (c *common) loadWhole(ctx context.Context, log *slog.Logger) (*config.Config, error) {
	cfg, err := c.load(ctx, log, config.Options{})
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Err()
}

// check is loadWhole, and compiles the policies.
func (c *common) check(ctx context.Context, log *slog.Logger) (*config.Config, error) {
	return app.Check(ctx, func(ctx context.Context, o config.Options) (*config.Config, error) { return c.load(ctx, log, o) })
}

type guardCmd struct {
	Command []string `arg:"" optional:"" passthrough:"" help:"The program, and its arguments from its name on."`
}

// Run is the guard's process; see process.Guard.
//
//nolint:unparam // kong wants an error
func (g *guardCmd) Run(io streams) error {
	process.Guard(io.in, io.out, g.Command)
	return nil
}

// self is the path of this program, to be run again.
func self() (string, error) {
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", err
	}
	return filepath.Abs(program)
}
