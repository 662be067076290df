package contract

import (
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MayStandIn reports whether the tool now may serve a call of a client that was shown another tool, without a note to
// the client. The caller has checked that both serve the same requirement. The conditions are:
//
//   - now has the name of the other tool, or is its declared equivalent without a change of arguments,
//   - now provably accepts every argument that shown accepted,
//   - every result of now provably fits the output schema of shown, if it had one, and
//   - no annotation of now is freer: it does not write, destroy or reach further than shown said.
//
// The answer depends only on the two definitions and on the declarations, never on time.
func (s *Set) MayStandIn(now, shown *switchboard.Tool) bool {
	if now.Key().Name != shown.Key().Name && !s.declaredSame(shown.Key(), now.Key()) {
		return false
	}
	if now.Digest == "" || shown.Digest == "" {
		return covers(now.Definition, shown.Definition)
	}
	return now.Digest == shown.Digest || provenPairs.covers(now, shown)
}

// declaredSame reports whether an overlay declares one tool as the equivalent of the other with the same arguments.
func (s *Set) declaredSame(from, to switchboard.ToolID) bool {
	for ; s != nil; s = s.operatorSet {
		m := s.move(from, to)
		if m == nil || len(m.faults) > 0 {
			continue
		}
		if d := m.declared; len(d.Map)+len(d.Constants)+len(d.Defaults)+len(d.Drop) == 0 {
			return true
		}
	}
	return false
}

// maxProven limits how many answers are kept.
const maxProven = 4096

// maxProvenBytes limits a definition that a proof reads. Decoding a larger one could take longer than a call may wait.
const maxProvenBytes = 64 << 10

// provenPairs holds the answers of covers, by the digests of both definitions.
var provenPairs = proofAnswers{of: map[[2]switchboard.Digest]*proofAnswer{}}

type proofAnswers struct {
	sync.Mutex
	of map[[2]switchboard.Digest]*proofAnswer
}

// A proofAnswer is computed once, even if several goroutines need it at the same time.
type proofAnswer struct {
	once sync.Once
	yes  bool
}

func (a *proofAnswers) covers(now, shown *switchboard.Tool) bool {
	key := [2]switchboard.Digest{now.Digest, shown.Digest}
	a.Lock()
	one := a.of[key]
	if one == nil {
		if len(a.of) >= maxProven {
			clear(a.of)
		}
		one = &proofAnswer{}
		a.of[key] = one
	}
	a.Unlock()
	one.once.Do(func() { one.yes = covers(now.Definition, shown.Definition) })
	return one.yes
}

// covers reports whether the definition now provably accepts, returns and promises what shown did.
func covers(now, shown []byte) bool {
	if len(now) > maxProvenBytes || len(shown) > maxProvenBytes || AllowsMore(now, shown) {
		return false
	}
	takes, ok := schemaOf(now, input)
	if !ok {
		return false
	}
	took, ok := schemaOf(shown, input)
	if !ok || !acceptsAll(takes, took) {
		return false
	}
	if _, promised := wire.Field(shown, output); !promised {
		return true
	}
	gave, ok := schemaOf(shown, output)
	if !ok {
		return false
	}
	gives, ok := schemaOf(now, output)
	return ok && acceptsAll(gave, gives)
}

func schemaOf(definition []byte, member string) (schema any, ok bool) {
	raw, ok := wire.Field(definition, member)
	if !ok {
		return nil, false
	}
	if _, err := compile(raw); err != nil {
		return nil, false // an invalid schema proves nothing
	}
	schema, err := decode(raw)
	return schema, err == nil
}

// toolHints are the annotations of a tool about its calls. A missing annotation has the specification's default, which is
// the worst case.
type toolHints struct{ reads, destroys, repeats, reaches bool }

func hintsOf(definition []byte) toolHints {
	annotations, _ := wire.Field(definition, "annotations")
	says := func(name string, otherwise bool) bool {
		switch raw, _ := wire.Field(annotations, name); string(raw) {
		case "true":
			return true
		case "false":
			return false
		}
		return otherwise
	}
	h := toolHints{
		reads: says("readOnlyHint", false), destroys: says("destructiveHint", true),
		repeats: says("idempotentHint", false), reaches: says("openWorldHint", true),
	}
	if h.reads { // a tool that does not write destroys nothing
		h.destroys, h.repeats = false, true
	}
	return h
}

// AllowsMore reports whether an annotation of the definition now allows more than the same annotation of shown. A missing annotation has the specification's
// default, which is the worst case.
func AllowsMore(now, shown []byte) bool {
	n, s := hintsOf(now), hintsOf(shown)
	return s.reads && !n.reads || !s.destroys && n.destroys || s.repeats && !n.repeats || !s.reaches && n.reaches
}
