package npm_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/summit-switchboard/switchboard/test/npmlock"
)

// The services that the servers here ask in their turn, on loopback: two that
// search, and one that keeps files.
func services(t *testing.T) (url string, searched *locked) {
	t.Helper()
	searched = &locked{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /searxng/search", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query().Get("q")
		_ = json.NewEncoder(w).Encode(map[string]any{"query": q, "results": []any{
			map[string]any{"title": "SearXNG has " + q, "url": "https://example.com/1", "content": "one", "score": 1.0},
		}})
	})
	mux.HandleFunc("POST /perplexity/search", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(searched, r.Body)
		_, _ = io.WriteString(w, `{"results":[{"title":"Perplexity has it","url":"https://example.com/2","snippet":"two"}]}`)
	})
	mux.HandleFunc("GET /gitlab/api/v4/projects/42", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":42,"name":"p","path_with_namespace":"g/p","description":"","default_branch":"main"}`)
	})
	mux.HandleFunc("GET /gitlab/api/v4/projects/42/repository/files/{file}", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"file_path":%q,"encoding":"text","content":"at GitLab"}`, r.PathValue("file"))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL, searched
}

// Two classes of tools that do the same job, by different servers with different
// arguments: web searches, and readers of files. The second of each is the
// equivalent of the first, in one direction. "%s" is filled in by the test.
const failover = `
-- switchboard.yaml --
start_deadline: 2m
servers:
  searxng: {transport: http, url: "%s/mcp"}
  gitlab: {transport: http, url: "%s/mcp", headers: {Authorization: "Bearer ${env:TOKEN}"}}
  perplexity:
    transport: stdio
    command: [node, "%[3]s/@perplexity-ai/mcp-server/dist/index.js"]
    env: {PERPLEXITY_API_KEY: "${env:TOKEN}", PERPLEXITY_BASE_URL: "%[4]s/perplexity"}
  files:
    transport: stdio
    command: [node, "%[3]s/@modelcontextprotocol/server-filesystem/dist/index.js", "${workspace}/checkout"]
tenants: {example: {servers: ["*"]}}
-- overlays/searxng.yaml --
server: searxng
tools:
  searxng_web_search:
    capabilities: [{verb: search, resource: internet, constraints: [readonly]}]
    equivalents:
      - tool: perplexity/perplexity_search
        map: {num_results: max_results, time_range: search_recency_filter}
        drop: [safesearch, language]
-- overlays/perplexity.yaml --
server: perplexity
tools:
  perplexity_search: {capabilities: [{verb: search, resource: internet, constraints: [readonly]}]}
-- overlays/gitlab.yaml --
server: gitlab
tools:
  get_file_contents:
    capabilities: [{verb: read, resource: codebase, constraints: [readonly]}]
    equivalents:
      - tool: files/read_text_file    # of a checkout
        map: {file_path: path}
        drop: [project_id, path]      # path is another word for file_path; ref is not dropped
-- overlays/files.yaml --
server: files
tools:
  read_text_file: {capabilities: [{verb: read, resource: codebase, constraints: [readonly]}]}
-- tenants/example/tenant.yaml --
tenant: example
default_task: work
ranking:
  prefer:
    - {verb: search, resource: internet, servers: [searxng]}
    - {verb: read, resource: codebase, servers: [gitlab]}
-- tenants/example/tasks/work.yaml --
task_id: work
required_capabilities:
  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: read, resource: codebase, constraints: [readonly]}
-- checkout/notes/plan.md --
in the checkout
`

// movedTo is what a result says of where it comes from.
func movedTo(a answer) string {
	var r struct {
		Meta map[string]struct {
			ServedBy string `json:"served_by"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(a.result, &r); err != nil {
		return err.Error()
	}
	return r.Meta["io.switchboard/moved"].ServedBy
}

func TestServersThatAreNotOursTakeEachOthersCallsInTheMiddleOfAConversation(t *testing.T) {
	npmlock.Need(t, "npm servers that take each other's calls")
	const token = "a-token-of-the-test-and-of-nobody-else"
	t.Setenv("TOKEN", token)
	modules, err := filepath.Abs("node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []client{clients[0], clients[2]} {
		t.Run(c.name, func(t *testing.T) {
			url, searched := services(t)
			searxng, killSearXNG := listens(t, "listening on", "MCP_HTTP_PORT", []string{"MCP_HTTP_HOST=127.0.0.1", "SEARXNG_URL=" + url + "/searxng"},
				"node_modules/mcp-searxng/dist/cli.js")
			gitlab, killGitLab := listens(t, "Endpoint:", "PORT", []string{
				"STREAMABLE_HTTP=true", "STREAMABLE_HTTP_AUTH_TOKEN=" + token, "GITLAB_DISABLE_VERSION_CHECK=true",
				"GITLAB_API_URL=" + url + "/gitlab/api/v4", "GITLAB_PERSONAL_ACCESS_TOKEN=" + token,
			}, "node_modules/@zereight/mcp-gitlab/build/index.js")
			dir := t.TempDir()
			for _, f := range txtar.Parse(fmt.Appendf(nil, failover, searxng, gitlab, modules, url)).Files {
				file := filepath.Join(dir, f.Name)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ask := c.open(t, serve(t, dir), "work")
			listed := ask(list)
			if got := names(t, listed.result); !slices.Equal(got, []string{"searxng_web_search", "get_file_contents"}) {
				t.Fatalf("listed %q", got)
			}
			search := call("searxng_web_search", `{"query":"gr\u00fc\u00dfe","num_results":3,"time_range":"week","safesearch":"1"}`)
			read := call("get_file_contents", `{"project_id":"42","file_path":"notes/plan.md"}`)
			says := func(o op, text, from string) {
				t.Helper()
				a := ask(o)
				if !strings.Contains(string(a.result), text) || movedTo(a) != from {
					t.Errorf("%s: %s%s; want %q, moved to %q", o.Name, a.result, a.err, text, from)
				}
			}
			says(search, "SearXNG has grüße", "")
			says(read, "at GitLab", "")
			killSearXNG()
			killGitLab()
			for range 2 {
				says(search, "Perplexity has it", "perplexity/perplexity_search")
				says(read, "in the checkout", "files/read_text_file")
			}
			if got, want := searched.String(), `{"query":"grüße","max_results":3,"max_tokens_per_page":1024,"search_recency_filter":"week"}`; got != want+want {
				t.Errorf("Perplexity was asked %s, want twice %s", got, want)
			}
			// A call of another branch is not one that the checkout can take.
			// Whether its own server is in quarantine yet, or is tried once more, is a matter of time.
			a := ask(call("get_file_contents", `{"project_id":"42","file_path":"notes/plan.md","ref":"old"}`))
			if err := string(a.err); !strings.Contains(err, "SB-ROUT-001") && !strings.Contains(err, "SB-DISC-002") {
				t.Errorf("a call of another branch was answered with %s %s", a.result, a.err)
			}
			if again := ask(list); string(again.result) != string(listed.result) {
				t.Errorf("the list was\n%s and is\n%s", listed.result, again.result)
			}
		})
	}
}
