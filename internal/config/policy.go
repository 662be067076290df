package config

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
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
func (f *configFolder) readPolicies(folder string) []switchboard.PolicyFile {
	if !f.exists(folder) {
		return nil
	}
	r := policyReader{configFolder: f, root: folder, files: []switchboard.PolicyFile{}}
	r.readFolder(folder, 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	if !slices.ContainsFunc(r.files, func(f switchboard.PolicyFile) bool {
		return path.Ext(f.Path) == ".rego" && !strings.HasSuffix(f.Path, "_test.rego")
	}) {
		f.sink.Warn(Fault{File: f.displayPath(folder), Text: "the folder has no rules, and so it allows nothing; remove it, or write: allowed_tools contains c.id if { … }"})
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
	l := newConfigFolder(folder, Options{}) // which reads the folder above
	defer l.close()
	files := l.readPolicies(name)
	if files == nil {
		l.fault(name, "there is no such folder")
	}
	return files, l.sink.Err(folder)
}

// PolicyFiles reads the policies and their data at a path: a file, or all such files below a folder.
// It ignores other files in the folder. The names of the files begin with the path. The error is
// Faults.
func PolicyFiles(at string) ([]switchboard.PolicyFile, error) {
	info, err := os.Stat(at)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + document.ErrorText(err)}}
	}
	if !info.IsDir() {
		return policyFile(at)
	}
	l := newConfigFolder(filepath.Join(at, "policies"), Options{}) // which reads the folder itself
	defer l.close()
	r := policyReader{configFolder: l, root: ".", mixed: true}
	r.readFolder(".", 0)
	slices.SortFunc(r.files, func(a, b switchboard.PolicyFile) int { return strings.Compare(a.Path, b.Path) })
	return r.files, l.sink.Err(at)
}

// policyFile reads one policy or data file.
func policyFile(at string) ([]switchboard.PolicyFile, error) {
	if !slices.Contains(policyFiles, path.Ext(at)) {
		return nil, Faults{{File: at, Text: "only policies (.rego) and their data (.json, .yaml, .yml) are read here"}}
	}
	data, err := document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(at) },
		func() (fs.File, error) { return os.Open(at) }, maxPolicyFile, document.AnyFile)
	if err != nil {
		return nil, Faults{{File: at, Text: "this cannot be read: " + document.ErrorText(err)}}
	}
	return []switchboard.PolicyFile{{Name: filepath.Clean(at), Path: filepath.Base(at), Data: data}}, nil
}

// policyReader is the state of reading one folder of policies.
type policyReader struct {
	*configFolder
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
		data, err := r.readFile(name, maxPolicyFile)
		if err != nil {
			r.fault(name, "this cannot be read: %s", document.ErrorText(err))
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
