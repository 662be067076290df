// Package shown writes what a person reads before saying yes to a call: its arguments, complete and exact, and texts of servers and agents so that they can pretend
// nothing. It is pure. It decides how these look, and not who may see them.
//
// Arguments look like JSON in canonical form, on lines of at most about 80 columns:
//
//	{
//	  "body": "Dear all,\n
//	    | the invoice is paid.",
//	  "headers": {
//	    "authorization": "Bearer \masked{24}"
//	  },
//	  "to": "ops@x.org\u{202e}"
//	}
//
// A character that would not be visible as itself is \u{…}, with its number in Unicode. A credential is \masked{…}, with its length in characters. A text that
// continues on the next line goes on after "| ". A backslash of the text itself is \\, so no text can contain what looks like one of these, and the arguments
// can be read back from the lines.
package shown

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/redact"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxArguments is the length of the longest arguments that are shown, in canonical form and in bytes. A person cannot decide about longer ones.
const MaxArguments = 256 << 10

const (
	lineWidth = 76 // columns of a line, without its indent
	maxIndent = 20 // columns
	maxMarks  = 3  // combining marks after one character that are shown as themselves

	maskColumns = len(`\masked{000000}`) // of the longest mask
)

// Arguments are the arguments of a call, for a person.
type Arguments struct {
	Text string // see the package; without a line feed at its end

	// Masked are JSON Pointers (RFC 6901) to the values that are credentials or have one in them, escaped as texts are; a name with a credential has the pointer
	// of its member.
	Masked []string

	Digest switchboard.Digest // of the canonical form
}

// WriteArguments shows arguments. The error is a *switchboard.Error: they are longer than MaxArguments, or no JSON in the strict form.
func WriteArguments(raw []byte) (*Arguments, error) {
	w, err := newArgumentWriter(raw)
	if err != nil {
		return nil, err
	}
	w.writeValue(w.form, place{})
	return &Arguments{Text: w.out.String(), Masked: w.masked, Digest: canonical.Sum(w.form)}, nil
}

func newArgumentWriter(raw []byte) (*argumentWriter, error) {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	form, err := canonical.Append(nil, raw)
	switch {
	case err != nil:
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "the arguments cannot be shown to a person: " + err.Error(), Unsent: true}
	case len(form) > MaxArguments:
		return nil, &switchboard.Error{
			Code: switchboard.CodeBadArguments, Text: fmt.Sprintf("the arguments have %d bytes, and a person can approve at most %d", len(form), MaxArguments),
			Hint: "make several calls with less in each, or pass the name of a file or page in place of its text", Unsent: true,
		}
	}
	return &argumentWriter{form: form, credentials: redact.FindCredentials(form)}, nil
}

// An argumentWriter writes one value. Its indent is that of the open objects and arrays, up to maxIndent.
type argumentWriter struct {
	form        []byte
	credentials *redact.CredentialFinder

	out    strings.Builder
	column int // of the present line, without its indent
	depth  int

	masked  []string
	secrets []string // what each mask stands for, in order; a test puts them back
}

// A place is where a value is.
type place struct {
	name    string // of the member that holds it; an element has that of its array
	pointer string // JSON Pointer
}

func (w *argumentWriter) put(text string, columns int) {
	w.out.WriteString(text)
	w.column += columns
}

func (w *argumentWriter) newLine(extra int) {
	w.out.WriteByte('\n')
	w.out.WriteString(strings.Repeat(" ", min(2*(w.depth+extra), maxIndent)))
	w.column = 0
}

func (w *argumentWriter) writeValue(raw []byte, at place) {
	switch raw[0] {
	case '{':
		w.writeObject(raw, at)
	case '[':
		w.writeArray(raw, at)
	case '"':
		text, _ := wire.String(raw) // it is in canonical form
		w.writeText(text, at, false)
	case 't', 'f', 'n':
		w.put(string(raw), len(raw))
	default:
		if w.credentials.Number(string(raw), at.name) {
			w.mask(string(raw), at)
			return
		}
		w.put(string(raw), len(raw))
	}
}

func (w *argumentWriter) writeObject(raw []byte, at place) {
	if len(raw) == len("{}") {
		w.put("{}", 2)
		return
	}
	w.put("{", 1)
	w.depth++
	first := true
	for name, value := range wire.Members(raw) {
		if !first {
			w.put(",", 1)
		}
		first = false
		member := place{name, at.pointer + "/" + pointerToken(name)}
		w.newLine(0)
		w.writeText(name, place{"", member.pointer}, true)
		w.put(": ", 2)
		w.writeValue(value, member)
	}
	w.depth--
	w.newLine(0)
	w.put("}", 1)
}

// writeArray writes an array. Texts, objects and arrays with elements get lines of their own; short values share lines.
func (w *argumentWriter) writeArray(raw []byte, at place) {
	if len(raw) == len("[]") {
		w.put("[]", 2)
		return
	}
	w.put("[", 1)
	w.depth++
	n, short := 0, false
	for value := range wire.Elements(raw) {
		wasShort := short
		if short = isShort(value); n > 0 {
			w.put(",", 1)
		}
		if short && wasShort && w.column+len(value) < lineWidth {
			w.put(" ", 1)
		} else {
			w.newLine(0)
		}
		w.writeValue(value, place{at.name, at.pointer + "/" + strconv.Itoa(n)})
		n++
	}
	w.depth--
	w.newLine(0)
	w.put("]", 1)
}

func isShort(raw []byte) bool {
	return raw[0] != '"' && (raw[0] != '{' && raw[0] != '[' || len(raw) == 2)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointerToken(name string) string { return pointerEscapes.Replace(name) }

// mask writes a mask for a credential.
func (w *argumentWriter) mask(secret string, at place) {
	w.secrets = append(w.secrets, secret)
	if pointer := w.safePointer(at.pointer); len(w.masked) == 0 || w.masked[len(w.masked)-1] != pointer {
		w.masked = append(w.masked, pointer)
	}
	text := `\masked{` + strconv.Itoa(utf8.RuneCountInString(secret)) + `}`
	w.put(text, len(text))
}

// safePointer returns a pointer as it is shown: credentials may be in the names that it consists of.
func (w *argumentWriter) safePointer(pointer string) string {
	var b strings.Builder
	from := 0
	for _, p := range w.credentials.Positions(pointer, "") {
		b.WriteString(Line(pointer[from:p[0]]))
		b.WriteString(`\masked{` + strconv.Itoa(utf8.RuneCountInString(pointer[p[0]:p[1]])) + `}`)
		from = p[1]
	}
	b.WriteString(Line(pointer[from:]))
	return b.String()
}

// writeText writes a text, or the name of a member. In a name, letters that are written from right to left are escaped too: beside a value of such letters, a terminal could
// exchange the two.
func (w *argumentWriter) writeText(text string, at place, isName bool) {
	w.put(`"`, 1)
	from := 0
	for _, p := range w.credentials.Positions(text, at.name) {
		w.writePart(text[from:p[0]], p[0] == len(text), isName)
		w.breakLine(maskColumns)
		w.mask(text[p[0]:p[1]], at)
		from = p[1]
	}
	w.writePart(text[from:], true, isName)
	w.put(`"`, 1)
}

// breakLine continues the text on the next line if n columns have no place on this one.
func (w *argumentWriter) breakLine(n int) {
	if w.column+n > lineWidth {
		w.continueText()
	}
}

func (w *argumentWriter) continueText() {
	w.newLine(1)
	w.put("| ", 2)
}

// writePart writes a part of a text without credentials. ends says that nothing follows it in the text.
func (w *argumentWriter) writePart(text string, ends, isName bool) {
	var e escapeState
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		shown, columns := e.show(r, isName)
		w.breakLine(columns)
		if r == ' ' && w.column+columns+e.nextColumns(text[i:], ends, isName) > lineWidth {
			shown, columns = escape(r) // at the end of a line it would be invisible
		}
		w.put(shown, columns)
		if r == '\n' && (i < len(text) || !ends) {
			w.continueText()
		}
	}
}

// nextColumns returns how many columns what follows needs on the same line.
func (e escapeState) nextColumns(rest string, ends, isName bool) (columns int) {
	switch {
	case rest != "":
		r, _ := utf8.DecodeRuneInString(rest)
		_, columns = e.show(r, isName)
	case !ends:
		columns = maskColumns
	}
	return columns
}

// An escapeState helps to show the characters of a text one after the other.
type escapeState struct{ marks int } // combining marks since the last other character

// show returns a character as it is shown, and its width in columns.
func (e *escapeState) show(r rune, isName bool) (text string, columns int) {
	mark := unicode.In(r, unicode.M)
	if !mark {
		e.marks = 0
	} else if e.marks++; e.marks > maxMarks { // they cover the lines above and below
		return escape(r)
	}
	switch {
	case r == '"', r == '\\':
		return `\` + string(r), 2
	case r == '\n':
		return `\n`, 2
	case r == '\t':
		return `\t`, 2
	case scan.IsHidden(r), !unicode.IsPrint(r), r == utf8.RuneError, r == 0x2800, // a braille pattern without dots
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector), isName && isRightToLeft(r):
		return escape(r)
	case mark:
		return string(r), 0
	case isWide(r):
		return string(r), 2
	}
	return string(r), 1
}

func escape(r rune) (text string, columns int) {
	text = `\u{` + strconv.FormatInt(int64(r), 16) + `}`
	return text, len(text)
}

// isRightToLeft reports whether the character is in a block of Unicode for scripts that are written from right to left.
func isRightToLeft(r rune) bool {
	return r >= 0x590 && r <= 0x8ff || r >= 0xfb1d && r <= 0xfdff || r >= 0xfe70 && r <= 0xfeff || r >= 0x10800 && r <= 0x10fff || r >= 0x1e800 && r <= 0x1efff
}

// isWide reports whether terminals show the character in two columns, or may do so.
func isWide(r rune) bool {
	return r >= 0x1100 && r <= 0x115f || r >= 0x2e80 && r <= 0xd7ff || r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
		r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f000 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd
}

// Line shows a text of an agent, a server or a person on one line: what is not visible as itself is escaped, line feeds too.
func Line(text string) string {
	if isPlain(text) {
		return text
	}
	return writeLine(text, '"')
}

// LineOfJSON is like Line for a line of JSON that is shown as JSON: backslashes are its own, and stay.
func LineOfJSON(text string) string { return writeLine(text, '"', '\\') }

// writeLine shows a text on one line. The characters that stay are not escaped.
func writeLine(text string, stay ...rune) string {
	var b strings.Builder
	var e escapeState
	for _, r := range text {
		if slices.Contains(stay, r) {
			b.WriteRune(r)
			continue
		}
		shown, _ := e.show(r, false)
		b.WriteString(shown)
	}
	return b.String()
}

// isPlain reports whether the text has only characters of ASCII that stay as they are; most texts have no others.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' || text[i] == '\\' {
			return false
		}
	}
	return true
}

// maxWords limits the text of a server that is shown, in bytes.
const maxWords = 4 << 10

// Words shows a text of a server: deceptive characters are removed, and it has at most about 4 KiB. cut says that there is more.
func Words(text string) (lines string, cut bool) {
	text, _ = scan.Clean(text)
	if cut = len(text) > maxWords; cut {
		text = strings.ToValidUTF8(text[:maxWords], "")
	}
	var b bytes.Buffer
	var e escapeState
	for _, r := range text {
		if r == '\n' || r == '"' || r == '\\' {
			b.WriteRune(r)
			continue
		}
		shown, _ := e.show(r, false)
		b.WriteString(shown)
	}
	return strings.TrimSpace(b.String()), cut
}

// Wrap breaks a line, as Line or a line of Words, into lines of at most so many columns, so that no terminal breaks it: a text could look then as if it were ours. It breaks at spaces
// where it can.
func Wrap(text string, columns int) (lines []string) {
	from, space, width := 0, -1, 0 // of the line that begins at from
	var e escapeState
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		_, w := e.show(r, false)
		if r == '"' || r == '\\' {
			w = 1
		}
		if width+w > columns && i > from {
			end, next := i, i
			if space > from {
				end, next = space, space+1
			}
			lines = append(lines, text[from:end])
			from, space, width, i = next, -1, 0, next
			continue
		}
		if r == ' ' {
			space = i
		}
		width += w
		i += size
	}
	return append(lines, text[from:])
}
