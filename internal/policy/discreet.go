package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Reasons are searched for parts of the arguments of at least minHidden bytes: shorter texts occur
// everywhere. Arguments of more than maxSearched bytes are not searched; the reason for a call with
// so many is hidden as a whole.
const (
	minHidden   = 6
	maxSearched = 256 << 10
)

// ownWords is a cause that repeats nothing of the arguments.
type ownWords struct{ text string }

func (w *ownWords) Error() string { return w.text }

// hideArguments removes parts of the arguments from the cause of a refusal, because the cause is
// logged and arguments may hold secrets. If no rule reads the arguments, err is returned unchanged.
func (p *Policy) hideArguments(err error, c *switchboard.Call) error {
	own, ok := errors.AsType[*switchboard.Error](err)
	if !ok || own.Cause == nil || len(p.arguments) == 0 && c.Tool != nil {
		return err
	}
	if _, ok := errors.AsType[*ownWords](own.Cause); ok {
		return err
	}
	arguments, _ := wire.Field(c.Params, "arguments")
	if c.Tool == nil {
		arguments = c.Params // the URI, and everything else
	}
	reason := own.Cause.Error()
	said := unrepeated(reason, arguments)
	if said == reason {
		return err
	}
	hidden := *own
	hidden.Cause = errors.New(said)
	return &hidden
}

// unrepeated returns the reason with *** in place of texts that also occur in the arguments,
// ignoring case.
func unrepeated(reason string, arguments []byte) string {
	if len(arguments) == 0 {
		return reason
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.UseNumber()
	if len(arguments) > maxSearched || d.Decode(&v) != nil {
		return "its reason may repeat the arguments"
	}
	folded := foldASCII(reason)
	at := map[string][]int{}
	for i := range len(folded) - minHidden + 1 {
		part := folded[i : i+minHidden]
		at[part] = append(at[part], i)
	}
	hide := make([]bool, len(reason))
	search := func(text string) {
		text = foldASCII(text)
		for i := range len(text) - minHidden + 1 {
			part := text[i : i+minHidden]
			for _, from := range at[part] {
				for j := range minHidden {
					hide[from+j] = true
				}
			}
			delete(at, part)
		}
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			search(v)
		case json.Number:
			search(v.String())
		case []any:
			for _, v := range v {
				walk(v)
			}
		case map[string]any:
			for name, v := range v {
				search(name)
				walk(v)
			}
		}
	}
	walk(v)
	var b strings.Builder
	for i := range len(reason) {
		switch {
		case !hide[i]:
			b.WriteByte(reason[i])
		case i == 0 || !hide[i-1]:
			b.WriteString("***")
		}
	}
	return strings.ToValidUTF8(b.String(), "")
}

// foldASCII turns A-Z into lower case and keeps the length.
func foldASCII(text string) string {
	b := []byte(text)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
