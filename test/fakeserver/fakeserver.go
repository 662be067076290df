// Package fakeserver has the MCP servers that tests start: one that sends exactly the bytes that a test wants, and some of the official SDK. It imports
// nothing of Switchboard, so that their program starts in a few milliseconds.
package fakeserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The key and the request state in the questions of a modern fake.
const (
	Key   = `k\u00e9y`
	State = `"st\u0061te \/ 1.0"`
)

// ask asks the client of a legacy fake, and returns the whole answer, or nil once ctx has ended.
func (f *Server) ask(ctx context.Context, method, params string, say func([]byte)) []byte {
	answer := make(chan []byte, 1)
	f.state.Lock()
	f.asked++
	id := fmt.Sprintf(`"q%d"`, f.asked)
	f.answers[id] = answer
	f.state.Unlock()
	say(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params))
	select {
	case got := <-answer:
		return got
	case <-ctx.Done():
		return nil
	}
}

// question asks the client in the way of its era: by a request, or by a result of the type input_required. It returns the text of the result, or the
// result itself.
func (f *Server) question(ctx context.Context, q *Request, method, params string, say func([]byte)) (text, result []byte) {
	var steps string
	_ = json.Unmarshal(q.Params.Arguments["steps"], &steps)
	n, _ := strconv.Atoi(steps)
	for i := range n {
		say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, q.Params.Meta["progressToken"], i))
	}
	switch {
	case !f.Modern:
		return f.ask(ctx, method, params, say), nil
	case q.Params.State == nil:
		return nil, fmt.Appendf(nil, `{"resultType":"input_required","inputRequests":{"%s":{"method":%q,"params":%s}},"requestState":%s}`, Key, method, params, State)
	}
	return fmt.Appendf(nil, "%s %s", q.Params.State, q.Params.Answers), nil
}

// textOf returns a result with the text.
func (f *Server) textOf(text []byte) string {
	quoted, _ := json.Marshal(string(text))
	extra := ""
	if f.Modern {
		extra = `,"resultType":"complete"`
	}
	return `{"content":[{"type":"text","text":` + string(quoted) + `}]` + extra + `}`
}

// A Server is an MCP server that sends exactly the bytes in its arguments, also those that no SDK would send. Over stdio it is the program
// test/rig/fakes with the first argument "fake".
type Server struct {
	Modern bool              // it speaks only 2026-07-28
	Tools  []json.RawMessage // as in tools/list
	mood   string            // "", hang, exit, flood: how it starts
	Marks  string            // a file with a line for each executed call, and for each change of roots
	Says   string            // the result of each call; "" leaves it to the call's arguments
	Tape   string            // a file with a line for each received message, quoted
	more   map[string][]byte // the content of the other lists, by name: resources, resourceTemplates, prompts
	unruly bool              // each call has a fault: see misbehave
	block  string            // a member of its capabilities; "" for none
	beside string            // members beside them, the instructions too

	mu       sync.Mutex
	out      io.Writer  // of stdio
	state    sync.Mutex // guards the fields below
	asked    int
	visits   int
	answers  map[string]chan []byte // of the client, by the id of the question
	roots    chan []byte            // the client's answer, in mood asks-roots
	listener json.RawMessage        // the id of the request that listens for changes, if modern
}

// New reads "[modern] [unruly] [mood=X] [hang-if=FILE] [marks=FILE] [tape=FILE] [says=RESULT] [resources=JSON] [resourceTemplates=JSON] [prompts=JSON]
// TOOLS-JSON…". The JSON of a list has no brackets around it. "args=FILE" reads more arguments from a file, a JSON list, because a command line has a
// limit.
func New(args []string) *Server {
	f := &Server{more: map[string][]byte{}, answers: map[string]chan []byte{}, roots: make(chan []byte, 1)}
	f.Configure(args)
	return f
}

// Configure adds arguments, as New reads them.
func (f *Server) Configure(args []string) {
	for _, arg := range args {
		switch key, value, _ := strings.Cut(arg, "="); {
		case arg == "modern":
			f.Modern = true
		case arg == "unruly":
			f.unruly = true
			for _, t := range unrulyTools {
				f.Tools = append(f.Tools, json.RawMessage(t))
			}
		case key == "mood":
			f.mood = value
		case key == "hang-if": // if this file exists
			if _, err := os.Stat(value); err == nil {
				f.mood = "hang"
			}
		case key == "become": // what it offers from its next start on, once this file exists: see Become
			if _, err := os.Stat(value); err == nil {
				defer f.Become(value)
			}
		case key == "marks":
			f.Marks = value
		case key == "tape":
			f.Tape = value
		case key == "says":
			f.Says = value
		case key == "block":
			f.block = "," + value
		case key == "beside":
			f.beside = "," + value
		case key == "instructions":
			text, _ := json.Marshal(value)
			f.beside = `,"instructions":` + string(text)
		case key == "resources" || key == "resourceTemplates" || key == "prompts":
			f.more[key] = []byte(value)
		case strings.HasPrefix(arg, "{"):
			f.Tools = append(f.Tools, json.RawMessage(arg))
		case key == "args":
			var more []string
			text, _ := os.ReadFile(value)
			_ = json.Unmarshal(text, &more)
			f.Configure(more)
		}
	}
}

// Become replaces all that the fake offers by the arguments in a file, a JSON list. It notifies no client.
func (f *Server) Become(file string) {
	var offer []string
	text, _ := os.ReadFile(file)
	_ = json.Unmarshal(text, &offer)
	f.change(func() {
		f.Tools, f.more = nil, map[string][]byte{}
		f.Configure(offer)
	})
}

// ServeStdio serves the fake on stdin and stdout.
func (f *Server) ServeStdio() {
	switch f.mood {
	case "exit":
		os.Exit(3)
	case "hang":
		for { // an empty select would be a deadlock, which ends the program
			time.Sleep(time.Hour)
		}
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
			if answer := f.Answer(context.Background(), line, f.say); answer != nil {
				f.say(answer)
			}
		}()
	}
}

func (f *Server) say(message []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.out.Write(append(message, '\n'))
}

// ServeHTTP serves the fake over Streamable HTTP. It answers with an event stream if the call sends notifications first.
func (f *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	body, _ := io.ReadAll(r.Body)
	if !f.Modern && r.Header.Get("Mcp-Protocol-Version") == "2026-07-28" {
		http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such version"}}`, http.StatusBadRequest)
		return
	}
	streams := false
	say := func(m []byte) {
		if !streams {
			w.Header().Set("Content-Type", "text/event-stream")
			streams = true
		}
		fmt.Fprintf(w, "data: %s\n\n", bytes.ReplaceAll(m, []byte("\n"), []byte(" ")))
		_ = http.NewResponseController(w).Flush()
	}
	switch answer := f.Answer(r.Context(), body, say); {
	case answer == nil:
		w.WriteHeader(http.StatusAccepted)
	case streams:
		say(answer)
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}
}

// An SSEServer is a fake over HTTP with SSE: all its messages to a client go over one stream.
type SSEServer struct {
	*Server
	streams sync.Map // address of the messages → func([]byte)
	opened  atomic.Int64
}

// ServeHTTP opens a stream, or receives a message of a client with a stream.
func (s *SSEServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if say, ok := s.streams.Load(r.URL.Path); ok && r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusAccepted)
		go func() {
			if answer := s.Answer(context.Background(), body, say.(func([]byte))); answer != nil {
				say.(func([]byte))(answer)
			}
		}()
		return
	}
	if r.Method != http.MethodGet {
		http.Error(w, "no", http.StatusMethodNotAllowed)
		return
	}
	said := make(chan []byte)
	endpoint := fmt.Sprintf("/to/%d", s.opened.Add(1))
	s.streams.Store(endpoint, func(m []byte) {
		select {
		case said <- m:
		case <-r.Context().Done():
		}
	})
	defer s.streams.Delete(endpoint)
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: endpoint\ndata: %s\n\n", endpoint)
	for {
		_ = http.NewResponseController(w).Flush()
		select {
		case m := <-said:
			fmt.Fprintf(w, "data: %s\n\n", m)
		case <-r.Context().Done():
			return
		}
	}
}

// A Request has the members of a request that a fake reads.
type Request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string                     `json:"name"`
		Arguments map[string]json.RawMessage `json:"arguments"`
		Meta      map[string]json.RawMessage `json:"_meta"`
		Answer    string                     `json:"zzAnswer"` // the whole of it, where "@ID@" stands for the request's
		Answers   json.RawMessage            `json:"inputResponses"`
		State     json.RawMessage            `json:"requestState"`
	} `json:"params"`
}

// Answer returns the answer to a message, or nil if the message needs none. It asks its client until ctx ends.
func (f *Server) Answer(ctx context.Context, message []byte, say func([]byte)) []byte {
	var q Request
	err := json.Unmarshal(message, &q)
	if err == nil && q.Method == "notifications/initialized" && f.mood == "asks-roots" {
		go func() { f.roots <- f.ask(context.WithoutCancel(ctx), "roots/list", "{}", say) }()
	}
	if err == nil && q.Method == "notifications/roots/list_changed" {
		AppendLine(f.Marks, "told")
		go func() {
			AppendLine(f.Marks, "changed: "+string(f.ask(context.WithoutCancel(ctx), "roots/list", "{}", say)))
		}()
	}
	if err == nil && q.Method == "notifications/cancelled" {
		AppendLine(f.Tape, strconv.Quote(string(message)))
	}
	if err != nil || q.ID == nil {
		return nil
	}
	if q.Method == "" {
		f.state.Lock()
		answer := f.answers[string(q.ID)]
		f.state.Unlock()
		if answer != nil {
			answer <- message
		}
		return nil
	}
	AppendLine(f.Tape, strconv.Quote(string(message)))
	if q.Params.Answer != "" {
		return []byte(strings.Replace(q.Params.Answer, `"@ID@"`, string(q.ID), 1))
	}
	result := func(s string) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, q.ID, s) }
	fail := func(s string) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":%s}`, q.ID, s) }
	const info = `{"name":"fake","version":"1"}`
	switch {
	case q.Method == "initialize" && !f.Modern:
		return result(`{"protocolVersion":"2025-11-25","capabilities":{"logging":{},` + f.offers() + f.block + `}` + f.beside + `,"serverInfo":` + info + `}`)
	case q.Method == "server/discover" && f.Modern:
		return result(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{` + f.offers() + f.block + `}` + f.beside + `,"ttlMs":0,"cacheScope":"private","_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}}`)
	case q.Method == "ping" || q.Method == "logging/setLevel":
		return result(`{}`)
	case q.Method == "subscriptions/listen" && f.Modern:
		f.change(func() { f.listener = q.ID })
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}`, q.ID)
	case strings.HasSuffix(q.Method, "/list"):
		extra := ""
		if f.Modern {
			extra = `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
		}
		name, list := strings.TrimSuffix(q.Method, "/list"), bytes.Join(f.raw(), []byte(","))
		if name == "resources/templates" {
			name = "resourceTemplates"
		}
		if name != "tools" {
			f.change(func() { list = f.more[name] })
		}
		return result(`{"` + name + `":[` + string(list) + `]` + extra + `}`)
	case q.Method == "tools/call":
		AppendLine(f.Marks, q.Params.Name)
		return f.AnswerCall(ctx, &q, result, fail, say)
	}
	return fail(`{"code":-32601,"message":"no such method"}`)
}

func (f *Server) raw() (raw [][]byte) {
	f.change(func() {
		for _, t := range f.Tools {
			raw = append(raw, t)
		}
	})
	return raw
}

// change runs do with the lock of the state that requests share.
func (f *Server) change(do func()) {
	f.state.Lock()
	defer f.state.Unlock()
	do()
}

// offers returns the fake's capabilities.
func (f *Server) offers() string {
	if len(f.more) == 0 {
		return `"tools":{"listChanged":true}`
	}
	return `"tools":{"listChanged":true},"resources":{},"prompts":{},"completions":{}`
}

// AppendLine appends a line to the file. If name is "", it does nothing.
func AppendLine(name, line string) {
	if name == "" {
		return
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	fmt.Fprintln(file, line)
}

// AnswerCall executes the call's argument "do": return the given bytes as result or error, return the arguments, wait, send progress, ask, or die.
func (f *Server) AnswerCall(ctx context.Context, q *Request, result, fail func(string) []byte, say func([]byte)) []byte {
	arg := func(name string) (s string) {
		_ = json.Unmarshal(q.Params.Arguments[name], &s)
		return s
	}
	switch {
	case f.Says != "":
		return result(f.Says)
	case f.unruly:
		return f.misbehave(ctx, q, result, say)
	}
	switch arg("do") {
	case "result":
		return result(arg("bytes"))
	case "error":
		return fail(arg("bytes"))
	case "fetch": // the answer of another server to this process
		resp, err := http.Get(arg("url"))
		if err != nil {
			return fail(`{"code":-1,"message":"it cannot be reached"}`)
		}
		defer func() { _ = resp.Body.Close() }()
		return result(f.textOf([]byte(resp.Status)))
	case "die":
		os.Exit(9)
	case "grow", "replace": // the first tool
		params := ""
		f.change(func() {
			if arg("do") == "replace" {
				f.Tools = f.Tools[1:]
			}
			f.Tools = append(f.Tools, json.RawMessage(arg("bytes")))
			if f.listener != nil {
				params = fmt.Sprintf(`,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, f.listener)
			}
		})
		say([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"` + params + `}`))
	case "become": // what the file says, and announce that each list has changed
		f.Become(arg("bytes"))
		params := ""
		f.change(func() {
			if f.listener != nil {
				params = fmt.Sprintf(`,"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}`, f.listener)
			}
		})
		for _, list := range []string{"tools", "resources", "prompts"} {
			say([]byte(`{"jsonrpc":"2.0","method":"notifications/` + list + `/list_changed"` + params + `}`))
		}
	case "ask":
		text, asks := f.question(ctx, q, arg("method"), arg("params"), say)
		if asks != nil {
			return result(string(asks))
		}
		return result(f.textOf(text))
	case "roots":
		roots := <-f.roots
		f.roots <- roots
		return result(f.textOf(roots))
	case "ask-and-die":
		say([]byte(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":` + arg("params") + `}`))
		awaitFile(arg("until"))
		os.Exit(9)
	case "await":
		awaitFile(arg("until"))
	case "complete":
		say([]byte(`{"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"e-1"}}`))
	case "url-first":
		first := false
		f.change(func() { f.visits++; first = f.visits == 1 })
		if first {
			return fail(`{"code":-32042,"message":"go there first","data":{"elicitations":[` + arg("params") + `]}}`)
		}
	case "wait":
		time.Sleep(time.Minute)
	case "talk":
		f.talk(q, arg, say)
	case "progress":
		for i := range 5 {
			say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d.0,"total":5}}`, q.Params.Meta["progressToken"], i))
		}
	}
	all, _ := json.Marshal(q.Params.Arguments)
	return result(f.textOf(all))
}

// awaitFile waits until the file is there.
func awaitFile(name string) {
	for {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// talk sends "times" notifications of progress, and as many log messages if "logs" is "yes". It waits for "pause" after each. All of them carry "mark".
func (f *Server) talk(q *Request, arg func(string) string, say func([]byte)) {
	times, _ := strconv.Atoi(arg("times"))
	pause, _ := time.ParseDuration(arg("pause"))
	tick := time.NewTicker(max(pause, 1))
	defer tick.Stop()
	for i := range times {
		say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d,"message":%q}}`, q.Params.Meta["progressToken"], i, arg("mark")))
		if arg("logs") == "yes" {
			say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":{"n":%d,"mark":%q}}}`, i, arg("mark")))
		}
		if pause > 0 {
			<-tick.C
		}
	}
}
