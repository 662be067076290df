package link

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An Era is one of the two generations of the protocol.
type Era string

// The eras. The era of a server is "" until it is known.
const (
	EraLegacy Era = "legacy" // begins with initialize, and has sessions
	EraModern Era = "modern" // has neither
)

// Time limits of the handshake.
const (
	// ProbeSilence is how long after a server on stdio has read server/discover it is also sent
	// initialize, if it has not answered.
	ProbeSilence = 2 * time.Second

	// looks is how often Switchboard looks during ProbeSilence whether the server has read the request.
	looks = 8

	// Over HTTP, a server that accepts the request is up. One that was silent and may be modern all the same has longer.
	probeTimeout     = 5 * time.Second
	lateProbeTimeout = 20 * time.Second
)

// An EraMemory remembers the era of a server across connections.
type EraMemory struct {
	mu  sync.Mutex
	era Era

	// sse says that a legacy server over HTTP uses the transport of 2024-11-05.
	sse bool

	// shy says that a process ended because server/discover was its first request.
	shy bool
}

// Get returns the era, or "" while it is unknown, and whether the process ends if server/discover is its
// first request.
func (m *EraMemory) Get() (era Era, shy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.era, m.shy
}

// setEra sets the era; "" means unknown.
func (m *EraMemory) setEra(e Era) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era, m.sse = e, false
}

// setSSE records a legacy server that uses HTTP with SSE.
func (m *EraMemory) setSSE() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era, m.sse = EraLegacy, true
}

// UsesSSE reports whether the server uses HTTP with SSE.
func (m *EraMemory) UsesSSE() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sse
}

// setShy records that a process ended because server/discover was its first request.
func (m *EraMemory) setShy() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shy = true
}

// Restore sets what an earlier process remembered.
func (m *EraMemory) Restore(era Era, sse, shy bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.era, m.sse, m.shy = era, sse, shy
}

// errorCode returns the code of a JSON-RPC error object, or 0.
func errorCode(object []byte) int {
	raw, _ := wire.Field(object, "code")
	n, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0
	}
	return n
}

// discover sends server/discover. The error is an *ExchangeError. The answer must name a modern
// version that we know. If the server refuses the version of the request, discover tries once more
// with one that the server names.
func discover(ctx context.Context, l *Link) (Hello, error) {
	result, err := l.request(ctx, wire.MethodDiscover, l.withMeta([]byte("{}"), wire.Latest))
	if v := newestModern(supportedVersions(err)); v != "" {
		if w, ok := l.port.(*httpPort); ok {
			w.endpoint.SetVersion(v)
		}
		result, err = l.request(ctx, wire.MethodDiscover, l.withMeta([]byte("{}"), v))
	}
	if err != nil {
		return Hello{}, err
	}
	raw, _ := wire.Field(result, "supportedVersions")
	version := newestModern(raw)
	capabilities, _ := wire.Field(result, "capabilities")
	if version == "" || len(capabilities) == 0 || capabilities[0] != '{' {
		return Hello{}, Errorf(KindProtocol, false, "its answer to server/discover names no version that we know")
	}
	meta, _ := wire.Field(result, "_meta")
	info, _ := wire.Field(meta, wire.MetaServerInfo)
	return parseHello(l.log, l.mask, version, capabilities, info, result), nil
}

// newestModern returns the newest modern version in a JSON list that we speak too, or "".
func newestModern(list []byte) (version string) {
	for v := range wire.Elements(list) {
		if s, ok := wire.String(v); ok && wire.Modern(s) && slices.Contains(wire.Versions, s) && s > version {
			version = s
		}
	}
	return version
}

// supportedVersions returns the list of versions in err if a server refused our version, or nil.
func supportedVersions(err error) []byte {
	if err == nil || AsError(err).code != wire.CodeUnsupportedVersion {
		return nil
	}
	data, _ := wire.Field(AsError(err).object, "data")
	list, _ := wire.Field(data, "supported")
	return list
}

// parseHello returns what a server said about itself in result, without deceptive characters and
// secrets.
func parseHello(log *slog.Logger, m *mask.Mask, version string, capabilities, info, result []byte) Hello {
	h := Hello{Version: version}
	if raw, _ := wire.Field(result, "instructions"); len(raw) > 0 && len(raw) <= maxInstructions {
		text, _ := wire.String(raw)
		clean, removed := scan.Clean(text)
		if removed > 0 {
			log.Warn("characters that deceive were removed from a server's instructions", "removed", removed)
			h.sentInstructions = m.Text(text)
		}
		h.instructions = m.Text(clean)
	}
	text := func(name string) string {
		raw, _ := wire.Field(info, name)
		s, _ := wire.String(raw)
		return strings.ToValidUTF8(s[:min(len(s), maxServerInfo)], "") // the cut may divide a character
	}
	h.Name, h.Release = text("name"), text("version")
	if len(capabilities) <= maxCapabilities && len(capabilities) > 0 && capabilities[0] == '{' {
		h.capabilities = capabilities
	}
	if beside, ok := wire.Field(result, switchboard.BlockName); ok && len(beside) <= maxCapabilities {
		h.capabilityBlock = beside
	}
	h.takesLogLevel = h.declares("logging")
	for k := range switchboard.NKinds {
		has, ok := wire.Field(h.capabilities, listKinds[k].capability)
		if changed, _ := wire.Field(has, "listChanged"); string(changed) == "true" {
			h.notifies = h.notifies.With(k)
		}
		if ok || k == switchboard.Tools { // some servers forget to declare tools
			h.offers = h.offers.With(k)
		}
	}
	return h
}

// initialize opens a legacy session.
func initialize(ctx context.Context, l *Link) (Hello, error) {
	result, err := l.request(ctx, wire.MethodInitialize, l.clientInfo.initializeParams(l.Questions.askable))
	if err != nil {
		return Hello{}, err
	}
	raw, _ := wire.Field(result, "protocolVersion")
	version, _ := wire.String(raw)
	if wire.Modern(version) || !slices.Contains(wire.Versions, version) {
		return Hello{}, Errorf(KindProtocol, false, "it answered initialize with version %.40q, which we do not know", version)
	}
	capabilities, _ := wire.Field(result, "capabilities")
	info, _ := wire.Field(result, "serverInfo")
	return parseHello(l.log, l.mask, version, capabilities, info, result), nil
}

// initializedNotification returns the notification that ends the handshake of a legacy session.
func initializedNotification() []byte {
	return wire.AppendNotification(nil, wire.MethodInitialized, nil)
}

// LeavesEraOpen reports whether err says nothing about the server's era, because no MCP server
// answered.
func LeavesEraOpen(err error) bool {
	f := AsError(err)
	switch f.Kind {
	case KindUnreachable, KindLost, KindBroken, KindLimited, KindUnauthorized, KindScope:
		return true
	case KindRefused:
		switch f.Status {
		case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout:
			return true
		}
		return f.Status/100 == 3
	}
	return false
}

// modernOnly reports whether only a modern server returns err, and err names no legacy version that
// we speak.
func modernOnly(err error) bool {
	f := AsError(err)
	switch f.code {
	case wire.CodeHeaderMismatch, wire.CodeMissingCapability, wire.CodeUnsupportedVersion:
	default:
		return false
	}
	for v := range wire.Elements(supportedVersions(err)) {
		if s, ok := wire.String(v); ok && !wire.Modern(s) && slices.Contains(wire.Versions, s) {
			return false
		}
	}
	return true
}

// greetHTTP does the handshake with a server over HTTP, in the era that the server speaks.
func greetHTTP(ctx context.Context, l *Link, w *httpPort, known *EraMemory) (Hello, error) {
	silent := false // no answer to server/discover in time
	if era, _ := known.Get(); era != EraLegacy {
		probe, cancel := context.WithTimeout(ctx, probeTimeout)
		h, err := discoverHTTP(probe, l, w, known)
		cancel()
		switch {
		case err == nil:
			return h, nil
		case LeavesEraOpen(err) || ctx.Err() != nil:
			return Hello{}, err
		case modernOnly(err):
			known.setEra(EraModern)
			return Hello{}, err
		}
		silent = AsError(err).Kind == KindSilent
	}
	w.endpoint.SetVersion("")
	h, err := initialize(ctx, l)
	if err != nil && !LeavesEraOpen(err) {
		if silent && AsError(err).Kind != KindSilent {
			// It answers, but not initialize: it may be a modern server that was slow to start.
			version, session := w.endpoint.State()
			w.endpoint.SetSession("")
			again, cancel := context.WithTimeout(ctx, lateProbeTimeout)
			defer cancel()
			if h, err := discoverHTTP(again, l, w, known); err == nil {
				return h, nil
			}
			w.endpoint.SetVersion(version)
			w.endpoint.SetSession(session)
		}
		known.setEra("") // the server may have changed: probe next time
	}
	if err != nil {
		return Hello{}, err
	}
	known.setEra(EraLegacy)
	w.endpoint.SetVersion(h.Version)
	return h, w.postAndWait(ctx, initializedNotification())
}

// discoverHTTP does the handshake with a modern server over HTTP.
func discoverHTTP(ctx context.Context, l *Link, w *httpPort, known *EraMemory) (Hello, error) {
	w.endpoint.SetVersion(wire.Latest)
	h, err := discover(ctx, l)
	if err == nil {
		known.setEra(EraModern)
		w.endpoint.SetVersion(h.Version)
	}
	return h, err
}

// greetStdio does the handshake with a child process, in the era that the server speaks.
func greetStdio(ctx context.Context, l *Link, known *EraMemory) (h Hello, err error) {
	era, shy := known.Get()
	var found Era
	switch {
	case era == EraModern:
		h, found, err = discoverFirst(ctx, l)
	case era == EraLegacy || shy:
		h, found, err = initializeFirst(ctx, l)
	default:
		h, found, err = probeEra(ctx, l)
		if err != nil && l.Failure() != nil {
			known.setShy()
		}
	}
	if err != nil {
		if era == EraModern && l.Failure() != nil {
			known.setShy() // a server that ends when it is probed may have replaced it
		}
		known.setEra("") // the era that we remembered may be wrong
		return Hello{}, err
	}
	known.setEra(found)
	if found == EraLegacy {
		l.port.Post(initializedNotification())
	}
	return h, nil
}

// initializeFirst does the handshake with a server that is legacy, or that ends if another request
// comes first.
func initializeFirst(ctx context.Context, l *Link) (Hello, Era, error) {
	h, err := initialize(ctx, l)
	if err == nil || AsError(err).code == 0 {
		return h, EraLegacy, err
	}
	// It answers, but not initialize: it may be modern.
	if h, again := discover(ctx, l); again == nil {
		return h, EraModern, nil
	}
	return Hello{}, "", err
}

// discoverFirst does the handshake with a server that was modern last time.
func discoverFirst(ctx context.Context, l *Link) (Hello, Era, error) {
	h, err := discover(ctx, l)
	if err == nil || AsError(err).code != wire.CodeMethodNotFound {
		return h, EraModern, err
	}
	h, err = initialize(ctx, l)
	return h, EraLegacy, err
}

// probeEra sends server/discover first. It sends initialize after an error, and after probeSilence,
// because some legacy servers do not answer unknown methods. If a server answers both, this
// connection is legacy: servers of both eras fix the era of a connection when they read initialize.
func probeEra(ctx context.Context, l *Link) (Hello, Era, error) {
	type answer struct {
		hello Hello
		err   error
	}
	ask := func(method func(context.Context, *Link) (Hello, error)) <-chan answer {
		answered := make(chan answer, 1)
		// A late answer must still find its request. The end of the link ends the request.
		ctx := context.WithoutCancel(ctx)
		go func() {
			h, err := method(ctx, l)
			answered <- answer{h, err}
		}()
		return answered
	}
	var modern, legacy *answer // nil until the answer is there
	discovered, initialized := ask(discover), (<-chan answer)(nil)
	look := time.NewTicker(ProbeSilence / looks)
	defer look.Stop()
	silences := 0 // how many looks in a row the server had read everything
	for {
		silent := false
		select {
		case a := <-discovered:
			modern = &a
			silences = 0 // measure the silence after initialize from now on
		case a := <-initialized:
			legacy = &a
		case <-look.C:
			if silences++; l.port.(*stdioPort).proc.HasUnread() {
				silences = 0
			}
			silent = silences >= looks
		case <-ctx.Done():
			switch {
			case modern != nil && modern.err == nil:
				return modern.hello, EraModern, nil
			case legacy != nil:
				return Hello{}, "", legacy.err
			}
			return Hello{}, "", unansweredError(initialized != nil)
		}
		discovers := modern != nil && modern.err == nil
		switch {
		case legacy != nil && legacy.err == nil:
			return legacy.hello, EraLegacy, nil
		case discovers && (initialized == nil || legacy != nil || silent):
			return modern.hello, EraModern, nil
		case modern != nil && legacy != nil:
			return Hello{}, "", legacy.err
		case initialized != nil: // wait for the answer to initialize, or for both
		case modern != nil && (LeavesEraOpen(modern.err) || modernOnly(modern.err)):
			return Hello{}, "", modern.err
		case modern != nil || silent:
			initialized = ask(initialize)
		}
	}
}

// unansweredError is the error if a child process does not answer the handshake.
func unansweredError(initialize bool) error {
	method := wire.MethodDiscover
	if initialize {
		method = wire.MethodInitialize
	}
	return Errorf(KindSilent, true, "no answer to %s in time", method)
}
