package credential

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/vault"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	// lookInterval is how often a call that waits for its connection looks for one that another process has made. One of this process wakes the call.
	lookInterval = 2 * time.Second

	// ticketReuse is how long the link of a ticket is given again, so that an agent that tries often makes no new ones.
	ticketReuse = vault.TicketTime - 2*time.Minute
)

// A ticketNote is what is kept with a ticket.
type ticketNote struct {
	Server switchboard.ServerID `json:"server"`
	Name   string               `json:"name"` // of the principal
}

// A keptTicket is the ticket of the link that the agents of an owner were given.
type keptTicket struct {
	making chan struct{} // has an element while the ticket is read or made, which guards id and made
	id     string
	made   time.Time

	users int // guarded by the book
}

// ticketBook has the tickets of the links that were given out lately, by owner. Owners do not wait for each other.
type ticketBook struct {
	mu   sync.Mutex
	kept map[vault.Owner]*keptTicket
}

// take returns the ticket of the owner, which its caller alone may use until release. ok is false if ctx ends first.
func (b *ticketBook) take(ctx context.Context, o vault.Owner) (t *keptTicket, release func(), ok bool) {
	b.mu.Lock()
	if t = b.kept[o]; t == nil {
		if b.kept == nil {
			b.kept = map[vault.Owner]*keptTicket{}
		}
		for other, old := range b.kept {
			if old.users == 0 && time.Since(old.made) > vault.TicketTime {
				delete(b.kept, other)
			}
		}
		t = &keptTicket{making: make(chan struct{}, 1)}
		b.kept[o] = t
	}
	t.users++
	b.mu.Unlock()
	leave := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		t.users--
	}
	select {
	case t.making <- struct{}{}:
		return t, func() { <-t.making; leave() }, true
	case <-ctx.Done():
		leave()
		return nil, nil, false
	}
}

// consentBell wakes the calls that wait for a connection.
type consentBell struct {
	mu      sync.Mutex
	waiting map[vault.Owner]map[chan struct{}]bool
}

// listen returns a channel that gets an element after a connection of the owner was made in this process, until stop is called.
func (b *consentBell) listen(o vault.Owner) (made <-chan struct{}, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := make(chan struct{}, 1)
	if b.waiting == nil {
		b.waiting = map[vault.Owner]map[chan struct{}]bool{}
	}
	if b.waiting[o] == nil {
		b.waiting[o] = map[chan struct{}]bool{}
	}
	b.waiting[o][c] = true
	return c, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.waiting[o], c); len(b.waiting[o]) == 0 {
			delete(b.waiting, o)
		}
	}
}

// ring wakes the calls that wait for a connection of the owner.
func (b *consentBell) ring(o vault.Owner) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for c := range b.waiting[o] {
		select {
		case c <- struct{}{}:
		default: // it is awake
		}
	}
}

// ConnectFirst returns a Caller that asks the caller of a call without a connection to make it, at a link, and passes the call on when it exists.
// A client that cannot show its person a link (elicitation by URL) gets the error SB-AUTH-005 with the link. link returns the address of a ticket; "" if no
// person can open one. A call that has waited passes recheck again, because what permits it may have changed meanwhile.
func (b *Broker) ConnectFirst(link func(ticket string) string, recheck func(switchboard.Caller) switchboard.Caller, next switchboard.Caller) switchboard.Caller {
	rechecked := recheck(next)
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		refused, caller := b.refusalOf(ctx, c), next
		for again := false; ; again = true {
			if refused == nil {
				r, err := caller.Call(ctx, c)
				if refused = isConnectFirst(err); refused == nil {
					return r, err
				}
			}
			address := b.linkFor(ctx, c, link)
			if address == "" {
				if refused.Hint == "" {
					refused.Hint = "no link can be made for it now; the operator connects it: switchboard server connect " + string(c.Server) + " --for " + callerName(c)
				}
				return switchboard.Result{}, refused
			}
			refused.Hint = "ask the person whom you work for to open " + address + " and to call this again after that"
			was, _ := b.ConsentOf(c.Server, &c.Principal) // one with too few scopes is there
			if again || !b.askToConnect(ctx, c, address) || !b.awaitConsent(ctx, c, was) {
				return switchboard.Result{}, refused
			}
			refused, caller = nil, rechecked
		}
	})
}

// refusalOf returns why a call to a server has no credential that a person could not make; nil if it has one, or another reason will stop it.
func (b *Broker) refusalOf(ctx context.Context, c *switchboard.Call) *switchboard.Error {
	all, ok := b.servers.Load(c.Server)
	if !ok {
		return nil
	}
	held, _ := all.(*credentials)
	if _, ok := held.Held(&c.Principal); ok {
		return nil
	}
	_, err := held.Get(ctx, &c.Principal)
	return isConnectFirst(err)
}

// isConnectFirst returns a copy of an error that says that a person has to connect first; nil for every other one.
func isConnectFirst(err error) *switchboard.Error {
	refused, ok := errors.AsType[*switchboard.Error](err)
	if !ok || refused.Code != switchboard.CodeConnectFirst || !refused.Unsent {
		return nil
	}
	copied := *refused
	return &copied
}

// linkFor returns the link for the owner of the call's connection, who makes it there; "" if there is none.
func (b *Broker) linkFor(ctx context.Context, c *switchboard.Call, link func(string) string) string {
	s := b.serverOf(c.Server)
	if s == nil || link("") == "" {
		return ""
	}
	owner := OwnerOf(s, &c.Principal)
	if owner.Person == "" || owner.Person == clientPerson {
		return ""
	}
	t, release, ok := b.tickets.take(ctx, owner)
	if !ok {
		return ""
	}
	defer release()
	if t.id != "" && time.Since(t.made) < ticketReuse {
		if _, err := b.vault.ReadTicket(ctx, t.id); err == nil { // it is unused
			return link(t.id)
		}
	}
	note, err := json.Marshal(ticketNote{Server: c.Server, Name: callerName(c)})
	if err != nil {
		return ""
	}
	id, err := b.vault.NewTicket(ctx, owner, note)
	if err != nil {
		b.log.Warn("a person cannot be asked to connect a server", "server", string(c.Server), "tenant", string(c.Principal.Tenant), "error", err)
		return ""
	}
	t.id, t.made = id, time.Now()
	return link(id)
}

// callerName names the caller as commands do: TENANT/KEY.
func callerName(c *switchboard.Call) string { return string(c.Principal.Tenant) + "/" + c.Principal.ID }

// askToConnect asks the call's client to show its person the link, and reports whether the person has agreed to open it.
func (b *Broker) askToConnect(ctx context.Context, c *switchboard.Call, address string) bool {
	elicitation, _ := wire.Field(c.Client.Capabilities, "elicitation")
	if _, byURL := wire.Field(elicitation, "url"); c.Client.Ask == nil || !byURL {
		return false
	}
	question := map[string]string{
		"mode": "url", "url": address,
		"message": "Server " + string(c.Server) + " acts for you only after you have connected it. Open this link, sign in, and agree; the call goes on by itself.",
	}
	if !c.Client.TakesQuestions { // only the legacy era has it
		question["elicitationId"] = rand.Text()
	}
	params, err := json.Marshal(question)
	if err != nil {
		return false
	}
	answer, err := c.Client.Ask(ctx, wire.MethodElicit, params)
	if err != nil {
		return false
	}
	raw, _ := wire.Field(answer, "action")
	action, _ := wire.String(raw)
	return action == "accept"
}

// awaitConsent waits until the call has a connection of another consent than was. It returns false if the call ends first, or vault.TicketTime is over.
func (b *Broker) awaitConsent(ctx context.Context, c *switchboard.Call, was uint64) bool {
	ctx, cancel := context.WithTimeout(ctx, vault.TicketTime)
	defer cancel()
	s := b.serverOf(c.Server)
	if s == nil {
		return false
	}
	made, stop := b.bell.listen(OwnerOf(s, &c.Principal))
	defer stop()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		if b.refusalOf(ctx, c) == nil {
			if now, known := b.ConsentOf(c.Server, &c.Principal); known && now != was {
				return ctx.Err() == nil
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-made:
		case <-look.C:
		}
	}
}

// ConsentOf identifies the connection that the principal's calls to the server use; 0 if they use none. Another connection may belong to another account, with
// other results. If known is false, the connection is not known now.
func (b *Broker) ConsentOf(id switchboard.ServerID, p *switchboard.Principal) (consent uint64, known bool) {
	all, ok := b.servers.Load(id)
	if !ok {
		return 0, true
	}
	c, _ := all.(*credentials)
	held, known := c.Held(p)
	return held.Generation.Consent, known
}
