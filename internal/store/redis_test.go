package store_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

func TestARedisThatWouldLoseWhatItHasAcknowledgedIsRefused(t *testing.T) {
	s := redistest.Start(t)
	s.Do("acl", "setuser", "narrow", "on", ">s3cret", "~*", "&*", "+@all", "-config")
	narrow := strings.Replace(s.URL(), "://", "://narrow:s3cret@", 1)
	const kept = "; less where it is killed within a transaction, and later once more: its aof-load-truncated is yes, and should be no"
	for _, c := range []struct {
		settings, url string
		refused       string // text of the refusal; "" if there is none
		survives      string // with Relaxed; "" if it is refused also then
	}{
		{"", s.URL(), "", "machine"},
		{"aof-load-truncated yes", s.URL(), "", "machine" + kept},
		{"appendfsync everysec", s.URL(), "appendfsync is everysec", "redis, but for the last two seconds"},
		{"appendfsync no", s.URL(), "appendfsync is no", "redis, but for what its system had not written"},
		{"", narrow, "CONFIG GET is forbidden", "redis, but for what its system had not written" + strings.Replace(kept, "its aof-load-truncated is yes, and", "its aof-load-truncated cannot be read, and", 1)},
		{"appendonly no", s.URL(), "appendonly is no", "nothing of redis"},
		{"appendonly no save 60", s.URL(), "appendonly is no", "redis, but for what came after its last snapshot"},
		{"maxmemory-policy allkeys-lru", s.URL(), "maxmemory-policy is allkeys-lru", ""},
		{"maxmemory-policy volatile-ttl", narrow, "maxmemory-policy is volatile-ttl", ""},
	} {
		s.Do("config", "set", "appendonly", "yes", "appendfsync", "always", "maxmemory-policy", "noeviction", "save", "", "aof-load-truncated", "no")
		if set := strings.Fields(c.settings); len(set) > 1 {
			s.Do("config", "set", set[0], set[1])
			if len(set) == 4 {
				s.Do("config", "set", "save", set[3]+" 1")
			}
		}
		r, err := store.OpenRedis(t.Context(), c.url, store.RedisOptions{})
		switch {
		case err == nil:
			if st := r.Status(); c.refused != "" || st.Survives != c.survives {
				t.Errorf("%s: it is used, and survives %s", c.settings, st.Survives)
			}
			_ = r.Close()
		case c.refused == "" || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: %v, want %q", c.settings, err, c.refused)
		case c.survives != "" && (!strings.Contains(err.Error(), "durability: relaxed") || !strings.Contains(err.Error(), "appendfsync always")):
			t.Errorf("%s: %v does not name both remedies", c.settings, err)
		}
		r, err = store.OpenRedis(t.Context(), c.url, store.RedisOptions{Relaxed: true})
		switch {
		case err == nil:
			if st := r.Status(); st.Survives != c.survives {
				t.Errorf("%s, relaxed: it survives %q, want %q", c.settings, st.Survives, c.survives)
			}
			_ = r.Close()
		case c.survives != "":
			t.Errorf("%s, relaxed: %v", c.settings, err)
		}
	}
}

func TestAnUnsuitableRedisIsRefused(t *testing.T) {
	redistest.Need(t)
	cluster := strings.TrimPrefix(redisCluster(), "redis+cluster://")
	node, _, _ := strings.Cut(cluster, ",")
	master := redistest.Start(t)
	_, port, _ := net.SplitHostPort(master.Addr)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().String()
	_ = l.Close()
	for url, want := range map[string]string{
		"redis://" + node:                      "redis+cluster://",
		"redis+cluster://" + master.Addr:       "cluster support disabled",
		replica.URL():                          "it is a replica",
		"redis://me:s3cret@" + master.Addr:     "WRONGPASS",
		"redis://" + master.Addr + "/99":       "out of range",
		"redis+sentinel://" + nobody + "/main": "sentinel",
		"redis://me:s3cret@" + nobody:          "connection refused",
	} {
		_, err := store.OpenRedis(t.Context(), url, store.RedisOptions{}.Patiently())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if unreachable := strings.Contains(url, nobody); errors.Is(err, store.ErrUnavailable) != unreachable {
			t.Errorf("%s: ErrUnavailable is wrong: %v", url, err)
		}
	}
}

func TestThePasswordIsNowhereVisible(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	s := redistest.Start(t)
	s.Do("acl", "setuser", "me", "on", ">s3cr@t", "~*", "&*", "+@all")
	r := openRedis(t, "redis://me@"+s.Addr, store.RedisOptions{Password: switchboard.NewSecret("s3cr@t")})
	write(t, r, "g", "n", "x")
	other := openRedis(t, "redis://me:s3cr%40t@"+s.Addr, store.RedisOptions{})
	if v := value(t, other, "g", "n"); string(v.Data) != "x" {
		t.Errorf("the value is %s", v.Data)
	}
	s.Kill()
	_, err := other.Value(t.Context(), store.Key{Group: "g", Name: "n"})
	if text := fmt.Sprintf("%+v %v", other.Status(), err); err == nil || strings.Contains(text, "s3cr") || strings.Contains(text, "me@") {
		t.Error(text)
	}
}

// docs/state.md names these rights.
func TestAUserNeedsNoMoreThanTheDocumentsSay(t *testing.T) {
	text, err := os.ReadFile("../../docs/state.md")
	if err != nil {
		t.Fatal(err)
	}
	const rights = "+@all -@dangerous +info +config|get +cluster|slots"
	if !strings.Contains(string(text), "`"+rights+"` on `~switchboard:*` and `&switchboard:*`") {
		t.Error("docs/state.md does not name these rights")
	}
	s := redistest.Start(t, "--aof-load-truncated", "no")
	user := []any{"acl", "setuser", "me", "on", ">s3cret", "~switchboard:*", "&switchboard:*"}
	for right := range strings.FieldsSeq(rights) {
		user = append(user, right)
	}
	s.Do(user...)
	r := openRedis(t, "redis://me:s3cret@"+s.Addr, store.RedisOptions{})
	add(t, r, "l", "one")
	for what, use := range uses(r) {
		if err := use(t.Context()); err != nil && what != "Import" { // Import needs an empty store
			t.Errorf("%s: %v", what, err)
		}
	}
	if st := r.Status(); st.Fault != "" || st.Survives != "machine" {
		t.Errorf("Status = %+v", st)
	}
}

func TestARedissURLUsesTLS(t *testing.T) {
	s := redistest.Start(t)
	web := httptest.NewUnstartedServer(nil)
	web.StartTLS() // for its certificate
	defer web.Close()
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	p := newProxy(t, s.Addr, func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{Certificates: web.TLS.Certificates, MinVersion: tls.VersionTLS12})
	})
	r := openRedis(t, "rediss://"+p.addr, store.RedisOptions{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	write(t, r, "g", "n", "x")
	if _, err := store.OpenRedis(t.Context(), "rediss://"+p.addr, store.RedisOptions{}); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an unknown certificate: %v", err)
	}
}

// A proxy is between the store and a Redis. It counts the commands, and can drop an answer.
type proxy struct {
	addr string
	cut  atomic.Int32 // how many answers to scripts to drop, with their connection
	most atomic.Int64 // bytes of one answer

	mu    sync.Mutex
	asked []string
}

func newProxy(t *testing.T, to string, wrap func(net.Listener) net.Listener) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: l.Addr().String()}
	if wrap != nil {
		l = wrap(l)
	}
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() { stop(); _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(ctx, from, to) })
		}
	})
	return p
}

func (p *proxy) serve(ctx context.Context, from net.Conn, addr string) {
	defer from.Close() //nolint:errcheck // nothing is lost
	to, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer to.Close() //nolint:errcheck // nothing is lost
	defer context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })()
	var lose atomic.Bool
	var bytes atomic.Int64 // of the answer
	go func() {
		defer to.Close() //nolint:errcheck // nothing is lost
		buf := make([]byte, 1<<20)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			what := strings.ToLower(string(buf[:min(n, 300)]))
			if strings.Contains(what, "\r\n$") && !strings.Contains(what, "ping") && !strings.Contains(what, "hello") {
				p.mu.Lock()
				p.asked = append(p.asked, strings.Split(what, "\r\n")[2])
				p.mu.Unlock()
			}
			if strings.Contains(what, "eval") && p.cut.Add(-1) >= 0 {
				lose.Store(true)
			}
			bytes.Store(0)
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 1<<20)
	for {
		n, err := to.Read(buf)
		if err != nil || lose.Load() {
			return
		}
		p.most.Store(max(p.most.Load(), bytes.Add(int64(n)))) // one connection is used at a time
		if _, err := from.Write(buf[:n]); err != nil {
			return
		}
	}
}

// took returns the commands since the last call.
func (p *proxy) took() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { p.asked = nil }()
	return p.asked
}

func TestEachMethodIsOneRoundTrip(t *testing.T) {
	s := redistest.Start(t)
	p := newProxy(t, s.Addr, nil)
	r := openRedis(t, "redis://"+p.addr, store.RedisOptions{}.Patiently())
	l := store.Limit{Name: "l", Every: time.Hour, Burst: 1000}
	take := func() {
		if _, wait, err := r.Take(t.Context(), "g", store.Want{Now: 1}, l, store.Limit{Name: "m", Every: time.Minute, Burst: 1000}); wait != 0 || err != nil {
			t.Fatal(wait, err)
		}
	}
	end := uint64(1)
	uses := map[string]func(){
		"Value":  func() { value(t, r, "g", "n") },
		"Apply":  func() { write(t, r, "g", "n", "x") },
		"Take":   take,
		"List":   func() { _, _ = r.List(t.Context(), "g") },
		"Hold":   func() { hold(t, r, "h", account("a", 1, 1), account("b", 1, 1)) },
		"Settle": func() { settle(t, r, "h", 1, 1) },
		"Accounts": func() {
			if _, err := r.Accounts(t.Context(), "g"); err != nil {
				t.Fatal(err)
			}
		},
		"Span":   func() { span(t, r, "l") },
		"Read":   func() { read(t, r, 0, 1) },
		"Append": func() { appendTo(t, r, "l", end); end++ },
		"Trim":   func() { _ = r.Trim(t.Context(), "l", 0) },
		"Publish": func() {
			if err := r.Publish(t.Context(), "t", nil); err != nil {
				t.Fatal(err)
			}
		},
	}
	add(t, r, "l", "one")
	for _, use := range uses {
		use() // Redis does not know the script yet
	}
	p.took()
	for name, use := range uses {
		use()
		if asked := p.took(); len(asked) != 1 {
			t.Errorf("%s sends %d commands: %v", name, len(asked), asked)
		}
	}
}

func TestALostAnswerIsFoundByReading(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	t.Run("redis", func(t *testing.T) {
		s := redistest.Start(t)
		p := newProxy(t, s.Addr, nil)
		isFoundWhenLost(t, p, openRedis(t, "redis://"+p.addr, store.RedisOptions{}.Patiently()), openRedis(t, s.URL(), store.RedisOptions{}.Patiently()))
	})
	t.Run("cluster", func(t *testing.T) { // its client would repeat a lost command, if it were not told otherwise
		s := redistest.StartCluster(t, 1).Nodes[0]
		plain := openRedis(t, "redis+cluster://"+s.Addr, store.RedisOptions{}.Patiently())
		write(t, plain, "g", "n", "x") // so that its client knows the node
		p := newProxy(t, s.Addr, nil)
		_, port, _ := net.SplitHostPort(p.addr)
		s.Do("config", "set", "cluster-announce-port", port) // the port that clients are redirected to
		wait.UntilNil(t, "the node stands behind the proxy", func() error {
			if slots := fmt.Sprint(s.Do("cluster", "slots")); !strings.Contains(slots, port) {
				return errors.New(slots)
			}
			return nil
		})
		isFoundWhenLost(t, p, openRedis(t, "redis+cluster://"+p.addr, store.RedisOptions{}.Patiently()), plain)
	})
}

// isFoundWhenLost compares r, which uses the Redis behind p, with the content of plain.
func isFoundWhenLost(t *testing.T, p *proxy, r, plain *store.Redis) {
	was := write(t, r, "g", "n", "old")
	add(t, r, "l", "one")
	if _, _, err := r.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: 10}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		p.cut.Store(1)
		v, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "gone", Was: store.Any}, {Name: "n", Was: was, Data: fmt.Append(nil, i)}}})
		if is := value(t, plain, "g", "n"); err != nil || is.Version != v || string(is.Data) != fmt.Sprint(i) {
			t.Fatalf("Apply %d = %d, %v; it is %s of version %d", i, v, err, is.Data, is.Version)
		}
		was = v
		p.cut.Store(1)
		if err := r.Append(t.Context(), "l", uint64(i+1), fmt.Append(nil, i)); err != nil || span(t, plain, "l").Last != uint64(i+2) {
			t.Fatalf("Append %d = %v; the log is %v", i, err, span(t, plain, "l"))
		}
	}
	hold(t, r, "h", account("a", 100, 0))
	settle(t, r, "h", 0)
	for i := range 20 { // these are sent again, and are effective once
		id := fmt.Sprint(i)
		p.cut.Store(1)
		if !hold(t, r, id, account("a", 100, 5)) {
			t.Errorf("hold %d is refused", i)
		}
		p.cut.Store(1)
		if !settle(t, r, id, 2) {
			t.Errorf("settlement %d has a lost answer, and reports that it ended nothing", i)
		}
		if settle(t, r, id, 2) {
			t.Errorf("hold %d is settled twice", i)
		}
		wantSums(t, plain, fmt.Sprintf("a=%d+0", 2*i+2))
	}
	p.cut.Store(1)
	if err := r.Append(t.Context(), "l", 3, []byte("wrong")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a refused Append with a lost answer: %v, want ErrUnavailable", err)
	}
	p.cut.Store(1)
	if _, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: 3, Data: []byte("wrong")}}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a refused Apply with a lost answer: %v, want ErrUnavailable", err)
	}
	p.cut.Store(1)
	if _, _, err := r.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: 10}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a Take with a lost answer: %v, want ErrUnavailable", err)
	}
	p.cut.Store(1)
	if got := read(t, r, 19, 9); got != "20=18 21=19" { // a read is sent again
		t.Errorf("Read = %s", got)
	}
	left := 0
	for {
		_, wait, err := plain.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Hour, Burst: 10})
		if err != nil {
			t.Fatal(err)
		}
		if wait > 0 {
			break
		}
		left++
	}
	if left != 8 {
		t.Errorf("%d of 10 are left after two were counted", left)
	}
}

func TestExpiredItemsLeaveNoKeys(t *testing.T) {
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{}.Patiently())
	for i := range 300 {
		if _, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: fmt.Sprint(i), Data: []byte("x"), TTL: time.Duration(i+1) * time.Millisecond}}}); err != nil {
			t.Fatal(err)
		}
	}
	end := time.Now().Add(time.Second)
	for i := range 250 {
		a := store.Account{Name: fmt.Sprint(i), Max: 1, Amount: 1, Ends: end}
		if _, _, err := r.Hold(t.Context(), "g", fmt.Sprint(i), store.HoldTerms{TTL: time.Duration(i+1) * time.Millisecond}, a); err != nil && time.Now().Before(end) {
			t.Fatal(err)
		}
	}
	write(t, r, "other", "n", "x")
	if _, err := r.Apply(t.Context(), store.Change{Group: "other", Writes: []store.Write{{Name: "n", Was: store.Any}}}); err != nil {
		t.Fatal(err)
	}
	if _, wait, err := r.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: time.Millisecond, Burst: 100}); wait != 0 || err != nil {
		t.Fatal(wait, err)
	}
	wait.UntilNil(t, "only the schema and the mark are left", func() error {
		if keys, _ := s.Do("keys", "*").([]any); len(keys) != 2 {
			return fmt.Errorf("%v", keys)
		}
		return nil
	})

	// A value without a TTL is listed, also beside expired ones.
	for _, w := range []store.Write{{Name: "short", Data: []byte("x"), TTL: 20 * time.Millisecond}, {Name: "endless", Data: []byte("x")}} {
		if _, err := r.Apply(t.Context(), store.Change{Group: "mixed", Writes: []store.Write{w}}); err != nil {
			t.Fatal(err)
		}
	}
	after(25 * time.Millisecond)
	if all, err := r.List(t.Context(), "mixed"); err != nil || len(all) != 1 || all[0].Name != "endless" {
		t.Errorf("List = %v, %v", all, err)
	}

	// The index of a group that is still used does not keep the names of expired values.
	write(t, r, "g", "for ever", "x")
	for i := range 100 {
		if _, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: fmt.Sprint(i), Data: []byte("x"), TTL: time.Millisecond}}}); err != nil {
			t.Fatal(err)
		}
	}
	wait.UntilNil(t, "the index is healed", func() error {
		write(t, r, "g", "for ever", "x")
		if n := s.Do("zcard", "switchboard:{g}i"); n != int64(1) {
			return fmt.Errorf("%v names", n)
		}
		return nil
	})
}

func TestALargeGroupIsReadInSeveralAnswers(t *testing.T) {
	s := redistest.Start(t, lazy...)
	p := newProxy(t, s.Addr, nil)
	r := openRedis(t, "redis://"+p.addr, store.RedisOptions{Relaxed: true}.Patiently())
	big := bytes.Repeat([]byte("x"), store.MaxValue/2)
	for i := range 5 {
		if _, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: fmt.Sprint(i), Data: big}}}); err != nil {
			t.Fatal(err)
		}
	}
	var all []store.NamedValue
	wait.UntilNil(t, "a busy machine reads them in time", func() (err error) {
		all, err = r.List(t.Context(), "g")
		return err
	})
	if len(all) != 5 {
		t.Fatalf("%d values", len(all))
	}
	for i, n := range all {
		if n.Name != fmt.Sprint(i) || len(n.Data) != len(big) {
			t.Errorf("value %d is %s of %d bytes", i, n.Name, len(n.Data))
		}
	}
	entry := big[:store.MaxEntry]
	for i := range 10 {
		if err := r.Append(t.Context(), "l", uint64(4*i), entry, entry, entry, entry); err != nil {
			t.Fatal(err)
		}
	}
	var entries []store.Entry
	wait.UntilNil(t, "a busy machine reads them in time", func() (err error) {
		entries, err = r.Read(t.Context(), "l", 1, 38)
		return err
	})
	if len(entries) != 38 || entries[0].Seq != 2 || entries[37].Seq != 39 {
		t.Errorf("%d entries", len(entries))
	}
	if most := p.most.Load(); most > store.MaxValue+1<<20 {
		t.Errorf("one answer has %d bytes", most)
	}
}

func TestARedisWithoutMemoryStillReads(t *testing.T) {
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{}.Patiently())
	write(t, r, "g", "n", "x")
	begun := time.Now()
	holdFor(t, r, "g", "short", 3*time.Second, store.Account{Name: "over", Max: 9, Amount: 1, Ends: begun.Add(3050 * time.Millisecond)}, account("a", 9, 3), account("b", 9, 1))
	hold(t, r, "long", account("a", 9, 1))
	s.Do("config", "set", "maxmemory", "1")
	if _, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("y")}}}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("Apply = %v", err)
	}
	wait.UntilNil(t, "Status says so", func() error {
		if st := r.Status(); !strings.Contains(st.Fault, "OOM") || st.Since.IsZero() {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if v := value(t, r, "g", "n"); string(v.Data) != "x" {
		t.Errorf("it is %s", v.Data)
	}
	after(time.Until(begun.Add(3100 * time.Millisecond)))
	wantSums(t, r, "a=3+1 b=1+0") // the expired hold could not be deleted
	if _, _, err := r.Hold(t.Context(), "g", "no", store.HoldTerms{TTL: time.Hour}, account("a", 9, 1)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Hold = %v", err)
	}
	wantSums(t, r, "a=3+1 b=1+0")
	s.Do("config", "set", "maxmemory", "0")
	wait.UntilNil(t, "Status has no fault", func() error { // although no call uses the store
		if st := r.Status(); st.Fault != "" {
			return errors.New(st.Fault)
		}
		return nil
	})
	hold(t, r, "more", account("a", 9, 1))
	wantSums(t, r, "a=3+2 b=1+0")
}

func TestARedisThatComesBackLessDurableIsNotUsed(t *testing.T) {
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{}.Patiently())
	s.Do("config", "set", "appendfsync", "no", "maxmemory", "1")
	use := func() error {
		_, err := r.Apply(t.Context(), store.Change{Group: "g", Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("y")}}})
		return err
	}
	if err := use(); err == nil {
		t.Fatal("it has memory")
	}
	s.Do("config", "set", "maxmemory", "0")
	wait.UntilNil(t, "it is refused", func() error {
		if err := use(); err == nil || !strings.Contains(err.Error(), "appendfsync is no") {
			return fmt.Errorf("Apply = %v", err) //nolint:errorlint // it may be nil
		}
		return nil
	})
	s.Do("config", "set", "appendfsync", "always")
	wait.UntilNil(t, "it is used", use)
}

func TestExaminingARedisWritesNothingThere(t *testing.T) {
	s := redistest.Start(t)
	if err := store.ExamineRedis(t.Context(), s.URL(), store.RedisOptions{Relaxed: true}); err != nil {
		t.Error(err)
	}
	if n := fmt.Sprint(s.Do("dbsize")); n != "0" {
		t.Errorf("%s keys are there", n)
	}
	if err := store.ExamineRedis(t.Context(), "redis://:secret-word@127.0.0.1:1", store.RedisOptions{}); err == nil || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("nothing listens there, and the error is %v", err)
	}
}
