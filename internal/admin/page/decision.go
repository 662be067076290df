package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxNames limits the names in one list of the view.
const maxNames = 50

// maxOutBoxes limits the servers that a form offers to take out by a box. Any other one can be typed.
const maxOutBoxes = 12

// decisionStages are the stages of a decision in order, each with its effect.
var decisionStages = []struct{ Name, Does string }{
	{"filter", "finds the tools with the capability, or with the name"},
	{"prune", "drops those without a required constraint"},
	{"policy", "drops what a rule does not allow"},
	{"verdict", "drops what may not be used now"},
	{"rank", "orders the rest"},
	{"health", "drops those of servers that cannot serve"},
	{"select", "takes what the task asked for"},
}

// A decisionScene is the data of the view Decision.
type decisionScene struct {
	decisionForm

	Choices  []admin.TenantSummary // to choose a tenant from; empty if one is named
	Why      *access.Problem       // why there is no decision
	WhatIf   bool
	Now      *shownDecision // as it is, or was recorded
	After    *shownDecision // with the what-if
	Changes  []requirementChange
	Changed  int  // of these, how many are not the same
	Idle     bool // the what-if has an instant, and no policy reads the clock
	Recorded *admin.RecordedDecision
	Past     *admin.DecisionPage
}

// A decisionForm is what the form of the view offers.
type decisionForm struct {
	Tasks    []switchboard.TaskID
	Tiers    []string
	Modes    []switchboard.Mode
	Callers  []string
	Boxes    []serverBox
	OutAlso  string  // servers that are out and have no box
	MayEdit  bool    // the officer may change files of the tenant, and so try a change
	FileText *string // of the file that the query names; nil if it names none
}

// Shown is the decision that the view lists candidates of.
func (s *decisionScene) Shown() *shownDecision { return cmp.Or(s.After, s.Now) }

// A serverBox takes a server out.
type serverBox struct {
	ID  switchboard.ServerID
	Out bool
}

// A shownDecision is an explanation as the view shows it.
type shownDecision struct {
	*admin.Explanation
	Caller struct {
		ID, Tier string
		Auth     switchboard.Auth
		Mode     switchboard.Mode
		Roles    []string
	}
	At   *time.Time // nil if no policy reads the clock
	Rows []shownRequirement
}

// A shownRequirement is a requirement with its candidates, counted by stage.
type shownRequirement struct {
	*admin.ExplainedRequirement
	Number     int
	Names      map[string]string // of the selected tools, in the client's list
	Shown      []admin.ExplainedCandidate
	Behind     []admin.ExplainedCandidate
	Candidates int
	Flow       []stageFlow
	Drops      []dropGroup
	MoreDrops  int // candidates in further groups
}

// A stageFlow says how many candidates came to a stage, and how many it dropped.
type stageFlow struct {
	Stage, Does         string
	Came, Dropped, Left int
	Ran                 bool
	Was                 *stageFlow // without the what-if
	BarLeft, BarGone    int        // of 100
}

// A dropGroup are the candidates that a stage dropped for the same reason.
type dropGroup struct {
	Stage, Reason string
	Code          switchboard.Code
	Rules         []shownRule
	Tools         []droppedTool
	Count         int
	New           int // of these, how many are not dropped without the what-if
}

// A droppedTool is a dropped candidate, with the values of the rules' variables.
type droppedTool struct {
	Tool   string
	Values []string
	New    bool
}

// A shownRule is a rule that dropped candidates.
type shownRule struct {
	Layer, Rule    string
	File           string
	Line           int
	Reason, Failed string
	Path           string // of its file in the folder of the configuration; "" if it is not known
}

// A requirementChange compares a requirement without and with the what-if.
type requirementChange struct {
	Number        int
	Requirement   string
	Before, After []string
	Gone, Back    []admin.ExplainedDrop // dropped only with the what-if, and only without it; at most maxNames
	MoreGone      int
	MoreBack      int
	Same          bool
}

// Rest is the number of candidates that are not named.
func (g *dropGroup) Rest() int { return g.Count - len(g.Tools) }

// decisionAddress returns the address of the answer that the view shows most of.
func decisionAddress(q *viewQuery) string {
	tenant := q.state.Get("tenant")
	switch {
	case q.state.Get("record") != "":
		return recordedDecision(q, true)
	case q.state.Has("recorded"):
		return linkTo("/v1/decisions", nil, "tenant", tenant, "task", q.state.Get("task"), "principal", q.state.Get("principal"), "digest", q.state.Get("digest"), "after", q.state.Get("after"), "limit", fmt.Sprint(maxNames))
	case tenant == "" || q.state.Get("task") == "":
		return linkTo("/v1/tenants", nil, "tenant", tenant)
	}
	return taskDecision(q, true)
}

// typedIn returns the named fields of the query that are not empty.
func typedIn(state url.Values, names ...string) url.Values {
	typed := url.Values{}
	for _, name := range names {
		if value := strings.TrimSpace(state.Get(name)); value != "" {
			typed.Set(name, value)
		}
	}
	return typed
}

// replacedInputs returns the inputs of a decision that the what-if of the query replaces, as the API takes them.
func replacedInputs(state url.Values) url.Values {
	ask := typedIn(state, "tier", "mode", "at")
	if at, err := time.Parse(minuteLayout, ask.Get("at")); err == nil { // as people write it
		ask.Set("at", at.Format(time.RFC3339))
	}
	if out := serversOut(state); len(out) > 0 {
		ask.Set("without", strings.Join(out, ","))
	}
	return ask
}

// taskDecision returns the address of the decision that the query names, with or without its what-if.
func taskDecision(q *viewQuery, whatIf bool) string {
	ask := typedIn(q.state, "task", "principal")
	if whatIf {
		maps.Copy(ask, replacedInputs(q.state))
		if file := typedIn(q.state, "file"); file.Has("file") && q.state.Has("text") {
			ask.Set("file", file.Get("file"))
			ask.Set("text", strings.ReplaceAll(q.state.Get("text"), "\r\n", "\n"))
		}
	}
	return linkTo("/v1/tenants/"+url.PathEscape(q.state.Get("tenant"))+"/decision", ask)
}

// recordedDecision returns the address of the recorded decision that the query names, with or without its what-if.
func recordedDecision(q *viewQuery, whatIf bool) string {
	node, entry, _ := strings.Cut(q.state.Get("record"), "/")
	var ask url.Values
	if whatIf {
		ask = replacedInputs(q.state)
	}
	return linkTo("/v1/decisions/"+url.PathEscape(node)+"/"+url.PathEscape(entry), ask, "tenant", q.state.Get("tenant"))
}

// serversOut returns the servers that the what-if takes out, sorted.
func serversOut(state url.Values) []string {
	all := strings.FieldsFunc(strings.Join(state["without"], " "), func(r rune) bool { return r == ' ' || r == ',' })
	slices.Sort(all)
	return slices.Compact(all)
}

// loadDecision makes the data of the view.
func loadDecision(q *viewQuery, answer []byte) (any, error) {
	s := &decisionScene{decisionForm: decisionForm{Modes: switchboard.Modes}}
	switch {
	case q.state.Get("record") != "":
		s.Recorded = &admin.RecordedDecision{}
		if err := json.Unmarshal(answer, s.Recorded); err != nil {
			return nil, err
		}
		s.showRecorded(q)
		return s, nil
	case q.state.Has("recorded"):
		q.command = "switchboard decisions list" + flagsOf("--task", q.state.Get("task"), "--principal", q.state.Get("principal"), "--digest", q.state.Get("digest"))
		s.Past = &admin.DecisionPage{}
		return s, json.Unmarshal(answer, s.Past)
	case q.state.Get("tenant") == "" || q.state.Get("task") == "":
		var tenants struct{ Tenants []admin.TenantSummary }
		if err := json.Unmarshal(answer, &tenants); err != nil {
			return nil, err
		}
		if len(tenants.Tenants) != 1 {
			s.Choices = tenants.Tenants
			return s, nil
		}
		one := tenants.Tenants[0]
		q.state.Set("tenant", string(one.Tenant))
		s.offer(&one)
		if one.DefaultTask == "" && len(one.Tasks) == 0 {
			return s, nil
		}
		q.state.Set("task", string(one.DefaultTask))
		if one.DefaultTask == "" {
			q.state.Set("task", string(one.Tasks[0]))
		}
		again := q.call(http.MethodGet, taskDecision(q, true), nil, nil)
		if refused := again.refusal(); refused != nil {
			return s.refuse(q, refused)
		}
		answer = again.body.Bytes()
	default:
		if err := s.readChoices(q); err != nil {
			return nil, err
		}
	}
	x := &admin.Explanation{}
	if err := json.Unmarshal(answer, x); err != nil {
		return nil, err
	}
	return s, s.compare(q, x)
}

// refuseDecision makes the data of the view if there is no decision: its form stays.
func refuseDecision(q *viewQuery, why error) (data any, status int, err error) {
	if q.state.Get("record") != "" {
		return refuseRecorded(q, why)
	}
	s := &decisionScene{decisionForm: decisionForm{Modes: switchboard.Modes}}
	if q.state.Has("recorded") || q.state.Get("task") == "" || q.state.Get("tenant") == "" || s.readChoices(q) != nil {
		return nil, 0, why
	}
	if data, err = s.refuse(q, why); s.Why != nil {
		return data, s.Why.Status, err
	}
	return data, http.StatusOK, err
}

// refuseRecorded makes the data of the view if the what-if of a recorded decision is refused: the decision as it was and the form stay.
func refuseRecorded(q *viewQuery, why error) (data any, status int, err error) {
	problem := problemOf(why)
	s := &decisionScene{decisionForm: decisionForm{Modes: switchboard.Modes}, Why: &problem, Recorded: &admin.RecordedDecision{}}
	if problem.Status == http.StatusInternalServerError || recordedDecision(q, true) == recordedDecision(q, false) || q.get(recordedDecision(q, false), s.Recorded) != nil {
		return nil, 0, why
	}
	s.showRecorded(q)
	return s, problem.Status, nil
}

// refuse says why there is no decision. Where no caller is named and somebody must be, the first key that may bind the task is.
func (s *decisionScene) refuse(q *viewQuery, why error) (any, error) {
	if err := s.readCallers(q); err != nil {
		return nil, err
	}
	if q.state.Get("principal") == "" && len(s.Callers) > 0 && problemOf(why).Status == http.StatusBadRequest {
		q.state.Set("principal", s.Callers[0])
		again := q.call(http.MethodGet, taskDecision(q, true), nil, nil)
		if err := again.refusal(); err != nil {
			why = err
		} else {
			x := &admin.Explanation{}
			if err := json.Unmarshal(again.body.Bytes(), x); err != nil {
				return nil, err
			}
			return s, s.compare(q, x)
		}
	}
	problem := problemOf(why)
	if problem.Status == http.StatusInternalServerError {
		return nil, why
	}
	s.Why = &problem
	return s, s.fillForm(q)
}

// offer keeps what the form offers of a tenant.
func (s *decisionScene) offer(t *admin.TenantSummary) { s.Tasks, s.Tiers = t.Tasks, t.Tiers }

// readChoices reads the tasks and tiers of the tenant.
func (s *decisionScene) readChoices(q *viewQuery) error {
	var tenants struct{ Tenants []admin.TenantSummary }
	if err := q.get(linkTo("/v1/tenants", nil, "tenant", q.state.Get("tenant")), &tenants); err != nil {
		return err
	}
	if len(tenants.Tenants) == 1 {
		s.offer(&tenants.Tenants[0])
	}
	return nil
}

// readCallers reads the ids of the tenant's keys: those that name the task first.
func (s *decisionScene) readCallers(q *viewQuery) error {
	if s.Callers != nil {
		return nil
	}
	var keys struct{ Keys []admin.KeyRow }
	if err := q.get(linkTo("/v1/keys", nil, "tenant", q.state.Get("tenant"), "limit", "500"), &keys); err != nil {
		return err
	}
	var named, others []string
	for i := range keys.Keys {
		k := &keys.Keys[i]
		switch {
		case k.Kind != admin.KeyOfAgent || k.State == admin.KeyExpired || k.State == admin.KeyRevoked || slices.Contains(named, k.ID) || slices.Contains(others, k.ID):
		case slices.Contains(k.Tasks, switchboard.TaskID(q.state.Get("task"))):
			named = append(named, k.ID)
		default:
			others = append(others, k.ID)
		}
	}
	s.Callers = append(named, others...)
	return nil
}

// compare shows the decision of the query, and beside it the one without its what-if.
func (s *decisionScene) compare(q *viewQuery, x *admin.Explanation) error {
	if s.WhatIf = taskDecision(q, true) != taskDecision(q, false); !s.WhatIf {
		s.Now = showDecision(x, nil)
	} else {
		was := &admin.Explanation{}
		if err := q.get(taskDecision(q, false), was); err != nil {
			return err
		}
		s.showChanges(q, was, x)
	}
	return s.fillForm(q)
}

// showChanges shows a decision without and with the what-if.
func (s *decisionScene) showChanges(q *viewQuery, was, x *admin.Explanation) {
	s.Now = showDecision(was, nil)
	s.After = showDecision(x, s.Now)
	s.Changes = compareDecisions(was, x)
	for i := range s.Changes {
		if !s.Changes[i].Same {
			s.Changed++
		}
	}
	s.Idle = q.state.Get("at") != "" && s.After.At == nil
}

// showRecorded shows the recorded decision, and beside it the one with the what-if. No configuration of today has a part in it.
func (s *decisionScene) showRecorded(q *viewQuery) {
	q.command = "switchboard decisions show " + shellWord(s.Recorded.ID)
	switch was, after := s.Recorded.Explanation, s.Recorded.WhatIf; {
	case was == nil:
		return
	case after == nil:
		s.Now = showDecision(was, nil)
	default:
		s.WhatIf = true
		s.showChanges(q, was, after)
	}
	q.command += s.fillInputs(q)
}

// fillInputs offers the servers that the form of the what-if can take out. It returns the flags of the command that replaces the same inputs.
func (s *decisionScene) fillInputs(q *viewQuery) (flags string) {
	out := serversOut(q.state)
	boxes := map[switchboard.ServerID]bool{}
	if s.Now != nil {
		for i := range s.Now.Requirements {
			r := &s.Now.Requirements[i]
			for _, c := range slices.Concat(r.Selected, r.Others) {
				server, _, _ := strings.Cut(c.Tool, "/")
				if len(boxes) < maxOutBoxes {
					boxes[switchboard.ServerID(server)] = false
				}
			}
		}
	}
	var also []string
	for _, id := range out {
		if _, ok := boxes[switchboard.ServerID(id)]; ok {
			boxes[switchboard.ServerID(id)] = true
		} else {
			also = append(also, id)
		}
	}
	s.OutAlso = strings.Join(also, " ")
	for _, id := range slices.Sorted(maps.Keys(boxes)) {
		s.Boxes = append(s.Boxes, serverBox{id, boxes[id]})
	}
	flags = flagsOf("--tier", q.state.Get("tier"), "--mode", q.state.Get("mode"), "--at", replacedInputs(q.state).Get("at"))
	for _, id := range out {
		flags += flagsOf("--without", id)
	}
	return flags
}

// fillForm makes what the form of the what-if offers, and the command that does the same.
func (s *decisionScene) fillForm(q *viewQuery) error {
	if err := s.readCallers(q); err != nil {
		return err
	}
	tenant := switchboard.TenantID(q.state.Get("tenant"))
	s.MayEdit = q.officer.Operator || q.officer.Holds(switchboard.OfficeAuthor, tenant) || q.officer.Holds(switchboard.OfficeAdmin, tenant)
	q.command = "switchboard explain " + shellWord(q.state.Get("task")) + flagsOf("--principal", q.state.Get("principal")) + s.fillInputs(q)
	file := strings.TrimSpace(q.state.Get("file"))
	if file == "" {
		return nil
	}
	if text := q.state.Get("text"); q.state.Has("text") {
		s.FileText = &text
		q.command += flagsOf("--file", file+"=NEW")
		return nil
	}
	var is struct{ Text string }
	if err := q.get(linkTo("/v1/configuration/file", nil, "path", file), &is); err != nil {
		problem := problemOf(err)
		s.Why = &problem
		return nil
	}
	s.FileText = &is.Text
	return nil
}

// showDecision returns the explanation as the view shows it. was, if not nil, is the decision without the what-if.
func showDecision(x *admin.Explanation, was *shownDecision) *shownDecision {
	d := &shownDecision{Explanation: x}
	var record struct {
		Now       *time.Time
		Principal json.RawMessage
	}
	if json.Unmarshal(x.Decision, &record) == nil {
		d.At = record.Now
		_ = json.Unmarshal(record.Principal, &d.Caller) // else it has no names
	}
	names := map[string]string{}
	for _, e := range x.Tools {
		names[string(e.Server)+"/"+e.Tool] = e.Name
	}
	for i := range x.Requirements {
		r := shownRequirement{ExplainedRequirement: &x.Requirements[i], Number: i + 1, Names: names}
		var before *shownRequirement
		if was != nil {
			before = was.find(x.Requirements, i)
		}
		r.count(before)
		d.Rows = append(d.Rows, r)
	}
	return d
}

// find returns the requirement that is the same as all[i]; nil if there is none.
func (d *shownDecision) find(all []admin.ExplainedRequirement, i int) *shownRequirement {
	nth := 0
	for k := range all[:i] {
		if all[k].Requirement == all[i].Requirement {
			nth++
		}
	}
	for k := range d.Rows {
		if d.Rows[k].Requirement == all[i].Requirement {
			if nth == 0 {
				return &d.Rows[k]
			}
			nth--
		}
	}
	return nil
}

// count counts the candidates by stage, and groups those that were dropped. before is the same requirement without the what-if.
func (r *shownRequirement) count(before *shownRequirement) {
	r.Shown = r.Selected[:min(len(r.Selected), maxNames)]
	r.Behind = r.Others[:min(len(r.Others), maxNames)]
	r.Candidates = len(r.Selected) + len(r.Others) + len(r.Dropped)
	by := map[string]int{"select": len(r.Others)}
	for _, d := range r.Dropped {
		by[d.Stage]++
	}
	left := r.Candidates
	for i, stage := range decisionStages {
		f := stageFlow{Stage: stage.Name, Does: stage.Does, Came: left, Dropped: by[stage.Name], Ran: left > 0 || i == 0}
		left -= f.Dropped
		f.Left = left
		if r.Candidates > 0 {
			f.BarLeft, f.BarGone = 100*f.Left/r.Candidates, 100*f.Came/r.Candidates-100*f.Left/r.Candidates
		}
		if before != nil {
			f.Was = &before.Flow[i]
		}
		r.Flow = append(r.Flow, f)
	}
	r.group(before)
}

// group groups the candidates that were dropped by stage, reason and rules.
func (r *shownRequirement) group(before *shownRequirement) {
	dropped := map[string]bool{}
	if before != nil {
		for _, d := range before.Dropped {
			dropped[d.Tool] = true
		}
	}
	groups, at := []dropGroup{}, map[string]int{}
	for _, d := range r.Dropped {
		parts := []any{d.Stage, d.Reason, d.Code}
		tool := droppedTool{Tool: d.Tool, New: before != nil && !dropped[d.Tool]}
		var rules []shownRule
		for _, c := range d.Rules {
			parts = append(parts, c.File, c.Line, c.Rule, c.Reason, c.Failed)
			rules = append(rules, shownRule{string(c.Layer), c.Rule, c.File, c.Line, c.Reason, c.Failed, configPath(string(c.Layer), c.File)})
			for _, name := range slices.Sorted(maps.Keys(c.Values)) {
				tool.Values = append(tool.Values, name+" = "+c.Values[name])
			}
		}
		key := fmt.Sprintf("%q", parts)
		i, known := at[key]
		if !known {
			i = len(groups)
			at[key] = i
			groups = append(groups, dropGroup{Stage: d.Stage, Reason: d.Reason, Code: d.Code, Rules: rules})
		}
		g := &groups[i]
		if g.Count++; tool.New {
			g.New++
		}
		if len(g.Tools) < maxNames {
			g.Tools = append(g.Tools, tool)
		}
	}
	slices.SortStableFunc(groups, func(a, b dropGroup) int {
		return cmp.Or(-cmp.Compare(min(a.New, 1), min(b.New, 1)), -cmp.Compare(placeOfStage(a.Stage), placeOfStage(b.Stage)), -cmp.Compare(a.Count, b.Count))
	})
	if len(groups) > maxNames {
		for _, g := range groups[maxNames:] {
			r.MoreDrops += g.Count
		}
		groups = groups[:maxNames]
	}
	r.Drops = groups
}

// placeOfStage returns the place of a stage in a decision.
func placeOfStage(name string) int {
	for i, s := range decisionStages {
		if s.Name == name {
			return i
		}
	}
	return len(decisionStages)
}

// configPath returns the path of a rule's file in the folder of the configuration; "" if it is not there.
func configPath(layer, file string) string {
	file = strings.ReplaceAll(file, `\`, "/")
	folder := "policies/"
	if layer == "tenant" {
		folder = "tenants/"
	}
	if i := strings.LastIndex("/"+file, "/"+folder); i >= 0 {
		return file[i:]
	}
	return ""
}

// compareDecisions compares the requirements of a decision without and with a what-if.
func compareDecisions(was, now *admin.Explanation) (all []requirementChange) {
	before := showDecision(was, nil)
	matched := map[int]bool{}
	for i := range now.Requirements {
		after := &now.Requirements[i]
		c := requirementChange{Number: i + 1, Requirement: after.Requirement, After: toolsOf(after)}
		if old := before.find(now.Requirements, i); old != nil {
			matched[old.Number] = true
			c.Before = toolsOf(old.ExplainedRequirement)
			c.Gone, c.MoreGone = onlyDropped(after, old.ExplainedRequirement)
			c.Back, c.MoreBack = onlyDropped(old.ExplainedRequirement, after)
		}
		c.Same = slices.Equal(c.Before, c.After) && len(c.Gone)+len(c.Back) == 0
		all = append(all, c)
	}
	for i := range before.Rows {
		if r := &before.Rows[i]; !matched[r.Number] {
			all = append(all, requirementChange{Requirement: r.Requirement, Before: toolsOf(r.ExplainedRequirement)})
		}
	}
	return all
}

// toolsOf returns the tools that a requirement gets.
func toolsOf(r *admin.ExplainedRequirement) (tools []string) {
	for _, c := range r.Selected {
		tools = append(tools, c.Tool)
	}
	return tools
}

// onlyDropped returns the candidates that r drops and other does not, at most maxNames, and how many more there are.
func onlyDropped(r, other *admin.ExplainedRequirement) (only []admin.ExplainedDrop, more int) {
	there := map[string]bool{}
	for _, d := range other.Dropped {
		there[d.Tool] = true
	}
	for _, d := range r.Dropped {
		switch {
		case there[d.Tool]:
		case len(only) == maxNames:
			more++
		default:
			only = append(only, d)
		}
	}
	return only, more
}

// flagsOf writes flags of a command, without those that have no value. pairs are names and values.
func flagsOf(pairs ...string) (text string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			text += " " + pairs[i] + " " + shellWord(pairs[i+1])
		}
	}
	return text
}

// shellWord quotes a text for a shell, unless no character of it needs that.
func shellWord(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@+,", r)
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
