package switchboard

// Micros is an amount of money, in millionths of the installation's currency.
type Micros int64

// MaxMicros is the largest price, limit and sum.
const MaxMicros Micros = 1 << 50

// A Price is what calls of a tool cost, as configured. The zero Price costs nothing.
type Price struct {
	Call Micros `json:",omitzero"` // of each call

	// Each are what the elements of arguments cost in addition, sorted by pointer.
	Each []ElementPrice `json:",omitempty"`

	// Most is the most that one call may cost; 0 means no bound.
	Most Micros `json:",omitzero"`

	// Reported says that the server states the cost in its result, up to Most.
	Reported bool `json:",omitzero"`
}

// An ElementPrice is what each element of one argument costs.
type ElementPrice struct {
	Pointer string // a JSON Pointer (RFC 6901) into the arguments, which leads to a list
	Micros  Micros
}

// Free reports whether calls cost nothing.
func (p *Price) Free() bool { return p.Call == 0 && len(p.Each) == 0 && p.Most == 0 }

// A Yes is a person's approval of one call. It may be used once.
type Yes struct {
	Request  string // the id of the request that was approved
	Standing string // the id of the standing yes; "" if a person has approved this one call

	// Memory belongs to package approval.
	Memory any
}
