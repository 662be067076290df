package upstream

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
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
	next, ok := s.listings.nextNumber()
	if !ok {
		return nil
	}
	s.stale.request(switchboard.Kinds(0).With(switchboard.Tools))
	for {
		listed, again := s.listings.lastEnded() // before the offer, which that listing has published
		offer, _ := s.facts.current()
		offers := offer != nil && offersTool(offer, c.Target)
		if offers && listed >= next {
			s.listings.recordMistake()
		}
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

// A listingLog counts the listings of a server's offer. Use newListingLog.
type listingLog struct {
	// unlisted are the kinds that could not be listed last time. They are tried again, but less often
	// than a change is listed. Only server.run uses it.
	unlisted switchboard.Kinds

	mu          sync.Mutex
	begun, done uint64        // how many listings have begun; the number of the last that has ended
	listed      uint64        // the number of the last that has listed the tools
	changed     chan struct{} // closed when done changes
	mistakenAt  time.Time     // when a text that sounded like a withdrawn tool was none
}

func newListingLog() listingLog { return listingLog{changed: make(chan struct{})} }

// begin records that a listing begins. done records that it has ended, even if it failed; listed says that it has the tools.
func (g *listingLog) begin() (done func(listed bool)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun++
	this := g.begun
	return func(listed bool) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.done = this
		if listed {
			g.listed = this
		}
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// nextNumber returns the number of the first listing that begins from now on. ok is false if a text of the
// server was wrong a short time ago.
func (g *listingLog) nextNumber() (number uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun + 1, time.Since(g.mistakenAt) >= mistrustTime
}

// lastEnded returns the number of the last listing that has ended. changed is closed when another one ends.
func (g *listingLog) lastEnded() (number uint64, changed <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done, g.changed
}

// hasListed reports whether a listing from that number on has listed the tools.
func (g *listingLog) hasListed(number uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.listed >= number
}

// recordMistake records that a text of the server was wrong.
func (g *listingLog) recordMistake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mistakenAt = time.Now()
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
