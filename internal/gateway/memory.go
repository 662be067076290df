package gateway

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxHeld bounds the bytes of messages that are held for clients: those of requests, from
// when they come in until they are answered, and those of long answers until they are
// taken. A tenant may hold as many as are free then, and a principal as many as its tenant
// may still hold then: so each leaves as much as it takes. The only message that a tenant
// has may take all that is free.
const MaxHeld = 128 << 20

// longAnswer is from how many bytes on an answer counts. Shorter ones are bounded by
// the number of calls, and lie in the buffers of their connections.
const longAnswer = 64 << 10

// A memory counts bytes that are held. It is safe for concurrent use; nobody waits.
type messageMemory struct {
	limit int64
	total atomic.Int64
}

// A hold is what one request holds of the memory. It is not safe for concurrent use.
type memoryHold struct {
	of                *messageMemory
	tenant, principal *atomic.Int64
	bytes             int64
}

func (g *Gateway) newHold(p switchboard.Principal) memoryHold {
	return memoryHold{of: &g.memory, tenant: &g.accountOf(switchboard.Principal{Tenant: p.Tenant}).heldBytes, principal: &g.accountOf(p).heldBytes}
}

// tryGrow holds n more bytes. It is false where they are more than the share of the tenant or
// the principal, who hold as many as before then. full says that others hold too much.
func (h *memoryHold) tryGrow(n int64) (ok, full bool) {
	free, tenant, principal := h.grow(n)
	if tenant <= free && principal <= free-tenant || tenant == h.bytes && free >= 0 {
		return true, false
	}
	h.grow(-n)
	return false, tenant <= h.of.limit/4
}

// grow holds n more bytes in any case, and returns what is free then, and what the tenant
// and the principal hold.
func (h *memoryHold) grow(n int64) (free, tenant, principal int64) {
	h.bytes += n
	return h.of.limit - h.of.total.Add(n), h.tenant.Add(n), h.principal.Add(n)
}

// release lets go of all that is held.
func (h *memoryHold) release() { h.grow(-h.bytes) }

// refuseMemory answers a request whose message is not read, since too much is held.
// full says that it is held for others.
func (g *Gateway) refuseMemory(w http.ResponseWriter, where endpoint, full bool) {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "your messages that are being read and answered have as many bytes as Switchboard holds for one caller; wait for some to end")
	status := http.StatusTooManyRequests
	if full {
		e = switchboard.Refuse(switchboard.CodeOverloaded, "the messages that are being read and answered have as many bytes as Switchboard holds in all")
		status = http.StatusServiceUnavailable
	}
	e.RetryAfter, e.Unsent = time.Second, true
	w.Header().Set("Retry-After", "1")
	w.Header().Set("Connection", "close") // what is left of the message is not read
	g.refuse(w, where, status, nil, e)
}

// holdAnswer returns a as it may be sent: an answer for which there is no memory while others
// are not taken is replaced by a failure that says so.
func (g *Gateway) holdAnswer(h *memoryHold, a rpcAnswer) rpcAnswer {
	n := len(a.result)
	for _, b := range a.rest {
		n += len(b)
	}
	if n < longAnswer {
		return a
	}
	if ok, _ := h.tryGrow(int64(n)); ok {
		return a
	}
	if h.tenant.Load() == h.bytes { // it has nothing else, and the operator allows answers of that size
		h.grow(int64(n))
		return a
	}
	a.done()
	e := switchboard.Refuse(switchboard.CodeResultInvalid, "the answer has %d bytes, and the answers that your clients have not taken yet have as many as Switchboard holds for one caller", n)
	e.Hint = fmt.Sprintf("a tool that was called was executed: do not call it again for this; read the answers to other requests, at least %d bytes in %s, and ask for less at once", writeChunk, chunkTimeout)
	return rpcAnswer{failure: failureOf(e)}
}
