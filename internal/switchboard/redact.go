package switchboard

import "slices"

// A Detector finds one kind of data in results, so that it can be redacted.
type Detector string

// The detectors.
const (
	DetectCard   Detector = "card"   // numbers of payment cards
	DetectEmail  Detector = "email"  // e-mail addresses
	DetectIBAN   Detector = "iban"   // numbers of bank accounts
	DetectIP     Detector = "ip"     // network addresses, IPv4 and IPv6
	DetectPhone  Detector = "phone"  // phone numbers
	DetectSecret Detector = "secret" // credentials
)

// Detectors lists all detectors, sorted as bytes.
var Detectors = []Detector{DetectCard, DetectEmail, DetectIBAN, DetectIP, DetectPhone, DetectSecret}

// PersonalData lists the detectors that must redact a tool's results so that the tool counts as pii_safe. Each of them
// finds data that identifies a person or an account by itself. The others are left out: a network address often
// identifies a machine, and a credential is not personal data. An operator adds these where they matter.
var PersonalData = []Detector{DetectCard, DetectEmail, DetectIBAN, DetectPhone}

// FromEnforcement is the source of constraints that Switchboard itself enforces.
const FromEnforcement Source = "enforced"

// Enforces reports whether Switchboard itself makes calls of the tool satisfy the constraint, whatever any source says
// about it. That is so for pii_safe, if the operator has set all detectors of PersonalData for the tool.
func (t *Tool) Enforces(c Constraint) bool {
	return c == PIISafe && !slices.ContainsFunc(PersonalData, func(d Detector) bool { return !slices.Contains(t.Redact, d) })
}
