// Package scratch gives tests what of the machine is theirs: addresses on loopback that
// nobody takes by chance, and folders in memory.
package scratch

import (
	"errors"
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

// Listen listens at an address that nobody is given but who asks for it, nor anybody by
// Listen in this process: it stays free after the listener is closed.
func Listen() (net.Listener, error) {
	why := errors.New("all are given")
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(ports)))
		if err != nil {
			why = err
			continue
		}
		if _, taken := given.LoadOrStore(l.Addr().String(), true); !taken {
			return l, nil
		}
		_ = l.Close()
	}
	return nil, fmt.Errorf("no port is free: %w", why)
}

// Addr returns such an address, at which nobody listens.
func Addr() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
