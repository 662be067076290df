package health

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A Store is where replicas tell each other how servers fare. See store.Store.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	List(ctx context.Context, group string) ([]store.Named, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
	Publish(ctx context.Context, topic string, data []byte) error
	Subscribe(topic string, heard func(data []byte)) (stop func())
}

// How it is kept: what operators have disabled, by the server's name, and the word on a
// server, by its name and where it is reached.
const (
	// Group is where this stands in the store.
	Group = "servers"

	topic     = "servers"
	prefixOff = "off/"
	prefixOut = "out/"

	hearEvery     = 5 * time.Second // what no notice has told
	storePatience = 500 * time.Millisecond
	trialTime     = 10 * time.Second // after which another replica may begin one
	wordLasts     = 2 * longestQuarantine
)

// tooWrong is how often a replica may be corrected before it keeps what it sees to
// itself: twice, or once where nobody else had seen it.
const tooWrong = 2

// A word is what the replicas hold of a server that one of them has found not to work.
// The zero word is none.
type word struct {
	State     State     `json:"state"` // Quarantine, Probation, or Healthy: it is over
	By        string    `json:"by"`    // the replica that has said so
	Cause     Cause     `json:"cause"`
	Confirmed bool      `json:"confirmed,omitempty"` // another has seen it too
	Until     time.Time `json:"until"`               // nobody tries before, unless somebody asks for it
	Trips     int       `json:"trips"`
	Absent    bool      `json:"absent,omitempty"`
	Looks     int       `json:"looks,omitempty"`
	Tried     time.Time `json:"tried,omitzero"`
	Trial     time.Time `json:"trial,omitzero"` // before which nobody else tries
	EndedBy   string    `json:"ended_by,omitempty"`
}

// out reports whether the server is out of service by this word.
func (w *word) out() bool { return w.State == Quarantine || w.State == Probation }

// shared reports whether other replicas reach the very same server: one behind an address.
// A process is each replica's own.
func (s *server) shared() bool { return s.place != "" }

// placeOf is the name of the word on a server, "" where it is not shared.
func (m *Monitor) placeOf(s *switchboard.Server) string {
	if m.o.Store == nil || m.o.Self == "" || s.Transport != switchboard.TransportHTTP {
		return ""
	}
	sum := sha256.Sum256([]byte(s.URL))
	return prefixOut + string(s.ID) + "/" + hex.EncodeToString(sum[:12])
}

// Join takes over what is known of servers by the store, and keeps to it until Close. Call
// it before Set, and with a Store.
func (m *Monitor) Join(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	stop := m.o.Store.Subscribe(topic, func([]byte) {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err := m.hear(ctx); err != nil {
		stop()
		return err
	}
	m.work.Go(func() {
		defer stop()
		tick := time.NewTicker(hearEvery)
		defer tick.Stop()
		for fault := false; ; {
			select {
			case <-m.ctx.Done():
				return
			case <-wake:
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(m.ctx, storePatience)
			err := m.hear(ctx)
			cancel()
			if err != nil && !fault && m.ctx.Err() == nil {
				m.o.Log.Warn("how servers fare for other replicas cannot be read; this one goes by what it sees itself", "err", err)
			}
			fault = err != nil
		}
	})
	return nil
}

// storedHealth is what was last read of the store.
type storedHealth struct {
	disabled map[switchboard.ServerID]*Cause
	words    map[string]word
}

// hear reads what is kept, and has each server know.
func (m *Monitor) hear(ctx context.Context) error {
	m.setLock.Lock()
	defer m.setLock.Unlock()
	asked := m.reads.Add(1)
	all, err := m.o.Store.List(ctx, Group)
	if err != nil {
		for _, s := range *m.servers.Load() {
			s.outlive()
		}
		return err
	}
	k := storedHealth{map[switchboard.ServerID]*Cause{}, map[string]word{}}
	for _, one := range all {
		if id, ok := strings.CutPrefix(one.Name, prefixOff); ok {
			why := Cause{Stage: StageOperator}
			_ = json.Unmarshal(one.Data, &why) // what nobody can read keeps it out all the same
			k.disabled[switchboard.ServerID(id)] = &why
			continue
		}
		var w word
		if json.Unmarshal(one.Data, &w) == nil {
			k.words[one.Name] = w
		}
	}
	m.stored = k
	for id, s := range *m.servers.Load() {
		s.disable(k.disabled[id])
		if s.shared() {
			s.heard(k.words[s.place], asked)
		}
	}
	return nil
}

// keepOff keeps that the server is disabled, or with nil that it is not any more.
func (m *Monitor) keepOff(ctx context.Context, id switchboard.ServerID, why *Cause) error {
	if m.o.Store == nil {
		return nil
	}
	w := store.Write{Name: prefixOff + string(id), Was: store.Any}
	if why != nil {
		text, err := json.Marshal(why)
		if err != nil {
			return err
		}
		w.Data = text
	}
	if _, err := m.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{w}, Durable: true}); err != nil {
		return switchboard.Unavailable("what an operator does to a server cannot be kept, so nothing was done", err)
	}
	_ = m.o.Store.Publish(ctx, topic, []byte(id)) // who misses it reads it soon
	return nil
}

// amend changes the word on the server, for all replicas: change is given what it is, and
// says what it shall be and whether that is something else. Where the store is gone, this
// replica alone goes by it.
func (s *server) amend(change func(w word) (word, bool)) {
	ctx, cancel := context.WithTimeout(s.m.ctx, storePatience)
	defer cancel()
	for {
		v, err := s.m.o.Store.Value(ctx, store.Key{Group: Group, Name: s.place})
		if err != nil {
			break
		}
		var w word
		if v.Version != 0 && json.Unmarshal(v.Data, &w) != nil {
			w = word{}
		}
		next, other := change(w)
		if !other {
			s.heard(w, s.m.reads.Add(1))
			return
		}
		text, err := json.Marshal(next)
		if err != nil {
			break
		}
		_, err = s.m.o.Store.Apply(ctx, store.Change{Group: Group, Writes: []store.Write{{Name: s.place, Was: v.Version, Data: text, TTL: wordLasts}}})
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			break
		}
		s.heard(next, s.m.reads.Add(1))
		_ = s.m.o.Store.Publish(ctx, topic, []byte(s.id)) // who misses it reads it soon
		return
	}
	s.mu.Lock()
	w := s.word
	s.mu.Unlock()
	if next, other := change(w); other {
		s.heard(next, s.m.reads.Add(1))
	}
}

// heard takes note of the word on the server, as it was in that turn.
func (s *server) heard(w word, turn int64) {
	s.mu.Lock()
	if turn < s.turn {
		s.mu.Unlock()
		return // it is older than what we know, and the next one is on its way
	}
	s.turn = turn
	now, before := time.Now(), s.word
	s.word, s.wordHeard = w, now
	if latest := now.Add(longestQuarantine); w.Until.After(latest) {
		s.word.Until = latest // by a clock that is ahead
	}
	if latest := now.Add(trialTime); w.Trial.After(latest) {
		s.word.Trial = latest
	}
	heal := false
	if self := s.m.o.Self; before.out() && w.State == Healthy && w.EndedBy != self && s.seen(now) != Healthy {
		if heal = before.Confirmed || before.By != self; heal {
			s.wrong++
		} else {
			s.wrong = tooWrong
		}
		s.wanted = true // it shall be looked for
	}
	s.settle(now)
	s.mu.Unlock()
	if heal {
		if report, refused := s.breaker.Allow(); refused == nil {
			report(nil)
		}
	}
}

// outlive forgets a word that nobody has renewed while the store could not be read.
func (s *server) outlive() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.word.out() && time.Since(s.wordHeard) > wordLasts {
		s.word = word{}
		s.settle(time.Now())
	}
}

// confer tells the others what this replica sees, whenever that may have changed.
func (s *server) confer() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.news:
		}
		for {
			s.mu.Lock()
			change := s.remark(time.Now())
			s.mu.Unlock()
			if change == nil || s.ctx.Err() != nil {
				break
			}
			s.amend(change)
		}
	}
}

// remark is what this replica has to say, by what it sees itself; nil where that is
// nothing. The caller holds s.mu.
func (s *server) remark(now time.Time) func(word) (word, bool) {
	if len(s.said) > 0 {
		next := s.said[0]
		s.said = s.said[1:]
		return next
	}
	self, w := s.m.o.Self, &s.word
	well := s.answered
	s.answered = false
	switch own := s.seen(now); {
	case own == Quarantine && s.wasUp && !w.out() && s.wrong < tooWrong:
		said := word{State: Quarantine, By: self, Cause: *s.ownWhy(), Until: s.until, Trips: s.trips, Absent: s.absent, Tried: s.probed}
		if s.broken == nil {
			said.Until, said.Trips = now.Add(quarantine(1)), 1
		}
		return func(w word) (word, bool) {
			if w.out() {
				return w, false
			}
			return said, true
		}
	case own == Quarantine && s.wasUp && w.out() && w.By != self && !w.Confirmed && w.State == Quarantine:
		return func(w word) (word, bool) {
			if !w.out() || w.By == self || w.Confirmed {
				return w, false
			}
			w.Confirmed = true
			return w, true
		}
	case own == Healthy && w.out() && w.By == self:
		return s.over
	case own == Healthy && w.State == Quarantine && well:
		return released
	}
	return nil
}

// released is the word on a server that has answered.
func released(w word) (word, bool) {
	if w.State != Quarantine {
		return w, false
	}
	return answered(w)
}

// answered is the word on a server that has answered whoever had the claim.
func answered(w word) (word, bool) {
	if !w.out() {
		return w, false
	}
	w.State, w.Trial = Probation, time.Time{}
	return w, true
}

// over is the word on a server that works.
func (s *server) over(w word) (word, bool) {
	if !w.out() {
		return w, false
	}
	w.State, w.EndedBy, w.Trial = Healthy, s.m.o.Self, time.Time{}
	return w, true
}

// failing is the word on a server that has failed a probe or, with trial set, its trial.
func (s *server) failing(stage string, err error, trial bool) func(word) (word, bool) {
	return func(w word) (word, bool) {
		if !w.out() {
			return w, false
		}
		now := time.Now()
		w.Trial = time.Time{}
		if w.State == Probation && !trial {
			return w, true // another has had an answer, and is to try
		}
		w.Confirmed = w.Confirmed || w.By != s.m.o.Self
		w.Cause = Cause{Stage: stage, Message: plain(err), Since: w.Cause.Since}
		if w.Absent = unsent(err); now.Before(w.Until) && !trial {
			w.Looks++ // it was only looked for
		} else {
			w.State = Quarantine
			w.Trips++
			w.Looks, w.Until = 0, now.Add(quarantine(w.Trips))
		}
		return w, true
	}
}

// claim reports whether this replica may try the server now, as do says or with a call:
// of all, one at a time does.
func (s *server) claim(do deed) (mine bool) {
	s.mu.Lock()
	out := s.word.out()
	s.mu.Unlock()
	if !out {
		return true
	}
	s.amend(func(w word) (word, bool) {
		now := time.Now()
		if mine = true; !w.out() {
			return w, false
		}
		if mine = !w.Trial.After(now); do != doCall {
			s.mu.Lock()
			next, due := s.planShared(&w, now)
			s.mu.Unlock()
			mine = next == 0 && due == do // nobody else has done it meanwhile
		}
		if mine {
			w.Trial, w.Tried = now.Add(trialTime), now
		}
		return w, mine
	})
	return mine
}

// tried says how a call or probe has ended that was the trial.
func (s *server) tried(stage string, err error) {
	if !s.shared() {
		return
	}
	change := s.over
	switch {
	case err == nil:
	case errors.Is(err, errNothing):
		change = unclaimed
	default:
		change = s.failing(stage, err, true)
	}
	s.mu.Lock()
	w := s.word
	s.said = append(s.said, change)
	s.mu.Unlock()
	if next, other := change(w); other {
		s.heard(next, s.m.reads.Add(1)) // here at once: whoever has called calls again
	}
}

// unclaimed is the word on a server of which the trial has told nothing.
func unclaimed(w word) (word, bool) {
	w.Trial = time.Time{}
	return w, w.out()
}

// hasAnswered says that the server has answered somebody, though the word is that it does
// not work.
func (s *server) hasAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.word.out() {
		s.answered = true
		s.confide()
	}
}

// confide has confer look again.
func (s *server) confide() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// mayTry reports whether the trial is this replica's to take: not while it has had no
// answer itself. The caller holds s.mu.
func (s *server) mayTry() bool { return s.up && (s.broken == nil || s.released) }

// planShared is plan where the word is that the server does not work, and it is connected
// here. The caller holds s.mu.
func (s *server) planShared(w *word, now time.Time) (time.Duration, deed) {
	in := func(t time.Time) time.Duration { return max(t.Sub(now), 0) }
	switch {
	case w.Trial.After(now):
		return in(w.Trial), doNothing
	case w.State == Probation && s.mayTry():
		return in(later(w.Tried, s.probed).Add(probationEvery)), doTry
	case w.State == Quarantine && w.By != s.m.o.Self && !w.Confirmed && s.broken == nil:
		return 0, doProbe // for a second opinion
	case w.State == Probation: // who has had the answer is to try, and after a while whoever has one
		return in(later(later(w.Tried, s.probed).Add(2*probationEvery), s.until)), doProbe
	}
	until, again := w.Until, wantedQuarantine
	if w.Absent {
		again = lookout(w.Looks)
	}
	if soon := later(w.Tried, s.probed).Add(again); s.wanted && soon.Before(until) {
		until = soon
	}
	return in(until), doProbe
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
