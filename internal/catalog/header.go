package catalog

import "strings"

// headerKeyword marks a parameter that clients also send as the header Mcp-Param-<its text>.
const headerKeyword = "x-mcp-header"

// maxHeaderBytes limits the name in x-mcp-header.
const maxHeaderBytes = 64

// reservedHeaders have a meaning in HTTP or in the protocol. After Mcp-Param- these names are harmless, but a reader
// that forgets the prefix would reveal credentials, or frame a message differently.
var reservedHeaders = map[string]bool{
	"authorization": true, "proxy-authorization": true, "proxy-authenticate": true, "www-authenticate": true,
	"cookie": true, "set-cookie": true, "host": true, "origin": true, "forwarded": true,
	"connection": true, "content-length": true, "content-type": true, "content-encoding": true,
	"te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
}

// checkHeader checks the x-mcp-header at m, a member of the schema at n, against the protocol's rules. A tool that
// breaks one must not be offered.
func (s *schemaChecker) checkHeader(n, m int32, reachable bool) {
	name, ok := s.stringValue(m)
	lower := strings.ToLower(name)
	switch {
	case !ok:
		s.setProblem(m, "is %s; want a string", s.kindName(m))
	case !reachable || n == s.root:
		s.setProblem(m, "is in a schema that is not reached through properties alone")
	case name == "":
		s.setProblem(m, "is empty")
	case len(name) > maxHeaderBytes:
		s.setProblem(m, "is %d bytes long; at most %d are allowed", len(name), maxHeaderBytes)
	case strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }):
		s.setProblem(m, "%s is not the name of a header", safeQuote(name))
	case reservedHeaders[lower] || strings.HasPrefix(lower, "mcp-"):
		s.setProblem(m, "%s is the name of a header that has another meaning", safeQuote(name))
	case s.headers[lower]:
		s.setProblem(m, "%s is given twice; case does not count", safeQuote(name))
	case !s.allowedInHeader(s.member(n, "type")):
		s.setProblem(m, "is on a parameter that is not of type string, integer or boolean")
	}
	s.headers[lower] = true
}

// allowedInHeader reports whether the type at n, or every type in the list at n, may be sent in a header.
func (s *schemaChecker) allowedInHeader(n int32) bool {
	if n == none {
		return false
	}
	if s.nodes[n].kind == '[' {
		c := s.nodes[n].first
		if c == none {
			return false
		}
		for ; c != none; c = s.nodes[c].next {
			if s.nodes[c].kind == '[' || !s.allowedInHeader(c) {
				return false
			}
		}
		return true
	}
	switch text, _ := s.stringValue(n); text {
	case "string", "integer", "boolean":
		return true
	}
	return false
}

// isTokenRune reports whether RFC 9110 allows r in a header's name.
func isTokenRune(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}
