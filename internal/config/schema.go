package config

import (
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A FileKind is one kind of file of a configuration. The rows that read the files also generate their schema and
// their part of the reference.
type FileKind struct {
	Name    string // such as "switchboard" or "task"
	Files   string // where such files are: "tenants/ID/tasks/*.yaml"
	content document.Type
}

// FileKinds returns the kinds of files in the order of the reference.
func FileKinds() []FileKind {
	l := &loader{cfg: newConfig(), vocabulary: &vocabulary{}}
	r := &registryReader{loader: l}
	t := &tenantFolder{loader: l, bound: &bound{}, tenantReading: tenantReading{out: &switchboard.Tenant{}}}
	return []FileKind{
		{"switchboard", "switchboard.yaml", document.Map(mainFile{l}.keys, nil)},
		{"taxonomy", "taxonomy.yaml", document.Map((&taxonomyReader{}).keys, nil)},
		{"capability", "capabilities/*.yaml", document.Map((&versionReader{registryReader: r, version: &capability.ContractVersion{}}).keys, nil)},
		{"atoms", "capabilities/atoms.yaml", document.Named("a map from id to atom", "ID", (&atomReader{registryReader: r, atom: &capability.Atom{}}).keys, nil)},
		{"boundaries", "capabilities/boundaries.yaml", document.MapList("a list of maps", (&boundaryReader{registryReader: r}).keys, nil)},
		{"parties", "capabilities/parties.yaml", document.MapList("a list of maps", func() *document.Keys { return r.partyKeys(&capability.Party{}) }, nil)},
		{"overlay", "overlays/*.yaml and tenants/ID/overlays/*.yaml", document.Map((&overlayReader{loader: l}).keys, nil)},
		{"tenant", "tenants/ID/tenant.yaml", document.Map(t.fileKeys, nil)},
		{"task", "tenants/ID/tasks/*.yaml", document.Map((&taskReader{tenantFolder: t, task: &switchboard.Task{}}).keys, nil)},
	}
}

// Schema returns the JSON Schema of the files. Editors use it to complete and explain keys.
func (k FileKind) Schema() ([]byte, error) {
	return document.JSONSchema("https://github.com/summit-switchboard/switchboard/docs/schema/"+k.Name+".json", k.Files, k.content)
}

// Reference returns the keys of the files as tables of Markdown.
func (k FileKind) Reference() string {
	return "\n## " + k.Files + "\n" + document.Reference("###", k.content)
}

// Paths returns the paths of all keys of the files, as in the reference.
func (k FileKind) Paths() []string { return document.Paths(k.content) }

// ChangedPaths returns the parts that differ between two texts of a file; nil means that there is no file. ok is false if a text cannot be read.
func (k FileKind) ChangedPaths(before, after []byte) (changed []document.PathChange, ok bool) {
	read := func(text []byte) (*document.Node, bool) {
		if text == nil {
			return nil, true
		}
		v, ok := document.ReadYAML(k.Name, text, &document.Sink{})
		return &v.Node, ok
	}
	a, ok := read(before)
	b, ok2 := read(after)
	if !ok || !ok2 {
		return nil, false
	}
	return document.ChangedPaths(k.content, a, b), true
}
