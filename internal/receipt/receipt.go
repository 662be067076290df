// Package receipt keeps evidence: one receipt for each call that was made or refused, and for each
// change that an administrator makes.
//
// It decides what a receipt holds, how a change of a stored receipt is detected, and that a call
// which may change something outside is not made before its receipt is stored. Receipts refer to
// definitions, decisions and configurations by digest; other packages archive the text.
//
// Each replica has a chain of its own, in the log receipts/<node>. An entry is JSON in canonical
// form:
//
//	{"prev":"sha256:…","receipt":{…},"seq":7,"signature":"<key>:<signature>"}
//
// prev is the digest of the whole previous entry, as it is stored. In the first entry it is the
// digest of no bytes. Entries that are written together have one Ed25519 signature, in the last of
// them. It covers the bytes of that entry without the signature, and through prev all entries
// before it. The signature names the public key, so that a reader can begin anywhere. A receipt
// introduces each new key; the key before signs that receipt. The first key signs its own.
package receipt

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// version is the format version of a Receipt.
const version = 1

// Kind says what a receipt is about.
type Kind string

// The kinds.
const (
	Intent   Kind = "intent"   // a call that is about to be made
	Call     Kind = "call"     // the outcome of a call
	Decision Kind = "decision" // which tools a task gets
	Expand   Kind = "expand"   // a client had tools on demand added to its list
	Collapse Kind = "collapse" // a client had them removed
	Admin    Kind = "admin"    // an administrator's action
	Start    Kind = "start"    // the replica has begun to write
	Stop     Kind = "stop"     // the replica has stopped in good order
	KeyKind  Kind = "key"      // the key that signs from now on
	LostKind Kind = "lost"     // how many receipts could not be written
	TrimKind Kind = "trim"     // up to which entry the chain was trimmed
)

// Kinds are all kinds.
var Kinds = []Kind{Intent, Call, Decision, Expand, Collapse, Admin, Start, Stop, KeyKind, LostKind, TrimKind}

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	OK          Outcome = "ok"
	ToolError   Outcome = "tool_error"   // the tool reports that it has failed
	ServerError Outcome = "server_error" // the server answered with an error
	Refused     Outcome = "refused"      // by Switchboard; nothing was done
	Failed      Outcome = "failed"       // the call reached its server, which gave no valid answer
	Unknown     Outcome = "unknown"      // the call may have been executed
)

// Outcomes are all outcomes.
var Outcomes = []Outcome{OK, ToolError, ServerError, Refused, Failed, Unknown}

// A Receipt says what was done. Its JSON leaves out empty members.
type Receipt struct {
	V int `json:"v"` // the format version; set by Book

	// Time is when the receipt was made: for a call, when it ended. Book sets it, at least a
	// microsecond later than in the receipt before, so that it identifies the receipt within its
	// chain.
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	Tenant    switchboard.TenantID `json:"tenant"`
	Principal Principal            `json:"principal"`
	Task      switchboard.TaskID   `json:"task"`
	Run       switchboard.RunID    `json:"run"`

	Method   string               `json:"method"`
	Server   switchboard.ServerID `json:"server"`
	Tool     string               `json:"tool"`      // the server's name of the requested tool or prompt
	Resource Resource             `json:"resource"`  // the resource that was read or subscribed to
	ServedBy string               `json:"served_by"` // server/tool, if another tool answered
	Tools    []string             `json:"tools"`     // server/tool of each tool that was expanded or collapsed
	Tries    []Try                `json:"tries"`     // tools that were tried before and did not answer
	Effect   bool                 `json:"effect"`    // the call may have changed something outside

	Decision switchboard.Digest   `json:"decision"` // the decision that selected the tool
	Basis    switchboard.Digest   `json:"basis"`    // the basis of that decision
	Rulings  []switchboard.Digest `json:"rulings"`  // digests of the policy's rulings on the attempts

	Arguments string `json:"arguments"` // keyed digest; see Digests
	Result    string `json:"result"`

	Outcome Outcome           `json:"outcome"`
	Code    switchboard.Code  `json:"code"`
	Of      string            `json:"of"` // id of the intent
	Given   switchboard.Given `json:"given"`
	Took    Took              `json:"took"`

	// Configuration is the keyed digest of the configuration that a reload has put in force.
	// Replicas that serve the same configuration have the same digest.
	Configuration switchboard.Digest `json:"configuration"`

	Note string `json:"note"` // for people

	Key  Key  `json:"key"`
	Lost Lost `json:"lost"`
	Trim Trim `json:"trim"`
}

// A Principal names the client that the receipt is about.
type Principal struct {
	ID   string           `json:"id"`
	Auth switchboard.Auth `json:"auth"`
	Mode switchboard.Mode `json:"mode"`
}

// A Resource says which resource a call asked for. The URI may hold secrets. So the receipt has its
// digest, keyed for the tenant, and the scheme and host alone in clear.
type Resource struct {
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	URI    string `json:"uri"` // keyed digest; see Digests
}

// A Try is an attempt at a tool that did not answer the call.
type Try struct {
	Tool string           `json:"tool"`
	Code switchboard.Code `json:"code"`
	Sent bool             `json:"sent"`
}

// Took says how long a call took, in microseconds.
type Took struct {
	Total   int64 `json:"total"`
	Waiting int64 `json:"waiting"` // the part of Total before the call was sent
}

// A Key names a key that signs.
type Key struct {
	Node   string `json:"node"`
	Public string `json:"public"` // spelled as in signatures
}

// Lost says how many receipts could not be written.
type Lost struct {
	Receipts int64     `json:"receipts"`
	Since    time.Time `json:"since"`
}

// Trim says where the chain begins after a trim.
type Trim struct {
	First uint64             `json:"first"`
	Prev  switchboard.Digest `json:"prev"` // the digest that the first entry continues
	Key   string             `json:"key"`  // the key that has signed it
}

// maxText limits the bytes of each text in a receipt, maxList and maxTools the length of its lists.
// Names come from outside, and may have any length.
const (
	maxText  = 256
	maxList  = 16
	maxTools = 256
)

// timeForm has a fixed length, and sorts in the order of time. See instant.
const timeForm = "2006-01-02T15:04:05.000000Z"

// append appends the receipt in canonical form: the members stand in their order.
func (r *Receipt) append(b []byte) []byte {
	b = append(b, '{')
	b = member(b, "arguments", r.Arguments)
	b = member(b, "basis", string(r.Basis))
	b = member(b, "code", string(r.Code))
	b = member(b, "configuration", string(r.Configuration))
	b = member(b, "decision", string(r.Decision))
	if r.Effect {
		b = append(b, `"effect":true,`...)
	}
	b = member(b, "given", string(r.Given))
	if k := &r.Key; *k != (Key{}) {
		b = append(b, `"key":{`...)
		b = member(b, "node", k.Node)
		b = objectEnd(member(b, "public", k.Public))
	}
	b = member(b, "kind", string(r.Kind))
	if l := &r.Lost; l.Receipts > 0 {
		b = number(append(b, `"lost":{`...), "receipts", uint64(l.Receipts))
		b = objectEnd(instant(b, "since", l.Since))
	}
	b = member(b, "method", r.Method)
	b = member(b, "note", r.Note)
	b = member(b, "of", r.Of)
	b = member(b, "outcome", string(r.Outcome))
	if p := &r.Principal; *p != (Principal{}) {
		b = append(b, `"principal":{`...)
		b = member(b, "auth", string(p.Auth))
		b = member(b, "id", p.ID)
		b = objectEnd(member(b, "mode", string(p.Mode)))
	}
	if s := &r.Resource; *s != (Resource{}) {
		b = append(b, `"resource":{`...)
		b = member(b, "host", s.Host)
		b = member(b, "scheme", s.Scheme)
		b = objectEnd(member(b, "uri", s.URI))
	}
	b = member(b, "result", r.Result)
	if len(r.Rulings) > 0 {
		b = append(b, `"rulings":[`...)
		for _, d := range r.Rulings[:min(len(r.Rulings), maxList)] {
			b = append(text(b, string(d)), ',')
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	b = member(b, "run", string(r.Run))
	b = member(b, "served_by", r.ServedBy)
	b = member(b, "server", string(r.Server))
	b = member(b, "task", string(r.Task))
	b = member(b, "tenant", string(r.Tenant))
	b = instant(b, "time", r.Time)
	if t := &r.Took; *t != (Took{}) {
		b = number(append(b, `"took":{`...), "total", uint64(max(t.Total, 0)))
		if t.Waiting > 0 {
			b = number(b, "waiting", uint64(t.Waiting))
		}
		b = objectEnd(b)
	}
	b = member(b, "tool", r.Tool)
	if len(r.Tools) > 0 {
		b = append(b, `"tools":[`...)
		for _, tool := range r.Tools[:min(len(r.Tools), maxTools)] {
			b = append(text(b, tool), ',')
		}
		if len(r.Tools) > maxTools {
			b = append(text(b, "…"), ',')
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	if len(r.Tries) > 0 {
		b = append(b, `"tries":[`...)
		for i := range r.Tries[:min(len(r.Tries), maxList)] {
			t := &r.Tries[i]
			b = member(append(b, '{'), "code", string(t.Code))
			if t.Sent {
				b = append(b, `"sent":true,`...)
			}
			b = objectEnd(member(b, "tool", t.Tool))
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	if t := &r.Trim; *t != (Trim{}) {
		b = number(append(b, `"trim":{`...), "first", t.First)
		b = member(b, "key", t.Key)
		b = objectEnd(member(b, "prev", string(t.Prev)))
	}
	return append(strconv.AppendInt(append(b, `"v":`...), version, 10), '}')
}

// objectEnd closes an object behind its last member, which has a comma.
func objectEnd(b []byte) []byte {
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, '}', ',')
}

func named(b []byte, name string) []byte {
	return append(append(append(b, '"'), name...), '"', ':')
}

func member(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	return append(text(named(b, name), s), ',')
}

func number(b []byte, name string, n uint64) []byte {
	return append(strconv.AppendUint(named(b, name), n, 10), ',')
}

// instant appends t in timeForm, which AppendFormat takes longer for.
func instant(b []byte, name string, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	b = append(named(b, name), '"')
	b = append(digits(b, year, 4), '-')
	b = append(digits(b, int(month), 2), '-')
	b = append(digits(b, day, 2), 'T')
	b = append(digits(b, hour, 2), ':')
	b = append(digits(b, minute, 2), ':')
	b = append(digits(b, second, 2), '.')
	return append(digits(b, t.Nanosecond()/1000, 6), 'Z', '"', ',')
}

// digits appends n in so many digits.
func digits(b []byte, n, count int) []byte {
	b = append(b, "000000"[:count]...)
	for i := len(b) - 1; count > 0; i, count = i-1, count-1 {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

// text appends at most maxText bytes of s as a string, and says with … that it has
// cut.
func text(b []byte, s string) []byte {
	if len(s) <= maxText {
		return wire.AppendString(b, s)
	}
	at := maxText
	for at > maxText-utf8.UTFMax && !utf8.RuneStart(s[at]) {
		at--
	}
	return wire.AppendString(b, s[:at]+"…")
}

// logPrefix precedes the name of the replica in the name of its log.
const logPrefix = "receipts/"

// CheckNode reports why name is not a valid name of a replica: 1 to 64 of A-Z a-z 0-9 . _ -.
func CheckNode(name string) error {
	if name == "" || len(name) > 64 || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return fmt.Errorf("node %.80q: want 1 to 64 letters, digits, dots, hyphens and underscores", name)
	}
	return nil
}

// ID returns the id of a receipt: node/seq.
func ID(node string, seq uint64) string { return node + "/" + strconv.FormatUint(seq, 10) }

// TimeID returns the second id of a receipt: node/time. It is known before the receipt has its
// number.
func TimeID(node string, when time.Time) string { return node + "/" + when.UTC().Format(timeForm) }

// ParseID reads an id that ID or TimeID returned. For the latter seq is 0.
func ParseID(id string) (node string, seq uint64, when time.Time, err error) {
	node, rest, _ := strings.Cut(id, "/")
	if CheckNode(node) == nil {
		if when, err = time.Parse(timeForm, rest); err == nil && TimeID(node, when) == id {
			return node, 0, when, nil
		}
		if seq, err = strconv.ParseUint(rest, 10, 64); err == nil && seq > 0 && ID(node, seq) == id {
			return node, seq, time.Time{}, nil
		}
	}
	return "", 0, time.Time{}, fmt.Errorf("receipt %.80q: want the form NODE/NUMBER or NODE/TIME", id)
}

// decode decodes a receipt. It ignores members that it does not know: a later version wrote them.
func (r *Receipt) decode(raw []byte) error {
	if err := json.Unmarshal(raw, r); err != nil {
		return fmt.Errorf("receipt: %w", err)
	}
	if r.V < 1 || r.Kind == "" || r.Time.IsZero() {
		return fmt.Errorf("receipt: v, kind or time is missing")
	}
	return nil
}
