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

// Detectors are all detectors, sorted as bytes.
var Detectors = []Detector{DetectCard, DetectEmail, DetectIBAN, DetectIP, DetectPhone, DetectSecret}

// PersonalData are the detectors that must redact a tool's results before the tool is pii_safe: each finds what
// names a person or an account by itself. A network address often names a machine, and a credential is no
// personal data; an operator adds these where they matter.
var PersonalData = []Detector{DetectCard, DetectEmail, DetectIBAN, DetectPhone}

// FromEnforcement is the source of constraints that Switchboard itself enforces.
const FromEnforcement Source = "enforced"

// Enforces reports whether Switchboard itself makes calls of the tool keep to the constraint, whatever anybody
// says of it: pii_safe, where the operator has the results redacted by all detectors of PersonalData.
func (t *Tool) Enforces(c Constraint) bool {
	return c == PIISafe && !slices.ContainsFunc(PersonalData, func(d Detector) bool { return !slices.Contains(t.Redact, d) })
}
