package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/scan"
)

type toolsCmd struct {
	taskTarget
	outputFlags
	principalFlags
	Tokens bool `help:"Show the tokens that each tool costs the client, and the rest of the budget."`
	Raw    bool `help:"Print the definitions, byte for byte as a model receives them, one a line."`
	Budget int  `help:"With --tokens: show the rest of a budget of N tokens." placeholder:"N"`
}

// maxSummary limits a description in a table, in characters.
const maxSummary = 72

// Run prints the tools that a client sees, with their servers.
func (t *toolsCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if t.Budget < 0 || t.Budget > 0 && !t.Tokens {
		return usageError{errors.New("--budget takes a number of tokens, and goes with --tokens")}
	}
	x, err := fetchExplanation(ctx, io, t.taskTarget, t.Principal, admin.ExplainQuery{Tokens: t.Tokens, Budget: t.Budget, Definitions: t.Raw}, nil, log)
	if err != nil {
		return err
	}
	if len(x.Starting) > 0 {
		fmt.Fprintf(io.err, "switchboard: %s after %s: %s\n", notAnsweredText, t.Wait, joinIDs(x.Starting))
	}
	if x.Why != "" {
		fmt.Fprintln(io.err, "switchboard:", x.Why)
		return errNegative
	}
	if t.Raw {
		for _, e := range x.Tools {
			if _, err := fmt.Fprintf(io.raw, "%s\n", e.Definition); err != nil {
				return err
			}
		}
		return nil
	}
	if t.JSON {
		if x.Bill != nil {
			return json.NewEncoder(io.raw).Encode(struct {
				Tools []admin.ExplainedTool `json:"tools"`
				*admin.TokenBill
			}{x.Tools, x.Bill})
		}
		return json.NewEncoder(io.raw).Encode(x.Tools)
	}
	if x.Bill != nil {
		return writeBill(io.out, x)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	lazy := slices.ContainsFunc(x.Tools, func(e admin.ExplainedTool) bool { return e.Group != "" })
	scored := slices.ContainsFunc(x.Tools, func(e admin.ExplainedTool) bool { return e.Score != nil })
	row := func(name, server, own, listed, score, what string) {
		if lazy {
			own += "\t" + listed
		}
		if scored {
			own += "\t" + score
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, server, own, what)
	}
	row("TOOL", "SERVER", "ITS NAME THERE", "LISTED", "SCORE", "WHAT IT DOES")
	for _, e := range x.Tools {
		row(e.Name, string(e.Server), summaryLine(e.Tool), listedText(e), scoreText(e), summaryLine(e.Description))
	}
	return w.Flush()
}

// scoreText says what a tool was seen to do.
func scoreText(e admin.ExplainedTool) string {
	switch {
	case e.Score == nil:
		return "-"
	case !e.Verified:
		return fmt.Sprintf("%.3g, not verified", *e.Score)
	}
	return fmt.Sprintf("%.3g", *e.Score)
}

// listedText says when a tool is listed.
func listedText(e admin.ExplainedTool) string {
	if e.Group == "" {
		return e.Role
	}
	return e.Role + " (" + e.Group + ")"
}

// writeBill prints what the tools cost.
func writeBill(out io.Writer, x *admin.Explanation) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tTOKENS\tLISTED\tSERVER")
	if x.Instructions > 0 {
		fmt.Fprintf(w, "(instructions)\t%d\tat first\t\n", x.Instructions)
	}
	tools := 0
	for _, e := range x.Tools {
		if e.Server != "" {
			tools++
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", e.Name, e.Tokens, listedText(e), e.Server)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b := x.Bill
	if b.Whole == b.Listed { // nothing is on demand
		_, err := fmt.Fprintf(out, "\nA client is shown %d of %d tokens (%s).\n", b.Listed, b.Budget, b.Tokenizer)
		return err
	}
	_, err := fmt.Fprintf(out, "\nA client is first shown %d of %d tokens, which leaves %d to expand tools with; all %d tools would cost %d (%s).\n",
		b.Listed, b.Budget, b.Left, tools, b.Whole, b.Tokenizer)
	return err
}

// summaryLine returns the first line of a text, shortened for a table.
func summaryLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return printable(line, maxSummary)
}

// printable returns at most limit characters of text on one line. What is not visible as itself is spelt out.
func printable(text string, limit int) string {
	text = scan.Spell(text)
	if r := []rune(text); len(r) > limit {
		text = string(r[:limit-1]) + "…"
	}
	return text
}
