package config

import (
	"fmt"
	"path"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// CapabilitiesFolder is the name of the operator's folder with the registry of capabilities. Each of its files describes one
// version, except those below and the lock.
const CapabilitiesFolder = "capabilities"

// BoundariesFile is the name of the file of boundaries in CapabilitiesFolder.
const BoundariesFile = "boundaries.yaml"

// BoundariesPath is the path of the file of boundaries in the folder of the configuration, with slashes.
const BoundariesPath = CapabilitiesFolder + "/" + BoundariesFile

const (
	atomsFile   = "atoms.yaml"
	partiesFile = "parties.yaml"
)

// registryReader is the state of reading the folder capabilities.
type registryReader struct {
	*loader
	atoms    map[string]*capability.Atom
	versions []*capability.ContractVersion
	places   map[string]document.Value // where each version was described first, by name
	rows     []capability.Boundary
	parties  []capability.Party
	locked   []capability.Locked

	// Some atoms or versions could not be read. Then the existing ids are unknown, and references are not checked.
	atomsUnknown, versionsUnknown bool

	refs       []placedRef // that requires: names
	exceptions []document.TextValue
}

// A placedRef is a reference to a capability, with its place.
type placedRef struct {
	document.Value
	ref capability.Ref
	by  *capability.ContractVersion // that requires it
}

func newRegistryReader(l *loader) *registryReader {
	return &registryReader{loader: l, atoms: map[string]*capability.Atom{}, places: map[string]document.Value{}}
}

// read reads the operator's capabilities. A fault in them refuses the whole configuration, so that the state in force keeps
// serving.
func (r *registryReader) read() {
	r.readFolder()
	lock := path.Join(CapabilitiesFolder, capability.LockFile)
	if r.exists(lock) {
		r.readLock(lock)
	}
	for _, f := range capability.CheckLock(r.versions, r.locked, r.displayPath(lock), !r.versionsUnknown) {
		r.sink.Add(f)
	}
	r.capabilitiesUnknown = r.versionsUnknown
	r.cfg.Registry = r.build()
}

// readFolder reads all files but the lock.
func (r *registryReader) readFolder() {
	names, _ := r.listFolder(CapabilitiesFolder)
	if name := path.Join(CapabilitiesFolder, atomsFile); slices.Contains(names, atomsFile) {
		r.readAtomsFile(name)
	}
	for _, n := range names {
		name := path.Join(CapabilitiesFolder, n)
		switch {
		case n == atomsFile, n == capability.LockFile && !r.isFolder(name):
		case path.Ext(n) != ".yaml" || r.isFolder(name):
			r.fault(name, "only files whose name ends in .yaml, and %s, are read here; rename or remove this one", capability.LockFile)
		case n == BoundariesFile:
			if doc, ok := r.readDocument(name); ok {
				r.readBoundaries(doc)
			}
		case n == partiesFile:
			if doc, ok := r.readDocument(name); ok {
				r.readParties(doc)
			}
		default:
			r.readVersionFile(name)
		}
	}
	r.checkReferences()
}

// ReadRegistry reads only the versions in the folder capabilities beside file, for the command that publishes them. Whether they
// are published is not looked at, and neither is anything outside of the folder but the taxonomy. The error is Faults.
func ReadRegistry(file string, opts Options) (*capability.Registry, error) {
	l := newLoader(file, opts)
	defer l.close()
	l.readTaxonomyFile()
	r := newRegistryReader(l)
	r.atomsUnknown = true
	names, _ := r.listFolder(CapabilitiesFolder)
	for _, n := range names {
		if path.Ext(n) == ".yaml" && !slices.Contains([]string{atomsFile, BoundariesFile, partiesFile}, n) {
			r.readVersionFile(path.Join(CapabilitiesFolder, n))
		}
	}
	r.checkReferences()
	if err := l.sink.Err(file); err != nil {
		return nil, err
	}
	return capability.New(r.versions, nil, nil, nil)
}

// ReadBoundaries reads the text of a proposed file of boundaries. It checks the rows as a reload does, except for what depends on
// other files, such as whether an exception exists. The error is Faults.
func ReadBoundaries(name string, text []byte) ([]capability.Boundary, error) {
	l := &loader{configFolder: &configFolder{sink: &document.Sink{}}, vocabulary: &vocabulary{}}
	if len(text) > document.MaxFileBytes {
		return nil, Faults{{File: name, Text: fmt.Sprintf("the file has %d bytes; at most %d are allowed", len(text), document.MaxFileBytes)}}
	}
	r := newRegistryReader(l)
	if doc, ok := document.ReadYAML(name, text, l.sink); ok {
		r.readBoundaries(doc)
	}
	return r.rows, l.sink.Err(name)
}

func (r *registryReader) readLock(name string) {
	text, err := r.readFile(name, document.MaxFileBytes)
	if err != nil {
		r.fault(name, "this cannot be read: %s", document.ErrorText(err))
		return
	}
	var faults switchboard.Faults
	r.locked, faults = capability.ReadLock(r.displayPath(name), text)
	for _, f := range faults {
		r.sink.Add(f)
	}
}

// build returns the registry. It is never nil.
func (r *registryReader) build() *capability.Registry {
	registry, err := capability.New(r.versions, r.atoms, r.rows, r.parties)
	if err != nil {
		r.fault(CapabilitiesFolder, "%v", err)
		registry, _ = capability.New(nil, nil, nil, nil) // an empty one has no fault
	}
	return registry
}

// check reports what is wrong with the rows together. The operator's budgets were read before.
func (r *registryReader) check() {
	faults, warnings := r.cfg.Registry.Check(r.isBudgeted)
	for _, f := range faults {
		r.sink.Add(f)
	}
	for _, w := range warnings {
		r.sink.Warn(w)
	}
}

// checkProviders reports rows that do not count because another row is for the same version of the same server, and warns of versions that no
// server provides. The operator's overlays were read before.
func (r *registryReader) checkProviders() {
	for _, f := range r.cfg.Registry.CheckProviders(r.cfg.Providers) {
		r.sink.Add(f)
	}
	for _, v := range r.cfg.Registry.Unprovided(r.cfg.Providers) {
		r.sink.Warn(v.Warning("no server provides %s, so that no task gets it; add it to provides in an overlay, or set status: testing", v.Name()))
	}
}

// isBudgeted reports whether a budget of the operator for all tenants counts the uses of a version, whichever server provides it.
func (r *registryReader) isBudgeted(v *capability.ContractVersion) bool {
	return slices.ContainsFunc(r.budgets, func(b *switchboard.Budget) bool {
		m := b.Match
		return len(m.Servers)+len(m.Tools)+len(m.Classes) == 0 &&
			(len(m.Capabilities) == 0 || slices.Contains(m.Capabilities, v.ID)) &&
			(len(m.Verbs) == 0 || slices.Contains(m.Verbs, v.Verb)) &&
			(len(m.Resources) == 0 || slices.ContainsFunc(append(r.taxonomy.Ancestors(v.Resource), v.Resource), func(x switchboard.Resource) bool { return slices.Contains(m.Resources, x) })) &&
			(len(m.CostClasses) == 0 || slices.Contains(m.CostClasses, v.CostClass()))
	})
}

// checkReferences reports the ids of capabilities that nothing defines.
func (r *registryReader) checkReferences() {
	if r.versionsUnknown {
		return
	}
	byID := map[string][]*capability.ContractVersion{}
	var known []string
	for _, v := range r.versions {
		if byID[v.ID] == nil {
			known = append(known, v.ID)
		}
		byID[v.ID] = append(byID[v.ID], v)
	}
	slices.Sort(known)
	for _, p := range r.refs {
		p.Sink = r.sink // that of its file has been read out
		all := byID[p.ref.ID]
		inRange := func(v *capability.ContractVersion) bool { return p.ref.Admits(v.Number) }
		bindable := func(v *capability.ContractVersion) bool { return inRange(v) && v.Bindable() }
		switch {
		case all == nil:
			p.Fault("no file here describes the capability %s%s", p.Shown(), document.Suggestion(p.ref.ID, "capabilities", known))
		case !slices.ContainsFunc(all, inRange):
			var numbers []string
			for _, v := range all {
				numbers = append(numbers, v.Number.String())
			}
			p.Fault("no version of %s is in the range %s; %s", p.ref.ID, p.ref.Range, document.ListKnown("versions", numbers))
		case p.by.Bindable() && !slices.ContainsFunc(all, bindable):
			p.Fault("%s is %s and requires %s, and no version of it in this range is active; remove it, or set the status of one", p.by.Name(), p.by.Status, p.Shown())
		}
	}
	for _, t := range r.exceptions {
		if byID[t.String] == nil {
			t.Fault("no file here describes the capability %s%s", t.Shown(), document.Suggestion(t.String, "capabilities", known))
		}
	}
}

// checkAtom reports an id that is of no atom. It returns the id.
func (r *registryReader) checkAtom(v document.Value, s string) string {
	if r.atoms[s] == nil && !r.atomsUnknown {
		known := make([]string, 0, len(r.atoms))
		for id := range r.atoms {
			known = append(known, id)
		}
		slices.Sort(known)
		v.Fault("%s is no atom of %s%s", v.Shown(), atomsFile, document.Suggestion(s, "atoms", known))
	}
	return s
}

// A grants is what the operator's row of a tenant grants for capabilities, and for tools on trial.
type grants struct {
	permissions, models []string // sorted
	trial               []string // as in switchboard.Tenant
	flows               switchboard.Flows
	permissionTexts     []document.TextValue // where the permissions stand
}

// checkGrants warns of permissions that the operator gives and no capability needs, since they are probably mistyped.
func (r *registryReader) checkGrants() {
	known := r.cfg.Registry.Permissions()
	for _, b := range r.bounds {
		for _, t := range b.permissionTexts {
			if !slices.Contains(known, t.String) {
				t.Warn("no capability needs the permission %s%s", t.Shown(), document.Suggestion(t.String, "permissions", known))
			}
		}
	}
}
