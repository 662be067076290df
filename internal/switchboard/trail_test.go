package switchboard

import (
	"reflect"
	"sync"
	"testing"
	"time"
)

func TestATrailHasTheFactsOfAllAttempts(t *testing.T) {
	var trail Trail
	trail.Decided("sha256:d", "sha256:b")
	var attempts sync.WaitGroup
	for range 10 {
		attempts.Go(func() {
			trail.Ruled("sha256:r")
			trail.Waited(time.Second)
		})
	}
	attempts.Wait()
	trail.Gave(GivenCache)
	got := trail.Marks()
	if len(got.Rulings) != 10 || got.Waited != 10*time.Second {
		t.Errorf("%d rulings, waited %s", len(got.Rulings), got.Waited)
	}
	got.Rulings = nil
	if want := (Marks{Decision: "sha256:d", Basis: "sha256:b", Given: GivenCache, Waited: 10 * time.Second}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestANilTrailIgnoresEverything(t *testing.T) {
	var none *Trail
	none.Decided("sha256:d", "sha256:b")
	none.Ruled("sha256:r")
	none.Gave(GivenIdempotency)
	none.Waited(time.Second)
	if got := none.Marks(); !reflect.DeepEqual(got, Marks{}) {
		t.Errorf("got %+v", got)
	}
}
