package capability

// A State is how an atom is, as far as its last probe says.
type State string

// The states. An atom that was never probed is Unknown.
const (
	Fresh   State = "fresh"
	Stale   State = "stale" // it was well, and the result is too old to count
	Red     State = "red"   // its last probe failed
	Unknown State = "unknown"
)

// States lists the states, the best first.
var States = []State{Fresh, Stale, Unknown, Red}
