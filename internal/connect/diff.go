package connect

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// mask is written in place of a secret.
const mask = "***"

// Diff returns the differences of all files as text, with the names that shown returns, and with secrets masked. Secrets are the values of all
// variables and headers of the servers in the client's files, and other values that look like a secret.
func (p *Plan) Diff(shown func(file string) string) string {
	var hidden []string
	for _, s := range slices.Concat(p.Servers, p.Elsewhere) {
		var v any
		if json.Unmarshal(s.entry.Value, &v) == nil {
			hidden = appendSecrets(hidden, v)
		}
	}
	return DiffFiles(append([]FileChange{p.Config}, p.Changes...), hidden, shown)
}

// DiffFiles returns the differences of files as text, with the names that shown returns. It masks the hidden texts, and values that look like a
// secret. A file that would not change has no text.
func DiffFiles(changes []FileChange, hidden []string, shown func(file string) string) string {
	// A secret can hold another one.
	hidden = slices.SortedFunc(slices.Values(hidden), func(a, b string) int { return len(b) - len(a) })
	var out strings.Builder
	for _, c := range changes {
		before, after := breakLines(c.Before, c.After)
		text := diff.Diff(shown(c.File), before, shown(c.File)+" (after)", after)
		for line := range strings.Lines(string(text)) {
			out.WriteString(maskLine(line, hidden))
		}
	}
	return out.String()
}

// maxShownLine limits the lines of a JSON file that are shown as they are.
const maxShownLine = 500

// breakLines returns both texts with line breaks if they are JSON on few long lines, as clients write it: in one line with everything, nobody could
// see the difference.
func breakLines(before, after []byte) (shownBefore, shownAfter []byte) {
	long := func(text []byte) bool {
		for line := range bytes.Lines(text) {
			if len(line) > maxShownLine {
				return true
			}
		}
		return false
	}
	if !long(before) && !long(after) {
		return before, after
	}
	var out [2]bytes.Buffer
	for i, text := range [][]byte{before, after} {
		if len(text) > 0 && json.Indent(&out[i], bytes.TrimPrefix(text, []byte("\ufeff")), "", "  ") != nil {
			return before, after // it has comments
		}
		if len(text) > 0 {
			out[i].WriteByte('\n')
		}
	}
	return out[0].Bytes(), out[1].Bytes()
}

// secretKeys are keys of an entry. Their values are always hidden.
var secretKeys = []string{"env", "environment", "headers", "http_headers", "oauth", "auth"}

// appendSecrets appends the secrets in an entry.
func appendSecrets(out []string, v any) []string {
	o, ok := v.(map[string]any)
	if !ok {
		return out
	}
	add := func(s string) {
		if s != "" {
			out = append(out, s)
		}
	}
	for key, v := range o {
		if slices.Contains(secretKeys, key) {
			mapTexts(v, func(s string) string { add(s); return s })
			continue
		}
		if words, ok := v.([]any); ok {
			for i, w := range words {
				word, _ := w.(string)
				name, value, pair := strings.Cut(word, "=")
				switch {
				case switchboard.CredentialValue(word):
					add(word)
				case pair && switchboard.CredentialName(name):
					add(value)
					add(word)
				case i > 0:
					if option, _ := words[i-1].(string); strings.HasPrefix(option, "-") && !strings.HasPrefix(word, "-") && switchboard.CredentialName(option) {
						add(word)
					}
				}
			}
		}
	}
	return out
}

var (
	// setting is a key with a text, in JSON, TOML or YAML, or in a command line.
	setting = regexp.MustCompile(`([A-Za-z0-9_.-]+)(["']?\s*[:=]\s*)("(?:\\.|[^"\\])*"|'[^']*'|[^\s"',{}\[\]\\]+)`)

	// quoted is a text in quotes.
	quoted = regexp.MustCompile(`"(?:\\.|[^"\\])*"|'[^']*'`)
)

// longSecret is the least length of a secret that is hidden in every place. A shorter one can be a part of any word.
const longSecret = 8

// maskLine hides the secrets in one line.
func maskLine(line string, hidden []string) string {
	for _, s := range hidden {
		for _, spelled := range []string{quote(s), "'" + s + "'"} {
			line = strings.ReplaceAll(line, spelled, `"`+mask+`"`)
		}
		if len(s) >= longSecret {
			line = strings.ReplaceAll(line, s, mask)
		}
		// YAML needs no quotes for it.
		for i := strings.Index(line, s); i >= 0; {
			end := i + len(s)
			if strings.ContainsAny(line[:i], "[:,") && strings.ContainsRune(" [", rune(line[i-1])) && strings.ContainsAny(line[end:min(end+1, len(line))], ",]\n") {
				line = line[:i] + mask + line[end:]
				end = i + len(mask)
			}
			next := strings.Index(line[end:], s)
			if next < 0 {
				break
			}
			i = end + next
		}
	}
	line = quoted.ReplaceAllStringFunc(line, func(text string) string {
		if switchboard.CredentialValue(strings.Trim(text, `"'`)) && !refers(text) {
			return `"` + mask + `"`
		}
		return text
	})
	return maskSettings(line)
}

// maskSettings hides the values of keys that name a secret, also those within a text in quotes, such as a command line in a history.
func maskSettings(line string) string {
	return setting.ReplaceAllStringFunc(line, func(text string) string {
		m := setting.FindStringSubmatch(text)
		key, value := m[1]+m[2], m[3]
		switch plain := strings.Trim(value, `"'`); {
		case refers(value):
			return text
		case switchboard.CredentialName(m[1]), switchboard.CredentialValue(plain):
			return key + `"` + mask + `"`
		case len(value) > len(plain):
			return key + value[:1] + maskSettings(value[1:len(value)-1]) + value[len(value)-1:]
		}
		return text
	})
}

// refers reports whether a text names a secret instead of holding it.
func refers(text string) bool {
	return strings.Contains(text, "${file:") || strings.Contains(text, "${env:") || strings.Contains(text, mask)
}

// quote returns a text as JSON spells it.
func quote(s string) string {
	text, err := marshal(s)
	if err != nil {
		return s
	}
	return string(text)
}
