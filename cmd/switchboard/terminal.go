package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/summit-switchboard/switchboard/internal/scan"
)

// streams are the input and the outputs of a command.
type streams struct {
	in io.Reader

	// out and err are for people. What is not visible as itself is spelt out, because much of the text comes from servers, and a pager or a terminal reads it in the
	// end, also if they are a pipe.
	out, err io.Writer

	// raw is stdout as it is, for JSON and for protocols.
	raw io.Writer
}

func newStreams(in io.Reader, out, err *os.File) streams {
	return streams{in: in, out: newSpeller(out), err: newSpeller(err), raw: out}
}

// isTerminal says whether out is a terminal.
func (s streams) isTerminal() bool {
	return isTerminal(s.out)
}

func isTerminal(w io.Writer) bool {
	s, ok := w.(speller)
	return ok && s.terminal
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

// A speller spells out what is not visible as itself: see scan.SpellLines. Each write must hold whole characters.
type speller struct {
	w        io.Writer
	terminal bool
}

func newSpeller(f *os.File) speller {
	info, err := f.Stat()
	return speller{f, err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (s speller) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.w, scan.SpellLines(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// withoutSpelling returns the writer for data: on a terminal it is w, elsewhere nothing is spelt out. The results of tools are data, and so are the records of a log, which
// a handler has escaped, and which may be JSON.
func withoutSpelling(w io.Writer) io.Writer {
	if s, ok := w.(speller); ok && !s.terminal {
		return s.w
	}
	return w
}
