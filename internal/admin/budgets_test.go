package admin

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/internal/catalog"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/test/wait"
)

// spentReader returns a BudgetReader of a file with the receipts, and the Actions on the same budgets.
func spentReader(t *testing.T, receipts []receipt.Receipt, budgets ...*switchboard.Budget) (*BudgetReader, *Actions) {
	t.Helper()
	dir := t.TempDir()
	s, err := store.OpenFile(filepath.Join(dir, "store"), store.FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ledger, err := receipt.OpenLedger(t.Context(), receipt.LedgerOptions{Store: s, Folder: dir, Lease: 5 * time.Second, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ledger.Close(t.Context())
		_ = s.Close()
	})
	for i := range receipts {
		if i%500 == 499 { // the queue must not be full
			if _, err := ledger.Write(t.Context(), &receipts[i]); err != nil {
				t.Fatal(err)
			}
			continue
		}
		ledger.Add(&receipts[i])
	}
	if _, err := ledger.Write(t.Context(), &receipt.Receipt{Kind: receipt.Admin, Method: "end"}); err != nil {
		t.Fatal(err)
	}
	tax, err := switchboard.NewTaxonomy(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	tool := &switchboard.Tool{ID: switchboard.ToolID{Server: "paid", Name: "x"}, Class: "api", Contract: switchboard.Contract{CostClass: switchboard.CostPaid}}
	state := &bind.State{
		Config: &config.Config{Receipts: config.Receipts{Keep: config.DefaultRetention}, Currency: "EUR"},
		Tenants: map[switchboard.TenantID]*bind.Tenant{
			"acme":  {Tenant: &switchboard.Tenant{ID: "acme", Servers: []switchboard.ServerID{"paid"}, Budgets: budgets}, View: catalog.ViewOf([]*switchboard.Tool{tool}, tax), Taxonomy: tax},
			"other": {Tenant: &switchboard.Tenant{ID: "other"}, View: catalog.ViewOf(nil, tax), Taxonomy: tax},
		},
	}
	now := func() Configuration { return Configuration{State: state} }
	return NewBudgetReader(NewReader(ReaderOptions{Configuration: now, Store: s, Ledger: ledger})), NewActions(ActionsOptions{Configuration: now, Store: s, Ledger: ledger, Stopping: t.Context(), Log: log})
}

// spentReceipt is the receipt of a call of paid/x that cost 0.01.
func spentReceipt(tenant switchboard.TenantID, who string) receipt.Receipt {
	return receipt.Receipt{
		Kind: receipt.Call, Tenant: tenant, Principal: receipt.Subject{ID: who}, Task: "t", Method: "tools/call", Server: "paid", Tool: "x",
		Outcome: receipt.OK, Price: receipt.PriceMark{Held: 20_000, Settled: 10_000},
	}
}

func TestAForecastIsExact(t *testing.T) {
	r := forecastReader(t, 1000)
	calls := int64(100)
	for name, tt := range map[string]struct {
		proposed ProposedBudget
		counted  int
		refused  int
	}{
		"an amount":       {ProposedBudget{Limit: "1", Window: "forever"}, 700, 601}, // 0.02 are held for each call, and 0.01 is settled
		"a number":        {ProposedBudget{Calls: &calls, Window: "forever"}, 700, 600},
		"for each":        {ProposedBudget{Calls: &calls, Window: "forever", Per: "principal"}, 700, 500},
		"of a class":      {ProposedBudget{Calls: &calls, Window: "forever", CostClass: []string{"paid"}}, 700, 600},
		"of another one":  {ProposedBudget{Calls: &calls, Window: "forever", CostClass: []string{"free"}}, 0, 0},
		"of a server":     {ProposedBudget{Calls: &calls, Window: "forever", Server: []string{"p*"}}, 700, 600},
		"of another tool": {ProposedBudget{Calls: &calls, Window: "forever", Tool: []string{"paid/y"}}, 0, 0},
	} {
		f, err := r.Forecast(t.Context(), "acme", &tt.proposed, time.Now().Add(-time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if f.Calls != 700 || f.Counted != tt.counted || f.Refused != tt.refused || !f.Complete || f.Unit == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	for name, bad := range map[string]ProposedBudget{
		"nothing": {}, "two limits": {Limit: "1", Calls: &calls}, "no amount": {Limit: "1e3"}, "no such budget": {Budget: "none", Limit: "1"}, "no such class": {Limit: "1", CostClass: []string{"dear"}},
	} {
		if f, err := r.Forecast(t.Context(), "acme", &bad, time.Now()); err == nil {
			t.Errorf("%s: %+v", name, f)
		}
	}
}

// One forecast is enough here: TestAForecastIsExact has the others, over fewer receipts.
func TestAForecastOverTenThousandReceiptsIsExact(t *testing.T) {
	r := forecastReader(t, 10_000)
	began := time.Now()
	f, err := r.Forecast(t.Context(), "acme", &ProposedBudget{Limit: "10", Window: "forever"}, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("it takes %v", took)
	if took > 10*time.Second || !f.Complete && took > forecastTime/2 {
		wait.Late(t, "a forecast over 10,000 receipts takes %v", took)
		return
	}
	if f.Calls != 7000 || f.Counted != 7000 || f.Refused != 6001 || !f.Complete {
		t.Errorf("%+v", f)
	}
}

// forecastReader returns a BudgetReader of receipts, of which seven of ten are calls of the tenant acme that reached a server.
func forecastReader(t *testing.T, receipts int) *BudgetReader {
	t.Helper()
	var all []receipt.Receipt
	for i := range receipts {
		one := spentReceipt("acme", fmt.Sprint("p", i%2))
		switch i % 10 {
		case 9:
			one.Tenant = "other"
		case 8:
			one.Outcome, one.Price = receipt.Refused, receipt.PriceMark{} // no server got it
		case 7:
			one.Given, one.Price = switchboard.GivenCache, receipt.PriceMark{}
		}
		all = append(all, one)
	}
	r, _ := spentReader(t, all)
	return r
}

func TestAnAccountIsCorrectedDownToNothingAndByItsOfficers(t *testing.T) {
	own := &switchboard.Budget{ID: "own", Owner: switchboard.OwnerTenant, Limit: 10, Window: switchboard.WindowForever}
	theirs := &switchboard.Budget{ID: "theirs", Owner: switchboard.OwnerRow, Limit: 10, Calls: true, Per: switchboard.PerPrincipal, Window: switchboard.WindowForever}
	same := &switchboard.Budget{ID: "own", Owner: switchboard.OwnerOperator, Limit: 10, Window: switchboard.WindowForever}
	r, a := spentReader(t, nil, own, theirs, same)
	operator, admin := switchboard.Officer{ID: "ops", Operator: true}, switchboard.Officer{ID: "ann", Offices: map[switchboard.TenantID][]switchboard.Office{"acme": {switchboard.OfficeAdmin}}}
	for _, tt := range []struct {
		by   switchboard.Officer
		what BudgetCorrection
		want string // what is settled then, or the code of the refusal
	}{
		{admin, BudgetCorrection{Budget: "tenant/own", By: "0.000007"}, "0.000007"},
		{admin, BudgetCorrection{Budget: "tenant/own", By: "-0.000002"}, "0.000005"},
		{admin, BudgetCorrection{Budget: "tenant/own", By: "-1"}, "0.00"},
		{admin, BudgetCorrection{Budget: "own", By: "1"}, "SB-CAP-003"}, // which
		{admin, BudgetCorrection{Budget: "theirs", Of: "ci", By: "1"}, "SB-AUTH-002"},
		{operator, BudgetCorrection{Budget: "theirs", Of: "ci", By: "5"}, "5"},
		{operator, BudgetCorrection{Budget: "theirs", Of: "ci", By: "1.5"}, "SB-CAP-003"},
		{operator, BudgetCorrection{Budget: "theirs", By: "1"}, "SB-CAP-003"},
		{operator, BudgetCorrection{Budget: "theirs", Of: "ci", Reset: true}, "0"},
		{operator, BudgetCorrection{Budget: "theirs", Of: "ci", By: "1125899906842625"}, "SB-CAP-003"},
		{operator, BudgetCorrection{Budget: "operator/own", By: "1125899906.842624"}, "1125899906.842624"},
		{operator, BudgetCorrection{Budget: "operator/own", By: "0.000001"}, "SB-CAP-003"}, // more than an account can hold
	} {
		done, err := a.AdjustBudget(tt.by, "acme", tt.what)
		got := ""
		if refusal, ok := err.(*switchboard.Error); ok { //nolint:errorlint // as AdjustBudget says
			got = string(refusal.Code)
		} else if err == nil {
			got = done.After
		}
		if got != tt.want {
			t.Errorf("%s: %+v: %s %v, want %s", tt.by.ID, tt.what, got, err, tt.want)
		}
	}
	rows, err := r.Rows(t.Context(), "acme")
	if err != nil || len(rows) != 3 || rows[0].Left != "0.00" || rows[1].Of != "ci" || rows[1].Left != "10" || rows[2].Budget != "tenant/own" || rows[2].Left != "0.00001" {
		t.Errorf("%+v, %v", rows, err)
	}
	figures := fmt.Sprintf("%+v", r.figures(t.Context(), ""))
	const want = "[{Tenant:acme Budget:operator/own Unit:EUR Limit:1e-05 Settled:1.125899906842624e+09 Held:0 HasLimit:true} " +
		"{Tenant:acme Budget:row/theirs Unit:calls Limit:10 Settled:0 Held:0 HasLimit:false} {Tenant:acme Budget:tenant/own Unit:EUR Limit:1e-05 Settled:0 Held:0 HasLimit:true}]"
	if figures != want || r.figures(t.Context(), "other") != nil {
		t.Errorf("the metrics are %s, want %s", figures, want)
	}
}

func TestThePaceOfATenantWithManyCallsIsReadBehindItsAnswers(t *testing.T) {
	var all []receipt.Receipt
	for range 3000 {
		all = append(all, spentReceipt("acme", "ann"))
	}
	r, _ := spentReader(t, all, &switchboard.Budget{ID: "own", Owner: switchboard.OwnerTenant, Limit: 100, Calls: true, Window: switchboard.WindowForever})
	week := func() string {
		rows, err := r.Rows(t.Context(), "acme")
		if err != nil || len(rows) != 1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		return rows[0].Pace.Week
	}
	wait.Until(t, "the pace is known", func() bool { return week() == "3000" })
	one := r.paces.of["acme"]
	wait.Until(t, "no reading is made", func() bool { // on a busy machine, week may not have waited for the last one, which would replace what is set here
		r.paces.mu.Lock()
		defer r.paces.mu.Unlock()
		if one.running != nil {
			return false
		}
		one.took = time.Minute // as if there were very many
		one.spending = budget.SumUp(nil, nil, nil, time.Now(), time.Now())
		return true
	})
	if got := week(); got != "0" {
		t.Errorf("a new reading is made for an answer: %s", got)
	}
	r.paces.mu.Lock()
	one.spending = budget.SumUp(nil, nil, nil, time.Now(), time.Now().Add(-oldestPace/2)) // it is old
	r.paces.mu.Unlock()
	r.paces.again <- struct{}{}
	if got := week(); got != "0" {
		t.Errorf("an answer waits for the new reading: %s", got)
	}
	r.paces.mu.Lock()
	one.spending = budget.SumUp(nil, nil, nil, time.Now(), time.Now().Add(-2*oldestPace))
	r.paces.mu.Unlock()
	wait.Until(t, "no reading of two hours ago is shown", func() bool { return week() != "0" }) // a busy machine may not read in time at once
	<-r.paces.again
	wait.Until(t, "the pace is read again", func() bool { return week() == "3000" })
}

func TestAnAnswerAboutManyTenantsWaitsForNoReading(t *testing.T) {
	r, _ := spentReader(t, []receipt.Receipt{spentReceipt("acme", "ann")}, &switchboard.Budget{ID: "own", Owner: switchboard.OwnerTenant, Limit: 100, Calls: true, Window: switchboard.WindowForever})
	tenants := r.reader.o.Configuration().Tenants
	for i := range maxAwaited {
		id := switchboard.TenantID(fmt.Sprint("more-", i))
		one, own := *tenants["acme"], *tenants["acme"].Tenant
		own.ID, one.Tenant = id, &own
		tenants[id] = &one
	}
	// week returns the calls of the week of acme, which must come at once; "" if they are not known.
	week := func(tenant switchboard.TenantID) string {
		began := time.Now()
		rows, err := r.Rows(t.Context(), tenant)
		if err != nil || len(rows) == 0 || tenant == "" && len(rows) != maxAwaited+1 {
			t.Fatalf("%+v, %v", rows, err)
		}
		if took := time.Since(began); took > paceTime/2 {
			wait.Late(t, "an answer takes %v", took)
		}
		if !rows[0].Pace.IsKnown(time.Now()) {
			return ""
		}
		return rows[0].Pace.Week
	}
	r.paces.first <- struct{}{}
	if got := week(""); got != "" {
		t.Errorf("before the first reading, the pace is %s", got)
	}
	<-r.paces.first
	wait.Until(t, "the pace is known", func() bool { return week("") == "1" })
	wait.Until(t, "no reading is made, and the last one is old", func() bool {
		r.paces.mu.Lock()
		defer r.paces.mu.Unlock()
		one := r.paces.of["acme"]
		if one.running != nil {
			return false
		}
		old := *one.spending
		old.At = old.At.Add(-oldestPace / 2)
		one.took, one.spending = 0, &old
		return true
	})
	r.paces.again <- struct{}{}
	for _, tenant := range []switchboard.TenantID{"", "acme"} { // the second answer finds the reading that the first one has begun
		if got := week(tenant); got != "1" {
			t.Errorf("while the next reading is made, the pace is %q for tenant %q", got, tenant)
		}
	}
	<-r.paces.again
}
