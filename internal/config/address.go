package config

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// isAddress reports whether s is an address to listen at.
func (v value) isAddress(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		v.fault("%s is no address; write one such as %s", v.shownValue(), DefaultListen)
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.fault("%s: the port must be a number from 0 to 65535", v.shownValue())
		return false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && host != "" {
		v.fault("%s: the part before the port must be an IP address or localhost", v.shownValue())
		return false
	}
	return true
}

func badHost(s string) string {
	if strings.ContainsAny(s, "*/@ ?#") || len(s) > 255 {
		return "want the name of a host as a client would send it, such as mcp.example.com"
	}
	u, err := url.Parse("http://" + s)
	if err != nil || u.Host != s || u.Hostname() == "" {
		return "want the name of a host as a client would send it, such as mcp.example.com"
	}
	return ""
}

func badOrigin(s string) string {
	const want = "want an origin such as https://app.example.com"
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Hostname() == "" || u.Scheme+"://"+u.Host != s || strings.Contains(s, "*") {
		return want
	}
	return ""
}

// readURL returns the address of a server. Faults repeat only its scheme and host.
func (v value) readURL() string {
	v.hidden = true
	s, ok := v.readText()
	if !ok {
		return ""
	}
	if why := badURL(s); why != "" {
		v.fault("%s", why)
		return ""
	}
	v.warnLinkLocal(s)
	return s
}

// warnLinkLocal warns about a URL with a link-local address.
func (v value) warnLinkLocal(s string) {
	if linkLocal(s) {
		v.warn("the address is one that only this machine's own link reaches, as those of clouds do that give out credentials; a server of MCP is hardly there: check who wrote this")
	}
}

// linkLocal reports whether the host of a URL is a link-local address. Clouds serve a machine's
// credentials at such addresses.
func linkLocal(s string) bool {
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

// secretInURL is the reason of badURL for an address whose only fault is a secret in it.
const secretInURL = "an address must not hold a secret, since logs and status show it; hand it over in headers, with ${env:NAME}"

// badURL returns why s cannot be the address of a server, or "".
func badURL(s string) string {
	if strings.Contains(s, "${") {
		return "${…} is not read in an address, which logs and status show; hand a secret over in headers"
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || len(s) > maxText || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }):
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
			return secretInURL
		}
	}
	return ""
}

// headerName reports whether s is a token of RFC 9110.
func headerName(s string) bool {
	return s != "" && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", r)
	})
}

// headerValue reports whether s can be sent as the value of a header.
func headerValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
