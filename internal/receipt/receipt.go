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

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
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
	Ask      Kind = "ask"      // a person was asked to approve a call, or for a capability
	Decide   Kind = "decide"   // a person's decision about such a request, or its end without one
	Pin      Kind = "pin"      // definitions of a server have other states, without a person's decision
	Verified Kind = "verify"   // a tool was verified
	Acquired Kind = "acquire"  // a step towards a capability that nothing here gave
	Start    Kind = "start"    // the replica has begun to write
	Stop     Kind = "stop"     // the replica has stopped in good order
	KeyKind  Kind = "key"      // the key that signs from now on
	LostKind Kind = "lost"     // how many receipts could not be written
	TrimKind Kind = "trim"     // up to which entry the chain was trimmed
)

// Kinds are all kinds.
var Kinds = []Kind{Intent, Call, Decision, Expand, Collapse, Admin, Ask, Decide, Pin, Verified, Acquired, Start, Stop, KeyKind, LostKind, TrimKind}

// CallOutcome is how a call ended.
type CallOutcome string

// The outcomes.
const (
	OK          CallOutcome = "ok"
	ToolError   CallOutcome = "tool_error"   // the tool reports that it has failed
	ServerError CallOutcome = "server_error" // the server answered with an error
	Refused     CallOutcome = "refused"      // by Switchboard; nothing was done
	Failed      CallOutcome = "failed"       // the call reached its server, which gave no valid answer
	Unknown     CallOutcome = "unknown"      // the call may have been executed
)

// Outcomes are all outcomes.
var Outcomes = []CallOutcome{OK, ToolError, ServerError, Refused, Failed, Unknown}

// A Receipt says what was done. Its JSON leaves out empty members.
type Receipt struct {
	V int `json:"v"` // the format version; set by Chain

	// Time is when the receipt was made: for a call, when it ended. Chain sets it, at least a
	// microsecond later than in the receipt before, so that it identifies the receipt within its
	// chain.
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`

	Tenant    switchboard.TenantID `json:"tenant"`
	Principal Subject              `json:"principal"`
	Task      switchboard.TaskID   `json:"task"`
	Run       switchboard.RunID    `json:"run"`

	Method   string               `json:"method"`
	Server   switchboard.ServerID `json:"server"`
	Tool     string               `json:"tool"`      // the server's name of the requested tool or prompt
	Resource ResourceRef          `json:"resource"`  // the resource that was read or subscribed to
	ServedBy string               `json:"served_by"` // server/tool, if another tool answered
	Tools    []string             `json:"tools"`     // server/tool of each tool that was expanded or collapsed
	Tries    []FailedAttempt      `json:"tries"`     // tools that did not answer, if there were several attempts
	Attempt  int                  `json:"attempt"`   // of an intent: how many tools of the call came before
	Effect   bool                 `json:"effect"`    // the call may have changed something outside

	// Touched is what the run had touched before a call that carries data out; see switchboard.FlowBits.
	Touched []string `json:"touched"`

	// Capability is the version of a capability that the tool provides, as ID@VERSION. Of kind ask, it is the capability that an agent has asked for.
	Capability string `json:"capability"`

	// Unmet are, of kind decision, the requirements that no tool meets, as explain spells them.
	Unmet []string `json:"unmet"`

	Decision switchboard.Digest   `json:"decision"` // the decision that selected the tool
	Basis    switchboard.Digest   `json:"basis"`    // the basis of that decision
	Rulings  []switchboard.Digest `json:"rulings"`  // digests of the policy's rulings on the attempts

	Arguments string `json:"arguments"` // keyed digest; see Digests
	Result    string `json:"result"`

	Outcome CallOutcome              `json:"outcome"`
	Code    switchboard.Code         `json:"code"`
	Of      string                   `json:"of"` // id of the intent; for a call, that of the attempt after Tries
	Given   switchboard.ResultSource `json:"given"`
	Took    CallTime                 `json:"took"`

	// Price is what the attempts of the call cost. Of an intent, it has only what is held for its attempt.
	Price PriceMark `json:"price"`

	// Approval is the approval that the call used: of an intent, when its attempt was made. Of kinds ask and decide, it
	// is the request that they are about.
	Approval ApprovalRef `json:"approval"`

	// Hold is what the store holds for the attempt of an intent, under the id of the attempt. The intent makes it durable, and the use
	// of the approval too. An attempt that has no price has no accounts.
	Hold IntentHold `json:"hold"`

	// Configuration is the keyed digest of the configuration that a reload has put in force.
	// Replicas that serve the same configuration have the same digest.
	Configuration switchboard.Digest `json:"configuration"`

	// Change is the change of a file of the configuration, by an officer.
	Change FileChange `json:"change"`

	// Pins is what has changed, of kind pin. Tools names the tools among them, so that a search finds them.
	Pins PinsReport `json:"pins"`

	Report switchboard.Digest `json:"report"` // of the report of a verification

	Note string `json:"note"` // for people

	Key  ChainKey   `json:"key"`
	Lost LossReport `json:"lost"`
	Trim Trim       `json:"trim"`
}

// Late returns the outcome of an intent that was not durable in time. It may still be stored, with the id.
func (r Receipt) Late(id string) *Receipt {
	r.Of, r.Outcome, r.Code = id, Refused, switchboard.CodeReceipt
	return &r
}

// A FileChange says which file of the configuration was changed. The digests are the SHA-256 of the file's bytes; "" means that there is no file.
type FileChange struct {
	File   string             `json:"file"`
	Office switchboard.Office `json:"office"` // that allowed it
	Before string             `json:"before"`
	After  string             `json:"after"`
	Source string             `json:"source"` // what the change carries out, such as a proposal
}

// A Subject names the client that the receipt is about.
type Subject struct {
	ID   string           `json:"id"`
	Auth switchboard.Auth `json:"auth"`
	Mode switchboard.Mode `json:"mode"`
}

// A ResourceRef says which resource a call asked for. The URI may hold secrets. So the receipt has its
// digest, keyed for the tenant, and the scheme and host alone in clear.
type ResourceRef struct {
	Scheme string `json:"scheme"`
	Host   string `json:"host"`
	URI    string `json:"uri"` // keyed digest; see Digests
}

// A FailedAttempt is an attempt at a tool that did not answer the call.
type FailedAttempt struct {
	Tool string           `json:"tool"`
	Code switchboard.Code `json:"code"`
	Of   string           `json:"of"` // id of its intent
	Sent bool             `json:"sent"`
}

// CallTime says how long a call took, in microseconds.
type CallTime struct {
	Total   int64 `json:"total"`
	Waiting int64 `json:"waiting"` // the part of Total before the call was sent
}

// A PriceMark is what a call costs, in millionths of the installation's currency.
type PriceMark struct {
	Held    switchboard.Micros `json:"held"`    // before the call
	Settled switchboard.Micros `json:"settled"` // after it
}

// An ApprovalRef names a person's approval.
type ApprovalRef struct {
	Request  string `json:"request"`
	Standing string `json:"standing"` // the id of the standing yes; "" if a person has approved this one call
	Decision string `json:"decision"` // of kind decide: how the request was decided or ended
}

// An IntentHold is a hold of the store, with all that is needed to make it again.
type IntentHold struct {
	ID       string        `json:"id"`
	Group    string        `json:"group"`
	TTL      int64         `json:"ttl"` // in microseconds
	Accounts []HeldAccount `json:"accounts"`

	// Number counts the holds of the group in their order. A store that has not seen the number has lost the hold.
	// 0 means that the store loses no hold that an intent names.
	Number int64 `json:"number"`
}

// A HeldAccount is what a hold holds in one account.
type HeldAccount struct {
	Name   string    `json:"name"`
	Amount int64     `json:"amount"`
	Ends   time.Time `json:"ends,omitzero"` // zero: never
}

// A ChainKey names a key that signs.
type ChainKey struct {
	Node   string `json:"node"`
	Public string `json:"public"` // spelled as in signatures
}

// LossReport says how many receipts could not be written.
type LossReport struct {
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

// append appends the receipt in canonical form. Empty members are left out.
func (r *Receipt) append(b []byte) []byte {
	w := canonical.NewWriter(b)
	w.BeginObject()
	if a := &r.Approval; *a != (ApprovalRef{}) {
		w.Name("approval")
		w.BeginObject()
		writeText(&w, "decision", a.Decision)
		writeText(&w, "request", a.Request)
		writeText(&w, "standing", a.Standing)
		w.EndObject()
	}
	writeText(&w, "arguments", r.Arguments)
	if r.Attempt > 0 {
		w.Name("attempt")
		w.Int(int64(r.Attempt))
	}
	writeText(&w, "basis", string(r.Basis))
	writeText(&w, "capability", r.Capability)
	if c := &r.Change; *c != (FileChange{}) {
		w.Name("change")
		w.BeginObject()
		writeText(&w, "after", c.After)
		writeText(&w, "before", c.Before)
		writeText(&w, "file", c.File)
		writeText(&w, "office", string(c.Office))
		writeText(&w, "source", c.Source)
		w.EndObject()
	}
	writeText(&w, "code", string(r.Code))
	writeText(&w, "configuration", string(r.Configuration))
	writeText(&w, "decision", string(r.Decision))
	if r.Effect {
		w.Name("effect")
		w.Bool(true)
	}
	writeText(&w, "given", string(r.Given))
	r.Hold.append(&w)
	if k := &r.Key; *k != (ChainKey{}) {
		w.Name("key")
		w.BeginObject()
		writeText(&w, "node", k.Node)
		writeText(&w, "public", k.Public)
		w.EndObject()
	}
	writeText(&w, "kind", string(r.Kind))
	if l := &r.Lost; l.Receipts > 0 {
		w.Name("lost")
		w.BeginObject()
		w.Name("receipts")
		w.Int(l.Receipts)
		writeTime(&w, "since", l.Since)
		w.EndObject()
	}
	writeText(&w, "method", r.Method)
	writeText(&w, "note", r.Note)
	writeText(&w, "of", r.Of)
	writeText(&w, "outcome", string(r.Outcome))
	r.Pins.append(&w)
	if p := &r.Price; *p != (PriceMark{}) {
		w.Name("price")
		w.BeginObject()
		writeAmount(&w, "held", int64(p.Held))
		writeAmount(&w, "settled", int64(p.Settled))
		w.EndObject()
	}
	if p := &r.Principal; *p != (Subject{}) {
		w.Name("principal")
		w.BeginObject()
		writeText(&w, "auth", string(p.Auth))
		writeText(&w, "id", p.ID)
		writeText(&w, "mode", string(p.Mode))
		w.EndObject()
	}
	writeText(&w, "report", string(r.Report))
	if s := &r.Resource; *s != (ResourceRef{}) {
		w.Name("resource")
		w.BeginObject()
		writeText(&w, "host", s.Host)
		writeText(&w, "scheme", s.Scheme)
		writeText(&w, "uri", s.URI)
		w.EndObject()
	}
	writeText(&w, "result", r.Result)
	if len(r.Rulings) > 0 {
		w.Name("rulings")
		w.BeginList()
		for _, d := range r.Rulings[:min(len(r.Rulings), maxList)] {
			w.String(cutText(string(d)))
		}
		w.EndList()
	}
	writeText(&w, "run", string(r.Run))
	writeText(&w, "served_by", r.ServedBy)
	writeText(&w, "server", string(r.Server))
	writeText(&w, "task", string(r.Task))
	writeText(&w, "tenant", string(r.Tenant))
	writeTime(&w, "time", r.Time)
	if t := &r.Took; *t != (CallTime{}) {
		w.Name("took")
		w.BeginObject()
		w.Name("total")
		w.Int(max(t.Total, 0))
		if t.Waiting > 0 {
			w.Name("waiting")
			w.Int(t.Waiting)
		}
		w.EndObject()
	}
	writeText(&w, "tool", r.Tool)
	if len(r.Tools) > 0 {
		w.Name("tools")
		w.BeginList()
		for _, tool := range r.Tools[:min(len(r.Tools), maxTools)] {
			w.String(cutText(tool))
		}
		if len(r.Tools) > maxTools {
			w.String("…")
		}
		w.EndList()
	}
	if len(r.Touched) > 0 {
		w.Name("touched")
		w.BeginList()
		for _, name := range r.Touched {
			w.String(cutText(name))
		}
		w.EndList()
	}
	if len(r.Tries) > 0 {
		w.Name("tries")
		w.BeginList()
		for i := range r.Tries[:min(len(r.Tries), maxList)] {
			t := &r.Tries[i]
			w.BeginObject()
			writeText(&w, "code", string(t.Code))
			writeText(&w, "of", t.Of)
			if t.Sent {
				w.Name("sent")
				w.Bool(true)
			}
			writeText(&w, "tool", t.Tool)
			w.EndObject()
		}
		w.EndList()
	}
	if t := &r.Trim; *t != (Trim{}) {
		w.Name("trim")
		w.BeginObject()
		w.Name("first")
		w.Uint(t.First)
		writeText(&w, "key", t.Key)
		writeText(&w, "prev", string(t.Prev))
		w.EndObject()
	}
	if len(r.Unmet) > 0 {
		w.Name("unmet")
		w.BeginList()
		for _, text := range r.Unmet[:min(len(r.Unmet), maxList)] {
			w.String(cutText(text))
		}
		w.EndList()
	}
	w.Name("v")
	w.Int(version)
	w.EndObject()
	return w.Bytes()
}

// append appends the member hold, unless there is no hold. Its names are not cut, because the store must find the
// same ones again. The store bounds their length.
func (h *IntentHold) append(w *canonical.Writer) {
	if h.ID == "" {
		return
	}
	w.Name("hold")
	w.BeginObject()
	if len(h.Accounts) > 0 {
		w.Name("accounts")
		w.BeginList()
		for i := range h.Accounts {
			a := &h.Accounts[i]
			w.BeginObject()
			writeAmount(w, "amount", a.Amount)
			if !a.Ends.IsZero() {
				writeTime(w, "ends", a.Ends)
			}
			w.Member("name", a.Name)
			w.EndObject()
		}
		w.EndList()
		w.Member("group", h.Group)
	}
	w.Member("id", h.ID)
	writeAmount(w, "number", h.Number)
	writeAmount(w, "ttl", h.TTL)
	w.EndObject()
}

// writeAmount writes a member with the number, unless it is 0.
func writeAmount(w *canonical.Writer, name string, n int64) {
	if n != 0 {
		w.Name(name)
		w.Int(n)
	}
}

// writeText writes a member with the text, unless it is empty.
func writeText(w *canonical.Writer, name, text string) {
	if text != "" {
		w.Member(name, cutText(text))
	}
}

// writeTime writes a member with t in timeForm. Time.AppendFormat would take longer.
func writeTime(w *canonical.Writer, name string, t time.Time) {
	t = t.UTC()
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	text := []byte(`"0000-00-00T00:00:00.000000Z"`)
	putDigits(text[1:5], year)
	putDigits(text[6:8], int(month))
	putDigits(text[9:11], day)
	putDigits(text[12:14], hour)
	putDigits(text[15:17], minute)
	putDigits(text[18:20], second)
	putDigits(text[21:27], t.Nanosecond()/1000)
	w.Name(name)
	w.Raw(text)
}

// putDigits fills b with the last digits of n.
func putDigits(b []byte, n int) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// cutText returns at most maxText bytes of s, with … if it has cut.
func cutText(s string) string {
	if len(s) <= maxText {
		return s
	}
	at := maxText
	for at > maxText-utf8.UTFMax && !utf8.RuneStart(s[at]) {
		at--
	}
	return s[:at] + "…"
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
	return r.check()
}

// check reports members that every receipt has, and that are missing.
func (r *Receipt) check() error {
	if r.V < 1 || r.Kind == "" || r.Time.IsZero() {
		return fmt.Errorf("receipt: v, kind or time is missing")
	}
	return nil
}
