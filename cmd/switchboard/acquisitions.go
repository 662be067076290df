package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/acquire"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

type acquisitionsCmd struct {
	List   acquisitionsListCmd   `cmd:"" help:"List the dossiers: what was looked for, and how far each is."`
	Start  acquisitionsStartCmd  `cmd:"" help:"Have a capability looked for that nothing here gives."`
	Show   acquisitionsShowCmd   `cmd:"" help:"Show one dossier: what was found, what was seen of it in walls, and which gate it has passed."`
	Review acquisitionsReviewCmd `cmd:"" help:"Say yes, no, or changes with a note, to a dossier that waits."`
}

const acquisitionsPath = "/v1/acquisitions"

// shownDossier is a dossier as the admin API answers it.
type shownDossier struct {
	acquire.Dossier
	Text string `json:"text"`
}

type acquisitionsListCmd struct{ serverFlags }

// Run prints the dossiers.
func (c *acquisitionsListCmd) Run(ctx context.Context, io streams) error {
	all, err := fetchList[acquire.Dossier](ctx, c.asTarget(), acquisitionsPath, "dossiers", nil)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(all)
	}
	if len(all) == 0 {
		_, err := fmt.Fprintln(io.out, "nothing was looked for")
		return err
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "DOSSIER\tSTATUS\tPHASE\tTENANT\tCAPABILITY\tBY\tMADE\tCHOSEN\t")
	for i := range all {
		d := &all[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", d.ID, d.StatusAt(time.Now()), d.Phase, d.Tenant, printable(d.Capability, 60), printable(d.Seeker.ID, 40), clockText(d.Created), printable(d.Chosen, 60))
	}
	return w.Flush()
}

type acquisitionsStartCmd struct {
	serverFlags
	Capability string               `arg:"" help:"What is lacking: a verb and a resource, such as \"search internet\"."`
	Tenant     switchboard.TenantID `required:"" help:"Who lacks it." placeholder:"TENANT"`
	Reason     string               `help:"Why, for the person who decides." placeholder:"TEXT"`
	Server     string               `help:"The one server of a registry to try, by its NAME there. Without it: the likeliest." placeholder:"NAME"`
}

// Run opens a dossier.
func (c *acquisitionsStartCmd) Run(ctx context.Context, io streams) error {
	body := map[string]string{"tenant": string(c.Tenant), "capability": c.Capability}
	if c.Reason != "" {
		body["reason"] = c.Reason
	}
	if c.Server != "" {
		body["server"] = c.Server
	}
	d, err := c.sendDossier(ctx, io, acquisitionsPath, body)
	if err != nil || c.JSON {
		return err
	}
	_, err = fmt.Fprintf(io.out, "dossier %s is open; switchboard acquisitions show %s\n", d.ID, d.ID)
	return err
}

// sendDossier sends a step, and returns what has become of the dossier. With --json it prints that.
func (f *serverFlags) sendDossier(ctx context.Context, io streams, path string, body any) (*shownDossier, error) {
	answer, err := f.asTarget().changeAdmin(ctx, http.MethodPost, path, body)
	if err != nil {
		return nil, err
	}
	if f.JSON {
		if _, err := io.raw.Write(answer.body); err != nil {
			return nil, err
		}
	}
	d := &shownDossier{}
	return d, json.Unmarshal(answer.body, d)
}

// dossierFlags name a dossier.
type dossierFlags struct {
	serverFlags
	ID string `arg:"" name:"dossier" help:"The dossier, as acquisitions list shows it."`
}

type acquisitionsShowCmd struct{ dossierFlags }

// Run prints a dossier.
func (c *acquisitionsShowCmd) Run(ctx context.Context, io streams) error {
	var d shownDossier
	if err := c.asTarget().fetchInto(ctx, acquisitionsPath+"/"+url.PathEscape(c.ID), &d); err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(io.raw).Encode(d)
	}
	_, err := fmt.Fprint(io.out, d.Text)
	return err
}

type acquisitionsReviewCmd struct {
	dossierFlags
	Answer acquire.ReviewAnswer `arg:"" enum:"yes,no,changes" help:"yes, no or changes."`
	Note   string               `help:"Your words, for who asked. No and changes need them." placeholder:"TEXT"`
	Scope  string               `enum:",run,task" default:"" help:"Of a yes: the capability is for the run that asked, or for all runs of its task." placeholder:"run|task"`
	For    time.Duration        `help:"How long a yes to the capability is good; 8h if absent." placeholder:"TIME"`
}

// Run sends the review.
func (c *acquisitionsReviewCmd) Run(ctx context.Context, io streams) error {
	body := map[string]string{"answer": string(c.Answer)}
	for key, value := range map[string]string{"note": c.Note, "scope": c.Scope} {
		if value != "" {
			body[key] = value
		}
	}
	if c.For > 0 {
		body["for"] = c.For.String()
	}
	d, err := c.sendDossier(ctx, io, acquisitionsPath+"/"+url.PathEscape(c.ID)+"/review", body)
	if err != nil || c.JSON {
		return err
	}
	more := ""
	if d.Status == acquire.Waiting {
		more = ": another person must say yes, too"
	}
	if left := d.Remainder(); left != "" {
		more = ": " + printable(left, 400)
	}
	_, err = fmt.Fprintf(io.out, "%s is %s%s\n", d.ID, d.Status, more)
	return err
}
