package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The names under which an entry refers to what its decision was made from.
const (
	textCatalog  = "catalog"
	textTenant   = "tenant"
	textTaxonomy = "taxonomy"
	textOperator = "operator" // the files of its layer
	textOwn      = "tenant_policy"
	textTask     = "task" // that a client has declared
)

// texts are what a tenant's decisions are made from, as it is archived.
type texts map[string]archive.Text

// texts encodes nothing but to digest it: what is archived already is not
// needed again.
func (r *reading) texts(t *tenant) texts {
	files := r.config.Policies
	if files == nil {
		files = shipped()
	}
	out := texts{}
	add := func(name string, data func() []byte) {
		out[name] = archive.Text{Digest: canonical.Sum(data()), Data: data}
	}
	add(textCatalog, func() []byte { return encode(archivedTools(t.view.Named("*/*"))) })
	add(textTenant, func() []byte { return encode(t.Tenant) })
	add(textTaxonomy, func() []byte { return encode(terms(r.config.Taxonomy)) })
	add(textOperator, func() []byte { return encode(withoutTests(files)) })
	if own, ok := r.config.TenantPolicies[t.ID]; ok {
		add(textOwn, func() []byte { return encode(withoutTests(own)) })
	}
	return out
}

// An archivedTool has its definition as text, which packs better.
type archivedTool struct {
	switchboard.Tool
	Definition string
}

func archivedTools(tools []*switchboard.Tool) []archivedTool {
	out := make([]archivedTool, len(tools))
	for i, t := range tools {
		out[i] = archivedTool{*t, string(t.Definition)}
		out[i].Stale = false // as decisions see it
	}
	return out
}

func withoutTests(files []switchboard.PolicyFile) []switchboard.PolicyFile {
	return slices.DeleteFunc(slices.Clone(files), func(f switchboard.PolicyFile) bool { return policy.IsTest(f.Path) })
}

// The kinds of what is recorded.
const (
	kindDecision = ""     // which tools a task gets
	kindCall     = "call" // whether one call may be made
)

// An entry is something that was decided: as it is recorded, and as it is replayed.
type entry struct {
	kind   string
	when   time.Time
	digest switchboard.Digest
	text   []byte             // of which digest is; nil where it has not been read yet
	basis  switchboard.Digest // of refs

	// refs say by which texts it was decided.
	refs map[string]switchboard.Digest

	// While it is recorded: whose decision it is, the digest of what it says but for
	// the instant, and the texts of refs.
	of    string
	same  switchboard.Digest
	texts []archive.Text
}

// again is after what time the same is recorded again, so that what is decided all the
// time is in every part of the receipts.
const again = 24 * time.Hour

// maxRecorded bounds of whom is remembered what was recorded last.
const maxRecorded = 1 << 15

// A recorder has receipts of decisions, and what they were made from archived. It is safe
// for concurrent use.
type recorder struct {
	add     func(*receipt.Receipt) (id string) // nil where there are no receipts, nor an archive
	archive *archive.Archive

	mu    sync.Mutex
	known map[switchboard.Digest]recorded // by the digest of entry.of

	ending sync.Mutex // guards closed, and that nothing is added to work then
	closed bool
	work   sync.WaitGroup // what is being recorded
}

// recorded is what was recorded last of somebody.
type recorded struct {
	same, digest, basis switchboard.Digest
	when                time.Time
	receipt             string // the id of its own, if it has one
}

// keep has e archived, and own written, where that is not nil, unless e says what was
// recorded of the same already. It returns what is recorded.
func (r *recorder) keep(e *entry, own *receipt.Receipt) (was recorded) {
	of := canonical.Sum([]byte(e.of))
	r.mu.Lock()
	was = r.known[of]
	fresh := was.same != e.same || e.when.Sub(was.when) > again
	if fresh {
		if len(r.known) >= maxRecorded {
			clear(r.known)
		}
		was = recorded{e.same, e.digest, e.basis, e.when, ""}
		if own != nil {
			own.Decision, own.Basis = e.digest, e.basis
			was.receipt = r.add(own)
		}
		r.known[of] = was
	}
	r.mu.Unlock()
	if fresh {
		r.archive.Put(append(e.texts, archive.Of(e.text))...)
	}
	return was
}

// decision has a decision recorded, soon, and with what error it was refused, which is nil
// where it was not. What it returns says where that stands.
func (r *recorder) decision(t *tenant, d *decide.Decision, refused error) func() recorded {
	if r.add == nil {
		return func() recorded { return recorded{} }
	}
	when := time.Now()
	once := sync.OnceValue(func() recorded {
		own := &receipt.Receipt{Kind: receipt.Decision, Tenant: d.Tenant, Task: d.Task.ID, Principal: principalOf(d.Principal), Outcome: receipt.OK}
		e := t.record(d, when)
		if err, ok := errors.AsType[*switchboard.Error](refused); ok {
			own.Outcome, own.Code = receipt.Refused, err.Code
			e.same = canonical.Sum(append([]byte(e.same), err.Code...)) // what it shows may be refused, and not the decision
		}
		return r.keep(e, own)
	})
	r.ending.Lock()
	defer r.ending.Unlock()
	if r.closed {
		go once() // it is counted as lost
	} else {
		r.work.Go(func() { once() }) // it takes a while, for which nobody waits but who is refused
	}
	return once
}

// close waits for what is being recorded, and has all of it archived.
func (r *recorder) close() {
	r.ending.Lock()
	r.closed = true
	r.ending.Unlock()
	r.work.Wait()
	r.archive.Close()
}

// principalOf is who it was done for.
func principalOf(p switchboard.Principal) receipt.Principal {
	return receipt.Principal{ID: p.ID, Auth: p.Auth, Mode: p.Mode.Narrower(switchboard.Autopilot)}
}

// denied has a receipt of a call by name that could not be made, and returns its id. It holds the name that
// was asked for, whether or not there is such a tool, so that who guesses names is seen.
func (a *App) denied(p switchboard.Principal, of *run.Run, name string, code switchboard.Code) string {
	if a.records.add == nil {
		return ""
	}
	own := &receipt.Receipt{
		Kind: receipt.Call, Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Method: wire.MethodToolsCall,
		Principal: principalOf(p), Outcome: receipt.Refused, Code: code,
	}
	own.Tool = a.records.digests.Name(p.Tenant, name)
	own.Decision, own.Basis = of.Peek().Decided()
	return a.records.add(own)
}

// expanded has a receipt of what a client has had expanded or collapsed, or was refused, and
// returns its id.
func (a *App) expanded(of *run.Run, did lazyexpand.Deed) string {
	if a.records.add == nil {
		return ""
	}
	p := of.Principal()
	own := &receipt.Receipt{
		Kind: receipt.Kind(did.Action), Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Principal: principalOf(p), Outcome: receipt.OK,
		Note: "group " + did.Group,
	}
	for _, id := range did.Tools {
		own.Tools = append(own.Tools, id.String())
	}
	if did.Collapsed != nil {
		own.Note += "; collapsed for it: " + strings.Join(did.Collapsed, ", ")
	}
	if did.Err != nil {
		own.Outcome, own.Code = receipt.Refused, did.Err.Code
	}
	own.Decision, own.Basis = of.Peek().Decided()
	return a.records.add(own)
}

// record makes the record of a decision of the tenant's.
func (t *tenant) record(d *decide.Decision, when time.Time) *entry {
	text := d.Canonical()
	timeless := *d
	timeless.Now = time.Time{}
	e := &entry{
		when: when, of: "decision/" + string(d.Tenant) + "/" + d.Principal.ID + "/" + string(d.Task.ID), same: timeless.Digest(),
		text: text, digest: canonical.Sum(text),
	}
	if d.Task.ID == switchboard.DeclaredTask {
		return t.archived(e, encode(d.Task))
	}
	return t.archived(e, nil)
}

// archived completes an entry that was made of this, and of a task that is none of the
// tenant's where that is not nil.
func (t *tenant) archived(e *entry, task []byte) *entry {
	e.refs = map[string]switchboard.Digest{}
	for name, text := range t.texts() {
		e.refs[name] = text.Digest
		e.texts = append(e.texts, text)
	}
	if task != nil {
		own := archive.Of(task)
		e.refs[textTask] = own.Digest
		e.texts = append(e.texts, own)
	}
	basis := archive.Of(encode(e.refs)) // of a map it is sorted
	e.basis = basis.Digest
	e.texts = append(e.texts, basis)
	return e
}

// Records are where receipts, and what they refer to, are read.
type Records interface {
	receipt.Reader
	archive.Reader
}

// entries reads what the receipts say that was decided, and how many of these cannot be
// read. What was decided alike on one day counts once. With selections, the decision counts
// too that a called tool was selected by.
func entries(ctx context.Context, records Records, receipts iter.Seq2[receipt.Entry, error], selections bool) (all []*entry, damaged int, err error) {
	bases := map[switchboard.Digest]map[string]switchboard.Digest{}
	seen := map[string]bool{}
	add := func(e *entry) {
		if id := fmt.Sprint(e.kind, e.digest, e.basis, e.when.Truncate(again)); !seen[id] {
			seen[id] = true
			all = append(all, e)
		}
	}
	refs := func(basis switchboard.Digest) map[string]switchboard.Digest {
		if was, ok := bases[basis]; ok {
			return was
		}
		var refs map[string]switchboard.Digest
		if text, err := archive.Read(ctx, records, basis); err == nil {
			_ = json.Unmarshal(text, &refs) // what is not there is missed where it is needed
		}
		bases[basis] = refs
		return refs
	}
	for r, err := range receipts {
		if err != nil {
			return nil, 0, err
		}
		switch {
		case r.Fault != nil:
			damaged++
		case r.Receipt.Kind == receipt.Decision, selections && r.Receipt.Decision != "":
			add(&entry{when: r.Receipt.Time, digest: r.Receipt.Decision, basis: r.Receipt.Basis, refs: refs(r.Receipt.Basis)})
		}
		if r.Fault == nil && r.Receipt.Kind == receipt.Call {
			for _, d := range r.Receipt.Rulings {
				e := &entry{kind: kindCall, when: r.Receipt.Time, digest: d}
				if seen[fmt.Sprint(d, e.when.Truncate(again))] {
					continue
				}
				seen[fmt.Sprint(d, e.when.Truncate(again))] = true
				var said archivedRuling
				if text, err := archive.Read(ctx, records, d); err == nil && json.Unmarshal(text, &said) == nil {
					e.text, e.basis, e.refs = said.Ruling, said.Basis, refs(said.Basis)
				}
				add(e)
			}
		}
	}
	return all, damaged, nil
}

// A past is what decisions were made from, once more.
type past struct {
	tenant        *switchboard.Tenant
	tools         []*switchboard.Tool // sorted by id
	taxonomy      *switchboard.Taxonomy
	operator, own []switchboard.PolicyFile // own is nil where the tenant had no layer
}

// An archivist reads what was archived, and keeps what it read last of the
// larger texts: those who ask go through the log in an order in which that helps.
// It is for one goroutine.
type archivist struct {
	records Records
	engine  *policy.Engine
	replays last[string, *replay] // by what they are made from
	tools   last[switchboard.Digest, []*switchboard.Tool]
	layers  [2]last[switchboard.Digest, *policy.Layer] // of the operator
	layersT [2]last[switchboard.Digest, *policy.Layer] // of tenants
}

// last remembers what was made last.
type last[K comparable, V any] struct {
	key   K
	value V
}

func (l *last[K, V]) get(key K, make func() (V, error)) (V, error) {
	if l.key == key {
		return l.value, nil
	}
	v, err := make()
	if err == nil {
		l.key, l.value = key, v
	}
	return v, err
}

// past reads what an entry refers to.
func (a *archivist) past(ctx context.Context, e *entry) (p *past, err error) {
	p = &past{}
	refs := e.refs
	read := func(name string, v any) {
		if err != nil {
			return
		}
		var text []byte
		if text, err = archive.Read(ctx, a.records, refs[name]); err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			err = fmt.Errorf("archive of the %s: %w", strings.ReplaceAll(name, "_", " "), err)
		}
	}
	read(textTenant, &p.tenant)
	read(textOperator, &p.operator)
	if refs[textOwn] != "" {
		read(textOwn, &p.own)
	}
	var words archivedTerms
	read(textTaxonomy, &words)
	if err != nil {
		return nil, err
	}
	if p.tenant == nil {
		return nil, errors.New("archive of the tenant: it holds none")
	}
	if p.taxonomy, err = switchboard.NewTaxonomy(words.parents, words.constraints); err != nil {
		return nil, fmt.Errorf("archive of the taxonomy: %w", err)
	}
	p.tools, err = a.tools.get(refs[textCatalog], func() ([]*switchboard.Tool, error) {
		var list []archivedTool
		read(textCatalog, &list)
		tools := make([]*switchboard.Tool, len(list))
		for i := range list {
			tools[i] = &list[i].Tool
			tools[i].Definition = []byte(list[i].Definition)
		}
		return tools, err
	})
	return p, err
}

// archivedTerms is a taxonomy as terms gives it.
type archivedTerms struct {
	parents     map[switchboard.Resource]switchboard.Resource
	constraints []switchboard.Constraint
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *archivedTerms) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&t.parents, &t.constraints})
}

// decider makes of p what decides. which says whether it is that of records or of
// a proposal: the layers of each are kept.
func (a *archivist) decider(p *past, which int) (*tenant, error) {
	layer := func(kind policy.Kind, of *last[switchboard.Digest, *policy.Layer], files []switchboard.PolicyFile) (*policy.Layer, error) {
		return of.get(digest(files), func() (*policy.Layer, error) { return policy.Compile(kind, files) })
	}
	operator, err := layer(policy.Operator, &a.layers[which], p.operator)
	if err != nil {
		return nil, err
	}
	var own *policy.Layer
	if p.own != nil {
		if own, err = layer(policy.Tenant, &a.layersT[which], p.own); err != nil {
			return nil, err
		}
	}
	rules, err := a.engine.New(p.tenant, operator, own)
	if err != nil {
		return nil, err
	}
	rules = rules.Recalling()
	return newTenant(p.tenant, catalog.ViewOf(p.tools, p.taxonomy), p.taxonomy, digest(terms(p.taxonomy)), rules), nil
}

// byArchive orders entries so that those which refer to the same stand together.
func byArchive(a, b *entry) int {
	return cmp.Or(
		cmp.Compare(a.refs[textOperator], b.refs[textOperator]),
		cmp.Compare(a.refs[textCatalog], b.refs[textCatalog]),
		cmp.Compare(a.refs[textOwn], b.refs[textOwn]),
		cmp.Compare(a.refs[textTenant], b.refs[textTenant]),
		cmp.Compare(a.refs[textTaxonomy], b.refs[textTaxonomy]),
		cmp.Compare(a.kind, b.kind),
		a.when.Compare(b.when),
		cmp.Compare(a.digest, b.digest),
	)
}

// key tells apart what was decided from other things, but for a task of its own.
func (e *entry) key() string {
	return fmt.Sprint(e.kind, e.refs[textCatalog], e.refs[textTenant], e.refs[textTaxonomy], e.refs[textOperator], e.refs[textOwn])
}

// read reads the text of an entry.
func (a *archivist) read(ctx context.Context, e *entry) (err error) {
	if e.text == nil {
		e.text, err = archive.Read(ctx, a.records, e.digest)
	}
	return err
}
