package recall

import (
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ServerSet are the servers that still have to be handled after a change. Use
// NewServerSet.
type ServerSet struct {
	mu      sync.Mutex
	servers map[switchboard.ServerID]bool
	Wake    chan struct{}
}

// NewServerSet returns an empty set.
func NewServerSet() *ServerSet {
	return &ServerSet{servers: map[switchboard.ServerID]bool{}, Wake: make(chan struct{}, 1)}
}

// Add adds a server and wakes the goroutine that handles it.
func (n *ServerSet) Add(id switchboard.ServerID) {
	n.mu.Lock()
	n.servers[id] = true
	n.mu.Unlock()
	select {
	case n.Wake <- struct{}{}:
	default:
	}
}

// Take returns the servers that were added since the last take.
func (n *ServerSet) Take() map[switchboard.ServerID]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	servers := n.servers
	n.servers = map[switchboard.ServerID]bool{}
	return servers
}
