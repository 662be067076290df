package identity

import (
	"context"
	"net"
	"sync"
)

// A Peer reports whether the process at the other end of a connection may be the local user: it returns "" or
// the reason why not. It asks the kernel at its first call and remembers the answer.
type Peer func() (refusal string)

type peerKey struct{}

// PeerOf returns the Peer of a connection.
func PeerOf(conn net.Conn) Peer {
	local, remote := conn.LocalAddr(), conn.RemoteAddr()
	return sync.OnceValue(func() string { return refusePeer(local, remote) })
}

// WithPeer stores the Peer of a request's sender in the request's context, for instance in http.Server.ConnContext.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerRefusal returns why the sender of the request cannot be the local user; "" means that it can.
func PeerRefusal(ctx context.Context) string {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p()
	}
	return "the process that sent the request is not known"
}
