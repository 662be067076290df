package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
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

// How servers say that they have no such tool, in lower case, without quotes and colons. %s is the tool's name.
var withdrawnWords = []string{
	"unknown tool %s", "no such tool %s", "tool not found %s", "tool %s not found", "tool %s not found tool not found",
	"tool %s does not exist", "tool %s disabled", "tool %s is disabled",
}

// soundsWithdrawn reports whether what a call was answered with says that there is no such tool, and nothing else: an error
// object of the codes for that, or a result with isError. What says more may come from a tool that has done something.
func soundsWithdrawn(c *switchboard.Call, said []byte, result bool) bool {
	if c.Method != wire.MethodToolsCall || c.Target == "" || len(said) > maxRefusalText {
		return false
	}
	var answer struct {
		Code    int
		Message string
		Content []struct{ Text string }
	}
	if json.Unmarshal(said, &answer) != nil {
		return false
	}
	text := answer.Message
	switch {
	case result && len(answer.Content) == 1:
		text = answer.Content[0].Text
	case result, answer.Code != wire.CodeMethodNotFound && answer.Code != wire.CodeInvalidParams:
		return false
	}
	plain := func(text string) string {
		return strings.Join(strings.Fields(strings.NewReplacer(`"`, "", "'", "", "`", "", ":", " ").Replace(strings.ToLower(text))), " ")
	}
	is := plain(text)
	for _, code := range []string{"mcp error -32602 ", "mcp error -32601 "} { // as an SDK writes them
		is = strings.TrimPrefix(is, code)
	}
	return slices.ContainsFunc(withdrawnWords, func(words string) bool {
		return strings.Replace(words, "%s", plain(c.Target), 1) == strings.TrimSuffix(is, ".")
	})
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
