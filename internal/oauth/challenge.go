package oauth

import "strings"

// Bounds of the challenges of one answer.
const (
	maxChallenges     = 16 << 10 // bytes of all header values
	maxChallengeValue = 4 << 10  // bytes of one parameter
)

// A Challenge is what a server demands: the parameters of its Bearer challenge. RFC 6750 section 3, RFC 9728 section 5.1.
type Challenge struct {
	ResourceMetadata string // where the server describes itself; a stranger's text, which Discover checks
	Scope            string // the scopes that the request needs, with spaces between
	Error            string // such as invalid_token and insufficient_scope; "" if the request had no token
}

// ParseChallenge reads the values of the header WWW-Authenticate, and returns the first Bearer challenge. ok is false if there is none, or
// if a value is not of the form of RFC 9110 section 11.6.1, appears twice or is too long: what cannot be read for certain demands nothing.
func ParseChallenge(values []string) (c Challenge, ok bool) {
	size := 0
	for _, v := range values {
		if size += len(v); size > maxChallenges {
			return Challenge{}, false
		}
	}
	for _, v := range values {
		p := challengeParser{rest: v}
		found, valid := p.parse()
		switch {
		case !valid:
			return Challenge{}, false
		case found != nil && !ok:
			c, ok = Challenge{ResourceMetadata: found["resource_metadata"], Scope: found["scope"], Error: found["error"]}, true
		}
	}
	return c, ok
}

// A challengeParser reads one header value: a list of challenges, each of a scheme and either a token68 or a list of parameters. A
// comma separates both challenges and parameters, so what follows a comma decides which one it was.
type challengeParser struct {
	rest string
}

// parse returns the parameters of the first Bearer challenge; nil if there is none.
func (p *challengeParser) parse() (bearer map[string]string, valid bool) {
	var params map[string]string // of the challenge that is being read; nil before the first one
	bare := false                // it has a token68, or nothing yet may follow
	for {
		p.skip(" \t,")
		if p.rest == "" {
			return bearer, true
		}
		name := p.token()
		if name == "" {
			return nil, false
		}
		if value, ok, valid := p.value(); !valid {
			return nil, false
		} else if ok {
			name = strings.ToLower(name)
			if _, again := params[name]; params == nil || bare || again {
				return nil, false
			}
			params[name] = value
			if !p.atEnd() {
				return nil, false
			}
			continue
		}
		// The name is a scheme.
		params, bare = map[string]string{}, false
		if strings.EqualFold(name, "Bearer") && bearer == nil {
			bearer = params
		}
		if p.atEnd() {
			continue
		}
		if p.rest[0] != ' ' {
			return nil, false
		}
		p.skip(" ")
		if p.token68() {
			bare = true
		}
	}
}

// skip skips the characters.
func (p *challengeParser) skip(chars string) { p.rest = strings.TrimLeft(p.rest, chars) }

// atEnd reports whether a comma or the end comes next.
func (p *challengeParser) atEnd() bool {
	rest := strings.TrimLeft(p.rest, " \t")
	return rest == "" || rest[0] == ','
}

// token reads a token: RFC 9110 section 5.6.2.
func (p *challengeParser) token() string {
	n := 0
	for n < len(p.rest) && isTokenChar(p.rest[n]) {
		n++
	}
	name := p.rest[:n]
	p.rest = p.rest[n:]
	return name
}

// value reads "=" and the value of a parameter. ok is false if there is none.
func (p *challengeParser) value() (value string, ok, valid bool) {
	rest := strings.TrimLeft(p.rest, " \t")
	if !strings.HasPrefix(rest, "=") {
		return "", false, true
	}
	p.rest = strings.TrimLeft(rest[1:], " \t")
	if !strings.HasPrefix(p.rest, `"`) {
		value = p.token()
		return value, true, value != "" && len(value) <= maxChallengeValue
	}
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		ch := p.rest[i]
		if ch == '"' {
			p.rest = p.rest[i+1:]
			return b.String(), true, b.Len() <= maxChallengeValue
		}
		if ch == '\\' {
			if i++; i == len(p.rest) {
				break
			}
			ch = p.rest[i]
		}
		if ch < ' ' && ch != '\t' || ch == 0x7f {
			break
		}
		b.WriteByte(ch)
	}
	return "", true, false
}

// token68 reads credentials such as those of Negotiate, if they come next.
func (p *challengeParser) token68() bool {
	n := 0
	for n < len(p.rest) && (isAlphaNumeric(p.rest[n]) || strings.IndexByte("-._~+/", p.rest[n]) >= 0) {
		n++
	}
	end := n
	for end < len(p.rest) && p.rest[end] == '=' {
		end++
	}
	after := challengeParser{p.rest[end:]}
	if n == 0 || !after.atEnd() {
		return false
	}
	p.rest = after.rest
	return true
}

func isAlphaNumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isTokenChar(c byte) bool {
	return isAlphaNumeric(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
