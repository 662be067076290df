package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of a request.
const (
	maxBody     = 4 << 20
	bodyTimeout = 30 * time.Second // to receive a whole body
)

type officerKey struct{}

// AsLocalOperator returns the context of a request over a connection with this machine's operator at its other end: a program
// that has read operator.json.
func AsLocalOperator(ctx context.Context) context.Context {
	return context.WithValue(ctx, officerKey{}, &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true})
}

// officerOf returns who has sent the request of ctx; nil before authentication.
func officerOf(ctx context.Context) *switchboard.Officer {
	o, _ := ctx.Value(officerKey{}).(*switchboard.Officer)
	return o
}

// ServeHTTP checks the origin and the sender of the request, and answers it.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so too
				a.o.Log.Error("panic while serving", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			}
			panic(http.ErrAbortHandler) // the client must not take the bytes so far for an answer
		}
	}()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // of an earlier request on this connection
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	if len(r.TransferEncoding) > 0 || r.ProtoMajor == 1 && r.ProtoMinor == 0 {
		h.Set("Connection", "close") // nothing may follow on this connection; see httphead.Checker
	}
	if a.o.People.Page != nil && a.o.People.Page.Takes(r.URL.Path) {
		a.o.People.Page.ServeHTTP(w, r)
		return
	}
	if why := a.refusalReason(r); why != "" {
		a.o.Log.Warn("refused a request to the admin API", "why", why, "remote", r.RemoteAddr)
		writeProblem(w, http.StatusForbidden, switchboard.Refuse(switchboard.CodeNotAuthorized, "%s", why))
		return
	}
	if text, status := spellingFault(r); text != "" {
		writeProblem(w, status, &switchboard.Error{Text: text})
		return
	}
	ctx := r.Context()
	if officerOf(ctx) == nil {
		officer, err := a.o.Authenticate(r)
		if err != nil {
			a.refuseCaller(w, r, err)
			return
		}
		ctx = context.WithValue(ctx, officerKey{}, &officer)
	}
	if r.Body != nil && r.Body != http.NoBody {
		if why := access.NotJSON(w, r); why != "" {
			writeProblem(w, http.StatusUnsupportedMediaType, &switchboard.Error{Text: why})
			return
		}
	}
	a.routes().ServeHTTP(w, r.WithContext(ctx))
}

// HandlerFor returns the handler of the API for requests of the officer, who is known already. The page asks it in this process.
func HandlerFor(a *API, officer *switchboard.Officer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, status := spellingFault(r); text != "" {
			writeProblem(w, status, &switchboard.Error{Text: text})
			return
		}
		a.routes().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), officerKey{}, officer)))
	})
}

// refusalReason says why r may not be answered to any sender; "" means that it may. A web page can make a browser on this
// machine send requests here: by a name of the page's own, or across origins. No page but one of this address may: a
// page of another port of this machine is a stranger too.
func (a *API) refusalReason(r *http.Request) string {
	var hosts, origins []string
	own, err := url.Parse(a.o.URL())
	if err == nil && own.Host != "" {
		hosts, origins = append(hosts, own.Host, own.Hostname()), append(origins, own.Scheme+"://"+own.Host)
	}
	if why := access.NewAllowList(hosts, origins).RefusalReason(r); why != "" {
		return why
	}
	for _, origin := range r.Header.Values("Origin") {
		if !strings.EqualFold(origin, access.Scheme(r)+"://"+r.Host) && (len(origins) == 0 || !strings.EqualFold(origin, origins[0])) {
			return "only pages of this address may ask here"
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if !strings.EqualFold(site, "same-origin") && !strings.EqualFold(site, "none") {
			return "requests of other sites' pages are not allowed here"
		}
	}
	return ""
}

// resolvePath is the path of the verdicts on capabilities, and capabilityParam the only parameter of the API with several values.
const (
	resolvePath     = "/v1/resolve"
	capabilityParam = "capability"
)

// spellingFault says what is wrong with the spelling of the request's URL; "" means nothing. Each resource has one path, and
// a parameter has one value, so that the code that decides and the code that answers read the same. Nothing decides by the one
// parameter that has several.
func spellingFault(r *http.Request) (text string, status int) {
	p := r.URL.EscapedPath()
	if p != path.Clean(p) || !strings.HasPrefix(p, "/") || r.URL.RawPath != "" || strings.ContainsAny(p, "\\") {
		return "nothing is here; \"switchboard docs operate\" says what is where", http.StatusNotFound
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return "the query is not well formed", http.StatusBadRequest
	}
	for name, values := range query {
		if len(values) > 1 && (p != resolvePath || name != capabilityParam) {
			return "the query has " + cmp.Or(name, "a parameter without a name") + " more than once", http.StatusBadRequest
		}
	}
	return "", 0
}

// refuseCaller answers a request without a valid credential. Callers that fail often wait.
func (a *API) refuseCaller(w http.ResponseWriter, r *http.Request, err error) {
	a.SlowDown(r, err)
	e := access.AsError(err)
	status := access.HTTPStatus(e.Code)
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeProblem(w, status, e)
}

// SlowDown counts a caller that was refused, and waits if its network fails often.
func (a *API) SlowDown(r *http.Request, err error) {
	wait, toLog := a.failures.Count(access.NetworkOf(r.RemoteAddr))
	if toLog > 0 {
		a.o.Log.Warn("refused a caller of the admin API", "why", err, "remote", r.RemoteAddr, "failures", toLog)
	}
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
		case <-a.o.Stopping.Done():
		}
	}
}

// writeProblem answers with problem details.
func writeProblem(w http.ResponseWriter, status int, e *switchboard.Error) {
	w.Header().Set("Content-Type", problemType)
	w.WriteHeader(status)
	_, _ = w.Write(access.ProblemOf(status, e).Encode())
}
