package history

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"math/bits"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A block holds the steps of one span of time. Encoded, with every number as a uvarint, it is
//
//	format   1 byte: 4
//	writers  their number; for each: its id (8 bytes), the number of its last write
//	pairs    their number; for each: the length of the tenant's id and the id, the length of the server's id and the id
//	steps    their number; for each: its index in the block, and the number of its series; for each series:
//	         the index of its pair, a mask of the numbers that are not 0, and these numbers
//
// Writers come in the order of their last writes, steps by index, and pairs and series by name. Blocks of older formats are read, too: 1 has no numbers from firstCode
// on, 2 none from firstExtra on, and 3 has only codesBefore4 of refusalCodes.
type stepBlock struct {
	writers []blockWriter
	steps   map[int]historyStep
}

// A historyStep has the numbers of each pair with calls in one step.
type historyStep map[seriesKey]*counts

// A blockWriter is a process that has written to a block. So a process whose write had an unknown outcome finds out whether the block has it.
type blockWriter struct {
	id    uint64
	write uint64
}

const (
	blockFormat = 4
	maxWriters  = 32      // of a block; the one that has written least recently is forgotten
	maxName     = 256     // bytes of an id; configured ids are shorter
	maxNumber   = 1 << 53 // of calls; JSON's numbers are exact up to it
)

var (
	errFormat  = errors.New("it is in the format of another version")
	errDamaged = errors.New("it is damaged")
)

func newBlock() *stepBlock { return &stepBlock{steps: map[int]historyStep{}} }

// add adds counts to the step of that index.
func (b *stepBlock) add(index int, counted historyStep) {
	step := b.steps[index]
	if step == nil {
		step = historyStep{}
		b.steps[index] = step
	}
	for p, n := range counted {
		step.at(p).add(n)
	}
}

// at returns the numbers of the pair, and adds it if it is not there.
func (s historyStep) at(p seriesKey) *counts {
	if s[p] == nil {
		s[p] = new(counts)
	}
	return s[p]
}

// addAll adds all steps of another block of the same span.
func (b *stepBlock) addAll(other *stepBlock) {
	for i, step := range other.steps {
		b.add(i, step)
	}
}

// noteWrite notes the last write of the process.
func (b *stepBlock) noteWrite(id, number uint64) {
	b.writers = slices.DeleteFunc(b.writers, func(w blockWriter) bool { return w.id == id })
	b.writers = append(b.writers, blockWriter{id, number})
	b.writers = b.writers[max(0, len(b.writers)-maxWriters):]
}

// hasWrite reports whether the block has the write of the process.
func (b *stepBlock) hasWrite(id, number uint64) bool {
	return slices.ContainsFunc(b.writers, func(w blockWriter) bool { return w.id == id && w.write >= number })
}

// fold adds the pairs with the fewest calls to the zero pair, until the step has at most most series.
func (s historyStep) fold(most int) {
	named := make([]seriesKey, 0, len(s))
	for p := range s {
		if p != (seriesKey{}) {
			named = append(named, p)
		}
	}
	if len(s) <= most {
		return
	}
	slices.SortFunc(named, func(p, q seriesKey) int { return cmp.Or(s[q].compare(s[p]), p.compare(q)) })
	rest := s.at(seriesKey{})
	for _, p := range named[most-1:] {
		rest.add(s[p])
		delete(s, p)
	}
}

// compare compares by calls, then by what they cost. Lists count last, so that a client that asks for its list all the time hides no calls.
func (c *counts) compare(d *counts) int {
	return cmp.Or(cmp.Compare(c[numCalls], d[numCalls]), cmp.Compare(c[numSpent], d[numSpent]), cmp.Compare(c[numLists], d[numLists]))
}

func (p seriesKey) compare(q seriesKey) int {
	return cmp.Or(cmp.Compare(p.tenant, q.tenant), cmp.Compare(p.server, q.server))
}

// encode returns the block as the store keeps it. It folds steps with too many series, and more of them if the block is too long.
func (b *stepBlock) encode() []byte {
	for most := maxSeries; ; most = most * 3 / 4 {
		for _, step := range b.steps {
			step.fold(most)
		}
		if data := b.append(nil); len(data) <= maxBlock || most == 1 {
			return bytes.Clone(data) // without room to grow
		}
	}
}

func (b *stepBlock) append(dst []byte) []byte {
	dst = append(dst, blockFormat)
	dst = binary.AppendUvarint(dst, uint64(len(b.writers)))
	for _, w := range b.writers {
		dst = binary.AppendUvarint(binary.BigEndian.AppendUint64(dst, w.id), w.write)
	}
	index := map[seriesKey]uint64{}
	for _, step := range b.steps {
		for p := range step {
			index[p] = 0
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(index)))
	for i, p := range slices.SortedFunc(maps.Keys(index), seriesKey.compare) {
		index[p] = uint64(i) //nolint:gosec // it is not negative
		for _, name := range []string{string(p.tenant), string(p.server)} {
			dst = append(binary.AppendUvarint(dst, uint64(len(name))), name...)
		}
	}
	dst = binary.AppendUvarint(dst, uint64(len(b.steps)))
	for _, i := range slices.Sorted(maps.Keys(b.steps)) {
		step := b.steps[i]
		dst = binary.AppendUvarint(dst, uint64(i)) //nolint:gosec // it is not negative
		dst = binary.AppendUvarint(dst, uint64(len(step)))
		for _, p := range slices.SortedFunc(maps.Keys(step), seriesKey.compare) {
			dst = step[p].append(binary.AppendUvarint(dst, index[p]))
		}
	}
	return dst
}

func (c *counts) append(dst []byte) []byte {
	mask := uint64(0)
	for i, n := range c {
		if n > 0 {
			mask |= 1 << i
		}
	}
	dst = binary.AppendUvarint(dst, mask)
	for _, n := range c {
		if n > 0 {
			dst = binary.AppendUvarint(dst, min(n, maxNumber))
		}
	}
	return dst
}

// decodeBlock decodes a block; one of no bytes is empty. The error is errFormat or errDamaged.
func decodeBlock(data []byte) (*stepBlock, error) {
	if len(data) == 0 {
		return newBlock(), nil
	}
	if data[0] < 1 || data[0] > blockFormat {
		return nil, errFormat
	}
	if len(data) > maxBlock {
		return nil, errDamaged
	}
	b, r := newBlock(), &blockReader{rest: data[1:], format: data[0]}
	b.writers = r.writers()
	pairs := r.pairs()
	for range r.count(maxSteps) {
		index, step := r.count(maxSteps-1), historyStep{}
		for range r.count(maxSeries) {
			at := r.count(len(pairs))
			if at >= len(pairs) {
				return nil, errDamaged
			}
			c := r.counts()
			step[pairs[at]] = &c
		}
		b.steps[index] = step
	}
	if r.damaged || len(r.rest) > 0 {
		return nil, errDamaged
	}
	return b, nil
}

// openBlock returns the pairs of a block that decodes, and a reader at its steps. A block of no bytes has no steps.
func openBlock(data []byte) (*blockReader, []seriesKey) {
	if len(data) == 0 {
		return &blockReader{rest: []byte{0}, format: blockFormat}, nil
	}
	r := &blockReader{rest: data[1:], format: data[0]}
	_ = r.writers()
	return r, r.pairs()
}

// writers reads the writers.
func (r *blockReader) writers() (all []blockWriter) {
	for range r.count(maxWriters) {
		all = append(all, blockWriter{binary.BigEndian.Uint64(r.bytes(8)), r.number(1<<64 - 1)})
	}
	return all
}

// pairs reads the pairs.
func (r *blockReader) pairs() (all []seriesKey) {
	for range r.count(len(r.rest)) {
		tenant, server := string(r.bytes(r.count(maxName))), string(r.bytes(r.count(maxName)))
		all = append(all, seriesKey{switchboard.TenantID(tenant), switchboard.ServerID(server)})
	}
	return all
}

// maxSteps is the most steps of a block.
const maxSteps = 30

// A blockReader reads the parts of an encoded block. After it has found damage, it reads zeros.
type blockReader struct {
	rest    []byte
	format  byte
	damaged bool
}

// number reads a number up to most.
func (r *blockReader) number(most uint64) uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > most {
		r.damaged, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count reads a number of things up to most.
func (r *blockReader) count(most int) int {
	return int(r.number(uint64(most))) //nolint:gosec // it is at most most
}

// bytes reads n bytes.
func (r *blockReader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.damaged, r.rest = true, nil
		return make([]byte, n)
	}
	all := r.rest[:n]
	r.rest = r.rest[n:]
	return all
}

func (r *blockReader) counts() (c counts) {
	mask := r.number(1<<numbers - 1)
	for i := range numbers {
		if mask&(1<<i) == 0 {
			continue
		}
		at := i
		if r.format < 4 && i >= firstCode+codesBefore4 {
			at += len(refusalCodes) - codesBefore4
		}
		if at >= numbers {
			r.damaged, r.rest = true, nil
			return counts{}
		}
		c[at] = r.number(maxNumber)
	}
	return c
}

// skipCounts reads past the numbers of a pair.
func (r *blockReader) skipCounts() {
	left, end := bits.OnesCount64(r.number(1<<numbers-1)), 0
	for left > 0 && end < len(r.rest) { // a number ends with a byte below 0x80
		if r.rest[end] < 0x80 {
			left--
		}
		end++
	}
	r.rest, r.damaged = r.rest[end:], r.damaged || left > 0
}
