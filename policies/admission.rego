# What is let in, and what a tool on trial may do.
#
# In the phase admit, Switchboard asks once about each tool that is new or has
# changed: which are kept out, although a person or the first sight would let
# them in? What is kept out is no candidate for any task.
#
#	keep_out[c.id] contains "why" if { … }
#
# keep_out can only take out. trust: strict, and a tool that was not in the first
# list of its server, need a person whatever these rules say. The input of this
# phase has the phase and candidate_tools, and nothing else: there is no clock, no
# tenant and no caller, so that every replica gives the same answer, and so that
# an answer holds until the tool or these rules change.
#
# An operator may be stricter, in a file beside this one:
#
#	keep_out[c.id] contains "a person must look at what can harm" if {
#		some c in input.candidate_tools
#		c.evidence.risk in {"medium", "high"}
#		not c.evidence.let_in_by == "person"
#	}
package switchboard

# What no budget and no person makes good. An overlay or a contract says that a
# tool has such a side effect: side_effects: [mass-messages].
prohibited_effects := {
	"attacks-accounts": "it attacks accounts",
	"mass-messages": "it writes to masses of people",
	"writes-switchboard": "it writes Switchboard's own configuration",
}

keep_out[c.id] contains sprintf("its risk is prohibited: %s", [why]) if {
	some c in input.candidate_tools
	c.evidence.risk == "prohibited"
	some why in prohibited_because(c)
}

prohibited_because(c) := reasons if {
	reasons := [prohibited_effects[effect] | some effect in c.contract.side_effects]
	count(reasons) > 0
} else := ["it spends money, and no budget is over it; give it budget: in its overlay, or give each tenant that has its server a budget"]

# A tenant's overlay can say that a tool has such a side effect, too. Then the
# tool is out for this tenant.
deny[c.id] contains "its risk is prohibited" if {
	some c in input.candidate_tools
	c.evidence.risk == "prohibited"
}

# A tool on trial came after the first list of its server, and no person has let
# it in. What it says of itself is no reason to let it change anything.
obligations[c.id] contains trial_approval if {
	some c in input.candidate_tools
	c.evidence.state == "testing"
	not only_reads(c)
}

trial_approval := {
	"type": "require_approval",
	"who": approval.who,
	"expires": approval.expires,
	"reason": "it is on trial: no person has let it in, and it is not known to only read",
}
