// Package past answers what officers ask about the memory of tools: how a tool has done, which of its calls ended without success, which tools are like it, what a
// tenant lacks, and which order of servers the figures speak for.
//
// It decides which tools of a tenant a question may be about: those that the tenant may use now. Any other id gets the answer of a tool that does not exist. It
// changes nothing, and no decision reads its answers.
package past

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxDays is the most days of an answer.
const MaxDays = int(memory.Keep / (24 * time.Hour))

// Bounds of answers.
const (
	maxGapRows = 200
	maxSimilar = 20
	maxIndexes = 8              // of tenants that were asked about last
	changeTime = 24 * time.Hour // a later change is not named beside the end of an error
	reloadTime = time.Minute    // a change of a file is recorded at most so long after its reload
)

// A Reader answers the questions. Use New. It is safe for concurrent use.
type Reader struct {
	of     *admin.Reader
	memory *memory.Memory

	mu      sync.Mutex
	indexes []viewIndex // the last one asked first
}

// A viewIndex finds the tools of a tenant by words.
type viewIndex struct {
	tenant switchboard.TenantID
	view   *catalog.View
	index  *search.Index
}

// New returns a Reader.
func New(of *admin.Reader, m *memory.Memory) *Reader { return &Reader{of: of, memory: m} }

// Figures are what attempts at a tool came to.
type Figures struct {
	Attempts uint64                         `json:"attempts" doc:"A call that was tried at several tools is one attempt at each."`
	Outcomes map[receipt.CallOutcome]uint64 `json:"outcomes" doc:"How attempts ended, by outcome; those without any are left out."`
	Codes    map[switchboard.Code]uint64    `json:"codes" doc:"The attempts that ended with a code of Switchboard."`
	Kept     uint64                         `json:"kept" doc:"Further calls, which an earlier result answered without the tool."`
	Success  *float64                       `json:"success,omitempty" doc:"The part of the attempts that succeeded, without those that Switchboard refused."`
	P50      *float64                       `json:"p50_ms,omitempty" doc:"The median time until the tool answered, in milliseconds; at most 1/16 off."`
	P95      *float64                       `json:"p95_ms,omitempty" doc:"95 % of the answers took no longer."`
	Cost     string                         `json:"cost" doc:"What was settled, in the currency of the installation."`
}

func figuresOf(t *memory.Totals) Figures {
	f := Figures{Attempts: t.Attempts(), Outcomes: map[receipt.CallOutcome]uint64{}, Codes: map[switchboard.Code]uint64{}, Kept: t.Kept, Cost: t.Cost.String()}
	for i, n := range t.Outcomes {
		if n > 0 {
			f.Outcomes[receipt.Outcomes[i]] = n
		}
	}
	for p, s := range t.Patterns {
		if p.Code != "" {
			f.Codes[p.Code] += s.Count
		}
	}
	if n := t.Judged(); n > 0 {
		f.Success = new(float64(t.Of(receipt.OK)) / float64(n))
	}
	if t.Latency.Len() > 0 {
		f.P50, f.P95 = new(milliseconds(t.Latency.Quantile(0.5))), new(milliseconds(t.Latency.Quantile(0.95)))
	}
	return f
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// MissingDays are the days that an answer does not count in full.
type MissingDays struct {
	Unreadable []string `json:"unreadable" doc:"Days of which calls are missing, because a page of the memory was damaged. switchboard memory rebuild counts them again, if none of their receipts was removed."`
	Crowded    []string `json:"crowded" doc:"Days on which the tenant called more tools than are kept: not all tools of these days were kept."`
}

func missingDays(all ...memory.Missing) MissingDays {
	x := MissingDays{Unreadable: []string{}, Crowded: []string{}}
	for i := range all {
		x.Unreadable, x.Crowded = addDays(x.Unreadable, all[i].Unreadable), addDays(x.Crowded, all[i].Crowded)
	}
	return x
}

// addDays adds days to a list that stays sorted, each once.
func addDays(to []string, days []memory.Day) []string {
	for _, d := range days {
		to = append(to, d.String())
	}
	slices.Sort(to)
	return slices.Compact(to)
}

// A ToolReport says how a tool has done.
type ToolReport struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Tool   string               `json:"tool"`
	From   string               `json:"from" doc:"The first day, in UTC."`
	To     string               `json:"to" doc:"The last day, today. Calls appear after some seconds."`
	Total  Figures              `json:"total"`
	Days   []DayFigures         `json:"days" doc:"The days with calls, the oldest first."`
	MissingDays
}

// DayFigures are the figures of one UTC day.
type DayFigures struct {
	Day string `json:"day"`
	Figures
}

// Tool reports on a tool in the last days.
func (r *Reader) Tool(ctx context.Context, tenant switchboard.TenantID, id switchboard.ToolID, days int) (*ToolReport, error) {
	tenant, _, _, err := r.find(tenant, id)
	if err != nil {
		return nil, err
	}
	span := memory.LastDays(days, time.Now())
	all, lacks, err := r.memory.Tool(ctx, tenant, id, span)
	if err != nil {
		return nil, unavailable(err)
	}
	x := &ToolReport{Tenant: tenant, Tool: id.String(), From: span.From.String(), To: span.To.String(), Total: figuresOf(memory.Sum(all)), Days: []DayFigures{}, MissingDays: missingDays(lacks)}
	for i := range all {
		x.Days = append(x.Days, DayFigures{all[i].Day.String(), figuresOf(&all[i].Totals)})
	}
	return x, nil
}

// find returns the tool of a tenant; if tenant is "", of the only one. The error is a *switchboard.Error.
func (r *Reader) find(tenant switchboard.TenantID, id switchboard.ToolID) (switchboard.TenantID, *bind.Tenant, *switchboard.Tool, error) {
	tenant, t, err := admin.TenantOrOnly(r.of, tenant)
	if err != nil {
		return "", nil, nil, err
	}
	tool, ok := t.View.Tool(id)
	if !ok {
		return "", nil, nil, switchboard.Refuse(switchboard.CodeNoSuchTool, "tenant %s has no tool %.300q", tenant, id.String())
	}
	return tenant, t, tool, nil
}

func unavailable(err error) error { return switchboard.Unavailable("the memory cannot be read", err) }

// A GapReport says what a tenant lacks.
type GapReport struct {
	Tenant switchboard.TenantID `json:"tenant"`
	From   string               `json:"from"`
	To     string               `json:"to"`
	Gaps   []GapRow             `json:"gaps" doc:"Those that were seen most often first, at most 200."`
	More   int                  `json:"more" doc:"How many further ones there are."`
	MissingDays
}

// A GapRow is one thing that was missing.
type GapRow struct {
	Kind  memory.GapKind `json:"kind" doc:"requirement: no tool met it. request: an agent asked for the capability."`
	Name  string         `json:"name"`
	Count uint64         `json:"count" doc:"A decision is recorded once a day as long as it stays the same, so this is no number of runs."`
	Days  int            `json:"days" doc:"The days on which it was seen."`
	First time.Time      `json:"first"`
	Last  time.Time      `json:"last"`

	// Dossier is set by package api, which knows the dossiers.
	Dossier string `json:"dossier,omitempty" doc:"Of a request: the newest search for a tool, with its status. See acquisitions."`
}

// Gaps reports what a tenant has lacked in the last days.
func (r *Reader) Gaps(ctx context.Context, tenant switchboard.TenantID, days int) (*GapReport, error) {
	tenant, _, err := admin.TenantOrOnly(r.of, tenant)
	if err != nil {
		return nil, err
	}
	span := memory.LastDays(days, time.Now())
	all, lacks, err := r.memory.Gaps(ctx, tenant, span)
	if err != nil {
		return nil, unavailable(err)
	}
	x := &GapReport{Tenant: tenant, From: span.From.String(), To: span.To.String(), Gaps: []GapRow{}, MissingDays: missingDays(lacks)}
	x.More = max(0, len(all)-maxGapRows)
	for _, g := range all[:len(all)-x.More] {
		x.Gaps = append(x.Gaps, GapRow{Kind: g.Kind, Name: g.Name, Count: g.Count, Days: g.Days, First: g.First, Last: g.Last})
	}
	return x, nil
}

// An ErrorReport lists how attempts at a tool ended without success.
type ErrorReport struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Tool   string               `json:"tool"`
	From   string               `json:"from"`
	To     string               `json:"to"`
	Errors []ErrorRow           `json:"errors" doc:"The latest first."`
	MissingDays
}

// An ErrorRow is one kind of such an end.
type ErrorRow struct {
	Outcome receipt.CallOutcome `json:"outcome"`
	Code    switchboard.Code    `json:"code,omitempty" doc:"Absent if the tool or its server reported the error. No text of an error is kept."`
	Moved   bool                `json:"moved" doc:"Another tool was tried after it, or in its place."`
	Count   uint64              `json:"count"`
	Days    int                 `json:"days" doc:"The days on which it was seen."`
	First   time.Time           `json:"first"`
	Last    time.Time           `json:"last"`

	// Then is there only if attempts have succeeded since.
	Then *ChangeRow `json:"then,omitempty" doc:"The change with which they stopped: the first one after the last of these errors, within 24 h, if attempts have succeeded since the change. It need not be the cause."`
}

// A ChangeRow is a change of the configuration or of a server.
type ChangeRow struct {
	At       time.Time `json:"at"`
	What     string    `json:"what" doc:"change or revert of a file, proposal or roll-back of a proposal, reload, restart, enable or disable of a server, or start of a process."`
	Proposal string    `json:"proposal,omitempty" doc:"The id of the proposal that the change has carried out or taken back."`
	File     string    `json:"file,omitempty"`
	Receipt  string    `json:"receipt"`
}

// Errors reports how attempts at a tool have ended without success in the last days. For an operator it also names changes of the whole installation.
func (r *Reader) Errors(ctx context.Context, tenant switchboard.TenantID, id switchboard.ToolID, days int, operator bool) (*ErrorReport, error) {
	tenant, _, _, err := r.find(tenant, id)
	if err != nil {
		return nil, err
	}
	span := memory.LastDays(days, time.Now())
	all, lacks, err := r.memory.Tool(ctx, tenant, id, span)
	if err != nil {
		return nil, unavailable(err)
	}
	sum, seenOn := memory.Sum(all), map[memory.Pattern]int{}
	for i := range all {
		for p := range all[i].Patterns {
			seenOn[p]++
		}
	}
	asked := daysOfChanges(sum)
	changes, unread, err := r.memory.Changes(ctx, tenant, asked)
	if err == nil && operator {
		var more []memory.ServedChange
		more, _, err = r.memory.Changes(ctx, "", asked) // they are no calls
		changes = append(changes, more...)
	}
	if err != nil {
		return nil, unavailable(err)
	}
	slices.SortStableFunc(changes, func(a, b memory.ServedChange) int { return a.At.Compare(b.At) })
	x := &ErrorReport{Tenant: tenant, Tool: id.String(), From: span.From.String(), To: span.To.String(), Errors: []ErrorRow{}, MissingDays: missingDays(lacks, unread)}
	for p, s := range sum.Patterns {
		row := ErrorRow{Outcome: p.Outcome, Code: p.Code, Moved: p.Moved, Count: s.Count, Days: seenOn[p], First: s.First, Last: s.Last}
		row.Then = changeAfter(changes, s.Last, sum.LastOK)
		x.Errors = append(x.Errors, row)
	}
	slices.SortFunc(x.Errors, func(a, b ErrorRow) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Code, b.Code))
	})
	return x, nil
}

// daysOfChanges returns the days with the changes that changeAfter may return for a pattern of the totals.
func daysOfChanges(sum *memory.Totals) (days []memory.Day) {
	for _, s := range sum.Patterns {
		for _, day := range []memory.Day{memory.DayOf(s.Last), memory.DayOf(s.Last.Add(changeTime))} {
			if day <= memory.DayOf(sum.LastOK) {
				days = append(days, day)
			}
		}
	}
	return days
}

// changeAfter returns the first change after the last of some errors, if an attempt has succeeded after the change. It is the last one before the errors stopped: no such
// error came after it. A reload and the change of a file that caused it count as one, which names the file.
func changeAfter(changes []memory.ServedChange, last, ok time.Time) *ChangeRow {
	var found *memory.ServedChange
	for i := range changes {
		c := &changes[i]
		switch {
		case !c.At.After(last) || !c.At.Before(ok) || c.At.Sub(last) > changeTime:
		case found == nil, found.What == "reload" && c.File != "" && c.At.Sub(found.At) <= reloadTime:
			found = c
		}
	}
	if found == nil {
		return nil
	}
	row := &ChangeRow{At: found.At, What: found.What, File: found.File, Receipt: found.Receipt}
	if kind, id, ok := strings.Cut(found.What, "proposal "); ok {
		row.Proposal, row.What = id, "proposal"
		if kind != "" {
			row.What = "roll-back"
		}
	}
	return row
}

// A SimilarReport lists the tools that are like a tool.
type SimilarReport struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Tool   string               `json:"tool"`
	Tools  []SimilarTool        `json:"tools" doc:"Those that provide the same capability first, then declared equivalents, then those with the same label, then those that are found by its words."`
	MissingDays
}

// A SimilarTool is one of them, with how it has done.
type SimilarTool struct {
	Tool string   `json:"tool"`
	Why  []string `json:"why" doc:"What makes it similar, the strongest reason first."`
	Figures
}

// Similar lists the tools of the tenant that are like a tool, with their figures of the last days.
func (r *Reader) Similar(ctx context.Context, tenant switchboard.TenantID, id switchboard.ToolID, days int) (*SimilarReport, error) {
	tenant, t, tool, err := r.find(tenant, id)
	if err != nil {
		return nil, err
	}
	x := &SimilarReport{Tenant: tenant, Tool: id.String(), Tools: []SimilarTool{}}
	at := map[switchboard.ToolID]int{}
	add := func(other switchboard.ToolID, why string) {
		if _, mine := t.View.Tool(other); !mine || other == id {
			return
		}
		if i, known := at[other]; known {
			x.Tools[i].Why = append(x.Tools[i].Why, why)
		} else if len(x.Tools) < maxSimilar {
			at[other] = len(x.Tools)
			x.Tools = append(x.Tools, SimilarTool{Tool: other.String(), Why: []string{why}})
		}
	}
	provided := t.Providers.Tools()
	for _, version := range slices.Sorted(maps.Keys(provided)) {
		for _, own := range provided[version] {
			if own.ID != id || own.Provides == nil {
				continue
			}
			for _, other := range provided[version] {
				if other.Provides != nil && other.Provides.Name == own.Provides.Name {
					add(other.ID, "provides "+own.Provides.Name+" of "+version)
				}
			}
		}
	}
	var candidates []switchboard.Equivalent
	for _, other := range t.View.Named("*/*") {
		candidates = append(candidates, switchboard.Equivalent{Tool: other})
	}
	for _, e := range t.Equivalents.Among(candidates).Of(tool) {
		add(e.Tool.ID, "equivalent")
	}
	for _, c := range tool.Capabilities {
		for _, other := range t.View.Match(c.Verb, c.Resource) {
			add(other.ID, fmt.Sprintf("can %s %s", c.Verb, c.Resource))
		}
	}
	for _, m := range r.indexOf(tenant, t.View).Search(wordsOf(tool), maxSimilar+1) {
		add(m.ID, "found by its words")
	}
	sums, lacks, err := r.memory.Tools(ctx, tenant, slices.Collect(maps.Keys(at)), memory.LastDays(days, time.Now()))
	if err != nil {
		return nil, unavailable(err)
	}
	for id, i := range at {
		x.Tools[i].Figures = figuresOf(sums[id])
	}
	x.MissingDays = missingDays(lacks)
	return x, nil
}

// wordsOf returns the words to find tools like this one by: its name and its own description.
func wordsOf(t *switchboard.Tool) string {
	var def struct {
		Description string `json:"description"`
	}
	_ = json.Unmarshal(t.Definition, &def) // a definition without a text has a name
	return t.ID.Name + " " + def.Description
}

// indexOf returns the index of the tools of a tenant. It is built without the lock, so that it delays no other question; two questions may build it at the same time.
func (r *Reader) indexOf(tenant switchboard.TenantID, v *catalog.View) *search.Index {
	if kept := r.keepIndex(viewIndex{tenant, v, nil}); kept != nil {
		return kept
	}
	tools := v.Named("*/*")
	docs := make([]*search.Doc, len(tools))
	for i, t := range tools {
		docs[i] = r.of.Docs().Doc(t)
	}
	return r.keepIndex(viewIndex{tenant, v, search.New(docs)})
}

// keepIndex keeps the index, unless it is nil or one of the view is kept already. It returns the one of the view; nil if there is none. It drops the indexes of views that
// are served no more.
func (r *Reader) keepIndex(x viewIndex) *search.Index {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.indexes = slices.DeleteFunc(r.indexes, func(old viewIndex) bool {
		if old.view == x.view {
			x = old
			return true // it goes to the front
		}
		_, t, err := admin.TenantOrOnly(r.of, old.tenant)
		return err != nil || t.View != old.view
	})
	if x.index != nil {
		r.indexes = slices.Insert(r.indexes, 0, x)
	}
	if len(r.indexes) > maxIndexes {
		r.indexes = slices.Delete(r.indexes, maxIndexes, len(r.indexes)) // it clears what it deletes
	}
	return x.index
}
