package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/openapi"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// listMembers says which member of the answer has the entries of a list, for each list of the admin API.
var listMembers = map[string]string{
	"/v1/approvals":             "approvals",
	"/v1/acquisitions":          "dossiers",
	"/v1/budgets":               "budgets",
	"/v1/standing-approvals":    "standing",
	"/v1/blocks":                "blocks",
	"/v1/configuration/changes": "changes",
	"/v1/configuration/files":   "files",
	"/v1/decisions":             "decisions",
	"/v1/keys":                  "keys",
	"/v1/pins":                  "pins",
	"/v1/proposals":             "proposals",
	"/v1/receipts":              "receipts",
	"/v1/runs":                  "runs",
	"/v1/servers":               "servers",
	"/v1/sessions":              "sessions",
	"/v1/suggestions":           "suggestions",
	"/v1/tasks":                 "tasks",
	"/v1/tenants":               "tenants",
	"/v1/tools":                 "tools",
}

// listQueries are the parameters that a list needs.
var listQueries = map[string]string{"/v1/suggestions": "server=a-b&"}

// A list can be read in parts of any size, and has the same entries in the same order then. Commands read all parts.
func TestEachListIsReadInParts(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	main := filepath.Join(dir, "switchboard.yaml")
	second := rig.FakeRow("a-b", fmt.Sprintf(rig.Tool, "rest"), fmt.Sprintf(rig.Tool, "rest2"))
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "servers:\n", "start_deadline: 1m\napprovals: {wait: 1s, standing: 1h}\nbudgets: [{id: a, limit: {calls: 9}, window: 1d}, {id: b, limit: {calls: 9}, window: 1d}]\nservers:\n  "+strings.ReplaceAll(second, "FAKE", fmt.Sprintf("%q, fake", rig.FakeProgram))+"\n", 1))
	const many = 510 // more than one part can have
	for folder, pkg := range map[string]string{"policies": "switchboard", "tenants/acme/policies": "switchboard.tenant"} {
		rig.WriteFile(t, filepath.Join(dir, filepath.FromSlash(folder), "all.rego"), "package "+pkg+"\nallowed_tools contains c.id if some c in input.candidate_tools\nobligations[\"a-b/rest\"] contains {\"type\": \"require_approval\"}\n")
		for i := range many / 2 {
			rig.WriteFile(t, filepath.Join(dir, filepath.FromSlash(folder), "notes", fmt.Sprintf("%03d.json", i)), "{}\n")
		}
	}
	rig.WriteFile(t, filepath.Join(dir, "policies", "notes.json"), "{}\n") // before the folder, in byte order
	g := rig.Serve(t, dir)
	for _, who := range []string{"agent", "other agent"} {
		s := g.Open(t, "/mcp", false, "Authorization", "Bearer "+keys[who])
		rig.Eventually(t, "the server of the tool has answered", func() string {
			names := rig.ListNames(t, s)
			return rig.ReasonUnless(slices.Contains(names, "rest"), strings.Join(names, " "))
		})
		if got := rig.Call(t, s, "rest", `{}`); got != "SB-APPR-001" { // a request for approval
			t.Fatal(got)
		}
	}
	for tenant, key := range map[string]string{"acme": keys["approver"], "umbrella": ""} {
		var waiting struct{ Approvals []struct{ ID string } }
		if a := g.AskAdmin(t, key, "GET", "/v1/approvals?tenant="+tenant, ""); json.Unmarshal([]byte(a.Body), &waiting) != nil || len(waiting.Approvals) != 1 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if a := g.AskAdmin(t, key, "POST", "/v1/approvals/"+waiting.Approvals[0].ID+"/standing", `{"uses":2,"for":"30m","arguments":{}}`); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	etag := g.AskAdmin(t, "", "GET", changePath(allTask), "").Header.Get("ETag")
	for i := range 3 {
		a := g.AskAdmin(t, "", "PUT", changePath(allTask), textBody(t, rig.ReadFile(t, filepath.Join(dir, allTask))+fmt.Sprintf("# %d\n", i)), "If-Match", etag)
		if etag = a.Header.Get("ETag"); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}

	for _, verb := range []string{"read", "search", "list"} {
		if a := g.AskAdmin(t, "", "POST", "/v1/acquisitions", fmt.Sprintf(`{"tenant":"acme","capability":"%s internet"}`, verb)); a.Status != http.StatusCreated {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for i := range 3 {
		body := fmt.Sprintf(`{"note":"n","files":[{"path":%q,"text":%q}]}`, allTask, rig.ReadFile(t, filepath.Join(dir, allTask))+fmt.Sprintf("# %d\n", i))
		if a := g.AskAdmin(t, "", "POST", "/v1/proposals", body); a.Status != http.StatusCreated {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for i := range 3 {
		signInByKey(t, g, keys["operator"])
		if a := g.AskAdmin(t, "", "POST", "/v1/blocks", fmt.Sprintf(`{"issuer":"idp","subject":"%d"}`, i)); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}

	for _, op := range openapi.Operations() {
		isList, inParts := strings.HasPrefix(op.ID, "list-") || op.ID == "search-receipts" || op.ID == "search-decisions", slices.Contains(op.Parameters, "limit") && slices.Contains(op.Parameters, "after")
		if isList != inParts || isList != (listMembers[op.Path] != "" && op.Method == http.MethodGet) {
			t.Errorf("%s %s: every list has limit and after, and a row in listMembers", op.Method, op.Path)
		}
	}
	read := func(path, query string) (entries []string, next string) {
		t.Helper()
		a := g.AskAdmin(t, "", "GET", path+"?"+listQueries[path]+query, "")
		var page map[string]json.RawMessage
		var part []json.RawMessage
		if err := json.Unmarshal([]byte(a.Body), &page); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.Status, a.Body)
		}
		if err := json.Unmarshal(page[listMembers[path]], &part); err != nil {
			t.Fatalf("%s: %v: %s", path, err, a.Body)
		}
		for _, e := range part {
			entries = append(entries, nameOfEntry(t, e))
		}
		if page["next"] != nil {
			if err := json.Unmarshal(page["next"], &next); err != nil {
				t.Fatal(err)
			}
		}
		return entries, next
	}
	for path := range listMembers {
		for _, limit := range []string{"0", "501"} {
			if a := g.AskAdmin(t, "", "GET", path+"?"+listQueries[path]+"limit="+limit, ""); a.Status != http.StatusBadRequest {
				t.Errorf("%s with the limit %s: %d", path, limit, a.Status)
			}
		}
		if path == "/v1/receipts" || path == "/v1/decisions" { // which grow: TestASearchForReceiptsIsContinuedAndSaysHowFarItHasLooked
			continue
		}
		limits := []int{1, 2}
		if path == "/v1/configuration/files" {
			limits = []int{100, 499} // it has so many
		}
		inParts := func(limit int) (all []string) {
			for after := ""; ; {
				part, next := read(path, fmt.Sprintf("limit=%d&after=%s", limit, url.QueryEscape(after)))
				if len(part) > limit || len(part) == 0 && next != "" {
					t.Fatalf("%s: %q, next %q, with the limit %d", path, part, next, limit)
				}
				all = append(all, part...)
				if after = next; after == "" {
					return all
				}
			}
		}
		whole := inParts(500)
		if len(whole) < 2 {
			t.Fatalf("%s has too little to be read in parts: %q", path, whole)
		}
		for _, limit := range limits {
			if parts := inParts(limit); !slices.Equal(parts, whole) {
				t.Errorf("%s: in parts of %d %q, at once %q", path, limit, parts, whole)
			}
		}
	}

	var files []struct{ Path string }
	out, errs, code := rig.Command(t, dir, "config", "files", "--json")
	if err := json.Unmarshal([]byte(out), &files); err != nil || code != 0 || len(files) < many {
		t.Errorf("config files: exit %d, %d files, %v\n%s%s", code, len(files), err, errs, out)
	}
	if !slices.IsSortedFunc(files, func(a, b struct{ Path string }) int { return strings.Compare(a.Path, b.Path) }) {
		t.Errorf("config files are not sorted: %+v", files)
	}
}

// nameOfEntry returns the members that name an entry of a list.
func nameOfEntry(t *testing.T, entry json.RawMessage) string {
	t.Helper()
	var e struct {
		ID, Path, Key, Kind, Run, Tenant, Server, Tool, Issuer, Subject, Budget string
	}
	if err := json.Unmarshal(entry, &e); err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.DeleteFunc([]string{e.Kind, e.Tenant, e.ID, e.Path, e.Key, e.Run, e.Server, e.Tool, e.Issuer, e.Subject, e.Budget}, func(s string) bool { return s == "" }), " ")
}
