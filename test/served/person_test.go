package served_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// persons are two persons with keys of one tenant, at three replicas in front of one hosted server.
type persons struct {
	*rig.Replicas
	a    *rig.Authority
	h    *rig.Hosted
	keys map[string]string
}

// servePeople starts them. The catalog is connected.
func servePeople(t *testing.T) *persons {
	t.Helper()
	a := rig.ServeAuthority(t, time.Hour)
	h := rig.ServeHostedBy(t, a)
	text, keys := archiveOfPeople(t, h.Resource, `cache: {ttl: 10m}
start_deadline: 2s
vault: {key: "${file:vault}"}
`)
	text = "\n-- vault --\nwhat seals the tokens of all three of them\n-- overlays/tracker.yaml --\nserver: tracker\ntools: {statement: {deterministic: true}}" + text
	p := &persons{rig.ServeReplicas(t, text), a, h, keys}
	p.connectCatalog(t)
	for _, g := range p.All {
		awaitTools(t, g)
	}
	return p
}

func (p *persons) connectCatalog(t *testing.T) {
	t.Helper()
	c := beginConnect(t, p.Dir, "tracker")
	fmt.Fprintln(c.in, p.a.Consent(t, c.address, "ops"))
	if said, code := c.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
}

// connect gives the key of who a connection of the account, at a replica.
func (p *persons) connect(t *testing.T, g *rig.Gateway, who, account string) {
	t.Helper()
	p.connectAt(t, g, who, account, nil)
}

// connectAt is connect. If change is not nil, it changes the answer of the provider so that there is no connection.
func (p *persons) connectAt(t *testing.T, g *rig.Gateway, who, account string, change func(url.Values)) {
	t.Helper()
	s := g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+p.keys[who])
	link := ""
	rig.Eventually(t, "the call is answered with a link", func() string {
		m, _ := s.Ask(t, "tools/call", `{"name":"whoami","arguments":{}}`)
		link = ticketLink.FindString(m.Text())
		return rig.ReasonUnless(link != "", m.Text())
	})
	ada := openAdmin(t, g, p.keys["ada"])
	link = ada.base + link[strings.Index(link, "/connect/"):]
	back := p.a.Consent(t, ada.begin(link), account)
	if change != nil {
		q := back.Query()
		change(q)
		back.RawQuery = q.Encode()
	}
	if status, page := ada.get(back.String()); (status == http.StatusOK) != (change == nil) {
		t.Fatalf("the consent of %s ends with %d %s", who, status, page)
	}
}

// disconnect ends the connection of who.
func (p *persons) disconnect(t *testing.T, who string) {
	t.Helper()
	if _, errs, code := rig.Command(t, p.Dir, "server", "disconnect", "tracker", "--for", "acme/"+who); code != 0 {
		t.Fatal(errs)
	}
}

// A heard is a stream of notifications.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// updates returns how many updates of me://profile the stream has had.
func (h *heard) updates() int { return strings.Count(h.String(), "notifications/resources/updated") }

// hear opens the stream of a session, which is subscribed to me://profile.
func hear(t *testing.T, s *rig.HTTPSession) *heard {
	t.Helper()
	method, body, header := http.MethodGet, "", s.Header.Clone()
	if s.Modern {
		method = http.MethodPost
		body, _ = s.Request("subscriptions/listen", `{"notifications":{"resourceSubscriptions":["me://profile"]}}`)
		header.Set("Content-Type", "application/json")
		header.Set("Mcp-Protocol-Version", "2026-07-28")
		header.Set("Mcp-Method", "subscriptions/listen")
	} else {
		if m, _ := s.Ask(t, "resources/subscribe", `{"uri":"me://profile"}`); m.Error != nil {
			t.Fatalf("subscribe: %s", m.Raw)
		}
		header.Set("Mcp-Session-Id", s.ID)
		header.Set("Mcp-Protocol-Version", "2025-11-25")
	}
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	header.Set("Accept", "application/json, text/event-stream")
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("a stream: %v, %v", resp, err)
	}
	h := &heard{}
	go func() {
		defer func() { _ = resp.Body.Close() }()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			h.mu.Lock()
			h.text.WriteString(lines.Text() + "\n")
			h.mu.Unlock()
		}
	}()
	return h
}

// CD-10: two persons, four agents and more, at three replicas. Tokens expire after some seconds, the server refuses tokens that are good, the configuration is
// loaded again, a replica is killed, and one person disconnects and connects another account. It takes half a minute and more, for ten thousand calls.
func TestCD10NoCallOfAPersonReachesTheAccountOfAnother(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NothingLeaks)
	const calls, goroutines, sessions = 10000, 64, 8
	p := servePeople(t)
	p.a.SetLifetime(6 * time.Second)
	p.connect(t, p.All[0], "ann", "ann-of-the-lake")
	p.connect(t, p.All[1], "bob", "bob-of-the-hill")
	other := map[string]string{"ann": "bob-of", "bob": "ann-of"} // what nobody with the key may see

	who := func(i int) string { return []string{"ann", "bob"}[i%2] }
	var agents []*rig.HTTPSession
	var streams []*heard
	for i := range sessions {
		s := (&rig.Gateway{T: t, URL: p.URL}).OpenAtOnce(t, "/mcp", i/2%2 == 0, "Authorization", "Bearer "+p.keys[who(i)])
		agents = append(agents, s)
		if i < 4 {
			streams = append(streams, hear(t, s))
		}
	}
	var bobMoved atomic.Bool // to another account
	counts := func() (n [4]int) {
		for i, s := range streams {
			n[i] = s.updates()
		}
		return n
	}
	touch := func(person, account string) { // once
		before := counts()
		p.h.Touch(t, account)
		rig.Eventually(t, "the agents of "+person+" hear of the update", func() string {
			for i, n := range counts() {
				if who(i) == person && n == before[i] {
					return fmt.Sprintf("agent %d has heard %q", i, streams[i])
				}
			}
			return ""
		})
		for i, n := range counts() {
			if who(i) != person && n != before[i] {
				t.Errorf("agent %d of %s has heard of an update of %s: %s", i, who(i), person, streams[i])
			}
		}
	}
	rig.Eventually(t, "all subscriptions are made", func() string {
		p.h.Touch(t, "ann-of-the-lake")
		p.h.Touch(t, "bob-of-the-hill")
		now := counts()
		return rig.ReasonUnless(!slices.Contains(now[:], 0), fmt.Sprint(counts()))
	})
	for was := [4]int{}; was != counts(); { // updates that are late
		was = counts()
		<-time.After(time.Second)
	}
	touch("ann", "ann-of-the-lake")
	touch("bob", "bob-of-the-hill")

	var good, refused, next, cached atomic.Int64
	var why sync.Map // code of a refusal → text
	one := func(id int) {
		i := id % sessions
		me, s := who(i), agents[i]
		method, params := "tools/call", ""
		switch id / sessions % 5 {
		case 0, 1:
			params = fmt.Sprintf(`{"_meta":{"progressToken":"p%d"},"name":"expect","arguments":{"as":%q,"id":%d}}`, id, me, id)
		case 2:
			params = fmt.Sprintf(`{"name":"statement","arguments":{"month":%d}}`, id%12)
		case 3:
			method, params = "resources/read", `{"uri":"me://profile"}`
		case 4:
			params = `{"name":"whoami","arguments":{}}`
		}
		moved := bobMoved.Load()
		body, extra := s.Request(method, params)
		m, resp, err := s.Exchange(strings.Replace(body, `"id":7,`, fmt.Sprintf(`"id":%d,`, id+1000), 1), extra)
		if err != nil {
			refused.Add(1)
			why.Store("transport", err.Error())
			return
		}
		text := string(m.Raw) + strings.Join(resp.Said, "\n")
		switch want := me + "-of"; {
		case strings.Contains(text, other[me]):
			t.Errorf("%s is given: %s", me, text)
		case me == "bob" && moved && strings.Contains(text, "bob-of-the-hill"):
			t.Errorf("bob has another account now, and is given what the earlier one had: %s", text)
		case strings.Contains(text, want):
			good.Add(1)
			if id/sessions%5 == 2 {
				cached.Add(1)
			}
		default:
			refused.Add(1)
			why.Store(rig.Code(m), text)
		}
	}
	began := time.Now()
	var work sync.WaitGroup
	for range goroutines {
		work.Go(func() {
			for id := int(next.Add(1)); id <= calls; id = int(next.Add(1)) {
				one(id)
			}
		})
	}
	after := func(n int64) { // waits until so many calls have begun
		for next.Load() < n {
			<-time.After(20 * time.Millisecond)
		}
	}
	overlay := filepath.Join(p.Dir, "overlays", "tracker.yaml")
	plain := rig.ReadFile(t, overlay)
	for round := range int64(4) {
		after(calls/10 + round*calls/5)
		for _, q := range p.h.Requests()[max(0, len(p.h.Requests())-20):] { // of both
			if q.Authorization != "" && round == 0 {
				p.h.Refuse(q.Authorization)
			}
		}
		rig.ReplaceFile(t, overlay, strings.Replace(plain, "statement: {", fmt.Sprintf("expect: {timeout: %ds}, statement: {", 20+round), 1))
		for _, g := range p.TakeTurn() {
			g.SendHangUp(t)
		}
		switch round {
		case 1:
			p.End(p.All[0], syscall.SIGKILL)
			p.Add()
		case 2:
			g := p.All[0]
			p.disconnect(t, "bob")
			p.connect(t, g, "bob", "bob-of-the-shore")
			rig.Eventually(t, "each replica knows bob's other account", func() string {
				for _, g := range p.TakeTurn() {
					s := g.OpenAtOnce(t, "/mcp", true, "Authorization", "Bearer "+p.keys["bob"])
					if got := askWho(t, s); got != "bob-of-the-shore" {
						return got
					}
				}
				return ""
			})
			bobMoved.Store(true)
		}
	}
	work.Wait()
	took := time.Since(began)
	refreshed, twice := p.a.Refreshes()
	why.Range(func(code, text any) bool {
		t.Logf("refused with %v: %.300v", code, text)
		return true
	})
	t.Logf("%d calls in %s: %d answered, of them %d statements; %d refused; %d refreshes", calls, took.Round(time.Millisecond), good.Load(), cached.Load(), refused.Load(), refreshed)
	if good.Load() < calls*8/10 || cached.Load() == 0 {
		t.Errorf("only %d of %d calls were answered", good.Load(), calls)
	}
	if len(twice) > 0 || refreshed < 2 {
		t.Errorf("%d refreshes; sent twice: %q", refreshed, twice)
	}
	for _, m := range p.h.Mixed() {
		t.Error(m)
	}
	for i, s := range streams {
		if strings.Contains(s.String(), other[who(i)]) {
			t.Errorf("agent %d of %s has heard %s", i, who(i), s)
		}
	}
	p.noKeyBehind(t)
}

// noKeyBehind checks that no client's own key has reached the server or its provider (CD-01), and that the server has had requests.
func (p *persons) noKeyBehind(t *testing.T) {
	t.Helper()
	all := p.h.Requests()
	for _, q := range all {
		for id, key := range p.keys {
			if strings.Contains(q.Whole, key) {
				t.Errorf("the server is sent the key of %s: %.300s", id, q.Whole)
			}
		}
	}
	for id, key := range p.keys {
		if strings.Contains(p.a.Forms(), key) {
			t.Errorf("the provider is sent the key of %s", id)
		}
	}
	if len(all) < 100 {
		t.Errorf("the server has had %d requests", len(all))
	}
}

// CD-12 on the served path: 64 calls at once at three replicas, when the token expires or is refused, cause one request at the provider. Between the
// rounds a replica is killed; in the last one it is killed while it refreshes.
func TestCD12OneRefreshServesTheCallsOfAllReplicas(t *testing.T) {
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	const calls, rounds, life = 64, 3, 12 * time.Second
	p := servePeople(t)
	p.a.SetLifetime(life)
	p.connect(t, p.All[0], "ann", "ann-of-the-lake")
	callAll := func(replicas []*rig.Gateway) (codes map[string]int) {
		var mu sync.Mutex
		var work sync.WaitGroup
		codes = map[string]int{}
		for i := range calls {
			s := &rig.HTTPSession{URL: replicas[i%len(replicas)].URL + "/mcp", Modern: true, Header: http.Header{"Authorization": {"Bearer " + p.keys["ann"]}}}
			work.Go(func() {
				body, extra := s.Request("tools/call", fmt.Sprintf(`{"name":"expect","arguments":{"as":"ann","id":%d}}`, i))
				m, _, err := s.Exchange(body, extra)
				code := fmt.Sprint(rig.Code(m), err)
				if err == nil && m.Text() == fmt.Sprint("ann-of-the-lake ", i) {
					code = "good"
				}
				mu.Lock()
				defer mu.Unlock()
				codes[code]++
			})
		}
		work.Wait()
		return codes
	}
	for round := range rounds {
		if codes := callAll(p.TakeTurn()); codes["good"] != calls { // all replicas have the token now
			t.Fatalf("round %d, before: %v", round, codes)
		}
		if round == 1 {
			p.a.ExpireAll() // which nobody is told, until the server refuses the token
		}
		for p.a.IsGood("ann-of-the-lake") {
			<-time.After(50 * time.Millisecond)
		}
		before := p.a.RefreshesOf("ann-of-the-lake")
		if codes := callAll(p.TakeTurn()); codes["good"] != calls {
			t.Fatalf("round %d: %v", round, codes)
		}
		if got := p.a.RefreshesOf("ann-of-the-lake") - before; got != 1 {
			t.Errorf("round %d: %d calls caused %d refreshes", round, calls, got)
		}
		p.End(p.All[round%len(p.All)], syscall.SIGKILL)
		p.Add()
	}

	p.a.SetLifetime(time.Hour)
	asked, release := make(chan struct{}), make(chan struct{})
	p.a.ExpireAll()
	once := sync.OnceFunc(func() {
		close(asked)
		<-release
	})
	p.a.Hold(func(person string) {
		if person == "ann-of-the-lake" { // and not that of the catalog
			once()
		}
	})
	dying := p.All[0]
	work := make(chan map[string]int, 1)
	go func() { work <- callAll([]*rig.Gateway{dying}) }()
	<-asked
	p.End(dying, syscall.SIGKILL)
	close(release)
	if codes := <-work; codes["good"] > 0 {
		t.Errorf("a killed replica has answered: %v", codes)
	}
	p.a.Hold(nil)
	p.Add()
	// The calls wait until the claim of the killed replica is over, which takes 30 s. Their client may give up before.
	codes := callAll(p.All[:1])
	if n := codes["good"]; n == 0 && codes["SB-AUTH-005<nil>"] < calls {
		codes = callAll(p.All[:1])
	}
	if codes["SB-AUTH-005<nil>"] != calls {
		t.Errorf("while it is unknown what has become of the refresh token: %v", codes)
	}
	p.connect(t, p.All[0], "ann", "ann-of-the-lake")
	if codes := callAll(p.TakeTurn()); codes["good"] != calls {
		t.Errorf("after another consent: %v", codes)
	}
	if sent, twice := p.a.Refreshes(); len(twice) > 0 || sent < rounds {
		t.Errorf("%d refresh tokens were sent, these twice: %q", sent, twice)
	}
	p.noKeyBehind(t)
}
