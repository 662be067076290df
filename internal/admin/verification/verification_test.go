package verification

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/evidence"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

var hosted = switchboard.Server{ID: "a", Transport: switchboard.TransportHTTP}

// verifierOf returns a verifier of one hosted server with these tools, and the receipts that it writes.
func verifierOf(t *testing.T, s *switchboard.Server, tools ...KnownTool) (*Verifier, *[]receipt.Receipt) {
	t.Helper()
	var written []receipt.Receipt
	log := slog.New(slog.DiscardHandler)
	same := func(next switchboard.Caller, _ bool) switchboard.Caller { return next }
	return New(Options{
		Server: func(id switchboard.ServerID) *switchboard.Server {
			if id != s.ID {
				return nil
			}
			return s
		},
		Tools: func(switchboard.ServerID) []KnownTool { return tools },
		Served: switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
			return switchboard.Result{JSON: []byte(`{"content":[]}`)}, nil
		}),
		Offer:  func(switchboard.ServerID) *switchboard.Offer { return offerOf(tools...) },
		Relist: func(context.Context, switchboard.ServerID) (*switchboard.Offer, bool) { return offerOf(tools...), true },
		Wrap:   same, Judgment: func(*switchboard.Tool) *switchboard.Judgment { return nil },
		Book:    evidence.New(evidence.Options{Store: store.NewMemory(), Key: switchboard.NewSecret("key"), Log: log}),
		Archive: func([]byte) {},
		Record: func(_ context.Context, r *receipt.Receipt) (string, error) {
			written = append(written, *r)
			return "n1/1", nil
		},
		Work: func(f func()) { f() }, Stopping: t.Context(), Log: log,
	}), &written
}

// offerOf returns an offer with these tools.
func offerOf(tools ...KnownTool) *switchboard.Offer {
	o := &switchboard.Offer{Server: "a"}
	for _, t := range tools {
		o.Tools = append(o.Tools, t.Definition)
	}
	return o
}

// toolOf returns a tool that only reads, if the operator says so.
func toolOf(name string, trusted bool) KnownTool {
	return KnownTool{Digest: "d1:01", Tool: &switchboard.Tool{
		ID: switchboard.ToolID{Server: "a", Name: name}, Definition: []byte(`{"name":"` + name + `","inputSchema":{"type":"object"}}`),
		Contract: switchboard.Contract{ReadOnly: switchboard.Fact{Holds: true, Source: switchboard.FromHint, Trusted: trusted}},
	}}
}

func TestALeaveComesFromWallsFromATrustedSourceOrFromTheOperator(t *testing.T) {
	program := switchboard.Server{ID: "a", Transport: switchboard.TransportStdio}
	test := switchboard.Server{ID: "a", Transport: switchboard.TransportHTTP, Verify: switchboard.VerifyRules{Test: true}}
	for _, c := range []struct {
		server  *switchboard.Server
		trusted bool
		want    verify.Leave
	}{
		{&program, false, verify.LeaveWalls},
		{&program, true, verify.LeaveWalls},
		{&hosted, true, verify.LeaveReadOnly},
		{&hosted, false, verify.LeaveNone},
		{&test, false, verify.LeaveTest},
	} {
		v, _ := verifierOf(t, c.server, toolOf("look", c.trusted))
		plans, err := v.Plan("a", "")
		if err != nil || plans[0].Leave != c.want || (len(plans[0].Calls) == 0) != (c.want == verify.LeaveNone) {
			t.Errorf("%s, trusted %v: %+v, %v; want the leave %q", c.server.Transport, c.trusted, plans, err, c.want)
		}
	}
}

func TestEachReportHasAReceiptWithItsDigest(t *testing.T) {
	v, written := verifierOf(t, &hosted, toolOf("look", true), toolOf("peek", false))
	if _, err := v.Start("a", "", "ann"); err != nil {
		t.Fatal(err)
	}
	reports, err := v.Reports("a", "")
	if err != nil || len(reports) != 2 || !reports[0].Verified || reports[1].Verified || reports[1].Calls != 0 {
		t.Fatalf("the reports are %+v, %v", reports, err)
	}
	if len(*written) != 2 || (*written)[0].Kind != receipt.Verified || (*written)[0].Report == "" || (*written)[0].Outcome != receipt.OK || (*written)[1].Outcome != receipt.Failed || (*written)[0].Principal.ID != "ann" {
		t.Errorf("the receipts are %+v", *written)
	}
	if p, ok := v.Of("a"); !ok || p.Running || p.Done != 2 || p.Of != 2 {
		t.Errorf("the progress is %+v", p)
	}
}

// A hosted server need not announce that it has changed a tool.
func TestAReportOnAHostedToolIsVoidIfItsServerOffersAnotherDefinitionAfterwards(t *testing.T) {
	look := toolOf("look", true)
	renamed := toolOf("look", true)
	renamed.Tool = &switchboard.Tool{ID: look.ID, Definition: []byte(`{"name":"look","description":"Looks at more.","inputSchema":{"type":"object"}}`)}
	for _, tt := range []struct {
		about  string
		after  *switchboard.Offer
		listed bool
		void   bool
	}{
		{"the same", offerOf(look), true, false},
		{"the same beside another tool", offerOf(look, toolOf("peek", true)), true, false},
		{"another definition", offerOf(renamed), true, true},
		{"no such tool", offerOf(toolOf("peek", true)), true, true},
		{"nothing at all", nil, true, true},
		{"what it offered before, since its tools could not be listed", offerOf(look), false, true},
	} {
		v, _ := verifierOf(t, &hosted, look)
		v.o.Relist = func(context.Context, switchboard.ServerID) (*switchboard.Offer, bool) { return tt.after, tt.listed }
		if _, err := v.Start("a", "", "ann"); err != nil {
			t.Fatal(err)
		}
		reports, err := v.Reports("a", "look")
		if err != nil || len(reports) != 1 || (reports[0].Void != "") != tt.void || reports[0].Verified == tt.void || reports[0].Calls == 0 {
			t.Errorf("it offers %s afterwards: %+v, %v", tt.about, reports, err)
		}
	}
}

func TestOneServerIsVerifiedAtATime(t *testing.T) {
	v, _ := verifierOf(t, &hosted, toolOf("look", true))
	var later func()
	v.o.Work = func(f func()) { later = f }
	if _, err := v.Start("a", "", "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Start("a", "", "ben"); err == nil {
		t.Error("a second verification begins")
	}
	later()
	if _, err := v.Start("a", "look", "ben"); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
	if _, err := v.Start("b", "", "ann"); err == nil {
		t.Error("a server that does not exist is verified")
	}
}

func TestAServerIsDueAgainByScheduleAndAfterAnAcceptedChange(t *testing.T) {
	daily := hosted
	daily.Verify.Every = 24 * time.Hour
	never, _ := verifierOf(t, &hosted, toolOf("look", true))
	if never.isDue(&hosted, time.Now()) {
		t.Error("a server that nobody has verified is due")
	}
	if v, _ := verifierOf(t, &daily, toolOf("look", true)); !v.isDue(&daily, time.Now()) {
		t.Error("a server with a schedule is not due")
	}
	accepted := toolOf("look", true)
	v, _ := verifierOf(t, &hosted, accepted)
	if _, err := v.Start("a", "", "ann"); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if v.isDue(&hosted, now.Add(29*24*time.Hour)) || !v.isDue(&hosted, now.Add(31*24*time.Hour)) {
		t.Error("a verified server is not due every 30 days")
	}
	accepted.Digest, accepted.LetIn = "d1:02", now.Add(time.Hour)
	v.o.Tools = func(switchboard.ServerID) []KnownTool { return []KnownTool{accepted} }
	if !v.isDue(&hosted, now.Add(2*time.Hour)) {
		t.Error("an accepted change is not verified")
	}
	accepted.LetIn = time.Time{}
	if v.isDue(&hosted, now.Add(2*time.Hour)) {
		t.Error("a change that nobody has accepted is verified")
	}
}
