package admission

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// DigestOf returns the digest of a definition without the keys of its _meta that are left out: of its canonical form (RFC 8785), so that order and spaces do not count.
// The digest names those of leftOut that the definition has. The error says why the definition has none.
func DigestOf(definition []byte, leftOut ...string) (string, error) {
	d, _, err := digestOf(definition, leftOut)
	if err != nil {
		return "", err
	}
	return d.String(), nil
}

// digestOf returns the digest of a definition, and the definition without what is left out.
func digestOf(definition []byte, leftOut []string) (d switchboard.DefinitionDigest, rest []byte, err error) {
	sum, err := canonical.Digest(definition)
	if err != nil {
		return d, nil, err
	}
	if rest, d.LeftOut = leaveOut(definition, leftOut); d.LeftOut != nil {
		if sum, err = canonical.Digest(rest); err != nil {
			return d, nil, err
		}
	}
	d.Hex = strings.TrimPrefix(string(sum), "sha256:")
	return d, rest, nil
}

// leaveOut removes keys from the _meta of a definition, and returns those that it had, sorted. A _meta that has no others is removed. Everything else stays byte for byte. If there
// are none, rest is the definition.
func leaveOut(definition []byte, keys []string) (rest []byte, found []string) {
	if len(keys) == 0 {
		return definition, nil
	}
	meta, ok := wire.Field(definition, "_meta")
	if !ok {
		return definition, nil
	}
	others := false
	meta = wire.Without(nil, meta, func(name string) bool {
		if !slices.Contains(keys, name) {
			others = true
			return false
		}
		found = append(found, name)
		return true
	})
	switch {
	case found == nil:
		return definition, nil
	case !others:
		meta = nil
	}
	slices.Sort(found)
	return wire.Rewrite(nil, definition, wire.Edit{Name: "_meta", Value: meta}), slices.Compact(found)
}

// A PinKey names a pin of one server.
type PinKey struct {
	Kind switchboard.PinKind
	Name string // "" for what is of a server
}

// Compare orders keys by kind and name.
func (k PinKey) Compare(o PinKey) int {
	return cmp.Or(strings.Compare(string(k.Kind), string(o.Kind)), strings.Compare(k.Name, o.Name))
}

// MarshalText returns the form in the store: the kind, a space, and the name.
func (k PinKey) MarshalText() ([]byte, error) { return []byte(string(k.Kind) + " " + k.Name), nil }

// UnmarshalText reads the form in the store.
func (k *PinKey) UnmarshalText(text []byte) error {
	kind, name, ok := strings.Cut(string(text), " ")
	if !ok {
		return fmt.Errorf("%.40q is no key of a pin", text)
	}
	k.Kind, k.Name = switchboard.PinKind(kind), name
	return nil
}

// A Pin is what is known of one definition of a server: what was let in, or was seen first. Do not modify it.
type Pin struct {
	Digest     string `json:"digest,omitempty"`     // "" if nothing was let in: a blocking finding was in the way
	Definition string `json:"definition,omitempty"` // the admitted bytes; "" if they are not known

	State     switchboard.LifeState `json:"state"`
	Successor string                `json:"successor,omitempty"`

	Since time.Time `json:"since"`        // the first sight, or the person's decision
	By    string    `json:"by,omitempty"` // the person; "" for the first sight

	Gone time.Time `json:"gone,omitzero"` // since when the server does not offer it

	// Alike are the catalog's digests of earlier admitted definitions of a tool that differ from this one in words alone, divided by spaces, the latest first.
	Alike string `json:"alike,omitempty"`

	Words *WordFindings `json:"words,omitempty"` // in the definition of a tool; nil if nobody has looked
}

// With returns the pin with another definition.
func (p Pin) With(digest, definition string) Pin {
	if p.Digest != digest || p.Definition != definition {
		p.Alike = p.alikeTo(digest, definition)
		p.Digest, p.Definition, p.Words = digest, definition, nil
	}
	return p
}

// maxAlike limits the earlier definitions in Pin.Alike.
const maxAlike = 16

// alikeTo returns Pin.Alike of the pin with another definition.
func (p *Pin) alikeTo(digest, definition string) string {
	if p.Digest == digest {
		return p.Alike
	}
	if p.Definition == "" || definition == "" {
		return "" // the meaning of one is not known
	}
	if class, _ := CompareTools(json.RawMessage(p.Definition), json.RawMessage(definition)); class > Words {
		return ""
	}
	was, err := switchboard.ParseDefinitionDigest(p.Digest)
	if err != nil {
		return ""
	}
	all := append([]string{"sha256:" + was.Hex}, strings.Fields(p.Alike)...)
	return strings.Join(all[:min(len(all), maxAlike)], " ")
}

// alikeDigests returns the digests in Pin.Alike.
func (p *Pin) alikeDigests() (all []switchboard.Digest) {
	for d := range strings.FieldsSeq(p.Alike) {
		all = append(all, switchboard.Digest(d))
	}
	return all
}

// WordFindings are what the rules about words have found in a definition. Do not modify it.
type WordFindings struct {
	Version int                       `json:"version"` // of the rules
	Found   []switchboard.RuleFinding `json:"found,omitempty"`
}

// ServerPins are the pins of one server. The zero value is a server that has never listed anything. Do not modify it.
type ServerPins struct {
	Listed switchboard.Kinds `json:"listed,omitempty"` // the kinds of which the first list has been seen
	Met    bool              `json:"met,omitempty"`    // a handshake of a server with tools has been seen: what a later one says first is a change
	Pins   map[PinKey]Pin    `json:"pins,omitempty"`
}

// An OtherOffer is a definition that a server offers in place of the admitted one, as one replica has seen it.
type OtherOffer struct {
	Digest     string    `json:"digest"`
	Definition string    `json:"definition,omitempty"` // "" if it is too large to be kept
	Admitted   string    `json:"admitted,omitempty"`   // the digest of the admitted definition that Class compares it with
	Class      Class     `json:"class"`
	Members    []string  `json:"members,omitempty"` // that differ, the first few
	Rule       string    `json:"rule,omitempty"`    // of the blocking finding, for Poisoned
	Since      time.Time `json:"since"`
}

// OtherOffers are the other offers of one server, by their pin.
type OtherOffers map[PinKey]OtherOffer

// keyOf returns the key of an object in a list of the kind. ok is false if the object has no name.
func keyOf(kind switchboard.Kind, object []byte) (k PinKey, ok bool) {
	member := "name"
	switch kind {
	case switchboard.Tools:
		k.Kind = switchboard.PinTool
	case switchboard.Prompts:
		k.Kind = switchboard.PinPrompt
	default:
		k.Kind, member = switchboard.PinTemplate, "uriTemplate"
	}
	value, _ := wire.Field(object, member)
	k.Name, ok = wire.String(value)
	return k, ok && k.Name != ""
}
