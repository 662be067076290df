// Package api is the admin API: the reads and actions of people, and of programs that look in from the side, over HTTP.
//
// It decides where a request may come from (door.go), which office a route needs (office.go), and how answers and refusals
// look. Package admin and the packages behind it decide the content of answers and carry out actions. No agent's credential opens
// it, and the credentials that open it are useless at /mcp.
//
// Routes, their OpenAPI 3.1 document and the checks of parameters come from the same Go types, by huma. The routes are made at the
// first request, because most processes are never asked.
package api

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/acquire"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/page"
	"github.com/summit-switchboard/switchboard/internal/admin/past"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/signin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// Options are the parts of a running Switchboard that the API serves.
type Options struct {
	Reader  *admin.Reader
	Scraper *admin.Scraper
	Actions *admin.Actions
	Editor  *change.Editor
	Events  *event.Recent
	Records RecordOptions

	// Authenticate returns who has sent a request. The error is a *switchboard.Error.
	Authenticate func(*http.Request) (switchboard.Officer, error)

	People PeopleOptions

	// Keys carries requests with idempotency keys out once. DigestRequest returns the digest of such a request as it may be stored: keyed,
	// because short bodies could be guessed from a plain digest.
	Keys          KeyStore
	DigestRequest func(route string, body []byte) string

	// URL returns how browsers reach the admin address, "" if only this machine does.
	URL func() string

	Version  string
	Stopping context.Context // done when Switchboard stops
	Log      *slog.Logger
}

// RecordOptions are the parts that answer from what was recorded.
type RecordOptions struct {
	Past        *past.Reader
	Comparisons *whatif.Comparisons

	// Compare compares recorded decisions with a proposal. See replay.CompareWithin.
	Compare func(ctx context.Context, s replay.Bounds, p *replay.Proposal, progress func(done, of int)) (*replay.Diff, error)
}

// PeopleOptions are the parts for people who decide, and who use a browser.
type PeopleOptions struct {
	Page      *page.Page // nil means that there is none
	Sessions  *signin.Sessions
	Approvals *approvals.Decider
	Pins      *pins.Registrar
	Trier     *trial.Trier
	Verifier  *verification.Verifier
	Proposals *proposal.Keeper

	Acquisitions *acquire.Keeper
}

// An API answers the requests of officers. Use New. It is safe for concurrent use.
type API struct {
	o        Options
	failures access.Failures

	recheckMu sync.Mutex
	recheck   chan struct{} // see recheckStreams

	make    sync.Once
	handler http.Handler
	huma    huma.API
}

// New returns an API.
func New(o Options) *API { return &API{o: o} }

// routes returns the handler of all routes.
func (a *API) routes() http.Handler {
	a.make.Do(func() {
		a.makeRoutes()
		forgetAnswers(a.huma.OpenAPI())
	})
	return a.handler
}

// Document returns the OpenAPI 3.1 document, as JSON.
func Document(version string) ([]byte, error) {
	a := New(Options{Version: version})
	a.make.Do(a.makeRoutes)
	return a.huma.OpenAPI().MarshalJSON()
}

func (a *API) makeRoutes() {
	mux := http.NewServeMux()
	c := huma.DefaultConfig("Switchboard admin API", a.o.Version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath, c.CreateHooks = "", "", "", nil
	format := huma.Format{Marshal: writeJSON, Unmarshal: readJSON}
	c.Formats = map[string]huma.Format{"application/json": format, "json": format} // "json" is also that of problems
	c.DefaultFormat = "application/json"
	c.RejectUnknownQueryParameters = true
	c.Info.Description = "What operators, the officers of tenants, and programs that look in from the side may read and do. " +
		"Each refusal is a problem (RFC 9457) with a code that docs/errors explains."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"person_key": {Type: "http", Scheme: "bearer", Description: "A person's key, which begins with swo_."},
		"session":    {Type: "apiKey", In: "cookie", Name: "__Host-switchboard", Description: "A session of the page. A request that changes something must have the header Origin."},
	}
	c.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", nameSchema)
	c.Security = []map[string][]string{{"person_key": {}}, {"session": {}}}
	c.Info.License = &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"}
	c.Servers = []*huma.Server{{URL: "http://127.0.0.1:7422", Description: "The default admin address, on the machine of Switchboard. Another one is the url or the listen of admin in switchboard.yaml."}}
	c.Tags = tags
	a.huma = humago.New(mux, c)
	a.huma.UseMiddleware(a.checkOffice, keyedRequests{a}.answerOnce)
	a.addStatus()
	a.addServers()
	a.addDecisions()
	a.addKeys()
	a.addConfiguration()
	a.addBudgets()
	receiptRoutes{a}.addReads()
	receiptRoutes{a}.addAudit()
	memoryRoutes{a}.add()
	a.addEvents()
	personRoutes{a}.addSessions()
	personRoutes{a}.addBlocks()
	a.addPolicyDiffs()
	policyRoutes{a}.add()
	approvalRoutes{a}.add()
	tryRoutes{a}.add()
	pinRoutes{a}.add()
	verificationRoutes{a}.add()
	proposalRoutes{a}.add()
	acquisitionRoutes{a}.add()
	labelRoutes{a}.add()
	mux.HandleFunc("GET /v1/openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		text, err := Document(a.o.Version)
		if err != nil {
			panic(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text)
	})
	a.handler = &strictMux{mux}
}

// tags describe the parts of the API. Each operation has one of them: see tagOf.
var tags = []*huma.Tag{
	{Name: "acquisitions", Description: "What was looked for because nothing here gave it, and what people say to what was found."},
	{Name: "approvals", Description: "What agents ask people for, and what people say."},
	{Name: "blocks", Description: "The people who must not come back."},
	{Name: "budgets", Description: "What calls have cost, and what is left."},
	{Name: "capabilities", Description: "Whether a tenant may use its capabilities now."},
	{Name: "configuration", Description: "The files of the configuration, and the history of their changes."},
	{Name: "decisions", Description: "The recorded decisions."},
	{Name: "events", Description: "What changes, while it changes."},
	{Name: "keys", Description: "The keys of agents and of persons."},
	{Name: "memory", Description: "What receipts say about tools over days, and what tenants lack."},
	{Name: "metrics", Description: "The metrics, for Prometheus."},
	{Name: "now", Description: "What needs a person, and how calls go."},
	{Name: "pins", Description: "The definitions that servers offer, and what is let in of them."},
	{Name: "policies", Description: "Probable mistakes in policies, and the values of their rules."},
	{Name: "policy-diffs", Description: "What recorded decisions would have been under other policies or files."},
	{Name: "proposals", Description: "Changes of several files with claims about what they do, that people decide about."},
	{Name: "receipts", Description: "What was done, for whom, and with which outcome."},
	{Name: "runs", Description: "The tasks that callers have bound."},
	{Name: "servers", Description: "The servers behind Switchboard, and how they are."},
	{Name: "sessions", Description: "Who is signed in to the page, and how a browser signs in."},
	{Name: "standing-approvals", Description: "What people have said yes to in advance."},
	{Name: "status", Description: "How Switchboard is."},
	{Name: "suggestions", Description: "What Switchboard suggests for the labels of tools, and which of it people accept."},
	{Name: "tasks", Description: "The tasks, with the tools that each gets."},
	{Name: "tenants", Description: "The tenants, their tasks, and the decisions for these."},
	{Name: "tools", Description: "The tools that servers offer, whether or not a task finds them."},
	{Name: "try", Description: "The calls that a person makes, on the path of an agent."},
	{Name: "verifications", Description: "What tools were seen to do."},
}

// tagOf returns the tag of the operations at a path.
func tagOf(path string) string {
	tag, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/"), "/")
	switch tag {
	case "receipt":
		return "receipts"
	case "resolve":
		return "capabilities"
	case "search":
		return "tools"
	case "page-codes":
		return "sessions"
	}
	return tag
}

// nameSchema names the schema of a type. Packages of ours use the same name for different types, so the name of the package is
// a part of it, except for this package and for package admin.
func nameSchema(t reflect.Type, hint string) string {
	name := strings.TrimPrefix(huma.DefaultSchemaNamer(t, hint), "Api")
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if pkg := path.Base(t.PkgPath()); t.Name() != "" && strings.Contains(t.PkgPath(), "/internal/") && pkg != "api" && pkg != "admin" {
		return strings.ToUpper(pkg[:1]) + pkg[1:] + name
	}
	return name
}

// A strictMux answers requests that no route takes with problems, where http.ServeMux answers with plain text.
type strictMux struct{ mux *http.ServeMux }

// ServeHTTP implements http.Handler.
func (m *strictMux) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h, pattern := m.mux.Handler(r)
	if pattern == "" {
		silent := &headerOnly{header: http.Header{}}
		h.ServeHTTP(silent, r)
		if allow := silent.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			writeProblem(w, http.StatusMethodNotAllowed, &switchboard.Error{Text: "allowed methods: " + allow})
			return
		}
		writeProblem(w, http.StatusNotFound, &switchboard.Error{Text: "nothing is here; GET /v1/openapi.json lists what is where"})
		return
	}
	m.mux.ServeHTTP(w, r)
}

// A headerOnly keeps the headers of an answer, and nothing else.
type headerOnly struct{ header http.Header }

func (h *headerOnly) Header() http.Header       { return h.header }
func (h *headerOnly) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
func (h *headerOnly) WriteHeader(int)           {}
