package search

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tool returns the Doc of a tool with a description and a schema.
func tool(server, name, description, schema string) *Doc {
	text, err := json.Marshal(description)
	if err != nil {
		panic(err)
	}
	if schema == "" {
		schema = `{"type":"object"}`
	}
	return Analyse(switchboard.ToolID{Server: switchboard.ServerID(server), Name: name},
		fmt.Appendf(nil, `{"name":%q,"description":%s,"inputSchema":%s}`, name, text, schema))
}

// found returns the names of the matches, best first, without the servers.
func found(x *Index, query string) string {
	var names []string
	for _, m := range x.Search(query, 10) {
		names = append(names, m.ID.Name)
	}
	return strings.Join(names, " ")
}

func TestAWordIsWeightedByItsField(t *testing.T) {
	const in = `{"properties":{%q:{"description":%q}}}`
	x := New([]*Doc{
		tool("a", "one", "nothing", fmt.Sprintf(in, "id", "of the bucket")),
		tool("a", "two", "nothing", fmt.Sprintf(in, "bucket", "which")),
		tool("a", "three", "a bucket", ""),
		tool("a", "four_bucket", "nothing", ""),
		tool("a", "five", "nothing", ""),
	})
	if got, want := found(x, "bucket"), "four_bucket three two one"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

func TestParametersAreFoundAnywhereInTheSchema(t *testing.T) {
	for _, schema := range []string{
		`{"properties":{"x":{"properties":{"bucket":{}}}}}`,
		`{"properties":{"x":{"items":{"properties":{"bucket":{}}}}}}`,
		`{"properties":{"x":{"anyOf":[{"type":"null"},{"properties":{"bucket":{}}}]}}}`,
		`{"$defs":{"X":{"properties":{"bucket":{}}}},"properties":{"x":{"$ref":"#/$defs/X"}}}`,
		`{"properties":{"x":{"enum":["bucket"]}}}`,
		`{"properties":{"x":{"description":"the \u0062ucket"}}}`,
	} {
		if found(New([]*Doc{tool("a", "t", "", schema)}), "bucket") == "" {
			t.Errorf("not found in %s", schema)
		}
	}
}

func TestTitlesAreFound(t *testing.T) {
	for _, definition := range []string{`{"title":"Buckets"}`, `{"annotations":{"title":"Buckets"}}`} {
		if found(New([]*Doc{Analyse(switchboard.ToolID{Server: "a", Name: "t"}, []byte(definition))}), "bucket") == "" {
			t.Errorf("not found in %s", definition)
		}
	}
}

// In a group of two tools, one alone may say "the".
func TestStopWordsDoNotCount(t *testing.T) {
	a, b := tool("a", "one", "this is the tool for you", ""), tool("a", "two", "tool", "")
	if a.length[inText] != b.length[inText] {
		t.Errorf("%d words count, and %d", a.length[inText], b.length[inText])
	}
	if got := found(New([]*Doc{a, tool("a", "format", "", ""), tool("a", "theme", "", "")}), "what is this for, the"); got != "" {
		t.Errorf("found %s", got)
	}
}

func TestTheToolWithTheQuerysNameComesFirst(t *testing.T) {
	x := New([]*Doc{
		tool("files", "read", "read read read a file, read it, file", ""),
		tool("files", "read_file", "gives what is in it", ""),
		tool("files", "read_file_lines", "read a file: read file lines, file", ""),
		tool("web", "fetch", "read a file from the web", ""),
	})
	for _, query := range []string{"read_file", "readFile", "READ-FILE", "read file", "files__read_file", "files/read_file", "call read_file on a file, read lines"} {
		if got, _, _ := strings.Cut(found(x, query), " "); got != "read_file" {
			t.Errorf("%q finds %q first", query, got)
		}
	}
}

func TestTheBeginningOfANameFindsIt(t *testing.T) {
	x := New([]*Doc{
		tool("a", "create_issue", "", ""),
		tool("a", "list_calendars", "", ""),
		tool("a", "delete_branch", "of postgresql", ""),
	})
	names := New([]*Doc{tool("a", "deep_list", "", ""), tool("a", "list_deep", "", "")})
	if got := found(names, "list"); got != "list_deep deep_list" {
		t.Errorf("list finds %s", got)
	}
	for query, want := range map[string]string{
		"create_iss": "create_issue",
		"cre":        "create_issue",
		"calend":     "list_calendars",
		"postgres":   "delete_branch",
		"ca":         "",
	} {
		if got, _, _ := strings.Cut(found(x, query), " "); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

func TestOtherFormsAndSynonymsCountLess(t *testing.T) {
	x := New([]*Doc{
		tool("a", "keys", "", ""),
		tool("a", "key", "", ""),
		tool("b", "delete", "", ""),
		tool("b", "remove", "", ""),
		tool("c", "filesystem", "", ""),
		tool("c", "file", "", ""),
		tool("c", "system", "", ""),
	})
	for query, want := range map[string]string{
		"all the keys":     "keys key",
		"one key":          "key keys",
		"please remove it": "remove delete",
		"to erase it":      "delete remove",
		"deleting it now":  "delete remove",
		"in a file system": "file system filesystem",
	} {
		if got := found(x, query); got != want {
			t.Errorf("%q finds %q, want %q", query, got, want)
		}
	}
}

// A word that nearly every tool has is not specific, and a synonym of it is no more
// specific for being rare.
func TestASynonymCountsAsNoRarerThanTheQuerysWord(t *testing.T) {
	x := New([]*Doc{
		tool("a", "get_cat", "", ""), tool("a", "get_dog", "", ""), tool("a", "get_cow", "", ""), tool("a", "get_hen", "", ""),
		tool("a", "get_pig", "", ""), tool("a", "retrieve_all", "", ""),
	})
	for _, m := range x.Search("get them", 10)[:5] {
		if m.ID.Name == "retrieve_all" {
			t.Errorf("%v", m)
		}
	}
}

func TestEqualScoresAreOrderedByTheirBytes(t *testing.T) {
	x := New([]*Doc{tool("b", "ping", "", ""), tool("a", "pong_Z", "", ""), tool("a", "pong_Y", "", ""), tool("B", "ping", "", "")})
	var ids []string
	for _, m := range x.Search("ping pong", 10) {
		ids = append(ids, m.ID.String())
	}
	if got, want := strings.Join(ids, " "), "B/ping b/ping a/pong_Y a/pong_Z"; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// words are the vocabulary of generated tools.
var words = strings.Fields("read write list files issue issues create user users search web page image send message delete key keys")

func madeUp(r *rand.Rand, n int) (docs []*Doc) {
	some := func(n int) string {
		var s []string
		for range n {
			s = append(s, words[r.IntN(len(words))])
		}
		return strings.Join(s, " ")
	}
	for i := range n {
		schema := fmt.Sprintf(`{"properties":{%q:{"description":%q}}}`, some(1), some(3))
		docs = append(docs, tool(fmt.Sprint("s", i%7), strings.ReplaceAll(some(2), " ", "_")+fmt.Sprint(i), some(8), schema))
	}
	return docs
}

func TestTheOrderOfTheToolsDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	docs := madeUp(r, 300)
	x := New(docs)
	for range 20 {
		r.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
		y := New(docs)
		for _, query := range []string{"read the issues of a user", "send", "file keys", "create_iss"} {
			if a, b := x.Search(query, 50), y.Search(query, 50); !reflect.DeepEqual(a, b) {
				t.Fatalf("%q finds %v, and shuffled %v", query, a, b)
			}
		}
	}
}

func TestALowerLimitGivesTheFirstOfTheSameMatches(t *testing.T) {
	x := New(madeUp(rand.New(rand.NewPCG(3, 4)), 500))
	all := x.Search("list the files of users", MaxMatches)
	for limit := -1; limit <= len(all); limit++ {
		if got := x.Search("list the files of users", limit); !reflect.DeepEqual(append([]Match{}, got...), append([]Match{}, all[:max(limit, 0)]...)) {
			t.Fatalf("of %d, limit %d gives %v", len(all), limit, got)
		}
	}
	if n := len(x.Search("list the files of users", 1000)); n != MaxMatches {
		t.Errorf("found %d, want %d", n, MaxMatches)
	}
}

func TestAToolOutsideOfTheIndexChangesNothing(t *testing.T) {
	docs := madeUp(rand.New(rand.NewPCG(5, 6)), 200)
	before := New(docs[:50]).Search("list users", 50)
	_ = New(docs) // shares them
	if after := New(docs[:50]).Search("list users", 50); !reflect.DeepEqual(before, after) {
		t.Errorf("found %v, and then %v", before, after)
	}
}

func TestAnIndexIsSafeForConcurrentUse(t *testing.T) {
	docs := madeUp(rand.New(rand.NewPCG(7, 8)), 200)
	x := New(docs)
	want := x.Search("list users", 10)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if got := x.Search("list users", 10); !reflect.DeepEqual(got, want) {
					t.Errorf("found %v, want %v", got, want)
				}
				New(docs[:20]).Search("send a message", 5)
			}
		})
	}
	all.Wait()
}

func TestAQueryWithoutKnownWordsFindsNothing(t *testing.T) {
	for _, x := range []*Index{New(nil), New([]*Doc{tool("a", "read_file", "", "")}), New([]*Doc{Analyse(switchboard.ToolID{}, nil)})} {
		for _, query := range []string{"", " ", "the of a", "\xff\x00", "xyzzy", "..."} {
			if m := x.Search(query, 10); len(m) > 0 {
				t.Errorf("%q finds %v", query, m)
			}
		}
	}
}

// Servers may send definitions of any length, and clients queries of any length.
func TestTextBeyondALimitIsNotRead(t *testing.T) {
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, `"param%d":{"description":"word%d"},`, i, i)
	}
	deep := strings.Repeat(`{"properties":{"x":`, 20) + `{"properties":{"bottom":{}}}` + strings.Repeat(`}}`, 20)
	for what, d := range map[string]*Doc{
		"long description": tool("a", "t", strings.Repeat("word ", 200_000)+"last", ""),
		"many words": tool("a", "t", func() string {
			var s strings.Builder
			for i := range 100_000 {
				fmt.Fprintf(&s, "w%d ", i)
			}
			return s.String() + "last"
		}(), ""),
		"long name":        tool("a", strings.Repeat("word_", 200_000)+"last", "", ""),
		"long server":      tool(strings.Repeat("word-", 200_000)+"last", "t", "", ""),
		"many parameters":  tool("a", "t", "", `{"properties":{`+many.String()+`"last":{}}}`),
		"many schemas":     tool("a", "t", "", `{"anyOf":[`+strings.Repeat(`{},`, 10_000)+`{"properties":{"last":{}}}]}`),
		"many words to be": tool("a", "t", "", `{"properties":{"x":{"enum":[`+strings.Repeat(`"word",`, 1000)+`"last"]}}}`),
		"deep":             tool("a", "t", "", deep),
	} {
		if len(d.words) > maxWords {
			t.Errorf("%s: %d words", what, len(d.words))
		}
		x := New([]*Doc{d})
		if found(x, "last bottom") != "" {
			t.Errorf("%s: text beyond the limit is found", what)
		}
		x.Search(strings.Repeat("word ", 1_000_000), 10)
	}
	x := New([]*Doc{tool("a", "last", "", "")})
	if found(x, strings.Repeat("x", MaxQuery)+" last") != "" {
		t.Error("text beyond the limit of a query is read")
	}
	if found(x, wordsUpTo(1000)+" last") == "" {
		t.Error("text within the limit of a query is not read")
	}
}

func wordsUpTo(n int) string {
	var s strings.Builder
	for i := range n {
		fmt.Fprintf(&s, "%c%c%c ", 'p', 'a'+i/26%26, 'a'+i%26)
	}
	return s.String()
}

func FuzzAnalyse(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `[]`, `{"description":"a \u00e9 b"}`, `{"description":7,"inputSchema":[]}`,
		`{"title":"T","annotations":{"title":"U"},"inputSchema":{"properties":{"a":{"enum":["x",1]}},"anyOf":[{"$defs":{}}]}}`,
		`{"description":"` + strings.Repeat("aB1", 100), `{"description":"a`, "{\"description\":\"\xff\"}",
	} {
		f.Add("read_file", []byte(s))
	}
	f.Fuzz(func(t *testing.T, name string, definition []byte) {
		id := switchboard.ToolID{Server: "s", Name: name}
		d := Analyse(id, definition)
		if len(d.words) > maxWords || !reflect.DeepEqual(d, Analyse(id, definition)) {
			t.Fatalf("%d words, or not the same twice", len(d.words))
		}
		x := New([]*Doc{d, tool("t", "other", "another tool", "")})
		for _, w := range d.words {
			if w.times[inName] > 0 && len(x.Search(w.word.Value(), 10)) == 0 {
				t.Fatalf("%q is in the name, and does not find it", w.word.Value())
			}
		}
	})
}

func FuzzSearch(f *testing.F) {
	x := New(madeUp(rand.New(rand.NewPCG(9, 10)), 100))
	for _, s := range []string{"", "list users", "create_issue", "s3_li", "\xff\xfe", "搜索", strings.Repeat("file ", 300), "İ", "s0/read"} {
		f.Add(s, 10)
	}
	f.Fuzz(func(t *testing.T, query string, limit int) {
		got := x.Search(query, limit)
		if len(got) > max(limit, 0) || len(got) > MaxMatches || !reflect.DeepEqual(got, x.Search(query, limit)) {
			t.Fatalf("%q, %d: %v", query, limit, got)
		}
		for i, m := range got {
			if !(m.Score > 0) || i > 0 && m.Score > got[i-1].Score {
				t.Fatalf("%q: %v", query, got)
			}
		}
	})
}
