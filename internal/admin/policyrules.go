package admin

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/author"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// PolicyRules say how often the rules of a tenant's policies held in recorded decisions.
type PolicyRules struct {
	Tenant switchboard.TenantID `json:"tenant"`
	Since  time.Time            `json:"since"`

	// Looked says how far the count has looked. It begins with the newest decisions.
	Looked *replay.LookedAt `json:"looked,omitempty"`

	// Rules are the rules in force: the tenant's, and behind them, for an operator, those of the operator's layer. In each layer the most frequent are first.
	Rules []PolicyRuleRow `json:"rules"`

	// NotReplayed are the decisions that could not be evaluated again, by reason. Nothing is known about them.
	NotReplayed []replay.NotReplayed `json:"not_replayed,omitempty"`

	// Stopped says why the count was ended before its end. There are no rules then.
	Stopped string `json:"stopped,omitempty"`
}

// A PolicyRuleRow is one rule in force.
type PolicyRuleRow struct {
	author.SourceLine
	Layer policy.LayerKind `json:"layer"`
	Rule  string           `json:"rule"`

	// Answer is the answer of the layer that the rule adds to: allowed_tools, deny or obligations; "" for a rule that other rules use.
	Answer string `json:"answer,omitempty"`

	Decisions int       `json:"decisions"`     // in which it held; 0 means never
	Last      time.Time `json:"last,omitzero"` // of them
}

// Bounds of a count of rules.
const (
	ruleCountTime      = 8 * time.Second
	maxCountedForRules = 20_000 // decisions
	maxRuleRows        = 2000
)

// CountRules counts in how many of the tenant's decisions since then each rule in force held: of the tenant's layer, and for an operator of the
// operator's layer too. A rule counts by its text, so a changed rule begins at 0. The error is a *switchboard.Error.
func (p *PolicyTester) CountRules(ctx context.Context, id switchboard.TenantID, since time.Time, operator bool) (*PolicyRules, error) {
	release, err := p.counts.take(id)
	if err != nil {
		return nil, err
	}
	defer release()
	out := &PolicyRules{Tenant: id, Since: since, Rules: []PolicyRuleRow{}}
	c := p.reads.o.Configuration()
	out.Stopped, err = p.bounded(ctx, "the count was stopped", func(ctx context.Context) error {
		rules, err := p.inForce.read(&c, id, operator)
		if err != nil {
			return err
		}
		var opener *replay.DecisionOpener
		select {
		case opener = <-p.openers:
		default:
			opener = replay.NewDecisionOpener(p.reads.o.Store)
		}
		memory := p.memories.take(id)
		found, err := opener.CountRules(ctx, replay.Bounds{Tenant: id, Since: since, Limit: maxCountedForRules, Time: ruleCountTime}, memory)
		if err != nil {
			return err
		}
		p.memories.put(id, memory)
		p.openers <- opener // it keeps the policies that it has compiled last
		out.Looked, out.NotReplayed = found.Looked, found.NotReplayed
		for _, r := range rules {
			n := found.Fired[r.id]
			r.row.Decisions, r.row.Last = n.Decisions, n.Last
			out.Rules = append(out.Rules, r.row)
		}
		return nil
	})
	place := func(r *PolicyRuleRow) int {
		if r.Layer == policy.Tenant {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(out.Rules, func(a, b PolicyRuleRow) int {
		return cmp.Or(cmp.Compare(place(&a), place(&b)), cmp.Compare(b.Decisions, a.Decisions), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	out.Rules = out.Rules[:min(len(out.Rules), maxRuleRows)]
	return out, err
}

// Bounds of the memories of counts. A decision takes up to a kilobyte.
const (
	maxRemembered   = maxCountedForRules // decisions, of all tenants
	rememberedRules = 30 * time.Minute   // after the last count
)

// ruleMemories remember the counts of the tenants that were asked about last: most officers who ask for a count ask again, after a change. The zero value works.
type ruleMemories struct {
	mu sync.Mutex
	of map[switchboard.TenantID]*ruleMemory
}

// A ruleMemory is what is remembered of one tenant.
type ruleMemory struct {
	*replay.RuleMemory
	decisions int
	used      time.Time
	expire    *time.Timer
}

// take removes the memory of a tenant, for one count.
func (r *ruleMemories) take(id switchboard.TenantID) *replay.RuleMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.of[id]; m != nil {
		r.drop(id)
		return m.RuleMemory
	}
	return &replay.RuleMemory{}
}

// put keeps the memory of a tenant, and drops those that were used longest ago until all fit.
func (r *ruleMemories) put(id switchboard.TenantID, memory *replay.RuleMemory) {
	r.keep(id, &ruleMemory{RuleMemory: memory, decisions: memory.Decisions()})
}

func (r *ruleMemories) keep(id switchboard.TenantID, one *ruleMemory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[switchboard.TenantID]*ruleMemory{}
	}
	one.used, one.expire = time.Now(), time.AfterFunc(rememberedRules, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.of[id] == one {
			r.drop(id)
		}
	})
	r.of[id] = one
	all := 0
	for _, m := range r.of {
		all += m.decisions
	}
	for all > maxRemembered {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(r.of)), func(a, b switchboard.TenantID) int { return r.of[a].used.Compare(r.of[b].used) })
		all -= r.of[oldest].decisions
		r.drop(oldest)
	}
}

// drop drops the memory of a tenant. The caller holds r.mu.
func (r *ruleMemories) drop(id switchboard.TenantID) {
	r.of[id].expire.Stop()
	delete(r.of, id)
}

// A ruleInForce is a rule before its decisions are counted.
type ruleInForce struct {
	id  policy.RuleID
	row PolicyRuleRow
}

// lastRules keep the rules in force that were asked for last: to compile all layers takes longer than most counts. The zero value works.
type lastRules struct {
	mu    sync.Mutex
	of    string // the configuration, the tenant, and whether an operator asked
	rules []ruleInForce
}

// read returns the rules of the tenant's layer, and for an operator those of the operator's layer.
func (l *lastRules) read(c *Configuration, id switchboard.TenantID, operator bool) (rules []ruleInForce, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := fmt.Sprint(c.Digest, " ", c.Loaded.UnixNano(), " ", id, " ", operator)
	if l.of == of && c.Digest != "" {
		return l.rules, nil
	}
	for _, s := range sourcesOf(c, id, nil) {
		if s.Tenant != id && !operator {
			continue
		}
		layer, err := policy.Compile(s.Kind, s.Files)
		if err != nil {
			return nil, err
		}
		for _, r := range layer.Rules() {
			if r.Default || r.Location == nil {
				continue
			}
			rules = append(rules, ruleInForce{policy.NewRuleID(layer.Kind(), r.Rule), PolicyRuleRow{
				SourceLine: author.SourceLine{File: r.Location.File, Line: r.Location.Row},
				Layer:      layer.Kind(), Rule: r.DisplayName(), Answer: r.Answer,
			}})
		}
	}
	l.of, l.rules = of, rules
	return rules, nil
}
