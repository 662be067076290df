// Package packagelock reads the lock files of npm, as far as Switchboard takes them: files that name one package with an exact version, and all that it needs with an
// integrity value each.
package packagelock

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// MaxBytes limits a lock file. That of a server with 130 packages has 50 KB.
	MaxBytes = 8 << 20

	maxLocked = 20_000 // packages of one lock
)

// A Spec names one version of a package.
type Spec struct{ Name, Version string }

// String returns NAME@VERSION.
func (s Spec) String() string { return s.Name + "@" + s.Version }

var (
	namePattern    = regexp.MustCompile(`^(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-z0-9~-][a-z0-9._~-]*$`)
	versionPattern = sync.OnceValue(func() *regexp.Regexp { // it takes 100 KB
		return regexp.MustCompile(`^\d{1,9}\.\d{1,9}\.\d{1,9}(?:-[0-9A-Za-z.-]{1,64})?(?:\+[0-9A-Za-z.-]{1,64})?$`)
	})
	hashPattern = regexp.MustCompile(`^sha512-[A-Za-z0-9+/]*==$`)
)

// IsName reports whether npm takes the name for a new package.
func IsName(name string) bool { return len(name) <= 214 && namePattern.MatchString(name) }

// IsVersion reports whether the text is one exact version (semver.org): no range, and no tag such as latest.
func IsVersion(text string) bool { return versionPattern().MatchString(text) }

// IsIntegrity reports whether the text is an integrity value of a package's file: sha512- and its sum.
func IsIntegrity(text string) bool { return len(text) == hashLength && hashPattern.MatchString(text) }

const hashLength = len("sha512-") + 88 // 64 bytes as base64

// ParseSpec reads NAME@VERSION. The error says what is wrong with it.
func ParseSpec(text string) (Spec, error) {
	i := strings.LastIndexByte(text, '@')
	if i <= 0 {
		return Spec{}, errors.New("want NAME@VERSION, with an exact version such as 1.2.3")
	}
	s := Spec{text[:i], text[i+1:]}
	switch {
	case !IsName(s.Name):
		return Spec{}, errors.New("this is no name of an npm package")
	case !IsVersion(s.Version):
		return Spec{}, errors.New("this is no exact version; a range or a tag would name other programs later, so write one such as 1.2.3")
	}
	return s, nil
}

// A Lock names exactly the packages that a program needs, itself included. npm writes it into package-lock.json.
type Lock struct {
	Spec     Spec
	Text     []byte                   // of the file
	Packages map[string]LockedPackage // by their folders below the file's, with slashes
}

// A LockedPackage is one package of a Lock.
type LockedPackage struct {
	Version   string
	Integrity string            // "" for one that comes with the file of another package
	Programs  map[string]string // files by the names of programs
	Scripts   bool              // it wants to run a program when it is installed; it does not get to
	Name      string            // "" unless its folder has another name (an alias)

	bundled bool     // it comes in the file of another package
	bundles []string // the packages in its own file
}

// readMembers reads members of a JSON object as npm does: by their exact names, and the last one counts.
func readMembers(text []byte, members map[string]any) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name, to := range members {
		if raw, ok := all[name]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Read reads a lock file of npm 7 or later that names one package with an exact version. The error says what is wrong with it: npm checks
// what it fetches by the integrity values, so each package must have one.
func Read(text []byte) (*Lock, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("it has more than %d bytes", MaxBytes)
	}
	var file struct {
		Version  int
		Packages map[string]json.RawMessage
	}
	if err := readMembers(text, map[string]any{"lockfileVersion": &file.Version, "packages": &file.Packages}); err != nil {
		return nil, fmt.Errorf("it is no JSON of that form: %w", err)
	}
	var needs map[string]string
	switch raw, ok := file.Packages[""]; {
	case file.Version < 2 || !ok:
		return nil, errors.New("it is no package-lock.json of npm 7 or later")
	case len(file.Packages) > maxLocked:
		return nil, fmt.Errorf("it has %d packages, and %d are the most", len(file.Packages), maxLocked)
	case readMembers(raw, map[string]any{"dependencies": &needs}) != nil || len(needs) != 1:
		return nil, errors.New("it must name one package with an exact version, and names others")
	}
	l := &Lock{Text: text, Packages: map[string]LockedPackage{}}
	for name, version := range needs {
		spec, err := ParseSpec(name + "@" + version)
		if err != nil {
			return nil, fmt.Errorf("it names %s@%s: %w", name, version, err)
		}
		l.Spec = spec
	}
	for _, folder := range slices.Sorted(maps.Keys(file.Packages)) {
		if folder == "" {
			continue
		}
		p, err := parseLocked(folder, file.Packages[folder])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		l.Packages[folder] = p
	}
	if own, ok := l.Packages[l.Home()]; !ok || own.Version != l.Spec.Version || own.Name != "" || own.bundled {
		return nil, fmt.Errorf("it does not have %s itself", l.Spec)
	}
	for folder, p := range l.Packages {
		if p.bundled && !l.isBundled(folder) {
			return nil, fmt.Errorf("%s: it is said to come in the file of another package, and no package above it says so", folder)
		}
	}
	return l, nil
}

// isBundled reports whether the package that a folder is nested in says that it comes in its own file. npm fetches it otherwise, without an integrity value.
func (l *Lock) isBundled(folder string) bool {
	const nested = "/node_modules/"
	i := strings.LastIndex(folder, nested)
	if i < 0 {
		return false
	}
	return slices.Contains(l.Packages[folder[:i]].bundles, folder[i+len(nested):])
}

// parseLocked reads one package of a lock.
func parseLocked(folder string, raw json.RawMessage) (p LockedPackage, err error) {
	var link, shrinkwrap bool
	var resolved string
	if readMembers(raw, map[string]any{
		"name": &p.Name, "version": &p.Version, "integrity": &p.Integrity, "bin": &p.Programs, "hasInstallScript": &p.Scripts, "resolved": &resolved,
		"link": &link, "inBundle": &p.bundled, "bundleDependencies": &p.bundles, "hasShrinkwrap": &shrinkwrap,
	}) != nil {
		return p, errors.New("it cannot be read")
	}
	const only = "; only packages of a registry are installed"
	switch {
	case !strings.HasPrefix(folder, "node_modules/") || !filepath.IsLocal(filepath.FromSlash(folder)) || path.Clean(folder) != folder:
		return p, errors.New("this is no folder below node_modules")
	case link:
		return p, errors.New("it is a link to another folder" + only)
	case resolved != "":
		return p, errors.New("it names an address to get it from" + only)
	case p.Name != "" && !IsName(p.Name) || !IsVersion(p.Version):
		return p, errors.New("it has no exact version" + only)
	case shrinkwrap:
		return p, errors.New("it has a lock of its own, which nobody would compare")
	case !p.bundled && !IsIntegrity(p.Integrity):
		return p, errors.New("it has no integrity value of the kind sha512, so nobody could say which program it is" + only)
	}
	for name, file := range p.Programs {
		if !filepath.IsLocal(filepath.FromSlash(file)) {
			return p, fmt.Errorf("its program %q is outside of its folder", name)
		}
	}
	return p, nil
}

// Home returns the folder of the package itself, with slashes.
func (l *Lock) Home() string { return "node_modules/" + l.Spec.Name }

// Digest returns the digest of the packages: their folders, names, versions and integrity values, and the programs of the package itself.
func (l *Lock) Digest() switchboard.Digest {
	all := make(map[string][]string, len(l.Packages))
	for folder, p := range l.Packages {
		all[folder] = []string{p.Name, p.Version, p.Integrity}
	}
	return canonical.SumOf([]any{l.Spec.Name, l.Spec.Version, all, l.Packages[l.Home()].Programs})
}

// Installed compares what npm has installed with the lock. text is the content of node_modules/.package-lock.json: npm writes there what it has installed. Packages for other systems
// may be missing.
func (l *Lock) Installed(text []byte) error {
	var all map[string]json.RawMessage
	if err := readMembers(text, map[string]any{"packages": &all}); err != nil {
		return fmt.Errorf("npm does not say what it has installed: %w", err)
	}
	for _, folder := range slices.Sorted(maps.Keys(all)) {
		var version, integrity string
		if err := readMembers(all[folder], map[string]any{"version": &version, "integrity": &integrity}); err != nil {
			return fmt.Errorf("npm has installed %s, and does not say which: %w", folder, err)
		}
		p, ok := l.Packages[folder]
		switch {
		case !ok:
			return fmt.Errorf("npm has installed %s, which is not in the lock", folder)
		case p.Version != version || p.Integrity != integrity:
			return fmt.Errorf("npm has installed another %s than the one in the lock", folder)
		}
	}
	if _, ok := all[l.Home()]; !ok {
		return fmt.Errorf("npm has not installed %s", l.Spec)
	}
	return nil
}

// ProgramNames returns the names of the package's programs, sorted.
func (l *Lock) ProgramNames() []string {
	return slices.Sorted(maps.Keys(l.Packages[l.Home()].Programs))
}

// A PackageChange is one difference between two locks.
type PackageChange struct {
	Name          string `json:"name"`
	Alias         string `json:"alias,omitempty"`  // the package that stands under this name, if it has another one
	Before        string `json:"before,omitempty"` // the version; "" means that the package is new
	After         string `json:"after,omitempty"`  // the version; "" means that the package is gone
	Other         bool   `json:"other,omitempty"`  // the version is the same, and its content is not
	WantedScripts bool   `json:"wanted_scripts,omitempty"`
}

// Compare returns how the packages differ, by folder. was may be nil.
func Compare(was, now *Lock) (all []PackageChange) {
	if was == nil {
		was = &Lock{}
	}
	folders := maps.Clone(now.Packages)
	maps.Copy(folders, was.Packages)
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		a, b := was.Packages[folder], now.Packages[folder]
		if a.Version == b.Version && a.Integrity == b.Integrity && a.Name == b.Name {
			continue
		}
		_, name, _ := strings.Cut(folder, "node_modules/")
		all = append(all, PackageChange{Name: name, Alias: b.Name, Before: a.Version, After: b.Version, Other: a.Version == b.Version, WantedScripts: b.Scripts})
	}
	return all
}
