package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// connectionReceipts returns the receipts about connections, the oldest first, each as one line.
func connectionReceipts(t *testing.T, dir string) (all []string) {
	t.Helper()
	out, errs, code := rig.Command(t, dir, "receipts", "list", "--kind", "admin", "--limit", "5000", "--json")
	if code != 0 {
		t.Fatal(errs)
	}
	type entry struct {
		Entry struct {
			Receipt struct {
				Time                                        time.Time
				Tenant, Method, Server, Outcome, Code, Note string
				Principal                                   struct{ ID, Auth string }
			}
		}
	}
	var entries []entry
	for line := range strings.Lines(out) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		entries = append(entries, e)
	}
	slices.SortStableFunc(entries, func(a, b entry) int { return a.Entry.Receipt.Time.Compare(b.Entry.Receipt.Time) })
	for _, e := range entries {
		if r := e.Entry.Receipt; strings.Contains(r.Method, "connect") {
			all = append(all, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s by %s %s: %s", r.Method, r.Server, r.Outcome, r.Code, r.Principal.ID, r.Principal.Auth, r.Note)), " "))
		}
	}
	return all
}

// Design part 11: a connection has a receipt. Whoever makes or ends it is in it, and also why Switchboard itself ended it; no token and no ticket is.
func TestEveryConnectionThatIsMadeOrEndedHasReceipts(t *testing.T) {
	t.Parallel()
	a := rig.ServeAuthority(t, time.Hour)
	h := rig.ServeHostedBy(t, a)
	idp := newIssuer(t)
	text, keys := archiveOfPeople(t, h.Resource, fmt.Sprintf("issuers: {idp: {url: %q, sign_in: {id: sb}}}\n", idp.URL))
	text = strings.Replace(text, `["*/*"]`, `["tracker/*"]`, 1)
	text = strings.Replace(text, "offices: [admin]}", "offices: [admin, viewer], issuers: [idp]}", 1)
	text = strings.Replace(text, "offices: [admin]}]", "offices: [admin]}, {issuer: idp, claim: team, value: platform, offices: [viewer], tasks: [all]}]", 1)
	dir := rig.LayOut(t, strings.Replace(text, "servers:\n", fmt.Sprintf("servers:\n  robot: {transport: http, url: %q, credential: {client: {id: robot-client, secret: \"${file:robot}\", issuer: %q}}}\n", rig.ServeHostedBy(t, a).Resource, a.URL), 1)+"-- robot --\nthe secret of the robot\n")
	p := &persons{Replicas: &rig.Replicas{Dir: dir}, a: a, h: h, keys: keys}
	g := rig.ServeAtOnce(t, dir)
	scopes := "scopes files:read offline_access"
	said := "provider " + a.URL + "; " + scopes
	want := []string{"connect robot ok by : for Switchboard as a service; provider " + a.URL + "; " + scopes}
	check := func(more ...string) {
		t.Helper()
		want = append(want, more...)
		rig.Eventually(t, "the receipts are written", func() string {
			got := connectionReceipts(t, dir)
			return rig.ReasonUnless(slices.Equal(got, want), "got\n"+strings.Join(got, "\n")+"\nwant\n"+strings.Join(want, "\n"))
		})
	}
	check()
	p.connectCatalog(t)
	const forOps = " by local data_folder: for Switchboard's own requests, by the operator"
	check("connect tracker"+forOps+"; "+said, "connect tracker ok"+forOps+"; "+said)
	p.connectAt(t, g, "ann", "ann-of-the-lake", nil)
	const byAda = " by ada person_key: for acme/ann; "
	check("connect tracker"+byAda+said, "connect tracker ok"+byAda+said)
	p.disconnect(t, "ann")
	const byOps = " by local data_folder: for acme/ann"
	check("disconnect tracker"+byOps, "disconnect tracker ok"+byOps+"; its tokens are revoked")

	p.connectAt(t, g, "ann", "ann-of-the-lake", func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") })
	check("connect tracker"+byAda+said, "connect tracker refused"+byAda+said)

	for why, answer := range map[string]func(http.ResponseWriter, url.Values) bool{
		"its provider has refused to renew it": func(w http.ResponseWriter, f url.Values) bool {
			if f.Get("grant_type") == "refresh_token" {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"error":"invalid_grant"}`))
			}
			return f.Get("grant_type") == "refresh_token"
		},
		"the answer of a renewal is lost": func(_ http.ResponseWriter, f url.Values) bool { panicUnlessOther(f); return false },
	} {
		p.connectAt(t, g, "ann", "ann-of-the-lake", nil)
		check("connect tracker"+byAda+said, "connect tracker ok"+byAda+said)
		a.Answer(answer)
		for _, token := range a.TokensOf("ann-of-the-lake") {
			h.Refuse("Bearer " + token)
		}
		s := g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+keys["ann"])
		for range 3 { // it is lost once
			if m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`); rig.Code(m) != "SB-AUTH-005" {
				t.Errorf("%s: %s", why, m.Raw)
			}
		}
		check("end_connection tracker ok by : for acme/ann; " + why)
		a.Answer(nil)
	}
	p.connectAt(t, g, "ann", "ann-of-the-lake", nil)
	check("connect tracker"+byAda+said, "connect tracker ok"+byAda+said)
	g.AskAdmin(t, keys["ada"], http.MethodPost, "/v1/keys/"+hashOf(t, g, "agent", "ann")+"/revoke", "{}")
	check("end_connection tracker ok by : for acme/ann; its key was revoked by ada; its tokens are revoked")

	person := idp.signIn(t, g) // with a connection of its own, until it is blocked
	_, answer := person.try(`{"tool":"whoami"}`)
	link := ticketLink.FindString(answer)
	if link == "" {
		t.Fatalf("there is no link: %s", answer)
	}
	if status, page := person.get(p.a.Consent(t, person.begin(person.base+link[strings.Index(link, "/connect/"):]), "ann-of-the-tower").String()); status != http.StatusOK {
		t.Fatalf("the consent ends with %d %s", status, page)
	}
	const byPerson = " by idp/ann sign_in: for acme/idp/ann@page; "
	check("connect tracker"+byPerson+said, "connect tracker ok"+byPerson+said)
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/blocks", `{"issuer":"idp","subject":"ann"}`); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	check("end_connection tracker ok by : for acme/idp/ann@page; the person was blocked by local; its tokens are revoked")
	if out, errs, code := rig.Command(t, dir, "receipts", "verify"); code != 0 {
		t.Errorf("verify: %s%s", out, errs)
	}
}

// A revoked key ends the connections of its caller: the row is deleted, the tokens are revoked at the provider, and no replica uses them. The connection of a key
// that has a successor stays, and so do those of others.
func TestARevokedKeyEndsTheConnectionsOfItsCallerAtAllReplicas(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	p := servePeople(t)
	p.connect(t, p.All[0], "ann", "ann-of-the-lake")
	p.connect(t, p.All[1], "bob", "bob-of-the-hill")
	for _, g := range p.All {
		for who, account := range map[string]string{"ann": "ann-of-the-lake", "bob": "bob-of-the-hill"} {
			if got := askWho(t, g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+p.keys[who])); got != account {
				t.Fatalf("%s is %q", who, got)
			}
		}
	}
	// The provider ends the access tokens of a refresh token with it: RFC 7009 section 2.1.
	tokens := slices.DeleteFunc(p.a.TokensOf("ann-of-the-lake"), func(token string) bool { return !strings.HasPrefix(token, "rt-") })
	if a := p.All[2].AskAdmin(t, p.keys["ada"], http.MethodPost, "/v1/keys/"+hashOf(t, p.All[2], "agent", "ann")+"/revoke", "{}"); a.Status != http.StatusOK {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	rig.Eventually(t, "ann's tokens are revoked at the provider", func() string {
		revoked := p.a.Revoked()
		for _, token := range tokens {
			if !slices.Contains(revoked, token) {
				return fmt.Sprintf("%d of %d tokens are revoked", len(revoked), len(tokens))
			}
		}
		return ""
	})
	ends := func() (n int) {
		for _, line := range connectionReceipts(t, p.Dir) {
			n += strings.Count(line, "end_connection tracker ok by : for acme/ann; its key was revoked by ada; its tokens are revoked")
		}
		return n
	}
	rig.Eventually(t, "the end has a receipt", func() string { return rig.ReasonUnless(ends() > 0, "none yet") })
	if out, errs, _ := rig.Command(t, p.Dir, "server", "disconnect", "tracker", "--for", "acme/ann"); !strings.Contains(out, "has no connection") {
		t.Errorf("ann's connection is still there: %s%s", out, errs)
	}
	for _, g := range p.All {
		if got := askWho(t, g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+p.keys["bob"])); got != "bob-of-the-hill" {
			t.Errorf("bob is %q", got)
		}
	}
	if n := ends(); n != 1 || len(tokens) != 1 || len(p.a.Revoked()) != len(tokens) {
		t.Errorf("%d receipts of the end, and %d revoked tokens of %d", n, len(p.a.Revoked()), len(tokens))
	}
}
