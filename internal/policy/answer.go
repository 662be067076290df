package policy

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxReason limits one reason, in bytes, and maxReasons the number of reasons for one candidate.
const (
	maxReason  = 1024
	maxReasons = 16
)

// addLayer adds the answer of a layer to the verdicts of the candidates.
func (a *Answer) addLayer(l *Layer, r *rawAnswer, candidates []*switchboard.Tool) {
	s := answerSorter{answer: a, layer: l, at: sortIDs(candidates), allowed: make([]bool, len(candidates))}
	if err := s.sort(r); err != nil {
		a.denyRest(l.kind, err)
		return
	}
	for i, ok := range s.allowed {
		if !ok && a.Verdicts[i].Denied == nil {
			why := "nothing in " + AnswerAllowed + " allows it"
			if len(l.compiler.Modules) == 0 {
				why = "its policies folder has no rules, and so it allows nothing"
			}
			a.addDenial(i, Denial{Code: switchboard.CodeDenied, Layer: l.kind}, why)
		}
	}
}

// addDenial adds a reason to the denial d of a candidate. If there are several codes, SB-POL-002
// precedes 003, which precedes 001.
func (a *Answer) addDenial(i int, d Denial, reason string) {
	v := &a.Verdicts[i]
	rank := []switchboard.Code{switchboard.CodeDenied, switchboard.CodeObligation, switchboard.CodePolicyFailed}
	d.Reasons = []string{reason}
	if was := v.Denied; was != nil {
		d.Veto = d.Veto || was.Veto
		switch {
		case slices.Index(rank, d.Code) > slices.Index(rank, was.Code):
		case was.Code == d.Code && was.Layer == d.Layer && len(was.Reasons) < maxReasons:
			d.Reasons = append(slices.Clone(was.Reasons), reason)
			slices.Sort(d.Reasons)
		default:
			d.Code, d.Layer, d.Reasons = was.Code, was.Layer, was.Reasons
		}
	}
	v.Denied = &d
}

// An answerSorter assigns the answer of a layer to the candidates.
type answerSorter struct {
	answer  *Answer
	layer   *Layer
	at      sortedIDs
	allowed []bool
}

// A sortedIDs finds candidates by their ids. Most candidates come sorted, so it costs less than a map.
type sortedIDs struct {
	candidates []*switchboard.Tool
	order      []int // the indexes of the candidates in the order of their ids; nil if they are sorted
}

func sortIDs(candidates []*switchboard.Tool) sortedIDs {
	s := sortedIDs{candidates: candidates}
	if slices.IsSortedFunc(candidates, func(a, b *switchboard.Tool) int { return compareIDs(a.ID, b.ID) }) {
		return s
	}
	s.order = make([]int, len(candidates))
	for i := range s.order {
		s.order[i] = i
	}
	slices.SortFunc(s.order, func(i, j int) int { return compareIDs(candidates[i].ID, candidates[j].ID) })
	return s
}

func compareIDs(a, b switchboard.ToolID) int {
	return cmp.Or(strings.Compare(string(a.Server), string(b.Server)), strings.Compare(a.Name, b.Name))
}

// find returns the index of the candidate with an id, in the form of ToolID.String.
func (s sortedIDs) find(id string) (int, bool) {
	server, name, ok := strings.Cut(id, "/") // no id of a server has a slash
	if !ok {
		return 0, false
	}
	want := switchboard.ToolID{Server: switchboard.ServerID(server), Name: name}
	at := func(i int) int {
		if s.order != nil {
			return s.order[i]
		}
		return i
	}
	i := sort.Search(len(s.candidates), func(i int) bool { return compareIDs(s.candidates[at(i)].ID, want) >= 0 })
	if i == len(s.candidates) || s.candidates[at(i)].ID != want {
		return 0, false
	}
	return at(i), true
}

// candidate returns the index of the candidate with an id.
func (s *answerSorter) candidate(in string, id *ast.Term) (int, bool, error) {
	name, ok := id.Value.(ast.String)
	if !ok {
		return 0, false, fmt.Errorf("%s: %s is not the id of a candidate, which is a string", in, shortTerm(id))
	}
	i, ok := s.at.find(string(name))
	if !ok && len(s.answer.Unknown) < maxReasons {
		s.answer.Unknown = append(s.answer.Unknown, string(name))
	}
	return i, ok, nil
}

func (s *answerSorter) sort(r *rawAnswer) error {
	if v := soleElement(r.allowed); v != nil {
		ids, ok := v.Value.(interface {
			Iter(func(*ast.Term) error) error
		}) // a set or an array
		if !ok {
			return fmt.Errorf("%s is %s, and neither a set nor an array; write: %s contains c.id if { … }", AnswerAllowed, ast.ValueName(v.Value), AnswerAllowed)
		}
		if err := ids.Iter(func(id *ast.Term) error {
			i, ok, err := s.candidate(AnswerAllowed, id)
			if ok {
				s.allowed[i] = true
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := s.sets(AnswerDeny, r.deny, func(i int, reason *ast.Term) error {
		text, ok := reason.Value.(ast.String)
		if !ok {
			return fmt.Errorf("%s: %s is not a reason, which is a string", AnswerDeny, shortTerm(reason))
		}
		s.answer.addDenial(i, Denial{Code: switchboard.CodeDenied, Layer: s.layer.kind, Veto: true}, truncate(string(text)))
		return nil
	}); err != nil {
		return err
	}
	return s.sets(AnswerObligations, r.obligations, func(i int, o *ast.Term) error {
		if err := addObligation(&s.answer.Verdicts[i].Obligations, o); err != nil {
			s.answer.addDenial(i, Denial{Code: switchboard.CodeObligation, Layer: s.layer.kind, Veto: true}, truncate(err.Error()))
		}
		return nil
	})
}

// sets visits the elements of an object of sets, which has ids of candidates as keys.
func (s *answerSorter) sets(name string, t *ast.Term, f func(int, *ast.Term) error) error {
	v := soleElement(t)
	if v == nil {
		return nil
	}
	obj, ok := v.Value.(ast.Object)
	if !ok {
		return fmt.Errorf("%s is %s and not an object of sets; write: %s[c.id] contains … if { … }", name, ast.ValueName(v.Value), name)
	}
	return obj.Iter(func(id, value *ast.Term) error {
		set, ok := value.Value.(ast.Set)
		if !ok {
			return fmt.Errorf("%s[%s] is %s and not a set; write: %s[c.id] contains … if { … }", name, shortTerm(id), ast.ValueName(value.Value), name)
		}
		if set.Len() == 0 { // a rule for this id, which did not fire
			return nil
		}
		i, ok, err := s.candidate(name, id)
		if err != nil || !ok {
			return err
		}
		return forEachElement(set, func(x *ast.Term) error { return f(i, x) })
	})
}

// forEachElement visits a set in order.
func forEachElement(s ast.Set, f func(*ast.Term) error) error {
	for _, t := range s.Slice() {
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// soleElement returns the one element of a list, or nil if the list is empty because its value is
// undefined.
func soleElement(list *ast.Term) *ast.Term {
	if a, ok := list.Value.(*ast.Array); ok && a.Len() == 1 {
		return a.Elem(0)
	}
	return nil
}

func shortTerm(t *ast.Term) string { return truncate(t.String()) }

func truncate(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "") + "…"
}
