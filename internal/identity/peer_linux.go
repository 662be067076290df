package identity

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// KnowsPeers says that the kernel can tell which user and process a connection from this machine belongs to.
const KnowsPeers = true

// refusePeer asks the kernel for the socket at the other end. It refuses another user, and a process that
// this one has started: the program of a server must not call Switchboard as the local user. It also refuses
// a process that cannot be identified.
func refusePeer(local, remote net.Addr) error {
	uid, inode, err := findSocket(remote, local) // as the other end sees it
	switch {
	case lacksDescriptors(err):
		return errNoDescriptors
	case err != nil:
		return fmt.Errorf("the user who sent the request cannot be told: %w", err)
	case uid != os.Getuid():
		return fmt.Errorf("it comes from another user of this machine (uid %d)", uid)
	}
	ours, err := startedByUs(inode)
	switch {
	case lacksDescriptors(err):
		return errNoDescriptors
	case err != nil:
		return fmt.Errorf("the process that sent the request cannot be told: %w", err)
	case ours:
		return errors.New("it comes from a program that Switchboard itself started")
	}
	return nil
}

// lacksDescriptors reports whether err says that this process or the system has too many open files.
func lacksDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// findSocket finds a TCP socket of this machine by its two ends, and returns its user and its inode.
func findSocket(local, remote net.Addr) (uid int, inode string, err error) {
	from, err1 := netip.ParseAddrPort(local.String())
	to, err2 := netip.ParseAddrPort(remote.String())
	if err1 != nil || err2 != nil {
		return 0, "", fmt.Errorf("%s is no address of TCP", local)
	}
	uid, inode, err = askKernelForSocket(from, to)
	if err == nil || lacksDescriptors(err) {
		return uid, inode, err
	}
	return findSocketInTable(from, to)
}

// findSocketInTable is findSocket for kernels without sock_diag: it reads /proc/net/tcp, as proc(5) describes
// it.
func findSocketInTable(from, to netip.AddrPort) (uid int, inode string, err error) {
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		switch {
		case lacksDescriptors(err):
			return 0, "", err
		case err != nil:
			continue // a system without IPv6
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !matchesAddress(fields[1], from) || !matchesAddress(fields[2], to) {
				continue
			}
			uid, err := strconv.Atoi(fields[7])
			_ = f.Close()
			return uid, fields[9], err
		}
		_ = f.Close()
	}
	return 0, "", fmt.Errorf("the kernel knows no connection from %s", from)
}

// matchesAddress reports whether the text of the kernel's table is the address want: words of four bytes in
// the byte order of the machine, and the port.
func matchesAddress(text string, want netip.AddrPort) bool {
	address, port, _ := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 16, 16); err != nil || uint16(n) != want.Port() || len(port) != len("1CFC") {
		return false
	}
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	return ok && ip.Unmap() == want.Addr().Unmap().WithZone("")
}

// startedByUs reports whether a descendant of this process holds the socket.
func startedByUs(inode string) (bool, error) {
	below, err := descendants(os.Getpid())
	if err != nil {
		return false, err
	}
	link := "socket:[" + inode + "]"
	for _, pid := range below {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		fds, err := os.ReadDir(dir)
		if lacksDescriptors(err) {
			return false, err
		}
		if err != nil {
			continue // it has ended, or belongs to another user and is refused for that reason
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == link {
				return true, nil
			}
		}
	}
	return false, nil
}

// descendants returns the processes that descend from a process. The kernel lists the children of each
// thread.
func descendants(of int) (below []int, err error) {
	for next := []int{of}; len(next) > 0; next = next[1:] {
		threads := filepath.Join("/proc", strconv.Itoa(next[0]), "task")
		all, err := os.ReadDir(threads)
		if err != nil {
			if next[0] == of || lacksDescriptors(err) {
				return nil, err
			}
			continue // it has ended
		}
		for _, thread := range all {
			list, err := os.ReadFile(filepath.Join(threads, thread.Name(), "children"))
			switch {
			case err == nil:
			case next[0] == of && thread.Name() == strconv.Itoa(of), lacksDescriptors(err): // a kernel without lists of children
				return nil, err
			default:
				continue // it has ended
			}
			for child := range strings.FieldsSeq(string(list)) {
				pid, err := strconv.Atoi(child)
				if err != nil {
					return nil, err
				}
				below, next = append(below, pid), append(next, pid)
			}
		}
	}
	return below, nil
}
