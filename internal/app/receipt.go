package app

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/cluster"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	// KeyFile holds the secrets that the keys of receipts are derived from. It is in the folder of the
	// store's file; see receipt.KeyFile. Replicas derive their keys from the secret that they share.
	KeyFile = "receipts.key"

	maxChains    = 1000 // of processes that write to one store at the same time
	trimInterval = time.Hour
	groupChains  = "nodes"
	lockPattern  = "receipts-%s.lock"
)

// A ledger holds the receipts of this process. It is safe for concurrent use.
type ledger struct {
	recorder
	digests *receipt.Digests // of arguments and results, wherever a digest of them is stored

	// sessionKey authenticates the ids of sessions; see gateway.Options. It is derived from the same
	// secret as the keys of receipts, so all users of the store have it.
	sessionKey switchboard.Secret

	// offerKey keys the digests of servers' configurations. It is derived likewise.
	offerKey switchboard.Secret

	// openChain takes over a chain that no other process writes. It is nil if no data outlives this
	// process: then there are no receipts.
	openChain   func(context.Context) (*ownedChain, error)
	readKeys    func() ([]switchboard.Secret, error) // the first secret signs
	next        switchboard.Caller
	chain       atomic.Pointer[ownedChain]
	anchor      io.Closer // nil if there is none
	retention   receipt.Retention
	log         *slog.Logger
	loggedFault string // the last message that rotateKey logged; only followChain uses it
}

// An ownedChain is a chain that only this process writes, and the Caller that writes receipts to
// it.
type ownedChain struct {
	*receipt.Book
	lease  chainLease
	secret switchboard.Secret // the signing key is derived from it
	caller switchboard.Caller
}

// A chainLease is the right to write the chain of that name, until release is called.
type chainLease struct {
	name    string
	release func()
}

// openLedger opens the receipts. If no data outlives this process, there are none.
func openLedger(ctx context.Context, o Options, c *config.Config, st store.Store) (*ledger, error) {
	l := &ledger{log: o.Log, retention: receipt.Retention{MaxAge: c.Receipts.Keep, MaxBytes: c.Receipts.MaxSize}}
	status := st.Status()
	if status.Kind == "memory" {
		l.digests, l.sessionKey, l.offerKey = receipt.NewDigests(receipt.NewKey()), receipt.NewKey(), receipt.NewKey()
		return l, nil
	}
	secrets := []switchboard.Secret{c.Cluster.Secret}
	l.readKeys = func() ([]switchboard.Secret, error) { return secrets, nil }
	take := func(ctx context.Context) (chainLease, error) { return leaseChain(ctx, st, o) }
	if status.Kind == "file" {
		dir := filepath.Dir(storePath(o, c.Store))
		take = func(context.Context) (chainLease, error) { return lockChain(dir) }
		var err error
		if secrets, err = receipt.KeyFile(filepath.Join(dir, KeyFile)); err != nil {
			return nil, err
		}
		l.readKeys = func() ([]switchboard.Secret, error) { return receipt.ReadKeys(filepath.Join(dir, KeyFile)) }
	}
	oldest := secrets[len(secrets)-1] // stored digests and sessions stay valid when the key is rotated
	digestKey := deriveKey(oldest, "digests")
	l.sessionKey = deriveKey(oldest, "sessions")
	l.offerKey = deriveKey(oldest, "offers")
	l.digests = receipt.NewDigests(digestKey)
	opts := receipt.Options{DigestKey: digestKey, Version: o.Version, Log: o.Log}
	if name := c.Receipts.Anchor; name != "" {
		anchor, err := receipt.OpenAnchor(name)
		if err != nil {
			return nil, err
		}
		opts.Anchor, l.anchor = anchor, anchor
	}
	begin := func(ctx context.Context, n chainLease) (*ownedChain, error) {
		secrets, err := l.readKeys()
		if err != nil {
			return nil, err
		}
		own := opts
		own.Node, own.Key = n.name, n.signingKey(secrets[0])
		for _, s := range secrets[1:] {
			own.Previous = append(own.Previous, n.signingKey(s))
		}
		book, err := receipt.Open(ctx, st, own)
		if err != nil {
			return nil, fmt.Errorf("receipts of node %s: %w", n.name, err)
		}
		return &ownedChain{Book: book, lease: n, secret: secrets[0]}, nil
	}
	l.openChain = func(ctx context.Context) (*ownedChain, error) {
		for {
			n, err := take(ctx)
			if err != nil {
				return nil, fmt.Errorf("receipts: %w", err)
			}
			v, err := begin(ctx, n)
			if err == nil {
				return v, nil
			}
			defer n.release() // after the next one is taken, so that it is not taken again
			if status.Kind == "file" || ctx.Err() != nil {
				return nil, err
			}
			// With many chains, this process leaves a damaged one as it is and takes the next.
			o.Log.Error("a chain of receipts cannot be continued, so another one is taken; \"switchboard receipts verify\" shows what is wrong with it", "node", n.name, "err", err)
		}
	}
	first, err := l.openChain(ctx)
	if err != nil {
		return nil, err
	}
	l.chain.Store(first)
	l.recorder = recorder{
		addReceipt: func(r *receipt.Receipt) string { return l.chain.Load().Add(r) }, archive: archive.New(st, c.Receipts.Keep, o.Log),
		latest: map[switchboard.Digest]lastRecord{},
	}
	return l, nil
}

// wrap returns the Caller that writes receipts of next's calls. Call it once.
func (l *ledger) wrap(next switchboard.Caller) switchboard.Caller {
	if l.openChain == nil {
		return next
	}
	l.next = next
	v := l.chain.Load()
	v.caller = v.Calls(next)
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		return l.chain.Load().caller.Call(ctx, c)
	})
}

// signingKey derives the key that signs this chain from secret.
func (n chainLease) signingKey(secret switchboard.Secret) switchboard.Secret {
	return deriveKey(secret, "signatures of "+n.name)
}

// rotateKey continues the chain with the present signing key, if that key has changed.
func (l *ledger) rotateKey(ctx context.Context, v *ownedChain) {
	keys, err := l.readKeys()
	if err == nil && !keys[0].Equal(v.secret) {
		if err = v.Rotate(ctx, v.lease.signingKey(keys[0])); err == nil {
			v.secret = keys[0]
			l.log.Info("the key that signs receipts was rotated", "node", v.lease.name)
		}
	}
	if err == nil {
		l.loggedFault = ""
	} else if ctx.Err() == nil && l.loggedFault != err.Error() { // this runs each second
		l.loggedFault = err.Error()
		l.log.Warn("the key that signs receipts cannot be read or rotated; the chain continues with the key that it has", "err", err)
	}
}

// followChain rotates the key of the chain when the signing key has changed, and takes another
// chain when another process has taken over ours, until ctx is done. That happens after this
// process was stopped for longer than its lease.
func (l *ledger) followChain(ctx context.Context) {
	if l.openChain == nil {
		return
	}
	tick := time.NewTicker(cluster.Lease / 5)
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
			l.log.Error("another process has taken over our chain of receipts, and no other chain can be opened", "node", was.lease.name, "err", err)
			continue
		}
		v.caller = v.Calls(l.next)
		l.chain.Store(v)
		l.log.Warn("another process has taken over our chain of receipts; we continue with another one", "node", was.lease.name, "now", v.lease.name)
		_ = was.Close(ctx) // it cannot write any more
		v.Inherit(was.Book)
		was.lease.release()
	}
}

// trimExpired removes receipts that are older or larger than the retention allows, from time to
// time, until ctx is done.
func (l *ledger) trimExpired(ctx context.Context) {
	if l.openChain == nil {
		return
	}
	tick := time.NewTicker(trimInterval)
	defer tick.Stop()
	for {
		if gone, err := l.chain.Load().Trim(ctx, l.retention); err != nil && ctx.Err() == nil {
			l.log.Warn("old receipts were not removed", "err", err)
		} else if gone > 0 {
			l.log.Info("old receipts were removed", "receipts", gone)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close writes the receipts that are queued, and releases the chain.
func (l *ledger) close(ctx context.Context) error {
	if l.openChain == nil {
		return nil
	}
	l.recorder.close()
	v := l.chain.Load()
	err := v.Close(ctx)
	if l.anchor != nil {
		err = errors.Join(err, l.anchor.Close())
	}
	v.lease.release()
	return err
}

// RecordStatus is the status of receipts and of their archive.
type RecordStatus struct {
	Receipts receipt.Status `json:"receipts"`
	Archive  archive.Status `json:"archive"`
}

// Fault says why receipts, their anchor or their archive cannot be written, or "".
func (s *RecordStatus) Fault() string {
	for _, why := range []string{s.Receipts.Fault, s.Receipts.Anchor, s.Archive.Fault} {
		if why != "" {
			return why
		}
	}
	return ""
}

// status returns nil if there are no receipts.
func (l *ledger) status() *RecordStatus {
	if l.openChain == nil {
		return nil
	}
	return &RecordStatus{l.chain.Load().Status(), l.archive.Status()}
}

// lockChain locks the first chain that no other process on this machine has locked. The lock ends
// with the process.
func lockChain(dir string) (chainLease, error) {
	for i := range maxChains {
		name := "n" + strconv.Itoa(i+1)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(lockPattern, name)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return chainLease{}, err
		}
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return chainLease{name, func() { _ = f.Close() }}, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return chainLease{}, errors.Join(fmt.Errorf("lock of node %s: %w", name, err), f.Close())
		}
		_ = f.Close() // another process has it
	}
	return chainLease{}, fmt.Errorf("%d processes write to this store", maxChains)
}

// leaseChain takes a lease of the first chain that is free, and renews it until it is released. A
// process that was stopped for longer than its lease learns at its next receipt that another
// process has taken over its chain.
func leaseChain(ctx context.Context, st store.Store, o Options) (chainLease, error) {
	for i := range maxChains {
		name := "r" + strconv.Itoa(i+1)
		v, err := st.Value(ctx, store.Key{Group: groupChains, Name: name})
		if err != nil {
			return chainLease{}, err
		}
		if v.Version != 0 {
			continue
		}
		host, _ := os.Hostname() // for people who look into the store
		lease := func(was store.Version) (store.Version, error) {
			ctx, cancel := context.WithTimeout(context.Background(), cluster.Lease/2)
			defer cancel()
			return st.Apply(ctx, store.Change{Group: groupChains, Writes: []store.Write{{Name: name, Was: was, Data: []byte(host), TTL: cluster.Lease}}})
		}
		version, err := lease(0)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return chainLease{}, err
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			tick := time.NewTicker(cluster.Lease / 5)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
				}
				now, err := lease(version)
				if errors.Is(err, store.ErrConflict) { // our lease has expired
					now, err = lease(0)
				}
				if err == nil {
					version = now
				} else {
					o.Log.Debug("the lease of a chain of receipts was not renewed", "node", name, "err", err)
				}
			}
		}()
		return chainLease{name, func() {
			close(stop)
			<-stopped
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = st.Apply(ctx, store.Change{Group: groupChains, Writes: []store.Write{{Name: name, Was: version}}}) // otherwise the lease expires
		}}, nil
	}
	return chainLease{}, fmt.Errorf("%d processes write to this store", maxChains)
}

// deriveKey derives a key from a secret for one purpose, in the form of receipt.NewKey.
func deriveKey(secret switchboard.Secret, purpose string) switchboard.Secret {
	key, err := hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard receipts: "+purpose, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // only for more bytes than HKDF can give
	}
	return switchboard.NewSecret(base64.RawURLEncoding.EncodeToString(key))
}
