package commit_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// A redisMonitor reads the commands that clients send to a Redis, without those that scripts send.
type redisMonitor struct {
	conn  net.Conn
	lines *bufio.Scanner
}

func monitorRedis(t *testing.T, s *redistest.Server) *redisMonitor {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	m := &redisMonitor{conn, bufio.NewScanner(conn)}
	m.lines.Buffer(nil, 1<<20)
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil || !m.lines.Scan() {
		t.Fatal("MONITOR:", err)
	}
	return m
}

var monitored = regexp.MustCompile(`^\+\d+\.\d+ \[\d+ (\S+)\] "(\w+)"`)

// until returns the names of the commands before the ECHO of that word, without those with which the store looks after itself.
func (m *redisMonitor) until(t *testing.T, word string) (names []string) {
	t.Helper()
	examine := []string{"info", "config", "ping", "hello", "client", "time"}
	for m.lines.Scan() {
		line := m.lines.Text()
		part := monitored.FindStringSubmatch(line)
		switch {
		case part == nil:
			t.Fatalf("MONITOR says %q", line)
		case strings.EqualFold(part[2], "echo") && strings.HasSuffix(line, `"`+word+`"`):
			return names
		case part[1] != "lua" && !strings.EqualFold(part[2], "echo") && !slices.Contains(examine, strings.ToLower(part[2])):
			names = append(names, strings.ToLower(part[2]))
		}
	}
	t.Fatal("MONITOR has ended:", m.lines.Err())
	return nil
}

// The Redis itself says which commands it gets until the server has the call.
func TestAPricedAndApprovedCallWithAnEffectSendsThreeCommandsToRedis(t *testing.T) {
	redistest.Need(t)
	server := redistest.Start(t)
	st, err := store.Open(t.Context(), server.URL(), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	log := slog.New(slog.DiscardHandler)
	ledger, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: st, Folder: t.TempDir(), Secret: switchboard.NewSecret("what all of them know"), Lease: time.Hour, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ledger.Close(context.Background()) }()
	keeper, calls := approvedCalls(t, st, 5)
	monitor := monitorRedis(t, server)
	least := 100 // of a call; the first one also sends the text of a script, and the store looks after itself now and then
	for i, c := range calls {
		k := commit.New(commit.Options{Store: st, Charges: paid(3, 100), Intents: ledger, Approvals: keeper, Log: log})
		server.Do("echo", "begin")
		monitor.until(t, "begin")
		var names []string
		if _, err := k.Commit(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			server.Do("echo", "sent")
			names = monitor.until(t, "sent")
			return switchboard.Result{JSON: []byte(`{}`)}, nil
		})).Call(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		t.Logf("call %d: %q", i, names)
		least = min(least, len(names))
		if err := k.Close(t.Context()); err != nil { // it settles before the next call
			t.Fatal(err)
		}
	}
	if least != 3 {
		t.Errorf("a call sends %d commands, want 3: hold, use and intent", least)
	}
}

// A forgetfulStore loses the answer to one hold.
type forgetfulStore struct {
	*store.Memory
	loses, makes bool
}

func (forgetfulStore) Status() store.Status { return store.Status{Kind: "file"} }

func (s *forgetfulStore) Hold(ctx context.Context, group, id string, terms store.HoldTerms, accounts ...store.Account) ([]store.AccountState, bool, error) {
	if !s.loses {
		return s.Memory.Hold(ctx, group, id, terms, accounts...)
	}
	s.loses = false
	if s.makes {
		_, _, _ = s.Memory.Hold(ctx, group, id, terms, accounts...)
	}
	return nil, false, context.DeadlineExceeded
}

func TestAFileHoldsThePriceAndUsesTheApprovalTogetherOrNotAtAll(t *testing.T) {
	for _, tt := range []struct {
		name         string
		loses, makes bool
		limit        int64
		code         switchboard.Code
		state        approval.State
		sums         string
	}{
		{name: "both are made", limit: 100, state: approval.Used, sums: "tenant/paid=3+0"},
		{name: "both are made, and the answer is lost", loses: true, makes: true, limit: 100, code: switchboard.CodeStoreUnavailable, state: approval.Approved, sums: "tenant/paid=0+0"},
		{name: "none is made, and the answer is lost", loses: true, limit: 100, code: switchboard.CodeStoreUnavailable, state: approval.Approved},
		{name: "over budget", limit: 1, code: switchboard.CodeBudgetExceeded, state: approval.Approved},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &forgetfulStore{Memory: store.NewMemory(), makes: tt.makes}
			keeper, calls := approvedCalls(t, s, 1)
			k := commit.New(commit.Options{Store: s, Charges: paid(3, tt.limit), Intents: noIntents{}, Approvals: keeper, Log: slog.New(slog.DiscardHandler)})
			s.loses = tt.loses
			_, err := k.Commit(answers(`{}`)).Call(t.Context(), calls[0])
			if closing := k.Close(t.Context()); closing != nil {
				t.Fatal(closing)
			}
			if own, _ := errors.AsType[*switchboard.Error](err); (own == nil) != (tt.code == "") || own != nil && own.Code != tt.code {
				t.Errorf("the call: %v", err)
			}
			if r, err := keeper.Find(t.Context(), "acme", calls[0].Yes.Request); err != nil || r.Stored != tt.state {
				t.Errorf("the request: %+v, %v", r, err)
			}
			if got := sums(t, s); got != tt.sums {
				t.Errorf("the accounts: %q", got)
			}
		})
	}
}
