package store

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Redis is a Store in Redis 7: one server, one behind Sentinels, or a Cluster. Use OpenRedis.
//
// Everything of one group is in one slot of a Cluster: its values, their index and its limits. So is
// everything of one log. Each operation that must be atomic is one script, on the clock of Redis. No command
// that changes anything is sent twice: if it is unknown whether a command was executed, the call reads the
// result until it knows, or until the call's time is over.
type Redis struct {
	*redisClient
	marks   *redisMarks
	monitor *redisMonitor
	notices *redisNotices

	closing sync.RWMutex // each call holds it for reading, so that Close waits for the calls
	closed  bool
}

// RedisOptions are the options of OpenRedis. The zero value is good for a Redis without a password.
type RedisOptions struct {
	// Password replaces the password of the URL.
	Password switchboard.Secret

	// Prefix begins all keys; "switchboard" if it is empty. Installations that share a Redis need different
	// prefixes.
	Prefix string

	// Relaxed accepts a Redis that may lose what it has acknowledged. Status says how much that is.
	Relaxed bool

	// Log gets a line when the store becomes unavailable, and when it is available again; nil means no log.
	Log *slog.Logger

	// TLS is for the rediss schemes; nil means the root certificates of the system.
	TLS *tls.Config

	// callTimeout is how long a call may take; 0 means a second.
	callTimeout time.Duration
}

const (
	defaultCallTimeout = time.Second            // how long a call may take, outside of tests; a connection may take half of it
	timePerByte        = time.Second / MaxValue // added to the timeout for each byte that is sent
	openTimeout        = 5 * time.Second        // how long OpenRedis tries, if the context does not end before
	maxAnswerBytes     = MaxValue               // bytes of one answer that we ask for, if a single value is not larger
	maxIdleConns       = 64                     // idle connections for each node
)

// OpenRedis opens the store in the Redis of the URL, which docs/state.md describes. It tries for some
// seconds, since Redis may just be starting. Its error says what is wrong with the URL, the server or its
// settings, and never contains the password.
func OpenRedis(ctx context.Context, url string, o RedisOptions) (*Redis, error) {
	r, err := newRedis(url, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := r.awaitUsable(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("redis at %s: %w", r.url, err)
	}
	r.backgroundWork.Go(r.monitor.examinePeriodically)
	return r, nil
}

// newRedis returns a Redis that has not sent anything yet.
func newRedis(url string, o RedisOptions) (*Redis, error) {
	where, err := parseRedisURL(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("redis: the prefix %q has braces", o.Prefix)
	}
	silenceClientLog()
	o.callTimeout = cmp.Or(o.callTimeout, defaultCallTimeout)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &redisClient{
		log:         o.Log,
		keys:        redisKeys(cmp.Or(o.Prefix, "switchboard")),
		url:         where,
		relaxed:     o.Relaxed,
		callTimeout: o.callTimeout,
	}
	c.background, c.stopBackground = context.WithCancel(context.Background())
	r := &Redis{redisClient: c, marks: &redisMarks{redisClient: c}}
	r.marks.losses.init(c.keys.marks(where.isMode("cluster")))
	r.monitor = &redisMonitor{redisClient: c, marks: r.marks, nodes: map[string]*redisNode{}}
	r.notices = &redisNotices{redisClient: c, monitor: r.monitor}
	c.client = where.client(&o, r.monitor.checkConnection)
	return r, nil
}

// awaitUsable tries until r can be used.
func (r *Redis) awaitUsable(ctx context.Context) error {
	for why := error(nil); ; {
		err := r.monitor.examineAll(ctx)
		if err == nil {
			err = r.migrateSchema(ctx)
		}
		if err == nil {
			err = r.marks.adoptMark(ctx)
		}
		if err == nil {
			return r.notices.startListening(ctx)
		}
		if isFinal(err) {
			return err
		}
		if why == nil || ctx.Err() == nil { // a later error may only say that the time is over
			why = err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%w: %w", ErrUnavailable, why)
		}
	}
}

// sleep waits for d; it returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// A redisCall is one call of a method of Redis.
type redisCall struct {
	*Redis
	ctx           context.Context // ends at the call's timeout
	callerContext context.Context // the caller's own; its error is returned if it ends
	cancel        context.CancelFunc
}

// beginCall begins a call that sends so many bytes. The caller calls endCall.
func (r *Redis) beginCall(ctx context.Context, bytes int) (*redisCall, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.closing.RLock()
	if r.closed {
		r.closing.RUnlock()
		return nil, fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	u := &redisCall{Redis: r, callerContext: ctx}
	u.ctx, u.cancel = context.WithTimeout(ctx, r.callTimeout+time.Duration(bytes)*timePerByte)
	return u, nil
}

func (u *redisCall) endCall() {
	u.cancel()
	u.closing.RUnlock()
}

// wrapError returns the error for the caller.
func (u *redisCall) wrapError(err error) error {
	if ended := u.callerContext.Err(); ended != nil {
		return ended
	}
	return fmt.Errorf("%w: redis: %s", ErrUnavailable, err.Error())
}

// An unrepeatedCommand is a command that the client library never sends again by itself.
type unrepeatedCommand struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (unrepeatedCommand) NoRetry() bool { return true }

// send sends one command, once, and returns its answer; nil for an empty answer.
func (u *redisCall) send(key string, keyAt int8, args ...any) (any, error) {
	n, err := u.monitor.nodeForKey(u.ctx, key)
	if err != nil {
		return nil, err
	}
	if err := n.shutError(); err != nil {
		return nil, err
	}
	cmd := unrepeatedCommand{redis.NewCmd(u.ctx, args...)}
	cmd.SetFirstKeyPos(keyAt)
	err = u.client.Process(u.ctx, cmd)
	switch {
	case err == nil:
		return cmd.Val(), nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case u.callerContext.Err() == nil && !redis.HasErrorPrefix(err, "NOSCRIPT") && !redis.HasErrorPrefix(err, "TRYAGAIN"):
		u.monitor.probeUntilWell(n, key)
	}
	return nil, err
}

// sendRead sends a command that changes nothing, and sends it again if the connection was lost.
func (u *redisCall) sendRead(key string, args ...any) (any, error) {
	answer, err := u.send(key, 1, args...)
	if u.isUncertain(err) {
		answer, err = u.send(key, 1, args...)
	}
	return answer, err
}

// isUncertain reports whether err leaves open whether the command was executed, while there is time to find
// out.
func (u *redisCall) isUncertain(err error) bool {
	var said redis.Error
	var op *net.OpError
	switch {
	case err == nil, u.ctx.Err() != nil, errors.As(err, &said), errors.Is(err, errNodeShut):
		return false
	default:
		return !errors.As(err, &op) || op.Op != "dial"
	}
}

// awaitEvidence calls done until it knows whether a lost command was executed. A command that was not
// executed may still be on its way.
func (u *redisCall) awaitEvidence(done func() (bool, error)) bool {
	for {
		ok, err := done()
		if err == nil {
			return ok
		}
		if !sleep(u.ctx, 50*time.Millisecond) {
			return false
		}
	}
}

// A luaScript is sent by its digest, and as text if Redis does not know it.
type luaScript struct{ text, digest string }

func newScript(text string) *luaScript { return &luaScript{text, redis.NewScript(text).Hash()} }

//go:embed lua/apply.lua
var applyText string

//go:embed lua/take.lua
var takeText string

//go:embed lua/append.lua
var appendText string

//go:embed lua/read.lua
var readText string

//go:embed lua/span.lua
var spanText string

//go:embed lua/list.lua
var listText string

//go:embed lua/values.lua
var valuesText string

var (
	applyScript  = newScript(applyText)
	takeScript   = newScript(takeText)
	appendScript = newScript(appendText)
	readScript   = newScript(readText)
	spanScript   = newScript(spanText)
	listScript   = newScript(listText)
	valuesScript = newScript(valuesText)
)

// runScript runs the script once.
func (u *redisCall) runScript(s *luaScript, keys []string, args ...any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	for {
		answer, err := u.send(keys[0], 3, all...)
		switch { // after either error, nothing was executed
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			all[0], all[1] = "eval", s.text
		case redis.HasErrorPrefix(err, "TRYAGAIN") && sleep(u.ctx, 20*time.Millisecond): // the slot is moving
		default:
			return answer, err
		}
	}
}

// runRepeatable runs a script that changes nothing or is effective once. It runs it again if the connection was lost.
func (u *redisCall) runRepeatable(s *luaScript, keys []string, args ...any) ([]any, error) {
	answer, err := u.runScript(s, keys, args...)
	if u.isUncertain(err) {
		answer, err = u.runScript(s, keys, args...)
	}
	list, _ := answer.([]any)
	return list, err
}

// answerText returns the answer as text; "" if it is none.
func answerText(answer any) string {
	s, _ := answer.(string)
	return s
}

// answerNumber returns the answer as a number; 0 if it is none.
func answerNumber(answer any) uint64 {
	n, _ := strconv.ParseUint(answerText(answer), 10, 64)
	return n
}

// decodeValue decodes a value as apply.lua writes it.
func decodeValue(answer any) (Value, error) {
	if answer == nil {
		return Value{}, nil
	}
	s := answerText(answer)
	if len(s) < 16 {
		return Value{}, errors.New("the key holds something that is not a value")
	}
	v := Value{Version: Version(binary.BigEndian.Uint64([]byte(s[:8]))), Data: []byte(s[16:])}
	if ms := binary.BigEndian.Uint64([]byte(s[8:16])); ms != 0 {
		v.Expires = time.UnixMilli(int64(ms))
	}
	return v, nil
}

// Value implements Store.
func (r *Redis) Value(ctx context.Context, k Key) (Value, error) {
	if err := k.check(); err != nil {
		return Value{}, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return Value{}, err
	}
	defer u.endCall()
	key := r.keys.item(k.Group, valueKind+k.Name)
	answer, err := u.sendRead(key, "get", key)
	if err != nil {
		return Value{}, u.wrapError(err)
	}
	v, err := decodeValue(answer)
	if err != nil {
		return Value{}, u.wrapError(err)
	}
	return v, nil
}

// List implements Store.
func (r *Redis) List(ctx context.Context, group string) ([]NamedValue, error) {
	if err := checkName("a group", group); err != nil {
		return nil, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	index, values := []string{r.keys.item(group, indexKind)}, r.keys.item(group, valueKind)
	answer, err := u.runRepeatable(listScript, index, values, MaxEntries, maxAnswerBytes)
	if err == nil && answer == nil {
		answer, err = u.listInParts(index, values)
	}
	if err != nil {
		return nil, u.wrapError(err)
	}
	var all []NamedValue
	for i := 0; i+1 < len(answer); i += 2 {
		v, err := decodeValue(answer[i+1])
		if err != nil {
			return nil, u.wrapError(err)
		}
		if v.Version != 0 {
			all = append(all, NamedValue{answerText(answer[i]), v})
		}
	}
	slices.SortFunc(all, func(a, b NamedValue) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// listInParts returns the first values by name, for a group that is too large for one answer. The values are
// then not of one instant.
func (u *redisCall) listInParts(index []string, values string) (list []any, err error) {
	seen := map[string]bool{}
	for cursor := "0"; ; {
		answer, err := u.sendRead(index[0], "zscan", index[0], cursor, "count", MaxEntries)
		if err != nil {
			return nil, err
		}
		page, _ := answer.([]any)
		if len(page) != 2 {
			return nil, errors.New("the answer to zscan is malformed")
		}
		some, _ := page[1].([]any)
		for i := 0; i < len(some); i += 2 { // names and scores by turns
			seen[answerText(some[i])] = true
		}
		if cursor = answerText(page[0]); cursor == "0" {
			break
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for len(names) > 0 && len(list) < 2*MaxEntries {
		args := []any{values, maxAnswerBytes}
		for _, name := range names[:min(len(names), MaxEntries)] {
			args = append(args, name)
		}
		some, err := u.runRepeatable(valuesScript, index, args...)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			return nil, errors.New("the answer to a list of names is empty")
		}
		for i, v := range some {
			if v != nil && len(list) < 2*MaxEntries {
				list = append(list, names[i], v)
			}
		}
		names = names[len(some):]
		u.extendTimeout()
	}
	return list, nil
}

// extendTimeout restarts the timeout of a call that continues after an answer.
func (u *redisCall) extendTimeout() {
	u.cancel()
	u.ctx, u.cancel = context.WithTimeout(u.callerContext, u.callTimeout)
}

// Apply implements Store.
func (r *Redis) Apply(ctx context.Context, c Change) (Version, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	version := newVersion()
	keys := []string{r.keys.item(c.Group, indexKind)}
	args := []any{version.bytes()}
	var bytes int
	var written string // a key that will have the version
	for _, w := range c.Writes {
		key := r.keys.item(c.Group, valueKind+w.Name)
		was, keep := w.Was.bytes(), "-"
		if w.Was == Any {
			was = nil
		}
		if w.Data != nil {
			keep = strconv.FormatInt(int64((w.TTL+time.Millisecond-1)/time.Millisecond), 10)
			written = key
		}
		keys = append(keys, key)
		args = append(args, w.Name, was, keep, w.Data)
		bytes += len(w.Data)
	}
	u, err := r.beginCall(ctx, bytes)
	if err != nil {
		return 0, err
	}
	defer u.endCall()
	answer, err := u.runScript(applyScript, keys, args...)
	if u.isUncertain(err) && written != "" && u.awaitEvidence(func() (bool, error) {
		is, err := u.send(written, 1, "getrange", written, 0, 7)
		return answerText(is) == string(version.bytes()), err
	}) {
		return version, nil
	}
	if err != nil {
		return 0, u.wrapError(err)
	}
	if i, _ := answer.(int64); i > 0 {
		return 0, fmt.Errorf("%s/%s: %w", c.Group, c.Writes[i-1].Name, ErrConflict)
	}
	if err := u.checkMark(keys[0]); err != nil {
		return 0, u.wrapError(err)
	}
	return version, nil
}

// Take implements Store.
func (r *Redis) Take(ctx context.Context, group string, want Want, limits ...Limit) (got int, wait time.Duration, err error) {
	if err := checkTake(group, want, limits); err != nil {
		return 0, 0, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	defer u.endCall()
	if len(limits) == 0 {
		return want.Now, 0, nil
	}
	var keys []string
	args := []any{want.Now, want.Ahead, want.Hold.Microseconds()}
	for _, l := range limits {
		every, all := l.microseconds()
		keys = append(keys, r.keys.item(group, meterKind+l.Name))
		args = append(args, every, all)
	}
	answer, err := u.runScript(takeScript, keys, args...)
	if err != nil {
		return 0, 0, u.wrapError(err)
	}
	var n, us int64
	if list, _ := answer.([]any); len(list) == 2 {
		n, _ = list[0].(int64)
		us, _ = list[1].(int64)
	}
	if (n < int64(want.Now)) != (us > 0) {
		return 0, 0, u.wrapError(fmt.Errorf("the answer of the script for limits is malformed: %v", answer))
	}
	return int(n), time.Duration(us) * time.Microsecond, nil
}

// Append implements Store.
func (r *Redis) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if err := checkAppend(log, entries); err != nil {
		return err
	}
	key, mark := r.keys.item(log, logKind), newVersion().bytes()
	args := []any{strconv.FormatUint(after, 10), mark}
	var bytes int
	for _, e := range entries {
		args = append(args, e)
		bytes += len(e)
	}
	u, err := r.beginCall(ctx, bytes)
	if err != nil {
		return err
	}
	defer u.endCall()
	if err := u.checkLogEnd(key, log, after); err != nil { // the log was longer before
		return u.wrapError(err)
	}
	if after == 0 { // the list of logs is in another slot, so it is written first; Logs leaves out missing logs
		if _, err := u.sendRead(r.keys.own("logs"), "sadd", r.keys.own("logs"), log); err != nil {
			return u.wrapError(err)
		}
	}
	answer, err := u.runScript(appendScript, []string{key}, args...)
	if u.isUncertain(err) && u.awaitEvidence(func() (bool, error) {
		first := strconv.FormatUint(after+1, 10) + "-0"
		is, err := u.send(key, 1, "xrange", key, first, first)
		return strings.Contains(fmt.Sprint(is), string(mark)), err
	}) {
		answer, err = "", nil
	}
	if err != nil {
		return u.wrapError(err)
	}
	last := answerText(answer)
	if last == "" {
		r.marks.losses.recordLogEnd(log, after+uint64(len(entries)))
		return nil
	}
	if err := u.checkLogEnd(key, log, answerNumber(last)); err != nil {
		return u.wrapError(err)
	}
	return fmt.Errorf("log %s ends with %s, not %d: %w", log, last, after, ErrConflict)
}

// Read implements Store.
func (r *Redis) Read(ctx context.Context, log string, after uint64, limit int) ([]Entry, error) {
	if err := checkName("a log", log); err != nil {
		return nil, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	limit = min(limit, MaxEntries)
	var all []Entry
	for len(all) < limit {
		answer, err := u.runRepeatable(readScript, []string{r.keys.item(log, logKind)}, strconv.FormatUint(after, 10), limit-len(all), maxAnswerBytes)
		if err != nil {
			return nil, u.wrapError(err)
		}
		if len(answer) == 0 {
			break
		}
		for i := 0; i+1 < len(answer); i += 2 {
			after = answerNumber(answer[i])
			all = append(all, Entry{after, []byte(answerText(answer[i+1]))})
		}
		u.extendTimeout()
	}
	return all, nil
}

// Span implements Store.
func (r *Redis) Span(ctx context.Context, log string) (Span, error) {
	if err := checkName("a log", log); err != nil {
		return Span{}, err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return Span{}, err
	}
	defer u.endCall()
	answer, err := u.runRepeatable(spanScript, []string{r.keys.item(log, logKind)})
	if err != nil {
		return Span{}, u.wrapError(err)
	}
	if len(answer) != 2 {
		return Span{}, u.wrapError(errors.New("the answer of the script for spans is malformed"))
	}
	s := Span{answerNumber(answer[0]), answerNumber(answer[1])}
	if answerText(answer[0]) == "" {
		s.First = s.Last + 1
	}
	return s, nil
}

// Logs implements Store.
func (r *Redis) Logs(ctx context.Context) ([]string, error) {
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.endCall()
	key := r.keys.own("logs")
	answer, err := u.sendRead(key, "smembers", key)
	if err != nil {
		return nil, u.wrapError(err)
	}
	var names []string
	all, _ := answer.([]any)
	for _, name := range all {
		log := r.keys.item(answerText(name), logKind)
		there, err := u.sendRead(log, "exists", log)
		if err != nil {
			return nil, u.wrapError(err)
		}
		if there == int64(1) {
			names = append(names, answerText(name))
		}
		u.extendTimeout()
	}
	slices.Sort(names)
	return names, nil
}

// Trim implements Store.
func (r *Redis) Trim(ctx context.Context, log string, first uint64) error {
	if err := checkName("a log", log); err != nil {
		return err
	}
	u, err := r.beginCall(ctx, 0)
	if err != nil {
		return err
	}
	defer u.endCall()
	key := r.keys.item(log, logKind)
	if _, err := u.sendRead(key, "xtrim", key, "minid", "=", strconv.FormatUint(first, 10)+"-0"); err != nil { // it may be sent twice
		return u.wrapError(err)
	}
	return nil
}

// Status implements Store.
func (r *Redis) Status() Status {
	s := Status{Kind: "redis", Where: r.url.String(), ID: r.marks.losses.storeID()}
	var worst survival
	var left tornTransaction
	r.monitor.mu.Lock()
	defer r.monitor.mu.Unlock()
	since := time.Unix(math.MaxInt32, 0)
	for _, n := range r.monitor.nodes {
		worst = max(worst, survival(n.survives.Load()))
		left = max(left, tornTransaction(n.torn.Load()))
		f := n.fault.Load()
		if f == nil {
			continue
		}
		if refused, ok := errors.AsType[*refusal](f.err); ok && refused.lost {
			s.Lost = true
		}
		if f.since.Before(since) {
			since = f.since
			s.Fault, s.Since = f.err.Error(), f.since
		}
	}
	s.Survives = worst.String() + left.String()
	return s
}

// Close implements Store.
func (r *Redis) Close() error {
	r.closing.Lock()
	was := r.closed
	r.closed = true
	r.closing.Unlock()
	if was {
		return nil
	}
	r.stopBackground()
	r.backgroundWork.Wait()
	r.notices.hub.close()
	return r.client.Close()
}
