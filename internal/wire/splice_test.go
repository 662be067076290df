package wire_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestField(t *testing.T) {
	const obj = ` { "a" : 1.0 , "\u0062" : [ 1, {"c":2} ] ,"c":{"a":0},"":null,"d":"\"}" } `
	for _, tt := range []struct {
		obj, name, want string
		ok              bool
	}{
		{obj, "a", "1.0", true},
		{obj, "b", `[ 1, {"c":2} ]`, true},
		{obj, "c", `{"a":0}`, true},
		{obj, "", "null", true},
		{obj, "d", `"\"}"`, true},
		{obj, "A", "", false},
		{obj, `\u0062`, "", false},
		{`{"a":1,"a":2}`, "a", "2", true}, // nearly all readers return the last one
		{`{}`, "a", "", false},
		{`["a"]`, "a", "", false},
		{`"a"`, "a", "", false},
		{``, "a", "", false},
		{`{`, "a", "", false},
		{`{"a"`, "a", "", false},
		{`{"a":`, "a", "", false},
		{`{"a":1`, "a", "1", true},
		{`{"a":1,}`, "a", "1", true},
		{`{"a":x,"b":1}`, "b", "", false},
	} {
		got, ok := wire.Field([]byte(tt.obj), tt.name)
		if string(got) != tt.want || ok != tt.ok {
			t.Errorf("Field(%s, %q) = %s, %v, want %s, %v", tt.obj, tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestMembersAndElementsComeInOrder(t *testing.T) {
	var got []string
	for name, value := range wire.Members([]byte(`{"z":1,"\u0061":[2],"m": {"x":3} }`)) {
		got = append(got, name+"="+string(value))
	}
	if want := []string{"z=1", "a=[2]", `m={"x":3}`}; !slices.Equal(got, want) {
		t.Errorf("Members = %q, want %q", got, want)
	}
	want := got
	got = nil
	for name, value := range wire.MembersAsBytes([]byte(`{"z":1,"\u0061":[2],"m": {"x":3} }`)) {
		got = append(got, string(name)+"="+string(value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("MembersAsBytes = %q, want %q", got, want)
	}
	got = nil
	for value := range wire.Elements([]byte(` [ 1 ,"a,]", [2] , {"x":3}] `)) {
		got = append(got, string(value))
	}
	if want := []string{"1", `"a,]"`, "[2]", `{"x":3}`}; !slices.Equal(got, want) {
		t.Errorf("Elements = %q, want %q", got, want)
	}
	for range wire.Elements([]byte(`{"a":1}`)) {
		t.Error("an object has no elements")
	}
	for range wire.Members([]byte(`[1]`)) {
		t.Error("an array has no members")
	}
	for value := range wire.Elements([]byte(`[1,2]`)) {
		if string(value) != "1" {
			t.Error("the iteration continued after the break")
		}
		break
	}
	if n := len(maps.Collect(wire.Members([]byte("{ }")))); n != 0 {
		t.Errorf("an empty object has %d members", n)
	}
}

// edits parses "name=value"; without a value it removes the member.
func edits(list ...string) (es []wire.Edit) {
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		e := wire.Edit{Name: name}
		if ok {
			e.Value = []byte(value)
		}
		es = append(es, e)
	}
	return es
}

func TestRewriteChangesNothingElse(t *testing.T) {
	for _, tt := range []struct {
		obj   string
		edits []wire.Edit
		want  string
	}{
		{`{"a":1,"b":2}`, nil, `{"a":1,"b":2}`},
		{` { "a" : 1.0 ,` + "\n" + `"b":2 } `, edits("a=9"), ` { "a" : 9 ,` + "\n" + `"b":2 } `},
		{`{"b":1,"a":2}`, edits("a=3", "b=4"), `{"b":4,"a":3}`},
		{`{"\u0061":1}`, edits("a=2"), `{"\u0061":2}`},
		{`{"a":1}`, edits("z=2", "y=3"), `{"a":1,"z":2,"y":3}`},
		{`{}`, edits("z=2"), `{"z":2}`},
		{`{ }`, edits("z=2"), `{"z":2 }`},
		{``, edits("z=2", "a"), `{"z":2}`},
		{``, nil, `{}`},
		{`{"a":1,"b":2,"c":3}`, edits("a"), `{"b":2,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, edits("b"), `{"a":1,"c":3}`},
		{`{"a":1,"b":2,"c":3}`, edits("c"), `{"a":1,"b":2}`},
		{`{"a":1,"b":2,"c":3}`, edits("a", "b"), `{"c":3}`},
		{`{"a":1,"b":2,"c":3}`, edits("a", "b", "c"), `{}`},
		{`{"a":1,"b":2,"c":3}`, edits("a", "b", "c", "d=4"), `{"d":4}`},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", edits("a"), "{\n  \"b\": 2\n}"},
		{"{\n  \"a\": 1,\n  \"b\": 2\n}", edits("b"), "{\n  \"a\": 1\n}"},
		{"{\n  \"a\": 1\n}", edits("b=2"), "{\n  \"a\": 1,\"b\":2\n}"},
		{`{"a":1,"b":2,"a":3}`, edits("a=9"), `{"a":9,"b":2}`},
		{`{"a":1,"b":2,"a":3}`, edits("a"), `{"b":2}`},
		{`{"x":{"a":1}}`, edits("a=2"), `{"x":{"a":1},"a":2}`},
		{`{}`, edits("\"\n=1"), `{"\"\n":1}`},
		{`{"a":"\u00e9\/","n":1E0}`, edits("z=0"), `{"a":"\u00e9\/","n":1E0,"z":0}`},
		{`[1]`, edits("a=1"), `[1]`},
		{`null`, edits("a=1"), `null`},
	} {
		if got := wire.Rewrite([]byte(">"), []byte(tt.obj), tt.edits...); string(got) != ">"+tt.want {
			t.Errorf("Rewrite(%s, %v)\n= %s\nwant %s", tt.obj, tt.edits, got[1:], tt.want)
		}
	}
}

func TestWithout(t *testing.T) {
	meta := func(name string) bool { return strings.HasPrefix(name, wire.MetaPrefix) }
	for _, tt := range []struct{ obj, want string }{
		{
			`{"io.modelcontextprotocol/clientInfo":{}, "traceparent":"00", "\u0069o.modelcontextprotocol/x":1, "progressToken":1 }`,
			`{"traceparent":"00", "progressToken":1 }`,
		},
		{`{"io.modelcontextprotocol/a":1}`, `{}`},
		{`{"a":{"io.modelcontextprotocol/a":1}}`, `{"a":{"io.modelcontextprotocol/a":1}}`},
		{`{}`, `{}`},
	} {
		if got := wire.Without(nil, []byte(tt.obj), meta); string(got) != tt.want {
			t.Errorf("Without(%s) = %s, want %s", tt.obj, got, tt.want)
		}
	}
}

func TestOneLine(t *testing.T) {
	in := []byte("{\"a\": \"x\\ny\"}")
	if got := wire.OneLine(in); &got[0] != &in[0] {
		t.Error("a line was copied")
	}
	in = []byte("{\r\n\t\"a\":\n1}\r")
	if got, want := string(wire.OneLine(in)), "{  \t\"a\": 1} "; got != want {
		t.Errorf("OneLine = %q, want %q", got, want)
	}
	if string(in) != "{\r\n\t\"a\":\n1}\r" {
		t.Error("OneLine changed its argument")
	}
}

func TestAppendedMessages(t *testing.T) {
	id, obj := []byte(`"i\u0064"`), []byte(`{"a": 1.0}`)
	for _, tt := range []struct{ got, want string }{
		{string(wire.AppendRequest(nil, id, "m", obj)), `{"jsonrpc":"2.0","id":"i\u0064","method":"m","params":{"a": 1.0}}`},
		{string(wire.AppendRequest([]byte("> "), id, "m", nil)), `> {"jsonrpc":"2.0","id":"i\u0064","method":"m"}`},
		{string(wire.AppendRequestWith([]byte("> "), id, "m", func(dst []byte) []byte { return append(dst, obj...) })), `> {"jsonrpc":"2.0","id":"i\u0064","method":"m","params":{"a": 1.0}}`},
		{string(wire.AppendRequestWith(nil, id, "m", func(dst []byte) []byte { return dst })), `{"jsonrpc":"2.0","id":"i\u0064","method":"m"}`},
		{string(wire.AppendNotification(nil, "m\"", obj)), `{"jsonrpc":"2.0","method":"m\"","params":{"a": 1.0}}`},
		{string(wire.AppendNotification(nil, "m", nil)), `{"jsonrpc":"2.0","method":"m"}`},
		{string(wire.AppendResult(nil, id, obj)), `{"jsonrpc":"2.0","id":"i\u0064","result":{"a": 1.0}}`},
		{string(wire.AppendError(nil, id, -1, "no \"x\"\n", obj)), `{"jsonrpc":"2.0","id":"i\u0064","error":{"code":-1,"message":"no \"x\"\n","data":{"a": 1.0}}}`},
		{string(wire.AppendError(nil, nil, 0, "", nil)), `{"jsonrpc":"2.0","id":null,"error":{"code":0,"message":""}}`},
		{string(wire.AppendErrorObject(nil, id, obj)), `{"jsonrpc":"2.0","id":"i\u0064","error":{"a": 1.0}}`},
	} {
		if tt.got != tt.want {
			t.Errorf("got  %s\nwant %s", tt.got, tt.want)
		}
		if _, err := wire.ParseEnvelope([]byte(strings.TrimPrefix(tt.got, "> "))); err != nil && !strings.Contains(tt.got, `m\"`) {
			t.Errorf("%s: %v", tt.got, err)
		}
	}
}

func TestStrings(t *testing.T) {
	for _, tt := range []struct {
		raw, want string
		ok        bool
	}{
		{`"abc"`, "abc", true},
		{`""`, "", true},
		{`"\"\\\/\b\f\n\r\t\u0041\u00e9\ud83d\ude00"`, "\"\\/\b\f\n\r\tAé😀", true},
		{`"\ud83d"`, "", false},
		{"\"\xff\"", "", false},
		{`"a`, "", false},
		{`"a"b`, "", false},
		{`"`, "", false},
		{`a`, "", false},
		{``, "", false},
		{`1`, "", false},
		{"\"\n\"", "", false},
	} {
		if got, ok := wire.String([]byte(tt.raw)); got != tt.want || ok != tt.ok {
			t.Errorf("String(%s) = %q, %v, want %q, %v", tt.raw, got, ok, tt.want, tt.ok)
		}
	}
	for _, tt := range []struct{ in, want string }{
		{"", `""`},
		{"a/<é>\u2028😀\x7f", "\"a/<é>\u2028😀\x7f\""},
		{"\"\\\b\f\n\r\t\x00\x1f", `"\"\\\b\f\n\r\t\u0000\u001f"`},
		{"a\xffb\xed\xa0\x80", "\"a\uFFFDb\uFFFD\uFFFD\uFFFD\""},
	} {
		if got := string(wire.AppendString(nil, tt.in)); got != tt.want {
			t.Errorf("AppendString(%q) = %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestIDKeyIsTheSameForTwoSpellingsOfOneID(t *testing.T) {
	key := func(raw string) string {
		k, ok := wire.IDKey([]byte(raw))
		if !ok {
			t.Errorf("%s is an id", raw)
		}
		return k
	}
	if key(`"a"`) != key(`"\u0061"`) {
		t.Error(`"a" and "\u0061" are one id`)
	}
	if key(`1`) == key(`"1"`) {
		t.Error(`1 and "1" are two ids`)
	}
	if key(`9007199254740993`) == key(`9007199254740992`) {
		t.Error("large integers have become one id")
	}
	for _, raw := range []string{"", "null", "1.0", "1e1", "{}", "[]", "true", `"`, `"\ud800"`, "-", "01", "1 ", `"` + strings.Repeat("x", 300) + `"`} {
		if k, ok := wire.IDKey([]byte(raw)); ok {
			t.Errorf("IDKey(%s) = %q, want none", raw, k)
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, tt := range []struct{ plain, header string }{
		{"read_file", "read_file"},
		{"", ""},
		{"a b", "a b"},
		{"=?base64?", "=?base64?"},
		{"?=", "?="},
		{" us-west1 ", "=?base64?IHVzLXdlc3QxIA==?="},
		{"日本語", "=?base64?5pel5pys6Kqe?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?abc?=", "=?base64?PT9iYXNlNjQ/YWJjPz0=?="},
	} {
		if got := wire.EncodeHeader(tt.plain); got != tt.header {
			t.Errorf("EncodeHeader(%q) = %q, want %q", tt.plain, got, tt.header)
		}
		if got, ok := wire.DecodeHeader(tt.header); !ok || got != tt.plain {
			t.Errorf("DecodeHeader(%q) = %q, %v, want %q", tt.header, got, ok, tt.plain)
		}
	}
	for _, s := range []string{"=?base64?abc?=", "=?base64?!!!!?=", "=?base64?YQ?=", "=?base64?YR==?=", "=?base64?/w==?=", "日本", "a\r\nb", "a\tb", "\x7f"} {
		if got, ok := wire.DecodeHeader(s); ok {
			t.Errorf("DecodeHeader(%q) = %q, want none", s, got)
		}
	}
}

func TestVersions(t *testing.T) {
	if !slices.IsSortedFunc(wire.Versions, func(a, b string) int { return strings.Compare(b, a) }) || wire.Versions[0] != wire.Latest {
		t.Errorf("Versions = %v, want newest first", wire.Versions)
	}
	for _, v := range wire.Versions {
		if wire.Modern(v) != (v > wire.LatestLegacy) {
			t.Errorf("Modern(%s) = %v", v, wire.Modern(v))
		}
	}
	if wire.Modern("") || !wire.Modern("2027-01-01") {
		t.Error("no version is legacy, a later one is modern")
	}
}
