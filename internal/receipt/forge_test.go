package receipt

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A link is one entry of a chain that an attacker with keys has made.
type link struct {
	receipt Receipt
	by      *signer // nil leaves it unsigned
}

// forge makes a chain of n1 that begins with entry first, after prev.
func forge(t *testing.T, first uint64, prev switchboard.Digest, links ...link) gapped {
	t.Helper()
	var g gapped
	for i, l := range links {
		l.receipt.Time = time.Unix(int64(i), 0)
		e := appendEntry(nil, prev, l.receipt.append(nil), first+uint64(i))
		if l.by != nil {
			e = appendSignature(e, 0, l.by)
		}
		prev = canonical.Sum(e)
		g = append(g, store.Entry{Seq: first + uint64(i), Data: e})
	}
	return g
}

// gapped is a log of n1 that may miss entries.
type gapped []store.Entry

func (g gapped) Logs(context.Context) ([]string, error) { return []string{"other", "receipts/n1"}, nil }

func (g gapped) Span(context.Context, string) (store.Span, error) {
	return store.Span{First: g[0].Seq, Last: g[len(g)-1].Seq}, nil
}

func (g gapped) Read(_ context.Context, _ string, after uint64, limit int) (out []store.Entry, _ error) {
	for _, e := range g {
		if e.Seq > after && len(out) < limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func TestAKeyAloneDoesNotMakeAValidChain(t *testing.T) {
	key := func(seed string) *signer {
		s, err := newSigner(switchboard.NewSecret(strings.Repeat(seed, 43)))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := key("A"), key("E")
	brings := func(k *signer) Receipt { return Receipt{Kind: KeyKind, Key: ChainKey{"n1", k.public}} }
	trim := func(first uint64, prev switchboard.Digest, k *signer) Receipt {
		return Receipt{Kind: TrimKind, Trim: Trim{first, prev, k.public}}
	}
	call := Receipt{Kind: Call}
	const before = switchboard.Digest("sha256:before")
	for name, tt := range map[string]struct {
		chain gapped
		seq   uint64
		rule  Rule
	}{
		"good":                      {forge(t, 1, EmptyDigest, link{brings(a), a}, link{call, nil}, link{call, a}), 0, ""},
		"another key":               {forge(t, 1, EmptyDigest, link{brings(a), a}, link{call, a}, link{call, b}), 3, RuleKey},
		"a key by its own word":     {forge(t, 1, EmptyDigest, link{brings(a), a}, link{brings(b), b}), 2, RuleKey},
		"a key by the one before":   {forge(t, 1, EmptyDigest, link{brings(a), a}, link{brings(b), a}, link{call, b}), 0, ""},
		"the key before again":      {forge(t, 1, EmptyDigest, link{brings(a), a}, link{brings(b), a}, link{call, a}), 3, RuleKey},
		"a beginning without a key": {forge(t, 1, EmptyDigest, link{call, a}), 1, RuleKey},
		"a beginning by another":    {forge(t, 1, EmptyDigest, link{brings(b), a}), 1, RuleKey},
		"a key that comes late":     {forge(t, 1, EmptyDigest, link{call, nil}, link{call, a}, link{brings(a), a}), 2, RuleKey},
		"a beginning on something":  {forge(t, 1, before, link{brings(a), a}), 1, RuleChain},
		"trimmed":                   {forge(t, 7, before, link{call, a}, link{trim(7, before, a), a}), 0, ""},
		"trimmed elsewhere":         {forge(t, 7, before, link{call, a}, link{trim(6, before, a), a}), 7, RuleBegin},
		"trimmed behind another":    {forge(t, 7, before, link{call, a}, link{trim(7, "sha256:x", a), a}), 7, RuleBegin},
		"trimmed under another key": {forge(t, 7, before, link{call, a}, link{trim(7, before, b), a}), 7, RuleBegin},
		"begins late":               {forge(t, 7, before, link{call, a}), 7, RuleBegin},
		"an entry is missing": {func() gapped {
			g := forge(t, 1, EmptyDigest, link{brings(a), a}, link{call, a}, link{call, a})
			return append(g[:1], g[2:]...)
		}(), 2, RuleSeq},
	} {
		chains, err := Verify(t.Context(), tt.chain, VerifyOptions{})
		if err != nil || len(chains) != 1 {
			t.Fatal(chains, err)
		}
		switch f := chains[0].Fault; {
		case f == nil && tt.rule == "":
		case f == nil || f.Seq != tt.seq || f.Rule != tt.rule:
			t.Errorf("%s: got %v, want entry %d: %s", name, f, tt.seq, tt.rule)
		case name == "an entry is missing" && f.Why != "it is not there":
			t.Errorf("%s: %v", name, f)
		}
	}
}

// trimmedMeanwhile is a log that is trimmed while it is read.
type trimmedMeanwhile struct {
	gapped
	reads int
}

func (l *trimmedMeanwhile) Read(ctx context.Context, log string, after uint64, limit int) ([]store.Entry, error) {
	if l.reads++; l.reads == 1 {
		l.gapped = l.gapped[2:]
	}
	return l.gapped.Read(ctx, log, after, limit)
}

func (l *trimmedMeanwhile) Span(ctx context.Context, log string) (store.Span, error) {
	return l.gapped.Span(ctx, log)
}

func TestATrimDuringVerifyIsNoFault(t *testing.T) {
	a, err := newSigner(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	call := Receipt{Kind: Call}
	chain := forge(t, 1, EmptyDigest, link{Receipt{Kind: KeyKind, Key: ChainKey{"n1", a.public}}, a}, link{call, a}, link{call, a})
	e, err := parseEntry("n1", 3, chain[2].Data)
	if err != nil {
		t.Fatal(err)
	}
	chain = append(chain, forge(t, 4, e.Digest(), link{Receipt{Kind: TrimKind, Trim: Trim{3, e.Prev, a.public}}, a})...)
	chains, err := Verify(t.Context(), &trimmedMeanwhile{gapped: chain}, VerifyOptions{})
	if err != nil || chains[0].Fault != nil || chains[0].First != 3 {
		t.Errorf("%+v, %v", chains, err)
	}
}

func TestASignatureHasOneSpelling(t *testing.T) {
	s, err := newSigner(NewKey())
	if err != nil {
		t.Fatal(err)
	}
	r := Receipt{Kind: KeyKind, Time: time.Unix(0, 0), Key: ChainKey{"n1", s.public}}
	e := appendSignature(appendEntry(nil, EmptyDigest, r.append(nil), 1), 0, s)
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := len(e) - len(`"}`) - 1
	good := 0
	for _, c := range []byte(letters) { // some bits of the last letter have no meaning
		e[last] = c
		if parsed, err := parseEntry("n1", 1, e); err != nil {
			t.Fatal(err)
		} else if _, err := parsed.verifySignature(); err == nil {
			good++
		}
	}
	if good != 1 {
		t.Errorf("%d spellings pass", good)
	}
}
