package annotate

import (
	"fmt"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/document"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A PresentTool is what is known of a tool at the moment when a row for it is to be accepted.
type PresentTool struct {
	Digest    switchboard.Digest // of the definition that its server offers
	Labels    []string           // its capabilities, in words
	Described bool               // an operator's overlay has a row for it
	Ended     bool               // the labels of that row have ended, so a new row may take their place
}

// A LabelledTool is a tool that has labels already.
type LabelledTool struct {
	Tool   string   `json:"tool"`
	Labels []string `json:"labels"`
}

// CheckRows returns the rows that may be accepted, and the tools that have a label already. wrong says for each other row why it may not be accepted. present returns nil for a
// tool that the server does not offer.
func CheckRows(rows []ProposedRow, present func(tool string) *PresentTool) (accepted []ProposedRow, labelled []LabelledTool, wrong []string) {
	refuse := func(r *ProposedRow, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%s: ", r.Tool)+fmt.Sprintf(format, args...))
	}
	for i := range rows {
		r := &rows[i]
		now := present(r.Tool)
		switch {
		case now == nil:
			refuse(r, "the server does not offer this tool now")
		case len(now.Labels) > 0:
			labelled = append(labelled, LabelledTool{r.Tool, now.Labels})
		case now.Described && !now.Ended:
			refuse(r, "an overlay says other things about this tool already; put this into its row, and remove this one: %s", strings.Trim(edit.Format(r.Value), "{}"))
		case r.Digest == "":
			refuse(r, `the key "for" with the digest of the definition is missing; a row of your own belongs into the server's overlay`)
		case now.Digest != r.Digest:
			refuse(r, "its definition has changed since the suggestion was made")
		default:
			accepted = append(accepted, *r)
		}
	}
	return accepted, labelled, wrong
}

// freeingKeys are the keys of an overlay that can let more happen. A new row does not take them over from a row that has ended.
var freeingKeys = []string{"capabilities", forKey, "replace", "equivalents", "stateful", "deterministic", "idempotency", "flow"}

// AcceptRows returns the text of the server's overlay with the rows. text is nil if there is no such file. A row takes the place of an ended row of its tool, and keeps the
// restrictions of that row. file names the text in errors.
func AcceptRows(file string, text []byte, server switchboard.ServerID, rows []ProposedRow) ([]byte, error) {
	if text == nil {
		text = []byte("server: " + string(server) + "\n")
	}
	var added []edit.NamedNode
	var replaced []ProposedRow
	of, present, err := ReadProposal(file, text)
	if err == nil && of != server {
		return nil, fmt.Errorf("%s is an overlay of the server %s; rename that file", file, of)
	}
	for _, r := range rows {
		i := slices.IndexFunc(present, func(p ProposedRow) bool { return p.Tool == r.Tool })
		if i < 0 {
			added = append(added, edit.NamedNode{Name: r.Tool, Value: r.Value})
			continue
		}
		r.Value = keepRestrictions(r.Value, present[i].Value)
		replaced = append(replaced, r)
	}
	if text, err = edit.AddRows(file, text, "tools", added); err != nil {
		return nil, err
	}
	for i := range replaced {
		if text, err = edit.Set(file, text, []string{"tools", replaced[i].Tool}, &replaced[i].Value); err != nil {
			return nil, err
		}
	}
	if of, _, err := ReadProposal(file, text); err == nil && of != server {
		return nil, fmt.Errorf("%s is an overlay of the server %s; rename that file", file, of)
	}
	return text, nil
}

// keepRestrictions returns the new row with the restrictions of the ended row. If both rows have a key, the stricter value counts where one is; otherwise the new one, which a person
// has just accepted. The restricting constraints of the ended row belong to each capability of the new one: nobody knows to which of them.
func keepRestrictions(row, ended document.Node) document.Node {
	row.Pairs = slices.Clone(row.Pairs)
	for _, p := range ended.Pairs {
		key, value := p.Key.Text, p.Value.Text
		if key == "capabilities" {
			keepConstraints(&row, p.Value)
		}
		stateful := key == "stateful" && value == "true"
		restricts := stateful || key == "deterministic" && value == "false" || key == "idempotency" && value == "none"
		if !restricts && slices.Contains(freeingKeys, key) {
			continue
		}
		if stateful {
			row.Pairs = slices.DeleteFunc(row.Pairs, func(o document.NodePair) bool { return o.Key.Text == "idempotency" && o.Value.Text == "natural" })
		}
		i := slices.IndexFunc(row.Pairs, func(o document.NodePair) bool { return o.Key.Text == key })
		switch {
		case i < 0:
			row.Pairs = append(row.Pairs, p)
		case restricts:
			row.Pairs[i] = p
		default:
			row.Pairs[i].Value = stricterOf(key, p.Value, row.Pairs[i].Value)
		}
	}
	return row
}

// stricterOf returns the stricter of two values of a key of an overlay, or the new one where neither is.
func stricterOf(key string, ended, now document.Node) document.Node {
	level := func(all []string, n document.Node) int { return slices.Index(all, n.Text) }
	switch key {
	case "side_effects", "redact":
		return joinLists(ended, now)
	case "risk_level":
		if level(capability.RiskLevels, ended) > level(capability.RiskLevels, now) {
			return ended
		}
	case "cost_class":
		if level(costClasses, ended) > level(costClasses, now) {
			return ended
		}
	case "approval_required":
		if now.Kind != document.KindList && now.Text == "false" {
			return ended
		}
	}
	return now
}

// costClasses are the values of cost_class, the cheapest first.
var costClasses = func() (all []string) {
	for _, c := range switchboard.CostClasses {
		all = append(all, string(c))
	}
	return all
}()

// keepConstraints adds the restricting constraints of the ended capabilities to each capability of the row.
func keepConstraints(row *document.Node, ended document.Node) {
	var kept []document.Node
	for _, c := range ended.Items {
		for _, p := range c.Pairs {
			for _, one := range p.Value.Items {
				if p.Key.Text == "constraints" && switchboard.Constraint(one.Text).Restricts() {
					kept = append(kept, one)
				}
			}
		}
	}
	i := slices.IndexFunc(row.Pairs, func(p document.NodePair) bool { return p.Key.Text == "capabilities" })
	if len(kept) == 0 || i < 0 {
		return
	}
	list := row.Pairs[i].Value
	list.Items = slices.Clone(list.Items)
	for j := range list.Items {
		c := &list.Items[j]
		c.Pairs = slices.Clone(c.Pairs)
		add := document.Node{Kind: document.KindList, Items: kept}
		if k := slices.IndexFunc(c.Pairs, func(p document.NodePair) bool { return p.Key.Text == "constraints" }); k >= 0 {
			c.Pairs[k].Value = joinLists(c.Pairs[k].Value, add)
		} else {
			c.Pairs = append(c.Pairs, document.NodePair{Key: textOf("constraints"), Value: joinLists(document.Node{Kind: document.KindList}, add)})
		}
	}
	row.Pairs[i].Value = list
}

// joinLists returns a list with the items of both, each once.
func joinLists(a, b document.Node) document.Node {
	a.Items = slices.Clone(a.Items)
	for _, item := range b.Items {
		if !slices.ContainsFunc(a.Items, func(o document.Node) bool { return o.Text == item.Text }) {
			a.Items = append(a.Items, item)
		}
	}
	return a
}
