package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// denies is a layer of acme that denies everything; permits, nothing.
const (
	denies  = "package switchboard.tenant\n\nallowed_tools contains c.id if {\n\tsome c in input.candidate_tools\n\tc.id == \"none\"\n}\n"
	permits = "package switchboard.tenant\n\nallowed_tools contains c.id if some c in input.candidate_tools\n"
)

func TestPoliciesAreListedAndTheirTestsRunThroughTheAPI(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	for name, text := range map[string]string{
		"closed.rego":      permits,
		"closed_test.rego": "package switchboard.tenant_test\n\nimport data.switchboard.tenant\n\ntest_open if tenant.allowed_tools == {\"a/work\"} with input as {\"candidate_tools\": [{\"id\": \"a/work\"}]}\n",
	} {
		if err := os.MkdirAll(dir+"/tenants/acme/policies", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/tenants/acme/policies/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := rig.Serve(t, dir)
	a := g.AskAdmin(t, keys["viewer"], http.MethodGet, "/v1/policies", "")
	if a.Status != 200 || strings.Count(a.Body, `"layer"`) != 1 || !strings.Contains(a.Body, `"path":"closed_test.rego"`) || !strings.Contains(a.Body, `"test":true`) {
		t.Errorf("a viewer sees %d %s", a.Status, a.Body)
	}
	g.Do(0, `(?s)policies \(shipped\).*tenants/acme/policies\n  closed.rego  sha256:`, "policy", "list")
	test := func(who, files string) (status int, r author.TestReport) {
		t.Helper()
		a := g.AskAdmin(t, keys[who], http.MethodPost, "/v1/policies/test?tenant=acme", fmt.Sprintf(`{"files":%s}`, files))
		_ = json.Unmarshal([]byte(a.Body), &r)
		return a.Status, r
	}
	if status, r := test("author", "{}"); status != 200 || r.Count(author.Passed) != 1 || len(r.Tests) != 1 {
		t.Errorf("%d %+v", status, r)
	}
	candidate, err := json.Marshal(map[string]string{"closed.rego": denies})
	if err != nil {
		t.Fatal(err)
	}
	if status, r := test("author", string(candidate)); status != 200 || r.Count(author.Failed) != 1 {
		t.Errorf("with a candidate: %d %+v", status, r)
	}
	for files, want := range map[string]int{`{"closed.rego":"package"}`: 422, `{"../x.rego":"package x"}`: 400, `{"closed.rego":7}`: 400} {
		if status, _ := test("author", files); status != want {
			t.Errorf("%s: %d, want %d", files, status, want)
		}
	}
	if status, _ := test("viewer", "{}"); status != 403 {
		t.Errorf("a viewer: %d", status)
	}
	if status, r := test("author", "{}"); status != 200 || r.Count(author.Passed) != 1 {
		t.Errorf("a candidate stays: %d %+v", status, r)
	}
}
