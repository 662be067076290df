package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/proposal"
)

type proposalsCmd struct {
	List     proposalsListCmd     `cmd:"" help:"List the proposals of files that you may change."`
	Create   proposalsCreateCmd   `cmd:"" help:"Try a proposal, and keep it for people to decide about. Nothing of it is in force."`
	Show     proposalsShowCmd     `cmd:"" help:"Show one proposal: what it would change, its risk, and whose yes it needs."`
	Diff     proposalsDiffCmd     `cmd:"" help:"Print what a proposal would change in the files."`
	Approve  proposalsApproveCmd  `cmd:"" help:"Say yes to a proposal of somebody else."`
	Refuse   proposalsRefuseCmd   `cmd:"" help:"Say no to a proposal. That ends it."`
	Apply    proposalsApplyCmd    `cmd:"" help:"Make the change of a proposal, and check its claims. If one does not hold, the old files are put back."`
	RollBack proposalsRollBackCmd `cmd:"" name:"roll-back" help:"Put the files back that an applied proposal has replaced."`
}

const proposalsPath = "/v1/proposals"

type proposalsListCmd struct{ serverFlags }

// Run prints the proposals.
func (c *proposalsListCmd) Run(ctx context.Context, io streams) error {
	all, err := fetchList[proposal.KeptProposal](ctx, c.asTarget(), proposalsPath, "proposals", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(io.out, "there are no proposals of files that you may change")
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROPOSAL\tSTATE\tRISK\tYESES\tBY\tFILES\tMADE\tNOTE\t")
	for i := range all {
		p := &all[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%s\t%d\t%s\t%s\t\n", p.ID, p.State, p.Risk, yeses(p), p.Needed, printable(p.Proposer.ID, 40), len(p.Files), clockText(p.Created), printable(p.Note, 60))
	}
	return w.Flush()
}

func yeses(p *proposal.KeptProposal) (n int) {
	for _, v := range p.Votes {
		if v.Yes {
			n++
		}
	}
	return n
}

type proposalsCreateCmd struct {
	serverFlags
	File string `required:"" help:"The proposal, in YAML or JSON; - is stdin. \"switchboard docs proposals\" shows one." placeholder:"FILE"`
}

// maxProposal limits the file of a proposal, in bytes.
const maxProposal = 3 << 20

// Run makes a proposal.
func (c *proposalsCreateCmd) Run(ctx context.Context, io streams) error {
	text, err := readText(io, c.File, maxProposal)
	if err != nil {
		return usageError{err}
	}
	d, err := proposal.Parse(c.File, text)
	if err != nil {
		return usageError{err}
	}
	v, err := c.makeProposal(ctx, io, d)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprint(io.out, v.Text)
	return err
}

// makeProposal makes a proposal, and returns it as people read it. With --json it prints the answer instead.
func (f *serverFlags) makeProposal(ctx context.Context, io streams, d any) (v proposal.View, err error) {
	p, err := f.sendProposal(ctx, io, proposalsPath, d)
	if err != nil || f.JSON {
		return v, err
	}
	return f.readProposal(ctx, p.ID)
}

// sendProposal sends a step, and returns what has become of the proposal. With --json it prints that.
func (f *serverFlags) sendProposal(ctx context.Context, io streams, path string, body any) (*proposal.KeptProposal, error) {
	answer, err := f.asTarget().changeAdmin(ctx, http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	if f.JSON {
		if _, err := io.raw.Write(answer.body); err != nil {
			return nil, err
		}
	}
	p := &proposal.KeptProposal{}
	return p, json.Unmarshal(answer.body, p)
}

// proposalFlags name a proposal.
type proposalFlags struct {
	serverFlags
	ID string `arg:"" name:"proposal" help:"The proposal, as proposals list shows it."`
}

// readProposal returns the proposal as people read it.
func (f *serverFlags) readProposal(ctx context.Context, id string) (v proposal.View, err error) {
	err = f.asTarget().fetchInto(ctx, proposalsPath+"/"+url.PathEscape(id), &v)
	return v, err
}

type proposalsShowCmd struct{ proposalFlags }

// Run prints a proposal.
func (c *proposalsShowCmd) Run(ctx context.Context, io streams) error {
	v, err := c.readProposal(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(v)
	}
	_, err = fmt.Fprint(io.out, v.Text)
	return err
}

type proposalsDiffCmd struct{ proposalFlags }

// Run prints the difference.
func (c *proposalsDiffCmd) Run(ctx context.Context, io streams) error {
	v, err := c.readProposal(ctx, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(map[string]string{"proposal": v.ID, "diff": v.Diff})
	}
	_, err = fmt.Fprint(io.out, v.Diff)
	return err
}

// step does a step, and prints the new state.
func (f *proposalFlags) step(ctx context.Context, io streams, action string, body map[string]string) error {
	p, err := f.sendProposal(ctx, io, proposalsPath+"/"+url.PathEscape(f.ID)+action, body)
	if err != nil || f.JSON {
		return err
	}
	more := ""
	switch {
	case p.State == proposal.Open && yeses(p) < p.Needed:
		more = fmt.Sprintf(": %d of %d have said yes", yeses(p), p.Needed)
	case p.State == proposal.Open:
		more = ": it has its yeses; switchboard proposals apply " + p.ID
	case p.State == proposal.Applied:
		more = fmt.Sprintf(" and in force, and %s; to take it back: switchboard proposals roll-back %s", claimsText(len(p.Claims)), p.ID)
	case p.Why != "":
		more = ": " + printable(p.Why, 400)
	}
	_, err = fmt.Fprintf(io.out, "%s is %s%s\n", p.ID, strings.ReplaceAll(string(p.State), "_", " "), more)
	return err
}

func claimsText(n int) string {
	switch n {
	case 0:
		return "it has no claims"
	case 1:
		return "its claim holds"
	}
	return "its claims hold"
}

// noteFlags are what a person says to a proposal.
type noteFlags struct {
	proposalFlags
	Note string `help:"Your words. They are recorded." placeholder:"TEXT"`
}

func (f *noteFlags) body() map[string]string {
	if f.Note == "" {
		return map[string]string{}
	}
	return map[string]string{"note": f.Note}
}

type proposalsApproveCmd struct{ noteFlags }

// Run says yes.
func (c *proposalsApproveCmd) Run(ctx context.Context, io streams) error {
	return c.step(ctx, io, "/approve", c.body())
}

type proposalsRefuseCmd struct{ noteFlags }

// Run says no.
func (c *proposalsRefuseCmd) Run(ctx context.Context, io streams) error {
	return c.step(ctx, io, "/refuse", c.body())
}

type proposalsApplyCmd struct{ proposalFlags }

// Run applies the proposal.
func (c *proposalsApplyCmd) Run(ctx context.Context, io streams) error {
	return c.step(ctx, io, "/apply", nil)
}

type proposalsRollBackCmd struct{ noteFlags }

// Run takes the proposal back.
func (c *proposalsRollBackCmd) Run(ctx context.Context, io streams) error {
	return c.step(ctx, io, "/roll-back", c.body())
}
