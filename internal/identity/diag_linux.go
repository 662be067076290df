package identity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// The kernel's messages about sockets: sock_diag(7), linux/inet_diag.h.
const (
	diagByFamily   = 20 // SOCK_DIAG_BY_FAMILY
	diagRequest    = unix.NLMSG_HDRLEN + 56
	diagAnswer     = unix.NLMSG_HDRLEN + 72
	diagOfUID      = unix.NLMSG_HDRLEN + 64
	diagOfInode    = unix.NLMSG_HDRLEN + 68
	diagOfSource   = unix.NLMSG_HDRLEN + 8
	diagOfAddress  = diagOfSource + 4
	diagOfDest     = diagOfAddress + 16
	diagOfCookie   = diagRequest - 8
	diagEveryState = 1<<12 - 1
)

// askKernelForSocket finds a TCP socket by its two ends. It looks up one entry of the kernel's table; a read
// of /proc/net/tcp walks through all entries.
func askKernelForSocket(local, remote netip.AddrPort) (uid int, inode string, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = unix.Close(s) }()
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return 0, "", err
	}
	if err := unix.Sendto(s, encodeDiagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, "", err
	}
	var answer [4096]byte
	n, from, err := unix.Recvfrom(s, answer[:], 0)
	if err != nil {
		return 0, "", err
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return 0, "", errors.New("an answer that is not the kernel's")
	}
	return decodeDiagAnswer(answer[:n], local, remote)
}

// encodeDiagRequest returns the request for the socket with these ends, in any state.
func encodeDiagRequest(local, remote netip.AddrPort) []byte {
	b := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(b, diagRequest)
	binary.NativeEndian.PutUint16(b[4:], diagByFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	family := byte(unix.AF_INET6)
	if local.Addr().Unmap().Is4() {
		family = unix.AF_INET
	}
	b[unix.NLMSG_HDRLEN], b[unix.NLMSG_HDRLEN+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+4:], diagEveryState)
	binary.BigEndian.PutUint16(b[diagOfSource:], local.Port())
	binary.BigEndian.PutUint16(b[diagOfSource+2:], remote.Port())
	copy(b[diagOfAddress:], local.Addr().Unmap().AsSlice())
	copy(b[diagOfDest:], remote.Addr().Unmap().AsSlice())
	for i := diagOfCookie; i < diagRequest; i++ {
		b[i] = 0xff // any cookie
	}
	return b
}

// decodeDiagAnswer decodes the kernel's answer. If there is no such connection, the kernel answers with a socket that listens at its
// local address, which may be somebody else's: decodeDiagAnswer refuses it.
func decodeDiagAnswer(b []byte, local, remote netip.AddrPort) (uid int, inode string, err error) {
	if len(b) < unix.NLMSG_HDRLEN+4 {
		return 0, "", errors.New("an answer that is too short")
	}
	switch kind := binary.NativeEndian.Uint16(b[4:]); {
	case kind == unix.NLMSG_ERROR:
		return 0, "", unix.Errno(-int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])))
	case kind != diagByFamily || len(b) < diagAnswer:
		return 0, "", fmt.Errorf("an answer of kind %d with %d bytes", kind, len(b))
	}
	const source = unix.NLMSG_HDRLEN + 4
	if !isDiagEnd(b, source, source+4, local) || !isDiagEnd(b, source+2, source+20, remote) {
		return 0, "", errors.New("an answer about another socket")
	}
	return int(binary.NativeEndian.Uint32(b[diagOfUID:])), strconv.FormatUint(uint64(binary.NativeEndian.Uint32(b[diagOfInode:])), 10), nil
}

// isDiagEnd reports whether an end of the socket in the answer is want. A socket of IPv6 may have an address of IPv4 in its form of IPv6.
func isDiagEnd(b []byte, port, address int, want netip.AddrPort) bool {
	ip := netip.AddrFrom16([16]byte(b[address:]))
	if b[unix.NLMSG_HDRLEN] == unix.AF_INET {
		ip = netip.AddrFrom4([4]byte(b[address:]))
	}
	return binary.BigEndian.Uint16(b[port:]) == want.Port() && ip.Unmap() == want.Addr().Unmap().WithZone("")
}
