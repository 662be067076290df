package app

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/summit-switchboard/switchboard/internal/approval"
	"github.com/summit-switchboard/switchboard/internal/bind"
	"github.com/summit-switchboard/switchboard/internal/config"
	"github.com/summit-switchboard/switchboard/internal/identity"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A key that is gone does not come back, so the approver is told to refuse. A tenant with a faulty file is served again once the file is mended.
func TestAnApproverIsToldWhyTheCallCannotBeMade(t *testing.T) {
	var state atomic.Pointer[servingState]
	state.Store(&servingState{State: &bind.State{
		Config: &config.Config{Refused: map[switchboard.TenantID]bool{"acme": true}}, Ring: identity.New(nil, &switchboard.Tenant{ID: "acme"}, true, nil),
	}})
	for _, tt := range []struct {
		name  string
		asker approval.Asker
		want  switchboard.Code
	}{
		{"the tenant's file is faulty", approval.Asker{Tenant: "acme", Principal: switchboard.LocalID, Auth: switchboard.AuthLocal}, switchboard.CodeConfig},
		{"the key is gone", approval.Asker{Tenant: "acme", Principal: "ci", Auth: switchboard.AuthAPIKey}, switchboard.CodeApprovalGone},
	} {
		err := live{&state, nil}.vetoApproval(t.Context(), nil, &approval.Request{Kind: approval.ForCall, Asker: tt.asker}, nil, nil)
		if e, ok := errors.AsType[*switchboard.Error](err); !ok || e.Code != tt.want {
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		}
	}
}
