package config

import (
	"net/url"
	"path/filepath"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/endpoint"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const maxRegistries = 8

// listReader is the state of reading the registries of MCP servers.
type listReader struct {
	*loader
	row  switchboard.ServerRegistry
	seen map[string]document.Value
}

// read reads the registries.
func (f *listReader) read(v document.Value) {
	f.seen = map[string]document.Value{}
	for _, item := range v.ReadList(maxRegistries) {
		f.row = switchboard.ServerRegistry{}
		m, ok := item.Open(f.keys())
		if !ok {
			continue
		}
		m.Read()
		switch file, address := m.HasKey("file"), m.HasKey("url"); {
		case file && address:
			m.Fault("a registry has either a file or a url; take one away, or write two registries")
		case !file && !address && !m.Mistyped["file"] && !m.Mistyped["url"]:
			m.Fault("say where the registry is: file: registry.json, or url: https://registry.example/")
		}
		f.cfg.ServerRegistries = append(f.cfg.ServerRegistries, f.row)
	}
}

// keys are the keys of a registry.
func (f *listReader) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "id", Type: document.Text("an id", f.readID), Required: "give it an id, such as official", Doc: "The name of the registry, as people see it beside what it lists."},
			{Key: "file", Type: document.Text("a path", f.readPath), Doc: "A file with the registry's list, one server.json, or an array of them. It is read when somebody looks for a server."},
			{Key: "url", Type: document.Text("an https address", f.readAddress), Doc: "The address of a registry that speaks the registry API v0.1. What it lists is read from `/v0.1/servers` below the address. Only a registry on this machine may have http."},
		},
		Hints: map[string]string{"name": `write "id"`, "path": `write "file"`, "address": `write "url"`, "headers": "registries are read without credentials", "token": "registries are read without credentials"},
	}
}

func (f *listReader) readID(v document.Value, s string) {
	if err := switchboard.CheckID(s); err != nil {
		v.Fault("%v", err)
		return
	}
	if at, again := f.seen[s]; again {
		v.Fault("%s is the id of another registry, at line %d", v.Shown(), at.Line)
		return
	}
	f.seen[s], f.row.ID = v, s
}

func (f *listReader) readPath(v document.Value, s string) {
	switch {
	case strings.Contains(s, "${"):
		v.Fault("${…} is not read here; write a path")
		return
	case strings.Contains(s, "://"):
		v.Fault("%s: want a file; an address stands in url", v.Shown())
		return
	case !filepath.IsAbs(s):
		name, err := localPath(s)
		if err != nil {
			v.Fault("%s: %v", v.Shown(), err)
			return
		}
		s = name
	}
	f.row.File = filepath.ToSlash(filepath.Clean(s))
}

// readAddress reads the address of a registry. Faults repeat nothing of it: a mistaken one may hold a password.
func (f *listReader) readAddress(v document.Value, s string) {
	v.Hidden = true
	why := endpoint.BadURL(s)
	u, err := url.Parse(s)
	switch {
	case err != nil || why != "":
		if strings.Contains(why, "headers") {
			why = "an address must not hold a user, a password or another secret; registries are read without credentials"
		}
		v.Fault("%s", why)
	case u.Scheme != "https" && !isLoopback(u.Hostname()):
		v.Fault("want an https address; only a registry on this machine may have http")
	case strings.Contains(s, "?"):
		v.Fault("want the address below which /v0.1/servers is, without a query")
	default:
		warnLinkLocal(v, s)
		f.row.URL = strings.TrimRight(s, "/")
	}
}
