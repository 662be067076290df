// Package acquire leads from "I cannot" to "it can": it looks for a tool that gives a capability which nothing here gives, tries it, and asks a person.
//
// A dossier is the record of one such search. It goes through phases, and a gate ends each: research (is there a server that seems to give it?), implement (does its program start in
// strict walls, with a tool that gives it?), validate (was that tool verified?), document (is written down what was seen?) and deploy (a person's yes; in force, with the definitions
// that were tried). A dossier that a gate stops says why, and nothing of it is in force.
//
// The package decides the phases, the gates, and what a proposal of an acquisition has in it. Package registry reads what others publish; package verification tries programs in walls;
// package proposal keeps what a yes would change, and applies it. What a registry says never becomes a command: a proposal is built from the name and the exact version of a package.
package acquire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A SearchPhase is a part of the way of a dossier. Each ends with a gate.
type SearchPhase string

// The phases, in their order.
const (
	Research  SearchPhase = "research"
	Implement SearchPhase = "implement"
	Validate  SearchPhase = "validate"
	Document  SearchPhase = "document"
	Deploy    SearchPhase = "deploy"
)

// Phases are all phases, in their order.
var Phases = []SearchPhase{Research, Implement, Validate, Document, Deploy}

// A Status says how a dossier stands.
type Status string

// The statuses.
const (
	Working   Status = "working"   // Switchboard does the phase
	Waiting   Status = "waiting"   // for a person's review
	Revising  Status = "revising"  // a person has asked for changes; who asked can ask again
	Stopped   Status = "stopped"   // a gate was not passed
	Refused   Status = "refused"   // a person has said no
	Expired   Status = "expired"   // nobody has said anything in time
	Deploying Status = "deploying" // a person has said yes, and the change is being made
	Deployed  Status = "deployed"  // it is in force
)

// ended reports whether nothing follows.
func (s Status) ended() bool {
	return s == Stopped || s == Refused || s == Expired || s == Deployed
}

// Bounds of dossiers.
const (
	MaxOfTenant = 50   // dossiers of one tenant that have not ended, and capabilities that it has acquired
	MaxNote     = 2000 // bytes of a person's note
	MaxReason   = 2000 // bytes of why somebody asks
	maxOfDay    = 50   // dossiers that are opened for one tenant within a day
	maxRounds   = 5    // times that a dossier begins anew after a person has asked for changes
	maxTools    = 5    // tools of one server that are tried
	maxShown    = 20   // candidates that a dossier keeps

	againAfter = time.Hour // until an agent's request that was stopped is looked for again
	reviewTime = 7 * 24 * time.Hour
	keptFor    = 90 * 24 * time.Hour
)

// A Seeker asks for a capability. It is an agent or an officer.
type Seeker struct {
	ID         string             `json:"id"`
	Auth       switchboard.Auth   `json:"auth"`
	Agent      bool               `json:"agent,omitempty"`
	Credential string             `json:"credential,omitempty" hidden:"true"` // of an officer's key
	Task       switchboard.TaskID `json:"task,omitempty"`                     // of an agent
	Request    string             `json:"request,omitempty" doc:"The request for the capability, as the commands about approvals name it."`
}

// A HereTool is a tool that is here already, and that the task does not get for the capability.
type HereTool struct {
	Tool       switchboard.ToolID `json:"tool,omitzero" doc:"Absent if the tenant may not know of it."`
	Why        string             `json:"why" doc:"Why the task does not get it."`
	Confidence int                `json:"confidence,omitempty" doc:"Of an unlabelled tool: how sure the suggestion is that it gives the capability, in hundredths."`
	Label      bool               `json:"label,omitempty" doc:"A label is all that it lacks."`
}

func (f *HereTool) name() string {
	if f.Tool == (switchboard.ToolID{}) {
		return "a tool"
	}
	return f.Tool.String()
}

// A Prospect is something that may give the capability: a server of a registry, or a tool that is here.
type Prospect struct {
	Name       string   `json:"name" doc:"Of the server in its registry, or SERVER/TOOL for a tool that is here."`
	Registry   string   `json:"registry,omitempty" doc:"Where it was found; absent for a tool that is here."`
	Words      string   `json:"words,omitempty" doc:"What it says of itself."`
	Package    string   `json:"package,omitempty" doc:"Of npm."`
	Version    string   `json:"version,omitempty" doc:"The exact version."`
	Integrity  string   `json:"integrity,omitempty" doc:"Of the package's file."`
	Secrets    []string `json:"secrets,omitempty" doc:"The names of the secrets that it needs."`
	Hosts      []string `json:"hosts,omitempty" doc:"The hosts that it names."`
	Findings   []string `json:"findings,omitempty" doc:"What a person should know, such as a name that looks like another one."`
	Confidence int      `json:"confidence" doc:"How sure it is that it gives the capability, in hundredths."`
	Looked     bool     `json:"looked,omitempty" doc:"The confidence follows from the definitions of its tools. Else it follows from its words."`
	Why        string   `json:"why,omitempty" doc:"Why it is not taken."`
	Unclear    string   `json:"unclear,omitempty" doc:"Why it is taken only if an officer names it: it cannot be told from another one."`

	Here switchboard.ToolID `json:"-"`
	seen nameEvidence
}

// A nameEvidence is what was seen of the names of a candidate.
type nameEvidence struct {
	alike    []string // the names of others that its own look like
	mustName bool     // nothing but an officer's word makes it the original
	disowned bool     // its package says that it belongs to another server
}

// A TriedTool is what was seen of a tool in walls.
type TriedTool struct {
	Tool     switchboard.ToolID    `json:"tool"`
	Digest   string                `json:"digest" doc:"Of its definition."`
	Label    string                `json:"label"`
	Risk     switchboard.RiskClass `json:"risk,omitempty"`
	Score    int                   `json:"score" doc:"In thousandths."`
	Verified bool                  `json:"verified"`
	Why      string                `json:"why,omitempty" doc:"Why it is not verified."`
	Report   string                `json:"report,omitempty" doc:"The report as text."`
	Kept     json.RawMessage       `json:"kept,omitempty" hidden:"true"` // the report, which counts once the tool is in force
	Receipt  string                `json:"receipt,omitempty"`
	Took     int64                 `json:"took_ms,omitempty"`
	Errors   []string              `json:"errors,omitempty" doc:"Which wrong arguments it refuses, and which it takes."`
	Effects  []string              `json:"effects,omitempty" doc:"What is known about its effects, its price, and where data comes from and goes to."`
}

// A GateOutcome is the outcome of one gate.
type GateOutcome struct {
	Phase   SearchPhase `json:"phase"`
	Passed  bool        `json:"passed"`
	Why     string      `json:"why" doc:"What passed the gate, or why nothing did."`
	At      time.Time   `json:"at"`
	Receipt string      `json:"receipt,omitempty"`
}

// A ReviewNote is what a person has said about a dossier.
type ReviewNote struct {
	By     string       `json:"by"`
	Answer ReviewAnswer `json:"answer"`
	Text   string       `json:"text,omitempty"`
	At     time.Time    `json:"at"`
}

// FoundParts are what the phases have found.
type FoundParts struct {
	Here        []HereTool  `json:"here"`
	Candidates  []Prospect  `json:"candidates" doc:"The one that is tried comes first."`
	Notices     []string    `json:"notices"` // about registries
	Chosen      string      `json:"chosen,omitempty" doc:"The candidate that is tried."`
	Tools       []TriedTool `json:"tools"`
	Permissions []string    `json:"permissions" doc:"What a yes permits its program."`
	Manual      string      `json:"manual,omitempty" doc:"What was seen, in words: it becomes the comment above the labels."`
	Proposal    string      `json:"proposal,omitempty" doc:"What a yes would change; see proposals."`
	Risk        string      `json:"risk,omitempty"`
}

// A Dossier is the record of one search for a capability.
type Dossier struct {
	ID         string               `json:"id"`
	Tenant     switchboard.TenantID `json:"tenant"`
	Capability string               `json:"capability"`
	Seeker     Seeker               `json:"seeker"`
	Reason     string               `json:"reason,omitempty" doc:"The words of who asks."`
	Only       string               `json:"only,omitempty" doc:"The one candidate that an officer wants to be tried."`

	Phase  SearchPhase `json:"phase"`
	Status Status      `json:"status"`
	Rounds int         `json:"rounds,omitempty" doc:"How often it has begun anew after a person asked for changes."`

	FoundParts
	Passages []GateOutcome `json:"passages"`
	Notes    []ReviewNote  `json:"notes"`

	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	Until   time.Time `json:"until,omitzero" doc:"A review must come before."`
}

// StatusAt returns how the dossier stands at an instant.
func (d *Dossier) StatusAt(now time.Time) Status {
	if d.Status == Waiting && !now.Before(d.Until) {
		return Expired
	}
	return d.Status
}

// Place returns the place of the dossier in a list: the newest comes first.
func (d *Dossier) Place() string {
	return fmt.Sprintf("%016x %s", ^uint64(d.Created.UnixMilli()), d.ID) //nolint:gosec // times after 1970
}

// LastNote returns what a person has said last; nil if there is nothing.
func (d *Dossier) LastNote() *ReviewNote {
	for i := range slices.Backward(d.Notes) {
		if n := &d.Notes[i]; n.By != ownName {
			return n
		}
	}
	return nil
}

// Remainder says what a yes has left undone; "" means nothing.
func (d *Dossier) Remainder() string {
	if n := len(d.Notes); n > 0 && d.Notes[n-1].By == ownName {
		return d.Notes[n-1].Text
	}
	return ""
}

// Progress says in one sentence how the dossier stands, for an agent.
func (d *Dossier) Progress(now time.Time) string {
	switch d.StatusAt(now) {
	case Working:
		return "Switchboard looks for a tool; its phase is " + string(d.Phase)
	case Waiting:
		return "Switchboard has found and tried a tool; a person must say yes"
	case Revising:
		return "a person has asked for changes; ask again with a reason that answers the note"
	case Refused:
		return "a person has said no"
	case Expired:
		return "nobody has decided in time; ask again"
	case Deploying:
		return "a person has said yes, and the tool is being put into force"
	case Deployed:
		return "a tool for it is in force"
	}
	return "Switchboard has found no tool that it may offer: " + stoppedAt[d.Phase]
}

// stoppedAt says to agents where a dossier has stopped. What others have written, such as the words of a program, is for people alone.
var stoppedAt = map[SearchPhase]string{
	Research: "no server that is known gives it", Implement: "what was found cannot be configured", Validate: "what was found did not pass its tests",
	Document: "what was found could not be described", Deploy: "what was found could not be put into force",
}

// Public returns the dossier as it stands now, without the credential of the seeker.
func (d *Dossier) Public() *Dossier {
	public := *d
	public.Seeker.Credential, public.Status = "", d.StatusAt(time.Now())
	public.Tools = slices.Clone(d.Tools)
	for i := range public.Tools {
		public.Tools[i].Kept = nil
	}
	return &public
}

// Text returns the dossier for people. No word of another can look like a line of it.
func (d *Dossier) Text(now time.Time) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	quoted := func(text string) {
		for l := range strings.Lines(scan.SpellLines(text)) {
			b.WriteString("  | " + strings.TrimRight(l, "\n") + "\n")
		}
	}
	line("dossier %s: %s, for tenant %s", d.ID, scan.Spell(d.Capability), d.Tenant)
	line("status: %s, phase %s", d.StatusAt(now), d.Phase)
	who := "officer"
	if d.Seeker.Agent {
		who = "agent"
	}
	line("asked by %s %s, %s", who, scan.Spell(d.Seeker.ID), d.Created.Format("2006-01-02 15:04 UTC"))
	if d.Reason != "" {
		quoted(d.Reason)
	}
	if len(d.Here) > 0 {
		line("\nhere already:")
		for _, h := range d.Here {
			line("  %s: %s", scan.Spell(h.name()), scan.Spell(h.Why))
		}
	}
	if len(d.Candidates) > 0 {
		line("\ncandidates:")
	}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		mark, chosen := " ", i == 0 && d.Chosen != ""
		if chosen {
			mark = "*"
		}
		basis := " by its words"
		if c.Looked || c.here() {
			basis = ""
		}
		line("%s %s %s, confidence 0.%02d%s", mark, scan.Spell(c.Name), scan.Spell(packageOf(c)), min(c.Confidence, 99), basis)
		if c.Registry != "" {
			line("    registry %s; integrity %s", scan.Spell(c.Registry), scan.Spell(cmp.Or(c.Integrity, "not asked for")))
		}
		if len(c.Hosts) > 0 {
			line("    hosts: %s", scan.Spell(strings.Join(c.Hosts, ", ")))
		}
		if c.Words != "" {
			quoted(c.Words)
		}
		for _, f := range c.Findings {
			line("    %s", scan.Spell(f))
		}
		if len(c.Secrets) > 0 {
			line("    it needs: %s", scan.Spell(strings.Join(c.Secrets, ", ")))
		}
		if why := cmp.Or(c.Why, c.Unclear); why != "" && !chosen {
			line("    not taken: %s", scan.Spell(why))
		}
	}
	if len(d.Notices) > 0 {
		line("\nabout the registries:")
	}
	for _, n := range d.Notices {
		line("  %s", scan.Spell(n))
	}
	if len(d.Tools) > 0 {
		line("\ntried in strict walls:")
	}
	for i := range d.Tools {
		t := &d.Tools[i]
		said := "verified"
		if !t.Verified {
			said = "not verified: " + scan.Spell(t.Why)
		}
		line("  %s (%s): score %d.%03d, %s", scan.Spell(t.Tool.String()), scan.Spell(t.Label), t.Score/1000, t.Score%1000, said)
		for _, e := range t.Effects {
			line("    %s", scan.Spell(e))
		}
	}
	if len(d.Permissions) > 0 {
		line("\npermissions that a yes gives: %s", scan.Spell(strings.Join(d.Permissions, "; ")))
	}
	if d.Manual != "" {
		line("\nwhat was seen:")
		quoted(d.Manual)
	}
	if len(d.Passages) > 0 {
		line("\ngates:")
	}
	for _, p := range d.Passages {
		outcome := "stopped"
		if p.Passed {
			outcome = "passed"
		}
		line("  %-9s %s: %s", p.Phase, outcome, scan.Spell(p.Why))
	}
	for _, n := range d.Notes {
		line("\n%s said %s, %s", scan.Spell(n.By), n.Answer, n.At.Format("2006-01-02 15:04 UTC"))
		if n.Text != "" {
			quoted(n.Text)
		}
	}
	if d.StatusAt(now) == Waiting {
		line("\nA yes makes the change of proposal %s, and gives the capability to who asked. Read it: switchboard proposals show %s", d.Proposal, d.Proposal)
		line("Until %s.", d.Until.Format("2006-01-02 15:04 UTC"))
	}
	return b.String()
}

func packageOf(c *Prospect) string {
	if c.Package == "" {
		return "(here)"
	}
	return c.Package + "@" + c.Version
}

// choose takes one of the candidates as the one that is tried. It comes first then: another one can have the same name, in another registry.
func (d *Dossier) choose(c *Prospect) {
	d.Chosen = c.Name
	for i := range d.Candidates {
		if &d.Candidates[i] == c {
			d.Candidates = slices.Concat([]Prospect{*c}, d.Candidates[:i], d.Candidates[i+1:])
			return
		}
	}
}
