package catalog

import (
	"bytes"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxManifestBytes limits a manifest, and the capabilities object of a handshake.
const MaxManifestBytes = 4 << 20

// A toolLabels is what a manifest or a handshake states about a server's tools.
type toolLabels struct {
	source switchboard.Source
	where  string
	blocks map[string][]block // by tool

	// fault, if set, says that the whole of it cannot be read.
	fault *problem
}

// readManifest parses m, which has the form {"name", "version", "capabilities": {"tools": {<tool>: {"description",
// "x-summit-capabilities"}}}}. It ignores unknown members, unless they are misspellings of these.
func readManifest(t *tree, m *Manifest) toolLabels {
	w := toolLabels{source: switchboard.FromManifest, where: m.Name, blocks: map[string][]block{}}
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
	caps := w.findContainer(t, 0, "", "capabilities")
	if w.fault != nil {
		return w
	}
	tools := w.findContainer(t, caps, "capabilities", "tools")
	if w.fault != nil {
		return w
	}
	for c := t.nodes[tools].first; c != none; c = t.nodes[c].next {
		tool := string(t.nodes[c].name)
		field := "capabilities.tools." + safeText(tool)
		if t.nodes[c].kind != '{' {
			w.blocks[tool] = append(w.blocks[tool], block{problems: []problem{*problemf(field, "is %s; want an object", t.kindName(c))}})
			continue
		}
		w.readTool(t, c, tool, field)
	}
	return w
}

// findContainer returns the object under name, in the object at n. It is a fault if it is missing.
func (w *toolLabels) findContainer(t *tree, n int32, field, name string) int32 {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		if switchboard.Misspells(t.nodes[c].name, name) {
			w.fault = problemf(field, "%s is not a field here; did you mean %q?", safeQuote(string(t.nodes[c].name)), name)
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
		w.fault = problemf(at, "is missing; an empty manifest is treated as a mistake")
	case t.nodes[c].kind != '{':
		w.fault = problemf(at, "is %s; want an object", t.kindName(c))
	}
	return c
}

// readTool adds the blocks in the object at n, which is about the tool.
func (w *toolLabels) readTool(t *tree, n int32, tool, field string) {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		switch name := t.nodes[c].name; {
		case string(name) == blockName:
			w.blocks[tool] = append(w.blocks[tool], readBlock(t, c, field+"."+blockName))
		case switchboard.Misspells(name, blockName):
			w.blocks[tool] = append(w.blocks[tool], misspeltBlock(field, name))
		}
	}
}

// readHandshake parses the capabilities object of initialize or server/discover, and the member with our block's name
// next to it. Most servers do not know our block, so everything that does not have its form is ignored. What it means
// does not depend on the tools that the server offers: these can change after a person has let the handshake in.
func readHandshake(t *tree, capabilities, beside []byte) toolLabels {
	w := toolLabels{source: switchboard.FromHandshake, blocks: map[string][]block{}}
	if mentionsBlock(capabilities) {
		w.readCapabilities(t, capabilities)
	}
	if beside == nil || w.fault != nil {
		return w
	}
	if w.fault = parseBounded(t, beside); w.fault == nil {
		w.readBlockMember(t, 0, blockName)
	}
	return w
}

func (w *toolLabels) readCapabilities(t *tree, raw []byte) {
	if w.fault = parseBounded(t, raw); w.fault != nil {
		return
	}
	if tools := t.memberObject(0, "tools"); tools != none {
		w.readTools(t, tools, "capabilities.tools", false)
	}
	if own := t.member(0, blockName); own != none {
		w.readBlockMember(t, own, "capabilities."+blockName)
	}
	if ext := t.memberObject(0, "extensions"); ext != none {
		for c := t.nodes[ext].first; c != none; c = t.nodes[c].next {
			w.readExtension(t, c, "capabilities.extensions", true)
		}
	}
	if exp := t.memberObject(0, "experimental"); exp != none {
		for c := t.nodes[exp].first; c != none; c = t.nodes[c].next {
			w.readExtension(t, c, "capabilities.experimental", false)
		}
	}
}

// readBlockMember parses the value at n of a member with our block's name. The value is an object of tools, or an object with the
// single member "tools" that is such an object. Anything else is a fault, because a restriction that is not read is worse
// than none. ResolveHandshake writes the list of the only tool as such an object.
func (w *toolLabels) readBlockMember(t *tree, n int32, field string) {
	switch t.nodes[n].kind {
	case '{':
		if tools := t.memberObject(n, "tools"); tools != none {
			if w.fault = checkToolsAlone(t, n, tools, field); w.fault != nil {
				return
			}
			n, field = tools, field+".tools"
		}
		w.readTools(t, n, field, true)
	case '[':
		w.fault = problemf(field, "is a list, which can be about the only tool of a server, and the server does not have one tool; write an object with a list for each tool")
	default:
		w.fault = problemf(field, "is %s; want an object with a list for each tool", t.kindName(n))
	}
}

// checkToolsAlone returns the fault that the object tools in the object at n could as well be about a tool with the name "tools".
func checkToolsAlone(t *tree, n, tools int32, field string) *problem {
	const advice = `; a tool can be meant, or all tools: write {"tools": {TOOL: a list, ...}} and nothing else`
	if t.nodes[tools].next != none || t.nodes[n].first != tools {
		return problemf(field, `has the object "tools" and other members%s`, advice)
	}
	for c := t.nodes[tools].first; c != none; c = t.nodes[c].next {
		if name := t.nodes[c].name; isBlockName(name) || misspellsBlockName(name) {
			return problemf(field+".tools", "has the member %s%s", safeQuote(string(name)), advice)
		}
	}
	return nil
}

// readExtension parses the tools of the extension at n. anyName says whether the extension may have another name than our
// block's.
func (w *toolLabels) readExtension(t *tree, n int32, field string, anyName bool) {
	name := t.nodes[n].name
	ours := isBlockName(name)
	if !ours && misspellsBlockName(name) {
		w.fault = problemf(field, "%s is not a field here; did you mean %q?", safeQuote(string(name)), blockName)
		return
	}
	if tools := t.memberObject(n, "tools"); tools != none && (ours || anyName) {
		w.readTools(t, tools, field+"."+safeText(string(name))+".tools", ours)
	}
}

// readTools parses the object at n, which maps tool names to statements. ours says that the object is only about
// capabilities. Then a list is a block too, and anything else is a fault.
func (w *toolLabels) readTools(t *tree, n int32, field string, ours bool) {
	for c := t.nodes[n].first; c != none; c = t.nodes[c].next {
		tool := string(t.nodes[c].name)
		at := field + "." + safeText(tool)
		switch {
		case t.nodes[c].kind == '{':
			w.readTool(t, c, tool, at)
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

// mentionsBlock reports whether raw may have a member with our block's name, or with a misspelling of it.
func mentionsBlock(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u`)) || bytes.Contains(bytes.ToLower(raw), []byte("summit"))
}
