package powercut

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sector is how much of a write is kept or lost as a whole.
const sector = 512

// A Disk is a folder as a disk has it: what is durable, and the changes that are not.
type Disk struct {
	// DropSync, if not nil, makes a sync do nothing: a test of a test.
	DropSync func(event int) bool

	root    *node
	at      string             // the path of root in the calls that are replayed
	offsets map[string]int     // of open files, by descriptor and path
	appends map[string]bool    // whether an open file is written at its end
	covers  map[*Call][]func() // what the sync makes durable when it returns
	under   map[*Call]*change  // writes that have not returned
}

// A node is a file or a folder.
type node struct {
	mode    fs.FileMode
	names   map[string]*node // as the program sees the folder, nil for a file
	durable map[string]*node
	moves   []*move // changes of names that are not durable, in their order

	live    []byte // as the program sees the file
	synced  []byte
	changes []*change // changes of the file that are not durable, in their order
}

// A change is a write to a file, or a new length of it.
type change struct {
	at   int
	data []byte
	cut  bool // the file gets the length at
	done bool // the call has returned
}

// A move changes names in one or two folders.
type move struct {
	names []naming
	done  bool // it is durable
}

type naming struct {
	in   *node
	name string
	is   *node // nil means that the name is removed
}

// NewDisk returns a Disk that has everything in the folder, durable.
func NewDisk(dir string) (*Disk, error) {
	d := &Disk{offsets: map[string]int{}, appends: map[string]bool{}, covers: map[*Call][]func(){}, under: map[*Call]*change{}}
	var err error
	d.root, err = load(dir)
	return d, err
}

func load(path string) (*node, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	n := &node{mode: info.Mode().Perm()}
	if !info.IsDir() {
		n.synced, err = os.ReadFile(path)
		n.live = bytes.Clone(n.synced)
		return n, err
	}
	n.names, n.durable = map[string]*node{}, map[string]*node{}
	list, err := os.ReadDir(path)
	for _, e := range list {
		child, err := load(filepath.Join(path, e.Name()))
		if err != nil {
			return nil, err
		}
		n.names[e.Name()], n.durable[e.Name()] = child, child
	}
	return n, err
}

// find returns the node of a path. If the folder of the path is on the disk, in and name say where the path stands.
func (d *Disk) find(path string) (n, in *node, name string) {
	rest, ok := strings.CutPrefix(path, d.at)
	if !ok || rest != "" && rest[0] != '/' {
		return nil, nil, ""
	}
	n = d.root
	for part := range strings.SplitSeq(strings.Trim(rest, "/"), "/") {
		if part == "" {
			continue
		}
		if n == nil || n.names == nil {
			return nil, nil, ""
		}
		in, name = n, part
		n = n.names[part]
	}
	return n, in, name
}

// Replay replays the events of a program. root is the path of the folder in these events.
func (d *Disk) Replay(root string, events []Event) error {
	d.at = root
	for i, e := range events {
		if len(e.Args) == 0 || e.IsSync() && d.DropSync != nil && d.DropSync(i) {
			continue
		}
		do := d.begin
		if e.Returns {
			do = d.end
		}
		if err := do(e.Call); err != nil {
			return fmt.Errorf("event %d: %s: %w", i, e.Name, err)
		}
	}
	return nil
}

var errUnknown = errors.New("this package does not know what that does")

// begin takes what a call may do from its begin on.
func (d *Disk) begin(c *Call) error {
	switch c.Name {
	case "write", "writev", "pwrite64", "pwritev", "pwritev2", "fsync", "fdatasync", "ftruncate", "fallocate":
	default:
		return nil
	}
	fd, path, gone := c.file(0)
	n, _, _ := d.find(path)
	if n == nil && !gone && strings.HasPrefix(path, d.at+"/") {
		return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if n == nil || gone {
		return nil
	}
	if c.IsSync() {
		d.covers[c] = n.sync()
		return nil
	}
	w := &change{}
	var err error
	switch c.Name {
	case "write", "writev":
		w.data, w.at = c.data(1), d.offsets[fd+path]
		if d.appends[fd+path] {
			w.at = len(n.live)
		}
	case "pwrite64", "pwritev", "pwritev2":
		w.data = c.data(1)
		w.at, err = c.number(3)
	case "ftruncate":
		w.cut = true
		w.at, err = c.number(1)
	case "fallocate":
		var at, size int
		at, err = c.number(2)
		if err == nil {
			size, err = c.number(3)
		}
		switch {
		case err != nil:
		case c.Args[1] == "0":
			w.cut, w.at = true, max(at+size, len(n.live))
		case c.Args[1] == "FALLOC_FL_KEEP_SIZE":
			return nil
		default:
			err = errUnknown
		}
	}
	if err != nil {
		return err
	}
	n.changes = append(n.changes, w)
	n.live = w.apply(n.live)
	d.under[c] = w
	return nil
}

// sync returns functions that make durable what n has now.
func (n *node) sync() (durable []func()) {
	for _, w := range n.changes {
		if w.done {
			durable = append(durable, func() {
				if i := slices.Index(n.changes, w); i >= 0 {
					n.changes = slices.Delete(n.changes, i, i+1)
					n.synced = w.apply(n.synced)
				}
			})
		}
	}
	for _, m := range n.moves {
		durable = append(durable, func() { m.apply(func(folder *node) map[string]*node { return folder.durable }); m.done = true })
	}
	return durable
}

// end takes what a call has done when it returns.
func (d *Disk) end(c *Call) error {
	w, covers := d.under[c], d.covers[c]
	delete(d.under, c)
	delete(d.covers, c)
	switch {
	case w != nil && (c.Result < 0 || !w.cut && c.Result != len(w.data)):
		return fmt.Errorf("%w: a write of %d bytes returned %d", errUnknown, len(w.data), c.Result)
	case c.Result < 0:
		return nil
	}
	if w != nil {
		w.done = true
		if fd, path, _ := c.file(0); c.Name == "write" || c.Name == "writev" {
			d.offsets[fd+path] = w.at + len(w.data)
		}
		return nil
	}
	for _, durable := range covers {
		durable()
	}
	return d.change(c)
}

// change takes a call that changes names, modes or open files.
func (d *Disk) change(c *Call) error {
	switch c.Name {
	case "open":
		return d.open(c, c.Args[1], c.Args[2:])
	case "openat":
		return d.open(c, c.Args[2], c.Args[3:])
	case "mkdir":
		return d.mkdir(c.path(0), c.Args[1])
	case "mkdirat":
		return d.mkdir(c.path(1), c.Args[2])
	case "unlink", "rmdir":
		return d.rename(c.path(0), "", false)
	case "unlinkat":
		return d.rename(c.path(1), "", false)
	case "rename":
		return d.rename(c.path(0), c.path(1), false)
	case "renameat":
		return d.rename(c.path(1), c.path(3), false)
	case "renameat2":
		if c.Args[4] != "0" && c.Args[4] != "RENAME_NOREPLACE" {
			return errUnknown
		}
		return d.rename(c.path(1), c.path(3), false)
	case "link":
		return d.rename(c.path(0), c.path(1), true)
	case "linkat":
		return d.rename(c.path(1), c.path(3), true)
	case "lseek":
		if fd, path, _ := c.file(0); d.offsets != nil {
			d.offsets[fd+path] = c.Result
		}
	case "fchmod":
		_, path, _ := c.file(0)
		return d.chmod(path, c.Args[1])
	case "chmod":
		return d.chmod(c.path(0), c.Args[1])
	case "fchmodat":
		return d.chmod(c.path(1), c.Args[2])
	case "truncate", "creat", "symlink", "symlinkat", "copy_file_range", "io_uring_setup", "sync", "syncfs", "sync_file_range", "msync":
		for i := range c.Args {
			if strings.Contains(c.Args[i], `"`) && strings.HasPrefix(c.path(i), d.at+"/") {
				return errUnknown
			}
		}
	}
	return nil
}

func (d *Disk) open(c *Call, flags string, mode []string) error {
	path := c.Opened
	n, in, name := d.find(path)
	if in == nil && n == nil {
		return nil // outside
	}
	key := fmt.Sprint(c.Result, path)
	d.offsets[key], d.appends[key] = 0, strings.Contains(flags, "O_APPEND")
	if strings.Contains(flags, "O_TMPFILE") {
		return errUnknown
	}
	if n == nil && len(mode) > 0 {
		var perm uint32
		if _, err := fmt.Sscanf(mode[0], "%o", &perm); err != nil {
			return err
		}
		(&move{names: []naming{{in, name, &node{mode: fs.FileMode(perm)}}}}).record()
		return nil
	}
	if n == nil {
		return fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if strings.Contains(flags, "O_TRUNC") && len(n.live) > 0 {
		n.changes = append(n.changes, &change{cut: true, done: true})
		n.live = nil
	}
	return nil
}

func (d *Disk) mkdir(path, mode string) error {
	_, in, name := d.find(path)
	if in == nil {
		return nil
	}
	var perm uint32
	if _, err := fmt.Sscanf(mode, "%o", &perm); err != nil {
		return err
	}
	(&move{names: []naming{{in, name, &node{mode: fs.FileMode(perm), names: map[string]*node{}, durable: map[string]*node{}}}}}).record()
	return nil
}

// rename removes the name from, unless it is kept, and gives its file the name to, unless that is "".
func (d *Disk) rename(from, to string, kept bool) error {
	n, in, name := d.find(from)
	_, target, as := d.find(to)
	if (in == nil || n == nil) && target == nil {
		return nil
	}
	if n == nil || to != "" && target == nil {
		return fmt.Errorf("%s to %q: %w", from, to, fs.ErrNotExist)
	}
	m := &move{}
	if !kept {
		m.names = append(m.names, naming{in, name, nil})
	}
	if to != "" {
		m.names = append(m.names, naming{target, as, n})
	}
	m.record()
	return nil
}

func (d *Disk) chmod(path, mode string) error {
	n, _, _ := d.find(path)
	if n == nil {
		return nil
	}
	var perm uint32
	_, err := fmt.Sscanf(mode, "%o", &perm)
	n.mode = fs.FileMode(perm)
	return err
}

// record makes the move visible to the program.
func (m *move) record() {
	m.apply(func(folder *node) map[string]*node { return folder.names })
	for _, n := range m.names {
		n.in.moves = append(n.in.moves, m)
	}
}

func (m *move) apply(of func(*node) map[string]*node) {
	if m.done {
		return
	}
	for _, n := range m.names {
		if n.is == nil {
			delete(of(n.in), n.name)
		} else {
			of(n.in)[n.name] = n.is
		}
	}
}

// apply returns the file with the change.
func (w *change) apply(file []byte) []byte {
	end := w.at + len(w.data)
	if w.cut && w.at < len(file) {
		return file[:w.at:w.at]
	}
	if end > len(file) {
		file = append(file, make([]byte, end-len(file))...)
	}
	copy(file[w.at:], w.data)
	return file
}

// Cut writes into a new folder what the disk has after a power cut: what is durable, and of all other changes a part that luck chooses. kept is the
// probability that a change of a name, or a sector of a write, is kept.
func (d *Disk) Cut(luck *rand.Rand, kept float64, into string) error {
	chosen := map[*move]bool{}
	keep := func() bool { return luck.Float64() < kept }
	return d.root.write(into, func(n *node) (map[string]*node, []byte) {
		names := maps.Clone(n.durable)
		for _, m := range n.moves {
			if m.done {
				continue
			}
			if _, ok := chosen[m]; !ok {
				chosen[m] = keep()
			}
			if !chosen[m] {
				continue
			}
			for _, one := range m.names {
				switch {
				case one.in != n:
				case one.is == nil:
					delete(names, one.name)
				default:
					names[one.name] = one.is
				}
			}
		}
		return names, n.cut(luck, keep)
	})
}

// cut returns what is left of a file.
func (n *node) cut(luck *rand.Rand, keep func() bool) []byte {
	file := bytes.Clone(n.synced)
	for _, w := range n.changes {
		if w.cut {
			if keep() {
				file = w.apply(file)
			}
			continue
		}
		for at := w.at; at < w.at+len(w.data); {
			end := min((at/sector+1)*sector, w.at+len(w.data))
			if keep() {
				file = (&change{at: at, data: w.data[at-w.at : end-w.at]}).apply(file)
			}
			at = end
		}
	}
	// A disk may know the new length of a file, and not have its data.
	if len(n.live) > len(file) && len(n.changes) > 0 && luck.IntN(2) == 0 && keep() {
		file = append(file, make([]byte, len(n.live)-len(file))...)
	}
	return file
}

// Whole writes into a new folder what the program sees.
func (d *Disk) Whole(into string) error {
	return d.root.write(into, func(n *node) (map[string]*node, []byte) { return n.names, n.live })
}

func (n *node) write(path string, state func(*node) (map[string]*node, []byte)) error {
	names, file := state(n)
	if n.names == nil {
		if err := os.WriteFile(path, file, n.mode); err != nil {
			return err
		}
		return os.Chmod(path, n.mode)
	}
	if err := os.MkdirAll(path, n.mode|0o700); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) { // in an order, or luck would not be the same again
		if err := names[name].write(filepath.Join(path, name), state); err != nil {
			return err
		}
	}
	return os.Chmod(path, n.mode)
}
