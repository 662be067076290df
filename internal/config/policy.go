package config

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Limits of a folder of policies, including its subfolders, and of the policy settings in a tenant's
// file.
const (
	maxPolicyFile   = 1 << 20
	maxPolicyBytes  = 8 << 20
	maxPolicyFiles  = 500 // and folders
	maxPolicyDepth  = 16
	maxTenantPolicy = 64 << 10
)

// policyFiles are the extensions of files in a folder of policies.
var policyFiles = []string{".rego", ".json", ".yaml", ".yml"}

// readPolicies reads the files in a folder and its subfolders. It returns nil if the folder does not
// exist.
func (l *loader) readPolicies(folder string) []switchboard.PolicyFile {
	if !l.exists(folder) {
		return nil
	}
	r := policyReader{loader: l, root: folder, files: []switchboard.PolicyFile{}}
	r.readFolder(folder, 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	if !slices.ContainsFunc(r.files, func(f switchboard.PolicyFile) bool {
		return path.Ext(f.Path) == ".rego" && !strings.HasSuffix(f.Path, "_test.rego")
	}) {
		l.sink.addWarning(Fault{File: l.displayPath(folder), Text: "the folder has no rules, and so it allows nothing; remove it, or write: allowed_tools contains c.id if { … }"})
	}
	return r.files
}

// Policies reads a folder of policies as Load does. The error is Faults.
func Policies(folder string) ([]switchboard.PolicyFile, error) {
	name := filepath.Base(folder)
	if name == "." || name == ".." { // the name of the folder is not known yet
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		folder, name = abs, filepath.Base(abs)
	}
	l := newLoader(folder, Options{}) // which reads the folder above
	defer l.close()
	files := l.readPolicies(name)
	if files == nil {
		l.fault(name, "there is no such folder")
	}
	return files, l.sink.sortedErr(folder)
}

// PolicyFiles reads the policies and their data at a path: a file, or all such files below a folder.
// It ignores other files in the folder. The names of the files begin with the path. The error is
// Faults.
func PolicyFiles(at string) ([]switchboard.PolicyFile, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + errorText(err)}}
	}
	if !info.IsDir() {
		return policyFile(at)
	}
	l := newLoader(filepath.Join(at, "policies"), Options{}) // which reads the folder itself
	defer l.close()
	r := policyReader{loader: l, root: ".", mixed: true}
	r.readFolder(".", 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	return r.files, l.sink.sortedErr(at)
}

// policyFile reads one policy or data file.
func policyFile(at string) ([]switchboard.PolicyFile, error) {
	if !slices.Contains(policyFiles, path.Ext(at)) {
		return nil, Faults{{File: at, Text: "only policies (.rego) and their data (.json, .yaml, .yml) are read here"}}
	}
	data, err := readBounded(func() (fs.FileInfo, error) { return os.Stat(at) },
		func() (fs.File, error) { return os.Open(at) }, maxPolicyFile, anyFile)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + errorText(err)}}
	}
	return []switchboard.PolicyFile{{Name: filepath.Clean(at), Path: filepath.Base(at), Data: data}}, nil
}

// policyReader is the state of reading one folder of policies.
type policyReader struct {
	*loader
	root      string
	mixed     bool // other files are ignored, and are no faults
	files     []switchboard.PolicyFile
	fileCount int // files and folders
	byteCount int // of all files
}

// readFolder reads a folder at a depth below the first one. It stops with a fault at the limits: links
// can make a folder contain itself.
func (r *policyReader) readFolder(folder string, depth int) (ok bool) {
	if depth > maxPolicyDepth {
		r.fault(folder, "folders of policies stand within each other more than %d deep", maxPolicyDepth)
		return false
	}
	names, ok := r.listFolder(folder)
	if !ok {
		return false
	}
	for _, n := range names {
		name := path.Join(folder, n)
		info, err := fs.Stat(r.locate(name))
		if r.mixed && err == nil && !info.IsDir() && !slices.Contains(policyFiles, path.Ext(n)) {
			continue
		}
		if r.fileCount++; r.fileCount > maxPolicyFiles {
			r.fault(r.root, "the folder holds more than %d files and folders", maxPolicyFiles)
			return false
		}
		switch {
		case err != nil: // readFile below reports it
		case info.IsDir():
			if !r.readFolder(name, depth+1) {
				return false
			}
			continue
		case !slices.Contains(policyFiles, path.Ext(n)):
			r.fault(name, "only policies (.rego) and their data (.json, .yaml, .yml) are read here; rename or remove this one")
			continue
		}
		data, err := r.loader.readFile(name, maxPolicyFile)
		if err != nil {
			r.fault(name, "this cannot be read: %s", errorText(err))
			continue
		}
		if r.byteCount += len(data); r.byteCount > maxPolicyBytes {
			r.fault(r.root, "the files of the folder have more than %d bytes together", maxPolicyBytes)
			return false
		}
		r.files = append(r.files, switchboard.PolicyFile{Name: r.displayPath(name), Path: strings.TrimPrefix(name, r.root+"/"), Data: data})
	}
	return true
}

// readJSONMap reads a map with keys of the user's choice, and returns it in the canonical form of
// package canonical.
func (v value) readJSONMap() []byte {
	if v.kind != mapKind {
		v.fault("want a map, not %v", v.kind)
		return nil
	}
	out := v.appendJSON(nil, 1)
	if len(out) > maxTenantPolicy {
		v.fault("it has %d bytes as JSON; at most %d are read", len(out), maxTenantPolicy)
	}
	return out
}

// appendJSON appends v as JSON; depth is its nesting depth. It leaves out, with a fault, a value that
// JSON cannot express or that readers of YAML understand differently.
func (v value) appendJSON(dst []byte, depth int) []byte {
	if depth > maxPolicyDepth {
		v.fault("maps and lists stand within each other more than %d deep", maxPolicyDepth)
		return dst
	}
	switch v.kind {
	case mapKind:
		entries := v.readEntries(maxItems, false)
		slices.SortFunc(entries, func(a, b namedPair) int { return strings.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for i, e := range entries {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(e.key.appendText(dst), ':')
			dst = e.val.appendJSON(dst, depth+1)
		}
		return append(dst, '}')
	case listKind:
		dst = append(dst, '[')
		for i, item := range v.readList(maxItems) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst, depth+1)
		}
		return append(dst, ']')
	case boolKind:
		return strconv.AppendBool(dst, v.readBool())
	case intKind, floatKind:
		if len(v.text) > 32 || strings.Trim(v.text, "-.0123456789") != "" || !jsontext.Value(v.text).IsValid() {
			v.fault("%s: write the number in plain decimal digits", v.shownValue())
		}
		return append(dst, v.text...)
	case textKind:
		return v.appendText(dst)
	}
	v.fault("nothing stands here; give it a value, or remove it")
	return dst
}

// appendText appends a text, which may be empty here.
func (v value) appendText(dst []byte) []byte {
	if !v.quoted && looksNumeric(v.text) {
		v.fault("%s is text to some readers of YAML and a number to others; put it in quotes, or write the number in plain decimal digits", v.shownValue())
		return dst
	}
	if v.text != "" {
		if _, ok := v.readText(); !ok {
			return dst
		}
	}
	out, err := jsontext.AppendQuote(dst, v.text)
	if err != nil {
		v.fault("the text is not UTF-8")
		return dst
	}
	return out
}

// looksNumeric reports whether some reader of YAML could take s for a number.
func looksNumeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && strings.ContainsRune("+-.0123456789", rune(s[0]))
}
