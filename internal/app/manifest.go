package app

import (
	"bytes"
	"context"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The store keeps the last good copy of each manifest, so that an address that is down at a start takes no
// tools away.

const groupManifests = "manifests"

// A keptManifest is the value that the store keeps for one server.
type keptManifest struct {
	Of   string `json:"of"` // as config.Manifest has it
	Data []byte `json:"data"`
}

// recallManifests puts the kept copies in the place of manifests that cannot be read. If the store does not
// answer in time, there are none.
func (a *App) recallManifests(ctx context.Context, c *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	for id, m := range c.Manifests {
		if m.Fault == "" {
			continue
		}
		v, err := a.store.Value(ctx, store.Key{Group: groupManifests, Name: string(id)})
		if err != nil {
			a.log.Warn("the last copy of a manifest is not known", "server", id, "err", err)
			continue
		}
		var kept keptManifest
		if v.Data == nil || unpackJSON(v.Data, &kept) != nil || kept.Of != m.Of {
			continue
		}
		c.RecallManifest(id, kept.Data)
	}
}

// keepManifests keeps the manifests of c that was does not have, also while Switchboard stops.
func (a *App) keepManifests(ctx context.Context, c, was *config.Config) {
	for id, m := range c.Manifests {
		if m.Fault != "" || was != nil && bytes.Equal(was.Manifests[id].Data, m.Data) && was.Manifests[id].Of == m.Of {
			continue
		}
		if err := a.keepManifest(ctx, id, m); err != nil {
			a.log.Warn("a manifest is not kept for the next start", "server", id, "err", err)
		}
	}
}

func (a *App) keepManifest(ctx context.Context, id switchboard.ServerID, m config.Manifest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recallTimeout)
	defer cancel()
	data, err := packJSON(keptManifest{m.Of, m.Data})
	if err != nil {
		return err
	}
	_, err = a.store.Apply(ctx, store.Change{Group: groupManifests, Writes: []store.Write{{Name: string(id), Was: store.Any, Data: data, TTL: rememberedFor}}})
	return err
}
