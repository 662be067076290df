package suspect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

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
	half       uint32 // the rules were tuned on half 0 alone
}

// The data of other people: tools that attack, tools that look alike and are harmless, and the tools of real servers.
type corpus struct{ attacks, twins, real []subject }

var readCorpus = sync.OnceValues(func() (*corpus, error) {
	c := &corpus{}
	servers, err := realdata.Servers()
	if err != nil {
		return nil, err
	}
	var ids []switchboard.ToolID
	for _, s := range servers {
		for _, t := range s.Tools {
			var named struct{ Name string }
			if err := json.Unmarshal(t, &named); err != nil {
				return nil, err
			}
			id := switchboard.ToolID{Server: switchboard.ServerID(s.ID), Name: named.Name}
			ids = append(ids, id)
			c.real = append(c.real, subject{id: id, definition: t, half: half(s.ID + named.Name)})
		}
	}
	peers := suspect.NewPeers(ids)
	for i := range c.real {
		c.real[i].peers = peers
	}
	if c.attacks, err = readPoison("positives.jsonl"); err != nil {
		return nil, err
	}
	c.twins, err = readPoison("hard_negatives.jsonl")
	return c, err
})

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
				Tool   struct{ Name string }
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
		s := subject{id: switchboard.ToolID{Server: "subject"}, label: row.Set + " " + row.ID, half: half(row.ID)}
		if err := json.Unmarshal(row.Tool["name"], &s.id.Name); err != nil {
			return err
		}
		var peers []switchboard.ToolID
		for _, p := range row.Peers {
			peers = append(peers, switchboard.ToolID{Server: p.Server, Name: p.Tool.Name})
		}
		s.peers = suspect.NewPeers(append(peers, s.id))
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

func half(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32() >> 7 % 2
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

// A tally counts the tools that have a finding, by half.
type tally struct{ attacks, twins, real [2]int }

func both(n [2]int) int { return n[0] + n[1] }

// row returns the row of a rule in docs/servers.md. Precision is the share of attacks among all tools that were found.
func (y tally) row(r suspect.TextRule) string {
	attacks, twins, real := both(y.attacks), both(y.twins), both(y.real)
	precision := "-"
	if all := attacks + twins + real; all > 0 {
		precision = fmt.Sprintf("%d %%", 100*attacks/all)
	}
	return fmt.Sprintf("| `%s` | %s | %s | %d | %d | %d | %s |", r.ID, r.Tier, r.Words, attacks, twins, real, precision)
}

// measure returns the tally of each rule, of the blocking tier, and of both tiers.
func (c *corpus) measure() (byRule map[string]*tally, blocking, all *tally) {
	byRule, blocking, all = map[string]*tally{}, &tally{}, &tally{}
	for _, r := range suspect.Rules() {
		byRule[r.ID] = &tally{}
	}
	count := func(subjects []subject, of func(*tally) *[2]int) {
		for _, s := range subjects {
			seen := map[*tally]bool{}
			for _, f := range suspect.Find(s.id, s.definition, s.peers) {
				seen[byRule[f.Rule]], seen[all] = true, true
				if f.Tier == suspect.Blocking {
					seen[blocking] = true
				}
			}
			for y := range seen {
				of(y)[s.half]++
			}
		}
	}
	count(c.attacks, func(y *tally) *[2]int { return &y.attacks })
	count(c.twins, func(y *tally) *[2]int { return &y.twins })
	count(c.real, func(y *tally) *[2]int { return &y.real })
	return byRule, blocking, all
}

// go test ./internal/scan/suspect -run RealTools -v prints the table of docs/servers.md.
func TestTheRulesFindAttacksAndFewRealTools(t *testing.T) {
	c := realCorpus(t)
	byRule, blocking, all := c.measure()
	doc, err := os.ReadFile("../../../docs/servers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range suspect.Rules() {
		row := byRule[r.ID].row(r)
		t.Log(row)
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/servers.md does not have the row %s", row)
		}
	}
	var sizes tally
	for kind, subjects := range map[*[2]int][]subject{&sizes.attacks: c.attacks, &sizes.twins: c.twins, &sizes.real: c.real} {
		for _, s := range subjects {
			kind[s.half]++
		}
	}
	t.Logf("by half: both tiers find %v of %v; blocking finds %v", *all, sizes, *blocking)
	said := fmt.Sprintf("%d of %d attacks, in %d of %d harmless look-alikes, and in %d of %d real tools", both(all.attacks), len(c.attacks), both(all.twins), len(c.twins), both(all.real), len(c.real))
	heldOut := fmt.Sprintf("%d of %d, %d of %d and %d of %d", all.attacks[1], sizes.attacks[1], all.twins[1], sizes.twins[1], all.real[1], sizes.real[1])
	for _, s := range []string{said, heldOut} {
		if !strings.Contains(string(doc), s) {
			t.Errorf("docs/servers.md does not say %q", s)
		}
	}
	for _, limit := range []struct {
		what string
		ok   bool
	}{
		{"blocking finds at most 5 real tools", both(blocking.real) <= 5},
		{"blocking finds no look-alike", both(blocking.twins) == 0},
		{"both tiers find half of the attacks", 2*both(all.attacks) >= len(c.attacks)},
		{"both tiers find at most 2 % of the real tools", 50*both(all.real) <= len(c.real)},
		{"both tiers find at most 6 % of the look-alikes", 100*both(all.twins) <= 6*len(c.twins)},
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
