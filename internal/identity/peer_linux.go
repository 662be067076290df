package identity

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// KnowsPeers says that the kernel is asked which user and process a connection from this machine belongs to.
const KnowsPeers = true

// peerOf asks the kernel for the socket at the other end. It refuses another user, and a process that this one has started: a server's
// program must not call its neighbours. What cannot be told is refused.
func peerOf(local, remote net.Addr) (refusal string) {
	uid, inode, err := socketOf(remote, local) // as the other end sees it
	switch {
	case err != nil:
		return "which user has sent the request cannot be told: " + err.Error()
	case uid != os.Getuid():
		return fmt.Sprintf("it comes from another user of this machine (uid %d)", uid)
	}
	ours, err := startedByUs(inode)
	switch {
	case err != nil:
		return "which process has sent the request cannot be told: " + err.Error()
	case ours:
		return "it comes from a program that Switchboard itself has started"
	}
	return ""
}

// socketOf finds a TCP socket of this machine by its two ends, and says which user it belongs to and what its inode is. Lines are of the
// form that proc(5) gives for /proc/net/tcp.
func socketOf(local, remote net.Addr) (uid int, inode string, err error) {
	from, err1 := netip.ParseAddrPort(local.String())
	to, err2 := netip.ParseAddrPort(remote.String())
	if err1 != nil || err2 != nil {
		return 0, "", fmt.Errorf("%s is no address of TCP", local)
	}
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if err != nil {
			continue // a system without IPv6
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 10 || !isAddress(fields[1], from) || !isAddress(fields[2], to) {
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

// isAddress reports whether the text of the kernel's table is the address: words of four bytes in the byte order of the machine, and
// the port.
func isAddress(text string, want netip.AddrPort) bool {
	address, port, _ := strings.Cut(text, ":")
	if n, err := strconv.ParseUint(port, 16, 16); err != nil || uint16(n) != want.Port() {
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

// startedByUs reports whether a process below this one holds the socket.
func startedByUs(inode string) (bool, error) {
	below, err := descendants(os.Getpid())
	if err != nil {
		return false, err
	}
	link := "socket:[" + inode + "]"
	for _, pid := range below {
		dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
		fds, err := os.ReadDir(dir)
		if err != nil {
			continue // it has ended, or it is another user's, who is refused as such
		}
		for _, fd := range fds {
			if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == link {
				return true, nil
			}
		}
	}
	return false, nil
}

// descendants returns the processes below one.
func descendants(of int) (below []int, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// "pid (name) state parent …", where the name may hold anything.
		text := string(stat)
		fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 {
			if parent, err := strconv.Atoi(fields[1]); err == nil {
				children[parent] = append(children[parent], pid)
			}
		}
	}
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		below = append(below, pid)
	}
	return below, nil
}
