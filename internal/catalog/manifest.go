package catalog

import (
	"bytes"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxManifestBytes bounds a manifest, and the capabilities object of a
// handshake.
const MaxManifestBytes = 4 << 20

// A word is what a manifest or a handshake says of a server's tools.
type word struct {
	source switchboard.Source
	where  string
	blocks map[string][]block // by tool

	// fault, if set, means that the whole cannot be read.
	fault *problem
}

// readManifest reads m, of the form {"name", "version", "capabilities":
// {"tools": {<tool>: {"description", "x-summit-capabilities"}}}}. Members that
// it does not know are left alone, unless they are almost one of these.
func readManifest(t *tree, m *Manifest) word {
	w := word{source: switchboard.FromManifest, where: m.Name, blocks: map[string][]block{}}
	if m.Fault != "" {
		w.fault = problemf("", "%s", m.Fault)
		return w
	}
	if w.fault = parseBounded(t, m.Data); w.fault != nil {
		return w
	}
	if t.nodes[0].kind != '{' {
		w.fault = problemf("", "is %s; want an object", t.kindName(0))
		return w
	}
	for _, name := range []string{"name", "version"} {
		if n := t.member(0, name); n != none && t.nodes[n].kind != '"' {
			w.fault = problemf(name, "is %s; want a string", t.kindName(n))
			return w
		}
	}
	caps := w.container(t, 0, "", "capabilities")
	if w.fault != nil {
		return w
	}
	tools := w.container(t, caps, "capabilities", "tools")
	if w.fault != nil {
		return w
	}
	for c := t.nodes[tools].first; c != none; c = t.nodes[c].next {
		tool := string(t.nodes[c].name)
		field := "capabilities.tools." + shown(tool)
		if t.nodes[c].kind != '{' {
			w.blocks[tool] = append(w.blocks[tool], block{problems: []problem{*problemf(field, "is %s; want an object", t.kindName(c))}})
			continue
		}
		w.tool(t, c, tool, field)
	}
	return w
}

// container finds the object that must be there under name, in the object at n.
func (w *word) container(t *tree, n int32, field, name string) int32 {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if almost(t.nodes[c].name, name) {
			w.fault = problemf(field, "%s is not a field here; did you mean %q?", quoted(string(t.nodes[c].name)), name)
			return none
		}
	}
	at := name
	if field != "" {
		at = field + "." + name
	}
	c := t.member(n, name)
	switch {
	case c == none:
		w.fault = problemf(at, "is missing; a manifest that says nothing is taken for a mistake")
	case t.nodes[c].kind != '{':
		w.fault = problemf(at, "is %s; want an object", t.kindName(c))
	}
	return c
}

// tool notes the blocks that stand in the object at n, which is about the tool.
func (w *word) tool(t *tree, n int32, tool, field string) {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		switch name := t.nodes[c].name; {
		case string(name) == blockName:
			w.blocks[tool] = append(w.blocks[tool], readBlock(t, c, field+"."+blockName))
		case almost(name, blockName):
			w.blocks[tool] = append(w.blocks[tool], misnamed(field, name))
		}
	}
}

// readHandshake reads the capabilities object of initialize or server/discover, and what stands
// beside it under our name. Most servers have never heard of us: whatever has not our form is left
// alone. names are the server's tools: a list right under our name can only be about one.
func readHandshake(t *tree, capabilities, beside []byte, names []string) word {
	w := word{source: switchboard.FromHandshake, blocks: map[string][]block{}}
	if mentionsBlock(capabilities) {
		w.handshake(t, capabilities, names)
	}
	if beside == nil || w.fault != nil {
		return w
	}
	if w.fault = parseBounded(t, beside); w.fault == nil {
		w.whole(t, 0, blockName, names)
	}
	return w
}

func (w *word) handshake(t *tree, raw []byte, names []string) {
	if w.fault = parseBounded(t, raw); w.fault != nil {
		return
	}
	if tools := t.object(0, "tools"); tools != none {
		w.tools(t, tools, "capabilities.tools", false)
	}
	if own := t.member(0, blockName); own != none {
		w.whole(t, own, "capabilities."+blockName, names)
	}
	if ext := t.object(0, "extensions"); ext != none {
		for c := t.nodes[ext].first; c != none; c = t.nodes[c].next {
			w.extension(t, c, "capabilities.extensions", true)
		}
	}
	if exp := t.object(0, "experimental"); exp != none {
		for c := t.nodes[exp].first; c != none; c = t.nodes[c].next {
			w.extension(t, c, "capabilities.experimental", false)
		}
	}
}

// whole reads what stands at n right under our name: an object of tools, or of one member tools that is such
// an object, or the block of the only tool. Whatever else it is, it is a fault: a restriction that nobody
// reads is worse than none.
func (w *word) whole(t *tree, n int32, field string, names []string) {
	switch t.nodes[n].kind {
	case '{':
		if tools := t.object(n, "tools"); tools != none && !slices.Contains(names, "tools") {
			n, field = tools, field+".tools"
		}
		w.tools(t, n, field, true)
	case '[':
		if len(names) == 1 {
			w.blocks[names[0]] = append(w.blocks[names[0]], readBlock(t, n, field))
			return
		}
		w.fault = problemf(field, "is a list, which can be about one tool only, and the server has %d; write an object with a list for each tool", len(names))
	default:
		w.fault = problemf(field, "is %s; want an object with a list for each tool", t.kindName(n))
	}
}

// extension reads the tools of the extension at n; anyName says whether it may
// have another name than ours.
func (w *word) extension(t *tree, n int32, field string, anyName bool) {
	name := t.nodes[n].name
	ours := isBlockName(name)
	if !ours && almostBlockName(name) {
		w.fault = problemf(field, "%s is not a field here; did you mean %q?", quoted(string(name)), blockName)
		return
	}
	if tools := t.object(n, "tools"); tools != none && (ours || anyName) {
		w.tools(t, tools, field+"."+shown(string(name))+".tools", ours)
	}
}

// tools reads the object at n of tools by name. ours says that it is about
// nothing but capabilities, so that a list is a block too, and anything else is
// a fault.
func (w *word) tools(t *tree, n int32, field string, ours bool) {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		tool := string(t.nodes[c].name)
		at := field + "." + shown(tool)
		switch {
		case t.nodes[c].kind == '{':
			w.tool(t, c, tool, at)
		case ours:
			w.blocks[tool] = append(w.blocks[tool], readBlock(t, c, at))
		}
	}
}

func parseBounded(t *tree, raw []byte) *problem {
	if len(raw) > MaxManifestBytes {
		return problemf("", "is %d bytes long; at most %d are allowed", len(raw), MaxManifestBytes)
	}
	return t.parse(raw, manifestLimits)
}

// mentionsBlock reports whether raw may have a member with our name, or one
// that is almost it.
func mentionsBlock(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u`)) || bytes.Contains(bytes.ToLower(raw), []byte("summit"))
}
