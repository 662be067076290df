package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/heap"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

type serveCmd struct {
	commonFlags
	resultFlags
	Listen string `help:"Listen on ADDR instead of the configured address; port 0 picks a free one." placeholder:"ADDR"`
}

// Run serves until it is stopped.
func (s *serveCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	var vars variables
	a, err := s.startApp(ctx, log, app.Options{
		Serves: true, Officers: app.OfficerOptions{Listen: true}, Listen: s.Listen, Data: s.dataDir(), Replica: true, Hurry: hurry(ctx), WholeResults: s.wantsWhole(), Configured: vars.set,
	})
	if err != nil {
		return err
	}
	defer a.Stop()
	defer heap.Watch()()
	watchConfig(ctx, a)
	agents, _ := a.Addresses()
	secure, _ := app.ServesTLS(a)
	defer s.shareApp(ctx, a, shareOptions{Log: log, Results: s.Results, URL: localURL(agents.String(), secure), Linger: forEver, Variables: &vars})()
	// The first line on stdout is the address, for people and for scripts.
	if _, err := fmt.Fprintf(io.out, "%s/mcp\n", schemeOf(secure)+agents.String()); err != nil {
		return err
	}
	return a.Serve(ctx)
}

// resultFlags say what clients receive if a result is too long for a model.
type resultFlags struct {
	Results string `help:"What clients receive for a result longer than result_bytes: bounded (a preview and a handle), or whole." enum:"bounded,whole" default:"bounded" env:"SWITCHBOARD_RESULTS"`
}

func (r resultFlags) wantsWhole() bool { return r.Results == "whole" }

// watchConfig starts to reload on changed files and on SIGHUP. It must be called before the address is
// printed: until then SIGHUP ends the process, and a reader of the address may send one. It also
// reloads while the last calls in flight finish.
func watchConfig(ctx context.Context, a *app.App) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	go a.Watch(ctx, hup)
}

// dataDir returns the folder for Switchboard's own data, or "" for none.
func (c *commonFlags) dataDir() string {
	if c.Data != "" || c.MCPConfig != "" {
		return c.Data
	}
	return filepath.Join(filepath.Dir(c.Config), ".switchboard")
}

// rowFolder returns the folder with the row by which commands find this process: the data folder, else the one beside the user's own
// configuration. "" means that there is none, and commands need a person's key.
func (c *commonFlags) rowFolder() string {
	if dir := c.dataDir(); dir != "" {
		return dir
	}
	if home := homeConfig(); home != "" {
		return filepath.Join(filepath.Dir(home), ".switchboard")
	}
	return ""
}

// startApp starts the Switchboard that the flags describe; o holds the other options.
func (c *commonFlags) startApp(ctx context.Context, log *slog.Logger, o app.Options) (*app.App, error) {
	program, err := ownProgram()
	if err != nil {
		return nil, err
	}
	if err := hideFromOtherProcesses(); err != nil {
		log.Warn("servers, which run as this user, may read the environment of Switchboard", "err", err)
	}
	o.Guard = []string{program, "guard"}
	o.Officers.Row = c.rowFolder()
	if c.MCPConfig == "" {
		o.Officers.File = c.Config
	}
	if o.Load == nil {
		o.Load = func(ctx context.Context, o config.Options) (*config.Config, error) { return c.loadConfig(ctx, log, o) }
	}
	o.Tenant, o.Log, o.Name, o.Version = c.Tenant, log, name, version()
	keepLog(log, &o)
	a, err := app.New(ctx, o)
	keepError(log, err)
	return a, err
}

// loadConfig reads the configuration that the flags name. A faulty part is no error: see
// config.Config.Faulty.
func (c *commonFlags) loadConfig(ctx context.Context, log *slog.Logger, o config.Options) (*config.Config, error) {
	o.Env, o.Fetch, o.Data = os.LookupEnv, fetchManifest, c.dataDir()
	if c.MCPConfig != "" {
		cfg, mapping, err := importer.Load(c.MCPConfig, o)
		for _, m := range mapping {
			what := []any{"name", m.Name, "id", m.ID}
			if len(m.Notes) > 0 {
				what = append(what, "note", m.Notes)
			}
			if m.Name != string(m.ID) || len(m.Notes) > 0 {
				log.Info("server of "+c.MCPConfig, what...)
			}
		}
		return cfg, err
	}
	if _, err := os.Stat(c.Config); os.IsNotExist(err) {
		if o.Watch != nil {
			o.Watch(c.Config)
		}
		return nil, fmt.Errorf(`there is no %s. Start in one of these ways:
  switchboard connect                          lists the clients that are here, and what each would get
  switchboard demo                             shows what Switchboard does, with sample servers
  switchboard serve --mcp-config FILE          serves the mcpServers JSON that your client already has
  switchboard import FILE                      turns that JSON into a switchboard.yaml to build on
  switchboard serve --config FILE              serves a configuration that stands elsewhere`, absentText(c.Config))
	}
	return config.Load(ctx, c.Config, o)
}

// loadWithoutFaults is loadConfig, but a faulty part is an error.
func (c *commonFlags) loadWithoutFaults(ctx context.Context, log *slog.Logger) (*config.Config, error) {
	cfg, err := c.loadConfig(ctx, log, config.Options{})
	if err != nil {
		return nil, err
	}
	return cfg, cfg.Err()
}

// loadWithBoundaries is loadWithoutFaults, with a proposed file in the place of capabilities/boundaries.yaml. "" means that nothing is
// proposed.
func (c *commonFlags) loadWithBoundaries(ctx context.Context, log *slog.Logger, proposed string) (*config.Config, error) {
	if proposed == "" {
		return c.loadWithoutFaults(ctx, log)
	}
	text, err := os.ReadFile(proposed)
	if err != nil {
		return nil, err
	}
	there := filepath.Join(filepath.Dir(c.Config), filepath.FromSlash(config.BoundariesPath))
	rename := func(all config.Faults) config.Faults {
		for i := range all {
			if filepath.Clean(all[i].File) == there {
				all[i].File = proposed
			}
		}
		return all
	}
	cfg, err := c.loadConfig(ctx, log, config.Options{Replace: map[string][]byte{config.BoundariesPath: text}})
	if err == nil {
		err = cfg.Err()
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return nil, rename(faults)
	}
	if err != nil {
		return nil, err
	}
	rename(cfg.Warnings)
	cfg.Registry, err = cfg.Registry.WithBoundaries(cfg.Registry.BoundariesIn(proposed))
	return cfg, err
}

// checkConfig is loadWithoutFaults, and also compiles the policies.
func (c *commonFlags) checkConfig(ctx context.Context, log *slog.Logger) (*config.Config, error) {
	return app.Check(ctx, func(ctx context.Context, o config.Options) (*config.Config, error) { return c.loadConfig(ctx, log, o) })
}

type guardCmd struct {
	Command []string `arg:"" optional:"" passthrough:"" help:"The program, and its arguments from its name on."`
}

// Run is the process that guards a server's program; see process.Guard.
//
//nolint:unparam // kong wants an error
func (g *guardCmd) Run(io streams) error {
	process.Guard(io.in, io.out, g.Command)
	return nil
}

// ownProgram returns the path of this program.
func ownProgram() (string, error) {
	program, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", err
	}
	return filepath.Abs(program)
}
