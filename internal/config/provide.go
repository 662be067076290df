package config

import (
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An overlayReading is what was read from one file of the operator's overlays.
type overlayReading struct {
	tools    map[switchboard.ToolID]switchboard.Overlay
	provides []capability.ProviderRow
}

// providerReader is the state of reading one element of provides.
type providerReader struct {
	*overlayReader
	row capability.ProviderRow
}

// providesType is the type of provides.
func (r *overlayReader) providesType() document.Type {
	return document.MapList("a list of maps", func() *document.Keys { return (&providerReader{overlayReader: r}).keys() }, r.readProvides)
}

// keys are the keys of an element of provides.
func (p *providerReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{
				Key: "capability", Type: document.Text("a named capability", func(v document.Value, _ string) { p.row.Ref = readRef(p.loader, v) }),
				Required: "name it with its range of versions, such as io.fs.read@^1", Doc: "The named capability and the versions of it that the server provides, such as `io.fs.read@^1`.",
			},
			{
				Key: "tools", Type: document.Named("a map from the contract's tool to the server's", "TOOL", func() *document.Keys {
					return (&equivalentReader{toolReader: &toolReader{overlayReader: p.overlayReader}}).providedKeys()
				}, p.readTools), Required: "name the server's tool for each tool of the contract, such as {read_file: read_text_file}",
				Doc: "For each tool of the contract the tool of the server: its name, or a map that also says how arguments are translated.",
			},
		},
		Hints: map[string]string{"version": "write it with the capability: io.fs.read@^1", "map": "it belongs to one of the tools", "constants": "they belong to one of the tools", "defaults": "they belong to one of the tools"},
	}
}

// readProvides reads provides.
func (r *overlayReader) readProvides(v document.Value) {
	if r.source == switchboard.FromTenantOverlay {
		v.Fault("only the operator's overlays may say who provides a capability; remove it")
		return
	}
	if v.Kind == document.KindList && len(v.Items) == 0 {
		v.Fault("the list is empty; name a capability, or remove the key")
	}
	for _, item := range v.ReadList(document.MaxItems) {
		p := &providerReader{overlayReader: r, row: capability.ProviderRow{
			Server: r.server, Tools: map[string]*switchboard.DeclaredEquivalent{}, Position: fmt.Sprintf("%s:%d:%d", item.File, item.Line, item.Column),
		}}
		if m, ok := item.Open(p.keys()); ok {
			m.Read()
			r.provides = append(r.provides, p.row)
		}
	}
}

// readRef reads a named capability, perhaps with a version or a range.
func readRef(l *loader, v document.Value) capability.Ref {
	s, ok := v.ReadText()
	if !ok {
		return capability.Ref{}
	}
	ref, err := capability.ParseRef(s)
	if err != nil {
		v.Fault("%v", err)
		return ref
	}
	if isCapability(l, v, ref.ID) && len(l.cfg.Registry.Versions(ref.ID)) > 0 && l.cfg.Registry.Find(ref, nil) == nil && !l.capabilitiesUnknown {
		v.Fault("no active version of %s is in the range %s", document.Shown(ref.ID), ref.Range)
	}
	return ref
}

// isCapability reports whether a file in capabilities/ describes the id. If not, that is a fault, unless some file could not be read.
func isCapability(l *loader, v document.Value, id string) bool {
	if l.capabilitiesUnknown || len(l.cfg.Registry.Versions(id)) > 0 {
		return true
	}
	v.Fault("no file in capabilities/ describes %s%s", document.Shown(id), document.Suggestion(id, "capabilities", l.cfg.Registry.IDs()))
	return false
}

func (p *providerReader) readTools(v document.Value) {
	for _, e := range v.ReadNamed(document.MaxItems, true) {
		d := &switchboard.DeclaredEquivalent{Position: fmt.Sprintf("%s:%d:%d", e.Key.File, e.Key.Line, e.Key.Column)}
		p.row.Tools[e.Name] = d
		r := &equivalentReader{toolReader: &toolReader{overlayReader: p.overlayReader}}
		if e.Value.Kind != document.KindMap {
			d.Tool = r.readOwnTool(e.Value)
			continue
		}
		if m, ok := e.Value.WithContext("tool %s: ", document.Shown(e.Name)).Open(r.providedKeys()); ok {
			m.Read()
			at := d.Position
			*d = r.declared
			d.Position = at
		}
	}
}

// providedKeys are the keys of a tool of provides.
func (r *equivalentReader) providedKeys() *document.Keys {
	keys := r.keys()
	keys.Rows[0] = document.Row{
		Key: "tool", Type: document.Custom("a tool of the server", document.Schema{"type": "string"}, func(v document.Value) { r.declared.Tool = r.readOwnTool(v) }),
		Required: "name the server's own tool", Doc: "The server's own tool.",
	}
	return keys
}

// readOwnTool reads the name of a tool of the file's server.
func (r *overlayReader) readOwnTool(v document.Value) switchboard.ToolID {
	s, ok := v.ReadText()
	if why := badToolName(s); ok && why != "" {
		v.Fault("%s: %s", v.Shown(), why)
	}
	return switchboard.ToolID{Server: r.server, Name: s}
}
