package receipt

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Rule is what a chain has to keep to.
type Rule string

// The rules.
const (
	RuleForm       Rule = "form"       // an entry is in the one form that entries have
	RuleSeq        Rule = "seq"        // they are numbered without a gap, and each stands in its place
	RuleChain      Rule = "chain"      // each builds on the one before, as that is stored
	RuleSignature  Rule = "signature"  // what is signed is what stands there
	RuleKey        Rule = "key"        // it is signed with the key that the chain has brought in last
	RuleEnd        Rule = "end"        // the last one is signed
	RuleBegin      Rule = "begin"      // it begins with 1, or a receipt says why it does not
	RuleCheckpoint Rule = "checkpoint" // what checkpoints say stood there stands there
)

// A Fault is what is wrong with a chain: the first entry that breaks a rule.
type Fault struct {
	Seq  uint64 `json:"seq"`
	Rule Rule   `json:"rule"`
	Why  string `json:"why"`
}

// Error says all of it.
func (f *Fault) Error() string { return fmt.Sprintf("entry %d: %s: %s", f.Seq, f.Rule, f.Why) }

// VerifyOptions say what else chains are held to.
type VerifyOptions struct {
	Nodes       []string     // whose chains; none means all
	Checkpoints []Checkpoint // kept elsewhere

	// Keys are those that may begin a chain. None means any: then somebody who
	// writes all of it anew is found by Checkpoints alone.
	Keys []string
}

// A Chain is what is found of one.
type Chain struct {
	Node    string    `json:"node"`
	First   uint64    `json:"first"`
	Last    uint64    `json:"last"`
	Checked int       `json:"checked"` // entries that keep the rules
	Begins  time.Time `json:"begins,omitzero"`
	Ends    time.Time `json:"ends,omitzero"`

	// Key is the one that it begins with. Whoever trusts that trusts all that keeps
	// the rules.
	Key  string   `json:"key,omitempty"`
	Keys []string `json:"keys,omitempty"` // that followed

	// Trimmed is what the first entry builds on, where the ones before were let
	// go.
	Trimmed switchboard.Digest `json:"trimmed,omitempty"`

	Checkpoints int `json:"checkpoints"` // that fit
	Older       int `json:"older"`       // that are of what was let go

	Fault *Fault `json:"fault,omitempty"`
}

// page is how many entries are read at once.
const page = 512

// Verify checks the chains, each up to the first entry that is wrong. An error says
// that they could not be read.
func Verify(ctx context.Context, s Reader, o VerifyOptions) ([]Chain, error) {
	nodes := o.Nodes
	if len(nodes) == 0 {
		var err error
		if nodes, err = Nodes(ctx, s); err != nil {
			return nil, err
		}
		for i := range o.Checkpoints {
			nodes = append(nodes, o.Checkpoints[i].Node)
		}
		slices.Sort(nodes)
		nodes = slices.Compact(nodes)
	}
	all := make([]Chain, 0, len(nodes))
	for _, node := range nodes {
		var c *Chain
		for begun := false; c == nil || c.Fault != nil && begun; {
			var err error
			if c, err = verify(ctx, s, node, &o); err != nil {
				return all, err
			}
			// Its beginning may have been let go meanwhile.
			span, err := s.Span(ctx, logPrefix+node)
			if err != nil {
				return all, err
			}
			begun = span.First != c.First
		}
		all = append(all, *c)
	}
	return all, nil
}

// Nodes returns the nodes that have a chain, sorted.
func Nodes(ctx context.Context, s Reader) ([]string, error) {
	logs, err := s.Logs(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, log := range logs {
		if node, ok := strings.CutPrefix(log, logPrefix); ok && CheckNode(node) == nil {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

func verify(ctx context.Context, s Reader, node string, o *VerifyOptions) (*Chain, error) {
	span, err := s.Span(ctx, logPrefix+node)
	if err != nil {
		return nil, err
	}
	c := newChecker(node, s, span, span.First)
	c.trusted = o.Keys
	for i := range o.Checkpoints {
		if p := &o.Checkpoints[i]; p.Node == node {
			c.checkpoints = append(c.checkpoints, p)
		}
	}
	slices.SortStableFunc(c.checkpoints, func(a, b *Checkpoint) int { return cmp.Compare(a.Seq, b.Seq) })
	for c.seq < span.Last {
		entries, err := s.Read(ctx, logPrefix+node, c.seq, page)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			c.Fault = &Fault{c.seq + 1, RuleSeq, "it is not there"}
			return &c.Chain, nil
		}
		for _, e := range entries {
			if c.Fault, err = c.next(ctx, e); err != nil || c.Fault != nil {
				return &c.Chain, err
			}
			if e.Seq >= span.Last {
				break
			}
		}
	}
	c.Fault = c.whole()
	return &c.Chain, nil
}

// A checker walks along a chain.
type checker struct {
	Chain
	r           Reader
	trusted     []string
	checkpoints []*Checkpoint // that are still ahead, by seq

	from   uint64 // the first entry that it takes
	seq    uint64 // of the entry before
	prev   switchboard.Digest
	time   time.Time
	key    string // that has to sign
	fresh  string // that has come in since the last signature
	signed uint64 // of the last signature
	noted  bool   // a receipt says why it does not begin with 1
}

func newChecker(node string, r Reader, span store.Span, from uint64) *checker {
	return &checker{Chain: Chain{Node: node, First: span.First, Last: span.Last}, r: r, from: from, seq: from - 1}
}

// next takes the next entry. A fault may be that of the one before: what follows it
// tells.
func (c *checker) next(ctx context.Context, stored store.Entry) (*Fault, error) {
	at := c.seq + 1
	if stored.Seq != at {
		return &Fault{at, RuleSeq, "it is not there"}, nil
	}
	e, err := parse(c.Node, at, stored.Data)
	if err != nil {
		return &Fault{at, RuleForm, err.Error()}, nil
	}
	if e.Seq != at {
		return &Fault{at, RuleSeq, fmt.Sprintf("what stands there says that it is entry %d", e.Seq)}, nil
	}
	switch {
	case at == 1 && e.Prev != Nothing:
		return &Fault{at, RuleChain, "it builds on something, and is the first"}, nil
	case c.Checked > 0 && e.Prev != c.prev:
		return c.broken(ctx, &e)
	}
	digest := e.Digest()
	if fault := c.sealed(&e); fault != nil {
		return fault, nil
	}
	for ; len(c.checkpoints) > 0 && c.checkpoints[0].Seq <= at; c.checkpoints = c.checkpoints[1:] {
		p := c.checkpoints[0]
		switch {
		case p.Seq < at:
			c.Older++
		case p.Digest != digest:
			return &Fault{at, RuleCheckpoint, fmt.Sprintf("it is not what stood there at %s: the chain was changed and signed anew", p.Time.Format(time.RFC3339))}, nil
		default:
			c.Checkpoints++
		}
	}
	if c.Checked == 0 {
		c.Begins = e.Receipt.Time
		if at > 1 {
			c.Trimmed = e.Prev
		}
	}
	c.Checked++
	c.seq, c.prev, c.time, c.Ends = at, digest, e.Receipt.Time, e.Receipt.Time
	return nil, nil
}

// sealed checks what an entry says of keys, and its signature, if it has one.
func (c *checker) sealed(e *Entry) *Fault {
	r := &e.Receipt
	switch {
	case r.Kind == KeyKind && r.Key.Node != c.Node:
		return &Fault{e.Seq, RuleKey, fmt.Sprintf("it is of node %.80q", r.Key.Node)}
	case r.Kind == KeyKind:
		c.fresh = r.Key.Public
	case r.Kind == TrimKind && c.First > 1 && r.Trim.First == c.First:
		c.noted = r.Trim.Prev == c.Trimmed && r.Trim.Key == c.Key
	}
	if e.Signature == "" {
		return nil
	}
	key, err := e.signed()
	if err != nil {
		return &Fault{e.Seq, RuleSignature, err.Error()}
	}
	if c.key == "" {
		switch {
		case c.from == 1 && c.fresh != key:
			return &Fault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s, which nothing has brought in", key)}
		case len(c.trusted) > 0 && !slices.Contains(c.trusted, key):
			return &Fault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s, which is none of those that may begin a chain", key)}
		}
		c.key, c.Key = key, key
	}
	if key != c.key {
		return &Fault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s; the key is %s", key, c.key)}
	}
	if c.fresh != "" && c.fresh != c.key {
		c.key = c.fresh
		c.Keys = append(c.Keys, c.key)
	}
	c.fresh, c.signed = "", e.Seq
	return nil
}

// broken says which of two was changed: e, or the one before it, on which it does not
// build. e was not, where it is signed, or the one behind builds on it.
func (c *checker) broken(ctx context.Context, e *Entry) (*Fault, error) {
	intact := false
	if e.Signature != "" {
		key, err := e.signed()
		intact = err == nil && key == c.key
	} else {
		entries, err := c.r.Read(ctx, logPrefix+c.Node, e.Seq, 1)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			follows, err := parse(c.Node, entries[0].Seq, entries[0].Data)
			intact = err == nil && follows.Prev == e.Digest()
		}
	}
	if intact {
		c.Checked--
		return &Fault{c.seq, RuleChain, "it is not what the entry behind it builds on"}, nil
	}
	return &Fault{e.Seq, RuleChain, "it does not build on the one before"}, nil
}

// signedToTheEnd reports what is wrong with the end of a chain.
func (c *checker) signedToTheEnd() *Fault {
	if c.signed != c.seq {
		return &Fault{c.seq, RuleEnd, "it is the last one, and not signed: what stood behind it is gone"}
	}
	return nil
}

// whole reports what is wrong with a chain of which each entry is right.
func (c *checker) whole() *Fault {
	if c.First > 1 && !c.noted && c.Last >= c.First {
		return &Fault{c.First, RuleBegin, "it is the first that is there, and no receipt says that those before were let go"}
	}
	if fault := c.signedToTheEnd(); fault != nil && c.Last > 0 {
		return fault
	}
	if len(c.checkpoints) > 0 {
		p := c.checkpoints[0]
		return &Fault{c.Last + 1, RuleCheckpoint, fmt.Sprintf("it is gone: entry %d stood there at %s", p.Seq, p.Time.Format(time.RFC3339))}
	}
	return nil
}
