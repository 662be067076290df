package sample_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/summit-switchboard/switchboard/test/system"
)

// decoded calls a tool that must not fail, and decodes its result.
func decoded[T any](t *testing.T, c *client.Client, tool string, args any) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(must(t, c, tool, args)), &v); err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return v
}

func started(t *testing.T, name, root string) *client.Client {
	t.Helper()
	c := stdio(t, name, root)
	open(t, c, modern)
	return c
}

type found struct {
	Total   int
	Results []struct {
		Title, URL, Snippet string
		Score               float64
	}
	Articles []struct{ Headline, Source, Published, Link, Summary string }
}

func TestAtlasRanksByRelevance(t *testing.T) {
	c := started(t, "atlas-search", "")
	all := decoded[found](t, c, "search_web", jsonObject{"query": "domain spoofing", "limit": 20})
	if all.Total < 5 || all.Total != len(all.Results) {
		t.Fatalf("%d of %d pages", len(all.Results), all.Total)
	}
	for i, r := range all.Results {
		if i > 0 && r.Score > all.Results[i-1].Score {
			t.Errorf("%s has score %v and comes after %v", r.URL, r.Score, all.Results[i-1].Score)
		}
		if strings.Contains(r.URL, "sourdough") {
			t.Errorf("%s is about something else", r.URL)
		}
	}
	if first := decoded[found](t, c, "search_web", jsonObject{"query": "How do I publish a DMARC policy?", "limit": 1}).Results[0]; first.URL != "https://docs.example/dmarc-policy" {
		t.Errorf("the best page about a DMARC policy is %s", first.URL)
	}
	here := decoded[found](t, c, "search_web", jsonObject{"query": "domain", "site": "lab.example", "limit": 20})
	for _, r := range here.Results {
		if !strings.HasPrefix(r.URL, "https://lab.example/") {
			t.Errorf("%s is of another site", r.URL)
		}
	}
	if len(here.Results) != 2 {
		t.Errorf("%d pages of lab.example, want 2", len(here.Results))
	}
	if none := decoded[found](t, c, "search_web", jsonObject{"query": "xylophone"}); none.Total != 0 || none.Results == nil {
		t.Errorf("a word that occurs nowhere gives %+v, want an empty list", none)
	}
	refused(t, c, "watch_web", jsonObject{"query": "of the"}, "no word")
	for i, want := range []string{`"spoofing": `, `"spoofing": `, "\"xylophone\": 0 pages"} {
		query := []string{"spoofing", "spoofing", "xylophone"}[i]
		if got := must(t, c, "watch_web", jsonObject{"query": query}); !strings.Contains(got, want) || strings.Count(got, "\n") != max(1, i) {
			t.Errorf("watching %s gave %q", query, got)
		}
	}
	refused(t, c, "search_web", jsonObject{"query": ""}, "empty")
	refused(t, c, "search_web", jsonObject{"query": "of the"}, "no word")
	refused(t, c, "search_web", jsonObject{"query": strings.Repeat("x", 401)}, "401 bytes")
	refused(t, c, "search_web", jsonObject{"query": "x", "limit": 21}, "1 to 20")
	refused(t, c, "search_web", jsonObject{"query": 7}, "query")
	refused(t, c, "search_web", jsonObject{}, "query")
}

func TestNimbusPutsMostWordsFirstThenTheNewest(t *testing.T) {
	c := started(t, "nimbus-search", "")
	text := must(t, c, "web_search", jsonObject{"query": "domain spoof", "count": 20})
	if !strings.Contains(text, "1. Registry takes 3,000 spoofing domains down in one day\n   https://gazette.example/domain-takedown (2026-10-05)") {
		t.Errorf("the first is not the newest with both words in the title:\n%s", text)
	}
	if text := must(t, c, "web_search", jsonObject{"query": "sourdough comet yoghurt"}); !strings.HasPrefix(text, "0 results") {
		t.Errorf("no page has half of the words, but:\n%s", text)
	}
	if text := must(t, c, "web_search", jsonObject{"query": "domain", "offset": 1, "count": 1}); strings.Contains(text, "\n1. ") || !strings.Contains(text, "\n2. ") || strings.Contains(text, "\n3. ") {
		t.Errorf("the second page of one result is\n%s", text)
	}
	month := must(t, c, "web_search", jsonObject{"query": "domain", "freshness": "month"})
	year := must(t, c, "web_search", jsonObject{"query": "domain", "freshness": "year"})
	if strings.Contains(month, "2026-09") || !strings.Contains(year, "2026-09") || strings.Contains(year, "2025-06") {
		t.Errorf("freshness: month\n%s\nyear\n%s", month, year)
	}
	refused(t, c, "web_search", jsonObject{"query": "domain", "freshness": "decade"}, "freshness")
	refused(t, c, "web_search", jsonObject{"query": "domain", "offset": -1}, "negative")

	news := decoded[found](t, c, "news_search", jsonObject{"topic": "domain bucket", "count": 20})
	days := []string{}
	for _, a := range news.Articles {
		days = append(days, a.Published)
	}
	if want := []string{"2026-10-05", "2026-09-17", "2026-05-28"}; !slices.Equal(days, want) {
		t.Errorf("news of %v, want %v", days, want)
	}
	if news := decoded[found](t, c, "news_search", jsonObject{"topic": "domain", "since": "2026-10-01"}); len(news.Articles) != 1 {
		t.Errorf("%d articles since October, want 1", len(news.Articles))
	}
	refused(t, c, "news_search", jsonObject{"topic": "domain", "since": "October"}, "2026-01-31")
}

func TestNotifierKeepsWhatItSent(t *testing.T) {
	c := started(t, "notifier", "")
	must(t, c, "notify", jsonObject{"channel": "security", "text": "look-alike found"})
	must(t, c, "notify", jsonObject{"channel": "general", "text": "lunch"})
	if text := must(t, c, "read_messages", jsonObject{"channel": "security"}); text != `{"messages":[{"id":1,"channel":"security","text":"look-alike found"}],"total":1}` {
		t.Errorf("read_messages = %s", text)
	}
	if text := must(t, c, "read_messages", jsonObject{"limit": 1}); text != `{"messages":[{"id":2,"channel":"general","text":"lunch"}],"total":2}` {
		t.Errorf("the newest = %s", text)
	}
	refused(t, c, "notify", jsonObject{"channel": "nowhere", "text": "x"}, "there are alerts, general, security")
	refused(t, c, "notify", jsonObject{"channel": "general", "text": ""}, "empty")
	refused(t, c, "notify", jsonObject{"channel": "general", "text": strings.Repeat("x", 4001)}, "at most 4000")
	for range 198 {
		must(t, c, "notify", jsonObject{"channel": "alerts", "text": "x"})
	}
	refused(t, c, "notify", jsonObject{"channel": "alerts", "text": "x"}, "full")
}

// tree creates a source tree, with files beside it that the reader must not show.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "tree")
	for name, text := range map[string]string{
		"secret.txt":         "needle outside\n",
		"tree/go.mod":        "module hello\n",
		"tree/a/a.go":        "package a\n\n// needle one\nfunc A() {}\n",
		"tree/a/b.go":        "package a\n// needle two\n",
		"tree/.git/config":   "needle hidden\n",
		"tree/.env":          "needle hidden\n",
		"tree/image.bin":     "\x00\x01needle\n",
		"tree/latin1.txt":    "gr\xfc\xdfe needle\n",
		"tree/long.txt":      strings.Repeat("é", 300) + "needle",
		"tree/large/big.txt": strings.Repeat("needle\n", 200_000),
		"tree/a/deep/c.txt":  "no match here\n",
		"tree/a/deep/d.txt":  "one\ntwo\nthree\n",
		"tree/empty.txt":     "",
	} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"out": "..", "out.txt": "../secret.txt", "abs.txt": filepath.Join(dir, "secret.txt"), "in.txt": "a/deep/d.txt"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	system.MakePipe(t, filepath.Join(root, "pipe"))
	return root
}

func TestCodeReaderReadsItsTree(t *testing.T) {
	c := started(t, "code-reader", tree(t))
	if text := must(t, c, "list_files", jsonObject{"path": "a"}); text != `{"entries":["a.go","b.go","deep/"],"path":"a","total":3}` {
		t.Errorf("list_files a = %s", text)
	}
	if text := must(t, c, "list_files", jsonObject{"limit": 1}); !strings.Contains(text, `"entries":["a/"]`) || strings.Contains(text, ".git") {
		t.Errorf("list_files = %s", text)
	}
	if text := must(t, c, "read_file", jsonObject{"path": "./a/deep/../deep/d.txt", "from": 2, "lines": 1}); text != "two\n" {
		t.Errorf("the second line is %q", text)
	}
	if text := must(t, c, "read_file", jsonObject{"path": "in.txt"}); text != "one\ntwo\nthree\n" {
		t.Errorf("through a link within the tree: %q", text)
	}
	if text := must(t, c, "read_file", jsonObject{"path": "empty.txt"}); text != "" {
		t.Errorf("an empty file is %q", text)
	}
	refused(t, c, "read_file", jsonObject{"path": "a/deep/d.txt", "from": 4}, "3 lines")
	refused(t, c, "read_file", jsonObject{"path": "image.bin"}, "not a text file")
	refused(t, c, "read_file", jsonObject{"path": "large/big.txt"}, "at most 1048576 are read")
	refused(t, c, "read_file", jsonObject{"path": "a"}, "not a regular file")
	refused(t, c, "list_files", jsonObject{"path": "go.mod"}, "not a folder")

	type hits struct {
		Hits []struct {
			Path string
			Line int
			Text string
		}
		Incomplete bool
	}
	got := decoded[hits](t, c, "search_code", jsonObject{"text": "needle"})
	var lines []string
	for _, h := range got.Hits {
		lines = append(lines, h.Path)
	}
	if want := []string{"a/a.go", "a/b.go", "latin1.txt", "long.txt"}; !slices.Equal(lines, want) {
		t.Errorf("found in %v, want %v", lines, want)
	}
	if h := got.Hits[0]; h.Line != 3 || h.Text != "// needle one" {
		t.Errorf("the first hit is %+v", h)
	}
	if h := got.Hits[3]; len(h.Text) > 410 || !strings.HasSuffix(h.Text, "é…") {
		t.Errorf("a long line is shown as %q", h.Text)
	}
	if got := decoded[hits](t, c, "search_code", jsonObject{"text": "needle", "limit": 1}); len(got.Hits) != 1 || !got.Incomplete {
		t.Errorf("one of several: %+v", got)
	}
	if got := decoded[hits](t, c, "search_code", jsonObject{"text": "needle", "path": "a/deep"}); len(got.Hits) != 0 || got.Incomplete {
		t.Errorf("none: %+v", got)
	}
}

func TestCodeReaderNeverLeavesItsTree(t *testing.T) {
	root := tree(t)
	c := started(t, "code-reader", root)
	for _, p := range []string{
		"../secret.txt", "a/../../secret.txt", filepath.Join(filepath.Dir(root), "secret.txt"), "out/secret.txt", "out.txt", "abs.txt",
		`..\secret.txt`, "a\x00", "/etc/passwd", ".git/config", ".env", "a/../.env", "pipe", "absent", "..",
	} {
		for _, tool := range []string{"read_file", "list_files", "search_code"} {
			args := jsonObject{"path": p}
			if tool == "search_code" {
				args["text"] = "needle"
			}
			text, isError := call(t, c, tool, args)
			// A search in one file or link within the tree may find nothing.
			if !isError && (tool != "search_code" || !strings.Contains(text, `"hits":[]`)) {
				t.Errorf("%s %q gave %q", tool, p, text)
			}
			if strings.Contains(text, "outside") || strings.Contains(text, filepath.Dir(root)) && !strings.HasPrefix(p, "/") {
				t.Errorf("%s %q gives away %q", tool, p, text)
			}
		}
	}
}

func TestReadOnlyCloudToolsSaySoInTheirAnnotations(t *testing.T) {
	c := started(t, "aws-like", "")
	list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	reading := 0
	for _, tool := range list.Tools {
		raw, err := json.Marshal(tool.Meta.AdditionalFields["x-summit-capabilities"])
		if err != nil {
			t.Fatal(err)
		}
		says := strings.Contains(string(raw), `"readonly"`)
		if says != *tool.Annotations.ReadOnlyHint {
			t.Errorf("%s: readonly is %v in its capabilities and %v in its annotations", tool.Name, says, !says)
		}
		if tool.Description == "" || tool.InputSchema.Type != "object" {
			t.Errorf("%s has no description or no schema", tool.Name)
		}
		if says {
			reading++
		}
	}
	if reading != 28 {
		t.Errorf("%d tools only read, want 28", reading)
	}
}
