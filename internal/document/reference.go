package document

import (
	"errors"
	"fmt"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxSecretBytes limits the size of a secret's file, and of a variable's value.
const MaxSecretBytes = 64 << 10

// A Piece is a piece of a text: a literal, or a reference to a value that is stored elsewhere.
// "$${" is a literal "${".
type Piece struct {
	Kind string // "" literal, "env", "file", "secret", "workspace", and "default" in other programs' files
	Text string // the literal, the variable, the file, the name of a secret that a command prints

	Fallback string // of "default": the value if the variable is not set
}

// SplitReferences splits a text into its pieces. Its error repeats only the names of variables and files.
func SplitReferences(s string) ([]Piece, error) {
	var out []Piece
	literal := func(text string) {
		if n := len(out); n > 0 && out[n-1].Kind == "" {
			out[n-1].Text += text
		} else if text != "" {
			out = append(out, Piece{Text: text})
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
			out = append(out, Piece{Kind: "workspace"})
		case kind == "env" && colon && IsVariableName(name):
			out = append(out, Piece{Kind: "env", Text: name})
		case kind == "env" && colon:
			return nil, errors.New("${env:…} names no variable; write ${env:NAME} with letters, digits and _")
		case kind == "file" && colon && name != "":
			out = append(out, Piece{Kind: "file", Text: name})
		case kind == "secret" && colon && switchboard.CheckID(name) == nil:
			out = append(out, Piece{Kind: "secret", Text: name})
		case kind == "secret" && colon:
			return nil, errors.New("${secret:…} names no secret; write ${secret:NAME}, with a name of the map secrets")
		default:
			return nil, errors.New("this ${…} is not known; write ${env:NAME}, ${file:/path}, ${secret:NAME} or ${workspace}, or $${ for the characters themselves")
		}
	}
}

// IsVariableName reports whether s can be the name of an environment variable.
func IsVariableName(s string) bool {
	return s != "" && len(s) <= 128 && (s[0] < '0' || s[0] > '9') &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// LookupVariable returns the value of a variable that must be set. Its error names the variable only.
func LookupVariable(env func(string) (string, bool), name string) (string, error) {
	text, ok := env(name)
	switch {
	case !ok:
		return "", fmt.Errorf("the variable %s is not set; set it before the start", name)
	case text == "":
		return "", fmt.Errorf("the variable %s is empty", name)
	case len(text) > MaxSecretBytes:
		return "", fmt.Errorf("the variable %s is longer than %d bytes", name, MaxSecretBytes)
	}
	return text, nil
}
