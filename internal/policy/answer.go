package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// maxReason bounds the text of one reason, in bytes, and maxReasons how many are
// kept of one candidate.
const (
	maxReason  = 1024
	maxReasons = 16
)

// add puts what a layer answered to the verdicts of the candidates.
func (a *Answer) add(l *Layer, r *raw, candidates []*switchboard.Tool) {
	at := make(map[string]int, len(candidates))
	for i, c := range candidates {
		at[c.ID.String()] = i
	}
	s := sorter{answer: a, layer: l, at: at, allowed: make([]bool, len(candidates))}
	if err := s.sort(r); err != nil {
		a.fail(l.kind, err)
		return
	}
	for i, ok := range s.allowed {
		if !ok && a.Verdicts[i].Denied == nil {
			why := "nothing in " + nameAllowed + " allows it"
			if len(l.compiler.Modules) == 0 {
				why = "its policies folder has no rules, and so it allows nothing"
			}
			a.deny(i, Denial{Code: switchboard.CodeDenied, Layer: l.kind}, why)
		}
	}
}

// deny adds a reason to the denial d of a candidate. The gravest code counts: SB-POL-002, then 003.
func (a *Answer) deny(i int, d Denial, reason string) {
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

// sorter sorts what a layer answered by candidate.
type sorter struct {
	answer  *Answer
	layer   *Layer
	at      map[string]int
	allowed []bool
}

// candidate returns which candidate an id means.
func (s *sorter) candidate(in string, id *ast.Term) (int, bool, error) {
	name, ok := id.Value.(ast.String)
	if !ok {
		return 0, false, fmt.Errorf("%s: %s is no id of a candidate, which is a string", in, short(id))
	}
	i, ok := s.at[string(name)]
	if !ok && len(s.answer.Unknown) < maxReasons {
		s.answer.Unknown = append(s.answer.Unknown, string(name))
	}
	return i, ok, nil
}

func (s *sorter) sort(r *raw) error {
	if v := only(r.allowed); v != nil {
		ids, ok := v.Value.(interface {
			Iter(func(*ast.Term) error) error
		}) // a set or an array
		if !ok {
			return fmt.Errorf("%s is %s, and neither a set nor an array; write: %s contains c.id if { … }", nameAllowed, ast.ValueName(v.Value), nameAllowed)
		}
		if err := ids.Iter(func(id *ast.Term) error {
			i, ok, err := s.candidate(nameAllowed, id)
			if ok {
				s.allowed[i] = true
			}
			return err
		}); err != nil {
			return err
		}
	}
	if err := s.sets(nameDeny, r.deny, func(i int, reason *ast.Term) error {
		text, ok := reason.Value.(ast.String)
		if !ok {
			return fmt.Errorf("%s: %s is no reason, which is a string", nameDeny, short(reason))
		}
		s.answer.deny(i, Denial{Code: switchboard.CodeDenied, Layer: s.layer.kind, Veto: true}, cut(string(text)))
		return nil
	}); err != nil {
		return err
	}
	return s.sets(nameObligations, r.obligations, func(i int, o *ast.Term) error {
		if err := addObligation(&s.answer.Verdicts[i].Obligations, o); err != nil {
			s.answer.deny(i, Denial{Code: switchboard.CodeObligation, Layer: s.layer.kind, Veto: true}, cut(err.Error()))
		}
		return nil
	})
}

// sets walks an object of sets, by the ids of candidates.
func (s *sorter) sets(name string, t *ast.Term, f func(int, *ast.Term) error) error {
	v := only(t)
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
			return fmt.Errorf("%s[%s] is %s and not a set; write: %s[c.id] contains … if { … }", name, short(id), ast.ValueName(value.Value), name)
		}
		if set.Len() == 0 { // a rule for this very id, which did not fire
			return nil
		}
		i, ok, err := s.candidate(name, id)
		if err != nil || !ok {
			return err
		}
		return each(set, func(x *ast.Term) error { return f(i, x) })
	})
}

// each visits a set in order.
func each(s ast.Set, f func(*ast.Term) error) error {
	for _, t := range s.Slice() {
		if err := f(t); err != nil {
			return err
		}
	}
	return nil
}

// only returns the one element of a list, or nil where what it stands for is
// undefined.
func only(list *ast.Term) *ast.Term {
	if a, ok := list.Value.(*ast.Array); ok && a.Len() == 1 {
		return a.Elem(0)
	}
	return nil
}

func short(t *ast.Term) string { return cut(t.String()) }

func cut(s string) string {
	if len(s) <= maxReason {
		return s
	}
	return strings.ToValidUTF8(s[:maxReason], "") + "…"
}
