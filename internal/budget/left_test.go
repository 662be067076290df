package budget

import (
	"testing"

	"github.com/summit-switchboard/switchboard/internal/store"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

func TestWhatIsLeftIsThatOfTheTightestBudget(t *testing.T) {
	line := func(name string, calls bool, limit, amount int64) ChargeLine {
		return ChargeLine{Budget: &switchboard.Budget{ID: name, Owner: "tenant", Calls: calls}, Account: store.Account{Name: name, Max: limit, Amount: amount}}
	}
	states := []store.AccountState{{Name: "wide", Settled: 1_000_000}, {Name: "paid", Settled: 6_500_000, Held: 400_000}, {Name: "few", Settled: 98}, {Name: "over", Held: 9_999_999}}
	wide, paid, few, over := line("wide", false, 100_000_000, 20_000), line("paid", false, 10_000_000, 20_000), line("few", true, 100, 1), line("over", false, 10_000_000, 20_000)
	for _, tt := range []struct {
		charge *AttemptCharge
		want   string
	}{
		{nil, ""},
		{&AttemptCharge{Price: 20_000}, "0.02 USD, which no budget limits"},
		{&AttemptCharge{Price: 20_000, Lines: []ChargeLine{wide, paid}}, "0.02 USD, and 3.10 USD are left"},
		{&AttemptCharge{Price: 20_000, Reported: true, Lines: []ChargeLine{paid}}, "up to 0.02 USD, and 3.10 USD are left"},
		{&AttemptCharge{Lines: []ChargeLine{few}}, "1 of 2 calls that are left"},
		{&AttemptCharge{Lines: []ChargeLine{few, line("wide", false, 100_000_000, 0)}}, "1 of 2 calls that are left"},
		{&AttemptCharge{Price: 20_000, Lines: []ChargeLine{few, paid}}, "0.02 USD, and 3.10 USD are left; 1 of 2 calls that are left"},
		{&AttemptCharge{Price: 20_000, Lines: []ChargeLine{wide, over}}, "0.02 USD, and 0.000001 USD are left, which is too little: budget tenant/over would refuse the call"},
		{&AttemptCharge{Price: 20_000, Lines: []ChargeLine{line("new", false, 30_000, 20_000)}}, "0.02 USD, and 0.03 USD are left"},
	} {
		if got := Left(tt.charge, states, "USD"); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.charge, got, tt.want)
		}
	}
}
