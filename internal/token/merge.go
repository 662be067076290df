package token

import "slices"

// A merger takes pieces apart into tokens. It keeps its memory from one piece to
// the next, and is for one goroutine.
type merger struct {
	words *vocabulary
	parts []part
	queue []uint64
}

// A part is a stretch of a piece, from its place to that of the next.
type part struct {
	prev, next int32  // places of its neighbours
	rank       uint32 // of it together with the next one
}

// count returns of how many tokens the piece is made: beginning with single bytes,
// the two neighbours of the lowest rank are merged, the leftmost first, until none
// are a token. A queue finds them, so that a long piece takes n*log(n).
func (m *merger) count(piece []byte) int {
	if len(piece) == 1 || m.words.rank(piece) != noRank {
		return 1 // every byte is a token
	}
	n := int32(len(piece))
	m.parts, m.queue = slices.Grow(m.parts[:0], len(piece)), slices.Grow(m.queue[:0], len(piece))
	for i := range n {
		m.parts = append(m.parts, part{prev: i - 1, next: i + 1})
	}
	for i := range n {
		if key, ok := m.pair(piece, i); ok {
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
		if p.rank != uint32(m.queue[0]>>32) { // one of the two was merged meanwhile
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
		if key, ok := m.pair(piece, at); ok {
			m.queue[0] = key
			m.sink(0)
		} else {
			m.pop()
		}
		if p.prev >= 0 {
			if key, ok := m.pair(piece, p.prev); ok {
				m.push(key)
			}
		}
	}
	return tokens
}

// pair notes the rank of the part together with the next one. If that is a token, it
// returns what orders it in the queue: by rank, then by place.
func (m *merger) pair(piece []byte, at int32) (key uint64, ok bool) {
	p := &m.parts[at]
	p.rank = noRank
	if int(p.next) < len(piece) {
		p.rank = m.words.rank(piece[at:m.parts[p.next].next])
	}
	return uint64(p.rank)<<32 | uint64(at), p.rank != noRank
}

// The queue is a heap: the least is first, and that at i is not above those at
// 2i+1 and 2i+2.

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

// sink puts the key at i below those that are less.
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
