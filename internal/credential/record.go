package credential

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// The methods of the receipts of connections.
const (
	methodConnect    = "connect"
	methodDisconnect = "disconnect"     // by an officer
	methodEnd        = "end_connection" // by Switchboard
)

// ReceiptKeeper keeps the receipts of connections. See receipt.Ledger.
type ReceiptKeeper interface {
	Durable() bool
	Write(ctx context.Context, r *receipt.Receipt) (id string, err error)
	Add(r *receipt.Receipt) (id string)
}

// intentTime limits the write of an intent.
const intentTime = 5 * time.Second

// receiptOf returns a receipt about the owner's connection. The note says whose connection it is, and more.
func receiptOf(method string, o vault.Owner, by receipt.Subject, note string) receipt.Receipt {
	caller := "for Switchboard's own requests, by the operator"
	switch {
	case IsOfClient(o):
		caller = "for Switchboard as a service"
	case o.Person != "":
		caller = "for " + string(o.Tenant) + "/" + o.Person
	}
	return receipt.Receipt{Kind: receipt.Admin, Tenant: o.Tenant, Principal: by, Server: o.Server, Method: method, Note: strings.TrimSuffix(caller+"; "+note, "; ")}
}

// withReceipts changes a connection after the receipt r, the intent, is durable. If it cannot be written, nothing is changed (SB-RCPT-001). A second
// receipt records the outcome.
func withReceipts(ctx context.Context, keeper ReceiptKeeper, r receipt.Receipt, do func() (note string, err error)) error {
	if keeper == nil || !keeper.Durable() {
		_, err := do()
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, intentTime)
	defer cancel()
	intent := r
	id, err := keeper.Write(ctx, &intent)
	if err != nil {
		if id != "" {
			keeper.Add(r.Late(id))
		}
		return err
	}
	note, err := do()
	r.Of, r.Outcome = id, receipt.OK
	if note != "" {
		r.Note += "; " + note
	}
	if err != nil && !isUnrevoked(err) {
		r.Outcome = receipt.Refused
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			r.Code = own.Code
		}
	}
	return switchboard.WithReceipt(err, keeper.Add(&r))
}

// addReceipt records what has happened already.
func addReceipt(keeper ReceiptKeeper, r receipt.Receipt) {
	if keeper != nil && keeper.Durable() {
		r.Outcome = receipt.OK
		keeper.Add(&r)
	}
}

// An unrevokedError says that a connection was deleted, and its tokens were not revoked.
type unrevokedError struct{ error }

// Unwrap returns the cause.
func (e unrevokedError) Unwrap() error { return e.error }

func isUnrevoked(err error) bool {
	_, ok := errors.AsType[unrevokedError](err)
	return ok
}

// sayRevoked returns what a receipt says about the revocation of tokens.
func sayRevoked(err error) string {
	switch {
	case err == nil:
		return "its tokens are revoked"
	case errors.Is(err, oauth.ErrNoRevocation):
		return "its provider cannot revoke tokens"
	}
	return "its tokens were not revoked"
}

// RecordLost records that the owner's connection cannot be renewed any more: see vault.Options.
func RecordLost(keeper ReceiptKeeper, o vault.Owner, cause error) {
	why := "the answer of a renewal is lost"
	if errors.Is(cause, vault.ErrRefused) {
		why = "its provider has refused to renew it"
	}
	addReceipt(keeper, receiptOf(methodEnd, o, receipt.Subject{}, why))
}

// EndOf ends the connections of callers for which gone returns a reason: all are deleted, and then their tokens are revoked.
func (b *Broker) EndOf(ctx context.Context, gone func(vault.Owner) (why string)) error {
	all, err := b.vault.List(ctx)
	if err != nil {
		return err
	}
	var revocations []func() // a provider may be slow
	for _, c := range all {
		why := gone(c.Owner)
		if c.Unreadable || why == "" {
			continue
		}
		was, missed := b.vault.Delete(ctx, c.Owner)
		if errors.Is(missed, vault.ErrNone) || errors.Is(missed, vault.ErrUnreadable) { // another replica was first
			continue
		}
		if err = errors.Join(err, missed); missed == nil {
			revocations = append(revocations, func() { revokeEnded(ctx, b, c.Owner, was, why) })
		}
	}
	for _, revoke := range revocations {
		revoke()
	}
	return err
}

// revokeEnded revokes the tokens of a connection that Switchboard has ended, and records the end. It goes on when ctx ends: nothing else has the tokens any more.
func revokeEnded(ctx context.Context, b *Broker, o vault.Owner, was vault.ServerConnection, why string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), revokeTime)
	defer cancel()
	b.log.Info("a connection was ended", "server", string(o.Server), "tenant", string(o.Tenant), "for", o.Person, "why", why)
	err := errors.New("the server is not configured any more")
	if s := b.serverOf(o.Server); s != nil {
		err = b.revoke(ctx, s, was)
	}
	if err != nil && !errors.Is(err, oauth.ErrNoRevocation) {
		b.log.Warn("tokens of a connection that has ended were not revoked; they live on until they expire", "server", string(o.Server), "error", err)
	}
	addReceipt(b.receipts, receiptOf(methodEnd, o, receipt.Subject{}, why+"; "+sayRevoked(err)))
}
