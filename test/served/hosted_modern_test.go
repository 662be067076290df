package served_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// mcpMethod matches the method in the head of a request to a modern server.
var mcpMethod = regexp.MustCompile(`(?mi)^Mcp-Method: (\S+)`)

// serveModernPeople starts a server of the modern era with one gateway in front of it. The catalog, ann and bob are connected.
func serveModernPeople(t *testing.T) (h *rig.Hosted, g *rig.Gateway, open func(who string, modern bool) *rig.HTTPSession) {
	t.Helper()
	a := rig.ServeAuthority(t, time.Hour)
	h = rig.ServeModernHostedBy(t, a)
	text, keys := archiveOfPeople(t, h.Resource, "cache: {ttl: 10m}\n")
	dir := rig.LayOut(t, "\n-- overlays/tracker.yaml --\nserver: tracker\ntools: {statement: {deterministic: true}}"+text)
	g = rig.ServeAtOnce(t, dir)
	c := beginConnect(t, dir, "tracker")
	fmt.Fprintln(c.in, a.Consent(t, c.address, "ops-of-the-desk"))
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	open = func(who string, modern bool) *rig.HTTPSession {
		return g.OpenAtOnce(t, "/mcp", modern, "Authorization", "Bearer "+keys[who])
	}
	ada := openAdmin(t, g, keys["ada"])
	for who, account := range map[string]string{"ann": "ann-of-the-lake", "bob": "bob-of-the-hill"} {
		link, s := "", open(who, true)
		rig.Eventually(t, "the call of "+who+" is answered with a link", func() string {
			m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
			link = ticketLink.FindString(m.Text())
			return rig.ReasonUnless(link != "", string(m.Raw))
		})
		if status, page := ada.get(a.Consent(t, ada.begin(link), account).String()); status != http.StatusOK {
			t.Fatalf("%s is not connected: %d %s", who, status, page)
		}
	}
	return h, g, open
}

// CD-10 at a server of the modern era: all callers share one connection, so each request has a token of its own.
func TestCD10ARequestOverASharedConnectionCarriesTheTokenOfItsOwnPerson(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	h, _, open := serveModernPeople(t)
	before := len(h.Requests())
	const rounds = 20
	var work sync.WaitGroup
	for _, who := range []string{"ann", "bob"} {
		account := map[string]string{"ann": "ann-of-the-lake", "bob": "bob-of-the-hill"}[who]
		for _, modern := range []bool{false, true} {
			s := open(who, modern)
			work.Go(func() {
				check := func(what, method, params, want string) {
					body, extra := s.Request(method, params)
					m, _, err := s.Exchange(body, extra)
					if err != nil || m.Error != nil || !strings.Contains(string(m.Raw), want) {
						t.Errorf("%s, modern %v: %s: %v %s", who, modern, what, err, m.Raw)
					}
				}
				for i := range rounds {
					id := 1000 + i
					check("a call", "tools/call", fmt.Sprintf(`{"name":"expect","arguments":{"as":%q,"id":%d}}`, who, id), fmt.Sprintf("%s %d", account, id))
					check("a result that is given again", "tools/call", fmt.Sprintf(`{"name":"statement","arguments":{"month":%d}}`, i%3), fmt.Sprintf("%s %d", account, i%3))
					check("a resource", "resources/read", `{"uri":"me://profile"}`, account)
				}
				check("the list", "tools/list", "{}", "for ops-of-the-desk")
				check("the list of resources", "resources/list", "{}", "for ops-of-the-desk")
			})
		}
	}
	work.Wait()
	for _, m := range h.Mixed() {
		t.Error(m)
	}
	executed := map[string]int{} // person and method
	for _, q := range h.Requests()[before:] {
		method := mcpMethod.FindStringSubmatch(q.Whole)
		if method == nil || q.Status != http.StatusOK {
			t.Errorf("%s was answered with %d: %.300s", q.Method, q.Status, q.Whole)
			continue
		}
		person, what := h.PersonOf(&q), method[1]
		if own := strings.HasPrefix(person, "ops"); own == (what == "tools/call" || what == "resources/read") {
			t.Errorf("%s carries the token of %q", what, person)
		}
		_, body, _ := strings.Cut(q.Whole, "\r\n\r\n")
		var m struct{ Params struct{ Name string } }
		_ = json.Unmarshal([]byte(body), &m)
		executed[strings.TrimSpace(person+" "+what+" "+m.Params.Name)]++
	}
	for _, person := range []string{"ann-of-the-lake", "bob-of-the-hill"} {
		if n := executed[person+" tools/call expect"]; n != 2*rounds {
			t.Errorf("the server has executed %d calls of %s", n, person)
		}
		if n := executed[person+" tools/call statement"]; n < 3 || n >= 2*rounds { // the cache does without a store that is slow
			t.Errorf("the server has executed %d statements of %s, of %d; the rest should come from the cache", n, person, 2*rounds)
		}
	}
}

// What a disconnected person still hears would be heard with a token that is revoked. At a modern server each subscription is a request that goes on, over
// the connection that all persons share.
func TestTheOpenStreamsOfAPersonEndWithThatPersonsConnection(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	h, g, open := serveModernPeople(t)
	ann, bob := hear(t, open("ann", true)), hear(t, open("bob", true))
	streams := func(ofAnn, ofBob int) func() string {
		return func() string {
			a, b := h.StreamsOf("ann-of-the-lake"), h.StreamsOf("bob-of-the-hill")
			return rig.ReasonUnless(a == ofAnn && b == ofBob, fmt.Sprintf("ann has %d, bob %d", a, b))
		}
	}
	rig.Eventually(t, "each has a stream", streams(1, 1))
	touch := func(account string, s *heard) {
		t.Helper()
		was := s.updates()
		rig.Eventually(t, "an update comes", func() string {
			h.Touch(t, account)
			return rig.ReasonUnless(s.updates() > was, s.String())
		})
	}
	touch("ann-of-the-lake", ann)
	touch("bob-of-the-hill", bob)
	if _, errs, code := rig.Command(t, g.Dir, "server", "disconnect", "tracker", "--for", "acme/ann"); code != 0 {
		t.Fatal(errs)
	}
	rig.Eventually(t, "ann's stream ends, and bob's stays", streams(0, 1))
	touch("bob-of-the-hill", bob)
	if strings.Contains(ann.String(), "bob-of") || strings.Contains(bob.String(), "ann-of") {
		t.Errorf("ann has heard %s\nbob has heard %s", ann, bob)
	}
}
