package served_test

import (
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// valueOf returns the value of a field of a form in a page.
func valueOf(page, name string) string {
	_, rest, _ := strings.Cut(page, `name="`+name+`" value="`)
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// PG-05: of two people who save the ranking of one tenant, one succeeds. The other sees who was first and the difference, keeps what she typed, and can save
// it then.
func TestPG05OfTwoPeopleWhoSaveOneRankingTheSecondSeesTheDifference(t *testing.T) {
	t.Parallel()
	dir, keys := layOutOfficers(t)
	file := filepath.Join(dir, "tenants/acme/tenant.yaml")
	rig.WriteFile(t, file, rig.ReadFile(t, file)+"ranking: # ours\n  adjust:\n    - {server: a, by: 1} # a bit\n")
	before := rig.ReadFile(t, file)
	g := rig.Serve(t, dir)
	propose := func(b *adminBrowser, points string) url.Values {
		t.Helper()
		status, page := b.get(b.base + "/ranking?" + url.Values{"tenant": {"acme"}, "move": {"adjust/by/0"}, "by": {points}}.Encode())
		if status != http.StatusOK || !strings.Contains(page, "Save it") {
			t.Fatalf("%d %s", status, page)
		}
		fields := url.Values{"act": {"save"}, "reason": {"it needs " + points}}
		for _, name := range []string{"token", "at", "etag"} {
			fields.Set(name, strings.NewReplacer("&amp;", "&", "&#34;", `"`, "&#43;", "+").Replace(valueOf(page, name)))
		}
		return fields
	}
	ann, ops := openAdmin(t, g, keys["admin"]), openAdmin(t, g, keys["operator"])
	hers, theirs := propose(ann, "5"), propose(ops, "7")
	if status, page := ops.post("/ranking", theirs); status != http.StatusOK || !strings.Contains(page, "Saved as change") {
		t.Fatalf("the first saves: %d %s", status, page)
	}
	if got := rig.ReadFile(t, file); got != strings.Replace(before, "by: 1", "by: 7", 1) {
		t.Errorf("the file is\n%s", got)
	}
	status, page := ann.post("/ranking", hers)
	if status != http.StatusPreconditionFailed || rig.ReadFile(t, file) != strings.Replace(before, "by: 1", "by: 7", 1) {
		t.Errorf("the second saves: %d\n%s", status, rig.ReadFile(t, file))
	}
	for _, want := range []string{"SB-CONF-002", "Somebody has changed the file since you began", ">ops</bdi>", "it needs 7", "by: 7} # a bit</del>", "by: 5} # a bit</ins>", `value="it needs 5"`, "Save mine over the file as it is now"} {
		if !strings.Contains(page, want) {
			t.Errorf("the second does not read %q:\n%s", want, page)
		}
	}
	hers.Set("etag", strings.ReplaceAll(valueOf(page, "etag"), "&#34;", `"`))
	if status, page := ann.post("/ranking", hers); status != http.StatusOK || !strings.Contains(page, "Saved as change") || rig.ReadFile(t, file) != strings.Replace(before, "by: 1", "by: 5", 1) {
		t.Errorf("the second saves over it: %d %s\n%s", status, page, rig.ReadFile(t, file))
	}

	// Another tenant is as one that is not there, and no other office than admin sees the file (PG-03, PG-04).
	if status, page := openAdmin(t, g, keys["other admin"]).get(g.AdminURL() + "/ranking?tenant=acme"); status != http.StatusNotFound || !strings.Contains(page, "there is no tenant") {
		t.Errorf("another tenant's admin: %d %s", status, page)
	}
	vic := openAdmin(t, g, keys["viewer"])
	if status, page := vic.get(g.AdminURL() + "/ranking?tenant=acme"); status != http.StatusForbidden {
		t.Errorf("a viewer: %d %s", status, page)
	}
	if status, page := vic.get(g.AdminURL() + "/configuration"); status != http.StatusOK || strings.Contains(page, `href="/ranking`) || strings.Contains(page, "it needs") {
		t.Errorf("a viewer's configuration: %d %s", status, page)
	}
}
