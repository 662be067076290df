package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

type statusCmd struct {
	serverFlags
	Watch bool `help:"Ask again every two seconds, until ctrl-C."`
}

// watchInterval is the interval of --watch.
const watchInterval = 2 * time.Second

// Run prints the status of a running Switchboard. It exits 1 if a server is not healthy, the last
// reload was refused, an atom is red, decisions cannot be recorded or notices cannot be delivered. With Watch it repeats until it is stopped, which
// is no failure.
func (s *statusCmd) Run(ctx context.Context, io streams, _ *slog.Logger) error {
	if s.Watch {
		return s.printRepeatedly(ctx, io, watchInterval)
	}
	return s.printOnce(ctx, io)
}

func (s *statusCmd) printOnce(ctx context.Context, io streams) error {
	var st admin.StatusReport
	if err := s.asTarget().fetchInto(ctx, "/v1/status", &st); err != nil {
		return err
	}
	bad := st.Refused != nil || len(st.Faulty) > 0 || len(st.Catalog.Faults) > 0 || st.Records != nil && st.Records.Fault() != "" || st.Store != nil && st.Store.Fault != "" || len(st.DifferingReplicas()) > 0
	for i := range st.Notices {
		bad = bad || st.Notices[i].Undelivered()
	}
	for i := range st.Atoms {
		bad = bad || st.Atoms[i].State == capability.Red
	}
	for _, server := range st.Servers {
		bad = bad || server.State != "ready" || server.Health.State != "healthy"
	}
	if s.JSON {
		if err := json.NewEncoder(io.raw).Encode(st); err != nil {
			return err
		}
	} else {
		writeStatus(io, &st)
	}
	if bad {
		return errNegative
	}
	return nil
}

// clearScreen is the sequence that clears a terminal.
const clearScreen = "\x1b[H\x1b[2J"

// printRepeatedly prints the status at each interval. On a terminal each answer replaces the one
// before. After a first answer it continues even if later requests fail.
func (s *statusCmd) printRepeatedly(ctx context.Context, io streams, every time.Duration) error {
	terminal := isTerminal(io.out)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for first := true; ; first = false {
		var text, raw strings.Builder
		err := s.printOnce(ctx, streams{in: io.in, out: &text, err: io.err, raw: &raw})
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil || errors.Is(err, errNegative):
		case first:
			return err
		default:
			fmt.Fprintln(&text, err)
		}
		switch {
		case s.JSON:
			fmt.Fprint(io.raw, raw.String())
			if raw.Len() == 0 {
				fmt.Fprint(io.err, text.String())
			}
		case terminal:
			fmt.Fprint(io.raw, clearScreen)
			fmt.Fprint(io.out, text.String())
		default:
			fmt.Fprint(io.out, time.Now().Format(time.DateTime), "\n", text.String(), "\n")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// sinceText returns the time since t.
func sinceText(t time.Time) string { return time.Since(t).Round(time.Second).String() }

// healthRemarks describes a server's health in words, besides its state.
func healthRemarks(h *health.Status) (said []string) {
	if h.Cause != nil {
		said = append(said, causeText(h.Cause.Stage, h.Cause.Message, h.Cause.Since))
	}
	if !h.NextProbe.IsZero() {
		said = append(said, "probed again in "+max(time.Until(h.NextProbe), 0).Round(time.Second).String())
	}
	for _, t := range h.Tools {
		s := "tool " + printable(t.Tool, 64) + " is in " + string(t.State)
		if t.Cause != nil {
			s += ", " + causeText(t.Cause.Stage, t.Cause.Message, t.Cause.Since)
		}
		said = append(said, s)
	}
	if m := movedText(h); m != "" {
		said = append(said, m+" served by others")
	}
	return said
}

// causeText describes why something is not healthy.
func causeText(stage, message string, since time.Time) string {
	if message != "" {
		stage += ": " + printable(message, 200)
	}
	return stage + " (" + sinceText(since) + " ago)"
}

// movedText returns the share of a server's calls that other servers have served.
func movedText(h *health.Status) string {
	if h.MovedAway == 0 {
		return ""
	}
	share, form := 100*float64(h.MovedAway)/float64(max(h.Calls, h.MovedAway)), "%.0f %% of %s"
	if share < 1 {
		form = "%.2g %% of %s"
	}
	return fmt.Sprintf(form, share, count(int(h.Calls), "call"))
}

// serverRemarks describes a server in words.
func serverRemarks(s *admin.ServerStatus) string {
	said := healthRemarks(&s.Health)
	if f := s.LastFailure; f != nil && s.Health.Cause == nil {
		said = append(said, causeText(string(f.Stage), f.Message, f.Since))
	}
	if s.Failed > 0 {
		said = append(said, count(s.Failed, "attempt")+" failed")
	}
	if s.Note != "" {
		said = append(said, printable(s.Note, 200))
	}
	return strings.Join(said, "; ")
}

func writeStatus(io streams, st *admin.StatusReport) {
	fmt.Fprintf(io.out, "switchboard %s, up %s, %s from %s\n", st.Version,
		time.Since(st.Started).Round(time.Second), count(st.Catalog.Tools, "tool"), count(len(st.Servers), "server"))
	if st.Admin != "" {
		fmt.Fprintf(io.out, "admin address: %s%s\n", schemeOf(st.AdminTLS), st.Admin)
	}
	if r := st.Refused; r != nil {
		fmt.Fprintf(io.out, "\nThe configuration that was read %s was refused; the one from %s runs on. It has been so for %s:\n%s\n",
			r.When.Format(time.DateTime), st.Loaded.Format(time.DateTime), time.Since(r.Since).Round(time.Second), cmp.Or(r.Why, "its operator's log says why"))
	}
	for _, p := range st.Faulty {
		fmt.Fprintf(io.out, "\n%s is faulty: %s. It has been so for %s.\n", p.Part, p.State, time.Since(p.Since).Round(time.Second))
		for _, f := range p.Faults {
			fmt.Fprintln(io.out, " ", printable(f, 400))
		}
	}
	for _, w := range st.Warnings {
		fmt.Fprintln(io.out, "warning:", printable(w, 400))
	}
	if y := st.System; y != nil && !y.Tested {
		fmt.Fprintf(io.out, "system: %s, on which the tests of Switchboard have never been run (switchboard docs platforms)\n", y.Name)
	}
	if y := st.System; y != nil {
		for _, l := range y.Lacks {
			fmt.Fprintf(io.out, "missing here: %s: %s\n", l.Feature, l.Effect)
		}
	}
	if r := st.Records; r != nil {
		if why := r.ReceiptFault(); why != "" {
			fmt.Fprintf(io.out, "\nReceipts of node %s cannot be written as they should: %s\n", r.Receipts.Node, why)
		}
		if why := r.ArchiveFault(); why != "" {
			fmt.Fprintf(io.out, "\nOn node %s, %s\n", r.Receipts.Node, why)
		}
		if n := r.Receipts.Lost + int64(r.Archive.Lost); n > 0 {
			fmt.Fprintf(io.out, "\n%s lost: they were created faster than they could be written, or writing failed\n", count(int(n), "record"))
		}
	}
	for i := range st.Notices {
		n := &st.Notices[i]
		fmt.Fprintf(io.out, "notices: %s: %s\n", printable(n.Recipient, 64), printable(n.String(), 400))
	}
	writeAtoms(io.out, st.Atoms)
	if k := st.Store; k != nil {
		fmt.Fprintf(io.out, "store: %s, %s; what is acknowledged outlives: %s\n", k.Kind, printable(k.Where, 200), k.Survives)
		if k.Unopened > 0 {
			fmt.Fprintf(io.out, "%s read from the store did not open and were not used: another program writes to it, or cluster.secret was changed; "+
				"switchboard store check names them\n", count(int(k.Unopened), "value"))
		}
		if r := st.Replica; r != nil {
			fmt.Fprintf(io.out, "replica: %s at %s\n", r.ID, printable(r.Address, 64))
		}
		if len(st.Replicas) > 0 {
			var all []string
			for _, r := range st.Replicas {
				all = append(all, r.ID+" at "+printable(r.Address, 64))
			}
			fmt.Fprintf(io.out, "with %s: %s\n", count(len(st.Replicas), "other replica"), strings.Join(all, ", "))
		}
		if others := st.DifferingReplicas(); len(others) > 0 {
			fmt.Fprintf(io.out, "\nReplicas decide by different configurations. This one's is %.19s; %s\n", st.Digest, strings.Join(others, ", "))
		}
		if k.Fault != "" {
			fmt.Fprintf(io.out, "\nThe store has been unavailable for %s; what needs it is refused with SB-ROUT-004: %s\n", sinceText(k.Since), printable(k.Fault, 200))
		}
	}
	fmt.Fprintln(io.out)
	writeServers(io.out, st.Servers)
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	if len(st.Policies) > 0 {
		fmt.Fprintln(w, "\nTENANT\tPOLICY\tLOADED")
		for _, p := range st.Policies {
			fmt.Fprintf(w, "%s\t%.19s\t%s\n", p.Tenant, p.Digest, p.Loaded.Format(time.DateTime))
		}
	}
	if len(st.Tasks) > 0 {
		fmt.Fprintln(w, "\nTENANT\tTASK\tRUNS\tTOOLS\tCONTEXT\tLISTS\tIN FULL\t")
		for _, t := range st.Tasks {
			why := t.Why
			if why == "" && len(t.Withheld) > 0 {
				why = "withheld, since it has grown beyond the token budget: " + strings.Join(t.Withheld, ", ")
			}
			c := &t.Context
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d tokens\t%d\t%d\t%s\n", t.Tenant, t.Task, t.Runs, t.Tools, c.Tokens, c.Lists.Tokens, c.FullLists.Tokens, why)
		}
	}
	_ = w.Flush() // without the terminal the table is not needed
	for i, f := range st.Catalog.Faults {
		if i == 0 {
			fmt.Fprint(io.out, "\n", faultsHead, "\n")
		}
		fmt.Fprintln(io.out, " ", f)
	}
}

// writeAtoms prints how many atoms are in which state, and a line for each that is not fresh.
func writeAtoms(w io.Writer, all []atom.Summary) {
	if len(all) == 0 {
		return
	}
	n := map[capability.State]int{}
	for i := range all {
		n[all[i].State]++
	}
	var counts []string
	for _, state := range capability.States {
		if n[state] > 0 {
			counts = append(counts, fmt.Sprint(n[state], " ", state))
		}
	}
	fmt.Fprintf(w, "atoms: %s\n", strings.Join(counts, ", "))
	for i := range all {
		a := &all[i]
		said := string(a.State)
		switch {
		case a.State == capability.Fresh:
			continue
		case a.State == capability.Red && !a.Since.IsZero():
			said += " for " + sinceText(a.Since)
		case a.State == capability.Stale:
			said += ", probed " + sinceText(a.Probed) + " ago"
		}
		if a.Reason != "" {
			said += ": " + printable(a.Reason, 200)
		}
		fmt.Fprintf(w, "  %s: %s\n", a.ID, said)
	}
}

// writeServers prints the state of each server.
func writeServers(out io.Writer, servers []admin.ServerStatus) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERVER\tSTATE\tSINCE\tTOOLS\tSPEAKS\tWALLS\tRESTARTS\tREMARKS")
	for _, s := range servers {
		tools := fmt.Sprint(s.Served)
		if s.Refused > 0 {
			tools += fmt.Sprintf(", %d refused", s.Refused)
		}
		if s.Resources > 0 {
			tools += ", " + count(s.Resources, "resource")
		}
		if s.Prompts > 0 {
			tools += ", " + count(s.Prompts, "prompt")
		}
		if s.Findings > 0 {
			tools += ", " + count(s.Findings, "finding")
		}
		speaks := s.Version
		if s.SSE {
			speaks += " (HTTP+SSE)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", s.ID, s.Health.State, sinceText(s.Health.Since), tools, speaks, wallsText(s.Walls), s.Restarts, serverRemarks(&s))
	}
	_ = w.Flush() // without the terminal the table is not needed
	for _, s := range servers {
		writeHeld(out, &s)
		if s.LastFailure != nil {
			writeTrouble(out, &s)
		}
	}
	writeWalls(out, servers)
}

// writeHeld prints how many definitions of a server are not plainly in use, and the command that names them.
func writeHeld(out io.Writer, s *admin.ServerStatus) {
	var said []string
	for _, one := range []struct {
		n    int
		what string
	}{{s.Held.Suspended, "suspended"}, {s.Held.Frozen, "frozen"}, {s.Held.OnTrial, "on trial"}, {s.Held.New, "not let in"}, {s.Held.KeptOut, "kept out by the operator's rules"}} {
		if one.n > 0 {
			said = append(said, fmt.Sprint(one.n, " ", one.what))
		}
	}
	if said != nil {
		fmt.Fprintf(out, "\n%s has definitions to look at: %s (switchboard pins list --changed --server %s)\n", s.ID, strings.Join(said, ", "), s.ID)
	}
}

// wallsText describes the walls around the processes of a server: their level, and how many are missing.
func wallsText(all []wall.InEffect) string {
	var said []string
	for _, w := range all {
		text := string(w.Level)
		if n := len(w.Missing); n > 0 {
			text += fmt.Sprintf(", %d missing", n)
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return strings.Join(said, "; ")
}

// writeWalls prints the walls that this machine lacks, and the folders that the settings of servers name and in which their programs can make
// nothing new. Servers with the same trouble share a line.
func writeWalls(out io.Writer, servers []admin.ServerStatus) {
	lacks := map[string][]string{} // servers, by walls and the reason
	fixed := map[string][]string{} // servers, by folder
	add := func(to map[string][]string, key string, id switchboard.ServerID) {
		if !slices.Contains(to[key], string(id)) {
			to[key] = append(to[key], string(id))
		}
	}
	for _, s := range servers {
		for _, w := range s.Walls {
			by := map[string][]string{} // walls, by the reason
			for _, m := range w.Missing {
				by[m.Why] = append(by[m.Why], m.Wall)
			}
			for why, walls := range by {
				add(lacks, "No wall for "+strings.Join(walls, ", ")+": "+printable(why, 200), s.ID)
			}
			for _, folder := range w.Fixed {
				add(fixed, folder, s.ID)
			}
		}
	}
	for _, lack := range slices.Sorted(maps.Keys(lacks)) {
		fmt.Fprintf(out, "\n%s (servers: %s)\n", lack, strings.Join(lacks[lack], ", "))
	}
	for _, folder := range slices.Sorted(maps.Keys(fixed)) {
		fmt.Fprintf(out, "\nNo new files in %s, since something in it is hidden from programs of servers: switchboard docs walls (servers: %s)\n", printable(folder, 200), strings.Join(fixed[folder], ", "))
	}
}

// writeTrouble prints the remedy for a server, and the last lines of its stderr.
func writeTrouble(out io.Writer, s *admin.ServerStatus) {
	if do := s.LastFailure.Remedy; do != "" {
		fmt.Fprintf(out, "\n%s: %s\n", s.ID, printable(do, 1000))
	}
	for i, line := range s.LastFailure.Stderr {
		if i == 0 {
			fmt.Fprintf(out, "\n%s wrote last to its stderr:\n", s.ID)
		}
		fmt.Fprintf(out, "    %s\n", printable(strings.ReplaceAll(line, "\t", "    "), 400))
	}
}
