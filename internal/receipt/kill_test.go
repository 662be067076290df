package receipt_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var kills = flag.Int("kills", 10, "how often a writer is killed")

// writerEnv names the store that the test binary writes to until it is killed.
const writerEnv = "RECEIPT_TEST_WRITES_TO"

func TestMain(m *testing.M) {
	if where := os.Getenv(writerEnv); where != "" {
		panic(writeUntilKilled(where, os.Getenv(writerEnv+"_ROUND")))
	}
	code := m.Run()
	receipt.RemoveBenchFiles()
	os.Exit(code)
}

// writeUntilKilled prints the id and the note of each acknowledged receipt.
func writeUntilKilled(where, round string) error {
	s, err := store.Open(context.Background(), where, store.Options{})
	if err != nil {
		return err
	}
	file := os.Getenv(writerEnv + "_KEYS")
	keys, err := receipt.ReadOrCreateKeys(file)
	if err != nil {
		return err
	}
	o := options()
	o.Key, o.Previous = keys[0], keys[1:]
	b, err := receipt.Open(context.Background(), s, o)
	if err != nil {
		return err
	}
	rotate := func() error {
		if err := receipt.RotateKey(file); err != nil {
			return err
		}
		keys, err := receipt.ReadOrCreateKeys(file)
		if err != nil {
			return err
		}
		return b.Rotate(context.Background(), keys[0])
	}
	failed := make(chan error)
	for i := range 8 {
		go func() {
			for n := 0; ; n++ {
				note := fmt.Sprintf("%s-%d-%d", round, i, n)
				id, err := b.Write(context.Background(), &receipt.Receipt{Kind: receipt.Intent, Note: note})
				if i == 0 && n%5 == 0 && err == nil {
					err = rotate()
				}
				if err != nil {
					failed <- err
				}
				b.Add(&receipt.Receipt{Kind: receipt.Call, Of: id})
				_, _ = os.Stdout.WriteString(id + " " + note + "\n")
			}
		}()
	}
	return <-failed
}

func TestNothingAcknowledgedIsLostToAKill(t *testing.T) {
	law.Hold(t, law.NothingAckedLost)
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		killed(t, "file:"+filepath.Join(t.TempDir(), "store.db"))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		killed(t, redistest.Start(t).URL())
	})
}

func killed(t *testing.T, where string) {
	told, keys := map[string]string{}, filepath.Join(t.TempDir(), "receipts.key")
	for round := range *kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writerEnv+"="+where, writerEnv+"_KEYS="+keys, fmt.Sprintf("%s_ROUND=%d", writerEnv, round))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		n := 0
		for lines := bufio.NewScanner(out); lines.Scan(); {
			id, note, ok := strings.Cut(lines.Text(), " ")
			if ok && note != "" {
				told[id] = note
			}
			if n++; n == 1+round*37%400 { // at some moment during the writes
				_ = cmd.Process.Kill()
			}
		}
		if err := cmd.Wait(); err == nil || strings.Contains(errs.String(), "panic") {
			t.Fatalf("round %d: %v\n%s", round, err, errs.String())
		}
	}
	s, err := store.Open(t.Context(), where, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	good(t, s)
	starts, rotated := 0, 0
	for _, e := range entries(t, s, receipt.Query{}) {
		switch note, ok := told[e.ID()]; {
		case e.Receipt.Kind == receipt.Start:
			starts++
		case e.Receipt.Kind == receipt.KeyKind:
			rotated++
		case ok && note == e.Receipt.Note:
			delete(told, e.ID())
		case ok:
			t.Errorf("%s says %q, and %q was acknowledged", e.ID(), e.Receipt.Note, note)
		}
	}
	if len(told) > 0 || starts != *kills || rotated < *kills {
		t.Errorf("%d acknowledged receipts are lost; %d starts; %d keys", len(told), starts, rotated)
	}
}

// Redis is killed under load, and later paused for longer than a write may take.
func TestNothingAcknowledgedIsLostWhenRedisGoes(t *testing.T) {
	t.Parallel()
	law.Hold(t, law.NothingAckedLost)
	redis := redistest.Start(t)
	s, err := store.Open(t.Context(), redis.URL(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	b := openBook(t, s, options())
	var mu sync.Mutex
	told, refused := map[string]string{}, 0
	served := make(chan struct{}, 1)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				note := fmt.Sprintf("%d-%d", i, n)
				id, err := b.Write(context.Background(), &receipt.Receipt{Kind: receipt.Intent, Note: note})
				mu.Lock()
				if err == nil {
					told[id] = note
					select {
					case served <- struct{}{}:
					default:
					}
				} else if refused++; code(err) != switchboard.CodeReceipt {
					t.Error(err)
				}
				mu.Unlock()
				if id != "" {
					b.Add(&receipt.Receipt{Kind: receipt.Call, Of: id})
				}
				if err != nil {
					<-time.After(time.Millisecond) // leave the processor to others
				}
			}
		})
	}
	halt := sync.OnceFunc(func() {
		close(stop)
		writers.Wait()
	})
	mend := func() {} // brings Redis back
	// kept checks once that every acknowledged receipt is stored.
	var once sync.Once
	kept := func() {
		for _, e := range entries(t, s, receipt.Query{}) {
			if told[e.ID()] == e.Receipt.Note {
				delete(told, e.ID())
			}
		}
		if len(told) > 0 {
			t.Errorf("%d acknowledged receipts are lost", len(told))
		}
	}
	defer func() { // if the test ends early
		mend()
		halt()
		if !t.Skipped() && !t.Failed() {
			return
		}
		wait.UntilNil(t, "Redis is back", func() error {
			_, err := s.Value(t.Context(), store.Key{Group: "g", Name: "n"})
			return err
		})
		once.Do(kept)
	}()
	serves := func(n int) {
		for range n {
			wait.Receive(t, "a receipt is written", served)
		}
	}
	fails := func() { wait.Until(t, "Status says so", func() bool { return b.Status().Fault != "" }) }
	var took []time.Duration
	for range 3 {
		serves(50)
		redis.Kill()
		mend = redis.Start
		fails()
		mend = func() {}
		redis.Start()
		began := time.Now()
		serves(1) // what was queued before
		serves(2)
		took = append(took, time.Since(began))
		redis.Pause()
		mend = redis.Resume
		fails()
		mend = func() {}
		redis.Resume()
		serves(50)
	}
	halt()
	shut(t, b)
	good(t, s)
	if st := b.Status(); st.Fenced || st.Lost > 0 || refused == 0 {
		t.Errorf("%+v, %d refused", st, refused)
	}
	intents := map[string]int{}
	for _, e := range entries(t, s, receipt.Query{}) {
		switch e.Receipt.Kind {
		case receipt.Intent:
			intents[e.ID()]++
		case receipt.Call:
			intents[e.Receipt.Of]--
		}
	}
	once.Do(kept)
	for id, n := range intents {
		if n != 0 {
			t.Errorf("%s does not have exactly one outcome", id)
		}
	}
	if slices.Sort(took); took[1] > 5*time.Second {
		wait.Late(t, "served again after %s", took)
	}
}
