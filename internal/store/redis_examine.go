package store

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// examineInterval is the time between two examinations of all nodes, give or take half. No call waits for
// them. Each new connection is also examined before its first use, since it may lead to another Redis.
const examineInterval = time.Second

// examinePeriodically examines all nodes that are written to, from time to time, until Close. It leaves a
// node that does not answer to the calls that use it.
func (r *redisMonitor) examinePeriodically() {
	for sleep(r.background, examineInterval/2+rand.N(examineInterval)) {
		ctx, cancel := context.WithTimeout(r.background, r.callTimeout)
		_ = r.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			n, _ := r.nodeOf(c)
			if n.fault.Load() != nil { // its probe is running
				return nil
			}
			if err := r.examineNode(ctx, n, c); isRefusal(err) {
				r.recordFault(n, err, true)
				r.probeUntilWell(n, r.keys.own("notices"))
			}
			return nil
		})
		cancel()
	}
}

// checkConnection examines the Redis at the other end of a new connection, before the connection is used. A
// node that is no master is not examined: nothing is written to it that it could lose.
func (r *redisMonitor) checkConnection(ctx context.Context, c *redis.Conn) error {
	return retryOutdated(func() error { return r.checkConnectionOnce(ctx, c) })
}

// retryOutdated calls examine once more if its report was outdated.
func retryOutdated(examine func() error) error {
	err := examine()
	if errors.Is(err, errOutdated) {
		err = examine()
	}
	return err
}

func (r *redisMonitor) checkConnectionOnce(ctx context.Context, c *redis.Conn) error {
	l, err := r.readReport(ctx, c)
	var said redis.Error
	isSentinel := r.url.isMode("sentinel") && (errors.As(err, &said) && !isStarting(err) || err == nil && l.info["redis_mode"] == "sentinel")
	switch {
	case isSentinel: // a Sentinel stores nothing
		return nil
	case err != nil:
		return err
	case l.info["role"] != "master":
		return nil
	}
	if _, _, err = r.judgeReport(l); err != nil || r.relaxed {
		return err
	}
	lost, err := r.marks.losses.compare(l)
	if lost != nil {
		err = lost.refusal()
	}
	return err
}

// A redisReport is what a Redis reports about itself.
type redisReport struct {
	info     map[string]string
	settings map[string]string // "?" if CONFIG GET is forbidden

	marks                 map[string]string // by key; "" if there is none
	expectedTurn          int               // the newest turn that was known when the report was asked for
	logEnds, expectedEnds map[string]uint64 // by log: its last entry now, and the last entry that was acknowledged
}

// A pipelined is a client or a connection.
type pipelined interface{ Pipeline() redis.Pipeliner }

// readSettings are the settings that a report contains.
var readSettings = []string{"appendfsync", "save", "aof-load-truncated"}

// readReport reads a report in one round trip.
func (r *redisMonitor) readReport(ctx context.Context, c pipelined) (*redisReport, error) {
	l := &redisReport{info: map[string]string{}, settings: map[string]string{}, marks: map[string]string{}, logEnds: map[string]uint64{}}
	var keys []string
	keys, l.expectedTurn, l.expectedEnds = r.marks.losses.expected()
	pipe := c.Pipeline()
	info := pipe.Info(ctx)
	settings, marks, ends := map[string]*redis.MapStringStringCmd{}, map[string]*redis.StringCmd{}, map[string]*redis.XInfoStreamCmd{}
	for _, name := range readSettings {
		settings[name] = pipe.ConfigGet(ctx, name)
	}
	for _, key := range keys {
		marks[key] = pipe.Get(ctx, key)
	}
	for log := range l.expectedEnds {
		ends[log] = pipe.XInfoStream(ctx, r.keys.item(log, logKind))
	}
	_, failed := pipe.Exec(ctx)
	text, err := info.Result()
	if err == nil && text == "" { // the command was not sent
		err = failed
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		name, is, _ := strings.Cut(strings.TrimSpace(line), ":")
		l.info[name] = is
	}
	for name, answer := range settings {
		all, err := answer.Result()
		var said redis.Error
		switch {
		case errors.As(err, &said) && !redis.IsLoadingError(err):
			l.settings[name] = "?" // CONFIG GET is forbidden
		case err != nil:
			return nil, err
		default:
			l.settings[name] = all[name]
		}
	}
	return l, errors.Join(l.readMarks(marks), l.readEnds(ends))
}

func (l *redisReport) readMarks(answers map[string]*redis.StringCmd) error {
	for key, answer := range answers {
		text, err := answer.Result()
		switch {
		case isElsewhere(err):
		case err != nil && !errors.Is(err, redis.Nil):
			return err
		default:
			l.marks[key] = text
		}
	}
	return nil
}

func (l *redisReport) readEnds(answers map[string]*redis.XInfoStreamCmd) error {
	for log, answer := range answers {
		stream, err := answer.Result()
		switch {
		case isElsewhere(err):
		case redis.HasErrorPrefix(err, "no such key"):
			l.logEnds[log] = 0
		case err != nil:
			return err
		default:
			end, _, _ := strings.Cut(stream.LastGeneratedID, "-")
			l.logEnds[log] = answerNumber(end)
		}
	}
	return nil
}

// isStarting reports whether Redis answers that it is not ready yet.
func isStarting(err error) bool { return redis.IsLoadingError(err) || redis.IsMasterDownError(err) }

// isElsewhere reports whether a node of a Cluster answers that another node has the key.
func isElsewhere(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, asks := redis.IsAskError(err)
	return moved || asks
}

// A survival says how much of the acknowledged changes survives, from the most to the least.
type survival int32

const (
	survivesMachine survival = iota
	survivesFailover
	losesSeconds
	losesSystem
	losesSnapshot
	losesAll
)

var survivalTexts = [...]string{
	survivesMachine:  "machine",
	survivesFailover: "machine, but for the last moment where a replica takes over",
	losesSeconds:     "redis, but for the last two seconds",
	losesSystem:      "redis, but for what its system had not written",
	losesSnapshot:    "redis, but for what came after its last snapshot",
	losesAll:         "nothing of redis",
}

// String returns the text for Status.
func (s survival) String() string { return survivalTexts[s] }

// A tornTransaction says how a Redis treats half a transaction at the end of its append-only file, which a
// kill may leave there. If Redis keeps it and appends to it, everything that it acknowledges from then on
// belongs to a transaction that never ends, and is dropped at its next start.
type tornTransaction int32

const (
	tornRefused tornTransaction = iota // it does not start until a person has removed the half transaction
	tornUnknown
	tornAccepted
)

var tornTransactionTexts = [...]string{
	tornRefused:  "",
	tornUnknown:  "; less where it is killed within a transaction, and later once more: its aof-load-truncated cannot be read, and should be no",
	tornAccepted: "; less where it is killed within a transaction, and later once more: its aof-load-truncated is yes, and should be no",
}

// String returns the text that Status adds.
func (r tornTransaction) String() string { return tornTransactionTexts[r] }

// examineNode finds out whether the node may be used, and how much of its data survives. Both can change
// while the node runs, and another Redis can take its place: so it is examined again and again.
func (r *redisMonitor) examineNode(ctx context.Context, n *redisNode, c pipelined) error {
	return retryOutdated(func() error { return r.examineNodeOnce(ctx, n, c) })
}

func (r *redisMonitor) examineNodeOnce(ctx context.Context, n *redisNode, c pipelined) error {
	l, err := r.readReport(ctx, c)
	if err != nil {
		return err
	}
	s, left, err := r.judgeReport(l)
	if err != nil {
		n.unsaved.Store(n.unsaved.Load() || s > survivesFailover)
		return err
	}
	if err := r.marks.checkIdentity(ctx, c, l, s); err != nil {
		return err
	}
	// Changes that it acknowledged before it wrote its first append-only file are not in that file yet.
	if n.unsaved.Load() && (l.info["aof_rewrite_in_progress"] == "1" || l.info["aof_rewrite_scheduled"] == "1") {
		return errors.New("it has not yet written the changes from the time when its appendonly was no")
	}
	n.unsaved.Store(false)
	n.survives.Store(int32(s))
	n.torn.Store(int32(left))
	return nil
}

// judgeReport returns how much survives in a Redis with this report, or why it must not be used.
func (r *redisMonitor) judgeReport(l *redisReport) (s survival, left tornTransaction, err error) {
	major, _, _ := strings.Cut(l.info["redis_version"], ".")
	version, _ := strconv.Atoi(major)
	switch policy := l.info["maxmemory_policy"]; {
	case version < 7:
		return 0, 0, &refusal{text: "it is version " + l.info["redis_version"] + ", and Switchboard needs version 7 or later"}
	case l.info["cluster_enabled"] == "1" && !r.url.isMode("cluster"):
		return 0, 0, &refusal{text: "it is part of a Cluster: its URL should begin with redis+cluster://"}
	case l.info["role"] != "master" && (r.url.isMode("cluster") || r.url.isMode("sentinel")): // it may become the master again
		return 0, 0, errors.New("it is a replica")
	case l.info["role"] != "master":
		return 0, 0, &refusal{text: "it is a replica, and cannot be written to: name its master, or the Sentinels that know that (redis+sentinel://)"}
	case policy != "noeviction":
		return 0, 0, &refusal{text: "its maxmemory-policy is " + policy + ", so it would drop what it has acknowledged: set maxmemory-policy noeviction"}
	}
	s, why := durability(l)
	if s > survivesFailover && !r.relaxed {
		return s, 0, &refusal{text: why + ", so it may lose what it has acknowledged: set appendonly yes and appendfsync always in Redis, or durability: relaxed here"}
	}
	switch is := l.settings["aof-load-truncated"]; {
	case l.info["aof_enabled"] != "1" || is == "no":
		left = tornRefused
	case is == "yes":
		left = tornAccepted
	default:
		left = tornUnknown
	}
	return s, left, nil
}

// durability returns how much survives, and why that is not everything.
func durability(l *redisReport) (s survival, why string) {
	if l.info["aof_enabled"] != "1" {
		if l.settings["save"] == "" {
			return losesAll, "its appendonly is no, and it saves nothing"
		}
		return losesSnapshot, "its appendonly is no"
	}
	switch fsync := l.settings["appendfsync"]; {
	case fsync == "no":
		return losesSystem, "its appendfsync is no"
	case fsync == "everysec":
		return losesSeconds, "its appendfsync is everysec"
	case fsync != "always":
		return losesSystem, "it does not say what its appendfsync is (CONFIG GET is forbidden)"
	case l.info["connected_slaves"] != "0":
		return survivesFailover, ""
	default:
		return survivesMachine, ""
	}
}
