package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/law"
)

func TestLinesAreReadWholeOrNotAtAll(t *testing.T) {
	const limit = 100_000
	long := strings.Repeat("x", limit+1)
	input := "one\n\ntwo\r\n" + strings.Repeat("y", limit) + "\n" +
		`{"result":"` + long + `","id":7}` + "\n" + `{"id":"a\"b","method":"x","params":"` + long + `"}` + "\n" +
		long + "\nlast\nnot ended"
	want := []messageLine{
		{text: []byte("one")},
		{text: []byte{}},
		{text: []byte("two\r")},
		{text: []byte(strings.Repeat("y", limit))},
		{long: limit + 21, id: []byte("7")},
		{long: limit + 40},
		{long: limit + 1},
		{text: []byte("last")},
	}
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "halves": iotest.HalfReader,
	} {
		r := newLineReader(wrap(strings.NewReader(input)), limit)
		for i, w := range want {
			got, err := r.next()
			if err != nil {
				t.Fatalf("%s, line %d: %v", name, i, err)
			}
			if !bytes.Equal(got.text, w.text) || !bytes.Equal(got.id, w.id) || (got.long > 0) != (w.long > 0) || got.long > w.long+1 || got.long < w.long-1 {
				t.Errorf("%s, line %d: %.20q %d %q, want %.20q %d %q", name, i, got.text, got.long, got.id, w.text, w.long, w.id)
			}
		}
		if _, err := r.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: at the end: %v", name, err)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestALineWithoutEndIsNotReadForEver(t *testing.T) {
	if _, err := newLineReader(zeros{}, 1000).next(); !errors.Is(err, errEndlessLine) {
		t.Errorf("error %v", err)
	}
}

// FuzzSkim holds the skim to what a parser finds: in a message, the id of the
// envelope.
func FuzzSkim(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"result":{"id":2}}`, `{"result":["id",{"id":"x"}],"id":"a"}`, `{"id":"\"","method":"m"}`, `{ "id" : -5 , "error":{} }`,
		`{"a":{"b":[{}]},"id":null}`, `[{"id":1}]`, `{}`, `{"x":"id","id":9}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := idScanner{}
		for part := range slices.Chunk(data, 3) {
			s.feed(part)
		}
		m, err := wire.ParseEnvelope(data)
		if err != nil || m.Kind != wire.Response || len(m.ID) == 0 || len(m.ID) > maxScanned || bytes.Contains(data, []byte(`\u`)) {
			return // names may be escaped there; the skim only knows the plain ones
		}
		if got := s.responseID(); string(got) != string(m.ID) {
			t.Errorf("skim of %s: %q, want %q", data, got, m.ID)
		}
	})
}

func TestSecretsAreMaskedInEveryForm(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	m := newSecretMask(&switchboard.Server{
		URL: "https://user:url-password@example.com/",
		Headers: map[string]switchboard.Secret{
			"Authorization":       switchboard.NewSecret("Basic dXNlcjpwYXNzd29yZC0x"), // user:password-1
			"X-Api-Key":           switchboard.NewSecret(`quo"te\back` + "\n"),
			"Proxy-Authorization": switchboard.NewSecret("Bearer tok/en+1"),
		},
		Env: map[string]switchboard.Secret{"DEBUG": switchboard.NewSecret("1"), "EMPTY": switchboard.NewSecret(""), "LONG": switchboard.NewSecret("tok/en+1-and-more")},
	})
	for in, want := range map[string]string{
		"Basic dXNlcjpwYXNzd29yZC0x": "***", "got dXNlcjpwYXNzd29yZC0x!": "got ***!", "user:password-1": "***", "password-1": "***",
		`{"k":"quo\"te\\back"}`: `{"k":"***"}`, "tok/en+1": "***", "?t=tok%2Fen%2B1&x": "?t=***&x", "tok/en+1-and-more": "***",
		"url-password": "***", "DEBUG=1": "DEBUG=1", "": "",
	} {
		if got := m.text(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got, want := m.line([]byte("a\tb\x00\x1b[1m\xff\u202e é\n"), 100, true), "a\tb\\u0000\\u001b[1m\\ufffd\\u202e é"; got != want {
		t.Errorf("line %q, want %q", got, want)
	}
	if got := m.line([]byte("0123456789"), 4, true); got != "0123…" {
		t.Errorf("line %q", got)
	}
	if got := m.line([]byte(strings.Repeat("-", 100)+"tok/en+1-and-mor"), 1000, false); strings.Contains(got, "tok") {
		t.Errorf("a secret that was cut in two is shown: %q", got)
	}
}

func TestSecretsInAddressesAndArgumentsAreMasked(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	for _, tt := range []struct {
		name   string
		server switchboard.Server
		says   string
		want   string
	}{
		{"a password in a URL, as spelt and as meant", switchboard.Server{URL: "https://me:p%40ss%2Fword@a.example/"}, "p%40ss%2Fword p@ss/word", "*** ***"},
		{"a user that is a token", switchboard.Server{URL: "https://tok%2Den-1@a.example/"}, "tok%2Den-1 tok-en-1", "*** ***"},
		{"a value of a query, as spelt and as meant", switchboard.Server{URL: "https://a.example/mcp?x=1&k=se%2Fcr+et&last"}, "se%2Fcr+et se/cr et se/cr+et", "*** *** ***"},
		{"a short value", switchboard.Server{URL: "https://a.example/mcp?mode=quick"}, "quick", "quick"},
		{"a path", switchboard.Server{URL: "https://a.example/tenants#fragment?x=fragment"}, "tenants fragment", "tenants fragment"},
		{"--api-key=X", switchboard.Server{Command: []string{"p", "--api-key=hun=ter2"}}, "bad key hun=ter2", "bad key ***"},
		{"--token X", switchboard.Server{Command: []string{"p", "--token", "-hunter2", "plain-argument"}}, "-hunter2 plain-argument", "*** plain-argument"},
		{"--password X at the end", switchboard.Server{Command: []string{"p", "--db-password", "hunter2"}}, "hunter2", "***"},
		{"VAR=X", switchboard.Server{Command: []string{"docker", "run", "-e", "API_KEY=hunter2", "image"}}, "hunter2 API_KEY docker", "*** API_KEY docker"},
		{"a header", switchboard.Server{Command: []string{"p", "--header", "Authorization: Bearer hunter2"}}, "got Authorization: Bearer hunter2, hunter2", "got Authorization: ***, ***"},
		{"a header of another name", switchboard.Server{Command: []string{"p", "--header=X-Other: Bearer hunter-22"}}, "hunter-22", "***"},
		{"one of a well-known form", switchboard.Server{Command: []string{"p", "ghp_0123456789abcdef"}}, "ghp_0123456789abcdef", "***"},
		{"a URL among the arguments", switchboard.Server{Command: []string{"p", "postgres://me:hunter2@db/x", "https://a.example/?api_key=hunter3&region=europe"}}, "hunter2 hunter3 europe", "*** *** europe"},
		{"a URL among the variables", switchboard.Server{Env: map[string]switchboard.Secret{"DSN": switchboard.NewSecret("postgres://me:hunter2@db/x")}}, "hunter2", "***"},
		{"arguments that are none", switchboard.Server{Command: []string{"program", "--key-file", "/etc/key-of-it", "--region=europe", "--max-tokens", "100000"}}, "program /etc/key-of-it europe 100000", "program /etc/key-of-it europe 100000"},
	} {
		if got := newSecretMask(&tt.server).text(tt.says); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestInJSONOnlyTheTextsAreMasked(t *testing.T) {
	m := newSecretMask(&switchboard.Server{Env: map[string]switchboard.Secret{
		"A_TOKEN": switchboard.NewSecret("content"), "B_PASSWORD": switchboard.NewSecret("123456"), "C_SECRET": switchboard.NewSecret(`{"a":"b"}`), "D_API_KEY": switchboard.NewSecret("a/b&c<d>"),
		"ROOT": switchboard.NewSecret("/srv/data"),
	}})
	for in, want := range map[string]string{
		`{ "content" : [ {"text":"no content"} ], "n": 1234567 }`: `{ "content" : [ {"text":"no ***"} ], "n": 1234567 }`,
		`{"a":"b"}`:                  `{"a":"b"}`,
		`["{\"a\":\"b\"}","123456"]`: `["***","***"]`,
		`{"x":"a\/b\u0026c\u003cd>\n","y":"\u00e9 1.0"}`: `{"x":"***\n","y":"\u00e9 1.0"}`,
		`{"x":"\ud800 content"}`:                         `{"x":"\ud800 ***"}`,
		`{"x":"\"","y":"content\\"}`:                     `{"x":"\"","y":"***\\"}`,
		`{"x":"no such folder: /srv/data/a"}`:            `{"x":"no such folder: /srv/data/a"}`,
		``:                                               ``,
	} {
		if got := string(m.json([]byte(in))); got != want {
			t.Errorf("%s:\n%s, want\n%s", in, got, want)
		}
	}
	untouched := []byte(`{"content":[{"text":"nothing of ours"}]}`)
	if got := m.json(untouched); &got[0] != &untouched[0] {
		t.Error("text without a secret is copied")
	}
}

// TestCallParamsChangeNothingElse holds for any arguments, members and _meta
// that what is not ours or the protocol's arrives as it was.
func TestCallParamsChangeNothingElse(t *testing.T) {
	l := &link{ours: newClientInfo("n", "v")}
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
		got, token := l.callParams(c, c.Params, []byte("42"))

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

func TestAnEmptyMetaIsSentOnAndOneThatWasOnlyOursIsNot(t *testing.T) {
	l := &link{}
	l.greeting.Store(&serverHello{version: wire.LatestLegacy})
	for in, want := range map[string]string{
		`{"_meta":{}}`: `{"_meta":{},"name":"n"}`,
		`{"_meta":{"io.modelcontextprotocol/logLevel":"debug"}}`: `{"name":"n"}`,
		`{"name":"x"}`: `{"name":"n"}`,
	} {
		c := &switchboard.Call{Params: []byte(in), Method: wire.MethodToolsCall, Target: "n"}
		if got, _ := l.callParams(c, c.Params, nil); string(got) != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestTheBackoffDoublesWithChanceAndHasAnEnd(t *testing.T) {
	for fails, most := range map[int]time.Duration{0: firstDelay, 1: firstDelay, 2: 2 * firstDelay, 5: 16 * firstDelay, 8: 128 * firstDelay, 9: longestWait, 1000: longestWait} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := backoff(fails)
			if d < most/2 || d > most {
				t.Fatalf("after %d failures %s, want %s to %s", fails, d, most/2, most)
			}
			seen[d] = true
		}
		if len(seen) < 50 {
			t.Errorf("after %d failures it is always the same", fails)
		}
	}
}

// A deafPort takes requests and does nothing.
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
		if d := r.nextWait(StageConnect, refused, 0); d < firstDelay/2 {
			t.Errorf("one that was never there is looked for after %s", d)
		}
		away := r.nextWait(StageServe, gone, time.Hour)
		if away > firstLookDelay {
			t.Errorf("first after %s", away)
		}
		looks := 1
		for ; away < time.Minute; looks++ {
			d := r.nextWait(StageConnect, refused, 0)
			if most := away/2 + firstLookDelay; d > most {
				t.Errorf("after %s it is looked for in %s; want at most %s", away, d, most)
			}
			away += d
		}
		if looks < 15 || looks > 30 {
			t.Errorf("%d looks in a minute", looks)
		}
		// A port is open again, but what is there is not ready.
		if d := r.nextWait(StageConnect, exchangeErrorf(kindBroken, false, "503"), 0); d < firstDelay/2 || d > firstDelay {
			t.Errorf("once it answers, after %s", d)
		}
		if d := r.nextWait(StageConnect, exchangeErrorf(kindBroken, false, "503"), 0); d < firstDelay || d > 2*firstDelay {
			t.Errorf("and then after %s", d)
		}
		if d := r.nextWait(StageServe, gone, time.Hour); d > firstLookDelay {
			t.Errorf("after another hour of service, %s", d)
		}
		if d := r.nextWait(StageConnect, gone, 3*time.Second); d < 3*time.Second {
			t.Errorf("a program that takes three seconds to fail is started again after %s", d)
		}
	}
}

func TestAServerThatEndsAsSoonAsItServesIsStartedLessAndLessOften(t *testing.T) {
	r := retrySchedule{}
	for i := range 9 {
		most := min(firstDelay<<i, longestWait)
		if d := r.nextWait(StageServe, exchangeErrorf(kindLost, true, "it ended"), time.Second); d < most/2 || d > most {
			t.Errorf("time %d after %s, want %s to %s", i, d, most/2, most)
		}
	}
}

func TestACallThatWaitsGoesOnAsSoonAsSomebodyElseHasMadeTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		there := false
		sl := newConnector(func() (*link, error) {
			if !there {
				return nil, exchangeErrorf(kindUnreachable, false, "no")
			}
			l := newLink(nil, &secretMask{}, nil, "", nil)
			l.port = deafPort{}
			return l, nil
		})
		for range 5 { // so that calls may not try so soon
			if _, err := sl.get(t.Context(), dialAtOnce); err == nil {
				t.Fatal("it is there")
			}
		}
		began := time.Now()
		call := later(func() error {
			_, err := sl.get(t.Context(), waitForPause)
			if took := time.Since(began); took != 100*time.Millisecond {
				t.Errorf("it has waited for %s", took)
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
		s.connect = func(context.Context, linkScope) (*link, error) {
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
			gap, most := tries[i].Sub(tries[i-1]), min(firstDelay<<min(i-1, 20), longestWait)
			if gap < most/2 || gap > most {
				t.Errorf("attempt %d after %s, want %s to %s", i, gap, most/2, most)
			}
		}
		if n := len(tries); n < 20 || n > 60 {
			t.Errorf("%d attempts in ten minutes", n)
		}
	})
}

func TestCallsWaitForAnAttemptAndDoNotMakeTheirOwnWithoutEnd(t *testing.T) {
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
				calls[i] = later(func() error {
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

func TestALinkThatLivedLongIsMadeAnewAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sl := newConnector(func() (*link, error) {
			l := newLink(nil, &secretMask{}, nil, "", nil)
			l.port = deafPort{}
			return l, nil
		})
		for _, tt := range []struct{ lived, wait time.Duration }{
			{time.Hour, 0}, {time.Second, 2 * firstDelay}, {time.Second, 4 * firstDelay}, {time.Hour, 0},
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

// A recorder is a connection that notes what is written.
type recorder struct {
	net.Conn
	wrote bytes.Buffer
}

func (r *recorder) Write(b []byte) (int, error) { return r.wrote.Write(b) }

func TestNoByteOfAWithdrawnRequestLeaves(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	r := &recorder{}
	c := newConn(nil, r, r)
	kept, gone := &pendingRequest{body: []byte("kept ")}, &pendingRequest{body: []byte("gone ")}
	if kept.mayBeSent() {
		t.Error("a request counts as sent before its first byte")
	}
	none := func(b []byte) []byte { return b }
	_ = c.send(kept, none)
	if !kept.mayBeSent() || kept.withdraw() {
		t.Error("a request of which bytes have left can be withdrawn")
	}
	if !gone.withdraw() {
		t.Error("a request of which nothing has left cannot be withdrawn")
	}
	if err := c.send(gone, none); !errors.Is(err, errWithdrawn) {
		t.Errorf("error %v", err)
	}
	if got := r.wrote.String(); got != "Content-Length: 5\r\n\r\nkept " {
		t.Errorf("%q has left", got)
	}
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
		h := newLink(slog.New(slog.DiscardHandler), newSecretMask(&switchboard.Server{}), clientInfo{}, "", nil).parseHello("2025-11-25", []byte(`{}`), []byte(`{"name":"x","version":`+said+`}`), []byte(`{}`))
		if h.release != want {
			t.Errorf("%s is read as %q, want %q", said, h.release, want)
		}
	}
	if a, b := (switchboard.Offer{Version: "1"}), (switchboard.Offer{Version: "2"}); sameOffer(&a, &b) || !sameOffer(&a, &a) {
		t.Error("a server that was updated offers the same as before")
	}
}
