// Package serving keeps operator.json: which processes serve from a data folder, and how a program of the same user reaches
// them.
//
//	{"rows":[{"id":"…","address":"127.0.0.1:41231","token":"…","pid":812,"version":"v1.4.0",
//	          "configuration":"/home/ann/switchboard.yaml","identity":"sha256:…","tenant":"default","url":"http://127.0.0.1:7420","admin":"http://127.0.0.1:7422"}]}
//
// The file is for its owner only, because a token in it lets a client in. Each row has a lock file, which its process holds
// as long as it lives. The kernel releases the lock when the process ends, however it ends; so if the lock of a row can be taken, its process
// is dead. A process id proves nothing, because it is used again.
//
// The package decides which rows count. Who may use a row is decided by package join.
package serving

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Names within the data folder.
const (
	File       = "operator.json"
	lockFolder = "serving" // holds the lock files
	editLock   = "edit"    // held while the file is changed
	startLock  = "start"   // held while a process is started
)

// Bounds of the file.
const (
	maxRows = 64
	maxFile = 256 << 10
)

// A Neighbor describes one process that serves from the folder.
type Neighbor struct {
	ID      string // names the lock file; also distinguishes a process from a later one with the same pid
	Address string // where clients join, HOST:PORT
	Token   switchboard.Secret
	PID     int
	Version string

	// Configuration is the absolute path of the configuration, and Tenant the tenant of keyless callers.
	Configuration string
	Tenant        switchboard.TenantID

	// Identity is equal for two processes if a client gets the same from both; see Identity.
	Identity string

	// URL is where the process serves agents over HTTP, without a path; "" if it does not. Admin is its admin address alike.
	URL   string
	Admin string
}

// row is a Neighbor as the file has it.
type row struct {
	ID            string               `json:"id"`
	Address       string               `json:"address"`
	Token         string               `json:"token"`
	PID           int                  `json:"pid"`
	Version       string               `json:"version"`
	Configuration string               `json:"configuration"`
	Identity      string               `json:"identity"`
	Tenant        switchboard.TenantID `json:"tenant"`
	URL           string               `json:"url,omitempty"`
	Admin         string               `json:"admin,omitempty"`
}

type document struct {
	Rows []row `json:"rows"`
}

// tokenBytes and idBytes are the sizes of the random parts of a row.
const (
	tokenBytes = 32
	idBytes    = 16
)

// NewToken returns a new token of 256 random bits.
func NewToken() switchboard.Secret { return switchboard.NewSecret(randomHex(tokenBytes)) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b)
	return hex.EncodeToString(b)
}

// Identity returns a digest. A client may use each process with its own identity. The digest covers the version, the path of
// the configuration, and the flags that change what clients see. The content of the configuration is not part of it, so an edit
// does not separate the clients.
func Identity(version, configuration string, flags ...string) string {
	text, _ := json.Marshal(append([]string{version, configuration}, flags...)) // strings: it cannot fail
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// A Claim is the row of this process.
type Claim struct {
	dir  string
	id   string
	lock *os.File
}

// Add writes the row of this process into the folder, and drops the rows of processes that have ended. It sets r.ID. The caller
// must call Remove when the process stops to serve.
func Add(ctx context.Context, dir string, r Neighbor) (*Claim, error) {
	if err := ownfile.MakeFolders(filepath.Join(dir, lockFolder)); err != nil {
		return nil, err
	}
	c := &Claim{dir: dir, id: randomHex(idBytes)}
	var err error
	if c.lock, err = openLock(dir, c.id); err != nil {
		return nil, err
	}
	if ok, err := ownfile.TryLock(c.lock); !ok {
		return nil, errors.Join(fmt.Errorf("lock of the own row: %w", cmp.Or(err, errLocked)), c.lock.Close())
	}
	err = edit(ctx, dir, func(rows []row) ([]row, error) {
		if len(rows) >= maxRows {
			return nil, fmt.Errorf("%d processes serve from %s, its limit", maxRows, dir)
		}
		return append(rows, row{
			c.id, r.Address, r.Token.Reveal(), os.Getpid(), r.Version, r.Configuration, r.Identity, r.Tenant, r.URL, r.Admin,
		}), nil
	})
	if err != nil {
		_ = c.lock.Close()
		_ = os.Remove(lockName(dir, c.id))
		return nil, err
	}
	return c, nil
}

// errLocked says that another process holds a lock.
var errLocked = errors.New("another process holds it")

// Remove removes the row. If the file cannot be written, the row counts as dead as soon as the process has ended.
func (c *Claim) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), editWait)
	defer cancel()
	err := edit(ctx, c.dir, func(rows []row) ([]row, error) {
		return slices.DeleteFunc(rows, func(r row) bool { return r.ID == c.id }), nil
	})
	return errors.Join(err, c.lock.Close(), ignoreMissing(os.Remove(lockName(c.dir, c.id))))
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Rows returns the rows of the processes that live, the newest first. A folder without the file has none. The error says that
// other users may read the file or write it, or that it is damaged; then no row counts.
func Rows(dir string) ([]Neighbor, error) {
	rows, err := readRows(dir)
	if err != nil {
		return nil, err
	}
	var alive []Neighbor
	for _, r := range slices.Backward(rows) {
		if isAlive(dir, r.ID) {
			alive = append(alive, Neighbor{
				r.ID, r.Address, switchboard.NewSecret(r.Token), r.PID, r.Version, r.Configuration, r.Tenant, r.Identity, r.URL, r.Admin,
			})
		}
	}
	return alive, nil
}

// readRows reads the file, also the rows of the dead.
func readRows(dir string) ([]row, error) {
	name := filepath.Join(dir, File)
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	info, err := f.Stat()
	if err == nil {
		err = cmp.Or(checkOwner(info), ownfile.Check(name, name, info))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil || len(text) > maxFile || len(d.Rows) > maxRows {
		return nil, fmt.Errorf("%s does not hold what Switchboard writes; remove it: each process that serves from here writes its row when it starts", name)
	}
	for _, r := range d.Rows {
		if !isHex(r.ID, idBytes) || !isHex(r.Token, tokenBytes) {
			return nil, fmt.Errorf("%s has a row that Switchboard has not written; remove the file", name)
		}
	}
	return d.Rows, nil
}

func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes
}

// isAlive reports whether the process of the row lives: it holds the lock then.
func isAlive(dir, id string) bool {
	f, err := ownfile.Open(lockName(dir, id), os.O_RDWR)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it is empty
	got, err := ownfile.TryLockShared(f)
	return !got && err == nil
}

func lockName(dir, id string) string { return filepath.Join(dir, lockFolder, id+".lock") }

func openLock(dir, id string) (*os.File, error) {
	if err := ownfile.MakeFolders(filepath.Join(dir, lockFolder)); err != nil {
		return nil, err
	}
	return ownfile.Open(lockName(dir, id), os.O_CREATE|os.O_RDWR)
}

// Waits for locks of other processes.
const (
	editWait = 5 * time.Second

	// The time between two attempts grows, so that fifty clients that wait for one process to start leave it the processor.
	minLockRetry = 10 * time.Millisecond
	maxLockRetry = 200 * time.Millisecond
)

// takeLock takes the lock of that name, and waits for it until ctx is done. tick, if not nil, is called between two attempts; it may
// end the wait.
func takeLock(ctx context.Context, dir, name string, tick func() (enough bool)) (release func(), err error) {
	f, err := openLock(dir, name)
	if err != nil {
		return nil, err
	}
	for wait := minLockRetry; ; wait = min(2*wait, maxLockRetry) {
		ok, err := ownfile.TryLock(f)
		switch {
		case err != nil:
			return nil, errors.Join(err, f.Close())
		case ok:
			return func() { _ = f.Close() }, nil
		case tick != nil && tick():
			_ = f.Close()
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process holds the lock %s: %w", lockName(dir, name), ctx.Err()), f.Close())
		case <-time.After(wait):
		}
	}
}

// LockStart takes the right to start a process that serves from the folder. While another process has it, LockStart calls served
// again and again; if that returns true, LockStart gives up, and release is nil without an error.
func LockStart(ctx context.Context, dir string, served func() bool) (release func(), err error) {
	if err := ownfile.MakeFolders(dir); err != nil {
		return nil, err
	}
	return takeLock(ctx, dir, startLock, served)
}

// edit replaces the rows by the result of change. change gets only rows of living processes. Readers see the old file or the new
// one, never half of it.
func edit(ctx context.Context, dir string, change func([]row) ([]row, error)) error {
	ctx, cancel := context.WithTimeout(ctx, editWait)
	defer cancel()
	release, err := takeLock(ctx, dir, editLock, nil)
	if err != nil {
		return err
	}
	defer release()
	rows, err := readRows(dir)
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r row) bool {
		dead := !isAlive(dir, r.ID)
		if dead {
			_ = os.Remove(lockName(dir, r.ID)) // no process takes a lock of this name again
		}
		return dead
	})
	if rows, err = change(rows); err != nil {
		return err
	}
	text, err := json.Marshal(document{rows})
	if err != nil {
		return err
	}
	f, err := ownfile.CreateTemp(dir, File+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync() // or a power cut may keep the new name and lose the text
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, File))
}
