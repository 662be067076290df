package link

import (
	"bytes"
	"cmp"
	"sync"

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
func (who ClientInfo) modernMeta(version, level string, asks []byte) [4]wire.Edit {
	if len(asks) == 0 {
		asks = noCapabilities
	}
	var logLevel []byte
	if level != "" {
		logLevel = wire.AppendString(nil, level)
	}
	spelled := latestVersion
	if version != wire.Latest {
		spelled = wire.AppendString(nil, version)
	}
	return [...]wire.Edit{
		{Name: wire.MetaProtocolVersion, Value: spelled},
		{Name: wire.MetaClientInfo, Value: who},
		{Name: wire.MetaClientCapabilities, Value: asks},
		{Name: wire.MetaLogLevel, Value: logLevel},
	}
}

// Values that most modern requests have. They are never modified.
var (
	noCapabilities = []byte("{}")
	latestVersion  = wire.AppendString(nil, wire.Latest)
)

// withMeta adds _meta to the params of our own request, such as {"cursor":…}. The legacy era needs
// none.
func (l *Link) withMeta(own []byte, version string) []byte {
	if !wire.Modern(version) {
		return own
	}
	members := l.clientInfo.modernMeta(version, "", nil)
	meta := wire.Rewrite(nil, nil, members[:]...)
	return wire.Rewrite(nil, own, wire.Edit{Name: "_meta", Value: meta})
}

// targetMembers maps methods to the member of the params that names the target.
var targetMembers = map[string]string{
	wire.MethodToolsCall:     "name",
	wire.MethodPromptsGet:    "name",
	wire.MethodResourcesRead: "uri",
}

// sizeOfParams estimates how many bytes appendCallParams appends.
func (who ClientInfo) sizeOfParams(h *Hello, c *switchboard.Call, given []byte) int {
	size := len(given) + len(c.Target)
	if h.Modern() {
		size += len(who) + metaRoom
	}
	return size
}

// appendCallParams appends the params for this server, and returns the client's own progress token. given are the
// client's params, with its answers in later rounds. appendCallParams replaces the name, our and the
// protocol's members of _meta, and the progress token, which becomes id. Everything else stays as
// the client sent it, byte for byte.
func (who ClientInfo) appendCallParams(dst []byte, h *Hello, c *switchboard.Call, given, id []byte) (params, token []byte) {
	member := targetMembers[c.Method]
	had, named := false, false
	start := len(dst)
	scratch := metaBuffers.Get().(*[]byte)
	defer metaBuffers.Put(scratch)
	params = wire.Map(dst, given, func(name, value []byte) []byte {
		switch {
		case string(name) == wire.MemberMeta:
			had = true
			value, token = who.callMeta((*scratch)[:0], h, c, value, id)
			if len(value) > cap(*scratch) && len(value) <= maxMetaBuffer {
				*scratch = value[:0]
			}
		case member != "" && string(name) == member:
			named = true
			return spelledAs(value, c.Target)
		}
		return value
	})
	var missing []wire.Edit
	if !had && h.Modern() {
		meta, _ := who.callMeta(nil, h, c, nil, id)
		missing = append(missing, wire.Edit{Name: wire.MemberMeta, Value: meta})
	}
	if !named && member != "" {
		missing = append(missing, wire.Edit{Name: member, Value: wire.AppendString(nil, c.Target)})
	}
	if missing != nil {
		params = wire.Rewrite(params[:start], bytes.Clone(params[start:]), missing...)
	}
	return params, token
}

// metaBuffers holds memory for the _meta of a call, which is copied into its params at once.
var metaBuffers = sync.Pool{New: func() any { return new(make([]byte, 0, 2*metaRoom)) }}

// maxMetaBuffer limits the memory that metaBuffers keeps of one call.
const maxMetaBuffer = 4 << 10

// spelledAs returns text as a JSON string. It returns value if that is the same string without escapes, as most
// clients send it.
func spelledAs(value []byte, text string) []byte {
	if len(value) == len(text)+2 && value[0] == '"' && string(value[1:len(value)-1]) == text && bytes.IndexByte(value, '\\') < 0 {
		return value
	}
	return wire.AppendString(make([]byte, 0, len(text)+2), text)
}

// metaRoom is room for the members that are added to the _meta of a modern call, without
// clientInfo.
const metaRoom = 256

// callMeta returns the _meta for this server, or nil for none. was is the _meta that the client
// sent. The result may be in the memory of dst.
func (who ClientInfo) callMeta(dst []byte, h *Hello, c *switchboard.Call, was, id []byte) (meta, token []byte) {
	if len(was) == 0 || was[0] != '{' {
		was = nil // no reader would accept it as _meta
	}
	var ours []wire.Edit
	if h.Modern() {
		members := who.modernMeta(h.Version, c.LogLevel, requestCapabilities(&c.Client))
		ours = members[:]
	}
	members, left := 0, len(ours)
	meta = wire.Map(dst, was, func(name, value []byte) []byte {
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
