package sample

import (
	"fmt"
	"strings"
)

// Limits of queues and logs.
const (
	maxQueued    = 500 // messages of one queue
	maxLogGroups = 500
	maxLogEvents = 200 // of one group; the oldest are dropped
)

// A messageQueue hands its messages out in turn. A message stays in the queue until it is deleted.
type messageQueue struct {
	Name        string
	messages    []queued
	lastReceipt int
}

// A queued message has a receipt handle, by which it can be deleted.
type queued struct {
	Body     string `json:"Body"`
	Receipt  string `json:"ReceiptHandle"`
	Received int    `json:"ReceiveCount"`
}

// A logEvent is one line of a log.
type logEvent struct {
	Seq     int    `json:"Sequence"`
	Message string `json:"Message"`
}

// An alarm compares one metric of a function with a threshold.
type alarm struct {
	Name      string
	Function  string
	Metric    string // Invocations or Errors
	Threshold int
}

type queueArgs struct {
	Queue string `json:"queue" jsonschema:"name of the queue"`
}

func (c *cloud) findQueue(name string) (*messageQueue, error) {
	return findThing(c.queues, "QueueDoesNotExist", "queue", name)
}

// addSQS adds the tools for queues.
func (c *cloud) addSQS(b *sampleServer) {
	addCloudTool(c, b, cloudRead, "sqs_list_queues", "List the queues of the account.", func(struct{}) (any, error) {
		return jsonObject{"Queues": sortedKeys(c.queues)}, nil
	})
	addCloudTool(c, b, cloudRead, "sqs_get_queue_attributes", "Tell how many messages a queue holds.", func(a queueArgs) (any, error) {
		q, err := c.findQueue(a.Queue)
		if err != nil {
			return nil, err
		}
		return jsonObject{"ApproximateNumberOfMessages": len(q.messages)}, nil
	})
	addCloudTool(c, b, cloudWrite, "sqs_create_queue", "Create a queue.", func(a queueArgs) (any, error) {
		if err := checkName("queue", a.Queue, plainName); err != nil {
			return nil, err
		}
		if err := checkFree(c.queues, "QueueAlreadyExists", "queue", a.Queue); err != nil {
			return nil, err
		}
		if err := c.reserve(); err != nil {
			return nil, err
		}
		c.queues[a.Queue] = &messageQueue{Name: a.Queue}
		return jsonObject{"Queue": a.Queue}, nil
	})
	addCloudTool(c, b, cloudDestroy, "sqs_delete_queue", "Delete a queue with all its messages.", func(a queueArgs) (any, error) {
		q, err := c.findQueue(a.Queue)
		if err != nil {
			return nil, err
		}
		delete(c.queues, a.Queue)
		c.used -= 1 + len(q.messages)
		return jsonObject{"Deleted": a.Queue}, nil
	})
	addCloudTool(c, b, cloudWrite, "sqs_send_message", "Put a message into a queue.", func(a struct {
		Queue string `json:"queue" jsonschema:"name of the queue"`
		Body  string `json:"body" jsonschema:"the message, at most 64 KiB"`
	},
	) (any, error) {
		q, err := c.findQueue(a.Queue)
		if err != nil {
			return nil, err
		}
		if err := checkBody("the message", a.Body); err != nil {
			return nil, err
		}
		if len(q.messages) == maxQueued {
			return nil, fmt.Errorf("OverLimit: queue %q holds %d messages", a.Queue, maxQueued)
		}
		if err := c.reserve(); err != nil {
			return nil, err
		}
		q.lastReceipt++
		m := queued{Body: a.Body, Receipt: fmt.Sprintf("%s-%d", q.Name, q.lastReceipt)}
		q.messages = append(q.messages, m)
		return jsonObject{"ReceiptHandle": m.Receipt}, nil
	})
	addCloudTool(c, b, cloudWrite, "sqs_receive_message", "Take the first message of a queue. It goes to the end of the queue, and stays until it is deleted.", func(a queueArgs) (any, error) {
		q, err := c.findQueue(a.Queue)
		if err != nil {
			return nil, err
		}
		if len(q.messages) == 0 {
			return jsonObject{"Messages": []queued{}}, nil
		}
		m := q.messages[0]
		m.Received++
		q.messages = append(q.messages[1:], m)
		return jsonObject{"Messages": []queued{m}}, nil
	})
	addCloudTool(c, b, cloudWrite, "sqs_delete_message", "Delete a message that was received.", func(a struct {
		Queue   string `json:"queue" jsonschema:"name of the queue"`
		Receipt string `json:"receipt_handle" jsonschema:"as sqs_receive_message gave it"`
	},
	) (any, error) {
		q, err := c.findQueue(a.Queue)
		if err != nil {
			return nil, err
		}
		for i, m := range q.messages {
			if m.Receipt == a.Receipt {
				q.messages = append(q.messages[:i:i], q.messages[i+1:]...)
				c.used--
				return jsonObject{"Deleted": a.Receipt}, nil
			}
		}
		return nil, fmt.Errorf("ReceiptHandleIsInvalid: queue %q has no message %.80q", a.Queue, a.Receipt)
	})
}

// appendLog adds a line to a log group.
func (c *cloud) appendLog(group, text string) {
	events, ok := c.logs[group]
	if !ok && len(c.logs) == maxLogGroups {
		return
	}
	seq := 1
	if n := len(events); n > 0 {
		seq = events[n-1].Seq + 1
	}
	events = append(events, logEvent{seq, text})
	c.logs[group] = events[max(0, len(events)-maxLogEvents):]
}

// alarmState compares the current value of the alarm's metric with its threshold.
func (c *cloud) alarmState(a *alarm) string {
	f, ok := c.functions[a.Function]
	if !ok {
		return "INSUFFICIENT_DATA"
	}
	n := f.Invoked
	if a.Metric == "Errors" {
		n = f.Failed
	}
	if n >= a.Threshold {
		return "ALARM"
	}
	return "OK"
}

// addWatch adds the tools for logs and alarms.
func (c *cloud) addWatch(b *sampleServer) {
	addCloudTool(c, b, cloudRead, "logs_describe_log_groups", "List the groups of logs.", func(struct{}) (any, error) {
		return jsonObject{"LogGroups": sortedKeys(c.logs)}, nil
	})
	addCloudTool(c, b, cloudRead, "logs_get_log_events", "Read the newest lines of a log, oldest of them first.", func(a struct {
		Group    string `json:"log_group" jsonschema:"name of the group"`
		Contains string `json:"contains,omitempty" jsonschema:"only lines with this text"`
		Limit    int    `json:"limit,omitempty" jsonschema:"at most so many, 1 to 200; 50 if not given"`
	},
	) (any, error) {
		most, err := checkLimit("limit", a.Limit, 50, maxLogEvents)
		if err != nil {
			return nil, err
		}
		events, err := findThing(c.logs, "ResourceNotFoundException", "log group", a.Group)
		if err != nil {
			return nil, err
		}
		found := []logEvent{}
		for _, e := range events {
			if strings.Contains(e.Message, a.Contains) {
				found = append(found, e)
			}
		}
		return jsonObject{"Events": found[max(0, len(found)-most):]}, nil
	})
	addCloudTool(c, b, cloudRead, "cloudwatch_describe_alarms", "List the alarms and the state that each is in.", func(struct{}) (any, error) {
		found := []jsonObject{}
		for _, name := range sortedKeys(c.alarms) {
			a := c.alarms[name]
			found = append(found, jsonObject{"AlarmName": name, "FunctionName": a.Function, "Metric": a.Metric, "Threshold": a.Threshold, "State": c.alarmState(a)})
		}
		return jsonObject{"Alarms": found}, nil
	})
	addCloudTool(c, b, cloudRead, "cloudwatch_get_metrics", "Read the metrics of a function.", func(a functionArgs) (any, error) {
		f, err := c.findFunction(a.Name)
		if err != nil {
			return nil, err
		}
		return jsonObject{"Invocations": f.Invoked, "Errors": f.Failed}, nil
	})
	addCloudTool(c, b, cloudWrite, "cloudwatch_put_alarm", "Create an alarm, or change it: it is raised when a function's metric reaches the threshold.", func(a struct {
		Name      string `json:"alarm_name" jsonschema:"name of the alarm"`
		Function  string `json:"function_name" jsonschema:"the function that is watched"`
		Metric    string `json:"metric" jsonschema:"enum=Invocations,enum=Errors" jsonschema_description:"what is compared"`
		Threshold int    `json:"threshold" jsonschema:"raised from this number on, 1 or more"`
	},
	) (any, error) {
		if err := checkName("alarm", a.Name, plainName); err != nil {
			return nil, err
		}
		if _, err := c.findFunction(a.Function); err != nil {
			return nil, err
		}
		if a.Threshold < 1 {
			return nil, fmt.Errorf("ValidationError: threshold is %d; want 1 or more", a.Threshold)
		}
		if _, ok := c.alarms[a.Name]; !ok {
			if err := c.reserve(); err != nil {
				return nil, err
			}
		}
		c.alarms[a.Name] = &alarm{a.Name, a.Function, a.Metric, a.Threshold}
		return jsonObject{"AlarmName": a.Name, "State": c.alarmState(c.alarms[a.Name])}, nil
	})
	addCloudTool(c, b, cloudDestroy, "cloudwatch_delete_alarm", "Delete an alarm.", func(a struct {
		Name string `json:"alarm_name" jsonschema:"name of the alarm"`
	},
	) (any, error) {
		if _, err := findThing(c.alarms, "ResourceNotFound", "alarm", a.Name); err != nil {
			return nil, err
		}
		delete(c.alarms, a.Name)
		c.used--
		return jsonObject{"Deleted": a.Name}, nil
	})
}
