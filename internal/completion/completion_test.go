package completion_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/internal/completion"
)

type id string

type grammar struct {
	Verbose bool `short:"v" help:"Say more. And more."`
	Serve   struct {
		Config string `placeholder:"FILE"`
		Data   string `placeholder:"DIR"`
		Format string `enum:"text,json" default:"text"`
	} `cmd:"" help:"Serve."`
	Store struct {
		Check struct {
			IDs   []id   `arg:"" name:"id"`
			Limit *int   `short:"n"`
			Path  string `hidden:""`
		} `cmd:""`
		Export struct {
			File string `arg:""`
		} `cmd:"" help:"Export: to a file."`
	} `cmd:"" aliases:"st"`
	Secret struct{} `cmd:"" hidden:""`
}

func TestTheLastWordIsCompletedByItsPlace(t *testing.T) {
	var g grammar
	parser, err := kong.New(&g)
	if err != nil {
		t.Fatal(err)
	}
	values := func(q completion.Request) ([]completion.Suggestion, bool) {
		if slices.Contains(q.Args, "twice") {
			return nil, true
		}
		if q.Command+" "+q.Name != "store (st) check id" || q.Type.Name() != "id" {
			return nil, false
		}
		return []completion.Suggestion{{Word: "alpha" + q.Flags["limit"]}, {Word: "beta"}}, true
	}
	for line, want := range map[string]string{
		"":                            "none serve store",
		"s":                           "none serve store",
		"x":                           "none",
		"-v st":                       "none store",
		"nothing ":                    "none",
		"store ":                      "none check export",
		"store check ":                "none alpha beta",
		"store check alpha b":         "none beta",
		"st check -n 3 a":             "none alpha3",
		"store check --limit=4 a":     "none alpha4",
		"store check --limit ":        "none",
		"store check twice ":          "none",
		"store check -- twice ":       "none",
		"store check -- al":           "none alpha",
		"store check -- --l":          "none",
		"store check --l":             "none --limit",
		"store check --limit 1 --":    "none --help --verbose",
		"store export ":               "files",
		"store export x ":             "none",
		"serve --config ":             "files",
		"serve --data=":               "folders",
		"serve --format ":             "none text json",
		"serve --format=j":            "none --format=json",
		"serve --config x --verbose ": "none",
		"serve --nothing=":            "none",
	} {
		words := strings.Split(line, " ")
		var out strings.Builder
		if err := completion.Complete(parser.Model, words, values).Write(&out, "zsh"); err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			got = append(got, word)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", line, strings.Join(got, " "), want)
		}
	}
}

func TestBashReplacesOnlyThePartBehindABreakOfAWord(t *testing.T) {
	for _, c := range []struct{ shell, replaced, want string }{
		{"bash", "", "abc"},
		{"bash", "a", "abc"},
		{"bash", "file:a", "file:abc"},               // it is quoted
		{"bash", "--tool=file:a", "--tool=file:abc"}, // the user has taken = and : out of COMP_WORDBREAKS
		{"bash", `file\:a`, "abc"},                   // it is not the word
		{"fish", "", "--tool=file:abc\tHelp"},
	} {
		r := completion.Answer{Before: "--tool=", Word: "file:a", Paths: completion.NoPaths, Replaced: c.replaced, Candidates: []completion.Suggestion{{Word: "file:abc", Help: "Help. More."}}}
		var out strings.Builder
		if err := r.Write(&out, c.shell); err != nil || out.String() != "none\n"+c.want+"\n" {
			t.Errorf("%s, %q: %q %v", c.shell, c.replaced, out.String(), err)
		}
	}
}

func TestALineOfBashIsSplitAsBashDoes(t *testing.T) {
	for line, want := range map[string][]string{
		"switchboard":             {},
		"switchboard ":            {""},
		"switchboard  a b":        {"a", "b"},
		`sb 'a b' "c d\"" e\ f '`: {"a b", `c d"`, "e f", ""},
		`sb --x='a b`:             {"--x=a b"},
		"sb '' ":                  {"", ""},
	} {
		if got := completion.SplitLine(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func FuzzSplitLine(f *testing.F) {
	f.Add(`sb 'a b' "c\" ` + "\t\\")
	f.Fuzz(func(t *testing.T, line string) {
		total := 0
		for _, word := range completion.SplitLine(line) {
			total += len(word)
		}
		if total > 3*len(line) { // a byte that is no UTF-8 becomes three
			t.Errorf("%q has %d bytes in words", line, total)
		}
	})
}
