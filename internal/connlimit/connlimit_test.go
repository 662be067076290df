package connlimit

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/access"
)

// A fromAddress is a connection that comes from an address.
type fromAddress struct {
	net.Conn
	from string
}

func (c *fromAddress) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.from)
	return a
}
func (c *fromAddress) Close() error { return nil }

type fakeListener struct{ next chan net.Conn }

func (l *fakeListener) Accept() (net.Conn, error) { return <-l.next, nil }
func (l *fakeListener) Close() error              { return nil }
func (l *fakeListener) Addr() net.Addr            { return nil }

func TestAttack2StrangersAreCountedByNetworkAndTheKnownAreNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeListener{make(chan net.Conn, 1)}
		d := New(l)
		come := func(from string) *limitedConn {
			l.next <- &fromAddress{from: from}
			c, err := d.Accept()
			if err != nil {
				t.Fatal(err)
			}
			return c.(*limitedConn)
		}
		for i := range maxUnknownPerNetwork + 50 {
			MarkKnown(WithConn(context.Background(), come("192.0.2.1:1")))
			come("192.0.2.2:1")
			come(fmt.Sprintf("[2001:db8::%x]:1", i)) // one /64
		}
		if n := d.unknown.Len(); n != 2*(maxUnknownPerNetwork+50) || len(d.unknownByNetwork) != 2 {
			t.Errorf("at once: %d unknown connections of %d networks; each must have unknownGrace", n, len(d.unknownByNetwork))
		}
		time.Sleep(unknownGrace)
		first, last := d.unknownByNetwork[access.NetworkOf("192.0.2.2:1")].Front().Value.(*limitedConn), come("192.0.2.2:1")
		if n := last.limiter.unknownByNetwork[last.network].Len(); n != maxUnknownPerNetwork || first.inAll != nil || last.inAll == nil {
			t.Errorf("after unknownGrace: %d unknown connections of a network, want %d, and the oldest one closed", n, maxUnknownPerNetwork)
		}
		for i := range maxUnknown {
			come(fmt.Sprintf("[2001:db8:%x::1]:1", i+1))
		}
		if n := d.unknown.Len(); n != maxUnknown {
			t.Errorf("%d unknown connections in all, want %d", n, maxUnknown)
		}
		if late := come("198.51.100.1:1"); late.inAll != nil { // the older ones are closed by now
			t.Error("no connection is old enough, and the new one was not closed")
		}
		for e := d.unknown.Front(); e != nil; e = d.unknown.Front() {
			g := e.Value.(*limitedConn)
			_ = g.Close()
			_ = g.Close() // once more does nothing
		}
		if d.unknown.Len()+len(d.unknownByNetwork) != 0 {
			t.Errorf("%d unknown connections of %d networks are left", d.unknown.Len(), len(d.unknownByNetwork))
		}
	})
}
