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
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits for clients.
const (
	// MaxMessage is the maximum length of a client's message, in bytes.
	MaxMessage = 4 << 20

	// MaxStreamsEach limits the open notification streams of one principal.
	MaxStreamsEach = 256

	// MaxCallsEach limits the calls in flight of one principal.
	MaxCallsEach = 512
)

const (
	// KeepAlive is how long an event stream is silent, or a client waits for a result, before
	// Switchboard sends a comment. It is also how often a long-lived stream authenticates its
	// client again.
	KeepAlive = 15 * time.Second

	bodyTimeout   = 30 * time.Second // to receive a whole body
	writeTimeout  = 30 * time.Second // for a client to read one event
	chunkTimeout  = 10 * time.Second // for a client to read writeChunk of a message
	cutNoticeTime = time.Second      // for clients to read that a call was cut
)

// A Gateway answers clients. Use New. It is safe for concurrent use.
type Gateway struct {
	cluster *cluster.Cluster
	callers *callerCheck
	servers Servers
	tasks   Tasks
	log     *slog.Logger

	enc        *encoder
	accounts   *accounts
	notifier   *changeNotifier
	dispatcher *dispatcher

	sessions   *session.Directory
	replicator *session.Replicator
	parks      *session.ParkedCalls

	stop *shutdown
}

// New returns a Gateway.
func New(o Options) *Gateway {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Sessions.Cluster = cmp.Or(o.Sessions.Cluster, &cluster.Cluster{})
	if o.Recorder == nil {
		o.Recorder = noCallRecorder{}
	}
	replicas := o.Sessions.Cluster
	g := &Gateway{
		cluster:  replicas,
		callers:  &callerCheck{authenticator: o.Authenticator},
		servers:  o.Servers,
		tasks:    o.Tasks,
		log:      o.Log,
		enc:      newEncoder(ServerInfo(o.Name, o.Version), o.Recorder, o.Log),
		accounts: newAccounts(),
		parks:    session.NewParkedCalls(replicas.Self(), replicas.Key("parked calls"), o.Log),
		stop:     newShutdown(),
	}
	g.sessions = session.NewDirectory([]byte(cmp.Or(o.Sessions.Key.Reveal(), rand.Text())), func(s *session.Session) {
		if !g.stop.begun() { // while stopping, another replica takes the session over
			_ = g.replicator.Delete(s) // on an error, the stored session expires
		}
		g.releaseClient(s.Client)
	})
	g.replicator = session.NewReplicator(g.sessions, o.Sessions.Store, replicas.Self(), o.Runs, o.Servers.Subscribe, o.Log)
	finder := &runFinder{runs: o.Runs}
	g.notifier = &changeNotifier{servers: o.Servers, finder: finder, enc: g.enc, closing: g.stop.closing, log: o.Log}
	forwarder := &forwarder{
		caller: o.Caller, parks: g.parks, accounts: g.accounts, meter: o.Meter,
		wholeResults: o.WholeResults, recorder: o.Recorder, enc: g.enc,
	}
	tools := &toolCaller{
		runs: o.Runs, finder: finder, desk: o.Desk, tasks: o.Tasks, results: o.Results, approvals: o.Approvals, forwarder: forwarder,
		meter: o.Meter, recorder: o.Recorder, enc: g.enc, log: o.Log,
	}
	g.dispatcher = &dispatcher{
		library: newOwn(o.Name, o.Version), runs: o.Runs, finder: finder, tools: tools, forwarder: forwarder,
		notifier: g.notifier, meter: o.Meter, enc: g.enc, log: o.Log,
	}
	g.Allow(nil, nil)
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
func (g *Gateway) Allow(hosts, origins []string) {
	g.callers.allowed.Store(access.NewAllowList(hosts, origins))
}

// Drain refuses new requests and ends the notification streams. It waits for the
// HTTP requests in flight: their clients can still answer questions, cancel, and resume a stream
// that they have lost. When over is closed, Drain cuts what is still in flight, and returns how
// many calls it cut.
func (g *Gateway) Drain(over <-chan struct{}) (cut int) {
	g.stop.begin()
	select {
	case <-g.stop.gate.idle:
		return 0
	case <-over:
		return g.CutCalls()
	}
}

// Close ends the notification streams and all sessions, and refuses new requests. Requests in
// flight may finish, until Cut.
func (g *Gateway) Close() {
	g.stop.begin()
	g.sessions.EndAll()
	g.parks.Close(errStopping)
}

// releaseClient ends the subscriptions of a legacy client and reports the end of its session.
func (g *Gateway) releaseClient(c *session.ClientState) {
	c.Subscriptions.End()
	g.servers.SessionEnded(c.PublicID)
}

// handleNotification handles a notification of client c. f holds the client's requests in flight.
func (g *Gateway) handleNotification(c *session.ClientState, f *session.Requests, m wire.Message) {
	switch m.Method {
	case wire.MethodCancelled:
		f.Cancel(m.Params)
	case wire.MethodRootsChanged:
		g.servers.RootsChanged(c.PublicID, func(ctx context.Context, method string, params []byte) ([]byte, error) {
			return c.Ask(ctx, method, cleanParams(params))
		})
	}
}

// CallsInFlight returns the number of calls in flight.
func (g *Gateway) CallsInFlight() int { return int(g.accounts.callsInFlight.Load()) }

// CountOpen returns the numbers of open legacy sessions and of open notification streams.
func (g *Gateway) CountOpen() (sessions, streams int) { return g.sessions.Size(), g.accounts.streams() }

// TakenOver returns how many sessions this replica has taken over.
func (g *Gateway) TakenOver() int64 { return g.replicator.TakenOver() }

// Follow yields the sessions that other replicas take over, until ctx is done.
func (g *Gateway) Follow(ctx context.Context) { g.replicator.Follow(ctx) }

// Sweep extends the expiry of the stored sessions that are in use, and starts subscriptions that
// failed to start. The program calls it every few minutes.
func (g *Gateway) Sweep(ctx context.Context) { g.replicator.Sweep(ctx) }

// CutCalls cancels what is still in flight, and returns how many calls that were. Their clients are told
// that the outcome is unknown. They need a moment to read it.
func (g *Gateway) CutCalls() (calls int) {
	calls = g.CallsInFlight()
	g.dispatcher.requests.cancelAll(errStopping)
	return calls
}
