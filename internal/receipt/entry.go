package receipt

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// EmptyDigest is the prev of the first entry of a chain: the digest of no bytes.
var EmptyDigest = canonical.Sum(nil)

// A ChainEntry is one entry of a chain.
type ChainEntry struct {
	Node string
	Seq  uint64

	Prev      switchboard.Digest
	Receipt   Receipt
	Signature string // set only in the last of the entries that were written together

	// Raw holds the bytes of the entry, as they are stored.
	Raw []byte

	// Fault says why the entry could not be read. Then only Node, Seq and Raw are known.
	Fault error
}

// ID returns the id of the receipt.
func (e *ChainEntry) ID() string { return ID(e.Node, e.Seq) }

// Digest returns the digest of the whole entry.
func (e *ChainEntry) Digest() switchboard.Digest { return canonical.Sum(e.Raw) }

// AppendLine appends the entry as a line of an export: the entry as it is stored, with its id. The stored bytes of an entry that cannot be read stand in a
// text, with the fault.
func (e *ChainEntry) AppendLine(b []byte) []byte {
	if e.Fault != nil {
		line, _ := json.Marshal(map[string]string{"fault": e.Fault.Error(), "id": e.ID(), "stored": string(e.Raw)}, json.Deterministic(true), jsontext.AllowInvalidUTF8(true)) // texts can be encoded
		return append(append(b, line...), '\n')
	}
	b = append(append(b, `{"entry":`...), e.Raw...)
	b, _ = jsontext.AppendQuote(append(b, `,"id":`...), e.ID())
	return append(b, '}', '\n')
}

// appendEntry appends an entry without a signature. body is the receipt.
func appendEntry(b []byte, prev switchboard.Digest, body []byte, seq uint64) []byte {
	b = append(append(b, `{"prev":"`...), prev...)
	b = append(append(b, `","receipt":`...), body...)
	return append(strconv.AppendUint(append(b, `,"seq":`...), seq, 10), '}')
}

const signatureMember = `,"signature":"`

// appendSignature signs the entry that begins at start in b and ends with b.
func appendSignature(b []byte, start int, k *signer) []byte {
	signature := ed25519.Sign(k.private, b[start:])
	b = append(append(b[:len(b)-1], signatureMember...), k.public...)
	return append(base64.RawURLEncoding.AppendEncode(append(b, ':'), signature), '"', '}')
}

// An entryJSON is the JSON form of an entry.
type entryJSON struct {
	Prev      switchboard.Digest `json:"prev"`
	Receipt   jsontext.Value     `json:"receipt"`
	Seq       uint64             `json:"seq"`
	Signature string             `json:"signature"`
}

// parseEntry reads the entry at seq in the chain of node. It accepts canonical form alone. The
// caller has to check that the seq in the entry is the same.
func parseEntry(node string, seq uint64, raw []byte) (ChainEntry, error) {
	e := ChainEntry{Node: node, Seq: seq, Raw: raw}
	var in entryJSON
	fault := func(err error) (ChainEntry, error) {
		e.Fault = err
		return e, err
	}
	if err := json.Unmarshal(raw, &in, json.RejectUnknownMembers(true)); err != nil {
		return fault(fmt.Errorf("entry: %w", err))
	}
	if in.Prev == "" || in.Seq == 0 {
		return fault(errors.New("entry: prev or seq is missing"))
	}
	form, err := canonical.Append(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return fault(err)
	}
	if !bytes.Equal(form, raw) {
		return fault(errors.New("entry: it is not in canonical form"))
	}
	var r Receipt
	if err := r.decode(in.Receipt); err != nil {
		return fault(err)
	}
	e.Prev, e.Receipt, e.Signature, e.Seq = in.Prev, r, in.Signature, in.Seq
	return e, nil
}

// verifySignature returns the key that has signed the entry, or an error if the signature does not
// verify.
func (e *ChainEntry) verifySignature() (key string, err error) {
	key, text, _ := strings.Cut(e.Signature, ":")
	public, err := parsePublic(key)
	if err != nil {
		return "", err
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return "", errors.New("its signature cannot be read")
	}
	unsigned, ok := bytes.CutSuffix(e.Raw, []byte(signatureMember+e.Signature+`"}`))
	if !ok || !ed25519.Verify(public, append(bytes.Clone(unsigned), '}'), signature) {
		return "", errors.New("its signature does not match its content")
	}
	return key, nil
}

// A signer signs entries.
type signer struct {
	private ed25519.PrivateKey
	public  string // spelled as in signatures
}

// NewKey returns a new random key for signing: the seed of an Ed25519 key, as text.
func NewKey() switchboard.Secret {
	var seed [ed25519.SeedSize]byte
	rand.Read(seed[:])
	return switchboard.NewSecret(base64.RawURLEncoding.EncodeToString(seed[:]))
}

// PublicKey returns the public key of a key that NewKey made, spelled as in signatures.
func PublicKey(key switchboard.Secret) (string, error) {
	s, err := newSigner(key)
	if err != nil {
		return "", err
	}
	return s.public, nil
}

func newSigner(key switchboard.Secret) (*signer, error) {
	seed, err := base64.RawURLEncoding.Strict().DecodeString(key.Reveal())
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("key of receipts: want %d bytes in base64url", ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := base64.RawURLEncoding.EncodeToString(private.Public().(ed25519.PublicKey))
	return &signer{private, public}, nil
}

func parsePublic(text string) (ed25519.PublicKey, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, errors.New("its signature names no key")
	}
	return b, nil
}
