package policy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/summit-switchboard/switchboard/internal/policy/cost"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestEveryBuiltinIsQuickOrHasACost(t *testing.T) {
	for _, b := range Capabilities().Builtins {
		if !strings.HasPrefix(b.Name, "test.") && !cost.IsLimited(b.Name) {
			t.Errorf("nothing bounds %s", b.Name)
		}
	}
}

// judged asks a layer with one rule about a call with this value as argument x.
func judged(t *testing.T, rules, x string) error {
	t.Helper()
	p, err := compiled(t, "{}", rules)
	if err != nil {
		t.Fatalf("%s: %v", rules, err)
	}
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "brave", Name: "search"}, Definition: []byte(`{}`)}
	v := p.Judge(t.Context(), &CandidateQuestion{
		Phase: PhaseCall, Requirement: &switchboard.Requirement{Verb: "search", Resource: "internet"}, Candidates: []*switchboard.Tool{tool},
		Arguments: []byte(`{"x":` + x + `}`), Now: time.Unix(0, 0),
	}).Verdicts[0]
	if v.Denied == nil {
		return nil
	}
	return errors.New(v.Denied.String())
}

// RX-09
func TestABuiltinThatCouldTakeTooLongIsNotStarted(t *testing.T) {
	a := func(n int) string { return `"` + strings.Repeat("a", n) + `"` }
	for name, c := range map[string]struct{ expr, x, says string }{
		"a pattern of counted repetitions on 1 MB": {`regex.match("(a?){500}(a?){499}b", x)`, a(1000_000), "instructions on"},
		"the same, all matches":                    {`regex.find_n("(a?){500}(a?){499}b", x, -1)`, a(1000_000), "instructions on"},
		"the same, split":                          {`regex.split("(a?){500}(a?){499}b", x)`, a(1000_000), "instructions on"},
		"the same, replaced":                       {`regex.replace(x, "(a?){500}(a?){499}b", "c")`, a(1000_000), "instructions on"},
		"the same, with submatches":                {`regex.find_all_string_submatch_n("(a?){500}(a?){499}b", x, -1)`, a(1000_000), "instructions on"},
		"repetitions beside repetitions":           {`regex.match(replace(x, "a", "(b{1000})"), x)`, a(100), "the most is"},
		"the client's own pattern":                 {`regex.match(x, "abc")`, a(cost.MaxPattern + 1), "a pattern of"},
		"what is put in the place of each match":   {`regex.replace(x, "a", concat("", [x, x]))`, a(1 << 14), "its result has more than"},
		"a template with repetitions":              {`regex.template_match("urn:<(a{1,900}){1,1}>", x, "<", ">")`, a(1 << 16), "instructions on"},
		"two globs that may meet in many ways":     {`regex.globs_match(x, "a*b*c*d*e*f*g*")`, `"` + strings.Repeat("a*", 30) + `"`, "repetitions"},
		"a glob of many wildcards":                 {`glob.match("*a*a*a*a*a*a*b", ["/"], x)`, a(400), "wildcards"},
		"a text of gigabytes":                      {`count(replace(x, "a", x)) > 0`, a(1 << 16), "puts"},
		"texts of gigabytes":                       {`count(strings.replace_n({"a": x}, x)) > 0`, a(1 << 16), "puts"},
		"a format with a width, many times":        {`sprintf(concat("", ["%", "1000000d", replace("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "a", "%1000000d")]), [1]) != x`, a(1), "it makes"},
		"a format that takes its widths":           {`sprintf(replace(x, "a", "%*d"), [1, 1]) != ""`, a(100), "it makes"},
		"a range of many numbers":                  {`count(numbers.range(1, 500000000)) > 0`, a(1), "it makes"},
		"a range of many numbers, by steps":        {`count(numbers.range_step(1, 500000000, 2)) > 0`, a(1), "it makes"},
		"all addresses there are":                  {`count(net.cidr_expand("0.0.0.0/0")) > 0`, a(1), "2^32 addresses"},
		"numbers that grow":                        {`n := bits.lsh(1, 4000); n * n * n * n > 0`, a(1), "digits"},
		"a factorial":                              {`product(numbers.range(1, 100000)) > 0`, a(1), "digits"},
		"a shift by many":                          {`bits.lsh(1, 2000000000) > 0`, a(1), "it shifts by"},
		"a certificate of 1 MB":                    {`crypto.x509.parse_certificates(x)`, a(1000_000), "its operands have"},
		"texts of which each is as long as may be": {`y := concat("", [x, x, x, x, x, x, x, x]); count([1 | some i in numbers.range(1, 100); count(sprintf("%d%s", [i, y])) > 0]) > 0`, a(1000_000), "this evaluation would take"},
		"a query of 64 KB":                         {`graphql.is_valid(x, "type Query { a: Int }")`, a(1 << 16), "compare each part"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judged(t, "allowed_tools contains c.id if { some c in input.candidate_tools; x := input.call.arguments.x; "+c.expr+" }", c.x)
			if err == nil || !strings.Contains(err.Error(), "could take too long") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.300s, want an error with %q", fmt.Sprint(err), c.says)
			}
		})
	}
	t.Run("behind a not", func(t *testing.T) {
		err := judged(t, `allowed_tools contains c.id if { some c in input.candidate_tools; not regex.match("(a?){500}(a?){499}b", input.call.arguments.x) }`, a(1000_000))
		if err == nil || !strings.Contains(err.Error(), "could take too long") {
			t.Errorf("%v", err)
		}
	})
}

func TestOrdinaryPoliciesAreNeverTooCostly(t *testing.T) {
	text := `"` + strings.Repeat("word 4111111111111111 https://example.com/a?b=c ", 4000) + `"` // 190 KB
	for name, expr := range map[string]string{
		"a search in a long text":       `regex.match("[0-9]{16}", x)`,
		"all cards in it":               `count(regex.find_n("[0-9]{16}", x, -1)) == 4000`,
		"the first card":                `count(regex.find_n("[0-9]{16}", x, 1)) == 1`,
		"its parts":                     `count(regex.split("\\s+", x)) == 12001`,
		"its addresses, with parts":     `count(regex.find_all_string_submatch_n("(https)://([a-z.]+)", x, 3)) == 3`,
		"cards masked":                  `contains(regex.replace(x, "[0-9]{12}([0-9]{4})", "…$1"), "…1111")`,
		"a glob over a tool's name":     `glob.match("brave-*-eu/read_*_*", ["/"], "brave-fra-eu/read_file_from_disk")`,
		"a glob over a path":            `not glob.match("/srv/**/secrets/*.pem", ["/"], substring(x, 0, 200))`,
		"a format":                      `sprintf("%-20s|%5d|%v", [substring(x, 0, 10), 7, {"a": 1}]) != ""`,
		"a number":                      `product(numbers.range(1, 50)) > 0`,
		"a network":                     `count(net.cidr_expand("10.0.0.0/24")) == 256`,
		"a token":                       `io.jwt.decode("eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln")[1].a == 1`,
		"what it says as YAML":          `yaml.unmarshal("a: [1, 2]").a[0] == 1`,
		"a digest":                      `crypto.hmac.sha256(x, "key") != ""`,
		"a template":                    `regex.template_match("urn:<[a-z]+>:x", "urn:abc:x", "<", ">")`,
		"a replacement":                 `contains(replace(x, "word", "other"), "other")`,
		"no more matches than it wants": `count(regex.find_n("w", x, 0)) == 0`,
	} {
		t.Run(name, func(t *testing.T) {
			if err := judged(t, "allowed_tools contains c.id if { some c in input.candidate_tools; x := input.call.arguments.x; "+expr+" }", text); err != nil {
				t.Errorf("%.300s", err)
			}
		})
	}
}

func TestAValueThatContainsItselfManyTimesIsAFaultOfItsRule(t *testing.T) {
	double := func(write string, times int) (rules string) {
		for i := range times {
			rules += strings.NewReplacer("NEXT", fmt.Sprint("a", i+1), "THIS", fmt.Sprint("a", i)).Replace(write) + "\n"
		}
		return rules
	}
	for name, c := range map[string]struct {
		rules  string
		faulty bool
	}{
		"arrays of rules":                    {"a0 := [input.phase]\n" + double(`NEXT := [THIS, THIS]`, 30), true},
		"objects":                            {"a0 := {1: input.phase}\n" + double(`NEXT := {"a": THIS, "b": {"c": THIS}}`, 30), true},
		"sets":                               {"a0 := {input.phase}\n" + double(`NEXT := {THIS, [THIS]}`, 30), true},
		"variables of one rule":              {"x if {\na0 := [input.phase]\n" + double(`NEXT := [THIS, THIS]`, 30) + "a30 == [1]\n}", true},
		"a function of a function":           {"two(x) := [x, x]\na0 := input.phase\n" + double(`NEXT := two(two(THIS))`, 15), true},
		"array.concat":                       {"a0 := [input.phase]\n" + double(`NEXT := array.concat(THIS, THIS)`, 30), true},
		"comprehensions":                     {"a0 := [input.phase]\n" + double(`NEXT := [[THIS, y] | some y in THIS]`, 30), true},
		"under with":                         {"a0 := input.user_tier\n" + double(`NEXT := x if x := THIS with input.user_tier as [THIS, THIS]`, 30), true},
		"values that meet in a partial rule": {"a0 contains input.phase\n" + double(`NEXT contains [THIS, THIS]`, 30), true},
		"a few levels":                       {"a0 := [input.phase]\n" + double(`NEXT := [THIS, THIS]`, 10), false},
		"a long chain of sums":               {"a0 := count(input.candidate_tools)\n" + double(`NEXT := THIS + THIS`, 100), false},
		"a long chain of texts":              {"a0 := input.phase\n" + double(`NEXT := sprintf("%s%s", [THIS, THIS])`, 20), false},
		"a long chain of conditions":         {"a0 if input.phase == \"call\"\n" + double("NEXT if { THIS; x := [THIS, 1]; x != [] }", 100), false},
	} {
		_, err := compiled(t, "{}", allowed+"x_used := 1\n"+c.rules)
		if faulty := err != nil && strings.Contains(err.Error(), "puts a value into itself"); faulty != c.faulty {
			t.Errorf("%s: %v, want a fault: %t", name, err, c.faulty)
		}
	}
}

// slow is an evaluation that cannot be stopped: it ends when the channel is closed.
func slow(end <-chan struct{}) func(topdown.Cancel) (*rawAnswer, error) {
	return func(topdown.Cancel) (*rawAnswer, error) { <-end; return &rawAnswer{}, nil }
}

func quick(topdown.Cancel) (*rawAnswer, error) { return &rawAnswer{}, nil }

// RX-09
func TestWhileAnEvaluationIsOverdueItsTenantBeginsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(time.Second, 2)
		e.maxOverdue = 2
		acme, other := e.shareOf("acme"), e.shareOf("other")
		end := make(chan struct{})
		began := time.Now()
		if _, err := e.evalBeside(t.Context(), acme, slow(end)); !errors.Is(err, cost.ErrTime) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := e.evalBeside(t.Context(), acme, quick); !errors.Is(err, errOverdue) {
			t.Errorf("another evaluation of the tenant: %v", err)
		}
		if _, err := e.evalBeside(t.Context(), other, quick); err != nil {
			t.Errorf("another tenant's: %v", err)
		}
		if _, _, ranOver, overdue := e.Counts(); ranOver != 1 || overdue != 1 {
			t.Errorf("%d ran over, %d are overdue", ranOver, overdue)
		}
		go func() { time.Sleep(time.Second / 2); close(end) }()
		began = time.Now()
		if _, err := e.evalBeside(t.Context(), acme, quick); err != nil || time.Since(began) != time.Second/2 {
			t.Errorf("after it has ended: %v after %v", err, time.Since(began))
		}
		if _, _, ranOver, overdue := e.Counts(); ranOver != 1 || overdue != 0 {
			t.Errorf("%d ran over, %d are overdue", ranOver, overdue)
		}
		time.Sleep(2 * idleTime) // the idle goroutines end
	})
}

func TestTheNumberOfOverdueEvaluationsIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(time.Second, 2)
		e.maxOverdue = 2
		end := make(chan struct{})
		for i := range 2 {
			if _, err := e.evalBeside(t.Context(), e.shareOf(switchboard.TenantID(fmt.Sprint("bad", i))), slow(end)); !errors.Is(err, cost.ErrTime) {
				t.Error(err)
			}
		}
		if _, err := e.evalBeside(t.Context(), e.shareOf("good"), quick); !errors.Is(err, errCrowded) {
			t.Errorf("with the maximum overdue: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := e.evalBeside(ctx, e.shareOf("good"), quick); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that stops waiting: %v", err)
		}
		close(end)
		synctest.Wait()
		if _, err := e.evalBeside(t.Context(), e.shareOf("good"), quick); err != nil {
			t.Errorf("after they have ended: %v", err)
		}
		time.Sleep(2 * idleTime)
	})
}

func TestEachTenantHasItsOwnConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(time.Second, 1)
		acme := e.shareOf("acme")
		acme.running <- struct{}{} // one evaluation runs
		brisk := layerView{quick: true}
		if _, err := e.eval(t.Context(), acme, brisk, ast.NullTerm(), time.Now()); !errors.Is(err, errCrowded) {
			t.Errorf("a second evaluation: %v", err)
		}
		if _, err := e.evalBeside(t.Context(), acme, quick); !errors.Is(err, errCrowded) {
			t.Errorf("a second evaluation, on another goroutine: %v", err)
		}
		if _, err := e.evalBeside(t.Context(), e.shareOf("other"), quick); err != nil {
			t.Errorf("another tenant's: %v", err)
		}
		time.Sleep(2 * idleTime)
	})
}

// A caller that stops waiting does not make an evaluation overdue, and the tenant may run another
// one.
func TestACallerThatStopsWaitingStopsItsEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(time.Second, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := e.evalBeside(ctx, e.shareOf("acme"), func(c topdown.Cancel) (*rawAnswer, error) {
			for !c.Cancelled() {
				time.Sleep(time.Millisecond)
			}
			return nil, errors.New("cancelled")
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := e.evalBeside(t.Context(), e.shareOf("acme"), quick); err != nil {
			t.Error(err)
		}
		if _, _, ranOver, _ := e.Counts(); ranOver != 0 {
			t.Errorf("%d are overdue", ranOver)
		}
		time.Sleep(2 * idleTime)
	})
}
