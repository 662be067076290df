package upstream

import (
	"bytes"
	"cmp"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// An identity is who we tell servers that we are: a JSON object with name and
// version.
type identity []byte

func newIdentity(name, version string) identity {
	b := wire.AppendString([]byte(`{"name":`), name)
	b = wire.AppendString(append(b, `,"version":`...), version)
	return append(b, '}')
}

// initializeParams opens a legacy session. asks is what the client can be asked
// for; "" means nothing.
func (who identity) initializeParams(asks string) []byte {
	b := wire.AppendString([]byte(`{"protocolVersion":`), wire.LatestLegacy)
	b = append(append(b, `,"capabilities":`...), cmp.Or(asks, "{}")...)
	b = append(append(b, `,"clientInfo":`...), who...)
	return append(b, '}')
}

// modern are the edits that make a _meta object what each modern request must
// carry.
func (who identity) modern(version, level string, asks []byte) []wire.Edit {
	if len(asks) == 0 {
		asks = []byte("{}")
	}
	var logLevel []byte
	if level != "" {
		logLevel = wire.AppendString(nil, level)
	}
	return []wire.Edit{
		{Name: wire.MetaProtocolVersion, Value: wire.AppendString(nil, version)},
		{Name: wire.MetaClientInfo, Value: who},
		{Name: wire.MetaClientCapabilities, Value: asks},
		{Name: wire.MetaLogLevel, Value: logLevel},
	}
}

// params completes the params of a request of our own, such as {"cursor":…}.
// Those of the legacy era need nothing.
func (l *link) params(own []byte, version string) []byte {
	if !wire.Modern(version) {
		return own
	}
	meta := wire.Rewrite(nil, nil, l.ours.modern(version, "", nil)...)
	return wire.Rewrite(nil, own, wire.Edit{Name: "_meta", Value: meta})
}

// targets are the members of params that name what is called.
var targets = map[string]string{
	wire.MethodToolsCall:     "name",
	wire.MethodPromptsGet:    "name",
	wire.MethodResourcesRead: "uri",
}

// callParams returns the params of a call as this server must get them, and the
// client's own progress token. given are the client's, or what became of them
// by answers of its. Changed are the name, what in _meta is ours or the
// protocol's, and the progress token, which becomes id: all else is the
// client's, byte for byte.
func (l *link) callParams(c *switchboard.Call, given, id []byte) (params, token []byte) {
	var target []byte
	member := targets[c.Method]
	if member != "" {
		target = wire.AppendString(nil, c.Target)
	}
	had, named := false, false
	room := make([]byte, 0, len(given)+len(l.ours)+len(target)+metaRoom)
	params = wire.Map(room, given, func(name, value []byte) []byte {
		switch {
		case string(name) == wire.MemberMeta:
			had = true
			value, token = l.callMeta(c, value, id)
		case member != "" && string(name) == member:
			named = true
			return target
		}
		return value
	})
	var missing []wire.Edit
	if !had && l.hello().modern() {
		meta, _ := l.callMeta(c, nil, id)
		missing = append(missing, wire.Edit{Name: wire.MemberMeta, Value: meta})
	}
	if !named && member != "" {
		missing = append(missing, wire.Edit{Name: member, Value: target})
	}
	if missing != nil {
		params = wire.Rewrite(nil, params, missing...)
	}
	return params, token
}

// metaRoom is for what is added to the _meta of a modern call besides our name.
const metaRoom = 256

// callMeta returns _meta as this server must get it, nil for none, of a call that
// came with was.
func (l *link) callMeta(c *switchboard.Call, was, id []byte) (meta, token []byte) {
	if len(was) == 0 || was[0] != '{' {
		was = nil // no reader could take it for _meta
	}
	var ours []wire.Edit
	if l.hello().modern() {
		ours = l.ours.modern(l.hello().version, c.LogLevel, declared(&c.Client))
	}
	members, left := 0, len(ours)
	meta = wire.Map(make([]byte, 0, len(was)+len(l.ours)+metaRoom), was, func(name, value []byte) []byte {
		members++
		switch {
		case string(name) == wire.MetaProgressToken:
			token, value = value, id
		case bytes.HasPrefix(name, []byte(wire.MetaPrefix)) || bytes.HasPrefix(name, []byte(wire.MetaOurPrefix)):
			return nil
		}
		left++
		return value
	}, ours...)
	if members > 0 && left == 0 {
		meta = nil // what is left of it says nothing
	}
	return meta, token
}
