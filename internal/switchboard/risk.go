package switchboard

import "slices"

// A RiskClass says how much a call of a tool can harm, as far as facts tell (package catalog). "" means that nobody knows.
type RiskClass string

// The classes, the lowest first.
const (
	RiskSafe       RiskClass = "safe"       // a trusted source says that it only reads, and nothing can leave by it
	RiskLow        RiskClass = "low"        // it only reads
	RiskMedium     RiskClass = "medium"     // it can be undone, or each call has a price
	RiskHigh       RiskClass = "high"       // it cannot be undone, or spends money, changes rights, writes to people or runs programs; or nobody says what it does
	RiskProhibited RiskClass = "prohibited" // the shipped rules of the phase admit keep it out
)

// RiskClasses lists the classes, the lowest first.
var RiskClasses = []RiskClass{RiskSafe, RiskLow, RiskMedium, RiskHigh, RiskProhibited}

// Or returns the higher one of two classes.
func (c RiskClass) Or(o RiskClass) RiskClass {
	if slices.Index(RiskClasses, o) > slices.Index(RiskClasses, c) {
		return o
	}
	return c
}
