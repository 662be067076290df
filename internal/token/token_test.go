package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tiktoken-go/tokenizer/codec"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/test/realdata"
)

func counter(t rapid.TB, encoding string) *Counter {
	t.Helper()
	c, err := New(encoding)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTheTableHoldsTheVocabulary(t *testing.T) {
	for encoding, size := range map[string]int{"o200k_base": 199998, "cl100k_base": 100256} {
		tokens, v := vocabularyOf(encoding), counter(t, encoding).vocabulary
		if len(tokens) != size {
			t.Errorf("%s has %d tokens, want %d", encoding, len(tokens), size)
		}
		for rank, text := range tokens {
			if got := v.rankOf([]byte(text)); got != uint32(rank) {
				t.Fatalf("%s: %q is token %d, want %d", encoding, text, got, rank)
			}
			if got := v.rankOf([]byte(text + "\xff\xff\x00")); got != noRank {
				t.Fatalf("%s: %q with more bytes is token %d", encoding, text, got)
			}
		}
		for b := range 256 {
			if v.rankOf([]byte{byte(b)}) == noRank {
				t.Errorf("%s: byte %#x is not a token, and count relies on that", encoding, b)
			}
		}
	}
}

// Two other implementations, in another language, agree on these counts.
func TestCountsMatchOtherImplementations(t *testing.T) {
	file, err := os.ReadFile("testdata/counts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(file) {
		var row struct {
			Text  string
			Times int
			O200k int `json:"o200k_base"`
			Cl100 int `json:"cl100k_base"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		times := max(row.Times, 1)
		text := []byte(strings.Repeat(row.Text, times))
		for encoding, want := range map[string]int{"o200k_base": row.O200k, "cl100k_base": row.Cl100} {
			if got := counter(t, encoding).Count(text); got != want {
				t.Errorf("%s: %q, %d times, has %d tokens, want %d", encoding, row.Text, times, got, want)
			}
		}
	}
}

// Published with the encodings, in "How to count tokens with tiktoken".
func TestCountsMatchThePublishedOnes(t *testing.T) {
	for _, tt := range []struct {
		text         string
		o200k, cl100 int
	}{
		{"antidisestablishmentarianism", 6, 6},
		{"2 + 2 = 4", 7, 7},
		{"お誕生日おめでとう", 8, 9},
	} {
		for encoding, want := range map[string]int{"o200k_base": tt.o200k, "cl100k_base": tt.cl100} {
			if got := counter(t, encoding).Count([]byte(tt.text)); got != want {
				t.Errorf("%s: %q has %d tokens, want %d", encoding, tt.text, got, want)
			}
		}
	}
}

func FuzzCount(f *testing.F) {
	for _, s := range []string{
		"", "hello world", "it's IT'S 'ſ we'll  WE'LL'd\r\n\n x", "0 0\n  \n00", "a\x7fb", "お誕生日おめでとう",
		"A中AA\u0301b \u0301A ABC", "1234567 ٣٤٥٦", " \u00a0\u2003\u0085\ufeff //\n/x", "ǅǅa ʰB'ſ", `{"type":"object","properties":{}}`,
	} {
		f.Add([]byte(s))
	}
	refs := map[string]*reference{}
	for _, encoding := range encodings {
		refs[encoding] = newReference(encoding)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		text = bytes.ToValidUTF8(text[:min(len(text), 1<<10)], nil)
		for _, encoding := range encodings {
			c, ref := counter(t, encoding), refs[encoding]
			if got, want := c.Count(text), ref.count(t, string(text)); got != want {
				t.Errorf("%s: %q has %d tokens, want %d", encoding, text, got, want)
			}
			var pieces []string
			for i := 0; i < len(text); {
				end := c.split(text, i)
				pieces = append(pieces, string(text[i:end]))
				i = end
			}
			if want := ref.split(t, string(text)); !slices.Equal(pieces, want) {
				t.Errorf("%s: %q is split into %q, want %q", encoding, text, pieces, want)
			}
		}
	})
}

func TestCountsOfRealDefinitionsMatchTheReference(t *testing.T) {
	file := realdata.File("catalog", "subset.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Skipf("no %s; set SWITCHBOARD_DATA to the folder of test data", file)
	}
	var servers []struct{ Tools []json.RawMessage }
	if err := json.Unmarshal(text, &servers); err != nil {
		t.Fatal(err)
	}
	for _, encoding := range encodings {
		c, ref, n := counter(t, encoding), newReference(encoding), 0
		for _, s := range servers {
			for _, tool := range s.Tools {
				if n++; n%10 != 0 {
					continue // the reference is slow
				}
				if got, want := c.Count(tool), ref.count(t, string(tool)); got != want {
					t.Errorf("%s: %d tokens, want %d: %.200s", encoding, got, want, tool)
				}
			}
		}
		if n < 1000 {
			t.Fatalf("only %d tools were found", n)
		}
	}
}

func TestATextHasAtMostAsManyTokensAsBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("aA中\u0301 \n'/0é\x7f"))), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text"))
		for _, encoding := range encodings {
			if n := counter(t, encoding).Count(text); n > len(text) || n == 0 && len(text) > 0 {
				t.Fatalf("%s: %d bytes have %d tokens", encoding, len(text), n)
			}
		}
	})
}

func TestAnUnknownEncodingIsAnError(t *testing.T) {
	for _, name := range []string{"", "O200K_BASE", "p50k_base"} {
		if c, err := New(name); err == nil {
			t.Errorf("New(%q) = %v", name, c)
		}
	}
}

// hostile are texts that are slow for other tokenizers.
func hostile(n int) map[string][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	made := func(one func() string) []byte {
		var b strings.Builder
		for b.Len() < n {
			b.WriteString(one())
		}
		return []byte(b.String())
	}
	same := func(s string) []byte { return made(func() string { return s }) }
	between := func(low, high rune) []byte {
		return made(func() string { return string(low + r.Int32N(high-low)) })
	}
	return map[string][]byte{
		"a": same("a"), "A": same("A"), "A中": same("A中"), "中A": append([]byte("中"), same("A")...), "spaces": same(" "), "spaces and x": append(same(" "), 'x'),
		"newlines": same("\n"), "space newline": same(" \n"), "digits": same("7"), "dashes": same("-"), "marks": same("\u0301"), "letters with marks": same("e\u0301"), "emoji": same("😀"),
		"one CJK": same("中"), "random CJK": between(0x4e00, 0x9fff), "random Hangul": between(0xac00, 0xd7a3), "random Cyrillic": between('а', 'я'), "random letters": between('a', 'z'),
		"random ASCII": between(' ', '~'), "random characters": between(0, 0xd7ff), "bytes": made(func() string { return string([]byte{byte(r.IntN(256))}) }),
	}
}

// The limit is far above the usual few milliseconds, and far below what a quadratic algorithm takes.
func TestNoTextTakesLong(t *testing.T) {
	for name, text := range hostile(64 << 10) {
		for _, encoding := range encodings {
			begin := time.Now()
			counter(t, encoding).Count(text)
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("%s: %d bytes of %s took %v", encoding, len(text), name, took)
			}
		}
	}
}

func TestATextIsCountedOnceAndNoCallerWaitsForAnotherText(t *testing.T) {
	c := counter(t, "o200k_base")
	split, begun, goOn := c.split, make(chan bool, 100), make(chan struct{})
	c.split = func(text []byte, i int) int {
		if string(text) == "slow" {
			begun <- true
			<-goOn
		}
		return split(text, i)
	}
	var slow sync.WaitGroup
	for range 100 {
		slow.Go(func() {
			if n := c.Count([]byte("slow")); n != 1 {
				t.Errorf("slow has %d tokens", n)
			}
		})
	}
	<-begun
	if n := c.Count([]byte("hello world")); n != 2 { // while slow is being counted
		t.Errorf("it has %d tokens", n)
	}
	close(goOn)
	slow.Wait()
	c.Count([]byte("slow"))
	if len(begun) > 0 {
		t.Errorf("it was counted %d times more", len(begun))
	}
}

func TestTheCounterRemembersALimitedNumberOfCountsAndTheUsedOnesLongest(t *testing.T) {
	c := counter(t, "o200k_base")
	counted := map[string]int{}
	split := c.split
	c.split = func(text []byte, i int) int {
		if i == 0 {
			counted[string(text)]++
		}
		return split(text, i)
	}
	for i := range 5 * maxRememberedCounts {
		c.Count(fmt.Append(nil, "text ", i))
		c.Count([]byte("asked for"))
		if n := len(c.young) + len(c.old); n > 2*maxRememberedCounts {
			t.Fatalf("%d counts are kept", n)
		}
	}
	if n := counted["asked for"]; n != 1 {
		t.Errorf("the text that is used all the time was counted %d times", n)
	}
	if c.Count([]byte("text 0")); counted["text 0"] != 2 {
		t.Errorf("an unused count is never forgotten")
	}
}

// One definition in the form that servers send, counted by us and by the library that has the vocabulary.
func BenchmarkDefinition(b *testing.B) {
	text := []byte(`{"name":"search_issues","description":"Search issues and pull requests of a repository. It's the fastest way to find what was said about an error.",` +
		`"inputSchema":{"type":"object","properties":{"owner":{"type":"string","description":"Owner of the repository"},"repo":{"type":"string","description":"Name of the repository"},` +
		`"query":{"type":"string","description":"Search query, as on the site: is:open label:bug"},"perPage":{"type":"integer","minimum":1,"maximum":100,"default":30}},"required":["owner","repo","query"]},` +
		`"annotations":{"readOnlyHint":true,"openWorldHint":true}}`)
	b.Run("ours", func(b *testing.B) {
		c := counter(b, "o200k_base")
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			c.countTokens(text)
		}
	})
	b.Run("known", func(b *testing.B) {
		c := counter(b, "o200k_base")
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			c.Count(text)
		}
	})
	b.Run("library", func(b *testing.B) {
		c := codec.NewO200kBase()
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			if _, err := c.Count(string(text)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkHostile(b *testing.B) {
	for name, text := range hostile(512 << 10) {
		b.Run(name, func(b *testing.B) {
			c := counter(b, "o200k_base")
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				c.countTokens(text)
			}
		})
	}
}
