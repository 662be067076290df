package wall

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Rights are what a rule allows.
type rights uint8

// The rights.
const (
	seeRight   rights = 1 << iota // list folders
	readRight                     // read files, and list folders
	execRight                     // execute files
	writeRight                    // change, make and remove
	useRight                      // of a device: its own calls
)

// A rule allows something for a file, or for a folder and everything below it.
type rule struct {
	path  string
	allow rights
}

// A disk is what rules are made from. It is the system's, except in tests.
type disk interface {
	List(dir string) []string         // the names in a folder; nil if it cannot be listed
	Kind(path string) (dir, ok bool)  // follows links; ok is false if nothing is there
	IsLink(path string) bool          // the path itself is a link
	Real(path string) (string, bool)  // the path without links
	Match(pattern string) []string    // paths that match a pattern
	FirstLine(path string) (s string) // of a file, or ""
}

// rules returns what an order allows, by path. A rule never includes anything hidden, except READ_DIR: names are no secret, and programs list
// the folders above their own.
//
// fixed are folders that the settings of the server name and that have something hidden in them, so that nothing new can be made there.
func (o *Order) rules(d disk) (all []rule, fixed []string) {
	x := &grantedRules{disk: d, allow: map[string]rights{}}
	x.own = x.places(o.Own)
	x.hidden = append(x.places(o.Hidden), x.own...)
	for _, path := range o.See {
		x.allow[path] |= seeRight
	}
	for _, path := range o.Read {
		x.permit(path, readRight)
	}
	for _, path := range o.Exec {
		x.permit(path, readRight|execRight)
	}
	if o.Program != "" {
		x.addHidden(o.Program, readRight|execRight)
		if o.Level == switchboard.SandboxStrict {
			x.addInterpreters(o.Program)
		}
	}
	for _, path := range o.Shared {
		x.permit(path, readRight|writeRight)
	}
	x.fixed = nil
	for _, path := range o.Write {
		x.permit(path, readRight|writeRight)
	}
	for _, path := range o.Named {
		o.addNamed(x, path)
	}
	for _, pattern := range o.Devices {
		for _, path := range d.Match("/dev/" + pattern) {
			if real, ok := d.Real(path); ok && (within(real, "/dev") || within(real, "/run/shm")) {
				x.expand(real, readRight|writeRight|useRight)
			}
		}
	}
	if real, ok := d.Real(o.Installed); ok && o.Installed != "" {
		x.allow[real] |= readRight | execRight
	}
	all = make([]rule, 0, len(x.allow))
	for path, allow := range x.allow {
		all = append(all, rule{path, allow})
	}
	slices.SortFunc(all, func(a, b rule) int { return cmp.Compare(a.path, b.path) })
	slices.Sort(x.fixed)
	return all, slices.Compact(x.fixed)
}

// addNamed adds the rules for a path that the settings of the server name.
func (o *Order) addNamed(x *grantedRules, path string) {
	dir, there := x.disk.Kind(path)
	allow := readRight
	switch {
	case o.Level == switchboard.SandboxStrict:
		if there && !dir {
			x.addHidden(path, allow)
		}
		return
	case path == "/", slices.ContainsFunc(systemFolders, func(f string) bool { return within(path, f) }) && !slices.ContainsFunc(userFolders, func(f string) bool { return within(path, f) }):
		return
	case x.isHidden(path): // the operator has named a secret for this server
		if dir {
			allow |= writeRight
		}
		x.addHidden(path, allow)
		return
	}
	x.add(path, allow|writeRight)
	if around := filepath.Dir(path); !dir && around != o.Home && around != filepath.Dir(o.Home) && !slices.Contains(wideFolders, around) {
		x.add(around, allow|writeRight)
	}
}

// A grantedRules is rules that are being made from paths.
type grantedRules struct {
	disk   disk
	hidden []string // those of secrets, and own
	own    []string
	fixed  []string // folders to be changed with something hidden in them
	allow  map[string]rights
}

// places returns the paths, and where they lead if they are links.
func (x *grantedRules) places(paths []string) (all []string) {
	for _, path := range paths {
		all = append(all, path)
		if real, ok := x.disk.Real(path); ok && real != path {
			all = append(all, real)
		}
	}
	return all
}

// isHidden reports whether a path is something hidden, or in it.
func (x *grantedRules) isHidden(path string) bool {
	return slices.ContainsFunc(x.hidden, func(h string) bool { return within(path, h) })
}

// permit is add for a path that was asked for by its name: a place of secrets, or something in one, is then not hidden.
func (x *grantedRules) permit(path string, allow rights) {
	if x.isHidden(path) {
		x.addHidden(path, allow)
		return
	}
	x.add(path, allow)
}

// addHidden is add for a path that may be in a place of secrets. Nothing makes Switchboard's own files visible.
func (x *grantedRules) addHidden(path string, allow rights) {
	real, ok := x.disk.Real(path)
	if ok && !slices.ContainsFunc(x.own, func(o string) bool { return within(real, o) || within(o, real) }) {
		x.allow[real] |= allow
		return
	}
	x.add(path, allow)
}

// add allows something for a path and everything below that is not hidden.
func (x *grantedRules) add(path string, allow rights) {
	real, ok := x.disk.Real(path)
	if !ok {
		return // nothing is there
	}
	x.expand(real, allow)
}

// expand is add for a path without links.
func (x *grantedRules) expand(path string, allow rights) {
	if path == "/dev" {
		return // disks are there; see Order.Devices
	}
	inside := within("/dev", path)
	for _, h := range x.hidden {
		if within(path, h) {
			return
		}
		inside = inside || within(h, path)
	}
	if !inside {
		x.allow[path] |= allow
		return
	}
	if allow&writeRight != 0 {
		x.fixed = append(x.fixed, path)
	}
	for _, name := range x.disk.List(path) {
		if entry := filepath.Join(path, name); !x.disk.IsLink(entry) { // where a link leads has rules of its own
			x.expand(entry, allow)
		}
	}
}

// maxInterpreters limits how many programs the kernel executes for one script.
const maxInterpreters = 4

// addInterpreters allows the programs that the kernel executes for a script: those in its first line.
func (x *grantedRules) addInterpreters(program string) {
	for range maxInterpreters {
		line, ok := strings.CutPrefix(x.disk.FirstLine(program), "#!")
		words := strings.Fields(line)
		if !ok || len(words) == 0 {
			return
		}
		program = words[0]
		x.add(program, readRight|execRight)
		if filepath.Base(program) != "env" {
			continue
		}
		name := ""
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
				name = w
				break
			}
		}
		if program = x.lookPath(name); program == "" {
			return
		}
		x.add(program, readRight|execRight)
	}
}

// lookPath finds a program as env does.
func (x *grantedRules) lookPath(name string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if isDir, ok := x.disk.Kind(path); name != "" && ok && !isDir {
			return path
		}
	}
	return ""
}

// within reports whether a path is a folder, or below it.
func within(path, folder string) bool {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(folder, "/"))
	return ok && (rest == "" || rest[0] == '/')
}
