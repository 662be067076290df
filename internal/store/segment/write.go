package segment

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// A writer appends frames to the active segment. It belongs to the holder of the turn.
type writer struct {
	*folder
	full       int64 // a segment that ends here or later is full
	state      state
	active     DiskFile
	activePath string
	seed       uint32 // checksum of its header
	size       int64  // of its file
	indexed    int64  // the last frame in its index
	buffer     []byte // memory for a frame
}

// follow continues behind another process, which has left the log in state s.
func (w *writer) follow(s state) error {
	if w.active == nil || s.base != w.state.base {
		seg, err := w.openSegment(s.base, os.O_RDWR)
		if err != nil {
			return err
		}
		if w.active != nil {
			_ = w.active.Close() // nothing is written to it any more
		}
		w.active, w.activePath, w.seed, w.indexed = seg.file, seg.path, seg.seed, 0
	}
	var err error
	if w.size, err = w.active.Size(); err != nil {
		return err
	}
	if w.size < s.end {
		return damaged(w.activePath, "it ends at byte %d, and entries up to byte %d were stored in it", w.size, s.end)
	}
	w.state = s
	return nil
}

// recover checks the end of the log and adopts the frames behind it.
func (w *writer) recover() error {
	s := w.state
	if err := w.checkEnd(&s); err != nil {
		return err
	}
	for {
		if err := (&segment{file: w.active, path: w.activePath, base: s.base, seed: w.seed, end: w.size}).adopt(&s); err != nil {
			return err
		}
		if s.frame == 0 {
			break
		}
		next, err := w.openSegment(s.last+1, os.O_RDWR)
		if errors.Is(err, ErrDamaged) {
			break // there is none, or an interrupted Append began to make it
		}
		if err != nil {
			return err
		}
		inNext := s
		inNext.base, inNext.frame, inNext.end = next.base, 0, next.size
		err = next.adopt(&inNext)
		if err == nil && next.before == s.sum && inNext.frame > 0 {
			err = w.active.SyncData()
		} else if err == nil {
			_ = next.file.Close()
			break
		}
		if err != nil {
			return errors.Join(err, next.file.Close())
		}
		_ = w.active.Close() // nothing is written to it any more
		w.active, w.activePath, w.seed, w.size, w.indexed = next.file, next.path, next.seed, next.end, 0
		s = inNext
	}
	if s != w.state {
		if err := w.active.SyncData(); err != nil {
			return err
		}
		w.state = s
		if err := w.writeState(s); err != nil {
			return err
		}
	}
	if err := w.eraseHalf(); err != nil {
		return err
	}
	return w.removeHalf()
}

// eraseHalf erases the header of a frame that an interrupted Append left behind the end. Callers learn now that
// the frame is not there. It must not come back when a later Append, interrupted too, writes the bytes that it lacks.
func (w *writer) eraseHalf() error {
	b := make([]byte, frameHeader)
	n, err := w.active.ReadAt(b, w.state.end)
	if err != nil && !isEOF(err) {
		return err
	}
	if len(bytes.Trim(b[:n], "\x00")) == 0 {
		return nil
	}
	if _, err := w.active.WriteAt(zeros[:n], w.state.end); err != nil {
		return err
	}
	return w.active.SyncData()
}

// removeHalf removes the segment that an interrupted Append began to make.
func (w *writer) removeHalf() error {
	bases, err := w.listSegments()
	if err != nil {
		return err
	}
	for _, base := range bases {
		if base > w.state.base {
			if err := w.disk.Remove(w.file(segmentName(base))); err != nil {
				return err
			}
			w.forgetSegments()
		}
	}
	return nil
}

// adopt moves the end of the log, in s, behind each whole Append that follows it in the segment. What cannot be
// read now is no end: entries behind it may have been acknowledged.
func (g *segment) adopt(s *state) error {
	for end := *s; ; {
		f, _, err := g.frame(end.end, end.sum, true)
		if errors.Is(err, ErrDamaged) || err == nil && f.seq != end.last+1 {
			return nil
		}
		if err != nil {
			return err
		}
		end.last, end.frame, end.end, end.sum = f.next()-1, f.at, f.end(), f.sum
		if !f.more {
			*s = end
		}
	}
}

// checkEnd checks the last frame that the state names.
func (w *writer) checkEnd(s *state) error {
	if s.frame == 0 {
		return nil
	}
	seg := &segment{file: w.active, path: w.activePath, base: s.base, seed: w.seed, end: s.end}
	f, _, err := seg.frame(s.frame, 0, false)
	if err != nil {
		return err
	}
	if f.sum != s.sum || f.end() != s.end || f.next() != s.last+1 || f.more {
		return damaged(w.activePath, "at byte %d it does not hold the last entry, %d", s.frame, s.last)
	}
	return nil
}

// A plan is an Append that is ready to be written.
type plan struct {
	frames []byte
	at     int64 // where they go,
	rolls  bool  // in a new segment
	next   state
	index  []byte // entries of the index
}

// plan encodes the entries. The holder of the turn calls it.
func (w *writer) plan(entries [][]byte) (p plan) {
	s := w.state
	seed := w.seed
	// Only the state decides whether a segment is full. So the Append after an interrupted one makes the same
	// segment, and no half of one is left.
	if p.rolls = s.end >= w.full; p.rolls {
		s.base, s.end = s.last+1, int64(segmentHeader+len(w.owner))
		_, seed = encodeHeader(w.owner, s.base, s.sum)
	}
	p.at, p.frames = s.end, w.buffer[:0]
	indexed := w.indexed
	if p.rolls {
		indexed = 0
	}
	for len(entries) > 0 {
		n := entriesPerFrame(entries)
		s.frame = p.at + int64(len(p.frames))
		if s.frame-indexed >= indexStep {
			indexed = s.frame
			p.index = appendIndex(p.index, s.last+1, s.frame)
		}
		p.frames, s.sum = encodeFrame(p.frames, seed, s.sum, s.last+1, entries[:n], n < len(entries))
		s.last += uint64(n)
		entries = entries[n:]
	}
	s.end = p.at + int64(len(p.frames))
	if w.buffer = p.frames; cap(w.buffer) > 1<<20 {
		w.buffer = nil
	}
	p.next = s
	return p
}

// commit writes what was planned. The holder of the turn calls it. After an error the state is read again.
func (w *writer) commit(p *plan, durable bool) (err error) {
	defer func() {
		if err != nil {
			w.state = state{}
		}
	}()
	if p.rolls {
		sealed, end := w.active, w.state.end
		defer func() {
			if err == nil {
				_ = sealed.Truncate(end) // only zeros are behind it
			}
			_ = sealed.Close()
		}()
		w.active = nil
		if !durable {
			if err := sealed.SyncData(); err != nil {
				return err
			}
		}
		if err := w.startSegment(p.next.base, w.state.sum); err != nil {
			return err
		}
	}
	if _, err := w.active.WriteAt(p.frames, p.at); err != nil {
		return err
	}
	if len(p.frames) >= largeAppend || w.grow(p.next.end) != nil { // without zeros the sync only takes longer
		w.size = max(w.size, p.next.end)
	}
	if durable {
		if err := w.active.SyncData(); err != nil {
			return err
		}
		if err := w.checkPlace(); err != nil {
			return err
		}
	}
	if err := w.writeState(p.next); err != nil {
		return err
	}
	w.state = p.next
	if len(p.index) > 0 {
		w.indexed = p.next.frame
		w.addToIndex(w.state.base, p.index)
	}
	return nil
}

// checkPlace checks that what is written can be found where Open looks for it: the folder is in its place, and the
// segment is in the folder.
func (w *writer) checkPlace() error {
	if !w.stateFile.IsAt(w.statePath) || !w.active.HasName() {
		return fmt.Errorf("%s: %w", w.activePath, ErrReplaced)
	}
	return nil
}

// grow fills the active segment with zeros if it ends before end.
func (w *writer) grow(end int64) error {
	if end <= w.size {
		return nil
	}
	step := int64(growth)
	if w.size < firstGrowth {
		step = firstGrowth
	}
	size := (end + step - 1) / step * step
	if _, err := w.active.WriteAt(zeros[:size-end], end); err != nil {
		return err
	}
	w.size = size
	return nil
}

var zeros [growth]byte

// startSegment makes the segment with entry base, which becomes the active one.
func (w *writer) startSegment(base uint64, before uint32) error {
	_ = w.disk.Remove(w.file(indexName(base))) // of an interrupted Append
	path := w.file(segmentName(base))
	file, err := w.disk.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	header, seed := encodeHeader(w.owner, base, before)
	w.active, w.activePath, w.seed, w.size, w.indexed = file, path, seed, 0, 0
	if _, err := file.WriteAt(header, 0); err != nil {
		return err
	}
	if err := w.grow(int64(len(header))); err != nil {
		return err
	}
	if err := errors.Join(file.SyncData(), w.disk.SyncFolder(w.path)); err != nil {
		return err
	}
	w.forgetSegments() // another process may have made some since they were listed
	return nil
}
