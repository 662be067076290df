package page_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// receiptOf returns the receipt of a call, in which everything that others can write is one of the texts, in turn.
func receiptOf(t *testing.T, texts ...string) admin.ReceiptRow {
	t.Helper()
	next := inTurn(texts)
	raw, err := json.Marshal(receipt.Receipt{
		Time: noon, Kind: receipt.Call, Tenant: switchboard.TenantID(next()), Principal: receipt.Subject{ID: next()}, Task: switchboard.TaskID(next()), Run: switchboard.RunID(next()), Server: "a", Tool: next(),
		ServedBy: next(), Tries: []receipt.FailedAttempt{{Tool: next(), Code: "SB-EXEC-004", Of: "n1/3", Sent: true}}, Decision: "sha256:1", Rulings: []switchboard.Digest{"sha256:2"}, Result: "r1",
		Outcome: receipt.OK, Of: "n1/4", Took: receipt.CallTime{Total: 41_200, Waiting: 1_000}, Approval: receipt.ApprovalRef{Request: "k-1"}, Note: next(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return admin.ReceiptRow{ID: "n1/5", Receipt: raw}
}

func TestACallsWholeStoryIsOnOnePage(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = route(map[string]any{"/v1/receipt": receiptOf(t, "find")})
	page := d.ask("GET", "/receipts/n1/5?tenant=acme", host, "", cookie...).Body.String()
	for _, want := range []string{
		"A call: ok", "41 ms, of which 1.0 ms before it was sent", `decision <a href="/decision?digest=sha256%3A1&amp;recorded=1&amp;task=find&amp;tenant=acme"><bdi class="theirs">sha256:1</bdi></a>`, `its ruling is <bdi class="theirs">sha256:2</bdi>`, `A person&#39;s yes was used: <a href="/approvals/k-1?tenant=acme">`,
		"the call may have reached it", "served the call in its place", `href="/receipts/n1/5?tenant=acme"`, "switchboard receipts show n1/5</bdi></code>",
	} {
		if !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "&#39;", "'")) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	asked := strings.Join(d.asked, " ")
	for _, id := range []string{"n1%2F5", "n1%2F3", "n1%2F4"} {
		if !strings.Contains(asked, "/v1/receipt?id="+id+"&tenant=acme") {
			t.Errorf("receipt %s is not read: %s", id, asked)
		}
	}
}

func TestTheFilterOfReceiptsIsThatOfTheAPI(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	d.api = route(map[string]any{
		"/v1/receipts":             admin.ReceiptPage{Receipts: []admin.ReceiptRow{}, Next: "2026-11-28T11:00:00Z n1/4", Looked: noon},
		"POST /v1/receipts/verify": receipt.VerifiedPart{Looked: 7, Of: 7, Chains: []receipt.ChainReport{{Node: "n1", Checked: 7}}},
	})
	page := d.ask("GET", "/receipts?principal=ci&task=&tool=a%2F*&outcome=refused&since=2026-11-28T02:00&until=&after=x", host, "", cookie...).Body.String()
	if got := d.asked[0]; got != "ann GET /v1/receipts?after=x&outcome=refused&principal=ci&since=2026-11-28T02%3A00%3A00Z&tool=a%2F%2A" {
		t.Errorf("the API is asked %s", got)
	}
	for _, want := range []string{
		"None so far.", "Looked back to", `href="/v1/receipts/export?outcome=refused&amp;since=2026-11-28T02%3A00%3A00Z&amp;tool=a%2F%2A"`, `<option value="refused" selected>`, `name="since" placeholder="2026-11-28T02:00" maxlength="30" value="2026-11-28T02:00"`,
		"after=2026-11-28T11%3A00%3A00Z&#43;n1%2F4",
	} {
		if !strings.Contains(page, want) && !strings.Contains(page, strings.ReplaceAll(want, "&#43;", "+")) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if status, page, _ := d.send(t, cookie, "/receipts", "act", "verify"); status != http.StatusOK || !strings.Contains(page, "All 7 entries are as they were written") {
		t.Errorf("the verification: %d %s", status, page)
	}
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeViewer}
	if page := d.ask("GET", "/receipts", host, "", cookie...).Body.String(); strings.Contains(page, `value="verify"`) {
		t.Error("a viewer may verify")
	}
}
