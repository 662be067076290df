package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A cable is a client on stdio.
type cable struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Reader
	outR *io.PipeReader
	done chan error

	theirIn  *io.PipeReader
	theirOut *io.PipeWriter
}

// cable returns a cable without a gateway at its other end.
func (w *world) cable() *cable {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	return &cable{w.t, inW, bufio.NewReaderSize(outR, 1<<20), outR, make(chan error, 1), inR, outW}
}

// stdio starts the gateway's side for the task.
func (w *world) stdio(ctx context.Context, task switchboard.TaskID) *cable {
	return w.stdioOf(ctx, stdioPrincipal, task)
}

func (w *world) stdioOf(ctx context.Context, who func() switchboard.Principal, task switchboard.TaskID) *cable {
	c := w.cable()
	go func() {
		c.done <- w.ServeStdio(ctx, gateway.Stdio{In: c.theirIn, Out: c.theirOut, Principal: who, Task: task, Grace: nineSeconds})
		_ = c.theirOut.Close()
	}()
	return c
}

// nineSeconds is the grace of stdio in these tests.
func nineSeconds() <-chan struct{} { return closedAfter(9 * time.Second) }

func (c *cable) send(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		c.t.Fatalf("sending %.100s: %v", line, err)
	}
}

func (c *cable) next() string {
	c.t.Helper()
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("receiving: %v after %q", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// end closes the client's side and returns the error of ServeStdio.
func (c *cable) end() error {
	_ = c.in.Close()
	go io.Copy(io.Discard, c.out) //nolint:errcheck // it ends with the other side
	return <-c.done
}

func TestStdioGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/stdio/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			w := newGateway(t)
			playAll(w)
			c := w.stdio(t.Context(), "")
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out []txtar.File
			for _, f := range a.Files {
				if f.Name != "send" {
					continue
				}
				line := strings.TrimSuffix(string(f.Data), "\n")
				c.send(line)
				out = append(out, f)
				m, err := wire.Parse([]byte(line))
				if line == "" || err == nil && m.Kind != wire.Request {
					continue
				}
				var got strings.Builder
				for {
					l := c.next()
					got.WriteString(l + "\n")
					if m, err := wire.Parse([]byte(l)); err != nil || m.Kind == wire.Response {
						break
					}
				}
				out = append(out, txtar.File{Name: "receive", Data: []byte(got.String())})
			}
			if err := c.end(); err != nil {
				t.Errorf("in the end: %v", err)
			}
			compare(t, file, a, out)
		})
	}
}

func TestStdioInitializeReportsATaskThatCannotStart(t *testing.T) {
	for task, want := range map[switchboard.TaskID]string{"nosuch": `"code":"SB-TASK-001","retryable":"no"`, "unmet": `"code":"SB-CAP-004","retryable":"no","requirement":`} {
		w := newGateway(t)
		c := w.stdio(t.Context(), task)
		c.send(initialize)
		if got := c.next(); !strings.Contains(got, want) {
			t.Errorf("task %s: %s", task, got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
	}
}

func TestStdioCallsRunConcurrently(t *testing.T) {
	w := newGateway(t)
	s := w.stalls()
	c := w.stdio(t.Context(), "")
	c.send(initialize)
	c.next()
	c.send(legacyCall("1", "stall", ""))
	c.send(legacyCall("2", "stall", ""))
	<-s.in
	<-s.in
	c.send(legacyCall("3", "echo", ""))
	if got := c.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":3,"result"`) {
		t.Errorf("while two calls stall: %s", got)
	}
	c.send(legacyCall("1", "echo", ""))
	if got := c.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600`) {
		t.Errorf("JS-06, an id that is in flight: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-s.ended
	for {
		c.send(legacyCall("1", "echo", ""))
		got := c.next()
		if strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result":{"content":[],"echo"`) {
			break // the id is free when the call has returned
		}
		if !strings.Contains(got, "still in flight") {
			t.Fatalf("the id of the call that was cancelled: %s", got)
		}
	}
	_ = c.in.Close() // the last call finishes all the same
	close(s.out)
	if got := c.next(); got != `{"jsonrpc":"2.0","id":2,"result":{"content":["went on"]}}` {
		t.Errorf("after the end of stdin: %s", got)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

func TestStdioClientsOfBothErasAreNotifiedOfAChangedList(t *testing.T) {
	w := newGateway(t)
	c := w.stdio(t.Context(), "")
	c.send(initialize)
	c.next()
	w.change("one")
	if got := c.next(); got != listChanged {
		t.Errorf("legacy: %s", got)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}

	c = w.stdio(t.Context(), "")
	listen, _ := modern("7", "subscriptions/listen", `"notifications":{"toolsListChanged":true},`, "")
	c.send(listen)
	c.next()
	w.change("two")
	if got := c.next(); got != `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}` {
		t.Errorf("modern: %s", got)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
	c.send(listen) // the id is free when the first has ended
	for got := c.next(); !strings.Contains(got, "acknowledged"); got = c.next() {
		c.send(listen)
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

func TestStdioRunIsKeptHoweverLongItIsUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		c := w.stdio(t.Context(), "")
		list, _ := modern("1", "tools/list", "", "")
		c.send(list)
		c.next()
		time.Sleep(24 * time.Hour)
		w.runs.Sweep(t.Context())
		w.change("new")
		c.send(list)
		if got := c.next(); !strings.Contains(got, `{"name":"new"`) {
			t.Errorf("the list of the next day: %s", got)
		}
		if err := c.end(); err != nil {
			t.Error(err)
		}
		time.Sleep(24 * time.Hour)
		if w.runs.Sweep(t.Context()); len(w.runs.All()) != 0 {
			t.Error("the run outlives its process")
		}
	})
}

func TestStdioLinesHaveAMaximumLength(t *testing.T) {
	w := newGateway(t)
	c := w.stdio(t.Context(), "")
	c.send(initialize)
	c.next()
	c.send(legacyCall("1", "echo", `,"arguments":{"a":"`+strings.Repeat("x", gateway.MaxMessage)+`"}`))
	if got := c.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600`) {
		t.Errorf("a line too long: %.200s", got)
	}
	c.send(legacyCall("2", "echo", ""))
	if got := c.next(); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("the next line: %s", got)
	}
	if w.calls() != 1 {
		t.Errorf("%d calls", w.calls())
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

func TestStdioCutsCallsThatDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		s := w.stalls()
		c := w.stdio(t.Context(), "")
		c.send(initialize)
		c.next()
		c.send(legacyCall("1", "stall", ""))
		<-s.in
		start := time.Now()
		_ = c.in.Close()
		if got := c.next(); !strings.HasPrefix(got, `{"jsonrpc":"2.0","id":1,"result"`) || !strings.Contains(got, "Switchboard was stopped") || !strings.Contains(got, "SB-EXEC-004") {
			t.Errorf("the call that did not end: %s", got)
		}
		if err := c.end(); err != nil || time.Since(start) != 9*time.Second || len(s.ended) != 1 {
			t.Errorf("after %s: %v, %d calls cancelled", time.Since(start), err, len(s.ended))
		}
		if log := w.log.String(); !strings.Contains(log, "msg=stopping calls_in_flight=1") || !strings.Contains(log, `msg="calls cut" calls=1`) {
			t.Errorf("the log:\n%s", log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		s := w.stalls()
		c := w.stdio(t.Context(), "")
		c.send(initialize)
		c.next()
		c.send(legacyCall("1", "stall", ""))
		<-s.in
		start := time.Now()
		_ = c.in.Close() // and the client does not read
		if err := <-c.done; err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("when the client does not read the last answer, after %s: %v", time.Since(start), err)
		}
		_ = c.outR.Close()
	})
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		ctx, stop := context.WithCancel(t.Context())
		c := w.stdio(ctx, "")
		c.send(initialize)
		c.next()
		stop()
		if err := <-c.done; err != nil {
			t.Errorf("when the context is done: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newGateway(t)
		c := w.stdio(t.Context(), "")
		_ = c.outR.CloseWithError(errors.New("nobody reads"))
		c.send(initialize)
		if err := <-c.done; err == nil || err.Error() != "nobody reads" {
			t.Errorf("when the client does not read: %v", err)
		}
	})
}

// A process on stdio may live for weeks, and reloads may change its rights.
func TestEachStdioCallIsMadeByThePrincipalOfThatMoment(t *testing.T) {
	w := newGateway(t)
	w.play("echo", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		return switchboard.Result{JSON: []byte(`{"tier":"` + c.Principal.Tier + `"}`)}, nil
	})
	var tier atomic.Value
	tier.Store("pro")
	c := w.stdioOf(t.Context(), func() switchboard.Principal {
		p := stdioPrincipal()
		p.Tier = tier.Load().(string)
		return p
	}, "")
	c.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	c.next()
	for _, want := range []string{"pro", "free"} {
		tier.Store(want)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`)
		if got := c.next(); !strings.Contains(got, `"tier":"`+want+`"`) {
			t.Errorf("got %s, want tier %s", got, want)
		}
	}
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

// stdioPrincipal returns the principal on stdio in these tests.
func stdioPrincipal() switchboard.Principal {
	return switchboard.Principal{Tenant: "default", ID: "local", Auth: switchboard.AuthLocal}
}
