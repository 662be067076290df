// Package gateway is the MCP server that clients connect to, over Streamable HTTP and over stdio,
// in both eras of the protocol. Legacy clients send initialize and have a session. Modern clients
// (2026-07-28) have neither: each request says who the client is.
//
// The package decides whether bytes from outside are a request that may be answered. It is the only
// place where errors become protocol errors (errors.go). It leaves to the run which tools a client
// is shown, and to the Caller how a call is made.
//
// The messages stay bytes. The gateway scans a request strictly and gives its params to the Caller
// unchanged. It returns a result unchanged, except for the fields in which the eras differ
// (result.go) and for the id around it. Only what Switchboard says about itself goes through mcp-go
// (own.go).
package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits for clients.
const (
	// MaxMessage is the maximum length of a client's message, in bytes.
	MaxMessage = 4 << 20

	// MaxSessions limits the legacy sessions of all principals, MaxSessionsEach those of one
	// principal. A principal that has MaxSessionsEach loses its longest idle session to a new one,
	// if that session has been idle for sessionGrace.
	MaxSessions     = 10_000
	MaxSessionsEach = 256

	// MaxStreamsEach limits the open notification streams of one principal.
	MaxStreamsEach = 256

	// MaxCallsEach limits the calls in flight of one principal.
	MaxCallsEach = 512

	// MaxInFlight limits the requests in flight of one session, or of stdio.
	MaxInFlight = 256
)

const (
	// SessionIdle is how long an unused session is kept.
	SessionIdle = 30 * time.Minute

	// KeepAlive is how long an event stream is silent, or a client waits for a result, before
	// Switchboard sends a comment. It is also how often a long-lived stream authenticates its
	// client again.
	KeepAlive = 15 * time.Second

	bodyTimeout   = 30 * time.Second // to receive a whole body
	writeTimeout  = 30 * time.Second // for a client to read one event
	chunkTimeout  = 10 * time.Second // for a client to read writeChunk of a message
	cutNoticeTime = time.Second      // for clients to read that a call was cut
	sessionGrace  = time.Minute
)

// Options are the parts and settings of a Gateway.
type Options struct {
	Runs   *run.Registry
	Caller switchboard.Caller

	// Store keeps sessions; nil means that they end with the process. Cluster is the group of
	// replicas that share the store; nil means that there are no others.
	Store   Store
	Cluster *cluster.Cluster

	// SessionKey authenticates session ids, so that an id which Switchboard did not mint costs no
	// read of the store. All replicas that share a store have the same key. Without a key, a
	// Gateway makes one that no other replica knows, and only it finds its sessions.
	SessionKey switchboard.Secret

	// Authenticate returns the principal of a request, or an error with SB-AUTH-001 or SB-AUTH-002.
	// Streams that stay open call it again for the request that opened them.
	Authenticate func(*http.Request) (switchboard.Principal, error)

	// Subscribe asks a server for the updates of the resource that c names (as resources/subscribe
	// does), until stop is called. It calls updated with the URI as the server spells it.
	Subscribe func(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error)

	// Ended is called when a Client.Session has ended; nil means that nothing is called.
	Ended func(session string)

	// RootsChanged is called when a client has changed its roots. session is its Client.Session.
	// ask sends that client a request while none of its calls is in flight. nil means that nothing
	// is called.
	RootsChanged func(session string, ask func(ctx context.Context, method string, params []byte) ([]byte, error))

	// Results keeps results that are too long to be returned in one piece; nil where no surface has
	// preview.ReadTool. WholeResults returns all results whole.
	Results      *preview.Keeper
	WholeResults bool

	// ReceiptIDs reports whether the clients of a tenant get the receipt's id with each call that
	// succeeds; nil means no tenant.
	ReceiptIDs func(switchboard.TenantID) bool

	// Meter counts the tokens that runs cost; nil means that nothing is counted.
	Meter *run.Meter

	// Desk answers calls of stubs.
	Desk *lazyexpand.Desk

	// Declare binds a run to the task that its client declares with these arguments of DeclareTool;
	// nil where no surface has DeclareTool.
	Declare func(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error)

	// Status returns the answer of switchboard_status to a client of the run, as JSON.
	Status func(switchboard.Principal, *run.Run) []byte

	// Fitness reports whether tasks can be served, and returns the JSON text of /readyz.
	Fitness func() (ready bool, text []byte)

	// Inspect holds the operators' reads, by path. A GET is answered with their JSON, or with the
	// problem details of their *switchboard.Error. The same checks apply as for MCP.
	Inspect map[string]func(context.Context, switchboard.Principal, url.Values) ([]byte, error)

	// Metrics answers GET /metrics in a format that the headers accept; nil means 404.
	Metrics func(p switchboard.Principal, accept http.Header) (contentType string, text []byte, err error)

	// Operate disables, enables or restarts a server, as POST /v1/servers/<id>/<what> asks, and
	// returns JSON that describes the new state; nil means 404. by is the principal of the request,
	// head are its headers, and reason is the reason that the operator gave, or "".
	Operate func(by switchboard.Principal, head http.Header, id switchboard.ServerID, what, reason string) ([]byte, error)

	// Denied is called when a tools/call was refused before it reached Caller, for example because
	// the principal has no such tool. It returns the id of the receipt, if there is one. nil means
	// that nothing is called.
	Denied func(p switchboard.Principal, r *run.Run, name string, code switchboard.Code) (receipt string)

	// Refused is called with the code of each refusal; nil means that nothing is called.
	Refused func(switchboard.Code)

	// Grace is called when ServeStdio stops. The channel that it returns is closed when the
	// requests in flight have had their time; nil means that they get none.
	Grace func() (over <-chan struct{})

	// Hosts and Origins are allowed in addition to this machine's own names; see Allow.
	Hosts   []string
	Origins []string

	Log *slog.Logger // nil means no log output

	// Name and Version are how Switchboard introduces itself to clients.
	Name    string
	Version string
}

// A Gateway answers clients. Use New. It is safe for concurrent use.
type Gateway struct {
	runs         *run.Registry
	caller       switchboard.Caller
	store        Store
	cluster      *cluster.Cluster
	authenticate func(*http.Request) (switchboard.Principal, error)
	desk         *lazyexpand.Desk
	meter        *run.Meter
	results      *preview.Keeper
	wholeResults bool // results are never cut
	receiptIDs   func(switchboard.TenantID) bool
	declare      func(context.Context, *run.Run, []byte) (lazyexpand.Reply, error)
	status       func(switchboard.Principal, *run.Run) []byte
	fitness      func() (bool, []byte)
	inspect      map[string]func(context.Context, switchboard.Principal, url.Values) ([]byte, error)
	metrics      func(switchboard.Principal, http.Header) (string, []byte, error)
	operate      func(by switchboard.Principal, head http.Header, id switchboard.ServerID, what, reason string) ([]byte, error)
	denied       func(switchboard.Principal, *run.Run, string, switchboard.Code) string
	countRefusal func(switchboard.Code)
	grace        func() <-chan struct{}
	subscribe    func(context.Context, *switchboard.Call, func(uri string)) (func(), error)
	sessionEnded func(session string)
	rootsChanged func(session string, ask func(context.Context, string, []byte) ([]byte, error))
	log          *slog.Logger

	library       *server.MCPServer
	serverInfo    []byte // our serverInfo, a JSON object
	modernMembers []byte // a comma, and the members that every modern result needs

	modernMeta []byte // modernMembers without resultType
	allowed    atomic.Pointer[accessList]

	sessions sessions
	parks    *parkedCalls
	accounts sync.Map // principalKey → *principalAccount

	closing   chan struct{} // closed by Drain
	rechecked broadcast     // sent when any key may have been revoked
	close     func()

	failures      authFailures // of callers that did not authenticate
	memory        messageMemory
	callsInFlight atomic.Int64
	takenOver     atomic.Int64 // sessions that earlier had another owner
	requests      openRequests
	gate          *drainGate // of requests over HTTP
}

// New returns a Gateway.
func New(o Options) *Gateway {
	g := &Gateway{
		runs:         o.Runs,
		caller:       o.Caller,
		store:        o.Store,
		cluster:      cmp.Or(o.Cluster, &cluster.Cluster{}),
		authenticate: o.Authenticate,
		desk:         o.Desk,
		meter:        o.Meter,
		results:      o.Results,
		wholeResults: o.WholeResults,
		receiptIDs:   o.ReceiptIDs,
		declare:      o.Declare,
		status:       o.Status,
		fitness:      o.Fitness,
		inspect:      o.Inspect,
		metrics:      o.Metrics,
		operate:      o.Operate,
		denied:       o.Denied,
		countRefusal: o.Refused,
		grace:        o.Grace,
		serverInfo:   ServerInfo(o.Name, o.Version),
		log:          o.Log,
		library:      newOwn(o.Name, o.Version),
		subscribe:    o.Subscribe,
		sessionEnded: o.Ended,
		rootsChanged: o.RootsChanged,
		parks:        newParkedCalls(cmp.Or(o.Cluster, &cluster.Cluster{})),
		closing:      make(chan struct{}),
		gate:         newGate(),
		memory:       messageMemory{limit: MaxHeld},
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	if g.countRefusal == nil {
		g.countRefusal = func(switchboard.Code) {}
	}
	if g.grace == nil {
		none := make(chan struct{})
		close(none)
		g.grace = func() <-chan struct{} { return none }
	}
	g.sessions.key = []byte(cmp.Or(o.SessionKey.Reveal(), rand.Text()))
	g.sessions.onEnd = func(s *session) {
		if !g.isClosing() { // while stopping, another replica takes the session over
			_ = g.deleteStoredSession(s) // on an error, the stored session expires
		}
		g.releaseClient(s.client)
	}
	g.modernMeta = append([]byte(`,"_meta":`), g.ownMeta()...)
	g.modernMembers = append([]byte(`,"resultType":"complete"`), g.modernMeta...)
	g.close = sync.OnceFunc(func() {
		close(g.closing)
		g.gate.shut()
	})
	g.Allow(o.Hosts, o.Origins)
	return g
}

// ServerInfo is the JSON object that tells modern clients which program answers.
func ServerInfo(name, version string) []byte {
	b := wire.AppendString([]byte(`{"name":`), name)
	return append(wire.AppendString(append(b, `,"version":`...), version), '}')
}

// Allow sets the host names and the origins of web pages that requests may carry in addition to
// this machine's own. A host is "name", for any port, or "name:port". An origin is "https://name",
// with its port if it has one.
func (g *Gateway) Allow(hosts, origins []string) { g.allowed.Store(newAccessList(hosts, origins)) }

// Drain refuses new requests and ends the notification streams. It waits for the
// HTTP requests in flight: their clients can still answer questions, cancel, and resume a stream
// that they have lost. When over is closed, Drain cuts what is still in flight, and returns how
// many calls it cut.
func (g *Gateway) Drain(over <-chan struct{}) (cut int) {
	g.close()
	select {
	case <-g.gate.idle:
		return 0
	case <-over:
		return g.Cut()
	}
}

// Close ends the notification streams and all sessions, and refuses new requests. Requests in
// flight may finish, until Cut.
func (g *Gateway) Close() {
	g.close()
	g.sessions.endAll()
	g.parks.close(errStopping)
}

// releaseClient ends the subscriptions of a legacy client and reports the end of its session.
func (g *Gateway) releaseClient(c *clientState) {
	c.subscriptions.end()
	if g.sessionEnded != nil {
		g.sessionEnded(c.publicID)
	}
}

// handleNotification handles a notification of client c. f holds the client's requests in flight.
func (g *Gateway) handleNotification(c *clientState, f *requestTable, m wire.Message) {
	switch m.Method {
	case wire.MethodCancelled:
		f.cancel(m.Params)
	case wire.MethodRootsChanged:
		if g.rootsChanged != nil {
			g.rootsChanged(c.publicID, c.askOutsideCall)
		}
	}
}

// Calls returns the number of calls in flight.
func (g *Gateway) Calls() int { return int(g.callsInFlight.Load()) }

// Open returns the numbers of open legacy sessions and of open notification streams.
func (g *Gateway) Open() (sessions, streams int) {
	g.accounts.Range(func(_, a any) bool {
		streams += int(a.(*principalAccount).streams.Load())
		return true
	})
	return g.sessions.size(), streams
}

// Cut cancels what is still in flight, and returns how many calls that were. Their clients are told
// that the outcome is unknown. They need a moment to read it.
func (g *Gateway) Cut() (calls int) {
	calls = g.Calls()
	g.requests.cancelAll(errStopping)
	return calls
}

func (g *Gateway) isClosing() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// A principalKey identifies a principal in counters and tables.
type principalKey struct {
	tenant switchboard.TenantID
	id     string
}

func principalKeyOf(p switchboard.Principal) principalKey { return principalKey{p.Tenant, p.ID} }

// A principalAccount counts what one principal has open. There are as many accounts as principals,
// so they are never removed.
type principalAccount struct {
	calls     atomic.Int64
	streams   atomic.Int64
	heldBytes atomic.Int64 // bytes of messages; those of a whole tenant where the id is ""
}

func (g *Gateway) accountOf(p switchboard.Principal) *principalAccount {
	o := principalKeyOf(p)
	if a, ok := g.accounts.Load(o); ok {
		return a.(*principalAccount)
	}
	a, _ := g.accounts.LoadOrStore(o, &principalAccount{})
	return a.(*principalAccount)
}

// takeIfBelow adds one to n, unless n has reached limit.
func takeIfBelow(n *atomic.Int64, limit int64) bool {
	if n.Add(1) <= limit {
		return true
	}
	n.Add(-1)
	return false
}
