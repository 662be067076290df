package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxReviewLine limits one line of an answer.
const maxReviewLine = 64 << 10

// A labelReview asks a person about suggestions, one tool after the other.
type labelReview struct {
	*annotateCmd
	io      streams
	lines   *bufio.Scanner
	cfg     *config.Config
	offered *admin.OfferList

	accepted, skipped, never int
}

// review asks about all suggestions, and writes what the person accepts. The end of the input is the answer "quit".
func (a *annotateCmd) review(ctx context.Context, io streams, cfg *config.Config, offered *admin.OfferList, found *annotated) error {
	r := &labelReview{annotateCmd: a, io: io, lines: bufio.NewScanner(io.in), cfg: cfg, offered: offered}
	r.lines.Buffer(nil, maxReviewLine)
	for _, s := range found.Servers {
		open := slices.DeleteFunc(slices.Clone(s.Suggestions), func(g annotate.ToolSuggestion) bool {
			return slices.Contains(s.Never, g.Tool) || annotate.NameFault(g.Tool) != ""
		})
		annotate.SortForReview(open)
		for i := range open {
			g := &open[i]
			fmt.Fprintf(io.out, "\n%s, %d of %d", s.Server, i+1, len(open))
			s.print(io.out, g)
			ended, err := r.ask(ctx, s, g)
			if err != nil {
				return err
			}
			if ended {
				return r.finish()
			}
		}
	}
	return r.finish()
}

// ask asks about one tool until it has an answer. It returns true for "quit".
func (r *labelReview) ask(ctx context.Context, s *annotatedServer, g *annotate.ToolSuggestion) (quit bool, err error) {
	server := s.Server
	row, suggested := g.Row()
	own := slices.IndexFunc(s.earlier, func(e annotate.ProposedRow) bool { return e.Tool == g.Tool && e.Digest == g.Digest })
	if own >= 0 && edit.Format(s.earlier[own].Value) != edit.Format(row.Value) {
		row, suggested = s.earlier[own], true
		fmt.Fprintf(r.io.out, "  the row of %s, which a person has changed: %s\n", s.File, edit.Format(row.Value))
	}
	choice := "[a]ccept, [c]hange, [s]kip, [n]ever, [q]uit: "
	if !suggested {
		choice = "[c]hange (give your own label), [s]kip, [n]ever, [q]uit: "
	}
	for {
		answer, ok := r.read(choice)
		switch {
		case !ok, answer == "q", answer == "quit":
			return true, nil
		case suggested && (answer == "a" || answer == "accept"):
		case answer == "c" || answer == "change":
			changed, ok := r.change(g)
			if !ok {
				return true, nil
			}
			if row, err = annotate.NewRow(g.Tool, g.Digest, []byte(changed)); err != nil {
				fmt.Fprintln(r.io.out, "  not accepted:", err)
				continue
			}
		case answer == "s" || answer == "skip":
			r.skipped++
			return false, nil
		case answer == "n" || answer == "never":
			r.never++
			return false, r.refuse(ctx, server, g)
		default:
			continue
		}
		if err := r.accept(ctx, server, row); err != nil {
			fmt.Fprintln(r.io.out, "  not accepted:", err)
			continue
		}
		r.accepted++
		fmt.Fprintf(r.io.out, "  accepted: %s\n", edit.Format(row.Value))
		return false, nil
	}
}

// read asks, and returns the next line without spaces around it; ok is false at the end of the input.
func (r *labelReview) read(question string) (line string, ok bool) {
	fmt.Fprint(r.io.out, "  "+question)
	if !r.lines.Scan() {
		fmt.Fprintln(r.io.out)
		return "", false
	}
	return strings.TrimSpace(r.lines.Text()), true
}

// change asks for the parts of an overlay. An empty answer keeps what is suggested; "-" means none.
func (r *labelReview) change(g *annotate.ToolSuggestion) (overlay string, ok bool) {
	label := annotate.Label{}
	if g.Capability != nil {
		label = *g.Capability
	}
	var constraints, facts []string
	for _, c := range label.Constraints {
		constraints = append(constraints, string(c))
	}
	for _, f := range g.Facts {
		facts = append(facts, f.String())
	}
	parts := []struct{ question, value string }{
		{"verb", string(label.Verb)},
		{"resource", string(label.Resource)},
		{"constraints, divided by commas, or -", strings.Join(constraints, ", ")},
		{"other keys, as in risk_level: high, or -", strings.Join(facts, ", ")},
	}
	if len(g.Resources) > 1 {
		parts[1].question += " (or " + joinIDs(g.Resources[1:]) + ")"
	}
	for i := range parts {
		p := &parts[i]
		answer, ok := r.read(fmt.Sprintf("%s [%s]: ", p.question, p.value))
		switch {
		case !ok:
			return "", false
		case answer == "-":
			p.value = ""
		case answer != "":
			p.value = answer
		}
	}
	overlay = fmt.Sprintf("{capabilities: [{verb: %s, resource: %s", quoteWord(parts[0].value), quoteWord(parts[1].value))
	if parts[2].value != "" {
		var names []string
		for name := range strings.SplitSeq(parts[2].value, ",") {
			names = append(names, quoteWord(strings.TrimSpace(name)))
		}
		overlay += ", constraints: [" + strings.Join(names, ", ") + "]"
	}
	overlay += "}]"
	if parts[3].value != "" {
		overlay += ", " + parts[3].value
	}
	return overlay + "}", true
}

// quoteWord returns a word so that YAML reads it as one text.
func quoteWord(s string) string { return document.Quote(cmp.Or(s, "?")) }

// accept writes one row into the overlay of its server.
func (r *labelReview) accept(ctx context.Context, server switchboard.ServerID, row annotate.ProposedRow) error {
	accepted, labelled, wrong := annotate.CheckRows([]annotate.ProposedRow{row}, presentTools(r.cfg, r.offered, server))
	if len(wrong) > 0 {
		return fmt.Errorf("%s", wrong[0])
	}
	return r.writeAccepted(ctx, r.cfg, server, accepted, labelled)
}

// refuse notes in the file of suggestions that no suggestion is wanted for the definition.
func (r *labelReview) refuse(ctx context.Context, server switchboard.ServerID, g *annotate.ToolSuggestion) error {
	file := r.overlayPath(server, config.SuggestedSuffix)
	return changeFile(ctx, file, func(old []byte) ([]byte, error) {
		if old == nil {
			return annotate.AddNever(fmt.Appendf(nil, "server: %s\ntools: {}\n", server), g.Tool, g.Digest), nil
		}
		_, rows, err := annotate.ReadProposal(file, old)
		if err != nil {
			return nil, err
		}
		old = annotate.AddNever(old, g.Tool, g.Digest)
		for i := range rows {
			rows[i].Line++
		}
		return annotate.WithoutRows(old, rows, func(tool string) bool { return tool == g.Tool }), nil
	})
}

// finish says what was decided.
func (r *labelReview) finish() error {
	_, err := fmt.Fprintf(r.io.out, "\n%s accepted, %d skipped, %d never\n", count(r.accepted, "label"), r.skipped, r.never)
	return err
}
