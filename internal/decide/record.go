package decide

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// recordVersion is the version of the record's format. A changed format gets a new version, because old records stay as
// they are.
const recordVersion = 3

// Canonical returns the Decision as JSON in canonical form: keys sorted as bytes, no white space. Two decisions are
// equal if and only if their bytes are.
//
//	{"now"?, "principal": {"auth", "id", "mode", "roles", "tenant", "tier"},
//	 "requirements": [{
//	    "dropped": [{"capability"?, "missing"?, "place", "reason"?, "score", "source"?, "stage", "tool"}],
//	    "others": [{"place", "score", "source"?, "tool"}],
//	    "requirement": {"as"?, "constraints"?, "group"?, "load"?, "optional"?, "resource"?, "select"?, "stub"?, "tools"?, "verb"?},
//	    "selected": [as others],
//	    "unmet"?: {"capability"?, "missing"?, "reason"?, "stage", "tool"?}}],
//	 "selected": [{"requirements": [place], "tool"}],
//	 "snapshot": {"catalog", "policy"?, "taxonomy", "tenant"},
//	 "task": {"mode"?, "task_id", "token_budget"?}, "tenant": id, "unfit"?: {server or tool: state}, "v": 3}
//
// "now" is present if the decision depends on the time. "source" is the source of the tool's capabilities. Version 1
// had no "now", and left out the parts of the principal and the task that policies read. Version 2 had no "unfit".
// "group", "load", "stub" and "token_budget" were added within version 3: earlier tasks could not set them, and a
// record without them has not changed.
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
	b = append(b, '{')
	if !d.Now.IsZero() {
		b = append(b, `"now":"`...)
		b = d.Now.UTC().AppendFormat(b, time.RFC3339Nano)
		b = append(b, `",`...)
	}
	b = append(b, `"principal":{"auth":`...)
	b = appendString(b, string(d.Principal.Auth))
	b = append(b, `,"id":`...)
	b = appendString(b, d.Principal.ID)
	b = append(b, `,"mode":`...)
	b = appendString(b, string(d.Principal.Mode.Narrower(switchboard.Autopilot)))
	b = append(b, `,"roles":`...)
	b = appendList(b, d.Principal.Roles, appendText)
	b = append(b, `,"tenant":`...)
	b = appendString(b, string(d.Principal.Tenant))
	b = append(b, `,"tier":`...)
	b = appendString(b, d.Principal.Tier)
	b = append(b, `},"requirements":`...)
	b = appendList(b, d.Outcomes, func(b []byte, o *Outcome) []byte { return o.append(b) })
	b = append(b, `,"selected":`...)
	b = appendList(b, d.Selected, func(b []byte, s *Selected) []byte {
		b = append(b, `{"requirements":`...)
		b = appendList(b, s.Requirements, func(b []byte, i *int) []byte { return strconv.AppendInt(b, int64(*i), 10) })
		b = append(b, `,"tool":`...)
		return append(appendTool(b, s.Tool.ID), '}')
	})
	b = append(b, `,"snapshot":{"catalog":`...)
	b = appendString(b, string(d.Snapshot.Catalog))
	if d.Snapshot.Policy != "" {
		b = append(b, `,"policy":`...)
		b = appendString(b, string(d.Snapshot.Policy))
	}
	b = append(b, `,"taxonomy":`...)
	b = appendString(b, string(d.Snapshot.Taxonomy))
	b = append(b, `,"tenant":`...)
	b = appendString(b, string(d.Snapshot.Tenant))
	b = append(b, `},"task":{`...)
	if d.Task.Mode != "" {
		b = appendString(append(b, `"mode":`...), string(d.Task.Mode))
		b = append(b, ',')
	}
	b = appendString(append(b, `"task_id":`...), string(d.Task.ID))
	if d.Task.TokenBudget != 0 {
		b = append(b, `,"token_budget":`...)
		b = strconv.AppendInt(b, int64(d.Task.TokenBudget), 10)
	}
	b = append(b, `},"tenant":`...)
	b = appendString(b, string(d.Tenant))
	b = d.Unfit.append(b)
	b = append(b, `,"v":`...)
	b = strconv.AppendInt(b, recordVersion, 10)
	return append(b, '}')
}

// append appends the member "unfit", unless u is empty.
func (u Unfit) append(b []byte) []byte {
	if len(u) == 0 {
		return b
	}
	names := make(map[string]string, len(u))
	for id, state := range u {
		name := string(id.Server)
		if id.Name != "" {
			name = id.String()
		}
		names[name] = state
	}
	sep := `,"unfit":{`
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b = appendString(append(b, sep...), name)
		b = appendString(append(b, ':'), names[name])
		sep = ","
	}
	return append(b, '}')
}

// readUnfit parses the member that append writes.
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
	Snapshot  Snapshot
	Now       time.Time
	Unfit     Unfit
}

// ReadRecord parses what Canonical writes. It accepts only the current version.
func ReadRecord(text []byte) (Recorded, error) {
	var r struct {
		Now       time.Time
		Principal struct {
			Auth     switchboard.Auth
			ID, Tier string
			Mode     switchboard.Mode
			Roles    []string
			Tenant   switchboard.TenantID
		}
		Snapshot Snapshot
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
		Task:      task.ID, Snapshot: r.Snapshot, Now: r.Now, Unfit: readUnfit(r.Unfit),
	}, nil
}

func (o *Outcome) append(b []byte) []byte {
	b = append(b, `{"dropped":`...)
	b = appendList(b, o.Dropped, func(b []byte, d *Dropped) []byte { return d.append(b) })
	b = append(b, `,"others":`...)
	b = appendList(b, o.Others, appendCandidate)
	b = append(b, `,"requirement":`...)
	b = appendRequirement(b, o.Requirement)
	b = append(b, `,"selected":`...)
	b = appendList(b, o.Selected, appendCandidate)
	if u := o.Unmet; u != nil {
		b = append(b, `,"unmet":{`...)
		b = appendReason(b, u.Reason)
		b = append(b, `"stage":`...)
		b = appendString(b, u.Stage)
		if u.Tool != nil {
			b = append(b, `,"tool":`...)
			b = appendTool(b, u.Tool.ID)
		}
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendRequirement(b []byte, r *switchboard.Requirement) []byte {
	b = append(b, '{')
	if r.As != "" {
		b = appendString(append(b, `"as":`...), r.As)
		b = append(b, ',')
	}
	if len(r.Constraints) > 0 {
		b = appendList(append(b, `"constraints":`...), r.Constraints, appendText)
		b = append(b, ',')
	}
	if r.Group != "" {
		b = appendString(append(b, `"group":`...), r.Group)
		b = append(b, ',')
	}
	if r.OnDemand {
		b = append(b, `"load":"on_demand",`...)
	}
	if r.Optional {
		b = append(b, `"optional":true,`...)
	}
	if r.Resource != "" {
		b = appendString(append(b, `"resource":`...), string(r.Resource))
		b = append(b, ',')
	}
	if r.Select != "" {
		b = appendString(append(b, `"select":`...), string(r.Select))
		b = append(b, ',')
	}
	if r.Stub != "" {
		b = appendString(append(b, `"stub":`...), r.Stub)
		b = append(b, ',')
	}
	if len(r.Tools) > 0 {
		b = appendList(append(b, `"tools":`...), r.Tools, appendText)
		b = append(b, ',')
	}
	if r.Verb != "" {
		b = appendString(append(b, `"verb":`...), string(r.Verb))
		b = append(b, ',')
	}
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, '}')
}

func (d *Dropped) append(b []byte) []byte {
	b = append(b, '{')
	if d.Reason.Missing != "" { // these sort before "place", "reason" after it
		b = appendReason(b, d.Reason)
	}
	b = append(b, `"place":`...)
	b = strconv.AppendInt(b, int64(d.Place), 10)
	b = append(b, ',')
	if d.Reason.Missing == "" {
		b = appendReason(b, d.Reason)
	}
	b = append(b, `"score":`...)
	b = strconv.AppendInt(b, int64(d.Score), 10)
	b = appendSource(b, d.Tool)
	b = append(b, `,"stage":`...)
	b = appendString(b, d.Stage)
	b = append(b, `,"tool":`...)
	return append(appendTool(b, d.Tool.ID), '}')
}

// appendReason appends the members of r, each followed by a comma.
func appendReason(b []byte, r Reason) []byte {
	if r.Missing == "" {
		b = appendString(append(b, `"reason":`...), r.Text)
		return append(b, ',')
	}
	if c := r.Capability; c != nil {
		b = append(b, `"capability":{"constraints":`...)
		b = appendList(b, c.Constraints, appendText)
		b = append(b, `,"resource":`...)
		b = appendString(b, string(c.Resource))
		b = append(b, `,"source":`...)
		b = appendString(b, string(c.Source))
		b = append(b, `,"verb":`...)
		b = appendString(b, string(c.Verb))
		b = append(b, `},`...)
	}
	b = appendString(append(b, `"missing":`...), string(r.Missing))
	return append(b, ',')
}

func appendCandidate(b []byte, c *Candidate) []byte {
	b = append(b, `{"place":`...)
	b = strconv.AppendInt(b, int64(c.Place), 10)
	b = append(b, `,"score":`...)
	b = strconv.AppendInt(b, int64(c.Score), 10)
	b = appendSource(b, c.Tool)
	b = append(b, `,"tool":`...)
	return append(appendTool(b, c.Tool.ID), '}')
}

// appendSource appends the source of the tool's capabilities, if it has any.
func appendSource(b []byte, t *switchboard.Tool) []byte {
	if len(t.Capabilities) == 0 {
		return b
	}
	return appendString(append(b, `,"source":`...), string(t.Capabilities[0].Source))
}

// appendTool appends id in the form of ToolID.String.
func appendTool(b []byte, id switchboard.ToolID) []byte {
	if !needsNoEscape(string(id.Server)) || !needsNoEscape(id.Name) {
		return appendString(b, id.String())
	}
	b = append(b, '"')
	b = append(b, id.Server...)
	b = append(b, '/')
	b = append(b, id.Name...)
	return append(b, '"')
}

func appendText[T ~string](b []byte, s *T) []byte { return appendString(b, string(*s)) }

func appendList[T any](b []byte, list []T, one func([]byte, *T) []byte) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, &list[i])
	}
	return append(b, ']')
}

// appendString appends s in the form of canonical JSON. Invalid UTF-8 becomes U+FFFD; strictly parsed text has none.
func appendString(b []byte, s string) []byte {
	if needsNoEscape(s) {
		b = append(b, '"')
		b = append(b, s...)
		return append(b, '"')
	}
	b, _ = jsontext.AppendQuote(b, s) // the only error says that invalid UTF-8 was replaced
	return b
}

// needsNoEscape reports whether s needs no escapes.
func needsNoEscape(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
