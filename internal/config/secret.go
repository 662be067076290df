package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxSecretBytes bounds the file of a secret, and the value of a variable.
const maxSecretBytes = 64 << 10

// A part is a piece of a text: literal, or a reference to what stands
// elsewhere. "$${" is a literal "${".
type part struct {
	kind string // "" literal, "env", "file", "workspace", and "default" in other programs' files
	text string // the literal, the variable, the file

	fallback string // of "default": what counts where the variable is not set
}

// parts takes a text apart. Its error repeats nothing of the text but the
// names of variables and files.
func parts(s string) ([]part, error) {
	var out []part
	literal := func(text string) {
		if n := len(out); n > 0 && out[n-1].kind == "" {
			out[n-1].text += text
		} else if text != "" {
			out = append(out, part{text: text})
		}
	}
	for {
		i := strings.Index(s, "${")
		if i < 0 {
			literal(s)
			return out, nil
		}
		if i > 0 && s[i-1] == '$' {
			literal(s[:i-1] + "${")
			s = s[i+2:]
			continue
		}
		literal(s[:i])
		inner, rest, ok := strings.Cut(s[i+2:], "}")
		if !ok {
			return nil, errors.New("a ${ is not closed; write ${env:NAME} or ${file:/path}, or $${ for the characters themselves")
		}
		s = rest
		switch kind, name, colon := strings.Cut(inner, ":"); {
		case inner == "workspace":
			out = append(out, part{kind: "workspace"})
		case kind == "env" && colon && variable(name):
			out = append(out, part{kind: "env", text: name})
		case kind == "env" && colon:
			return nil, errors.New("${env:…} names no variable; write ${env:NAME} with letters, digits and _")
		case kind == "file" && colon && name != "":
			out = append(out, part{kind: "file", text: name})
		default:
			return nil, errors.New("this ${…} is not known; write ${env:NAME}, ${file:/path} or ${workspace}, or $${ for the characters themselves")
		}
	}
}

// variable reports whether s can name a variable of the environment.
func variable(s string) bool {
	return s != "" && len(s) <= 128 && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// secret reads the value of a header or variable called name, and puts in what
// it refers to. A credential that stands there itself is a fault.
func (l *loader) secret(v value, name string) (switchboard.Secret, bool) {
	s, ok := v.str()
	if !ok {
		return switchboard.Secret{}, false
	}
	ps, err := parts(s)
	if err != nil {
		v.fault("%v", err)
		return switchboard.Secret{}, false
	}
	refers := slices.ContainsFunc(ps, func(p part) bool { return p.kind == "env" || p.kind == "file" })
	if !refers && switchboard.CredentialName(name) || slices.ContainsFunc(ps, func(p part) bool { return p.kind == "" && switchboard.CredentialValue(p.text) }) {
		v.fault("a secret stands in the file itself; put it elsewhere and write ${env:NAME} or ${file:/path} in its place")
		return switchboard.Secret{}, false
	}
	var b strings.Builder
	for _, p := range ps {
		text, err := l.resolve(p)
		if err != nil {
			v.fault("%v", err)
			ok = false
		}
		b.WriteString(text)
	}
	return switchboard.NewSecret(b.String()), ok
}

// resolve returns what a part stands for. Its error names the variable or
// file, never what it holds.
func (l *loader) resolve(p part) (string, error) {
	switch p.kind {
	case "workspace":
		return l.abs, nil
	case "env":
		text, ok := l.opts.Env(p.text)
		switch {
		case !ok:
			return "", fmt.Errorf("the variable %s is not set; set it before the start", p.text)
		case text == "":
			return "", fmt.Errorf("the variable %s is empty", p.text)
		case len(text) > maxSecretBytes:
			return "", fmt.Errorf("the variable %s is longer than %d bytes", p.text, maxSecretBytes)
		}
		return text, nil
	case "file":
		name := p.text
		if !filepath.IsAbs(name) {
			var err error
			if name, err = inTree(name); err != nil {
				return "", fmt.Errorf("file %s: %w", shown(p.text), err)
			}
		}
		data, err := l.readChecked(name, maxSecretBytes, func(info fs.FileInfo) error { return switchboard.CheckPrivate(shown(p.text), info) })
		if err != nil {
			return "", fmt.Errorf("file %s: %s", shown(p.text), why(err))
		}
		// Editors end a file with a line break that is no part of the secret.
		text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		if text == "" {
			return "", fmt.Errorf("file %s is empty", shown(p.text))
		}
		return text, nil
	}
	return p.text, nil
}

// inTree returns a relative path with slashes, if it stays in its folder.
func inTree(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", errors.New("it leads out of the folder of switchboard.yaml; use a path within it, or an absolute one")
	}
	return filepath.ToSlash(filepath.Clean(name)), nil
}

// secretIn reports whether a secret seems to stand among the words of a command
// itself: one that looks like it, or a value whose name says so, as in
// "--token X", "--api-key=X", "API_KEY=X" and "X-Api-Key: X".
func secretIn(command []setting) bool {
	option := "" // the word before, where it is one that takes its value from the next
	for _, s := range command {
		word := s.literal()
		name, value, pair := strings.Cut(word, "=")
		if header, v, ok := strings.Cut(word, ": "); ok && headerName(header) {
			name, value, pair = header, v, true
		}
		switch {
		case switchboard.CredentialValue(word), pair && value != "" && !reference(value) && switchboard.CredentialName(name):
			return true
		case option != "" && word != "" && !strings.HasPrefix(word, "-") && !reference(word) && switchboard.CredentialName(option):
			return true
		}
		option = ""
		if strings.HasPrefix(word, "-") && !pair {
			option = word
		}
	}
	return false
}

// literal is what stands in the file itself, without what it refers to.
func (s *setting) literal() string {
	var b strings.Builder
	for _, p := range s.parts {
		switch p.kind {
		case "":
			b.WriteString(p.text)
		case "default":
			b.WriteString(p.fallback)
		}
	}
	return b.String()
}

// reference reports whether a word is one that the server itself puts something
// in for.
func reference(word string) bool { return strings.HasPrefix(word, "$") }
