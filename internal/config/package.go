package config

import (
	"path/filepath"
	"regexp"
	"strings"
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

// floatingPackage returns the package that the command fetches without an exact version, and what would name one. It is "" if there is none, or if the package
// has another source than a registry.
func floatingPackage(command []string) (name, pinned string) {
	if len(command) == 0 {
		return "", ""
	}
	program := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(filepath.Base(filepath.ToSlash(command[0]))), ".exe"), ".cmd")
	exact := exactVersions[program]
	if exact == nil {
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
	if name == "" || exact.MatchString(name) || strings.ContainsAny(name, ":\\") || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "/") || strings.Count(name, "/") > 1 {
		return "", ""
	}
	bare := name
	if i := strings.LastIndexAny(name, "@=<>~"); i > 0 {
		bare = strings.TrimRight(name[:i], "=<>~")
	}
	return name, bare + versionSigns[program] + "VERSION"
}
