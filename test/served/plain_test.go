package served_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A plain request is answered by package post, and any other by net/http. A client cannot tell them apart, but by the order of two
// headers: net/http writes Date behind the length that the handler gives.
func TestAPlainRequestAndAnOddOneGetTheSameAnswer(t *testing.T) {
	t.Parallel()
	g := rig.Serve(t, rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "first")))))
	rig.ListNames(t, g.Open(t, "/mcp", true)) // the server has started
	ask := func(header string) (r *http.Response, body string, plain bool) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
		wait.Read(t, "a connection", err)
		defer conn.Close() //nolint:errcheck // the test is over
		call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + rig.WithMeta(`{"name":"first","arguments":{}}`) + `}`
		_, err = fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: first\r\n%sContent-Length: %d\r\n\r\n%s", header, len(call), call)
		wait.Read(t, "the request", err)
		var raw bytes.Buffer
		r, err = http.ReadResponse(bufio.NewReader(io.TeeReader(conn, &raw)), nil)
		wait.Read(t, "the response", err)
		text, err := io.ReadAll(r.Body)
		wait.Read(t, "the body", err)
		r.Header.Del("Date")
		return r, string(text), strings.Index(raw.String(), "\r\nDate: ") < strings.Index(raw.String(), "\r\nContent-Length: ")
	}
	one, body, plain := ask("")
	other, otherBody, otherPlain := ask("Te: trailers\r\n")
	if !plain || otherPlain {
		t.Errorf("post has answered the plain request: %t, and the odd one: %t", plain, otherPlain)
	}
	if one.StatusCode != http.StatusOK || one.StatusCode != other.StatusCode || body != otherBody || !reflect.DeepEqual(one.Header, other.Header) {
		t.Errorf("%s %v %s\nand for the odd one\n%s %v %s", one.Status, one.Header, body, other.Status, other.Header, otherBody)
	}
}
