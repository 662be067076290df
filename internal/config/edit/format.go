package edit

import (
	"encoding/json"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// formatBlock returns the rows in block style, each with indent spaces before its id and step spaces for each level
// below. If parted, a blank line stands before each row.
func formatBlock(rows []Server, indent, step int, eol string, parted bool) string {
	var b strings.Builder
	line := func(level int, text string) {
		b.WriteString(strings.Repeat(" ", indent+level*step) + text + eol)
	}
	for _, r := range rows {
		if parted {
			b.WriteString(eol)
		}
		head := document.Quote(string(r.ID)) + ":"
		switch {
		case r.value != nil:
			head += " " + formatNode(*r.value, document.Quote)
		case len(r.Settings) == 0:
			head += " {}"
		}
		if r.Comment != "" {
			head += " # " + strings.NewReplacer("\r", " ", "\n", " ").Replace(r.Comment)
		}
		line(0, head)
		for _, s := range r.Settings {
			if s.kind != document.KindMap || len(s.pairs) == 0 {
				line(1, document.Quote(s.Key)+": "+s.format(document.Quote))
				continue
			}
			line(1, document.Quote(s.Key)+":")
			for _, p := range s.pairs {
				line(2, document.Quote(p.Key)+": "+p.format(document.Quote))
			}
		}
	}
	return b.String()
}

// formatFlow returns the rows as entries in flow style.
func formatFlow(rows []Server, quote func(string) string) []string {
	out := make([]string, len(rows))
	for i, r := range rows {
		out[i] = quote(string(r.ID)) + ": " + formatPairs(r.Settings, quote)
		if r.value != nil {
			out[i] = quote(string(r.ID)) + ": " + formatNode(*r.value, quote)
		}
	}
	return out
}

// format returns the value in flow style.
func (s Setting) format(quote func(string) string) string {
	switch s.kind {
	case document.KindList:
		items := make([]string, len(s.items))
		for i, item := range s.items {
			items[i] = quote(item)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case document.KindMap:
		return formatPairs(s.pairs, quote)
	}
	return quote(s.text)
}

func formatPairs(pairs []Setting, quote func(string) string) string {
	out := make([]string, len(pairs))
	for i, p := range pairs {
		out[i] = quote(p.Key) + ": " + p.format(quote)
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// quoteJSON returns s as a text of JSON.
func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return document.Quote(s) // a string always has a JSON form
	}
	return string(b)
}

// Format returns a value in flow style.
func Format(n document.Node) string { return formatNode(n, document.Quote) }

func formatNode(n document.Node, quote func(string) string) string {
	switch n.Kind {
	case document.KindNull:
		return "null"
	case document.KindText:
		return quote(n.Text)
	case document.KindList:
		items := make([]string, len(n.Items))
		for i, item := range n.Items {
			items[i] = formatNode(item, quote)
		}
		return "[" + strings.Join(items, ", ") + "]"
	case document.KindMap:
		pairs := make([]string, len(n.Pairs))
		for i, p := range n.Pairs {
			pairs[i] = formatNode(p.Key, quote) + ": " + formatNode(p.Value, quote)
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}
	return n.Text // a number or a boolean, as it is spelled
}
