package decide

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// recordVersion is the version of the record's format. A changed format gets a new version, because old records stay as
// they are.
const recordVersion = 3

// Canonical returns the Decision as JSON in canonical form: keys sorted as bytes, no white space. Two decisions are
// equal if and only if their bytes are.
//
//	{"atoms"?: {atom: state}, "now"?, "principal": {"auth", "id", "mode", "roles", "tenant", "tier"},
//	 "requirements": [{
//	    "dropped": [{"capability"?, "missing"?, "place", "reason"?, "score", "source"?, "stage", "tool"}],
//	    "others": [{"place", "score", "source"?, "tool"}],
//	    "requirement": {"as"?, "constraints"?, "group"?, "load"?, "optional"?, "request"?, "resource"?, "select"?, "stub"?, "tools"?, "verb"?},
//	    "selected": [as others],
//	    "unmet"?: {"capability"?, "missing"?, "reason"?, "stage", "tool"?}}],
//	 "selected": [{"requirements": [place], "tool"}],
//	 "snapshot": {"catalog", "policy"?, "taxonomy", "tenant"},
//	 "task": {"mode"?, "task_id", "token_budget"?}, "tenant": id, "unfit"?: {server or tool: state}, "v": 3}
//
// "now" is present if the decision depends on the time. "source" is the source of the tool's capabilities. Version 1
// had no "now", and left out the parts of the principal and the task that policies read. Version 2 had no "unfit".
// "group", "load", "request", "stub" and "token_budget" were added within version 3: earlier tasks could not set them, and a
// record without them has not changed. "atoms" was added in the same way: it is there if the states of atoms were an input.
func (d *Decision) Canonical() []byte {
	n := 1024
	for i := range d.Outcomes {
		n += 256 + 192*d.Outcomes[i].Considered()
	}
	return d.append(make([]byte, 0, n))
}

// Digest returns the digest of Canonical.
func (d *Decision) Digest() switchboard.Digest { return canonical.Sum(d.Canonical()) }

func (d *Decision) append(b []byte) []byte {
	w := canonical.NewWriter(b)
	w.BeginObject()
	d.Atoms.write(&w)
	if !d.Now.IsZero() {
		w.Member("now", d.Now.UTC().Format(time.RFC3339Nano))
	}
	w.Name("principal")
	w.BeginObject()
	w.Member("auth", string(d.Principal.Auth))
	w.Member("id", d.Principal.ID)
	w.Member("mode", string(d.Principal.Mode.Narrower(switchboard.Autopilot)))
	writeList(&w, "roles", d.Principal.Roles)
	w.Member("tenant", string(d.Principal.Tenant))
	w.Member("tier", d.Principal.Tier)
	w.EndObject()
	w.Name("requirements")
	w.BeginList()
	for i := range d.Outcomes {
		d.Outcomes[i].write(&w)
	}
	w.EndList()
	w.Name("selected")
	w.BeginList()
	for i := range d.Selected {
		s := &d.Selected[i]
		w.BeginObject()
		w.Name("requirements")
		w.BeginList()
		for _, r := range s.Requirements {
			w.Int(int64(r))
		}
		w.EndList()
		writeProvided(&w, s.Tool)
		writeTool(&w, s.Tool.ID)
		w.EndObject()
	}
	w.EndList()
	w.Name("snapshot")
	w.BeginObject()
	writeUnlessEmpty(&w, "capabilities", string(d.Snapshot.Capabilities))
	w.Member("catalog", string(d.Snapshot.Catalog))
	writeUnlessEmpty(&w, "policy", string(d.Snapshot.Policy))
	w.Member("taxonomy", string(d.Snapshot.Taxonomy))
	w.Member("tenant", string(d.Snapshot.Tenant))
	w.EndObject()
	w.Name("task")
	w.BeginObject()
	writeUnlessEmpty(&w, "mode", string(d.Task.Mode))
	w.Member("task_id", string(d.Task.ID))
	if d.Task.TokenBudget != 0 {
		writeInt(&w, "token_budget", d.Task.TokenBudget)
	}
	w.EndObject()
	w.Member("tenant", string(d.Tenant))
	d.Unfit.write(&w)
	writeInt(&w, "v", recordVersion)
	w.EndObject()
	return w.Bytes()
}

// write writes the member "unfit", unless u is empty.
func (u Unfit) write(w *canonical.Writer) {
	if len(u) == 0 {
		return
	}
	states := make(map[string]string, len(u))
	for id, state := range u {
		name := string(id.Server)
		if id.Name != "" {
			name = id.String()
		}
		states[name] = state
	}
	w.Name("unfit")
	w.BeginObject()
	for _, name := range slices.Sorted(maps.Keys(states)) {
		w.Member(name, states[name])
	}
	w.EndObject()
}

// write writes the member "atoms", unless a is empty.
func (a Atoms) write(w *canonical.Writer) {
	if len(a) == 0 {
		return
	}
	w.Name("atoms")
	w.BeginObject()
	for _, id := range slices.Sorted(maps.Keys(a)) {
		w.Member(id, string(a[id]))
	}
	w.EndObject()
}

// readUnfit parses the member that write writes.
func readUnfit(names map[string]string) Unfit {
	if len(names) == 0 {
		return nil
	}
	u := make(Unfit, len(names))
	for name, state := range names {
		server, tool, _ := strings.Cut(name, "/")
		u[switchboard.ToolID{Server: switchboard.ServerID(server), Name: tool}] = state
	}
	return u
}

// A Recorded is the input of a decision, read from its record.
type Recorded struct {
	Tenant    switchboard.TenantID
	Principal switchboard.Principal // without Tasks, which decisions do not read
	Task      switchboard.TaskID
	Snapshot  SnapshotDigests
	Now       time.Time
	Unfit     Unfit
	Atoms     Atoms
}

// ReadRecord parses what Canonical writes. It accepts only the current version.
func ReadRecord(text []byte) (Recorded, error) {
	var r struct {
		Atoms     Atoms
		Now       time.Time
		Principal struct {
			Auth     switchboard.Auth
			ID, Tier string
			Mode     switchboard.Mode
			Roles    []string
			Tenant   switchboard.TenantID
		}
		Snapshot SnapshotDigests
		Task     json.RawMessage
		Tenant   switchboard.TenantID
		Unfit    map[string]string
		V        int
	}
	// jsonv2 skips the large members that are not read here in one pass.
	if err := jsonv2.Unmarshal(text, &r, jsonv2.MatchCaseInsensitiveNames(true)); err != nil {
		return Recorded{}, fmt.Errorf("record of a decision: %w", err)
	}
	if r.V != recordVersion {
		return Recorded{}, fmt.Errorf("record of a decision: its format is version %d; only version %d can be read", r.V, recordVersion)
	}
	var task struct {
		ID switchboard.TaskID `json:"task_id"`
	}
	if err := json.Unmarshal(r.Task, &task); err != nil {
		return Recorded{}, fmt.Errorf("record of a decision: %w", err)
	}
	p := r.Principal
	return Recorded{
		Tenant:    r.Tenant,
		Principal: switchboard.Principal{Tenant: p.Tenant, ID: p.ID, Auth: p.Auth, Roles: p.Roles, Tier: p.Tier, Mode: p.Mode},
		Task:      task.ID, Snapshot: r.Snapshot, Now: r.Now, Unfit: readUnfit(r.Unfit), Atoms: r.Atoms,
	}, nil
}

func (o *RequirementOutcome) write(w *canonical.Writer) {
	w.BeginObject()
	w.Name("dropped")
	w.BeginList()
	for i := range o.Dropped {
		o.Dropped[i].write(w)
	}
	w.EndList()
	writeCandidates(w, "others", o.Others)
	w.Name("requirement")
	writeRequirement(w, o.Requirement)
	writeCandidates(w, "selected", o.Selected)
	if u := o.Unmet; u != nil {
		w.Name("unmet")
		w.BeginObject()
		writeReason(w, &u.Reason)
		w.Member("stage", u.Stage)
		if u.Tool != nil {
			writeTool(w, u.Tool.ID)
		}
		w.EndObject()
	}
	w.EndObject()
}

func writeRequirement(w *canonical.Writer, r *switchboard.Requirement) {
	w.BeginObject()
	writeUnlessEmpty(w, "as", r.As)
	writeUnlessEmpty(w, "capability", r.Capability)
	if len(r.Constraints) > 0 {
		writeList(w, "constraints", r.Constraints)
	}
	writeUnlessEmpty(w, "group", r.Group)
	if r.OnDemand {
		w.Member("load", "on_demand")
	}
	if r.Optional {
		w.Name("optional")
		w.Bool(true)
	}
	writeUnlessEmpty(w, "request", r.Request)
	writeUnlessEmpty(w, "resource", string(r.Resource))
	writeUnlessEmpty(w, "select", string(r.Select))
	writeUnlessEmpty(w, "stub", r.Stub)
	if len(r.Tools) > 0 {
		writeList(w, "tools", r.Tools)
	}
	writeUnlessEmpty(w, "verb", string(r.Verb))
	w.EndObject()
}

func (d *Dropped) write(w *canonical.Writer) {
	w.BeginObject()
	if d.Reason.Missing != "" { // its members come before "place", and "reason" after it
		writeReason(w, &d.Reason)
	}
	writeInt(w, "place", int(d.Place))
	if d.Reason.Missing == "" {
		writeReason(w, &d.Reason)
	}
	writeProvided(w, d.Tool)
	writeInt(w, "score", d.Score)
	writeSource(w, d.Tool)
	w.Member("stage", d.Stage)
	writeTool(w, d.Tool.ID)
	w.EndObject()
}

// writeReason writes the members that give the reason.
func writeReason(w *canonical.Writer, r *Reason) {
	if r.Missing == "" {
		w.Member("reason", r.Text)
		return
	}
	if c := r.Capability; c != nil {
		w.Name("capability")
		w.BeginObject()
		writeList(w, "constraints", c.Constraints)
		w.Member("resource", string(c.Resource))
		w.Member("source", string(c.Source))
		w.Member("verb", string(c.Verb))
		w.EndObject()
	}
	w.Member("missing", string(r.Missing))
}

func writeCandidates(w *canonical.Writer, name string, cs []Candidate) {
	w.Name(name)
	w.BeginList()
	for i := range cs {
		c := &cs[i]
		w.BeginObject()
		writeInt(w, "place", int(c.Place))
		writeProvided(w, c.Tool)
		writeInt(w, "score", c.Score)
		writeSource(w, c.Tool)
		writeTool(w, c.Tool.ID)
		w.EndObject()
	}
	w.EndList()
}

// writeSource writes the source of the tool's capabilities, if it has any.
func writeSource(w *canonical.Writer, t *switchboard.Tool) {
	if len(t.Capabilities) > 0 {
		w.Member("source", string(t.Capabilities[0].Source))
	}
}

// writeProvided writes the member "provides": the tool of a named capability that the tool provides, if any.
func writeProvided(w *canonical.Writer, t *switchboard.Tool) {
	if t.Provides != nil {
		w.Name("provides")
		w.Joined(t.Provides.Capability, "/", t.Provides.Name)
	}
}

// writeTool writes the member "tool" in the form of ToolID.String.
func writeTool(w *canonical.Writer, id switchboard.ToolID) {
	w.Name("tool")
	w.Joined(string(id.Server), "/", id.Name)
}

func writeUnlessEmpty(w *canonical.Writer, name, value string) {
	if value != "" {
		w.Member(name, value)
	}
}

func writeInt(w *canonical.Writer, name string, n int) {
	w.Name(name)
	w.Int(int64(n))
}

func writeList[T ~string](w *canonical.Writer, name string, list []T) {
	w.Name(name)
	w.BeginList()
	for _, s := range list {
		w.String(string(s))
	}
	w.EndList()
}
