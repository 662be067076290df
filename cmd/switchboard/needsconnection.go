package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// demandTime limits the question to all servers whether they demand a sign-in.
const demandTime = 3 * time.Second

// A signInDemand says whether a server demands a sign-in.
type signInDemand struct {
	server   switchboard.ServerID
	demanded bool
	err      error // why the server could not be asked
}

// findDemands asks the servers over HTTP, all at once, whether they demand a sign-in. It returns those that do so, and those that could not be asked. A server
// whose connection is kept is not asked.
func findDemands(ctx context.Context, cfg *config.Config, data string, servers []switchboard.Server) []signInDemand {
	ctx, cancel := context.WithTimeout(ctx, demandTime)
	defer cancel()
	quiet := slog.New(slog.DiscardHandler)
	none, err := app.OpenNoConnections(ctx, cfg, quiet)
	if err != nil {
		return nil
	}
	defer none.Close() //nolint:errcheck // it keeps nothing
	found := make([]signInDemand, len(servers))
	var asked sync.WaitGroup
	for i := range servers {
		asked.Go(func() {
			demanded, err := none.Broker.DemandsToken(ctx, &servers[i])
			found[i] = signInDemand{servers[i].ID, demanded, err}
		})
	}
	asked.Wait()
	connected := findConnected(ctx, cfg, data, servers)
	return slices.DeleteFunc(found, func(d signInDemand) bool {
		return !d.demanded && d.err == nil || slices.Contains(connected, d.server)
	})
}

// findConnected returns the servers that the operator has connected. It makes no file.
func findConnected(ctx context.Context, cfg *config.Config, data string, servers []switchboard.Server) (ids []switchboard.ServerID) {
	kept, err := app.OpenKeptConnections(ctx, data, cfg, slog.New(slog.DiscardHandler))
	if kept == nil || err != nil {
		return nil
	}
	defer kept.Close() //nolint:errcheck // nothing was written
	for i := range servers {
		if kept.Has(ctx, &servers[i]) {
			ids = append(ids, servers[i].ID)
		}
	}
	return ids
}

// connectLine says how a server that demands a sign-in is connected. given are the words that name the configuration.
func connectLine(id switchboard.ServerID, given string) string {
	return fmt.Sprintf("%s needs a sign-in: run switchboard server connect %s%s", id, id, given)
}

// givenFlags returns the flags of a command that names the same configuration and data folder, with a space before each.
func givenFlags(file, data string) (given string) {
	if was, err := filepath.Abs(defaultConfig()); err != nil || file != was {
		given += " --config " + shellWords([]string{file})
	}
	if data != "" {
		given += " --data " + shellWords([]string{data})
	}
	return given
}
