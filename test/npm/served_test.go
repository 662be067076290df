package npm_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	words "github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A use is one call of a selected tool, and what it is at its server.
type use struct {
	shown  string
	server words.ServerID
	tool   string
	args   string // WORK stands for the folder that the servers work on
	err    bool   // the result says isError

	// like is what the result holds, where two results of the server itself
	// are not the same, or where Switchboard adds to it.
	like string
}

// tasks are those of testdata/real: what each shows, in order, and what is
// tried in it.
var tasks = map[string]struct {
	shows  []string
	uses   []use
	hidden []words.ToolID // tools that must be unknown; one that is shown, by other spellings
}{
	"investigate": {
		shows: []string{
			"directory_tree", "get_file_info", "list_directory", "read_media_file", "read_multiple_files", "read_text_file",
			"git_blame", "git_diff", "git_log", "git_show", "git_status",
			"open_nodes", "read_graph", "search_nodes",
			"sequentialthinking",
		},
		uses: []use{
			{shown: "read_text_file", server: "files", tool: "read_text_file", args: `{"path":"WORK/notes/plan.md"}`},
			{shown: "read_text_file", server: "files", tool: "read_text_file", args: `{"path":"WORK/notes/absent.md"}`, err: true},
			{shown: "read_text_file", server: "files", tool: "read_text_file", args: `{"path":7}`, err: true, like: `at \"/path\": want string, not number`},
			{shown: "directory_tree", server: "files", tool: "directory_tree", args: `{"path":"WORK/notes"}`},
			{shown: "git_log", server: "git", tool: "git_log", args: `{"path":"WORK/repo"}`},
			{shown: "git_show", server: "git", tool: "git_show", args: `{"path":"WORK/repo","object":"HEAD"}`},
			{shown: "git_status", server: "git", tool: "git_status", args: `{"path":"WORK/absent"}`, err: true},
			{shown: "read_graph", server: "memory", tool: "read_graph", args: `{}`},
			{shown: "search_nodes", server: "memory", tool: "search_nodes", args: `{"query":"imitates"}`},
			{
				shown: "sequentialthinking", server: "thinking", tool: "sequentialthinking",
				args: `{"thought":"first","thoughtNumber":1,"totalThoughts":2,"nextThoughtNeeded":true}`, like: `\"totalThoughts\": 2`,
			},
		},
		hidden: []words.ToolID{
			{Server: "files", Name: "write_file"},
			{Server: "files", Name: "read_file"},
			{Server: "files", Name: "edit_file"},
			{Server: "git", Name: "git_branch"},
			{Server: "glossary", Name: "lookup_term"},
			{Server: "everything", Name: "echo"},
			{Server: "passwords", Name: "vault_list"},
			{Server: "memory", Name: "delete_entities"},
			{Server: "files", Name: "read_text_file"},
		},
	},
	"compose": {
		shows: []string{
			"add_observations", "create_entities", "create_relations", "delete_entities", "delete_observations", "delete_relations",
			"find_files",
			"lookup_term",
			"item_lookup", "vault_list",
			"echo", "get-annotated-message", "get-resource-links", "get-structured-content", "get-sum", "get-tiny-image",
			"write_file",
		},
		uses: []use{
			{shown: "find_files", server: "files", tool: "search_files", args: `{"path":"WORK","pattern":"**/*.md"}`},
			{shown: "lookup_term", server: "glossary", tool: "lookup_term", args: `{"term":"Homoglyph"}`},
			{shown: "lookup_term", server: "glossary", tool: "lookup_term", args: `{"term":"absent"}`, err: true},
			{shown: "lookup_term", server: "glossary", tool: "lookup_term", args: `{"term":7}`, err: true, like: `at \"/term\": want string, not number`},
			{shown: "vault_list", server: "passwords", tool: "vault_list", args: `{}`, err: true},
			{shown: "echo", server: "everything", tool: "echo", args: `{"message":"naïve \"<&>\" \ud83d\ude00 \u2028 \\u0000"}`},
			{shown: "get-sum", server: "everything", tool: "get-sum", args: `{"a":1e2,"b":0.5}`},
			{shown: "get-tiny-image", server: "everything", tool: "get-tiny-image", args: `{}`},
			{shown: "get-structured-content", server: "everything", tool: "get-structured-content", args: `{"location":"New York"}`},
			{shown: "get-annotated-message", server: "everything", tool: "get-annotated-message", args: `{"messageType":"error","includeImage":true}`},
		},
		hidden: []words.ToolID{
			{Server: "files", Name: "search_files"},
			{Server: "files", Name: "read_text_file"},
			{Server: "glossary", Name: "define_term"},
			{Server: "everything", Name: "get-env"},
			{Server: "passwords", Name: "password_generate"},
			{Server: "memory", Name: "read_graph"},
			{Server: "memory", Name: "add_observations"},
		},
	},
}

// spellings are ways to write a tool's name that somebody could hope to get
// through with.
func spellings(id words.ToolID) []string {
	s, n := string(id.Server), id.Name
	return []string{
		n, s + "__" + n, s + "/" + n, s + "." + n, s + ":" + n, "mcp__" + s + "__" + n, "switchboard__" + n,
		strings.ToUpper(n), strings.ToUpper(n[:1]) + n[1:], n + " ", " " + n, n + "\t", n + "\n", n + "\x00", "\ufeff" + n, n + "\u200b",
		strings.NewReplacer("_", "%5F", "-", "%2D").Replace(n) + "%20", "%" + strings.ToUpper(hex(n[0])) + n[1:],
		strings.NewReplacer("_", "-", "-", "_").Replace(n), string(rune(n[0])-'a'+'ａ') + n[1:], "./" + n, n + "/", n + "?", `"` + n + `"`,
	}
}

func hex(c byte) string { return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]) }

func TestRealServersThroughClientsThatWeDidNotWrite(t *testing.T) {
	t.Parallel() // beside the servers that start late
	dir := real(t)
	g := serve(t, dir)
	direct := ask(t, dir)
	for _, c := range clients {
		t.Run(c.name, func(t *testing.T) {
			for name, task := range tasks {
				if c.starts && (name == "compose") != c.modern {
					continue
				}
				t.Run(name, func(t *testing.T) {
					uses, unknown := task.uses, refused(task.shows, task.hidden)
					switch {
					case c.starts:
						uses, unknown = uses[:1], unknown[:1]
					case !c.raw:
						uses, unknown = uses[:2], unknown[:2]
					}
					ops := []op{list}
					for _, u := range uses {
						ops = append(ops, call(u.shown, in(dir, u.args)))
					}
					for _, n := range unknown {
						ops = append(ops, call(n, `{}`))
					}
					answers := c.do(t, g, name, ops)

					listed(t, c, answers[0], task.shows, direct)
					for i, u := range uses {
						same(t, c, u, answers[1+i], direct[u.of()])
					}
					for i, n := range unknown {
						isUnknown(t, c, n, answers[1+len(uses)+i])
					}
				})
			}
		})
	}
}

// in puts the folder of the servers' work into arguments.
func in(dir, args string) string {
	return strings.ReplaceAll(args, "WORK", filepath.ToSlash(filepath.Join(dir, "work")))
}

// of is the name of a use in the map of direct answers.
func (u use) of() string { return string(u.server) + "/" + u.tool + " " + u.args }

// ask asks the servers themselves for everything that the clients will ask for
// through Switchboard: definitions by "server/tool", results by use.of.
func ask(t *testing.T, dir string) map[string]answer {
	t.Helper()
	direct := map[string]answer{}
	for id, s := range servers(t, dir) {
		p := dial(t, pinned[id].eras[len(pinned[id].eras)-1], s)
		var offer struct{ Tools []json.RawMessage }
		if err := json.Unmarshal(p.ask(t, "tools/list", "{}").result, &offer); err != nil {
			t.Fatal(err)
		}
		for _, tool := range offer.Tools {
			name, _ := wire.Field(tool, "name")
			plain, _ := wire.String(name)
			direct[string(id)+"/"+plain] = answer{result: tool}
		}
		for _, task := range tasks {
			for _, u := range task.uses {
				if u.server == id {
					direct[u.of()] = p.ask(t, "tools/call", `{"name":"`+u.tool+`","arguments":`+in(dir, u.args)+`}`)
				}
			}
		}
	}
	return direct
}

// refused lists the spellings that must be unknown, the tools' own names first.
func refused(shows []string, hidden []words.ToolID) []string {
	var own, others []string
	for _, id := range hidden {
		for i, s := range spellings(id) {
			switch {
			case slices.Contains(shows, s):
			case i == 0:
				own = append(own, s)
			default:
				others = append(others, s)
			}
		}
	}
	return append(own, others...)
}

// listed checks that exactly the selected tools are listed, in order, each with
// the definition that its server gives.
func listed(t *testing.T, c client, a answer, shows []string, direct map[string]answer) {
	t.Helper()
	if got := names(t, a.result); !slices.Equal(got, shows) {
		t.Errorf("listed\n%q, want\n%q", got, shows)
		return
	}
	if !c.raw {
		return
	}
	var got struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(a.result, &got); err != nil {
		t.Fatal(err)
	}
	got.Tools = got.Tools[:len(shows)] // without our own
	for i, shown := range shows {
		found := false
		for id, d := range direct {
			if strings.Contains(id, " ") || !strings.HasSuffix(id, "/"+shown) && (shown != "find_files" || id != "files/search_files") {
				continue
			}
			found = true
			want := wire.Rewrite(nil, d.result, wire.Edit{Name: "name", Value: wire.AppendString(nil, shown)})
			if !bytes.Equal(got.Tools[i], want) {
				t.Errorf("%s is defined as\n%s, and by its server as\n%s", shown, got.Tools[i], want)
			}
		}
		if !found {
			t.Errorf("%s is a tool of no server", shown)
		}
	}
}

// ours are the members of a result that an era has and the other has not.
func ours(name string) bool { return name == "resultType" || name == "_meta" }

// same checks that an answer is the server's own.
func same(t *testing.T, c client, u use, got, direct answer) {
	t.Helper()
	if direct.err != nil || direct.result == nil {
		t.Fatalf("%s: the server itself answers %s", u.of(), direct.err)
	}
	if isError := bytes.Contains(direct.result, []byte(`"isError":true`)); isError != u.err {
		t.Errorf("%s: the server's own answer is %s", u.of(), direct.result)
	}
	g, d := got.result, direct.result
	eras := pinned[u.server].eras
	if typ, ok := wire.Field(g, "resultType"); c.raw && (ok != c.modern || ok && string(typ) != `"complete"`) {
		t.Errorf("%s: resultType is %q", u.of(), typ)
	}
	// Whose server it is is said in _meta by each for itself.
	if slices.Contains(eras, modern) || c.modern {
		g, d = wire.Without(nil, g, ours), wire.Without(nil, d, ours)
	}
	switch {
	case u.like != "":
		if !bytes.Contains(g, []byte(u.like)) && c.raw {
			t.Errorf("%s gave %s, want it to hold %s", u.of(), g, u.like)
		}
	case c.raw && !bytes.Equal(g, d):
		t.Errorf("%s gave\n%s %s, and its server\n%s", u.of(), g, got.err, d)
	case !c.raw && !sameJSON(t, g, d):
		t.Errorf("%s gave\n%s %s, and its server\n%s", u.of(), g, got.err, d)
	}
}

// isUnknown checks that a name was answered as that of no tool.
func isUnknown(t *testing.T, c client, name string, a answer) {
	t.Helper()
	var e struct {
		Code    any
		Message string
		Data    json.RawMessage
	}
	if err := json.Unmarshal(a.err, &e); err != nil {
		t.Errorf("%q was answered with %s %s", name, a.result, a.err)
		return
	}
	if strings.HasPrefix(c.name, "Inspector") {
		if e.Code != "tool_not_found" {
			t.Errorf("%q: the Inspector says %s", name, a.err)
		}
		return
	}
	if e.Code != -32602.0 || e.Message != "Unknown tool: "+name || string(e.Data) != `{"code":"SB-CAP-001","retryable":"no"}` {
		t.Errorf("%q was answered with %s", name, a.err)
	}
}

// sameJSON reports whether two texts hold the same value.
func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Errorf("%v: %.300s", err, a)
		return false
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Errorf("%v: %.300s", err, b)
		return false
	}
	return reflect.DeepEqual(x, y)
}

func TestACallHasItsEffectAndAPersonIsAskedFirst(t *testing.T) {
	dir := real(t)
	g := serve(t, dir)
	graph := filepath.Join(dir, "work", "memory.jsonl")
	before, err := os.ReadFile(graph)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []client{clients[0], clients[2]} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(dir, "work", "report"+string(rune('0'+i))+".md")
			text, err := json.Marshal(map[string]string{"path": file, "content": "written by " + c.name})
			if err != nil {
				t.Fatal(err)
			}
			answers := c.do(t, g, "compose", []op{
				call("write_file", string(text)),
				call("delete_entities", `{"entityNames":["acme.example"]}`),
			})
			if got, err := os.ReadFile(file); err != nil || string(got) != "written by "+c.name {
				t.Errorf("the file holds %q, %v", got, err)
			}
			if !bytes.Contains(answers[1].result, []byte(`"isError":true`)) || !bytes.Contains(answers[1].result, []byte("SB-APPR-001")) {
				t.Errorf("delete_entities gave %s %s", answers[1].result, answers[1].err)
			}
			if after, err := os.ReadFile(graph); err != nil || !bytes.Equal(after, before) {
				t.Errorf("the graph was changed to %s, %v", after, err)
			}
		})
	}
}
