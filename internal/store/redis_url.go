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

// A redisURL is the parsed URL of a Redis.
type redisURL struct {
	scheme         string
	user, password string
	addrs          []string
	master         string // its name for the Sentinels
	db             int
}

// defaultPorts holds the default port of each scheme.
var defaultPorts = map[string]string{
	"redis": "6379", "rediss": "6379",
	"redis+cluster": "6379", "rediss+cluster": "6379",
	"redis+sentinel": "26379", "rediss+sentinel": "26379",
}

// parseRedisURL parses a URL:
//
//	redis://[user:password@]host[:port][/database]
//	redis+cluster://[user:password@]host[:port],host[:port]…
//	redis+sentinel://[user:password@]host[:port],host[:port]…/master[/database]
//
// With rediss instead of redis, the connections use TLS. An error does not contain the password, so it cannot
// quote the text that it could not parse.
func parseRedisURL(from string) (p redisURL, err error) {
	scheme, rest, _ := strings.Cut(from, "://")
	defaultPort, ok := defaultPorts[scheme]
	if !ok {
		return redisURL{}, errors.New("the URL must begin with redis://, redis+cluster:// or redis+sentinel://, or with one of these with rediss")
	}
	p.scheme = scheme
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		var err1, err2 error
		p.user, err1 = url.PathUnescape(user)
		p.password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return redisURL{}, errors.New("the URL's user or password has a % that is no escape: write %25")
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		addr, err := hostPort(host, defaultPort)
		if err != nil {
			return redisURL{}, err
		}
		p.addrs = append(p.addrs, addr)
	}
	db := path
	switch {
	case p.isMode("sentinel"):
		if p.master, db, _ = strings.Cut(path, "/"); p.master == "" {
			return redisURL{}, errors.New("the URL does not name the master: redis+sentinel://host/master")
		}
	case p.isMode("cluster"):
		if db != "" {
			return redisURL{}, errors.New("the URL names a database, and a Cluster has only one")
		}
	case len(p.addrs) > 1:
		return redisURL{}, errors.New("the URL has several hosts: it should begin with redis+cluster:// or redis+sentinel://")
	}
	if db != "" {
		if p.db, err = strconv.Atoi(db); err != nil || p.db < 0 {
			return redisURL{}, errors.New("the URL's path is not the number of a database")
		}
	}
	return p, nil
}

// hostPort returns a host of the URL with its port.
func hostPort(host, defaultPort string) (string, error) {
	if strings.Trim(host, "[]") == "" || strings.ContainsAny(host, "?#% ") {
		return "", errors.New("the URL has an empty host, or a character that no host has")
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.Trim(host, "[]"), defaultPort
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || strings.Count(host, ":") > 1 && host[0] != '[' {
		return "", errors.New("the URL has an invalid port")
	}
	return net.JoinHostPort(name, port), nil
}

func (p *redisURL) isMode(kind string) bool { return strings.HasSuffix(p.scheme, "+"+kind) }

// String returns the URL without user and password.
func (p redisURL) String() string {
	s := p.scheme + "://" + strings.Join(p.addrs, ",")
	if p.master != "" {
		s += "/" + p.master
	}
	if p.db != 0 {
		s += fmt.Sprintf("/%d", p.db)
	}
	return s
}

// client returns a client that connects when it is first used, and calls check with each new connection.
func (p *redisURL) client(o *RedisOptions, check func(context.Context, *redis.Conn) error) redis.UniversalClient {
	u := &redis.UniversalOptions{
		Addrs: p.addrs, MasterName: p.master, DB: p.db,
		Username: p.user, Password: cmp.Or(o.Password.Reveal(), p.password),
		ClientName: "switchboard", DisableIdentity: true, OnConnect: check,
		Protocol:    2, // plain answers, and no messages without a request
		DialTimeout: o.callTimeout / 2, DialerRetries: 1,
		ReadTimeout: o.callTimeout, WriteTimeout: o.callTimeout, PoolTimeout: o.callTimeout, ContextTimeoutEnabled: true,
		MaxRetries: -1, // we decide which commands are sent again: see unrepeatedCommand
		PoolSize:   maxIdleConns, PipelinePoolSize: -1,
	}
	if strings.HasPrefix(p.scheme, "rediss") {
		u.TLSConfig = cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	switch {
	case p.isMode("cluster"):
		c := u.Cluster()
		c.DisableRoutingPolicies = true // these policies make the client ask for the descriptions of all commands
		return redis.NewClusterClient(c)
	case p.isMode("sentinel"):
		return redis.NewFailoverClient(u.Failover())
	default:
		return redis.NewClient(u.Simple())
	}
}

// silenceClientLog turns off the log of the client library, which goes to standard error. Failures are in
// errors and in Status.
var silenceClientLog = sync.OnceFunc(func() { redis.SetLogger(silentLogger{}) })

type silentLogger struct{}

// Printf implements the logger of the client library.
func (silentLogger) Printf(context.Context, string, ...any) {}
