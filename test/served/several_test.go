package served_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// A writer is one of several processes on one folder, with its client.
type writer struct {
	first int                // its calls have the ids from here on
	call  func(id int) error // returns when the call was answered with its result
	made  atomic.Int64       // calls that were answered
	ended chan error         // of the call that failed, nil if it was told to stop
	stop  func()
	over  chan struct{}
}

func newWriter(first int, call func(id int) error) *writer {
	w := &writer{first: first, call: call, ended: make(chan error, 1), over: make(chan struct{})}
	w.stop = sync.OnceFunc(func() { close(w.over) })
	return w
}

// work calls until it is told to stop, or until a call fails.
func (w *writer) work() {
	for id := w.first; ; id++ {
		select {
		case <-w.over:
			w.ended <- nil
			return
		default:
		}
		err := w.call(id)
		for began := time.Now(); err != nil && outOfTime(err.Error()); err = w.call(id) {
			if time.Since(began) > rig.Patience {
				err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
				break
			}
			<-time.After(20 * time.Millisecond)
		}
		if err != nil {
			w.ended <- err
			return
		}
		w.made.Add(1)
	}
}

// answer sends a call, and returns when it is answered.
func answer(s *rig.StdioSession, id int) error {
	params := fmt.Sprintf(`{"name":"post","arguments":{"id":%d}}`, id)
	if s.Modern {
		params = rig.WithMeta(params)
	}
	if _, err := fmt.Fprintf(s.In, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`+"\n", id, params); err != nil {
		return err
	}
	for {
		line, err := s.ReadLine()
		if err != nil {
			return err
		}
		if m := rig.ParseMessage(line); m.Error != nil || rig.Code(m) != "" {
			return errors.New(string(line))
		} else if m.Result != nil {
			return nil
		}
	}
}

func TestSeveralProcessesOnOneFolderHaveAChainEachAndOutliveOneThatIsKilled(t *testing.T) {
	t.Parallel()
	rig.WatchRaces(t)
	law.Hold(t, law.NothingAckedLost)
	const apart = 1_000_000 // ids of a process from those of the next
	server, url := rig.KeepLedger(t, 0, fmt.Sprintf(rig.Tool, "post"))
	dir := t.TempDir()
	configure(t, dir, url, nil)
	var all []*writer
	var clients []*rig.StdioSession
	for i := range 3 {
		s := rig.Stdio(t, dir, i%2 == 0)
		clients = append(clients, s)
		all = append(all, newWriter(apart*(i+1), func(id int) error { return answer(s, id) }))
	}
	g := rig.Serve(t, dir)
	web := g.Open(t, "/mcp", true)
	all = append(all, newWriter(apart*4, func(id int) error {
		a := web.Try("post", id)
		if a.Err != nil {
			return a.Err
		}
		if !a.Good() {
			return errors.New(a.String())
		}
		return nil
	}))
	for _, w := range all {
		go w.work()
	}
	defer func() {
		for _, w := range all {
			w.stop()
		}
	}()
	more := func(what string, of []*writer) {
		t.Helper()
		for i, w := range of {
			least := w.made.Load() + 10
			rig.Eventually(t, fmt.Sprintf("%s: process %d makes calls", what, i), func() string {
				select {
				case err := <-w.ended:
					if wait.TimedOut(err) {
						wait.Late(t, "%s: process %d: %v", what, i, err)
					}
					t.Fatalf("%s: process %d: %v", what, i, err)
				default:
				}
				return rig.ReasonUnless(w.made.Load() >= least, fmt.Sprint(w.made.Load(), " of ", least))
			})
		}
	}
	// kept checks the receipts of all calls that have been answered.
	kept := func(when string) {
		t.Helper()
		var made []int64
		for _, w := range all {
			made = append(made, w.made.Load())
		}
		secret := strings.TrimSpace(rig.ReadFile(t, filepath.Join(dir, ".switchboard", "receipts.key")))
		digest, written := digestsUnder(t, secret), map[string]string{} // the chain of an intent
		for _, r := range receipts(t, dir) {
			if r.Entry.Receipt.Kind == "intent" {
				written[r.Entry.Receipt.Arguments], _, _ = strings.Cut(r.ID, "/")
			}
		}
		chains := map[string]int{}
		for i, w := range all {
			own := written[digest(w.first)]
			if before, taken := chains[own]; taken {
				t.Errorf("%s: processes %d and %d have the chain %q", when, before, i, own)
			}
			chains[own] = i
			for id := w.first; id < w.first+int(made[i]); id++ {
				if got := written[digest(id)]; got != own || got == "" {
					t.Errorf("%s: the intent of call %d of process %d is in the chain %q, and not in %q", when, id, i, got, own)
				}
			}
		}
		said, errs, code := rig.Command(t, dir, "receipts", "verify")
		if code != 0 {
			t.Errorf("%s: verify: exit %d: %s%s", when, code, said, errs)
		}
		for chain := range chains {
			if !strings.Contains(said, chain+": as it was written: 1 to ") {
				t.Errorf("%s: verify says nothing about %s: %s", when, chain, said)
			}
			list, errs, code := rig.Command(t, dir, "receipts", "list", "--node", chain, "--kind", "intent", "--json", "--limit", "1")
			var one struct{ ID string }
			if err := json.Unmarshal([]byte(list), &one); code != 0 || err != nil || !strings.HasPrefix(one.ID, chain+"/") {
				t.Errorf("%s: list of %s: exit %d, %v: %s%s", when, chain, code, err, list, errs)
			}
		}
		out, errs, code := rig.Command(t, dir, "receipts", "list", "--limit", "100000")
		for chain := range chains {
			if code != 0 || !strings.Contains(out, "  "+chain+"/") {
				t.Errorf("%s: list says nothing about %s: exit %d: %s", when, chain, code, errs)
			}
		}
	}
	more("all", all)
	kept("while all write")
	clients[0].Kill()
	err := wait.Receive(t, "that one is killed", all[0].ended)
	t.Logf("the one that was killed had made %d calls: %v", all[0].made.Load(), err)
	more("after one was killed", all[1:])
	kept("after one was killed")
	for i, w := range all[1:] {
		w.stop()
		if err := wait.Receive(t, "the end of a process's calls", w.ended); err != nil {
			t.Errorf("process %d: %v", i+1, err)
		}
	}
	g.Signal(t, syscall.SIGTERM)
	g.AwaitEnd(t)
	kept("after the others")
	if twice := server.Twice(); len(twice) > 0 {
		t.Errorf("executed more than once: %q", twice)
	}
	// Where a log has a folder, each chain has its own.
	folders, err := os.ReadDir(filepath.Join(dir, ".switchboard", "store.db-logs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err == nil && len(folders) < len(all) {
		t.Errorf("%d processes have the folders %v", len(all), folders)
	}
}
