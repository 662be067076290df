package catalog

import (
	"bytes"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxDefinitionBytes bounds one tool's definition. The largest real one that
// we have seen has 89 KB.
const MaxDefinitionBytes = 512 << 10

// A definition is one tool object of tools/list, read once. What it says of
// capabilities is not yet held against a taxonomy, so that it can be used again
// under another.
type definition struct {
	raw    []byte
	name   string // "" where there is none that can be used
	digest switchboard.Digest
	blocks []block
	hints  hints

	structured bool // there is an output schema

	// fault, if set, refuses the tool whatever anybody says of it.
	fault *problem
}

// known are the members of a definition that clients read. One that is like
// these but for its case is refused: some clients would take it for them, and
// show another tool than was decided on.
var known = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution", "icons", "_meta"}

// readDefinition reads raw. It uses t for its work and keeps nothing of it.
func readDefinition(t *tree, raw []byte) *definition {
	d := &definition{raw: raw}
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
	text, ok := t.text(name)
	if !ok {
		d.fault = problemf("name", "is %s; want a string", t.kindName(name))
		return d
	}
	d.name = text
	if reason := checkName(text); reason != "" {
		d.fault = problemf("name", "%s", reason)
		return d
	}
	if d.fault = checkMembers(t); d.fault != nil {
		return d
	}
	if d.fault = checkSchemas(t); d.fault != nil {
		return d
	}
	digest, err := canonical.Digest(raw)
	if err != nil {
		d.fault = problemf("", "has no canonical form: %v", err)
		return d
	}
	d.digest = digest
	d.blocks, d.hints = ownBlocks(t), readHints(t)
	d.structured = t.member(0, "outputSchema") != none
	return d
}

// nameIn says whose fault raw is, where it could not be read.
func nameIn(raw []byte) string {
	value, _ := wire.Field(raw, "name")
	name, _ := wire.String(value)
	return name
}

func checkMembers(t *tree) *problem {
	for c := t.nodes[0].first; c != none; c = t.nodes[c].next {
		name := t.nodes[c].name
		for _, k := range known {
			if len(name) >= len(k) && string(name) != k && strings.EqualFold(string(name), k) {
				return problemf("", "%s is not a field here; did you mean %q?", quoted(string(name)), k)
			}
		}
	}
	return nil
}

func checkSchemas(t *tree) *problem {
	in := t.member(0, "inputSchema")
	if in == none {
		return problemf("inputSchema", "is missing")
	}
	if p := checkSchema(t, in, "inputSchema", true); p != nil {
		return p
	}
	if out := t.member(0, "outputSchema"); out != none {
		return checkSchema(t, out, "outputSchema", false)
	}
	return nil
}

// ownBlocks finds what the definition itself says: the bare field, and the
// members of _meta with or without a prefix.
func ownBlocks(t *tree) (blocks []block) {
	for c := t.nodes[0].first; c != none; c = t.nodes[c].next {
		name := t.nodes[c].name
		switch {
		case string(name) == blockName:
			blocks = append(blocks, readBlock(t, c, blockName))
		case almost(name, blockName):
			blocks = append(blocks, misnamed("", name))
		}
	}
	if hints := t.object(0, "annotations"); hints != none {
		for c := t.nodes[hints].first; c != none; c = t.nodes[c].next {
			name := t.nodes[c].name
			switch {
			case string(name) == blockName:
				blocks = append(blocks, readBlock(t, c, "annotations."+blockName))
			case almost(name, blockName):
				blocks = append(blocks, misnamed("annotations", name))
			}
		}
	}
	if meta := t.object(0, "_meta"); meta != none {
		for c := t.nodes[meta].first; c != none; c = t.nodes[c].next {
			name := t.nodes[c].name
			switch {
			case isBlockName(name):
				blocks = append(blocks, readBlock(t, c, "_meta."+shown(string(name))))
			case almostBlockName(name):
				blocks = append(blocks, misnamed("_meta", name))
			}
		}
	}
	return blocks
}

// misnamed is the block that a name was meant for which is not ours.
func misnamed(field string, name []byte) block {
	return block{problems: []problem{*problemf(field, "%s is not a field here; did you mean %q?", quoted(string(name)), blockName)}}
}

// isBlockName reports whether name is ours, plain or after a reverse-DNS
// prefix and a slash, as the protocol has it for _meta.
func isBlockName(name []byte) bool {
	i := bytes.LastIndexByte(name, '/')
	if string(name[i+1:]) != blockName {
		return false
	}
	return i < 0 || isPrefix(name[:i])
}

// almostBlockName reports whether name is meant to be ours and is not.
func almostBlockName(name []byte) bool {
	local := name[bytes.LastIndexByte(name, '/')+1:]
	return almost(local, blockName) || string(local) == blockName && !isBlockName(name)
}

// isPrefix reports whether p is labels parted by dots, each beginning with a
// letter and ending with a letter or digit.
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
