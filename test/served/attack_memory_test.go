package served_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
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

// answeredWith is the HTTP statuses of the connections that are answered within the time.
func answeredWith(conns []net.Conn, within time.Duration) map[int]int {
	var mu sync.Mutex
	got := map[int]int{}
	var reading sync.WaitGroup
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(within))
		reading.Go(func() {
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				return
			}
			_ = resp.Body.Close()
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
		})
	}
	reading.Wait()
	return got
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
	answered := make(chan map[int]int, 1)
	go func() { answered <- answeredWith(conns, 8*time.Second) }() // those that are read for up to 30 s are not
	for i := range 10 {
		if got := rig.Call(t, h.OpenAs("other", i%2 == 0), "work", fmt.Sprintf(`{"x":%q}`, strings.Repeat("y", 1<<20))); got != "" {
			t.Errorf("another tenant: %s", got)
		}
	}
	if got := <-answered; got[http.StatusTooManyRequests] < 40 || got[http.StatusTooManyRequests] > 55 || len(got) != 1 {
		t.Errorf("answered with %v; want 429 for all but some ten", got)
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
	dir := t.TempDir()
	const size = 12 << 20
	url := rig.ServeResult(t, "work", filepath.Join(dir, "marks"), `{"content":[{"type":"text","text":"`+strings.Repeat("z", size)+`"}]}`)
	h := rig.ServeTenants(t, "-- switchboard.yaml --\nservers:\n  a: {transport: http, url: \""+url+"\"}\nTENANTS\n", "", map[string]rig.TenantConfig{"acme": {}, "other": {}})
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + strings.Replace(rig.WithMeta(`{"name":"work","arguments":{}}`), `"_meta":{`, `"_meta":{"io.switchboard/results":"whole",`, 1) + `}`
	taken, refused := 0, 0
	for range 8 {
		c := rawCall(t, h.Gateway, h.Keys["acme"], len(body), body)
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		switch n, _ := strconv.Atoi(resp.Header.Get("Content-Length")); {
		case n == 0 || n > size: // and is not read from here on
			taken++
		default:
			text, _ := io.ReadAll(resp.Body)
			if refused++; !strings.Contains(string(text), "SB-EXEC-003") || !strings.Contains(string(text), "do not call it again") {
				t.Errorf("%s", text)
			}
		}
	}
	if taken < 1 || taken > 4 || refused == 0 {
		t.Errorf("%d answers of 12 MiB are held, and %d refused; a third of 128 MiB is for one key", taken, refused)
	}
	if m, _ := h.OpenAs("other", true).Ask(t, "tools/call", `{"name":"work","arguments":{},"_meta":{"io.switchboard/results":"whole"}}`); rig.Code(m) != "" || len(m.Raw) < size {
		t.Errorf("another tenant: %.300s", m.Raw)
	}
	rig.Eventually(t, "those that are not read are closed, and free", func() string {
		m, _ := h.OpenAs("acme", true).Ask(t, "tools/call", `{"name":"work","arguments":{},"_meta":{"io.switchboard/results":"whole"}}`)
		return rig.Code(m)
	})
}
