package idempotency

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An outcomeKind says what a keyRecord holds.
type outcomeKind string

const (
	kindClaimed  outcomeKind = ""         // no outcome yet: the call is in flight, or was when its process ended
	kindResult   outcomeKind = "result"   // a tool's result
	kindFailure  outcomeKind = "failure"  // a server's error response
	kindRefusal  outcomeKind = "refusal"  // our own error for a call that may have been executed
	kindTooLarge outcomeKind = "tooLarge" // a result of more than MaxKept bytes
	kindAnswer   outcomeKind = "answer"   // the answer to a request to the admin API
	kindUnknown  outcomeKind = "unknown"
)

// A keyRecord is the store's value for an idempotency key: a line of JSON, and then the bytes of a result, or
// of a server's error, unchanged.
type keyRecord struct {
	Owner string      `json:"owner"`
	Call  keyedCall   `json:"call,omitzero"` // without a digest: unknown
	Kind  outcomeKind `json:"kind,omitempty"`

	When  time.Time          `json:"when,omitzero"`
	Tool  switchboard.ToolID `json:"tool,omitzero"` // the tool that was called last
	Moved *switchboard.Moved `json:"moved,omitempty"`

	Size   int                  `json:"size,omitempty"`   // of a result that is too large
	Server switchboard.ServerID `json:"server,omitempty"` // that answered with an error
	Modern bool                 `json:"modern,omitempty"`
	Code   switchboard.Code     `json:"code,omitempty"` // of our own error
	Text   string               `json:"text,omitempty"`
	Hint   string               `json:"hint,omitempty"`

	body []byte
}

// A keyedCall identifies the call that an idempotency key was given to. A request to the admin API has only a digest.
type keyedCall struct {
	Name   string             `json:"name"` // the tool's name for the client
	ID     switchboard.ToolID `json:"tool,omitzero"`
	Digest string             `json:"arguments"`
}

func (r *keyRecord) encode() []byte {
	head, _ := json.Marshal(r) // strings and numbers: it cannot fail
	return append(append(head, '\n'), r.body...)
}

// decode reads a record. A record that cannot be read counts as an unknown outcome, so that no call is
// executed twice.
func decode(data []byte) *keyRecord {
	head, body, _ := bytes.Cut(data, []byte("\n"))
	r := &keyRecord{body: body}
	if err := json.Unmarshal(head, r); err != nil {
		return &keyRecord{Kind: kindUnknown}
	}
	return r
}

// outcomeOf returns the record of a call that ended with r and err. sent says that it may have reached a server. It is nil if the key is free again
// because nothing was executed: the call reached no server, or the server asks for input before it begins.
func outcomeOf(c *switchboard.Call, sent bool, r switchboard.Result, err error) *keyRecord {
	out := &keyRecord{Tool: c.Tool.ID, Moved: r.Moved}
	if r.Moved != nil {
		out.Tool = r.Moved.To
	}
	own, refusal := errors.AsType[*switchboard.Error](err)
	server, failure := errors.AsType[*switchboard.ServerError](err)
	switch {
	case err == nil && asksForInput(&r):
		return nil
	case err == nil && len(r.JSON) > MaxStoredResult:
		out.Kind, out.Size = kindTooLarge, len(r.JSON)
	case err == nil:
		out.Kind, out.body = kindResult, r.JSON
	case failure:
		out.Kind, out.Server, out.Modern, out.body = kindFailure, server.Server, server.Modern, server.Object
	case !sent:
		return nil
	case refusal && own.Code == switchboard.CodeRateLimit: // the server's own rate limit: it did not begin the call
		return nil
	case refusal:
		out.Kind, out.Code, out.Text, out.Hint = kindRefusal, own.Code, own.Text, own.Hint
	default:
		out.Kind = kindUnknown
	}
	return out
}

// asksForInput reports whether the result is not final but asks for input.
func asksForInput(r *switchboard.Result) bool {
	o := r.Outline
	if o.End == 0 {
		o = wire.OutlineOf(r.JSON)
	}
	for _, m := range o.Members {
		if m.Name == wire.MemberResultType {
			kind, _ := wire.String(r.JSON[m.Value:m.End])
			return kind == "input_required"
		}
	}
	return false
}

// replay returns the outcome, as the first call returned it.
func (r *keyRecord) replay() (switchboard.Result, error) {
	switch r.Kind {
	case kindResult:
		return switchboard.Result{JSON: r.body, Moved: r.Moved, Repeated: &switchboard.Repeated{From: switchboard.GivenIdempotency, When: r.When}}, nil
	case kindFailure:
		return switchboard.Result{}, &switchboard.ServerError{Server: r.Server, Modern: r.Modern, Object: r.body}
	case kindRefusal:
		return switchboard.Result{}, &switchboard.Error{Code: r.Code, Text: r.Text, Hint: r.Hint, Cause: fmt.Errorf("this outcome was stored under the idempotency key at %s", r.When.Format(time.RFC3339))}
	case kindTooLarge:
		return switchboard.Result{}, switchboard.Refuse(switchboard.CodeResultInvalid, "the call with this idempotency key was executed, and its result was returned then; the result has %d bytes and is not stored, since at most %d bytes are, so it cannot be returned again", r.Size, MaxStoredResult)
	}
	return switchboard.Result{}, callTexts.outcomeLost()
}
