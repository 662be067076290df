package past

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/memory"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/ranking"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// leastCalls is how many attempts each of two servers needs before they are compared.
	leastCalls = 50

	// maxRead is how many tools one suggestion reads the figures of.
	maxRead = 400
)

// A RankingSuggestion names the requirements of a tenant where another server should come first.
type RankingSuggestion struct {
	Tenant switchboard.TenantID `json:"tenant"`
	From   string               `json:"from"`
	To     string               `json:"to"`
	Rows   []ComparedServers    `json:"rows" doc:"A row for each verb and resource that tasks of the tenant require and that several servers offer."`
	More   bool                 `json:"more" doc:"There are more tools than one answer compares."`
	MissingDays

	// Proposal is the change; nil if no figures speak for one.
	Proposal *RankingProposal `json:"proposal,omitempty"`
}

// ComparedServers are the servers for one verb and resource.
type ComparedServers struct {
	Verb     switchboard.Verb     `json:"verb"`
	Resource switchboard.Resource `json:"resource"`
	Servers  []ServerEvidence     `json:"servers" doc:"In the present order."`
	First    switchboard.ServerID `json:"first,omitempty" doc:"The server that should come first; absent if the figures do not say that another one should."`
	Why      string               `json:"why" doc:"What speaks for it, or what is missing."`
}

// ServerEvidence is what the calls of a server's tools say, for one verb and resource. The bounds are intervals of 95 %.
type ServerEvidence struct {
	Server      switchboard.ServerID `json:"server"`
	Calls       uint64               `json:"calls" doc:"Attempts that Switchboard did not refuse."`
	OK          uint64               `json:"ok"`
	SuccessLow  float64              `json:"success_low"`
	SuccessHigh float64              `json:"success_high"`
	MedianLow   float64              `json:"median_low_ms"`
	MedianHigh  float64              `json:"median_high_ms"`
}

// A RankingProposal is a change of a tenant's file with claims about it, for persons to decide about. It is not kept: see package proposal.
type RankingProposal struct {
	Diff  string         `json:"diff" doc:"Of the tenant's file, unified; as patch -p1 and git apply take it."`
	Draft proposal.Draft `json:"draft" doc:"The same with claims, as create-proposal takes it."`
}

// SuggestRanking compares the servers that can serve the requirements of a tenant's tasks, by the attempts of the last days.
func (r *Reader) SuggestRanking(ctx context.Context, tenant switchboard.TenantID, days int) (*RankingSuggestion, error) {
	tenant, t, err := admin.TenantOrOnly(r.of, tenant)
	if err != nil {
		return nil, err
	}
	span := memory.LastDays(days, time.Now())
	x := &RankingSuggestion{Tenant: tenant, From: span.From.String(), To: span.To.String(), Rows: []ComparedServers{}}
	type comparison struct {
		tools []*switchboard.Tool
		order []switchboard.ServerID
	}
	var all []comparison
	read := map[switchboard.ToolID]bool{}
	for _, need := range needsOf(t) {
		c := comparison{tools: t.View.Match(need.Verb, need.Resource)}
		if c.order, err = orderOf(ctx, t, &need, c.tools); err != nil {
			return nil, err
		}
		if len(c.order) < 2 {
			continue
		}
		more := map[switchboard.ToolID]bool{}
		for _, tool := range c.tools {
			if !read[tool.ID] {
				more[tool.ID] = true
			}
		}
		if len(read)+len(more) > maxRead {
			x.More = true
			break
		}
		maps.Copy(read, more)
		all = append(all, c)
		x.Rows = append(x.Rows, ComparedServers{Verb: need.Verb, Resource: need.Resource})
	}
	totals, lacks, err := r.memory.Tools(ctx, tenant, slices.Collect(maps.Keys(read)), span)
	if err != nil {
		return nil, unavailable(err)
	}
	x.MissingDays = missingDays(lacks)
	for i, c := range all {
		sums := map[switchboard.ServerID]*memory.Totals{}
		for _, tool := range c.tools {
			if sums[tool.ID.Server] == nil {
				sums[tool.ID.Server] = &memory.Totals{}
			}
			sums[tool.ID.Server].Add(totals[tool.ID])
		}
		for _, s := range c.order {
			x.Rows[i].Servers = append(x.Rows[i].Servers, evidenceOf(s, sums[s]))
		}
		x.Rows[i].judge()
	}
	return x, nil
}

// needsOf returns the verbs and resources that the tasks of the tenant require, sorted.
func needsOf(t *bind.Tenant) []switchboard.Requirement {
	type need struct {
		verb     switchboard.Verb
		resource switchboard.Resource
	}
	all := map[need]bool{}
	for _, task := range t.Tasks {
		for i := range task.Requirements {
			if r := &task.Requirements[i]; !r.ByName() && r.Verb != "" {
				all[need{r.Verb, r.Resource}] = true
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(all), func(a, b need) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.resource, b.resource))
	})
	needs := make([]switchboard.Requirement, 0, len(keys))
	for _, k := range keys {
		needs = append(needs, switchboard.Requirement{Verb: k.verb, Resource: k.resource})
	}
	return needs
}

// orderOf returns the servers of the tools in the present order of the tenant.
func orderOf(ctx context.Context, t *bind.Tenant, need *switchboard.Requirement, tools []*switchboard.Tool) (order []switchboard.ServerID, err error) {
	in := make([]decide.Candidate, len(tools))
	for i, tool := range tools {
		in[i].Tool = tool
	}
	out, err := ranking.New(t.Ranking, tools).Apply(ctx, &decide.Question{Requirement: need}, in, decide.Ignore)
	if err != nil {
		return nil, err
	}
	return serversOf(out), nil
}

// serversOf returns the servers of the candidates, each at its first place.
func serversOf(ranked []decide.Candidate) (order []switchboard.ServerID) {
	known := map[switchboard.ServerID]bool{}
	for _, c := range ranked {
		if id := c.Tool.ID.Server; !known[id] {
			known[id] = true
			order = append(order, id)
		}
	}
	return order
}

func evidenceOf(id switchboard.ServerID, t *memory.Totals) ServerEvidence {
	e := ServerEvidence{Server: id, Calls: t.Judged(), OK: t.Of(receipt.OK), SuccessHigh: 1}
	if e.Calls > 0 {
		e.SuccessLow, e.SuccessHigh = memory.Wilson(e.OK, e.Calls)
	}
	if low, high, ok := t.Latency.MedianBounds(); ok {
		e.MedianLow, e.MedianHigh = milliseconds(low), milliseconds(high)
	}
	return e
}

// judge decides whether another server than the first one should come first.
func (c *ComparedServers) judge() {
	now := &c.Servers[0]
	if now.Calls < leastCalls {
		c.Why = fmt.Sprintf("%s, which comes first, has %d of the %d calls that a comparison needs", now.Server, now.Calls, leastCalls)
		return
	}
	var best *ServerEvidence
	few := 0
	for i := range c.Servers[1:] {
		e := &c.Servers[i+1]
		switch {
		case e.Calls < leastCalls:
			few++
		case now.isWorse(e) != "" && (best == nil || best.isWorse(e) != ""):
			best = e
		}
	}
	switch {
	case best != nil:
		c.First, c.Why = best.Server, now.isWorse(best)
	case few == len(c.Servers)-1:
		c.Why = fmt.Sprintf("no other server has the %d calls that a comparison needs; the next one, %s, has %d", leastCalls, c.Servers[1].Server, c.Servers[1].Calls)
	default:
		c.Why = fmt.Sprintf("no server is clearly better than %s: the intervals of success and of the median time touch, or %s is better", now.Server, now.Server)
	}
}

// isWorse says why the figures of o are clearly better; "" if they are not.
func (e *ServerEvidence) isWorse(o *ServerEvidence) string {
	switch {
	case o.SuccessLow > e.SuccessHigh:
		return fmt.Sprintf("calls at %s succeed more often: %s of %d, against %s of %d", o.Server, percents(o), o.Calls, percents(e), e.Calls)
	case o.SuccessHigh < e.SuccessLow || o.MedianHigh == 0 || e.MedianHigh == 0:
		return ""
	case o.MedianHigh < e.MedianLow:
		return fmt.Sprintf("calls at %s succeed as often, and are faster: the median is %.4g to %.4g ms, against %.4g to %.4g ms", o.Server, o.MedianLow, o.MedianHigh, e.MedianLow, e.MedianHigh)
	}
	return ""
}

// percents returns the bounds of the rate of success.
func percents(e *ServerEvidence) string {
	return fmt.Sprintf("%.1f to %.1f %%", 100*e.SuccessLow, 100*e.SuccessHigh)
}

// TenantFile returns the path of the file with the ranking of a tenant.
func TenantFile(tenant switchboard.TenantID) string {
	return "tenants/" + string(tenant) + "/tenant.yaml"
}

// putFirst returns the text of the tenant's file with the servers of the suggestion first. text is the present file. next is nil if the suggestion changes nothing.
func (x *RankingSuggestion) putFirst(text []byte) (next []byte, err error) {
	file := TenantFile(x.Tenant)
	for i := range x.Rows {
		row := &x.Rows[i]
		if row.First == "" {
			continue
		}
		if next == nil {
			next = text
		}
		rows, err := preferRows(file, next)
		if err != nil {
			return nil, err
		}
		servers := []string{string(row.First)}
		path := []string{"ranking", "prefer", edit.Append}
		for i := range rows {
			if textAt(rows[i], "verb") == string(row.Verb) && textAt(rows[i], "resource") == string(row.Resource) {
				path[2] = strconv.Itoa(i)
				for _, s := range valueAt(rows[i], "servers").Items {
					servers = append(servers, s.Text)
				}
				break // the first row counts
			}
		}
		value := preferNode(string(row.Verb), string(row.Resource), servers)
		if len(rows) == 0 {
			path, value = path[:2], document.Node{Kind: document.KindList, Items: []document.Node{value}}
		}
		if next, err = edit.Set(file, next, path, &value); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// preferRows returns the rows of ranking.prefer in the text of a file.
func preferRows(file string, text []byte) ([]document.Node, error) {
	sink := &document.Sink{}
	doc, ok := document.ReadYAML(file, text, sink)
	if !ok {
		return nil, sink.Err(file)
	}
	return valueAt(valueAt(doc.Node, "ranking"), "prefer").Items, nil
}

// valueAt returns the value of the key in a map; the zero Node if there is none.
func valueAt(n document.Node, key string) document.Node {
	for _, p := range n.Pairs {
		if p.Key.Text == key {
			return p.Value
		}
	}
	return document.Node{}
}

func textAt(n document.Node, key string) string { return valueAt(n, key).Text }

// preferNode returns a row of ranking.prefer. A server that is listed twice keeps its first place.
func preferNode(verb, resource string, servers []string) document.Node {
	text := func(s string) document.Node { return document.Node{Kind: document.KindText, Text: s} }
	list := document.Node{Kind: document.KindList}
	for i, s := range servers {
		if slices.Index(servers, s) == i {
			list.Items = append(list.Items, text(s))
		}
	}
	return document.Node{Kind: document.KindMap, Pairs: []document.NodePair{
		{Key: text("verb"), Value: text(verb)}, {Key: text("resource"), Value: text(resource)}, {Key: text("servers"), Value: list},
	}}
}

// Propose adds the proposal to a suggestion. text is the tenant's present file, and try says what another text would do; see change.Editor. A suggestion that changes
// the tools of no task gets no proposal.
func (x *RankingSuggestion) Propose(ctx context.Context, text []byte, try func(next []byte) (*change.Trial, error)) error {
	next, err := x.putFirst(text)
	if err != nil || next == nil {
		return err
	}
	t, err := try(next)
	if err != nil {
		return err
	}
	if t.Aside() == nil || len(t.Faults) > 0 {
		faults := cmp.Or(strings.Join(t.Faults, "\n"), "other files of the configuration have them; switchboard validate names them")
		return switchboard.Refuse(switchboard.CodeConfig, "the file with the new ranking has faults: %s", faults)
	}
	ctx, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	claims := x.claimsAbout(ctx, t.Aside(), t.Tasks, t.Untried == 0)
	if len(claims) == 0 {
		return nil
	}
	whole := string(next)
	x.Proposal = &RankingProposal{Diff: t.Diff, Draft: proposal.Draft{
		Note: x.note(), Files: []proposal.FileDraft{{Path: TenantFile(x.Tenant), Text: &whole, ETag: change.ETagOf(text)}}, Claims: claims,
	}}
	return nil
}

// claimTime bounds how long the tasks of a tenant are looked at.
const claimTime = 5 * time.Second

// claimsAbout returns what the change does: which tools then serve the requirements, which other tools tasks get or lose, and that nothing else changes. It
// returns nil if no task would be served by a server of the suggestion, and says so in the rows. changed are the tasks with other tools; whole says that there are
// no further ones.
func (x *RankingSuggestion) claimsAbout(ctx context.Context, after *change.TaskState, changed []change.TaskChange, whole bool) (claims []proposal.StatedClaim) {
	rows, served := map[string]*ComparedServers{}, map[string]bool{}
	for i := range x.Rows {
		if row := &x.Rows[i]; row.First != "" {
			rows[string(row.Verb)+":"+string(row.Resource)] = row
		}
	}
	named := map[switchboard.TaskID][]string{}
	for _, task := range after.Tasks(x.Tenant) {
		if ctx.Err() != nil {
			whole = false // the other tasks were not looked at
			break
		}
		known := map[string]bool{}
		for _, r := range after.Look(ctx, x.Tenant, task).Requirements {
			row := rows[r.Name]
			if row == nil || known[r.Name] || len(r.Tools) == 0 {
				continue
			}
			known[r.Name] = true // a claim is about the first requirement of this name
			if by := r.Tools[0]; strings.HasPrefix(by, string(row.First)+"/") {
				claims = append(claims, proposal.StatedClaim{Tenant: x.Tenant, Task: task, Meets: r.Name, By: by})
				named[task], served[r.Name] = append(named[task], by), true
			}
		}
	}
	for name, row := range rows {
		if !served[name] {
			row.Why += "; but no task would be served by it, because of its health, policies or constraints"
		}
	}
	if len(claims) == 0 {
		return nil
	}
	meets := len(claims)
	for _, c := range changed {
		for _, tool := range c.After {
			if !slices.Contains(c.Before, tool) && !slices.Contains(named[c.Task], tool) {
				claims = append(claims, proposal.StatedClaim{Tenant: x.Tenant, Task: c.Task, Lists: tool})
			}
		}
		for _, tool := range c.Before {
			if !slices.Contains(c.After, tool) {
				claims = append(claims, proposal.StatedClaim{Tenant: x.Tenant, Task: c.Task, Hides: tool})
			}
		}
	}
	if claims = append(claims, proposal.StatedClaim{Tenant: x.Tenant, Unchanged: true}); !whole || len(claims) > proposal.MaxClaims {
		return claims[:min(meets, proposal.MaxClaims)] // the others hold only together
	}
	return claims
}

// note returns why, for the persons who decide.
func (x *RankingSuggestion) note() string {
	note := fmt.Sprintf("the calls from %s to %s speak for it", x.From, x.To)
	for i := range x.Rows {
		row := &x.Rows[i]
		if more := fmt.Sprintf("; %s %s: %s", row.Verb, row.Resource, row.Why); row.First != "" && len(note)+len(more) <= proposal.MaxNote {
			note += more
		}
	}
	return note
}
