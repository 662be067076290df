package conformance_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/programs"
)

var update = flag.Bool("update", false, "write the scores of authorization into docs/conformance.md")

// backcompat is the oldest revision with scenarios of authorization.
const backcompat = "2025-03-26"

// revisions are the revisions of MCP that the suite speaks, with the arguments that select their scenarios.
var revisions = map[string][]string{
	backcompat: {"--suite", "backcompat"},
	legacy:     {"--requirements", legacy},
	modern:     {"--requirements", modern},
}

// atOnce is how many scenarios of one revision are played at the same time. The suite starts them all at once.
const atOnce = 3

// An ending says how a scenario ends for the people at Switchboard.
type ending struct {
	told string // a part of what they are told; "" means that the tool answers
	why  string // for readers of docs/conformance.md. Where checks fail, it is required
}

// endings are those of the scenarios in which something is special. In all others, the tool answers and all checks pass.
var endings = map[string]ending{
	"auth/basic-cimd":                     {"", "The URL of the document is the `id` in the server's row. A Switchboard at a desk has no public address for a document of its own."},
	"auth/pre-registration":               {"", "The row has the `id` and the `secret`."},
	"auth/client-credentials-basic":       {"", "The row has `credential: {client: …}` with a secret."},
	"auth/client-credentials-jwt":         {"", "The row has `credential: {client: …}` with a key."},
	"auth/scope-step-up":                  {"", "The call gets `SB-AUTH-005`. The operator connects the server again, which asks for the scopes that the connection has and for those that the server demands."},
	"auth/authorization-server-migration": {"", "The state of the server becomes `needs_connection`. The operator connects it again, at the other provider."},
	"auth/scope-retry-limit":              {"needs_connection", "Switchboard asks for a consent only when a person connects the server, so it has no loop. The person of the test connects it three times."},
	"auth/resource-mismatch":              {"is of the resource", "Switchboard refuses to connect the server."},
	"auth/metadata-issuer-mismatch":       {"is of the issuer", "Switchboard refuses to connect the server."},
	"auth/iss-wrong-issuer":               {"the answer is of the issuer", "Switchboard refuses the provider's answer."},
	"auth/iss-unexpected":                 {"the answer is of the issuer", "Switchboard refuses the provider's answer."},
	"auth/iss-normalized":                 {"the answer is of the issuer", "Switchboard refuses the provider's answer: issuers are compared byte for byte."},
	"auth/iss-supported-missing":          {"does not state its issuer", "Switchboard refuses the provider's answer."},

	"auth/2025-03-26-oauth-endpoint-fallback": {"has no metadata at", "Not built: the provider has no metadata at all, and the client must guess its endpoints. MCP has dropped this since 2025-06-18, and nothing would say that the provider supports PKCE."},
	"auth/dpop":                             {"", "Not built: tokens that are bound to a key (DPoP). The scenario's server takes other tokens too, so the call succeeds."},
	"auth/dpop-nonce":                       {"", "Not built: tokens that are bound to a key (DPoP). The scenario's server takes other tokens too, so the call succeeds."},
	"auth/wif-jwt-bearer":                   {"unsupported_grant_type", "Not built: a token for the identity of a workload (RFC 7523)."},
	"auth/enterprise-managed-authorization": {"unsupported_grant_type", "Not built: cross-app access (`id_jag`)."},
}

// extensions are the scenarios of extensions, which no revision requires. They are played in the modern era only.
var extensions = []string{
	"auth/client-credentials-basic", "auth/client-credentials-jwt", "auth/dpop", "auth/dpop-nonce", "auth/enterprise-managed-authorization", "auth/wif-jwt-bearer",
}

// A score is how a scenario of authorization has ended in one revision.
type score struct {
	passed int
	failed []string // the ids of the checks that fail or warn
	told   string   // what the operator was told, or the tool's answer
}

// text returns the score for readers. How many checks pass depends on the number of requests, so only those that fail are counted.
func (s *score) text() string {
	switch {
	case s == nil:
		return "–"
	case len(s.failed) == 0:
		return "passes"
	}
	return fmt.Sprintf("fails %d of %d", len(s.failed), len(s.failed)+s.passed)
}

// playAll has a Switchboard play the client of all the suite's scenarios of authorization in a revision.
func playAll(t *testing.T, program, revision string) map[string]*score {
	t.Helper()
	told := map[string]string{}
	var mu sync.Mutex
	free := make(chan struct{}, atOnce)
	desk := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := situation{r.FormValue("scenario"), r.FormValue("server"), r.FormValue("context")}
		if revision != modern && slices.Contains(extensions, s.scenario) {
			return
		}
		free <- struct{}{}
		said, err := s.play(t, program)
		<-free
		if err != nil {
			t.Errorf("%s %s: %v", revision, s.scenario, err)
		}
		mu.Lock()
		told[s.scenario] = said
		mu.Unlock()
	}))
	t.Cleanup(desk.Close)
	dir := runSuite(t, slices.Concat([]string{"client", "--command", fmt.Sprintf("%s desk %s", os.Args[0], desk.URL), "--timeout", fmt.Sprint(patience.Milliseconds() * 3)}, revisions[revision])...)
	mu.Lock()
	defer mu.Unlock()
	scores := map[string]*score{}
	for scenario, said := range told {
		scores[scenario] = readScore(t, dir, scenario)
		scores[scenario].told = said
	}
	return scores
}

// readScore reads what the suite has left in dir about a scenario.
func readScore(t *testing.T, dir, scenario string) *score {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(dir, scenario+"-20*", "checks.json"))
	files = slices.DeleteFunc(files, func(f string) bool {
		return stamp.ReplaceAllString(filepath.Dir(f), "") != filepath.Join(dir, scenario)
	})
	if len(files) != 1 {
		t.Fatalf("%s has left %q", scenario, files)
	}
	raw, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var checks []struct{ ID, Status string }
	if err := json.Unmarshal(raw, &checks); err != nil {
		t.Fatal(err)
	}
	s := &score{}
	passed := map[string]bool{} // a check is made at each request
	for _, c := range checks {
		switch c.Status {
		case "SUCCESS":
			passed[c.ID] = true
		case "FAILURE", "WARNING":
			s.failed = append(s.failed, c.ID)
		}
	}
	s.passed = len(passed)
	return s
}

func TestTheScoresOfAuthorizationAreThoseOfTheDocument(t *testing.T) {
	// Without the race detector, which the tests of the packages behind it have: 60 starts of Switchboard take 20 s of processor time with it.
	program := built(t, programs.Plain)
	play := func(name string) map[string]map[string]*score {
		all := map[string]map[string]*score{}
		var mu sync.Mutex
		t.Run(name, func(t *testing.T) {
			for revision := range revisions {
				t.Run(revision, func(t *testing.T) {
					t.Parallel()
					scores := playAll(t, program, revision)
					mu.Lock()
					defer mu.Unlock()
					all[revision] = scores
				})
			}
		})
		return all
	}
	const page = "../../docs/conformance.md"
	before, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := play("played")
	wrong, text := judge(string(before), all)
	if len(wrong) > 0 && !*update && !t.Failed() { // the suite's own patience is short: once more, on a machine that may be less busy
		t.Logf("the first time:\n%s", strings.Join(wrong, "\n"))
		all = play("again")
		wrong, text = judge(string(before), all)
	}
	if *update {
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wrong = slices.DeleteFunc(wrong, func(w string) bool { return w == otherScores })
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

const otherScores = "docs/conformance.md has other scores: run this test with -update, and read the differences"

// judge says what is wrong with the scores, and returns the page with them.
func judge(page string, all map[string]map[string]*score) (wrong []string, text string) {
	scenarios := map[string]bool{}
	for revision, scores := range all {
		for scenario, s := range scores {
			scenarios[scenario] = true
			end := endings[scenario]
			if len(s.failed) > 0 && !strings.HasPrefix(end.why, "Not built") {
				wrong = append(wrong, fmt.Sprintf("%s %s: the checks %q fail", revision, scenario, s.failed))
			}
			if end.told == "" && !strings.Contains(s.told, `"text":"test"`) || !strings.Contains(s.told, end.told) {
				wrong = append(wrong, fmt.Sprintf("%s %s: the operator is told %.600s", revision, scenario, s.told))
			}
			if len(s.failed) == 0 && strings.HasPrefix(end.why, "Not built") {
				wrong = append(wrong, fmt.Sprintf("%s %s passes: correct its reason in the table of this test", revision, scenario))
			}
		}
	}
	for scenario := range endings {
		if !scenarios[scenario] {
			wrong = append(wrong, fmt.Sprintf("the suite has no scenario %s any more", scenario))
		}
	}
	begin, end := strings.Index(page, "| scenario"), strings.LastIndex(page, "|\n")
	if begin < 0 || end < begin {
		return append(wrong, "docs/conformance.md has no table"), page
	}
	text = page[:begin] + table(slices.Sorted(maps.Keys(scenarios)), all) + page[end+2:]
	if text != page {
		wrong = append(wrong, otherScores)
	}
	return wrong, text
}

// table returns the scores as Markdown.
func table(scenarios []string, all map[string]map[string]*score) string {
	columns := slices.Sorted(maps.Keys(revisions))
	var b strings.Builder
	fmt.Fprintf(&b, "| scenario | %s | remark |\n| --- | %s--- |\n", strings.Join(columns, " | "), strings.Repeat("--- | ", len(columns)))
	for _, extension := range []bool{false, true} {
		for _, scenario := range scenarios {
			if slices.Contains(extensions, scenario) != extension {
				continue
			}
			name := "`" + strings.TrimPrefix(scenario, "auth/") + "`"
			if extension {
				name += ", an extension"
			}
			fmt.Fprintf(&b, "| %s | ", name)
			for _, revision := range columns {
				fmt.Fprintf(&b, "%s | ", all[revision][scenario].text())
			}
			fmt.Fprintf(&b, "%s |\n", endings[scenario].why)
		}
	}
	return b.String()
}
