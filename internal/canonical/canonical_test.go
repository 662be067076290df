package canonical_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

func TestAppendGivesTheCanonicalForm(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"space goes", " { \"a\" : [ 1 ,\t2 , { } , [ ] ] }\r\n", `{"a":[1,2,{},[]]}`},
		{"members are sorted at every depth", `{"b":{"d":1,"c":2},"a":[{"f":1,"e":2}]}`, `{"a":[{"e":2,"f":1}],"b":{"c":2,"d":1}}`},
		{"elements are not", `[3,1,2]`, `[3,1,2]`},
		{"members are sorted by their unescaped names", `{"\u0062":1,"a":2}`, `{"a":2,"b":1}`},
		{"members are sorted by bytes, not by UTF-16", "{\"\U00010000\":1,\"\uFFFD\":2}", "{\"\uFFFD\":2,\"\U00010000\":1}"},
		{"a shorter name comes first", `{"ab":1,"a":2,"":3}`, `{"":3,"a":2,"ab":1}`},
		{"numbers keep their spelling", `[1,1.0,1e0,1E+00,-0,12345678901234567890]`, `[1,1.0,1e0,1E+00,-0,12345678901234567890]`},
		{"escapes are the shortest", `"\u0041\/\u0022\u005c\u000a\u000A\u001f\u007f\ud83d\ude00\u2028\u003c"`, "\"A/\\\"\\\\\\n\\n\\u001f\u007f\U0001F600\u2028<\""},
		{"words stay", `[true,false,null]`, `[true,false,null]`},
		{"a bare number", ` 1 `, `1`},
		{"an empty object", `{}`, `{}`},
		{"a quote in a name", `{"a\"":1,"a":{"\\":2}}`, `{"a":{"\\":2},"a\"":1}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := canonical.Append([]byte("x"), []byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != "x"+tt.want {
				t.Errorf("Append(x, %s) = %s, want x%s", tt.in, got, tt.want)
			}
		})
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, tt := range []struct{ name, in string }{
		{"nothing", ``},
		{"space", ` `},
		{"a name twice", `{"a":1,"a":1}`},
		{"a name twice, once escaped", `{"a":1,"\u0061":1}`},
		{"a name twice, deep down", `[{"x":{"a":1,"b":2,"a":1}}]`},
		{"bytes that are not UTF-8", "\"\xff\""},
		{"half a surrogate pair", `"\ud800"`},
		{"two values", `1 2`},
		{"a comma too many", `[1,]`},
		{"a byte order mark", "\uFEFF1"},
		{"too deep", strings.Repeat("[", 65) + strings.Repeat("]", 65)},
		{"too deep, objects", strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65)},
		{"an open end", strings.Repeat("[", 64)},
		{"NaN", `NaN`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := canonical.Append([]byte("x"), []byte(tt.in))
			if err == nil {
				t.Fatalf("Append(x, %q) = %q, want an error", tt.in, got)
			}
			if string(got) != "x" {
				t.Errorf("with the error, dst = %q, want it as it was", got)
			}
			if d, err := canonical.Digest([]byte(tt.in)); err == nil || d != "" {
				t.Errorf("Digest(%q) = %q, %v, want an error", tt.in, d, err)
			}
		})
	}
}

func TestDepth64IsAccepted(t *testing.T) {
	in := strings.Repeat(`[{"a":`, 32) + "1" + strings.Repeat("}]", 32)
	if got, err := canonical.Append(nil, []byte(in)); err != nil || string(got) != in {
		t.Errorf("Append = %s, %v, want the text itself", got, err)
	}
}

func TestDigestIsOfTheCanonicalForm(t *testing.T) {
	a, err := canonical.Digest([]byte(`{"b":1, "a":"\u0041"}`))
	if err != nil {
		t.Fatal(err)
	}
	// printf '{"a":"A","b":1}' | sha256sum
	const want = "sha256:2fbac9efdc203ac32532d2f2dc78f5009d3f0cc6649bcd905622e1e50aa7e28e"
	if sum := canonical.Sum([]byte(`{"a":"A","b":1}`)); a != sum || a != want {
		t.Errorf("Digest = %s, Sum = %s, want %s", a, sum, want)
	}
	if b, _ := canonical.Digest([]byte(`{"b":1.0, "a":"A"}`)); a == b {
		t.Error("1 and 1.0 have the same digest")
	}
}

// shuffle returns raw with the members of every object in another order, and with more white space.
func shuffle(t testing.TB, r *rand.Rand, raw []byte) []byte {
	t.Helper()
	raw = bytes.TrimSpace(raw)
	var parts [][]byte
	switch raw[0] {
	case '{':
		dec := jsontext.NewDecoder(bytes.NewReader(raw))
		_, _ = dec.ReadToken()
		for dec.PeekKind() != '}' {
			name, _ := dec.ReadValue()
			part := append([]byte(" "), name...)
			val, err := dec.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, append(append(part, " : "...), shuffle(t, r, val)...))
		}
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
		return append(append([]byte("{"), bytes.Join(parts, []byte(",\n"))...), '}')
	case '[':
		dec := jsontext.NewDecoder(bytes.NewReader(raw))
		_, _ = dec.ReadToken()
		for dec.PeekKind() != ']' {
			val, err := dec.ReadValue()
			if err != nil {
				t.Fatal(err)
			}
			parts = append(parts, shuffle(t, r, val))
		}
		return append(append([]byte("["), bytes.Join(parts, []byte("\t,"))...), ']')
	}
	return bytes.Clone(raw)
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{
		`{"b":[1,{"d":"\u0041","c":1.50}],"a":null}`, `"\ud83d\ude00\n"`, `{"a":1,"a":2}`, `[[[]]]`, ` {"\u0000":{}} `, `-0.0e-1`, "{\"\U00010000\":1,\"\uFFFD\":2}",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		once, err := canonical.Append(nil, raw)
		if err != nil {
			return
		}
		if !jsontext.Value(raw).IsValid() {
			t.Fatalf("%q was accepted, but jsontext refuses it", raw)
		}
		twice, err := canonical.Append(nil, once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("the canonical form of the canonical form of %q is %q (%v), not %q", raw, twice, err, once)
		}
		other := shuffle(t, rand.New(rand.NewPCG(seed, 0)), raw)
		if form, err := canonical.Append(nil, other); err != nil || !bytes.Equal(form, once) {
			t.Fatalf("the canonical form of %q is %q, and in another order %q (%v)", raw, once, form, err)
		}
		if a, b := decoded(t, raw), decoded(t, once); a != b {
			t.Fatalf("%q means %s, but its canonical form %q means %s", raw, a, once, b)
		}
	})
}

// decoded returns the value that encoding/json reads from raw, with numbers in their own spelling.
func decoded(t testing.TB, raw []byte) string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", raw, err)
	}
	return fmt.Sprintf("%#v", v)
}

var definition = []byte(`{"name":"search","description":"` + strings.Repeat("Searches the web for pages.\\n", 20) +
	`","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"what to look for"},` +
	`"limit":{"type":"integer","minimum":1,"maximum":100,"default":10}},"required":["query"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"openWorldHint":true,"title":"Search"}}`)

func BenchmarkDigest(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(definition)))
	for b.Loop() {
		if _, err := canonical.Digest(definition); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzAppendScannedGivesTheSameForm(f *testing.F) {
	for _, s := range []string{
		`{"b":[1,{"d":"\u0041","c":1.50}],"a":null}`, `{"\ud83d\ude00\n":"\\"}`, `{"a":1,"a":2}`, `{ "a" : [ ] }`, `{"a":"\ud800"}`, `[]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := wire.Parse(wire.AppendRequest(nil, []byte("1"), "m", raw))
		if err != nil || m.Params == nil {
			return
		}
		want, err := canonical.Append(nil, m.Params)
		if err != nil {
			t.Fatalf("wire.Parse accepted %q, but Append refuses it: %v", m.Params, err)
		}
		if got, err := canonical.AppendScanned([]byte("before "), m.Params); err != nil || string(got) != "before "+string(want) {
			t.Fatalf("%q is %q (%v), not %q", m.Params, got, err, want)
		}
	})
}
