package shape

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A valueReader returns a value as clients get it: the same bytes if nothing has to be repaired, or nil if the member is left out.
// The value is not empty, and has no space around it.
type valueReader func(value []byte) ([]byte, *Misfit)

// A member is a known member of an object.
type member struct {
	name     string
	read     valueReader
	required bool

	// instead returns the value of a member that is absent or null, or nil to leave it out. A nil instead leaves it out, too.
	instead func(object []byte) []byte
}

// The knownMembers are those that the protocol knows in an object. The others stay as they are.
type knownMembers []member

// read is a valueReader.
func (o knownMembers) read(value []byte) ([]byte, *Misfit) {
	if value[0] != '{' {
		return nil, misfitOf(value, "an object")
	}
	var edits []wire.Edit
	var seen uint64 // the members that need no value instead
	for name, v := range wire.MembersAsBytes(value) {
		i := slices.IndexFunc(o, func(m member) bool { return m.name == string(name) })
		if i < 0 {
			continue
		}
		m := &o[i]
		if string(v) == "null" && !m.required {
			if m.instead == nil {
				edits = append(edits, wire.Edit{Name: m.name})
			}
			continue
		}
		seen |= 1 << i
		now, misfit := m.read(v)
		if misfit != nil {
			return nil, misfit.within(m.name)
		}
		if !bytes.Equal(now, v) {
			edits = append(edits, wire.Edit{Name: m.name, Value: now})
		}
	}
	for i := range o {
		m := &o[i]
		switch {
		case seen&(1<<i) != 0:
		case m.required:
			return nil, &Misfit{m.name, "is missing"}
		case m.instead != nil:
			if now := m.instead(value); now != nil {
				edits = append(edits, wire.Edit{Name: m.name, Value: now})
			}
		}
	}
	if len(edits) == 0 || len(edits) > len(o) { // so many only if names occur twice, and then Repair changes nothing
		return value, nil
	}
	return wire.Rewrite(nil, value, edits...), nil
}

// copyOf returns the value of another member of the object.
func copyOf(name string) func(object []byte) []byte {
	return func(object []byte) []byte {
		value, _ := wire.Field(object, name)
		return value
	}
}

// readList returns a function that reads lists with such elements.
func readList(read valueReader) valueReader {
	return func(value []byte) ([]byte, *Misfit) {
		if value[0] != '[' {
			return nil, misfitOf(value, "a list")
		}
		i, same := 0, true
		for e := range wire.Elements(value) {
			now, misfit := read(e)
			if misfit != nil {
				return nil, misfit.within("[" + strconv.Itoa(i) + "]")
			}
			i, same = i+1, same && bytes.Equal(now, e)
		}
		if same {
			return value, nil
		}
		list := []byte("[")
		for e := range wire.Elements(value) {
			now, _ := read(e)
			if len(list) > 1 {
				list = append(list, ',')
			}
			list = append(list, now...)
		}
		return append(list, ']'), nil
	}
}

// leaveOut returns a function that leaves out what the other one cannot repair.
func leaveOut(read valueReader) valueReader {
	return func(value []byte) ([]byte, *Misfit) {
		now, misfit := read(value)
		if misfit != nil {
			return nil, nil
		}
		return now, nil
	}
}

func readText(value []byte) ([]byte, *Misfit) {
	if value[0] != '"' {
		return nil, misfitOf(value, "a string")
	}
	return value, nil
}

func readBoolean(value []byte) ([]byte, *Misfit) {
	if value[0] != 't' && value[0] != 'f' {
		return nil, misfitOf(value, "a boolean")
	}
	return value, nil
}

// readOneOf returns a function that leaves out texts other than the words.
func readOneOf(words ...string) valueReader {
	return func(value []byte) ([]byte, *Misfit) {
		if value[0] != '"' {
			return nil, misfitOf(value, "a string")
		}
		if text, _ := wire.String(value); !slices.Contains(words, text) {
			return nil, nil
		}
		return value, nil
	}
}

func readRole(value []byte) ([]byte, *Misfit) {
	if now, misfit := readOneOf("user", "assistant")(value); misfit != nil || now != nil {
		return now, misfit
	}
	return nil, &Misfit{Reason: `is neither "user" nor "assistant"`}
}

// readSize leaves out numbers that are no 64-bit integers, because clients in some languages can read no others.
func readSize(value []byte) ([]byte, *Misfit) {
	if !isNumber(value) {
		return nil, misfitOf(value, "a number")
	}
	if _, err := strconv.ParseInt(string(value), 10, 64); err != nil {
		return nil, nil
	}
	return value, nil
}

// readPriority leaves out numbers outside of 0 to 1.
func readPriority(value []byte) ([]byte, *Misfit) {
	if !isNumber(value) {
		return nil, misfitOf(value, "a number")
	}
	if p, err := strconv.ParseFloat(string(value), 64); err != nil || p < 0 || p > 1 {
		return nil, nil
	}
	return value, nil
}

// readTime leaves out texts that are no timestamp with an offset, such as 2026-12-01T15:00:00Z.
func readTime(value []byte) ([]byte, *Misfit) {
	text, ok := wire.String(value)
	if !ok {
		return nil, misfitOf(value, "a string")
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil, nil
	}
	// Parse also takes an hour of one digit, a comma before the fraction, and an offset of a whole day.
	if _, offset := at.Zone(); text[13] != ':' || strings.Contains(text, ",") || max(offset, -offset) >= 24*60*60 {
		return nil, nil
	}
	return value, nil
}

func isNumber(value []byte) bool { return value[0] == '-' || '0' <= value[0] && value[0] <= '9' }

// misfitOf returns the misfit of a value of a wrong type.
func misfitOf(value []byte, want string) *Misfit {
	is := "a number"
	switch value[0] {
	case '{':
		is = "an object"
	case '[':
		is = "a list"
	case '"':
		is = "a string"
	case 'n':
		is = "null"
	case 't', 'f':
		is = "a boolean"
	}
	return &Misfit{Reason: "is " + is + "; want " + want}
}
