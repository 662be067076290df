# Who may use what, before any other rule has its say.
#
# This file is the base that the others stand on: without it nothing would be
# in allowed_tools, and what is not in there is refused. The others only deny.
#
# A tenant narrows it in its own document, policy: in tenant.yaml, which rules
# read as input.tenant_policy:
#
#	policy:
#	  allow: ["brave/*", "files/read_*"]    # these and no others; absent: all
#	  deny: ["*/delete_*"]                  # and these never
#
# Patterns are "server/tool"; * stands for any text. See rows.rego.
package switchboard

# A rule is an answer for every candidate at once: `some c` goes over them, and
# what holds for c is said of c.id.
allowed_tools contains c.id if {
	not allow_is_given
	some c in input.candidate_tools
}

allowed_tools contains c.id if {
	patterns := input.tenant_policy.allow
	some pattern in patterns
	named := glob_of(pattern)
	some c in input.candidate_tools
	glob.match(named, ["/"], c.id)
}

# `not input.tenant_policy.allow` would be true of `allow: false` as well, and
# then a tenant that mistyped its list would have every tool. An assignment
# holds whatever the value is, as long as there is one.
allow_is_given if _ := input.tenant_policy.allow

deny[c.id] contains reason if {
	patterns := input.tenant_policy.deny
	some pattern in patterns
	named := glob_of(pattern)
	some c in input.candidate_tools
	glob.match(named, ["/"], c.id)
	reason := sprintf("tenant_policy.deny names it: %s", [pattern])
}

# A setting that cannot be read denies everything. It must never mean "no rule".
deny[c.id] contains `tenant_policy.allow must be a list of patterns "server/tool"` if {
	patterns := input.tenant_policy.allow
	not are_patterns(patterns)
	some c in input.candidate_tools
}

deny[c.id] contains `tenant_policy.deny must be a list of patterns "server/tool"` if {
	patterns := input.tenant_policy.deny
	not are_patterns(patterns)
	some c in input.candidate_tools
}
