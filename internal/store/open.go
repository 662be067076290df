package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Open opens the store that a URL names:
//
//	memory:                        NewMemory
//	file:PATH                      OpenFile; PATH as it is, not escaped
//	redis…://…                     OpenRedis, which says how these are spelt
//
// What is none of these is ErrInvalid.
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
	return nil, fmt.Errorf("%w: %q is no store: memory:, file:PATH or redis://HOST:PORT", ErrInvalid, redacted(where))
}

// Accept has a Redis used although it has lost something: see AcceptRedis. Any other store is an error: a file needs
// no accepting, since whoever opens it goes on with what it holds.
func Accept(ctx context.Context, where string, o Options) (lost string, err error) {
	if !strings.HasPrefix(where, "redis") {
		return "", errors.New("only a Redis is accepted; if a file is another than the one that was opened, restart Switchboard to go on with it")
	}
	return AcceptRedis(ctx, where, o.Redis)
}

// Options are those of the backends.
type Options struct {
	File  FileOptions
	Redis RedisOptions
}

// redacted is where without what may be a password.
func redacted(where string) string {
	u, err := url.Parse(where)
	if err != nil {
		scheme, _, _ := strings.Cut(where, ":")
		return scheme + ":…"
	}
	return u.Redacted()
}
