// Package recall keeps the last offers and manifests of servers in the store, so that lists are
// complete as soon as Switchboard starts again.
//
// It decides when a kept copy may be used: an offer until the server answers, if the server's
// configuration has not changed; a manifest if it cannot be read from its source. It leaves it to
// package upstream to use an offer, and to package config to use a manifest.
package recall

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

const (
	groupOffers = "offers"

	recallTimeout = 2 * time.Second     // for the store to read all offers
	keepTimeout   = 10 * time.Second    // for the store to write all offers that another process has seen
	maxUnpacked   = 64 << 20            // bytes of one offer when it is unpacked
	rememberedFor = 90 * 24 * time.Hour // also of a server that was removed from the configuration
)

// A Memory keeps offers and manifests in a store. Use New. It is safe for concurrent use.
type Memory struct {
	store store.Store
	key   switchboard.Secret // for digests of servers' configurations
	log   *slog.Logger

	answered *ServerSet // servers with an offer that is not kept yet
	offers   atomic.Pointer[map[switchboard.ServerID]rememberedOffer]
}

// New returns a Memory that has read nothing yet. key is the key for digests of servers'
// configurations; it must be the same after a restart.
func New(st store.Store, key switchboard.Secret, log *slog.Logger) *Memory {
	m := &Memory{store: st, key: key, log: log, answered: NewServerSet()}
	m.offers.Store(&map[switchboard.ServerID]rememberedOffer{})
	return m
}

// A Fleet knows the offers of servers. An *upstream.Fleet is one.
type Fleet interface {
	// Remembered returns the configuration and the offer of a server; false if it is not connected.
	Remembered(id switchboard.ServerID) (switchboard.Server, upstream.ServerMemory, bool)
}

// A rememberedOffer is the value that the store keeps for one server.
type rememberedOffer struct {
	Config switchboard.Digest `json:"config"` // keyed, because the configuration holds secrets
	upstream.ServerMemory
}

// serverConfigDigest returns a digest of the part of a server's configuration that its offer can
// depend on.
func (m *Memory) serverConfigDigest(s *switchboard.Server) switchboard.Digest {
	secrets := func(values map[string]switchboard.Secret) map[string]string {
		out := map[string]string{}
		for name, v := range values {
			out[name] = v.Reveal()
		}
		return out
	}
	mac := hmac.New(sha256.New, []byte(m.key.Reveal()))
	of := []any{s.ID, s.Transport, s.URL, s.Command, s.Dir, secrets(s.Headers), secrets(s.Env)}
	if s.Package.Name != "" {
		of = append(of, s.Package.Name, s.Package.Version, s.Package.Lock)
	}
	_, _ = mac.Write(canonical.Encode(of)) // it never fails
	return canonical.Sum(mac.Sum(nil))
}

// ReadOffers reads the remembered offers of all servers. If the store does not answer in time,
// there are none.
func (m *Memory) ReadOffers(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	all := map[switchboard.ServerID]rememberedOffer{}
	kept, err := m.store.List(ctx, groupOffers)
	if err != nil {
		m.log.Warn("the remembered offers of the servers cannot be read", "err", err)
	}
	for _, v := range kept {
		var offer rememberedOffer
		if err := unpackJSON(v.Data, &offer); err != nil {
			m.log.Warn("the remembered offer of a server cannot be read", "server", v.Name, "err", err)
			continue
		}
		all[switchboard.ServerID(v.Name)] = offer
	}
	m.offers.Store(&all)
}

// Offer returns the remembered offer of a server if it may be used. It is an upstream.Options.Recall.
func (m *Memory) Offer(s *switchboard.Server) (upstream.ServerMemory, bool) {
	kept, ok := (*m.offers.Load())[s.ID]
	return kept.ServerMemory, ok && kept.Config == m.serverConfigDigest(s)
}

// Answered notes that a server has answered. It is an upstream.Options.OnAnswer.
func (m *Memory) Answered(id switchboard.ServerID) { m.answered.Add(id) }

// KeepOffers writes the offers of servers that have answered to the store, until ctx is
// done. In the end it writes those that are left, and takes recallTimeout at most.
func (m *Memory) KeepOffers(ctx context.Context, fleet Fleet) {
	keep, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(recallTimeout, cancel) })()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-m.answered.Wake:
		}
		for id := range m.answered.Take() {
			if err := m.keepOffer(keep, fleet, id); err != nil {
				m.log.Warn("the offer of a server is not written for the next start", "server", id, "err", err)
			}
		}
	}
}

// keepOffer has a time limit of its own for each server: when hundreds of them answer at once, the store may need more than that for all.
func (m *Memory) keepOffer(ctx context.Context, fleet Fleet, id switchboard.ServerID) error {
	ctx, cancel := context.WithTimeout(ctx, recallTimeout)
	defer cancel()
	server, known, ok := fleet.Remembered(id)
	if !ok {
		return nil // the server is lost again
	}
	data, err := packJSON(rememberedOffer{m.serverConfigDigest(&server), known})
	if err != nil {
		return err
	}
	_, err = m.store.Apply(ctx, store.Change{Group: groupOffers, Writes: []store.Write{{Name: string(id), Was: store.Any, Data: data, TTL: rememberedFor}}})
	return err
}

// SeenOffers are the offers of servers in a process that keeps nothing. It is a Fleet.
type SeenOffers map[switchboard.ServerID]seenOffer

type seenOffer struct {
	server switchboard.Server // with which it has answered
	memory upstream.ServerMemory
}

// See returns the offers of those servers that are connected.
func See(fleet Fleet, servers []switchboard.Server) SeenOffers {
	seen := SeenOffers{}
	for i := range servers {
		if server, m, ok := fleet.Remembered(servers[i].ID); ok {
			seen[server.ID] = seenOffer{server, m}
		}
	}
	return seen
}

// Remembered implements Fleet.
func (s SeenOffers) Remembered(id switchboard.ServerID) (switchboard.Server, upstream.ServerMemory, bool) {
	o, ok := s[id]
	return o.server, o.memory, ok
}

// KeepSeen writes offers to the store for the next start, which has these servers. A server that is configured otherwise now may offer something else:
// its offer is not written. KeepSeen stops at the first error.
func (m *Memory) KeepSeen(ctx context.Context, seen SeenOffers, servers []switchboard.Server) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	for i := range servers {
		was, ok := seen[servers[i].ID]
		if !ok || m.serverConfigDigest(&was.server) != m.serverConfigDigest(&servers[i]) {
			continue
		}
		if err := m.keepOffer(ctx, seen, servers[i].ID); err != nil {
			return err
		}
	}
	return nil
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

// Tools returns the tools in all remembered offers, each with its title or description. They may be out of date. It stops at
// the first error of the store.
func Tools(ctx context.Context, st store.Store) iter.Seq2[switchboard.ToolID, string] {
	return func(yield func(switchboard.ToolID, string) bool) {
		kept, err := st.List(ctx, groupOffers)
		if err != nil {
			return
		}
		for _, v := range kept {
			var offer rememberedOffer
			if unpackJSON(v.Data, &offer) != nil {
				continue
			}
			for _, raw := range offer.Offer.Tools {
				var tool struct{ Name, Title, Description string }
				if json.Unmarshal(raw, &tool) != nil || tool.Name == "" {
					continue
				}
				if !yield(switchboard.ToolID{Server: switchboard.ServerID(v.Name), Name: tool.Name}, cmp.Or(tool.Title, tool.Description)) {
					return
				}
			}
		}
	}
}
