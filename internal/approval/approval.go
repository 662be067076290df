// Package approval keeps requests for a person's yes: to a call that waits, or to a capability that an agent lacks.
//
// It decides which requests there are, who may decide them, and that a yes is used once: over all replicas and processes that share the
// store. Policy decides which calls need a yes; package commit decides when the yes is used; what people see and send belongs to the
// admin side.
//
// A request has one value in the store for each binding: an HMAC over everything that the person says yes to. So the same call finds the
// same request on every replica, and a changed argument, definition or rule is another request.
//
//	pending → approved → used        pending → refused | withdrawn        approved → revoked
//
// Each arrow is one compare-and-set. Past Until, pending and approved both read as expired.
package approval

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Kind says what a request asks for.
type Kind string

// The kinds.
const (
	ForCall       Kind = "call"       // one call
	ForCapability Kind = "capability" // a requirement more, for a run or a task
)

// State says how far a request is.
type State string

// The states. Expired is never stored: StateAt returns it.
const (
	Pending   State = "pending"
	Approved  State = "approved"
	Used      State = "used"
	Refused   State = "refused"
	Withdrawn State = "withdrawn" // by the agent
	Revoked   State = "revoked"   // by a person, after a yes
	Expired   State = "expired"
)

// States are all states.
var States = []State{Pending, Approved, Used, Refused, Withdrawn, Revoked, Expired}

// Open reports whether the request may still lead to something.
func (s State) Open() bool { return s == Pending || s == Approved }

// ByClient is the By of a vote that came from the agent's own client. It is no proof of a person. A person may have this id too: see Vote.ByForm.
const ByClient = "client"

// authForm is the Auth of a vote by a form at the agent's own client.
const authForm switchboard.Auth = "client_form"

// byForm is the author of such votes.
var byForm = switchboard.Officer{ID: ByClient, Auth: authForm}

// ByForm reports whether the vote came from a form at the agent's own client.
func (v *Vote) ByForm() bool { return v.Auth == authForm }

// MaxNote is the longest note of a person, in bytes.
const MaxNote = 2000

// A Vote is what one person has said.
type Vote struct {
	By   string           `json:"by"` // the officer's id, or ByClient
	Auth switchboard.Auth `json:"auth,omitempty"`

	// Credential and Claims identify the officer, so that its office can be checked again when the yes is used. See switchboard.Officer.
	Credential string              `json:"credential,omitempty"`
	Claims     map[string][]string `json:"claims,omitempty"`

	Yes  bool      `json:"yes"`
	Note string    `json:"note,omitempty"` // the person's words, for the agent
	At   time.Time `json:"at"`
}

// samePerson reports whether two votes are of one person.
func (v *Vote) samePerson(o *Vote) bool {
	return v.By == o.By || v.Credential != "" && v.Credential == o.Credential
}

// A Request asks people for something. It is immutable: Keeper returns new ones.
type Request struct {
	Number int  `json:"number"` // of the requests with this binding, from 1
	Kind   Kind `json:"kind"`

	Asker  Asker    `json:"asker"`
	Target Target   `json:"target"`
	Terms  AskTerms `json:"terms"`

	Asked time.Time `json:"asked"`

	// Until is when a request that is pending or approved expires.
	Until time.Time `json:"until"`

	Stored State  `json:"state"` // see StateAt
	Votes  []Vote `json:"votes,omitempty"`
	Grant  Grant  `json:"grant,omitzero"` // of an approved capability

	// EndedBy names the author of a withdrawal or a revocation, or the intent that has used the request.
	EndedBy string    `json:"ended_by,omitempty"`
	EndedAt time.Time `json:"ended_at,omitzero"`

	// Before are the last requests of this binding, the newest first; at most 3.
	Before []Earlier `json:"before,omitempty"`

	// Binding is the whole binding. ID has a short form of it.
	Binding string `json:"binding"`

	memory *requestMemory // how the store has it
}

// An Asker is the principal behind a request.
type Asker struct {
	Tenant    switchboard.TenantID `json:"tenant"`
	Principal string               `json:"principal"`
	Auth      switchboard.Auth     `json:"auth,omitempty"`
	Mode      switchboard.Mode     `json:"mode,omitempty"`
	Task      switchboard.TaskID   `json:"task,omitempty"`
	Run       switchboard.RunID    `json:"run,omitempty"` // that asked first; the binding leaves it out for a call

	// Keys are the keys of the person who asked, as Officer.Credential names them; none for an agent, and for a person who has signed in. A key keeps its
	// hash when its row gets another id.
	Keys []string `json:"keys,omitempty"`
}

// A Target is what is asked for. A capability has the members from Capability on. A call has those up to Capability.
type Target struct {
	Method     string               `json:"method,omitempty"`
	Server     switchboard.ServerID `json:"server,omitempty"`
	Tool       string               `json:"tool,omitempty"`       // the server's name of the tool, or the kind and name of another item
	Definition switchboard.Digest   `json:"definition,omitempty"` // of the tool
	Arguments  string               `json:"arguments,omitempty"`  // a keyed digest of the canonical arguments
	Bytes      int                  `json:"bytes,omitempty"`      // of the params
	ReadOnly   bool                 `json:"readonly,omitempty"`   // the tool is said to change nothing outside
	Vouched    bool                 `json:"vouched,omitempty"`    // a trusted source says so

	// Item is set for a call that is not of a tool. The store keeps its Name and its URI sealed, and only until the request ends: then it has its Kind alone, and so
	// has Tool.
	Item switchboard.Item `json:"item,omitzero"`

	// Requirements are the requirements that selected the tool, or any tool of its server.
	Requirements []switchboard.Requirement `json:"requirements,omitempty"`

	Capability string `json:"capability,omitempty"` // as the agent named it; of a call, the version that the tool provides, as ID@VERSION
	Row        string `json:"row,omitempty"`        // the operator's row that allows to ask
	Reason     string `json:"reason,omitempty"`     // the agent's words

	// Unoffered says that nothing offered the capability when it was asked for. ForRun is set if the principal has the capability in another
	// run already: then the request is for this run alone.
	Unoffered bool              `json:"unoffered,omitempty"`
	ForRun    switchboard.RunID `json:"for_run,omitempty"`
}

// ID returns server/tool.
func (t *Target) ID() switchboard.ToolID { return switchboard.ToolID{Server: t.Server, Name: t.Tool} }

// Label returns server/tool, and server/kind of anything else: its name may be a URI, which may hold secrets. It is for everybody who may not see arguments.
func (t *Target) Label() switchboard.ToolID {
	id := t.ID()
	if t.Item.Kind != "" {
		id.Name = string(t.Item.Kind)
	}
	return id
}

// AskTerms are the rules that ask, and the persons that may answer.
type AskTerms struct {
	Rules      []switchboard.AskingRule `json:"rules,omitempty"`
	Who        []string                 `json:"who,omitempty"`    // offices, roles or persons, sorted; empty means the office approver
	Quorum     int                      `json:"quorum,omitempty"` // how many persons must say yes; 0 means 1
	NoStanding bool                     `json:"no_standing,omitempty"`
}

// Needed returns how many persons must say yes.
func (t *AskTerms) Needed() int { return max(t.Quorum, 1) }

// A Grant says how long, and where, an approved capability is there.
type Grant struct {
	Scope string    `json:"scope,omitempty" doc:"run or task"`
	Until time.Time `json:"until,omitzero"`
}

// Place says where the capability is there.
func (g *Grant) Place() string {
	if g.Scope == ScopeTask {
		return "all runs of the task"
	}
	return "the run that asked"
}

// An Earlier is an earlier request of the same binding.
type Earlier struct {
	Number int       `json:"number"`
	State  State     `json:"state"`
	By     string    `json:"by,omitempty"` // who has ended it
	Note   string    `json:"note,omitempty"`
	At     time.Time `json:"at"`
}

// ID returns the id of the request: a short form of its binding, and its number.
func (r *Request) ID() string { return shortBinding(r.Binding) + "-" + strconv.Itoa(r.Number) }

// StateAt returns the state at an instant.
func (r *Request) StateAt(now time.Time) State {
	end := r.Until
	if r.Kind == ForCapability && r.Stored == Approved {
		end = r.Grant.Until
	}
	if r.Stored.Open() && !now.Before(end) {
		return Expired
	}
	return r.Stored
}

// Yeses returns how many persons have said yes.
func (r *Request) Yeses() (n int) {
	for i := range r.Votes {
		if r.Votes[i].Yes {
			n++
		}
	}
	return n
}

// Last returns the last vote; nil if there is none.
func (r *Request) Last() *Vote {
	if len(r.Votes) == 0 {
		return nil
	}
	return &r.Votes[len(r.Votes)-1]
}

// The errors that callers branch on.
var (
	// ErrNoRequest says that there is no such request, or none that the caller may see.
	ErrNoRequest = errors.New("there is no such request")

	// ErrUnreadable says that a request keeps arguments that do not open.
	ErrUnreadable = errors.New("the arguments of the call do not open: they were changed, or sealed with another key")

	// ErrVoted says that this person has said yes already.
	ErrVoted = errors.New("you have said yes already; another person must say it too")
)

// An OutrunError says that a step came too late: another one was first. Request says which.
type OutrunError struct {
	Request *Request
	At      time.Time
}

// Error names the state and its author.
func (e *OutrunError) Error() string {
	if e.Request.StateAt(e.At) == Pending { // only a yes can be taken back, or used
		return "the request is pending, so there is no yes to take back; to end it, refuse it"
	}
	s := "the request is " + string(e.Request.StateAt(e.At)) + " already"
	switch by := e.Request.By(); {
	case by == "":
	case e.Request.Stored == Used:
		s += "; " + by + " had approved it"
	default:
		s += ", by " + by
	}
	return s
}

// By returns the author of the state; "" if it has none. The author of a used request is the person who has said yes last.
func (r *Request) By() string {
	switch r.Stored {
	case Withdrawn, Revoked:
		return r.EndedBy
	case Approved, Refused, Used:
		if v := r.Last(); v != nil {
			return v.By
		}
	}
	return ""
}

// An Action is what a step does.
type Action string

// The actions.
const (
	ActApprove  Action = "approve"
	ActRefuse   Action = "refuse"
	ActWithdraw Action = "withdraw"
	ActRevoke   Action = "revoke"
	ActUse      Action = "use"
	ActGiveBack Action = "give back" // of a use whose call was not made
)

// A Step is one arrow between two states.
type Step struct {
	Act   Action
	Vote  Vote   // of ActApprove and ActRefuse
	By    string // of the others: the officer, the principal, or the use
	Grant Grant  // of ActApprove of a capability
}

// Next returns the request after a step at an instant, or why the step cannot be made: an *OutrunError or ErrVoted. It is pure.
func (r *Request) Next(now time.Time, s Step) (*Request, error) {
	next := *r
	next.Votes, next.memory = slices.Clone(r.Votes), nil
	state := r.StateAt(now)
	may := map[Action][]State{
		ActApprove: {Pending}, ActRefuse: {Pending}, ActWithdraw: {Pending}, ActRevoke: {Approved}, ActUse: {Approved}, ActGiveBack: {Used},
	}[s.Act]
	if !slices.Contains(may, state) || s.Act == ActGiveBack && r.EndedBy != s.By {
		return nil, &OutrunError{Request: r, At: now}
	}
	end := func(to State) { next.Stored, next.EndedBy, next.EndedAt = to, s.By, now }
	switch s.Act {
	case ActApprove, ActRefuse:
		v := s.Vote
		v.Yes, v.At = s.Act == ActApprove, now
		if !v.Yes {
			next.Votes = append(next.Votes, v)
			next.Stored, next.EndedAt = Refused, now
			break
		}
		if slices.ContainsFunc(next.Votes, func(o Vote) bool { return o.samePerson(&v) }) {
			return nil, ErrVoted
		}
		next.Votes = append(next.Votes, v)
		if next.Yeses() >= next.Terms.Needed() {
			next.Stored = Approved
			if r.Kind == ForCapability {
				var err error
				if next.Grant, err = s.Grant.complete(now); err != nil {
					return nil, err
				}
			}
		}
	case ActWithdraw:
		end(Withdrawn)
	case ActRevoke:
		end(Revoked)
	case ActUse:
		end(Used)
	case ActGiveBack:
		next.Stored, next.EndedBy, next.EndedAt = Approved, "", time.Time{}
	}
	return &next, nil
}

// SplitID returns the parts of a request's id.
func SplitID(id string) (short string, number int, ok bool) {
	short, digits, ok := strings.Cut(id, "-")
	number, err := strconv.Atoi(digits)
	if !ok || err != nil || number < 1 || len(short) != shortLength || strconv.Itoa(number) != digits {
		return "", 0, false
	}
	return short, number, true
}
