package pin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admission"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

const (
	groupPins    = "pins"
	groupReports = "pin_reports"
	groupMark    = "pin_mark" // one value, which changes with each change of the other groups
	markName     = "mark"
	topic        = "pins"

	reportTTL      = time.Minute
	renewInterval  = 20 * time.Second
	keepInterval   = time.Second            // between two writes of what changes often
	fileInterval   = 500 * time.Millisecond // other processes that share a file send no notices
	sharedInterval = 5 * time.Second        // for notices that were lost
	maxUnpacked    = 64 << 20               // bytes
	replicaMark    = "@"                    // between the server and the replica, in the name of a report
)

func pack(v any) ([]byte, error) {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func unpack(data []byte, v any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	return json.NewDecoder(io.LimitReader(r, maxUnpacked)).Decode(v)
}

// publish tells the other processes that something of a server has changed.
func (b *Board) publish(ctx context.Context, id switchboard.ServerID) {
	if b.o.Store.Status().Kind == "memory" {
		return
	}
	notice, err := json.Marshal([]string{string(id), b.o.Self})
	if err == nil {
		_, err = b.o.Store.Apply(ctx, store.Change{Group: groupMark, Writes: []store.Write{{Name: markName, Was: store.Any, Data: notice}}})
	}
	if err == nil {
		err = b.o.Store.Publish(ctx, topic, notice)
	}
	if err != nil {
		b.o.Log.Warn("the notice that the pins of a server have changed is not published to the other replicas; they read them later", "server", id, "err", err)
	}
}

func decodeNotice(data []byte) (id switchboard.ServerID, from string, err error) {
	var n [2]string
	err = json.Unmarshal(data, &n)
	return switchboard.ServerID(n[0]), n[1], err
}

// Read reads all pins and reports. If the store does not answer, nothing is known, and each definition is seen for the first time.
func (b *Board) Read(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.readAll(ctx)
	if err == nil {
		err = b.changes.read(ctx)
	}
	if err != nil {
		b.o.Log.Warn("the pins of the servers cannot be read: where first_use lets in, their definitions are seen anew", "err", err)
	}
}

// readAll reads everything that has changed since the last read, and reports whether there was any. The caller holds b.mu.
func (b *Board) readAll(ctx context.Context) (changed bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	pins, err := b.o.Store.List(ctx, groupPins)
	if err != nil {
		return false, err
	}
	for _, v := range pins {
		s := b.server(switchboard.ServerID(v.Name))
		if s.version == v.Version {
			continue
		}
		if err := s.take(v.Value); err != nil {
			b.o.Log.Warn("the pins of a server cannot be read", "server", v.Name, "err", err)
			continue
		}
		changed = true
	}
	reported, err := b.readReports(ctx)
	return changed || reported, err
}

// readReports reads what other replicas report. The caller holds b.mu.
func (b *Board) readReports(ctx context.Context) (changed bool, err error) {
	all, err := b.o.Store.List(ctx, groupReports)
	if err != nil {
		return false, err
	}
	found := map[switchboard.ServerID]map[string]admission.OtherOffers{}
	for _, v := range all {
		server, replica, ok := strings.Cut(v.Name, replicaMark)
		if !ok || replica == b.o.Self {
			continue
		}
		var r admission.OtherOffers
		if err := unpack(v.Data, &r); err != nil {
			b.o.Log.Warn("what another replica reports of the definitions of a server cannot be read", "server", server, "err", err)
			continue
		}
		id := switchboard.ServerID(server)
		if found[id] == nil {
			found[id] = map[string]admission.OtherOffers{}
		}
		found[id][replica] = r
	}
	for id := range found {
		b.server(id)
	}
	for id, s := range b.servers {
		if maps.EqualFunc(s.others, found[id], sameReports) {
			continue
		}
		s.others, s.old, changed = found[id], true, true
		s.merged = admission.Merge(slices.Collect(maps.Values(s.others))...)
	}
	return changed, nil
}

// Run keeps what Admit could not keep at once, reports what this replica is offered, and follows the other replicas, until ctx is done.
func (b *Board) Run(ctx context.Context) {
	every := sharedInterval
	if b.o.Store.Status().Kind == "file" {
		every = fileInterval
	}
	changes := feed.Open(b.o.Store, feed.Options[switchboard.ServerID]{Topic: topic, Decode: decodeNotice, Self: b.o.Self})
	defer changes.Close()
	poll, renew := time.NewTicker(every), time.NewTicker(renewInterval)
	defer poll.Stop()
	defer renew.Stop()
	var reporting sync.WaitGroup
	reporting.Go(func() { b.changes.run(ctx) })
	defer reporting.Wait()
	var mark store.Version
	wake := b.wake
	var pause <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			b.withdraw()
			return
		case <-wake:
			b.keepAll(ctx, false)
			wake, pause = nil, time.After(keepInterval)
		case <-pause:
			wake, pause = b.wake, nil
		case <-renew.C:
			b.keepAll(ctx, true)
		case <-changes.Wakes():
			changes.Take()
			b.follow(ctx, &mark)
		case <-poll.C:
			b.follow(ctx, &mark)
		}
	}
}

// follow reads the pins again if another process has changed some since mark.
func (b *Board) follow(ctx context.Context, mark *store.Version) {
	if b.o.Store.Status().Kind == "memory" {
		return
	}
	read, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := b.o.Store.Value(read, store.Key{Group: groupMark, Name: markName})
	if err != nil || v.Version == *mark && !b.hasReports() {
		return
	}
	b.mu.Lock()
	changed, err := b.readAll(ctx)
	b.mu.Unlock()
	if err == nil {
		*mark = v.Version
	}
	if changed {
		b.o.Changed()
	}
}

// hasReports reports whether other replicas report anything: that can expire without a notice.
func (b *Board) hasReports() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.servers {
		if len(s.others) > 0 {
			return true
		}
	}
	return false
}

// keepAll writes the pins and reports that are not in the store. If renew is set, it writes all reports, so that they do not expire.
func (b *Board) keepAll(ctx context.Context, renew bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	conflict := false
	for id, s := range b.servers {
		if s.unkept {
			err := b.keep(ctx, id, s, s.pins)
			if errors.Is(err, store.ErrConflict) {
				err = b.reread(ctx, id, s)
				conflict = true
			}
			b.note(err)
		}
		b.report(ctx, id, s, renew)
	}
	if conflict {
		b.o.Changed()
	}
}

// report writes what this replica is offered in place of the admitted definitions of a server.
func (b *Board) report(ctx context.Context, id switchboard.ServerID, s *pinnedServer, renew bool) {
	if len(s.own) == 0 && s.reported == nil || b.o.Store.Status().Kind == "memory" {
		return
	}
	var data []byte
	if len(s.own) > 0 {
		text, err := pack(s.own)
		if err != nil {
			b.note(err)
			return
		}
		data = text
	}
	if !renew && bytes.Equal(data, s.reported) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	_, err := b.o.Store.Apply(ctx, store.Change{Group: groupReports, Writes: []store.Write{{Name: string(id) + replicaMark + b.o.Self, Was: store.Any, Data: data, TTL: reportTTL}}})
	if b.note(err); err != nil {
		return
	}
	news := !bytes.Equal(data, s.reported)
	if s.reported = data; news {
		b.publish(ctx, id)
	}
}

// note logs that the store does not answer, once.
func (b *Board) note(err error) {
	if err != nil && !b.failing {
		b.o.Log.Warn("the pins of the servers are not kept: the store does not answer", "err", err)
	}
	b.failing = err != nil
}

// withdraw deletes the reports of this replica, which stops.
func (b *Board) withdraw() {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for id, s := range b.servers {
		s.own = nil
		b.report(ctx, id, s, false)
	}
}
