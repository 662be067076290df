// Package endpoint checks the address, the headers and the arguments of a server, for any format of configuration.
// It decides which of them are acceptable. The caller reports the others, or leaves the server out.
package endpoint

import (
	"maps"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of one server.
const (
	MaxArgs = 256     // of a command
	MaxText = 8 << 10 // bytes of an argument or address
)

// LinkLocal reports whether the host of a URL is a link-local address. Clouds serve a machine's
// credentials at such addresses.
func LinkLocal(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if host == "metadata.google.internal" || host == "metadata" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	return dial.OnLink(ip)
}

// SecretInURL is the reason of BadURL for an address with a secret and without any other fault.
const SecretInURL = "an address must not hold a secret, since logs and status show it; hand it over in headers, with ${env:NAME}"

// BadURL returns why s cannot be the address of a server, or "".
func BadURL(s string) string {
	if strings.Contains(s, "${") {
		return "${…} is not read in an address, which logs and status show; hand a secret over in headers"
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || len(s) > MaxText || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "this is no URL; write one such as https://mcp.example.com/mcp"
	case u.Scheme != "http" && u.Scheme != "https":
		return "want an address that begins with http:// or https://"
	case u.User != nil:
		return "an address must not hold a user or password; hand them over in headers: {Authorization: \"Basic ${env:NAME}\"}"
	case u.Hostname() == "":
		return "the address names no host"
	case strings.Contains(s, "#"):
		return "an address must not hold a fragment (#…), which is never sent"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return "the part after ? is no query that can be read"
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if switchboard.CredentialName(name) || strings.HasSuffix(strings.ToLower(name), "key") || slices.ContainsFunc(query[name], switchboard.CredentialValue) {
			return SecretInURL
		}
	}
	return ""
}

// HeaderName reports whether s is a token of RFC 9110.
func HeaderName(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
	})
}

// HeaderValue reports whether s can be sent as the value of a header.
func HeaderValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// ownHeaders are headers that Switchboard sets itself, or must never send.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Last-Event-Id", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "X-Idempotency-Key",
}

// Absolute returns p as an absolute path, relative to folder.
func Absolute(folder, p string) string {
	if filepath.IsAbs(p) {
		return filepath.Clean(p)
	}
	return filepath.Join(folder, p)
}

// ReservedHeader reports whether Switchboard sets the header itself, or must never send it. name is in canonical form.
func ReservedHeader(name string) bool {
	return slices.Contains(ownHeaders, name) || strings.HasPrefix(name, "Mcp-")
}
