package decide

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// selection is the stage that always comes last. For a requirement for a capability it selects every remaining tool of
// the first candidate's server, or the first candidate alone. Tools required by name are all selected, unless the
// requirement wants a single tool: the names are the selection.
type selection struct{}

// Name implements Stage.
func (selection) Name() string { return "select" }

// Apply implements Stage.
func (selection) Apply(_ context.Context, q *Question, in []Candidate, drop Drop) ([]Candidate, error) {
	if len(in) == 0 {
		return in, nil
	}
	n := len(in)
	switch {
	case q.Requirement.Select == switchboard.SelectTool:
		n = 1
	case !q.Requirement.ByName():
		// The ranking keeps the tools of one server together.
		other := func(c Candidate) bool { return c.Tool.ID.Server != in[0].Tool.ID.Server }
		if n = slices.IndexFunc(in, other); n < 0 {
			n = len(in)
		}
	}
	for _, c := range in[n:] {
		drop(c, Reason{Text: "another comes first"})
	}
	return in[:n], nil
}

// A Selected is one tool that the task sees.
type Selected struct {
	Tool *switchboard.Tool

	// Requirements are the indexes in the task, from 0, of the requirements that selected the tool, in ascending order.
	// There is at least one.
	Requirements []int

	// Judgments are policy's: one for each of Requirements, and with Tenant.VetoForTask one for each requirement that
	// the tool could serve; nil if policy was not asked.
	Judgments []*switchboard.Judgment

	// Equivalents are the tools that calls of Tool may move to. They follow from the decision and from the declared
	// equivalents, and are not recorded. Decide leaves them empty; package bind fills them in.
	Equivalents []switchboard.Equivalent

	// Others are the first few candidates of the same requirements on other servers. They are not recorded either.
	Others []switchboard.ToolID
}

// scratch is the working memory of one decision. Later decisions reuse it.
type scratch struct {
	question   Question
	candidates []Candidate
	dropped    []Dropped
	others     []Candidate

	// The tools are collected here with their requirements until all are known. So a selection costs two allocations,
	// however large it is.
	tools         []*switchboard.Tool
	requirementOf []int
	judgmentOf    []*switchboard.Judgment // for each of by, or empty
	repeats       []repeatedSelection
	toolIndex     map[*switchboard.Tool]int // index of each tool in tools, once there are many
}

// A repeatedSelection says that a further requirement selects a tool that is selected already.
type repeatedSelection struct {
	tool, requirement int
	judged            *switchboard.Judgment
}

// mapThreshold is the number of selected tools from which a map replaces the linear search.
const mapThreshold = 128

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func borrowScratch(in Input) *scratch {
	s := scratches.Get().(*scratch)
	s.question = Question{Tenant: in.Tenant, Principal: in.Principal, Task: in.Task, Now: in.Now, Unfit: in.Unfit, Atoms: in.Atoms}
	return s
}

func (s *scratch) release() {
	s.question = Question{}
	clear(s.judgmentOf)
	clear(s.repeats)
	s.tools, s.requirementOf, s.judgmentOf, s.repeats, s.toolIndex = s.tools[:0], s.requirementOf[:0], s.judgmentOf[:0], s.repeats[:0], nil
	scratches.Put(s)
}

// addSelected records that requirement i selected cs.
func (s *scratch) addSelected(i int, cs []Candidate) {
	before := len(s.tools) // only earlier requirements count, because a requirement selects each tool once
	for _, c := range cs {
		if at := s.indexOf(c.Tool, before); at >= 0 {
			s.repeats = append(s.repeats, repeatedSelection{at, i, c.Judgment})
			continue
		}
		if c.Judgment != nil {
			s.judgmentOf = append(s.judgmentOf, c.Judgment)
		}
		s.tools = append(s.tools, c.Tool)
		s.requirementOf = append(s.requirementOf, i)
	}
}

// indexOf returns the index of t among the first n tools, or -1.
func (s *scratch) indexOf(t *switchboard.Tool, n int) int {
	if n <= mapThreshold {
		return slices.Index(s.tools[:n], t)
	}
	if s.toolIndex == nil {
		s.toolIndex = make(map[*switchboard.Tool]int, n)
	}
	for i := len(s.toolIndex); i < n; i++ {
		s.toolIndex[s.tools[i]] = i
	}
	if at, ok := s.toolIndex[t]; ok {
		return at
	}
	return -1
}

// selectedTools returns the collected tools.
func (s *scratch) selectedTools() []Selected {
	out := make([]Selected, len(s.tools))
	by := slices.Clone(s.requirementOf)
	var judged []*switchboard.Judgment
	if len(s.judgmentOf) == len(s.tools) { // either all tools have a judgment, or none has
		judged = slices.Clone(s.judgmentOf)
	}
	for i, t := range s.tools {
		out[i] = Selected{Tool: t, Requirements: by[i : i+1 : i+1]}
		if judged != nil {
			out[i].Judgments = judged[i : i+1 : i+1]
		}
	}
	for _, a := range s.repeats {
		out[a.tool].Requirements = append(out[a.tool].Requirements, a.requirement)
		if a.judged != nil {
			out[a.tool].Judgments = append(out[a.tool].Judgments, a.judged)
		}
	}
	return out
}

// A Use says that a task uses a server as a whole.
type Use struct {
	Server switchboard.ServerID

	// Named says that a pattern such as docs/* takes everything that the server has, whatever it does. Otherwise the
	// task gets only what the server offers for reading.
	Named bool
}

// Whole returns the servers that the task uses as a whole, not only for single tools. Everything else that they offer
// belongs to the task too. These are the servers of the selected tools, in the tools' order, except where a requirement
// wanted a single tool, a named capability or tools by name. After them come the servers in toolless, which offer no tools, if a pattern
// such as docs/* names them.
func Whole(task *switchboard.Task, selected []Selected, toolless []switchboard.ServerID) []Use {
	var uses []Use
	add := func(r *switchboard.Requirement, id switchboard.ServerID) {
		if r.Select == switchboard.SelectTool || r.Capability != "" || r.ByName() && !namesAll(r, id) {
			return
		}
		i := slices.IndexFunc(uses, func(u Use) bool { return u.Server == id })
		if i < 0 {
			i, uses = len(uses), append(uses, Use{Server: id})
		}
		uses[i].Named = uses[i].Named || r.ByName()
	}
	for _, s := range selected {
		for _, i := range s.Requirements {
			add(&task.Requirements[i], s.Tool.ID.Server)
		}
	}
	for _, id := range toolless {
		for i := range task.Requirements {
			if r := &task.Requirements[i]; r.ByName() {
				add(r, id)
			}
		}
	}
	return uses
}

// namesAll reports whether a pattern of r matches all tools of the server.
func namesAll(r *switchboard.Requirement, id switchboard.ServerID) bool {
	return slices.ContainsFunc(r.Tools, func(pattern string) bool {
		servers, all := strings.CutSuffix(pattern, "/*")
		return all && switchboard.MatchPattern(servers, string(id))
	})
}
