package recall

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

// RecallManifests replaces manifests that cannot be read by their kept copies. If the store does
// not answer in time, there are no copies.
func (m *Memory) RecallManifests(ctx context.Context, c *config.Config) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	for id, manifest := range c.Manifests {
		if manifest.Fault == "" {
			continue
		}
		v, err := m.store.Value(ctx, store.Key{Group: groupManifests, Name: string(id)})
		if err != nil {
			m.log.Warn("the kept copy of a manifest cannot be read", "server", id, "err", err)
			continue
		}
		var kept keptManifest
		if v.Data == nil || unpackJSON(v.Data, &kept) != nil || kept.Of != manifest.Digest {
			continue
		}
		c.RecallManifest(id, kept.Data)
	}
}

// KeepManifests writes the manifests of c to the store unless was has the same ones. It also works
// while Switchboard stops.
func (m *Memory) KeepManifests(ctx context.Context, c, was *config.Config) {
	for id, manifest := range c.Manifests {
		if manifest.Fault != "" || was != nil && bytes.Equal(was.Manifests[id].Data, manifest.Data) && was.Manifests[id].Digest == manifest.Digest {
			continue
		}
		if err := m.keepManifest(ctx, id, manifest); err != nil {
			m.log.Warn("the copy of a manifest for the next start is not written", "server", id, "err", err)
		}
	}
}

func (m *Memory) keepManifest(ctx context.Context, id switchboard.ServerID, manifest config.Manifest) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recallTimeout)
	defer cancel()
	data, err := packJSON(keptManifest{manifest.Digest, manifest.Data})
	if err != nil {
		return err
	}
	_, err = m.store.Apply(ctx, store.Change{Group: groupManifests, Writes: []store.Write{{Name: string(id), Was: store.Any, Data: data, TTL: rememberedFor}}})
	return err
}
