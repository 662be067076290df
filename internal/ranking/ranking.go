// Package ranking puts candidates in a tenant's order. This is the stage rank.
//
// The servers in the first row of Ranking.Prefer that fits the requirement come first, in the row's order. The others
// follow by score, highest first. A server's score is the tenant's score for the server's class (0 if none is set),
// plus By of every adjust row with a matching pattern. If scores are equal, servers that the operator trusts come
// first, and then the smaller server id. The tools of one server follow each other in the order of their names. Ids and
// names are compared as bytes. So the tools of a server stay together, and the order is total: nothing is left to
// chance.
//
// A prefer row fits only a requirement with exactly its verb and resource. It does not apply to the resource's parent
// or children, nor to tools required by name.
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

// A Rank is the stage for one tenant and the offers of its servers. New computes everything that does not depend on the
// requirement. A Rank is safe for concurrent use.
type Rank struct {
	// servers lists all servers in the order without preferences. at maps a server to its index in servers.
	servers       []rankedServer
	indexOfServer map[switchboard.ServerID]int

	preferRows []preferRow
	pool       sync.Pool // of *workspace
}

type rankedServer struct {
	id      switchboard.ServerID
	score   int
	trusted bool // trust: operator
}

// preferRow is a row of Ranking.Prefer, with its servers as indexes in Rank.servers.
type preferRow struct {
	verb     switchboard.Verb
	resource switchboard.Resource
	servers  []preferredServer
}

type preferredServer struct {
	server int
	place  int32
}

// New returns the stage that orders by r. tools are all possible candidates. Only their server, its class and its trust
// matter; all tools of one server have the same class and trust.
func New(r switchboard.Ranking, tools []*switchboard.Tool) *Rank {
	k := &Rank{indexOfServer: map[switchboard.ServerID]int{}}
	for _, t := range tools {
		if _, ok := k.indexOfServer[t.ID.Server]; !ok {
			k.indexOfServer[t.ID.Server] = 0
			k.servers = append(k.servers, rankedServer{t.ID.Server, serverScore(r, t), t.Trust == switchboard.TrustOperator})
		}
	}
	slices.SortFunc(k.servers, func(a, b rankedServer) int {
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
		k.indexOfServer[s.id] = i
	}
	for _, row := range r.Prefer {
		p := preferRow{verb: row.Verb, resource: row.Resource}
		for i, id := range row.Servers {
			if at, ok := k.indexOfServer[id]; ok && !slices.ContainsFunc(p.servers, func(o preferredServer) bool { return o.server == at }) {
				p.servers = append(p.servers, preferredServer{at, int32(i + 1)})
			}
		}
		k.preferRows = append(k.preferRows, p)
	}
	k.pool.New = func() any {
		return &workspace{present: make([]uint64, (len(k.servers)+63)/64), ranges: make([]candidateRange, len(k.servers))}
	}
	return k
}

func serverScore(r switchboard.Ranking, t *switchboard.Tool) int {
	n := r.Classes[t.Class]
	for _, a := range r.Adjust {
		if switchboard.MatchPattern(a.Server, string(t.ID.Server)) {
			n += a.By
		}
	}
	return n
}

// workspace is the working memory of one ordering.
type workspace struct {
	present []uint64         // one bit for each server that has candidates
	ranges  []candidateRange // the candidates of each such server
	out     []decide.Candidate
}

// candidateRange is the candidates of one server: in[from:to].
type candidateRange struct{ from, to int }

// Name implements decide.Stage.
func (*Rank) Name() string { return "rank" }

// Apply implements decide.Stage. It drops nothing.
func (k *Rank) Apply(_ context.Context, q *decide.Question, in []decide.Candidate, _ decide.Drop) ([]decide.Candidate, error) {
	w := k.pool.Get().(*workspace)
	defer k.pool.Put(w)
	clear(w.present)
	if err := k.findServers(w, in); err != nil {
		return nil, err
	}
	// Order servers, not candidates: there are fewer of them, and their order is known, so that a walk through the set
	// is enough.
	w.out = w.out[:0]
	for _, p := range k.preferredServers(q.Requirement) {
		word, bit := &w.present[p.server/64], uint64(1)<<(p.server%64)
		if *word&bit != 0 {
			*word &^= bit
			k.appendCandidates(w, in, p.server, p.place)
		}
	}
	for i, word := range w.present {
		for ; word != 0; word &= word - 1 {
			k.appendCandidates(w, in, i*64+bits.TrailingZeros64(word), 0)
		}
	}
	copy(in, w.out)
	return in, nil
}

// findServers records which servers have candidates, and where. Before ranking, candidates are in the order of their
// ids; if they are not, findServers sorts them.
func (k *Rank) findServers(w *workspace, in []decide.Candidate) error {
	compare := func(a, b decide.Candidate) int { return a.Tool.Key().Compare(b.Tool.Key()) }
	if !slices.IsSortedFunc(in, compare) {
		slices.SortFunc(in, compare)
	}
	for from := 0; from < len(in); {
		id := in[from].Tool.ID.Server
		to := from + 1
		for to < len(in) && in[to].Tool.ID.Server == id {
			to++
		}
		at, ok := k.indexOfServer[id]
		if !ok {
			return fmt.Errorf("server %s has a candidate, and was not among the servers to be ranked", id)
		}
		w.recordRange(at, from, to)
		from = to
	}
	return nil
}

func (w *workspace) recordRange(server, from, to int) {
	w.present[server/64] |= 1 << (server % 64)
	w.ranges[server] = candidateRange{from, to}
}

// preferredServers returns the servers of the first row that fits r.
func (k *Rank) preferredServers(r *switchboard.Requirement) []preferredServer {
	if r.ByName() {
		return nil
	}
	for i := range k.preferRows {
		if p := &k.preferRows[i]; p.verb == r.Verb && p.resource == r.Resource {
			return p.servers
		}
	}
	return nil
}

// appendCandidates appends the server's candidates to w.out, with their place and score.
func (k *Rank) appendCandidates(w *workspace, in []decide.Candidate, server int, place int32) {
	n := len(w.out)
	r := w.ranges[server]
	w.out = append(w.out, in[r.from:r.to]...)
	for i := n; i < len(w.out); i++ {
		w.out[i].Score, w.out[i].Place = k.servers[server].score, place
	}
}
