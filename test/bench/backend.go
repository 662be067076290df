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
)

// The two eras of MCP, as flags name them.
const (
	legacy = "legacy"
	modern = "modern"

	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// echo is the tool that is called. The others are there to be listed.
const echo = "echo"

// A backend is the MCP server behind all contestants. It does as little as an
// MCP server can, so that what is measured is what stands before it.
type backend struct {
	era   string
	list  []byte // the result of tools/list, finished once
	wrong func(nonce string, text []byte) []byte

	sessions sync.Map // the ids that were given out; legacy only
}

func newBackend(era string, tools int) *backend {
	b := &backend{era: era}
	list := []byte(`{"tools":[`)
	for i := range tools {
		name := echo
		if i > 0 {
			list = append(list, ',')
			name = fmt.Sprintf("tool_%04d", i)
		}
		list = fmt.Appendf(list, `{"name":%q,"title":"Tool %d","description":"Looks up entry %d of the archive and returns what it finds there, as text of the size that was asked for.","inputSchema":{"type":"object","properties":{"nonce":{"type":"string","description":"Stands at the start of the answer."},"size":{"type":"integer","minimum":0,"description":"How long the answer is, in bytes."}},"required":["nonce","size"]},"annotations":{"readOnlyHint":true},"_meta":{"x-summit-capabilities":[{"verb":"search","resource":"internet","constraints":["readonly","rate_limited"]}]}}`, name, i, i)
	}
	b.list = append(list, ']')
	b.list = append(b.list, b.rest()...)
	return b
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
		return [][]byte{open("result"), []byte(`{"protocolVersion":"` + legacyVersion + `","capabilities":{"tools":{}},"serverInfo":` + info + `}`), end}
	case q.Method == "server/discover" && b.era == modern:
		return [][]byte{open("result"), []byte(`{"supportedVersions":["` + modernVersion + `"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":` + info + `}` + b.rest()), end}
	case q.Method == "ping":
		return [][]byte{open("result"), []byte("{}"), end}
	case q.Method == "tools/list":
		return [][]byte{open("result"), b.list, end}
	case q.Method == "tools/call":
		a := q.Params.Arguments
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
			return nil // the end of stdin is how a server on stdio is told to end
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

// runBackend is the life of a backend's process.
func runBackend(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("backend", flag.ContinueOnError)
	era := f.String("era", legacy, "the era that it speaks, and no other")
	tools := f.Int("tools", 10, "how many tools it lists")
	stdio := f.Bool("stdio", false, "speak over stdin and stdout")
	fault := f.String("fault", "", "answer one call in ten badly, to see that it is caught: wrong, cut or lost")
	if err := f.Parse(args); err != nil {
		return err
	}
	b := newBackend(*era, *tools)
	var h http.Handler = b
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
		return b.serveStdio(os.Stdin, os.Stdout)
	}
	return listen(ctx, h)
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
