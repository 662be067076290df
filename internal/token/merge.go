package token

import "slices"

// A merger splits pieces into tokens. It reuses its memory from one piece to the next. Only one goroutine may use it.
type merger struct {
	vocabulary *vocabulary
	parts      []piecePart
	queue      []uint64
}

// A piecePart is a section of a piece. It begins at its own index in parts, which is its offset in the piece, and ends where
// the next part begins.
type piecePart struct {
	prev, next int32  // offsets of its neighbours
	rank       uint32 // the rank of this part joined with the next one
}

// countTokens returns the number of tokens in the piece. It starts with single bytes and merges the neighbours with the
// lowest rank, leftmost first, until no two neighbours form a token. A heap finds the next pair, so that a piece of n
// bytes takes n*log(n) steps.
func (m *merger) countTokens(piece []byte) int {
	if len(piece) == 1 || m.vocabulary.rankOf(piece) != noRank {
		return 1 // every single byte is a token
	}
	n := int32(len(piece))
	m.parts, m.queue = slices.Grow(m.parts[:0], len(piece)), slices.Grow(m.queue[:0], len(piece))
	for i := range n {
		m.parts = append(m.parts, piecePart{prev: i - 1, next: i + 1})
	}
	for i := range n {
		if key, ok := m.updateRank(piece, i); ok {
			m.queue = append(m.queue, key)
		}
	}
	for i := len(m.queue)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	tokens := len(piece)
	for len(m.queue) > 0 {
		at := int32(uint32(m.queue[0]))
		p := &m.parts[at]
		if p.rank != uint32(m.queue[0]>>32) { // one of the two parts was merged in the meantime
			m.pop()
			continue
		}
		gone := p.next
		p.next = m.parts[gone].next
		if p.next < n {
			m.parts[p.next].prev = at
		}
		m.parts[gone].rank = noRank
		tokens--
		if key, ok := m.updateRank(piece, at); ok {
			m.queue[0] = key
			m.sink(0)
		} else {
			m.pop()
		}
		if p.prev >= 0 {
			if key, ok := m.updateRank(piece, p.prev); ok {
				m.push(key)
			}
		}
	}
	return tokens
}

// updateRank stores the rank of the part at the offset at, joined with the next part. If the two form a token, pair returns
// their key in the queue, which sorts by rank, then by offset.
func (m *merger) updateRank(piece []byte, at int32) (key uint64, ok bool) {
	p := &m.parts[at]
	p.rank = noRank
	if int(p.next) < len(piece) {
		p.rank = m.vocabulary.rankOf(piece[at:m.parts[p.next].next])
	}
	return uint64(p.rank)<<32 | uint64(at), p.rank != noRank
}

// The queue is a binary heap with the smallest key first: the key at i is not greater than those at 2i+1 and 2i+2.

func (m *merger) push(key uint64) {
	m.queue = append(m.queue, key)
	q, i := m.queue, len(m.queue)-1
	for up := (i - 1) / 2; i > 0 && key < q[up]; up = (i - 1) / 2 {
		q[i], i = q[up], up
	}
	q[i] = key
}

func (m *merger) pop() {
	last := len(m.queue) - 1
	m.queue[0], m.queue = m.queue[last], m.queue[:last]
	if last > 0 {
		m.sink(0)
	}
}

// sink moves the key at i down, below the smaller keys.
func (m *merger) sink(i int) {
	q, key := m.queue, m.queue[i]
	for {
		child := 2*i + 1
		if child+1 < len(q) && q[child+1] < q[child] {
			child++
		}
		if child >= len(q) || key < q[child] {
			break
		}
		q[i], i = q[child], child
	}
	q[i] = key
}
