package served_test

import (
	"bufio"
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A clerk is a fake behind that writes down when it executes what, by the id in the
// arguments.
type clerk struct {
	*fakeserver.Server
	mu       sync.Mutex
	executed map[int][]time.Time
}

func (c *clerk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var q fakeserver.Request
	if json.Unmarshal(body, &q) == nil && q.Method == "tools/call" {
		if id, err := strconv.Atoi(string(q.Params.Arguments["id"])); err == nil {
			c.mu.Lock()
			c.executed[id] = append(c.executed[id], time.Now())
			c.mu.Unlock()
			<-time.After(time.Millisecond) // so that calls are under way when it is killed
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	c.Server.ServeHTTP(w, r)
}

// The limit of "paced": so low that it would show if it began anew with a process.
const (
	pacedBurst = 20
	pacedEvery = time.Second / 2
)

// A survivor is a switchboard that is killed and started again on the same folder, while
// its clients go on.
type survivor struct {
	t      *testing.T
	binary string
	dir    string
	clerk  *clerk
	redis  *redistest.Server // nil where the store is a file

	mu     sync.Mutex
	cmd    *exec.Cmd
	log    bytes.Buffer
	url    string // "" while it is not there
	life   int    // how often it was started
	ended  bool   // in good order
	over   bool
	turn   *sync.Cond // url, life or over is another
	all    []lived
	starts []time.Duration // until it said its address
}

// lived is an attempt, and the life in which it was made.
type lived struct {
	rig.Attempt
	tool  string
	life  int
	again bool // it was made before
	known bool // and had an answer
}

// Write takes what is logged in all its lives.
func (s *survivor) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func newSurvivor(t *testing.T, redis *redistest.Server) *survivor {
	t.Helper()
	paced := `{"name":"paced","inputSchema":{"type":"object"},"_meta":{"x-summit-capabilities":[{"verb":"notify","resource":"slack","constraints":["rate_limited"]}]}}`
	look := `{"name":"look","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}`
	c := &clerk{Server: fakeserver.New([]string{fmt.Sprintf(rig.Tool, "post"), paced, look}), executed: map[int][]time.Time{}}
	behind := httptest.NewServer(c)
	settings := ""
	if redis != nil {
		settings = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL())
	}
	s := &survivor{t: t, binary: rig.Plain, clerk: c, redis: redis}
	s.turn = sync.NewCond(&s.mu)
	s.dir = rig.LayOut(t, fmt.Sprintf(`
-- secret --
%s
-- switchboard.yaml --
%sservers:
  post: {transport: http, url: %q, trust: operator}
tenants:
  default: {servers: ["*"], allow: [by_name]}
-- tenants/default/tenant.yaml --
tenant: default
default_task: all
limits:
  - {match: {constraint: rate_limited}, rate: %d/s, burst: %d}
-- tenants/default/tasks/all.yaml --
task_id: all
required_capabilities:
  - {tools: ["*/*"]}
`, survivorSecret, settings, behind.URL, time.Second/pacedEvery, pacedBurst))
	t.Cleanup(func() {
		s.kill()
		behind.CloseClientConnections()
		behind.Close()
		if t.Failed() {
			text := s.log.String()
			t.Logf("the end of the log:\n%s", text[max(0, len(text)-20_000):])
		}
		if strings.Contains(s.log.String(), "DATA RACE") || strings.Contains(s.log.String(), "panic") {
			t.Error("the log tells of a race or a panic")
		}
	})
	return s
}

const survivorSecret = "what every life of it knows"

// begin starts it, and returns its first line.
func (s *survivor) begin() <-chan string {
	s.t.Helper()
	cmd := exec.Command(s.binary, "serve", "--listen", "127.0.0.1:0")
	cmd.Dir, cmd.Stderr = s.dir, s
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.cmd, s.ended = cmd, false
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		first <- strings.TrimSuffix(strings.TrimSpace(line), "/mcp")
		_, _ = io.Copy(io.Discard, out)
	}()
	return first
}

// live starts it, and lets its clients go on.
func (s *survivor) live() {
	s.t.Helper()
	began := time.Now()
	url := wait.Receive(s.t, "its address", s.begin())
	if url == "" {
		s.t.Fatalf("life %d: it does not serve", s.life)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, time.Since(began))
	s.url, s.life = url, s.life+1
	s.turn.Broadcast()
}

// stop ends it in good order.
func (s *survivor) stop() {
	s.t.Helper()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("it ended with %v", err)
	}
	s.ended = true
}

// kill ends it with SIGKILL.
func (s *survivor) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.url = ""
}

// at waits until it lives on after the given life; it returns 0 once nobody shall call it
// any more.
func (s *survivor) at(after int) (url string, life int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.url == "" || s.life <= after {
		if s.over {
			return "", 0
		}
		s.turn.Wait()
	}
	if s.over {
		return "", 0
	}
	return s.url, s.life
}

// toolOf is what is called with an id.
func toolOf(id int) string {
	switch id % 8 {
	case 0, 4:
		return "look"
	case 3, 6:
		return "paced"
	}
	return "post"
}

// close has nobody call it from now on, or takes that back.
func (s *survivor) close(over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = over
	s.turn.Broadcast()
}

// A client of a survivor.
type client struct {
	*rig.HTTPSession
	lost int // the life that it has seen end
}

// call makes a call in the life that there is; it is false where there is none any more.
func (s *survivor) call(c *client, id int, again, known bool) (lived, bool) {
	url, life := s.at(c.lost)
	if life == 0 {
		return lived{}, false
	}
	c.URL = url + "/mcp"
	l := lived{c.Try(toolOf(id), id), toolOf(id), life, again, known}
	if l.Err != nil {
		c.lost = life
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, l)
	return l, true
}

// answered returns how many calls have had an answer.
func (s *survivor) answered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, l := range s.all {
		if l.Err == nil {
			n++
		}
	}
	return n
}

// work calls until there is nobody to call: mostly something new, and now and then once
// more what was answered under a key.
func (s *survivor) work(c *client, luck *rand.Rand, first, step int) {
	var kept []int
	for id := first; ; id += step {
		l, there := s.call(c, id, false, false)
		if !there {
			return
		}
		if l.Good() && rig.HasKey(id) {
			kept = append(kept, id)
		}
		if len(kept) > 0 && luck.IntN(8) == 0 {
			if _, there := s.call(c, kept[luck.IntN(len(kept))], true, true); !there {
				return
			}
		}
	}
}

// Laws 6 and 9: whenever it is killed, nothing that a client was told is lost, nothing with
// a key is done twice, and no limit is exceeded.
func TestAHundredKillsUnderLoadBreakNoLaw(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	const kills = 100
	for i, sessions := range []int{1, 16, 64} {
		own := (kills + i) / 3 // of the kills with each store
		t.Run(fmt.Sprintf("file, %d sessions", sessions), func(t *testing.T) {
			t.Parallel()
			newSurvivor(t, nil).survive(sessions, own, nil)
		})
		t.Run(fmt.Sprintf("redis, %d sessions", sessions), func(t *testing.T) {
			t.Parallel()
			newSurvivor(t, redistest.Start(t)).survive(sessions, own, nil)
		})
	}
	t.Run("redis is killed as well", func(t *testing.T) {
		t.Parallel()
		redis := redistest.Start(t)
		newSurvivor(t, redis).survive(4, kills/10, func() {
			redis.Kill()
			mend(t, redis)
			redis.Start()
		})
	})
}

// mend takes half a transaction off the end of what a Redis that was killed has written, as
// docs/state.md says: Redis itself would leave it there, and have it done when it is started
// for a second time.
func mend(t *testing.T, redis *redistest.Server) {
	t.Helper()
	mendFolder(t, redis.Dir())
}

// mendFolder is mend for the folder of a Redis.
func mendFolder(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("redis-check-aof", "--fix", filepath.Join(dir, "appendonlydir", "appendonly.aof.manifest"))
	cmd.Stdin = strings.NewReader("y\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("redis-check-aof: %v\n%s", err, out)
	}
}

// survive has it killed so often under the load of so many sessions, and whatever else happens
// now and then, and looks at what is left.
func (s *survivor) survive(sessions, kills int, besides func()) {
	seed := law.Seed(s.t)
	luck := rand.New(rand.NewPCG(seed, 0))
	s.live()
	var clientele []*client
	for i := range sessions {
		web := (&rig.Gateway{T: s.t, URL: s.url}).Open(s.t, "/mcp", i%2 == 1)
		clientele = append(clientele, &client{HTTPSession: web})
		if i == 2 { // makes two calls at once
			again := *web
			clientele = append(clientele, &client{HTTPSession: &again})
		}
	}
	var working sync.WaitGroup
	refused := 0
	var once sync.Once // not OnceFunc, which a test may not end
	judge := func() {
		s.clerk.mu.Lock() // what was under way when it was killed may still come
		defer s.clerk.mu.Unlock()
		defer s.judgeLimit()
		if (s.t.Skipped() || s.t.Failed()) && s.redis != nil && !s.redis.Serves() {
			s.t.Log("Redis does not come back, so that the receipts cannot be judged")
			s.judgeTwice()
			return
		}
		refused = s.judge(besides != nil)
	}
	defer func() { // what there is when the test is late
		s.kill()
		s.close(true)
		working.Wait()
		once.Do(judge)
	}()
	for i, c := range clientele {
		working.Go(func() { s.work(c, rand.New(rand.NewPCG(seed, uint64(i+1))), i+1, len(clientele)) })
	}
	for n := range kills {
		want := s.answered() + luck.IntN(30)
		rig.Eventually(s.t, "calls are answered", func() string {
			if got := s.answered(); got < want {
				return fmt.Sprintf("life %d: %d of %d", s.life, got, want)
			}
			return ""
		})
		if besides != nil {
			besides()
		}
		s.kill()
		if n%10 == 9 { // as it starts
			s.begin()
			<-time.After(time.Duration(luck.IntN(300)) * time.Millisecond)
			s.kill()
		}
		s.live()
	}
	s.close(true)
	working.Wait()
	s.close(false)
	late := s.settle(clientele)
	s.stop()
	once.Do(judge)

	slices.Sort(s.starts)
	slow := 0
	for _, took := range s.starts {
		if took > time.Second {
			slow++
		}
	}
	n := len(s.starts)
	s.t.Logf("%d calls in %d lives; until it serves: p50 %s, p95 %s, at most %s; %d took more than a second", len(s.all), n, s.starts[n/2], s.starts[n*95/100], s.starts[n-1], slow)
	if len(late) > 0 {
		wait.Late(s.t, "the store did not answer: %v", late)
	}
	if besides == nil && refused > len(s.all)/2 {
		wait.Late(s.t, "%d of %d calls were refused for want of a store that was there, or of time", refused, len(s.all))
	}
}

// settle asks once more for what was lost and had a key, until somebody knows. It returns
// what the store was late for.
func (s *survivor) settle(clientele []*client) (late []rig.Attempt) {
	lost := map[int]bool{}
	for _, l := range s.all {
		if l.Err != nil && !l.again && rig.HasKey(l.ID) {
			lost[l.ID] = true
		}
	}
	began := time.Now()
	var settling sync.WaitGroup
	atOnce := make(chan struct{}, 256) // half of what one principal may have in flight
	for id := range lost {
		web := *clientele[id%len(clientele)].HTTPSession
		settling.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			l, _ := s.call(&client{HTTPSession: &web}, id, true, false)
			for outOfTime(rig.Code(l.Answer)) && time.Since(began) < rig.Patience {
				<-time.After(20 * time.Millisecond)
				l, _ = s.call(&client{HTTPSession: &web}, id, true, false)
			}
			if outOfTime(rig.Code(l.Answer)) {
				s.mu.Lock()
				defer s.mu.Unlock()
				late = append(late, l.Attempt)
				return
			}
			if code := rig.Code(l.Answer); !l.Good() && code != "SB-EXEC-004" && code != "SB-ROUT-002" {
				s.t.Errorf("lost, and asked for again: %v", l.Attempt)
			}
		})
	}
	settling.Wait()
	s.t.Logf("%d calls with a key were lost, and asked for again", len(lost))
	return late
}

// outOfTime reports whether a refusal says that the store or policy had no time, as on a busy
// machine. Then nothing was done.
func outOfTime(said string) bool {
	return strings.Contains(said, "SB-ROUT-004") || strings.Contains(said, "SB-RCPT-001") || strings.Contains(said, "SB-POL-002")
}

// judgeTwice looks for what was executed twice.
func (s *survivor) judgeTwice() {
	for _, l := range s.all {
		if n := len(s.clerk.executed[l.ID]); n > 1 && l.tool != "look" {
			s.t.Errorf("executed %d times: %v", n, l.Attempt)
		}
	}
}

// judge holds what the clients saw against what was executed and what is in the receipts.
// The store may have failed where something was done besides, and have been late where it is
// Redis. It returns how many calls were refused for that, or for want of time.
func (s *survivor) judge(besides bool) (late int) {
	t := s.t
	s.judgeTwice()
	said := map[string][]receiptLine{} // by the digest of the arguments, and the tool
	denied := map[string]bool{}        // receipts of refusals, which say nothing of arguments
	for _, r := range receipts(t, s.dir) {
		if r.Entry.Receipt.Code != "" {
			node, _, _ := strings.Cut(r.ID, "/")
			denied[node+"/"+r.Entry.Receipt.Time] = true // the id that answers have
		}
		about := r.Entry.Receipt.Arguments + " " + r.Entry.Receipt.Tool
		said[about] = append(said[about], r)
	}
	if out, errs, code := rig.Command(t, s.dir, "receipts", "verify"); code != 0 {
		t.Errorf("receipts verify: %s%s", out, errs)
	}
	digest := s.digests()
	repeated, last := map[int]bool{}, map[int]time.Time{} // when a life's last call with an intent that was answered began
	for _, l := range s.all {
		repeated[l.ID] = repeated[l.ID] || l.again
		if l.Good() && l.tool != "look" && !l.again && l.Began.After(last[l.life]) { // a repeated call may have the outcome of the first one
			last[l.life] = l.Began
		}
	}
	if s.ended {
		last[s.life] = time.Now()
	}
	answers := map[string]int{}
	for _, l := range s.all {
		n := len(s.clerk.executed[l.ID])
		intents, outcomes := 0, 0
		for _, r := range said[digest(l.ID)+" "+l.tool] {
			switch got := r.Entry.Receipt; {
			case got.Kind == "intent":
				intents++
			case got.Code == rig.Code(l.Answer) && (got.Outcome == "ok") == l.Good():
				outcomes++
			}
		}
		if n > 0 && intents == 0 && l.tool != "look" {
			t.Errorf("it was executed, and has no intent: %v", l.Attempt)
		}
		if l.Err != nil {
			answers["lost"]++
			continue
		}
		if denied[rig.Receipt(l.Answer)] {
			outcomes++
		}
		answers[l.tool+" "+rig.Code(l.Answer)]++
		switch code := rig.Code(l.Answer); {
		case l.Good() && n == 0:
			t.Errorf("it has an answer, and was not executed: %v", l.Attempt)
		case l.Good():
		case code == "SB-ROUT-002" && l.tool == "paced" && n == 0:
		case code == "SB-EXEC-004" && l.again && (!l.known || besides):
		case (code == "SB-ROUT-004" || code == "SB-RCPT-001") && (besides || s.redis != nil) && (n == 0 || l.again): // gone, or late
			late++
		case code == "SB-POL-002" && (n == 0 || l.again): // policy had no time, and none of it denies anything
			late++
		default:
			t.Errorf("executed %d times: %v", n, l.Attempt)
		}
		if !repeated[l.ID] && intents > 1 {
			t.Errorf("it has %d intents: %v", intents, l.Attempt)
		}
		// What came of a call waits for nothing, but stands before what is waited for later.
		code := rig.Code(l.Answer)
		unrecorded := code == "SB-RCPT-001" || code == "SB-ROUT-004" && rig.Receipt(l.Answer) == "" // a store that cannot say whose session it is takes no receipt either
		if outcomes == 0 && l.End.Before(last[l.life]) && !unrecorded {
			t.Errorf("life %d: it was answered, and a later call was; its outcome is not recorded: %v", l.life, l.Attempt)
		}
	}
	t.Log("answers: ", answers)
	return late
}

// judgeLimit looks at each span of time: whatever began and was executed within it was
// counted within it.
func (s *survivor) judgeLimit() {
	type span struct{ began, executed time.Time }
	var all []span
	first := map[int]time.Time{}
	for _, l := range s.all {
		if at := first[l.ID]; l.tool == "paced" && (at.IsZero() || l.Began.Before(at)) {
			first[l.ID] = l.Began
		}
	}
	for id, began := range first {
		for _, at := range s.clerk.executed[id] {
			all = append(all, span{began, at})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return b.began.Compare(a.began) })
	var ends []time.Time // of those that began since, in their order
	for _, one := range all {
		i, _ := slices.BinarySearchFunc(ends, one.executed, time.Time.Compare)
		ends = slices.Insert(ends, i, one.executed)
		for n, end := range ends {
			took := end.Sub(one.began)
			if most := pacedBurst + int(took/pacedEvery) + 1; n+1 > most {
				s.t.Fatalf("%d were granted in %s, of %d at most", n+1, took, most)
			}
		}
	}
	if len(all) < pacedBurst && s.ended {
		s.t.Errorf("%d were granted in all, of %d at once", len(all), pacedBurst)
	}
	s.t.Logf("%d were granted by the limit", len(all))
}

// digests returns how the arguments of a call look in its receipts, as docs/receipts.md says.
func (s *survivor) digests() func(id int) string {
	if s.redis != nil {
		return digestsUnder(s.t, survivorSecret)
	}
	return digestsUnder(s.t, strings.TrimSpace(rig.ReadFile(s.t, filepath.Join(s.dir, ".switchboard", "receipts.key"))))
}

// digestsUnder is digests for a secret.
func digestsUnder(t *testing.T, secret string) func(id int) string {
	t.Helper()
	derived := func(secret, purpose string) []byte {
		key, err := hkdf.Key(sha256.New, []byte(secret), nil, purpose, sha256.Size)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	own := base64.RawURLEncoding.EncodeToString(derived(secret, "switchboard receipts: digests"))
	key := derived(own, "switchboard receipts of tenant default")
	return func(id int) string {
		h := hmac.New(sha256.New, key)
		_, _ = fmt.Fprintf(h, "arguments\x00{\"id\":%d}", id)
		return "hmac-sha256:" + base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	}
}

// configure writes a configuration with the server at that URL into dir. redis is nil where the
// store is a file.
func configure(t *testing.T, dir, server string, redis *redistest.Server) {
	t.Helper()
	settings := ""
	if redis != nil {
		settings = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL())
	}
	for name, text := range map[string]string{
		"secret":                         survivorSecret,
		"switchboard.yaml":               settings + fmt.Sprintf("receipts: {keep: 87600h}\nservers: {post: {transport: http, url: %q}}\ntenants: {default: {servers: [\"*\"], allow: [by_name]}}\n", server),
		"tenants/default/tenant.yaml":    "tenant: default\ndefault_task: all\n",
		"tenants/default/tasks/all.yaml": "task_id: all\nrequired_capabilities: [{tools: [\"*/*\"]}]\n",
	} {
		rig.WriteFile(t, filepath.Join(dir, name), text)
	}
}
