package evidence

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/verify"
)

// bookOf returns a book over the store.
func bookOf(s Store) *ReportBook {
	return New(Options{Store: s, Key: switchboard.NewSecret("the key"), Log: slog.New(slog.DiscardHandler)})
}

// reportOn returns a report on a tool of the server "a".
func reportOn(tool, digest string, leave verify.Leave, fails bool) KeptReport {
	s := &verify.VerifiedTool{ID: switchboard.ToolID{Server: "a", Name: tool}, Digest: digest, Definition: []byte(`{"name":"` + tool + `","inputSchema":{"type":"object"}}`)}
	caller := switchboard.CallerFunc(func(context.Context, *switchboard.Call) (switchboard.Result, error) {
		text := `fine`
		if fails {
			text = `the canary`
		}
		return switchboard.Result{JSON: []byte(`{"content":[{"type":"text","text":"` + text + `"}]}`)}, nil
	})
	return KeptReport{TestReport: verify.Verify(context.Background(), s, &switchboard.Tool{ID: s.ID, Definition: s.Definition}, verify.RunOptions{Caller: caller, Leave: leave, Walls: []string{"files", "network"}, Canaries: []verify.Canary{{Text: "the canary", Place: "a file"}}}), Receipt: "n1/1"}
}

func put(t *testing.T, b *ReportBook, reports ...KeptReport) {
	t.Helper()
	if err := b.Put(t.Context(), "a", reports); err != nil {
		t.Fatal(err)
	}
}

func TestAReportCountsForItsDefinitionAlone(t *testing.T) {
	b := bookOf(store.NewMemory())
	put(t, b, reportOn("good", "d1:01", verify.LeaveWalls, false), reportOn("bad", "d1:02", verify.LeaveWalls, true), reportOn("unseen", "d1:03", verify.LeaveNone, false))
	if f := b.Of("a").FactsOf("good", "d1:01"); f == nil || !f.Verified || f.Score != 1000 || f.Leave != "walls" || len(f.Walls) != 2 || len(f.Failed) > 0 {
		t.Errorf("a good tool: %+v", f)
	}
	if f := b.Of("a").FactsOf("bad", "d1:02"); f == nil || f.Verified || strings.Join(f.Failed, " ") != "hostile" {
		t.Errorf("a bad tool: %+v", f)
	}
	for name, f := range map[string]*switchboard.ReportFacts{
		"another definition": b.Of("a").FactsOf("good", "d1:02"), "a tool that was not called": b.Of("a").FactsOf("unseen", "d1:03"),
		"another server": b.Of("b").FactsOf("good", "d1:01"), "another tool": b.Of("a").FactsOf("better", "d1:01"),
	} {
		if f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

func TestAVoidReportIsNoEvidence(t *testing.T) {
	b := bookOf(store.NewMemory())
	r := reportOn("bad", "d1:02", verify.LeaveWalls, true)
	r.MakeVoid("the server has changed the tool")
	put(t, b, r)
	if f := b.Of("a").FactsOf("bad", "d1:02"); f != nil {
		t.Errorf("%+v", f)
	}
}

func TestAReportThatSaysNothingReplacesNoneAboutTheSameDefinition(t *testing.T) {
	b := bookOf(store.NewMemory())
	put(t, b, reportOn("good", "d1:01", verify.LeaveWalls, false))
	put(t, b, reportOn("good", "d1:01", verify.LeaveNone, false))
	if f := b.Of("a").FactsOf("good", "d1:01"); f == nil {
		t.Error("the report is lost")
	}
}

// A server that is suspended could otherwise change a description once, or change its tools during the test, and be back.
func TestASuspensionEndsByAReportThatHasMadeTheFailedTestAlone(t *testing.T) {
	b := bookOf(store.NewMemory())
	put(t, b, reportOn("bad", "d1:02", verify.LeaveWalls, true))
	void := reportOn("bad", "d1:02", verify.LeaveWalls, false)
	void.MakeVoid("the server has changed the tool")
	for name, r := range map[string]KeptReport{"void": void, "not exercised": reportOn("bad", "d1:02", verify.LeaveNone, false), "another definition": reportOn("bad", "d1:03", verify.LeaveWalls, false)} {
		put(t, b, r)
		if f := b.Of("a").FactsOf("bad", "d1:02"); f == nil || len(f.Failed) == 0 {
			t.Errorf("%s: the suspension has ended: %+v", name, f)
		}
	}
	put(t, b, reportOn("bad", "d1:02", verify.LeaveWalls, false))
	if f := b.Of("a").FactsOf("bad", "d1:02"); f == nil || !f.Verified {
		t.Errorf("it passes, and is not verified: %+v", f)
	}
}

func TestReportsThatSomethingElseHasWrittenAreNoEvidence(t *testing.T) {
	s := store.NewMemory()
	b := bookOf(s)
	put(t, b, reportOn("bad", "d1:02", verify.LeaveWalls, true))
	v, err := s.Value(t.Context(), store.Key{Group: group, Name: "a"})
	if err != nil {
		t.Fatal(err)
	}
	edited := bytes.Clone(v.Data)
	edited[len(edited)-1] ^= 1
	other := New(Options{Store: store.NewMemory(), Key: switchboard.NewSecret("another key"), Log: b.o.Log})
	signedByOther, err := other.pack("a", ServerReports{"bad": {reportOn("bad", "d1:02", verify.LeaveWalls, false)}})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"a changed byte": edited, "another key": signedByOther, "the rest without a MAC": v.Data[32:], "nothing": {}, "too short": v.Data[:10]} {
		if _, err := s.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: "a", Was: store.Any, Data: data}}}); err != nil {
			t.Fatal(err)
		}
		fresh := bookOf(s)
		if err := fresh.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f := fresh.Of("a").FactsOf("bad", "d1:02"); f != nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
	// The value of one server is none of another.
	if _, err := s.Apply(t.Context(), store.Change{Group: group, Writes: []store.Write{{Name: "b", Was: store.Any, Data: v.Data}}}); err != nil {
		t.Fatal(err)
	}
	fresh := bookOf(s)
	if err := fresh.Read(t.Context()); err != nil || fresh.Of("b").FactsOf("bad", "d1:02") != nil {
		t.Errorf("the reports of a count for b; %v", err)
	}
}

func TestReportsCountAtEachReplicaSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.NewMemory()
		here, there := bookOf(s), bookOf(s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			there.Follow(ctx)
			close(done)
		}()
		synctest.Wait()
		put(t, here, reportOn("good", "d1:01", verify.LeaveWalls, false))
		time.Sleep(sharedInterval)
		synctest.Wait()
		if f := there.Of("a").FactsOf("good", "d1:01"); f == nil {
			t.Error("the other replica does not have the report")
		}
		was := there.Of("a")
		time.Sleep(3 * sharedInterval)
		if there.Of("a") != was {
			t.Error("reports that have not changed are others now")
		}
		cancel()
		<-done
	})
}

func TestTwoThatWriteAtOnceLoseNothing(t *testing.T) {
	s := store.NewMemory()
	x, y := bookOf(s), bookOf(s)
	put(t, x, reportOn("one", "d1:01", verify.LeaveWalls, false))
	put(t, y, reportOn("two", "d1:02", verify.LeaveWalls, false))
	if err := x.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if x.Of("a").FactsOf("one", "d1:01") == nil || x.Of("a").FactsOf("two", "d1:02") == nil {
		t.Errorf("the reports are %v", *x.Of("a"))
	}
}
