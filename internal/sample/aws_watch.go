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
	Queue string `json:"queue"`
}

func (c *cloud) findQueue(name string) (*messageQueue, error) {
	return findThing(c.queues, "QueueDoesNotExist", "queue", name)
}

// sqsService has the tools for queues.
type sqsService struct{ *cloud }

func (c sqsService) listQueues(struct{}) (any, error) {
	return jsonObject{"Queues": sortedKeys(c.queues)}, nil
}

func (c sqsService) getQueueAttributes(a queueArgs) (any, error) {
	q, err := c.findQueue(a.Queue)
	if err != nil {
		return nil, err
	}
	return jsonObject{"ApproximateNumberOfMessages": len(q.messages)}, nil
}

func (c sqsService) createQueue(a queueArgs) (any, error) {
	err := create(c.cloud, c.queues, "QueueAlreadyExists", "queue", a.Queue, plainName, &messageQueue{Name: a.Queue})
	return jsonObject{"Queue": a.Queue}, err
}

func (c sqsService) deleteQueue(a queueArgs) (any, error) {
	q, err := c.findQueue(a.Queue)
	if err != nil {
		return nil, err
	}
	delete(c.queues, a.Queue)
	c.used -= 1 + len(q.messages)
	return jsonObject{"Deleted": a.Queue}, nil
}

func (c sqsService) sendMessage(a struct {
	Queue string `json:"queue"`
	Body  string `json:"body"`
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
}

func (c sqsService) receiveMessage(a queueArgs) (any, error) {
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
}

func (c sqsService) deleteMessage(a struct {
	Queue   string `json:"queue"`
	Receipt string `json:"receipt_handle"`
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

// watchService has the tools for logs and alarms.
type watchService struct{ *cloud }

func (c watchService) describeLogGroups(struct{}) (any, error) {
	return jsonObject{"LogGroups": sortedKeys(c.logs)}, nil
}

func (c watchService) getLogEvents(a struct {
	Group    string `json:"log_group"`
	Contains string `json:"contains,omitempty"`
	Limit    int    `json:"limit,omitempty"`
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
}

func (c watchService) describeAlarms(struct{}) (any, error) {
	found := []jsonObject{}
	for _, name := range sortedKeys(c.alarms) {
		a := c.alarms[name]
		found = append(found, jsonObject{"AlarmName": name, "FunctionName": a.Function, "Metric": a.Metric, "Threshold": a.Threshold, "State": c.alarmState(a)})
	}
	return jsonObject{"Alarms": found}, nil
}

func (c watchService) getMetrics(a functionArgs) (any, error) {
	f, err := c.findFunction(a.Name)
	if err != nil {
		return nil, err
	}
	return jsonObject{"Invocations": f.Invoked, "Errors": f.Failed}, nil
}

func (c watchService) putAlarm(a struct {
	Name      string `json:"alarm_name"`
	Function  string `json:"function_name"`
	Metric    string `json:"metric"`
	Threshold int    `json:"threshold"`
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
}

func (c watchService) deleteAlarm(a struct {
	Name string `json:"alarm_name"`
},
) (any, error) {
	if _, err := findThing(c.alarms, "ResourceNotFound", "alarm", a.Name); err != nil {
		return nil, err
	}
	delete(c.alarms, a.Name)
	c.used--
	return jsonObject{"Deleted": a.Name}, nil
}
