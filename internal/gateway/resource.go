package gateway

import (
	"context"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/session"
	"github.com/summit-switchboard/switchboard/internal/surface"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wire"
)

// kinds are the kinds that the list methods list.
var kinds = map[string]switchboard.Kind{
	wire.MethodToolsList:     switchboard.Tools,
	wire.MethodResourcesList: switchboard.Resources,
	wire.MethodTemplatesList: switchboard.Templates,
	wire.MethodPromptsList:   switchboard.Prompts,
}

// A relayTarget is the item of a server that a request is for.
type relayTarget struct {
	item   surface.Item
	asked  switchboard.Item
	params []byte // the request's params with the server's own name of the item; nil if the client's params fit
}

// relayToServer answers requests that go to one server and do not call a tool: resources/read,
// prompts/get, completion/complete, and the methods of extensions.
func (d *dispatcher) relayToServer(ctx context.Context, q *clientRequest) rpcAnswer {
	r, err := q.bind(ctx)
	if err != nil {
		return d.enc.errorAnswer(q, err)
	}
	to, f := findRelayTarget(r, q)
	if f != nil {
		d.finder.awaitServers(ctx, r, StartWait, func(*surface.Surface) bool { _, f := findRelayTarget(r, q); return f == nil })
		to, f = findRelayTarget(r, q)
	}
	if err := d.finder.whyUnmet(ctx, r); err != nil {
		return d.enc.errorAnswer(q, err)
	}
	if f != nil {
		return rpcAnswer{failure: f}
	}
	c := &switchboard.Call{Server: to.item.Server, Item: to.asked, Target: to.item.Own, Params: to.params, Judgments: r.Surface().Judgments(to.item.Server)}
	a, err := d.forwarder.forward(ctx, q, r, c)
	if err != nil {
		return d.enc.errorAnswer(q, err)
	}
	if a.failure == nil && q.Method == wire.MethodResourcesRead && to.item.Name != to.item.Own {
		a.result, a.rest = withPrefixedURIs(a.whole(), strings.TrimSuffix(to.item.Name, to.item.Own)), nil
	}
	return a
}

// findRelayTarget returns the item that q is for.
func findRelayTarget(r *run.Run, q *clientRequest) (relayTarget, *failure) {
	text := func(name string) (string, *failure) {
		raw, _ := q.Param(name)
		s, ok := wire.String(raw)
		if !ok {
			return "", invalidParams(q.Method + ": params." + name + " must be a string")
		}
		return s, nil
	}
	switch q.Method {
	case wire.MethodResourcesRead:
		uri, f := text("uri")
		if f != nil {
			return relayTarget{}, f
		}
		it, ok := r.Surface().Resource(uri)
		if !ok {
			return relayTarget{}, resourceNotFound(uri, q.modern)
		}
		return relayTarget{item: it, asked: session.ResourceItem(it)}, nil
	case wire.MethodPromptsGet:
		name, f := text("name")
		if f != nil {
			return relayTarget{}, f
		}
		it, ok := r.Surface().Prompt(name)
		if !ok {
			return relayTarget{}, failureOf(switchboard.Refuse(switchboard.CodeNoSuchTool, "Unknown prompt: %s", shorten(name)))
		}
		arguments, _ := q.Param("arguments")
		return relayTarget{item: it, asked: switchboard.Item{Kind: switchboard.KindPrompt, Name: it.Own, Arguments: arguments}}, nil
	case wire.MethodComplete:
		return findCompletionTarget(r, q)
	}
	server, ok := r.Surface().ExtensionServer(q.Method, q.modern)
	if !ok {
		return relayTarget{}, methodNotFound(q.Method)
	}
	return relayTarget{item: surface.Item{Server: server}, asked: switchboard.Item{Kind: switchboard.KindExtension, Name: q.Method}}, nil
}

// completionOf returns a completion in the form that policies judge: with the value to complete,
// and the arguments that are given already.
func completionOf(it surface.Item, q *clientRequest) (switchboard.Item, *failure) {
	out := switchboard.Item{Kind: switchboard.KindCompletion, Name: it.Own}
	argument, _ := q.Param("argument")
	raw, _ := wire.Field(argument, "name")
	name, ok1 := wire.String(raw)
	value, ok2 := wire.Field(argument, "value")
	if !ok1 || !ok2 {
		return out, invalidParams("completion/complete: params.argument must have a name and a value")
	}
	settled, _ := q.Param("context")
	settled, _ = wire.Field(settled, "arguments")
	if len(settled) == 0 || settled[0] != '{' {
		settled = []byte("{}")
	}
	out.Arguments = wire.Rewrite(nil, settled, wire.Edit{Name: name, Value: value})
	return out, nil
}

// findCompletionTarget returns the prompt or template that is to be completed.
func findCompletionTarget(r *run.Run, q *clientRequest) (relayTarget, *failure) {
	ref, _ := q.Param("ref")
	raw, _ := wire.Field(ref, "type")
	kind, _ := wire.String(raw)
	member, look := "", r.Surface().Prompt
	switch kind {
	case "ref/prompt":
		member = "name"
	case "ref/resource":
		member = "uri"
		look = func(uri string) (surface.Item, bool) {
			if it, ok := r.Surface().Template(uri); ok {
				return it, true
			}
			return r.Surface().Resource(uri)
		}
	default:
		return relayTarget{}, invalidParams("completion/complete: params.ref.type must be ref/prompt or ref/resource")
	}
	raw, _ = wire.Field(ref, member)
	name, ok := wire.String(raw)
	if !ok {
		return relayTarget{}, invalidParams("completion/complete: params.ref." + member + " must be a string")
	}
	it, ok := look(name)
	switch {
	case !ok:
		return relayTarget{}, failureOf(switchboard.Refuse(switchboard.CodeNoSuchTool, "there is nothing to complete: %s", shorten(name)))
	}
	asked, f := completionOf(it, q)
	if f != nil || it.Name == it.Own {
		return relayTarget{item: it, asked: asked}, f
	}
	own := wire.Rewrite(nil, ref, wire.Edit{Name: member, Value: wire.AppendString(nil, it.Own)})
	return relayTarget{it, asked, wire.Rewrite(nil, q.Params, wire.Edit{Name: "ref", Value: own})}, nil
}

// resourceNotFound answers a request for a resource that does not exist, or that the caller may not
// see.
func resourceNotFound(uri string, modern bool) *failure {
	f := failureOf(switchboard.Refuse(switchboard.CodeNoSuchTool, "Resource not found: %s", shorten(uri)))
	f.data = wire.Rewrite(nil, f.data, wire.Edit{Name: "uri", Value: wire.AppendString(nil, shorten(uri))}) // both eras of the specification have it
	if !modern {
		f.code = wire.CodeResourceNotFound
	}
	return f
}

// withPrefixedURIs puts prefix before the URIs in a read result, so that the client finds the names
// that it asked for.
func withPrefixedURIs(result []byte, prefix string) []byte {
	contents, ok := wire.Field(result, "contents")
	if !ok || contents[0] != '[' {
		return result
	}
	list := []byte{'['}
	for content := range wire.Elements(contents) {
		if len(list) > 1 {
			list = append(list, ',')
		}
		raw, _ := wire.Field(content, "uri")
		if uri, ok := wire.String(raw); ok {
			list = wire.Rewrite(list, content, wire.Edit{Name: "uri", Value: wire.AppendString(nil, prefix+uri)})
		} else {
			list = append(list, content...)
		}
	}
	return wire.Rewrite(nil, result, wire.Edit{Name: "contents", Value: append(list, ']')})
}
