package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/document"
)

// maxFiles limits the entries of one folder.
const maxFiles = 2000

// configFolder reads the files of a configuration, and collects the faults of the part that is being read.
type configFolder struct {
	sink    *document.Sink // receives the faults of the part that is being read
	env     func(name string) (string, bool)
	onWatch func(path string) // may be nil
	watched []string          // the paths that were looked at

	variables []string // that were looked up

	printed printedSecrets // of the commands in secrets

	file    string            // as it was given
	text    []byte            // if not nil, the content of file
	replace map[string][]byte // see Options.Replace
	dir     string            // the folder of file, as it was given; faults begin with it
	absDir  string            // dir, absolute: the workspace
	root    *os.Root
	fsys    fs.FS // of dir

	// tenantDir, unless "", is the folder of the tenant that is being read, and tenantFS reads it. No
	// link in it leads out of it.
	tenantDir string
	tenantFS  fs.FS
}

func newConfigFolder(file string, opts Options) *configFolder {
	f := &configFolder{sink: &document.Sink{}, env: opts.Env, onWatch: opts.Watch, file: file, text: opts.Text, replace: opts.Replace, dir: filepath.Dir(file), fsys: opts.FS}
	if f.env == nil {
		f.env = os.LookupEnv
	}
	var err error
	if f.absDir, err = filepath.Abs(f.dir); err != nil {
		f.absDir = f.dir
	}
	if f.fsys == nil {
		// The files are read through a root, so that a link in a tenant's folder cannot lead to a file
		// outside of it.
		if f.root, err = os.OpenRoot(f.dir); err == nil {
			f.fsys = f.root.FS()
		}
	}
	if opts.FS == nil && f.fsys != nil {
		f.readThroughJournal()
	}
	if text, ok := f.replace[filepath.Base(file)]; ok {
		f.text = text
	}
	if f.fsys != nil {
		f.fsys = replaceFiles(f.fsys, "", f.replace)
	}
	f.watchPath(".")
	return f
}

func (f *configFolder) close() {
	if f.root != nil {
		_ = f.root.Close() // it was only read from
	}
}

// displayPath returns the path of a file in the configuration's folder, as the user would write it.
func (f *configFolder) displayPath(name string) string {
	if name == "." {
		return f.dir
	}
	return filepath.Join(f.dir, filepath.FromSlash(name))
}

func (f *configFolder) watchPath(name string) {
	p := f.displayPath(name)
	if filepath.IsAbs(name) {
		p = name
	}
	f.watched = append(f.watched, p)
	if f.onWatch != nil {
		f.onWatch(p)
	}
}

// readFile returns the content of a file. A relative name is a file in the configuration's folder; an
// absolute name is any file.
func (f *configFolder) readFile(name string, limit int64) ([]byte, error) {
	return f.readCheckedFile(name, limit, document.AnyFile)
}

// readCheckedFile is readFile, but calls check with the file's information once the file is open.
func (f *configFolder) readCheckedFile(name string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	f.watchPath(name)
	return f.readUnwatched(name, limit, check)
}

// readUnwatched is readCheckedFile for a file whose changes need no reload.
func (f *configFolder) readUnwatched(name string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	switch {
	case filepath.IsAbs(name):
		return document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(name) },
			func() (fs.File, error) { return os.Open(name) }, limit, check)
	case f.fsys == nil:
		return nil, fs.ErrNotExist
	}
	fsys, name := f.locate(name)
	return document.ReadBounded(func() (fs.FileInfo, error) { return fs.Stat(fsys, name) },
		func() (fs.File, error) { return fsys.Open(name) }, limit, check)
}

// pathOf returns the path in the file system of the machine of a name that readCheckedFile takes.
func (f *configFolder) pathOf(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(f.absDir, filepath.FromSlash(name))
}

// locate returns the file system that holds a name of the configuration's folder, and the name in it.
func (f *configFolder) locate(name string) (fs.FS, string) {
	if inner, ok := strings.CutPrefix(name, f.tenantDir+"/"); ok && f.tenantDir != "" {
		return f.tenantFS, inner
	}
	return f.fsys, name
}

// enterFolder confines reading to folder, which is a tenant's, until leave is called. A tenant that
// may write its folder must not be able to read another tenant's files through it.
func (f *configFolder) enterFolder(folder string) (leave func()) {
	if f.root == nil {
		return func() {} // Options.FS
	}
	root, err := f.root.OpenRoot(filepath.FromSlash(folder))
	if errors.Is(err, fs.ErrNotExist) && f.isFolder(folder) {
		return func() {} // only replaced files are in it
	}
	if err != nil {
		f.fault(folder, "this folder cannot be read: %s", document.ErrorText(err))
		return func() {}
	}
	f.tenantDir, f.tenantFS = folder, replaceFiles(root.FS(), folder, f.replace)
	return func() {
		f.tenantDir, f.tenantFS = "", nil
		_ = root.Close() // it was only read from
	}
}

// readMain reads the main file. It may be a link to anywhere, because the operator placed it.
func (f *configFolder) readMain(limit int64) ([]byte, error) {
	if f.text != nil {
		f.watchPath(filepath.Base(f.file))
		return f.text, nil
	}
	if f.root == nil && f.fsys != nil {
		return f.readFile(filepath.Base(f.file), limit)
	}
	f.watchPath(filepath.Base(f.file))
	return document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(f.file) },
		func() (fs.File, error) { return os.Open(f.file) }, limit, document.AnyFile)
}

// readDocument reads one YAML file of the configuration's folder. ok is false if it cannot be read;
// the fault is then recorded.
func (f *configFolder) readDocument(name string) (document.Value, bool) {
	data, err := f.readFile(name, document.MaxFileBytes)
	if err != nil {
		f.fault(name, "this cannot be read: %s", document.ErrorText(err))
		return document.Value{}, false
	}
	return document.ReadYAML(f.displayPath(name), data, f.sink)
}

func (f *configFolder) fault(name, format string, args ...any) {
	f.sink.Add(Fault{File: f.displayPath(name), Text: fmt.Sprintf(format, args...)})
}

// exists reports whether the configuration's folder holds a file or folder of the name. If that cannot
// be found out, it returns true, so that the reading reports the reason.
func (f *configFolder) exists(name string) bool {
	f.watchPath(name)
	if f.fsys == nil {
		return false
	}
	_, err := fs.Stat(f.locate(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// listFolder returns the sorted names in a folder, without the files of editors and version control.
// An absent folder is empty.
func (f *configFolder) listFolder(name string) (names []string, ok bool) {
	if !f.exists(name) {
		return nil, true
	}
	entries, err := fs.ReadDir(f.locate(name))
	if err != nil {
		f.fault(name, "this folder cannot be read: %s", document.ErrorText(err))
		return nil, false
	}
	if len(entries) > maxFiles {
		f.fault(name, "the folder holds more than %d files", maxFiles)
		return nil, false
	}
	for _, e := range entries {
		if n := e.Name(); !isAside(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, true
}

// isAside reports whether a file does not belong to the configuration: hidden files, backups and
// Markdown.
func isAside(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") ||
		strings.HasSuffix(name, ".swp") || strings.EqualFold(path.Ext(name), ".md")
}

// readDocuments reads every *.yaml file of a folder. Any other file in it is a fault.
func (f *configFolder) readDocuments(folder string) []document.Value {
	var out []document.Value
	for _, name := range f.listDocuments(folder) {
		if v, ok := f.readDocument(name); ok {
			out = append(out, v)
		}
	}
	return out
}

// listDocuments returns the names of the *.yaml files in a folder. Any other file in it is a fault.
func (f *configFolder) listDocuments(folder string) (out []string) {
	names, _ := f.listFolder(folder)
	for _, n := range names {
		if path.Base(folder) == overlaysFolder && strings.HasSuffix(n, SuggestedSuffix) {
			continue // nothing in it counts until a person has accepted it
		}
		name := path.Join(folder, n)
		if path.Ext(n) != ".yaml" || f.isFolder(name) {
			f.fault(name, "only files whose name ends in .yaml are read here; rename or remove this one")
			continue
		}
		out = append(out, name)
	}
	return out
}

func (f *configFolder) isFolder(name string) bool {
	info, err := fs.Stat(f.locate(name))
	return err == nil && info.IsDir()
}
