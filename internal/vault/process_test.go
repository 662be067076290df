package vault_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// The times of a renewal in processes that are killed, so that a test need not wait for long. On a busy machine a process may be late:
// then its claim is over, which makes a connection spent, and no grant sent twice.
const (
	killedClaim = 400 * time.Millisecond
	killedAsk   = 250 * time.Millisecond
	killedPause = 20 * time.Millisecond
)

// killOwners is how many connections the processes renew.
const killOwners = 12

func killOwner(i int) vault.Owner {
	return vault.Owner{Tenant: "acme", Person: fmt.Sprint("idp/", i), Server: "tracker", Resource: "https://tracker.example/mcp"}
}

// runChild renews connections until it is killed: its arguments are the URL of the store and the address of the provider. It writes one line
// for each error that must not be.
func runChild(where, provider string) {
	ctx := context.Background()
	fatal := func(err error) {
		fmt.Println("error", err)
		os.Exit(1)
	}
	s, err := store.Open(ctx, where, store.Options{Redis: store.RedisOptions{Relaxed: true}})
	if err != nil {
		fatal(err)
	}
	v, err := vault.Open(ctx, s, vault.Options{Keys: []switchboard.Secret{key}})
	if err != nil {
		fatal(err)
	}
	vault.SetTimes(v, killedClaim, killedAsk, killedPause)
	ask := func(ctx context.Context, c vault.ServerConnection) (vault.ServerConnection, error) {
		access, next, err := askProvider(ctx, provider, c.Grant.Reveal())
		return vault.ServerConnection{Access: secret(access), Grant: secret(next), Expires: time.Now().Add(time.Hour)}, err
	}
	fmt.Println("ready")
	for range 4 {
		go func() {
			for {
				o := killOwner(rand.IntN(killOwners))
				token, err := v.Token(ctx, o, ask)
				if err == nil {
					_, err = v.Renew(ctx, o, token.Generation, ask)
				}
				if errors.Is(err, vault.ErrUnreadable) {
					fatal(err)
				}
				time.Sleep(time.Duration(rand.IntN(8)) * time.Millisecond) // processors are for the processes that start
			}
		}()
	}
	select {}
}

// askProvider sends a grant to the provider at the address.
func askProvider(ctx context.Context, addr, grant string) (access, next string, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", "", fmt.Errorf("%w: %w", vault.ErrNotSent, err)
	}
	defer func() { _ = conn.Close() }()
	if until, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(until)
	}
	if _, err := fmt.Fprintln(conn, grant); err != nil {
		return "", "", err
	}
	_, err = fmt.Fscan(conn, &access, &next)
	return access, next, err
}

// serve answers askProvider until the test ends. It is slow enough that processes are killed in between.
func (p *fakeProvider) serve(t *testing.T) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				var grant string
				if _, err := fmt.Fscan(conn, &grant); err != nil {
					return
				}
				access, next := p.renew(grant)
				<-time.After(time.Duration(rand.IntN(8)) * time.Millisecond)
				_, _ = fmt.Fprintln(conn, access, next)
			}()
		}
	}()
	return l.Addr().String()
}

// A killedChild is a process that renews connections.
type killedChild struct {
	cmd   *exec.Cmd
	ready chan struct{}
	ended chan struct{}
}

func startChild(t *testing.T, where, provider string) *killedChild {
	t.Helper()
	c := &killedChild{cmd: exec.CommandContext(t.Context(), os.Args[0]), ready: make(chan struct{}), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), "VAULT_TEST_CHILD=renew", "VAULT_TEST_STORE="+where, "VAULT_TEST_PROVIDER="+provider)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.cmd.Stderr = os.Stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if lines.Text() == "ready" {
				close(c.ready)
				continue
			}
			t.Error("a process says: ", lines.Text())
		}
		_ = c.cmd.Wait()
	}()
	return c
}

func (c *killedChild) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
}

// TestCD12EachGrantIsSentOnceByProcessesThatAreKilled takes 10 s, for the starts of 260 processes.
func TestCD12EachGrantIsSentOnceByProcessesThatAreKilled(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		rounds := 200
		if raceEnabled { // a start of the processes then takes four times as long
			rounds = 60
		}
		killProcesses(t, "file:"+filepath.Join(t.TempDir(), "store.db"), rounds)
	})
	t.Run("redis", func(t *testing.T) {
		redistest.Need(t)
		killProcesses(t, redistest.Start(t, "--appendfsync", "everysec").URL(), 60)
	})
}

// killProcesses runs three processes on one store, and kills one of them each round.
func killProcesses(t *testing.T, where string, rounds int) {
	law.Hold(t, law.NeverTwice)
	if testing.Short() {
		rounds /= 10
	}
	s, err := store.Open(t.Context(), where, store.Options{Redis: store.RedisOptions{Relaxed: true}})
	if err != nil {
		t.Fatal(err)
	}
	v := openVault(t, closed(t, s), vault.Options{})
	var p fakeProvider
	addr := p.serve(t)
	consents, spent := 0, 0
	connect := func() { // persons connect, and connect again
		all, err := v.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		good := map[vault.Owner]bool{}
		for _, c := range all {
			if c.Unreadable {
				t.Fatalf("%+v", c)
			}
			good[c.Owner] = !c.Again
			if c.Again {
				spent++
			}
		}
		for i := range killOwners {
			if !good[killOwner(i)] {
				consents++
				save(t, v, killOwner(i), fmt.Sprint("consented-", consents), fmt.Sprint("consent-", consents), time.Hour)
			}
		}
	}
	connect()
	var children [3]*killedChild
	for i := range children {
		children[i] = startChild(t, where, addr)
	}
	luck := rand.New(rand.NewPCG(law.Seed(t), 0))
	for round := range rounds {
		i := round % len(children)
		wait.Receive(t, "a process is ready", children[i].ready)
		<-time.After(time.Duration(luck.IntN(40)) * time.Millisecond)
		children[i].kill()
		children[i] = startChild(t, where, addr)
		if round%5 == 0 {
			connect()
		}
		if t.Failed() {
			break
		}
	}
	for _, c := range children {
		c.kill()
	}
	twice, all := p.sentTwice()
	if len(twice) > 0 {
		t.Errorf("grants that were sent more than once: %v", twice)
	}
	t.Logf("%d kills: %d grants were sent, %d of %d consents were spent by a kill", rounds, all, spent, consents)
	if !testing.Short() && (all < rounds/4 || spent == 0) {
		t.Errorf("in %d rounds %d grants were sent and %d consents were spent: that tests nothing", rounds, all, spent)
	}
}

func TestProcessesThatStartAtOnceGetOneKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	var wg sync.WaitGroup
	var keys sync.Map
	for range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "VAULT_TEST_CHILD=key", "VAULT_TEST_STORE="+dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			for line := range strings.Lines(string(out)) {
				keys.Store(line, true)
			}
		})
		_ = in.Close()
	}
	wg.Wait()
	n := 0
	keys.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d keys", n)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != vault.KeyName {
		t.Errorf("in the folder: %v %v", left, err)
	}
}

// printKeys prints the key of the folder as four goroutines get it.
func printKeys(dir string) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			k, err := vault.KeyFile(dir)
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(k.Reveal())
		})
	}
	wg.Wait()
}

func TestOnlyItsOwnerReadsTheKeyFile(t *testing.T) {
	dir := t.TempDir()
	first, err := vault.KeyFile(dir)
	if err != nil || len(first.Reveal()) < 43 {
		t.Fatalf("%d bytes, %v", len(first.Reveal()), err)
	}
	name := filepath.Join(dir, vault.KeyName)
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 && os.PathSeparator == '/' {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if again, err := vault.KeyFile(dir); err != nil || !again.Equal(first) {
		t.Errorf("another key, %v", err)
	}
	if os.PathSeparator == '/' {
		if err := os.Chmod(name, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.KeyFile(dir); err == nil {
			t.Error("a key that all users can read is accepted")
		}
		_ = os.Chmod(name, 0o600)
	}
	for _, text := range []string{"", "\n", "short", "two lines of text\nthat are no key at all\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := vault.KeyFile(dir); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
