package gateway

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// resultComplete is the resultType of a final result.
var resultComplete = []byte(`"complete"`)

// isForeignReserved reports whether a key is reserved (wire.Reserved), and is not the one that only
// a server can give: which of its tasks something belongs to.
func isForeignReserved(key string) bool { return key != wire.MetaRelatedTask && wire.Reserved(key) }

// An encoder puts results and errors into the form that clients get.
type encoder struct {
	serverInfo    []byte // our serverInfo, a JSON object
	modernMembers []byte // a comma, and the members that every modern result needs
	modernMeta    []byte // modernMembers without resultType
	recorder      CallRecorder
	log           *slog.Logger
}

func newEncoder(serverInfo []byte, r CallRecorder, log *slog.Logger) *encoder {
	enc := &encoder{serverInfo: serverInfo, recorder: r, log: log}
	enc.modernMeta = append([]byte(`,"_meta":`), enc.ownMeta()...)
	enc.modernMembers = append([]byte(`,"resultType":"complete"`), enc.modernMeta...)
	return enc
}

// encodeForEra returns a server's result in the form of the client's era. It neither reads again
// nor copies what stays the same, so that a large result costs little.
//
//   - It removes reserved keys from _meta, except the server's task if client and server are of
//     the same era, and gives a modern client our serverInfo.
//   - It removes resultType, and the members that belong to it, for a legacy client.
//   - It adds a missing resultType for a modern client.
//
// It refuses an ambiguous result: a question to a legacy client, which cannot answer it in this
// form, and a result that has one of these members twice.
func (enc *encoder) encodeForEra(r switchboard.Result, modern bool) (rpcAnswer, error) {
	result, o := r.JSON, r.Outline
	if len(result) < 2 || result[0] != '{' || result[len(result)-1] != '}' {
		return rpcAnswer{}, invalidResult("it is not an object")
	}
	if o.End == 0 {
		o = wire.OutlineOf(result)
	}
	meta, kind, err := eraMembers(result, &o)
	if err != nil {
		return rpcAnswer{}, err
	}
	var edits []wire.Edit
	switch {
	case modern && meta == nil && !r.HasNotes(): // the usual case
		more := enc.modernMembers
		if kind != nil {
			more = enc.modernMeta
		}
		if o.End == 1 {
			more = more[1:] // no member precedes it
		}
		spare := r.Spare
		if spare > 0 {
			spare += len(result) - o.End
		}
		return rpcAnswer{result: result[:o.End], spare: spare, rest: [][]byte{slices.Concat(more, result[o.End:])}, release: r.Release}, nil
	case modern && kind == nil:
		edits = append(edits, wire.Edit{Name: wire.MemberResultType, Value: resultComplete})
	case !modern && kind != nil && !bytes.Equal(kind, resultComplete):
		return rpcAnswer{}, invalidResult("it asks the client a question, which this client cannot answer")
	case !modern && kind != nil:
		edits = append(edits, wire.Edit{Name: wire.MemberResultType}, wire.Edit{Name: wire.MemberTTL}, wire.Edit{Name: wire.MemberScope})
	}
	drop := wire.Reserved
	if modern == (kind != nil) { // server and client are of the same era
		drop = isForeignReserved
	}
	switch own := withoutKeys(meta, drop); {
	case r.HasNotes():
		edits = append(edits, wire.Edit{Name: wire.MemberMeta, Value: enc.metaWithNotes(own, &r, modern)})
	case modern:
		edits = append(edits, wire.Edit{Name: wire.MemberMeta, Value: enc.metaWithServerInfo(own)})
	case len(own) == len(meta):
	case emptyObject(own):
		edits = append(edits, wire.Edit{Name: wire.MemberMeta})
	default:
		edits = append(edits, wire.Edit{Name: wire.MemberMeta, Value: own})
	}
	if len(edits) == 0 {
		return rpcAnswer{result: result, spare: r.Spare, release: r.Release}, nil
	}
	parts := wire.Splice(result, o, edits...)
	return rpcAnswer{result: parts[0], rest: parts[1:], release: r.Release}, nil
}

// eraMembers returns the _meta and the resultType of a result; nil for a missing one. It refuses
// other spellings of _meta, because a reader that ignores case would take them for it, with keys
// that a server may not set.
func eraMembers(result []byte, o *switchboard.Outline) (meta, kind []byte, err error) {
	if o.Truncated {
		return nil, nil, invalidResult("it repeats its members")
	}
	for _, m := range o.Members {
		switch {
		case m.Name == wire.MemberMeta && meta == nil:
			meta = result[m.Value:m.End]
		case m.Name == wire.MemberResultType && kind == nil:
			kind = result[m.Value:m.End]
		case m.Name == wire.MemberResultType:
			return nil, nil, invalidResult("it holds resultType twice")
		case strings.EqualFold(m.Name, wire.MemberMeta):
			return nil, nil, invalidResult("it holds _meta twice, or in another spelling")
		}
	}
	return meta, kind, nil
}

// withoutKeys returns meta without the keys that drop reports. It returns meta itself if nothing is
// dropped, or if meta is no object.
func withoutKeys(meta []byte, drop func(key string) bool) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		return meta
	}
	for name := range wire.Members(meta) {
		if drop(name) {
			return wire.Without(nil, meta, drop)
		}
	}
	return meta
}

// metaWithServerInfo returns meta, which has no reserved keys, with our serverInfo.
func (enc *encoder) metaWithServerInfo(meta []byte) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		return enc.modernMeta[len(`,"_meta":`):]
	}
	return wire.Rewrite(make([]byte, 0, len(meta)+len(enc.serverInfo)+48), meta, wire.Edit{Name: wire.MetaServerInfo, Value: enc.serverInfo})
}

// MetaMoved is the key in the _meta of a result that names the tool which served the call in place
// of the called one, and the tools that were tried.
const MetaMoved = wire.MetaOurPrefix + "moved"

// MetaGiven is the key in the _meta of a result that was known already, so that no server was
// asked. Its value says the source and the time.
const MetaGiven = wire.MetaOurPrefix + "given"

// MetaPreview is the key in the _meta of a preview. Its value names the longer result: the handle,
// the bytes, and the time until which Switchboard keeps it.
const MetaPreview = wire.MetaOurPrefix + "preview"

// MetaBudget is the key in the _meta of a result that says what is left in budgets that are nearly used up.
const MetaBudget = wire.MetaOurPrefix + "budget"

// metaWithNotes returns meta with the notes about a result: that another tool gave it, that it was
// known already, its preview, its receipt, and what is left in budgets.
func (enc *encoder) metaWithNotes(meta []byte, r *switchboard.Result, modern bool) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		meta = nil
	}
	var edits []wire.Edit
	if r.Moved != nil {
		edits = append(edits, wire.Edit{Name: MetaMoved, Value: appendMoved(make([]byte, 0, 256), r.Moved)})
	}
	if r.Repeated != nil {
		value, _ := json.Marshal(r.Repeated) // a word and a time can be encoded
		edits = append(edits, wire.Edit{Name: MetaGiven, Value: value})
	}
	if r.Preview != nil {
		value, _ := json.Marshal(r.Preview) // words, a number and a time can be encoded
		edits = append(edits, wire.Edit{Name: MetaPreview, Value: value})
	}
	if len(r.Budgets) > 0 {
		value, _ := json.Marshal(r.Budgets) // texts and times can be encoded
		edits = append(edits, wire.Edit{Name: MetaBudget, Value: value})
	}
	if r.Receipt != "" {
		edits = append(edits, wire.Edit{Name: wire.MetaReceipt, Value: wire.AppendString(nil, r.Receipt)})
	}
	if modern {
		edits = append(edits, wire.Edit{Name: wire.MetaServerInfo, Value: enc.serverInfo})
	}
	return wire.Rewrite(make([]byte, 0, len(meta)+len(enc.serverInfo)+384), meta, edits...)
}

// appendMoved appends m as encoding/json encodes it, but in a fraction of the time, so that a moved
// call takes no longer than another.
func appendMoved(dst []byte, m *switchboard.Moved) []byte {
	dst = append(dst, `{"served_by":`...)
	dst = wire.AppendString(dst, m.To.String())
	dst = append(dst, `,"tried":[`...)
	for i, t := range m.Tried {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = wire.AppendString(append(dst, `{"tool":`...), t.Tool.String())
		if t.Code != "" {
			dst = wire.AppendString(append(dst, `,"code":`...), string(t.Code))
		}
		if t.Sent {
			dst = append(dst, `,"sent":true`...)
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}"...)
}

func emptyObject(b []byte) bool {
	return len(b) >= 2 && b[0] == '{' && len(bytes.TrimSpace(b[1:len(b)-1])) == 0
}

// cleanParams returns the params of a server's notification or question without reserved keys in
// _meta.
func cleanParams(params []byte) []byte {
	meta, ok := memberOf(params, wire.MemberMeta)
	if !ok {
		return params
	}
	own := withoutKeys(meta, isForeignReserved)
	if len(own) == len(meta) {
		return params
	}
	return wire.Rewrite(nil, params, wire.Edit{Name: wire.MemberMeta, Value: own})
}

func invalidResult(why string) error {
	return switchboard.Refuse(switchboard.CodeResultInvalid, "the server's result is not valid: %s", why)
}

// ownMeta returns the _meta of a modern result that Switchboard itself gives.
func (enc *encoder) ownMeta(more ...string) []byte {
	m := append([]byte(`{"`+wire.MetaServerInfo+`":`), enc.serverInfo...)
	for _, s := range more {
		m = append(append(m, ','), s...)
	}
	return append(m, '}')
}
