package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store says where the data is that must survive this process. The zero Store is a file in the data
// folder.
type Store struct {
	// URL is file:PATH with an absolute path, memory:, or the address of a Redis; "" if none is given.
	URL switchboard.Secret

	// Relaxed accepts a Redis that may lose writes which it has acknowledged.
	Relaxed bool
}

// Shared reports whether several replicas can use the store.
func (s Store) Shared() bool { return strings.Contains(s.URL.Reveal(), "://") }

// A Cluster says how replicas that share a store reach each other. The zero Cluster is a single
// process.
type Cluster struct {
	Secret    switchboard.Secret // known to all replicas; at least 16 bytes
	Listen    string             // DefaultClusterListen if none is given
	Advertise string             // the address at which other replicas reach Listen; "" means that of this machine
}

// DefaultClusterListen is the address for connections of other replicas.
const DefaultClusterListen = ":7421"

// minClusterSecret is the minimal length of the replicas' secret, in bytes.
const minClusterSecret = 16

var clusterShape = &mapShape{keys: []string{"secret", "listen", "advertise"}}

// storeSchemes are the possible beginnings of a store's URL.
var storeSchemes = []string{"file:", "memory:", "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"}

// readStore reads the URL of the store. Faults repeat only its scheme.
func (l *loader) readStore(top fixedMap) {
	if v, ok := top.lookup("store"); ok {
		v.hidden = true
		url, ok := l.readSecret(v, "store")
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
				path = filepath.Join(l.absDir, path)
			}
			l.cfg.Store.URL = switchboard.NewSecret(scheme + path)
		default:
			l.cfg.Store.URL = url
			v.warnAboutRedis(text)
		}
	}
	l.readCluster(top)
	if v, ok := top.lookup("durability"); ok {
		switch s, ok := v.readText(); {
		case !ok:
		case s == "relaxed":
			l.cfg.Store.Relaxed = true
		case s != "strict":
			v.fault("%s: want strict, or relaxed: then a Redis will do that may lose what it has acknowledged", v.shownValue())
		}
	}
}

// warnAboutRedis warns about a Redis on another machine that is open to anyone or not encrypted.
func (v value) warnAboutRedis(url string) {
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
				"set requirepass or an ACL user there and write store: \"rediss://user:${file:/path}@host\"", quoteShown(host))
		}
		if !strings.HasPrefix(scheme, "rediss") {
			v.warn("Redis at %s is used without TLS, so whoever is on the way reads what replicas send there, the password too, and can change it; "+
				"set tls-port there and write rediss:// in the place of redis://", quoteShown(host))
		}
		return // the other hosts belong to the same Redis
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

// readCluster reads how replicas reach each other.
func (l *loader) readCluster(top fixedMap) {
	v, ok := top.lookup("cluster")
	shared := l.cfg.Store.Shared()
	if !ok {
		if at, has := top.lookup("store"); has && shared && !top.hasKey("cluster") {
			at.hidden = true
			at.fault("replicas that share a store reach each other, and have to know that they may: cluster: {secret: \"${file:/path}\"}")
		}
		return
	}
	o, ok := v.readObject(clusterShape)
	if !ok {
		return
	}
	if top.hasKey("store") && !shared || !top.hasKey("store") {
		v.fault("this is of replicas that share a store, and this store has room for one: store: redis://…")
	}
	c := Cluster{Listen: DefaultClusterListen}
	if v, ok := o.require("secret", "make one that all replicas get, such as with openssl rand -hex 32, and write ${file:/path} or ${env:NAME}"); ok {
		v.hidden = true
		if c.Secret, ok = l.readSecret(v, "secret"); ok && len(c.Secret.Reveal()) < minClusterSecret {
			v.fault("the secret is shorter than %d bytes", minClusterSecret)
		}
	}
	if v, ok := o.lookup("listen"); ok {
		if s, ok := v.readText(); ok && v.isAddress(s) {
			c.Listen = s
		}
	}
	if v, ok := o.lookup("advertise"); ok {
		if s, ok := v.readText(); ok {
			if host, port, err := net.SplitHostPort(s); err != nil || host == "" || port == "" {
				v.fault("%s: want HOST:PORT, by which the other replicas reach this one", v.shownValue())
			}
			c.Advertise = s
		}
	}
	l.cfg.Cluster = c
}

// Receipts say how long receipts are kept, and where checkpoints are written.
type Receipts struct {
	Keep    time.Duration // DefaultKeep if none is given
	MaxSize int64         // of a chain, in bytes; DefaultMaxSize if none is given

	// Anchor is a file outside the store to which checkpoints are appended; "" means that they are
	// only in the log.
	Anchor string
}

// The defaults of Receipts.
const (
	DefaultKeep    = 30 * 24 * time.Hour
	DefaultMaxSize = 4 << 30
)

var receiptsShape = &mapShape{keys: []string{"keep", "max_size", "anchor"}}

// readReceipts reads how long receipts are kept.
func (l *loader) readReceipts(top fixedMap) {
	v, ok := top.lookup("receipts")
	if !ok {
		return
	}
	o, ok := v.readObject(receiptsShape)
	if !ok {
		return
	}
	if v, ok := o.lookup("keep"); ok {
		if d, ok := v.readDuration(time.Hour, 10*365*24*time.Hour); ok {
			l.cfg.Receipts.Keep = d
		}
	}
	if v, ok := o.lookup("max_size"); ok {
		if n := v.readSize(1<<20, 1<<40); n > 0 {
			l.cfg.Receipts.MaxSize = int64(n)
		}
	}
	if v, ok := o.lookup("anchor"); ok {
		if s, ok := v.readText(); ok {
			if !filepath.IsAbs(s) {
				s = filepath.Join(l.absDir, s)
			}
			l.cfg.Receipts.Anchor = s
		}
	}
}
