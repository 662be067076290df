package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// scanAtOnce is how many keys Redis looks at before it answers somebody else.
const scanAtOnce = 1000

// Check implements Store: it reads all that is kept.
func (r *Redis) Check(ctx context.Context) error {
	return r.Dump(ctx, func(Record) error { return nil })
}

// Dump implements Store. What is changed meanwhile is given as it was or as it is.
func (r *Redis) Dump(ctx context.Context, see func(Record) error) error {
	for _, kind := range []string{valueKind, meterKind} {
		if err := r.scan(ctx, kind, func(keys []string) error {
			for _, key := range keys {
				rec, err := r.record(ctx, key, kind)
				if rec.Kind != "" && err == nil {
					err = see(rec)
				}
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	logs, err := r.Logs(ctx)
	if err != nil {
		return err
	}
	for _, log := range logs {
		if err := r.dumpLog(ctx, log, see); err != nil {
			return err
		}
	}
	return nil
}

// record is the value or the limit that stands there; one of no kind where nothing does.
func (r *Redis) record(ctx context.Context, key, kind string) (Record, error) {
	u, err := r.begin(ctx, 0)
	if err != nil {
		return Record{}, err
	}
	defer u.end()
	answer, err := u.askAgain(key, "get", key)
	if err != nil {
		return Record{}, u.fail(err)
	}
	group, name, _ := strings.Cut(strings.TrimPrefix(key, r.prefix+":{"), "}"+kind)
	rec := Record{Group: unescaper.Replace(group), Name: name}
	switch {
	case answer == nil:
	case kind == meterKind:
		rec.Kind, rec.Whole = KindLimit, time.UnixMicro(int64(number(answer)))
	default:
		if rec.Value, err = decode(answer); err != nil {
			return rec, u.fail(fmt.Errorf("%s: %w", key, err))
		}
		rec.Kind = KindValue
	}
	return rec, nil
}

var unescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

func (r *Redis) dumpLog(ctx context.Context, log string, see func(Record) error) error {
	span, err := r.Span(ctx, log)
	if err != nil {
		return err
	}
	var entries []Entry
	for next := uint64(0); next <= span.Last; {
		if entries, err = r.Read(ctx, log, max(next, 1)-1, scanAtOnce); err != nil {
			return err
		}
		if next == 0 { // it may have been trimmed since
			if span.First = span.Last + 1; len(entries) > 0 {
				span.First = min(span.First, entries[0].Seq)
			}
			next = span.First
			if err := see(Record{Kind: KindLog, Name: log, Span: span}); err != nil {
				return err
			}
		}
		for _, e := range entries {
			if e.Seq > span.Last {
				break
			}
			if e.Seq != next {
				return fmt.Errorf("%w: redis: log %s has no entry %d: it was trimmed meanwhile, or is damaged", ErrUnavailable, log, next)
			}
			if err := see(Record{Kind: KindEntry, Name: log, Entry: e}); err != nil {
				return err
			}
			next++
		}
		if len(entries) == 0 && next <= span.Last {
			return fmt.Errorf("%w: redis: log %s has no entry %d: it was trimmed meanwhile, or is damaged", ErrUnavailable, log, next)
		}
	}
	return nil
}

// scan gives see the keys of one kind, some at a time. Redis may give one twice, and so
// does scan only where that is in another part.
func (r *Redis) scan(ctx context.Context, kind string, see func(keys []string) error) error {
	one := func(ctx context.Context, c *redis.Client) error {
		var cursor uint64
		for {
			u, err := r.begin(ctx, 0)
			if err != nil {
				return err
			}
			keys, next, err := c.Scan(u.ctx, cursor, glob.Replace(r.prefix)+":{*", scanAtOnce).Result()
			if err != nil {
				err = u.fail(err)
			}
			u.end()
			if err != nil {
				return err
			}
			keys = slices.DeleteFunc(keys, func(k string) bool {
				_, rest, _ := strings.Cut(k, "}")
				return !strings.HasPrefix(rest, kind) || r.isOwn(k)
			})
			slices.Sort(keys)
			if err := see(slices.Compact(keys)); err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		var masters []*redis.Client
		if err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			masters = append(masters, m)
			return nil
		}); err != nil {
			return fmt.Errorf("%w: redis: %w", ErrUnavailable, err)
		}
		for _, m := range masters {
			if err := one(ctx, m); err != nil {
				return err
			}
		}
		return nil
	case *redis.Client:
		return one(ctx, c)
	default:
		return fmt.Errorf("a client of another kind: %T", c)
	}
}

// glob makes a pattern of what is none.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Load implements Store. Redis does nothing of this as a whole: who kills it leaves
// part of it behind, and nobody else may use the store meanwhile.
func (r *Redis) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	if err := r.scan(ctx, "", func(keys []string) error {
		for _, key := range keys {
			if !strings.HasSuffix(key, "}"+indexKind) { // which may outlast what it names
				return errNotEmpty
			}
		}
		return nil
	}); err != nil {
		return err
	}
	err := r.load(ctx, records)
	if err != nil {
		err = errors.Join(err, r.scan(context.WithoutCancel(ctx), "", func(keys []string) error {
			for _, key := range keys {
				if err := r.client.Del(context.WithoutCancel(ctx), key).Err(); err != nil {
					return fmt.Errorf("%w: redis: part of what was imported is left: %w", ErrUnavailable, err)
				}
			}
			return nil
		}))
	}
	return err
}

func (r *Redis) load(ctx context.Context, records iter.Seq2[Record, error]) error {
	mark := string(newVersion().bytes())
	pipe := r.client.Pipeline()
	size := 0
	flush := func() error {
		u, err := r.begin(ctx, size)
		if err != nil {
			return err
		}
		defer u.end()
		size = 0
		if _, err := pipe.Exec(u.ctx); err != nil {
			return u.fail(err)
		}
		return nil
	}
	for rec, err := range records {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		switch rec.Kind {
		case KindValue:
			v, key := rec.Value, r.key(rec.Group, valueKind+rec.Name)
			if ms := v.Expires.UnixMilli(); v.Expires.IsZero() {
				pipe.Do(ctx, "set", key, append(append(v.Version.bytes(), make([]byte, 8)...), v.Data...))
				pipe.Do(ctx, "zadd", r.key(rec.Group, indexKind), "+inf", rec.Name)
			} else {
				pipe.Do(ctx, "set", key, append(append(v.Version.bytes(), Version(ms).bytes()...), v.Data...), "pxat", ms)
				pipe.Do(ctx, "zadd", r.key(rec.Group, indexKind), ms, rec.Name)
			}
			size += len(v.Data)
		case KindLimit:
			whole := rec.Whole.UnixMicro()
			pipe.Do(ctx, "set", r.key(rec.Group, meterKind+rec.Name), whole, "pxat", whole/1000+1)
		case KindLog: // its last number without any entry
			key := r.key(rec.Name, logKind)
			pipe.Do(ctx, "sadd", r.prefix+":"+own+"logs", rec.Name)
			if rec.Span.First > rec.Span.Last {
				pipe.Do(ctx, "xadd", key, strconv.FormatUint(rec.Span.Last, 10)+"-0", mark, "")
				pipe.Do(ctx, "xtrim", key, "maxlen", "=", 0)
			}
		case KindEntry:
			pipe.Do(ctx, "xadd", r.key(rec.Name, logKind), strconv.FormatUint(rec.Entry.Seq, 10)+"-0", mark, rec.Entry.Data)
			size += len(rec.Entry.Data)
		}
		if pipe.Len() >= scanAtOnce || size >= maxBatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
