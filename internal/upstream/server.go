package upstream

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/process"
)

// When a changed list is requested again.
const (
	relistDelay    = 100 * time.Millisecond // changes within this time cause one request
	relistInterval = time.Second            // minimum between two requests
	pollInterval   = 5 * time.Minute        // for servers that cannot announce changes
)

// A server is one server of the fleet. It keeps the server connected, knows its offer, and sends
// calls to it.
type server struct {
	id          switchboard.ServerID
	opts        *Options
	spawn       *process.Spawner
	httpClients *httpClients
	log         *slog.Logger
	mask        *mask.Mask
	stderrLog   *process.StderrLog
	clientInfo  clientInfo
	onChange    func()          // called when the offer has changed
	startAfter  <-chan struct{} // no link is opened before it is closed; nil means no wait

	// reportLink is called when the main link is up, and when it is down, with the reason.
	reportLink func(up bool, why *Failure)

	// connect opens a link within a time limit. It is a field so that tests need no server.
	connect func(ctx context.Context, o linkScope) (*link, error)

	era *eraMemory

	ctx        context.Context // ends when the server is to be closed
	cancel     context.CancelFunc
	calls      taskGroup // calls in flight or waiting
	gate       callGate  // limits the calls that are not waiting for their client
	linkTasks  taskGroup // open links, and the goroutines that maintain them
	firstTried chan struct{}
	firstOnce  sync.Once
	stale      staleKinds // the kinds that must be listed again
	main       *connector // Switchboard's own connection

	// unlisted are the kinds that could not be listed last time. They are tried again, but less
	// often than a change is listed. Only run uses it.
	unlisted switchboard.Kinds

	mu         sync.Mutex
	ownStderr  *process.StderrReader // of the last process of the main link; nil means none
	cfg        switchboard.Server
	connectors map[linkScope]*connector
	serverFacts

	listingsBegun, listingsDone uint64        // how many listings have begun; the number of the last that has ended
	listingDone                 chan struct{} // closed when listingsDone changes
	mistakenAt                  time.Time     // when an error that sounded like a withdrawn tool was none; see confirmWithdrawn
}

// serverFacts is what is known of a server, for Status and Offers.
type serverFacts struct {
	state          State
	hello          serverHello
	attemptBegan   time.Time // when the current attempt began
	offer          *switchboard.Offer
	notes          listNotes
	failure        *Failure
	restarts       int
	failedAttempts int // attempts since it was ready last
	nextAttempt    time.Time
	dropped        int64 // messages dropped on links that have ended
}

// newServer returns a server that does nothing yet. old is the earlier server with the same id, or
// nil. If old has the same program or address, its offer and era remain valid until the new server
// answers.
func newServer(f *Fleet, cfg switchboard.Server, old *server) *server {
	s := &server{
		id: cfg.ID, opts: &f.opts, spawn: f.spawner, clientInfo: f.clientInfo, onChange: f.signalChange, cfg: cfg,
		log:         f.opts.Log.With("server", string(cfg.ID)),
		mask:        mask.New(&cfg),
		era:         &eraMemory{},
		httpClients: newHTTPClients(cfg.URL),
		firstTried:  make(chan struct{}),
		stale:       newStaleKinds(),
		connectors:  map[linkScope]*connector{},

		listingDone: make(chan struct{}),
	}
	s.reportLink = func(up bool, why *Failure) { f.reportLink(s, up, why) }
	s.stderrLog = process.NewStderrLog(s.log, s.mask)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.connect = s.open
	s.update(cfg)
	s.main = s.addConnector(linkScope{own: true})
	s.state = StateStarting
	if old == nil && f.opts.Recall != nil {
		if m, ok := f.opts.Recall(&cfg); ok {
			s.restore(m)
		}
	}
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		if old.cfg.URL != cfg.URL || !slices.Equal(old.cfg.Command, cfg.Command) {
			return s
		}
		s.era, s.restarts = old.era, old.restarts
		if old.offer != nil {
			stale := *old.offer
			stale.Stale = true
			s.offer = &stale
		}
	}
	return s
}

func (s *server) addConnector(o linkScope) *connector {
	sl := newConnector(func() (*link, error) {
		if s.startAfter != nil {
			select {
			case <-s.startAfter:
			case <-s.ctx.Done():
				return nil, ownError(kindLost, false, "it is being closed")
			}
		}
		ctx, cancel := context.WithTimeout(s.ctx, process.StartTimeout)
		defer cancel()
		return s.connect(ctx, o)
	})
	s.connectors[o] = sl
	return sl
}

// update replaces settings that need no new connection.
func (s *server) update(cfg switchboard.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
	s.gate.setLimits(cmp.Or(cfg.MaxCalls, s.opts.MaxInFlight), cfg.MaxWaiting)
}

func (s *server) config() switchboard.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// open connects for the scope: it starts the process or opens the session, and does the handshake.
func (s *server) open(ctx context.Context, o linkScope) (*link, error) {
	cfg := s.config()
	if cfg.Transport == switchboard.TransportHTTP {
		return s.openHTTP(ctx, &cfg, o)
	}
	l, err := s.openProcess(ctx, &cfg, o)
	if era, shy := s.era.get(); err != nil && era == "" && shy && l != nil {
		// The process ended because it was probed: start it once more, with initialize first.
		l, err = s.openProcess(ctx, &cfg, o)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openProcess starts the process. With an error it returns the link only if the process ended
// because it was probed.
func (s *server) openProcess(ctx context.Context, cfg *switchboard.Server, o linkScope) (*link, error) {
	s.setOwnStderr(o, nil)
	proc, err := s.spawn.Start(cfg)
	if err != nil {
		return nil, &exchangeError{kind: kindUnreachable, gone: true, text: s.mask.Text(err.Error()), remedy: process.StartRemedy(cfg)}
	}
	l := s.newLink(o)
	s.setOwnStderr(o, newStdioPort(l, proc, s.stderrLog).stderr)
	_, wasShy := s.era.get()
	got, err := s.handshake(l, o, nil, func() (serverHello, error) { return greetStdio(ctx, l, s.era) })
	if _, shy := s.era.get(); err != nil && shy && !wasShy {
		return l, err
	}
	return got, err
}

// setOwnStderr stores the stderr of the main link's process for Status, and ignores that of other
// processes.
func (s *server) setOwnStderr(o linkScope, says *process.StderrReader) {
	if !o.own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ownStderr = says
}

func (s *server) newLink(o linkScope) *link {
	l := newLink(s.log, s.mask, s.clientInfo, o.asks, s.stale.request)
	if most := s.config().MaxResult; most > 0 {
		l.maxBytes = most
	}
	return l
}

// handshake makes an opened link usable, and arranges that its port is shut down when the link
// ends.
func (s *server) handshake(l *link, o linkScope, w *httpPort, handshake func() (serverHello, error)) (*link, error) {
	if !s.linkTasks.run(func() {
		<-l.done
		l.port.shutDown(s.opts.hurry)
		s.mu.Lock()
		s.dropped += l.dropped.Load()
		s.mu.Unlock()
	}) {
		l.close()
		l.port.shutDown(s.opts.hurry)
		return nil, ownError(kindLost, false, "it is being closed")
	}
	h, err := handshake()
	if err != nil {
		l.fail(err)
		return nil, err
	}
	l.greeting.Store(&h)
	l.mustPoll = w != nil || h.modern() && h.notifies != h.offers
	if o.own || o.asks != "" {
		l.listening = true
		l.openListenStream(w)
		if w != nil && !h.modern() {
			waitFor(w.streamOpened, listenTimeout) // earlier notifications and requests of the server are lost
		}
		if h.modern() && h.notifies != 0 {
			waitFor(l.acknowledged, acknowledgeTimeout)
			l.offerListed.Store(true)
		}
	}
	return l, nil
}

// run keeps the server connected and its offer known until the server is closed.
func (s *server) run() {
	tries := retrySchedule{}
	if s.startAfter != nil {
		s.reportLink(false, &Failure{Stage: StageConnect, Message: "it is being restarted", Since: time.Now()})
	}
	for s.ctx.Err() == nil {
		began := time.Now()
		s.recordAttempt(began)
		l, err := s.main.get(s.ctx, dialAtOnce)
		stage := StageConnect
		if err == nil {
			select {
			case <-s.main.linkUp: // the signal of this link
			default:
			}
			stage = StageList
			if err = s.listOffer(l, switchboard.AllKinds); err == nil {
				s.reportLink(true, nil) // first, since others decide by the offer
				s.endFirstAttempt()
				stage = StageServe
				began = time.Now()
				err = s.watchLink(l)
			}
			if s.ctx.Err() == nil { // otherwise we close it
				l.fail(err)
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		if asExchangeError(err).kind == kindGone && time.Since(began) > callRedialPause {
			continue // the server has only forgotten the session
		}
		wait := tries.nextWait(stage, err, time.Since(began))
		s.recordDown(stage, err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		case <-s.main.linkUp: // a call opened a link
		}
		timer.Stop()
	}
}

// listOffer lists the given kinds and those that have changed meanwhile, and publishes the offer.
func (s *server) listOffer(l *link, kinds switchboard.Kinds) error {
	defer s.beginListing()()
	kinds |= s.stale.takeAll() // this listing answers all changes up to now
	s.mu.Lock()
	was := s.offer
	said := s.notes
	s.mu.Unlock()
	if was == nil {
		was = &switchboard.Offer{}
	}
	offer, now, failed, err := l.listOffer(s.ctx, kinds, was, said)
	if err != nil {
		s.stale.record(kinds)
		return err
	}
	h := l.hello()
	offer.Server, offer.Modern = s.id, h.modern()
	s.mu.Lock()
	other := s.offer != nil && !sameOffer(was, offer)
	changed := s.offer == nil || was.Stale || other
	if changed {
		s.offer = offer
	}
	if s.state == StateRetrying && s.hello.version != "" {
		s.restarts++
	}
	s.state, s.hello, s.notes, s.failure, s.failedAttempts, s.nextAttempt = StateReady, *h, now, nil, 0, time.Time{}
	s.mu.Unlock()
	s.unlisted = failed
	if note := now.String(); note != "" && now != said {
		s.log.Warn("the offer of a server is incomplete", "note", note)
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
func (s *server) watchLink(l *link) error {
	var last time.Time // when the offer was listed last
	fails := 0
	poll := time.NewTimer(pollInterval)
	defer poll.Stop()
	for {
		kinds := switchboard.Kinds(0)
		var polled <-chan time.Time
		if l.mustPoll || fails > 0 || s.unlisted != 0 {
			polled = poll.C
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-l.done:
			return l.failure()
		case <-polled:
			kinds = switchboard.AllKinds
		case <-s.stale.ready:
			if sleep(s.ctx, max(relistDelay, relistInterval-time.Since(last))) != nil {
				return s.ctx.Err()
			}
		}
		last = time.Now()
		err := s.listOffer(l, kinds)
		switch {
		case err == nil:
			fails = 0
			poll.Reset(pollInterval)
			continue
		case l.failure() != nil:
			return l.failure()
		case leavesEraOpen(err) || asExchangeError(err).status >= http.StatusBadRequest:
			return err
		}
		// The server is up, but does not list its offer. The last offer remains valid.
		fails++
		wait := backoff(fails)
		poll.Reset(wait)
		s.recordFailure(StageList, err)
	}
}

func (s *server) recordAttempt(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attemptBegan, s.nextAttempt = now, time.Time{}
}

// endFirstAttempt records that the first attempt is over.
func (s *server) endFirstAttempt() {
	s.firstOnce.Do(func() {
		close(s.firstTried)
		s.onChange()
	})
}

// starting reports whether the first attempt is still running.
func (s *server) starting() bool {
	select {
	case <-s.firstTried:
		return false
	default:
		return true
	}
}

// awaitsOffer reports whether the server is starting and has no known offer.
func (s *server) awaitsOffer() bool {
	if !s.starting() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer == nil
}

// recordDown records that the server is away, and when the next attempt is.
func (s *server) recordDown(stage Stage, err error, wait time.Duration) {
	s.recordFailure(stage, err)
	s.mu.Lock()
	s.state, s.nextAttempt, s.attemptBegan = StateRetrying, time.Now().Add(wait), time.Time{}
	if stage != StageServe {
		s.failedAttempts++
	}
	why := s.failure
	s.mu.Unlock()
	s.reportLink(false, why)
	s.endFirstAttempt()
}

// recordFailure records a failure. It keeps the last offer and marks it as stale.
func (s *server) recordFailure(stage Stage, err error) {
	remedy := asExchangeError(err).remedy
	if stage == StageConnect && asExchangeError(err).kind == kindSilent {
		remedy = process.SlowStartRemedy(s.config().Command)
	}
	message, remedy := s.mask.Text(err.Error()), s.mask.Text(remedy)
	s.mu.Lock()
	repeated := s.failure != nil && s.failure.Stage == stage && s.failure.Message == message
	since := time.Now()
	if s.failure != nil {
		since = s.failure.Since
	}
	s.failure = &Failure{Stage: stage, Message: message, Since: since, Gone: asExchangeError(err).gone, Remedy: remedy, Stderr: s.ownStderr.LastLines()}
	changed := s.offer != nil && !s.offer.Stale
	if changed {
		stale := *s.offer
		stale.Stale = true
		s.offer = &stale
	}
	s.mu.Unlock()
	if !repeated {
		attrs := []any{"stage", string(stage), "error", message}
		if remedy != "" {
			attrs = append(attrs, "remedy", remedy)
		}
		s.log.Warn("a server is in trouble", attrs...)
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
		l, err := s.main.get(ctx, waitForPause)
		if err == nil && !again {
			err = l.ping(ctx)
		}
		if path := s.config().Probe.Path; err == nil && path != "" {
			return s.probePath(ctx, path)
		}
		if err == nil || again || asExchangeError(err).kind != kindGone {
			return err
		}
	}
}

// probePath requests a path at the server's address. The request carries no credentials, because
// the path is not part of the protocol.
func (s *server) probePath(ctx context.Context, path string) error {
	u, err := parseAddress(s.config().URL)
	if err != nil {
		return exchangeErrorf(kindUnreachable, false, "%v", err)
	}
	at, err := u.Parse(path)
	if err != nil || at.Host != u.Host {
		return exchangeErrorf(kindUnreachable, false, "no request can be made for %s", path)
	}
	at.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return exchangeErrorf(kindUnreachable, false, "no request can be made for %s", path)
	}
	resp, err := s.httpClients.client.Do(req)
	if err != nil {
		return exchangeErrorf(kindUnreachable, false, "%s has no answer: %s", path, s.mask.Text(err.Error())).withRemedy(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	if resp.StatusCode/100 != 2 {
		return exchangeErrorf(kindBroken, true, "%s was answered with %s", path, resp.Status)
	}
	return nil
}

// drain closes the server when its calls in flight have ended. With a grace above 0 it cuts them
// off after that time.
func (s *server) drain(grace time.Duration) {
	ended := s.calls.close()
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
	s.mu.Lock()
	slots := s.connectors
	s.connectors = map[linkScope]*connector{}
	s.mu.Unlock()
	for _, sl := range slots {
		sl.close(true)
		if cut {
			sl.haltLink()
		}
	}
	<-s.linkTasks.close()
	<-ended
	s.httpClients.close()
	if s.startAfter != nil {
		<-s.startAfter // the server that it replaced has ended too
	}
}
