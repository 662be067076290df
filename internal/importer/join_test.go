package importer_test

import (
	"fmt"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// Each archive holds another program's file and a configuration, and the result of Join.
func TestServersJoinAConfiguration(t *testing.T) {
	configtest.Archives(t, "testdata/join/*.txtar", func(t *testing.T, ar *txtar.Archive) {
		fsys := fstest.MapFS{}
		for _, f := range ar.Files {
			fsys[f.Name] = &fstest.MapFile{Data: f.Data, Mode: 0o600}
		}
		opts := config.Options{FS: fsys, Env: configtest.Env}
		before := fsys["switchboard.yaml"].Data
		c, err := config.Load(t.Context(), "switchboard.yaml", opts)
		if err != nil {
			t.Fatal(err)
		}
		join := func(text []byte, servers []switchboard.Server) ([]edit.Server, []importer.SecretFile, importer.Mapping) {
			places, err := edit.ListServers("switchboard.yaml", text)
			if err != nil {
				t.Fatal(err)
			}
			have := importer.Present{Servers: servers, HasSecret: func(name string) bool { return fsys[name] != nil }}
			for _, p := range places {
				have.IDs = append(have.IDs, p.ID)
			}
			rows, secrets, mapping, err := importer.Join("mcp.json", opts, have)
			if err != nil {
				t.Fatal(err)
			}
			return rows, secrets, mapping
		}
		rows, secrets, mapping := join(before, c.Servers)
		text, err := edit.AddServers("switchboard.yaml", before, rows)
		if err != nil {
			t.Fatal(err)
		}
		got := string(text)
		for _, m := range mapping {
			got += fmt.Sprintf("%q is %q, present %v %q\n", m.Name, m.ID, m.Present, m.Notes)
		}
		for _, s := range secrets {
			got += fmt.Sprintf("%s: %v\n", s.Name, s)
			fsys[s.Name] = &fstest.MapFile{Data: []byte(s.Content.Reveal()), Mode: 0o600}
		}
		configtest.Golden(t, ar, "want join", got)

		// Once they have joined, they are all present.
		changed := opts
		changed.Text = text
		if c, err = config.Load(t.Context(), "switchboard.yaml", changed); err != nil {
			t.Fatal(err)
		}
		if rows, secrets, mapping := join(text, c.Servers); len(rows) > 0 || len(secrets) > 0 {
			t.Errorf("the second time %v joins: %v", rows, mapping)
		}
	})
}

// If Switchboard had its own address among its servers, it would call itself without end.
func TestTheAddressOfSwitchboardItselfIsLeftOut(t *testing.T) {
	for url, itself := range map[string]bool{
		"http://127.0.0.1:7420/mcp":              true,
		"http://localhost:7420/mcp/tasks/review": true,
		"http://[::1]:7420/mcp":                  true,
		"http://127.0.0.1:7421/mcp":              false,
		"http://127.0.0.1:7420/mcpserver":        false,
		"http://10.0.0.1:7420/mcp":               false,
		"https://example.com/mcp":                false,
	} {
		opts := config.Options{Env: configtest.Env, Text: []byte(`{"mcpServers": {"sb": {"type": "http", "url": "` + url + `"}}}`)}
		rows, _, mapping, err := importer.Join("mcp.json", opts, importer.Present{Listen: "127.0.0.1:7420"})
		if left := len(rows) == 0 && len(mapping) == 1 && len(mapping[0].Notes) == 1 && mapping[0].Notes[0] == "left out: it is Switchboard itself"; left != itself || !itself && err != nil {
			t.Errorf("%s: %v, %+v, %v", url, rows, mapping, err)
		}
	}
}

// A server that differs in a secret or in its folder is another server: if it counted as present, its secret would be lost.
func TestAServerIsPresentOnlyIfAllOfItIsTheSame(t *testing.T) {
	secret := func(name, value string) map[string]switchboard.Secret {
		return map[string]switchboard.Secret{name: switchboard.NewSecret(value)}
	}
	have := importer.Present{Servers: []switchboard.Server{
		{ID: "program", Transport: switchboard.TransportStdio, Command: []string{"x", "y"}, Dir: "/srv", Env: secret("K", "v")},
		{ID: "address", Transport: switchboard.TransportHTTP, URL: "https://h", Headers: secret("X-Key", "v")},
	}}
	for entry, present := range map[string]bool{
		`{"command": "x", "args": ["y"], "cwd": "/srv", "env": {"K": "v"}}`:  true,
		`{"command": "x", "args": ["z"], "cwd": "/srv", "env": {"K": "v"}}`:  false,
		`{"command": "x", "args": ["y"], "cwd": "/else", "env": {"K": "v"}}`: false,
		`{"command": "x", "args": ["y"], "cwd": "/srv", "env": {"K": "w"}}`:  false,
		`{"command": "x", "args": ["y"], "cwd": "/srv"}`:                     false,
		`{"url": "https://h", "headers": {"x-key": "v"}}`:                    true,
		`{"url": "https://h", "headers": {"X-Key": "w"}}`:                    false,
		`{"url": "https://h"}`:                            false,
		`{"url": "https://i", "headers": {"X-Key": "v"}}`: false,
	} {
		_, _, mapping, err := importer.Join("mcp.json", config.Options{Env: configtest.Env, Text: []byte(`{"mcpServers": {"a": ` + entry + `}}`)}, have)
		if err != nil || len(mapping) != 1 || mapping[0].Present != present {
			t.Errorf("%s: %+v, %v", entry, mapping, err)
		}
	}
}
