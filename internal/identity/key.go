package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The beginnings of keys, so that people and secret scanners recognize them. Each kind opens one listener, and only that.
const (
	AgentPrefix  = "swb_" // a tenant's key: agents, at /mcp
	PersonPrefix = "swo_" // a person's key: the admin side
)

// The parts of a key after its prefix: 256 random bits, and a CRC-32 of everything before it. With so many random bits, a plain SHA-256
// is as good as a slow hash, because keys cannot be guessed. The checksum tells a typing error from a key that is not valid any more.
const (
	secretDigits   = 43
	checksumDigits = 6
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Mint makes a new key with the prefix. The text is shown to a person once; the hash goes into a file.
func Mint(prefix string) (text, hash string) {
	var b [32]byte
	rand.Read(b[:])
	text = prefix + digits(new(big.Int).SetBytes(b[:]), secretDigits)
	text += checksum(text)
	sum := sha256.Sum256([]byte(text))
	return text, "sha256:" + hex.EncodeToString(sum[:])
}

// digits returns n in base 62, most significant digit first, with leading zeros.
func digits(n *big.Int, width int) string {
	out := make([]byte, width)
	base, rest := big.NewInt(int64(len(base62))), new(big.Int)
	for i := width - 1; i >= 0; i-- {
		n.QuoRem(n, base, rest)
		out[i] = base62[rest.Int64()]
	}
	return string(out)
}

func checksum(text string) string {
	return digits(new(big.Int).SetUint64(uint64(crc32.ChecksumIEEE([]byte(text)))), checksumDigits)
}

// isMistyped reports whether a text of the length of a key has a typing error: its checksum does not fit.
func isMistyped(text string) bool {
	body, sum := text[:len(text)-checksumDigits], text[len(text)-checksumDigits:]
	return checksum(body) != sum
}

// refuseUnknown returns the refusal of a key that no row has. It depends on nothing but the text, so that a key of the other listener gets the
// answer of any unknown key. Everybody can compute a checksum, so it is no secret that one does not fit.
func refuseUnknown(text string) error {
	const length = len(AgentPrefix) + secretDigits + checksumDigits
	switch {
	case len(text) != length || strings.Trim(text[len(AgentPrefix):], base62) != "":
		return switchboard.Refuse(switchboard.CodeNotAuthenticated, "this is not a whole key: a key has %d characters, %s or %s and then letters and digits; copy it again", length, AgentPrefix, PersonPrefix)
	case isMistyped(text):
		return switchboard.Refuse(switchboard.CodeNotAuthenticated, "this key is mistyped: its last %d characters are a checksum, which does not fit; copy it again", checksumDigits)
	}
	return switchboard.Refuse(switchboard.CodeNotAuthenticated, "this key is not known here; it may have been removed, or belong to another address")
}

// A KeyCheck says whether a key may still be used. See package revocation.
type KeyCheck interface {
	// CheckKey returns why the key with the hash may not be used, or nil. The error is a *switchboard.Error.
	CheckKey(hash [sha256.Size]byte) error
}
