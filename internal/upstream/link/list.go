package link

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/shape"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// Limits of one list of a server. Items beyond them are left out, and Status says so.
const (
	MaxPages         = 1_000
	MaxItems         = 10_000
	maxListBytes     = 32 << 20
	toolListTimeout  = 30 * time.Second
	otherListTimeout = 5 * time.Second // for the lists other than that of the tools
)

// A listKind is one kind of things that servers offer.
type listKind struct {
	method        string // of the request
	member        string // of the result, with the list
	capability    string // that a server with this kind declares
	idMember      string // the member of an item that clients request it by
	changedMethod string // the notification that the list has changed
	filter        string // its name in the filter of subscriptions/listen
}

// listKinds are the kinds. Resources and templates share one notification.
var listKinds = [switchboard.NKinds]listKind{
	switchboard.Tools:     {wire.MethodToolsList, "tools", "tools", "name", wire.MethodToolsChanged, "toolsListChanged"},
	switchboard.Resources: {wire.MethodResourcesList, "resources", "resources", "uri", wire.MethodResourcesChanged, "resourcesListChanged"},
	switchboard.Templates: {wire.MethodTemplatesList, "resourceTemplates", "resources", "uriTemplate", wire.MethodResourcesChanged, "resourcesListChanged"},
	switchboard.Prompts:   {wire.MethodPromptsList, "prompts", "prompts", "name", wire.MethodPromptsChanged, "promptsListChanged"},
}

// isListMethod reports whether the method requests a list. The items of lists are checked one by
// one, and so is their depth.
func isListMethod(method string) bool {
	return slices.ContainsFunc(listKinds[:], func(s listKind) bool { return s.method == method })
}

// listItems requests all pages of a list. The items are the server's own bytes. note says what was
// left out.
func listItems(ctx context.Context, l *Link, k switchboard.Kind) (items [][]byte, note string, err error) {
	timeout := toolListTimeout
	if k != switchboard.Tools {
		timeout = otherListTimeout // the list of the tools waits for these
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var (
		kind   = listKinds[k]
		size   int
		odd    int
		cursor []byte
	)
	seen := map[string]bool{}
	for page := 0; ; page++ {
		if page == MaxPages {
			return items, fmt.Sprintf("its %s are cut after %d pages", k, MaxPages), nil
		}
		own := []byte("{}")
		if cursor != nil {
			own = wire.Rewrite(nil, own, wire.Edit{Name: "cursor", Value: cursor})
		}
		result, err := l.request(ctx, kind.method, l.withMeta(own, l.Hello().Version))
		if err != nil {
			if AsError(err).code == wire.CodeMethodNotFound && page == 0 && (k == switchboard.Templates || !l.Hello().declares(kind.capability)) {
				return nil, "", nil // it has none, and has not declared any
			}
			return nil, "", err
		}
		if size += len(result); size > maxListBytes {
			return items, fmt.Sprintf("its %s are cut after %d bytes", k, maxListBytes), nil
		}
		list, ok := wire.Field(result, kind.member)
		if !ok || list[0] != '[' {
			return nil, "", Errorf(KindInvalid, true, "its answer to %s holds no list of %s", kind.method, k)
		}
		for item := range wire.Elements(list) {
			if len(items) == MaxItems {
				return items, fmt.Sprintf("its %s are cut after %d", k, MaxItems), nil
			}
			if k != switchboard.Tools && !isUnambiguous(item) { // package catalog checks the tools
				odd++
				continue
			}
			items = append(items, item)
		}
		next, ok := wire.Field(result, "nextCursor")
		if !ok || string(next) == "null" {
			if odd > 0 {
				note = fmt.Sprintf("%d of its %s are left out, because two readers could understand them differently or they are too deep", odd, k)
			}
			return items, note, nil
		}
		if _, ok := wire.String(next); !ok {
			return nil, "", Errorf(KindInvalid, true, "its answer to %s has a cursor that is not a string", kind.method)
		}
		// An empty cursor is as good as any other, so it is followed once.
		if seen[string(next)] {
			return items, fmt.Sprintf("its %s are cut after page %d, where the list starts over", k, page+1), nil
		}
		seen[string(next)] = true
		cursor = next
	}
}

const (
	maxNamedItems = 5         // in a note
	maxKeptItem   = 512 << 10 // bytes of an item that is kept as it was sent; the catalog takes no larger one
)

// cleanItems removes deceptive characters from the items (see package scan), so that reviewers,
// policies and models see the same text. It does not change the name or URI of an item, or names of
// members. removed says what was removed. sent are the items that had such characters, by name or URI.
func cleanItems(k switchboard.Kind, items [][]byte) (clean [][]byte, removed string, sent map[string][]byte) {
	var from []string
	for i, item := range items {
		better, n := scan.CleanJSON(item)
		if n == 0 {
			continue
		}
		id, _ := wire.Field(item, listKinds[k].idMember)
		if now, ok := wire.Field(better, listKinds[k].idMember); ok && !bytes.Equal(id, now) {
			better = wire.Rewrite(nil, better, wire.Edit{Name: listKinds[k].idMember, Value: id})
		}
		if from == nil {
			items, sent = slices.Clone(items), map[string][]byte{}
		}
		items[i] = better
		name, _ := wire.String(id)
		if len(item) <= maxKeptItem {
			sent[name] = item
		}
		name, _ = scan.Clean(name)
		from = append(from, fmt.Sprintf("%.64q (%d)", name, n))
	}
	if len(from) == 0 {
		return items, "", nil
	}
	return items, fmt.Sprintf("characters that deceive were removed from the definitions of its %s %s", k, joinNamed(from)), sent
}

// repairItems returns the items of a server in the form that every client can read: see package shape. An item that cannot be
// repaired is left out, because it would take the whole list away from clients that check it, and note says why. A tool stays:
// package catalog refuses it with the same reason. The items of other servers lose nothing in both cases.
func repairItems(k switchboard.Kind, items [][]byte) (good [][]byte, note string) {
	var out []string
	for i, item := range items {
		repaired, misfit := shape.Repair(k, item)
		leave := misfit != nil && k != switchboard.Tools
		if leave {
			out = append(out, describeMisfit(k, item, misfit))
		}
		if good == nil && (leave || !bytes.Equal(repaired, item)) { // hardly any list needs a copy
			good = append(make([][]byte, 0, len(items)), items[:i]...)
		}
		if good != nil && !leave {
			good = append(good, repaired)
		}
	}
	if good == nil {
		good = items
	}
	if len(out) == 0 {
		return good, ""
	}
	return good, fmt.Sprintf("%d of its %s are left out, because clients would refuse the whole list: %s", len(out), k, joinNamed(out))
}

// describeMisfit names the item and what is wrong with it.
func describeMisfit(k switchboard.Kind, item []byte, misfit *shape.Misfit) string {
	id, _ := wire.Field(item, listKinds[k].idMember)
	name, ok := wire.String(id)
	if !ok {
		return misfit.Error()
	}
	name, _ = scan.Clean(name)
	return fmt.Sprintf("%.64q (%s)", name, misfit)
}

// joinNamed joins descriptions of items for a note.
func joinNamed(items []string) string {
	more := ""
	if len(items) > maxNamedItems {
		more = fmt.Sprintf(" and %d more", len(items)-maxNamedItems)
		items = items[:maxNamedItems]
	}
	return strings.Join(items, ", ") + more
}

// RepairOffer returns the offer in the form that every client can read, as ListOffer does. An earlier release may have kept it.
func RepairOffer(o *switchboard.Offer) *switchboard.Offer {
	repaired := *o
	for k, items := range map[switchboard.Kind]*[][]byte{
		switchboard.Tools: &repaired.Tools, switchboard.Resources: &repaired.Resources, switchboard.Templates: &repaired.Templates, switchboard.Prompts: &repaired.Prompts,
	} {
		*items, _ = repairItems(k, *items)
	}
	return &repaired
}

// isUnambiguous reports whether all readers understand the item, an object, in the same way, and a
// list of such items is not too deep for a message.
func isUnambiguous(item []byte) bool {
	_, err := wire.Parse(wire.AppendNotification(nil, "item", item))
	return err == nil && item[0] == '{' && wire.Strict(slices.Concat([]byte("[[["), item, []byte("]]]")))
}

// ListNotes say what was left out of each list of a server.
type ListNotes [switchboard.NKinds]string

// String joins the notes.
func (n *ListNotes) String() string {
	return strings.Join(slices.DeleteFunc(slices.Clone(n[:]), func(s string) bool { return s == "" }), "; ")
}

// ListOffer requests the lists of the given kinds concurrently. It takes the other lists, with
// their notes, from was and said. If another list than the list of tools fails, ListOffer keeps the
// old one, adds a note, and returns the kind in failed.
func (l *Link) ListOffer(ctx context.Context, kinds switchboard.Kinds, was *switchboard.Offer, said ListNotes) (o *switchboard.Offer, now ListNotes, failed switchboard.Kinds, err error) {
	type outcome struct {
		items [][]byte
		note  string
		sent  map[string][]byte // see cleanItems
		err   error
	}
	var got [switchboard.NKinds]outcome
	var asking sync.WaitGroup
	for k := range switchboard.NKinds {
		switch {
		case !kinds.Has(k):
			got[k].items, got[k].note = was.List(k), said[k]
			got[k].sent = sentBefore(was, k)
		case k == switchboard.Tools || l.Hello().declares(listKinds[k].capability):
			asking.Go(func() {
				items, note, err := listItems(ctx, l, k)
				items, removed, sent := cleanItems(k, items)
				items, misfits := repairItems(k, items)
				got[k] = outcome{items, strings.Join(slices.DeleteFunc([]string{note, misfits, removed}, func(s string) bool { return s == "" }), "; "), sent, err}
			})
		}
	}
	asking.Wait()
	for k := range switchboard.NKinds {
		g := &got[k]
		switch {
		case g.err == nil:
		case k == switchboard.Tools || l.Failure() != nil || ctx.Err() != nil:
			return nil, ListNotes{}, 0, g.err
		default:
			failed = failed.With(k)
			g.items, g.sent, g.note = was.List(k), sentBefore(was, k), fmt.Sprintf("its %s could not be listed: %s", k, g.err)
		}
		now[k] = g.note
	}
	var others map[string][]byte
	sent := func(key string, item []byte) {
		if others == nil {
			others = map[string][]byte{}
		}
		others[key] = item
	}
	for k := range switchboard.NKinds {
		if k != switchboard.Tools {
			for id, item := range got[k].sent {
				sent(switchboard.SentKey(k, id), item)
			}
		}
	}
	if text := l.Hello().sentInstructions; text != "" {
		sent(switchboard.SentInstructions, wire.AppendString(nil, text))
	}
	return &switchboard.Offer{
		Capabilities: l.Hello().capabilities, Beside: l.Hello().capabilityBlock,
		Instructions: l.Hello().instructions,
		Version:      l.Hello().Release,
		Tools:        got[switchboard.Tools].items,
		Uncleaned:    got[switchboard.Tools].sent, UncleanedOthers: others,
		Resources: got[switchboard.Resources].items,
		Templates: got[switchboard.Templates].items,
		Prompts:   got[switchboard.Prompts].items,
	}, now, failed, nil
}

// sentBefore returns the items of an earlier offer as the server sent them: see cleanItems.
func sentBefore(was *switchboard.Offer, k switchboard.Kind) map[string][]byte {
	if k == switchboard.Tools {
		return was.Uncleaned
	}
	var sent map[string][]byte
	prefix := switchboard.SentKey(k, "")
	for key, item := range was.UncleanedOthers {
		if id, ok := strings.CutPrefix(key, prefix); ok {
			if sent == nil {
				sent = map[string][]byte{}
			}
			sent[id] = item
		}
	}
	return sent
}

// SameOffer reports whether two offers have the same bytes.
func SameOffer(a, b *switchboard.Offer) bool {
	for k := range switchboard.NKinds {
		if !slices.EqualFunc(a.List(k), b.List(k), bytes.Equal) {
			return false
		}
	}
	return maps.EqualFunc(a.Uncleaned, b.Uncleaned, bytes.Equal) && maps.EqualFunc(a.UncleanedOthers, b.UncleanedOthers, bytes.Equal) && bytes.Equal(a.Capabilities, b.Capabilities) && bytes.Equal(a.Beside, b.Beside) && a.Version == b.Version && a.Instructions == b.Instructions && a.Modern == b.Modern
}
