package served_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var approvalKills = flag.Int("approval-kills", 2, "how `many` processes TestAP12KilledProcessesUseNoYesTwiceAndForgetNoDecision kills with each store; 100 is what is promised")

// marketLimit is the budget of a yesMarket, in micro-units.
const marketLimit = 5_000_000

// agentLimit lets some agents reach their own budget, and others go on for all kills.
func agentLimit() int { return max(6, *approvalKills/4) * pricedAt }

// A yesMarket is agents whose calls cost money and need a person's yes, and the person, in front of processes that share a store.
type yesMarket struct {
	t      *testing.T
	dir    string
	shared bool   // the store is not in the folder
	url    string // of the store
	server *rig.Ledger
	agents []string // their keys
	boss   string
	own    int64 // the budget of each agent
	next   atomic.Int64
	calls  atomic.Int64

	// undone has the executions that do not count, by call: the power was cut before them.
	undone map[int]int

	mu      sync.Mutex
	all     []*boughtCall
	refused map[string]int // by code
}

// A boughtCall is a call, and what became of it.
type boughtCall struct {
	id      int
	agent   string // its header
	request string
	said    string    // what the person was told last: approved, refused or revoked; "" if nothing
	tried   string    // what the person has tried last
	decided time.Time // when the answer came
}

// newYesMarket lays out the files. store is a URL of a Redis; "" means a file in the folder.
func newYesMarket(t *testing.T, url string) *yesMarket {
	t.Helper()
	m := &yesMarket{t: t, shared: url != "", url: url, own: int64(agentLimit()), refused: map[string]int{}}
	var server string
	m.server, server = rig.KeepLedger(t, time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
	settings := ""
	if m.shared {
		settings = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", url)
	}
	var rows []string
	for i := range 40 { // one agent may ask 200 times within an hour
		key, hash := identity.Mint(identity.AgentPrefix)
		m.agents = append(m.agents, key)
		rows = append(rows, fmt.Sprintf(`{id: "agent-%d", hash: %q}`, i, hash))
	}
	boss, hash := identity.Mint(identity.PersonPrefix)
	m.boss = boss
	m.dir = rig.LayOut(t, fmt.Sprintf(`
-- secret --
%s
-- switchboard.yaml --
%sapprovals: {wait: 1s}
currency: EUR
budgets: [{id: paid, limit: %s, window: forever}, {id: own, limit: %s, window: 1d, per: principal}]
servers: {post: {transport: http, url: %q, trust: operator}}
tenants: {acme: {servers: ["*"], allow: [by_name], approvers: [{key: boss, hash: %q}]}}
-- overlays/post.yaml --
server: post
tools:
  post: {price: {call: 0.001}, capabilities: [{verb: write, resource: fs, constraints: [human_in_the_loop]}]}
-- tenants/acme/tenant.yaml --
tenant: acme
default_task: all
keys: [%s]
-- tenants/acme/tasks/all.yaml --
task_id: all
required_capabilities: [{tools: ["*/*"]}]
`, survivorSecret, settings, micros(marketLimit), micros(agentLimit()), server, hash, strings.Join(rows, ", ")))
	return m
}

func micros(n int) string { return fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000) }

// start starts a process.
func (m *yesMarket) start() *rig.Gateway {
	m.t.Helper()
	if m.shared {
		return rig.Serve(m.t, m.dir, "--data", filepath.Join(m.t.TempDir(), "data"))
	}
	return rig.Serve(m.t, m.dir)
}

// as opens a client of an agent.
func (m *yesMarket) as(g *rig.Gateway, agent int, modern bool) *rig.HTTPSession {
	m.t.Helper()
	return g.Open(m.t, "/mcp", modern, "Authorization", "Bearer "+m.agents[agent%len(m.agents)])
}

// admin sends a request to the admin side of a process that may be killed meanwhile.
func (m *yesMarket) admin(g *rig.Gateway, method, path string) (status int, body string, err error) {
	row, err := g.Row()
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(m.t.Context(), method, row.Admin+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+m.boss)
	resp, err := (&http.Client{Timeout: rig.Patience}).Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// call makes a call. gone means that no answer came.
func (m *yesMarket) call(s *rig.HTTPSession, params string) (code string, raw string, gone bool) {
	body, extra := s.Request("tools/call", params)
	a, _, err := s.Exchange(strings.Replace(body, `"id":7`, fmt.Sprintf(`"id":%d`, 100+m.calls.Add(1)), 1), extra)
	if err != nil {
		return "", "", true
	}
	return rig.Code(a), string(a.Raw), false
}

// buy asks for a call, has the person decide, and then makes the call twice at once. It reports whether the process still answers.
func (m *yesMarket) buy(g *rig.Gateway, s *rig.HTTPSession, luck int) bool {
	b := &boughtCall{id: int(m.next.Add(1)), agent: s.Header.Get("Authorization")}
	params := fmt.Sprintf(`{"name":"post","arguments":{"id":%d}}`, b.id)
	code, raw, gone := m.call(s, params)
	if gone {
		return false
	}
	found := requestID.FindStringSubmatch(raw)
	if code != "SB-APPR-001" || found == nil {
		m.refuse(code, raw)
		<-time.After(20 * time.Millisecond)
		return true
	}
	b.request = found[1]
	m.mu.Lock()
	m.all = append(m.all, b)
	m.mu.Unlock()
	say := func(what, state string) bool {
		m.mu.Lock()
		b.tried = state
		m.mu.Unlock()
		status, _, err := m.admin(g, http.MethodPost, "/v1/approvals/"+b.request+"/"+what)
		m.mu.Lock()
		defer m.mu.Unlock()
		if err == nil && status == http.StatusOK {
			b.said, b.decided = state, time.Now()
		}
		return err == nil
	}
	switch {
	case luck%8 == 0:
		return say("refuse", "refused")
	case !say("approve", "approved"):
		return false
	case luck%8 == 1:
		return say("revoke", "revoked")
	}
	lost := make([]bool, 2)
	var both sync.WaitGroup
	for i, params := range []string{params, `{"name":"switchboard_resume","arguments":{"request":"` + b.request + `"}}`} {
		both.Go(func() {
			code, raw, gone := m.call(s, params)
			lost[i] = gone
			m.refuse(code, raw)
		})
	}
	both.Wait()
	return !lost[0] && !lost[1]
}

// refuse counts a refusal. What must not happen is an error.
func (m *yesMarket) refuse(code, raw string) {
	if code == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[code]++
	if !slices.Contains([]string{"SB-APPR-001", "SB-APPR-003", "SB-COST-001", "SB-LIFE-004", "SB-ROUT-004", "SB-RCPT-001", "SB-EXEC-001", "SB-EXEC-004"}, code) {
		m.t.Errorf("%.300s", raw)
	}
}

// work has agents buy at processes until stop is closed. An agent ends when its process is killed.
func (m *yesMarket) work(first, agents int, luck uint64, stop <-chan struct{}, at ...*rig.Gateway) (done func()) {
	m.t.Helper()
	var working sync.WaitGroup
	for i := range agents {
		g := at[i%len(at)]
		s := m.as(g, first+i, i%4 < 2)
		own := rand.New(rand.NewPCG(luck, uint64(i)))
		working.Go(func() {
			for m.buy(g, s, own.IntN(64)) {
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	return working.Wait
}

// judge looks at all calls since the last time. lost says for which of them the store may have lost what happened; nil means for none. It returns how many of those
// that may not be lost were executed.
func (m *yesMarket) judge(g *rig.Gateway, lost func(*boughtCall) bool) (executed, lostOnes int) {
	t := m.t
	t.Helper()
	m.mu.Lock()
	all := m.all
	m.all = nil
	m.mu.Unlock()
	var late wait.Lateness
	for _, b := range all {
		n := m.executions(b.id)
		if lost != nil && lost(b) {
			lostOnes++
			continue
		}
		state := m.stateOf(g, b.request)
		if state == "gone" && m.stateOf(g, strings.TrimSuffix(b.request, "1")+"2") != "gone" {
			state = b.said // the call has asked again after the yes was used, and the second request has its place
			if n == 1 {
				state = "used"
			}
		}
		switch {
		case n > 1:
			t.Errorf("call %d was executed %d times with the yes of %s", b.id, n, b.request)
		case n == 1 && b.tried != "approved" && b.tried != "revoked":
			t.Errorf("call %d was executed, and the person has %s it", b.id, b.tried)
		case n == 1 && state != "used":
			t.Errorf("call %d was executed, and its request %s is %s", b.id, b.request, state)
		case b.said == "approved" && b.tried == "approved" && state != "approved" && state != "used", b.said != "" && b.said != "approved" && state != b.said:
			t.Errorf("a person was told that %s is %s, and it is %s", b.request, b.said, state)
		case n == 1: // once more
			s := g.Open(t, "/mcp", true, "Authorization", b.agent)
			if code, raw, gone := m.call(s, `{"name":"switchboard_resume","arguments":{"request":"`+b.request+`"}}`); gone {
				late.Add("no answer")
			} else if code != "SB-APPR-003" && code != "SB-ROUT-004" {
				t.Errorf("%s is resumed once more: %s", b.request, raw)
			}
			if n := m.executions(b.id); n != 1 {
				t.Errorf("call %d was executed again", b.id)
			}
		}
		executed += n
	}
	late.State(t)
	return executed, lostOnes
}

// executions returns how often the server has executed a call.
func (m *yesMarket) executions(call int) int {
	return m.server.CountOf(fmt.Sprint(call)) - m.undone[call]
}

// stateOf returns the state of a request; "gone" if there is none.
func (m *yesMarket) stateOf(g *rig.Gateway, request string) (state string) {
	m.t.Helper()
	rig.Eventually(m.t, "the request can be read", func() string {
		status, body, err := m.admin(g, http.MethodGet, "/v1/approvals/"+request)
		switch {
		case err != nil:
			return err.Error()
		case status == http.StatusNotFound:
			state = "gone"
			return ""
		}
		var r struct {
			State string `json:"state"`
		}
		if status != http.StatusOK || json.Unmarshal([]byte(body), &r) != nil || r.State == "" {
			return fmt.Sprint(status, body)
		}
		state = r.State
		return ""
	})
	return state
}

// judgeMoney checks that what the server has counted, except for so many calls, is settled or held, and that no account is over its limit by more than those.
func (m *yesMarket) judgeMoney(excused int64) {
	t := m.t
	t.Helper()
	where := m.url
	if !m.shared {
		where = "file:" + filepath.Join(m.dir, ".switchboard", "store.db")
	}
	st, err := store.Open(t.Context(), where, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	all, err := st.Accounts(t.Context(), "budget/acme")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, a := range all {
		limit, id := int64(marketLimit), "paid"
		if strings.Contains(a.Name, "/own ") {
			limit, id = m.own, "own"
		} else if !strings.Contains(a.Name, "/paid ") {
			continue
		}
		sums[id] += a.Settled + a.Held
		if a.Settled < 0 || a.Held < 0 || a.Settled+a.Held > limit {
			t.Errorf("the account %+v; its limit is %d", a, limit)
		}
	}
	count := m.server.Total()
	for _, n := range m.undone {
		count -= int64(n)
	}
	if len(sums) != 2 && count > 0 {
		t.Errorf("the accounts are %+v", all)
	}
	for id, sum := range sums {
		if sum < (count-excused)*pricedAt {
			t.Errorf("the server counts %d calls, %d is settled and held in %s, and %d calls are excused", count, sum, id, excused)
		}
	}
}

// AP-12 and BU-08 on the served path: processes that share a store are killed while agents ask, a person decides, and calls with a price use the yes. Each yes is
// executed at most once, every decision that a person was told of is there, and no account is below what the server has counted or above its limit.
func TestAP12KilledProcessesUseNoYesTwiceAndForgetNoDecision(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NeverTwice)
	eachStore(t, func(t *testing.T, redis *redistest.Server) {
		url := ""
		if redis != nil {
			url = redis.URL()
		}
		m := newYesMarket(t, url)
		luck := rand.New(rand.NewPCG(law.Seed(t), 0))
		came := make(chan struct{}, 1)
		m.server.OnExecute(func(string) {
			select {
			case came <- struct{}{}:
			default:
			}
		})
		other := m.start()
		total := 0
		for n := range *approvalKills {
			g := m.start()
			stop := make(chan struct{})
			done := m.work(8*n, 8, luck.Uint64(), stop, g, g, other, g)
			for range 1 + luck.IntN(12) {
				select {
				case <-came:
				case <-time.After(2 * time.Second): // the budgets may be used up
				}
			}
			<-time.After(time.Duration(luck.IntN(60)) * time.Millisecond)
			_ = g.Cmd.Process.Kill()
			_ = g.Cmd.Wait()
			close(stop)
			done()
			if n%2 == 1 { // the other one too, so that everything comes out of the store
				_ = other.Cmd.Process.Kill()
				_ = other.Cmd.Wait()
				other = m.start()
			}
			executed, _ := m.judge(other, nil)
			m.judgeMoney(0)
			total += executed
		}
		t.Logf("%d kills: %d calls executed, of %d asked; refused: %v", *approvalKills, total, m.next.Load(), m.refused)
		if total == 0 {
			t.Error("nothing was executed")
		}
	})
}

// AP-01: a hundred callers with one yes, over three replicas and in both eras, make one call, by the server's own count. Each call costs money, and is paid once.
func TestAP01OneYesIsOneExecutionOverThreeReplicas(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	redistest.Need(t)
	redis := redistest.Start(t)
	m := newYesMarket(t, redis.URL())
	rig.WriteFile(t, filepath.Join(m.dir, "switchboard.yaml"), strings.Replace(rig.ReadFile(t, filepath.Join(m.dir, "switchboard.yaml")), micros(int(m.own)), micros(marketLimit), 1))
	m.own = marketLimit
	replicas := []*rig.Gateway{m.start(), m.start(), m.start()}
	const callers = 100
	var late wait.Lateness
	sessions := map[int][]*rig.HTTPSession{}
	others := map[string]int{}
	for round := range *approvalRounds {
		agent := round % 8
		if sessions[agent] == nil {
			for i := range 6 {
				sessions[agent] = append(sessions[agent], m.as(replicas[i%3], agent, i < 3))
			}
		}
		all := sessions[agent]
		params := fmt.Sprintf(`{"name":"post","arguments":{"id":%d}}`, round)
		_, raw, _ := m.call(all[round%6], params)
		found := requestID.FindStringSubmatch(raw)
		if found == nil {
			t.Fatalf("round %d: %s", round, raw)
		}
		if status, body, err := m.admin(replicas[(round+1)%3], http.MethodPost, "/v1/approvals/"+found[1]+"/approve"); status != http.StatusOK {
			t.Fatalf("round %d: %d %s %v", round, status, body, err)
		}
		var working sync.WaitGroup
		var mu sync.Mutex
		good := 0
		start := make(chan struct{})
		for i := range callers {
			own := params
			if i%4 > 0 { // a repeat that comes too late waits for a person again, and 20 may wait
				own = `{"name":"switchboard_resume","arguments":{"request":"` + found[1] + `"}}`
			}
			working.Go(func() {
				<-start
				code, raw, gone := m.call(all[i%6], own)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case gone || code == "SB-ROUT-004" || code == "SB-RCPT-001":
					late.Add("round %d: %s", round, raw)
				case code == "":
					good++
				case code == "SB-APPR-001" || code == "SB-APPR-003" || code == "SB-LIFE-004":
					others[code]++
				default:
					t.Errorf("round %d: %.300s", round, raw)
				}
			})
		}
		close(start)
		working.Wait()
		if n := m.server.CountOf(fmt.Sprint(round)); n > 1 || n != good && !late.Any() {
			t.Fatalf("round %d: %d were executed, and %d got a result", round, n, good)
		}
		if again := strings.TrimSuffix(found[1], "1") + "2"; m.stateOf(replicas[0], again) == "pending" { // those that came too late have asked again
			if status, body, err := m.admin(replicas[0], http.MethodPost, "/v1/approvals/"+again+"/refuse"); status != http.StatusOK {
				t.Fatalf("round %d: %d %s %v", round, status, body, err)
			}
		}
	}
	late.State(t)
	if n := m.server.Total(); n != int64(*approvalRounds) {
		t.Errorf("%d executions in %d rounds", n, *approvalRounds)
	}
	m.judgeMoney(0)
	t.Logf("%d rounds of %d callers: %d executions; too late: %v", *approvalRounds, callers, m.server.Total(), others)
}
