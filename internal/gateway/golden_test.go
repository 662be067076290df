package gateway_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

var resourceUpdate = flag.Bool("update", false, "write the answers into testdata")

// shown are the headers of answers that the golden files show.
var shown = []string{"Allow", "Content-Type", "Location", "Mcp-Session-Id", "Retry-After", "Www-Authenticate"}

// TestHTTPGolden sends the requests of testdata/http one after the other, each on its own
// connection, and compares the answers. In both, $SESSION and $RUN are the ids that were issued
// last.
func TestHTTPGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/http/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no goldens: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			w := newWorld(t)
			playAll(w)
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var ids talk
			var out []txtar.File
			for _, f := range a.Files {
				if !strings.HasPrefix(f.Name, "request") {
					continue
				}
				answer := ids.send(t, w, string(f.Data))
				out = append(out, f, txtar.File{Name: "answer", Data: []byte(answer)})
			}
			compare(t, file, a, out)
		})
	}
}

// compare holds a's files to out, or writes them with -update.
func compare(t *testing.T, file string, a *txtar.Archive, out []txtar.File) {
	t.Helper()
	got := txtar.Format(&txtar.Archive{Comment: a.Comment, Files: out})
	if *resourceUpdate {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := txtar.Format(a)
	if string(got) == string(want) {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var gl, wl string
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			t.Fatalf("%s:%d:\n got %s\nwant %s", file, i+1, gl, wl)
		}
	}
}

// A talk holds the ids that were issued in one golden file.
type talk struct{ session, run string }

var minted = regexp.MustCompile(`"run":"([0-9a-f]{32})"`)

// send sends a request as it is written: a line, headers, and a body.
func (k *talk) send(t *testing.T, w *world, text string) string {
	t.Helper()
	text = strings.NewReplacer("$SESSION", k.session, "$RUN", k.run).Replace(text)
	top, body, _ := strings.Cut(text, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	lines := strings.Split(strings.TrimSuffix(top, "\n"), "\n")
	request := lines[0] + " HTTP/1.1\r\nConnection: close\r\n"
	given := map[string]bool{}
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ":")
		given[strings.ToLower(name)] = true
		if strings.TrimSpace(value) != "-" {
			request += l + "\r\n"
		}
	}
	for _, l := range []string{"Host: localhost", "Accept: " + both, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body))} {
		name, _, _ := strings.Cut(l, ":")
		if !given[strings.ToLower(name)] && (!strings.HasPrefix(name, "Content") || strings.HasPrefix(lines[0], "POST")) {
			request += l + "\r\n"
		}
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // closing it cannot fail the test
	if _, err := io.WriteString(conn, request+"\r\n"+body); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(lines[0], " ")
	res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: %v", lines[0], err)
	}
	defer res.Body.Close() //nolint:errcheck // closing it cannot fail the test
	got, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		k.session = id
	}
	if m := minted.FindSubmatch(got); m != nil {
		k.run = string(m[1])
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", res.StatusCode)
	for _, name := range shown {
		if v := res.Header.Get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	b.WriteString("\n")
	b.Write(got)
	answer := b.String()
	if k.session != "" {
		answer = strings.ReplaceAll(answer, k.session, "$SESSION")
	}
	if k.run != "" {
		answer = strings.ReplaceAll(answer, k.run, "$RUN")
	}
	if !strings.HasSuffix(answer, "\n") {
		answer += "\n"
	}
	return answer
}

// everything is a result with members that SDKs drop.
const everything = `{ "content" : [{"type":"hologram","n":9007199254740993,"f":1.0,"e":1E400}],"z":null,"a":{"$schema":"x","oneOf":[]},` + "\n\t" + `"structuredContent":[1,2] , "b":"\u00e9\/"}`

// playAll plays the tools of the golden files.
func playAll(w *world) {
	w.answers("everything", everything)
	w.answers("nothing", `{}`)
	w.answers("from-modern", `{"resultType":"complete","content":[],"ttlMs":5,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"behind"},"vendor.example/x":1.0},"last":true}`)
	w.answers("liar", `{"content":[],"_meta":{"io.switchboard/error":{"code":"SB-APPR-001"},"io.modelcontextprotocol/related-task":{"taskId":"t"},"\u0069o.switchboard/x":1}}`)
	w.answers("asks", `{"resultType":"input_required","inputRequests":{}}`)
	w.answers("twice", `{"content":[],"_meta":{},"_Meta":{"io.switchboard/x":1}}`)
	w.answers("list", `[1]`)
	w.play("speaks", func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Notify == nil {
			return switchboard.Result{JSON: []byte(`{"content":["nobody listens"]}`)}, nil
		}
		for _, n := range []switchboard.Notification{
			{Method: "notifications/progress", Params: []byte(`{"progressToken":7,"progress":0.50,` + "\n" + `"total":1}`)},
			{Method: "notifications/message", Params: []byte(`{"level":"debug","data":"for debug only"}`)},
			{Method: "notifications/message", Params: []byte(`{"level":"warning","data":{"n":9007199254740993},"_meta":{"io.modelcontextprotocol/subscriptionId":1,"x":2}}`)},
			{Method: "notifications/tools/list_changed", Params: []byte(`{}`)},
			{Method: "notifications/progress", Params: []byte(`{"progressToken":7,"progress":1.0}`)},
		} {
			c.Notify(n)
		}
		return switchboard.Result{JSON: []byte("{\"content\":[],\n\"level\":\"" + c.LogLevel + "\"}")}, nil
	})
	refuse := func(tool string, err error) {
		w.play(tool, func(context.Context, *switchboard.Call) (switchboard.Result, error) { return switchboard.Result{}, err })
	}
	secret := fmt.Errorf("dial 10.1.2.3: secret")
	refuse("approve", &switchboard.Error{Code: switchboard.CodeApprovalPending, Text: "this tool needs a person's approval for each call", Hint: "ask the person whom you work for", Cause: secret})
	refuse("limited", &switchboard.Error{Code: switchboard.CodeRateLimit, Text: "this tool has been called as often as its limit allows", RetryAfter: 3e9})
	refuse("maybe", &switchboard.Error{Code: switchboard.CodeOutcomeUnknown, Text: "the server was lost during the call; it may have been executed", Cause: secret})
	refuse("down", &switchboard.Error{Code: switchboard.CodeNoneHealthy, Text: "nothing that can serve this is healthy", Cause: secret})
	refuse("gone", switchboard.Refuse(switchboard.CodeNoSuchTool, "server s no longer has the tool"))
	refuse("server-error", &switchboard.ServerError{Server: "s", Object: []byte(`{ "code": -32099, "message":"no","data":{"n":1.0, "é":[]}, "more":1}`)})
	refuse("server-params", &switchboard.ServerError{Server: "s", Object: []byte(`{"code":-32602,"message":"no such thing"}`)})
	refuse("broken", secret)
	w.play("panics", func(context.Context, *switchboard.Call) (switchboard.Result, error) { panic("a bug") })
}
