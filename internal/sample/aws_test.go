package sample_test

import (
	"fmt"
	"strings"
	"testing"
)

// A step is one call to the cloud, and a part of its result. "!" before that part means that the call
// must fail.
type step struct {
	tool string
	args jsonObject
	want string
}

func TestCloudKeepsItsPromises(t *testing.T) {
	for name, steps := range map[string][]step{
		"storage": {
			{"s3_create_bucket", jsonObject{"bucket": "logs"}, `"/logs"`},
			{"s3_create_bucket", jsonObject{"bucket": "logs"}, `!BucketAlreadyExists`},
			{"s3_create_bucket", jsonObject{"bucket": "No"}, `!ValidationError`},
			{"s3_put_object", jsonObject{"bucket": "logs", "key": "a/1", "body": "one"}, `"ETag":"7692c3ad3540bb803c020b3aee66cd88"`},
			{"s3_put_object", jsonObject{"bucket": "logs", "key": "a/2", "body": "two", "content_type": "text/csv"}, `ETag`},
			{"s3_put_object", jsonObject{"bucket": "absent", "key": "a", "body": ""}, `!NoSuchBucket`},
			{"s3_put_object", jsonObject{"bucket": "logs", "key": "big", "body": strings.Repeat("x", 1<<16+1)}, `!EntityTooLarge`},
			{"s3_put_object", jsonObject{"bucket": "logs", "key": "", "body": "x"}, `!key is empty`},
			{"s3_get_object", jsonObject{"bucket": "logs", "key": "a/1"}, `"Body":"one"`},
			{"s3_get_object", jsonObject{"bucket": "logs", "key": "a/9"}, `!NoSuchKey`},
			{"s3_head_object", jsonObject{"bucket": "logs", "key": "a/2"}, `"ContentType":"text/csv"`},
			{"s3_copy_object", jsonObject{"bucket": "logs", "key": "a/1", "to_bucket": "logs", "to_key": "b/1"}, `ETag`},
			{"s3_put_object", jsonObject{"bucket": "logs", "key": "a/1", "body": "changed"}, `ETag`},
			{"s3_get_object", jsonObject{"bucket": "logs", "key": "b/1"}, `"Body":"one"`},
			{"s3_list_objects", jsonObject{"bucket": "logs", "max_keys": 2}, `"IsTruncated":true`},
			{"s3_list_objects", jsonObject{"bucket": "logs", "prefix": "a/", "after": "a/1"}, `{"Contents":[{"ContentType":"text/csv"`},
			{"s3_list_objects", jsonObject{"bucket": "logs", "max_keys": 1001}, `!1 to 1000`},
			{"s3_put_bucket_tagging", jsonObject{"bucket": "logs", "tags": jsonObject{"team": "sec"}}, `"team":"sec"`},
			{"s3_put_bucket_tagging", jsonObject{"bucket": "logs", "tags": jsonObject{"": "x"}}, `!InvalidTag`},
			{"s3_get_bucket_tagging", jsonObject{"bucket": "logs"}, `"team":"sec"`},
			{"s3_delete_bucket", jsonObject{"bucket": "logs"}, `!BucketNotEmpty`},
			{"s3_delete_object", jsonObject{"bucket": "logs", "key": "a/1"}, `a/1`},
			{"s3_delete_object", jsonObject{"bucket": "logs", "key": "a/1"}, `!NoSuchKey`},
			{"s3_delete_object", jsonObject{"bucket": "logs", "key": "a/2"}, `a/2`},
			{"s3_delete_object", jsonObject{"bucket": "logs", "key": "b/1"}, `b/1`},
			{"s3_delete_bucket", jsonObject{"bucket": "logs"}, `logs`},
			{"s3_list_buckets", jsonObject{}, `{"Buckets":["reports"]}`},
		},
		"machines": {
			{"ec2_describe_instance_types", jsonObject{}, `t4.micro`},
			{"ec2_describe_regions", jsonObject{}, `eu-central-1`},
			{"ec2_run_instances", jsonObject{"instance_type": "t9.nano"}, `!InvalidParameterValue`},
			{"ec2_run_instances", jsonObject{"instance_type": "t4.micro", "count": 21}, `!1 to 20`},
			{"ec2_run_instances", jsonObject{"instance_type": "t4.micro", "group_id": "sg-none"}, `!InvalidGroup.NotFound`},
			{"ec2_create_security_group", jsonObject{"name": "web"}, `"GroupId":"sg-0000000000000001"`},
			{"ec2_create_security_group", jsonObject{"name": "WEB"}, `!InvalidGroup.Duplicate`},
			{"ec2_run_instances", jsonObject{"instance_type": "t4.micro", "group_id": "sg-0000000000000001", "tags": jsonObject{"Name": "www"}}, `"InstanceId":"i-0000000000000002"`},
			{"ec2_start_instance", jsonObject{"instance_id": "i-0000000000000002"}, `!IncorrectInstanceState`},
			{"ec2_stop_instance", jsonObject{"instance_id": "i-0000000000000002"}, `"CurrentState":"stopped"`},
			{"ec2_describe_instances", jsonObject{"state": "stopped"}, `"Name":"www"`},
			{"ec2_describe_instances", jsonObject{"state": "gone"}, `!state`},
			{"ec2_describe_instances", jsonObject{"instance_ids": []string{"i-1"}}, `!InvalidInstanceID.NotFound`},
			{"ec2_reboot_instance", jsonObject{"instance_id": "i-0000000000000002"}, `!IncorrectInstanceState`},
			{"ec2_start_instance", jsonObject{"instance_id": "i-0000000000000002"}, `"CurrentState":"running"`},
			{"ec2_reboot_instance", jsonObject{"instance_id": "i-0000000000000002"}, `running`},
			{"ec2_create_tags", jsonObject{"instance_id": "i-0000000000000002", "tags": jsonObject{"env": "test"}}, `{"Tags":{"Name":"www","env":"test"}}`},
			{"ec2_describe_instances", jsonObject{"instance_ids": []string{"i-0000000000000002"}}, `"Boots":3`},
			{"ec2_authorize_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 443, "cidr": "10.1.2.3/8"}, `{"Port":443,"CidrIp":"10.0.0.0/8"}`},
			{"ec2_authorize_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 443, "cidr": "10.0.0.0/8"}, `!InvalidPermission.Duplicate`},
			{"ec2_authorize_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 70000, "cidr": "10.0.0.0/8"}, `!1 to 65535`},
			{"ec2_authorize_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 1, "cidr": "all"}, `!range of addresses`},
			{"ec2_describe_security_groups", jsonObject{}, `"GroupName":"default"`},
			{"ec2_delete_security_group", jsonObject{"group_id": "sg-0000000000000001"}, `!DependencyViolation`},
			{"ec2_terminate_instance", jsonObject{"instance_id": "i-0000000000000002"}, `"CurrentState":"terminated"`},
			{"ec2_terminate_instance", jsonObject{"instance_id": "i-0000000000000002"}, `!NotFound`},
			{"ec2_revoke_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 443, "cidr": "10.0.0.0/8"}, `"IpPermissions":[]`},
			{"ec2_revoke_ingress", jsonObject{"group_id": "sg-0000000000000001", "port": 443, "cidr": "10.0.0.0/8"}, `!InvalidPermission.NotFound`},
			{"ec2_delete_security_group", jsonObject{"group_id": "sg-0000000000000001"}, `sg-0000000000000001`},
			{"ec2_terminate_instance", jsonObject{"instance_id": "i-00000000000000a1"}, `terminated`},
			{"ec2_delete_security_group", jsonObject{"group_id": "sg-default"}, `!CannotDelete`},
		},
		"functions, their logs and alarms": {
			{"lambda_invoke", jsonObject{"function_name": "greet", "payload": jsonObject{"name": "Ada"}}, `{"Payload":{"text":"Hello, Ada!"},"StatusCode":200}`},
			{"lambda_invoke", jsonObject{"function_name": "greet", "payload": jsonObject{"name": 7}}, `!FunctionError`},
			{"lambda_invoke", jsonObject{"function_name": "greet", "payload": jsonObject{"name": strings.Repeat("{{x}}", 12000), "x": "0123456789"}}, `!grows over`},
			{"lambda_invoke", jsonObject{"function_name": "absent"}, `!ResourceNotFoundException`},
			{"lambda_list_handlers", jsonObject{}, `["echo","sum","template"]`},
			{"lambda_create_function", jsonObject{"function_name": "add", "handler": "sum"}, `"Version":1`},
			{"lambda_create_function", jsonObject{"function_name": "add", "handler": "sum"}, `!ResourceConflictException`},
			{"lambda_create_function", jsonObject{"function_name": "x", "handler": "rm"}, `!no handler`},
			{"lambda_create_function", jsonObject{"function_name": "x y", "handler": "sum"}, `!ValidationError`},
			{"lambda_invoke", jsonObject{"function_name": "add", "payload": jsonObject{"numbers": []int{1, 2, 39}}}, `{"sum":42}`},
			{"lambda_invoke", jsonObject{"function_name": "add"}, `!no list`},
			{"lambda_update_configuration", jsonObject{"function_name": "greet", "environment": jsonObject{"template": "Bye."}}, `"Version":1`},
			{"lambda_invoke", jsonObject{"function_name": "greet"}, `Bye.`},
			{"lambda_get_function", jsonObject{"function_name": "greet"}, `"Invocations":4,"Errors":2`},
			{"cloudwatch_get_metrics", jsonObject{"function_name": "add"}, `{"Errors":1,"Invocations":2}`},
			{"cloudwatch_put_alarm", jsonObject{"alarm_name": "adds", "function_name": "add", "metric": "Invocations", "threshold": 3}, `"State":"OK"`},
			{"cloudwatch_put_alarm", jsonObject{"alarm_name": "adds", "function_name": "add", "metric": "Mood", "threshold": 3}, `!metric`},
			{"cloudwatch_put_alarm", jsonObject{"alarm_name": "adds", "function_name": "add", "metric": "Errors", "threshold": 0}, `!1 or more`},
			{"lambda_invoke", jsonObject{"function_name": "add", "payload": jsonObject{"numbers": []int{}}}, `{"sum":0}`},
			{"cloudwatch_describe_alarms", jsonObject{}, `"State":"ALARM"`},
			{"logs_describe_log_groups", jsonObject{}, `{"LogGroups":["/lambda/add","/lambda/greet","/mail-gateway"]}`},
			{"logs_get_log_events", jsonObject{"log_group": "/lambda/add", "contains": "error"}, `{"Events":[{"Sequence":2,"Message":"error: payload has no list`},
			{"logs_get_log_events", jsonObject{"log_group": "/lambda/add", "limit": 1}, `{"Events":[{"Sequence":3,"Message":"ok"}]}`},
			{"logs_get_log_events", jsonObject{"log_group": "/none"}, `!ResourceNotFoundException`},
			{"lambda_delete_function", jsonObject{"function_name": "add"}, `add`},
			{"lambda_list_functions", jsonObject{}, `{"Functions":["greet"]}`},
			{"cloudwatch_describe_alarms", jsonObject{}, `INSUFFICIENT_DATA`},
			{"cloudwatch_delete_alarm", jsonObject{"alarm_name": "adds"}, `adds`},
			{"cloudwatch_delete_alarm", jsonObject{"alarm_name": "adds"}, `!ResourceNotFound`},
		},
		"tables": {
			{"dynamodb_list_tables", jsonObject{}, `["domains"]`},
			{"dynamodb_create_table", jsonObject{"table": "t", "key_attribute": "k"}, `{"ItemCount":0,"KeyAttribute":"k","TableName":"t"}`},
			{"dynamodb_create_table", jsonObject{"table": "t", "key_attribute": "k"}, `!ResourceInUseException`},
			{"dynamodb_put_item", jsonObject{"table": "t", "item": jsonObject{"v": 1}}, `!needs its key attribute`},
			{"dynamodb_put_item", jsonObject{"table": "t", "item": jsonObject{"k": "a1", "v": 1}}, `{"Replaced":null}`},
			{"dynamodb_put_item", jsonObject{"table": "t", "item": jsonObject{"k": "a1", "v": 2}}, `{"Replaced":{"k":"a1","v":1}}`},
			{"dynamodb_put_item", jsonObject{"table": "t", "item": jsonObject{"k": "a2", "v": 2}}, `null`},
			{"dynamodb_put_item", jsonObject{"table": "t", "item": jsonObject{"k": "b1", "v": 2}}, `null`},
			{"dynamodb_get_item", jsonObject{"table": "t", "key": "a1"}, `{"Item":{"k":"a1","v":2}}`},
			{"dynamodb_get_item", jsonObject{"table": "t", "key": "zz"}, `!ItemNotFound`},
			{"dynamodb_query", jsonObject{"table": "t", "key_prefix": "a"}, `{"Count":2,"Items":[{"k":"a1","v":2},{"k":"a2","v":2}]}`},
			{"dynamodb_query", jsonObject{"table": "t", "key_prefix": "", "limit": 1}, `"LastEvaluatedKey":"a1"`},
			{"dynamodb_query", jsonObject{"table": "t", "key_prefix": "", "after": "a2"}, `{"Count":1,"Items":[{"k":"b1","v":2}]}`},
			{"dynamodb_scan", jsonObject{"table": "domains", "equals": jsonObject{"seen": 17, "status": "active"}}, `{"Count":1,"Items":[{"domain":"acrne.example"`},
			{"dynamodb_scan", jsonObject{"table": "domains", "equals": jsonObject{"seen": "17"}}, `{"Count":0,"Items":[]}`},
			{"dynamodb_delete_item", jsonObject{"table": "t", "key": "b1"}, `{"Deleted":{"k":"b1","v":2}}`},
			{"dynamodb_describe_table", jsonObject{"table": "t"}, `"ItemCount":2`},
			{"dynamodb_delete_table", jsonObject{"table": "t"}, `"ItemCount":2`},
			{"dynamodb_describe_table", jsonObject{"table": "t"}, `!ResourceNotFoundException`},
		},
		"rights": {
			{"iam_create_user", jsonObject{"user_name": "bob"}, `"AttachedPolicies":[]`},
			{"iam_create_user", jsonObject{"user_name": "bob"}, `!EntityAlreadyExists`},
			{"iam_list_users", jsonObject{}, `["alice","bob"]`},
			{"iam_simulate_principal_policy", jsonObject{"user_name": "bob", "action": "s3:GetObject"}, `implicitDeny`},
			{"iam_attach_user_policy", jsonObject{"user_name": "bob", "policy": "Everything"}, `!no policy`},
			{"iam_attach_user_policy", jsonObject{"user_name": "bob", "policy": "S3ReadOnlyAccess"}, `["S3ReadOnlyAccess"]`},
			{"iam_simulate_principal_policy", jsonObject{"user_name": "bob", "action": "s3:GetObject"}, `{"EvalDecision":"allowed","MatchedPolicy":"S3ReadOnlyAccess"}`},
			{"iam_simulate_principal_policy", jsonObject{"user_name": "bob", "action": "s3:PutObject"}, `implicitDeny`},
			{"iam_simulate_principal_policy", jsonObject{"user_name": "alice", "action": "ec2:DescribeInstances"}, `ReadOnlyAccess`},
			{"iam_simulate_principal_policy", jsonObject{"user_name": "alice", "action": "everything"}, `!service:Action`},
			{"iam_delete_user", jsonObject{"user_name": "bob"}, `!DeleteConflict`},
			{"iam_list_attached_user_policies", jsonObject{"user_name": "bob"}, `S3ReadOnlyAccess`},
			{"iam_detach_user_policy", jsonObject{"user_name": "bob", "policy": "AdministratorAccess"}, `!NoSuchEntity`},
			{"iam_detach_user_policy", jsonObject{"user_name": "bob", "policy": "S3ReadOnlyAccess"}, `[]`},
			{"iam_delete_user", jsonObject{"user_name": "bob"}, `bob`},
			{"iam_get_user", jsonObject{"user_name": "bob"}, `!NoSuchEntity`},
			{"iam_list_policies", jsonObject{}, `AdministratorAccess`},
		},
		"queues": {
			{"sqs_create_queue", jsonObject{"queue": "q"}, `q`},
			{"sqs_create_queue", jsonObject{"queue": "q"}, `!QueueAlreadyExists`},
			{"sqs_receive_message", jsonObject{"queue": "q"}, `{"Messages":[]}`},
			{"sqs_send_message", jsonObject{"queue": "q", "body": "first"}, `"q-1"`},
			{"sqs_send_message", jsonObject{"queue": "q", "body": "second"}, `"q-2"`},
			{"sqs_receive_message", jsonObject{"queue": "q"}, `{"Messages":[{"Body":"first","ReceiptHandle":"q-1","ReceiveCount":1}]}`},
			{"sqs_receive_message", jsonObject{"queue": "q"}, `second`},
			{"sqs_receive_message", jsonObject{"queue": "q"}, `"ReceiptHandle":"q-1","ReceiveCount":2`},
			{"sqs_delete_message", jsonObject{"queue": "q", "receipt_handle": "q-1"}, `q-1`},
			{"sqs_delete_message", jsonObject{"queue": "q", "receipt_handle": "q-1"}, `!ReceiptHandleIsInvalid`},
			{"sqs_get_queue_attributes", jsonObject{"queue": "q"}, `{"ApproximateNumberOfMessages":1}`},
			{"sqs_delete_queue", jsonObject{"queue": "q"}, `q`},
			{"sqs_send_message", jsonObject{"queue": "q", "body": "x"}, `!QueueDoesNotExist`},
			{"sqs_list_queues", jsonObject{}, `["alerts"]`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := started(t, "aws-like", "")
			for i, s := range steps {
				text, isError := call(t, c, s.tool, s.args)
				want, wantError := strings.CutPrefix(s.want, "!")
				if isError != wantError || !strings.Contains(text, want) {
					t.Errorf("step %d, %s %.200v\n got (isError %v) %s\nwant %s", i, s.tool, s.args, isError, text, s.want)
				}
			}
		})
	}
}

func TestCloudIsBounded(t *testing.T) {
	c := started(t, "aws-like", "")
	// 11 resources exist from the start. A deleted one makes room for another.
	must(t, c, "sqs_create_queue", jsonObject{"queue": "q"})
	must(t, c, "sqs_send_message", jsonObject{"queue": "q", "body": "x"})
	must(t, c, "sqs_delete_queue", jsonObject{"queue": "q"})
	made := 0
	for ; made < 1000; made++ {
		text, isError := call(t, c, "s3_put_object", jsonObject{"bucket": "reports", "key": fmt.Sprint(made), "body": "x"})
		if isError {
			if !strings.Contains(text, "LimitExceeded") {
				t.Fatal(text)
			}
			break
		}
	}
	if made != 500-11 {
		t.Errorf("%d objects were stored, want %d", made, 500-11)
	}
	must(t, c, "s3_put_object", jsonObject{"bucket": "reports", "key": "0", "body": "replaced"})
	must(t, c, "s3_delete_object", jsonObject{"bucket": "reports", "key": "0"})
	must(t, c, "lambda_create_function", jsonObject{"function_name": "x", "handler": "echo"})
	refused(t, c, "lambda_create_function", jsonObject{"function_name": "y", "handler": "echo"}, "LimitExceeded")
}
