// Package completion completes words of a command line in a shell.
//
// It decides from the model of the command line what the last word may be: a command, a flag, a value of a flag or an
// argument. It leaves the values that depend on the configuration to its caller. scripts.go has a script for each shell; the script calls
// the program, and the shell filters and shows the candidates.
package completion

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// A Suggestion is a word that the last word may become.
type Suggestion struct{ Word, Help string }

// Paths says which paths the shell adds to the candidates.
type Paths string

// The values of Paths.
const (
	NoPaths Paths = "none"
	Files   Paths = "files"
	Folders Paths = "folders"
)

// An Answer is the answer for one command line.
type Answer struct {
	Candidates []Suggestion // all begin with Word
	Paths      Paths
	Word       string // the part of the last word that the candidates replace
	Before     string // the part of the last word in front of it: "--flag=", or ""

	// Replaced is the end of the last word that bash replaces. It begins behind a character such as = or :, unless the word is
	// quoted or the user has other breaks of words. If it is "", Write assumes the breaks that bash has by itself.
	Replaced string
}

// A Request asks for the values of one flag or argument.
type Request struct {
	Command string            // such as "receipts show"
	Name    string            // of the flag or argument
	Type    reflect.Type      // of the value, or of one of several values
	Word    string            // the beginning of the value
	Flags   map[string]string // the values of flags in front of it
	Args    []string          // the arguments in front of it
}

// Complete completes the last of the words that follow the name of the program. values returns the values that the
// configuration decides; they need not begin with Request.Word. ok is false if it knows none for this question.
func Complete(app *kong.Application, words []string, values func(Request) (found []Suggestion, ok bool)) Answer {
	if len(words) == 0 {
		words = []string{""}
	}
	l := &line{node: app.Node, flags: map[string]string{}, values: values}
	for _, word := range words[:len(words)-1] {
		l.pass(word)
	}
	r := l.complete(words[len(words)-1])
	r.Candidates = slices.DeleteFunc(r.Candidates, func(c Suggestion) bool { return !strings.HasPrefix(c.Word, r.Word) })
	r.Paths = cmp.Or(r.Paths, NoPaths)
	return r
}

// A line is the state of a command line behind some words.
type line struct {
	node   *kong.Node
	args   []string          // positional arguments so far
	wants  *kong.Flag        // the flag whose value is the next word; nil for none
	plain  bool              // behind "--"
	flags  map[string]string // the values of flags
	values func(Request) ([]Suggestion, bool)
}

// pass takes a word in front of the last one.
func (l *line) pass(word string) {
	switch {
	case l.wants != nil:
		l.flags[l.wants.Name] = word
		l.wants = nil
	case l.plain:
		l.args = append(l.args, word)
	case word == "--":
		l.plain = true
	case strings.HasPrefix(word, "-") && word != "-":
		name, value, given := strings.Cut(word, "=")
		f := l.findFlag(name)
		switch {
		case f == nil:
		case given:
			l.flags[f.Name] = value
		case !f.IsBool() && !f.IsCounter():
			l.wants = f
		}
	default:
		i := slices.IndexFunc(l.node.Children, func(c *kong.Node) bool { return c.Name == word || slices.Contains(c.Aliases, word) })
		if i < 0 {
			l.args = append(l.args, word)
			return
		}
		l.node = l.node.Children[i]
	}
}

// findFlag returns the flag of a word such as --json or -v; nil if the command has none of that name.
func (l *line) findFlag(word string) *kong.Flag {
	long, isLong := strings.CutPrefix(word, "--")
	for _, group := range l.node.AllFlags(false) {
		for _, f := range group {
			if isLong && f.Name == long || !isLong && f.Short != 0 && word == "-"+string(f.Short) {
				return f
			}
		}
	}
	return nil
}

// complete completes the last word.
func (l *line) complete(word string) Answer {
	if l.wants != nil {
		return l.completeValue(l.wants.Value, "", word)
	}
	if strings.HasPrefix(word, "-") && !l.plain {
		if name, value, ok := strings.Cut(word, "="); ok {
			if f := l.findFlag(name); f != nil {
				return l.completeValue(f.Value, name+"=", value)
			}
			return Answer{}
		}
		return Answer{Word: word, Candidates: l.listFlags()}
	}
	if len(l.node.Children) > 0 {
		if len(l.args) > 0 {
			return Answer{} // there is no such command
		}
		var found []Suggestion
		for _, c := range l.node.Children {
			if !c.Hidden {
				found = append(found, Suggestion{c.Name, c.Help})
			}
		}
		return Answer{Word: word, Candidates: found}
	}
	args := l.node.Positional
	switch {
	case len(l.args) < len(args):
		return l.completeValue(args[len(l.args)], "", word)
	case len(args) > 0 && args[len(args)-1].IsCumulative():
		return l.completeValue(args[len(args)-1], "", word)
	}
	return Answer{}
}

// listFlags returns the flags of the command that the line does not have yet.
func (l *line) listFlags() (found []Suggestion) {
	for _, group := range l.node.AllFlags(true) {
		for _, f := range group {
			if _, given := l.flags[f.Name]; !given || f.IsCumulative() {
				found = append(found, Suggestion{"--" + f.Name, f.Help})
			}
		}
	}
	return found
}

// completeValue completes the value of a flag or an argument.
func (l *line) completeValue(v *kong.Value, before, word string) Answer {
	r := Answer{Before: before, Word: word}
	t := v.Target.Type()
	if t.Kind() == reflect.Pointer || v.IsCumulative() {
		t = t.Elem()
	}
	var ok bool
	switch r.Candidates, ok = l.values(Request{l.node.Path(), v.Name, t, word, l.flags, l.args}); {
	case ok:
	case v.Enum != "":
		for _, word := range v.EnumSlice() {
			r.Candidates = append(r.Candidates, Suggestion{Word: word})
		}
	default:
		r.Paths = pathsOf(v)
	}
	return r
}

// pathsOf returns whether a value is a file or a folder, by its placeholder or its name.
func pathsOf(v *kong.Value) Paths {
	switch strings.ToUpper(cmp.Or(v.Tag.PlaceHolder, v.Name)) {
	case "FILE", "PATH":
		return Files
	case "DIR", "FOLDER":
		return Folders
	}
	return NoPaths
}

// Write writes the result for the script of a shell: a line with Paths, and then a line for each candidate with its help,
// if it has one, behind a tab.
func (r Answer) Write(w io.Writer, shell string) error {
	if _, err := fmt.Fprintln(w, r.Paths); err != nil {
		return err
	}
	cut := 0
	if word := r.Before + r.Word; shell == "bash" {
		cut = strings.LastIndexAny(word, "=:") + 1
		if r.Replaced != "" && strings.HasSuffix(word, r.Replaced) {
			cut = len(word) - len(r.Replaced)
		}
	}
	for _, c := range r.Candidates {
		text := (r.Before + c.Word)[cut:]
		if help := firstSentence(c.Help); help != "" && shell != "bash" {
			text += "\t" + help
		}
		if _, err := fmt.Fprintln(w, strings.ReplaceAll(text, "\n", " ")); err != nil {
			return err
		}
	}
	return nil
}

// firstSentence returns a help text as far as a list has room for it.
func firstSentence(help string) string {
	text, _, _ := strings.Cut(help, ". ")
	text, _, _ = strings.Cut(text, ": ")
	return strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
}

// SplitLine returns the words of a line of bash behind the name of the program. The last word is "" if the line ends in
// a space. Quotes and backslashes are those of bash; a quote without an end ends with the line.
func SplitLine(text string) []string {
	var words []string
	var word strings.Builder
	var quote rune
	escaped, began := false, false
	for _, r := range text {
		switch {
		case escaped:
			word.WriteRune(r)
			escaped = false
		case r == '\\' && quote != '\'':
			escaped, began = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, began = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if began || word.Len() > 0 {
				words = append(words, word.String())
			}
			word.Reset()
			began = false
		default:
			word.WriteRune(r)
		}
	}
	words = append(words, word.String())
	return words[min(1, len(words)):]
}
