package atom

import (
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/store"
)

const (
	// knownFor is how long a good result counts after this process last made sure that there is no newer one.
	knownFor = 5 * time.Second

	maxSkew      = time.Minute // by which the clock of another replica may be ahead, so that its results do not count for too long
	defaultFresh = time.Minute // for an atom with neither FreshFor nor Every
)

// An outcome is the result of the last probe of an atom.
type outcome struct {
	Well   bool      `json:"well"`
	At     time.Time `json:"at"`    // when the probe began
	Since  time.Time `json:"since"` // when the atom became well or red
	Reason string    `json:"reason,omitempty"`
	Failed int       `json:"failed,omitempty"` // probes in a row

	saved bool      // it is in the store
	ended time.Time // when the probe of this process ended; zero for a result that was read
}

// A knowledge is all that this process knows about the atoms of one registry. It is immutable.
type knowledge struct {
	atoms    map[string]*capability.Atom
	outcomes map[string]outcome
	servers  []*capability.Atom // those that a server's health decides
	read     time.Time          // when the last successful read of the store began

	replaced chan struct{} // is closed when there is a newer knowledge
}

// A serverHealth is what Options.Server has returned.
type serverHealth struct {
	why   string
	known bool
}

// A View is the state of all atoms at one instant. It is immutable, and safe for concurrent use. In the zero View all atoms are
// unknown.
type View struct {
	knowledge *knowledge
	now       time.Time
	servers   map[string]serverHealth // by atom
}

// View returns the state of all atoms at now. A decision takes it once.
func (p *Prober) View(now time.Time) View {
	v := View{knowledge: p.known.Load(), now: now}
	if len(v.knowledge.servers) == 0 || p.o.Server == nil {
		return v
	}
	v.servers = make(map[string]serverHealth, len(v.knowledge.servers))
	for _, a := range v.knowledge.servers {
		why, known := p.o.Server(a.Probe.Server)
		v.servers[a.ID] = serverHealth{why, known}
	}
	return v
}

// State returns the state of an atom. within is the freshness budget of the capability that requires the atom; 0 means that it has none.
func (v View) State(id string, within time.Duration) capability.State {
	if v.knowledge == nil {
		return capability.Unknown
	}
	a := v.knowledge.atoms[id]
	if a == nil {
		return capability.Unknown
	}
	if a.Probe.Server != "" {
		switch says := v.servers[id]; {
		case !says.known:
			return capability.Unknown
		case says.why != "":
			return capability.Red
		}
		return capability.Fresh
	}
	o, ok := v.knowledge.outcomes[id]
	age := v.now.Sub(o.At)
	switch {
	case !ok:
		return capability.Unknown
	case !o.Well:
		return capability.Red
	case v.now.Sub(v.knowledge.confirmed(&o)) > knownFor || age < -maxSkew:
		return capability.Unknown
	case age > freshFor(a, within):
		return capability.Stale
	}
	return capability.Fresh
}

// confirmed returns when this process last made sure that there is no newer result.
func (k *knowledge) confirmed(o *outcome) time.Time {
	if o.saved && k.read.After(o.ended) {
		return k.read
	}
	return o.ended
}

// freshFor returns how long a good result counts.
func freshFor(a *capability.Atom, within time.Duration) time.Duration {
	d := a.FreshFor
	if d == 0 {
		d = 2 * a.Every
	}
	if d == 0 {
		d = defaultFresh
	}
	if within > 0 {
		d = min(d, within)
	}
	return d
}

// States returns the states of the atoms. It is for the record of a decision.
func (v View) States(within time.Duration, ids ...string) map[string]capability.State {
	states := make(map[string]capability.State, len(ids))
	for _, id := range ids {
		states[id] = v.State(id, within)
	}
	return states
}

// StatesWithin returns the states of the atoms now, for a capability with this freshness budget; 0 means that it has none.
func (p *Prober) StatesWithin(within time.Duration, ids ...string) map[string]capability.State {
	return p.View(time.Now()).States(within, ids...)
}

// A Summary describes one atom for people.
type Summary struct {
	ID     string           `json:"id"`
	Kind   string           `json:"kind"`
	State  capability.State `json:"state"`
	Probed time.Time        `json:"probed,omitzero"` // when the last probe began
	Since  time.Time        `json:"since,omitzero"`  // when the atom became well or red
	Next   time.Time        `json:"next,omitzero"`   // the next probe; zero means only at a use
	Reason string           `json:"reason,omitempty"`
}

// Report describes all atoms, sorted by id. It contains no secrets.
func (p *Prober) Report(now time.Time) []Summary {
	v := p.View(now)
	k := v.knowledge
	next := p.nextProbes()
	all := make([]Summary, 0, len(k.atoms))
	for _, id := range slices.Sorted(maps.Keys(k.atoms)) {
		a, o := k.atoms[id], k.outcomes[id]
		s := Summary{ID: id, Kind: a.Kind, State: v.State(id, 0), Probed: o.At, Since: o.Since, Next: next[id], Reason: o.Reason}
		switch _, probed := k.outcomes[id]; {
		case a.Probe.None():
			s.Reason = "it has no probe"
		case a.Probe.Server != "":
			s.Reason = v.servers[id].why
		case !probed:
			s.Reason = "it was never probed"
		case s.State == capability.Unknown:
			s.Reason = "the store cannot be read, so another replica may know more"
		}
		all = append(all, s)
	}
	return all
}

// decodeOutcome returns the result in a value of the store; false if there is none that can be read.
func decodeOutcome(v *store.Value) (o outcome, ok bool) {
	return o, v.Version != 0 && decode(v.Data, &o) && !o.At.IsZero()
}
