package served_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/powercut"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
)

// AP-12 and BU-08 on the served path: whenever the power is cut while agents ask, a person decides and calls use the yes, each yes is executed at most once, every
// decision that the person was told of is there, and no account is below what the server has counted or above its limit.
func TestAP12APowerCutUsesNoYesTwiceAndForgetsNoDecision(t *testing.T) {
	t.Parallel()
	powercut.Need(t)
	law.Hold(t, law.NeverTwice)
	for _, redis := range []bool{false, true} {
		t.Run(map[bool]string{false: "file", true: "redis"}[redis], func(t *testing.T) {
			if redis {
				redistest.Need(t)
			}
			const agents, each = 8, 3
			luck := rand.New(rand.NewPCG(law.Seed(t), 0))
			w := newMachine(t, redis)
			var m *yesMarket
			var bought []*boughtCall
			r := w.watch(func(redis *redistest.Server) {
				url := ""
				if redis != nil {
					url = redis.URL()
				}
				m = newYesMarket(t, url)
				for _, name := range []string{"secret", "switchboard.yaml", "overlays/post.yaml", "tenants/acme/tenant.yaml", "tenants/acme/tasks/all.yaml"} {
					rig.WriteFile(t, filepath.Join(w.dir, name), rig.ReadFile(t, filepath.Join(m.dir, name)))
				}
				m.dir = w.dir
			}, func(g *rig.Gateway) {
				var working sync.WaitGroup
				for i := range agents {
					s, own := m.as(g, i, i%2 == 0), rand.New(rand.NewPCG(luck.Uint64(), uint64(i)))
					working.Go(func() {
						for range each {
							if !m.buy(g, s, own.IntN(64)) {
								t.Error("the process does not answer")
							}
						}
					})
				}
				working.Wait()
				bought, m.all = m.all, nil
			})
			if len(r.sentAt) == 0 || len(r.decided) < len(bought) {
				t.Fatalf("%d calls were asked for, %d were sent, and %d decisions were told", len(bought), len(r.sentAt), len(r.decided))
			}
			points := slices.Sorted(maps.Values(r.sentAt))
			points = append(points, slices.Sorted(maps.Values(r.decided))...)
			for n := range max(2, *powerCuts/12) {
				at := points[luck.IntN(len(points))] + 1 + luck.IntN(64) // shortly after a call was sent, or a person was told
				switch n % 4 {
				case 3:
					at = slices.Min(points) + luck.IntN(len(r.events)-slices.Min(points))
				case 2: // while a sync is under way
					for !r.events[at].Returns || !r.events[at].IsSync() {
						at--
					}
				}
				at = min(at, len(r.events))
				kept := []float64{0, 0.5, luck.Float64(), 1}[n%4]
				if redis { // its file has no checksums, so it cannot tell a torn write from a whole one
					kept = float64(n % 2)
				}
				t.Logf("cut %d: before event %d of %d, %.2f of what was not synced is kept", n, at, len(r.events), kept)
				left := r.cut(at, luck, kept, nil)
				m.judgeAfter(t, r, left, at, bought)
				left.remove()
			}
		})
	}
}

// judgeAfter starts what a power cut before event n has left of a machine, and judges it. It then makes each call whose yes was not used twice at once.
func (m *yesMarket) judgeAfter(t *testing.T, r *recording, left *machine, n int, bought []*boughtCall) {
	t.Helper()
	own := &yesMarket{t: t, dir: left.dir, shared: m.shared, url: m.url, server: m.server, agents: m.agents, boss: m.boss, own: m.own, refused: map[string]int{}, undone: map[int]int{}}
	own.calls.Store(1_000_000)
	if left.redis {
		redis := redistest.Prepare(t, "--dir", left.aside)
		mendFolder(t, left.aside)
		redis.Start()
		defer redis.Kill()
		file := filepath.Join(left.dir, "switchboard.yaml")
		rig.WriteFile(t, file, strings.Replace(rig.ReadFile(t, file), m.url, redis.URL(), 1))
		own.url = redis.URL()
	}
	for _, b := range bought {
		now := *b
		now.said = ""
		for _, state := range []string{"approved", "refused", "revoked"} { // a yes that was taken back comes last
			if at, ok := r.decided[b.request+" "+state]; ok && at < n {
				now.said = state
			}
		}
		own.undone[b.id] = m.server.CountOf(fmt.Sprint(b.id))
		if at, ok := r.sentAt[b.id]; ok && at < n {
			own.undone[b.id]--
		}
		if now.said != "" || own.executions(b.id) > 0 { // others may not have been asked for yet
			own.all = append(own.all, &now)
		}
	}
	calls := own.all
	g := rig.Serve(t, left.dir)
	own.judge(g, nil)
	for _, b := range calls {
		s := g.Open(t, "/mcp", true, "Authorization", b.agent)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { own.call(s, `{"name":"switchboard_resume","arguments":{"request":"`+b.request+`"}}`) })
		}
		both.Wait()
		if made := own.executions(b.id); made > 1 || made == 1 && b.tried == "refused" {
			t.Errorf("call %d was executed %d times, and the person has %s it", b.id, made, b.tried)
		}
	}
	own.judgeMoney(0)
	_ = g.Cmd.Process.Kill()
	_ = g.Cmd.Wait()
}
