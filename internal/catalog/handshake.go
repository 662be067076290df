package catalog

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

// handshakeMembers are the members of the capabilities in a handshake that readCapabilities reads.
var handshakeMembers = []string{"tools", blockName, "extensions", "experimental"}

// A handshakeText is what a server says about the capabilities of its tools when it is connected.
type handshakeText struct {
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Beside       json.RawMessage `json:"x-summit-capabilities,omitempty"`
}

// HandshakeStatements returns what a handshake says about the capabilities of tools, as one JSON object; nil if it says nothing of them. The rest of the server's capabilities is
// not in it. It is no valid JSON, or has a member twice, if the server's capabilities are so: then no one can say what they mean.
func HandshakeStatements(capabilities, beside []byte) []byte {
	if capabilities = capabilitiesThatCount(capabilities); capabilities == nil && beside == nil {
		return nil
	}
	var members [][]byte
	if capabilities != nil {
		members = append(members, append([]byte(`"capabilities":`), capabilities...))
	}
	if beside != nil {
		members = append(members, append([]byte(`"`+blockName+`":`), beside...))
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// capabilitiesThatCount returns the members of a capabilities object that are read, or nil if none of them mentions a block.
func capabilitiesThatCount(capabilities []byte) []byte {
	if !mentionsBlock(capabilities) {
		return nil
	}
	clean, err := canonical.Append(nil, capabilities)
	if err != nil {
		return capabilities
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(clean, &members) != nil {
		return nil // it is no object, and is not read
	}
	maps.DeleteFunc(members, func(name string, _ json.RawMessage) bool { return !slices.Contains(handshakeMembers, name) })
	text, err := json.Marshal(members)
	if err != nil || !bytes.Contains(bytes.ToLower(text), []byte("summit")) {
		return nil
	}
	return text
}

// HandshakeParts returns the capabilities, and the member beside them, that HandshakeStatements made statements of. Each is nil if it was.
func HandshakeParts(statements []byte) (capabilities, beside []byte) {
	var h handshakeText
	if json.Unmarshal(statements, &h) != nil {
		return nil, nil
	}
	return h.Capabilities, h.Beside
}

// A HandshakeDifference is a place where two handshakes say different things.
type HandshakeDifference struct {
	Path []string // the names of the members that lead there

	// Tool is the tool that the place is about. "" means all tools of the server if Counts is set, and none otherwise.
	Tool string

	// Counts says that the place can change what a tool is good for: it is in a block, or its name looks like that of one.
	Counts bool

	// Before and After are the blocks there, or nil. They are nil in both if the name only looks like that of a block.
	Before, After json.RawMessage
}

// DiffHandshakes returns where two results of HandshakeStatements differ, sorted by place. ok is false if one of them cannot be read.
func DiffHandshakes(before, after []byte) (all []HandshakeDifference, ok bool) {
	var a, b any
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil {
		return nil, false
	}
	diffStatements(a, b, nil, &all)
	return all, true
}

// diffStatements adds the places at and below the path where two values differ. nil means that there is none, and null is the same.
func diffStatements(a, b any, path []string, all *[]HandshakeDifference) {
	x, isObject := a.(map[string]any)
	y, isToo := b.(map[string]any)
	if isObject {
		a = nil
	}
	if isToo {
		b = nil
	}
	was, is := textOf(a), textOf(b)
	if !bytes.Equal(was, is) {
		*all = append(*all, differenceAt(path, was, is))
	}
	names := maps.Clone(x)
	if names == nil {
		names = map[string]any{}
	}
	maps.Copy(names, y)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		diffStatements(x[name], y[name], append(slices.Clip(path), name), all)
	}
}

func textOf(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil // nothing that Unmarshal returns
	}
	return text
}

// differenceAt returns the difference at a place.
func differenceAt(path []string, before, after json.RawMessage) HandshakeDifference {
	d := HandshakeDifference{Path: path}
	switch {
	case slices.ContainsFunc(path, func(name string) bool { return misspellsBlockName([]byte(name)) }):
		d.Counts = true
	case slices.ContainsFunc(path, func(name string) bool { return isBlockName([]byte(name)) }):
		d.Counts, d.Tool, d.Before, d.After = true, toolAt(path), before, after
	}
	return d
}

// toolAt returns the tool that a place in a block is about, as readHandshake reads it; "" if the place does not name one.
func toolAt(path []string) string {
	at := func(i int) string {
		if i < len(path) {
			return path[i]
		}
		return ""
	}
	block := func(i int) string { // whose members begin at i; see readBlockMember
		if at(i) == "tools" && at(i+1) != "" && at(i+1) != blockName {
			return at(i + 1)
		}
		return at(i)
	}
	switch {
	case at(0) == blockName:
		return block(1)
	case at(1) == "tools":
		return at(2)
	case at(1) == blockName:
		return block(2)
	case at(3) == "tools": // in extensions and experimental
		return at(4)
	}
	return ""
}
