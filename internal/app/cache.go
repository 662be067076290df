package app

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// cacheTerms returns the terms on which results of the server are cached.
func (a *App) cacheTerms(id switchboard.ServerID) cache.Terms {
	c := a.state.Load().config
	i := slices.IndexFunc(c.Servers, func(s switchboard.Server) bool { return s.ID == id })
	if c.Cache.TTL == 0 || i < 0 {
		return cache.Terms{}
	}
	s := &c.Servers[i]
	return cache.Terms{
		TTL:    c.Cache.TTL,
		Bytes:  c.Cache.Bytes,
		Shared: s.Share == switchboard.ShareTenant || s.Share == switchboard.ShareAll,
		As:     calledAs(s),
	}
}

// calledAs returns a digest of the server's address, command and credentials.
func calledAs(s *switchboard.Server) (sum [sha256.Size]byte) {
	h := sha256.New()
	add := func(parts ...string) {
		for _, p := range parts {
			_, _ = fmt.Fprintf(h, "%d:%s", len(p), p) // it never fails
		}
	}
	add(s.URL, s.Dir, fmt.Sprint(len(s.Command)))
	add(s.Command...)
	for _, all := range []map[string]switchboard.Secret{s.Headers, s.Env} {
		add(fmt.Sprint(len(all)))
		for _, name := range slices.Sorted(maps.Keys(all)) {
			add(name, all[name].Reveal())
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
