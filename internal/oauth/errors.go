package oauth

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A FailureKind says whether the request of an error may be sent again, and who can help.
type FailureKind string

// The kinds.
const (
	// Refused: the authorization server, or this package, has said no for good. The code or the refresh token is of no more use: ask the person
	// to connect again.
	Refused FailureKind = "refused"
	// NotSent: nothing of the request left this process. The same refresh token may be sent again.
	NotSent FailureKind = "not sent"
	// Busy: the authorization server says that it did nothing, because it has too much to do. The same refresh token may be sent
	// again, after RequestError.RetryAfter.
	Busy FailureKind = "busy"
	// Lost: the request was sent, and its answer cannot be known. A refresh token may have been used: never send it again.
	Lost FailureKind = "lost"
	// Misconfigured: the metadata, the registration or the request is at fault, so a repetition gives the same answer. The error says what to change, and where. A
	// refresh token has not been used.
	Misconfigured FailureKind = "misconfigured"
)

// A RequestError is why a step did not succeed. Its text has at most one line of the authorization server, without secrets.
type RequestError struct {
	Kind       FailureKind
	Code       string        // of the authorization server: RFC 6749 section 5.2, such as invalid_client; "" if it gave none
	RetryAfter time.Duration // with Busy; 0 if it is not known
	Err        error
}

// Error says what happened.
func (e *RequestError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RequestError) Unwrap() error { return e.Err }

// KindOf returns the kind of an error of this package; Lost for every other error, since the worst must be assumed.
func KindOf(err error) FailureKind {
	if e, ok := errors.AsType[*RequestError](err); ok {
		return e.Kind
	}
	return Lost
}

// fail returns a RequestError.
func fail(v FailureKind, format string, args ...any) error {
	return &RequestError{Kind: v, Err: fmt.Errorf(format, args...)}
}

// A secretMasker hides secrets in texts of an authorization server, which may repeat what it was sent.
type secretMasker []string

// newMasker returns a secretMasker of the secrets, also as a form or JSON spells them.
func newMasker(secrets ...string) secretMasker {
	var m secretMasker
	for _, s := range secrets {
		if s != "" {
			m = append(m, s, url.QueryEscape(s), url.PathEscape(s))
		}
	}
	// The longest first: a secret may contain another one.
	slices.SortStableFunc(m, func(a, b string) int { return len(b) - len(a) })
	return m
}

// text returns a text of a stranger without secrets, on one line of at most limit characters. It cuts last: half a secret would not be found.
func (m secretMasker) text(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsGraphic(r) {
			return ' '
		}
		return r
	}, s)
	for _, secret := range m {
		s = strings.ReplaceAll(s, secret, "***")
	}
	n := 0
	for i := range s {
		if n++; n > limit {
			return strings.TrimSpace(s[:i]) + "…"
		}
	}
	return strings.TrimSpace(s)
}
