package sample

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"
)

// Limits of the code reader.
const (
	maxWalked    = 20_000  // files and folders that one call visits
	maxFile      = 1 << 20 // bytes; larger files are not searched, nor read whole
	maxReadLines = 2000
	maxHitLine   = 400 // bytes of a line that a search shows
)

// A codeReader reads only below one folder: os.Root follows no symbolic link out of it.
type codeReader struct{ root *os.Root }

func newCodeReader(o Options) (*sampleServer, func(), error) {
	dir := o.Root
	if dir == "" {
		dir = "."
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	r := &codeReader{root}
	b := &sampleServer{
		name: "code-reader", title: "Code reader", position: inExtensions,
		instructions: "Reads the files of one source tree. It never changes any. Paths are relative to the tree's root, with slashes.",
	}
	addTool(b, "list_files", "List the files and folders in a folder of the source tree. Folders end in a slash.",
		newCapability("read", "codebase", "readonly"), r.listFiles)
	addTool(b, "read_file", "Read lines of a text file of the source tree.",
		newCapability("read", "codebase", "readonly"), r.readFile)
	addTool(b, "search_code", "Find lines that contain a text, exactly as given, in the files of the source tree.",
		newCapability("search", "codebase", "readonly"), r.searchCode)
	return b, func() { _ = root.Close() }, nil
}

// cleanPath returns a path in the form of io/fs. os.Root would refuse a path that leads out of the
// root too; this gives a better message.
func cleanPath(p string) (string, error) {
	if strings.HasPrefix(p, "/") || strings.ContainsAny(p, "\x00\\") {
		return "", fmt.Errorf("path %q: want a path relative to the root, with slashes", p)
	}
	c := path.Clean(p)
	if !fs.ValidPath(c) {
		return "", fmt.Errorf("path %q: it leads out of the root", p)
	}
	return c, nil
}

// isHidden reports whether the reader must not show a file: files of version control, and files that
// are private by custom.
func isHidden(name string) bool { return strings.HasPrefix(name, ".") && name != "." }

func checkHidden(p string) error {
	for part := range strings.SplitSeq(p, "/") {
		if isHidden(part) {
			return fmt.Errorf("path %q: files and folders that begin with a dot are not read here", p)
		}
	}
	return nil
}

// pathError returns an error without paths of the machine.
func pathError(p string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("path %q: there is no such file or folder", p)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("path %q: permission denied", p)
	}
	return fmt.Errorf("path %q: it cannot be read, or leads out of the root", p)
}

// openFile opens a regular file. The type is checked first, because opening a pipe waits for a writer.
func (r *codeReader) openFile(p string) (*os.File, fs.FileInfo, error) {
	info, err := r.root.Stat(p)
	if err != nil {
		return nil, nil, pathError(p, err)
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("path %q: it is not a regular file", p)
	}
	f, err := r.root.Open(p)
	if err != nil {
		return nil, nil, pathError(p, err)
	}
	return f, info, nil
}

func (r *codeReader) listFiles(_ context.Context, a struct {
	Path  string `json:"path,omitempty" jsonschema:"the folder; the root if not given"`
	Limit int    `json:"limit,omitempty" jsonschema:"at most so many entries, 1 to 1000; 200 if not given"`
},
) (any, error) {
	most, err := checkLimit("limit", a.Limit, 200, 1000)
	if err != nil {
		return nil, err
	}
	dir, err := cleanPath(a.Path)
	if err != nil {
		return nil, err
	}
	if err := checkHidden(dir); err != nil {
		return nil, err
	}
	info, err := r.root.Stat(dir)
	if err != nil {
		return nil, pathError(dir, err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("path %q: it is not a folder", dir)
	}
	entries, err := fs.ReadDir(r.root.FS(), dir) // sorted by name
	if err != nil {
		return nil, pathError(dir, err)
	}
	names, total := []string{}, 0
	for _, e := range entries {
		if isHidden(e.Name()) {
			continue
		}
		if total++; total > most {
			continue
		}
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return map[string]any{"path": dir, "entries": names, "total": total}, nil
}

func (r *codeReader) readFile(_ context.Context, a struct {
	Path  string `json:"path" jsonschema:"the file"`
	From  int    `json:"from,omitempty" jsonschema:"number of the first line, from 1; 1 if not given"`
	Lines int    `json:"lines,omitempty" jsonschema:"at most so many lines, 1 to 2000; 500 if not given"`
},
) (any, error) {
	most, err := checkLimit("lines", a.Lines, 500, maxReadLines)
	if err != nil {
		return nil, err
	}
	if a.From < 0 {
		return nil, fmt.Errorf("from is %d; lines count from 1", a.From)
	}
	p, err := cleanPath(a.Path)
	if err != nil {
		return nil, err
	}
	if err := checkHidden(p); err != nil {
		return nil, err
	}
	f, info, err := r.openFile(p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info.Size() > maxFile {
		return nil, fmt.Errorf("path %q: it has %d bytes; at most %d are read", p, info.Size(), maxFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return nil, pathError(p, err)
	}
	if bytes.IndexByte(data, 0) >= 0 || !utf8.Valid(data) {
		return nil, fmt.Errorf("path %q: it is not a text file", p)
	}
	var out strings.Builder
	n := 0
	for line := range strings.Lines(string(data)) {
		if n++; n >= max(a.From, 1) && n < max(a.From, 1)+most {
			out.WriteString(line)
		}
	}
	if a.From > max(n, 1) {
		return nil, fmt.Errorf("path %q: it has %d lines; there is no line %d", p, n, a.From)
	}
	return out.String(), nil
}

// A hit is one line that a search found.
type codeHit struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

func (r *codeReader) searchCode(ctx context.Context, a struct {
	Text  string `json:"text" jsonschema:"what a line must contain, in the same case"`
	Path  string `json:"path,omitempty" jsonschema:"the folder to search; the root if not given"`
	Limit int    `json:"limit,omitempty" jsonschema:"at most so many lines, 1 to 200; 50 if not given"`
},
) (any, error) {
	most, err := checkLimit("limit", a.Limit, 50, 200)
	if err != nil {
		return nil, err
	}
	if err := checkText("text", a.Text, 1000); err != nil {
		return nil, err
	}
	dir, err := cleanPath(a.Path)
	if err != nil {
		return nil, err
	}
	if err := checkHidden(dir); err != nil {
		return nil, err
	}
	if _, err := r.root.Stat(dir); err != nil {
		return nil, pathError(dir, err)
	}
	hits, walked, cut := []codeHit{}, 0, false
	err = fs.WalkDir(r.root.FS(), dir, func(p string, e fs.DirEntry, err error) error {
		if walked++; walked > maxWalked || len(hits) >= most || ctx.Err() != nil {
			cut = true
			return fs.SkipAll
		}
		switch {
		case err != nil:
			return nil // skip files that cannot be read
		case isHidden(e.Name()) && e.IsDir():
			return fs.SkipDir
		case isHidden(e.Name()) || !e.Type().IsRegular():
			return nil
		}
		f, info, err := r.openFile(p)
		if err != nil || info.Size() > maxFile {
			return closeRead(f)
		}
		hits, cut = appendHits(f, p, a.Text, hits, most)
		return closeRead(f)
	})
	if err != nil {
		return nil, pathError(dir, err)
	}
	return map[string]any{"hits": hits, "incomplete": cut || ctx.Err() != nil}, nil
}

// closeRead closes f, which was only read from and may be nil.
func closeRead(f *os.File) error {
	if f != nil {
		_ = f.Close()
	}
	return nil
}

// appendHits adds the lines of in that contain text, up to most hits, and reports whether it stopped
// at that limit. A file with a NUL is not text.
func appendHits(in io.Reader, p, text string, hits []codeHit, most int) ([]codeHit, bool) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxFile)
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		if strings.IndexByte(line, 0) >= 0 {
			break
		}
		if !strings.Contains(line, text) {
			continue
		}
		if len(hits) == most {
			return hits, true
		}
		hits = append(hits, codeHit{p, n, shorten(strings.ToValidUTF8(line, "\uFFFD"))})
	}
	return hits, false
}

// shorten cuts a line to maxHitLine bytes, between characters.
func shorten(line string) string {
	if len(line) <= maxHitLine {
		return line
	}
	n := maxHitLine
	for !utf8.RuneStart(line[n]) {
		n--
	}
	return line[:n] + "…"
}
