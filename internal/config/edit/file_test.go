package edit_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// addRow is a change that adds the row.
func addRow(row edit.Server) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) {
		return edit.AddServers("switchboard.yaml", text, []edit.Server{row})
	}
}

func removeRow(id switchboard.ServerID) func([]byte) ([]byte, error) {
	return func(text []byte) ([]byte, error) { return edit.RemoveServers("switchboard.yaml", text, id) }
}

// Each edit of the file is written, or refused with the faults that it would bring and no others.
func TestAnEditThatBringsAFaultIsNotWritten(t *testing.T) {
	const good = "servers:\n  a: {transport: stdio, command: [a]}\n"
	for name, c := range map[string]struct {
		before, beside string // the file, and tenants/default/tenant.yaml
		change         func([]byte) ([]byte, error)
		want           []string // in the faults; none if the edit is written
	}{
		"a good row":                 {before: good, change: addRow(files)},
		"a new file":                 {change: addRow(files)},
		"a row whose secret is gone": {before: good, change: addRow(web), want: []string{`switchboard.yaml:7:22: server "web"`, "secrets/web"}},
		"a row with a mistake": {
			before: good, change: addRow(edit.Server{ID: "b", Settings: []edit.Setting{edit.Text("transport", "stdio")}}), want: []string{`switchboard.yaml:3:3: server "b": "command" is missing`},
		},
		"a server that a tenant names": {
			before: good + "tenants:\n  default: {servers: [a]}\n", change: removeRow("a"), want: []string{`switchboard.yaml:3:23:`, `"a" is no server here`},
		},
		"a server that a ranking names": {
			before: good + "  b: {transport: stdio, command: [b]}\ntenants:\n  default: {servers: [\"*\"]}\n",
			beside: "tenant: default\nranking: {prefer: [{verb: search, resource: internet, servers: [b]}]}\n", change: removeRow("b"),
			want: []string{filepath.Join("tenants", "default", "tenant.yaml") + ":2:65:", `"b" is`},
		},
		"a faulty file, by a good row":       {before: "grase: 5s\n" + good, change: addRow(files)},
		"a faulty file that names servers":   {before: "grase: 5s\nservers:\n  a: {transport: stdio, command: [a]}\ntenants:\n  default: {servers: [c]}\n", change: addRow(files)},
		"a faulty file, by another mistake":  {before: "grase: 5s\n" + good, change: addRow(web), want: []string{`server "web"`}},
		"the last server":                    {before: good, change: removeRow("a")},
		"a server that is not in the file":   {before: good, change: removeRow("b"), want: []string{`"b" is no server here`}},
		"a row under an id that is no id":    {before: good, change: addRow(edit.Server{ID: "My Server"}), want: []string{"use lower-case letters and digits"}},
		"a file that cannot be read as YAML": {before: "servers: {", change: addRow(files), want: []string{"switchboard.yaml:1:"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "switchboard.yaml")
			for name, text := range map[string]string{file: c.before, filepath.Join(dir, "tenants", "default", "tenant.yaml"): c.beside} {
				if text != "" {
					if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
			}
			err := edit.File(t.Context(), file, config.Options{Env: configtest.Env}, c.change)
			after, readErr := os.ReadFile(file)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if c.want == nil {
				if err != nil || string(after) == c.before {
					t.Errorf("error %v, and the file holds:\n%s", err, after)
				}
				return
			}
			if string(after) != c.before {
				t.Errorf("the file was changed:\n%s", after)
			}
			faults, ok := errors.AsType[switchboard.Faults](err)
			if !ok || len(faults) != 1 {
				t.Fatalf("error %v, want one fault", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q in it", err, want)
				}
			}
		})
	}
}
