package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// digestOne and digestTwo are the digests of the admitted definition and of the offered one.
const (
	digestOne = "d1:1111111111111111111111111111111111111111111111111111111111111111"
	digestTwo = "d1:2222222222222222222222222222222222222222222222222222222222222222"
)

// frozenPin is a tool of a server that offers another description.
func frozenPin() pins.PinDetail {
	return pins.PinDetail{
		PinRow:  pins.PinRow{Server: "mail", Kind: switchboard.PinTool, Name: "send", State: switchboard.LifeActive, Frozen: true, Why: "its server offers another definition", Digest: digestOne, PinChange: pins.PinChange{Offered: digestTwo, Class: "words"}, NeedsPerson: true, Since: noon},
		Differs: []string{"description"},
		Diff:    "diff admitted offered\n--- admitted\n+++ offered\n@@ -1,3 +1,3 @@\n {\n-  \"description\": \"Sends a mail.\",\n+  \"description\": \"Sends a mail\\u{202e} \\n to \\\"all\\\".\",\n   \"name\": \"send\"\n",
	}
}

// pinsScene shows the list of pins, and single ones.
func pinsScene(t *testing.T) hostileScene {
	d := newDesk(t, "")
	cookie := d.signIn(t)
	addresses := []string{"/pins", "/pins/one?server=mail&kind=tool&name=send", "/pins/one?server=mail&kind=prompt&name=send"}
	return hostileScene{addresses, hostileTexts(t, lineBytes), func(t *testing.T, address string, texts ...string) string {
		t.Helper()
		next := inTurn(texts)
		row := func(s switchboard.LifeState, frozen bool) pins.PinRow {
			return pins.PinRow{
				Server: switchboard.ServerID(next()), Kind: switchboard.PinTool, Name: next(), State: s, Frozen: frozen, Why: next(), Digest: digestOne, PinChange: pins.PinChange{Class: "words", Finding: next(), Offered: map[bool]string{true: digestTwo}[frozen]}, Successor: next(), Since: noon, By: next(), Gone: noon,
				NeedsPerson: frozen,
			}
		}
		one := pins.PinDetail{PinRow: row(switchboard.LifeSuspended, strings.Contains(address, "tool")), Differs: []string{next(), next()}, Text: "{\n  " + next() + "\n}\n"}
		one.Findings = []pins.PinFinding{{Rule: next(), Means: next(), Blocks: true, Where: next(), Text: next()}}
		one.Diff = "--- a\n+++ b\n@@ -1 +1 @@\n-" + next() + "\n+" + next() + "\n"
		d.api = route(map[string]any{
			"/v1/pins":     map[string]any{"pins": []pins.PinRow{row(switchboard.LifeActive, true), row(switchboard.LifeDeprecated, false), row(switchboard.LifeActive, false)}, "next": next(), "total": 3, "needs_person": 1},
			"/v1/pins/one": one,
		})
		return d.open(t, address, cookie)
	}, ""}
}

func TestAPinIsAcceptedByTheDigestThatTheViewShows(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	accepted := frozenPin()
	accepted.Frozen, accepted.Offered, accepted.Digest, accepted.Class, accepted.Diff, accepted.By, accepted.Text = false, "", digestTwo, "", "", "ann", "{\n  \"name\": \"send\"\n}\n"
	present := frozenPin()
	answers := map[string]any{"/v1/pins/one": func() any { return present }, "POST /v1/pins/accept": accepted, "POST /v1/pins/suspend": access.ProblemOf(http.StatusServiceUnavailable, &switchboard.Error{Code: switchboard.CodeStoreUnavailable, Text: "the store is away"})}
	d.api = route(answers)
	const address, query = "/pins/one", "server=mail&kind=tool&name=send"
	page := d.open(t, address+"?"+query+"&tenant=acme", cookie)
	for _, want := range []string{
		"is frozen: clients keep the admitted definition", `<del>-  &#34;description&#34;: &#34;Sends a mail.&#34;,</del>`, `<ins>&#43;  &#34;description&#34;: &#34;Sends a mail\u{202e} \n to \&#34;all\&#34;.&#34;,</ins>`,
		`name="digest" value="` + digestTwo + `"`, "Only words differ", "switchboard pins diff mail/send", `href="/servers/mail?tenant=acme"`, `aria-current="page">Pins`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the view lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "sse-connect") {
		t.Error("the view changes while a person looks at it")
	}
	if got := d.asked[len(d.asked)-1]; got != "ann GET /v1/pins/one?kind=tool&name=send&server=mail" {
		t.Errorf("the API is asked %s", got)
	}
	at := []string{"at", query}

	// The server offers something else meanwhile.
	answers["POST /v1/pins/accept"] = access.ProblemOf(http.StatusPreconditionFailed, &switchboard.Error{Code: switchboard.CodeChangedMeanwhile, Text: "the definition is not the one that was looked at; nothing was let in"})
	present.Offered, present.Class = strings.ReplaceAll(digestTwo, "2", "3"), "narrower"
	status, page, _ := d.send(t, cookie, address, append(at, "act", "accept", "digest", digestTwo, "reason", "read <it>")...)
	if status != http.StatusPreconditionFailed || !strings.Contains(page, "Below is what the server offers now") || !strings.Contains(page, `value="read &lt;it&gt;"`) || !strings.Contains(page, `name="digest" value="`+present.Offered+`"`) || strings.Contains(page, digestTwo) {
		t.Errorf("another definition: %d %s", status, page)
	}
	answers["POST /v1/pins/accept"] = accepted
	status, page, _ = d.send(t, cookie, address, append(at, "act", "accept", "digest", digestTwo, "reason", "read")...)
	if status != http.StatusOK || d.asked[0] != "ann POST /v1/pins/accept?kind=tool&name=send&server=mail" || !strings.Contains(page, "is active: tasks can get it, by <bdi") {
		t.Errorf("the form is answered with %d, and asks %q:\n%s", status, d.asked, page)
	}
	status, page, _ = d.send(t, cookie, address, append(at, "act", "suspend", "reason", "it lies")...)
	if status != http.StatusServiceUnavailable || !strings.Contains(page, "the store is away") || strings.Count(page, `value="it lies"`) != 1 {
		t.Errorf("a refusal is %d, and does not keep what was typed:\n%s", status, page)
	}
}

// A person says yes only to a definition that the view has shown to the end.
func TestAPinIsOfferedTheDecisionsThatFitItsState(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	text := "{\n  \"name\": \"send\"\n}\n"
	plain := func(s switchboard.LifeState, by string) pins.PinDetail {
		return pins.PinDetail{PinRow: pins.PinRow{Server: "mail", Kind: switchboard.PinTool, Name: "send", State: s, Digest: digestOne, By: by}, Text: text}
	}
	keptOut := func(by string) pins.PinDetail {
		d := plain(switchboard.LifeNew, by)
		d.KeptOut = true
		return d
	}
	long, wide, unknown, prompt := frozenPin(), frozenPin(), frozenPin(), plain(switchboard.LifeActive, "")
	long.Diff += strings.Repeat("+  | more\n", 1200)
	wide.Diff += "+" + strings.Repeat("x", 1200) + "\n"
	unknown.Diff = ""
	prompt.Kind = switchboard.PinPrompt
	for _, tt := range []struct {
		what string
		is   pins.PinDetail
		want string // the acts, in order
	}{
		{"seen first, and active", plain(switchboard.LifeActive, ""), "accept suspend retire deprecate"},
		{"let in by a person", plain(switchboard.LifeActive, "ann"), "suspend retire deprecate"},
		{"frozen", frozenPin(), "accept suspend retire deprecate"},
		{"frozen, and longer than a view", long, "suspend retire deprecate"},
		{"frozen, with a line that is longer than a view", wide, "suspend retire deprecate"},
		{"frozen, and not kept", unknown, "suspend retire deprecate"},
		{"on trial", plain(switchboard.LifeTesting, ""), "accept suspend retire"},
		{"suspended", plain(switchboard.LifeSuspended, "ann"), "accept retire"},
		{"retired", plain(switchboard.LifeRetired, "ann"), "accept"},
		{"deprecated", plain(switchboard.LifeDeprecated, "ann"), "accept suspend retire deprecate"},
		{"kept out by the operator's rules", keptOut(""), "accept suspend retire"},
		{"kept out, and let in by a person", keptOut("ann"), "suspend retire"},
		{"a prompt", prompt, "accept suspend retire"},
	} {
		d.api = route(map[string]any{"/v1/pins/one": tt.is})
		page := d.open(t, "/pins/one?server=mail&kind=tool&name=send", cookie)
		var acts []string
		for _, part := range strings.Split(page, `name="act" value="`)[1:] {
			act, _, _ := strings.Cut(part, `"`)
			acts = append(acts, act)
		}
		if got := strings.Join(acts, " "); got != tt.want {
			t.Errorf("%s: the view has the forms %q, want %q", tt.what, got, tt.want)
		}
		if tt.is.Diff == long.Diff && !strings.Contains(page, "205 lines more are not shown") {
			t.Errorf("%s: the view does not say what is missing:\n%s", tt.what, page)
		}
	}
}

func TestTheListOfPinsIsFilteredAndSaysWhatNeedsAPerson(t *testing.T) {
	t.Parallel()
	d := newDesk(t, "")
	cookie := d.signIn(t)
	frozen := frozenPin().PinRow
	template := pins.PinRow{Server: "files", Kind: switchboard.PinTemplate, Name: "file:///{path}?a=b&c", State: switchboard.LifeActive, Digest: digestOne}
	d.api = route(map[string]any{"/v1/pins": map[string]any{"pins": []pins.PinRow{frozen, template}, "next": "1 files x", "total": 1234, "needs_person": 1}})
	page := d.open(t, "/pins?tenant=acme&server=+mail+&state=frozen&kind=&wrong=1", cookie)
	for _, want := range []string{
		"1,234 definitions that fit", "1 of them needs a person", `href="/pins/one?kind=tool&amp;name=send&amp;server=mail&amp;tenant=acme"`, "Look at it, and decide",
		`href="/pins/one?` + strings.ReplaceAll(url.Values{"kind": {"template"}, "name": {template.Name}, "server": {"files"}, "tenant": {"acme"}}.Encode(), "&", "&amp;") + `"`,
		"first sight", "<option selected>frozen</option>", "switchboard pins list --server mail --state frozen", "after=1&#43;files&#43;x",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the list lacks %q:\n%s", want, page)
		}
	}
	if got := d.asked[len(d.asked)-1]; got != "ann GET /v1/pins?server=mail&state=frozen" {
		t.Errorf("the API is asked %s", got)
	}
	d.api = route(map[string]any{"/v1/pins": map[string]any{"pins": []pins.PinRow{}}})
	for path, want := range map[string]string{"/pins": "No server has offered anything yet", "/pins?server=x": "No definition fits"} {
		if page := d.open(t, path, cookie); !strings.Contains(page, want) || strings.Contains(page, "<table") {
			t.Errorf("%s lacks %q:\n%s", path, want, page)
		}
	}

	// PG-03: an officer of a tenant finds no link, and gets the API's refusal.
	d.row.Operator, d.row.Tenant, d.row.Offices = false, "acme", []switchboard.Office{switchboard.OfficeAdmin}
	d.api = answer(http.StatusForbidden, "application/problem+json", fmt.Sprintf(`{"status":403,"code":%q,"detail":"this needs the office operator"}`, switchboard.CodeNotAuthorized))
	if w := d.ask("GET", "/pins", host, "", cookie...); w.Code != http.StatusForbidden || strings.Contains(w.Body.String(), `href="/pins`) || strings.Contains(w.Body.String(), `name="act"`) {
		t.Errorf("an admin of a tenant: %d %s", w.Code, w.Body)
	}
}
