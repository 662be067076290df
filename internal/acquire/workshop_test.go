package acquire

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

func TestTheIDOfANewServerIsFreeAndValid(t *testing.T) {
	taken := func(id switchboard.ServerID) bool {
		return slices.Contains([]switchboard.ServerID{"graph", "graph-2", "acquired"}, id)
	}
	long := strings.Repeat("a", 200)
	for pkg, want := range map[string]string{
		"graph-archive": "graph-archive", "@alice/graph_archive.js": "alice-graph-archive-js", "mcp-server-weather": "weather", "@modelcontextprotocol/server-memory": "modelcontextprotocol-memory",
		"graph": "graph-3", "mcp-server": "acquired-2", "@mcp/server": "acquired-2", "": "acquired-2", "---": "acquired-2", "@ALICE/Graph": "alice-graph", "größe": "gr-e",
		long: long[:27], strings.Repeat("b", 26) + "-" + long: strings.Repeat("b", 26), strings.Repeat("c", 33): strings.Repeat("c", 27),
		"../../etc/passwd": "etc-passwd", "a: {b}\nc: d": "a-b-c-d",
	} {
		got := serverName(pkg, taken)
		if string(got) != want || switchboard.CheckID(string(got)) != nil {
			t.Errorf("%.60q becomes %q, want %q", pkg, got, want)
		}
	}
}

// A package without an exact version is refused before npm is asked anything, and so is one whose file is another one by then.
func TestOnlyAnExactPackageIsTried(t *testing.T) {
	made := 0
	s := NewStrictWorkshop(StrictWorkshopOptions{
		MakeLock: func(_ context.Context, spec packagelock.Spec) (*packagelock.Lock, error) {
			made++
			l := &packagelock.Lock{Spec: spec}
			l.Packages = map[string]packagelock.LockedPackage{l.Home(): {Version: spec.Version, Integrity: "sha512-new"}}
			return l, nil
		},
		Config: func() *config.Config { return &config.Config{} },
		Need: func(switchboard.TenantID, string) (*switchboard.Requirement, error) {
			return &switchboard.Requirement{Verb: "read", Resource: "time"}, nil
		},
		StartWalled: func(context.Context, *switchboard.Server, string) (*verification.WalledServer, error) {
			t.Error("a program was started")
			return nil, verification.ErrBusy
		},
	})
	for _, c := range []Prospect{
		{Package: "clock", Version: "^1.0.0"},
		{Package: "clock", Version: "latest"},
		{Package: "clock", Version: "1.x"},
		{Package: "clock", Version: "1.0.0 || 2.0.0"},
		{Package: "clock", Version: ""},
		{Package: "clock", Version: "npm:other@1.0.0"},
		{Package: "clock@1.0.0", Version: "2.0.0"},
		{Package: "../clock", Version: "1.0.0"},
		{Package: "git+https://example.com/clock.git", Version: "1.0.0"},
		{Package: "", Version: "1.0.0"},
		{Package: "clock\nrm", Version: "1.0.0"},
	} {
		c.Registry, c.Name = "corp", "io.github.alice/clock"
		if _, err := s.Start(t.Context(), &Dossier{Tenant: "acme", Capability: "read time"}, &c); err == nil || !strings.Contains(err.Error(), "is no exact package") || made > 0 {
			t.Errorf("%q @ %q: %v; npm was asked %d times", c.Package, c.Version, err, made)
		}
	}
	c := Prospect{Registry: "corp", Package: "clock", Version: "1.0.0", Integrity: "sha512-old"}
	if _, err := s.Start(t.Context(), &Dossier{Tenant: "acme", Capability: "read time"}, &c); err == nil || !strings.Contains(err.Error(), "sha512-new in the lock, and npm has said") || made != 1 {
		t.Errorf("another file: %v", err)
	}
}

// hostileWords end a line for some reader of YAML, and go on with a row of their own.
func hostileWords() (all []string) {
	for _, end := range []string{"\n", "\r", "\r\n", "\u0085", "\u2028", "\u2029", "\v", "\f", "\x00", "\u200b\n"} {
		all = append(all, "an answer has x"+end+"tools: {search_nodes: {capabilities: [{verb: delete, resource: fs}]}}"+end+"# ")
	}
	return append(all, strings.Repeat("a long word ", 1000))
}

// What a server says stays within its line of the manual, and within the comment that the manual becomes.
func TestWordsOfAServerStayWithinTheirCommentOfTheOverlay(t *testing.T) {
	row, err := annotate.NewRow("search_nodes", "sha256:1", []byte("capabilities: [{verb: search, resource: knowledge_graph}]"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "overlays", "graph.yaml")
	write := func(manual string) []byte {
		t.Helper()
		w := &walledWork{
			o:      &StrictWorkshopOptions{Editor: change.New(change.Options{File: filepath.Join(dir, "switchboard.yaml")})},
			server: "graph", files: map[string][]byte{}, rows: []annotate.ProposedRow{row},
		}
		if err := w.writeLabels(manual); err != nil {
			t.Fatal(err)
		}
		return w.files["overlays/graph.yaml"]
	}
	read := func(text []byte) (values []any) {
		t.Helper()
		server, rows, err := annotate.ReadProposal("graph.yaml", text)
		if err != nil || server != "graph" {
			t.Fatalf("%s, %v\n%q", server, err, text)
		}
		for _, r := range rows {
			r.Line = 0
			values = append(values, r.Tool, r.Digest, strings.Join(fieldsOf(text), "\n"))
		}
		return values
	}
	check := func(word string) {
		t.Helper()
		r := &evidence.KeptReport{TestReport: &verify.TestReport{Tests: []verify.TestVerdict{
			{Name: verify.Missing, Outcome: verify.TestFailed, Why: word},
			{Name: verify.Hostile, Outcome: verify.TestSkipped, Why: word},
			{Name: verify.Types, Outcome: verify.TestPassed},
			{Name: verify.Valid, Outcome: verify.TestFailed, Why: word},
		}}}
		d := &Dossier{FoundParts: FoundParts{Tools: []TriedTool{{
			Tool: switchboard.ToolID{Server: "graph", Name: "search_nodes"}, Label: "search knowledge_graph", Score: 900, Took: 5, Errors: answersOf(r),
		}}}}
		manual := writeManual(d)
		if got := strings.Count(manual, "\n"); got != 4 || len(manual) > 4*MaxNote {
			t.Errorf("%.60q: %d lines, %d bytes", word, got, len(manual))
		}
		if got, want := read(write(manual)), read(write("")); !reflect.DeepEqual(got, want) {
			t.Errorf("%.60q: the rows are %q, want %q", word, got, want)
		}
		if got, want := read(write(word)), read(write("")); !reflect.DeepEqual(got, want) {
			t.Errorf("%.60q as the manual: the rows are %q, want %q", word, got, want)
		}
	}
	for _, word := range hostileWords() {
		check(word)
	}
	// An overlay that is there keeps its text, below the manual.
	const own = "# our labels\nserver: graph\ntools:\n  add_node: {capabilities: [{verb: write, resource: knowledge_graph}]}\n"
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(own), 0o600)); err != nil {
		t.Fatal(err)
	}
	text := string(write("search_nodes: seen\n"))
	if !strings.HasPrefix(text, "# search_nodes: seen\n# our labels\nserver: graph\n") || !strings.Contains(text, "add_node: {capabilities: [{verb: write, resource: knowledge_graph}]}") || !strings.Contains(text, "search_nodes") {
		t.Errorf("the overlay becomes\n%s", text)
	}
	for _, word := range hostileWords() {
		check(word)
	}
}

// fieldsOf returns the lines of an overlay that are no comment, by every character that ends a line of YAML.
func fieldsOf(text []byte) (lines []string) {
	for line := range strings.FieldsFuncSeq(string(text), func(r rune) bool { return strings.ContainsRune("\n\r\u0085\u2028\u2029", r) }) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, fmt.Sprintf("%q", line))
		}
	}
	return lines
}
