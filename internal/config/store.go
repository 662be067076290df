package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store is where that is kept which survives this process. The zero Store is a
// file in the data folder.
type Store struct {
	// URL is file:PATH, with an absolute path, memory: or the address of a Redis;
	// "" where none is given.
	URL switchboard.Secret

	// Relaxed says that a Redis will do that may lose what it has acknowledged.
	Relaxed bool
}

// Shared reports whether several replicas can have the store.
func (s Store) Shared() bool { return strings.Contains(s.URL.Reveal(), "://") }

// A Cluster is how replicas that share a store reach each other. The zero Cluster is of
// one that has no others.
type Cluster struct {
	Secret    switchboard.Secret // that all know; at least 16 bytes
	Listen    string             // DefaultClusterListen if none is given
	Advertise string             // by which others reach Listen; "" means by the address of this machine
}

// DefaultClusterListen is where replicas listen for each other.
const DefaultClusterListen = ":7421"

// minClusterSecret is how many bytes the secret of replicas has at least.
const minClusterSecret = 16

var clusterShape = &shape{keys: []string{"secret", "listen", "advertise"}}

// storeSchemes begin what a store can be.
var storeSchemes = []string{"file:", "memory:", "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"}

// store reads where the store is. No fault repeats more of it than how it begins.
func (l *loader) store(top object) {
	if v, ok := top.get("store"); ok {
		v.hidden = true
		url, ok := l.secret(v, "store")
		text := url.Reveal()
		scheme, known := "", false
		for _, s := range storeSchemes {
			if strings.HasPrefix(text, s) {
				scheme, known = s, true
			}
		}
		switch {
		case !ok:
		case !known:
			v.fault("want file:PATH, memory: or an address that begins with redis:// or rediss://")
		case scheme == "memory:" && text != scheme, scheme == "file:" && text == scheme:
			v.fault("want file:PATH, with a path, or memory: alone")
		case scheme == "file:":
			path := strings.TrimPrefix(text, scheme)
			if !filepath.IsAbs(path) {
				path = filepath.Join(l.abs, path)
			}
			l.cfg.Store.URL = switchboard.NewSecret(scheme + path)
		default:
			l.cfg.Store.URL = url
			v.warnOfRedis(text)
		}
	}
	l.cluster(top)
	if v, ok := top.get("durability"); ok {
		switch s, ok := v.str(); {
		case !ok:
		case s == "relaxed":
			l.cfg.Store.Relaxed = true
		case s != "strict":
			v.fault("%s: want strict, or relaxed: then a Redis will do that may lose what it has acknowledged", v.shown())
		}
	}
}

// warnOfRedis warns of a Redis beyond this machine that anybody can use or overhear.
func (v value) warnOfRedis(url string) {
	scheme, rest, _ := strings.Cut(url, "://")
	user, hosts := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, hosts = rest[:at], rest[at+1:]
	}
	hosts, _, _ = strings.Cut(hosts, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		if isLoopback(host) {
			continue
		}
		if _, password, _ := strings.Cut(user, ":"); password == "" {
			v.warn("Redis at %s is used without a password, so whoever reaches it can delete and put back what replicas keep, and stop them; "+
				"set requirepass or an ACL user there and write store: \"rediss://user:${file:/path}@host\"", shown(host))
		}
		if !strings.HasPrefix(scheme, "rediss") {
			v.warn("Redis at %s is used without TLS, so whoever is on the way reads what replicas send there, the password too, and can change it; "+
				"set tls-port there and write rediss:// in the place of redis://", shown(host))
		}
		return // the others are of the same Redis
	}
}

// isLoopback reports whether the host of an address, with or without a port, is this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// cluster reads how replicas reach each other.
func (l *loader) cluster(top object) {
	v, ok := top.get("cluster")
	shared := l.cfg.Store.Shared()
	if !ok {
		if at, has := top.get("store"); has && shared && !top.has("cluster") {
			at.hidden = true
			at.fault("replicas that share a store reach each other, and have to know that they may: cluster: {secret: \"${file:/path}\"}")
		}
		return
	}
	o, ok := v.object(clusterShape)
	if !ok {
		return
	}
	if top.has("store") && !shared || !top.has("store") {
		v.fault("this is of replicas that share a store, and this store has room for one: store: redis://…")
	}
	c := Cluster{Listen: DefaultClusterListen}
	if v, ok := o.need("secret", "make one that all replicas get, such as with openssl rand -hex 32, and write ${file:/path} or ${env:NAME}"); ok {
		v.hidden = true
		if c.Secret, ok = l.secret(v, "secret"); ok && len(c.Secret.Reveal()) < minClusterSecret {
			v.fault("the secret is shorter than %d bytes", minClusterSecret)
		}
	}
	if v, ok := o.get("listen"); ok {
		if s, ok := v.str(); ok && v.address(s) {
			c.Listen = s
		}
	}
	if v, ok := o.get("advertise"); ok {
		if s, ok := v.str(); ok {
			if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
				v.fault("%s: want HOST:PORT, by which the other replicas reach this one", v.shown())
			}
			c.Advertise = s
		}
	}
	l.cfg.Cluster = c
}

// Receipts are how long receipts are kept, and where checkpoints go.
type Receipts struct {
	Keep    time.Duration // DefaultKeep if none is given
	MaxSize int64         // of a chain, in bytes; DefaultMaxSize if none is given

	// Anchor is a file outside the store that checkpoints are appended to; "" means
	// that they are in the log alone.
	Anchor string
}

// The defaults of Receipts.
const (
	DefaultKeep    = 30 * 24 * time.Hour
	DefaultMaxSize = 4 << 30
)

var receiptsShape = &shape{keys: []string{"keep", "max_size", "anchor"}}

// receipts reads how long receipts are kept.
func (l *loader) receipts(top object) {
	v, ok := top.get("receipts")
	if !ok {
		return
	}
	o, ok := v.object(receiptsShape)
	if !ok {
		return
	}
	if v, ok := o.get("keep"); ok {
		if d, ok := v.duration(time.Hour, 10*365*24*time.Hour); ok {
			l.cfg.Receipts.Keep = d
		}
	}
	if v, ok := o.get("max_size"); ok {
		if n := v.size(1<<20, 1<<40); n > 0 {
			l.cfg.Receipts.MaxSize = int64(n)
		}
	}
	if v, ok := o.get("anchor"); ok {
		if s, ok := v.str(); ok {
			if !filepath.IsAbs(s) {
				s = filepath.Join(l.abs, s)
			}
			l.cfg.Receipts.Anchor = s
		}
	}
}
