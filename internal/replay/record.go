package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policy/boundary"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The names of the texts in the basis of a decision.
const (
	textCatalog      = "catalog"
	textTenant       = "tenant"
	textTaxonomy     = "taxonomy"
	textOperator     = "operator" // the files of the operator's layer
	textTenantPolicy = "tenant_policy"
	textCapabilities = "capabilities" // the registry, and who provides it; absent if there is none
	textTask         = "task"         // declared by a client, or with what people have added
)

// basisTexts are the texts that a tenant's decisions are made from, by name.
type basisTexts map[string]archive.Text

// basisTextsOf returns the texts of a tenant with their digests. Each is encoded again when it has to
// be written: most are in the archive already.
func basisTextsOf(t *bind.Tenant) basisTexts {
	out := basisTexts{}
	add := func(name string, data func() []byte) {
		out[name] = archive.Text{Digest: canonical.Sum(data()), Data: data}
	}
	add(textCatalog, func() []byte { return canonical.Encode(archivedTools(t.View.Named("*/*"))) })
	add(textTenant, func() []byte { return canonical.Encode(t.Tenant) })
	add(textTaxonomy, func() []byte { return canonical.Encode(bind.TaxonomyTerms(t.Taxonomy)) })
	add(textOperator, func() []byte { return canonical.Encode(withoutTests(t.OperatorFiles)) })
	if t.OwnFiles != nil {
		add(textTenantPolicy, func() []byte { return canonical.Encode(withoutTests(t.OwnFiles)) })
	}
	if t.Snapshot.Capabilities != "" {
		add(textCapabilities, func() []byte {
			return canonical.Encode(archivedCapabilities{t.Providers.Registry(), freshTools(t.Providers.Tools())})
		})
	}
	return out
}

// archivedCapabilities are the registry, and the tools that provide each version.
type archivedCapabilities struct {
	Registry *capability.Registry
	Provided map[string][]*switchboard.Tool
}

// freshTools returns the tools as if no server were away: decisions do not see whether one is.
func freshTools(provided map[string][]*switchboard.Tool) map[string][]*switchboard.Tool {
	out := map[string][]*switchboard.Tool{}
	for version, tools := range provided {
		for _, t := range tools {
			shown, own, provides := *t, *t.Provides.Own, *t.Provides
			shown.Stale, own.Stale = false, false
			provides.Own, shown.Provides = &own, &provides
			out[version] = append(out[version], &shown)
		}
	}
	return out
}

// An archivedTool has its definition as text, which compresses better.
type archivedTool struct {
	switchboard.Tool
	Definition string
}

func archivedTools(tools []*switchboard.Tool) []archivedTool {
	out := make([]archivedTool, len(tools))
	for i, t := range tools {
		out[i] = archivedTool{*t, string(t.Definition)}
		out[i].Stale = false // decisions do not see it
	}
	return out
}

func withoutTests(files []switchboard.PolicyFile) []switchboard.PolicyFile {
	return slices.DeleteFunc(slices.Clone(files), func(f switchboard.PolicyFile) bool { return policy.IsTest(f.Path) })
}

// The kinds of decisions that are recorded.
const (
	kindDecision = ""     // which tools a task gets
	kindCall     = "call" // whether one call may be made
)

// A decisionRecord is one decision, as it is recorded and as it is replayed.
type decisionRecord struct {
	kind   string
	when   time.Time
	digest switchboard.Digest
	text   []byte             // nil if it has not been read yet
	basis  switchboard.Digest // the digest of refs

	// refs are the digests of the texts in its basis.
	refs map[string]switchboard.Digest

	// node and seq are the place of the newest receipt that records it. They are set only where receipts are read.
	node string
	seq  uint64

	// These are set only while it is recorded: the subject (tenant, principal and task),
	// the digest of the decision without its time, and the texts of refs.
	subject string
	content switchboard.Digest
	texts   []archive.Text
}

// recordInterval: an unchanged decision is recorded again after a day, so that each day's receipts
// hold it.
const recordInterval = 24 * time.Hour

// maxRecorded limits how many subjects (tenant, principal, task) the recorder remembers the latest
// record of.
const maxRecorded = 1 << 15

// A Recorder writes receipts of decisions, and archives what they were made from. Use NewRecorder. It
// is safe for concurrent use.
type Recorder struct {
	addReceipt func(*receipt.Receipt) (id string) // nil if there are no receipts and no archive
	archive    *archive.Archive
	digests    *receipt.Digests

	mu     sync.Mutex
	latest map[switchboard.Digest]lastRecord // by the digest of the subject

	basisMu sync.Mutex
	bases   map[switchboard.TenantID]tenantBasis // of the states of the present configuration

	closeMu sync.Mutex // guards closed; nothing is added to pending after that
	closed  bool
	pending sync.WaitGroup // records that are being written
}

// A tenantBasis is the basis of the decisions of a tenant.
type tenantBasis struct {
	tenant *bind.Tenant
	texts  func() basisTexts
}

// NewRecorder returns a Recorder that writes receipts with add, which returns the id of each. If add
// is nil, the Recorder does nothing.
func NewRecorder(add func(*receipt.Receipt) (id string), a *archive.Archive, digests *receipt.Digests) *Recorder {
	return &Recorder{addReceipt: add, archive: a, digests: digests, latest: map[switchboard.Digest]lastRecord{}, bases: map[switchboard.TenantID]tenantBasis{}}
}

// basisOf returns the basis of the tenant's decisions. It makes the texts once for each state.
func (r *Recorder) basisOf(t *bind.Tenant) basisTexts {
	r.basisMu.Lock()
	known := r.bases[t.ID]
	if known.tenant != t {
		known = tenantBasis{t, sync.OnceValue(func() basisTexts { return basisTextsOf(t) })}
		r.bases[t.ID] = known
	}
	r.basisMu.Unlock()
	return known.texts()
}

// lastRecord is the latest record of a subject.
type lastRecord struct {
	content, digest, basis switchboard.Digest
	when                   time.Time
	receipt                string // the id of its receipt, if it has one of its own
}

// recordOnce archives e, and writes own if it is not nil, unless the latest record of the same
// subject has the same content. It returns the latest record.
func (r *Recorder) recordOnce(e *decisionRecord, own *receipt.Receipt) (was lastRecord) {
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
		}
		r.archive.Put(append(e.texts, archive.Text{Digest: e.digest, Data: func() []byte { return e.text }, Holds: len(e.text)})...) // before the receipt: see Settle
		if own != nil {
			was.receipt = r.addReceipt(own)
		}
		r.latest[of] = was
	}
	r.mu.Unlock()
	return was
}

// Decision records a decision in the background. refused is the error that refused it, or
// nil. The function that it returns waits for the record and returns it. It is a bind.RecordDecision.
func (r *Recorder) Decision(t *bind.Tenant, d *decide.Decision, refused error) func() bind.Record {
	if r.addReceipt == nil {
		return func() bind.Record { return bind.Record{} }
	}
	when := time.Now()
	once := sync.OnceValue(func() bind.Record {
		own := &receipt.Receipt{Kind: receipt.Decision, Tenant: d.Tenant, Task: d.Task.ID, Principal: ReceiptPrincipal(d.Principal), Outcome: receipt.OK, Unmet: unmetOf(d)}
		e := newDecisionRecord(r.basisOf(t), d, when)
		if err, ok := errors.AsType[*switchboard.Error](refused); ok {
			own.Outcome, own.Code = receipt.Refused, err.Code
			e.content = canonical.Sum(append([]byte(e.content), err.Code...)) // its surface may be refused although the decision stays the same
		}
		was := r.recordOnce(e, own)
		return bind.Record{Decision: was.digest, Basis: was.basis, Receipt: was.receipt}
	})
	r.closeMu.Lock()
	defer r.closeMu.Unlock()
	if r.closed {
		go once() // its archive texts are counted as lost
	} else {
		r.pending.Go(func() { once() }) // it takes a while; only a refused client waits for it
	}
	return once
}

// unmetOf returns the requirements of a decision that no tool meets.
func unmetOf(d *decide.Decision) (unmet []string) {
	for i := range d.Outcomes {
		if o := &d.Outcomes[i]; o.Unmet != nil {
			unmet = append(unmet, o.Requirement.String())
		}
	}
	return unmet
}

// Close waits for records that are being written, and for the archive.
func (r *Recorder) Close() {
	if r.addReceipt == nil {
		return
	}
	r.closeMu.Lock()
	r.closed = true
	r.closeMu.Unlock()
	r.pending.Wait()
	r.archive.Close()
}

// Keep archives a text by its digest, without waiting.
func (r *Recorder) Keep(text []byte) {
	if r.archive != nil {
		r.archive.Put(archive.TextOf(text))
	}
}

// Settle waits until the texts of all decisions that this process has recorded are archived, or have failed to be. It waits until ctx ends, and for some
// seconds at most. It does not wait for other replicas.
func (r *Recorder) Settle(ctx context.Context) { r.archive.Settle(ctx) }

// Status returns the status of the archive.
func (r *Recorder) Status() archive.Status { return r.archive.Status() }

// ReceiptPrincipal returns the principal as receipts name it.
func ReceiptPrincipal(p switchboard.Principal) receipt.Subject {
	return receipt.Subject{ID: p.ID, Auth: p.Auth, Mode: p.Mode.Narrower(switchboard.Autopilot)}
}

// DeniedCall writes a receipt of a call that was refused because its client has no tool of
// that name, and returns the receipt's id. The receipt holds the requested name, whether or not
// there is such a tool, so that guessing of names is visible.
func (r *Recorder) DeniedCall(p switchboard.Principal, of *run.Run, name string, code switchboard.Code) string {
	if r.addReceipt == nil {
		return ""
	}
	own := &receipt.Receipt{
		Kind: receipt.Call, Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Method: wire.MethodToolsCall,
		Principal: ReceiptPrincipal(p), Outcome: receipt.Refused, Code: code,
	}
	own.Tool = r.digests.ToolName(p.Tenant, name)
	own.Decision, own.Basis = of.PeekSurface().Decided()
	return r.addReceipt(own)
}

// Expansion writes a receipt of tools that a client expanded or collapsed, or tried to, and
// returns the receipt's id.
func (r *Recorder) Expansion(of *run.Run, did lazyexpand.ExpandEvent) string {
	if r.addReceipt == nil {
		return ""
	}
	p := of.Principal()
	own := &receipt.Receipt{
		Kind: receipt.Kind(did.Action), Tenant: p.Tenant, Task: of.Task(), Run: of.ID(), Principal: ReceiptPrincipal(p), Outcome: receipt.OK,
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
	own.Decision, own.Basis = of.PeekSurface().Decided()
	return r.addReceipt(own)
}

// Reload writes a receipt of a reload: the digest of the new configuration and its changes, or the
// error that refused it. It is not known who changed the files.
func (r *Recorder) Reload(digest switchboard.Digest, changed string, err error) {
	r.basisMu.Lock()
	clear(r.bases) // tenants may be gone
	r.basisMu.Unlock()
	if r.addReceipt == nil {
		return
	}
	own := &receipt.Receipt{Kind: receipt.Admin, Method: "reload", Outcome: receipt.OK, Configuration: digest, Note: changed}
	if err != nil {
		own.Outcome, own.Code = receipt.Refused, switchboard.CodeConfig
	}
	r.addReceipt(own)
}

// newDecisionRecord makes the record of a decision of the tenant.
func newDecisionRecord(texts basisTexts, d *decide.Decision, when time.Time) *decisionRecord {
	text := d.Canonical()
	timeless := *d
	timeless.Now = time.Time{}
	e := &decisionRecord{
		when: when, subject: "decision/" + string(d.Tenant) + "/" + d.Principal.ID + "/" + string(d.Task.ID), content: timeless.Digest(),
		text: text, digest: canonical.Sum(text),
	}
	if d.Task.Amended() {
		return addBasis(texts, e, canonical.Encode(d.Task))
	}
	return addBasis(texts, e, nil)
}

// addBasis adds the basis of a decision to its record. task is a task that a client declared, or
// nil.
func addBasis(texts basisTexts, e *decisionRecord, task []byte) *decisionRecord {
	e.refs = map[string]switchboard.Digest{}
	for name, text := range texts {
		e.refs[name] = text.Digest
		e.texts = append(e.texts, text)
	}
	if task != nil {
		own := archive.TextOf(task)
		e.refs[textTask] = own.Digest
		e.texts = append(e.texts, own)
	}
	basis := archive.TextOf(canonical.Encode(e.refs)) // a map is encoded in sorted order
	e.basis = basis.Digest
	e.texts = append(e.texts, basis)
	return e
}

// Records is where receipts and their archive are read.
type Records interface {
	receipt.ChainReader
	archive.Reader
}

// readRecords reads the decisions that the receipts record, and counts damaged receipts. Equal
// decisions of one day count once. With selections, it also reads the decision that selected the
// tool of a call.
func readRecords(ctx context.Context, records Records, receipts iter.Seq2[receipt.ChainEntry, error], selections bool) (all []*decisionRecord, damaged int, err error) {
	r := newRecordReading(records)
	r.selections = selections
	for e, err := range receipts {
		if err != nil {
			return nil, 0, err
		}
		r.add(ctx, &e)
	}
	return r.all, r.damaged, nil
}

// A recordReading gathers the decisions that receipts record.
type recordReading struct {
	records    Records
	selections bool // with the decisions that selected the tools of calls
	most       int  // further decisions are only counted; 0 means that there is no limit

	all       []*decisionRecord
	damaged   int
	seen      map[string]bool
	bases     map[switchboard.Digest]map[string]switchboard.Digest
	textBytes int // of the texts in all

	further map[uint64]bool // digests of decisions that are only counted
}

// Bounds of a reading in memory.
const (
	maxReadTexts = 32 << 20 // bytes; further texts are read when they are needed
	maxFurther   = 1 << 20
)

func newRecordReading(records Records) *recordReading {
	return &recordReading{records: records, seen: map[string]bool{}, bases: map[switchboard.Digest]map[string]switchboard.Digest{}, further: map[uint64]bool{}}
}

// isFirst reports whether the decision is the first one with that id, and should be kept.
func (r *recordReading) isFirst(id string) bool {
	switch {
	case r.seen[id]:
		return false
	case r.most > 0 && len(r.all) >= r.most:
		if len(r.further) < maxFurther {
			r.further[maphash.String(furtherSeed, id)] = true
		}
		return false
	}
	r.seen[id] = true
	return true
}

var furtherSeed = maphash.MakeSeed()

// refs returns the digests of the texts of a basis.
func (r *recordReading) refs(ctx context.Context, basis switchboard.Digest) map[string]switchboard.Digest {
	if was, ok := r.bases[basis]; ok {
		return was
	}
	var refs map[string]switchboard.Digest
	if text, err := archive.Read(ctx, r.records, basis); err == nil {
		_ = json.Unmarshal(text, &refs) // a missing text is reported where it is needed
	}
	r.bases[basis] = refs
	return refs
}

// add adds the decisions that a receipt records.
func (r *recordReading) add(ctx context.Context, e *receipt.ChainEntry) {
	of := &e.Receipt
	day := of.Time.Truncate(recordInterval)
	switch {
	case e.Fault != nil:
		r.damaged++
		return
	case of.Kind == receipt.Decision, r.selections && of.Decision != "":
		if r.isFirst(fmt.Sprint(kindDecision, of.Decision, of.Basis, day)) {
			r.all = append(r.all, &decisionRecord{when: of.Time, digest: of.Decision, basis: of.Basis, refs: r.refs(ctx, of.Basis), node: e.Node, seq: e.Seq})
		}
	}
	if of.Kind != receipt.Call {
		return
	}
	for _, d := range of.Rulings {
		if !r.isFirst(fmt.Sprint(kindCall, d, day)) {
			continue
		}
		one := &decisionRecord{kind: kindCall, when: of.Time, digest: d, node: e.Node, seq: e.Seq}
		r.readBasis(ctx, one)
		r.all = append(r.all, one)
	}
}

// readBasis reads the digests of the basis of a decision, and the text of a ruling if there is room for it. A missing text is reported where it is needed.
func (r *recordReading) readBasis(ctx context.Context, one *decisionRecord) {
	if one.kind == kindDecision {
		one.refs = r.refs(ctx, one.basis)
		return
	}
	said, err := readArchivedRuling(ctx, r.records, one.digest)
	if err != nil {
		return
	}
	one.basis, one.refs = said.Basis, r.refs(ctx, said.Basis)
	if r.textBytes += len(said.Ruling); r.textBytes <= maxReadTexts {
		one.text = said.Ruling
	}
}

// readArchivedRuling reads a ruling with the digest of its basis.
func readArchivedRuling(ctx context.Context, records Records, d switchboard.Digest) (said archivedRuling, err error) {
	text, err := archive.Read(ctx, records, d)
	if err == nil {
		err = json.Unmarshal(text, &said)
	}
	return said, err
}

// An archivedBasis holds the inputs of decisions, read from the archive.
type archivedBasis struct {
	tenant        *switchboard.Tenant
	tools         []*switchboard.Tool // sorted by id
	taxonomy      *switchboard.Taxonomy
	providers     *contract.ProviderSet    // nil if there was no registry
	operator, own []switchboard.PolicyFile // own is nil if the tenant had no layer
}

// A basisReader reads archived texts and rebuilds tenants from them. It keeps the larger values
// that it made last: compareByBasis orders decisions so that this helps. It is for one goroutine.
type basisReader struct {
	records        Records
	engine         *policy.Engine
	replayers      lastMade[string, *replayer] // by decisionRecord.basisKey
	tools          lastMade[switchboard.Digest, []*switchboard.Tool]
	operatorLayers [2]lastMade[switchboard.Digest, *policy.Layer] // see rebuildTenant
	tenantLayers   [2]lastMade[switchboard.Digest, *policy.Layer] // likewise
}

// lastMade keeps the value that was made last.
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

// readBasis reads the basis of a decision.
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
	if refs[textCapabilities] != "" {
		var all archivedCapabilities
		read(textCapabilities, &all)
		p.providers = contract.ProvidersOf(all.Registry, all.Provided)
	}
	var words archivedTerms
	read(textTaxonomy, &words)
	if err != nil {
		return nil, err
	}
	if p.tenant == nil {
		return nil, errors.New("archive of the tenant: it is empty")
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

// archivedTerms is a taxonomy in the form of taxonomyTerms.
type archivedTerms struct {
	parents     map[switchboard.Resource]switchboard.Resource
	constraints []switchboard.Constraint
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *archivedTerms) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&t.parents, &t.constraints})
}

// rebuildTenant rebuilds the tenant that p describes. which picks the cache of compiled layers: 0
// for recorded policies, 1 for the proposal's.
func (a *basisReader) rebuildTenant(p *archivedBasis, which int) (*bind.Tenant, error) {
	operator, err := compileLayer(policy.Operator, &a.operatorLayers[which], p.operator)
	if err != nil {
		return nil, err
	}
	var own *policy.Layer
	if p.own != nil {
		if own, err = compileLayer(policy.Tenant, &a.tenantLayers[which], p.own); err != nil {
			return nil, err
		}
	}
	boundaries, err := boundary.ForTenants(p.providers.Registry().Boundaries)
	if err != nil {
		return nil, err
	}
	rules, err := a.engine.NewPolicy(p.tenant, boundaries, operator, own)
	if err != nil {
		return nil, err
	}
	rules = rules.Memoized()
	return bind.NewTenant(p.tenant, catalog.ViewOf(p.tools, p.taxonomy), p.providers, p.taxonomy, canonical.SumOf(bind.TaxonomyTerms(p.taxonomy)), rules), nil
}

// compileLayer compiles the files of a layer, unless they are those of the last time.
func compileLayer(kind policy.LayerKind, of *lastMade[switchboard.Digest, *policy.Layer], files []switchboard.PolicyFile) (*policy.Layer, error) {
	return of.get(canonical.SumOf(files), func() (*policy.Layer, error) { return policy.Compile(kind, files) })
}

// admit gives the tools of a proposal the states that its operator's rules of the phase admit lead to. If these files are the recorded ones, so are the states.
func (a *basisReader) admit(was, now *archivedBasis) error {
	if canonical.SumOf(withoutTests(was.operator)) == canonical.SumOf(now.operator) {
		return nil
	}
	operator, err := compileLayer(policy.Operator, &a.operatorLayers[1], now.operator)
	if err != nil {
		return err
	}
	gate, err := a.engine.NewGate(operator)
	if err != nil {
		return err
	}
	if gate == nil {
		now.tools = catalog.Behind(nil, now.tools)
	} else {
		now.tools = catalog.Behind(gate, now.tools)
	}
	return nil
}

// compareByBasis orders decisions so that those with the same basis follow each other.
func compareByBasis(a, b *decisionRecord) int {
	return cmp.Or(
		cmp.Compare(a.refs[textOperator], b.refs[textOperator]),
		cmp.Compare(a.refs[textCatalog], b.refs[textCatalog]),
		cmp.Compare(a.refs[textCapabilities], b.refs[textCapabilities]),
		cmp.Compare(a.refs[textTenantPolicy], b.refs[textTenantPolicy]),
		cmp.Compare(a.refs[textTenant], b.refs[textTenant]),
		cmp.Compare(a.refs[textTaxonomy], b.refs[textTaxonomy]),
		cmp.Compare(a.kind, b.kind),
		a.when.Compare(b.when),
		cmp.Compare(a.digest, b.digest),
	)
}

// basisKey is equal for decisions that were made from the same texts. It ignores a declared task.
func (e *decisionRecord) basisKey() string {
	return fmt.Sprint(e.kind, e.refs[textCatalog], e.refs[textCapabilities], e.refs[textTenant], e.refs[textTaxonomy], e.refs[textOperator], e.refs[textTenantPolicy])
}

// readText reads the text of a decision.
func (a *basisReader) readText(ctx context.Context, e *decisionRecord) (err error) {
	switch {
	case e.text != nil:
	case e.kind == kindCall:
		var said archivedRuling
		said, err = readArchivedRuling(ctx, a.records, e.digest)
		e.text = said.Ruling
	default:
		e.text, err = archive.Read(ctx, a.records, e.digest)
	}
	return err
}
