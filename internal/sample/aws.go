package sample

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
)

// Bounds of the cloud.
const (
	maxThings = 500      // buckets, objects, instances and so on, together
	maxBody   = 64 << 10 // bytes of one object, item, message or payload
	maxTags   = 50
)

// A cloud is an account of a cloud that exists in memory only. It behaves like
// the real services where that matters to somebody who tries a tool: things
// must exist, names are taken once, a bucket that is not empty is not deleted.
type cloud struct {
	mu     sync.Mutex
	things int // how much of maxThings is used
	last   int // number of the last id that was made

	buckets   map[string]*bucket
	instances map[string]*instance
	groups    map[string]*securityGroup
	functions map[string]*function
	tables    map[string]*table
	users     map[string]*user
	queues    map[string]*queue
	alarms    map[string]*alarm
	logs      map[string][]logEvent // by group
}

// newAWS makes the account and the tools for it, 63 of them. What only reads
// is readonly; what gives away rights or cannot be undone asks for a person.
func newAWS(Options) (*bench, func(), error) {
	c := &cloud{
		buckets:   map[string]*bucket{},
		instances: map[string]*instance{},
		groups:    map[string]*securityGroup{},
		functions: map[string]*function{},
		tables:    map[string]*table{},
		users:     map[string]*user{},
		queues:    map[string]*queue{},
		alarms:    map[string]*alarm{},
		logs:      map[string][]logEvent{},
	}
	b := &bench{
		name: "aws-like", title: "AWS-like cloud", place: onTool,
		instructions: "Works on one account of a cloud that is kept in memory: storage, machines, functions, tables, queues, users, logs.",
	}
	c.addS3(b)
	c.addEC2(b)
	c.addLambda(b)
	c.addDynamoDB(b)
	c.addIAM(b)
	c.addSQS(b)
	c.addWatch(b)
	c.seed()
	return b, func() {}, nil
}

// What a tool of the cloud does.
var (
	readsCloud    = can("read", "aws", "readonly")
	writesCloud   = can("write", "aws")
	destroysCloud = can("write", "aws", "human_in_the_loop")
	runsInCloud   = can("execute", "aws")
)

// on puts a tool on the bench that works on the cloud. Its result is encoded
// while the cloud is locked, so that no later call changes it on the way.
func on[A any](c *cloud, b *bench, does capability, name, description string, do func(A) (any, error)) {
	opts := []mcp.ToolOption{destroys(slices.Contains(does.Constraints, "human_in_the_loop"))}
	add(b, name, description, does, func(_ context.Context, a A) (any, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		result, err := do(a)
		if err != nil {
			return nil, err
		}
		raw, err := json.Marshal(result)
		return json.RawMessage(raw), err
	}, opts...)
}

// object is a short name for a result.
type object = map[string]any

// take counts one thing more.
func (c *cloud) take() error {
	if c.things == maxThings {
		return fmt.Errorf("LimitExceeded: the account holds %d things already; delete some first", maxThings)
	}
	c.things++
	return nil
}

// id makes an id as "i-0000000000000001".
func (c *cloud) id(prefix string) string {
	c.last++
	return fmt.Sprintf("%s-%016x", prefix, c.last)
}

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	plainName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

func checkName(what, name string, form *regexp.Regexp) error {
	if !form.MatchString(name) {
		return fmt.Errorf("ValidationError: %s %.80q: want a name of the form %s", what, name, form)
	}
	return nil
}

func checkBody(what, body string) error {
	if len(body) > maxBody {
		return fmt.Errorf("EntityTooLarge: %s has %d bytes; at most %d are allowed", what, len(body), maxBody)
	}
	return nil
}

func checkTags(tags map[string]string) error {
	if len(tags) > maxTags {
		return fmt.Errorf("InvalidTag: %d tags; at most %d are allowed", len(tags), maxTags)
	}
	for k, v := range tags {
		if k == "" || len(k) > 128 || len(v) > 256 {
			return fmt.Errorf("InvalidTag: tag %.40q: want a key of 1 to 128 bytes and a value of at most 256", k)
		}
	}
	return nil
}

// get finds a thing by its name.
func get[T any](in map[string]T, code, what, name string) (T, error) {
	t, ok := in[name]
	if !ok {
		return t, fmt.Errorf("%s: there is no %s %.80q", code, what, name)
	}
	return t, nil
}

// free reports an error where a name is taken.
func free[T any](in map[string]T, code, what, name string) error {
	if _, ok := in[name]; ok {
		return fmt.Errorf("%s: there is a %s %q already", code, what, name)
	}
	return nil
}

// sorted returns the keys of m in order.
func sorted[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// seed puts a few things into the account, so that there is something to read.
func (c *cloud) seed() {
	c.buckets["reports"] = &bucket{Objects: map[string]*s3Object{
		"2026/q3/incidents.csv": {Body: "day,kind,count\n2026-07-04,domain spoofing,3\n2026-08-19,phishing,11\n", Type: "text/csv"},
		"readme.txt":            {Body: "Reports of the security team.\n", Type: "text/plain"},
	}}
	c.groups["sg-default"] = &securityGroup{ID: "sg-default", Name: "default", Rules: []rule{}}
	c.instances["i-00000000000000a1"] = &instance{ID: "i-00000000000000a1", Type: "t4.small", State: "running", Group: "sg-default", Tags: map[string]string{"Name": "mail-gateway"}}
	c.functions["greet"] = &function{Name: "greet", Handler: "template", Config: map[string]string{"template": "Hello, {{name}}!"}}
	c.tables["domains"] = &table{Key: "domain", Items: map[string]object{
		"login-acme.example": {"domain": "login-acme.example", "status": "suspended", "seen": 4.0},
		"acrne.example":      {"domain": "acrne.example", "status": "active", "seen": 17.0},
	}}
	c.users["alice"] = &user{Name: "alice", Policies: []string{"ReadOnlyAccess"}}
	c.queues["alerts"] = &queue{Name: "alerts"}
	c.logs["/mail-gateway"] = []logEvent{{1, "started"}, {2, "refused mail from acrne.example: DMARC reject"}}
	c.things = 11
}
