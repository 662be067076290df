package acquire

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/admin/verification"
	"github.com/summit-switchboard/switchboard/internal/annotate"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/change"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/config/edit"
	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/npm/packagelock"
	"github.com/summit-switchboard/switchboard/internal/proposal"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

// StrictWorkshopOptions are the parts that a StrictWorkshop needs.
type StrictWorkshopOptions struct {
	Editor *change.Editor

	// MakeLock asks npm which packages a package needs; see npm.MakeLock.
	MakeLock func(ctx context.Context, spec packagelock.Spec) (*packagelock.Lock, error)

	// StartWalled starts the program of a server in walls; see verification.Verifier.
	StartWalled func(ctx context.Context, s *switchboard.Server, by string) (*verification.WalledServer, error)

	// Config returns the configuration in force.
	Config func() *config.Config

	// Known reports whether pins or reports of a server are kept.
	Known func(switchboard.ServerID) bool

	// Need returns the requirement that the capability of a dossier is.
	Need func(tenant switchboard.TenantID, capability string) (*switchboard.Requirement, error)
}

// A StrictWorkshop tries candidates in strict walls. It is safe for concurrent use.
type StrictWorkshop struct{ o StrictWorkshopOptions }

// NewStrictWorkshop returns a StrictWorkshop.
func NewStrictWorkshop(o StrictWorkshopOptions) *StrictWorkshop { return &StrictWorkshop{o} }

// reader may read each file. What is made is only a proposal.
var reader = &switchboard.Officer{ID: switchboard.LocalID, Auth: switchboard.AuthDataFolder, Operator: true}

// A walledWork is a Work.
type walledWork struct {
	o      *StrictWorkshopOptions
	d      *Dossier
	server switchboard.ServerID
	files  map[string][]byte
	walled *verification.WalledServer
	rows   []annotate.ProposedRow
	labels map[string]string // by the name of the tool

	tasks   []switchboard.TaskID   // of the tenant that require the capability: they may get the tools, too
	tenants []switchboard.TenantID // that may use the server

	source     catalog.Source
	digests    map[string]string // of the definitions, by the name of the tool
	confidence int
	tools      []verification.KnownTool
	row        *switchboard.Server
}

// Start implements Workshop.
func (s *StrictWorkshop) Start(ctx context.Context, d *Dossier, c *Prospect) (Work, error) {
	need, err := s.o.Need(d.Tenant, d.Capability)
	if err != nil {
		return nil, err
	}
	w := &walledWork{o: &s.o, d: d, files: map[string][]byte{}, labels: map[string]string{}, digests: map[string]string{}}
	cfg := s.o.Config()
	if c.here() {
		w.server = c.Here.Server
	} else if cfg, err = w.addServer(ctx, c); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(cfg.Servers, func(r switchboard.Server) bool { return r.ID == w.server })
	if i < 0 {
		return nil, fmt.Errorf("the server %s is not enabled", w.server)
	}
	if t := cfg.Tenants[d.Tenant]; t == nil || !slices.Contains(t.Servers, w.server) {
		return nil, fmt.Errorf("the tenant %s may not use a further server: its bound (tenants.%s.servers) does not have %s; an operator can add that", d.Tenant, d.Tenant, w.server)
	}
	w.row = &cfg.Servers[i]
	for _, id := range slices.Sorted(maps.Keys(cfg.Tenants)) {
		if slices.Contains(cfg.Tenants[id].Servers, w.server) {
			w.tenants = append(w.tenants, id)
		}
	}
	for id, task := range cfg.Tenants[d.Tenant].Tasks {
		if slices.ContainsFunc(task.Requirements, func(r switchboard.Requirement) bool {
			return r.Verb == need.Verb && isWithin(need.Resource, r.Resource, cfg.Taxonomy)
		}) {
			w.tasks = append(w.tasks, id)
		}
	}
	slices.Sort(w.tasks)
	w.walled, err = s.o.StartWalled(ctx, w.row, d.Seeker.ID)
	if errors.Is(err, verification.ErrBusy) {
		return nil, ErrLater
	}
	if err != nil {
		return nil, fmt.Errorf("it does not start in strict walls: %w", err)
	}
	if err = w.look(cfg, need); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// addServer writes the row of a new server and its lock, and returns the configuration with them.
func (w *walledWork) addServer(ctx context.Context, c *Prospect) (*config.Config, error) {
	spec := packagelock.Spec{Name: c.Package, Version: c.Version}
	if _, err := packagelock.ParseSpec(spec.String()); err != nil {
		return nil, fmt.Errorf("%s is no exact package: %w", spec, err)
	}
	lock, err := w.o.MakeLock(ctx, spec)
	if err != nil {
		return nil, err
	}
	if got := lock.Packages[lock.Home()].Integrity; c.Integrity == "" || got != c.Integrity {
		return nil, fmt.Errorf("the package has the integrity value %s in the lock, and npm has said %q", got, c.Integrity)
	}
	main := change.MainFile(w.o.Editor)
	text, err := w.o.Editor.Read(reader, main)
	if err != nil {
		return nil, err
	}
	w.server = serverName(c.Package, w.isTaken)
	settings := []edit.Setting{edit.Text("transport", "stdio"), edit.Map("package", edit.Text("npm", spec.String())), edit.Text("sandbox", "strict")}
	if text, err = edit.AddServers(main, text, []edit.Server{{ID: w.server, Comment: "dossier " + w.d.ID, Settings: settings}}); err != nil {
		return nil, err
	}
	w.files[main], w.files[config.PackageLock(w.server)] = text, lock.Text
	return w.o.Editor.Propose(ctx, reader, "", w.files)
}

// maxServerName leaves room for a number behind the name.
const maxServerName = switchboard.MaxIDBytes - len("-9999")

// serverName returns a free id for the server of a package.
func serverName(pkg string, taken func(switchboard.ServerID) bool) switchboard.ServerID {
	words := strings.FieldsFunc(strings.ToLower(pkg), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	words = slices.DeleteFunc(words, func(w string) bool { return w == "mcp" || w == "server" })
	name := strings.Join(words, "-")
	if len(name) > maxServerName {
		name = strings.Trim(name[:maxServerName], "-")
	}
	if switchboard.CheckID(name) != nil {
		name = "acquired"
	}
	for free, n := switchboard.ServerID(name), 2; ; n++ {
		if !taken(free) {
			return free
		}
		free = switchboard.ServerID(fmt.Sprintf("%s-%d", name, n))
	}
}

// isTaken reports whether something is kept of a server with the id: a row, labels, a lock, pins or reports. They would count for the new one.
func (w *walledWork) isTaken(id switchboard.ServerID) bool {
	cfg := w.o.Config()
	if w.o.Known(id) || slices.ContainsFunc(cfg.Servers, func(s switchboard.Server) bool { return s.ID == id }) {
		return true
	}
	for _, name := range []string{overlayOf(id), config.PackageLock(id)} {
		if text, err := w.o.Editor.Read(reader, name); err != nil || text != nil {
			return true
		}
	}
	return false
}

func overlayOf(id switchboard.ServerID) string { return "overlays/" + string(id) + ".yaml" }

// look finds the tools that give the capability.
func (w *walledWork) look(cfg *config.Config, need *switchboard.Requirement) error {
	offer := switchboard.Offer{Server: w.server}
	for _, o := range w.walled.Offered() {
		offer.Tools = append(offer.Tools, o.Definition)
		w.digests[o.Name] = o.Digest
	}
	w.source = catalog.Source{Offer: offer, Class: w.row.Class, Trust: w.row.Trust}
	var defined []annotate.DefinedTool
	for _, t := range catalog.Build([]catalog.Source{w.source}, nil, cfg.Taxonomy).Tools() {
		defined = append(defined, annotate.DefinedTool{Name: t.ID.Name, Definition: t.Definition, Digest: t.Digest})
	}
	for _, s := range annotate.Suggest(annotate.ToolServer{Name: string(w.server), Tools: defined}, cfg.Taxonomy) {
		if s.Capability == nil || !gives(s.Capability, need, cfg.Taxonomy) {
			continue
		}
		w.confidence = max(w.confidence, s.Confidence)
		row, ok := s.Row()
		if !ok || s.Confidence < minConfidence || len(w.rows) == maxTools {
			continue
		}
		w.rows = append(w.rows, row)
		w.labels[s.Tool] = s.Capability.String()
	}
	if w.confidence == 0 {
		return fmt.Errorf("none of its %d tools seems to give %s", len(defined), w.d.Capability)
	}
	return nil
}

// Confidence implements Work.
func (w *walledWork) Confidence() int { return w.confidence }

// Label implements Work.
func (w *walledWork) Label(ctx context.Context) error {
	if w.row.Admission.Strict() {
		return errors.New("admission.trust is strict, so that only pins that a person has accepted are let in, and a yes to a dossier accepts none; add the server by hand")
	}
	if err := w.writeLabels(""); err != nil {
		return err
	}
	labelled, err := w.o.Editor.Propose(ctx, reader, "", w.files)
	if err != nil {
		return err
	}
	built := catalog.Build([]catalog.Source{w.source}, labelled.Overlays, labelled.Taxonomy)
	for name := range w.labels {
		id := switchboard.ToolID{Server: w.server, Name: name}
		tool, ok := built.Tool(id)
		if !ok {
			return fmt.Errorf("the catalog does not take the tool %s", id)
		}
		w.tools = append(w.tools, verification.KnownTool{Tool: tool, Digest: w.digests[name], Examples: labelled.Overlays[id].Examples})
	}
	slices.SortFunc(w.tools, func(a, b verification.KnownTool) int { return strings.Compare(a.ID.Name, b.ID.Name) })
	return nil
}

// isWithin reports whether a resource is another one, or a part of it.
func isWithin(r, whole switchboard.Resource, tax *switchboard.Taxonomy) bool {
	return r == whole || slices.Contains(tax.Ancestors(r), whole)
}

// gives reports whether a tool with the label meets the requirement.
func gives(l *annotate.Label, need *switchboard.Requirement, tax *switchboard.Taxonomy) bool {
	return l.Verb == need.Verb && isWithin(l.Resource, need.Resource, tax) &&
		!slices.ContainsFunc(need.Constraints, func(c switchboard.Constraint) bool { return !slices.Contains(l.Constraints, c) })
}

// writeLabels writes the overlay with the labels. manual stands above them.
func (w *walledWork) writeLabels(manual string) error {
	file := overlayOf(w.server)
	text, err := w.o.Editor.Read(reader, file)
	if err != nil {
		return err
	}
	if text == nil {
		text = []byte("server: " + string(w.server) + "\n")
	}
	text = append([]byte(commentOf(manual)), text...)
	if text, err = annotate.AcceptRows(file, text, w.server, w.rows); err != nil {
		return err
	}
	w.files[file] = text
	return nil
}

// commentOf returns a text as a comment of YAML. To YAML, some characters other than a line feed end a line too, and with it a comment: all are spelt out.
func commentOf(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("# " + scan.Spell(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// Labels implements Work.
func (w *walledWork) Labels() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(w.labels)) {
		all = append(all, name+": "+w.labels[name])
	}
	return all
}

// Permissions implements Work.
func (w *walledWork) Permissions() []string {
	level := w.row.Walls.Level
	if level == "" {
		level = switchboard.SandboxStandard
	}
	all := []string{"sandbox " + string(level)}
	if level == switchboard.SandboxStrict {
		for _, p := range []struct {
			what  string
			paths []string
		}{{"reads", w.row.Walls.Read}, {"writes", w.row.Walls.Write}, {"runs", w.row.Walls.Exec}} {
			if len(p.paths) > 0 {
				all = append(all, p.what+" "+strings.Join(p.paths, ", "))
			}
		}
		switch {
		case w.row.Walls.AnyNetwork:
			all = append(all, "any network")
		case len(w.row.Walls.Hosts) == 0:
			all = append(all, "no network")
		}
		for _, h := range w.row.Walls.Hosts {
			all = append(all, "reaches "+h.String())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.row.Env)) {
		all = append(all, "gets the variable "+name)
	}
	for _, id := range w.tenants {
		all = append(all, "tenant "+string(id)+" may use it")
	}
	for _, id := range w.tasks {
		all = append(all, "the task "+string(id)+" requires the capability, so it may get the tool too")
	}
	return all
}

// effectsOf says what is known about the effects of calls, their price, and where data comes from and goes to.
func effectsOf(t *switchboard.Tool) []string {
	price := "a call has no price that is known"
	if class := t.CostClass(); class != "" {
		price = "cost class: " + string(class)
	}
	return append(approvals.EffectsOf(t), "risk: "+string(t.Contract.Risk), price, "flow of data: "+t.Contract.Flow.Bits.String())
}

// Try implements Work.
func (w *walledWork) Try(ctx context.Context) ([]TriedTool, error) {
	reports, err := w.walled.Verify(ctx, w.tools)
	if err != nil {
		return nil, err
	}
	var tried []TriedTool
	for i := range reports {
		r := &reports[i]
		kept, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		tried = append(tried, TriedTool{
			Kept: kept,
			Tool: w.tools[i].ID, Digest: r.Digest, Label: w.labels[r.Tool], Risk: w.tools[i].Contract.Risk, Score: r.Score, Verified: r.Verified, Why: r.Why, Report: r.Text(), Receipt: r.Receipt,
			Took: max(r.Took, 1), Errors: answersOf(r), Effects: effectsOf(w.tools[i].Tool),
		})
	}
	return tried, nil
}

// answersOf says how the tool answers what is wrong.
func answersOf(r *evidence.KeptReport) (all []string) {
	about := map[verify.TestName]string{
		verify.Missing: "a missing argument", verify.Types: "an argument of another type", verify.Nonsense: "an unknown, null or empty member", verify.Hostile: "a hostile value",
	}
	for _, t := range r.Tests {
		what, ok := about[t.Name]
		if !ok {
			continue
		}
		switch t.Outcome {
		case verify.TestPassed:
			all = append(all, what+" gets an honest answer")
		case verify.TestFailed:
			all = append(all, what+" does not: "+t.Why)
		case verify.TestSkipped:
			all = append(all, what+" was not tried: "+t.Why)
		}
	}
	return all
}

// Draft implements Work.
func (w *walledWork) Draft(manual string) (*proposal.Draft, error) {
	if err := w.writeLabels(manual); err != nil {
		return nil, err
	}
	d := &proposal.Draft{}
	if len(w.tasks) == 0 {
		d.Claims = []proposal.StatedClaim{{Tenant: w.d.Tenant, Unchanged: true}}
	}
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		text := string(w.files[name])
		d.Files = append(d.Files, proposal.FileDraft{Path: name, Text: &text})
	}
	return d, nil
}

// Close implements Work.
func (w *walledWork) Close() {
	if w.walled != nil {
		w.walled.Close()
	}
}
