package annotate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SuggestedFact is a suggested statement about the calls of a tool, beside its capability.
type SuggestedFact struct {
	Key    string   `json:"key"`    // of an overlay: side_effects, risk_level, cost_class, idempotency, stateful, deterministic or flow
	Values []string `json:"values"` // one, or the members of a list
	Why    []string `json:"why"`    // the signs that support it
}

// String returns the fact as an overlay has it.
func (f SuggestedFact) String() string { return f.Key + ": " + edit.Format(f.node()) }

// node returns the value of the fact in an overlay.
func (f *SuggestedFact) node() document.Node {
	switch f.Key {
	case "side_effects", "flow":
		list := document.Node{Kind: document.KindList}
		for _, v := range f.Values {
			list.Items = append(list.Items, textOf(v))
		}
		return list
	case "stateful", "deterministic":
		return document.Node{Kind: document.KindBool, Text: f.Values[0]}
	}
	return textOf(f.Values[0])
}

// Words that support a fact.
var (
	undoneWords   = wordSet("cancel detach flush kill revoke terminate unlink") // deleteWords after which nothing is lost that was stored
	destroyWords  = wordSet("destroy drop erase nuke purge shred truncate wipe")
	buyWords      = wordSet("buy charge pay purchase")
	rightsWords   = wordSet("acl collaborator grant permission permissions policy privilege privileges revoke role roles")
	againWords    = wordSet("add append book buy create decrement duplicate enqueue increment insert order pay post publish purchase reply send submit transfer tweet upload")
	settingWords  = wordSet("clear delete disable enable put remove rename replace set unset update")
	changingWords = wordSet("current currently latest live now random randomly rate today")
	finalPhrases  = []string{"can not be undone", "cannot be undone", "irreversible", "irreversibly", "permanently"}
	costPhrases   = []string{"api credits", "are billed", "consume credits", "consumes credits", "costs credits", "costs money", "credits per", "incur cost", "incurs cost", "is billed", "uses credits", "will be billed", "will be charged"}
	urlParams     = "callback_url endpoint uri url urls webhook webhook_url"
)

// hostedSubjects are the resources that other people or other machines keep, so that a write reaches outside.
var hostedSubjects = []switchboard.Resource{
	"aws", "blockchain", "calendar", "chat", "ci_cd", "cloud", "crm", "email", "identity", "internet", "issue_tracker", "payments", "slack", "social", "vcs",
}

// A factReading is what the facts of one tool are read from.
type factReading struct {
	*toolReading
	label   *Label
	subject int
	terms   *terms
	facts   []SuggestedFact
}

// readFacts returns the facts that the signs of the tool support, in the order of the keys above. A fact that restricts needs one sign. A fact that lets more happen (natural
// idempotency, deterministic, an empty flow) needs all of them.
func (r *toolReading) readFacts(label *Label, subject int, t *terms) []SuggestedFact {
	f := &factReading{toolReading: r, label: label, subject: subject, terms: t}
	f.readSideEffects()
	f.readRisk()
	f.readRepeats()
	pure := f.readDeterministic()
	f.readFlow(pure)
	return f.facts
}

func (f *factReading) state(key, value, why string, args ...any) {
	why = fmt.Sprintf(why, args...)
	i := slices.IndexFunc(f.facts, func(o SuggestedFact) bool { return o.Key == key })
	if i < 0 {
		f.facts = append(f.facts, SuggestedFact{key, []string{value}, []string{why}})
		return
	}
	one := &f.facts[i]
	if !slices.Contains(one.Values, value) {
		one.Values = append(one.Values, value)
		slices.Sort(one.Values)
	}
	if !slices.Contains(one.Why, why) {
		one.Why = append(one.Why, why)
	}
}

// nameWord returns the first word of the name that is in the set.
func (f *factReading) nameWord(set map[string]bool) string {
	for _, w := range f.name {
		if set[w] {
			return w
		}
	}
	return ""
}

// phrase returns the first of the phrases that the description has.
func (f *factReading) phrase(phrases []string) string {
	for _, p := range phrases {
		if strings.Contains(f.text, p) {
			return p
		}
	}
	return ""
}

func (f *factReading) means(names ...switchboard.Resource) bool {
	return slices.ContainsFunc(names, func(n switchboard.Resource) bool { return f.terms.means(f.subject, n) })
}

// readSideEffects reads what calls do, besides answering.
func (f *factReading) readSideEffects() {
	const key = "side_effects"
	verb := f.label.Verb
	if verb == switchboard.Notify {
		f.state(key, "contacts-people", "verb: notify reaches people")
	}
	if !changes(verb) {
		return
	}
	for i, w := range f.name {
		if deleteWords[w] && !undoneWords[w] && (i == 0 || i == len(f.name)-1) && !f.means("browser") {
			f.state(key, "deletes", "name: %q deletes", w)
		}
	}
	if w := f.nameWord(buyWords); w != "" && f.name[0] == w {
		f.state(key, "costs-money", "name: %q spends money", w)
	}
	if w := f.nameWord(rightsWords); w != "" && verb == switchboard.Write {
		f.state(key, "changes-rights", "name: %q is about rights", w)
	}
	switch {
	case verb != switchboard.Write:
	case f.means("fs"):
		f.state(key, "writes-local", "verb and resource: it writes %s", f.label.Resource)
	case f.means(hostedSubjects...):
		f.state(key, "writes-external", "verb and resource: it writes %s", f.label.Resource)
	}
}

// readRisk reads how much a mistake can harm, and whether calls cost something.
func (f *factReading) readRisk() {
	if changes(f.label.Verb) {
		if p := f.phrase(finalPhrases); p != "" {
			f.state("risk_level", "high", "description: %q", p)
		}
		if w := f.nameWord(destroyWords); w != "" && !f.means("browser") {
			f.state("risk_level", "high", "name: %q destroys", w)
		}
	}
	if p := f.phrase(costPhrases); p != "" {
		f.state("cost_class", string(switchboard.CostMetered), "description: %q", p)
	}
}

// readRepeats reads what a second call with the same arguments does.
func (f *factReading) readRepeats() {
	if !changes(f.label.Verb) || len(f.name) == 0 {
		return
	}
	again := f.nameWord(againWords)
	says := func(set map[string]bool) string {
		for _, w := range f.sentence {
			if set[w] || set[singular(w)] {
				return w
			}
		}
		return ""
	}
	setting, told := f.name[0], says(settingWords)
	switch {
	case again != "":
		f.state("idempotency", "none", "name: %q does it once more", again)
	case f.label.Verb == switchboard.Notify:
		f.state("idempotency", "none", "verb: a second message is a second message")
	case isTrue(f.hints.idempotent) && settingWords[setting] && told != "" && says(againWords) == "":
		f.state("idempotency", "natural", "annotations: idempotentHint is true")
		f.state("idempotency", "natural", "name: %q leaves the same state", setting)
		f.state("idempotency", "natural", "description: %q leaves the same state", told)
	case isTrue(f.hints.destructive):
		f.state("stateful", "true", "annotations: destructiveHint is true")
	case f.nameWord(destroyWords) != "" && !f.means("browser"):
		f.state("stateful", "true", "name: %q destroys", f.nameWord(destroyWords))
	}
}

// readDeterministic reports whether equal arguments surely give equal results: it calculates with the numbers that it gets, and no sign says that it reads anything else.
func (f *factReading) readDeterministic() bool {
	if f.label.Verb != switchboard.Reason || !f.means("compute") || !f.isArithmetic() || !slices.Contains(f.label.Constraints, switchboard.ReadOnly) || isTrue(f.hints.openWorld) {
		return false
	}
	strange := func(w string) bool { return changingWords[w] }
	if slices.ContainsFunc(f.words, strange) || slices.ContainsFunc(splitWords(f.text, maxTextWords), strange) || f.takesURL() != "" {
		return false
	}
	f.state("deterministic", "true", "name, description and parameters: it calculates with numbers")
	return true
}

// takesURL returns the name of a parameter that is an address.
func (f *factReading) takesURL() string {
	for _, p := range f.params {
		if wordIn(strings.ToLower(p.name), urlParams) || slices.Contains(p.format, "uri") || slices.Contains(p.format, "url") {
			return p.name
		}
	}
	return ""
}

// readFlow states the flow of the tool if it differs from the flow of the capability. pure says that a call only calculates.
func (f *factReading) readFlow(pure bool) {
	if pure {
		f.facts = append(f.facts, SuggestedFact{"flow", []string{}, []string{"name, description and parameters: it calculates with the numbers that it gets, and with nothing else"}})
		return
	}
	follows := catalog.FlowOfLabel(f.label.Verb, f.label.Resource, f.tool.Definition, f.terms.taxonomy)
	bits := follows
	var why []string
	add := func(b switchboard.FlowBits, says string) {
		if bits|b != bits {
			bits |= b
			why = append(why, says)
		}
	}
	if p := f.takesURL(); p != "" {
		add(switchboard.Carries, fmt.Sprintf("parameters: the address %q can carry data out", p))
		if f.label.Verb != switchboard.Write && f.label.Verb != switchboard.Notify {
			add(switchboard.Brings, fmt.Sprintf("parameters: strangers write what is at the address %q", p))
		}
	}
	if isTrue(f.hints.openWorld) && !f.means("internet") {
		add(switchboard.Carries, "annotations: openWorldHint is true, so a request can carry data out")
	}
	if bits == follows {
		return
	}
	if follows != 0 {
		why = append(why, "verb and resource: "+follows.String())
	}
	f.facts = append(f.facts, SuggestedFact{"flow", bits.Names(), why})
}
