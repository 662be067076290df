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

// Limits of the cloud.
const (
	maxResources = 500      // buckets, objects, instances and so on, together
	maxBody      = 64 << 10 // bytes of one object, item, message or payload
	maxTags      = 50
)

// A cloud is a cloud account that exists only in memory. It behaves like the real services in the ways
// that a user of its tools notices: a resource must exist, a name can be used once, and only an empty
// bucket can be deleted.
type cloud struct {
	mu     sync.Mutex
	used   int // how many resources exist
	lastID int // the number in the last new id

	buckets   map[string]*bucket
	instances map[string]*instance
	groups    map[string]*securityGroup
	functions map[string]*function
	tables    map[string]*itemTable
	users     map[string]*user
	queues    map[string]*messageQueue
	alarms    map[string]*alarm
	logs      map[string][]logEvent // by group
}

// newAWS creates the account and its 63 tools. Tools that only read are readonly. Tools that grant
// rights or cannot be undone require a person's approval.
func newAWS(Options) (*sampleServer, func(), error) {
	c := &cloud{
		buckets:   map[string]*bucket{},
		instances: map[string]*instance{},
		groups:    map[string]*securityGroup{},
		functions: map[string]*function{},
		tables:    map[string]*itemTable{},
		users:     map[string]*user{},
		queues:    map[string]*messageQueue{},
		alarms:    map[string]*alarm{},
		logs:      map[string][]logEvent{},
	}
	b := &sampleServer{
		name: "aws-like", title: "AWS-like cloud", position: onTool,
		instructions: "Works on one account of a cloud that is kept in memory: storage, machines, functions, tables, queues, users, logs.",
	}
	c.addS3(b)
	c.addEC2(b)
	c.addLambda(b)
	c.addDynamoDB(b)
	c.addIAM(b)
	c.addSQS(b)
	c.addWatch(b)
	c.addExamples()
	return b, func() {}, nil
}

// The capabilities of the tools.
var (
	cloudRead    = newCapability("read", "aws", "readonly")
	cloudWrite   = newCapability("write", "aws")
	cloudDestroy = newCapability("write", "aws", "human_in_the_loop")
	cloudExecute = newCapability("execute", "aws")
)

// addCloudTool adds a tool that works on the cloud. Its result is encoded while the cloud is locked,
// so that no later call changes it.
func addCloudTool[A any](c *cloud, b *sampleServer, does capability, name, description string, do func(A) (any, error)) {
	opts := []mcp.ToolOption{withDestructiveHint(slices.Contains(does.Constraints, "human_in_the_loop"))}
	addTool(b, name, description, does, func(_ context.Context, a A) (any, error) {
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

// jsonObject is a short name for the type of results.
type jsonObject = map[string]any

// reserve counts one more resource, up to the limit.
func (c *cloud) reserve() error {
	if c.used == maxResources {
		return fmt.Errorf("LimitExceeded: the account holds %d things already; delete some first", maxResources)
	}
	c.used++
	return nil
}

// newID returns an id such as "i-0000000000000001".
func (c *cloud) newID(prefix string) string {
	c.lastID++
	return fmt.Sprintf("%s-%016x", prefix, c.lastID)
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

// findThing returns a resource by its name.
func findThing[T any](in map[string]T, code, what, name string) (T, error) {
	t, ok := in[name]
	if !ok {
		return t, fmt.Errorf("%s: there is no %s %.80q", code, what, name)
	}
	return t, nil
}

// checkFree returns an error if a name is used.
func checkFree[T any](in map[string]T, code, what, name string) error {
	if _, ok := in[name]; ok {
		return fmt.Errorf("%s: there is a %s %q already", code, what, name)
	}
	return nil
}

// sortedKeys returns the keys of m, sorted.
func sortedKeys[T any](m map[string]T) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// addExamples adds a few resources, so that there is something to read.
func (c *cloud) addExamples() {
	c.buckets["reports"] = &bucket{Objects: map[string]*s3Object{
		"2026/q3/incidents.csv": {Body: "day,kind,count\n2026-07-04,domain spoofing,3\n2026-08-19,phishing,11\n", Type: "text/csv"},
		"readme.txt":            {Body: "Reports of the security team.\n", Type: "text/plain"},
	}}
	c.groups["sg-default"] = &securityGroup{ID: "sg-default", Name: "default", Rules: []ingressRule{}}
	c.instances["i-00000000000000a1"] = &instance{ID: "i-00000000000000a1", Type: "t4.small", State: "running", Group: "sg-default", Tags: map[string]string{"Name": "mail-gateway"}}
	c.functions["greet"] = &function{Name: "greet", Handler: "template", Config: map[string]string{"template": "Hello, {{name}}!"}}
	c.tables["domains"] = &itemTable{Key: "domain", Items: map[string]jsonObject{
		"login-acme.example": {"domain": "login-acme.example", "status": "suspended", "seen": 4.0},
		"acrne.example":      {"domain": "acrne.example", "status": "active", "seen": 17.0},
	}}
	c.users["alice"] = &user{Name: "alice", Policies: []string{"ReadOnlyAccess"}}
	c.queues["alerts"] = &messageQueue{Name: "alerts"}
	c.logs["/mail-gateway"] = []logEvent{{1, "started"}, {2, "refused mail from acrne.example: DMARC reject"}}
	c.used = 11
}
