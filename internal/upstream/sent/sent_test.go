package sent

import (
	"sync"
	"testing"
)

func TestARequestIsEitherClaimedOrWithdrawn(t *testing.T) {
	for range 1000 {
		var s SendState
		var claimed, withdrawn bool
		var both sync.WaitGroup
		both.Go(func() { claimed = s.Claim() })
		both.Go(func() { withdrawn = s.Withdraw() })
		both.Wait()
		if claimed == withdrawn || s.MayBeSent() != claimed {
			t.Fatalf("claimed %v, withdrawn %v, may be sent %v", claimed, withdrawn, s.MayBeSent())
		}
	}
}

func TestARequestOfWhichNothingLeftCountsAsWithdrawn(t *testing.T) {
	var s SendState
	if !s.Claim() || s.Claim() || s.Withdraw() {
		t.Error("a claimed request can be claimed again, or withdrawn")
	}
	if s.NothingLeft(); s.MayBeSent() || !s.Withdraw() || s.Claim() {
		t.Error("it may still be sent")
	}
}

func TestHaltStopsTheCurrentWorkAndAllLaterWork(t *testing.T) {
	var s SendState
	stops := 0
	if !s.SetStop(func() { stops++ }) {
		t.Error("a new request is halted")
	}
	s.Halt()
	if s.SetStop(nil) || stops != 1 {
		t.Errorf("stopped %d times", stops)
	}
	if s.Halt(); stops != 1 {
		t.Errorf("stopped %d times", stops)
	}
}
