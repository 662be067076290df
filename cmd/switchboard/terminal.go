package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/summit-switchboard/switchboard/internal/scan"
)

// streams are the input and the outputs of a command.
type streams struct {
	in io.Reader

	// out and err are for people. If one is a terminal, control characters written to it are escaped,
	// because much of the text comes from servers.
	out, err io.Writer

	// raw is stdout without escaping, for JSON and for protocols.
	raw io.Writer
}

func newStreams(in io.Reader, out, err *os.File) streams {
	return streams{in: in, out: escapeForTerminal(out), err: escapeForTerminal(err), raw: out}
}

// isTerminal says whether out is a terminal.
func (s streams) isTerminal() bool {
	_, ok := s.out.(escaper)
	return ok
}

// defaultWidth is the width of a terminal that does not say it.
const defaultWidth = 80

// width returns the width of the terminal in characters.
func (s streams) width() int {
	if f, ok := s.raw.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return defaultWidth
}

// leastHelpWidth is the width below which the columns of a help have no room for words.
const leastHelpWidth = 40

// helpWidth returns the most characters of a line of help; 0 if out is no terminal and sets no bound.
func (s streams) helpWidth() int {
	if !s.isTerminal() {
		return 0
	}
	return max(s.width(), leastHelpWidth)
}

// hasColor says whether out shows colours: it is a terminal that can, and the user wants them (https://no-color.org).
func (s streams) hasColor() bool {
	return s.isTerminal() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// escapeForTerminal returns f. If f is a terminal, control characters are escaped.
func escapeForTerminal(f *os.File) io.Writer {
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return escaper{f}
	}
	return f
}

// An escaper prints control characters and invalid UTF-8 as escapes. Line breaks and tabs stay. Each
// write must hold whole characters.
type escaper struct{ w io.Writer }

func (e escaper) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.w, escapeControls(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escapeControls(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0]) // some terminals interpret single bytes
		case unicode.IsControl(r) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, r)
		case scan.IsHidden(r) && !unicode.Is(unicode.Join_Control, r) && !unicode.Is(unicode.Variation_Selector, r) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
