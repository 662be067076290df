package switchboard

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The schemes of digests of definitions. A later scheme can be told from these.
const (
	schemeWhole   = "d1" // of the whole definition
	schemeLeftOut = "d2" // of the definition without some members of its _meta, which the digest names
)

// Limits of AdmissionRules.Volatile.
const (
	MaxVolatile    = 8
	maxVolatileKey = 128 // bytes
)

// A DefinitionDigest is the digest of a definition, taken apart. As a text it is d1:HEX, or d2:KEY,KEY:HEX if members of _meta are left out. So a digest can be computed again
// whatever the configuration says by then.
type DefinitionDigest struct {
	LeftOut []string // the keys of _meta that are left out, sorted
	Hex     string   // 64 hexadecimal digits in small letters
}

// String returns the digest as a text.
func (d DefinitionDigest) String() string {
	if len(d.LeftOut) == 0 {
		return schemeWhole + ":" + d.Hex
	}
	return schemeLeftOut + ":" + strings.Join(d.LeftOut, ",") + ":" + d.Hex
}

// ErrScheme is the error of ParseDefinitionDigest if the scheme is not known.
var ErrScheme = errors.New("the scheme of the digest is not known")

// ParseDefinitionDigest takes the text of a digest apart. Each digest has one text.
func ParseDefinitionDigest(text string) (d DefinitionDigest, err error) {
	scheme, rest, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return d, errors.New("want " + schemeWhole + ": and 64 hexadecimal digits")
	case scheme == schemeLeftOut:
		keys, digits, ok := strings.Cut(rest, ":")
		if !ok {
			return d, errors.New("behind " + schemeLeftOut + ": stand keys of _meta, a colon, and 64 hexadecimal digits")
		}
		rest, d.LeftOut = digits, strings.Split(keys, ",")
		for i, key := range d.LeftOut {
			if err := CheckVolatileKey(key); err != nil {
				return d, err
			}
			if i > 0 && d.LeftOut[i-1] >= key {
				return d, errors.New("the keys of _meta in a digest are sorted, and each stands there once")
			}
		}
		if len(d.LeftOut) > MaxVolatile {
			return d, fmt.Errorf("a digest leaves out at most %d keys of _meta", MaxVolatile)
		}
	case scheme != schemeWhole:
		return d, ErrScheme
	}
	if d.Hex = rest; len(rest) != 64 || strings.Trim(rest, "0123456789abcdef") != "" {
		return d, errors.New("a digest ends with 64 hexadecimal digits, in small letters")
	}
	return d, nil
}

// CheckVolatileKey returns why a key of _meta cannot be left out of a digest, or nil. A block of capabilities always counts, and so does a misspelt one: its tool is refused, and
// without the key it would be offered.
func CheckVolatileKey(key string) error {
	const rest = "._-/"
	fits := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune(rest, c)
	}
	switch {
	case key == "" || len(key) > maxVolatileKey || strings.ContainsFunc(key, func(c rune) bool { return !fits(c) }):
		return fmt.Errorf("a key of _meta that is left out has 1 to %d letters, digits and characters of %s", maxVolatileKey, rest)
	case IsBlockKey(key):
		return errors.New("it states what a tool can do, and a change of that always counts; remove it from the list")
	case Misspells([]byte(key[strings.LastIndexByte(key, '/')+1:]), BlockName):
		return errors.New("it looks like " + BlockName + ", for which its tool is refused, and that always counts; remove it from the list")
	}
	return nil
}

// IsBlockKey reports whether a key of _meta names a block of capabilities, alone or behind a prefix.
func IsBlockKey(key string) bool { return key == BlockName || strings.HasSuffix(key, "/"+BlockName) }

// MergeVolatile returns two sorted lists of keys as one.
func MergeVolatile(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
