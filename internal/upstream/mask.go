package upstream

import (
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
type mask struct {
	replace *strings.Replacer
	longest int
}

func newMask(cfg *switchboard.Server) *mask {
	forms := map[string]bool{}
	add := func(s string) {
		for _, form := range [...]string{s, url.QueryEscape(s), strings.Trim(string(wire.AppendString(nil, s)), `"`)} {
			if len(form) >= minSecret {
				forms[form] = true
			}
		}
	}
	for _, secrets := range []map[string]switchboard.Secret{cfg.Headers, cfg.Env} {
		for _, secret := range secrets {
			text := secret.Reveal()
			add(text)
			for line := range strings.Lines(text) { // a key in PEM form, line by line
				add(strings.TrimSpace(line))
			}
			scheme, token, ok := strings.Cut(text, " ")
			if !ok {
				continue
			}
			add(token)
			if pair, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "basic") {
				add(string(pair))
				_, password, _ := strings.Cut(string(pair), ":")
				add(password)
			}
		}
	}
	if u, err := url.Parse(cfg.URL); err == nil && u.User != nil {
		password, _ := u.User.Password()
		add(password)
	}
	// Longest first, so that a secret within another leaves nothing behind.
	list := slices.SortedFunc(maps.Keys(forms), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	m := &mask{}
	if len(list) > 0 {
		m.longest = len(list[0])
		pairs := make([]string, 0, 2*len(list))
		for _, s := range list {
			pairs = append(pairs, s, "***")
		}
		m.replace = strings.NewReplacer(pairs...)
	}
	return m
}

// text returns s without the secrets.
func (m *mask) text(s string) string {
	if m.replace == nil {
		return s
	}
	return m.replace.Replace(s)
}

// bytes returns b without the secrets: b itself where it has none.
func (m *mask) bytes(b []byte) []byte {
	if m.replace == nil {
		return b
	}
	s := string(b)
	if masked := m.replace.Replace(s); masked != s {
		return []byte(masked)
	}
	return b
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
