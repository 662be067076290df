package edit

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/document"
)

func textNode(s string) *document.Node { return &document.Node{Kind: document.KindText, Text: s} }

func listNode(items ...string) *document.Node {
	n := &document.Node{Kind: document.KindList}
	for _, s := range items {
		n.Items = append(n.Items, *textNode(s))
	}
	return n
}

const setText = `# The operator's file.
listen: 127.0.0.1:7420   # for agents

servers:
    # the first one
    atlas:
      transport: stdio
      command: [npx, -y, atlas] # pinned elsewhere
      env: {A: "1", B: 'it''s'}

    nimbus: {transport: http, url: "https://n.example"} # ours
tenants:
  acme:
    servers: ["*"]
    approvers:
    - {key: ann, hash: "sha256:0"}
    # the second
    - key: ben   # on call
      hash: sha256:1
  # the other one
  umbrella:
    servers:
      - atlas
      - nimbus
`

func TestSetChangesOnePartAndNoOtherByte(t *testing.T) {
	for _, tt := range []struct {
		name, path string
		value      *document.Node
		old, next  string // what changes in setText
	}{
		{"a text", "listen", textNode("127.0.0.1:1"), "listen: 127.0.0.1:7420", "listen: \"127.0.0.1:1\""},
		{"a list in flow style, with its comment", "servers atlas command", listNode("uvx", "a b"), "[npx, -y, atlas]", `[uvx, "a b"]`},
		{"a key within a flow map", "servers atlas env B", textNode("two"), `'it''s'`, "two"},
		{"a new key within a flow map", "servers nimbus trust", textNode("operator"), `"https://n.example"}`, `"https://n.example", trust: operator}`},
		{"a new key of a block map", "servers atlas trust", textNode("operator"), "B: 'it''s'}\n", "B: 'it''s'}\n      trust: operator\n"},
		{"a new row", "tenants beta servers", listNode("*"), "      - nimbus\n", "      - nimbus\n  beta: {servers: [\"*\"]}\n"},
		{"a new key at the top", "grace", textNode("5s"), "      - nimbus\n", "      - nimbus\ngrace: \"5s\"\n"},
		{"a new item of a block list", "tenants umbrella servers -", textNode("third"), "      - nimbus\n", "      - nimbus\n      - third\n"},
		{"an item of a block list", "tenants umbrella servers 0", textNode("other"), "- atlas\n", "- other\n"},
		{"a key of an item", "tenants acme approvers 1 key", textNode("bob"), "key: ben   #", "key: bob   #"},
		{"a block list", "tenants umbrella servers", listNode("*"), "servers:\n      - atlas\n      - nimbus\n", "servers: [\"*\"]\n"},
		{"remove a key", "servers atlas env", nil, "      env: {A: \"1\", B: 'it''s'}\n", ""},
		{"remove a row in block style", "servers atlas", nil, "    atlas:\n      transport: stdio\n      command: [npx, -y, atlas] # pinned elsewhere\n      env: {A: \"1\", B: 'it''s'}\n", ""},
		{"remove the first key of a flow map", "servers nimbus transport", nil, "transport: http, ", ""},
		{"remove the last key of a flow map", "servers nimbus url", nil, `, url: "https://n.example"`, ""},
		{"remove an item", "tenants acme approvers 0", nil, "    - {key: ann, hash: \"sha256:0\"}\n", ""},
		{"an item of a flow list", "tenants acme servers 0", textNode("atlas"), `["*"]`, "[atlas]"},
		{"a new item of a flow list", "servers atlas command -", textNode("-v"), "-y, atlas]", "-y, atlas, \"-v\"]"},
	} {
		for _, eol := range []string{"\n", "\r\n"} {
			before := strings.ReplaceAll(setText, "\n", eol)
			want := strings.ReplaceAll(strings.Replace(setText, tt.old, tt.next, 1), "\n", eol)
			got, err := Set("switchboard.yaml", []byte(before), strings.Fields(tt.path), tt.value)
			if err != nil || string(got) != want {
				t.Errorf("%s, with %q: %v\n%s", tt.name, eol, err, got)
			}
		}
	}
}

func TestTheItemsOfAListInAnotherOrderTakeTheirCommentsAlong(t *testing.T) {
	for _, tt := range []struct {
		name, before string
		order        []string
		after        string
	}{
		{"comments behind", "a:\n  - x # of x\n  - w # of w\n  - z\nb: 1\n", []string{"z", "x", "w"}, "a:\n  - z\n  - x # of x\n  - w # of w\nb: 1\n"},
		{"comments above", "a:\n  # of x\n  - x\n  # of w\n  # too\n  - w\n# of b\nb: 1\n", []string{"w", "x"}, "a:\n  # of w\n  # too\n  - w\n  # of x\n  - x\n# of b\nb: 1\n"},
		{"a comment about the list", "a:\n  # the best first\n  - x\n  - w\n", []string{"w", "x"}, "a:\n  # the best first\n  - w\n  - x\n"},
		{"one item twice", "a:\n- x # 1\n- w\n- x # 2\n", []string{"w", "x", "x"}, "a:\n- w\n- x # 1\n- x # 2\n"},
		{"other items", "a:\n  - x # of x\n  - w\n", []string{"w", "z"}, "a: [w, z]\n"},
		{"in flow style", "a: [x, w] # both\n", []string{"w", "x"}, "a: [w, x] # both\n"},
	} {
		got, err := Set("f.yaml", []byte(tt.before), []string{"a"}, listNode(tt.order...))
		if err != nil || string(got) != tt.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", tt.name, err, got, tt.after)
		}
	}
}

func TestSetRefusesWhatItCannotDo(t *testing.T) {
	for _, tt := range []struct {
		path, want string
		value      *document.Node
	}{
		{"nothing here", `there is no "nothing" to remove`, nil},
		{"listen port", "neither a map nor a list", textNode("1")},
		{"tenants acme approvers 2", "no item of this list of 2", textNode("x")},
		{"tenants acme approvers two", "no item of this list", textNode("x")},
		{"tenants umbrella servers", "", nil},
	} {
		got, err := Set("switchboard.yaml", []byte(setText), strings.Fields(tt.path), tt.value)
		if tt.want == "" {
			if err == nil { // the only key of its map
				t.Errorf("%s: the map is empty now\n%s", tt.path, got)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "switchboard.yaml:") {
			t.Errorf("%s: %v", tt.path, err)
		}
	}
	if got, err := Set("a.yaml", nil, []string{"a", "b"}, textNode("c")); err != nil || string(got) != "a: {b: c}\n" {
		t.Errorf("an empty file: %q, %v", got, err)
	}
}

// places returns all paths of a document, with the lines of each entry: from its key to the line before the next entry of it or of a map around it.
func places(n document.Node, prefix []string, from, until int, see func(path []string, n document.Node, from, until int)) {
	if len(prefix) > 0 {
		see(prefix, n, from, until)
	}
	for i, p := range n.Pairs {
		end := until
		if i+1 < len(n.Pairs) {
			end = n.Pairs[i+1].Key.Line
		}
		places(p.Value, append(slices.Clone(prefix), p.Key.Text), p.Key.Line, max(end, p.Key.Line+1), see)
	}
	for i, item := range n.Items {
		end := until
		if i+1 < len(n.Items) {
			end = n.Items[i+1].Line
		}
		places(item, append(slices.Clone(prefix), strconv.Itoa(i)), item.Line, max(end, item.Line+1), see)
	}
}

// changedLines returns which lines of before are not in after: from (counted from 1) up to, but not including, until.
func changedLines(before, after []byte) (from, until int) {
	a, b := bytes.SplitAfter(before, []byte("\n")), bytes.SplitAfter(after, []byte("\n"))
	i, j := 0, 0
	for i < min(len(a), len(b)) && bytes.Equal(a[i], b[i]) {
		i++
	}
	for j < min(len(a), len(b))-i && bytes.Equal(a[len(a)-1-j], b[len(b)-1-j]) {
		j++
	}
	return i + 1, len(a) - j + 1
}

// The 200 edits: one after the other, in a file with comments, odd indentation and both styles. Each changes lines of the intended part
// only, and the result is read as the file before with that part changed.
func TestTwoHundredEditsChangeOnlyTheIntendedPart(t *testing.T) {
	dice := rand.New(rand.NewPCG(200, 22))
	text, done, refused := []byte(setText), 0, 0
	for i := range 200 {
		s, err := readSource("switchboard.yaml", text, "")
		if err != nil {
			t.Fatalf("edit %d has left\n%s\n%v", i, text, err)
		}
		type place struct {
			path        []string
			n           document.Node
			from, until int
		}
		var all []place
		places(s.top, nil, 1, len(s.starts)+1, func(path []string, n document.Node, from, until int) {
			if len(path) > 3 || n.Kind != document.KindMap && n.Kind != document.KindList { // or the file would soon be empty
				all = append(all, place{path, n, from, until})
			}
		})
		if len(all) == 0 {
			t.Fatalf("edit %d has left\n%s", i, text)
		}
		at := all[dice.IntN(len(all))]
		path := at.path
		value := []*document.Node{
			textNode(fmt.Sprint("v", i)), textNode("needs: quotes # here"), listNode("x", "it's", fmt.Sprint(i)),
			{Kind: document.KindMap, Pairs: []document.NodePair{{Key: *textNode("k"), Value: *textNode("v")}}},
			{Kind: document.KindInt, Text: strconv.Itoa(i)},
			{Kind: document.KindBool, Text: "true"},
		}[dice.IntN(6)]
		switch {
		case at.n.Kind == document.KindMap && dice.IntN(2) == 0:
			path = append(slices.Clone(path), fmt.Sprint("new-", i))
		case at.n.Kind == document.KindList && dice.IntN(2) == 0:
			path = append(slices.Clone(path), Append)
		case dice.IntN(6) == 0:
			value = nil
		}
		next, err := Set("switchboard.yaml", text, path, value)
		if err != nil {
			refused++
			continue
		}
		done++
		if from, until := changedLines(text, next); from < at.from || until > max(at.until, from) {
			t.Errorf("edit %d of %q, lines %d to %d, has changed lines %d to %d:\n%s\n→\n%s", i, path, at.from, at.until, from, until, text, next)
		}
		text = next
	}
	if done < 180 {
		t.Errorf("%d were made, and %d refused", done, refused)
	}
	t.Logf("%d were made, %d refused; the file has %d lines now", done, refused, bytes.Count(text, []byte("\n")))
}

func FuzzSetKeepsEverythingElse(f *testing.F) {
	f.Add([]byte(setText), "servers atlas trust", "operator", false)
	f.Add([]byte("{a: [1, {b: c}], 'd': \"e\"}"), "a 1 b", "x", true)
	f.Add([]byte("a:\n- b: |\n    text\n  # c\n- d\n"), "a 0 b", "x: #", false)
	f.Fuzz(func(t *testing.T, text []byte, path, value string, remove bool) {
		n := textNode(value)
		if remove {
			n = nil
		}
		next, err := Set("a.yaml", text, strings.Fields(path), n)
		if err != nil {
			return
		}
		if _, err := readSource("a.yaml", next, ""); err != nil {
			t.Errorf("%q became %q: %v", text, next, err)
		}
	})
}
