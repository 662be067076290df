package join

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var token = switchboard.NewSecret("the token of the folder")

// environment returns an environment with the pairs NAME=VALUE.
func environment(pairs ...string) Lookup {
	return func(name string) (string, bool) {
		for _, p := range pairs {
			if n, value, _ := strings.Cut(p, "="); n == name {
				return value, true
			}
		}
		return "", false
	}
}

// dial is Dial with an empty environment.
func dial(address string, token switchboard.Secret, r Joiner) (*Joined, error) {
	return Dial(address, token, r, environment())
}

// A place is a listener that echoes what its joiners send.
type place struct {
	*Listener
	mu     sync.Mutex
	joined []Joiner
}

func listen(t *testing.T, change func(*Options)) *place {
	t.Helper()
	p := &place{}
	o := Options{
		Token: token, Identity: "this", Env: environment(), Linger: -1, Log: slog.New(slog.DiscardHandler),
		Operate: func(_ context.Context, c *Joined) { _, _ = io.Copy(c, c) },
		Handle: func(_ context.Context, r Joiner, c *Joined) {
			p.mu.Lock()
			p.joined = append(p.joined, r)
			p.mu.Unlock()
			_, _ = io.Copy(c, c)
		},
	}
	if change != nil {
		change(&o)
	}
	var err error
	if p.Listener, err = Listen(o); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { p.Serve(ctx) })
	t.Cleanup(func() {
		cancel()
		served.Wait()
	})
	return p
}

func (p *place) requests() []Joiner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.joined
}

func TestAProbeLearnsWhetherTheProcessHasTheTokenAndJoinsNothing(t *testing.T) {
	var log bytes.Buffer
	p := listen(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	if err := Probe(p.Addr(), token); err != nil {
		t.Error(err)
	}
	if err := Probe(p.Addr(), switchboard.NewSecret("another token")); !errors.Is(err, errNotBelieved) {
		t.Errorf("a process without the token is believed: %v", err)
	}
	if err := Probe("192.0.2.1:80", token); err == nil {
		t.Error("another machine is asked")
	}
	c, err := Dial(p.Addr(), token, Joiner{Identity: "this", Run: "0123", Connection: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if n := len(p.requests()); n > 1 {
		t.Errorf("%d clients have joined, and one did", n)
	}
	p.close()
	p.handling.Wait() // so that nothing is written to the log any more
	if strings.Contains(log.String(), "not let in") {
		t.Errorf("the log tells of the probe:\n%s", log.String())
	}
}

func TestWhoHasTheTokenJoins(t *testing.T) {
	p := listen(t, nil)
	want := Joiner{Identity: "this", Task: "review", Run: "0123", Connection: 2}
	c, err := dial(p.Addr(), token, want)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test
	fmt.Fprintln(c, "hello")
	_ = c.CloseWrite()
	if echo, err := io.ReadAll(c); string(echo) != "hello\n" || err != nil {
		t.Errorf("%q, %v", echo, err)
	}
	if got := p.requests(); len(got) != 1 || got[0] != want {
		t.Errorf("joined: %v", got)
	}
}

func TestWithoutTheTokenOrWithAnotherIdentityNobodyJoins(t *testing.T) {
	p := listen(t, nil)
	full := listen(t, func(o *Options) { o.RefusePeer = func(net.Conn) error { return errors.New("it is a stranger") } })
	for name, tt := range map[string]struct {
		address string
		token   switchboard.Secret
		request Joiner
		refused bool
	}{
		"another token":     {p.Addr(), switchboard.NewSecret("guessed"), Joiner{Identity: "this"}, false},
		"no token":          {p.Addr(), switchboard.Secret{}, Joiner{Identity: "this"}, false},
		"another identity":  {p.Addr(), token, Joiner{Identity: "other"}, true},
		"another peer":      {full.Addr(), token, Joiner{Identity: "this"}, false},
		"not this machine":  {"192.0.2.1:80", token, Joiner{Identity: "this"}, false},
		"no address at all": {"x", token, Joiner{Identity: "this"}, false},
	} {
		c, err := dial(tt.address, tt.token, tt.request)
		if err == nil || errors.Is(err, ErrRefused) != tt.refused {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	if got := append(p.requests(), full.requests()...); len(got) > 0 {
		t.Errorf("joined: %v", got)
	}
}

// A foreign program that has taken the port of a dead process learns nothing that is of use, and is not believed.
func TestAForeignListenerLearnsNothingAndIsNotBelieved(t *testing.T) {
	p := listen(t, nil)
	foreign, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close() //nolint:errcheck // a test
	heard := make(chan string, 10)
	go func() {
		for {
			c, err := foreign.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			line, _ := in.ReadString('\n')
			heard <- line
			// It replays the nonce of the joiner, and a proof that it made up.
			var h hello
			_ = json.Unmarshal([]byte(line), &h)
			fmt.Fprintf(c, `{"nonce":%q,"proof":%q}`+"\n", h.Nonce, strings.Repeat("0", 64))
			rest, _ := in.ReadString('\n')
			heard <- rest
			_ = c.Close()
		}
	}()
	if _, err := dial(foreign.Addr().String(), token, Joiner{Identity: "this"}); !errors.Is(err, errNotBelieved) {
		t.Errorf("the foreign program is believed: %v", err)
	}
	first, second := wait.Receive(t, "the first line", heard), wait.Receive(t, "the second line", heard)
	if strings.Contains(first+second, token.Reveal()) || strings.Contains(second, "proof") {
		t.Errorf("it hears %q %q", first, second)
	}
	if got := p.requests(); len(got) > 0 {
		t.Errorf("joined: %v", got)
	}
}

// record joins through a relay, and returns what the joiner has sent.
func record(t *testing.T, address string, env Lookup) []byte {
	t.Helper()
	relay, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close() //nolint:errcheck // a test
	sent := make(chan []byte, 1)
	go func() {
		c, err := relay.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(c, to); _ = c.Close() }()
		var b bytes.Buffer
		_, _ = io.Copy(io.MultiWriter(to, &b), c)
		_ = to.Close()
		sent <- b.Bytes()
	}()
	c, err := Dial(relay.Addr().String(), token, Joiner{Identity: "this"}, env)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	return wait.Receive(t, "what was sent", sent)
}

func TestReplayedMalformedAndLongHandshakesAreCut(t *testing.T) {
	p := listen(t, nil)
	recorded := record(t, p.Addr(), environment())
	wait.Until(t, "the recorded joiner has joined", func() bool { return len(p.requests()) == 1 })
	lines := strings.SplitAfter(string(recorded), "\n")
	for name, text := range map[string]string{
		"a replay":            string(recorded),
		"a replayed request":  `{"join":2,"nonce":"` + strings.Repeat("ab", nonceBytes) + `"}` + "\n" + lines[1],
		"no JSON":             "GET / HTTP/1.1\r\n\r\n",
		"another protocol":    `{"join":1,"nonce":"` + strings.Repeat("ab", nonceBytes) + `"}` + "\n",
		"a short nonce":       `{"join":2,"nonce":"ab"}` + "\n",
		"an unknown member":   `{"join":2,"nonce":"` + strings.Repeat("ab", nonceBytes) + `","x":1}` + "\n",
		"two values":          `{"join":2,"nonce":"` + strings.Repeat("ab", nonceBytes) + `"} {}` + "\n",
		"a line without end":  strings.Repeat("x", 2*maxLine),
		"nothing at all":      "",
		"an empty proof":      lines[0] + `{"request":{"identity":"this","run":"","connection":1},"proof":""}` + "\n",
		"a request like none": lines[0] + `{"request":5,"proof":"` + strings.Repeat("0", 64) + `"}` + "\n",
	} {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(wait.Bound))
		_, _ = io.WriteString(c, text)
		_ = c.(*net.TCPConn).CloseWrite()
		answer, err := io.ReadAll(c)
		if wait.TimedOut(err) { // it may also be reset
			wait.Late(t, "%s: the connection does not end", name)
		}
		if n := bytes.Count(answer, []byte("\n")); n > 1 || bytes.Contains(answer, []byte("{}")) {
			t.Errorf("%s: %q", name, answer)
		}
		_ = c.Close()
	}
	if got := p.requests(); len(got) != 1 {
		t.Errorf("%d have joined", len(got))
	}
}

// A slow handshake ends in time, and does not keep others out.
func TestASlowHandshakeIsCut(t *testing.T) {
	t.Parallel() // it waits
	p := listen(t, nil)
	slow, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close() //nolint:errcheck // a test
	_, _ = io.WriteString(slow, `{"join"`)
	c, err := dial(p.Addr(), token, Joiner{Identity: "this"})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	_ = slow.SetReadDeadline(time.Now().Add(Patience + wait.Bound))
	_, err = slow.Read(make([]byte, 1))
	if wait.TimedOut(err) {
		wait.Late(t, "the slow connection does not end")
	}
	if err == nil {
		t.Error("it gets an answer")
	}
}

func TestAProcessWithoutJoinersEndsAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListener(Options{Linger: time.Minute})
		one, two := &Joined{}, &Joined{}
		enter := func(c *Joined) string {
			_, why := l.enter(c, nil)
			return why
		}
		over := func() bool {
			synctest.Wait()
			select {
			case <-l.Idle():
				return true
			default:
				return false
			}
		}
		l.mu.Lock()
		l.startLinger(firstWait)
		l.mu.Unlock()
		time.Sleep(firstWait - time.Second)
		if why := enter(one); why != "" || over() {
			t.Fatalf("the first joiner: %s", why)
		}
		_ = enter(two)
		time.Sleep(time.Hour)
		l.leave(two)
		time.Sleep(time.Hour)
		l.leave(one)
		time.Sleep(59 * time.Second)
		if over() {
			t.Error("it ends before its time")
		}
		_ = enter(two) // a joiner in the last second
		time.Sleep(time.Hour)
		l.leave(two)
		time.Sleep(61 * time.Second)
		if !over() {
			t.Error("it does not end")
		}
		if why := enter(one); why == "" {
			t.Error("it lets one in after its end")
		}
	})
}

func TestTheNumberOfJoinersIsBounded(t *testing.T) {
	l := newListener(Options{Linger: -1})
	for range MaxJoiners {
		if _, why := l.enter(&Joined{}, nil); why != "" {
			t.Fatal(why)
		}
	}
	if _, why := l.enter(&Joined{}, nil); !strings.Contains(why, "as many clients as it may") {
		t.Errorf("one more: %q", why)
	}
}

func TestAJoinerWithOtherValuesOfVariablesDoesNotJoin(t *testing.T) {
	var many []string
	for i := range 3*maxAsked + 1 {
		many = append(many, fmt.Sprintf("%s_%03d", strings.Repeat("V", 124), i))
	}
	for name, tt := range map[string]struct {
		variables  []string
		ours, own  []string // the environments of the process and of the joiner
		wantDiffer []string
	}{
		"no variable counts":            {nil, []string{"TOKEN=a"}, []string{"TOKEN=b"}, nil},
		"the same value":                {[]string{"TOKEN"}, []string{"TOKEN=a", "X=1"}, []string{"TOKEN=a", "X=2"}, nil},
		"another value":                 {[]string{"TOKEN", "USER"}, []string{"TOKEN=a", "USER=u"}, []string{"TOKEN=b", "USER=u"}, []string{"TOKEN"}},
		"two other values":              {[]string{"TOKEN", "USER"}, []string{"TOKEN=a", "USER=b"}, []string{"TOKEN=b", "USER=a"}, []string{"TOKEN", "USER"}},
		"set here only":                 {[]string{"TOKEN"}, nil, []string{"TOKEN=a"}, []string{"TOKEN"}},
		"set there only":                {[]string{"TOKEN"}, []string{"TOKEN="}, nil, []string{"TOKEN"}},
		"set nowhere":                   {[]string{"TOKEN"}, nil, nil, nil},
		"an equals sign in the value":   {[]string{"A"}, []string{"A=B=c"}, []string{"A=B"}, []string{"A"}},
		"more variables than on a line": {many, nil, nil, nil},
		"the last of many":              {many, nil, []string{many[len(many)-1] + "=x"}, many[len(many)-1:]},
		"all of many":                   {many, nil, []string{many[0] + "=", many[1] + "=", many[2] + "=", many[3] + "=", many[4] + "=", many[5] + "=", many[6] + "=", many[7] + "=", many[8] + "=", many[9] + "=", many[10] + "="}, many[:maxNamed]},
	} {
		t.Run(name, func(t *testing.T) {
			p := listen(t, func(o *Options) { o.Env = environment(tt.ours...) })
			p.SetVariables(tt.variables)
			c, err := Dial(p.Addr(), token, Joiner{Identity: "this"}, environment(tt.own...))
			if err == nil {
				_ = c.Close()
			}
			different, _ := errors.AsType[*DifferenceError](err)
			switch {
			case tt.wantDiffer == nil && err != nil:
				t.Error(err)
			case tt.wantDiffer != nil && (different == nil || !slices.Equal(different.Variables, tt.wantDiffer)):
				t.Errorf("%v, want %q", err, tt.wantDiffer)
			}
		})
	}
}

// A lockedText is what several goroutines write.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// What goes over the connection, or to the log, does not have the values. Two handshakes have nothing in common.
func TestValuesOfVariablesAreNotSent(t *testing.T) {
	var log lockedText
	p := listen(t, func(o *Options) {
		o.Env = environment("TOKEN=xyzzy")
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	p.SetVariables([]string{"TOKEN"})
	var digests []string
	for range 2 {
		sent := string(record(t, p.Addr(), environment("TOKEN=xyzzy")))
		_, values, ok := strings.Cut(sent, `"values":`)
		if !ok || strings.Contains(sent, "xyzzy") {
			t.Errorf("the joiner sends %s", sent)
		}
		digests = append(digests, values)
	}
	if digests[0] == digests[1] {
		t.Errorf("twice the same digest: %s", digests[0])
	}
	_, err := Dial(p.Addr(), token, Joiner{Identity: "this"}, environment("TOKEN=plugh"))
	if err == nil || !strings.Contains(err.Error(), "TOKEN") || strings.Contains(err.Error(), "plugh") {
		t.Errorf("%v", err)
	}
	if text := log.String(); strings.Contains(text, "xyzzy") || strings.Contains(text, "plugh") {
		t.Errorf("the log: %s", text)
	}
}

// After a reload that refers to one more variable, the clients join again.
func TestJoinersJoinAgainIfMoreVariablesCount(t *testing.T) {
	l := newListener(Options{Linger: -1, Log: slog.New(slog.DiscardHandler)})
	c := &Joined{leave: make(chan struct{})}
	mustLeave := func() bool {
		select {
		case <-c.Leave():
			return true
		default:
			return false
		}
	}
	l.SetVariables([]string{"A"})
	if names, why := l.enter(c, map[string]bool{}); !slices.Equal(names, []string{"A"}) || why != "" {
		t.Errorf("before A was compared: %q, %q", names, why)
	}
	if names, why := l.enter(c, map[string]bool{"A": true}); names != nil || why != "" {
		t.Errorf("after A was compared: %q, %q", names, why)
	}
	for _, names := range [][]string{nil, {"A"}} {
		if l.SetVariables(names); mustLeave() {
			t.Errorf("%q: it must leave", names)
		}
	}
	l.SetVariables([]string{"A", "B"})
	l.SetVariables([]string{"A", "B", "C"}) // before it has left
	if !mustLeave() {
		t.Error("with B it may stay")
	}
	if names, _ := l.enter(c, map[string]bool{"A": true}); !slices.Equal(names, []string{"B", "C"}) {
		t.Errorf("when it joins again, %q are compared", names)
	}
}

// A command joins whatever its version and its variables are. Neither does it count as a client, nor does it keep the process.
func TestACommandOfTheOwnerIsServed(t *testing.T) {
	p := listen(t, func(o *Options) { o.Env = environment("A=1") })
	p.SetVariables([]string{"A"})
	c, err := Dial(p.Addr(), token, Joiner{Purpose: Operate}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test
	fmt.Fprintln(c, "hello")
	_ = c.CloseWrite()
	if echo, err := io.ReadAll(c); string(echo) != "hello\n" || err != nil {
		t.Errorf("%q, %v", echo, err)
	}
	if got := p.requests(); len(got) > 0 {
		t.Errorf("it counts as a client: %v", got)
	}
	for name, tt := range map[string]struct {
		token   switchboard.Secret
		purpose string
	}{
		"without the token":    {switchboard.NewSecret("guessed"), Operate},
		"with another purpose": {token, "watch"},
	} {
		if c, err := Dial(p.Addr(), tt.token, Joiner{Purpose: tt.purpose, Identity: "this"}, environment("A=1")); err == nil {
			t.Errorf("%s: %v", name, c)
		}
	}
	l := newListener(Options{Linger: -1})
	for range maxOperators {
		if why := l.enterOperator(); why != "" {
			t.Fatal(why)
		}
	}
	if why := l.enterOperator(); why == "" {
		t.Error("the number of commands is not bounded")
	}
}
