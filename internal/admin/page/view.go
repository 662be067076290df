package page

import (
	"cmp"
	"encoding/json"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/now"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A pageView shows answers of the API. It can show nothing that its officer may not read there, and do nothing that they may not do there.
type pageView struct {
	path     string // a part in braces stands for one part of an address, as in "/servers/{server}"
	title    string
	inside   string             // the path of the view in the navigation that it belongs to, "" if it is there itself
	needs    switchboard.Office // as the route of the API does
	command  string             // prints the same; parts in braces as in path
	ofAll    bool               // the command takes no tenant
	template string
	live     liveness

	// api returns the address of the answer of the API that the view shows most of, which .json gives.
	api func(q *viewQuery) string
	// load makes the data of the template of the answer, and asks the API for more.
	load func(q *viewQuery, answer []byte) (any, error)
	// settle, if not nil, returns the address of what a query asks for, such as a move, "" if the query is such an address itself.
	settle func(q *viewQuery) string
	// refused makes the data of the template if the API refuses the answer, so that a form that led there stays; nil if the refusal is all.
	refused func(q *viewQuery, why error) (data any, status int, err error)
	// forms do what the API does. Their names are in the field "act".
	forms map[string]viewForm
}

// A viewForm carries out a form of a view, which has sent its fields.
type viewForm func(q *viewQuery, fields url.Values) (formDone, error)

// A formDone says what follows a form that was carried out.
type formDone struct {
	Next   string // the address that the browser goes to
	Result any    // without Next: what the view shows of it, as .Form.Result
}

// allViews are the views, in the order of the navigation.
var allViews = []pageView{
	{path: "/now", title: "Now", needs: switchboard.OfficeViewer, command: "switchboard now", template: "now.html", live: onFigures, api: askAt("/v1/now"), load: loadAs[now.Overview]},
	{path: "/decision", title: "Decision", needs: switchboard.OfficeViewer, command: "switchboard explain", template: "decision.html", live: neverReads, api: decisionAddress, load: loadDecision, refused: refuseDecision},
	{path: rankingPath, title: "Ranking", needs: switchboard.OfficeAdmin, template: "ranking.html", live: neverReads, api: askRanking, load: loadRanking, settle: settleRanking, forms: rankingForms},
	{path: "/servers", title: "Servers", needs: switchboard.OfficeViewer, command: "switchboard server list", template: "servers.html", api: askAt("/v1/servers"), load: loadServers},
	{path: "/servers/{server}", title: "Server", inside: "/servers", needs: switchboard.OfficeViewer, command: "switchboard server show {server}", template: "server.html", api: serverAt("/v1/servers/{server}"), load: loadServer, forms: serverForms()},
	pinsView, pinView,
	{path: "/approvals", title: "Approvals", needs: switchboard.OfficeViewer, command: "switchboard approvals list", template: "approvals.html", api: requestsAt(approval.Pending), load: loadWaiting},
	{path: "/approvals/decided", title: "Decided", inside: "/approvals", needs: switchboard.OfficeViewer, command: "switchboard approvals list --state any", template: "decided.html", api: requestsAt(""), load: loadDecided},
	{path: "/approvals/standing", title: "Standing yeses", inside: "/approvals", needs: switchboard.OfficeViewer, command: "switchboard approvals standing list", template: "standing.html", api: askAt("/v1/standing-approvals"), load: loadStanding, forms: map[string]viewForm{"end": endStanding}},
	{
		path: "/approvals/{request}", title: "A request for approval", inside: "/approvals", needs: switchboard.OfficeViewer, command: "switchboard approvals show {request}", template: "approval.html", api: approvalPath, load: loadApproval,
		forms: map[string]viewForm{"approve": decideRequest("approve", "approved"), "refuse": decideRequest("refuse", "refused"), "revoke": revokeRequest, "standing": makeStanding},
	},
	{path: "/receipts", title: "Receipts", needs: switchboard.OfficeViewer, command: "switchboard receipts list", live: neverReads, template: "receipts.html", api: receiptsAt, load: loadReceipts, forms: map[string]viewForm{"verify": verifyReceipts}},
	{path: "/receipts/{node}/{entry}", title: "A receipt", inside: "/receipts", needs: switchboard.OfficeViewer, command: "switchboard receipts show {node}/{entry}", ofAll: true, live: neverReads, template: "receipt.html", api: receiptAt, load: loadReceipt, forms: map[string]viewForm{"replay": replayReceipt}},
	policiesView,
	policyFileView,
	budgetsView,
	{path: "/tasks", title: "Tasks", needs: switchboard.OfficeViewer, command: "switchboard tasks", template: "tasks.html", api: taskAddress, load: loadAs[taskScene]},
	tryView, triedView,
	capabilitiesView,
	{path: "/configuration", title: "Configuration", needs: switchboard.OfficeViewer, template: "configuration.html", api: askChanges, load: loadConfiguration},
	{path: changesPath + "{change}", title: "A change", inside: "/configuration", needs: switchboard.OfficeViewer, template: "change.html", live: neverReads, api: askChange, load: loadChange, forms: revertForms},
}

// jsonSuffix behind the path of a view asks for the answer of the API itself.
const jsonSuffix = ".json"

// askAt returns a function for pageView.api. It asks the API at the path, with the query of the browser.
func askAt(path string) func(*viewQuery) string {
	return func(q *viewQuery) string { return linkTo(q.fill(path), q.state) }
}

// loadAs decodes the answer of the API into the type of the API. It is the load of a view that shows nothing else.
func loadAs[T any](_ *viewQuery, answer []byte) (any, error) {
	v := new(T)
	return v, json.Unmarshal(answer, v)
}

// findView returns the view at a path, with the parts of the path that the braces of its row stand for; nil if there is none.
func findView(path string) (v *pageView, parts map[string]string) {
	asked := strings.Split(strings.TrimSuffix(path, jsonSuffix), "/")
	for i := range allViews {
		if parts, ok := matchPath(allViews[i].path, asked); ok {
			return &allViews[i], parts
		}
	}
	return nil, nil
}

// matchPath compares the path of a view with the parts of an address.
func matchPath(path string, asked []string) (parts map[string]string, ok bool) {
	own := strings.Split(path, "/")
	if len(own) != len(asked) {
		return nil, false
	}
	parts = map[string]string{}
	for i, part := range own {
		switch name, isName := strings.CutPrefix(part, "{"); {
		case isName && asked[i] != "":
			parts[strings.TrimSuffix(name, "}")] = asked[i]
		case part != asked[i]:
			return nil, false
		}
	}
	return parts, true
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

// A scene has the data of a template, and of the layout around it. Without an officer, the layout has no navigation.
type scene struct {
	Title   string
	Officer *switchboard.Officer
	Token   string // of forms
	Links   []navLink
	Tenants []tenantChoice       // empty if the officer has no choice
	Tenant  switchboard.TenantID // that the view shows, "" for all that the officer sees
	Path    string               // of the view
	State   url.Values           // of the view, in its address
	Command string
	Version string
	Live    string // the address of the stream of the view, "" if it has none
	Form    sentForm
	Data    any
}

// SameWith returns the address of the view with other values in its query: "after" and "next", say. An empty value removes the name.
func (s scene) SameWith(pairs ...string) string { //nolint:gocritic // templates have scenes as values
	return linkTo(s.Path, s.State, pairs...)
}

// JSON returns the address of the answer of the API that the view shows.
func (s scene) JSON() string { //nolint:gocritic // templates have scenes as values
	return linkTo(s.Path+jsonSuffix, s.State)
}

// TryAgain returns the address of the form of the call that the view shows.
func (s scene) TryAgain() string { //nolint:gocritic // templates have scenes as values
	return linkTo(tryPath, s.State)
}

// A sentForm is a form that the browser has just sent, and that has led nowhere else.
type sentForm struct {
	Act    string
	Fields url.Values      // as they were typed
	Why    *access.Problem // nil if it was carried out
	Result any
}

// Typed returns a field of the form that was just refused, "" if it was another form.
func (s scene) Typed(act, name string) string { //nolint:gocritic // templates have scenes as values
	if s.Form.Act != act || s.Form.Why == nil {
		return ""
	}
	return s.Form.Fields.Get(name)
}

type navLink struct {
	Path, Title string
	Here        bool
}

type tenantChoice struct {
	ID   switchboard.TenantID
	Here bool
}

// newScene returns a scene for the officer. inside is the path of a view in the navigation.
func newScene(p *Page, officer *switchboard.Officer, secret, title, inside string, data any) scene {
	s := scene{Title: title, Officer: officer, Token: formToken(secret), Version: p.o.Version, Data: data}
	for i := range allViews {
		if v := &allViews[i]; v.inside == "" && v.isFor(officer) {
			s.Links = append(s.Links, navLink{v.path, v.title, v.path == inside})
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
func (p viewPages) serve(w http.ResponseWriter, r *http.Request, own site, v *pageView, parts map[string]string) {
	w.Header().Set("Vary", "Accept")
	asJSON := strings.HasSuffix(r.URL.Path, jsonSuffix) || prefersJSON(r)
	secret := own.readCookie(r, sessionCookie)
	if secret == "" && !asJSON {
		var why *switchboard.Error
		if v.path != allViews[0].path {
			why = &switchboard.Error{Code: switchboard.CodeNotAuthenticated, Text: "sign in, and then open this address again"}
		}
		p.show(w, http.StatusOK, "signin.html", signInScene(p.Page, why))
		return
	}
	officer, err := p.officerAt(r, own)
	if err != nil {
		p.refuseSession(w, err, secret, asJSON)
		return
	}
	q := &viewQuery{page: p.Page, r: r, officer: &officer, secret: secret, view: v, parts: parts, state: r.URL.Query()}
	if asked := q.state["tenant"]; !asJSON && !officer.Operator && len(p.tenantsOf(&officer)) > 1 && len(asked) == 0 {
		http.Redirect(w, r, linkTo(r.URL.Path, q.state, "tenant", string(p.tenantsOf(&officer)[0])), http.StatusSeeOther) // an address has the whole state of its view
		return
	} else if !asJSON && slices.Equal(asked, []string{""}) {
		http.Redirect(w, r, linkTo(r.URL.Path, q.state, "tenant", ""), http.StatusSeeOther) // the form says "all tenants" with an empty field
		return
	}
	if asJSON {
		answer := q.call(http.MethodGet, v.api(q), nil, nil)
		w.Header().Set("Content-Type", answer.header.Get("Content-Type"))
		w.WriteHeader(answer.status)
		_, _ = w.Write(answer.body.Bytes())
		return
	}
	if v.settle != nil {
		if to := v.settle(q); to != "" {
			http.Redirect(w, r, to, http.StatusSeeOther)
			return
		}
	}
	p.write(w, q, sentForm{}, http.StatusOK)
}

// carryOut carries out a form of a view, and shows the view again unless the form leads elsewhere. What was typed is kept.
func (p viewPages) carryOut(w http.ResponseWriter, r *http.Request, own site, v *pageView, parts map[string]string, fields url.Values) {
	secret := own.readCookie(r, sessionCookie)
	var officer switchboard.Officer
	var err error = switchboard.Refuse(switchboard.CodeNotAuthenticated, "your session has ended, so nothing was done")
	if secret != "" {
		officer, err = p.officerAt(r, own)
	}
	if err != nil {
		p.keepForm(w, r, err, secret, fields)
		return
	}
	state, err := url.ParseQuery(strings.TrimPrefix(fields.Get("at"), "?"))
	do := v.forms[fields.Get("act")]
	if err != nil || do == nil {
		p.refuse(w, http.StatusBadRequest, "this form is none of the view; load the page again")
		return
	}
	q := &viewQuery{page: p.Page, r: r, officer: &officer, secret: secret, view: v, parts: parts, state: state}
	sent := sentForm{Act: fields.Get("act"), Fields: fields}
	var done formDone
	switch {
	case isFormToken(fields.Get("token"), secret):
		done, err = do(q, fields)
	case fields.Get("kept") != "":
		err = &refusalError{access.Problem{Status: http.StatusForbidden, Detail: "this is what you typed before, and it was not sent again", Hint: "Read it again, and send it."}}
	default:
		err = &refusalError{access.Problem{Status: http.StatusForbidden, Code: switchboard.CodeNotAuthorized, Detail: "this form belongs to another session, so nothing was done", Hint: "What you typed is kept: read it again, and send it."}}
	}
	status := http.StatusOK
	if err != nil {
		why := problemOf(err)
		sent.Why, status = &why, why.Status
	}
	if err == nil && done.Next != "" {
		http.Redirect(w, r, done.Next, http.StatusSeeOther)
		return
	}
	sent.Result = done.Result
	p.write(w, q, sent, status)
}

// write writes the view, as the query asks for it.
func (p viewPages) write(w http.ResponseWriter, q *viewQuery, sent sentForm, status int) {
	v, after := q.view, p.o.Cursor() // before the API is asked, so that no change is missed
	if v.live != neverReads && q.r.Method == http.MethodGet && q.r.Header.Get("Hx-Request") != "" {
		q.after = after
	}
	answer := q.call(http.MethodGet, v.api(q), nil, nil)
	err := answer.refusal()
	var data any
	switch {
	case err == nil:
		data, err = v.load(q, answer.body.Bytes())
	case v.refused != nil:
		data, status, err = v.refused(q, err)
	}
	if err != nil {
		why := problemOf(err)
		if why.Status == http.StatusInternalServerError {
			p.o.Log.Error("a view cannot be shown", "view", v.path, "err", err)
		}
		data := map[string]any{"Why": why.Detail, "Hint": why.Hint}
		if sent.Act != "" {
			data["Kept"] = keep(q.r, sent.Fields)
		}
		p.show(w, why.Status, "refused.html", newScene(p.Page, q.officer, q.secret, "Refused", "", data))
		return
	}
	s := newScene(p.Page, q.officer, q.secret, v.title, cmp.Or(v.inside, v.path), data)
	s.Path, s.State, s.Command, s.Form = q.fill(v.path), q.state, cmp.Or(q.command, q.fillPlain(v.command)), sent
	s.Tenant = switchboard.TenantID(q.state.Get("tenant"))
	if s.Tenant != "" {
		for i := range s.Links {
			s.Links[i].Path = linkTo(s.Links[i].Path, nil, "tenant", string(s.Tenant))
		}
		if s.Command != "" && !v.ofAll {
			s.Command += " --tenant " + shellWord(string(s.Tenant))
		}
	}
	if v.live != neverReads && sent.Act == "" { // what a form was answered with stays
		s.Live = linkTo(livePath, nil, "view", s.Path, "tenant", string(s.Tenant), "after", after)
	}
	if tenants := p.tenantsOf(q.officer); len(tenants) > 1 {
		for _, t := range tenants {
			s.Tenants = append(s.Tenants, tenantChoice{t, t == s.Tenant})
		}
	}
	p.show(w, status, v.template, s)
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
	p.show(w, status, "signin.html", endedScene(p.Page, e, secret))
}

// endedScene returns the page for a session that does not count, now or any more. It is the sign-in if signing in helps.
func endedScene(p *Page, e *switchboard.Error, secret string) scene {
	s := scene{Title: "Sign in", Token: formToken(secret), Data: map[string]any{
		"Issuers": p.o.Providers.IDs(), "Problem": e, "SignedIn": e.Code == switchboard.CodeNotAuthorized, "Wait": !signInHelps(e) && e.Code != switchboard.CodeNotAuthorized,
	}}
	if !signInHelps(e) {
		s.Title = "Refused"
	}
	return s
}

// signInHelps reports whether a request that was refused would count after a sign-in.
func signInHelps(e *switchboard.Error) bool {
	return e.Code == switchboard.CodeNotAuthenticated || e.Code == switchboard.CodeKeyExpired
}

// A keptForm is a form that was sent, and whose view cannot be shown: the session has ended, or the API refuses the view. Its sender sends it again later. It has no
// token, so it does nothing, and the view shows what was typed.
type keptForm struct {
	Path   string
	Fields url.Values
	SignIn bool // the page around it is the sign-in
}

// keep returns the form of a request, with the field "kept" in the place of the token.
func keep(r *http.Request, fields url.Values) keptForm {
	fields = maps.Clone(fields)
	fields.Del("token")
	fields.Del("kept")
	return keptForm{Path: r.URL.Path, Fields: fields}
}

// keepForm answers a form without a valid session with a page that keeps the form.
func (p viewPages) keepForm(w http.ResponseWriter, r *http.Request, err error, secret string, fields url.Values) {
	kept := keep(r, fields)
	e := access.AsError(err)
	kept.SignIn = signInHelps(e)
	s := endedScene(p.Page, e, secret)
	s.Data.(map[string]any)["Kept"] = kept
	p.show(w, access.HTTPStatus(e.Code), "signin.html", s)
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
