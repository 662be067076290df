package approval

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The requests of a tenant are one group of the store: a value for each binding, and the index, which says how many are pending. The params of a call are
// sealed in the request's own value, so that its end deletes them too; long ones are in a group of their own, so that a list does not read them. What a call
// names that is not a tool, such as a URI, is a part of its params: it is sealed in the request's value, and its end deletes it.

const (
	topic     = "approval"
	indexName = "index"
	purpose   = "the params of a call that waits"

	purposeItem = "the item of a call that waits"

	shortLength = 16      // of 32 letters: 80 bits
	maxWithin   = 2 << 10 // bytes of params that are kept within the request's value
)

func groupOf(t switchboard.TenantID) string     { return "approval/" + string(t) }
func paramsGroup(t switchboard.TenantID) string { return "approval params/" + string(t) }

func stripe(t switchboard.TenantID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(t)) // it never fails
	return int(h.Sum32() & 0xffff)
}

var letters = base32.StdEncoding.WithPadding(base32.NoPadding)

// bindingOf returns the HMAC over everything that a person says yes to, under the tenant's own key.
func bindingOf(key switchboard.Secret, q *Request) string {
	of := hmac.New(sha256.New, []byte(key.Reveal()))
	_, _ = of.Write([]byte("tenant " + string(q.Asker.Tenant)))
	mac := hmac.New(sha256.New, of.Sum(nil))
	add := func(parts ...string) {
		for _, p := range parts {
			_, _ = mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(p))))
			_, _ = mac.Write([]byte(p))
		}
	}
	a, t, terms := &q.Asker, &q.Target, &q.Terms
	add(string(q.Kind), string(a.Tenant), a.Principal, string(a.Auth), string(a.Task))
	add(t.Method, string(t.Server), t.Tool, string(t.Definition), t.Arguments, t.Capability)
	add(strconv.Itoa(terms.Needed()), strconv.FormatBool(terms.NoStanding), strconv.Itoa(len(terms.Who)))
	add(terms.Who...)
	if t.ForRun != "" {
		add("run", string(t.ForRun))
	}
	for _, r := range terms.Rules {
		add(r.Layer, r.File, string(r.Digest))
	}
	sum := mac.Sum(nil)
	return strings.ToLower(letters.EncodeToString(sum[:10])) + hex.EncodeToString(sum[10:])
}

func shortBinding(b string) string { return b[:min(len(b), shortLength)] }

// requestMemory says how the store has a request.
type requestMemory struct {
	version store.Version
	sealed  []byte // the kept call; nil if it is elsewhere, or gone
	item    []byte // Target.Item, sealed; nil for a tool, or if the request has ended
}

// storedRequest is the value of a request in the store.
type storedRequest struct {
	*Request
	Sealed []byte `json:"sealed,omitempty"`
	Item   []byte `json:"item,omitempty"`
}

func (r *Request) encode() []byte {
	own := *r
	if kind := r.Target.Item.Kind; kind != "" { // its name and its URI may hold secrets
		own.Target.Tool, own.Target.Item = r.Target.Label().Name, switchboard.Item{Kind: kind}
	}
	text, err := json.Marshal(storedRequest{&own, r.memory.sealed, r.memory.item})
	if err != nil {
		panic(err) // texts, numbers and times can be encoded
	}
	return text
}

// errDamaged says that the value of a request cannot be read.
var errDamaged = errors.New("a request for approval cannot be read")

// decode returns the request in a value; nil if there is none. The error says that it cannot be read. What it asks for has only its kind if the request has ended, or
// if the rest does not open.
func (k *requestBook) decode(v store.Value) (*Request, error) {
	if v.Data == nil {
		return nil, nil //nolint:nilnil // there is none
	}
	s := storedRequest{Request: &Request{}}
	if err := jsonv2.Unmarshal(v.Data, &s); err != nil { // a list reads thousands, and this takes a quarter of the time
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	s.memory = &requestMemory{v.Version, s.Sealed, s.Item}
	switch {
	case len(s.Item) > 0:
		text, ok := k.o.Sealer.Unseal(purposeItem, s.sealName(), s.Item)
		var item switchboard.Item
		if ok && json.Unmarshal(text, &item) == nil {
			s.Target.Item = item
			s.Target.Tool = item.Label()
		}
	case s.Target.Item.Name != "": // an earlier version has not sealed it
		if err := k.sealItem(s.Request); err != nil {
			return nil, err
		}
	}
	return s.Request, nil
}

// ttl is how long the value is kept.
func (r *Request) ttl(now time.Time) time.Duration {
	last := r.Until
	if r.Grant.Until.After(last) {
		last = r.Grant.Until
	}
	return max(last.Sub(now), 0) + keepEnded
}

// A KeptCall is the call of a request, as its client made it.
type KeptCall struct {
	Params []byte
	Key    *switchboard.IdempotencyKey
}

// keptHead is the line before the params in a sealed text.
type keptHead struct {
	Key  string `json:"key,omitempty"`
	Tool string `json:"tool,omitempty"`
}

// sealName returns the name to which the sealed parts of the request are bound.
func (r *Request) sealName() string {
	return string(r.Asker.Tenant) + " " + r.Binding + " " + strconv.Itoa(r.Number)
}

// seal seals a call for the request, in its value or in a value of its own.
func (k *requestBook) seal(ctx context.Context, r *Request, c KeptCall, now time.Time) error {
	var head keptHead
	if c.Key != nil {
		head = keptHead{c.Key.Key, c.Key.Tool}
	}
	line, err := json.Marshal(head)
	if err != nil {
		return err
	}
	if err := k.sealItem(r); err != nil {
		return err
	}
	r.Target.Bytes = len(c.Params)
	sealed := k.o.Sealer.Seal(purpose, r.sealName(), slices.Concat(line, []byte("\n"), c.Params))
	if len(c.Params) <= maxWithin {
		r.memory.sealed = sealed
		return nil
	}
	_, err = k.o.Store.Apply(ctx, store.Change{Group: paramsGroup(r.Asker.Tenant), Writes: []store.Write{
		{Name: r.ID(), Was: store.Any, Data: sealed, TTL: max(r.Until.Sub(now), time.Second)},
	}})
	return err
}

// sealItem seals what a call names that is not a tool.
func (k *requestBook) sealItem(r *Request) error {
	if r.Target.Item.Kind == "" {
		return nil
	}
	item, err := json.Marshal(r.Target.Item)
	if err != nil {
		return err
	}
	r.memory.item = k.o.Sealer.Seal(purposeItem, r.sealName(), item)
	return nil
}

// Kept returns the call of an open request. The error is ErrNoRequest if it is gone, since the request has ended, or says that it cannot be read.
func (k *requestBook) Kept(ctx context.Context, r *Request) (KeptCall, error) {
	if r.Kind != ForCall || !r.StateAt(time.Now()).Open() {
		return KeptCall{}, ErrNoRequest
	}
	sealed := r.memory.sealed
	if r.Target.Bytes > maxWithin {
		ctx, cancel := context.WithTimeout(ctx, storeTimeout)
		defer cancel()
		v, err := k.o.Store.Value(ctx, store.Key{Group: paramsGroup(r.Asker.Tenant), Name: r.ID()})
		if err != nil {
			return KeptCall{}, err
		}
		sealed = v.Data
	}
	text, ok := k.o.Sealer.Unseal(purpose, r.sealName(), sealed)
	line, params, cut := strings.Cut(string(text), "\n")
	var head keptHead
	if !ok || !cut || json.Unmarshal([]byte(line), &head) != nil {
		return KeptCall{}, ErrUnreadable
	}
	kept := KeptCall{Params: []byte(params)}
	if head.Key != "" {
		kept.Key = &switchboard.IdempotencyKey{Key: head.Key, Tool: head.Tool}
	}
	return kept, nil
}

// An askIndex says which requests of a tenant there are, in the order of their making.
type askIndex struct {
	Entries []askEntry `json:"entries"`
	Rates   []askRate  `json:"rates,omitempty"`
}

// An askRate counts what one principal has asked for within an hour, also what has no entry any more.
type askRate struct {
	Principal string `json:"p"`
	Since     int64  `json:"s"` // unix seconds
	Count     int    `json:"c"`
}

// An askEntry is the index's word on one binding.
type askEntry struct {
	Name      string `json:"n"` // the short form of the binding
	Principal string `json:"p"`
	Kind      Kind   `json:"k"`
	Asked     int64  `json:"a"` // unix seconds
	Until     int64  `json:"u"`
	Settled   bool   `json:"s,omitempty"` // it is not pending any more
	Untold    bool   `json:"t,omitempty"` // no notice of it is durable yet
}

// decodeIndex reads an index. One that cannot be read counts as empty: then nothing limits the requests that it had, and people are not told of those that it marks as untold.
func decodeIndex(data []byte) *askIndex {
	ix := &askIndex{}
	if jsonv2.Unmarshal(data, ix) != nil {
		return &askIndex{}
	}
	return ix
}

// readIndex returns the index of a tenant, and its version.
func (k *requestBook) readIndex(ctx context.Context, tenant switchboard.TenantID) (*askIndex, store.Version, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := k.o.Store.Value(ctx, store.Key{Group: groupOf(tenant), Name: indexName})
	if err != nil && !errors.Is(err, store.ErrUnopened) {
		return nil, 0, err
	}
	return decodeIndex(v.Data), v.Version, nil
}

// indexWrite replaces the index of the version.
func indexWrite(ix *askIndex, was store.Version) store.Write {
	return store.Write{Name: indexName, Was: was, Data: ix.encode(), TTL: keepEnded + MaxUntil}
}

func (ix *askIndex) encode() []byte {
	text, err := json.Marshal(ix)
	if err != nil {
		panic(err) // texts and numbers can be encoded
	}
	return text
}

// count counts a request of the principal.
func (ix *askIndex) count(principal string, now time.Time) {
	ix.Rates = slices.DeleteFunc(ix.Rates, func(a askRate) bool { return now.Unix()-a.Since >= hour })
	for i := range ix.Rates {
		if a := &ix.Rates[i]; a.Principal == principal {
			a.Count++
			return
		}
	}
	if len(ix.Rates) >= maxRates {
		i := slices.Index(ix.Rates, slices.MinFunc(ix.Rates, func(a, b askRate) int { return a.Count - b.Count }))
		ix.Rates = slices.Delete(ix.Rates, i, i+1)
	}
	ix.Rates = append(ix.Rates, askRate{principal, now.Unix(), 1})
}

// refuse returns why the request may not be made now: too many are pending, or were made lately.
func (ix *askIndex) refuse(q *Request, now time.Time) error {
	for _, a := range ix.Rates {
		if again := time.Unix(a.Since+hour, 0); a.Principal == q.Asker.Principal && a.Count >= MaxOfPrincipalHour && now.Before(again) {
			e := tooMany("you have asked people %d times within an hour; ask again at %s", a.Count, again.UTC().Format(time.TimeOnly+" UTC"))
			e.RetryAfter = again.Sub(now)
			return e
		}
	}
	var all, mine, capabilities, today int
	for _, e := range ix.Entries {
		pending := !e.Settled && now.Unix() < e.Until
		own := e.Principal == q.Asker.Principal
		if pending {
			all++
		}
		if pending && own {
			mine++
		}
		if own && e.Kind == ForCapability {
			if pending {
				capabilities++
			}
			if now.Unix()-e.Asked < 24*hour {
				today++
			}
		}
	}
	switch {
	case mine >= MaxOfPrincipal:
		return tooMany("%d requests of yours wait for a person already", mine)
	case all >= MaxOfTenant:
		return tooMany("%d requests of your tenant wait for a person already", all)
	case q.Kind == ForCapability && capabilities >= MaxCapabilities:
		return tooMany("%d requests of yours for capabilities wait for a person already", capabilities)
	case q.Kind == ForCapability && today >= MaxCapabilitiesDay:
		return tooMany("you have asked for capabilities %d times within a day", today)
	}
	return nil
}

// add adds a request. There must be room for it.
func (ix *askIndex) add(r *Request, now time.Time) {
	ix.count(r.Asker.Principal, now)
	ix.Entries = append(ix.Entries, askEntry{Name: shortBinding(r.Binding), Principal: r.Asker.Principal, Kind: r.Kind, Asked: now.Unix(), Until: r.Until.Unix(), Untold: true})
}

// fullWithout takes out the earlier entry of a call with the name, which the new one replaces, and reports whether the index is full even so. Every entry of a capability stays.
func (ix *askIndex) fullWithout(name string, room int) bool {
	ix.Entries = slices.DeleteFunc(ix.Entries, func(e askEntry) bool { return e.Name == name && e.Kind == ForCall })
	return len(ix.Entries) >= room
}

// evict takes out the oldest of the entries that may go, as long as the index is full, and returns the deletions of their requests. kept are the requests of the tenant.
func (ix *askIndex) evict(name string, kept map[string]*Request, room int, may func(*askEntry) bool) (deletes []store.Write) {
	const most = 8 // of one change
	for len(ix.Entries) >= room && len(deletes) < most {
		at := slices.IndexFunc(ix.Entries, func(e askEntry) bool { return may(&e) })
		if at < 0 {
			break
		}
		e := ix.Entries[at]
		ix.Entries = slices.Delete(ix.Entries, at, at+1)
		if r := kept[e.Name]; r != nil && e.Name != name && !slices.ContainsFunc(ix.Entries, func(o askEntry) bool { return o.Name == e.Name }) {
			deletes = append(deletes, store.Write{Name: e.Name, Was: r.memory.version}) // a yes that was just given back stays
		}
	}
	return deletes
}

// makeRoom takes entries out of a full index, and returns the deletions of their requests: first those that say nothing any more, and a no before its time only if
// nothing else can go.
func (ix *askIndex) makeRoom(name string, kept map[string]*Request, now time.Time, room int) []store.Write {
	over := func(e *askEntry) bool {
		return now.Unix() >= e.Until && (e.Kind == ForCall || now.Unix()-e.Asked >= 24*hour) // those of a day count for MaxCapabilitiesDay
	}
	ended := func(e *askEntry) bool {
		r := kept[e.Name]
		return e.Kind == ForCall && (r == nil || !r.StateAt(now).Open())
	}
	silent := func(e *askEntry) bool { return ended(e) && !kept[e.Name].stillSays(now) }
	var deletes []store.Write
	for _, may := range []func(*askEntry) bool{over, silent, ended} {
		deletes = append(deletes, ix.evict(name, kept, room, may)...)
	}
	return deletes
}

// settle notes that the request, the last one of its binding, is not pending any more.
func (ix *askIndex) settle(r *Request) {
	for i := len(ix.Entries) - 1; i >= 0; i-- {
		if e := &ix.Entries[i]; e.Name == shortBinding(r.Binding) {
			e.Settled, e.Until = true, max(e.Until, r.Grant.Until.Unix())
			return
		}
	}
}
