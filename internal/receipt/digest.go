package receipt

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/url"
	"regexp"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Digests make the digests of what must not be seen, wherever one is kept. Each tenant has
// a key of its own, since what is short can be guessed: nobody without the key learns from a
// digest whether a guess is right, nor whether two tenants have sent the same. It is safe
// for concurrent use.
type Digests struct {
	secret  []byte
	tenants sync.Map // switchboard.TenantID to *sync.Pool of *keyed
}

// NewDigests returns those that are made with the key, which may be any text.
func NewDigests(key switchboard.Secret) *Digests { return &Digests{secret: []byte(key.Reveal())} }

// A keyed hash is ready for a tenant.
type keyed struct {
	hash hash.Hash
	sum  []byte
	form []byte // canonical
}

const digestPrefix = "hmac-sha256:"

func (d *Digests) keyed(t switchboard.TenantID) (k *keyed, done func(any)) {
	p, ok := d.tenants.Load(t)
	if !ok {
		key, err := hkdf.Key(sha256.New, d.secret, nil, "switchboard receipts of tenant "+string(t), sha256.Size)
		if err != nil {
			panic(err) // it is short enough
		}
		p, _ = d.tenants.LoadOrStore(t, &sync.Pool{New: func() any { return &keyed{hash: hmac.New(sha256.New, key)} }})
	}
	pool := p.(*sync.Pool)
	return pool.Get().(*keyed), pool.Put
}

// digest is that of data. What names what data is, so that no digest of one thing
// passes for that of another.
func (k *keyed) digest(what string, data []byte) string {
	k.hash.Reset()
	k.sum = append(append(k.sum[:0], what...), 0)
	k.hash.Write(k.sum)
	k.hash.Write(data)
	k.sum = k.hash.Sum(k.sum[:0])
	var text [len(digestPrefix) + 43]byte
	base64.RawURLEncoding.Encode(text[copy(text[:], digestPrefix):], k.sum)
	return string(text[:])
}

// Asked is the digest of what was asked for: of the arguments of a tool, or, where
// it is none, of the params without _meta. It is of the canonical form.
func (d *Digests) Asked(c *switchboard.Call) string {
	if c.Method == wire.MethodToolsCall || len(c.Params) == 0 {
		return d.Arguments(c)
	}
	return d.form(c.Principal.Tenant, wire.Without(nil, c.Params, func(name string) bool { return name == wire.MemberMeta }))
}

// Arguments is the digest of the arguments of a call. It is of the canonical form, and of
// {} where there are none.
func (d *Digests) Arguments(c *switchboard.Call) string {
	raw, ok := wire.Field(c.Params, "arguments")
	if !ok {
		raw = []byte("{}")
	}
	return d.form(c.Principal.Tenant, raw)
}

// form is the digest of the canonical form of what was asked for.
func (d *Digests) form(t switchboard.TenantID, raw []byte) string {
	k, done := d.keyed(t)
	defer done(k)
	var err error
	if k.form, err = canonical.AppendScanned(k.form[:0], raw); err != nil {
		return k.digest("arguments as they came", raw)
	}
	sum := k.digest("arguments", k.form)
	if cap(k.form) > maxKept {
		k.form = nil
	}
	return sum
}

// maxKept is up to what size buffers are kept for later.
const maxKept = 64 << 10

// readsAsName matches the names that people and models give to tools: words of letters, each with a few digits
// at its end. Keys and passwords that a machine has made have digits or capitals between their letters.
var readsAsName = regexp.MustCompile(`^` + nameWord + `([-_./]{1,2}` + nameWord + `){0,7}$`)

const nameWord = `([A-Za-z]?[a-z]{1,15}([A-Z][a-z]{1,15}){0,5}|[A-Z]{1,15})[0-9]{0,3}`

// maxReadable bounds, in bytes, a name that is kept as it is.
const maxReadable = 64

// Name is what a receipt says of a tool that the tenant's client asked for by a name that it was not given: the
// name, where it reads as one, or else its keyed digest. Any text may stand where a name belongs, a
// secret too.
func (d *Digests) Name(t switchboard.TenantID, name string) string {
	if len(name) <= maxReadable && readsAsName.MatchString(name) {
		return name
	}
	k, done := d.keyed(t)
	defer done(k)
	return k.digest("name", []byte(name))
}

func (d *Digests) resource(t switchboard.TenantID, uri string) Resource {
	k, done := d.keyed(t)
	defer done(k)
	r := Resource{URI: k.digest("uri", []byte(uri))}
	if u, err := url.Parse(uri); err == nil {
		r.Scheme, r.Host = u.Scheme, u.Hostname()
	}
	return r
}

// result is the digest of the bytes that a server has answered.
func (d *Digests) result(t switchboard.TenantID, raw []byte) string {
	k, done := d.keyed(t)
	defer done(k)
	return k.digest("result", raw)
}
