package admin

import (
	"context"
	"errors"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// slowAtoms has probes that take until they are told to end.
type slowAtoms struct {
	AtomReporter
	began, end chan struct{}
}

func (a slowAtoms) Due(ctx context.Context, _ ...string) {
	select {
	case a.began <- struct{}{}:
		<-a.end
	case <-ctx.Done():
	}
}

func TestAtMostFourAnswersWaitForProbes(t *testing.T) {
	t.Parallel()
	r, _ := twoTenants(t)
	atoms := slowAtoms{began: make(chan struct{}), end: make(chan struct{})}
	r.o.Atoms = atoms
	ask := func(ctx context.Context, probe bool) error {
		_, err := Resolve(ctx, r, bind.ResolveQuery{Tenant: "acme", Probe: probe})
		return err
	}
	answered := make(chan error)
	for range 4 {
		go func() { answered <- ask(t.Context(), true) }()
		<-atoms.began
	}
	over, cancel := context.WithCancel(t.Context())
	cancel() // without a limit, the fifth would end at once
	refused, ok := errors.AsType[*switchboard.Error](ask(over, true))
	if !ok || refused.Code != switchboard.CodeOverloaded || refused.RetryAfter == 0 || refused.Hint == "" {
		t.Errorf("the fifth: %v", refused)
	}
	if err := ask(t.Context(), false); err != nil {
		t.Errorf("without a probe: %v", err)
	}
	atoms.end <- struct{}{}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	go func() { answered <- ask(t.Context(), true) }()
	<-atoms.began // one that has ended makes room
	close(atoms.end)
	for range 4 {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}
