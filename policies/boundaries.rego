# Boundaries: what no agent does, or not without a person. They are rows of
# capabilities/boundaries.yaml, which only the operator writes:
#
#	- {id: no_money_without_ask, severity: hard, side_effects_any: [costs-money],
#	   decision: require_approval, who: [finance]}
#
# This file judges them. It is a layer of its own, in front of the operator's and
# the tenant's, and it is always in force: a copy in a folder policies/ changes
# nothing. To change what is allowed, write rows.
#
# The rows are data.boundaries. The file reads nothing but them and the contract of
# each candidate: not the arguments of a call, not the clock, not who asks. So one
# answer holds from the selection of a tool until its last call.
package switchboard.boundaries

# A row can only forbid, or ask a person. So this layer allows every candidate, and
# the next layers decide about it as always.
allowed_tools contains c.id if some c in input.candidate_tools

deny[c.id] contains sprintf("%s%s", [place(row), why(row)]) if {
	some c in input.candidate_tools
	some row in fired(c.contract)
	row.effect == "block"
}

# A row without "who" asks everyone who may approve.
obligations[c.id] contains object.union(
	{"type": "require_approval", "reason": place(row)},
	object.filter(row, {"who"}),
) if {
	some c in input.candidate_tools
	some row in fired(c.contract)
	row.effect == "ask"
}

# fired(contract) is every row that fires, with its effect: those that only warn as
# well, which "switchboard resolve" shows.
fired(contract) := {object.union(
	outcome(row, contract),
	object.union({"row": row.id}, object.filter(row, {"who", "file", "line"})),
) |
	some row in data.boundaries
}

place(row) := sprintf("policy:%s (%s:%d)", [row.row, row.file, row.line])

why(row) := "" if row.text == ""

why(row) := sprintf(": %s", [row.text]) if row.text != ""

# outcome(row, contract) is what the row does if it fires; else it is undefined. A
# soft row only warns.
outcome(row, contract) := {"effect": "warn", "text": sprintf("%s, but the row is soft", [row.decision])} if {
	row.severity == "soft"
	fires(row, contract)
}

outcome(row, contract) := hard_outcome(row, contract) if {
	row.severity == "hard"
	fires(row, contract)
}

hard_outcome(row, _) := {"effect": "block", "text": ""} if row.decision == "deny"

hard_outcome(row, _) := {"effect": "ask", "text": ""} if row.decision == "require_approval"

hard_outcome(row, _) := {"effect": "warn", "text": "advised against"} if row.decision == "advise"

hard_outcome(row, contract) := {"effect": "warn", "text": sprintf("acts as %s", [account_of(row)])} if {
	acts_as(contract, account_of(row))
}

hard_outcome(row, contract) := {"effect": "block", "text": sprintf("no %s account in deps", [account_of(row)])} if {
	not acts_as(contract, account_of(row))
}

# account_of is defined for the decision deny_unless_account:NAME alone. So the two
# rules above say nothing about other decisions.
account_of(row) := trim_prefix(row.decision, "deny_unless_account:") if {
	startswith(row.decision, "deny_unless_account:")
}

# NAME is a whole part of the account's id, in any case: brian is in
# acc.Brian.fb_page, and not in acc.brianna.fb_page.
acts_as(contract, name) if {
	some id in contract.accounts
	contains(sprintf(".%s.", [lower(id)]), sprintf(".%s.", [lower(name)]))
}

# A row fires if all of its clauses hold, not if any does. A clause that a row lacks
# restricts nothing.
fires(row, contract) if {
	not is_exception(row, contract)
	side_effect_holds(row, contract)
	cost_class_holds(row, contract)
	risk_level_holds(row, contract)
	id_holds(row, contract)
}

# An exception is about its own row alone.
is_exception(row, contract) if contract.id in row.exceptions

side_effect_holds(row, _) if not row.side_effects_any

side_effect_holds(row, contract) if {
	some effect in row.side_effects_any
	effect in contract.side_effects
}

cost_class_holds(row, _) if not row.cost_class

cost_class_holds(row, contract) if contract.cost_class in row.cost_class

risk_level_holds(row, _) if not row.risk_level

risk_level_holds(row, contract) if contract.risk_level in row.risk_level

id_holds(row, _) if not row.id_matches

# The pattern is for the whole id: cap\.mac\.run is not about cap.mac.run_command.
id_holds(row, contract) if regex.match(sprintf(`^(?:%s)$`, [row.id_matches]), contract.id)
