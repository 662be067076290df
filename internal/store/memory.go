package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"
)

// Memory is a Store that survives nothing. Use NewMemory.
type Memory struct {
	notices noticeHub

	mu     sync.Mutex
	closed bool
	groups map[string]*memoryGroup
	logs   map[string]*memoryLog
	writes int // since expired values were deleted last
}

type memoryGroup struct {
	values   map[string]Value
	meters   map[string]limitState
	accounts map[string]accountState
	holds    map[string]HoldState
	nextEnd  int64 // no account and no hold ends before; in microseconds
}

func newMemoryGroup() *memoryGroup {
	return &memoryGroup{map[string]Value{}, map[string]limitState{}, map[string]accountState{}, map[string]HoldState{}, 0}
}

// isEmpty reports whether the group holds nothing.
func (g *memoryGroup) isEmpty() bool {
	return len(g.values)+len(g.meters)+len(g.accounts)+len(g.holds) == 0
}

type memoryLog struct {
	first   uint64
	entries [][]byte
}

func (l *memoryLog) span() Span { return Span{l.first, l.first + uint64(len(l.entries)) - 1} }

// memorySweepInterval is how many writes there are between two deletions of expired values.
const memorySweepInterval = 4096

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{groups: map[string]*memoryGroup{}, logs: map[string]*memoryLog{}}
}

// lock locks m for one call. The caller calls unlock.
func (m *Memory) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	return m.mu.Unlock, nil
}

// Value implements Store.
func (m *Memory) Value(ctx context.Context, k Key) (Value, error) {
	if err := k.check(); err != nil {
		return Value{}, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return Value{}, err
	}
	defer done()
	return m.liveValue(k, time.Now()), nil
}

func (m *Memory) liveValue(k Key, now time.Time) Value {
	g := m.groups[k.Group]
	if g == nil {
		return Value{}
	}
	v := g.values[k.Name]
	if !v.Expires.IsZero() && !now.Before(v.Expires) {
		return Value{}
	}
	return v
}

// List implements Store.
func (m *Memory) List(ctx context.Context, name string) ([]NamedValue, error) {
	if err := checkName("a group", name); err != nil {
		return nil, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	g := m.groups[name]
	if g == nil {
		return nil, nil
	}
	var all []NamedValue
	now := time.Now()
	for _, n := range slices.Sorted(maps.Keys(g.values)) {
		if v := m.liveValue(Key{name, n}, now); v.Version != 0 && len(all) < MaxEntries {
			all = append(all, NamedValue{n, v})
		}
	}
	return all, nil
}

// Apply implements Store.
func (m *Memory) Apply(ctx context.Context, c Change) (Version, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	return m.change(&c, time.Now())
}

// change makes the change at now, and returns the new version. After ErrConflict, it has changed nothing. The caller holds m.mu.
func (m *Memory) change(c *Change, now time.Time) (Version, error) {
	for _, w := range c.Writes {
		if !w.mayReplace(m.liveValue(Key{c.Group, w.Name}, now).Version) {
			return 0, fmt.Errorf("%s/%s: %w", c.Group, w.Name, ErrConflict)
		}
	}
	v := newVersion()
	g := m.groupForWrite(c.Group, now)
	for _, w := range c.Writes {
		if w.Data == nil {
			delete(g.values, w.Name)
			continue
		}
		value := Value{Data: bytes.Clone(w.Data), Version: v}
		if w.TTL > 0 {
			value.Expires = now.Add(w.TTL)
		}
		g.values[w.Name] = value
	}
	return v, nil
}

// groupForWrite returns the group, and makes it if there is none. It deletes expired values now and then. The
// caller holds m.mu.
func (m *Memory) groupForWrite(name string, now time.Time) *memoryGroup {
	if m.writes++; m.writes%memorySweepInterval == 0 {
		for name, g := range m.groups {
			maps.DeleteFunc(g.values, func(_ string, v Value) bool { return !v.Expires.IsZero() && !now.Before(v.Expires) })
			maps.DeleteFunc(g.meters, func(_ string, l limitState) bool { return l.fullAt <= now.UnixMicro() })
			g.settleExpired(now)
			if g.isEmpty() {
				delete(m.groups, name)
			}
		}
	}
	g := m.groups[name]
	if g == nil {
		g = newMemoryGroup()
		m.groups[name] = g
	}
	return g
}

// Take implements Store.
func (m *Memory) Take(ctx context.Context, name string, want Want, limits ...Limit) (got int, wait time.Duration, err error) {
	if err := checkTake(name, want, limits); err != nil {
		return 0, 0, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer done()
	now := time.Now()
	g := m.groupForWrite(name, now)
	was := make([]limitState, len(limits))
	for i, l := range limits {
		was[i] = g.meters[l.Name]
	}
	next, got, wait := takeFromLimits(was, limits, want, now.UnixMicro())
	for i, l := range limits {
		if next[i] != was[i] {
			g.meters[l.Name] = next[i]
		}
	}
	return got, wait, nil
}

// Append implements Store.
func (m *Memory) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if err := checkAppend(log, entries); err != nil {
		return err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	l := m.logs[log]
	if l == nil {
		l = &memoryLog{first: 1}
	}
	if last := l.span().Last; last != after {
		return fmt.Errorf("log %s ends with %d, not %d: %w", log, last, after, ErrConflict)
	}
	m.logs[log] = l
	for _, e := range entries {
		l.entries = append(l.entries, bytes.Clone(e))
	}
	return nil
}

// Read implements Store.
func (m *Memory) Read(ctx context.Context, log string, after uint64, limit int) ([]Entry, error) {
	if err := checkName("a log", log); err != nil {
		return nil, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	l := m.logs[log]
	if l == nil || after >= l.span().Last {
		return nil, nil
	}
	var out []Entry
	for seq := max(after+1, l.first); seq <= l.span().Last && len(out) < min(limit, MaxEntries); seq++ {
		out = append(out, Entry{seq, l.entries[seq-l.first]})
	}
	return out, nil
}

// Span implements Store.
func (m *Memory) Span(ctx context.Context, log string) (Span, error) {
	if err := checkName("a log", log); err != nil {
		return Span{}, err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return Span{}, err
	}
	defer done()
	if l := m.logs[log]; l != nil {
		return l.span(), nil
	}
	return Span{1, 0}, nil
}

// Logs implements Store.
func (m *Memory) Logs(ctx context.Context) ([]string, error) {
	done, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return slices.Sorted(maps.Keys(m.logs)), nil
}

// Trim implements Store.
func (m *Memory) Trim(ctx context.Context, log string, first uint64) error {
	if err := checkName("a log", log); err != nil {
		return err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	if l := m.logs[log]; l != nil && first > l.first {
		first = min(first, l.span().Last+1)
		l.entries = slices.Clone(l.entries[first-l.first:])
		l.first = first
	}
	return nil
}

// Publish implements Store.
func (m *Memory) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(checkName("a topic", topic), checkSize("the bytes of a notice", len(data), MaxNotice)); err != nil {
		return err
	}
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	m.notices.publish(topic, data)
	return nil
}

// Subscribe implements Store.
func (m *Memory) Subscribe(topic string, heard func([]byte)) (stop func()) {
	return m.notices.subscribe(topic, heard)
}

// Check implements Store.
func (m *Memory) Check(ctx context.Context) error {
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	done()
	return nil
}

// Dump implements Store.
func (m *Memory) Dump(ctx context.Context, see func(Record) error) error {
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	var all []Record // a copy, so that no call waits for see
	now := time.Now()
	for _, group := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[group]
		for _, n := range slices.Sorted(maps.Keys(g.values)) {
			if v := m.liveValue(Key{group, n}, now); v.Version != 0 {
				all = append(all, Record{Kind: KindValue, Group: group, Name: n, Value: v})
			}
		}
	}
	for _, group := range slices.Sorted(maps.Keys(m.groups)) {
		g := m.groups[group]
		for _, n := range slices.Sorted(maps.Keys(g.meters)) {
			if whole := g.meters[n].fullAt; whole > now.UnixMicro() {
				all = append(all, Record{Kind: KindLimit, Group: group, Name: n, FullAt: time.UnixMicro(whole)})
			}
		}
	}
	all = append(m.dumpAccounts(now), all...)
	for _, n := range slices.Sorted(maps.Keys(m.logs)) {
		l := m.logs[n]
		all = append(all, Record{Kind: KindLog, Name: n, Span: l.span()})
		for i, data := range l.entries {
			all = append(all, Record{Kind: KindEntry, Name: n, Entry: Entry{l.first + uint64(i), data}})
		}
	}
	done()
	for _, r := range all {
		if err := cmp.Or(ctx.Err(), see(r)); err != nil {
			return err
		}
	}
	return nil
}

// Load implements Store.
func (m *Memory) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	if err := m.Check(ctx); err != nil {
		return err
	}
	groups, logs := map[string]*memoryGroup{}, map[string]*memoryLog{}
	for r, err := range records {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		g := groups[r.Group]
		if g == nil {
			g = newMemoryGroup()
		}
		switch r.Kind {
		case KindValue:
			g.values[r.Name], groups[r.Group] = r.Value, g
		case KindLimit:
			g.meters[r.Name], groups[r.Group] = limitState{r.FullAt.UnixMicro()}, g
		case KindAccount:
			g.accounts[r.Name], groups[r.Group] = newAccountState(r.Account), g
		case KindHold:
			g.holds[r.Name], groups[r.Group] = r.Hold, g
		case KindLog:
			logs[r.Name] = &memoryLog{first: r.Span.First}
		case KindEntry:
			logs[r.Name].entries = append(logs[r.Name].entries, r.Entry.Data)
		}
	}
	done, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer done()
	now := time.Now()
	for name, g := range m.groups {
		if g.settleExpired(now); len(g.accounts)+len(g.holds) > 0 {
			return errNotEmpty
		}
		for n := range g.values {
			if m.liveValue(Key{name, n}, now).Version != 0 {
				return errNotEmpty
			}
		}
		for _, l := range g.meters {
			if l.fullAt > now.UnixMicro() {
				return errNotEmpty
			}
		}
	}
	if len(m.logs) > 0 {
		return errNotEmpty
	}
	m.groups, m.logs = groups, logs
	return nil
}

// Status implements Store.
func (m *Memory) Status() Status {
	return Status{Kind: "memory", Where: "this process", Survives: "nothing"}
}

// Close implements Store.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.notices.close()
	return nil
}
