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

// A storeMark is written into a new Redis. While it is there, the Redis is the one that was opened. A replica
// that finds that the Redis has lost something writes that into the mark. Then also replicas that do not know
// what was lost refuse the Redis, such as a replica that starts later. AcceptRedis writes the mark of the
// next turn.
//
// Its text is "ID TURN", or "ID TURN lost WHY".
type storeMark struct {
	id   string
	turn int
	lost string
}

func (m storeMark) String() string {
	text := m.id + " " + strconv.Itoa(m.turn)
	if m.lost != "" {
		text += " lost " + m.lost
	}
	return text
}

// parseMark parses a mark; ok is false if text is none.
func parseMark(text string) (m storeMark, ok bool) {
	var turn string
	m.id, turn, _ = strings.Cut(text, " ")
	turn, m.lost, _ = strings.Cut(turn, " lost ")
	n, err := strconv.Atoi(turn)
	m.turn = n
	return m, err == nil && m.id != ""
}

//go:embed lua/mark.lua
var markText string

// redisMarks reads and writes the marks of a Redis, and decides whether it has lost something.
type redisMarks struct {
	*redisClient
	losses lossDetector
}

// A lossDetector remembers facts about a Redis, to find out that the Redis has lost something.
type lossDetector struct {
	mu        sync.Mutex
	markKeys  []string            // the keys of the marks
	mark      storeMark           // the zero mark until the Redis was opened
	logEnds   map[string]uint64   // by log: the last entry that was acknowledged
	histories map[string]survival // by the replication id of each examined history
}

func (m *lossDetector) init(keys []string) {
	m.markKeys, m.logEnds, m.histories = keys, map[string]uint64{}, map[string]survival{}
}

// The limits of a lossDetector. Above a limit, it forgets all entries of the map.
const (
	maxLogEnds   = 16
	maxHistories = 1000
)

// recordLogEnd remembers that the log has an entry with the number end.
func (m *lossDetector) recordLogEnd(log string, end uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.logEnds[log]; !ok && len(m.logEnds) >= maxLogEnds {
		clear(m.logEnds)
	}
	m.logEnds[log] = max(m.logEnds[log], end)
}

// isBehind reports whether a log that ends with end has lost entries.
func (m *lossDetector) isBehind(log string, end uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return end < m.logEnds[log]
}

// expected returns the keys of the marks, their turn, and the last known entry of each log; nothing before
// the Redis was opened.
func (m *lossDetector) expected() (keys []string, turn int, ends map[string]uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mark.id == "" {
		return nil, 0, nil
	}
	return m.markKeys, m.mark.turn, maps.Clone(m.logEnds)
}

// storeID returns the id of the mark.
func (m *lossDetector) storeID() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mark.id
}

// A storeLoss says what a Redis has lost, or that it is another Redis.
type storeLoss struct {
	why string

	// updateMark says that the loss must be written into the mark: the mark is gone, or does not say it yet.
	updateMark bool
	found      storeMark // the mark that is there now
	key        string    // its key
}

// refusal returns the loss as the error that callers get.
func (l *storeLoss) refusal() error {
	text := l.why
	if l.updateMark {
		text += lossRemedy
	}
	return &refusal{text: text, lost: true}
}

// lossRemedy tells a person what to do about a store that has lost something.
const lossRemedy = `: restore its data; or, to continue with the data that is left, run "switchboard store accept": then calls that were made before may be made once more`

// errOutdated says that a report may be from before the newest known turn: another node has told of that turn
// meanwhile. The report says nothing about what was lost since, so the next examination decides.
var errOutdated = errors.New("a loss was accepted while it was examined")

// compare compares a report with the remembered facts; nil means that nothing is lost. It remembers a newer
// turn. The error is errOutdated.
func (m *lossDetector) compare(l *redisReport) (*storeLoss, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mark.turn != l.expectedTurn {
		return nil, errOutdated
	}
	return m.compareMarks(l), nil
}

// compareMarks is compare for a report that is not outdated. The caller holds m.mu.
func (m *lossDetector) compareMarks(l *redisReport) *storeLoss {
	newest := m.mark
	var some string // one of its keys
	for key, text := range l.marks {
		some = key
		found, ok := parseMark(text)
		switch {
		case !ok:
			return &storeLoss{why: "its mark is gone, so it was emptied or replaced by another Redis", updateMark: true, key: key}
		case found.id != m.mark.id:
			return &storeLoss{why: fmt.Sprintf("it is another store than the one that was opened (%.8s, not %.8s): put that one back, or restart Switchboard to use this one", found.id, m.mark.id), found: found}
		case found.lost != "":
			return &storeLoss{why: found.lost + lossRemedy, found: found}
		case found.turn < m.mark.turn:
			return &storeLoss{why: "its data is from before a person accepted an earlier loss" + lossRemedy, found: found}
		case found.turn > newest.turn:
			newest = found
		}
	}
	if newest != m.mark {
		m.mark = newest
		clear(m.logEnds)
		return nil
	}
	for log, end := range l.logEnds {
		if end < l.expectedEnds[log] {
			return &storeLoss{why: fmt.Sprintf("it has lost acknowledged entries: %s ends with %d, and ended with %d", log, end, l.expectedEnds[log]), updateMark: some != "", found: m.mark, key: some}
		}
	}
	return nil
}

// checkLogEnd examines the node at once if a log ends before its last acknowledged entry, so that no call is
// executed that was executed before. nil means that nothing is lost, or that the loss was accepted.
func (u *redisCall) checkLogEnd(key, log string, end uint64) error {
	if !u.marks.losses.isBehind(log, end) {
		return nil
	}
	return u.examineNodeOf(key)
}

// checkMark checks that the mark beside the key is still there, after a write to the key. Only a Cluster
// needs this check at each write: a node of it can lose a claim, and another node keeps the log of receipts
// that would show the loss.
func (u *redisCall) checkMark(key string) error {
	if !u.url.isMode("cluster") || u.relaxed {
		return nil
	}
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	beside := u.marks.losses.markKeys[slotOf(tag)*clusterMarks/clusterSlots]
	answer, err := u.sendRead(beside, "get", beside)
	if err != nil {
		return err
	}
	if m, ok := parseMark(answerText(answer)); ok && m.id == u.marks.losses.storeID() && m.lost == "" {
		return nil
	}
	return u.examineNodeOf(beside)
}

// examineNodeOf examines the node of the key. If the node has lost something, it is shut.
func (u *redisCall) examineNodeOf(key string) error {
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
	n, _ := u.monitor.nodeOf(c)
	err := u.monitor.examineNode(u.ctx, n, c)
	if isRefusal(err) {
		u.monitor.recordFault(n, err, true)
		u.monitor.probeUntilWell(n, key)
	}
	return err
}

// continueAfterLoss forgets what was lost. It reports whether the present Redis has a mark.
func (m *lossDetector) continueAfterLoss(lost *storeLoss) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.logEnds)
	if lost.found.id != "" {
		m.mark = lost.found
	}
	return lost.found.id != ""
}

// isReplicaTakeover reports whether a replica has become the master since the last report, and the earlier
// master may have been ahead of it. The replica lacks entries from its first report on; what it loses later
// is an ordinary loss.
func (m *lossDetector) isReplicaTakeover(l *redisReport) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.histories[l.info["master_replid2"]]
	_, examined := m.histories[l.info["master_replid"]]
	return known && !examined && was == survivesFailover
}

// recordHistory remembers how much survives in the present Redis.
func (m *lossDetector) recordHistory(l *redisReport, s survival) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.histories) >= maxHistories {
		clear(m.histories)
	}
	m.histories[l.info["master_replid"]] = s
}

// checkIdentity finds out whether the Redis is the one that was opened, and has lost nothing. A loss that its
// settings allow is logged, and the Redis is used.
func (r *redisMarks) checkIdentity(ctx context.Context, c pipelined, l *redisReport, s survival) error {
	m := &r.losses
	lost, err := m.compare(l)
	if err != nil {
		return err
	}
	replica := m.isReplicaTakeover(l)
	m.recordHistory(l, s)
	switch {
	case lost == nil:
		return nil
	case lost.found.lost == "" && (r.relaxed || replica && lost.updateMark && lost.found.id != ""):
		r.log.Error("the store has lost some data; it is used, since its settings allow such a loss", "redis", r.url.String(), "lost", lost.why, "replica_took_over", replica)
		if !m.continueAfterLoss(lost) {
			return r.restoreMarks(ctx)
		}
		return nil
	case !lost.updateMark:
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
	_, _ = pipe.Exec(ctx) // if it fails, the next examination does it
	return lost.refusal()
}

// restoreMarks writes the schema and the marks again.
func (r *redisMarks) restoreMarks(ctx context.Context) error {
	if err := r.migrateSchema(ctx); err != nil {
		return err
	}
	r.losses.mu.Lock()
	text := r.losses.mark.String()
	r.losses.mu.Unlock()
	_, err := r.eachMark(ctx, r.losses.markKeys, func(p redis.Pipeliner, key string) redis.Cmder { return p.SetNX(ctx, key, text, 0) })
	return err
}

// eachMark sends a command for each key of a mark, all at once: a new Cluster gets 64 marks, and each waits for a disk. The error is the first one that
// is not redis.Nil.
func (r *redisMarks) eachMark(ctx context.Context, keys []string, send func(p redis.Pipeliner, key string) redis.Cmder) (answers []redis.Cmder, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	pipe := r.client.Pipeline()
	for _, key := range keys {
		answers = append(answers, send(pipe, key))
	}
	_, err = pipe.Exec(ctx) // also the error of a command that was not sent
	for _, answer := range answers {
		if e := answer.Err(); e != nil && !errors.Is(e, redis.Nil) {
			return nil, e
		}
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return answers, nil
}

// readMarks returns the different marks in Redis, and how many are missing. It reads the first mark before the others: if that one is whole, the others
// were written before, see writeMarks.
func (r *redisMarks) readMarks(ctx context.Context) (marks []storeMark, gone int, err error) {
	get := func(p redis.Pipeliner, key string) redis.Cmder { return p.Get(ctx, key) }
	answers, err := r.eachMark(ctx, r.losses.markKeys[:1], get)
	if err != nil {
		return nil, 0, err
	}
	others, err := r.eachMark(ctx, r.losses.markKeys[1:], get)
	if err != nil {
		return nil, 0, err
	}
	answers = append(answers, others...)
	seen := map[storeMark]bool{}
	for _, answer := range answers {
		m, ok := parseMark(answer.(*redis.StringCmd).Val())
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

// adoptMark remembers the mark of the Redis. It makes the marks if the Redis is new.
func (r *redisMarks) adoptMark(ctx context.Context) error {
	marks, gone, err := r.readMarks(ctx)
	if err == nil && gone > 0 && len(marks) > 0 { // another replica may have begun to write marks after we read the first one
		marks, gone, err = r.readMarks(ctx)
	}
	if err == nil && (len(marks) == 0 || slices.ContainsFunc(marks, storeMark.isProvisional)) {
		if err := r.writeMarks(ctx); err != nil {
			return err
		}
		marks, gone, err = r.readMarks(ctx)
	}
	if err != nil {
		return err
	}
	for _, m := range marks {
		if m.lost != "" {
			return &refusal{text: m.lost + lossRemedy, lost: true}
		}
	}
	switch {
	case len(marks) != 1:
		return &refusal{text: "its nodes are not all of one store, or not all of them were accepted" + lossRemedy, lost: true}
	case gone > 0:
		return &refusal{text: r.describeMissingMarks(gone) + lossRemedy, lost: true}
	}
	r.losses.mu.Lock()
	defer r.losses.mu.Unlock()
	r.losses.mark = marks[0]
	return nil
}

// describeMissingMarks says that marks of a Cluster are missing.
func (r *redisMarks) describeMissingMarks(gone int) string {
	return fmt.Sprintf("%d of its %d marks are gone, so a node of it was emptied or replaced by another Redis", gone, len(r.losses.markKeys))
}

// isProvisional reports whether the mark is the first one of a Cluster while the others are not all written.
func (m storeMark) isProvisional() bool { return m.turn == 0 }

// writeMarks writes the marks of a new Redis. In a Cluster, the first mark has turn 0 until the others are
// written: so a mark that is missing later is known to be lost. If several replicas write marks at the same
// time, the first one to write the first key decides the id.
func (r *redisMarks) writeMarks(ctx context.Context) error {
	put := func(key, was string, m storeMark) (storeMark, error) {
		text, err := r.client.Eval(ctx, markText, []string{key}, was, m.String()).Text()
		if err != nil {
			return storeMark{}, err
		}
		m, _ = parseMark(text)
		return m, nil
	}
	keys := r.losses.markKeys
	whole := storeMark{id: rand.Text(), turn: 1}
	if len(keys) == 1 {
		_, err := put(keys[0], "", whole)
		return err
	}
	begun, err := put(keys[0], "", storeMark{id: whole.id})
	if err != nil || !begun.isProvisional() {
		return err
	}
	whole.id = begun.id
	if _, err := r.eachMark(ctx, keys[1:], func(p redis.Pipeliner, key string) redis.Cmder {
		return p.Eval(ctx, markText, []string{key}, "", whole.String())
	}); err != nil {
		return err
	}
	_, err = put(keys[0], begun.String(), whole)
	return err
}

// AcceptRedis lets all replicas continue with the data that is left in a Redis although it has lost some. It
// returns what was lost. ErrConflict says that no loss is known.
func AcceptRedis(ctx context.Context, url string, o RedisOptions) (lost string, err error) {
	r, err := newRedis(url, o)
	if err != nil {
		return "", err
	}
	defer r.Close() //nolint:errcheck // everything was acknowledged
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if lost, err = r.marks.acceptLoss(ctx); err != nil && !errors.Is(err, ErrConflict) {
		err = fmt.Errorf("%w: redis at %s: %w", ErrUnavailable, r.url, err)
	}
	return lost, err
}

func (r *redisMarks) acceptLoss(ctx context.Context) (lost string, err error) {
	marks, gone, err := r.readMarks(ctx)
	if err != nil {
		return "", err
	}
	if gone == len(r.losses.markKeys) || gone == 0 && len(marks) == 1 && marks[0].lost == "" {
		return "", fmt.Errorf("nothing is known to be lost: %w", ErrConflict)
	}
	next := storeMark{id: marks[0].id}
	for _, m := range marks {
		lost = cmp.Or(lost, m.lost)
		next.turn = max(next.turn, m.turn+1)
	}
	if err := r.migrateSchema(ctx); err != nil {
		return "", err
	}
	if _, err := r.eachMark(ctx, r.losses.markKeys, func(p redis.Pipeliner, key string) redis.Cmder { return p.Set(ctx, key, next.String(), 0) }); err != nil {
		return "", err
	}
	if lost == "" && gone > 0 {
		return r.describeMissingMarks(gone), nil
	}
	return cmp.Or(lost, "its nodes are not all of one store, or not all of them were accepted"), nil
}
