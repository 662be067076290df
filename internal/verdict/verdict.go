// Package verdict says whether a capability may be used now. If it may not, the verdict gives the reasons, and the actions
// that help.
//
// The verdict is a pure function of the capability, the states of its atoms and the boundaries that fire: see Judge.
// Rego decides which boundaries fire (package policy/boundary). Probes find the states of atoms. Stage removes the tools of a
// capability with a red atom from a decision.
package verdict

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Name is one of the five verdicts.
type Name string

// The verdicts, the most permissive first.
const (
	Yes           Name = "yes"
	AfterProbe    Name = "yes-after-probe"
	AfterApproval Name = "yes-after-approval"
	No            Name = "no"
	Blocked       Name = "blocked-by-policy"
)

// Names lists the verdicts, the most permissive first.
var Names = []Name{Yes, AfterProbe, AfterApproval, No, Blocked}

// A Verdict says whether a capability may be used now. Equal inputs give equal bytes of JSON. No list is nil.
type Verdict struct {
	Capability string `json:"capability"` // ID@VERSION
	Verdict    Name   `json:"verdict"`

	// Blocking says why the capability may not be used: "ID: red" of an atom, "policy:ROW" of a boundary.
	Blocking []string `json:"blocking"`

	// Warnings stop no call.
	Warnings []string `json:"warnings"`

	// RequiredActions come before a call: "probe:ID" of an atom, "approval:WHO" of persons or roles.
	RequiredActions []string `json:"required_actions"`
}

// Block adds a reason why the capability may not be used.
func (v *Verdict) Block(why string) {
	v.Blocking = appendOnce(v.Blocking, why)
	if v.Verdict != Blocked {
		v.Verdict = No
	}
}

// An Effect is what a boundary that fires does.
type Effect string

// The effects.
const (
	Block Effect = "block" // no call is made
	Ask   Effect = "ask"   // a person must approve the call
	Warn  Effect = "warn"
)

// A Fired is a boundary that fires for a capability.
type Fired struct {
	Row    string   `json:"row"`
	Effect Effect   `json:"effect"`
	Text   string   `json:"text"` // the reason; "" means that the row says enough
	Who    []string `json:"who"`  // of Ask, sorted; none means everyone who may approve
	File   string   `json:"file"`
	Line   int      `json:"line"`
}

// Judge returns the verdict on a version of the registry. atoms holds the states of atoms; an atom that is not there is
// capability.Unknown. fired are the boundaries that fire for v, in any order.
func Judge(r *capability.Registry, v *capability.ContractVersion, atoms map[string]capability.State, fired []Fired) Verdict {
	j := judge{Verdict: Verdict{Capability: v.Name(), Blocking: []string{}, Warnings: []string{}, RequiredActions: []string{}}}
	needs := Needs(r, v)
	for _, what := range needs.Lacking {
		j.block(what)
	}
	for _, what := range needs.Deprecated {
		j.warn(what + ": deprecated")
	}
	for _, id := range needs.Atoms {
		j.addAtom(id, r.Atoms[id], atoms[id])
	}
	fired = slices.Clone(fired)
	slices.SortFunc(fired, func(a, b Fired) int {
		return cmp.Or(strings.Compare(a.Row, b.Row), strings.Compare(string(a.Effect), string(b.Effect)), strings.Compare(a.Text, b.Text))
	})
	blocked := false
	for _, f := range fired {
		name := "policy:" + f.Row
		if f.Text != "" {
			name += ": " + f.Text
		}
		switch f.Effect {
		case Warn:
			j.warn(name)
		case Ask:
			j.ask(f.Who)
		default: // Block, or an effect that is not known
			blocked = true
			j.block(name)
		}
	}
	if v.Facts.ApprovalAsked || len(v.Facts.Approval) > 0 {
		j.ask(v.Facts.Approval)
	}
	switch {
	case blocked:
		j.Verdict.Verdict = Blocked
	case len(j.Blocking) > 0:
		j.Verdict.Verdict = No
	case j.asks:
		j.Verdict.Verdict = AfterApproval
	case len(j.RequiredActions) > 0:
		j.Verdict.Verdict = AfterProbe
	default:
		j.Verdict.Verdict = Yes
	}
	return j.Verdict
}

// A judge builds a Verdict. An entry that stands in its list already is not added again.
type judge struct {
	Verdict
	asks bool // a person is asked
}

func (j *judge) block(s string) { j.Blocking = appendOnce(j.Blocking, s) }
func (j *judge) warn(s string)  { j.Warnings = appendOnce(j.Warnings, s) }
func (j *judge) act(s string)   { j.RequiredActions = appendOnce(j.RequiredActions, s) }

// ask adds the action to ask one of these persons or roles.
func (j *judge) ask(who []string) {
	j.asks = true
	if len(who) == 0 {
		who = []string{string(switchboard.OfficeApprover)}
	}
	who = slices.Sorted(slices.Values(who))
	j.act("approval:" + strings.Join(who, ","))
}

// addAtom adds what the state of an atom means. An atom without a probe stays unknown for good, so no probe is asked
// for: only critical atoms must have one.
func (j *judge) addAtom(id string, a *capability.Atom, s capability.State) {
	switch s {
	case capability.Fresh:
	case capability.Red:
		j.block(id + ": red")
	case capability.Stale:
		j.warn(id + ": stale")
		j.act("probe:" + id)
	default:
		j.warn(id + ": unknown")
		if mustBeKnown(a) {
			j.act("probe:" + id)
		}
	}
}

// mustBeKnown reports whether a capability may not be used while the state of its atom is unknown. a is nil if the registry has no
// such atom.
func mustBeKnown(a *capability.Atom) bool { return a == nil || a.Critical || !a.Probe.None() }

func appendOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// A Dependencies is what a version needs, itself and through the capabilities that it requires. The lists are sorted.
type Dependencies struct {
	Atoms []string // ids, each once

	// Lacking are the reasons why the version, or one that it requires, cannot be used.
	Lacking []string

	// Deprecated are the deprecated versions among them, as ID@VERSION.
	Deprecated []string

	// FreshFor is the smallest freshness budget of these versions; 0 means that none has one.
	FreshFor time.Duration
}

// Needs returns what a version needs. It visits each version of the registry at most once, so cycles do no harm.
func Needs(r *capability.Registry, v *capability.ContractVersion) (d Dependencies) {
	atoms, seen, next := map[string]bool{}, map[*capability.ContractVersion]bool{v: true}, []*capability.ContractVersion{v}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		switch at.Status {
		case capability.Active:
		case capability.Deprecated:
			d.Deprecated = appendOnce(d.Deprecated, at.Name())
		default:
			d.Lacking = appendOnce(d.Lacking, at.Name()+": "+cmp.Or(string(at.Status), "no status")+", not active")
		}
		if f := at.Facts.FreshFor; f > 0 && (d.FreshFor == 0 || f < d.FreshFor) {
			d.FreshFor = f
		}
		for _, id := range at.Atoms {
			if !atoms[id] {
				atoms[id] = true
				d.Atoms = append(d.Atoms, id)
			}
		}
		for _, ref := range at.Capabilities {
			switch found := r.Find(ref, nil); {
			case found == nil:
				d.Lacking = appendOnce(d.Lacking, ref.String()+": no active version")
			case !seen[found]:
				seen[found] = true
				next = append(next, found)
			}
		}
	}
	slices.Sort(d.Atoms)
	slices.Sort(d.Lacking)
	slices.Sort(d.Deprecated)
	return d
}
