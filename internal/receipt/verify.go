package receipt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Rule names a condition that a chain must meet.
type Rule string

// The rules.
const (
	RuleForm       Rule = "form"       // an entry is in canonical form
	RuleSeq        Rule = "seq"        // entries are numbered without a gap, each at its own position
	RuleChain      Rule = "chain"      // each entry has the digest of the stored entry before it
	RuleSignature  Rule = "signature"  // a signature matches the signed bytes
	RuleKey        Rule = "key"        // an entry is signed with the key that the chain introduced last
	RuleEnd        Rule = "end"        // the last entry is signed
	RuleBegin      Rule = "begin"      // the chain begins with 1, or a receipt says why it does not
	RuleCheckpoint Rule = "checkpoint" // the entries have the digests that checkpoints recorded
)

// A ChainFault names the first entry that breaks a rule, the rule, and the reason.
type ChainFault struct {
	Seq  uint64 `json:"seq"`
	Rule Rule   `json:"rule"`
	Why  string `json:"why"`
}

// Error returns the whole fault as text.
func (f *ChainFault) Error() string { return fmt.Sprintf("entry %d: %s: %s", f.Seq, f.Rule, f.Why) }

// VerifyOptions are further conditions for the chains.
type VerifyOptions struct {
	Nodes       []string     // the chains to check; none means all
	Checkpoints []Checkpoint // kept outside the store

	// Keys are those that may begin a chain. None means any. Then only Checkpoints reveal that a
	// chain was written anew as a whole.
	Keys []string
}

// A ChainReport is the result of the check of one chain.
type ChainReport struct {
	Node    string    `json:"node"`
	First   uint64    `json:"first"`
	Last    uint64    `json:"last"`
	Checked int       `json:"checked"` // entries that meet the rules
	Begins  time.Time `json:"begins,omitzero"`
	Ends    time.Time `json:"ends,omitzero"`

	// Key is the key that the chain begins with. If you trust this key, you can trust all checked
	// entries.
	Key  string   `json:"key,omitempty"`
	Keys []string `json:"keys,omitempty"` // later keys

	// Trimmed is the prev of the first entry, if earlier entries were trimmed.
	Trimmed switchboard.Digest `json:"trimmed,omitempty"`

	Checkpoints int `json:"checkpoints"` // that match
	Older       int `json:"older"`       // that refer to trimmed entries

	Fault *ChainFault `json:"fault,omitempty"`
}

// pageSize is how many entries are read at once.
const pageSize = 512

// Verify checks each chain up to its first wrong entry. An error says that the chains could not be
// read.
func Verify(ctx context.Context, s ChainReader, o VerifyOptions) ([]ChainReport, error) {
	p, err := VerifyPart(ctx, s, o, "", 0)
	if p == nil {
		return nil, err
	}
	return p.Chains, err
}

// chainsToVerify returns the names of the chains, sorted, each once.
func (o *VerifyOptions) chainsToVerify(ctx context.Context, s ChainReader) (nodes []string, err error) {
	if nodes = slices.Clone(o.Nodes); len(nodes) == 0 {
		if nodes, err = Nodes(ctx, s); err != nil {
			return nil, err
		}
		for i := range o.Checkpoints {
			nodes = append(nodes, o.Checkpoints[i].Node)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// Nodes returns the names of the replicas that have a chain, sorted.
func Nodes(ctx context.Context, s ChainReader) ([]string, error) {
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

// A chainChecker reads a chain from one entry to the next and applies the rules.
type chainChecker struct {
	ChainReport
	reader      ChainReader
	trusted     []string
	checkpoints []*Checkpoint // those for later entries, by seq

	from         uint64 // the first entry to check
	seq          uint64 // of the previous entry
	prev         switchboard.Digest
	time         time.Time
	key          string // the key that must sign
	newKey       string // introduced since the last signature
	lastSigned   uint64 // the last entry with a signature
	trimReported bool   // a receipt says why the chain does not begin with 1
}

// newChecker returns a checker that begins with the entry from.
func newChecker(node string, r ChainReader, span store.Span, from uint64) *chainChecker {
	return &chainChecker{ChainReport: ChainReport{Node: node, First: span.First, Last: span.Last}, reader: r, from: from, seq: from - 1}
}

// checkNext checks the next entry. The fault it returns may be in the previous entry, if only this
// one reveals it.
func (c *chainChecker) checkNext(ctx context.Context, stored store.Entry) (*ChainFault, error) {
	at := c.seq + 1
	if stored.Seq != at {
		return &ChainFault{at, RuleSeq, "it is not there"}, nil
	}
	e, err := parseEntry(c.Node, at, stored.Data)
	if err != nil {
		return &ChainFault{at, RuleForm, err.Error()}, nil
	}
	if e.Seq != at {
		return &ChainFault{at, RuleSeq, fmt.Sprintf("the entry at this position says that it is entry %d", e.Seq)}, nil
	}
	switch {
	case at == 1 && e.Prev != EmptyDigest:
		return &ChainFault{at, RuleChain, "it is the first entry, but names an entry before it"}, nil
	case c.Checked > 0 && e.Prev != c.prev:
		return c.findChanged(ctx, &e)
	}
	digest := e.Digest()
	if fault := c.checkSignature(&e); fault != nil {
		return fault, nil
	}
	for ; len(c.checkpoints) > 0 && c.checkpoints[0].Seq <= at; c.checkpoints = c.checkpoints[1:] {
		p := c.checkpoints[0]
		switch {
		case p.Seq < at:
			c.Older++
		case p.Digest != digest:
			return &ChainFault{at, RuleCheckpoint, fmt.Sprintf("it is not the entry that was there at %s: the chain was changed and signed anew", p.Time.Format(time.RFC3339))}, nil
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

// checkSignature checks a key that the entry introduces, and the signature of the entry, if it has
// one.
func (c *chainChecker) checkSignature(e *ChainEntry) *ChainFault {
	r := &e.Receipt
	switch {
	case r.Kind == KeyKind && r.Key.Node != c.Node:
		return &ChainFault{e.Seq, RuleKey, fmt.Sprintf("it is of node %.80q", r.Key.Node)}
	case r.Kind == KeyKind:
		c.newKey = r.Key.Public
	case r.Kind == TrimKind && c.First > 1 && r.Trim.First == c.First:
		c.trimReported = r.Trim.Prev == c.Trimmed && r.Trim.Key == c.Key
	}
	if e.Signature == "" {
		return nil
	}
	key, err := e.verifySignature()
	if err != nil {
		return &ChainFault{e.Seq, RuleSignature, err.Error()}
	}
	if c.key == "" {
		switch {
		case c.from == 1 && c.newKey != key:
			return &ChainFault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s, which no receipt has introduced", key)}
		case len(c.trusted) > 0 && !slices.Contains(c.trusted, key):
			return &ChainFault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s, which is not one of the keys that may begin a chain", key)}
		}
		c.key, c.Key = key, key
	}
	if key != c.key {
		return &ChainFault{e.Seq, RuleKey, fmt.Sprintf("it is signed with %s; the key is %s", key, c.key)}
	}
	if c.newKey != "" && c.newKey != c.key {
		c.key = c.newKey
		c.Keys = append(c.Keys, c.key)
	}
	c.newKey, c.lastSigned = "", e.Seq
	return nil
}

// findChanged says which of two entries was changed, if e does not continue the entry before it. e
// is intact if its signature is valid, or if the entry after it continues e.
func (c *chainChecker) findChanged(ctx context.Context, e *ChainEntry) (*ChainFault, error) {
	intact := false
	if e.Signature != "" {
		key, err := e.verifySignature()
		intact = err == nil && key == c.key
	} else {
		entries, err := c.reader.Read(ctx, logPrefix+c.Node, e.Seq, 1)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 {
			follows, err := parseEntry(c.Node, entries[0].Seq, entries[0].Data)
			intact = err == nil && follows.Prev == e.Digest()
		}
	}
	if intact {
		c.Checked--
		return &ChainFault{c.seq, RuleChain, "the entry after it continues a different entry"}, nil
	}
	return &ChainFault{e.Seq, RuleChain, "it does not continue the entry before it"}, nil
}

// checkSignedEnd checks that the last entry is signed.
func (c *chainChecker) checkSignedEnd() *ChainFault {
	if c.lastSigned != c.seq {
		return &ChainFault{c.seq, RuleEnd, "it is the last entry, but not signed: the entries after it are gone"}
	}
	return nil
}

// checkWholeChain checks the beginning, the end and the remaining checkpoints of a chain with
// correct entries.
func (c *chainChecker) checkWholeChain() *ChainFault {
	if c.First > 1 && !c.trimReported && c.Last >= c.First {
		return &ChainFault{c.First, RuleBegin, "it is the first entry there, and no receipt says that earlier ones were trimmed"}
	}
	if fault := c.checkSignedEnd(); fault != nil && c.Last > 0 {
		return fault
	}
	if len(c.checkpoints) > 0 {
		p := c.checkpoints[0]
		return &ChainFault{c.Last + 1, RuleCheckpoint, fmt.Sprintf("it is gone: entry %d was there at %s", p.Seq, p.Time.Format(time.RFC3339))}
	}
	return nil
}
