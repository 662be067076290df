package fault_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fault"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// This binary is also the programs that clients start: what stands before the
// real server, and that itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case "program":
			os.Exit(fault.Program(os.Args[2:]))
		case "server":
			if err := fault.ServeStdio(os.Args[2], fault.Ledger(os.Args[3])); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			return
		}
	}
	if err := flag.Set("test.parallel", "12"); err != nil { // the tests mostly wait for silence
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(m.Run())
}

const (
	patience = 30 * time.Second       // for anything that has to come, on a busy machine
	silence  = 300 * time.Millisecond // that is taken for a hang
)

// A world is a real server, what stands before it, and a client that looks at
// each byte.
type world struct {
	t      *testing.T
	on     fault.Transport
	ledger fault.Ledger
	cue    *fault.Cue

	// Of HTTP.
	url, direct string
	session     string
	conn        net.Conn // for requests
	in          *bufio.Reader

	// Of stdio.
	command []string
	program *exec.Cmd
	stdin   io.WriteCloser

	says *feed // the program, or a stream of HTTP with SSE

	// How long it waits for a response, or for the first that a program or a
	// stream says, and for what comes after that.
	first, stream, more time.Duration

	sent func() // called when a request was sent; nil means that nobody wants to know
}

func newWorld(t *testing.T, on fault.Transport) *world {
	t.Helper()
	w := &world{t: t, on: on, ledger: fault.Ledger(filepath.Join(t.TempDir(), "ledger"))}
	w.brace(fault.None)
	if on == fault.Stdio {
		p, err := fault.NewPipes()
		w.must(err)
		t.Cleanup(p.Close)
		self, err := os.Executable()
		w.must(err)
		w.cue = &p.Cue
		w.command = append([]string{self, "program"}, p.Args(self, "server", "real", string(w.ledger))...)
	} else {
		h := fault.NewHandler(on, "real", w.ledger)
		real := httptest.NewServer(h)
		t.Cleanup(func() {
			real.CloseClientConnections()
			real.Close()
		})
		p, err := fault.NewHTTP(on, real.URL+"/mcp", h.Restart)
		w.must(err)
		t.Cleanup(p.Close)
		w.cue, w.url, w.direct = &p.Cue, p.URL, real.URL+"/mcp"
	}
	w.open()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

const (
	initialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// open connects to the server, and does what comes before the first call.
func (w *world) open() {
	w.t.Helper()
	switch w.on {
	case fault.Stdio:
		w.start()
		w.write(initialize, 1)
		_, err := io.WriteString(w.stdin, initialized+"\n")
		w.must(err)
		return
	case fault.SSE:
		streaming := w.dial(w.url)
		_, err := fmt.Fprintf(streaming, "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
		w.must(err)
		resp, err := http.ReadResponse(bufio.NewReader(streaming), nil)
		w.must(err)
		w.says = newFeed(resp.Body)
		first, end := w.says.take("\n\n", 1, patience, patience)
		w.intime("the address", end)
		w.url = strings.TrimSuffix(w.url, "/mcp") + strings.TrimPrefix(strings.Join(first, ""), "event: endpoint\ndata: ")
	}
	w.conn = w.dial(w.url)
	w.in = bufio.NewReader(w.conn)
	if w.on == fault.Modern {
		return
	}
	w.session = w.post(initialize, 1).header.Get("Mcp-Session-Id")
	if w.on == fault.SSE {
		_, end := w.says.take("\n\n", 1, patience, patience)
		w.intime("the answer to initialize", end)
	}
	w.post(initialized, 0)
}

// intime ends the test as late if what it waited for patiently did not come.
func (w *world) intime(what, end string) {
	w.t.Helper()
	if end == "silence" {
		wait.Late(w.t, "%s: not after %s", what, patience)
	}
}

func (w *world) dial(address string) net.Conn {
	w.t.Helper()
	u, err := url.Parse(address)
	w.must(err)
	conn, err := net.Dial("tcp", u.Host)
	w.must(err)
	w.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (w *world) start() {
	w.t.Helper()
	w.program = exec.Command(w.command[0], w.command[1:]...)
	w.program.Stderr = os.Stderr
	var err error
	w.stdin, err = w.program.StdinPipe()
	w.must(err)
	out, err := w.program.StdoutPipe()
	w.must(err)
	w.must(w.program.Start())
	w.says = newFeed(out)
	program := w.program
	w.t.Cleanup(func() { _, _ = program.Process.Kill(), program.Wait() })
}

// A sight is what the client sees of one request.
type sight struct {
	status int
	header http.Header
	said   []string // bodies of responses to the request, and lines, or events without the rest of their frame
	end    string   // "", or how it broke: reset, silence, eof, refused
}

func (s *sight) String() string { return fmt.Sprintf("%d %.300q %s", s.status, s.said, s.end) }

// how names the end of a connection.
func how(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "silence"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "eof"
	}
	return err.Error()
}

// post sends a message over HTTP, and returns what comes: most messages or more,
// if there are none that came by another way.
func (w *world) post(body string, most int) (s sight) {
	u, _ := url.Parse(w.url)
	more := ""
	if w.session != "" {
		more = "Mcp-Session-Id: " + w.session + "\r\n"
	}
	if w.on == fault.Modern {
		more = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: stateful\r\n"
	}
	_, err := fmt.Fprintf(w.conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", u.RequestURI(), more, len(body), body)
	if err != nil {
		s.end = how(err)
		return s
	}
	if w.sent != nil {
		w.sent()
	}
	if w.on == fault.SSE {
		most = 0
	}
	for wait := w.first; ; {
		_ = w.conn.SetReadDeadline(time.Now().Add(wait))
		resp, err := http.ReadResponse(w.in, nil)
		if err != nil {
			if s.status == 0 || len(s.said) < most {
				s.end = how(err)
			}
			return s
		}
		s.status, s.header = resp.StatusCode, resp.Header
		_ = w.conn.SetReadDeadline(time.Now().Add(w.more))
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			s.end = how(s.events(resp.Body))
			return s
		}
		text, err := io.ReadAll(resp.Body)
		if len(text) > 0 {
			s.said = append(s.said, string(text))
		}
		if s.end = how(err); err != nil {
			return s
		}
		if wait = patience; len(s.said) >= most {
			wait = silence / 10 // there is no more
		}
	}
}

// events reads a stream of events to its end, or as many of it as anybody looks at.
func (s *sight) events(from io.Reader) error {
	event := ""
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadString('\n')
		if event += line; err != nil || line == "\n" {
			if text := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(event, "event: message\n"), "data: ")); text != "" {
				s.said = append(s.said, text)
			}
			event = ""
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil || len(s.said) == endless:
			return err
		}
	}
}

// A feed is what comes of a stream or a program.
type feed struct {
	pieces chan []byte
	err    error // when pieces is closed
	left   []byte
}

func newFeed(r io.Reader) *feed {
	f := &feed{pieces: make(chan []byte)}
	go func() {
		defer close(f.pieces)
		for {
			piece := make([]byte, 64<<10)
			n, err := r.Read(piece)
			if n > 0 {
				f.pieces <- piece[:n]
			}
			if f.err = err; err != nil {
				return
			}
		}
	}()
	return f
}

// take reads messages that end in end: the first most of them, or what there is
// when the first, or more after that, does not come for so long, or something does
// for twice as long. 0 means all. The last may lack its end.
func (f *feed) take(end string, most int, first, more time.Duration) (said []string, ending string) {
	most = cmp.Or(most, endless)
	wait := first
	var long <-chan time.Time
	for bytes.Count(f.left, []byte(end)) < most && ending == "" {
		select {
		case piece, ok := <-f.pieces:
			f.left = append(f.left, piece...)
			if !ok {
				ending = how(f.err)
			}
			if wait = more; long == nil {
				long = time.After(2 * more)
			}
		case <-time.After(wait):
			ending = "silence"
		case <-long:
			ending = "silence"
		}
	}
	for len(f.left) > 0 && len(said) < most {
		message, rest, _ := strings.Cut(string(f.left), end)
		said, f.left = append(said, message), []byte(rest)
	}
	return said, ending
}

// write writes the line, and returns what the program says to it.
func (w *world) write(line string, most int) (s sight) {
	w.t.Helper()
	_, err := io.WriteString(w.stdin, line+"\n")
	w.must(err)
	if w.sent != nil {
		w.sent()
	}
	s.said, s.end = w.says.take("\n", most, w.first, w.more)
	return s
}

const modernMeta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// callOf is a call with the key, whose id is 7.
func (w *world) callOf(key string) string {
	meta := ""
	if w.on == fault.Modern {
		meta = modernMeta
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"stateful","arguments":{"key":%q}%s}}`, key, meta)
}

// call makes a call with the key, and takes the first most messages of what comes.
func (w *world) call(key string, most int) sight {
	w.t.Helper()
	switch w.on {
	case fault.Stdio:
		return w.write(w.callOf(key), most)
	case fault.SSE:
		s := w.post(w.callOf(key), 0)
		said, end := w.says.take("\n\n", most, w.stream, w.more)
		if s.end == "" {
			s.end = end
		} else if end != "silence" {
			s.end += ", stream " + end
		}
		s.said = nil
		for _, event := range said {
			s.said = append(s.said, strings.TrimPrefix(event, "event: message\ndata: "))
		}
		return s
	}
	return w.post(w.callOf(key), most)
}

func (w *world) executed(key string) int {
	w.t.Helper()
	got, err := w.ledger.Executed(key)
	w.must(err)
	for server := range got {
		if server != "real" {
			w.t.Errorf("executed by %q", server)
		}
	}
	return got["real"]
}

// right is the answer to callOf.
func right(key string) string { return fault.Answer("real", fault.Stateful, key) }

func isRight(message, key string) bool {
	return strings.Contains(message, right(key)) && strings.Contains(message, `"id":7`) && json.Valid([]byte(message))
}

func everywhere(t *testing.T, f func(t *testing.T, on fault.Transport)) {
	for _, on := range fault.Transports {
		t.Run(string(on), func(t *testing.T) { f(t, on) })
	}
}

func TestWhatMeetsNoFaultPassesUntouched(t *testing.T) {
	everywhere(t, func(t *testing.T, on fault.Transport) {
		w := newWorld(t, on)
		for i := range 3 {
			key := fmt.Sprint("k", i)
			got := w.call(key, 1)
			if len(got.said) != 1 || !isRight(got.said[0], key) || w.executed(key) != 1 {
				t.Errorf("%s: %s, executed %d times", key, &got, w.executed(key))
			}
		}
		if w.cue.Met() != 0 {
			t.Errorf("%d requests met a fault", w.cue.Met())
		}
	})
}

// Of a byte that comes from either side none is changed.
func TestOfHTTPEveryBytePassesAsItCame(t *testing.T) {
	const odd = "HTTP/1.1 200  Fine, thanks\r\nx-odd:   Spaces \r\nX-ODD: twice\r\nContent-Length: 5\r\n\r\n{ } \t"
	const ask = "POST /a%2Fb?c=d HTTP/1.1\r\nhOST: localhost\r\nContent-Length:   3\r\nX-Empty:\r\n\r\n{ }"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing hangs on it
	asked := make(chan string, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close() //nolint:errcheck // nothing hangs on it
		got := make([]byte, len(ask))
		_, _ = io.ReadFull(conn, got)
		asked <- string(got)
		_, _ = io.WriteString(conn, odd)
	}()
	p, err := fault.NewHTTP(fault.Modern, "http://"+l.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // nothing hangs on it
	if _, err := io.WriteString(conn, ask); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != ask {
		t.Errorf("the server got %q, want %q", got, ask)
	}
	if got, err := io.ReadAll(conn); err != nil || string(got) != odd {
		t.Errorf("the client got %q, %v, want %q", got, err, odd)
	}
}

// endless is how many messages of an endless row a client looks at.
const endless = 100

// messages is how many the client gets in place of the answer, 0 where none is
// whole.
func messages(k fault.Kind) int {
	return map[fault.Kind]int{
		fault.Truncated: 1, fault.Malformed: 1, fault.WrongID: 1, fault.Huge: 1,
		fault.Duplicate: 2, fault.Garbage: 21, fault.Notifications: endless,
	}[k]
}

// A claim is what a client must see of a fault on a transport, and of a request
// after it on the same connection if that is there.
func claim(k fault.Kind, on fault.Transport, s *sight) string {
	key := "faulty"
	n := len(s.said)
	first := ""
	if n > 0 {
		first = s.said[0]
	}
	pipe, sse := on == fault.Stdio, on == fault.SSE
	want := func(ok bool, what string) string {
		if !ok {
			return what
		}
		return ""
	}
	// Of a request over SSE the post is answered, and then nothing breaks off.
	accepted := func() bool { return on != fault.SSE || s.status == http.StatusAccepted }
	switch k {
	case fault.Refuse:
		return want(n == 0 && (s.end == map[bool]string{true: "eof", false: "refused"}[pipe]), "no connection, no process")
	case fault.ResetBefore, fault.ResetAfter:
		return want(n == 0 && s.status == 0 && s.end == map[bool]string{true: "eof", false: "reset"}[pipe], "a reset, or the end of the output, and nothing before")
	case fault.ExitBefore, fault.ExitAfter:
		return want(n == 0 && s.status == 0 && s.end == map[fault.Transport]string{fault.Stdio: "eof", fault.SSE: "reset, stream reset"}[on] || n == 0 && s.end == "reset" && !pipe && !sse, "the end of all connections, and nothing before")
	case fault.HangBefore:
		return want(n == 0 && s.status == 0 && s.end == "silence", "silence")
	case fault.HangAfter:
		switch {
		case pipe:
			return want(n == 1 && strings.Contains(first, `"id":7`) && !strings.HasSuffix(first, "}") && s.end == "silence", "half of the answer, and silence")
		case sse:
			return want(n == 0 && accepted() && s.end == "silence", "a response to the post, and silence")
		}
		return want(n == 0 && s.status == 200 && s.end == "silence", "headers, and silence")
	case fault.Drip:
		switch {
		case pipe, sse:
			return want(n == 1 && accepted() && !strings.Contains(first, "}}"), "the beginning of the answer")
		}
		return want(s.status == 200 && s.end == "silence" && !strings.Contains(strings.Join(s.said, ""), "}}"), "the beginning of the answer")
	case fault.Truncated:
		return want(n == 1 && accepted() && strings.HasPrefix(first, `{"jsonrpc":"2.0"`) && !strings.Contains(first, "}}") && s.end != "reset" && s.end != "eof", "half of the answer in a whole frame")
	case fault.Malformed:
		return want(n == 1 && accepted() && strings.Contains(first, `"id":7`) && strings.Contains(first, `"content":[}`), "an answer that is no JSON")
	case fault.WrongID:
		return want(n == 1 && accepted() && strings.Contains(first, `"id":979999`) && strings.Contains(first, right(key)), "the answer with another id")
	case fault.Duplicate:
		return want(n == 2 && accepted() && isRight(first, key) && s.said[1] == first, "the answer twice")
	case fault.Garbage:
		return want(n == 21 && accepted() && isRight(s.said[20], key) && strings.Contains(first, "listening on port"), "20 pieces of garbage, and the answer")
	case fault.Notifications:
		return want(n == endless && accepted() && strings.Contains(first, "still busy, 0") && strings.Contains(s.said[49], "still busy, 49"), "notifications without end")
	case fault.Huge:
		return want(n == 1 && accepted() && len(first) > fault.HugeSize && isRight(first, key), "a result that is huge")
	}
	status := map[fault.Kind]int{fault.Status400: 400, fault.Status401: 401, fault.Status404: 404, fault.Status429: 429, fault.Status500: 500, fault.Status502: 502, fault.Status503: 503}[k]
	if k == fault.Status429 && s.header.Get("Retry-After") == "" || k == fault.Status401 && s.header.Get("WWW-Authenticate") == "" {
		return "headers that say more"
	}
	return want(s.status == status && !strings.Contains(strings.Join(s.said, ""), right(key)), fmt.Sprint("status ", status))
}

func TestEachFaultIsJustWhatTheTableSays(t *testing.T) {
	for _, f := range fault.Table {
		t.Run(string(f.Kind), func(t *testing.T) {
			t.Parallel()
			everywhere(t, func(t *testing.T, on fault.Transport) {
				if !f.On(on) {
					if f.About(on) == "" {
						t.Error("the table does not say why there is no such fault")
					}
					return
				}
				t.Parallel()
				w := newWorld(t, on)
				w.cue.Arm(fault.Order{Kind: f.Kind, Key: "faulty"})
				if got := w.bystander(&f); got != "" {
					t.Errorf("a call that is not meant: %s", got)
				}
				got := w.meet(&f)
				if want := claim(f.Kind, on, &got); want != "" {
					t.Errorf("want %s; got %s", want, &got)
				}
				n := 0
				if f.Executes {
					n = 1
				}
				if w.executed("faulty") != n {
					t.Errorf("executed %d times, want %d", w.executed("faulty"), n)
				}
				if f.Answers != slices.ContainsFunc(got.said, func(m string) bool { return isRight(m, "faulty") }) && f.Kind != fault.Huge {
					t.Errorf("the table says of a right answer: %v; got %s", f.Answers, &got)
				}
				if met := map[bool]int{false: 1}[f.Kind == fault.Refuse]; w.cue.Met() != met {
					t.Errorf("%d requests met the fault, want %d", w.cue.Met(), met)
				}
				w.cue.Disarm()
				again := w.again()
				if !slices.ContainsFunc(again.said, func(m string) bool { return isRight(m, "after") }) || w.executed("after") != 1 {
					t.Errorf("after it was disarmed: %s", &again)
				}
			})
		})
	}
}

// bystander makes a call that the fault is not for. A server that refuses
// connections does so to all.
func (w *world) bystander(f *fault.Fault) string {
	if f.Kind == fault.Refuse {
		return ""
	}
	if got := w.call("bystander", 1); len(got.said) != 1 || !isRight(got.said[0], "bystander") {
		return got.String()
	}
	return ""
}

// meet makes the call that the fault is for. Where connections are refused, it is
// made over a new one.
func (w *world) meet(f *fault.Fault) (s sight) {
	w.t.Helper()
	if f.Kind != fault.Refuse {
		w.brace(f.Kind)
		n := messages(f.Kind)
		s = w.call("faulty", n)
		w.brace(fault.None)
		if 0 < n && n < endless && w.says != nil {
			more, _ := w.says.take("\n", 1, silence, silence)
			s.said = append(s.said, more...)
		}
		return s
	}
	if w.on == fault.Stdio {
		_ = w.program.Wait()
		w.start()
		_, s.end = w.says.take("\n", 1, patience, patience)
		w.intime("the end of the program", s.end)
		return s
	}
	_ = w.conn.SetReadDeadline(time.Now().Add(patience))
	_, err := w.in.ReadByte()
	w.intime("the end of an idle connection", how(err))
	if how(err) != "eof" && how(err) != "reset" {
		w.t.Errorf("a connection that was idle: %v", err)
	}
	u, _ := url.Parse(w.url)
	_, err = net.Dial("tcp", u.Host)
	s.end = how(err)
	return s
}

// brace says where silence is what has to come: on a machine that is busy, all else
// may take its time, and silence begins when the server has done its part.
func (w *world) brace(k fault.Kind) {
	w.first, w.stream, w.more, w.sent = patience, patience, patience, nil
	switch k {
	case fault.HangBefore:
		w.first, w.stream = silence, silence
		w.sent = func() {
			wait.Until(w.t, "the faulty call is executed", func() bool { return w.executed("faulty") > 0 })
		}
	case fault.HangAfter:
		w.stream, w.more = silence, silence
	case fault.Drip:
		w.more = silence
	case fault.ResetBefore, fault.ResetAfter, fault.Status400, fault.Status401, fault.Status404, fault.Status429, fault.Status500, fault.Status502, fault.Status503:
		w.stream = silence // which the fault leaves open
	}
}

// again makes a call that meets no fault, over connections of its own.
func (w *world) again() sight {
	w.t.Helper()
	if w.on == fault.Stdio {
		_, _ = w.program.Process.Kill(), w.program.Wait()
	} else {
		w.url, w.session = "http://"+w.dial(w.url).RemoteAddr().String()+"/mcp", ""
	}
	w.open()
	return w.call("after", 1)
}

func TestAFaultIsForSoManyRequestsOfOneMethod(t *testing.T) {
	everywhere(t, func(t *testing.T, on fault.Transport) {
		w := newWorld(t, on)
		w.cue.Arm(fault.Order{Kind: fault.WrongID, Times: 2})
		for i, want := range []bool{false, false, true, true} {
			key := fmt.Sprint("k", i)
			if got := w.call(key, 1); len(got.said) != 1 || isRight(got.said[0], key) != want {
				t.Errorf("call %d: right is %v; got %s", i, want, &got)
			}
		}
		if on == fault.Modern || on == fault.SSE {
			return // the one has no ping, and the other answers it elsewhere
		}
		w.cue.Arm(fault.Order{Kind: fault.WrongID, Method: "ping"})
		if got := w.call("other", 1); len(got.said) != 1 || !isRight(got.said[0], "other") {
			t.Errorf("a call, where the fault is for pings: %s", &got)
		}
		const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
		got := sight{}
		if on == fault.Stdio {
			got = w.write(ping, 1)
		} else {
			got = w.post(ping, 1)
		}
		if len(got.said) != 1 || !strings.Contains(got.said[0], `"id":979999`) {
			t.Errorf("a ping: %s", &got)
		}
		if w.cue.Met() != 3 {
			t.Errorf("%d requests met a fault, want 3", w.cue.Met())
		}
	})
}
