package page_test

import (
	"encoding/json"
	"html"
	"net/http"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// PG-01 on the template of Tasks.
func TestPG01TextOfOthersOnTasksStaysText(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	show := func(text string) string {
		t.Helper()
		id := switchboard.TaskID(text)
		raw, err := json.Marshal(map[string]any{"next": text, "tasks": []admin.TaskOffer{
			{Tenant: switchboard.TenantID(text), Task: id, Default: true, Caller: text, Tools: []string{text}, More: 3, Listed: 1234, Budget: 8000},
			{Tenant: switchboard.TenantID(text), Task: id, Why: text},
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.api = answer(200, "application/json", string(raw))
		w := d.ask("GET", "/tasks", host, "", cookie...)
		if w.Code != http.StatusOK {
			t.Fatalf("%q: %d %s", text, w.Code, w.Body)
		}
		return w.Body.String()
	}
	page := show("text")
	plain := skeleton(page)
	if !strings.Contains(page, "1,234 tokens") || !strings.Contains(page, `href="/decision?principal=text&amp;task=text&amp;tenant=text"`) || !strings.Contains(page, "and 3 more") {
		t.Errorf("the page is\n%s", page)
	}
	for _, texts := range hostileTexts(t) {
		text := strings.ReplaceAll(texts[0][:min(len(texts[0]), 300)], "\n", " ")
		page := show(text)
		if skeleton(page) != plain {
			t.Errorf("%.60q makes other elements or attributes:\n%s", text, page)
		}
		if i := strings.IndexFunc(html.UnescapeString(page), isHidden); i >= 0 {
			t.Errorf("%.60q: the page has a character as itself that is not visible", text)
		}
	}
	d.api = answer(200, "application/json", `{"tasks":[]}`)
	if page := d.ask("GET", "/tasks?tenant=acme", host, "", cookie...).Body.String(); !strings.Contains(page, `Tenant <bdi class="theirs">acme</bdi> has no tasks`) || strings.Contains(page, "<table") {
		t.Errorf("without tasks: %s", page)
	}
}
