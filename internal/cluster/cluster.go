// Package cluster lets the replicas that share a store know and reach each other. It
// decides which replicas are there, and carries a client's request to the one that
// holds what the request goes on with: in one hop, over connections that both ends
// know by a shared secret.
//
// What a request goes on with, and what becomes of it where that replica is gone, is for
// package gateway to say.
package cluster

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store is where replicas are found. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.Named, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

const (
	// Group is where replicas stand in the store.
	Group = "replicas"

	// Lease is how long a replica counts as there of which nothing is heard.
	Lease = 5 * time.Second

	renewEvery = Lease / 5
)

// Options say how a replica is reached.
type Options struct {
	Store Store

	// Secret is what all replicas know, and nobody else.
	Secret switchboard.Secret

	// Listen is the address at which the others reach this one, and Advertise by
	// which they do; "" means Listen's own, or where that is of all interfaces, the
	// first of this machine that is not a loopback one.
	Listen, Advertise string

	Log *slog.Logger // nil means none

	// Hopped is told of how each hop has ended; nil means that nobody is.
	Hopped func(outcome string)
}

// A Cluster is this replica's view of all. Use New, or the zero Cluster for a
// replica that has no others. It is safe for concurrent use.
type Cluster struct {
	o       Options
	self    string
	address string
	dial    *http.Transport
	server  *http.Server
	served  chan struct{}

	stop context.CancelFunc
	work sync.WaitGroup

	failed atomic.Int64                       // when the lease could not be renewed last, in unix nanoseconds
	serves atomic.Pointer[switchboard.Digest] // see Serving
	left   atomic.Bool

	handler atomic.Pointer[http.Handler]

	mu    sync.Mutex
	known map[string]member
	hops  map[*hop]struct{} // that are under way from here
}

// A member is another replica, as the store knew it.
type member struct {
	Address string             `json:"address"`
	Serves  switchboard.Digest `json:"serves,omitempty"`
	when    time.Time
}

// A Replica is one of the others, as it was when it last renewed its lease.
type Replica struct {
	ID      string `json:"id"`
	Address string `json:"address"` // by which the replicas reach it

	// Serves is the digest of its configuration; "" where it does not say.
	Serves switchboard.Digest `json:"serves"`
}

// New opens the listener. Serve answers at it, and makes this replica known.
func New(o Options) (*Cluster, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hopped == nil {
		o.Hopped = func(string) {}
	}
	conf, err := mutual(o.Secret)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("the replicas' listener: %w", err)
	}
	address := o.Advertise
	if address == "" {
		if address, err = reachable(l.Addr()); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	c := &Cluster{
		o: o, self: rand.Text()[:12], address: address, known: map[string]member{}, hops: map[*hop]struct{}{}, served: make(chan struct{}),
		dial: &http.Transport{
			TLSClientConfig:     conf.Clone(),
			TLSHandshakeTimeout: dialTimeout,
			DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
			MaxIdleConnsPerHost: 64,
			IdleConnTimeout:     time.Minute,
			DisableCompression:  true,
		},
	}
	c.server = &http.Server{
		TLSConfig:                    conf,
		TLSNextProto:                 map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2: a connection has one request
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            10 * time.Second,
		IdleTimeout:                  2 * time.Minute,
		ErrorLog:                     slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
	}
	c.listen(l)
	return c, nil
}

// reachable is by which address others reach a listener at a.
func reachable(a net.Addr) (string, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("cluster: no address of others is %s", a)
	}
	if !tcp.IP.IsUnspecified() {
		return a.String(), nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("cluster: advertise is not given, and the addresses of this machine cannot be read: %w", err)
	}
	for _, one := range all {
		if ip, ok := one.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
			return (&net.TCPAddr{IP: ip.IP, Port: tcp.Port}).String(), nil
		}
	}
	return "", errors.New("cluster: this machine has no address by which others reach it; say with advertise which one")
}

// Address is by which the others reach this replica; "" for the zero Cluster.
func (c *Cluster) Address() string { return c.address }

// Self is this replica's id: minted at each start, and "" for the zero Cluster.
func (c *Cluster) Self() string { return c.self }

// Key is one that all replicas have, and nobody else, for the purpose that is named; nil
// for the zero Cluster.
func (c *Cluster) Key(purpose string) []byte {
	if c.self == "" {
		return nil
	}
	key, err := derive(c.o.Secret, purpose, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // only more bytes than there can be
	}
	return key
}

// Serving has the others told, with the next renewal, of which configuration this replica
// serves.
func (c *Cluster) Serving(d switchboard.Digest) { c.serves.Store(&d) }

// Join makes this replica known, and keeps it so until ctx is done or it leaves.
func (c *Cluster) Join(ctx context.Context) {
	if c.self == "" {
		return
	}
	ctx, c.stop = context.WithCancel(ctx)
	c.work.Go(func() {
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for fault := false; ; {
			err := c.renew(ctx)
			if err != nil && !fault && ctx.Err() == nil {
				c.o.Log.Warn("this replica cannot be made known to the others", "err", err)
			}
			if fault = err != nil; fault {
				c.failed.Store(time.Now().UnixNano())
			} else {
				c.watch(ctx)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	})
}

func (c *Cluster) renew(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	own := member{Address: c.address}
	if d := c.serves.Load(); d != nil {
		own.Serves = *d
	}
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	_, err = c.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: c.self, Was: store.Any, Data: text, TTL: Lease}}})
	return err
}

// unsure reports whether the store was gone just now, so that the others may not have
// renewed their leases yet.
func (c *Cluster) unsure() bool {
	return time.Since(time.Unix(0, c.failed.Load())) < 3*renewEvery
}

// A hop is a request that another replica answers.
type hop struct {
	to     string
	end    context.CancelCauseFunc
	missed int // how often its replica was not there in a row
}

// begin notes a hop, so that it ends when its replica is gone. Its connection alone would
// not tell: that of one that is paused, or whose machine is off, stays.
func (c *Cluster) begin(h *hop) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hops[h] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.hops, h)
	}
}

// errLease is why a hop ends whose connection has not.
var errLease = fmt.Errorf("nothing is heard of the replica for %s", 2*Lease)

// watch ends the hops to replicas that have not been there for as long as a lease.
func (c *Cluster) watch(ctx context.Context) {
	c.mu.Lock()
	none := len(c.hops) == 0
	c.mu.Unlock()
	if none {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewEvery)
	defer cancel()
	others, err := c.Others(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.hops {
		if slices.ContainsFunc(others, func(r Replica) bool { return r.ID == h.to }) {
			h.missed = 0
			continue
		}
		if h.missed++; h.missed > int(Lease/renewEvery) {
			h.end(errLease)
		}
	}
}

// Leave tells the others that this replica goes: they take over what it holds. Hops
// that are under way go on until Close.
func (c *Cluster) Leave(ctx context.Context) {
	if c.self == "" || c.left.Swap(true) {
		return
	}
	if c.stop != nil {
		c.stop()
	}
	c.work.Wait()
	if _, err := c.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: c.self, Was: store.Any}}}); err != nil {
		c.o.Log.Warn("the others hear only in a while that this replica is gone", "err", err)
	}
}

// Close ends the listener and what is under way on it.
func (c *Cluster) Close() {
	if c.self == "" {
		return
	}
	_ = c.server.Close()
	<-c.served
	c.dial.CloseIdleConnections()
}

// Others returns the other replicas that are there, by id.
func (c *Cluster) Others(ctx context.Context) ([]Replica, error) {
	if c.self == "" {
		return nil, nil
	}
	all, err := c.o.Store.List(ctx, Group)
	var others []Replica
	for _, one := range all {
		var m member
		if one.Name == c.self || json.Unmarshal(one.Data, &m) != nil {
			continue
		}
		others = append(others, Replica{one.Name, m.Address, m.Serves})
	}
	return others, err
}

// find returns where a replica is reached; "" where it is not there. What is known is
// believed until a lease would be renewed, and while the others may not have come to that:
// one that is gone by then does not answer.
func (c *Cluster) find(ctx context.Context, id string) (string, error) {
	c.mu.Lock()
	m, ok := c.known[id]
	c.mu.Unlock()
	if ok && time.Since(m.when) < renewEvery {
		return m.Address, nil
	}
	v, err := c.o.Store.Value(ctx, store.Key{Group: Group, Name: id})
	if err != nil {
		return "", err
	}
	switch {
	case v.Version != 0:
	case ok && c.unsure():
		return m.Address, nil
	default:
		c.forget(id)
		return "", nil
	}
	if err := json.Unmarshal(v.Data, &m); err != nil {
		return "", fmt.Errorf("replica %s: %w", id, err)
	}
	m.when = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) > maxKnown {
		clear(c.known)
	}
	c.known[id] = m
	return m.Address, nil
}

// maxKnown bounds how many replicas are remembered.
const maxKnown = 1000

func (c *Cluster) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, id)
}
