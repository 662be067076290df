package segment

import (
	"encoding/binary"
	"os"
)

// An index of a segment has 16 bytes for some of its frames: the first entry, and where the frame begins.
const indexEntry = 16

// maxIndex limits how much of an index is read.
const maxIndex = 64 << 10

// appendIndex appends an entry that says where the frame with entry seq begins.
func appendIndex(b []byte, seq uint64, at int64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, seq), uint64(at)) //nolint:gosec // no offset is negative
}

// addToIndex appends entries to an index. An index is a hint, so no error matters.
func (d *folder) addToIndex(base uint64, entries []byte) {
	file, err := d.disk.OpenFile(d.file(indexName(base)), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return
	}
	defer func() { _ = file.Close() }()
	if size, err := file.Size(); err == nil && size < maxIndex {
		_, _ = file.WriteAt(entries, size/indexEntry*indexEntry)
	}
}

// locate returns the start of a frame. Entry seq is in that frame or in a later one.
func (d *folder) locate(g *segment, seq uint64) (at int64) {
	if seq == g.base {
		return g.size
	}
	b := d.readIndex(g.base)
	for len(b) >= indexEntry { // the last entry first
		last := b[len(b)-indexEntry:]
		b = b[:len(b)-indexEntry]
		first, at := binary.BigEndian.Uint64(last), int64(binary.BigEndian.Uint64(last[8:])) //nolint:gosec // it is checked
		if first > seq || at <= g.size || at >= g.end {
			continue
		}
		if f, _, err := g.frame(at, 0, false); err == nil && f.seq == first {
			return at
		}
	}
	return g.size
}

// readIndex returns the whole entries of the index; none if it cannot be read.
func (d *folder) readIndex(base uint64) []byte {
	file, err := d.disk.OpenFile(d.file(indexName(base)), os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	size, err := file.Size()
	if err != nil {
		return nil
	}
	b := make([]byte, min(size, maxIndex))
	n, err := file.ReadAt(b, 0)
	if err != nil && !isEOF(err) {
		return nil
	}
	return b[:n/indexEntry*indexEntry]
}
