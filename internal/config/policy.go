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

// Bounds of a folder of policies, with all that is below it, and of what a
// tenant's file says to policies.
const (
	maxPolicyFile   = 1 << 20
	maxPolicyBytes  = 8 << 20
	maxPolicyFiles  = 500 // and folders
	maxPolicyDepth  = 16
	maxTenantPolicy = 64 << 10
)

// policyFiles are how the names of files end in a folder of policies.
var policyFiles = []string{".rego", ".json", ".yaml", ".yml"}

// policies reads the files in a folder and in those below it. It is nil where
// there is no such folder.
func (l *loader) policies(folder string) []switchboard.PolicyFile {
	if !l.exists(folder) {
		return nil
	}
	r := policyReader{loader: l, root: folder, files: []switchboard.PolicyFile{}}
	r.read(folder, 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	if !slices.ContainsFunc(r.files, func(f switchboard.PolicyFile) bool {
		return path.Ext(f.Path) == ".rego" && !strings.HasSuffix(f.Path, "_test.rego")
	}) {
		l.sink.warn(Fault{File: l.path(folder), Text: "the folder has no rules, and so it allows nothing; remove it, or write: allowed_tools contains c.id if { … }"})
	}
	return r.files
}

// Policies reads a folder of policies, as Load reads those of a configuration.
// The error is Faults.
func Policies(folder string) ([]switchboard.PolicyFile, error) {
	name := filepath.Base(folder)
	if name == "." || name == ".." { // of what folder it is one is not known yet
		abs, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		folder, name = abs, filepath.Base(abs)
	}
	l := newLoader(folder, Options{}) // which reads the folder above
	defer l.close()
	files := l.policies(name)
	if files == nil {
		l.fault(name, "there is no such folder")
	}
	return files, l.sink.err(folder)
}

// PolicyFiles reads the policies and their data at a path: a file, or all such files below a
// folder. It ignores the other files of the folder. The names of the files begin with the
// path. The error is Faults.
func PolicyFiles(at string) ([]switchboard.PolicyFile, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + why(err)}}
	}
	if !info.IsDir() {
		return policyFile(at)
	}
	l := newLoader(filepath.Join(at, "policies"), Options{}) // which reads the folder itself
	defer l.close()
	r := policyReader{loader: l, root: ".", mixed: true}
	r.read(".", 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	return r.files, l.sink.err(at)
}

// policyFile reads one file of policies or data.
func policyFile(at string) ([]switchboard.PolicyFile, error) {
	if !slices.Contains(policyFiles, path.Ext(at)) {
		return nil, Faults{{File: at, Text: "only policies (.rego) and their data (.json, .yaml, .yml) are read here"}}
	}
	data, err := readBounded(func() (fs.FileInfo, error) { return os.Stat(at) },
		func() (fs.File, error) { return os.Open(at) }, maxPolicyFile, anyFile)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + why(err)}}
	}
	return []switchboard.PolicyFile{{Name: filepath.Clean(at), Path: filepath.Base(at), Data: data}}, nil
}

// policyReader is the state of reading one folder of policies.
type policyReader struct {
	*loader
	root  string
	mixed bool // other files may stand in the folder, and are ignored
	files []switchboard.PolicyFile
	seen  int // files and folders
	size  int // of all files
}

// read reads a folder so far below the first. It gives up, and says so, where
// there is too much: links may make a folder stand within itself.
func (r *policyReader) read(folder string, depth int) (ok bool) {
	if depth > maxPolicyDepth {
		r.fault(folder, "folders of policies stand within each other more than %d deep", maxPolicyDepth)
		return false
	}
	names, ok := r.folder(folder)
	if !ok {
		return false
	}
	for _, n := range names {
		name := path.Join(folder, n)
		info, err := fs.Stat(r.at(name))
		if r.mixed && err == nil && !info.IsDir() && !slices.Contains(policyFiles, path.Ext(n)) {
			continue
		}
		if r.seen++; r.seen > maxPolicyFiles {
			r.fault(r.root, "the folder holds more than %d files and folders", maxPolicyFiles)
			return false
		}
		switch {
		case err != nil: // so it is when it is read
		case info.IsDir():
			if !r.read(name, depth+1) {
				return false
			}
			continue
		case !slices.Contains(policyFiles, path.Ext(n)):
			r.fault(name, "only policies (.rego) and their data (.json, .yaml, .yml) are read here; rename or remove this one")
			continue
		}
		data, err := r.loader.read(name, maxPolicyFile)
		if err != nil {
			r.fault(name, "this cannot be read: %s", why(err))
			continue
		}
		if r.size += len(data); r.size > maxPolicyBytes {
			r.fault(r.root, "the files of the folder have more than %d bytes together", maxPolicyBytes)
			return false
		}
		r.files = append(r.files, switchboard.PolicyFile{Name: r.path(name), Path: strings.TrimPrefix(name, r.root+"/"), Data: data})
	}
	return true
}

// json reads a map of the user's own making, and returns it as JSON in the form
// that package canonical gives it.
func (v value) json() []byte {
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

// appendJSON appends v, which stands so deep. What JSON cannot say, or not to
// every reader alike, is a fault, and left out.
func (v value) appendJSON(dst []byte, depth int) []byte {
	if depth > maxPolicyDepth {
		v.fault("maps and lists stand within each other more than %d deep", maxPolicyDepth)
		return dst
	}
	switch v.kind {
	case mapKind:
		entries := v.entries(maxItems, false)
		slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.name, b.name) })
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
		for i, item := range v.list(maxItems) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = item.appendJSON(dst, depth+1)
		}
		return append(dst, ']')
	case boolKind:
		return strconv.AppendBool(dst, v.boolean())
	case intKind, floatKind:
		if len(v.text) > 32 || strings.Trim(v.text, "-.0123456789") != "" || !jsontext.Value(v.text).IsValid() {
			v.fault("%s: write the number in plain decimal digits", v.shown())
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
	if !v.quoted && numeric(v.text) {
		v.fault("%s is text to some readers of YAML and a number to others; put it in quotes, or write the number in plain decimal digits", v.shown())
		return dst
	}
	if v.text != "" {
		if _, ok := v.str(); !ok {
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

// numeric reports whether some reader of YAML could take s for a number.
func numeric(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return (err == nil || errors.Is(err, strconv.ErrRange)) && strings.ContainsRune("+-.0123456789", rune(s[0]))
}
