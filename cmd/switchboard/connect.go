package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type connectCmd struct {
	outputFlags
	connectFlags
	Client string `arg:"" optional:"" help:"The client: claude-code, codex, gemini-cli, opencode, claude-desktop, vscode or cursor. Without it, list the clients that are here."`

	HTTP   bool               `name:"http" help:"Write the address of a running Switchboard instead of a command that starts one."`
	Task   switchboard.TaskID `help:"The task that the client binds. Without it, the tenant's default task." placeholder:"ID"`
	Keep   bool               `help:"Add Switchboard beside the client's servers, and adopt none of them."`
	Scope  string             `help:"Which files of the client: the user's own, those of the project in this folder, or all." enum:"user,project,all" default:"user"`
	DryRun bool               `help:"Print the differences of every file, with secrets masked, and write none."`
	Print  bool               `help:"Print what to write into a client by hand, and write nothing."`

	Measure bool          `help:"Start the servers once, to count their tools and tokens, to find those that need a sign-in, and to keep what they offer for the first session." default:"true" negatable:""`
	Wait    time.Duration `help:"With --measure: wait at most TIME for servers that are starting." placeholder:"TIME" default:"60s"`
}

// connectFlags say which configuration a client is connected to.
type connectFlags struct {
	Config string               `help:"The configuration that adopts the servers. Without it: switchboard.yaml in this folder, else the user's own, which is made if needed." placeholder:"FILE" default:"${config}"`
	Data   string               `help:"The folder for Switchboard's own data. Without it, .switchboard beside the configuration." placeholder:"DIR"`
	Tenant switchboard.TenantID `help:"The tenant that the client belongs to." default:"default"`
}

func (c *connectFlags) common() *commonFlags {
	return &commonFlags{Config: c.Config, Data: c.Data, Tenant: c.Tenant}
}

// absoluteData returns the data folder as an absolute path.
func (c *connectFlags) absoluteData() (string, error) { return filepath.Abs(c.common().dataDir()) }

// thisHost returns this machine and this user.
func thisHost() (*connect.Host, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("the clients' files are in your home folder: %w", err)
	}
	dir, err := os.Getwd()
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // the clients do so too
	}
	if err != nil {
		return nil, err
	}
	return &connect.Host{OS: runtime.GOOS, Home: home, Dir: dir, Env: os.LookupEnv, LookPath: exec.LookPath}, nil
}

// findClient returns the client of an id.
func findClient(id string) (*connect.Client, error) {
	if c := connect.Find(id); c != nil {
		return c, nil
	}
	return nil, usageError{fmt.Errorf("%q is no client that connect knows%s; for any other client: switchboard connect --print", id, config.SuggestName(id, "clients", connect.IDs()))}
}

// Run connects a client, or lists the clients.
func (c *connectCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	host, err := thisHost()
	if err != nil {
		return err
	}
	switch {
	case c.Print:
		return c.printForms(io)
	case c.Client == "":
		return c.list(ctx, io, host)
	}
	client, err := findClient(c.Client)
	if err != nil {
		return err
	}
	o, err := c.options(ctx, client, host)
	if err != nil {
		return err
	}
	plan, err := connect.Prepare(ctx, o)
	if err != nil {
		return err
	}
	report := &connectReport{Client: client.ID, Config: o.Config, client: client, plan: plan, home: host.Home}
	if c.Measure && len(plan.Candidates()) > 0 {
		if report.Effect, report.seen, err = c.measure(ctx, io, log, plan); err != nil {
			return err
		}
		for _, id := range sortedIDs(report.Effect.refused) {
			if err := plan.Leave(id, report.Effect.refused[id]); err != nil {
				return err
			}
		}
	}
	if c.DryRun {
		if _, err := fmt.Fprint(io.out, plan.Diff(shortPath)); err != nil {
			return err
		}
		return report.print(c, io)
	}
	if plan, err = c.apply(ctx, o, plan, report.Effect); err != nil {
		return err
	}
	report.plan = plan
	if note := report.keepOffers(ctx, &o); note != "" {
		plan.Problems = append(plan.Problems, note)
	}
	if len(plan.Candidates()) == 0 {
		report.Effect = nil // no server has moved
	}
	return report.print(c, io)
}

// applyAttempts limits how often a plan is made anew because a file has changed.
const applyAttempts = 10

// apply applies the plan. If a file has changed meanwhile, it makes the plan anew.
func (c *connectCmd) apply(ctx context.Context, o connect.Options, plan *connect.Plan, effect *effect) (*connect.Plan, error) {
	for range applyAttempts {
		err := plan.Apply(ctx)
		if !errors.Is(err, connect.ErrChanged) {
			return plan, err
		}
		if plan, err = connect.Prepare(ctx, o); err != nil {
			return nil, err
		}
		if effect == nil {
			continue
		}
		for _, id := range sortedIDs(effect.refused) {
			if err := plan.Leave(id, effect.refused[id]); err != nil {
				return nil, err
			}
		}
	}
	return nil, fmt.Errorf("%s: %w, again and again; end the client, and try again", o.Client.Name, connect.ErrChanged)
}

func sortedIDs(m map[switchboard.ServerID]string) []switchboard.ServerID {
	ids := make([]switchboard.ServerID, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (c *connectCmd) scopes() []connect.Scope {
	switch c.Scope {
	case "project":
		return []connect.Scope{connect.ScopeProject}
	case "all":
		return []connect.Scope{connect.ScopeUser, connect.ScopeProject}
	}
	return []connect.Scope{connect.ScopeUser}
}

// options returns what to do for a client.
func (c *connectCmd) options(ctx context.Context, client *connect.Client, host *connect.Host) (connect.Options, error) {
	o := connect.Options{Client: client, Host: host, Keep: c.Keep, Head: newConfigText, Read: config.Options{Env: os.LookupEnv, Fetch: fetchManifest}}
	for _, scope := range c.scopes() {
		if client.HasScope(host, scope) {
			o.Scopes = append(o.Scopes, scope)
		}
	}
	if len(o.Scopes) == 0 {
		return o, usageError{fmt.Errorf("%s has no files in a project; leave out --scope", client.Name)}
	}
	var err error
	if o.Config, err = filepath.Abs(c.Config); err != nil {
		return o, err
	}
	if o.Data, err = c.absoluteData(); err != nil {
		return o, err
	}
	if err := c.checkTask(ctx, o.Config); err != nil {
		return o, err
	}
	o.Target, err = c.target(ctx, o.Config, client.Desktop())
	if why := client.WhyNoURL(); err == nil && c.HTTP && why != "" {
		err = usageError{fmt.Errorf("%s: %s", client.Name, why)}
	}
	return o, err
}

// checkTask reports a tenant or task that the configuration does not have: Switchboard would refuse the client.
func (c *connectCmd) checkTask(ctx context.Context, file string) error {
	cfg := config.SingleUser(nil)
	if _, err := os.Stat(file); err == nil {
		if cfg, err = config.Load(ctx, file, config.Options{Env: os.LookupEnv, Fetch: fetchManifest}); err != nil || cfg.Err() != nil {
			return nil // the caller reads it too, and reports the faults
		}
	}
	tenant := cfg.Tenants[c.Tenant]
	if tenant == nil && c.HTTP {
		return nil // the key says which tenant it is
	}
	if tenant == nil {
		return usageError{fmt.Errorf("%s has no tenant %q%s", c.Config, c.Tenant, config.SuggestName(string(c.Tenant), "tenants", names(cfg.Tenants)))}
	}
	if c.Task != "" && tenant.Tasks[c.Task] == nil {
		return usageError{fmt.Errorf("%s has no task %q%s; write it first: switchboard docs tasks", c.Config, c.Task, config.SuggestName(string(c.Task), "tasks", names(tenant.Tasks)))}
	}
	return nil
}

// names returns the keys of a map, sorted.
func names[K ~string, V any](m map[K]V) []string {
	var out []string
	for k := range m {
		out = append(out, string(k))
	}
	slices.Sort(out)
	return out
}

// target returns the command or address for the client's entry. A desktop program gets the absolute path of this program, because its PATH is not
// that of a shell.
func (c *connectCmd) target(ctx context.Context, file string, desktop bool) (t connect.SwitchboardEntry, err error) {
	if c.HTTP {
		if c.Tenant != config.DefaultTenant {
			return t, usageError{errors.New("--tenant goes with a command; over HTTP, the key or serve --tenant says which tenant it is")}
		}
		t.URL = localURL(cmp.Or(config.ListenAddress(file), config.DefaultListen), config.ListensTLS(file)) + "/mcp"
		if c.Task != "" {
			t.URL += "/tasks/" + string(c.Task)
		}
		if cfg, err := config.Load(ctx, file, config.Options{Env: os.LookupEnv}); err == nil && len(cfg.Keys) > 0 {
			t.Key = keyVariable
		}
		return t, nil
	}
	program, err := ownProgram()
	if err != nil {
		return t, err
	}
	if found, err := exec.LookPath(name); err == nil && !desktop && isThisProgram(found) {
		program = name
	}
	t.Command = []string{program, "stdio", "--config", file}
	if c.Data != "" {
		data, err := c.absoluteData()
		if err != nil {
			return t, err
		}
		t.Command = append(t.Command, "--data", data)
	}
	if c.Task != "" {
		t.Command = append(t.Command, "--task", string(c.Task))
	}
	if c.Tenant != config.DefaultTenant {
		t.Command = append(t.Command, "--tenant", string(c.Tenant))
	}
	return t, nil
}

// isThisProgram reports whether the path leads to the program that runs, also over links.
func isThisProgram(path string) bool {
	running, err := os.Executable()
	if err != nil {
		return false
	}
	a, err := os.Stat(running)
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// printForms prints what to write into a client by hand.
func (c *connectCmd) printForms(io streams) error {
	file, err := filepath.Abs(c.Config)
	if err != nil {
		return err
	}
	clients := connect.Clients()
	if c.Client != "" {
		client, err := findClient(c.Client)
		if err != nil {
			return err
		}
		clients = []*connect.Client{client}
	}
	type form struct {
		Client  string   `json:"client"`
		File    string   `json:"file"`
		Text    string   `json:"text"`
		Command []string `json:"command,omitempty"`
	}
	var forms []form
	for _, client := range clients {
		one := *c
		one.HTTP = c.HTTP && client.WhyNoURL() == ""
		target, err := one.target(context.Background(), file, client.Desktop())
		if err != nil {
			return err
		}
		text, err := client.Entry(target)
		if err != nil {
			return err
		}
		forms = append(forms, form{client.Name, client.Home, text, client.Command(target)})
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(forms)
	}
	if c.Client == "" {
		for _, http := range []bool{false, true} {
			if http && c.Tenant != config.DefaultTenant {
				continue // the key says which tenant it is
			}
			one := *c
			one.HTTP = http
			target, err := one.target(context.Background(), file, true)
			if err != nil {
				return err
			}
			what := "A client that takes an address, while switchboard serve is running:"
			var entry any = map[string]any{"type": "http", "url": target.URL}
			if !http {
				what = "A client that starts its servers:"
				entry = struct {
					Command string   `json:"command"`
					Args    []string `json:"args"`
				}{target.Command[0], target.Command[1:]}
			}
			text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{connect.Name: entry}})
			if err != nil {
				return err
			}
			fmt.Fprintf(io.out, "%s\n\n  %s\n\n", what, text)
		}
	}
	for _, f := range forms {
		fmt.Fprintf(io.out, "%s, %s:\n\n%s\n", f.Client, f.File, "  "+strings.ReplaceAll(strings.TrimSuffix(f.Text, "\n"), "\n", "\n  ")+"\n")
		if f.Command != nil {
			fmt.Fprintf(io.out, "or: %s\n\n", shellWords(f.Command))
		}
	}
	return nil
}

// shellWords returns the words of a command as a shell reads them.
func shellWords(words []string) string {
	var out []string
	for _, w := range words {
		if strings.ContainsAny(w, " \t\"'$`\\{}*?&|;<>()") || w == "" {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

// A listedClient is a client that is here, with the plan for it.
type listedClient struct {
	Client    string            `json:"client"`
	Name      string            `json:"name"`
	Tried     bool              `json:"tried"` // with the client's own program, by our tests
	Connected bool              `json:"connected"`
	File      string            `json:"file,omitempty"`
	Servers   []*connect.Server `json:"servers,omitempty"`
	Elsewhere []*connect.Server `json:"in_other_scopes,omitempty"`
	Problems  []string          `json:"problems,omitempty"`
}

// list prints the clients that are here.
func (c *connectCmd) list(ctx context.Context, io streams, host *connect.Host) error {
	data, err := c.absoluteData()
	if err != nil {
		return err
	}
	var here []listedClient
	var absent []string
	for _, client := range connect.Clients() {
		if !client.Present(host) {
			absent = append(absent, client.ID)
			continue
		}
		l := listedClient{Client: client.ID, Name: client.Name, Tried: client.Tried, Connected: connect.Connected(data, client.ID)}
		one := *c
		one.HTTP, one.Scope = false, "user"
		o, err := one.options(ctx, client, host)
		if err != nil {
			return err
		}
		plan, err := connect.Prepare(ctx, o)
		if err != nil {
			l.Problems = append(l.Problems, err.Error())
		} else {
			l.File, l.Servers, l.Elsewhere, l.Problems = plan.Place.File, plan.Servers, plan.Elsewhere, plan.Problems
		}
		here = append(here, l)
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(here)
	}
	if len(here) == 0 {
		fmt.Fprintf(io.out, "No client was found here (looked for %s).\nFor any client: switchboard connect --print\n", strings.Join(absent, ", "))
		return nil
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CLIENT\tITS FILE\tSERVERS\tWOULD MOVE\t")
	next := ""
	for _, l := range here {
		moves := 0
		for _, s := range l.Servers {
			if s.Stays == "" {
				moves++
			}
		}
		state := ""
		switch {
		case l.Connected:
			state = "connected"
		case !l.Tried:
			state = "by its documents"
		}
		if next == "" && moves > 0 {
			next = l.Client
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", l.Client, cmp.Or(homePath(l.File, host.Home), "?"), len(l.Servers), moves, state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range here {
		for _, p := range l.Problems {
			fmt.Fprintf(io.out, "\n%s: %s\n", l.Client, p)
		}
		for _, s := range l.Servers {
			if s.Stays != "" {
				fmt.Fprintf(io.out, "\n%s: %s would stay: %s\n", l.Client, s.Name, s.Stays)
			}
		}
		if len(l.Elsewhere) > 0 {
			fmt.Fprintf(io.out, "\n%s: %s of this folder's project would stay; --scope project moves them.\n", l.Client, count(len(l.Elsewhere), "server"))
		}
	}
	fmt.Fprintf(io.out, "\nConnect one:  switchboard connect %s\nOther clients: switchboard connect --print\n", cmp.Or(next, here[0].Client))
	return nil
}

// shortPath returns a path with ~ for the user's home folder.
func shortPath(file string) string {
	home, err := os.UserHomeDir()
	if err != nil {
		return file
	}
	return homePath(file, home)
}

// homePath returns a path with ~ for the home folder.
func homePath(file, home string) string {
	if rest, ok := strings.CutPrefix(file, home+string(filepath.Separator)); ok {
		return "~" + string(filepath.Separator) + rest
	}
	return file
}

type disconnectCmd struct {
	outputFlags
	Config string `help:"The configuration that the client is connected to." placeholder:"FILE" default:"${config}"`
	Data   string `help:"The folder for Switchboard's own data. Without it, .switchboard beside the configuration." placeholder:"DIR"`
	Client string `arg:"" help:"The client."`
}

// Run takes our entry out of the client's files, and puts the adopted servers back.
func (d *disconnectCmd) Run(ctx context.Context, io streams) error {
	client, err := findClient(d.Client)
	if err != nil {
		return err
	}
	host, err := thisHost()
	if err != nil {
		return err
	}
	flags := connectFlags{Config: d.Config, Data: d.Data}
	data, err := flags.absoluteData()
	if err != nil {
		return err
	}
	file, err := filepath.Abs(d.Config)
	if err != nil {
		return err
	}
	undone, err := connect.Disconnect(ctx, connect.Disconnection{Client: client, Host: host, Config: file, Data: data, Read: config.Options{Env: os.LookupEnv, Fetch: fetchManifest}})
	if errors.Is(err, connect.ErrNotConnected) {
		return fmt.Errorf("%s: %w to %s; if another configuration is meant, name it with --config", client.Name, err, d.Config)
	}
	if err != nil {
		return err
	}
	if d.JSON {
		return json.NewEncoder(io.raw).Encode(undone)
	}
	printUndone(io, client, undone, host.Home)
	return nil
}

func printUndone(io streams, client *connect.Client, u *connect.Undone, home string) {
	for _, f := range u.Files {
		file := homePath(f.File, home)
		switch {
		case f.Gone:
			fmt.Fprintf(io.out, "%s: %s is removed; there was none before.\n", client.Name, file)
			continue
		case f.Exact:
			fmt.Fprintf(io.out, "%s: %s is as it was, byte for byte.\n", client.Name, file)
		case f.Dropped != nil:
			fmt.Fprintf(io.out, "%s: the folder of %s does not exist any more, and so these servers of it are not put back: %s.\n", client.Name, file, strings.Join(f.Dropped, ", "))
			continue
		default:
			fmt.Fprintf(io.out, "%s: switchboard is out of %s.\n", client.Name, file)
		}
		if len(f.Back) > 0 {
			fmt.Fprintf(io.out, "  back      %s\n", strings.Join(f.Back, ", "))
		}
		for _, from := range slices.Sorted(keysOf(f.Renamed)) {
			fmt.Fprintf(io.out, "            %s is back as %s: the file has another server %s now\n", from, f.Renamed[from], from)
		}
		if len(f.Later) > 0 {
			fmt.Fprintf(io.out, "  kept      %s\n", strings.Join(f.Later, ", "))
		}
		if f.Backup != "" {
			fmt.Fprintf(io.out, "  backup    %s is the file from before; delete it when you need it no more\n", homePath(f.Backup, home))
		}
	}
	var removed []string
	for _, s := range u.Servers {
		if s.Removed {
			removed = append(removed, string(s.ID))
		}
	}
	if len(removed) > 0 {
		fmt.Fprintf(io.out, "%s: without %s now.\n", homePath(u.Config, home), strings.Join(removed, ", "))
	}
	for _, s := range u.Servers {
		if s.Stays != "" {
			fmt.Fprintf(io.out, "%s: %s stays: %s.\n", homePath(u.Config, home), s.ID, s.Stays)
		}
	}
	fmt.Fprintf(io.out, "Now %s.\n", client.Then)
}

func keysOf(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
