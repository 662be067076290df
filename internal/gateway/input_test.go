package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/gateway"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// errorCode returns the code of a JSON-RPC error.
func errorCode(t *testing.T, body string) int {
	t.Helper()
	var m struct {
		JSONRPC string
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.JSONRPC != "2.0" || m.Error.Message == "" {
		t.Fatalf("no JSON-RPC error: %v: %q", err, body)
	}
	return m.Error.Code
}

func TestJS_WhatIsNoMessageIsRefusedAndReachesNobody(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + params + `}`
	}
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct {
		name, body string
		code       int
	}{
		{"JS-01 case in params", call(`{"name":"echo","Name":"region"}`), -32600},
		{"JS-01 duplicate in params", call(`{"name":"echo","name":"region"}`), -32600},
		{"JS-01 escaped duplicate", call(`{"name":"echo","\u006eame":"region"}`), -32600},
		{"JS-01 NUL in a name", call(`{"name":"echo","name\u0000":"region"}`), -32600},
		{"JS-01 folding in the envelope", `{"jsonrpc":"2.0","id":1,"method":"tools/list","paramſ":{}}`, -32600},
		{"JS-01 case in the envelope", `{"jsonrpc":"2.0","id":1,"method":"tools/list","Method":"tools/call"}`, -32600},
		{"JS-01 duplicate in the envelope", `{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"tools/call"}`, -32600},
		{"JS-01 duplicate in arguments", call(`{"name":"echo","arguments":{"a":{"b":1,"b":2}}}`), -32600},
		{"JS-03 null id", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, -32600},
		{"JS-03 float id", `{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600},
		{"JS-03 huge id", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, -32600},
		{"JS-03 boolean id", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, -32600},
		{"JS-03 array id", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, -32600},
		{"JS-03 object id", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, -32600},
		{"JS-03 long id", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 100<<10) + `","method":"ping"}`, -32600},
		{"JS-04 empty batch", `[]`, -32600},
		{"JS-04 batch", `[{}]`, -32600},
		{"JS-04 large batch", `[` + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 9999) + `{}]`, -32600},
		{"JS-04 NaN", call(`{"name":"echo","arguments":{"a":NaN}}`), -32700},
		{"JS-04 plus", call(`{"name":"echo","arguments":{"a":+1}}`), -32700},
		{"JS-04 byte order mark", "\xEF\xBB\xBF" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, -32700},
		{"JS-04 trailing bytes", `{"jsonrpc":"2.0","id":1,"method":"ping"}x`, -32700},
		{"JS-04 two messages", `{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":2,"method":"ping"}`, -32700},
		{"JS-04 another version", `{"jsonrpc":"1.0","id":1,"method":"ping"}`, -32600},
		{"JS-04 no version", `{"id":1,"method":"ping"}`, -32600},
		{"JS-04 no method", `{"jsonrpc":"2.0","id":1}`, -32600},
		{"JS-05 depth 65", call(`{"name":"echo","arguments":{"a":` + deep(62) + `}}`), -32700},
		{"nothing", ``, -32700},
		{"lone surrogate", call(`{"name":"echo","arguments":{"a":"\ud800"}}`), -32700},
		{"no UTF-8", call("{\"name\":\"echo\",\"arguments\":{\"a\":\"\xff\"}}"), -32700},
	} {
		t.Run(tt.name, func(t *testing.T) {
			res, body := w.post(tt.body, in)
			code := errorCode(t, body)
			if res.StatusCode != http.StatusBadRequest || code != tt.code {
				t.Errorf("got %s %d, want 400 %d: %s", res.Status, code, tt.code, body)
			}
		})
	}
	if n := w.calls(); n != 0 {
		t.Errorf("a server was called %d times", n)
	}
	if _, body := w.post(call(`{"name":"echo","arguments":{"a":`+deep(60)+`}}`), in); !strings.Contains(body, `"result"`) {
		t.Errorf("JS-05 depth 64: %s", body)
	}
}

func TestJSONTestSuiteAsBodies(t *testing.T) {
	dir := data(t, "badinput/JSONTestSuite/test_parsing")
	w := newWorld(t)
	in := w.session(nil)
	files, err := filepath.Glob(dir + "/*.json")
	if err != nil || len(files) < 200 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		// None of them is a message.
		res, body := w.post(string(text), in)
		if errorCode(t, body); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s as a body: %s", name, res.Status)
		}
		// As an argument, a valid file comes back byte for byte and an invalid one is refused.
		// Files that parsers disagree about may do either.
		before := w.calls()
		res, body = w.post(legacyCall("1", "echo", `,"arguments":{"a":`+string(text)+`}`), in)
		switch {
		case name[0] == 'n' && (res.StatusCode != http.StatusBadRequest || w.calls() != before):
			t.Errorf("%s as an argument was accepted: %s", name, body)
		case res.StatusCode == http.StatusOK && !strings.Contains(body, `"a":`+string(text)):
			t.Errorf("%s as an argument came back changed: %s", name, body)
		case name[0] == 'y' && res.StatusCode != http.StatusOK && !strings.Contains(name, "duplicated") && !strings.Contains(body, "surrogate"):
			t.Errorf("%s as an argument was refused: %s", name, body)
		}
	}
	if _, body := w.post(legacyCall("2", "echo", ""), in); !strings.Contains(body, `"result"`) {
		t.Errorf("after all of it: %s", body)
	}
}

func TestNaughtyStringsAsIDsNamesAndArguments(t *testing.T) {
	text, err := os.ReadFile(data(t, "badinput/blns") + "/blns.json")
	if err != nil {
		t.Fatal(err)
	}
	var naughty []string
	if err := json.Unmarshal(text, &naughty); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	in := w.session(nil)
	for _, s := range naughty {
		raw := string(wire.AppendString(nil, s))
		_, body := w.post(legacyCall("7", "echo", `,"arguments":{"a":`+raw+`}`), in)
		if want := `"echo":{"a":` + raw + `}`; !strings.Contains(body, want) {
			t.Errorf("as an argument: got %s, want %s", body, want)
		}
		res, body := w.post(`{"jsonrpc":"2.0","id":`+raw+`,"method":"ping"}`, in)
		if want := `{"jsonrpc":"2.0","id":` + raw + `,"result":{}}`; body != want && (len(raw) <= wire.MaxIDBytes || res.StatusCode != 400) {
			t.Errorf("as an id: got %s, want %s", body, want)
		}
		before := w.calls()
		_, body = w.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":`+raw+`}}`, in)
		if errorCode(t, body) != -32602 || !strings.Contains(body, `"data":{"code":"SB-CAP-001","retryable":"no"}}`) || w.calls() != before {
			t.Errorf("as a name: %s", body)
		}
		call, h := modern("7", "tools/call", `"name":`+raw+`,`, s)
		res, body = w.post(call, h)
		if code := errorCode(t, body); code != -32602 && (s != "" || code != -32020) || res.StatusCode != 400 {
			t.Errorf("as a name, modern, %q with %q: %s", s, h["Mcp-Name"], body)
		}
		if res, body := w.post(`{"jsonrpc":"2.0","id":7,"method":`+raw+`}`, in); res.StatusCode == 200 && errorCode(t, body) != -32601 {
			t.Errorf("as a method: %s %s", res.Status, body)
		}
		call, h = modern("8", "tools/list", "", "")
		h["Switchboard-Task"] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return -1
			}
			return r
		}, s)
		if res, body := w.post(call, h); res.StatusCode != 200 && res.StatusCode != 400 {
			t.Errorf("as a task: %s %s", res.Status, body)
		}
	}
}

func TestRX01_ABodyIsBoundHoweverItComes(t *testing.T) {
	w := newWorld(t)
	in := w.session(nil)
	fits := legacyCall("1", "echo", `,"arguments":{"a":"`+strings.Repeat("x", gateway.MaxMessage-200)+`"}`)
	if res, body := w.post(fits+strings.Repeat(" ", gateway.MaxMessage-len(fits)), in); res.StatusCode != 200 || !strings.Contains(body, "xxx") {
		t.Errorf("a body that fits: %s %.100s", res.Status, body)
	}
	over := fits + strings.Repeat(" ", gateway.MaxMessage-len(fits)+1)
	if res, body := w.post(over, in); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("by Content-Length: %s %.100s", res.Status, body)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // closing it cannot fail the test
	_, _ = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nMcp-Session-Id: %s\r\n\r\n%x\r\n", in["Mcp-Session-Id"], len(over))
	go func() { _, _ = io.WriteString(conn, over+"\r\n0\r\n\r\n") }() // the server may cut it short
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
	if res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close {
		t.Errorf("chunked: %s, closing %v", res.Status, res.Close)
	}
	if n := w.calls(); n != 1 {
		t.Errorf("servers were called %d times, want 1", n)
	}
}

func TestJS11_RequestsThatTwoReadersWouldCutDifferentlyAreRefused(t *testing.T) {
	w := newWorld(t)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, headers := range map[string]string{
		"two lengths":               "Content-Length: 40\r\nContent-Length: 41\r\n",
		"a length that is none":     "Content-Length: +40\r\n",
		"an encoding that is none":  "Transfer-Encoding: gzip\r\n",
		"two encodings":             "Transfer-Encoding: gzip, chunked\r\n",
		"a space before the colon":  "Content-Length : 40\r\n",
		"a header of a megabyte":    "Content-Length: 40\r\nX-Long: " + strings.Repeat("x", 2<<20) + "\r\n",
		"no host":                   "Host:\r\nContent-Length: 40\r\n",
		"an underlined session id ": "Content-Length: 40\r\nMcp_Session_Id: x\r\n",
	} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		go func() { // the server may cut it short
			_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"+headers+"\r\n"+ping)
		}()
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if res.StatusCode < 400 || res.StatusCode > 501 {
			t.Errorf("%s: %s", name, res.Status)
		}
		_ = conn.Close()
	}
}
