package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/app"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/doctor"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/internal/upstream"
)

type doctorCmd struct {
	commonFlags
	outputFlags
	Quiet bool          `help:"Print only what is not well." short:"q"`
	Wait  time.Duration `help:"Wait at most TIME for the answer of a server." placeholder:"TIME" default:"60s"`
}

// Run examines the installation. It exits 1 if something is wrong.
func (d *doctorCmd) Run(ctx context.Context, io streams, log *slog.Logger) error {
	if d.Wait <= 0 {
		return usageError{errors.New("--wait takes a time above 0, such as 30s")}
	}
	o, err := d.options(log)
	if err != nil {
		return err
	}
	progress := newProgress(io)
	o.Busy = progress.show
	report, err := doctor.Examine(ctx, o)
	progress.end()
	if err != nil {
		return err
	}
	if d.JSON {
		err = json.NewEncoder(io.raw).Encode(report)
	} else {
		err = (&reportPrinter{io: io, home: o.Host.Home, quiet: d.Quiet}).print(report)
	}
	if err == nil && !report.Well {
		return errNegative
	}
	return err
}

// options says what to examine.
func (d *doctorCmd) options(log *slog.Logger) (o doctor.Options, err error) {
	o = doctor.Options{Config: d.configPath(), Identity: d.identity("bounded"), Version: version(), Made: readBuild().Time, Wait: d.Wait, ReadStatus: readServingStatus}
	if data := d.dataDir(); data != "" {
		if o.Data, err = filepath.Abs(data); err != nil {
			return o, err
		}
	}
	if o.Program, err = ownProgram(); err != nil {
		return o, err
	}
	if o.Host, err = thisHost(); err != nil {
		return o, err
	}
	var given []string
	if d.Config != defaultConfig() && d.MCPConfig == "" {
		given = append(given, "--config "+shellWord(o.Config))
	}
	if d.Data != "" {
		given = append(given, "--data "+shellWord(o.Data))
	}
	o.Given = strings.Join(given, " ")
	o.Load = func(ctx context.Context) (*config.Config, error) { return d.loadAll(ctx, log) }
	o.OpenTokens = func(ctx context.Context, cfg *config.Config, kept bool) (*doctor.TokenSource, error) {
		return openTokens(ctx, o.Data, cfg, kept)
	}
	return o, nil
}

// openTokens opens the connections that are kept beside the configuration, or a store without any. It returns nil if none are kept.
func openTokens(ctx context.Context, data string, cfg *config.Config, kept bool) (*doctor.TokenSource, error) {
	quiet := slog.New(slog.DiscardHandler) // what is wrong is in the report
	var c *app.ConnectionStore
	var err error
	if kept {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		defer cancel()
		c, err = app.OpenKeptConnections(ctx, data, cfg, quiet)
	} else {
		c, err = app.OpenNoConnections(ctx, cfg, quiet)
	}
	if c == nil || err != nil {
		return nil, err
	}
	return &doctor.TokenSource{Of: c.Broker.Of, Close: c.Close}, nil
}

// loadAll reads the configuration, and returns all faults, also those of policies. The configuration is nil if no process could serve it.
func (d *doctorCmd) loadAll(ctx context.Context, log *slog.Logger) (cfg *config.Config, err error) {
	_, err = app.Check(ctx, func(ctx context.Context, o config.Options) (*config.Config, error) {
		var err error
		cfg, err = d.loadConfig(ctx, log, o)
		return cfg, err
	})
	return cfg, err
}

// readServingStatus returns the status of a process that serves from the data folder.
func readServingStatus(ctx context.Context, row serving.Neighbor) (*doctor.ServingStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	at := runningAt(row)
	var st admin.StatusReport
	if err := (&taskTarget{targetFlags: targetFlags{URL: at.URL}, row: at.row}).fetchInto(ctx, "/v1/status", &st); err != nil {
		return nil, err
	}
	out := &doctor.ServingStatus{Notices: st.Notices}
	for _, s := range st.Servers {
		if c := s.Health.Cause; c != nil && s.LastFailure == nil {
			s.LastFailure = &upstream.Failure{Message: fmt.Sprintf("it gets no calls (%s): %s", s.Health.State, c.Message)}
		}
		out.Servers = append(out.Servers, s.ServerStatus)
	}
	return out, nil
}

// statusTimeout limits the time for the status of a Switchboard that runs.
const statusTimeout = 10 * time.Second

// A progress shows on a terminal what a command is waiting for, from noticeDelay on.
type progress struct {
	io streams
	on bool

	mu      sync.Mutex
	waiting []string
	stop    chan struct{}
	ended   sync.WaitGroup
}

func newProgress(io streams) *progress {
	terminal := isTerminal(io.err)
	p := &progress{io: io, on: terminal, stop: make(chan struct{})}
	if terminal {
		p.ended.Go(p.run)
	}
	return p
}

// show replaces what the command waits for.
func (p *progress) show(subjects []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = subjects
}

func (p *progress) run() {
	tick := time.NewTicker(noticeDelay)
	defer tick.Stop()
	told := ""
	for began := time.Now(); ; {
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
		p.mu.Lock()
		text := strings.Join(p.waiting[:min(len(p.waiting), maxNamed)], ", ")
		if more := len(p.waiting) - maxNamed; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		p.mu.Unlock()
		if text != "" && text != told {
			fmt.Fprintf(p.io.err, "looking at %s (%s; ctrl-C ends this)\n", text, time.Since(began).Round(time.Second))
			told = text
		}
	}
}

// maxNamed limits the things that a line of progress names.
const maxNamed = 4

// end ends the progress.
func (p *progress) end() {
	close(p.stop)
	p.ended.Wait()
}

// A reportPrinter prints a report for people.
type reportPrinter struct {
	io    streams
	home  string
	quiet bool // without what is well
}

// titles are the headings of the areas.
var titles = map[doctor.Area]string{
	doctor.Configuration: "Configuration",
	doctor.Files:         "Files",
	doctor.Store:         "Store",
	doctor.Address:       "Address",
	doctor.Running:       "Running",
	doctor.Clock:         "Clock",
	doctor.Programs:      "Programs",
	doctor.Servers:       "Servers",
	doctor.Clients:       "Clients",
}

// Widths of the output.
const (
	indentRemedy  = "         "
	maxFinding    = 600 // characters of one text
	maxOutputLine = 200
)

func (d *reportPrinter) print(r *doctor.Report) error {
	last := doctor.Area("")
	for _, f := range r.Findings {
		if f.State == doctor.Well && d.quiet {
			continue
		}
		if f.Area != last {
			if last != "" {
				fmt.Fprintln(d.io.out)
			}
			fmt.Fprintln(d.io.out, cmp.Or(titles[f.Area], string(f.Area)))
			last = f.Area
		}
		d.printFinding(&f)
	}
	if last != "" {
		fmt.Fprintln(d.io.out)
	}
	var err error
	switch {
	case r.Wrong == 1:
		_, err = fmt.Fprintln(d.io.out, "1 thing is wrong.")
	case r.Wrong > 1:
		_, err = fmt.Fprintf(d.io.out, "%d things are wrong.\n", r.Wrong)
	default:
		_, err = fmt.Fprintln(d.io.out, "Everything is well.")
	}
	return err
}

func (d *reportPrinter) printFinding(f *doctor.Diagnosis) {
	what := printable(homePaths(f.What, d.home), maxFinding)
	subject := printable(homePath(f.Subject, d.home), maxFinding)
	fmt.Fprint(d.io.out, "  ")
	d.printState(f.State)
	fmt.Fprintf(d.io.out, "  %s: %s\n", subject, what)
	if f.Remedy != "" {
		fmt.Fprintf(d.io.out, "%s→ %s\n", indentRemedy, printable(homePaths(f.Remedy, d.home), maxFinding))
	}
	if f.Command != "" { // a command is a line to copy, so its paths stay whole
		fmt.Fprintf(d.io.out, "%s  $ %s\n", indentRemedy, printable(f.Command, 2*maxFinding))
	}
	for _, line := range f.Output {
		fmt.Fprintf(d.io.out, "%s| %s\n", indentRemedy, printable(strings.ReplaceAll(line, "\t", "    "), maxOutputLine))
	}
}

// printState prints the word for a state, in columns of equal width. On a terminal it has a colour.
func (d *reportPrinter) printState(s doctor.Condition) {
	text, color := "well ", "32"
	switch s {
	case doctor.Wrong:
		text, color = "WRONG", "1;31"
	case doctor.Note:
		text, color = "note ", "33"
	}
	if d.io.hasColor() {
		fmt.Fprint(d.io.raw, "\x1b["+color+"m"+text+"\x1b[0m")
		return
	}
	fmt.Fprint(d.io.out, text)
}

// homePaths returns a text with ~ in the place of the home folder.
func homePaths(text, home string) string {
	if home == "" || home == "/" {
		return text
	}
	return strings.ReplaceAll(text, home+string(filepath.Separator), "~"+string(filepath.Separator))
}
