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

	"github.com/summit-switchboard/switchboard/internal/redact"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestTheValueIsGoneWhereverTheResultRepeatsIt(t *testing.T) {
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
		"all that a field holds": {
			"/structuredContent/user",
			`{"content":[{"type":"text","text":"Ann, 0301234567, is here"}],"structuredContent":{"user":{"name":"Ann","phones":["0301234567"]},"at":"here"}}`,
			`{"content":[{"type":"text","text":"[redacted], [redacted], is here"}],"structuredContent":{"user":"[redacted]","at":"here"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := redact.Fields(switchboard.Result{JSON: []byte(tt.in)}, []string{tt.pointer})
			if string(got.JSON) != tt.want {
				t.Errorf("got\n%s, want\n%s", got.JSON, tt.want)
			}
		})
	}
}

// What nobody can search for in time is not shown.
func TestTextsAreWithheldWhereTooMuchWouldHaveToBeSearchedFor(t *testing.T) {
	var users []string
	for i := range 2000 {
		users = append(users, fmt.Sprintf("user-%d@example.com", i))
	}
	list, _ := json.Marshal(users)
	in := fmt.Sprintf(`{"content":[{"type":"text","text":"the first is user-0@example.com"}],"structuredContent":{"users":%s,"n":2000}}`, list)
	got := redact.Fields(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent/users"})
	if want := `{"content":[{"type":"text","text":"[redacted]"}],"structuredContent":{"users":"[redacted]","n":2000}}`; string(got.JSON) != want {
		t.Errorf("got\n%s, want\n%s", got.JSON, want)
	}
}

// Made-up results repeat a value in many ways. It stands nowhere in what is left, however often that is
// unescaped; what is not text stays.
func TestNoRedactedValueIsLeftInAnyByte(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		in, value, spelt := MadeUp(r)
		got := redact.Fields(switchboard.Result{JSON: []byte(in)}, []string{"/structuredContent/user/secret"}).JSON
		if !json.Valid(got) {
			t.Fatalf("seed %d: no JSON is left:\n%s\nof\n%s", seed, got, in)
		}
		for depth, text := 0, string(got); depth < 5; depth++ {
			for _, s := range spelt {
				if strings.Contains(text, s) {
					t.Fatalf("seed %d: %q is left at depth %d:\n%s\nof\n%s", seed, s, depth, got, in)
				}
			}
			text = unescaped(text)
		}
		if blob := base64.StdEncoding.EncodeToString([]byte(value)); strings.Contains(in, blob) && !bytes.Contains(got, []byte(blob)) {
			t.Fatalf("seed %d: what is binary has changed", seed)
		}
	}
}

// MadeUp is a result whose field /structuredContent/user/secret holds the value, with texts that repeat it;
// and how the value is spelt without escapes.
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

// quoted is the text as JSON, with some of its characters escaped that need not be.
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

// unescaped resolves the escapes of JSON in a text, once.
func unescaped(text string) string {
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

func FuzzFields(f *testing.F) {
	f.Add(`{"content":[{"type":"text","text":"a@b.example \\u0061"}],"structuredContent":{"s":"a@b.example"}}`, "/structuredContent/s")
	f.Add(`{"content":[{"type":"text","text":"{\"s\":1e3}"}],"structuredContent":{"s":[1000,true,{"a":"b"}]}}`, "/structuredContent")
	f.Fuzz(func(t *testing.T, in, pointer string) {
		if m, err := wire.Parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"x","params":` + in + `}`)); err != nil || len(m.Params) == 0 || m.Params[0] != '{' || !strings.HasPrefix(pointer, "/") {
			t.Skip("no strict JSON, or no pointer")
		}
		got := redact.Fields(switchboard.Result{JSON: []byte(in)}, []string{pointer}).JSON
		if !json.Valid(got) {
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
				redact.Fields(switchboard.Result{JSON: in}, []string{"/structuredContent/secret"})
			}
		})
	}
}
