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

// A Kind is the kind of a message.
type Kind uint8

// The kinds.
const (
	Request      Kind = iota + 1 // expects an answer
	Notification                 // expects no answer
	Response                     // is an answer
)

// String returns "request", "notification" or "response".
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

// The limits of values in an envelope, in bytes.
const (
	MaxIDBytes     = 256 // of the id in its own spelling
	MaxMethodBytes = 128
)

// A Message is one JSON-RPC message. Its slices are parts of the parsed bytes. Do not modify those bytes while the
// message is in use.
type Message struct {
	Kind   Kind
	ID     []byte // a string or an integer, in its own spelling; nil if there is none
	Method string // visible ASCII; "" in a response
	Params []byte // an object; nil if there is none

	// A response has either Result or ErrorObject; the other is nil. An ErrorObject is an object. A client's Result is
	// an object; a server's may be any value.
	Result      []byte
	ErrorObject []byte

	// Outline is the outline of a server's result, if that is an object. At is the offset of Result in the parsed
	// bytes.
	Outline switchboard.Outline
	At      int

	// Deep says that a server's result is nested more than MaxDepth levels deep. Only answers to list requests may be.
	Deep bool

	// Raw is the whole message, without surrounding space.
	Raw []byte

	index memberIndex
}

// A ParseError says why bytes are not a message that Switchboard accepts.
type ParseError struct {
	Code   int    // CodeParse or CodeInvalidRequest
	ID     []byte // the request's id in its own spelling; nil if it is unknown
	Reason string // for the sender of the message
	Offset int    // of the wrong byte, or of the message
}

// Error returns the reason and the offset.
func (e *ParseError) Error() string {
	return fmt.Sprintf("message, byte %d: %s", e.Offset, e.Reason)
}

// Parse reads a message of a client. It scans the whole message, so that an accepted message means the same to every
// reader. It accepts one JSON value in UTF-8, at most MaxDepth levels deep, with nothing after it. No object at any
// depth may have a duplicate name. In the envelope, in params and in _meta, no name may be one that a lenient reader
// could take for another name there. Batches are refused. The error is a *ParseError.
func Parse(data []byte) (Message, error) { return parse(data, true) }

// ParseEnvelope reads a message of a server. The rules for the envelope are the same as for a client's message. Params,
// result and error are only checked to be JSON in UTF-8, nested at most MaxDepth levels deep; a result that is an
// object may be MaxListDepth deep. ID is nil in a response to a request that the server could not read. The error is a
// *ParseError.
func ParseEnvelope(data []byte) (Message, error) { return parse(data, false) }

// byteOrderMark is what some editors put at the start of a file. JSON does not allow it.
const byteOrderMark = "\xEF\xBB\xBF"

const notUTF8 = "the message is not UTF-8"

func parse(data []byte, strict bool) (Message, error) {
	switch {
	case len(data) > math.MaxInt32:
		return Message{}, &ParseError{Code: CodeParse, Reason: "the message is 2 GiB or longer"}
	case bytes.HasPrefix(data, []byte(byteOrderMark)):
		return Message{}, &ParseError{Code: CodeParse, Reason: "the message starts with a byte order mark"}
	}
	m, err := readMessage(data, strict)
	if err != nil { // report invalid UTF-8 before anything else
		if at := firstInvalidUTF8(data); at >= 0 {
			return Message{}, &ParseError{Code: CodeParse, Reason: notUTF8, Offset: at}
		}
		return Message{}, err
	}
	return m, nil
}

// firstInvalidUTF8 returns the offset of the first byte that is not valid UTF-8, or -1.
func firstInvalidUTF8(data []byte) int {
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

// readMessage reads a message. JSON has only ASCII outside of strings, so everything that read accepts is UTF-8. The error is
// a *ParseError.
func readMessage(data []byte, strict bool) (Message, error) {
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
	e := envelopeReaders.Get().(*envelopeReader)
	defer e.release()
	e.data, e.strict, e.index.complete = data, strict, true
	end, f := e.readObject(from)
	switch {
	case f != 0:
		return Message{}, &ParseError{Code: CodeParse, ID: e.answerableID(), Reason: f.String(), Offset: end}
	case skipSpace(data, end) != len(data):
		return Message{}, &ParseError{Code: CodeParse, ID: e.answerableID(), Reason: "there is more after the message", Offset: skipSpace(data, end)}
	}
	m := e.makeMessage()
	if e.refusal != "" {
		return Message{}, &ParseError{Code: CodeInvalidRequest, ID: e.answerableID(), Reason: e.refusal, Offset: e.refusalOffset}
	}
	m.Raw = data[from:end]
	if strict && m.Params != nil {
		m.index = e.index
		m.index.paramsOffset = uint32(e.offsetOf(e.params))
	}
	for _, part := range [...]*[]byte{&m.ID, &m.Params, &m.Result, &m.ErrorObject, &m.Raw} {
		*part = slices.Clip(*part) // so that appending to a part does not overwrite the rest
	}
	return m, nil
}

// An envelopeReader reads the outermost object of a message.
type envelopeReader struct {
	strictScanner
	strict bool

	version, id, method, params, result, errorObject []byte // in their own spelling
	start                                            int
	deep                                             bool
	duplicateID                                      bool // there is more than one id
	outline                                          switchboard.Outline
}

// envelopeReaders is a pool, so that readers reuse their memory for names.
var envelopeReaders = sync.Pool{New: func() any {
	return &envelopeReader{strictScanner: strictScanner{names: make([]nameSpan, 0, usualNames)}}
}}

// usualNames is enough for the names in the open objects of most messages.
const usualNames = 32

// maxPooledNames limits the memory for names that the pool keeps.
const maxPooledNames = 4 << 10

func (e *envelopeReader) release() {
	names, table := e.names[:0], e.table
	if cap(names) > maxPooledNames {
		names = nil
	}
	if cap(table) > 4*maxPooledNames {
		table = nil
	}
	*e = envelopeReader{strictScanner: strictScanner{names: names, table: table}}
	envelopeReaders.Put(e)
}

// readObject reads the object that opens at i, and returns the offset after it.
func (e *envelopeReader) readObject(i int) (int, flaw) {
	e.start = i
	if i = skipSpace(e.data, i+1); i < len(e.data) && e.data[i] == '}' {
		return i + 1, 0
	}
	for {
		val, name, f := e.readName(i)
		if f != 0 {
			return val, f
		}
		e.names = append(e.names, name)
		member, where := e.memberField(name)
		switch {
		case e.strict:
			i, f = e.scanValue(val, 1, where)
		case member == &e.result && val < len(e.data) && e.data[val] == '{':
			if i, f = scanOutline(e.data, val, MaxDepth, &e.outline); f == flawDepth {
				e.deep = true
				i, f = scanOutline(e.data, val, MaxListDepth, &e.outline)
			}
		default:
			i, f = skipValue(e.data, val, 1, MaxDepth)
		}
		if f != 0 {
			return i, f
		}
		if member != nil {
			e.duplicateID = e.duplicateID || member == &e.id && e.id != nil
			*member = e.data[val:i]
		}
		var last bool
		if i, last, f = nextElement(e.data, i, '}'); f != 0 {
			return i, f
		}
		if last {
			e.refuseDuplicates(e.names)
			return i, 0
		}
	}
}

// memberField returns the field for the value of this name, or nil if there is none, and the role of the value.
func (e *envelopeReader) memberField(name nameSpan) (*[]byte, objectRole) {
	text := e.data[name.start:name.end]
	if name.escaped {
		text = unescape(nil, text)
	}
	if e.strict || !name.escaped {
		e.checkWatchedName(name, inEnvelope)
	} else {
		e.refuseImitation(name, text, inEnvelope)
	}
	switch string(text) {
	case "jsonrpc":
		return &e.version, unwatched
	case "id":
		return &e.id, unwatched
	case "method":
		return &e.method, unwatched
	case "params":
		return &e.params, inParams
	case "result":
		return &e.result, unwatched
	case "error":
		return &e.errorObject, unwatched
	}
	return nil, unwatched
}

// answerableID returns the id, if there is one that an answer can carry.
func (e *envelopeReader) answerableID() []byte {
	if e.duplicateID || checkID(e.id) != "" {
		return nil
	}
	return slices.Clip(e.id)
}

// makeMessage makes a Message from the fields, or refuses it.
func (e *envelopeReader) makeMessage() Message {
	m := Message{ID: e.id, Params: e.params, Deep: e.deep}
	if string(e.version) != `"2.0"` {
		e.refuse(e.start, `jsonrpc has to be "2.0"`)
	}
	if e.params != nil && e.params[0] != '{' {
		if !e.strict && string(e.params) == "null" {
			m.Params = nil
		} else {
			e.refuse(e.offsetOf(e.params), "params is not an object")
		}
	}
	if e.method != nil {
		e.fillRequest(&m)
	} else {
		e.fillResponse(&m)
	}
	return m
}

// fillRequest fills in a message with a method.
func (e *envelopeReader) fillRequest(m *Message) {
	m.Kind = Request
	if e.id == nil {
		m.Kind = Notification
	} else if reason := checkID(e.id); reason != "" {
		e.refuse(e.offsetOf(e.id), "%s", reason)
	}
	if e.result != nil || e.errorObject != nil {
		e.refuse(e.start, "a message is a request or a response, not both")
	}
	var ok bool
	if m.Method, ok = readMethod(e.method); !ok {
		e.refuse(e.offsetOf(e.method), "method is not a string of 1 to %d visible ASCII characters", MaxMethodBytes)
	}
}

// fillResponse fills in a message without a method.
func (e *envelopeReader) fillResponse(m *Message) {
	m.Kind, m.Result, m.ErrorObject, m.Outline = Response, e.result, e.errorObject, e.outline
	switch {
	case e.result == nil && e.errorObject == nil:
		e.refuse(e.start, "there is no method, and no result or error either")
	case e.result != nil && e.errorObject != nil:
		e.refuse(e.start, "a response has a result or an error, not both")
	case e.errorObject != nil && e.errorObject[0] != '{':
		e.refuse(e.offsetOf(e.errorObject), "error is not an object")
	case e.strict && e.result != nil && e.result[0] != '{':
		e.refuse(e.offsetOf(e.result), "result is not an object")
	}
	if e.result != nil {
		m.At = e.offsetOf(e.result)
	}
	// A server that could not read our request cannot know the request's id.
	if !e.strict && e.errorObject != nil && (e.id == nil || string(e.id) == "null") {
		m.ID = nil
		return
	}
	if e.id == nil {
		e.refuse(e.start, "a response has an id")
	} else if reason := checkID(e.id); reason != "" {
		e.refuse(e.offsetOf(e.id), "%s", reason)
	}
}

// offsetOf returns the offset of part in the text. part was cut from the text without limiting its capacity, so the
// capacities give the offset.
func (e *envelopeReader) offsetOf(part []byte) int { return cap(e.data) - cap(part) }

// readMethod decodes the value of method.
func readMethod(raw []byte) (string, bool) {
	// Each character may be spelt as an escape of six bytes.
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
	return internMethod(text), true
}

// checkID returns why raw cannot be an id; "" means that it can. raw is nil or valid JSON.
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
