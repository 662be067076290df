package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bridge"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A stream is one direction of a connection in memory. Like a socket, it holds what is not read yet.
type stream struct {
	mu     sync.Mutex
	moved  sync.Cond
	unread bytes.Buffer
	closed bool
}

func newStream() *stream {
	s := &stream{}
	s.moved.L = &s.mu
	return s
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, io.ErrClosedPipe
	}
	defer s.moved.Broadcast()
	return s.unread.Write(p)
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.unread.Len() == 0 && !s.closed {
		s.moved.Wait()
	}
	return s.unread.Read(p)
}

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.moved.Broadcast()
	return nil
}

// pipeConn is one end of a connection.
type pipeConn struct{ in, out *stream }

func (c pipeConn) Read(p []byte) (int, error)     { return c.in.Read(p) }
func (c pipeConn) Write(p []byte) (int, error)    { return c.out.Write(p) }
func (c pipeConn) Close() error                   { return errors.Join(c.in.Close(), c.out.Close()) }
func (c pipeConn) CloseWrite() error              { return c.out.Close() }
func (pipeConn) SetWriteDeadline(time.Time) error { return nil }

// A fakeProcess is the other end of a connection, which the test plays.
type fakeProcess struct {
	t    *testing.T
	conn pipeConn
	in   *bufio.Reader
}

// gets reads the next message of the bridge, and compares it.
func (p *fakeProcess) gets(want string) string {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	line = strings.TrimSuffix(line, "\n")
	if err != nil || !strings.Contains(line, want) {
		p.t.Fatalf("the process gets %q, %v; want %q", line, err, want)
	}
	return line
}

func (p *fakeProcess) says(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.conn, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// begins plays both steps of the beginning of a request.
func (p *fakeProcess) begins(id string) {
	p.t.Helper()
	p.says(`{"jsonrpc":"2.0","method":"io.switchboard/received","params":{"id":%s}}`, id)
	p.gets(`"method":"io.switchboard/begin","params":{"id":` + id + `}`)
}

// ends ends the process.
func (p *fakeProcess) ends() { _ = p.conn.Close() }

// A world is a bridge between a client and processes, which the test plays.
type world struct {
	t      *testing.T
	client pipeConn
	in     *bufio.Reader
	opened chan *fakeProcess // receives each process that the bridge connects to
	hurry  chan struct{}
	stop   context.CancelFunc
	ended  chan error

	mu     sync.Mutex
	refuse error // of the next connections
	search bool  // the next connections are not found until the context ends
}

func newPipes() (a, b pipeConn) {
	there, back := newStream(), newStream()
	return pipeConn{back, there}, pipeConn{there, back}
}

// start runs a bridge, in a bubble.
func start(t *testing.T) (*world, *fakeProcess) {
	t.Helper()
	client, own := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, client: client, in: bufio.NewReader(client), opened: make(chan *fakeProcess, 100), hurry: make(chan struct{}), stop: cancel, ended: make(chan error, 1)}
	go func() {
		w.ended <- bridge.Run(ctx, bridge.Options{
			In: own, Out: own, MaxIn: 1 << 20, MaxOut: 1 << 20, TooLong: []byte(`{"too":"long"}`), IDInUse: []byte(`{"id":"in use"}`), Hurry: w.hurry, Log: slog.New(slog.DiscardHandler),
			Connect: func(ctx context.Context, n int) (bridge.Connection, error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if w.search {
					w.mu.Unlock()
					<-ctx.Done()
					w.mu.Lock()
					return nil, ctx.Err()
				}
				if w.refuse != nil {
					return nil, w.refuse
				}
				near, far := newPipes()
				w.opened <- &fakeProcess{t, far, bufio.NewReader(far)}
				return near, nil
			},
			Malformed: func(err error) []byte { return fmt.Appendf(nil, `{"malformed":%q}`, err) },
			Refuse: func(id []byte, method string, modern bool, e *switchboard.Error) []byte {
				return fmt.Appendf(nil, `{"refused":%s,"method":%q,"modern":%t,"code":%q}`, id, method, modern, e.Code)
			},
			IsStopping: func(object []byte) bool { return strings.Contains(string(object), "stopping") },
		})
		_ = own.out.Close()
	}()
	return w, <-w.opened
}

func (w *world) sends(format string, args ...any) {
	w.t.Helper()
	if _, err := fmt.Fprintf(w.client, format+"\n", args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) gets(want ...string) {
	w.t.Helper()
	for _, want := range want {
		line, err := w.in.ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			w.t.Fatalf("the client gets %q, %v; want %q", line, err, want)
		}
	}
}

// leaves ends the client's messages, and waits for the end of the bridge.
func (w *world) leaves(last *fakeProcess) {
	w.t.Helper()
	_ = w.client.CloseWrite()
	if _, err := last.in.ReadString('\n'); err != io.EOF {
		w.t.Errorf("after the end of the client, the process gets %v", err)
	}
	last.ends()
	if err := <-w.ended; err != nil {
		w.t.Errorf("the bridge ends with %v", err)
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25"}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	modernMeta  = `"_meta":{"` + wire.MetaProtocolVersion + `":"2026-07-28"}`
)

// opens plays the opening of a legacy client.
func (w *world) opens(p *fakeProcess) {
	w.t.Helper()
	w.sends(initialize)
	p.gets(initialize)
	p.says(`{"jsonrpc":"2.0","id":"i","result":{"first":true}}`)
	w.gets(`{"first":true}`)
	w.sends(initialized)
	p.gets(initialized)
}

// reopens plays the opening that the bridge repeats, and returns when the client has been told of changes.
func (w *world) reopens(p *fakeProcess) {
	w.t.Helper()
	again := p.gets(`"method":"initialize"`)
	m, err := wire.ParseEnvelope([]byte(again))
	if err != nil || string(m.ID) == `"i"` {
		w.t.Fatalf("%v: %s", err, again)
	}
	p.says(`{"jsonrpc":"2.0","id":%s,"result":{"second":true}}`, m.ID)
	p.gets(initialized)
}

func (w *world) isToldOfChanges() {
	w.t.Helper()
	w.gets("notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed")
}

func TestASessionContinuesAtTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"error"}}`)
		p.gets("setLevel")
		p.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.gets(`"id":1`)
		for i, uri := range []string{"a://1", "a://2"} {
			w.sends(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, 2+i, uri)
			p.gets(uri)
			p.says(`{"jsonrpc":"2.0","id":%d,"result":{}}`, 2+i)
			w.gets(fmt.Sprintf(`"id":%d`, 2+i))
		}
		w.sends(`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a://1"}}`)
		p.gets("unsubscribe")
		p.says(`{"jsonrpc":"2.0","id":4,"result":{}}`)
		w.gets(`"id":4`)
		for range 3 {
			p.ends()
			p = <-w.opened
			w.reopens(p)
			for _, want := range []string{"setLevel", "a://2"} {
				m, _ := wire.ParseEnvelope([]byte(p.gets(want)))
				p.says(`{"jsonrpc":"2.0","id":%s,"result":{"hidden":true}}`, m.ID)
			}
			w.isToldOfChanges()
			w.sends(`{"jsonrpc":"2.0","id":5,"method":"tools/list"}`)
			p.gets(`"id":5`)
			p.says(`{"jsonrpc":"2.0","id":5,"result":{}}`)
			w.gets(`"id":5`)
		}
		w.leaves(p)
	})
}

func TestOnlyRequestsThatCannotHaveBegunAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		for i, m := range []string{
			`"method":"tools/call","params":{"name":"begun"}`,
			`"method":"tools/call","params":{"name":"unbegun"}`,
			`"method":"tools/list"`,
			`"method":"tools/call","params":{"name":"keyed","_meta":{"io.switchboard/idempotency-key":"k"}}`,
			`"method":"resources/read","params":{"uri":"a://1",` + modernMeta + `}`,
		} {
			w.sends(`{"jsonrpc":"2.0","id":%d,%s}`, i, m)
			p.gets(fmt.Sprintf(`"id":%d`, i))
		}
		for _, id := range []string{"0", "3", "4"} {
			p.begins(id)
		}
		p.ends()
		w.gets(`{"refused":0,"method":"tools/call","modern":false,"code":"SB-EXEC-004"}`, `{"refused":4,"method":"resources/read","modern":true,"code":"SB-EXEC-004"}`)
		p = <-w.opened
		w.reopens(p)
		for _, want := range []string{"unbegun", "tools/list", "keyed"} {
			p.gets(want)
		}
		w.isToldOfChanges()
		p.begins("1")
		p.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.gets(`"id":1`)
		p.ends() // the others have one more chance
		p = <-w.opened
		w.reopens(p)
		p.gets("tools/list")
		p.gets("keyed")
		w.isToldOfChanges()
		p.ends()
		w.gets(`{"refused":2,"method":"tools/list","modern":false,"code":"SB-EXEC-002"}`, `{"refused":3,"method":"tools/call","modern":false,"code":"SB-EXEC-002"}`)
		p = <-w.opened
		w.reopens(p)
		w.isToldOfChanges()
		w.leaves(p)
	})
}

func TestARequestThatAStoppingProcessRefusesGoesToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
		p.gets(`"id":1`)
		p.says(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"stopping"}}`)
		w.sends(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"y"}}`)
		p.gets(`"id":2`)
		p.says(`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"another error"}}`)
		w.gets(`another error`)
		p.ends()
		p = <-w.opened
		w.reopens(p)
		p.gets(`{"name":"x"}`)
		w.isToldOfChanges()
		p.begins("1")
		p.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.gets(`"id":1`)
		w.leaves(p)
	})
}

// The answer to a question of a process that has ended never reaches another question.
func TestQuestionsEndWithTheirProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		p.says(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}`)
		p.says(`{"jsonrpc":"2.0","id":2,"method":"roots/list"}`)
		w.gets("roots/list", "roots/list")
		w.sends(`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`)
		p.gets(`"id":1`)
		p.ends()
		w.gets(`"method":"notifications/cancelled","params":{"requestId":2`)
		p = <-w.opened
		w.reopens(p)
		w.isToldOfChanges()
		w.sends(`{"jsonrpc":"2.0","id":2,"result":{"roots":["late"]}}`)
		w.sends(`{"jsonrpc":"2.0","method":"io.switchboard/begin","params":{"id":7}}`) // no client may say this
		w.sends(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		p.gets(`"id":3`)
		p.says(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		w.gets(`"id":3`)
		w.leaves(p)
	})
}

func TestAModernStreamContinuesAndIsToldOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.sends(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},%s}}`, modernMeta)
		p.gets("subscriptions/listen")
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"},"notifications":{"toolsListChanged":true}}}`
		p.says(ack)
		w.gets("acknowledged")
		for range 4 { // more often than a request without an answer is sent
			p.ends()
			p = <-w.opened
			p.gets("subscriptions/listen")
			w.gets(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}`)
			p.says(ack)
			p.says(`{"jsonrpc":"2.0","method":"notifications/message"}`) // the second acknowledgement is hidden
			w.gets("notifications/message")
			time.Sleep(2 * time.Minute) // the connection was a good one
		}
		w.leaves(p)
	})
}

// A process that sends nothing, not even the answer to a ping, is given up, if it owes an answer. A slow one, or an idle one, is not.
func TestOnlyAProcessThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		time.Sleep(time.Hour + time.Second) // between two looks of the bridge, so that no ping comes before what is begun
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow"}}`)
		p.gets(`"id":1`)
		p.begins("1")
		for range 20 {
			m, _ := wire.ParseEnvelope([]byte(p.gets(`"method":"ping"`)))
			p.says(`{"jsonrpc":"2.0","id":%s,"result":{}}`, m.ID)
		}
		began := time.Now()
		go func() { _, _ = io.Copy(io.Discard, p.in) }()
		w.gets(`"code":"SB-EXEC-004"`)
		if took := time.Since(began); took < 15*time.Second || took > 30*time.Second {
			t.Errorf("it was given up after %v", took)
		}
		p = <-w.opened
		w.reopens(p)
		w.isToldOfChanges()
		w.leaves(p)
	})
}

// A client that sends a request and leaves gets its answer, also if the process must still be told to begin.
func TestAtTheEndOfTheClientRequestsInFlightAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",%s}}`, modernMeta)
		_ = w.client.CloseWrite()
		p.gets(`"id":1`)
		synctest.Wait()
		p.begins("1")
		if _, err := p.in.ReadString('\n'); err != io.EOF {
			t.Errorf("after the end of the client, the process gets %v", err)
		}
		p.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.gets(`"id":1`)
		p.ends()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
	})
}

// Only what the process reads as a request counts as one. A malformed one would never be answered under its id, and would keep the
// bridge from ending.
func TestMalformedMessagesAreAnsweredHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.sends(`{"method":"tools/call","params":{"name":"a","name":"b"},"jsonrpc":"2.0","id":1}`)
		w.gets(`{"malformed":`)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}`)
		w.gets(`{"malformed":`)
		w.sends(`[]`)
		w.gets(`{"malformed":`)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) // the id is free
		p.gets(`"id":1`)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`)
		w.gets(`{"id":"in use"}`)
		p.says(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		w.gets(`"id":1,"result"`)
		if _, err := io.WriteString(w.client, `{"jsonrpc":"2.0","id":2,"met`); err != nil { // the last line is cut off
			t.Fatal(err)
		}
		_ = w.client.CloseWrite()
		w.gets(`{"malformed":`)
		w.leaves(p)
	})
}

// A server chooses the words of its errors. Only an error that comes before the begin can be Switchboard's own.
func TestAnErrorOfAServerIsNotTakenForThatOfAStoppingProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"keyed","_meta":{"io.switchboard/idempotency-key":"k"}}}`)
		p.gets(`"id":1`)
		p.begins("1")
		p.says(`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"stopping"}}`)
		w.gets(`"id":1,"error"`)
		w.leaves(p)
	})
}

// A signal while there is no process ends the bridge, and each request gets an answer.
func TestRequestsThatWaitForAProcessAreAnsweredAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sent",%s}}`, modernMeta)
		p.gets(`"id":1`)
		w.mu.Lock()
		w.search = true
		w.mu.Unlock()
		p.ends()
		synctest.Wait()
		w.sends(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"unsent",%s}}`, modernMeta)
		synctest.Wait()
		w.stop()
		answers := map[string]bool{}
		for range 2 {
			line, err := w.in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			answers[line] = true
		}
		for _, want := range []string{`{"refused":1,"method":"tools/call","modern":true,"code":"SB-ROUT-003"}`, `{"refused":2,"method":"tools/call","modern":true,"code":"SB-ROUT-003"}`} {
			if !answers[want+"\n"] {
				t.Errorf("%v lacks %s", answers, want)
			}
		}
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		_ = w.client.CloseWrite()
	})
}

func TestASignalRefusesNewRequestsAndTheSecondOneHurries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",%s}}`, modernMeta)
		p.gets(`"id":1`)
		p.begins("1")
		w.stop()
		synctest.Wait()
		w.sends(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`)
		w.gets(`{"refused":2,"method":"tools/list","modern":false,"code":"SB-ROUT-003"}`)
		close(w.hurry)
		w.gets(`{"refused":1,"method":"tools/call","modern":true,"code":"SB-EXEC-004"}`)
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		_ = w.client.CloseWrite()
		p.ends()
	})
}

func TestTheBridgeEndsIfThereIsNoOtherProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse error
		want   string
	}{
		"none can be found": {errors.New("no room"), "no room"},
		"each ends at once": {nil, "5 times in a row"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := start(t)
				w.mu.Lock()
				w.refuse = tt.refuse
				w.mu.Unlock()
				w.sends(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x",%s}}`, modernMeta)
				p.gets(`"id":1`)
				go func() { _, _ = io.Copy(io.Discard, w.in) }()
				p.ends()
				for range 10 {
					select {
					case p := <-w.opened:
						p.ends()
					case err := <-w.ended:
						if err == nil || !strings.Contains(err.Error(), tt.want) {
							t.Errorf("it ends with %v", err)
						}
						_ = w.client.Close()
						return
					}
				}
				t.Error("it does not end")
			})
		})
	}
}

// What is kept in order to be sent again is bounded. What is not kept is not sent again, and the client is told that nothing was done.
func TestWhatIsKeptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := start(t)
		w.opens(p)
		const large = 12 // of almost 1 MiB each
		for i := range large {
			w.sends(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":{"x":%q}}}`, i, strings.Repeat("x", 1<<20-200))
			p.gets(fmt.Sprintf(`"id":%d`, i))
		}
		synctest.Wait()
		p.ends()
		for i := range large - 8 {
			w.gets(fmt.Sprintf(`{"refused":%d,"method":"tools/call","modern":false,"code":"SB-EXEC-002"}`, 8+i))
		}
		p = <-w.opened
		w.reopens(p)
		for i := range 8 {
			p.gets(fmt.Sprintf(`"id":%d`, i))
		}
		w.isToldOfChanges()
		w.sends(`{"x":%q}`, strings.Repeat("x", 2<<20))
		w.gets(`{"too":"long"}`)
		for i := range 8 {
			p.says(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i)
			w.gets(fmt.Sprintf(`"id":%d`, i))
		}
		w.leaves(p)
	})
}
