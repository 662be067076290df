package importer

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// splitForeign splits a text with the references of editors: ${VAR}, ${VAR:-default}, ${env:VAR},
// ${workspaceFolder}, ${userHome}. A ${VAR} that names one of own, the variables of the same server,
// stays as it is: the server resolves it.
func splitForeign(v document.Value, name string, own []foreignSetting) []foreignSetting {
	s := foreignSetting{name: name, at: v}
	literal := func(text string) { s.parts = append(s.parts, document.Piece{Text: text}) }
	rest := v.Text
	for {
		before, after, ok := strings.Cut(rest, "${")
		if !ok {
			break
		}
		inner, tail, ok := strings.Cut(after, "}")
		if !ok {
			break
		}
		literal(before)
		rest = tail
		bare, def, hasDefault := strings.Cut(inner, ":-")
		prefixed, isEnv := strings.CutPrefix(inner, "env:")
		switch {
		case inner == "workspaceFolder", inner == "workspaceRoot":
			s.parts = append(s.parts, document.Piece{Kind: "workspace"})
		case inner == "userHome":
			s.parts = append(s.parts, document.Piece{Kind: "env", Text: "HOME"})
		case inner == "pathSeparator", inner == "/":
			literal(string(filepath.Separator))
		case isEnv && document.IsVariableName(prefixed):
			s.parts = append(s.parts, document.Piece{Kind: "env", Text: prefixed})
		case hasDefault && document.IsVariableName(bare):
			s.parts = append(s.parts, document.Piece{Kind: "default", Text: bare, Fallback: def})
		case document.IsVariableName(inner) && slices.ContainsFunc(own, func(o foreignSetting) bool { return o.name == inner }):
			literal("${" + inner + "}")
		case document.IsVariableName(inner):
			s.parts = append(s.parts, document.Piece{Kind: "env", Text: inner})
		case strings.HasPrefix(inner, "input:"):
			v.Fault("${input:…} asks a person in the editor, which nobody can answer here; write ${env:NAME}")
			return nil
		default:
			v.Fault("this ${…} is not known here; write ${env:NAME}")
			return nil
		}
	}
	literal(rest)
	return []foreignSetting{s}
}

// assignIDs gives an id to every server that is not left out: its own name if that is a valid id, else
// the nearest free one. The ids depend only on the names, not on their order.
func assignIDs(found []*foreignServer) {
	taken := map[string]bool{}
	var others []*foreignServer
	for _, f := range found {
		switch {
		case !f.use:
		case switchboard.CheckID(f.Name) == nil && !taken[f.Name]:
			f.ID = switchboard.ServerID(f.Name)
			taken[f.Name] = true
		default:
			others = append(others, f)
		}
	}
	slices.SortStableFunc(others, func(a, b *foreignServer) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range others {
		id := freeID(nearestID(f.Name), func(id string) bool { return taken[id] })
		taken[id] = true
		f.ID = switchboard.ServerID(id)
	}
}

// freeID returns base, or base with the first number that makes it an id that is not taken.
func freeID(base string, taken func(id string) bool) string {
	id := base
	for n := 2; taken(id); n++ {
		suffix := "-" + strconv.Itoa(n)
		id = strings.TrimRight(base[:min(len(base), switchboard.MaxIDBytes-len(suffix))], "-") + suffix
	}
	return id
}

// nearestID returns the valid id that is nearest to a name.
func nearestID(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		if r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			b.WriteRune(r)
		} else if s := b.String(); s != "" && !strings.HasSuffix(s, "-") {
			b.WriteByte('-')
		}
		if b.Len() >= switchboard.MaxIDBytes {
			break
		}
	}
	if id := strings.Trim(b.String(), "-"); id != "" {
		return id
	}
	return "server"
}

// HoldsSecret reports whether the words of a command seem to contain a secret.
func HoldsSecret(command []string) bool {
	words := make([]foreignSetting, len(command))
	for i, w := range command {
		words[i].parts = []document.Piece{{Text: w}}
	}
	return holdsSecret(words)
}

// holdsSecret reports whether a command seems to contain a secret: a word that looks like one, or a
// value of a credential, as in "--token X", "--api-key=X", "API_KEY=X" and "X-Api-Key: X".
func holdsSecret(command []foreignSetting) bool {
	option := "" // the previous word, if it is an option whose value may follow
	for _, s := range command {
		word := s.literalText()
		name, value, pair := strings.Cut(word, "=")
		if header, v, ok := strings.Cut(word, ": "); ok && endpoint.HeaderName(header) {
			name, value, pair = header, v, true
		}
		switch {
		case switchboard.CredentialValue(word), pair && value != "" && !isReference(value) && switchboard.CredentialName(name):
			return true
		case option != "" && word != "" && !strings.HasPrefix(word, "-") && !isReference(word) && switchboard.CredentialName(option):
			return true
		}
		option = ""
		if strings.HasPrefix(word, "-") && !pair {
			option = word
		}
	}
	return false
}

// literalText returns the text that is written in the file itself, without the values of references.
func (s *foreignSetting) literalText() string {
	var b strings.Builder
	for _, p := range s.parts {
		switch p.Kind {
		case "":
			b.WriteString(p.Text)
		case "default":
			b.WriteString(p.Fallback)
		}
	}
	return b.String()
}

// isReference reports whether the server itself replaces the word.
func isReference(word string) bool { return strings.HasPrefix(word, "$") }
