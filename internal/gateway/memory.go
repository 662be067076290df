package gateway

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// MaxHeld limits the bytes of messages that are in memory for clients: requests from their arrival
// until they are answered, and long answers until the client has read them. A tenant may hold as
// many bytes as are still free then, and a principal as many as its tenant may still hold then. So
// each leaves as much as it takes. The only message of a tenant may take all that is free.
const MaxHeld = 128 << 20

// longAnswer is the minimum length of an answer that counts. The number of calls limits the shorter
// ones, and they fit into the buffers of their connections.
const longAnswer = 64 << 10

// A messageMemory counts the bytes of messages. It is safe for concurrent use, and no method waits.
type messageMemory struct {
	limit int64
	total atomic.Int64
}

// A memoryHold is the memory that one request holds. It is not safe for concurrent use.
type memoryHold struct {
	of                *messageMemory
	tenant, principal *atomic.Int64
	bytes             int64
}

func (as *accounts) newHold(p switchboard.Principal) memoryHold {
	return memoryHold{of: &as.memory, tenant: &as.accountOf(switchboard.Principal{Tenant: p.Tenant}).heldBytes, principal: &as.accountOf(p).heldBytes}
}

// tryGrow takes n more bytes. It takes none and returns false if they exceed the share of the
// tenant or the principal. full means that the memory of others is the reason.
func (h *memoryHold) tryGrow(n int64) (ok, full bool) {
	free, tenant, principal := h.grow(n)
	if tenant <= free && principal <= free-tenant || tenant == h.bytes && free >= 0 {
		return true, false
	}
	h.grow(-n)
	return false, tenant <= h.of.limit/4
}

// grow takes n more bytes without a check, and returns how many bytes are free now, and how many
// the tenant and the principal hold.
func (h *memoryHold) grow(n int64) (free, tenant, principal int64) {
	h.bytes += n
	return h.of.limit - h.of.total.Add(n), h.tenant.Add(n), h.principal.Add(n)
}

// release gives all bytes back.
func (h *memoryHold) release() { h.grow(-h.bytes) }

// refuseMemory answers a request that is not read because of a lack of memory. full means that
// others hold the memory.
func (x *exchange) refuseMemory(full bool) {
	e := switchboard.Refuse(switchboard.CodeOverloaded, "your requests in flight use all the memory that Switchboard has for one caller; wait for some to end")
	status := http.StatusTooManyRequests
	if full {
		e = switchboard.Refuse(switchboard.CodeOverloaded, "the requests in flight use all the memory that Switchboard has for messages")
		status = http.StatusServiceUnavailable
	}
	e.RetryAfter, e.Unsent = time.Second, true
	x.w.Header().Set("Retry-After", "1")
	x.w.Header().Set("Connection", "close") // the rest of the message is not read
	x.refuseWith(status, e)
}

// holdAnswer reserves memory for a long answer. If the client's unread answers leave none, it
// returns a failure in place of the answer.
func (as *accounts) holdAnswer(h *memoryHold, a rpcAnswer) rpcAnswer {
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
	if h.tenant.Load() == h.bytes { // its only message: the operator permits answers of that size
		h.grow(int64(n))
		return a
	}
	a.done()
	e := switchboard.Refuse(switchboard.CodeResultInvalid, "the answer has %d bytes, and the answers that your clients have not read yet use all the memory that Switchboard has for one caller", n)
	e.Hint = fmt.Sprintf("a tool that was called was executed: do not call it again for this; read the answers to other requests, at least %d bytes in %s, and ask for less at once", writeChunk, chunkTimeout)
	return rpcAnswer{failure: failureOf(e)}
}
