package upstream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An Era is which of the two protocols a server speaks.
type Era string

// The eras. A server's is "" until it is known.
const (
	EraLegacy Era = "legacy" // opens with initialize, and keeps sessions
	EraModern Era = "modern" // neither
)

// How long to wait for a server to answer.
const (
	// A server on stdio that does not answer server/discover so long is also
	// sent initialize. It may just be slow to start, so that the first of the
	// two that it answers well decides.
	probeSilence = 2 * time.Second

	// Where it answers initialize well, this is how much later it may answer the other.
	probeMoment = 500 * time.Millisecond

	// Over HTTP a server is up when it takes the request.
	probePatience = 5 * time.Second

	// A first start may have to fetch a package.
	startPatience = 60 * time.Second
)

// A memory is what is known of a server's era. It outlives connections.
type memory struct {
	mu  sync.Mutex
	era Era

	// sse says that a legacy server over HTTP speaks by the transport of
	// 2024-11-05.
	sse bool

	// shy says that a process ended when it was asked server/discover before
	// anything else.
	shy bool
}

func (m *memory) recall() (Era, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.era, m.shy
}

func (m *memory) learn(e Era) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era, m.sse = e, false
}

func (m *memory) learnSSE() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era, m.sse = EraLegacy, true
}

func (m *memory) overSSE() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sse
}

func (m *memory) shun() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shy = true
}

// errorCode returns the code of an error object, or 0.
func errorCode(object []byte) int {
	raw, _ := wire.Field(object, "code")
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return n
}

// discover asks server/discover. It is a fault when the answer does not say that
// the server speaks a modern version that we know. A server that refuses the
// version of the question is asked once more, in one that it names.
func (l *link) discover(ctx context.Context) (hello, error) {
	result, err := l.ask(ctx, wire.MethodDiscover, l.params([]byte("{}"), wire.Latest))
	if v := newest(supported(err)); v != "" {
		if w, ok := l.port.(*web); ok {
			w.speak(v)
		}
		result, err = l.ask(ctx, wire.MethodDiscover, l.params([]byte("{}"), v))
	}
	if err != nil {
		return hello{}, err
	}
	raw, _ := wire.Field(result, "supportedVersions")
	version := newest(raw)
	capabilities, _ := wire.Field(result, "capabilities")
	if version == "" || len(capabilities) == 0 || capabilities[0] != '{' {
		return hello{}, faultf(kindProtocol, false, "its answer to server/discover is none of a version that we know")
	}
	meta, _ := wire.Field(result, "_meta")
	info, _ := wire.Field(meta, wire.MetaServerInfo)
	return newHello(version, capabilities, info), nil
}

// newest returns the newest modern version in a list that we speak too, or "".
func newest(list []byte) (version string) {
	for v := range wire.Elements(list) {
		if s, ok := wire.String(v); ok && wire.Modern(s) && slices.Contains(wire.Versions, s) && s > version {
			version = s
		}
	}
	return version
}

// supported is the list of versions in err, where that is a server's error that
// it does not speak ours.
func supported(err error) []byte {
	if err == nil || asFault(err).code != wire.CodeUnsupportedVersion {
		return nil
	}
	data, _ := wire.Field(asFault(err).object, "data")
	list, _ := wire.Field(data, "supported")
	return list
}

func newHello(version string, capabilities, info []byte) hello {
	h := hello{version: version}
	text := func(name string) string {
		raw, _ := wire.Field(info, name)
		s, _ := wire.String(raw)
		return strings.ToValidUTF8(s[:min(len(s), maxServerInfo)], "") // the cut may go through a character
	}
	h.name, h.release = text("name"), text("version")
	if len(capabilities) <= maxCapabilities && len(capabilities) > 0 && capabilities[0] == '{' {
		h.capabilities = capabilities
	}
	h.logging = h.declares("logging")
	for k := range switchboard.NKinds {
		has, ok := wire.Field(h.capabilities, shelves[k].capability)
		if changed, _ := wire.Field(has, "listChanged"); string(changed) == "true" {
			h.tells = h.tells.With(k)
		}
		if ok || k == switchboard.Tools { // which some forget to declare
			h.has = h.has.With(k)
		}
	}
	return h
}

// initialize opens a legacy session.
func (l *link) initialize(ctx context.Context) (hello, error) {
	result, err := l.ask(ctx, wire.MethodInitialize, l.ours.initializeParams(l.asks))
	if err != nil {
		return hello{}, err
	}
	raw, _ := wire.Field(result, "protocolVersion")
	version, _ := wire.String(raw)
	if wire.Modern(version) || !slices.Contains(wire.Versions, version) {
		return hello{}, faultf(kindProtocol, false, "it answered initialize with version %.40q, which is none that we know", version)
	}
	capabilities, _ := wire.Field(result, "capabilities")
	info, _ := wire.Field(result, "serverInfo")
	return newHello(version, capabilities, info), nil
}

// initialized is the notification that ends the handshake of a legacy session.
func initialized() []byte { return wire.AppendNotification(nil, wire.MethodInitialized, nil) }

// saysNothing reports whether err tells nothing of the server's era, because
// what answered, if anything did, was not yet the protocol.
func saysNothing(err error) bool {
	f := asFault(err)
	switch f.kind {
	case kindUnreachable, kindLost, kindBroken, kindLimited:
		return true
	case kindRefused:
		switch f.status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout:
			return true
		}
		return f.status/100 == 3
	}
	return false
}

// modernOnly reports whether err is one that only a modern server makes, and
// does not name a legacy version that we could speak instead.
func modernOnly(err error) bool {
	f := asFault(err)
	switch f.code {
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
	default:
		return false
	}
	for v := range wire.Elements(supported(err)) {
		if s, ok := wire.String(v); ok && !wire.Modern(s) && slices.Contains(wire.Versions, s) {
			return false
		}
	}
	return true
}

// greetWeb finds out how a server over HTTP wants to be spoken to.
func greetWeb(ctx context.Context, l *link, w *web, known *memory) (hello, error) {
	if era, _ := known.recall(); era != EraLegacy {
		w.speak(wire.Latest)
		probe, cancel := context.WithTimeout(ctx, probePatience)
		h, err := l.discover(probe)
		cancel()
		switch {
		case err == nil:
			known.learn(EraModern)
			w.speak(h.version)
			return h, nil
		case saysNothing(err) || ctx.Err() != nil:
			return hello{}, err
		case modernOnly(err):
			known.learn(EraModern)
			return hello{}, err
		}
	}
	w.speak("")
	h, err := l.initialize(ctx)
	if err != nil {
		if !saysNothing(err) {
			known.learn("") // it may have changed: probe next time
		}
		return hello{}, err
	}
	known.learn(EraLegacy)
	w.speak(h.version)
	return h, w.send(ctx, initialized())
}

// greetPipes finds out the same of a child.
func greetPipes(ctx context.Context, l *link, known *memory) (h hello, err error) {
	era, shy := known.recall()
	var found Era
	switch {
	case era == EraModern:
		found = EraModern
		h, err = l.discover(ctx)
	case era == EraLegacy || shy:
		h, found, err = l.initializeFirst(ctx)
	default:
		h, found, err = l.probe(ctx)
		if err != nil && l.failure() != nil {
			known.shun()
		}
	}
	if err != nil {
		if asFault(err).code != 0 || asFault(err).kind == kindProtocol {
			known.learn("") // it answers, but not as it used to
		}
		return hello{}, err
	}
	known.learn(found)
	if found == EraLegacy {
		l.port.tell(initialized())
	}
	return h, nil
}

// initializeFirst is for a server that is legacy, or ends when it is asked for
// anything else first.
func (l *link) initializeFirst(ctx context.Context) (hello, Era, error) {
	h, err := l.initialize(ctx)
	if err == nil || asFault(err).code == 0 {
		return h, EraLegacy, err
	}
	// It answers, but not this: is it modern after all?
	if h, again := l.discover(ctx); again == nil {
		return h, EraModern, nil
	}
	return hello{}, "", err
}

// probe asks server/discover first, and initialize when that is answered with an
// error or not at all. A server that is slow to start is not taken for one
// that keeps silent: whichever it answers well decides, and where it answers both within
// a moment, it is modern.
func (l *link) probe(ctx context.Context) (hello, Era, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		hello hello
		era   Era
		err   error
	}
	answers := make(chan answer, 2)
	open := func() {
		h, err := l.initialize(ctx)
		answers <- answer{h, EraLegacy, err}
	}
	go func() {
		h, err := l.discover(ctx)
		answers <- answer{h, EraModern, err}
	}()
	waiting, opened := 1, false
	silence := time.NewTimer(probeSilence)
	defer silence.Stop()
	var last error
	for waiting > 0 {
		var a answer
		select {
		case a = <-answers:
			waiting--
			switch {
			case a.err == nil && a.era == EraLegacy && waiting > 0:
				late := time.AfterFunc(probeMoment, cancel)
				other := <-answers
				late.Stop()
				if other.err == nil {
					a = other
				}
				return a.hello, a.era, nil
			case a.err == nil:
				return a.hello, a.era, nil
			case last == nil || a.era == EraLegacy:
				last = a.err
			}
			if opened || saysNothing(a.err) || modernOnly(a.err) {
				continue
			}
		case <-silence.C:
			if opened {
				continue
			}
		}
		opened = true
		waiting++
		go open()
	}
	return hello{}, "", last
}
