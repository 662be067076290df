package replay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/policysource"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Proposal replaces a part of the basis of decisions. Everything else stays as it was recorded.
type Proposal struct {
	config *config.Config // a whole configuration

	// Policy folders that replace the recorded ones: the operator's folder (nil keeps the recorded
	// one), and folders of tenants.
	operator       []switchboard.PolicyFile
	tenantPolicies map[switchboard.TenantID][]switchboard.PolicyFile

	// boundaries replace the recorded rows. nil keeps these.
	boundaries *ProposedBoundaries

	// files are added to layers, or replace the files with the same paths there.
	files []ProposedFile
}

// A ProposedFile is one policy file of a Proposal.
type ProposedFile struct {
	Owner   switchboard.TenantID // of the layer; "" means the operator
	File    switchboard.PolicyFile
	Removed bool // the layer has no file with this path any more
}

// A ProposedLayer is a layer that a Proposal replaces whole.
type ProposedLayer struct {
	Owner switchboard.TenantID // "" means the operator
	Files []switchboard.PolicyFile
}

// ProposedBoundaries are the rows of a proposed boundaries.yaml.
type ProposedBoundaries struct {
	Path string // of the file
	Text []byte // of the file; nil removes it
	Rows []capability.Boundary
}

// ProposeConfig returns the proposal of a whole configuration, which was checked.
func ProposeConfig(c *config.Config) *Proposal { return &Proposal{config: c} }

// ProposePolicies returns the proposal of policies. The error is switchboard.Faults if a layer does not compile.
func ProposePolicies(layers []ProposedLayer, files []ProposedFile) (*Proposal, error) {
	p := &Proposal{tenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{}, files: files}
	for _, l := range layers {
		if l.Files == nil {
			l.Files = []switchboard.PolicyFile{}
		}
		if l.Owner == "" {
			p.operator = l.Files
		} else {
			p.tenantPolicies[l.Owner] = l.Files
		}
	}
	return p, p.checkPolicies()
}

// SetBoundaries adds rows to a proposal of policies. They were checked; nil adds none.
func (p *Proposal) SetBoundaries(b *ProposedBoundaries) { p.boundaries = b }

// Boundaries returns the rows that the proposal has for the place of the recorded ones, or nil.
func (p *Proposal) Boundaries() *ProposedBoundaries { return p.boundaries }

// Policies returns the parts of a proposal of policies. whole says that it proposes a whole configuration in their place.
func (p *Proposal) Policies() (layers []ProposedLayer, files []ProposedFile, whole bool) {
	if p.operator != nil {
		layers = append(layers, ProposedLayer{Files: p.operator})
	}
	for _, id := range slices.Sorted(maps.Keys(p.tenantPolicies)) {
		layers = append(layers, ProposedLayer{id, p.tenantPolicies[id]})
	}
	return layers, p.files, p.config != nil
}

// ReadProposal reads the proposal at the path:
//
//   - a folder with a switchboard.yaml is a whole configuration, which load reads and checks;
//   - a folder with policies/, tenants/<id>/policies/ or capabilities/boundaries.yaml has those
//     policies and those boundaries; what else capabilities/ holds is not looked at;
//   - a file boundaries.yaml, or a folder with one, has boundaries;
//   - any other folder is a folder of policies, and a file belongs to one. If its
//     path is in tenants/<id>/policies, it is the layer of that tenant. Otherwise
//     its package says which layer it is, the operator's or that of tenant.
//
// The error is switchboard.Faults if the proposal can be read and has faults.
func ReadProposal(ctx context.Context, path string, tenant switchboard.TenantID, load func(ctx context.Context, file string) (*config.Config, error)) (*Proposal, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	p := &Proposal{tenantPolicies: map[switchboard.TenantID][]switchboard.PolicyFile{}}
	if !info.IsDir() {
		return p, p.readFile(path, tenant)
	}
	if file := filepath.Join(path, "switchboard.yaml"); exists(file) {
		p.config, err = load(ctx, file)
		return p, err
	}
	if err := p.readFolders(path); err != nil {
		return nil, err
	}
	if p.operator == nil && len(p.tenantPolicies) == 0 && p.boundaries == nil {
		if err := p.readLoose(path, tenant); err != nil {
			return nil, err
		}
	}
	return p, p.checkPolicies()
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readFolders reads policies/ and tenants/<id>/policies/ of a folder.
func (p *Proposal) readFolders(path string) (err error) {
	if folder := filepath.Join(path, "policies"); exists(folder) {
		if p.operator, err = config.Policies(folder); err != nil {
			return err
		}
	}
	for _, folder := range []string{path, filepath.Join(path, config.CapabilitiesFolder)} {
		if file := filepath.Join(folder, config.BoundariesFile); exists(file) {
			if err := p.readBoundaries(file); err != nil {
				return err
			}
		}
	}
	tenants, err := os.ReadDir(filepath.Join(path, "tenants"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, t := range tenants {
		home := filepath.Join(path, "tenants", t.Name())
		if exists(filepath.Join(home, "tenant.yaml")) {
			return fmt.Errorf("%s: a tenant.yaml can only be checked together with the servers; copy the whole configuration, with its switchboard.yaml, and change it there", home)
		}
		if folder := filepath.Join(home, "policies"); exists(folder) {
			if p.tenantPolicies[switchboard.TenantID(t.Name())], err = config.Policies(folder); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBoundaries reads a file of boundaries.
func (p *Proposal) readBoundaries(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	rows, err := config.ReadBoundaries(file, text)
	p.boundaries = &ProposedBoundaries{file, text, rows}
	return err
}

// readLoose reads a folder of policies.
func (p *Proposal) readLoose(path string, tenant switchboard.TenantID) error {
	files, err := config.Policies(path)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(files, func(f switchboard.PolicyFile) bool { return filepath.Ext(f.Path) == ".rego" && !policy.IsTest(f.Path) })
	if at < 0 {
		return fmt.Errorf("%s: it has neither a switchboard.yaml, nor policies/, nor tenants/<id>/policies/, nor capabilities/boundaries.yaml, nor policies (.rego)", path)
	}
	of, err := policysource.LayerOwner(files[at], path, tenant)
	if err != nil {
		return err
	}
	if of == "" {
		p.operator = files
	} else {
		p.tenantPolicies[of] = files
	}
	return nil
}

// readFile reads one file of a layer, or of boundaries.
func (p *Proposal) readFile(path string, tenant switchboard.TenantID) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if filepath.Base(path) == config.BoundariesFile {
		return p.readBoundaries(path)
	}
	own := ProposedFile{File: switchboard.PolicyFile{Name: path, Path: filepath.Base(path), Data: text}}
	if before, rel, ok := policysource.CutLast(policysource.SlashPath(path), "/policies/"); ok {
		own.File.Path, path = rel, before+"/policies"
	} else if filepath.Ext(path) != ".rego" {
		return fmt.Errorf("%s: a data file belongs in a folder of policies; put it there, or give the folder", path)
	}
	if filepath.Ext(own.File.Path) == ".rego" || policysource.TenantOfFolder(path) != "" {
		own.Owner, err = policysource.LayerOwner(own.File, path, tenant)
	}
	p.files = []ProposedFile{own}
	return err
}

// checkPolicies compiles the layers that the proposal replaces.
func (p *Proposal) checkPolicies() error {
	var all switchboard.Faults
	compile := func(kind policy.LayerKind, files []switchboard.PolicyFile) error {
		_, err := policy.Compile(kind, files)
		found, ok := errors.AsType[switchboard.Faults](err)
		if !ok {
			return err
		}
		all = append(all, found...)
		return nil
	}
	if p.operator != nil {
		if err := compile(policy.Operator, p.operator); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.tenantPolicies)) {
		if err := compile(policy.Tenant, p.tenantPolicies[id]); err != nil {
			return err
		}
	}
	if len(all) > 0 {
		return all
	}
	return nil
}

// apply returns the basis that the proposal makes of was. It is nil if the proposal removes the
// tenant.
func (p *Proposal) apply(was *archivedBasis) (*archivedBasis, error) {
	now := *was
	var rows []capability.Boundary
	replace := false // the recorded rows
	id := was.tenant.ID
	if c := p.config; c != nil {
		t, ok := c.Tenants[id]
		if !ok {
			return nil, nil
		}
		if c.Registry != nil {
			rows, replace = c.Registry.Boundaries, true
		}
		now.tenant, now.taxonomy = t, c.Taxonomy
		now.tools = p.toolsFor(was.tools, t)
		if now.operator = c.Policies; now.operator == nil {
			now.operator = policysource.Shipped()
		}
		now.own = c.TenantPolicies[id]
	}
	if p.boundaries != nil {
		rows, replace = p.boundaries.Rows, true
	}
	if replace {
		registry, err := was.providers.Registry().WithBoundaries(rows)
		if err != nil {
			return nil, err
		}
		now.providers = contract.ProvidersOf(registry, was.providers.Tools())
	}
	if p.operator != nil {
		now.operator = p.operator
	}
	if own, ok := p.tenantPolicies[id]; ok {
		now.own = own
	}
	for _, f := range p.files {
		switch f.Owner {
		case "":
			now.operator = withFile(now.operator, f)
		case id:
			now.own = withFile(now.own, f)
		}
	}
	now.operator = withoutTests(now.operator)
	if now.own != nil {
		now.own = withoutTests(now.own)
	}
	return &now, nil
}

// withFile returns the files with f in the place of the file with the same path, if there is one.
func withFile(files []switchboard.PolicyFile, f ProposedFile) []switchboard.PolicyFile {
	rest := slices.DeleteFunc(slices.Clone(files), func(o switchboard.PolicyFile) bool { return o.Path == f.File.Path })
	if f.Removed {
		return rest
	}
	return append(rest, f.File)
}

// toolsFor returns the tools that the tenant may use under the proposal, with the classes and trust
// that it gives to their servers. What servers and overlays declare about the tools stays as
// recorded.
func (p *Proposal) toolsFor(was []*switchboard.Tool, t *switchboard.Tenant) (now []*switchboard.Tool) {
	for _, s := range p.config.Servers {
		if !slices.Contains(t.Servers, s.ID) {
			continue
		}
		for _, tool := range was {
			if tool.ID.Server != s.ID {
				continue
			}
			own := *tool
			own.Class = s.Class
			if own.Trust = s.Trust; own.Trust == "" {
				own.Trust = switchboard.TrustDeclared
			}
			now = append(now, &own)
		}
	}
	return now
}

// resolver returns the state that resolves principals and tasks under the proposed configuration.
func (p *Proposal) resolver(t *bind.Tenant) *bind.State {
	keys := make([]identity.Key, len(p.config.Keys))
	for i, k := range p.config.Keys {
		keys[i] = identity.Key(k)
	}
	return &bind.State{Config: p.config, Ring: identity.AssumePersons(identity.New(keys, t.Tenant, len(keys) == 0, nil), t.TaskIDs()), Tenants: map[switchboard.TenantID]*bind.Tenant{t.ID: t}}
}
