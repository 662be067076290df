package memory

import (
	"cmp"
	"hash/fnv"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A pageKey identifies a page.
type pageKey struct {
	tenant switchboard.TenantID // "" for what concerns the whole installation
	part   string               // of the tenant's tools, or gapPart
	day    Day
}

// gapPart is the part of a tenant with its gaps, and with the changes of its configuration.
const gapPart = "gaps"

// partOf returns the part of a tenant that has the tool.
func partOf(tool string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(tool))
	return partName(int(h.Sum32() % parts))
}

// A GapKind says what was missing.
type GapKind string

// The kinds of gaps.
const (
	Requirement GapKind = "requirement" // of a task; no tool met it
	Request     GapKind = "request"     // an agent asked for the capability
)

// A Gap names something that was missing.
type Gap struct {
	Kind GapKind
	Name string
}

// A ServedChange is one change of the configuration or of a server by an officer, or a start.
type ServedChange struct {
	At      time.Time // to the second
	What    string    // what it carries out, such as a proposal; else its method, such as reload; start
	File    string    // of the configuration; "" if it is about none
	Receipt string    // its id
}

// A tally counts receipts for many pages. Use newTally.
type tally struct {
	pages map[pageKey]*page
	only  *pageKey // count for this page alone; nil means for all
	from  Day      // count no older days
}

func newTally(from Day, only *pageKey) *tally {
	return &tally{pages: map[pageKey]*page{}, only: only, from: from}
}

// page returns the page to count in; nil if the tally counts nothing for it.
func (t *tally) page(k pageKey) *page {
	if t.only != nil && k != *t.only || k.day < t.from || len(k.tenant) > maxName {
		return nil
	}
	p := t.pages[k]
	if p == nil {
		p = newPage()
		t.pages[k] = p
	}
	return p
}

// count counts one receipt. An entry that cannot be read counts for nothing.
func (t *tally) count(e *receipt.ChainEntry) {
	if e.Fault != nil {
		return
	}
	r := &e.Receipt
	gaps := pageKey{r.Tenant, gapPart, DayOf(r.Time)}
	switch r.Kind {
	case receipt.Call:
		if r.Method == wire.MethodToolsCall {
			t.countCall(r)
		}
	case receipt.Decision:
		for _, name := range r.Unmet {
			if p := t.page(gaps); p != nil {
				p.addGap(Gap{Requirement, masked(name)}, seen(r.Time))
			}
		}
	case receipt.Ask:
		if r.Capability == "" {
			return
		}
		if p := t.page(gaps); p != nil {
			p.addGap(Gap{Request, masked(r.Capability)}, seen(r.Time))
		}
	case receipt.Admin, receipt.Start:
		what := string(r.Kind)
		if r.Kind == receipt.Admin {
			if what = cmp.Or(r.Change.Source, r.Method); !isChange(r) {
				return
			}
		}
		if p := t.page(gaps); p != nil {
			p.addChange(ServedChange{At: seen(r.Time).First, What: masked(what), File: masked(r.Change.File), Receipt: e.ID()})
		}
	}
}

// isChange reports whether an administrator's action changed what is served. An intent did not yet, and may be refused. Nor did the steps of a proposal: when it is
// applied, its files have receipts of their own.
func isChange(r *receipt.Receipt) bool {
	if r.Outcome != receipt.OK || strings.HasPrefix(r.Method, "proposal ") {
		return false
	}
	return r.Change.File != "" || r.Method == "reload" || strings.HasPrefix(r.Method, "restart") || strings.HasPrefix(r.Method, "enable") || strings.HasPrefix(r.Method, "disable")
}

// countCall counts the attempts of a call. Each attempt that another one followed counts for its own tool. The last one counts for the tool that answered. If no tool
// answered, the receipt lists all attempts.
func (t *tally) countCall(r *receipt.Receipt) {
	sent := false
	for i := range r.Tries {
		try := &r.Tries[i]
		if try.Code == "" {
			continue // passed over: nothing was tried
		}
		outcome := receipt.Refused
		if try.Sent {
			outcome, sent = receipt.Failed, true
		}
		t.countAttempt(r, try.Tool, outcome, try.Code, true, nil)
	}
	tool := r.ServedBy
	if tool == "" {
		if len(r.Tries) > 0 || r.Server == "" || r.Tool == "" {
			return
		}
		tool = switchboard.ToolID{Server: r.Server, Name: r.Tool}.String()
	}
	t.countAttempt(r, tool, r.Outcome, r.Code, false, func(n *Totals) {
		n.Cost += max(r.Price.Settled, 0)
		if answered := r.Outcome == receipt.OK || r.Outcome == receipt.ToolError || r.Outcome == receipt.ServerError; answered && !sent && r.Took.Total > 0 {
			n.Latency.note(max(r.Took.Total-r.Took.Waiting, 0))
		}
	})
}

// countAttempt counts one attempt at the tool. more, if not nil, adds what the receipt says of it besides.
func (t *tally) countAttempt(r *receipt.Receipt, tool string, outcome receipt.CallOutcome, code switchboard.Code, moved bool, more func(*Totals)) {
	if !isToolID(tool) {
		tool = ""
	}
	p := t.page(pageKey{r.Tenant, partOf(tool), DayOf(r.Time)})
	if p == nil {
		return
	}
	n := p.totals(tool)
	if r.Given != "" && !moved {
		n.Kept++
		return
	}
	i := outcomeIndex(outcome)
	n.Outcomes[i]++
	at := seen(r.Time)
	if outcome == receipt.OK {
		if at.First.After(n.LastOK) {
			n.LastOK = at.First
		}
	} else {
		n.addPattern(Pattern{receipt.Outcomes[i], maskedCode(code), moved}, at)
	}
	if more != nil {
		more(n)
	}
}

// isToolID reports whether the catalog may have a tool of that id.
func isToolID(tool string) bool {
	id, err := switchboard.ParseToolID(tool)
	return err == nil && len(tool) <= maxName && catalog.CheckName(id.Name) == ""
}

// outcomeIndex returns the index in receipt.Outcomes. An outcome of a later version counts as unknown.
func outcomeIndex(o receipt.CallOutcome) int {
	for i, known := range receipt.Outcomes {
		if o == known {
			return i
		}
	}
	return numOutcomes - 1
}

// strange stands for a name that may hold more than a name.
const strange = "(a name that is not shown)"

// masked returns the name, or strange if it is too long or has characters that no configured name has.
func masked(name string) string {
	if len(name) > maxName {
		return strange
	}
	for i := range len(name) {
		c := name[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && strings.IndexByte(" ._-/:@*^~[](),", c) < 0 {
			return strange
		}
	}
	return name
}

// maskedCode returns the code if it looks like one of ours, otherwise "".
func maskedCode(code switchboard.Code) switchboard.Code {
	if rest, ok := strings.CutPrefix(string(code), "SB-"); ok && len(code) <= 20 && strings.Trim(rest, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == "" {
		return code
	}
	return ""
}

func partName(i int) string { return strconv.Itoa(i) }
