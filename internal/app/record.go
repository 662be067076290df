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
	textCatalog      = "catalog"
	textTenant       = "tenant"
	textTaxonomy     = "taxonomy"
	textOperator     = "operator" // the files of its layer
	textTenantPolicy = "tenant_policy"
	textTask         = "task" // that a client has declared
)

// basisTexts are what a tenant's decisions are made from, as it is archived.
type basisTexts map[string]archive.Text

// basisTexts encodes nothing but to digest it: what is archived already is not
// needed again.
func (r *loadedConfig) basisTexts(t *servedTenant) basisTexts {
	files := r.config.Policies
	if files == nil {
		files = shippedPolicies()
	}
	out := basisTexts{}
	add := func(name string, data func() []byte) {
		out[name] = archive.Text{Digest: canonical.Sum(data()), Data: data}
	}
	add(textCatalog, func() []byte { return encodeJSON(archivedTools(t.view.Named("*/*"))) })
	add(textTenant, func() []byte { return encodeJSON(t.Tenant) })
	add(textTaxonomy, func() []byte { return encodeJSON(taxonomyTerms(r.config.Taxonomy)) })
	add(textOperator, func() []byte { return encodeJSON(withoutTests(files)) })
	if own, ok := r.config.TenantPolicies[t.ID]; ok {
		add(textTenantPolicy, func() []byte { return encodeJSON(withoutTests(own)) })
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
type decisionRecord struct {
	kind   string
	when   time.Time
	digest switchboard.Digest
	text   []byte             // of which digest is; nil where it has not been read yet
	basis  switchboard.Digest // of refs

	// refs say by which texts it was decided.
	refs map[string]switchboard.Digest

	// While it is recorded: whose decision it is, the digest of what it says but for
	// the instant, and the texts of refs.
	subject string
	content switchboard.Digest
	texts   []archive.Text
}

// recordInterval is after what time the same is recorded again, so that what is decided all the
// time is in every part of the receipts.
const recordInterval = 24 * time.Hour

// maxRecorded bounds of whom is remembered what was recorded last.
const maxRecorded = 1 << 15

// A recorder has receipts of decisions, and what they were made from archived. It is safe
// for concurrent use.
type recorder struct {
	addReceipt func(*receipt.Receipt) (id string) // nil where there are no receipts, nor an archive
	archive    *archive.Archive

	mu     sync.Mutex
	latest map[switchboard.Digest]lastRecord // by the digest of entry.of

	closeMu sync.Mutex // guards closed, and that nothing is added to work then
	closed  bool
	pending sync.WaitGroup // what is being recorded
}

// lastRecord is what was lastRecord last of somebody.
type lastRecord struct {
	content, digest, basis switchboard.Digest
	when                   time.Time
	receipt                string // the id of its own, if it has one
}

// recordOnce has e archived, and own written, where that is not nil, unless e says what was
// recorded of the same already. It returns what is recorded.
func (r *recorder) recordOnce(e *decisionRecord, own *receipt.Receipt) (was lastRecord) {
	of := canonical.Sum([]byte(e.subject))
	r.mu.Lock()
	was = r.latest[of]
	fresh := was.content != e.content || e.when.Sub(was.when) > recordInterval
	if fresh {
		if len(r.latest) >= maxRecorded {
			clear(r.latest)
		}
		was = lastRecord{e.content, e.digest, e.basis, e.when, ""}
		if own != nil {
			own.Decision, own.Basis = e.digest, e.basis
			was.receipt = r.addReceipt(own)
		}
		r.latest[of] = was
	}
	r.mu.Unlock()
	if fresh {
		r.archive.Put(append(e.texts, archive.Of(e.text))...)
	}
	return was
}

// recordDecision has a recordDecision recorded, soon, and with what error it was refused, which is nil
// where it was not. What it returns says where that stands.
func (r *recorder) recordDecision(t *servedTenant, d *decide.Decision, refused error) func() lastRecord {
	if r.addReceipt == nil {
		return func() lastRecord { return lastRecord{} }
	}
	when := time.Now()
	once := sync.OnceValue(func() lastRecord {
		own := &receipt.Receipt{Kind: receipt.Decision, Tenant: d.Tenant, Task: d.Task.ID, Principal: receiptPrincipal(d.Principal), Outcome: receipt.OK}
		e := t.newDecisionRecord(d, when)
		if err, ok := errors.AsType[*switchboard.Error](refused); ok {
			own.Outcome, own.Code = receipt.Refused, err.Code
			e.content = canonical.Sum(append([]byte(e.content), err.Code...)) // what it shows may be refused, and not the decision
		}
		return r.recordOnce(e, own)
	})
	r.closeMu.Lock()
	defer r.closeMu.Unlock()
	if r.closed {
		go once() // it is counted as lost
	} else {
		r.pending.Go(func() { once() }) // it takes a while, for which nobody waits but who is refused
	}
	return once
}

// close waits for what is being recorded, and has all of it archived.
func (r *recorder) close() {
	r.closeMu.Lock()
	r.closed = true
	r.closeMu.Unlock()
	r.pending.Wait()
	r.archive.Close()
}

// receiptPrincipal is who it was done for.
func receiptPrincipal(p switchboard.Principal) receipt.Principal {
	return receipt.Principal{ID: p.ID, Auth: p.Auth, Mode: p.Mode.Narrower(switchboard.Autopilot)}
}

// recordDeniedCall has a receipt of a call by name that could not be made, and returns its id. It holds the name that
// was asked for, whether or not there is such a tool, so that who guesses names is seen.
func (a *App) recordDeniedCall(p switchboard.Principal, of *run.Run, name string, code switchboard.Code) string {
	if a.ledger.addReceipt == nil {
		return ""
	}
	own := &receipt.Receipt{
		Kind: receipt.Call, Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Method: wire.MethodToolsCall,
		Principal: receiptPrincipal(p), Outcome: receipt.Refused, Code: code,
	}
	own.Tool = a.ledger.digests.Name(p.Tenant, name)
	own.Decision, own.Basis = of.Peek().Decided()
	return a.ledger.addReceipt(own)
}

// recordExpansion has a receipt of what a client has had recordExpansion or collapsed, or was refused, and
// returns its id.
func (a *App) recordExpansion(of *run.Run, did lazyexpand.Deed) string {
	if a.ledger.addReceipt == nil {
		return ""
	}
	p := of.Principal()
	own := &receipt.Receipt{
		Kind: receipt.Kind(did.Action), Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Principal: receiptPrincipal(p), Outcome: receipt.OK,
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
	return a.ledger.addReceipt(own)
}

// newDecisionRecord makes the record of a decision of the tenant's.
func (t *servedTenant) newDecisionRecord(d *decide.Decision, when time.Time) *decisionRecord {
	text := d.Canonical()
	timeless := *d
	timeless.Now = time.Time{}
	e := &decisionRecord{
		when: when, subject: "decision/" + string(d.Tenant) + "/" + d.Principal.ID + "/" + string(d.Task.ID), content: timeless.Digest(),
		text: text, digest: canonical.Sum(text),
	}
	if d.Task.ID == switchboard.DeclaredTask {
		return t.addBasis(e, encodeJSON(d.Task))
	}
	return t.addBasis(e, nil)
}

// addBasis completes an entry that was made of this, and of a task that is none of the
// tenant's where that is not nil.
func (t *servedTenant) addBasis(e *decisionRecord, task []byte) *decisionRecord {
	e.refs = map[string]switchboard.Digest{}
	for name, text := range t.basisTexts() {
		e.refs[name] = text.Digest
		e.texts = append(e.texts, text)
	}
	if task != nil {
		own := archive.Of(task)
		e.refs[textTask] = own.Digest
		e.texts = append(e.texts, own)
	}
	basis := archive.Of(encodeJSON(e.refs)) // of a map it is sorted
	e.basis = basis.Digest
	e.texts = append(e.texts, basis)
	return e
}

// Records are where receipts, and what they refer to, are read.
type Records interface {
	receipt.Reader
	archive.Reader
}

// readRecords reads what the receipts say that was decided, and how many of these cannot be
// read. What was decided alike on one day counts once. With selections, the decision counts
// too that a called tool was selected by.
func readRecords(ctx context.Context, records Records, receipts iter.Seq2[receipt.Entry, error], selections bool) (all []*decisionRecord, damaged int, err error) {
	bases := map[switchboard.Digest]map[string]switchboard.Digest{}
	seen := map[string]bool{}
	add := func(e *decisionRecord) {
		if id := fmt.Sprint(e.kind, e.digest, e.basis, e.when.Truncate(recordInterval)); !seen[id] {
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
			add(&decisionRecord{when: r.Receipt.Time, digest: r.Receipt.Decision, basis: r.Receipt.Basis, refs: refs(r.Receipt.Basis)})
		}
		if r.Fault == nil && r.Receipt.Kind == receipt.Call {
			for _, d := range r.Receipt.Rulings {
				e := &decisionRecord{kind: kindCall, when: r.Receipt.Time, digest: d}
				if seen[fmt.Sprint(d, e.when.Truncate(recordInterval))] {
					continue
				}
				seen[fmt.Sprint(d, e.when.Truncate(recordInterval))] = true
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
type archivedBasis struct {
	tenant        *switchboard.Tenant
	tools         []*switchboard.Tool // sorted by id
	taxonomy      *switchboard.Taxonomy
	operator, own []switchboard.PolicyFile // own is nil where the tenant had no layer
}

// An basisReader reads what was archived, and keeps what it read last of the
// larger texts: those who ask go through the log in an order in which that helps.
// It is for one goroutine.
type basisReader struct {
	records        Records
	engine         *policy.Engine
	replayers      lastMade[string, *replayer] // by what they are made from
	tools          lastMade[switchboard.Digest, []*switchboard.Tool]
	operatorLayers [2]lastMade[switchboard.Digest, *policy.Layer] // of the operator
	tenantLayers   [2]lastMade[switchboard.Digest, *policy.Layer] // of tenants
}

// lastMade remembers what was made last.
type lastMade[K comparable, V any] struct {
	key   K
	value V
}

func (l *lastMade[K, V]) get(key K, make func() (V, error)) (V, error) {
	if l.key == key {
		return l.value, nil
	}
	v, err := make()
	if err == nil {
		l.key, l.value = key, v
	}
	return v, err
}

// readBasis reads what an entry refers to.
func (a *basisReader) readBasis(ctx context.Context, e *decisionRecord) (p *archivedBasis, err error) {
	p = &archivedBasis{}
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
	if refs[textTenantPolicy] != "" {
		read(textTenantPolicy, &p.own)
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

// rebuildTenant makes of p what decides. which says whether it is that of records or of
// a proposal: the layers of each are kept.
func (a *basisReader) rebuildTenant(p *archivedBasis, which int) (*servedTenant, error) {
	layer := func(kind policy.Kind, of *lastMade[switchboard.Digest, *policy.Layer], files []switchboard.PolicyFile) (*policy.Layer, error) {
		return of.get(digestJSON(files), func() (*policy.Layer, error) { return policy.Compile(kind, files) })
	}
	operator, err := layer(policy.Operator, &a.operatorLayers[which], p.operator)
	if err != nil {
		return nil, err
	}
	var own *policy.Layer
	if p.own != nil {
		if own, err = layer(policy.Tenant, &a.tenantLayers[which], p.own); err != nil {
			return nil, err
		}
	}
	rules, err := a.engine.New(p.tenant, operator, own)
	if err != nil {
		return nil, err
	}
	rules = rules.Recalling()
	return newServedTenant(p.tenant, catalog.ViewOf(p.tools, p.taxonomy), p.taxonomy, digestJSON(taxonomyTerms(p.taxonomy)), rules), nil
}

// compareByBasis orders entries so that those which refer to the same stand together.
func compareByBasis(a, b *decisionRecord) int {
	return cmp.Or(
		cmp.Compare(a.refs[textOperator], b.refs[textOperator]),
		cmp.Compare(a.refs[textCatalog], b.refs[textCatalog]),
		cmp.Compare(a.refs[textTenantPolicy], b.refs[textTenantPolicy]),
		cmp.Compare(a.refs[textTenant], b.refs[textTenant]),
		cmp.Compare(a.refs[textTaxonomy], b.refs[textTaxonomy]),
		cmp.Compare(a.kind, b.kind),
		a.when.Compare(b.when),
		cmp.Compare(a.digest, b.digest),
	)
}

// basisKey tells apart what was decided from other things, but for a task of its own.
func (e *decisionRecord) basisKey() string {
	return fmt.Sprint(e.kind, e.refs[textCatalog], e.refs[textTenant], e.refs[textTaxonomy], e.refs[textOperator], e.refs[textTenantPolicy])
}

// readText reads the text of an entry.
func (a *basisReader) readText(ctx context.Context, e *decisionRecord) (err error) {
	if e.text == nil {
		e.text, err = archive.Read(ctx, a.records, e.digest)
	}
	return err
}
