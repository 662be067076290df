package redact_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/redact"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestEveryRepetitionOfARedactedValueIsGone(t *testing.T) {
	for name, tt := range map[string]struct{ pointer, in, want string }{
		"the text mirrors the structured content": {
			"/structuredContent/email",
			`{"content":[{"type":"text","text":"{\"email\":\"a@b.example\",\"n\":1}"}],"structuredContent":{"email":"a@b.example","n":1}}`,
			`{"content":[{"type":"text","text":"{\"email\":\"[redacted]\",\"n\":1}"}],"structuredContent":{"email":"[redacted]","n":1}}`,
		},
		"in another order, with other spaces and escapes": {
			"/structuredContent/email",
			`{"content":[{"type":"text","text":"{\n \"n\": 1.0,\n \"email\": \"a\\u0040b.example\"}"}],"structuredContent":{"email":"a@b.example","n":1}}`,
			`{"content":[{"type":"text","text":"{\"email\":\"[redacted]\",\"n\":1}"}],"structuredContent":{"email":"[redacted]","n":1}}`,
		},
		"a part of it": {
			"/structuredContent/user/email",
			`{"content":[{"type":"text","text":"{\"email\":\"a@b.example\"}"}],"structuredContent":{"user":{"email":"a@b.example"}}}`,
			`{"content":[{"type":"text","text":"{\"email\":\"[redacted]\"}"}],"structuredContent":{"user":{"email":"[redacted]"}}}`,
		},
		"in prose": {
			"/structuredContent/email",
			`{"content":[{"type":"text","text":"Write to a@b.example, or to A."}],"structuredContent":{"email":"a@b.example"}}`,
			`{"content":[{"type":"text","text":"Write to [redacted], or to A."}],"structuredContent":{"email":"[redacted]"}}`,
		},
		"in JSON within prose, escaped twice": {
			"/structuredContent/email",
			`{"content":[{"type":"text","text":"log: {\"line\":\"{\\\"to\\\":\\\"a\\\\u0040b.example\\\"}\"}"}],"structuredContent":{"email":"a@b.example"}}`,
			`{"content":[{"type":"text","text":"log: {\"line\":\"{\\\"to\\\":\\\"[redacted]\\\"}\"}"}],"structuredContent":{"email":"[redacted]"}}`,
		},
		"as the key of an object": {
			"/structuredContent/email",
			`{"content":[],"structuredContent":{"email":"a@b.example","by":{"a@b.example":true}}}`,
			`{"content":[],"structuredContent":{"email":"[redacted]","by":{"[redacted]":true}}}`,
		},
		"in _meta and in a resource, and not in what is binary": {
			"/structuredContent/email",
			`{"content":[{"type":"resource","resource":{"uri":"mailto:a@b.example","mimeType":"a@b.example","blob":"a@b.example","text":"a@b.example"}}],"_meta":{"x":"a@b.example"},"structuredContent":{"email":"a@b.example"}}`,
			`{"content":[{"type":"resource","resource":{"uri":"mailto:[redacted]","mimeType":"a@b.example","blob":"a@b.example","text":"[redacted]"}}],"_meta":{"x":"[redacted]"},"structuredContent":{"email":"[redacted]"}}`,
		},
		"a number, however it is spelt": {
			"/structuredContent/salary",
			`{"content":[{"type":"text","text":"She earns 52000.50, that is 52,000.5 or 5.20005e4; not 152000.50, v52000.5 or 52000.51; 3-52000.5."}],"structuredContent":{"salary":52000.50,"again":52000.5}}`,
			`{"content":[{"type":"text","text":"She earns [redacted], that is [redacted] or [redacted]; not 152000.50, v52000.5 or 52000.51; 3-[redacted]."}],"structuredContent":{"salary":"[redacted]","again":"[redacted]"}}`,
		},
		"a yes or no, in a text of JSON": {
			"/structuredContent/ill",
			`{"content":[{"type":"text","text":"{\"patient\":{\"ill\":true,\"old\":true}}"}],"structuredContent":{"ill":true,"old":true}}`,
			`{"content":[{"type":"text","text":"{\"patient\":{\"ill\":\"[redacted]\",\"old\":true}}"}],"structuredContent":{"ill":"[redacted]","old":true}}`,
		},
		"a yes or no, in prose that speaks of it": {
			"/structuredContent/ill",
			`{"content":[{"type":"text","text":"ill: yes"},{"type":"text","text":"old: yes"}],"structuredContent":{"ill":true}}`,
			`{"content":[{"type":"text","text":"[redacted]"},{"type":"text","text":"old: yes"}],"structuredContent":{"ill":"[redacted]"}}`,
		},
		"a short text, as a word": {
			"/structuredContent/id",
			`{"content":[{"type":"text","text":"id x7 of x77 and ax7"}],"structuredContent":{"id":"x7"}}`,
			`{"content":[{"type":"text","text":"id [redacted] of x77 and ax7"}],"structuredContent":{"id":"[redacted]"}}`,
		},
		"the protocol's words stay": {
			"/structuredContent/kind",
			`{"content":[{"type":"text","text":"a text"}],"structuredContent":{"kind":"text"}}`,
			`{"content":[{"type":"text","text":"a [redacted]"}],"structuredContent":{"kind":"[redacted]"}}`,
		},
		"short texts of any script, and of signs": {
			"/structuredContent/marks",
			`{"content":[{"type":"text","text":"é or 世 or ñu, of café and 世界; it is +-"},{"type":"text","text":"+-"}],"structuredContent":{"marks":["é","世","ñu","+-"]}}`,
			`{"content":[{"type":"text","text":"[redacted] or [redacted] or [redacted], of caf[redacted] and [redacted]界; it is +-"},{"type":"text","text":"[redacted]"}],"structuredContent":{"marks":"[redacted]"}}`,
		},
		"in a text of JSON that begins with spaces": {
			"/structuredContent/email",
			`{"content":[{"type":"text","text":" \n{\"to\":\"a@b.example\",\"x\":1}"}],"structuredContent":{"email":"a@b.example"}}`,
			`{"content":[{"type":"text","text":"{\"to\":\"[redacted]\",\"x\":1}"}],"structuredContent":{"email":"[redacted]"}}`,
		},
		"a text that is a number elsewhere, and a number that is part of a word": {
			"/structuredContent/ssn",
			`{"content":[{"type":"text","text":"SSN123456789, 123,456,789, {\"n\":123456789}"}],"structuredContent":{"ssn":"123456789","n":123456789}}`,
			`{"content":[{"type":"text","text":"SSN[redacted], [redacted], {\"n\":[redacted]}"}],"structuredContent":{"ssn":"[redacted]","n":"[redacted]"}}`,
		},
		"a number that is too long to reckon with": {
			"/structuredContent/n",
			`{"content":[{"type":"text","text":"12345678901234567890123456789012345678901"}],"structuredContent":{"n":12345678901234567890123456789012345678901,"m":12345678901234567890123456789012345678901}}`,
			`{"content":[{"type":"text","text":"[redacted]"}],"structuredContent":{"n":"[redacted]","m":"[redacted]"}}`,
		},
		"values that overlap": {
			"/structuredContent/v",
			`{"content":[{"type":"text","text":"abcdefgh"}],"structuredContent":{"v":["abcde","cdef","defgh"]}}`,
			`{"content":[{"type":"text","text":"[redacted]"}],"structuredContent":{"v":"[redacted]"}}`,
		},
		"all that a field holds": {
			"/structuredContent/user",
			`{"content":[{"type":"text","text":"Ann, 0301234567, is here"}],"structuredContent":{"user":{"name":"Ann","phones":["0301234567"]},"at":"here"}}`,
			`{"content":[{"type":"text","text":"[redacted], [redacted], is here"}],"structuredContent":{"user":"[redacted]","at":"here"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := redact.Result(switchboard.Result{JSON: []byte(tt.in)}, []string{tt.pointer}, nil)
			if string(got.JSON) != tt.want {
				t.Errorf("got\n%s, want\n%s", got.JSON, tt.want)
			}
		})
	}
}

// Many values are searched like one: in texts and in keys.
func TestManyValuesAreReplaced(t *testing.T) {
	var users []string
	for i := range 20_000 {
		users = append(users, fmt.Sprintf("user-%d@example.com", i))
	}
	list, _ := json.Marshal(users)
	in := fmt.Sprintf(`{"content":[{"type":"text","text":"the last is user-19999@example.com, of 20000"}],"structuredContent":{"users":%s,"by":{"user-7@example.com":1,"user-70@example.com":2}}}`, list)
	got := redact.Result(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent/users"}, nil)
	if want := `{"content":[{"type":"text","text":"the last is [redacted], of 20000"}],"structuredContent":{"users":"[redacted]","by":{"[redacted]":1,"[redacted] 2":2}}}`; string(got.JSON) != want {
		t.Errorf("got\n%s, want\n%s", got.JSON, want)
	}
}

// A text with more levels of escapes than are resolved is withheld, because its content cannot be
// determined.
func TestATextWithTooManyLevelsOfEscapesIsWithheld(t *testing.T) {
	text := "ann@example.com"
	for range 20 {
		text = strings.ReplaceAll(text, `\`, `\\`)
		if !strings.Contains(text, `\`) {
			text = `\u0061` + text[1:]
		}
	}
	quoted, _ := json.Marshal(text)
	in := `{"content":[{"type":"text","text":` + string(quoted) + `}],"structuredContent":{"email":"ann@example.com"}}`
	for name, got := range map[string]switchboard.Result{
		"a field":         redact.Result(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent/email"}, nil),
		"a detector":      redact.Result(switchboard.Result{JSON: []byte(in)}, nil, []switchboard.Detector{switchboard.DetectEmail}),
		"no datum at all": redact.Result(switchboard.Result{JSON: []byte(strings.Replace(in, "ann@", "ann-", 1))}, nil, []switchboard.Detector{switchboard.DetectEmail}),
	} {
		if !strings.Contains(string(got.JSON), `"text":"[redacted]"`) {
			t.Errorf("%s: the text is shown", name)
		}
	}
}

// The limit is fifty times the measured time: a search that is not linear takes minutes.
func TestNoResultOfAServerMakesTheSearchSlow(t *testing.T) {
	var values []string
	for i := range 990 {
		values = append(values, strings.Repeat("a", 30)+strconv.Itoa(i))
	}
	secret, _ := json.Marshal(values)
	for name, one := range map[string]string{
		"escaped backslashes":        `\u005c`,
		"backslashes":                `\`,
		"what the values begin with": strings.Repeat("a", 31),
		"digits":                     "1",
		"numbers":                    "1,234.5e1 ",
		"texts of JSON":              `{"a":"`,
	} {
		t.Run(name, func(t *testing.T) {
			text, _ := json.Marshal(strings.Repeat(one, 1<<20/len(one)))
			in := []byte(`{"content":[{"type":"text","text":` + string(text) + `}],"structuredContent":{"secret":` + string(secret) + `,"n":123456789}}`)
			began := time.Now()
			redact.Result(switchboard.Result{JSON: in}, []string{"/structuredContent/secret", "/structuredContent/n"}, switchboard.Detectors)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("1 MiB takes %s", took)
			}
		})
	}
}

// Made-up results repeat a value in many ways. The redacted result holds it nowhere, however often
// it is unescaped; other data than text stays.
func TestNoRedactedValueIsLeftInAnyByte(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		in, value, spelt := MadeUp(r)
		got := redact.Result(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent/user/secret"}, nil).JSON
		if !json.Valid(got) {
			t.Fatalf("seed %d: the result is not JSON:\n%s\nof\n%s", seed, got, in)
		}
		for depth, text := 0, string(got); depth < 5; depth++ {
			for _, s := range spelt {
				if strings.Contains(text, s) {
					t.Fatalf("seed %d: %q is left at depth %d:\n%s\nof\n%s", seed, s, depth, got, in)
				}
			}
			text = unescapeOnce(text)
		}
		if blob := base64.StdEncoding.EncodeToString([]byte(value)); strings.Contains(in, blob) && !bytes.Contains(got, []byte(blob)) {
			t.Fatalf("seed %d: binary data has changed", seed)
		}
	}
}

// MadeUp returns a result with the value in the field /structuredContent/user/secret and with texts
// that repeat it, and the value without escapes.
func MadeUp(r *rand.Rand) (result, value string, spelt []string) {
	raw := ""
	switch r.IntN(3) {
	case 0:
		value = []string{"ann@example.com", "+49 30 1234567", `C:\users\"ann"`, "Ünïcødé/€ 😀", "two\nlines\tand more"}[r.IntN(5)]
		raw = quoted(r, value)
		spelt = []string{value}
	case 1:
		n := 1000 + r.IntN(1_000_000)
		value, raw = strconv.Itoa(n), strconv.Itoa(n)+[]string{"", ".0", ".00"}[r.IntN(3)]
		spelt = []string{value}
	default:
		value = fmt.Sprintf("key-%x", r.Uint64())
		raw = quoted(r, value)
		spelt = []string{value}
	}
	structured := []string{`"user":{"secret":` + raw + `}`, `"x":1`, `"y":[true,null]`}
	object := func(space string) string {
		r.Shuffle(len(structured), func(i, j int) { structured[i], structured[j] = structured[j], structured[i] })
		return "{" + space + strings.Join(structured, ","+space) + space + "}"
	}
	var blocks []string
	for range 1 + r.IntN(4) {
		text := ""
		switch r.IntN(6) {
		case 0:
			text = object("")
		case 1:
			text = object("\n  ")
		case 2:
			text = "The value is " + value + "."
		case 3:
			text = "log " + object("") + " end"
		case 4:
			text = `{"inner":` + quoted(r, `{"deep":`+quoted(r, object(" "))+`}`) + `}`
		default:
			text = "line: " + quoted(r, `{"deep":`+quoted(r, "it is "+value+" there")+`}`)
		}
		blocks = append(blocks, `{"type":"text","text":`+quoted(r, text)+`}`)
	}
	blocks = append(blocks, `{"type":"image","mimeType":"image/png","data":"`+base64.StdEncoding.EncodeToString([]byte(value))+`"}`)
	return `{"content":[` + strings.Join(blocks, ",") + `],"structuredContent":` + object("") + `}`, value, spelt
}

// quoted returns the text as JSON, with unnecessary escapes for some of its characters.
func quoted(r *rand.Rand, text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(c))
		case c == '\n':
			b.WriteString(`\n`)
		case c < ' ' || c < 0x10000 && r.IntN(8) == 0:
			fmt.Fprintf(&b, []string{`\u%04x`, `\u%04X`}[r.IntN(2)], c)
		case c == '/' && r.IntN(2) == 0:
			b.WriteString(`\/`)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// unescapeOnce resolves the JSON escapes of a text once.
func unescapeOnce(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		switch text[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'u':
			if i+4 < len(text) {
				if n, err := strconv.ParseUint(text[i+1:i+5], 16, 32); err == nil {
					b.WriteRune(rune(n))
					i += 4
					continue
				}
			}
			b.WriteByte('u')
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String()
}

// A question is redacted in the same way in a request and in place of a result.
func TestNames16AQuestionIsRedactedAsItsParams(t *testing.T) {
	for _, tt := range []struct{ params, want string }{
		{`{"mode":"form","message":"for ann@example.com?"}`, `{"mode":"form","message":"for [redacted]?"}`},
		{`{"mode":"url","url":"https://x.example/?m=ann@example.com","message":"go"}`, `{"mode":"url","url":"https://x.example/?m=ann@example.com","message":"go"}`},
		{`{"messages":[{"role":"user","content":{"type":"image","mimeType":"image/png","data":"ann@example.com"}}]}`, `{"messages":[{"role":"user","content":{"type":"image","mimeType":"image/png","data":"ann@example.com"}}]}`},
	} {
		email := []switchboard.Detector{switchboard.DetectEmail}
		if got := redact.Object([]byte(tt.params), email); string(got) != tt.want {
			t.Errorf("a request: %s, want %s", got, tt.want)
		}
		in := `{"resultType":"input_required","inputRequests":{"ann@example.com":{"method":"elicitation/create","params":%s}},"requestState":"ann@example.com"}`
		got := redact.Result(switchboard.Result{JSON: fmt.Appendf(nil, in, tt.params)}, nil, email)
		if want := fmt.Sprintf(in, tt.want); string(got.JSON) != want {
			t.Errorf("in place of a result: %s, want %s", got.JSON, want)
		}
	}
}

// Letters that become longer in upper case once led to an index after the end of a text.
func TestNoTextMakesTheSearchFail(t *testing.T) {
	for _, text := range []string{"-----begin private key ɐɐɐɐɐɐɐɐ-----", "-----BEGIN PRIVATE KEY-----", "-----begin ", "\xff\xfe@\xff.com", "+", "é@é.é", "https://:@", "bearer ", "\\", `\\u`, "1e99999999999"} {
		got := redact.Text(text+" ann@example.com", switchboard.Detectors)
		if strings.Contains(got, "ann@") {
			t.Errorf("%q: %s", text, got)
		}
		quoted, _ := json.Marshal(text)
		in := `{"content":[{"type":"text","text":` + string(quoted) + `}],"structuredContent":{"":true,"x":[` + string(quoted) + `,1e999999999,{"":null}]}}`
		if got := redact.Result(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent"}, switchboard.Detectors).JSON; !json.Valid(got) || bytes.Contains(got, []byte("isError")) {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func FuzzFields(f *testing.F) {
	f.Add(`{"content":[{"type":"text","text":"a@b.example \\u0061"}],"structuredContent":{"s":"a@b.example"}}`, "/structuredContent/s")
	f.Add(`{"content":[{"type":"text","text":"{\"s\":1e3}"}],"structuredContent":{"s":[1000,true,{"a":"b"}]}}`, "/structuredContent")
	f.Fuzz(func(t *testing.T, in, pointer string) {
		if m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":` + in + `}`)); err != nil || len(m.Params) == 0 || m.Params[0] != '{' || !strings.HasPrefix(pointer, "/") {
			t.Skip("no strict JSON, or no pointer")
		}
		got := redact.Result(switchboard.Result{JSON: []byte(in)}, []string{pointer}, switchboard.Detectors).JSON
		if !json.Valid(got) || string(got) == `{"content":[{"type":"text","text":"[redacted]"}],"isError":true}` {
			t.Errorf("%s of %s leaves %s", pointer, in, got)
		}
	})
}

func BenchmarkFields(b *testing.B) {
	text := strings.Repeat("a line of a log that says nothing of note, at 12:30 of day 17\\n", 1<<20/64)
	for name, value := range map[string]string{"a text": `"ann@example.com"`, "a number": "52000.5"} {
		in := []byte(`{"content":[{"type":"text","text":"` + text + `"}],"structuredContent":{"secret":` + value + `}}`)
		b.Run("1 MiB, "+name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				redact.Result(switchboard.Result{JSON: in}, []string{"/structuredContent/secret"}, nil)
			}
		})
	}
}

// Ordinary text with one find in each line of 200 bytes, like a tool's list of people.
func BenchmarkDetectors(b *testing.B) {
	line := `{"id":1234,"name":"Ann Example","mail":"ann%d@example.com","about":"` + strings.Repeat("she says nothing of note. ", 5) + `"}` + "\n"
	var text strings.Builder
	for i := 0; text.Len() < 1<<20; i++ {
		fmt.Fprintf(&text, line, i)
	}
	quoted, _ := json.Marshal(text.String())
	in := []byte(`{"content":[{"type":"text","text":` + string(quoted) + `}]}`)
	none := []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("a line of a log that says nothing of note, at 12:30 of day 17\\n", 1<<20/64) + `"}]}`)
	for name, in := range map[string][]byte{"1 MiB with 5,000 addresses": in, "1 MiB without a datum": none} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				redact.Result(switchboard.Result{JSON: in}, nil, switchboard.Detectors)
			}
		})
	}
}
