# Private data does not leave by the words of a stranger.
#
# Each tool says what its calls do with data, as c.flow: it brings text that
# strangers wrote, it sees private data, it carries data out. A run that has
# touched the first two can be made to do the third: the stranger's text says
# what to read and where to send it. So such a call is special:
#
#	mode autopilot          the receipt says what the run had touched
#	mode assist or observe  a person is asked
#	flows: ask              a person is asked, in every mode
#	flows: never            it is denied
#
# flows: stands in tenant.yaml, and in the operator's row of the tenant.
#
# input.run.touched is what earlier calls of the run have touched: it is there
# when a tool with a flow is called, and for nothing else. What the call itself
# brings comes too late to change its arguments, so it does not count. What it
# sees can leave with it, so that counts (a mail with a file of the disk).
#
# Each rule names its mode or setting, and "carries", in its own body: so calls
# that it is not about cost nothing. Who is asked, and for how long a yes holds,
# is in modes.rego.
package switchboard

obligations[c.id] contains flow_approval if {
	input.mode == "assist"
	some c in input.candidate_tools
	"carries" in c.flow
	flow_leaks(c)
}

obligations[c.id] contains flow_approval if {
	input.mode == "observe"
	some c in input.candidate_tools
	"carries" in c.flow
	flow_leaks(c)
}

obligations[c.id] contains flow_approval if {
	input.flows == "ask"
	some c in input.candidate_tools
	"carries" in c.flow
	flow_leaks(c)
}

deny[c.id] contains "flows: never: the run has read private data and text of strangers, and this call carries data out" if {
	input.flows == "never"
	some c in input.candidate_tools
	"carries" in c.flow
	flow_leaks(c)
}

flow_leaks(c) if {
	"brings" in input.run.touched
	flow_sees(c)
}

flow_sees(_) if "sees" in input.run.touched

flow_sees(c) if "sees" in c.flow

flow_approval := {
	"type": "require_approval",
	"who": approval.who,
	"expires": approval.expires,
	"reason": "the run has read private data and text of strangers, and this call carries data out",
}
