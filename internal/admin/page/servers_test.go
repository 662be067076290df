package page_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

// route returns a handler that answers each path with a value as JSON, or with the one that a func() any makes. A path with a method before it counts for this method.
func route(answers map[string]any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			v, ok = answers[r.URL.Path]
		}
		if late, is := v.(func() any); is {
			v = late()
		}
		if p, is := v.(access.Problem); is {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(p.Status)
			_, _ = w.Write(p.Encode())
			return
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write(access.ProblemOf(http.StatusNotFound, &switchboard.Error{Text: "nothing is here"}).Encode())
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	})
}

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// reportOf returns a server about which everything that others can write is one of the texts, in turn.
func reportOf(texts ...string) admin.ServerReport {
	next := inTurn(texts)
	cause := func() *health.Cause { return &health.Cause{Stage: "call", Message: next(), Since: noon} }
	return admin.ServerReport{
		ServerStatus: admin.ServerStatus{
			ServerStatus: upstream.ServerStatus{ID: "a", Transport: switchboard.TransportStdio, State: upstream.StateReady, Name: next(), Release: next(), Version: next(), Note: next(), LastFailure: &upstream.Failure{Message: next(), Remedy: next(), Stderr: []string{next()}}},
			Health:       health.Status{State: health.Quarantine, Since: noon, Cause: cause(), Tools: []health.ToolStatus{{Tool: next(), State: health.Quarantine, Cause: cause()}}},
			Served:       1, Refused: 2,
		},
		Seen: time.Now().Add(-time.Hour), Changes: []health.PastChange{{At: time.Now().Add(-time.Minute), From: health.Healthy, To: health.Quarantine, Cause: cause()}, {At: time.Now(), Tool: next(), From: health.Healthy, To: health.Quarantine, Cause: cause()}},
		Band:    []health.BandPart{{From: time.Now().Add(-time.Hour), To: time.Now(), State: health.Quarantine}},
		Tenants: []switchboard.TenantID{switchboard.TenantID(next())}, Uses: []admin.ServerUse{{Tenant: switchboard.TenantID(next()), Task: switchboard.TaskID(next()), Runs: 2, To: []switchboard.ServerID{switchboard.ServerID(next())}, Stranded: []string{next()}}},
	}
}

// requestOf returns a request about which everything that others can write is one of the texts, in turn.
func requestOf(texts ...string) approvals.ApprovalView {
	next := inTurn(texts)
	past := func() []approvals.PastDecision {
		return []approvals.PastDecision{{At: noon, State: approval.Refused, By: next(), Note: next()}}
	}
	return approvals.ApprovalView{
		ApprovalRow: approvals.ApprovalRow{ID: "k-1", Kind: approval.ForCall, State: approval.Pending, Tenant: switchboard.TenantID(next()), Principal: next(), Task: switchboard.TaskID(next()), Tool: next(), Asked: noon, Until: noon.Add(time.Hour), Needed: 1},
		Effect:      "A yes allows one call of " + next(), Deciders: next(), Rules: []string{next()}, Words: next(), Votes: past(), Past: past(), Refused: past(), Effects: []string{next()}, Money: next(),
		Arguments: approvals.ShownArguments{Text: `{"to": "x"}`, Masked: []string{next()}}, Server: approvals.ServerWords{Title: next(), Description: next(), Cut: true, Changed: true}, Text: "all of it",
	}
}

// listRows is how many rows of a list each page of listsScene has, each with another text. Pages cost more than rows.
const listRows = 6

// listsScene shows the lists of Servers, Approvals and Receipts, and a replay: in each row, everything that others can write is one text.
func listsScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	var groups [][]string
	for rest := joinedTexts(hostileTexts(t, lineBytes)); len(rest) > 0; rest = rest[min(listRows, len(rest)):] {
		groups = append(groups, slices.Concat(rest[:min(listRows, len(rest))]...))
	}
	addresses := []string{"/servers", "/approvals", "/approvals/decided", "/approvals/standing", "/receipts", "/receipts/n1/5?replay=c1"}
	return hostileScene{addresses, groups, func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		var servers []admin.ServerStatus
		var requests []approvals.ApprovalRow
		var yeses []approvals.StandingRow
		var receipts []admin.ReceiptRow
		replayed := &replay.Diff{Decisions: 2}
		for i := range listRows {
			text := texts[i%len(texts)]
			switch path, _, _ := strings.Cut(address, "?"); path {
			case "/servers":
				servers = append(servers, reportOf(text).ServerStatus)
			case "/approvals", "/approvals/decided":
				requests = append(requests, requestOf(text).ApprovalRow)
			case "/approvals/standing":
				yes := approvals.StandingRow{ID: "s-1", Tenant: switchboard.TenantID(text), Principal: text, Task: switchboard.TaskID(text), Tool: text, Uses: 3, By: text, EndedBy: text, Until: noon.Add(time.Hour)}
				yes.Arguments, _ = json.Marshal(strings.ToValidUTF8(text[:min(len(text), 100)], "")) // it is longer as JSON, and must not be cut
				yeses = append(yeses, yes)
			case "/receipts":
				receipts = append(receipts, receiptOf(t, text), admin.ReceiptRow{ID: "n1/4", Fault: text})
			default:
				replayed.Broken = append(replayed.Broken, replay.BrokenReplay{Tenant: switchboard.TenantID(text), Task: switchboard.TaskID(text), Recorded: switchboard.Digest(text), Replayed: switchboard.Digest(text)})
				replayed.NotReplayed = append(replayed.NotReplayed, replay.NotReplayed{Why: text})
			}
		}
		next := strings.Join(texts, " ")
		d.api = route(map[string]any{
			"/v1/servers": map[string]any{"servers": servers, "next": next}, "/v1/metrics/history": oneTally(), "/v1/approvals": map[string]any{"approvals": requests, "next": next}, "/v1/standing-approvals": map[string]any{"standing": yeses},
			"/v1/receipts": admin.ReceiptPage{Receipts: receipts, Next: next, Looked: noon}, "/v1/receipt": admin.ReceiptRow{ID: "n1/5", Receipt: shortReceipt}, "/v1/policy-diffs/c1": whatif.Comparison{State: whatif.Done, Result: replayed},
		})
		return d.open(t, address, cookie)
	}, ""}
}

// oneTally returns the past of server a.
func oneTally() history.Excerpt {
	return history.Excerpt{Series: []history.TimeSeries{{Server: "a", Points: []history.Point{{Start: time.Now(), Tally: history.Tally{Calls: 3, P50: 1, P95: 2}}}}}}
}

// shortReceipt is a receipt without texts of others.
var shortReceipt = json.RawMessage(`{"kind":"decision","decision":"sha256:1"}`)

// singlesScene shows one server, one request and one receipt, which has eight texts of others.
func singlesScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	var groups [][]string
	for _, group := range hostileTexts(t, lineBytes) {
		groups = slices.AppendSeq(groups, slices.Chunk(group, 8))
	}
	return hostileScene{[]string{"/servers/a", "/approvals/k-1", "/receipts/n1/5"}, groups, func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		next := inTurn(texts)
		d.api = route(map[string]any{
			"/v1/servers/a":       func() any { return reportOf(texts...) },
			"/v1/metrics/history": oneTally(),
			"/v1/tools": func() any {
				definition, _ := json.Marshal(next())
				return admin.OfferList{Tools: []admin.OfferedTool{{Server: "a", Tool: next(), Definition: definition, Labels: []string{next()}, Contract: []string{next()}, Equivalents: []string{next()}}}, Next: next()}
			},
			"/v1/approvals/k-1": func() any { return requestOf(texts...) },
			"/v1/receipt":       func() any { return receiptOf(t, texts...) },
		})
		return d.open(t, address, cookie)
	}, ""}
}

// replaysScene shows replays without a result.
func replaysScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	return hostileScene{[]string{"/receipts/n1/5?replay=c2", "/receipts/n1/5?replay=c3"}, joinedTexts(hostileTexts(t, lineBytes)), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		d.api = route(map[string]any{
			"/v1/receipt":         admin.ReceiptRow{ID: "n1/5", Receipt: shortReceipt},
			"/v1/policy-diffs/c2": whatif.Comparison{State: whatif.Failed, Why: texts[0]}, "/v1/policy-diffs/c3": access.ProblemOf(http.StatusNotFound, &switchboard.Error{Text: texts[0]}),
		})
		return d.open(t, address, cookie)
	}, ""}
}

// send sends a form of a view.
func (d *desk) send(t *testing.T, cookie []string, path string, pairs ...string) (status int, page, next string) {
	t.Helper()
	page = d.ask("GET", path, host, "", cookie...).Body.String()
	_, rest, _ := strings.Cut(page, `name="token" value="`)
	token, _, _ := strings.Cut(rest, `"`)
	fields := url.Values{"token": {token}}
	for i := 0; i < len(pairs); i += 2 {
		fields.Set(pairs[i], pairs[i+1])
	}
	d.asked = nil
	w := d.ask("POST", path, host, fields.Encode(), append(cookie, "Origin", "http://"+host, "Content-Type", form)...)
	return w.Code, w.Body.String(), w.Header().Get("Location")
}

func TestAServerIsTakenOutByAFormThatSaysWhereRunsMove(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	report := admin.ServerReport{ServerStatus: admin.ServerStatus{ServerStatus: upstream.ServerStatus{ID: "a", Transport: switchboard.TransportHTTP, InFlight: 4}, Health: health.Status{State: health.Healthy, Since: noon}}, Seen: noon, Band: []health.BandPart{{From: time.Now().Add(-time.Hour), To: time.Now(), State: health.Healthy}}, Uses: []admin.ServerUse{{Tenant: "acme", Task: "triage", Runs: 3, To: []switchboard.ServerID{"b"}, Stranded: []string{"find"}}}}
	answers := map[string]any{
		"/v1/servers/a": report, "/v1/metrics/history": history.Excerpt{}, "/v1/tools": admin.OfferList{},
		"POST /v1/servers/a/disable": admin.OperationResult{Server: "a", State: "disabled", Note: "it takes no new calls"},
		"POST /v1/servers/a/probe":   access.ProblemOf(http.StatusBadRequest, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: "not now"}),
	}
	d.api = route(answers)
	page := d.ask("GET", "/servers/a", host, "", cookie...).Body.String()
	for _, want := range []string{
		`Runs of task <bdi class="theirs">triage</bdi> move to <bdi class="theirs">b</bdi>.`, `For <bdi class="theirs">find</bdi>, task <bdi class="theirs">triage</bdi> has no other server`, "Calls in flight finish (4 now)", "No agent has called a tool of this server",
		"It is healthy", "healthy for 100.0 % of the known time",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	status, page, _ := d.send(t, cookie, "/servers/a", "act", "disable", "reason", "its disk")
	if status != http.StatusOK || d.asked[0] != "ann POST /v1/servers/a/disable" || !strings.Contains(page, "is disabled: <bdi class=\"theirs\">it takes no new calls</bdi>") {
		t.Errorf("the form is answered with %d, and asks %q:\n%s", status, d.asked, page)
	}
	status, page, _ = d.send(t, cookie, "/servers/a", "act", "probe", "reason", "its disk")
	if status != http.StatusBadRequest || !strings.Contains(page, "not now") || !strings.Contains(page, `value="its disk"`) {
		t.Errorf("a refusal is %d, and does not keep what was typed:\n%s", status, page)
	}
	if status, _, _ = d.send(t, cookie, "/servers/a", "act", "remove"); status != http.StatusBadRequest {
		t.Errorf("a form that is none: %d", status)
	}

	// PG-03: an officer of a tenant sees no action and no definition.
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeAdmin}
	page = d.ask("GET", "/servers/a", host, "", cookie...).Body.String()
	if strings.Contains(page, `name="act"`) || strings.Contains(page, "What you can do") || strings.Contains(strings.Join(d.asked, " "), "/v1/tools") {
		t.Errorf("an admin of a tenant sees\n%s\nand asks %q", page, d.asked)
	}
}

func TestTheNextRequestThatTheOfficerMayDecideOpens(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	view := func(id, why string, until time.Duration) approvals.ApprovalView {
		v := requestOf("text")
		v.ID, v.WhyNot, v.Until = id, why, noon.Add(until)
		return v
	}
	first, second, third := view("k-1", "", 1), view("k-2", "another must", 2), view("k-3", "", 3)
	decided := first.ApprovalRow
	decided.State = approval.Approved
	d.api = route(map[string]any{
		"/v1/approvals/k-1": first, "/v1/approvals/k-2": second, "/v1/approvals/k-3": third, "POST /v1/approvals/k-1/approve": decided,
		"POST /v1/approvals/k-3/refuse":   access.ProblemOf(http.StatusConflict, &switchboard.Error{Code: switchboard.CodeChangedMeanwhile, Text: "it is approved already, by max"}),
		"POST /v1/approvals/k-1/standing": approvals.StandingRow{ID: "s"},
		"/v1/approvals":                   map[string]any{"approvals": []approvals.ApprovalRow{third.ApprovalRow, second.ApprovalRow, first.ApprovalRow}},
	})
	status, _, next := d.send(t, cookie, "/approvals/k-1", "act", "approve", "note", "fine")
	if status != http.StatusSeeOther || next != "/approvals/k-3?before=approved" {
		t.Errorf("after a yes: %d %s, asked %q", status, next, d.asked)
	}
	if page := d.ask("GET", next, host, "", cookie...).Body.String(); !strings.Contains(page, "You have said yes to the request before") {
		t.Errorf("the next request does not say what was done:\n%s", page)
	}
	status, page, _ := d.send(t, cookie, "/approvals/k-3", "act", "refuse", "note", "no <b>")
	if status != http.StatusConflict || !strings.Contains(page, "approved already, by max") || !strings.Contains(page, "no &lt;b&gt;</textarea>") {
		t.Errorf("somebody was first: %d %s", status, page)
	}
	if page := d.ask("GET", "/approvals/k-2", host, "", cookie...).Body.String(); strings.Contains(page, `name="act"`) || !strings.Contains(page, "You cannot decide this: another must.") {
		t.Errorf("a request that another must decide:\n%s", page)
	}
	if page := d.ask("GET", "/approvals/k-1?before=<i>", host, "", cookie...).Body.String(); strings.Contains(page, "request before") {
		t.Error("the address says what was done before")
	}
	status, page, _ = d.send(t, cookie, "/approvals/k-1", "act", "standing", "uses", "3", "for", "2h", "arguments", `{"/to": "any"}`)
	if status != http.StatusOK || !strings.Contains(page, "This request still waits for your yes") {
		t.Errorf("a standing yes: %d %s", status, page)
	}
}

func TestAStandingYesIsProposedForTheShownArgumentsOnly(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	for _, tt := range []struct {
		text   string
		masked []string
		want   string
	}{
		{`{"to": "x", "a/b~": 1.50}`, nil, `{"/a~1b~0": {"equals": 1.50},"/to": {"equals": "x"}}`},
		{`{"to": "x\u{202e}"}`, nil, `{}`},
		{`{"to": "\masked{4}"}`, []string{"/to"}, `{}`},
		{"", nil, ""},
	} {
		v := requestOf("text")
		v.Arguments = approvals.ShownArguments{Text: tt.text, Masked: tt.masked}
		d.api = route(map[string]any{"/v1/approvals/k-1": v})
		page := d.ask("GET", "/approvals/k-1", host, "", cookie...).Body.String()
		_, rest, _ := strings.Cut(page, `name="arguments"`)
		_, rest, _ = strings.Cut(rest, ">")
		got, _, _ := strings.Cut(rest, "</textarea>")
		got = strings.NewReplacer("\n", "", "  ", "").Replace(html.UnescapeString(got))
		if got = strings.TrimSpace(got); got != tt.want {
			t.Errorf("of %s, the form proposes %s", tt.text, fmt.Sprintf("%q", got))
		}
	}
}

func TestEmptyListsOfServersAndRequestsSayWhatToDo(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = route(map[string]any{"/v1/servers": map[string]any{}, "/v1/metrics/history": history.Excerpt{StoreAway: true}, "/v1/approvals": map[string]any{}, "/v1/standing-approvals": map[string]any{}})
	for path, want := range map[string]string{
		"/servers": "switchboard server add", "/servers?tenant=acme": "may use no server", "/approvals": "No call waits for a person", "/approvals/decided": "No person has decided", "/approvals/standing": "No person has said yes in advance",
	} {
		if page := d.ask("GET", path, host, "", cookie...).Body.String(); !strings.Contains(page, want) || strings.Contains(page, "<table") {
			t.Errorf("%s lacks %q:\n%s", path, want, page)
		}
	}
	if page := d.ask("GET", "/servers", host, "", cookie...).Body.String(); !strings.Contains(page, "The store cannot be read now") {
		t.Error("the view does not say that calls are missing")
	}
}
