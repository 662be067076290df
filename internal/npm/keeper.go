package npm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	group        = "packages" // of the store; it has the digests of installed folders
	storeTimeout = 2 * time.Second

	// unusedTime is how long the folder of another version is kept: a process may still be running from it.
	unusedTime = 24 * time.Hour
)

// A Store keeps the digests of installed folders. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// A Keeper installs packages, and checks them before each start. Use NewKeeper. It is safe for concurrent use.
type Keeper struct {
	dir   string
	store Store
	log   *slog.Logger

	mu    sync.Mutex
	doors map[string]*sync.Mutex // one for each folder: what starts at once installs once
}

// NewKeeper returns a Keeper that installs below a folder, which it makes. With a nil Store, what it installs is not compared later.
func NewKeeper(dir string, s Store, log *slog.Logger) *Keeper {
	return &Keeper{dir: dir, store: s, log: log, doors: map[string]*sync.Mutex{}}
}

// ErrChanged says that a file of an installed package has changed since it was installed.
var ErrChanged = errors.New("its files have changed since they were installed")

// Prepare returns the row of a server with the command of its package's program and the folder of the package. It installs the package if that has not
// been done. A row without a package is returned as it is. The error says why the program must not be started: ErrNoClient and ErrChanged among others.
func (k *Keeper) Prepare(ctx context.Context, s *switchboard.Server) (*switchboard.Server, error) {
	if s.Package.Name == "" {
		return s, nil
	}
	if k.dir == "" {
		return nil, errors.New("a package is installed below the data folder, and there is none; start Switchboard with --data DIR")
	}
	l, err := packagelock.Read([]byte(s.Package.Lock))
	if err != nil {
		return nil, fmt.Errorf("its lock cannot be used: %w", err)
	}
	dir, err := k.install(ctx, s.ID, l)
	if err != nil {
		return nil, err
	}
	prepared := *s
	prepared.Package.Dir = dir
	if prepared.Command, err = Command(l, dir, s.Command); err != nil {
		return nil, err
	}
	return &prepared, nil
}

// Command returns the command that runs a program of the package in dir. The first item of command names the program, and the others are its arguments. Without items, the
// package must have one program.
func Command(l *packagelock.Lock, dir string, command []string) ([]string, error) {
	programs := l.Packages[l.Home()].Programs
	name, args := "", []string(nil)
	if len(command) > 0 {
		name, args = command[0], command[1:]
	} else if names := l.ProgramNames(); len(names) == 1 {
		name = names[0]
	}
	file, ok := programs[name]
	if !ok {
		return nil, fmt.Errorf("%s has no program %q; it has: %s", l.Spec, name, strings.Join(l.ProgramNames(), ", "))
	}
	full := filepath.Join(dir, filepath.FromSlash(path.Join(l.Home(), file)))
	if runsInNode(full) {
		return slices.Concat([]string{"node", full}, args), nil
	}
	return slices.Concat([]string{full}, args), nil
}

// runsInNode reports whether the program is a script for Node.js. A script for another interpreter names it in its first line, and a native program is neither.
func runsInNode(file string) bool {
	f, err := os.Open(file)
	if err != nil {
		return true // node says that it is not there
	}
	defer func() { _ = f.Close() }() // it was only read from
	head := make([]byte, 128)
	n, _ := io.ReadFull(f, head) // a short file is short
	first, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if bytes.HasPrefix(first, []byte("#!")) {
		return bytes.Contains(first, []byte("node"))
	}
	return slices.Contains([]string{".js", ".mjs", ".cjs"}, filepath.Ext(file))
}

// install returns the folder with the packages of the lock, which are as they were installed.
func (k *Keeper) install(ctx context.Context, id switchboard.ServerID, l *packagelock.Lock) (string, error) {
	_, hex, _ := strings.Cut(string(l.Digest()), ":")
	of, name := filepath.Join(k.dir, string(id)), hex[:16]
	dir := filepath.Join(of, name)
	defer k.enter(dir)()
	_, missing := os.Stat(dir)
	kept, _, err := k.kept(ctx, id, l)
	if err != nil {
		return "", fmt.Errorf("the store does not answer, so the files of %s cannot be compared: %w", l.Spec, err)
	}
	if missing != nil || len(kept) == 0 && k.store != nil { // or the store has forgotten what was installed, so it is installed aside
		sum, err := k.installNew(ctx, id, l, of, dir)
		if err != nil {
			return "", fmt.Errorf("%s is not installed: %w", l.Spec, err)
		}
		kept = append(kept, string(sum))
		k.removeOld(of, name)
	}
	sum, err := DigestFolder(dir)
	if err != nil {
		return "", fmt.Errorf("the folder %s of %s cannot be checked: %w", dir, l.Spec, err)
	}
	if k.store != nil && !slices.Contains(kept, string(sum)) {
		return "", fmt.Errorf("%w, so %s is not started: look who has changed them, then delete the folder %s, and it is installed again", ErrChanged, l.Spec, dir)
	}
	used := time.Now()
	if err := os.Chtimes(dir, used, used); err != nil { // so that it is not removed while programs run from it; see removeOld
		return "", err
	}
	return dir, nil
}

// enter waits until no other goroutine is in the folder. leave must be called.
func (k *Keeper) enter(dir string) (leave func()) {
	k.mu.Lock()
	door := k.doors[dir]
	if door == nil {
		door = &sync.Mutex{}
		k.doors[dir] = door
	}
	k.mu.Unlock()
	door.Lock()
	return door.Unlock
}

// installNew installs the packages in a new folder, keeps its digest, and then gives it its name, unless a folder has that name already.
func (k *Keeper) installNew(ctx context.Context, id switchboard.ServerID, l *packagelock.Lock, of, dir string) (switchboard.Digest, error) {
	began := time.Now()
	if err := os.MkdirAll(of, 0o700); err != nil {
		return "", err
	}
	aside, err := os.MkdirTemp(of, newPrefix)
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(aside) }() // it has another name by then, or is of no use
	if err := Install(ctx, l, aside, filepath.Join(k.dir, cacheName)); err != nil {
		return "", err
	}
	sum, err := DigestFolder(aside)
	if err != nil {
		return "", err
	}
	if err := k.keep(ctx, id, l, sum); err != nil {
		return "", fmt.Errorf("the store does not answer, so what was installed cannot be compared later: %w", err)
	}
	if err := os.Rename(aside, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			return "", err
		}
		return sum, nil
	}
	k.log.Info("a package is installed", "server", id, "package", l.Spec.String(), "packages", len(l.Packages), "took", time.Since(began).Round(time.Millisecond))
	return sum, nil
}

// newPrefix begins the names of folders that npm is installing packages in.
const newPrefix = ".new-"

// removeOld removes the folders of other versions that no program has been started from for long.
func (k *Keeper) removeOld(of, but string) {
	entries, err := os.ReadDir(of)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() == but || time.Since(info.ModTime()) < unusedTime {
			continue
		}
		if err := os.RemoveAll(filepath.Join(of, e.Name())); err != nil {
			k.log.Warn("the folder of an earlier version of a package is not removed", "folder", filepath.Join(of, e.Name()), "err", err)
		}
	}
}

// key names the digests of the folders that machines like this one install for the lock. The same lock gives other files on other systems.
func key(id switchboard.ServerID, l *packagelock.Lock) store.Key {
	return store.Key{Group: group, Name: string(id) + " " + string(l.Digest()) + " " + platform()}
}

// maxKept is how many digests are kept for one lock. Versions of npm can differ in a file that they write.
const maxKept = 16

// kept returns the digests that the store keeps, and their version.
func (k *Keeper) kept(ctx context.Context, id switchboard.ServerID, l *packagelock.Lock) (sums []string, at store.Version, err error) {
	if k.store == nil {
		return nil, 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := k.store.Value(ctx, key(id, l))
	return strings.Fields(string(v.Data)), v.Version, err
}

// keep adds the digest of an installed folder.
func (k *Keeper) keep(ctx context.Context, id switchboard.ServerID, l *packagelock.Lock, sum switchboard.Digest) error {
	if k.store == nil {
		return nil
	}
	for {
		sums, was, err := k.kept(ctx, id, l)
		if err != nil || slices.Contains(sums, string(sum)) {
			return err
		}
		sums = append(sums, string(sum))
		sums = sums[max(0, len(sums)-maxKept):]
		if err := k.write(ctx, key(id, l), was, strings.Join(sums, "\n")); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

func (k *Keeper) write(ctx context.Context, at store.Key, was store.Version, text string) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := k.store.Apply(ctx, store.Change{Group: at.Group, Durable: true, Writes: []store.Write{{Name: at.Name, Was: was, Data: []byte(text)}}})
	return err
}
