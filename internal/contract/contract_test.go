package contract_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/canonical"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
)

// shelf holds the known tools, by id.
type shelf map[switchboard.ToolID]*switchboard.Tool

func (s shelf) Tool(id switchboard.ToolID) (*switchboard.Tool, bool) { t, ok := s[id]; return t, ok }

func shelve(tools ...*switchboard.Tool) shelf {
	s := shelf{}
	for _, t := range tools {
		s[t.ID] = t
	}
	return s
}

func id(t testing.TB, s string) switchboard.ToolID {
	t.Helper()
	out, err := switchboard.ParseToolID(s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// tool returns server/name with an input schema and, if it is not "", an output schema.
func tool(t testing.TB, name, input, output string) *switchboard.Tool {
	t.Helper()
	out := &switchboard.Tool{ID: id(t, name)}
	def := fmt.Sprintf(`{"name":%q,"inputSchema":%s`, out.ID.Name, input)
	if output != "" {
		def += `,"outputSchema":` + output
		out.Structured = true
	}
	out.Definition = []byte(def + "}")
	var err error
	if out.Digest, err = canonical.Digest(out.Definition); err != nil {
		t.Fatal(err)
	}
	return out
}

func all(switchboard.ServerID) bool { return true }

func overlay(from switchboard.ToolID, ds ...switchboard.DeclaredEquivalent) map[switchboard.ToolID]switchboard.Overlay {
	return map[switchboard.ToolID]switchboard.Overlay{from: {Equivalents: ds}}
}

// parseValues parses constants or defaults from one JSON object.
func parseValues(t testing.TB, text string) map[string]json.RawMessage {
	t.Helper()
	out := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// declared returns an equivalent b/there, at o.yaml:1:2. words are "map a b", "constants {…}", "defaults {…}" and "drop
// a".
func declared(t testing.TB, words ...string) switchboard.DeclaredEquivalent {
	t.Helper()
	d := switchboard.DeclaredEquivalent{Tool: id(t, "b/there"), Position: "o.yaml:1:2", Map: map[string]string{}}
	for _, w := range words {
		key, rest, _ := strings.Cut(w, " ")
		switch key {
		case "map":
			from, to, _ := strings.Cut(rest, " ")
			d.Map[from] = to
		case "constants":
			d.Constants = parseValues(t, rest)
		case "defaults":
			d.Defaults = parseValues(t, rest)
		case "drop":
			d.Drop = append(d.Drop, rest)
		default:
			t.Fatal(w)
		}
	}
	return d
}

// schema makes an input schema from "query:string! lang num:integer,null"; ! means required.
func schema(text string) string {
	var props, required []string
	for f := range strings.FieldsSeq(text) {
		f, must := strings.CutSuffix(f, "!")
		name, types, typed := strings.Cut(f, ":")
		prop := "{}"
		if typed {
			prop = `{"type":["` + strings.ReplaceAll(types, ",", `","`) + `"]}`
			if !strings.Contains(types, ",") {
				prop = `{"type":"` + types + `"}`
			}
		}
		props = append(props, fmt.Sprintf("%q:%s", name, prop))
		if must {
			required = append(required, fmt.Sprintf("%q", name))
		}
	}
	return `{"type":"object","properties":{` + strings.Join(props, ",") + `},"required":[` + strings.Join(required, ",") + `]}`
}

func why(faults []contract.EquivalentFault) (out []string) {
	for _, f := range faults {
		s := strings.TrimPrefix(f.Error(), `o.yaml:1:2: server "a", tool "here": equivalent b/there: `)
		out = append(out, s)
	}
	return out
}

func TestADeclarationFitsBothSchemasOrIsAFault(t *testing.T) {
	for name, tt := range map[string]struct {
		here, there string
		d           []string
		want        []string
	}{
		"the same names":                           {here: "q:string!", there: "q:string!"},
		"a renamed argument":                       {here: "query:string!", there: "q:string!", d: []string{"map query q"}},
		"everything at once":                       {here: "query:string! country lang:string", there: "q:string! safe:boolean! num:integer! lang", d: []string{"map query q", `constants {"safe":true}`, `defaults {"num":10}`, "drop country"}},
		"names that are exchanged":                 {here: "a:string! b:string!", there: "a:string! b:string!", d: []string{"map a b", "map b a"}},
		"an optional one that the other lacks":     {here: "q! country", there: "q!"},
		"a default for one that is mapped":         {here: "query", there: "q!", d: []string{"map query q", `defaults {"q":"x"}`}},
		"a whole number where any will do":         {here: "n:integer!", there: "n:number!"},
		"any number where a whole one is wanted":   {here: "n:number!", there: "n:integer!"},
		"one of several types":                     {here: "n:integer,null!", there: "n:string,null!"},
		"an argument of no type":                   {here: "n!", there: "n:string!"},
		"an optional one for one that is required": {here: "q", there: "q!"},

		"map of what is not here":  {here: "q!", there: "q!", d: []string{"map query q"}, want: []string{`map: this tool has no argument "query"`}},
		"map to what is not there": {here: "query!", there: "q", d: []string{"map query qq"}, want: []string{`map: it has no argument "qq"`}},
		"drop of what is not here": {here: "q!", there: "q!", d: []string{"drop country"}, want: []string{`drop: this tool has no argument "country"`}},
		"constant not there":       {here: "q!", there: "q!", d: []string{`constants {"safe":true}`}, want: []string{`constants: it has no argument "safe"`}},
		"default not there":        {here: "q!", there: "q!", d: []string{`defaults {"num":10}`}, want: []string{`defaults: it has no argument "num"`}},
		"constant that does not fit": {
			here: "q!", there: "q! safe:boolean", d: []string{`constants {"safe":"s3cret"}`},
			want: []string{`constants: the value of "safe" does not fit: at "": want boolean, not string`},
		},
		"default that does not fit": {
			here: "q!", there: "q! num:integer", d: []string{`defaults {"num":1.5}`},
			want: []string{`defaults: the value of "num" does not fit: at "": want integer, not number`},
		},
		"dropped and mapped": {here: "a!", there: "b", d: []string{"map a b", "drop a"}, want: []string{`drop: the map sends "a"`}},
		"two for one, by map": {
			here: "a! b!", there: "c!", d: []string{"map a c", "map b c"},
			want: []string{`the argument "a" and the argument "b" both become its argument "c"`},
		},
		"two for one, of which one keeps its name": {
			here: "query! q", there: "q!", d: []string{"map query q"},
			want: []string{`the argument "q" and the argument "query" both become its argument "q"`},
		},
		"the same, dropped": {here: "query! q", there: "q!", d: []string{"map query q", "drop q"}},
		"two for one, of which one is constant": {
			here: "q!", there: "q!", d: []string{`constants {"q":"x"}`},
			want: []string{`the argument "q" and the constant both become its argument "q"`},
		},
		"constant and default":      {here: "a", there: "a b", d: []string{`constants {"b":1}`, `defaults {"b":1}`}, want: []string{`defaults: "b" is a constant`}},
		"nothing for what it needs": {here: "a", there: "a b!", want: []string{`nothing becomes its argument "b", which it requires; map one, or give a constant or default`}},
		"no place for what is always given": {
			here: "a! b!", there: "a!",
			want: []string{`it has no argument "b", which every call of this tool gives; map it, or drop it`},
		},
		"another type":           {here: "n:integer!", there: "n:string!", want: []string{`its argument "n" is of another type than this tool's "n"`}},
		"another type, by map":   {here: "n:integer,null!", there: "m:string,array!", d: []string{"map n m"}, want: []string{`its argument "m" is of another type than this tool's "n"`}},
		"all that is wrong":      {here: "a", there: "b!", d: []string{"map x y", "drop z"}, want: []string{`drop: this tool has no argument "z"`, `map: this tool has no argument "x"`, `nothing becomes its argument "b", which it requires; map one, or give a constant or default`}},
		"constants that are not": {here: "a", there: "a", d: []string{`constants {}`, `defaults {}`}},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := tool(t, "a/here", schema(tt.here), ""), tool(t, "b/there", schema(tt.there), "")
			s := contract.New(shelve(here, there), overlay(here.ID, declared(t, tt.d...)), all, nil, nil)
			if got := why(s.Faults()); !slices.Equal(got, tt.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
			if got, want := len(s.Among([]switchboard.Equivalent{{Tool: there}}).Of(here)), 1; (got == want) != (tt.want == nil) {
				t.Errorf("%d equivalents; want %d faults", got, len(tt.want))
			}
			if back := s.Among([]switchboard.Equivalent{{Tool: here}}).Of(there); back != nil {
				t.Error("the move works in both directions")
			}
		})
	}
}

func TestAnImpossiblePairIsAFault(t *testing.T) {
	here, there := tool(t, "a/here", schema("q!"), ""), tool(t, "b/there", schema("q!"), "")
	heard := func(servers ...switchboard.ServerID) func(switchboard.ServerID) bool {
		return func(id switchboard.ServerID) bool { return slices.Contains(servers, id) }
	}
	sibling := declared(t)
	sibling.Tool = id(t, "a/sibling")
	for name, tt := range map[string]struct {
		tools shelf
		d     switchboard.DeclaredEquivalent
		heard func(switchboard.ServerID) bool
		want  []string
	}{
		"the other tool is not there":            {shelve(here), declared(t), all, []string{"there is no such tool"}},
		"its server has not said which it has":   {shelve(here), declared(t), heard("a"), nil},
		"this tool is not there":                 {shelve(there), declared(t), all, nil}, // the catalog reports it
		"both are of one server":                 {shelve(here, tool(t, "a/sibling", schema("q!"), "")), sibling, all, []string{`o.yaml:1:2: server "a", tool "here": equivalent a/sibling: it is of the same server; calls move to another one`}},
		"only this one promises structure":       {shelve(tool(t, "a/here", schema("q!"), `{"type":"object"}`), there), declared(t), all, []string{"its results have no structured content, and those of this tool promise one (outputSchema)"}},
		"only the other one does":                {shelve(here, tool(t, "b/there", schema("q!"), `{"type":"object"}`)), declared(t), all, nil},
		"nobody can check the other's arguments": {shelve(here, tool(t, "b/there", `{"type":"nonsense"}`, "")), declared(t), all, []string{`its input schema cannot be held against arguments: is no JSON Schema: at "/type": does not fit "anyOf"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := contract.New(tt.tools, overlay(here.ID, tt.d), tt.heard, nil, nil)
			if got := why(s.Faults()); !slices.Equal(got, tt.want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestArgumentsAreTranslatedForTheOtherTool(t *testing.T) {
	const here = "query:string! country:string lang:string max:number page:integer"
	const there = "q:string! safe:boolean! num:integer lang:string max:number"
	words := []string{"map query q", `constants {"safe":true}`, `defaults {"num":10,"max":100}`, "drop country"}
	for name, tt := range map[string]struct{ in, want, err string }{
		"renamed and completed":             {in: `{"arguments":{"query":"x"}}`, want: `{"arguments":{"q":"x","safe":true,"max":100,"num":10}}`},
		"dropped":                           {in: `{"arguments":{"query":"x","country":"de"}}`, want: `{"arguments":{"q":"x","safe":true,"max":100,"num":10}}`},
		"values stay as they are spelt":     {in: `{"arguments":{"max":1.50e1, "query":"\u0041\/", "lang" : "de"}}`, want: `{"arguments":{"max":1.50e1,"q":"\u0041\/","lang":"de","safe":true,"num":10}}`},
		"and so does all beside them":       {in: `{"_meta":{"x" : 1.0}, "name" : "here","arguments":{"query":"x"} ,"more":[ 1 ]}`, want: `{"_meta":{"x" : 1.0}, "name" : "here","arguments":{"q":"x","safe":true,"max":100,"num":10} ,"more":[ 1 ]}`},
		"a name that is spelt with escapes": {in: `{"arguments":{"\u0071uery":"x"}}`, want: `{"arguments":{"q":"x","safe":true,"max":100,"num":10}}`},

		"an argument that neither has":      {in: `{"arguments":{"query":"x","extra":1}}`, err: `this tool has no argument "extra"`},
		"one that only the other has":       {in: `{"arguments":{"query":"x","num":1}}`, err: `this tool has no argument "num"`},
		"one that the other lacks":          {in: `{"arguments":{"query":"x","page":2}}`, err: `there is no argument "page" there`},
		"one that is a constant there":      {in: `{"arguments":{"query":"x","safe":false}}`, err: `this tool has no argument "safe"`},
		"a value that the other refuses":    {in: `{"arguments":{"query":"x","lang":7}}`, err: `the arguments do not fit: at "/lang": want string, not number`},
		"what the other requires is absent": {in: `{"arguments":{"lang":"de"}}`, err: `the arguments do not fit: at "": "q" is missing`},
		"no arguments at all":               {in: `{"name":"here"}`, err: `the arguments do not fit: at "": "q" is missing`},
		"arguments that are no object":      {in: `{"arguments":[1]}`, err: "the arguments are not an object"},
		"no params":                         {in: ``, err: `the arguments do not fit: at "": "q" is missing`},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tool(t, "a/here", schema(here), ""), tool(t, "b/there", schema(there), "")
			s := contract.New(shelve(a, b), overlay(a.ID, declared(t, words...)), all, nil, nil)
			es := s.Among([]switchboard.Equivalent{{Tool: b}}).Of(a)
			if len(es) != 1 {
				t.Fatal(s.Faults())
			}
			in := []byte(tt.in)
			got, err := es[0].Params(in)
			if string(got) != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("%s, %v; want %s, %s", got, err, tt.want, tt.err)
			}
			if string(in) != tt.in {
				t.Errorf("the original call was modified: %s", in)
			}
		})
	}
}

func TestMissingArgumentsStayMissingIfNoneAreNeeded(t *testing.T) {
	a, b := tool(t, "a/here", schema("q"), ""), tool(t, "b/there", schema("q"), "")
	s := contract.New(shelve(a, b), overlay(a.ID, declared(t)), all, nil, nil)
	if got, err := s.Among([]switchboard.Equivalent{{Tool: b}}).Of(a)[0].Params([]byte(`{"name":"here"}`)); err != nil || string(got) != `{"name":"here"}` {
		t.Errorf("%s, %v", got, err)
	}
	s = contract.New(shelve(a, b), overlay(a.ID, declared(t, `defaults {"q":1}`)), all, nil, nil)
	if got, err := s.Among([]switchboard.Equivalent{{Tool: b}}).Of(a)[0].Params([]byte(`{"name":"here"}`)); err != nil || string(got) != `{"name":"here","arguments":{"q":1}}` {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOnlyTheSameToolOfTwoTrustedServersIsAnEquivalentUndeclared(t *testing.T) {
	law.Hold(t, law.NeverTwice)
	const in, other = `{"type":"object","properties":{"q":{"type":"string"}}}`, `{"type":"object","properties":{"q":{"type":"integer"}}}`
	const out = `{"type":"object","required":["x"]}`
	trusted := func(t *switchboard.Tool) *switchboard.Tool { t.Trust = switchboard.TrustOperator; return t }
	for name, tt := range map[string]struct {
		a, b *switchboard.Tool
		want bool
	}{
		"the same on two servers":             {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "b/x", in, "")), true},
		"the same, spelt differently":         {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "b/x", `{"properties": {"q": {"type": "string"}}, "type": "object"}`, "")), true},
		"another name":                        {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "b/y", in, "")), false},
		"other arguments":                     {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "b/x", other, "")), false},
		"the one is not trusted":              {tool(t, "a/x", in, ""), trusted(tool(t, "b/x", in, "")), false},
		"the other is not":                    {trusted(tool(t, "a/x", in, "")), tool(t, "b/x", in, ""), false},
		"both of one server":                  {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "a/x", in, "")), false},
		"the same results":                    {trusted(tool(t, "a/x", in, out)), trusted(tool(t, "b/x", in, out)), true},
		"results of which only one promises":  {trusted(tool(t, "a/x", in, out)), trusted(tool(t, "b/x", in, "")), false},
		"results of which the other promises": {trusted(tool(t, "a/x", in, "")), trusted(tool(t, "b/x", in, out)), true},
		"other results":                       {trusted(tool(t, "a/x", in, out)), trusted(tool(t, "b/x", in, `{"type":"object"}`)), false},
	} {
		t.Run(name, func(t *testing.T) {
			es := contract.New(shelve(), nil, all, nil, nil).Among([]switchboard.Equivalent{{Tool: tt.b}}).Of(tt.a)
			if got := len(es) == 1; got != tt.want {
				t.Errorf("equivalent: %v", got)
			}
			if len(es) == 1 {
				const params = `{"arguments": {"q": "x"}}`
				if got, err := es[0].Params([]byte(params)); string(got) != params || err != nil {
					t.Errorf("%s, %v", got, err)
				}
				if _, err := es[0].Params([]byte(`{"arguments": {"q": 7}}`)); err == nil {
					t.Error("arguments that the other tool does not accept move")
				}
			}
		})
	}
}

func TestAFaultyDeclarationIsNoEquivalentEvenForEqualTools(t *testing.T) {
	a, b := tool(t, "a/there", schema("q!"), ""), tool(t, "b/there", schema("q!"), "")
	a.Trust, b.Trust = switchboard.TrustOperator, switchboard.TrustOperator
	among := []switchboard.Equivalent{{Tool: b}}
	if s := contract.New(shelve(a, b), nil, all, nil, nil); len(s.Among(among).Of(a)) != 1 {
		t.Fatal("they are not the same")
	}
	wrong := contract.New(shelve(a, b), overlay(a.ID, declared(t, "map x y")), all, nil, nil)
	if len(wrong.Among(among).Of(a)) != 0 {
		t.Error("a faulty map is ignored")
	}
	tenant := contract.New(shelve(a, b), overlay(a.ID, declared(t)), all, wrong, nil)
	if len(tenant.Among(among).Of(a)) != 0 || len(tenant.Faults()) != 1 {
		t.Errorf("a tenant repeats the operator's declaration: %v", tenant.Faults())
	}
}

func TestATenantsEquivalentsAreItsOwnAndTheOperators(t *testing.T) {
	law.Hold(t, law.NothingLeaks)
	a, b, c := tool(t, "a/here", schema("q!"), ""), tool(t, "b/there", schema("q!"), ""), tool(t, "c/else", schema("q!"), "")
	third := declared(t)
	third.Tool = c.ID
	tools := shelve(a, b, c)
	operator := contract.New(tools, overlay(a.ID, declared(t)), all, nil, nil)
	tenant := contract.New(tools, overlay(a.ID, third), all, operator, nil)
	judged := []*switchboard.Judgment{{}}
	among := []switchboard.Equivalent{{Tool: c, Judgments: judged}, {Tool: b}, {Tool: a}}
	got := tenant.Among(among).Of(a)
	if len(got) != 2 || got[0].Tool != c || got[1].Tool != b || len(got[0].Judgments) != 1 || got[0].Judgments[0] != judged[0] {
		t.Errorf("%+v", got)
	}
	if got := operator.Among(among).Of(a); len(got) != 1 || got[0].Tool != b {
		t.Errorf("the operator's own: %+v", got)
	}
	if among[0].Params != nil {
		t.Error("the caller's list was modified")
	}
}
