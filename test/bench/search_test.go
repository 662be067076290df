package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// The tasks that are held out are not looked at here: a test that fails is a
// reason to work on it.
func TestSearchFindsTheToolsThatSolveTasks(t *testing.T) {
	d, err := readSearchData(realdata.File())
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the tasks and tools of others are not here (SWITCHBOARD_DATA says where): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	everywhere := d.ids(nil)
	plainAll, oursAll := d.plain(everywhere), d.ours(everywhere)
	for i, goals := range searchSets {
		s := &d.sets[i]
		own := d.ids(s.servers)
		few := &taskSet{name: s.name} // among all it takes long; make bench takes every task
		for i := 0; i < len(s.tasks); i += 1 + len(s.tasks)/200 {
			few.tasks = append(few.tasks, s.tasks[i])
		}
		plainOwn, oursOwn, long := d.plain(own), d.ours(own), s.long()
		for _, x := range []struct {
			where       string
			tasks       *taskSet
			plain, ours finder
			least       float64
		}{
			{"own", s, plainOwn, oursOwn, goals.tasks.own},
			{"all", few, plainAll, oursAll, goals.tasks.all},
			{"own", long, plainOwn, oursOwn, goals.long.own},
			{"all", long, plainAll, oursAll, goals.long.all},
		} {
			before, _ := x.tasks.recall(x.plain, false)
			now, n := x.tasks.recall(x.ours, false)
			if n == 0 || now[1] < x.least || now[1] < before[1] {
				t.Errorf("%s, %s tools: %.1f %% of %d tasks are found in the first 5, want %.0f %%; plain BM25 finds %.1f %%", x.tasks.name, x.where, now[1], n, x.least, before[1])
			}
		}
	}
}

func TestATaskIsSolvedWhenEachOfItsGroupsIs(t *testing.T) {
	var task searchTask
	if err := json.Unmarshal([]byte(`{"gold":[{"server":"a","tool":"x","group":0},{"server":"a","tool":"y","group":0},{"server":"b","tool":"z","group":1}]}`), &task); err != nil {
		t.Fatal(err)
	}
	x, y, z := switchboard.ToolID{Server: "a", Name: "x"}, switchboard.ToolID{Server: "a", Name: "y"}, switchboard.ToolID{Server: "b", Name: "z"}
	for _, c := range []struct {
		found []switchboard.ToolID
		want  bool
	}{
		{nil, false},
		{[]switchboard.ToolID{x, y}, false},
		{[]switchboard.ToolID{z}, false},
		{[]switchboard.ToolID{z, y}, true},
		{[]switchboard.ToolID{{Server: "b", Name: "x"}, z}, false},
	} {
		if got := task.solved(c.found); got != c.want {
			t.Errorf("%v: %t", c.found, got)
		}
	}
}

func TestALongRequestNeedsWhatEachOfItsTasksNeeds(t *testing.T) {
	var set taskSet
	many := strings.TrimSpace(strings.Repeat("word ", longWords))
	for i, text := range []string{"few words", many, "not long", many} {
		task := searchTask{heldOut: i == 3}
		gold := fmt.Sprintf(`{"text":%q,"gold":[{"server":"s%d","tool":"x","group":0},{"server":"s%[2]d","tool":"y","group":0}]}`, text, i)
		if err := json.Unmarshal([]byte(gold), &task); err != nil {
			t.Fatal(err)
		}
		set.tasks = append(set.tasks, task)
	}
	long := set.long()
	if len(long.tasks) != 1 {
		t.Fatalf("there are %d long requests, want the first two tasks as one", len(long.tasks))
	}
	one, other := switchboard.ToolID{Server: "s0", Name: "x"}, switchboard.ToolID{Server: "s1", Name: "y"}
	if r := long.tasks[0]; r.solved([]switchboard.ToolID{one}) || r.solved([]switchboard.ToolID{other}) || !r.solved([]switchboard.ToolID{one, other}) {
		t.Errorf("%+v is not solved by a tool for each of its tasks", r)
	}
}
