package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"io"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

// The store keeps the last offer of each server, so that lists are complete as soon as
// Switchboard starts again. A kept offer is used until the server answers, and only if the
// server's configuration has not changed.

const (
	groupOffers = "offers"

	recallTimeout = 2 * time.Second     // for the store to read all offers
	maxUnpacked   = 64 << 20            // bytes of one offer when it is unpacked
	rememberedFor = 90 * 24 * time.Hour // also of a server that was removed from the configuration
)

// A rememberedOffer is the value that the store keeps for one server.
type rememberedOffer struct {
	Config switchboard.Digest `json:"config"` // keyed, because the configuration holds secrets
	upstream.Memory
}

// serverConfigDigest returns a digest of the part of a server's configuration that its offer can
// depend on.
func (a *App) serverConfigDigest(s *switchboard.Server) switchboard.Digest {
	secrets := func(m map[string]switchboard.Secret) map[string]string {
		out := map[string]string{}
		for name, v := range m {
			out[name] = v.Reveal()
		}
		return out
	}
	mac := hmac.New(sha256.New, []byte(a.ledger.Key("offers").Reveal()))
	_, _ = mac.Write(canonical.Encode([]any{s.ID, s.Transport, s.URL, s.Command, s.Dir, secrets(s.Headers), secrets(s.Env)})) // it never fails
	return canonical.Sum(mac.Sum(nil))
}

// recallOffers reads the remembered offers of all servers. If the store does not answer in time,
// there are none.
func (a *App) recallOffers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	all := map[switchboard.ServerID]rememberedOffer{}
	kept, err := a.store.List(ctx, groupOffers)
	if err != nil {
		a.log.Warn("the remembered offers of the servers cannot be read", "err", err)
	}
	for _, v := range kept {
		var m rememberedOffer
		if err := unpackJSON(v.Data, &m); err != nil {
			a.log.Warn("the remembered offer of a server cannot be read", "server", v.Name, "err", err)
			continue
		}
		all[switchboard.ServerID(v.Name)] = m
	}
	a.rememberedOffers.Store(&all)
}

// recallOffer is upstream.Options.Recall.
func (a *App) recallOffer(s *switchboard.Server) (upstream.Memory, bool) {
	m, ok := (*a.rememberedOffers.Load())[s.ID]
	return m.Memory, ok && m.Config == a.serverConfigDigest(s)
}

// keepAnsweredOffers writes the offers of servers that have answered to the store, until ctx is
// done. In the end it writes those that are left.
func (a *App) keepAnsweredOffers(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.answeredServers.wake:
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), recallTimeout)
		for id := range a.answeredServers.take() {
			if err := a.keepOffer(last, id); err != nil {
				a.log.Warn("the offer of a server is not written for the next start", "server", id, "err", err)
			}
		}
		cancel()
	}
}

func (a *App) keepOffer(ctx context.Context, id switchboard.ServerID) error {
	server, known, ok := a.fleet.Remembered(id)
	if !ok {
		return nil // the server is lost again
	}
	data, err := packJSON(rememberedOffer{a.serverConfigDigest(&server), known})
	if err != nil {
		return err
	}
	_, err = a.store.Apply(ctx, store.Change{Group: groupOffers, Writes: []store.Write{{Name: string(id), Was: store.Any, Data: data, TTL: rememberedFor}}})
	return err
}

func packJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func unpackJSON(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(r, maxUnpacked)).Decode(v)
}
