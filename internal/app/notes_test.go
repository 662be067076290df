package app

import (
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// notes are receipts, and what they refer to, in memory.
type notes struct {
	*store.Memory
	records *recorder
	book    *receipt.Book
}

func newNotes(t tester) *notes {
	st := store.NewMemory()
	book, err := receipt.Open(t.Context(), st, receipt.Options{Node: "t", Key: receipt.NewKey(), DigestKey: receipt.NewKey(), Linger: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return &notes{st, &recorder{addReceipt: book.Add, archive: archive.New(st, time.Hour, nil), latest: map[switchboard.Digest]lastRecord{}}, book}
}

// add has receipts of what was decided.
func (n *notes) add(all ...*decisionRecord) {
	for _, e := range all {
		was := n.records.recordOnce(e, nil)
		r := &receipt.Receipt{Kind: receipt.Decision, Decision: was.digest, Basis: was.basis}
		if e.kind == kindCall {
			r = &receipt.Receipt{Kind: receipt.Call, Rulings: []switchboard.Digest{was.digest}}
		}
		n.book.Add(r)
	}
}

// written waits until all is, and reads it.
func (n *notes) written(t tester) []*decisionRecord {
	n.records.archive.Close()
	if err := n.book.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if s := n.records.archive.Status(); s.Lost > 0 {
		t.Fatal(s)
	}
	all, damaged, err := readRecords(t.Context(), n, receipt.List(t.Context(), n, receipt.Query{}), false)
	if err != nil || damaged > 0 {
		t.Fatal(damaged, err)
	}
	return all
}
