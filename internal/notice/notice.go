// Package notice tells people outside of Switchboard that something has happened: a call waits for an approval, a
// budget is nearly used up, policy wants a person to know of a call.
//
// A notice goes to the recipients of the configuration (notify), as a webhook by the specification of Standard
// Webhooks, and into the log. It says who, what and when, and has no arguments of calls and no text that an agent
// wrote.
//
// Outbox keeps notices in the store until they are delivered. Put returns when the notice is durable. For each
// recipient, one replica at a time empties the recipient's mailbox (package lease). It delivers each notice at least
// once, tries again for a day, and then gives up. Recipients do not delay each other.
//
// The package decides what a notice says, how long it is kept, and how it is sent. Those who call Put decide when
// people are told.
package notice

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Happening is the type of a notice, as its recipients see it.
type Happening string

// The types of notices.
const (
	ApprovalRequested   Happening = "approval.requested"   // a call waits for a person's yes
	ApprovalDecided     Happening = "approval.decided"     // such a request has ended: see State
	BudgetWarned        Happening = "budget.warned"        // a budget is nearly used up
	CapabilityRequested Happening = "capability.requested" // an agent asks for a capability
	CallMade            Happening = "call.made"            // policy wants somebody to know of this call, which is made now
)

// A Notice says what has happened. It has no member for arguments, or for text that an agent wrote.
type Notice struct {
	Type   Happening            `json:"-"`
	Tenant switchboard.TenantID `json:"tenant"`

	// Key identifies the notice among those of its Type and Tenant. Two notices with one Key have one id, so that a recipient can drop the second. "" means a new id.
	Key string `json:"-"`

	// To names recipients. nil means all that the tenant's notices may go to, if there are any.
	To []string `json:"-"`

	Principal  string             `json:"principal,omitempty"`
	Task       switchboard.TaskID `json:"task,omitempty"`
	Tool       string             `json:"tool,omitempty"`       // SERVER/NAME
	Request    string             `json:"request,omitempty"`    // the id of the request for an approval or a capability
	Capability string             `json:"capability,omitempty"` // that is asked for
	State      string             `json:"state,omitempty"`      // of the request: approved, refused, …
	By         string             `json:"by,omitempty"`         // the person who decided
	Until      time.Time          `json:"until,omitzero"`       // the end of the request, of the yes, or of the budget's window
	Budget     string             `json:"budget,omitempty"`     // the id of the budget
	Used       string             `json:"used,omitempty"`       // of the budget, as text: 8.20 USD
	Limit      string             `json:"limit,omitempty"`
}

// Bounds of a notice. A text in it is shortened if it is longer.
const (
	maxText = 256
	maxBody = 8 << 10
)

// A message is the body of a webhook: https://www.standardwebhooks.com, "Payload structure".
type message struct {
	Type      Happening `json:"type"`
	Timestamp time.Time `json:"timestamp"` // of what has happened, not of the attempt to tell it
	Data      Notice    `json:"data"`
}

// encode returns the body of the notice, and its id.
func (n Notice) encode(now time.Time) (id string, body []byte, err error) {
	var b [16]byte
	rand.Read(b[:])
	if n.Key != "" {
		sum := sha256.Sum256([]byte(string(n.Type) + " " + string(n.Tenant) + " " + n.Key))
		copy(b[:], sum[:])
	}
	n.Until = n.Until.UTC()
	for _, text := range []*string{(*string)(&n.Tenant), &n.Principal, (*string)(&n.Task), &n.Tool, &n.Request, &n.Capability, &n.State, &n.By, &n.Budget, &n.Used, &n.Limit} {
		*text = shorten(*text)
	}
	if body, err = json.Marshal(message{n.Type, now.UTC(), n}); err != nil {
		return "", nil, err
	}
	if len(body) > maxBody {
		return "", nil, fmt.Errorf("the notice has %d bytes; at most %d", len(body), maxBody)
	}
	return "msg_" + hex.EncodeToString(b[:]), body, nil
}

// shorten returns the beginning of a text that is too long, and …
func shorten(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}

// log writes the notice into the log.
func (n Notice) log(log *slog.Logger, to []string) {
	attrs := []any{"type", n.Type, "tenant", n.Tenant, "to", to}
	for _, a := range []struct{ key, value string }{
		{"principal", n.Principal},
		{"task", string(n.Task)},
		{"tool", n.Tool},
		{"request", n.Request},
		{"capability", n.Capability},
		{"state", n.State},
		{"by", n.By},
		{"budget", n.Budget},
		{"used", n.Used},
		{"limit", n.Limit},
	} {
		if a.value != "" {
			attrs = append(attrs, a.key, shorten(a.value))
		}
	}
	if !n.Until.IsZero() {
		attrs = append(attrs, "until", n.Until)
	}
	log.Info("notice", attrs...)
}

// errUnknown says that a notice has a recipient that the configuration does not have for its tenant.
var errUnknown = errors.New("notify in switchboard.yaml does not have it for the tenant")

// recipientsOf returns the recipients of the notice.
func (n Notice) recipientsOf(all []switchboard.Recipient) (to []string, err error) {
	for _, r := range all {
		if r.Serves(n.Tenant) && (n.To == nil || slices.Contains(n.To, r.Name)) {
			to = append(to, r.Name)
		}
	}
	for _, name := range n.To {
		if !slices.Contains(to, name) {
			return nil, fmt.Errorf("recipient %.64q, tenant %s: %w", name, n.Tenant, errUnknown)
		}
	}
	return to, nil
}

// TellFirst returns a Caller that carries out the obligation notify: it makes the call once a notice of it is durable. It refuses the
// call with SB-POL-003 if a recipient is unknown, and with SB-ROUT-004 if the notice cannot be kept.
func (o *Outbox) TellFirst(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if len(c.Obligations.Notify) > 0 {
			n := Notice{Type: CallMade, Tenant: c.Principal.Tenant, To: c.Obligations.Notify, Principal: c.Principal.ID, Task: c.Task, Tool: targetOf(c)}
			if err := o.Put(ctx, n); err != nil {
				return switchboard.Result{}, refusal(ctx, err)
			}
		}
		return next.Call(ctx, c)
	})
}

// refusal returns the error for the caller of a call that is not made, because nobody can be told of it.
func refusal(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errUnknown): // the configuration has changed since policy was asked
		return &switchboard.Error{Code: switchboard.CodeObligation, Text: "this call is allowed under a condition that cannot be met here, so it was not made", Unsent: true, Cause: err}
	case ctx.Err() != nil:
		return &switchboard.Error{Code: switchboard.CodeNotExecuted, Text: "the call was cancelled before it could be sent, so it was not executed", Unsent: true, Cause: errors.Join(context.Cause(ctx), err)}
	}
	return switchboard.Unavailable("a person must be told of this call, and the notice cannot be kept, so the call was not made", err)
}

// targetOf names the tool of the call, or what kind of thing is called. Of a resource it leaves out the URI, which is an argument.
func targetOf(c *switchboard.Call) string {
	if c.Tool != nil {
		return c.Tool.ID.String()
	}
	return string(c.Server) + "/" + string(c.Item.Kind)
}
