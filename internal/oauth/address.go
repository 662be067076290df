package oauth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const maxAddress = 2048 // bytes of a URL

// parseAddress parses a URL that a stranger wrote. It accepts https and http only, a plain host, and no character that a program which is given the
// URL could take for something else: CD-06.
func parseAddress(raw string) (*url.URL, error) {
	if len(raw) > maxAddress {
		return nil, fmt.Errorf("it has more than %d bytes", maxAddress)
	}
	for i := range len(raw) {
		if c := raw[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("\"'<>\\^`{|}$", c) >= 0 {
			return nil, fmt.Errorf("it has the character %q", rune(c))
		}
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("it is no URL")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, errors.New("it is no https URL")
	case u.Opaque != "" || !isHost(u.Hostname()):
		return nil, errors.New("it has no plain host")
	case u.User != nil:
		return nil, errors.New("it has a user name")
	case strings.Contains(raw, "#"):
		return nil, errors.New("it has a fragment")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("its port is none")
		}
	}
	return u, nil
}

// isHost reports whether the host is an address, or a name of letters, digits, hyphens and underscores.
func isHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	host = strings.TrimSuffix(host, ".")
	if host == "" || len(host) > 253 {
		return false
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' {
			return false
		}
		for i := range len(label) {
			if c := label[i]; !isAlphaNumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// checkAddress checks the URL of metadata or of an endpoint: it is https. Plain http is for a server that itself is at an http URL on this machine,
// and leads to this machine only.
func (c *Client) checkAddress(raw string) (*url.URL, error) {
	u, err := parseAddress(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "http" && (c.server.Scheme != "http" || !isLoopbackHost(c.server.Hostname()) || !isLoopbackHost(u.Hostname())) {
		return nil, errors.New("it is no https URL")
	}
	return u, nil
}

// checkIssuer checks an issuer identifier: RFC 8414 section 2.
func (c *Client) checkIssuer(issuer string) error {
	u, err := c.checkAddress(issuer)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("it has a query")
	}
	if err != nil {
		return fmt.Errorf("the issuer %.200q cannot be used: %w", issuer, err)
	}
	return nil
}

// trusts reports whether the operator chose the host, so that it may be inside the network. A server on this machine may name other
// ports and names of this machine.
func (c *Client) trusts(host string) bool {
	if sameHost(host, c.server.Hostname()) || isLoopbackHost(c.server.Hostname()) && isLoopbackHost(host) {
		return true
	}
	named, err := url.Parse(c.options.Issuer)
	return err == nil && sameHost(host, named.Hostname())
}

func sameHost(a, b string) bool {
	return strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}

// isLoopbackHost reports whether the host is localhost, or an address of loopback.
func isLoopbackHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// originOf returns the URL without path and query.
func originOf(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + hostPort(u)
}

// hostPort returns the host in lower case, with the port if it is not the scheme's own.
func hostPort(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if u.Scheme == "https" {
		return strings.TrimSuffix(host, ":443")
	}
	return strings.TrimSuffix(host, ":80")
}

// insertWellKnown returns the URL with a well-known path inserted between host and path: RFC 8414 section 3.1, RFC 9728 section 3.1.
func insertWellKnown(u *url.URL, name string) string {
	address := originOf(u) + "/.well-known/" + name + strings.TrimSuffix(u.EscapedPath(), "/")
	if u.RawQuery != "" {
		address += "?" + u.RawQuery
	}
	return address
}

// describes reports whether a resource identifier can stand for the server's URL. RFC 9728 section 3.3 wants the URL itself; the MCP
// specification also has metadata at the root, for all the paths of an origin, so a path above the server's is accepted too. Another origin
// or a sibling's path is not: a token for it could be used elsewhere.
func (c *Client) describes(resource *url.URL) bool {
	if resource.Scheme != c.server.Scheme || hostPort(resource) != hostPort(c.server) {
		return false
	}
	mine, above := strings.TrimSuffix(c.server.EscapedPath(), "/"), strings.TrimSuffix(resource.EscapedPath(), "/")
	if mine == above {
		return resource.RawQuery == "" || resource.RawQuery == c.server.RawQuery
	}
	return resource.RawQuery == "" && strings.HasPrefix(mine, above+"/")
}

// hasDots reports whether a path has a segment that programs resolve differently.
func hasDots(path string) bool {
	for part := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(path), "%2e", "."), "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}
