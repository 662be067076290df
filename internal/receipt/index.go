package receipt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// The index of a chain is a log of its own: indexPrefix and the node. It tells List which entries a
// Query may select, so that List reads only these. The chain stays the only evidence: Verify does not
// need the index, and List parses every entry that it yields.
//
// An entry of the index describes one block of the chain. Block 1 has the entries 1 to size, block 2
// the next ones. The entries of the index describe consecutive blocks. They have this form, in which
// numbers are unsigned varints:
//
//	version             one byte
//	size, begin, block  the entries of a block; the first block that was indexed; this block
//	unknown             how many entries of the block have unknown terms
//	end                 SHA-256 of the last entry of the block
//	texts               for each column: how many terms it has, and the bytes of the rest; then of each term its
//	                    length and its bytes
//	positions           for each column and each entry: the position of its term, from 1; 0 means unknown
//
// Positions of a column have as few bits as the number of its terms needs. They are packed, the lowest
// bit first; each column begins with a new byte.
//
// The digests of the chain make one check of the last block enough: if the chain has the entry with the
// digest end, then it also has all entries before it that were indexed. Otherwise the chain is another one than
// was indexed, for example because a backup of it was restored, and the index counts for nothing.
const (
	indexPrefix   = "receipts-index/"
	indexVersion  = 2
	maxBlock      = 1 << 14
	maxBlockTexts = 256 << 10 // bytes of the texts in an entry of the index
)

// An indexBlock is one entry of the index.
type indexBlock struct {
	size    uint64
	begin   uint64 // number of the first block that was indexed
	number  uint64
	unknown uint64
	end     [sha256.Size]byte
	columns [columnCount]indexColumn
}

// An indexColumn has the terms of a block in one column.
type indexColumn struct {
	count     int    // of the terms
	texts     []byte // of each term its length and its bytes
	positions []byte // packed
}

// first returns the number of the first entry of the block, last of the last one.
func (b *indexBlock) first() uint64 { return (b.number-1)*b.size + 1 }
func (b *indexBlock) last() uint64  { return b.number * b.size }

// blockOf returns the number of the block with the entry seq.
func blockOf(seq, size uint64) uint64 { return (seq-1)/size + 1 }

// encodeIndexBlock returns an entry of the index. b has no columns; all are the terms of the entries of the block.
func encodeIndexBlock(b *indexBlock, all []searchTerms) []byte {
	var texts [columnCount][]byte
	var counts [columnCount]uint64
	positions := make([][columnCount]uint16, len(all))
	var known [columnCount]map[string]uint16
	for c := range known {
		known[c] = map[string]uint16{}
	}
	unknown, size := uint64(0), 0
	for i := range all {
		if all[i] == anyTerms || size > maxBlockTexts { // List reads all these entries
			unknown++
			continue
		}
		for c, text := range all[i] {
			at := known[c][*text]
			if at == 0 {
				counts[c]++
				at = uint16(counts[c])
				known[c][*text] = at
				texts[c] = append(binary.AppendUvarint(texts[c], uint64(len(*text))), *text...)
				size += len(*text)
			}
			positions[i][c] = at
		}
	}
	out := []byte{indexVersion}
	for _, n := range []uint64{b.size, b.begin, b.number, unknown} {
		out = binary.AppendUvarint(out, n)
	}
	out = append(out, b.end[:]...)
	for c := range texts {
		out = append(binary.AppendUvarint(binary.AppendUvarint(out, counts[c]), uint64(len(texts[c]))), texts[c]...)
	}
	for c := range texts {
		width := bits.Len64(counts[c])
		packed, filled := uint64(0), 0
		for i := range positions {
			packed |= uint64(positions[i][c]) << filled
			for filled += width; filled >= 8; filled -= 8 {
				out = append(out, byte(packed))
				packed >>= 8
			}
		}
		if filled > 0 {
			out = append(out, byte(packed))
		}
	}
	return out
}

var errIndexForm = errors.New("this is not an entry of an index of this version")

// parseIndexBlock reads an entry of the index. The block refers to raw.
func parseIndexBlock(raw []byte) (*indexBlock, error) {
	b := &indexBlock{}
	p := indexParser{rest: raw}
	if v := p.take(1); p.failed || v[0] != indexVersion {
		return nil, errIndexForm
	}
	b.size, b.begin, b.number, b.unknown = p.number(), p.number(), p.number(), p.number()
	copy(b.end[:], p.take(uint64(len(b.end))))
	if p.failed || b.size == 0 || b.size > maxBlock || b.begin == 0 || b.begin > b.number || b.number > 1<<48 {
		return nil, errIndexForm
	}
	for c := range b.columns {
		n := p.number()
		texts := p.take(p.number())
		if p.failed || n > b.size {
			return nil, errIndexForm
		}
		b.columns[c] = indexColumn{count: int(n), texts: texts}
	}
	for c := range b.columns {
		b.columns[c].positions = p.take((b.size*uint64(b.columns[c].width()) + 7) / 8)
	}
	if p.failed || len(p.rest) > 0 {
		return nil, errIndexForm
	}
	return b, nil
}

// An indexParser reads the parts of an entry of the index. After a fault it returns zero values.
type indexParser struct {
	rest   []byte
	failed bool
}

func (p *indexParser) take(n uint64) (part []byte) {
	if p.failed || n > uint64(len(p.rest)) {
		p.failed = true
		return nil
	}
	part, p.rest = p.rest[:n], p.rest[n:]
	return part
}

func (p *indexParser) number() uint64 {
	v, n := binary.Uvarint(p.rest)
	if p.failed || n <= 0 {
		p.failed = true
		return 0
	}
	p.rest = p.rest[n:]
	return v
}

// width returns the bits of a position.
func (c *indexColumn) width() int { return bits.Len(uint(c.count)) }

// positionAt returns the position of the term of the entry i of the block: 0 to count, or more if it is damaged.
func (c *indexColumn) positionAt(i uint64) int {
	width := uint64(c.width())
	at, packed := i*width/8, uint64(0)
	for k, b := range c.positions[at:min(at+4, uint64(len(c.positions)))] {
		packed |= uint64(b) << (8 * k)
	}
	return int(packed >> (i * width % 8) & (1<<width - 1))
}

// eachText calls see with each term, in the order of their positions. It returns false if the terms are damaged.
func (c *indexColumn) eachText(see func(text string)) bool {
	all, p := string(c.texts), indexParser{rest: c.texts}
	for range c.count {
		n := p.number()
		begin := len(all) - len(p.rest)
		if p.take(n); p.failed {
			return false
		}
		see(all[begin : begin+int(n)])
	}
	return len(p.rest) == 0
}

// find appends the numbers of the entries from first to last that the query of m may select to found.
func (b *indexBlock) find(m *termMatcher, first, last uint64, found []uint64) []uint64 {
	var asked []termColumn
	none := false // no entry with known terms is selected
	for _, c := range allColumns {
		if !m.asks(c) {
			continue
		}
		asked = append(asked, c)
		may := append(m.may[c][:0], true) // unknown
		any := false
		whole := b.columns[c].eachText(func(text string) {
			yes := m.matches(c, text)
			any = any || yes
			may = append(may, yes)
		})
		if !whole { // each entry may be selected
			may, any = may[:0], true
		}
		m.may[c] = may
		if none = none || !any; none && b.unknown == 0 {
			return found
		}
	}
	for seq := max(first, b.first()); seq <= min(last, b.last()); seq++ {
		if b.mayMatch(m, asked, seq-b.first()) {
			found = append(found, seq)
		}
	}
	return found
}

// mayMatch reports whether the asked columns of entry i have terms that the query may select.
func (b *indexBlock) mayMatch(m *termMatcher, asked []termColumn, i uint64) bool {
	for _, c := range asked {
		at := b.columns[c].positionAt(i)
		if at < len(m.may[c]) && !m.may[c][at] {
			return false
		}
	}
	return true
}

// An indexEnd says which blocks of a chain are indexed: begin to block. The entry seq of the index
// describes block. If no block is indexed, block is 0, and seq is the last entry of the index.
type indexEnd struct{ size, begin, block, seq uint64 }

// covers reports whether block is indexed.
func (e indexEnd) covers(block uint64) bool {
	return e.block > 0 && block >= e.begin && block <= e.block
}

// seqOf returns the number of the entry of the index that describes block.
func (e indexEnd) seqOf(block uint64) uint64 { return e.seq - (e.block - block) }

// readIndexEnd reads the end of the index of node. An index that does not belong to the chain counts
// as empty.
func readIndexEnd(ctx context.Context, s ChainReader, node string) (indexEnd, error) {
	span, err := s.Span(ctx, indexPrefix+node)
	if err != nil || span.Last < span.First {
		return indexEnd{seq: span.Last}, err
	}
	none := indexEnd{seq: span.Last}
	last, err := s.Read(ctx, indexPrefix+node, span.Last-1, 1)
	if err != nil || len(last) == 0 {
		return none, err
	}
	none.seq = last[0].Seq
	b, err := parseIndexBlock(last[0].Data)
	if err != nil || b.number-b.begin >= last[0].Seq {
		return none, nil //nolint:nilerr // whoever writes the chain makes another index
	}
	digest, ok, err := digestAt(ctx, s, node, b.last())
	if err != nil || !ok || digest != b.end {
		return none, err
	}
	return indexEnd{size: b.size, begin: b.begin, block: b.number, seq: last[0].Seq}, nil
}

// digestAt returns the digest of the entry seq of a chain. ok is false if the entry is not there.
func digestAt(ctx context.Context, s ChainReader, node string, seq uint64) (digest [sha256.Size]byte, ok bool, err error) {
	all, err := s.Read(ctx, logPrefix+node, seq-1, 1)
	if err != nil || len(all) == 0 || all[0].Seq != seq {
		return digest, false, err
	}
	return sha256.Sum256(all[0].Data), true, nil
}

// An indexReader reads the index of one chain, for a cursor that goes in one direction.
type indexReader struct {
	reader ChainReader
	node   string
	newest bool
	end    indexEnd
	page   []store.Entry // consecutive entries of the index
	ahead  uint64        // how many entries to read next
}

// maxIndexPage is how many entries of the index are read at once.
const maxIndexPage = 128

// block returns the entry of the index that describes the block number, or nil if that block must be
// read without the index.
func (r *indexReader) block(ctx context.Context, number uint64) (*indexBlock, error) {
	if !r.end.covers(number) {
		return nil, nil
	}
	seq := r.end.seqOf(number)
	if len(r.page) == 0 || seq < r.page[0].Seq || seq > r.page[len(r.page)-1].Seq {
		r.ahead = min(max(2*r.ahead, 4), maxIndexPage)
		first := seq
		if r.newest {
			first = max(seq, r.ahead) - r.ahead + 1
		}
		var err error
		if r.page, err = r.reader.Read(ctx, indexPrefix+r.node, first-1, int(r.ahead)); err != nil {
			return nil, err
		}
		// A store may return fewer entries than there are, if they are long.
		if r.newest && len(r.page) > 0 && r.page[len(r.page)-1].Seq < seq {
			if r.page, err = r.reader.Read(ctx, indexPrefix+r.node, seq-1, 1); err != nil {
				return nil, err
			}
		}
	}
	if len(r.page) == 0 || seq < r.page[0].Seq || seq-r.page[0].Seq >= uint64(len(r.page)) {
		return nil, nil // it was trimmed meanwhile
	}
	b, err := parseIndexBlock(r.page[seq-r.page[0].Seq].Data)
	if err != nil || b.number != number || b.size != r.end.size || b.begin != r.end.begin {
		return nil, nil //nolint:nilerr // the entries of the block are read instead
	}
	return b, nil
}
