package served_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/officer"
	"github.com/summit-switchboard/switchboard/test/openapi"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// officers are the keys of the world that serveOfficers serves, by their holders.
type officers map[string]string

// officeArchive is a configuration with two tenants, and an officer of each office. HASH:NAME stands for the hash of a key.
const officeArchive = `
-- switchboard.yaml --
servers:
  SERVER
operators: [{key: ops, hash: "HASH:operator"}]
tenants:
  acme: {servers: ["*"], allow: [by_name], offices: [admin, author, viewer], approvers: [{key: lea, hash: "HASH:approver"}]}
  umbrella: {servers: ["*"], allow: [by_name], offices: [admin]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [{id: alice, hash: "HASH:agent"}]
members:
  - {key: ann, hash: "HASH:admin", offices: [admin]}
  - {key: art, hash: "HASH:author", offices: [author]}
  - {key: vic, hash: "HASH:viewer", offices: [viewer]}
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
-- tenants/umbrella/tenant.yaml --
tenant: umbrella
default_task: all
keys: [{id: bob, hash: "HASH:other agent"}]
members: [{key: uma, hash: "HASH:other admin", offices: [admin]}]
-- tenants/umbrella/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`

// layOutOfficers lays out officeArchive, with keys for everybody.
func layOutOfficers(t *testing.T) (dir string, keys officers) {
	t.Helper()
	keys = officers{}
	text := strings.Replace(officeArchive, "SERVER", rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")), 1)
	for _, who := range []string{"agent", "other agent", "operator", "approver", "admin", "author", "viewer", "other admin"} {
		prefix := identity.PersonPrefix
		if strings.HasSuffix(who, "agent") {
			prefix = identity.AgentPrefix
		}
		key, hash := identity.Mint(prefix)
		keys[who] = key
		text = strings.Replace(text, `"HASH:`+who+`"`, fmt.Sprintf("%q", hash), 1)
	}
	return rig.LayOut(t, text), keys
}

// routeTable says which office each route needs. A route that is added needs its row here.
var routeTable = map[string]string{
	"GET /v1/events":                                 "viewer",
	"GET /v1/approvals":                              "viewer",
	"GET /v1/approvals/{request}":                    "any",
	"POST /v1/approvals/{request}/approve":           "approver",
	"POST /v1/approvals/{request}/refuse":            "approver",
	"POST /v1/approvals/{request}/revoke":            "approver",
	"POST /v1/approvals/{request}/standing":          "approver",
	"GET /v1/standing-approvals":                     "viewer",
	"POST /v1/standing-approvals/{standing}/end":     "approver",
	"GET /v1/decisions":                              "viewer",
	"GET /v1/decisions/{node}/{entry}":               "viewer",
	"POST /v1/policies/check":                        "author",
	"POST /v1/policies/eval":                         "author",
	"POST /v1/policy-diffs":                          "author",
	"GET /v1/policy-diffs/{diff}":                    "viewer",
	"DELETE /v1/policy-diffs/{diff}":                 "author",
	"GET /v1/receipts":                               "viewer",
	"GET /v1/receipt":                                "viewer",
	"GET /v1/receipts/export":                        "viewer",
	"POST /v1/receipts/verify":                       "operator",
	"GET /v1/runs":                                   "viewer",
	"GET /v1/budgets":                                "viewer",
	"POST /v1/budgets/what-if":                       "viewer",
	"POST /v1/budgets/adjust":                        "admin",
	"GET /v1/configuration/files":                    "any",
	"GET /v1/configuration/file":                     "any",
	"PUT /v1/configuration/file":                     "any",
	"DELETE /v1/configuration/file":                  "any",
	"PATCH /v1/configuration/file":                   "any",
	"GET /v1/configuration/changes":                  "any",
	"GET /v1/configuration/changes/{change}":         "any",
	"POST /v1/configuration/changes/{change}/revert": "any",
	"GET /v1/acquisitions":                           "any",
	"POST /v1/acquisitions":                          "operator",
	"GET /v1/acquisitions/{dossier}":                 "any",
	"POST /v1/acquisitions/{dossier}/review":         "any",
	"GET /v1/proposals":                              "any",
	"POST /v1/proposals":                             "any",
	"GET /v1/proposals/{proposal}":                   "any",
	"POST /v1/proposals/{proposal}/approve":          "any",
	"POST /v1/proposals/{proposal}/refuse":           "any",
	"POST /v1/proposals/{proposal}/apply":            "any",
	"POST /v1/proposals/{proposal}/roll-back":        "any",
	"GET /metrics":                                   "viewer",
	"GET /v1/metrics/history":                        "viewer",
	"GET /v1/memory/tools/{server}/{tool}":           "viewer",
	"GET /v1/memory/errors/{server}/{tool}":          "viewer",
	"GET /v1/memory/similar/{server}/{tool}":         "viewer",
	"GET /v1/memory/gaps":                            "viewer",
	"GET /v1/memory/ranking":                         "admin",
	"GET /v1/now":                                    "viewer",
	"GET /v1/keys":                                   "viewer",
	"POST /v1/keys/{key}/revoke":                     "admin",
	"GET /v1/resolve":                                "viewer",
	"GET /v1/search":                                 "operator",
	"GET /v1/servers":                                "viewer",
	"GET /v1/servers/{server}":                       "viewer",
	"POST /v1/servers/{server}/disable":              "operator",
	"POST /v1/servers/{server}/enable":               "operator",
	"POST /v1/servers/{server}/restart":              "operator",
	"POST /v1/servers/{server}/probe":                "operator",
	"GET /v1/status":                                 "viewer",
	"GET /v1/tasks":                                  "viewer",
	"GET /v1/tenants":                                "viewer",
	"GET /v1/tenants/{tenant}/decision":              "viewer",
	"GET /v1/tenants/{tenant}/policies":              "viewer",
	"GET /v1/tenants/{tenant}/policies/rules":        "viewer",
	"POST /v1/tenants/{tenant}/policies/test":        "author",
	"GET /v1/tools":                                  "operator",
	"GET /v1/pins":                                   "operator",
	"GET /v1/suggestions":                            "operator",
	"POST /v1/suggestions/accept":                    "operator",
	"GET /v1/pins/one":                               "operator",
	"POST /v1/pins/accept":                           "operator",
	"POST /v1/pins/suspend":                          "operator",
	"POST /v1/pins/retire":                           "operator",
	"POST /v1/pins/deprecate":                        "operator",
	"GET /v1/try":                                    "viewer",
	"GET /v1/verifications":                          "operator",
	"GET /v1/verifications/plan":                     "operator",
	"POST /v1/verifications":                         "operator",
	"POST /v1/try":                                   "viewer",
	"GET /v1/try/{call}":                             "viewer",
	"GET /v1/sessions":                               "operator",
	"GET /v1/blocks":                                 "operator",
	"POST /v1/blocks":                                "operator",
	"POST /v1/blocks/lift":                           "operator",
	"DELETE /v1/sessions/{session}":                  "operator",
	"POST /v1/page-codes":                            "any",
}

// noProposal is the answer to everybody about a proposal that is not there.
var noProposal = map[string]int{"operator": 404, "admin": 404, "author": 404, "approver": 404, "viewer": 404, "other admin": 404}

// filesOf says what the routes answer that find out by themselves what an officer may see: most ask about a file of acme.
var filesOf = map[string]map[string]int{
	"GET /v1/approvals/{request}":                    {"operator": 404, "admin": 404, "author": 404, "approver": 404, "viewer": 404, "other admin": 404}, // there is none
	"GET /v1/configuration/files":                    {"operator": 200, "admin": 200, "author": 200, "approver": 200, "viewer": 200, "other admin": 200}, // each its own
	"GET /v1/configuration/file":                     {"operator": 200, "admin": 200, "author": 403, "approver": 403, "viewer": 403, "other admin": 404},
	"PUT /v1/configuration/file":                     {"operator": 400, "admin": 400, "author": 400, "approver": 400, "viewer": 400, "other admin": 400}, // no text
	"PATCH /v1/configuration/file":                   {"operator": 400, "admin": 400, "author": 400, "approver": 400, "viewer": 400, "other admin": 400}, // no edits
	"DELETE /v1/configuration/file":                  {"operator": 428, "admin": 428, "author": 428, "approver": 428, "viewer": 428, "other admin": 428}, // no entity tag
	"GET /v1/configuration/changes":                  {"operator": 200, "admin": 200, "author": 200, "approver": 200, "viewer": 200, "other admin": 200},
	"GET /v1/configuration/changes/{change}":         {"operator": 404, "admin": 404, "author": 404, "approver": 404, "viewer": 404, "other admin": 404}, // there is none
	"POST /v1/page-codes":                            {"operator": 201, "admin": 201, "author": 201, "approver": 201, "viewer": 201, "other admin": 201}, // a code for themselves
	"GET /v1/acquisitions":                           {"operator": 200, "admin": 200, "author": 200, "approver": 200, "viewer": 200, "other admin": 200}, // each those of its tenant
	"GET /v1/acquisitions/{dossier}":                 noProposal,
	"POST /v1/acquisitions/{dossier}/review":         noProposal,
	"GET /v1/proposals":                              {"operator": 200, "admin": 200, "author": 200, "approver": 200, "viewer": 200, "other admin": 200}, // each its own
	"POST /v1/proposals":                             {"operator": 400, "admin": 400, "author": 400, "approver": 400, "viewer": 400, "other admin": 400}, // it says nothing
	"GET /v1/proposals/{proposal}":                   noProposal,
	"POST /v1/proposals/{proposal}/approve":          noProposal,
	"POST /v1/proposals/{proposal}/refuse":           noProposal,
	"POST /v1/proposals/{proposal}/apply":            noProposal,
	"POST /v1/proposals/{proposal}/roll-back":        noProposal,
	"POST /v1/configuration/changes/{change}/revert": {"operator": 404, "admin": 404, "author": 404, "approver": 404, "viewer": 404, "other admin": 404},
}

// AZ-14: every route, with every method, for everybody.
func TestAZ14EveryRouteNeedsItsOffice(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	var listed []string
	for _, op := range openapi.Operations() {
		name := op.Method + " " + op.Path
		listed = append(listed, name)
		if need, ok := routeTable[name]; !ok || need != op.Office {
			t.Errorf("%s needs %q; the table says %q", name, op.Office, need)
		}
	}
	for name := range routeTable {
		if !slices.Contains(listed, name) {
			t.Errorf("there is no %s", name)
		}
	}
	holders := []struct {
		who     string
		offices []string // in acme
		sees    bool
	}{
		{"operator", []string{"operator", "admin", "author", "viewer"}, true},
		{"admin", []string{"admin", "author", "viewer"}, true}, // who may change all files may do what an author does
		{"author", []string{"author", "viewer"}, true},
		{"approver", []string{"approver", "viewer"}, true},
		{"viewer", []string{"viewer"}, true},
		{"other admin", nil, false},
	}
	keys["nobody"], _ = identity.Mint(identity.PersonPrefix)
	ask := func(method, path, who string, want int) {
		body := ""
		if method != "GET" {
			body = "{}"
		}
		if strings.HasPrefix(path, "/v1/policy-diffs?") {
			body = `{"receipt":"none"}` // what is not refused is carried out for a while, and only two at once
		}
		if strings.HasSuffix(path, "/review") {
			body = `{"answer":"no","note":"n"}` // what is no answer is refused before anything is looked up
		}
		if a := g.AskAdmin(t, keys[who], method, path, body); a.Status != want {
			t.Errorf("%s %s as %s: %d, want %d: %.200s", method, path, who, a.Status, want, a.Body)
		}
	}
	admin := g.AdminURL()
	var unknown sync.WaitGroup
	for _, name := range slices.Sorted(maps.Keys(routeTable)) { // a server is enabled before it is probed
		need := routeTable[name]
		method, path, _ := strings.Cut(name, " ")
		if path == "/v1/events" { // it does not end: TestEventsReachWhoMaySeeThem
			continue
		}
		named := strings.Contains(path, "{tenant}")
		path = strings.NewReplacer("{tenant}", "acme", "{server}", "a", "{tool}", "work", "{key}", "000000000000", "{change}", "1", "{session}", "0123456789abcdef", "{diff}", "none", "{node}", "n1", "{entry}", "999999", "{request}", "abcdefghijklmnop-1", "{call}", "none", "{proposal}", "aaaaaaaaaa", "{dossier}", "aaaaaaaaaa", "{standing}", "abcdefghijklmnop").Replace(path)
		query := ""
		switch {
		case path == "/v1/configuration/file":
			query = "?path=tenants/acme/tenant.yaml"
		case path == "/v1/receipt":
			query = "?tenant=acme&id=n1/999999"
		case need == "any":
		case path == "/v1/search":
			query = "?query=work"
		case path == "/v1/suggestions":
			query = "?server=a"
		case need != "operator" && !named:
			query = "?tenant=acme"
		}
		for _, h := range holders {
			for _, m := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
				_, known := routeTable[m+" "+strings.SplitN(name, " ", 2)[1]]
				var want int
				switch {
				case !known:
					want = http.StatusMethodNotAllowed
				case m != method:
					continue // another row
				case need == "any":
					want = filesOf[name][h.who]
				case need == "operator" && h.who != "operator":
					want = http.StatusForbidden
				case !h.sees:
					want = http.StatusNotFound
				case !slices.Contains(h.offices, need):
					want = http.StatusForbidden
				case name == "POST /v1/try" || name == "POST /v1/acquisitions":
					want = http.StatusBadRequest // it names no tool, or no capability
				case strings.HasSuffix(name, "{call}"):
					want = http.StatusNotFound // there is none
				case strings.HasSuffix(name, "/standing"):
					want = http.StatusBadRequest // of nothing
				case path == "/v1/receipt" || strings.Contains(name, "{standing}") || strings.Contains(name, "{session}") || strings.Contains(name, "{entry}") || strings.Contains(name, "{diff}") || strings.Contains(name, "{request}"):
					want = http.StatusNotFound // there is none
				case strings.HasSuffix(name, "POST /v1/blocks") || strings.HasSuffix(name, "/lift"):
					want = http.StatusBadRequest // of nobody
				case strings.HasPrefix(path, "/v1/pins/"), strings.HasPrefix(path, "/v1/verifications"), strings.HasPrefix(path, "/v1/suggestions/"):
					want = http.StatusBadRequest // it names no server
				case strings.HasPrefix(path, "/v1/budgets/"):
					want = http.StatusBadRequest // it says no limit, and no budget
				case path == "/v1/policies/eval" || path == "/v1/policy-diffs":
					want = http.StatusBadRequest // it has no input, or names what is no receipt
				case strings.Contains(name, "{key}"):
					want = http.StatusBadRequest // there is no such key
				default:
					want = http.StatusOK
				}
				ask(m, path+query, h.who, want)
			}
		}
		for _, who := range []string{"agent", "nobody"} { // who fails often waits, so they ask together
			unknown.Go(func() { ask(method, path+query, who, http.StatusUnauthorized) })
		}
		unknown.Go(func() {
			resp, err := http.Get(admin + path + query)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("GET %s without a key: %s", path, resp.Status)
			}
		})
	}
	unknown.Wait()
}

// AZ-13: what opens one listener is unknown at the other.
func TestAZ13NoCredentialOpensBothListeners(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	for _, who := range []string{"operator", "admin", "viewer", "approver"} {
		if m, _ := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who]).Ask(t, "tools/list", ""); rig.Code(m) != "SB-AUTH-001" {
			t.Errorf("the key of %s at /mcp: %s", who, m.Raw)
		}
	}
	if a := g.AskAdmin(t, keys["agent"], "GET", "/v1/status", ""); a.Status != http.StatusUnauthorized {
		t.Errorf("an agent's key at the admin side: %d %s", a.Status, a.Body)
	}
	if got := rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])); !slices.Equal(got, []string{"work"}) {
		t.Errorf("an agent's key at /mcp lists %q", got)
	}
}

func TestAnOfficerSeesItsTenantAndNothingOfOthers(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"]))
	for _, path := range []string{"/v1/status", "/v1/tenants", "/v1/keys", "/v1/servers", "/metrics"} {
		a := g.AskAdmin(t, keys["viewer"], "GET", path, "")
		if a.Status != http.StatusOK || strings.Contains(a.Body, "umbrella") || strings.Contains(a.Body, "uma") || strings.Contains(a.Body, `"pid"`) {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
	unknown := g.AskAdmin(t, keys["viewer"], "GET", "/v1/status?tenant=nosuch", "")
	other := g.AskAdmin(t, keys["viewer"], "GET", "/v1/status?tenant=umbrella", "")
	if other.Status != http.StatusNotFound || strings.ReplaceAll(other.Body, "umbrella", "nosuch") != unknown.Body {
		t.Errorf("another tenant: %d %s, where an unknown one gets %s", other.Status, other.Body, unknown.Body)
	}
	// From another machine: the address and a key.
	t.Run("by the command line", func(t *testing.T) {
		elsewhere := t.TempDir()
		for _, tt := range []struct {
			who, want string
			code      int
			args      []string
		}{
			{"viewer", `a +healthy`, 0, []string{"server", "list"}},
			{"viewer", `SB-AUTH-002`, 1, []string{"server", "disable", "a"}},
			{"operator", `a is disabled`, 0, []string{"server", "disable", "a"}},
			{"operator", `a is healthy`, 0, []string{"server", "enable", "a"}},
			{"viewer", `agent +acme +alice .*valid`, 0, []string{"key", "list"}},
			{"viewer", `Task all of tenant acme`, 0, []string{"explain", "--tenant", "acme"}},
		} {
			out, errs, code := rig.CommandAs(t, elsewhere, keys[tt.who], append(tt.args, "--url", g.AdminURL())...)
			if code != tt.code || !regexp.MustCompile(tt.want).MatchString(out+errs) {
				t.Errorf("%q as %s: exit %d\n%s%s", tt.args, tt.who, code, out, errs)
			}
		}
	})
}

// A search for receipts goes on from where it has ended, and a tenant's officer finds those of its tenant alone.
func TestASearchForReceiptsIsContinuedAndSaysHowFarItHasLooked(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	alice, bob := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys["agent"]), g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])
	for range 5 {
		for _, s := range []rig.Session{alice, bob} {
			if got := rig.Call(t, s, "work", `{}`); got != "" {
				t.Fatal(got)
			}
		}
	}
	type page struct {
		Receipts []struct{ ID string }
		Next     string
		Complete bool
		Looked   time.Time `json:"looked_back_to"`
	}
	search := func(query string) (p page) {
		t.Helper()
		a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipts?kind=call&tool=work"+query, "")
		if err := json.Unmarshal([]byte(a.Body), &p); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		return p
	}
	var all page
	rig.Eventually(t, "all calls have their receipts", func() string {
		if all = search("&principal=alice"); len(all.Receipts) != 5 || !all.Complete || time.Since(all.Looked) < time.Hour {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
	var found []string
	for next := ""; ; {
		p := search("&limit=2" + next)
		for _, r := range p.Receipts {
			found = append(found, r.ID)
		}
		if p.Complete {
			break
		}
		next = "&after=" + url.QueryEscape(p.Next)
	}
	for i, r := range all.Receipts {
		if i >= len(found) || found[i] != r.ID {
			t.Fatalf("in parts %q, at once %+v", found, all)
		}
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/receipt?id="+found[0], ""); a.Status != http.StatusOK || !strings.Contains(a.Body, `"tenant":"acme"`) {
		t.Errorf("one receipt: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["other admin"], "GET", "/v1/receipt?id="+found[0], ""); a.Status != http.StatusNotFound {
		t.Errorf("one of another tenant: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/runs", ""); a.Status != http.StatusOK || !strings.Contains(a.Body, `"principal":"alice"`) || strings.Contains(a.Body, "bob") {
		t.Errorf("the runs: %d %s", a.Status, a.Body)
	}
}

// Events reach officers at every replica, each what its tenant may see, and end with the key.
func TestEventsReachWhoMaySeeThem(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	dir, keys := layOutOfficers(t)
	all, _ := replicate(t, dir, 2)
	for _, who := range []string{"agent", "nobody"} {
		if a := all[0].AskAdmin(t, keys[who]+"x", "GET", "/v1/events", ""); a.Status != http.StatusUnauthorized {
			t.Errorf("%s: %d", who, a.Status)
		}
	}
	if a := all[0].AskAdmin(t, keys["viewer"], "GET", "/v1/events?tenant=umbrella", ""); a.Status != http.StatusNotFound {
		t.Errorf("a viewer, of another tenant: %d %s", a.Status, a.Body)
	}
	operator := follow(t, http.MethodGet, all[1].AdminURL()+"/v1/events", "", http.Header{"Authorization": {"Bearer " + keys["operator"]}})
	viewer := follow(t, http.MethodGet, all[1].AdminURL()+"/v1/events", "", http.Header{"Authorization": {"Bearer " + keys["viewer"]}})
	stranger := follow(t, http.MethodGet, all[1].AdminURL()+"/v1/events", "", http.Header{"Authorization": {"Bearer " + keys["other admin"]}})
	all[0].Do(0, "is revoked", "key", "revoke", "alice")
	all[0].Do(0, "is revoked", "key", "revoke", "vic")
	// The second revocation ends the viewer's stream, so all that it was told is known then.
	told := wait.Receive(t, "the stream of the revoked key ends", viewer)
	if !strings.Contains(told, "event: key\n") || !strings.Contains(told, `"tenant":"acme"`) || !strings.Contains(told, `"replica":"`) {
		t.Errorf("the viewer is told: %s", told)
	}
	rig.StopTogether(all)
	if told := wait.Receive(t, "the operator's stream ends", operator); strings.Count(told, "event: key\n") != 2 {
		t.Errorf("the operator is told: %s", told)
	}
	if told := wait.Receive(t, "the stranger's stream ends", stranger); strings.Contains(told, "acme") || strings.Contains(told, "event: key") {
		t.Errorf("an admin of another tenant is told: %s", told)
	}
}

// AZ-18, at one process: a revoked key opens nothing any more, its streams end, and a restart changes nothing.
func TestAZ18ARevokedKeyIsNeverGoodAgain(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir, keys := layOutOfficers(t)
	g := rig.Serve(t, dir)
	streams := streamsOf(t, g, keys["agent"])
	others := streamsOf(t, g, keys["other agent"])
	out, errs, code := rig.Command(t, dir, "key", "revoke", "alice", "--reason", "lost")
	if code != 0 || !strings.Contains(out, "is revoked") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	refused := func(g *rig.Gateway, who string) {
		t.Helper()
		if m, _ := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys[who]).Ask(t, "tools/list", ""); rig.Code(m) != "SB-AUTH-001" {
			t.Errorf("the revoked key of %s: %s", who, m.Raw)
		}
	}
	refused(g, "agent") // at once
	for what, said := range streams {
		wait.Receive(t, what+" of the revoked key ends", said)
	}
	for what, said := range others {
		select {
		case <-said:
			t.Errorf("%s of another key has ended", what)
		default:
		}
	}
	if a := g.AskAdmin(t, keys["other admin"], "POST", "/v1/keys/"+hashOf(t, g, "viewer", "vic")+"/revoke", "{}"); a.Status != http.StatusBadRequest {
		t.Errorf("an admin of another tenant revokes a viewer's key: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["admin"], "POST", "/v1/keys/"+hashOf(t, g, "viewer", "vic")+"/revoke", `{"reason":"left"}`); a.Status != http.StatusOK || !strings.Contains(a.Body, `"state":"revoked"`) {
		t.Errorf("an admin revokes a viewer's key: %d %s", a.Status, a.Body)
	}
	if a := g.AskAdmin(t, keys["viewer"], "GET", "/v1/status", ""); a.Status != http.StatusUnauthorized || !strings.Contains(a.Body, "revoked") {
		t.Errorf("the viewer whose key is revoked: %d %s", a.Status, a.Body)
	}
	g.Do(0, `(?m)^[0-9a-f]{12} +agent +acme +alice .* revoked by local on [0-9-]+: lost$`, "key", "list")
	if out, _, _ := rig.Command(t, dir, "receipts", "list", "--json"); strings.Count(out, `"method":"revoke"`) < 4 {
		t.Errorf("the receipts: %s", out)
	}

	_ = g.Cmd.Process.Kill()
	_ = g.Cmd.Wait()
	again := rig.Serve(t, dir)
	refused(again, "agent")
	if got := rig.ListNames(t, again.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["other agent"])); len(got) != 1 {
		t.Errorf("the other key after the restart: %q", got)
	}
}

// hashOf returns the first digits of the hash of an officer's key.
func hashOf(t *testing.T, g *rig.Gateway, kind, id string) string {
	t.Helper()
	var list struct {
		Keys []struct{ Key, ID, Kind string }
	}
	if err := json.Unmarshal([]byte(g.AskAdmin(t, "", "GET", "/v1/keys", "").Body), &list); err != nil {
		t.Fatal(err)
	}
	for _, k := range list.Keys {
		if k.ID == id {
			return k.Key
		}
	}
	t.Fatalf("no key of %s %s", kind, id)
	return ""
}

// AZ-18, at several processes: revoked at one, refused at all within a second, also by those that serve while the store is away.
func TestAZ18ARevocationReachesAllReplicasWithinASecond(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	dir, keys := layOutOfficers(t)
	all, redis := replicate(t, dir, 3)
	for _, g := range all {
		rig.ListNames(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]))
	}
	streams := streamsOf(t, all[2], keys["agent"])
	began := time.Now()
	all[0].Do(0, "is revoked", "key", "revoke", "alice")
	for what, said := range streams {
		wait.Receive(t, what+" at another replica ends", said)
	}
	for i, g := range all {
		untilRefused(t, g, keys["agent"], "SB-AUTH-001")
		if took := time.Since(began); took > time.Second {
			wait.Late(t, "replica %d refuses the key after %s", i, took)
		}
	}
	redis.Kill()
	for _, g := range all {
		if m, _ := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]).Ask(t, "tools/list", ""); rig.Code(m) != "SB-AUTH-001" {
			t.Errorf("while the store is away, the revoked key gets %s", m.Raw)
		}
	}
}

// Several processes on one folder: commands find each of them, and a revocation at one takes effect at all within half a second.
func TestARevocationReachesAllProcessesOfAFolder(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	first, second := rig.Serve(t, dir), rig.Serve(t, dir)
	rig.ListNames(t, second.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"]))
	began := time.Now()
	first.Do(0, "is revoked", "key", "revoke", "alice")
	untilRefused(t, second, keys["agent"], "SB-AUTH-001")
	if took := time.Since(began); took > 1500*time.Millisecond { // the command itself takes some of it
		wait.Late(t, "the other process refuses the key after %s", took)
	}
}

// Three clients that serve themselves and one serve: each has its row, and the end of one leaves the others reachable.
func TestCommandsFindEveryProcessOfAFolder(t *testing.T) {
	t.Parallel()
	dir, _ := layOutOfficers(t)
	g := rig.Serve(t, dir)
	var clients []*rig.StdioSession
	for range 3 {
		clients = append(clients, rig.OpenStdio(t, dir, false, rig.Switchboard(t, "stdio", "--alone", "--tenant", "acme")))
	}
	rows := func() []serving.Neighbor {
		all, err := serving.Rows(filepath.Join(dir, ".switchboard"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	answers := func(want int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprint(want, " processes answer"), func() string {
			n := 0
			for _, row := range rows() {
				resp, err := officer.Client(row).Get(row.Admin + "/v1/keys")
				if err != nil {
					return err.Error()
				}
				_ = resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					n++
				}
			}
			return rig.ReasonUnless(n == want, fmt.Sprint(n, " do"))
		})
	}
	answers(4)
	clients[0].Kill()
	answers(3)
	g.Do(0, "is revoked", "key", "revoke", "alice")
	began := time.Now()
	for _, row := range rows() {
		rig.Eventually(t, "the revocation is known", func() string {
			resp, err := officer.Client(row).Get(row.Admin + "/v1/keys")
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close() //nolint:errcheck // it was only read from
			text, err := io.ReadAll(resp.Body)
			return rig.ReasonUnless(err == nil && strings.Contains(string(text), `"state":"revoked"`), string(text))
		})
	}
	if took := time.Since(began); took > 1500*time.Millisecond {
		wait.Late(t, "all processes know of the revocation after %s", took)
	}
}

func TestTheFirstKeyNeedsNoRestart(t *testing.T) {
	t.Parallel()
	dir := rig.LayOut(t, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))))
	g := rig.Serve(t, dir)
	keyless, before := g.Open(t, "/mcp", true), rig.ReadFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"))
	if got := rig.Call(t, keyless, "work", `{}`); got != "" {
		t.Fatal(got)
	}
	key, row := rig.NewKey(t, "alice")
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), before+"keys:\n"+row)
	rig.Eventually(t, "callers without a key are refused", func() string {
		if m, _ := keyless.Ask(t, "tools/list", ""); rig.Code(m) != "SB-AUTH-001" {
			return string(m.Raw)
		}
		return ""
	})
	if got := rig.Call(t, g.Open(t, "/mcp", true, "Authorization", "Bearer "+key), "work", `{}`); got != "" {
		t.Errorf("with the first key: %s", got)
	}
	g.Do(0, `(?m)^a +healthy`, "server", "list") // the operator is who it was
	rig.WriteFile(t, filepath.Join(dir, "tenants/default/tenant.yaml"), before)
	rig.Eventually(t, "after the last key is gone, no caller needs one", func() string {
		if m, _ := keyless.Ask(t, "tools/list", ""); m.Error != nil {
			return string(m.Raw)
		}
		return ""
	})
	if got := rig.Call(t, keyless, "work", `{}`); got != "" {
		t.Errorf("without keys again: %s", got)
	}
	if !strings.Contains(g.Logged(), rig.Reloaded) || strings.Contains(g.Logged(), rig.ReloadRefused) {
		t.Error("a reload was refused")
	}
}
