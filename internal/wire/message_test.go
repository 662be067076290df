package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestParseFindsTheKindOfAMessage(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want wire.Message
	}{
		{
			` {"jsonrpc":"2.0","id":"a\u0062","method":"tools/call","params":{"name":"x"}} ` + "\r\n",
			wire.Message{Kind: wire.Request, ID: []byte(`"a\u0062"`), Method: "tools/call", Params: []byte(`{"name":"x"}`)},
		},
		{`{"method":"ping","id":0,"jsonrpc":"2.0"}`, wire.Message{Kind: wire.Request, ID: []byte("0"), Method: "ping"}},
		{
			`{"jsonrpc":"2.0","id":9007199254740993,"method":"x/\u0079"}`,
			wire.Message{Kind: wire.Request, ID: []byte("9007199254740993"), Method: "x/y"},
		},
		{`{"jsonrpc":"2.0","id":-12345678901234567890,"method":"m"}`, wire.Message{Kind: wire.Request, ID: []byte("-12345678901234567890"), Method: "m"}},
		{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			wire.Message{Kind: wire.Notification, Method: wire.MethodInitialized},
		},
		{
			`{"jsonrpc":"2.0","id":1,"result":{"a": 1.0}}`,
			wire.Message{Kind: wire.Response, ID: []byte("1"), Result: []byte(`{"a": 1.0}`)},
		},
		{
			`{"jsonrpc":"2.0","id":"","error":{"code":-1,"message":""}}`,
			wire.Message{Kind: wire.Response, ID: []byte(`""`), ErrorObject: []byte(`{"code":-1,"message":""}`)},
		},
		{
			`{"jsonrpc":"2.0","id":1,"method":"m","params":{},"trace":{"a":[1]}}`,
			wire.Message{Kind: wire.Request, ID: []byte("1"), Method: "m", Params: []byte("{}")},
		},
	} {
		for name, parse := range map[string]func([]byte) (wire.Message, error){"Parse": wire.Parse, "ParseEnvelope": wire.ParseEnvelope} {
			got, err := parse([]byte(tt.in))
			if err != nil {
				t.Errorf("%s(%s): %v", name, tt.in, err)
				continue
			}
			tt.want.Raw = []byte(strings.TrimSpace(tt.in))
			if a, b := show(got), show(tt.want); a != b {
				t.Errorf("%s(%s) = %s, want %s", name, tt.in, a, b)
			}
		}
	}
}

// show distinguishes nil from empty.
func show(m wire.Message) string {
	s := m.Kind.String() + " " + m.Method
	for _, part := range [][]byte{m.ID, m.Params, m.Result, m.ErrorObject, m.Raw} {
		if part == nil {
			s += " | -"
		} else {
			s += " | " + string(part)
		}
	}
	return s
}

func TestAppendingToAPartDoesNotChangeTheMessage(t *testing.T) {
	in := []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{}}`)
	m, err := wire.Parse(in)
	if err != nil {
		t.Fatal(err)
	}
	was := string(in)
	for _, part := range [][]byte{m.ID, m.Params, m.Raw} {
		_ = append(part, "xxxx"...)
	}
	if string(in) != was {
		t.Errorf("the message changed to %s", in)
	}
}

// call returns a request with id 7 and these params.
func call(params string) string {
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
}

func TestParseRefuses(t *testing.T) {
	const (
		parse   = wire.CodeParse
		invalid = wire.CodeInvalidRequest
	)
	for _, tt := range []struct {
		name, in string
		code     int
		id       string // the id that the answer can carry
	}{
		// JS-01: another reader would read another message.
		{"Name beside name", call(`{"name":"safe","Name":"danger"}`), invalid, "7"},
		{"Name alone", call(`{"Name":"danger"}`), invalid, "7"},
		{"name twice", call(`{"name":"safe","name":"danger"}`), invalid, "7"},
		{"name twice, once escaped", call(`{"name":"safe","n\u0061me":"danger"}`), invalid, "7"},
		{"name escaped", call(`{"\u006eame":"danger"}`), invalid, "7"},
		{"name with a NUL", call(`{"name\u0000":"danger"}`), invalid, "7"},
		{"name with more behind a NUL", call(`{"name\u0000d":"danger"}`), invalid, "7"},
		{"name with a zero-width space", call("{\"na\u200bme\":\"danger\"}"), invalid, "7"},
		{"name with a soft hyphen", call("{\"na\u00adme\":\"danger\"}"), invalid, "7"},
		{"name with a variation selector", call("{\"name\ufe0f\":\"danger\"}"), invalid, "7"},
		{"name with a tag character", call("{\"name\U000e0041\":\"danger\"}"), invalid, "7"},
		{"name with a space", call(`{"name ":"danger"}`), invalid, "7"},
		{"name with a mark of direction", call("{\"\u202ename\":\"danger\"}"), invalid, "7"},
		{"argumentſ", call(`{"argumentſ":{}}`), invalid, "7"},
		{"argument\\u017f", call(`{"argument\u017f":{}}`), invalid, "7"},
		{"protocolVersİon", call(`{"protocolVersİon":""}`), invalid, "7"},
		{"notıfications", call(`{"notıfications":{}}`), invalid, "7"},
		{"the Kelvin sign in _meta's progressToken", call("{\"_meta\":{\"progressTo\u212aen\":1}}"), invalid, "7"},
		{"another case in _meta", call(`{"_meta":{"IO.modelcontextprotocol/clientInfo":{}}}`), invalid, "7"},
		{"another case of a prefix of ours in _meta", call(`{"_meta":{"io.Switchboard/anything":{}}}`), invalid, "7"},
		{"another case of the key in _meta", call(`{"_meta":{"io.modelcontextprotocol/protocolversion":""}}`), invalid, "7"},
		{"_META", call(`{"_META":{}}`), invalid, "7"},
		{"Method", `{"jsonrpc":"2.0","id":7,"method":"ping","Method":"tools/call"}`, invalid, "7"},
		{"Method alone", `{"jsonrpc":"2.0","id":7,"Method":"tools/call"}`, invalid, "7"},
		{"method escaped", `{"jsonrpc":"2.0","id":7,"\u006dethod":"ping"}`, invalid, "7"},
		{"paramſ", `{"jsonrpc":"2.0","id":7,"method":"ping","paramſ":{}}`, invalid, "7"},
		{"method twice", `{"jsonrpc":"2.0","id":7,"method":"ping","method":"tools/call"}`, invalid, "7"},
		{"id twice", `{"jsonrpc":"2.0","id":7,"method":"ping","id":8}`, invalid, ""},
		{"ID beside id", `{"jsonrpc":"2.0","id":7,"method":"ping","ID":8}`, invalid, "7"},
		{"a name twice in arguments", call(`{"name":"x","arguments":{"a":1,"a":2}}`), invalid, "7"},
		{"a name twice in an array in arguments", call(`{"name":"x","arguments":{"l":[0,{"a":1,"b":2,"\u0061":3}]}}`), invalid, "7"},
		{"a name twice among many", call(`{"arguments":{` + numbered(100) + `,"k50":0}}`), invalid, "7"},
		{"a name twice among many, escaped", call(`{"arguments":{` + numbered(100) + `,"\u006b50":0}}`), invalid, "7"},
		{"a name of nothing twice", call(`{"arguments":{"":1,"":2}}`), invalid, "7"},
		{"an unknown name twice", `{"jsonrpc":"2.0","id":7,"method":"ping","x":1,"x":1}`, invalid, "7"},

		// JS-03: ids.
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, invalid, ""},
		{"id float", `{"jsonrpc":"2.0","id":1.0,"method":"ping"}`, invalid, ""},
		{"id with an exponent", `{"jsonrpc":"2.0","id":1e400,"method":"ping"}`, invalid, ""},
		{"id object", `{"jsonrpc":"2.0","id":{},"method":"ping"}`, invalid, ""},
		{"id array", `{"jsonrpc":"2.0","id":[1],"method":"ping"}`, invalid, ""},
		{"id bool", `{"jsonrpc":"2.0","id":true,"method":"ping"}`, invalid, ""},
		{"id of 100 KB", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 100_000) + `","method":"ping"}`, invalid, ""},
		{"id of 257 digits", `{"jsonrpc":"2.0","id":` + strings.Repeat("1", 257) + `,"method":"ping"}`, invalid, ""},

		// JS-04: not exactly one message.
		{"nothing", ``, parse, ""},
		{"space", " \n", parse, ""},
		{"an empty batch", `[]`, invalid, ""},
		{"a batch", `[{}]`, invalid, ""},
		{"a large batch", "[" + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"ping"},`, 10_000) + "0]", invalid, ""},
		{"a string", `"ping"`, invalid, ""},
		{"half a string", `"ping`, parse, ""},
		{"NaN", call(`{"a":NaN}`), parse, "7"},
		{"Infinity", call(`{"a":-Infinity}`), parse, "7"},
		{"+1", call(`{"a":+1}`), parse, "7"},
		{"01", call(`{"a":01}`), parse, "7"},
		{"a byte order mark", "\uFEFF" + call(`{}`), parse, ""},
		{"trailing bytes", call(`{}`) + "x", parse, "7"},
		{"two messages", call(`{}`) + call(`{}`), parse, "7"},
		{"a NUL behind", call(`{}`) + "\x00", parse, "7"},
		{"jsonrpc 1.0", `{"jsonrpc":"1.0","id":7,"method":"ping"}`, invalid, "7"},
		{"jsonrpc as a number", `{"jsonrpc":2.0,"id":7,"method":"ping"}`, invalid, "7"},
		{"no jsonrpc", `{"id":7,"method":"ping"}`, invalid, "7"},
		{"no method", `{"jsonrpc":"2.0","id":7}`, invalid, "7"},
		{"nothing in it", `{}`, invalid, ""},
		{"method empty", `{"jsonrpc":"2.0","id":7,"method":""}`, invalid, "7"},
		{"method null", `{"jsonrpc":"2.0","id":7,"method":null}`, invalid, "7"},
		{"method with a space", `{"jsonrpc":"2.0","id":7,"method":"tools/call "}`, invalid, "7"},
		{"method with a line end", `{"jsonrpc":"2.0","id":7,"method":"ping\r\nX: y"}`, invalid, "7"},
		{"method that is not ASCII", `{"jsonrpc":"2.0","id":7,"method":"toolſ/call"}`, invalid, "7"},
		{"method of 129 bytes", `{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("m", 129) + `"}`, invalid, "7"},
		{"params array", call(`[1]`), invalid, "7"},
		{"params null", call(`null`), invalid, "7"},
		{"method and result", `{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}`, invalid, "7"},
		{"result and error", `{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`, invalid, "7"},
		{"a response without an id", `{"jsonrpc":"2.0","result":{}}`, invalid, ""},
		{"an error for id null", `{"jsonrpc":"2.0","id":null,"error":{}}`, invalid, ""},
		{"a result that is no object", `{"jsonrpc":"2.0","id":7,"result":[]}`, invalid, "7"},
		{"an error that is no object", `{"jsonrpc":"2.0","id":7,"error":"no"}`, invalid, "7"},

		// JS-05: depth. Envelope and params are the first two levels.
		{"65 levels", call(`{"a":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`), parse, "7"},
		{"65 levels of objects", call(strings.Repeat(`{"a":`, 64) + "0" + strings.Repeat("}", 64)), parse, "7"},
		{"a million levels", call(`{"a":` + strings.Repeat("[", 1_000_000)), parse, "7"},

		// Text.
		{"bytes that are not UTF-8", call("{\"a\":\"\xff\"}"), parse, ""},
		{"an encoded surrogate", call("{\"a\":\"\xed\xa0\x80\"}"), parse, ""},
		{"an overlong form", call("{\"n\xc1\xa1me\":1}"), parse, ""},
		{"a lone surrogate", call(`{"a":"\ud800"}`), parse, "7"},
		{"a lone surrogate in a name", call(`{"\udc00":1}`), parse, "7"},
		{"surrogates in the wrong order", call(`{"a":"\udc00\ud800"}`), parse, "7"},
		{"a surrogate and a letter", call(`{"a":"\ud800\u0041"}`), parse, "7"},
		{"a surrogate and what follows the surrogates", call(`{"a":"\ud800\ue000"}`), parse, "7"},
		{"an open surrogate at the end", call(`{"a":"\ud800`), parse, "7"},
		{"a line end in a string", call("{\"a\":\"x\ny\"}"), parse, "7"},
		{"a control character far into a string", call("{\"a\":\"" + strings.Repeat("x", 99) + "\x1f" + strings.Repeat("x", 99) + "\"}"), parse, "7"},
		{"an unknown escape", call(`{"a":"\x41"}`), parse, "7"},
		{"an escape that is cut", `{"jsonrpc":"2.0","id":7,"method":"\u00`, parse, "7"},
		{"a backslash at the end", `{"jsonrpc":"2.0","id":7,"method":"\`, parse, "7"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := wire.Parse([]byte(tt.in))
			var pe *wire.ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("Parse = %+v, %v, want a *ParseError", m, err)
			}
			if pe.Code != tt.code || string(pe.ID) != tt.id {
				t.Errorf("Parse: code %d, id %s, want %d, %s (%v)", pe.Code, pe.ID, tt.code, tt.id, err)
			}
			if pe.Reason == "" || len(pe.Reason) > 500 || pe.Offset < 0 || pe.Offset > len(tt.in) {
				t.Errorf("Parse: reason %.600q at %d of %d bytes", pe.Reason, pe.Offset, len(tt.in))
			}
		})
	}
}

// TestNoFoldingOfAnyCharacterPasses tries every character with case that some method of ignoring case makes equal to a
// letter of a watched name.
func TestNoFoldingOfAnyCharacterPasses(t *testing.T) {
	const name = "inputresponses requeststate arguments protocolversion clientinfo task"
	tried := 0
	var cased []rune
	for _, c := range unicode.CaseRanges {
		for r := max(rune(c.Lo), 0x80); r <= rune(c.Hi); r++ {
			cased = append(cased, r)
		}
	}
	for _, r := range cased {
		for _, other := range []rune{unicode.SimpleFold(r), unicode.ToLower(r), unicode.ToUpper(r), unicode.ToTitle(r)} {
			letter := string(unicode.ToLower(other))
			if other >= 0x80 || !strings.Contains(name, letter) {
				continue
			}
			for word := range strings.FieldsSeq(name) {
				like := strings.Replace(word, letter, string(r), 1)
				if like == word {
					continue
				}
				tried++
				if _, err := wire.Parse([]byte(call(`{"` + like + `":{}}`))); code(err) != wire.CodeInvalidRequest {
					t.Errorf("%+q in params: %v, want a refusal", like, err)
				}
			}
		}
	}
	if tried == 0 {
		t.Error("no character was tried")
	}
}

// numbered returns the members k0 to k(n-1).
func numbered(n int) string {
	members := make([]string, n)
	for i := range n {
		members[i] = fmt.Sprintf(`"k%d":%d`, i, i)
	}
	return strings.Join(members, ",")
}

func TestParseAccepts(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"64 levels", call(`{"a":` + strings.Repeat("[", 62) + strings.Repeat("]", 62) + `}`)},
		{"64 levels of objects", call(strings.Repeat(`{"a":`, 63) + "0" + strings.Repeat("}", 63))},
		{"names that differ in case in arguments", call(`{"name":"x","arguments":{"name":1,"Name":2,"na\u006de ":3}}`)},
		{"names that differ in case in objects of _meta", call(`{"_meta":{"vendor/x":{"progressToken":1,"ProgressToken":2}}}`)},
		{"names of our own", call(`{"_meta":{"traceparent":"00","vendor/key":1,"io.modelcontextprotocol/clientInfo":{},"io.switchboard/x":1}}`)},
		{"other names in params", call(`{"name":"x","vendor":1,"naame":2,"n":3}`)},
		{"the same name in two objects", call(`{"a":{"x":1},"b":{"x":1},"x":[{"x":1},{"x":1}]}`)},
		{"a name that another only starts with", call(`{"arguments":{"\u0061":1,"a\u0061":2,"aaa":3}}`)},
		{"100 names", call(`{"arguments":{` + numbered(100) + `,"\u006b100":{` + numbered(50) + `}}}`)},
		{"surrogates in pairs", call(`{"a":"\ud83d\ude00","\uD83D\uDE00":1}`)},
		{"numbers of all kinds", call(`{"a":[-0,0.0,1E+2,1e-2,1E400,12345678901234567890123]}`)},
		{"all escapes", call(`{"a":"\"\\\/\b\f\n\r\t\u0000\uFFFF"}`)},
		{"space wherever it can be", strings.ReplaceAll(call(`{ "a" : [ 1 , { } , [ ] , true , null ] }`), ",", " \t\r\n,\n")},
		{"id of 256 bytes", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 254) + `","method":"ping"}`},
		{"method of 128 bytes", `{"jsonrpc":"2.0","id":7,"method":"` + strings.Repeat("m", 128) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := wire.Parse([]byte(tt.in)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestParseEnvelopeIsMoreLenientWithServers(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"escaped names", `{"jsonrp\u0063":"2.0","\u0069d":1,"resu\u006ct":{}}`, `response  | 1 | - | {} | -`},
		{"names twice in a result", `{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}`, `response  | 1 | - | {"a":1,"a":2} | -`},
		{"a lone surrogate in a result", `{"jsonrpc":"2.0","id":1,"result":{"a":"\ud800"}}`, `response  | 1 | - | {"a":"\ud800"} | -`},
		{"another case in params", `{"jsonrpc":"2.0","method":"m","params":{"name":1,"Name":2}}`, `notification m | - | {"name":1,"Name":2} | - | -`},
		{"params null", `{"jsonrpc":"2.0","method":"m","params":null}`, `notification m | - | - | - | -`},
		{"result null", `{"jsonrpc":"2.0","id":1,"result":null}`, `response  | 1 | - | null | -`},
		{"an error for no id", `{"jsonrpc":"2.0","error":{"code":1}}`, `response  | - | - | - | {"code":1}`},
		{"an error for id null", `{"jsonrpc":"2.0","id":null,"error":{"code":1}}`, `response  | - | - | - | {"code":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := wire.ParseEnvelope([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := show(m), tt.want+" | "+tt.in; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

func TestParseEnvelopeRefuses(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		code     int
	}{
		{"another case", `{"jsonrpc":"2.0","id":1,"Result":{}}`, wire.CodeInvalidRequest},
		{"another case, escaped", `{"jsonrpc":"2.0","id":1,"result":{},"\u0052esult":{}}`, wire.CodeInvalidRequest},
		{"id twice", `{"jsonrpc":"2.0","id":1,"id":2,"result":{}}`, wire.CodeInvalidRequest},
		{"id twice, once escaped", `{"jsonrpc":"2.0","id":1,"i\u0064":2,"result":{}}`, wire.CodeInvalidRequest},
		{"id float", `{"jsonrpc":"2.0","id":1.0,"result":{}}`, wire.CodeInvalidRequest},
		{"a result for id null", `{"jsonrpc":"2.0","id":null,"result":{}}`, wire.CodeInvalidRequest},
		{"a request with id null", `{"jsonrpc":"2.0","id":null,"method":"ping"}`, wire.CodeInvalidRequest},
		{"method and result", `{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}`, wire.CodeInvalidRequest},
		{"an error that is no object", `{"jsonrpc":"2.0","id":1,"error":null}`, wire.CodeInvalidRequest},
		{"a banner", `Server listening on stdio`, wire.CodeParse},
		{"a batch", `[{"jsonrpc":"2.0","id":1,"result":{}}]`, wire.CodeInvalidRequest},
		{"a result that is not JSON", `{"jsonrpc":"2.0","id":1,"result":{"a":tru}}`, wire.CodeParse},
		{"a result that is cut", `{"jsonrpc":"2.0","id":1,"result":{"a":[1,2`, wire.CodeParse},
		{"a bracket that closes a brace", `{"jsonrpc":"2.0","id":1,"result":{"a":[1,2}}}`, wire.CodeParse},
		{"65 levels", `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, wire.CodeParse},
		{"bytes that are not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"\xff\"}", wire.CodeParse},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := wire.ParseEnvelope([]byte(tt.in))
			var pe *wire.ParseError
			if !errors.As(err, &pe) || pe.Code != tt.code {
				t.Errorf("ParseEnvelope = %+v, %v, want code %d", m, err, tt.code)
			}
		})
	}
	deep := `{"jsonrpc":"2.0","id":1,"result":` + strings.Repeat("[", 63) + strings.Repeat("]", 63) + `}`
	if _, err := wire.ParseEnvelope([]byte(deep)); err != nil {
		t.Errorf("64 levels: %v", err)
	}
}

func TestReadingAllocatesNothing(t *testing.T) {
	result := []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a\\nb"}]}}`)
	if n := testing.AllocsPerRun(100, func() { _, _ = wire.Parse(smallCall) }); n > 0 {
		t.Errorf("Parse allocates %v times", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = wire.ParseEnvelope(result) }); n > 0 {
		t.Errorf("ParseEnvelope allocates %v times", n)
	}
}

func TestEveryByteOfAStringIsChecked(t *testing.T) {
	for _, fill := range []string{"x", "!", "#", " ", "]"} {
		for at := range 40 {
			for c := range 128 {
				text := []byte(strings.Repeat(fill, 48))
				text[at] = byte(c)
				_, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":{"t":"` + string(text) + `"}}`))
				if ok := c >= ' ' && c != '"' && c != '\\'; ok != (err == nil) {
					t.Fatalf("%q: %v", text, err)
				}
			}
		}
	}
}

func TestMembersAreFoundAtEveryPosition(t *testing.T) {
	many := strings.Builder{}
	for i := range 40 {
		fmt.Fprintf(&many, `"m%d":%d,`, i, i)
	}
	for _, params := range []string{
		`{}`, ` { "_meta" : { "a" : 1 } , "name" : "x" } `, `{"_meta":{},"a":{"_meta":{"b":1},"b":2}}`, `{"_meta":[{"a":1}]}`, `{"_meta":"a"}`,
		`{"a":1,"_meta":{"a":2,"vendor/b":{"a":3}}}`, `{"\u0061b":1,"c":2,"_meta":{"\u0061b":3,"c":4}}`, `{"` + strings.Repeat("x", 1<<16) + `":1}`,
		`{` + many.String() + `"_meta":{"a":1}}`, `{"_meta":{` + many.String() + `"a":1},"name":"x"}`, `{"a":"_meta","name":{"_meta":{"c":1}}}`,
	} {
		m, err := wire.Parse([]byte(` {"jsonrpc":"2.0","id":7,"method":"m","params":` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		lookUp(t, &m)
		lookUp(t, &wire.Message{Params: []byte(params)})
	}
}

// Long text is searched differently from short text, in sections.
func TestSpecialCharactersAreFoundAtEveryPositionOfLongText(t *testing.T) {
	var where []int
	for _, edge := range []int{0, 136, 264, 8 << 10} {
		for i := max(edge-12, 0); i < edge+20; i++ {
			where = append(where, i)
		}
	}
	for _, in := range []string{
		"", " ", "!", "#", "[", "]", "\x7f", `\"`, `\\`, `\n`, `\u00e9`, `\ud83d\ude00`, "é", "€", "😀", "\uFEFF", "ééééééééé", // valid
		"\x00", "\n", "\x1f", `"`, `\`, `\x`, `\u00g0`, // not JSON
		"\x80", "\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf0\x9f\x98", "\xf4\x90\x80\x80", // not UTF-8
	} {
		for _, i := range where {
			text := `"` + strings.Repeat("x", i) + in + strings.Repeat("y", 100) + `"`
			want := json.Valid([]byte(text)) && utf8.ValidString(text)
			if _, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":` + text + `}}`)); (err == nil) != want {
				t.Fatalf("Parse of %q behind %d letters: %v", in, i, err)
			}
			if _, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":7,"result":{"a":[` + text + `]}}`)); (err == nil) != want {
				t.Fatalf("ParseEnvelope of %q behind %d letters: %v", in, i, err)
			}
			if s, ok := wire.String([]byte(text)); ok != want || want && !strings.HasSuffix(s, "y") {
				t.Fatalf("String of %q behind %d letters: %q, %v", in, i, s, ok)
			}
		}
	}
}

func TestAResultOfAServerMayBeNestedUpToALimit(t *testing.T) {
	nested := func(depth int) string { // alternating arrays and objects, from the result on, with something after each
		open, closing := "", ""
		for i := range depth {
			if i%3 == 1 {
				open, closing = open+"[", ",1]"+closing
			} else {
				open, closing = open+`{"a":`, `,"b":2}`+closing
			}
		}
		return open + "0" + closing
	}
	for depth, deep := range map[int]bool{1: false, 63: false, 64: true, 65: true, 127: true, 128: true, 129: true, 1023: true} { // the envelope is one more level
		m, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + nested(depth) + "}"))
		if err != nil || m.Deep != deep || string(m.Result) != nested(depth) {
			t.Errorf("%d levels: %v, deep %t", depth, err, m.Deep)
		}
	}
	text := nested(200)
	for name, bad := range map[string]string{
		"too deep": nested(1024), "an array that ends as an object": strings.Replace(text, ",1]", ",1}", 100), "an object that ends as an array": strings.Replace(text, `2}`, `2]`, 1),
		"no end": text[:len(text)-1],
	} {
		if _, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","id":1,"result":` + bad + "}")); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := wire.ParseEnvelope([]byte(`{"jsonrpc":"2.0","method":"x","params":` + nested(64) + "}")); err == nil {
		t.Error("parameters that are too deep are accepted")
	}
}
