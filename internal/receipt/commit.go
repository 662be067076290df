package receipt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
)

// How much is written at once.
const (
	maxBatch      = 2048
	maxBatchBytes = 4 << 20
)

// How long to wait until the store is tried again.
const (
	firstPause = 50 * time.Millisecond
	maxPause   = time.Second
)

// run writes what is queued until the Book is closed: for which nobody waits, and for
// those who have come while another wrote.
func (b *Book) run() {
	defer close(b.done)
	tick := time.NewTicker(b.o.CheckpointAfter)
	defer tick.Stop()
	for b.mend() {
		late := false
		select {
		case <-b.wake:
			b.linger()
		case <-tick.C:
			late = true
		case <-b.stopping:
			b.pen <- struct{}{}
			if b.drain() {
				b.pin(b.seq > b.checkpoint.Seq)
			}
			b.end()
			<-b.pen
			return
		}
		b.pen <- struct{}{}
		if b.flush() {
			b.pin(b.due() || late && b.seq > b.checkpoint.Seq)
		}
		<-b.pen
	}
	b.pen <- struct{}{}
	b.end()
	<-b.pen
}

// lead has who waits write all that is queued, and reports whether it did: so it need not wait
// for run to wake up, and then to be woken by it. Who has less time than the store may take
// does not, and nobody while another writes.
func (b *Book) lead(ctx context.Context) bool {
	if until, ok := ctx.Deadline(); ok && time.Until(until) < b.o.Timeout {
		return false
	}
	select {
	case b.pen <- struct{}{}:
	default:
		return false
	}
	defer func() { <-b.pen }()
	if !b.flush() || b.due() { // run has to mend, or to make a checkpoint
		ring(b.wake)
		ring(b.hurry)
	}
	return true
}

// linger waits for more to write, unless somebody waits for what there is.
func (b *Book) linger() {
	t := time.NewTimer(b.o.Linger)
	defer t.Stop()
	select {
	case <-b.hurry:
	case <-t.C:
	case <-b.stopping:
	}
}

// flush writes what is queued, and reports whether all of it is stored.
func (b *Book) flush() bool {
	batch, ok := b.take()
	return ok && b.commit(batch)
}

// take takes what is queued, and has a receipt say what was lost. It takes nothing where
// what another could not write comes first.
func (b *Book) take() (taken batch, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != open {
		return batch{}, false
	}
	if b.losing.Receipts > 0 {
		b.put(&Receipt{Kind: LostKind, Lost: b.losing}, nil)
		b.losing = Lost{}
	}
	taken = b.queue
	b.queue, b.spare = b.spare, batch{}
	close(b.room)
	b.room = make(chan struct{})
	for _, bell := range []chan struct{}{b.wake, b.hurry} {
		select {
		case <-bell:
		default:
		}
	}
	return taken, true
}

// drain writes what is queued to the end, and reports whether all of it is stored.
func (b *Book) drain() bool {
	for {
		batch, ok := b.take()
		if !ok || len(batch.ends) == 0 {
			return ok
		}
		if !b.commit(batch) {
			return false
		}
	}
}

// commit writes a batch, in parts where it is large. What the store does not take is
// kept.
func (b *Book) commit(whole batch) bool {
	spare := batch{bodies: whole.bodies[:0], ends: whole.ends[:0], waits: whole.waits[:0]}
	for len(whole.ends) > 0 {
		part := whole.cut()
		b.enchain(&part, b.signer)
		if err := b.append(&part); err != nil {
			b.mu.Lock()
			b.queue.prepend(&whole)
			b.mu.Unlock()
			b.fail(&part, err)
			return false
		}
	}
	if cap(spare.bodies) <= maxBatchBytes {
		clear(spare.waits[:cap(spare.waits)])
		b.spare = spare
	}
	return true
}

// cut takes from the front of a batch what is written at once.
func (w *batch) cut() batch {
	n := min(len(w.ends), maxBatch)
	for n > 1 && w.ends[n-1] > maxBatchBytes {
		n /= 2
	}
	end := w.ends[n-1]
	at, _ := slices.BinarySearchFunc(w.waits, n, func(w wait, n int) int { return w.at - n })
	part := batch{bodies: w.bodies[:end], ends: w.ends[:n], waits: w.waits[:at]}
	w.bodies, w.ends, w.waits = w.bodies[end:], w.ends[n:], w.waits[at:]
	for i := range w.ends {
		w.ends[i] -= end
	}
	for i := range w.waits {
		w.waits[i].at -= n
	}
	return part
}

// prepend puts a batch before what has been queued since.
func (w *batch) prepend(first *batch) {
	bytes, n := len(first.bodies), len(first.ends)
	for i := range w.ends {
		w.ends[i] += bytes
	}
	for i := range w.waits {
		w.waits[i].at += n
	}
	w.bodies = slices.Concat(first.bodies, w.bodies)
	w.ends = slices.Concat(first.ends, w.ends)
	w.waits = slices.Concat(first.waits, w.waits)
}

// enchain makes entries of a batch, and signs the last one.
func (b *Book) enchain(p *batch, by *signer) {
	buf, prev, from := b.buf[:0], b.prev, 0
	starts := make([]int, len(p.ends), len(p.ends)+1)
	for i, end := range p.ends {
		starts[i] = len(buf)
		buf = appendEntry(buf, prev, p.bodies[from:end], b.seq+1+uint64(i))
		from = end
		if i == len(p.ends)-1 {
			buf = appendSignature(buf, starts[i], by)
		}
		prev = canonical.Sum(buf[starts[i]:])
	}
	starts = append(starts, len(buf))
	p.entries = make([][]byte, len(p.ends))
	for i := range p.entries {
		p.entries[i] = buf[starts[i]:starts[i+1]:starts[i+1]]
	}
	p.head = prev
	b.buf = buf
}

// append gives the entries of a batch to the store.
func (b *Book) append(p *batch) error {
	ctx, cancel := context.WithTimeout(context.Background(), b.o.Timeout)
	defer cancel()
	err := b.store.Append(ctx, b.log, b.seq, p.entries...)
	if errors.Is(err, store.ErrConflict) {
		err = b.taken(ctx, p)
	}
	if err == nil {
		b.stored(p)
	}
	return err
}

// fail notes that a batch could not be given to the store. That may have it all the
// same, now or later: so the very same is given to it again until it says.
func (b *Book) fail(p *batch, err error) {
	b.unsure, b.buf = p, nil
	if errors.Is(err, store.ErrConflict) {
		b.fence(fmt.Errorf("another process writes the chain of node %s: %w", b.o.Node, err))
		return
	}
	b.fall(err)
}

// taken says whether the store has taken the batch when that was tried before:
// ErrConflict says that what stands in its place is another's.
func (b *Book) taken(ctx context.Context, p *batch) error {
	there, err := b.store.Read(ctx, b.log, b.seq, len(p.entries)+1)
	if err != nil {
		return err
	}
	same := slices.EqualFunc(there, p.entries, func(e store.Entry, own []byte) bool { return bytes.Equal(e.Data, own) })
	if !same {
		return fmt.Errorf("what follows entry %d of %s is not what was written: %w", b.seq, b.log, store.ErrConflict)
	}
	return nil
}

// stored tells those who wait that a batch is durable. Of an intent whose writer was
// told otherwise, a receipt says that nothing was done.
func (b *Book) stored(p *batch) {
	first := b.seq + 1
	b.seq += uint64(len(p.entries))
	b.prev = p.head
	b.unsure = nil
	b.mu.Lock()
	b.tail = b.seq
	b.held -= len(p.entries)
	for _, w := range p.waits {
		w.seq = first + uint64(w.at)
		if w.signer != nil { // also of who has not waited: it is in the chain
			b.signer = w.signer
		}
		if !w.gone && w.ctx.Err() == nil {
			w.told <- nil
			continue
		}
		if !w.gone {
			w.gone = true
			w.told <- refusal(context.Cause(w.ctx))
		}
		if w.intent != nil {
			r := *w.intent
			r.Kind, r.Of, r.Outcome, r.Code = Call, ID(b.o.Node, w.seq), Refused, refusal(nil).Code
			b.put(&r, nil)
		}
	}
	b.mu.Unlock()
}

// due reports whether so much is written that it is time for a checkpoint.
func (b *Book) due() bool { return b.seq-b.checkpoint.Seq >= uint64(b.o.CheckpointEvery) }

// fall notes that the store does not take anything now, and tells all who wait.
func (b *Book) fall(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fault == nil {
		b.since = time.Now().UTC()
		b.o.Log.Error("receipts cannot be written: what may change something outside is refused until they can", "node", b.o.Node, "err", err)
	}
	b.fault = err
	if b.state == open {
		b.state = down
	}
	b.turnAway()
}

// fence notes that nothing must be written to the chain any more.
func (b *Book) fence(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state, b.since, b.fault = fenced, time.Now().UTC(), err
	b.o.Log.Error("receipts cannot be written any more, until this process begins anew", "node", b.o.Node, "err", err)
	b.turnAway()
}

// turnAway tells all who wait that they wait in vain. The caller holds b.mu.
func (b *Book) turnAway() {
	waits := b.queue.waits
	if b.unsure != nil {
		waits = slices.Concat(b.unsure.waits, waits)
	}
	for _, w := range waits {
		if !w.gone {
			w.gone = true
			w.told <- b.refusal()
		}
	}
	close(b.room)
	b.room = make(chan struct{})
}

// mend waits until the store takes receipts again, where it does not. It is false
// where nothing is to be written any more: the chain is another's, or the Book was
// closed before the store was there.
func (b *Book) mend() bool {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		b.mu.Lock()
		now := b.state
		b.mu.Unlock()
		switch now {
		case open:
			return true
		case fenced:
			return false
		}
		last := b.stopped()
		if !last {
			t := time.NewTimer(pause)
			select {
			case <-t.C:
			case <-b.stopping:
				t.Stop()
			}
		}
		b.pen <- struct{}{}
		good := b.retry(now)
		if good {
			b.rise()
		}
		<-b.pen
		if last && !good {
			return false
		}
	}
}

// retry tries what has failed once more.
func (b *Book) retry(was state) bool {
	if was == opening {
		ctx, cancel := context.WithTimeout(context.Background(), b.o.Timeout)
		defer cancel()
		err := b.begin(ctx)
		switch {
		case errors.Is(err, store.ErrUnavailable):
			b.fall(err)
		case err != nil:
			b.fence(err)
		}
		return err == nil
	}
	if b.unsure == nil {
		return true
	}
	if err := b.append(b.unsure); err != nil {
		b.fail(b.unsure, err)
		return false
	}
	return true
}

// rise notes that the store takes receipts again.
func (b *Book) rise() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.o.Log.Info("receipts are written again", "node", b.o.Node, "after", time.Since(b.since).Round(time.Millisecond))
	b.state, b.fault = open, nil
	if len(b.queue.ends) > 0 || b.losing.Receipts > 0 {
		ring(b.wake)
		ring(b.hurry)
	}
}

// end closes the Book for good.
func (b *Book) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.held > 0 {
		b.lose(int64(b.held))
		b.held = 0
	}
	if b.state != fenced {
		b.state = closed
	}
	b.turnAway()
}
