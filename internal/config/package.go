package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// exactVersions are, for each program that fetches a package and runs it, what stands between the name of the package and an exact version.
var exactVersions = map[string]*regexp.Regexp{
	"npx": regexp.MustCompile(`.@v?\d+\.\d+\.\d+(?:[-+][\w.-]+)*$`),
	"uvx": regexp.MustCompile(`.(?:==|@)\d[\w.!+-]*$`),
}

// versionSigns are the signs before a version.
var versionSigns = map[string]string{"npx": "@", "uvx": "=="}

// packageFlags are the flags of these programs that name the package, and so does the next argument.
var packageFlags = map[string]bool{"-p": true, "--package": true, "--from": true}

// fetchedPackage returns the package that the command fetches from a registry, as the command names it, and the program that fetches it. It is "" if there is none.
func fetchedPackage(command []string) (name, program string) {
	if len(command) == 0 {
		return "", ""
	}
	program = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(filepath.Base(filepath.ToSlash(command[0]))), ".exe"), ".cmd")
	if exactVersions[program] == nil {
		return "", ""
	}
	for i := 1; i < len(command) && name == ""; i++ {
		flag, value, given := strings.Cut(command[i], "=")
		switch {
		case packageFlags[flag] && given:
			name = value
		case packageFlags[flag] && i+1 < len(command):
			name = command[i+1]
		case packageFlags[flag]:
			return "", ""
		case !strings.HasPrefix(command[i], "-"):
			name = command[i]
		}
	}
	if strings.ContainsAny(name, ":\\") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.Count(name, "/") > 1 {
		return "", ""
	}
	return name, program
}

// barePackage returns the name of a package without its version.
func barePackage(name string) string {
	if i := strings.LastIndexAny(name, "@=<>~"); i > 0 {
		return strings.TrimRight(name[:i], "=<>~")
	}
	return name
}

// floatingPackage returns the package that the command fetches without an exact version, and what would name one. It is "" if there is none, or if the package
// has another source than a registry.
func floatingPackage(command []string) (name, pinned string) {
	name, program := fetchedPackage(command)
	if name == "" || exactVersions[program].MatchString(name) {
		return "", ""
	}
	return name, barePackage(name) + versionSigns[program] + "VERSION"
}

// A placedName is the name of a server or a package, at its place in the configuration.
type placedName struct {
	at   document.Value
	name string
}

// warnOfAlike warns of each name that looks like an earlier one. what is the kind of the names.
func warnOfAlike(what string, names []placedName) {
	var all []string
	for _, n := range names {
		all = append(all, n.name)
	}
	for earlier, later := range suspect.AlikeNames(all) {
		was := names[earlier]
		names[later].at.Warn("%s %s looks like %s at %s:%d:%d, and is another one; if one of them is mistyped, correct it", what, document.Shown(all[later]), document.Shown(was.name), was.at.File, was.at.Line, was.at.Column)
	}
}

// The lock files of packages: their folder beside the main file, and what their names end with.
const (
	PackageLocks      = "packages"
	PackageLockSuffix = ".lock.json"
)

// PackageLock returns the name of the lock file of a server's package, in the folder of the configuration.
func PackageLock(id switchboard.ServerID) string {
	return PackageLocks + "/" + string(id) + PackageLockSuffix
}

// A packageRow is the state of reading the package of a server.
type packageRow struct{ *serverRow }

// keys are the keys of package:.
func (r packageRow) keys() *document.Keys {
	return &document.Keys{
		Rows: []document.Row{
			{Key: "npm", Type: document.Text("a package", r.readPackage), Required: `name the package and its version, such as npm: "@modelcontextprotocol/server-filesystem@2025.8.21"`, Doc: "NAME@VERSION of an npm package. The version is exact. `switchboard server update` writes the lock file `packages/SERVER.lock.json`."},
		},
		Hints: map[string]string{"name": `write npm: NAME@VERSION`, "version": `write npm: NAME@VERSION`, "pypi": "only npm packages are installed; for another one, name its program in command", "uvx": "only npm packages are installed; for another one, name its program in command"},
	}
}

// readPackage reads the package of a server and its lock.
func (r packageRow) readPackage(v document.Value, s string) {
	spec, err := packagelock.ParseSpec(s)
	if err != nil {
		v.Fault("%s: %v", v.Shown(), err)
		return
	}
	r.packages = append(r.packages, placedName{v.WithContext(""), spec.Name})
	p := &r.server.Package
	p.Name, p.Version = spec.Name, spec.Version
	if r.disabled[string(r.server.ID)] {
		return
	}
	name := PackageLock(r.server.ID)
	update := "switchboard server update " + string(r.server.ID)
	text, err := r.readFile(name, packagelock.MaxBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.Fault("there is no %s, which says exactly what belongs to the package; %s looks at the package and writes it", name, update)
		return
	case err != nil:
		v.Fault("%s cannot be read: %s", name, document.ErrorText(err))
		return
	}
	l, err := packagelock.Read(text)
	switch {
	case err != nil:
		v.Fault("%s: %v; %s writes it anew", name, err, update)
	case l.Spec != spec:
		v.Fault("%s is for %s; %s %s looks at the version that is named here, and writes its lock", name, l.Spec, update, spec.Version)
	default:
		p.Lock = string(text)
		r.checkProgram(v, l)
	}
}

// checkProgram reports a command that names no program of the package.
func (r packageRow) checkProgram(v document.Value, l *packagelock.Lock) {
	names := l.ProgramNames()
	switch command := r.server.Command; {
	case len(names) == 0:
		v.Fault("%s has no program that could be started", l.Spec)
	case len(command) == 0 && len(names) > 1:
		v.Fault("%s has several programs, so command must name one: %s", l.Spec, strings.Join(names, ", "))
	case len(command) > 0 && !slices.Contains(names, command[0]):
		v.Fault("command begins with %q, which is no program of %s; it has: %s", command[0], l.Spec, strings.Join(names, ", "))
	}
}
