package page

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

	// DocumentPath is where providers read the client ID metadata document.
	DocumentPath = "/connect/client.json"

	connectedPath = "/connect/callback" // no ticket is as short as this one and DocumentPath

	// consentCookie begins the kind of a consent's cookie; see consentKind.
	consentCookie = "switchboard-connect-"
	// maxConsents is how many consents may be in progress in one browser.
	maxConsents = 8
)

// Connections let a person make the connection of a caller. See credential.Broker. The errors are *switchboard.Error.
type Connections interface {
	ReadTicket(ctx context.Context, ticket string) (*credential.ConnectRequest, error)
	BeginTicket(ctx context.Context, ticket, redirect string, by *switchboard.Officer) (address, attempt string, err error)
	EndTicket(ctx context.Context, attempt string, query url.Values) (*credential.ConnectRequest, error)
}

// mayConnect returns the officer who has sent the request, if that officer may make the connection. A key is no person, so an admin of the tenant stands for it. A person
// who calls tools on the page connects no account but their own.
func (p *Page) mayConnect(r *http.Request, own site, c *credential.ConnectRequest) (*switchboard.Officer, error) {
	officer, err := p.officerAt(r, own)
	caller := strings.TrimPrefix(c.Name, string(c.Tenant)+"/")
	if person := switchboard.PersonBehind(caller); person != caller {
		if err == nil && officer.ID != person {
			err = switchboard.Refuse(switchboard.CodeNotAuthorized, "this link connects the account of %.200s, and you are %s", person, officer.ID)
		}
		return &officer, err
	}
	if err == nil && !officer.Operator && !officer.Holds(switchboard.OfficeAdmin, c.Tenant) {
		err = switchboard.Refuse(switchboard.CodeNotAuthorized, "an admin of tenant %s connects servers for its keys, and you are %s; ask one to open this link", c.Tenant, officer.ID)
	}
	return &officer, err
}

// serveDocument answers a provider that reads who Switchboard is. It is the same for everybody.
func serveDocument(p *Page, w http.ResponseWriter) {
	address := p.o.Document()
	if address == "" {
		p.refuse(w, http.StatusNotFound, "there is no client document here")
		return
	}
	text, err := credential.ClientDocument(address, strings.TrimSuffix(address, DocumentPath)+connectedPath)
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text)
}

// showConnect shows what a link is for. It changes nothing, because browsers and mail programs open links that no person has read.
func (p *Page) showConnect(w http.ResponseWriter, r *http.Request, own site) {
	ticket := strings.TrimPrefix(r.URL.Path, ConnectPath)
	secret := own.readCookie(r, sessionCookie)
	if secret == "" {
		p.show(w, http.StatusOK, "signin.html", signInScene(p, &switchboard.Error{Code: switchboard.CodeNotAuthenticated, Text: "this link connects a server: sign in, and then open it again"}))
		return
	}
	c, err := p.o.Connections.ReadTicket(r.Context(), ticket)
	var officer *switchboard.Officer
	if err == nil {
		officer, err = p.mayConnect(r, own, c)
	}
	if err != nil {
		p.refuseConnect(w, err)
		return
	}
	p.show(w, http.StatusOK, "connect.html", newScene(p, officer, secret, "Connect a server", "", map[string]any{"Request": c, "Ticket": ticket}))
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
	kinds := own.consentKinds(r)
	for _, oldest := range kinds[:max(0, len(kinds)+1-maxConsents)] {
		http.SetCookie(w, own.newCookie(oldest, "", -1))
	}
	http.SetCookie(w, own.newCookie(consentKind(stateOf(address)), attempt, int(vault.TicketTime.Seconds())))
	p.leadOn(w, address)
}

// stateOf returns the state in the address of a provider, which sends it back with its answer.
func stateOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Query().Get("state")
}

// consentKind returns the kind of the cookie of the consent with this state. Each consent has a cookie of its own, because a person may open several links at
// once.
func consentKind(state string) string {
	sum := sha256.Sum256([]byte(state))
	return consentCookie + hex.EncodeToString(sum[:8])
}

// consentKinds returns the kinds of the request's cookies of consents, the oldest first: browsers send them in this order (RFC 6265 section 5.4).
func (s site) consentKinds(r *http.Request) (kinds []string) {
	for _, c := range r.Cookies() {
		at := strings.Index(c.Name, consentCookie)
		if at < 0 {
			continue
		}
		kind := c.Name[at:min(len(c.Name), at+len(consentKind("")))]
		if s.cookieName(kind) == c.Name { // else it is of another port
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// endConnect takes the answer of the server's provider. Only the browser that was led there has the cookie. An answer with the state of no consent of this
// browser ends none of them.
func (p *Page) endConnect(w http.ResponseWriter, r *http.Request, own site) {
	attempt := ""
	if state := r.URL.Query()["state"]; len(state) == 1 {
		kind := consentKind(state[0])
		if attempt = own.readCookie(r, kind); attempt != "" {
			http.SetCookie(w, own.newCookie(kind, "", -1)) // also if it fails
		}
	}
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
	p.show(w, http.StatusOK, "connected.html", scene{Title: "Connected", Data: map[string]any{"Request": c}})
}

func (p *Page) refuseConnect(w http.ResponseWriter, err error) {
	e := access.AsError(err)
	p.refuse(w, access.HTTPStatus(e.Code), e.Text)
}
