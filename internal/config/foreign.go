package config

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// foreignParts takes a text apart: ${VAR}, ${VAR:-default}, ${env:VAR},
// ${workspaceFolder}, ${userHome}. A ${VAR} that stands for one of own, the
// variables of the same server, is left to the server.
func foreignParts(v value, name string, own []setting) []setting {
	s := setting{name: name, at: v}
	literal := func(text string) { s.parts = append(s.parts, part{text: text}) }
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
			s.parts = append(s.parts, part{kind: "workspace"})
		case inner == "userHome":
			s.parts = append(s.parts, part{kind: "env", text: "HOME"})
		case inner == "pathSeparator", inner == "/":
			literal(string(filepath.Separator))
		case isEnv && variable(prefixed):
			s.parts = append(s.parts, part{kind: "env", text: prefixed})
		case hasDefault && variable(bare):
			s.parts = append(s.parts, part{kind: "default", text: bare, fallback: def})
		case variable(inner) && slices.ContainsFunc(own, func(o setting) bool { return o.name == inner }):
			literal("${" + inner + "}")
		case variable(inner):
			s.parts = append(s.parts, part{kind: "env", text: inner})
		case strings.HasPrefix(inner, "input:"):
			v.fault("${input:…} asks a person in the editor, which nobody can answer here; write ${env:NAME}")
			return nil
		default:
			v.fault("this ${…} is not known here; write ${env:NAME}")
			return nil
		}
	}
	literal(rest)
	return []setting{s}
}

// nameThem gives every server that was not left out an id: its own name where
// that is one, else the nearest to it that is free. Which ids are given hangs
// on the names alone, not on their order.
func nameThem(found []*foreign) {
	taken := map[string]bool{}
	var others []*foreign
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
	slices.SortStableFunc(others, func(a, b *foreign) int { return strings.Compare(a.Name, b.Name) })
	for _, f := range others {
		base := idOf(f.Name)
		id := base
		for n := 2; taken[id]; n++ {
			suffix := "-" + strconv.Itoa(n)
			id = strings.TrimRight(base[:min(len(base), switchboard.MaxIDBytes-len(suffix))], "-") + suffix
		}
		taken[id] = true
		f.ID = switchboard.ServerID(id)
	}
}

// idOf returns the id that is nearest to a name.
func idOf(name string) string {
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
