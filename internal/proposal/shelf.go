package proposal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Groups of the store: the proposals, their texts, and the files that applied ones have replaced.
const (
	Group        = "proposals"
	groupContent = "proposal-texts"
	groupBackups = "proposal-backups"
)

// timeout is the time for one step in the store.
const timeout = 5 * time.Second

// A Store keeps proposals. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// A shelf keeps proposals in the store.
type shelf struct{ store Store }

// all returns all proposals.
func (s *shelf) all(ctx context.Context) ([]*KeptProposal, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	rows, err := s.store.List(ctx, Group)
	if err != nil {
		return nil, switchboard.Unavailable("the proposals cannot be read", err)
	}
	var all []*KeptProposal
	for _, row := range rows {
		p := &KeptProposal{}
		if json.Unmarshal(row.Data, p) == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// load returns a proposal and its version; nil if there is none.
func (s *shelf) load(ctx context.Context, id string) (*KeptProposal, store.Version, error) {
	if len(id) != 10 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return nil, 0, nil
	}
	p := &KeptProposal{}
	v, err := s.value(ctx, Group, id, p)
	if err != nil || v == 0 {
		return nil, 0, err
	}
	return p, v, nil
}

func (s *shelf) content(ctx context.Context, id string) (*content, error) {
	c := &content{}
	v, err := s.value(ctx, groupContent, id, c)
	if err == nil && v == 0 {
		err = errNone
	}
	return c, err
}

// value reads a value into out. The version is 0 if there is none.
func (s *shelf) value(ctx context.Context, group, name string, out any) (store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	v, err := s.store.Value(ctx, store.Key{Group: group, Name: name})
	if err == nil && v.Version != 0 {
		err = json.Unmarshal(v.Data, out)
	}
	if err != nil {
		return 0, switchboard.Unavailable("the proposal cannot be read", err)
	}
	return v.Version, nil
}

// keep stores a new proposal.
func (s *shelf) keep(ctx context.Context, p *KeptProposal, c *content) error {
	if err := s.saveContent(ctx, p.ID, c); err != nil {
		return err
	}
	_, err := s.save(ctx, p, 0)
	return err
}

// drop deletes a proposal with all that belongs to it. The next one goes on if this process is killed: the proposal itself goes last.
func (s *shelf) drop(ctx context.Context, p *KeptProposal) error {
	for _, group := range []string{backupsOf(p.Tenant), groupContent, Group} {
		if _, err := s.store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{{Name: p.ID, Was: store.Any}}}); err != nil {
			return switchboard.Unavailable("an old proposal cannot be dropped", err)
		}
	}
	return nil
}

func (s *shelf) saveContent(ctx context.Context, id string, c *content) error {
	return s.write(ctx, groupContent, id, store.Any, c, nil)
}

// save stores a proposal in the place of a version.
func (s *shelf) save(ctx context.Context, p *KeptProposal, was store.Version) (now store.Version, err error) {
	p.Changed = time.Now().UTC().Truncate(time.Millisecond)
	err = s.write(ctx, Group, p.ID, was, p, &now)
	return now, err
}

func (s *shelf) write(ctx context.Context, group, name string, was store.Version, v any, now *store.Version) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // texts would grow
	if err := e.Encode(v); err != nil {
		return err
	}
	version, err := s.store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{{Name: name, Was: was, Data: text.Bytes(), TTL: keptFor}}, Durable: true})
	if now != nil {
		*now = version
	}
	switch {
	case errors.Is(err, store.ErrConflict):
		return refuse(switchboard.CodeChangedMeanwhile, "somebody else has just done something with the proposal; look at it again")
	case err != nil:
		return switchboard.Unavailable("the proposal cannot be stored", err)
	}
	return nil
}
