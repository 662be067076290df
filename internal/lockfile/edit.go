package lockfile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// head begins a new file.
const head = `# What people have let in, and what they took out. Each line is a definition, its state, the person, the instant and the digest.
# "switchboard pins" and the page write the lines. Review them like code: switchboard docs admission

`

// SetAdmitted returns the text of the file with the pins, in the place of the pins of the same ids. All other bytes stay as they are, with their
// comments. A text of nil means that there is no file. Of two pins with one id, the later one counts. The error is switchboard.Faults if the text has
// faults, else it says which pin is wrong.
func SetAdmitted(text []byte, pins ...switchboard.AdmittedPin) ([]byte, error) {
	if err := checkAll(pins); err != nil {
		return nil, err
	}
	if text == nil {
		text = []byte(head + lastLine + "\n")
	}
	s, err := parse(Name, text)
	if err != nil {
		return nil, err
	}
	byID := map[switchboard.PinID]switchboard.AdmittedPin{}
	for _, p := range pins {
		p.At = p.At.Truncate(time.Second) // without the monotonic clock
		byID[p.PinID] = p
	}
	e := lockEdit{lockText: s, lineEnd: "\n"}
	if bytes.HasSuffix(text[:bytes.IndexByte(text, '\n')+1], []byte("\r\n")) {
		e.lineEnd = "\r\n"
	}
	for _, id := range slices.SortedFunc(maps.Keys(byID), ComparePins) {
		pin := byID[id]
		at, found := s.find(id)
		if found {
			old := s.entries[at]
			e.splice(old.start, old.stop, spellLine(&pin))
		} else {
			place := s.placeOf(at)
			e.splice(place, place, spellLine(&pin)+e.lineEnd)
		}
	}
	want := maps.Collect(s.pins())
	maps.Copy(want, byID)
	return e.finish(want)
}

// RemoveAdmitted returns the text of the file without the pins. All other bytes stay as they are, also the comments above a removed line. It is an
// error if a pin is not there.
func RemoveAdmitted(text []byte, ids ...switchboard.PinID) ([]byte, error) {
	if text == nil {
		text = []byte(head + lastLine + "\n")
	}
	s, err := parse(Name, text)
	if err != nil {
		return nil, err
	}
	want := maps.Collect(s.pins())
	e := lockEdit{lockText: s}
	for _, id := range slices.CompactFunc(slices.SortedFunc(slices.Values(ids), ComparePins), func(a, b switchboard.PinID) bool { return a == b }) {
		at, found := s.find(id)
		if !found {
			return nil, fmt.Errorf("%s is not in %s", Spell(id), Name)
		}
		e.splice(s.entries[at].start, s.entries[at].next, "")
		delete(want, id)
	}
	return e.finish(want)
}

// find returns the place of a pin among the entries, or the one where it would stand.
func (s *lockText) find(id switchboard.PinID) (at int, found bool) {
	return slices.BinarySearchFunc(s.entries, id, func(e lockLine, id switchboard.PinID) int { return ComparePins(e.pin.PinID, id) })
}

// pins yields the pins by their ids.
func (s *lockText) pins() func(yield func(switchboard.PinID, switchboard.AdmittedPin) bool) {
	return func(yield func(switchboard.PinID, switchboard.AdmittedPin) bool) {
		for i := range s.entries {
			if !yield(s.entries[i].pin.PinID, s.entries[i].pin) {
				return
			}
		}
	}
}

// placeOf returns the byte at which the line of a new entry begins. The entry gets the number at. The line stands directly behind the entry before: so
// the comments above the next entry stay with that entry.
func (s *lockText) placeOf(at int) int {
	if at > 0 {
		return s.entries[at-1].next
	}
	place := s.end
	if len(s.entries) > 0 {
		place = s.entries[0].start
	}
	// The comments directly above belong to the first entry, unless they are the head of the file.
	for above := place; above > 0; {
		above = bytes.LastIndexByte(s.text[:above-1], '\n') + 1
		if line, _, _ := bytes.Cut(s.text[above:place], []byte("\n")); len(bytes.TrimSpace(line)) == 0 {
			return above + len(line) + 1
		}
	}
	return place
}

// A lockEdit replaces parts of a text. The parts are in order, and do not overlap.
type lockEdit struct {
	*lockText
	lineEnd string
	out     bytes.Buffer
	at      int // the bytes before it are done
}

func (e *lockEdit) splice(start, stop int, text string) {
	e.out.Write(e.text[e.at:start])
	e.out.WriteString(text)
	e.at = stop
}

// finish returns the result. It is an error unless the result has exactly the pins that are wanted.
func (e *lockEdit) finish(want map[switchboard.PinID]switchboard.AdmittedPin) ([]byte, error) {
	e.out.Write(e.text[e.at:])
	is, err := Read(Name, e.out.Bytes())
	if err != nil {
		return nil, err
	}
	if !maps.Equal(is, want) {
		return nil, errors.New(Name + " cannot be edited without changing something else; edit it by hand")
	}
	return e.out.Bytes(), nil
}
