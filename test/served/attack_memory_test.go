package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// rawCall sends the head and the first bytes of a call of "work" whose body has size bytes, with a key.
func rawCall(t *testing.T, g *rig.Gateway, key string, size int, body string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
	_, err = fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
		"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: work\r\nContent-Length: %d\r\n\r\n", key, size)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, body) }() // its answer may come before all is written
	return c
}

// readStatuses returns a channel of the HTTP statuses with which the connections are answered.
func readStatuses(conns []net.Conn) <-chan int {
	statuses := make(chan int, len(conns))
	for _, c := range conns {
		go func() {
			if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil {
				_ = resp.Body.Close()
				statuses <- resp.StatusCode
			}
		}()
	}
	return statuses
}

// RX-01: what has come of messages that do not end is counted, and bounded for the key that sends them.
func TestAttack2RX01MessagesThatDoNotEndTakeABoundedShareOfTheMemory(t *testing.T) {
	t.Parallel()
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  "+rig.FakeRow("a", "marks="+filepath.Join(t.TempDir(), "marks"), fmt.Sprintf(rig.Tool, "work"))+"\nTENANTS\n", "",
		map[string]rig.TenantConfig{"acme": {}, "other": {}})
	const size = 4 << 20
	text := strings.Repeat("x", size-1)
	var conns []net.Conn
	for range 60 { // 240 MiB, of which a third of 128 MiB are for one key
		conns = append(conns, rawCall(t, h.Gateway, h.Keys["acme"], size, text))
	}
	statuses := readStatuses(conns)
	for i := range 10 {
		if got := rig.Call(t, h.OpenAs("other", i%2 == 0), "work", fmt.Sprintf(`{"x":%q}`, strings.Repeat("y", 1<<20))); got != "" {
			t.Errorf("another tenant: %s", got)
		}
	}
	answered := 0
	for ; answered < 40 || len(statuses) > 0; answered++ {
		if got := wait.Receive(t, "the refusal of a call", statuses); got != http.StatusTooManyRequests {
			t.Fatalf("the %dth call is answered with %d, want 429", answered, got)
		}
	}
	if answered > 55 {
		t.Errorf("%d calls are refused, want all but some ten", answered)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	rig.Eventually(t, "the memory is free again", func() string {
		return rig.Call(t, h.OpenAs("acme", true), "work", fmt.Sprintf(`{"x":%q}`, strings.Repeat("y", 3<<20)))
	})
}

// RX-04: answers that nobody reads are bounded too, and their connections are closed.
func TestAttack2RX04AnswersThatNobodyReadsTakeABoundedShareOfTheMemory(t *testing.T) {
	t.Parallel()
	marks := filepath.Join(t.TempDir(), "marks")
	answers := func(tool string, size int) string {
		return rig.ServeResult(t, tool, marks, `{"content":[{"type":"text","text":"`+strings.Repeat("z", size)+`"}]}`)
	}
	// A third of 128 MiB is for one key: three long answers, and not a short one beside them.
	const long, short = 14 << 20, 1 << 20
	h := rig.ServeTenants(t, fmt.Sprintf("-- switchboard.yaml --\nservers:\n  a: {transport: http, url: %q}\n  b: {transport: http, url: %q}\nTENANTS\n",
		answers("work", long), answers("short", short)), "", map[string]rig.TenantConfig{"acme": {}, "other": {}})
	call := func(tool string) string {
		return `{"name":"` + tool + `","arguments":{},"_meta":{"io.switchboard/results":"whole"}}`
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Replace(rig.WithMeta(`{"name":"work","arguments":{}}`), `"_meta":{`, `"_meta":{"io.switchboard/results":"whole",`, 1) + `}`
	began := time.Now()
	var unread []net.Conn
	for range 3 {
		unread = append(unread, rawCall(t, h.Gateway, h.Keys["acme"], len(body), body))
	}
	for _, c := range unread {
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil) // and not the body
		if err != nil {
			t.Fatal(err)
		}
		if n := resp.ContentLength; n < long {
			text, _ := io.ReadAll(resp.Body)
			t.Fatalf("a long answer is refused: %s", text)
		}
	}
	acme := h.OpenAs("acme", true)
	m, _ := acme.Ask(t, "tools/call", call("short"))
	switch took := time.Since(began); {
	case rig.Code(m) == "SB-EXEC-003":
		if !strings.Contains(string(m.Raw), "do not call it again") {
			t.Errorf("the refusal does not say that the tool was called: %s", m.Raw)
		}
	case took < 10*time.Second: // before that, Switchboard closes no connection that reads nothing
		t.Errorf("beside three long answers that nobody reads, a short one is taken: %.300s", m.Raw)
	default:
		wait.Late(t, "the answers came after %s; the first of them may have been closed", took)
	}
	if m, _ := h.OpenAs("other", true).Ask(t, "tools/call", call("work")); rig.Code(m) != "" || len(m.Raw) < long {
		t.Errorf("another tenant: %.300s", m.Raw)
	}
	rig.Eventually(t, "those that are not read are closed, and free", func() string {
		m, _ := acme.Ask(t, "tools/call", call("short"))
		return rig.Code(m)
	})
}
