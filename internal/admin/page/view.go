package page

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/now"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A pageView shows one answer of the API. It can show nothing that its officer may not read there.
type pageView struct {
	path, title string
	needs       switchboard.Office // as the route of the API does
	api         string             // the path of the API that it shows; the query of the browser is that of the API
	command     string             // prints the same
	template    string
	decode      func(answer []byte) (any, error) // into the type of the API
}

// allViews are the views, in the order of the navigation.
var allViews = []pageView{
	{"/now", "Now", switchboard.OfficeViewer, "/v1/now", "switchboard now", "now.html", decodeAs[now.Overview]},
}

// jsonSuffix behind the path of a view asks for the answer of the API itself.
const jsonSuffix = ".json"

func decodeAs[T any](answer []byte) (any, error) {
	v := new(T)
	return v, json.Unmarshal(answer, v)
}

// findView returns the view at a path, nil if there is none.
func findView(path string) *pageView {
	path = strings.TrimSuffix(path, jsonSuffix)
	i := slices.IndexFunc(allViews, func(v pageView) bool { return v.path == path })
	if i < 0 {
		return nil
	}
	return &allViews[i]
}

// isFor reports whether the officer may see the view of some tenant. The API decides about each request.
func (v *pageView) isFor(o *switchboard.Officer) bool {
	if o.Operator || v.needs == switchboard.OfficeViewer {
		return true
	}
	for tenant := range o.Offices {
		if o.Holds(v.needs, tenant) {
			return true
		}
	}
	return false
}

// A scene is what every template gets: its own data, and what the layout shows around it. Without an officer, the layout has no navigation.
type scene struct {
	Title   string
	Officer *switchboard.Officer
	Token   string // of forms
	Links   []navLink
	Tenants []tenantChoice       // empty if the officer has no choice
	Tenant  switchboard.TenantID // that the view shows, "" for all that the officer sees
	Path    string               // of the view
	Query   string               // of the view, with the ?
	Command string
	Version string
	Data    any
}

type navLink struct {
	Path, Title string
	Here        bool
}

type tenantChoice struct {
	ID   switchboard.TenantID
	Here bool
}

// newScene returns a scene for the officer.
func newScene(p *Page, officer *switchboard.Officer, secret, title string, data any) scene {
	s := scene{Title: title, Officer: officer, Token: formToken(secret), Version: p.o.Version, Data: data}
	for i := range allViews {
		if v := &allViews[i]; v.isFor(officer) {
			s.Links = append(s.Links, navLink{v.path, v.title, v.title == title})
		}
	}
	return s
}

// signInScene returns the sign-in. problem, if not nil, says what went wrong.
func signInScene(p *Page, problem *switchboard.Error) scene {
	data := map[string]any{"Issuers": p.o.Providers.IDs()}
	if problem != nil {
		data["Problem"] = problem
	}
	return scene{Title: "Sign in", Data: data}
}

// viewPages answers requests for views.
type viewPages struct{ *Page }

// serve answers a request for the view. Without a session it shows the sign-in.
func (p viewPages) serve(w http.ResponseWriter, r *http.Request, own site, v *pageView) {
	w.Header().Set("Vary", "Accept")
	asJSON := strings.HasSuffix(r.URL.Path, jsonSuffix) || prefersJSON(r)
	secret := own.readCookie(r, sessionCookie)
	if secret == "" && !asJSON {
		p.show(w, http.StatusOK, "signin.html", signInScene(p.Page, nil))
		return
	}
	officer, err := p.officerAt(r, own)
	if err != nil {
		p.refuseSession(w, err, secret, asJSON)
		return
	}
	tenants := p.tenantsOf(&officer)
	if asked := r.URL.Query()["tenant"]; !asJSON && !officer.Operator && len(tenants) > 1 && len(asked) == 0 {
		http.Redirect(w, r, v.path+"?tenant="+url.QueryEscape(string(tenants[0])), http.StatusSeeOther) // an address has the whole state of its view
		return
	} else if !asJSON && slices.Equal(asked, []string{""}) {
		http.Redirect(w, r, v.path, http.StatusSeeOther) // the form says "all tenants" with an empty field
		return
	}
	answer := p.askAPI(r, &officer, v.api)
	if asJSON {
		w.Header().Set("Content-Type", answer.header.Get("Content-Type"))
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes())
		return
	}
	if answer.status != http.StatusOK {
		var why access.Problem
		if err := json.Unmarshal(answer.body.Bytes(), &why); err != nil {
			why.Detail = "the answer of the API cannot be read"
		}
		p.show(w, answer.status, "refused.html", newScene(p.Page, &officer, secret, "Refused", map[string]any{"Why": why.Detail, "Hint": why.Hint}))
		return
	}
	data, err := v.decode(answer.body.Bytes())
	if err != nil {
		p.o.Log.Error("a view cannot read the answer of the API", "view", v.path, "err", err)
		p.refuse(w, http.StatusInternalServerError, "this page cannot be shown; the log output of Switchboard says why")
		return
	}
	s := newScene(p.Page, &officer, secret, v.title, data)
	s.Path, s.Command = v.path, v.command
	if r.URL.RawQuery != "" {
		s.Query = "?" + r.URL.RawQuery
	}
	here := switchboard.TenantID(r.URL.Query().Get("tenant"))
	s.Tenant = here
	if here != "" {
		for i := range s.Links {
			s.Links[i].Path += "?tenant=" + url.QueryEscape(string(here))
		}
		s.Command += " --tenant " + string(here)
	}
	if len(tenants) > 1 {
		for _, t := range tenants {
			s.Tenants = append(s.Tenants, tenantChoice{t, t == here})
		}
	}
	p.show(w, http.StatusOK, v.template, s)
}

// refuseSession answers a request without a valid session.
func (p viewPages) refuseSession(w http.ResponseWriter, err error, secret string, asJSON bool) {
	e := access.AsError(err)
	status := access.HTTPStatus(e.Code)
	if asJSON {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_, _ = w.Write(access.ProblemOf(status, e).Encode())
		return
	}
	p.show(w, status, "signin.html", scene{Title: "Sign in", Token: formToken(secret), Data: map[string]any{
		"Issuers": p.o.Providers.IDs(), "Problem": e, "SignedIn": e.Code != switchboard.CodeNotAuthenticated,
	}})
}

// prefersJSON reports whether the request asks for JSON and not for a page.
func prefersJSON(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case "text/html":
			return false
		case "application/json":
			return true
		}
	}
	return false
}

// tenantsOf returns the tenants that the officer sees, sorted.
func (p viewPages) tenantsOf(o *switchboard.Officer) []switchboard.TenantID {
	return slices.DeleteFunc(slices.Clone(p.o.Tenants()), func(t switchboard.TenantID) bool { return !o.Sees(t) })
}

// askAPI asks the API in this process, as the officer, with the query of the browser.
func (p viewPages) askAPI(r *http.Request, officer *switchboard.Officer, path string) *keptAnswer {
	ask := r.Clone(r.Context())
	ask.Method, ask.Body, ask.ContentLength = http.MethodGet, http.NoBody, 0
	ask.URL = &url.URL{Path: path, RawQuery: r.URL.RawQuery}
	ask.Header = http.Header{"Accept": {"application/json"}}
	answer := &keptAnswer{header: http.Header{}, status: http.StatusOK}
	p.o.API(officer).ServeHTTP(answer, ask)
	return answer
}

// A keptAnswer keeps an answer of the API.
type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *keptAnswer) Header() http.Header                  { return a.header }
func (a *keptAnswer) WriteHeader(status int)               { a.status = status }
func (a *keptAnswer) Write(text []byte) (n int, err error) { return a.body.Write(text) }
