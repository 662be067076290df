// Command size prints the size of the program and its largest parts.
//
//	go run ./test/size
//
// It builds the program for Linux as a release is built, and a second time with the table of symbols, which has the size of each function and
// variable. docs/benchmarks.md has the figures and what follows from them.
package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
)

// program is the package of the program.
const program = "github.com/summit-switchboard/switchboard/cmd/switchboard"

// shown is the number of parts that are shown.
const shown = 10

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := printSizes(ctx, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

// printSizes builds the program and prints its size, as a table of Markdown.
func printSizes(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "size-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a folder that stays harms nothing
	stripped, symbols := filepath.Join(dir, "stripped"), filepath.Join(dir, "symbols")
	for _, build := range [][]string{{"-s -w", stripped}, {"-w", symbols}} {
		if _, err := runGo(ctx, "build", "-trimpath", "-ldflags="+build[0], "-o", build[1], program); err != nil {
			return err
		}
	}
	info, err := os.Stat(stripped)
	if err != nil {
		return err
	}
	packages, err := listPackages(ctx)
	if err != nil {
		return err
	}
	parts, err := readParts(symbols, packages)
	if err != nil {
		return err
	}
	if err := addEmbedded(parts, stripped, packages); err != nil {
		return err
	}
	rest := info.Size()
	for _, n := range parts {
		rest -= n
	}
	parts[nameless] += rest
	total := float64(info.Size())
	fmt.Fprintf(out, "%.1f MiB, stripped.\n\n| part | MiB | share |\n| --- | --- | --- |\n", total/(1<<20))
	row := func(part string, n int64) {
		fmt.Fprintf(out, "| %s | %.1f | %.0f %% |\n", part, float64(n)/(1<<20), 100*float64(n)/total)
	}
	others := int64(0)
	for i, p := range slices.SortedFunc(maps.Keys(parts), func(a, b string) int { return cmp.Compare(parts[b], parts[a]) }) {
		if i < shown {
			row(p, parts[p])
		} else {
			others += parts[p]
		}
	}
	row("all others", others)
	return nil
}

// runGo runs the go command for the platform that is measured, without the C compiler, as releases are built.
func runGo(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s", args[0], err, stderr.Bytes())
	}
	return out, nil
}

// The parts that are no modules of others.
const (
	ours     = "Switchboard"
	standard = "the standard library of Go"
	stacks   = "names and lines of all functions, which Go needs for its stacks (pclntab)"
	nameless = "constants, types and tables without a name of their own"
)

// A goPackage is what go list says of a package.
type goPackage struct {
	ImportPath string
	Dir        string
	EmbedFiles []string
	Standard   bool
	Module     struct {
		Path string
		Main bool
	}
}

// part returns the part that the package belongs to.
func (p *goPackage) part() string {
	switch {
	case p.Standard:
		return standard
	case p.Module.Main:
		return ours
	}
	return p.Module.Path
}

// listPackages returns the packages that are linked, by their paths.
func listPackages(ctx context.Context) (map[string]*goPackage, error) {
	out, err := runGo(ctx, "list", "-deps", "-json=ImportPath,Dir,EmbedFiles,Standard,Module", program)
	if err != nil {
		return nil, err
	}
	packages := map[string]*goPackage{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &goPackage{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("the output of go list: %w", err)
		}
		packages[p.ImportPath] = p
		if p.ImportPath == program {
			packages["main"] = p
		}
	}
}

// readParts adds the sizes of the functions and variables of each part. Variables that take room only in memory do not count, and files that are embedded as
// bytes count below.
func readParts(binary string, packages map[string]*goPackage) (map[string]int64, error) {
	f, err := elf.Open(binary)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	parts := map[string]int64{}
	if s := f.Section(".gopclntab"); s != nil {
		parts[stacks] = int64(s.FileSize)
	}
	for _, s := range symbols {
		if s.Section >= elf.SectionIndex(len(f.Sections)) || f.Sections[s.Section].Type != elf.SHT_PROGBITS || f.Sections[s.Section].Name == ".gopclntab" {
			continue
		}
		if p := packages[packageOf(s.Name)]; p != nil && !strings.Contains(s.Name, "..gobytes.") {
			parts[p.part()] += int64(s.Size)
		}
	}
	return parts, nil
}

// packageOf returns the package of a symbol, such as a/b.v1/c of a/b.v1/c.(*T).Method[go.shape.int].
func packageOf(symbol string) string {
	name, _, _ := strings.Cut(symbol, "[")
	name, _, _ = strings.Cut(name, "(")
	folder := strings.LastIndexByte(name, '/') + 1
	base, _, _ := strings.Cut(name[folder:], ".")
	return name[:folder] + strings.ReplaceAll(base, "%2e", ".")
}

// addEmbedded adds the files that packages embed, as far as they are in the binary.
func addEmbedded(parts map[string]int64, binary string, packages map[string]*goPackage) error {
	all, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	for path, p := range packages {
		if path == "main" {
			continue // is there under its own path
		}
		for _, name := range p.EmbedFiles {
			text, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(name)))
			if err != nil {
				return err
			}
			if bytes.Contains(all, text) {
				part := p.part()
				if part != standard {
					part += ": embedded files"
				}
				parts[part] += int64(len(text))
			}
		}
	}
	return nil
}
