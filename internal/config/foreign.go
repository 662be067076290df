package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// splitForeign splits a text with the references of editors: ${VAR}, ${VAR:-default}, ${env:VAR},
// ${workspaceFolder}, ${userHome}. A ${VAR} that names one of own, the variables of the same server,
// stays as it is: the server resolves it.
func splitForeign(v value, name string, own []foreignSetting) []foreignSetting {
	s := foreignSetting{name: name, at: v}
	literal := func(text string) { s.parts = append(s.parts, textPiece{text: text}) }
	rest := v.text
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
			s.parts = append(s.parts, textPiece{kind: "workspace"})
		case inner == "userHome":
			s.parts = append(s.parts, textPiece{kind: "env", text: "HOME"})
		case inner == "pathSeparator", inner == "/":
			literal(string(filepath.Separator))
		case isEnv && isVariableName(prefixed):
			s.parts = append(s.parts, textPiece{kind: "env", text: prefixed})
		case hasDefault && isVariableName(bare):
			s.parts = append(s.parts, textPiece{kind: "default", text: bare, fallback: def})
		case isVariableName(inner) && slices.ContainsFunc(own, func(o foreignSetting) bool { return o.name == inner }):
			literal("${" + inner + "}")
		case isVariableName(inner):
			s.parts = append(s.parts, textPiece{kind: "env", text: inner})
		case strings.HasPrefix(inner, "input:"):
			v.fault("${input:…} asks a person in the editor, which nobody can answer here; write ${env:NAME}")
			return nil
		default:
			v.fault("this ${…} is not known here; write ${env:NAME}")
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
		base := nearestID(f.Name)
		id := base
		for n := 2; taken[id]; n++ {
			suffix := "-" + strconv.Itoa(n)
			id = strings.TrimRight(base[:min(len(base), switchboard.MaxIDBytes-len(suffix))], "-") + suffix
		}
		taken[id] = true
		f.ID = switchboard.ServerID(id)
	}
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
