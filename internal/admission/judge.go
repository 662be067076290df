package admission

import (
	"encoding/json"
	"iter"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Bounds of the pins of one server.
const (
	maxPins       = 10_000   // a server that offers more names over time gets no new ones in
	maxKept       = 32 << 20 // bytes of definitions; a definition beyond it is known by its digest alone
	maxMembers    = 8        // named of one difference
	maxMember     = 60       // bytes of the name of one
	maxReason     = 160      // bytes of the error of a definition that cannot be read
	goneRetires   = 30 * 24 * time.Hour
	maxOtherBytes = 8 << 20 // of the definitions of all other offers
)

// OfferTerms are the rules for the offers of one server.
type OfferTerms struct {
	Rules switchboard.AdmissionRules

	// Entries are the entries of admitted.lock for the server.
	Entries map[PinKey]switchboard.AdmittedPin

	// FindBlocking returns the rule of a blocking finding in the definition, or "". nil finds nothing.
	FindBlocking func(k PinKey, definition []byte) string

	// FindWords returns all findings in the definition of a tool, sorted by rule, by the rules of the version WordRules. It must depend on the definition alone. nil finds
	// nothing. It takes longer than FindBlocking, so its results are kept with the pin.
	FindWords func(k PinKey, definition []byte) []switchboard.RuleFinding
	WordRules int

	// Reports has what the tools of the server were seen to do. nil means nothing.
	Reports ReportReader
}

// A ReportReader has what tools were seen to do. Two that are equal say the same.
type ReportReader interface {
	// FactsOf returns what the last report says about a tool with the definition of the digest; nil if it says nothing.
	FactsOf(tool, digest string) *switchboard.ReportFacts
}

// A PinVerdict is what Judge decides about one definition.
type PinVerdict struct {
	Key   PinKey
	State switchboard.LifeState
	Pin   Pin // the zero Pin if there is none

	Frozen bool
	Why    string                   // as in switchboard.Admission
	Report *switchboard.ReportFacts // what the tool was seen to do; nil if it was not verified
	Other  *OtherOffer              // what the server offers in place of the admitted definition; nil if it offers that one, or nothing

	Successor string
}

// A JudgedOffer is the result of Judge.
type JudgedOffer struct {
	// Offer is what is passed on: the admitted definitions only. Its Admissions say which tools are not plainly active.
	Offer switchboard.Offer

	// Pins are the pins as they must be kept now. They are those that Judge was given if nothing is new. If FirstSeen, nothing may be passed on before they are kept.
	Pins      *ServerPins
	FirstSeen bool

	Others OtherOffers     // that this replica sees now
	Gone   map[PinKey]bool // the pins that this offer has no definition for
}

// An offerJudge judges one offer.
type offerJudge struct {
	terms   OfferTerms
	pins    *ServerPins
	reports Reports
	offer   *switchboard.Offer
	lists   map[switchboard.Kind]offeredList
	now     time.Time
	kept    int // bytes
	others  int // bytes

	fresh     map[PinKey]Pin // new or changed pins
	firstSeen bool
	own       OtherOffers
	gone      map[PinKey]bool
	said      handshakeEffect
	each      func(PinVerdict)
}

// Reports are the offers of one server that differ from the admitted definitions, as they are known before Judge.
type Reports struct {
	Own    OtherOffers // of the last JudgedOffer here
	Others OtherOffers // of the other replicas; the worst, if several report one definition

	// Handshakes are all handshakes that the other replicas report; Others has the worst. Each can be about other tools.
	Handshakes []OtherOffer

	// Gone is of the last JudgedOffer here. What this replica has noted as gone before, it does not note again: another replica that is offered it has taken the note back, and
	// the two would write in turn.
	Gone map[PinKey]bool
}

// Judge compares an offer with the pins of its server, and decides what is passed on. What other replicas have reported counts, too, whatever this replica is
// offered: so all replicas decide alike. each, if not nil, is called with each verdict. Judge is pure: it decides by its arguments alone.
func Judge(offer switchboard.Offer, pins *ServerPins, reports Reports, terms OfferTerms, now time.Time, each func(PinVerdict)) JudgedOffer {
	j := &offerJudge{terms: terms, pins: pins, reports: reports, offer: &offer, lists: map[switchboard.Kind]offeredList{}, now: now, fresh: map[PinKey]Pin{}, own: OtherOffers{}, gone: reports.Gone, each: each}
	if each == nil {
		j.each = func(PinVerdict) {}
	}
	for _, p := range pins.Pins {
		j.kept += len(p.Definition)
	}
	for _, kind := range []switchboard.Kind{switchboard.Tools, switchboard.Prompts, switchboard.Templates} {
		j.lists[kind] = newOfferedList(kind, offer.List(kind))
	}
	out := JudgedOffer{Offer: offer, Pins: pins}
	j.handshake(&out.Offer)
	j.tools(&out.Offer)
	out.Offer.Prompts = j.candidates(switchboard.Prompts)
	out.Offer.Templates = j.candidates(switchboard.Templates)
	out.Offer.Instructions = j.instructions(offer.Instructions)
	listed, met := pins.Listed, pins.Met
	if !offer.Stale {
		listed, met = listedIn(listed, &offer), met || len(offer.Tools) > 0
		j.noteGone()
	}
	out.Gone = j.gone
	if out.Others = j.own; len(j.fresh) > 0 || listed != pins.Listed || met != pins.Met {
		next := &ServerPins{Listed: listed, Met: met, Pins: maps.Clone(pins.Pins)}
		if next.Pins == nil {
			next.Pins = map[PinKey]Pin{}
		}
		maps.Copy(next.Pins, j.fresh)
		out.Pins, out.FirstSeen = next, j.firstSeen
	}
	return out
}

// listedIn adds the kinds of which the offer has any. A list without members is no first list: many servers list nothing until they are ready.
func listedIn(kinds switchboard.Kinds, offer *switchboard.Offer) switchboard.Kinds {
	for _, k := range []switchboard.Kind{switchboard.Tools, switchboard.Prompts, switchboard.Templates} {
		if len(offer.List(k)) > 0 {
			kinds = kinds.With(k)
		}
	}
	return kinds
}

// kindOf returns the list that decides whether a pin of the kind is new. What is of the server comes with the tools.
func kindOf(k switchboard.PinKind) switchboard.Kind {
	switch k {
	case switchboard.PinPrompt:
		return switchboard.Prompts
	case switchboard.PinTemplate:
		return switchboard.Templates
	}
	return switchboard.Tools
}

// tools judges the tools of the offer, and leaves those that are passed on. Tools that are no candidates are passed on, too, so that explanations can name them.
func (j *offerJudge) tools(o *switchboard.Offer) {
	list := j.lists[switchboard.Tools]
	o.Tools, o.OfferStanding = nil, switchboard.OfferStanding{}
	if list.objects == nil {
		return
	}
	o.Tools = make([][]byte, 0, len(list.objects))
	for i, object := range list.objects {
		k := list.keys[i]
		if !list.isNamedOnce(k) {
			o.Tools = append(o.Tools, object) // the catalog refuses it
			continue
		}
		v, bytes := j.judge(k, object, CompareTools)
		o.Tools = append(o.Tools, bytes)
		if v.State != switchboard.LifeActive || v.Frozen {
			if o.Admissions == nil {
				o.Admissions = map[string]*switchboard.Admission{}
			}
			o.Admissions[k.Name] = &switchboard.Admission{State: v.State, Frozen: v.Frozen, Why: v.Why, Successor: v.Successor}
		}
		if e := evidenceOf(&v); !e.Equal(nil) {
			if o.Evidence == nil {
				o.Evidence = map[string]*switchboard.ToolEvidence{}
			}
			o.Evidence[k.Name] = e
		}
		if v.Pin.Alike != "" {
			if o.Alike == nil {
				o.Alike = map[string][]switchboard.Digest{}
			}
			o.Alike[k.Name] = v.Pin.alikeDigests()
		}
	}
}

// evidenceOf returns what the verdict says about a tool beside its state.
func evidenceOf(v *PinVerdict) *switchboard.ToolEvidence {
	e := &switchboard.ToolEvidence{Person: v.Pin.By != "" && isCandidate(v.Pin.State), Report: v.Report}
	if v.Other != nil && v.Pin.Digest != "" {
		e.Diff = v.Other.Class.String()
	}
	if v.Pin.Words != nil {
		e.Read, e.Findings = true, v.Pin.Words.Found
	}
	if e.Equal(&plainEvidence) {
		return &plainEvidence
	}
	return e
}

// Most tools share plainEvidence.
var plainEvidence = switchboard.ToolEvidence{Read: true}

// candidates returns the prompts or templates that are passed on.
func (j *offerJudge) candidates(kind switchboard.Kind) (passed [][]byte) {
	list := j.lists[kind]
	if list.objects == nil {
		return nil
	}
	compare := definitionComparison(ComparePrompts)
	if kind == switchboard.Templates {
		compare = CompareTemplates
	}
	passed = make([][]byte, 0, len(list.objects))
	for i, object := range list.objects {
		k := list.keys[i]
		if !list.isNamedOnce(k) {
			continue // nobody can tell which definition a person has let in
		}
		if v, bytes := j.judge(k, object, compare); isPassed(v.State) {
			passed = append(passed, bytes)
		}
	}
	return passed
}

// instructions returns the instructions that are passed on.
func (j *offerJudge) instructions(text string) string {
	k := PinKey{Kind: switchboard.PinInstructions}
	if _, known := j.pins.Pins[k]; text == "" && !known {
		return ""
	}
	v, admitted := j.judge(k, wire.AppendString(nil, text), CompareInstructions)
	if text, _ = wire.String(admitted); !isPassed(v.State) {
		return ""
	}
	return text
}

// isPassed reports whether clients get a prompt, a template or instructions in the state. A tenant tries tools alone.
func isPassed(s switchboard.LifeState) bool {
	return s == switchboard.LifeActive || s == switchboard.LifeDeprecated
}

// An offeredList is a list of an offer with the keys of its objects, which are read once.
type offeredList struct {
	objects [][]byte
	keys    []PinKey        // the zero key of an object without a name
	first   map[PinKey]int  // the index of the first object with the key
	twice   map[PinKey]bool // the keys that objects with different bytes have
}

func newOfferedList(kind switchboard.Kind, objects [][]byte) offeredList {
	l := offeredList{objects, make([]PinKey, len(objects)), make(map[PinKey]int, len(objects)), nil}
	for i, object := range objects {
		k, ok := keyOf(kind, object)
		if !ok {
			continue
		}
		l.keys[i] = k
		at, known := l.first[k]
		switch {
		case !known:
			l.first[k] = i
		case string(objects[at]) != string(object):
			if l.twice == nil {
				l.twice = map[PinKey]bool{}
			}
			l.twice[k] = true
		}
	}
	return l
}

// isNamedOnce reports whether the objects with the key are one definition.
func (l *offeredList) isNamedOnce(k PinKey) bool { return k != (PinKey{}) && !l.twice[k] }

// A definitionComparison compares two definitions; see CompareTools.
type definitionComparison func(admitted, offered json.RawMessage) (Class, []Difference)

// judge decides about one definition, and returns the bytes that are passed on.
func (j *offerJudge) judge(k PinKey, offered []byte, compare definitionComparison) (PinVerdict, []byte) {
	pin, known := j.pins.Pins[k]
	entry, named := j.terms.Entries[k]
	switch {
	case named:
		pin = j.byFile(k, pin, entry, offered)
	case j.terms.Rules.Strict():
		return j.refuse(k, offered, switchboard.LifeNew, "no person has let it in", Narrower, "")
	case !known:
		pin = j.firstSight(k, offered)
	}
	if pin.Digest == "" {
		if rule := j.findInOffer(k, offered); rule != "" {
			return j.refuse(k, offered, switchboard.LifeSuspended, "its definition has a blocking finding: "+rule, Poisoned, rule)
		}
		why := "its server has offered too many names over time, and no new one is let in"
		if _, err := DigestOf(offered, j.terms.Rules.Volatile...); err != nil {
			why = "its definition cannot be read: " + printable(strings.TrimPrefix(err.Error(), "canonical form: "), maxReason)
		}
		return j.refuse(k, offered, switchboard.LifeSuspended, why, Narrower, "")
	}
	if !pin.Gone.IsZero() && pin.State != switchboard.LifeRetired { // it is back
		pin.Gone = time.Time{}
		j.fresh[k] = pin
	}
	pin = j.readWords(k, pin)
	v := PinVerdict{Key: k, State: pin.State, Pin: pin, Successor: pin.Successor, Why: whyOf(pin.State)}
	v.Other = j.changed(k, offered, pin, compare)
	if other, ok := j.reports.Others[k]; ok && (other.Digest != pin.Digest || other.Class == Poisoned && pin.By == "") {
		if other.Admitted != pin.Digest { // it was compared with another definition, and its replica compares it again soon
			other.Class = max(other.Class, Narrower)
		}
		v.Other = worseOffer(v.Other, &other)
	}
	if v.Other != nil {
		j.applyChange(&v, pin)
	}
	if k.Kind == switchboard.PinTool {
		j.said.apply(&v)
		j.applyReport(&v)
	}
	j.each(v)
	switch {
	case string(offered) == pin.Definition:
		return v, offered // which shares the memory of the offer
	case pin.Definition == "":
		passed, _ := leaveOut(offered, j.leftOut(&pin))
		return v, passed
	}
	return v, repaired(k, []byte(pin.Definition))
}

// repaired returns an admitted definition in the form that every client can read. A release before package shape admitted definitions
// as they were sent. Their pins stay as they are, so that replicas of both releases agree about them.
func repaired(k PinKey, definition []byte) []byte {
	if k.Kind.OfServer() {
		return definition
	}
	definition, _ = shape.Repair(kindOf(k.Kind), definition)
	return definition
}

// readWords returns the pin of a tool with the findings in its admitted definition, by the present rules. The rules of an older version did not know some findings, and a
// newer one must not be undone by a replica that has not been replaced yet.
func (j *offerJudge) readWords(k PinKey, pin Pin) Pin {
	known := pin.Words
	if k.Kind != switchboard.PinTool || j.terms.FindWords == nil || pin.Definition == "" || known != nil && known.Version >= j.terms.WordRules {
		return pin
	}
	pin.Words = &WordFindings{Version: j.terms.WordRules, Found: j.terms.FindWords(k, []byte(pin.Definition))}
	j.fresh[k] = pin
	return pin
}

// refuse returns the verdict on a definition that nothing was let in of.
func (j *offerJudge) refuse(k PinKey, offered []byte, state switchboard.LifeState, why string, class Class, rule string) (PinVerdict, []byte) {
	v := PinVerdict{Key: k, State: state, Why: why, Other: j.other(k, offered, "", class, nil, rule)}
	j.each(v)
	return v, offered
}

// whyOf returns the reason that a state alone gives.
func whyOf(s switchboard.LifeState) string {
	switch s {
	case switchboard.LifeSuspended:
		return "a person has suspended it"
	case switchboard.LifeRetired:
		return "it is retired"
	case switchboard.LifeTesting:
		return "it was not in the first list of its server, and no person has let it in"
	}
	return ""
}

// applyChange sets the state of a definition that its server offers otherwise.
func (j *offerJudge) applyChange(v *PinVerdict, pin Pin) {
	if !isCandidate(v.State) {
		return // a person's word, or a worse state, stands
	}
	harmless := v.Other.Class <= Wider && pin.Definition != ""
	if harmless && !j.terms.Rules.Suspends() {
		v.Frozen = true
		v.Why = strings.TrimPrefix(v.Why+"; its server offers another definition ("+describe(v.Other)+"); the admitted one stays in use", "; ")
		return
	}
	v.State = switchboard.LifeSuspended
	v.Why = "its server offers another definition than the admitted one (" + describe(v.Other) + ")"
	if pin.Definition == "" {
		v.Why = "its server offers another definition, and the bytes of the admitted one are not known"
	}
}

// applyReport suspends a tool that has failed a test that it must pass, unless a person has let it in since.
func (j *offerJudge) applyReport(v *PinVerdict) {
	if j.terms.Reports == nil {
		return
	}
	v.Report = j.terms.Reports.FactsOf(v.Key.Name, v.Pin.Digest)
	if r := v.Report; r != nil && len(r.Failed) > 0 && isCandidate(v.State) && (v.Pin.By == "" || v.Pin.Since.Before(r.At)) {
		v.State, v.Frozen = switchboard.LifeSuspended, false
		v.Why = "it has failed a test that it must pass: " + strings.Join(r.Failed, ", ")
	}
}

// isCandidate reports whether a tool in the state can serve a run.
func isCandidate(s switchboard.LifeState) bool {
	return s == switchboard.LifeActive || s == switchboard.LifeTesting || s == switchboard.LifeDeprecated
}

// worseOffer returns the offer that counts if replicas see two. Each may be nil.
func worseOffer(a, b *OtherOffer) *OtherOffer {
	if a == nil || b != nil && (b.Class > a.Class || b.Class == a.Class && b.Digest < a.Digest) {
		return b
	}
	return a
}

// Merge returns the offers that count if several replicas report some: the worst of each definition.
func Merge(reports ...OtherOffers) OtherOffers {
	all := OtherOffers{}
	for _, one := range reports {
		for k, o := range one {
			if was, ok := all[k]; !ok || worseOffer(&was, &o) == &o {
				all[k] = o
			}
		}
	}
	return all
}

// MergeHandshakes returns the handshakes that several replicas report, for Reports.
func MergeHandshakes(reports iter.Seq[OtherOffers]) (all []OtherOffer) {
	for one := range reports {
		if o, ok := one[handshakeKey]; ok {
			all = append(all, o)
		}
	}
	return all
}

// describe names the class of an other offer, and its cause.
func describe(o *OtherOffer) string {
	switch {
	case o.Rule != "":
		return o.Class.String() + ": " + o.Rule
	case len(o.Members) > 0:
		return o.Class.String() + ": " + strings.Join(o.Members, ", ")
	}
	return o.Class.String()
}

// changed compares the offered definition with the admitted one. It returns nil if the server offers the admitted one.
func (j *offerJudge) changed(k PinKey, offered []byte, pin Pin, compare definitionComparison) *OtherOffer {
	if string(offered) == pin.Definition {
		return j.poisonedSame(k, offered, pin)
	}
	digest, err := DigestOf(offered, j.terms.Rules.Volatile...)
	if err == nil && (digest == pin.Digest || j.isAdmitted(k, offered, &pin)) {
		return j.poisonedSame(k, offered, pin)
	}
	if was, ok := j.reports.Own[k]; ok && was.Digest == digest && was.Admitted == pin.Digest && err == nil {
		j.own[k] = was
		return &was // compared before
	}
	class, all := Narrower, []Difference(nil)
	if err == nil && pin.Definition != "" {
		leftOut := j.leftOut(&pin)
		before, _ := leaveOut([]byte(pin.Definition), leftOut)
		after, _ := leaveOut(offered, leftOut)
		class, all = compare(repaired(k, before), after)
	}
	rule := j.findInOffer(k, offered)
	if rule != "" && pin.Definition != "" && j.findBlocking(k, []byte(pin.Definition)) == rule {
		rule = "" // a person has let it in with that
	}
	if rule != "" {
		class = Poisoned
	}
	return j.other(k, offered, pin.Digest, class, all, rule)
}

// poisonedSame returns the offer of the admitted definition with characters that deceive in it, which are removed before it is compared. It returns nil if there are none, or if a
// person has let the definition in: the person may have seen them. At first sight, such a definition is not let in.
func (j *offerJudge) poisonedSame(k PinKey, offered []byte, pin Pin) *OtherOffer {
	if pin.By != "" || j.sent(k) == nil {
		return nil
	}
	rule := j.findInOffer(k, offered)
	if rule == "" {
		return nil
	}
	return j.other(k, offered, pin.Digest, Poisoned, nil, rule)
}

// other notes an offer that is not the admitted one.
func (j *offerJudge) other(k PinKey, offered []byte, admitted string, class Class, all []Difference, rule string) *OtherOffer {
	digest, definition := "", offered
	if d, rest, err := digestOf(offered, j.terms.Rules.Volatile); err == nil {
		digest, definition = d.String(), rest
	}
	o := OtherOffer{Digest: digest, Admitted: admitted, Class: class, Rule: rule, Since: j.now}
	if was, ok := j.reports.Own[k]; ok && was.Digest == digest {
		o.Since = was.Since
	}
	if j.others += len(offered); j.others <= maxOtherBytes && digest != "" {
		o.Definition = string(definition)
	}
	for i, d := range all {
		if i == maxMembers {
			o.Members = append(o.Members, "…")
			break
		}
		o.Members = append(o.Members, printable(d.Member, maxMember))
	}
	j.own[k] = o
	return &o
}

// printable returns at most limit bytes of a text for messages, such as the name of a member. A server has chosen some of it.
func printable(text string, limit int) string {
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return strings.Trim(strconv.QuoteToASCII(text), `"`)
}

// firstSight returns the pin of a definition that was never seen before.
func (j *offerJudge) firstSight(k PinKey, offered []byte) Pin {
	pin := Pin{State: switchboard.LifeActive, Since: j.now}
	switch {
	case k.Kind == switchboard.PinHandshake && j.pins.Met:
		digest, err := DigestOf([]byte(silence))
		if err == nil {
			pin.Digest, pin.Definition = digest, silence // which need not be kept
		}
		return pin
	case k.Kind != switchboard.PinHandshake && j.pins.Listed.Has(kindOf(k.Kind)):
		pin.State = switchboard.LifeTesting
	}
	if len(j.pins.Pins)+len(j.fresh) >= maxPins || j.findInOffer(k, offered) != "" {
		return pin // nothing is let in
	}
	return j.admit(k, offered, pin)
}

// admit returns the pin with the offered definition, and keeps it. Its digest covers all of the bytes that clients get from then on.
func (j *offerJudge) admit(k PinKey, offered []byte, pin Pin) Pin {
	digest, rest, err := digestOf(offered, j.terms.Rules.Volatile)
	if err != nil {
		return pin
	}
	pin.Digest = digest.String()
	return j.keepDefinition(k, pin, rest)
}

// keepDefinition returns the pin with the bytes that its digest is of, and keeps it.
func (j *offerJudge) keepDefinition(k PinKey, pin Pin, definition []byte) Pin {
	if j.kept += len(definition); j.kept <= maxKept {
		pin.Definition = string(definition)
	}
	j.fresh[k], j.firstSeen = pin, true
	return pin
}

// leftOut returns the keys of _meta that do not count when the pin is compared: those that the rules name now, and those that its digest leaves out. So a change of the
// rules changes no state: what was let in without a key stays let in.
func (j *offerJudge) leftOut(pin *Pin) []string {
	d, err := switchboard.ParseDefinitionDigest(pin.Digest)
	if err != nil {
		d.LeftOut = nil
	}
	return switchboard.MergeVolatile(j.terms.Rules.Volatile, d.LeftOut)
}

// isAdmitted compares an offered definition with the admitted one. It leaves out the keys that do not count, and repairs the admitted one first. The digests of the two differ as
// they are.
func (j *offerJudge) isAdmitted(k PinKey, offered []byte, pin *Pin) bool {
	leftOut := j.leftOut(pin)
	if pin.Definition == "" {
		return len(leftOut) > 0 && definitionOf(pin.Digest, offered, leftOut) != nil
	}
	admitted := repaired(k, []byte(pin.Definition))
	if len(leftOut) == 0 && string(admitted) == pin.Definition {
		return false
	}
	before, _, err := digestOf(admitted, leftOut)
	after, _, too := digestOf(offered, leftOut)
	return err == nil && too == nil && before.Hex == after.Hex
}

// definitionOf returns the part of an offered definition that the digest is of, or nil if it is of another definition. leftOut are keys that need not be in it.
func definitionOf(digest string, offered []byte, leftOut []string) []byte {
	want, err := switchboard.ParseDefinitionDigest(digest)
	if err != nil {
		return nil
	}
	for _, keys := range [][]string{want.LeftOut, leftOut} {
		if d, rest, err := digestOf(offered, keys); err == nil && d.Hex == want.Hex {
			return rest
		}
	}
	return nil
}

// byFile returns the pin as admitted.lock has it. A later decision of a person that only the store has counts if it takes out.
func (j *offerJudge) byFile(k PinKey, pin Pin, entry switchboard.AdmittedPin, offered []byte) Pin {
	if pin.By != "" && pin.Since.After(entry.At) && !isCandidate(pin.State) {
		return pin
	}
	now := pin
	now.State, now.Successor, now.By, now.Since = entry.State, entry.Successor, entry.By, entry.At
	if now.Digest != entry.Digest {
		now = now.With(entry.Digest, string(definitionOf(entry.Digest, []byte(now.Definition), nil)))
	}
	if now.Definition == "" {
		if definition := definitionOf(entry.Digest, offered, j.leftOut(&now)); definition != nil {
			now.Alike = pin.alikeTo(entry.Digest, string(definition))
			return j.keepDefinition(k, now, definition)
		}
	}
	if now != pin {
		j.fresh[k] = now
	}
	return now
}

// findInOffer looks at the definition as the server sent it, and returns the rule of a blocking finding. The offered bytes may lack some characters.
func (j *offerJudge) findInOffer(k PinKey, offered []byte) string {
	if sent := j.sent(k); sent != nil {
		offered = sent
	}
	return j.findBlocking(k, offered)
}

// sent returns the definition as the server sent it, if characters that deceive were removed from it; else nil.
func (j *offerJudge) sent(k PinKey) []byte {
	switch k.Kind {
	case switchboard.PinTool:
		return j.offer.Uncleaned[k.Name]
	case switchboard.PinInstructions:
		return j.offer.UncleanedOthers[switchboard.SentInstructions]
	case switchboard.PinHandshake:
		return nil
	}
	return j.offer.UncleanedOthers[switchboard.SentKey(kindOf(k.Kind), k.Name)]
}

func (j *offerJudge) findBlocking(k PinKey, definition []byte) string {
	if j.terms.FindBlocking == nil {
		return ""
	}
	return j.terms.FindBlocking(k, definition)
}

// noteGone notes which pins the offer has no definition for, and retires those that are gone for goneRetires.
func (j *offerJudge) noteGone() {
	j.gone = map[PinKey]bool{}
	for k, p := range j.pins.Pins {
		if k.Kind.OfServer() || p.State == switchboard.LifeRetired {
			continue
		}
		if _, offered := j.lists[kindOf(k.Kind)].first[k]; offered {
			continue
		}
		j.gone[k] = true
		switch {
		case p.Gone.IsZero() && j.reports.Gone[k]:
			continue
		case p.Gone.IsZero():
			p.Gone = j.now
		case j.now.Sub(p.Gone) >= goneRetires:
			p.State, p.Since, p.By = switchboard.LifeRetired, j.now, ""
		default:
			continue
		}
		j.fresh[k] = p
	}
}
