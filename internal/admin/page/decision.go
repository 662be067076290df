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

// maxOutBoxes limits the servers that a form offers to take out by a box. Any other one can be typed.
const maxOutBoxes = 12

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
		if err := decodeLarge(answer, s.Recorded); err != nil {
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
	if err := decodeLarge(answer, x); err != nil {
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
			if err := decodeLarge(again.body.Bytes(), x); err != nil {
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
		answer, was := q.call(http.MethodGet, taskDecision(q, false), nil, nil), &admin.Explanation{}
		if err := answer.refusal(); err != nil {
			return err
		}
		if err := decodeLarge(answer.body.Bytes(), was); err != nil {
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
	s.Changes = compareDecisions(s.Now, x)
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
