package app

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// memoryRecords holds receipts and their archive in memory.
type memoryRecords struct {
	*store.Memory
	recorder *recorder
	book     *receipt.Book
}

func newMemoryRecords(t tester) *memoryRecords {
	st := store.NewMemory()
	book, err := receipt.Open(t.Context(), st, receipt.Options{Node: "t", Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Linger: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return &memoryRecords{st, &recorder{addReceipt: book.Add, archive: archive.New(st, time.Hour, nil), latest: map[switchboard.Digest]lastRecord{}}, book}
}

// add writes receipts of the decisions.
func (n *memoryRecords) add(all ...*decisionRecord) {
	for _, e := range all {
		was := n.recorder.recordOnce(e, nil)
		r := &receipt.Receipt{Kind: receipt.Decision, Decision: was.digest, Basis: was.basis}
		if e.kind == kindCall {
			r = &receipt.Receipt{Kind: receipt.Call, Rulings: []switchboard.Digest{was.digest}}
		}
		n.book.Add(r)
	}
}

// readAll waits until everything is written, and reads it.
func (n *memoryRecords) readAll(t tester) []*decisionRecord {
	n.recorder.archive.Close()
	if err := n.book.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := n.recorder.archive.Status(); s.Lost > 0 {
		t.Fatal(s)
	}
	all, damaged, err := readRecords(t.Context(), n, receipt.List(t.Context(), n, receipt.Query{}), false)
	if err != nil || damaged > 0 {
		t.Fatal(damaged, err)
	}
	return all
}
