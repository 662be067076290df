// Package agents tests Switchboard with agents of other vendors: Claude Code, Codex, Gemini CLI and opencode, from npm, at the versions of
// package-lock.json. Model is the model that each of them uses: a script on loopback with the API of the agent's vendor. The tests need the build tag
// agents, because the packages are large; make test-agents sets it.
package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A Turn is one request of an agent to its model, independent of the API.
type Turn struct {
	Tools   []Tool   // what the model may call
	Results []string // the results of the conversation's calls, as JSON
}

// A Tool has the name that the agent gives it for its model.
type Tool struct {
	Name      string
	Namespace string // only Codex has it
}

// Offers returns the agent's form of the server's tool of that name: each agent puts the name of the server before it in its own way.
func (t Turn) Offers(name string) *Tool {
	for i := range t.Tools {
		if own := t.Tools[i].Name; own == name || strings.HasSuffix(own, "_"+name) {
			return &t.Tools[i]
		}
	}
	return nil
}

// Has reports whether a result holds the text.
func (t Turn) Has(text string) bool {
	for _, r := range t.Results {
		if strings.Contains(r, text) {
			return true
		}
	}
	return false
}

// A Reply is the next step of the model: a call of a tool, or a text, which ends the conversation.
type Reply struct {
	Call *Tool
	Args string // of the call, as JSON; "" is none
	Say  string
}

func (r Reply) args() string { return cmp.Or(r.Args, "{}") }

// A Model is a scripted model behind the APIs of Anthropic (messages), OpenAI
// (responses, chat completions) and Google (Gemini). It answers other requests with 404.
type Model struct {
	Script func(Turn) Reply

	mu     sync.Mutex
	turns  int
	waited int // how often it has waited for servers
	last   Turn
}

const (
	// waitTool is the tool with which Claude Code lets its model wait for MCP servers that are still starting. Claude Code asks its model at once.
	waitTool = "WaitForMcpServers"
	// maxWaits is how often a model waits before it goes on without the tools of servers.
	maxWaits = 20
	// serverPrefix begins the names of servers' tools in Claude Code.
	serverPrefix = "mcp__"
)

// wait waits for servers, as a model does that misses their tools. ok is false if there is nothing to wait for; turn is then without the results of
// waiting.
func (m *Model) wait(turn *Turn) (reply Reply, ok bool) {
	waits := turn.Offers(waitTool)
	started := slices.ContainsFunc(turn.Tools, func(t Tool) bool { return strings.HasPrefix(t.Name, serverPrefix) })
	if waits != nil && !started && m.waited < maxWaits {
		m.waited++
		return Reply{Call: waits}, true
	}
	turn.Results = turn.Results[min(m.waited, len(turn.Results)):]
	return Reply{}, false
}

// Last returns the last request that offered tools.
func (m *Model) Last() Turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// An api reads a request, and writes a reply as a stream of events, as all these agents expect.
type api struct {
	read  func(body []byte) (Turn, error)
	write func(reply Reply, id string) []event
}

// An event is one of a stream; some APIs give no names to theirs.
type event struct {
	name string
	data any // JSON, or a string that is sent unchanged
}

// apis maps the end of a path to its API.
var apis = map[string]api{
	"/v1/messages":           {readMessages, writeMessages},
	"/v1/responses":          {readResponses, writeResponses},
	"/v1/chat/completions":   {readChat, writeChat},
	":streamGenerateContent": {readGemini, writeGemini},
}

func apiOf(path string) (api, bool) {
	for end, a := range apis {
		if strings.HasSuffix(path, end) {
			return a, true
		}
	}
	return api{}, false
}

func (m *Model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, ok := apiOf(r.URL.Path)
	if !ok || r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	turn, err := a.read(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	reply := Reply{Say: "ok"} // to titles, summaries and the like
	id := 0
	if len(turn.Tools) > 0 {
		m.mu.Lock()
		m.turns++
		id = m.turns
		waits, missing := m.wait(&turn)
		m.last = turn
		m.mu.Unlock()
		if reply = waits; !missing {
			reply = m.Script(turn)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range a.write(reply, fmt.Sprintf("call_%08d", id)) {
		if e.name != "" {
			_, _ = fmt.Fprintf(w, "event: %s\n", e.name)
		}
		data, ok := e.data.(string)
		if !ok {
			raw, _ := json.Marshal(e.data)
			data = string(raw)
		}
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data)
	}
}

// object is a JSON object that is written.
type object = map[string]any

// items reads a list, or a plain string in its place.
func items[T any](raw json.RawMessage) []T {
	var list []T
	_ = json.Unmarshal(raw, &list)
	return list
}

func readMessages(body []byte) (t Turn, err error) {
	var q struct {
		Tools    []Tool
		Messages []struct{ Content json.RawMessage }
	}
	err = json.Unmarshal(body, &q)
	t.Tools = q.Tools
	for _, m := range q.Messages {
		for _, part := range items[struct {
			Type    string
			Content json.RawMessage
		}](m.Content) {
			if part.Type == "tool_result" {
				t.Results = append(t.Results, string(part.Content))
			}
		}
	}
	return t, err
}

func writeMessages(reply Reply, id string) []event {
	block, delta, stop := object{"type": "text", "text": ""}, object{"type": "text_delta", "text": reply.Say}, "end_turn"
	if reply.Call != nil {
		block = object{"type": "tool_use", "id": "toolu_" + id, "name": reply.Call.Name, "input": object{}}
		delta, stop = object{"type": "input_json_delta", "partial_json": reply.args()}, "tool_use"
	}
	message := object{
		"id": "msg_" + id, "type": "message", "role": "assistant", "model": "scripted", "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	return []event{
		{"message_start", object{"type": "message_start", "message": message}},
		{"content_block_start", object{"type": "content_block_start", "index": 0, "content_block": block}},
		{"content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": delta}},
		{"content_block_stop", object{"type": "content_block_stop", "index": 0}},
		{"message_delta", object{"type": "message_delta", "delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}}},
		{"message_stop", object{"type": "message_stop"}},
	}
}

func readResponses(body []byte) (t Turn, err error) {
	var q struct {
		Tools []struct {
			Type, Name string
			Tools      []Tool
		}
		Input json.RawMessage
	}
	err = json.Unmarshal(body, &q)
	for _, tool := range q.Tools {
		if tool.Type == "function" {
			t.Tools = append(t.Tools, Tool{Name: tool.Name})
		}
		for _, inner := range tool.Tools {
			t.Tools = append(t.Tools, Tool{Name: inner.Name, Namespace: tool.Name})
		}
	}
	for _, item := range items[struct {
		Type   string
		Output json.RawMessage
	}](q.Input) {
		if item.Type == "function_call_output" {
			t.Results = append(t.Results, string(item.Output))
		}
	}
	return t, err
}

func writeResponses(reply Reply, id string) []event {
	item := object{
		"type": "message", "id": "msg_" + id, "role": "assistant", "status": "completed",
		"content": []any{object{"type": "output_text", "text": reply.Say, "annotations": []any{}}},
	}
	if reply.Call != nil {
		item = object{"type": "function_call", "id": "fc_" + id, "call_id": id, "status": "completed", "name": reply.Call.Name, "arguments": reply.args()}
		if reply.Call.Namespace != "" {
			item["namespace"] = reply.Call.Namespace
		}
	}
	response := func(status string, output ...any) object {
		return object{
			"id": "resp_" + id, "object": "response", "created_at": 1, "model": "scripted", "status": status, "output": output,
			"usage": object{"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
		}
	}
	return []event{
		{"response.created", object{"type": "response.created", "response": response("in_progress")}},
		{"response.output_item.added", object{"type": "response.output_item.added", "output_index": 0, "item": item}},
		{"response.output_item.done", object{"type": "response.output_item.done", "output_index": 0, "item": item}},
		{"response.completed", object{"type": "response.completed", "response": response("completed", item)}},
	}
}

func readChat(body []byte) (t Turn, err error) {
	var q struct {
		Tools    []struct{ Function Tool }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	err = json.Unmarshal(body, &q)
	for _, tool := range q.Tools {
		t.Tools = append(t.Tools, tool.Function)
	}
	for _, m := range q.Messages {
		if m.Role == "tool" {
			t.Results = append(t.Results, string(m.Content))
		}
	}
	return t, err
}

func writeChat(reply Reply, id string) []event {
	message, stop := object{"role": "assistant", "content": reply.Say}, "stop"
	if reply.Call != nil {
		message, stop = object{"role": "assistant", "tool_calls": []any{object{
			"index": 0, "id": id, "type": "function", "function": object{"name": reply.Call.Name, "arguments": reply.args()},
		}}}, "tool_calls"
	}
	chunk := func(delta object, stop any) event {
		return event{data: object{
			"id": "chatcmpl-" + id, "object": "chat.completion.chunk", "created": 1, "model": "scripted",
			"choices": []any{object{"index": 0, "delta": delta, "finish_reason": stop}},
			"usage":   object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		}}
	}
	return []event{chunk(message, nil), chunk(object{}, stop), {data: "[DONE]"}}
}

func readGemini(body []byte) (t Turn, err error) {
	var q struct {
		Tools    []struct{ FunctionDeclarations []Tool }
		Contents []struct {
			Parts []struct {
				FunctionResponse *struct{ Response json.RawMessage }
			}
		}
	}
	err = json.Unmarshal(body, &q)
	for _, tools := range q.Tools {
		t.Tools = append(t.Tools, tools.FunctionDeclarations...)
	}
	for _, c := range q.Contents {
		for _, part := range c.Parts {
			if part.FunctionResponse != nil {
				t.Results = append(t.Results, string(part.FunctionResponse.Response))
			}
		}
	}
	return t, err
}

func writeGemini(reply Reply, id string) []event {
	part := object{"text": reply.Say}
	if reply.Call != nil {
		part = object{"functionCall": object{"id": id, "name": reply.Call.Name, "args": json.RawMessage(reply.args())}}
	}
	return []event{{data: object{
		"candidates": []any{object{
			"content": object{"role": "model", "parts": []any{part}}, "finishReason": "STOP", "index": 0,
		}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  "scripted",
	}}}
}
