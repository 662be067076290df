package importer_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/importer"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/configtest"
)

// Each archive holds another program's file, the result of Load and the result of Convert.
func TestOtherProgramsFiles(t *testing.T) {
	configtest.Archives(t, "testdata/*.txtar", func(t *testing.T, ar *txtar.Archive) {
		file := ar.Files[0].Name
		// An editor's own folder is inside the folder that it has open.
		opts := config.Options{FS: fstest.MapFS{filepath.Base(file): {Data: ar.Files[0].Data}}, Env: configtest.Env}
		c, mapping, err := importer.Load(file, opts)
		got := became(mapping)
		if err != nil {
			got += err.Error() + "\n"
		} else {
			got += describe(t, c)
		}
		configtest.Golden(t, ar, "want load", got)

		text, secrets, mapping, err := importer.Convert(file, opts)
		if err != nil {
			configtest.Golden(t, ar, "want import", became(mapping)+err.Error()+"\n")
			return
		}
		here, _ := filepath.Abs(".")
		got = strings.ReplaceAll(string(text), here, "/here") + became(mapping)
		for _, s := range secrets {
			got += fmt.Sprintf("%s: %v\n", s.Name, s)
		}
		configtest.Golden(t, ar, "want import", got)
		if c != nil {
			sameServers(t, c, text, secrets, mapping, configtest.Env)
		}
	})
}

func became(m importer.Mapping) string {
	var b strings.Builder
	for _, s := range m {
		fmt.Fprintf(&b, "%q is %q %q\n", s.Name, s.ID, s.Notes)
	}
	return b.String()
}

// sameServers loads the text that Convert wrote and compares it with the result of Load.
func sameServers(t *testing.T, c *config.Config, text []byte, secrets []importer.SecretFile, mapping importer.Mapping, env func(string) (string, bool)) {
	t.Helper()
	fsys := fstest.MapFS{"switchboard.yaml": {Data: text}}
	for _, s := range secrets {
		fsys[s.Name] = &fstest.MapFile{Data: []byte(s.Content.Reveal())}
	}
	got, err := config.Load(t.Context(), "switchboard.yaml", config.Options{FS: fsys, Env: env})
	if err == nil {
		err = got.Err()
	}
	if err != nil {
		t.Fatalf("Load refuses the text of Convert: %v\n%s", err, text)
	}
	written := func(s switchboard.Server) bool {
		return slices.ContainsFunc(mapping, func(m importer.Mapped) bool { return m.ID == s.ID })
	}
	var want []switchboard.Server
	for _, s := range c.Servers {
		if written(s) {
			want = append(want, s)
		}
	}
	if len(want) != len(got.Servers) {
		t.Fatalf("%d servers were written, want %d:\n%s", len(got.Servers), len(want), text)
	}
	for i, w := range want {
		g := got.Servers[i]
		if describeServer(g) != describeServer(w) {
			t.Errorf("server %s:\n got %s\nwant %s\n%s", w.ID, describeServer(g), describeServer(w), text)
		}
	}
}

// describeServer returns a server as text, with its secrets and without empty values.
func describeServer(s switchboard.Server) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %q %q %q %q %q %q %q", s.ID, s.Transport, s.URL, s.Command, s.Dir, s.Credential.Kind, s.Credential.ClientID, s.Credential.ClientSecret.Reveal(), s.Credential.Scopes)
	if s.Timeout != 0 {
		fmt.Fprintf(&b, " timeout %v", s.Timeout)
	}
	for _, m := range []map[string]switchboard.Secret{s.Headers, s.Env} {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if v := m[k].Reveal(); v != "" {
				fmt.Fprintf(&b, " %s=%q", k, v)
			}
		}
	}
	return b.String()
}

// The ids depend only on the names: another order of the file gives the same ids.
func TestIDsDoNotDependOnTheOrderOfTheFile(t *testing.T) {
	names := []string{"a b", "A-B", "a-b", "a_b", "ab", "!", "?", strings.Repeat("x", 40), strings.Repeat("x", 41), "a-b-2"}
	ids := func(names []string) map[string]switchboard.ServerID {
		var b strings.Builder
		for i, n := range names {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, `%q: {"command": "x"}`, n)
		}
		_, m, err := importer.Load("mcp.json", config.Options{FS: fstest.MapFS{"mcp.json": {Data: []byte(`{"mcpServers": {` + b.String() + `}}`)}}})
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]switchboard.ServerID{}
		for _, s := range m {
			if err := switchboard.CheckID(string(s.ID)); err != nil {
				t.Errorf("%q: %v", s.Name, err)
			}
			out[s.Name] = s.ID
		}
		return out
	}
	want := ids(names)
	if want["a-b"] != "a-b" || want["a-b-2"] != "a-b-2" {
		t.Errorf("a name that is an id became another: %v", want)
	}
	if n := len(slices.Compact(slices.Sorted(maps.Values(want)))); n != len(names) {
		t.Errorf("%d names share %d ids: %v", len(names), n, want)
	}
	slices.Reverse(names)
	if got := ids(names); !reflect.DeepEqual(got, want) {
		t.Errorf("reversed: %v, want %v", got, want)
	}
}

func TestAnAbsentFileOfAnotherProgramIsAFault(t *testing.T) {
	_, _, err := importer.Load("gone.json", config.Options{FS: fstest.MapFS{}})
	if got, want := fmt.Sprint(err), "gone.json: this cannot be read: there is no such file"; got != want {
		t.Errorf("error %q, want %q", got, want)
	}
	if errors.Is(err, fs.ErrNotExist) {
		t.Error("the error wraps fs.ErrNotExist; want Faults only")
	}
}

// describe returns the parts of a Config that Load sets as text. The working directory is written as the
// folder /here.
func describe(t *testing.T, c *config.Config) string {
	t.Helper()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for _, w := range c.Warnings {
		say("warning: %s", w.String())
	}
	say("listen %s hosts %q origins %q start %v grace %v implied %v", c.Listen, c.Hosts, c.Origins, c.StartDeadline, c.Grace, c.Implied)
	for _, s := range c.Servers {
		unset := strings.NewReplacer(fmt.Sprintf(" Credential:%+v", switchboard.Credential{}), "", fmt.Sprintf(" Network:%+v", switchboard.Server{}.Network), "")
		say("server %s", unset.Replace(fmt.Sprintf("%+v", s)))
	}
	for _, id := range slices.Sorted(maps.Keys(c.Tenants)) {
		n := c.Tenants[id]
		say("tenant %s servers %s default %q by_name %v", n.ID, n.Servers, n.DefaultTask, n.ByName)
		say("  ranking %+v limits %+v", n.Ranking, n.Limits)
		for _, task := range slices.Sorted(maps.Keys(n.Tasks)) {
			for _, r := range n.Tasks[task].Requirements {
				say("  task %s: %s select %q optional %v as %q", n.Tasks[task].ID, r.String(), r.Select, r.Optional, r.As)
			}
		}
	}
	say("resources %s constraints %s", c.Taxonomy.Resources(), c.Taxonomy.Constraints())
	say("watch %s", c.Watch)
	return strings.ReplaceAll(b.String(), here, "/here")
}

// Clients that share a process must have the same values of these variables. One with a default may be absent.
func TestTheVariablesOfAllReferencesAreNamed(t *testing.T) {
	c, _, err := importer.Load("mcp.json", config.Options{
		FS:  fstest.MapFS{"mcp.json": {Data: []byte(`{"mcpServers": {"a": {"command": "a", "env": {"X": "${env:SECOND}", "Y": "${FIRST:-none}", "Z": "$THIRD"}}}}`)}},
		Env: func(name string) (string, bool) { return "value", name != "FIRST" },
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"FIRST", "SECOND"}; !slices.Equal(c.Variables, want) {
		t.Errorf("%q, want %q", c.Variables, want)
	}
}
