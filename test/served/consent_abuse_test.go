package served_test

import (
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/rig"
)

// CD-08 on the served path: a link begins one consent, for an admin of its tenant, after a button was pressed. Only the browser that was led to the provider
// ends it, once, with the answer to its own question.
func TestCD08ALinkIsOfUseOnceInOneBrowser(t *testing.T) {
	t.Parallel()
	a := rig.ServeAuthority(t, time.Hour)
	h := rig.ServeHostedBy(t, a)
	dir, keys := ofEachPerson(t, h)
	g := rig.ServeAtOnce(t, dir)
	c := beginConnect(t, dir, "tracker")
	if _, err := c.in.Write([]byte(a.Consent(t, c.address, "ops").String() + "\n")); err != nil {
		t.Fatal(err)
	}
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	asked := a.Asked()
	unchanged := func(what string) {
		t.Helper()
		if got := a.Asked(); got != asked {
			t.Errorf("%s: the provider was asked for a token", what)
			asked = got
		}
	}
	link := func(who string) (found string) {
		t.Helper()
		s := g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+keys[who])
		rig.Eventually(t, "the call of "+who+" is answered with a link", func() string {
			m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
			found = ticketLink.FindString(m.Text())
			return rig.ReasonUnless(rig.Code(m) == "SB-AUTH-005" && found != "", m.Text())
		})
		return found
	}
	press := func(b *adminBrowser, link, token string) (status int, page string) {
		t.Helper()
		return b.post(strings.TrimPrefix(link, b.base), url.Values{"token": {token}})
	}
	tokenAt := func(b *adminBrowser, link string) string {
		t.Helper()
		_, page := b.get(link)
		if found := formToken.FindStringSubmatch(page); found != nil {
			return found[1]
		}
		return ""
	}
	ada, second, uma := openAdmin(t, g, keys["ada"]), openAdmin(t, g, keys["ada"]), openAdmin(t, g, keys["uma"])
	ticket := link("ann")

	for _, b := range []*adminBrowser{ada, uma, openAdmin(t, g, "")} { // prefetched, by browsers and mail programs
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for _, name := range []string{"Purpose", "Sec-Purpose", "X-Moz"} {
				req, err := http.NewRequest(method, ticket, nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set(name, "prefetch")
				resp, err := b.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				_ = resp.Body.Close()
			}
		}
	}
	if status, page := press(uma, ticket, tokenAt(uma, ticket)); status != http.StatusForbidden {
		t.Errorf("an admin of another tenant presses the button: %d %s", status, page)
	}
	for what, token := range map[string]string{"without the form's token": "", "with a token of another session": tokenAt(second, ticket), "with the ticket": ticket} {
		if status, page := press(ada, ticket, token); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, status, page)
		}
	}
	unchanged("before the button")

	tokens := []string{tokenAt(ada, ticket), tokenAt(second, ticket)}
	var led [2]string
	var both sync.WaitGroup
	for i, b := range []*adminBrowser{ada, second} {
		both.Go(func() {
			if _, page := press(b, ticket, tokens[i]); leadsOn.MatchString(page) {
				led[i] = leadsOn.FindStringSubmatch(page)[1]
			}
		})
	}
	both.Wait()
	if (led[0] == "") == (led[1] == "") {
		t.Fatalf("two browsers at once are led to %q", led)
	}
	winner, loser := ada, second
	if led[0] == "" {
		winner, loser = second, ada
	}
	address := html.UnescapeString(led[0] + led[1])
	if status, _ := winner.get(ticket); status != http.StatusUnauthorized {
		t.Errorf("a used link shows %d", status)
	}
	back := a.Consent(t, address, "ann-of-the-lake").String()
	for what, b := range map[string]*adminBrowser{"the other browser": loser, "a stranger": openAdmin(t, g, ""), "another tenant's admin": uma} {
		if status, page := b.get(back); status == http.StatusOK {
			t.Errorf("%s brings the answer: %s", what, page)
		}
	}
	unchanged("an answer in another browser")
	at, err := url.Parse(back)
	if err != nil {
		t.Fatal(err)
	}
	cookies := winner.Jar.Cookies(at) // as they are before the end
	if status, page := winner.get(back); status != http.StatusOK {
		t.Errorf("the right browser: %d %s", status, page)
	}
	asked = a.Asked()
	for _, c := range cookies {
		c.Path = "/" // as it was set
	}
	winner.Jar.SetCookies(at, cookies)
	if status, page := winner.get(back); status == http.StatusOK {
		t.Errorf("a cookie that was used: %s", page)
	}
	unchanged("a cookie that was used")
	if got := askWho(t, g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+keys["ann"])); got != "ann-of-the-lake" {
		t.Errorf("ann is %q", got)
	}

	otherAnswer := a.Consent(t, loser.begin(link("bob")), "bob-of-the-hill").Query()
	for what, wrong := range map[string]struct {
		change func(url.Values)
		ends   bool // the attempt: the answer has its state
	}{
		"another state":                     {func(q url.Values) { q.Set("state", q.Get("state")+"x") }, false},
		"no state":                          {func(q url.Values) { q.Del("state") }, false},
		"two states":                        {func(q url.Values) { q.Add("state", q.Get("state")) }, false},
		"the answer of a consent elsewhere": {func(q url.Values) { q.Set("state", otherAnswer.Get("state")); q.Set("code", otherAnswer.Get("code")) }, false},
		"another issuer":                    {func(q url.Values) { q.Set("iss", "https://id.evil.example") }, true},
		"an issuer with a slash":            {func(q url.Values) { q.Set("iss", q.Get("iss")+"/") }, true},
		"no issuer":                         {func(q url.Values) { q.Del("iss") }, true},
		"an error in place of the answer":   {func(q url.Values) { q.Del("code"); q.Set("error", "access_denied") }, true},
	} {
		back := a.Consent(t, winner.begin(link("bob")), "bob-of-the-hill")
		q := back.Query()
		wrong.change(q)
		at := *back
		at.RawQuery = q.Encode()
		if status, page := winner.get(at.String()); status == http.StatusOK {
			t.Errorf("%s: %s", what, page)
		}
		unchanged(what)
		if !wrong.ends {
			continue
		}
		if status, page := winner.get(back.String()); status == http.StatusOK {
			t.Errorf("the right answer after %s: %s", what, page)
		}
		unchanged("the right answer after " + what)
	}

	// CD-09: a token that may do more than was asked for is not used.
	a.Answer(func(w http.ResponseWriter, _ url.Values) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"access_token":"wide","token_type":"Bearer","expires_in":3600,"refresh_token":"wide-too","scope":"files:read files:write offline_access"}`))
		return true
	})
	if status, page := winner.get(a.Consent(t, winner.begin(link("bob")), "bob-of-the-hill").String()); status == http.StatusOK {
		t.Errorf("a wider token: %s", page)
	}
	a.Answer(nil)
	link("bob") // he has no connection
	for _, q := range h.Requests() {
		if strings.Contains(q.Whole, "wide") {
			t.Errorf("the wider token was used: %s", q.Whole)
		}
	}
	noSecretShows(t, g, a, keys)
}

func TestTwoLinksThatAreOpenAtOnceInOneBrowserBothConnect(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	a := rig.ServeAuthority(t, time.Hour)
	h := rig.ServeHostedBy(t, a)
	dir, keys := ofEachPerson(t, h)
	g := rig.ServeAtOnce(t, dir)
	c := beginConnect(t, dir, "tracker")
	if _, err := c.in.Write([]byte(a.Consent(t, c.address, "ops").String() + "\n")); err != nil {
		t.Fatal(err)
	}
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	ada, back := openAdmin(t, g, keys["ada"]), map[string]string{}
	for _, who := range []string{"ann", "bob"} {
		link, s := "", g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+keys[who])
		rig.Eventually(t, "the call of "+who+" is answered with a link", func() string {
			m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
			link = ticketLink.FindString(m.Text())
			return rig.ReasonUnless(link != "", m.Text())
		})
		back[who] = a.Consent(t, ada.begin(link), who+"-at-the-provider").String()
	}
	for _, who := range []string{"ann", "bob"} {
		if status, page := ada.get(back[who]); status != http.StatusOK {
			t.Errorf("%s is not connected: %d %s", who, status, page)
		}
		if got := askWho(t, g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+keys[who])); got != who+"-at-the-provider" {
			t.Errorf("%s acts as %q", who, got)
		}
	}
}

// noSecretShows looks for what the provider has given out, and for the keys, in all that Switchboard has shown and kept (LK-02). The data folder may have
// them sealed.
func noSecretShows(t *testing.T, g *rig.Gateway, a *rig.Authority, keys map[string]string) {
	t.Helper()
	p := planted(a.Secrets())
	for id, key := range keys {
		p["key of "+id] = key
	}
	if len(p) < 35 {
		t.Errorf("only %d secrets were used", len(p))
	}
	searched := 0
	look := func(place, text string) {
		searched++
		p.nowhere(t, place, text)
	}
	look("the log", g.Logged())
	for _, path := range []string{"/metrics", "/v1/status", "/v1/servers", "/v1/tools", "/v1/keys", "/v1/receipts?limit=500"} {
		look(path, g.AskAdmin(t, "", http.MethodGet, path, "").Body)
	}
	for _, args := range []string{"receipts export", "receipts list --limit 5000 --json", "logs --lines 0", "server list", "status --json", "store export -"} {
		out, errs, _ := rig.Command(t, g.Dir, append([]string{"-v"}, strings.Fields(args)...)...)
		look(args, out+errs)
	}
	err := filepath.WalkDir(filepath.Join(g.Dir, ".switchboard"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		look(filepath.Base(path), string(text))
		return err
	})
	if err != nil || searched < 16 {
		t.Errorf("%d texts were searched: %v", searched, err)
	}
	if len(planted{"marker": "tracker"}.found(g.Logged())) == 0 {
		t.Error("what is no secret is not found in the log: the search does not work")
	}
}
