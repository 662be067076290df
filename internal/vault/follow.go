package vault

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
)

// decodeNotice reads what publish sends.
func decodeNotice(data []byte) (name, from string, err error) {
	from, name, ok := strings.Cut(string(data), " ")
	if !ok {
		return "", "", errors.New("not a notice of a connection")
	}
	return name, from, nil
}

// follow keeps what is known as it is in the store.
func (v *Vault) follow(ctx context.Context, changes *feed.Feed[string]) {
	defer changes.Close()
	for failed := false; ; {
		changed, all, err := changes.Next(ctx)
		if err != nil {
			return
		}
		if all {
			err := v.lookAtAll(ctx)
			if err != nil && !failed && ctx.Err() == nil {
				v.rows.log.Warn("the connections cannot be read; tokens that are known are used until they expire", "err", err)
			}
			failed = err != nil
			continue
		}
		for name := range changed {
			if s := v.slots.named(name); s != nil && s.known.Load() != nil {
				_, _, _ = v.rows.read(ctx, s)
			}
		}
	}
}

// lookAtAll reads the connections again that this process uses and that have changed. It forgets those that it has not used lately.
func (v *Vault) lookAtAll(ctx context.Context) error {
	groups, now := map[string][]*slot{}, time.Now()
	v.slots.names.Range(func(_, found any) bool {
		s, _ := found.(*slot)
		switch {
		case s.known.Load() == nil:
		case s.followed(now):
			groups[groupOf(s.name)] = append(groups[groupOf(s.name)], s)
		default:
			s.known.Store(nil)
		}
		return true
	})
	var fault error
	for group, slots := range groups {
		versions, err := v.rows.versions(ctx, group)
		if err != nil {
			fault = err
			continue
		}
		for _, s := range slots {
			k := s.known.Load()
			if k == nil || k.version == versions[s.name] {
				continue
			}
			if _, _, err := v.rows.read(ctx, s); errors.Is(err, store.ErrUnavailable) {
				fault = err
			}
		}
	}
	if fault == nil {
		v.confirmed.Store(now.UnixNano())
	}
	return fault
}
