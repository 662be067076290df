package config

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
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
