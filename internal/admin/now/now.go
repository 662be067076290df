// Package now collects what a person should look at first: what needs a person, and how the calls of the last minute, hour, day and 14 days went.
//
// It decides what needs a person, the order of these concerns, and which command helps. It decides nothing about who may see what: its reader is an operator or an officer of one
// tenant, and the packages that it asks leave out what that reader may not see. The API, the command and the page show the same Overview.
package now

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/pins"
	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// A ConcernKind says what a concern is about.
type ConcernKind string

// The kinds. Their concerns are listed in the order of kinds. Concerns of one kind are listed with the oldest first.
const (
	KindReload   ConcernKind = "reload"   // the configuration on disk is refused
	KindStore    ConcernKind = "store"    // the store is unavailable
	KindRecords  ConcernKind = "records"  // receipts or decisions cannot be written
	KindApproval ConcernKind = "approval" // a request waits for a person's yes or no
	KindPart     ConcernKind = "part"     // a part of the configuration has faults
	KindServer   ConcernKind = "server"   // a server is not healthy
	KindAtom     ConcernKind = "atom"     // an atom is red, so that the capabilities that depend on it cannot be used
	KindBudget   ConcernKind = "budget"   // an account has reached a warning
	KindTool     ConcernKind = "tool"     // a tool is not served, or fails alone
	KindPin      ConcernKind = "pin"      // a machine has frozen or suspended a definition
	KindUnknown  ConcernKind = "unknown"  // something cannot be read now
)

var kinds = []ConcernKind{KindReload, KindStore, KindRecords, KindApproval, KindPart, KindUnknown, KindServer, KindPin, KindAtom, KindBudget, KindTool}

const (
	maxConcerns = 50 // of one kind, so that agents cannot hide concerns of another kind behind their requests
	maxSays     = 10 // texts of one concern
)

// A Concern is something that needs a person.
type Concern struct {
	Kind    ConcernKind          `json:"kind" enum:"approval,reload,part,store,records,unknown,server,pin,atom,budget,tool" doc:"What it is about."`
	Tenant  switchboard.TenantID `json:"tenant,omitempty"`
	Subject string               `json:"subject,omitempty" doc:"The id of the request, server or atom, the name of the budget or of the part of the configuration, the tool as SERVER/TOOL, the definition as commands take it, or what cannot be read."`
	State   string               `json:"state,omitempty" doc:"Of a server, an atom, a tool or a part of the configuration. Of a definition: frozen or suspended."`
	Says    []string             `json:"says,omitempty" doc:"What servers, files or the system say about it. Not text of Switchboard's."`
	Since   time.Time            `json:"since,omitzero"`
	Command string               `json:"command,omitempty" doc:"A command that helps, or that shows more."`

	Yours    bool                   `json:"yours,omitempty" doc:"Of a request for approval: you act as an approver of its tenant."`
	Approval *approvals.ApprovalRow `json:"approval,omitempty"`
	Budget   *budget.StatementRow   `json:"budget,omitempty" doc:"The account, without its pace."`
	Pin      *pins.PinRow           `json:"pin,omitempty" doc:"The definition that is frozen or suspended. Operators see these."`
}

// A KindCount counts the concerns of one kind that an Overview leaves out.
type KindCount struct {
	Kind    ConcernKind `json:"kind" enum:"approval,reload,part,store,records,unknown,server,pin,atom,budget,tool"`
	Count   int         `json:"count"`
	Command string      `json:"command" doc:"A command that lists them all."`
}

// A SpanTally counts the calls of one span of time that ends now.
type SpanTally struct {
	Span string    `json:"span" enum:"1m,1h,24h,14d"`
	From time.Time `json:"from" doc:"The begin of the first step of the history that counts."`
	history.Tally

	TokensSpared int64 `json:"tokens_spared" doc:"full_list_tokens less list_tokens; negative if the lists cost more."`
}

// A RefusalRow counts the refused calls with one code.
type RefusalRow struct {
	Code   string  `json:"code" doc:"Such as SB-POL-001; \"others\" for all codes that have no row."`
	Counts []int64 `json:"counts" doc:"How many calls were refused with it, in the order of spans."`
}

// A SpendRow has what was spent in one unit.
type SpendRow struct {
	Unit    string   `json:"unit" doc:"The currency; empty if it has no name."`
	Amounts []string `json:"amounts" doc:"What was settled for calls, in the order of spans."`
}

// maxRefusalRows limits the rows of an Overview. The last one sums up the rarest codes.
const maxRefusalRows = 16

// An Overview is what a person should look at first.
type Overview struct {
	At       time.Time       `json:"at"`
	Concerns []Concern       `json:"concerns" doc:"What needs a person, the most pressing first."`
	More     []KindCount     `json:"more_concerns,omitempty" doc:"The kinds of which there are more than 50 concerns, with how many are left out."`
	Servers  int             `json:"servers" doc:"How many servers there are."`
	Spans    []SpanTally     `json:"spans" doc:"The calls of the last minute, hour, day and 14 days, at all replicas."`
	Refusals []RefusalRow    `json:"refusals" doc:"The refused calls by code, the most frequent of the last 14 days first; at most 16 rows."`
	Spends   []SpendRow      `json:"spends" doc:"What calls have cost, by unit. It has no row if nothing was spent in the last 14 days."`
	Hours    []history.Point `json:"hours" doc:"The calls of each of the last 24 hours, the present one last. Hours without calls are there, too."`

	Incomplete bool `json:"incomplete,omitempty" doc:"Calls are missing, because the history keeps at most 64 pairs of tenant and server apart in a step."`
	StoreAway  bool `json:"store_away,omitempty" doc:"The store cannot be read now: the newest calls at other replicas are missing."`
}

// OverviewSources are what an Overview is collected from.
type OverviewSources struct {
	Reader    *admin.Reader
	Budgets   *admin.BudgetReader
	Approvals *approvals.Decider
	Past      *history.History
	Pins      *pins.Registrar
}

// readTime limits how long requests for approval and budgets are waited for.
const readTime = time.Second

// Read returns the overview of a tenant for an officer; "" is all tenants, for an operator. Only an operator gets texts of servers and of the system.
func (s OverviewSources) Read(ctx context.Context, officer *switchboard.Officer, tenant switchboard.TenantID) (*Overview, error) {
	o := &Overview{At: time.Now().UTC(), Concerns: []Concern{}, Spans: []SpanTally{}, Refusals: []RefusalRow{}, Spends: []SpendRow{}, Hours: []history.Point{}}
	if err := s.addCalls(ctx, o, tenant); err != nil {
		return nil, err
	}
	short, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	s.addApprovals(short, o, officer, tenant)
	s.addBudgets(short, o, tenant)
	status := s.Reader.TenantStatus(tenant, officer.Operator)
	o.Servers = len(status.Servers)
	o.addStatus(&status, tenant, officer.Operator)
	if officer.Operator { // who alone reads pins, and decides about them
		o.addPins(s.Pins.Held(), &status)
	}
	o.addAtoms(admin.RedAtoms(s.Reader, tenant), tenant, officer.Operator)
	o.arrange()
	return o, nil
}

// arrange puts the most pressing concerns first, and leaves out those of which there are too many.
func (o *Overview) arrange() {
	slices.SortStableFunc(o.Concerns, func(a, b Concern) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind)), cmp.Compare(urgency(a.State), urgency(b.State)), a.Since.Compare(b.Since))
	})
	count := map[ConcernKind]int{}
	o.Concerns = slices.DeleteFunc(o.Concerns, func(c Concern) bool {
		count[c.Kind]++
		return count[c.Kind] > maxConcerns
	})
	for _, kind := range kinds {
		if n := count[kind] - maxConcerns; n > 0 {
			o.More = append(o.More, KindCount{Kind: kind, Count: n, Command: listCommand(kind)})
		}
	}
}

// listCommand returns the command that lists all concerns of a kind.
func listCommand(kind ConcernKind) string {
	switch kind {
	case KindApproval:
		return "switchboard approvals list"
	case KindBudget:
		return "switchboard budget status"
	case KindPin:
		return "switchboard pins list --changed"
	}
	return "switchboard status"
}

// urgency orders the states of servers and definitions. Servers that may work come after those that do not, and disabled ones come last. A frozen definition works.
func urgency(state string) int {
	return slices.Index([]string{string(health.NeedsConnection), string(health.Probation), string(health.Starting), string(health.Disabled), pins.Frozen}, state)
}

const hours = 24 // of an overview

// addCalls adds the counts of calls.
func (s OverviewSources) addCalls(ctx context.Context, o *Overview, tenant switchboard.TenantID) error {
	var quarters []history.Point
	for i, step := range history.Names() {
		r, err := s.Past.Sum(ctx, history.Range{Tenant: tenant, Step: step})
		if err != nil {
			return err
		}
		o.Incomplete, o.StoreAway = o.Incomplete || r.Incomplete, o.StoreAway || r.StoreAway
		points := r.Series[0].Points
		if i == 0 {
			o.Spans = append(o.Spans, sumSince(points, "1m", o.At.Add(-time.Minute)))
		}
		o.Spans = append(o.Spans, sumSince(points, []string{"1h", "24h", "14d"}[i], r.From))
		quarters = points // in the end those of the longest steps
	}
	o.addRefusals()
	o.addSpends(s.Budgets.Currency())
	first := o.At.Truncate(time.Hour).Add(-(hours - 1) * time.Hour)
	for i := range hours {
		o.Hours = append(o.Hours, history.Point{Start: first.Add(time.Duration(i) * time.Hour)})
	}
	for i := range quarters {
		if n := int(quarters[i].Start.Sub(first) / time.Hour); !quarters[i].Start.Before(first) && n < hours {
			o.Hours[n].Add(&quarters[i].Tally)
		}
	}
	for i := range o.Hours {
		t := &o.Hours[i].Tally
		*t = history.Tally{Calls: t.Calls, Failed: t.Failed, Refused: t.Refused, Moved: t.Moved, P50: t.P50, P95: t.P95}
	}
	return nil
}

// addRefusals moves the refusals of the spans into rows.
func (o *Overview) addRefusals() {
	by := map[string]*RefusalRow{}
	row := func(code string) *RefusalRow {
		if by[code] == nil {
			by[code] = &RefusalRow{Code: code, Counts: make([]int64, len(o.Spans))}
		}
		return by[code]
	}
	for i := range o.Spans {
		for code, n := range o.Spans[i].Refusals {
			row(code).Counts[i] = n
		}
		o.Spans[i].Refusals = nil
	}
	last := len(o.Spans) - 1
	codes := slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(by[b].Counts[last], by[a].Counts[last]), cmp.Compare(a, b))
	})
	for i, code := range codes {
		if i < maxRefusalRows-1 || code == history.OtherCodes {
			continue
		}
		for span, n := range by[code].Counts {
			row(history.OtherCodes).Counts[span] += n
		}
		delete(by, code)
	}
	for _, code := range append(codes, history.OtherCodes) {
		if r := by[code]; r != nil {
			o.Refusals = append(o.Refusals, *r)
			delete(by, code)
		}
	}
}

// addSpends moves what was spent in the spans into a row.
func (o *Overview) addSpends(currency string) {
	row, spent := SpendRow{Unit: currency}, false
	for i := range o.Spans {
		spent = spent || o.Spans[i].Spent > 0
		row.Amounts = append(row.Amounts, o.Spans[i].Spent.String())
		o.Spans[i].Spent = 0
	}
	if spent {
		o.Spends = append(o.Spends, row)
	}
}

// rank puts the sum of the other codes last.
func rank(code string) int {
	if code == history.OtherCodes {
		return 1
	}
	return 0
}

// sumSince returns the sum of the steps that begin at an instant or later.
func sumSince(points []history.Point, span string, from time.Time) SpanTally {
	s := SpanTally{Span: span, From: from.UTC()}
	for i := range points {
		if !points[i].Start.Before(from) {
			s.Add(&points[i].Tally)
		}
	}
	s.Buckets = nil
	s.TokensSpared = s.FullTokens - s.ListTokens
	return s
}

// unreadable returns the concern that something cannot be read.
func unreadable(tenant switchboard.TenantID, what string, err error) Concern {
	return Concern{Kind: KindUnknown, Tenant: tenant, Subject: what, Says: []string{access.AsError(err).Text}, Command: "switchboard status"}
}

// addApprovals adds the requests that wait.
func (s OverviewSources) addApprovals(ctx context.Context, o *Overview, officer *switchboard.Officer, tenant switchboard.TenantID) {
	rows, err := s.Approvals.List(ctx, tenant, approvals.ApprovalFilter{State: approval.Pending})
	if err != nil {
		o.Concerns = append(o.Concerns, unreadable(tenant, "requests for approval", err))
	}
	for i := range rows {
		a := &rows[i]
		o.Concerns = append(o.Concerns, Concern{
			Kind: KindApproval, Tenant: a.Tenant, Subject: a.ID, Since: a.Asked, Approval: a, Yours: s.Approvals.ActsAsApprover(officer, a.Tenant), Command: "switchboard approvals show " + a.ID,
		})
	}
}

// addBudgets adds the accounts that have reached a warning.
func (s OverviewSources) addBudgets(ctx context.Context, o *Overview, tenant switchboard.TenantID) {
	rows, err := s.Budgets.Warned(ctx, tenant)
	if err != nil {
		o.Concerns = append(o.Concerns, unreadable(tenant, "accounts of budgets", err))
	}
	for i := range rows {
		b := &rows[i]
		o.Concerns = append(o.Concerns, Concern{Kind: KindBudget, Tenant: b.Tenant, Subject: b.Budget, Budget: b, Command: "switchboard budget status --tenant " + string(b.Tenant)})
	}
}

// addStatus adds what a status says is wrong.
func (o *Overview) addStatus(s *admin.StatusReport, tenant switchboard.TenantID, asOperator bool) {
	add := func(c Concern) {
		c.Tenant = cmp.Or(c.Tenant, tenant)
		if !asOperator && slices.Contains([]ConcernKind{KindReload, KindStore, KindPart}, c.Kind) {
			c.Command = "switchboard status" // the commands below need the operator's machine
		}
		c.Says = slices.DeleteFunc(c.Says, func(text string) bool { return text == "" })
		c.Says = c.Says[:min(len(c.Says), maxSays)]
		o.Concerns = append(o.Concerns, c)
	}
	if r := s.Refused; r != nil {
		add(Concern{Kind: KindReload, Since: r.Since, Says: []string{r.Why}, Command: "switchboard validate"})
	}
	for _, p := range s.Faulty {
		add(Concern{Kind: KindPart, Tenant: p.Tenant, Subject: p.Part, State: p.State, Since: p.Since, Says: p.Faults, Command: "switchboard validate"})
	}
	if s.Store != nil && s.Store.Fault != "" {
		add(Concern{Kind: KindStore, Since: s.Store.Since, Says: []string{s.Store.Fault}, Command: "switchboard doctor"})
	}
	if s.Records != nil && s.Records.Fault() != "" {
		add(Concern{Kind: KindRecords, Says: []string{s.Records.Fault()}, Command: "switchboard status"})
	}
	for i := range s.Servers {
		if c := serverConcern(&s.Servers[i], asOperator); c != nil {
			add(*c)
		}
		for _, t := range s.Servers[i].Health.Tools {
			add(toolConcern(s.Servers[i].ID, t))
		}
	}
	for _, fault := range s.Catalog.Faults {
		add(Concern{Kind: KindTool, State: "not served", Says: []string{fault}, Command: "switchboard status"})
	}
}

// addAtoms adds the red atoms. The command names the tenant of the capability if the reader has not.
func (o *Overview) addAtoms(red []admin.RedAtom, tenant switchboard.TenantID, asOperator bool) {
	for i := range red {
		a := &red[i]
		c := Concern{Kind: KindAtom, Tenant: tenant, Subject: a.ID, State: string(a.State), Since: a.Since, Command: listCommand(KindAtom)}
		if asOperator && a.Reason != "" {
			c.Says = []string{a.Reason}
		}
		if a.Capability != "" {
			c.Command = "switchboard resolve " + a.Capability + " --probe --tenant " + string(a.Tenant)
		}
		o.Concerns = append(o.Concerns, c)
	}
}

// addPins adds the definitions that a machine has frozen or suspended, of the servers that the status has.
func (o *Overview) addPins(held []pins.PinRow, status *admin.StatusReport) {
	of := map[switchboard.ServerID]bool{}
	for i := range status.Servers {
		of[status.Servers[i].ID] = true
	}
	for i := range held {
		p := &held[i]
		if !of[p.Server] {
			continue
		}
		c := Concern{Kind: KindPin, Subject: p.Subject(), State: string(p.State), Since: p.Since, Pin: p, Command: lookCommand(p)}
		if p.Frozen {
			c.State = pins.Frozen
		}
		if p.Why != "" {
			c.Says = []string{p.Why}
		}
		o.Concerns = append(o.Concerns, c)
	}
}

// plainSubject matches the names of definitions that a shell reads as they are.
var plainSubject = regexp.MustCompile(`^[a-zA-Z0-9._:@/+-]+$`)

// lookCommand returns the command that shows a definition.
func lookCommand(p *pins.PinRow) string {
	switch subject := p.Subject(); {
	case !plainSubject.MatchString(subject):
		return listCommand(KindPin)
	case p.Kind == switchboard.PinTool:
		return "switchboard pins diff " + subject
	default:
		return "switchboard pins diff " + subject + " --kind " + string(p.Kind)
	}
}

// serverConcern returns what is wrong with a server; nil if nothing is.
func serverConcern(s *admin.ServerStatus, asOperator bool) *Concern {
	state := s.Health.State
	if state == health.Healthy && s.State == upstream.StateNeedsConnection {
		state = health.NeedsConnection
	}
	c := &Concern{Kind: KindServer, Subject: string(s.ID), State: string(state), Since: s.Health.Since, Command: "switchboard server list"}
	if state == health.Healthy && s.State != upstream.StateReady {
		c.State = string(s.State)
	}
	cause, failure := s.Health.Cause, s.LastFailure
	switch {
	case c.State == string(health.Healthy), c.State == string(health.Starting) && failure == nil:
		return nil
	case cause != nil && cause.Message != "":
		c.Says, c.Since = []string{cause.Message}, cause.Since
	case failure != nil:
		c.Says, c.Since = []string{failure.Message}, failure.Since
	}
	if failure != nil && failure.Remedy != "" {
		c.Says = append(c.Says, failure.Remedy)
	}
	if !asOperator {
		return c // the commands below are for operators
	}
	switch state {
	case health.NeedsConnection:
		c.Command = "switchboard server connect " + string(s.ID)
	case health.Disabled:
		c.Command = "switchboard server enable " + string(s.ID)
	case health.Quarantine, health.Lost:
		c.Command = "switchboard server restart " + string(s.ID)
	}
	return c
}

// toolConcern returns the concern of a tool that fails alone.
func toolConcern(server switchboard.ServerID, t health.ToolStatus) Concern {
	c := Concern{Kind: KindTool, Subject: switchboard.ToolID{Server: server, Name: t.Tool}.String(), State: string(t.State), Command: "switchboard server list"}
	if t.Cause != nil {
		c.Says, c.Since = []string{t.Cause.Message}, t.Cause.Since
	}
	return c
}
