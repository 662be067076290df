// Package cache stores the results of deterministic tools and returns them to later calls: without asking the
// server again, for all replicas that share a store, and with one call for many clients that ask at the same
// time.
//
// It decides which results may be stored and which caller may get them. Policy decides before it whether the
// caller may make the call, also if its result is stored already. The cache is an optimization only: if the
// store fails, calls are made.
//
// Each tenant has a fixed number of buckets. The digest of a call selects its bucket, and a bucket holds one
// result: a new result replaces the one before it.
package cache

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxResult is the largest result, in bytes, that is stored: the most that one bucket takes.
const MaxResult = 64 << 10

const (
	leaseTTL      = 5 * time.Second // of the replica that makes a call for all replicas
	renewInterval = 2 * time.Second
	pollInterval  = 500 * time.Millisecond // how often a waiter reads the store if no notice comes
)

// A Store holds the results and the leases. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Terms are the conditions for storing the results of one server.
type Terms struct {
	TTL   time.Duration // 0 means that results are not stored
	Bytes int           // for one tenant, for the results of all its servers

	// Shared says that the server treats all principals of a tenant alike. Otherwise each principal has its
	// own results.
	Shared bool

	// Credentials identifies the credentials that the server is called with. Calls with other credentials have other
	// results.
	Credentials [sha256.Size]byte

	// Consent tells the connection that the caller's calls use from those before it; 0 if they use none. Another connection may be that of another account.
	Consent uint64
}

// A Cache stores results. Use New. It is safe for concurrent use.
type Cache struct {
	store           *restingStore
	terms           func(*switchboard.Call) Terms
	digestArguments func(*switchboard.Call) string
	countOutcome    func(outcome string)

	mu          sync.Mutex
	sharedCalls map[string]*sharedCall // by lookup key
}

// The outcomes of a call with a result that may be stored.
const (
	Hit    = "hit"    // it got a stored result
	Shared = "shared" // it waited for a call in flight, and got its result
	Miss   = "miss"   // it was made
)

// New returns a Cache over the store. terms returns the terms of a call now. digestArguments returns the
// keyed digest of a call's canonical arguments: keyed, because short arguments could be guessed from a plain
// digest. countOutcome counts the outcome of each call with a result that may be stored.
func New(s Store, terms func(*switchboard.Call) Terms, digestArguments func(*switchboard.Call) string, countOutcome func(outcome string)) *Cache {
	return &Cache{store: &restingStore{Store: s}, terms: terms, digestArguments: digestArguments, countOutcome: countOutcome, sharedCalls: map[string]*sharedCall{}}
}

// A sharedCall is a call in flight that all equal calls in this process wait for.
type sharedCall struct {
	waiters   int // how many calls wait, guarded by Cache.mu
	done      chan struct{}
	result    *cachedResult // nil if the result is not for others
	abandoned bool          // its client is gone, so one of the waiters makes the call
}

// A cachedResult is the value of a bucket: a line of JSON, and then the bytes of the result.
type cachedResult struct {
	LookupKey string    `json:"key"`
	CachedAt  time.Time `json:"when"`
	body      []byte
}

func (e *cachedResult) encode() []byte {
	head, _ := json.Marshal(e) // strings and a time: it cannot fail
	return append(append(head, '\n'), e.body...)
}

// replay returns a copy of the result for the call c.
func (e *cachedResult) replay(c *switchboard.Call) switchboard.Result {
	c.Trail.Gave(switchboard.GivenCache)
	return switchboard.Result{JSON: bytes.Clone(e.body), Repeated: &switchboard.Repeated{From: switchboard.GivenCache, When: e.CachedAt}}
}

// Serve returns a Caller that answers a call of a deterministic tool with its stored result, and makes one
// call if many ask for the same result at the same time. Put it behind all wrappers that decide whether a
// call may be made, and before all that count the calls that are made.
func (k *Cache) Serve(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		p, ok := k.lookupFor(c)
		if !ok {
			return next.Call(ctx, c)
		}
		for {
			k.mu.Lock()
			f := k.sharedCalls[p.key]
			if f == nil {
				f = &sharedCall{done: make(chan struct{})}
				k.sharedCalls[p.key] = f
				k.mu.Unlock()
				return k.leadCall(ctx, c, p, f, next)
			}
			f.waiters++
			k.mu.Unlock()
			select {
			case <-f.done:
				if f.result != nil {
					k.countOutcome(Shared)
					return f.result.replay(c), nil
				}
				if f.abandoned {
					continue
				}
			case <-ctx.Done():
			}
			k.countOutcome(Miss)
			return next.Call(ctx, c)
		}
	})
}

// leadCall finds the stored result or makes the call, for all that wait for f.
func (k *Cache) leadCall(ctx context.Context, c *switchboard.Call, p *lookup, f *sharedCall, next switchboard.Caller) (switchboard.Result, error) {
	defer func() {
		f.abandoned = ctx.Err() != nil
		k.mu.Lock()
		delete(k.sharedCalls, p.key)
		k.mu.Unlock()
		close(f.done)
	}()
	stored, lead := k.findOrLead(ctx, p)
	switch {
	case stored == nil:
		k.countOutcome(Miss)
	case p.waitedForOther:
		k.countOutcome(Shared)
	default:
		k.countOutcome(Hit)
	}
	if stored != nil {
		f.result = stored
		return stored.replay(c), nil
	}
	var result *cachedResult
	if lead != nil {
		stop := lead.Keep(context.Background(), nil)
		defer func() {
			stop()
			k.finish(p, lead, result)
		}()
	}
	var asked atomic.Bool
	own := *c
	if ask := c.Client.Ask; ask != nil {
		own.Client.Ask = func(ctx context.Context, method string, params []byte) ([]byte, error) {
			asked.Store(true)
			return ask(ctx, method, params)
		}
	}
	r, err := next.Call(ctx, &own)
	k.mu.Lock()
	fits, waiting := len(r.JSON) <= MaxResult, f.waiters > 0
	k.mu.Unlock()
	if err == nil && !asked.Load() && isCompleteResult(&r) && (fits || waiting) {
		f.result = &cachedResult{LookupKey: p.key, CachedAt: time.Now(), body: bytes.Clone(r.JSON)}
		if fits {
			result = f.result
		}
	}
	return r, err
}

// A lookup says where the result of one call is stored.
type lookup struct {
	group string
	key   string // of the result in its bucket
	ttl   time.Duration

	waitedForOther bool // another replica made the call
}

func (p *lookup) leaseKey() store.Key { return store.Key{Group: p.group, Name: "lease/" + p.key} }

const resultName = "result"

// lookupFor returns the lookup of a call; ok is false if its result may not be stored.
func (k *Cache) lookupFor(c *switchboard.Call) (p *lookup, ok bool) {
	if c.Tool == nil || c.Method != wire.MethodToolsCall || c.Yes != nil { // a yes is for one call
		return nil, false
	}
	if f := &c.Tool.Contract; !f.Deterministic.Holds || !f.Deterministic.Trusted || f.Stateful.Holds {
		return nil, false
	}
	terms := k.terms(c)
	buckets := terms.Bytes / MaxResult
	if terms.TTL <= 0 || buckets < 1 || !hasPlainParams(c.Params) {
		return nil, false
	}
	parts := []string{string(c.Principal.Tenant), c.Tool.ID.String(), string(c.Tool.Digest), k.digestArguments(c), string(terms.Credentials[:]), strconv.FormatUint(terms.Consent, 16), c.Principal.Tier, strconv.Itoa(len(c.Principal.Roles))}
	parts = append(parts, c.Principal.Roles...)
	if !terms.Shared {
		parts = append(parts, "principal", string(c.Principal.Auth), c.Principal.ID)
	}
	h := sha256.New()
	for _, s := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	sum := h.Sum(nil)
	bucket := binary.BigEndian.Uint64(sum) % uint64(buckets)
	return &lookup{
		group: fmt.Sprintf("cache/%s/%d", c.Principal.Tenant, bucket),
		key:   hex.EncodeToString(sum),
		ttl:   terms.TTL,
	}, true
}

// hasPlainParams reports whether the params have only the tool's name, the arguments and metadata without an
// effect on the result. Any other member may change the result.
func hasPlainParams(params []byte) bool {
	for name, value := range wire.Members(params) {
		switch name {
		case "name", "arguments":
		case wire.MemberMeta:
			for key := range wire.Members(value) {
				ours := strings.HasPrefix(key, wire.MetaPrefix) || strings.HasPrefix(key, wire.MetaOurPrefix)
				if !ours && !slices.Contains([]string{wire.MetaProgressToken, "traceparent", "tracestate"}, key) {
					return false
				}
			}
		default:
			return false
		}
	}
	return true
}

// isCompleteResult reports whether the result is complete and no error.
func isCompleteResult(r *switchboard.Result) bool {
	o := r.Outline
	if o.End == 0 {
		o = wire.OutlineOf(r.JSON)
	}
	if o.Truncated {
		return false
	}
	for _, m := range o.Members {
		value := r.JSON[m.Value:m.End]
		switch m.Name {
		case wire.MemberError:
			if string(value) != "false" {
				return false
			}
		case wire.MemberResultType:
			if kind, _ := wire.String(value); kind != "complete" {
				return false
			}
		}
	}
	return true
}

// findOrLead returns the stored result, or waits for the replica that is making the call. Otherwise own is the lease
// that it has taken: the caller makes the call for all replicas, and calls finish. own is nil if the caller makes the
// call for itself only.
func (k *Cache) findOrLead(ctx context.Context, p *lookup) (stored *cachedResult, own *lease.Lease) {
	if e, ok := k.readResult(ctx, p); e != nil || !ok {
		return e, nil
	}
	own = lease.New(k.store, lease.Options{Key: p.leaseKey(), TTL: leaseTTL, Every: renewInterval, Data: []byte(rand.Text())})
	switch err := own.Take(ctx); {
	case err == nil: // another replica may have stored the result after we read and before we took the lease
		if stored, _ = k.readResult(ctx, p); stored == nil {
			return nil, own
		}
		_ = own.Release(context.Background()) // otherwise it expires
		return stored, nil
	case !errors.Is(err, store.ErrConflict):
		return nil, nil
	}
	f := feed.Watch(k.store, p.group, pollInterval)
	defer f.Close()
	for {
		held, err := k.store.Value(ctx, p.leaseKey())
		if err != nil && !errors.Is(err, store.ErrUnopened) {
			return nil, nil
		}
		// Read the result after the lease: its owner stores the result before it deletes the lease.
		if e, ok := k.readResult(ctx, p); e != nil || !ok {
			return e, nil
		}
		if held.Version == 0 || err != nil { // a lease that does not open is not from one of our replicas
			return nil, nil
		}
		p.waitedForOther = true
		if _, _, err := f.Next(ctx); err != nil {
			return nil, nil
		}
	}
}

// readResult returns the stored result, if the bucket holds the one of this lookup; ok is false if the store
// failed.
func (k *Cache) readResult(ctx context.Context, p *lookup) (e *cachedResult, ok bool) {
	v, err := k.store.Value(ctx, store.Key{Group: p.group, Name: resultName})
	if err != nil && !errors.Is(err, store.ErrUnopened) { // a value that does not open is replaced by the call's result
		return nil, false
	}
	head, body, _ := bytes.Cut(v.Data, []byte("\n"))
	e = &cachedResult{body: body}
	if json.Unmarshal(head, e) != nil || e.LookupKey != p.key || time.Since(e.CachedAt) >= p.ttl {
		return nil, true
	}
	return e, true
}

// finish stores the result, if it is not nil, and releases the lease. Then it publishes that to the waiting replicas.
func (k *Cache) finish(p *lookup, own *lease.Lease, result *cachedResult) {
	var writes []store.Write
	if result != nil {
		writes = append(writes, store.Write{Name: resultName, Was: store.Any, Data: result.encode(), TTL: p.ttl})
	}
	ctx := context.Background() // also if the client is gone
	_ = own.Release(ctx, writes...)
	_ = k.store.Publish(ctx, p.group, []byte("changed")) // a replica that misses it reads after pollInterval
}
