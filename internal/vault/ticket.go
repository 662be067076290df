package vault

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// Limits of tickets.
const (
	TicketTime = 10 * time.Minute
	MaxTickets = 20 // of one person at once
)

// ticketGroup is the group of all tickets and of the places that they take. A place is a value that says that a person has a ticket.
const ticketGroup = "ticket"

// A Ticket is a consent in progress.
type Ticket struct {
	Owner   Owner
	Data    []byte // the caller's
	Expires time.Time
}

// ticketRow is the sealed text of a ticket.
type ticketRow struct {
	Owner   Owner     `json:"owner"`
	Data    []byte    `json:"data"`
	Expires time.Time `json:"expires"`
	Place   string    `json:"place"`
}

// newID returns 256 random bits as a text.
func newID() string {
	var b [32]byte
	rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ticketName returns the name of a ticket's value. The store has only this hash of the id.
func ticketName(id string) string { return nameOf(kindTicket, id) }

// NewTicket keeps data under a new id for TicketTime. The id is the only key to the data. The error is ErrFull if the owner's person has
// MaxTickets already.
func (v *Vault) NewTicket(ctx context.Context, o Owner, data []byte) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	id = newID()
	name, t := ticketName(id), ticketRow{Owner: o, Data: data, Expires: time.Now().UTC().Add(TicketTime)}
	person := nameOf("person", string(o.Tenant), o.Person)
	for i := range MaxTickets {
		t.Place = fmt.Sprintf("%s.%d", person, i)
		text, err := json.Marshal(&t)
		if err != nil {
			return "", err
		}
		if len(text) > maxText {
			return "", fmt.Errorf("%w: a ticket has %d bytes; at most %d", store.ErrInvalid, len(text), maxText)
		}
		_, err = v.rows.store.Apply(ctx, store.Change{Group: ticketGroup, Writes: []store.Write{
			{Name: t.Place, Data: []byte("taken"), TTL: TicketTime},
			{Name: name, Data: v.rows.sealer.seal(kindTicket, name, nil, text), TTL: TicketTime},
		}})
		switch {
		case err == nil:
			return id, nil
		case !errors.Is(err, store.ErrConflict):
			return "", fmt.Errorf("keep a ticket: %w", err)
		}
	}
	return "", fmt.Errorf("%w: %d consents of this person are in progress", ErrFull, MaxTickets)
}

// ReadTicket returns the ticket with the id, and changes nothing. The error is ErrNone if it was used or has expired, or an error
// of the store.
func (v *Vault) ReadTicket(ctx context.Context, id string) (Ticket, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	t, _, err := v.readTicket(ctx, id)
	return Ticket{t.Owner, t.Data, t.Expires}, err
}

func (v *Vault) readTicket(ctx context.Context, id string) (t ticketRow, version store.Version, err error) {
	name := ticketName(id)
	value, err := v.rows.store.Value(ctx, store.Key{Group: ticketGroup, Name: name})
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return ticketRow{}, 0, fmt.Errorf("read a ticket: %w", err)
	}
	text, _, ok := v.rows.sealer.open(kindTicket, name, 0, value.Data)
	if !ok || json.Unmarshal(text, &t) != nil || !time.Now().Before(t.Expires) {
		return ticketRow{}, 0, ErrNone
	}
	return t, value.Version, nil
}

// UseTicket returns the ticket with the id, once over all processes. The error is ErrNone if it was used or has expired, or an error
// of the store: then it may be used up.
func (v *Vault) UseTicket(ctx context.Context, id string) (Ticket, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	t, version, err := v.readTicket(ctx, id)
	if err != nil {
		return Ticket{}, err
	}
	_, err = v.rows.store.Apply(ctx, store.Change{Group: ticketGroup, Durable: true, Writes: []store.Write{
		{Name: ticketName(id), Was: version}, {Name: t.Place, Was: store.Any},
	}})
	switch {
	case errors.Is(err, store.ErrConflict):
		return Ticket{}, ErrNone
	case err != nil:
		return Ticket{}, fmt.Errorf("use a ticket: %w", err)
	}
	return Ticket{t.Owner, t.Data, t.Expires}, nil
}
