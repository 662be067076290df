package store

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/redistest"
)

// Patiently returns o with a long timeout, for tests that do not measure time, on a busy machine.
func (o RedisOptions) Patiently() RedisOptions {
	o.callTimeout = 30 * time.Second
	return o
}

func TestARedisURLIsParsed(t *testing.T) {
	for from, want := range map[string]string{
		"redis://localhost":                                "redis://localhost:6379",
		"redis://10.0.0.1:7000/2":                          "redis://10.0.0.1:7000/2",
		"redis://[::1]":                                    "redis://[::1]:6379",
		"redis://[::1]:7000/":                              "redis://[::1]:7000",
		"rediss://me:s3cr%40t@a.example:6380":              "rediss://a.example:6380",
		"redis://:s3cr@t:/@a.example":                      "redis://a.example:6379",
		"redis+cluster://a,b:7001,[::1]:7002":              "redis+cluster://a:6379,b:7001,[::1]:7002",
		"rediss+cluster://me:s3cret@a":                     "rediss+cluster://a:6379",
		"redis+sentinel://s3cret@a,b:1/main":               "redis+sentinel://a:26379,b:1/main",
		"redis+sentinel://:s3cret@a/main/3":                "redis+sentinel://a:26379/main/3",
		"redis+sentinel://a":                               "",
		"redis+cluster://a,b/1":                            "",
		"redis://a,b":                                      "",
		"redis://":                                         "",
		"redis://:s3cret@":                                 "",
		"redis://a/zero":                                   "",
		"redis://a/-1":                                     "",
		"redis://a:0":                                      "",
		"redis://a:s3cret":                                 "",
		"redis://a:99999":                                  "",
		"redis://::1":                                      "",
		"redis://me:s3cret%zz@a":                           "",
		"redis://a?password=s3cret":                        "",
		"http://me:s3cret@a":                               "",
		"s3cret":                                           "",
		"redis+sentinel://me:s3cret@a,,b/main":             "",
		"redis+cluster://me:s3cret@a:7000,b:7001:7002,c:1": "",
	} {
		p, err := parseRedisURL(from)
		got := p.String()
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%s: %q, %v; want %q", from, got, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr") || strings.Contains(p.String(), "s3cr") {
			t.Errorf("%s: the password is in %q, %v", from, p, err)
		}
	}
	p, err := parseRedisURL("redis://m%3Ae:s3cr%40t%25:/@a")
	if err != nil || p.user != "m:e" || p.password != "s3cr@t%:/" {
		t.Errorf("user %q, password %q, %v", p.user, p.password, err)
	}
}

func TestThePasswordOfTheOptionsIsUsed(t *testing.T) {
	for _, from := range []string{"redis://me:old@a", "redis+cluster://me:old@a", "redis+sentinel://me:old@a/main"} {
		p, err := parseRedisURL(from)
		if err != nil {
			t.Fatal(err)
		}
		c := p.client(&RedisOptions{Password: switchboard.NewSecret("new")}, nil)
		var got string
		switch c := c.(type) {
		case *redis.Client:
			got = c.Options().Username + ":" + c.Options().Password
		case *redis.ClusterClient:
			got = c.Options().Username + ":" + c.Options().Password
		}
		if got != "me:new" {
			t.Errorf("%s: %s", from, got)
		}
		_ = c.Close()
	}
}

// Each key belongs to one item, and all keys of a group to one slot.
func TestKeysAreUniqueAndGroupsShareATag(t *testing.T) {
	name := rapid.StringOfN(rapid.SampledFrom([]rune("a{}%:ilvm25B")), 1, 6, -1)
	kind := rapid.SampledFrom([]string{indexKind, logKind, valueKind, meterKind, accountKind, holdKind, endKind})
	type thing struct{ group, kind, name string }
	draw := func(t *rapid.T) thing {
		d := thing{name.Draw(t, "group"), kind.Draw(t, "kind"), ""}
		if d.kind == valueKind || d.kind == meterKind {
			d.name = name.Draw(t, "name")
		}
		return d
	}
	keys := redisKeys("p")
	tag := func(key string) string {
		_, tag, _ := strings.Cut(key, "{")
		tag, _, ok := strings.Cut(tag, "}")
		if !ok || tag == "" {
			return key
		}
		return tag
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t), draw(t)
		keyA, keyB := keys.item(a.group, a.kind+a.name), keys.item(b.group, b.kind+b.name)
		if (a == b) != (keyA == keyB) {
			t.Fatalf("%q and %q: %s, %s", a, b, keyA, keyB)
		}
		if (a.group == b.group) != (tag(keyA) == tag(keyB)) {
			t.Fatalf("%q and %q have the tags %s and %s", a, b, tag(keyA), tag(keyB))
		}
		if tag(keyA) == strings.Trim(ownTag, "{}") {
			t.Fatalf("%q has the tag of keys without a group", a)
		}
	})
}

func TestASchemaIsMigratedStepByStep(t *testing.T) {
	s := redistest.Start(t)
	r, err := OpenRedis(t.Context(), s.URL(), RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing is lost
	var made []int
	var broken error
	step := func(n int) func(context.Context, *redisClient) error {
		return func(context.Context, *redisClient) error { made = append(made, n); return broken }
	}
	key := r.keys.own("schema")
	if got := s.Do("get", key); got != "2" {
		t.Fatalf("a new one has schema %v", got)
	}
	s.Do("set", key, 1)
	if err := r.migrateSchema(t.Context()); err != nil || s.Do("get", key) != "2" {
		t.Fatalf("%v, then schema %v", err, s.Do("get", key))
	}
	s.Do("set", key, 1)
	steps := []func(context.Context, *redisClient) error{step(1), step(2)}
	if err := r.migrateWith(t.Context(), steps); err != nil || len(made) != 2 || made[0] != 1 || made[1] != 2 || s.Do("get", key) != "3" {
		t.Fatalf("%v, %v, then schema %v", made, err, s.Do("get", key))
	}
	if err := r.migrateWith(t.Context(), steps); err != nil || len(made) != 2 {
		t.Fatalf("again: %v, %v", made, err)
	}
	broken = errors.New("broken")
	if err := r.migrateWith(t.Context(), append(steps, step(3))); !errors.Is(err, broken) || s.Do("get", key) != "3" {
		t.Fatalf("%v, then schema %v", err, s.Do("get", key))
	}
	if _, err := OpenRedis(t.Context(), s.URL(), RedisOptions{}); err == nil || !strings.Contains(err.Error(), "newer") {
		t.Fatalf("OpenRedis of a newer schema: %v", err)
	}
}

// A person accepts a loss while a replica examines a node, and another node tells the replica of it first. What
// was read of this node before that is no loss.
func TestNames15AReportFromBeforeAnAcceptanceIsReadAgain(t *testing.T) {
	s := redistest.Start(t)
	r, err := OpenRedis(t.Context(), s.URL(), RedisOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing is lost
	c := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(r.url.String(), "redis://")})
	defer c.Close() //nolint:errcheck // it was only read
	marks := &r.marks.losses
	c.AddHook(afterReport(sync.OnceFunc(func() {
		marks.mu.Lock()
		defer marks.mu.Unlock()
		marks.mark.turn++
		for _, key := range marks.markKeys {
			s.Do("set", key, marks.mark.String())
		}
	})))
	if err := r.monitor.examineNode(t.Context(), &redisNode{}, c); err != nil {
		t.Error(err)
	}
	marks.mu.Lock()
	now := marks.mark
	marks.mu.Unlock()
	if now.turn != 2 {
		t.Fatalf("turn %d", now.turn)
	}
	s.Do("set", marks.markKeys[0], storeMark{id: now.id, turn: 1}.String())
	if err := r.monitor.examineNode(t.Context(), &redisNode{}, c); !isRefusal(err) || !strings.Contains(err.Error(), "before a person accepted") {
		t.Errorf("a node with the mark of an earlier turn: %v", err)
	}
}

// An afterReport is called after a report was read by a client.
type afterReport func()

func (do afterReport) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (do afterReport) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (do afterReport) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		err := next(ctx, all)
		if all[0].Name() == "info" { // a new connection has a pipeline of its own
			do()
		}
		return err
	}
}
