package suspect_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/scan/suspect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// A subject is a tool of the data, with the peers that it is compared with.
type subject struct {
	id         switchboard.ToolID
	label      string
	definition []byte
	peers      *suspect.Peers
	halves     [2]uint32 // the rules were first tuned on half 0 of the first split, and then on half 0 of the second one
}

// The data of other people: tools that attack, tools that look alike and are harmless, and the tools of real servers.
type corpus struct{ attacks, twins, real []subject }

var readCorpus = sync.OnceValues(func() (*corpus, error) {
	c := &corpus{}
	servers, err := realdata.Servers()
	if err != nil {
		return nil, err
	}
	var tools []suspect.PeerTool
	for _, s := range servers {
		for _, t := range s.Tools {
			var named struct{ Name string }
			if err := json.Unmarshal(t, &named); err != nil {
				return nil, err
			}
			id := switchboard.ToolID{Server: switchboard.ServerID(s.ID), Name: named.Name}
			tools = append(tools, suspect.PeerTool{ID: id, Definition: t})
			c.real = append(c.real, subject{id: id, definition: t, halves: splits(s.ID + named.Name)})
		}
	}
	peers := suspect.NewPeers(tools)
	for i := range c.real {
		c.real[i].peers = peers
	}
	if c.attacks, err = readPoison("positives.jsonl"); err != nil {
		return nil, err
	}
	c.twins, err = readPoison("hard_negatives.jsonl")
	return c, err
})

// What the code finds belongs to Version as the rules do: a change that makes it faster finds the same. Another set of data has no digest here.
func TestAllFindingsAreThoseOfTheVersion(t *testing.T) {
	const version, data, findings = 1, "aff21cde8cbd3033", "e6767503df23d82f"
	c := realCorpus(t)
	read, found := sha256.New(), sha256.New()
	for _, s := range slices.Concat(c.real, c.attacks, c.twins) {
		_, _ = fmt.Fprintf(read, "%s %q\n", s.id, s.definition) // it never fails
		_, _ = fmt.Fprintf(found, "%s %q %q\n", s.id, suspect.Find(s.id, s.definition, s.peers), suspect.FindBlocking(s.definition))
	}
	if got := fmt.Sprintf("%x", read.Sum(nil))[:16]; got != data {
		t.Skip("these are other tools: ", got)
	}
	if got := fmt.Sprintf("%x", found.Sum(nil))[:16]; got != findings || suspect.Version != version {
		t.Errorf("the findings of version %d have the digest %s, and the test knows %d and %s: increase Version if others are found, and write both here", suspect.Version, got, version, findings)
	}
}

// readPoison reads tools that attack, or that look as if. Some rows give the names of arguments instead of a schema.
func readPoison(file string) (all []subject, err error) {
	err = realdata.Lines(realdata.File("poison", file), func(line []byte) error {
		var row struct {
			ID, Set string
			Server  *string
			Tool    map[string]json.RawMessage
			Params  []string
			Peers   []struct {
				Server switchboard.ServerID
				Tool   json.RawMessage
			}
		}
		if err := json.Unmarshal(line, &row); err != nil {
			return err
		}
		if len(row.Params) > 0 && row.Tool["inputSchema"] == nil {
			properties := map[string]any{}
			for _, p := range row.Params {
				properties[p] = map[string]any{"type": "string"}
			}
			row.Tool["inputSchema"], _ = json.Marshal(map[string]any{"type": "object", "properties": properties})
		}
		server := switchboard.ServerID("subject")
		if row.Server != nil {
			server = switchboard.ServerID(*row.Server)
		}
		s := subject{id: switchboard.ToolID{Server: server}, label: row.Set + " " + row.ID, halves: splits(row.ID)}
		if err := json.Unmarshal(row.Tool["name"], &s.id.Name); err != nil {
			return err
		}
		peers := []suspect.PeerTool{{ID: s.id}}
		for _, p := range row.Peers { // the operator knows them
			var named struct{ Name string }
			if err := json.Unmarshal(p.Tool, &named); err != nil {
				return err
			}
			peers = append(peers, suspect.PeerTool{ID: switchboard.ToolID{Server: p.Server, Name: named.Name}, Trust: switchboard.TrustOperator, Definition: p.Tool})
		}
		s.peers = suspect.NewPeers(peers)
		var text bytes.Buffer
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		err := e.Encode(row.Tool)
		s.definition = bytes.TrimSpace(text.Bytes())
		all = append(all, s)
		return err
	})
	return all, err
}

// splits divides the data in two, in two ways.
func splits(id string) (halves [2]uint32) {
	h, h2 := fnv.New32a(), fnv.New64a()
	_, _ = h.Write([]byte(id))
	_, _ = h2.Write([]byte("second split " + id))
	return [2]uint32{h.Sum32() >> 7 % 2, uint32(h2.Sum64() >> 41 % 2)}
}

func realCorpus(t testing.TB) *corpus {
	t.Helper()
	c, err := readCorpus()
	if os.IsNotExist(err) {
		t.Skipf("the data of other people is not here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A tally counts the tools that have a finding, by quarter.
type tally struct{ attacks, twins, real quarters }

// quarters are numbers of the tools in both halves 0, in half 0 of the first split alone, in half 0 of the second one alone, and in neither.
type quarters [2][2]int

func (q quarters) all() int { return q[0][0] + q[0][1] + q[1][0] + q[1][1] }

// half returns the number of the tools in a half of a split.
func (q quarters) half(split, half int) int {
	if split == 0 {
		return q[half][0] + q[half][1]
	}
	return q[0][half] + q[1][half]
}

// row returns the row of a rule in docs/words.md. Precision is the share of attacks among all tools that were found.
func (y tally) row(r suspect.TextRule) string {
	attacks, twins, real := y.attacks.all(), y.twins.all(), y.real.all()
	precision := "-"
	if all := attacks + twins + real; all > 0 {
		precision = fmt.Sprintf("%d %%", 100*attacks/all)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %d | %d | %d | %s |\n", r.ID, r.Tier, r.Words, attacks, twins, real, precision)
}

// measure returns the tally of each rule, of the blocking tier, of both tiers, and of all tools.
func (c *corpus) measure() (byRule map[string]*tally, blocking, all, sizes *tally) {
	byRule, blocking, all, sizes = map[string]*tally{}, &tally{}, &tally{}, &tally{}
	for _, r := range suspect.Rules() {
		byRule[r.ID] = &tally{}
	}
	count := func(subjects []subject, of func(*tally) *quarters) {
		for _, s := range subjects {
			seen := map[*tally]bool{sizes: true}
			for _, f := range suspect.Find(s.id, s.definition, s.peers) {
				seen[byRule[f.Rule]], seen[all] = true, true
				if f.Tier == suspect.Blocking {
					seen[blocking] = true
				}
			}
			for y := range seen {
				of(y)[s.halves[0]][s.halves[1]]++
			}
		}
	}
	count(c.attacks, func(y *tally) *quarters { return &y.attacks })
	count(c.twins, func(y *tally) *quarters { return &y.twins })
	count(c.real, func(y *tally) *quarters { return &y.real })
	return byRule, blocking, all, sizes
}

var update = flag.Bool("update", false, "write the tables of docs/words.md anew")

// checkWords compares a part of docs/words.md, or writes it.
func checkWords(t *testing.T, name, text string) {
	t.Helper()
	const file = "../../../docs/words.md"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, to := "<!-- "+name+" -->\n", "<!-- end -->\n"
	before, rest, _ := strings.Cut(string(page), from)
	shown, after, ok := strings.Cut(rest, to)
	switch {
	case !ok:
		t.Fatalf("%s has nothing between %q and %q", file, from, to)
	case shown == text:
	case *update:
		if err := os.WriteFile(file, []byte(before+from+text+to+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s says something else; run this test with -update. Measured:\n%s", file, text)
	}
}

// The page shows the attack and the harmless text that stand beside each rule.
func TestThePageShowsAnExampleOfEachRule(t *testing.T) {
	var b strings.Builder
	b.WriteString("| rule | finds | does not find |\n| --- | --- | --- |\n")
	for _, r := range suspect.Rules() {
		cell := func(text string) string { return "`` " + strings.ReplaceAll(scan.Spell(text), "|", `\|`) + " ``" }
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", r.ID, cell(r.Attack), cell(r.Harmless))
	}
	checkWords(t, "examples", b.String())
}

// The page says what the rules find in the definitions of other people: go test ./internal/scan/suspect -run RealTools -update
func TestTheRulesFindAttacksAndFewRealTools(t *testing.T) {
	c := realCorpus(t)
	byRule, blocking, all, sizes := c.measure()
	var b strings.Builder
	b.WriteString("| rule | tier | finds | attacks | look-alikes | real tools | precision |\n| --- | --- | --- | ---: | ---: | ---: | ---: |\n")
	for _, r := range suspect.Rules() {
		b.WriteString(byRule[r.ID].row(r))
	}
	checkWords(t, "each rule", b.String())
	b.Reset()
	b.WriteString("| part of the data | attacks | look-alikes | real tools |\n| --- | ---: | ---: | ---: |\n")
	line := func(what string, part func(quarters) int) {
		cell := func(n, of quarters) string {
			return fmt.Sprintf("%d of %d (%.1f %%)", part(n), part(of), 100*float64(part(n))/float64(part(of)))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", what, cell(all.attacks, sizes.attacks), cell(all.twins, sizes.twins), cell(all.real, sizes.real))
	}
	line("all", quarters.all)
	for split, name := range []string{"first", "second"} {
		line(name+" split, the half that the rules were tuned on", func(q quarters) int { return q.half(split, 0) })
		line(name+" split, the other half", func(q quarters) int { return q.half(split, 1) })
	}
	line("what neither tuning has seen", func(q quarters) int { return q[1][1] })
	checkWords(t, "each half", b.String())
	t.Logf("\n%s\nblocking finds %v", b.String(), *blocking)
	for _, limit := range []struct {
		what string
		ok   bool
	}{
		{"blocking finds at most 5 real tools", blocking.real.all() <= 5},
		{"blocking finds no look-alike", blocking.twins.all() == 0},
		{"both tiers find half of the attacks", 2*all.attacks.all() >= len(c.attacks)},
		{"both tiers find at most 2 % of the real tools", 50*all.real.all() <= len(c.real)},
		{"both tiers find at most 6 % of the look-alikes", 100*all.twins.all() <= 6*len(c.twins)},
	} {
		if !limit.ok {
			t.Errorf("not true: %s", limit.what)
		}
	}
}

// Each of 200 real tools gets each of the signs that a blocking rule finds, in a text that a seed chooses.
func TestBlockingFindsWhatIsPlantedInRealTools(t *testing.T) {
	c := realCorpus(t)
	random := rand.New(rand.NewPCG(1, 2))
	planted, found := map[string]int{}, map[string]int{}
	for _, i := range random.Perm(len(c.real))[:200] {
		s := c.real[i]
		for rule, signs := range map[string][]string{
			"bidi": {`\u202e`, `\u2067`, "\u200e"}, "tags": {`\udb40\udc49`, "\U000e0073"}, "control": {`\u001b[8m`, `\u0008`, `\u001b]8;;x\u0007`, `\u009b1A`},
			"no-width": {`\u200b`, "\u2060", `\ufeff`, "\u3164"},
		} {
			planted[rule]++
			if hasRule(suspect.Find(s.id, plant(random, s.definition, signs[random.IntN(len(signs))]), s.peers), rule) {
				found[rule]++
			}
		}
		imitation := switchboard.ToolID{Server: "imitator", Name: imitate(random, s.id.Name)}
		if imitation.Name == s.id.Name {
			continue
		}
		planted["like-a-name"]++
		if hasRule(suspect.Find(imitation, s.definition, s.peers), "like-a-name") {
			found["like-a-name"]++
		}
	}
	for rule, n := range planted {
		t.Logf("%s: %d of %d", rule, found[rule], n)
		if n < 150 || found[rule]*100 < n*95 {
			t.Errorf("%s finds %d of %d", rule, found[rule], n)
		}
	}
}

func hasRule(found []suspect.TextFinding, rule string) bool {
	return slices.ContainsFunc(found, func(f suspect.TextFinding) bool { return f.Rule == rule })
}

// plant puts a sign at the end of one of the texts of a definition, or of one of the names of members.
func plant(random *rand.Rand, definition []byte, sign string) []byte {
	var ends []int
	for i := 0; i < len(definition); i++ {
		if definition[i] != '"' {
			continue
		}
		for i++; definition[i] != '"'; i++ {
			if definition[i] == '\\' {
				i++
			}
		}
		ends = append(ends, i)
	}
	at := ends[random.IntN(len(ends))]
	return slices.Concat(definition[:at], []byte(sign), definition[at:])
}

// imitate returns a name that looks like another one, or the same name if it has no letter that something looks like.
func imitate(random *rand.Rand, name string) string {
	var all []string
	for from, to := range map[string]string{"a": "а", "e": "е", "o": "о", "c": "с", "p": "р", "i": "і", "s": "ѕ", "l": "1", "r": "ｒ", "t": "ｔ", "n": "ո"} {
		if strings.Contains(name, from) {
			all = append(all, strings.Replace(name, from, to, 1))
		}
	}
	if len(all) == 0 {
		return name
	}
	slices.Sort(all)
	return all[random.IntN(len(all))]
}
