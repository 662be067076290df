// Package doctor finds what is wrong with an installation of Switchboard, and says what to do about it.
//
// It decides which things are examined, when each is well, and which remedy each fault has. It changes nothing: it makes no file, leaves
// no lock, and runs only programs that a configured server needs. Each look is bounded in time, bytes and number. The text of a finding holds no secret of
// the configuration.
//
// Other packages know the parts: config finds the faults of files, upstream starts servers, store checks a store, serving and join know which processes
// serve, connect knows the files of clients. How findings are printed is decided by the command.
package doctor

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/connect"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/serving"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/upstream/link"
)

// A Condition says how a thing is.
type Condition string

// The states.
const (
	Well  Condition = "well"
	Wrong Condition = "wrong"
	Note  Condition = "note" // nothing is wrong, but the reader may want to know it, or to change it
)

// An Area holds the findings about one kind of thing.
type Area string

// The areas, in the order of the output.
const (
	Configuration Area = "configuration"
	Files         Area = "files"
	Store         Area = "store"
	Address       Area = "address"
	Running       Area = "running"
	Clock         Area = "clock"
	Programs      Area = "programs"
	Servers       Area = "servers"
	Clients       Area = "clients"
)

// Areas returns the areas in their order.
func Areas() []Area {
	return []Area{Configuration, Files, Store, Address, Running, Clock, Programs, Servers, Clients}
}

// A Diagnosis says how one thing is.
type Diagnosis struct {
	Area    Area      `json:"area"`
	Subject string    `json:"subject"` // names the thing: a file, a program, the id of a server
	State   Condition `json:"state"`
	What    string    `json:"what"` // what was found

	// Cause is a word for programs. It names the kind of fault, and never changes.
	Cause string `json:"cause,omitempty"`

	// Remedy says what to do. A finding that is wrong has one.
	Remedy string `json:"remedy,omitempty"`

	// Command is a command line for a shell that carries the remedy out, or "".
	Command string `json:"command,omitempty"`

	// Output are the last lines that a server wrote to its stderr, or, for a server over HTTP that cannot be reached, the steps of a
	// connection to it up to the one that fails.
	Output []string `json:"output,omitempty"`
}

// A Report is everything that was found.
type Report struct {
	Well     bool        `json:"well"` // nothing is wrong
	Wrong    int         `json:"wrong"`
	Findings []Diagnosis `json:"findings"`
}

// Options say what to examine, and how. Zero bounds take the defaults.
type Options struct {
	// Config is the absolute path of the configuration, and Given the words on the command line that name it, such as "--config FILE".
	Config string
	Given  string

	// Load reads the configuration with all its faults. The configuration is nil if it cannot be served.
	Load func(context.Context) (*config.Config, error)

	// Data is the absolute path of the data folder, or "" if none is used.
	Data string

	// Identity is what a client of this program and configuration must have in common with a process that it joins; see package serving.
	Identity string

	// Program is the absolute path of this program, and Version its version.
	Program, Version string

	// Made is when this program was made: no clock shows an earlier time. The zero time means that it is not known.
	Made time.Time

	Host *connect.Host

	// ReadStatus returns the status of a process that serves from the data folder.
	ReadStatus func(ctx context.Context, row serving.Neighbor) (*ServingStatus, error)

	// OpenTokens opens what gives the requests to servers over HTTP their tokens. kept says to use the connections that are kept in the store; nil means
	// that there are none. Without kept, every server is one that nobody has connected.
	OpenTokens func(ctx context.Context, cfg *config.Config, kept bool) (*TokenSource, error)

	Wait     time.Duration // for the answer of one server; 0 means DefaultWait
	Parallel int           // servers that are started at the same time; 0 means DefaultParallel

	// Busy, if not nil, is called with the things that are being looked at, whenever they change. Calls do not overlap.
	Busy func(subjects []string)
}

// A ServingStatus is the status of a process that serves from the data folder.
type ServingStatus struct {
	Servers []upstream.ServerStatus
	Notices []notice.Backlog // of the recipients for whom some wait, or whose last attempt failed
}

// A TokenSource gives the requests to servers their tokens; see upstream.Options.
type TokenSource struct {
	Of    func(*switchboard.Server) link.Credentials
	Close func() error
}

// The defaults of Options.
const (
	DefaultWait     = 60 * time.Second
	DefaultParallel = 6
)

// An examination is one run of all checks.
type examination struct {
	Options
	cfg *config.Config // nil if it cannot be served

	mu       sync.Mutex
	findings []Diagnosis
	busy     []string
}

// Examine looks at everything. Only a cancelled context is an error.
func Examine(ctx context.Context, o Options) (*Report, error) {
	if o.Wait <= 0 {
		o.Wait = DefaultWait
	}
	if o.Parallel <= 0 {
		o.Parallel = DefaultParallel
	}
	x := &examination{Options: o}
	configCheck{x}.checkConfig(ctx)
	run := x.findRunning()
	var parts sync.WaitGroup
	for _, part := range []func(){
		func() { fileCheck{x}.checkFiles() },
		func() { storeLook{x}.checkStore(ctx, run) },
		func() { addressCheck{x}.checkAddress(ctx, run) },
		func() { addressCheck{x}.checkRunning(ctx, run) },
		func() { configCheck{x}.checkKeys() },
		func() { clockCheck{x}.checkClock(ctx) },
		func() { clientCheck{x}.checkClients(ctx, run) },
		func() { serverCheck{x}.checkServers(ctx, run, programCheck{x}.checkPrograms(ctx)) },
	} {
		parts.Go(part)
	}
	parts.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return x.report(), nil
}

// add adds a finding.
func (x *examination) add(f Diagnosis) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.findings = append(x.findings, f)
}

// well adds a thing that is well.
func (x *examination) well(g Area, subject, what string) {
	x.add(Diagnosis{Area: g, Subject: subject, State: Well, What: what})
}

// begin says that a thing is being looked at, until the returned function is called.
func (x *examination) begin(subject string) (end func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy = append(x.busy, subject)
	x.tellBusy()
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if i := slices.Index(x.busy, subject); i >= 0 {
			x.busy = slices.Delete(x.busy, i, i+1)
		}
		x.tellBusy()
	}
}

// tellBusy calls Options.Busy. The caller holds x.mu.
func (x *examination) tellBusy() {
	if x.Busy != nil {
		x.Busy(slices.Clone(x.busy))
	}
}

// report sorts the findings: by area, then by subject. Those of one subject stay in their order.
func (x *examination) report() *Report {
	r := &Report{Findings: x.findings}
	areas := Areas()
	slices.SortStableFunc(r.Findings, func(a, b Diagnosis) int {
		if n := slices.Index(areas, a.Area) - slices.Index(areas, b.Area); n != 0 {
			return n
		}
		return strings.Compare(a.Subject, b.Subject)
	})
	hide := newSecretHider(x.cfg)
	for i := range r.Findings {
		hide.finding(&r.Findings[i])
		if r.Findings[i].State == Wrong {
			r.Wrong++
		}
	}
	r.Well = r.Wrong == 0
	return r
}

// A secretHider hides the secrets of a configuration in texts that did not pass package upstream.
type secretHider struct{ replacer *strings.Replacer }

// shortestSecret is the length of the shortest secret that is hidden: shorter ones occur in words by chance.
const shortestSecret = 6

func newSecretHider(cfg *config.Config) secretHider {
	if cfg == nil {
		return secretHider{strings.NewReplacer()}
	}
	var pairs []string
	hide := func(s switchboard.Secret) {
		if text := s.Reveal(); len(text) >= shortestSecret {
			pairs = append(pairs, text, "***")
		}
	}
	for _, s := range cfg.Servers {
		for name, v := range s.Env {
			if switchboard.CredentialName(name) {
				hide(v)
			}
		}
		for _, v := range s.Headers {
			hide(v)
		}
		for _, v := range s.Network.ProxyPassword() {
			hide(v)
		}
	}
	for _, r := range cfg.Recipients {
		hide(r.URL)
		hide(r.Secret)
	}
	hide(cfg.Cluster.Secret)
	return secretHider{strings.NewReplacer(pairs...)}
}

func (m secretHider) finding(f *Diagnosis) {
	for _, text := range []*string{&f.Subject, &f.What, &f.Remedy, &f.Command} {
		*text = m.replacer.Replace(*text)
	}
	for i := range f.Output {
		f.Output[i] = m.replacer.Replace(f.Output[i])
	}
}

// shellWord quotes a word for a shell, if that is necessary.
func shellWord(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@%+=,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// commandLine returns words as one command line.
func commandLine(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}

// ours returns a command line of Switchboard for this configuration.
func (x *examination) ours(words ...string) string {
	line := commandLine(append([]string{"switchboard"}, words...)...)
	if x.Given != "" {
		line += " " + x.Given
	}
	return line
}
