package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin/approvals"
	"github.com/summit-switchboard/switchboard/internal/approval"
)

func callRow(state approval.State, by string) *approvals.ApprovalRow {
	return &approvals.ApprovalRow{ID: "k3fqx2mz7ab4cd5e-1", Kind: approval.ForCall, State: state, Tenant: "acme", Principal: "ci", Tool: "mail/send", Needed: 1, By: by}
}

func TestAWatchPrintsStateToolAndPrincipal(t *testing.T) {
	var out bytes.Buffer
	w := &approvalWatch{c: &approvalsWatchCmd{}, out: streams{out: &out}, said: map[string]string{}}
	for _, r := range []*approvals.ApprovalRow{callRow(approval.Pending, ""), callRow(approval.Approved, "lea"), callRow(approval.Used, "lea"), callRow(approval.Used, "lea")} {
		if err := w.print(r); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		_, rest, _ := strings.Cut(line, "  ") // the time
		lines = append(lines, rest)
	}
	want := []string{
		"k3fqx2mz7ab4cd5e-1  pending: mail/send, asked for by ci of tenant acme\n",
		"k3fqx2mz7ab4cd5e-1  approved by lea: mail/send, asked for by ci of tenant acme\n",
		"k3fqx2mz7ab4cd5e-1  used, approved by lea: mail/send, asked for by ci of tenant acme\n",
	}
	if strings.Join(lines, "") != strings.Join(want, "") {
		t.Errorf("%q", lines)
	}
}

func TestAYesToACapabilitySaysWhereAndHowLong(t *testing.T) {
	end := time.Date(2030, 1, 2, 15, 4, 0, 0, time.FixedZone("", 3600))
	r := &approvals.ApprovalRow{
		Kind: approval.ForCapability, State: approval.Approved, Tenant: "acme", Principal: "ci", Capability: "read aws", Until: end.Add(time.Hour),
		Grant: &approval.Grant{Scope: approval.ScopeTask, Until: end},
	}
	if got, want := meaning(r), ": read aws for all runs of the task of ci, until 2030-01-02 14:04 UTC"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := clockText(endOf(r)); got != "2030-01-02 14:04 UTC" {
		t.Errorf("the list says %s", got)
	}
}
