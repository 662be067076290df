package catalog

import "strings"

// headerKeyword marks a parameter whose value clients also send as a header,
// Mcp-Param-<its text>.
const headerKeyword = "x-mcp-header"

// maxHeaderBytes bounds the name that x-mcp-header gives.
const maxHeaderBytes = 64

// reservedHeaders mean something to HTTP or to the protocol. Their names are
// free behind Mcp-Param-, but a reader that forgets the prefix would hand out
// credentials, or frame a message anew.
var reservedHeaders = map[string]bool{
	"authorization": true, "proxy-authorization": true, "proxy-authenticate": true, "www-authenticate": true,
	"cookie": true, "set-cookie": true, "host": true, "origin": true, "forwarded": true,
	"connection": true, "content-length": true, "content-type": true, "content-encoding": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// checkHeader holds the x-mcp-header at m, a member of the schema at n, to the
// protocol's rules. A tool that breaks one must not be offered.
func (s *schemaCheck) checkHeader(n, m int32, reachable bool) {
	name, ok := s.text(m)
	lower := strings.ToLower(name)
	switch {
	case !ok:
		s.fault(m, "is %s; want a string", s.kindName(m))
	case !reachable || n == s.root:
		s.fault(m, "stands where not only properties lead")
	case name == "":
		s.fault(m, "is empty")
	case len(name) > maxHeaderBytes:
		s.fault(m, "is %d bytes long; at most %d are allowed", len(name), maxHeaderBytes)
	case strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		s.fault(m, "%s is not the name of a header", quoted(name))
	case reservedHeaders[lower] || strings.HasPrefix(lower, "mcp-"):
		s.fault(m, "%s is the name of a header that has another meaning", quoted(name))
	case s.headers[lower]:
		s.fault(m, "%s is given twice; case does not count", quoted(name))
	case !s.plain(s.member(n, "type")):
		s.fault(m, "is on a parameter that is not of type string, integer or boolean")
	}
	s.headers[lower] = true
}

// plain reports whether the type at n, or each in the list there, is one that
// may travel in a header.
func (s *schemaCheck) plain(n int32) bool {
	if n == none {
		return false
	}
	if s.nodes[n].kind == '[' {
		c := s.nodes[n].first
		if c == none {
			return false
		}
		for ; c != none; c = s.nodes[c].next {
			if s.nodes[c].kind == '[' || !s.plain(c) {
				return false
			}
		}
		return true
	}
	switch text, _ := s.text(n); text {
	case "string", "integer", "boolean":
		return true
	}
	return false
}

// isTokenRune reports whether RFC 9110 allows r in the name of a header.
func isTokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
