// Package ranking puts candidates in a tenant's order: the stage rank.
//
// The servers that the first fitting row of Ranking.Prefer names come first, in
// its order. The others follow by score, highest first: what the tenant gives
// the server's class (nothing: 0) plus By of every adjust row whose pattern
// matches the server. Of equal scores, servers that the operator trusts come first; then
// the server's id decides, and of a server's tools their names, both compared as bytes. So a server's tools
// stay together, and the order is total: nothing is left to chance.
//
// A prefer row fits a requirement of just its verb and resource; it says nothing
// of the resource's parent or children, nor of tools that are required by name.
package ranking

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Rank is the stage for one tenant and what its servers offer. All that does
// not depend on the requirement is found out when it is made. It is safe for
// concurrent use.
type Rank struct {
	// servers are all servers in the order that no preference changes, and at
	// says where in it a server is.
	servers []server
	at      map[switchboard.ServerID]int
	of      []int // the same, by decide.Candidate.Index

	prefer []prefer
	pool   sync.Pool // of *workspace
}

type server struct {
	id      switchboard.ServerID
	score   int
	trusted bool // trust: operator
}

// prefer is a row with its servers as places in Rank.servers.
type prefer struct {
	verb     switchboard.Verb
	resource switchboard.Resource
	servers  []preferred
}

type preferred struct {
	server int
	place  int32
}

// New returns the stage that orders by r. The tools are all that can be
// candidates; what counts of them is the server, its class and its trust, of which the
// tools of one server have the same.
func New(r switchboard.Ranking, tools []*switchboard.Tool) *Rank {
	k := &Rank{at: map[switchboard.ServerID]int{}}
	for _, t := range tools {
		if _, ok := k.at[t.ID.Server]; !ok {
			k.at[t.ID.Server] = 0
			k.servers = append(k.servers, server{t.ID.Server, score(r, t), t.Trust == switchboard.TrustOperator})
		}
	}
	slices.SortFunc(k.servers, func(a, b server) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		case a.trusted != b.trusted:
			if a.trusted {
				return -1
			}
			return 1
		default:
			return strings.Compare(string(a.id), string(b.id))
		}
	})
	for i, s := range k.servers {
		k.at[s.id] = i
	}
	k.of = make([]int, len(tools))
	for i, t := range slices.SortedFunc(slices.Values(tools), func(a, b *switchboard.Tool) int { return a.ID.Compare(b.ID) }) {
		k.of[i] = k.at[t.ID.Server]
	}
	for _, row := range r.Prefer {
		p := prefer{verb: row.Verb, resource: row.Resource}
		for i, id := range row.Servers {
			if at, ok := k.at[id]; ok && !slices.ContainsFunc(p.servers, func(o preferred) bool { return o.server == at }) {
				p.servers = append(p.servers, preferred{at, int32(i + 1)})
			}
		}
		k.prefer = append(k.prefer, p)
	}
	k.pool.New = func() any {
		return &workspace{present: make([]uint64, (len(k.servers)+63)/64), runs: make([]run, len(k.servers))}
	}
	return k
}

func score(r switchboard.Ranking, t *switchboard.Tool) int {
	n := r.Classes[t.Class]
	for _, a := range r.Adjust {
		if switchboard.MatchPattern(a.Server, string(t.ID.Server)) {
			n += a.By
		}
	}
	return n
}

// workspace is what one ordering works in.
type workspace struct {
	present []uint64 // a bit for each server that has candidates
	runs    []run    // where they are, for those
	out     []decide.Candidate
}

// run is a server's candidates: in[from:to].
type run struct{ from, to int }

// Name implements decide.Stage.
func (*Rank) Name() string { return "rank" }

// Apply implements decide.Stage. It drops nothing.
func (k *Rank) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, _ decide.Drop) ([]decide.Candidate, error) {
	w := k.pool.Get().(*workspace)
	defer k.pool.Put(w)
	clear(w.present)
	if err := k.find(w, in); err != nil {
		return nil, err
	}
	// Servers, not candidates, are put in order: there are fewer of them, and
	// their order is known, so that it is enough to walk through the set.
	w.out = w.out[:0]
	for _, p := range k.preferred(q.Requirement) {
		word, bit := &w.present[p.server/64], uint64(1)<<(p.server%64)
		if *word&bit != 0 {
			*word &^= bit
			k.emit(w, in, p.server, p.place)
		}
	}
	for i, word := range w.present {
		for ; word != 0; word &= word - 1 {
			k.emit(w, in, i*64+bits.TrailingZeros64(word), 0)
		}
	}
	copy(in, w.out)
	return in, nil
}

// find notes which servers have candidates, and where. Until they are ranked,
// candidates come in the order of their ids; if they do not, they are put so.
func (k *Rank) find(w *workspace, in []decide.Candidate) error {
	if k.findByIndex(w, in) {
		return nil
	}
	clear(w.present)
	slices.SortFunc(in, func(a, b decide.Candidate) int { return a.Tool.ID.Compare(b.Tool.ID) })
	for from := 0; from < len(in); {
		id := in[from].Tool.ID.Server
		to := from + 1
		for to < len(in) && in[to].Tool.ID.Server == id {
			to++
		}
		at, ok := k.at[id]
		if !ok {
			return fmt.Errorf("server %s has a candidate, and was not among the servers to be ranked", id)
		}
		w.note(at, from, to)
		from = to
	}
	return nil
}

// findByIndex is find without a look at the tools but for the first of each
// server. It gives up when the indexes are not in order, or not of our tools.
func (k *Rank) findByIndex(w *workspace, in []decide.Candidate) bool {
	next := int32(0) // the least that an index may be
	for from := 0; from < len(in); {
		first := in[from].Index
		if first < next || int(first) >= len(k.of) {
			return false
		}
		at := k.of[first]
		if k.servers[at].id != in[from].Tool.ID.Server {
			return false
		}
		to := from
		for to < len(in) {
			i := in[to].Index
			if i < next || int(i) >= len(k.of) {
				return false
			}
			if k.of[i] != at {
				break
			}
			next = i + 1
			to++
		}
		w.note(at, from, to)
		from = to
	}
	return true
}

func (w *workspace) note(server, from, to int) {
	w.present[server/64] |= 1 << (server % 64)
	w.runs[server] = run{from, to}
}

// preferred returns the servers of the first row that fits r.
func (k *Rank) preferred(r *switchboard.Requirement) []preferred {
	if r.ByName() {
		return nil
	}
	for i := range k.prefer {
		if p := &k.prefer[i]; p.verb == r.Verb && p.resource == r.Resource {
			return p.servers
		}
	}
	return nil
}

// emit appends the server's candidates, as they are placed.
func (k *Rank) emit(w *workspace, in []decide.Candidate, server int, place int32) {
	n := len(w.out)
	r := w.runs[server]
	w.out = append(w.out, in[r.from:r.to]...)
	for i := n; i < len(w.out); i++ {
		w.out[i].Score, w.out[i].Place = k.servers[server].score, place
	}
}
