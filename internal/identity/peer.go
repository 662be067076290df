package identity

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Peer reports whether the process at the other end of a connection may be the local user: it returns nil or
// the reason why not. It asks the kernel at its first call and remembers the answer. If the process has no file descriptor left to ask with, the
// reason is a *switchboard.Error, and the next call asks again.
type Peer func() error

type peerKey struct{}

// PeerOf returns the Peer of a connection.
func PeerOf(conn net.Conn) Peer {
	local, remote := conn.LocalAddr(), conn.RemoteAddr()
	return rememberAnswer(func() error { return refusePeer(local, remote) })
}

// rememberAnswer returns a Peer that calls ask until it has an answer.
func rememberAnswer(ask Peer) Peer {
	var mu sync.Mutex
	var known bool
	var why error
	return func() error {
		mu.Lock()
		defer mu.Unlock()
		if !known {
			why = ask()
			known = !errors.Is(why, errNoDescriptors)
		}
		return why
	}
}

// errNoDescriptors says that the kernel could not be asked.
var errNoDescriptors error = &switchboard.Error{
	Code: switchboard.CodeOverloaded, RetryAfter: time.Second, Unsent: true,
	Text: "Switchboard has no file descriptor left to ask the kernel who sends the request; its operator must raise the limit of open files (ulimit -n)",
}

// WithPeer stores the Peer of a request's sender in the request's context, for instance in http.Server.ConnContext.
func WithPeer(ctx context.Context, p Peer) context.Context {
	return context.WithValue(ctx, peerKey{}, p)
}

// PeerRefusal returns why the sender of the request cannot be the local user; nil means that it can. See Peer.
func PeerRefusal(ctx context.Context) error {
	if p, ok := ctx.Value(peerKey{}).(Peer); ok {
		return p()
	}
	return errors.New("the process that sent the request is not known")
}
