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
	// KeyFile holds the secrets of which the keys of receipts are made, beside the
	// store's file; see receipt.KeyFile. Replicas make theirs of the secret that they share.
	KeyFile = "receipts.key"

	maxNodes    = 1000 // that write to one store at once
	trimEvery   = time.Hour
	groupNodes  = "nodes"
	lockPattern = "receipts-%s.lock"
)

// A ledger is the receipts of this process. It is safe for concurrent use.
type ledger struct {
	recorder
	digests *receipt.Digests // of arguments and results, wherever they are kept

	// sessionKey follows from what all that use the store have in common, as the keys of
	// receipts do.
	sessionKey switchboard.Secret

	// offerKey is likewise that of digests of how servers are configured.
	offerKey switchboard.Secret

	// open goes on with the chain of a node that no other process is; nil where nothing
	// outlives this process, and there are no receipts.
	open   func(context.Context) (*volume, error)
	keys   func() ([]switchboard.Secret, error) // secrets, the first of which signs
	next   switchboard.Caller
	now    atomic.Pointer[volume]
	anchor io.Closer // nil where there is none
	retain receipt.Retention
	log    *slog.Logger
	told   string // what rotate has last logged; for follow alone
}

// A volume is a chain that this process has for itself, and the Caller that has receipts
// in it.
type volume struct {
	*receipt.Book
	node  node
	key   switchboard.Secret // the secret of which that is made that signs
	calls switchboard.Caller
}

// A node is whose chain it is, until release is called.
type node struct {
	name    string
	release func()
}

// openLedger opens the receipts of what next does. Where nothing outlives this process there
// are none.
func openLedger(ctx context.Context, o Options, c *config.Config, st store.Store) (*ledger, error) {
	l := &ledger{log: o.Log, retain: receipt.Retention{MaxAge: c.Receipts.Keep, MaxBytes: c.Receipts.MaxSize}}
	status := st.Status()
	if status.Kind == "memory" {
		l.digests, l.sessionKey, l.offerKey = receipt.NewDigests(receipt.NewKey()), receipt.NewKey(), receipt.NewKey()
		return l, nil
	}
	secrets := []switchboard.Secret{c.Cluster.Secret}
	l.keys = func() ([]switchboard.Secret, error) { return secrets, nil }
	take := func(ctx context.Context) (node, error) { return leaseNode(ctx, st, o) }
	if status.Kind == "file" {
		dir := filepath.Dir(storePath(o, c.Store))
		take = func(context.Context) (node, error) { return lockNode(dir) }
		var err error
		if secrets, err = receipt.KeyFile(filepath.Join(dir, KeyFile)); err != nil {
			return nil, err
		}
		l.keys = func() ([]switchboard.Secret, error) { return receipt.ReadKeys(filepath.Join(dir, KeyFile)) }
	}
	oldest := secrets[len(secrets)-1] // so that what is kept under digests, and who has a session, goes on when the key is rotated
	digestKey := derived(oldest, "digests")
	l.sessionKey = derived(oldest, "sessions")
	l.offerKey = derived(oldest, "offers")
	l.digests = receipt.NewDigests(digestKey)
	opts := receipt.Options{DigestKey: digestKey, Version: o.Version, Log: o.Log}
	if name := c.Receipts.Anchor; name != "" {
		anchor, err := receipt.OpenAnchor(name)
		if err != nil {
			return nil, err
		}
		opts.Anchor, l.anchor = anchor, anchor
	}
	begin := func(ctx context.Context, n node) (*volume, error) {
		secrets, err := l.keys()
		if err != nil {
			return nil, err
		}
		own := opts
		own.Node, own.Key = n.name, n.key(secrets[0])
		for _, s := range secrets[1:] {
			own.Previous = append(own.Previous, n.key(s))
		}
		book, err := receipt.Open(ctx, st, own)
		if err != nil {
			return nil, fmt.Errorf("receipts of node %s: %w", n.name, err)
		}
		return &volume{Book: book, node: n, key: secrets[0]}, nil
	}
	l.open = func(ctx context.Context) (*volume, error) {
		for {
			n, err := take(ctx)
			if err != nil {
				return nil, fmt.Errorf("receipts: %w", err)
			}
			v, err := begin(ctx, n)
			if err == nil {
				return v, nil
			}
			defer n.release() // not before there is another
			if status.Kind == "file" || ctx.Err() != nil {
				return nil, err
			}
			// Of the chains of many one that is damaged is left as it is.
			o.Log.Error("a chain of receipts cannot be gone on with, and another is taken; switchboard receipts verify says what is wrong with it", "node", n.name, "err", err)
		}
	}
	first, err := l.open(ctx)
	if err != nil {
		return nil, err
	}
	l.now.Store(first)
	l.recorder = recorder{
		add: func(r *receipt.Receipt) string { return l.now.Load().Add(r) }, archive: archive.New(st, c.Receipts.Keep, o.Log),
		known: map[switchboard.Digest]recorded{},
	}
	return l, nil
}

// around is the Caller that has receipts of what next does. It is called once.
func (l *ledger) around(next switchboard.Caller) switchboard.Caller {
	if l.open == nil {
		return next
	}
	l.next = next
	v := l.now.Load()
	v.calls = v.Calls(next)
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		return l.now.Load().calls.Call(ctx, c)
	})
}

// key is that of the node's chain which is made of the secret.
func (n node) key(secret switchboard.Secret) switchboard.Secret {
	return derived(secret, "signatures of "+n.name)
}

// rotate goes on with the key that signs now, if that is another.
func (l *ledger) rotate(ctx context.Context, v *volume) {
	keys, err := l.keys()
	if err == nil && !keys[0].Equal(v.key) {
		if err = v.Rotate(ctx, v.node.key(keys[0])); err == nil {
			v.key = keys[0]
			l.log.Info("the key that signs receipts was rotated", "node", v.node.name)
		}
	}
	if err == nil {
		l.told = ""
	} else if ctx.Err() == nil && l.told != err.Error() { // it is asked each second
		l.told = err.Error()
		l.log.Warn("whether the key that signs receipts was rotated cannot be told, or not be followed", "err", err)
	}
}

// follow goes on with another key when that was rotated, and with another chain when this one
// is another's, until ctx is done: this process was away for so long that somebody else has
// taken its node.
func (l *ledger) follow(ctx context.Context) {
	if l.open == nil {
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
		was := l.now.Load()
		if !was.Status().Fenced {
			l.rotate(ctx, was)
			continue
		}
		v, err := l.open(ctx)
		if err != nil {
			l.log.Error("another process goes on with our chain of receipts, and no other can be begun", "node", was.node.name, "err", err)
			continue
		}
		v.calls = v.Calls(l.next)
		l.now.Store(v)
		l.log.Warn("another process goes on with our chain of receipts; we go on with another", "node", was.node.name, "now", v.node.name)
		_ = was.Close(ctx) // it can write no more
		v.Inherit(was.Book)
		was.node.release()
	}
}

// trim lets go of what need not be kept any more, from time to time, until ctx is done.
func (l *ledger) trim(ctx context.Context) {
	if l.open == nil {
		return
	}
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		if gone, err := l.now.Load().Trim(ctx, l.retain); err != nil && ctx.Err() == nil {
			l.log.Warn("old receipts were not let go", "err", err)
		} else if gone > 0 {
			l.log.Info("old receipts were let go", "receipts", gone)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close writes what waits.
func (l *ledger) close(ctx context.Context) error {
	if l.open == nil {
		return nil
	}
	l.recorder.close()
	v := l.now.Load()
	err := v.Close(ctx)
	if l.anchor != nil {
		err = errors.Join(err, l.anchor.Close())
	}
	v.node.release()
	return err
}

// RecordStatus says how receipts and what they refer to fare.
type RecordStatus struct {
	Receipts receipt.Status `json:"receipts"`
	Archive  archive.Status `json:"archive"`
}

// Fault says why something of it cannot be written, or "".
func (s *RecordStatus) Fault() string {
	for _, why := range []string{s.Receipts.Fault, s.Receipts.Anchor, s.Archive.Fault} {
		if why != "" {
			return why
		}
	}
	return ""
}

// status is nil where there are no receipts.
func (l *ledger) status() *RecordStatus {
	if l.open == nil {
		return nil
	}
	return &RecordStatus{l.now.Load().Status(), l.archive.Status()}
}

// lockNode takes the first node that no other process on this machine is. The lock
// goes with the process, however that ends.
func lockNode(dir string) (node, error) {
	for i := range maxNodes {
		name := "n" + strconv.Itoa(i+1)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf(lockPattern, name)), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return node{}, err
		}
		switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return node{name, func() { _ = f.Close() }}, nil
		case !errors.Is(err, unix.EWOULDBLOCK):
			return node{}, errors.Join(fmt.Errorf("lock of node %s: %w", name, err), f.Close())
		}
		_ = f.Close() // another process has it
	}
	return node{}, fmt.Errorf("%d processes write to this store", maxNodes)
}

// leaseNode takes the first node that no other process has a lease of, and renews that
// until it is released. A process that is slower than its lease finds at the next receipt
// that somebody else goes on with its chain.
func leaseNode(ctx context.Context, st store.Store, o Options) (node, error) {
	for i := range maxNodes {
		name := "r" + strconv.Itoa(i+1)
		v, err := st.Value(ctx, store.Key{Group: groupNodes, Name: name})
		if err != nil {
			return node{}, err
		}
		if v.Version != 0 {
			continue
		}
		host, _ := os.Hostname() // for people
		lease := func(was store.Version) (store.Version, error) {
			ctx, cancel := context.WithTimeout(context.Background(), cluster.Lease/2)
			defer cancel()
			return st.Apply(ctx, store.Change{Group: groupNodes, Writes: []store.Write{{Name: name, Was: was, Data: []byte(host), TTL: cluster.Lease}}})
		}
		version, err := lease(0)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return node{}, err
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
				if errors.Is(err, store.ErrConflict) { // it was away for longer than its lease
					now, err = lease(0)
				}
				if err == nil {
					version = now
				} else {
					o.Log.Debug("the lease of a chain of receipts is not renewed", "node", name, "err", err)
				}
			}
		}()
		return node{name, func() {
			close(stop)
			<-stopped
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = st.Apply(ctx, store.Change{Group: groupNodes, Writes: []store.Write{{Name: name, Was: version}}}) // or it expires
		}}, nil
	}
	return node{}, fmt.Errorf("%d processes write to this store", maxNodes)
}

// derived makes a key of a secret for one purpose, as receipt.NewKey spells them.
func derived(secret switchboard.Secret, purpose string) switchboard.Secret {
	key, err := hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard receipts: "+purpose, sha256.Size)
	if err != nil {
		panic("deriving a key: " + err.Error()) // only more bytes than there can be
	}
	return switchboard.NewSecret(base64.RawURLEncoding.EncodeToString(key))
}
