package served_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summit-switchboard/switchboard/internal/budget"
	"github.com/summit-switchboard/switchboard/test/rig"
	"github.com/summit-switchboard/switchboard/test/wait"
)

var forecastReceipts = flag.Int("forecast-receipts", 300, "over how many recorded `calls` TestAForecastOverManyReceiptsIsQuick runs budget what-if; 10000 is what is promised")

// budget what-if reads 10,000 receipts of priced calls within ten seconds, with the command line and the API.
func TestAForecastOverManyReceiptsIsQuick(t *testing.T) {
	t.Parallel()
	const limit = 10 * time.Second
	dir, keys := pricedOfficers(t)
	for name, texts := range map[string][2]string{
		"switchboard.yaml":            {"limit: 100,", "limit: 100000000,"},
		"tenants/acme/tenant.yaml":    {"limit: 10.00,", "limit: 100000000,"},
		"tenants/acme/tasks/all.yaml": {"limit: {calls: 500}", "limit: {calls: 1000000}"},
	} {
		rig.WriteFile(t, dir+"/"+name, strings.Replace(rig.ReadFile(t, dir+"/"+name), texts[0], texts[1], 1))
	}
	g := rig.Serve(t, dir)
	const sessions = 16
	var all sync.WaitGroup
	for i := range sessions {
		s := g.Open(t, "/mcp", true, "Authorization", "Bearer "+keys["agent"])
		all.Go(func() {
			for n := i; n < *forecastReceipts; n += sessions {
				rig.Call(t, s, "work", "{}")
			}
		})
	}
	all.Wait()
	var f budget.RefusalForecast
	var took time.Duration
	wait.For(t, rig.Patience, "the receipts of all calls", func() error {
		began := time.Now()
		answer := g.AskAdmin(t, keys["viewer"], http.MethodPost, "/v1/budgets/what-if?tenant=acme", `{"limit":"5"}`)
		took = time.Since(began)
		if json.Unmarshal([]byte(answer.Body), &f) != nil || answer.Status != http.StatusOK || !f.Complete || f.Calls != *forecastReceipts {
			return fmt.Errorf("%d: %s: %+v", answer.Status, answer.Body, f)
		}
		return nil
	})
	if f.Refused != *forecastReceipts-2 { // each costs 2.50
		t.Errorf("it would have refused %d of %d calls", f.Refused, *forecastReceipts)
	}
	began := time.Now()
	out, errs, code := rig.CommandAs(t, dir, keys["viewer"], "budget", "what-if", "--limit", "5", "--tenant", "acme")
	command := time.Since(began)
	if code != 0 || !strings.Contains(out, fmt.Sprintf("would have refused %d,", *forecastReceipts-2)) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	t.Logf("over %d receipts: the API takes %s, the command %s", *forecastReceipts, took, command)
	if command > limit || took > limit {
		wait.Late(t, "what-if over %d receipts took %s and %s", *forecastReceipts, took, command)
	}
}
