package wall

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Prepare makes the folders of an order, and bounds what this process and its children may use. It is called once, on any thread. dir is the own
// temp folder of the program, or "" if it has none; a machine on which none can be made lacks a wall.
func (o *Order) Prepare() (dir string, err error) {
	if o.Level == switchboard.SandboxOff {
		return "", nil
	}
	for _, path := range o.Made {
		_ = os.MkdirAll(path, 0o700) // else the program says what it lacks
	}
	if o.OwnTemp {
		dir, err = os.MkdirTemp("", "switchboard-")
		if err == nil {
			dir, err = filepath.EvalSymlinks(dir)
		}
		if err != nil {
			dir, o.noTemp = "", err.Error()
		} else {
			o.Write = append(o.Write, dir)
		}
	}
	return dir, o.bound()
}

// bound bounds what each process may use.
func (o *Order) bound() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || o.Limits.Files == 0 || files.Max <= o.Limits.Files {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(files.Cur, o.Limits.Files), Max: o.Limits.Files}); err != nil {
		return fmt.Errorf("bound its open files: %w", err)
	}
	return nil
}

// hasOwnNetwork reports whether this thread has another network than the first thread of the process.
func hasOwnNetwork() bool {
	var own, first unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Stat("/proc/self/ns/net", &first) == nil && own.Ino != first.Ino
}
