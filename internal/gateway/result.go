package gateway

import (
	"bytes"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The members of a result in which the eras differ.
const (
	memberMeta       = "_meta"
	memberResultType = "resultType"
	memberTTL        = "ttlMs"
	memberScope      = "cacheScope"
)

// resultComplete is the resultType of an answer, as opposed to a question.
var resultComplete = []byte(`"complete"`)

// reserved reports whether a key of _meta is the protocol's or ours, so that no
// server may say it of its results.
func reserved(key string) bool {
	return strings.HasPrefix(key, wire.MetaPrefix) || strings.HasPrefix(key, wire.MetaOurPrefix)
}

// bridge returns a server's result as a client of the era gets it. Where
// nothing has to change, or only something to be added, the result itself is
// part of it.
//
//   - Reserved keys of _meta are removed; a modern client finds our serverInfo.
//   - A legacy client gets no resultType, and none of what came with it.
//   - A modern client gets a resultType in any case.
//
// What cannot be told for sure is refused: a question, which a legacy client
// cannot answer yet, and a result that says these things twice.
func (g *Gateway) bridge(result []byte, modern bool) (answer, error) {
	if len(result) < 2 || result[0] != '{' || result[len(result)-1] != '}' {
		return answer{}, invalidResult("it is no object")
	}
	if plain(result) {
		switch {
		case !modern:
			return answer{result: result}, nil
		case emptyObject(result):
			return answer{result: result, more: g.members[1:]}, nil
		}
		return answer{result: result, more: g.members}, nil
	}
	meta, kind, err := bridged(result)
	if err != nil {
		return answer{}, err
	}
	var edits []wire.Edit
	switch {
	case modern && kind == nil:
		edits = append(edits, wire.Edit{Name: memberResultType, Value: resultComplete})
	case !modern && kind != nil && !bytes.Equal(kind, resultComplete):
		return answer{}, invalidResult("it asks the client for more, which cannot be passed on to this client")
	case !modern && kind != nil:
		edits = append(edits, wire.Edit{Name: memberResultType}, wire.Edit{Name: memberTTL}, wire.Edit{Name: memberScope})
	}
	switch own := withoutReserved(meta); {
	case modern:
		edits = append(edits, wire.Edit{Name: memberMeta, Value: g.identified(own)})
	case len(own) == len(meta):
	case emptyObject(own):
		edits = append(edits, wire.Edit{Name: memberMeta})
	default:
		edits = append(edits, wire.Edit{Name: memberMeta, Value: own})
	}
	if len(edits) == 0 {
		return answer{result: result}, nil
	}
	return answer{result: wire.Rewrite(make([]byte, 0, len(result)+len(g.info)+96), result, edits...)}, nil
}

// plain reports whether result surely holds none of the members that are
// rewritten, however they are spelt. Nearly all results are so, and a big one is
// then neither read again nor copied.
func plain(result []byte) bool {
	for _, sign := range plainSigns {
		if bytes.Contains(result, sign) {
			return false
		}
	}
	return true
}

var plainSigns = [][]byte{[]byte(`"_m`), []byte(`"_M`), []byte(memberResultType), []byte(`\u`)}

// bridged returns _meta and resultType of result, nil where there is none. A
// reader that ignores case would take another spelling of _meta for it, and
// with it what a server may not say.
func bridged(result []byte) (meta, kind []byte, err error) {
	for name, value := range wire.Members(result) {
		switch {
		case name == memberMeta && meta == nil:
			meta = value
		case name == memberResultType && kind == nil:
			kind = value
		case name == memberResultType:
			return nil, nil, invalidResult("it holds resultType twice")
		case strings.EqualFold(name, memberMeta):
			return nil, nil, invalidResult("it holds _meta twice, or in another spelling")
		}
	}
	return meta, kind, nil
}

// withoutReserved returns meta without the keys that are reserved. It is meta
// itself where there are none, or where it is no object.
func withoutReserved(meta []byte) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		return meta
	}
	for name := range wire.Members(meta) {
		if reserved(name) {
			return wire.Without(nil, meta, reserved)
		}
	}
	return meta
}

// identified returns meta, without reserved keys, with our serverInfo in it.
func (g *Gateway) identified(meta []byte) []byte {
	if len(meta) == 0 || meta[0] != '{' {
		return g.meta()
	}
	return wire.Rewrite(make([]byte, 0, len(meta)+len(g.info)+48), meta, wire.Edit{Name: wire.MetaServerInfo, Value: g.info})
}

func emptyObject(b []byte) bool {
	return len(b) >= 2 && b[0] == '{' && len(bytes.TrimSpace(b[1:len(b)-1])) == 0
}

// cleanParams returns the params of a server's notification without reserved
// keys in _meta.
func cleanParams(params []byte) []byte {
	meta, ok := field(params, memberMeta)
	if !ok {
		return params
	}
	own := withoutReserved(meta)
	if len(own) == len(meta) {
		return params
	}
	return wire.Rewrite(nil, params, wire.Edit{Name: memberMeta, Value: own})
}

func invalidResult(why string) error {
	return switchboard.Refuse(switchboard.CodeResultInvalid, "the server's result is not valid: %s", why)
}
