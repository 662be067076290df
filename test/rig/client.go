package rig

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Text returns the text of a result, or the whole message if it has none.
func (m Message) Text() string {
	var r struct{ Content []struct{ Text string } }
	if err := json.Unmarshal(m.Result, &r); err != nil || len(r.Content) == 0 {
		return string(m.Raw)
	}
	return r.Content[0].Text
}

// Listen opens a stream, waits until it is open, and sends who to heard at each list_changed.
func Listen(t *testing.T, heard chan<- string, who, method, url, body string, header http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Accept", "application/json, text/event-stream")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s stream: %v, %v", who, resp, err)
	}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "notifications/tools/list_changed") {
				heard <- who
				return
			}
		}
	}()
}

// Code returns the code of a refusal; "" means that the request was not refused.
func Code(m Message) string {
	switch said, ok := refusalOf(m); {
	case ok:
		return said.Code
	case m.Error != nil:
		return fmt.Sprint("error ", m.Error.Code)
	default:
		return string(m.Raw)
	}
}

// SayStoreIsLate ends the test as late if the store or the disk was too busy for the call: the call was refused for that, and not made.
func SayStoreIsLate(t testing.TB, m Message) {
	t.Helper()
	if code := Code(m); code == "SB-ROUT-004" || code == "SB-RCPT-001" {
		wait.Late(t, "the store was busy: %.300s", m.Raw)
	}
}

// Receipt returns the id of the receipt that a refusal names, or "".
func Receipt(m Message) string {
	said, _ := refusalOf(m)
	return said.Receipt
}

// refusal is what Switchboard says of a refusal besides its text.
type refusal struct{ Code, Receipt string }

// refusalOf returns the refusal in the message. It is zero if the message is not an error. ok is false if the message is an error
// of a server, which has no code of ours.
func refusalOf(m Message) (said refusal, ok bool) {
	if m.Error != nil {
		err := json.Unmarshal(m.Error.Data, &said)
		return said, err == nil && said.Code != ""
	}
	var r struct {
		IsError bool
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(m.Result, &r)
	if !r.IsError {
		return refusal{}, true
	}
	for _, raw := range r.Meta {
		if json.Unmarshal(raw, &said) == nil && said.Code != "" {
			return said, true
		}
	}
	return refusal{}, false
}

// Call calls a tool, and returns Code of the answer.
func Call(t *testing.T, s Session, tool, arguments string) string {
	t.Helper()
	m, _ := s.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, arguments))
	if m.Result == nil && m.Error == nil {
		return "no answer"
	}
	return Code(m)
}

// Try calls a tool with an id in its arguments, and returns the answer or the error. If HasKey(id), the id is the idempotency key too.
func (s *HTTPSession) Try(tool string, id int) Attempt {
	a := Attempt{ID: id, Began: time.Now()}
	params := fmt.Sprintf(`{"name":%q,"arguments":{"id":%d}}`, tool, id)
	if HasKey(id) {
		params = fmt.Sprintf(`{"_meta":{"io.switchboard/idempotency-key":"%d"},`, id) + strings.TrimPrefix(params, "{")
	}
	header := s.Header.Clone()
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")
	if s.Modern {
		params = WithMeta(params)
		header.Set("Mcp-Protocol-Version", "2026-07-28")
		header.Set("Mcp-Method", "tools/call")
		header.Set("Mcp-Name", tool)
	} else {
		header.Set("Mcp-Session-Id", s.ID)
		header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	req, err := http.NewRequest(http.MethodPost, s.URL, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, params)))
	if err != nil {
		panic(err)
	}
	req.Header = header
	resp, err := patiently.Do(req)
	if err == nil {
		a.Status = resp.StatusCode
		var raw []byte
		raw, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if at := strings.LastIndex(string(raw), "data: "); at >= 0 {
			raw = raw[at+len("data: "):]
		}
		a.Answer = ParseMessage(raw)
	}
	a.Err, a.End = err, time.Now()
	return a
}

// MintRun opens a run of the task with the key, and returns its id.
func MintRun(t *testing.T, g *Gateway, key, task string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/v1/tasks/"+task+"/runs", nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var minted struct {
		Run string `json:"run"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&minted); err != nil || len(minted.Run) != 32 {
		t.Fatalf("minting a run: %s, %v", resp.Status, err)
	}
	return minted.Run
}

// SendRaw sends bytes and returns the status of each answer, until the connection is closed. The error means that the answers were late.
func SendRaw(t *testing.T, g *Gateway, request string) (status []int, late error) {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: Patience}).DialContext(t.Context(), "tcp", strings.TrimPrefix(g.URL, "http://"))
	wait.Read(t, "a connection", err)
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(Patience))
	_, err = io.WriteString(conn, request)
	wait.Read(t, "the request", err)
	for in := bufio.NewReader(conn); ; {
		resp, err := http.ReadResponse(in, nil)
		if wait.TimedOut(err) {
			return status, err
		}
		if err != nil {
			return status, nil
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		status = append(status, resp.StatusCode)
	}
}

// A Message is one JSON-RPC answer, as bytes.
type Message struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
	Raw []byte
}

// A Session is a client of one era on one transport.
type Session interface {
	// Ask sends a request with these params, which have no _meta. It returns
	// the answer and the messages before it.
	Ask(t *testing.T, method, params string) (answer Message, said []string)
	// Send sends these bytes as a message.
	Send(t *testing.T, body string) Message
}

// An HTTPSession is a client over Streamable HTTP.
type HTTPSession struct {
	URL    string
	Modern bool
	Header http.Header
	ID     string // of a legacy session
}

// ModernMeta is the _meta of a modern request.
const ModernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// WithMeta adds ModernMeta to the params of a request. They may have a _meta with members.
func WithMeta(params string) string {
	if params == "" || params == "{}" {
		return "{" + ModernMeta + "}"
	}
	if strings.Contains(params, `"_meta":{`) {
		return strings.Replace(params, `"_meta":{`, strings.TrimSuffix(ModernMeta, "}")+",", 1)
	}
	return "{" + ModernMeta + "," + strings.TrimPrefix(params, "{")
}

// Ask implements Session.
func (s *HTTPSession) Ask(t *testing.T, method, params string) (Message, []string) {
	t.Helper()
	body, extra := s.Request(method, params)
	m, resp := s.Post(t, body, extra)
	return m, resp.Said
}

// Request returns the body and the headers that Ask posts.
func (s *HTTPSession) Request(method, params string) (body string, extra http.Header) {
	if params == "" {
		params = "{}"
	}
	extra = http.Header{}
	if s.Modern {
		params = WithMeta(params)
		extra.Set("Mcp-Protocol-Version", "2026-07-28")
		extra.Set("Mcp-Method", method)
		var p struct {
			Name string `json:"name"`
			URI  string `json:"uri"`
		}
		if json.Unmarshal([]byte(params), &p) == nil && p.Name+p.URI != "" {
			extra.Set("Mcp-Name", wire.EncodeHeader(cmp.Or(p.Name, p.URI)))
		}
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params), extra
}

// Send implements Session.
func (s *HTTPSession) Send(t *testing.T, body string) Message {
	t.Helper()
	m, _ := s.Post(t, body, nil)
	return m
}

// A Response is an HTTP response without the answer.
type Response struct {
	*http.Response
	Said []string
}

// Post posts a message with more headers, and returns the answer with its HTTP response.
func (s *HTTPSession) Post(t *testing.T, body string, extra http.Header) (Message, Response) {
	t.Helper()
	m, r, err := s.Exchange(body, extra)
	wait.Read(t, fmt.Sprintf("%.200s", body), err)
	return m, r
}

// Exchange is Post without a test.
func (s *HTTPSession) Exchange(body string, extra http.Header) (Message, Response, error) {
	nothing := Response{Response: &http.Response{Header: http.Header{}}}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader(body))
	if err != nil {
		return Message{}, nothing, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if s.ID != "" {
		req.Header.Set("Mcp-Session-Id", s.ID)
		req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	for _, h := range []http.Header{s.Header, extra} {
		maps.Copy(req.Header, h)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Message{}, nothing, err
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return Message{}, nothing, err
	}
	r := Response{Response: resp}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		for line := range strings.Lines(string(all)) {
			if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok {
				r.Said = append(r.Said, data)
			}
		}
		if n := len(r.Said); n > 0 {
			all, r.Said = []byte(r.Said[n-1]), r.Said[:n-1]
		}
	}
	return ParseMessage(all), r, nil
}

// Leave ends the session.
func (s *HTTPSession) Leave(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.URL, nil)
	if err != nil {
		return err
	}
	maps.Copy(req.Header, s.Header)
	req.Header.Set("Mcp-Session-Id", s.ID)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ParseMessage decodes an answer.
func ParseMessage(raw []byte) Message {
	m := Message{Raw: raw}
	_ = json.Unmarshal(raw, &m) // invalid JSON has neither result nor error
	return m
}

// A StdioSession is a client that has started "switchboard stdio" itself.
type StdioSession struct {
	Cmd    *exec.Cmd
	Modern bool
	In     io.WriteCloser
	Out    *bufio.Reader
	pipe   *os.File // what out reads
	Next   int
	killed bool
}

// Kill ends the switchboard with SIGKILL.
func (s *StdioSession) Kill() {
	s.killed = true
	_ = s.Cmd.Process.Kill()
}

// Stdio starts a switchboard for one client over stdio, which serves it alone. It returns after a first list, which waits for the servers.
func Stdio(t *testing.T, dir string, modern bool, args ...string) *StdioSession {
	t.Helper()
	s := StdioAtOnce(t, dir, modern, args...)
	s.Ask(t, "tools/list", "")
	return s
}

// StdioAtOnce is Stdio without the wait for the servers.
func StdioAtOnce(t *testing.T, dir string, modern bool, args ...string) *StdioSession {
	t.Helper()
	return OpenStdio(t, dir, modern, Switchboard(t, append([]string{"stdio", "--alone"}, args...)...))
}

// OpenStdio is StdioAtOnce with the given command.
func OpenStdio(t *testing.T, dir string, modern bool, cmd *exec.Cmd) *StdioSession {
	t.Helper()
	s := &StdioSession{Modern: modern, Cmd: cmd}
	var log bytes.Buffer
	if s.Cmd.Dir = dir; s.Cmd.Stderr == nil {
		s.Cmd.Stderr = &log
	}
	var err error
	if s.In, err = s.Cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.Cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Out, s.pipe = bufio.NewReader(out), out.(*os.File)
	if err := s.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.In.Close()
		timer := time.AfterFunc(Patience, func() { _ = s.Cmd.Process.Kill() })
		err := s.Cmd.Wait()
		if !timer.Stop() {
			wait.Late(t, "switchboard stdio did not end:\n%s", &log)
		}
		if err != nil && !s.killed {
			t.Errorf("switchboard stdio ended with %v:\n%s", err, &log)
		}
	})
	if !modern {
		if m, _ := s.Ask(t, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`); m.Error != nil {
			SayStoreIsLate(t, m)
			t.Fatalf("initialize: %s", m.Raw)
		}
		fmt.Fprintln(s.In, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	}
	return s
}

// Ask implements Session.
func (s *StdioSession) Ask(t *testing.T, method, params string) (Message, []string) {
	t.Helper()
	if params == "" {
		params = "{}"
	}
	if s.Modern {
		params = WithMeta(params)
	}
	s.Next++
	return s.Exchange(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, s.Next, method, params))
}

// Send implements Session.
func (s *StdioSession) Send(t *testing.T, body string) Message {
	t.Helper()
	m, _ := s.Exchange(t, body)
	return m
}

// Exchange sends a message, and returns the answer and the messages before it.
func (s *StdioSession) Exchange(t *testing.T, body string) (Message, []string) {
	t.Helper()
	fmt.Fprintln(s.In, body)
	var said []string
	for {
		line, err := s.ReadLine()
		wait.Read(t, fmt.Sprintf("%.200s", body), err)
		line = bytes.TrimSuffix(line, []byte("\n"))
		if m := ParseMessage(line); m.Result != nil || m.Error != nil {
			return m, said
		}
		said = append(said, string(line))
	}
}

// ReadLine returns the next line of Switchboard. It fails after Patience.
func (s *StdioSession) ReadLine() ([]byte, error) {
	_ = s.pipe.SetReadDeadline(time.Now().Add(Patience))
	defer func() { _ = s.pipe.SetReadDeadline(time.Time{}) }()
	return s.Out.ReadBytes('\n')
}

// AwaitListChanged waits for a notification that the list of tools has changed.
func (s *StdioSession) AwaitListChanged(t *testing.T) {
	t.Helper()
	for {
		line, err := s.ReadLine()
		wait.Read(t, "that the list has changed", err)
		if bytes.Contains(line, []byte("notifications/tools/list_changed")) {
			return
		}
	}
}

// ListNames returns the names of the session's tools, without switchboard_read and switchboard_resume, which depend on the client and on policy.
func ListNames(t *testing.T, s Session) []string {
	t.Helper()
	m, _ := s.Ask(t, "tools/list", "")
	return m.ToolNames(t)
}

// ToolNames returns the names in an answer to tools/list, without the tools that read results and resume calls.
func (m Message) ToolNames(t *testing.T) []string {
	t.Helper()
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Errorf("tools/list: %v: %s", err, m.Raw)
	}
	got := []string{}
	for _, tool := range list.Tools {
		if tool.Name != "switchboard_read" && tool.Name != "switchboard_resume" {
			got = append(got, tool.Name)
		}
	}
	return got
}

// At returns the same client, connected to another replica.
func (s *HTTPSession) At(g *Gateway) *HTTPSession {
	moved := *s
	moved.URL = g.URL + "/mcp"
	return &moved
}

// EachSession runs f with each kind of client on the same files.
func EachSession(t *testing.T, dir string, f func(t *testing.T, name string, s Session)) {
	t.Helper()
	g := Serve(t, dir)
	for _, modern := range []bool{false, true} {
		era := map[bool]string{false: "legacy", true: "modern"}[modern]
		t.Run("http/"+era, func(t *testing.T) { f(t, "http/"+era, g.Open(t, "/mcp", modern)) })
		t.Run("stdio/"+era, func(t *testing.T) { f(t, "stdio/"+era, Stdio(t, dir, modern)) })
	}
}
