package config

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// readSecret reads the value of the header or variable name, and resolves its references. A credential
// written into the file itself is a fault.
func (f *configFolder) readSecret(v document.Value, name string) (switchboard.Secret, bool) {
	s, ok := v.ReadText()
	if !ok {
		return switchboard.Secret{}, false
	}
	ps, err := document.SplitReferences(s)
	if err != nil {
		v.Fault("%v", err)
		return switchboard.Secret{}, false
	}
	refers := slices.ContainsFunc(ps, func(p document.Piece) bool { return p.Kind == "env" || p.Kind == "file" || p.Kind == "secret" })
	if !refers && switchboard.CredentialName(name) || slices.ContainsFunc(ps, func(p document.Piece) bool { return p.Kind == "" && switchboard.CredentialValue(p.Text) }) {
		v.Fault("a secret stands in the file itself; put it elsewhere and write ${env:NAME} or ${file:/path} in its place")
		return switchboard.Secret{}, false
	}
	var b strings.Builder
	for _, p := range ps {
		text, err := f.resolvePiece(p)
		if errors.Is(err, errNotRun) {
			ok = false
			continue
		}
		if err != nil {
			v.Fault("%v", err)
			ok = false
		}
		b.WriteString(text)
	}
	return switchboard.NewSecret(b.String()), ok
}

// resolvePiece returns the value of a piece. Its error names the variable or file, and never contains
// the value.
func (f *configFolder) resolvePiece(p document.Piece) (string, error) {
	switch p.Kind {
	case "workspace":
		return f.absDir, nil
	case "env":
		f.variables = append(f.variables, p.Text)
		return document.LookupVariable(f.env, p.Text)
	case "secret":
		return f.printed.resolve(p.Text)
	case "file":
		name := p.Text
		if !filepath.IsAbs(name) {
			var err error
			if name, err = localPath(name); err != nil {
				return "", fmt.Errorf("file %s: %w", document.Shown(p.Text), err)
			}
		}
		data, err := f.readCheckedFile(name, document.MaxSecretBytes, func(info fs.FileInfo) error { return ownfile.Check(document.Shown(p.Text), f.pathOf(name), info) })
		if err != nil {
			return "", fmt.Errorf("file %s: %s", document.Shown(p.Text), document.ErrorText(err))
		}
		// Editors end a file with a line break that does not belong to the secret.
		text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
		if text == "" {
			return "", fmt.Errorf("file %s is empty", document.Shown(p.Text))
		}
		return text, nil
	}
	return p.Text, nil
}

// localPath returns a relative path with slashes. A path that leads out of its folder is an error.
func localPath(name string) (string, error) {
	if !filepath.IsLocal(name) {
		return "", errors.New("it leads out of the folder of switchboard.yaml; use a path within it, or an absolute one")
	}
	return filepath.ToSlash(filepath.Clean(name)), nil
}
