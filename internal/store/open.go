package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Open opens the store at a URL:
//
//	memory:                        NewMemory
//	file:PATH                      OpenFile; PATH is not escaped
//	redis…://…                     OpenRedis, which describes these URLs
//
// Any other URL is ErrInvalid.
func Open(ctx context.Context, where string, o Options) (Store, error) {
	scheme, rest, _ := strings.Cut(where, ":")
	switch {
	case where == "memory:":
		return NewMemory(), nil
	case scheme == "file" && rest != "":
		f, err := OpenFile(rest, o.File)
		if err != nil {
			return nil, err
		}
		return f, nil
	case strings.HasPrefix(scheme, "redis"):
		r, err := OpenRedis(ctx, where, o.Redis)
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	return nil, fmt.Errorf("%w: %q is no store: memory:, file:PATH or redis://HOST:PORT", ErrInvalid, redactURL(where))
}

// Accept lets all replicas use a Redis again although it has lost something. See AcceptRedis. For any other
// store it returns an error: a file needs no accepting, because the process that opens a file uses what the
// file holds.
func Accept(ctx context.Context, where string, o Options) (lost string, err error) {
	if !strings.HasPrefix(where, "redis") {
		return "", errors.New("only a Redis is accepted; if a file is not the one that was opened, restart Switchboard to use it")
	}
	return AcceptRedis(ctx, where, o.Redis)
}

// Options are the options of the backends.
type Options struct {
	File  FileOptions
	Redis RedisOptions
}

// redactURL returns the URL without its password.
func redactURL(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		scheme, _, _ := strings.Cut(where, ":")
		return scheme + ":…"
	}
	return u.Redacted()
}
