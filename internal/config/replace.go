package config

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// A replacedFS is a file system in which some files have another content, or do not exist. A folder exists if it exists in the file
// system below, or if one of the files is in it.
type replacedFS struct {
	fs.FS
	files map[string][]byte // by path; nil means that the file does not exist
}

// replaceFiles returns fsys with the files in folder replaced. The paths begin at the folder above.
func replaceFiles(fsys fs.FS, folder string, files map[string][]byte) fs.FS {
	inside := map[string][]byte{}
	for name, data := range files {
		if folder == "" {
			inside[name] = data
		} else if rest, ok := strings.CutPrefix(name, folder+"/"); ok {
			inside[rest] = data
		}
	}
	if len(inside) == 0 {
		return fsys
	}
	return replacedFS{fsys, inside}
}

// Open implements fs.FS.
func (r replacedFS) Open(name string) (fs.File, error) {
	data, replaced := r.files[name]
	switch {
	case replaced && data == nil:
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	case replaced:
		return &memoryFile{memoryInfo{path.Base(name), int64(len(data)), 0o600}, bytes.NewReader(data)}, nil
	}
	f, err := r.FS.Open(name)
	if err != nil && r.holds(name) {
		return &memoryFile{memoryInfo{path.Base(name), 0, fs.ModeDir | 0o700}, bytes.NewReader(nil)}, nil
	}
	return f, err
}

// holds reports whether one of the files is in the folder.
func (r replacedFS) holds(folder string) bool {
	for name, data := range r.files {
		if data != nil && strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return false
}

// ReadDir implements fs.ReadDirFS.
func (r replacedFS) ReadDir(folder string) ([]fs.DirEntry, error) {
	below, err := fs.ReadDir(r.FS, folder)
	if err != nil && !r.holds(folder) {
		return nil, err
	}
	entries := map[string]fs.DirEntry{}
	for _, e := range below {
		entries[e.Name()] = e
	}
	for name, data := range r.files {
		rest := name
		if folder != "." {
			var ok bool
			if rest, ok = strings.CutPrefix(name, folder+"/"); !ok {
				continue
			}
		}
		first, deeper, nested := strings.Cut(rest, "/")
		switch {
		case nested && data != nil && deeper != "":
			if entries[first] == nil {
				entries[first] = fs.FileInfoToDirEntry(memoryInfo{first, 0, fs.ModeDir | 0o700})
			}
		case nested:
		case data == nil:
			delete(entries, first)
		default:
			entries[first] = fs.FileInfoToDirEntry(memoryInfo{first, int64(len(data)), 0o600})
		}
	}
	out := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out, nil
}

// A memoryFile is an open file of a replacedFS.
type memoryFile struct {
	info memoryInfo
	*bytes.Reader
}

// Stat implements fs.File.
func (f *memoryFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read implements fs.File.
func (f *memoryFile) Read(b []byte) (int, error) {
	if f.info.IsDir() {
		return 0, &fs.PathError{Op: "read", Path: f.info.name, Err: fs.ErrInvalid}
	}
	n, err := f.Reader.Read(b)
	if n == 0 && len(b) > 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// Close implements fs.File.
func (f *memoryFile) Close() error { return nil }

type memoryInfo struct {
	name string
	size int64
	mode fs.FileMode
}

func (i memoryInfo) Name() string       { return i.name }
func (i memoryInfo) Size() int64        { return i.size }
func (i memoryInfo) Mode() fs.FileMode  { return i.mode }
func (i memoryInfo) ModTime() time.Time { return time.Time{} }
func (i memoryInfo) IsDir() bool        { return i.mode.IsDir() }
func (i memoryInfo) Sys() any           { return nil }
