package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
)

// ServeModernHostedBy is ServeHostedBy for a server that speaks only 2026-07-28, as the SDK does not. It has no sessions: each request stands for the person
// of its own token. The descriptions of its tools name the person who asked for the list.
func ServeModernHostedBy(t *testing.T, a *Authority) *Hosted {
	t.Helper()
	h := newHosted()
	h.streams = map[*modernStream]bool{}
	h.authority, h.Provider = a, providerOf(a)
	h.start(t)
	return h
}

// A modernStream is an open answer to subscriptions/listen.
type modernStream struct {
	person string
	id     json.RawMessage // of the request
	touch  chan string     // receives the person to name in an update
}

// modernTools are the tools of newServer. PERSON is who asks for the list.
const modernTools = `[
	{"name":"whoami","description":"for PERSON","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},
	{"name":"expect","description":"for PERSON","inputSchema":{"type":"object","properties":{"as":{"type":"string"},"id":{"type":"integer"}}},"annotations":{"readOnlyHint":true}},
	{"name":"statement","description":"for PERSON","inputSchema":{"type":"object","properties":{"month":{"type":"integer"}}},"annotations":{"readOnlyHint":true}}]`

// serveModern answers a request with a good token.
func (h *Hosted) serveModern(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q fakeserver.Request
	if r.Method != http.MethodPost || r.Header.Get("Mcp-Protocol-Version") != "2026-07-28" || json.Unmarshal(body, &q) != nil {
		http.Error(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no such version","data":{"supported":["2026-07-28"]}}}`, http.StatusBadRequest)
		return
	}
	person := auth.TokenInfoFromContext(r.Context()).UserID
	list := func(name, entries string) string {
		return fmt.Sprintf(`{"%s":%s,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, name, entries)
	}
	result := ""
	switch q.Method {
	case "server/discover":
		result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true}},"ttlMs":0,"cacheScope":"private"}`
	case "tools/list":
		result = list("tools", strings.ReplaceAll(modernTools, "PERSON", person))
	case "resources/list":
		result = list("resources", `[{"uri":"me://profile","name":"profile","description":"for `+person+`"}]`)
	case "resources/templates/list":
		result = list("resourceTemplates", "[]")
	case "resources/read":
		result = fmt.Sprintf(`{"contents":[{"uri":"me://profile","text":%q}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`, person)
	case "tools/call":
		result = fmt.Sprintf(`{"content":[{"type":"text","text":%q}],"resultType":"complete"}`, h.modernText(&q, person))
	case "subscriptions/listen":
		h.listenModern(w, r, &q, person)
		return
	}
	answer := fmt.Sprintf(`"result":%s`, result)
	if result == "" {
		answer = `"error":{"code":-32601,"message":"no such method"}`
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, q.ID, answer)
}

// modernText returns the text of a tool's result for the person.
func (h *Hosted) modernText(q *fakeserver.Request, person string) string {
	var as string
	_ = json.Unmarshal(q.Params.Arguments["as"], &as)
	switch q.Params.Name {
	case "expect":
		h.mu.Lock()
		defer h.mu.Unlock()
		if as == "" || !strings.HasPrefix(person, as) {
			h.mixed = append(h.mixed, fmt.Sprintf("a request of %s has the token of %s", as, person))
		}
		return fmt.Sprintf("%s %s", person, q.Params.Arguments["id"])
	case "statement":
		return fmt.Sprintf("%s %s", person, q.Params.Arguments["month"])
	}
	return person
}

// listenModern keeps a stream open until the client ends it.
func (h *Hosted) listenModern(w http.ResponseWriter, r *http.Request, q *fakeserver.Request, person string) {
	s := &modernStream{person: person, id: bytes.Clone(q.ID), touch: make(chan string, 16)}
	h.mu.Lock()
	h.streams[s] = true
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.streams, s)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(method, params string) {
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{%s\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":%s}}}\n\n", method, params, s.id)
		_ = http.NewResponseController(w).Flush()
	}
	say("notifications/subscriptions/acknowledged", `"notifications":{"resourceSubscriptions":["me://profile"]},`)
	for {
		select {
		case <-r.Context().Done():
			return
		case who := <-s.touch:
			say("notifications/resources/updated", fmt.Sprintf(`"uri":"me://profile","person":%q,`, who))
		}
	}
}

// touchModern is Touch at a server of the modern era.
func (h *Hosted) touchModern(person string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		if s.person == person {
			select {
			case s.touch <- person:
			default: // it has enough of them
			}
		}
	}
}

// StreamsOf returns how many streams with the token of the person are open at a server of the modern era.
func (h *Hosted) StreamsOf(person string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.streams {
		if s.person == person {
			n++
		}
	}
	return n
}

// PersonOf returns the person that the token of a request stands for; "" if it is not good.
func (h *Hosted) PersonOf(q *SeenRequest) string {
	person, _ := h.authority.person(strings.TrimPrefix(q.Authorization, "Bearer "), h.Resource)
	return person
}
