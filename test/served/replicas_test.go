package served_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// branches is a configuration of a fake at an address, and of samples that each replica
// starts for itself.
func branches(url string) string {
	return fmt.Sprintf(`
-- switchboard.yaml --
servers:
  post: {transport: http, url: %q}
  nimbus: {transport: stdio, command: [BIN, sample, nimbus-search]}
  cloud: {transport: stdio, command: [BIN, sample, aws-like]}
tenants:
  default: {servers: ["*"], allow: [by_name], trial: [post], declare: [{verb: search, resource: internet, constraints: [readonly]}, {verb: read, resource: aws}]}
-- tenants/default/tenant.yaml --
tenant: default
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["post/*"]}
  - {verb: search, resource: internet, constraints: [readonly]}
  - {verb: read, resource: aws, load: on_demand, group: aws, stub: aws_helper}
`, url)
}

func defaultTask(archive string) string {
	return strings.Replace(archive, "tenant: default\n", "tenant: default\ndefault_task: all\n", 1)
}

func TestAClientCannotTellThatThereAreThreeReplicas(t *testing.T) {
	t.Parallel()
	_, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"), askerTool)
	c := rig.ServeReplicas(t, defaultTask(branches(url)))

	for _, who := range people {
		t.Run("asks, "+who.name, func(t *testing.T) {
			call := who.connect(t, c.URL+"/mcp", &person{name: "Ann", header: http.Header{rig.ClientHeader: {who.name}}})
			c.Everywhere(who.name, func(int) {
				text, err := call(t.Context(), "asker", map[string]any{"do": "ask", "method": questions[0].method, "params": questions[0].params})
				if err != nil || !strings.Contains(text, questions[0].answer) {
					t.Errorf("the server hears %s, %v", text, err)
				}
				if text, err := call(t.Context(), "post", map[string]any{"x": "y"}); err != nil || text != `{"x":"y"}` {
					t.Errorf("%s, %v", text, err)
				}
			})
		})
	}
	for era, modern := range map[string]bool{"legacy": false, "modern": true} {
		t.Run("lists, calls, expands, "+era, func(t *testing.T) {
			who := "raw " + era
			s := c.Open(t, who, modern)
			first := rig.ListNames(t, s)
			c.Everywhere(who, func(i int) {
				if got := rig.ListNames(t, s); !slices.Equal(got, first) {
					t.Errorf("it lists %q, and then %q", first, got)
				}
				said := talk{tool: "post", mark: fmt.Sprintf("m%d%s", i, era), times: "20", pause: "1ms", logs: "yes"}
				talks := &talker{name: who, modern: modern, http: s}
				heard, err := talks.all([]talk{said})
				wait.Read(t, who, err)
				said.complete(t, who, heard[said.mark])
			})
			var asked atomic.Int64
			c.Everywhere(who, func(int) {
				tools := []string{"s3_list_buckets", "ec2_describe_instances", "s3_get_object"}
				tool := tools[asked.Add(1)%3]
				if text, code := helper(t, s, `{"action":"expand","tools":["`+tool+`"]}`); code != "" {
					t.Errorf("expand %s: %s %s", tool, code, text)
				}
				for range 3 { // wherever it is asked for
					if got := slices.Contains(rig.ListNames(t, s), tool); got == modern {
						t.Errorf("%s is listed: %v", tool, got)
					}
					if m, _ := s.Ask(t, "tools/call", `{"name":"`+tool+`","arguments":{}}`); rig.Code(m) == "SB-LAZY-004" || rig.Code(m) == "SB-CAP-001" {
						t.Errorf("%s is expanded, and called: %s", tool, m.Raw)
					}
				}
				if text, code := helper(t, s, `{"action":"collapse","tools":["`+tool+`"]}`); code != "" {
					t.Errorf("collapse %s: %s %s", tool, code, text)
				}
				for range 3 { // the others hear of it
					rig.Eventually(t, tool+" is collapsed", func() string {
						if left := tokens(t, s).Groups[0].Expanded; slices.Contains(left, tool) {
							return fmt.Sprint(left)
						}
						return ""
					})
				}
			})
		})
	}

	t.Run("each decides alike, to the byte", func(t *testing.T) {
		var said []string
		for _, g := range c.TakeTurn() {
			out, errs, code := rig.Command(t, c.Dir, "explain", "all", "--json", "--url", g.URL)
			if code != 0 || !strings.Contains(out, `"decision"`) {
				t.Errorf("explain: %d %s%s", code, out, errs)
			}
			said = append(said, out)
		}
		if len(said) != 3 || said[0] != said[1] || said[1] != said[2] {
			t.Errorf("they decide:\n%s", strings.Join(said, "\n"))
		}
	})
}

func TestATaskThatIsDeclaredAtOneReplicaIsBoundAtAll(t *testing.T) {
	t.Parallel()
	_, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"))
	c := rig.ServeReplicas(t, branches(url))
	for era, modern := range map[string]bool{"legacy": false, "modern": true} {
		s := c.Open(t, era, modern)
		const rows = `{"required_capabilities":[{"verb":"search","resource":"internet"},{"verb":"read","resource":"aws","load":"on_demand"}]}`
		if m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_declare_task","arguments":`+rows+`}`); rig.Code(m) != "" {
			t.Fatalf("%s: %s", era, m.Raw)
		}
		c.Everywhere(era, func(int) {
			if m, _ := s.Ask(t, "tools/call", `{"name":"web_search","arguments":{"query":"phishing"}}`); rig.Code(m) != "" {
				t.Errorf("%s: what was declared: %s", era, m.Raw)
			}
			if m, _ := s.Ask(t, "tools/call", `{"name":"post","arguments":{}}`); rig.Code(m) != "SB-CAP-001" {
				t.Errorf("%s: what was not: %s", era, m.Raw)
			}
			if m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_declare_task","arguments":`+rows+`}`); rig.Code(m) != "" {
				t.Errorf("%s: the same once more: %s", era, m.Raw)
			}
			if m, _ := s.Ask(t, "tools/call", `{"name":"switchboard_declare_task","arguments":{"required_capabilities":[{"verb":"read","resource":"aws"}]}}`); rig.Code(m) != "SB-TASK-002" {
				t.Errorf("%s: another one: %s", era, m.Raw)
			}
		})
	}
}

func TestAChangedListIsHeardWhicheverReplicaSawTheChange(t *testing.T) {
	t.Parallel()
	_, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"))
	c := rig.ServeReplicas(t, defaultTask(branches(url)))
	legacy, modern := c.Open(t, "legacy", false), c.Open(t, "modern", true)
	for i := range 3 { // each of whom makes one of the calls
		rig.ListNames(t, legacy)
		rig.ListNames(t, modern)
		heard := make(chan string, 6)
		for range 3 { // at each replica
			rig.Listen(t, heard, "modern", http.MethodPost, c.URL+"/mcp",
				`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
				http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
		}
		rig.Listen(t, heard, "legacy", http.MethodGet, c.URL+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
		name := fmt.Sprint("new_", i)
		grow := fmt.Sprintf(`{"name":"post","arguments":{"do":"grow","bytes":%q}}`, fmt.Sprintf(rig.Tool, name))
		at := &rig.Gateway{T: t, URL: c.TakeTurn()[0].URL}
		if m, _ := at.Open(t, "/mcp", true).Ask(t, "tools/call", grow); rig.Code(m) != "" {
			t.Fatalf("grow: %s", m.Raw)
		}
		for range 4 {
			wait.Receive(t, fmt.Sprintf("the change of replica %d", i), heard)
		}
		for who, s := range map[string]rig.Session{"legacy": legacy, "modern": modern} {
			for range 3 {
				if got := rig.ListNames(t, s); !slices.Contains(got, name) {
					t.Errorf("%s lists %q", who, got)
				}
			}
		}
	}
}

func TestOneReplicaIsKilledAndOneReplacedDuringTwoThousandCalls(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	const calls = 2000
	book, url := rig.KeepLedger(t, 2*time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
	c := rig.ServeReplicas(t, defaultTask(branches(url)))
	var made atomic.Int64
	result := make(chan []rig.Attempt, 1)
	go func() {
		defer close(result)
		result <- c.Load(calls, 16, nil, &made, c.CallPatiently)
	}()
	defer func() { // also when the test is late
		if twice := book.Twice(); len(twice) > 0 {
			t.Errorf("executed more than once: %q", twice)
		}
	}()
	var late wait.Lateness
	after := func(n int64) {
		rig.Eventually(t, "some calls are made", func() string {
			if made.Load() < n {
				return fmt.Sprint(made.Load())
			}
			return ""
		})
	}
	after(calls / 5)
	killing := time.Now()
	c.End(c.TakeTurn()[0], syscall.SIGKILL)
	killed := time.Now()
	after(2 * calls / 5)
	left := c.TakeTurn()[0]
	c.Add()
	c.End(left, syscall.SIGTERM)
	after(3 * calls / 5)
	c.Add()
	all := <-result
	if len(all) != calls {
		t.Fatalf("%d calls were made", len(all))
	}
	lost := 0
	for _, a := range all {
		switch unknown := a.Err != nil || a.Status == http.StatusBadGateway || rig.Code(a.Answer) == "SB-EXEC-004"; {
		case a.Good():
			if n := book.CountOf(fmt.Sprint(a.ID)); n != 1 {
				t.Errorf("call %d has an answer, and was executed %d times", a.ID, n)
			}
		case unknown && a.Began.Before(killed) && a.End.After(killing):
			lost++
			if rig.HasKey(a.ID) { // who repeats it is told what became of it, or that nobody knows
				if again := c.Open(t, "again", true).Try("post", a.ID); !again.Good() && rig.Code(again.Answer) != "SB-EXEC-004" {
					t.Errorf("lost, and repeated: %v", again)
				}
			}
		case wait.TimedOut(a.Err):
			late.Add("%v", a)
		default:
			t.Errorf("began %v after the kill: %v", a.Began.Sub(killed), a)
		}
	}
	// How many they are is chance: who has lost one makes the next while the replica is dying.
	t.Logf("%d calls were lost with the replica that was killed", lost)
	late.State(t)
}

func TestALimitHoldsOverAllReplicas(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	const burst = 20
	limited := `{"name":"post","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"notify","resource":"slack","constraints":["rate_limited"]}]}}`
	book, url := rig.KeepLedger(t, 0, limited)
	c := rig.ServeReplicas(t, strings.Replace(defaultTask(branches(url)), "default_task: all\n", fmt.Sprintf("default_task: all\nlimits:\n  - {match: {constraint: rate_limited}, rate: 1/h, burst: %d}\n", burst), 1))
	var made atomic.Int64
	granted := 0
	for _, a := range c.Load(3*burst, 9, nil, &made, c.CallPatiently) {
		switch {
		case a.Good():
			granted++
		case rig.Code(a.Answer) != "SB-ROUT-002":
			t.Error(a)
		}
	}
	if granted > burst || granted < burst-c.Repeated || len(book.Executed) != granted || len(book.Twice()) > 0 {
		t.Errorf("%d calls were granted and %d executed, want %d", granted, len(book.Executed), burst)
	}
}

func TestAKeyThatIsSentToAllReplicasAtOnceExecutesOnce(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	book, url := rig.KeepLedger(t, 100*time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
	c := rig.ServeReplicas(t, defaultTask(branches(url)))
	for i := range 5 {
		var all sync.WaitGroup
		var given atomic.Int64
		for j, g := range slices.Repeat(c.TakeTurn(), 4) {
			s := (&rig.Gateway{T: t, URL: g.URL}).Open(t, "/mcp", j%2 == 0)
			all.Go(func() {
				switch got := once(t, s, fmt.Sprint("k", i), "post", fmt.Sprintf(`{"id":%d}`, i)); {
				case got.code != "" || got.text != fmt.Sprintf(`{"id":%d}`, i):
					t.Errorf("%+v", got)
				case got.given:
					given.Add(1)
				}
			})
		}
		all.Wait()
		if n := book.CountOf(fmt.Sprint(i)); n != 1 || given.Load() != 11 {
			t.Errorf("executed %d times; given again to %d of 12", n, given.Load())
		}
	}
}

func TestServiceResumesSoonAfterRedisDoes(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	const within = 10 * time.Second // of which a busy machine may take most
	for what, outage := range map[string]func(*redistest.Server){
		"killed and started again": func(r *redistest.Server) { r.Kill(); r.Start() },
		"paused for 10 s":          func(r *redistest.Server) { r.Pause(); <-time.After(10 * time.Second); r.Resume() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			book, url := rig.KeepLedger(t, time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
			c := rig.ServeReplicas(t, defaultTask(branches(url)))
			var made atomic.Int64
			stop := make(chan struct{})
			halt := sync.OnceFunc(func() { close(stop) })
			defer halt()
			var late wait.Lateness
			result := make(chan []rig.Attempt, 1)
			go func() {
				defer close(result)
				result <- c.Load(1<<30, 8, stop, &made, c.CallOnce)
			}()
			rig.Eventually(t, "calls are made", func() string {
				if made.Load() < 100 {
					return fmt.Sprint(made.Load())
				}
				return ""
			})
			outage(c.Redis)
			back := time.Now()
			// A new session needs the store; it is what shows that all is well.
			for {
				s := &rig.HTTPSession{URL: c.URL + "/mcp", Header: http.Header{rig.ClientHeader: {"prober"}}}
				m, resp := s.Post(t, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`, nil)
				if resp.Header.Get("Mcp-Session-Id") != "" {
					break
				}
				if time.Since(back) > rig.Patience {
					wait.Late(t, "no session can be opened: %s", m.Raw)
				}
				<-time.After(20 * time.Millisecond)
			}
			opened := time.Since(back)
			if opened > within {
				late.Add("a session could be opened %v after Redis was back", opened)
			}
			before := made.Load()
			rig.Eventually(t, "calls go on", func() string {
				if made.Load() < before+100 {
					return fmt.Sprint(made.Load() - before)
				}
				return ""
			})
			halt()
			refused := map[string]int{}
			last := time.Duration(0)
			for _, a := range <-result {
				n := book.CountOf(fmt.Sprint(a.ID))
				switch code := rig.Code(a.Answer); {
				case a.Good() && n == 1:
				case a.Err == nil && strings.HasPrefix(code, "SB-") && code != "SB-EXEC-004" && n == 0:
					refused[code]++
					last = max(last, a.End.Sub(back))
				case wait.TimedOut(a.Err) && n <= 1:
					late.Add("%v", a)
				default:
					t.Errorf("executed %d times: %v", n, a)
				}
			}
			if last > within {
				late.Add("a call was refused %v after Redis was back", last)
			}
			t.Logf("a session could be opened %v after Redis was back; refused meanwhile: %v, the last one %v after", opened, refused, last)
			late.State(t)
		})
	}
}
