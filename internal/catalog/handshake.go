package catalog

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// handshakeMembers are the members of the capabilities in a handshake that readCapabilities reads.
var handshakeMembers = []string{"tools", blockName, "extensions", "experimental"}

// A handshakeText is what a server says about the capabilities of its tools when it is connected.
type handshakeText struct {
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Beside       json.RawMessage `json:"x-summit-capabilities,omitempty"`
}

// ResolveHandshake writes the list of a server's only tool as an object with a list for that tool, in the capabilities and in the member beside them. So what they mean no longer
// depends on the tools that the server offers, and another meaning is another text. A list that can be about several tools stays, and is a fault. unknown says that there is a
// list, and that the server has not listed a tool yet.
func ResolveHandshake(capabilities, beside []byte, names []string) (resolvedCapabilities, resolvedBeside []byte, unknown bool) {
	own, times := []byte(nil), 0
	if mentionsBlock(capabilities) {
		for name, value := range wire.Members(capabilities) {
			if name == blockName {
				own = value
				times++
			}
		}
	}
	inside := times == 1 && isList(own) // a member that is there twice is a fault
	if !inside && !isList(beside) {
		return capabilities, beside, false
	}
	if len(names) != 1 {
		return capabilities, beside, len(names) == 0
	}
	if inside {
		capabilities = wire.Rewrite(nil, capabilities, wire.Edit{Name: blockName, Value: aboutTool(names[0], own)})
	}
	if isList(beside) {
		beside = aboutTool(names[0], beside)
	}
	return capabilities, beside, false
}

func isList(value []byte) bool {
	value = bytes.TrimLeft(value, " \t\r\n")
	return len(value) > 0 && value[0] == '['
}

func aboutTool(name string, list []byte) []byte {
	return slices.Concat([]byte(`{"tools":{`), wire.AppendString(nil, name), []byte(":"), list, []byte("}}"))
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

// ReplaceStatements returns the capabilities of a server with other statements about its tools, and the member beside them. The rest of the capabilities stays: which extensions
// of the protocol the server has, for instance. statements is a result of HandshakeStatements; nil means none.
func ReplaceStatements(capabilities, statements []byte) (replaced, beside []byte) {
	own, beside := HandshakeParts(statements)
	switch {
	case !json.Valid(capabilities):
		return own, beside
	case own == nil && !mentionsBlock(capabilities):
		return capabilities, beside
	}
	rest := wire.Without(nil, capabilities, func(name string) bool { return slices.Contains(handshakeMembers, name) })
	members := [][]byte{}
	for _, from := range [][]byte{rest, own} {
		for name, value := range wire.Members(from) {
			members = append(members, slices.Concat(wire.AppendString(nil, name), []byte(":"), value))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}")), beside
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

// DiffHandshakes returns where two results of HandshakeStatements differ, sorted by place. ok is false if one of them cannot be read. Each tool whose labels can differ is
// the tool of a place that counts, or there is such a place about all tools.
func DiffHandshakes(before, after []byte) (all []HandshakeDifference, ok bool) {
	var a, b any
	if json.Unmarshal(before, &a) != nil || json.Unmarshal(after, &b) != nil {
		return nil, false
	}
	diffStatements(a, b, nil, &all)
	if fault := cmp.Or(faultOf(after), faultOf(before)); fault != nil && !bytes.Equal(before, after) && !slices.ContainsFunc(all, HandshakeDifference.isAboutAll) {
		all = append(all, HandshakeDifference{Path: []string{cmp.Or(fault.field, "capabilities")}, Counts: true})
	}
	return all, true
}

func (d HandshakeDifference) isAboutAll() bool { return d.Counts && d.Tool == "" }

// faultOf returns the fault for which all tools of a server with these statements are refused, or nil.
func faultOf(statements []byte) *problem {
	capabilities, beside := HandshakeParts(statements)
	return readHandshake(new(tree), capabilities, beside).fault
}

// absent stands for a member that is not there. null is a fault in many places, and no member is none.
type absent struct{}

// diffStatements adds the places at and below the path where two values differ.
func diffStatements(a, b any, path []string, all *[]HandshakeDifference) {
	if was, is := textOf(a), textOf(b); !bytes.Equal(was, is) {
		d, misspelt := differenceAt(path, was, is)
		// An object without members means nothing, but in place of a block.
		if empty := string(was) == "{}" || string(is) == "{}"; !empty || misspelt || d.Counts && d.Tool != "" {
			*all = append(*all, d)
		}
	}
	x, _ := a.(map[string]any)
	y, _ := b.(map[string]any)
	names := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(names)
	member := func(of map[string]any, name string) any {
		if v, ok := of[name]; ok {
			return v
		}
		return absent{}
	}
	for _, name := range slices.Compact(names) {
		diffStatements(member(x, name), member(y, name), append(slices.Clip(path), name), all)
	}
}

// textOf returns the text of a value; nil if there is none, or if it has members.
func textOf(v any) json.RawMessage {
	switch v := v.(type) {
	case absent:
		return nil
	case map[string]any:
		if len(v) > 0 {
			return nil
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil // nothing that Unmarshal returns
	}
	return text
}

// differenceAt returns the difference at a place, and whether a name there is a misspelling of a block's name.
func differenceAt(path []string, before, after json.RawMessage) (d HandshakeDifference, misspelt bool) {
	d.Path = path
	switch {
	case slices.ContainsFunc(path, func(name string) bool { return misspellsBlockName([]byte(name)) }):
		d.Counts, misspelt = true, true
	case slices.ContainsFunc(path, func(name string) bool { return isBlockName([]byte(name)) }):
		d.Counts, d.Tool, d.Before, d.After = true, toolAt(path), before, after
	}
	return d, misspelt
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
		if at(i) == "tools" && at(i+1) != "" {
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
