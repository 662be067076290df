package config

import (
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/document"
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

// storeSchemes are the possible beginnings of a store's URL.
var storeSchemes = []string{"file:", "memory:", "redis://", "rediss://", "redis+sentinel://", "rediss+sentinel://", "redis+cluster://", "rediss+cluster://"}

// warnAboutRedis warns about a Redis on another machine that is open to anyone or not encrypted.
func warnAboutRedis(v document.Value, url string) {
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
			v.Warn("Redis at %s is used without a password, so whoever reaches it can delete and put back what replicas keep, and stop them; "+
				"set requirepass or an ACL user there and write store: \"rediss://user:${file:/path}@host\"", document.Shown(host))
		}
		if !strings.HasPrefix(scheme, "rediss") {
			v.Warn("Redis at %s is used without TLS, so whoever is on the way reads what replicas send there, the password too, and can change it; "+
				"set tls-port there and write rediss:// in the place of redis://", document.Shown(host))
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
	DefaultRetention = 30 * 24 * time.Hour
	DefaultMaxSize   = 4 << 30
)
