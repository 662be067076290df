package link

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ShownToken is what a request carries to a server that demands a token.
type ShownToken struct {
	// Token is sent as a bearer token (RFC 6750). The zero Secret means that the request carries none.
	Token switchboard.Secret

	// Generation tells this token from those before and after it.
	Generation TokenGeneration
}

// A TokenGeneration identifies one token of a connection: which consent it belongs to, and its number among the tokens of that consent.
type TokenGeneration struct{ Consent, Tokens uint64 }

// bearer begins the value of the header Authorization.
const bearer = "Bearer "

// Credentials gives the requests to one server their tokens. It is safe for concurrent use. A nil principal
// stands for Switchboard itself, which lists the offer.
type Credentials interface {
	// Held returns the token of the principal if it is at hand. It is called for each request, so it does no I/O
	// and waits for nothing.
	Held(p *switchboard.Principal) (ShownToken, bool)

	// Get returns the token of the principal, and gets one if it must. The error is a *switchboard.Error:
	// SB-AUTH-005 if a person has to connect first, SB-AUTH-006 if the provider cannot be asked.
	Get(ctx context.Context, p *switchboard.Principal) (ShownToken, error)

	// Refused says that the server has answered 401 to a request with that token, which it did not execute. challenge has
	// the values of WWW-Authenticate.
	Refused(p *switchboard.Principal, c ShownToken, challenge []string)

	// Demanded is told that the server has answered 403 to a request with that token. If the challenge says that the token has too few
	// scopes (RFC 6750 section 3.1), the server did not execute the request, and the result is the error for the caller, SB-AUTH-005. Otherwise it is nil.
	Demanded(p *switchboard.Principal, c ShownToken, challenge []string) *switchboard.Error
}

// An authorizer gives the requests of one port their tokens.
type authorizer struct {
	all    Credentials // nil if the server takes no tokens
	server switchboard.ServerID
}

// held returns the token of the principal if it is at hand.
func (a authorizer) held(p *switchboard.Principal) (ShownToken, bool) {
	if a.all == nil {
		return ShownToken{}, true
	}
	return a.all.Held(p)
}

// get returns the token of the principal. The error is an *ExchangeError.
func (a authorizer) get(ctx context.Context, p *switchboard.Principal) (ShownToken, error) {
	if a.all == nil {
		return ShownToken{}, nil
	}
	shown, err := a.all.Get(ctx, p)
	if err != nil {
		e := Errorf(KindUnauthorized, false, "there is no token for it: %s", err)
		e.cause = err
		if refused, ok := errors.AsType[*switchboard.Error](err); ok {
			e.Remedy = refused.Hint
		}
		return ShownToken{}, e
	}
	return shown, nil
}

// readDemand returns the error for a response with status 401 to a request of the principal, or with status 403 because the token has too few scopes; nil for
// every other response. With 401 the server says that it has not executed the request, so that it may be sent again with another token. For a request of a
// client that counts only together with a challenge to do so (RFC 6750 section 3), because other software in between answers 401 too.
func (a authorizer) readDemand(p *switchboard.Principal, c ShownToken, ours bool, resp *http.Response) *ExchangeError {
	if a.all == nil || resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
		return nil
	}
	challenge := resp.Header.Values("WWW-Authenticate")
	if resp.StatusCode == http.StatusForbidden {
		refused := a.all.Demanded(p, c, challenge)
		if refused == nil {
			return nil
		}
		e := Errorf(KindScope, false, "it answered with HTTP status 403 Forbidden: it demands a token with more scopes")
		e.Status, e.cause = resp.StatusCode, refused
		return e
	}
	demands := false
	for _, v := range challenge {
		scheme, _, _ := strings.Cut(strings.TrimSpace(v), " ")
		demands = demands || strings.EqualFold(scheme, "Bearer")
	}
	if !demands && !ours {
		return nil
	}
	a.all.Refused(p, c, challenge)
	e := Errorf(KindUnauthorized, false, "it answered with HTTP status 401 Unauthorized: it demands a token")
	e.Remedy = "connect it: switchboard server connect " + string(a.server)
	if c.Token.Reveal() != "" {
		e.Text = "it answered with HTTP status 401 Unauthorized: it no longer takes our token"
		e.Remedy = "it is tried again with another token; if this lasts, look at credential in the row of server " + string(a.server) + ", and connect the server again if a person has connected it"
	}
	e.Status = resp.StatusCode
	return e
}
