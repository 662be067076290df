package store

import (
	"context"
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
