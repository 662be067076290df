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

// A server that withdraws a tool may get a call of it before it announces that. MCP has no error
// code for this case. The SDKs answer with -32602 or with a result, and a text. So the text only
// causes a new listing, and the list decides.

const (
	confirmTimeout = 1500 * time.Millisecond // for the listing
	mistrustTime   = 5 * time.Second         // after a text was wrong, texts of the server are ignored for this time
	maxRefusalText = 1 << 10                 // bytes of an answer that is examined
)

// withdrawnPhrases are how servers say that they have no such tool, in lower case, without quotes
// and colons. %s is the tool's name.
var withdrawnPhrases = []string{
	"unknown tool %s", "no such tool %s", "tool not found %s", "tool %s not found", "tool %s not found tool not found",
	"tool %s does not exist", "tool %s disabled", "tool %s is disabled",
}

// saysToolUnknown reports whether the answer to a call says only that there is no such tool: an
// error object with a code for that, or a result with isError. A longer text may come from a tool
// that has executed something.
func saysToolUnknown(c *switchboard.Call, said []byte, result bool) bool {
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
	for _, code := range []string{"mcp error -32602 ", "mcp error -32601 "} { // some SDKs write this prefix
		is = strings.TrimPrefix(is, code)
	}
	return slices.ContainsFunc(withdrawnPhrases, func(words string) bool {
		return strings.Replace(words, "%s", plain(c.Target), 1) == strings.TrimSuffix(is, ".")
	})
}

// confirmWithdrawn lists the server's tools and waits for the list. If the list no longer has the
// tool, the server did not execute the call, and confirmWithdrawn returns the error for it.
// Otherwise it returns nil.
func (s *server) confirmWithdrawn(ctx context.Context, c *switchboard.Call) *switchboard.Error {
	over := time.NewTimer(confirmTimeout)
	defer over.Stop()
	s.mu.Lock()
	if time.Since(s.mistakenAt) < mistrustTime {
		s.mu.Unlock()
		return nil
	}
	next := s.listingsBegun + 1 // the first that begins from now on
	s.mu.Unlock()
	s.stale.request(switchboard.Kinds(0).With(switchboard.Tools))
	for {
		s.mu.Lock()
		offers, listed, again := s.offer != nil && offersTool(s.offer, c.Target), s.listingsDone, s.listingDone
		if offers && listed >= next {
			s.mistakenAt = time.Now()
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

// beginListing records that a listing begins. done records that it has ended, even if it failed.
func (s *server) beginListing() (done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listingsBegun++
	this := s.listingsBegun
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listingsDone = this
		close(s.listingDone)
		s.listingDone = make(chan struct{})
	}
}

// offersTool reports whether the offer has a tool with that name.
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
