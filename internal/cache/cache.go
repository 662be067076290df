// Package cache gives the results of deterministic tools again: without their
// server, to all processes that share a store, and to many who ask at once after one
// call.
//
// It decides what may be kept and who may have it. Whether a caller may make the call
// at all is decided before it comes here, also where its result is there already. It
// is a help and no more: where the store fails, calls are made.
//
// What is kept for a tenant is bounded by its places: a result has one place, which
// its key leads to, and takes that of the one before it.
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
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// MaxResult is how large a result may be to be kept, in bytes, and so what a place
// takes at most.
const MaxResult = 64 << 10

const (
	leaseFor   = 5 * time.Second // of whoever makes a call for all
	renewEvery = 2 * time.Second
	pollEvery  = 500 * time.Millisecond // where notices fail
	patience   = 250 * time.Millisecond // with the store
	restFor    = time.Second            // of a store that has failed
)

// A Store is where results stand.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// Terms are on what a server's results are kept.
type Terms struct {
	TTL   time.Duration // 0 means not at all
	Bytes int           // for one tenant, of all servers

	// Shared says that all principals of a tenant are one to the server. Else its
	// results are kept for each by itself.
	Shared bool

	// As says as whom the server is called. Results for somebody else are others.
	As [sha256.Size]byte
}

// A Cache keeps results. Use New. It is safe for concurrent use.
type Cache struct {
	store Store
	terms func(switchboard.ServerID) Terms
	sum   func(*switchboard.Call) string
	count func(outcome string)

	resting atomic.Int64 // until when the store is left alone, in unix nanoseconds

	mu      sync.Mutex
	flights map[string]*flight // by key
}

// What a call can come to whose result may be kept.
const (
	Hit    = "hit"    // it was given what was kept
	Shared = "shared" // it waited for a call that was under way, and was given what that was
	Miss   = "miss"   // it was made
)

// New returns a Cache over the store, on the terms that are so at each call. sum is the
// digest of a call's arguments in canonical form, with a key: what is short could be guessed
// from what is kept. count is told what each call has come to whose result may be kept.
func New(s Store, terms func(switchboard.ServerID) Terms, sum func(*switchboard.Call) string, count func(outcome string)) *Cache {
	return &Cache{store: s, terms: terms, sum: sum, count: count, flights: map[string]*flight{}}
}

// A flight is a call that is made for all who ask for the same in this process.
type flight struct {
	waiting int // who, guarded by Cache.mu
	done    chan struct{}
	kept    *entry // what it was given, nil where that was nothing for others
	cut     bool   // its client has gone, so that another has to make it for all
}

// An entry is what stands in a place: a line of JSON, and then the result's bytes.
type entry struct {
	Key  string    `json:"key"`
	When time.Time `json:"when"`
	body []byte
}

func (e *entry) encode() []byte {
	head, _ := json.Marshal(e) // it cannot fail
	return append(append(head, '\n'), e.body...)
}

// give gives the entry again, in memory of its own.
func (e *entry) give(c *switchboard.Call) switchboard.Result {
	c.Trail.Gave(switchboard.GivenCache)
	return switchboard.Result{JSON: bytes.Clone(e.body), Again: &switchboard.Again{From: switchboard.GivenCache, When: e.When}}
}

// Serve returns a Caller that gives the result of a deterministic tool again where
// it is kept, and makes one call where many ask for the same at once. It belongs
// behind all that says whether a call may be made, and before all that counts those
// that are.
func (k *Cache) Serve(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		p, ok := k.place(c)
		if !ok {
			return next.Call(ctx, c)
		}
		for {
			k.mu.Lock()
			f := k.flights[p.key]
			if f == nil {
				f = &flight{done: make(chan struct{})}
				k.flights[p.key] = f
				k.mu.Unlock()
				return k.lead(ctx, c, p, f, next)
			}
			f.waiting++
			k.mu.Unlock()
			select {
			case <-f.done:
				if f.kept != nil {
					k.count(Shared)
					return f.kept.give(c), nil
				}
				if f.cut {
					continue
				}
			case <-ctx.Done():
			}
			k.count(Miss)
			return next.Call(ctx, c)
		}
	})
}

// lead looks for the result, or makes the call, for all of the flight.
func (k *Cache) lead(ctx context.Context, c *switchboard.Call, p *place, f *flight, next switchboard.Caller) (switchboard.Result, error) {
	defer func() {
		f.cut = ctx.Err() != nil
		k.mu.Lock()
		delete(k.flights, p.key)
		k.mu.Unlock()
		close(f.done)
	}()
	kept, leads := k.look(ctx, p)
	switch {
	case kept == nil:
		k.count(Miss)
	case p.waited:
		k.count(Shared)
	default:
		k.count(Hit)
	}
	if kept != nil {
		f.kept = kept
		return kept.give(c), nil
	}
	end := func(*entry) {}
	if leads {
		end = k.hold(p)
	}
	var result *entry
	defer func() { end(result) }()
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
	fits, waiting := len(r.JSON) <= MaxResult, f.waiting > 0
	k.mu.Unlock()
	if err == nil && !asked.Load() && final(&r) && (fits || waiting) {
		f.kept = &entry{Key: p.key, When: time.Now(), body: bytes.Clone(r.JSON)}
		if fits {
			result = f.kept
		}
	}
	return r, err
}

// A place is where a result stands, or will.
type place struct {
	group string
	key   string // which result
	owner []byte // of a lease
	ttl   time.Duration

	waited bool // for another process
}

func (p *place) lease() string { return "lease/" + p.key }

const resultName = "result"

// place returns where the result of the call stands; ok is false where it is not
// kept.
func (k *Cache) place(c *switchboard.Call) (p *place, ok bool) {
	if c.Tool == nil || c.Method != wire.MethodToolsCall {
		return nil, false
	}
	if f := &c.Tool.Contract; !f.Deterministic.Holds || !f.Deterministic.Trusted || f.Stateful.Holds {
		return nil, false
	}
	terms := k.terms(c.Server)
	places := terms.Bytes / MaxResult
	if terms.TTL <= 0 || places < 1 || !plain(c.Params) {
		return nil, false
	}
	parts := []string{string(c.Principal.Tenant), c.Tool.ID.String(), string(c.Tool.Digest), k.sum(c), string(terms.As[:]), c.Principal.Tier, strconv.Itoa(len(c.Principal.Roles))}
	parts = append(parts, c.Principal.Roles...)
	if !terms.Shared {
		parts = append(parts, "principal", string(c.Principal.Auth), c.Principal.ID)
	}
	h := sha256.New()
	for _, s := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(s), s) // it never fails
	}
	sum := h.Sum(nil)
	at := binary.BigEndian.Uint64(sum) % uint64(places)
	return &place{
		group: fmt.Sprintf("cache/%s/%d", c.Principal.Tenant, at),
		key:   hex.EncodeToString(sum),
		ttl:   terms.TTL,
	}, true
}

// plain reports whether the params say nothing but which tool and which arguments:
// what else there is may lead to another result.
func plain(params []byte) bool {
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

// final reports whether the result is one, whole and good.
func final(r *switchboard.Result) bool {
	o := r.Outline
	if o.End == 0 {
		o = wire.OutlineOf(r.JSON)
	}
	if o.Crowded {
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

// look returns what stands in the place, also what another process is about to put
// there. leads says that the caller holds the lease, to make the call for all.
func (k *Cache) look(ctx context.Context, p *place) (kept *entry, leads bool) {
	if e, ok := k.read(ctx, p); e != nil || !ok {
		return e, false
	}
	p.owner = []byte(rand.Text())
	switch leads, ok := k.claim(ctx, p); {
	case leads: // unless another has led between the two
		if kept, _ = k.read(ctx, p); kept != nil {
			k.write(p, store.Write{Name: p.lease(), Was: store.Any})
		}
		return kept, kept == nil
	case !ok:
		return nil, false
	}
	wake := make(chan struct{}, 1)
	defer k.store.Subscribe(p.group, func([]byte) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for {
		var lease store.Value
		if !k.use(ctx, func(ctx context.Context) (err error) {
			lease, err = k.store.Value(ctx, store.Key{Group: p.group, Name: p.lease()})
			if errors.Is(err, store.ErrUnopened) { // no other process makes the call
				lease, err = store.Value{}, nil
			}
			return err
		}) {
			return nil, false
		}
		// After the lease: who gives that up has put the result there.
		if e, ok := k.read(ctx, p); e != nil || !ok {
			return e, false
		}
		if lease.Version == 0 {
			return nil, false
		}
		p.waited = true
		select {
		case <-wake:
		case <-poll.C:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// read returns what stands in the place, if it is what is looked for; ok is false
// where the store failed.
func (k *Cache) read(ctx context.Context, p *place) (e *entry, ok bool) {
	var v store.Value
	if !k.use(ctx, func(ctx context.Context) (err error) {
		v, err = k.store.Value(ctx, store.Key{Group: p.group, Name: resultName})
		if errors.Is(err, store.ErrUnopened) { // nobody knows what it is: the call is made, and its result replaces it
			return nil
		}
		return err
	}) {
		return nil, false
	}
	head, body, _ := bytes.Cut(v.Data, []byte("\n"))
	e = &entry{body: body}
	if json.Unmarshal(head, e) != nil || e.Key != p.key || time.Since(e.When) >= p.ttl {
		return nil, true
	}
	return e, true
}

// claim takes the lease of the place; ok is false where the store failed.
func (k *Cache) claim(ctx context.Context, p *place) (leads, ok bool) {
	ok = k.use(ctx, func(ctx context.Context) error {
		_, err := k.store.Apply(ctx, store.Change{Group: p.group, Writes: []store.Write{{Name: p.lease(), Data: p.owner, TTL: leaseFor}}})
		if leads = err == nil; errors.Is(err, store.ErrConflict) {
			return nil
		}
		return err
	})
	return leads, ok
}

// hold renews the lease until end is called, with what is to stand in the place; nil
// where that is nothing.
func (k *Cache) hold(p *place) (end func(*entry)) {
	stop := make(chan struct{})
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(renewEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				k.write(p, store.Write{Name: p.lease(), Was: store.Any, Data: p.owner, TTL: leaseFor})
			}
		}
	})
	return func(e *entry) {
		close(stop)
		renewing.Wait()
		writes := []store.Write{{Name: p.lease(), Was: store.Any}}
		if e != nil {
			writes = append(writes, store.Write{Name: resultName, Was: store.Any, Data: e.encode(), TTL: p.ttl})
		}
		k.write(p, writes...)
		k.use(context.Background(), func(ctx context.Context) error { return k.store.Publish(ctx, p.group, []byte("changed")) })
	}
}

func (k *Cache) write(p *place, writes ...store.Write) {
	k.use(context.Background(), func(ctx context.Context) error {
		_, err := k.store.Apply(ctx, store.Change{Group: p.group, Writes: writes})
		return err
	})
}

// use uses the store, unless it has failed just now, and reports whether that went
// well.
func (k *Cache) use(ctx context.Context, do func(context.Context) error) bool {
	if time.Now().UnixNano() < k.resting.Load() || ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := do(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		k.resting.Store(time.Now().Add(restFor).UnixNano())
	}
	return err == nil
}
