package upstream

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// The limits of one list of a server's. What is beyond them is left out, and the
// status says so.
const (
	maxPages     = 1_000
	maxItems     = 10_000
	maxListBytes = 32 << 20
	listPatience = 30 * time.Second
	morePatience = 5 * time.Second // for other lists than that of the tools
)

// A shelf is one kind of what servers offer.
type shelf struct {
	method     string // that lists it
	member     string // of the result that holds the list
	capability string // that a server declares which has it
	id         string // the member of an item by which clients ask for it
	changed    string // the notification that it has changed
	wish       string // the same in the filter of subscriptions/listen
}

// shelves are the kinds. Resources and their templates change together.
var shelves = [switchboard.NKinds]shelf{
	switchboard.Tools:     {wire.MethodToolsList, "tools", "tools", "name", wire.MethodToolsChanged, "toolsListChanged"},
	switchboard.Resources: {wire.MethodResourcesList, "resources", "resources", "uri", wire.MethodResourcesChanged, "resourcesListChanged"},
	switchboard.Templates: {wire.MethodTemplatesList, "resourceTemplates", "resources", "uriTemplate", wire.MethodResourcesChanged, "resourcesListChanged"},
	switchboard.Prompts:   {wire.MethodPromptsList, "prompts", "prompts", "name", wire.MethodPromptsChanged, "promptsListChanged"},
}

// listing reports whether the method asks for a list. Each item of a list is checked by itself, for its depth too.
func listing(method string) bool {
	return slices.ContainsFunc(shelves[:], func(s shelf) bool { return s.method == method })
}

// list asks for all pages of the kind's list. The items are the server's own
// bytes; note says what was left out of them.
func (l *link) list(ctx context.Context, k switchboard.Kind) (items [][]byte, note string, err error) {
	patience := listPatience
	if k != switchboard.Tools {
		patience = morePatience // which wait for it
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var (
		shelf  = shelves[k]
		size   int
		odd    int
		cursor []byte
	)
	seen := map[string]bool{}
	for page := 0; ; page++ {
		if page == maxPages {
			return items, fmt.Sprintf("its %s are cut after %d pages", k, maxPages), nil
		}
		own := []byte("{}")
		if cursor != nil {
			own = wire.Rewrite(nil, own, wire.Edit{Name: "cursor", Value: cursor})
		}
		result, err := l.ask(ctx, shelf.method, l.params(own, l.hello().version))
		if err != nil {
			if asFault(err).code == wire.CodeMethodNotFound && page == 0 && (k == switchboard.Templates || !l.hello().declares(shelf.capability)) {
				return nil, "", nil // it has none, and never said so
			}
			return nil, "", err
		}
		if size += len(result); size > maxListBytes {
			return items, fmt.Sprintf("its %s are cut after %d bytes", k, maxListBytes), nil
		}
		list, ok := wire.Field(result, shelf.member)
		if !ok || list[0] != '[' {
			return nil, "", faultf(kindInvalid, true, "its answer to %s holds no list of %s", shelf.method, k)
		}
		for item := range wire.Elements(list) {
			if len(items) == maxItems {
				return items, fmt.Sprintf("its %s are cut after %d", k, maxItems), nil
			}
			if k != switchboard.Tools && !sound(item) { // tools are read by those who decide about them
				odd++
				continue
			}
			items = append(items, item)
		}
		next, ok := wire.Field(result, "nextCursor")
		if !ok || string(next) == "null" {
			if odd > 0 {
				note = fmt.Sprintf("%d of its %s are left out: readers could take each for two things, or it is too deep", odd, k)
			}
			return items, note, nil
		}
		if _, ok := wire.String(next); !ok {
			return nil, "", faultf(kindInvalid, true, "its answer to %s has a cursor that is no string", shelf.method)
		}
		// An empty cursor is a cursor like any other, and so followed once.
		if seen[string(next)] {
			return items, fmt.Sprintf("its %s are cut after page %d, where the list starts over", k, page+1), nil
		}
		seen[string(next)] = true
		cursor = next
	}
}

// maxNamed is how many items a note names.
const maxNamed = 5

// cleaned takes out of the items what deceives those who read them (package scan): so that people who review them, policies and
// models see the same. What a client asks for an item by stays as it is, and so do the names of members. removed says what was taken out.
func cleaned(k switchboard.Kind, items [][]byte) (clean [][]byte, removed string) {
	var from []string
	for i, item := range items {
		better, n := scan.CleanJSON(item)
		if n == 0 {
			continue
		}
		id, _ := wire.Field(item, shelves[k].id)
		if now, ok := wire.Field(better, shelves[k].id); ok && !bytes.Equal(id, now) {
			better = wire.Rewrite(nil, better, wire.Edit{Name: shelves[k].id, Value: id})
		}
		if from == nil {
			items = slices.Clone(items)
		}
		items[i] = better
		name, _ := wire.String(id)
		name, _ = scan.Clean(name)
		from = append(from, fmt.Sprintf("%.64q (%d)", name, n))
	}
	if len(from) == 0 {
		return items, ""
	}
	more := ""
	if len(from) > maxNamed {
		more = fmt.Sprintf(" and %d more", len(from)-maxNamed)
		from = from[:maxNamed]
	}
	return items, fmt.Sprintf("characters that deceive were removed from the definitions of its %s %s%s", k, strings.Join(from, ", "), more)
}

// sound reports whether all readers take the item, an object, for the same, and a list of such items is no deeper than a message may be.
func sound(item []byte) bool {
	_, err := wire.Parse(wire.AppendNotification(nil, "item", item))
	return err == nil && item[0] == '{' && wire.Strict(slices.Concat([]byte("[[["), item, []byte("]]]")))
}

// Notes are what was left out of each list of a server's.
type notes [switchboard.NKinds]string

// String gives what there is.
func (n *notes) String() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(n[:]), func(s string) bool { return s == "" }), "; ")
}

// offers asks for the lists of the kinds, all at once, and takes the others from
// was, with their notes. What is wrong with another list than that of the tools
// is only noted, and what stood there before is kept: failed has those kinds.
func (l *link) offers(ctx context.Context, kinds switchboard.Kinds, was *switchboard.Offer, said notes) (o *switchboard.Offer, now notes, failed switchboard.Kinds, err error) {
	type outcome struct {
		items [][]byte
		note  string
		err   error
	}
	var got [switchboard.NKinds]outcome
	var asking sync.WaitGroup
	for k := range switchboard.NKinds {
		switch {
		case !kinds.Has(k):
			got[k].items, got[k].note = was.List(k), said[k]
		case k == switchboard.Tools || l.hello().declares(shelves[k].capability):
			asking.Go(func() {
				items, note, err := l.list(ctx, k)
				items, removed := cleaned(k, items)
				got[k] = outcome{items, strings.Join(slices.DeleteFunc([]string{note, removed}, func(s string) bool { return s == "" }), "; "), err}
			})
		}
	}
	asking.Wait()
	for k := range switchboard.NKinds {
		g := &got[k]
		switch {
		case g.err == nil:
		case k == switchboard.Tools || l.failure() != nil || ctx.Err() != nil:
			return nil, notes{}, 0, g.err
		default:
			failed = failed.With(k)
			g.items, g.note = was.List(k), fmt.Sprintf("its %s could not be listed: %s", k, g.err)
		}
		now[k] = g.note
	}
	return &switchboard.Offer{
		Capabilities: l.hello().capabilities, Beside: l.hello().beside,
		Instructions: l.hello().instructions,
		Version:      l.hello().release,
		Tools:        got[switchboard.Tools].items,
		Resources:    got[switchboard.Resources].items,
		Templates:    got[switchboard.Templates].items,
		Prompts:      got[switchboard.Prompts].items,
	}, now, failed, nil
}

// sameOffer reports whether two offers hold the same bytes.
func sameOffer(a, b *switchboard.Offer) bool {
	for k := range switchboard.NKinds {
		if !slices.EqualFunc(a.List(k), b.List(k), bytes.Equal) {
			return false
		}
	}
	return bytes.Equal(a.Capabilities, b.Capabilities) && bytes.Equal(a.Beside, b.Beside) && a.Version == b.Version && a.Instructions == b.Instructions && a.Modern == b.Modern
}
