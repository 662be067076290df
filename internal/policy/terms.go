package policy

import (
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxKeptTerms limits the tools in a toolTerms table. Without it, a Switchboard that decides all the time would keep the terms of tools that exist no more.
const maxKeptTerms = 4096

// toolTerms holds the policy terms of tools, which never change. It is safe for concurrent use.
type toolTerms struct {
	terms sync.Map // *switchboard.Tool → *ast.Term
	size  atomic.Int64
}

// find returns the terms of the tools. It builds those that the table does not have. It returns nil if one of the tools has none; Judge then names it.
func (t *toolTerms) find(tools []*switchboard.Tool) []*ast.Term {
	out := make([]*ast.Term, len(tools))
	var b termBuilder
	for i, tool := range tools {
		known, ok := t.terms.Load(tool)
		if !ok {
			made, err := b.build(tool, switchboard.KindTool)
			if err != nil {
				return nil
			}
			var loaded bool
			if known, loaded = t.terms.LoadOrStore(tool, made); !loaded {
				t.size.Add(1)
			}
		}
		out[i] = known.(*ast.Term)
	}
	return out
}

// briefTerms are the terms of the tools that decisions were about since the last garbage collection. The terms of a tool take some kilobytes, so they are
// not kept for an idle Switchboard; but most decisions that follow each other soon are about the same tools, and to build the terms takes most of the time
// of a decision about hundreds of candidates. The zero value works.
type briefTerms struct {
	mu   sync.Mutex
	last weak.Pointer[toolTerms]

	// kept is the table while collections must not take it; nil otherwise. release ends that.
	kept    *toolTerms
	release *time.Timer
}

// termsKept is how long KeepTerms keeps terms.
const termsKept = 30 * time.Second

// KeepTerms keeps the terms of the tools that decisions of all tenants by the engine of p are about for half a minute from now, also if garbage is collected. It is for people, who look at decisions one after
// another: each collection would make the next look slow. It keeps those of maxKeptTerms tools at most.
func KeepTerms(p *Policy) { p.engine.terms.keep() }

func (b *briefTerms) keep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = b.current()
	if b.release == nil {
		b.release = time.AfterFunc(termsKept, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.kept = nil
		})
		return
	}
	b.release.Reset(termsKept)
}

// table returns the table that decisions share now.
func (b *briefTerms) table() *toolTerms {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.current()
}

// current is table for a caller that holds b.mu.
func (b *briefTerms) current() *toolTerms {
	t := b.last.Value()
	if t == nil || t.size.Load() > maxKeptTerms {
		t = &toolTerms{}
		b.last = weak.Make(t)
		if b.kept != nil {
			b.kept = t
		}
	}
	return t
}
