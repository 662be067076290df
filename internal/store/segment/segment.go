// Package segment keeps logs in files: one folder for each log. It decides where an entry is in these files,
// when it is durable, and what is damaged. Its callers decide what the entries mean.
//
// A log has a file named state and some segments. A segment holds consecutive entries, and its name is the
// number of the first one. New entries go to the newest segment, the active one.
//
//	segment = header, frames, zeros
//	header  = "SwBdSeg1", checksum of the rest, checksum of the last frame before this segment,
//	          number of the first entry, length of the owner, owner
//	frame   = checksum of the rest, checksum of the frame before it, number of its first entry,
//	          length of the body, number of entries (and moreFrames), body
//	body    = the length of each entry as an uvarint, the entries
//	state   = "SwBdLog1", checksum of the rest, first and last entry, the active segment,
//	          where its last frame begins and ends, the checksum of that frame
//
// All numbers are big-endian. Checksums are CRC-32C; that of a frame begins with the checksum of its segment's
// header, so a frame is valid only in its own segment.
//
// One Append writes one frame, or several if it has much to write: so one entry can be read without much else. After
// a crash the whole Append is there, or nothing of it. Append syncs its frames, and then writes the new state
// without syncing it. So the state never names an entry that is not on the disk, and
// it tells a lost or damaged end from an interrupted Append. Frames behind the end in the state were written
// by an Append that was interrupted, or their state was lost with the machine: Open adopts them.
//
// The active segment is filled with zeros ahead of its frames: to sync a file whose size changes takes half as
// long again on ext4. Beside a segment, NUMBER.index says where some of its frames begin; it is only a hint.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
)

// The errors that callers branch on.
var (
	// ErrConflict says that the log ends with another entry. Nothing was written.
	ErrConflict = errors.New("the log ends with another entry")

	// ErrDamaged says that a file holds something that was never written to it, or lacks something that was.
	ErrDamaged = errors.New("it is damaged")

	// ErrReplaced says that a file was removed or replaced while it was open.
	ErrReplaced = errors.New("it was removed or replaced while it was open")

	// ErrBusy says that another process has had the lock of the log for too long.
	ErrBusy = errors.New("another process has been writing to it")
)

// MaxAppend is the most bytes of the entries of one Append. Callers check it.
const MaxAppend = 64 << 20

// Sizes in bytes.
const (
	segmentSize = 16 << 20  // a longer segment is continued in the next one
	growth      = 256 << 10 // the active segment is filled with zeros in steps of this size
	firstGrowth = 16 << 10  // the first step, since many logs stay small
	largeAppend = 64 << 10  // an Append of this size adds no zeros: they would cost as much as it does
	indexStep   = 64 << 10  // between two frames in the index

	segmentHeader = 8 + 4 + 4 + 8 + 2 // without the owner
	frameHeader   = 4 + 4 + 8 + 4 + 4
	frameSize     = 32 << 10 // a frame with more bytes takes no further entry
	maxBody       = MaxAppend + MaxAppend/4
	maxCount      = 1 << 20 // entries of a frame
	moreFrames    = 1 << 31 // set in the number of entries if the next frame belongs to the same Append
)

const (
	segmentMagic = "SwBdSeg1"
	stateMagic   = "SwBdLog1"
	stateFile    = "state"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// An Entry is an entry of a log. Entries are numbered from 1.
type Entry struct {
	Seq  uint64
	Data []byte
}

// A state says which entries a log holds and where they end.
type state struct {
	first, last uint64 // entries; none if first is last+1
	base        uint64 // the active segment
	frame, end  int64  // where its last frame begins and ends; frame is 0 if it has none
	sum         uint32 // checksum of the last frame of the log; 0 if it has none
}

const stateSize = 8 + 4 + 3*8 + 2*8 + 4

func (s *state) encode() []byte {
	b := append(make([]byte, 0, stateSize), stateMagic...)
	b = append(b, 0, 0, 0, 0)
	for _, n := range []uint64{s.first, s.last, s.base, uint64(s.frame), uint64(s.end)} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	b = binary.BigEndian.AppendUint32(b, s.sum)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeState(b []byte) (s state, ok bool) {
	if len(b) != stateSize || string(b[:8]) != stateMagic || binary.BigEndian.Uint32(b[8:]) != crc32.Checksum(b[12:], castagnoli) {
		return state{}, false
	}
	s.first, s.last, s.base = binary.BigEndian.Uint64(b[12:]), binary.BigEndian.Uint64(b[20:]), binary.BigEndian.Uint64(b[28:])
	s.frame, s.end = int64(binary.BigEndian.Uint64(b[36:])), int64(binary.BigEndian.Uint64(b[44:]))
	s.sum = binary.BigEndian.Uint32(b[52:])
	return s, true
}

// encodeHeader returns the header of the segment with entry base, and its checksum.
func encodeHeader(owner string, base uint64, before uint32) (b []byte, sum uint32) {
	b = append(make([]byte, 0, segmentHeader+len(owner)), segmentMagic...)
	b = binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 0), before)
	b = binary.BigEndian.AppendUint64(b, base)
	b = binary.BigEndian.AppendUint16(b, uint16(len(owner))) //nolint:gosec // Create limits the owner
	b = append(b, owner...)
	sum = crc32.Checksum(b[12:], castagnoli)
	binary.BigEndian.PutUint32(b[8:], sum)
	return b, sum
}

// A frame is the header of a frame, and where it is.
type frame struct {
	at          int64
	sum, before uint32
	seq         uint64 // the first entry
	size        int64  // bytes of the body
	count       int    // entries
	more        bool   // the next frame belongs to the same Append
}

// end returns where the frame ends.
func (f *frame) end() int64 { return f.at + frameHeader + f.size }

// next returns the number of the entry after the frame.
func (f *frame) next() uint64 { return f.seq + uint64(f.count) }

// decodeFrame reads the header of the frame at that place.
func decodeFrame(b []byte, at int64) frame {
	return frame{
		at: at, sum: binary.BigEndian.Uint32(b), before: binary.BigEndian.Uint32(b[4:]), seq: binary.BigEndian.Uint64(b[8:]),
		size: int64(binary.BigEndian.Uint32(b[16:])), count: int(binary.BigEndian.Uint32(b[20:]) &^ moreFrames),
		more: binary.BigEndian.Uint32(b[20:])&moreFrames != 0,
	}
}

// plausible reports whether a frame can have this header.
func (f *frame) plausible() bool {
	return f.seq > 0 && f.count > 0 && f.count <= maxCount && f.size >= int64(f.count) && f.size <= maxBody
}

// encodeFrame appends a frame to b. seed is the checksum of the segment's header.
func encodeFrame(b []byte, seed, before uint32, seq uint64, entries [][]byte, more bool) (whole []byte, sum uint32) {
	at := len(b)
	b = binary.BigEndian.AppendUint32(append(b, 0, 0, 0, 0), before)
	b = binary.BigEndian.AppendUint64(b, seq)
	b = append(b, 0, 0, 0, 0)
	count := uint32(len(entries)) //nolint:gosec // Append limits their number
	if more {
		count |= moreFrames
	}
	b = binary.BigEndian.AppendUint32(b, count)
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(len(e)))
	}
	for _, e := range entries {
		b = append(b, e...)
	}
	binary.BigEndian.PutUint32(b[at+16:], uint32(len(b)-at-frameHeader)) //nolint:gosec // Append limits their size
	sum = crc32.Update(seed, castagnoli, b[at+4:])
	binary.BigEndian.PutUint32(b[at:], sum)
	return b, sum
}

// entriesPerFrame returns how many of the entries go into one frame.
func entriesPerFrame(entries [][]byte) (n int) {
	for size := 0; n < len(entries) && size < frameSize; n++ {
		size += len(entries[n])
	}
	return n
}

// entries calls see with each entry of the frame with the body. A damaged list of lengths is not ok.
func (f *frame) entries(body []byte, see func(Entry) bool) (ok, more bool) {
	sizes, n := body, 0
	for range f.count {
		size, k := binary.Uvarint(body[n:])
		if k <= 0 || size > uint64(len(body)) {
			return false, false
		}
		n += k
	}
	data := body[n:]
	for i := range f.count {
		size, k := binary.Uvarint(sizes)
		sizes = sizes[k:]
		if size > uint64(len(data)) {
			return false, false
		}
		if !see(Entry{f.seq + uint64(i), data[:size:size]}) {
			return true, false
		}
		data = data[size:]
	}
	return len(data) == 0, true
}

// segmentName returns the name of the segment with entry base.
func segmentName(base uint64) string { return fmt.Sprintf("%020d.log", base) }

// indexName returns the name of that segment's index.
func indexName(base uint64) string { return fmt.Sprintf("%020d.index", base) }

// parseName returns the first entry of the segment with that name.
func parseName(name string) (base uint64, ok bool) {
	if len(name) != 24 || filepath.Ext(name) != ".log" {
		return 0, false
	}
	for _, c := range name[:20] {
		if c < '0' || c > '9' || base > (1<<64-1-9)/10 {
			return 0, false
		}
		base = 10*base + uint64(c-'0')
	}
	return base, base > 0
}

// damaged returns an ErrDamaged about the file at path.
func damaged(path, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrDamaged, path, fmt.Sprintf(format, args...))
}
