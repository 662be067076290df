package catalog

import (
	"bytes"
	"errors"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxDefinitionBytes limits one tool's definition. The largest real one that we have seen has 89 KB.
const MaxDefinitionBytes = 512 << 10

// A parsedDefinition is one tool object of tools/list, parsed. Its capabilities have not been checked against a taxonomy, so
// that it can be reused with another one.
type parsedDefinition struct {
	raw    []byte
	name   string             // "" if there is no usable name
	shown  []byte             // raw as package shape repairs it: what is decided about, and what clients get
	digest switchboard.Digest // of shown
	blocks []block
	hints  annotationHints

	structured bool // it has an output schema

	// fault, if set, refuses the tool, regardless of the statements of other sources.
	fault *problem
}

// definitionMembers are the members of a definition that clients read. A member that differs from one of them only in case is
// refused: some clients would read it as that member, and so show another tool than the one that was decided about.
var definitionMembers = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution", "icons", "_meta"}

// readDefinition parses raw. It uses t as working memory, and the result does not refer to t.
func readDefinition(t *tree, raw []byte) *parsedDefinition {
	d := &parsedDefinition{raw: raw}
	if len(raw) > MaxDefinitionBytes {
		d.fault = problemf("", "the definition is %d bytes long; at most %d are allowed", len(raw), MaxDefinitionBytes)
		d.name = nameIn(raw)
		return d
	}
	if d.fault = t.parse(raw, definitionLimits); d.fault != nil {
		d.name = nameIn(raw)
		return d
	}
	if t.nodes[0].kind != '{' {
		d.fault = problemf("", "the definition is %s; want an object", t.kindName(0))
		return d
	}
	name := t.member(0, "name")
	if name == none {
		d.fault = problemf("name", "is missing")
		return d
	}
	text, ok := t.stringValue(name)
	if !ok {
		d.fault = problemf("name", "is %s; want a string", t.kindName(name))
		return d
	}
	d.name = text
	if reason := CheckName(text); reason != "" {
		d.fault = problemf("name", "%s", reason)
		return d
	}
	if d.fault = checkMembers(t); d.fault != nil {
		return d
	}
	if d.fault = d.repair(t); d.fault != nil {
		return d
	}
	if d.fault = checkSchemas(t); d.fault != nil {
		return d
	}
	digest, err := canonical.Digest(d.shown)
	if err != nil {
		d.fault = problemf("", "has no canonical form: %v", err)
		return d
	}
	d.digest = digest
	d.blocks, d.hints = ownBlocks(t), readHints(t)
	d.structured = t.member(0, "outputSchema") != none
	return d
}

// repair sets shown, and parses it into t if it differs from raw. It returns the member that cannot be repaired, or nil.
func (d *parsedDefinition) repair(t *tree) *problem {
	shown, misfit := shape.Repair(switchboard.Tools, d.raw)
	if misfit != nil {
		return &problem{misfit.Member, misfit.Reason}
	}
	d.shown = shown
	if bytes.Equal(shown, d.raw) {
		return nil
	}
	return t.parse(shown, definitionLimits)
}

// CheckDefinition returns why a tool's object of tools/list cannot be used, or nil. It looks at the object alone, as the catalog
// does with the tools of servers.
func CheckDefinition(raw []byte) error {
	if d := readDefinition(&tree{}, raw); d.fault != nil {
		return errors.New(strings.TrimPrefix(d.fault.field+": "+d.fault.reason, ": "))
	}
	return nil
}

// nameIn returns the name in a definition that could not be parsed, so that the fault can name the tool.
func nameIn(raw []byte) string {
	value, _ := wire.Field(raw, "name")
	name, _ := wire.String(value)
	return name
}

func checkMembers(t *tree) *problem {
	for c := t.nodes[0].first; c != none; c = t.nodes[c].next {
		name := t.nodes[c].name
		for _, k := range definitionMembers {
			if len(name) >= len(k) && string(name) != k && strings.EqualFold(string(name), k) {
				return problemf("", "%s is not a field here; did you mean %q?", safeQuote(string(name)), k)
			}
		}
	}
	return nil
}

// checkSchemas checks the schemas of a definition that has been repaired, so that it has an input schema, and its schemas are
// objects.
func checkSchemas(t *tree) *problem {
	if p := checkSchema(t, t.member(0, "inputSchema"), "inputSchema", true); p != nil {
		return p
	}
	if out := t.member(0, "outputSchema"); out != none {
		return checkSchema(t, out, "outputSchema", false)
	}
	return nil
}

// ownBlocks returns the blocks in the definition itself: the top-level member, and the members of _meta with or without
// a prefix.
func ownBlocks(t *tree) (blocks []block) {
	for c := t.nodes[0].first; c != none; c = t.nodes[c].next {
		name := t.nodes[c].name
		switch {
		case string(name) == blockName:
			blocks = append(blocks, readBlock(t, c, blockName))
		case switchboard.Misspells(name, blockName):
			blocks = append(blocks, misspeltBlock("", name))
		}
	}
	if hints := t.memberObject(0, "annotations"); hints != none {
		for c := t.nodes[hints].first; c != none; c = t.nodes[c].next {
			name := t.nodes[c].name
			switch {
			case string(name) == blockName:
				blocks = append(blocks, readBlock(t, c, "annotations."+blockName))
			case switchboard.Misspells(name, blockName):
				blocks = append(blocks, misspeltBlock("annotations", name))
			}
		}
	}
	if meta := t.memberObject(0, "_meta"); meta != none {
		for c := t.nodes[meta].first; c != none; c = t.nodes[c].next {
			name := t.nodes[c].name
			switch {
			case isBlockName(name):
				blocks = append(blocks, readBlock(t, c, "_meta."+safeText(string(name))))
			case misspellsBlockName(name):
				blocks = append(blocks, misspeltBlock("_meta", name))
			}
		}
	}
	return blocks
}

// misspeltBlock returns a block with the fault that its name is misspelt.
func misspeltBlock(field string, name []byte) block {
	return block{problems: []problem{*problemf(field, "%s is not a field here; did you mean %q?", safeQuote(string(name)), blockName)}}
}

// isBlockName reports whether name is the name of our block, either alone or after a reverse-DNS prefix and a slash,
// which is the protocol's form for keys of _meta.
func isBlockName(name []byte) bool {
	i := bytes.LastIndexByte(name, '/')
	if string(name[i+1:]) != blockName {
		return false
	}
	return i < 0 || isPrefix(name[:i])
}

// misspellsBlockName reports whether name is a misspelling of our block's name.
func misspellsBlockName(name []byte) bool {
	local := name[bytes.LastIndexByte(name, '/')+1:]
	return switchboard.Misspells(local, blockName) || string(local) == blockName && !isBlockName(name)
}

// isPrefix reports whether p consists of labels separated by dots, where each label begins with a letter and ends with
// a letter or digit.
func isPrefix(p []byte) bool {
	for label := range bytes.SplitSeq(p, []byte(".")) {
		if len(label) == 0 || !isLetter(label[0]) || label[len(label)-1] == '-' {
			return false
		}
		for _, b := range label {
			if !isLetter(b) && (b < '0' || b > '9') && b != '-' {
				return false
			}
		}
	}
	return true
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }
