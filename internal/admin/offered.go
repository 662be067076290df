package admin

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// An OfferList holds the tools that servers offer, with their labels.
type OfferList struct {
	Tools []OfferedTool `json:"tools"`          // sorted by server and name
	Next  string        `json:"next,omitempty"` // ask again with after=NEXT for more; ListOffered returns all of them

	// Taxonomy has the resources that labels can name.
	Taxonomy *switchboard.Taxonomy `json:"-"`

	// Starting are the servers that are starting and have no known offer.
	Starting []switchboard.ServerID `json:"starting,omitempty"`

	// Unknown are the other servers without a known offer: they have not answered yet.
	Unknown []switchboard.ServerID `json:"unknown,omitempty"`
}

// An OfferedTool is one tool of a server, whether or not a task can find it.
type OfferedTool struct {
	Server switchboard.ServerID `json:"server"`
	Tool   string               `json:"tool"`

	// Digest is the digest of Definition, which is the server's own.
	Digest     switchboard.Digest `json:"digest"`
	Definition json.RawMessage    `json:"definition"`

	// Labels are the tool's capabilities and their sources, in words. Without any, no task finds the tool by a
	// capability.
	Labels []string `json:"labels,omitempty"`

	// Described says that an operator's overlay has a row for the tool. LabelEnd says in words that the labels of that row have ended, or that they end once the definition
	// that the server offers is let in; Ended says that they have.
	Described bool   `json:"described,omitempty"`
	Ended     bool   `json:"labels_ended,omitempty"`
	LabelEnd  string `json:"label_end,omitempty"`

	// Flow is what its calls do with data: any of brings, sees and carries.
	Flow []string `json:"flow,omitempty"`

	// Contract is what is stated about calls of the tool, each with its source, in words.
	Contract []string `json:"contract,omitempty"`

	// Equivalents are the tools that the operator's overlay declares as its equivalents, each as SERVER/TOOL with the place in the file.
	Equivalents []string `json:"equivalents,omitempty"`
}

// ListOffered lists the tools of the server, or of all servers if it is "". It does not wait for servers: see
// OfferList.Starting.
func (r *Reader) ListOffered(server switchboard.ServerID) *OfferList {
	s := r.o.Configuration()
	list := &OfferList{Tools: []OfferedTool{}, Starting: s.Starting, Taxonomy: s.Config.Taxonomy}
	for _, id := range slices.Sorted(maps.Keys(s.Servers)) {
		if _, known := s.Offers[id]; !known && (server == "" || id == server) && !slices.Contains(s.Starting, id) {
			list.Unknown = append(list.Unknown, id)
		}
	}
	tenants := slices.Sorted(maps.Keys(s.Tenants))
	for _, t := range s.Catalog.Tools() {
		if server != "" && t.ID.Server != server {
			continue
		}
		one := OfferedTool{Server: t.ID.Server, Tool: t.ID.Name, Digest: t.Digest, Definition: t.Definition, Labels: labelTexts(t, ""), Flow: t.Contract.Flow.Bits.Names(), Contract: contractTexts(&t.Contract)}
		_, one.Described = s.Config.Overlays[t.ID]
		one.LabelEnd, one.Ended = s.Catalog.LabelEnd(t.ID)
		for _, e := range s.Config.Overlays[t.ID].Equivalents {
			one.Equivalents = append(one.Equivalents, e.Tool.String()+" ("+e.Position+")")
		}
		for _, id := range tenants {
			if len(t.Capabilities) > 0 {
				break
			}
			if own, ok := s.Tenants[id].View.Tool(t.ID); ok {
				one.Labels = append(one.Labels, labelTexts(own, " of "+string(id))...)
			}
		}
		list.Tools = append(list.Tools, one)
	}
	return list
}

// labelTexts returns texts such as "read fs [readonly] (overlay)".
func labelTexts(t *switchboard.Tool, of string) (texts []string) {
	for _, c := range t.Capabilities {
		texts = append(texts, c.String()+" ("+string(c.Source)+of+")")
	}
	return texts
}

// contractTexts returns texts such as "readonly (overlay)", and "not stateful (hint, which is not trusted)".
func contractTexts(c *switchboard.Contract) (texts []string) {
	for _, f := range []struct {
		name string
		fact switchboard.Fact
	}{{"readonly", c.ReadOnly}, {"idempotent", c.Idempotent}, {"stateful", c.Stateful}, {"deterministic", c.Deterministic}} {
		if !f.fact.Stated() {
			continue
		}
		text := f.name
		if !f.fact.Holds {
			text = "not " + text
		}
		if text += " (" + string(f.fact.Source); !f.fact.Trusted {
			text += ", which is not trusted"
		}
		texts = append(texts, text+")")
	}
	if c.Timeout > 0 {
		texts = append(texts, "a call may take "+c.Timeout.String())
	}
	if c.CostClass != "" {
		texts = append(texts, "cost class "+string(c.CostClass))
	}
	if c.Capability != "" {
		texts = append(texts, "provides "+c.Capability)
	}
	if len(c.SideEffects) > 0 {
		texts = append(texts, "side effects: "+strings.Join(c.SideEffects, ", "))
	}
	if c.RiskLevel != "" {
		texts = append(texts, "risk "+c.RiskLevel)
	}
	if c.Flow.Source != "" {
		texts = append(texts, "flow: "+c.Flow.Bits.String()+" ("+string(c.Flow.Source)+")")
	}
	if len(c.ApprovalRequired) > 0 {
		texts = append(texts, "each call needs a yes of "+strings.Join(c.ApprovalRequired, " or "))
	}
	return texts
}
