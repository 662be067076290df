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

// A kind is what stands under a key.
type outcomeKind string

const (
	kindClaimed  outcomeKind = ""         // a call that is under way, or was when its process ended
	kindResult outcomeKind = "result"   // what a tool has answered
	kindFailure   outcomeKind = "failure"  // the error that a server has answered
	kindRefusal  outcomeKind = "refusal"  // how Switchboard had to end a call that may have been made
	kindTooLarge outcomeKind = "tooLarge" // a tool has answered more than is kept
	kindUnknown  outcomeKind = "unknown"
)

// A record is what stands under a key: a line of JSON, and then the bytes of a
// result, or of a server's error, as they came.
type keyRecord struct {
	Owner string `json:"owner"`
	Call  keyedCall `json:"call,omitzero"` // without a digest it is not known
	Kind  outcomeKind   `json:"kind,omitempty"`

	When  time.Time          `json:"when,omitzero"`
	Tool  switchboard.ToolID `json:"tool,omitzero"` // that was called last
	Moved *switchboard.Moved `json:"moved,omitempty"`

	Size   int                  `json:"size,omitempty"`   // of what is tooLarge
	Server switchboard.ServerID `json:"server,omitempty"` // that failed
	Modern bool                 `json:"modern,omitempty"`
	Code   switchboard.Code     `json:"code,omitempty"` // of the refusal
	Text   string               `json:"text,omitempty"`
	Hint   string               `json:"hint,omitempty"`

	body []byte
}

// keyedCall is what a client called.
type keyedCall struct {
	Name   string             `json:"name"` // by which the client knew the tool
	ID     switchboard.ToolID `json:"tool"`
	Digest string             `json:"arguments"`
}

func (r *keyRecord) encode() []byte {
	head, _ := json.Marshal(r) // strings and numbers: it cannot fail
	return append(append(head, '\n'), r.body...)
}

// decode reads a record. What it cannot read counts as one that is unknown: so
// nothing is made twice.
func decode(data []byte) *keyRecord {
	head, body, _ := bytes.Cut(data, []byte("\n"))
	r := &keyRecord{body: body}
	if err := json.Unmarshal(head, r); err != nil {
		return &keyRecord{Kind: kindUnknown}
	}
	return r
}

// outcomeOf is what is kept of a call that has ended so; nil where the key is free
// again, since nothing was executed: the call has reached no server, or the server
// asks for more before it begins.
func outcomeOf(c *switchboard.Call, r switchboard.Result, err error) *keyRecord {
	out := &keyRecord{Tool: c.Tool.ID, Moved: r.Moved}
	if r.Moved != nil {
		out.Tool = r.Moved.To
	}
	own, refusal := errors.AsType[*switchboard.Error](err)
	server, failure := errors.AsType[*switchboard.ServerError](err)
	switch {
	case err == nil && asksForInput(&r):
		return nil
	case err == nil && len(r.JSON) > MaxKept:
		out.Kind, out.Size = kindTooLarge, len(r.JSON)
	case err == nil:
		out.Kind, out.body = kindResult, r.JSON
	case failure:
		out.Kind, out.Server, out.Modern, out.body = kindFailure, server.Server, server.Modern, server.Object
	case !c.Once.Sent:
		return nil
	case refusal && own.Code == switchboard.CodeRateLimit: // the server's own: it has not looked at the call
		return nil
	case refusal:
		out.Kind, out.Code, out.Text, out.Hint = kindRefusal, own.Code, own.Text, own.Hint
	default:
		out.Kind = kindUnknown
	}
	return out
}

// asksForInput reports whether the result is not one yet, but asks for more.
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

// replay gives the outcome as it was.
func (r *keyRecord) replay() (switchboard.Result, error) {
	switch r.Kind {
	case kindResult:
		return switchboard.Result{JSON: r.body, Moved: r.Moved, Again: &switchboard.Again{From: switchboard.GivenIdempotency, When: r.When}}, nil
	case kindFailure:
		return switchboard.Result{}, &switchboard.ServerError{Server: r.Server, Modern: r.Modern, Object: r.body}
	case kindRefusal:
		return switchboard.Result{}, &switchboard.Error{Code: r.Code, Text: r.Text, Hint: r.Hint, Cause: fmt.Errorf("it is the outcome of %s that was kept under its idempotency key", r.When.Format(time.RFC3339))}
	case kindTooLarge:
		return switchboard.Result{}, switchboard.Refuse(switchboard.CodeResultInvalid, "the call with this idempotency key was executed, and its result was given then; it has %d bytes, and no more than %d are kept, so that it cannot be given again", r.Size, MaxKept)
	}
	return switchboard.Result{}, errOutcomeLost
}
