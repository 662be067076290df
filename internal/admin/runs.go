package admin

import (
	"errors"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// RunStatus is the status of one run, as its client may know it.
type RunStatus struct {
	Task   switchboard.TaskID `json:"task"`
	Why    string             `json:"shows_nothing_because,omitempty"`
	Budget int                `json:"token_budget,omitempty"`
	Used   int                `json:"tokens_used"`
	Left   int                `json:"tokens_left"`

	// Instructions is the number of tokens of the instructions that the model was given first.
	Instructions int `json:"instructions_tokens,omitempty"`

	// Context is the number of tokens that the run has cost its client's model until now.
	Context ContextBill `json:"context"`

	// Listed are the charged tools, in the list's order.
	Listed   []ListedTool  `json:"listed"`
	Groups   []GroupStatus `json:"groups,omitempty"`
	Withheld []ListedTool  `json:"withheld,omitempty"` // they exceed the budget

	// Ailing are the servers of its tools that are not fit to serve.
	Ailing map[switchboard.ServerID]string `json:"ailing_servers,omitempty"`
}

// ContextBill is the number of tokens that runs have cost their models, since this process knows
// them.
type ContextBill struct {
	Tokens       int64      `json:"tokens"` // the sum of the following, without FullLists
	Instructions run.Charge `json:"instructions"`
	Lists        run.Charge `json:"lists"`
	Searches     run.Charge `json:"searches"`
	Definitions  run.Charge `json:"definitions"`
	Results      run.Charge `json:"results"`

	// FullLists is what the lists would have cost if they had shown every tool in full.
	FullLists run.Charge `json:"full_lists"`
}

// add adds the costs of the run.
func (c *ContextBill) add(r *run.Run) {
	for it, to := range map[run.Item]*run.Charge{
		run.Instructions: &c.Instructions, run.Lists: &c.Lists, run.Searches: &c.Searches,
		run.Definitions: &c.Definitions, run.Results: &c.Results, run.FullLists: &c.FullLists,
	} {
		*to = to.Add(r.Bill().Charge(it))
	}
	c.Tokens = c.Instructions.Tokens + c.Lists.Tokens + c.Searches.Tokens + c.Definitions.Tokens + c.Results.Tokens
}

// ListedTool is one tool and its cost.
type ListedTool struct {
	Name   string `json:"name"`
	Tokens int    `json:"tokens"`
}

// GroupStatus is one on-demand group.
type GroupStatus struct {
	Group    string   `json:"group"`
	Stub     string   `json:"stub"`
	Tools    int      `json:"tools"`
	Expanded []string `json:"expanded"` // by name
}

// RunStatusText is switchboard_status for a client of the run. If no task is bound, it is the
// status of the principal.
func (r *Reader) RunStatusText(p switchboard.Principal, of *run.Run) []byte {
	if of.Task() == "" {
		return r.statusText(p)
	}
	return canonical.Encode(r.runStatus(of))
}

func (r *Reader) runStatus(of *run.Run) RunStatus {
	s := of.Surface()
	st := RunStatus{Task: of.Task(), Budget: s.Budget(), Listed: []ListedTool{}}
	r.o.Meter.Wake()
	st.Context.add(of)
	if err := of.Err(); err != nil {
		st.Why = err.Error()
		if own, ok := errors.AsType[*switchboard.Error](err); ok {
			if st.Why = own.Text; own.Hint != "" {
				st.Why += "; " + own.Hint
			}
		}
	}
	st.Used = s.InstructionTokens()
	st.Instructions = st.Used
	for e, n := range s.Charged() {
		st.Used += n
		st.Listed = append(st.Listed, ListedTool{e.Name, n})
	}
	st.Left = max(0, st.Budget-st.Used)
	for _, stub := range s.Stubs() {
		g := GroupStatus{Group: stub.Group, Stub: stub.Name, Expanded: []string{}}
		for _, e := range s.Entries() {
			if e.Group == stub.Group {
				g.Tools++
				if e.Expanded != nil {
					g.Expanded = append(g.Expanded, e.Name)
				}
			}
		}
		st.Groups = append(st.Groups, g)
	}
	unfit := r.o.Binder.Observe(run.Before{}).Unfit
	for _, e := range s.Entries() {
		if e.Withheld {
			st.Withheld = append(st.Withheld, ListedTool{e.Name, s.Cost(e.Name)})
		}
		if state := unfit.Why(e.Tool.ID); state != "" {
			if st.Ailing == nil {
				st.Ailing = map[switchboard.ServerID]string{}
			}
			st.Ailing[e.Tool.ID.Server] = state
		}
	}
	return st
}
