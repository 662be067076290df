package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/mask"
	"github.com/summit-switchboard/switchboard/internal/upstream/task"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// TestCallParamsChangeNothingElse holds for any arguments, members and _meta: everything arrives
// unchanged, except what is ours or the protocol's.
func TestCallParamsChangeNothingElse(t *testing.T) {
	l := &link{clientInfo: newClientInfo("n", "v")}
	key := rapid.SampledFrom([]string{"traceparent", "progressToken", "com.example/x", "io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/new", "io.switchboard/run", "a b"})
	value := rapid.SampledFrom([]string{`1`, `1.0`, `"s"`, `{"a":[1e400,{}]}`, `null`, `12345678901234567890`})
	rapid.Check(t, func(t *rapid.T) {
		object := func(keys *rapid.Generator[string], label string) string {
			var b strings.Builder
			seen := map[string]bool{}
			for _, k := range rapid.SliceOfN(keys, 0, 5).Draw(t, label) {
				if seen[k] {
					continue
				}
				if seen[k] = true; len(seen) > 1 {
					b.WriteString(", ")
				}
				fmt.Fprintf(&b, "%q: %s", k, value.Draw(t, "value"))
			}
			return "{" + b.String() + "}"
		}
		meta := object(key, "meta")
		if rapid.Bool().Draw(t, "no meta") {
			meta = "null"
		}
		params := fmt.Sprintf(`{"x":1.0,"name":"shown","_meta":%s, "arguments":%s }`, meta, object(rapid.String(), "arguments"))
		if !json.Valid([]byte(params)) {
			t.Skip("names that Go quotes as JSON does not")
		}
		level := rapid.SampledFrom([]string{"", "debug"}).Draw(t, "level")
		version := rapid.SampledFrom([]string{wire.LatestLegacy, wire.Latest}).Draw(t, "version")
		l.greeting.Store(&serverHello{version: version})
		c := &switchboard.Call{Params: []byte(params), LogLevel: level, Method: wire.MethodToolsCall, Target: `own "name"`}
		got, token := l.clientInfo.callParams(l.hello(), c, c.Params, []byte("42"))

		was, is := map[string]string{}, map[string]string{}
		members := func(into map[string]string, obj []byte) {
			for k, v := range wire.Members(obj) {
				into[k] = string(v)
			}
		}
		members(was, []byte(params))
		members(is, got)
		if is["name"] != `"own \"name\""` {
			t.Fatalf("name %s", is["name"])
		}
		for k, v := range was {
			if k != "name" && k != "_meta" && is[k] != v {
				t.Fatalf("%s is %s, was %s", k, is[k], v)
			}
		}
		wasMeta, isMeta := map[string]string{}, map[string]string{}
		members(wasMeta, []byte(was["_meta"]))
		members(isMeta, []byte(is["_meta"]))
		if string(token) != wasMeta["progressToken"] {
			t.Fatalf("token %s, was %s", token, wasMeta["progressToken"])
		}
		want := map[string]string{}
		for k, v := range wasMeta {
			switch {
			case k == "progressToken":
				want[k] = "42"
			case !strings.HasPrefix(k, "io."):
				want[k] = v
			}
		}
		if wire.Modern(version) {
			want[wire.MetaProtocolVersion], want[wire.MetaClientCapabilities] = `"2026-07-28"`, `{}`
			want[wire.MetaClientInfo] = `{"name":"n","version":"v"}`
			if level != "" {
				want[wire.MetaLogLevel] = `"debug"`
			}
		}
		if fmt.Sprint(isMeta) != fmt.Sprint(want) {
			t.Fatalf("_meta %v, want %v", isMeta, want)
		}
	})
}

func TestAnEmptyMetaIsPassedOnAndAMetaOfOnlyOurMembersIsNot(t *testing.T) {
	l := &link{}
	l.greeting.Store(&serverHello{version: wire.LatestLegacy})
	for in, want := range map[string]string{
		`{"_meta":{}}`: `{"_meta":{},"name":"n"}`,
		`{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`: `{"name":"n"}`,
		`{"name":"x"}`: `{"name":"n"}`,
	} {
		c := &switchboard.Call{Params: []byte(in), Method: wire.MethodToolsCall, Target: "n"}
		if got, _ := l.clientInfo.callParams(l.hello(), c, c.Params, nil); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// A deafPort accepts requests and does nothing.
type deafPort struct{}

func (deafPort) start(*pendingRequest)         {}
func (deafPort) startBlocking(*pendingRequest) {}
func (deafPort) cancel(*pendingRequest, bool)  {}
func (deafPort) post([]byte)                   {}
func (deafPort) shutDown(<-chan struct{})      {}

func TestAServerThatIsGoneIsLookedForAndFoundSoonAfterItIsBack(t *testing.T) {
	gone, refused := exchangeErrorf(kindLost, true, "it ended"), exchangeErrorf(kindUnreachable, false, "no")
	for range 20 {
		r := retrySchedule{}
		if d := r.nextWait(StageConnect, refused, 0); d < task.FirstDelay/2 {
			t.Errorf("a server that was never up is retried after %s", d)
		}
		away := r.nextWait(StageServe, gone, time.Hour)
		if away > firstLookDelay {
			t.Errorf("first after %s", away)
		}
		looks := 1
		for ; away < time.Minute; looks++ {
			d := r.nextWait(StageConnect, refused, 0)
			if most := away/2 + firstLookDelay; d > most {
				t.Errorf("after %s it is retried in %s; want at most %s", away, d, most)
			}
			away += d
		}
		if looks < 15 || looks > 30 {
			t.Errorf("%d attempts to find it in a minute", looks)
		}
		// The port accepts connections again, but the server is not ready.
		if d := r.nextWait(StageConnect, exchangeErrorf(kindBroken, false, "503"), 0); d < task.FirstDelay/2 || d > task.FirstDelay {
			t.Errorf("after its answer, after %s", d)
		}
		if d := r.nextWait(StageConnect, exchangeErrorf(kindBroken, false, "503"), 0); d < task.FirstDelay || d > 2*task.FirstDelay {
			t.Errorf("then after %s", d)
		}
		if d := r.nextWait(StageServe, gone, time.Hour); d > firstLookDelay {
			t.Errorf("after another hour of service, %s", d)
		}
		if d := r.nextWait(StageConnect, gone, 3*time.Second); d < 3*time.Second {
			t.Errorf("a program that fails after three seconds is restarted after %s", d)
		}
	}
}

func TestAServerThatEndsAsSoonAsItServesIsStartedLessAndLessOften(t *testing.T) {
	r := retrySchedule{}
	for i := range 9 {
		most := min(task.FirstDelay<<i, task.LongestDelay)
		if d := r.nextWait(StageServe, exchangeErrorf(kindLost, true, "it ended"), time.Second); d < most/2 || d > most {
			t.Errorf("time %d after %s, want %s to %s", i, d, most/2, most)
		}
	}
}

func TestAWaitingCallUsesTheConnectionThatAnotherCallHasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := false
		sl := newConnector(func() (*link, error) {
			if !there {
				return nil, exchangeErrorf(kindUnreachable, false, "no")
			}
			l := newLink(nil, &mask.Mask{}, nil, "", nil)
			l.port = deafPort{}
			return l, nil
		})
		for range 5 { // so that calls must wait before they dial
			if _, err := sl.get(t.Context(), dialAtOnce); err == nil {
				t.Fatal("it is there")
			}
		}
		began := time.Now()
		call := startAsync(func() error {
			_, err := sl.get(t.Context(), waitForPause)
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("it waited %s", took)
			}
			return err
		})
		time.Sleep(100 * time.Millisecond)
		there = true
		if _, err := sl.get(t.Context(), dialAtOnce); err != nil {
			t.Error(err)
		}
		if err := <-call; err != nil {
			t.Error(err)
		}
	})
}

func TestAServerThatCannotBeReachedIsTriedLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New(Options{})
		s := newServer(f, switchboard.Server{ID: "one"}, nil)
		var tries []time.Time
		s.connectors.connect = func(context.Context, linkScope) (*link, error) {
			tries = append(tries, time.Now())
			return nil, exchangeErrorf(kindUnreachable, false, "no")
		}
		began := time.Now()
		go s.run()
		time.Sleep(10 * time.Minute)
		s.cancel()
		f.Close(t.Context())
		synctest.Wait()
		if first := tries[0].Sub(began); first != 0 {
			t.Errorf("the first attempt after %s", first)
		}
		for i := 1; i < len(tries); i++ {
			gap, most := tries[i].Sub(tries[i-1]), min(task.FirstDelay<<min(i-1, 20), task.LongestDelay)
			if gap < most/2 || gap > most {
				t.Errorf("attempt %d after %s, want %s to %s", i, gap, most/2, most)
			}
		}
		if n := len(tries); n < 20 || n > 60 {
			t.Errorf("%d attempts in ten minutes", n)
		}
	})
}

func TestCallsShareADialAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		sl := newConnector(func() (*link, error) {
			tries++
			time.Sleep(100 * time.Millisecond)
			return nil, exchangeErrorf(kindUnreachable, true, "no")
		})
		began := time.Now()
		for time.Since(began) < time.Minute {
			var calls [10]<-chan error
			for i := range calls {
				calls[i] = startAsync(func() error {
					_, err := sl.get(t.Context(), waitForPause)
					return err
				})
			}
			for _, c := range calls {
				if f := asExchangeError(<-c); f.kind != kindUnreachable || f.sent {
					t.Fatalf("%+v", f)
				}
			}
		}
		if tries < 50 || tries > 70 {
			t.Errorf("%d attempts in a minute", tries)
		}

		sl = newConnector(func() (*link, error) { time.Sleep(time.Hour); return nil, errors.New("late") })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := sl.get(ctx, waitForPause); asExchangeError(err).kind != kindSilent || asExchangeError(err).sent {
			t.Errorf("%+v", err)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestALinkThatLivedLongIsRedialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sl := newConnector(func() (*link, error) {
			l := newLink(nil, &mask.Mask{}, nil, "", nil)
			l.port = deafPort{}
			return l, nil
		})
		for _, tt := range []struct{ lived, wait time.Duration }{
			{time.Hour, 0}, {time.Second, 2 * task.FirstDelay}, {time.Second, 4 * task.FirstDelay}, {time.Hour, 0},
		} {
			l, err := sl.get(t.Context(), waitForPause)
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(tt.lived)
			l.close()
			began := time.Now()
			if _, err := sl.get(t.Context(), waitForPause); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began); waited != tt.wait {
				t.Errorf("after %s of life it took %s, want %s", tt.lived, waited, tt.wait)
			}
		}
	})
}

func TestHeadersRepeatOnlyWhatAHeaderCanHold(t *testing.T) {
	for in, want := range map[string]string{
		`"plain"`: "plain", `""`: "", `" x"`: "=?base64?IHg=?=", `true`: "true", `false`: "false", `42`: "42", `-1.0e1`: "-10",
		`"\u00fc"`: "=?base64?w7w=?=", `"a\r\nB: c"`: "=?base64?YQ0KQjogYw==?=",
		`1.5`: "-", `null`: "-", `[1]`: "-", `{"a":1}`: "-", `9007199254740993`: "-", `1e400`: "-",
	} {
		h := http.Header{}
		addParamHeaders(h, []byte(`{"inputSchema":{"properties":{"p":{"x-mcp-header":"P"}}}}`), []byte(`{"p":`+in+`}`))
		got := "-"
		if v, ok := h["Mcp-Param-P"]; ok {
			got = v[0]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func TestFloodsAreCutInTheirWindowOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f floodMeter
		for range 10 * maxJunk {
			if too := f.add(1, 10, 0); too != "" {
				t.Fatal(too)
			}
			time.Sleep(2 * floodWindow / maxJunk)
		}
		n := 0
		for f.add(0, 0, 1) == "" {
			n++
		}
		if n != maxChatter {
			t.Errorf("cut after %d", n)
		}
	})
}

func TestTheVersionOfAServerIsPartOfItsOfferAndBounded(t *testing.T) {
	long := strings.Repeat("1", 127) + "é"
	for said, want := range map[string]string{`"1.0.0"`: "1.0.0", `"` + long + `"`: long[:127], `1`: "", `null`: ""} {
		h := parseHello(slog.New(slog.DiscardHandler), mask.New(&switchboard.Server{}), "2025-11-25", []byte(`{}`), []byte(`{"name":"x","version":`+said+`}`), []byte(`{}`))
		if h.release != want {
			t.Errorf("%s is parsed as %q, want %q", said, h.release, want)
		}
	}
	if a, b := (switchboard.Offer{Version: "1"}), (switchboard.Offer{Version: "2"}); sameOffer(&a, &b) || !sameOffer(&a, &a) {
		t.Error("the offer of an updated server has not changed")
	}
}
