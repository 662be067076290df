package credential

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"

	"github.com/summit-switchboard/switchboard/internal/oauth"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

// A ConnectRequest says what a link is for: a person makes the connection of one caller at one server.
type ConnectRequest struct {
	Tenant switchboard.TenantID
	Name   string // of the caller: TENANT/KEY
	Server switchboard.ServerID
	URL    string   // of the server
	Scopes []string // the most that the row allows; nil means what the server asks for
}

// ReadTicket returns what a ticket is for. It changes nothing. The error is a *switchboard.Error.
func (b *Broker) ReadTicket(ctx context.Context, ticket string) (*ConnectRequest, error) {
	t, err := b.vault.ReadTicket(ctx, ticket)
	if err != nil {
		return nil, ticketError(err)
	}
	_, request, err := b.requestOf(&t)
	return request, err
}

// requestOf returns the server of a ticket, and the request that a page shows.
func (b *Broker) requestOf(t *vault.Ticket) (*switchboard.Server, *ConnectRequest, error) {
	var note ticketNote
	if err := json.Unmarshal(t.Data, &note); err != nil || note.Server == "" {
		return nil, nil, ticketError(vault.ErrNone) // of another kind
	}
	s := b.serverOf(note.Server)
	if s == nil || s.URL != t.Owner.Resource || s.Credential.Kind != switchboard.CredentialUser {
		return nil, nil, switchboard.Refuse(switchboard.CodeServerUnknown, "server %s is not what it was when this link was made; have the agent call again", note.Server)
	}
	return s, &ConnectRequest{Tenant: t.Owner.Tenant, Name: note.Name, Server: s.ID, URL: s.URL, Scopes: s.Credential.Scopes}, nil
}

func (b *Broker) serverOf(id switchboard.ServerID) *switchboard.Server {
	if held, ok := b.servers.Load(id); ok {
		if c, ok := held.(*credentials); ok {
			return c.server
		}
	}
	return nil
}

// ticketError returns the answer for a ticket that does not open.
func ticketError(err error) error {
	if errors.Is(err, vault.ErrNone) || errors.Is(err, vault.ErrUnreadable) {
		return switchboard.Refuse(switchboard.CodeNotAuthenticated, "this link is of no use any more: it was used, or is older than %.0f minutes; have the agent call again, which makes a new one", vault.TicketTime.Minutes())
	}
	e := switchboard.Refuse(switchboard.CodeStoreUnavailable, "the sign-in cannot be read now; try again later")
	e.Cause = err
	return e
}

// ClientDocument returns the client ID metadata document at an https URL, for the links of persons, whose browsers come back to redirect.
func ClientDocument(address, redirect string) ([]byte, error) {
	return oauth.MetadataDocument(address, oauth.RegistrationRequest{Redirect: redirect})
}

// BeginTicket uses a ticket: its consent begins, by an officer. The person's browser goes to address, keeps attempt, and comes back to redirect. The error is a
// *switchboard.Error.
func (b *Broker) BeginTicket(ctx context.Context, ticket, redirect string, by *switchboard.Officer) (address, attempt string, err error) {
	t, err := b.vault.UseTicket(ctx, ticket) // of several browsers, one begins
	if err != nil {
		return "", "", ticketError(err)
	}
	s, _, err := b.requestOf(&t)
	if err != nil {
		return "", "", err
	}
	c, err := beginConsent(ctx, b, s, t.Owner, redirect, b.document())
	if err != nil {
		return "", "", consentError(s, err)
	}
	c.By = receipt.Subject{ID: by.ID, Auth: by.Auth}
	text, err := c.Seal()
	if err != nil {
		return "", "", consentError(s, err)
	}
	if attempt, err = b.vault.NewTicket(ctx, t.Owner, text); err != nil {
		return "", "", ticketError(err)
	}
	return c.Address, attempt, nil
}

// EndTicket ends the consent of an attempt, with the query with which the browser came back. It returns the server that is connected now. The error is a
// *switchboard.Error.
func (b *Broker) EndTicket(ctx context.Context, attempt string, query url.Values) (*ConnectRequest, error) {
	t, err := b.vault.UseTicket(ctx, attempt)
	if err != nil {
		return nil, ticketError(err)
	}
	c, err := UnsealConsent(t.Data)
	if err != nil || c.Owner != t.Owner {
		return nil, ticketError(vault.ErrNone)
	}
	s := b.serverOf(t.Owner.Server)
	if s == nil {
		return nil, switchboard.Refuse(switchboard.CodeServerUnknown, "there is no server %s any more", t.Owner.Server)
	}
	if err := b.End(ctx, s, c, query); err != nil {
		return nil, consentError(s, err)
	}
	return &ConnectRequest{Tenant: t.Owner.Tenant, Server: s.ID, URL: s.URL, Scopes: c.Scopes}, nil
}

// consentError returns the answer for a consent that has failed.
func consentError(s *switchboard.Server, err error) error {
	e := switchboard.Refuse(switchboard.CodeProviderAway, "server %s is not connected: %.600v; have the agent call again, which makes a new link", s.ID, err)
	e.Cause = err
	return e
}
