package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The two eras of MCP, as flags name them.
const (
	legacy = "legacy"
	modern = "modern"

	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// The tools that are called. The others are there to be listed.
const (
	echo   = "echo"   // readOnlyHint
	record = "record" // without annotations; only a backend with a ledger has it
)

// A backend is the MCP server behind all contestants. It does as little work as possible, so that the benchmark measures the contestants.
type backend struct {
	era   string
	first string        // the name of its first tool
	list  func() []byte // the result of tools/list
	wrong func(nonce string, text []byte) []byte

	changes bool // the list does
	silent  bool // it says nothing about its tools, except how to call them

	// ledger, where not nil, takes the tool and the nonce of each call before it
	// is answered.
	ledger *os.File

	sessions sync.Map // the ids that were given out; legacy only
}

// tools is the result of a tools/list of so many, and of record where there is a
// ledger.
func (b *backend) tools(tools int) []byte {
	list := []byte(`{"tools":[`)
	for i := range tools {
		name := toolName(b.first, i)
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Appendf(list, `{"name":%q,"title":"Tool %d","description":"Looks up entry %d of the archive and returns what it finds there, as text of the size that was asked for.","inputSchema":{"type":"object","properties":{"nonce":{"type":"string","description":"Stands at the start of the answer."},"size":{"type":"integer","minimum":0,"description":"How long the answer is, in bytes."}},"required":["nonce","size"]}`, name, i, i)
		if !b.silent {
			list = append(list, `,"annotations":{"readOnlyHint":true},"_meta":{"x-summit-capabilities":[{"verb":"search","resource":"internet","constraints":["readonly","rate_limited"]}]}`...)
		}
		list = append(list, '}')
	}
	if b.ledger != nil {
		list = append(list, `,{"name":"`+record+`","inputSchema":{"type":"object","properties":{"nonce":{"type":"string"},"size":{"type":"integer"}}},"_meta":{"x-summit-capabilities":[{"verb":"write","resource":"fs","constraints":["rate_limited"]}]}}`...)
	}
	return append(append(list, ']'), b.rest()...)
}

// toolName is the name of tool i of a server whose first tool has that name.
func toolName(first string, i int) string {
	if i == 0 {
		return first
	}
	return fmt.Sprintf("tool_%04d", i)
}

// rest ends a result object.
func (b *backend) rest() string {
	if b.era == modern {
		return `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	}
	return "}"
}

// A question is the part of a request that the backend reads.
type question struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string `json:"name"`
		Arguments struct {
			Nonce string `json:"nonce"`
			Size  int    `json:"size"`
		} `json:"arguments"`
	} `json:"params"`
}

// answer returns the parts of the answer to q, to be written one after the
// other, or nil where none is due.
func (b *backend) answer(q *question) [][]byte {
	if q.ID == nil {
		return nil
	}
	open := func(key string) []byte { return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,%q:`, q.ID, key) }
	end := []byte("}")
	const info = `{"name":"bench","version":"1"}`
	switch {
	case q.Method == "initialize" && b.era == legacy:
		return [][]byte{open("result"), []byte(`{"protocolVersion":"` + legacyVersion + `","capabilities":{"tools":{"listChanged":` + strconv.FormatBool(b.changes) + `}},"serverInfo":` + info + `}`), end}
	case q.Method == "server/discover" && b.era == modern:
		return [][]byte{open("result"), []byte(`{"supportedVersions":["` + modernVersion + `"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}` + b.rest()), end}
	case q.Method == "ping":
		return [][]byte{open("result"), []byte("{}"), end}
	case q.Method == "tools/list":
		return [][]byte{open("result"), b.list(), end}
	case q.Method == "tools/call":
		a := q.Params.Arguments
		if b.ledger != nil {
			if _, err := fmt.Fprintln(b.ledger, q.Params.Name, a.Nonce); err != nil {
				return [][]byte{open("error"), []byte(`{"code":-32603,"message":"it cannot be noted"}`), end}
			}
		}
		head, piece := text(a.Nonce, a.Size)
		if b.wrong != nil {
			piece = b.wrong(a.Nonce, piece)
		}
		rest := `"}]}`
		if b.era == modern {
			rest = `"}],"resultType":"complete"}`
		}
		return [][]byte{append(open("result"), `{"content":[{"type":"text","text":"`+head...), piece, []byte(rest), end}
	}
	return [][]byte{open("error"), []byte(`{"code":-32601,"message":"no such method"}`), end}
}

// ServeHTTP is the backend over Streamable HTTP.
func (b *backend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete && b.era == legacy {
		b.sessions.Delete(r.Header.Get("Mcp-Session-Id"))
		return
	}
	if r.Method != http.MethodPost {
		http.Error(w, "no streams here", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(r.Body)
	var q question
	if err != nil || json.Unmarshal(body, &q) != nil {
		http.Error(w, "no message", http.StatusBadRequest)
		return
	}
	h := w.Header()
	if b.era == legacy {
		if r.Header.Get("Mcp-Protocol-Version") == modernVersion {
			http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no such version"}}`, http.StatusBadRequest)
			return
		}
		if q.Method == "initialize" {
			id := rand.Text()
			b.sessions.Store(id, true)
			h.Set("Mcp-Session-Id", id)
		} else if _, ok := b.sessions.Load(r.Header.Get("Mcp-Session-Id")); !ok {
			http.Error(w, "no such session", http.StatusNotFound)
			return
		}
	} else if r.Header.Get("Mcp-Protocol-Version") != modernVersion {
		http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no such version","data":{"supported":["`+modernVersion+`"]}}}`, http.StatusBadRequest)
		return
	}
	parts := b.answer(&q)
	if parts == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(length))
	for _, p := range parts {
		if _, err := w.Write(p); err != nil {
			return // the client is gone
		}
	}
}

// serveStdio is the backend over stdin and stdout.
func (b *backend) serveStdio(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 64<<10)
	w := bufio.NewWriterSize(out, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // the end of stdin ends a server on stdio
		}
		var q question
		if json.Unmarshal(line, &q) != nil {
			continue
		}
		if parts := b.answer(&q); parts != nil {
			for _, p := range parts {
				_, _ = w.Write(p) // Flush says it too
			}
			_ = w.WriteByte('\n')
			if lines.Buffered() == 0 || w.Buffered() > 32<<10 {
				if err := w.Flush(); err != nil {
					return err
				}
			}
		}
	}
}

// runBackend runs a backend's process.
func runBackend(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("backend", flag.ContinueOnError)
	era := f.String("era", legacy, "the era that it speaks, and no other")
	tools := f.Int("tools", 10, "how many tools it lists")
	stdio := f.Bool("stdio", false, "speak over stdin and stdout")
	sse := f.Bool("sse", false, "speak HTTP with SSE, the older transport")
	address := f.String("listen", "127.0.0.1:0", "where to serve over HTTP")
	fault := f.String("fault", "", "answer one call in ten badly, to see that it is caught: wrong, cut or lost")
	ledger := f.String("ledger", "", "note each call in this `FILE`, and have a tool that may not be called twice")
	nursery := f.String("nursery", "", "give the number of the process to this `DIR`, and end at once while it is shut")
	first := f.String("first", echo, "the name of its first tool")
	shown := f.String("list", "", "the tools that it lists: a `FILE` with a JSON array")
	silent := f.Bool("silent", false, "say nothing about the tools, except how to call them")
	changing := f.Duration("changing", 0, "how often the list of tools changes, over stdio")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *nursery != "" {
		if err := register(*nursery); err != nil {
			return err
		}
	}
	b := &backend{era: *era, first: *first, silent: *silent}
	if *ledger != "" {
		var err error
		if b.ledger, err = os.OpenFile(*ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
			return err
		}
	}
	list := b.tools(*tools)
	if *shown != "" {
		text, err := os.ReadFile(*shown)
		if err != nil {
			return err
		}
		list = append(append([]byte(`{"tools":`), text...), b.rest()...)
	}
	b.list = func() []byte { return list }
	var h http.Handler = b
	if *sse {
		h = &streams{backend: b}
	}
	switch {
	case *fault == "wrong":
		b.wrong = func(nonce string, text []byte) []byte {
			if strings.HasSuffix(nonce, "7") && len(text) > 0 {
				text = append(bytes.Clone(text[:len(text)-1]), '!')
			}
			return text
		}
	case *fault != "":
		h = spoil(*fault, b)
	}
	if *stdio {
		out := &lines{to: os.Stdout}
		if *changing > 0 {
			b.changes = true
			longer := b.tools(*tools + 1)
			began := time.Now()
			b.list = func() []byte {
				if int(time.Since(began) / *changing)%2 == 1 {
					return longer
				}
				return list
			}
			go out.repeat(*changing, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		}
		return b.serveStdio(os.Stdin, out)
	}
	return listen(ctx, *address, h)
}

// spoil breaks off every tenth answer to a call of h, or hangs up without one.
func spoil(how string, h http.Handler) http.Handler {
	var mu sync.Mutex
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("tools/call")) {
			mu.Lock()
			n++
			bad := n%10 == 0
			mu.Unlock()
			if bad {
				if how == "cut" {
					w.Header().Set("Content-Length", "1000")
					_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":`)) // breaking off is the point
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			}
		}
		h.ServeHTTP(w, r)
	})
}
