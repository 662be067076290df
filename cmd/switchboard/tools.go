package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"unicode"
)

type toolsCmd struct {
	target
	output
}

// maxSummary bounds a description in a table, in characters.
const maxSummary = 72

// Run prints what a client sees, and whose tool each one is.
func (t *toolsCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	x, err := explanation(ctx, t.target, log)
	if err != nil {
		return err
	}
	if x.Why != "" {
		fmt.Fprintln(io.err, "switchboard:", x.Why)
		return errNo
	}
	if t.JSON {
		return json.NewEncoder(io.raw).Encode(x.Tools)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tSERVER\tITS NAME THERE\tWHAT IT DOES")
	for _, e := range x.Tools {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Name, e.Server, summary(e.Tool), summary(e.Description))
	}
	return w.Flush()
}

// summary is the first line of a text, cut to fit a table.
func summary(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return printable(line, maxSummary)
}

// printable is at most limit characters of text, without anything that a
// terminal would act on.
func printable(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if r := []rune(text); len(r) > limit {
		text = string(r[:limit-1]) + "…"
	}
	return text
}
