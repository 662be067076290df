package notice

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/dial"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/store/feed"
	"github.com/summit-switchboard/switchboard/internal/store/lease"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// Times of delivering.
const (
	attemptTimeout = 15 * time.Second

	// firstPause is the time after a failed attempt. It doubles with each further one, up to maxPause: people must soon hear of a request once their
	// recipient answers again. A recipient may ask for longer, up to maxAsked. While a recipient fails, it gets one request at a time.
	firstPause = time.Second
	maxPause   = time.Minute
	maxAsked   = 5 * time.Minute

	lookInterval = 30 * time.Second // for notices that other processes have put in
	ownerTTL     = 4 * time.Second  // a process that was killed owns a mailbox for so long
	retryStore   = time.Second
	ownedPause   = time.Second // while another process delivers, each notice would wake this one
)

// SecretPrefix begins a secret of Standard Webhooks. The rest is base64.
const SecretPrefix = "whsec_"

// newClient returns the client for all webhooks.
func newClient(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = &http.Transport{DialContext: dial.Context, Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 64 << 10}
	}
	return &http.Client{
		Timeout: attemptTimeout, Transport: transport,
		// A recipient that moves is a failure: the operator named this address, and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// sign returns the signature of a webhook: https://www.standardwebhooks.com, "Signature scheme".
func sign(secret switchboard.Secret, id string, at time.Time, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), SecretPrefix))
	if err != nil {
		return "", errors.New("its secret is not base64") // err would show a part of it
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body) // it never fails
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// deliver makes one attempt. pause is how long the recipient asks to wait. The error shows no more of the address than its host; the rest may have a secret in it.
func (o *Outbox) deliver(ctx context.Context, to switchboard.Recipient, l *letter) (pause time.Duration, err error) {
	now := time.Now()
	signature, err := sign(to.Secret, l.ID, now, l.Body)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.URL.Reveal(), bytes.NewReader(l.Body))
	if err != nil {
		return 0, errors.New("its address is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "switchboard")
	req.Header.Set("webhook-id", l.ID)
	req.Header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	req.Header.Set("webhook-signature", signature)
	resp, err := o.client.Do(req)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok {
			err = at.Err
		}
		return 0, err
	}
	defer resp.Body.Close()                                     //nolint:errcheck // it was only read
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4096)) // so that the connection can be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return 0, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return 0, fmt.Errorf("it answers %d, and a redirect is not followed: write the new address into notify", resp.StatusCode)
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		pause = min(time.Duration(seconds)*time.Second, maxAsked)
	}
	return pause, fmt.Errorf("it answers %d", resp.StatusCode)
}

// count counts an outcome for a recipient.
func (o *Outbox) count(recipient, outcome string) {
	if o.o.Count != nil {
		o.o.Count(recipient, outcome)
	}
}

// run empties the mailbox again and again until ctx is done.
func (b *mailbox) run(ctx context.Context) {
	s := b.outbox.o.Store
	changes := feed.Watch(s, groupOf(b.name), 0)
	defer changes.Close()
	c := &carrier{mailbox: b, delivered: map[string]bool{}}
	for {
		again := time.NewTimer(c.empty(ctx))
		select {
		case <-ctx.Done():
		case <-again.C:
		case <-changes.Wakes():
			changes.Take()
		case <-b.wake:
		}
		again.Stop()
		if ctx.Err() != nil {
			if n := b.backlog().Notices; n > 0 {
				b.outbox.o.Log.Info("notices wait for a recipient", "to", b.name, "notices", n)
			}
			return
		}
	}
}

// A carrier empties one mailbox.
type carrier struct {
	*mailbox
	failures  int             // in a row
	after     string          // the letter that failed last; the ones behind it come first
	delivered map[string]bool // letters that are still in the store, by name
}

// empty delivers what is in the mailbox, if no other process does. It returns how long to wait before it is called again, if nothing is put in.
func (c *carrier) empty(ctx context.Context) time.Duration {
	letters, err := c.recount(ctx)
	if err != nil {
		return retryStore
	}
	if len(letters) == 0 {
		return lookInterval
	}
	self := make([]byte, 16)
	rand.Read(self)
	owner := lease.New(c.outbox.o.Store, lease.Options{Key: store.Key{Group: groupOf(c.name), Name: ownerName}, TTL: ownerTTL, Data: self})
	if err := owner.Take(ctx); err != nil {
		if errors.Is(err, store.ErrConflict) {
			select {
			case <-ctx.Done():
			case <-time.After(ownedPause):
			}
			return ownerTTL / 2
		}
		return retryStore
	}
	stop := owner.Keep(ctx, nil)
	defer func() {
		stop()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		defer cancel()
		_ = owner.Release(ctx) // otherwise it expires
	}()
	for ctx.Err() == nil && owner.Held() {
		if letters, err = c.recount(ctx); err != nil {
			return retryStore
		}
		if len(letters) == 0 {
			return 0 // something may be put in before the lease is released
		}
		pause, ok := c.deliverAll(ctx, letters)
		if !ok {
			return retryStore
		}
		if pause == 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-c.mended:
			c.failures = 0
		}
	}
	return retryStore
}

// deliverAll delivers letters until one fails, beginning behind the one that failed last, and takes those out that were delivered or are too old.
// pause is how long to wait after a failure. ok is false if the store cannot be written.
func (c *carrier) deliverAll(ctx context.Context, letters []*storedLetter) (pause time.Duration, ok bool) {
	first := 0
	for i, l := range letters {
		if l.value.Name <= c.after {
			first = i + 1
		}
	}
	for i := range letters {
		l := letters[(first+i)%len(letters)]
		name := l.value.Name
		to, known := c.outbox.find(c.name)
		switch age := time.Since(l.At); {
		case ctx.Err() != nil || !known:
			return 0, false
		case c.delivered[name]:
		case age > maxAge || l.ID == "":
			c.outbox.o.Log.Error("a notice is given up", "to", c.name, "id", l.ID, "tenant", l.Tenant, "age", age.Truncate(time.Second), "err", c.backlog().Fault)
			c.outbox.count(c.name, GivenUp)
		default:
			asked, err := c.outbox.deliver(ctx, to, &l.letter)
			if ctx.Err() != nil {
				return 0, false
			}
			if err != nil {
				c.after = name
				return max(asked, c.failed(err)), true
			}
			c.outbox.count(c.name, Delivered)
			c.worked()
		}
		c.delivered[name] = true
		if err := c.submit(ctx, &submission{drop: l}); err != nil {
			return 0, false
		}
		delete(c.delivered, name)
	}
	return 0, true
}

// failed notes a failed attempt, and returns how long to wait.
func (c *carrier) failed(err error) time.Duration {
	pause := maxPause
	if c.failures < 9 {
		pause = min(maxPause, firstPause<<c.failures)
	}
	c.failures++
	c.outbox.count(c.name, Failed)
	text := fmt.Sprintf("%.300v", err)
	c.mu.Lock()
	if c.seen.Fault == "" {
		c.seen.Since = time.Now().UTC()
	}
	again := c.seen.Fault == text
	c.seen.Fault, c.seen.Next = text, time.Now().Add(pause).UTC()
	c.mu.Unlock()
	if !again {
		c.outbox.o.Log.Warn("a notice is not delivered; it is tried again for a day", "to", c.name, "err", text)
	}
	return pause
}

// worked notes a delivery.
func (c *carrier) worked() {
	c.failures = 0
	c.mu.Lock()
	again := c.seen.Fault != ""
	c.seen.Fault, c.seen.Since, c.seen.Next = "", time.Time{}, time.Time{}
	c.mu.Unlock()
	if again {
		c.outbox.o.Log.Info("notices are delivered again", "to", c.name)
	}
}
