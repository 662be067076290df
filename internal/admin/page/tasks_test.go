package page_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// tasksScene shows Tasks.
func tasksScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	return hostileScene{[]string{"/tasks"}, hostileTexts(t, 300), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		next := inTurn(texts)
		raw, err := json.Marshal(map[string]any{"next": next(), "tasks": []admin.TaskOffer{
			{Tenant: switchboard.TenantID(next()), Task: switchboard.TaskID(next()), Default: true, Caller: next(), Tools: []string{next(), next(), next()}, More: 3, Listed: 1234, Budget: 8000},
			{Tenant: switchboard.TenantID(next()), Task: switchboard.TaskID(next()), Why: next()},
			{Tenant: switchboard.TenantID(next()), Task: switchboard.TaskID(next()), Why: next()},
		}})
		if err != nil {
			t.Fatal(err)
		}
		d.api = answer(200, "application/json", string(raw))
		return d.open(t, address, cookie)
	}, ""}
}

func TestTasksSayWhatEachTaskGets(t *testing.T) {
	t.Parallel()
	scene := tasksScene(t)
	if page := scene.show(t, "/tasks", "text"); !strings.Contains(page, "1,234 tokens") || !strings.Contains(page, `href="/decision?principal=text&amp;task=text&amp;tenant=text"`) || !strings.Contains(page, "and 3 more") {
		t.Errorf("the page is\n%s", page)
	}
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = answer(200, "application/json", `{"tasks":[]}`)
	if page := d.open(t, "/tasks?tenant=acme", cookie); !strings.Contains(page, `Tenant <bdi class="theirs">acme</bdi> has no tasks`) || strings.Contains(page, "<table") {
		t.Errorf("without tasks: %s", page)
	}
}
