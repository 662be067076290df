package wall

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The versions of Landlock that added what we use.
const (
	abiRefer    = 2 // moving files between folders
	abiTruncate = 3
	abiNetwork  = 4 // TCP
	abiDevice   = 5 // calls of devices
	abiScope    = 6 // signals and abstract sockets
)

// landlockABI returns the version of the kernel's Landlock; 0 if it has none.
func landlockABI() int {
	abi, _, err := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if err != 0 {
		return 0
	}
	return int(abi)
}

// handledFiles returns all rights on files that a version knows, and so refuses where no rule allows them.
func handledFiles(abi int) uint64 {
	all := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1)
	if abi >= abiRefer {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= abiTruncate {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= abiDevice {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// fileRights are the rights that can be given for something that is no folder.
const fileRights = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
	unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV

// kernelRights returns the kernel's rights for ours.
func kernelRights(r rights) (all uint64) {
	if r&seeRight != 0 {
		all |= unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if r&readRight != 0 {
		all |= unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	}
	if r&execRight != 0 {
		all |= unix.LANDLOCK_ACCESS_FS_EXECUTE
	}
	if r&writeRight != 0 {
		all |= handledFiles(abiTruncate) &^ (unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
			unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR)
	}
	if r&useRight != 0 {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return all
}

// makeRules returns the order's rules as an open file of Landlock, which the caller closes. fixed are as for rules.
func (o *Order) makeRules(abi int) (set int, fixed []string, err error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handledFiles(abi)}
	if abi >= abiNetwork && o.NoNetwork {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= abiScope {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
	}
	fd, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Offsetof(attr.Quiet_access_fs), 0)
	if errno != 0 {
		return -1, nil, fmt.Errorf("make rules: %w", errno)
	}
	rules, fixed := o.rules(systemDisk{})
	for _, r := range rules {
		if err := addRule(int(fd), r, attr.Handled_access_fs); err != nil {
			unix.Close(int(fd)) //nolint:errcheck // it was not written to
			return -1, nil, err
		}
	}
	return int(fd), fixed, nil
}

// addRule adds a rule to a set of rules. A path that cannot be opened cannot be used either, and gets no rule.
func addRule(set int, r rule, handled uint64) error {
	// The path has no links. If one has appeared meanwhile, the rule would be for another place.
	fd, err := unix.Openat2(unix.AT_FDCWD, r.path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) { // a filter of system calls around us knows no openat2
		fd, err = unix.Open(r.path, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	}
	if err != nil {
		return nil // see above
	}
	defer unix.Close(fd) //nolint:errcheck // it was only named
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil // see above
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: kernelRights(r.allow) & handled, Parent_fd: int32(fd)}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		attr.Allowed_access &= fileRights
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("a rule for %s: %w", r.path, errno)
	}
	return nil
}

// systemDisk is the disk of this machine.
type systemDisk struct{}

func (systemDisk) List(dir string) []string {
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	names, _ := f.Readdirnames(-1)
	return names
}

func (systemDisk) Kind(path string) (dir, ok bool) {
	var st unix.Stat_t
	err := unix.Stat(path, &st)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err == nil
}

func (systemDisk) Link(path string) (string, bool) {
	target, err := os.Readlink(path)
	return target, err == nil
}

func (systemDisk) Real(path string) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	return real, err == nil
}

func (systemDisk) Match(pattern string) []string {
	found, _ := filepath.Glob(pattern)
	return found
}

func (systemDisk) FirstLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // it was only read
	var head [256]byte
	n, err := f.Read(head[:])
	if err != nil && !errors.Is(err, os.ErrClosed) {
		return ""
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return string(line)
}
