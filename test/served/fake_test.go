package served_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// A fake is an MCP server that does just what its arguments say, byte for byte:
// what no SDK would send is what we want to see carried. It is this test binary,
// run again with the word "fake" as its first argument.
type fake struct {
	modern bool              // it speaks 2026-07-28 and nothing else
	tools  []json.RawMessage // as in tools/list
	mood   string            // "", hang, exit, flood: how it starts
	marks  string            // a file to which a line is added for each call executed

	mu       sync.Mutex
	state    sync.Mutex      // guards tools and listener
	out      io.Writer       // of stdio
	listener json.RawMessage // the id of the request that listens for changes, if modern
}

// fakeArgs reads "fake [modern] [mood=X] [marks=FILE] [http] TOOLS-JSON…".
func newFake(args []string) *fake {
	f := &fake{}
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); {
		case arg == "modern":
			f.modern = true
		case key == "mood":
			f.mood = value
		case key == "marks":
			f.marks = value
		default:
			f.tools = append(f.tools, json.RawMessage(arg))
		}
	}
	return f
}

func (f *fake) stdio() {
	switch f.mood {
	case "exit":
		os.Exit(3)
	case "hang":
		select {}
	case "flood":
		for {
			fmt.Println(strings.Repeat("no JSON at all ", 1000))
		}
	}
	f.out = os.Stdout
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		line := bytes.Clone(in.Bytes())
		go func() {
			if answer := f.answer(line, f.say); answer != nil {
				f.say(answer)
			}
		}()
	}
}

func (f *fake) say(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.out.Write(append(message, '\n'))
}

// ServeHTTP is the fake over Streamable HTTP. It answers by event stream where
// the call says something first.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if !f.modern && r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
		http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such version"}}`, http.StatusBadRequest)
		return
	}
	var said [][]byte
	answer := f.answer(body, func(m []byte) { said = append(said, m) })
	switch {
	case answer == nil:
		w.WriteHeader(http.StatusAccepted)
	case len(said) == 0:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		for _, m := range append(said, answer) {
			fmt.Fprintf(w, "data: %s\n\n", bytes.ReplaceAll(m, []byte("\n"), []byte(" ")))
		}
	}
}

type fakeRequest struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
		Meta      map[string]json.RawMessage `json:"_meta"`
	} `json:"params"`
}

// answer returns the whole message, or nil where there is none to give.
func (f *fake) answer(message []byte, say func([]byte)) []byte {
	var q fakeRequest
	if err := json.Unmarshal(message, &q); err != nil || q.ID == nil {
		return nil
	}
	result := func(s string) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, s) }
	fail := func(s string) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, q.ID, s) }
	const info = `{"name":"fake","version":"1"}`
	switch {
	case q.Method == "initialize" && !f.modern:
		return result(`{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{}},"serverInfo":` + info + `}`)
	case q.Method == "server/discover" && f.modern:
		return result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}}`)
	case q.Method == "ping" || q.Method == "logging/setLevel":
		return result(`{}`)
	case q.Method == "subscriptions/listen" && f.modern:
		f.change(func() { f.listener = q.ID })
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, q.ID)
	case q.Method == "tools/list":
		extra := ""
		if f.modern {
			extra = `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
		}
		return result(`{"tools":[` + string(bytes.Join(f.raw(), []byte(","))) + `]` + extra + `}`)
	case q.Method == "tools/call":
		f.mark(q.Params.Name)
		return f.call(&q, result, fail, say)
	}
	return fail(`{"code":-32601,"message":"no such method"}`)
}

func (f *fake) raw() (raw [][]byte) {
	f.change(func() {
		for _, t := range f.tools {
			raw = append(raw, t)
		}
	})
	return raw
}

// change reads or writes what requests under way have in common.
func (f *fake) change(do func()) {
	f.state.Lock()
	defer f.state.Unlock()
	do()
}

func (f *fake) mark(tool string) {
	if f.marks == "" {
		return
	}
	file, err := os.OpenFile(f.marks, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	fmt.Fprintln(file, tool)
}

// call does what the argument "do" says: give these bytes as result or error,
// repeat the arguments, wait, tell of progress, or die.
func (f *fake) call(q *fakeRequest, result, fail func(string) []byte, say func([]byte)) []byte {
	arg := func(name string) (s string) {
		_ = json.Unmarshal(q.Params.Arguments[name], &s)
		return s
	}
	switch arg("do") {
	case "result":
		return result(arg("bytes"))
	case "error":
		return fail(arg("bytes"))
	case "die":
		os.Exit(9)
	case "grow":
		params := ""
		f.change(func() {
			f.tools = append(f.tools, json.RawMessage(arg("bytes")))
			if f.listener != nil {
				params = fmt.Sprintf(`,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, f.listener)
			}
		})
		say([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"` + params + `}`))
	case "wait":
		time.Sleep(time.Minute)
	case "progress":
		for i := range 5 {
			say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d.0,"total":5}}`, q.Params.Meta["progressToken"], i))
		}
	}
	all, _ := json.Marshal(q.Params.Arguments)
	text, _ := json.Marshal(string(all))
	extra := ""
	if f.modern {
		extra = `,"resultType":"complete"`
	}
	return result(`{"content":[{"type":"text","text":` + string(text) + `}]` + extra + `}`)
}
