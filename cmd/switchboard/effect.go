package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/recall"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// An effect compares what a client read before its first question and what it reads now: the definitions of tools, and
// instructions.
type effect struct {
	Servers      int `json:"servers"`      // that were adopted and answered
	Tools        int `json:"tools_before"` // of these servers
	Before       int `json:"tokens_before"`
	Instructions int `json:"instructions_before"` // the part of Before that is instructions

	// Listed and Now are the tools that the client is shown at first, and their tokens, with those of the instructions.
	Listed          int    `json:"listed_now"`
	Now             int    `json:"tokens_now"`
	InstructionsNow int    `json:"instructions_now"`
	Callable        int    `json:"callable_now"` // how many of Tools the client can still call
	Budget          int    `json:"token_budget"`
	Tokenizer       string `json:"tokenizer"`
	Why             string `json:"not_measured,omitempty"` // why there is no list now

	// Silent are the servers that did not answer, with the reason.
	Silent map[switchboard.ServerID]string `json:"silent,omitempty"`

	// NeedsConnection are the servers that wait for a sign-in.
	NeedsConnection []switchboard.ServerID `json:"needs_connection,omitempty"`

	refused map[switchboard.ServerID]string // servers that would not work behind Switchboard, with the reason
	list    shownList
}

// A shownList says why the list that a client is shown has its size.
type shownList struct {
	lazy         bool                   // tools are on demand
	own          []string               // Switchboard's own tools that are listed
	others       []switchboard.ServerID // servers that were not adopted, and have tools in the list
	othersTokens int                    // the tokens of these tools
	implied      bool                   // the configuration has no tenant, and no task
}

// measure starts the servers once, with the configuration as it would be, and counts. It also returns what they offer.
func (c *connectCmd) measure(ctx context.Context, io streams, log *slog.Logger, plan *connect.Plan) (*effect, recall.SeenOffers, error) {
	candidates := plan.Candidates()
	common := c.common()
	quiet := slog.New(slog.DiscardHandler) // what a server does wrong is in the report
	if log.Enabled(ctx, slog.LevelDebug) {
		quiet = log
	}
	e := &effect{Silent: map[switchboard.ServerID]string{}, refused: map[switchboard.ServerID]string{}}
	var implied atomic.Bool
	a, err := common.startApp(ctx, quiet, app.Options{Load: func(ctx context.Context, o config.Options) (*config.Config, error) {
		o.Env, o.Fetch = os.LookupEnv, fetchManifest
		cfg, err := c.withServers(ctx, o, candidates)
		implied.Store(err == nil && cfg.Implied)
		return cfg, err
	}})
	if err != nil {
		return nil, nil, err
	}
	defer a.Stop()
	costs, err := pollUntilStarted(ctx, io, c.Wait, func() (map[switchboard.ServerID]admin.OfferCost, []switchboard.ServerID, error) {
		costs, starting := a.Reads().MeasureOffers()
		return costs, starting, nil
	})
	if err != nil {
		return nil, nil, err
	}
	seen := app.SeenOffers(a)
	adopts := func(id switchboard.ServerID) bool {
		return slices.ContainsFunc(candidates, func(o switchboard.Server) bool { return o.ID == id })
	}
	for _, s := range a.Reads().Status("").Servers {
		if !adopts(s.ID) || s.State == upstream.StateReady {
			continue
		}
		if s.State == upstream.StateNeedsConnection {
			e.NeedsConnection = append(e.NeedsConnection, s.ID)
			continue
		}
		why := fmt.Sprintf("it has not answered after %s", c.Wait)
		if f := s.LastFailure; f != nil {
			why = f.Message
			if f.Remedy != "" {
				why += "; " + f.Remedy
			}
		}
		if strings.Contains(why, "HTTP status 401") || strings.Contains(why, "HTTP status 403") {
			e.refused[s.ID] = "Switchboard cannot sign in at it: " + why
			continue
		}
		e.Silent[s.ID] = why
	}
	for _, s := range plan.Servers {
		if s.Stays == "" { // two entries of the same server count twice: the client has read both
			cost := costs[s.ID]
			e.Tools += cost.Tools
			e.Before += cost.Tokens()
			e.Instructions += cost.Instructions
		}
	}
	e.Servers = len(candidates) - len(e.refused) - len(e.Silent) - len(e.NeedsConnection)
	if err := c.leaveOutConnected(ctx, e, candidates); err != nil {
		return nil, nil, err
	}
	now, err := a.Reads().Explain(ctx, identity.Local(c.Tenant), admin.ExplainQuery{Task: c.Task, Tokens: true})
	switch {
	case err != nil:
		e.Why = err.Error()
	case now.Why != "":
		e.Why = now.Why
	default:
		e.readNow(now, plan.Servers)
		e.list.implied = implied.Load()
	}
	return e, seen, nil
}

// leaveOutConnected takes the servers out of those that need a connection that have one already: the servers were started without the store.
func (c *connectCmd) leaveOutConnected(ctx context.Context, e *effect, candidates []switchboard.Server) error {
	if len(e.NeedsConnection) == 0 {
		return nil
	}
	cfg, err := c.withServers(ctx, config.Options{Env: os.LookupEnv, Fetch: fetchManifest}, candidates)
	if err != nil {
		return err
	}
	connected := findConnected(ctx, cfg, c.common().dataDir(), candidates)
	e.NeedsConnection = slices.DeleteFunc(e.NeedsConnection, func(id switchboard.ServerID) bool { return slices.Contains(connected, id) })
	return nil
}

// readNow reads the list that the client gets now. The client has the servers.
func (e *effect) readNow(now *admin.Explanation, servers []*connect.Server) {
	entries := map[switchboard.ServerID]int{} // of the servers that were adopted
	for _, s := range servers {
		if s.Stays == "" {
			entries[s.ID]++
		}
	}
	e.Now, e.InstructionsNow, e.Budget, e.Tokenizer = now.Bill.Listed, now.Instructions, now.Bill.Budget, now.Bill.Tokenizer
	for _, t := range now.Tools {
		e.Callable += entries[t.Server]
		if t.Role == "on demand" {
			e.list.lazy = true
			continue
		}
		e.Listed++
		switch {
		case t.Server == "":
			e.list.own = append(e.list.own, t.Name)
		case entries[t.Server] == 0:
			e.list.othersTokens += t.Tokens
			if !slices.Contains(e.list.others, t.Server) {
				e.list.others = append(e.list.others, t.Server)
			}
		}
	}
}

// withServers returns the configuration, or an empty one if there is no file, with more servers.
func (c *connectCmd) withServers(ctx context.Context, o config.Options, more []switchboard.Server) (*config.Config, error) {
	cfg, err := config.Load(ctx, c.Config, o)
	if _, missing := os.Stat(c.Config); errors.Is(missing, fs.ErrNotExist) {
		cfg, err = config.SingleUser(nil), nil
	}
	if err != nil {
		return nil, err
	}
	tenant := cfg.Tenants[c.Tenant]
	if tenant == nil {
		return nil, fmt.Errorf("%s has no tenant %q", c.Config, c.Tenant)
	}
	for _, s := range more {
		if slices.ContainsFunc(cfg.Servers, func(k switchboard.Server) bool { return k.ID == s.ID }) {
			continue
		}
		cfg.Servers = append(cfg.Servers, s)
		if cfg.Implied {
			tenant.Servers = append(tenant.Servers, s.ID)
		}
	}
	slices.Sort(tenant.Servers)
	slices.SortFunc(cfg.Servers, func(a, b switchboard.Server) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return cfg, nil
}

// A connectReport is what connect has done.
type connectReport struct {
	Client    string            `json:"client"`
	Config    string            `json:"config"`
	File      string            `json:"file"`
	Entry     string            `json:"entry"`
	Changed   bool              `json:"changed"`
	DryRun    bool              `json:"dry_run,omitempty"`
	Servers   []*connect.Server `json:"servers"`
	Elsewhere []*connect.Server `json:"in_other_scopes,omitempty"`
	Problems  []string          `json:"problems,omitempty"`
	Effect    *effect           `json:"effect,omitempty"`

	client *connect.Client
	plan   *connect.Plan
	home   string
	seen   recall.SeenOffers // what the servers have offered to measure
}

// keepOffers keeps what the servers have offered for the next start, which loads the configuration as it stands now. It returns a note for the person if
// that fails.
func (r *connectReport) keepOffers(ctx context.Context, o *connect.Options) (note string) {
	if _, err := os.Stat(o.Config); errors.Is(err, fs.ErrNotExist) || len(r.seen) == 0 {
		return "" // no server has moved, or none has answered
	}
	c, err := config.Load(ctx, o.Config, config.Options{Env: os.LookupEnv}) // without manifests, which say nothing about the digest of a server
	if err == nil {
		err = app.KeepOffers(ctx, o.Data, c, r.seen, slog.New(slog.DiscardHandler))
	}
	if err == nil {
		return ""
	}
	return "what the servers offer was not kept, so the first session shows each server's tools when the server has answered: " + printable(err.Error(), 300)
}

// print prints the report.
func (r *connectReport) print(c *connectCmd, io streams) error {
	p := r.plan
	r.File, r.Entry, r.Changed, r.DryRun = p.Place.File, p.Entry, p.Changed(), c.DryRun
	r.Servers, r.Elsewhere, r.Problems = p.Servers, p.Elsewhere, p.Problems
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(r)
	}
	file := homePath(r.File, r.home)
	switch {
	case !r.Changed:
		fmt.Fprintf(io.out, "%s is connected: %s starts %s. Nothing was changed.\n", r.client.Name, file, homePath(r.Config, r.home))
	case c.DryRun:
		fmt.Fprintf(io.out, "\n%s, %s (nothing was written):\n", r.client.Name, file)
	default:
		fmt.Fprintf(io.out, "%s, %s:\n", r.client.Name, file)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	for _, s := range r.Servers {
		if s.Stays == "" {
			fmt.Fprintf(w, "  adopted\t%s\t%s\n", s.Name, r.remark(s))
		}
	}
	for _, s := range r.Servers {
		if s.Stays != "" && s.Stays != "--keep" {
			fmt.Fprintf(w, "  stays\t%s\t%s\n", s.Name, s.Stays)
		}
	}
	if r.Changed {
		fmt.Fprintf(w, "  wrote\t%s\t%s\n", r.Entry, targetText(c, r))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range r.Servers {
		for _, n := range s.Notes {
			fmt.Fprintf(io.out, "  note: %s: %s\n", s.Name, n)
		}
	}
	for _, p := range r.Problems {
		fmt.Fprintf(io.out, "  note: %s\n", p)
	}
	if n := len(r.Elsewhere); n > 0 {
		fmt.Fprintf(io.out, "  note: %s stand in files that were not chosen (--scope): %s\n", count(n, "server"), joinServers(r.Elsewhere))
	}
	if r.Effect != nil {
		r.Effect.print(io, r.Servers)
	}
	if r.Changed && !c.DryRun {
		fmt.Fprintf(io.out, "\nNow %s. To undo all of this: switchboard disconnect %s\n", r.client.Then, r.Client)
		if c.HTTP {
			fmt.Fprintf(io.out, "The address works while Switchboard is running: switchboard serve --config %s\n", r.Config)
		}
	}
	if r.Effect != nil {
		for _, id := range r.Effect.NeedsConnection {
			fmt.Fprintln(io.out, connectLine(id, givenFlags(r.Config, c.Data)))
		}
	}
	return nil
}

func targetText(c *connectCmd, r *connectReport) string {
	if c.HTTP {
		return "the address of Switchboard"
	}
	return "starts Switchboard with " + homePath(r.Config, r.home)
}

// remark says what is special about an adopted server.
func (r *connectReport) remark(s *connect.Server) string {
	var parts []string
	if string(s.ID) != s.Name {
		parts = append(parts, "as "+string(s.ID))
	}
	if s.Shared {
		parts = append(parts, "shared: the same server is there already")
	}
	if s.Place.Scope == connect.ScopeLocal {
		parts = append(parts, "was in this folder only")
	}
	if n := len(s.Secrets); n > 0 {
		parts = append(parts, count(n, "secret")+" now in "+strings.Join(s.Secrets, ", "))
	}
	if r.Effect != nil {
		if why := r.Effect.Silent[s.ID]; why != "" {
			parts = append(parts, "does not start: "+why)
		}
		if slices.Contains(r.Effect.NeedsConnection, s.ID) {
			parts = append(parts, "needs a sign-in")
		}
	}
	return strings.Join(parts, "; ")
}

func joinServers(servers []*connect.Server) string {
	var names []string
	for _, s := range servers {
		names = append(names, s.Name+" ("+string(s.Place.Scope)+")")
	}
	return strings.Join(names, ", ")
}

// print prints the effect.
func (e *effect) print(io streams, servers []*connect.Server) {
	if e.Why != "" && e.Servers == 0 && len(e.NeedsConnection) > 0 { // there is nothing to compare
		fmt.Fprintf(io.out, "\n%s\n", e.summary())
		return
	}
	stay := 0
	for _, s := range servers {
		if s.Stays != "" {
			stay++
		}
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(io.out)
	fmt.Fprint(w, "\tbefore\tnow\t\n")
	fmt.Fprintf(w, "  servers\t%d\t%d\t\n", len(servers), 1+stay)
	if e.Why == "" {
		fmt.Fprintf(w, "  tools listed\t%d\t%d\t\n", e.Tools, e.Listed)
		fmt.Fprintf(w, "  tokens\t%s\t%s\t\n", thousands(e.Before), thousands(e.Now))
	} else {
		fmt.Fprintf(w, "  tools listed\t%d\t-\t\n", e.Tools)
		fmt.Fprintf(w, "  tokens\t%s\t-\t\n", thousands(e.Before))
	}
	_ = w.Flush()
	fmt.Fprintf(io.out, "\n%s\n", e.summary())
}

// summary says in a sentence what has changed for the client, and how to change that.
func (e *effect) summary() string {
	callable := fmt.Sprintf("all %s can still be called", count(e.Tools, "tool"))
	if e.Callable < e.Tools {
		callable = fmt.Sprintf("%d of the %s can be called", e.Callable, count(e.Tools, "tool"))
	}
	why := ""
	switch {
	case e.Why != "" && len(e.NeedsConnection) > 0: // Why says only that there is no tool yet
		return fmt.Sprintf("What the client gets is known after the sign-in at %s.", joinIDs(e.NeedsConnection))
	case e.Why != "":
		return "What the client gets now is not known: " + e.Why
	case e.Now < e.Before:
		return fmt.Sprintf("The client reads %d %% less before the first question; %s.", 100-100*e.Now/max(e.Before, 1), callable)
	case e.Now == e.Before:
		return fmt.Sprintf("The client reads as much as before; %s.", callable)
	case len(e.list.others) > 0:
		why = fmt.Sprintf("the configuration has other servers too (%s), and their tools take %s tokens", joinIDs(e.list.others), thousands(e.list.othersTokens))
	case e.list.lazy:
		why = fmt.Sprintf("the tools that stand for others (%s) are larger than these", strings.Join(e.list.own, ", "))
	default:
		adds := strings.Join(append(slices.Clone(e.list.own), "a few words about the servers"), " and ")
		why = fmt.Sprintf("all tools fit into the budget of %s tokens, so each is listed in full, and Switchboard adds %s", thousands(e.Budget), adds)
	}
	change := "To list less, name a task with --task (switchboard docs tasks)."
	if e.list.implied && !e.list.lazy {
		change = "To list less, write a smaller token_budget (switchboard docs lazy) or a task (switchboard docs tasks)."
	}
	return fmt.Sprintf("The client reads %s tokens more than before: %s. %s", thousands(e.Now-e.Before), why, change)
}

// thousands returns a number with a comma between the thousands.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
