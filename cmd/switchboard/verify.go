package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

const verificationsPath = "/v1/verifications"

// verifyPoll is how often the command asks how far a verification is.
const verifyPoll = 500 * time.Millisecond

type verifyCmd struct {
	serverFlags
	Server string `arg:"" help:"The server." placeholder:"SERVER"`
	Tool   string `arg:"" optional:"" help:"Only this tool of it." placeholder:"TOOL"`
	Plan   bool   `help:"Print what would be called, and call nothing." xor:"what"`
	Show   bool   `help:"Print the last reports, and call nothing." xor:"what"`
}

// A verificationSeen is what a Switchboard says about the verification of a server.
type verificationSeen struct {
	Progress *verification.Progress `json:"progress"`
	Reports  []evidence.KeptReport  `json:"reports"`
}

// Run verifies the tools of a server, and prints their reports.
func (c *verifyCmd) Run(ctx context.Context, io streams) error {
	q := url.Values{"server": {c.Server}}
	if c.Tool != "" {
		q.Set("tool", c.Tool)
	}
	if c.Plan {
		return c.printPlan(ctx, io, q)
	}
	answer := &verificationSeen{}
	raw, err := c.asTarget().askAdmin(ctx, http.MethodGet, verificationsPath+"?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	if !c.Show {
		if raw, err = c.verify(ctx, q); err != nil {
			return err
		}
	}
	if err := json.Unmarshal(raw.body, answer); err != nil {
		return err
	}
	if c.JSON {
		_, err := io.raw.Write(raw.body)
		return errors.Join(err, c.verdictOf(answer))
	}
	if p := answer.Progress; p != nil && p.Problem != "" {
		fmt.Fprintf(io.out, "%s: %s\n\n", printable(c.Server, 64), printable(p.Problem, 400))
	}
	for i, r := range answer.Reports {
		if i > 0 {
			fmt.Fprintln(io.out)
		}
		fmt.Fprint(io.out, r.Text())
	}
	if slices.ContainsFunc(answer.Reports, func(r evidence.KeptReport) bool { return r.Calls > 0 && r.WithoutValidCall() }) {
		fmt.Fprintf(io.out, "\nFor a tool without a valid call, write arguments that it takes under examples in overlays/%s.yaml, and verify it again.\n", printable(c.Server, 64))
	}
	if len(answer.Reports) == 0 {
		fmt.Fprintln(io.out, "there is no report yet")
	}
	return c.verdictOf(answer)
}

// verify starts a verification, waits until it has ended, and returns the answer.
func (c *verifyCmd) verify(ctx context.Context, q url.Values) (*adminAnswer, error) {
	if _, err := c.asTarget().askAdmin(ctx, http.MethodPost, verificationsPath+"?"+q.Encode(), nil); err != nil {
		return nil, err
	}
	for {
		raw, err := c.asTarget().askAdmin(ctx, http.MethodGet, verificationsPath+"?"+q.Encode(), nil)
		if err != nil {
			return nil, err
		}
		answer := verificationSeen{}
		if err := json.Unmarshal(raw.body, &answer); err != nil {
			return nil, err
		}
		if answer.Progress == nil || !answer.Progress.Running {
			return raw, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(verifyPoll):
		}
	}
}

// verdictOf returns errNegative if the verification was cut short, if there is no report, or if one of the tools is not verified.
func (c *verifyCmd) verdictOf(a *verificationSeen) error {
	if len(a.Reports) == 0 || !c.Show && a.Progress != nil && a.Progress.Problem != "" {
		return errNegative
	}
	if slices.ContainsFunc(a.Reports, func(r evidence.KeptReport) bool { return !r.Verified }) {
		return errNegative
	}
	return nil
}

// printPlan prints what would be called.
func (c *verifyCmd) printPlan(ctx context.Context, io streams, q url.Values) error {
	raw, err := c.asTarget().askAdmin(ctx, http.MethodGet, verificationsPath+"/plan?"+q.Encode(), nil)
	if err != nil {
		return err
	}
	if c.JSON {
		_, err := io.raw.Write(raw.body)
		return err
	}
	var answer struct {
		Plans []verification.ToolPlan `json:"plans"`
	}
	if err := json.Unmarshal(raw.body, &answer); err != nil {
		return err
	}
	for _, p := range answer.Plans {
		switch p.Leave {
		case verify.LeaveNone:
			fmt.Fprintf(io.out, "%s: no call: %s\n", printable(p.Tool.String(), 200), p.Why)
			continue
		case verify.LeaveWalls:
			fmt.Fprintf(io.out, "%s: %d calls of a second program, in walls without network and with a scratch folder\n", printable(p.Tool.String(), 200), len(p.Calls))
		case verify.LeaveReadOnly:
			fmt.Fprintf(io.out, "%s: %d calls of the server in use, since it only reads\n", printable(p.Tool.String(), 200), len(p.Calls))
		case verify.LeaveTest:
			fmt.Fprintf(io.out, "%s: %d calls of the server, a test environment\n", printable(p.Tool.String(), 200), len(p.Calls))
		}
		for _, call := range p.Calls {
			fmt.Fprintf(io.out, "  %-14s %s: %s\n", call.Test, printable(call.About, 60), printable(string(call.Arguments), 100))
		}
		for _, t := range verify.Tests() {
			if why, ok := p.Skipped[t]; ok {
				fmt.Fprintf(io.out, "  %-14s none: %s\n", t, printable(why, 100))
			}
		}
	}
	return nil
}
