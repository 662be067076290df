package upstream

import (
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

// initializeParams opens a legacy session. We declare nothing: no roots, no
// sampling, no elicitation.
func (who identity) initializeParams() []byte {
	b := wire.AppendString([]byte(`{"protocolVersion":`), wire.LatestLegacy)
	b = append(b, `,"capabilities":{},"clientInfo":`...)
	return append(append(b, who...), '}')
}

// modern are the edits that make a _meta object what each modern request must
// carry.
func (who identity) modern(version, level string) []wire.Edit {
	var logLevel []byte
	if level != "" {
		logLevel = wire.AppendString(nil, level)
	}
	return []wire.Edit{
		{Name: wire.MetaProtocolVersion, Value: wire.AppendString(nil, version)},
		{Name: wire.MetaClientInfo, Value: who},
		{Name: wire.MetaClientCapabilities, Value: []byte("{}")},
		{Name: wire.MetaLogLevel, Value: logLevel},
	}
}

// params completes the params of a request of our own, such as {"cursor":…}.
// Those of the legacy era need nothing.
func (l *link) params(own []byte, version string) []byte {
	if !wire.Modern(version) {
		return own
	}
	meta := wire.Rewrite(nil, nil, l.ours.modern(version, "")...)
	return wire.Rewrite(nil, own, wire.Edit{Name: "_meta", Value: meta})
}

// callParams returns the params of tools/call as this server must get them, and
// the client's own progress token. Changed are the name, what in _meta is
// ours or the protocol's, and the progress token, which becomes id: all else
// is the client's, byte for byte.
func (l *link) callParams(c *switchboard.Call, id []byte) (params, token []byte) {
	was, had := wire.Field(c.Params, "_meta")
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
		edits = append(edits, l.ours.modern(l.hello().version, c.LogLevel)...)
	}
	switch {
	case len(edits) > 0:
		meta = wire.Rewrite(nil, meta, edits...)
	case !had || len(was) > 0 && none(meta) && !none(was):
		meta = nil // what is left of it says nothing
	}
	params = wire.Rewrite(make([]byte, 0, len(c.Params)+len(meta)+len(c.Tool.ID.Name)), c.Params,
		wire.Edit{Name: "name", Value: wire.AppendString(nil, c.Tool.ID.Name)},
		wire.Edit{Name: "_meta", Value: meta})
	return params, token
}

// none reports whether the object has no members.
func none(obj []byte) bool {
	for range wire.Members(obj) {
		return false
	}
	return true
}
