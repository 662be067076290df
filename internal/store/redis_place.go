package store

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A place is where a Redis is, as its URL says.
type place struct {
	scheme         string
	user, password string
	addrs          []string
	master         string // that the Sentinels know
	db             int
}

// defaultPorts has the schemes that there are.
var defaultPorts = map[string]string{
	"redis": "6379", "rediss": "6379",
	"redis+cluster": "6379", "rediss+cluster": "6379",
	"redis+sentinel": "26379", "rediss+sentinel": "26379",
}

// parsePlace reads a URL:
//
//	redis://[user:password@]host[:port][/database]
//	redis+cluster://[user:password@]host[:port],host[:port]…
//	redis+sentinel://[user:password@]host[:port],host[:port]…/master[/database]
//
// With rediss in the place of redis, TLS is spoken. An error says nothing of the
// password, so it cannot quote what it could not read.
func parsePlace(from string) (p place, err error) {
	scheme, rest, _ := strings.Cut(from, "://")
	defaultPort, ok := defaultPorts[scheme]
	if !ok {
		return place{}, errors.New("the URL begins with none of redis://, redis+cluster://, redis+sentinel://, nor one of these with rediss")
	}
	p.scheme = scheme
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var err1, err2 error
		p.user, err1 = url.PathUnescape(user)
		p.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return place{}, errors.New("the URL's user or password has a % that is no escape: write it %25")
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := address(host, defaultPort)
		if err != nil {
			return place{}, err
		}
		p.addrs = append(p.addrs, addr)
	}
	db := path
	switch {
	case p.is("sentinel"):
		if p.master, db, _ = strings.Cut(path, "/"); p.master == "" {
			return place{}, errors.New("the URL does not name the master: redis+sentinel://host/master")
		}
	case p.is("cluster"):
		if db != "" {
			return place{}, errors.New("the URL names a database, and a Cluster has only one")
		}
	case len(p.addrs) > 1:
		return place{}, errors.New("the URL has several hosts: it should begin with redis+cluster:// or redis+sentinel://")
	}
	if db != "" {
		if p.db, err = strconv.Atoi(db); err != nil || p.db < 0 {
			return place{}, errors.New("what stands behind the URL's host is not the number of a database")
		}
	}
	return p, nil
}

// address gives a host of the URL with its port.
func address(host, defaultPort string) (string, error) {
	if strings.Trim(host, "[]") == "" || strings.ContainsAny(host, "?#% ") {
		return "", errors.New("the URL has a host without a name, or something that does not belong there")
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strings.Count(host, ":") > 1 && host[0] != '[' {
		return "", errors.New("the URL has a port that is none")
	}
	return net.JoinHostPort(name, port), nil
}

func (p *place) is(kind string) bool { return strings.HasSuffix(p.scheme, "+"+kind) }

// String gives the URL without user and password.
func (p place) String() string {
	s := p.scheme + "://" + strings.Join(p.addrs, ",")
	if p.master != "" {
		s += "/" + p.master
	}
	if p.db != 0 {
		s += fmt.Sprintf("/%d", p.db)
	}
	return s
}

// client makes the client, which connects when it is used, and has each connection greeted.
func (p *place) client(o *RedisOptions, greet func(context.Context, *redis.Conn) error) redis.UniversalClient {
	u := &redis.UniversalOptions{
		Addrs: p.addrs, MasterName: p.master, DB: p.db,
		Username: p.user, Password: cmp.Or(o.Password.Reveal(), p.password),
		ClientName: "switchboard", DisableIdentity: true, OnConnect: greet,
		Protocol:    2, // whose answers are plain, and nothing comes unasked
		DialTimeout: o.useTime / 2, DialerRetries: 1,
		ReadTimeout: o.useTime, WriteTimeout: o.useTime, PoolTimeout: o.useTime, ContextTimeoutEnabled: true,
		MaxRetries: -1, // what is sent again, and what never, is ours to say: see command
		PoolSize:   idleAtMost, PipelinePoolSize: -1,
	}
	if strings.HasPrefix(p.scheme, "rediss") {
		u.TLSConfig = cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	switch {
	case p.is("cluster"):
		c := u.Cluster()
		c.DisableRoutingPolicies = true // they ask for descriptions of all commands
		return redis.NewClusterClient(c)
	case p.is("sentinel"):
		return redis.NewFailoverClient(u.Failover())
	default:
		return redis.NewClient(u.Simple())
	}
}

// silence takes the client its log, which goes to standard error: what fails is in errors
// and in Status.
var silence = sync.OnceFunc(func() { redis.SetLogger(silent{}) })

type silent struct{}

// Printf implements the client's logger.
func (silent) Printf(context.Context, string, ...any) {}
