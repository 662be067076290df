package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type policyCmd struct {
	Test  policyTestCmd  `cmd:"" help:"Run the tests of the policies. With -v, list also the tests that pass."`
	Check policyCheckCmd `cmd:"" help:"Compile the policies, and report probable mistakes in them."`
	Eval  policyEvalCmd  `cmd:"" help:"Evaluate the policies for one input, and show the value of every rule."`
	Rules policyRulesCmd `cmd:"" help:"Show in how many recorded decisions each rule of a tenant's policies held, also never."`
	List  policyListCmd  `cmd:"" help:"List the policy files of a tenant that a running Switchboard serves, and whether they are in force."`
	Diff  policyDiffCmd  `cmd:"" help:"Show how recorded decisions would change under other policies or rankings."`
}

type policyTestCmd struct {
	commonFlags
	outputFlags
	Coverage bool     `short:"c" help:"Show the lines of the policies that no test reaches."`
	Only     string   `name:"run" short:"r" help:"Run only the tests whose whole names, such as data.switchboard_test.test_x, match REGEX." placeholder:"REGEX"`
	Paths    []string `arg:"" optional:"" name:"path" help:"Test the policies in these files and folders, without a configuration. Without PATH: those of the configuration."`
}

// Run runs the tests of the operator's layer and of every tenant's layer, or those at the paths. It
// exits 1 if a test fails.
func (p *policyTestCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if _, err := regexp.Compile(p.Only); err != nil {
		return usageError{fmt.Errorf("--run: %w", err)}
	}
	sources, err := p.readSources(ctx, log)
	if err != nil {
		return err
	}
	var reports []*author.TestReport
	var faults switchboard.Faults
	bad := 0
	for _, s := range sources {
		r, err := author.RunTests(ctx, s, p.Only, p.Coverage)
		if err != nil {
			if faults, err = addFaults(faults, err); err != nil {
				return err
			}
			continue
		}
		reports = append(reports, r)
		bad += r.Count(author.Failed) + r.Count(author.Erred)
	}
	if len(faults) > 0 {
		return faults
	}
	if p.JSON {
		err = encodeJSON(io.raw, reports)
	} else {
		verbose := log.Enabled(ctx, slog.LevelDebug)
		for _, r := range reports {
			writeTests(io.out, r, verbose)
			if len(r.Tests) == 0 && p.Only != "" {
				fmt.Fprintf(io.out, "%s: no test matches --run %s\n", r.Layer, p.Only)
				continue
			}
			fmt.Fprintln(io.out, summaryOf(r))
		}
	}
	if err == nil && bad > 0 {
		err = errNegative
	}
	return err
}

// readSources returns the layers to test.
func (p *policyTestCmd) readSources(ctx context.Context, log *slog.Logger) ([]*author.Sources, error) {
	if len(p.Paths) > 0 {
		return policysource.At(p.Paths)
	}
	if _, err := os.Stat(p.Config); os.IsNotExist(err) && p.MCPConfig == "" {
		return nil, fmt.Errorf(`there is no %s. Test policies in one of these ways:
  switchboard policy test PATH...          tests the policies in files and folders; . is this folder
  switchboard policy test --config FILE    tests the policies of a configuration that stands elsewhere`, absentText(p.Config))
	}
	c, err := p.loadWithoutFaults(ctx, log)
	if err != nil {
		return nil, err
	}
	return policysource.Of(c), nil
}

// addFaults appends err to all if it is Faults. Any other error it returns.
func addFaults(all switchboard.Faults, err error) (switchboard.Faults, error) {
	found, ok := errors.AsType[switchboard.Faults](err)
	if !ok {
		return all, err
	}
	return append(all, found...), nil
}

// encodeJSON writes v with the characters <, > and & unescaped, as they are in rules.
func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// writeTests prints the results of a layer's tests: of all tests, or only of those that did not pass
// or that printed something.
func writeTests(w io.Writer, r *author.TestReport, all bool) {
	for _, t := range r.Tests {
		if !all && t.Outcome == author.Passed && t.Output == "" {
			continue
		}
		fmt.Fprintf(w, "%v: %s: %s\n", t.SourceLine, t.Outcome, strings.TrimPrefix(t.Name, "data."))
		if t.Error != "" {
			fmt.Fprintf(w, "  %s\n", t.Error)
		}
		if t.At != nil {
			fmt.Fprintf(w, "  %v\n", *t.At)
		}
		writeLines(w, "    ", t.Values)
		writeLines(w, "  printed: ", t.Output)
	}
	for _, c := range r.Coverage {
		fmt.Fprintf(w, "%s: %.1f %% covered", c.File, c.Percent)
		for i, l := range c.Missed {
			if i == 0 {
				fmt.Fprint(w, "; no test reaches line")
			} else {
				fmt.Fprint(w, ",")
			}
			fmt.Fprintf(w, " %d", l.First)
			if l.Last != l.First {
				fmt.Fprintf(w, "-%d", l.Last)
			}
		}
		fmt.Fprintln(w)
	}
}

// summaryOf returns "policies: 53 tests passed" or "policies: 51 of 53 tests passed, 2 failed".
func summaryOf(r *author.TestReport) string {
	passed, all := r.Count(author.Passed), len(r.Tests)
	switch {
	case all == 0:
		return r.Layer + ": there are no tests"
	case passed == all:
		return fmt.Sprintf("%s: %s passed", r.Layer, count(all, "test"))
	}
	parts := []string{fmt.Sprintf("%s: %d of %s passed", r.Layer, passed, count(all, "test"))}
	for _, o := range []struct {
		outcome author.TestOutcome
		words   string
	}{{author.Failed, "failed"}, {author.Erred, "could not be evaluated"}, {author.Skipped, "skipped"}} {
		if n := r.Count(o.outcome); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, o.words))
		}
	}
	return strings.Join(parts, ", ")
}

func writeLines(w io.Writer, before, text string) {
	if text == "" {
		return
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(w, "%s%s\n", before, strings.TrimRight(line, "\n"))
	}
}

type policyCheckCmd struct {
	commonFlags
	outputFlags
	Boundaries string `help:"Check the boundaries in FILE in the place of those in capabilities/boundaries.yaml." placeholder:"FILE"`
	URL        string `name:"url" help:"Check the policies that the Switchboard at URL serves: those of the tenant, or without --tenant all that you may check. Without it: those of the configuration." placeholder:"URL"`
}

// Run compiles every layer with its tests and looks for probable mistakes. It exits 1 if it prints a
// warning.
func (p *policyCheckCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	r, err := p.check(ctx, io, log)
	if err != nil {
		return err
	}
	if r.Stopped != "" {
		return errors.New(r.Stopped)
	}
	for _, id := range r.Silent {
		fmt.Fprintf(io.err, "switchboard: server %s does not answer, so names of its tools in rules are not checked\n", id)
	}
	if p.JSON {
		err = encodeJSON(io.raw, r.Warnings)
	} else {
		for _, w := range r.Warnings {
			fmt.Fprintln(io.out, w)
		}
		fmt.Fprintf(io.out, "%s: %s\n", count(r.Layers, "layer"), count(len(r.Warnings), "warning"))
	}
	if err == nil && len(r.Warnings) > 0 {
		err = errNegative
	}
	return err
}

// check checks the policies of the Switchboard at the URL, or of the configuration.
func (p *policyCheckCmd) check(ctx context.Context, io streams, log *slog.Logger) (*admin.PolicyCheck, error) {
	if p.URL != "" {
		path := "/v1/policies/check"
		if p.Tenant != config.DefaultTenant {
			path += "?tenant=" + url.QueryEscape(string(p.Tenant))
		}
		r := &admin.PolicyCheck{}
		body, err := withBoundariesText(map[string]any{}, p.Boundaries)
		if err != nil {
			return nil, err
		}
		return r, p.targetAt(p.URL).postInto(ctx, path, body, r)
	}
	load := p.checkConfig
	if p.Boundaries != "" {
		load = func(ctx context.Context, log *slog.Logger) (*config.Config, error) {
			return p.loadWithBoundaries(ctx, log, p.Boundaries)
		}
	}
	c, err := load(ctx, log)
	if err != nil {
		return nil, err
	}
	sources := policysource.Of(c)
	layers, err := author.CompileAll(sources)
	if err != nil {
		return nil, err
	}
	checker := author.LayerChecker{}
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		checker.Tenants = append(checker.Tenants, c.Tenants[id])
	}
	for _, s := range c.Servers {
		checker.Servers = append(checker.Servers, s.ID)
	}
	if slices.ContainsFunc(layers, author.NamesTools) {
		p.askServers(ctx, &checker, log, io.err)
	}
	r := &admin.PolicyCheck{Layers: len(sources)}
	r.Warnings, r.Silent, err = checker.Check(ctx, sources, layers)
	if len(c.Registry.Boundaries) > 0 {
		r.Layers++
		r.Warnings = append(r.Warnings, author.RowWarnings(c.Warnings)...)
	}
	return r, err
}

// withBoundariesText adds the text of a file of boundaries to a request; "" means no file.
func withBoundariesText(body map[string]any, file string) (map[string]any, error) {
	if file == "" {
		return body, nil
	}
	text, err := os.ReadFile(file)
	body["boundaries"] = string(text)
	return body, err
}

// askServers starts the servers to learn their tools. If that is not possible, it prints so, and the
// other checks still run.
func (p *policyCheckCmd) askServers(ctx context.Context, checker *author.LayerChecker, log *slog.Logger, stderr io.Writer) {
	common := p.commonFlags
	if !slices.ContainsFunc(checker.Tenants, func(t *switchboard.Tenant) bool { return t.ID == common.Tenant }) && len(checker.Tenants) > 0 {
		common.Tenant = checker.Tenants[0].ID // the local user needs some tenant; which one does not matter
	}
	a, err := common.startApp(ctx, log, app.Options{})
	if err == nil {
		defer a.Stop()
		err = a.Ready(ctx)
	}
	if err != nil {
		fmt.Fprintf(stderr, "switchboard: the servers cannot be asked (%v), so tool names in rules are not checked\n", err)
		return
	}
	checker.Offers = map[switchboard.TenantID]author.TenantOffer{}
	for _, t := range checker.Tenants {
		tools, silent := a.Reads().Offered(t.ID)
		checker.Offers[t.ID] = author.TenantOffer{Tools: tools, Silent: silent}
	}
}

type policyEvalCmd struct {
	commonFlags
	outputFlags
	Input       string `help:"The input, in JSON; - is stdin. Absent members get the values of the tenant's local principal. It may be absent with --capability." placeholder:"FILE"`
	Capability  string `help:"Evaluate for this capability, such as io.fs.read@^1, as well." placeholder:"ID"`
	Boundaries  string `help:"Take the boundaries in FILE in the place of those in capabilities/boundaries.yaml." placeholder:"FILE"`
	Decision    string `help:"Evaluate the input of this recorded decision, as decisions list shows it. Members of --input replace those of it. It needs --url." placeholder:"ID"`
	Need        int    `name:"requirement" help:"With --decision: the number of the requirement." default:"1" placeholder:"N"`
	Expressions bool   `short:"e" help:"Show the values of all expressions too."`
	URL         string `name:"url" help:"Evaluate the policies that the Switchboard at URL serves. Without it: those of the configuration." placeholder:"URL"`
}

// maxInput limits the size of an input.
const maxInput = 4 << 20

// Run evaluates the operator's layer and the tenant's, and prints the decisions and the value of every
// rule. It exits 1 if a candidate is denied.
func (p *policyEvalCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	input := map[string]any{}
	switch {
	case p.Decision != "" && p.URL == "":
		return usageError{errors.New("--decision needs --url, the address of the Switchboard that has recorded it")}
	case p.Input != "":
		var err error
		if input, err = readInput(p.Input, io.in); err != nil {
			return usageError{fmt.Errorf("--input %s: %w", p.Input, err)}
		}
	case p.Decision == "" && p.Capability == "":
		return usageError{errors.New("say what to evaluate, with --input FILE, --capability ID or --decision ID")}
	}
	id := p.Tenant
	if said, ok := input["tenant_id"].(string); ok {
		id = switchboard.TenantID(said)
	}
	evaluate := p.evaluateHere
	if p.URL != "" {
		evaluate = p.evaluateThere
	}
	got, err := evaluate(ctx, log, id, input)
	if err != nil {
		return err
	}
	if p.JSON {
		if err := encodeJSON(io.raw, got); err != nil {
			return err
		}
	} else {
		writeEvaluation(io.out, got)
	}
	for _, candidate := range got.Candidates {
		if !candidate.Allowed {
			return errNegative
		}
	}
	return nil
}

// evaluateHere evaluates the policies of the configuration.
func (p *policyEvalCmd) evaluateHere(ctx context.Context, log *slog.Logger, id switchboard.TenantID, input map[string]any) (*author.Evaluation, error) {
	c, err := p.loadWithBoundaries(ctx, log, p.Boundaries)
	if err != nil {
		return nil, err
	}
	t := c.Tenants[id]
	if t == nil {
		return nil, usageError{fmt.Errorf("there is no tenant %q; name one with --tenant, or as tenant_id of the input", id)}
	}
	if p.Capability != "" {
		if err := author.AddCapability(input, c.Registry, p.Capability); err != nil {
			return nil, usageError{fmt.Errorf("--capability: %w", err)}
		}
	}
	got, err := author.EvaluateFor(ctx, t, input, c.Registry.Boundaries, policysource.Of(c), p.Expressions)
	if faults, ok := errors.AsType[switchboard.Faults](err); ok {
		return nil, faults
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--input %s: %w", p.Input, err)}
	}
	return got, nil
}

// evaluateThere evaluates the policies of the Switchboard at the URL.
func (p *policyEvalCmd) evaluateThere(ctx context.Context, _ *slog.Logger, id switchboard.TenantID, input map[string]any) (*author.Evaluation, error) {
	var r admin.PolicyEvaluation
	body, err := withBoundariesText(map[string]any{"input": input}, p.Boundaries)
	if err != nil {
		return nil, err
	}
	if p.Capability != "" {
		body["capability"] = p.Capability
	}
	if p.Decision != "" {
		body["decision"], body["requirement"] = p.Decision, p.Need
	}
	if p.Expressions {
		body["expressions"] = true
	}
	err = p.targetAt(p.URL).postInto(ctx, "/v1/policies/eval?tenant="+url.QueryEscape(string(id)), body, &r)
	if err == nil && r.Evaluation == nil {
		err = errors.New(r.Stopped)
	}
	return r.Evaluation, err
}

func writeEvaluation(w io.Writer, e *author.Evaluation) {
	for _, c := range e.Candidates {
		if c.Allowed {
			fmt.Fprintf(w, "%s: allowed\n", c.ID)
		} else {
			fmt.Fprintf(w, "%s: denied: %s: %s\n", c.ID, c.Code, c.Why)
		}
		for _, r := range c.Rows {
			fmt.Fprintf(w, "  boundary %s at %s: %s\n", r.Row, r.SourceLine, r)
		}
	}
	for _, id := range e.Unknown {
		fmt.Fprintf(w, "%s: no candidate, and so ignored\n", id)
	}
	for _, l := range e.Layers {
		name := "The " + l.Layer + "'s layer"
		if l.Layer == string(policy.Boundaries) {
			name = "The layer of boundaries"
		}
		fmt.Fprintf(w, "\n%s\n", name)
		if l.Error != "" {
			fmt.Fprintf(w, "  could not be evaluated: %s\n", l.Error)
		}
		rows := [][4]string{}
		for _, r := range l.Rules {
			rows = append(rows, [4]string{"  " + r.At[0].String(), r.Rule, "", valueText(r)})
		}
		writeTable(w, rows)
		for _, x := range l.Expressions {
			fmt.Fprintf(w, "  %s:%d: %s\n", x.SourceLine, x.Column, expressionState(&x))
			writeLines(w, "    ", cmp.Or(x.Values, x.Text))
		}
	}
}

// expressionState says how an expression was evaluated.
func expressionState(x *author.ExpressionValue) string {
	switch {
	case x.Held > 0 && x.Failed > 0:
		return fmt.Sprintf("true %d times, not true %d times", x.Held, x.Failed)
	case x.Held > 0:
		return "true"
	case x.Failed > 0:
		return "not true"
	}
	return "not evaluated"
}

// valueText returns a rule's value on one line.
func valueText(r author.RuleValue) string {
	if r.Error != "" {
		return "error: " + r.Error
	}
	if r.Undefined {
		return "undefined"
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r.Value); err != nil {
		return err.Error()
	}
	return strings.TrimSpace(b.String())
}

func readInput(name string, stdin io.Reader) (map[string]any, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }() // it was only read from
		from = f
	}
	input := map[string]any{}
	return input, decodeJSON(io.LimitReader(from, maxInput), &input)
}

// decodeJSON decodes JSON and keeps the spelling of numbers.
func decodeJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.UseNumber()
	return d.Decode(v)
}
