package wall

import (
	"errors"
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

// Raise takes on the walls of an order, for this thread and everything that it starts from then on. The caller must hold the thread until it ends,
// and must not use it for anything else. An error means that the program must not be started.
func (o *Order) Raise() (e InEffect, err error) {
	e.Level, e.Walls = o.Level, []string{}
	if o.Level == switchboard.SandboxOff {
		return e, nil
	}
	walled := o.NoNetwork || o.OnlyIP
	if len(o.Hosts) > 0 && !hasOwnNetwork() {
		walled = false
		e.lack(Network, "this thread has no network of its own")
	}
	if err := dropCapabilities(); err != nil {
		return e, err
	}
	e.Walls = append(e.Walls, Capabilities)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return e, fmt.Errorf("set no_new_privs: %w", err)
	}
	e.Walls = append(e.Walls, Setuid, Bounds)
	if o.OwnTemp && o.noTemp != "" {
		e.lack(Temp, o.noTemp)
	} else {
		if o.OwnTemp {
			e.Walls = append(e.Walls, Temp)
		}
		if o.OwnHome {
			e.Walls = append(e.Walls, Home)
		}
	}
	abi := landlockABI()
	switch {
	case abi == 0:
		e.lack(Files, "the kernel has no Landlock, or it is switched off")
	case abi < abiTruncate:
		e.lack(Files, fmt.Sprintf("the kernel's Landlock is of version %d, and cannot stop that files are cut off; version %d, of Linux 6.2, can", abi, abiTruncate))
	default:
		if e.Fixed, err = o.restrictFiles(abi); err != nil {
			return e, err
		}
		e.Walls = append(e.Walls, Files)
	}
	if abi >= abiScope {
		e.Walls = append(e.Walls, Signals)
	} else {
		e.lack(Signals, fmt.Sprintf("this needs version %d of Landlock, of Linux 6.12", abiScope))
	}
	if err := o.restrictCalls(); err != nil {
		e.lack(Calls, err.Error())
	} else {
		e.Walls = append(e.Walls, Calls)
		if walled {
			e.Walls = append(e.Walls, Network)
		}
	}
	if o.Level == switchboard.SandboxStrict && len(e.Missing) > 0 {
		return e, &UnavailableError{e.Missing[0]}
	}
	return e, nil
}

// hasOwnNetwork reports whether this thread has another network than the first thread of the process.
func hasOwnNetwork() bool {
	var own, first unix.Stat_t
	return unix.Stat("/proc/thread-self/ns/net", &own) == nil && unix.Stat("/proc/self/ns/net", &first) == nil && own.Ino != first.Ino
}

// dropCapabilities takes all capabilities from this thread, and from the programs that it executes.
func dropCapabilities() error {
	for c := uintptr(0); c <= 63; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel knows no more
		}
		if errors.Is(err, unix.EPERM) {
			break // a user without capabilities cannot drop any; no_new_privs keeps it so
		}
		if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) // capset clears them too
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}
