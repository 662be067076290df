package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Bounds of the notifier.
const (
	maxMessages    = 200
	maxMessageText = 4000
)

// A message is one that the notifier has sent.
type message struct {
	ID      int    `json:"id"` // from 1, in the order of sending
	Channel string `json:"channel"`
	Text    string `json:"text"`
}

// A notifier is a chat workspace of one: what is sent is kept, and can be read
// again.
type notifier struct {
	channels []string

	mu   sync.Mutex
	sent []message
}

func newNotifier(Options) (*bench, func(), error) {
	n := &notifier{channels: []string{"alerts", "general", "security"}}
	b := &bench{
		name: "notifier", title: "Notifier", place: onToolPrefixed,
		instructions: "Sends messages to the channels of a chat workspace that is kept in memory.",
	}
	add(b, "notify", "Send a message to a channel. People are told at once, and it cannot be taken back.",
		can("notify", "slack", "human_in_the_loop"), n.send, destroys(false))
	add(b, "list_channels", "List the channels that messages can be sent to.",
		can("read", "slack", "readonly"), n.list)
	add(b, "read_messages", "Read the newest messages, oldest of them first.",
		can("read", "slack", "readonly"), n.read)
	return b, func() {}, nil
}

func (n *notifier) check(channel string) error {
	if !slices.Contains(n.channels, channel) {
		return fmt.Errorf("there is no channel %q; there are %s", channel, strings.Join(n.channels, ", "))
	}
	return nil
}

func (n *notifier) send(_ context.Context, a struct {
	Channel string `json:"channel" jsonschema:"name of the channel, without #"`
	Text    string `json:"text" jsonschema:"the message, at most 4000 bytes"`
},
) (any, error) {
	if err := n.check(a.Channel); err != nil {
		return nil, err
	}
	if err := bounded("text", a.Text, maxMessageText); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.sent) == maxMessages {
		return nil, fmt.Errorf("the workspace is full: it keeps %d messages", maxMessages)
	}
	m := message{ID: len(n.sent) + 1, Channel: a.Channel, Text: a.Text}
	n.sent = append(n.sent, m)
	return m, nil
}

func (n *notifier) list(context.Context, struct{}) (any, error) {
	return map[string]any{"channels": n.channels}, nil
}

func (n *notifier) read(_ context.Context, a struct {
	Channel string `json:"channel,omitempty" jsonschema:"only messages of this channel"`
	Limit   int    `json:"limit,omitempty" jsonschema:"at most so many, 1 to 100; 20 if not given"`
},
) (any, error) {
	most, err := limit("limit", a.Limit, 20, 100)
	if err != nil {
		return nil, err
	}
	if a.Channel != "" {
		if err := n.check(a.Channel); err != nil {
			return nil, err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	found := []message{}
	for _, m := range n.sent {
		if a.Channel == "" || m.Channel == a.Channel {
			found = append(found, m)
		}
	}
	return map[string]any{"messages": found[max(0, len(found)-most):], "total": len(found)}, nil
}
