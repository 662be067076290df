# How much an agent may do alone. The tenant sets mode:, and a key or a task may
# only lower it; which of the three holds is always given as input.mode.
#
#	observe     only tools that do nothing but read
#	assist      what does more waits for a person, call by call
#	autopilot   as the other rules say
#
# That a tool does nothing but read counts only where a person vouches for it, as in trust.rego. For the local user, and where the
# operator's row of the tenant says trust: declared, the server's own word is enough (input.least_trust).
#
# Who is asked, and for how long a grant holds, a tenant may say:
#
#	policy:
#	  approval: {who: [oncall], expires: 15m}     # absent: [approver], 1h
package switchboard

deny[c.id] contains "mode observe: only tools of which every capability is readonly, by more than the server's own word" if {
	input.mode == "observe"
	some c in input.candidate_tools
	not only_reads(c)
}

obligations[c.id] contains obligation if {
	input.mode == "assist"
	some c in input.candidate_tools
	not only_reads(c)
	obligation := {"type": "require_approval", "who": approval.who, "expires": approval.expires}
}

deny[c.id] contains "the mode is none of observe, assist and autopilot" if {
	not mode_is_known
	some c in input.candidate_tools
}

# A rule of its own: `not input.mode in {…}` is undefined, and so denies nothing,
# where there is no input.mode. What stands after a `not` is looked up before it.
mode_is_known if input.mode in {"observe", "assist", "autopilot"}

# Resources, prompts and completions only read, by the protocol: but it is their server that keeps to it, or not. A method of an
# extension may do anything.
only_reads(c) if {
	c.kind in {"resource", "template", "prompt", "completion"}
	counts(c, {"source": "protocol"})
}

# A call can exercise any capability of a tool, so all of them must be readonly.
# `every` holds for an empty list too: a tool that says nothing of itself would
# count as one that only reads, if nobody counted.
only_reads(c) if {
	count(c.capabilities) > 0
	every capability in c.capabilities {
		"readonly" in capability.constraints
		counts(c, capability)
	}
}

counts(_, _) if input.least_trust == "declared"

counts(c, capability) if vouched(c, capability)

approval := {
	"who": object.get(input.tenant_policy, ["approval", "who"], ["approver"]),
	"expires": object.get(input.tenant_policy, ["approval", "expires"], "1h"),
}

deny[c.id] contains reason if {
	given := input.tenant_policy.approval
	not is_approval(given)
	some c in input.candidate_tools
	reason := "tenant_policy.approval must be {who: [roles], expires: a time such as 1h}"
}

is_approval(given) if {
	has_only(given, {"who", "expires"})
	are_texts(approval.who)
	is_string(approval.expires)
	regex.match(`^[1-9][0-9]{0,5}(s|m|h)$`, approval.expires)
}
