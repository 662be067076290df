package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
)

type personCmd struct {
	Block   personBlockCmd   `cmd:"" help:"Block a person who signs in at an issuer, at every replica."`
	Unblock personUnblockCmd `cmd:"" help:"Lift the block of a person."`
	Blocked personBlockedCmd `cmd:"" help:"List the persons who are blocked."`
}

// personFlags name a person.
type personFlags struct {
	serverFlags
	Issuer  string `arg:"" help:"The id of the issuer in the configuration."`
	Subject string `arg:"" help:"The person's claim sub: \"sessions list\" and receipts show ISSUER/SUBJECT."`
	Reason  string `help:"The reason: shown in the list, and in the receipt." placeholder:"TEXT"`
}

func (p *personFlags) request() map[string]string {
	return map[string]string{"issuer": p.Issuer, "subject": p.Subject, "reason": p.Reason}
}

type personBlockCmd struct{ personFlags }

// Run blocks the person at a running Switchboard.
func (p *personBlockCmd) Run(ctx context.Context, io streams) error {
	if _, err := p.asTarget().changeAdmin(ctx, http.MethodPost, "/v1/blocks", p.request()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.out, "%s/%s is blocked, here and at all replicas: sessions of this person have ended\n", printable(p.Issuer, 64), printable(p.Subject, 255))
	return err
}

type personUnblockCmd struct{ personFlags }

// Run lifts the block at a running Switchboard.
func (p *personUnblockCmd) Run(ctx context.Context, io streams) error {
	if _, err := p.asTarget().changeAdmin(ctx, http.MethodPost, "/v1/blocks/lift", p.request()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.out, "%s/%s may sign in again\n", printable(p.Issuer, 64), printable(p.Subject, 255))
	return err
}

type personBlockedCmd struct{ serverFlags }

// Run prints the blocked persons of a running Switchboard.
func (p *personBlockedCmd) Run(ctx context.Context, io streams) error {
	rows, err := fetchList[admin.BlockRow](ctx, p.asTarget(), "/v1/blocks", "blocks", url.Values{})
	if err != nil {
		return err
	}
	if p.JSON {
		return json.NewEncoder(io.raw).Encode(rows)
	}
	w := tabwriter.NewWriter(io.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ISSUER\tSUBJECT\tBY\tON\tREASON\t")
	for _, b := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", b.Issuer, printable(b.Subject, 80), printable(b.By, 80), b.When.Local().Format(time.DateOnly), printable(b.Reason, 200))
	}
	return w.Flush()
}
