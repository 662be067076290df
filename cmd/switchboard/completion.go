package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/summit-switchboard/switchboard/docs"
	"github.com/summit-switchboard/switchboard/internal/completion"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/logoutput"
	"github.com/summit-switchboard/switchboard/internal/recall"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish,powershell" help:"bash, zsh, fish or powershell."`
}

// Run prints the script of a shell.
func (c *completionCmd) Run(io streams) error {
	_, err := fmt.Fprint(io.raw, completion.Script(c.Shell))
	return err
}

type completeCmd struct {
	Shell string   `arg:"" help:"The shell that asks."`
	Words []string `arg:"" optional:"" help:"The words behind the name of the program; for bash, the line up to the cursor, and the part of its last word that bash replaces."`
}

// completionTime limits the search for values in the store. With the start of the program, an answer takes less than 50 ms.
const completionTime = 15 * time.Millisecond

// longestCompletion is after which time there are no candidates: a file may be on a disk that hangs, or be a pipe.
const longestCompletion = 300 * time.Millisecond

// Run prints what the last word may become. Whatever fails only takes candidates away: a person who types must not see
// an error.
func (c *completeCmd) Run(ctx context.Context, out streams, k *kong.Context) error {
	words, replaced := c.Words, ""
	switch c.Shell {
	case "bash":
		if len(words) > 1 {
			replaced = words[1]
		}
		words = completion.SplitLine(strings.Join(words[:min(1, len(words))], ""))
	case "powershell": // it drops empty arguments, so the last word begins with =
		if n := len(words); n > 0 {
			words[n-1] = strings.TrimPrefix(words[n-1], "=")
		}
	}
	answers := make(chan completion.Answer, 1)
	go func() {
		answers <- completion.Complete(k.Model, words, func(q completion.Request) ([]completion.Suggestion, bool) {
			return completeValue(ctx, k.Model.Node, q, completionTime)
		})
	}()
	answer := completion.Answer{Paths: completion.NoPaths}
	select {
	case answer = <-answers:
	case <-time.After(longestCompletion):
	}
	answer.Replaced = replaced
	return answer.Write(out.raw, c.Shell)
}

// completeValue returns the values that a flag or an argument may have. limit is the time to look for them in the store.
func completeValue(ctx context.Context, root *kong.Node, q completion.Request, limit time.Duration) ([]completion.Suggestion, bool) {
	files := completionFiles{c: commonFlags{Config: defaultConfig(), Data: q.Flags["data"]}, store: q.Flags["store"], limit: limit}
	if name := q.Flags["config"]; name != "" {
		files.c.Config = name
	}
	switch q.Type {
	case reflect.TypeFor[switchboard.ServerID]():
		return candidates(config.ServerIDs(files.c.Config)), true
	case reflect.TypeFor[switchboard.TenantID]():
		return candidates(files.tenants()), true
	case reflect.TypeFor[switchboard.TaskID]():
		return candidates(files.tasks(q.Flags["tenant"])), true
	case reflect.TypeFor[capabilityRef]():
		return candidates(files.capabilities(q.Command == "capability publish")), true
	case reflect.TypeFor[switchboard.Code]():
		return codeCandidates(), true
	case reflect.TypeFor[receipt.Kind]():
		return candidates([]receipt.Kind{
			receipt.Intent, receipt.Call, receipt.Decision, receipt.Expand, receipt.Collapse, receipt.Admin, receipt.Ask, receipt.Decide, receipt.Pin, receipt.Start, receipt.Stop, receipt.KeyKind, receipt.LostKind, receipt.TrimKind,
		}), true
	case reflect.TypeFor[receipt.CallOutcome]():
		return candidates([]receipt.CallOutcome{receipt.OK, receipt.ToolError, receipt.ServerError, receipt.Refused, receipt.Failed, receipt.Unknown}), true
	}
	switch q.Command + " " + q.Name {
	case "logs server":
		return candidates(append(config.ServerIDs(files.c.Config), logoutput.Own)), true
	case "connect client", "disconnect client":
		return candidates(connect.IDs()), true
	case "annotate tools":
		return files.tools(ctx, func(id switchboard.ToolID) string {
			if string(id.Server) != q.Args[0] {
				return ""
			}
			return id.Name
		}), true
	case "call tool":
		return files.tools(ctx, nameInCalls), true
	case "explain tool", "receipts list tool", "receipts export tool", "memory tool tool", "memory similar tool", "memory errors tool":
		return files.tools(ctx, switchboard.ToolID.String), true
	case "receipts show id", "receipts replay id":
		return files.receipts(ctx), true
	case "docs page":
		var found []completion.Suggestion
		for _, p := range docs.Pages() {
			found = append(found, completion.Suggestion{Word: p.Name, Help: p.Title})
		}
		return found, true
	case "help topic":
		var found []completion.Suggestion
		for _, c := range root.Children {
			if !c.Hidden {
				found = append(found, completion.Suggestion{Word: c.Name, Help: c.Help})
			}
		}
		return append(found, codeCandidates()...), true
	case "schema kind":
		var found []completion.Suggestion
		for _, k := range config.FileKinds() {
			found = append(found, completion.Suggestion{Word: k.Name, Help: k.Files})
		}
		return found, true
	}
	return nil, false
}

func candidates[T ~string](words []T) (found []completion.Suggestion) {
	for _, word := range words {
		found = append(found, completion.Suggestion{Word: string(word)})
	}
	return found
}

func codeCandidates() (found []completion.Suggestion) {
	for _, c := range docs.Codes("SB-") {
		found = append(found, completion.Suggestion{Word: c.Code, Help: c.Title})
	}
	return found
}

// completionFiles are the files that hold values. They are only read, and no server is started.
type completionFiles struct {
	c     commonFlags
	store string // the flag --store
	limit time.Duration
}

// tenants returns the tenants of the configuration.
func (f *completionFiles) tenants() []string {
	if ids := config.TenantIDs(f.c.Config); ids != nil {
		return ids
	}
	found := f.baseNames("tenants", "*")
	if found == nil {
		found = []string{string(config.DefaultTenant)}
	}
	return found
}

// baseNames returns the last elements of the paths that match the pattern below the folder of the configuration.
func (f *completionFiles) baseNames(pattern ...string) (found []string) {
	paths, err := filepath.Glob(filepath.Join(append([]string{filepath.Dir(f.c.Config)}, pattern...)...))
	if err != nil {
		return nil
	}
	for _, p := range paths {
		found = append(found, filepath.Base(p))
	}
	return found
}

// capabilities returns the ids of the capabilities, or the names of their versions.
func (f *completionFiles) capabilities(versions bool) (found []string) {
	r, err := config.ReadRegistry(f.c.Config, config.Options{})
	if err != nil {
		return nil
	}
	if !versions {
		return r.IDs()
	}
	for _, id := range r.IDs() {
		for _, v := range r.Versions(id) {
			found = append(found, v.Name())
		}
	}
	return found
}

var taskIDLine = regexp.MustCompile(`(?m)^task_id: *"?([a-z0-9-]+)`)

// tasks returns the tasks of a tenant; those of all tenants if it has none of its own or is "".
func (f *completionFiles) tasks(tenant string) []string {
	folder := filepath.Join(filepath.Dir(f.c.Config), "tenants")
	if tenant == "" {
		tenant = string(config.DefaultTenant)
	}
	paths, _ := filepath.Glob(filepath.Join(folder, tenant, "tasks", "*.yaml")) // the pattern may be none: then there are no paths
	if len(paths) == 0 {
		paths, _ = filepath.Glob(filepath.Join(folder, "*", "tasks", "*.yaml"))
	}
	var found []string
	for _, p := range paths {
		if text, err := readBeginning(p); err == nil {
			if m := taskIDLine.FindSubmatch(text); m != nil {
				found = append(found, string(m[1]))
			}
		}
	}
	if found == nil {
		found = []string{string(config.LocalTask)}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// readBeginning reads the first part of a file.
func readBeginning(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read from
	return io.ReadAll(io.LimitReader(f, 4<<10))
}

// readStore calls read with the store, if it is a file, and waits for it for at most the limit. What read has added until
// then is the answer.
func (f *completionFiles) readStore(ctx context.Context, read func(ctx context.Context, s store.Store, add func(completion.Suggestion))) (found []completion.Suggestion) {
	url := f.store
	if url == "" {
		url = config.StoreURL(f.c.Config)
	}
	path, isFile := strings.CutPrefix(url, "file:")
	switch {
	case url == "":
		path = filepath.Join(f.c.dataDir(), "store.db")
	case !isFile:
		return nil // a Redis may be far away
	case f.store == "" && !filepath.IsAbs(path):
		path = filepath.Join(filepath.Dir(f.c.Config), path)
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	each := make(chan completion.Suggestion)
	go func() {
		defer close(each)
		s, err := store.Open(ctx, "file:"+path, store.Options{File: store.FileOptions{Log: slog.New(slog.DiscardHandler), Glance: true}})
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }() // it was only read from
		read(ctx, s, func(c completion.Suggestion) {
			select {
			case each <- c:
			case <-ctx.Done():
			}
		})
	}()
	for {
		select {
		case c, ok := <-each:
			if !ok {
				return found
			}
			found = append(found, c)
		case <-ctx.Done():
			return found
		}
	}
}

// tools returns the tools that servers offered last, with the name that spell gives to each; those that it names "" are left out.
func (f *completionFiles) tools(ctx context.Context, spell func(switchboard.ToolID) string) []completion.Suggestion {
	found := f.readStore(ctx, func(ctx context.Context, s store.Store, add func(completion.Suggestion)) {
		for tool, title := range recall.Tools(ctx, s) {
			if word := spell(tool); word != "" {
				add(completion.Suggestion{Word: word, Help: title})
			}
		}
	})
	slices.SortFunc(found, func(a, b completion.Suggestion) int { return strings.Compare(a.Word, b.Word) })
	return slices.CompactFunc(found, func(a, b completion.Suggestion) bool { return a.Word == b.Word })
}

var nameOfCalls = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const maxNameOfCalls = 64 // bytes

// nameInCalls returns the name by which a task has the tool, unless it has another tool of that name; "" if the name is shortened
// or changed for clients.
func nameInCalls(id switchboard.ToolID) string {
	if len(id.Name) <= maxNameOfCalls && nameOfCalls.MatchString(id.Name) {
		return id.Name
	}
	return ""
}

// maxCompletedReceipts limits the ids of receipts: the newest ones.
const maxCompletedReceipts = 30

// receipts returns the newest receipts.
func (f *completionFiles) receipts(ctx context.Context) []completion.Suggestion {
	return f.readStore(ctx, func(ctx context.Context, s store.Store, add func(completion.Suggestion)) {
		n := 0
		for e, err := range receipt.List(ctx, s, receipt.Query{NewestFirst: true}) {
			if n++; err != nil || n > maxCompletedReceipts {
				return
			}
			columns := receiptColumns(&e)
			add(completion.Suggestion{Word: e.ID(), Help: strings.Join(strings.Fields(columns[2]+" "+columns[5]+" "+columns[6]), " ")})
		}
	})
}
