// Package scratch gives tests addresses on loopback that no other program takes by chance, and folders in memory.
package scratch

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// The ports are below the range from which the system chooses: a port in that range could go to another program while its server is down.
const (
	first = 16000
	ports = 32768 - first // Linux begins there
)

// given are the addresses that Listen has returned in this process.
var given sync.Map

// Listen listens at an address that the system gives to no other program, and Listen to no other caller in this process. So the address stays free
// after the listener is closed.
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

// Addr returns such an address without a listener.
func Addr() (string, error) {
	l, err := Listen()
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
