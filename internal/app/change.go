package app

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/ownfile"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/replay"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/watch"
)

// Bounds of a change.
const (
	changeTimeout   = 5 * time.Second // for the store, and for the lock
	maxTriedTasks   = 500
	triedTaskBudget = 2 * time.Second // for the decisions of all tasks
	maxPastLooks    = 2
	lockRetry       = 20 * time.Millisecond
)

// fileChanges is the part of an App that changes of its files need.
type fileChanges struct {
	*App
	turn    chan struct{} // of capacity one; holds a value while files are changed
	looking chan struct{} // has an element for each trial that looks at past decisions
	before  bind.TriedTools
}

// comparePast implements change.Options.Compare.
func (a *fileChanges) comparePast(ctx context.Context, b replay.Bounds, p *replay.Proposal) (*replay.Diff, error) {
	select {
	case a.looking <- struct{}{}:
		defer func() { <-a.looking }()
	default:
		return nil, switchboard.Refuse(switchboard.CodeOverloaded, "%d other trials look at past decisions", maxPastLooks)
	}
	settling, cancel := context.WithTimeout(ctx, b.Time/2)
	a.recorder.Settle(settling)
	cancel()
	d, err := replay.CompareWithin(ctx, a.store, b, p, nil)
	if err != nil {
		a.log.Warn("a trial of a change could not look at past decisions", "err", err)
	}
	return d, err
}

// newEditor returns the editor of the configuration's files.
func newEditor(a *App) *change.Editor {
	f := &fileChanges{App: a, turn: make(chan struct{}, 1), looking: make(chan struct{}, maxPastLooks)}
	host, _ := os.Hostname() // without a name, all machines are one
	place, _ := filepath.Abs(a.options.Officers.File)
	return change.New(change.Options{
		File: a.options.Officers.File, Try: f.try, Reload: f.putInForce, Compare: f.comparePast, Lock: f.lock, Place: host + " " + place,
		Edit:    func() config.EditMode { return a.state.Load().config.Admin.Edit },
		Servers: func() []switchboard.Server { return a.state.Load().config.Servers },
		Secrets: func() map[string]config.PrintedSecret { return a.state.Load().config.Secrets },
		Store:   a.store, Ledger: a.ledger, Intent: f.findIntent, Timeout: changeTimeout,
	})
}

// EditorOf returns what changes the files of the configuration for officers, for a program that has the App in itself.
func EditorOf(a *App) *change.Editor { return a.admin.editor }

// findIntent implements change.Options.Intent.
func (a *fileChanges) findIntent(ctx context.Context, r receipt.Receipt, since time.Time) (id string, err error) {
	var intents []string
	ended := map[string]bool{}
	for e, err := range receipt.List(ctx, a.store, receipt.Query{Kind: receipt.Admin, Since: since}) {
		switch {
		case err != nil:
			return "", err
		case e.Receipt.Of != "":
			ended[e.Receipt.Of] = true
		case sameChange(e.Receipt.Change, r.Change) && e.Receipt.Principal == r.Principal:
			intents = append(intents, e.ID())
		}
	}
	for _, one := range slices.Backward(intents) {
		if !ended[one] {
			return one, nil
		}
	}
	return "", nil
}

// sameChange reports whether the intent belongs to the change. Intents of earlier versions have no source.
func sameChange(intent, made receipt.FileChange) bool {
	if intent.Source == "" {
		made.Source = ""
	}
	return intent == made
}

// lock waits for the right to change files. All processes of the data folder take turns.
func (a *fileChanges) lock(ctx context.Context) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := func() { <-a.turn }
	if a.options.Data == "" {
		return free, nil
	}
	f, err := openChangeLock(a.options.Data)
	if err != nil {
		free()
		return nil, err
	}
	for {
		ok, err := ownfile.TryLock(f)
		if ok {
			return func() { _ = f.Close(); free() }, nil
		}
		if err == nil {
			select {
			case <-time.After(lockRetry):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		free()
		return nil, errors.Join(err, f.Close())
	}
}

// openChangeLock opens the file that processes lock to change files. With a shared store, nothing else has made the data folder.
func openChangeLock(data string) (*os.File, error) {
	if err := ownfile.MakeFolders(data); err != nil {
		return nil, err
	}
	return ownfile.Open(filepath.Join(data, "change.lock"), os.O_CREATE|os.O_RDWR)
}

// putInForce reads the files again and tells the other replicas. The error says why they were refused.
func (a *fileChanges) putInForce(ctx context.Context) error {
	a.reload(ctx, func() { watch.Publish(ctx, a.store) })
	if f := a.reloading.fault.Load(); f != nil {
		return f.err
	}
	return nil
}

// try reads the configuration as a reload would, with files replaced, and says what would be different.
func (a *fileChanges) try(ctx context.Context, replace map[string][]byte) (*change.Reading, error) {
	was := a.state.Load()
	return a.tryFrom(ctx, was, replace, a.reloading.fault.Load() == nil && was.read.Unchanged())
}

// tryFrom is try, compared with a state. unchanged says that no file has changed since the state was read.
func (a *fileChanges) tryFrom(ctx context.Context, was *servingState, replace map[string][]byte, unchanged bool) (*change.Reading, error) {
	l := newCompiledLayers(was.layers)
	c, err := a.options.Load(ctx, config.Options{Previous: was.config, CheckPolicies: l.check, Replace: replace, Unchanged: unchanged})
	faults := func(err error) (*change.Reading, error) {
		if found, ok := errors.AsType[switchboard.Faults](err); ok {
			return &change.Reading{Faults: found}, nil
		}
		return &change.Reading{Faults: switchboard.Faults{{File: a.options.Officers.File, Text: err.Error()}}}, ctx.Err()
	}
	if err == nil {
		err = checkTenant(c, a.options.Tenant)
	}
	if err != nil {
		return faults(err)
	}
	t := &change.Reading{Config: c, Warnings: c.Warnings, Changed: config.Changes(was.config, c)}
	if found, ok := errors.AsType[switchboard.Faults](c.Err()); ok {
		t.Faults = append(t.Faults, found...)
	}
	a.recall.RecallManifests(ctx, c)
	next := was
	if c != was.config { // else it means what is in force
		r, err := compilePolicies(c, a.engine, l, was.loadedConfig)
		if err != nil {
			more, err := faults(err)
			if err == nil {
				t.Faults = append(t.Faults, more.Faults...)
			}
			return t, err
		}
		next = previewState(a.App, r, was.Starting, was)
	}
	if len(replace) > 0 { // with faults, too: a reload serves the parts that have none
		a.compareTasks(ctx, t, slices.Sorted(maps.Keys(replace)), was, next)
	}
	t.Aside = a.tasksOf(next.State)
	return t, nil
}

// tasksOf returns a state as far as tasks show it.
func (a *fileChanges) tasksOf(s *bind.State) *change.TaskState {
	seen := a.binder.Observe(run.Before{})
	return &change.TaskState{
		Tasks: func(tenant switchboard.TenantID) []switchboard.TaskID {
			if s.Tenants[tenant] == nil {
				return nil
			}
			return s.Tenants[tenant].TaskIDs()
		},
		Look: func(ctx context.Context, tenant switchboard.TenantID, task switchboard.TaskID) change.TaskTools {
			tried := new(bind.TriedTools).ToolsOf(ctx, s, tenant, task, seen)
			out := change.TaskTools{Tools: tried.Tools, Why: tried.Why}
			for _, m := range tried.Met {
				name := m.Requirement.String()
				if r := m.Requirement; r.Verb != "" { // its constraints do not name it
					name = string(r.Verb) + ":" + string(r.Resource)
				}
				out.Requirements = append(out.Requirements, change.ServedRequirement{Name: name, Tools: m.Tools})
			}
			return out
		},
	}
}

// compareTasks adds the tasks to t, with the tools that each gets by the two states, decided for a caller that may bind it. It begins with the tenants that
// own the changed files, and tries no others if all files belong to tenants: such a file changes no other tenant.
func (a *fileChanges) compareTasks(ctx context.Context, t *change.Reading, changed []string, was, next *servingState) {
	ctx, cancel := context.WithTimeout(ctx, triedTaskBudget)
	defer cancel()
	tried, seen := 0, a.binder.Observe(run.Before{}) // both states decide in the same world
	ids := tenantNames(next.config)
	owns := func(id string) bool {
		return slices.ContainsFunc(changed, func(name string) bool { return strings.HasPrefix(name, "tenants/"+id+"/") })
	}
	if !slices.ContainsFunc(changed, func(name string) bool { return !strings.HasPrefix(name, "tenants/") }) {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !owns(id) })
	}
	slices.SortStableFunc(ids, func(a, b string) int {
		switch {
		case owns(a) == owns(b):
			return 0
		case owns(a):
			return -1
		}
		return 1
	})
	for _, id := range ids {
		tenant := switchboard.TenantID(id)
		if next.Tenants[tenant] == nil {
			continue
		}
		for _, task := range next.Tenants[tenant].TaskIDs() {
			one := change.TaskChange{Tenant: tenant, Task: task}
			if tried++; tried > maxTriedTasks || ctx.Err() != nil {
				t.Untried = append(t.Untried, one)
				continue
			}
			now := a.before.ToolsOf(ctx, was.State, tenant, task, seen)
			one.Before, one.After, one.Why = now.Tools, now.Tools, now.Why
			if next.Tenants[tenant] != was.Tenants[tenant] { // else it is decided alike
				then := new(bind.TriedTools).ToolsOf(ctx, next.State, tenant, task, seen)
				one.After, one.Why = then.Tools, then.Why
			}
			if !slices.Equal(one.Before, one.After) || one.Why != "" && len(one.Before) > 0 {
				t.Tasks = append(t.Tasks, one)
			} else {
				t.Same = append(t.Same, one)
			}
		}
	}
}
