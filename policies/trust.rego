# What a server claims of itself is not proven. A tenant says for which
# constraints its word is not enough when a task asks for them:
#
#	policy:
#	  trust:
#	    - {constraints: [readonly], except_tiers: [free]}
#	    - {constraints: [pii_safe], except_roles: [developer]}
#	    - {constraints: [readonly]}                               # for everybody
#
# The rows name those whom they do not concern. Whoever's tier or role is not
# known is then judged strictly; a list of those whom they do concern would let
# a misspelt tier off.
package switchboard

# Who says so, where it is not the server or its makers: the operator's overlay, a person of the tenant. A source that is not
# in this list counts as the server's. What Switchboard enforces itself needs
# no word of anybody (candidate.enforced).
vouching_sources := {"overlay", "tenant_overlay"}

deny[c.id] contains reason if {
	rows := input.tenant_policy.trust
	some row in rows
	not excepted(row)
	some constraint in row.constraints
	constraint in input.requirement.constraints
	some c in input.candidate_tools
	some capability in c.capabilities
	constraint in capability.constraints
	not vouched(c, capability)
	not enforced(c, constraint)
	reason := sprintf("only the server itself says that it is %s", [constraint])
}

vouched(c, _) if c.trust == "operator"

vouched(_, capability) if capability.source in vouching_sources

# A rule of its own: "not constraint in c.enforced" is undefined, and no veto, where a candidate says nothing of it.
enforced(c, constraint) if constraint in c.enforced

excepted(row) if input.user_tier in row.except_tiers

excepted(row) if {
	some role in input.principal.roles
	role in row.except_roles
}

deny[c.id] contains reason if {
	some fault in trust_faults
	some c in input.candidate_tools
	reason := sprintf("tenant_policy.trust: %s", [fault])
}

trust_faults contains "it must be a list of rows" if {
	rows := input.tenant_policy.trust
	not is_array(rows)
}

trust_faults contains fault if {
	some i, row in input.tenant_policy.trust
	not is_trust_row(row)
	fault := sprintf("[%v] must name constraints, and at most except_tiers and except_roles besides", [i])
}

is_trust_row(row) if {
	has_only(row, {"constraints", "except_tiers", "except_roles"})
	_ := row.constraints
	every list in row { are_texts(list) }
}
