package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// stdioFake returns the configuration of a fake server on stdio.
func stdioFake(id, kind string, env ...string) switchboard.Server {
	s := switchboard.Server{
		ID: switchboard.ServerID(id), Transport: switchboard.TransportStdio,
		Command: []string{os.Args[0]}, Env: map[string]switchboard.Secret{
			fakeEnv:  switchboard.NewSecret(kind),
			"GORACE": switchboard.NewSecret("atexit_sleep_ms=0"), // otherwise it sleeps a second when it ends
		},
		Share: switchboard.ShareAll,
	}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		s.Env[name] = switchboard.NewSecret(value)
	}
	return s
}

// openFleet returns a fleet of the servers that is closed with the test.
func openFleet(t *testing.T, o Options, servers ...switchboard.Server) *Fleet {
	t.Helper()
	f := New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		f.Close(ctx)
	})
	f.Set(servers)
	return f
}

// readyFleet returns a fleet after all its servers are ready.
func readyFleet(t *testing.T, o Options, servers ...switchboard.Server) *Fleet {
	t.Helper()
	f := openFleet(t, o, servers...)
	for _, s := range servers {
		awaitState(t, f, s.ID, StateReady)
	}
	return f
}

func status(t *testing.T, f *Fleet, id switchboard.ServerID) ServerStatus {
	t.Helper()
	for _, s := range f.Status() {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("no status of %s", id)
	return ServerStatus{}
}

func awaitState(t *testing.T, f *Fleet, id switchboard.ServerID, want ServerState) {
	t.Helper()
	wait.UntilNil(t, string(id)+" is "+string(want), func() error {
		if s := status(t, f, id); s.State != want {
			return fmt.Errorf("it is %s; %+v", s.State, s.LastFailure)
		}
		return nil
	})
}

// echoCall returns a call of the tool echo with the arguments.
func echoCall(server, arguments string) *switchboard.Call {
	return &switchboard.Call{
		Principal: switchboard.Principal{Tenant: "acme", ID: "ann"},
		Server:    switchboard.ServerID(server),
		Method:    "tools/call",
		Target:    "echo",
		Tool:      &switchboard.Tool{ID: switchboard.ToolID{Server: switchboard.ServerID(server), Name: "echo"}, Definition: []byte(tool("echo"))},
		Params:    []byte(`{"name":"as_the_client_calls_it","arguments":` + arguments + `}`),
	}
}

// fields decodes an object of a test.
func fields(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%v: %.200s", err, data)
	}
	return m
}

// wantCode checks that err is a refusal with the code.
func wantCode(t *testing.T, err error, want switchboard.Code) {
	t.Helper()
	_ = wantRefusal(t, err, want)
}

// wantRefusal checks that err is a refusal with the code, and returns it.
func wantRefusal(t *testing.T, err error, want switchboard.Code) *switchboard.Error {
	t.Helper()
	e, ok := errors.AsType[*switchboard.Error](err)
	if !ok || e.Code != want {
		t.Fatalf("error %v, want %s", err, want)
	}
	return e
}

func TestAServerOfEitherEraIsListedAndCalled(t *testing.T) {
	for _, kind := range []string{"legacy", "modern", "exits-when-probed", "silent-when-probed", "empty-discover", "banner"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := readyFleet(t, Options{}, stdioFake("one", kind))
			offers := f.Offers()
			if len(offers) != 1 || len(offers[0].Tools) != 2 || string(offers[0].Tools[0]) != tool("echo") || offers[0].Stale {
				t.Fatalf("offers %+v", offers)
			}
			want, version := link.EraLegacy, "1"
			if kind == "modern" {
				want, version = link.EraModern, "2"
			}
			if offers[0].Version != version {
				t.Errorf("version %q, want %q", offers[0].Version, version)
			}
			if s := status(t, f, "one"); s.Era != want || s.Name != "fake" || s.Tools != 2 {
				t.Errorf("status %+v", s)
			}
			result, err := f.Call(t.Context(), echoCall("one", `{"n": 12345678901234567890}`))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Contains(result.JSON, []byte(`"name":"echo","arguments":{"n": 12345678901234567890}`)) {
				t.Errorf("the server got %s", result.JSON)
			}
		})
	}
}

func TestTenBadServersDoNotAffectThirtyGoodOnes(t *testing.T) {
	var servers []switchboard.Server
	bad := map[switchboard.ServerID]string{}
	add := func(n int, kind, says string) {
		for i := range n {
			s := stdioFake(fmt.Sprintf("%s-%d", kind, i), kind)
			servers = append(servers, s)
			if says != "" {
				bad[s.ID] = says
			}
		}
	}
	add(5, "hang", "has not answered yet")
	add(3, "exit", `exit status 3), its last words: no configuration \u001b[31mfound\u0007`)
	add(1, "flood", "not messages, without end")
	add(1, "endless", "a line without end")
	add(15, "legacy", "")
	add(15, "modern", "")

	const deadline = 15 * time.Second // generous, because the machine may be busy
	f := openFleet(t, Options{StartDeadline: deadline}, servers...)
	began := time.Now()
	good := func() int {
		n := 0
		for _, s := range f.Status() {
			if s.State == StateReady {
				n++
			}
		}
		return n
	}
	wait.Until(t, "thirty are ready", func() bool { return good() == 30 })
	t.Logf("thirty of forty were ready after %s", time.Since(began).Round(time.Millisecond))
	f.Ready(t.Context())
	if took := time.Since(began); took > deadline+2*wait.Bound {
		t.Errorf("Ready took %s", took)
	}
	if n := good(); n != 30 {
		t.Errorf("%d are ready at the deadline", n)
	}
	if n := len(f.Offers()); n != 30 {
		t.Errorf("%d offers", n)
	}
	for _, s := range f.Status() {
		says, isBad := bad[s.ID]
		switch {
		case !isBad && s.LastFailure != nil:
			t.Errorf("%s: %+v", s.ID, s.LastFailure)
		case isBad && s.LastFailure == nil:
			t.Errorf("%s has no failure", s.ID)
		case isBad && s.State == StateReady:
			t.Errorf("%s is ready", s.ID)
		}
		if isBad {
			wait.Until(t, "what is wrong with "+string(s.ID)+" is said to be: "+says, func() bool {
				e := status(t, f, s.ID).LastFailure
				return e != nil && strings.Contains(e.Message, says)
			})
		}
	}
	if !slices.IsSortedFunc(f.Status(), func(a, b ServerStatus) int { return strings.Compare(string(a.ID), string(b.ID)) }) {
		t.Error("the status is not sorted")
	}
	if _, err := f.Call(t.Context(), echoCall("legacy-3", "{}")); err != nil {
		t.Errorf("a call among them: %v", err)
	}
}

func TestSetKeepsUnchangedServersAndLetsCallsEnd(t *testing.T) {
	same, other, gone := stdioFake("same", "calls"), stdioFake("other", "calls"), stdioFake("gone", "calls")
	f := readyFleet(t, Options{}, same, other, gone)
	before := f.Status()
	ended := startAsync(func() error {
		_, err := f.Call(t.Context(), echoCall("gone", `{"do":"wait"}`))
		return err
	})
	wait.Until(t, "the call is under way", func() bool { return pendingCount(f, "gone") == 1 })

	same.Timeout, same.Class = time.Minute, "free" // needs no new process
	other = stdioFake("other", "calls", "X=y")     // needs a new process
	f.Set([]switchboard.Server{other, same})
	if offers := f.Offers(); len(offers) != 2 || !offers[0].Stale || offers[1].Stale || len(offers[0].Tools) != 2 {
		t.Errorf("offers during a restart: %d, stale %v and %v", len(offers), offers[0].Stale, offers[1].Stale)
	}
	awaitState(t, f, "other", StateReady)
	if now := status(t, f, "same"); now.PIDs[0] != before[2].PIDs[0] {
		t.Error("an unchanged server was restarted")
	}
	if now := status(t, f, "other"); now.PIDs[0] == before[1].PIDs[0] {
		t.Error("a changed server was not restarted")
	}
	_, err := f.Call(t.Context(), echoCall("gone", `{}`))
	wantCode(t, err, switchboard.CodeServerUnknown)
	if err := <-ended; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	assertGone(t, before[0].PIDs[0])
	assertGone(t, before[1].PIDs[0])
}

func TestAServerThatAnnouncesChangedToolsIsListedAgain(t *testing.T) {
	for _, kind := range []string{"grows", "grows-modern"} {
		t.Run(kind, func(t *testing.T) {
			var changes atomic.Int32
			f := readyFleet(t, Options{OnChange: func() { changes.Add(1) }}, stdioFake("one", kind))
			wait.Until(t, "the first change is told", func() bool { return changes.Load() >= 1 && len(f.Offers()) == 1 })
			before, began := changes.Load(), time.Now()
			const storm = 500
			if _, err := f.Call(t.Context(), echoCall("one", fmt.Sprintf(`{"times":%d}`, storm))); err != nil {
				t.Fatal(err)
			}
			wait.Until(t, "the last change is known", func() bool {
				return bytes.Contains(f.Offers()[0].Tools[0], fmt.Appendf(nil, `"t-%d"`, storm))
			})
			wait.Until(t, "the change is told", func() bool { return changes.Load() > before })
			result, err := f.Call(t.Context(), echoCall("one", `{"times":0}`))
			if err != nil {
				t.Fatal(err)
			}
			most := 4 + time.Since(began)/relistInterval
			if lists := fields(t, result.JSON)["lists"].(float64); lists > float64(most) {
				t.Errorf("%d changes caused %v listings", storm, lists)
			}
		})
	}
}

func TestPagesOfToolsEndWhateverTheServerSays(t *testing.T) {
	for _, tt := range []struct {
		pages string
		tools int
		note  string
		fails string
	}{
		{"three", 3, "", ""},
		{"same", 2, "starts over", ""},
		{"alternating", 3, "starts over", ""},
		{"always-new", link.MaxPages, "1000 pages", ""},
		{"empty", 2, "starts over", ""},
		{"many", link.MaxItems, "after 10000", ""},
		{"large", 2, "33554432 bytes", ""},
		{"number", 0, "", "cursor that is not a string"},
		{"none", 0, "", "no list of tools"},
	} {
		t.Run(tt.pages, func(t *testing.T) {
			f := openFleet(t, Options{StartDeadline: 2 * wait.Bound}, stdioFake("one", "list", "PAGES="+tt.pages))
			f.Ready(t.Context())
			s := status(t, f, "one")
			if s.State == StateStarting {
				wait.Late(t, "it is starting: %+v", s.LastFailure)
			}
			if tt.fails != "" {
				if s.LastFailure == nil || s.LastFailure.Stage != StageList || !strings.Contains(s.LastFailure.Message, tt.fails) {
					t.Errorf("failure %+v, want %q", s.LastFailure, tt.fails)
				}
				return
			}
			if s.State != StateReady || s.Tools != tt.tools || !strings.Contains(s.Note, tt.note) || (s.Note == "") != (tt.note == "") {
				t.Errorf("%s with %d tools, note %q; want %d, %q; %+v", s.State, s.Tools, s.Note, tt.tools, tt.note, s.LastFailure)
			}
		})
	}
}

func TestAServerThatEndsWhenProbedCostsOneRestartEver(t *testing.T) {
	t.Parallel()
	record := t.TempDir() + "/starts"
	f := readyFleet(t, Options{}, stdioFake("one", "exits-when-probed-and-called", "RECORD="+record))
	for i := range 3 {
		starts, err := os.ReadFile(record)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytes.Count(starts, []byte("\n")), i+2; got != want {
			t.Fatalf("started %d times, want %d", got, want)
		}
		if _, err := f.Call(t.Context(), echoCall("one", "{}")); err == nil {
			t.Fatal("no error")
		}
		wait.Until(t, "it is back", func() bool { s := status(t, f, "one"); return s.State == StateReady && s.Restarts == i+1 })
	}
}

func TestAFloodIsCutAndOtherServersDoNotNotice(t *testing.T) {
	f := readyFleet(t, Options{}, stdioFake("one", "calls"), stdioFake("two", "calls"))
	// One server hangs with as many calls as it may have, and one floods. Neither affects the
	// other.
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() { _, _ = f.Call(ctx, echoCall("one", `{"do":"never"}`)) })
	}
	wait.Until(t, "the calls are under way", func() bool { return pendingCount(f, "one") == 200 })
	for _, what := range []string{"flood-notifications", "flood-answers", "flood-requests"} {
		_, err := f.Call(t.Context(), echoCall("one", `{"do":"`+what+`"}`))
		e := wantRefusal(t, err, switchboard.CodeOutcomeUnknown)
		if !strings.Contains(e.Error(), "without end") && !strings.Contains(e.Error(), "does not read") {
			t.Errorf("%s: %v", what, e)
		}
		took := time.Now()
		if _, err := f.Call(t.Context(), echoCall("two", "{}")); err != nil || time.Since(took) > 10*time.Second {
			t.Errorf("the other server took %s: %v", time.Since(took), err)
		}
	}
	cancel()
	wg.Wait()
}

func TestTheLastOfferIsKeptAsStaleWhileAServerIsAway(t *testing.T) {
	dir := t.TempDir()
	f := readyFleet(t, Options{}, stdioFake("one", "once", "RECORD="+dir+"/ran"))
	if _, err := f.Call(t.Context(), doCall("die")); err == nil {
		t.Fatal("no error")
	}
	awaitState(t, f, "one", StateRetrying)
	wait.Until(t, "it has failed to start again", func() bool {
		s := status(t, f, "one")
		return s.LastFailure != nil && s.LastFailure.Stage == StageConnect && s.State == StateRetrying
	})
	offers := f.Offers()
	if len(offers) != 1 || !offers[0].Stale || len(offers[0].Tools) != 2 {
		t.Errorf("offers %+v", offers)
	}
	if s := status(t, f, "one"); !s.Stale || s.NextAttempt.IsZero() || s.Tools != 2 {
		t.Errorf("status %+v", s)
	}
}

// A server whose network changes gets new connections: those that are open lead through the proxy of before.
func TestAChangedNetworkNeedsNewConnections(t *testing.T) {
	was := switchboard.Server{Transport: switchboard.TransportHTTP, URL: "https://mcp.example.com", Network: switchboard.Network{
		Proxy: switchboard.NewSecret("http://me:one@proxy.example.com"), CA: "ca", Cert: "cert", Key: "key", ServerName: "name",
	}}
	for name, change := range map[string]func(*switchboard.Network){
		"nothing":         func(n *switchboard.Network) { n.Proxy = switchboard.NewSecret("http://me:one@proxy.example.com") },
		"the password":    func(n *switchboard.Network) { n.Proxy = switchboard.NewSecret("http://me:two@proxy.example.com") },
		"no proxy":        func(n *switchboard.Network) { n.Proxy = switchboard.Secret{} },
		"the authority":   func(n *switchboard.Network) { n.CA = "" },
		"the certificate": func(n *switchboard.Network) { n.Cert = "other" },
		"the key":         func(n *switchboard.Network) { n.Key = "other" },
		"the name":        func(n *switchboard.Network) { n.ServerName = "other" },
	} {
		now := was
		change(&now.Network)
		if same := sameConnection(&was, &now); same != (name == "nothing") {
			t.Errorf("%s has changed: the same connection: %v", name, same)
		}
	}
}
