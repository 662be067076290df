package lazyexpand

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of instructions.
const (
	maxWords       = 2000 // characters of one server's instructions
	maxInstruction = 2000 // tokens of all instructions
	budgetShare    = 4    // a quarter of the budget at most
	maxNamed       = 30   // servers that the text names
)

// ServerInstructions are the instructions that one server gives to models.
type ServerInstructions struct {
	Server switchboard.ServerID
	Text   string
}

// AwayServers are servers of the tenant without tools for now.
type AwayServers struct {
	Starting    []switchboard.ServerID
	Unconnected []switchboard.ServerID // which a person has to connect first
	Failed      []switchboard.ServerID // which have failed, and of which no offer is known
}

// Instructions returns the text that a model reads when its client connects: which servers are behind Switchboard,
// how to reach them, and the servers' own instructions, as many as there is room for. Each is marked with its server.
// count counts tokens; budget is the run's, 0 for none.
func Instructions(servers []switchboard.ServerID, away AwayServers, groups []surface.Group, words []ServerInstructions, budget int, count func([]byte) int) string {
	room := maxInstruction
	if budget > 0 {
		room = min(room, budget/budgetShare)
	}
	fits := func(text string) bool { return len(text) <= room || count([]byte(text)) <= room }
	text := introduction(servers, away, groups)
	if !fits(text) {
		return ""
	}
	left := 0
	for _, w := range words {
		said := cleanText(w.Text)
		if said == "" {
			continue
		}
		said = "> " + strings.ReplaceAll(said, "\n", "\n> ") // so that it cannot imitate our own text or another server's
		if more := fmt.Sprintf("%s\n\n[Instructions of server %q, in its own words]\n%s", text, w.Server, said); fits(more) {
			text = more
		} else {
			left++
		}
	}
	if more := fmt.Sprintf("%s\n\n[The instructions of %s have no room here]", text, countOf(left, "more server")); left > 0 && fits(more) {
		text = more
	}
	return text
}

// introduction returns our own part of the text: which servers are behind us, and how to reach them.
func introduction(servers []switchboard.ServerID, away AwayServers, groups []surface.Group) string {
	var b strings.Builder
	b.WriteString("Switchboard is one server in front of others")
	if len(servers) > 0 {
		b.WriteString(": " + JoinServers(servers))
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
	if len(away.Starting) > 0 {
		fmt.Fprintf(&b, " Still starting: %s. The list of tools changes when they have answered.", JoinServers(away.Starting))
	}
	if len(away.Unconnected) > 0 {
		fmt.Fprintf(&b, " A person has to sign in first for: %s. The operator runs: switchboard server connect %s. The list of tools changes after that.", JoinServers(away.Unconnected), away.Unconnected[0])
	}
	if len(away.Failed) > 0 {
		fmt.Fprintf(&b, " No answer from: %s. Switchboard tries again by itself, and the list of tools changes when they answer.", JoinServers(away.Failed))
	}
	return b.String()
}

// JoinServers joins the ids, at most maxNamed of them.
func JoinServers(ids []switchboard.ServerID) string {
	names := make([]string, 0, min(len(ids), maxNamed))
	for _, id := range ids[:min(len(ids), maxNamed)] {
		names = append(names, string(id))
	}
	if n := len(ids) - maxNamed; n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return strings.Join(names, ", ")
}

// cleanText removes invisible characters: control and format characters except line breaks, tabs and the joiners of
// emoji. It cuts a long text.
func cleanText(text string) string {
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
