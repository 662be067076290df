package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answersInTurn is a server that writes one of the responses for each request, in this order, and closes the connection after those that end in "CLOSE".
func answersInTurn(t *testing.T, responses ...string) (host string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			for in := bufio.NewReader(conn); ; {
				q, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				if _, err := io.Copy(io.Discard, q.Body); err != nil || len(responses) == 0 {
					break
				}
				text, closes := strings.CutSuffix(responses[0], "CLOSE")
				responses = responses[1:]
				if _, err := io.WriteString(conn, text); err != nil || closes {
					break
				}
			}
			_ = conn.Close()
		}
	}()
	return l.Addr().String()
}

// ask posts a call to the relay, and returns the status and the body of the answer.
func ask(t *testing.T, at string) (status int, body string, h http.Header, err error) {
	t.Helper()
	resp, err := http.Post(at+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`))
	if err != nil {
		return 0, "", nil, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it is read
	return resp.StatusCode, string(text), resp.Header, err
}

func relayBefore(t *testing.T, host string) (at string, r *relay) {
	t.Helper()
	r = &relay{host: host}
	s := httptest.NewServer(r)
	t.Cleanup(s.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	t.Cleanup(func() {
		for _, l := range r.idle {
			_ = l.Close()
		}
	})
	return s.URL, r
}

func TestARelayForwardsEachAnswerAndFindsItsEnd(t *testing.T) {
	long := strings.Repeat("0123456789", 20_000)
	for _, tt := range []struct {
		name, response string
		status         int
		body           string
	}{
		{"a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello", 200, "hello"},
		{"a long one", fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(long), long), 200, long},
		{"an error", "HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno", 404, "no"},
		{"chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX-Sum: 7\r\n\r\n", 200, "hello"},
		{"one long chunk", fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(long), long), 200, long},
		{"no body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", 202, ""},
		{"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
		{"a provisional answer first", "HTTP/1.1 103 Early Hints\r\nX-Z: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
		{"the end of the connection", "HTTP/1.1 200 OK\r\n\r\nhelloCLOSE", 200, "hello"},
		{"says that it closes", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
		{"more than its length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", 200, "hello"},
	} {
		at, r := relayBefore(t, answersInTurn(t, tt.response, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"))
		status, body, _, err := ask(t, at)
		if err != nil || status != tt.status || body != tt.body {
			t.Errorf("%s: %d %.60q %v, want %d %.60q", tt.name, status, body, err, tt.status, tt.body)
		}
		if status, body, _, err := ask(t, at); err != nil || status != 200 || body != "next" {
			t.Errorf("after %s: %d %.60q %v, want the next answer", tt.name, status, body, err)
		}
		if n := int(calls(r, "tools/call", "echo")); n != 2 {
			t.Errorf("%s: %d calls are counted, want 2", tt.name, n)
		}
	}
}

func calls(r *relay, method, name string) int64 {
	n, ok := r.calls.Load([2]string{method, name})
	if !ok {
		return 0
	}
	return n.(interface{ Load() int64 }).Load()
}

func TestARelayPassesHeadersButNotThoseOfTheConnection(t *testing.T) {
	at, _ := relayBefore(t, answersInTurn(t, "HTTP/1.1 200 OK\r\nMcp-Session-Id: s\r\nKeep-Alive: timeout=5\r\nContent-Length: 0\r\n\r\n"))
	_, _, h, err := ask(t, at)
	if err != nil || h.Get("Mcp-Session-Id") != "s" || h.Get("Keep-Alive") != "" {
		t.Errorf("%v, %v", h, err)
	}
}

func TestAnAnswerThatBreaksOffIsNoAnswerThroughARelay(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, response := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelCLOSE",
		"HTTP/1.1 200 OK\r\nContent-Length: 100001\r\n\r\n" + long + "CLOSE",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\nCLOSE",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0\r\nCLOSE",
		"HTTP/1.1 200 OK\r\nContent-LenCLOSE",
		"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
		"nonsense\r\n\r\n",
		"CLOSE",
	} {
		at, _ := relayBefore(t, answersInTurn(t, response, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"))
		if status, body, _, err := ask(t, at); err == nil && status != http.StatusBadGateway {
			t.Errorf("%.60q: %d %.60q is taken for an answer", response, status, body)
		}
		if status, body, _, err := ask(t, at); err != nil || status != 200 || body != "next" {
			t.Errorf("after %.60q: %d %.60q %v, want the next answer", response, status, body, err)
		}
	}
}

func TestARelayNeverMixesAnswersThoughClientsLeave(t *testing.T) {
	list := &backend{era: modern, first: echo}
	list.list = func() []byte { return list.tools(3) }
	behind := httptest.NewServer(list)
	defer behind.Close()
	text, r := relayBefore(t, strings.TrimPrefix(behind.URL, "http://"))
	r.sync, _ = openSynced(filepath.Join(t.TempDir(), "entries"))
	defer func() { _ = r.sync.file.Close() }()
	at, err := url.Parse(text + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	var all []*client
	for i := range 8 {
		all = append(all, newClient(endpoint{era: modern, url: at}, fmt.Sprintf("c%d", i)))
	}
	defer end(all)
	sizes := []int{10, 1 << 10, 5000, 100_000, linkBuffer}
	got := counted(all, 400, func(c *client) (time.Duration, error) {
		if c.id%7 == 0 { // asks for much, and leaves
			conn, err := net.Dial("tcp", at.Host)
			if err != nil {
				return 0, err
			}
			body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"nonce":"left","size":1000000}}}`
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: x\r\nMcp-Protocol-Version: %s\r\nContent-Length: %d\r\n\r\n%s", modernVersion, len(body), body)
			_ = conn.Close()
		}
		return c.call(sizes[c.id%len(sizes)])
	})
	if got.right != 400 {
		t.Errorf("%s", &got.tally)
	}
}

func TestARelayThatSyncsWritesTwoEntriesForEachCall(t *testing.T) {
	const response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	at, r := relayBefore(t, answersInTurn(t, response, response, response))
	name := filepath.Join(t.TempDir(), "entries")
	var err error
	if r.sync, err = openSynced(name); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.sync.file.Close() }()
	for range 3 {
		if _, body, _, err := ask(t, at); err != nil || body != "hello" {
			t.Fatalf("%q, %v", body, err)
		}
	}
	if info, err := os.Stat(name); err != nil || info.Size() != 3*entriesEach*entryBytes {
		t.Errorf("%v, %v", info, err)
	}
}

func TestARelayReadsTheMethodAndTheToolOfAMessage(t *testing.T) {
	for message, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                                      "ping ",
		`{"params":{"arguments":{"name":"inner"},"name":"echo"},"method":"tools/call"}`: "tools/call echo",
		`{"method":"tools\/call","params":{"na\u006de":"ec\u0068o"}}`:                   "tools/call echo",
		`{"method":"tools/list","params":[1]}`:                                          "tools/list ",
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                          " ",
		`{"method":"tools/call","params":{"arguments":{"name":"inner"}}}`:               "error",
		`{"method":"tools/call","params":{"name":"a"},"method":"ping"}`:                 "error",
		`{"method":"ping"} {}`:                                                          "error",
		`{"method":"ping"`:                                                              "error",
		`{"method":1}`:                                                                  "error",
		`[]`:                                                                            "error",
		``:                                                                              "error",
	} {
		method, name, err := readMessage([]byte(message))
		got := method + " " + name
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %q (%v), want %q", message, got, err, want)
		}
	}
}
