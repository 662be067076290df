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
)

// How a changed list is asked for.
const (
	relistQuiet = 100 * time.Millisecond // changes within it are one
	relistEvery = time.Second            // at most so often, however often it is said to have changed
	pollEvery   = 5 * time.Minute        // where the server has no way to say so
)

// A server is one server behind us: it is kept connected, its tools are known,
// and calls go to it.
type server struct {
	id    switchboard.ServerID
	opts  *Options
	spawn *spawner
	http  *carrier
	log   *slog.Logger
	mask  *mask
	voice *voice
	ours  identity
	moved func()          // told when what the server offers has changed
	after <-chan struct{} // no link is made before it is closed; nil means that none has to wait

	// linked is told when our own link is up, and when it is not, and why.
	linked func(up bool, why *Failure)

	// connect makes a link that is not yet known to anybody, bounded in time.
	// It is a field so that tests need no server.
	connect func(ctx context.Context, o owner) (*link, error)

	known *memory

	ctx    context.Context // ends when the server is to go
	cancel context.CancelFunc
	calls  group // calls under way
	gate   gate  // those of them that do not wait for a client
	links  group // links that have not ended, and what keeps them
	tried  chan struct{}
	once   sync.Once
	relist changes // what it offers that has to be listed again
	main   *slot   // our own

	// lacking are the kinds that could not be listed last time: they are tried
	// again, though not as often as others change. Only run uses it.
	lacking switchboard.Kinds

	mu    sync.Mutex
	says  *stderr // of our own process, the last that was started; nil means none
	cfg   switchboard.Server
	slots map[owner]*slot
	record

	listings, listed uint64        // how often it was asked what it offers; the last time that is over
	relisted         chan struct{} // closed when listed changes
	suspected        time.Time     // that its words were no sign of a tool that is gone; see withdrawn
}

// A record is what is known of a server, for others to read.
type record struct {
	state    State
	hello    hello
	began    time.Time // of the attempt under way
	offer    *switchboard.Offer
	notes    notes
	failure  *Failure
	restarts int
	failed   int // attempts since it was ready last
	next     time.Time
	dropped  int64 // by links that have ended
}

// newServer returns a server that does nothing yet. old, which may be nil, is
// what stood under its id before: where it is the same program or address,
// what is known of it holds until the new one says otherwise.
func newServer(f *Fleet, cfg switchboard.Server, old *server) *server {
	s := &server{
		id: cfg.ID, opts: &f.opts, spawn: f.spawner, ours: f.ours, moved: f.touch, cfg: cfg,
		log:    f.opts.Log.With("server", string(cfg.ID)),
		mask:   newMask(&cfg),
		known:  &memory{},
		http:   newCarrier(cfg.URL),
		tried:  make(chan struct{}),
		relist: newChanges(),
		slots:  map[owner]*slot{},

		relisted: make(chan struct{}),
	}
	s.linked = func(up bool, why *Failure) { f.linked(s, up, why) }
	s.voice = newVoice(s.log, s.mask)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.connect = s.open
	s.update(cfg)
	s.main = s.newSlot(owner{own: true})
	s.state = StateStarting
	if old == nil && f.opts.Recall != nil {
		if m, ok := f.opts.Recall(&cfg); ok {
			s.recall(m)
		}
	}
	if old != nil {
		old.mu.Lock()
		defer old.mu.Unlock()
		if old.cfg.URL != cfg.URL || !slices.Equal(old.cfg.Command, cfg.Command) {
			return s
		}
		s.known, s.restarts = old.known, old.restarts
		if old.offer != nil {
			stale := *old.offer
			stale.Stale = true
			s.offer = &stale
		}
	}
	return s
}

func (s *server) newSlot(o owner) *slot {
	sl := newSlot(func() (*link, error) {
		if s.after != nil {
			select {
			case <-s.after:
			case <-s.ctx.Done():
				return nil, ourFault(kindLost, false, "it is being closed")
			}
		}
		ctx, cancel := context.WithTimeout(s.ctx, startPatience)
		defer cancel()
		return s.connect(ctx, o)
	})
	s.slots[o] = sl
	return sl
}

// update takes settings that need no new connection.
func (s *server) update(cfg switchboard.Server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg = cfg
	s.gate.limit(cmp.Or(cfg.MaxCalls, s.opts.MaxInFlight), cfg.MaxWaiting)
}

func (s *server) config() switchboard.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// open connects for the owner: it starts the process or opens the session, and
// finds out how to speak.
func (s *server) open(ctx context.Context, o owner) (*link, error) {
	cfg := s.config()
	if cfg.Transport == switchboard.TransportHTTP {
		return s.openHTTP(ctx, &cfg, o)
	}
	l, err := s.openProcess(ctx, &cfg, o)
	if era, shy := s.known.recall(); err != nil && era == "" && shy && l != nil {
		// It ended because it was probed: once more, the way that it wants.
		l, err = s.openProcess(ctx, &cfg, o)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openProcess starts the process. With an error it returns the link only where
// the process ended because it was probed.
func (s *server) openProcess(ctx context.Context, cfg *switchboard.Server, o owner) (*link, error) {
	s.hear(o, nil)
	proc, err := s.spawn.start(cfg)
	if err != nil {
		return nil, &fault{kind: kindUnreachable, gone: true, text: s.mask.text(err.Error()), remedy: startRemedy(cfg)}
	}
	l := s.newLink(o)
	s.hear(o, openStdio(l, proc, s.voice).says)
	_, wasShy := s.known.recall()
	got, err := s.greet(l, o, nil, func() (hello, error) { return greetPipes(ctx, l, s.known) })
	if _, shy := s.known.recall(); err != nil && shy && !wasShy {
		return l, err
	}
	return got, err
}

// hear keeps the stderr of our own process, for status. Those of others tell nothing of it.
func (s *server) hear(o owner, says *stderr) {
	if !o.own {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.says = says
}

func (s *server) newLink(o owner) *link {
	l := newLink(s.log, s.mask, s.ours, o.asks, s.relist.add)
	if most := s.config().MaxResult; most > 0 {
		l.most = most
	}
	return l
}

// greet makes a usable link of one that was opened, and sees to it that it is
// shut when it has ended.
func (s *server) greet(l *link, o owner, w *web, handshake func() (hello, error)) (*link, error) {
	if !s.links.run(func() {
		<-l.done
		l.port.shut(s.opts.hurry)
		s.mu.Lock()
		s.dropped += l.dropped.Load()
		s.mu.Unlock()
	}) {
		l.close()
		l.port.shut(s.opts.hurry)
		return nil, ourFault(kindLost, false, "it is being closed")
	}
	h, err := handshake()
	if err != nil {
		l.fail(err)
		return nil, err
	}
	l.said.Store(&h)
	l.polled = w != nil || h.modern() && h.tells != h.has
	if o.own || o.asks != "" {
		l.listens = true
		l.listen(w)
		if w != nil && !h.modern() {
			within(w.listening, listenPatience) // what it says or asks before is lost
		}
		if h.modern() && h.tells != 0 {
			within(l.heeds, heedPatience)
			l.listed.Store(true)
		}
	}
	return l, nil
}

// run keeps the server connected and its tools known, until it is to go.
func (s *server) run() {
	tries := retries{}
	if s.after != nil {
		s.linked(false, &Failure{Stage: StageConnect, Message: "it is being restarted", Since: time.Now()})
	}
	for s.ctx.Err() == nil {
		began := time.Now()
		s.begin(began)
		l, err := s.main.get(s.ctx, eager)
		stage := StageConnect
		if err == nil {
			select {
			case <-s.main.up: // that was this
			default:
			}
			stage = StageList
			if err = s.refresh(l, switchboard.AllKinds); err == nil {
				s.linked(true, nil) // before anybody decides by what it offers
				s.first()
				stage = StageServe
				began = time.Now()
				err = s.tend(l)
			}
			if s.ctx.Err() == nil { // else it ends because we want it to
				l.fail(err)
			}
		}
		if s.ctx.Err() != nil {
			return
		}
		if asFault(err).kind == kindGone && time.Since(began) > nudged {
			continue // a session was forgotten: no more than that
		}
		wait := tries.next(stage, err, time.Since(began))
		s.down(stage, err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-s.ctx.Done():
		case <-timer.C:
		case <-s.main.up: // a call could not wait
		}
		timer.Stop()
	}
}

// refresh asks for what the server offers of the kinds, and of those that are
// said to have changed meanwhile, and publishes it.
func (s *server) refresh(l *link, kinds switchboard.Kinds) error {
	defer s.listing()()
	kinds |= s.relist.take() // what was said until now is answered by this
	s.mu.Lock()
	was := s.offer
	said := s.notes
	s.mu.Unlock()
	if was == nil {
		was = &switchboard.Offer{}
	}
	offer, now, failed, err := l.offers(s.ctx, kinds, was, said)
	if err != nil {
		s.relist.keep(kinds)
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
	s.state, s.hello, s.notes, s.failure, s.failed, s.next = StateReady, *h, now, nil, 0, time.Time{}
	s.mu.Unlock()
	s.lacking = failed
	if note := now.String(); note != "" && now != said {
		s.log.Warn("not all that a server offers is known", "note", note)
	}
	if changed {
		s.moved()
	}
	if changed && s.opts.OnAnswer != nil {
		s.opts.OnAnswer(s.id)
	}
	if other && s.opts.OnOffer != nil {
		s.opts.OnOffer(s.id)
	}
	return nil
}

// tend waits for the link's end, and asks for what the server offers again when
// that has changed.
func (s *server) tend(l *link) error {
	var last time.Time // that it was asked again
	fails := 0
	poll := time.NewTimer(pollEvery)
	defer poll.Stop()
	for {
		kinds := switchboard.Kinds(0)
		var polled <-chan time.Time
		if l.polled || fails > 0 || s.lacking != 0 {
			polled = poll.C
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-l.done:
			return l.failure()
		case <-polled:
			kinds = switchboard.AllKinds
		case <-s.relist.ready:
			if sleep(s.ctx, max(relistQuiet, relistEvery-time.Since(last))) != nil {
				return s.ctx.Err()
			}
		}
		last = time.Now()
		err := s.refresh(l, kinds)
		switch {
		case err == nil:
			fails = 0
			poll.Reset(pollEvery)
			continue
		case l.failure() != nil:
			return l.failure()
		case saysNothing(err) || asFault(err).status >= http.StatusBadRequest:
			return err
		}
		// It is there, but its list is not. What it offered last still counts.
		fails++
		wait := backoff(fails)
		poll.Reset(wait)
		s.trouble(StageList, err)
	}
}

func (s *server) begin(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began, s.next = now, time.Time{}
}

// first notes that the first attempt is over.
func (s *server) first() {
	s.once.Do(func() {
		close(s.tried)
		s.moved()
	})
}

// starting reports whether the first attempt is still under way.
func (s *server) starting() bool {
	select {
	case <-s.tried:
		return false
	default:
		return true
	}
}

// unknown reports whether the server is starting and has no known offer.
func (s *server) unknown() bool {
	if !s.starting() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offer == nil
}

// down notes that the server is away, and when it is tried again.
func (s *server) down(stage Stage, err error, wait time.Duration) {
	s.trouble(stage, err)
	s.mu.Lock()
	s.state, s.next, s.began = StateRetrying, time.Now().Add(wait), time.Time{}
	if stage != StageServe {
		s.failed++
	}
	why := s.failure
	s.mu.Unlock()
	s.linked(false, why)
	s.first()
}

// trouble notes a failure. What the server offered last is kept, and marked.
func (s *server) trouble(stage Stage, err error) {
	remedy := asFault(err).remedy
	if stage == StageConnect && asFault(err).kind == kindSilent {
		remedy = waitRemedy(s.config().Command)
	}
	message, remedy := s.mask.text(err.Error()), s.mask.text(remedy)
	s.mu.Lock()
	repeated := s.failure != nil && s.failure.Stage == stage && s.failure.Message == message
	since := time.Now()
	if s.failure != nil {
		since = s.failure.Since
	}
	s.failure = &Failure{Stage: stage, Message: message, Since: since, Gone: asFault(err).gone, Remedy: remedy, Stderr: s.says.last()}
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
		s.moved()
	}
}

// probe asks the server whether it is there. Where it has forgotten the session, a new
// session is the answer.
func (s *server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	for again := false; ; again = true {
		l, err := s.main.get(ctx, patient)
		if err == nil && !again {
			err = l.ping(ctx)
		}
		if path := s.config().Probe.Path; err == nil && path != "" {
			return s.visit(ctx, path)
		}
		if err == nil || again || asFault(err).kind != kindGone {
			return err
		}
	}
}

// visit asks for a path at the server's address. It has no business with what the
// server knows us by, and is told none of it.
func (s *server) visit(ctx context.Context, path string) error {
	u, err := parseAddress(s.config().URL)
	if err != nil {
		return faultf(kindUnreachable, false, "%v", err)
	}
	at, err := u.Parse(path)
	if err != nil || at.Host != u.Host {
		return faultf(kindUnreachable, false, "no request can be made for %s", path)
	}
	at.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return faultf(kindUnreachable, false, "no request can be made for %s", path)
	}
	resp, err := s.http.client.Do(req)
	if err != nil {
		return faultf(kindUnreachable, false, "%s cannot be asked for: %s", path, s.mask.text(err.Error())).advised(err)
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
	if resp.StatusCode/100 != 2 {
		return faultf(kindBroken, true, "%s was answered with %s", path, resp.Status)
	}
	return nil
}

// drain closes the server once the calls under way have ended, or been cut off
// after the grace; 0 means that they are not.
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
	slots := s.slots
	s.slots = map[owner]*slot{}
	s.mu.Unlock()
	for _, sl := range slots {
		sl.close(true)
		if cut {
			sl.halt()
		}
	}
	<-s.links.close()
	<-ended
	s.http.close()
	if s.after != nil {
		<-s.after // what it has replaced has ended too
	}
}
