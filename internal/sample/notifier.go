package sample

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Limits of the notifier.
const (
	maxMessages    = 200
	maxMessageText = 4000
)

// A chatMessage is a message that the notifier has sent.
type chatMessage struct {
	ID      int    `json:"id"` // from 1, in the order of sending
	Channel string `json:"channel"`
	Text    string `json:"text"`
}

// A notifier is a chat workspace with one user. Sent messages are stored and can be read again.
type notifier struct {
	channels []string

	mu   sync.Mutex
	sent []chatMessage
}

func newNotifier(Options) (*sampleServer, func(), error) {
	n := &notifier{channels: []string{"alerts", "general", "security"}}
	b := &sampleServer{
		name: "notifier", title: "Notifier", position: onToolPrefixed,
		instructions: "Sends messages to the channels of a chat workspace that is kept in memory.",
	}
	addTool(b, "notify", "Send a message to a channel. People are told at once, and it cannot be taken back.",
		newCapability("notify", "slack", "human_in_the_loop"), n.send, withDestructiveHint(false))
	addTool(b, "list_channels", "List the channels that messages can be sent to.",
		newCapability("read", "slack", "readonly"), n.list)
	addTool(b, "read_messages", "Read the newest messages, oldest of them first.",
		newCapability("read", "slack", "readonly"), n.read)
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
	if err := checkText("text", a.Text, maxMessageText); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.sent) == maxMessages {
		return nil, fmt.Errorf("the workspace is full: it keeps %d messages", maxMessages)
	}
	m := chatMessage{ID: len(n.sent) + 1, Channel: a.Channel, Text: a.Text}
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
	most, err := checkLimit("limit", a.Limit, 20, 100)
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
	found := []chatMessage{}
	for _, m := range n.sent {
		if a.Channel == "" || m.Channel == a.Channel {
			found = append(found, m)
		}
	}
	return map[string]any{"messages": found[max(0, len(found)-most):], "total": len(found)}, nil
}
