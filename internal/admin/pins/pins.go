// Package pins is for officers who look at the definitions that servers offer: it lists the admitted definitions, shows changes, lets changes in, and takes definitions
// out.
//
// It decides what an officer reads, which definitions need a person, and in which order a decision is written: into admitted.lock where Switchboard may change it, and into
// the store. Package admission decides what a change means, and package pin keeps the pins. The API, the commands and the page all go through here.
package pins

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/lockfile"
	"github.com/summit-switchboard/switchboard/internal/pin"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// decideTimeout limits how long the store may take to write a decision.
const decideTimeout = 2 * time.Second

// Options are the parts of a running Switchboard that a Registrar needs.
type Options struct {
	Board *pin.Board

	// Editor changes admitted.lock. HasFile says that there is a folder of ours that the file can stand in.
	Editor  *change.Editor
	HasFile bool

	// Tool returns a tool as the state in force has it, or nil.
	Tool func(switchboard.ToolID) *switchboard.Tool

	// Admit makes decisions count here that the store has.
	Admit func(ctx context.Context)

	// Find returns what the scan of words finds in a definition. nil finds nothing.
	Find func(id switchboard.PinID, definition []byte) []PinFinding

	// Report returns the last report about the tool with the definition of the digest, or nil. nil finds none.
	Report func(id switchboard.ToolID, digest string) *evidence.KeptReport

	// Record makes a decision between two receipts: its intent and its outcome. See admin.Actions.
	Record func(r receipt.Receipt, do func() error) error

	Stopping context.Context // done when the time to stop is over
}

// A Registrar does what officers do about pins. Use New. It is safe for concurrent use.
type Registrar struct{ o Options }

// New returns a Registrar.
func New(o Options) *Registrar { return &Registrar{o} }

// A PinChange is what a server offers in the place of the admitted definition. The zero PinChange means nothing else.
type PinChange struct {
	Offered string `json:"offered,omitempty" doc:"The digest of the definition that the server offers in its place. To accept it, name this digest."`
	Class   string `json:"class,omitempty" doc:"What the change means: words, wider, narrower, freer or poisoned."`
	Finding string `json:"finding,omitempty" doc:"The rule of the blocking finding in the offered definition."`
}

// A PinRow is one definition in a list.
type PinRow struct {
	Server switchboard.ServerID `json:"server"`
	Kind   switchboard.PinKind  `json:"kind" doc:"tool, prompt, template, instructions or handshake."`
	Name   string               `json:"name,omitempty" doc:"As the server writes it; the URI template of a template; absent for instructions and handshake."`

	State   switchboard.LifeState `json:"state" doc:"testing, active, deprecated, retired, suspended, or new: no person has let it in."`
	Frozen  bool                  `json:"frozen,omitempty" doc:"The server offers another definition, and the admitted one stays in use."`
	Why     string                `json:"why,omitempty"`
	KeptOut bool                  `json:"kept_out,omitempty" doc:"Of a tool: it is new only because the operator's rules of the phase admit keep it out."`
	Digest  string                `json:"digest,omitempty" doc:"Of the admitted definition."`

	Risk switchboard.RiskClass `json:"risk,omitempty" doc:"Of a tool: how much a call can harm, as far as facts tell: safe, low, medium, high or prohibited."`

	NeedsPerson bool `json:"needs_person,omitempty" doc:"A person should look at it: it is frozen, new or on trial, or suspended, and not by a person."`

	PinChange
	Successor string `json:"successor,omitempty" doc:"SERVER/TOOL, of a deprecated tool."`

	Since time.Time `json:"since,omitzero" doc:"The first sight, or the decision."`
	By    string    `json:"by,omitempty" doc:"Who has decided; absent after the first sight alone."`
	Gone  time.Time `json:"gone,omitzero" doc:"Since when the server does not offer it."`
}

// Subject returns the definition as commands take it, beside its kind.
func (r *PinRow) Subject() string {
	if r.Kind.OfServer() {
		return string(r.Server)
	}
	return string(r.Server) + "/" + r.Name
}

// A PinDetail is one definition with its texts.
type PinDetail struct {
	PinRow
	Differs []string `json:"differs,omitempty" doc:"The members that differ, the first few."`
	Diff    string   `json:"diff,omitempty" doc:"The admitted definition and the offered one, line by line. Characters that are not visible are spelt out. A long line goes on behind | in the next one."`
	Text    string   `json:"text,omitempty" doc:"The definition in use, if nothing differs."`

	Findings []PinFinding `json:"findings,omitempty" doc:"What the scan of words has found in the offered definition, or else in the one in use."`

	Report *evidence.KeptReport `json:"report,omitempty" doc:"What the tool was seen to do with the offered definition, or else with the one in use."`
}

// A PinFinding is a text that the scan of words has found in a definition.
type PinFinding struct {
	Rule   string `json:"rule"`
	Means  string `json:"means" doc:"What the rule looks for."`
	Blocks bool   `json:"blocks,omitempty" doc:"The definition is not let in without a person."`
	Where  string `json:"where" doc:"The member with the text."`
	Text   string `json:"text" doc:"As the server has sent it. Characters that are not visible are spelt out; clients do not get those that deceive."`
}

func (r *Registrar) rowOf(id switchboard.ServerID, v *admission.PinVerdict) PinRow {
	row := PinRow{
		Server: id, Kind: v.Key.Kind, Name: v.Key.Name, State: v.State, Frozen: v.Frozen, Why: scan.Spell(v.Why), Digest: v.Pin.Digest,
		Successor: v.Successor, Since: v.Pin.Since, By: v.Pin.By, Gone: v.Pin.Gone,
	}
	if v.Other != nil {
		row.Offered, row.Class, row.Since, row.Finding = v.Other.Digest, v.Other.Class.String(), v.Other.Since, v.Other.Rule
		if v.State == switchboard.LifeNew {
			row.Class = ""
		}
	}
	t, keptOut := r.toolOf(id, v)
	row.NeedsPerson = needsPerson(v, keptOut)
	if t != nil {
		row.Risk = t.Contract.Risk
	}
	if keptOut {
		row.State, row.Frozen, row.KeptOut, row.Why = t.Admission.State, false, true, scan.Spell(t.Admission.Why)
	}
	return row
}

// toolOf returns the tool that a verdict is about, nil if there is none, and whether the operator's rules keep it out.
func (r *Registrar) toolOf(id switchboard.ServerID, v *admission.PinVerdict) (t *switchboard.Tool, keptOut bool) {
	if v.Key.Kind != switchboard.PinTool || r.o.Tool == nil {
		return nil, false
	}
	if t = r.o.Tool(switchboard.ToolID{Server: id, Name: v.Key.Name}); t == nil {
		return nil, false
	}
	return t, t.Admission != nil && t.Admission.KeptOut
}

// needsPerson reports whether a person should look at a definition. Who has suspended or retired one has looked at it.
// keptOut says that the operator's rules keep the tool out: many of them ask whether a person has let it in.
func needsPerson(v *admission.PinVerdict, keptOut bool) bool {
	if keptOut {
		return v.Pin.By == "" && v.Pin.Gone.IsZero()
	}
	switch v.State {
	case switchboard.LifeTesting, switchboard.LifeNew:
		return v.Pin.Gone.IsZero()
	case switchboard.LifeSuspended:
		return v.Pin.State != switchboard.LifeSuspended
	}
	return v.Frozen
}

// Frozen is the value of PinFilter.State that selects frozen definitions in any state.
const Frozen = "frozen"

// A PinFilter selects rows. The zero value selects all.
type PinFilter struct {
	Server switchboard.ServerID
	Kind   switchboard.PinKind
	State  string // a switchboard.LifeState, or Frozen

	Changed bool // only those that are not plainly active
}

// fits reports whether a verdict fits the filter. keptOut says that the operator's rules keep its tool out.
func (f *PinFilter) fits(v *admission.PinVerdict, keptOut bool) bool {
	state, frozen := v.State, v.Frozen
	if keptOut {
		state, frozen = switchboard.LifeNew, false
	}
	switch {
	case f.Kind != "" && v.Key.Kind != f.Kind:
		return false
	case f.State == Frozen:
		return frozen
	case f.State != "" && string(state) != f.State:
		return false
	}
	return !f.Changed || state != switchboard.LifeActive || frozen || !v.Pin.Gone.IsZero()
}

// A ListedPin is one definition in a list. Registrar.Row returns all of it: rows are large, and a reader sees few of a list.
type ListedPin struct {
	server      switchboard.ServerID
	verdict     *admission.PinVerdict
	needsPerson bool
}

// compare orders two definitions as their places are ordered.
func (p ListedPin) compare(o ListedPin) int {
	a, b := p.verdict.Key, o.verdict.Key
	switch {
	case p.needsPerson && !o.needsPerson:
		return -1
	case o.needsPerson && !p.needsPerson:
		return 1
	case len(a.Name) > maxPlaceName || len(b.Name) > maxPlaceName:
		return strings.Compare(PlaceOf(p), PlaceOf(o))
	}
	return cmp.Or(strings.Compare(string(p.server), string(o.server)), a.Compare(b))
}

// A PinList is a list of definitions.
type PinList struct {
	Pins        []ListedPin // those that need a person first, and then by server, kind and name: in the order of PlaceOf
	NeedsPerson int         // how many of them need a person
}

// After returns the part of the list behind a place.
func (l *PinList) After(place string) []ListedPin {
	return l.Pins[sort.Search(len(l.Pins), func(i int) bool { return PlaceOf(l.Pins[i]) > place }):]
}

// List returns the definitions that fit the filter.
func (r *Registrar) List(f PinFilter) *PinList {
	servers := []switchboard.ServerID{f.Server}
	if f.Server == "" {
		servers = r.o.Board.Servers()
	}
	list := &PinList{}
	for _, id := range servers {
		verdicts := r.o.Board.Verdicts(id)
		for i := range verdicts {
			v := &verdicts[i]
			_, keptOut := r.toolOf(id, v)
			if !f.fits(v, keptOut) {
				continue
			}
			p := ListedPin{id, v, needsPerson(v, keptOut)}
			if list.Pins = append(list.Pins, p); p.needsPerson {
				list.NeedsPerson++
			}
		}
	}
	slices.SortFunc(list.Pins, ListedPin.compare)
	return list
}

// Row returns all that a list says about a definition.
func (r *Registrar) Row(p ListedPin) PinRow { return r.rowOf(p.server, p.verdict) }

// Held returns the definitions that a machine has frozen or suspended, sorted by server, kind and name. It is cheap, and does not wait for the store.
func (r *Registrar) Held() (rows []PinRow) {
	held := r.o.Board.Held()
	for i := range held {
		if row := r.rowOf(held[i].Server, &held[i].PinVerdict); !row.KeptOut {
			rows = append(rows, row)
		}
	}
	return rows
}

// maxPlaceName limits the name in a place, in bytes: a place is a part of an address.
const maxPlaceName = 200

// PlaceOf returns the place of a definition in the order of List.
func PlaceOf(p ListedPin) string {
	first, name := "1 ", p.verdict.Key.Name
	if p.needsPerson {
		first = "0 "
	}
	if len(name) > maxPlaceName {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToValidUTF8(name[:maxPlaceName], "") + " " + hex.EncodeToString(sum[:8])
	}
	return first + string(p.server) + " " + string(p.verdict.Key.Kind) + " " + name
}

// Detail returns one definition with its texts. The error is a *switchboard.Error; its cause is ErrUnknown if there is no such definition.
func (r *Registrar) Detail(id switchboard.PinID) (*PinDetail, error) {
	v, err := r.verdict(id)
	if err != nil {
		return nil, err
	}
	d := &PinDetail{PinRow: r.rowOf(id.Server, v)}
	shown, digest := v.Pin.Definition, v.Pin.Digest
	if v.Other != nil {
		shown, digest = v.Other.Definition, v.Other.Digest
	}
	if r.o.Find != nil && shown != "" {
		d.Findings = r.o.Find(id, r.asSent(id, shown, digest))
	}
	d.Report = r.report(id, digest)
	switch {
	case v.Other == nil:
		d.Text = lines(v.Pin.Definition)
	case v.Other.Definition == "":
		d.Text = "the offered definition is too large to be kept"
	default:
		d.Differs = v.Other.Members
		d.Diff = string(diff.Diff("admitted", []byte(lines(v.Pin.Definition)), "offered", []byte(lines(v.Other.Definition))))
	}
	return d, nil
}

// report returns the last report about a tool with the definition of the digest, or nil.
func (r *Registrar) report(id switchboard.PinID, digest string) *evidence.KeptReport {
	if r.o.Report == nil || id.Kind != switchboard.PinTool {
		return nil
	}
	return r.o.Report(switchboard.ToolID{Server: id.Server, Name: id.Name}, digest)
}

// asSent returns a definition with this digest as its server has sent it, with the characters that were removed. If the server offers another one here, it returns the
// definition itself.
func (r *Registrar) asSent(id switchboard.PinID, definition, digest string) []byte {
	if sent := r.o.Board.Uncleaned(id); sent != nil {
		clean, _ := scan.CleanJSON(sent)
		d, err := switchboard.ParseDefinitionDigest(digest)
		if is, failed := admission.DigestOf(clean, d.LeftOut...); err == nil && failed == nil && is == digest {
			return sent
		}
	}
	return []byte(definition)
}

func (r *Registrar) verdict(id switchboard.PinID) (*admission.PinVerdict, error) {
	for _, v := range r.o.Board.Verdicts(id.Server) {
		if v.Key == (admission.PinKey{Kind: id.Kind, Name: id.Name}) {
			return &v, nil
		}
	}
	return nil, unknown(id)
}

// ErrUnknown is the cause of a refusal that names a definition which no server offers or has offered.
var ErrUnknown = errors.New("it is not known")

func unknown(id switchboard.PinID) error {
	return &switchboard.Error{Code: switchboard.CodeBadArguments, Cause: ErrUnknown, Text: "no server here offers " + scan.Spell(id.String()) + ", and none has done so; \"switchboard pins list\" lists what is offered"}
}

// lines returns a definition with sorted members, one on each line, with invisible characters spelt out. Long lines are folded.
func lines(definition string) string {
	if definition == "" {
		return ""
	}
	text, err := canonical.Append(nil, []byte(definition))
	if err != nil {
		text = []byte(definition)
	}
	var indented bytes.Buffer
	if json.Indent(&indented, text, "", "  ") != nil {
		return scan.Spell(definition) + "\n"
	}
	var out strings.Builder
	for line := range strings.SplitSeq(indented.String(), "\n") {
		foldLine(&out, scan.Spell(line))
	}
	return out.String()
}

// Widths of folded lines, in characters.
const (
	foldAlways   = 100 // longer lines are folded
	foldSentence = 20  // a part ends at the end of a sentence, if it has so many
	foldWord     = 90  // or behind the next space
	foldAnywhere = 140
)

// foldLine writes a line of JSON, in several lines if it is long. Each of them but the first begins with "| ", as no line of JSON does. A line ends where a sentence does, so
// that the difference of two long texts shows the sentences that differ.
func foldLine(out *strings.Builder, line string) {
	if utf8.RuneCountInString(line) <= foldAlways {
		out.WriteString(line + "\n")
		return
	}
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	width, before := 0, ""
	for at := 0; at < len(line); {
		part := nextPart(line[at:])
		out.WriteString(part)
		at += len(part)
		width += utf8.RuneCountInString(part)
		sentence := part == `\n` || part == " " && (before == "." || before == "!" || before == "?")
		if before = part; at < len(line) && (sentence && width >= foldSentence || part == " " && width >= foldWord || width >= foldAnywhere) {
			out.WriteString("\n" + indent + "| ")
			width = 0
		}
	}
	out.WriteByte('\n')
}

// nextPart returns the first character of a text, or the first escape, which is not taken apart.
func nextPart(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	if text[0] != '\\' || len(text) < 2 {
		return text[:size]
	}
	if end := strings.IndexByte(text, '}'); strings.HasPrefix(text, `\u{`) && end > 0 && end <= len(`\u{10ffff`) {
		return text[:end+1]
	}
	if text[1] == 'u' && len(text) >= len(`\u0000`) {
		return text[:len(`\u0000`)]
	}
	_, size = utf8.DecodeRuneInString(text[1:])
	return text[:1+size]
}

// A PinDecision is what an officer decides about a definition.
type PinDecision struct {
	ID  switchboard.PinID
	To  switchboard.LifeState // active accepts
	By  switchboard.Officer
	Why string

	// Digest is the digest of the definition that the officer has looked at: the offered one, if it differs from the admitted one. Only to accept needs it.
	Digest string

	Successor string // for deprecated
}

// methods are the names of decisions in receipts.
var methods = map[switchboard.LifeState]string{
	switchboard.LifeActive: "accept", switchboard.LifeSuspended: "suspend", switchboard.LifeRetired: "retire", switchboard.LifeDeprecated: "deprecate",
}

// Decide carries a decision out, and returns the definition as it is then. What takes out counts at once. The error is a *switchboard.Error: SB-CONF-002 if the
// definition is not the one that the officer has looked at, SB-CONF-003 if a definition is let in and the files are not changed here. Its cause is ErrUnknown if there is no such
// definition.
func (r *Registrar) Decide(ctx context.Context, d PinDecision) (*PinDetail, error) {
	if _, err := r.verdict(d.ID); err != nil {
		return nil, err
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	if seen := r.report(d.ID, d.Digest); d.To == switchboard.LifeActive && seen != nil && !seen.Verified && d.Why == "" {
		return nil, &switchboard.Error{
			Code: switchboard.CodeBadArguments, Text: scan.Spell(d.ID.String()) + " was verified, and its report does not speak for it: " + scan.Spell(seen.Why),
			Hint: "nothing was let in; say why you let it in all the same (reason)",
		}
	}
	err := r.o.Record(receipt.Receipt{
		Principal: receipt.Subject{ID: d.By.ID, Auth: d.By.Auth}, Server: d.ID.Server, Method: methods[d.To],
		Note: strings.TrimSpace(scan.Spell(d.ID.String()) + " " + d.Digest + " " + scan.Spell(d.Why)),
	}, func() error { return r.decide(ctx, d) })
	if err != nil && d.To == switchboard.LifeActive {
		return nil, err
	}
	r.o.Admit(ctx) // also if the file does not have yet what the store has
	if err != nil {
		return nil, err
	}
	return r.Detail(d.ID)
}

func (r *Registrar) decide(ctx context.Context, d PinDecision) error {
	if d.To != switchboard.LifeActive { // the store first: it counts at once
		if err := r.keep(d); err != nil {
			return err
		}
		err := r.write(ctx, d)
		if own, ok := errors.AsType[*switchboard.Error](err); ok && own.Code == switchboard.CodeNotChangedHere {
			return nil // the store has it
		}
		return err
	}
	if !r.o.HasFile {
		return r.keep(d)
	}
	if err := r.write(ctx, d); err != nil {
		return err
	}
	return r.keep(d)
}

// check reports why admitted.lock cannot have the decision, with any digest. Then a store without the file does not take the decision either.
func (d *PinDecision) check() error {
	line := switchboard.AdmittedPin{PinID: d.ID, Digest: "d1:" + strings.Repeat("0", 64), State: d.To, Successor: d.Successor, By: d.By.ID, At: now()}
	if _, err := lockfile.SetAdmitted(nil, line); err != nil {
		return &switchboard.Error{Code: switchboard.CodeBadArguments, Text: err.Error(), Hint: "nothing was decided"}
	}
	return nil
}

// next returns the pin after the decision. An error is a *switchboard.Error.
func (d *PinDecision) next(v admission.PinVerdict, at time.Time) (admission.Pin, error) {
	p := v.Pin
	if d.To == switchboard.LifeDeprecated && d.Digest == "" && v.State != switchboard.LifeActive && v.State != switchboard.LifeDeprecated { // it would be let in unseen
		return p, &switchboard.Error{Code: switchboard.CodeBadArguments, Text: scan.Spell(d.ID.String()) + " is " + string(v.State) + ", and only a tool in use gets a successor", Hint: "accept it first, or name the digest of the definition that you have looked at"}
	}
	if d.To == switchboard.LifeActive || d.To == switchboard.LifeDeprecated && d.Digest != "" {
		present, definition := p.Digest, p.Definition
		if v.Other != nil {
			present, definition = v.Other.Digest, v.Other.Definition
		}
		if d.Digest != present {
			return p, changedMeanwhile("its digest is " + present + " now")
		}
		if v.Other != nil && definition == "" {
			return p, &switchboard.Error{Code: switchboard.CodeNotChangedHere, Text: "the offered definition is too large to be kept, so it cannot be let in here; add its line to admitted.lock"}
		}
		p = p.With(present, definition)
	}
	if p.Digest == "" && v.Other != nil { // to take it out, it need not have been let in
		p = p.With(v.Other.Digest, v.Other.Definition)
	}
	p.State, p.Since, p.By, p.Successor = d.To, at, d.By.ID, d.Successor
	return p, nil
}

func changedMeanwhile(hint string) error {
	return &switchboard.Error{Code: switchboard.CodeChangedMeanwhile, Text: "the definition is not the one that was looked at; nothing was let in", Hint: hint + "; look at it: switchboard pins diff"}
}

// keep writes the decision into the store.
func (r *Registrar) keep(d PinDecision) error {
	ctx, cancel := context.WithTimeout(r.o.Stopping, decideTimeout)
	defer cancel()
	known, err := r.o.Board.Decide(ctx, d.ID, func(v admission.PinVerdict) (admission.Pin, error) {
		if d.To == switchboard.LifeActive && r.o.HasFile && v.Other == nil && v.Pin.Digest == d.Digest {
			p := v.Pin // the file has let it in
			p.State, p.Since, p.By = d.To, now(), d.By.ID
			return p, nil
		}
		if d.To == switchboard.LifeActive && v.Other == nil && v.State == switchboard.LifeActive && v.Pin.By != "" {
			return v.Pin, changedMeanwhile(v.Pin.By + " has let it in")
		}
		return d.next(v, now())
	})
	if err == nil && !known {
		return unknown(d.ID)
	}
	return err
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// write writes the decision into admitted.lock.
func (r *Registrar) write(ctx context.Context, d PinDecision) error {
	if !r.o.HasFile {
		return nil
	}
	hint := "nothing was decided; repair the file first"
	if d.To != switchboard.LifeActive { // the store has it
		hint = "it counts, but the file does not have it; repair the file, and decide again"
	}
	_, err := change.EditPins(ctx, r.o.Editor, d.By, d.Why, func(text []byte) ([]byte, error) {
		v, err := r.verdict(d.ID)
		if err != nil {
			return nil, err
		}
		present := map[switchboard.PinID]switchboard.AdmittedPin{}
		if text != nil {
			if present, err = lockfile.Read(lockfile.Name, text); err != nil {
				return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: err.Error(), Hint: hint}
			}
		}
		if e, named := present[d.ID]; named && d.To == switchboard.LifeActive && e.Digest == d.Digest && e.State == d.To {
			return nil, changedMeanwhile(e.By + " has let it in")
		}
		p, err := d.next(*v, now())
		if err != nil {
			return nil, err
		}
		return lockfile.SetAdmitted(text, switchboard.AdmittedPin{PinID: d.ID, Digest: p.Digest, State: p.State, Successor: p.Successor, By: p.By, At: p.Since})
	})
	return err
}
