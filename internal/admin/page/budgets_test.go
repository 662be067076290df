package page_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// budgetAPI answers about one account, and forecasts; each text of others is one of the texts, in turn. It keeps what it was sent.
func budgetAPI(t *testing.T, texts []string, row budget.StatementRow, sent *[]string) http.Handler {
	t.Helper()
	turn := 0
	next := func() string {
		turn++
		return texts[turn%len(texts)]
	}
	text := next()
	row.Tenant, row.Budget, row.At, row.Of, row.Unit = switchboard.TenantID(next()), "tenant/"+text, "/etc/switchboard/tenants/acme/tenant.yaml:3:5 "+next(), text, next()
	forecast := budget.RefusalForecast{Unit: text, Limit: "5.00", Calls: 812, Counted: 800, Spent: "7.50", Refused: 271, Saved: "2.50", First: time.Now().Add(-50 * time.Hour), By: []budget.ForecastRow{{Tool: next(), Principal: next(), Task: switchboard.TaskID(next()), Refused: 271}}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*sent = append(*sent, r.Method+" "+r.URL.RequestURI()+" "+string(body))
		var answer any = map[string]any{"budgets": []budget.StatementRow{row}, "next": text}
		switch {
		case strings.HasSuffix(r.URL.Path, "/what-if"):
			answer = forecast
		case strings.HasSuffix(r.URL.Path, "/adjust") && strings.Contains(string(body), `"by":"1"`):
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write(access.ProblemOf(http.StatusForbidden, &switchboard.Error{Code: switchboard.CodeNotAuthorized, Text: "only an operator may correct it " + text}).Encode())
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// budgetsScene shows an account, with the form of a correction.
func budgetsScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	return hostileScene{[]string{"/budgets"}, hostileTexts(t, lineBytes), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = budgetAPI(t, texts, budget.StatementRow{Limit: "10.00", Settled: "7.50", Held: "1.00", Left: "1.50"}, new([]string))
		page := d.open(t, address+"?"+url.Values{"budget": {"tenant/" + texts[1%len(texts)]}, "of": {texts[1%len(texts)]}, "most": {texts[0]}}.Encode(), cookie)
		if !strings.Contains(page, `id="correct"`) {
			t.Fatalf("%q: there is no form:\n%s", texts, page)
		}
		return page
	}, ""}
}

func TestAnAccountShowsItsBarAndWhenItIsUsedUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	month := budget.StatementRow{Window: "month", From: now.Add(-10 * 24 * time.Hour), Until: now.Add(10 * 24 * time.Hour), Limit: "10.00", Settled: "7.50", Held: "1.00", Left: "1.50"}
	paced := month
	paced.Pace.DayUsedUp = now.Add(26*time.Hour + 30*time.Minute)
	warned, empty, none := month, month, month
	warned.Warned, empty.Warned, none.Limit = 80, 100, "0.00"
	for _, tt := range []struct {
		name string
		row  budget.StatementRow
		want []string
	}{
		{"half of the window has passed", month, []string{`class="bar" x="0" y="4" width="750"`, `class="kept" x="750" y="4" width="100"`, `class="mark" x="500"`, "75 % of the limit is spent, and 50 % of the window has passed", "it lasts at the pace of the last day, and of the last week", `set at <bdi class="theirs">tenants/acme/tenant.yaml:3:5 x</bdi>`}},
		{"used up tomorrow", paced, []string{"at the pace of the last day: used up", "in 26 h", "of the last week: it lasts"}},
		{"a warning", warned, []string{"past the warning at 80 %"}},
		{"used up", empty, []string{"<strong>used up</strong>", `class="bad"`}},
		{"nothing may be spent", none, []string{`width="1000" height="16"></rect><rect class="bar" x="0" y="4" width="1000"`}},
	} {
		d := newDesk(t, "")
		cookie := d.signIn(t)
		d.api = budgetAPI(t, []string{"x"}, tt.row, new([]string))
		page := d.ask("GET", "/budgets", host, "", cookie...).Body.String()
		for _, want := range tt.want {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the view lacks %q:\n%s", tt.name, want, page)
			}
		}
	}
}

func TestTheAddressProposesABudget(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ most, more, sent, command string }{
		{"5", "&budget=tenant%2Fpaid", `{"budget":"tenant/paid","limit":"5"}`, "switchboard budget what-if tenant/paid --limit 5"},
		{"500 calls", "&window=1h&per=principal", `{"calls":500,"window":"1h","per":"principal"}`, "switchboard budget what-if --calls 500"},
	} {
		d := newDesk(t, "")
		cookie := d.signIn(t)
		var sent []string
		d.api = budgetAPI(t, []string{"x"}, budget.StatementRow{Limit: "1"}, &sent)
		page := d.ask("GET", "/budgets?tenant=acme&most="+url.QueryEscape(tt.most)+tt.more, host, "", cookie...).Body.String()
		if want := "POST /v1/budgets/what-if?tenant=acme " + tt.sent; len(sent) != 2 || sent[0] != "GET /v1/budgets?tenant=acme " || sent[1] != want {
			t.Errorf("the API gets %q, want %q", sent, want)
		}
		for _, want := range []string{tt.command, "would have refused <strong>271</strong>"} {
			if !strings.Contains(page, want) {
				t.Errorf("%s: the view lacks %q:\n%s", tt.most, want, page)
			}
		}
	}
	d := newDesk(t, "")
	cookie := d.signIn(t)
	var sent []string
	d.api = budgetAPI(t, []string{"x"}, budget.StatementRow{Limit: "1"}, &sent)
	if page := d.ask("GET", "/budgets?most=some+calls", host, "", cookie...).Body.String(); len(sent) != 1 || !strings.Contains(page, "a number such as 500 calls") {
		t.Errorf("a limit that is none: %q\n%s", sent, page)
	}
}

// PG-02 on the form of a correction.
func TestPG02ACorrectionOfABudgetCountsOnlyWithTheTokenOfItsSession(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "x", []switchboard.Office{switchboard.OfficeViewer}
	d.tenants = []switchboard.TenantID{"x"}
	cookie := d.signIn(t)
	var sent []string
	d.api = budgetAPI(t, []string{"x"}, budget.StatementRow{Limit: "10.00"}, &sent)
	address := "/budgets?budget=tenant%2Fx&of=x"
	if page := d.ask("GET", address, host, "", cookie...).Body.String(); strings.Contains(page, `id="correct"`) {
		t.Error("a viewer finds the form of a correction")
	}
	d.row.Offices = []switchboard.Office{switchboard.OfficeAdmin}
	page := d.ask("GET", address, host, "", cookie...).Body.String()
	_, token, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ = strings.Cut(token, `"`)
	post := func(fields url.Values) (status int, page, next string) {
		w := d.ask("POST", "/budgets", host, fields.Encode(), append(cookie, "Origin", "http://"+host, "Content-Type", form)...)
		return w.Code, w.Body.String(), w.Header().Get("Location")
	}
	fields := url.Values{"act": {"adjust"}, "at": {"budget=tenant%2Fx&of=x"}, "budget": {"tenant/x"}, "of": {"x"}, "of_tenant": {"x"}, "by": {"-2.50"}, "reason": {"a failed batch"}}
	other := d.signIn(t)
	for _, wrong := range []string{"", token[1:] + "0", fmt.Sprint(other)} {
		sent = nil
		fields.Set("token", wrong)
		status, page, _ := post(fields)
		if status != http.StatusForbidden || slices.ContainsFunc(sent, func(s string) bool { return strings.HasPrefix(s, "POST") }) {
			t.Errorf("with the token %q: %d, and the API is asked %q", wrong, status, sent)
		}
		if !strings.Contains(page, `value="a failed batch"`) {
			t.Errorf("with the token %q, what was typed is lost:\n%s", wrong, page)
		}
	}
	fields.Set("token", token)
	sent = nil
	if status, _, next := post(fields); status != http.StatusSeeOther || next != address {
		t.Errorf("a correction leads with %d to %q", status, next)
	}
	if want := `POST /v1/budgets/adjust?tenant=x {"budget":"tenant/x","of":"x","by":"-2.50","reason":"a failed batch"}`; sent[0] != want {
		t.Errorf("the API gets\n%s, want\n%s", sent[0], want)
	}
	fields.Set("by", "1")
	if status, page, _ := post(fields); status != http.StatusForbidden || !strings.Contains(page, "only an operator may correct it") || !strings.Contains(page, `value="a failed batch"`) {
		t.Errorf("a refused correction: %d, and the view is\n%s", status, page)
	}
	fields.Set("act", "burn")
	if status, _, _ := post(fields); status != http.StatusBadRequest {
		t.Errorf("a form that is none of the view: %d", status)
	}
}
