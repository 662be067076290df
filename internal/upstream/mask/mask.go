// Package mask hides the secrets of one server in the texts that the server sends.
//
// It decides which texts are secrets of the server (by its configuration), and which of them operators
// and clients may see. Callers decide which texts to mask.
package mask

import (
	"bytes"
	"cmp"
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

// minSecret is the length of the shortest text that is masked. Shorter ones ("1", "true") occur in
// ordinary text.
const minSecret = 6

// MaxQuoted limits the bytes of a server's text in a message of ours.
const MaxQuoted = 300

// A Mask hides a server's own secrets in texts of the server: an error that repeats a
// header, a line of stderr that shows the environment.
//
// For operators it hides the value of every variable of the server's environment. For clients it
// hides less: a variable may hold a path, and the error may be about the path. There it hides only
// variables with the name or the value of a credential.
type Mask struct {
	forOperators  *strings.Replacer // nil if there is no secret
	longestSecret int               // in bytes, of those for operators
	forClients    *strings.Replacer // nil if there is no secret
	credentials   []string          // those for clients, in each form, longest first

	sure, all secretForms // those for clients; those for operators
}

// New returns the mask for the secrets in the configuration of a server.
func New(cfg *switchboard.Server) *Mask {
	sure, all := secretForms{}, secretForms{}
	for _, secret := range cfg.Headers {
		sure.addSecret(secret.Reveal())
	}
	for name, secret := range cfg.Env {
		all.addSecret(secret.Reveal())
		if switchboard.CredentialName(name) || switchboard.CredentialValue(secret.Reveal()) {
			sure.addSecret(secret.Reveal())
		}
		sure.addAddress(secret.Reveal(), false)
	}
	sure.addAddress(cfg.URL, true)
	sure.addAddress(cfg.Network.Proxy.Reveal(), false)
	sure.addArguments(cfg.Command)
	return newMask(sure, all)
}

// With returns the mask that hides one more secret: the token that a request carried.
func (m *Mask) With(secret switchboard.Secret) *Mask {
	if secret.Reveal() == "" {
		return m
	}
	sure := maps.Clone(m.sure)
	if sure == nil {
		sure = secretForms{}
	}
	sure.addSecret(secret.Reveal())
	return newMask(sure, maps.Clone(m.all))
}

// newMask returns the mask for the secrets of all, and for clients those of sure.
func newMask(sure, all secretForms) *Mask {
	if all == nil {
		all = secretForms{}
	}
	maps.Copy(all, sure)
	m := &Mask{sure: sure, all: all}
	m.credentials = sure.sorted()
	m.forClients = newReplacer(m.credentials)
	every := all.sorted()
	m.forOperators = newReplacer(every)
	if len(every) > 0 {
		m.longestSecret = len(every[0])
	}
	return m
}

// sorted returns the forms, longest first, so that a secret inside another one leaves no rest.
func (f secretForms) sorted() []string {
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
}

// newReplacer returns a replacer that hides the texts, or nil if there are none.
func newReplacer(list []string) *strings.Replacer {
	if len(list) == 0 {
		return nil
	}
	pairs := make([]string, 0, 2*len(list))
	for _, s := range list {
		pairs = append(pairs, s, "***")
	}
	return strings.NewReplacer(pairs...)
}

// secretForms are the texts that a mask hides: the secrets in each spelling.
type secretForms map[string]bool

func (f secretForms) add(s string) {
	for _, form := range [...]string{s, url.QueryEscape(s), strings.Trim(string(wire.AppendString(nil, s)), `"`)} {
		if len(form) >= minSecret {
			f[form] = true
		}
	}
}

// addSecret adds a secret and the parts of it that are secret by themselves.
func (f secretForms) addSecret(text string) {
	f.add(text)
	f.addAddress(text, false)
	for line := range strings.Lines(text) { // each line of a PEM key
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

// addAddress adds the password of a URL and values of its query: all of them for the server's own
// URL, otherwise those with the name of a credential.
func (f secretForms) addAddress(text string, own bool) {
	_, rest, ok := strings.Cut(text, "://")
	if !ok {
		return
	}
	rest, _, _ = strings.Cut(rest, "#")
	rest, query, _ := strings.Cut(rest, "?")
	host, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		user := host[:at]
		f.addEscaped(user)
		if _, password, ok := strings.Cut(user, ":"); ok {
			f.addEscaped(password)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		if name, value, _ := strings.Cut(pair, "="); own || switchboard.CredentialName(name) {
			f.addEscaped(value)
		}
	}
}

// addEscaped adds a part of a URL, as written and unescaped.
func (f secretForms) addEscaped(raw string) {
	f.add(raw)
	if s, err := url.PathUnescape(raw); err == nil {
		f.add(s)
	}
	if s, err := url.QueryUnescape(raw); err == nil { // a query writes a space as +
		f.add(s)
	}
}

// addArguments adds the secrets among a program's arguments: --api-key=X, --api-key X, --header
// "Authorization: X", and those that look like a secret.
func (f secretForms) addArguments(command []string) {
	named := false // by the previous argument
	for _, arg := range command {
		if named {
			f.addSecret(arg)
		}
		before := ""
		for word := range strings.FieldsSeq(arg) {
			if switchboard.CredentialValue(word) || switchboard.CredentialValue(before+" "+word) { // Bearer X
				f.add(word)
			}
			before = word
		}
		f.addAddress(arg, false)
		pair := false
		for _, separator := range [...]string{"=", ":"} {
			name, value, ok := strings.Cut(arg, separator)
			if ok && switchboard.CredentialName(name) {
				f.addSecret(strings.TrimSpace(value))
			}
			pair = pair || ok
		}
		named = !pair && strings.HasPrefix(arg, "-") && switchboard.CredentialName(arg)
	}
}

// Text returns s, for operators, without the secrets.
func (m *Mask) Text(s string) string {
	if m.forOperators == nil {
		return s
	}
	return m.forOperators.Replace(s)
}

// JSON returns the JSON text raw, for a client, without the secrets in its strings, however
// they are escaped. It returns raw itself if there are none. Numbers and names of members stay, so
// that the structure stays the same.
func (m *Mask) JSON(raw []byte) []byte {
	if m.forClients == nil {
		return raw
	}
	var out []byte
	from := 0 // start of the part of raw that is not in out yet
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

// jsonString returns a JSON string without the secrets. ok is false if it has none.
func (m *Mask) jsonString(raw []byte) (masked []byte, ok bool) {
	text, ok := wire.String(raw)
	if !ok { // invalid Unicode: replace in the raw text
		masked := m.forClients.Replace(string(raw))
		return []byte(masked), masked != string(raw)
	}
	if masked := m.forClients.Replace(text); masked != text {
		return wire.AppendString(nil, masked), true
	}
	return nil, false
}

// Line returns the text of a server for the log: at most limit bytes, without secrets, and with
// unprintable characters escaped. whole is false if text is the beginning of a longer text.
func (m *Mask) Line(text []byte, limit int, whole bool) string {
	if !whole && m.longestSecret > 0 { // the cut may divide a secret
		text = text[:max(0, len(text)-m.longestSecret)]
	}
	var b strings.Builder
	for _, r := range m.hideDivided(m.Text(strings.TrimRight(string(text), "\r\n "))) {
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

// minPart is the length of the shortest part of a credential that hideDivided hides.
const minPart = 8

// hideDivided hides a part of a credential at the end of a line, and one at its beginning: a program that breaks its lines
// at the width of a terminal divides a long credential. Blanks and the lines of a frame around the text do not count.
func (m *Mask) hideDivided(line string) string {
	if len(m.credentials) == 0 || len(line) < minPart {
		return line
	}
	framed := func(r rune) bool { return unicode.IsSpace(r) || r == '|' || r == '│' }
	before := line[:len(line)-len(strings.TrimLeftFunc(line, framed))]
	body := strings.TrimRightFunc(line[len(before):], framed)
	after := line[len(before)+len(body):]
	for _, secret := range m.credentials {
		if len(body) >= minPart && strings.Contains(secret, body) {
			return before + "***" + after
		}
		if n := partAtEnd(body, secret); n > 0 {
			body = body[:len(body)-n] + "***"
		}
		if n := partAtBegin(body, secret); n > 0 {
			body = "***" + body[n:]
		}
	}
	return before + body + after
}

// partAtEnd returns how many bytes at the end of the text are the beginning of the secret; 0 if they are fewer than minPart.
func partAtEnd(text, secret string) (longest int) {
	if len(text) < minPart {
		return 0
	}
	last := text[len(text)-minPart:]
	for from := 0; ; {
		i := strings.Index(secret[from:], last)
		if i < 0 {
			return longest
		}
		if n := from + i + minPart; strings.HasSuffix(text, secret[:n]) {
			longest = n
		}
		from += i + 1
	}
}

// partAtBegin returns how many bytes at the beginning of the text are the end of the secret; 0 if they are fewer than minPart.
func partAtBegin(text, secret string) int {
	if len(text) < minPart {
		return 0
	}
	for from := 0; ; {
		i := strings.Index(secret[from:], text[:minPart])
		if i < 0 {
			return 0
		}
		if from += i; strings.HasPrefix(text, secret[from:]) {
			return len(secret) - from
		}
		from++
	}
}
