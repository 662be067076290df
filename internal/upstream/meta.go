package upstream

import (
	"cmp"
	"strings"

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
	was, had := wire.Field(given, "_meta")
	if had && (len(was) == 0 || was[0] != '{') {
		was = nil // no reader could take it for _meta
	}
	token, _ = wire.Field(was, wire.MetaProgressToken)
	meta := wire.Without(nil, was, func(name string) bool {
		return strings.HasPrefix(name, wire.MetaPrefix) || strings.HasPrefix(name, wire.MetaOurPrefix)
	})
	var edits []wire.Edit
	if token != nil {
		edits = append(edits, wire.Edit{Name: wire.MetaProgressToken, Value: id})
	}
	if l.hello().modern() {
		edits = append(edits, l.ours.modern(l.hello().version, c.LogLevel, declared(&c.Client))...)
	}
	switch {
	case len(edits) > 0:
		meta = wire.Rewrite(nil, meta, edits...)
	case !had || len(was) > 0 && none(meta) && !none(was):
		meta = nil // what is left of it says nothing
	}
	changes := []wire.Edit{{Name: "_meta", Value: meta}}
	if member := targets[c.Method]; member != "" {
		changes = append(changes, wire.Edit{Name: member, Value: wire.AppendString(nil, c.Target)})
	}
	return wire.Rewrite(make([]byte, 0, len(given)+len(meta)+len(c.Target)), given, changes...), token
}

// none reports whether the object has no members.
func none(obj []byte) bool {
	for range wire.Members(obj) {
		return false
	}
	return true
}
