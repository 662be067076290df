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

// scanBatch is how many keys Redis looks at before it serves other clients.
const scanBatch = 1000

// Check implements Store. It reads everything.
func (r *Redis) Check(ctx context.Context) error {
	return r.Dump(ctx, func(Record) error { return nil })
}

// Dump implements Store. An item that changes while Dump runs is given in its old or its new state.
func (r *Redis) Dump(ctx context.Context, see func(Record) error) error {
	if err := dumpHashes(ctx, r, see); err != nil {
		return err
	}
	for _, kind := range []string{valueKind, meterKind} {
		if err := r.scanKeys(ctx, kind, func(keys []string) error {
			for _, key := range keys {
				rec, err := r.readRecord(ctx, key, kind)
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

// readRecord returns the value or the limit of the key; the zero Record's Kind if there is none.
func (r *Redis) readRecord(ctx context.Context, key, kind string) (Record, error) {
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return Record{}, err
	}
	defer u.endCall()
	answer, err := u.sendRead(key, "get", key)
	if err != nil {
		return Record{}, u.wrapError(err)
	}
	group, name, _ := strings.Cut(strings.TrimPrefix(key, string(r.keys)+":{"), "}"+kind)
	rec := Record{Group: keyUnescaper.Replace(group), Name: name}
	switch {
	case answer == nil:
	case kind == meterKind:
		rec.Kind, rec.FullAt = KindLimit, time.UnixMicro(int64(answerNumber(answer)))
	default:
		if rec.Value, err = decodeValue(answer); err != nil {
			return rec, u.wrapError(fmt.Errorf("%s: %w", key, err))
		}
		rec.Kind = KindValue
	}
	return rec, nil
}

var keyUnescaper = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

func (r *Redis) dumpLog(ctx context.Context, log string, see func(Record) error) error {
	span, err := r.Span(ctx, log)
	if err != nil {
		return err
	}
	var entries []Entry
	for next := uint64(0); next <= span.Last; {
		if entries, err = r.Read(ctx, log, max(next, 1)-1, scanBatch); err != nil {
			return err
		}
		if next == 0 { // the log may have been trimmed since we read its span
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
				return fmt.Errorf("%w: redis: log %s has no entry %d: it was trimmed just now, or the log is damaged", ErrUnavailable, log, next)
			}
			if err := see(Record{Kind: KindEntry, Name: log, Entry: e}); err != nil {
				return err
			}
			next++
		}
		if len(entries) == 0 && next <= span.Last {
			return fmt.Errorf("%w: redis: log %s has no entry %d: it was trimmed just now, or the log is damaged", ErrUnavailable, log, next)
		}
	}
	return nil
}

// scanKeys calls see with the keys of one kind, some at a time. Redis may return a key twice, and scanKeys
// then gives it twice if it is in two parts.
func (r *Redis) scanKeys(ctx context.Context, kind string, see func(keys []string) error) error {
	one := func(ctx context.Context, c *redis.Client) error {
		var cursor uint64
		for {
			u, err := r.beginCall(ctx, 0)
			if err != nil {
				return err
			}
			keys, next, err := c.Scan(u.ctx, cursor, globEscaper.Replace(string(r.keys))+":{*", scanBatch).Result()
			if err != nil {
				err = u.wrapError(err)
			}
			u.endCall()
			if err != nil {
				return err
			}
			keys = slices.DeleteFunc(keys, func(k string) bool {
				_, rest, _ := strings.Cut(k, "}")
				return !strings.HasPrefix(rest, kind) || r.keys.isOwn(k)
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
			r.monitor.mu.Lock()
			defer r.monitor.mu.Unlock()
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
		return fmt.Errorf("an unexpected kind of client: %T", c)
	}
}

// globEscaper escapes text in a pattern.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// Load implements Store. In Redis it is not atomic: if it is killed, a part of the records stays, and no
// other process may use the store while it runs.
func (r *Redis) Load(ctx context.Context, records iter.Seq2[Record, error]) error {
	if err := r.scanKeys(ctx, "", func(keys []string) error {
		for _, key := range keys {
			if !strings.HasSuffix(key, "}"+indexKind) { // an index can outlast its values
				return errNotEmpty
			}
		}
		return nil
	}); err != nil {
		return err
	}
	err := r.loadRecords(ctx, records)
	if err != nil {
		err = errors.Join(err, r.scanKeys(context.WithoutCancel(ctx), "", func(keys []string) error {
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

func (r *Redis) loadRecords(ctx context.Context, records iter.Seq2[Record, error]) error {
	mark := string(newVersion().bytes())
	pipe := r.client.Pipeline()
	size := 0
	ends := map[string]int64{} // by group: the last end of its accounts and holds
	addEnd := func(group, member string, end int64) {
		ends[group] = max(ends[group], end)
		pipe.Do(ctx, "zadd", r.keys.item(group, endKind), formatEnd(end), member)
	}
	flush := func() error {
		u, err := r.beginCall(ctx, size)
		if err != nil {
			return err
		}
		defer u.endCall()
		size = 0
		if _, err := pipe.Exec(u.ctx); err != nil {
			return u.wrapError(err)
		}
		return nil
	}
	for rec, err := range records {
		if err := cmp.Or(ctx.Err(), err); err != nil {
			return err
		}
		switch rec.Kind {
		case KindValue:
			v, key := rec.Value, r.keys.item(rec.Group, valueKind+rec.Name)
			if ms := v.Expires.UnixMilli(); v.Expires.IsZero() {
				pipe.Do(ctx, "set", key, append(append(v.Version.bytes(), make([]byte, 8)...), v.Data...))
				pipe.Do(ctx, "zadd", r.keys.item(rec.Group, indexKind), "+inf", rec.Name)
			} else {
				pipe.Do(ctx, "set", key, append(append(v.Version.bytes(), Version(ms).bytes()...), v.Data...), "pxat", ms)
				pipe.Do(ctx, "zadd", r.keys.item(rec.Group, indexKind), ms, rec.Name)
			}
			size += len(v.Data)
		case KindLimit:
			whole := rec.FullAt.UnixMicro()
			pipe.Do(ctx, "set", r.keys.item(rec.Group, meterKind+rec.Name), whole, "pxat", whole/1000+1)
		case KindAccount:
			a := newAccountState(rec.Account)
			pipe.Do(ctx, "hset", r.keys.item(rec.Group, accountKind), rec.Name, encodeAccount(a))
			addEnd(rec.Group, "a"+rec.Name, a.ends)
		case KindHold:
			pipe.Do(ctx, "hset", r.keys.item(rec.Group, holdKind), rec.Name, encodeHold(rec.Hold))
			addEnd(rec.Group, "h"+rec.Name, rec.Hold.Expires.UnixMicro())
		case KindLog: // an empty log keeps only its last number
			key := r.keys.item(rec.Name, logKind)
			pipe.Do(ctx, "sadd", r.keys.own("logs"), rec.Name)
			if rec.Span.First > rec.Span.Last {
				pipe.Do(ctx, "xadd", key, strconv.FormatUint(rec.Span.Last, 10)+"-0", mark, "")
				pipe.Do(ctx, "xtrim", key, "maxlen", "=", 0)
			}
		case KindEntry:
			pipe.Do(ctx, "xadd", r.keys.item(rec.Name, logKind), strconv.FormatUint(rec.Entry.Seq, 10)+"-0", mark, rec.Entry.Data)
			size += len(rec.Entry.Data)
		}
		if pipe.Len() >= scanBatch || size >= maxBatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	for group, end := range ends {
		if end == endsNever {
			continue
		}
		for _, key := range r.keys.ledger(group) {
			pipe.Do(ctx, "pexpireat", key, end/1000+1)
		}
		if pipe.Len() >= scanBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}
