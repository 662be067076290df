package config

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
)

// isAddress reports whether s is an address to listen at.
func isAddress(v document.Value, s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		v.Fault("%s is no address; write one such as %s", v.Shown(), DefaultListen)
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		v.Fault("%s: the port must be a number from 0 to 65535", v.Shown())
		return false
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "localhost" && host != "" {
		v.Fault("%s: the part before the port must be an IP address or localhost", v.Shown())
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
func readURL(v document.Value) string {
	v.Hidden = true
	s, ok := v.ReadText()
	if !ok {
		return ""
	}
	if why := endpoint.BadURL(s); why != "" {
		v.Fault("%s", why)
		return ""
	}
	warnLinkLocal(v, s)
	return s
}

// warnLinkLocal warns about a URL with a link-local address.
func warnLinkLocal(v document.Value, s string) {
	if endpoint.LinkLocal(s) {
		v.Warn("the address is one that only this machine's own link reaches, as those of clouds do that give out credentials; a server of MCP is hardly there: check who wrote this")
	}
}
