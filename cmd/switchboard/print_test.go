package main

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/admin"
	"github.com/summit-switchboard/switchboard/internal/archive"
	"github.com/summit-switchboard/switchboard/internal/atom"
	"github.com/summit-switchboard/switchboard/internal/capability"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/upstream"
	"github.com/summit-switchboard/switchboard/internal/wall"
)

func TestStatusPrintsEveryFieldThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UTC()
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		st := admin.StatusReport{Version: "v1", Started: ago(time.Hour), Loaded: ago(time.Hour), Refused: &admin.RefusedReload{When: ago(time.Minute), Since: ago(5 * time.Minute)}}
		st.Catalog.Tools = 8
		st.Catalog.Faults = []string{`server "cut", tool "x", tool: name: is bad`}
		healthy := health.Status{State: health.Healthy, Since: ago(time.Hour), Calls: 10}
		st.Servers = []admin.ServerStatus{
			{
				ServerStatus: upstream.ServerStatus{
					ID: "away", State: upstream.StateRetrying, Failed: 12, Restarts: 1,
					LastFailure: &upstream.Failure{Stage: upstream.StageConnect, Message: "no such\x1b[2J program", Since: ago(time.Minute), Remedy: "install\x1b[2J it"},
				},
				Health: health.Status{
					State: health.Quarantine, Since: ago(time.Minute), NextProbe: now.Add(4 * time.Second), Calls: 40, MovedAway: 13,
					Cause: &health.Cause{Stage: "connect", Message: "no such\x1b[2J program", Since: ago(time.Minute)},
				},
			},
			{
				ServerStatus: upstream.ServerStatus{
					ID: "blinks", State: upstream.StateRetrying,
					LastFailure: &upstream.Failure{Stage: upstream.StageServe, Message: "it closed its output", Since: ago(time.Second), Stderr: []string{"Error: no \x1b[2Jkey", "\tat main"}},
				},
				Health: healthy,
			},
			{ServerStatus: upstream.ServerStatus{ID: "cut", State: upstream.StateReady, Version: "2025-11-25", Note: "its tools are cut after 50 pages"}, Health: healthy, Served: 7, Refused: 3, Findings: 2, Held: admin.HeldDefinitions{Suspended: 2, Frozen: 1, OnTrial: 3, New: 1}},
			{ServerStatus: upstream.ServerStatus{ID: "good", State: upstream.StateReady, Version: "2026-07-28", Resources: 2, Prompts: 1, Walls: []wall.InEffect{{Level: "standard", Fixed: []string{"/srv/w"}, Missing: []wall.MissingWall{{Wall: wall.Files, Why: "this kernel is old"}, {Wall: wall.Signals, Why: "this kernel is old"}}}}}, Health: healthy, Served: 1, Held: admin.HeldDefinitions{Frozen: 1}},
			{
				ServerStatus: upstream.ServerStatus{ID: "off", State: upstream.StateReady, Version: "2026-07-28"}, Served: 1,
				Health: health.Status{State: health.Disabled, Since: ago(time.Minute), Cause: &health.Cause{Stage: health.StageOperator, Message: "disabled by local: it is moved", Since: ago(time.Minute)}},
			},
			{
				ServerStatus: upstream.ServerStatus{ID: "part", State: upstream.StateReady, Version: "2026-07-28", Walls: []wall.InEffect{{Level: "standard", Missing: []wall.MissingWall{{Wall: wall.Signals, Why: "this kernel is old"}}}}}, Served: 2,
				Health: health.Status{State: health.Healthy, Since: ago(time.Hour), Tools: []health.ToolStatus{{Tool: "search", State: health.Quarantine, Cause: &health.Cause{Stage: "call", Since: ago(2 * time.Second)}}}},
			},
			{
				ServerStatus: upstream.ServerStatus{ID: "secretive", State: upstream.StateRetrying, Failed: 1, LastFailure: &upstream.Failure{Stage: upstream.StageList, Since: ago(time.Second)}},
				Health:       health.Status{State: health.Starting, Since: ago(time.Second)},
			},
		}
		st.Policies = []admin.PolicyStatus{{Tenant: "acme", Digest: "sha256:0123456789abcdef", Loaded: ago(time.Hour)}}
		st.Tasks = []admin.TaskStatus{{Tenant: "acme", Task: "work", Runs: 2, Tools: 8}}
		st.Atoms = []atom.Summary{
			{ID: "acc.ann", State: capability.Fresh, Probed: ago(time.Minute)},
			{ID: "chan.news", State: capability.Unknown, Reason: "it was never probed"},
			{ID: "key.page", State: capability.Red, Probed: ago(time.Minute), Since: ago(time.Hour), Reason: "the file is\x1b[2J empty"},
			{ID: "key.search", State: capability.Stale, Probed: ago(2 * time.Hour)},
			{ID: "srv.files", State: capability.Red, Reason: "quarantine"},
		}
		st.Records = &admin.RecordStatus{
			Receipts: receipt.ChainStatus{Node: "n1", Fault: "the store is unavailable: the disk is full", Lost: 1},
			Archive:  archive.Status{Lost: 2, Fault: "the store is unavailable: the disk is full"},
		}
		c := &st.Tasks[0].Context
		c.Tokens, c.Lists.Tokens, c.FullLists.Tokens = 2500, 2000, 90_000
		var out strings.Builder
		writeStatus(streams{out: &out}, &st)
		golden(t, "testdata/status.golden", out.String())
	})
}

// golden compares got with the file. If UPDATE is set, it writes the file first.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v; got:\n%swant:\n%s", err, got, want)
	}
}

func TestWhatPeopleReadIsSpeltOutOnTerminalsAndInPipes(t *testing.T) {
	const text, want = "a\x1b[2J\u202e\n\tb 👩‍💻 \xff", `a\u{1b}[2J\u{202e}` + "\n\tb 👩‍💻 " + `\xff`
	for _, terminal := range []bool{true, false} {
		var b strings.Builder
		if n, err := (speller{&b, terminal}).Write([]byte(text)); n != len(text) || err != nil || b.String() != want {
			t.Errorf("%d, %v: %q, want %q", n, err, b.String(), want)
		}
	}
}

func TestProgressIsPrintedOnlyOnTerminals(t *testing.T) {
	var out strings.Builder
	if progressPrinter(&out, "replayed") != nil {
		t.Error("progress is printed without a terminal")
	}
	print := progressPrinter(speller{&out, true}, "replayed")
	for i := range 1000 {
		print(i+1, 1000)
	}
	if got := out.String(); !strings.HasPrefix(got, "\rreplayed 1 of 1000") || !strings.HasSuffix(got, "\rreplayed 1000 of 1000\n") || len(got) > 2000 {
		t.Errorf("it printed %q", got)
	}
}
