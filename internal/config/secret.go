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

// maxSecretBytes limits the size of a secret's file, and of a variable's value.
const maxSecretBytes = 64 << 10

// A textPiece is a piece of a text: a literal, or a reference to a value that is stored elsewhere.
// "$${" is a literal "${".
type textPiece struct {
	kind string // "" literal, "env", "file", "workspace", and "default" in other programs' files
	text string // the literal, the variable, the file

	fallback string // of "default": the value if the variable is not set
}

// splitText splits a text into its pieces. Its error repeats only the names of variables and files.
func splitText(s string) ([]textPiece, error) {
	var out []textPiece
	literal := func(text string) {
		if n := len(out); n > 0 && out[n-1].kind == "" {
			out[n-1].text += text
		} else if text != "" {
			out = append(out, textPiece{text: text})
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
			out = append(out, textPiece{kind: "workspace"})
		case kind == "env" && colon && isVariableName(name):
			out = append(out, textPiece{kind: "env", text: name})
		case kind == "env" && colon:
			return nil, errors.New("${env:…} names no variable; write ${env:NAME} with letters, digits and _")
		case kind == "file" && colon && name != "":
			out = append(out, textPiece{kind: "file", text: name})
		default:
			return nil, errors.New("this ${…} is not known; write ${env:NAME}, ${file:/path} or ${workspace}, or $${ for the characters themselves")
		}
	}
}

// isVariableName reports whether s can be the name of an environment variable.
func isVariableName(s string) bool {
	return s != "" && len(s) <= 128 && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// readSecret reads the value of the header or variable name, and resolves its references. A credential
// written into the file itself is a fault.
func (l *loader) readSecret(v value, name string) (switchboard.Secret, bool) {
	s, ok := v.readText()
	if !ok {
		return switchboard.Secret{}, false
	}
	ps, err := splitText(s)
	if err != nil {
		v.fault("%v", err)
		return switchboard.Secret{}, false
	}
	refers := slices.ContainsFunc(ps, func(p textPiece) bool { return p.kind == "env" || p.kind == "file" })
	if !refers && switchboard.CredentialName(name) || slices.ContainsFunc(ps, func(p textPiece) bool { return p.kind == "" && switchboard.CredentialValue(p.text) }) {
		v.fault("a secret stands in the file itself; put it elsewhere and write ${env:NAME} or ${file:/path} in its place")
		return switchboard.Secret{}, false
	}
	var b strings.Builder
	for _, p := range ps {
		text, err := l.resolvePiece(p)
		if err != nil {
			v.fault("%v", err)
			ok = false
		}
		b.WriteString(text)
	}
	return switchboard.NewSecret(b.String()), ok
}

// resolvePiece returns the value of a piece. Its error names the variable or file, and never contains
// the value.
func (l *loader) resolvePiece(p textPiece) (string, error) {
	switch p.kind {
	case "workspace":
		return l.absDir, nil
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
			if name, err = localPath(name); err != nil {
				return "", fmt.Errorf("file %s: %w", quoteShown(p.text), err)
			}
		}
		data, err := l.readCheckedFile(name, maxSecretBytes, func(info fs.FileInfo) error { return switchboard.CheckPrivate(quoteShown(p.text), info) })
		if err != nil {
			return "", fmt.Errorf("file %s: %s", quoteShown(p.text), errorText(err))
		}
		// Editors end a file with a line break that does not belong to the secret.
		text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		if text == "" {
			return "", fmt.Errorf("file %s is empty", quoteShown(p.text))
		}
		return text, nil
	}
	return p.text, nil
}

// localPath returns a relative path with slashes. A path that leads out of its folder is an error.
func localPath(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", errors.New("it leads out of the folder of switchboard.yaml; use a path within it, or an absolute one")
	}
	return filepath.ToSlash(filepath.Clean(name)), nil
}

// holdsSecret reports whether a command seems to contain a secret: a word that looks like one, or a
// value of a credential, as in "--token X", "--api-key=X", "API_KEY=X" and "X-Api-Key: X".
func holdsSecret(command []foreignSetting) bool {
	option := "" // the previous word, if it is an option whose value may follow
	for _, s := range command {
		word := s.literalText()
		name, value, pair := strings.Cut(word, "=")
		if header, v, ok := strings.Cut(word, ": "); ok && headerName(header) {
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
		switch p.kind {
		case "":
			b.WriteString(p.text)
		case "default":
			b.WriteString(p.fallback)
		}
	}
	return b.String()
}

// isReference reports whether the server itself replaces the word.
func isReference(word string) bool { return strings.HasPrefix(word, "$") }
