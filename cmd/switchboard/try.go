package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"

	"github.com/summit-switchboard/switchboard/internal/admin/trial"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type tryCmd struct {
	serverFlags
	Tenant    switchboard.TenantID `help:"The tenant. Without it: the one that you have a task in." placeholder:"ID"`
	Task      switchboard.TaskID   `help:"The task. Without it, your first one." placeholder:"ID"`
	Tool      string               `arg:"" optional:"" help:"The tool to call. Without it, your tools are listed."`
	Arguments string               `arg:"" optional:"" help:"Its arguments, a JSON object." default:"{}"`
	Yes       bool                 `help:"Make the call although it may change something."`
	Result    string               `help:"Call nothing: print what an earlier call got, by its key, which its page has in the address." placeholder:"KEY"`
}

// Run lists the tools that the person can call at a running Switchboard, calls one, or prints what a call got.
func (t *tryCmd) Run(ctx context.Context, io streams) error {
	at := t.asTarget()
	query := url.Values{}
	if t.Tenant != "" {
		query.Set("tenant", string(t.Tenant))
	}
	if t.Result != "" {
		out := &trial.TryOutcome{}
		if err := at.fetchInto(ctx, "/v1/try/"+url.PathEscape(t.Result)+"?"+query.Encode(), out); err != nil {
			return err
		}
		return t.print(io, out)
	}
	if !json.Valid([]byte(t.Arguments)) || t.Arguments[0] != '{' {
		return usageError{fmt.Errorf(`the arguments are not a JSON object, such as '{"path": "README.md"}'`)}
	}
	asked := url.Values{"tool": {t.Tool}}
	if t.Tenant != "" {
		asked.Set("tenant", string(t.Tenant))
	}
	if t.Task != "" {
		asked.Set("task", string(t.Task))
	}
	offer := &trial.TryOffer{}
	if err := at.fetchInto(ctx, "/v1/try?"+asked.Encode(), offer); err != nil {
		return err
	}
	if t.Tool == "" {
		return t.list(io, offer)
	}
	for i := range offer.Tools {
		if tool := &offer.Tools[i]; tool.Name == t.Tool && tool.Changes && !t.Yes {
			fmt.Fprintf(io.err, "switchboard: nothing was called: a call of %s by %s may change something. To make it, add --yes\n", printable(tool.Name, 200), printable(offer.Principal, 200))
			return errNegative
		}
	}
	if offer.Tenant != "" {
		query.Set("tenant", string(offer.Tenant)) // that the tools are of
	}
	answer, err := at.changeAdmin(ctx, http.MethodPost, "/v1/try?"+query.Encode(), trial.TryCall{Task: offer.Task, Tool: t.Tool, Arguments: json.RawMessage(t.Arguments)})
	if err != nil {
		return err
	}
	out := &trial.TryOutcome{}
	if err := json.Unmarshal(answer.body, out); err != nil {
		return err
	}
	return t.print(io, out)
}

// list prints the tools.
func (t *tryCmd) list(io streams, offer *trial.TryOffer) error {
	if t.JSON {
		return json.NewEncoder(io.raw).Encode(offer)
	}
	if r := offer.Refused; r != nil {
		fmt.Fprintf(io.err, "switchboard: %s: %s. %s\n", r.Code, printable(r.Text, 2000), printable(r.Hint, 2000))
		return errNegative
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOOL\tSERVER\tA CALL\tWHAT IT DOES")
	for i := range offer.Tools {
		tool, does := &offer.Tools[i], "only reads"
		if tool.Changes {
			does = "may change something"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", printable(tool.Name, 200), tool.Server, does, summaryLine(tool.Description))
	}
	return w.Flush()
}

// print prints what a call got. A call without a result, or whose tool has failed, exits 1.
func (t *tryCmd) print(io streams, out *trial.TryOutcome) error {
	failed := out.IsError || out.Refused != nil
	switch {
	case t.JSON:
		if err := json.NewEncoder(io.raw).Encode(out); err != nil {
			return err
		}
	case out.Refused != nil:
		fmt.Fprintf(io.err, "switchboard: %s: %s\n", out.Refused.Code, printable(out.Refused.Text, 4000))
	default:
		printTried(io.out, out)
	}
	if out.Receipt != "" && !t.JSON {
		fmt.Fprintf(io.err, "switchboard: receipt %s\n", out.Receipt)
	}
	if failed {
		return errNegative
	}
	return nil
}

// printTried prints the texts of a result, or the result itself.
func printTried(w io.Writer, out *trial.TryOutcome) {
	if out.Cut {
		fmt.Fprintf(w, "%s\n[the result has %d bytes; this is its beginning]\n", out.Beginning, out.Bytes)
		return
	}
	var r callResult
	texts := json.Unmarshal(out.Result, &r) == nil && len(r.Content) > 0
	for _, block := range r.Content {
		texts = texts && block.Type == "text"
	}
	if !texts {
		fmt.Fprintf(w, "%s\n", out.Result)
		return
	}
	for _, block := range r.Content {
		fmt.Fprintln(w, block.Text)
	}
}
