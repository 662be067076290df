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

// displayPath returns the path of a file in the configuration's folder, as the user would write it.
func (l *loader) displayPath(name string) string {
	if name == "." {
		return l.dir
	}
	return filepath.Join(l.dir, filepath.FromSlash(name))
}

func (l *loader) watchPath(name string) {
	p := l.displayPath(name)
	if filepath.IsAbs(name) {
		p = name
	}
	l.cfg.Watch = append(l.cfg.Watch, p)
	if l.opts.Watch != nil {
		l.opts.Watch(p)
	}
}

// readFile returns the content of a file. A relative name is a file in the configuration's folder; an
// absolute name is any file.
func (l *loader) readFile(name string, limit int64) ([]byte, error) {
	return l.readCheckedFile(name, limit, document.AnyFile)
}

// readCheckedFile is readFile, but calls check with the file's information once the file is open.
func (l *loader) readCheckedFile(name string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	l.watchPath(name)
	switch {
	case filepath.IsAbs(name):
		return document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(name) },
			func() (fs.File, error) { return os.Open(name) }, limit, check)
	case l.fsys == nil:
		return nil, fs.ErrNotExist
	}
	fsys, name := l.locate(name)
	return document.ReadBounded(func() (fs.FileInfo, error) { return fs.Stat(fsys, name) },
		func() (fs.File, error) { return fsys.Open(name) }, limit, check)
}

// locate returns the file system that holds a name of the configuration's folder, and the name in it.
func (l *loader) locate(name string) (fs.FS, string) {
	if inner, ok := strings.CutPrefix(name, l.tenantDir+"/"); ok && l.tenantDir != "" {
		return l.tenantFS, inner
	}
	return l.fsys, name
}

// enterFolder confines reading to folder, which is a tenant's, until leave is called. A tenant that
// may write its folder must not be able to read another tenant's files through it.
func (l *loader) enterFolder(folder string) (leave func()) {
	if l.root == nil {
		return func() {} // Options.FS
	}
	root, err := l.root.OpenRoot(filepath.FromSlash(folder))
	if err != nil {
		l.fault(folder, "this folder cannot be read: %s", document.ErrorText(err))
		return func() {}
	}
	l.tenantDir, l.tenantFS = folder, root.FS()
	return func() {
		l.tenantDir, l.tenantFS = "", nil
		_ = root.Close() // it was only read from
	}
}

// readMain reads the main file. It may be a link to anywhere, because the operator placed it.
func (l *loader) readMain(limit int64) ([]byte, error) {
	if l.opts.FS != nil {
		return l.readFile(filepath.Base(l.file), limit)
	}
	l.watchPath(filepath.Base(l.file))
	return document.ReadBounded(func() (fs.FileInfo, error) { return os.Stat(l.file) },
		func() (fs.File, error) { return os.Open(l.file) }, limit, document.AnyFile)
}

// readDocument reads one YAML file of the configuration's folder. ok is false if it cannot be read;
// the fault is then recorded.
func (l *loader) readDocument(name string) (document.Value, bool) {
	data, err := l.readFile(name, document.MaxFileBytes)
	if err != nil {
		l.fault(name, "this cannot be read: %s", document.ErrorText(err))
		return document.Value{}, false
	}
	return document.ReadYAML(l.displayPath(name), data, l.sink)
}

func (l *loader) fault(name, format string, args ...any) {
	l.sink.Add(Fault{File: l.displayPath(name), Text: fmt.Sprintf(format, args...)})
}

// exists reports whether the configuration's folder holds a file or folder of the name. If that cannot
// be found out, it returns true, so that the reading reports the reason.
func (l *loader) exists(name string) bool {
	l.watchPath(name)
	if l.fsys == nil {
		return false
	}
	_, err := fs.Stat(l.locate(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// listFolder returns the sorted names in a folder, without the files of editors and version control.
// An absent folder is empty.
func (l *loader) listFolder(name string) (names []string, ok bool) {
	if !l.exists(name) {
		return nil, true
	}
	entries, err := fs.ReadDir(l.locate(name))
	if err != nil {
		l.fault(name, "this folder cannot be read: %s", document.ErrorText(err))
		return nil, false
	}
	if len(entries) > maxFiles {
		l.fault(name, "the folder holds more than %d files", maxFiles)
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
func (l *loader) readDocuments(folder string) []document.Value {
	var out []document.Value
	for _, name := range l.listDocuments(folder) {
		if v, ok := l.readDocument(name); ok {
			out = append(out, v)
		}
	}
	return out
}

// listDocuments returns the names of the *.yaml files in a folder. Any other file in it is a fault.
func (l *loader) listDocuments(folder string) (out []string) {
	names, _ := l.listFolder(folder)
	for _, n := range names {
		name := path.Join(folder, n)
		if path.Ext(n) != ".yaml" || l.isFolder(name) {
			l.fault(name, "only files whose name ends in .yaml are read here; rename or remove this one")
			continue
		}
		out = append(out, name)
	}
	return out
}

func (l *loader) isFolder(name string) bool {
	info, err := fs.Stat(l.locate(name))
	return err == nil && info.IsDir()
}

// refuseFolder reports a fault for a folder of a feature that is not built yet, unless it is empty.
func (l *loader) refuseFolder(folder string) {
	if names, _ := l.listFolder(folder); len(names) > 0 {
		l.fault(folder, "%q is not supported yet; move the folder away", path.Base(folder))
	}
}
