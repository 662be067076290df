// Package scratch gives tests what of the machine is theirs alone: addresses on loopback that
// nobody else is given, and folders in memory.
package scratch

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports are below those from which the system takes the ones of connections, and of
// who asks for any: one of these could be another's while its server is down.
const (
	first = 16000
	ports = 32768 - first // Linux begins there
)

// given are the addresses that Listen has returned in this process.
var given sync.Map

// Listen listens at an address that nobody is given but who asks for it: it stays
// free after the listener is closed. The error says that none was found.
func Listen() (net.Listener, error) {
	var last error
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports))
		if _, taken := given.LoadOrStore(addr, true); taken {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err == nil {
			return l, nil
		}
		last = err
	}
	return nil, fmt.Errorf("no port is free: %w", last)
}

// Addr returns such an address, at which nobody listens.
func Addr() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
