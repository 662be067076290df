package suspect_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
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

// A tally counts the tools that were found.
type tally struct{ attacks, twins, real [2]int } // by half

func (t tally) sums() (attacks, twins, real int) {
	return t.attacks[0] + t.attacks[1], t.twins[0] + t.twins[1], t.real[0] + t.real[1]
}

// measure counts, for each rule and for both tiers, the tools that have a finding. verbose prints the findings of half 0.
func measure(t *testing.T, c *corpus) (byRule map[string]*tally, byTier [2]tally, all tally) {
	byRule = map[string]*tally{}
	for _, r := range suspect.Rules() {
		byRule[r.ID] = &tally{}
	}
	show := os.Getenv("SHOW")
	for kind, list := range map[string][]subject{"attacks": c.attacks, "twins": c.twins, "real": c.real} {
		of := func(t *tally) *[2]int {
			return map[string]*[2]int{"attacks": &t.attacks, "twins": &t.twins, "real": &t.real}[kind]
		}
		for _, s := range list {
			rules, tiers := map[string]bool{}, map[suspect.Tier]bool{}
			for _, f := range suspect.Find(s.id, s.definition, s.peers) {
				rules[f.Rule], tiers[f.Tier] = true, true
				if show == kind && s.half == 0 {
					fmt.Printf("%s %s %s: %s: %s: %s\n", kind, s.label, s.id, f.Rule, f.Where, f.Text)
				}
			}
			for r := range rules {
				of(byRule[r])[s.half]++
			}
			for tier := range tiers {
				of(&byTier[tier])[s.half]++
			}
			if len(rules) > 0 {
				of(&all)[s.half]++
			} else if show == "missed" && kind == "attacks" && s.half == 0 {
				fmt.Printf("missed %s %.300s\n", s.label, s.definition)
			}
		}
	}
	return byRule, byTier, all
}

func TestMeasured(t *testing.T) {
	c := realCorpus(t)
	byRule, byTier, all := measure(t, c)
	for _, r := range suspect.Rules() {
		t.Logf("%-15s %v", r.ID, *byRule[r.ID])
	}
	n := [2][3]int{}
	for i, l := range [][]subject{c.attacks, c.twins, c.real} {
		for _, s := range l {
			n[s.half][i]++
		}
	}
	t.Logf("tiers %v; all %v; of %v", byTier, all, n)
}
