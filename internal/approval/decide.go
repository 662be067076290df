package approval

import (
	"slices"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// DecideRules are the parts of the configuration that MayDecide needs.
type DecideRules struct {
	// Self says that the principal that asked may decide itself: the operator's row says so.
	Self bool

	// Unmanned says that the configuration has no issuer, and the tenant has no approver's key. Then a reader of the data folder decides.
	Unmanned bool
}

// MayDecide returns why the officer may not decide the request: nil, or a *switchboard.Error SB-AUTH-002. Policy may still veto.
func MayDecide(o *switchboard.Officer, r *Request, rules DecideRules) error {
	tenant := r.Asker.Tenant
	anyone := rules.Unmanned && o.Auth == switchboard.AuthDataFolder
	refuse := func(hint, format string, args ...any) error {
		e := switchboard.Refuse(switchboard.CodeNotAuthorized, format, args...)
		e.Hint = hint
		return e
	}
	switch {
	case !anyone && !o.Holds(switchboard.OfficeApprover, tenant):
		return refuse("ask an operator for a row under approvers of the tenant", "you do not hold the office approver in tenant %s", tenant)
	case !anyone && !rules.Self && r.Asker.isPerson(o):
		return refuse("another approver decides; approvals: {self: true} in the operator's file permits it", "you have asked for this yourself, and who asks does not decide")
	case len(r.Terms.Who) > 0 && !slices.ContainsFunc(r.Terms.Who, func(who string) bool { return isNamed(o, tenant, who, anyone) }):
		return refuse("", "the rule that asked names other people: %s", joinWords(r.Terms.Who))
	}
	return nil
}

// isPerson reports whether the officer is the person behind the asker, also if the officer's key has another id by now.
func (a *Asker) isPerson(o *switchboard.Officer) bool {
	return o.ID == switchboard.PersonBehind(a.Principal) || o.Credential != "" && slices.Contains(a.Keys, o.Credential)
}

// isNamed reports whether the entry who names the officer: by its id, an office or a role.
func isNamed(o *switchboard.Officer, tenant switchboard.TenantID, who string, anyone bool) bool {
	switch {
	case who == "":
		return false // no person may give the approvals of several rules
	case who == o.ID, who == string(switchboard.OfficeApprover):
		return true // it holds this office, or anyone may decide
	case slices.Contains(o.Roles[tenant], who):
		return true
	}
	return !anyone && o.Holds(switchboard.Office(who), tenant) && slices.Contains(switchboard.TenantOffices, switchboard.Office(who))
}
