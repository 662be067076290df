package clientfile

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var ours = Entry{Name: "switchboard", Value: json.RawMessage(`{"command":"switchboard","args":["stdio"]}`)}

var (
	inMCP  = []string{"mcpServers"}
	inTOML = []string{"mcp_servers"}
)

func rewrite(t *testing.T, text string, form Form, section, remove []string, add ...Entry) string {
	t.Helper()
	splices, err := Rewrite("f", []byte(text), form, section, remove, add)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	after, err := Apply([]byte(text), splices)
	if err != nil {
		t.Fatal(err)
	}
	back, err := Apply(after, Invert([]byte(text), splices))
	if err != nil || string(back) != text {
		t.Fatalf("the inverse gives\n%s\nwant\n%s", back, text)
	}
	return string(after)
}

func TestRewriteChangesOnlyTheNamedServers(t *testing.T) {
	jsonc, tomlForm := Form{Syntax: JSONC, BOM: true}, Form{Syntax: TOML, BOM: true}
	for _, c := range []struct {
		name, text string
		form       Form
		remove     string
		want       string
	}{
		{
			"the first of two, with comments", "{\n  // mine\n  \"mcpServers\": {\n    // files\n    \"a\": {\"command\": \"x\"}, // tail\n    \"b\": {},\n  },\n}\n", jsonc, "a",
			"{\n  // mine\n  \"mcpServers\": {\n    // files\n    \"switchboard\": {\n      \"command\": \"switchboard\",\n      \"args\": [\n        \"stdio\"\n      ]\n    }, // tail\n    \"b\": {},\n  },\n}\n",
		},
		{
			"all of them", "{\n\t\"mcpServers\": {\n\t\t\"a\": {},\n\t\t\"b\": {},\n\t\t\"c\": {}\n\t}\n}", jsonc, "a b c",
			"{\n\t\"mcpServers\": {\n\t\t\"switchboard\": {\n\t\t\t\"command\": \"switchboard\",\n\t\t\t\"args\": [\n\t\t\t\t\"stdio\"\n\t\t\t]\n\t\t}\n\t}\n}",
		},
		{
			"the last ones, so that the comma before them goes", `{"mcpServers": {"k": 1, "a": {}, "b": {} }, "z": 1}`, jsonc, "a b",
			`{"mcpServers": {"k": 1, "switchboard": {"command":"switchboard","args":["stdio"]} }, "z": 1}`,
		},
		{"the last ones of a line", `{"mcpServers":{"a":{},"b":{},"c":{}, "d":{}}}`, jsonc, "b c d", `{"mcpServers":{"a":{},"switchboard":{"command":"switchboard","args":["stdio"]}}}`},
		{"minified", `{"mcpServers":{"a":{},"b":{}}}`, jsonc, "a b", `{"mcpServers":{"switchboard":{"command":"switchboard","args":["stdio"]}}}`},
		{
			"none, in a file with CRLF and a byte order mark", "\ufeff{\r\n  \"mcpServers\": {\r\n    \"a\": {}\r\n  }\r\n}\r\n", jsonc, "",
			"\ufeff{\r\n  \"mcpServers\": {\r\n    \"a\": {},\r\n    \"switchboard\": {\r\n      \"command\": \"switchboard\",\r\n      \"args\": [\r\n        \"stdio\"\r\n      ]\r\n    }\r\n  }\r\n}\r\n",
		},
		{
			"none, without a section", "{\n  \"a\": 1\n}\n", jsonc, "",
			"{\n  \"a\": 1,\n  \"mcpServers\": {\n    \"switchboard\": {\n      \"command\": \"switchboard\",\n      \"args\": [\n        \"stdio\"\n      ]\n    }\n  }\n}\n",
		},
		{
			"none, in an empty section with a comment", "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n", jsonc, "",
			"{\n  \"mcpServers\": {\n    // none yet\n    \"switchboard\": {\n      \"command\": \"switchboard\",\n      \"args\": [\n        \"stdio\"\n      ]\n    }\n  }\n}\n",
		},
		{"no file", "", jsonc, "", "{\n  \"mcpServers\": {\n    \"switchboard\": {\n      \"command\": \"switchboard\",\n      \"args\": [\n        \"stdio\"\n      ]\n    }\n  }\n}\n"},
		{"an empty object", "{}", jsonc, "", "{\n  \"mcpServers\": {\n    \"switchboard\": {\n      \"command\": \"switchboard\",\n      \"args\": [\n        \"stdio\"\n      ]\n    }\n  }\n}"},
		{
			"a table with a table of its own", "# top\nmodel = \"x\"\n\n[mcp_servers.a] # one\ncommand = \"x\"\n\n[mcp_servers.a.env]\n# key\nK = \"v\"\n# after\n\n[other]\n", tomlForm, "a",
			"# top\nmodel = \"x\"\n\n[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]\n# after\n\n[other]\n",
		},
		{
			"two tables apart", "[mcp_servers.a]\ncommand = \"x\"\n\n[z]\nk = 1\n\n[mcp_servers.b]\ncommand = \"y\"\n\n[mcp_servers.a.env]\nK = \"v\"", tomlForm, "a b",
			"[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]\n\n[z]\nk = 1\n\n",
		},
		{
			"members of one table", "[mcp_servers]\r\na = { command = \"x\" } # tail\r\nb.command = \"y\"\r\n\r\n[z]\r\n", tomlForm, "b",
			"[mcp_servers]\r\na = { command = \"x\" } # tail\r\nswitchboard = { command = \"switchboard\", args = [\"stdio\"] }\r\n\r\n[z]\r\n",
		},
		{"dotted keys", "mcp_servers.a.command = \"x\"\nk = 1\n", tomlForm, "a", "mcp_servers.switchboard = { command = \"switchboard\", args = [\"stdio\"] }\nk = 1\n"},
		{"the last table, without a line break", "k = 1\n[mcp_servers.a]\ncommand = \"x\"", tomlForm, "a", "k = 1\n[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]"},
		{"no TOML yet", "", tomlForm, "", "[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]\n"},
		{"TOML without servers", "model = \"x\"", tomlForm, "", "model = \"x\"\n\n[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]\n"},
		{"behind the last server", "[mcp_servers.a]\ncommand = \"x\"\n\n[z]\nk = 1\n", tomlForm, "", "[mcp_servers.a]\ncommand = \"x\"\n\n[mcp_servers.switchboard]\ncommand = \"switchboard\"\nargs = [\"stdio\"]\n\n[z]\nk = 1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			section := inMCP
			if c.form.Syntax == TOML {
				section = inTOML
			}
			if got := rewrite(t, c.text, c.form, section, strings.Fields(c.remove), ours); got != c.want {
				t.Errorf("got\n%q\nwant\n%q", got, c.want)
			}
		})
	}
}

func TestAFileThatItsClientCannotReadIsRefusedWithItsPlace(t *testing.T) {
	for _, c := range []struct {
		text string
		form Form
		want string
	}{
		{"{\n  // x\n}", Form{}, "f:2:3: the client reads no comment"},
		{"{\n  \"a\": 1,\n}", Form{Syntax: JSONComments}, "f:2:9: the client reads no comma"},
		{"\ufeff{}", Form{Syntax: JSONComments}, "f:1:1: the file begins with a byte order mark"},
		{"{\"mcpServers\": {\"a\": {", Form{}, "ends too early"},
		{"{\"mcpServers\": {\"a\": 1, \"a\": 2}}", Form{}, "twice"},
		{"[]", Form{}, "want an object"},
		{"{\"mcpServers\": []}", Form{}, `f:1:16: "mcpServers": want an object`},
		{" ", Form{}, "ends too early"},
		{"[mcp_servers.a]\ncommand = \n", Form{Syntax: TOML}, "f:2:"},
		{"mcp_servers = 1", Form{Syntax: TOML}, "want a table"},
		{"mcp_servers = { a = { command = \"x\" } }", Form{Syntax: TOML}, "one line"},
	} {
		section := inMCP
		if c.form.Syntax == TOML {
			section = inTOML
		}
		_, err := Rewrite("f", []byte(c.text), c.form, section, nil, []Entry{ours})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// Clients cut the texts of their history anywhere, and their own parsers read the halves.
func TestHalfOfASurrogatePairOutsideOfTheServersIsRead(t *testing.T) {
	form := Form{}
	for _, text := range []string{`{"h": "\ud83d"}`, `{"h": "\ude00\ud83d"}`, `{"h": "\\\ud83d\ud83d\ude00", "\ud83d": 1}`, `{"h": "\ud83d\u0041"}`} {
		if got := rewrite(t, text, form, inMCP, nil, ours); !strings.HasPrefix(got, strings.TrimSuffix(text, "}")) {
			t.Errorf("%s became %s", text, got)
		}
	}
	// Escapes with a backslash before them, and whole pairs, stay as they are.
	for _, text := range []string{`"\\ud83d"`, `"\ud83d\ude00"`, `"\u00e4\n"`, `"\ud83`, `\`} {
		if got := string(withoutLoneSurrogates([]byte(text))); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
	if got := string(withoutLoneSurrogates([]byte(`"\ud83d\ude00\ude00\uDBFFx"`))); got != `"\ud83d\ude00\ufffd\ufffdx"` {
		t.Errorf("got %s", got)
	}
}

func TestAListOfTablesIsNoServerThatCanBeEdited(t *testing.T) {
	entries, err := ListServers("f", []byte("[[mcp_servers.a]]\ncommand = \"x\"\n[mcp_servers.b]\ncommand = \"y\"\n"), Form{Syntax: TOML}, inTOML)
	if err != nil || len(entries) != 2 || entries[0].Fixed+entries[1].Fixed != "it is a list" {
		t.Errorf("%+v, %v", entries, err)
	}
}

// Codex has written the file anew, with a table for each server.
func TestAMemberOfATableComesBackAsATable(t *testing.T) {
	form := Form{Syntax: TOML}
	entries, err := ListServers("f", []byte("[mcp_servers]\na = { command = \"x\", env = { K = \"v\" } }\n"), form, inTOML)
	if err != nil {
		t.Fatal(err)
	}
	got := rewrite(t, "[mcp_servers.switchboard]\ncommand = \"switchboard\"\n", form, inTOML, []string{"switchboard"}, entries...)
	if want := "[mcp_servers.a]\ncommand = \"x\"\n\n[mcp_servers.a.env]\nK = \"v\"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAnEmptyResultIsAnEmptyFile(t *testing.T) {
	after, err := Apply([]byte("x"), []Splice{{0, 1, ""}})
	if err != nil || after == nil || len(after) > 0 {
		t.Errorf("%v, %v", after, err)
	}
}

// A removed entry comes back with its own text, also after the client has written its file anew.
func TestAnEntryComesBackWithItsComments(t *testing.T) {
	form := Form{Syntax: JSONC}
	text := "{\n  \"mcpServers\": {\n    \"a\": {\"command\": \"x\" /* why */},\n    \"b\": {\n      \"url\": \"y\"\n    }\n  }\n}\n"
	entries, err := ListServers("f", []byte(text), form, inMCP)
	if err != nil {
		t.Fatal(err)
	}
	connected := rewrite(t, text, form, inMCP, []string{"a", "b"}, ours)
	if got := rewrite(t, connected, form, inMCP, []string{"switchboard"}, entries...); got != text {
		t.Errorf("got\n%s", got)
	}
	var anew map[string]any
	if err := json.Unmarshal([]byte(connected), &anew); err != nil {
		t.Fatal(err)
	}
	raw, _ := json.MarshalIndent(anew, "", "\t")
	want := "{\n\t\"mcpServers\": {\n\t\t\"a\": {\"command\": \"x\" /* why */},\n\t\t\"b\": {\n\t\t\t\"url\": \"y\"\n\t\t}\n\t}\n}"
	if got := rewrite(t, string(raw), form, inMCP, []string{"switchboard"}, entries...); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// genSpace makes spaces, and comments where the form has them.
func genSpace(r *rapid.T, label string, comments bool) string {
	kinds := []string{"", " ", "\n", "\n    ", "\r\n\t"}
	if comments {
		kinds = append(kinds, " /* { */ ", " // \"\n", "\n// x\n  ")
	}
	return rapid.SampledFrom(kinds).Draw(r, label)
}

// genObject makes an object of servers in any spelling.
func genJSON(r *rapid.T) (text string, names []string) {
	sp := func() string { return genSpace(r, "space", true) }
	n := rapid.IntRange(0, 4).Draw(r, "servers")
	var b strings.Builder
	b.WriteString("{" + sp() + `"z"` + sp() + ":" + sp() + "1" + sp() + "," + sp() + `"mcpServers"` + sp() + ":" + sp() + "{")
	for i := range n {
		name := string(rune('a' + i))
		names = append(names, name)
		if i > 0 {
			b.WriteString(",")
		}
		b.WriteString(sp() + `"` + name + `"` + sp() + ":" + sp() + "{" + sp() + `"command"` + sp() + ":" + sp() + `"x\u0041"` + sp() + "}" + sp())
	}
	if n > 0 && rapid.Bool().Draw(r, "trailing") {
		b.WriteString("," + sp())
	} else if n == 0 {
		b.WriteString(sp())
	}
	b.WriteString("}" + sp() + "," + sp() + `"y": [1,2 , ]` + sp() + "}" + sp())
	return b.String(), names
}

func genTOML(r *rapid.T) (text string, names []string) {
	eol := rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(r, "eol")
	gap := func() string {
		return rapid.SampledFrom([]string{"", eol, eol + eol, "# c" + eol, eol + "  # [mcp_servers.q]" + eol}).Draw(r, "gap")
	}
	n := rapid.IntRange(0, 4).Draw(r, "servers")
	var b strings.Builder
	b.WriteString(gap() + `model = "x" # c` + eol + gap())
	members := rapid.Bool().Draw(r, "members")
	if members {
		b.WriteString("[mcp_servers]" + eol + gap())
	}
	for i := range n {
		name := string(rune('a' + i))
		names = append(names, name)
		if members {
			b.WriteString(rapid.SampledFrom([]string{name + ` = { command = "x" }`, name + `.command = "x"`}).Draw(r, "member") + eol + gap())
			continue
		}
		b.WriteString("  [mcp_servers." + name + "]" + gap0(r) + eol + gap() + `command = """x` + eol + `[y]"""` + eol + gap())
		if rapid.Bool().Draw(r, "env") {
			b.WriteString("[ mcp_servers . " + name + ".env ]" + eol + gap() + "K = 'v'" + eol)
		}
		if rapid.Bool().Draw(r, "other") {
			b.WriteString("[t" + name + "]" + eol + gap() + "k = 1" + eol)
		}
	}
	text = b.String()
	if rapid.Bool().Draw(r, "cut") {
		text = strings.TrimSuffix(text, eol)
	}
	return text, names
}

func gap0(r *rapid.T) string { return rapid.SampledFrom([]string{"", " # tail"}).Draw(r, "tail") }

// RD-01: every change can be undone to the byte, and an entry that is removed and added again has the same value.
func TestRD01WhatIsTakenOutAndPutBackIsTheSame(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		form, section := Form{Syntax: JSONC}, inMCP
		text, names := "", []string(nil)
		if rapid.Bool().Draw(r, "toml") {
			form.Syntax, section = TOML, inTOML
			text, names = genTOML(r)
		} else {
			text, names = genJSON(r)
		}
		var remove []string
		for _, name := range names {
			if rapid.Bool().Draw(r, "remove "+name) {
				remove = append(remove, name)
			}
		}
		before, err := ListServers("f", []byte(text), form, section)
		if err != nil {
			r.Fatalf("%v in\n%s", err, text)
		}
		splices, err := Rewrite("f", []byte(text), form, section, remove, []Entry{ours})
		if err != nil {
			r.Fatalf("%v in\n%s", err, text)
		}
		after, err := Apply([]byte(text), splices)
		if err != nil {
			r.Fatal(err)
		}
		back, err := Apply(after, Invert([]byte(text), splices))
		if err != nil || string(back) != text {
			r.Fatalf("the inverse gives\n%q\nwant\n%q", back, text)
		}
		var adopted []Entry
		for _, e := range before {
			for _, name := range remove {
				if e.Name == name {
					adopted = append(adopted, e)
				}
			}
		}
		// Put back in the client's own form, as after it has written the file anew.
		if _, err := Rewrite("f", after, form, section, []string{ours.Name}, adopted); err != nil {
			r.Fatalf("%v in\n%s", err, after)
		}
	})
}

func FuzzRewrite(f *testing.F) {
	for _, text := range []string{"{}", `{"mcpServers":{"a":{},"b":{}}}`, "{\n// x\n\"mcpServers\": {\"a\": {},},}", "[mcp_servers.a]\nk=1\n", "mcp_servers.a.b = 1\n[mcp_servers]\nc = {}\n", "[[mcp_servers.a]]\n", "[mcp_servers]\n[x]\n[mcp_servers.a.b]"} {
		f.Add(text, uint8(0), true)
		f.Add(text, uint8(3), false)
	}
	f.Fuzz(func(t *testing.T, text string, syntax uint8, all bool) {
		form, section := Form{Syntax: Syntax(syntax % 4), BOM: true}, inMCP
		if form.Syntax == TOML {
			section = inTOML
		}
		entries, err := ListServers("f", []byte(text), form, section)
		if err != nil {
			return
		}
		var remove []string
		for i, e := range entries {
			if e.Fixed == "" && (all || i == 0) && e.Name != ours.Name {
				remove = append(remove, e.Name)
			}
		}
		// Rewrite itself compares the values of the whole document; an error is a refusal.
		splices, err := Rewrite("f", []byte(text), form, section, remove, []Entry{ours})
		if err != nil {
			return
		}
		after, err := Apply([]byte(text), splices)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Apply(after, Invert([]byte(text), splices)); err != nil || string(back) != text {
			t.Errorf("the inverse of %q is %q", after, back)
		}
		again, err := ListServers("f", after, form, section)
		if err != nil || len(again) != len(entries)-len(remove)+1 {
			t.Errorf("%q became %q: %d servers, %v", text, after, len(again), err)
		}
	})
}
