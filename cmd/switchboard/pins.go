package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

type pinsCmd struct {
	List      pinsListCmd      `cmd:"" help:"List the definitions that servers offer, with their states."`
	Diff      pinsDiffCmd      `cmd:"" help:"Show the definition that is let in, and what its server offers in its place."`
	Accept    pinsAcceptCmd    `cmd:"" help:"Let in the definition that you have looked at."`
	Suspend   pinsSuspendCmd   `cmd:"" help:"Take a tool, prompt or template out until a person accepts it."`
	Retire    pinsRetireCmd    `cmd:"" help:"Take a tool, prompt or template out for good."`
	Deprecate pinsDeprecateCmd `cmd:"" help:"Name the successor of a tool, which stays in use."`
}

const pinsPath = "/v1/pins"

type pinsListCmd struct {
	serverFlags
	Server  string `help:"Only those of this server." placeholder:"ID"`
	Kind    string `help:"Only those of this kind: tool, prompt, template, instructions or handshake." enum:"tool,prompt,template,instructions,handshake," default:""`
	State   string `help:"Only those in this state: testing, active, deprecated, retired, suspended, new or frozen." enum:"testing,active,deprecated,retired,suspended,new,frozen," default:""`
	Changed bool   `help:"Only those that are not plainly active."`
}

// Run prints the pins of a running Switchboard.
func (c *pinsListCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{}
	for name, value := range map[string]string{"server": c.Server, "kind": c.Kind, "state": c.State} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.Changed {
		q.Set("changed", "true")
	}
	rows, err := fetchList[pins.PinRow](ctx, c.asTarget(), pinsPath, "pins", q)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	if len(rows) == 0 {
		text := "no server has offered anything yet"
		switch {
		case c.Server != "" || c.Kind != "" || c.State != "":
			text = "there is no such definition"
		case c.Changed:
			text = "each definition is active, as it was let in"
		}
		_, err := fmt.Fprintln(io.out, text)
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DEFINITION\tKIND\tSTATE\tCHANGE\tSINCE\tBY\tWHY\t")
	for i := range rows {
		r := &rows[i]
		state := string(r.State)
		if r.Frozen {
			state += ", frozen"
		}
		by := r.By
		if by == "" && r.Digest != "" {
			by = "first sight"
		}
		since := ""
		if !r.Since.IsZero() {
			since = clockText(r.Since)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", printable(r.Subject(), 80), r.Kind, state, r.Class, since, printable(by, 40), printable(r.Why, 160))
	}
	return w.Flush()
}

// pinFlags name one definition.
type pinFlags struct {
	serverFlags
	ID   string `arg:"" name:"definition" help:"SERVER/NAME; SERVER alone with --kind instructions or handshake." placeholder:"SERVER/NAME"`
	Kind string `help:"What it is: tool, prompt, template, instructions or handshake." enum:"tool,prompt,template,instructions,handshake" default:"tool"`
}

// query returns the query that names the definition.
func (c *pinFlags) query() (url.Values, error) {
	server, name, named := strings.Cut(c.ID, "/")
	if ofServer := switchboard.PinKind(c.Kind).OfServer(); server == "" || named == ofServer || !ofServer && name == "" {
		return nil, usageError{fmt.Errorf("%q names no %s; write SERVER/NAME, or SERVER alone for instructions or handshake", c.ID, c.Kind)}
	}
	q := url.Values{"server": {server}, "kind": {c.Kind}}
	if name != "" {
		q.Set("name", name)
	}
	return q, nil
}

type pinsDiffCmd struct{ pinFlags }

// Run prints one definition, or the difference to the offered one.
func (c *pinsDiffCmd) Run(ctx context.Context, io streams) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	answer, err := c.asTarget().askAdmin(ctx, http.MethodGet, pinsPath+"/one?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	d, err := printPinJSON(io, c.JSON, answer)
	if d == nil {
		return err
	}
	fmt.Fprintf(io.out, "%s is %s", printable(d.Subject(), 200), d.State)
	if d.Frozen {
		fmt.Fprint(io.out, ", frozen")
	}
	if d.Why != "" {
		fmt.Fprintf(io.out, ": %s", printable(d.Why, 400))
	}
	fmt.Fprintln(io.out)
	if d.Risk != "" {
		fmt.Fprintf(io.out, "its risk is %s\n", d.Risk)
	}
	for _, f := range d.Findings {
		blocks := ""
		if f.Blocks {
			blocks = ", which blocks it"
		}
		fmt.Fprintf(io.out, "its words at %s: %s (%s)%s\n", printable(f.Where, 80), printable(f.Means, 200), printable(f.Rule, 40), blocks)
	}
	if r := d.Report; r != nil {
		fmt.Fprintf(io.out, "it was verified at %s: score %s", clockText(r.At), verify.Thousandths(r.Score))
		if !r.Verified {
			fmt.Fprintf(io.out, ", and its report does not speak for it: %s", printable(r.Why, 200))
		}
		fmt.Fprintf(io.out, "; switchboard verify %s --show\n", printable(strings.Replace(d.Subject(), "/", " ", 1), 200))
	}
	text, digest := d.Text, d.Digest
	if d.Offered != "" {
		text, digest = d.Diff, d.Offered
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(io.out, printable(strings.TrimSuffix(line, "\n"), 4000))
	}
	letIn := d.Offered == "" && (d.State == switchboard.LifeActive || d.KeptOut && d.By != "")
	if digest != "" && !letIn {
		fmt.Fprintf(io.out, "to let it in: switchboard pins accept %s --kind %s --digest %s\n", printable(c.ID, 200), c.Kind, digest)
	}
	return nil
}

// printPinJSON prints an answer with one definition as it is, if raw, and then returns nil. Otherwise it returns the definition.
func printPinJSON(io streams, raw bool, answer *adminAnswer) (*pins.PinDetail, error) {
	if raw {
		_, err := io.raw.Write(answer.body)
		return nil, err
	}
	d := &pins.PinDetail{}
	if err := json.Unmarshal(answer.body, d); err != nil {
		return nil, err
	}
	return d, nil
}

// decide sends a decision, and prints the state that follows.
func (c *pinFlags) decide(ctx context.Context, io streams, what string, body map[string]any) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	answer, err := c.asTarget().changeAdmin(ctx, http.MethodPost, pinsPath+"/"+what+"?"+q.Encode(), body)
	if err != nil {
		return err
	}
	d, err := printPinJSON(io, c.JSON, answer)
	if d == nil {
		return err
	}
	_, err = fmt.Fprintf(io.out, "%s is %s now, by %s\n", printable(d.Subject(), 200), d.State, printable(d.By, 40))
	if d.KeptOut && err == nil {
		_, err = fmt.Fprintf(io.out, "it is not in use: %s\n", printable(d.Why, 400))
	}
	return err
}

type pinsAcceptCmd struct {
	pinFlags
	Digest string `help:"The digest that pins diff shows." required:"" placeholder:"d1:…"`
	Reason string `help:"Why; for the receipt." placeholder:"TEXT"`
}

// Run lets a definition in.
func (c *pinsAcceptCmd) Run(ctx context.Context, io streams) error {
	return c.decide(ctx, io, "accept", map[string]any{"digest": c.Digest, "reason": c.Reason})
}

type pinsSuspendCmd struct {
	pinFlags
	Reason string `help:"Why; for the receipt." placeholder:"TEXT"`
}

// Run takes a definition out.
func (c *pinsSuspendCmd) Run(ctx context.Context, io streams) error {
	return c.decide(ctx, io, "suspend", map[string]any{"reason": c.Reason})
}

type pinsRetireCmd struct {
	pinFlags
	Reason string `help:"Why; for the receipt." placeholder:"TEXT"`
}

// Run takes a definition out for good.
func (c *pinsRetireCmd) Run(ctx context.Context, io streams) error {
	return c.decide(ctx, io, "retire", map[string]any{"reason": c.Reason})
}

type pinsDeprecateCmd struct {
	pinFlags
	Successor string `help:"The tool that takes its place." required:"" placeholder:"SERVER/TOOL"`
	Reason    string `help:"Why; for the receipt." placeholder:"TEXT"`
}

// Run names the successor of a tool.
func (c *pinsDeprecateCmd) Run(ctx context.Context, io streams) error {
	return c.decide(ctx, io, "deprecate", map[string]any{"successor": c.Successor, "reason": c.Reason})
}
