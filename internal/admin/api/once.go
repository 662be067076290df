package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// maxKeyedTime limits how long a request with an idempotency key is carried out, whether or not its sender has left. It does not limit the call of a tool,
// which ends by its own deadlines, or when a stop cuts it.
const maxKeyedTime = 2 * time.Minute

// repeatedHeader marks an answer that was given before.
const repeatedHeader = "Idempotency-Replayed"

// A KeyStore carries requests with idempotency keys out once. See idempotency.Keys.
type KeyStore interface {
	Answer(ctx context.Context, r idempotency.Request, do func() (answer []byte, keep bool)) (answer []byte, repeated bool, err error)
	Kept(ctx context.Context, sender, key string) ([]byte, error)
}

// keyParam describes the header in the document.
var keyParam = &huma.Param{
	Name: wire.HeaderIdempotencyKey, In: "header",
	Description: "Makes the request once: a repeat with the same key gets the first answer again, for 24 hours. 1 to 255 visible ASCII characters, such as a random UUID.",
	Schema:      &huma.Schema{Type: huma.TypeString, MinLength: new(1), MaxLength: new(switchboard.MaxOnceKey), Pattern: "^[!-~]+$"},
}

// repeatedParam describes the header of answers that are given again.
var repeatedParam = &huma.Param{Description: "true if the answer was given before, to a request with this Idempotency-Key.", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}}}

// keyedRequests are requests with idempotency keys.
type keyedRequests struct{ *API }

// answerOnce carries a request with an idempotency key out once, and gives a repeat the first answer. It comes after the check of the
// office, so who has lost the office gets no answer either.
func (a keyedRequests) answerOnce(ctx huma.Context, next func(huma.Context)) {
	if changes, _ := ctx.Operation().Metadata[changesKey].(bool); !changes {
		next(ctx)
		return
	}
	key, given, err := idempotencyKey(ctx)
	if err != nil {
		a.writeRefusal(ctx, err)
		return
	}
	if dry, _ := strconv.ParseBool(ctx.Query("dry_run")); !given || dry { // a dry run changes nothing
		next(ctx)
		return
	}
	_ = ctx.SetReadDeadline(time.Now().Add(bodyTimeout)) // as huma does
	body, err := io.ReadAll(io.LimitReader(ctx.BodyReader(), maxBody+1))
	if err != nil {
		a.writeRefusal(ctx, &apiProblem{Problem: access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Text: "the body could not be read to its end"})})
		return
	}
	officer := officerOf(ctx.Context())
	answer, repeated, err := a.o.Keys.Answer(ctx.Context(), idempotency.Request{
		Sender: senderOf(officer), Key: key, Digest: a.o.DigestRequest(routeOf(ctx), body),
	}, func() ([]byte, bool) {
		// The sender may lose the connection: it asks again then, and the answer must say what has become of its request.
		work, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx.Context()), givenKey{}, key), maxKeyedTime)
		defer cancel()
		taken := &takenAnswer{humaContext: ctx, body: bytes.NewReader(body), answer: storedAnswer{Status: http.StatusOK, Header: http.Header{}}}
		next(huma.WithContext(taken, work))
		return taken.encode(), taken.isKept()
	})
	if err == nil && repeated {
		err = a.mayHaveAgain(ctx, officer, answer)
	}
	if err != nil {
		a.writeRefusal(ctx, refuseKey(err))
		return
	}
	writeStored(ctx, answer, repeated)
}

// senderOf names the officer as the sender of requests with keys.
func senderOf(o *switchboard.Officer) string {
	return string(o.Auth) + " " + cmp.Or(o.Credential, o.ID)
}

// idempotencyKey returns the key of the request.
func idempotencyKey(ctx huma.Context) (key string, given bool, err error) {
	n := 0
	ctx.EachHeader(func(name, value string) {
		if strings.EqualFold(name, wire.HeaderIdempotencyKey) {
			key, n = value, n+1
		}
	})
	visible := func(r rune) bool { return r > ' ' && r <= '~' }
	if n > 1 || n == 1 && (key == "" || len(key) > switchboard.MaxOnceKey || strings.ContainsFunc(key, func(r rune) bool { return !visible(r) })) {
		return "", false, newProblem(http.StatusBadRequest, "an idempotency key has 1 to "+strconv.Itoa(switchboard.MaxOnceKey)+" visible ASCII characters, and a request has one; leave it out if the request may be made more than once")
	}
	return key, n == 1, nil
}

// routeOf returns what a request asks for, except for its body: its method, path, parameters and preconditions.
func routeOf(ctx huma.Context) string {
	at := ctx.URL()
	return strings.Join([]string{ctx.Method(), at.EscapedPath(), at.Query().Encode(), url.QueryEscape(ctx.Header("If-Match")), url.QueryEscape(ctx.Header("If-None-Match"))}, " ")
}

// mayHaveAgain refuses the stored answer if the officer may no longer see the file, the change or the tenant that the answer is about. checkOffice has decided
// about the tenant that the request names. A request that names none was about a tenant that the officer may have lost since.
func (a keyedRequests) mayHaveAgain(ctx huma.Context, officer *switchboard.Officer, answer []byte) error {
	var err error
	if id := ctx.Param("change"); id != "" {
		_, err = a.o.Editor.Show(ctx.Context(), officer, id)
	} else if path := ctx.Query("path"); path != "" {
		_, _, err = a.o.Editor.Permit(officer, path)
	} else if tenant := tenantIn(answer); tenant != "" {
		_, err = a.judge(officer, ctx.Operation().Metadata[needsKey].(switchboard.Office), tenant)
	}
	return changed(err)
}

// tenantIn returns the tenant that a stored answer names, as the outcomes of calls and decisions do; "" if it names none.
func tenantIn(answer []byte) switchboard.TenantID {
	_, body, _ := bytes.Cut(answer, []byte("\n"))
	var about struct {
		Tenant switchboard.TenantID `json:"tenant"`
	}
	if json.Unmarshal(body, &about) != nil {
		return ""
	}
	return about.Tenant
}

// refuseKey returns the refusal of a request for its key as a problem.
func refuseKey(err error) error {
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok {
		return err
	}
	status := access.HTTPStatus(e.Code)
	switch e.Code {
	case switchboard.CodeKeyTaken:
		status = http.StatusUnprocessableEntity
		if errors.Is(err, idempotency.ErrInFlight) {
			status = http.StatusConflict
		}
	case switchboard.CodeOutcomeUnknown, switchboard.CodeResultInvalid, switchboard.CodeNotExecuted:
		status = http.StatusConflict
	}
	p := &apiProblem{Problem: access.ProblemOf(status, e), after: e.RetryAfter}
	if errors.Is(err, idempotency.ErrInFlight) {
		p.Retry = switchboard.RetryLater
	}
	return p
}

// writeRefusal answers with err.
func (a *API) writeRefusal(ctx huma.Context, err error) {
	p := a.refuse(err).(*apiProblem) //nolint:errorlint,forcetypeassert // refuse makes it
	if p.after > 0 {
		ctx.SetHeader("Retry-After", strconv.Itoa(int(math.Ceil(p.after.Seconds()))))
	}
	ctx.SetHeader("Content-Type", problemType)
	ctx.SetStatus(p.Status)
	_ = writeJSON(ctx.BodyWriter(), p)
}

// A storedAnswer is an answer as it is stored: one line of JSON, and then the body.
type storedAnswer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header"`
}

// humaContext is embedded under this name, because huma.Context has a method Context.
type humaContext huma.Context

// A takenAnswer is the context of a request. It holds the answer, until that is stored.
type takenAnswer struct {
	humaContext
	body   *bytes.Reader
	answer storedAnswer
	out    bytes.Buffer
}

// isKept reports whether a repeat gets this answer. It is carried out instead if nothing was done, or if a repeat does no harm: when it can be done
// later, and for answers that the store must not have, which are codes, and texts of files that were not changed.
func (c *takenAnswer) isKept() bool {
	switch c.answer.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return false
	case http.StatusConflict:
		var p access.Problem
		return json.Unmarshal(c.out.Bytes(), &p) != nil || p.Code != switchboard.CodeNotChangedHere
	}
	secret, _ := c.Operation().Metadata[secretKey].(bool)
	return !secret
}

// BodyReader implements huma.Context.
func (c *takenAnswer) BodyReader() io.Reader { return c.body }

// SetStatus implements huma.Context.
func (c *takenAnswer) SetStatus(code int) { c.answer.Status = code }

// Status implements huma.Context.
func (c *takenAnswer) Status() int { return c.answer.Status }

// SetHeader implements huma.Context.
func (c *takenAnswer) SetHeader(name, value string) { c.answer.Header.Set(name, value) }

// AppendHeader implements huma.Context.
func (c *takenAnswer) AppendHeader(name, value string) { c.answer.Header.Add(name, value) }

// BodyWriter implements huma.Context.
func (c *takenAnswer) BodyWriter() io.Writer { return &c.out }

// encode returns the answer as it is stored.
func (c *takenAnswer) encode() []byte {
	head, _ := json.Marshal(c.answer) // a number and texts can be encoded
	return append(append(head, '\n'), c.out.Bytes()...)
}

// writeStored answers with an answer that encode returned.
func writeStored(ctx huma.Context, text []byte, repeated bool) {
	head, body, _ := bytes.Cut(text, []byte("\n"))
	var s storedAnswer
	if err := json.Unmarshal(head, &s); err != nil {
		panic(err) // encode wrote it, and the store has sealed it
	}
	for name, values := range s.Header {
		for _, v := range values {
			ctx.AppendHeader(name, v)
		}
	}
	if repeated {
		ctx.SetHeader(repeatedHeader, "true")
	}
	ctx.SetStatus(s.Status)
	_, _ = ctx.BodyWriter().Write(body)
}
