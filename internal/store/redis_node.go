package store

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisMonitor knows the nodes of a Redis. It decides which of them may be used: it examines their settings and
// marks, and probes nodes that have failed.
type redisMonitor struct {
	*redisClient
	marks *redisMarks

	mu    sync.Mutex
	nodes map[string]*redisNode // by address; "" for the only one
}

// A redisNode is a Redis that is written to: the only one, or a master of a Cluster. A call that fails at a
// node has it probed. While the node does not answer the probes, it is shut: calls fail at once and do not
// wait for it.
type redisNode struct {
	addr     string        // in a Cluster; otherwise ""
	options  redis.Options // for connecting to it
	fault    atomic.Pointer[nodeFault]
	survives atomic.Int32 // a value of survival
	torn     atomic.Int32 // a value of tornTransaction
	unsaved  atomic.Bool  // it was refused because it would lose changes, and its data may not be on its disk yet
	probing  sync.Mutex
}

// A nodeFault says what is wrong with a node.
type nodeFault struct {
	err   error
	since time.Time
	shut  bool
}

// newProbeClient returns a client for one probe. Its connection is new: so a probe waits behind no other
// command, and shows that a connection can be made. The caller closes it.
func (n *redisNode) newProbeClient() *redis.Client {
	o := n.options
	o.OnConnect = nil // probeNode examines the node itself
	o.MaxRetries = -1 // it was set to 0, which means the default
	o.PoolSize = 8    // after so many failures the client library would keep dialing by itself
	return redis.NewClient(&o)
}

// errNodeShut is the error of a call at a node that is shut.
var errNodeShut = errors.New("it does not answer")

// probeInterval is the time between two probes of a node, give or take half: replicas should not probe at the
// same time. A probe may take half as long as a call.
const probeInterval = 200 * time.Millisecond

// shutError returns why the node is shut; nil if it is not.
func (n *redisNode) shutError() error {
	if f := n.fault.Load(); f != nil && f.shut {
		return fmt.Errorf("%w since %s: %w", errNodeShut, f.since.Format(time.RFC3339), f.err)
	}
	return nil
}

// recordFault records what is wrong with the node; nil means nothing.
func (r *redisMonitor) recordFault(n *redisNode, err error, shut bool) {
	if err == nil {
		if was := n.fault.Swap(nil); was != nil {
			r.log.Info("the store is available again", "redis", r.url.String(), "after", time.Since(was.since))
		}
		return
	}
	f := &nodeFault{err: err, since: time.Now(), shut: shut}
	if n.addr != "" {
		f.err = fmt.Errorf("%s: %w", n.addr, err)
	}
	was := n.fault.Load()
	if was != nil {
		f.since = was.since
	}
	n.fault.Store(f)
	if was == nil || isRefusal(err) && was.err.Error() != f.err.Error() {
		r.log.Error("the store is unavailable", "redis", r.url.String(), "error", f.err)
	}
}

// nodeForKey returns the node that has the key, as far as is known.
func (r *redisMonitor) nodeForKey(ctx context.Context, key string) (*redisNode, error) {
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		n, isNew := r.nodeOf(master)
		if isNew {
			r.probeUntilWell(n, key) // a probe examines its settings
		}
		return n, nil
	case *redis.Client:
		n, _ := r.nodeOf(c)
		return n, nil
	default:
		return nil, fmt.Errorf("an unexpected kind of client: %T", c)
	}
}

// nodeOf returns the node of the client c.
func (r *redisMonitor) nodeOf(c *redis.Client) (n *redisNode, isNew bool) {
	var addr string
	if r.url.isMode("cluster") {
		addr = c.Options().Addr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.nodes[addr]
	if n == nil {
		n = &redisNode{addr: addr, options: *c.Options()}
		r.nodes[addr] = n
		isNew = true
	}
	return n, isNew
}

// probeUntilWell starts to probe the node until it is well, unless that runs already. The key is any key on
// the node.
func (r *redisMonitor) probeUntilWell(n *redisNode, key string) {
	if r.background.Err() != nil || !n.probing.TryLock() {
		return
	}
	r.backgroundWork.Go(func() {
		defer n.probing.Unlock()
		for !r.probeNode(n, key) {
			every := probeInterval
			if f := n.fault.Load(); f != nil && isRefusal(f.err) { // only a person can end a refusal
				every = examineInterval
			}
			if !sleep(r.background, every/2+rand.N(every)) {
				return
			}
		}
	})
}

// probeNode probes the node once. It returns true if the node is well, or is no master any more.
func (r *redisMonitor) probeNode(n *redisNode, key string) bool {
	ctx, cancel := context.WithTimeout(r.background, r.callTimeout/2)
	defer cancel()
	c := n.newProbeClient()
	defer c.Close() //nolint:errcheck // nothing was written that could be lost
	tag, _, _ := strings.Cut(key, "}")
	err := c.Set(ctx, tag+"}p", "", time.Second).Err()
	if isElsewhere(err) { // the key has moved, but the node answers
		err = nil
	}
	if err == nil {
		err = r.examineNode(ctx, n, c)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", r.callTimeout/2)
	}
	// A node that answers with an error still does other things: out of memory, it can be read. So it is not shut.
	var said redis.Error
	r.recordFault(n, err, err != nil && (!errors.As(err, &said) || redis.IsLoadingError(err) || redis.IsMasterDownError(err)))
	return err == nil || !r.isMaster(n)
}

// isMaster reports whether the node is still written to. If not, it deletes the node.
func (r *redisMonitor) isMaster(n *redisNode) bool {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(r.background, r.callTimeout/2)
	defer cancel()
	var is atomic.Bool
	err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
		if m.Options().Addr == n.addr {
			is.Store(true)
		}
		return nil
	})
	if err != nil || is.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.nodes, n.addr)
	return false
}

// A refusal says why a Redis must not be used: because of its kind or its settings, or because it has lost
// data.
type refusal struct {
	text string
	lost bool // it has lost data, or is another Redis
}

func (r *refusal) Error() string { return r.text }

func isRefusal(err error) bool { return errors.As(err, new(*refusal)) }

// isFinal reports whether trying again is useless.
func isFinal(err error) bool {
	var stranger *tls.CertificateVerificationError
	var said redis.Error
	return isRefusal(err) || errors.As(err, &stranger) ||
		errors.As(err, &said) && !redis.IsLoadingError(err) && !redis.IsMasterDownError(err) && !redis.IsClusterDownError(err)
}

// examineAll examines all nodes that are written to.
func (r *redisMonitor) examineAll(ctx context.Context) error {
	return r.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		n, _ := r.nodeOf(c)
		return r.examineNode(ctx, n, c)
	})
}
