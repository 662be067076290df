package page

import "strings"

// withLineFeeds returns a text of a form with a line feed at the end of each line. Browsers send two characters.
func withLineFeeds(text string) string { return strings.ReplaceAll(text, "\r\n", "\n") }

// A textLine is a line of a text, and how it ends; "" is the end of the last line of a text without one.
type textLine struct{ text, end string }

func splitLines(text string) (all []textLine) {
	for text != "" {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(all, textLine{text: text})
		}
		end := text[i : i+1]
		if strings.HasPrefix(text[i:], "\r\n") {
			end = "\r\n"
		}
		all = append(all, textLine{text[:i], end})
		text = text[i+len(end):]
	}
	return all
}

// isLike reports whether two lines differ at most in how they end.
func (l textLine) isLike(o textLine) bool { return l.text == o.text && (l.end == "") == (o.end == "") }

// withLineEnds returns a typed text with the line ends of a file. The lines before and after the changed ones keep the ends that they have in the file. The changed
// ones get the end that most lines have.
func withLineEnds(typed, file string) string {
	if typed = withLineFeeds(typed); !strings.Contains(file, "\r") {
		return typed
	}
	lines, own := splitLines(typed), splitLines(file)
	short := min(len(lines), len(own))
	before, after := 0, 0
	for ; before < short && lines[before].isLike(own[before]); before++ {
		lines[before] = own[before]
	}
	for ; after < short-before && lines[len(lines)-1-after].isLike(own[len(own)-1-after]); after++ {
		lines[len(lines)-1-after] = own[len(own)-1-after]
	}
	most := "\n"
	if 2*strings.Count(file, "\r\n") >= len(own) {
		most = "\r\n"
	}
	for i := before; i < len(lines)-after; i++ {
		if lines[i].end != "" {
			lines[i].end = most
		}
	}
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text + l.end)
	}
	return b.String()
}
