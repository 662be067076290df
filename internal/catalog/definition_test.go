package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// offer builds one server with these definitions.
func offer(t testing.TB, tools ...string) *catalog.Snapshot {
	t.Helper()
	return world{tools: tools}.build(t)
}

// TP-05 (a name that looks like another name), TP-06.
func TestNamesThatLookLikeOthersAreRefused(t *testing.T) {
	for _, name := range []string{
		"search", "get_user", "a.b-c", "X", "0", "get status", "nasa/apod", "nasa/mars-rover", "Users Tool",
		"长亭 IP 情报查询", "${PREFIX}_make_request", "検索する", "ツール", "검색", "a'b\"c\\d", strings.Repeat("a", 128),
	} {
		s := offer(t, define(name, ""))
		if tool := only(t, s); tool.ID.Name != name || len(s.Faults()) != 0 {
			t.Errorf("name %q: tool %v, faults %q", name, tool.ID, texts(s.Faults()))
		}
	}
	for _, tt := range []struct{ why, name string }{
		{"empty", ""},
		{"too long", strings.Repeat("a", 129)},
		{"a megabyte", strings.Repeat("a", 300_000)},
		{"Cyrillic o", "g\u043e\u043egle_search"},
		{"full-width", "\uff53earch"},
		{"long s", "\u017fearch"},
		{"Kelvin sign", "\u212aill"},
		{"ligature, equal under NFKC", "\ufb01nd"},
		{"decomposed", "cafe\u0301"},
		{"zero-width space", "sea\u200brch"},
		{"zero-width non-joiner", "sea\u200crch"},
		{"zero-width joiner", "sea\u200drch"},
		{"byte order mark", "\ufeffsearch"},
		{"soft hyphen", "sea\u00adrch"},
		{"no-break space", "get\u00a0status"},
		{"ideographic space", "get\u3000status"},
		{"bidi embedding", "sea\u202arch"},
		{"bidi override", "\u202ehcraes"},
		{"bidi isolate", "\u2066search\u2069"},
		{"tag characters", "search\U000e0073\U000e0065"},
		{"variation selector", "\u60c5\ufe0e"},
		{"variation selector 17", "\u60c5\U000e0100"},
		{"compatibility ideograph", "\uf900"},
		{"half-width katakana", "\uff76"},
		{"combining kana mark", "\u304b\u3099"},
		{"jamo", "\u1100\u1161"},
		{"NUL", "search\x00"},
		{"escape", "\x1b[2Jsearch"},
		{"C1 control", "a\u0085b"},
		{"newline", "a\nb"},
		{"DEL", "a\x7f"},
		{"space at the end", "search "},
		{"space at the beginning", " search"},
		{"two spaces", "get  status"},
		{"what patterns are made of", "*"},
		{"private use", "\ue000"},
		{"emoji", "\U0001f50d"},
	} {
		raw := fmt.Sprintf(`{"inputSchema":{},"name":"%s"}`, escape(tt.name))
		s := offer(t, raw, define("good", ""))
		if got := only(t, s).ID.Name; got != "good" {
			t.Errorf("%s: %q is still offered", tt.why, got)
		}
		f := texts(s.Faults())
		if len(f) != 1 || !strings.Contains(f[0], "name: ") || len(f[0]) > 400 {
			t.Errorf("%s: faults = %.500q", tt.why, f)
		}
		// One character is shown as it is: see TestTheFaultShowsTheCharacterThatANameMayNotHave.
		for _, r := range strings.Join(f, "") {
			if r != '…' && r != ' ' && !unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) {
				t.Errorf("%s: the fault shows %+q as it is", tt.why, r)
			}
		}
	}
}

func TestTheFaultShowsTheCharacterThatANameMayNotHave(t *testing.T) {
	for name, want := range map[string]string{
		"l\u00f6schen":           `has the character "ö" (U+00F6), which is not allowed in names`,
		"g\u043eogle":            `has the character "о" (U+043E), which is not allowed in names`,
		"\U0001f50d":             `has the character "🔍" (U+1F50D), which is not allowed in names`,
		"a*":                     `has the character "*" (U+002A), which is not allowed in names`,
		"sea\u200brch":           "has the character U+200B, which is not allowed in names",
		"cafe\u0301":             "has the character U+0301, which is not allowed in names",
		"get\u00a0status":        "has the character U+00A0, which is not allowed in names",
		"a\u3164b":               "has the character U+3164, which is not allowed in names",
		"a\u2800b":               "has the character U+2800, which is not allowed in names",
		"a\nb":                   "has the character U+000A, which is not allowed in names",
		"search\U000e0073":       "has the character U+E0073, which is not allowed in names",
		"\ue000":                 "has the character U+E000, which is not allowed in names",
		"\u202ehcraes":           "has the character U+202E, which is not allowed in names",
		"a\u0085b":               "has the character U+0085, which is not allowed in names",
		strings.Repeat("a", 129): "is 129 bytes long; at most 128 are allowed",
		"a\xffb":                 "is not valid UTF-8",
	} {
		if got := catalog.CheckName(name); got != want {
			t.Errorf("%+q %s; want %s", name, got, want)
		}
	}
}

// escape writes s as a JSON string in ASCII.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		case r < ' ' || r > '~' || r == '"' || r == '\\':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func TestADefinitionThatCannotBeReadWithCertaintyIsRefused(t *testing.T) {
	schema := func(s string) string { return `{"name":"t","inputSchema":` + s + `}` }
	for _, tt := range []struct {
		name, raw, want string
	}{
		{"not JSON", `{"name":"t"`, "is not strict JSON"},
		{"nothing", ``, "cannot be read"},
		{"two values", schema(`{}`) + `{}`, "something follows the value"},
		{"a list", `["t"]`, "the definition is a list; want an object"},
		{"null", `null`, "the definition is null; want an object"},
		{"a byte order mark", "\ufeff" + schema(`{}`), "is not strict JSON"},
		{"bad UTF-8", "{\"name\":\"t\",\"description\":\"\xff\",\"inputSchema\":{}}", "is not strict JSON"},
		{"a lone surrogate", `{"name":"t","description":"\ud800","inputSchema":{}}`, "is not strict JSON"},
		{"a name twice, deep", schema(`{"properties":{"a":{"type":"string","type":"integer"}}}`), `duplicate object member name at "/inputSchema/properties/a/type"`},
		{"a name twice, one escaped", `{"name":"t","n\u0061me":"danger","inputSchema":{}}`, `duplicate object member name`},
		{"no name", `{"inputSchema":{}}`, "name: is missing"},
		{"a name that is no string", `{"name":7,"inputSchema":{}}`, "name: is a number; want a string"},
		{"a name in another case besides", `{"name":"t","Name":"danger","inputSchema":{}}`, `"Name" is not a field here; did you mean "name"?`},
		{"a schema under a name that folds to ours", `{"name":"t","inputSchema":{},"input\u017fchema":{}}`, `"input\u017fchema" is not a field here; did you mean "inputSchema"?`},
		{"_meta in another case", `{"name":"t","inputSchema":{},"_Meta":{}}`, `"_Meta" is not a field here; did you mean "_meta"?`},
		{"no schema", `{"name":"t"}`, "inputSchema: is missing"},
		{"a schema that is no object", schema(`true`), "inputSchema: is a boolean; want a JSON Schema object"},
		{"an output schema that is no object", `{"name":"t","inputSchema":{},"outputSchema":[]}`, "outputSchema: is a list; want a JSON Schema object"},
		{"two that differ under one name", schema(`{}`) + "\x00" + schema(`{"required":[]}`), "name: belongs to more than one definition"},

		{"TP-09 a description of 1 MB", `{"name":"t","description":"` + strings.Repeat("x", 1<<20) + `","inputSchema":{}}`, `tool "t", tool: the definition is 1048622 bytes long; at most 524288 are allowed`},
		{"TP-09 10,000 properties", schema(`{"properties":{` + members(10_000, `{}`) + `}}`), "more than 2048 members or elements in one value"},
		{"more values than anybody needs", schema(`{"properties":{` + members(90, `{"enum":[`+strings.Repeat("1,", 99)+`1]}`) + `}}`), "more than 8192 values"},
		{"JS-05 deeper than 61", schema(strings.Repeat(`{"not":`, 60) + `{}` + strings.Repeat(`}`, 60)), `tool "t", tool: cannot be read: more than 61 objects and lists within each other`},
		{"JS-05 900 deep, and the name behind that", `{"inputSchema":` + strings.Repeat(`{"not":`, 898) + `{}` + strings.Repeat(`}`, 898) + `,"name":"t"}`, `tool "t", tool: cannot be read: more than 61 objects and lists within each other`},

		{"TP-10 a credential's name", header(`"type":"string","x-mcp-header":"Authorization"`), `inputSchema.properties.a.x-mcp-header: "Authorization" is the name of a header that has another meaning`},
		{"TP-10 two lines", header(`"type":"string","x-mcp-header":"X\r\nY"`), `"X\r\nY" is not the name of a header`},
		{"TP-10 twice, by case", schema(`{"properties":{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"string","x-mcp-header":"REGION"}}}`), `inputSchema.properties.b.x-mcp-header: "REGION" is given twice`},
		{"TP-10 under anyOf", schema(`{"anyOf":[{"properties":{"a":{"type":"string","x-mcp-header":"Region"}}}]}`), `inputSchema.anyOf[0].properties.a.x-mcp-header: is in a schema that is not reached through properties alone`},
		{"TP-10 under items", header(`"items":{"type":"string","x-mcp-header":"Region"}`), "is in a schema that is not reached through properties alone"},
		{"TP-10 under $defs", schema(`{"$defs":{"d":{"type":"string","x-mcp-header":"Region"}}}`), "is in a schema that is not reached through properties alone"},
		{"TP-10 where only a reference leads", schema(`{"properties":{"a":{"$ref":"#/other/d"}},"other":{"d":{"type":"string","x-mcp-header":"Region"}}}`), "is in a schema that is not reached through properties alone"},
		{"TP-10 at the root", schema(`{"type":"object","x-mcp-header":"Region"}`), "is in a schema that is not reached through properties alone"},
		{"TP-10 empty", header(`"type":"string","x-mcp-header":""`), "x-mcp-header: is empty"},
		{"TP-10 not a string", header(`"type":"string","x-mcp-header":["A"]`), "x-mcp-header: is a list; want a string"},
		{"TP-10 too long", header(`"type":"string","x-mcp-header":"` + strings.Repeat("A", 65) + `"`), "x-mcp-header: is 65 bytes long"},
		{"TP-10 on an object", header(`"type":"object","x-mcp-header":"Region"`), "not of type string, integer or boolean"},
		{"TP-10 on a number", header(`"type":"number","x-mcp-header":"Region"`), "not of type string, integer or boolean"},
		{"TP-10 on a string or a list", header(`"type":["string","array"],"x-mcp-header":"Region"`), "not of type string, integer or boolean"},
		{"TP-10 on anything", header(`"x-mcp-header":"Region"`), "not of type string, integer or boolean"},

		{"RX-08 itself", schema(`{"$ref":"#"}`), "inputSchema: refers to itself without end"},
		{"RX-08 itself, by an empty reference", schema(`{"allOf":[{"$ref":""}]}`), "refers to itself without end"},
		{"RX-08 each other", schema(`{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[{"$ref":"#/$defs/a"}]}}}`), "refers to itself without end"},
		{"RX-08 each other, where nobody begins", schema(`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"not":{"$ref":"#/%24defs/a"}}}}`), "refers to itself without end"},
		{"RX-08 each other, by anchors", schema(`{"$defs":{"a":{"$anchor":"A","$ref":"#B"},"b":{"$dynamicAnchor":"B","$dynamicRef":"#A"}}}`), "refers to itself without end"},
		{"RX-08 each other, where no schema stands", schema(`{"properties":{"x":{"$ref":"#/components/a~1b"}},"components":{"a/b":{"if":{"$ref":"#/components/c/0"}},"c":[{"$ref":"#/components/a~1b"}]}}`), "refers to itself without end"},
		{"RX-08 22 times doubled", schema(doubled(22)), "inputSchema: expands to more than 100000 schemas when references are followed"},
		{"RX-08 22 times doubled, through properties", schema(strings.NewReplacer(`"anyOf":[{`, `"properties":{"l":{`, `},{`, `},"r":{`, `}]`, `}}`).Replace(doubled(22))), "expands to more than 100000 schemas"},
		{"RX-08 10,000 $defs", schema(`{"$defs":{` + members(10_000, `{}`) + `}}`), "more than 2048 members or elements in one value"},
		{"RX-08 a pattern of 10 KB", header(`"type":"string","pattern":"` + strings.Repeat("a?", 5_000) + `"`), "inputSchema.properties.a.pattern: is 10002 bytes long; at most 1024 are allowed"},
		{"RX-08 a pattern of 10 KB as a name", schema(`{"patternProperties":{"` + strings.Repeat("a?", 5_000) + `":{}}}`), "has a pattern of 10000 bytes"},
		{"RX-08 in the output", `{"name":"t","inputSchema":{},"outputSchema":{"$ref":"#"}}`, "outputSchema: refers to itself without end"},
		{"RX-08, SS-06 a file", header(`"$ref":"file:///etc/passwd"`), `inputSchema.properties.a.$ref: refers to "file:///etc/passwd"; only references within the schema, which begin with #, are followed`},
		{"RX-08, SS-06 a URL", header(`"$ref":"http://169.254.169.254/"`), "only references within the schema"},
		{"RX-08, SS-06 a relative reference", header(`"$dynamicRef":"other.json#/a"`), "only references within the schema"},
		{"RX-08 an escaped reference", header(`"\u0024ref":"http://x/"`), "only references within the schema"},
		{"a reference that is no string", header(`"$ref":{}`), "$ref: is an object; want a string"},
		{"references under another $id", schema(`{"properties":{"a":{"$ref":"#/x"}},"$defs":{"b":{"$id":"http://x/","$ref":"#/y"}}}`), "inputSchema.$defs.b.$id: is an $id within the schema"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tools := strings.Split(tt.raw, "\x00")
			start := time.Now()
			s := offer(t, append(tools, define("good", ""))...)
			if took := time.Since(start); took > 10*time.Second { // without a limit it takes practically forever
				t.Errorf("took %v", took)
			}
			if got := only(t, s).ID.Name; got != "good" {
				t.Errorf("%q is still offered", got)
			}
			f := texts(s.Faults())
			if len(f) != 1 || !strings.Contains(f[0], tt.want) || len(f[0]) > 400 {
				t.Errorf("faults = %.500q, want one with %q", f, tt.want)
			}
		})
	}
}

// Clients that check a whole list would lose it with one of these. Package shape has the table of all members.
func TestAMalformedMemberIsRepairedOrRefusesItsToolAlone(t *testing.T) {
	with := func(members string) string { return `{"name":"t","inputSchema":{"type":"object"},` + members + `}` }
	const plain = `{"name":"t","inputSchema":{"type":"object"}}`
	for _, tt := range []struct{ name, sent, shown, fault string }{
		{"description null", with(`"description":null`), plain, ""},
		{"annotations null", with(`"annotations":null`), plain, ""},
		{"_meta null", with(`"_meta":null`), plain, ""},
		{"icons a text", with(`"icons":"x"`), plain, ""},
		{"outputSchema null", with(`"outputSchema":null`), plain, ""},
		{"inputSchema without type", `{"name":"t","inputSchema":{}}`, plain, ""},
		{"inputSchema anyOf", `{"name":"t","inputSchema":{"anyOf":[{}]}}`, `{"name":"t","inputSchema":{"anyOf":[{}],"type":"object"}}`, ""},
		{"inputSchema of several types", `{"name":"t","inputSchema":{"type":["object","null"]}}`, plain, ""},
		{"properties null", `{"name":"t","inputSchema":{"type":"object","properties":null,"required":null}}`, plain, ""},
		{"property true", `{"name":"t","inputSchema":{"type":"object","properties":{"a":true}}}`, `{"name":"t","inputSchema":{"type":"object","properties":{"a":{}}}}`, ""},

		{"title a number", with(`"title":5`), "", `tool "t", tool: title: is a number; want a string`},
		{"a hint as a text", with(`"annotations":{"readOnlyHint":"yes"}`), "", `tool "t", tool: annotations.readOnlyHint: is a string; want a boolean`},
		{"annotations a list", with(`"annotations":[true]`), "", `tool "t", tool: annotations: is a list; want an object`},
		{"_meta a list", with(`"_meta":[]`), "", `tool "t", tool: _meta: is a list; want an object`},
		{"inputSchema of lists", `{"name":"t","inputSchema":{"type":"array"}}`, "", `tool "t", tool: inputSchema.type: is not "object"`},
		{"required true", `{"name":"t","inputSchema":{"type":"object","required":true}}`, "", `tool "t", tool: inputSchema.required: is a boolean; want a list`},
		{"a property that is no schema", `{"name":"t","inputSchema":{"type":"object","properties":{"a":"string"}}}`, `{"name":"t","inputSchema":{"type":"object","properties":{"a":{}}}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := offer(t, tt.sent, define("good", ""))
			got, offered := s.Tool(switchboard.ToolID{Server: "s", Name: "t"})
			if _, ok := s.Tool(switchboard.ToolID{Server: "s", Name: "good"}); !ok {
				t.Error("the good tool is refused, too")
			}
			switch faults := texts(s.Faults()); {
			case tt.fault != "":
				if offered || len(faults) != 1 || faults[0] != `server "s", `+tt.fault {
					t.Errorf("offered: %t, faults %q", offered, faults)
				}
				return
			case !offered || len(faults) != 0:
				t.Fatalf("it is not offered: %q", faults)
			}
			same := only(t, offer(t, tt.shown))
			if string(got.Definition) != tt.shown || got.Digest != same.Digest || got.Structured {
				t.Errorf("the definition is %s, structured %t, digest %s; want %s", got.Definition, got.Structured, got.Digest, same.Digest)
			}
			if again := s.Rebuild([]catalog.Source{{Offer: switchboard.Offer{Server: "s", Tools: [][]byte{[]byte(tt.sent)}}}}, nil, taxonomy(t)); string(only(t, again).Definition) != tt.shown {
				t.Errorf("a definition that is reused is %s", only(t, again).Definition)
			}
		})
	}
}

func members(n int, value string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"p%d":%s`, i, value)
	}
	return b.String()
}

// header returns a definition with the parameter a.
func header(members string) string {
	return `{"name":"t","inputSchema":{"properties":{"a":{` + members + `}}}}`
}

// doubled returns a schema with n schemas, each of which refers twice to the next one.
func doubled(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/a0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"a%d":{"anyOf":[{"$ref":"#/$defs/a%d"},{"$ref":"#/$defs/a%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"a%d":{"type":"string"}}}`, n)
	return b.String()
}

func TestSchemasOfRealServersAreAccepted(t *testing.T) {
	for _, tt := range []struct{ name, raw string }{
		{"recursion through properties", header(`"$ref":"#/$defs/tree"},"b":{"$ref":"#"}},"$defs":{"tree":{"properties":{"left":{"$ref":"#/$defs/tree"},"right":{"$ref":"#/$defs/tree"}}}},"x":{"y":{`)},
		{"recursion through items", header(`"items":{"anyOf":[{"type":"string"},{"$ref":"#/properties/a"}]}`)},
		{"doubled a few times", `{"name":"t","inputSchema":` + doubled(12) + `}`},
		{"a reference that leads nowhere", header(`"$ref":"#/components/schemas/Pagination"`)},
		{"a reference to a property with a header", header(`"type":"string","x-mcp-header":"Region"},"b":{"$ref":"#/properties/a"`)},
		{"headers on nested properties", header(`"type":"object","properties":{"b":{"type":["integer","boolean"],"x-mcp-header":"Limit"}}`)},
		{"parameters named like keywords", `{"name":"t","inputSchema":{"properties":{"$ref":{"type":"string"},"pattern":{"type":"string"},"$id":{},"x-mcp-header":{"type":"string"},"anyOf":{},"items":{}}}}`},
		{"data that looks like keywords", header(`"default":{"$ref":"http://x/","x-mcp-header":"X\n"},"examples":[{"$ref":1}],"enum":[{"pattern":{}}],"const":{"$id":"a"}`)},
		{"an $id at the root", `{"name":"t","inputSchema":{"$id":"http://x/","$schema":"http://x/","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}}`},
		{"boolean schemas, lists of names", `{"name":"t","inputSchema":{"additionalProperties":false,"items":[true,{}],"dependencies":{"a":["b"],"c":{}},"required":["a"]}}`},
		{"a header in the output means nothing", `{"name":"t","inputSchema":{},"outputSchema":{"x-mcp-header":"Authorization"}}`},
		{"JS-05 as deep as 61", `{"name":"t","inputSchema":` + strings.Repeat(`{"not":`, 59) + `{}` + strings.Repeat(`}`, 59) + `}`},
		{"unknown members", `{"name":"t","inputSchema":{},"prompt":1,"required":[],"x-vendor":{},"_meta":{"a/b":1}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := offer(t, tt.raw)
			only(t, s)
			if len(s.Faults()) != 0 {
				t.Errorf("faults = %q", texts(s.Faults()))
			}
		})
	}
}

func TestTheSameDefinitionTwiceIsOneTool(t *testing.T) {
	a, b := `{"name":"t","inputSchema":{"type":"object"}}`, `{ "inputSchema": {"type":"object"}, "name":"t" }`
	for _, tools := range [][]string{{a, a}, {a, b}, {b, a, b}} {
		s := offer(t, tools...)
		if got := string(only(t, s).Definition); len(s.Faults()) != 0 || got != slices.Min(tools) {
			t.Errorf("%q: definition %s, faults %q", tools, got, texts(s.Faults()))
		}
	}
}

// TP-09.
func TestTenThousandToolsAreCappedAndCounted(t *testing.T) {
	tools := make([]string, 10_000)
	for i := range tools {
		tools[i] = define(fmt.Sprintf("t%04d", i), own("read fs"))
	}
	s := offer(t, tools...)
	slices.Reverse(tools)
	other := offer(t, tools...)
	if len(s.Tools()) != catalog.MaxTools || s.Tools()[catalog.MaxTools-1].ID.Name != "t4095" {
		t.Errorf("%d tools, the last %v", len(s.Tools()), s.Tools()[len(s.Tools())-1].ID)
	}
	if f := texts(s.Faults()); len(f) != 1 || f[0] != `server "s": offers 10000 tools; 4096 are taken, the first by name` {
		t.Errorf("faults = %q", f)
	}
	if s.Digest() != other.Digest() {
		t.Error("the order of the server's list changes the result")
	}
}

func TestFaultsAreBoundedAndCounted(t *testing.T) {
	var tools []string
	for i := range 1_000 {
		tools = append(tools, define(fmt.Sprintf("t%03d", i), `,"x-summit-capabilities":1`))
	}
	s := offer(t, tools...)
	f := texts(s.Faults())
	if len(s.Tools()) != 0 || len(f) != catalog.MaxFaults+1 || f[0] != `server "s": has 744 more faults` {
		t.Errorf("%d tools, %d faults, the first %q", len(s.Tools()), len(f), f[0])
	}
}

func TestDefinitionsAreUnchangedByteForByte(t *testing.T) {
	raw := "{ \"x\" : 1.0,\n\t\"inputSchema\" : { \"$schema\":\"s\", \"type\" : \"object\", \"max\": 12345678901234567890 }, \"name\":\"t\", \"a\":\"\\u00e9\" }"
	tool := only(t, offer(t, raw))
	if string(tool.Definition) != raw {
		t.Errorf("definition = %s", tool.Definition)
	}
	if tool.Digest == "" || tool.ID != (switchboard.ToolID{Server: "s", Name: "t"}) {
		t.Errorf("tool %v, digest %q", tool.ID, tool.Digest)
	}
}
