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

// A node is a Redis that is written to: the only one, or one of a Cluster. Whoever
// fails to use it has it probed. While it does not answer the probes it is shut: uses
// fail at once, and none waits for it.
type node struct {
	addr     string        // of a Cluster's; else ""
	options  redis.Options // how it is connected to
	fault    atomic.Pointer[fault]
	survives atomic.Int32 // a survival
	rest     atomic.Int32 // a rest
	unkept   atomic.Bool  // it was refused for what it would lose, and what it has may not be on its disk yet
	probing  sync.Mutex
}

// A fault is what is wrong with a node.
type fault struct {
	err   error
	since time.Time
	shut  bool
}

// client makes a client of its own for the node, whose connection is new, so that a
// probe waits behind nobody and shows that one can be made. The caller closes it.
func (n *node) client() *redis.Client {
	o := n.options
	o.OnConnect = nil // whoever probes examines
	o.MaxRetries = -1 // it has become 0, which means the default
	o.PoolSize = 8    // after so many failures the client would go on trying by itself
	return redis.NewClient(&o)
}

// errShut is what a use of a node that is shut fails with.
var errShut = errors.New("it does not answer")

// probeEvery is how often a node is probed, give or take half, so that replicas do not come
// all at once. A probe may take half as long as a use.
const probeEvery = 200 * time.Millisecond

// shut says why the node is shut; nil where it is not.
func (n *node) shut() error {
	if f := n.fault.Load(); f != nil && f.shut {
		return fmt.Errorf("%w since %s: %w", errShut, f.since.Format(time.RFC3339), f.err)
	}
	return nil
}

// note notes what is wrong with the node; nil is nothing.
func (r *Redis) note(n *node, err error, shut bool) {
	if err == nil {
		if was := n.fault.Swap(nil); was != nil {
			r.log.Info("the store is available again", "redis", r.where.String(), "after", time.Since(was.since))
		}
		return
	}
	f := &fault{err: err, since: time.Now(), shut: shut}
	if n.addr != "" {
		f.err = fmt.Errorf("%s: %w", n.addr, err)
	}
	was := n.fault.Load()
	if was != nil {
		f.since = was.since
	}
	n.fault.Store(f)
	if was == nil || isRefusal(err) && was.err.Error() != f.err.Error() {
		r.log.Error("the store is unavailable", "redis", r.where.String(), "error", f.err)
	}
}

// node gives the node that the key is on, as far as is known.
func (r *Redis) node(ctx context.Context, key string) (*node, error) {
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		master, err := c.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		n, isNew := r.nodeOf(master)
		if isNew {
			r.suspect(n, key) // which looks at its settings
		}
		return n, nil
	case *redis.Client:
		n, _ := r.nodeOf(c)
		return n, nil
	default:
		return nil, fmt.Errorf("a client of another kind: %T", c)
	}
}

// nodeOf gives the node that c is a client of.
func (r *Redis) nodeOf(c *redis.Client) (n *node, isNew bool) {
	var addr string
	if r.where.is("cluster") {
		addr = c.Options().Addr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.nodes[addr]
	if n == nil {
		n = &node{addr: addr, options: *c.Options()}
		r.nodes[addr] = n
		isNew = true
	}
	return n, isNew
}

// suspect has the node probed until it is well. The key is one that is on it.
func (r *Redis) suspect(n *node, key string) {
	if r.ended.Err() != nil || !n.probing.TryLock() {
		return
	}
	r.work.Go(func() {
		defer n.probing.Unlock()
		for !r.isWell(n, key) {
			every := probeEvery
			if f := n.fault.Load(); f != nil && isRefusal(f.err) { // which a person ends
				every = lookEvery
			}
			if !pause(r.ended, every/2+rand.N(every)) {
				return
			}
		}
	})
}

// isWell probes the node once, and reports whether that has come to an end.
func (r *Redis) isWell(n *node, key string) bool {
	ctx, cancel := context.WithTimeout(r.ended, r.useTime/2)
	defer cancel()
	c := n.client()
	defer c.Close() //nolint:errcheck // nothing is lost
	tag, _, _ := strings.Cut(key, "}")
	err := c.Set(ctx, tag+"}p", "", time.Second).Err()
	if isElsewhere(err) { // then it answers for what it has
		err = nil
	}
	if err == nil {
		err = r.examine(ctx, n, c)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no answer within %s", r.useTime/2)
	}
	// What answers that it does not do it, does other things: reads, where it is out of memory.
	var said redis.Error
	r.note(n, err, err != nil && (!errors.As(err, &said) || redis.IsLoadingError(err) || redis.IsMasterDownError(err)))
	return err == nil || !r.isMaster(n)
}

// isMaster reports whether the node is still written to. One that is not is forgotten.
func (r *Redis) isMaster(n *node) bool {
	c, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return true
	}
	ctx, cancel := context.WithTimeout(r.ended, r.useTime/2)
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

// A refusal is a Redis that is not used, for what it is or how it is set up.
type refusal struct {
	text string
	lost bool // it has lost something, or is another one
}

func (r *refusal) Error() string { return r.text }

func isRefusal(err error) bool { return errors.As(err, new(*refusal)) }

// isFinal reports whether trying again does not help.
func isFinal(err error) bool {
	var stranger *tls.CertificateVerificationError
	var said redis.Error
	return isRefusal(err) || errors.As(err, &stranger) ||
		errors.As(err, &said) && !redis.IsLoadingError(err) && !redis.IsMasterDownError(err) && !redis.IsClusterDownError(err)
}

// examineAll examines all that is written to.
func (r *Redis) examineAll(ctx context.Context) error {
	return r.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		n, _ := r.nodeOf(c)
		return r.examine(ctx, n, c)
	})
}

// eachMaster does one with all that is written to, of a Cluster at the same time.
func (r *Redis) eachMaster(ctx context.Context, one func(context.Context, *redis.Client) error) error {
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, one)
	case *redis.Client:
		return one(ctx, c)
	default:
		return fmt.Errorf("a client of another kind: %T", c)
	}
}

// redisSchema is the version of what stands in Redis, as apply.lua, append.lua and take.lua
// write it, and key names it.
const redisSchema = 1

// redisMigrations[i] makes schema i+2 out of schema i+1. They may run twice, also at once.
var redisMigrations = [redisSchema - 1]func(context.Context, *Redis) error{}

// migrate brings what stands in Redis to the schema of this program, and notes that. It
// refuses one that is newer.
func (r *Redis) migrate(ctx context.Context) error { return r.migrateTo(ctx, redisMigrations[:]) }

func (r *Redis) migrateTo(ctx context.Context, steps []func(context.Context, *Redis) error) error {
	key, newest := r.prefix+":"+own+"schema", len(steps)+1
	if err := r.client.SetNX(ctx, key, newest, 0).Err(); err != nil {
		return err
	}
	for {
		found, err := r.client.Get(ctx, key).Int()
		switch {
		case err != nil:
			return err
		case found > newest:
			return &refusal{text: fmt.Sprintf("a newer Switchboard has written it: its schema is %d, and this one knows %d", found, newest)}
		case found < 1:
			return &refusal{text: fmt.Sprintf("its schema is %d, which never was", found)}
		case found == newest:
			return nil
		}
		if err := steps[found-1](ctx, r); err != nil {
			return err
		}
		if err := r.client.Set(ctx, key, found+1, 0).Err(); err != nil { // also where another was as fast
			return err
		}
	}
}
