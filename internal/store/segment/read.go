package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// Span returns which entries the log holds: first to last. If it holds none, first is last+1.
func (l *Log) Span(ctx context.Context) (first, last uint64, err error) {
	s, err := l.readState(ctx)
	return s.first, s.last, err
}

// Read calls see with the entries after the entry after, in order, until see returns false. The data of an
// entry is valid only during see.
func (l *Log) Read(ctx context.Context, after uint64, see func(Entry) bool) error {
	s, err := l.readState(ctx)
	if err != nil {
		return err
	}
	if after >= s.last {
		return nil
	}
	return l.walk(ctx, &s, max(after+1, s.first), see)
}

// A View is a log as it was at one instant.
type View struct {
	log   *Log
	state state
}

// Hold keeps all writers away until release is called, and returns the log as it is now. The View stays
// valid after release, until entries are trimmed.
func (l *Log) Hold(ctx context.Context) (v View, release func(), err error) {
	if err := l.takeTurn(ctx); err != nil {
		return View{}, nil, err
	}
	return View{l, l.writer.state}, l.endTurn, nil
}

// Span returns the entries of the view.
func (v View) Span() (first, last uint64) { return v.state.first, v.state.last }

// Read calls see with all entries of the view, in order.
func (v View) Read(ctx context.Context, see func(Entry) bool) error {
	return v.log.walk(ctx, &v.state, v.state.first, see)
}

// listSegments returns the first entries of all segments, sorted.
func (d *folder) listSegments() ([]uint64, error) {
	names, err := d.disk.List(d.path)
	if err != nil {
		return nil, err
	}
	bases := make([]uint64, 0, len(names))
	for _, name := range names {
		if base, ok := parseName(name); ok {
			bases = append(bases, base)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bases = bases
	return slices.Clone(bases), nil
}

// forgetSegments makes the next findSegment list the segments again.
func (d *folder) forgetSegments() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bases = nil
}

// findSegment returns the first entry of the segment that holds entry seq, of a log that ends in the segment
// active.
func (d *folder) findSegment(seq, active uint64) (base uint64, err error) {
	d.mu.Lock()
	bases := d.bases
	known := len(bases) > 0 && bases[0] <= seq && bases[len(bases)-1] >= active
	if known {
		i, _ := slices.BinarySearch(bases, seq+1)
		base = bases[i-1]
	}
	d.mu.Unlock()
	if known {
		return base, nil
	}
	if bases, err = d.listSegments(); err != nil {
		return 0, err
	}
	i, _ := slices.BinarySearch(bases, seq+1)
	if i == 0 {
		return 0, damaged(d.path, "the segment with entry %d is gone", seq)
	}
	return bases[i-1], nil
}

// walk calls see with the entries from next on, up to the last one of s.
func (l *Log) walk(ctx context.Context, s *state, next uint64, see func(Entry) bool) error {
	var sum uint32 // of the previous frame
	known := false // sum is known
	for next <= s.last {
		base, err := l.folder.findSegment(next, s.base)
		if err != nil {
			return l.explainGone(ctx, err, next)
		}
		seg, err := l.folder.openSegment(base, os.O_RDONLY)
		if err != nil {
			return l.explainGone(ctx, err, next)
		}
		if base == s.base {
			seg.end = s.end
		}
		next, sum, err = l.walkSegment(ctx, seg, s, segmentWalker{next: next, sum: sum, known: known, see: see})
		known = true
		_ = seg.file.Close()
		if err != nil {
			if errors.Is(err, errStop) {
				return nil
			}
			return l.explainGone(ctx, err, next)
		}
	}
	return nil
}

// explainGone returns ErrTrimmed in place of err if entry next was trimmed meanwhile.
func (l *Log) explainGone(ctx context.Context, err error, next uint64) error {
	l.folder.forgetSegments()
	if now, e := l.readState(ctx); e == nil && now.first > next && errors.Is(err, ErrDamaged) {
		return fmt.Errorf("%w: entry %d", ErrTrimmed, next)
	}
	return err
}

// ErrTrimmed says that the entries were trimmed while they were being read.
var ErrTrimmed = errors.New("it was trimmed meanwhile")

// errStop says that the caller has enough.
var errStop = errors.New("stop")

// A segmentWalker is what walk knows when it comes to a segment.
type segmentWalker struct {
	next  uint64 // the next entry to see
	sum   uint32
	known bool
	see   func(Entry) bool
}

// walkSegment sees the entries of one segment. It returns the first entry of the next segment, and the
// checksum of its last frame.
func (l *Log) walkSegment(ctx context.Context, seg *segment, s *state, w segmentWalker) (next uint64, sum uint32, err error) {
	at := l.folder.locate(seg, w.next)
	if w.known && seg.before != w.sum {
		return w.next, 0, damaged(seg.path, "it does not continue the segment before it")
	}
	w.known, w.sum = at == seg.size, seg.before
	begun := w.next
	for w.next <= s.last {
		if err := ctx.Err(); err != nil {
			return w.next, 0, err
		}
		f, err := seg.head(at)
		if err == nil && f.next() <= w.next { // it is before the first entry to see
			at, w.sum, w.known = f.end(), f.sum, true
			continue
		}
		var body []byte
		if err == nil {
			f, body, err = seg.frame(at, w.sum, w.known)
		}
		if err == nil && (f.seq > w.next || w.next != begun && f.seq != w.next) {
			err = damaged(seg.path, "at byte %d it holds entry %d in place of entry %d", at, f.seq, w.next)
		}
		if err != nil {
			if seg.base != s.base && l.isSealedAt(seg, w) {
				return w.next, w.sum, nil
			}
			return w.next, 0, err
		}
		ok, more := f.entries(body, func(e Entry) bool { return e.Seq < w.next || e.Seq > s.last || w.see(e) })
		switch {
		case !ok:
			return w.next, 0, damaged(seg.path, "the frame at byte %d is not what was written", at)
		case !more:
			return w.next, 0, errStop
		}
		at, w.sum, w.known, w.next = f.end(), f.sum, true, f.next()
	}
	if seg.base == s.base && w.sum != s.sum {
		return w.next, 0, damaged(seg.path, "it does not end with entry %d as it was stored", s.last)
	}
	return w.next, w.sum, nil
}

// isSealedAt reports whether the segment ends before entry w.next: the next segment begins with that entry, and
// continues the last frame.
func (l *Log) isSealedAt(seg *segment, w segmentWalker) bool {
	next, err := l.folder.openSegment(w.next, os.O_RDONLY)
	if err != nil {
		return false
	}
	_ = next.file.Close()
	return next.base > seg.base && w.known && next.before == w.sum
}

// A segment is an open segment.
type segment struct {
	file   DiskFile
	path   string
	base   uint64
	before uint32 // checksum of the last frame before it
	seed   uint32 // checksum of its header
	size   int64  // of the header
	end    int64  // nothing is read from here on

	chunk   []byte // a part of the file,
	chunkAt int64  // from here on
}

// openSegment opens the segment with entry base, and checks its header.
func (d *folder) openSegment(base uint64, flag int) (*segment, error) {
	path := d.file(segmentName(base))
	file, err := d.disk.OpenFile(path, flag)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, damaged(path, "it is gone; put it back")
		}
		return nil, err
	}
	g := &segment{file: file, path: path, base: base, size: int64(segmentHeader + len(d.owner))}
	if g.end, err = file.Size(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	b := make([]byte, g.size)
	if _, err := file.ReadAt(b, 0); err != nil && !isEOF(err) {
		return nil, errors.Join(err, file.Close())
	}
	g.before = binary.BigEndian.Uint32(b[12:])
	want, seed := encodeHeader(d.owner, base, g.before)
	if !slices.Equal(b, want) {
		return nil, errors.Join(damaged(path, "its header is not what was written, or it is of another log"), file.Close())
	}
	g.seed = seed
	return g, nil
}

// chunkSize is how many bytes are read at once, at least.
const chunkSize = 64 << 10

// bytes returns n bytes of the segment. They are valid until the next call.
func (g *segment) bytes(at, n int64) ([]byte, error) {
	if at+n > g.end {
		return nil, damaged(g.path, "it ends at byte %d, within the frame at byte %d", g.end, at)
	}
	if at < g.chunkAt || at+n > g.chunkAt+int64(len(g.chunk)) {
		size := min(max(n, chunkSize), g.end-at)
		if int64(cap(g.chunk)) < size {
			g.chunk = make([]byte, size)
		}
		g.chunk, g.chunkAt = g.chunk[:size], at
		got, err := g.file.ReadAt(g.chunk, at)
		if err != nil && !isEOF(err) {
			g.chunk = g.chunk[:0]
			return nil, fmt.Errorf("%s: %w", g.path, err)
		}
		g.chunk = g.chunk[:got]
		if int64(got) < size { // a writer has meanwhile cut off the zeros behind the last frame
			g.end = at + int64(got)
		}
		if int64(got) < n {
			return nil, damaged(g.path, "it ends at byte %d, within the frame at byte %d", g.end, at)
		}
	}
	return g.chunk[at-g.chunkAt:][:n], nil
}

// head returns the header of the frame at that place.
func (g *segment) head(at int64) (frame, error) {
	b, err := g.bytes(at, frameHeader)
	if err != nil {
		return frame{}, err
	}
	f := decodeFrame(b, at)
	if !f.plausible() || f.end() > g.end {
		return frame{}, damaged(g.path, "at byte %d there is no frame", at)
	}
	return f, nil
}

// frame returns the frame at that place, and its body, which is valid until the next call. If known is true,
// before is the checksum of the frame before it.
func (g *segment) frame(at int64, before uint32, known bool) (frame, []byte, error) {
	f, err := g.head(at)
	if err != nil {
		return frame{}, nil, err
	}
	b, err := g.bytes(at, frameHeader+f.size)
	if err != nil {
		return frame{}, nil, err
	}
	if crc32.Update(g.seed, castagnoli, b[4:]) != f.sum || known && f.before != before {
		return frame{}, nil, damaged(g.path, "the frame at byte %d, from entry %d on, is not what was written", at, f.seq)
	}
	return f, b[frameHeader:], nil
}
