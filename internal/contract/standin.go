package contract

import (
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MayStandIn reports whether a client that was shown one tool may have its calls served by the
// tool now, without being told. The caller has checked that both serve the same requirement. It
// holds if
//
//   - now has the name of the other tool, or is its declared equivalent without a change of arguments,
//   - now provably accepts every argument that shown accepted,
//   - every result of now provably fits the output schema of shown, if it had one, and
//   - no annotation of now is freer: it does not write, destroy or reach further than shown said.
//
// The answer depends on the two definitions and on what is declared, never on time.
func (s *Set) MayStandIn(now, shown *switchboard.Tool) bool {
	if now.ID.Name != shown.ID.Name && !s.declaredSame(shown.ID, now.ID) {
		return false
	}
	if now.Digest == "" || shown.Digest == "" {
		return covers(now.Definition, shown.Definition)
	}
	return now.Digest == shown.Digest || proven.ask(now, shown)
}

// declaredSame reports whether an overlay declares one tool as the equivalent of the other with the
// same arguments.
func (s *Set) declaredSame(from, to switchboard.ToolID) bool {
	for ; s != nil; s = s.above {
		m := s.move(from, to)
		if m == nil || len(m.wrong) > 0 {
			continue
		}
		if d := m.declared; len(d.Map)+len(d.Constants)+len(d.Defaults)+len(d.Drop) == 0 {
			return true
		}
	}
	return false
}

// maxProven is how many answers are kept.
const maxProven = 4096

// maxProvenBytes bounds a definition that a proof reads: to decode a larger one could take longer than a call may wait.
const maxProvenBytes = 64 << 10

// proven has the answers of covers by the digests of both definitions.
var proven = answers{of: map[[2]switchboard.Digest]*answer{}}

type answers struct {
	sync.Mutex
	of map[[2]switchboard.Digest]*answer
}

// An answer is found once, though many ask for it at the same time.
type answer struct {
	once sync.Once
	yes  bool
}

func (a *answers) ask(now, shown *switchboard.Tool) bool {
	key := [2]switchboard.Digest{now.Digest, shown.Digest}
	a.Lock()
	one := a.of[key]
	if one == nil {
		if len(a.of) >= maxProven {
			clear(a.of)
		}
		one = &answer{}
		a.of[key] = one
	}
	a.Unlock()
	one.once.Do(func() { one.yes = covers(now.Definition, shown.Definition) })
	return one.yes
}

// covers reports whether the definition now provably takes, gives and promises what shown did.
func covers(now, shown []byte) bool {
	if len(now) > maxProvenBytes || len(shown) > maxProvenBytes || freer(now, shown) {
		return false
	}
	takes, ok := schemaOf(now, input)
	if !ok {
		return false
	}
	took, ok := schemaOf(shown, input)
	if !ok || !accepts(takes, took) {
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
	return ok && accepts(gave, gives)
}

func schemaOf(definition []byte, member string) (schema any, ok bool) {
	raw, ok := wire.Field(definition, member)
	if !ok {
		return nil, false
	}
	if _, err := compile(raw); err != nil {
		return nil, false // nobody knows what it accepts
	}
	schema, err := decode(raw)
	return schema, err == nil
}

// hints are what the annotations of a tool say of its calls. Absent ones have the
// specification's defaults, which are the worst case.
type hints struct{ reads, destroys, repeats, reaches bool }

func hintsOf(definition []byte) hints {
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
	h := hints{
		reads: says("readOnlyHint", false), destroys: says("destructiveHint", true),
		repeats: says("idempotentHint", false), reaches: says("openWorldHint", true),
	}
	if h.reads { // what does not write destroys nothing
		h.destroys, h.repeats = false, true
	}
	return h
}

// freer reports whether a hint of now allows more than the same hint of shown.
func freer(now, shown []byte) bool {
	n, s := hintsOf(now), hintsOf(shown)
	return s.reads && !n.reads || !s.destroys && n.destroys || s.repeats && !n.repeats || !s.reaches && n.reaches
}
