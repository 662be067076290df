package decide

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// selection is the stage that always comes last: of a requirement for a
// capability it takes every remaining tool of the first one's server, or the
// first alone. Tools that are required by name are all taken, unless the
// requirement says that one will do: to name them is to select them.
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
		// The ranking keeps a server's tools together.
		other := func(c Candidate) bool { return c.Tool.ID.Server != in[0].Tool.ID.Server }
		if n = slices.IndexFunc(in, other); n < 0 {
			n = len(in)
		}
	}
	if drop != nil {
		for _, c := range in[n:] {
			drop(c, Reason{Text: "another comes first"})
		}
	}
	return in[:n], nil
}

// A Selected is one tool that the task sees.
type Selected struct {
	Tool *switchboard.Tool

	// Requirements are the places in the task, from 0, of the requirements
	// that selected it, in ascending order. There is at least one.
	Requirements []int

	// Judgments are policy's, one for each requirement; nil where no policy was
	// asked.
	Judgments []*switchboard.Judgment

	// Equivalents are where calls of the tool may move. They follow from the
	// decision and what is declared, and are no part of its record: a Decision
	// leaves them to those who show it.
	Equivalents []switchboard.Equivalent

	// Others are candidates of the same requirements on other servers, the first few. They are no part of
	// the record either.
	Others []switchboard.ToolID
}

// scratch is what one decision works in. It is reused by later ones.
type scratch struct {
	question   Question
	candidates []Candidate
	dropped    []Dropped
	others     []Candidate

	// Tools are kept with their requirement until all are known, so that a
	// selection costs two allocations however large it is.
	tools  []*switchboard.Tool
	by     []int
	judged []*switchboard.Judgment // for each of by, or none at all
	again  []again
	seen   map[*switchboard.Tool]int // of tools, once there are many
}

// again says that a tool that is selected already is so by requirement too.
type again struct {
	tool, requirement int
	judged            *switchboard.Judgment
}

// manyTools is how many selected tools are searched one by one before a map is
// made of them.
const manyTools = 128

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func newScratch(in Input) *scratch {
	s := scratches.Get().(*scratch)
	s.question = Question{Tenant: in.Tenant, Principal: in.Principal, Task: in.Task, Now: in.Now, Unfit: in.Unfit}
	return s
}

func (s *scratch) free() {
	s.question = Question{}
	clear(s.judged)
	clear(s.again)
	s.tools, s.by, s.judged, s.again, s.seen = s.tools[:0], s.by[:0], s.judged[:0], s.again[:0], nil
	scratches.Put(s)
}

// selected notes that requirement i selected cs.
func (s *scratch) selected(i int, cs []Candidate) {
	before := len(s.tools) // a requirement selects each tool once
	for _, c := range cs {
		if at := s.find(c.Tool, before); at >= 0 {
			s.again = append(s.again, again{at, i, c.Judgment})
			continue
		}
		if c.Judgment != nil {
			s.judged = append(s.judged, c.Judgment)
		}
		s.tools = append(s.tools, c.Tool)
		s.by = append(s.by, i)
	}
}

// find returns the place of t among the first n tools, or -1.
func (s *scratch) find(t *switchboard.Tool, n int) int {
	if n <= manyTools {
		return slices.Index(s.tools[:n], t)
	}
	if s.seen == nil {
		s.seen = make(map[*switchboard.Tool]int, n)
	}
	for i := len(s.seen); i < n; i++ {
		s.seen[s.tools[i]] = i
	}
	if at, ok := s.seen[t]; ok {
		return at
	}
	return -1
}

// selection returns what was noted.
func (s *scratch) selection() []Selected {
	out := make([]Selected, len(s.tools))
	by := slices.Clone(s.by)
	var judged []*switchboard.Judgment
	if len(s.judged) == len(s.tools) { // all are, or none
		judged = slices.Clone(s.judged)
	}
	for i, t := range s.tools {
		out[i] = Selected{Tool: t, Requirements: by[i : i+1 : i+1]}
		if judged != nil {
			out[i].Judgments = judged[i : i+1 : i+1]
		}
	}
	for _, a := range s.again {
		out[a.tool].Requirements = append(out[a.tool].Requirements, a.requirement)
		if a.judged != nil {
			out[a.tool].Judgments = append(out[a.tool].Judgments, a.judged)
		}
	}
	return out
}

// A Use is a server that a task uses as a whole.
type Use struct {
	Server switchboard.ServerID

	// Named says that a pattern such as docs/* takes all that the server has,
	// whatever it does. Else only what it offers for reading comes along.
	Named bool
}

// Whole returns the servers that the task uses as a whole, and not for single
// tools: what else they offer belongs to the task too. These are the servers of
// the selected tools, in the tools' order, but for those of which a requirement
// wanted one tool, or named some; and then those of toolless, which offer no
// tools at all, that a pattern such as docs/* names.
func Whole(task *switchboard.Task, selected []Selected, toolless []switchboard.ServerID) []Use {
	var uses []Use
	add := func(r *switchboard.Requirement, id switchboard.ServerID) {
		if r.Select == switchboard.SelectTool || r.ByName() && !namesAll(r, id) {
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

// namesAll reports whether r names all tools of the server, however many.
func namesAll(r *switchboard.Requirement, id switchboard.ServerID) bool {
	return slices.ContainsFunc(r.Tools, func(pattern string) bool {
		servers, all := strings.CutSuffix(pattern, "/*")
		return all && switchboard.MatchPattern(servers, string(id))
	})
}
