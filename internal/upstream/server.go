package upstream

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
	"github.com/summit-switchboard/switchboard/internal/upstream/slot"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
)

// When a changed list is requested again.
const (
	relistDelay    = 100 * time.Millisecond // changes within this time cause one request
	relistInterval = time.Second            // minimum between two requests
	pollInterval   = 5 * time.Minute        // for servers that cannot announce changes

	// connectionInterval is how often it is looked whether somebody has made the connection that a server needs. Other processes make it too.
	connectionInterval = time.Second

	// narrowInterval is how often a server that demands more scopes is tried again with the token that is there.
	narrowInterval = 4 * time.Minute
)

// A server is one server of the fleet. It keeps the server connected, knows its offer, and sends
// calls to it.
type server struct {
	id     switchboard.ServerID
	opts   *Options
	cfg    atomic.Pointer[switchboard.Server]
	ctx    context.Context // ends when the server is to be closed
	cancel context.CancelFunc

	calls task.Tracker // calls in flight or waiting
	gate  slot.Gate    // limits the calls that are not waiting for their client
	tasks task.Tracker // open links, and the goroutines that maintain them

	facts      *serverFacts
	opener     *link.Opener
	connectors *connectorSet
	listings   listingLog
	stale      staleKinds // the kinds that must be listed again

	onChange   func()                      // called when the offer has changed
	reportLink func(up bool, why *Failure) // called when the main link is up, and when it is down
}

// newServer returns a server that does nothing yet. old is the earlier server with the same id, or
// nil. If old has the same program or address, its offer and era remain valid until the new server
// answers.
func newServer(f *Fleet, cfg switchboard.Server, old *server) *server {
	s := &server{
		id: cfg.ID, opts: &f.opts, facts: newServerFacts(), listings: newListingLog(), stale: newStaleKinds(),
		onChange: f.signalChange,
	}
	s.reportLink = func(up bool, why *Failure) { f.reportLink(s, up, why) }
	s.ctx, s.cancel = context.WithCancel(context.Background())
	log, secrets := f.opts.Log.With("server", string(cfg.ID)), mask.New(&cfg)
	var keep process.KeepLine
	if f.opts.KeepStderr != nil {
		keep = func(line string, leftOut int) { f.opts.KeepStderr(cfg.ID, line, leftOut) }
	}
	s.opener = &link.Opener{
		Config: s.config, Spawner: f.spawner, HTTP: link.NewHTTPClients(cfg.URL, cfg.Network, reportCertificate(log)), StderrLog: process.NewStderrLog(log, secrets, keep),
		Log: log, Mask: secrets, ClientInfo: f.clientInfo, Era: &link.EraMemory{},
		Tasks: &s.tasks, OnChange: s.stale.request, OnStderr: s.facts.setStderr, OnEnd: s.facts.addDropped, Hurry: f.opts.hurry,
	}
	if f.opts.Credentials != nil {
		s.opener.Credentials = f.opts.Credentials(&cfg)
	}
	s.connectors = newConnectorSet(s.ctx, f.opts.MaxConnections, &s.tasks, func(ctx context.Context, o linkScope) (*link.Link, error) {
		return s.opener.Open(ctx, link.Usage{Main: o.own, Asks: o.asks, Owner: o.owner()})
	})
	s.connectors.onePrincipal = f.onePrincipal
	s.update(cfg)
	if old == nil && f.opts.Recall != nil {
		if m, ok := f.opts.Recall(&cfg); ok {
			s.restore(m)
		}
	}
	if old != nil {
		if was := old.config(); was.URL == cfg.URL && slices.Equal(was.Command, cfg.Command) && was.Package.Name == cfg.Package.Name {
			s.opener.Era = old.opener.Era
			s.facts.inherit(old.facts)
		}
	}
	return s
}

// reportCertificate returns a function that logs a fault of a certificate's file.
func reportCertificate(log *slog.Logger) func(error) {
	return func(err error) { log.Warn("a certificate's file of a server cannot be used", "error", err.Error()) }
}

// update replaces settings that need no new connection.
func (s *server) update(cfg switchboard.Server) {
	s.cfg.Store(&cfg)
	s.gate.SetLimits(cmp.Or(cfg.MaxCalls, s.opts.MaxInFlight), cfg.MaxWaiting)
}

func (s *server) config() switchboard.Server { return *s.cfg.Load() }

// run keeps the server connected and its offer known until the server is closed.
func (s *server) run() {
	tries, unauthorized := retrySchedule{}, 0
	if s.connectors.startAfter != nil {
		s.reportLink(false, &Failure{Stage: StageConnect, Message: "it is being restarted", Since: time.Now()})
	}
	for s.ctx.Err() == nil {
		began := time.Now()
		s.facts.recordAttempt(began)
		l, err := s.connectors.main.get(s.ctx, dialAtOnce)
		stage := StageConnect
		if err == nil {
			select {
			case <-s.connectors.main.linkUp: // the signal of this link
			default:
			}
			stage = StageList
			if err = s.listOffer(l, switchboard.AllKinds); err == nil {
				s.reportLink(true, nil) // first, since others decide by the offer
				s.endFirstAttempt()
				stage, unauthorized = StageServe, 0
				began = time.Now()
				err = s.watchLink(l)
			}
			if s.ctx.Err() == nil { // otherwise we close it
				l.Fail(err)
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		if link.AsError(err).Kind == link.KindGone && time.Since(began) > callRedialPause {
			continue // the server has only forgotten the session
		}
		wait := tries.nextWait(stage, err, time.Since(began))
		if link.AsError(err).Kind == link.KindUnauthorized {
			unauthorized++
			missing := s.missingToken()
			switch {
			case needsPerson(missing):
				err = missing
			case missing != nil && link.AsError(err).Status != 0: // both are the reason
				e := *link.AsError(err)
				e.Text += "; " + missing.Error()
				if why, ok := errors.AsType[*switchboard.Error](missing); ok && why.Hint != "" {
					e.Remedy = why.Hint
				}
				err = &e
			case unauthorized == 1:
				continue // with another credential
			}
		}
		var narrow *link.TokenGeneration // the token that has too few scopes
		if refused := link.ScopeRefusal(err); refused != nil {
			if c, missing := s.opener.Credentials.Get(s.ctx, nil); missing == nil {
				narrow = &c.Generation
			}
			err = refused
		}
		s.recordDown(stage, err, wait)
		if s.facts.needsConnection() {
			s.awaitConnection(narrow)
			unauthorized = 0
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		case <-s.connectors.main.linkUp: // a call opened a link
		}
		timer.Stop()
	}
}

// listOffer lists the given kinds and those that have changed meanwhile, and publishes the offer.
func (s *server) listOffer(l *link.Link, kinds switchboard.Kinds) error {
	done, listed := s.listings.begin(), false
	defer func() { done(listed) }()
	kinds |= s.stale.takeAll() // this listing answers all changes up to now
	was, said := s.facts.current()
	if was == nil {
		was = &switchboard.Offer{}
	}
	offer, notes, failed, err := l.ListOffer(s.ctx, kinds, was, said)
	if err != nil {
		s.stale.record(kinds)
		return err
	}
	h := l.Hello()
	offer.Server, offer.Modern = s.id, h.Modern()
	changed, other := s.facts.publish(offer, notes, h)
	s.listings.unlisted, listed = failed, !failed.Has(switchboard.Tools)
	if note := notes.String(); note != "" && notes != said {
		s.opener.Log.Warn("the offer of a server is incomplete", "note", note)
	}
	if changed {
		s.onChange()
	}
	if changed && s.opts.OnAnswer != nil {
		s.opts.OnAnswer(s.id)
	}
	if other && s.opts.OnOffer != nil {
		s.opts.OnOffer(s.id)
	}
	return nil
}

// watchLink waits until the link ends, and lists the offer again when it has changed.
func (s *server) watchLink(l *link.Link) error {
	var last time.Time // when the offer was listed last
	fails := 0
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	for {
		kinds := switchboard.Kinds(0)
		var polled <-chan time.Time
		if l.Listener.MustPoll || fails > 0 || s.listings.unlisted != 0 {
			polled = poll.C
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-l.Requests.Done:
			return l.Failure()
		case <-polled:
			kinds = switchboard.AllKinds
		case <-s.stale.now:
		case <-s.stale.ready:
			if err := s.stale.pause(s.ctx, max(relistDelay, relistInterval-time.Since(last))); err != nil {
				return err
			}
		}
		last = time.Now()
		err := s.listOffer(l, kinds)
		switch {
		case err == nil:
			fails = 0
			poll.Reset(pollInterval)
			continue
		case l.Failure() != nil:
			return l.Failure()
		case link.LeavesEraOpen(err) || link.AsError(err).Status >= http.StatusBadRequest:
			return err
		}
		// The server is up, but does not list its offer. The last offer remains valid.
		fails++
		wait := task.Backoff(fails)
		poll.Reset(wait)
		s.recordFailure(StageList, err)
	}
}

// missingToken returns why there is no token for a server that demands one; nil if there is one.
func (s *server) missingToken() error {
	_, err := s.opener.Credentials.Get(s.ctx, nil)
	if refused, ok := errors.AsType[*switchboard.Error](err); ok {
		return refused
	}
	return nil
}

// needsPerson reports whether the error says that a person must make a connection.
func needsPerson(err error) bool {
	refused, ok := errors.AsType[*switchboard.Error](err)
	return ok && refused.Code == switchboard.CodeConnectFirst
}

// awaitConnection waits until somebody has made the connection that the server needs, or it must be tried again for another reason. narrow is the token that
// is there and has too few scopes; nil if there is none.
func (s *server) awaitConnection(narrow *link.TokenGeneration) {
	look := time.NewTicker(connectionInterval)
	defer look.Stop()
	var again <-chan time.Time // the provider may have given the token more scopes
	if narrow != nil {
		again = time.After(narrowInterval)
	}
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.connectors.main.linkUp:
			return
		case <-look.C:
			if c, err := s.opener.Credentials.Get(s.ctx, nil); !needsPerson(err) && (narrow == nil || c.Generation != *narrow) {
				return
			}
		case <-again:
			return
		}
	}
}

// endFirstAttempt records that the first attempt is over.
func (s *server) endFirstAttempt() {
	if s.facts.endFirstAttempt() {
		s.onChange()
	}
}

// recordDown records that the server is away, and when the next attempt is.
func (s *server) recordDown(stage FailureStage, err error, wait time.Duration) {
	s.recordFailure(stage, err)
	s.reportLink(false, s.facts.recordDown(stage, wait))
	s.endFirstAttempt()
}

// recordFailure records a failure. It keeps the last offer and marks it as stale.
func (s *server) recordFailure(stage FailureStage, err error) {
	remedy := link.AsError(err).Remedy
	message, needs := err.Error(), false
	if refused, ok := errors.AsType[*switchboard.Error](err); ok {
		remedy = refused.Hint
		if needs = refused.Code == switchboard.CodeConnectFirst; needs {
			message = refused.Text
		}
	}
	if stage == StageConnect && link.AsError(err).Kind == link.KindSilent {
		remedy = process.SlowStartRemedy(s.config().Command)
	}
	why := Failure{
		Stage: stage, Message: s.opener.Mask.Text(message), Gone: link.AsError(err).Gone,
		Remedy: s.opener.Mask.Text(remedy), NeedsConnection: needs,
	}
	repeated, changed := s.facts.recordFailure(why)
	if !repeated {
		attrs := []any{"stage", string(stage), "error", why.Message}
		if why.Remedy != "" {
			attrs = append(attrs, "remedy", why.Remedy)
		}
		s.opener.Log.Warn("a server is in trouble", attrs...)
	}
	if changed {
		s.onChange()
	}
}

// probe checks that the server answers. If the server has forgotten the session, opening a new one
// is the answer.
func (s *server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, process.StartTimeout)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for again := false; ; again = true {
		l, err := s.connectors.main.get(ctx, waitForPause)
		if err == nil && !again {
			err = l.Ping(ctx)
		}
		if path := s.config().Probe.Path; err == nil && path != "" {
			return s.probePath(ctx, path)
		}
		if err == nil || again || link.AsError(err).Kind != link.KindGone {
			return err
		}
	}
}

// probePath requests a path at the server's address. The request carries no credentials, because
// the path is not part of the protocol.
func (s *server) probePath(ctx context.Context, path string) error {
	u, err := endpoint.ParseAddress(s.config().URL)
	if err != nil {
		return link.Errorf(link.KindUnreachable, false, "%v", err)
	}
	at, err := u.Parse(path)
	if err != nil || at.Host != u.Host {
		return link.Errorf(link.KindUnreachable, false, "no request can be made for %s", path)
	}
	at.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return link.Errorf(link.KindUnreachable, false, "no request can be made for %s", path)
	}
	resp, err := s.opener.HTTP.Client.Do(req)
	if err != nil {
		return link.Errorf(link.KindUnreachable, false, "%s has no answer: %s", path, s.opener.Mask.Text(err.Error())).WithRemedy(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, link.MaxErrorBody)
	if resp.StatusCode/100 != 2 {
		return link.Errorf(link.KindBroken, true, "%s was answered with %s", path, resp.Status)
	}
	return nil
}

// drain closes the server when its calls in flight have ended. With a grace above 0 it cuts them
// off after that time.
func (s *server) drain(grace time.Duration) {
	ended := s.calls.Close()
	var over <-chan time.Time
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		over = timer.C
	}
	cut := false
	select {
	case <-ended:
	case <-s.opts.hurry:
	case <-over:
		cut = true
	}
	s.cancel()
	s.connectors.closeAll(cut)
	<-s.tasks.Close()
	<-ended
	s.opener.HTTP.Close()
	if s.connectors.startAfter != nil {
		<-s.connectors.startAfter // the server that it replaced has ended too
	}
}
