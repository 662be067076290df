package approval

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A server of the latest version asks by a result, and the client makes its call again with the answers and with the state that the server gave. An agent
// could send such answers with its first call, and a server could take them for a person's confirmation that no person saw. So the state of an approved call
// is sealed here, for the binding of its request, and only a call with a sealed state may bring answers.

// The members of params that bring answers.
const (
	memberAnswers = "inputResponses"
	memberState   = "requestState"
)

// sealedPrefix begins a sealed state. The seal, a dot, and the server's state as it was spelled follow.
const sealedPrefix = "switchboard-approved-1."

// firstRound reports whether the call brings no answers to questions of its server.
func firstRound(c *switchboard.Call) bool {
	_, answers := wire.Field(c.Params, memberAnswers)
	_, state := wire.Field(c.Params, memberState)
	return !answers && !state
}

// openRound returns the call as its server gets it. It refuses a call of a tool with params that no person sees, unless an approved call with the
// same binding was asked for them. The error is a *switchboard.Error.
func (k *Keeper) openRound(c *switchboard.Call, q *Request) (*switchboard.Call, error) {
	if c.Method != wire.MethodToolsCall {
		return c, nil // the binding and the person's text have all params
	}
	brings := ""
	for name := range wire.Members(c.Params) {
		switch name {
		case "name", "arguments", wire.MemberMeta:
		case memberAnswers, memberState:
			brings = name
		default:
			return nil, unseen(name, "leave it out")
		}
	}
	if brings == "" {
		return c, nil
	}
	raw, _ := wire.Field(c.Params, memberState)
	text, _ := wire.String(raw)
	sealed, ours := strings.CutPrefix(text, sealedPrefix)
	seal, state, whole := strings.Cut(sealed, ".")
	if !ours || !whole || !hmac.Equal([]byte(seal), []byte(k.sealOf(q, state))) {
		return nil, unseen(brings, "make the call without it: the server asks after the approval, and then the client answers")
	}
	edit := wire.Edit{Name: memberState}
	if state != "" {
		edit.Value = []byte(state)
	}
	own := *c
	own.Params = wire.Rewrite(nil, c.Params, edit)
	return &own, nil
}

func unseen(member, hint string) *switchboard.Error {
	e := switchboard.Refuse(switchboard.CodeBadArguments, "this call needs a person's approval, and its params have %.64q, which no person would see", member)
	e.Hint, e.Unsent = hint, true
	return e
}

// sealOf returns the seal of a server's state for the binding of q.
func (k *Keeper) sealOf(q *Request, state string) string {
	mac := hmac.New(sha256.New, []byte(k.o.Key.Reveal()))
	_, _ = mac.Write([]byte("state\x00" + k.Bind(q) + "\x00" + state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// callApproved makes the call with its yes, and seals the state of a result that asks for input.
func (k *Keeper) callApproved(ctx context.Context, c *switchboard.Call, q *Request, yes *switchboard.Yes, next switchboard.Caller) (switchboard.Result, error) {
	own := *c
	own.Yes = yes
	r, err := next.Call(ctx, &own)
	if err != nil || c.Method != wire.MethodToolsCall {
		return r, err
	}
	kind, _ := wire.Field(r.JSON, wire.MemberResultType)
	if said, _ := wire.String(kind); said != "input_required" {
		return r, nil
	}
	state, _ := wire.Field(r.JSON, memberState)
	sealed := wire.AppendString(nil, sealedPrefix+k.sealOf(q, string(state))+"."+string(state))
	asks := r
	asks.JSON, asks.Outline, asks.Spare, asks.Release = wire.Rewrite(nil, r.JSON, wire.Edit{Name: memberState, Value: sealed}), switchboard.Outline{}, 0, nil
	if r.Release != nil {
		r.Release()
	}
	return asks, nil
}
