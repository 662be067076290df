package served_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/fakeserver"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// branch is a replica whose switchboard.yaml is a link to a file in a folder that nobody
// watches, so that it learns of a change there from others alone.
type branch struct {
	*rig.Gateway
	unseen string
}

// branchesOf are n replicas, each with files of its own.
func branchesOf(t *testing.T, n int, archive string) (all []*branch, redis *redistest.Server) {
	t.Helper()
	redis = redistest.Start(t)
	for range n {
		dir := rig.LayOut(t, strings.Replace(archive, "-- switchboard.yaml --\n", fmt.Sprintf("-- secret --\nwhat all replicas know\n-- real/switchboard.yaml --\nstore: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\n", redis.URL()), 1))
		if err := os.Symlink("real/switchboard.yaml", filepath.Join(dir, "switchboard.yaml")); err != nil {
			t.Fatal(err)
		}
		all = append(all, &branch{rig.Serve(t, dir), filepath.Join(dir, "real/switchboard.yaml")})
	}
	return all, redis
}

// reloads is how often the replica has read its configuration again, by what came of it.
func (b *branch) reloads(result string) float64 {
	b.T.Helper()
	_, values := b.Metrics()
	return values["switchboard_reloads_total "+result]
}

// until waits until the replica has read its configuration so often, or more.
func (b *branch) until(result string, n float64) {
	b.T.Helper()
	rig.Eventually(b.T, fmt.Sprintf("%s is read %g times: %s", b.URL, n, result), func() string {
		if got := b.reloads(result); got < n {
			return fmt.Sprint(got)
		}
		return ""
	})
}

// change changes a replica's configuration, so that it does not see it by itself.
func (b *branch) change(old, now string) {
	b.T.Helper()
	text := rig.ReadFile(b.T, b.unseen)
	if !strings.Contains(text, old) {
		b.T.Fatalf("there is no %q in %s", old, text)
	}
	rig.WriteFile(b.T, b.unseen, strings.Replace(text, old, now, 1))
}

// put puts a file in its place, whole.
func (b *branch) put(name, text string) {
	b.T.Helper()
	file := filepath.Join(b.T.TempDir(), "file")
	rig.WriteFile(b.T, file, text)
	if err := os.Rename(file, filepath.Join(b.Dir, name)); err != nil {
		b.T.Fatal(err)
	}
}

// notices counts what replicas tell each other of reloads.
type notices struct {
	t     *testing.T
	store store.Store
	told  atomic.Int64
	ours  chan struct{}
}

const topicReloads, ours = "reloads", "the test"

func heed(t *testing.T, redis *redistest.Server) *notices {
	t.Helper()
	st, err := store.Open(t.Context(), redis.URL(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &notices{t: t, store: st, ours: make(chan struct{}, 1)}
	stop := st.Subscribe(topicReloads, func(from []byte) {
		if string(from) == ours {
			n.ours <- struct{}{}
		} else {
			n.told.Add(1)
		}
	})
	t.Cleanup(func() {
		stop()
		_ = st.Close()
	})
	return n
}

// so returns how often replicas have told of a reload by now: whatever was published
// before ours is heard before it. Each replica reads its configuration once more for that.
func (n *notices) so() int64 {
	n.t.Helper()
	if err := n.store.Publish(n.t.Context(), topicReloads, []byte(ours)); err != nil {
		n.t.Fatal(err)
	}
	wait.Receive(n.t, "what was published", n.ours)
	return n.told.Load()
}

func TestAReloadOfOneReplicaIsOneReloadOfEachAndIsToldOnce(t *testing.T) {
	t.Parallel()
	all, redis := branchesOf(t, 3, strings.Replace(rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work")), rig.FakeRow("b", fmt.Sprintf(rig.Tool, "rest"))),
		`servers: ["*"]`, `servers: ["a"]`, 1))
	told := heed(t, redis)
	heard := make(chan string, 6)
	var sessions []rig.Session
	for i, g := range all {
		legacy, modern := g.Open(t, "/mcp", false), g.Open(t, "/mcp", true)
		sessions = append(sessions, legacy, modern)
		rig.Listen(t, heard, fmt.Sprint("legacy ", i), http.MethodGet, g.URL+"/mcp", "", http.Header{"Mcp-Session-Id": {legacy.ID}, "Mcp-Protocol-Version": {"2025-11-25"}})
		rig.Listen(t, heard, fmt.Sprint("modern ", i), http.MethodPost, g.URL+"/mcp",
			`{"jsonrpc":"2.0","id":"mine","method":"subscriptions/listen","params":`+rig.WithMeta(`{"notifications":{"toolsListChanged":true}}`)+`}`,
			http.Header{"Mcp-Protocol-Version": {"2026-07-28"}, "Mcp-Method": {"subscriptions/listen"}})
	}
	for _, s := range sessions {
		if got := rig.ListNames(t, s); fmt.Sprint(got) != "[work]" {
			t.Fatalf("before, there are %q", got)
		}
	}
	for _, g := range all {
		g.change(`servers: ["a"]`, `servers: ["*"]`)
	}
	all[1].Signal(t, syscall.SIGHUP)
	for range 6 {
		wait.Receive(t, "that every client's list has changed", heard)
	}
	for i, s := range sessions {
		rig.Eventually(t, "the new tool is listed", func() string {
			if got := fmt.Sprint(rig.ListNames(t, s)); got != "[rest work]" && got != "[work rest]" {
				return fmt.Sprint(i, got)
			}
			return ""
		})
	}
	for _, g := range all {
		g.until("ok", 1)
	}

	// Who passes on what it has heard does so when, or after, it has read: and so, if at all,
	// before it has read once more, for us.
	for round := range 2 {
		if n := told.so(); n != 1 {
			t.Errorf("the reload was told %d times", n)
		}
		for _, g := range all {
			g.until("unchanged", float64(round+1))
		}
	}

	// Who is told to look where nothing is new looks, and has the others look, once each time.
	for range 3 {
		read := all[0].reloads("unchanged")
		all[0].Signal(t, syscall.SIGHUP)
		all[0].until("unchanged", read+1)
	}
	if n := told.so(); n != 4 {
		t.Errorf("3 signals were told %d times", n-1)
	}
	// A file that is written and says the same is told to nobody.
	const file = "tenants/default/tenant.yaml"
	settled := func() float64 { // no notice is on its way
		for _, g := range all {
			read := g.reloads("unchanged")
			told.so()
			g.until("unchanged", read+1)
		}
		return all[2].reloads("unchanged")
	}
	read := settled()
	all[2].put(file, rig.ReadFile(t, filepath.Join(all[2].Dir, file)))
	all[2].until("unchanged", read+1)
	if n := told.so(); n != 4 {
		t.Errorf("a file that says the same was told %d times", n-4)
	}
	// Many notices at once are one reason to look.
	read = settled()
	for range 50 {
		told.so()
	}
	all[2].until("unchanged", read+1)
	settled()
	if n := all[2].reloads("unchanged") - read; n > 25 {
		t.Errorf("50 notices had it read %g times", n)
	}
	for _, g := range all {
		if g.reloads("ok") != 1 || g.reloads("refused") != 0 {
			t.Errorf("it was read %g times, and refused %g times", g.reloads("ok"), g.reloads("refused"))
		}
	}
}

func TestAFileThatChangesAtOneReplicaHasTheOthersReadTheirsAndWhoDiffersIsFoundOut(t *testing.T) {
	t.Parallel()
	all, redis := branchesOf(t, 3, rig.Fakes(rig.FakeRow("a", fmt.Sprintf(rig.Tool, "work"))))
	told := heed(t, redis)
	hash := func(g *branch) float64 {
		t.Helper()
		_, values := g.Metrics()
		return values["switchboard_configuration_hash"]
	}
	one := hash(all[0])
	if one == 0 || hash(all[1]) != one || hash(all[2]) != one {
		t.Errorf("they serve the same: %v %v %v", one, hash(all[1]), hash(all[2]))
	}
	for _, g := range all {
		rig.Eventually(t, "they know each other", func() string {
			if out, _, code := rig.Command(t, g.Dir, "status", "--url", g.URL); code != 0 || !strings.Contains(out, "\nwith 2 other replicas: ") || strings.Contains(out, "different configurations") {
				return out
			}
			return ""
		})
	}

	// The new version reaches two of them, and the third one's is broken.
	const task, more = "tenants/default/tasks/more.yaml", "task_id: more\nrequired_capabilities:\n  - {tools: [\"a/*\"]}\n"
	all[1].change("start_deadline: 30s", "start_deadline: 31s")
	all[2].change("start_deadline: 30s", "start_deadlin: 31s")
	all[0].change("start_deadline: 30s", "start_deadline: 31s")
	all[0].put(task, more)
	all[0].until("ok", 1)
	all[1].until("ok", 1)
	all[2].until("refused", 1)
	if got := all[2].Readyz(); !strings.HasPrefix(got, `200 {"ready":true,"configuration_refused":{"age_seconds":`) {
		t.Errorf("/readyz of the one whose files are broken: %s", got)
	}
	all[2].Do(1, `(?s)was refused; the one from .* runs on.*start_deadlin`, "status")
	if _, values := all[2].Metrics(); values["switchboard_configuration_refused"] != 1 || !strings.Contains(all[2].Logged(), "reload refused; the running configuration stays") {
		t.Errorf("it is refused: %v", values["switchboard_configuration_refused"])
	}
	if got := rig.ListNames(t, all[2].Open(t, "/mcp", true)); len(got) != 1 {
		t.Errorf("it keeps what it has: %q", got)
	}
	// The first one's task is not the second one's.
	if a, b, c := hash(all[0]), hash(all[1]), hash(all[2]); a == b || b == c || a == c || c != one {
		t.Errorf("three different configurations: %v %v %v", a, b, c)
	}
	rig.Eventually(t, "status tells who differs", func() string {
		out, _, code := rig.Command(t, all[0].Dir, "status", "--url", all[0].URL)
		if code != 1 || strings.Count(out, "'s is sha256:") != 3 || !strings.Contains(out, "\nReplicas decide by different configurations. This one's is sha256:") {
			return out
		}
		return ""
	})

	// They are mended, and the same again.
	all[1].put(task, more)
	all[2].put(task, more)
	all[2].change("start_deadlin: 31s", "start_deadline: 31s")
	all[1].Signal(t, syscall.SIGHUP)
	rig.Eventually(t, "they serve the same again", func() string {
		if a, b, c := hash(all[0]), hash(all[1]), hash(all[2]); a != b || b != c || a == one {
			return fmt.Sprint(a, b, c)
		}
		if got := all[2].Readyz(); got != `200 {"ready":true}` {
			return got
		}
		return ""
	})
	for _, g := range all {
		rig.Eventually(t, "status is content", func() string {
			if out, _, code := rig.Command(t, g.Dir, "status", "--url", g.URL); code != 0 {
				return out
			}
			return ""
		})
	}
	if n := told.so(); n < 2 || n > 6 {
		t.Errorf("reloads were told %d times", n)
	}
}

// A turnstile is a fake that remembers with which token it was asked last, and how often it was
// connected to.
type turnstile struct {
	*fakeserver.Server
	token     atomic.Pointer[string]
	connected atomic.Int64
}

func (f *turnstile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	if bytes.Contains(body, []byte(`"initialize"`)) {
		f.connected.Add(1)
	}
	token := r.Header.Get("X-Token")
	f.token.Store(&token)
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.Server.ServeHTTP(w, r)
}

func TestReadAgainTheSameSecretsAreNoChangeAndAnotherTakesEffect(t *testing.T) {
	t.Parallel()
	behind := &turnstile{Server: fakeserver.New([]string{fmt.Sprintf(rig.Tool, "one")})}
	server := httptest.NewServer(behind)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	child := strings.Replace(rig.FakeRow("b", fmt.Sprintf(rig.Tool, "two")), "stdio,", `stdio, env: {X_TOKEN: "${file:token}"},`, 1)
	all, _ := branchesOf(t, 1, rig.Fakes(fmt.Sprintf(`a: {transport: http, url: %q, headers: {X-Token: "${file:token}"}}`, server.URL), child)+"-- token --\nfirst-token\n")
	b := all[0]
	rig.ListNames(t, b.Open(t, "/mcp", true))
	connected, was := behind.connected.Load(), rig.Children(b.Cmd.Process.Pid)
	if got := *behind.token.Load(); got != "first-token" || connected == 0 || len(was) == 0 {
		t.Fatalf("asked with %q, connected to %d times, children %v", got, connected, was)
	}

	b.put("token", "first-token\n")
	b.Signal(t, syscall.SIGHUP)
	b.until("unchanged", 1)
	if b.reloads("ok") != 0 || behind.connected.Load() != connected || !slices.Equal(rig.Children(b.Cmd.Process.Pid), was) {
		t.Errorf("the same secrets: %g reloads, connected to %d times, children %v, and before %v", b.reloads("ok"), behind.connected.Load(), rig.Children(b.Cmd.Process.Pid), was)
	}

	b.put("token", "other-token\n")
	b.Signal(t, syscall.SIGHUP)
	b.until("ok", 1)
	rig.Eventually(t, "both servers are reached with the other token", func() string {
		now := rig.Children(b.Cmd.Process.Pid)
		if got := *behind.token.Load(); got != "other-token" || slices.ContainsFunc(now, func(pid int) bool { return slices.Contains(was, pid) }) || len(now) == 0 {
			return fmt.Sprint(got, now, was)
		}
		return ""
	})

	b.put("secret", "what no other replica knows\n") // that of the cluster
	b.Signal(t, syscall.SIGHUP)
	b.until("refused", 1)
	b.put("secret", "what all replicas know\n")
	b.Signal(t, syscall.SIGHUP)
	b.until("unchanged", 2)
}
