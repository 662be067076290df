package registry

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/scan"
)

// textOf returns the texts of the remarks with the rule.
func textOf(e Entry, rule RemarkRule) string {
	var all []string
	for _, r := range e.Remarks {
		if r.Rule == rule {
			all = append(all, r.Text)
		}
	}
	return strings.Join(all, "; ")
}

func TestAnEntryHasTheNarrowFieldsOfAServerJSON(t *testing.T) {
	text := `{"server":{"$schema":"https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json","name":"io.github.alice/thing","title":"Thing","description":"Does\n it.",
		"version":"1.2.3","websiteUrl":"https://example.com","repository":{"url":"https://github.com/alice/thing","source":"github"},
		"packages":[
			{"registryType":"pypi","identifier":"thing","version":"1.2.3","transport":{"type":"stdio"}},
			{"registryType":"npm","registryBaseUrl":"https://registry.npmjs.org","identifier":"@alice/thing","version":"1.2.4-rc.1","transport":{"type":"stdio"},"environmentVariables":[
				{"name":"TOKEN","isSecret":true,"description":"a token"},{"name":"PLACE","isRequired":true,"isSecret":false},{"name":"LEVEL","format":"string"},{"name":"LEVEL"}]}],
		"remotes":[{"type":"streamable-http","url":"https://API.example.com/mcp"},{"type":"sse","url":"http://[2001:db8::1]:8080/sse"},{"type":"sse","url":"https://api.example.com/sse"}]},
		"_meta":{"io.modelcontextprotocol.registry/official":{"status":"active","isLatest":true,"publishedAt":"2026-01-01T00:00:00Z"}}}`
	e, err := readEntry(jsontext.Value(text))
	if err != nil {
		t.Fatal(err)
	}
	remarks := e.Remarks
	e.Remarks = nil
	want := Entry{
		Name: "io.github.alice/thing", Version: "1.2.3", Title: "Thing", Description: "Does it.", Package: packagelock.Spec{Name: "@alice/thing", Version: "1.2.4-rc.1"},
		Secrets: []string{"PLACE", "TOKEN"}, Variables: []string{"LEVEL"}, Hosts: []string{"[2001:db8::1]:8080", "api.example.com:443"},
	}
	if !reflect.DeepEqual(e, want) {
		t.Errorf("%+v\nwant %+v", e, want)
	}
	if len(remarks) != 1 || remarks[0].Text != "it has further packages, which are not taken: pypi" || remarks[0].Entry != e.Name || remarks[0].Version != e.Version {
		t.Errorf("%+v", remarks)
	}
}

// ST-04: what would become a command, an argument, a value or a mount is named in a remark, and is in no field.
func TestST04NothingOfARegistryThatCouldBecomeACommandComesOut(t *testing.T) {
	const planted = "planted; rm -rf /"
	p := quote(planted)
	for path, text := range map[string]string{
		"command":                      server("io.github.alice/thing", "command", p, "packages", npmPackage()),
		"args":                         server("io.github.alice/thing", "args", `[`+p+`]`),
		"env":                          server("io.github.alice/thing", "env", `{"A":`+p+`}`),
		"volumes":                      server("io.github.alice/thing", "volumes", `[`+p+`]`),
		"user":                         server("io.github.alice/thing", "user", p),
		"Command":                      server("io.github.alice/thing", "Command", p),
		`"planted\u{202e}"`:            server("io.github.alice/thing", "planted\u202e", p)[0:],
		"packages[0].command":          server("io.github.alice/thing", "packages", npmPackage("command", p)),
		"packages[0].volumes":          server("io.github.alice/thing", "packages", npmPackage("volumes", `{"/":`+p+`}`)),
		"packages[0].runtimeHint":      server("io.github.alice/thing", "packages", npmPackage("runtimeHint", p)),
		"packages[0].fileSha256":       server("io.github.alice/thing", "packages", npmPackage("fileSha256", p)),
		"packages[0].runtimeArguments": server("io.github.alice/thing", "packages", npmPackage("runtimeArguments", `[{"type":"named","name":"--eval","value":`+p+`}]`)),
		"packages[0].packageArguments": server("io.github.alice/thing", "packages", npmPackage("packageArguments", `[{"type":"positional","value":`+p+`}]`)),
		"packages[0].transport.url":    server("io.github.alice/thing", "packages", npmPackage("transport", `{"type":"stdio","url":`+p+`}`)),
		"packages[0].environmentVariables[0].value":         server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"A","value":`+p+`}]`)),
		"packages[0].environmentVariables[0].default":       server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"A","default":`+p+`}]`)),
		"packages[0].environmentVariables[0].variables":     server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"A","variables":{"b":{"value":`+p+`}}}]`)),
		"packages[1].runtimeArguments":                      server("io.github.alice/thing", "packages", `[{"registryType":"pypi"},{"registryType":"oci","identifier":`+p+`,"runtimeArguments":[`+p+`]}]`),
		"remotes[0].headers":                                server("io.github.alice/thing", "remotes", `[{"type":"sse","url":"https://example.com/","headers":[{"name":"A","value":`+p+`}]}]`),
		"remotes[0].variables":                              server("io.github.alice/thing", "remotes", `[{"type":"sse","url":"https://example.com/","variables":{"a":{"value":`+p+`}}}]`),
		"the variable NODE_OPTIONS, which no server gets":   server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"NODE_OPTIONS"}]`)),
		"the variable ld_preload, which no server gets":     server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"ld_preload","isSecret":true}]`)),
		"remotes[0].url names no host that can be read":     server("io.github.alice/thing", "remotes", `[{"type":"sse","url":"https://{planted}.example.com/"}]`),
		"remotes[1].url names no host that can be read":     server("io.github.alice/thing", "remotes", `[{"url":"https://example.com/"},{"url":"file:///planted"}]`),
		"further packages, which are not taken: npm":        server("io.github.alice/thing", "packages", strings.TrimSuffix(npmPackage(), "]")+","+strings.TrimPrefix(npmPackage("identifier", `"planted"`), "[")),
		"further packages, which are not taken: unknown":    server("io.github.alice/thing", "packages", strings.TrimSuffix(npmPackage(), "]")+`,{"registryType":"planted; x"}]`),
		"a registry's words never become a command, so the": server("io.github.alice/thing", "run", p),
	} {
		e, err := readEntry(jsontext.Value(text))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if !strings.Contains(textOf(e, RuleIgnored), path) {
			t.Errorf("%s: no remark: %+v", path, e.Remarks)
		}
		e.Remarks = slices.DeleteFunc(e.Remarks, func(r Remark) bool { return strings.Contains(r.Text, `"planted\u{202e}"`) }) // the name of the member
		if all := fmt.Sprintf("%+v", e); strings.Contains(all, "planted") {
			t.Errorf("%s: it comes out: %s", path, all)
		}
		checkNarrow(t, e)
	}
	many := server("io.github.alice/thing")
	for i := range 50 {
		many = strings.TrimSuffix(many, "}") + fmt.Sprintf(`,"x%02d":1}`, i)
	}
	if e, err := readEntry(jsontext.Value(many)); err != nil || !strings.HasSuffix(textOf(e, RuleIgnored), "x19, and 30 more") {
		t.Errorf("%+v %v", e, err)
	}
}

func TestABadEntryIsRefusedAloneWithItsReason(t *testing.T) {
	rows := map[string][]string{ // by the reason
		`name "" is not of the form`: {server(""), `{}`},
		`is not of the form`: {
			server("thing"), server("io.github.alice/a/b"), server("io.github.alice/thing "), server("io.github.alice/-thing"), server("--eval/thing"), server("io.github.alice/тhing"), server("io.github.alice/" + strings.Repeat("a", 200)),
			server("io.github.alice/thing\u202e"), server("io.github.alice/\u200bthing"), server("io.github.alice/\x1b[31mthing"), server("io.github.alice/thing\n"), server("io.github.alice/\U000e0041thing"), server("io.github.\u2066alice/thing"),
		},
		`name "io.github.alice/\u{1b}[31mthing" is not`: {server("io.github.alice/\x1b[31mthing")},
		"version is missing":                            {server("io.github.alice/thing", "version", `""`), server("io.github.alice/thing", "version", "null"), server("io.github.alice/thing", "packages", npmPackage("version", `""`))},
		"is no name of an npm package":                  {},
		"is not exact; a range":                         {},
		"name is no text":                               {`{"name":1,"version":"1.0.0"}`},
		"version is no text":                            {server("io.github.alice/thing", "version", "1")},
		"title is no text":                              {server("io.github.alice/thing", "title", "[]")},
		"description is no text":                        {server("io.github.alice/thing", "description", "{}")},
		"packages is no list":                           {server("io.github.alice/thing", "packages", "{}")},
		"packages has 17 items":                         {server("io.github.alice/thing", "packages", "["+strings.Repeat("{},", 16)+"{}]")},
		"packages[0] is no object":                      {server("io.github.alice/thing", "packages", "[1]")},
		"packages[0].registryType is":                   {server("io.github.alice/thing", "packages", `[{"registryType":1}]`)},
		"remotes has 17 items":                          {server("io.github.alice/thing", "remotes", "["+strings.Repeat("{},", 16)+"{}]")},
		"remotes[0].url is no text":                     {server("io.github.alice/thing", "remotes", `[{"url":[]}]`)},
		"environmentVariables has 65 items":             {server("io.github.alice/thing", "packages", npmPackage("environmentVariables", "["+strings.Repeat("{},", 64)+"{}]"))},
		"is no name of a variable":                      {},
		"isSecret is neither true":                      {server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":"A","isSecret":"yes"}]`))},
		"transport is no object":                        {server("io.github.alice/thing", "packages", npmPackage("transport", `"stdio"`))},
		"has a name twice":                              {`{"name":"io.github.alice/thing","name":"io.github.alice/other","version":"1.0.0"}`, `{"server":{"name":"io.github.alice/thing","version":"1.0.0","packages":[{"a":1,"a":2}]}}`},
		"is not valid JSON in UTF-8":                    {"{\"name\":\"io.github.alice/\xff\"}", `{"name":"\ud800"}`},
		"nested more than 32 levels":                    {server("io.github.alice/thing", "_meta", strings.Repeat("[", 40)+strings.Repeat("]", 40))},
		"the entry is no object":                        {"1", `"io.github.alice/thing"`, "null", "[]", `{"server":[]}`},
		"_meta is no object":                            {`{"server":` + server("io.github.alice/thing") + `,"_meta":1}`},
		"isLatest is neither true":                      {`{"server":` + server("io.github.alice/thing") + `,"_meta":{"io.modelcontextprotocol.registry/official":{"isLatest":"no"}}}`},
		"stands in the list twice":                      {server("io.github.alice/good")},
	}
	for _, version := range []string{"^1.0.0", "~1.0.0", ">=1.0.0", "1.x", "1.*", "*", "latest", "v1", "v1.0.0", "1", "1.0", "1.0.0 || 2.0.0", "1.0.0 - 2.0.0", "next", "-1.0.0", "1.0.0 ", "1.0.0\u200b", "01.0.0x", "npm:other@1.0.0", "file:/", "1.0.0 --eval"} {
		rows["is not exact; a range"] = append(rows["is not exact; a range"], server("io.github.alice/thing", "version", quote(version)), server("io.github.alice/thing", "packages", npmPackage("version", quote(version))))
	}
	for _, name := range []string{"", "-thing", "--eval", "-e", "@-alice/thing", "@alice/-thing", "Thing", "@alice", "@alice/", "a b", "../thing", "./thing", "https://example.com/a.tgz", "git+ssh://example.com/a", "alice/thing", "npm:thing", "thing@1.0.0", "тhing", "thing\u200b", "thing\n", strings.Repeat("a", 215)} {
		rows["is no name of an npm package"] = append(rows["is no name of an npm package"], server("io.github.alice/thing", "packages", npmPackage("identifier", quote(name))))
	}
	for _, name := range []string{"", "A B", "A=B", "1A", "-A", "A\u202e", "A\x00", "Ä", strings.Repeat("A", 129)} {
		rows["is no name of a variable"] = append(rows["is no name of a variable"], server("io.github.alice/thing", "packages", npmPackage("environmentVariables", `[{"name":`+quote(name)+`}]`)))
	}
	good := server("io.github.alice/good")
	for want, bad := range rows {
		for _, text := range bad {
			r := &reading{bounds: standard, listing: &Listing{}, listed: map[string]bool{}}
			if _, err := r.readPage([]byte(`{"servers":[`+good+","+text+`,`+server("io.github.alice/last")+`]}`), true); err != nil {
				t.Errorf("%s: %v", text, err)
				continue
			}
			if got := names(r.listing); !slices.Equal(got, []string{"io.github.alice/good", "io.github.alice/last"}) || len(r.listing.Refused) != 1 || !strings.Contains(r.listing.Refused[0].Reason, want) {
				t.Errorf("%s: %q, %+v; want %q", text, got, r.listing.Refused, want)
				continue
			}
			if reason := r.listing.Refused[0].Reason; scan.Spell(reason) != reason || len(reason) > 600 {
				t.Errorf("%s: the reason is %q", text, reason)
			}
		}
	}
}

func TestWhatCannotBeTriedStaysWithTheReason(t *testing.T) {
	const hosted, only = "a hosted server cannot be tried in walls", "only npm packages can be tried, and it has another type: "
	remotes := `[{"type":"sse","url":"https://example.com/"}]`
	official := func(meta string) string {
		return `{"server":` + server("io.github.alice/thing", "packages", npmPackage()) + `,"_meta":{"io.modelcontextprotocol.registry/official":` + meta + `}}`
	}
	for _, tt := range []struct{ text, want string }{
		{server("io.github.alice/thing", "packages", npmPackage()), ""},
		{server("io.github.alice/thing", "packages", npmPackage(), "remotes", remotes), ""},
		{server("io.github.alice/thing", "packages", npmPackage("transport", "null")), ""},
		{server("io.github.alice/thing", "packages", npmPackage("registryBaseUrl", `"https://registry.npmjs.org/"`)), ""},
		{official(`{"status":"active","isLatest":true}`), ""},
		{official(`{"status":"deprecated"}`), ""},
		{official(`{"status":"deleted","isLatest":false}`), "the registry has deleted it"},
		{official(`{"status":"active","isLatest":false}`), "the registry lists a newer version of it"},
		{server("io.github.alice/thing", "remotes", remotes), hosted},
		{server("io.github.alice/thing"), "it names neither a package nor an address"},
		{server("io.github.alice/thing", "packages", `[{"registryType":"pypi","identifier":"thing","version":"1"}]`), only + "pypi"},
		{server("io.github.alice/thing", "packages", `[{"registryType":"oci"},{"registryType":"nuget"},{"registryType":"mcpb"},{"registryType":"oci"}]`), only + "mcpb, nuget, oci"},
		{server("io.github.alice/thing", "packages", `[{"registryType":"NPM"}]`), only + "unknown"},
		{server("io.github.alice/thing", "packages", `[{}]`, "remotes", remotes), only + "unknown"},
		{server("io.github.alice/thing", "packages", npmPackage("transport", `{"type":"streamable-http","url":"http://x/"}`)), "only a program that speaks MCP over stdio can be tried, and it speaks streamable-http"},
		{server("io.github.alice/thing", "packages", npmPackage("transport", `{"type":"; rm -rf /"}`)), "only a program that speaks MCP over stdio can be tried, and it speaks something unknown"},
		{server("io.github.alice/thing", "packages", npmPackage("registryBaseUrl", `"https://npm.example.com"`)), "its package is in a registry of packages other than https://registry.npmjs.org, and the same name may be another package elsewhere"},
	} {
		text, want := tt.text, tt.want
		e, err := readEntry(jsontext.Value(text))
		if err != nil || e.Obstacle != want {
			t.Errorf("%s: %q, want %q (%v)", text, e.Obstacle, want, err)
		}
		if deprecated := textOf(e, RuleDeprecated) != ""; deprecated != strings.Contains(text, "deprecated") {
			t.Errorf("%s: %+v", text, e.Remarks)
		}
	}
}

func TestTextsAreCleanedAndCut(t *testing.T) {
	for text, want := range map[string]string{
		"Does \x1b[31mit\x1b[0m.":                         "Does it.",
		"Does \u202eit\u202c.":                            "Does it.",
		"\u200bDo\U000e0041es it.":                        "Does it.",
		"\x1b]8;;https://a/\x07Does it.":                  "Does it.",
		strings.Repeat("ä ", 400):                         strings.Repeat("ä ", 249) + "ä…",
		strings.Repeat("a", 500):                          strings.Repeat("a", 500),
		"Does\n\n" + strings.Repeat("\n", 3000) + "it.\t": "Does it.",
	} {
		e, err := readEntry(jsontext.Value(server("io.github.alice/thing", "description", quote(text))))
		if err != nil || e.Description != want {
			t.Errorf("%q: %q (%v)", text, e.Description, err)
		}
		if said := textOf(e, RuleCleaned) != ""; said != (strings.Join(strings.Fields(text), " ") != want) {
			t.Errorf("%q: %+v", text, e.Remarks)
		}
	}
	e, err := readEntry(jsontext.Value(server("io.github.alice/thing", "title", quote(strings.Repeat("b", 101)))))
	if err != nil || e.Title != strings.Repeat("b", 99)+"…" || !strings.Contains(textOf(e, RuleCleaned), "the title has 101 characters; 99 are kept") {
		t.Errorf("%+v %v", e, err)
	}
}

// checkNarrow reports each field that could be more than its form permits.
func checkNarrow(t interface{ Errorf(string, ...any) }, e Entry) {
	host := regexp.MustCompile(`^(?:[a-z0-9.-]{1,253}|\[[0-9a-f:.]+\]):\d{1,5}$`)
	text := func(what, s string, most int) {
		if clean, _ := scan.Clean(s); clean != s || !utf8.ValidString(s) || utf8.RuneCountInString(s) > most || strings.ContainsAny(s, "\n\t") {
			t.Errorf("the %s is %q", what, s)
		}
	}
	if !namePattern.MatchString(e.Name) || len(e.Name) > maxName || !packagelock.IsVersion(e.Version) {
		t.Errorf("%q %q", e.Name, e.Version)
	}
	text("title", e.Title, MaxTitle)
	text("description", e.Description, MaxDescription)
	text("obstacle", e.Obstacle, 1000)
	if p := e.Package; p != (packagelock.Spec{}) {
		if spec, err := packagelock.ParseSpec(p.String()); err != nil || spec != p || strings.HasPrefix(p.Name, "-") {
			t.Errorf("the package is %q (%v)", p, err)
		}
	} else if e.Obstacle == "" {
		t.Errorf("nothing to try, and no obstacle: %+v", e)
	}
	for _, list := range [][]string{e.Secrets, e.Variables} {
		for _, name := range list {
			if !isVariable(name) {
				t.Errorf("the variable %q", name)
			}
		}
		if !slices.IsSorted(list) || len(list) > maxVariables {
			t.Errorf("the variables are %q", list)
		}
	}
	for _, h := range e.Hosts {
		if !host.MatchString(h) {
			t.Errorf("the host %q", h)
		}
	}
	for _, r := range e.Remarks {
		if scan.Spell(r.Text) != r.Text || len(r.Text) > 16<<10 || r.Entry != e.Name {
			t.Errorf("the remark %+v", r)
		}
	}
}

// A generated server.json has members of the right names, with values of all kinds.
func TestWhateverTheEntryOnlyNarrowFieldsComeOut(t *testing.T) {
	words := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"io.github.alice/thing", "1.0.0", "latest", "npm", "@alice/thing", "-thing", "--eval", "stdio", "TOKEN", "NODE_OPTIONS", "https://example.com:99/", "https://a b/", "http://[::1%25eth0]/", "https://ex\u202eample.com", "\x1b[31m", "deleted",
	}))
	keys := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"server", "_meta", "name", "title", "description", "version", "packages", "remotes", "registryType", "identifier", "transport", "type", "url", "environmentVariables", "isSecret", "isRequired", "command", "env", "volumes", "runtimeArguments",
	}))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaf := rapid.OneOf(rapid.Map(words, func(s string) any { return s }), rapid.Map(rapid.Bool(), func(b bool) any { return b }), rapid.Map(rapid.Int(), func(i int) any { return i }), rapid.Just[any](nil))
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf, rapid.Map(rapid.SliceOfN(value(depth-1), 0, 4), func(l []any) any { return l }), rapid.Map(rapid.MapOfN(keys, value(depth-1), 0, 6), func(m map[string]any) any { return m }))
	}
	rapid.Check(t, func(t *rapid.T) {
		m := map[string]any{"name": "io.github.alice/thing", "version": "1.0.0", "description": words.Draw(t, "description"), "title": words.Draw(t, "title")}
		m["packages"] = []any{map[string]any{
			"registryType": "npm", "identifier": words.Draw(t, "identifier"), "version": words.Draw(t, "version"), keys.Draw(t, "key"): value(2).Draw(t, "value"),
			"environmentVariables": []any{map[string]any{"name": words.Draw(t, "variable"), "isSecret": true, keys.Draw(t, "key"): value(1).Draw(t, "value")}},
		}}
		m["remotes"] = []any{map[string]any{"url": words.Draw(t, "url"), keys.Draw(t, "key"): value(1).Draw(t, "value")}}
		m[keys.Draw(t, "key")] = value(3).Draw(t, "value")
		if rapid.Bool().Draw(t, "without packages") {
			delete(m, "packages")
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if e, err := readEntry(text); err == nil {
			checkNarrow(t, e)
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add([]byte(page("next", server("io.github.alice/thing", "packages", npmPackage()))))
	f.Add([]byte(server("io.github.alice/thing", "remotes", `[{"url":"https://example.com/"}]`)))
	f.Add([]byte(`[{"server":{"name":"a/b"}},{"a":"\ud800"},` + strings.Repeat("[", 50)))
	f.Add([]byte("{\"servers\":[{\"name\":\"\xff\"}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reading{bounds: standard, listing: &Listing{}, listed: map[string]bool{}}
		cursor, err := r.readPage(data, false)
		if err != nil {
			return
		}
		if len(cursor) > maxCursor || len(r.listing.Entries)+r.listing.RefusedCount > MaxEntries {
			t.Errorf("%d bytes of cursor, %d entries", len(cursor), len(r.listing.Entries))
		}
		for _, e := range r.listing.Entries {
			checkNarrow(t, e)
		}
		for _, refused := range r.listing.Refused {
			if scan.Spell(refused.Reason) != refused.Reason {
				t.Errorf("%q", refused.Reason)
			}
		}
	})
}

func TestANameIsNoLongerThanItMayBe(t *testing.T) {
	for length, want := range map[int]bool{maxVariable: true, maxVariable + 1: false} {
		if got := isVariable(strings.Repeat("A", length)); got != want {
			t.Errorf("a variable of %d letters: %t", length, got)
		}
	}
	for length, want := range map[int]bool{maxHost: true, maxHost + 1: false} {
		if _, got := hostOf("https://" + strings.Repeat("a", length)); got != want {
			t.Errorf("a host of %d letters: %t", length, got)
		}
	}
}
