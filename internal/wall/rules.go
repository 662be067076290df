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
	Link(path string) (string, bool)  // where the path itself leads, as its text says; ok is false if it is no link
	Real(path string) (string, bool)  // the path without links; ok is false if nothing is there
	Match(pattern string) []string    // paths that match a pattern
	FirstLine(path string) (s string) // of a file, or ""
}

// rules returns what an order allows, by path. A rule never includes anything hidden, except READ_DIR: names are no secret, and programs list
// the folders above their own.
//
// fixed are folders that the settings of the server name and that have something hidden in them, so that nothing new can be made there.
func (o *Order) rules(d disk) (all []rule, fixed []string) {
	x := o.newRules(d)
	x.changeable = o.changeable(d)
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
		x.addProgram(o.Program)
		if o.Level == switchboard.SandboxStrict {
			x.addInterpreters(o.Program)
		}
	}
	o.addWritten(x)
	for _, pattern := range o.Devices {
		for _, path := range d.Match("/dev/" + pattern) {
			if real, ok := d.Real(path); ok && (within(real, "/dev") || within(real, "/run/shm")) {
				x.expand(real, readRight|writeRight|useRight, x.hidden)
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
	return all, outermost(x.fixed)
}

// newRules returns an empty set of rules, which knows what is hidden.
func (o *Order) newRules(d disk) *grantedRules {
	x := &grantedRules{disk: d, allow: map[string]rights{}}
	x.own = x.places(o.Own)
	x.hidden = append(x.places(o.Hidden), x.own...)
	return x
}

// addWritten adds the rules for all that may be written.
func (o *Order) addWritten(x *grantedRules) {
	for _, path := range o.Shared {
		x.permit(path, readRight|writeRight)
	}
	x.fixed = nil // those of the settings alone are told
	for _, path := range o.Write {
		x.permit(path, readRight|writeRight)
	}
	o.addDir(x)
	for _, path := range o.Named {
		o.addNamed(x, path)
	}
}

// changeable returns the folders in which the program may make links, now or at an earlier start: those that it may write if all links count.
func (o *Order) changeable(d disk) (all []string) {
	x := o.newRules(d)
	o.addWritten(x)
	if o.Level != switchboard.SandboxStrict {
		for _, path := range o.Named {
			// A folder may have been a file before, or nothing.
			if around := filepath.Dir(path); !o.isSystem(x, path) && o.isOrdinary(x, around) {
				x.permit(around, writeRight)
			}
		}
	}
	for path, allow := range x.allow {
		if allow&writeRight != 0 {
			all = append(all, path)
		}
	}
	return all
}

// outermost returns the paths without those that are below another one, sorted.
func outermost(paths []string) (out []string) {
	slices.Sort(paths)
	for _, path := range paths {
		if !slices.ContainsFunc(out, func(o string) bool { return within(path, o) }) {
			out = append(out, path)
		}
	}
	return out
}

// addDir adds the rules for Dir, the folder of the program.
func (o *Order) addDir(x *grantedRules) {
	if o.Dir == "" || o.isSystem(x, o.Dir) {
		return
	}
	if o.Chosen {
		x.permit(o.Dir, readRight|writeRight)
	} else if real, ok := x.follow(o.Dir); ok && !x.holdsHome(o, real) {
		x.expand(real, readRight|writeRight, x.hidden)
	}
}

// addNamed adds the rules for a path that the settings of the server name.
func (o *Order) addNamed(x *grantedRules, path string) {
	dir, there := x.disk.Kind(path)
	switch {
	case o.Level == switchboard.SandboxStrict:
		if there && !dir {
			x.permit(path, readRight)
		}
		return
	case o.isSystem(x, path):
		return
	case x.isHidden(path) && !dir: // the operator has named a secret for this server
		x.permit(path, readRight)
		return
	}
	x.permit(path, readRight|writeRight)
	if dir {
		return
	}
	if around := filepath.Dir(path); o.isOrdinary(x, around) {
		x.permit(around, readRight|writeRight)
	} else if real, ok := x.disk.Real(around); ok && x.holdsHome(o, real) {
		x.fixed = append(x.fixed, real) // where other programs make further files beside it
	}
}

// isSystem reports whether a path is never made writable because it is named, by its text or where it leads.
func (*Order) isSystem(x *grantedRules, path string) bool {
	system := func(path string) bool {
		in := func(folders []string) bool {
			return slices.ContainsFunc(folders, func(f string) bool { return within(path, f) })
		}
		return path == "/" || in(systemFolders) && !in(userFolders)
	}
	real, ok := x.disk.Real(path)
	return system(path) || ok && system(real)
}

// isOrdinary reports whether a folder is made writable because a file in it is named.
func (o *Order) isOrdinary(x *grantedRules, folder string) bool {
	real, ok := x.disk.Real(folder)
	return ok && !o.isSystem(x, folder) && !slices.Contains(wideFolders, folder) && !slices.Contains(wideFolders, real) && !x.holdsHome(o, real) && !x.isHidden(folder)
}

// A grantedRules is rules that are being made from paths.
type grantedRules struct {
	disk   disk
	hidden []string // those of secrets, and own
	own    []string
	fixed  []string // folders to be changed with something hidden in them
	allow  map[string]rights

	changeable []string // files and folders that the program may have changed
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

// holdsHome reports whether a folder is the home, or above it.
func (x *grantedRules) holdsHome(o *Order, folder string) bool {
	home, ok := x.disk.Real(o.Home)
	return ok && within(home, folder)
}

// maxLinks limits how many links one path leads through, as the kernel does.
const maxLinks = 40

// follow returns where a path leads. It does not follow a link that the program may have made: then ok is false.
func (x *grantedRules) follow(path string) (real string, ok bool) {
	real, ok = x.disk.Real(path)
	if !ok || real == path {
		return real, ok
	}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, isLink := x.disk.Link(next)
		if !isLink {
			at = next
			continue
		}
		if links++; links > maxLinks || slices.ContainsFunc(x.changeable, func(f string) bool { return within(next, f) }) {
			return "", false
		}
		if filepath.IsAbs(target) {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return at, true
}

// permit allows something for a path that the operator names, and for everything below that is not hidden. A place of secrets that is named,
// or something in one, is not hidden, and nothing else becomes visible by it. Switchboard's own files stay hidden.
func (x *grantedRules) permit(path string, allow rights) {
	real, ok := x.follow(path)
	if !ok {
		return // nothing is there, or a link leads elsewhere
	}
	for _, place := range x.hidden {
		if !within(path, place) {
			continue
		}
		if home, ok := x.disk.Real(place); ok && within(real, home) {
			x.expand(real, allow, x.own)
		}
		return
	}
	x.expand(real, allow, x.hidden)
}

// addProgram allows the program itself, which may be in a place of secrets.
func (x *grantedRules) addProgram(path string) {
	if real, ok := x.follow(path); ok {
		x.expand(real, readRight|execRight, x.own)
	}
}

// expand allows something for a path without links, and for everything below that is not hidden.
func (x *grantedRules) expand(path string, allow rights, hidden []string) {
	if path == "/dev" {
		return // disks are there; see Order.Devices
	}
	inside := within("/dev", path)
	for _, h := range hidden {
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
		entry := filepath.Join(path, name)
		if _, isLink := x.disk.Link(entry); !isLink { // where a link leads has rules of its own
			x.expand(entry, allow, hidden)
		}
	}
}

// maxInterpreters limits how many programs the kernel executes for one script.
const maxInterpreters = 4

// addInterpreters allows the programs that the kernel executes for a script: those in its first line. A script that the program can write gets none,
// since its first line is the program's.
func (x *grantedRules) addInterpreters(program string) {
	for range maxInterpreters {
		real, ok := x.follow(program)
		if dir, there := x.disk.Kind(real); !ok || dir || !there || slices.ContainsFunc(x.changeable, func(f string) bool { return within(real, f) }) {
			return
		}
		line, ok := strings.CutPrefix(x.disk.FirstLine(real), "#!")
		words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
		if !ok || len(words) == 0 {
			return
		}
		program = words[0]
		x.addProgramFile(program)
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
		x.addProgramFile(program)
	}
}

// addProgramFile allows a file to be executed, if it is one and not hidden.
func (x *grantedRules) addProgramFile(path string) {
	real, ok := x.follow(path)
	if dir, there := x.disk.Kind(real); ok && there && !dir {
		x.expand(real, readRight|execRight, x.hidden)
	}
}

// lookPath finds a program as env does.
func (x *grantedRules) lookPath(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return ""
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if isDir, ok := x.disk.Kind(path); ok && !isDir {
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
