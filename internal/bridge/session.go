package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A session is what a new process must know of a legacy client, and what the old process had asked it. The bridge's mu guards it.
type session struct {
	initialize  []byte // the request, once it is answered
	initialized []byte // the notification
	level       []byte // the last logging/setLevel
	subscribed  map[string][]byte

	questions map[string][]byte // ids of open questions, by their key
}

// Bounds of a session. A process allows fewer.
const (
	maxSubscribed = 1024
	maxQuestions  = 4096
)

func newSession() session {
	return session{subscribed: map[string][]byte{}, questions: map[string][]byte{}}
}

// noteDone notes the effect of a request that has been answered with a result.
func (s *session) noteDone(r *request) {
	if r.modern || r.message == nil {
		return
	}
	switch r.method {
	case wire.MethodInitialize:
		s.initialize = r.message
	case wire.MethodSetLevel:
		s.level = r.message
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		m, err := wire.ParseEnvelope(r.message)
		if err != nil {
			return
		}
		raw, _ := wire.Field(m.Params, "uri")
		uri, ok := wire.String(raw)
		switch {
		case !ok:
		case r.method == wire.MethodUnsubscribe:
			delete(s.subscribed, uri)
		case len(s.subscribed) < maxSubscribed:
			s.subscribed[uri] = r.message
		}
	}
}

// asked notes a question of the process.
func (s *session) asked(id []byte) {
	if key, ok := wire.IDKey(id); ok && len(s.questions) < maxQuestions {
		s.questions[key] = bytes.Clone(id)
	}
}

// answered notes the end of a question, and reports whether it was open.
func (s *session) answered(id []byte) bool {
	key, _ := wire.IDKey(id)
	_, open := s.questions[key]
	delete(s.questions, key)
	return open
}

// dropQuestions forgets the open questions, and returns their ids.
func (s *session) dropQuestions() [][]byte {
	ids := slices.Collect(maps.Values(s.questions))
	clear(s.questions)
	return ids
}

// withID returns the request with another id.
func withID(message, id []byte) []byte {
	return wire.Rewrite(nil, message, wire.Edit{Name: "id", Value: id})
}

// replay presents the client to the process at the other end of a link, and then opens the link for the client's messages.
func (b *bridge) replay(l *link, lines *wire.LineReader) error {
	b.mu.Lock()
	s := b.session
	subscribed := slices.Sorted(maps.Keys(s.subscribed))
	waiting := b.requests.inOrder()
	b.mu.Unlock()
	if s.initialize != nil {
		if err := b.replayInitialize(l, lines, s.initialize); err != nil {
			return err
		}
		var more [][]byte
		if s.initialized != nil {
			more = append(more, s.initialized)
		}
		if s.level != nil {
			more = append(more, withID(s.level, b.newOwnID()))
		}
		for _, uri := range subscribed {
			more = append(more, withID(s.subscribed[uri], b.newOwnID()))
		}
		for _, m := range more {
			if _, err := l.write(m); err != nil {
				return err
			}
		}
	}
	for _, r := range waiting {
		b.mu.Lock()
		message := r.message
		again := b.requests.open[r.key] == r && r.sent
		if again {
			r.link, r.refused, r.begun = l.number, false, false
		}
		b.mu.Unlock()
		if !again {
			continue
		}
		if _, err := l.write(message); err != nil {
			return err
		}
	}
	b.mu.Lock()
	b.link = l
	b.signalMoved()
	b.mu.Unlock()
	b.closeIfEnded(l)
	if l.number > 1 {
		b.announceChanges(s.initialized != nil, waiting)
	}
	return nil
}

// replayInitialize sends the client's initialize, and waits for the answer.
func (b *bridge) replayInitialize(l *link, lines *wire.LineReader, initialize []byte) error {
	timer := time.AfterFunc(replayLimit, func() { _ = l.Close() })
	defer timer.Stop()
	id := b.newOwnID()
	if _, err := l.write(withID(initialize, id)); err != nil {
		return err
	}
	for {
		line, err := lines.Next()
		if err != nil {
			return err
		}
		m, err := wire.ParseEnvelope(line)
		if err != nil {
			return err
		}
		if m.Kind != wire.Response || !bytes.Equal(m.ID, id) {
			if err := b.fromServer(l, line); err != nil {
				return err
			}
			continue
		}
		l.heard.Store(time.Now().UnixNano())
		if m.ErrorObject != nil {
			return fmt.Errorf("the session cannot go on: %w", errors.New(string(m.ErrorObject)))
		}
		return nil
	}
}

// changes are the notifications that a list may have changed, and the member of subscriptions/listen that asks for each.
var changes = []struct{ method, wish string }{
	{wire.MethodToolsChanged, "toolsListChanged"},
	{wire.MethodPromptsChanged, "promptsListChanged"},
	{wire.MethodResourcesChanged, "resourcesListChanged"},
}

// announceChanges tells the client that its lists may have changed: a legacy client that is initialized, and the streams of a modern
// one.
func (b *bridge) announceChanges(legacy bool, waiting []*request) {
	for _, c := range changes {
		if legacy {
			b.client.write(wire.AppendNotification(nil, c.method, nil))
		}
		for _, r := range waiting {
			if r.method != wire.MethodListen || !r.acknowledged {
				continue
			}
			m, err := wire.ParseEnvelope(r.message)
			if err != nil {
				continue
			}
			wanted, _ := wire.Field(m.Params, "notifications")
			if wish, _ := wire.Field(wanted, c.wish); string(wish) == "true" {
				b.client.write(wire.AppendNotification(nil, c.method, slices.Concat([]byte(`{"_meta":{"`+wire.MetaSubscriptionID+`":`), r.id, []byte(`}}`))))
			}
		}
	}
}
