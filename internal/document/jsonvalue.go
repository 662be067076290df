package document

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Limits of a map that is read as JSON.
const (
	maxJSONMap      = 64 << 10 // bytes
	maxJSONMapDepth = 16
)

// ReadJSONMap reads a map with keys of the user's choice, and returns it in the canonical form of
// package canonical.
func (v Value) ReadJSONMap() []byte {
	if v.Kind != KindMap {
		v.Fault("want a map, not %v", v.Kind)
		return nil
	}
	out := v.AppendJSON(nil, 1)
	if len(out) > maxJSONMap {
		v.Fault("it has %d bytes as JSON; at most %d are read", len(out), maxJSONMap)
	}
	return out
}

// JSON returns v in the canonical form of package canonical. It may be as deep as a file.
func (v Value) JSON() []byte { return v.AppendJSON(nil, maxJSONMapDepth-maxDepth) }

// AppendJSON appends v as JSON; depth is its nesting depth. It leaves out, with a fault, a value that
// JSON cannot express or that readers of YAML understand differently.
func (v Value) AppendJSON(dst []byte, depth int) []byte {
	if depth > maxJSONMapDepth {
		v.Fault("maps and lists stand within each other more than %d deep", maxJSONMapDepth)
		return dst
	}
	switch v.Kind {
	case KindMap:
		entries := v.ReadNamed(MaxItems, false)
		slices.SortFunc(entries, func(a, b NamedValue) int { return strings.Compare(a.Name, b.Name) })
		dst = append(dst, '{')
		for i, e := range entries {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(e.Key.appendText(dst), ':')
			dst = e.Value.AppendJSON(dst, depth+1)
		}
		return append(dst, '}')
	case KindList:
		dst = append(dst, '[')
		for i, item := range v.ReadList(MaxItems) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.AppendJSON(dst, depth+1)
		}
		return append(dst, ']')
	case KindBool:
		return strconv.AppendBool(dst, v.ReadBool())
	case KindInt, KindFloat:
		if len(v.Text) > 32 || strings.Trim(v.Text, "-.0123456789") != "" || !jsontext.Value(v.Text).IsValid() {
			v.Fault("%s: write the number in plain decimal digits", v.Shown())
		}
		return append(dst, v.Text...)
	case KindText:
		return v.appendText(dst)
	}
	v.Fault("nothing stands here; give it a value, or remove it")
	return dst
}

// appendText appends a text, which may be empty here.
func (v Value) appendText(dst []byte) []byte {
	if !v.Quoted && looksNumeric(v.Text) {
		v.Fault("%s is text to some readers of YAML and a number to others; put it in quotes, or write the number in plain decimal digits", v.Shown())
		return dst
	}
	if v.Text != "" {
		if _, ok := v.ReadText(); !ok {
			return dst
		}
	}
	out, err := jsontext.AppendQuote(dst, v.Text)
	if err != nil {
		v.Fault("the text is not UTF-8")
		return dst
	}
	return out
}

// looksNumeric reports whether some reader of YAML could take s for a number.
func looksNumeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && strings.ContainsRune("+-.0123456789", rune(s[0]))
}
