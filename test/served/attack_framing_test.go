package served_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// JS-11: a proxy in front may see another end of such a request than net/http does. It gets 400, the request before it on the connection gets its answer, and
// the call that hides behind it is not executed.
func TestAttack11JS11NoCallBehindARequestThatMayEndInTwoPlacesIsExecuted(t *testing.T) {
	t.Parallel()
	const chunks = "Transfer-Encoding: chunked\r\n"
	bad := map[string]string{ // LENGTH stands for the line with the length of the body, which is SIZE
		"a folded line":                 "X-A: a\r\n b\r\nLENGTH",
		"a line folded with a tab":      "X-A: a\r\n\tb\r\nLENGTH",
		"a folded length":               "X-A: a\r\nContent-Length:\r\n SIZE\r\n",
		"a folded encoding":             "LENGTHX-A: a\r\n " + chunks,
		"a line that ends in LF":        "X-A: a\nLENGTH",
		"a head that ends in LF":        "LENGTH\n",
		"CR within a line":              "X-A: a\r" + chunks + "LENGTH",
		"CR before the end of a line":   "X-A: a\r\r\nLENGTH",
		"two equal lengths":             "LENGTHX-A: a\r\nLENGTH",
		"two lengths":                   "LENGTHcontent-length: 1\r\n",
		"a length and an encoding":      "LENGTH" + chunks,
		"an encoding and a length":      chunks + "LENGTH",
		"a length and another encoding": "LENGTHTransfer-Encoding: identity\r\n",
		"a list of lengths":             "Content-Length: SIZE, SIZE\r\n",
		"two lengths after a long line": "X-A: " + strings.Repeat("a", 20_000) + "\r\nLENGTHLENGTH",
	}
	for _, keys := range []bool{false, true} {
		t.Run(fmt.Sprintf("keys %t", keys), func(t *testing.T) {
			t.Parallel()
			marks := filepath.Join(t.TempDir(), "marks")
			archive := rig.Fakes(rig.FakeRow("a", "marks="+marks, fmt.Sprintf(rig.Tool, "first"), fmt.Sprintf(rig.Tool, "framed"), fmt.Sprintf(rig.Tool, "hidden")))
			var header []string
			who := ""
			if keys {
				key, rows := rig.NewKey(t, "alice")
				archive = strings.Replace(archive, "default_task: all\n", "default_task: all\nkeys:\n"+rows, 1)
				header = []string{"Authorization", "Bearer " + key}
				who = strings.Join(header, ": ") + "\r\n"
			}
			g := rig.Serve(t, rig.LayOut(t, archive))
			rig.ListNames(t, g.Open(t, "/mcp", true, header...))
			call := func(name, framing string) string {
				body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + rig.WithMeta(`{"name":"`+name+`","arguments":{}}`) + `}`
				size := fmt.Sprint(len(body))
				if framing == chunks {
					body = fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)
				}
				framing = strings.NewReplacer("LENGTH", "Content-Length: "+size+"\r\n", "SIZE", size).Replace(framing)
				return "POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + who + "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n" +
					"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: " + name + "\r\n" + framing + "\r\n" + body
			}
			var late wait.Lateness
			try := func(what, framing string, want []int, executed string) {
				t.Helper()
				before := rig.ReadFile(t, marks)
				got, err := rig.SendRaw(t, g, call("first", "LENGTH")+call("framed", framing)+call("hidden", "LENGTHConnection: close\r\n"))
				if err != nil {
					late.Add("%s: after answers %d the connection was not closed: %v", what, got, err)
					return
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: answers %d, want %d", what, got, want)
				}
				if got := strings.TrimPrefix(rig.ReadFile(t, marks), before); got != executed {
					t.Errorf("%s: executed %q, want %q", what, got, executed)
				}
			}
			try("one length", "LENGTH", []int{200, 200, 200}, "first\nframed\nhidden\n")
			try("chunks", chunks, []int{200, 200}, "first\nframed\n")
			for what, framing := range bad {
				try(what, framing, []int{200, 400}, "first\n")
			}
			late.State(t)
		})
	}
}
