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

// Redis is a Store in Redis 7: one server, one that Sentinels watch over, or a Cluster.
// Use OpenRedis.
//
// All that is of one group stands in one slot of a Cluster: its values, their index
// and its limits; so does all of one log. What must not come apart is done by one
// script, on the clock of Redis. No command that changes anything is sent twice: where
// it is not known whether one was done, it is looked up, for as long as the call has
// time.
type Redis struct {
	client  redis.UniversalClient
	prefix  string
	where   place
	relaxed bool
	useTime time.Duration
	notices hub
	log     *slog.Logger

	life   sync.RWMutex // held by each use, so that Close waits for it
	closed bool

	ended context.Context // by Close
	stop  context.CancelFunc
	work  sync.WaitGroup // what runs until then

	mu    sync.Mutex
	nodes map[string]*node // by address; the only one is ""

	memory memory
}

// RedisOptions says how a Redis is used. The zero value is good for one without a
// password.
type RedisOptions struct {
	// Password takes the place of the one in the URL.
	Password switchboard.Secret

	// Prefix is what all keys begin with, "switchboard" where it is empty. Those who
	// share a Redis and nothing else need one each.
	Prefix string

	// Relaxed accepts a Redis that may lose what it has acknowledged. How much that
	// is, Status says.
	Relaxed bool

	// Log is told when the store becomes unavailable, and available again; nil means nobody is.
	Log *slog.Logger

	// TLS is for the rediss schemes; nil means the roots of the system.
	TLS *tls.Config

	// useTime is how long a use may take; 0 means a second.
	useTime time.Duration
}

const (
	useTime    = time.Second            // how long a use may take, where no test says otherwise; a connection may take half of it
	byteTime   = time.Second / MaxValue // more for each byte that is sent
	openTime   = 5 * time.Second        // how long OpenRedis tries, where the context does not end before
	maxAnswer  = MaxValue               // bytes that Redis is asked for at once, where one value is not more
	idleAtMost = 64                     // connections for each node that wait for use
)

// OpenRedis opens the store in the Redis of the URL, which docs/state.md spells. It
// tries for some seconds, since that may be about to start. Its error says what is
// wrong with the URL, the server or its settings, and never holds the password.
func OpenRedis(ctx context.Context, url string, o RedisOptions) (*Redis, error) {
	r, err := newRedis(url, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if err := r.start(ctx); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("redis at %s: %w", r.where, err)
	}
	r.work.Go(r.follow)
	return r, nil
}

// newRedis makes one that has not asked for anything yet.
func newRedis(url string, o RedisOptions) (*Redis, error) {
	where, err := parsePlace(url)
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return nil, fmt.Errorf("redis: the prefix %q has braces", o.Prefix)
	}
	silence()
	o.useTime = cmp.Or(o.useTime, useTime)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Redis{
		log:     o.Log,
		prefix:  cmp.Or(o.Prefix, "switchboard"),
		where:   where,
		relaxed: o.Relaxed,
		useTime: o.useTime,
		nodes:   map[string]*node{},
	}
	r.memory.begin(r.markKeys())
	r.client = where.client(&o, r.greet)
	r.ended, r.stop = context.WithCancel(context.Background())
	return r, nil
}

// start tries until r can be used.
func (r *Redis) start(ctx context.Context) error {
	for why := error(nil); ; {
		err := r.examineAll(ctx)
		if err == nil {
			err = r.migrate(ctx)
		}
		if err == nil {
			err = r.findMark(ctx)
		}
		if err == nil {
			return r.listen(ctx)
		}
		if isFinal(err) {
			return err
		}
		if why == nil || ctx.Err() == nil { // else it says no more than that the time is over
			why = err
		}
		if !pause(ctx, 100*time.Millisecond) {
			return fmt.Errorf("%w: %w", ErrUnavailable, why)
		}
	}
}

// pause waits for a while, unless ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// The hash tag of a group and that of a log is its name. What has no such name stands
// under one that no name is escaped to.
const own = "{%}"

var escaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// key gives the key of what is of the group: what is in its braces has none itself, so
// the first closing one ends the group.
func (r *Redis) key(group, kind string) string {
	return r.prefix + ":{" + escaper.Replace(group) + "}" + kind
}

const (
	indexKind = "i"
	logKind   = "l"
	valueKind = "v:"
	meterKind = "m:"
)

// A use is one call of a method.
type use struct {
	*Redis
	ctx    context.Context // ends when its time is over
	asked  context.Context // whose error is that of who asked
	cancel context.CancelFunc
}

// begin begins a use that sends so many bytes.
func (r *Redis) begin(ctx context.Context, bytes int) (*use, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.life.RLock()
	if r.closed {
		r.life.RUnlock()
		return nil, fmt.Errorf("%w: it is closed", ErrUnavailable)
	}
	u := &use{Redis: r, asked: ctx}
	u.ctx, u.cancel = context.WithTimeout(ctx, r.useTime+time.Duration(bytes)*byteTime)
	return u, nil
}

func (u *use) end() {
	u.cancel()
	u.life.RUnlock()
}

// fail is the error that who asked gets for err.
func (u *use) fail(err error) error {
	if ended := u.asked.Err(); ended != nil {
		return ended
	}
	return fmt.Errorf("%w: redis: %s", ErrUnavailable, err.Error())
}

// A command is one that the client never sends again by itself.
type command struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (command) NoRetry() bool { return true }

// ask sends one command, once, and gives what it answers; nil where that is nothing.
func (u *use) ask(key string, keyAt int8, args ...any) (any, error) {
	n, err := u.node(u.ctx, key)
	if err != nil {
		return nil, err
	}
	if err := n.shut(); err != nil {
		return nil, err
	}
	cmd := command{redis.NewCmd(u.ctx, args...)}
	cmd.SetFirstKeyPos(keyAt)
	err = u.client.Process(u.ctx, cmd)
	switch {
	case err == nil:
		return cmd.Val(), nil
	case errors.Is(err, redis.Nil):
		return nil, nil
	case u.asked.Err() == nil && !redis.HasErrorPrefix(err, "NOSCRIPT") && !redis.HasErrorPrefix(err, "TRYAGAIN"):
		u.suspect(n, key)
	}
	return nil, err
}

// askAgain is ask for what changes nothing: where the connection was lost, it asks again.
func (u *use) askAgain(key string, args ...any) (any, error) {
	answer, err := u.ask(key, 1, args...)
	if u.isLost(err) {
		answer, err = u.ask(key, 1, args...)
	}
	return answer, err
}

// isLost reports whether err leaves open whether the command was done, and there is
// time to find out.
func (u *use) isLost(err error) bool {
	var said redis.Error
	var op *net.OpError
	switch {
	case err == nil, u.ctx.Err() != nil, errors.As(err, &said), errors.Is(err, errShut):
		return false
	default:
		return !errors.As(err, &op) || op.Op != "dial"
	}
}

// find looks until it knows whether what was lost was done. What was not may yet be: it
// can still be on its way.
func (u *use) find(done func() (bool, error)) bool {
	for {
		ok, err := done()
		if err == nil {
			return ok
		}
		if !pause(u.ctx, 50*time.Millisecond) {
			return false
		}
	}
}

// A script is sent by its digest; in full where Redis does not know it.
type script struct{ text, digest string }

func newScript(text string) *script { return &script{text, redis.NewScript(text).Hash()} }

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

// run runs the script once.
func (u *use) run(s *script, keys []string, args ...any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", s.digest, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	all = append(all, args...)
	for {
		answer, err := u.ask(keys[0], 3, all...)
		switch { // neither has done anything
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			all[0], all[1] = "eval", s.text
		case redis.HasErrorPrefix(err, "TRYAGAIN") && pause(u.ctx, 20*time.Millisecond): // the slot is moving
		default:
			return answer, err
		}
	}
}

// runAgain is run for what changes nothing.
func (u *use) runAgain(s *script, keys []string, args ...any) ([]any, error) {
	answer, err := u.run(s, keys, args...)
	if u.isLost(err) {
		answer, err = u.run(s, keys, args...)
	}
	list, _ := answer.([]any)
	return list, err
}

// text is an answer that is text.
func text(answer any) string {
	s, _ := answer.(string)
	return s
}

// number is an answer that is a number.
func number(answer any) uint64 {
	n, _ := strconv.ParseUint(text(answer), 10, 64)
	return n
}

// decode reads a value as apply.lua writes it.
func decode(answer any) (Value, error) {
	if answer == nil {
		return Value{}, nil
	}
	s := text(answer)
	if len(s) < 16 {
		return Value{}, errors.New("what stands there is not a value")
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
	u, err := r.begin(ctx, 0)
	if err != nil {
		return Value{}, err
	}
	defer u.end()
	key := r.key(k.Group, valueKind+k.Name)
	answer, err := u.askAgain(key, "get", key)
	if err != nil {
		return Value{}, u.fail(err)
	}
	v, err := decode(answer)
	if err != nil {
		return Value{}, u.fail(err)
	}
	return v, nil
}

// List implements Store.
func (r *Redis) List(ctx context.Context, group string) ([]Named, error) {
	if err := checkName("a group", group); err != nil {
		return nil, err
	}
	u, err := r.begin(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.end()
	index, values := []string{r.key(group, indexKind)}, r.key(group, valueKind)
	answer, err := u.runAgain(listScript, index, values, MaxEntries, maxAnswer)
	if err == nil && answer == nil {
		answer, err = u.listInParts(index, values)
	}
	if err != nil {
		return nil, u.fail(err)
	}
	var all []Named
	for i := 0; i+1 < len(answer); i += 2 {
		v, err := decode(answer[i+1])
		if err != nil {
			return nil, u.fail(err)
		}
		if v.Version != 0 {
			all = append(all, Named{text(answer[i]), v})
		}
	}
	slices.SortFunc(all, func(a, b Named) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// listInParts gives the first values by name, where they are not given in one answer.
// They are then not all of one moment.
func (u *use) listInParts(index []string, values string) (list []any, err error) {
	seen := map[string]bool{}
	for cursor := "0"; ; {
		answer, err := u.askAgain(index[0], "zscan", index[0], cursor, "count", MaxEntries)
		if err != nil {
			return nil, err
		}
		page, _ := answer.([]any)
		if len(page) != 2 {
			return nil, errors.New("an answer to zscan that is none")
		}
		some, _ := page[1].([]any)
		for i := 0; i < len(some); i += 2 { // each with its score
			seen[text(some[i])] = true
		}
		if cursor = text(page[0]); cursor == "0" {
			break
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	for len(names) > 0 && len(list) < 2*MaxEntries {
		args := []any{values, maxAnswer}
		for _, name := range names[:min(len(names), MaxEntries)] {
			args = append(args, name)
		}
		some, err := u.runAgain(valuesScript, index, args...)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			return nil, errors.New("no answer to a list of names")
		}
		for i, v := range some {
			if v != nil && len(list) < 2*MaxEntries {
				list = append(list, names[i], v)
			}
		}
		names = names[len(some):]
		u.more()
	}
	return list, nil
}

// more gives a use that goes on, since it got an answer, its time once more.
func (u *use) more() {
	u.cancel()
	u.ctx, u.cancel = context.WithTimeout(u.asked, u.useTime)
}

// Apply implements Store.
func (r *Redis) Apply(ctx context.Context, c Change) (Version, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	version := newVersion()
	keys := []string{r.key(c.Group, indexKind)}
	args := []any{version.bytes()}
	var bytes int
	var written string // one of the keys that have the version then
	for _, w := range c.Writes {
		key := r.key(c.Group, valueKind+w.Name)
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
	u, err := r.begin(ctx, bytes)
	if err != nil {
		return 0, err
	}
	defer u.end()
	answer, err := u.run(applyScript, keys, args...)
	if u.isLost(err) && written != "" && u.find(func() (bool, error) {
		is, err := u.ask(written, 1, "getrange", written, 0, 7)
		return text(is) == string(version.bytes()), err
	}) {
		return version, nil
	}
	if err != nil {
		return 0, u.fail(err)
	}
	if i, _ := answer.(int64); i > 0 {
		return 0, fmt.Errorf("%s/%s: %w", c.Group, c.Writes[i-1].Name, ErrConflict)
	}
	if err := u.checkMark(keys[0]); err != nil {
		return 0, u.fail(err)
	}
	return version, nil
}

// Take implements Store.
func (r *Redis) Take(ctx context.Context, group string, want Want, limits ...Limit) (got int, wait time.Duration, err error) {
	if err := checkTake(group, want, limits); err != nil {
		return 0, 0, err
	}
	u, err := r.begin(ctx, 0)
	if err != nil {
		return 0, 0, err
	}
	defer u.end()
	if len(limits) == 0 {
		return want.Now, 0, nil
	}
	var keys []string
	args := []any{want.Now, want.Ahead, want.Hold.Microseconds()}
	for _, l := range limits {
		every, all := l.micros()
		keys = append(keys, r.key(group, meterKind+l.Name))
		args = append(args, every, all)
	}
	answer, err := u.run(takeScript, keys, args...)
	if err != nil {
		return 0, 0, u.fail(err)
	}
	var n, us int64
	if list, _ := answer.([]any); len(list) == 2 {
		n, _ = list[0].(int64)
		us, _ = list[1].(int64)
	}
	if (n < int64(want.Now)) != (us > 0) {
		return 0, 0, u.fail(fmt.Errorf("%v is no answer to how many may be taken", answer))
	}
	return int(n), time.Duration(us) * time.Microsecond, nil
}

// Append implements Store.
func (r *Redis) Append(ctx context.Context, log string, after uint64, entries ...[]byte) error {
	if err := checkAppend(log, entries); err != nil {
		return err
	}
	key, mark := r.key(log, logKind), newVersion().bytes()
	args := []any{strconv.FormatUint(after, 10), mark}
	var bytes int
	for _, e := range entries {
		args = append(args, e)
		bytes += len(e)
	}
	u, err := r.begin(ctx, bytes)
	if err != nil {
		return err
	}
	defer u.end()
	if err := u.doubt(key, log, after); err != nil { // it ended later than that
		return u.fail(err)
	}
	if after == 0 { // which is in another slot, and so comes before: Logs leaves out what is not there
		if _, err := u.askAgain(r.prefix+":"+own+"logs", "sadd", r.prefix+":"+own+"logs", log); err != nil {
			return u.fail(err)
		}
	}
	answer, err := u.run(appendScript, []string{key}, args...)
	if u.isLost(err) && u.find(func() (bool, error) {
		first := strconv.FormatUint(after+1, 10) + "-0"
		is, err := u.ask(key, 1, "xrange", key, first, first)
		return strings.Contains(fmt.Sprint(is), string(mark)), err
	}) {
		answer, err = "", nil
	}
	if err != nil {
		return u.fail(err)
	}
	last := text(answer)
	if last == "" {
		r.memory.acknowledged(log, after+uint64(len(entries)))
		return nil
	}
	if err := u.doubt(key, log, number(last)); err != nil {
		return u.fail(err)
	}
	return fmt.Errorf("log %s ends with %s, not %d: %w", log, last, after, ErrConflict)
}

// Read implements Store.
func (r *Redis) Read(ctx context.Context, log string, after uint64, limit int) ([]Entry, error) {
	if err := checkName("a log", log); err != nil {
		return nil, err
	}
	u, err := r.begin(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.end()
	limit = min(limit, MaxEntries)
	var all []Entry
	for len(all) < limit {
		answer, err := u.runAgain(readScript, []string{r.key(log, logKind)}, strconv.FormatUint(after, 10), limit-len(all), maxAnswer)
		if err != nil {
			return nil, u.fail(err)
		}
		if len(answer) == 0 {
			break
		}
		for i := 0; i+1 < len(answer); i += 2 {
			after = number(answer[i])
			all = append(all, Entry{after, []byte(text(answer[i+1]))})
		}
		u.more()
	}
	return all, nil
}

// Span implements Store.
func (r *Redis) Span(ctx context.Context, log string) (Span, error) {
	if err := checkName("a log", log); err != nil {
		return Span{}, err
	}
	u, err := r.begin(ctx, 0)
	if err != nil {
		return Span{}, err
	}
	defer u.end()
	answer, err := u.runAgain(spanScript, []string{r.key(log, logKind)})
	if err != nil {
		return Span{}, u.fail(err)
	}
	if len(answer) != 2 {
		return Span{}, u.fail(errors.New("the span of a log has no two ends"))
	}
	s := Span{number(answer[0]), number(answer[1])}
	if text(answer[0]) == "" {
		s.First = s.Last + 1
	}
	return s, nil
}

// Logs implements Store.
func (r *Redis) Logs(ctx context.Context) ([]string, error) {
	u, err := r.begin(ctx, 0)
	if err != nil {
		return nil, err
	}
	defer u.end()
	key := r.prefix + ":" + own + "logs"
	answer, err := u.askAgain(key, "smembers", key)
	if err != nil {
		return nil, u.fail(err)
	}
	var names []string
	all, _ := answer.([]any)
	for _, name := range all {
		log := r.key(text(name), logKind)
		there, err := u.askAgain(log, "exists", log)
		if err != nil {
			return nil, u.fail(err)
		}
		if there == int64(1) {
			names = append(names, text(name))
		}
		u.more()
	}
	slices.Sort(names)
	return names, nil
}

// Trim implements Store.
func (r *Redis) Trim(ctx context.Context, log string, first uint64) error {
	if err := checkName("a log", log); err != nil {
		return err
	}
	u, err := r.begin(ctx, 0)
	if err != nil {
		return err
	}
	defer u.end()
	key := r.key(log, logKind)
	if _, err := u.askAgain(key, "xtrim", key, "minid", "=", strconv.FormatUint(first, 10)+"-0"); err != nil { // twice is as once
		return u.fail(err)
	}
	return nil
}

// Status implements Store.
func (r *Redis) Status() Status {
	s := Status{Kind: "redis", Where: r.where.String(), ID: r.memory.id()}
	var worst survival
	var left rest
	r.mu.Lock()
	defer r.mu.Unlock()
	since := time.Unix(math.MaxInt32, 0)
	for _, n := range r.nodes {
		worst = max(worst, survival(n.survives.Load()))
		left = max(left, rest(n.rest.Load()))
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
	r.life.Lock()
	was := r.closed
	r.closed = true
	r.life.Unlock()
	if was {
		return nil
	}
	r.stop()
	r.work.Wait()
	r.notices.close()
	return r.client.Close()
}
