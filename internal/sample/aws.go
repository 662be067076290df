package sample

import (
	"context"
	_ "embed" // for aws.json
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
	c.addExamples()
	return b, func() {}, c.addTools(b)
}

//go:embed aws.json
var cloudTools []byte

// A cloudTool is one definition in aws.json.
type cloudTool struct {
	Name        string          `json:"name"`
	Does        string          `json:"does"` // a key of cloudCapabilities
	Description string          `json:"description"`
	Input       json.RawMessage `json:"input"`
}

// cloudCapabilities has the capabilities of a tool, by its effect.
var cloudCapabilities = map[string]capability{
	"read":    newCapability("read", "aws", "readonly"),
	"write":   newCapability("write", "aws"),
	"destroy": newCapability("write", "aws", "human_in_the_loop"),
	"execute": newCapability("execute", "aws"),
}

// A cloudHandler executes the tool called name. The cloud is locked.
type cloudHandler func(name string, arguments json.RawMessage) (any, error)

// decoding returns the handler for a tool with arguments of the type A.
func decoding[A any](do func(A) (any, error)) cloudHandler {
	return func(name string, arguments json.RawMessage) (any, error) {
		a, err := decodeArguments[A](name, arguments)
		if err != nil {
			return nil, err
		}
		return do(a)
	}
}

// handlers are the handlers of the tools, by name.
func (c *cloud) handlers() map[string]cloudHandler {
	s3 := s3Service{c}
	ec2 := ec2Service{c}
	lambda := lambdaService{c}
	dynamo := dynamoService{c}
	iam := iamService{c}
	sqs := sqsService{c}
	watch := watchService{c}
	return map[string]cloudHandler{
		"s3_list_buckets":                 decoding(s3.listBuckets),
		"s3_create_bucket":                decoding(s3.createBucket),
		"s3_delete_bucket":                decoding(s3.deleteBucket),
		"s3_list_objects":                 decoding(s3.listObjects),
		"s3_get_object":                   decoding(s3.getObject),
		"s3_head_object":                  decoding(s3.headObject),
		"s3_put_object":                   decoding(s3.putObject),
		"s3_copy_object":                  decoding(s3.copyObject),
		"s3_delete_object":                decoding(s3.deleteObject),
		"s3_get_bucket_tagging":           decoding(s3.getBucketTagging),
		"s3_put_bucket_tagging":           decoding(s3.putBucketTagging),
		"ec2_describe_instances":          decoding(ec2.describeInstances),
		"ec2_describe_instance_types":     decoding(ec2.describeInstanceTypes),
		"ec2_describe_regions":            decoding(ec2.describeRegions),
		"ec2_run_instances":               decoding(ec2.runInstances),
		"ec2_start_instance":              decoding(ec2.startInstance),
		"ec2_stop_instance":               decoding(ec2.stopInstance),
		"ec2_reboot_instance":             decoding(ec2.rebootInstance),
		"ec2_terminate_instance":          decoding(ec2.terminateInstance),
		"ec2_create_tags":                 decoding(ec2.createTags),
		"ec2_describe_security_groups":    decoding(ec2.describeSecurityGroups),
		"ec2_create_security_group":       decoding(ec2.createSecurityGroup),
		"ec2_delete_security_group":       decoding(ec2.deleteSecurityGroup),
		"ec2_authorize_ingress":           decoding(ec2.authorizeIngress),
		"ec2_revoke_ingress":              decoding(ec2.revokeIngress),
		"lambda_list_functions":           decoding(lambda.listFunctions),
		"lambda_list_handlers":            decoding(lambda.listHandlers),
		"lambda_get_function":             decoding(lambda.getFunction),
		"lambda_create_function":          decoding(lambda.createFunction),
		"lambda_update_configuration":     decoding(lambda.updateConfiguration),
		"lambda_delete_function":          decoding(lambda.deleteFunction),
		"lambda_invoke":                   decoding(lambda.invoke),
		"dynamodb_list_tables":            decoding(dynamo.listTables),
		"dynamodb_describe_table":         decoding(dynamo.describeTable),
		"dynamodb_create_table":           decoding(dynamo.createTable),
		"dynamodb_delete_table":           decoding(dynamo.deleteTable),
		"dynamodb_put_item":               decoding(dynamo.putItem),
		"dynamodb_get_item":               decoding(dynamo.getItem),
		"dynamodb_delete_item":            decoding(dynamo.deleteItem),
		"dynamodb_query":                  decoding(dynamo.query),
		"dynamodb_scan":                   decoding(dynamo.scan),
		"iam_list_users":                  decoding(iam.listUsers),
		"iam_get_user":                    decoding(iam.getUser),
		"iam_create_user":                 decoding(iam.createUser),
		"iam_delete_user":                 decoding(iam.deleteUser),
		"iam_list_policies":               decoding(iam.listPolicies),
		"iam_list_attached_user_policies": decoding(iam.listAttachedUserPolicies),
		"iam_attach_user_policy":          decoding(iam.attachUserPolicy),
		"iam_detach_user_policy":          decoding(iam.detachUserPolicy),
		"iam_simulate_principal_policy":   decoding(iam.simulatePrincipalPolicy),
		"sqs_list_queues":                 decoding(sqs.listQueues),
		"sqs_get_queue_attributes":        decoding(sqs.getQueueAttributes),
		"sqs_create_queue":                decoding(sqs.createQueue),
		"sqs_delete_queue":                decoding(sqs.deleteQueue),
		"sqs_send_message":                decoding(sqs.sendMessage),
		"sqs_receive_message":             decoding(sqs.receiveMessage),
		"sqs_delete_message":              decoding(sqs.deleteMessage),
		"logs_describe_log_groups":        decoding(watch.describeLogGroups),
		"logs_get_log_events":             decoding(watch.getLogEvents),
		"cloudwatch_describe_alarms":      decoding(watch.describeAlarms),
		"cloudwatch_get_metrics":          decoding(watch.getMetrics),
		"cloudwatch_put_alarm":            decoding(watch.putAlarm),
		"cloudwatch_delete_alarm":         decoding(watch.deleteAlarm),
	}
}

// addTools adds the tools of aws.json. A result is encoded while the cloud is locked, so that no later call changes it.
func (c *cloud) addTools(b *sampleServer) error {
	var tools []cloudTool
	if err := json.Unmarshal(cloudTools, &tools); err != nil {
		return err
	}
	handlers := c.handlers()
	for _, t := range tools {
		does, handle := cloudCapabilities[t.Does], handlers[t.Name]
		if handle == nil {
			return fmt.Errorf("tool %s has no handler", t.Name)
		}
		opts := []mcp.ToolOption{mcp.WithDescription(t.Description), withInput(t.Input), withDestructiveHint(t.Does == "destroy")}
		b.addRaw(t.Name, does, func(_ context.Context, arguments json.RawMessage) (any, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			result, err := handle(t.Name, arguments)
			if err != nil {
				return nil, err
			}
			raw, err := json.Marshal(result)
			return json.RawMessage(raw), err
		}, opts...)
	}
	return nil
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

// The forms of names. They are compiled at their first use, because a regexp that counts takes memory for each count.
var (
	bucketName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`) })
	plainName  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })
)

func checkName(what, name string, form func() *regexp.Regexp) error {
	if !form().MatchString(name) {
		return fmt.Errorf("ValidationError: %s %.80q: want a name of the form %s", what, name, form())
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

// create adds a resource with a valid name that is not used yet.
func create[T any](c *cloud, in map[string]T, code, what, name string, form func() *regexp.Regexp, made T) error {
	if err := checkName(what, name, form); err != nil {
		return err
	}
	if err := checkFree(in, code, what, name); err != nil {
		return err
	}
	if err := c.reserve(); err != nil {
		return err
	}
	in[name] = made
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
