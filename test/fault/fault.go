// Package fault is a proxy in front of a real MCP server. On cue, and to the byte, it fails as servers and networks fail. It is for tests: without an
// order, everything passes unchanged.
//
// HTTP is the proxy for Streamable HTTP, of either era, and for the older HTTP with SSE. Pipes is the proxy for stdio; the client starts its other
// half, Program. A test arms both in the same way: a Cue chooses the fault of a request by its method and by the argument "key" of a call. The real
// server (New) records each call that it executes, so that a test can compare the answers with the executions.
package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Transport is the protocol and the era of the connection to the server.
type Transport string

// The transports.
const (
	Stdio  Transport = "stdio"
	Legacy Transport = "HTTP legacy" // answers with event streams
	Modern Transport = "HTTP modern" // answers with JSON
	SSE    Transport = "SSE"
)

// Transports lists all of them.
var Transports = []Transport{Stdio, Legacy, Modern, SSE}

// A Kind is a way to fail.
type Kind string

// The kinds. Table describes each.
const (
	None          Kind = ""
	Refuse        Kind = "refuse"
	ResetBefore   Kind = "reset before"
	ResetAfter    Kind = "reset after"
	HangBefore    Kind = "hang before headers"
	HangAfter     Kind = "hang after headers"
	Drip          Kind = "slow drip"
	Truncated     Kind = "truncated JSON"
	Malformed     Kind = "malformed JSON"
	WrongID       Kind = "wrong id"
	Duplicate     Kind = "duplicate answer"
	Status400     Kind = "400"
	Status401     Kind = "401"
	Status404     Kind = "404"
	Status429     Kind = "429"
	Status500     Kind = "500"
	Status502     Kind = "502"
	Status503     Kind = "503"
	Garbage       Kind = "garbage"
	ExitBefore    Kind = "exit before"
	ExitAfter     Kind = "exit after"
	Notifications Kind = "endless notifications"
	Huge          Kind = "huge result"
)

// A Fault is a row of the table.
type Fault struct {
	Kind Kind

	// Executes means that the real server executes the request before the client
	// notices the fault.
	Executes bool

	// Answers means that the client still gets the right answer, if it can find it.
	Answers bool

	What  string // on HTTP, and on stdio unless Pipes or Never is set
	Pipes string // on stdio
	Never string // why stdio has no such fault
}

// Table describes the faults. Over SSE, a client posts its request, and the answer comes on a stream that all requests share. There, a fault of the
// connection, of headers or of the status hits the post, and the answer never comes on the stream; a fault of the answer hits the event.
var Table = []Fault{
	{Kind: Refuse, What: "connections are refused from now on, and those that carry no stream are closed; it is of no single request, and ends when disarmed", Pipes: "the process ends at once, and ends at once whenever it is started"},
	{Kind: ResetBefore, What: "the connection is reset, and the server has not seen the request", Pipes: "the process closes its output, lives on, and the server has not seen the request"},
	{Kind: ResetAfter, Executes: true, What: "the connection is reset in place of the answer", Pipes: "the process closes its output in place of the answer, and lives on"},
	{Kind: HangBefore, Executes: true, What: "nothing comes back", Pipes: "the answer never comes; others do"},
	{Kind: HangAfter, Executes: true, What: "the headers come back, and nothing more", Pipes: "half of the answer comes, and nothing more of anything until disarmed"},
	{Kind: Drip, Executes: true, What: "the headers come back, and then a byte each " + pace.String() + ", until disarmed"},
	{Kind: Truncated, Executes: true, What: "the answer is cut in the middle, in a frame that is whole"},
	{Kind: Malformed, Executes: true, What: "the answer is no JSON, in a frame that is whole"},
	{Kind: WrongID, Executes: true, What: "the answer has an id that nobody has used"},
	{Kind: Duplicate, Executes: true, Answers: true, What: "the answer comes twice: as two events, or as two whole HTTP responses to the one request"},
	{Kind: Status400, What: "the status, and the server has not seen the request", Never: "a pipe has no status"},
	{Kind: Status401, What: "as 400", Never: "a pipe has no status"},
	{Kind: Status404, What: "as 400; to a legacy client it says that the session is gone", Never: "a pipe has no status"},
	{Kind: Status429, What: "as 400, with Retry-After: " + retryAfter, Never: "a pipe has no status"},
	{Kind: Status500, Executes: true, What: "the status in place of the answer", Never: "a pipe has no status"},
	{Kind: Status502, Executes: true, What: "as 500", Never: "a pipe has no status"},
	{Kind: Status503, Executes: true, What: "as 500", Never: "a pipe has no status"},
	{Kind: Garbage, Executes: true, Answers: true, What: "events that are no messages come before the answer", Pipes: "lines that are no messages come before the answer"},
	{Kind: ExitBefore, What: "all connections are reset, the server knows no session any more, and has not seen the request", Pipes: "the process exits, and the server has not seen the request"},
	{Kind: ExitAfter, Executes: true, What: "all connections are reset in place of the answer, and the server knows no session any more", Pipes: "the process exits in place of the answer"},
	{Kind: Notifications, Executes: true, What: "notifications come without end in place of the answer, until disarmed"},
	{Kind: Huge, Executes: true, What: "the answer's result is of " + strconv.Itoa(HugeSize>>20) + " MiB"},
}

// On reports whether the transport has this fault.
func (f *Fault) On(t Transport) bool { return t != Stdio || f.Never == "" }

// About describes the fault on the transport, or gives the reason why the transport does not have it.
func (f *Fault) About(t Transport) string {
	switch {
	case t != Stdio:
		return f.What
	case f.Never != "":
		return f.Never
	case f.Pipes != "":
		return f.Pipes
	}
	return f.What
}

// row returns the kind's row.
func row(k Kind) *Fault {
	for i := range Table {
		if Table[i].Kind == k {
			return &Table[i]
		}
	}
	panic(fmt.Sprintf("fault: %q is none", k))
}

// HugeSize is the size of a huge result, in bytes.
const HugeSize = 2 << 20

const (
	pace       = 40 * time.Millisecond // between the bytes of a drip
	retryAfter = "1"
	noise      = 20 // pieces of garbage
)

// status returns the HTTP status of the kind, or 0.
func (k Kind) status() int {
	n, err := strconv.Atoi(string(k))
	if err != nil {
		return 0
	}
	return n
}

// response returns a whole HTTP response with the kind's status.
func (k Kind) response() []byte {
	more := ""
	switch k {
	case Status401:
		more = "WWW-Authenticate: Bearer\r\n"
	case Status429:
		more = "Retry-After: " + retryAfter + "\r\n"
	}
	text := http.StatusText(k.status())
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n%s\r\n%s", k.status(), text, len(text), more, text)
}

// spoil returns the messages, valid or not, that replace the answer.
func (k Kind) spoil(answer []byte) [][]byte {
	switch k {
	case Truncated:
		return [][]byte{answer[:len(answer)/2]}
	case Malformed:
		return [][]byte{bytes.Replace(answer, []byte(`"content":[`), []byte(`"content":[}`), 1)}
	case WrongID:
		return [][]byte{edit(answer, "id", func(id string) string { return "9" + strings.Trim(id, `"`) + "9999" })}
	case Duplicate:
		return [][]byte{answer, answer}
	case Garbage:
		var all [][]byte
		for i := range noise {
			all = append(all, fmt.Appendf(nil, "[%d] {\"jsonrpc\":\"2.0\",\"id\": listening on port 3000 \x1b[32m✓\x1b[0m \xff", i))
		}
		return append(all, answer)
	case Huge:
		return [][]byte{edit(answer, "result", func(r string) string {
			return `{"padding":"` + strings.Repeat("x", HugeSize) + `",` + strings.TrimPrefix(r, "{")
		})}
	}
	return [][]byte{answer}
}

// edit changes the value of one member of the message.
func edit(message []byte, member string, change func(string) string) []byte {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(message, &m); err != nil {
		return message
	}
	old := fmt.Appendf(nil, "%q:%s", member, m[member])
	return bytes.Replace(message, old, fmt.Appendf(nil, "%q:%s", member, change(string(m[member]))), 1)
}

// endless sends notifications until calm is closed (the error is errEnded) or sending fails. It pauses now and then, so that it leaves processor time
// to others.
func endless(calm <-chan struct{}, say func([]byte) error) error {
	const breath = 4
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		if i%breath == 0 {
			select {
			case <-tick.C:
			case <-calm:
				return errEnded
			}
		}
		if err := say(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"still busy, %d"}}`, i)); err != nil {
			return err
		}
	}
}

// A message has the members of a message that the proxy reads.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Arguments struct {
			Key string `json:"key"`
		} `json:"arguments"`
	} `json:"params"`
}

func read(text []byte) (m message) {
	_ = json.Unmarshal(text, &m) // invalid JSON has neither id nor method
	return m
}

// answers reports whether the message answers a request.
func (m *message) answers() bool { return m.Method == "" && len(m.ID) > 0 }
