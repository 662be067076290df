package app

import (
	"log/slog"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// The last warnings come when the outbox has ended.
func TestAWarningOfABudgetIsKeptWhileTheOutboxDoesNotRun(t *testing.T) {
	st := store.NewMemory()
	defer func() { _ = st.Close() }()
	to := []switchboard.Recipient{{Name: "oncall", URL: switchboard.NewSecret("https://oncall.example.com"), Secret: switchboard.NewSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")}}
	box := notice.New(notice.Options{Store: st, Log: slog.New(slog.DiscardHandler)}, to)
	if err := any(budgetTeller{box}).(commit.Notifier).BudgetWarning(t.Context(), &commit.BudgetWarning{Tenant: "acme", Budget: "tenant/paid"}); err != nil {
		t.Fatal(err)
	}
	if n := box.Backlogs()[0].Notices; n != 1 {
		t.Errorf("%d notices wait", n)
	}
}
