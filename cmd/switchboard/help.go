package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/config"
)

// The groups of commands, in the order of the help.
const (
	groupDesk      = "desk"
	groupServe     = "serve"
	groupDecide    = "decide"
	groupPolicies  = "policies"
	groupOperate   = "operate"
	groupStore     = "store"
	groupReference = "reference"
)

var commandGroups = []kong.Group{
	{Key: groupDesk, Title: "At a desk:"},
	{Key: groupServe, Title: "Serve:"},
	{Key: groupDecide, Title: "Decide and explain:"},
	{Key: groupPolicies, Title: "Policies:"},
	{Key: groupOperate, Title: "Operate:"},
	{Key: groupStore, Title: "Store and receipts:"},
	{Key: groupReference, Title: "Reference:"},
}

// addExamples adds the examples to the help of each command.
func addExamples(app *kong.Kong) error {
	return kong.Visit(app.Model, func(v kong.Visitable, next kong.Next) error {
		if node, ok := v.(*kong.Node); ok && node.Type == kong.CommandNode {
			if lines := examples[node.Path()]; lines != nil {
				node.Detail = "Examples:\n\n    " + strings.Join(lines, "\n    ")
			}
		}
		return next(nil)
	})
}

type helpCmd struct {
	Topic []string `arg:"" optional:"" help:"An error code, such as SB-LAZY-001; the beginning of some, such as SB-LAZY; or a command."`
}

// Run prints the text of a code, a list of codes, or the help of a command.
func (h *helpCmd) Run(ctx context.Context, io streams, k *kong.Context) error {
	if len(h.Topic) == 1 && strings.HasPrefix(strings.ToUpper(h.Topic[0]), "SB-") {
		return h.printCodes(ctx, io)
	}
	if node := findCommand(k.Model.Node, h.Topic); node != nil {
		_, err := k.Parse(append(h.Topic, "--help")) // prints the help, and ends the command
		return err
	}
	topic := strings.Join(h.Topic, " ")
	if page, ok := docs.Find(topic); ok {
		return usageError{fmt.Errorf("%q is no command; the document of that name: switchboard docs %s", topic, page.Name)}
	}
	return usageError{fmt.Errorf("%q is no command and no error code%s", topic, config.SuggestName(topic, "commands", commandNames(k.Model.Node)))}
}

// printCodes prints the text of one code, or the list of those that begin with the topic.
func (h *helpCmd) printCodes(ctx context.Context, io streams) error {
	prefix := strings.ToUpper(h.Topic[0])
	found := docs.Codes(prefix)
	switch {
	case len(found) == 1:
		return printMarkdown(ctx, io, "errors", found[0].Text)
	case len(found) == 0:
		var all []string
		for _, c := range docs.Codes("SB-") {
			all = append(all, c.Code)
		}
		return usageError{fmt.Errorf("there is no error code %s%s", prefix, config.SuggestName(prefix, "codes", all))}
	}
	for _, c := range found {
		fmt.Fprintf(io.out, "%-12s %s\n", c.Code, c.Title)
	}
	return nil
}

// findCommand returns the command below node with the name, such as ["policy", "test"]; nil if there is none.
func findCommand(node *kong.Node, name []string) *kong.Node {
	for _, part := range name {
		i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Name == part })
		if i < 0 {
			return nil
		}
		node = node.Children[i]
	}
	return node
}

// commandNames returns the names of the commands below node that the help lists.
func commandNames(node *kong.Node) []string {
	var names []string
	for _, c := range node.Children {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}
