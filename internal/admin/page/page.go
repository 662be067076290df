// Package page is the admin side in a browser. So far, people sign in and out there, see what needs a person and how calls go, and decide about requests for approval.
//
// It decides which browser a session belongs to, which requests of browsers count, how views look (view.go), and when an open view reads itself again (live.go). Package signin decides who somebody is, package
// identity decides about their offices, and package api decides what a view shows. The views are in views/, one file each. Everything works without scripts.
//
// The cookie of a session is SameSite=Strict. A browser does not send it when a page of another site, such as the issuer's, has led it
// here; so an answer that ends a sign-in is a page that leads on by itself, and not a redirect.
package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxForm limits the body of a form.
const maxForm = 64 << 10

// Bounds of larger forms without a session, which strangers can send too: how many are kept at once, and how long each may take to arrive.
const (
	maxUnsignedForms = 4
	unsignedFormTime = time.Minute
)

// The paths of the page.
const (
	startPath    = "/" // leads to the first view
	signInPath   = "/sign-in"
	signOutPath  = "/sign-out"
	callbackPath = "/sign-in/callback"

	// CodePath is where a browser goes with a code; see Options.Sessions.
	CodePath = "/sign-in/code"
)

// Options are the parts of a running Switchboard that the page needs.
type Options struct {
	Providers *signin.Providers
	Sessions  *signin.Sessions
	Officers  func() *identity.Officers
	URL       func() string                 // how browsers reach the admin address, "" if only this machine does
	Tenants   func() []switchboard.TenantID // all, sorted
	Version   string
	Cursor    func() string // of the API's events, at this moment

	// API returns the handler of the API for requests of the officer.
	API func(officer *switchboard.Officer) http.Handler

	Connections Connections
	Document    func() string // the https URL of DocumentPath, "" if providers cannot read it

	// Work runs a function that may last longer than its request. A stop waits for it, and Stopping is done when it must end.
	Work     func(func())
	Stopping context.Context

	// Opened is called when a view is shown for the first time. That leaves megabytes of garbage: templates are parsed, and made safe for their places in HTML.
	Opened func()

	// Failed is called for each sign-in that fails. It may wait.
	Failed func(r *http.Request, err error)

	Log *slog.Logger
}

// A Page answers browsers. Use New. It is safe for concurrent use.
type Page struct {
	o      Options
	views  *templateSet
	live   openLive
	shared liveAnswers
	opened sync.Map // has the names of the templates that were shown

	unsigned chan struct{} // has one element for each larger form without a session that is being answered
}

// New returns a Page.
func New(o Options) *Page {
	return &Page{o: o, unsigned: make(chan struct{}, maxUnsignedForms), views: newTemplateSet()}
}

// Takes reports whether the page answers requests for a path.
func (p *Page) Takes(path string) bool {
	switch path {
	case startPath, livePath, signInPath, signOutPath, callbackPath, CodePath:
		return true
	}
	v, _ := findView(path)
	return v != nil || strings.HasPrefix(path, assetsPath) || strings.HasPrefix(path, ConnectPath)
}

// ServeHTTP answers a request for a path that the page takes.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers do not state the origin of a form
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if takesGzip(r) {
		w = gzipWriter{w}
	}
	own, ok := p.siteOf(r)
	switch {
	case !ok:
		p.refuse(w, http.StatusForbidden, "this host name is not the admin address")
	case r.Method == http.MethodPost:
		p.servePost(w, r, own)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD, POST")
		p.refuse(w, http.StatusMethodNotAllowed, "the page takes GET and POST")
	default:
		p.serveGet(w, r, own)
	}
}

func (p *Page) serveGet(w http.ResponseWriter, r *http.Request, own site) {
	from := r.Header.Get("Sec-Fetch-Site")
	foreign := from != "" && from != "same-origin" && from != "none"
	v, parts := findView(r.URL.Path)
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, assetsPath):
		serveAsset(p, w, r)
	case path == DocumentPath:
		serveDocument(p, w)
	case foreign && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		p.refuse(w, http.StatusForbidden, "pages of other sites may only lead here")
	case path == livePath && !foreign:
		viewPages{p}.serveLive(w, r, own)
	case path == callbackPath:
		p.endSignIn(w, r, own)
	case path == connectedPath:
		p.endConnect(w, r, own)
	case (path == startPath || strings.HasPrefix(path, ConnectPath)) && foreign:
		p.leadOn(w, path) // the browser has not sent the cookie
	case v != nil && foreign:
		p.leadOn(w, r.URL.RequestURI())
	case v != nil:
		viewPages{p}.serve(w, r, own, v, parts)
	case strings.HasPrefix(path, ConnectPath):
		p.showConnect(w, r, own)
	case path == startPath:
		if own.readCookie(r, sessionCookie) != "" {
			http.Redirect(w, r, allViews[0].path, http.StatusSeeOther)
			return
		}
		p.show(w, http.StatusOK, "signin.html", signInScene(p, nil))
	case path == CodePath && !foreign:
		p.useCode(w, r, own)
	default:
		p.refuse(w, http.StatusNotFound, "nothing is here; begin at "+startPath)
	}
}

func (p *Page) servePost(w http.ResponseWriter, r *http.Request, own site) {
	v, parts := findView(r.URL.Path)
	limit := int64(maxForm)
	if v != nil && r.ContentLength > limit {
		limit = maxTextForm
		if _, err := p.officerAt(r, own); err != nil {
			limit = maxUnsignedForm // what was typed is kept if the session has ended
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(unsignedFormTime))
			select {
			case p.unsigned <- struct{}{}:
				defer func() { <-p.unsigned }()
			default:
				_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, limit)) // else the browser does not read the answer
				p.refuse(w, http.StatusServiceUnavailable, "you have no session that counts now, and too many others like you send forms of this size, so nothing was done; wait a moment, and load this page again: your browser then sends again what you typed")
				return
			}
		}
	}
	form, status, why := readForm(w, r, own, limit)
	switch {
	case why != "":
		p.refuse(w, status, why)
	case r.URL.Path == signInPath && form.Get("key") != "":
		p.signInByKey(w, r, own, form.Get("key"))
	case r.URL.Path == signInPath:
		p.beginSignIn(w, r, own, form.Get("issuer"))
	case strings.HasPrefix(r.URL.Path, ConnectPath):
		p.beginConnect(w, r, own, form)
	case v != nil:
		viewPages{p}.carryOut(w, r, own, v, parts, form)
	case r.URL.Path == signOutPath:
		p.signOut(w, r, own, form.Get("token"))
	default:
		p.refuse(w, http.StatusNotFound, "nothing is here; begin at "+startPath)
	}
}

// readForm reads a form of a page of ours. why says that it is none; then status is the HTTP status of the answer.
func readForm(w http.ResponseWriter, r *http.Request, own site, limit int64) (form url.Values, status int, why string) {
	if origins := r.Header.Values("Origin"); len(origins) != 1 || !strings.EqualFold(origins[0], own.origin) {
		return nil, http.StatusForbidden, "only forms of this page count"
	}
	if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" {
		return nil, http.StatusForbidden, "only forms of this page count"
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/x-www-form-urlencoded" || r.URL.RawQuery != "" {
		return nil, http.StatusForbidden, "this is no form"
	}
	r.Body = http.MaxBytesReader(w, r.Body, limit)
	if err := r.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf("the form is larger than %d KiB, so it was not read, and nothing was done", limit>>10)
		}
		return nil, http.StatusForbidden, "the form cannot be read"
	}
	for _, values := range r.PostForm {
		if len(values) != 1 {
			return nil, http.StatusForbidden, "the form has a field twice"
		}
	}
	return r.PostForm, http.StatusOK, ""
}

// A site is the admin address as the browser of a request shows it.
type site struct {
	origin string // scheme, host and port
	local  bool   // only this machine reaches it so
}

// siteOf returns the site of a request. ok is false if the host is not ours.
func (p *Page) siteOf(r *http.Request) (s site, ok bool) {
	own, err := url.Parse(p.o.URL())
	name, _, hasPort := net.SplitHostPort(r.Host)
	if hasPort != nil {
		name = r.Host
	}
	if err == nil && own.Host != "" && (strings.EqualFold(r.Host, own.Host) || strings.EqualFold(name, own.Hostname())) {
		return site{own.Scheme + "://" + own.Host, own.Scheme == "http"}, true
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if ip, err := netip.ParseAddr(name); name == "localhost" || err == nil && ip.Unmap().IsLoopback() && ip.Zone() == "" {
		return site{access.Scheme(r) + "://" + r.Host, true}, true
	}
	return site{}, false
}

// The kinds of cookies.
const (
	sessionCookie = "switchboard"
	attemptCookie = "switchboard-sign-in"
)

// newCookie returns a cookie that only the site gets, as far as browsers know sites. They send the cookies of this machine to all ports of it:
// there the name has the port, so that several Switchboards do not overwrite each other's, and Officer asks the kernel who sends a cookie.
func (s site) newCookie(kind, value string, seconds int) *http.Cookie {
	c := &http.Cookie{Name: s.cookieName(kind), Value: value, Path: "/", MaxAge: seconds, HttpOnly: true, Secure: !s.local, SameSite: http.SameSiteStrictMode}
	if kind == attemptCookie || strings.HasPrefix(kind, consentCookie) {
		c.SameSite = http.SameSiteLaxMode // the issuer's page leads back here
	}
	return c
}

func (s site) cookieName(kind string) string {
	if !s.local {
		return "__Host-" + kind
	}
	_, host, _ := strings.Cut(s.origin, "://")
	_, port, _ := net.SplitHostPort(host)
	return kind + "-" + port
}

// readCookie returns the value of the request's only cookie of a kind; "" if there is none, or several.
func (s site) readCookie(r *http.Request, kind string) string {
	all := r.CookiesNamed(s.cookieName(kind))
	if len(all) != 1 {
		return ""
	}
	return all[0].Value
}

// HasSession reports whether a request has the cookie of a session, which may have ended.
func (p *Page) HasSession(r *http.Request) bool {
	own, ok := p.siteOf(r)
	return ok && own.readCookie(r, sessionCookie) != ""
}

// Officer returns who has sent a request with the cookie of a session. The error is a *switchboard.Error.
func (p *Page) Officer(r *http.Request) (switchboard.Officer, error) {
	own, ok := p.siteOf(r)
	if !ok {
		return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthorized, "this host name is not the admin address")
	}
	return p.officerAt(r, own)
}

func (p *Page) officerAt(r *http.Request, own site) (switchboard.Officer, error) {
	if err := own.checkPeer(r); err != nil {
		return switchboard.Officer{}, err
	}
	s, err := p.o.Sessions.Read(r.Context(), own.readCookie(r, sessionCookie))
	if err != nil {
		return switchboard.Officer{}, err
	}
	officer, err := p.officerOf(&s.Holder)
	officer.EndsAt(s.Ends())
	return officer, err
}

// checkPeer refuses other users of this machine where only this machine can reach the site: browsers send its cookies to every port, and other users
// can read the arguments of the program that opens a browser.
func (s site) checkPeer(r *http.Request) error {
	if !s.local {
		return nil
	}
	why := identity.PeerRefusal(r.Context())
	if own, ok := errors.AsType[*switchboard.Error](why); ok { // it cannot be told now
		return own
	}
	if why != nil {
		return switchboard.Refuse(switchboard.CodeNotAuthenticated, "on this machine only the user of Switchboard may be signed in here, and %s", why)
	}
	return nil
}

// officerOf returns the officer that the rows make of the holder now.
func (p *Page) officerOf(h *signin.Holder) (switchboard.Officer, error) {
	switch {
	case h.Person != nil:
		return p.o.Officers().ByPerson(h.Person)
	case h.Local:
		return switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}, nil
	}
	hash, err := hex.DecodeString(h.Key)
	if err != nil || len(hash) != sha256.Size {
		return switchboard.Officer{}, switchboard.Refuse(switchboard.CodeNotAuthenticated, "the session has no holder")
	}
	return p.o.Officers().ByHash([sha256.Size]byte(hash))
}

// beginSignIn leads the browser to an issuer.
func (p *Page) beginSignIn(w http.ResponseWriter, r *http.Request, own site, issuer string) {
	address, sealed, err := p.o.Providers.Begin(r.Context(), issuer, own.origin+callbackPath)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	http.SetCookie(w, own.newCookie(attemptCookie, sealed, int(signin.AttemptTime.Seconds())))
	p.leadOn(w, address)
}

// endSignIn takes the answer of an issuer.
func (p *Page) endSignIn(w http.ResponseWriter, r *http.Request, own site) {
	q := r.URL.Query()
	sealed := own.readCookie(r, attemptCookie)
	http.SetCookie(w, own.newCookie(attemptCookie, "", -1)) // also if the sign-in fails
	person, err := p.o.Providers.End(r.Context(), signin.Answer{
		State: q.Get("state"), Code: q.Get("code"), Issuer: q.Get("iss"), Error: q.Get("error"), Attempt: sealed,
	}, func(issuer string) []string { return p.o.Officers().ClaimsOf(issuer) }, p.o.Sessions.UseState)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.startSession(w, r, own, &signin.Holder{Person: person})
}

// signInByKey exchanges a person's key for a session.
func (p *Page) signInByKey(w http.ResponseWriter, r *http.Request, own site, key string) {
	if _, err := p.o.Officers().ByKey(key); err != nil {
		p.fail(w, r, err)
		return
	}
	hash := sha256.Sum256([]byte(key))
	p.startSession(w, r, own, &signin.Holder{Key: hex.EncodeToString(hash[:])})
}

// useCode exchanges a code for a session.
func (p *Page) useCode(w http.ResponseWriter, r *http.Request, own site) {
	err := own.checkPeer(r)
	var h signin.Holder
	if err == nil {
		h, err = p.o.Sessions.UseCode(r.Context(), r.URL.Query().Get("code"))
	}
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.startSession(w, r, own, &h)
}

// startSession starts a session of somebody who holds an office. It always makes a new one: an attacker may have set the
// cookie before.
func (p *Page) startSession(w http.ResponseWriter, r *http.Request, own site, h *signin.Holder) {
	officer, err := p.officerOf(h)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	if old := own.readCookie(r, sessionCookie); old != "" {
		_ = p.o.Sessions.EndOwn(r.Context(), old) // else it ends by itself
	}
	secret, err := p.o.Sessions.Start(r.Context(), *h)
	if err != nil {
		p.fail(w, r, err)
		return
	}
	p.o.Log.Info("signed in", "officer", officer.ID, "by", officer.Auth, "remote", r.RemoteAddr)
	http.SetCookie(w, own.newCookie(sessionCookie, secret, int(signin.SessionTime.Seconds())))
	p.leadOn(w, startPath)
}

func (p *Page) signOut(w http.ResponseWriter, r *http.Request, own site, token string) {
	secret := own.readCookie(r, sessionCookie)
	if secret == "" || !isFormToken(token, secret) {
		p.refuse(w, http.StatusForbidden, "this form belongs to another session; load the page again")
		return
	}
	if err := p.o.Sessions.EndOwn(r.Context(), secret); err != nil {
		p.fail(w, r, err)
		return
	}
	http.SetCookie(w, own.newCookie(sessionCookie, "", -1))
	p.leadOn(w, startPath)
}

// formToken returns a token of the forms of a session. Each page has another one: pages are compressed, and the length of compressed pages would tell
// somebody who watches the network about a text that they all have.
func formToken(secret string) string {
	var mask [sha256.Size]byte
	rand.Read(mask[:])
	sum := sha256.Sum256([]byte("form\x00" + secret))
	subtle.XORBytes(sum[:], sum[:], mask[:])
	return hex.EncodeToString(mask[:]) + hex.EncodeToString(sum[:])
}

// isFormToken reports whether the token belongs to the forms of the session.
func isFormToken(token, secret string) bool {
	text, err := hex.DecodeString(token)
	if err != nil || len(text) != 2*sha256.Size {
		return false
	}
	sum := sha256.Sum256([]byte("form\x00" + secret))
	mask, masked := text[:sha256.Size], text[sha256.Size:]
	subtle.XORBytes(masked, masked, mask)
	return subtle.ConstantTimeCompare(masked, sum[:]) == 1
}

// fail shows why the sign-in has failed. Callers that fail often wait.
func (p *Page) fail(w http.ResponseWriter, r *http.Request, err error) {
	p.o.Failed(r, err)
	e := access.AsError(err)
	p.show(w, access.HTTPStatus(e.Code), "signin.html", signInScene(p, e))
}

// refuse shows why a request is refused.
func (p *Page) refuse(w http.ResponseWriter, status int, why string) {
	p.show(w, status, "refused.html", scene{Title: "Refused", Data: map[string]any{"Why": why}})
}

// leadOn answers with a page that sends the browser to the address.
func (p *Page) leadOn(w http.ResponseWriter, address string) {
	p.show(w, http.StatusOK, "leadon.html", scene{Data: map[string]any{"Address": address}})
}

// pageBuffers are used again: a view of hundreds of rows has 100 KiB, and would grow its buffer from nothing.
var pageBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (p *Page) show(w http.ResponseWriter, status int, view string, data scene) {
	if _, known := p.opened.LoadOrStore(view, true); !known {
		defer p.o.Opened()
	}
	b := pageBuffers.Get().(*bytes.Buffer)
	defer pageBuffers.Put(b)
	b.Reset()
	if err := p.views.of(view).Execute(b, data); err != nil {
		p.o.Log.Error("a page cannot be shown", "view", view, "err", err)
		http.Error(w, "this page cannot be shown; the log output of Switchboard says why", http.StatusInternalServerError)
		return
	}
	text := b.Bytes()
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	if _, ok := w.(gzipWriter); ok && len(text) > minGzip {
		h.Set("Content-Encoding", "gzip")
		text = compress(text)
	}
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
