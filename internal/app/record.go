package app

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/decide"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/record"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The names under which an entry refers to what its decision was made from.
const (
	textCatalog  = "catalog"
	textTenant   = "tenant"
	textTaxonomy = "taxonomy"
	textOperator = "operator" // the files of its layer
	textOwn      = "tenant_policy"
)

// texts are what a tenant's decisions are made from, as it is archived.
type texts map[string]record.Archive

// texts encodes nothing but to digest it: what is archived already is not
// needed again.
func (r *reading) texts(t *tenant) texts {
	files := r.config.Policies
	if files == nil {
		files = shipped()
	}
	out := texts{}
	add := func(name string, data func() []byte) {
		out[name] = record.Archive{Digest: canonical.Sum(data()), Data: data}
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

// record notes a decision, if that is not of what was noted already.
func (a *App) record(t *tenant, d *decide.Decision) {
	when := time.Now()
	a.records.Add(func() record.Record { return t.record(d, when) })
}

// record makes the record of a decision of the tenant's.
func (t *tenant) record(d *decide.Decision, when time.Time) record.Record {
	text := d.Canonical()
	r := record.Record{Texts: t.texts(), Entry: record.Entry{
		Time: when, Of: string(d.Tenant) + "/" + d.Principal.ID + "/" + string(d.Task.ID),
		Decision: text, Digest: canonical.Sum(text), Archives: map[string]switchboard.Digest{},
	}}
	timeless := *d
	timeless.Now = time.Time{}
	r.Same = timeless.Digest()
	for name, text := range r.Texts {
		r.Archives[name] = text.Digest
	}
	return r
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
	folder  string
	engine  *policy.Engine
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
func (a *archivist) past(refs map[string]switchboard.Digest) (p *past, err error) {
	p = &past{}
	read := func(name string, v any) {
		if err != nil {
			return
		}
		var text []byte
		if text, err = record.ReadArchive(a.folder, refs[name]); err == nil {
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
func byArchive(a, b record.Entry) int {
	return cmp.Or(
		cmp.Compare(a.Archives[textOperator], b.Archives[textOperator]),
		cmp.Compare(a.Archives[textCatalog], b.Archives[textCatalog]),
		cmp.Compare(a.Archives[textOwn], b.Archives[textOwn]),
		cmp.Compare(a.Archives[textTenant], b.Archives[textTenant]),
		cmp.Compare(a.Archives[textTaxonomy], b.Archives[textTaxonomy]),
		a.Time.Compare(b.Time),
		cmp.Compare(a.Digest, b.Digest),
	)
}
