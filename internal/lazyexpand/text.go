package lazyexpand

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// oneLine returns the beginning of a tool's description: one sentence, and at most one line.
func oneLine(definition []byte) string {
	raw, _ := wire.Field(definition, "description")
	if len(raw) > 4096 { // enough for a line, even after a cut within an escape
		raw = trimToString(raw[:4096])
	}
	text, _ := wire.String(raw)
	var b strings.Builder
	n, space := 0, false
	for _, c := range text {
		switch {
		case unicode.IsSpace(c):
			space = b.Len() > 0
			continue
		case unicode.IsControl(c), unicode.Is(unicode.Cf, c), c == unicode.ReplacementChar:
			continue
		}
		if space {
			if s := b.String(); strings.HasSuffix(s, ".") || strings.HasSuffix(s, "!") || strings.HasSuffix(s, "?") {
				break
			}
			b.WriteByte(' ')
			n, space = n+1, false
		}
		if n >= maxLine {
			b.WriteString("…")
			break
		}
		b.WriteRune(c)
		n++
	}
	return b.String()
}

// maxArguments limits the arguments that a signature names.
const maxArguments = 8

// signature returns the tool's arguments in short form, such as "path: string, mode?: fast|slow", so that a model can
// call the tool without its full definition. Required arguments come first; the others have a question mark. It
// returns "" if it can read no names.
func signature(definition []byte) string {
	schema, _ := wire.Field(definition, "inputSchema")
	properties, _ := wire.Field(schema, "properties")
	if len(properties) == 0 || properties[0] != '{' {
		return ""
	}
	listed, _ := wire.Field(schema, "required")
	required := map[string]bool{}
	if len(listed) > 0 && listed[0] == '[' {
		for element := range wire.Elements(listed) {
			if name, ok := wire.String(element); ok && len(required) < maxArguments {
				required[name] = true
			}
		}
	}
	var first, more []string
	others := 0
	for name, property := range wire.Members(properties) {
		switch {
		case !isPlainWord(name):
			others++
		case required[name]:
			first = append(first, name+typeSuffix(property))
		case len(more) < maxArguments:
			more = append(more, name+"?"+typeSuffix(property))
		default:
			others++
		}
	}
	if n := max(0, maxArguments-len(first)); len(more) > n {
		others += len(more) - n
		more = more[:n]
	}
	all := append(first, more...)
	if others > 0 {
		all = append(all, strconv.Itoa(others)+" more")
	}
	return strings.Join(all, ", ")
}

// typeSuffix returns the type of an argument for a signature, such as ": integer", or the words of an enum; "" if the
// schema does not state the type in a few words.
func typeSuffix(property []byte) string {
	if len(property) == 0 || property[0] != '{' {
		return ""
	}
	if enum, ok := wire.Field(property, "enum"); ok && len(enum) > 0 && enum[0] == '[' {
		if words := enumWords(enum); words != "" {
			return ": " + words
		}
	}
	kind, _ := wire.Field(property, "type")
	name, ok := wire.String(kind)
	switch {
	case !ok || !isPlainWord(name):
		return ""
	case name == "array":
		items, _ := wire.Field(property, "items")
		if element := strings.TrimPrefix(typeSuffix(items), ": "); element != "" && !strings.Contains(element, "|") {
			return ": " + element + "[]"
		}
	}
	return ": " + name
}

// enumWords joins at most maxEnum words of an enum; it returns "" if one is no plain word.
func enumWords(enum []byte) string {
	var words []string
	n := 0
	for element := range wire.Elements(enum) {
		if n++; len(words) == maxEnum {
			continue
		}
		word, ok := wire.String(element)
		if !ok || !isPlainWord(word) {
			return ""
		}
		words = append(words, word)
	}
	if n > len(words) {
		words = append(words, "…")
	}
	return strings.Join(words, "|")
}

// maxEnum limits the words of an enum in a signature.
const maxEnum = 6

// isPlainWord reports whether the name of an argument can be shown in a line.
func isPlainWord(name string) bool {
	if name == "" || len(name) > 40 {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_-.$", c)
	})
}

// trimToString ends the prefix of a JSON string before an incomplete escape.
func trimToString(raw []byte) []byte {
	for cut := 0; cut < 16 && len(raw) > 1; cut++ {
		if whole := append(slices.Clip(raw), '"'); wellFormed(whole) {
			return whole
		}
		raw = raw[:len(raw)-1]
	}
	return nil
}

func wellFormed(raw []byte) bool {
	_, ok := wire.String(raw)
	return ok
}

// countOf returns the number and the noun.
func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
