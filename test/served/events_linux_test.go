package served_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A changer makes changes at one replica, one after the other. Each change blocks a person or lifts the block, and makes one event, which tells the
// number of the change: who blocks is another officer than who lifts.
type changer struct {
	id      int
	at      *rig.Gateway
	keys    officers
	begun   atomic.Int64 // the changes that have begun
	publish atomic.Int64 // the changes that were answered
}

// padding makes events so long that the kernel cannot keep all those of the test for a reader.
var padding = strings.Repeat("x", 220)

// change makes the next change.
func (c *changer) change(ctx context.Context, admin string) error {
	n := c.begun.Add(1) - 1
	who, path, want := "blocks", "/v1/blocks", http.StatusOK
	if n%2 == 1 {
		who, path, want = "lifts", "/v1/blocks/lift", http.StatusNoContent
	}
	body := fmt.Sprintf(`{"issuer":"idp","subject":"%d-%d-%s"}`, c.id, n/2, padding)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, admin+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+c.keys[who])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("change %d of %d: %s %s", n, c.id, resp.Status, text)
	}
	c.publish.Add(1)
	return err
}

// changeOf returns which changer has made the change that an event tells of, and the number of the change.
func changeOf(e *event.Occurrence) (changer, n int, ok bool) {
	if _, err := fmt.Sscanf(e.Subject, "idp/%d-%d-", &changer, &n); e.Type != event.Person || err != nil {
		return 0, 0, false
	}
	n *= 2
	if e.By == "lifts" {
		n++
	}
	return changer, n, true
}

// An expectation says which change of a changer a reader must be told of next.
type expectation struct {
	next   int64
	strict bool // exactly this one; else at most this one, because the reader was told to look at everything
}

// A follower reads events, and checks that it misses none without a resync and gets none twice.
type follower struct {
	name     string
	t        *testing.T
	key      string
	changers []*changer
	homes    []string // the admin addresses of the replicas
	client   *http.Client

	id      string // of the last event, as a browser remembers it
	home    int
	expects []expectation // by changer
	got     int
	resyncs int
	resumed int // connections that went on at the same replica without a resync
}

// newFollower returns a follower that begins at a replica.
func newFollower(t *testing.T, name, key string, changers []*changer, homes []string, home int) *follower {
	t.Helper()
	f := &follower{name: name, t: t, key: key, changers: changers, homes: homes, home: home, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	f.look()
	return f
}

// dialSmall opens a connection for which the kernels of both sides keep few bytes, so that a program that writes to it soon waits for the reader. The
// other side sizes its buffer by the segments of the connection.
func dialSmall(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: rig.Patience, Control: func(_, _ string, c syscall.RawConn) (err error) {
		set := func(fd uintptr) {
			err = errors.Join(
				syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536),
				syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10))
		}
		if fault := c.Control(set); fault != nil {
			return fault
		}
		return err
	}}
	return d.DialContext(ctx, network, address)
}

// look notes that the follower looks at everything now: it must be told of every change that begins from now on.
func (f *follower) look() {
	f.expects = f.expects[:0]
	for _, c := range f.changers {
		f.expects = append(f.expects, expectation{next: c.begun.Load()})
	}
}

// A told is an event with its id. An id without an event counts too: browsers remember it.
type told struct {
	id   string
	data []byte
}

// errAway says that a stream could not be opened, or was broken.
var errAway = errors.New("the stream is broken")

// follow opens a stream behind the last event, and passes everything on until take returns false or the stream ends.
func (f *follower) follow(ctx context.Context, take func(e told) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.homes[f.home]+"/v1/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+f.key)
	if f.id != "" {
		req.Header.Set("Last-Event-ID", f.id)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return fmt.Errorf("%w: %w", errAway, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", resp.Status)
	}
	var e told
	for in := bufio.NewReaderSize(resp.Body, 512); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return fmt.Errorf("%w: %w", errAway, err)
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case line == "\n":
			if !take(e) {
				return nil
			}
			e = told{}
		case name == "id":
			e.id = value
		case name == "data":
			e.data = []byte(value)
		}
	}
}

// placeOf returns the part of an event's id that grows by one with each event of a process.
func placeOf(id string) (boot string, n int64) {
	boot, digits, _ := strings.Cut(id, "-")
	n, _ = strconv.ParseInt(digits, 10, 64)
	return boot, n
}

// hear checks an event, and notes it. first says that it is the first one of its connection.
func (f *follower) hear(e told, first, moved bool) {
	was := f.id
	if e.id == "" {
		return // a comment
	}
	f.id = e.id
	if e.data == nil {
		if boot, n := placeOf(was); was != "" && !moved && e.id != fmt.Sprint(boot, "-", n) {
			f.t.Errorf("%s continues behind %s, and is told that it is at %s", f.name, was, e.id)
		}
		return
	}
	var o event.Occurrence
	if err := json.Unmarshal(e.data, &o); err != nil {
		f.t.Errorf("%s: %v: %s", f.name, err, e.data)
		return
	}
	if o.Type == event.Resync {
		f.resyncs++
		f.look()
		return
	}
	if moved && first {
		f.t.Errorf("%s was at another replica, and the first event here is no resync: %s", f.name, e.data)
	}
	f.got++
	oldBoot, old := placeOf(was)
	if boot, n := placeOf(e.id); was != "" && (boot != oldBoot || n != old+1) {
		f.t.Errorf("%s gets the event %s after %s", f.name, e.id, was)
	}
	from, n, ok := changeOf(&o)
	if !ok {
		return
	}
	switch want := f.expects[from]; {
	case want.strict && int64(n) < want.next:
		f.t.Errorf("%s is told twice of change %d of changer %d", f.name, n, from)
	case int64(n) > want.next:
		f.t.Errorf("%s is told of change %d of changer %d without a resync, and %d was next", f.name, n, from, want.next)
	}
	f.expects[from] = expectation{next: int64(n) + 1, strict: true}
}

// finished reports whether the follower was told of a change of each of the last n changers, which begin when all others have ended.
func (f *follower) finished(n int) bool {
	for _, e := range f.expects[len(f.expects)-n:] {
		if !e.strict {
			return false
		}
	}
	return true
}

// complete checks that the follower was told of all changes of the first n changers, unless a resync came after them.
func (f *follower) complete(n int) {
	for i, e := range f.expects[:n] {
		if all := f.changers[i].begun.Load(); e.next < all {
			f.t.Errorf("%s was told of %d changes of changer %d, which has made %d", f.name, e.next, i, all)
		}
	}
}

// layOutChangers lays out officeArchive with two more operators: who blocks, and who lifts.
func layOutChangers(t *testing.T) (dir string, keys officers) {
	t.Helper()
	dir, keys = layOutOfficers(t)
	rows := "operators: ["
	for _, who := range []string{"blocks", "lifts"} {
		key, hash := identity.Mint(identity.PersonPrefix)
		keys[who] = key
		rows += fmt.Sprintf("{key: %s, hash: %q}, ", who, hash)
	}
	main := filepath.Join(dir, "switchboard.yaml")
	rig.WriteFile(t, main, strings.Replace(rig.ReadFile(t, main), "operators: [", rows, 1))
	return dir, keys
}

// A program looks when it is told of a change, and not again. So a replica tells of a change of another one when it knows of it itself.
func TestWhoIsToldOfAChangeAtAnotherReplicaFindsItHere(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	const changes = 120
	dir, keys := layOutChangers(t)
	all, _ := replicate(t, dir, 2)
	c := &changer{at: all[0], keys: keys}
	f := newFollower(t, "the follower", keys["operator"], []*changer{c}, []string{all[1].AdminURL()}, 0)
	ctx := wait.Context(t)
	n := 0
	err := f.follow(ctx, func(e told) bool {
		f.hear(e, false, false)
		if e.data != nil {
			blocked := strings.Contains(all[1].AskAdmin(t, keys["operator"], http.MethodGet, "/v1/blocks", "").Body, fmt.Sprintf(`"0-%d-`, n/2))
			if blocked != (n%2 == 0) {
				t.Errorf("told of change %d, and the person is blocked here: %v", n, blocked)
			}
			n++
		}
		if n == changes || t.Failed() {
			return false
		}
		if err := c.change(ctx, all[0].AdminURL()); err != nil {
			wait.Answered(t, ctx, "a change", err)
		}
		return true
	})
	wait.Answered(t, ctx, "the events", err)
}

var followedChanges = flag.Int64("followed-changes", 1500, "how many changes TestNoFollowerOfManyChangesMissesOneWithoutAResyncAndNoneIsToldTwice makes; 10000 is what is promised")

// Many changes at three replicas. Officers follow them, leave and come back, at the same replica or at another one; all replicas lose their
// connection for notices once. No follower misses a change without a resync, none is told of one twice, and a follower that does not read delays no other.
func TestNoFollowerOfManyChangesMissesOneWithoutAResyncAndNoneIsToldTwice(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	const perReplica = 2
	changes := *followedChanges
	rng := rand.New(rand.NewPCG(law.Seed(t), 1))
	dir, keys := layOutChangers(t)
	all, redis := replicate(t, dir, 3)

	var changers []*changer // and at the end the last one of each replica, which begins when the others have ended
	for i := range (perReplica + 1) * len(all) {
		changers = append(changers, &changer{id: i, at: all[i%len(all)], keys: keys})
	}
	working, last := changers[:perReplica*len(all)], changers[perReplica*len(all):]
	var homes []string
	for _, g := range all {
		homes = append(homes, g.AdminURL())
	}

	ctx := t.Context()
	var opened, done sync.WaitGroup
	var disturbed atomic.Bool // the replicas have lost their connections for notices
	var late wait.Lateness
	run := func(f *follower, leave func() (after int, home int), ready func()) {
		opened.Add(1)
		open := sync.OnceFunc(opened.Done)
		done.Go(func() {
			defer open()
			moved := false
			for !f.finished(len(last)) && !t.Failed() {
				after, home := leave()
				before, first, n := f.resyncs, true, 0
				err := f.follow(ctx, func(e told) bool {
					f.hear(e, first && e.data != nil, moved)
					if e.data != nil {
						first = false
						n++
					}
					open()
					ready()
					return n < after && !f.finished(len(last)) && !t.Failed()
				})
				switch {
				case errors.Is(err, errAway) && ctx.Err() == nil && f.name == "the slow one":
					// Switchboard does not wait for it for ever.
				case err != nil:
					t.Errorf("%s: %v", f.name, err)
					return
				}
				if before == f.resyncs && !moved {
					f.resumed++
				}
				moved = home != f.home
				f.home = home
			}
		})
	}
	var steady, roaming []*follower
	for home := range all {
		for range 2 {
			f := newFollower(t, fmt.Sprintf("the steady one %d", len(steady)), keys["operator"], changers, homes, home)
			steady = append(steady, f)
			heard := time.Now()
			run(f, func() (int, int) { return 1 << 30, home }, func() {
				if silent := time.Since(heard); silent > wait.Bound { // less than Switchboard waits for the slow one
					late.Add("%s was told of nothing for %s", f.name, silent)
				}
				heard = time.Now()
				if f.resyncs > 0 && !disturbed.Load() {
					late.Add("%s was told to look at everything", f.name)
				}
			})
		}
	}
	for i := range 6 {
		f := newFollower(t, fmt.Sprintf("the roaming one %d", i), keys["operator"], changers, homes, i%len(all))
		roaming = append(roaming, f)
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		run(f, func() (int, int) {
			home := f.home
			if own.IntN(4) == 0 {
				home = own.IntN(len(all))
			}
			return own.IntN(400), home
		}, func() {})
	}
	// It leaves before the first event, again and again, while changes are made.
	hasty := newFollower(t, "the hasty one", keys["operator"], changers, homes, 1)
	roaming = append(roaming, hasty)
	connections := 0
	run(hasty, func() (int, int) {
		connections++
		for connections > 1 && connections < 30 && total(working) < 20*connections && ctx.Err() == nil && !t.Failed() {
			<-time.After(wait.Pause(0, 0))
		}
		if connections < 30 {
			return 0, hasty.home
		}
		return 1 << 30, hasty.home
	}, func() {})
	slow := newFollower(t, "the slow one", keys["operator"], changers, homes, 0)
	begin, slowly := make(chan struct{}), sync.WaitGroup{}
	slow.client.Transport = &http.Transport{DialContext: dialSmall}
	slowOpen := make(chan struct{})
	slowly.Go(func() {
		opening := sync.OnceFunc(func() { close(slowOpen) })
		defer opening()
		for !slow.finished(len(last)) && !t.Failed() {
			err := slow.follow(ctx, func(e told) bool {
				opening()
				<-begin
				slow.hear(e, false, false)
				return !slow.finished(len(last)) && !t.Failed()
			})
			if err != nil && !errors.Is(err, errAway) || ctx.Err() != nil {
				t.Errorf("%s: %v", slow.name, err)
				return
			}
		}
	})
	stop := sync.OnceFunc(func() { close(begin) })
	defer stop()
	opened.Wait()
	<-slowOpen

	var work sync.WaitGroup
	for _, c := range working {
		work.Go(func() {
			for c.begun.Load() < changes/int64(len(working)) && !t.Failed() {
				if err := c.change(ctx, c.at.AdminURL()); wait.TimedOut(err) {
					late.Add("a change: %v", err)
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wait.For(t, wait.Bound*time.Duration(4+changes/500), "most changes are made", func() error {
		if n := total(working); int64(n) < changes*7/10 && !t.Failed() {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	disturbed.Store(true)
	redis.Do("client", "kill", "type", "pubsub")
	work.Wait()

	// What a follower must be told of has been published. A later change at each replica shows that it was.
	finish := func(what string, followers *sync.WaitGroup) {
		t.Helper()
		ended := make(chan struct{})
		go func() {
			followers.Wait()
			close(ended)
		}()
		wait.For(t, 2*wait.Bound, what, func() error {
			for _, c := range last {
				if err := c.change(ctx, c.at.AdminURL()); err != nil {
					return err
				}
			}
			select {
			case <-ended:
				return nil
			default:
				return errors.New("not yet")
			}
		})
	}
	finish("all who read have read everything", &done)
	stop()
	finish("the slow one has read everything", &slowly)

	resumed, resyncs := 0, 0
	for _, f := range append(append(steady, roaming...), slow) {
		f.complete(len(working))
		if f != slow && f.got < int(changes/10) {
			late.Add("%s was told of %d events", f.name, f.got)
		}
		t.Logf("%s: %d events, %d resyncs, resumed %d times", f.name, f.got, f.resyncs, f.resumed)
	}
	for _, f := range roaming {
		resumed, resyncs = resumed+f.resumed, resyncs+f.resyncs
	}
	if resyncs == 0 {
		t.Error("who went to another replica was never told to look at everything")
	}
	if resumed == 0 {
		late.Add("nobody went on where it had been")
	}
	if slow.resyncs == 0 {
		t.Error("the slow one was told of everything, so it was not slow")
	}
	late.State(t)
}

// total returns how many changes were answered.
func total(all []*changer) (n int) {
	for _, c := range all {
		n += int(c.publish.Load())
	}
	return n
}
