package served_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// An author runs the tests of its tenant's policies, and of candidates that are nowhere yet.
func TestAnAuthorTestsThePoliciesOfItsTenant(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	rig.WriteFile(t, filepath.Join(dir, ownPolicy), withoutTool("rest", "not here"))
	rig.WriteFile(t, filepath.Join(dir, "tenants/acme/policies/own_test.rego"), `package own_test

import data.switchboard.tenant

test_rest if tenant.deny["a/rest"] with input as {"candidate_tools": [{"id": "a/rest", "tool": "rest"}]}
`)
	g := rig.Serve(t, dir)
	const at = "/v1/tenants/acme/policies"
	list := g.AskAdmin(t, keys["viewer"], "GET", at, "")
	for _, want := range []string{`"state":"in force"`, `"path":"own.rego","digest":"sha256:`, `"path":"own_test.rego"`, `"test":true`} {
		if list.Status != http.StatusOK || !strings.Contains(list.Body, want) {
			t.Errorf("%d, and it lacks %s: %s", list.Status, want, list.Body)
		}
	}
	test := func(who, body string, status int, want string) {
		t.Helper()
		if a := g.AskAdmin(t, keys[who], "POST", at+"/test", body); a.Status != status || !strings.Contains(a.Body, want) {
			t.Errorf("%s as %s: %d %s; want %d %s", body, who, a.Status, a.Body, status, want)
		}
	}
	test("author", "", 200, `"passed":1,"failed":0`)
	test("admin", `{"coverage":true}`, 200, `"coverage":[{"file":`)
	test("author", `{"files":[{"path":"own.rego","text":"package switchboard.tenant\n\nallowed_tools := set()\n\ndeny[\"x\"] contains \"y\" if false\n"}]}`, 200, `"passed":0,"failed":1`)
	test("author", `{"files":[{"path":"own_test.rego","text":null}]}`, 200, `"passed":0,"failed":0`)
	test("author", `{"files":[{"path":"own.rego","text":"package"}]}`, 422, "SB-CONF-001")
	test("author", `{"files":[{"path":"../own.rego","text":""}]}`, 400, "")
	test("author", `{"run":"("}`, 400, "")
	test("viewer", `{}`, 403, "")
	test("other admin", `{}`, 404, "")
	if out, errs, code := rig.Command(t, dir, "policy", "list", "--tenant", "acme"); code != 0 || !strings.Contains(out, "policy of tenant acme: in force") || !strings.Contains(out, "own_test.rego") {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
}
