// Package preview shows a model the beginning and the shape of a result that is too long for it,
// and stores the result, so that the model can read the rest.
//
// It decides which results are too long, what a preview contains, and how long and for whom a
// result is stored. Policy decides whether the principal may still have the result, and is asked
// again at each reading.
//
// The stored result is the one that policy let pass, already redacted. It belongs to one principal
// and one run.
package preview

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

const (
	// StoredFor is how long a result is stored.
	StoredFor = time.Hour

	// MaxStored limits the stored bytes of one principal: the oldest results are deleted first.
	MaxStored = 64 << 20

	// MaxResults limits the number of these results.
	MaxResults = 256

	storeTimeout = 5 * time.Second // for the store
	maxTries     = 8               // while other results of the principal are written
)

// A Store stores results.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// Options configure a Keeper.
type Options struct {
	Store Store

	// LimitFor returns how many bytes of text the client of the call gets at once; 0 means no limit.
	LimitFor func(*switchboard.Call) int

	// Count counts tokens.
	Count func(text []byte) int

	// Guard wraps a Caller so that policy checks each call.
	Guard func(switchboard.Caller) switchboard.Caller

	Log *slog.Logger
}

// A Keeper limits results, and stores those that are too long. Use New. It is safe for concurrent
// use.
type Keeper struct {
	options Options
	locks   [64]sync.Mutex // by principal; several principals may share one
}

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{options: o} }

func (k *Keeper) lockOf(p switchboard.Principal) *sync.Mutex {
	return &k.locks[maphash.String(hashSeed, groupOf(p))%uint64(len(k.locks))]
}

var hashSeed = maphash.MakeSeed()

// ShowPreviews returns a Caller that replaces a result by a preview if its text is longer than the limit
// of the call. A result that cannot be stored is given whole. ShowPreviews belongs around all other
// wrappers, so that it stores what they let pass.
func (k *Keeper) ShowPreviews(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		r, err := next.Call(ctx, c)
		if err != nil || c.Tool == nil || c.AnyLength || c.Stored != nil {
			return r, err
		}
		most := k.options.LimitFor(c)
		if most == 0 || len(r.JSON) <= most {
			return r, err
		}
		d := documentOf(r.JSON, c.Tool.Structured)
		if d == nil || d.size <= most {
			return r, err
		}
		handle, err := k.storeResult(ctx, c, &r)
		if err != nil {
			k.options.Log.Warn("a long result is given whole, because it cannot be stored", "tenant", c.Principal.Tenant, "principal", c.Principal.ID, "tool", c.Tool.ID.String(), "bytes", len(r.JSON), "err", err)
			return r, nil
		}
		return k.replaceByPreview(r, d, handle, most), nil
	})
}

// AnswerStored returns a Caller that answers a call for a stored result, if policy allows the call now.
// It calls no server.
func (k *Keeper) AnswerStored(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Stored == nil {
			return next.Call(ctx, c)
		}
		give := k.options.Guard(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			c.Trail.Gave(switchboard.GivenStored)
			return switchboard.Result{JSON: c.Stored.JSON, Repeated: &switchboard.Repeated{From: switchboard.GivenStored, When: c.Stored.When}}, nil
		}))
		if c.Stored.Served == c.Tool.ID {
			return give.Call(ctx, c)
		}
		at := slices.IndexFunc(c.Equivalents, func(e switchboard.Equivalent) bool { return e.Tool.ID == c.Stored.Served })
		if at < 0 {
			return switchboard.Result{}, ErrUnknownHandle
		}
		e := c.Equivalents[at]
		params, err := e.Params(c.Params)
		if err != nil {
			return switchboard.Result{}, ErrUnknownHandle
		}
		served := *c
		served.Server, served.Tool, served.Target, served.Judgments, served.Params = e.Tool.ID.Server, e.Tool, e.Tool.ID.Name, e.Judgments, params
		return k.options.Guard(switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
			return give.Call(ctx, &served)
		})).Call(ctx, c)
	})
}

// ErrUnknownHandle is the answer to a handle that names no stored result of the principal's run.
var ErrUnknownHandle = &switchboard.Error{
	Code: switchboard.CodeBadArguments,
	Text: "no result is kept under this handle",
	Hint: "a result is kept for an hour, and for the task in which it was given: call the tool again",
}

// indexName is the name of the value that lists the stored results of a principal.
const indexName = "index"

func groupOf(p switchboard.Principal) string { return "results/" + string(p.Tenant) + "/" + p.ID }

// An indexEntry is one stored result.
type indexEntry struct {
	Handle string    `json:"handle"`
	Bytes  int       `json:"bytes"`
	When   time.Time `json:"when"`
}

// A resultHeader precedes the stored result, on a line of its own.
type resultHeader struct {
	Run    switchboard.RunID  `json:"run"` // "" for a base run: then the task distinguishes the runs of a principal
	Task   switchboard.TaskID `json:"task"`
	Tool   switchboard.ToolID `json:"tool"`   // the Key of the called tool
	Served switchboard.ToolID `json:"served"` // the tool that answered
	When   time.Time          `json:"when"`
	Params json.RawMessage    `json:"params"`
}

// storeResult stores the result, and returns its handle.
func (k *Keeper) storeResult(ctx context.Context, c *switchboard.Call, r *switchboard.Result) (handle string, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	h := resultHeader{Run: c.Run, Task: c.Task, Tool: c.Tool.Key(), Served: c.Tool.ID, When: time.Now().UTC(), Params: c.Params}
	if r.Moved != nil {
		h.Served = r.Moved.To
	}
	data, err := json.Marshal(h)
	if err != nil {
		return "", err
	}
	data = append(append(data, '\n'), r.JSON...)
	if len(data) > store.MaxValue {
		return "", fmt.Errorf("it is %d bytes long; at most %d are kept", len(data), store.MaxValue)
	}
	lock := k.lockOf(c.Principal)
	lock.Lock() // simultaneous results of one principal do not compete for the index
	defer lock.Unlock()
	handle = "res_" + strings.ToLower(rand.Text()[:12])
	group := groupOf(c.Principal)
	for try := range maxTries {
		index, version, err := k.readIndex(ctx, group)
		if err != nil {
			return "", err
		}
		if n := len(index); n > 0 && index[n-1].When.After(h.When) {
			h.When = index[n-1].When // the clock of another replica is ahead
		}
		index, gone := splitByLimits(append(index, indexEntry{handle, len(data), h.When}), h.When)
		text, err := json.Marshal(index)
		if err != nil {
			return "", err
		}
		_, err = k.options.Store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{
			{Name: indexName, Was: version, Data: text, TTL: StoredFor},
			{Name: handle, Data: data, TTL: StoredFor},
		}})
		if errors.Is(err, store.ErrConflict) {
			select {
			case <-time.After(time.Duration(mathrand.Int64N(int64(try+1) * int64(10*time.Millisecond)))):
			case <-ctx.Done():
			}
			continue
		}
		if err == nil {
			k.deleteResults(ctx, group, gone)
		}
		return handle, err
	}
	return "", errors.New("too many results of the principal are being kept at once")
}

// readIndex returns the list of stored results, oldest first. If the index cannot be decrypted, the
// next one replaces it.
func (k *Keeper) readIndex(ctx context.Context, group string) (all []indexEntry, version store.Version, err error) {
	v, err := k.options.Store.Value(ctx, store.Key{Group: group, Name: indexName})
	if errors.Is(err, store.ErrUnopened) {
		return nil, v.Version, nil
	}
	if err != nil || v.Version == 0 {
		return nil, 0, err
	}
	err = json.Unmarshal(v.Data, &all)
	return all, v.Version, err
}

// splitByLimits divides the entries, without expired ones, into the newest ones that fit the limits
// and the others.
func splitByLimits(all []indexEntry, now time.Time) (stay, gone []indexEntry) {
	slices.SortStableFunc(all, func(a, b indexEntry) int { return a.When.Compare(b.When) })
	first, size := len(all), 0
	for first > 0 && len(all)-first < MaxResults && size+all[first-1].Bytes <= MaxStored {
		first--
		size += all[first].Bytes
	}
	expired := func(e indexEntry) bool { return now.Sub(e.When) >= StoredFor }
	return slices.DeleteFunc(slices.Clone(all[first:]), expired), slices.DeleteFunc(slices.Clone(all[:first]), expired)
}

// deleteResults deletes results. Results that cannot be deleted expire.
func (k *Keeper) deleteResults(ctx context.Context, group string, gone []indexEntry) {
	for some := range slices.Chunk(gone, store.MaxWrites) {
		c := store.Change{Group: group}
		for _, e := range some {
			c.Writes = append(c.Writes, store.Write{Name: e.Handle, Was: store.Any})
		}
		if _, err := k.options.Store.Apply(ctx, c); err != nil {
			k.options.Log.Warn("old results are kept until they expire", "results", len(gone), "err", err)
			return
		}
	}
}

// Open returns the stored result with the handle, if it belongs to the principal's run and task.
// The error is a *switchboard.Error: SB-CAP-003 if there is none, SB-ROUT-004 if the store cannot
// be used.
func (k *Keeper) Open(ctx context.Context, who switchboard.Principal, run switchboard.RunID, task switchboard.TaskID, handle string) (*switchboard.StoredResult, error) {
	if handle == indexName || len(handle) > store.MaxKey {
		return nil, ErrUnknownHandle
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	v, err := k.options.Store.Value(ctx, store.Key{Group: groupOf(who), Name: cmp.Or(handle, "none")})
	if errors.Is(err, store.ErrUnopened) {
		return nil, ErrUnknownHandle
	}
	if err != nil {
		return nil, switchboard.Unavailable("the result cannot be read", err)
	}
	head, result, _ := bytes.Cut(v.Data, []byte{'\n'})
	var h resultHeader
	if v.Version == 0 || json.Unmarshal(head, &h) != nil || h.Run != run || h.Task != task {
		return nil, ErrUnknownHandle
	}
	return &switchboard.StoredResult{Tool: h.Tool, Served: h.Served, When: h.When, Params: h.Params, JSON: result}, nil
}

// ReadPart returns the requested part of the result of the call. The error is a *switchboard.Error.
func (k *Keeper) ReadPart(a *ReadRequest, c *switchboard.Call, result []byte) (string, error) {
	return a.readPiece(result, c.Tool.Structured, cmp.Or(k.options.LimitFor(c), switchboard.LocalResultBytes))
}

// replaceByPreview replaces the texts of the result by a preview.
func (k *Keeper) replaceByPreview(r switchboard.Result, d *textDocument, handle string, most int) switchboard.Result {
	text := k.previewText(d, handle, most)
	content := wire.AppendString([]byte(`[{"type":"text","text":`), text)
	content = append(content, '}')
	for _, other := range d.others {
		content = append(append(content, ','), other...)
	}
	edits := []wire.Edit{{Name: "content", Value: append(content, ']')}}
	if d.structured {
		edits = append(edits, wire.Edit{Name: "structuredContent"})
	}
	own := r
	own.JSON = wire.Rewrite(nil, r.JSON, edits...)
	own.Preview = &switchboard.Preview{Handle: handle, Bytes: len(d.text()), Until: time.Now().Add(StoredFor).UTC().Truncate(time.Second)}
	own.Outline, own.Spare, own.Release = switchboard.Outline{}, 0, nil
	if r.Release != nil {
		r.Release()
	}
	return own
}
