package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/scan"
)

// streams are what a command reads and writes.
type streams struct {
	in io.Reader

	// out and err are for people: where one is a terminal, nothing that is
	// written there makes it act. Much of it is servers' words.
	out, err io.Writer

	// raw is out as it is, for JSON and for protocols.
	raw io.Writer
}

func newStreams(in io.Reader, out, err *os.File) streams {
	return streams{in: in, out: forPeople(out), err: forPeople(err), raw: out}
}

// forPeople returns f, with control characters escaped where it is a terminal.
func forPeople(f *os.File) io.Writer {
	info, err := f.Stat()
	if err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return escaper{f}
	}
	return f
}

// An escaper shows control characters, and bytes that are no text, instead of
// sending them; line breaks and tabs stay. Each write is whole characters.
type escaper struct{ w io.Writer }

func (e escaper) Write(p []byte) (int, error) {
	if _, err := io.WriteString(e.w, escaped(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escaped(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0]) // some terminals act on single bytes
		case unicode.IsControl(r) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\x%02x`, r)
		case scan.Hidden(r) && !unicode.Is(unicode.Join_Control, r) && !unicode.Is(unicode.Variation_Selector, r) && r != '\n' && r != '\t':
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
