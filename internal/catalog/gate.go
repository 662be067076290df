package catalog

import (
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ToolGate says which tools the operator's rules keep out, although pins let them in. Its answers must depend on the rules and on the tools alone. It is safe for concurrent use.
type ToolGate interface {
	// Key changes whenever an answer may change.
	Key() switchboard.Digest

	// KeepOut returns for each tool why it is kept out; "" if it is not. failed is set where that could not be decided; nil if it was decided for all tools.
	KeepOut(tools []*switchboard.Tool) (why []string, failed []error)
}

// A gateAnswers are the answers of a gate about the tools of one server. A tool that has not changed is not asked about again.
type gateAnswers struct {
	key       switchboard.Digest // of the gate; "" if there is none
	why       map[uint64]string  // by a hash of everything that the gate reads of a tool
	undecided bool               // a question must be asked again
}

// knownAnswers returns the answers that were given before under the key. v may be nil.
func (v *serverState) knownAnswers(key switchboard.Digest) map[uint64]string {
	if v == nil || v.gated.key != key {
		return nil
	}
	return v.gated.why
}

// keepOut asks the gate about the tools that pins let in, and takes out those that are kept out. Where the gate fails, it takes out what no person has let in.
func (v *serverState) keepOut(g ToolGate) {
	v.gated = gateAnswers{}
	if g == nil {
		return
	}
	v.gated = gateAnswers{key: g.Key(), why: map[uint64]string{}}
	known := v.previous.knownAnswers(v.gated.key)
	var asked []*switchboard.Tool
	var hashes []uint64
	var buf []byte
	for _, e := range v.tools {
		if !isLetIn(e.tool) {
			continue
		}
		buf = appendTool(buf[:0], e.tool)
		if b := e.tool.Budget; b != nil {
			buf = fmt.Appendf(buf, "budget;%+v", *b)
		}
		h := maphash.Bytes(hashSeed, buf)
		if why, ok := known[h]; ok {
			v.answer(e.tool, h, why)
			continue
		}
		asked, hashes = append(asked, e.tool), append(hashes, h)
	}
	if len(asked) == 0 {
		return
	}
	why, failed := g.KeepOut(asked)
	for i, t := range asked {
		if failed == nil || failed[i] == nil {
			v.answer(t, hashes[i], why[i])
			continue
		}
		v.gated.undecided = true
		takeOutUndecided(t, failed[i])
	}
}

// isLetIn reports whether pins let the tool in.
func isLetIn(t *switchboard.Tool) bool {
	a := t.Admission
	return a == nil || a.State == switchboard.LifeActive || a.State == switchboard.LifeDeprecated || a.State == switchboard.LifeTesting
}

// Behind returns tools of an earlier snapshot as they would be behind the gate, whatever gate they were behind. nil keeps nothing out. Tools that would be the same are returned
// themselves.
func Behind(g ToolGate, tools []*switchboard.Tool) []*switchboard.Tool {
	all, free := slices.Clone(tools), make([]*switchboard.Tool, 0, len(tools))
	var at []int // the indexes of free
	for i, t := range tools {
		if a := t.Admission; a != nil && a.KeptOut {
			own := *t
			own.Admission = nil
			if a.Otherwise != "" && a.Otherwise != switchboard.LifeActive {
				own.Admission = &switchboard.Admission{State: a.Otherwise, Why: "so it was, but for the operator's rules"}
			}
			all[i] = &own
		}
		if isLetIn(all[i]) {
			free, at = append(free, all[i]), append(at, i)
		}
	}
	if g == nil || len(free) == 0 {
		return all
	}
	why, failed := g.KeepOut(free)
	for j, t := range free {
		own := *t
		switch {
		case failed != nil && failed[j] != nil:
			takeOutUndecided(&own, failed[j])
		case why[j] != "":
			takeOut(&own, keptOutBy(why[j]))
		}
		switch was := tools[at[j]].Admission; {
		case own.Admission == t.Admission: // it stays
		case was != nil && was.KeptOut && was.Why == own.Admission.Why:
			all[at[j]] = tools[at[j]]
		default:
			all[at[j]] = &own
		}
	}
	return all
}

// takeOutUndecided takes a tool out if no person has let it in.
func takeOutUndecided(t *switchboard.Tool, err error) {
	if t.Evidence == nil || !t.Evidence.Person {
		takeOut(t, "no person has let it in, and the operator's rules for that could not be evaluated: "+err.Error())
	}
}

func keptOutBy(why string) string { return "the operator's rules keep it out: " + why }

// answer remembers an answer, and carries it out.
func (v *serverState) answer(t *switchboard.Tool, hash uint64, why string) {
	v.gated.why[hash] = why
	if why != "" {
		takeOut(t, keptOutBy(why))
	}
}

// takeOut takes a tool out that the catalog has just made.
func takeOut(t *switchboard.Tool, why string) {
	otherwise := switchboard.LifeActive
	if t.Admission != nil {
		otherwise = t.Admission.State
	}
	t.Admission = &switchboard.Admission{State: switchboard.LifeNew, Why: why, KeptOut: true, Otherwise: otherwise}
}

// Undecided reports whether the gate could not decide about some tools, so that it must be asked again.
func (s *Snapshot) Undecided() bool {
	for _, v := range s.servers {
		if v.gated.undecided {
			return true
		}
	}
	return false
}
