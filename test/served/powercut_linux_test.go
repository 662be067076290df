package served_test

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/powercut"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var powerCuts = flag.Int("power-cuts", 100, "how many power cuts TestAHundredPowerCutsUnderLoadBreakNoLaw simulates, and TestAPowerCutDuringAnUpgradeLosesNoReceipt a quarter of them")

// A machine is a folder of a Switchboard, and of a Redis if that has the store, on which the power can be cut.
type machine struct {
	t     *testing.T
	redis bool
	dir   string // of Switchboard
	aside string // of Redis
	sent  map[int]bool
	next  int    // an id that no call has had
	had   string // the receipts that it had before its first start
}

func newMachine(t *testing.T, redis bool) *machine {
	m := &machine{t: t, redis: redis, dir: t.TempDir(), sent: map[int]bool{}, next: 1}
	if redis { // its first start is no matter of ours
		r := redistest.Start(t)
		_, _ = r.Try("shutdown") // which does not answer
		r.Kill()
		m.aside = r.Dir()
	}
	return m
}

// A recording is what happened on a machine while it ran.
type recording struct {
	*machine
	events          []powercut.Event
	was, wasAside   string      // copies of its folders from before
	sentAt, answers map[int]int // the events with which calls were sent to the server, and answers to clients

	// decided has the events with which a person was told of a decision, by request and state.
	decided map[string]int
}

var (
	sentCall = regexp.MustCompile(`"arguments":\{"id":(\d+)\}`)
	answered = regexp.MustCompile(`"id":(\d+),"result":`) // also in an event stream, of which a slow call has one

	decidedRequest = regexp.MustCompile(`"id":"([a-z2-7]{16}-\d+)".*"state":"(approved|refused|revoked)"`)
)

// record runs the machine until as many calls were made as there are sessions times each. It then ends it in good order.
func (m *machine) record(sessions, each int) *recording {
	t := m.t
	t.Helper()
	server, url := rig.KeepLedger(t, time.Millisecond, fmt.Sprintf(rig.Tool, "post"))
	r := m.watch(func(redis *redistest.Server) {
		configure(t, m.dir, url, redis)
		price(t, m.dir, "1000000", "post")
	}, func(g *rig.Gateway) {
		var working sync.WaitGroup
		var late wait.Lateness
		for i := range sessions {
			s := g.Open(t, "/mcp", i%2 == 0)
			working.Go(func() {
				for n := range each {
					if a := s.Try("post", m.next+i+n*sessions); !a.Good() {
						late.Add("%v", a) // nothing is wrong with the machine yet
					}
				}
			})
		}
		working.Wait()
		late.State(t)
	})
	for id := m.next; id < m.next+sessions*each; id++ {
		if r.sentAt[id] == 0 || r.answers[id] < r.sentAt[id] || server.CountOf(fmt.Sprint(id)) != 1 {
			t.Fatalf("call %d was sent by event %d, executed %d times and answered by event %d", id, r.sentAt[id], server.CountOf(fmt.Sprint(id)), r.answers[id])
		}
	}
	m.next += sessions * each
	return r
}

// watch records what happens on the machine from its start to its end, and ends it in good order after work. configure writes the files of Switchboard.
func (m *machine) watch(configure func(*redistest.Server), work func(*rig.Gateway)) *recording {
	t := m.t
	t.Helper()
	r := &recording{machine: m, was: filepath.Join(t.TempDir(), "was"), sentAt: map[int]int{}, answers: map[int]int{}, decided: map[string]int{}}
	cmd := exec.Command(rig.Plain, "serve", "--listen", "127.0.0.1:0")
	var redis *redistest.Server
	if m.redis {
		redis = redistest.Prepare(t, "--dir", m.aside)
		r.wasAside = filepath.Join(t.TempDir(), "was")
		copyFolder(t, m.aside, r.wasAside)
		cmd = exec.Command("sh", slices.Concat([]string{"-c", `"$@" & read go && exec "$0" serve --listen 127.0.0.1:0`, rig.Plain}, redis.Command().Args)...)
	}
	configure(redis)
	copyFolder(t, m.dir, r.was)
	cmd.Dir = m.dir
	record := filepath.Join(t.TempDir(), "record")
	cmd = powercut.Trace(record, cmd)
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			for _, pid := range rig.Children(cmd.Process.Pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			_ = cmd.Wait()
			t.Logf("the log:\n%s", &log)
		}
	}()
	if m.redis {
		redis.Wait()
		_, _ = io.WriteString(in, "go\n")
	}
	line, err := rig.FirstLine(out)
	wait.Read(t, "the address", err)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	work(&rig.Gateway{T: t, Dir: m.dir, URL: strings.TrimSuffix(strings.TrimSpace(line), "/mcp")})
	for _, pid := range rig.Children(cmd.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		rig.Eventually(t, "it ends", func() string { return rig.ReasonUnless(!rig.Alive(pid), "it lives") })
	}
	ended = true
	_ = cmd.Wait()
	if r.events, err = powercut.Read(record, m.dir); err != nil {
		t.Fatal(err)
	}
	for i, e := range r.events {
		said := e.Sent()
		if said == nil || e.Returns {
			continue
		}
		if match := sentCall.FindSubmatch(said); match != nil && bytes.Contains(said, []byte(`"method":"tools/call"`)) {
			id, _ := strconv.Atoi(string(match[1]))
			r.sentAt[id] = i
		} else if match := answered.FindSubmatch(said); match != nil {
			id, _ := strconv.Atoi(string(match[1]))
			r.answers[id] = i
		} else if match := decidedRequest.FindSubmatch(said); match != nil {
			r.decided[string(match[1])+" "+string(match[2])] = i
		}
	}
	r.trust()
	return r
}

// trust checks that the record is complete: without a power cut, it leads to the folders that are there.
func (r *recording) trust() {
	t := r.t
	t.Helper()
	for was, now := range map[string]string{r.was: r.dir, r.wasAside: r.aside} {
		if now == "" {
			continue
		}
		disk, err := powercut.NewDisk(was)
		if err == nil {
			err = disk.Replay(now, r.events)
		}
		whole := filepath.Join(t.TempDir(), "whole")
		if err == nil {
			err = disk.Whole(whole)
		}
		if err != nil {
			t.Fatal(err)
		}
		want, got := contents(t, now), contents(t, whole)
		for name := range want {
			if want[name] != got[name] && !strings.HasSuffix(name, "-shm") { // which is changed by mapping it, and which SQLite makes anew
				t.Errorf("the record does not lead to %s: %d bytes, and it has %d", name, len(got[name]), len(want[name]))
			}
			delete(got, name)
		}
		for name := range got {
			t.Errorf("the record leads to %s, which is not there", name)
		}
	}
}

// contents returns the files of a folder, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[strings.TrimPrefix(name, dir)] = rig.ReadFile(t, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	disk, err := powercut.NewDisk(from)
	if err == nil {
		err = disk.Whole(to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// cut returns the machine as it is when the power was cut before event n.
func (r *recording) cut(n int, luck *rand.Rand, kept float64, drop func(event int) bool) *machine {
	t := r.t
	t.Helper()
	m := &machine{t: t, redis: r.redis, sent: map[int]bool{}, next: r.next, had: r.had}
	for id := range r.sent {
		m.sent[id] = true
	}
	for id, at := range r.sentAt {
		if at < n {
			m.sent[id] = true
		}
	}
	cut := func(was, now string) string {
		disk, err := powercut.NewDisk(was)
		if err != nil {
			t.Fatal(err)
		}
		disk.DropSync = drop
		image := filepath.Join(t.TempDir(), "image")
		if err := disk.Replay(now, r.events[:n]); err != nil {
			t.Fatal(err)
		}
		if err := disk.Cut(luck, kept, image); err != nil {
			t.Fatal(err)
		}
		return image
	}
	m.dir = cut(r.was, r.dir)
	if m.redis {
		m.aside = cut(r.wasAside, r.aside)
	}
	return m
}

// faults starts the machine after a power cut, and returns everything that is wrong with it.
func (m *machine) faults() (wrong []string) {
	t := m.t
	t.Helper()
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	var redis *redistest.Server
	if m.redis {
		redis = redistest.Prepare(t, "--dir", m.aside)
		mendFolder(t, m.aside)
		redis.Start()
		defer redis.Kill()
	}
	server, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"))
	configure(t, m.dir, url, redis)
	price(t, m.dir, "1000000", "post")
	cmd := exec.Command(rig.Plain, "serve", "--listen", "127.0.0.1:0")
	var log bytes.Buffer
	cmd.Dir, cmd.Stderr = m.dir, &log
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if len(wrong) > 0 {
			t.Logf("the log:\n%s", &log)
		}
	}()
	line, err := rig.FirstLine(pipe)
	if err != nil {
		if wait.TimedOut(err) {
			wait.Read(t, "the address", err)
		}
		_ = cmd.Wait()
		add("it does not start: %s", &log)
		return wrong
	}
	go func() { _, _ = io.Copy(io.Discard, pipe) }()
	secret := survivorSecret
	if !m.redis {
		secret = strings.TrimSpace(rig.ReadFile(t, filepath.Join(m.dir, ".switchboard", "receipts.key")))
	}
	digest, intents := digestsUnder(t, secret), map[string]bool{}
	out, errs, code := rig.Command(t, m.dir, "receipts", "export") // before a repeated call could write an intent for the first time
	if code != 0 {
		add("receipts export: exit %d: %s", code, errs)
		return wrong
	}
	if !strings.HasPrefix(out, m.had) {
		add("the receipts from before its first start are not there: %d bytes of %d", len(out), len(m.had))
	}
	for _, r := range exported(t, out) {
		if r.Entry.Receipt.Kind == "intent" {
			intents[r.Entry.Receipt.Arguments] = true
		}
	}
	for id := range m.sent {
		if !intents[digest(id)] {
			add("it was executed, and has no intent: call %d", id)
		}
	}
	if settled, held := spent(t, m.dir, redis); settled+held < int64(len(m.sent))*pricedAt {
		add("%d calls were executed, of which %d micro-units are settled and %d held", len(m.sent), settled, held)
	}
	s := (&rig.Gateway{T: t, URL: strings.TrimSuffix(strings.TrimSpace(line), "/mcp")}).Open(t, "/mcp", true)
	var mu sync.Mutex
	var late wait.Lateness
	var asking sync.WaitGroup
	atOnce := make(chan struct{}, 32)
	for id := range m.sent {
		if !rig.HasKey(id) {
			continue
		}
		asking.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			a := s.Try("post", id)
			for began := time.Now(); outOfTime(rig.Code(a.Answer)) && time.Since(began) < rig.Patience; a = s.Try("post", id) {
				<-time.After(20 * time.Millisecond)
			}
			mu.Lock()
			defer mu.Unlock()
			switch code := rig.Code(a.Answer); {
			case server.CountOf(fmt.Sprint(id)) > 0:
				add("its key is forgotten, so that it was executed twice: call %d", id)
			case wait.TimedOut(a.Err) || outOfTime(code):
				late.Add("%v", a)
			case !a.Good() && code != "SB-EXEC-004":
				add("its key was repeated: %v", a)
			}
		})
	}
	asking.Wait()
	late.State(t)
	fresh := m.next + 1_000_000
	rig.Eventually(t, "a new call is made", func() string {
		fresh++
		a := s.Try("post", fresh)
		return rig.ReasonUnless(a.Good(), a.String())
	})
	if said, errs, code := rig.Command(t, m.dir, "receipts", "verify"); code != 0 {
		add("receipts verify: %s%s", said, errs)
	}
	said := ""
	rig.Eventually(t, "the store is not too slow for an operator", func() string {
		var out, errs string
		out, errs, code = rig.Command(t, m.dir, "server", "disable", "post")
		said = out + errs
		return rig.ReasonUnless(!outOfTime(said), said)
	})
	if code != 0 {
		add("operators cannot do anything: %s", said)
	}
	return wrong
}

// remove frees the memory of the machine.
func (m *machine) remove() {
	for _, dir := range []string{m.dir, m.aside} {
		if dir != "" {
			_ = os.RemoveAll(dir)
		}
	}
}

// Laws 6 and 9, and BU-08 of the security cases: whenever the power is cut, each call that was sent has its intent and its price is settled or held, no key runs twice,
// the chains verify, and the store opens.
func TestAHundredPowerCutsUnderLoadBreakNoLaw(t *testing.T) {
	t.Parallel()
	powercut.Need(t)
	law.Hold(t, law.NothingAckedLost)
	const rounds = 2 // the second one begins with what a power cut has left
	kinds := []struct {
		redis          bool
		sessions, each int
	}{{false, 1, 40}, {false, 16, 8}, {false, 64, 4}, {true, 1, 40}, {true, 16, 8}, {true, 64, 4}}
	cuts := *powerCuts
	for i, kind := range kinds {
		own := (cuts + i) / len(kinds)
		t.Run(fmt.Sprintf("%s, %d sessions", map[bool]string{false: "file", true: "redis"}[kind.redis], kind.sessions), func(t *testing.T) {
			t.Parallel()
			if kind.redis {
				redistest.Need(t)
			}
			luck := rand.New(rand.NewPCG(law.Seed(t), 0))
			m := newMachine(t, kind.redis)
			for round := range rounds {
				r := m.record(kind.sessions, kind.each)
				first := slices.Min(slices.Collect(maps.Values(r.sentAt)))
				for n := range (own + round) / rounds {
					at := first + luck.IntN(len(r.events)-first)
					switch {
					case n%6 == 5:
						at = luck.IntN(len(r.events))
					case n%2 == 0: // while a sync is under way, when most is at stake
						for !r.events[at].Returns || !r.events[at].IsSync() {
							at--
						}
					}
					kept := []float64{0.5, 0, luck.Float64(), 1}[n%4]
					if kind.redis { // its file has no checksums, so it cannot tell a torn write from a whole one
						kept = float64(luck.IntN(2))
					}
					part := luck.Uint64()
					left := r.cut(at, rand.New(rand.NewPCG(part, 1)), kept, nil)
					for _, wrong := range left.faults() {
						t.Errorf("round %d, cut before event %d of %d, %.2f of what was not synced is kept: %s", round, at, len(r.events), kept, wrong)
					}
					left.remove()
					if n == 0 { // the next round begins with it
						m = r.cut(at, rand.New(rand.NewPCG(part, 1)), kept, nil)
					}
				}
			}
		})
	}
}

// The first start moves the receipts of an old store: whenever the power is cut meanwhile, all are there after the next start.
func TestAPowerCutDuringAnUpgradeLosesNoReceipt(t *testing.T) {
	t.Parallel()
	powercut.Need(t)
	law.Hold(t, law.NothingAckedLost)
	for _, name := range []string{"stopped", "trimmed"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			luck := rand.New(rand.NewPCG(law.Seed(t), 0))
			old := t.TempDir()
			unpack(t, filepath.Join("testdata", "store-008e6b2.tar.gz"), old)
			m := newMachine(t, false)
			m.next, m.had = 1001, rig.ReadFile(t, filepath.Join(old, name+".jsonl"))
			if err := os.Rename(filepath.Join(old, name), filepath.Join(m.dir, ".switchboard")); err != nil {
				t.Fatal(err)
			}
			r := m.record(1, 2)
			first := slices.Min(slices.Collect(maps.Values(r.sentAt)))
			for n := range *powerCuts / 8 {
				at, kept := luck.IntN(first), []float64{0, 1, 0.5, luck.Float64()}[n%4]
				left := r.cut(at, luck, kept, nil)
				for _, wrong := range left.faults() {
					t.Errorf("cut before event %d of %d, %.2f of what was not synced is kept: %s", at, first, kept, wrong)
				}
				left.remove()
			}
		})
	}
}

// TestAHundredPowerCutsUnderLoadBreakNoLaw finds a store that acknowledges what is not on the disk: here such machines are judged as if all syncs did nothing, or only the last
// one before a call was sent.
func TestPowerCutsFindAStoreThatDoesNotSync(t *testing.T) {
	t.Parallel()
	powercut.Need(t)
	for _, redis := range []bool{false, true} {
		t.Run(map[bool]string{false: "file", true: "redis"}[redis], func(t *testing.T) {
			t.Parallel()
			if redis {
				redistest.Need(t)
			}
			m := newMachine(t, redis)
			m.record(1, 2) // so that the folders are there
			r := m.record(1, 4)
			luck := rand.New(rand.NewPCG(law.Seed(t), 0))
			found := 0
			for id, at := range r.sentAt {
				lost := []string{fmt.Sprintf("it was executed, and has no intent: call %d", id)}
				if rig.HasKey(id) {
					lost = append(lost, fmt.Sprintf("its key is forgotten, so that it was executed twice: call %d", id))
				}
				wrong := r.cut(at+1, luck, 0, func(int) bool { return true }).faults()
				for _, one := range lost {
					if !slices.Contains(wrong, one) {
						t.Errorf("no sync does anything, and nothing finds that %s: %q", one, wrong)
					}
				}
				last := at
				for !r.events[last].Returns || !r.events[last].IsSync() {
					last--
				}
				wrong = r.cut(at+1, luck, 0, func(event int) bool { return r.events[event].Call == r.events[last].Call }).faults()
				if slices.ContainsFunc(lost, func(one string) bool { return slices.Contains(wrong, one) }) {
					found++
				}
			}
			if found < len(r.sentAt)/2 { // now and then the last sync is for the outcome of an earlier call
				t.Errorf("the last sync before a call does nothing, and this is found for %d of %d calls", found, len(r.sentAt))
			}
		})
	}
}
