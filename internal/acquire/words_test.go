package acquire

import (
	"encoding/json"
	"flag"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/registry"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

var every = flag.Int("every", 9, "measure the worth of words on each server of this number; 1 is all")

// The worth of words is measured on real servers that describe themselves: how many of those whose words name a capability have a tool with it.
func TestTheWordsOfServersAreWorthWhatIsSaid(t *testing.T) {
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen, servers, named, has := 0, 0, map[int]int{}, map[int]int{}
	err = realdata.Lines(realdata.File("catalog", "servers.jsonl.gz"), func(line []byte) error {
		var s struct {
			Name, Display, Description string
			Tools                      []json.RawMessage
		}
		if err := json.Unmarshal(line, &s); err != nil || s.Description == "" {
			return err
		}
		if seen++; seen%*every != 0 {
			return nil
		}
		servers++
		given := map[switchboard.Verb]map[switchboard.Resource]bool{}
		for _, l := range labelsOf(t, s.Name, s.Tools, tax) {
			if given[l.Verb] == nil {
				given[l.Verb] = map[switchboard.Resource]bool{}
			}
			given[l.Verb][l.Resource] = true
		}
		e := registry.Entry{Name: "io.github.x/" + s.Name, Title: s.Display, Description: s.Description}
		for _, verb := range switchboard.Verbs {
			for _, resource := range switchboard.BuiltinResources {
				c, ok := (&CatalogResearcher{}).rate(&e, &switchboard.Requirement{Verb: verb, Resource: resource}, tax)
				if !ok {
					continue
				}
				if named[c.Confidence]++; given[verb][resource] {
					has[c.Confidence]++
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Skipf("skipped: the worth of words (the data of real servers is absent: %v)", err)
	}
	for _, worth := range []int{worthOfBoth, worthOfResource} {
		got := 100 * has[worth] / max(named[worth], 1)
		t.Logf("of %d servers, words worth %d were said %d times, and were true %d times: %d %%", servers, worth, named[worth], has[worth], got)
		if named[worth] < 20 || got < worth-10 || got > worth+10 {
			t.Errorf("words said to be worth %d are worth %d", worth, got)
		}
	}
}

// labelsOf returns the labels of a server's tools that are at least as sure as a gate demands.
func labelsOf(t *testing.T, server string, tools []json.RawMessage, tax *switchboard.Taxonomy) (labels []annotate.Label) {
	t.Helper()
	defined := make([]annotate.DefinedTool, len(tools))
	for i, raw := range tools {
		var named struct{ Name string }
		if err := json.Unmarshal(raw, &named); err != nil {
			t.Fatal(err)
		}
		defined[i] = annotate.DefinedTool{Name: named.Name, Definition: raw}
	}
	for _, s := range annotate.Suggest(annotate.ToolServer{Name: server, Tools: defined}, tax) {
		if s.Capability != nil && s.Confidence >= minConfidence {
			labels = append(labels, *s.Capability)
		}
	}
	return labels
}
