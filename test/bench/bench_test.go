package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// The tests' own program plays all the parts, Switchboard too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"backend", "proxy", "relay", "naive", "serve", "guard"}, os.Args[1]) {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM) // what it has yet to write is written
		err := role(ctx, os.Args[1:])
		if stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// Children that are built for the race detector would sleep at their end.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newArena(t *testing.T) *arena {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &arena{self: self, dir: t.TempDir(), binaries: map[string]string{ours: self}}
}

func set(t *testing.T, s *stage, names ...string) {
	t.Helper()
	if err := newArena(t).set(t.Context(), s, names...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.strike)
}

// load has four sessions make 100 calls.
func load(t *testing.T, c *contestant) tally {
	t.Helper()
	all, err := c.clients(4)
	if err != nil {
		t.Fatal(err)
	}
	defer end(all)
	return counted(all, 100, func(c *client) (time.Duration, error) { return c.call(c.id * 97 % 5000) }).tally
}

func TestEveryContestantAnswersRightlyInBothEras(t *testing.T) {
	for _, era := range []string{legacy, modern} {
		for _, s := range []*stage{{era: era, tools: 3}, {era: era, tools: 3, stdio: true}} {
			names := []string{direct, proxy, untuned, floor, synced, naive, ours, ours + effects, ours + newcomer, ours + keeper, ours + again, ours + header, ours + hosted}
			if s.stdio {
				names = []string{naive, ours, ours + effects, ours + newcomer}
			}
			set(t, s, names...)
			for _, c := range s.contestants {
				if got := load(t, c); got.right != 100 && (c.name != untuned || got.right+got.cut != 100) { // which cuts some, see docs/benchmarks.md
					t.Errorf("%s, stdio %v, %s: %s", era, s.stdio, c.name, &got)
				}
			}
		}
	}
}

func TestACallThatReadsHasOneReceiptAndOneWithAnEffectHasTwo(t *testing.T) {
	for tool, want := range map[string]int{unlimited: 1, echo: 1, effective: 2} {
		b := &bench{arena: *newArena(t), rounds: 1, lasting: 50 * time.Millisecond, tallies: map[string]*tally{}}
		if err := b.sustained(t.Context(), legacy, tool, want); err != nil {
			t.Fatal(err)
		}
		for _, f := range b.figures {
			if got := f.values[ours][0]; strings.HasPrefix(f.what, "receipts a call") && (got < float64(want) || got > float64(want)+0.5) {
				t.Errorf("%s: %g receipts a call, want %d", tool, got, want)
			}
		}
		if b.bad(ours) > 0 {
			t.Errorf("%s: %s", tool, b.tallies[ours])
		}
	}
}

// The file of the receipts of sb effects, and of the newcomer who keeps them.
func TestToSwitchboardEachCallToASilentServerHasAnEffect(t *testing.T) {
	for _, way := range []string{effects, keeper} {
		a, s := newArena(t), &stage{era: legacy, tools: 3}
		if err := a.set(t.Context(), s, ours+way); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.strike)
		if got := load(t, s.contestants[0]); got.right != 100 {
			t.Errorf("%s: %s", way, &got)
		}
		s.strike() // so that all receipts are written
		files, _ := filepath.Glob(filepath.Join(a.dir, "*/.switchboard/store.db"))
		if len(files) != 1 {
			t.Fatalf("%s: stores: %q", way, files)
		}
		st, err := store.Open(t.Context(), "file:"+files[0], store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		intents := 0
		for _, err := range receipt.List(t.Context(), st, receipt.Query{Kind: receipt.Intent}) {
			if err != nil {
				t.Fatal(err)
			}
			intents++
		}
		if intents < 100 {
			t.Errorf("%s: %d intents of 100 calls", way, intents)
		}
	}
}

func TestTheNameOfAContestantIsThatOfItsBinaryAndOfItsWay(t *testing.T) {
	for name, want := range map[string][2]string{
		"sb": {"sb", ""}, "sb effects": {"sb", effects}, "before default": {"before", newcomer}, "before default file": {"before", keeper}, "sb again": {"sb", again}, "sb hosted": {"sb", hosted},
	} {
		if binary, way := splitName(name); binary != want[0] || way != want[1] {
			t.Errorf("%q: %q, %q", name, binary, way)
		}
	}
}

func TestTheServerBehindAHostedOneAndOneWithAHeaderGetsTheSameTokenWithEachCall(t *testing.T) {
	for _, way := range []string{header, hosted} {
		b := &backend{era: modern, first: echo}
		list := b.tools(3)
		b.list = func() []byte { return list }
		var with, without atomic.Int64
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Header.Get("Authorization") == "Bearer "+benchToken:
				with.Add(1)
			case r.Method == http.MethodPost:
				without.Add(1)
			}
			b.ServeHTTP(w, r)
		}))
		t.Cleanup(behind.Close)
		p, keys, err := newArena(t).switchboard(t.Context(), ours+way, server{address: behind.URL + "/mcp"}, 3)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.stop)
		c := &contestant{name: ours + way, endpoint: endpoint{era: modern, key: keys[0]}, keys: keys}
		if c.url, err = url.Parse(p.address); err == nil {
			err = c.awake(3)
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := load(t, c); got.right != 100 || with.Load() < 100 || without.Load() > 0 {
			t.Errorf("%s: %s; %d requests with the token, %d without", way, &got, with.Load(), without.Load())
		}
	}
}

// Each call would wait for the disk, and be compared with ones of others that do not.
func TestToSwitchboardTheCallsOfTheComparisonOnlyRead(t *testing.T) {
	for _, stdio := range []bool{false, true} {
		a, s := newArena(t), &stage{era: modern, tools: 3, stdio: stdio}
		if err := a.set(t.Context(), s, ours); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.strike)
		load(t, s.contestants[0])
		files, _ := filepath.Glob(filepath.Join(a.dir, "*/.switchboard/store.db"))
		if len(files) != 1 {
			t.Fatalf("stores: %q", files)
		}
		st, err := store.Open(t.Context(), "file:"+files[0], store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = st.Close() }()
		for e, err := range receipt.List(t.Context(), st, receipt.Query{Kind: receipt.Intent}) {
			t.Fatalf("stdio %v: %s is of a call with an effect: %v %v", stdio, e.ID(), e.Receipt.Tool, err)
		}
	}
}

func TestAnswersThatAreWrongCutOrLostAreCountedAsSuch(t *testing.T) {
	for _, fault := range []string{"wrong", "cut", "lost"} {
		s := &stage{era: legacy, tools: 3, fault: fault}
		set(t, s, direct)
		got := load(t, s.contestants[0])
		n := map[string]int{"wrong": got.wrong, "cut": got.cut, "lost": got.lost}
		if n[fault] == 0 || n[fault] != got.bad() || got.right+got.bad() != 100 {
			t.Errorf("a backend whose answers are %s: %s", fault, &got)
		}
	}
}

func TestOnlyTheAnswerToTheCallPasses(t *testing.T) {
	head, piece := text("a.7", 100)
	other, _ := text("b.7", 100)
	const refuses = `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"try again later"}],"isError":true,"_meta":{"` + refused + `":{"code":"SB-ROUT-001"}}}}`
	right := `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"` + head + string(piece) + `"}]}}`
	for _, tt := range []struct {
		name, message string
		want          error
	}{
		{"right", right, nil},
		{"other order, further members", strings.Replace(right, `{"jsonrpc":"2.0",`, `{"x":1,"result":{"content":[{"text":"`+head+string(piece)+`","type":"text"}],"_meta":{}},"jsonrpc":"2.0",`, 1), errWrong}, // a member twice
		{"further members", strings.Replace(right, `"result":{`, `"result":{"resultType":"complete","_meta":{"a":"b"},`, 1), nil},
		{"another id", strings.Replace(right, `"id":7`, `"id":8`, 1), errWrong},
		{"an id as text", strings.Replace(right, `"id":7`, `"id":"7"`, 1), errWrong},
		{"another nonce", strings.Replace(right, head, other, 1), errWrong},
		{"one byte less", strings.Replace(right, string(piece), string(piece[1:]), 1), errWrong},
		{"one byte more", strings.Replace(right, string(piece), string(piece)+"x", 1), errWrong},
		{"one byte other", strings.Replace(right, string(piece), string(piece[:50])+"!"+string(piece[51:]), 1), errWrong},
		{"twice", strings.Replace(right, `[{`, `[{"type":"text","text":""},{`, 1), errWrong},
		{"says isError", strings.Replace(right, `"result":{`, `"result":{"isError":true,`, 1), errWrong},
		{"breaks off", right[:len(right)-1], errWrong},
		{"goes on", right + "}", errWrong},
		{"refuses", `{"jsonrpc":"2.0","id":7,"error":{"code":503,"message":"later"}}`, errLost},
		{"refuses another", `{"jsonrpc":"2.0","id":8,"error":{"code":503,"message":"later"}}`, errWrong},
		{"is empty", ``, errWrong},
		{"Switchboard refuses", refuses, errLost},
		{"Switchboard refuses another", strings.Replace(refuses, `"id":7`, `"id":8`, 1), errWrong},
		{"says that it failed, and not who", strings.Replace(refuses, refused, "x", 1), errWrong},
	} {
		if err := checkCall([]byte(tt.message), 7, "a.7", 100); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestTheLastEventOfAStreamIsTheAnswer(t *testing.T) {
	for stream, want := range map[string]string{
		"data: {\"a\":1}\n\n":                                       `{"a":1}`,
		"event: message\ndata: 1\n\nid: 3\ndata:2\n\n":              "2",
		"data: 1\r\n\r\ndata: \"data: x\"\r\n\r\n":                  `"data: x"`,
		": wait\n\ndata: {}\nid: 4\n\n: the data: is before me\n\n": "{}",
	} {
		if got, err := lastEvent([]byte(stream)); err != nil || string(got) != want {
			t.Errorf("%q: %q, %v, want %q", stream, got, err, want)
		}
	}
	if _, err := lastEvent([]byte(": nothing\n\n")); !errors.Is(err, errLost) {
		t.Errorf("a stream without events: %v", err)
	}
}

func TestAnOpenLoopCountsFromWhenACallWasDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		b := open(make([]*client, 1), 10, time.Second, func(*client) (time.Duration, error) {
			if calls++; calls == 1 {
				time.Sleep(time.Second)
			}
			return 0, nil
		})
		if b.right != 10 {
			t.Errorf("%d calls", b.right)
		}
		// The first holds up the others: they were due 100ms apart.
		if got, want := b.at(0.5), 600*time.Millisecond; got != want {
			t.Errorf("p50 is %v, want %v", got, want)
		}
		if got := b.at(1); got != time.Second {
			t.Errorf("max is %v", got)
		}
	})
}

func TestALimitIsHeldAgainstTheMedianRatioOfTheRounds(t *testing.T) {
	nan := math.NaN()
	for _, tt := range []struct {
		ours, proxy []float64
		least       bool
		value       float64
		met         bool
	}{
		{[]float64{1, 2, 30}, []float64{1, 2, 3}, false, 1, true},
		{[]float64{2, 4, 3}, []float64{1, 2, 3}, false, 2, false},
		{[]float64{2, 4, 3}, []float64{1, 2, 3}, true, 2, true},
		{[]float64{1, 1, 1}, []float64{1, 1, 2}, true, 1, false},
		{[]float64{0, 1, 1}, []float64{0, 0, 0}, false, math.Inf(1), false},
		{[]float64{1, 1, 1}, nil, false, nan, false},
	} {
		f := (&figure{values: map[string][]float64{ours: tt.ours, proxy: tt.proxy}}).judge("sb / P", ratio(ours, proxy))
		if tt.least {
			f.atLeast(1.5)
		} else {
			f.atMost(1.5)
		}
		v, ok := f.verdict(f.judged[0])
		if !ok || v.met != tt.met || v.value != tt.value && !(math.IsNaN(v.value) && math.IsNaN(tt.value)) {
			t.Errorf("%v to %v, at least: %v: %+v", tt.ours, tt.proxy, tt.least, v)
		}
	}
}

func TestTheReportBeginsWithTheLimitsThatAreMissed(t *testing.T) {
	b := &bench{tallies: map[string]*tally{}, others: []string{"before"}}
	f := b.figure("CPU", "µs")
	f.judge("sb / P", ratio(ours, proxy)).atMost(1)
	f.judge("sb effects / P", ratio(ours+effects, proxy)).atMost(1.5)
	f.judge("added wait", difference(ours+effects, ours)).atMost(2)
	f.judge("of none that ran", ratio("x", "y")).atMost(1)
	f.compare("noise, sb again / sb", ratio(ours+again, ours))
	f.inTable("legacy", "CPU, 16 sessions")
	for name, value := range map[string]float64{proxy: 10, ours: 12, ours + again: 15, ours + effects: 14, "before effects": 30} {
		f.see(name, value)
		f.see(name, 2*value)
		f.see(name, value)
	}
	var out bytes.Buffer
	if b.report(&out) {
		t.Error("all limits are met")
	}
	for _, want := range []string{
		"**Missed limits: 1 of 3.**\n\n* CPU: sb / P is 1.20, limit ≤ 1\n\n## Limits",
		"| sb effects / P | 1.40  | 1.40 to 1.40  | ≤ 1.50 | yes ",
		"| added wait     | 2 µs  | 2 to 4 ",
		"| noise, sb again / sb | 1.25 ",
		"| before effects              | 30; 3 (3 to 3) ",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestAComparisonWithAContestantThatIsLeftOutIsNotShown(t *testing.T) {
	b := &bench{tallies: map[string]*tally{}, among: []string{ours, proxy}}
	f := b.figure("CPU", "µs")
	f.judge("sb / P", ratio(ours, proxy)).atMost(1)
	f.judge("sb effects / P", ratio(ours+effects, proxy)).atMost(1.5)
	f.see(ours, 1)
	f.see(proxy, 1)
	var out bytes.Buffer
	if !b.report(&out) || !strings.Contains(out.String(), "**Every limit is met: 1.**") || strings.Contains(out.String(), "sb effects") {
		t.Errorf("%s", &out)
	}
	b.among = nil // then nothing is left out, and what was not measured is not met
	if b.report(io.Discard) {
		t.Error("met without a measurement")
	}
}

func TestOneWrongAnswerOfSwitchboardMissesTheLimits(t *testing.T) {
	b := &bench{tallies: map[string]*tally{}}
	b.tally(proxy, tally{right: 1, cut: 1})
	b.tally(ours, tally{right: 1})
	if !b.report(io.Discard) {
		t.Error("missed by what P cut")
	}
	b.tally(ours, tally{wrong: 1})
	if b.report(io.Discard) {
		t.Error("met with a wrong answer")
	}
}

func TestWhatIsInTheLedgerTwiceWasExecutedTwice(t *testing.T) {
	ledger := filepath.Join(t.TempDir(), "ledger")
	if err := os.WriteFile(ledger, []byte("record a.1\nrecord a.2\necho a.1\nrecord a.1\necho b.1\necho b.1\necho c.1\nrecord a.1\necho c.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]int{record: 1, echo: 2} {
		if got, err := executed(ledger, tool); got != want || err != nil {
			t.Errorf("%s: %d, %v, want %d", tool, got, err, want)
		}
	}
}

func TestWhatGrowsIsNotFlat(t *testing.T) {
	for _, tt := range []struct {
		each float64 // MiB that resident memory grows with each sample
		met  bool
	}{{0, true}, {0.01, true}, {1, false}, {-1, true}} {
		b := &bench{tallies: map[string]*tally{}}
		var all []sample
		for i := range 60 {
			have := 100 + tt.each*float64(i)
			if i < 10 {
				have = float64(10 * i) // while it is getting warm
			}
			all = append(all, sample{time.Duration(i) * time.Minute, map[string]float64{"resident": have}})
		}
		b.flat(all)
		if met := b.report(io.Discard); met != tt.met {
			t.Errorf("%v MiB a minute: met: %v", tt.each, met)
		}
		for _, f := range b.figures {
			if got := f.values[ours][0]; strings.Contains(f.what, "slope") && math.Abs(got-tt.each) > 1e-9 {
				t.Errorf("%v MiB a minute: the slope is %v", tt.each, got)
			}
		}
	}
}

func TestServersThatFailAreMeasuredOverEachTransport(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: clocks of other processes are read on Linux only")
	}
	b := &bench{arena: *newArena(t), rounds: 1, lasting: 30 * time.Millisecond, tallies: map[string]*tally{}, log: io.Discard}
	if err := b.failedOver(t.Context(), legacy, "dead"); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"HTTP", "HTTP with SSE", "stdio"} {
		r := recovery{first: b.figure("first, "+transport, "ms"), failed: b.figure("failed", ""), took: b.figure("took", ""), lost: b.figure("lost, "+transport, "")}
		if err := b.recover(t.Context(), legacy, transport, &r); err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		if lost := r.lost.values[ours]; len(lost) != 1 || lost[0] != 0 || r.first.values[ours][0] <= 0 || r.first.values[direct][0] <= 0 {
			t.Errorf("%s: %v, %v", transport, r.first.values, r.lost.values)
		}
	}
	if b.bad(ours) > 0 || b.tallies[ours].right < 20 {
		t.Errorf("%s", b.tallies[ours])
	}
	for _, f := range b.figures {
		if strings.HasPrefix(f.what, "executed twice, legacy") && (len(f.values[ours]) != 1 || f.values[ours][0] != 0) {
			t.Errorf("%s: %v", f.what, f.values)
		}
	}
}

func TestAShortRunMeasuresAndPrintsATable(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("skipped: clocks of other processes are read on Linux only")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	err = runBench(t.Context(), []string{"-short", "-only", "calls,start,cold,stdio,check,soak", "-lasting", "3s", "-era", legacy, "-switchboard", "sb=" + self}, &out, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	for _, want := range []string{"## Limits", "| sb effects / P ", "| noise, sb again / sb ", "| added wait of sb effects, without a sync ", "\n## One call, legacy\n", "| sb default file ", "| start to ready, no servers ", "| p50 of connect, open, list and one call, legacy ", "| calls a second, legacy, 1 KiB, 16 sessions, server on stdio ", "| wrong, lost or cut answers of 2000, legacy ", "| soak, descriptors: the last third to the first ", "| soak, steady: right "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
	if !regexp.MustCompile(`\| sb +\| [0-9]{4,} `).MatchString(out.String()) { // 2000 and more were right
		t.Errorf("figures are missing:\n%s", &out)
	}
}
