package page_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/whatif"
)

func TestAReplaySaysWhetherTheDecisionsOfAReceiptComeOutTheSame(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	const gone = "the inputs of the decision are not archived: they have expired, or could not be written"
	for _, tt := range []struct {
		name string
		run  any
		want []string
		not  []string
	}{
		{"the same", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Decisions: 2, Replayed: 2, Calls: 1}}, []string{"The same.", "2 decisions, made again", "they were recorded", "Replay again"}, []string{"differs", "not known"}},
		{"another one", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Decisions: 2, Replayed: 1, Broken: []replay.BrokenReplay{{Of: "call", Tenant: "acme", Task: "desk", Recorded: "sha256:a", Replayed: "sha256:b"}}}}, []string{"It differs.", "the ruling of policy on the call for task", ">sha256:a</bdi> was recorded", "gives <bdi class=\"theirs\">sha256:b"}, []string{"The same"}},
		{"none", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Decisions: 1, Broken: []replay.BrokenReplay{{Recorded: "sha256:a"}}}}, []string{"It differs.", "the tools of the task for task", "the replay gives no decision"}, []string{"The same"}},
		{"half known", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Decisions: 2, Replayed: 1, NotReplayed: []replay.NotReplayed{{Why: gone, Of: "call", Decisions: 1}}}}, []string{"The same, as far as it is known.", "1 of 2 decisions came out", gone}, []string{"differs"}},
		{"not known", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{Decisions: 1, NotReplayed: []replay.NotReplayed{{Why: gone, Decisions: 1}}}}, []string{"It is not known.", "Not made again: the tools of the task: ", gone}, []string{"The same", "differs"}},
		{"nothing", whatif.Comparison{State: whatif.Done, Result: &replay.Diff{}}, []string{"It is not known."}, []string{"The same"}},
		{"running", whatif.Comparison{State: whatif.Running, Looked: 1, Of: 2}, []string{"1 of 2 so far", `href="/receipts/n1/5?replay=c1&amp;tenant=acme#replay"`}, []string{"The same"}},
		{"failed", whatif.Comparison{State: whatif.Failed, Why: "too <big>"}, []string{"The replay has failed", "too &lt;big&gt;"}, []string{"The same"}},
		{"dropped", access.ProblemOf(http.StatusNotFound, &switchboard.Error{Text: "results are kept for ten minutes"}), []string{"results are kept for ten minutes", ">Replay</button>"}, []string{"The same"}},
	} {
		d.api = route(map[string]any{"/v1/receipt": receiptOf(t, "acme"), "/v1/policy-diffs/c1": tt.run})
		w := d.ask("GET", "/receipts/n1/5?tenant=acme&replay=c1", host, "", cookie...)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d", tt.name, w.Code)
		}
		_, shown, _ := strings.Cut(w.Body.String(), `<h2 id="replay">`)
		shown, _, _ = strings.Cut(shown, "</section>")
		for _, want := range tt.want {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: the view lacks %q:\n%s", tt.name, want, shown)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(shown, not) {
				t.Errorf("%s: the view says %q:\n%s", tt.name, not, shown)
			}
		}
	}
}

func TestTheFormOfAReplayIsForThoseWhoMayStartOne(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	var bodies []string
	answers := route(map[string]any{
		"/v1/receipt": receiptOf(t, "acme"), "POST /v1/policy-diffs": whatif.Comparison{ID: "c1", State: whatif.Running},
		"/v1/policy-diffs/c1": whatif.Comparison{ID: "c1", State: whatif.Done, Result: &replay.Diff{Decisions: 1, Replayed: 1}},
	})
	d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, _ := io.ReadAll(r.Body)
			bodies = append(bodies, string(body))
		}
		answers.ServeHTTP(w, r)
	})
	status, _, next := d.send(t, cookie, "/receipts/n1/5", "act", "replay", "at", "tenant=acme")
	if status != http.StatusSeeOther || next != "/receipts/n1/5?replay=c1&tenant=acme#replay" || !slices.Equal(bodies, []string{`{"receipt":"n1/5"}`}) {
		t.Errorf("the form leads with %d to %s, and sends %q", status, next, bodies)
	}
	if want := []string{"ann POST /v1/policy-diffs?tenant=acme", "ann GET /v1/policy-diffs/c1?tenant=acme"}; !slices.Equal(d.asked, want) {
		t.Errorf("the API is asked %q, want %q", d.asked, want)
	}
	d.row.Operator, d.row.Tenant = false, "acme"
	for office, want := range map[switchboard.Office]bool{switchboard.OfficeAuthor: true, switchboard.OfficeAdmin: true, switchboard.OfficeViewer: false, switchboard.OfficeApprover: false} {
		d.row.Offices = []switchboard.Office{office}
		if page := d.ask("GET", "/receipts/n1/5?tenant=acme", host, "", cookie...).Body.String(); strings.Contains(page, `value="replay"`) != want {
			t.Errorf("%s: the form is there or not, want %v:\n%s", office, want, page)
		}
	}
}

func TestAVerificationGoesOnWhereItHasEndedAndTakesCheckpoints(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	mark := receipt.Checkpoint{V: 1, Node: "n1", Seq: 7, Digest: "sha256:a", Time: noon, Key: base64.RawURLEncoding.EncodeToString(public)}
	var sent []string
	d.api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			_ = json.NewEncoder(w).Encode(map[string]any{"receipts": []any{}, "looked_back_to": noon, "complete": true})
			return
		}
		body, _ := io.ReadAll(r.Body)
		sent = append(sent, string(body))
		part := receipt.VerifiedPart{Looked: 10 * len(sent), Of: 70, Next: "at-" + string(rune('0'+len(sent)))}
		if len(sent) == 1 {
			part.Chains = []receipt.ChainReport{{Node: "n1", First: 1, Last: 9, Checked: 9, Checkpoints: 1}}
		}
		if len(sent) == 7 {
			part.Next, part.Chains = "", []receipt.ChainReport{{Node: "n2", Checked: 3, Fault: &receipt.ChainFault{Seq: 4, Rule: receipt.RuleChain, Why: "edited"}}}
		}
		_ = json.NewEncoder(w).Encode(part)
	})
	if status, page, _ := d.send(t, cookie, "/receipts", "act", "verify", "checkpoints", string(mark.Line())); status != http.StatusBadRequest || !strings.Contains(page, "its signature does not match its content") || !strings.Contains(page, "sha256:a") || len(sent) > 0 {
		t.Errorf("a checkpoint that is none: %d %q %s", status, sent, page)
	}
	status, page, _ := d.send(t, cookie, "/receipts", "act", "verify")
	for _, want := range []string{"No fault so far: 50 of 70 entries are checked", `<progress max="70" value="50">`, `name="after" value="at-5"`, `name="before" value="1"`, `name="fit" value="1"`, "Go on"} {
		if status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("after the first form, the view lacks %q: %d %s", want, status, page)
		}
	}
	status, page, _ = d.send(t, cookie, "/receipts", "act", "verify", "after", "at-5", "before", "1", "fit", "1")
	for _, want := range []string{"Something was changed", "entry 4: chain: edited", "1 chain was checked before"} {
		if status != http.StatusOK || !strings.Contains(page, want) {
			t.Errorf("after the second form, the view lacks %q: %d %s", want, status, page)
		}
	}
	if len(sent) != 7 || sent[0] != "{}" || sent[5] != `{"after":"at-5"}` {
		t.Errorf("the API gets %q", sent)
	}
	line := url.QueryEscape(`{"seq":7}`)
	if page := d.ask("GET", "/receipts?checkpoint="+line, host, "", cookie...).Body.String(); !strings.Contains(page, "{&#34;seq&#34;:7}</textarea>") || !strings.Contains(page, "<details open>") {
		t.Errorf("the address of a checkpoint does not fill the form:\n%s", page)
	}
}
