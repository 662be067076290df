// Package cluster connects the replicas that share a store. It decides which replicas are alive, and forwards
// a client's request to the replica that can continue it: in one hop, over a connection that proves to both
// ends that the other one has the shared secret.
//
// Package gateway decides which replica a request needs, and how a request ends if that replica is gone.
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
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store holds the leases of the replicas. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

const (
	// Group is the store group of the replicas' leases.
	Group = "replicas"

	// Lease is how long a replica counts as alive after it renewed its lease.
	Lease = 5 * time.Second

	renewInterval = Lease / 5
)

// Options say how the other replicas reach this one.
type Options struct {
	Store Store

	// Secret is shared by all replicas. No other program has it.
	Secret switchboard.Secret

	// Listen is the address of this replica's listener. Advertise is the address that the others dial. ""
	// means the listener's own address or, if that is of all interfaces, the first address of this machine
	// that is not a loopback one.
	Listen, Advertise string

	Log *slog.Logger // nil means no log

	// Hopped is called with the outcome of each hop. It may be nil.
	Hopped func(outcome string)
}

// A Cluster is this replica's view of all replicas. Use New. The zero Cluster is for a replica that runs
// alone. A Cluster is safe for concurrent use.
type Cluster struct {
	options      Options
	self         string
	address      string
	transport    *http.Transport
	server       *http.Server
	listenerDone chan struct{}

	lease        *lease.Lease
	stopRenewing func() // nil before Join

	lastFailedRenewal atomic.Int64 // when a renewal of the lease failed last, in unix nanoseconds
	hasLeft           atomic.Bool

	handler atomic.Pointer[http.Handler]

	mu            sync.Mutex
	knownReplicas map[string]replicaRecord
	hops          map[*hop]struct{} // in flight from here
}

// A replicaRecord is what the store holds of a replica: the value of its lease.
type replicaRecord struct {
	Address string             `json:"address"`
	Serves  switchboard.Digest `json:"serves,omitempty"`
	readAt  time.Time
}

// A Replica is another replica, as it described itself when it last renewed its lease.
type Replica struct {
	ID      string `json:"id"`
	Address string `json:"address"` // that the replicas dial

	// Configuration is the digest of its configuration; "" if the replica does not publish it.
	Configuration switchboard.Digest `json:"serves"`
}

// New opens the listener. Call Serve to answer requests on it, and Join to publish this replica.
func New(o Options) (*Cluster, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Hopped == nil {
		o.Hopped = func(string) {}
	}
	conf, err := mutualTLS(o.Secret)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("the replicas' listener: %w", err)
	}
	address := o.Advertise
	if address == "" {
		if address, err = advertisedAddress(l.Addr()); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	c := &Cluster{
		options: o, self: rand.Text()[:12], address: address, knownReplicas: map[string]replicaRecord{}, hops: map[*hop]struct{}{}, listenerDone: make(chan struct{}),
		transport: &http.Transport{
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
	c.lease = lease.New(o.Store, lease.Options{Key: store.Key{Group: Group, Name: c.self}, TTL: Lease, Every: renewInterval, Data: c.leaseData(""), Sole: true})
	c.startListener(l)
	return c, nil
}

// advertisedAddress returns the address of a listener at a, as others can dial it.
func advertisedAddress(a net.Addr) (string, error) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return "", fmt.Errorf("cluster: the listener's address %s is not a TCP address", a)
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
	return "", errors.New("cluster: this machine has no address that others can reach; set advertise")
}

// Address returns the address that the others dial; "" for the zero Cluster.
func (c *Cluster) Address() string { return c.address }

// Self returns this replica's id: made at each start, and "" for the zero Cluster.
func (c *Cluster) Self() string { return c.self }

// Key derives a key for the named purpose. All replicas derive the same key, and no other program can. It is
// nil for the zero Cluster.
func (c *Cluster) Key(purpose string) []byte {
	if c.self == "" {
		return nil
	}
	key, err := deriveKey(c.options.Secret, purpose, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // HKDF fails only if more bytes are asked for than it can give
	}
	return key
}

// PublishConfiguration publishes the digest of the configuration that this replica serves.
func (c *Cluster) PublishConfiguration(d switchboard.Digest) {
	if c.self != "" {
		c.lease.Set(c.leaseData(d))
	}
}

// leaseData returns the value of this replica's lease.
func (c *Cluster) leaseData(d switchboard.Digest) []byte {
	text, _ := json.Marshal(replicaRecord{Address: c.address, Serves: d}) // strings: it cannot fail
	return text
}

// Join publishes this replica and renews its lease until ctx is done or Leave is called.
func (c *Cluster) Join(ctx context.Context) {
	if c.self == "" {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	fault := false
	stop := c.lease.Keep(ctx, func(err error) {
		if err != nil && !fault {
			c.options.Log.Warn("this replica cannot renew its lease in the store, so the others may take it for gone", "err", err)
		}
		if fault = err != nil; fault {
			c.lastFailedRenewal.Store(time.Now().UnixNano())
		} else {
			c.cancelHopsToLostReplicas(ctx)
		}
	})
	c.lease.Wake()
	c.stopRenewing = func() {
		cancel() // also the read of the leases
		stop()
	}
}

// storeFailedRecently reports whether the store failed a moment ago, so that the others may not have renewed
// their leases yet.
func (c *Cluster) storeFailedRecently() bool {
	return time.Since(time.Unix(0, c.lastFailedRenewal.Load())) < 3*renewInterval
}

// A hop is a request that this replica has forwarded to another one.
type hop struct {
	to          string
	cancel      context.CancelCauseFunc
	missedReads int // consecutive reads of the leases without its replica
}

// trackHop registers a hop, so that it is cancelled when its replica is gone. A broken connection would not
// show that: the connection to a replica that is paused, or on a machine that is off, stays open.
func (c *Cluster) trackHop(h *hop) (end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hops[h] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.hops, h)
	}
}

// errReplicaSilent is the cause of the cancelled context if a hop's replica is lost.
var errReplicaSilent = fmt.Errorf("the replica has not renewed its lease for %s", 2*Lease)

// cancelHopsToLostReplicas cancels the hops to replicas without a lease for as long as a lease lasts.
func (c *Cluster) cancelHopsToLostReplicas(ctx context.Context) {
	c.mu.Lock()
	none := len(c.hops) == 0
	c.mu.Unlock()
	if none {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewInterval)
	defer cancel()
	others, err := c.Others(ctx)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for h := range c.hops {
		if slices.ContainsFunc(others, func(r Replica) bool { return r.ID == h.to }) {
			h.missedReads = 0
			continue
		}
		if h.missedReads++; h.missedReads > int(Lease/renewInterval) {
			h.cancel(errReplicaSilent)
		}
	}
}

// Leave deletes this replica's lease, so that the others take over what it owns. Hops in flight continue
// until Close.
func (c *Cluster) Leave(ctx context.Context) {
	if c.self == "" || c.hasLeft.Swap(true) {
		return
	}
	if c.stopRenewing != nil {
		c.stopRenewing()
	}
	if err := c.lease.Release(ctx); err != nil {
		c.options.Log.Warn("this replica's lease cannot be deleted, so the others notice only when it expires that this replica is gone", "err", err)
	}
}

// Close closes the listener and ends the requests on it.
func (c *Cluster) Close() {
	if c.self == "" {
		return
	}
	_ = c.server.Close()
	<-c.listenerDone
	c.transport.CloseIdleConnections()
}

// Others returns the other live replicas, sorted by id.
func (c *Cluster) Others(ctx context.Context) ([]Replica, error) {
	if c.self == "" {
		return nil, nil
	}
	all, err := c.options.Store.List(ctx, Group)
	var others []Replica
	for _, one := range all {
		var m replicaRecord
		if one.Name == c.self || json.Unmarshal(one.Data, &m) != nil {
			continue
		}
		others = append(others, Replica{one.Name, m.Address, m.Serves})
	}
	return others, err
}

// findAddress returns the address of a replica; "" if it has no lease. A known address is used without asking
// the store until a lease would be renewed, and also while the store failed a moment ago: a replica that is
// gone by then does not answer.
func (c *Cluster) findAddress(ctx context.Context, id string) (string, error) {
	c.mu.Lock()
	m, ok := c.knownReplicas[id]
	c.mu.Unlock()
	if ok && time.Since(m.readAt) < renewInterval {
		return m.Address, nil
	}
	v, err := c.options.Store.Value(ctx, store.Key{Group: Group, Name: id})
	if err != nil {
		return "", err
	}
	switch {
	case v.Version != 0:
	case ok && c.storeFailedRecently():
		return m.Address, nil
	default:
		c.forgetAddress(id)
		return "", nil
	}
	if err := json.Unmarshal(v.Data, &m); err != nil {
		return "", fmt.Errorf("replica %s: %w", id, err)
	}
	m.readAt = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.knownReplicas) > maxKnownReplicas {
		clear(c.knownReplicas)
	}
	c.knownReplicas[id] = m
	return m.Address, nil
}

// maxKnownReplicas limits how many addresses are remembered.
const maxKnownReplicas = 1000

func (c *Cluster) forgetAddress(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.knownReplicas, id)
}
