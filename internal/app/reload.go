package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/event"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/run"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/watch"
)

// setServers replaces the servers that Switchboard connects to and monitors.
func (a *App) setServers(servers []switchboard.Server) {
	a.health.SetServers(servers)
	a.credentials.Keep(servers)
	a.fleet.Set(servers)
}

// rebuildState builds a state from the running configuration and the servers' present offers.
func (a *App) rebuildState(ctx context.Context) {
	a.building.Lock()
	defer a.building.Unlock()
	was := a.state.Load()
	starting := a.fleet.Starting() // read before the offers: a server that answers in between counts as both
	a.swapState(ctx, a.newState(was.loadedConfig, admitOffers(ctx, a, was.config), starting, was))
}

// swapState publishes s and binds all runs again. The caller holds a.building.
func (a *App) swapState(ctx context.Context, s *servingState) {
	was := a.state.Swap(s)
	a.memory.FreeSoon()
	a.suspects.changed.send()
	if was.Config.Registry != s.Config.Registry {
		a.atoms.Use(s.Config.Registry)
	}
	if was.Catalog.Digest() != s.Catalog.Digest() {
		a.log.Info("catalog", "digest", s.Catalog.Digest(), "tools", len(s.Catalog.Tools()), "faults", len(s.Catalog.Faults()))
		for _, f := range s.Catalog.Faults() {
			what := "tool refused"
			if f.Offered {
				what = "labels of a tool end"
			}
			a.log.Warn(what, "why", f.Error())
		}
		logKeptOut(a.log, s.Catalog.Tools(), s.Catalog.Undecided())
		for _, why := range admin.ProbeFaults(s.State, func(switchboard.ServerID) bool { return true }) {
			a.log.Warn("a server is not probed as configured", "why", why)
		}
	}
	if faults := s.EquivalentFaults(""); !slices.Equal(was.EquivalentFaults(""), faults) {
		for _, f := range faults {
			a.log.Warn("not an equivalent", "why", f.Error())
		}
	}
	if faults := s.ProviderFaults(""); !slices.Equal(was.ProviderFaults(""), faults) {
		for _, f := range faults {
			a.log.Warn("not a provider", "why", f.Error())
		}
	}
	if was.loadedConfig != s.loadedConfig {
		a.keysChanged.send()
	}
	if was.loadedConfig != s.loadedConfig {
		run.Reconfigure(ctx, a.runs, func(id switchboard.TenantID) bool {
			return !reflect.DeepEqual(was.config.Tenants[id], s.config.Tenants[id])
		})
	} else {
		a.runs.Rebind(ctx)
	}
	a.runs.ReplaceServers(ctx, a.binder.Lost) // another server may be able to serve now
	a.binder.Started(s.Starting)
	for _, r := range a.runs.All() {
		if err := r.Err(); err != nil && !run.IsStarting(err) && !hasSignedOut(r, err) {
			a.log.Warn("a run shows nothing: its task cannot be met now", "tenant", r.Principal().Tenant, "principal", r.Principal().ID, "task", r.Task(), "err", err)
		}
	}
}

// hasSignedOut reports whether a run shows nothing because its person is not signed in any more.
func hasSignedOut(r *run.Run, err error) bool {
	e, ok := errors.AsType[*switchboard.Error](err)
	return ok && e.Code == switchboard.CodeNotAuthenticated && r.Principal().Auth == switchboard.AuthSignIn
}

// Watch reloads whenever one of the configuration's files changes, reload receives, or another replica
// publishes a reload, until ctx is done; see watch.Run.
func (a *App) Watch(ctx context.Context, reload <-chan os.Signal) { a.watch(ctx, reload, nil) }

func (a *App) watch(ctx context.Context, reload <-chan os.Signal, newWatcher func() (*fsnotify.Watcher, error)) {
	var rereading sync.WaitGroup
	rereading.Go(func() { rereadSecrets(ctx, a) })
	defer rereading.Wait()
	watch.Run(ctx, watch.Options{Files: a.files, Store: a.store, Log: a.log, Reload: a.reload, NewWatcher: newWatcher}, reload)
}

// reload reads the configuration again. Every step that can fail happens before anything live is
// changed: on an error the running state stays, and Status reports the error. New servers get the
// start deadline to answer before decisions use them. Calls in flight finish with the state that
// they started with.
//
// reload calls differs before that wait if the other replicas must know of the result: the
// configuration has changed, is refused, or is accepted again.
func (a *App) reload(ctx context.Context, differs func()) {
	a.reloading.mu.Lock()
	defer a.reloading.mu.Unlock()
	defer a.admin.reread.send()
	was := a.state.Load()
	r, err := a.rereadConfig(ctx, was)
	same := err == nil && r == was.loadedConfig
	defer func() { a.metrics.CountReload(same, err) }()
	if !same || a.reloading.fault.Load() != nil {
		differs()
	}
	if err != nil {
		a.recorder.Reload("", "", err)
		f := &reloadFault{err: err, when: time.Now()}
		f.since = f.when
		if was := a.reloading.fault.Load(); was != nil {
			f.since = was.since
		}
		a.reloading.fault.Store(f)
		a.admin.events.Add(event.Occurrence{Type: event.Configuration, Subject: "refused"})
		a.log.Error("reload refused; the running configuration stays", "err", err, "since", f.since, "running_from", was.loadedAt)
		return
	}
	if a.reloading.fault.Swap(nil) != nil {
		a.log.Info("the configuration is accepted again")
	}
	if same {
		a.log.Info("read again; nothing has changed")
		return
	}
	c := r.config
	a.building.Lock()
	defer a.building.Unlock()
	if a.options.Configured != nil {
		a.options.Configured(c)
	}
	a.recall.ReadOffers(ctx)
	a.fleet.SetOnePrincipal(hasOneUser(c) && hasOneUser(was.config)) // while one of the two has several users, they do not share
	a.setServers(withRemoved(c.Servers, was.config.Servers))
	awaitServers(ctx, a, c, was.config)
	a.gateway.Allow(c.Hosts, c.Origins)
	a.admin.providers.Set(signInIssuers(c))
	a.admin.notices.Set(c.Recipients)
	a.binder.Reconfigured()
	starting := a.fleet.Starting() // read before the offers, as in rebuildState
	a.swapState(ctx, a.newState(r, admitOffers(ctx, a, c), starting, was))
	a.fleet.SetOnePrincipal(hasOneUser(c))
	a.setServers(c.Servers)
	a.cluster.PublishConfiguration(r.digest)
	r.logWarnings(a.log)
	a.work.Go(func() { a.recall.KeepManifests(ctx, c, was.config) })
	changed := config.Changes(was.config, c)
	a.recorder.Reload(r.digest, changed, nil)
	a.admin.events.Add(event.Occurrence{Type: event.Configuration, Subject: string(r.digest)})
	a.log.Info("reloaded", "configuration", r.digest, "changed", changed)
	if late := config.ChangedStartSettings(a.reloading.start, c); len(late) > 0 {
		a.log.Warn("these settings are read at the start: restart Switchboard", "changed", strings.Join(late, ", "))
	}
}

// rereadConfig reads the configuration again. It returns the loadedConfig of was if nothing has
// changed. The error says why the new configuration cannot replace the running one.
func (a *App) rereadConfig(ctx context.Context, was *servingState) (*loadedConfig, error) {
	r, err := a.loadConfig(ctx, was.loadedConfig)
	if err != nil {
		return nil, err
	}
	c := r.config
	a.recall.RecallManifests(ctx, c)
	switch {
	case !reflect.DeepEqual([]any{c.Store, c.Cluster}, []any{was.config.Store, was.config.Cluster}):
		return nil, errors.New("store, durability or cluster was changed, which is read once: restart Switchboard")
	case !reflect.DeepEqual(c.Vault, was.config.Vault):
		return nil, errors.New("the key of the vault was changed, which is read once: restart Switchboard")
	case c.Equal(was.config):
		was.read.Renew(r.read)
		return was.loadedConfig, nil
	case c.Keyless() && a.listener != nil && !isLoopback(a.listener.Addr()):
		return nil, fmt.Errorf("the last key was removed, and other machines can reach %s: then each of them could call; keep a key, or listen at %s and restart Switchboard", a.listener.Addr(), config.DefaultListen)
	}
	r.inheritTimes(was.loadedConfig)
	r.digest = r.digestWith(a.configurationKey())
	return r, nil
}

// configurationKey returns the key for digests of configurations: the key that all replicas share,
// or our own key if there are no others.
func (a *App) configurationKey() []byte {
	if key := a.cluster.Key(configurationKeyPurpose); key != nil {
		return key
	}
	return []byte(a.ledger.Key(offersKeyPurpose).Reveal())
}

// loadConfig reads the configuration and notes which files to watch. Faulty parts keep the content
// that they have in was, which is nil at the start.
func (a *App) loadConfig(ctx context.Context, was *loadedConfig) (*loadedConfig, error) {
	u, err := readConfig(ctx, a, was)
	if err != nil {
		return nil, err
	}
	return u.compile(a.engine)
}

// An uncompiledConfig is a configuration without faults in its files. Its policies are compiled, but those that Switchboard ships are not.
type uncompiledConfig struct {
	config *config.Config
	layers *compiledLayers
	read   *watch.ReadFiles
}

// readConfig reads the files, and compiles the policies among them. See loadConfig.
func readConfig(ctx context.Context, a *App, was *loadedConfig) (*uncompiledConfig, error) {
	note, done := a.files.Begin()
	o := config.Options{Watch: note}
	l := newCompiledLayers(nil)
	if was != nil {
		o.Previous, l = was.config, newCompiledLayers(was.layers)
	}
	o.CheckPolicies = l.check
	c, err := a.options.Load(ctx, o)
	read := done()
	if err != nil {
		return nil, err
	}
	if err := checkTenant(c, a.options.Tenant); err != nil {
		return nil, err
	}
	if c.Policies != nil { // Load has checked those of tenants
		if err := l.check("", c.Policies); err != nil {
			return nil, err
		}
	}
	return &uncompiledConfig{c, l, read}, nil
}

// compile compiles the policies that Switchboard ships, if the configuration uses them, and combines the layers of each tenant.
func (u *uncompiledConfig) compile(e *policy.Engine) (*loadedConfig, error) {
	r, err := compilePolicies(u.config, e, u.layers, nil)
	if err == nil {
		r.read = u.read
	}
	return r, err
}

// hurriedWait is how long the reload that takes a proposal back waits for servers.
const hurriedWait = 3 * time.Second

// awaitServers waits until the servers of the configuration now have answered, for the start deadline at most. It does not wait for those that are removed. While a proposal is taken back, it does not wait for those that come back either: what is in force has done without them.
func awaitServers(ctx context.Context, a *App, now, was *config.Config) {
	except := removedServers(was, now)
	if a.reloading.hurried.Load() > 0 {
		except = append(except, removedServers(now, was)...)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, hurriedWait)
		defer cancel()
	}
	a.fleet.Ready(ctx, except...)
}

// removedServers returns the servers of a that b has not.
func removedServers(a, b *config.Config) (ids []switchboard.ServerID) {
	for _, s := range a.Servers {
		if !slices.ContainsFunc(b.Servers, func(other switchboard.Server) bool { return other.ID == s.ID }) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// withRemoved returns the new servers and the old servers that were removed. The removed ones serve
// until no decision names them.
func withRemoved(now, before []switchboard.Server) []switchboard.Server {
	all := append([]switchboard.Server(nil), now...)
	in := map[switchboard.ServerID]bool{}
	for _, s := range now {
		in[s.ID] = true
	}
	for _, s := range before {
		if !in[s.ID] {
			all = append(all, s)
		}
	}
	return all
}

// tenantNames returns the ids of the tenants, sorted.
func tenantNames(c *config.Config) (names []string) {
	for id := range c.Tenants {
		names = append(names, string(id))
	}
	slices.Sort(names)
	return names
}

// checkTenant returns an error if no tenant would be served, or if keyless callers would have no
// tenant.
func checkTenant(c *config.Config, local switchboard.TenantID) error {
	switch {
	case len(c.Tenants) == 0 && len(c.Refused) > 0, c.Refused[local] && c.Keyless():
		return c.Err()
	case c.Tenants[local] != nil || !c.Keyless():
		return nil
	}
	return fmt.Errorf("%s: keyless callers belong to tenant %q, which is not configured%s; name one with --tenant, or make keys with \"switchboard key new\"", switchboard.CodeConfig, local, config.SuggestName(string(local), "tenants", tenantNames(c)))
}
