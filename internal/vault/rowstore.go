package vault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/store"
)

// A rowStore reads and writes the rows of connections, and keeps in their slots what they say.
type rowStore struct {
	store  Store
	sealer *sealer
	ended  func(Owner)
	log    *slog.Logger
	id     string // of this Vault, in notices
}

// value returns the value of the slot's row. A value that the store itself cannot open has a version and no data.
func (b *rowStore) value(ctx context.Context, s *slot) (store.Value, error) {
	value, err := b.store.Value(ctx, store.Key{Group: groupOf(s.name), Name: s.name})
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return store.Value{}, fmt.Errorf("read a connection: %w", err)
	}
	return value, nil
}

// read reads the row of a slot, and keeps what it says.
func (b *rowStore) read(ctx context.Context, s *slot) (*connectionRow, store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return nil, 0, err
	}
	defer b.unlock(s)
	return b.readLocked(ctx, s)
}

// readLocked is read of a locked slot.
func (b *rowStore) readLocked(ctx context.Context, s *slot) (*connectionRow, store.Version, error) {
	value, err := b.value(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	if value.Version == 0 {
		s.gone()
		return nil, 0, ErrNone
	}
	r, _, err := b.sealer.openRow(s.name, value.Data)
	if err == nil {
		err = s.accept(r, value.Version)
	}
	if err != nil {
		if s.unreadable(value.Version) {
			b.log.Warn("a connection in the store cannot be read, and is not used: another program wrote it, moved it or put an old one back, or the vault's key is another one; the person must connect again",
				"tenant", s.owner.Tenant, "server", s.owner.Server)
		}
		return nil, value.Version, err
	}
	if s.held != nil {
		return s.held.row, value.Version, nil
	}
	return r, value.Version, nil
}

// write replaces the version of a row by the row as change leaves it. claims are further writes of its group.
func (b *rowStore) write(ctx context.Context, s *slot, version store.Version, r *connectionRow, change func(r *connectionRow), claims ...store.Write) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := s.lock(ctx); err != nil {
		return err
	}
	defer b.unlock(s)
	return b.writeLocked(ctx, s, version, r, change, claims...)
}

// writeLocked is write to the row of a locked slot.
func (b *rowStore) writeLocked(ctx context.Context, s *slot, version store.Version, r *connectionRow, change func(r *connectionRow), claims ...store.Write) error {
	next := *r
	next.count++
	change(&next)
	data, err := b.sealer.sealRow(s.name, &next)
	if err != nil {
		return err
	}
	written, err := b.store.Apply(ctx, store.Change{
		Group: groupOf(s.name), Durable: true,
		Writes: append([]store.Write{{Name: s.name, Was: version, Data: data}}, claims...),
	})
	if err != nil {
		return fmt.Errorf("keep a connection: %w", err)
	}
	err = s.accept(&next, written)
	b.publish(ctx, s)
	return err
}

// deleteLocked is Delete of a locked slot.
func (b *rowStore) deleteLocked(ctx context.Context, s *slot) (ServerConnection, error) {
	for {
		value, err := b.value(ctx, s)
		if err != nil {
			return ServerConnection{}, err
		}
		if value.Version == 0 {
			s.gone()
			return ServerConnection{}, ErrNone
		}
		r, _, opened := b.sealer.openRow(s.name, value.Data)
		_, err = b.store.Apply(ctx, store.Change{Group: groupOf(s.name), Durable: true, Writes: []store.Write{
			{Name: s.name, Was: value.Version}, {Name: s.claimName(), Was: store.Any},
		}})
		switch {
		case errors.Is(err, store.ErrConflict):
			continue
		case err != nil:
			return ServerConnection{}, fmt.Errorf("delete a connection: %w", err)
		}
		if opened == nil {
			s.memory.accept(r.consent, r.count)
		}
		held := s.held
		s.gone()
		switch {
		case held != nil: // the tokens that could not be written yet are the newer ones
			return held.row.connection(), nil
		case opened != nil:
			return ServerConnection{}, opened
		}
		return r.connection(), nil
	}
}

// unlock ends lock, and then says whether the connection has ended.
func (b *rowStore) unlock(s *slot) {
	ended := s.ended
	s.ended = false
	<-s.io
	if ended {
		b.ended(s.owner)
	}
}

// publish sends a notice: the id of the Vault that sends it, a space, and the name of the row.
func (b *rowStore) publish(ctx context.Context, s *slot) {
	_ = b.store.Publish(ctx, topic, []byte(b.id+" "+s.name)) // a replica that misses the notice looks at the store soon
}

// eachRow calls see with the value of each connection.
func (b *rowStore) eachRow(ctx context.Context, see func(store.NamedValue) error) error {
	for i := range connectionGroups {
		values, err := b.list(ctx, fmt.Sprintf("%s%x", groupPrefix, i))
		if err != nil {
			return err
		}
		for _, value := range values {
			if strings.HasSuffix(value.Name, claimSuffix) {
				continue
			}
			if err := see(value); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *rowStore) list(ctx context.Context, group string) ([]store.NamedValue, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	values, err := b.store.List(ctx, group)
	if err != nil {
		return nil, fmt.Errorf("read the connections: %w", err)
	}
	return values, nil
}

// versions returns the versions of the values in a group, by name.
func (b *rowStore) versions(ctx context.Context, group string) (map[string]store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rows, err := b.store.List(ctx, group)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]store.Version, len(rows))
	for _, r := range rows {
		versions[r.Name] = r.Version
	}
	return versions, nil
}
