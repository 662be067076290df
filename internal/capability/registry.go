package capability

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/summit-switchboard/switchboard/internal/canonical"
)

// refPattern is the form of a Ref: an id, and perhaps a version or a range.
var refPattern = regexp.MustCompile(`^([a-z0-9_]+(?:\.[a-z0-9_]+)*)(?:@((?:[\^~]\d+(?:\.\d+){0,2})|\d+\.\d+\.\d+))?$`)

var (
	idPattern     = regexp.MustCompile(`^[a-z0-9_]+(?:\.[a-z0-9_]+)*$`)
	numberPattern = regexp.MustCompile(`^\d+\.\d+\.\d+$`)
)

// MaxIDBytes is the longest id of a capability or an atom.
const MaxIDBytes = 96

// IsID reports whether s can be the id of a capability or an atom.
func IsID(s string) bool { return len(s) <= MaxIDBytes && idPattern.MatchString(s) }

// ParseNumber parses the number of a version: three numbers, and nothing more.
func ParseNumber(s string) (*semver.Version, error) {
	if len(s) <= MaxRefBytes-MaxIDBytes-1 && numberPattern.MatchString(s) {
		if n, err := semver.StrictNewVersion(s); err == nil {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%.40q is no version; write three numbers, such as 1.2.0", s)
}

// MaxRefBytes is the longest text of a Ref.
const MaxRefBytes = 128

// ParseRef parses ID, ID@1.2.0, ID@^1.2 or ID@~1.2.3.
func ParseRef(s string) (Ref, error) {
	m := refPattern.FindStringSubmatch(s)
	if m == nil || len(s) > MaxRefBytes {
		return Ref{}, fmt.Errorf("%.140q names no capability; write its id, such as io.fs.read, and perhaps a version or a range: @1.2.0, @^1.2 or @~1.2.3", s)
	}
	if m[2] != "" {
		if _, err := semver.NewConstraint(m[2]); err != nil {
			return Ref{}, fmt.Errorf("%q: %w", s, err)
		}
	}
	return Ref{ID: m[1], Range: m[2]}, nil
}

// Admits reports whether the number is in the range.
func (r Ref) Admits(n *semver.Version) bool {
	switch {
	case r.Range == "":
		return true
	case r.Range[0] != '^' && r.Range[0] != '~': // one version; to parse a range takes much longer
		return n.String() == r.Range
	}
	c, err := semver.NewConstraint(r.Range)
	return err == nil && c.Check(n)
}

// New returns a Registry of these parts. Do not modify them afterwards.
func New(versions []*ContractVersion, atoms map[string]*Atom, rows []Boundary, parties []Party) (*Registry, error) {
	r := &Registry{versions: map[string][]*ContractVersion{}, Atoms: atoms, Boundaries: slices.Clone(rows), Parties: parties}
	for _, v := range versions {
		r.versions[v.ID] = append(r.versions[v.ID], v)
	}
	for _, list := range r.versions {
		slices.SortFunc(list, func(a, b *ContractVersion) int { return b.Number.Compare(a.Number) })
	}
	slices.SortFunc(r.Boundaries, func(a, b Boundary) int { return strings.Compare(a.ID, b.ID) })
	if len(versions)+len(atoms)+len(rows) == 0 {
		return r, nil
	}
	type versionField struct {
		Name, Digest string
		Status       Status
	}
	type boundaryField struct {
		Boundary
		File string `json:"file,omitempty"` // where a row stands decides nothing
		Line int    `json:"line,omitempty"`
	}
	doc := struct {
		Versions   []versionField
		Atoms      []*Atom
		Boundaries []boundaryField
	}{}
	for _, id := range r.IDs() {
		for _, v := range r.versions[id] {
			doc.Versions = append(doc.Versions, versionField{v.Name(), string(v.Digest), v.Status})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(atoms)) {
		doc.Atoms = append(doc.Atoms, atoms[id])
	}
	for _, b := range r.Boundaries {
		doc.Boundaries = append(doc.Boundaries, boundaryField{Boundary: b})
	}
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("the registry has no digest: %w", err)
	}
	r.digest = canonical.Sum(text)
	return r, nil
}

// WithBoundaries returns the registry with other boundaries.
func (r *Registry) WithBoundaries(rows []Boundary) (*Registry, error) {
	var versions []*ContractVersion
	for _, id := range r.IDs() {
		versions = append(versions, r.versions[id]...)
	}
	return New(versions, r.Atoms, rows, r.Parties)
}

// An archivedRegistry is the form of a Registry as JSON.
type archivedRegistry struct {
	Versions   []*ContractVersion
	Atoms      map[string]*Atom
	Boundaries []Boundary
	Parties    []Party
}

// MarshalJSON implements json.Marshaler. Secrets of probes are left out.
func (r *Registry) MarshalJSON() ([]byte, error) {
	all := archivedRegistry{Atoms: r.Atoms, Boundaries: r.Boundaries, Parties: r.Parties}
	for _, id := range r.IDs() {
		all.Versions = append(all.Versions, r.versions[id]...)
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Registry) UnmarshalJSON(text []byte) error {
	var all archivedRegistry
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	read, err := New(all.Versions, all.Atoms, all.Boundaries, all.Parties)
	if err != nil {
		return err
	}
	*r = *read
	return nil
}

// Find returns the version that ref means: the newest active one that fits, else the newest deprecated one, else nil. usable, if
// not nil, says which versions count, such as those that a server of the tenant provides.
func (r *Registry) Find(ref Ref, usable func(*ContractVersion) bool) *ContractVersion {
	var deprecated *ContractVersion
	for _, v := range r.versions[ref.ID] {
		switch {
		case !ref.Admits(v.Number) || usable != nil && !usable(v):
		case v.Status == Active:
			return v
		case v.Status == Deprecated && deprecated == nil:
			deprecated = v
		}
	}
	return deprecated
}

// Version returns the version with this Name, ID@NUMBER, or nil.
func (r *Registry) Version(name string) *ContractVersion {
	id, _, _ := strings.Cut(name, "@")
	for _, v := range r.versions[id] {
		if v.Name() == name {
			return v
		}
	}
	return nil
}

// BoundariesIn returns the boundaries as rows of this file.
func (r *Registry) BoundariesIn(file string) []Boundary {
	rows := slices.Clone(r.Boundaries)
	for i := range rows {
		rows[i].File = file
	}
	return rows
}
