// Package markdown shows the Markdown of our documents on a terminal.
//
// It decides how headings, lists, tables, code and links look, and knows only the Markdown that the documents use. It
// leaves the target of links to its caller. It is pure.
package markdown

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Options say how a text is shown.
type Options struct {
	// Width is the width of the terminal in characters. Code is never wrapped.
	Width int

	// Color uses bold and coloured text. Without it, marks in the text stay as they are written.
	Color bool

	// Link returns what is shown behind the text of a link, for its target; "" shows nothing. nil shows the target.
	Link func(target string) string
}

// minWidth is the width that a text gets on a narrower terminal.
const minWidth = 30

// Render returns the text as lines for a terminal.
func Render(text string, o Options) string {
	r := &renderer{Options: o}
	r.Width = max(r.Width, minWidth)
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for len(lines) > 0 {
		lines = lines[r.block(lines):]
	}
	return r.out.String()
}

type renderer struct {
	Options
	out strings.Builder
}

// The styles of a word. Each ends with reset.
const (
	bold    = "\x1b[1m"
	heading = "\x1b[1;4m"
	code    = "\x1b[36m"
	reset   = "\x1b[0m"
)

// fence begins and ends a block of code.
const fence = "```"

var listItem = regexp.MustCompile(`^( *)([*-]|\d+\.) +`)

// block writes the block at the start of lines, and returns its number of lines.
func (r *renderer) block(lines []string) int {
	line := lines[0]
	n := 1
	switch {
	case strings.TrimSpace(line) == "":
		r.out.WriteByte('\n')
	case strings.HasPrefix(line, fence):
		for ; n < len(lines) && !strings.HasPrefix(lines[n], fence); n++ {
			r.writeCode("    " + lines[n])
		}
		n = min(n+1, len(lines))
	case strings.HasPrefix(line, "    "):
		r.writeCode(line)
	case strings.HasPrefix(line, "#"):
		r.writeHeading(line)
	case strings.HasPrefix(line, "|"):
		for n < len(lines) && strings.HasPrefix(lines[n], "|") {
			n++
		}
		r.writeTable(lines[:n])
	default:
		for n < len(lines) && continues(lines[n]) {
			n++
		}
		mark := listItem.FindString(line)
		text := strings.TrimSpace(strings.TrimPrefix(strings.Join(lines[:n], " "), mark))
		hanging := strings.Repeat(" ", utf8.RuneCountInString(mark))
		r.wrap(r.inline(text, ""), strings.Replace(mark, "*", "-", 1), hanging)
	}
	return n
}

// continues says whether a line belongs to the paragraph before it.
func continues(line string) bool {
	trimmed := strings.TrimSpace(line)
	return trimmed != "" && !strings.HasPrefix(line, fence) && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "|") && !listItem.MatchString(line)
}

func (r *renderer) writeCode(line string) {
	r.out.WriteString(r.styled(code, line) + "\n")
}

func (r *renderer) writeHeading(line string) {
	text := strings.TrimLeft(line, "#")
	style := bold
	if len(line)-len(text) == 1 {
		style = heading
	}
	if !r.Color {
		r.out.WriteString(line + "\n")
		return
	}
	r.out.WriteString(r.styled(style, strings.ReplaceAll(strings.TrimSpace(text), "`", "")) + "\n")
}

// styled returns the text in a style, if there are colours.
func (r *renderer) styled(style, text string) string {
	if !r.Color || style == "" || strings.TrimSpace(text) == "" {
		return text
	}
	return style + text + reset
}

// A word is a text without a space, as it is written to the terminal, and its width there.
type word struct {
	text  string
	width int
}

var inlineMark = regexp.MustCompile("`[^`]+`|\\*\\*[^*]+\\*\\*|\\*[^*\\s][^*]*\\*|\\[[^\\]]*\\]\\([^)\\s]+\\)")

// inline returns the words of the text of one block. Text without a mark gets the style.
func (r *renderer) inline(text, style string) []word {
	var words []word
	joined := false // the next text belongs to the last word
	add := func(text, style string) {
		for i, part := range strings.Split(text, " ") {
			if i > 0 {
				joined = false
			}
			if part == "" {
				continue
			}
			if !joined {
				words = append(words, word{})
			}
			w := &words[len(words)-1]
			w.text, w.width, joined = w.text+r.styled(style, part), w.width+utf8.RuneCountInString(part), true
		}
	}
	for text != "" {
		at := inlineMark.FindStringIndex(text)
		if at == nil {
			add(text, style)
			break
		}
		add(text[:at[0]], style)
		r.addMarked(text[at[0]:at[1]], style, add)
		text = text[at[1]:]
	}
	return words
}

// addMarked adds a text that inlineMark matches.
func (r *renderer) addMarked(mark, style string, add func(text, style string)) {
	switch {
	case strings.HasPrefix(mark, "["):
		label, target, _ := strings.Cut(strings.TrimSuffix(mark[1:], ")"), "](")
		add(strings.ReplaceAll(label, "`", ""), style)
		shown := target
		if r.Link != nil {
			shown = r.Link(target)
		}
		if shown != "" {
			add(" (", "")
			add(shown, code)
			add(")", "")
		}
	case !r.Color:
		add(mark, "")
	case strings.HasPrefix(mark, "`"):
		add(strings.Trim(mark, "`"), code)
	default:
		add(strings.Trim(mark, "*"), bold)
	}
}

// wrap writes words as lines. The first line begins with first, each other line with rest.
func (r *renderer) wrap(words []word, first, rest string) {
	r.out.WriteString(first)
	used := utf8.RuneCountInString(first)
	for i, w := range words {
		switch {
		case i == 0:
		case used+1+w.width > r.Width:
			r.out.WriteString("\n" + rest)
			used = utf8.RuneCountInString(rest)
		default:
			r.out.WriteByte(' ')
			used++
		}
		r.out.WriteString(w.text)
		used += w.width
	}
	r.out.WriteByte('\n')
}

// writeTable writes a table with columns if they fit. Otherwise each row is a paragraph: its first cell, and the
// others below it, each behind the heading of its column.
func (r *renderer) writeTable(lines []string) {
	var rows [][]string
	for _, line := range lines {
		cells := splitRow(line)
		if !slices.ContainsFunc(cells, func(c string) bool { return strings.Trim(c, "-: ") != "" }) && len(rows) == 1 {
			continue // the line below the headings
		}
		rows = append(rows, cells)
	}
	widths := r.columnWidths(rows)
	total := 0
	for _, w := range widths {
		total += w + 2
	}
	if total-2 <= r.Width {
		for i, row := range rows {
			r.writeColumns(row, widths, i == 0)
		}
		return
	}
	titles := rows[0]
	for _, row := range rows[1:] {
		r.wrap(r.inline(row[0], bold), "", "  ")
		for i, cell := range row[1:] {
			title := ""
			if len(titles) > 2 && i+1 < len(titles) && titles[i+1] != "" {
				title = titles[i+1] + ": "
			}
			if cell != "" {
				r.wrap(r.inline(title+cell, ""), "    ", "    ")
			}
		}
	}
}

// splitRow returns the cells of a row of a table.
func splitRow(line string) []string {
	const bar = "\x00" // for an escaped bar
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, bar)
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), bar, "|")
	}
	return cells
}

// columnWidths returns the width of each column of the rows.
func (r *renderer) columnWidths(rows [][]string) []int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], r.lineWidth(r.inline(cell, "")))
		}
	}
	return widths
}

// lineWidth returns the width of words on one line.
func (r *renderer) lineWidth(words []word) int {
	n := max(len(words)-1, 0)
	for _, w := range words {
		n += w.width
	}
	return n
}

func (r *renderer) writeColumns(row []string, widths []int, isTitle bool) {
	var line strings.Builder
	for i, cell := range row {
		style := ""
		if isTitle {
			style = bold
		}
		words := r.inline(cell, style)
		for j, w := range words {
			if j > 0 {
				line.WriteByte(' ')
			}
			line.WriteString(w.text)
		}
		line.WriteString(strings.Repeat(" ", widths[i]-r.lineWidth(words)+2))
	}
	r.out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
}
