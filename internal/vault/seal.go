package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// minKey is the minimal length of a key, in bytes. It is a secret text, like the secret of the replicas.
const minKey = 16

// What a sealed text is. A text of one kind does not open as the other.
const (
	kindConnection = "connection"
	kindTicket     = "ticket"
)

// A sealer encrypts and authenticates texts with AES-256-GCM. It seals with its first key, and opens with all.
type sealer struct{ keys []cipher.AEAD }

func newSealer(secrets []switchboard.Secret) (*sealer, error) {
	if len(secrets) == 0 {
		return nil, errors.New("vault: there is no key")
	}
	s := &sealer{}
	for i, secret := range secrets {
		if n := len(secret.Reveal()); n < minKey {
			return nil, fmt.Errorf("vault: key %d has %d bytes; at least %d", i+1, n, minKey)
		}
		key, err := hkdf.Key(sha256.New, []byte(secret.Reveal()), nil, "switchboard: connections and tickets", sha256.Size)
		if err != nil {
			return nil, fmt.Errorf("vault: key %d: %w", i+1, err)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("vault: key %d: %w", i+1, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("vault: key %d: %w", i+1, err)
		}
		s.keys = append(s.keys, aead)
	}
	return s, nil
}

// seal returns head followed by the sealed text. The text opens only with the same kind, name and head.
func (s *sealer) seal(kind, name string, head, text []byte) []byte {
	out := append(make([]byte, 0, len(head)+len(text)+s.keys[0].Overhead()), head...)
	return s.keys[0].Seal(out, nil, text, boundTo(kind, name, head))
}

// open returns the text that was sealed after a head of n bytes, and which key opened it.
func (s *sealer) open(kind, name string, n int, sealed []byte) (text []byte, key int, ok bool) {
	if len(sealed) < n {
		return nil, 0, false
	}
	head := sealed[:n]
	for i, aead := range s.keys {
		if text, err := aead.Open(nil, nil, sealed[n:], boundTo(kind, name, head)); err == nil {
			return text, i, true
		}
	}
	return nil, 0, false
}

// boundTo returns the bytes that are authenticated with a text. No two triples have the same.
func boundTo(kind, name string, head []byte) []byte {
	b := make([]byte, 0, len(kind)+len(name)+len(head)+8)
	b = binary.BigEndian.AppendUint32(b, uint32(len(kind)))
	b = append(b, kind...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
	b = append(b, name...)
	return append(b, head...)
}

// nameOf returns the name of a value in the store: a hash of the parts, so that it does not show them.
func nameOf(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
		h.Write([]byte(p))
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// kindOf returns the kind of the texts of another package. It is none of those above.
func kindOf(purpose string) string { return "for " + purpose }

// Seal seals a text of another package, such as the arguments of a call. It opens only with the same purpose and name.
func (v *Vault) Seal(purpose, name string, text []byte) []byte {
	return v.rows.sealer.seal(kindOf(purpose), name, nil, text)
}

// Unseal opens what Seal has sealed. ok is false if it was changed or moved, or if the key is another one.
func (v *Vault) Unseal(purpose, name string, sealed []byte) (text []byte, ok bool) {
	text, _, ok = v.rows.sealer.open(kindOf(purpose), name, 0, sealed)
	return text, ok
}
