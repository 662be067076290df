package wire

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Kind is what a message is.
type Kind uint8

// The kinds.
const (
	Request      Kind = iota + 1 // wants an answer
	Notification                 // wants none
	Response                     // is one
)

// String gives "request", "notification" or "response".
func (k Kind) String() string {
	switch k {
	case Request:
		return "request"
	case Notification:
		return "notification"
	case Response:
		return "response"
	}
	return "no message"
}

// The limits of what stands in an envelope, in bytes.
const (
	MaxIDBytes     = 256 // as spelt
	MaxMethodBytes = 128
)

// A Message is one JSON-RPC message. Its slices are parts of the bytes that were
// parsed, which must not be modified while it is in use.
type Message struct {
	Kind   Kind
	ID     []byte // a string or an integer, as spelt; nil where there is none
	Method string // visible ASCII; "" in a response
	Params []byte // an object; nil where there is none

	// Result or ErrorObject is what a response holds; the other is nil. An
	// ErrorObject is an object. A Result is one when a client sent it; a
	// server's may be any value.
	Result      []byte
	ErrorObject []byte

	// Outline is that of a server's result, where that is an object, and At is
	// where Result starts in what was parsed.
	Outline switchboard.Outline
	At      int

	// Deep says that a server's result has objects and arrays more than MaxDepth deep in each other. Only the answers to lists may.
	Deep bool

	// Raw is the whole message, without the space around it.
	Raw []byte

	index index
}

// A ParseError is why bytes are no message that we accept.
type ParseError struct {
	Code   int    // CodeParse or CodeInvalidRequest
	ID     []byte // the request's, as spelt, where it could be told; else nil
	Reason string // for whoever sent the message
	Offset int    // of the byte that is to blame, or of the message
}

// Error gives the reason and the offset.
func (e *ParseError) Error() string {
	return fmt.Sprintf("message, byte %d: %s", e.Offset, e.Reason)
}

// Parse reads a message of a client. It scans all of it, so that what it accepts
// means the same to every reader: JSON in UTF-8, at most MaxDepth deep, one
// value and nothing after it; no name twice in one object, at any depth; and no
// name in the envelope, in params or in _meta that a lenient reader could take
// for another one there. Batches are refused. The error is a *ParseError.
func Parse(data []byte) (Message, error) { return parse(data, true) }

// ParseEnvelope reads a message of a server. The envelope is held to the same
// rules as a client's; params, result and error are only known to be JSON in
// UTF-8 and not too deep, where an object as the result may be MaxListDepth deep. In a response to a request that the server could not
// read, ID is nil. The error is a *ParseError.
func ParseEnvelope(data []byte) (Message, error) { return parse(data, false) }

// byteOrderMark is what some editors put first; JSON does not have it.
const byteOrderMark = "\xEF\xBB\xBF"

const notUTF8 = "the message is not UTF-8"

func parse(data []byte, strict bool) (Message, error) {
	switch {
	case len(data) > math.MaxInt32:
		return Message{}, &ParseError{Code: CodeParse, Reason: "the message is 2 GiB or longer"}
	case bytes.HasPrefix(data, []byte(byteOrderMark)):
		return Message{}, &ParseError{Code: CodeParse, Reason: "the message starts with a byte order mark"}
	}
	m, err := read(data, strict)
	if err != nil { // what is not even text is said first
		if at := invalid(data); at >= 0 {
			return Message{}, &ParseError{Code: CodeParse, Reason: notUTF8, Offset: at}
		}
		return Message{}, err
	}
	return m, nil
}

// invalid returns the offset of the first byte that is not UTF-8, or -1.
func invalid(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && n == 1 {
			return at
		}
		at += n
	}
}

// read reads a message. Outside of strings there is nothing but ASCII in JSON,
// so that what it accepts is UTF-8. The error is a *ParseError.
func read(data []byte, strict bool) (Message, error) {
	from := skipSpace(data, 0)
	if from == len(data) {
		return Message{}, &ParseError{Code: CodeParse, Reason: "there is no message, only space", Offset: from}
	}
	if data[from] == '[' {
		return Message{}, &ParseError{Code: CodeInvalidRequest, Reason: "batches are not accepted: send one message at a time", Offset: from}
	}
	if data[from] != '{' {
		end, f := skipValue(data, from, 0, MaxDepth)
		if f != 0 {
			return Message{}, &ParseError{Code: CodeParse, Reason: f.String(), Offset: end}
		}
		return Message{}, &ParseError{Code: CodeInvalidRequest, Reason: "a message is an object", Offset: from}
	}
	e := envelopes.Get().(*envelope)
	defer e.release()
	e.data, e.strict, e.index.whole = data, strict, true
	end, f := e.read(from)
	switch {
	case f != 0:
		return Message{}, &ParseError{Code: CodeParse, ID: e.knownID(), Reason: f.String(), Offset: end}
	case skipSpace(data, end) != len(data):
		return Message{}, &ParseError{Code: CodeParse, ID: e.knownID(), Reason: "there is more after the message", Offset: skipSpace(data, end)}
	}
	m := e.message()
	if e.refused != "" {
		return Message{}, &ParseError{Code: CodeInvalidRequest, ID: e.knownID(), Reason: e.refused, Offset: e.refusedAt}
	}
	m.Raw = data[from:end]
	if strict && m.Params != nil {
		m.index = e.index
		m.index.from = uint32(e.at(e.params))
	}
	for _, part := range [...]*[]byte{&m.ID, &m.Params, &m.Result, &m.ErrorObject, &m.Raw} {
		*part = slices.Clip(*part) // so that to append to it does not write on
	}
	return m, nil
}

// An envelope is the outermost object while it is read.
type envelope struct {
	scanner
	strict bool

	version, id, method, params, result, failure []byte // as spelt
	start                                        int
	deep                                         bool
	twice                                        bool // more than one id
	outline                                      switchboard.Outline
}

// envelopes are for use again, with the room that they have for names.
var envelopes = sync.Pool{New: func() any { return &envelope{scanner: scanner{names: make([]span, 0, fewNames)}} }}

// fewNames is how many names most messages have in the objects that are open at
// once.
const fewNames = 32

// maxKeptNames is for up to how many names that room is kept.
const maxKeptNames = 4 << 10

func (e *envelope) release() {
	names, table := e.names[:0], e.table
	if cap(names) > maxKeptNames {
		names = nil
	}
	if cap(table) > 4*maxKeptNames {
		table = nil
	}
	*e = envelope{scanner: scanner{names: names, table: table}}
	envelopes.Put(e)
}

// read returns the offset behind the object that opens at i.
func (e *envelope) read(i int) (int, flaw) {
	e.start = i
	if i = skipSpace(e.data, i+1); i < len(e.data) && e.data[i] == '}' {
		return i + 1, 0
	}
	for {
		val, name, f := e.name(i)
		if f != 0 {
			return val, f
		}
		e.names = append(e.names, name)
		member, where := e.member(name)
		switch {
		case e.strict:
			i, f = e.value(val, 1, where)
		case member == &e.result && val < len(e.data) && e.data[val] == '{':
			if i, f = outline(e.data, val, MaxDepth, &e.outline); f == flawDepth {
				e.deep = true
				i, f = outline(e.data, val, MaxListDepth, &e.outline)
			}
		default:
			i, f = skipValue(e.data, val, 1, MaxDepth)
		}
		if f != 0 {
			return i, f
		}
		if member != nil {
			e.twice = e.twice || member == &e.id && e.id != nil
			*member = e.data[val:i]
		}
		var last bool
		if i, last, f = next(e.data, i, '}'); f != 0 {
			return i, f
		}
		if last {
			e.unique(e.names)
			return i, 0
		}
	}
}

// member returns where the value of the name is kept, nil for nowhere, and the
// place that the value stands in.
func (e *envelope) member(name span) (*[]byte, place) {
	text := e.data[name.start:name.end]
	if name.escaped {
		text = unescape(nil, text)
	}
	if e.strict || !name.escaped {
		e.watch(name, inEnvelope)
	} else {
		e.imitation(name, text, inEnvelope)
	}
	switch string(text) {
	case "jsonrpc":
		return &e.version, elsewhere
	case "id":
		return &e.id, elsewhere
	case "method":
		return &e.method, elsewhere
	case "params":
		return &e.params, inParams
	case "result":
		return &e.result, elsewhere
	case "error":
		return &e.failure, elsewhere
	}
	return nil, elsewhere
}

// knownID returns the id, where there is one that can be answered.
func (e *envelope) knownID() []byte {
	if e.twice || checkID(e.id) != "" {
		return nil
	}
	return slices.Clip(e.id)
}

// message makes the message of what was read, or refuses.
func (e *envelope) message() Message {
	m := Message{ID: e.id, Params: e.params, Deep: e.deep}
	if string(e.version) != `"2.0"` {
		e.refuse(e.start, `jsonrpc has to be "2.0"`)
	}
	if e.params != nil && e.params[0] != '{' {
		if !e.strict && string(e.params) == "null" {
			m.Params = nil
		} else {
			e.refuse(e.at(e.params), "params is not an object")
		}
	}
	if e.method != nil {
		e.request(&m)
	} else {
		e.response(&m)
	}
	return m
}

// request fills in what has a method.
func (e *envelope) request(m *Message) {
	m.Kind = Request
	if e.id == nil {
		m.Kind = Notification
	} else if reason := checkID(e.id); reason != "" {
		e.refuse(e.at(e.id), "%s", reason)
	}
	if e.result != nil || e.failure != nil {
		e.refuse(e.start, "a message is a request or a response, not both")
	}
	var ok bool
	if m.Method, ok = readMethod(e.method); !ok {
		e.refuse(e.at(e.method), "method is not a string of 1 to %d visible ASCII characters", MaxMethodBytes)
	}
}

// response fills in what has no method.
func (e *envelope) response(m *Message) {
	m.Kind, m.Result, m.ErrorObject, m.Outline = Response, e.result, e.failure, e.outline
	switch {
	case e.result == nil && e.failure == nil:
		e.refuse(e.start, "there is no method, and no result or error either")
	case e.result != nil && e.failure != nil:
		e.refuse(e.start, "a response has a result or an error, not both")
	case e.failure != nil && e.failure[0] != '{':
		e.refuse(e.at(e.failure), "error is not an object")
	case e.strict && e.result != nil && e.result[0] != '{':
		e.refuse(e.at(e.result), "result is not an object")
	}
	if e.result != nil {
		m.At = e.at(e.result)
	}
	// A server that could not read our request cannot know its id.
	if !e.strict && e.failure != nil && (e.id == nil || string(e.id) == "null") {
		m.ID = nil
		return
	}
	if e.id == nil {
		e.refuse(e.start, "a response has an id")
	} else if reason := checkID(e.id); reason != "" {
		e.refuse(e.at(e.id), "%s", reason)
	}
}

// at returns the offset of part, which has been cut from the text: what is behind
// its start is its capacity.
func (e *envelope) at(part []byte) int { return cap(e.data) - cap(part) }

// readMethod decodes the value of method.
func readMethod(raw []byte) (string, bool) {
	// Each character can be spelt as an escape of six bytes.
	if raw[0] != '"' || len(raw) <= 2 || len(raw) > 2+6*MaxMethodBytes {
		return "", false
	}
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text = unescape(nil, text)
	}
	for _, c := range text {
		if c <= ' ' || c > '~' {
			return "", false
		}
	}
	if len(text) > MaxMethodBytes {
		return "", false
	}
	return method(text), true
}

// checkID says why raw, which is nil or JSON, cannot be an id; "" means that it
// can.
func checkID(raw []byte) string {
	switch {
	case raw == nil:
		return "there is no id"
	case len(raw) > MaxIDBytes:
		return fmt.Sprintf("id is longer than %d bytes", MaxIDBytes)
	case raw[0] == '"':
		return ""
	}
	for i, c := range raw {
		if (c < '0' || c > '9') && (i > 0 || c != '-') {
			return "id is neither a string nor an integer"
		}
	}
	return ""
}
