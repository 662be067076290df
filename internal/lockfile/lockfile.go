// Package lockfile reads and edits the file admitted.lock. The file lists the definitions of tools, prompts and templates, and the instructions and handshakes of servers,
// that people have let in or have taken out.
//
// The file has one line for each pin, and the lines are sorted. So a change is one line in a diff, and people who change pins of different
// servers get no conflict:
//
//	# Comments and empty lines may stand anywhere above the last line.
//	brave handshake active ann 2026-05-03T10:00:00Z d1:…
//	brave instructions active ann 2026-05-03T10:00:00Z d1:…
//	brave prompt review active ann 2026-05-03T10:00:00Z d1:…
//	brave template file:///{path} active ann 2026-05-03T10:00:00Z d1:…
//	brave/find deprecated ann 2026-05-03T10:00:00Z d1:… successor brave/search
//	brave/search active ann 2026-05-03T10:00:00Z d1:…
//	end
//
// A line has the pin, its state, the person, the instant, and the digest of the definition. One space is between two words. A word that has spaces or
// characters other than those of ASCII is a quoted text in which these characters are spelt out: a name that only looks like another one does not
// look like it here. The line "end" is always last: without it, a file that was cut off would let in again what a person took out.
//
// Each list of pins has one spelling. So Read accepts only what SetAdmitted writes, except for comments, empty lines and the kind of line ends.
//
// What the states mean, and how a digest is made, is for package admission. Package change writes the file.
package lockfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Name is the name of the file. It stands beside the main file of the configuration.
const Name = "admitted.lock"

// Limits of the file.
const (
	MaxBytes = 8 << 20
	MaxPins  = 20_000
	maxLine  = 8 << 10
	maxWho   = 256 // bytes
)

// lastLine ends the file.
const lastLine = "end"

// states are the states that a pin can have in the file.
var states = []switchboard.LifeState{
	switchboard.LifeTesting, switchboard.LifeActive, switchboard.LifeDeprecated, switchboard.LifeRetired, switchboard.LifeSuspended,
}

// Read returns the pins of the file. file names it in faults. The error is switchboard.Faults, and holds all that is wrong.
func Read(file string, text []byte) (map[switchboard.PinID]switchboard.AdmittedPin, error) {
	s, err := parse(file, text)
	if err != nil {
		return nil, err
	}
	pins := make(map[switchboard.PinID]switchboard.AdmittedPin, len(s.entries))
	for _, e := range s.entries {
		pins[e.pin.PinID] = e.pin
	}
	return pins, nil
}

// Places returns the number of the line of each pin. The text must be one that Read accepts.
func Places(text []byte) map[switchboard.PinID]int {
	s, err := parse(Name, text)
	if err != nil {
		return nil
	}
	places := make(map[switchboard.PinID]int, len(s.entries))
	for _, e := range s.entries {
		places[e.pin.PinID] = e.line
	}
	return places
}

// ComparePins orders pins as the file does: by server, kind and name, as bytes.
func ComparePins(a, b switchboard.PinID) int {
	return cmp.Or(strings.Compare(string(a.Server), string(b.Server)), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Name, b.Name))
}

// A lockText is a parsed file.
type lockText struct {
	text    []byte
	entries []lockLine // sorted
	end     int        // where the last line begins
}

// A lockLine is one line with a pin.
type lockLine struct {
	pin         switchboard.AdmittedPin
	line        int // counted from 1
	start, stop int // of the text of the line, without its end
	next        int // where the next line begins
}

// A lineReader is the state of parsing a file.
type lineReader struct {
	sink *document.Sink
	file string
	line int
	raw  string // the text of the line
}

// fault reports what is wrong with the line, at a byte of it.
func (r *lineReader) fault(at int, format string, args ...any) {
	at = min(at, len(r.raw))
	r.sink.Add(switchboard.Fault{File: r.file, Line: r.line, Column: utf8.RuneCountInString(r.raw[:at]) + 1, Text: fmt.Sprintf(format, args...)})
}

const remedy = `put the line back as Switchboard wrote it, or remove it and accept the definition again: switchboard pins accept`

// parse reads the lines, and reports all that is wrong with them.
func parse(file string, text []byte) (*lockText, error) {
	r := &lineReader{sink: &document.Sink{}, file: file, line: 1}
	s := &lockText{text: text, end: -1}
	if len(text) > MaxBytes {
		r.fault(0, "the file has %d bytes; at most %d are read", len(text), MaxBytes)
		return nil, r.sink.Err(file)
	}
	first := map[switchboard.PinID]int{} // lines
	at, endLine, cut, last := 0, 0, false, lockLine{}
	for raw := range bytes.Lines(text) {
		e := lockLine{line: r.line, start: at, next: at + len(raw)}
		body, complete := bytes.CutSuffix(raw, []byte("\n"))
		body = bytes.TrimSuffix(body, []byte("\r"))
		e.stop = at + len(body)
		r.raw = string(body)
		if len(r.sink.Faults) >= document.MaxFaults {
			faults := append(r.sink.Faults, switchboard.Fault{File: file, Line: r.line, Column: 1, Text: "what is wrong from this line on is not listed"})
			return nil, document.SortFaults(faults)
		}
		switch {
		case s.end >= 0 && r.raw != "":
			r.fault(0, "%q is the last line, at line %d, and something stands behind it; remove one of the two", lastLine, endLine)
		case !complete && r.raw != lastLine:
			cut = true
			r.fault(len(r.raw), "the file is cut off within this line; put the file back as it was")
		case r.raw == "":
		case r.raw == lastLine:
			s.end, endLine = at, r.line
		case r.raw[0] == '#':
			r.checkComment()
		case len(first) == MaxPins:
			r.fault(0, "the file has more than %d pins", MaxPins)
			return nil, r.sink.Err(file)
		default:
			pin, ok := r.readPin()
			if !ok {
				break
			}
			e.pin = pin
			if line, again := first[pin.PinID]; again {
				r.fault(0, "%s stands here twice, first at line %d; remove one of the two", Spell(pin.PinID), line)
				break
			}
			if last.line > 0 && ComparePins(last.pin.PinID, pin.PinID) > 0 {
				r.fault(0, "%s must stand before %s, at line %d: the lines are sorted by server, kind and name, so that each change is one line", Spell(pin.PinID), Spell(last.pin.PinID), last.line)
			} else {
				last = e
			}
			first[pin.PinID] = r.line
			s.entries = append(s.entries, e)
		}
		at = e.next
		r.line++
	}
	if s.end < 0 && !cut {
		r.raw = ""
		r.line = max(1, r.line-1)
		r.fault(0, "the file is cut off: its last line must be %q, so that no pin is missed; put the file back as it was", lastLine)
	}
	return s, r.sink.Err(file)
}

// checkComment reports characters that a reader of the file does not see, or sees elsewhere.
func (r *lineReader) checkComment() {
	if i := strings.IndexFunc(r.raw, func(c rune) bool { return c != '\t' && !unicode.IsPrint(c) || c == utf8.RuneError }); i >= 0 {
		r.fault(i, "the comment has a character that cannot be seen; remove it")
	}
}

// A lineWord is a word of a line.
type lineWord struct {
	text string
	at   int // the byte of the line where it begins
}

// words splits the line. If ok is false, it has reported why it cannot.
func (r *lineReader) words() (all []lineWord, ok bool) {
	if len(r.raw) > maxLine {
		r.fault(0, "the line has %d bytes; at most %d are read", len(r.raw), maxLine)
		return nil, false
	}
	for at := 0; ; at++ {
		rest := r.raw[at:]
		w := lineWord{at: at}
		length := 0
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				r.fault(at, "a quoted text begins here and does not end: %s", remedy)
				return nil, false
			}
			w.text, _ = strconv.Unquote(quoted) // QuotedPrefix has checked it
			if want := spellWord(w.text); want != quoted {
				r.fault(at, "this text is written %s: %s", want, remedy)
				return nil, false
			}
			length = len(quoted)
		} else {
			if length = strings.IndexByte(rest, ' '); length < 0 {
				length = len(rest)
			}
			w.text = rest[:length]
			if i := strings.IndexFunc(w.text, func(c rune) bool { return !isBare(c) }); i >= 0 {
				r.fault(at+i, "a text with such a character is quoted, and the character is spelt out: %s", remedy)
				return nil, false
			}
			if w.text == "" {
				r.fault(at, "one space is between two words, and none at the end of the line: %s", remedy)
				return nil, false
			}
		}
		all = append(all, w)
		if at += length; at == len(r.raw) {
			return all, true
		}
		if r.raw[at] != ' ' {
			r.fault(at, "a space must stand behind a quoted text: %s", remedy)
			return nil, false
		}
	}
}

// isBare reports whether a word that is not quoted may have the character.
func isBare(c rune) bool { return c > ' ' && c < 0x7f }

// spellWord returns a text as a word of the file.
func spellWord(s string) string {
	if s == "" || s[0] == '"' || s[0] == '#' || strings.ContainsFunc(s, func(c rune) bool { return !isBare(c) }) {
		return strconv.QuoteToASCII(s)
	}
	return s
}

// Spell returns the pin as it stands in the file. It is PinID.String with all but the characters of ASCII spelt out.
func Spell(id switchboard.PinID) string {
	switch {
	case id.Kind == switchboard.PinTool:
		return spellWord(string(id.Server) + "/" + id.Name)
	case id.Kind.OfServer():
		return spellWord(string(id.Server)) + " " + string(id.Kind)
	}
	return spellWord(string(id.Server)) + " " + string(id.Kind) + " " + spellWord(id.Name)
}

// spellLine returns the line of a pin, without its end.
func spellLine(p *switchboard.AdmittedPin) string {
	s := Spell(p.PinID) + " " + string(p.State) + " " + spellWord(p.By) + " " + p.At.Format(timeLayout) + " " + p.Digest
	if p.Successor != "" {
		s += " successor " + spellWord(p.Successor)
	}
	return s
}

// timeLayout is RFC 3339 in UTC, to the second.
const timeLayout = "2006-01-02T15:04:05Z"

// readPin reads the line as a pin.
func (r *lineReader) readPin() (pin switchboard.AdmittedPin, ok bool) {
	all, ok := r.words()
	if !ok {
		return pin, false
	}
	take := func() (w lineWord) { // the next word; at the end of the line, one without text
		if len(all) == 0 {
			return lineWord{at: len(r.raw)}
		}
		w, all = all[0], all[1:]
		return w
	}
	faults := len(r.sink.Faults)
	id := take()
	pin.PinID, ok = readTool(id.text)
	if !ok {
		pin.Server = switchboard.ServerID(id.text)
		kind := take()
		switch pin.Kind = switchboard.PinKind(kind.text); pin.Kind {
		case switchboard.PinPrompt, switchboard.PinTemplate:
			pin.Name = take().text
		case switchboard.PinInstructions, switchboard.PinHandshake:
		default:
			r.fault(id.at, "a line begins with SERVER/TOOL, or with SERVER and one of prompt, template, instructions and handshake: %s", remedy)
			return pin, false
		}
	}
	state, who, when, digest := take(), take(), take(), take()
	pin.State, pin.By, pin.Digest = switchboard.LifeState(state.text), who.text, digest.text
	if len(all) > 0 && all[0].text == "successor" {
		take()
		next := take()
		if pin.Successor = next.text; pin.Successor == "" {
			r.fault(next.at, "a successor is SERVER/TOOL, and the line ends here: %s", remedy)
		}
	}
	if len(all) > 0 {
		r.fault(all[0].at, "nothing is read behind the digest and the successor: %s", remedy)
	}
	var err error
	if pin.At, err = time.Parse(timeLayout, when.text); err != nil || pin.At.Format(timeLayout) != when.text {
		r.fault(when.at, "%s is no instant in UTC such as %s: %s", document.Shown(when.text), timeLayout, remedy)
		pin.At = time.Unix(0, 0).UTC()
	}
	for _, wrong := range check(&pin) {
		at := map[linePart]lineWord{partID: id, partState: state, partWho: who, partDigest: digest}[wrong.part]
		if wrong.part == partSuccessor {
			at.at = strings.LastIndex(r.raw, " successor ") + 1
		}
		r.fault(at.at, "%s", wrong.text)
	}
	return pin, len(r.sink.Faults) == faults
}

// readTool reads SERVER/TOOL.
func readTool(s string) (switchboard.PinID, bool) {
	server, name, ok := strings.Cut(s, "/")
	return switchboard.PinID{Server: switchboard.ServerID(server), Kind: switchboard.PinTool, Name: name}, ok
}

// A linePart is a part of a line.
type linePart int

const (
	partID linePart = iota
	partState
	partWho
	partWhen
	partDigest
	partSuccessor
)

// A wrongPart says what is wrong with a part of a line.
type wrongPart struct {
	part linePart
	text string
}

// check returns what is wrong with a pin.
func check(p *switchboard.AdmittedPin) (all []wrongPart) {
	wrong := func(of linePart, format string, args ...any) {
		all = append(all, wrongPart{of, fmt.Sprintf(format, args...)})
	}
	if err := switchboard.CheckID(string(p.Server)); err != nil {
		wrong(partID, "%v", err)
	}
	switch p.Kind {
	case switchboard.PinTool, switchboard.PinPrompt, switchboard.PinTemplate:
		if p.Name == "" || !utf8.ValidString(p.Name) {
			wrong(partID, "a %s has a name, in UTF-8", p.Kind)
		}
	case switchboard.PinInstructions, switchboard.PinHandshake:
		if p.Name != "" {
			wrong(partID, "the %s of a server has no name", p.Kind)
		}
	default:
		wrong(partID, "%s is no kind of a pin", document.Shown(string(p.Kind)))
	}
	if !slices.Contains(states, p.State) {
		known := make([]string, len(states))
		for i, s := range states {
			known[i] = string(s)
		}
		wrong(partState, "%s is no state%s", document.Shown(string(p.State)), document.Suggestion(string(p.State), "states", known))
	}
	if p.By == "" || len(p.By) > maxWho || !utf8.ValidString(p.By) {
		wrong(partWho, "the person has a name of at most %d bytes, in UTF-8", maxWho)
	}
	if year := p.At.Year(); p.At.Location() != time.UTC || p.At.Nanosecond() != 0 || year < 1 || year > 9999 {
		wrong(partWhen, "the instant is in UTC, to the second")
	}
	if why := checkDigest(p.Digest); why != "" {
		wrong(partDigest, "%s", why)
	}
	if p.Successor != "" {
		if _, err := switchboard.ParseToolID(p.Successor); err != nil || !utf8.ValidString(p.Successor) {
			wrong(partSuccessor, "the successor %s is not of the form SERVER/TOOL", document.Shown(p.Successor))
		}
		switch {
		case p.Kind != switchboard.PinTool || p.State != switchboard.LifeDeprecated && p.State != switchboard.LifeRetired:
			wrong(partSuccessor, "only a tool that is deprecated or retired has a successor")
		case p.Successor == p.String():
			wrong(partSuccessor, "a tool cannot be its own successor")
		}
	}
	return all
}

// checkDigest returns what is wrong with a digest, or "".
func checkDigest(s string) string {
	_, err := switchboard.ParseDefinitionDigest(s)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, switchboard.ErrScheme):
		scheme, _, _ := strings.Cut(s, ":")
		return document.Shown(scheme) + " is no scheme of digests that this Switchboard knows; it knows d1 and d2. A newer one may have written the file"
	}
	return document.Shown(s) + " is no digest: " + err.Error() + "; put it back as it was"
}

// checkAll returns what is wrong with pins.
func checkAll(pins []switchboard.AdmittedPin) error {
	for i := range pins {
		p := &pins[i]
		if wrong := check(p); wrong != nil {
			return errors.New(Spell(p.PinID) + ": " + wrong[0].text)
		}
		if n := len(spellLine(p)); n > maxLine {
			return fmt.Errorf("%s…: its line would have %d bytes; at most %d are read", Spell(p.PinID)[:64], n, maxLine)
		}
	}
	return nil
}
