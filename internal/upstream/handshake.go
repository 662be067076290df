package upstream

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
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
	// A server on stdio that has read server/discover and does not answer it for so
	// long is also sent initialize.
	probeSilence = 2 * time.Second

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
	return l.newHello(version, capabilities, info, result), nil
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

func (l *link) newHello(version string, capabilities, info, result []byte) hello {
	h := hello{version: version}
	if raw, _ := wire.Field(result, "instructions"); len(raw) > 0 && len(raw) <= maxInstructions {
		text, _ := wire.String(raw)
		clean, removed := scan.Clean(text)
		if removed > 0 {
			l.log.Warn("characters that deceive were removed from a server's instructions", "removed", removed)
		}
		h.instructions = l.mask.text(clean)
	}
	text := func(name string) string {
		raw, _ := wire.Field(info, name)
		s, _ := wire.String(raw)
		return strings.ToValidUTF8(s[:min(len(s), maxServerInfo)], "") // the cut may go through a character
	}
	h.name, h.release = text("name"), text("version")
	if len(capabilities) <= maxCapabilities && len(capabilities) > 0 && capabilities[0] == '{' {
		h.capabilities = capabilities
	}
	if beside, ok := wire.Field(result, switchboard.BlockName); ok && len(beside) <= maxCapabilities {
		h.beside = beside
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
	return l.newHello(version, capabilities, info, result), nil
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
		h, found, err = l.discoverFirst(ctx)
	case era == EraLegacy || shy:
		h, found, err = l.initializeFirst(ctx)
	default:
		h, found, err = l.probe(ctx)
		if err != nil && l.failure() != nil {
			known.shun()
		}
	}
	if err != nil {
		if era == EraModern && l.failure() != nil {
			known.shun() // it may have been replaced by one that ends when it is asked
		}
		known.learn("") // what is remembered may not hold any more
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

// discoverFirst is for a server that was modern when it was asked last.
func (l *link) discoverFirst(ctx context.Context) (hello, Era, error) {
	h, err := l.discover(ctx)
	if err == nil || asFault(err).code != wire.CodeMethodNotFound {
		return h, EraModern, err
	}
	h, err = l.initialize(ctx)
	return h, EraLegacy, err
}

// probe asks server/discover first. It sends initialize after an error, and after
// probeSilence: some legacy servers do not answer a method that they do not know. A
// server that answers both is legacy on this connection, since servers of both eras
// fix the era of a connection when they read initialize.
func (l *link) probe(ctx context.Context) (hello, Era, error) {
	type answer struct {
		hello hello
		err   error
	}
	ask := func(method func(context.Context) (hello, error)) <-chan answer {
		answered := make(chan answer, 1)
		// An answer that comes after the other one must still find its request: the
		// link's end ends that.
		ctx := context.WithoutCancel(ctx)
		go func() {
			h, err := method(ctx)
			answered <- answer{h, err}
		}()
		return answered
	}
	var modern, legacy *answer // nil until they are there
	discovered, initialized := ask(l.discover), (<-chan answer)(nil)
	silence := time.NewTicker(probeSilence)
	defer silence.Stop()
	for {
		silent := false
		select {
		case a := <-discovered:
			modern = &a
			silence.Reset(probeSilence) // from now on for the answer to initialize
		case a := <-initialized:
			legacy = &a
		case <-silence.C:
			silent = !l.port.(*stdio).proc.hasUnread()
		case <-ctx.Done():
			switch {
			case modern != nil && modern.err == nil:
				return modern.hello, EraModern, nil
			case legacy != nil:
				return hello{}, "", legacy.err
			}
			return hello{}, "", l.unanswered(initialized != nil)
		}
		discovers := modern != nil && modern.err == nil
		switch {
		case legacy != nil && legacy.err == nil:
			return legacy.hello, EraLegacy, nil
		case discovers && (initialized == nil || legacy != nil || silent):
			return modern.hello, EraModern, nil
		case modern != nil && legacy != nil:
			return hello{}, "", legacy.err
		case initialized != nil: // the answer to it, or to both, is still to come
		case modern != nil && (saysNothing(modern.err) || modernOnly(modern.err)):
			return hello{}, "", modern.err
		case modern != nil || silent:
			initialized = ask(l.initialize)
		}
	}
}

// unanswered is the fault of a child that answers nothing by which the link is made.
func (l *link) unanswered(initialize bool) error {
	if l.port.(*stdio).proc.hasUnread() {
		return faultf(kindSilent, false, "its program has not read its first message within %v; it may still be downloading a package: run its command by hand once, to see what it waits for", startPatience)
	}
	method := wire.MethodDiscover
	if initialize {
		method = wire.MethodInitialize
	}
	return faultf(kindSilent, true, "no answer to %s in time", method)
}
