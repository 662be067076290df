package store

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// ErrUnopened says that a value does not open: a writer without the key wrote it, it was copied from another
// key of the store, or it has expired. See Sealed.
var ErrUnopened = errors.New("the value does not open")

// Sealed is a Store that encrypts and authenticates values (XChaCha20-Poly1305). The group and the name of a value are
// authenticated with it, so a copy under another key does not open. The groups of a tenant's values name the tenant.
//
// A sealed value is
//
//	"\x00sb1"  nonce (24 bytes, random)  sealed( expires (8 bytes)  data )  tag (16 bytes)
//
// expires is the millisecond in which the value expires, or 0 for never. An expired value does not open, so an attacker
// cannot extend the life of an old value. Before that, an old value that is put back opens: a reader cannot know that a
// newer one existed.
//
// The store itself reads keys, versions, expiry times, limits, logs and notices. They stay plain.
//
// If a value does not open, Value returns ErrUnopened and the version without data. A caller can replace the value by that
// version. List leaves the value out.
type Sealed struct {
	Store
	aead  cipher.AEAD
	plain []string
	log   *slog.Logger

	unopened   atomic.Int64
	lastLogged atomic.Int64 // unix nanoseconds of the last log line about them
}

// SealOptions says how values are sealed.
type SealOptions struct {
	// Key has 32 bytes. It serves no other purpose.
	Key switchboard.Secret

	// Plain lists the groups with unsealed values. A name that ends in "/" is a prefix.
	Plain []string

	// Log gets at most one line a minute about values that do not open. nil means no log.
	Log *slog.Logger
}

const (
	sealMagic = "\x00sb1"
	sealHead  = len(sealMagic) + chacha20poly1305.NonceSizeX
	sealTime  = 8

	// SealBytes is by how much a sealed value is longer than its data.
	SealBytes = sealHead + sealTime + chacha20poly1305.Overhead

	// sealSlack is how much the clocks of replicas may differ.
	sealSlack = 5 * time.Minute

	unopenedLogInterval = time.Minute // between two log lines about values that do not open
	maxFaulty           = 5           // values that Check names
)

// NewSealed returns a Store that seals the values of s.
func NewSealed(s Store, o SealOptions) (*Sealed, error) {
	aead, err := chacha20poly1305.NewX([]byte(o.Key.Reveal()))
	if err != nil {
		return nil, fmt.Errorf("%w: the key of the values: %w", ErrInvalid, err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Sealed{Store: s, aead: aead, plain: o.Plain, log: o.Log}, nil
}

// IsSealed reports whether the data of a value is sealed.
func IsSealed(data []byte) bool { return bytes.HasPrefix(data, []byte(sealMagic)) }

func (s *Sealed) isPlain(group string) bool {
	for _, p := range s.plain {
		if group == p || strings.HasSuffix(p, "/") && strings.HasPrefix(group, p) {
			return true
		}
	}
	return false
}

// associatedData returns the bytes that authenticate the key of a value. No two keys have the same.
func (k Key) associatedData() []byte {
	b := make([]byte, 0, 2+len(k.Group)+len(k.Name))
	b = binary.BigEndian.AppendUint16(b, uint16(len(k.Group))) // at most MaxKey
	b = append(b, k.Group...)
	return append(b, k.Name...)
}

// seal returns data as it is stored under the key until expires.
func (s *Sealed) seal(k Key, data []byte, expires time.Time) []byte {
	out := make([]byte, sealHead, SealBytes+len(data))
	copy(out, sealMagic)
	nonce := out[len(sealMagic):]
	rand.Read(nonce) // it never fails
	inside := out[sealHead : sealHead+sealTime+len(data)]
	binary.BigEndian.PutUint64(inside, 0)
	if !expires.IsZero() {
		binary.BigEndian.PutUint64(inside, uint64(expires.UnixMilli()))
	}
	copy(inside[sealTime:], data)
	return s.aead.Seal(out, nonce, inside, k.associatedData())
}

// open returns the data of a sealed value; ok is false if the value does not open.
func (s *Sealed) open(k Key, sealed []byte, now time.Time) (data []byte, ok bool) {
	if !IsSealed(sealed) || len(sealed) < SealBytes {
		return nil, false
	}
	inside, err := s.aead.Open(nil, sealed[len(sealMagic):sealHead], sealed[sealHead:], k.associatedData())
	if err != nil {
		return nil, false
	}
	if ms := binary.BigEndian.Uint64(inside); ms != 0 && now.After(time.UnixMilli(int64(ms)).Add(sealSlack)) {
		return nil, false
	}
	return inside[sealTime:], true
}

// Value implements Store.
func (s *Sealed) Value(ctx context.Context, k Key) (Value, error) {
	v, err := s.Store.Value(ctx, k)
	if err != nil || v.Version == 0 || s.isPlain(k.Group) {
		return v, err
	}
	data, ok := s.open(k, v.Data, time.Now())
	if v.Data = data; !ok {
		s.countUnopened(k)
		return v, fmt.Errorf("%s: %w", k.Group, ErrUnopened)
	}
	return v, nil
}

// List implements Store. It leaves out what does not open.
func (s *Sealed) List(ctx context.Context, group string) ([]NamedValue, error) {
	all, err := s.Store.List(ctx, group)
	if err != nil || s.isPlain(group) {
		return all, err
	}
	now, opened := time.Now(), all[:0]
	for _, v := range all {
		k := Key{group, v.Name}
		data, ok := s.open(k, v.Data, now)
		if !ok {
			s.countUnopened(k)
			continue
		}
		v.Data = data
		opened = append(opened, v)
	}
	return opened, nil
}

// Apply implements Store.
func (s *Sealed) Apply(ctx context.Context, c Change) (Version, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	if s.isPlain(c.Group) {
		return s.Store.Apply(ctx, c)
	}
	now, writes := time.Now(), make([]Write, len(c.Writes))
	for i, w := range c.Writes {
		if w.Data != nil {
			var expires time.Time
			if w.TTL > 0 {
				expires = now.Add(w.TTL)
			}
			w.Data = s.seal(Key{c.Group, w.Name}, w.Data, expires)
		}
		writes[i] = w
	}
	c.Writes, c.sealed = writes, true
	return s.Store.Apply(ctx, c)
}

// Hold implements Store. It refuses a hold with a change, as a Redis does: the change would not be sealed.
func (s *Sealed) Hold(ctx context.Context, group, id string, terms HoldTerms, accounts ...Account) (sums []AccountState, held bool, err error) {
	if terms.With != nil {
		return nil, false, errJoined
	}
	return s.Store.Hold(ctx, group, id, terms, accounts...)
}

// Check implements Store. A value that does not open is damaged.
func (s *Sealed) Check(ctx context.Context) error {
	if err := s.Store.Check(ctx); err != nil {
		return err
	}
	var faulty []string
	n := 0
	if err := s.Store.Dump(ctx, func(r Record) error {
		if r.Kind != KindValue || s.isPlain(r.Group) {
			return nil
		}
		if _, ok := s.open(Key{r.Group, r.Name}, r.Value.Data, time.Now()); !ok {
			if n++; n <= maxFaulty {
				faulty = append(faulty, fmt.Sprintf("%q in %q", r.Name, r.Group))
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d values do not open with cluster.secret, and are not used; among them %s", n, strings.Join(faulty, ", "))
}

// Dump implements Store. It opens values. A value that does not open keeps its name and version and loses its data, so its
// reader refuses it after an import, too.
func (s *Sealed) Dump(ctx context.Context, see func(Record) error) error {
	return s.Store.Dump(ctx, func(r Record) error {
		if r.Kind == KindValue && !s.isPlain(r.Group) {
			k := Key{r.Group, r.Name}
			data, ok := s.open(k, r.Value.Data, time.Now())
			if !ok {
				s.countUnopened(k)
			}
			r.Value.Data = data
		}
		return see(r)
	})
}

// Load implements Store. It seals values.
func (s *Sealed) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	return s.Store.Load(ctx, func(yield func(Record, error) bool) {
		for r, err := range records {
			switch {
			case err != nil || r.Kind != KindValue || s.isPlain(r.Group):
			case IsSealed(r.Value.Data):
				err = fmt.Errorf("%w: %q in %q is sealed already; export it with the configuration that has its cluster.secret", ErrExport, r.Name, r.Group)
			default:
				r.Value.Data = s.seal(Key{r.Group, r.Name}, r.Value.Data, r.Value.Expires)
			}
			if !yield(r, err) {
				return
			}
		}
	})
}

// Status implements Store.
func (s *Sealed) Status() Status {
	status := s.Store.Status()
	status.Unopened = s.unopened.Load()
	return status
}

// countUnopened counts a value that does not open, and logs that at most once a minute.
func (s *Sealed) countUnopened(k Key) {
	n, now, told := s.unopened.Add(1), time.Now().UnixNano(), s.lastLogged.Load()
	if told != 0 && now-told < int64(unopenedLogInterval) || !s.lastLogged.CompareAndSwap(told, now) {
		return
	}
	s.log.Warn("a value in the store does not open, and is not used: another program wrote it, moved it or put an old one back, or it was written "+
		"with another cluster.secret or by an older Switchboard; switchboard store check names all of these values", "group", k.Group, "since_start", n)
}
