package receipt

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ErrNotNext says that a place to continue at is not the Next of a VerifiedPart.
var ErrNotNext = errors.New("this is not the next of an earlier part")

// A VerifiedPart is what one part of a verification has found.
type VerifiedPart struct {
	// Chains are those that this part has checked to their ends, or to their first wrong entries. The part after it does not
	// repeat them.
	Chains []ChainReport `json:"chains"`

	Looked int    `json:"looked_at"`      // entries so far, in all parts
	Of     int    `json:"of"`             // entries of all chains
	Next   string `json:"next,omitempty"` // where the next part continues; "" after the last one
}

// A verifyPlace says how far a verification is. The reader of the report keeps it, and changes of it deceive only that reader.
type verifyPlace struct {
	Looked int        `json:"looked"` // in the chains before this one
	Chain  chainPlace `json:"chain"`
}

// A chainPlace is the state of a chainChecker between two entries.
type chainPlace struct {
	Report       ChainReport        `json:"report"`
	Seq          uint64             `json:"seq"`
	Prev         switchboard.Digest `json:"prev"`
	Key          string             `json:"key"`
	NewKey       string             `json:"new_key"`
	LastSigned   uint64             `json:"last_signed"`
	TrimReported bool               `json:"trim_reported"`
}

// VerifyPart does a part of the work of Verify, for about the time within; 0 does all of it. after is "" in the first part, and then
// the Next of the part before. The options must be the same for all parts. An error says that the chains could not be read, or is
// ErrNotNext; the part then holds the chains that were checked before it.
func VerifyPart(ctx context.Context, s ChainReader, o VerifyOptions, after string, within time.Duration) (*VerifiedPart, error) {
	nodes, err := o.chainsToVerify(ctx, s)
	if err != nil {
		return nil, err
	}
	part := &VerifiedPart{Chains: []ChainReport{}}
	var place *verifyPlace
	if after != "" {
		if place, err = parsePlace(after); err != nil {
			return part, err
		}
		i := slices.Index(nodes, place.Chain.Report.Node)
		if i < 0 {
			return part, ErrNotNext
		}
		nodes, part.Looked, part.Of = nodes[i:], place.Looked, place.Looked
	}
	v := &partVerifier{reader: s, options: &o}
	if within > 0 {
		v.until = time.Now().Add(within)
	}
	for i, node := range nodes {
		var c *chainChecker
		if place != nil && i == 0 {
			c = place.Chain.checker(s)
		}
		c, whole, err := v.verify(ctx, node, c)
		if err != nil {
			return part, err
		}
		if !whole {
			next := verifyPlace{Looked: part.Looked, Chain: c.place()}
			part.Looked += c.Checked
			if part.Of, err = v.count(ctx, part.Looked-c.Checked, nodes[i:]); err != nil {
				return part, err
			}
			part.Next = next.String()
			return part, nil
		}
		part.Looked += c.Checked
		part.Chains = append(part.Chains, c.ChainReport)
	}
	part.Of = part.Looked
	return part, nil
}

// String returns the place as a text for parsePlace.
func (p *verifyPlace) String() string {
	text, _ := json.Marshal(p) // texts, numbers and times can be encoded
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePlace(text string) (*verifyPlace, error) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, ErrNotNext
	}
	p := &verifyPlace{}
	if err := json.Unmarshal(raw, p); err != nil || p.Looked < 0 || p.Chain.Report.Checked < 0 || CheckNode(p.Chain.Report.Node) != nil {
		return nil, ErrNotNext
	}
	return p, nil
}

// place returns the state of the checker.
func (c *chainChecker) place() chainPlace {
	return chainPlace{c.ChainReport, c.seq, c.prev, c.key, c.newKey, c.lastSigned, c.trimReported}
}

// checker returns a checker with this state.
func (p *chainPlace) checker(r ChainReader) *chainChecker {
	return &chainChecker{
		ChainReport: p.Report, reader: r, from: p.Report.First, seq: p.Seq, prev: p.Prev, key: p.Key, newKey: p.NewKey, lastSigned: p.LastSigned, trimReported: p.TrimReported,
	}
}

// A partVerifier verifies chains until its time is over.
type partVerifier struct {
	reader  ChainReader
	options *VerifyOptions
	until   time.Time // zero means no end
	pages   int
}

// late reports whether the part must end. Each part reads one page at least, so that all parts together come to an end.
func (v *partVerifier) late() bool {
	return !v.until.IsZero() && v.pages > 0 && !time.Now().Before(v.until)
}

// count returns the number of entries: those that were looked at in other chains, and those of the nodes.
func (v *partVerifier) count(ctx context.Context, looked int, nodes []string) (int, error) {
	for _, node := range nodes {
		span, err := v.reader.Span(ctx, logPrefix+node)
		if err != nil {
			return 0, err
		}
		looked += int(span.Last + 1 - span.First)
	}
	return looked, nil
}

// verify checks a chain, from its beginning if c is nil. whole is false if the time was over before the end. It begins again if the
// beginning of the chain was trimmed during the check.
func (v *partVerifier) verify(ctx context.Context, node string, c *chainChecker) (_ *chainChecker, whole bool, err error) {
	for {
		if c == nil {
			span, err := v.reader.Span(ctx, logPrefix+node)
			if err != nil {
				return nil, false, err
			}
			c = newChecker(node, v.reader, span, span.First)
		}
		if whole, err = v.resume(ctx, c); err != nil || !whole || c.Fault == nil {
			return c, whole, err
		}
		span, err := v.reader.Span(ctx, logPrefix+node)
		if err != nil {
			return nil, false, err
		}
		if span.First == c.First {
			return c, true, nil
		}
		c = nil
	}
}

// resume checks a chain from where c is.
func (v *partVerifier) resume(ctx context.Context, c *chainChecker) (whole bool, err error) {
	c.trusted = v.options.Keys
	for i := range v.options.Checkpoints {
		if p := &v.options.Checkpoints[i]; p.Node == c.Node && (c.Checked == 0 || p.Seq > c.seq) { // the others are counted
			c.checkpoints = append(c.checkpoints, p)
		}
	}
	slices.SortStableFunc(c.checkpoints, func(a, b *Checkpoint) int { return cmp.Compare(a.Seq, b.Seq) })
	for c.seq < c.Last {
		if v.late() {
			return false, nil
		}
		v.pages++
		entries, err := v.reader.Read(ctx, logPrefix+c.Node, c.seq, pageSize)
		if err != nil {
			return false, err
		}
		if len(entries) == 0 {
			c.Fault = &ChainFault{c.seq + 1, RuleSeq, "it is not there"}
			return true, nil
		}
		for _, e := range entries {
			if c.Fault, err = c.checkNext(ctx, e); err != nil || c.Fault != nil {
				return true, err
			}
			if e.Seq >= c.Last {
				break
			}
		}
	}
	c.Fault = c.checkWholeChain()
	return true, nil
}
