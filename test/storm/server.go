package storm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// listEvery is the interval at which Server sends list_changed.
const listEvery = 20 * time.Millisecond

// Null answers each request at once with an empty result: with it as the target, a benchmark measures the cost of the storm itself.
func Null() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	})
}

// Quick is an MCP server with one tool, "quick", that answers at once.
func Quick() http.Handler {
	return serve(false, func(w http.ResponseWriter, _ *http.Request, m message) {
		if m.Method == "tools/list" {
			m.answer(w, `{"tools":[{"name":"quick","inputSchema":{"type":"object"}}]}`)
			return
		}
		m.answer(w, `{"content":[{"type":"text","text":"done"}]}`)
	})
}

// Server is the MCP server of the tenant that attacks. Its tools are "work", which answers at once; "hang", which does not answer; "big", which gives
// bigResult bytes; "flood", which sends floodOf notifications before it answers; and some with schemas that would cost much to check (RX-08). It says
// every listEvery that its tools have changed, and each list has new definitions.
func Server() *Stormy {
	s := &Stormy{}
	big := `{"content":[{"type":"text","text":"` + strings.Repeat("z", bigResult) + `"}]}`
	s.Handler = serve(true, func(w http.ResponseWriter, r *http.Request, m message) {
		n := s.count(cmp.Or(m.Params.Name, m.Method))
		switch {
		case m.Method == "tools/list":
			m.answer(w, `{"tools":[`+tools(n)+`]}`)
		case m.Params.Name == "hang":
			<-r.Context().Done()
		case m.Params.Name == "big":
			m.answer(w, big)
		case m.Params.Name == "flood":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range floodOf {
				_, err := fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":%s,\"progress\":%d,\"message\":%q}}\n\n", m.Params.Meta.ProgressToken, i, strings.Repeat("m", 100))
				if err != nil {
					return
				}
			}
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		default:
			m.answer(w, `{"content":[]}`)
		}
	})
	return s
}

// A Stormy is a Server that counts its requests.
type Stormy struct {
	http.Handler
	asked sync.Map // tool, or tools/list, to *atomic.Int64
}

func (s *Stormy) count(what string) int64 {
	n, _ := s.asked.LoadOrStore(what, new(atomic.Int64))
	return n.(*atomic.Int64).Add(1)
}

// Asked returns how often the tool was called, or with "tools/list" how often the tools were listed.
func (s *Stormy) Asked(what string) int64 {
	n, ok := s.asked.Load(what)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

// tools are the definitions of Server in its n-th list.
func tools(n int64) string {
	all := []string{}
	for _, name := range []string{"work", "hang", "big", "flood"} {
		all = append(all, fmt.Sprintf(`{"name":%q,"description":"list %d","inputSchema":{"type":"object"}}`, name, n))
	}
	doubled := `{"type":"string"}`
	for range 12 {
		doubled = `{"anyOf":[` + doubled + `,{"type":"null"}]}`
	}
	definitions := []string{}
	for i := range 500 {
		definitions = append(definitions, fmt.Sprintf(`"d%d":{"$ref":"#/$defs/d%d"}`, i, (i+1)%500))
	}
	for i, schema := range []string{
		doubled,
		`{"$ref":"#/$defs/d0"}`,
		`{"type":"string","pattern":"` + strings.Repeat("(a?){100}", 100) + `"}`,
	} {
		all = append(all, fmt.Sprintf(`{"name":"costly%d","description":"list %d","inputSchema":{"type":"object","properties":{"x":%s},"$defs":{%s}}}`, i, n, schema, strings.Join(definitions, ",")))
	}
	return strings.Join(all, ",")
}

// A message has the members of a client's request that these servers read.
type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name string
		Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
}

func (m message) answer(w http.ResponseWriter, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// serve returns an MCP server of the legacy era without sessions. do answers tools/list and tools/call. A restless server sends list_changed.
func serve(restless bool, do func(w http.ResponseWriter, r *http.Request, m message)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodGet && restless:
			changes(w, r)
			return
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			m.answer(w, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"storm","version":"1"}}`)
		case m.Method == "ping":
			m.answer(w, `{}`)
		case m.Method == "tools/list", m.Method == "tools/call":
			do(w, r, m)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`, m.ID)
		}
	})
}

// changes sends list_changed every listEvery.
func changes(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	tick := time.NewTicker(listEvery)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"); err != nil || flush.Flush() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
