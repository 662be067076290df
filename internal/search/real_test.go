package search

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"reflect"
	"sync"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/law"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// readReal reads the tools of the catalog of real servers, if it exists.
var readReal = sync.OnceValues(func() ([]switchboard.Tool, error) {
	servers, err := realdata.Servers()
	var all []switchboard.Tool
	for _, s := range servers {
		for _, raw := range s.Tools {
			var t struct{ Name string }
			if err := json.Unmarshal(raw, &t); err != nil {
				return nil, err
			}
			all = append(all, switchboard.Tool{ID: switchboard.ToolID{Server: switchboard.ServerID(s.ID), Name: t.Name}, Definition: raw})
		}
	}
	return all, err
})

func realTools(t testing.TB) []switchboard.Tool {
	t.Helper()
	tools, err := readReal()
	if os.IsNotExist(err) {
		t.Skipf("the catalog of real servers is not here (SWITCHBOARD_DATA says where): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

func analyse(tools []switchboard.Tool) []*Doc {
	docs := make([]*Doc, len(tools))
	for i := range tools {
		docs[i] = Analyse(tools[i].ID, tools[i].Definition)
	}
	return docs
}

var questions = []string{
	"list the open issues of a repository", "read a file", "What is the weather in Paris tomorrow?", "send_message",
	"take a screenshot of the page that is open now and save it as an image", "run a SQL query against the database", "s3",
}

func TestRealToolsAreFoundInTheSameOrderForAnyOrderOfTools(t *testing.T) {
	law.Hold(t, law.Deterministic)
	docs := analyse(realTools(t))
	x := New(docs)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
	y := New(docs)
	for _, q := range questions {
		if a, b := x.Search(q, 50), y.Search(q, 50); len(a) < 20 || !reflect.DeepEqual(a, b) {
			t.Errorf("%q finds %v, and shuffled %v", q, a, b)
		}
	}
}

// A query with a tool's name finds that tool first. Two servers may have a tool
// with that name.
func TestARealToolIsFirstUnderItsOwnName(t *testing.T) {
	tools := realTools(t)
	x := New(analyse(tools))
	for i := 0; i < len(tools); i += 40 {
		id := tools[i].ID
		if got := x.Search(id.String(), 1); nameKey(id.Name) != "" && (len(got) == 0 || nameKey(got[0].ID.String()) != nameKey(id.String())) {
			t.Errorf("%s finds %v", id, got)
		}
		if got := x.Search(id.Name, 1); nameKey(id.Name) != "" && (len(got) == 0 || nameKey(got[0].ID.Name) != nameKey(id.Name)) {
			t.Errorf("%s finds %v", id.Name, got)
		}
	}
}

func BenchmarkAnalyse(b *testing.B) {
	tools := realTools(b)
	b.ReportAllocs()
	for b.Loop() {
		analyse(tools)
	}
}

func BenchmarkNew(b *testing.B) {
	docs := analyse(realTools(b))
	b.ReportAllocs()
	for b.Loop() {
		New(docs)
	}
}

func BenchmarkSearch(b *testing.B) {
	docs := analyse(realTools(b))
	for _, size := range []struct {
		name string
		n    int
	}{{"of=30", 30}, {"of=all", len(docs)}} {
		x := New(docs[:size.n])
		b.Run(size.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				x.Search(questions[i%len(questions)], 10)
			}
		})
	}
}
