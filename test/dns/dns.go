// Package dns is a server for host names, which a test can make lead to other addresses at any time.
package dns

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// A Server answers questions for the addresses of names over UDP. For a name that Set was not called with, it answers that there is no such name.
type Server struct {
	Addr string // where it listens

	mu    sync.Mutex
	names map[string][]netip.Addr
}

// Listen starts a server at a UDP address until the test ends.
func Listen(t *testing.T, address string) (*Server, error) {
	l, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = l.Close() })
	s := &Server{Addr: l.LocalAddr().String(), names: map[string][]netip.Addr{}}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := l.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := s.answer(b[:n]); answer != nil {
				_, _ = l.WriteTo(answer, from)
			}
		}
	}()
	return s, nil
}

// Set makes the name lead to these addresses from now on.
func (s *Server) Set(name string, to ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = nil
	for _, a := range to {
		s.names[name] = append(s.names[name], netip.MustParseAddr(a))
	}
}

// The parts of a message of RFC 1035 that answer needs.
const (
	headerSize = 12
	typeA      = 1
	typeAAAA   = 28
	ok         = 0x8580 // an answer with authority
	noSuchName = 0x8583
)

// answer returns the answer to a question, or nil where it cannot be read.
func (s *Server) answer(q []byte) []byte {
	var labels []string
	at := headerSize
	for at < len(q) && q[at] != 0 {
		end := at + 1 + int(q[at])
		if end > len(q) {
			return nil
		}
		labels = append(labels, strings.ToLower(string(q[at+1:end])))
		at = end
	}
	if at+5 > len(q) {
		return nil
	}
	wanted := binary.BigEndian.Uint16(q[at+1:])
	s.mu.Lock()
	addrs, known := s.names[strings.Join(labels, ".")]
	s.mu.Unlock()

	out := append([]byte{}, q[:at+5]...)
	status := uint16(ok)
	if !known {
		status = noSuchName
	}
	binary.BigEndian.PutUint16(out[2:], status)
	n := uint16(0)
	for _, a := range addrs {
		if a.Is4() != (wanted == typeA) || a.Is6() != (wanted == typeAAAA) {
			continue
		}
		n++
		b := a.AsSlice()
		out = append(out, 0xc0, headerSize, byte(wanted>>8), byte(wanted), 0, 1, 0, 0, 0, 0, 0, byte(len(b))) // the name again, its type, IN, no TTL
		out = append(out, b...)
	}
	binary.BigEndian.PutUint16(out[4:], 1) // questions
	binary.BigEndian.PutUint16(out[6:], n) // answers
	binary.BigEndian.PutUint32(out[8:], 0) // nothing more
	return out
}
