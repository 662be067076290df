// Package proposal keeps proposals. A proposal is a change of the configuration's files with claims about its effect. It is made only if the claims hold.
//
// A proposal has files, with their whole new texts, and claims. It is tried on a state that is built aside; people say yes to it, as many as its risk needs; it is
// applied as one change, and its claims are checked on the state that is then served. If one does not hold, the old files are put back at once.
//
// The package decides how risky a proposal is, who must say yes, whether its claims hold, and in which order it is applied and taken back. Package change writes
// the files and decides which office a file needs. Package config decides what the files mean.
package proposal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Bounds of proposals.
const (
	MaxFiles  = config.MaxJournalFiles
	MaxBytes  = 1 << 20 // of all texts
	MaxClaims = 64
	MaxNote   = 2000 // bytes
	MaxOpen   = 200  // of one tenant; those of the operator's files count as those of a tenant
	maxEnded  = 200  // of one tenant; the oldest go first

	openFor = 7 * 24 * time.Hour
	keptFor = 30 * 24 * time.Hour
)

// A State says how far a proposal is.
type State string

// The states.
const (
	Open       State = "open"        // it was tried; it waits for persons, or to be applied
	Applying   State = "applying"    // its files are being exchanged, or its claims checked
	Applied    State = "applied"     // it is in force, and its claims hold
	RolledBack State = "rolled_back" // it was in force, and is not any more
	Failed     State = "failed"      // it was rolled out elsewhere, and a claim does not hold
	Refused    State = "refused"     // a person has said no
	Stale      State = "stale"       // its files were changed since it was tried
	Expired    State = "expired"     // nobody has applied it in time
)

// A Proposer is the officer or the agent that proposes.
type Proposer struct {
	ID         string               `json:"id"`
	Auth       switchboard.Auth     `json:"auth"`
	Agent      bool                 `json:"agent,omitempty"`
	Tenant     switchboard.TenantID `json:"tenant,omitempty"` // of an agent
	Credential string               `json:"credential,omitempty"`
}

// ByOfficer returns the officer as a proposer.
func ByOfficer(o *switchboard.Officer) Proposer {
	return Proposer{ID: o.ID, Auth: o.Auth, Credential: o.Credential}
}

// isPerson reports whether the officer is the proposer, or the person behind it. An agent without a key is not the reader of the data folder, though both are called local: where no
// person has a key, nobody else can say yes, and where persons have keys, that reader is no person at all.
func (p *Proposer) isPerson(o *switchboard.Officer) bool {
	if p.Agent && p.Auth == switchboard.AuthLocal && o.Auth == switchboard.AuthDataFolder {
		return false
	}
	return o.ID == p.ID || o.Credential != "" && o.Credential == p.Credential || p.Agent && (o.ID == switchboard.PersonBehind(p.ID) || strings.HasPrefix(p.ID, o.ID+"@"))
}

// A FileDraft is the change of one file that a proposal wants.
type FileDraft struct {
	Path   string  `json:"path" minLength:"1" maxLength:"512" doc:"Relative to the folder of the configuration."`
	Text   *string `json:"text,omitempty" maxLength:"1048576" doc:"The whole new text; absent if the file is to be deleted."`
	Delete bool    `json:"delete,omitempty" doc:"Delete the file."`
	ETag   string  `json:"etag,omitempty" maxLength:"80" doc:"The entity tag of the text that the proposer has read. Without it: of the present text."`
}

// bytes returns the new text, nil for a deletion.
func (f *FileDraft) bytes() []byte {
	if f.Text == nil {
		return nil
	}
	return []byte(*f.Text)
}

// A Draft is what a proposer writes.
type Draft struct {
	Note   string        `json:"note" maxLength:"2000" doc:"Why, for the people who decide."`
	Files  []FileDraft   `json:"files" minItems:"1" maxItems:"64" nullable:"false"`
	Claims []StatedClaim `json:"claims,omitempty" maxItems:"64"`
}

// check refuses a draft that is malformed.
func (d *Draft) check() error {
	refuse := func(format string, args ...any) error {
		return switchboard.Refuse(switchboard.CodeBadArguments, format, args...)
	}
	switch {
	case strings.TrimSpace(d.Note) == "":
		return refuse("a proposal needs a note that says why")
	case len(d.Note) > MaxNote:
		return refuse("the note has %d bytes; at most %d", len(d.Note), MaxNote)
	case len(d.Files) == 0 || len(d.Files) > MaxFiles:
		return refuse("a proposal has 1 to %d files, not %d", MaxFiles, len(d.Files))
	case len(d.Claims) > MaxClaims:
		return refuse("a proposal has at most %d claims, not %d", MaxClaims, len(d.Claims))
	}
	total := 0
	for i := range d.Files {
		f := &d.Files[i]
		if (f.Text != nil) == f.Delete {
			return refuse("file %.200q: give its text, or delete: true", f.Path)
		}
		total += len(f.bytes())
	}
	if total > MaxBytes {
		return refuse("the texts have %d bytes together; at most %d", total, MaxBytes)
	}
	decisions := 0
	for i := range d.Claims {
		if err := d.Claims[i].check(); err != nil {
			return refuse("claim %d: %s", i+1, err)
		}
		if d.Claims[i].Decisions > 0 {
			decisions++
		}
	}
	if decisions > maxCompared {
		return refuse("at most %d claims are about decisions, since they are checked in the time of one", maxCompared)
	}
	return nil
}

// digest returns the SHA-256 of the draft. A yes is a yes to this digest.
func (d *Draft) digest() string {
	text, _ := json.Marshal(d) // texts and numbers can be encoded
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// A PersonVote is a person's yes or no.
type PersonVote struct {
	By         string           `json:"by"`
	Auth       switchboard.Auth `json:"auth"`
	Credential string           `json:"credential,omitempty"`
	Yes        bool             `json:"yes"`
	Note       string           `json:"note,omitempty"`
	At         time.Time        `json:"at"`

	Claims map[string][]string `json:"claims,omitempty" hidden:"true"` // of a person who has signed in; see switchboard.Officer
}

// A KeptProposal is one proposal as it is stored, without the texts of its files.
type KeptProposal struct {
	ID       string               `json:"id"`
	State    State                `json:"state"`
	Tenant   switchboard.TenantID `json:"tenant,omitempty"` // whose files it changes; "" means that some are the operator's
	Proposer Proposer             `json:"proposer"`
	Note     string               `json:"note"`
	Digest   string               `json:"digest"` // SHA-256 of note, files and claims
	Created  time.Time            `json:"created"`
	Changed  time.Time            `json:"changed"` // its state

	Files  []TouchedFile `json:"files"`
	Claims []StatedClaim `json:"claims"`

	Review // what the people who decide read

	Votes []PersonVote `json:"votes"`

	Outcome // how it was applied
}

// A TouchedFile is a file of a proposal, with the digests of the texts before and after; "" means that there is no file.
type TouchedFile struct {
	Path   string               `json:"path"`
	Tenant switchboard.TenantID `json:"tenant,omitempty"` // whose file it is
	Before string               `json:"before_digest,omitempty"`
	After  string               `json:"after_digest,omitempty"`
}

// A Review is what a trial has found.
type Review struct {
	Risk  Risk        `json:"risk"`
	Parts []RiskyPart `json:"parts"`

	Needed   int      `json:"needed"` // how many persons must say yes
	Warnings []string `json:"warnings"`
	Effect   string   `json:"effect"` // in words

	Tasks    []change.TaskChange   `json:"tasks"`              // that would get other tools
	Untried  int                   `json:"untried,omitempty"`  // tasks that were not tried
	Past     *change.PastDecisions `json:"past,omitempty"`     // what last week's decisions would have been
	Unproved []string              `json:"unproved,omitempty"` // claims about a server that runs only afterwards

	TakesBack string `json:"takes_back,omitempty"` // the recent change that it takes back, in words
}

// An Outcome says how a proposal was applied.
type Outcome struct {
	By       string   `json:"by,omitempty"`       // who has applied or ended it
	Revision string   `json:"revision,omitempty"` // the id of the change, in the history
	Why      string   `json:"why,omitempty"`      // why it was refused, is stale or was rolled back
	Broken   []string `json:"broken,omitempty"`   // the claims that did not hold, and why

	Place string `json:"place,omitempty"` // where it is being applied
}

// A content is what is stored of a proposal beside it: too much to be read for a list.
type content struct {
	Draft  Draft  `json:"draft"`
	Diff   string `json:"diff"`
	Before Lists  `json:"before"` // what tasks got before it
}

// Lists are the tools of tasks, by tenant and task.
type Lists map[switchboard.TenantID]map[switchboard.TaskID][]string

// yeses returns the number of persons who have said yes.
func (p *KeptProposal) yeses() int {
	n := 0
	for _, v := range p.Votes {
		if v.Yes {
			n++
		}
	}
	return n
}

// stateAt returns the state at an instant.
func (p *KeptProposal) stateAt(now time.Time) State {
	if p.State == Open && now.Sub(p.Created) > openFor {
		return Expired
	}
	return p.State
}

// wish returns the change that makes the files of a draft, in the place of those that were tried.
func (p *KeptProposal) wish(d *Draft, by switchboard.Officer) change.Wish {
	w := change.Wish{By: by, Reason: p.Note, Source: "proposal " + p.ID, SkipPast: true}
	for i := range d.Files {
		f := change.FileWish{Path: d.Files[i].Path, Text: d.Files[i].bytes()}
		if before := p.Files[i].Before; before != "" {
			f.IfMatch = `"` + before + `"`
		}
		if i == 0 {
			w.FileWish = f
		} else {
			w.More = append(w.More, f)
		}
	}
	return w
}

// needed returns how many persons must say yes. holds says that the proposer is an officer who may change all files.
func needed(r Risk, holds bool) int {
	switch {
	case r == Low, r == Medium && holds:
		return 0
	case r == Medium, r == High:
		return 1
	}
	return 2
}

// A TaskWorld is one state, in force or built aside, with its configuration.
type TaskWorld struct {
	*change.TaskState
	Config *config.Config

	// FilesUnchanged reports whether the files still have the texts that this state was made from.
	FilesUnchanged func() bool
}

// isOf reports whether the state was made from the present texts of the files of a proposal. A part with a fault keeps what it was.
func (w *TaskWorld) isOf(p *KeptProposal) bool {
	faulty := func(f config.FaultyPart) bool {
		return slices.ContainsFunc(p.Files, func(t TouchedFile) bool { return t.Tenant == f.Tenant })
	}
	return !slices.ContainsFunc(w.Config.Faulty, faulty) && w.FilesUnchanged()
}

// lists returns what the tasks of the tenants get. The error says that there are too many tasks.
func (w *TaskWorld) lists(ctx context.Context, tenants []switchboard.TenantID) (Lists, error) {
	out := Lists{}
	n := 0
	for _, t := range tenants {
		out[t] = map[switchboard.TaskID][]string{}
		for _, task := range w.Tasks(t) {
			if n++; n > maxTasks {
				return nil, fmt.Errorf("there are more than %d tasks to look at", maxTasks)
			}
			out[t][task] = w.Look(ctx, t, task).Tools
		}
	}
	return out, ctx.Err()
}

// maxTasks limits the tasks that the claims of one proposal look at.
const maxTasks = 500

// tenantsOf returns the tenants that a claim calls unchanged, sorted.
func tenantsOf(claims []StatedClaim) []switchboard.TenantID {
	var out []switchboard.TenantID
	for i := range claims {
		if claims[i].Unchanged {
			out = append(out, claims[i].Tenant)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Public returns the proposal without what identifies credentials.
func (p *KeptProposal) Public() KeptProposal {
	out := *p
	out.Proposer.Credential = ""
	out.Votes = append([]PersonVote{}, p.Votes...)
	for i := range out.Votes {
		out.Votes[i].Credential, out.Votes[i].Claims = "", nil
	}
	return out
}
