package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// maxFiles bounds the entries of one folder.
const maxFiles = 2000

// path names a file of the configuration's folder as the user would.
func (l *loader) path(name string) string {
	if name == "." {
		return l.dir
	}
	return filepath.Join(l.dir, filepath.FromSlash(name))
}

func (l *loader) watch(name string) {
	p := l.path(name)
	if filepath.IsAbs(name) {
		p = name
	}
	l.cfg.Watch = append(l.cfg.Watch, p)
	if l.opts.Watch != nil {
		l.opts.Watch(p)
	}
}

// read returns what is in a file: one of the configuration's folder, or, if
// the name is absolute, any.
func (l *loader) read(name string, limit int64) ([]byte, error) {
	return l.readChecked(name, limit, anyFile)
}

// readChecked is read of a file that passes the check once it is open.
func (l *loader) readChecked(name string, limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	l.watch(name)
	switch {
	case filepath.IsAbs(name):
		return readBounded(func() (fs.FileInfo, error) { return os.Stat(name) },
			func() (fs.File, error) { return os.Open(name) }, limit, check)
	case l.fsys == nil:
		return nil, fs.ErrNotExist
	}
	fsys, name := l.at(name)
	return readBounded(func() (fs.FileInfo, error) { return fs.Stat(fsys, name) },
		func() (fs.File, error) { return fsys.Open(name) }, limit, check)
}

// at says where a name of the configuration's folder is looked for.
func (l *loader) at(name string) (fs.FS, string) {
	if inner, ok := strings.CutPrefix(name, l.home+"/"); ok && l.home != "" {
		return l.homeFS, inner
	}
	return l.fsys, name
}

// enter makes folder the home of what is read until leave is called: whoever
// may write a tenant's folder must not read through it what is in another's.
func (l *loader) enter(folder string) (leave func()) {
	if l.root == nil {
		return func() {} // Options.FS
	}
	root, err := l.root.OpenRoot(filepath.FromSlash(folder))
	if err != nil {
		l.fault(folder, "this folder cannot be read: %s", why(err))
		return func() {}
	}
	l.home, l.homeFS = folder, root.FS()
	return func() {
		l.home, l.homeFS = "", nil
		_ = root.Close() // it was only read from
	}
}

// readMain reads file itself, which may be a link to anywhere: whoever placed
// it is the operator.
func (l *loader) readMain(limit int64) ([]byte, error) {
	if l.opts.FS != nil {
		return l.read(filepath.Base(l.file), limit)
	}
	l.watch(filepath.Base(l.file))
	return readBounded(func() (fs.FileInfo, error) { return os.Stat(l.file) },
		func() (fs.File, error) { return os.Open(l.file) }, limit, anyFile)
}

// anyFile passes every file.
func anyFile(fs.FileInfo) error { return nil }

func readBounded(stat func() (fs.FileInfo, error), open func() (fs.File, error), limit int64, check func(fs.FileInfo) error) ([]byte, error) {
	// Asked before it is opened: to open a pipe is to wait for a writer.
	if info, err := stat(); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("it is no regular file")
	}
	f, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read from
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := check(info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("it is larger than %d bytes", limit)
	}
	return data, nil
}

// why is a reading error without the path, which the fault names already.
func why(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "we may not read it"
	}
	return err.Error()
}

// document reads one YAML file of the configuration's folder. ok is false, and
// the fault said, where it cannot be read.
func (l *loader) document(name string) (value, bool) {
	data, err := l.read(name, MaxFileBytes)
	if err != nil {
		l.fault(name, "this cannot be read: %s", why(err))
		return value{}, false
	}
	return readYAML(l.path(name), data, l.sink)
}

func (l *loader) fault(name, format string, args ...any) {
	l.sink.add(Fault{File: l.path(name), Text: fmt.Sprintf(format, args...)})
}

// exists reports whether the configuration's folder holds a file or folder of
// the name. One that cannot be asked about exists, so that reading it says why.
func (l *loader) exists(name string) bool {
	l.watch(name)
	if l.fsys == nil {
		return false
	}
	_, err := fs.Stat(l.at(name))
	return !errors.Is(err, fs.ErrNotExist)
}

// folder returns the sorted names in a folder, leaving out what editors and
// version control put there. A folder that is absent is empty.
func (l *loader) folder(name string) (names []string, ok bool) {
	if !l.exists(name) {
		return nil, true
	}
	entries, err := fs.ReadDir(l.at(name))
	if err != nil {
		l.fault(name, "this folder cannot be read: %s", why(err))
		return nil, false
	}
	if len(entries) > maxFiles {
		l.fault(name, "the folder holds more than %d files", maxFiles)
		return nil, false
	}
	for _, e := range entries {
		if n := e.Name(); !aside(n) {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names, true
}

// aside reports whether a file is no part of the configuration: hidden ones,
// backups and notes for people.
func aside(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasPrefix(name, "#") ||
		strings.HasSuffix(name, ".swp") || strings.EqualFold(path.Ext(name), ".md")
}

// documents reads every *.yaml of a folder; what else stands there is a fault.
func (l *loader) documents(folder string) []value {
	var out []value
	for _, name := range l.documentNames(folder) {
		if v, ok := l.document(name); ok {
			out = append(out, v)
		}
	}
	return out
}

// documentNames are the *.yaml of a folder; what else stands there is a fault.
func (l *loader) documentNames(folder string) (out []string) {
	names, _ := l.folder(folder)
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
	info, err := fs.Stat(l.at(name))
	return err == nil && info.IsDir()
}

// notYet refuses a folder that holds anything, since nothing of it would be
// in force.
func (l *loader) notYet(folder string) {
	if names, _ := l.folder(folder); len(names) > 0 {
		l.fault(folder, "%q is not supported yet; move the folder away", path.Base(folder))
	}
}
