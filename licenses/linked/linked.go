// Package linked finds the works of others in the program, and the licenses that come with them.
//
// It decides which works these are: the modules of all packages that are linked on any platform, Go itself, and the data in embedded.go.
// It reads everything from the module cache. Whether a license is acceptable is its caller's matter.
package linked

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/google/licensecheck"
)

// A Work is a work of others.
type Work struct {
	Name    string // the path of a module, or the name of other data
	Version string // "" if the version is that of another work
	In      string // the work or file that contains it; "" for a module
	Texts   []Text

	unread []error // texts with other terms than those of known licenses, as far as a program can tell
}

// IDs returns the SPDX ids of the licenses, sorted.
func (w *Work) IDs() []string {
	var ids []string
	for _, t := range w.Texts {
		ids = append(ids, t.IDs...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// A Text is a license or a notice.
type Text struct {
	File string // within the work
	Text string
	IDs  []string // SPDX ids, sorted; none for a notice, which only has to be passed on
}

// ErrAbsent says that a module is not in the module cache and could not be downloaded.
var ErrAbsent = errors.New("not in the module cache")

// platforms are the platforms that programs are built for.
var platforms = []struct{ os, arch string }{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"freebsd", "amd64"},
}

// program is the package of the program.
const program = "./cmd/switchboard"

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	EmbedFiles []string
	Standard   bool
	Module     *goModule
}

// A goModule is what go list says of a module.
type goModule struct {
	Path, Version, Dir string
	Main               bool
	Replace            *struct{ Path string }
}

// Find returns the works in the program, sorted by name: Go first, then modules, then other data. root is the folder of the repository.
func Find(ctx context.Context, root string) ([]Work, error) {
	packages, err := listPackages(ctx, root)
	if err != nil {
		return nil, err
	}
	works := map[string]*Work{}
	dirs := map[string]string{}
	var embedders []string
	for _, p := range packages {
		if len(p.EmbedFiles) > 0 && !p.Standard {
			embedders = append(embedders, p.ImportPath)
		}
		m := p.Module
		switch {
		case m == nil || m.Main:
			continue
		case m.Replace != nil:
			return nil, fmt.Errorf("%s is replaced by %s; package linked knows only modules with a version", m.Path, m.Replace.Path)
		case m.Dir == "":
			return nil, fmt.Errorf("%s %s: %w", m.Path, m.Version, ErrAbsent)
		}
		w := works[m.Path]
		if w == nil {
			w = &Work{Name: m.Path, Version: m.Version}
			works[m.Path] = w
			dirs[m.Path] = m.Dir
		}
		folders := map[string]bool{p.Dir: true}
		for _, f := range p.EmbedFiles {
			folders[filepath.Dir(filepath.Join(p.Dir, filepath.FromSlash(f)))] = true
		}
		for dir := range folders {
			if err := w.addFiles(m.Dir, dir); err != nil {
				return nil, err
			}
		}
	}
	golang := Work{Name: "Go"}
	goRoot, err := runGo(ctx, root, nil, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	if err := golang.addFiles(strings.TrimSpace(string(goRoot)), strings.TrimSpace(string(goRoot))); err != nil {
		return nil, err
	}
	all := []Work{golang}
	for _, name := range slices.Sorted(maps.Keys(works)) {
		all = append(all, *works[name])
	}
	data, err := findData(root, embedders, dirs)
	if err != nil {
		return nil, err
	}
	all = append(all, data...)
	var unread []error
	for _, w := range all {
		unread = append(unread, w.unread...)
		if len(w.unread) == 0 && len(w.IDs()) == 0 {
			unread = append(unread, fmt.Errorf("%s %s has no license that package linked finds", w.Name, w.Version))
		}
	}
	return all, errors.Join(unread...)
}

// listPackages returns the packages that are linked on any platform.
func listPackages(ctx context.Context, root string) (map[string]goPackage, error) {
	packages := map[string]goPackage{}
	for _, p := range platforms {
		out, err := runGo(ctx, root, []string{"CGO_ENABLED=0", "GOOS=" + p.os, "GOARCH=" + p.arch},
			"list", "-e", "-deps", "-json=ImportPath,Dir,EmbedFiles,Standard,Module", program)
		if err != nil {
			return nil, err
		}
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var one goPackage
			if err := d.Decode(&one); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("the output of go list: %w", err)
			}
			packages[one.ImportPath] = one
		}
	}
	return packages, nil
}

func runGo(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, e.Stderr)
	}
	return out, err
}

// licenseName matches the names of files with licenses and notices.
var licenseName = regexp.MustCompile(`(?i)^(un)?licen[sc]e|^copying|^notice|^patents$|^attrib`)

// noticeName matches those that hold no license.
var noticeName = regexp.MustCompile(`(?i)^notice|^patents$|^attrib`)

// addFiles adds the licenses in the folder of a package and in those above it, up to the folder of the module.
func (w *Work) addFiles(module, dir string) error {
	rel, err := filepath.Rel(module, dir)
	if err != nil || strings.HasPrefix(rel, "..") {
		return fmt.Errorf("%s: the folder of a package, %s, is not in that of its module", w.Name, dir)
	}
	for rel = filepath.ToSlash(rel); ; rel = path.Dir(rel) {
		entries, err := os.ReadDir(filepath.Join(module, filepath.FromSlash(rel)))
		if err != nil {
			return err
		}
		for _, e := range entries {
			file := path.Join(rel, e.Name())
			if !e.Type().IsRegular() || !licenseName.MatchString(e.Name()) || strings.HasSuffix(file, ".go") || w.has(file) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(file)))
			if err != nil {
				return err
			}
			w.add(file, string(text))
		}
		if rel == "." {
			slices.SortFunc(w.Texts, func(a, b Text) int { return strings.Compare(a.File, b.File) })
			return nil
		}
	}
}

func (w *Work) has(file string) bool {
	return slices.ContainsFunc(w.Texts, func(t Text) bool { return t.File == file })
}

// add adds a text.
func (w *Work) add(file, text string) {
	t := Text{File: file, Text: tidy(text)}
	if !noticeName.MatchString(path.Base(file)) {
		ids, err := recognize(t.Text)
		if err != nil {
			w.unread = append(w.unread, fmt.Errorf("%s: %s: %w", w.Name, file, err))
		}
		t.IDs = ids
	}
	w.Texts = append(w.Texts, t)
}

// tidy returns the text with line ends of Unix, no spaces at the end of lines, and one line end at its own end.
func tidy(text string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		lines = append(lines, strings.TrimRight(line, " \t\f"))
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

// Recognized are the licenses that the texts are searched for. They ask for their text and the copyright, and for nothing else that a user
// or a distributor has to do. A text with another license is an error.
var Recognized = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

var scanner = sync.OnceValues(func() (*licensecheck.Scanner, error) {
	var wanted []licensecheck.License
	for _, l := range licensecheck.BuiltinLicenses() {
		if slices.Contains(Recognized, l.ID) && l.URL == "" { // a link is no text
			wanted = append(wanted, l)
		}
	}
	return licensecheck.NewScanner(wanted)
})

// leastCoverage is the share of a text, in percent, that must be the text of known licenses. The rest is the name of the work and its authors: some
// eight words beside the shortest license.
const leastCoverage = 95

// recognize returns the SPDX ids of the licenses in a text. A text with other terms in it is an error, unless reviewed has it.
func recognize(text string) ([]string, error) {
	if ids, ok := reviewed[digest(text)]; ok {
		return strings.Fields(ids), nil
	}
	s, err := scanner()
	if err != nil {
		return nil, err
	}
	found := s.Scan([]byte(text))
	var ids []string
	for _, m := range found.Match {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if len(ids) == 0 || found.Percent < leastCoverage {
		return nil, fmt.Errorf("only %.0f %% of the text is a known license (%s); read it, and add its ids to reviewed in embedded.go with the digest %s",
			found.Percent, strings.Join(ids, ", "), digest(text))
	}
	return ids, nil
}
