package served_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var budgetKills = flag.Int("budget-kills", 4, "how many processes TestBU08ProcessesThatAreKilledOverspendNothing kills with each store; 100 is what is promised")

const (
	pricedAt   = 1000 // micro-units, of a call of the priced server
	priceLimit = 500_000
)

// spending is a server with a price, and processes in front of it that share a budget.
type spending struct {
	t      *testing.T
	dir    string
	redis  *redistest.Server
	server *rig.Ledger
	start  func() *rig.Gateway
}

// newSpending configures a budget of 0.50 for calls that cost 0.001. more are definitions of tools, beside that of the tool post.
func newSpending(t *testing.T, redis *redistest.Server, takes time.Duration, more ...string) *spending {
	t.Helper()
	s := &spending{t: t, dir: t.TempDir(), redis: redis}
	var url string
	s.server, url = rig.KeepLedger(t, takes, append(more, fmt.Sprintf(rig.Tool, "post"))...)
	configure(t, s.dir, url, redis)
	price(t, s.dir, fmt.Sprintf("0.%06d", priceLimit), "post", "look", "often", "vetoed", "asked")
	s.start = func() *rig.Gateway {
		if redis != nil {
			return rig.Serve(t, s.dir, "--data", filepath.Join(t.TempDir(), "data"))
		}
		return rig.Serve(t, s.dir)
	}
	return s
}

// price adds prices of tools and a budget to what configure has written.
func price(t *testing.T, dir, limit string, tools ...string) {
	t.Helper()
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "transport: http", "trust: operator, transport: http", 1)+
		fmt.Sprintf("currency: EUR\nbudgets: [{id: paid, limit: %s, window: forever, warn: [80%%]}]\n", limit))
	rows := "server: post\ntools:\n"
	for _, tool := range tools {
		rows += "  " + tool + ": {price: {call: 0.001}}\n"
	}
	rig.WriteFile(t, filepath.Join(dir, "overlays/post.yaml"), rows)
}

// spent returns what is settled, and what is held, in the budget of a folder's store.
func spent(t *testing.T, dir string, redis *redistest.Server) (settled, held int64) {
	t.Helper()
	where := "file:" + filepath.Join(dir, ".switchboard", "store.db")
	if redis != nil {
		where = redis.URL()
	}
	st, err := store.Open(t.Context(), where, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	all, err := st.Accounts(t.Context(), "budget/default")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.Settled < 0 || a.Held < 0 {
			t.Errorf("the account %+v", a)
		}
		if strings.Contains(a.Name, "/paid ") {
			settled, held = settled+a.Settled, held+a.Held
		}
	}
	return settled, held
}

// awaitSettled waits until nothing is held, and returns what is settled.
func (s *spending) awaitSettled() (settled int64) {
	s.t.Helper()
	rig.Eventually(s.t, "everything is settled", func() string {
		var held int64
		settled, held = spent(s.t, s.dir, s.redis)
		return rig.ReasonUnless(held == 0, fmt.Sprint(held, " is held"))
	})
	return settled
}

// eachStore runs a test with a file and with a Redis.
func eachStore(t *testing.T, test func(t *testing.T, redis *redistest.Server)) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		test(t, redistest.Start(t))
	})
}

// BU-01 of the security cases: three processes, both eras, 64 callers, 1,280 calls, and a budget for 500.
func TestBU01TheBudgetIsSpentToTheLastUnitAndNoFurther(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		s := newSpending(t, redis, 0)
		var all []*rig.Gateway
		for range 3 {
			all = append(all, s.start())
		}
		var good, over, told atomic.Int64
		var late wait.Lateness
		var working sync.WaitGroup
		var refusal atomic.Value
		for i := range 64 {
			web := all[i%3].Open(t, "/mcp", i%2 == 0)
			working.Go(func() {
				for n := range 20 {
					a := web.Try("post", 1+i+64*n)
					for began := time.Now(); outOfTime(rig.Code(a.Answer)) && time.Since(began) < rig.Patience; a = web.Try("post", 1+i+64*n) {
						<-time.After(20 * time.Millisecond)
					}
					switch code := rig.Code(a.Answer); {
					case a.Good():
						good.Add(1)
						if strings.Contains(string(a.Answer.Raw), `"io.switchboard/budget":[{"budget":"paid","left":"0.`) {
							told.Add(1)
						}
					case code == "SB-COST-001":
						over.Add(1)
						refusal.Store(string(a.Answer.Raw))
					default:
						late.Add("%v", a)
					}
				}
			})
		}
		working.Wait()
		late.State(t)
		if n := s.server.Total(); n != 500 || good.Load() != 500 || over.Load() != 780 {
			t.Errorf("%d calls are executed, %d answered, and %d refused", n, good.Load(), over.Load())
		}
		if settled := s.awaitSettled(); settled != priceLimit {
			t.Errorf("%d is settled", settled)
		}
		if n := told.Load(); n < 1 || n > 101 { // from the 400th call on, which makes it 80 %
			t.Errorf("%d results say what is left", n)
		}
		said, _ := refusal.Load().(string)
		for _, want := range []string{`"isError":true`, `"error_code":"BUDGET_EXCEEDED"`, `"left":"0.00"`, `"unit":"EUR"`, `"retryable":"later"`, `the budget \"paid\" has 0.00 EUR left`} {
			if !strings.Contains(said, want) {
				t.Errorf("a refusal lacks %s: %s", want, said)
			}
		}
		warnings := 0
		for _, g := range all {
			warnings += strings.Count(g.Logged(), "a budget is nearly used up")
		}
		if warnings != 1 {
			t.Errorf("%d warnings", warnings)
		}
	})
}

// BU-04 of the security cases: what is refused before it is sent costs nothing.
func TestBU04WhatIsNotSentCostsNothing(t *testing.T) {
	t.Parallel()
	s := newSpending(t, nil, 0, fmt.Sprintf(rig.Tool, "vetoed"), fmt.Sprintf(rig.Tool, "asked"),
		`{"name":"often","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"notify","resource":"slack","constraints":["rate_limited"]}]}}`)
	rig.WriteFile(t, filepath.Join(s.dir, "policies/p.rego"), "package switchboard\n"+rig.AllowAll+"deny[c.id] contains \"never\" if {\n\tinput.phase == \"call\"\n\tsome c in input.candidate_tools\n\tc.tool == \"vetoed\"\n}\nobligations[\"post/asked\"] contains {\"type\": \"require_approval\"}\n")
	main := filepath.Join(s.dir, "switchboard.yaml")
	rig.WriteFile(t, main, rig.ReadFile(t, main)+"approvals: {wait: 1s}\n")
	rig.WriteFile(t, filepath.Join(s.dir, "tenants/default/tenant.yaml"), "tenant: default\ndefault_task: all\nlimits: [{match: {constraint: rate_limited}, rate: 1/h, burst: 1}]\n")
	g := s.start()
	web := g.Open(t, "/mcp", true)
	ask := func(tool, want string) string {
		t.Helper()
		m, _ := web.Ask(t, "tools/call", fmt.Sprintf(`{"name":%q,"arguments":{"id":1}}`, tool))
		if rig.Code(m) != want {
			t.Errorf("%s: %s, want %s", tool, m.Raw, want)
		}
		return string(m.Raw)
	}
	made := func(when string, calls int64) {
		t.Helper()
		if settled := s.awaitSettled(); settled != calls*pricedAt || s.server.Total() != calls {
			t.Errorf("%s: %d is settled, and %d calls are executed", when, settled, s.server.Total())
		}
	}
	ask("vetoed", "SB-POL-001")
	ask("often", "")
	ask("often", "SB-ROUT-002")
	made("denied and too often", 1)
	request := requestID.FindStringSubmatch(ask("asked", "SB-APPR-001"))
	made("pending", 1)
	if request == nil {
		t.Fatal("the answer names no request")
	}
	if a := g.AskAdmin(t, "", http.MethodPost, "/v1/approvals/"+request[1]+"/approve", "{}"); a.Status != http.StatusOK {
		t.Fatal(a)
	}
	made("approved and not used", 1)
	ask("asked", "")
	made("used", 2)
}

// BU-03 of the security cases: nobody knows what came of the call. It is not repeated, and its price counts.
func TestBU03ACallWithAnUnknownOutcomeIsSpent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		s := newSpending(t, redis, 0)
		s.server.OnExecute(func(string) { panic(http.ErrAbortHandler) })
		web := s.start().Open(t, "/mcp", true)
		m, _ := web.Ask(t, "tools/call", `{"name":"post","arguments":{"id":2}}`)
		if rig.Code(m) != "SB-EXEC-004" {
			t.Error(m.Raw)
		}
		if settled := s.awaitSettled(); settled != pricedAt || s.server.Total() != 1 {
			t.Errorf("%d is settled, and %d calls are executed", settled, s.server.Total())
		}
	})
}

// BU-02 of the security cases: the process is killed while its call is at the server. What was held stays held.
func TestBU02WhatAKilledProcessHeldStaysSpent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		s := newSpending(t, redis, 0)
		at := make(chan struct{})
		s.server.OnExecute(func(string) { close(at); <-t.Context().Done() })
		g := s.start()
		web := g.Open(t, "/mcp", false)
		go web.Try("post", 2)
		select {
		case <-at:
		case <-time.After(wait.Bound):
			wait.Late(t, "the call does not come")
		}
		_ = g.Cmd.Process.Kill()
		_ = g.Cmd.Wait()
		s.server.OnExecute(nil)
		for range 2 {
			if settled, held := spent(t, s.dir, redis); settled != 0 || held != pricedAt {
				t.Errorf("%d is settled and %d held", settled, held)
			}
			s.start()
		}
	})
}

// BU-06 of the security cases: while the store is gone, no call with a price is sent. Afterwards everything that was sent counts.
func TestBU06WithoutRedisNothingIsSpent(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	redistest.Need(t)
	redis := redistest.Start(t)
	s := newSpending(t, redis, 0, `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`)
	web := s.start().Open(t, "/mcp", true)
	if a := web.Try("post", 2); !a.Good() {
		t.Fatal(a)
	}
	s.awaitSettled()
	redis.Kill()
	for i, tool := range []string{"look", "post", "look"} {
		a := web.Try(tool, 4+2*i)
		if code := rig.Code(a.Answer); code != "SB-ROUT-004" && code != "SB-RCPT-001" {
			t.Error(a)
		}
	}
	if n := s.server.Total(); n != 1 {
		t.Errorf("%d calls are executed", n)
	}
	mend(t, redis)
	redis.Start()
	id := 100
	rig.Eventually(t, "calls are made again", func() string {
		id += 2
		a := web.Try("look", id)
		return rig.ReasonUnless(a.Good(), a.String())
	})
	if settled := s.awaitSettled(); settled != pricedAt*s.server.Total() {
		t.Errorf("%d is settled for %d calls", settled, s.server.Total())
	}
}

// BU-08 of the security cases: processes that share a budget are killed around calls. What the server has counted is settled or held, and that is within the limit.
func TestBU08ProcessesThatAreKilledOverspendNothing(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		s := newSpending(t, redis, time.Millisecond)
		luck := rand.New(rand.NewPCG(law.Seed(t), 0))
		came := make(chan struct{}, 1)
		s.server.OnExecute(func(string) {
			select {
			case came <- struct{}{}:
			default:
			}
		})
		other := s.start()
		var next atomic.Int64
		for n := range *budgetKills {
			g := s.start()
			var working sync.WaitGroup
			for i := range 8 {
				web := []*rig.Gateway{g, other}[i%2].Open(t, "/mcp", i%4 < 2)
				working.Go(func() {
					for range 12 {
						if a := web.Try("post", int(next.Add(2))); a.Err != nil {
							return
						}
					}
				})
			}
			for range luck.IntN(6) {
				select {
				case <-came:
				case <-time.After(time.Second):
				}
			}
			<-time.After(time.Duration(luck.IntN(60)) * time.Millisecond) // a settlement waits for 50 ms
			_ = g.Cmd.Process.Kill()
			_ = g.Cmd.Wait()
			working.Wait()
			settled, held := spent(t, s.dir, redis)
			if count := s.server.Total() * pricedAt; settled+held < count || settled+held > priceLimit {
				t.Errorf("kill %d: the server counts %d; %d is settled and %d held, of %d", n, count, settled, held, priceLimit)
			}
		}
		if s.server.Total() == 0 {
			t.Error("nothing was executed")
		}
	})
}

// BU-05 of the security cases: what a server states as the cost counts within the price, if it may state it. No client gets the statement.
func TestBU05AServersStatementOfTheCostCountsWithinThePrice(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingLeaks)
	for said, want := range map[string]string{
		`{"amount":"0.0031"}`: "0.0031", `{"amount":"0"}`: "0", `{"amount":"-1"}`: "0.05", `{"amount":"NaN"}`: "0.05", `{"amount":1e30}`: "0.05",
		`{"amount":"0.06"}`: "0.05", `{"amount":"0.01"},"io.switchboard/cost":{"amount":"0.01"}`: "0.05",
	} {
		for _, reported := range []bool{true, false} {
			t.Run(fmt.Sprint(said, reported), func(t *testing.T) {
				t.Parallel()
				s := newSpending(t, nil, 0)
				s.server.Says = `{"content":[],"_meta":{"own":1,"io.switchboard/cost":` + said + `}}`
				rig.WriteFile(t, filepath.Join(s.dir, "overlays/post.yaml"), fmt.Sprintf("server: post\ntools:\n  post: {price: {call: 0.05, most: 0.05, reported: %v}}\n", reported))
				for _, modern := range []bool{true, false} {
					m, _ := s.start().Open(t, "/mcp", modern).Ask(t, "tools/call", `{"name":"post","arguments":{"id":2}}`)
					if text := string(m.Raw); strings.Contains(text, "io.switchboard/cost") || !strings.Contains(text, `"own":1`) {
						t.Error(text)
					}
				}
				cost, _ := switchboard.ParseMicros(want)
				if !reported {
					cost = 50_000
				}
				if settled := s.awaitSettled(); settled != 2*int64(cost) {
					t.Errorf("%d is settled for two calls, want %s each", settled, want)
				}
				out, _, _ := rig.Command(t, s.dir, "receipts", "export")
				if price := fmt.Sprintf(`"price":{"held":50000,"settled":%d}`, cost); cost > 0 && strings.Count(out, price) != 2 || strings.Count(out, `"hold":{"accounts":[{"amount":50000,`) != 2 {
					t.Errorf("the receipts:\n%s", out)
				}
			})
		}
	}
}

// BU-10 of the security cases: a limit below what was spent makes nothing negative, and a higher one counts at once.
func TestBU10ALimitIsLoweredAndRaised(t *testing.T) {
	t.Parallel()
	s := newSpending(t, nil, 0)
	g := s.start()
	web := g.Open(t, "/mcp", true)
	main := filepath.Join(s.dir, "switchboard.yaml")
	id := 0
	call := func(limit, want string) string {
		t.Helper()
		text := rig.ReadFile(t, main)
		before, rest, _ := strings.Cut(text, "limit: ")
		_, rest, _ = strings.Cut(rest, ",")
		rig.WriteFile(t, main, before+"limit: "+limit+","+rest)
		g.Reload(t)
		id += 2
		m, _ := web.Ask(t, "tools/call", fmt.Sprintf(`{"name":"post","arguments":{"id":%d}}`, id))
		if rig.Code(m) != want {
			t.Errorf("limit %s: %s, want %q", limit, m.Raw, want)
		}
		return string(m.Raw)
	}
	call("0.002", "")
	call("0.003", "")
	if said := call("0.001", "SB-COST-001"); !strings.Contains(said, `"left":"0.00"`) {
		t.Error(said)
	}
	call("0.0029", "SB-COST-001")
	call("0.004", "")
	if settled := s.awaitSettled(); settled != 3*pricedAt || s.server.Total() != 3 {
		t.Errorf("%d is settled for %d calls", settled, s.server.Total())
	}
}
