package lazyexpand

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of instructions.
const (
	maxWords       = 2000 // characters of one server's
	maxInstruction = 2000 // tokens of all
	budgetShare    = 4    // of the budget, a quarter at most
	maxNamed       = 30   // servers that are named
)

// Words are what a server tells models of itself.
type Words struct {
	Server switchboard.ServerID
	Text   string
}

// Instructions is what the model of a client is told when that connects: what is behind
// Switchboard, how to reach it, and the words of the servers, as many as have room. Each
// is marked as its server's. count counts tokens; budget is the run's, 0 for none.
func Instructions(servers, starting []switchboard.ServerID, groups []surface.Group, words []Words, budget int, count func([]byte) int) string {
	room := maxInstruction
	if budget > 0 {
		room = min(room, budget/budgetShare)
	}
	fits := func(text string) bool { return len(text) <= room || count([]byte(text)) <= room }
	text := introduction(servers, starting, groups)
	if !fits(text) {
		return ""
	}
	left := 0
	for _, w := range words {
		said := clean(w.Text)
		if said == "" {
			continue
		}
		said = "> " + strings.ReplaceAll(said, "\n", "\n> ") // so that it cannot look like ours, or another's
		if more := fmt.Sprintf("%s\n\n[Instructions of server %q, in its own words]\n%s", text, w.Server, said); fits(more) {
			text = more
		} else {
			left++
		}
	}
	if more := fmt.Sprintf("%s\n\n[The instructions of %s have no room here]", text, plural(left, "more server")); left > 0 && fits(more) {
		text = more
	}
	return text
}

// introduction is our own part: what is behind us, and how to reach it.
func introduction(servers, starting []switchboard.ServerID, groups []surface.Group) string {
	var b strings.Builder
	b.WriteString("Switchboard is one server in front of others")
	if len(servers) > 0 {
		b.WriteString(": " + named(servers))
	}
	b.WriteString(".")
	switch {
	case len(groups) > 0:
		stubs := make([]string, len(groups))
		for i, g := range groups {
			stubs[i] = g.Stub
		}
		fmt.Fprintf(&b, " Most of their tools are not listed: before you say that something cannot be done, call %s with %s.", strings.Join(stubs, " or "), examples[actionSearch])
	case len(servers) > 0:
		b.WriteString(" Call their tools by the names in the list of tools.")
	}
	if len(starting) > 0 {
		fmt.Fprintf(&b, " Still starting: %s. The list of tools changes when they have answered.", named(starting))
	}
	return b.String()
}

// named joins the ids, a bounded number of them.
func named(ids []switchboard.ServerID) string {
	names := make([]string, 0, min(len(ids), maxNamed))
	for _, id := range ids[:min(len(ids), maxNamed)] {
		names = append(names, string(id))
	}
	if n := len(ids) - maxNamed; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// clean removes the characters that people do not see: those of control and format, except
// line breaks, tabs and the joiners of emoji. It cuts a long text.
func clean(text string) string {
	const joiner = '\u200d'
	var b strings.Builder
	n := 0
	for _, c := range strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) {
		switch {
		case c == '\n', c == '\t', c == joiner:
		case unicode.IsControl(c), unicode.Is(unicode.Cf, c), c == unicode.ReplacementChar:
			continue
		}
		if n++; n > maxWords {
			b.WriteString("…")
			break
		}
		b.WriteRune(c)
	}
	return b.String()
}
