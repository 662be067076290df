package lazyexpand

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// oneLine is what a tool's description says first: a sentence, and no more than a
// line of it, whatever else stands there.
func oneLine(definition []byte) string {
	raw, _ := wire.Field(definition, "description")
	if len(raw) > 4096 { // enough for a line, wherever its spelling is cut
		raw = cutString(raw[:4096])
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

// maxArguments bounds the arguments that a signature names.
const maxArguments = 8

// signature says what the tool takes, such as "path: string, mode?: fast|slow", so that a
// model can call it without its whole definition: the required arguments, and then the
// others with a question mark. It is "" where no names can be read.
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
		case !plain(name):
			others++
		case required[name]:
			first = append(first, name+typed(property))
		case len(more) < maxArguments:
			more = append(more, name+"?"+typed(property))
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

// typed is the type of an argument as a signature has it, such as ": integer", or the
// words of an enum; "" where the schema does not say it in a few words.
func typed(property []byte) string {
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
	case !ok || !plain(name):
		return ""
	case name == "array":
		items, _ := wire.Field(property, "items")
		if element := strings.TrimPrefix(typed(items), ": "); element != "" && !strings.Contains(element, "|") {
			return ": " + element + "[]"
		}
	}
	return ": " + name
}

// enumWords joins the words of an enum, a few of them; "" where one is no plain word.
func enumWords(enum []byte) string {
	var words []string
	n := 0
	for element := range wire.Elements(enum) {
		if n++; len(words) == maxEnum {
			continue
		}
		word, ok := wire.String(element)
		if !ok || !plain(word) {
			return ""
		}
		words = append(words, word)
	}
	if n > len(words) {
		words = append(words, "…")
	}
	return strings.Join(words, "|")
}

// maxEnum bounds the words of an enum that a signature shows.
const maxEnum = 6

// plain reports whether the name of an argument is fit to be shown in a line.
func plain(name string) bool {
	if name == "" || len(name) > 40 {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && !strings.ContainsRune("_-.$", c)
	})
}

// cutString ends the beginning of a JSON string where none of its escapes is cut.
func cutString(raw []byte) []byte {
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

// plural spells a number of things.
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
