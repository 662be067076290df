// Package pins is what officers see and do about the definitions that servers offer: they list what is let in, read what has changed, let a change in, and take
// definitions out.
//
// It decides what an officer reads, and in which order a decision is written: into admitted.lock where Switchboard may change it, and into the store. Package admission
// decides what a change means, and package pin keeps the pins. The API, the commands and the page all go through here.
package pins

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/change"
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

	// Record makes a decision between two receipts: its intent and its outcome. See admin.Actions.
	Record func(r receipt.Receipt, do func() error) error

	Stopping context.Context // done when the time to stop is over
}

// A Registrar does what officers do about pins. Use New. It is safe for concurrent use.
type Registrar struct{ o Options }

// New returns a Registrar.
func New(o Options) *Registrar { return &Registrar{o} }

// A PinRow is one definition in a list.
type PinRow struct {
	Server switchboard.ServerID `json:"server"`
	Kind   switchboard.PinKind  `json:"kind" doc:"tool, prompt, template or instructions."`
	Name   string               `json:"name,omitempty" doc:"The URI template of a template; absent for instructions."`

	State   switchboard.LifeState `json:"state" doc:"testing, active, deprecated, retired, suspended, or new: no person has let it in."`
	Frozen  bool                  `json:"frozen,omitempty" doc:"The server offers another definition, and the admitted one stays in use."`
	Why     string                `json:"why,omitempty"`
	KeptOut bool                  `json:"kept_out,omitempty" doc:"Of a tool: it is new only because the operator's rules of the phase admit keep it out."`
	Digest  string                `json:"digest,omitempty" doc:"Of the admitted definition."`

	Risk switchboard.RiskClass `json:"risk,omitempty" doc:"Of a tool: how much a call can harm, as far as facts tell: safe, low, medium, high or prohibited."`

	Offered   string `json:"offered,omitempty" doc:"The digest of the definition that the server offers in its place. To accept it, name this digest."`
	Class     string `json:"class,omitempty" doc:"What the change means: words, wider, narrower, freer or poisoned."`
	Successor string `json:"successor,omitempty" doc:"SERVER/TOOL, of a deprecated tool."`

	Since time.Time `json:"since,omitzero" doc:"The first sight, or the decision."`
	By    string    `json:"by,omitempty" doc:"Who has decided; absent after the first sight alone."`
	Gone  time.Time `json:"gone,omitzero" doc:"Since when the server does not offer it."`
}

// A PinDetail is one definition with its texts.
type PinDetail struct {
	PinRow
	Differs  []string                  `json:"differs,omitempty" doc:"The members that differ, the first few."`
	Diff     string                    `json:"diff,omitempty" doc:"The admitted definition and the offered one, line by line. Characters that are not visible are spelt out."`
	Findings []switchboard.RuleFinding `json:"findings,omitempty" doc:"What the rules about words have found in the admitted definition of a tool."`
	Text     string                    `json:"text,omitempty" doc:"The definition in use, if nothing differs."`
}

func (r *Registrar) rowOf(id switchboard.ServerID, v *admission.PinVerdict) PinRow {
	row := PinRow{
		Server: id, Kind: v.Key.Kind, Name: scan.Spell(v.Key.Name), State: v.State, Frozen: v.Frozen, Why: scan.Spell(v.Why), Digest: v.Pin.Digest,
		Successor: v.Successor, Since: v.Pin.Since, By: v.Pin.By, Gone: v.Pin.Gone,
	}
	if v.Other != nil {
		row.Offered, row.Class, row.Since = v.Other.Digest, v.Other.Class.String(), v.Other.Since
		if v.State == switchboard.LifeNew {
			row.Class = ""
		}
	}
	if v.Key.Kind == switchboard.PinTool && r.o.Tool != nil {
		if t := r.o.Tool(switchboard.ToolID{Server: id, Name: v.Key.Name}); t != nil {
			row.Risk = t.Contract.Risk
			if a := t.Admission; a != nil && a.State == switchboard.LifeNew && v.State != switchboard.LifeNew { // the operator's rules keep it out
				row.State, row.Frozen, row.KeptOut, row.Why = a.State, false, true, scan.Spell(a.Why)
			}
		}
	}
	return row
}

// Rows returns the definitions of a server, or of all servers if id is "", sorted. With changed, only those that are not plainly active.
func (r *Registrar) Rows(id switchboard.ServerID, changed bool) (rows []PinRow) {
	servers := []switchboard.ServerID{id}
	if id == "" {
		servers = r.o.Board.Servers()
	}
	rows = []PinRow{}
	for _, id := range servers {
		for _, v := range r.o.Board.Verdicts(id) {
			if row := r.rowOf(id, &v); !changed || row.State != switchboard.LifeActive || row.Frozen || !row.Gone.IsZero() {
				rows = append(rows, row)
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b PinRow) int { return cmp.Compare(a.Server, b.Server) })
	return rows
}

// PlaceOf returns the place of a row in the order of Rows.
func PlaceOf(row PinRow) string {
	return string(row.Server) + " " + string(row.Kind) + " " + row.Name
}

// Detail returns one definition with its texts. The error is a *switchboard.Error; its cause is ErrUnknown if there is no such definition.
func (r *Registrar) Detail(id switchboard.PinID) (*PinDetail, error) {
	v, err := r.verdict(id)
	if err != nil {
		return nil, err
	}
	d := &PinDetail{PinRow: r.rowOf(id.Server, v)}
	if v.Pin.Words != nil {
		d.Findings = v.Pin.Words.Found
	}
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

// lines returns a definition with sorted members, one on each line, with invisible characters spelt out.
func lines(definition string) string {
	if definition == "" {
		return ""
	}
	text, err := canonical.Append(nil, []byte(definition))
	if err != nil {
		text = []byte(definition)
	}
	var out bytes.Buffer
	if json.Indent(&out, text, "", "  ") != nil {
		return scan.Spell(definition) + "\n"
	}
	all := strings.Split(out.String(), "\n")
	for i := range all {
		all[i] = scan.Spell(all[i])
	}
	return strings.Join(all, "\n") + "\n"
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
	err := r.o.Record(receipt.Receipt{
		Principal: receipt.Subject{ID: d.By.ID, Auth: d.By.Auth}, Server: d.ID.Server, Method: methods[d.To],
		Note: strings.TrimSpace(scan.Spell(d.ID.String()) + " " + d.Digest + " " + scan.Spell(d.Why)),
	}, func() error { return r.decide(ctx, d) })
	if err != nil {
		return nil, err
	}
	r.o.Admit(ctx)
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
	_, err := change.EditPins(ctx, r.o.Editor, d.By, d.Why, func(text []byte) ([]byte, error) {
		v, err := r.verdict(d.ID)
		if err != nil {
			return nil, err
		}
		present := map[switchboard.PinID]switchboard.AdmittedPin{}
		if text != nil {
			if present, err = lockfile.Read(lockfile.Name, text); err != nil {
				return nil, &switchboard.Error{Code: switchboard.CodeConfig, Text: err.Error(), Hint: "nothing was decided; repair the file first"}
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
