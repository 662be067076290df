// Package gateway is the MCP server in front: Streamable HTTP and stdio, and on
// both the two eras of the protocol. Legacy clients open with initialize and
// have a session; modern ones (2026-07-28) have neither, and say with each
// request who they are.
//
// It decides whether bytes from outside are a request that may be answered, and
// is the one place where errors become protocol (errors.go). What a client sees
// it asks of its run, and how a call is made it leaves to the Caller.
//
// What passes through is bytes. A request is scanned strictly, and its params
// go to the Caller as they are; a result comes back as it is, but for the
// fields in which the eras differ (result.go) and the envelope around it. Only
// what Switchboard says about itself goes through mcp-go (own.go).
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

// Bounds of what clients can ask for.
const (
	// MaxMessage is how long a message of a client may be, in bytes.
	MaxMessage = 4 << 20

	// MaxSessions and MaxSessionsEach bound the legacy sessions, in all and of
	// one principal. A principal's longest idle session makes room for a new
	// one, once it has been idle for sessionGrace.
	MaxSessions     = 10_000
	MaxSessionsEach = 256

	// MaxStreamsEach bounds the streams that one principal keeps open to hear
	// of changes.
	MaxStreamsEach = 256

	// MaxCallsEach bounds the calls of one principal that are under way.
	MaxCallsEach = 512

	// MaxInFlight bounds the requests of one session, or of stdio, that are
	// under way.
	MaxInFlight = 256
)

// Times.
const (
	// SessionIdle is how long a session is kept that nobody uses.
	SessionIdle = 30 * time.Minute

	// KeepAlive is how long a client hears nothing on an event stream, or waits
	// for a result, before it is sent a comment. It is also how often a stream
	// that stays open is asked again who is listening.
	KeepAlive = 15 * time.Second

	bodyTimeout   = 30 * time.Second // for a whole body to come in
	writeTimeout  = 30 * time.Second // for a client to take what is told on a stream
	chunkTimeout  = 10 * time.Second // for a client to take writeChunk of a message
	cutNoticeTime = time.Second      // for clients to hear that a call was cut
	sessionGrace  = time.Minute
)

// Options are what a Gateway is made of.
type Options struct {
	Runs   *run.Registry
	Caller switchboard.Caller

	// Store keeps sessions; nil means that they end with the process. Cluster are
	// the replicas that have the same store; nil means that there are no others.
	Store   Store
	Cluster *cluster.Cluster

	// SessionKey marks the ids of sessions, so that the store is not asked for one that
	// nobody has minted. All that have the same store have the same key; without one a
	// Gateway makes its own, and no other knows its sessions.
	SessionKey switchboard.Secret

	// Authenticate says who sent a request, and refuses with SB-AUTH-001 or
	// SB-AUTH-002. It is also asked again for requests whose answer is a
	// stream that stays open.
	Authenticate func(*http.Request) (switchboard.Principal, error)

	// Subscribe begins to hear of the updates of a resource of a server's,
	// which c names as resources/subscribe does, until stop is called.
	// updated gets the URI as the server says it.
	Subscribe func(ctx context.Context, c *switchboard.Call, updated func(uri string)) (stop func(), err error)

	// Ended is told that a Client.Session is over; nil means that nobody
	// wants to know.
	Ended func(session string)

	// RootsChanged is told that the roots of the client of a Client.Session
	// have changed; ask asks it while none of its calls is under way. nil means
	// that nobody wants to know.
	RootsChanged func(session string, ask func(ctx context.Context, method string, params []byte) ([]byte, error))

	// Results keeps results that are too long to be given at once; nil where no
	// surface has preview.ReadTool. WholeResults says that all are given whole.
	Results      *preview.Keeper
	WholeResults bool

	// ReceiptIDs says of a tenant that its clients are told the receipt of each call that goes well; nil says
	// so of none.
	ReceiptIDs func(switchboard.TenantID) bool

	// Meter counts what runs cost; nil means that nobody wants to know.
	Meter *run.Meter

	// Desk does what clients ask of stubs.
	Desk *lazyexpand.Desk

	// Declare binds a run to the task that its client declares with these
	// arguments of DeclareTool; nil where no surface has that.
	Declare func(ctx context.Context, r *run.Run, args []byte) (lazyexpand.Reply, error)

	// Status gives the JSON text with which switchboard_status answers a client
	// of the run.
	Status func(switchboard.Principal, *run.Run) []byte

	// Fitness says whether tasks can be served, with the JSON text that says
	// so to anybody who asks.
	Fitness func() (ready bool, text []byte)

	// Inspect are what people ask from the side, by path: GET of one answers
	// with JSON, or with the problem details of the *switchboard.Error. The
	// same checks stand before them as before MCP.
	Inspect map[string]func(context.Context, switchboard.Principal, url.Values) ([]byte, error)

	// Metrics is what GET of /metrics answers with, in a form that the headers
	// accept; nil means that nothing is there.
	Metrics func(p switchboard.Principal, accept http.Header) (contentType string, text []byte, err error)

	// Operate disables, enables or restarts a server, as POST of
	// /v1/servers/<id>/<what> asks, and gives the JSON of what has come of it; nil
	// means that nobody operates here. By is who asks, and reason why they say
	// that they do, or "". Head is what the request says of who they are.
	Operate func(by switchboard.Principal, head http.Header, id switchboard.ServerID, what, reason string) ([]byte, error)

	// Denied is told of a call of a tool by name that was refused before it could be
	// made, as of one that there is not for the principal: Caller hears nothing of
	// it. It returns the id of the receipt, if there is one. nil means that nobody
	// wants to know.
	Denied func(p switchboard.Principal, r *run.Run, name string, code switchboard.Code) (receipt string)

	// Refused is told of each code with which something is refused; nil means
	// that nobody counts.
	Refused func(switchboard.Code)

	// Grace is called when ServeStdio stops. What it returns is closed once the
	// requests that are under way have had their time; nil means that they get
	// none.
	Grace func() (over <-chan struct{})

	// Hosts and Origins are allowed besides those of this machine; see Allow.
	Hosts   []string
	Origins []string

	Log *slog.Logger // nil means that nothing is logged

	// Name and Version are what Switchboard calls itself.
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
	wholeResults bool // results of any length are given whole
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
	serverInfo    []byte // our serverInfo, an object
	modernMembers []byte // what a modern result has besides; a comma first

	modernMeta []byte // the same without its type
	allowed    atomic.Pointer[accessList]

	sessions sessions
	parks    *parkedCalls
	accounts sync.Map // owner → *account

	closing   chan struct{} // closed by Drain
	rechecked broadcast     // rings when anybody may have lost their key
	close     func()

	failures      authFailures // to be known
	memory        messageMemory
	callsInFlight atomic.Int64 // under way
	takenOver     atomic.Int64 // sessions, from other homes
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
		if !g.isClosing() { // or somebody else will go on with it
			_ = g.deleteStoredSession(s) // or it expires
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

// ServerInfo is the object that tells modern clients who answers.
func ServerInfo(name, version string) []byte {
	b := wire.AppendString([]byte(`{"name":`), name)
	return append(wire.AppendString(append(b, `,"version":`...), version), '}')
}

// Allow sets which names of hosts, and which origins of web pages, requests may
// carry besides those of this machine. A host is "name", for any port, or
// "name:port"; an origin is "https://name", with its port where it has one.
func (g *Gateway) Allow(hosts, origins []string) { g.allowed.Store(newAccessList(hosts, origins)) }

// Drain refuses new requests from now on and ends the streams that clients
// listen on. Requests over HTTP that are under way are waited for: their clients
// can still answer what they are asked, cancel, and come back to a stream that
// they have lost. What is under way when over is closed is cut, and Drain says
// how many calls.
func (g *Gateway) Drain(over <-chan struct{}) (cut int) {
	g.close()
	select {
	case <-g.gate.idle:
		return 0
	case <-over:
		return g.Cut()
	}
}

// Close ends the streams that clients listen on and all sessions, and refuses
// what comes after. Requests under way are left to finish, until Cut.
func (g *Gateway) Close() {
	g.close()
	g.sessions.endAll()
	g.parks.close(errStopping)
}

// releaseClient lets go of what was kept for a client of the legacy era.
func (g *Gateway) releaseClient(c *clientState) {
	c.subscriptions.end()
	if g.sessionEnded != nil {
		g.sessionEnded(c.publicID)
	}
}

// handleNotification takes a notification of a client's, of whose requests those in f are
// under way.
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

// Calls says how many calls are under way.
func (g *Gateway) Calls() int { return int(g.callsInFlight.Load()) }

// Open says how many sessions of the legacy era are open, and how many streams on
// which clients hear of changes.
func (g *Gateway) Open() (sessions, streams int) {
	g.accounts.Range(func(_, a any) bool {
		streams += int(a.(*principalAccount).streams.Load())
		return true
	})
	return g.sessions.size(), streams
}

// Cut ends what is still under way, and says how many calls. Their clients are
// told that the outcome is unknown: they need a moment to hear it.
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

// An owner is what a principal is counted as.
type principalKey struct {
	tenant switchboard.TenantID
	id     string
}

func principalKeyOf(p switchboard.Principal) principalKey { return principalKey{p.Tenant, p.ID} }

// An principalAccount counts what one principal has open. There are as many as there
// are principals, so they are never let go.
type principalAccount struct {
	calls     atomic.Int64
	streams   atomic.Int64
	heldBytes atomic.Int64 // bytes of messages; of a tenant as a whole, where the owner has no id
}

func (g *Gateway) accountOf(p switchboard.Principal) *principalAccount {
	o := principalKeyOf(p)
	if a, ok := g.accounts.Load(o); ok {
		return a.(*principalAccount)
	}
	a, _ := g.accounts.LoadOrStore(o, &principalAccount{})
	return a.(*principalAccount)
}

// takeIfBelow counts one more, unless there are limit already.
func takeIfBelow(n *atomic.Int64, limit int64) bool {
	if n.Add(1) <= limit {
		return true
	}
	n.Add(-1)
	return false
}
