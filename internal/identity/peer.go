package identity

import (
	"context"
	"net"
	"sync"
)

// A Peer says whether the process at the other end of a connection may be the local user: "" or why not. It asks the kernel when it is
// first called, and remembers the answer.
type Peer func() (refusal string)

type peerKey struct{}

// WithConn notes in the context of a connection who is at its other end. It is for http.Server.ConnContext.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	local, remote := conn.LocalAddr(), conn.RemoteAddr()
	return WithPeer(ctx, sync.OnceValue(func() string { return refusePeer(local, remote) }))
}

// WithPeer notes in the context of a request who has sent it.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// peerRefusal returns why who sent the request cannot be the local user; "" means that it can be.
func peerRefusal(ctx context.Context) string {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p()
	}
	return "which process has sent the request is not known"
}
