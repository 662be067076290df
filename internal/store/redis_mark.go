package store

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// A mark is written into a Redis when it is new. While it stands there, the Redis is the one that it
// was. Whoever finds that the Redis has lost something writes that into the mark: so also those
// refuse it who know nothing of what was lost, such as a replica that starts then. AcceptRedis
// writes the next turn.
//
// It is spelt "ID TURN", or "ID TURN lost WHY".
type mark struct {
	id   string
	turn int
	lost string
}

func (m mark) String() string {
	text := m.id + " " + strconv.Itoa(m.turn)
	if m.lost != "" {
		text += " lost " + m.lost
	}
	return text
}

// parseMark reads a mark; ok is false where there is none.
func parseMark(text string) (m mark, ok bool) {
	var turn string
	m.id, turn, _ = strings.Cut(text, " ")
	turn, m.lost, _ = strings.Cut(turn, " lost ")
	n, err := strconv.Atoi(turn)
	m.turn = n
	return m, err == nil && m.id != ""
}

//go:embed lua/mark.lua
var markText string

// manyMarks are in a Cluster, evenly over its slots: so each node has some, and so has a node to which
// slots are moved.
const manyMarks = 64

// markKeys are where the marks stand. What is in their braces is no name of a group; see own.
func (r *Redis) markKeys() []string {
	if !r.where.is("cluster") {
		return []string{r.prefix + ":" + own + "mark"}
	}
	keys, left := make([]string, manyMarks), manyMarks
	for i := 0; left > 0; i++ {
		tag := "%:" + strconv.Itoa(i)
		if at := slotOf(tag) * manyMarks / slots; keys[at] == "" {
			keys[at] = r.prefix + ":{" + tag + "}mark"
			left--
		}
	}
	return keys
}

// isOwn reports whether the key is of no group and no log.
func (r *Redis) isOwn(key string) bool {
	return strings.HasPrefix(key, r.prefix+":"+own) || strings.HasPrefix(key, r.prefix+":{%:")
}

const slots = 16384

// slotOf is the slot of a hash tag: CRC16, as XMODEM has it
// (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model).
func slotOf(tag string) int {
	var crc uint16
	for _, b := range []byte(tag) {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// A memory is what this process remembers of a Redis, by which it finds that it has lost something.
type memory struct {
	mu    sync.Mutex
	keys  []string            // of the marks
	mark  mark                // the zero one until the Redis was opened
	ends  map[string]uint64   // of logs: what was acknowledged last
	lines map[string]survival // by the history of replication that was examined
}

func (m *memory) begin(keys []string) {
	m.keys, m.ends, m.lines = keys, map[string]uint64{}, map[string]survival{}
}

// Bounds of a memory. What is over them is forgotten.
const (
	maxEnds  = 16
	maxLines = 1000
)

// acknowledged notes that the log has so many entries.
func (m *memory) acknowledged(log string, end uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.ends[log]; !ok && len(m.ends) >= maxEnds {
		clear(m.ends)
	}
	m.ends[log] = max(m.ends[log], end)
}

// falls reports whether a log that ends there has lost entries.
func (m *memory) falls(log string, end uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return end < m.ends[log]
}

// expected returns the keys of the marks, and where which log ends at least; none before the Redis was opened.
func (m *memory) expected() (keys []string, ends map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mark.id == "" {
		return nil, nil
	}
	return m.keys, maps.Clone(m.ends)
}

// id is that of the mark.
func (m *memory) id() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark.id
}

// A loss is what makes a Redis another than it was.
type loss struct {
	why string

	// seal has it written into the mark: of a mark that is gone, and of one that does not say it.
	seal  bool
	found mark   // that stands there
	key   string // where
}

func (l *loss) refusal() error {
	text := l.why
	if l.seal {
		text += remedy
	}
	return &refusal{text: text, lost: true}
}

// remedy is what a person does about a store that was found to have lost something.
const remedy = `: restore what it had; or, to go on with what is left, run "switchboard store accept": then calls that were made before may be made once more`

// compare compares what a Redis says of itself with what is remembered; nil is that nothing is lost.
// A newer turn is remembered from then on.
func (m *memory) compare(l *glance) *loss {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := m.mark
	var some string // of its keys
	for key, text := range l.marks {
		some = key
		found, ok := parseMark(text)
		switch {
		case !ok:
			return &loss{why: "its mark is gone, so it was emptied, or another stands in its place", seal: true, key: key}
		case found.id != m.mark.id:
			return &loss{why: fmt.Sprintf("it is another store than the one that was opened (%.8s, not %.8s): put that one back, or restart Switchboard to go on with this one", found.id, m.mark.id), found: found}
		case found.lost != "":
			return &loss{why: found.lost + remedy, found: found}
		case found.turn < m.mark.turn:
			return &loss{why: "it stands where it stood before somebody accepted what it had lost" + remedy, found: found}
		case found.turn > newest.turn:
			newest = found
		}
	}
	if newest != m.mark {
		m.mark = newest
		clear(m.ends)
		return nil
	}
	for log, end := range l.ends {
		if end < l.expected[log] {
			return &loss{why: fmt.Sprintf("it has lost what it had acknowledged: %s ends with %d, and ended with %d", log, end, l.expected[log]), seal: some != "", found: m.mark, key: some}
		}
	}
	return nil
}

// doubt examines the node at once where a log ends before what was acknowledged, so that nothing is done
// that was done before. nil is that nothing is lost, or that this is accepted.
func (u *use) doubt(key, log string, end uint64) error {
	if !u.memory.falls(log, end) {
		return nil
	}
	return u.examineAt(key)
}

// checkMark looks whether the mark beside the key still stands, after something was written there. Only of a Cluster is
// that asked each time: a node of it can lose a claim, and keep the log of receipts that would show it.
func (u *use) checkMark(key string) error {
	if !u.where.is("cluster") || u.relaxed {
		return nil
	}
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	beside := u.memory.keys[slotOf(tag)*manyMarks/slots]
	answer, err := u.askAgain(beside, "get", beside)
	if err != nil {
		return err
	}
	if m, ok := parseMark(text(answer)); ok && m.id == u.memory.id() && m.lost == "" {
		return nil
	}
	return u.examineAt(beside)
}

// examineAt examines the node that the key is on, and has it refused where it has lost something.
func (u *use) examineAt(key string) error {
	var c *redis.Client
	switch all := u.client.(type) {
	case *redis.ClusterClient:
		var err error
		if c, err = all.MasterForKey(u.ctx, key); err != nil {
			return err
		}
	case *redis.Client:
		c = all
	}
	n, _ := u.nodeOf(c)
	err := u.examine(u.ctx, n, c)
	if isRefusal(err) {
		u.note(n, err, true)
		u.suspect(n, key)
	}
	return err
}

// goOn forgets what is lost. It reports whether the one that stands there has a mark.
func (m *memory) goOn(lost *loss) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.ends)
	if lost.found.id != "" {
		m.mark = lost.found
	}
	return lost.found.id != ""
}

// tookOver reports whether a replica has taken the place of a Redis that may have been ahead of it, since the last
// look. What it lacks, it lacks from the first look on: what is lost later is a loss like any other.
func (m *memory) tookOver(l *glance) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.lines[l.info["master_replid2"]]
	_, examined := m.lines[l.info["master_replid"]]
	return known && !examined && was == survivesFailover
}

// examined notes what survives of the Redis that stands there now.
func (m *memory) examined(l *glance, s survival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.lines) >= maxLines {
		clear(m.lines)
	}
	m.lines[l.info["master_replid"]] = s
}

// recognise finds out whether the Redis is the one that it was. What it may lose, it may have lost: then
// that is logged, and it is used.
func (r *Redis) recognise(ctx context.Context, c pipelined, l *glance, s survival) error {
	m := &r.memory
	lost, replica := m.compare(l), m.tookOver(l)
	m.examined(l, s)
	switch {
	case lost == nil:
		return nil
	case lost.found.lost == "" && (r.relaxed || replica && lost.seal && lost.found.id != ""):
		r.log.Error("the store has lost some of what it had; it is used, since that may happen to it", "redis", r.where.String(), "lost", lost.why, "replica_took_over", replica)
		if !m.goOn(lost) {
			return r.renew(ctx)
		}
		return nil
	case !lost.seal:
		return lost.refusal()
	}
	m.mu.Lock()
	sealed, was := m.mark, ""
	m.mu.Unlock()
	sealed.lost = lost.why
	if lost.found.id != "" {
		was = lost.found.String()
	}
	pipe := c.Pipeline()
	pipe.Eval(ctx, markText, []string{lost.key}, was, sealed.String())
	_, _ = pipe.Exec(ctx) // else the next look does it
	return lost.refusal()
}

// renew writes anew what a store begins with.
func (r *Redis) renew(ctx context.Context) error {
	if err := r.migrate(ctx); err != nil {
		return err
	}
	r.memory.mu.Lock()
	text := r.memory.mark.String()
	r.memory.mu.Unlock()
	for _, key := range r.memory.keys {
		if err := r.client.SetNX(ctx, key, text, 0).Err(); err != nil {
			return err
		}
	}
	return nil
}

// allMarks gives the marks that stand in Redis, each once, and how many are gone.
func (r *Redis) allMarks(ctx context.Context) (marks []mark, gone int, err error) {
	seen := map[mark]bool{}
	for _, key := range r.memory.keys {
		text, err := r.client.Get(ctx, key).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, 0, err
		}
		m, ok := parseMark(text)
		switch {
		case !ok:
			gone++
		case !seen[m]:
			seen[m] = true
			marks = append(marks, m)
		}
	}
	return marks, gone, nil
}

// findMark finds the mark, or makes it where the Redis is new.
func (r *Redis) findMark(ctx context.Context) error {
	marks, gone, err := r.allMarks(ctx)
	if err == nil && gone > 0 && len(marks) > 0 { // somebody may have begun after the first was read, which is read before the others
		marks, gone, err = r.allMarks(ctx)
	}
	if err == nil && (len(marks) == 0 || slices.ContainsFunc(marks, mark.isBegun)) {
		if err := r.makeMarks(ctx); err != nil {
			return err
		}
		marks, gone, err = r.allMarks(ctx)
	}
	if err != nil {
		return err
	}
	for _, m := range marks {
		if m.lost != "" {
			return &refusal{text: m.lost + remedy, lost: true}
		}
	}
	switch {
	case len(marks) != 1:
		return &refusal{text: "its nodes are not all of one store, or not all have been accepted" + remedy, lost: true}
	case gone > 0:
		return &refusal{text: r.lacks(gone) + remedy, lost: true}
	}
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.mark = marks[0]
	return nil
}

// lacks says that marks of a Cluster are gone.
func (r *Redis) lacks(gone int) string {
	return fmt.Sprintf("%d of its %d marks are gone, so a node of it was emptied, or another stands in its place", gone, len(r.memory.keys))
}

// isBegun reports whether the mark is the first of a Cluster of which not all are written.
func (m mark) isBegun() bool { return m.turn == 0 }

// makeMarks writes the marks of a Redis that is new. Of a Cluster the first one is of turn 0 until the others are written: so
// one that is gone later is known to be lost. Of all who make them at once, the first to write the first key says what they are.
func (r *Redis) makeMarks(ctx context.Context) error {
	put := func(key, was string, m mark) (mark, error) {
		text, err := r.client.Eval(ctx, markText, []string{key}, was, m.String()).Text()
		if err != nil {
			return mark{}, err
		}
		m, _ = parseMark(text)
		return m, nil
	}
	keys := r.memory.keys
	whole := mark{id: rand.Text(), turn: 1}
	if len(keys) == 1 {
		_, err := put(keys[0], "", whole)
		return err
	}
	begun, err := put(keys[0], "", mark{id: whole.id})
	if err != nil || !begun.isBegun() {
		return err
	}
	whole.id = begun.id
	for _, key := range keys[1:] {
		if _, err := put(key, "", whole); err != nil {
			return err
		}
	}
	_, err = put(keys[0], begun.String(), whole)
	return err
}

// AcceptRedis has all who use the Redis go on with what is left in it, though it has lost something: what
// that is, it returns. ErrConflict says that nothing is known to be lost.
func AcceptRedis(ctx context.Context, url string, o RedisOptions) (lost string, err error) {
	r, err := newRedis(url, o)
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // nothing is lost
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	if lost, err = r.accept(ctx); err != nil && !errors.Is(err, ErrConflict) {
		err = fmt.Errorf("%w: redis at %s: %w", ErrUnavailable, r.where, err)
	}
	return lost, err
}

func (r *Redis) accept(ctx context.Context) (lost string, err error) {
	marks, gone, err := r.allMarks(ctx)
	if err != nil {
		return "", err
	}
	if gone == len(r.memory.keys) || gone == 0 && len(marks) == 1 && marks[0].lost == "" {
		return "", fmt.Errorf("nothing is known to be lost: %w", ErrConflict)
	}
	next := mark{id: marks[0].id}
	for _, m := range marks {
		lost = cmp.Or(lost, m.lost)
		next.turn = max(next.turn, m.turn+1)
	}
	if err := r.migrate(ctx); err != nil {
		return "", err
	}
	for _, key := range r.memory.keys {
		if err := r.client.Set(ctx, key, next.String(), 0).Err(); err != nil {
			return "", err
		}
	}
	if lost == "" && gone > 0 {
		return r.lacks(gone), nil
	}
	return cmp.Or(lost, "its nodes are not all of one store, or not all have been accepted"), nil
}
