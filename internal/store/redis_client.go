package store

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisClient sends commands to a Redis. All parts of a Redis share it.
type redisClient struct {
	client      redis.UniversalClient
	keys        redisKeys
	url         redisURL
	relaxed     bool
	callTimeout time.Duration
	log         *slog.Logger

	background     context.Context // ended by Close
	stopBackground context.CancelFunc
	backgroundWork sync.WaitGroup // goroutines that run until Close
}

// redisKeys names the keys of a store. It is their prefix.
type redisKeys string

// The hash tag of a group or a log is its escaped name. Keys of no group and no log have a tag that no name is escaped
// to.
const ownTag = "{%}"

var keyEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// item returns the key of an item of the group. The escaped name has no braces, so the first closing
// brace ends the group.
func (k redisKeys) item(group, kind string) string {
	return string(k) + ":{" + keyEscaper.Replace(group) + "}" + kind
}

const (
	indexKind = "i"
	logKind   = "l"
	valueKind = "v:"
	meterKind = "m:"

	accountKind = "a"
	holdKind    = "h"
	endKind     = "e"
)

// own returns a key of no group and no log: the list of logs, the schema, the channel of notices.
func (k redisKeys) own(name string) string { return string(k) + ":" + ownTag + name }

// clusterMarks is the number of marks in a Cluster, evenly spread over its slots: so each node has some, and
// so has a node that slots are moved to.
const clusterMarks = 64

// marks returns the keys of the marks. The text in their braces is no name of a group; see ownTag.
func (k redisKeys) marks(cluster bool) []string {
	if !cluster {
		return []string{k.own("mark")}
	}
	keys, left := make([]string, clusterMarks), clusterMarks
	for i := 0; left > 0; i++ {
		tag := "%:" + strconv.Itoa(i)
		if at := slotOf(tag) * clusterMarks / clusterSlots; keys[at] == "" {
			keys[at] = string(k) + ":{" + tag + "}mark"
			left--
		}
	}
	return keys
}

// isOwn reports whether the key belongs to no group and no log.
func (k redisKeys) isOwn(key string) bool {
	return strings.HasPrefix(key, k.own("")) || strings.HasPrefix(key, string(k)+":{%:")
}

const clusterSlots = 16384

// slotOf returns the slot of a hash tag: CRC16, as XMODEM defines it
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
	return int(crc) % clusterSlots
}

// eachMaster calls visit for each node that is written to, in a Cluster at the same time.
func (r *redisClient) eachMaster(ctx context.Context, visit func(context.Context, *redis.Client) error) error {
	switch c := r.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, visit)
	case *redis.Client:
		return visit(ctx, c)
	default:
		return fmt.Errorf("an unexpected kind of client: %T", c)
	}
}

// redisSchema is the version of the format of keys and values, which redisKeys, apply.lua, append.lua, take.lua
// and account.lua define. Version 2 has accounts: an older Switchboard would leave them out of an export.
const redisSchema = 2

// redisMigrations[i] changes schema i+1 to schema i+2. A migration may run twice, also at the same time.
var redisMigrations = [redisSchema - 1]func(context.Context, *redisClient) error{
	func(context.Context, *redisClient) error { return nil },
}

// migrateSchema migrates the data in Redis to the schema of this program, and stores its version. It refuses
// a newer schema.
func (r *redisClient) migrateSchema(ctx context.Context) error {
	return r.migrateWith(ctx, redisMigrations[:])
}

func (r *redisClient) migrateWith(ctx context.Context, steps []func(context.Context, *redisClient) error) error {
	key, newest := r.keys.own("schema"), len(steps)+1
	if err := r.client.SetNX(ctx, key, newest, 0).Err(); err != nil {
		return err
	}
	for {
		found, err := r.client.Get(ctx, key).Int()
		switch {
		case err != nil:
			return err
		case found > newest:
			return &refusal{text: fmt.Sprintf("a newer Switchboard wrote it: its schema is %d, and this Switchboard knows up to %d", found, newest)}
		case found < 1:
			return &refusal{text: fmt.Sprintf("its schema is %d, and there is no such schema", found)}
		case found == newest:
			return nil
		}
		if err := steps[found-1](ctx, r); err != nil {
			return err
		}
		if err := r.client.Set(ctx, key, found+1, 0).Err(); err != nil { // another replica may have written the same
			return err
		}
	}
}
