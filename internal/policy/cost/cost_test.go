package cost

import (
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

func TestEveryCostNamesABuiltin(t *testing.T) {
	for name := range builtinCosts {
		if topdown.GetBuiltin(name) == nil {
			t.Errorf("%s is not a builtin", name)
		}
	}
}

// BenchmarkCost measures the cost of counting one call of a quick builtin.
func BenchmarkCost(b *testing.B) {
	for name, c := range map[string]struct {
		builtin  string
		operands []*ast.Term
	}{
		"plus":        {"plus", []*ast.Term{ast.IntNumberTerm(3), ast.IntNumberTerm(4)}},
		"concat":      {"concat", []*ast.Term{ast.StringTerm("/"), ast.ArrayTerm(ast.StringTerm("srv"), ast.StringTerm("data"))}},
		"regex.match": {"regex.match", []*ast.Term{ast.StringTerm(`^[a-z]+$`), ast.StringTerm("abcdefgh")}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, why := builtinCosts[c.builtin](c.operands); why != "" {
					b.Fatal(why)
				}
			}
		})
	}
}

func FuzzTheCostOfAPatternIsCountedBeforeItIsCompiled(f *testing.F) {
	for _, s := range []string{"(a?){500}(a?){499}b", "^[a-z]+$", "((a{9}){9}){9}", "(", `\pL{3,}`, "a|b|[^c]"} {
		f.Add(s, "aaab")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		p := programOf(pattern)
		if p.why == "" && p.re != nil && p.size < 1 {
			t.Errorf("%q has %v instructions", pattern, p.size)
		}
		if len(text) < 1<<10 && p.re != nil && p.size < 1<<10 { // the computed cost must be enough for the work
			s := regexSearch{pattern, text, "", -1}
			if err := s.rehearse("regex.find_n", nil); err != nil {
				t.Error(err)
			}
		}
	})
}
