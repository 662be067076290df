package link

import (
	"bytes"
	"cmp"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A ClientInfo identifies Switchboard to servers: a JSON object with name and version.
type ClientInfo []byte

// NewClientInfo returns the clientInfo of a program with that name and version.
func NewClientInfo(name, version string) ClientInfo {
	b := wire.AppendString([]byte(`{"name":`), name)
	b = wire.AppendString(append(b, `,"version":`...), version)
	return append(b, '}')
}

// initializeParams returns the params of initialize. asks are the client's capabilities for
// questions; "" means none.
func (who ClientInfo) initializeParams(asks string) []byte {
	b := wire.AppendString([]byte(`{"protocolVersion":`), wire.LatestLegacy)
	b = append(append(b, `,"capabilities":`...), cmp.Or(asks, "{}")...)
	b = append(append(b, `,"clientInfo":`...), who...)
	return append(b, '}')
}

// modernMeta returns the edits that add the members that every modern request needs to a _meta
// object.
func (who ClientInfo) modernMeta(version, level string, asks []byte) []wire.Edit {
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

// withMeta adds _meta to the params of our own request, such as {"cursor":…}. The legacy era needs
// none.
func (l *Link) withMeta(own []byte, version string) []byte {
	if !wire.Modern(version) {
		return own
	}
	meta := wire.Rewrite(nil, nil, l.clientInfo.modernMeta(version, "", nil)...)
	return wire.Rewrite(nil, own, wire.Edit{Name: "_meta", Value: meta})
}

// targetMembers maps methods to the member of the params that names the target.
var targetMembers = map[string]string{
	wire.MethodToolsCall:     "name",
	wire.MethodPromptsGet:    "name",
	wire.MethodResourcesRead: "uri",
}

// callParams returns the params for this server, and the client's own progress token. given are the
// client's params, with its answers in later rounds. callParams replaces the name, our and the
// protocol's members of _meta, and the progress token, which becomes id. Everything else stays as
// the client sent it, byte for byte.
func (who ClientInfo) callParams(h *Hello, c *switchboard.Call, given, id []byte) (params, token []byte) {
	var target []byte
	member := targetMembers[c.Method]
	if member != "" {
		target = wire.AppendString(nil, c.Target)
	}
	had, named := false, false
	room := make([]byte, 0, len(given)+len(who)+len(target)+metaRoom)
	params = wire.Map(room, given, func(name, value []byte) []byte {
		switch {
		case string(name) == wire.MemberMeta:
			had = true
			value, token = who.callMeta(h, c, value, id)
		case member != "" && string(name) == member:
			named = true
			return target
		}
		return value
	})
	var missing []wire.Edit
	if !had && h.Modern() {
		meta, _ := who.callMeta(h, c, nil, id)
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

// metaRoom is room for the members that are added to the _meta of a modern call, without
// clientInfo.
const metaRoom = 256

// callMeta returns the _meta for this server, or nil for none. was is the _meta that the client
// sent.
func (who ClientInfo) callMeta(h *Hello, c *switchboard.Call, was, id []byte) (meta, token []byte) {
	if len(was) == 0 || was[0] != '{' {
		was = nil // no reader would accept it as _meta
	}
	var ours []wire.Edit
	if h.Modern() {
		ours = who.modernMeta(h.Version, c.LogLevel, requestCapabilities(&c.Client))
	}
	members, left := 0, len(ours)
	meta = wire.Map(make([]byte, 0, len(was)+len(who)+metaRoom), was, func(name, value []byte) []byte {
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
		meta = nil // it has become empty
	}
	return meta, token
}
