package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	toolmemory "github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	backlogged  = "sb folding" // it starts with receipts that are not folded yet
	backlog     = 200_000      // receipts
	backlogNode = "backlog"    // the node that has written them

	foldRate  = 500                   // calls a second
	foldPiece = 25 * time.Microsecond // of a turn for each receipt of the backlog: the fold takes longer, so it works until the turn ends
	leastTurn = 2 * time.Second       // or as long as the first pages take
)

// folding measures calls while a backlog of receipts is folded, and without. In each round each contestant is a new process, because a backlog is folded once.
func (b *bench) folding(ctx context.Context, era string) error {
	n := min(backlog, b.size.Receipts)
	full, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return err
	}
	if err := writeBacklog(ctx, full, n); err != nil {
		return err
	}
	what := fmt.Sprintf("%s, 1 KiB, 16 sessions, %d calls a second, while %d receipts are folded", era, foldRate, n)
	p50, p99, folded := b.figure("p50, "+what, "ms"), b.figure("p99, "+what, "ms"), b.figure("receipts folded a second, "+what, "/s")
	for _, f := range []*figure{p50, p99} {
		f.compare("sb folding / sb", ratio(backlogged, ours))
		f.compare("sb again / sb", ratio(ours+again, ours))
	}
	for r := range b.rounds {
		names := []string{ours, backlogged, ours + again}
		for _, i := range rand.New(rand.NewPCG(2, uint64(r))).Perm(len(names)) {
			t, marked, err := b.foldTurn(ctx, era, names[i], full, max(time.Duration(n)*foldPiece, leastTurn))
			if err != nil {
				return fmt.Errorf("%s: %w", names[i], err)
			}
			b.tally(names[i], t.tally)
			p50.see(names[i], micro(t.at(0.5))/1000)
			p99.see(names[i], micro(t.at(0.99))/1000)
			if names[i] == backlogged {
				folded.see(names[i], float64(marked)/t.took.Seconds())
			}
		}
	}
	return nil
}

// foldTurn has a new process answer calls. A backlogged one has a copy of the store in full. marked is how many of its receipts were folded when the turn ended.
func (b *bench) foldTurn(ctx context.Context, era, name, full string, lasting time.Duration) (t *burst, marked uint64, err error) {
	s := &stage{era: era, tools: 10}
	defer s.strike()
	in, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(in)) }()
	if name == backlogged {
		if err := os.CopyFS(in, os.DirFS(full)); err != nil {
			return nil, 0, err
		}
	}
	if err := b.statefulIn(ctx, s, name, "", in); err != nil {
		return nil, 0, err
	}
	clients, err := s.contestants[0].clients(16)
	if err != nil {
		return nil, 0, err
	}
	t = open(clients, foldRate, lasting, using(unlimited))
	end(clients)
	if name != backlogged {
		return t, 0, nil
	}
	st, err := store.OpenFile(filepath.Join(in, "store.db"), store.FileOptions{})
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if marked, err = toolmemory.Folded(ctx, st, backlogNode); err == nil && marked == 0 {
		err = errors.New("nothing was folded")
	}
	return t, marked, err
}

// writeBacklog writes receipts of calls of 10 tenants with 40 tools each into a new store.
func writeBacklog(ctx context.Context, dir string, n int) error {
	st, err := store.OpenFile(filepath.Join(dir, "store.db"), store.FileOptions{})
	if err != nil {
		return err
	}
	chain, err := receipt.Open(ctx, st, receipt.ChainOptions{Node: backlogNode, Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Version: "bench", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return errors.Join(err, st.Close())
	}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range n {
		chain.Add(&receipt.Receipt{
			Kind: receipt.Call, Tenant: switchboard.TenantID(fmt.Sprint("tenant-", r.IntN(10))), Task: "work", Run: "00112233445566778899aabbccddeeff", Principal: receipt.Subject{ID: "ci", Auth: switchboard.AuthAPIKey},
			Method: wire.MethodToolsCall, Server: switchboard.ServerID(fmt.Sprint("server-", r.IntN(8))), Tool: fmt.Sprint("tool_", r.IntN(5)),
			Arguments: string(receipt.EmptyDigest), Result: string(receipt.EmptyDigest), Decision: receipt.EmptyDigest, Basis: receipt.EmptyDigest,
			Outcome: receipt.OK, Took: receipt.CallTime{Total: 1 + r.Int64N(1<<20)},
		})
		if i%1000 == 999 { // not faster than they can be written
			if _, err := chain.Write(ctx, &receipt.Receipt{Kind: receipt.Intent}); err != nil {
				return errors.Join(err, st.Close())
			}
		}
	}
	return errors.Join(chain.Close(ctx), st.Close())
}
