// Package preview shows a model the beginning and the shape of a result that is too long
// for it, and keeps the result, so that the model can read on.
//
// It decides what is too long, what stands in a preview, and how long and for whom a result
// is kept. Whether the principal may still have the result is decided by policy, which
// is asked again each time that somebody reads on.
//
// What is kept is the result as policy let it pass, without what policy redacts. A result
// belongs to one principal and one run.
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
	// KeptFor is how long a result is kept.
	KeptFor = time.Hour

	// MaxKept bounds the bytes that are kept of one principal: the oldest results go first.
	MaxKept = 64 << 20

	// MaxResults bounds the number of these results.
	MaxResults = 256

	patience = 5 * time.Second // with the store
	maxTries = 8               // while other results of the principal are being kept
)

// A Store is where results are kept.
type Store interface {
	Value(ctx context.Context, k store.Key) (store.Value, error)
	Apply(ctx context.Context, c store.Change) (store.Version, error)
}

// Options are what a Keeper is made of.
type Options struct {
	Store Store

	// Bound says how many bytes of text the client of the call gets at once; 0 means
	// any number.
	Bound func(*switchboard.Call) int

	// Count counts tokens.
	Count func(text []byte) int

	// Guard lets nothing through that policy does not allow now.
	Guard func(switchboard.Caller) switchboard.Caller

	Log *slog.Logger
}

// A Keeper bounds results, and keeps those that are too long. Use New. It is safe for
// concurrent use.
type Keeper struct {
	o     Options
	locks [64]sync.Mutex // by principal, as far as there are enough
}

// New returns a Keeper.
func New(o Options) *Keeper { return &Keeper{o: o} }

func (k *Keeper) lockOf(p switchboard.Principal) *sync.Mutex {
	return &k.locks[maphash.String(seed, groupOf(p))%uint64(len(k.locks))]
}

var seed = maphash.MakeSeed()

// Bounded returns a Caller that gives a preview of a result whose text is longer than the
// bound of the call. A result that cannot be kept is given whole. It belongs around all
// others, so that it keeps what they let pass.
func (k *Keeper) Bounded(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		r, err := next.Call(ctx, c)
		if err != nil || c.Tool == nil || c.Whole || c.Kept != nil {
			return r, err
		}
		most := k.o.Bound(c)
		if most == 0 || len(r.JSON) <= most {
			return r, err
		}
		d := documentOf(r.JSON, c.Tool.Structured)
		if d == nil || d.size <= most {
			return r, err
		}
		handle, err := k.keep(ctx, c, &r)
		if err != nil {
			k.o.Log.Warn("a long result is given whole, because it cannot be kept", "tenant", c.Principal.Tenant, "principal", c.Principal.ID, "tool", c.Tool.ID.String(), "bytes", len(r.JSON), "err", err)
			return r, nil
		}
		return k.preview(r, d, handle, most), nil
	})
}

// Reread returns a Caller that answers a call whose result is kept with that result, if
// policy allows the call now. No server is called.
func (k *Keeper) Reread(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, c *switchboard.Call) (switchboard.Result, error) {
		if c.Kept == nil {
			return next.Call(ctx, c)
		}
		give := k.o.Guard(switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			c.Trail.Gave(switchboard.GivenKept)
			return switchboard.Result{JSON: c.Kept.JSON, Again: &switchboard.Again{From: switchboard.GivenKept, When: c.Kept.When}}, nil
		}))
		if c.Kept.Served == c.Tool.ID {
			return give.Call(ctx, c)
		}
		at := slices.IndexFunc(c.Equivalents, func(e switchboard.Equivalent) bool { return e.Tool.ID == c.Kept.Served })
		if at < 0 {
			return switchboard.Result{}, ErrUnknown
		}
		e := c.Equivalents[at]
		params, err := e.Params(c.Params)
		if err != nil {
			return switchboard.Result{}, ErrUnknown
		}
		served := *c
		served.Server, served.Tool, served.Target, served.Judgments, served.Params = e.Tool.ID.Server, e.Tool, e.Tool.ID.Name, e.Judgments, params
		return k.o.Guard(switchboard.CallerFunc(func(ctx context.Context, _ *switchboard.Call) (switchboard.Result, error) {
			return give.Call(ctx, &served)
		})).Call(ctx, c)
	})
}

// ErrUnknown is the answer to a handle that names no result of the principal's run.
var ErrUnknown = &switchboard.Error{
	Code: switchboard.CodeBadArguments,
	Text: "no result is kept under this handle",
	Hint: "a result is kept for an hour, and for the task in which it was given: call the tool again",
}

// indexName is the name of the value that says which results of a principal are kept.
const indexName = "index"

func groupOf(p switchboard.Principal) string { return "results/" + string(p.Tenant) + "/" + p.ID }

// An entry of the index is one result that is kept.
type entry struct {
	Handle string    `json:"handle"`
	Bytes  int       `json:"bytes"`
	When   time.Time `json:"when"`
}

// A header stands before the result that is kept, on a line of its own.
type header struct {
	Run    switchboard.RunID  `json:"run"` // "" for a base run: then the task tells the runs of a principal apart
	Task   switchboard.TaskID `json:"task"`
	Tool   switchboard.ToolID `json:"tool"`   // that was called
	Served switchboard.ToolID `json:"served"` // and the one that has answered
	When   time.Time          `json:"when"`
	Params json.RawMessage    `json:"params"`
}

// keep keeps the result, and returns its handle.
func (k *Keeper) keep(ctx context.Context, c *switchboard.Call, r *switchboard.Result) (handle string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	h := header{Run: c.Run, Task: c.Task, Tool: c.Tool.ID, Served: c.Tool.ID, When: time.Now().UTC(), Params: c.Params}
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
	lock.Lock() // the results of one principal that come at once do not race for the index
	defer lock.Unlock()
	handle = "res_" + strings.ToLower(rand.Text()[:12])
	group := groupOf(c.Principal)
	for try := range maxTries {
		index, version, err := k.index(ctx, group)
		if err != nil {
			return "", err
		}
		if n := len(index); n > 0 && index[n-1].When.After(h.When) {
			h.When = index[n-1].When // by the clock of another replica
		}
		index, gone := room(append(index, entry{handle, len(data), h.When}), h.When)
		text, err := json.Marshal(index)
		if err != nil {
			return "", err
		}
		_, err = k.o.Store.Apply(ctx, store.Change{Group: group, Writes: []store.Write{
			{Name: indexName, Was: version, Data: text, TTL: KeptFor},
			{Name: handle, Data: data, TTL: KeptFor},
		}})
		if errors.Is(err, store.ErrConflict) {
			select {
			case <-time.After(time.Duration(mathrand.Int64N(int64(try+1) * int64(10*time.Millisecond)))):
			case <-ctx.Done():
			}
			continue
		}
		if err == nil {
			k.drop(ctx, group, gone)
		}
		return handle, err
	}
	return "", errors.New("too many results of the principal are being kept at once")
}

// index reads which results are kept, the oldest first. An index that does not open is replaced by the next one.
func (k *Keeper) index(ctx context.Context, group string) (all []entry, version store.Version, err error) {
	v, err := k.o.Store.Value(ctx, store.Key{Group: group, Name: indexName})
	if errors.Is(err, store.ErrUnopened) {
		return nil, v.Version, nil
	}
	if err != nil || v.Version == 0 {
		return nil, 0, err
	}
	err = json.Unmarshal(v.Data, &all)
	return all, v.Version, err
}

// room returns the newest of the entries that may be kept together, and the others but for
// those that have expired.
func room(all []entry, now time.Time) (stay, gone []entry) {
	slices.SortStableFunc(all, func(a, b entry) int { return a.When.Compare(b.When) })
	first, size := len(all), 0
	for first > 0 && len(all)-first < MaxResults && size+all[first-1].Bytes <= MaxKept {
		first--
		size += all[first].Bytes
	}
	expired := func(e entry) bool { return now.Sub(e.When) >= KeptFor }
	return slices.DeleteFunc(slices.Clone(all[first:]), expired), slices.DeleteFunc(slices.Clone(all[:first]), expired)
}

// drop deletes results. What it cannot delete expires.
func (k *Keeper) drop(ctx context.Context, group string, gone []entry) {
	for some := range slices.Chunk(gone, store.MaxWrites) {
		c := store.Change{Group: group}
		for _, e := range some {
			c.Writes = append(c.Writes, store.Write{Name: e.Handle, Was: store.Any})
		}
		if _, err := k.o.Store.Apply(ctx, c); err != nil {
			k.o.Log.Warn("old results are kept until they expire", "results", len(gone), "err", err)
			return
		}
	}
}

// Open returns the result that is kept under the handle for the principal's run and task. The error
// is a *switchboard.Error: SB-CAP-003 if there is none, SB-ROUT-004 if the store cannot be
// used.
func (k *Keeper) Open(ctx context.Context, who switchboard.Principal, run switchboard.RunID, task switchboard.TaskID, handle string) (*switchboard.Kept, error) {
	if handle == indexName || len(handle) > store.MaxKey {
		return nil, ErrUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	v, err := k.o.Store.Value(ctx, store.Key{Group: groupOf(who), Name: cmp.Or(handle, "none")})
	if errors.Is(err, store.ErrUnopened) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, switchboard.Unavailable("the result cannot be read", err)
	}
	head, result, _ := bytes.Cut(v.Data, []byte{'\n'})
	var h header
	if v.Version == 0 || json.Unmarshal(head, &h) != nil || h.Run != run || h.Task != task {
		return nil, ErrUnknown
	}
	return &switchboard.Kept{Tool: h.Tool, Served: h.Served, When: h.When, Params: h.Params, JSON: result}, nil
}

// Piece returns what is asked for of the result of the call. The error is a
// *switchboard.Error.
func (k *Keeper) Piece(a *Ask, c *switchboard.Call, result []byte) (string, error) {
	return a.piece(result, c.Tool.Structured, cmp.Or(k.o.Bound(c), switchboard.LocalResultBytes))
}

// preview returns the result with a preview in place of its texts.
func (k *Keeper) preview(r switchboard.Result, d *document, handle string, most int) switchboard.Result {
	text := k.text(d, handle, most)
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
	own.Preview = &switchboard.Preview{Handle: handle, Bytes: len(d.text()), Until: time.Now().Add(KeptFor).UTC().Truncate(time.Second)}
	own.Outline, own.Spare, own.Release = switchboard.Outline{}, 0, nil
	if r.Release != nil {
		r.Release()
	}
	return own
}
