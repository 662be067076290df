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

	"github.com/summit-switchboard/switchboard/internal/approval"
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
	afterAsk = iota
	afterDecision
	beforeHold
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

// killableYes has a point behind each use of a yes.
type killableYes struct {
	*approval.Keeper
	v *victim
}

func (y *killableYes) Use(ctx context.Context, c *switchboard.Call, intent string, write func(context.Context, store.Change) (store.Version, error)) error {
	err := y.Keeper.Use(ctx, c, intent, write)
	y.v.reach(afterUse)
	return err
}

// decideAndReport has the boss decide a request, and writes into the file what the boss was told: a request, and what it is now.
func decideAndReport(k *approval.Keeper, request string, n int, told *os.File) error {
	_, err := k.Decide(context.Background(), boss, "acme", request, approval.Saying{Yes: n%7 != 6})
	if err == nil && n%11 == 5 {
		if _, err := fmt.Fprintln(told, request, map[bool]approval.State{true: approval.Approved, false: approval.Refused}[n%7 != 6]); err != nil {
			return err
		}
		_, err = k.Revoke(context.Background(), boss, "acme", request)
	}
	if outrun, ok := errors.AsType[*approval.OutrunError](err); ok {
		_, err = fmt.Fprintln(told, request, outrun.Request.Stored)
		return err
	}
	if err != nil {
		return err
	}
	state := approval.Approved
	switch {
	case n%7 == 6:
		state = approval.Refused
	case n%11 == 5:
		state = approval.Revoked
	}
	_, err = fmt.Fprintln(told, request, state)
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
	y := &killableYes{keep(v.Store), v}
	k := commit.New(commit.Options{Store: v, Charges: paid(killPrice, killLimit), Intents: ledger, Approvals: y, Log: log})
	if err := k.Recover(ctx); err != nil {
		return err
	}
	server, err := os.OpenFile(filepath.Join(folder, "executed"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	told, err := os.OpenFile(filepath.Join(folder, "told"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	caller := ledger.RecordCalls(y.Require(k.Commit(switchboard.CallerFunc(func(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if bytes.HasSuffix(c.Params, []byte(`3"}}`)) {
			return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeNoneHealthy, Unsent: true}
		}
		v.reach(afterIntent)
		if _, err := server.WriteString(c.Yes.Request + "\n"); err != nil {
			return switchboard.Result{}, err
		}
		v.reach(atServer)
		defer v.reach(afterAnswer)
		return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
	}))))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 0; ; n++ { // the yeses of earlier processes too
				says := switchboard.Contract{}
				if n%5 == 4 {
					says = reads
				}
				name := fmt.Sprint("k-", i, "-", n)
				_, err := caller.Call(ctx, askedCall(says, name))
				if codeOf(err) == switchboard.CodeApprovalPending {
					v.reach(afterAsk)
					own, _ := errors.AsType[*switchboard.Error](err)
					if err := decideAndReport(y.Keeper, strings.Trim(string(own.Data[0].JSON), `"`), n, told); err != nil {
						panic(err)
					}
					v.reach(afterDecision)
					_, err = caller.Call(ctx, askedCall(says, name))
				}
				if codeOf(err) == switchboard.CodeBudgetExceeded { // it may never reach its point
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				}
			}
		})
	}
	all.Wait()
	return errors.New("nothing killed it")
}

// BU-02, BU-08 and AP-12 of the security cases. Processes are killed at eleven points around a call: each yes is executed at most once, what the server
// has counted is settled or held, within the limit, and every decision that a person was told of is there.
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
		for _, lost := range decisionsLost(t, st, filepath.Join(folder, "told"), executed) {
			t.Errorf("kill %d at point %d: %s", n, n%points, lost)
		}
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}
	if text, _ := os.ReadFile(filepath.Join(folder, "executed")); len(text) == 0 {
		t.Error("nothing was executed")
	}
}

// decisionsLost returns what is wrong with the requests in the store: decisions that a person was told of and that are not there, and uses that are not noted.
func decisionsLost(t *testing.T, st store.Store, told string, executed map[string]int) (wrong []string) {
	t.Helper()
	k := keep(st)
	defer k.Close()
	all, err := k.List(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]*approval.Request{} // by the short form of the binding
	for _, r := range all {
		short, _, _ := approval.SplitID(r.ID())
		now[short] = r
	}
	text, err := os.ReadFile(told)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	said := map[string]approval.State{}
	for line := range strings.Lines(string(text)) {
		id, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		said[id] = approval.State(state)
	}
	for id, state := range said {
		short, number, _ := approval.SplitID(id)
		switch r := now[short]; {
		case r == nil || r.Number < number:
			wrong = append(wrong, fmt.Sprintf("%s is %s, and it is gone", id, state))
		case r.Number > number: // a later request of the call
		case executed[id] > 0 && r.Stored != approval.Used:
			wrong = append(wrong, fmt.Sprintf("%s was executed, and it is %s", id, r.Stored))
		case r.Stored != state && (state != approval.Approved || r.Stored != approval.Used && r.Stored != approval.Revoked):
			wrong = append(wrong, fmt.Sprintf("%s is %s, and a person was told that it is %s", id, r.Stored, state))
		}
	}
	return wrong
}
