package upstream

import (
	"bytes"
	"context"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// A server that takes a tool from its list may be asked for the tool before it says so. MCP has no error of its own for
// that: the SDKs answer with -32602, or with a result, and say it in words. So the words only cause a look at the list,
// and the list decides.

const (
	withdrawnTime  = 1500 * time.Millisecond // for the list to come
	suspectEvery   = 5 * time.Second         // at most so often are the words of a server believed that were wrong
	maxRefusalText = 1 << 10                 // bytes of what can say that there is no such tool
)

// soundsWithdrawn reports whether what a call was answered with may mean that there is no such tool: an error object, or
// a result with isError.
func soundsWithdrawn(c *switchboard.Call, said []byte, result bool) bool {
	if c.Method != wire.MethodToolsCall || c.Target == "" || len(said) > maxRefusalText || !bytes.Contains(said, []byte(c.Target)) {
		return false
	}
	low := bytes.ToLower(said)
	if result {
		return bytes.Contains(low, []byte("unknown tool"))
	}
	for _, words := range []string{"unknown tool", "not found", "no such tool", "does not exist", "disabled"} {
		if bytes.Contains(low, []byte(words)) {
			return true
		}
	}
	return false
}

// withdrawn returns the refusal of a call whose server answered that it has no such tool, if its list agrees: then the
// server did not execute the call. It has the server say what it offers, and waits for that.
func (s *server) withdrawn(ctx context.Context, c *switchboard.Call) *switchboard.Error {
	over := time.NewTimer(withdrawnTime)
	defer over.Stop()
	s.mu.Lock()
	if time.Since(s.suspected) < suspectEvery {
		s.mu.Unlock()
		return nil
	}
	next := s.listings + 1 // the first that begins from now on
	s.mu.Unlock()
	s.relist.add(switchboard.Kinds(0).With(switchboard.Tools))
	for {
		s.mu.Lock()
		offers, listed, again := s.offer != nil && offersTool(s.offer, c.Target), s.listed, s.relisted
		if offers && listed >= next {
			s.suspected = time.Now()
		}
		s.mu.Unlock()
		switch {
		case !offers:
			e := switchboard.Refuse(switchboard.CodeNoneHealthy, "the tool's server does not offer it any more, and did not execute the call")
			e.Unsent = true
			return e
		case listed >= next:
			return nil
		}
		select {
		case <-again:
		case <-over.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-s.ctx.Done():
			return nil
		}
	}
}

// listing notes that the server is asked what it offers, and returns what notes that it has said so, or failed to.
func (s *server) listing() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listings++
	this := s.listings
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listed = this
		close(s.relisted)
		s.relisted = make(chan struct{})
	}
}

// offersTool reports whether a tool of the offer has the name.
func offersTool(o *switchboard.Offer, name string) bool {
	for _, definition := range o.Tools {
		if raw, ok := wire.Field(definition, "name"); ok {
			if text, _ := wire.String(raw); text == name {
				return true
			}
		}
	}
	return false
}
