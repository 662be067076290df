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

// lookEvery is how often all nodes are examined, give or take half. Nobody waits for that. Whoever
// makes a connection has it examined before it is used, since another Redis may be behind it.
const lookEvery = time.Second

// follow examines all that is written to, from time to time, until Close. A node that does not
// answer is left to those who use it.
func (r *Redis) follow() {
	for pause(r.ended, lookEvery/2+rand.N(lookEvery)) {
		ctx, cancel := context.WithTimeout(r.ended, r.useTime)
		_ = r.eachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
			n, _ := r.nodeOf(c)
			if n.fault.Load() != nil { // it is probed
				return nil
			}
			if err := r.examine(ctx, n, c); isRefusal(err) {
				r.note(n, err, true)
				r.suspect(n, r.channel())
			}
			return nil
		})
		cancel()
	}
}

// greet examines what is behind a new connection, before that is used. What is no master here is
// asked for nothing that it could lose.
func (r *Redis) greet(ctx context.Context, c *redis.Conn) error {
	l, err := r.glanceAt(ctx, c)
	var said redis.Error
	isSentinel := r.where.is("sentinel") && (errors.As(err, &said) && !isStarting(err) || err == nil && l.info["redis_mode"] == "sentinel")
	switch {
	case isSentinel: // which need not say anything
		return nil
	case err != nil:
		return err
	case l.info["role"] != "master":
		return nil
	}
	if _, _, err = r.judge(l); err != nil || r.relaxed {
		return err
	}
	if lost := r.memory.compare(l); lost != nil {
		return lost.refusal()
	}
	return nil
}

// A glance is what a Redis says of itself.
type glance struct {
	info     map[string]string
	settings map[string]string // "?" where it does not say

	marks          map[string]string // by the key; "" where there is none
	ends, expected map[string]uint64 // of logs: where they end, and what was acknowledged before
}

// pipelined is a client or a connection.
type pipelined interface{ Pipeline() redis.Pipeliner }

// asked are the settings that are looked at.
var asked = []string{"appendfsync", "save", "aof-load-truncated"}

// glanceAt asks for all of a glance in one round trip.
func (r *Redis) glanceAt(ctx context.Context, c pipelined) (*glance, error) {
	l := &glance{info: map[string]string{}, settings: map[string]string{}, marks: map[string]string{}, ends: map[string]uint64{}}
	var keys []string
	keys, l.expected = r.memory.expected()
	pipe := c.Pipeline()
	info := pipe.Info(ctx)
	settings, marks, ends := map[string]*redis.MapStringStringCmd{}, map[string]*redis.StringCmd{}, map[string]*redis.XInfoStreamCmd{}
	for _, name := range asked {
		settings[name] = pipe.ConfigGet(ctx, name)
	}
	for _, key := range keys {
		marks[key] = pipe.Get(ctx, key)
	}
	for log := range l.expected {
		ends[log] = pipe.XInfoStream(ctx, r.key(log, logKind))
	}
	_, failed := pipe.Exec(ctx)
	text, err := info.Result()
	if err == nil && text == "" { // it was never asked
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
			l.settings[name] = "?" // that is forbidden
		case err != nil:
			return nil, err
		default:
			l.settings[name] = all[name]
		}
	}
	return l, errors.Join(l.readMarks(marks), l.readEnds(ends))
}

func (l *glance) readMarks(answers map[string]*redis.StringCmd) error {
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

func (l *glance) readEnds(answers map[string]*redis.XInfoStreamCmd) error {
	for log, answer := range answers {
		stream, err := answer.Result()
		switch {
		case isElsewhere(err):
		case redis.HasErrorPrefix(err, "no such key"):
			l.ends[log] = 0
		case err != nil:
			return err
		default:
			end, _, _ := strings.Cut(stream.LastGeneratedID, "-")
			l.ends[log] = number(end)
		}
	}
	return nil
}

// isStarting reports whether a Redis says that it is not there yet.
func isStarting(err error) bool { return redis.IsLoadingError(err) || redis.IsMasterDownError(err) }

// isElsewhere reports whether the node of a Cluster says that it has not the key.
func isElsewhere(err error) bool {
	_, moved := redis.IsMovedError(err)
	_, asks := redis.IsAskError(err)
	return moved || asks
}

// A survival is how much is left of what was acknowledged, from the most to the least.
type survival int32

const (
	survivesMachine survival = iota
	survivesFailover
	losesSeconds
	losesSystem
	losesSnapshot
	losesAll
)

var survivals = [...]string{
	survivesMachine:  "machine",
	survivesFailover: "machine, but for the last moment where a replica takes over",
	losesSeconds:     "redis, but for the last two seconds",
	losesSystem:      "redis, but for what its system had not written",
	losesSnapshot:    "redis, but for what came after its last snapshot",
	losesAll:         "nothing of redis",
}

// String is what Status says.
func (s survival) String() string { return survivals[s] }

// A rest is what Redis makes of half a transaction, with which a kill may leave its
// append-only file. Where it keeps that and goes on behind it, what it acknowledges from then
// on is part of a transaction that never ends, and is dropped when it is started once more.
type rest int32

const (
	restRefused rest = iota // it does not start until that is taken away
	restUnknown
	restKept
)

var rests = [...]string{
	restRefused: "",
	restUnknown: "; less where it is killed within a transaction, and later once more: nobody knows what its aof-load-truncated is, which should be no",
	restKept:    "; less where it is killed within a transaction, and later once more: its aof-load-truncated is yes, and should be no",
}

// String is what Status adds.
func (r rest) String() string { return rests[r] }

// examine finds out whether the node may be used, and how much it keeps. That may change
// while it runs, and another may take its place: so it is asked again and again.
func (r *Redis) examine(ctx context.Context, n *node, c pipelined) error {
	l, err := r.glanceAt(ctx, c)
	if err != nil {
		return err
	}
	s, left, err := r.judge(l)
	if err != nil {
		n.unkept.Store(n.unkept.Load() || s > survivesFailover)
		return err
	}
	if err := r.recognise(ctx, c, l, s); err != nil {
		return err
	}
	// What it acknowledges before its first file is written is in none.
	if n.unkept.Load() && (l.info["aof_rewrite_in_progress"] == "1" || l.info["aof_rewrite_scheduled"] == "1") {
		return errors.New("it has not yet written what it was given while its appendonly was no")
	}
	n.unkept.Store(false)
	n.survives.Store(int32(s))
	n.rest.Store(int32(left))
	return nil
}

// judge says how much is kept by a Redis that says this of itself, or why it is not used.
func (r *Redis) judge(l *glance) (s survival, left rest, err error) {
	major, _, _ := strings.Cut(l.info["redis_version"], ".")
	version, _ := strconv.Atoi(major)
	switch policy := l.info["maxmemory_policy"]; {
	case version < 7:
		return 0, 0, &refusal{text: "it is version " + l.info["redis_version"] + ", and 7 is the first that does"}
	case l.info["cluster_enabled"] == "1" && !r.where.is("cluster"):
		return 0, 0, &refusal{text: "it is part of a Cluster: its URL should begin with redis+cluster://"}
	case l.info["role"] != "master" && (r.where.is("cluster") || r.where.is("sentinel")): // which is for now
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
		left = restRefused
	case is == "yes":
		left = restKept
	default:
		left = restUnknown
	}
	return s, left, nil
}

// durability finds out what survives, and says why that is not all.
func durability(l *glance) (s survival, why string) {
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
