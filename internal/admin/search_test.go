package admin

import (
	"fmt"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestTheSearchIndexIsBuiltAgainWhenTheCatalogChanges(t *testing.T) {
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	with := func(names ...string) *catalog.Snapshot {
		o := switchboard.Offer{Server: "a", Tools: [][]byte{}}
		for _, name := range names {
			o.Tools = append(o.Tools, fmt.Appendf(nil, `{"name":%q,"inputSchema":{"type":"object"}}`, name))
		}
		return catalog.Build([]catalog.Source{{Offer: o}}, nil, tax)
	}
	var e toolSearch
	before, after := with("read_file", "old_tool"), with("read_file", "new_tool")
	if first := e.index(before); e.index(before) != first {
		t.Error("the same catalog was indexed twice")
	}
	for _, c := range []struct {
		of    *catalog.Snapshot
		query string
		want  int
	}{{before, "old", 1}, {before, "new", 0}, {after, "old", 0}, {after, "new", 1}} {
		if got := e.index(c.of).Search(c.query, 10); len(got) != c.want {
			t.Errorf("%q finds %v", c.query, got)
		}
	}
}
