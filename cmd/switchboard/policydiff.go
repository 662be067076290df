package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

type policyDiffCmd struct {
	outputFlags
	storeFlags
	Against string               `required:"" help:"The proposal: a whole configuration, a folder with policies/ or tenants/ID/policies/, a folder of policies, one policy file, or a file boundaries.yaml." placeholder:"PATH"`
	Since   dayDuration          `help:"Replay the decisions of the last TIME, such as 7d or 12h." default:"7d" placeholder:"TIME"`
	URL     string               `name:"url" env:"SWITCHBOARD_URL" help:"Let the Switchboard at URL compare. Without it: the one that serves from this folder, else this command itself, with the store." placeholder:"URL"`
	Tenant  switchboard.TenantID `help:"Only decisions of this tenant. It is also the tenant of the proposed policies, if their path does not say it." placeholder:"ID"`
}

// A dayDuration is a duration that may be given in days.
type dayDuration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *dayDuration) UnmarshalText(text []byte) error {
	if days, ok := strings.CutSuffix(string(text), "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n <= 0 || n > 10_000 {
			return fmt.Errorf("%q: write a number of days, such as 7d", text)
		}
		*s = dayDuration(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	if err != nil || d <= 0 {
		return fmt.Errorf("%q: write a time such as 7d or 12h", text)
	}
	*s = dayDuration(d)
	return nil
}

// Run replays recorded decisions under the proposal. It exits 1 if any decision would change, or if
// that cannot be determined.
func (c *policyDiffCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	p, err := replay.ReadProposal(ctx, c.Against, c.Tenant, func(ctx context.Context, file string) (*config.Config, error) {
		return app.Check(ctx, func(ctx context.Context, o config.Options) (*config.Config, error) {
			return (&commonFlags{Config: file}).loadConfig(ctx, log, o)
		})
	})
	if err != nil {
		return err
	}
	if b := p.Boundaries(); b != nil {
		if err := c.checkBoundaries(ctx, log, b); err != nil {
			return err
		}
	}
	d, err := c.compare(ctx, io, log, p)
	if err != nil {
		return err
	}
	if c.JSON {
		enc := json.NewEncoder(io.raw)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(d); err != nil {
			return err
		}
	} else {
		writeDiff(io.out, d)
	}
	if d.Changed+len(d.Broken) > 0 || d.Decisions > 0 && d.Replayed == 0 {
		return errNegative
	}
	return nil
}

// checkBoundaries checks proposed boundaries as a reload of the configuration beside it would. If there is no configuration, the
// rows were checked as far as possible.
func (c *policyDiffCmd) checkBoundaries(ctx context.Context, log *slog.Logger, b *replay.ProposedBoundaries) error {
	if _, err := os.Stat(c.Config); err != nil || c.URL != "" {
		return nil
	}
	_, err := (&commonFlags{Config: c.Config}).loadWithBoundaries(ctx, log, b.Path)
	found, _ := errors.AsType[switchboard.Faults](err)
	if found = slices.DeleteFunc(found, func(f switchboard.Fault) bool { return f.File != b.Path }); len(found) > 0 {
		return found // other faults change nothing in a comparison of recorded decisions
	}
	return nil
}

// compare compares by the Switchboard that serves the configuration, or else with the store.
func (c *policyDiffCmd) compare(ctx context.Context, io streams, log *slog.Logger, p *replay.Proposal) (*replay.Diff, error) {
	since, progress := time.Now().Add(-time.Duration(c.Since)), progressPrinter(io.err, "replayed")
	_, _, whole := p.Policies()
	if c.URL != "" && whole {
		return nil, usageError{errors.New("a whole configuration is compared here, with the store; with --url, give policies, or see what config put --dry-run says of a file")}
	}
	_, serves := (&commonFlags{Config: c.Config, Data: c.Data}).findServing("")
	if c.Store == "" && !whole && (c.URL != "" || serves) {
		at := locationFlags{URL: c.URL, Config: c.Config, Data: c.Data}
		return (&servedDiff{target: at.asTarget(), tenant: c.Tenant}).compare(ctx, since, p, progress)
	}
	records, err := c.openStore(ctx, log, false)
	if err != nil {
		return nil, fmt.Errorf("the recorded decisions cannot be read: %w", err)
	}
	defer func() { _ = records.Close() }()
	return replay.Compare(ctx, records, since, c.Tenant, p, progress)
}

// A servedDiff is a comparison by a running Switchboard.
type servedDiff struct {
	target  *taskTarget
	tenant  switchboard.TenantID
	receipt string // "" means all
}

// diffPollInterval is the interval between two looks at a comparison.
const diffPollInterval = 100 * time.Millisecond

// compare starts the comparison, and waits for its result. If ctx ends, the comparison is cancelled.
func (s *servedDiff) compare(ctx context.Context, since time.Time, p *replay.Proposal, progress func(done, of int)) (*replay.Diff, error) {
	answer, err := s.target.askAdmin(ctx, http.MethodPost, s.path(""), s.body(since, p))
	if err != nil {
		return nil, err
	}
	var now whatif.Comparison
	if err := json.Unmarshal(answer.body, &now); err != nil {
		return nil, err
	}
	at := s.path("/" + url.PathEscape(now.ID))
	cancel := func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer stop()
		_, _ = s.target.askAdmin(ctx, http.MethodDelete, at, nil) // else it ends by itself
	}
	defer cancel() // nothing else reads the result
	for now.State == whatif.Running {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(diffPollInterval):
		}
		was := now
		now = whatif.Comparison{}
		if err := s.target.fetchInto(ctx, at, &now); err != nil {
			return nil, err
		}
		if progress != nil && now.Of > 0 && (now.Looked != was.Looked || now.Of != was.Of) {
			progress(now.Looked, now.Of)
		}
	}
	if now.State == whatif.Failed {
		return nil, errors.New(now.Why)
	}
	return now.Result, nil
}

// path returns the path of the comparisons, or of one.
func (s *servedDiff) path(below string) string {
	path := "/v1/policy-diffs" + below
	if s.tenant != "" {
		path += "?tenant=" + url.QueryEscape(string(s.tenant))
	}
	return path
}

// body returns the request for the comparison.
func (s *servedDiff) body(since time.Time, p *replay.Proposal) any {
	type file struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	type layer struct {
		Tenant switchboard.TenantID `json:"tenant,omitempty"`
		Files  []file               `json:"files"`
	}
	var body struct {
		Since   time.Time `json:"since"`
		Receipt string    `json:"receipt,omitempty"`
		Layers  []layer   `json:"layers,omitempty"`
		Files   []file    `json:"files,omitempty"`
	}
	body.Since, body.Receipt = since, s.receipt
	layers, files, _ := p.Policies()
	for _, l := range layers {
		if s.tenant != "" && l.Owner != "" && l.Owner != s.tenant {
			continue // it changes no decision of the tenant
		}
		one := layer{Tenant: l.Owner, Files: []file{}}
		for _, f := range l.Files {
			one.Files = append(one.Files, file{f.Path, string(f.Data)})
		}
		body.Layers = append(body.Layers, one)
	}
	if b := p.Boundaries(); b != nil {
		body.Files = append(body.Files, file{config.BoundariesPath, string(b.Text)})
	}
	for _, f := range files {
		folder := "policies/"
		if f.Owner != "" {
			folder = "tenants/" + string(f.Owner) + "/policies/"
		}
		body.Files = append(body.Files, file{folder + f.File.Path, string(f.File.Data)})
	}
	return body
}

// progressPrinter returns a function that prints how much was done, such as "replayed 3 of 7", or nil if w is not a terminal.
func progressPrinter(w io.Writer, did string) func(done, of int) {
	terminal, ok := w.(speller)
	if !ok || !terminal.terminal {
		return nil
	}
	var said time.Time
	return func(done, of int) {
		if now := time.Now(); now.Sub(said) > 100*time.Millisecond || done == of {
			said = now
			fmt.Fprintf(terminal.w, "\r%s %d of %d", did, done, of)
			if done == of {
				fmt.Fprintln(terminal.w)
			}
		}
	}
}

// diffTables hold the heading, the columns and the row of each kind of change.
var diffTables = []struct {
	kind, head, columns string
	row                 func(c *replay.DecisionChange) []string
}{
	{replay.ChangeRefused, "Tasks that could not start any more", "TENANT\tTASK", func(c *replay.DecisionChange) []string { return []string{string(c.Task)} }},
	{replay.ChangeStarts, "Tasks that could start now", "TENANT\tTASK", func(c *replay.DecisionChange) []string { return []string{string(c.Task)} }},
	{replay.ChangeDenied, "Newly denied", "TENANT\tTOOL", func(c *replay.DecisionChange) []string { return []string{c.Tool} }},
	{replay.ChangeAllowed, "Newly allowed", "TENANT\tTOOL", func(c *replay.DecisionChange) []string { return []string{c.Tool} }},
	{replay.ChangeMoved, "Served by another", "TENANT\tREQUIREMENT\tFROM\tTO", func(c *replay.DecisionChange) []string { return []string{c.Requirement, c.From, c.To} }},
	{replay.ChangeWouldAsk, "Would ask a person", "TENANT\tTOOL\tFROM\tTO", func(c *replay.DecisionChange) []string { return []string{c.Tool, c.From, c.To} }},
	{replay.ChangeAsked, "Asked of calls", "TENANT\tTOOL\tFROM\tTO", func(c *replay.DecisionChange) []string { return []string{c.Tool, c.From, c.To} }},
	{replay.ChangeOrder, "Ranked in another order behind the first", "TENANT\tREQUIREMENT", func(c *replay.DecisionChange) []string { return []string{c.Requirement} }},
	{replay.ChangeTask, "Tasks that require something else", "TENANT\tTASK\tREQUIREMENT", func(c *replay.DecisionChange) []string { return []string{string(c.Task), c.Requirement} }},
}

func writeDiff(out io.Writer, d *replay.Diff) {
	fmt.Fprint(out, count(d.Decisions, "decision"))
	if d.Calls > 0 {
		fmt.Fprintf(out, ", of which %d on calls,", d.Calls)
	}
	fmt.Fprintf(out, " since %s, %d replayed: ", d.Since.Local().Format(time.DateTime), d.Replayed)
	switch {
	case d.Changed > 0:
		fmt.Fprintf(out, "%d would change\n", d.Changed)
	case d.Decisions > 0 && d.Replayed == 0:
		fmt.Fprintln(out, "nothing is known")
	default:
		fmt.Fprintln(out, "nothing would change")
	}
	for _, h := range diffTables {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		first := true
		for i := range d.Changes {
			c := &d.Changes[i]
			if c.Kind != h.kind {
				continue
			}
			if first {
				fmt.Fprintf(w, "\n%s\n  %s\tDECISIONS\tWHY\n", h.head, h.columns)
				first = false
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", c.Tenant, strings.Join(h.row(c), "\t"), countText(c.Decisions, c.Of), printable(c.Why, 500))
		}
		_ = w.Flush() // without the terminal the table is not needed
	}
	for i, c := range d.Callers {
		if i == 0 {
			fmt.Fprint(out, "\nCallers whose decisions would change\n")
		}
		fmt.Fprintf(out, "  %s of tenant %s: %d\n", printable(c.Principal, 200), c.Tenant, c.Decisions)
	}
	if d.Unlisted > 0 {
		fmt.Fprintf(out, "\n%s more are not listed\n", count(d.Unlisted, "change"))
	}
	if !d.Looked.Complete() {
		fmt.Fprintf(out, "\nIt has %s. Without a running Switchboard, with --store, all are looked at.\n", lookedText(d.Looked))
	}
	for i, n := range d.NotReplayed {
		if i == 0 {
			fmt.Fprint(out, "\nNot replayed, so nobody knows what would become of them\n")
		}
		fmt.Fprintf(out, "  %s: %s\n", countText(n.Decisions, n.Of), n.Why)
	}
	for i, b := range d.Broken {
		if i == 0 {
			fmt.Fprint(out, "\nA DEFECT IN SWITCHBOARD: under the same rules these were decided differently; please report it\n")
		}
		fmt.Fprintf(out, "  tenant %s, task %s%s: recorded %s, replayed %s\n", b.Tenant, b.Task, kindSuffix(b.Of), b.Recorded, b.Replayed)
	}
}

// lookedText says how far a comparison has looked.
func lookedText(l *replay.LookedAt) string {
	more := ""
	if l.OrMore {
		more = " or more"
	}
	return fmt.Sprintf("looked at %d of %s%s, back to %s", l.Decisions, count(l.Of, "decision"), more, l.Back.Local().Format(time.DateTime))
}

// countText returns a number of decisions; of is the kind of thing that was decided.
func countText(n int, of string) string {
	if of == "" {
		return strconv.Itoa(n)
	}
	return count(n, of)
}

func kindSuffix(of string) string {
	if of == "" {
		return ""
	}
	return ", a " + of
}
