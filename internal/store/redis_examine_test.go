package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// put writes a value, and replaces any version.
func put(t *testing.T, s store.Store, group string) error {
	t.Helper()
	_, err := s.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: "n", Was: store.Any, Data: []byte("x")}}})
	return err
}

// refuses waits until the store refuses all calls, with the reason why.
func refuses(t *testing.T, s store.Store, why string) {
	t.Helper()
	wait.UntilNil(t, "it is refused: "+why, func() error {
		if st := s.Status(); !strings.Contains(st.Fault, why) {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	for what, use := range map[string]func() error{
		"Apply":  func() error { return put(t, s, "g") },
		"Append": func() error { return s.Append(t.Context(), "log", 0, []byte("x")) },
		"Take": func() error {
			_, _, err := s.Take(t.Context(), "g", store.Want{Now: 1}, store.Limit{Name: "l", Every: 1e9, Burst: 1})
			return err
		},
		"Hold": func() error {
			_, _, err := s.Hold(t.Context(), "g", "h", store.HoldTerms{TTL: time.Hour}, account("a", 1, 1))
			return err
		},
		"Value": func() error { _, err := s.Value(t.Context(), store.Key{Group: "g", Name: "n"}); return err },
		"Read":  func() error { _, err := s.Read(t.Context(), "log", 0, 1); return err },
	} {
		if err := use(); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", what, err, why)
		}
	}
}

// serves waits until the store can be used, and its status says so: of a Cluster, each node.
func serves(t *testing.T, s store.Store) {
	t.Helper()
	wait.UntilNil(t, "it is used again", func() error {
		if err := put(t, s, "g"); err != nil {
			return err
		}
		if st := s.Status(); st.Fault != "" || st.Lost {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
}

func TestNames15SettingsThatChangeWhileRedisRunsAreNoticed(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	s := redistest.Start(t)
	s.Do("acl", "setuser", "narrow", "on", ">s3cret", "~*", "&*", "+@all")
	narrow := strings.Replace(s.URL(), "://", "://narrow:s3cret@", 1)
	for _, c := range []struct{ wrong, right, why string }{
		{"config set appendonly no", "config set appendonly yes", "appendonly is no"},
		{"config set appendfsync everysec", "config set appendfsync always", "appendfsync is everysec"},
		{"config set maxmemory-policy allkeys-lru", "config set maxmemory-policy noeviction", "maxmemory-policy is allkeys-lru"},
		{"acl setuser narrow -config", "acl setuser narrow +config", "CONFIG GET is forbidden"},
	} {
		t.Run(c.wrong, func(t *testing.T) {
			r := openRedis(t, narrow, store.RedisOptions{})
			s.Do(fields(c.wrong)...)
			refuses(t, r, c.why)
			s.Do(fields(c.right)...)
			serves(t, r)
		})
	}
	t.Run("relaxed", func(t *testing.T) {
		r := openRedis(t, s.URL(), store.RedisOptions{Relaxed: true})
		s.Do("config", "set", "appendfsync", "everysec")
		wait.Until(t, "Status says what may be lost", func() bool { return strings.Contains(r.Status().Survives, "two seconds") })
		if err := put(t, r, "g"); err != nil {
			t.Error(err)
		}
	})
}

func fields(text string) (all []any) {
	for f := range strings.FieldsSeq(text) {
		all = append(all, f)
	}
	return all
}

// No command is sent to another Redis that has the same address now.
func TestNames15AConnectionIsExaminedBeforeItIsUsed(t *testing.T) {
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	for range 3 {
		serves(t, r)
		s.Do("config", "set", "appendfsync", "everysec")
		s.Do("client", "kill", "type", "normal")
		if err := put(t, r, "g"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("the first use after it: %v", err)
		}
		s.Do("config", "set", "appendfsync", "always")
	}
}

// Redis writes its first append-only file only some time after its appendonly is yes again. Changes that it
// acknowledges before that are in no file.
func TestNames15ARedisIsUsedAgainOnceItsFileIsWritten(t *testing.T) {
	s := redistest.Start(t)
	r := openRedis(t, s.URL(), store.RedisOptions{})
	for i := range 10 {
		if err := put(t, r, fmt.Sprint("g", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.Do("config", "set", "appendonly", "no")
	refuses(t, r, "appendonly is no")
	s.Do("config", "set", "rdb-key-save-delay", "100000") // microseconds for each key
	s.Do("config", "set", "appendonly", "yes")
	for begun := true; begun; {
		err := put(t, r, "g")
		info := fmt.Sprint(s.Do("info", "persistence"))
		begun = strings.Contains(info, "aof_rewrite_in_progress:1") || strings.Contains(info, "aof_rewrite_scheduled:1")
		if err == nil && begun {
			t.Fatal("it is used while its file is not yet written")
		}
	}
	serves(t, r)
	s.Kill()
	s.Start()
	serves(t, r)
	for i := range 10 {
		if value(t, r, fmt.Sprint("g", i), "n").Version == 0 {
			t.Errorf("value %d is lost", i)
		}
	}
}
