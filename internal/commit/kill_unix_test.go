//go:build unix

package commit_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

var kills = flag.Int("kills", 18, "how many processes TestBU08 kills with each store; 100 is what is promised")

// The points around a call at which a process kills itself.
const (
	beforeHold = iota
	afterHold
	afterUse
	afterIntent
	atServer
	afterAnswer
	beforeSettle
	afterSettle
	afterRelease
	points
)

const (
	killEnv   = "COMMIT_TEST_CALLS_UNTIL_KILLED" // the store
	killPrice = 7
	killLimit = 100_000
)

func TestMain(m *testing.M) {
	if where := os.Getenv(killEnv); where != "" {
		fmt.Println(callUntilKilled(where, os.Getenv(killEnv+"_FOLDER"), os.Getenv(killEnv+"_AT")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// A victim kills its process at a point of one of its calls.
type victim struct {
	store.Store
	point, after int
	reached      [points]atomic.Int64
}

func (v *victim) reach(point int) {
	if n := v.reached[point].Add(1); point == v.point && int(n) > v.after {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (v *victim) Hold(ctx context.Context, group, id string, terms store.HoldTerms, all ...store.Account) ([]store.AccountState, bool, error) {
	v.reach(beforeHold)
	defer v.reach(afterHold)
	return v.Store.Hold(ctx, group, id, terms, all...)
}

func (v *victim) Settle(ctx context.Context, group string, all ...store.Settlement) ([]bool, error) {
	v.reach(beforeSettle)
	ended, err := v.Store.Settle(ctx, group, all...)
	v.reach(afterSettle)
	for _, s := range all {
		if s.Amounts[0] == 0 {
			v.reach(afterRelease)
		}
	}
	return ended, err
}

// killableYes is oneYes with a point behind its use.
type killableYes struct {
	oneYes
	v *victim
}

func (y *killableYes) Use(ctx context.Context, c *switchboard.Call, intent string, write func(context.Context, store.Change) (store.Version, error)) error {
	err := y.oneYes.Use(ctx, c, intent, write)
	y.v.reach(afterUse)
	return err
}

// callUntilKilled makes calls. Each yes is for one execution, which the server writes down.
func callUntilKilled(where, folder, at string) error {
	v := &victim{}
	var err error
	if _, err = fmt.Sscanf(at, "%d %d", &v.point, &v.after); err != nil {
		return err
	}
	ctx := context.Background()
	if v.Store, err = store.Open(ctx, where, store.Options{}); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ledger, err := receipt.OpenLedger(ctx, receipt.LedgerOptions{Store: v, Folder: folder, Secret: switchboard.NewSecret("what all of them know"), Lease: 100 * time.Millisecond, Log: log})
	if err != nil {
		return err
	}
	y := &killableYes{oneYes{Store: v.Store}, v}
	k := commit.New(commit.Options{Store: v, Charges: paid(killPrice, killLimit), Intents: ledger, Approvals: y, Log: log})
	if err := k.Recover(ctx); err != nil {
		return err
	}
	server, err := os.OpenFile(filepath.Join(folder, "executed"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	caller := ledger.RecordCalls(k.Commit(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if strings.HasSuffix(c.Yes.Request, "3") {
			return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true}
		}
		v.reach(afterIntent)
		if _, err := server.WriteString(c.Yes.Request + "\n"); err != nil {
			return switchboard.Result{}, err
		}
		v.reach(atServer)
		defer v.reach(afterAnswer)
		return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
	})))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 0; ; n++ { // the yeses of earlier processes too
				says := switchboard.Contract{}
				if n%5 == 4 {
					says = reads
				}
				_, err := caller.Call(ctx, aCall(says, fmt.Sprint("k-", i, "-", n)))
				if codeOf(err) == switchboard.CodeBudgetExceeded { // it may never reach its point
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		})
	}
	all.Wait()
	return errors.New("nothing killed it")
}

// BU-02, BU-08 and AP-12 of the security cases. Processes are killed at nine points around a call: each yes is executed at most once, and what the server
// has counted is settled or held, within the limit.
func TestBU08AP12KilledAtEachPointNothingIsPaidLessOrMadeTwice(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		folder := t.TempDir()
		killAtEachPoint(t, "file:"+filepath.Join(folder, "store.db"), folder)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		redistest.Need(t)
		killAtEachPoint(t, redistest.Start(t).URL(), t.TempDir())
	})
}

func killAtEachPoint(t *testing.T, where, folder string) {
	for n := range *kills {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killEnv+"="+where, killEnv+"_FOLDER="+folder, fmt.Sprintf("%s_AT=%d %d", killEnv, n%points, n*7%13))
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if status, ok := errors.AsType[*exec.ExitError](err); !ok || status.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("point %d: %v\n%s%s", n%points, err, out, errs.String())
		}
		st, err := store.Open(t.Context(), where, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		executed := map[string]int{}
		count := int64(0)
		text, err := os.ReadFile(filepath.Join(folder, "executed"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for yes := range strings.FieldsSeq(string(text)) {
			count += killPrice
			if executed[yes]++; executed[yes] > 1 {
				t.Errorf("kill %d at point %d: %s is executed %d times", n, n%points, yes, executed[yes])
			}
		}
		if sum := total(t, st); sum < count || sum > killLimit {
			t.Errorf("kill %d at point %d: the server counts %d, and %d of %d is settled and held", n, n%points, count, sum, killLimit)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(folder, "executed")); len(text) == 0 {
		t.Error("nothing was executed")
	}
}
