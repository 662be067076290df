package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/app"
)

type statusCmd struct {
	output
	URL string `name:"url" help:"Where Switchboard runs." default:"http://127.0.0.1:7420" placeholder:"URL"`
}

// Run asks a running Switchboard how it is. It exits 1 when a server is not
// ready, the last reload was refused or decisions cannot be recorded.
func (s *statusCmd) Run(ctx context.Context, io streams, _ *slog.Logger) error {
	var st app.Status
	if err := (&target{URL: s.URL}).inspect(ctx, "/v1/status", &st); err != nil {
		return err
	}
	bad := st.Refused != nil || len(st.Catalog.Faults) > 0 || st.Records != nil && st.Records.Fault != ""
	for _, server := range st.Servers {
		bad = bad || server.State != "ready"
	}
	if s.JSON {
		if err := json.NewEncoder(io.raw).Encode(st); err != nil {
			return err
		}
	} else {
		writeStatus(io, &st)
	}
	if bad {
		return errNo
	}
	return nil
}

// remarks is what there is to say of a server in words.
func remarks(s *app.ServerStatus) string {
	var said []string
	if f := s.LastFailure; f != nil {
		what := string(f.Stage)
		if f.Message != "" {
			what += ": " + printable(f.Message, 200)
		}
		said = append(said, fmt.Sprintf("%s (%s ago)", what, time.Since(f.Since).Round(time.Second)))
	}
	if s.Failed > 0 {
		said = append(said, count(s.Failed, "attempt")+" failed")
	}
	if s.Note != "" {
		said = append(said, printable(s.Note, 200))
	}
	return strings.Join(said, "; ")
}

func writeStatus(io streams, st *app.Status) {
	fmt.Fprintf(io.out, "switchboard %s, up %s, %s from %s\n", st.Version,
		time.Since(st.Started).Round(time.Second), count(st.Catalog.Tools, "tool"), count(len(st.Servers), "server"))
	if r := st.Refused; r != nil {
		fmt.Fprintf(io.out, "\nThe configuration that was read %s was refused; the one from %s runs on. It has been so for %s:\n%s\n",
			r.When.Format(time.DateTime), st.Loaded.Format(time.DateTime), time.Since(r.Since).Round(time.Second), cmp.Or(r.Why, "its operator's log says why"))
	}
	if r := st.Records; r != nil && r.Lost > 0 {
		fmt.Fprintf(io.out, "\n%s not recorded in %s: %s\n", count(r.Lost, "decision"), r.Folder, cmp.Or(r.Fault, "more were made at once than could be written"))
	} else if r != nil && r.Fault != "" {
		fmt.Fprintf(io.out, "\nDecisions cannot be recorded in %s: %s\n", r.Folder, r.Fault)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nSERVER\tSTATE\tTOOLS\tSPEAKS\tRESTARTS\tREMARKS")
	for _, s := range st.Servers {
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
		speaks := s.Version
		if s.SSE {
			speaks += " (HTTP+SSE)"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", s.ID, s.State, tools, speaks, s.Restarts, remarks(&s))
	}
	if len(st.Policies) > 0 {
		fmt.Fprintln(w, "\nTENANT\tPOLICY\tLOADED")
		for _, p := range st.Policies {
			fmt.Fprintf(w, "%s\t%.19s\t%s\n", p.Tenant, p.Digest, p.Loaded.Format(time.DateTime))
		}
	}
	if len(st.Tasks) > 0 {
		fmt.Fprintln(w, "\nTENANT\tTASK\tRUNS\tTOOLS\t")
		for _, t := range st.Tasks {
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\n", t.Tenant, t.Task, t.Runs, t.Tools, t.Why)
		}
	}
	_ = w.Flush() // a terminal that is gone needs no table
	for i, f := range st.Catalog.Faults {
		if i == 0 {
			fmt.Fprint(io.out, "\n", faultsHead, "\n")
		}
		fmt.Fprintln(io.out, " ", f)
	}
}
