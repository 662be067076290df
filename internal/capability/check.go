package capability

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// faultAt returns a fault at a position, file:line:column.
func faultAt(position, format string, args ...any) switchboard.Fault {
	f := switchboard.Fault{File: position, Text: fmt.Sprintf(format, args...)}
	for _, to := range []*int{&f.Column, &f.Line} {
		at := strings.LastIndexByte(f.File, ':')
		if at < 0 {
			break
		}
		n, err := strconv.Atoi(f.File[at+1:])
		if err != nil {
			break
		}
		f.File, *to = f.File[:at], n
	}
	return f
}

func (v *ContractVersion) fault(format string, args ...any) switchboard.Fault {
	return faultAt(v.Position, format, args...)
}

// Warning returns a warning at the place of the version.
func (v *ContractVersion) Warning(format string, args ...any) switchboard.Fault {
	return v.fault(format, args...)
}

func (b *Boundary) fault(format string, args ...any) switchboard.Fault {
	return switchboard.Fault{File: b.File, Line: b.Line, Column: 1, Text: fmt.Sprintf("boundary %q: ", b.ID) + fmt.Sprintf(format, args...)}
}

// Check reports what is wrong with the rows together, and what is probably wrong. budgeted says whether a budget counts the
// use of a version.
func (r *Registry) Check(budgeted func(*ContractVersion) bool) (faults, warnings switchboard.Faults) {
	for _, id := range r.IDs() {
		faults = append(faults, checkSuccession(r.versions[id])...)
		for _, v := range r.versions[id] {
			if v.Bindable() && v.Costs() && v.Facts.Budget == nil && !budgeted(v) && !slices.ContainsFunc(r.Boundaries, func(b Boundary) bool { return b.covers(v) }) {
				faults = append(faults, v.fault("%s costs money, and no boundary or budget is over it; give it a budget, or add a row to boundaries.yaml that fires for it", v.Name()))
			}
		}
	}
	faults = append(faults, r.checkCycles()...)
	faults = append(faults, r.checkGrants()...)
	needed := map[string]bool{}
	for _, list := range r.versions {
		for _, v := range list {
			for _, id := range v.Atoms {
				needed[id] = true
			}
		}
	}
	for _, p := range r.Parties {
		needed[p.From], needed[p.To], needed[p.Account] = true, true, true
	}
	for _, id := range slices.Sorted(maps.Keys(r.Atoms)) {
		a := r.Atoms[id]
		if a.Critical && a.Probe.None() {
			faults = append(faults, faultAt(a.Position, "atom %q is critical, and has no probe, so that nothing would notice its failure; give it one, such as probe: {env: NAME}, or remove critical", id))
		}
		if !needed[id] {
			warnings = append(warnings, faultAt(a.Position, "atom %q: nothing requires it", id))
		}
	}
	return faults, append(warnings, r.CheckBoundaries()...)
}

// CheckBoundaries reports patterns, exceptions and accounts of boundaries that are probably mistaken.
func (r *Registry) CheckBoundaries() (warnings switchboard.Faults) {
	for i := range r.Boundaries {
		warnings = append(warnings, r.checkReach(&r.Boundaries[i])...)
	}
	return warnings
}

// checkSuccession checks the versions of one capability, the newest first: no major version is left out, and none is active
// beside an active one of a lower major version.
func checkSuccession(list []*ContractVersion) (faults switchboard.Faults) {
	var newest *ContractVersion // that is active
	for i, v := range list {
		if v.Status == Active {
			if newest == nil {
				newest = v
			} else if newest.Number.Major() > v.Number.Major() {
				faults = append(faults, v.fault("%s is active, and so is %s; a new major version requires that its predecessors are deprecated: write status: deprecated here", v.Name(), newest.Name()))
			}
		}
		if i > 0 && list[i-1].Number.Major() > v.Number.Major()+1 {
			faults = append(faults, list[i-1].fault("%s follows %s, and leaves a major version out; call it %d.0.0", list[i-1].Name(), v.Name(), v.Number.Major()+1))
		}
	}
	return faults
}

// checkCycles reports each version that requires itself, through any version that a reference may mean.
func (r *Registry) checkCycles() (faults switchboard.Faults) {
	const open, done = 1, 2
	state := map[*ContractVersion]int{}
	var path []*ContractVersion
	var visit func(v *ContractVersion)
	visit = func(v *ContractVersion) {
		switch state[v] {
		case done:
			return
		case open:
			var names []string
			for _, on := range path[slices.Index(path, v):] {
				names = append(names, on.Name())
			}
			faults = append(faults, v.fault("%s requires itself: %s → %s; remove one of these from requires", v.Name(), strings.Join(names, " → "), v.Name()))
			return
		}
		state[v], path = open, append(path, v)
		for _, ref := range v.Capabilities {
			for _, to := range r.versions[ref.ID] {
				if to.Status != Retired && ref.Admits(to.Number) {
					visit(to)
				}
			}
		}
		state[v], path = done, path[:len(path)-1]
	}
	for _, id := range r.IDs() {
		for _, v := range r.versions[id] {
			visit(v)
		}
	}
	return faults
}

// checkGrants reports each version that can exist for a tenant while one that it requires does not. The verdict on it would tell the
// tenant of the other.
func (r *Registry) checkGrants() (faults switchboard.Faults) {
	for _, id := range r.IDs() {
		for _, v := range r.versions[id] {
			told := map[*ContractVersion]bool{}
			for _, ref := range v.Capabilities {
				for _, to := range r.versions[ref.ID] {
					if v.Status == Retired || to.Status == Retired || !ref.Admits(to.Number) || told[to] {
						continue
					}
					told[to] = true
					if lacks := slices.DeleteFunc(slices.Clone(to.Permissions), func(p string) bool { return slices.Contains(v.Permissions, p) }); len(lacks) > 0 {
						faults = append(faults, v.fault("%s requires %s, which needs the permissions %s, and does not need them itself; add them to required_permissions here, or remove %s from requires", v.Name(), to.Name(), strings.Join(lacks, ", "), ref))
					}
					within := len(v.Models) > 0 && !slices.ContainsFunc(v.Models, func(m string) bool { return !slices.Contains(to.Models, m) })
					if len(to.Models) > 0 && !within {
						faults = append(faults, v.fault("%s requires %s, which is for the models %s alone; name no other models in required_models here, or remove %s from requires", v.Name(), to.Name(), strings.Join(to.Models, ", "), ref))
					}
				}
			}
		}
	}
	return faults
}

// checkReach reports a pattern and exceptions that change nothing.
func (r *Registry) checkReach(b *Boundary) (warnings switchboard.Faults) {
	ids := r.IDs()
	if b.IDMatches != "" && !slices.ContainsFunc(ids, b.matches) {
		warnings = append(warnings, b.fault("id_matches fits no id, so that the row never fires; it must fit a whole id"))
	}
	for _, id := range b.Exceptions {
		without := *b
		without.Exceptions = nil
		if len(r.versions[id]) > 0 && !slices.ContainsFunc(r.versions[id], without.covers) {
			warnings = append(warnings, b.fault("the exception %s has no effect, since the row does not fire for it anyway", id))
		}
	}
	if name := b.Decision.Account(); name != "" && !slices.ContainsFunc(slices.Collect(maps.Values(r.Atoms)), func(a *Atom) bool { return a.Kind == KindAccount && HasPart(a.ID, name) }) {
		warnings = append(warnings, b.fault("no atom of kind account has %s as a part of its id, so that the row blocks whatever it fires for", name))
	}
	return warnings
}

// HasPart reports whether the name is a whole part of the id, in any case.
func HasPart(id, name string) bool {
	return slices.ContainsFunc(strings.Split(id, "."), func(part string) bool { return strings.EqualFold(part, name) })
}

// WholeID returns the pattern of a boundary as one that fits only whole ids.
func WholeID(pattern string) string { return "^(?:" + pattern + ")$" }

func (b *Boundary) matches(id string) bool {
	re, err := regexp.Compile(WholeID(b.IDMatches))
	return err == nil && re.MatchString(id)
}

// Clauses returns the clauses of the row in words, such as "side_effects_any: costs-money". All of them hold if the row fires.
func (b *Boundary) Clauses() (all []string) {
	add := func(key string, values ...string) {
		if len(values) > 0 {
			all = append(all, key+": "+strings.Join(values, ", "))
		}
	}
	add("side_effects_any", b.SideEffectsAny...)
	classes := make([]string, len(b.CostClasses))
	for i, c := range b.CostClasses {
		classes[i] = string(c)
	}
	add("cost_class", classes...)
	add("risk_level", b.RiskLevels...)
	if b.IDMatches != "" {
		add("id_matches", b.IDMatches)
	}
	return all
}

// covers reports whether the row fires for a version. It is for the check of the rows only: what a row decides about a call is
// the policy engine's to say.
func (b *Boundary) covers(v *ContractVersion) bool {
	f := &v.Facts
	return !slices.Contains(b.Exceptions, v.ID) &&
		(len(b.SideEffectsAny) == 0 || slices.ContainsFunc(b.SideEffectsAny, func(s string) bool { return slices.Contains(f.SideEffects, s) })) &&
		(len(b.CostClasses) == 0 || slices.Contains(b.CostClasses, v.CostClass())) &&
		(len(b.RiskLevels) == 0 || slices.Contains(b.RiskLevels, f.RiskLevel)) &&
		(b.IDMatches == "" || b.matches(v.ID))
}

// EachProvided calls do for each row and each version that the row is for and that clients can be given, in the order of the rows. other is the
// place of another row for the same version of the same server; "" if there is none. With another one, neither counts: else the order of the rows
// would say which tools serve the capability.
func (r *Registry) EachProvided(rows []ProviderRow, do func(row *ProviderRow, v *ContractVersion, other string)) {
	type pair struct {
		server  switchboard.ServerID
		version *ContractVersion
	}
	of := map[pair][]*ProviderRow{}
	each := func(do func(row *ProviderRow, p pair)) {
		for i := range rows {
			row := &rows[i]
			for _, v := range r.versions[row.Ref.ID] {
				if len(v.Tools) > 0 && v.Bindable() && row.Ref.Admits(v.Number) {
					do(row, pair{row.Server, v})
				}
			}
		}
	}
	each(func(row *ProviderRow, p pair) { of[p] = append(of[p], row) })
	each(func(row *ProviderRow, p pair) {
		other := ""
		switch all := of[p]; {
		case all[0] != row:
			other = all[0].Position
		case len(all) > 1:
			other = all[1].Position
		}
		do(row, p.version, other)
	})
}

// OtherRowText says that the row at a place is for the same version of the same server, and what to do.
func OtherRowText(at string) string {
	return "the row at " + at + " says so too, so neither counts; join the rows, or narrow the range of versions of one"
}

// CheckProviders returns a fault for each row that does not count because of another one: see EachProvided.
func (r *Registry) CheckProviders(rows []ProviderRow) (faults switchboard.Faults) {
	var last *ProviderRow
	r.EachProvided(rows, func(row *ProviderRow, v *ContractVersion, other string) {
		if other != "" && row != last { // once for all versions
			faults = append(faults, faultAt(row.Position, "server %q provides %s: %s", row.Server, v.Name(), OtherRowText(other)))
			last = row
		}
	})
	return faults
}

// Unprovided returns the active versions with tools that none of the providers names, sorted by name.
func (r *Registry) Unprovided(providers []ProviderRow) (out []*ContractVersion) {
	for _, id := range r.IDs() {
		for _, v := range r.versions[id] {
			provided := slices.ContainsFunc(providers, func(p ProviderRow) bool { return p.Ref.ID == id && p.Ref.Admits(v.Number) })
			if v.Status == Active && len(v.Tools) > 0 && !provided {
				out = append(out, v)
			}
		}
	}
	return out
}
