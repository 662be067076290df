package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/summit-switchboard/switchboard/internal/search"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// plain is search as anybody would write it first; see plainIndex.
const plain = "plain BM25"

// A finder finds tools, the best first.
type finder func(query string, limit int) []switchboard.ToolID

// A taskSet is what others ask for in words, and which tools do it.
type taskSet struct {
	name    string
	tasks   []searchTask
	servers map[switchboard.ServerID]bool // those that solve any task: its own
}

type searchTask struct {
	ID   string `json:"task_id"`
	Text string `json:"text"`
	Gold []struct {
		Server switchboard.ServerID `json:"server"`
		Tool   string               `json:"tool"`
		Group  int                  `json:"group"`
	} `json:"gold"`

	heldOut bool
}

// isHeldOut reports whether the task of the id is held out: its SHA-256 is 0 modulo 5. Work on search must not look at these tasks.
func isHeldOut(id string) bool {
	sum := sha256.Sum256([]byte(id))
	return new(big.Int).Mod(new(big.Int).SetBytes(sum[:]), big.NewInt(5)).Sign() == 0
}

// solved reports whether every group of the task has a tool among those found.
func (t *searchTask) solved(found []switchboard.ToolID) bool {
	groups, met := map[int]bool{}, map[int]bool{}
	for _, g := range t.Gold {
		groups[g.Group] = true
		if slices.Contains(found, switchboard.ToolID{Server: g.Server, Name: g.Tool}) {
			met[g.Group] = true
		}
	}
	return len(met) == len(groups)
}

// A goal is the least recall at 5 that we hold ourselves to, in percent, among the set's own
// servers and among all; 0 means no less than plain.
type goal struct{ own, all float64 }

// searchSets are the files of tasks, and the goals for the tasks and for long requests.
var searchSets = []struct {
	file, name  string
	tasks, long goal
}{
	{"azure_e2e", "azure", goal{97, 94}, goal{70, 70}},
	{"mcpproxy_golden", "mcpproxy", goal{88, 0}, goal{}},
	{"mcptoolbenchpp", "mcptoolbench++", goal{}, goal{80, 0}},
}

// A long request has more words than longWords. The longest task has 45.
const longWords = 64

// long returns requests that are longer than any task: tasks that follow each other in the set
// and are not held out, joined until they have more than longWords words. A request is solved
// if each of its tasks is.
func (s *taskSet) long() *taskSet {
	joined := &taskSet{name: fmt.Sprintf("%s, joined to more than %d words", s.name, longWords), servers: s.servers}
	var request searchTask
	groups := 0
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.heldOut {
			continue
		}
		request.Text += t.Text + "\n"
		first := groups
		for _, g := range t.Gold {
			g.Group += first
			groups = max(groups, g.Group+1)
			request.Gold = append(request.Gold, g)
		}
		if len(strings.Fields(request.Text)) > longWords {
			joined.tasks = append(joined.tasks, request)
			request, groups = searchTask{}, 0
		}
	}
	return joined
}

// searchData is what others wrote: the tools of real servers, and tasks.
type searchData struct {
	tools map[switchboard.ToolID][]byte
	sets  []taskSet
}

// readSearchData reads it from the folder. The error is fs.ErrNotExist where it is
// not there.
func readSearchData(dir string) (*searchData, error) {
	d := &searchData{tools: map[switchboard.ToolID][]byte{}}
	err := realdata.Lines(filepath.Join(dir, "catalog", "servers.jsonl.gz"), func(line []byte) error { return d.addServer("", line) })
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "search", "tools", "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := d.addServer(strings.TrimSuffix(filepath.Base(file), ".json"), text); err != nil {
			return nil, err
		}
	}
	for _, s := range searchSets {
		set := taskSet{name: s.name, servers: map[switchboard.ServerID]bool{}}
		err := realdata.Lines(filepath.Join(dir, "search", s.file+".jsonl"), func(line []byte) error {
			var t searchTask
			if err := json.Unmarshal(line, &t); err != nil {
				return err
			}
			for _, g := range t.Gold {
				set.servers[g.Server] = true
			}
			t.heldOut = isHeldOut(t.ID)
			set.tasks = append(set.tasks, t)
			return nil
		})
		if err != nil {
			return nil, err
		}
		d.sets = append(d.sets, set)
	}
	return d, nil
}

// addServer takes in one server; where it has no id itself, id is it.
func (d *searchData) addServer(id string, text []byte) error {
	var s struct {
		ID    string            `json:"id"`
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, raw := range s.Tools {
		var t struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(raw, &t); err != nil {
			return err
		}
		d.tools[switchboard.ToolID{Server: switchboard.ServerID(cmp.Or(s.ID, id)), Name: t.Name}] = bytes.Clone(raw)
	}
	return nil
}

// ids returns the ids of these servers' tools; nil means all servers.
func (d *searchData) ids(servers map[switchboard.ServerID]bool) (ids []switchboard.ToolID) {
	for id := range d.tools {
		if servers == nil || servers[id.Server] {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, switchboard.ToolID.Compare)
	return ids
}

// ours is Switchboard's own search among these tools.
func (d *searchData) ours(ids []switchboard.ToolID) finder {
	docs := make([]*search.Doc, len(ids))
	for i, id := range ids {
		docs[i] = search.Analyse(id, d.tools[id])
	}
	x := search.New(docs)
	return func(query string, limit int) (found []switchboard.ToolID) {
		for _, m := range x.Search(query, limit) {
			found = append(found, m.ID)
		}
		return found
	}
}

// plain is BM25 (k1 = 1.2, b = 0.75) over name and description as one text,
// without stems, weights or anything else. Words are runs of letters and digits
// in lower case, parted where a capital follows a small letter.
func (d *searchData) plain(ids []switchboard.ToolID) finder {
	type posting struct{ doc, times int }
	postings := map[string][]posting{}
	lengths, total := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		var t struct {
			Description string `json:"description"`
		}
		_ = json.Unmarshal(d.tools[id], &t) // one that is no string is none
		for _, w := range plainWords(id.Name + " " + t.Description) {
			lengths[i]++
			if p := postings[w]; len(p) > 0 && p[len(p)-1].doc == i {
				p[len(p)-1].times++
			} else {
				postings[w] = append(p, posting{i, 1})
			}
		}
		total += lengths[i]
	}
	mean := total / float64(len(ids))
	return func(query string, limit int) (found []switchboard.ToolID) {
		scores := make([]float64, len(ids))
		for _, w := range plainWords(query) {
			n := float64(len(postings[w]))
			idf := math.Log(1 + (float64(len(ids))-n+0.5)/(n+0.5))
			for _, p := range postings[w] {
				tf := float64(p.times)
				scores[p.doc] += idf * tf * 2.2 / (tf + 1.2*(0.25+0.75*lengths[p.doc]/mean))
			}
		}
		var best []int
		for i, s := range scores {
			if s > 0 {
				best = append(best, i)
			}
		}
		slices.SortStableFunc(best, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
		for _, i := range best[:min(limit, len(best))] {
			found = append(found, ids[i])
		}
		return found
	}
}

func plainWords(text string) []string {
	var parted strings.Builder
	small := false
	for _, c := range text {
		if small && unicode.IsUpper(c) {
			parted.WriteByte(' ')
		}
		small = unicode.IsLower(c) || unicode.IsDigit(c)
		parted.WriteRune(unicode.ToLower(c))
	}
	return strings.FieldsFunc(parted.String(), func(c rune) bool { return !unicode.IsLetter(c) && !unicode.IsDigit(c) })
}

// depths are how many of the first matches are looked at.
var depths = []int{1, 5, 10}

// recall is the share of the tasks that are solved at each depth, in percent. Those
// that are held out are looked at apart.
func (s *taskSet) recall(find finder, heldOut bool) (percent []float64, tasks int) {
	percent = make([]float64, len(depths))
	for i := range s.tasks {
		t := &s.tasks[i]
		if t.heldOut != heldOut {
			continue
		}
		tasks++
		found := find(t.Text, depths[len(depths)-1])
		for j, k := range depths {
			if t.solved(found[:min(k, len(found))]) {
				percent[j]++
			}
		}
	}
	for j := range percent {
		percent[j] *= 100 / float64(max(tasks, 1))
	}
	return percent, tasks
}

// search measures whether the tools that solve a task are found by its words, and
// what that costs.
func (b *bench) search(ctx context.Context, _ string) error {
	dir := realdata.File()
	d, err := readSearchData(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b.log, "bench: search: SKIPPED, for the tasks and tools of others are not here (SWITCHBOARD_DATA says where): %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	all := d.ids(nil)
	everywhere := map[string]finder{plain: d.plain(all), ours: d.ours(all)}
	for i := range d.sets {
		s := &d.sets[i]
		own := d.ids(s.servers)
		inOwn := map[string]finder{plain: d.plain(own), ours: d.ours(own)}
		for _, heldOut := range []bool{false, true} {
			b.found(s, fmt.Sprintf("own %d tools", len(own)), inOwn, heldOut, searchSets[i].tasks.own)
			b.found(s, fmt.Sprintf("all %d tools", len(all)), everywhere, heldOut, searchSets[i].tasks.all)
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
		long := s.long()
		b.found(long, fmt.Sprintf("own %d tools", len(own)), inOwn, false, searchSets[i].long.own)
		b.found(long, fmt.Sprintf("all %d tools", len(all)), everywhere, false, searchSets[i].long.all)
	}
	return b.searchCosts(ctx, d, all)
}

// found records the tasks of one set that search finds. Held-out tasks have no limit, because meeting a limit would be work on them.
func (b *bench) found(s *taskSet, where string, by map[string]finder, heldOut bool, least float64) {
	var figures []*figure
	for _, name := range []string{plain, ours} {
		percent, tasks := s.recall(by[name], heldOut)
		for j, k := range depths {
			if name == plain {
				what := fmt.Sprintf("recall@%d, %s, %s of %s", k, where, plural(tasks, "task"), s.name)
				if heldOut {
					what += ", HELD OUT"
				}
				figures = append(figures, b.figure(what, "%"))
			}
			figures[j].see(name, percent[j])
		}
	}
	switch at5 := figures[slices.Index(depths, 5)]; {
	case heldOut:
	case least > 0:
		at5.judge("sb", func(at at) float64 { return at(ours) }).atLeast(least)
	default:
		at5.judge("sb less plain", func(at at) float64 { return at(ours) - at(plain) }).atLeast(0)
	}
}

// searchCosts measures, round by round, an index of all tools that is made from
// nothing, and every query that there is on it.
func (b *bench) searchCosts(ctx context.Context, d *searchData, all []switchboard.ToolID) error {
	is := func(at at) float64 { return at(ours) }
	what := fmt.Sprintf(", %d tools", len(all))
	build := b.figure("time to analyse and index"+what, "s").judge("sb", is).atMost(2)
	held := b.figure("memory of the index and what it is made of"+what, "MiB").judge("sb", is).atMost(64)
	p50 := b.figure("p50 of a search"+what, "µs").judge("sb", is).atMost(2000)
	p99 := b.figure("p99 of a search"+what, "µs")
	for range b.rounds {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := heap()
		began := time.Now()
		find := d.ours(all)
		build.see(ours, time.Since(began).Seconds())
		held.see(ours, (heap()-before)/(1<<20))
		var took []time.Duration
		for i := range d.sets {
			for _, t := range d.sets[i].tasks {
				began := time.Now()
				find(t.Text, 10)
				took = append(took, time.Since(began))
			}
		}
		slices.Sort(took)
		p50.see(ours, micro(took[len(took)/2]))
		p99.see(ours, micro(took[len(took)*99/100]))
	}
	return nil
}

// heap is what lives, in bytes.
func heap() float64 {
	runtime.GC()
	runtime.GC() // words that nobody uses any more go with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
