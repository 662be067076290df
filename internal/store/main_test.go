package store_test

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// shared lives as long as all tests.
var shared redistest.Process

func TestMain(m *testing.M) {
	if child := children[os.Getenv("STORE_TEST_CHILD")]; child != nil {
		child(os.Getenv("STORE_TEST_FILE"))
		os.Exit(0)
	}
	code := m.Run()
	shared.End()
	os.Exit(code)
}

// children are the programs that tests run in other processes, by name.
var children = map[string]func(path string){
	"load":     underLoad,
	"limited":  withoutSpace,
	"stranger": asAnother,
}

// child returns a command that runs this program as the named child.
func child(t *testing.T, name, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "STORE_TEST_CHILD="+name, "STORE_TEST_FILE="+path)
	cmd.Stderr = os.Stderr
	return cmd
}

// lazy makes the tests that kill nothing faster: Redis does not wait for its disk.
var lazy = []string{"--appendfsync", "everysec"}

var (
	oneRedis     = sync.OnceValue(func() string { return redistest.Start(&shared, lazy...).URL() })
	redisCluster = sync.OnceValue(func() string { return redistest.StartCluster(&shared, 3, lazy...).URL() })
)

var prefixes atomic.Int32

// inRedis returns an empty store in a Redis that tests share: its keys have their own prefix.
func inRedis(url func() string) func(t *testing.T) func() store.Store {
	return func(t *testing.T) func() store.Store {
		redistest.Need(t)
		prefix := fmt.Sprint("place", prefixes.Add(1))
		return func() store.Store {
			return openRedis(t, url(), store.RedisOptions{Prefix: prefix, Relaxed: true}.Patiently())
		}
	}
}

func openRedis(t *testing.T, url string, o store.RedisOptions) *store.Redis {
	t.Helper()
	r, err := store.OpenRedis(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, r)
	return r
}
