package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A ProviderFault says why a server does not provide a version of a named capability.
type ProviderFault struct {
	Server     switchboard.ServerID
	Capability string // id and version, or the reference if it means no version
	Where      string // file:line:column
	Why        string
}

// Error returns the fault in one line.
func (f ProviderFault) Error() string {
	return fmt.Sprintf("%s: server %q does not provide %s: %s", f.Where, f.Server, f.Capability, f.Why)
}

// A ProviderSet holds the tools that provide the named capabilities of one tenant. It is immutable and safe for concurrent use.
// The zero ProviderSet provides nothing.
type ProviderSet struct {
	registry *capability.Registry
	tools    map[string][]*switchboard.Tool // by id and version of the capability; sorted by server and name
	checked  map[providerKey]*checkedTool
	faults   []ProviderFault
}

// A providerKey identifies a tool of a server that may provide a tool of a version.
type providerKey struct {
	version *capability.ContractVersion
	name    string
	row     *switchboard.DeclaredEquivalent
}

// A checkedTool is the result for a providerKey. It holds as long as own is the same.
type checkedTool struct {
	own      *switchboard.Tool
	provided *switchboard.Tool
	faults   []string
}

// Offers say what the servers offer. See catalog.Snapshot.
type Offers interface {
	// Heard reports whether the server has listed its tools. Until then, a missing tool is no fault.
	Heard(id switchboard.ServerID) bool

	// LabelEnd says in words that the operator's labels of the tool have ended, or that they will.
	LabelEnd(id switchboard.ToolID) (why string, ended bool)
}

// Provide returns the tools that provide the capabilities of the registry by these rows. tools are the tenant's. granted
// says which versions exist for the tenant. A tool whose labels have ended provides nothing: it has another meaning than the one that its row was written for.
// Of two rows for one version of one server, neither counts. was is the result before, or nil: what has not changed is not checked again.
func Provide(registry *capability.Registry, rows []capability.ProviderRow, granted func(*capability.ContractVersion) bool, tools Tools, offers Offers, was *ProviderSet) *ProviderSet {
	p := &ProviderSet{registry: registry, tools: map[string][]*switchboard.Tool{}, checked: map[providerKey]*checkedTool{}}
	registry.EachProvided(rows, func(row *capability.ProviderRow, v *capability.ContractVersion, other string) {
		switch {
		case !granted(v):
		case other != "":
			p.faults = append(p.faults, ProviderFault{row.Server, v.Name(), row.Position, capability.OtherRowText(other)})
		default:
			p.addProvider(row, v, tools, offers, was)
		}
	})
	for _, list := range p.tools {
		slices.SortFunc(list, func(a, b *switchboard.Tool) int { return a.Key().Compare(b.Key()) })
	}
	slices.SortFunc(p.faults, func(a, b ProviderFault) int {
		return cmp.Or(cmp.Compare(a.Server, b.Server), cmp.Compare(a.Capability, b.Capability), cmp.Compare(a.Where, b.Where), cmp.Compare(a.Why, b.Why))
	})
	return p
}

// ProvidersOf returns the ProviderSet of an archived decision.
func ProvidersOf(registry *capability.Registry, tools map[string][]*switchboard.Tool) *ProviderSet {
	return &ProviderSet{registry: registry, tools: tools}
}

// addProvider adds the tools of the row's server for the version. If one is missing or does not fit, the server provides none
// of them: a client must find the whole contract.
func (p *ProviderSet) addProvider(row *capability.ProviderRow, v *capability.ContractVersion, tools Tools, offers Offers, was *ProviderSet) {
	var provided []*switchboard.Tool
	sound := true
	used := map[switchboard.ToolID]string{}
	fault := func(format string, args ...any) {
		sound = false
		p.faults = append(p.faults, ProviderFault{row.Server, v.Name(), row.Position, fmt.Sprintf(format, args...)})
	}
	for i := range v.Tools {
		want := &v.Tools[i]
		d := row.Tools[want.Name]
		if d == nil {
			fault("the row names no tool for %s; add it, or narrow the range of versions", want.Name)
			continue
		}
		if other := used[d.Tool]; other != "" {
			// Policies judge tools by the server's own names, and must be able to tell the candidates of a requirement apart.
			fault("%s: its tool %s provides %s already; a tool of a server provides one tool of a version", want.Name, safeQuote(d.Tool.Name), other)
			continue
		}
		used[d.Tool] = want.Name
		own, ok := tools.Tool(d.Tool)
		switch {
		case !ok && offers.Heard(row.Server):
			fault("%s: the server has no tool %s", want.Name, safeQuote(d.Tool.Name))
			continue
		case !ok:
			sound = false
			continue
		}
		if why, ended := offers.LabelEnd(d.Tool); ended {
			fault("%s by its tool %s: %s", want.Name, safeQuote(d.Tool.Name), why)
			continue
		}
		key := providerKey{v, want.Name, d}
		c := was.find(key)
		if c == nil || c.own != own {
			c = checkProvided(p.registry, v, want, d, own)
		}
		p.checked[key] = c
		for _, why := range c.faults {
			fault("%s by its tool %s: %s", want.Name, safeQuote(d.Tool.Name), why)
		}
		provided = append(provided, c.provided)
	}
	if sound {
		p.tools[v.Name()] = append(p.tools[v.Name()], provided...)
	}
}

func (p *ProviderSet) find(key providerKey) *checkedTool {
	if p == nil {
		return nil
	}
	return p.checked[key]
}

// checkProvided checks the own tool of a server against the contract's tool, and makes the tool that clients see.
func checkProvided(r *capability.Registry, v *capability.ContractVersion, want *capability.ContractTool, d *switchboard.DeclaredEquivalent, own *switchboard.Tool) *checkedTool {
	digest, err := canonical.Digest(want.Definition)
	if err != nil {
		return &checkedTool{own: own, faults: []string{"the contract's definition cannot be read: " + err.Error()}}
	}
	promised := &switchboard.Tool{ID: switchboard.ToolID{Name: want.Name}, Definition: want.Definition, Digest: digest}
	m := newMove(d, promised, own)
	c := &checkedTool{own: own, faults: m.faults}
	if gave, promises := schemaOf(want.Definition, output); promises {
		// A result is never translated, so that it must fit as it comes.
		if gives, ok := schemaOf(own.Definition, output); !ok || !acceptsAll(gave, gives) {
			c.faults = append(c.faults, "nothing proves that its results fit the contract's output schema")
		}
	}
	called := *own
	called.Capabilities = []switchboard.Capability{{Verb: v.Verb, Resource: v.Resource, Constraints: v.Constraints, Source: switchboard.FromOverlay}}
	called.Kept = slices.Concat(own.Kept, catalog.Restrictions(called.Capabilities, own.Capabilities))
	called.Contract = underContract(&own.Contract, r, v)
	called.Contract.Flow = catalog.ProvidedFlow(own, called.Capabilities[0])
	called.Price = catalog.RaisePrice(own.Price, v.Facts.Price)
	switch {
	case own.Budget == nil:
		called.Budget = v.Facts.Budget
	case v.Facts.Budget != nil:
		c.faults = append(c.faults, "it has a budget of its own, and so has the capability; only one of them can count, so remove one")
	}
	called.Contract.Risk = catalog.ProvidedRisk(&called)
	shown := called
	shown.Definition, shown.Digest, shown.Structured = want.Definition, digest, schemasOf(promised).result() != ""
	taker := schemasOf(promised)
	shown.Provides = &switchboard.Provision{Capability: v.Name(), Name: want.Name, Own: &called, Params: func(params []byte) ([]byte, error) {
		if where, why := taker.findMisfit(argumentsIn(params)); why != nil {
			return nil, refuseArguments(why.Error(), where)
		}
		moved, err := m.moveParams(params)
		if err != nil {
			return nil, refuseArguments("the server's own tool does not take them: "+err.Error(), "")
		}
		return moved, nil
	}}
	c.provided = &shown
	return c
}

// underContract returns the facts of a tool under the contract. The contract is the operator's word. What the tool's own facts
// say still counts where it restricts.
func underContract(own *switchboard.Contract, r *capability.Registry, v *capability.ContractVersion) switchboard.Contract {
	c := *own
	state := func(holds bool) switchboard.Fact {
		return switchboard.Fact{Holds: holds, Source: switchboard.FromOverlay, Trusted: true}
	}
	// free sets a fact that makes a tool more free, unless its own facts deny it.
	free := func(f *switchboard.Fact, said *bool) {
		if said != nil && (!f.Stated() || f.Holds) {
			*f = state(*said)
		}
	}
	if slices.Contains(v.Constraints, switchboard.ReadOnly) {
		reads := true
		free(&c.ReadOnly, &reads)
	}
	free(&c.Idempotent, v.Facts.Idempotent)
	free(&c.Deterministic, v.Facts.Deterministic)
	if v.Facts.Stateful != nil && !c.Stateful.Holds {
		c.Stateful = state(*v.Facts.Stateful)
	}
	return r.Restrict(c, v)
}

// Faults returns why servers do not provide what the rows say, sorted. The slice is shared; do not modify it.
func (p *ProviderSet) Faults() []ProviderFault { return p.faults }

// Registry returns the registry; an empty one if p is nil.
func (p *ProviderSet) Registry() *capability.Registry {
	if p == nil || p.registry == nil {
		return &capability.Registry{}
	}
	return p.registry
}

// Tools returns the tools by the id and version of the capability that they provide; none if p is nil. Do not modify the map.
func (p *ProviderSet) Tools() map[string][]*switchboard.Tool {
	if p == nil {
		return nil
	}
	return p.tools
}

// Version returns the version that the reference means for the tenant: one that some server provides. It returns nil if there is
// none.
func (p *ProviderSet) Version(ref capability.Ref) *capability.ContractVersion {
	if p == nil || p.registry == nil {
		return nil
	}
	return p.registry.Find(ref, func(v *capability.ContractVersion) bool { return len(p.tools[v.Name()]) > 0 })
}

// Provided returns the tools that provide the version that the text of a reference means, sorted by server and name. The slice
// is shared; do not modify it.
func (p *ProviderSet) Provided(ref string) []*switchboard.Tool {
	r, err := capability.ParseRef(ref)
	if err != nil {
		return nil // the configuration was checked, so that this is a requirement of a client
	}
	v := p.Version(r)
	if v == nil {
		return nil
	}
	return p.tools[v.Name()]
}

// Called returns the server's own tool that provides a tool of the version, ID@VERSION; nil if it provides none.
func (p *ProviderSet) Called(version string, id switchboard.ToolID) *switchboard.Tool {
	if p == nil {
		return nil
	}
	for _, t := range p.tools[version] {
		if t.ID == id {
			return t.Called()
		}
	}
	return nil
}

// Digest covers the registry and the provided tools, with their definitions and contracts. It is "" for an empty registry.
func (p *ProviderSet) Digest() switchboard.Digest {
	if p == nil || p.registry == nil || p.registry.Digest() == "" {
		return ""
	}
	type provided struct {
		Version    string
		Tool, Key  switchboard.ToolID
		Own        switchboard.Digest
		Definition switchboard.Digest
		Contract   switchboard.Contract
		Price      *switchboard.Price
	}
	var all []provided
	for _, name := range slices.Sorted(maps.Keys(p.tools)) {
		for _, t := range p.tools[name] {
			all = append(all, provided{name, t.ID, t.Key(), t.Provides.Own.Digest, t.Digest, t.Contract, t.Price})
		}
	}
	return canonical.SumOf([]any{p.registry.Digest(), all})
}
