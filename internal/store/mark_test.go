package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// Each store has its own mark. All processes that open it read the same mark. The mark is not part of the
// content.
func TestNames15EachStoreHasAMarkOfItsOwn(t *testing.T) {
	eachBackend(t, func(t *testing.T, b backend, open func() store.Store) {
		if !b.persistent {
			if id := open().Status().ID; id != "" {
				t.Errorf("a store in memory has the mark %s", id)
			}
			return
		}
		const many = 8
		var ids [many]string
		var all sync.WaitGroup
		stores := make([]store.Store, many)
		for i := range many {
			all.Go(func() { // all of them find a new store
				stores[i] = open()
				ids[i] = stores[i].Status().ID
			})
		}
		all.Wait()
		write(t, stores[0], "g", "n", "x")
		for _, s := range stores {
			_ = s.Close()
		}
		again, other := open(), b.newStore(t)()
		for _, id := range append(ids[:], again.Status().ID) {
			if id == "" || id != ids[0] {
				t.Fatalf("the marks are %q", ids)
			}
		}
		var export bytes.Buffer
		if err := store.Export(t.Context(), again, &export); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(export.Bytes(), []byte(ids[0])) || bytes.Contains(export.Bytes(), []byte("mark")) {
			t.Errorf("the export contains the mark: %s", &export)
		}
		if err := store.Import(t.Context(), other, &export); err != nil {
			t.Fatal(err)
		}
		if id := other.Status().ID; id == "" || id == ids[0] {
			t.Errorf("another store has the same mark %q", id)
		}
		if string(value(t, other, "g", "n").Data) != "x" {
			t.Error("the imported value is missing")
		}
	})
}

func appendTo(t *testing.T, s store.Store, log string, after uint64) {
	t.Helper()
	if err := s.Append(t.Context(), log, after, []byte("x")); err != nil {
		t.Fatal(err)
	}
}

// lostRefused checks that all replicas refuse a Redis that has lost something, also a replica that starts
// now, until a person accepts the loss; that it is used after that; and that no loss is left to accept.
func lostRefused(t *testing.T, url, why string, running ...store.Store) {
	t.Helper()
	for _, r := range running {
		wait.UntilNil(t, "it is refused: "+why, func() error {
			if st := r.Status(); !strings.Contains(st.Fault, why) || !strings.Contains(st.Fault, "switchboard store accept") || !st.Lost {
				return fmt.Errorf("%+v", st)
			}
			return nil
		})
	}
	for _, relaxed := range []bool{false, true} {
		r, err := store.OpenRedis(t.Context(), url, store.RedisOptions{Relaxed: relaxed})
		if err == nil {
			_ = r.Close()
		}
		if err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "switchboard store accept") {
			t.Errorf("a replica that starts now, relaxed %t: %v, want %q", relaxed, err, why)
		}
	}
	if lost, err := store.AcceptRedis(t.Context(), url, store.RedisOptions{}); err != nil || !strings.Contains(lost, why) {
		t.Errorf("accepting returns the loss %q, %v", lost, err)
	}
	for _, r := range append(running, openRedis(t, url, store.RedisOptions{}.Patiently())) {
		serves(t, r)
	}
	if lost, err := store.AcceptRedis(t.Context(), url, store.RedisOptions{}); !errors.Is(err, store.ErrConflict) {
		t.Errorf("accepting again returns %q, %v", lost, err)
	}
}

func TestNames15ARedisThatWasEmptiedIsRefusedUntilSomebodyAcceptsIt(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	t.Run("one", func(t *testing.T) {
		s := redistest.Start(t)
		for range 2 { // it can be emptied again
			a, b := openRedis(t, s.URL(), store.RedisOptions{}), openRedis(t, s.URL(), store.RedisOptions{})
			s.Do("flushall")
			lostRefused(t, s.URL(), "it was emptied", a, b)
		}
	})
	t.Run("a node of a Cluster", func(t *testing.T) {
		c := redistest.StartCluster(t, 3)
		a, b := openRedis(t, c.URL(), store.RedisOptions{}), openRedis(t, c.URL(), store.RedisOptions{})
		c.Nodes[1].Do("flushall")
		eachNode := map[bool]int{}
		wait.Until(t, "one node is refused", func() bool { return a.Status().Fault != "" })
		for i := range 50 {
			eachNode[put(t, a, fmt.Sprint(i)) == nil]++
		}
		if eachNode[true] == 0 || eachNode[false] == 0 {
			t.Errorf("%d of 50 groups are refused; those of one node of three should be", eachNode[false])
		}
		lostRefused(t, c.URL(), "it was emptied", a, b)
	})
}

// No replica was running that could have noticed the loss, but the other nodes still have their marks.
func TestNames15ANodeOfAClusterThatWasEmptiedMeanwhileIsRefusedAtTheStart(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	c := redistest.StartCluster(t, 3)
	first := openRedis(t, c.URL(), store.RedisOptions{})
	serves(t, first)
	_ = first.Close()
	c.Nodes[2].Do("flushall")
	lostRefused(t, c.URL(), "it was emptied")
}

// A node that has lost the claims before it acknowledges no claim, also immediately after the loss.
func TestNames15NothingIsClaimedAtANodeThatWasEmptied(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	c := redistest.StartCluster(t, 3)
	r := openRedis(t, c.URL(), store.RedisOptions{})
	claim := func(group string) error {
		_, err := r.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: "claim", Data: []byte("x")}}})
		return err
	}
	const many = 30
	for i := range many {
		if err := claim(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	c.Nodes[0].Do("flushall")
	refused := 0
	for i := range many {
		switch err := claim(fmt.Sprint(i)); {
		case err == nil:
			t.Errorf("claim %d is acknowledged twice", i)
		case errors.Is(err, store.ErrUnavailable):
			refused++
		case !errors.Is(err, store.ErrConflict):
			t.Error(err)
		}
	}
	if refused == 0 || refused == many {
		t.Errorf("%d of %d claims were at the node", refused, many)
	}
}

// The check does not depend on time: the next Append after a loss detects the missing entry.
func TestNames15NothingIsAppendedOnceAStoreHasLostALog(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	s := redistest.Start(t)
	for i := range uint64(3) {
		r := openRedis(t, s.URL(), store.RedisOptions{})
		log := fmt.Sprint("log", i)
		for n := range i + 1 {
			appendTo(t, r, log, n)
		}
		s.Do("flushall")
		if err := r.Append(t.Context(), log, i+1, []byte("next")); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("the next entry: %v", err)
		}
		lostRefused(t, s.URL(), "it ", r)
		if err := r.Append(t.Context(), log, i+1, []byte("next")); !errors.Is(err, store.ErrConflict) {
			t.Errorf("after the loss is accepted, after a lost entry: %v", err)
		}
		appendTo(t, r, log, 0)
	}
}

// standing copies the files of a killed server, or puts them back.
func standing(t *testing.T, from, to string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

func TestNames15ARedisWithOldDataIsRefused(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	appendTo(t, r, "log", 0)
	before := filepath.Join(t.TempDir(), "before")
	s.Kill()
	standing(t, s.Dir(), before)
	s.Start()
	serves(t, r)
	t.Run("that is put back as it was", func(t *testing.T) {
		s.Do("flushall")
		refuses(t, r, "it was emptied")
		s.Kill()
		standing(t, before, s.Dir())
		s.Start()
		serves(t, r)
	})
	appendTo(t, r, "log", 1)
	s.Kill()
	standing(t, before, s.Dir())
	s.Start()
	lostRefused(t, s.URL(), "log ends with 1, and ended with 2", r)
}

func TestNames15AReplicaRefusesAnotherRedisThanItHasOpened(t *testing.T) {
	s, other := redistest.Start(t), redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	_ = openRedis(t, other.URL(), store.RedisOptions{}).Close()
	s.Kill()
	other.Kill()
	own := filepath.Join(t.TempDir(), "own")
	standing(t, s.Dir(), own)
	standing(t, other.Dir(), s.Dir())
	s.Start()
	refuses(t, r, "it is another store")
	if st := r.Status(); !strings.Contains(st.Fault, "restart Switchboard") || !st.Lost {
		t.Errorf("it does not say what to do: %+v", st)
	}
	serves(t, openRedis(t, s.URL(), store.RedisOptions{}))
	s.Kill()
	standing(t, own, s.Dir())
	s.Start()
	serves(t, r)
}

// With durability: relaxed, a Redis may lose all its data. The loss is logged.
func TestNames15ARelaxedStoreContinuesAfterALoss(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "everysec")
	var log lines
	r := openRedis(t, s.URL(), store.RedisOptions{Relaxed: true, Log: slog.New(slog.NewTextHandler(&log, nil))})
	appendTo(t, r, "log", 0)
	for range 2 {
		s.Do("flushall")
		wait.Until(t, "it is noticed", func() bool { return strings.Contains(log.String(), "the store has lost some data") })
		serves(t, r)
		if got := fmt.Sprint(s.Do("get", "switchboard:{%}schema")); got != "2" {
			t.Errorf("its schema is %s", got)
		}
		log.reset()
	}
	if err := r.Append(t.Context(), "log", 1, []byte("x")); !errors.Is(err, store.ErrConflict) {
		t.Errorf("behind what is gone: %v", err)
	}
}

// lines is a log output.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}

// Redis answers before its replica has the data: so a loss by a failover is no reason to refuse the Redis.
func TestNames15AReplicaThatTakesOverMayHaveLostTheLastMoment(t *testing.T) {
	w := redistest.StartWatched(t)
	var log lines
	r := openRedis(t, w.URL(), store.RedisOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	appendTo(t, r, "log", 0)
	w.Master.Do("wait", 1, 5000)
	wait.Until(t, "it is known that it has a replica", func() bool { return strings.Contains(r.Status().Survives, "replica") })
	w.Replica.Pause()
	const last = 32 // of one MiB each: more than is on its way to the replica
	for n := range uint64(last) {
		if err := r.Append(t.Context(), "log", n+1, make([]byte, store.MaxEntry)); err != nil {
			t.Fatal(err)
		}
	}
	w.Master.Kill()
	w.Replica.Resume()
	wait.UntilNil(t, "it is used", func() error {
		err := r.Append(t.Context(), "log", last+1, []byte("x"))
		if errors.Is(err, store.ErrConflict) {
			return nil
		}
		return fmt.Errorf("%w", errors.Join(err, errors.New("not yet a conflict")))
	})
	if !strings.Contains(log.String(), "replica_took_over=true") {
		t.Errorf("the loss is not logged:\n%s", log.String())
	}
	// A failover excuses one loss. A later loss is refused.
	wait.UntilNil(t, "it is written to", func() error { return r.Append(t.Context(), "other", 0, []byte("x")) })
	w.Replica.Do("del", "switchboard:{other}l")
	if err := r.Append(t.Context(), "other", 0, []byte("x")); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a log that was lost after the failover: %v", err)
	}
}

func TestNames15AFileWithReplacedContentIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	f := openFile(t, path)
	write(t, f, "g", "n", "x")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // only the test uses it
	do := func(text string) {
		t.Helper()
		if _, err := db.ExecContext(context.Background(), text); err != nil {
			t.Fatal(err)
		}
	}
	do(`UPDATE value SET grp = 'away' WHERE grp = ''`)
	refused := func() error {
		if err := put(t, f, "g"); !errors.Is(err, store.ErrUnavailable) {
			return fmt.Errorf("written: %w", err)
		}
		return nil
	}
	wait.UntilNil(t, "it is refused", refused)
	if _, err := f.Value(t.Context(), store.Key{Group: "g", Name: "n"}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "restart Switchboard") {
		t.Errorf("read: %v", err)
	}
	do(`UPDATE value SET grp = '' WHERE grp = 'away'`)
	serves(t, f)
	do(`DELETE FROM value WHERE grp = ''`)
	wait.UntilNil(t, "it is refused", refused)
	_ = f.Close()
	serves(t, openFile(t, path))
}

// Writes to a file without a name are lost, and another process makes a new store at its path.
func TestNames15AnOpenFileThatIsRemovedOrReplacedIsRefused(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	for name, c := range map[string]struct {
		lose func(dir string) error
		back func(dir string) error // nil: only opening it again helps
		why  string
	}{
		"the folder is removed": {lose: os.RemoveAll, why: "store.db was removed"},
		"the file is removed":   {lose: func(dir string) error { return os.Remove(dir + "/store.db") }, why: "store.db was removed"},
		"its WAL is removed":    {lose: func(dir string) error { return os.Remove(dir + "/store.db-wal") }, why: "store.db-wal was removed"},
		"the index is removed":  {lose: func(dir string) error { return os.Remove(dir + "/store.db-shm") }, why: "store.db-shm was removed"},
		"the folder is replaced": {lose: func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.CopyFS(dir, os.DirFS(dir+".old")))
		}, why: "store.db was replaced"},
		"the folder is renamed, and back": {
			lose: func(dir string) error { return os.Rename(dir, dir+".old") },
			back: func(dir string) error { return os.Rename(dir+".old", dir) },
			why:  "store.db was removed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			path := filepath.Join(dir, "store.db")
			var log lines
			f, err := store.OpenFile(path, store.FileOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			closed(t, f)
			write(t, f, "g", "n", "x")
			appendTo(t, f, "log", 0)
			if err := c.lose(dir); err != nil {
				t.Fatal(err)
			}
			last := uint64(1)
			err = f.Append(t.Context(), "log", last, []byte("entry 2"))
			if _, gone := os.Stat(path + "-logs"); gone == nil && err == nil {
				last++ // it was acknowledged, so it must not be lost
			} else if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the next entry: %v, want %q", err, c.why)
			}
			// At once, for each caller.
			if _, err := f.Apply(t.Context(), store.Change{Group: "g", Durable: true, Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("y")}}}); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), c.why) {
				t.Errorf("the next durable value: %v, want %q", err, c.why)
			}
			refuses(t, f, c.why) // also changes that are not durable
			if !strings.Contains(log.String(), c.why) {
				t.Errorf("the log does not say %q:\n%s", c.why, log.String())
			}
			if c.back != nil {
				if err := c.back(dir); err != nil {
					t.Fatal(err)
				}
				serves(t, f)
				return
			}
			if st := f.Status(); !strings.Contains(st.Fault, "restart Switchboard") || !st.Lost {
				t.Errorf("it does not say what to do: %+v", st)
			}
			_ = f.Close()
			if name == "the file is removed" { // and its WAL must not be used for a new file
				if _, err := store.OpenFile(path, store.FileOptions{}); err == nil || !strings.Contains(err.Error(), "put it back") {
					t.Errorf("a new file is made beside the old WAL: %v", err)
				}
				return
			}
			again := openFile(t, path)
			if name != "the folder is removed" && span(t, again, "log").Last != last {
				t.Errorf("entry %d was acknowledged, and the log has %v", last, span(t, again, "log"))
			}
			serves(t, again)
		})
	}
}

// The loss is noticed also without a write.
func TestNames15AnIdleFileThatIsRemovedIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		f := openFile(t, filepath.Join(dir, "data/store.db"))
		defer f.Close() //nolint:errcheck // the file is removed
		if err := os.RemoveAll(filepath.Join(dir, "data")); err != nil {
			t.Fatal(err)
		}
		after(1500 * time.Millisecond)
		synctest.Wait()
		if st := f.Status(); !strings.Contains(st.Fault, "was removed") {
			t.Errorf("%+v", st)
		}
		if _, err := f.Value(t.Context(), store.Key{Group: "g", Name: "n"}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("read: %v", err)
		}
	})
}
