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

// Digests makes keyed digests of values that must not be seen. Each tenant has a key of its own,
// because short values can be guessed: without the key, a digest shows neither whether a guess is
// right nor whether two tenants sent the same value. It is safe for concurrent use.
type Digests struct {
	secret  []byte
	tenants sync.Map // switchboard.TenantID to *sync.Pool of *keyed
}

// NewDigests returns Digests with the key, which may be any text.
func NewDigests(key switchboard.Secret) *Digests { return &Digests{secret: []byte(key.Reveal())} }

// A keyedHash is ready for a tenant.
type keyedHash struct {
	hash hash.Hash
	sum  []byte
	form []byte // canonical
}

const digestPrefix = "hmac-sha256:"

// borrowHash returns a hash of the tenant, and the pool to put it into afterwards.
func (d *Digests) borrowHash(t switchboard.TenantID) (*keyedHash, *sync.Pool) {
	p, ok := d.tenants.Load(t)
	if !ok {
		key, err := hkdf.Key(sha256.New, d.secret, nil, "switchboard receipts of tenant "+string(t), sha256.Size)
		if err != nil {
			panic(err) // the digest is short enough
		}
		p, _ = d.tenants.LoadOrStore(t, &sync.Pool{New: func() any { return &keyedHash{hash: hmac.New(sha256.New, key)} }})
	}
	pool := p.(*sync.Pool)
	return pool.Get().(*keyedHash), pool
}

// digest returns the keyed digest of data. what names the kind of data, so that the digests of two
// kinds never match.
func (k *keyedHash) digest(what string, data []byte) string {
	k.hash.Reset()
	k.sum = append(append(k.sum[:0], what...), 0)
	k.hash.Write(k.sum)
	k.hash.Write(data)
	k.sum = k.hash.Sum(k.sum[:0])
	var text [len(digestPrefix) + 43]byte
	base64.RawURLEncoding.Encode(text[copy(text[:], digestPrefix):], k.sum)
	return string(text[:])
}

// Request returns the digest of a request: of the arguments of a tool call, or of the params of
// another request without _meta. The digest covers the canonical form.
func (d *Digests) Request(c *switchboard.Call) string {
	if c.Method == wire.MethodToolsCall || len(c.Params) == 0 {
		return d.Arguments(c)
	}
	return d.canonicalDigest(c.Principal.Tenant, wire.Without(nil, c.Params, func(name string) bool { return name == wire.MemberMeta }))
}

// Arguments returns the digest of the arguments of a call, in canonical form. Missing arguments
// count as {}.
func (d *Digests) Arguments(c *switchboard.Call) string {
	raw, ok := wire.Field(c.Params, "arguments")
	if !ok {
		raw = []byte("{}")
	}
	return d.canonicalDigest(c.Principal.Tenant, raw)
}

// AdminRequest returns the digest of a request to the admin API: of its route, with parameters and preconditions, and of its body
// in canonical form.
func (d *Digests) AdminRequest(route string, body []byte) string {
	k, pool := d.borrowHash("")
	defer pool.Put(k)
	form, err := canonical.Append([]byte(route+"\x00"), body)
	if err != nil {
		return k.digest("admin request as it came", []byte(route+"\x00"+string(body)))
	}
	return k.digest("admin request", form)
}

// canonicalDigest returns the digest of the canonical form of raw.
func (d *Digests) canonicalDigest(t switchboard.TenantID, raw []byte) string {
	k, pool := d.borrowHash(t)
	defer pool.Put(k)
	var err error
	if k.form, err = canonical.AppendScanned(k.form[:0], raw); err != nil {
		return k.digest("arguments as they came", raw)
	}
	sum := k.digest("arguments", k.form)
	if cap(k.form) > maxPooledBuffer {
		k.form = nil
	}
	return sum
}

// maxPooledBuffer limits the size of the buffers that are kept for later use.
const maxPooledBuffer = 64 << 10

// readsAsName matches the names that people and models give to tools: words of letters, each with a
// few digits at its end. Generated keys and passwords have digits or capitals between their
// letters. It is compiled when a name is first asked about, because it takes 400 KB.
var readsAsName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^` + nameWord + `([-_./]{1,2}` + nameWord + `){0,7}$`)
})

const nameWord = `([A-Za-z]?[a-z]{1,15}([A-Z][a-z]{1,15}){0,5}|[A-Z]{1,15})[0-9]{0,3}`

// maxReadable limits, in bytes, the names that are kept in clear.
const maxReadable = 64

// ToolName returns the form in which a receipt keeps a tool name that a client of the tenant asked for
// and was not shown. A text that reads as a name is kept in clear. Any other text becomes its keyed
// digest: a client may send anything as a name, even a secret.
func (d *Digests) ToolName(t switchboard.TenantID, name string) string {
	if len(name) <= maxReadable && readsAsName().MatchString(name) {
		return name
	}
	k, pool := d.borrowHash(t)
	defer pool.Put(k)
	return k.digest("name", []byte(name))
}

func (d *Digests) resourceOf(t switchboard.TenantID, uri string) ResourceRef {
	k, pool := d.borrowHash(t)
	defer pool.Put(k)
	r := ResourceRef{URI: k.digest("uri", []byte(uri))}
	if u, err := url.Parse(uri); err == nil {
		r.Scheme, r.Host = u.Scheme, u.Hostname()
	}
	return r
}

// resultDigest returns the digest of the bytes of a server's answer.
func (d *Digests) resultDigest(t switchboard.TenantID, raw []byte) string {
	k, pool := d.borrowHash(t)
	defer pool.Put(k)
	return k.digest("result", raw)
}
