// Package trial makes the calls that a person tries: on the page, and with "switchboard try". It decides nothing about them. Each is a message to the
// MCP endpoint for agents, in this process, so the gateway and everything behind it treat it as the call of an agent. The principal is the person
// through the client page.
package trial

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream/endpoint"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxShown limits how many bytes an outcome has of a result. With all else, the outcome stays below the largest answer that is kept for a repeat.
const MaxShown = 24 << 10

// Options are the parts of a running Switchboard that a Trier uses.
type Options struct {
	// Gateway answers MCP, as at /mcp.
	Gateway http.Handler

	// Caller returns the principal as which an officer calls tools of a tenant; "" is the tenant that the officer has a task in. The error is a
	// *switchboard.Error.
	Caller func(who *switchboard.Officer, tenant switchboard.TenantID) (switchboard.Principal, error)

	// Tasks returns the tasks that a principal may bind.
	Tasks func(p switchboard.Principal) []string

	// Explain explains the decision for a task.
	Explain func(ctx context.Context, p switchboard.Principal, ask admin.ExplainQuery) (*admin.Explanation, error)

	Version string
}

// A Trier makes the calls of persons. Use New. It is safe for concurrent use.
type Trier struct{ o Options }

// New returns a Trier.
func New(o Options) *Trier { return &Trier{o} }

// A TryOffer says what a person can call.
type TryOffer struct {
	Tenant    switchboard.TenantID `json:"tenant,omitempty"`
	Principal string               `json:"principal,omitempty" doc:"As whom the calls are made, such as ann@page; local for the local user."`
	Tasks     []string             `json:"tasks" doc:"The tasks that you may bind, at most 20."`
	Task      switchboard.TaskID   `json:"task,omitempty" doc:"The task of the tools: the one that was asked for, or the first."`
	Tools     []TryTool            `json:"tools" doc:"The tools that an agent of this task has, sorted by name."`
	Starting  []string             `json:"starting,omitempty" doc:"Servers that have not answered yet. Their tools can change the list."`
	Refused   *TryRefusal          `json:"refused,omitempty" doc:"Why you can call nothing."`
}

// A TryTool is a tool that a person can call.
type TryTool struct {
	Name        string               `json:"name"`
	Title       string               `json:"title,omitempty" doc:"The server's words."`
	Description string               `json:"description,omitempty" doc:"The server's words."`
	Server      switchboard.ServerID `json:"server,omitempty" doc:"Absent for one of Switchboard's own."`
	Tool        string               `json:"tool,omitempty" doc:"Its name there."`
	Listed      string               `json:"listed" doc:"When an agent is shown the tool: always, on demand, stub, own."`
	Changes     bool                 `json:"changes" doc:"A call may change something: nobody whom the operator trusts has stated that it only reads."`
	Effects     []string             `json:"effects,omitempty" doc:"What is known about the effects of a call."`
	Schema      json.RawMessage      `json:"input_schema,omitempty" doc:"The JSON schema of the arguments, only of the tool that was asked for."`
}

// A TryRefusal says why a call got no result.
type TryRefusal struct {
	Code switchboard.Code `json:"code,omitempty" doc:"Absent for an error of the server's own."`
	Text string           `json:"text"`
	Hint string           `json:"hint,omitempty"`
}

// A TryCall is a call that a person tries.
type TryCall struct {
	Task      switchboard.TaskID `json:"task,omitempty" maxLength:"64" doc:"If absent, your first one."`
	Tool      string             `json:"tool" minLength:"1" maxLength:"256" doc:"The name of the tool, as GET /v1/try gives it."`
	Arguments json.RawMessage    `json:"arguments,omitempty" doc:"A JSON object; {} if absent. Numbers are sent as they are spelt."`
}

// A TryOutcome is what has become of a call.
type TryOutcome struct {
	Tenant       switchboard.TenantID `json:"tenant"`
	Principal    string               `json:"principal"`
	Task         switchboard.TaskID   `json:"task,omitempty"`
	Tool         string               `json:"tool"`
	At           time.Time            `json:"at" doc:"When the call began."`
	Milliseconds int64                `json:"took_ms"`
	TryServing
	Receipt string      `json:"receipt,omitempty" doc:"The id of the call's receipt."`
	Refused *TryRefusal `json:"refused,omitempty" doc:"Why there is no result."`
	Request string      `json:"request,omitempty" doc:"The request for approval for which the call waits."`
	TryResult
}

// TryServing says which tools a call has reached.
type TryServing struct {
	Server   switchboard.ServerID `json:"server,omitempty" doc:"The server whose tool answered, or would have been asked."`
	ServedBy string               `json:"served_by,omitempty" doc:"The tool that has answered in the place of the called one."`
	Tried    []TryAttempt         `json:"tried,omitempty" doc:"The tools that were tried before it."`
}

// A TryResult is the result of a call, as the client gets it.
type TryResult struct {
	IsError   bool            `json:"is_error,omitempty" doc:"The result says that the tool has failed."`
	Result    json.RawMessage `json:"result,omitempty" doc:"The whole result, unless it is cut."`
	Bytes     int             `json:"bytes" doc:"The length of the result."`
	Cut       bool            `json:"cut,omitempty" doc:"The result is longer than an answer shows."`
	Beginning string          `json:"beginning,omitempty" doc:"The beginning of a result that is cut."`
}

// A TryAttempt is a tool that was tried and did not answer.
type TryAttempt struct {
	Tool string           `json:"tool"`
	Code switchboard.Code `json:"code,omitempty"`
	Sent bool             `json:"sent,omitempty"`
}

// Offer returns the tools that the officer can call. The tool with the name tool, if there is one, has its schema.
func (t *Trier) Offer(ctx context.Context, who *switchboard.Officer, tenant switchboard.TenantID, task switchboard.TaskID, tool string) (*TryOffer, error) {
	out := &TryOffer{Tenant: tenant, Task: task, Tasks: []string{}, Tools: []TryTool{}}
	p, err := t.o.Caller(who, tenant)
	if refused, ok := err.(*switchboard.Error); ok { //nolint:errorlint // Caller makes it
		out.Refused = &TryRefusal{refused.Code, refused.Text, refused.Hint}
		return out, nil
	} else if err != nil {
		return nil, err
	}
	out.Tenant, out.Principal, out.Tasks = p.Tenant, p.ID, t.o.Tasks(p)
	out.Task = namedOrFirst(task, out.Tasks)
	x, err := t.o.Explain(ctx, p, admin.ExplainQuery{Task: out.Task, Definitions: tool != "", NoMessages: true})
	if err != nil {
		return nil, err
	}
	if x.Refused != nil {
		out.Refused = &TryRefusal{x.Refused.Code, x.Refused.Text, x.Refused.Hint}
	}
	for _, id := range x.Starting {
		out.Starting = append(out.Starting, string(id))
	}
	for i := range x.Tools {
		out.Tools = append(out.Tools, describe(&x.Tools[i], tool))
	}
	slices.SortFunc(out.Tools, func(a, b TryTool) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// namedOrFirst returns the task, or the first of all if none is named: the tools that a person is shown are those of the task that a call is for.
func namedOrFirst(task switchboard.TaskID, all []string) switchboard.TaskID {
	if task == "" && len(all) > 0 {
		return switchboard.TaskID(all[0])
	}
	return task
}

// readers are our own tools that change nothing.
var readers = []string{"switchboard_status", "switchboard_read"}

// describe describes a tool, with its schema if it is the wanted one.
func describe(e *admin.ExplainedTool, wanted string) TryTool {
	d := TryTool{Name: e.Name, Description: e.Description, Server: e.Server, Tool: e.Tool, Listed: e.Role}
	d.Changes = !slices.Contains(readers, e.Name)
	if e.Server != "" {
		d.Changes = !e.Called.Contract.OnlyReads()
		d.Effects = approvals.EffectsOf(e.Called)
	}
	if e.Name == wanted {
		var definition struct {
			Title string          `json:"title"`
			Input json.RawMessage `json:"inputSchema"`
		}
		if json.Unmarshal(e.Definition, &definition) == nil {
			d.Title, d.Schema = definition.Title, definition.Input
		}
	}
	return d
}

// Call makes the call as the officer. key, if not "", is its idempotency key. The error is a *switchboard.Error if the officer may call nothing; every
// other refusal is an outcome.
func (t *Trier) Call(ctx context.Context, who *switchboard.Officer, tenant switchboard.TenantID, call *TryCall, key string) (*TryOutcome, error) {
	p, err := t.o.Caller(who, tenant)
	if err != nil {
		return nil, err
	}
	arguments := bytes.TrimSpace(call.Arguments)
	if len(arguments) == 0 {
		arguments = []byte("{}")
	}
	if arguments[0] != '{' {
		return nil, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "the arguments are no JSON object"}
	}
	out := &TryOutcome{
		Tenant: p.Tenant, Principal: p.ID, Task: namedOrFirst(call.Task, t.o.Tasks(p)), Tool: call.Tool, At: time.Now().UTC().Truncate(time.Millisecond),
	}
	header := http.Header{}
	if x, err := t.o.Explain(ctx, p, admin.ExplainQuery{Task: out.Task, Definitions: true, NoMessages: true}); err == nil {
		for i := range x.Tools {
			if e := &x.Tools[i]; e.Name == call.Tool {
				out.Server = e.Server
				endpoint.AddParamHeaders(header, e.Definition, arguments)
			}
		}
	}
	began := time.Now()
	stub, err := t.send(ctx, p, out, header, call.Tool, arguments, key)
	if err == nil && stub != "" { // the tool is on demand, so this call did not reach it
		inner := wire.Rewrite(nil, []byte(`{"action":"call"}`), wire.Edit{Name: "tool", Value: wire.AppendString(nil, call.Tool)}, wire.Edit{Name: "arguments", Value: arguments})
		_, err = t.send(ctx, p, out, header, stub, inner, key)
	}
	out.Milliseconds = time.Since(began).Milliseconds()
	return out, err
}

// An answerNote is what our own members of an answer say.
type answerNote struct {
	Code    switchboard.Code `json:"code"`
	Hint    string           `json:"hint"`
	Receipt string           `json:"receipt"`
	Request string           `json:"request"`
	Stub    string           `json:"stub"`
}

// send sends one call to the gateway, and reads the answer into out. header has the arguments that the tool wants repeated there. If the tool is on demand, the
// call did not reach it, and stub names the tool that calls it.
func (t *Trier) send(ctx context.Context, p switchboard.Principal, out *TryOutcome, header http.Header, tool string, arguments []byte, key string) (stub string, err error) {
	edits := []wire.Edit{
		{Name: wire.MetaProtocolVersion, Value: wire.AppendString(nil, wire.Latest)},
		{Name: wire.MetaClientInfo, Value: wire.AppendString([]byte(`{"name":"switchboard-`+switchboard.PageClient+`","version":`), t.o.Version)},
		{Name: wire.MetaClientCapabilities, Value: []byte(`{}`)},
		{Name: wire.MetaReceipt, Value: []byte(`true`)},
	}
	edits[1].Value = append(edits[1].Value, '}')
	if key != "" {
		edits = append(edits, wire.Edit{Name: wire.MetaIdempotencyKey, Value: wire.AppendString(nil, key)})
	}
	params := wire.Rewrite(nil, []byte(`{}`),
		wire.Edit{Name: "name", Value: wire.AppendString(nil, tool)}, wire.Edit{Name: "arguments", Value: arguments},
		wire.Edit{Name: wire.MemberMeta, Value: wire.Rewrite(nil, []byte(`{}`), edits...)})
	message := wire.AppendRequest(nil, []byte("1"), wire.MethodToolsCall, params)
	r, err := http.NewRequestWithContext(identity.AsCaller(ctx, p), http.MethodPost, "http://localhost/mcp", bytes.NewReader(message))
	if err != nil {
		return "", err
	}
	r.RemoteAddr = "127.0.0.1:0"
	r.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json"}, wire.HeaderProtocolVersion: {wire.Latest},
		wire.HeaderMethod: {wire.MethodToolsCall}, wire.HeaderName: {wire.EncodeHeader(tool)},
	}
	maps.Copy(r.Header, header)
	if out.Task != "" {
		r.Header.Set("Switchboard-Task", string(out.Task))
	}
	answer := &wholeAnswer{header: http.Header{}}
	t.o.Gateway.ServeHTTP(answer, r)
	m, err := wire.ParseEnvelope(answer.body.Bytes())
	if err != nil {
		return "", fmt.Errorf("the answer to a call of a person, with status %d, is no message: %w", answer.status, err)
	}
	out.Refused, out.Request, out.Receipt = nil, "", ""
	if m.ErrorObject != nil {
		var e struct {
			Message string     `json:"message"`
			Data    answerNote `json:"data"`
		}
		if json.Unmarshal(m.ErrorObject, &e) != nil { // of a server, with data of another shape
			raw, _ := wire.Field(m.ErrorObject, "message")
			e.Message, _ = wire.String(raw)
		}
		out.Refused = &TryRefusal{e.Data.Code, cut(e.Message, MaxShown/8), cut(e.Data.Hint, MaxShown/8)}
		out.Request, out.Receipt = e.Data.Request, e.Data.Receipt
		return "", nil
	}
	return out.readResult(m.Result), nil
}

// readResult reads the result of a call.
func (o *TryOutcome) readResult(result []byte) (stub string) {
	var head struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Meta struct {
			Error   *answerNote `json:"io.switchboard/error"`
			Receipt string      `json:"io.switchboard/receipt"`
			Moved   struct {
				ServedBy string       `json:"served_by"`
				Tried    []TryAttempt `json:"tried"`
			} `json:"io.switchboard/moved"`
		} `json:"_meta"`
	}
	_ = json.Unmarshal(result, &head) // what has another shape is shown as it is
	o.IsError, o.Receipt, o.ServedBy, o.Tried = head.IsError, head.Meta.Receipt, head.Meta.Moved.ServedBy, head.Meta.Moved.Tried
	if server, _, ok := strings.Cut(o.ServedBy, "/"); ok {
		o.Server = switchboard.ServerID(server)
	}
	if e := head.Meta.Error; e != nil {
		text := "the call was refused"
		if len(head.Content) > 0 {
			text = head.Content[0].Text
		}
		o.Refused = &TryRefusal{e.Code, cut(withoutHint(text, e), MaxShown/8), cut(e.Hint, MaxShown/8)}
		o.Request, o.Receipt = e.Request, cmp.Or(e.Receipt, o.Receipt)
		return e.Stub
	}
	o.Bytes = len(result)
	if o.Cut = len(result) > MaxShown; o.Cut {
		o.Beginning = cut(string(result), MaxShown)
		return ""
	}
	o.Result = bytes.Clone(result)
	return ""
}

// withoutHint returns the text of a refusal for a model without the hint and the code, which it ends with.
func withoutHint(text string, e *answerNote) string {
	text = strings.TrimSuffix(text, " ("+string(e.Code)+")")
	if n := len(text) - len(e.Hint); e.Hint != "" && n > 0 && strings.EqualFold(text[n:], e.Hint) {
		text = strings.TrimSuffix(strings.TrimSpace(text[:n]), ".")
	}
	return text
}

// cut returns the beginning of a text, at most so many bytes long as a JSON string.
func cut(text string, most int) string {
	n := 0
	for i, r := range text {
		size := utf8.RuneLen(r)
		switch {
		case r < ' ' || r == '\u2028' || r == '\u2029' || r == utf8.RuneError:
			size = 6
		case r == '"' || r == '\\':
			size = 2
		}
		if n += size; n > most {
			return text[:i]
		}
	}
	return text
}

// A wholeAnswer keeps an answer of the gateway.
type wholeAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *wholeAnswer) Header() http.Header                  { return a.header }
func (a *wholeAnswer) WriteHeader(status int)               { a.status = status }
func (a *wholeAnswer) Write(text []byte) (n int, err error) { return a.body.Write(text) }
