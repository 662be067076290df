//go:build !linux

package identity

import "net"

// KnowsPeers says that the kernel can tell which user and process a connection from this machine belongs to.
// Here it cannot.
const KnowsPeers = false

func refusePeer(_, _ net.Addr) error { return nil }
