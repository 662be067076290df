package config

import (
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A FileKind is one kind of file of a configuration. The rows that read the files also generate their schema and
// their part of the reference.
type FileKind struct {
	Name  string // "switchboard", "taxonomy", "overlay", "tenant" or "task"
	Files string // where such files are: "tenants/ID/tasks/*.yaml"
	keys  *document.Keys
}

// FileKinds returns the kinds of files in the order of the reference.
func FileKinds() []FileKind {
	l := &loader{cfg: newConfig()}
	t := &tenantFolder{loader: l, bound: &bound{}, tenantReading: tenantReading{out: &switchboard.Tenant{}}}
	return []FileKind{
		{"switchboard", "switchboard.yaml", mainFile{l}.keys()},
		{"taxonomy", "taxonomy.yaml", (&taxonomyReader{}).keys()},
		{"overlay", "overlays/*.yaml and tenants/ID/overlays/*.yaml", (&overlayReader{loader: l}).keys()},
		{"tenant", "tenants/ID/tenant.yaml", t.fileKeys()},
		{"task", "tenants/ID/tasks/*.yaml", (&taskReader{tenantFolder: t, task: &switchboard.Task{}}).keys()},
	}
}

// Schema returns the JSON Schema of the files. Editors use it to complete and explain keys.
func (k FileKind) Schema() ([]byte, error) {
	return document.JSONSchema("https://github.com/summit-switchboard/switchboard/docs/schema/"+k.Name+".json", k.Files, k.keys)
}

// Reference returns the keys of the files as tables of Markdown.
func (k FileKind) Reference() string {
	return "\n## " + k.Files + "\n" + document.Reference("###", k.keys)
}
