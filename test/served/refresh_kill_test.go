package served_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var refreshKills = flag.Int("refresh-kills", 4, "how many processes TestCD12ProcessesThatAreKilledUseNoRefreshTokenTwice kills with each store; 200 is what is promised")

const (
	refreshLifetime = 2 * time.Second // of access tokens: they are renewed after half of it
	refreshTakes    = 60              // milliseconds at most, at the provider
)

// refreshers are three processes that share a store, and people whose tokens expire all the time.
type refreshers struct {
	*persons
	t     *testing.T
	names []string
	start func() *rig.Gateway

	mu   sync.Mutex
	all  []*rig.Gateway  // those that live
	lost map[string]bool // people who must connect again

	good, cut, connectFirst, other atomic.Int64
}

// CD-12 on the served path: three processes on one folder, and three on a Redis, serve people whose tokens expire all the time, and are killed around refreshes. The
// provider has never seen a refresh token twice. Before that, 64 calls at the expiry cause one refresh.
func TestCD12ProcessesThatAreKilledUseNoRefreshTokenTwice(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NeverTwice)
	for _, kind := range []string{"file", "redis"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			serveRefreshers(t, kind).survive(*refreshKills)
		})
	}
}

// serveRefreshers starts the processes, and connects the people.
func serveRefreshers(t *testing.T, kind string) *refreshers {
	t.Helper()
	a := rig.ServeAuthority(t, time.Hour)
	r := &refreshers{persons: &persons{a: a, h: rig.ServeHostedBy(t, a)}, t: t, lost: map[string]bool{}}
	settings := ""
	if kind == "redis" {
		settings = fmt.Sprintf("store: %q\ncluster: {secret: \"${file:secret}\", listen: \"127.0.0.1:0\"}\nvault: {key: \"${file:secret}\"}\n", redistest.Start(t).URL())
	}
	text, keys := archiveOfPeople(t, r.h.Resource, settings)
	people := 12
	if *refreshKills > 20 { // a refresh that is cut off makes its person wait for half a minute
		people = 24
	}
	for i := range people {
		name := fmt.Sprintf("person-%c", 'a'+i)
		key, hash := identity.Mint(identity.AgentPrefix)
		keys[name] = key
		r.names = append(r.names, name)
		text = strings.Replace(text, "keys: [", fmt.Sprintf("keys: [{id: %s, hash: %q}, ", name, hash), 1)
	}
	r.keys = keys
	dir := rig.LayOut(t, "\n-- secret --\nwhat all three of them know, and a bit more"+text)
	r.Replicas = &rig.Replicas{Dir: dir}
	r.start = func() *rig.Gateway {
		if kind == "redis" {
			return rig.ServeAtOnce(t, dir, "--data", filepath.Join(t.TempDir(), "data"))
		}
		return rig.ServeAtOnce(t, dir)
	}
	for range 3 {
		r.all = append(r.all, r.start())
	}
	r.connectCatalog(t) // with a token that does not expire here
	for _, g := range r.all {
		rig.Eventually(t, "the tools of the server are served at each process", func() string {
			text := g.AskAdmin(t, "", http.MethodGet, "/v1/servers", "").Body
			return rig.ReasonUnless(strings.Contains(text, `"healthy"`) && !strings.Contains(text, `"tools_served":0`), text)
		})
	}
	a.SetLifetime(refreshLifetime)
	for _, name := range r.names {
		r.connect(t, r.all[0], name, name+"-at-the-provider")
	}
	return r
}

// call makes a call of a person at a process, and counts its outcome. It gives up after some time: a call waits for the claim of a process that was killed.
func (r *refreshers) call(g *rig.Gateway, name string, id int) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 3*time.Second)
	defer cancel()
	s := &rig.HTTPSession{Modern: true, Header: http.Header{"Authorization": {"Bearer " + r.keys[name]}}}
	body, header := s.Request("tools/call", fmt.Sprintf(`{"name":"expect","arguments":{"as":%q,"id":%d}}`, name, id))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/mcp", strings.NewReader(body))
	if err != nil {
		r.t.Error(err)
		return
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+r.keys[name])
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.cut.Add(1)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	switch said := string(text); {
	case err != nil:
		r.cut.Add(1)
	case strings.Contains(said, fmt.Sprintf("%s-at-the-provider %d", name, id)):
		r.good.Add(1)
	case strings.Contains(said, "SB-AUTH-005"):
		r.connectFirst.Add(1)
		r.mu.Lock()
		r.lost[name] = true
		r.mu.Unlock()
	default:
		if r.other.Add(1) <= 3 {
			r.t.Logf("a call of %s is answered with %.300s", name, said)
		}
	}
}

// any returns one of the processes.
func (r *refreshers) any() *rig.Gateway {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all[rand.IntN(len(r.all))]
}

// stampede makes 64 calls of each of two people at all processes when their tokens have expired: each person's calls cause one refresh.
func (r *refreshers) stampede() {
	r.t.Helper()
	r.a.SetLifetime(time.Hour)
	for _, name := range r.names[:2] {
		account := name + "-at-the-provider"
		rig.Eventually(r.t, "the token expires", func() string { return rig.ReasonUnless(!r.a.IsGood(account), "it is good") })
		before := r.a.RefreshesOf(account)
		var work sync.WaitGroup
		for i := range 64 {
			work.Go(func() { r.call(r.all[i%len(r.all)], name, i) })
		}
		work.Wait()
		if n := r.a.RefreshesOf(account) - before; n > 1 {
			r.t.Errorf("64 calls at the expiry at three processes cause %d refreshes", n)
			continue
		}
		rig.Eventually(r.t, "the calls are answered with a new token", func() string { // a busy machine may be late
			was := r.good.Load()
			r.call(r.all[0], name, 64)
			return rig.ReasonUnless(r.good.Load() > was, "not yet")
		})
		if n := r.a.RefreshesOf(account) - before; n != 1 {
			r.t.Errorf("the calls after that cause another refresh: %d in all", n)
		}
	}
	r.a.SetLifetime(refreshLifetime)
	r.a.ExpireAll()
}

// connectAgain connects a person again, and returns 1. It returns 0 if the person has done so since: a call that was told to connect first may have begun before.
func (r *refreshers) connectAgain(name string) int {
	r.t.Helper()
	g := r.any()
	m, _ := g.OpenAtOnce(r.t, "/mcp", true, "Authorization", "Bearer "+r.keys[name]).Ask(r.t, "tools/call", `{"name":"whoami","arguments":{}}`)
	if rig.Code(m) != "SB-AUTH-005" {
		return 0
	}
	r.connect(r.t, g, name, name+"-at-the-provider")
	return 1
}

// survive kills processes.
func (r *refreshers) survive(kills int) {
	t := r.t
	r.stampede()
	began := make(chan struct{}, 1) // a refresh has begun at the provider
	r.a.Hold(func(string) {
		select {
		case began <- struct{}{}:
		default:
		}
		<-time.After(time.Duration(rand.IntN(refreshTakes)) * time.Millisecond)
	})
	stop := make(chan struct{})
	var work sync.WaitGroup
	for _, name := range r.names {
		work.Go(func() {
			for id := 0; ; id++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(200+rand.IntN(300)) * time.Millisecond):
					r.call(r.any(), name, id)
				}
			}
		})
	}
	again := 0
	for range kills {
		select {
		case <-began: // of an earlier one, perhaps
		default:
		}
		select {
		case <-began:
		case <-time.After(time.Minute): // more than a claim holds
			wait.Late(t, "no token is refreshed any more")
		}
		<-time.After(time.Duration(rand.IntN(refreshTakes/2)) * time.Millisecond)
		r.mu.Lock()
		i := rand.IntN(len(r.all))
		victim := r.all[i]
		r.all = append(r.all[:i:i], r.all[i+1:]...)
		r.mu.Unlock()
		_ = victim.Cmd.Process.Kill()
		_ = victim.Cmd.Wait()
		next := r.start()
		r.mu.Lock()
		r.all = append(r.all, next)
		lost := r.lost
		r.lost = map[string]bool{}
		r.mu.Unlock()
		for name := range lost {
			again += r.connectAgain(name)
		}
	}
	close(stop)
	work.Wait()
	r.a.Hold(nil)
	sent, twice := r.a.Refreshes()
	t.Logf("%d kills, %d of them during a refresh; %d refreshes, %d of them with a token that was used before; %d calls were answered, %d told to connect first, %d cut off, %d refused otherwise; %d new consents",
		kills, r.a.Left(), sent, len(twice), r.good.Load(), r.connectFirst.Load(), r.cut.Load(), r.other.Load(), again)
	if len(twice) > 0 {
		t.Errorf("refresh tokens that were used twice: %q", twice)
	}
	if sent < kills || r.good.Load() < int64(kills) {
		t.Errorf("%d refreshes and %d calls in %d rounds", sent, r.good.Load(), kills)
	}
	for _, m := range r.h.Mixed() {
		t.Error(m)
	}
}
