// Package evidence keeps the reports of verifications in the store, so that all replicas have the same ones.
//
// It decides which report counts: the last one of a tool, about the definition that is let in, as it was written. A value that was changed by anything but a Switchboard with the
// same store key has no reports. Package verify says what a report means; package admission decides what follows for the tool.
package evidence

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

const (
	group = "evidence" // has a value for each server that was verified
	topic = "evidence"

	storeTimeout   = 2 * time.Second
	fileInterval   = 500 * time.Millisecond // other processes that share a file send no notices
	sharedInterval = 5 * time.Second        // for notices that were lost
	maxAttempts    = 5                      // at one change that others make, too
	maxUnpacked    = 32 << 20               // bytes of the reports of one server
	maxReports     = 2000                   // of one server
)

// A Store keeps reports. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.NamedValue, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
	Status() store.Status
}

// Options are the parts that a ReportBook needs.
type Options struct {
	Store Store
	Key   switchboard.Secret // that all processes with the store have, and no others

	// Changed is called after reports have changed. It must not wait. nil means no call.
	Changed func()
	Log     *slog.Logger
}

// A KeptReport is a report with the receipt of its verification.
type KeptReport struct {
	*verify.TestReport
	Receipt string `json:"receipt,omitempty"`
}

// ServerReports are the reports of one server, by the name of the tool, the newest first: one for each of the last definitions. Do not modify them.
type ServerReports map[string][]KeptReport

// maxDefinitions limits the definitions of one tool whose reports are kept: the one in use, one that is offered in its place, and one before.
const maxDefinitions = 3

// Newest returns the newest report of a tool; nil if there is none.
func (s *ServerReports) Newest(tool string) *KeptReport {
	if s == nil || len((*s)[tool]) == 0 {
		return nil
	}
	return &(*s)[tool][0]
}

// A ReportBook has all reports. Use New. It is safe for concurrent use.
type ReportBook struct {
	o     Options
	every time.Duration

	mu    sync.Mutex // held while something is read or written
	known atomic.Pointer[map[switchboard.ServerID]knownReports]
}

// knownReports are the reports of a server in a version of the store.
type knownReports struct {
	version store.Version
	reports *ServerReports
}

// New returns a ReportBook that has read nothing.
func New(o Options) *ReportBook {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	b := &ReportBook{o: o, every: sharedInterval}
	if o.Store.Status().Kind == "file" {
		b.every = fileInterval
	}
	b.known.Store(&map[switchboard.ServerID]knownReports{})
	return b
}

// Of returns the reports of a server; nil if it has none. It is the same pointer until they change.
func (b *ReportBook) Of(id switchboard.ServerID) *ServerReports { return (*b.known.Load())[id].reports }

// Servers returns the servers with reports, sorted.
func (b *ReportBook) Servers() []switchboard.ServerID {
	return slices.Sorted(maps.Keys(*b.known.Load()))
}

// Read reads all reports.
func (b *ReportBook) Read(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	all, err := b.o.Store.List(ctx, group)
	if err != nil {
		return err
	}
	was := *b.known.Load()
	next, changed := make(map[switchboard.ServerID]knownReports, len(all)), len(was) != len(all)
	for _, v := range all {
		id := switchboard.ServerID(v.Name)
		if before, ok := was[id]; ok && before.version == v.Version {
			next[id] = before
			continue
		}
		changed = true
		next[id] = knownReports{v.Version, b.open(id, v.Data)}
	}
	if changed {
		b.known.Store(&next)
		b.o.Changed()
	}
	return nil
}

// open returns the reports in a value: none if it was not written by this package.
func (b *ReportBook) open(id switchboard.ServerID, data []byte) *ServerReports {
	reports, err := b.unpack(id, data)
	if err != nil {
		b.o.Log.Warn("the reports of a server do not count", "server", id, "err", err)
		return &ServerReports{}
	}
	return &reports
}

// Follow reads what other processes write, until ctx ends.
func (b *ReportBook) Follow(ctx context.Context) {
	changes := feed.Watch(b.o.Store, topic, b.every)
	defer changes.Close()
	for failed := false; ; {
		if _, _, err := changes.Next(ctx); err != nil {
			return
		}
		err := b.Read(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			b.o.Log.Warn("the reports of verifications cannot be read; those that are known stay", "err", err)
		}
		failed = err != nil
	}
}

// Put writes reports of a server in the place of earlier ones about the same tools, durably. A report does not take the place of one about the same definition that
// says more: see verify.TestReport.Lifts.
func (b *ReportBook) Put(ctx context.Context, id switchboard.ServerID, reports []KeptReport) error {
	if len(reports) == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		v, err := b.o.Store.Value(ctx, store.Key{Group: group, Name: string(id)})
		if err != nil {
			return err
		}
		next := ServerReports{}
		if v.Data != nil {
			maps.Copy(next, *b.open(id, v.Data))
		}
		for _, r := range reports {
			next.add(r)
		}
		for len(next) > maxReports {
			next.dropOldest()
		}
		data, err := b.pack(id, next)
		if err != nil {
			return err
		}
		version, err := b.o.Store.Apply(ctx, store.Change{Group: group, Durable: true, Writes: []store.Write{{Name: string(id), Was: v.Version, Data: data}}})
		if errors.Is(err, store.ErrConflict) && attempt < maxAttempts {
			continue
		}
		if err != nil {
			return err
		}
		known := maps.Clone(*b.known.Load())
		known[id] = knownReports{version, &next}
		b.known.Store(&known)
		b.o.Changed()
		_ = b.o.Store.Publish(ctx, topic, []byte(id)) // others read it later anyway
		return nil
	}
}

// add adds a report, unless an earlier one about the same definition says more.
func (s ServerReports) add(r KeptReport) {
	all := slices.Clone(s[r.Tool])
	if i := slices.IndexFunc(all, func(o KeptReport) bool { return o.Digest == r.Digest }); i >= 0 {
		if !r.Lifts(all[i].TestReport) {
			return
		}
		all = slices.Delete(all, i, i+1)
	}
	all = slices.Insert(all, 0, r)
	s[r.Tool] = all[:min(len(all), maxDefinitions)]
}

// dropOldest removes the tool whose newest report is the oldest: its server does not offer it any more, most likely.
func (s ServerReports) dropOldest() {
	oldest := ""
	for name, all := range s {
		if oldest == "" || all[0].At.Before(s[oldest][0].At) || all[0].At.Equal(s[oldest][0].At) && name < oldest {
			oldest = name
		}
	}
	delete(s, oldest)
}

// pack returns reports as a value: a MAC over the server and the rest, and the compressed reports.
func (b *ReportBook) pack(id switchboard.ServerID, reports ServerReports) ([]byte, error) {
	list := make([]KeptReport, 0, len(reports))
	for _, name := range slices.Sorted(maps.Keys(reports)) {
		list = append(list, reports[name]...)
	}
	text, err := json.Marshal(list)
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(text); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return append(b.sign(id, packed.Bytes()), packed.Bytes()...), nil
}

func (b *ReportBook) sign(id switchboard.ServerID, packed []byte) []byte {
	mac := hmac.New(sha256.New, []byte(b.o.Key.Reveal()))
	_, _ = fmt.Fprintf(mac, "%d:%s", len(id), id) // it never fails
	_, _ = mac.Write(packed)
	return mac.Sum(nil)
}

// unpack is the inverse of pack. It refuses a value that was edited, or that belongs to another server.
func (b *ReportBook) unpack(id switchboard.ServerID, data []byte) (ServerReports, error) {
	if len(data) < sha256.Size || !hmac.Equal(data[:sha256.Size], b.sign(id, data[sha256.Size:])) {
		return nil, errors.New("they were changed in the store by something else")
	}
	z, err := gzip.NewReader(bytes.NewReader(data[sha256.Size:]))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(z, maxUnpacked))
	if err != nil {
		return nil, err
	}
	var list []json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	out := ServerReports{}
	for _, one := range list {
		r, err := verify.ReadReport(one)
		if err != nil || r.Server != id {
			continue // of another version, say
		}
		var kept struct {
			Receipt string `json:"receipt"`
		}
		_ = json.Unmarshal(one, &kept) // it was read before
		out[r.Tool] = append(out[r.Tool], KeptReport{r, kept.Receipt})
	}
	return out, nil
}

// ReportOf returns the last report about the tool with the definition of the digest, or nil.
func (s *ServerReports) ReportOf(tool, digest string) *KeptReport {
	if s == nil {
		return nil
	}
	all := (*s)[tool]
	if i := slices.IndexFunc(all, func(r KeptReport) bool { return r.Digest == digest }); i >= 0 {
		return &all[i]
	}
	return nil
}

// FactsOf returns what the reports say about the tool with this definition; nil if they say nothing: there is none, it is void or about another definition, or nothing was called.
func (s *ServerReports) FactsOf(tool, digest string) *switchboard.ReportFacts {
	r := s.ReportOf(tool, digest)
	if r == nil || r.Void != "" || r.Leave == verify.LeaveNone {
		return nil
	}
	f := &switchboard.ReportFacts{Score: r.Score, Leave: string(r.Leave), Walls: r.Walls, Verified: r.Verified, At: r.At}
	for _, name := range r.FailedMust() {
		f.Failed = append(f.Failed, string(name))
	}
	return f
}
