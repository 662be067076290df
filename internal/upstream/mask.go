package upstream

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// minSecret is the shortest text that is masked: shorter ones ("1", "true")
// stand in everything that a server says.
const minSecret = 6

// A mask hides a server's own secrets in what the server says: an error that
// echoes a header, a line on stderr that shows the environment.
//
// What operators see is masked with every variable of the server's environment.
// What clients see is not: a variable may hold a path, and the path is what the
// error is about. Of variables it hides those whose name or value is that of a
// credential.
type mask struct {
	replace *strings.Replacer // for operators
	longest int

	client *strings.Replacer // for clients
}

func newMask(cfg *switchboard.Server) *mask {
	sure, all := forms{}, forms{}
	for _, secret := range cfg.Headers {
		sure.secret(secret.Reveal())
	}
	for name, secret := range cfg.Env {
		all.secret(secret.Reveal())
		if switchboard.CredentialName(name) || switchboard.CredentialValue(secret.Reveal()) {
			sure.secret(secret.Reveal())
		}
		sure.address(secret.Reveal(), false)
	}
	sure.address(cfg.URL, true)
	sure.arguments(cfg.Command)
	maps.Copy(all, sure)
	m := &mask{}
	m.client, _ = sure.replacer()
	m.replace, m.longest = all.replacer()
	return m
}

// replacer hides the forms. It is nil where there are none.
func (f forms) replacer() (r *strings.Replacer, longest int) {
	if len(f) == 0 {
		return nil, 0
	}
	// Longest first, so that a secret within another leaves nothing behind.
	list := slices.SortedFunc(maps.Keys(f), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(list))
	for _, s := range list {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...), len(list[0])
}

// forms are the texts that a mask hides: the secrets, in each way that they
// are spelt.
type forms map[string]bool

func (f forms) add(s string) {
	for _, form := range [...]string{s, url.QueryEscape(s), strings.Trim(string(wire.AppendString(nil, s)), `"`)} {
		if len(form) >= minSecret {
			f[form] = true
		}
	}
}

// secret adds a secret, and what of it is one by itself.
func (f forms) secret(text string) {
	f.add(text)
	f.address(text, false)
	for line := range strings.Lines(text) { // a key in PEM form, line by line
		f.add(strings.TrimSpace(line))
	}
	scheme, token, ok := strings.Cut(text, " ")
	if !ok {
		return
	}
	f.add(token)
	if pair, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "basic") {
		f.add(string(pair))
		_, password, _ := strings.Cut(string(pair), ":")
		f.add(password)
	}
}

// address adds the password of a URL and the values of its query: those that
// are named like a credential, or, where it is the server's own, each.
func (f forms) address(text string, own bool) {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	host, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		user := host[:at]
		f.spelt(user)
		if _, password, ok := strings.Cut(user, ":"); ok {
			f.spelt(password)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); own || switchboard.CredentialName(name) {
			f.spelt(value)
		}
	}
}

// spelt adds a part of a URL, as it stands there and as it is meant.
func (f forms) spelt(raw string) {
	f.add(raw)
	if s, err := url.PathUnescape(raw); err == nil {
		f.add(s)
	}
	if s, err := url.QueryUnescape(raw); err == nil { // where + is a space
		f.add(s)
	}
}

// arguments adds the secrets among a program's arguments: --api-key=X,
// --api-key X, --header "Authorization: X", and those that look like one.
func (f forms) arguments(command []string) {
	named := false // by the argument before
	for _, arg := range command {
		if named {
			f.secret(arg)
		}
		before := ""
		for word := range strings.FieldsSeq(arg) {
			if switchboard.CredentialValue(word) || switchboard.CredentialValue(before+" "+word) { // Bearer X
				f.add(word)
			}
			before = word
		}
		f.address(arg, false)
		pair := false
		for _, separator := range [...]string{"=", ":"} {
			name, value, ok := strings.Cut(arg, separator)
			if ok && switchboard.CredentialName(name) {
				f.secret(strings.TrimSpace(value))
			}
			pair = pair || ok
		}
		named = !pair && strings.HasPrefix(arg, "-") && switchboard.CredentialName(arg)
	}
}

// text returns s without the secrets.
func (m *mask) text(s string) string {
	if m.replace == nil {
		return s
	}
	return m.replace.Replace(s)
}

// json returns the JSON text raw, for a client, without the secrets in its strings, however
// those are escaped: raw itself where it has none. Numbers and the names of
// members stay, so that it remains what it is.
func (m *mask) json(raw []byte) []byte {
	if m.client == nil {
		return raw
	}
	var out []byte
	from := 0 // what of raw is not in out yet
	for i := 0; i < len(raw); i++ {
		if raw[i] != '"' {
			continue
		}
		end := i + 1
		for end < len(raw) && raw[end] != '"' {
			if raw[end] == '\\' {
				end++
			}
			end++
		}
		end = min(end+1, len(raw))
		if name := bytes.HasPrefix(bytes.TrimLeft(raw[end:], " \t\r\n"), []byte(":")); !name {
			if masked, ok := m.jsonString(raw[i:end]); ok {
				out = append(append(out, raw[from:i]...), masked...)
				from = end
			}
		}
		i = end - 1
	}
	if from == 0 {
		return raw
	}
	return append(out, raw[from:]...)
}

// jsonString returns a string of JSON without the secrets, if it has any.
func (m *mask) jsonString(raw []byte) (masked []byte, ok bool) {
	text, ok := wire.String(raw)
	if !ok { // no Unicode: as it is spelt
		masked := m.client.Replace(string(raw))
		return []byte(masked), masked != string(raw)
	}
	if masked := m.client.Replace(text); masked != text {
		return wire.AppendString(nil, masked), true
	}
	return nil, false
}

// line returns what a log may show of text that a server wrote: at most limit
// bytes, without secrets, and with what is not printable escaped. whole says
// that text is not the beginning of something longer.
func (m *mask) line(text []byte, limit int, whole bool) string {
	if !whole && m.longest > 0 { // a secret may have been cut in two
		text = text[:max(0, len(text)-m.longest)]
	}
	var b strings.Builder
	for _, r := range m.text(strings.TrimRight(string(text), "\r\n ")) {
		if b.Len() >= limit {
			whole = false
			break
		}
		switch {
		case r == utf8.RuneError || r != '\t' && !unicode.IsPrint(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	if !whole {
		b.WriteString("…")
	}
	return b.String()
}
