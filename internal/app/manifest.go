package app

import (
	"bytes"
	"context"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The store keeps the last good copy of each manifest, so that no tools are missing
// if its address is down at the next start.

const groupManifests = "manifests"

// A keptManifest is the copy that the store keeps of one server's manifest.
type keptManifest struct {
	Of   string `json:"of"` // as in config.Manifest
	Data []byte `json:"data"`
}

// recallManifests replaces manifests that cannot be read by their kept copies. If the store does
// not answer in time, there are no copies.
func (a *App) recallManifests(ctx context.Context, c *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	for id, m := range c.Manifests {
		if m.Fault == "" {
			continue
		}
		v, err := a.store.Value(ctx, store.Key{Group: groupManifests, Name: string(id)})
		if err != nil {
			a.log.Warn("the kept copy of a manifest cannot be read", "server", id, "err", err)
			continue
		}
		var kept keptManifest
		if v.Data == nil || unpackJSON(v.Data, &kept) != nil || kept.Of != m.Of {
			continue
		}
		c.RecallManifest(id, kept.Data)
	}
}

// keepManifests writes the manifests of c to the store unless was has the same ones. It also works
// while Switchboard stops.
func (a *App) keepManifests(ctx context.Context, c, was *config.Config) {
	for id, m := range c.Manifests {
		if m.Fault != "" || was != nil && bytes.Equal(was.Manifests[id].Data, m.Data) && was.Manifests[id].Of == m.Of {
			continue
		}
		if err := a.keepManifest(ctx, id, m); err != nil {
			a.log.Warn("the copy of a manifest for the next start is not written", "server", id, "err", err)
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
