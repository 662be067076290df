package page

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/credential"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
)

const (
	// ConnectPath begins the address of a link at which a server is connected. The ticket follows.
	ConnectPath = "/connect/"

	connectedPath = "/connect/callback" // no ticket is so short
	consentCookie = "switchboard-connect"
)

// Connections let a person make the connection of a caller. See credential.Broker. The errors are *switchboard.Error.
type Connections interface {
	ReadTicket(ctx context.Context, ticket string) (*credential.ConnectRequest, error)
	BeginTicket(ctx context.Context, ticket, redirect string, by *switchboard.Officer) (address, attempt string, err error)
	EndTicket(ctx context.Context, attempt string, query url.Values) (*credential.ConnectRequest, error)
}

// mayConnect returns the officer who has sent the request, if that officer may make connections of the tenant's callers: an admin of the tenant. A key is no person, so
// an admin stands for it.
func (p *Page) mayConnect(r *http.Request, own site, c *credential.ConnectRequest) (*switchboard.Officer, error) {
	officer, err := p.officerAt(r, own)
	if err == nil && !officer.Operator && !officer.Holds(switchboard.OfficeAdmin, c.Tenant) {
		err = switchboard.Refuse(switchboard.CodeNotAuthorized, "an admin of tenant %s connects servers for its keys, and you are %s; ask one to open this link", c.Tenant, officer.ID)
	}
	return &officer, err
}

// showConnect shows what a link is for. It changes nothing, because browsers and mail programs open links that no person has read.
func (p *Page) showConnect(w http.ResponseWriter, r *http.Request, own site) {
	ticket := strings.TrimPrefix(r.URL.Path, ConnectPath)
	secret := own.readCookie(r, sessionCookie)
	if secret == "" {
		p.show(w, http.StatusOK, "signin.html", map[string]any{
			"Issuers": p.o.Providers.IDs(),
			"Problem": &switchboard.Error{Code: switchboard.CodeNotAuthenticated, Text: "this link connects a server: sign in, and then open it again"},
		})
		return
	}
	c, err := p.o.Connections.ReadTicket(r.Context(), ticket)
	if err == nil {
		_, err = p.mayConnect(r, own, c)
	}
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	p.show(w, http.StatusOK, "connect.html", map[string]any{"Request": c, "Ticket": ticket, "Token": formToken(secret)})
}

// beginConnect uses the link: it leads the browser to the server's provider.
func (p *Page) beginConnect(w http.ResponseWriter, r *http.Request, own site, form url.Values) {
	secret := own.readCookie(r, sessionCookie)
	if secret == "" || !isFormToken(form.Get("token"), secret) {
		p.refuse(w, http.StatusForbidden, "this form belongs to another session; load the page again")
		return
	}
	ticket := strings.TrimPrefix(r.URL.Path, ConnectPath)
	c, err := p.o.Connections.ReadTicket(r.Context(), ticket)
	var officer *switchboard.Officer
	if err == nil {
		officer, err = p.mayConnect(r, own, c)
	}
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	address, attempt, err := p.o.Connections.BeginTicket(r.Context(), ticket, own.origin+connectedPath, officer)
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	p.o.Log.Info("an officer connects a server", "officer", officer.ID, "server", string(c.Server), "for", c.Name)
	http.SetCookie(w, own.newCookie(consentCookie, attempt, int(vault.TicketTime.Seconds())))
	p.leadOn(w, address)
}

// endConnect takes the answer of the server's provider. Only the browser that was led there has the cookie.
func (p *Page) endConnect(w http.ResponseWriter, r *http.Request, own site) {
	attempt := own.readCookie(r, consentCookie)
	http.SetCookie(w, own.newCookie(consentCookie, "", -1)) // also if it fails
	err := own.checkPeer(r)
	var c *credential.ConnectRequest
	if err == nil {
		c, err = p.o.Connections.EndTicket(r.Context(), attempt, r.URL.Query())
	}
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	p.o.Log.Info("a server is connected", "server", string(c.Server), "tenant", string(c.Tenant))
	p.show(w, http.StatusOK, "connected.html", map[string]any{"Request": c})
}

func (p *Page) refuseConnect(w http.ResponseWriter, err error) {
	e := access.AsError(err)
	p.show(w, access.HTTPStatus(e.Code), "refused.html", map[string]any{"Why": e.Text})
}
