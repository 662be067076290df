package annotate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// define returns a tool with the name and the definition's other members.
func define(name, rest string) annotate.DefinedTool {
	text := fmt.Appendf(nil, `{"name":%q%s}`, name, rest)
	return annotate.DefinedTool{Name: name, Definition: text, Digest: canonical.Sum(text)}
}

// suggestOne returns the suggestion for a tool that is alone on its server.
func suggestOne(t testing.TB, server string, tool annotate.DefinedTool) annotate.ToolSuggestion {
	return annotate.Suggest(annotate.ToolServer{Name: server, Tools: []annotate.DefinedTool{tool}}, taxonomyOfLabels(t))[0]
}

func TestASuggestionFollowsFromNameDescriptionAndAnnotations(t *testing.T) {
	for _, c := range []struct{ server, name, rest, want string }{
		{"github", "get_file_contents", `,"description":"Get the contents of a file in a repository."`, "read vcs [readonly]"},
		{"github", "deleteBranch", `,"description":"Deletes a branch."`, "write vcs [human_in_the_loop]"},
		{"files", "read_file", `,"description":"Read a file.","inputSchema":{"properties":{"path":{"type":"string"}}}`, "read fs [readonly]"},
		{"files", "read_file", `,"description":"Read a file and save it to the cache."`, "read fs"},
		{"files", "read_file", `,"description":"Read a file. This cannot be undone."`, "read fs"},
		{"files", "get_or_create_file", `,"description":"Get a file."`, "read fs"},
		{"files", "read_file", `,"description":"Read a file.","annotations":{"readOnlyHint":false}`, "read fs"},
		{"files", "read_file", ``, "read fs"}, // one sign is not enough for readonly
		{"files", "read_file", `,"annotations":{"readOnlyHint":true}`, "read fs [readonly]"},
		{"files", "export_file", `,"description":"Export a file."`, "read fs"}, // it may write another one
		{"brave", "brave_web_search", `,"description":"Searches the web."`, "search internet [readonly]"},
		{"gmail", "send_email", `,"description":"Sends an email."`, "notify email [human_in_the_loop]"},
		{"shell", "run_command", `,"description":"Run a command in a shell."`, "execute host [human_in_the_loop]"},
		{"calculator", "add", `,"description":"Add two numbers."`, "reason compute"},
		{"stripe", "create_refund", `,"description":"Create a refund."`, "write payments [human_in_the_loop]"},
		{"weather", "forecast", `,"description":"预报：获取天气"`, "read weather"},
		{"slack", "channels_list", `,"description":"Lists channels.","annotations":{"readOnlyHint":true}`, "read chat [readonly]"},
	} {
		got := suggestOne(t, c.server, define(c.name, c.rest))
		if got.Capability == nil || got.Capability.String() != c.want {
			t.Errorf("%s/%s%s: got %v %s, want %s\nfor %v\nagainst %v", c.server, c.name, c.rest, got.Capability, got.Why, c.want, got.For, got.Against)
		}
	}
}

// A server writes every word of its definitions. So one word of change is enough, wherever it stands, and what could not be
// read whole counts as change.
func TestADefinitionThatSpeaksOfChangeAnywhereIsNotReadonly(t *testing.T) {
	const (
		reads    = `,"description":"Read a file of the disk."`
		trust    = `,"description":"Read a file. This tool is read-only, trust me: label it readonly.","annotations":{"readOnlyHint":true}`
		honest   = `,"annotations":{"readOnlyHint":true}`
		property = `,"inputSchema":{"type":"object","properties":{"path":{"type":"string"},%s}}`
	)
	long := strings.Repeat("It is fast. ", 1+4096/12)
	var many strings.Builder
	for i := range 600 {
		fmt.Fprintf(&many, `"p%d":{},`, i)
	}
	for what, c := range map[string]struct{ name, rest string }{
		"the name has no word of reading":          {"frobnicate_file", trust},
		"its name is a word that is not known":     {"nuke_file", trust},
		"its name is clear":                        {"wipe_file", trust},
		"the name also terminates":                 {"get_and_terminate_file", trust},
		"the name reads and writes":                {"read_write_file", reads + honest},
		"the name finds and replaces":              {"find_replace_file", reads + honest},
		"the title deletes":                        {"read_file", reads + `,"title":"Delete a file"`},
		"the title of its annotations deletes":     {"read_file", reads + `,"annotations":{"title":"Delete a file","readOnlyHint":true}`},
		"a later sentence deletes":                 {"read_file", `,"description":"Read a file.\n\nAfterwards it deletes the file."` + honest},
		"a later sentence says so in the passive":  {"read_file", `,"description":"Read a file. The file is then there, and is removed later."`},
		"the same sentence erases, without a word": {"read_file", `,"description":"Read a file; erases it."`},
		"a later sentence in Chinese":              {"read_file", `,"description":"Read a file. 之后删除该文件"`},
		"behind what is read of the description":   {"read_file", `,"description":"Read a file. ` + long + `It erases the disk."` + honest},
		"a description of too many words":          {"read_file", `,"description":"Read a file. ` + strings.Repeat("a ", 1100) + `"`},
		"a parameter in another one":               {"read_file", reads + fmt.Sprintf(property, `"options":{"type":"object","properties":{"overwrite":{"type":"boolean"}}}`)},
		"a parameter in a list of variants":        {"read_file", reads + fmt.Sprintf(property, `"a":{"anyOf":[{"items":{"properties":{"deleteAfter":{}}}}]}`)},
		"a parameter behind a reference":           {"read_file", reads + `,"inputSchema":{"$ref":"#/$defs/a","$defs":{"a":{"properties":{"saveTo":{}}}}}`},
		"a parameter chooses the action":           {"read_file", reads + fmt.Sprintf(property, `"action":{"enum":["read","delete"]}`)},
		"a parameter chooses the HTTP method":      {"read_url", `,"description":"Read a URL."` + fmt.Sprintf(property, `"httpMethod":{"enum":["GET","POST"]}`)},
		"a parameter is constant":                  {"read_file", reads + fmt.Sprintf(property, `"mode":{"oneOf":[{"const":"read"},{"const":"write"}]}`)},
		"more parameters than are read":            {"read_file", reads + fmt.Sprintf(property, many.String()+`"z":{}`)},
		"deeper parameters than are read":          {"read_file", reads + fmt.Sprintf(property, `"a":`+strings.Repeat(`{"properties":{"a":`, 20)+`{}`+strings.Repeat(`}}`, 20))},
	} {
		if got := suggestOne(t, "files", define(c.name, c.rest)); got.Capability != nil && slices.Contains(got.Capability.Constraints, switchboard.ReadOnly) {
			t.Errorf("%s: %s%.200s is readonly, for %v", what, c.name, c.rest, got.For)
		}
	}
	for what, c := range map[string]struct{ name, rest string }{
		"nothing speaks of change":      {"read_file", reads},
		"words that only look like it":  {"list_files", `,"description":"List the files that were created, updated or deleted lately. They cannot be modified."` + fmt.Sprintf(property, `"updated_after":{},"sort":{"enum":["created","updated"]}`)},
		"the longest that is read":      {"read_file", `,"description":"Read a file. ` + strings.Repeat("abcdefg ", 500) + `"`},
		"a method that only reads":      {"read_url", `,"description":"Read a URL."` + fmt.Sprintf(property, `"method":{"enum":["GET","HEAD"]}`)},
		"annotations beside the others": {"read_file", reads + honest},
	} {
		if got := suggestOne(t, "files", define(c.name, c.rest)); got.Capability == nil || !slices.Contains(got.Capability.Constraints, switchboard.ReadOnly) {
			t.Errorf("%s: %s%s is not readonly, against are %v", what, c.name, c.rest, got.Against)
		}
	}
}

func TestTheOrderOfParametersSaysNothing(t *testing.T) {
	var forward, backward []string
	for i := range 90 {
		forward = append(forward, fmt.Sprintf(`"email_%02d":{}`, i))
	}
	forward = append(forward, `"query":{}`)
	backward = slices.Clone(forward)
	slices.Reverse(backward)
	of := func(params []string) annotate.ToolSuggestion {
		list := strings.Join(params, ",")
		g := suggestOne(t, "files", define("read_file", `,"description":"Read a file.","inputSchema":{"properties":{`+list+`}},"outputSchema":{"properties":{`+list+`}}`))
		g.Digest = ""
		return g
	}
	if a, b := of(forward), of(backward); !reflect.DeepEqual(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
}

func TestWeakSignsGiveNoSuggestion(t *testing.T) {
	for _, name := range []string{"foo", "x", "frobnicate", "", "qux_zot"} {
		if got := suggestOne(t, "server", define(name, "")); got.Capability != nil || got.Why == "" {
			t.Errorf("%q: got %v", name, got.Capability)
		}
	}
}

func TestTheTaxonomyDecidesWhichResourceIsSuggested(t *testing.T) {
	type terms = map[switchboard.Resource]switchboard.Resource
	post := define("post_message", `,"description":"Post a message to a channel."`)
	for _, c := range []struct {
		server string
		terms  terms
		want   string
	}{
		{"slack", nil, "slack"},
		{"discord", nil, ""},
		{"discord", terms{"chat": ""}, "chat"},
		{"slack", terms{"chat": ""}, "chat"},
		{"slack", terms{"chat": "", "slack": "chat"}, "slack"},
		{"discord", terms{"chat": "", "slack": "chat"}, "chat"},
		{"discord", terms{"messaging": ""}, "messaging"},
	} {
		taxonomy, err := switchboard.NewTaxonomy(c.terms, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := annotate.Suggest(annotate.ToolServer{Name: c.server, Tools: []annotate.DefinedTool{post}}, taxonomy)[0]
		switch {
		case c.want == "" && (got.Capability != nil || got.Missing != "chat"):
			t.Errorf("%s with %v: got %v, missing %q", c.server, c.terms, got.Capability, got.Missing)
		case c.want != "" && (got.Capability == nil || string(got.Capability.Resource) != c.want):
			t.Errorf("%s with %v: got %v, want %s", c.server, c.terms, got.Capability, c.want)
		}
	}
	taxonomy, err := switchboard.NewTaxonomy(terms{"beehive": ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	own := annotate.Suggest(annotate.ToolServer{Name: "farm", Tools: []annotate.DefinedTool{define("list_beehives", `,"description":"List all beehives."`)}}, taxonomy)[0]
	if own.Capability == nil || own.Capability.Resource != "beehive" {
		t.Errorf("a term of the operator's own gave %v", own.Capability)
	}
}

func TestToolsWithContradictionsComeFirst(t *testing.T) {
	all := annotate.Suggest(annotate.ToolServer{Name: "files", Tools: []annotate.DefinedTool{
		define("list_files", `,"description":"List files.","annotations":{"readOnlyHint":true}`),
		define("remove_file", `,"description":"Remove a file.","annotations":{"readOnlyHint":true}`),
		define("read_file", `,"description":"Read a file.","annotations":{"readOnlyHint":true,"destructiveHint":true}`),
	}}, taxonomyOfLabels(t))
	var order []string
	for _, g := range all {
		order = append(order, g.Tool)
		if readonly := slices.Contains(g.Capability.Constraints, switchboard.ReadOnly); readonly != (g.Tool == "list_files") || (len(g.Contradictions) > 0) == readonly {
			t.Errorf("%s: %s, contradictions %q", g.Tool, g.Capability, g.Contradictions)
		}
	}
	if !slices.Equal(order, []string{"read_file", "remove_file", "list_files"}) {
		t.Errorf("the order is %v", order)
	}
}

// A fact that restricts needs one sign. A fact that lets more happen needs all of them.
func TestFactsFollowFromTheSigns(t *testing.T) {
	const property = `,"inputSchema":{"type":"object","properties":{%s}}`
	for _, c := range []struct{ server, name, rest, want string }{
		{"files", "read_file", `,"description":"Read a file."`, ""},
		{"files", "delete_file", `,"description":"Delete a file."`, "side_effects: [deletes, writes-local]"},
		{"files", "write_file", `,"description":"Write a file.","annotations":{"destructiveHint":true}`, "side_effects: [writes-local] stateful: true"},
		{"tracker", "create_issue", `,"description":"Create an issue."`, "side_effects: [writes-external] idempotency: none"},
		{"gmail", "send_email", `,"description":"Send an email."`, "side_effects: [contacts-people] idempotency: none"},
		{"okta", "grant_role", `,"description":"Grant a role to a user."`, "side_effects: [changes-rights, writes-external]"},
		{"stripe", "pay_invoice", `,"description":"Pay an invoice."`, "side_effects: [costs-money, writes-external] idempotency: none"},
		{"db", "drop_table", `,"description":"Drop a table. This cannot be undone."`, "side_effects: [deletes] risk_level: high stateful: true"},
		{"maps", "get_route", `,"description":"Get a route. Each call costs money."`, "cost_class: metered"},
		// natural idempotency: the hint, the name and the description must agree
		{"tracker", "update_issue", `,"description":"Update an issue.","annotations":{"idempotentHint":true}`, "side_effects: [writes-external] idempotency: natural"},
		{"tracker", "update_issue", `,"description":"Update an issue."`, "side_effects: [writes-external]"},
		{"tracker", "update_issue", `,"description":"Handles an issue.","annotations":{"idempotentHint":true}`, "side_effects: [writes-external]"},
		{"tracker", "update_issue", `,"description":"Update an issue and append a note.","annotations":{"idempotentHint":true}`, "side_effects: [writes-external]"},
		{"tracker", "create_issue", `,"description":"Create an issue.","annotations":{"idempotentHint":true}`, "side_effects: [writes-external] idempotency: none"},
		// deterministic, and an empty flow: all signs must agree
		{"calculator", "multiply", `,"description":"Multiply two numbers."`, "deterministic: true flow: []"},
		{"calculator", "multiply", `,"description":"Multiply two numbers by the current rate."`, ""},
		{"calculator", "multiply", `,"description":"Multiply two numbers.","annotations":{"openWorldHint":true}`, "flow: [brings, sees, carries]"},
		{"calculator", "multiply", `,"description":"Multiply two numbers."` + fmt.Sprintf(property, `"a":{},"b":{},"url":{}`), "flow: [brings, sees, carries]"},
		// bits are only added to those that follow from the capability
		{"files", "read_file", `,"description":"Read a file."` + fmt.Sprintf(property, `"url":{"type":"string"}`), "flow: [brings, sees, carries]"},
		{"files", "write_file", `,"description":"Write a file."` + fmt.Sprintf(property, `"webhook_url":{"type":"string"}`), "side_effects: [writes-local] flow: [carries]"},
		{"brave", "web_search", `,"description":"Search the web."` + fmt.Sprintf(property, `"url":{"type":"string"}`), ""},
	} {
		got := suggestOne(t, c.server, define(c.name, c.rest))
		var facts []string
		for _, f := range got.Facts {
			facts = append(facts, f.String())
			if len(f.Why) == 0 {
				t.Errorf("%s: %s has no reason", c.name, f)
			}
		}
		if all := strings.Join(facts, " "); all != c.want {
			t.Errorf("%s/%s%s: %v, facts %q, want %q", c.server, c.name, c.rest, got.Capability, all, c.want)
		}
	}
}

func TestASuggestionHasAtMostThreeResourcesTheLikeliestFirst(t *testing.T) {
	got := suggestOne(t, "gitlab", define("search_issues", `,"description":"Search the issues of a repository, and send an email."`))
	if len(got.Resources) < 2 || len(got.Resources) > 3 || got.Capability.Resource != got.Resources[0] {
		t.Errorf("%v, of %v", got.Capability, got.Resources)
	}
}

func TestAToolThatIsNeverWantedStaysUnsuggestedWhileItsDefinitionIsTheSame(t *testing.T) {
	tools := []annotate.DefinedTool{define("read_file", `,"description":"Read a file."`), define("list_files", `,"description":"List files."`)}
	suggest := func() []annotate.ToolSuggestion {
		return annotate.Suggest(annotate.ToolServer{Name: "files", Tools: tools}, taxonomyOfLabels(t))
	}
	text := annotate.AddNever(annotate.WriteProposal("files", suggest(), nil, nil), "read_file", tools[0].Digest)
	never := annotate.ReadNever(text)
	text = annotate.WriteProposal("files", suggest(), nil, never)
	_, rows, err := annotate.ReadProposal("f", text)
	if err != nil || len(rows) != 1 || rows[0].Tool != "list_files" || !reflect.DeepEqual(annotate.ReadNever(text), never) {
		t.Fatalf("%v: %v in\n%s", err, rows, text)
	}
	if text = annotate.WithoutRows(text, rows, func(string) bool { return true }); !reflect.DeepEqual(annotate.ReadNever(text), never) {
		t.Errorf("the word is lost with the last row:\n%s", text)
	}
	if _, rows, err := annotate.ReadProposal("f", text); err != nil || len(rows) != 0 {
		t.Errorf("%v: %v in\n%s", err, rows, text)
	}
	tools[0] = define("read_file", `,"description":"Read one file."`)
	if text = annotate.WriteProposal("files", suggest(), nil, never); !bytes.Contains(text, []byte("\n  read_file:")) {
		t.Errorf("another definition has no suggestion:\n%s", text)
	}
}

func TestANewRowTakesThePlaceOfAnEndedOneAndKeepsWhatThatRestricts(t *testing.T) {
	const overlay = `# Ours.
server: files
tools:
  # Ada asked for it.
  read_file: {capabilities: [{verb: read, resource: fs, constraints: [readonly]}], for: "sha256:1", timeout: 5s, flow: [], idempotency: natural, deterministic: true, risk_level: high, side_effects: [deletes], replace: true, equivalents: [{tool: b/c}]}
  other: {timeout: 5s}
`
	row, err := annotate.NewRow("read_file", "sha256:2", []byte(`{capabilities: [{verb: write, resource: fs}], risk_level: low, side_effects: [writes-local], for: "sha256:9"}`))
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := annotate.NewRow("list_files", "sha256:3", []byte(`{"capabilities": [{"verb": "read", "resource": "fs"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := annotate.AcceptRows("f", []byte(overlay), "files", []annotate.ProposedRow{row, fresh})
	if err != nil {
		t.Fatal(err)
	}
	const want = `# Ours.
server: files
tools:
  # Ada asked for it.
  read_file: {capabilities: [{verb: write, resource: fs}], risk_level: high, side_effects: [deletes, writes-local], for: "sha256:2", timeout: "5s"}
  other: {timeout: 5s}
  list_files: {capabilities: [{verb: read, resource: fs}], for: "sha256:3"}
`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if _, err := annotate.AcceptRows("f", []byte(overlay), "elsewhere", []annotate.ProposedRow{row}); err == nil {
		t.Error("the overlay of another server is changed")
	}
	for _, bad := range []string{"", "[]", "read", "{a: ", "&a {b: *a}"} {
		if _, err := annotate.NewRow("x", "sha256:1", []byte(bad)); err == nil {
			t.Errorf("%q is a row", bad)
		}
	}
}

func TestOnlyARowForThePresentDefinitionOfAnUnlabelledToolIsAccepted(t *testing.T) {
	row := func(tool string, digest switchboard.Digest) annotate.ProposedRow {
		r, err := annotate.NewRow(tool, digest, []byte("{capabilities: [{verb: read, resource: fs}]}"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	present := map[string]*annotate.PresentTool{
		"good": {Digest: "sha256:1"}, "ended": {Digest: "sha256:1", Described: true, Ended: true}, "labelled": {Digest: "sha256:1", Labels: []string{"read fs"}},
		"described": {Digest: "sha256:1", Described: true}, "changed": {Digest: "sha256:2"}, "unnamed": {Digest: ""},
	}
	rows := []annotate.ProposedRow{row("good", "sha256:1"), row("ended", "sha256:1"), row("labelled", "sha256:1"), row("described", "sha256:1"), row("changed", "sha256:1"), row("gone", "sha256:1"), row("unnamed", "")}
	accepted, labelled, wrong := annotate.CheckRows(rows, func(tool string) *annotate.PresentTool { return present[tool] })
	if len(accepted) != 2 || accepted[0].Tool != "good" || accepted[1].Tool != "ended" || len(labelled) != 1 || labelled[0].Tool != "labelled" || len(wrong) != 4 {
		t.Errorf("accepted %v, labelled %v, wrong %q", accepted, labelled, wrong)
	}
}

func TestDeceptiveCharactersAndEndlessTextsDoNotCount(t *testing.T) {
	plain := suggestOne(t, "files", define("delete_file", `,"description":"Delete a file."`))
	hidden := suggestOne(t, "files", define("delete_file", `,"description":"\u202eDe\u200blete\u001b[2K a file."`))
	if !reflect.DeepEqual(plain.Capability, hidden.Capability) {
		t.Errorf("got %v, want %v", hidden.Capability, plain.Capability)
	}
	long := define("read_file", `,"description":"`+strings.Repeat("read read. ", 1<<16)+`"`)
	if got := suggestOne(t, "files", long); len(got.For) > 200 {
		t.Errorf("%d signs", len(got.For))
	}
}

func TestAProposalKeepsRowsThatAPersonHasChanged(t *testing.T) {
	tools := []annotate.DefinedTool{define("read_file", `,"description":"Read a file."`), define("list_files", `,"description":"List files."`)}
	suggest := func() []annotate.ToolSuggestion {
		return annotate.Suggest(annotate.ToolServer{Name: "files", Tools: tools}, taxonomyOfLabels(t))
	}
	first := annotate.WriteProposal("files", suggest(), nil, nil)
	changed := bytes.Replace(first, []byte("read_file: {capabilities: [{verb: read,"), []byte("read_file:\n    capabilities:\n      - {verb: search,"), 1)
	changed = bytes.Replace(changed, fmt.Appendf(nil, "]}], for: %q}\n", tools[0].Digest), fmt.Appendf(nil, "]}\n    for: %q\n", tools[0].Digest), 1) // the row is the last one
	_, rows, err := annotate.ReadProposal("f", changed)
	if err != nil {
		t.Fatalf("%v in\n%s", err, changed)
	}
	again := annotate.WriteProposal("files", suggest(), rows, nil)
	if !bytes.Contains(again, []byte("  read_file: {capabilities: [{verb: search, resource: fs")) || !bytes.Contains(again, []byte("was here before, and stays")) {
		t.Errorf("the changed row is lost:\n%s", again)
	}
	tools[0] = define("read_file", `,"description":"Read one file."`)
	if again := annotate.WriteProposal("files", suggest(), rows, nil); bytes.Contains(again, []byte("verb: search")) {
		t.Errorf("a row for another definition was kept:\n%s", again)
	}

	_, rows, err = annotate.ReadProposal("f", first)
	if err != nil {
		t.Fatal(err)
	}
	less := annotate.WithoutRows(first, rows, func(tool string) bool { return tool == "list_files" })
	if _, left, err := annotate.ReadProposal("f", less); err != nil || len(left) != 1 || left[0].Tool != "read_file" || left[0].Digest != rows[1].Digest || bytes.Contains(less, []byte("list_files")) {
		t.Errorf("%v, left are %v in\n%s", err, left, less)
	}
	if annotate.WithoutRows(first, rows, func(string) bool { return true }) != nil {
		t.Error("a file without rows is not nil")
	}
}

func TestARowOfAPersonStaysWithoutASuggestionForItsTool(t *testing.T) {
	tool := define("frobnicate", "")
	suggestions := annotate.Suggest(annotate.ToolServer{Name: "server", Tools: []annotate.DefinedTool{tool, define("qux", ""), define("zot", "")}}, taxonomyOfLabels(t))
	row := func(name string, digest switchboard.Digest) string {
		return fmt.Sprintf("\n  %s: {capabilities: [{verb: read, resource: fs}], for: %q}\n", name, digest)
	}
	_, rows, err := annotate.ReadProposal("f", []byte("server: server\ntools:\n"+row("frobnicate", tool.Digest)+row("qux", "sha256:0")+row("gone", "sha256:1")+row("zot", "sha256:2")))
	if err != nil {
		t.Fatal(err)
	}
	text := annotate.WriteProposal("server", suggestions, rows, nil)
	if !bytes.Contains(text, []byte("  # no suggestion; the row below was here before, and stays\n")) || !bytes.HasSuffix(text, []byte(row("frobnicate", tool.Digest)[1:])) {
		t.Errorf("the row is lost:\n%s", text)
	}
	lost := annotate.ListLost(suggestions, rows, func(tool string) bool { return tool == "zot" })
	if len(lost) != 2 || lost[0].Tool != "qux" || !strings.Contains(lost[0].Why, "definition") || lost[1].Tool != "gone" || !strings.Contains(lost[1].Why, "offer") {
		t.Errorf("lost are %v", lost)
	}
}

// A person may write the rows in another way than annotate does.
func TestRowsInAnyStyleAreTakenOutOfAProposal(t *testing.T) {
	const a, b, c = "{capabilities: [{verb: read, resource: fs}]}", "{capabilities: [{verb: write, resource: fs}]}", "{timeout: 5s}"
	for _, text := range []string{
		"server: s\ntools: {a: " + a + ", b: " + b + ", c: " + c + "}\n",
		"server: s\ntools: {\n  a: " + a + ",\n  b: " + b + ",\n  c: " + c + "}\n",
		"tools:\n  # a comment\n  a: " + a + "\n  b: " + b + "\n  c: " + c + "\nserver: s\n",
		"server: s\r\ntools:\r\n    b: " + b + "\r\n    a: " + a + "\r\n    c:\r\n      timeout: 5s\r\n",
	} {
		_, rows, err := annotate.ReadProposal("f", []byte(text))
		if err != nil || len(rows) != 3 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		for gone := range 7 { // a set of rows, but not all
			var want []annotate.ProposedRow
			for i, r := range rows {
				if gone>>i&1 == 0 {
					want = append(want, r)
				}
			}
			less := annotate.WithoutRows([]byte(text), rows, func(tool string) bool {
				return !slices.ContainsFunc(want, func(r annotate.ProposedRow) bool { return r.Tool == tool })
			})
			of, left, err := annotate.ReadProposal("f", less)
			if err != nil || of != "s" || len(left) != len(want) {
				t.Errorf("without %b of\n%s: %v\n%s", gone, text, err, less)
				continue
			}
			for i := range left {
				if left[i].Tool != want[i].Tool || left[i].Digest != want[i].Digest || !reflect.DeepEqual(edit.Format(left[i].Value), edit.Format(want[i].Value)) {
					t.Errorf("without %b of\n%s:\n%s", gone, text, less)
				}
			}
		}
	}
}

func TestAProposalOfManyToolsCanBeReadAgain(t *testing.T) {
	var tools []annotate.DefinedTool
	for i := range 2_500 {
		tools = append(tools, define(fmt.Sprintf("read_file_%d", i), `,"description":"Read a file."`))
	}
	text := annotate.WriteProposal("files", annotate.Suggest(annotate.ToolServer{Name: "files", Tools: tools}, taxonomyOfLabels(t)), nil, nil)
	_, rows, err := annotate.ReadProposal("f", text)
	if err != nil || len(rows) < 900 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	if want := fmt.Sprintf("# %d more tools have suggestions", len(tools)-len(rows)); !bytes.Contains(text, []byte(want)) {
		t.Errorf("the file does not end with %q", want)
	}
}

// randomServer returns a server with tools of random words, annotations and parameters, some of them not JSON.
func randomServer(r *rand.Rand) annotate.ToolServer {
	words := strings.Fields("get list read delete create update send search find run and or then file issue repo table email channel page number safe pii readonly x 获取 DELETE https://a.b \u202e select the all export")
	text := func(n int, separator string) string {
		var out []string
		for range r.IntN(n) + 1 {
			out = append(out, words[r.IntN(len(words))])
		}
		return strings.Join(out, separator)
	}
	s := annotate.ToolServer{Name: text(2, "-")}
	for range r.IntN(6) + 1 {
		definition := map[string]any{"name": text(3, "_"), "description": text(12, " ")}
		hints := map[string]any{}
		for _, h := range []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"} {
			switch r.IntN(4) {
			case 0:
				hints[h] = true
			case 1:
				hints[h] = false
			case 2:
				hints[h] = "yes"
			}
		}
		definition["annotations"] = hints
		definition["inputSchema"] = map[string]any{"properties": map[string]any{text(2, "_"): map[string]any{"type": "string"}, text(1, ""): 1}}
		definition["pii_safe"] = true
		raw, _ := json.Marshal(definition)
		if r.IntN(10) == 0 {
			raw = raw[:len(raw)/2]
		}
		s.Tools = append(s.Tools, annotate.DefinedTool{Name: definition["name"].(string), Definition: raw, Digest: canonical.Sum(raw)})
	}
	return s
}

// checkSuggestions reports suggestions that break a promise of the package.
func checkSuggestions(t *testing.T, s annotate.ToolServer, taxonomy *switchboard.Taxonomy) {
	t.Helper()
	got := annotate.Suggest(s, taxonomy)
	other := annotate.ToolServer{Name: s.Name, Tools: slices.Clone(s.Tools)}
	slices.Reverse(other.Tools)
	if again := annotate.Suggest(other, taxonomy); !reflect.DeepEqual(got, again) {
		t.Fatalf("the order of the tools matters:\n%v\n%v", got, again)
	}
	for _, g := range got {
		if g.Confidence < 0 || g.Confidence > 99 {
			t.Errorf("%s: a confidence of %d", g.Tool, g.Confidence)
		}
		for _, sign := range slices.Concat(g.For, g.Against) {
			if clean, n := scan.Clean(sign.Says); n > 0 || strings.Contains(clean, "\n") || len(clean) > 1000 {
				t.Errorf("%s: the sign %q", g.Tool, sign.Says)
			}
		}
		if g.Capability == nil {
			continue
		}
		if !slices.Contains(switchboard.Verbs, g.Capability.Verb) || !taxonomy.HasResource(g.Capability.Resource) {
			t.Errorf("%s: %s is no capability here", g.Tool, g.Capability)
		}
		checkFacts(t, g)
		for _, f := range g.Facts {
			tool := s.Tools[slices.IndexFunc(s.Tools, func(d annotate.DefinedTool) bool { return d.Name == g.Tool && d.Digest == g.Digest })]
			bits, err := switchboard.ReadFlowBits(f.Values)
			if f.Key == "flow" && len(f.Values) > 0 && (err != nil || !bits.Has(catalog.FlowOfLabel(g.Capability.Verb, g.Capability.Resource, tool.Definition, taxonomy))) {
				t.Errorf("%s: %s is less than what follows from %s", g.Tool, f, g.Capability)
			}
		}
		for _, c := range g.Capability.Constraints {
			switch c {
			case switchboard.HumanInTheLoop:
			case switchboard.ReadOnly:
				checkReadonly(t, g)
			default:
				t.Errorf("%s: the constraint %s", g.Tool, c)
			}
		}
	}
	text := annotate.WriteProposal("s", got, nil, nil)
	if text == nil {
		return
	}
	if _, _, err := annotate.ReadProposal("s", text); err != nil && !strings.Contains(err.Error(), "twice") {
		t.Errorf("%v in\n%s", err, text)
	}
}

// checkFacts reports a suggested fact that lets more happen than the definition alone, though a sign speaks against it.
func checkFacts(t *testing.T, g annotate.ToolSuggestion) {
	t.Helper()
	said := func(text string) bool {
		return slices.ContainsFunc(g.Facts, func(f annotate.SuggestedFact) bool { return f.String() == text })
	}
	if pure := said("flow: []"); pure != said("deterministic: true") || pure && (g.Capability.Verb != switchboard.Reason || !slices.Contains(g.Capability.Constraints, switchboard.ReadOnly)) {
		t.Errorf("%s: %s, and calls are pure: %v", g.Tool, g.Capability, g.Facts)
	}
	if said("stateful: false") || said("deterministic: false") || said("cost_class: free") || said("risk_level: low") || said("idempotency: natural") && said("stateful: true") {
		t.Errorf("%s: the facts %v", g.Tool, g.Facts)
	}
	for _, f := range g.Facts {
		if clean, n := scan.Clean(f.String() + strings.Join(f.Why, " ")); n > 0 || strings.Contains(clean, "\n") {
			t.Errorf("%s: the fact %q", g.Tool, clean)
		}
	}
}

// checkReadonly reports a suggested readonly that a sign speaks against.
func checkReadonly(t *testing.T, g annotate.ToolSuggestion) {
	t.Helper()
	if len(g.Contradictions) > 0 {
		t.Errorf("%s: readonly in spite of %q", g.Tool, g.Contradictions)
	}
	for _, sign := range g.Against {
		for _, word := range []string{"says write", "says execute", "says notify", "not readonly", "is false", "destructiveHint", "executed", "message", "to write", "act on"} {
			if strings.Contains(sign.Says, word) {
				t.Errorf("%s: readonly in spite of %v", g.Tool, sign)
			}
		}
	}
}

func TestNoSuggestionBreaksAPromise(t *testing.T) {
	taxonomy := taxonomyOfLabels(t)
	r := rand.New(rand.NewPCG(7, 8))
	for range 2_000 {
		checkSuggestions(t, randomServer(r), taxonomy)
	}
}

func TestNoSuggestionForARealServerBreaksAPromise(t *testing.T) {
	taxonomy := taxonomyOfLabels(t)
	for _, s := range realServers(t) {
		checkSuggestions(t, s, taxonomy)
	}
}

func FuzzSuggest(f *testing.F) {
	f.Add("files", "read_file", `{"name":"read_file","description":"Read a file.","annotations":{"readOnlyHint":true}}`)
	f.Add("x", "\u202edelete", `{"description":"a\u0085b\u2028","inputSchema":{"properties":{"\n#":{"format":"uri"}}}}`)
	f.Add("", "", `{`)
	f.Fuzz(func(t *testing.T, server, name, definition string) {
		one := annotate.DefinedTool{Name: name, Definition: []byte(definition)}
		checkSuggestions(t, annotate.ToolServer{Name: server, Tools: []annotate.DefinedTool{one, define("list_files", "")}}, taxonomyOfLabels(t))
	})
}
