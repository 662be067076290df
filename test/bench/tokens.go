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
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/lazyexpand"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/token"
	"github.com/summit-switchboard/switchboard/test/realdata"
)

// A realServer is one of the catalog's, with the definitions that it gives.
type realServer struct {
	ID    string            `json:"id"`
	Tools []json.RawMessage `json:"tools"`
}

// A person has so many servers, and some tools, give or take what is tolerated.
const (
	personServers = 20
	personTools   = 300
	tolerated     = 10
)

// person returns the servers of somebody who uses many: in the order of the SHA-256 of
// their ids, which nobody has chosen, the first so many that follow on each other and
// have about as many tools as they should.
func person(all []realServer) ([]realServer, error) {
	all = slices.Clone(all)
	slices.SortFunc(all, func(x, y realServer) int {
		a, b := sha256.Sum256([]byte(x.ID)), sha256.Sum256([]byte(y.ID))
		return slices.Compare(a[:], b[:])
	})
	for i := range len(all) - personServers + 1 {
		has, n := all[i:i+personServers], 0
		for _, s := range has {
			n += len(s.Tools)
		}
		if n >= personTools-tolerated && n <= personTools+tolerated {
			return has, nil
		}
	}
	return nil, fmt.Errorf("no %d servers of the catalog have about %d tools", personServers, personTools)
}

// readPerson reads them. The error is fs.ErrNotExist where the catalog is not there.
func readPerson(dir string) ([]realServer, error) {
	text, err := os.ReadFile(filepath.Join(dir, "catalog", "subset.json"))
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer // as servers write it
	if err := json.Compact(&compact, text); err != nil {
		return nil, err
	}
	var all []realServer
	if err := json.Unmarshal(compact.Bytes(), &all); err != nil {
		return nil, err
	}
	return person(all)
}

// named gives each server an id as somebody would: the end of its name.
func named(servers []realServer) (ids []string) {
	for _, s := range servers {
		_, name, _ := strings.Cut(s.ID, "__")
		words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
		id := ""
		for _, w := range words {
			if len(id)+1+len(w) > switchboard.MaxIDBytes {
				break
			}
			id = strings.Trim(id+"-"+w, "-")
		}
		if id = cmp.Or(id, "server"); slices.Contains(ids, id) {
			id = fmt.Sprintf("%s-%d", strings.TrimRight(id[:min(len(id), 28)], "-"), len(ids))
		}
		ids = append(ids, id)
	}
	return ids
}

// whole is Switchboard with a budget in which every definition has room.
const whole = "full listing"

// uses are how often tools are used in a task.
var uses = []int{1, 3, 5}

// tokens measures what a person with real servers pays for their tools, counted over
// the bytes that a client receives: with the first list, and over whole tasks, where
// all is listed and where one stub stands for all.
func (b *bench) tokens(ctx context.Context, era string) error {
	dir := realdata.File()
	servers, err := readPerson(dir)
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(b.log, "bench: tokens: SKIPPED, for the tools of real servers are not here (SWITCHBOARD_DATA says where): %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	counter, err := token.New(switchboard.Tokenizers[0])
	if err != nil {
		return err
	}
	tools := 0
	for _, s := range servers {
		tools += len(s.Tools)
	}
	share := func(at at) float64 { return 100 * at(ours) / at(whole) }
	first := b.figure(fmt.Sprintf("first list, %s, %s, %d tools", era, plural(len(servers), "server"), tools), "tokens").judge("sb/full listing in %", share).atMost(3)
	tasks := make([][2]*figure, len(uses))
	for i, k := range uses {
		for j, how := range []string{"called through the stub", "expanded, called by name"} {
			f := b.figure(fmt.Sprintf("%s, %s, found and %s", plural(k, "use"), era, how), "tokens")
			if tasks[i][j] = f; k == 5 {
				f.judge("sb/full listing in %", share).atMost(10)
			}
		}
	}
	for _, name := range []string{whole, ours} {
		budget := switchboard.DefaultTokenBudget
		if name == whole {
			budget = 10_000_000
		}
		p, err := b.person(ctx, era, servers, budget)
		if err != nil {
			return err
		}
		defer p.stop()
		at, err := url.Parse(p.address)
		if err != nil {
			return err
		}
		for j := range 2 {
			c := reader{newClient(endpoint{era: era, url: at}, "tokens"), counter}
			defer c.end()
			if err := c.open(); err != nil {
				return err
			}
			cost, listed, err := c.list()
			if err != nil {
				return err
			}
			if name == whole && listed != tools {
				return fmt.Errorf("%w: %d of %d tools are listed", errWrong, listed, tools)
			}
			if j == 0 {
				first.see(name, float64(cost))
			}
			for k := 1; k <= slices.Max(uses); k++ {
				if name == ours {
					more, err := c.use(servers, k, j == 1)
					if err != nil {
						return err
					}
					cost += more
				}
				if i := slices.Index(uses, k); i >= 0 {
					tasks[i][j].see(name, float64(cost))
				}
			}
		}
	}
	return nil
}

// person starts a switchboard before the servers, with nothing else configured but
// the budget.
func (b *bench) person(ctx context.Context, era string, servers []realServer, budget int) (*process, error) {
	lists, err := os.MkdirTemp(b.dir, "")
	if err != nil {
		return nil, err
	}
	file, ids := fmt.Sprintf("token_budget: %d\nservers:\n", budget), named(servers)
	for i, s := range servers {
		text := []byte("[")
		for j, t := range s.Tools {
			if j > 0 {
				text = append(text, ',')
			}
			text = append(text, t...)
		}
		text = append(text, ']')
		list := filepath.Join(lists, ids[i]+".json")
		if err := os.WriteFile(list, text, 0o600); err != nil {
			return nil, err
		}
		command := quoted([]string{b.self, "backend", "-era", era, "-stdio", "-list", list})
		file += fmt.Sprintf("  %s: {transport: stdio, command: [%s]}\n", ids[i], strings.Join(command, ", "))
	}
	return b.serve(ctx, ours, map[string]string{"switchboard.yaml": file})
}

// A reader is a client that counts the tokens of its lists and answers.
type reader struct {
	*client
	counter *token.Counter
}

// list returns what the list costs, and how many tools it has.
func (c *reader) list() (cost, tools int, err error) {
	listed, err := c.definitions()
	for _, t := range listed {
		cost += c.counter.Count(t)
	}
	return cost, len(listed), err
}

// help calls the stub, and returns its answer and the tokens of question and answer.
func (c *reader) help(args map[string]any) (text string, cost int, err error) {
	question, err := json.Marshal(args)
	if err != nil {
		return "", 0, err
	}
	if _, err := c.ask("tools/call", lazyexpand.FoldStub, `"name":"`+lazyexpand.FoldStub+`","arguments":`+string(question)); err != nil {
		return "", 0, err
	}
	var m struct {
		Result struct {
			IsError bool `json:"isError"`
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err := json.Unmarshal(c.message, &m); err != nil || len(m.Result.Content) == 0 || m.Result.IsError {
		return "", 0, fmt.Errorf("%w: %s was answered with %.300s", errWrong, question, c.message)
	}
	text = m.Result.Content[0].Text
	return text, c.counter.Count([]byte(text)) + c.counter.Count(question), nil
}

// use finds a tool by the words of its name and uses it, and returns what that costs
// beside the tool's own result, which everybody pays. What is found first is taken,
// right or not.
func (c *reader) use(servers []realServer, k int, expand bool) (cost int, err error) {
	s := &servers[k*3%len(servers)]
	var tool struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(s.Tools[k%len(s.Tools)], &tool); err != nil {
		return 0, err
	}
	query := strings.NewReplacer("_", " ", "-", " ", ".", " ").Replace(tool.Name)
	found, cost, err := c.help(map[string]any{"action": "search", "query": query})
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(found, "\n- ")
	name, _, ok := strings.Cut(rest, " (")
	if !ok {
		return 0, fmt.Errorf("%w: a search for %q finds nothing: %s", errWrong, query, found)
	}
	if !expand {
		question, err := json.Marshal(map[string]any{"action": "call", "tool": name})
		return cost + c.counter.Count(question), err
	}
	before, _, err := c.list()
	if err != nil {
		return 0, err
	}
	_, more, err := c.help(map[string]any{"action": "expand", "tools": []string{name}})
	if err != nil {
		return 0, err
	}
	after, _, err := c.list()
	return cost + more + after - before, err
}

// definitions lists the tools, and returns each as it was received.
func (c *client) definitions() ([]json.RawMessage, error) {
	if _, err := c.ask("tools/list", "", ""); err != nil {
		return nil, err
	}
	var m struct {
		Result struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor string            `json:"nextCursor"`
		} `json:"result"`
	}
	if err := json.Unmarshal(c.message, &m); err != nil {
		return nil, fmt.Errorf("%w: %w", errWrong, err)
	}
	if m.Result.NextCursor != "" {
		return nil, fmt.Errorf("%w: a list in more than one page", errWrong)
	}
	return m.Result.Tools, nil
}
