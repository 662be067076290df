package receipt

import (
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// LedgerKeyFile holds the secrets that the keys of receipts are derived from. It is in the folder
	// of the store's file; see KeyFile. Replicas derive their keys from the secret that they share.
	LedgerKeyFile = "receipts.key"

	// GroupChains is the group of the store with the leases of chains.
	GroupChains = "nodes"

	maxChains    = 1000 // of processes that write to one store at the same time
	trimInterval = time.Hour
	lockPattern  = "receipts-%s.lock"
)

// LedgerOptions say where a Ledger keeps its receipts.
type LedgerOptions struct {
	Store     store.Store
	Folder    string             // of the store's file, if it is one: for locks and keys
	Secret    switchboard.Secret // that the replicas share, if the store is no file
	Lease     time.Duration      // of a chain; Follow looks five times in a Lease
	Retention Retention
	Anchor    string // see OpenAnchor; "" means none
	Version   string // of Switchboard
	Log       *slog.Logger
}

// A Ledger holds the receipts of this process: it owns a chain, and takes another one when it loses
// that. Use OpenLedger. It is safe for concurrent use.
type Ledger struct {
	o       LedgerOptions
	root    switchboard.Secret // for Key
	digests *Digests

	// openChain takes over a chain that no other process writes. It is nil if no data outlives this
	// process: then there are no receipts.
	openChain   func(context.Context) (*ownedChain, error)
	readKeys    func() ([]switchboard.Secret, error) // the first secret signs
	chain       atomic.Pointer[ownedChain]
	anchor      io.Closer // nil if there is none
	loggedFault string    // the last message that rotateKey logged; only Follow uses it
}

// An ownedChain is a chain that only this process writes.
type ownedChain struct {
	*Chain
	lease  chainLease
	secret switchboard.Secret // the signing key is derived from it
}

// A chainLease is the right to write the chain of that name, until release is called.
type chainLease struct {
	name    string
	release func()
}

// OpenLedger opens the receipts. If no data outlives this process, there are none.
func OpenLedger(ctx context.Context, o LedgerOptions) (*Ledger, error) {
	l := &Ledger{o: o}
	var err error
	if l.root, err = rootOf(ctx, &o); err != nil {
		return nil, err
	}
	l.digests = NewDigests(l.Key("digests"))
	file := o.Store.Status().Kind == "file"
	switch o.Store.Status().Kind {
	case "memory":
		return l, nil
	case "file":
		l.readKeys = func() ([]switchboard.Secret, error) { return ReadKeys(filepath.Join(o.Folder, LedgerKeyFile)) }
	default:
		l.readKeys = func() ([]switchboard.Secret, error) { return []switchboard.Secret{o.Secret}, nil }
	}
	opts := ChainOptions{DigestKey: l.Key("digests"), Version: o.Version, Log: o.Log}
	if o.Anchor != "" {
		anchor, err := OpenAnchor(o.Anchor)
		if err != nil {
			return nil, err
		}
		opts.Anchor, l.anchor = anchor, anchor
	}
	l.openChain = func(ctx context.Context) (*ownedChain, error) {
		for {
			lease, err := l.leaseChain(ctx, file)
			if err != nil {
				return nil, fmt.Errorf("receipts: %w", err)
			}
			v, err := l.continueChain(ctx, lease, opts)
			if err == nil {
				return v, nil
			}
			defer lease.release() // after the next one is taken, so that it is not taken again
			if file && !l.isOfLostSecret(err) || ctx.Err() != nil {
				return nil, err
			}
			// With many chains, this process leaves a damaged one as it is and takes the next. A file whose secret was lost has its old chains, too.
			o.Log.Error("a chain of receipts cannot be continued, so another one is taken; \"switchboard receipts verify\" shows what is wrong with it", "node", lease.name, "err", err)
		}
	}
	first, err := l.openChain(ctx)
	if err != nil {
		return nil, err
	}
	l.chain.Store(first)
	return l, nil
}

// isOfLostSecret reports whether err says that a chain is signed with another key, and a person has replaced a lost secret.
func (l *Ledger) isOfLostSecret(err error) bool {
	if _, foreign := errors.AsType[*foreignKeyError](err); !foreign {
		return false
	}
	_, err = os.Stat(filepath.Join(l.o.Folder, lostSecretFile))
	return err == nil
}

// leaseChain takes the right to write a chain.
func (l *Ledger) leaseChain(ctx context.Context, file bool) (chainLease, error) {
	if file {
		return lockChain(l.o.Folder)
	}
	return leaseChain(ctx, l.o.Store, l.o.Lease, l.o.Log)
}

// continueChain opens the chain of the lease with the present keys.
func (l *Ledger) continueChain(ctx context.Context, lease chainLease, opts ChainOptions) (*ownedChain, error) {
	secrets, err := l.readKeys()
	if err != nil {
		return nil, err
	}
	opts.Node, opts.Key = lease.name, lease.signingKey(secrets[0])
	for _, s := range secrets[1:] {
		opts.Previous = append(opts.Previous, lease.signingKey(s))
	}
	chain, err := Open(ctx, l.o.Store, opts)
	if err != nil {
		return nil, fmt.Errorf("receipts of node %s: %w", lease.name, err)
	}
	return &ownedChain{Chain: chain, lease: lease, secret: secrets[0]}, nil
}

// Durable reports whether there are receipts.
func (l *Ledger) Durable() bool { return l.openChain != nil }

// Digests returns the digests of arguments and results. All stored digests of these must be made by them.
func (l *Ledger) Digests() *Digests { return l.digests }

// Key derives a key for one purpose. All processes that use the store derive the same one. If no data
// outlives this process, only this process has it.
func (l *Ledger) Key(purpose string) switchboard.Secret { return deriveKey(l.root, purpose) }

// KeyOf derives the key that a Ledger with these options derives for one purpose. It is for processes that write no receipts.
func KeyOf(ctx context.Context, o LedgerOptions, purpose string) (switchboard.Secret, error) {
	root, err := rootOf(ctx, &o)
	if err != nil {
		return root, err
	}
	return deriveKey(root, purpose), nil
}

// rootOf returns the secret that the keys of a ledger are derived from. It makes one for a file without receipts.
func rootOf(ctx context.Context, o *LedgerOptions) (root switchboard.Secret, err error) {
	switch o.Store.Status().Kind {
	case "memory":
		return NewKey(), nil
	case "file":
		name := filepath.Join(o.Folder, LedgerKeyFile)
		if err := refuseLostKeys(ctx, o.Store, name); err != nil {
			return root, err
		}
		secrets, err := ReadOrCreateKeys(name)
		if err != nil {
			return root, err
		}
		return secrets[len(secrets)-1], nil // the oldest, so that stored digests and sessions stay valid when the key is rotated
	}
	return o.Secret, nil
}

// refuseLostKeys returns an error if the store has receipts, and the file with their secret is missing: a restored backup
// without it, or a store that comes from a Redis. A new secret would not recognize idempotency keys, so calls could run twice.
func refuseLostKeys(ctx context.Context, st store.Store, name string) error {
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return nil // ReadKeys says what is wrong with it
	}
	nodes, err := Nodes(ctx, st)
	if err != nil || len(nodes) == 0 {
		return err
	}
	return fmt.Errorf("the store has receipts, but the file with their secret is missing: %s; copy it from the folder that the store was in, where vault.key is, too. If it is lost, or the store was a Redis, "+
		"make a new secret with \"switchboard receipts rotate\": calls with an idempotency key from before can run once more then, and receipts begin a new chain", name)
}

// Add adds a receipt without waiting for the store, and returns its id; "" if there are no receipts.
func (l *Ledger) Add(r *Receipt) (id string) {
	if l.openChain == nil {
		return ""
	}
	return l.chain.Load().Add(r)
}

// Write writes a receipt and returns its id once it is durable. There must be receipts.
func (l *Ledger) Write(ctx context.Context, r *Receipt) (id string, err error) {
	return l.chain.Load().Write(ctx, r)
}

// RecordCalls is Chain.RecordCalls for the chain that the ledger owns at the time, if there are receipts.
func (l *Ledger) RecordCalls(next switchboard.Caller) switchboard.Caller {
	if l.openChain == nil {
		return next
	}
	return recordCalls(next, l.ownChain)
}

// WriteIntent is Chain.WriteIntent for the chain that the ledger owns at the time. There must be receipts.
func (l *Ledger) WriteIntent(ctx context.Context, c *switchboard.Call, terms IntentTerms) (id string, err error) {
	return l.chain.Load().WriteIntent(ctx, c, terms)
}

// Node returns the chain that the ledger owns now. There must be receipts.
func (l *Ledger) Node() string { return l.chain.Load().options.Node }

func (l *Ledger) ownChain() *Chain { return l.chain.Load().Chain }

// signingKey derives the key that signs this chain from secret.
func (n chainLease) signingKey(secret switchboard.Secret) switchboard.Secret {
	return deriveKey(secret, "signatures of "+n.name)
}

// rotateKey continues the chain with the present signing key, if that key has changed.
func (l *Ledger) rotateKey(ctx context.Context, v *ownedChain) {
	keys, err := l.readKeys()
	if err == nil && !keys[0].Equal(v.secret) {
		if err = v.Rotate(ctx, v.lease.signingKey(keys[0])); err == nil {
			v.secret = keys[0]
			l.o.Log.Info("the key that signs receipts was rotated", "node", v.lease.name)
		}
	}
	if err == nil {
		l.loggedFault = ""
	} else if ctx.Err() == nil && l.loggedFault != err.Error() { // this runs each second
		l.loggedFault = err.Error()
		l.o.Log.Warn("the key that signs receipts cannot be read or rotated; the chain continues with the key that it has", "err", err)
	}
}

// Follow rotates the key of the chain when the signing key has changed, and takes another
// chain when another process has taken over ours, until ctx is done. That happens after this
// process was stopped for longer than its lease.
func (l *Ledger) Follow(ctx context.Context) {
	if l.openChain == nil {
		return
	}
	tick := time.NewTicker(l.o.Lease / 5)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		was := l.chain.Load()
		if !was.Status().Fenced {
			l.rotateKey(ctx, was)
			continue
		}
		v, err := l.openChain(ctx)
		if err != nil {
			l.o.Log.Error("another process has taken over our chain of receipts, and no other chain can be opened", "node", was.lease.name, "err", err)
			continue
		}
		l.chain.Store(v)
		l.o.Log.Warn("another process has taken over our chain of receipts; we continue with another one", "node", was.lease.name, "now", v.lease.name)
		_ = was.Close(ctx) // it cannot write any more
		v.InheritLosses(was.Chain)
		was.lease.release()
	}
}

// Trim removes receipts that are older or larger than the retention allows, from time to
// time, until ctx is done.
func (l *Ledger) Trim(ctx context.Context) {
	if l.openChain == nil {
		return
	}
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		if gone, err := l.chain.Load().Trim(ctx, l.o.Retention); err != nil && ctx.Err() == nil {
			l.o.Log.Warn("old receipts were not removed", "err", err)
		} else if gone > 0 {
			l.o.Log.Info("old receipts were removed", "receipts", gone)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Close writes the receipts that are queued, and releases the chain.
func (l *Ledger) Close(ctx context.Context) error {
	if l.openChain == nil {
		return nil
	}
	v := l.chain.Load()
	err := v.Close(ctx)
	if l.anchor != nil {
		err = errors.Join(err, l.anchor.Close())
	}
	v.lease.release()
	return err
}

// Status returns the status of the chain, or nil if there are no receipts.
func (l *Ledger) Status() *ChainStatus {
	if l.openChain == nil {
		return nil
	}
	status := l.chain.Load().Status()
	return &status
}

// lockChain locks the first chain that no other process on this machine has locked. The lock ends
// with the process.
func lockChain(dir string) (chainLease, error) {
	for i := range maxChains {
		name := "n" + strconv.Itoa(i+1)
		f, err := ownfile.Open(filepath.Join(dir, fmt.Sprintf(lockPattern, name)), os.O_RDWR|os.O_CREATE)
		if err != nil {
			return chainLease{}, err
		}
		switch free, err := ownfile.TryLock(f); {
		case free:
			return chainLease{name, func() { _ = f.Close() }}, nil
		case err != nil:
			return chainLease{}, errors.Join(fmt.Errorf("lock of node %s: %w", name, err), f.Close())
		}
		_ = f.Close() // another process has it
	}
	return chainLease{}, fmt.Errorf("%d processes write to this store", maxChains)
}

// leaseChain takes a lease of the first chain that is free, and renews it until it is released. A
// process that was stopped for longer than its lease learns at its next receipt that another
// process has taken over its chain.
func leaseChain(ctx context.Context, st store.Store, ttl time.Duration, log *slog.Logger) (chainLease, error) {
	host, _ := os.Hostname() // for people who look into the store
	owner := []byte(host + " " + rand.Text())
	for i := range maxChains {
		name := "r" + strconv.Itoa(i+1)
		l := lease.New(st, lease.Options{Key: store.Key{Group: GroupChains, Name: name}, TTL: ttl, Every: ttl / 5, Data: owner})
		switch err := l.Take(ctx); {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return chainLease{}, err
		}
		stop := l.Keep(context.Background(), func(err error) {
			if err != nil {
				log.Debug("the lease of a chain of receipts was not renewed", "node", name, "err", err)
			}
		})
		return chainLease{name, func() {
			stop()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = l.Release(ctx) // otherwise the lease expires
		}}, nil
	}
	return chainLease{}, fmt.Errorf("%d processes write to this store", maxChains)
}

// deriveKey derives a key from a secret for one purpose, in the form of NewKey.
func deriveKey(secret switchboard.Secret, purpose string) switchboard.Secret {
	key, err := hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard receipts: "+purpose, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // only for more bytes than HKDF can give
	}
	return switchboard.NewSecret(base64.RawURLEncoding.EncodeToString(key))
}
