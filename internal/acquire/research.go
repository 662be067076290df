package acquire

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/npm"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/registry"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// CatalogResearcherOptions are the parts that a CatalogResearcher needs.
type CatalogResearcherOptions struct {
	// State returns the configuration in force, and the tools that servers offer, with the labels that they have for the tenant.
	State func(tenant switchboard.TenantID) (*config.Config, []*switchboard.Tool)

	// Need returns the requirement that the capability of a dossier is.
	Need func(tenant switchboard.TenantID, capability string) (*switchboard.Requirement, error)

	// Read reads a registry; see registry.Read. Facts asks npm what a package says of itself; see npm.Facts.
	Read  func(ctx context.Context, row switchboard.ServerRegistry) (*registry.Listing, error)
	Facts func(ctx context.Context, spec packagelock.Spec) (npm.PackageFacts, error)
}

// A CatalogResearcher looks at the tools that are here, and at the registries of the configuration. It is safe for concurrent use.
type CatalogResearcher struct{ o CatalogResearcherOptions }

// NewCatalogResearcher returns a CatalogResearcher.
func NewCatalogResearcher(o CatalogResearcherOptions) *CatalogResearcher {
	return &CatalogResearcher{o}
}

// Here implements Researcher.
func (r *CatalogResearcher) Here(_ context.Context, tenant switchboard.TenantID, capability string) ([]HereTool, error) {
	need, err := r.o.Need(tenant, capability)
	if err != nil {
		return nil, err
	}
	cfg, tools := r.o.State(tenant)
	t := cfg.Tenants[tenant]
	if t == nil {
		return nil, fmt.Errorf("there is no tenant %s", tenant)
	}
	found := []HereTool{}
	unlabelled, outOfUse := map[switchboard.ServerID][]annotate.DefinedTool{}, map[switchboard.ToolID]string{}
	for _, tool := range tools {
		bound := slices.Contains(t.Servers, tool.ID.Server)
		if len(tool.Capabilities) == 0 {
			if bound && tool.Provides == nil {
				unlabelled[tool.ID.Server] = append(unlabelled[tool.ID.Server], annotate.DefinedTool{Name: tool.ID.Name, Definition: tool.Definition, Digest: tool.Digest})
				outOfUse[tool.ID] = standingOf(tool)
			}
			continue
		}
		if why := whyNot(tool, need, bound, cfg.Taxonomy); why != "" {
			f := HereTool{Tool: tool.ID, Why: why}
			if !bound {
				f.Tool = switchboard.ToolID{} // neither the tenant's officers nor its agents know of it
			}
			if !slices.Contains(found, f) {
				found = append(found, f)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(unlabelled)) {
		for _, s := range annotate.Suggest(annotate.ToolServer{Name: string(id), Tools: unlabelled[id]}, cfg.Taxonomy) {
			if s.Capability != nil && gives(s.Capability, need, cfg.Taxonomy) {
				f := HereTool{Tool: switchboard.ToolID{Server: id, Name: s.Tool}, Why: "it has no label", Confidence: s.Confidence, Label: true}
				i := slices.IndexFunc(cfg.Servers, func(row switchboard.Server) bool { return row.ID == id })
				switch why := outOfUse[f.Tool]; {
				case why != "":
					f.Why, f.Label = f.Why+", and "+why, false
				case i < 0 || cfg.Servers[i].Transport != switchboard.TransportStdio:
					f.Why, f.Label = f.Why+", and its server is no program that could get walls; a person can label it: switchboard annotate "+string(id)+" --review", false
				}
				found = append(found, f)
			}
		}
	}
	if len(found) > maxShown {
		found = found[:maxShown]
	}
	return found, nil
}

// whyNot returns why a labelled tool that gives the capability is not taken; "" if it does not give it.
func whyNot(tool *switchboard.Tool, need *switchboard.Requirement, bound bool, tax *switchboard.Taxonomy) string {
	i := slices.IndexFunc(tool.Capabilities, func(c switchboard.Capability) bool {
		return gives(&annotate.Label{Verb: c.Verb, Resource: c.Resource, Constraints: c.Constraints}, need, tax)
	})
	if i < 0 {
		return ""
	}
	if !bound {
		return "it is outside of the tenant's bound; an operator can add a server to the tenant's row"
	}
	return cmp.Or(standingOf(tool), "it gives the capability, and the task's policy or ranking keeps it out")
}

// standingOf says which state of a tool keeps it out of use; "" if none does.
func standingOf(tool *switchboard.Tool) string {
	if a := tool.Admission; a != nil && a.State != switchboard.LifeActive {
		return "it is " + string(a.State) + ": " + a.Why
	}
	return ""
}

// Registries implements Researcher.
func (r *CatalogResearcher) Registries(ctx context.Context, tenant switchboard.TenantID, capability, only string) (found []Prospect, notices []string, err error) {
	need, err := r.o.Need(tenant, capability)
	if err != nil {
		return nil, nil, err
	}
	cfg, _ := r.o.State(tenant)
	var entries []registry.Entry
	for _, row := range cfg.ServerRegistries {
		listing, err := r.o.Read(ctx, row)
		if err != nil {
			notices = append(notices, shorten(err.Error()))
			continue
		}
		if listing.Cut != "" {
			notices = append(notices, "registry "+row.ID+": "+listing.Cut)
		}
		if listing.RefusedCount > 0 {
			notices = append(notices, fmt.Sprintf("registry %s: entries that were refused: %d; the first, %s: %s", row.ID, listing.RefusedCount, listing.Refused[0].Where, listing.Refused[0].Reason))
		}
		entries = append(entries, listing.Entries...)
	}
	configured := configuredNames(cfg)
	remarks := append(registry.CheckNames(entries, configured), differingEntries(entries)...)
	for i := range entries {
		if c, ok := r.rate(&entries[i], need, cfg.Taxonomy); ok || only != "" && c.Name == only {
			addRemarks(&c, &entries[i], remarks, configured)
			found = append(found, c)
		}
	}
	slices.SortStableFunc(found, func(a, b Prospect) int {
		return cmp.Or(cmp.Compare(named(b.Name == only), named(a.Name == only)), b.Confidence-a.Confidence, strings.Compare(a.Name, b.Name))
	})
	asked := 0
	for i := range found {
		switch c := &found[i]; {
		case c.Why != "":
		case asked == maxAsked:
			c.Why = fmt.Sprintf("nobody has asked npm whether its package belongs to it: npm is asked about %d servers at most; an officer can name this one", maxAsked)
		default:
			asked++
			r.checkPackage(ctx, c)
		}
	}
	clearUp(found)
	return found, notices, nil
}

// clearUp finds the original of two candidates with names that look alike. Its package says that it belongs to it, and the package of the other one says that it belongs to another server. A
// package that says nothing is no such evidence, and neither is one that npm could not be asked about: an imitation would win.
func clearUp(found []Prospect) {
	for i := range found {
		c := &found[i]
		if c.Integrity == "" || c.seen.mustName || len(c.seen.alike) == 0 {
			continue
		}
		if !slices.ContainsFunc(c.seen.alike, func(other string) bool { return !isDisowned(found, other) }) {
			c.Unclear = ""
		}
	}
}

// differingEntries returns remarks on entries with one name and different packages. All of these packages but one must say that they belong to another server.
func differingEntries(entries []registry.Entry) (remarks []registry.Remark) {
	packages := map[string][]string{}
	for i := range entries {
		if e := &entries[i]; e.Package.Name != "" && !slices.Contains(packages[e.Name], e.Package.Name) {
			packages[e.Name] = append(packages[e.Name], e.Package.Name)
		}
	}
	for i := range entries {
		e := &entries[i]
		for _, other := range packages[e.Name] {
			if other != e.Package.Name {
				remarks = append(remarks, registry.Remark{
					Registry: e.Registry, Entry: e.Name, Version: e.Version, Rule: registry.RuleAlike, Other: other, Text: "elsewhere in the registries, this name stands for the package " + other,
				})
			}
		}
	}
	return remarks
}

// isDisowned reports whether there are candidates with the name, and the package of each says that it belongs to another server.
func isDisowned(found []Prospect, name string) bool {
	is := false
	for i := range found {
		if c := &found[i]; c.Name == name || c.Package == name {
			if !c.seen.disowned {
				return false
			}
			is = true
		}
	}
	return is
}

func named(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// maxAsked is how many candidates of registries npm is asked about.
const maxAsked = 5

// configuredNames returns the names that a new server must not look like.
func configuredNames(cfg *config.Config) (names []string) {
	for i := range cfg.Servers {
		names = append(names, string(cfg.Servers[i].ID))
		if pkg := cfg.Servers[i].Package.Name; pkg != "" {
			names = append(names, pkg)
		}
	}
	return names
}

// The worth of words is a share of servers in hundredths: of those that name the verb and the resource of a capability, and of those that name its resource, so many have a tool with it. It
// was measured on 894 real servers; TestTheWordsOfServersAreWorthWhatIsSaid does that again. So words alone pass no gate. They say which programs are worth a look.
const (
	worthOfBoth     = 28
	worthOfResource = 11
)

// rate says what the words of a server of a registry are worth for the capability. ok is false if they say nothing of it.
func (r *CatalogResearcher) rate(e *registry.Entry, need *switchboard.Requirement, tax *switchboard.Taxonomy) (c Prospect, ok bool) {
	worth := 0
	for i, d := range readings(e) {
		for _, s := range annotate.Suggest(annotate.ToolServer{Name: d.Name, Tools: []annotate.DefinedTool{d}}, tax) {
			if s.Capability == nil {
				continue
			}
			label := annotate.Label{Verb: s.Capability.Verb, Resource: s.Capability.Resource, Constraints: need.Constraints} // only the definitions of its tools can show constraints
			if gives(&label, need, tax) {
				worth = max(worth, worthOfBoth)
			}
			if label.Verb = need.Verb; i == 0 && gives(&label, need, tax) {
				worth = max(worth, worthOfResource)
			}
		}
	}
	c = Prospect{
		Name: e.Name, Registry: e.Registry, Words: wordsOf(e), Package: e.Package.Name, Version: e.Package.Version, Secrets: e.Secrets, Hosts: e.Hosts,
		Confidence: worth, Why: e.Obstacle,
	}
	if len(e.Secrets) > 0 && c.Why == "" {
		c.Why = "it needs " + strings.Join(e.Secrets, ", ") + ", and Switchboard proposes no server that gets secrets; an operator can add it: switchboard server add"
	}
	return c, worth > 0
}

// wordsOf returns the title and the description of an entry.
func wordsOf(e *registry.Entry) string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Title+". "+e.Description, ". "), ". ")
}

// decoration is what texts of registries have that says nothing: markup and addresses.
var decoration = regexp.MustCompile(`<[^>]*>|\]\([^)]*\)|https?://\S+`)

// readings returns what a server of a registry says of itself as the definitions of tools, the first one as it is: its words can begin with what it does ("Search the web"), or name it ("Web
// search for agents").
func readings(e *registry.Entry) (all []annotate.DefinedTool) {
	words := decoration.ReplaceAllString(wordsOf(e), " ")
	names := []string{"tool"}
	for clause := range strings.FieldsFuncSeq(words, func(r rune) bool { return strings.ContainsRune(".:;,()", r) }) {
		fields := strings.Fields(strings.ToLower(clause))
		names = append(names, strings.Join(fields[:min(len(fields), 2)], "_"))
		if len(names) == maxReadings {
			break
		}
	}
	for _, name := range names {
		definition := wire.AppendString([]byte(`{"name":`), name)
		definition = append(wire.AppendString(append(definition, `,"description":`...), words), `,"inputSchema":{"type":"object"}}`...)
		all = append(all, annotate.DefinedTool{Name: name, Definition: definition})
	}
	return all
}

// maxReadings bounds the readings of one entry.
const maxReadings = 6

// addRemarks adds what people should know about an entry. One that imitates a configured server is not taken. One that seems to imitate another entry, or that nothing tells apart from
// it, is taken only if an officer names it.
func addRemarks(c *Prospect, e *registry.Entry, remarks []registry.Remark, configured []string) {
	for _, m := range append(slices.Clone(e.Remarks), remarks...) {
		if m.Registry != e.Registry || m.Entry != e.Name || m.Version != e.Version {
			continue
		}
		c.Findings = append(c.Findings, m.Text)
		switch m.Rule {
		case registry.RuleImitates:
			if slices.Contains(configured, m.Other) {
				c.Why = cmp.Or(c.Why, m.Text)
			}
			c.Unclear, c.seen.mustName = cmp.Or(c.Unclear, m.Text), true // who owns a scope is a hint alone, and whoever imitates can have one
		case registry.RuleAlike:
			c.Unclear = cmp.Or(c.Unclear, m.Text)
			c.seen.alike = append(c.seen.alike, m.Other)
		case registry.RuleUnchecked:
			c.Unclear, c.seen.mustName = cmp.Or(c.Unclear, m.Text), true
		}
	}
}

// checkPackage asks npm what the package says of itself.
func (r *CatalogResearcher) checkPackage(ctx context.Context, c *Prospect) {
	facts, err := r.o.Facts(ctx, packagelock.Spec{Name: c.Package, Version: c.Version})
	if err == nil {
		err = registry.OwnsPackage(registry.Entry{Name: c.Name, Package: packagelock.Spec{Name: c.Package, Version: c.Version}}, facts.McpName)
		c.seen.disowned = err != nil && facts.McpName != ""
	}
	if err != nil {
		c.Why = shorten(err.Error())
		return
	}
	c.Integrity = facts.Integrity
	if facts.Deprecated != "" {
		c.Findings = append(c.Findings, "its package is deprecated: "+shorten(facts.Deprecated))
	}
}
