package large

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Data returns the data folder of the configuration in dir.
func Data(dir string) string { return filepath.Join(dir, ".switchboard") }

// WriteStore writes the store in the data folder: the receipts, whose times are those at which they are written, and a full history of metrics.
func (i *Installation) WriteStore(ctx context.Context, dir string) (err error) {
	folder := Data(dir)
	if err := ownfile.MakeFolders(folder); err != nil {
		return err
	}
	st, err := store.OpenFile(filepath.Join(folder, "store.db"), store.FileOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := i.writeHistory(ctx, st, time.Now()); err != nil {
		return err
	}
	ledger, err := receipt.OpenLedger(ctx, receipt.LedgerOptions{Store: st, Folder: folder, Version: "large", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	committer := commit.New(commit.Options{
		Store: st, Intents: ledger, Log: slog.New(slog.DiscardHandler),
		Charges: budget.NewBook(func(switchboard.TenantID) (*switchboard.Tenant, *switchboard.Taxonomy) { return nil, nil }),
	})
	return errors.Join(i.writeReceipts(ctx, ledger, committer), committer.Close(ctx), ledger.Close(ctx))
}

const (
	writers   = 16
	waitAfter = 200 // calls of a writer: it then waits until its receipts are durable, because the queue takes no more than 8,192
)

// writeReceipts makes calls that reach no server, until the chain is long enough.
func (i *Installation) writeReceipts(ctx context.Context, ledger *receipt.Ledger, committer *commit.Committer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	caller := ledger.RecordCalls(committer.Commit(switchboard.CallerFunc(answer)))
	var next atomic.Int64
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for ctx.Err() == nil && ledger.Status().Seq < uint64(i.Receipts) { //nolint:gosec // it is not negative
				for range waitAfter {
					n := int(next.Add(1))
					call := i.call(n)
					_, _ = caller.Call(ctx, call) // its outcome is one of many
					if n%100 == 0 {
						ledger.Add(&receipt.Receipt{
							Kind: receipt.Decision, Tenant: call.Principal.Tenant, Task: call.Task, Run: call.Run, Outcome: receipt.OK,
							Principal: receipt.Subject{ID: call.Principal.ID, Auth: call.Principal.Auth, Mode: call.Principal.Mode}, Decision: receipt.EmptyDigest, Basis: receipt.EmptyDigest,
						})
					}
				}
				if _, err := ledger.Write(ctx, &receipt.Receipt{Kind: receipt.Admin, Method: "check", Principal: receipt.Subject{ID: "ops", Auth: switchboard.AuthPersonKey}}); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if lost := ledger.Status().Lost; lost > 0 {
		return fmt.Errorf("%d receipts are lost", lost)
	}
	return nil
}

// spread returns numbers that look random, and are the same in every installation (SplitMix64).
func spread(n int) uint64 {
	z := uint64(n) * 0x9e3779b97f4a7c15 //nolint:gosec // any number does
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

var arguments = `","size":1024,"filter":"` + strings.Repeat("open ", 40) + `"}}`

// call returns call number n. A fourth of the calls is of the first tenant, and one in twenty has an effect.
func (i *Installation) call(n int) *switchboard.Call {
	r := spread(n)
	tenant := 0
	if r%4 != 0 {
		tenant = int(r >> 8 % uint64(i.Tenants)) //nolint:gosec // it is less than Tenants
	}
	used := i.UsedServers(tenant)
	server := used[r>>16%uint64(len(used))]
	tool, readOnly := int(r>>32%uint64(i.Tools)), true //nolint:gosec // it is less than Tools
	switch {
	case r>>40%20 == 0:
		tool, readOnly = 1, false
	case tool == 1:
		tool = 0
	}
	who := "agent-" + strconv.FormatUint(r>>24%agents, 10)
	if n%rareEach == 1 {
		who = RarePrincipal
	}
	name := ToolName(server, tool)
	c := &switchboard.Call{
		Principal: switchboard.Principal{Tenant: switchboard.TenantID(TenantID(tenant)), ID: who, Auth: switchboard.AuthAPIKey, Mode: switchboard.Assist},
		Task:      "look", Run: switchboard.RunID(fmt.Sprintf("%032x", r)), Server: switchboard.ServerID(ServerID(server)), Method: wire.MethodToolsCall,
		Tool: &switchboard.Tool{ID: switchboard.ToolID{Server: switchboard.ServerID(ServerID(server)), Name: name}, Contract: switchboard.Contract{
			ReadOnly: switchboard.Fact{Holds: readOnly, Source: "operator", Trusted: true},
		}},
		Target: name, Params: []byte(`{"name":"` + name + `","arguments":{"nonce":"` + strconv.Itoa(n) + arguments), Trail: &switchboard.Trail{},
	}
	c.Trail.Decided(receipt.EmptyDigest, receipt.EmptyDigest)
	return c
}

var (
	right  = switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"` + strings.Repeat("0123456789abcdef", 64) + `"}]}`)}
	failed = switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"no such entry"}],"isError":true}`)}
)

// answer answers a call as servers and rules do: nine of ten well.
func answer(_ context.Context, c *switchboard.Call) (switchboard.Result, error) {
	if c.Principal.ID == RarePrincipal {
		return switchboard.Result{}, &switchboard.Error{Code: RareCode, Text: "the answer never came"}
	}
	r, _ := strconv.ParseUint(string(c.Run)[16:], 16, 64) // see call
	switch r = r >> 48 % 1000; {
	case r < 900:
		return right, nil
	case r < 940:
		return failed, nil
	case r < 980:
		return switchboard.Result{}, switchboard.Refuse(switchboard.CodeDenied, "a policy denies it")
	case r < 990:
		return switchboard.Result{}, switchboard.Refuse(switchboard.CodeRateLimit, "too many calls")
	}
	return switchboard.Result{}, &switchboard.Error{Code: switchboard.CodeServerFailed, Text: "the server failed"}
}
