package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/revocation"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A BlockRow is a person whom no row of the configuration makes an officer, until the block is lifted.
type BlockRow struct {
	Issuer  string    `json:"issuer"`  // its id in the configuration
	Subject string    `json:"subject"` // the person's claim sub
	By      string    `json:"by"`
	When    time.Time `json:"when"`
	Reason  string    `json:"reason,omitempty"`
}

// Blocks returns the blocked persons, sorted by issuer and subject.
func (a *Actions) Blocks() []BlockRow {
	all := []BlockRow{}
	for _, r := range a.o.Revoked.Persons() {
		issuer, subject, _ := strings.Cut(r.ID, "/")
		all = append(all, BlockRow{issuer, subject, r.By, r.When, r.Reason})
	}
	slices.SortFunc(all, func(x, y BlockRow) int { return strings.Compare(x.Issuer+"/"+x.Subject, y.Issuer+"/"+y.Subject) })
	return all
}

// Block blocks a person at every replica, also one who has never signed in. The error is a *switchboard.Error.
func (a *Actions) Block(by switchboard.Officer, issuer, subject, reason string) (*BlockRow, error) {
	p := &identity.Person{Issuer: issuer, Subject: subject}
	r := revocation.Revocation{ID: p.ID(), Person: true, By: by.ID, When: time.Now().UTC().Truncate(time.Second), Reason: reason}
	err := a.changeBlock(by, "block", p, reason, func(ctx context.Context) error { return a.o.Revoked.Revoke(ctx, [][32]byte{p.Hash()}, r) })
	if err != nil {
		return nil, err
	}
	if kept, ok := a.o.Revoked.Of(p.Hash()); ok {
		r = kept // the first one
	}
	return &BlockRow{issuer, subject, r.By, r.When, r.Reason}, nil
}

// Unblock lifts a block at every replica. The error is a *switchboard.Error: SB-PROT-001 if the person is not blocked.
func (a *Actions) Unblock(by switchboard.Officer, issuer, subject, reason string) error {
	p := &identity.Person{Issuer: issuer, Subject: subject}
	if _, ok := a.o.Revoked.Of(p.Hash()); !ok {
		return &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "this person is not blocked; \"switchboard person blocked\" lists who is"}
	}
	return a.changeBlock(by, "unblock", p, reason, func(ctx context.Context) error { return a.o.Revoked.Restore(ctx, p.Hash()) })
}

func (a *Actions) changeBlock(by switchboard.Officer, method string, p *identity.Person, reason string, change func(ctx context.Context) error) error {
	_, err := a.doWithReceipts(receipt.Receipt{
		Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Method: method, Note: strings.TrimSpace(p.ID() + " " + reason),
	}, func() (string, error) {
		ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
		defer cancel()
		return "", change(ctx)
	})
	if err != nil {
		return err
	}
	a.o.Log.Info("operator", "did", method, "person", p.ID(), "by", by.ID, "reason", reason)
	a.o.Events.Add(event.Occurrence{Type: event.Person, Subject: p.ID(), By: by.ID})
	return nil
}

// EndSession ends a session of the page, and reports whether there was one. end ends it. The error is a *switchboard.Error.
func (a *Actions) EndSession(by switchboard.Officer, id string, end func(ctx context.Context) (bool, error)) (found bool, err error) {
	_, err = a.doWithReceipts(receipt.Receipt{
		Principal: receipt.Subject{ID: by.ID, Auth: by.Auth}, Method: "end_session", Note: id,
	}, func() (string, error) {
		ctx, cancel := context.WithTimeout(a.o.Stopping, operateTimeout)
		defer cancel()
		var err error
		found, err = end(ctx)
		return "", err
	})
	return found, err
}
