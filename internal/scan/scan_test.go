package scan

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// TP-07
func TestCleanRemovesWhatDeceivesAndNothingElse(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"plain text":                  {"Searches the web.\n\tOne query a call.", "Searches the web.\n\tOne query a call."},
		"letters of all scripts":      {"naïve Größe 日本語 한국어 עברית العربية", "naïve Größe 日本語 한국어 עברית العربية"},
		"a colour":                    {"a\x1b[31mb\x1b[0mc", "abc"},
		"a link of a terminal":        {"a\x1b]8;;https://evil.example\x07b\x1b]8;;\x1b\\c", "abc"},
		"the clipboard":               {"a\x1b]52;c;ZXZpbA==\x07b", "ab"},
		"a sequence without end":      {"a\x1b]52;c;ZXZpbA==", "a"},
		"one that ends with the line": {"a\x1b]0;title\nb", "a\nb"},
		"a device control string":     {"a\x1bPq#0\x1b\\b", "ab"},
		"a character set":             {"a\x1b(Bb\x1b7c", "abc"},
		"an escape at the end":        {"a\x1b", "a"},
		"a bell and a backspace":      {"pass\x07word\x08\x00\x7f", "password"},
		"a carriage return":           {"good\r\nevil", "good\nevil"},
		"C1":                          {"a\u0085b\u009bc", "abc"},
		"an override of order":        {"a\u202eb\u202cc\u2066d\u2069\u200e\u061c", "abcd"},
		"characters without width":    {"pa\u200bss\u2060wo\ufeffrd", "password"},
		"a joiner between letters":    {"pass\u200dword\u200c!", "password!"},
		"fillers":                     {"a\u3164b\u115fc", "abc"},
		"tags":                        {"Hi\U000e0049\U000e0067\U000e006e!", "Hi!"},
		"selectors after letters":     {"a\ufe01\ufe0fb\U000e0101", "ab"},
		"a line separator":            {"a\u2028b", "ab"},
		"a family":                    {"👨\u200d👩\u200d👧", "👨\u200d👩\u200d👧"},
		"a flag":                      {"🏳\ufe0f\u200d🌈", "🏳\ufe0f\u200d🌈"},
		"a skin":                      {"👩🏽\u200d💻", "👩🏽\u200d💻"},
		"a heart and a key":           {"❤\ufe0f 1\ufe0f⃣", "❤\ufe0f 1\ufe0f⃣"},
		"Persian":                     {"می\u200cخواهم", "می\u200cخواهم"},
		"Sinhala":                     {"ශ්\u200dරී", "ශ්\u200dරී"},
		"nothing":                     {"", ""},
	} {
		got, removed := Clean(tt.text)
		if got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
		if want := utf8.RuneCountInString(tt.text) - utf8.RuneCountInString(tt.want); removed != want {
			t.Errorf("%s: %d removed, want %d", name, removed, want)
		}
	}
}

func TestCleanJSONCleansValuesAndKeepsNamesAndSpelling(t *testing.T) {
	for raw, want := range map[string]string{
		`{"description":"a\u001b[31mb","n":1.0}`:                  `{"description":"ab","n":1.0}`,
		"{\"a\\u202e\": \"x\u202ey\",\n \"list\": [\"\u200bz\"]}": "{\"a\\u202e\": \"xy\",\n \"list\": [\"z\"]}",
		`{"escaped":"\u00e9\n\"\\ \/"}`:                           `{"escaped":"\u00e9\n\"\\ \/"}`,
		`["\b\f\r", "\u0000"]`:                                    `["", ""]`,
		`"a\\u001b"`:                                              `"a\\u001b"`,
		`{"x":{"y" :"\u200b"}}`:                                   `{"x":{"y" :""}}`,
		`7`:                                                       `7`,
	} {
		if got, _ := CleanJSON([]byte(raw)); string(got) != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
	same := []byte(`{"a":"ü","b":"\u00fc"}`)
	if got, n := CleanJSON(same); n != 0 || &got[0] != &same[0] {
		t.Errorf("a clean text was copied: %s", got)
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\x1b[31mb", "\x1b]8;;x\x07", "👨\u200d👩", "\u202e", "a\x1b", "\x1b(", "می\u200cخواهم", "\xff\x1b["} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, removed := Clean(text)
		if twice, more := Clean(once); more != 0 && utf8.ValidString(text) && !strings.ContainsRune(text, joiner) && !strings.ContainsRune(text, nonJoint) && twice != once {
			t.Errorf("%q, then %q, then %q", text, once, twice)
		}
		if removed == 0 && once != text {
			t.Errorf("%q became %q, and nothing was removed", text, once)
		}
		for _, r := range once {
			if r == escape || r < ' ' && r != '\n' && r != '\t' || r >= 0x202a && r <= 0x202e || r >= 0xe0000 && r <= 0xe007f {
				t.Errorf("%q still has %U", once, r)
			}
		}
		raw, _ := json.Marshal(map[string]any{"a": text, "b": []string{text}})
		clean, _ := CleanJSON(raw)
		if !json.Valid(clean) || removed > 0 && utf8.ValidString(text) && bytes.Equal(clean, raw) {
			t.Errorf("%s became %s", raw, clean)
		}
	})
}

func BenchmarkCleanJSON(b *testing.B) {
	long := strings.Repeat("Reads a file from the disk and returns its contents. ", 40)
	for name, raw := range map[string]string{
		"plain, 2 KiB": `{"name":"read","description":"` + long + `"}`, "accents, 2 KiB": `{"name":"read","description":"é` + long + `"}`,
		"with a colour, 2 KiB": `{"name":"read","description":"\u001b[31m` + long + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				CleanJSON([]byte(raw))
			}
		})
	}
}
