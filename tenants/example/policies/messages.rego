# The tenant's own layer. It can take away from what the operator's policies
# leave, and never add to it: that it allows every candidate here means only that
# it denies by the rules below and by nothing else.
package switchboard.tenant

allowed_tools contains c.id if some c in input.candidate_tools

# Messages reach people, so agents write to the channels that expect them.
deny[c.id] contains "agents write to alerts and security only" if {
	input.phase == "call"
	some c in input.candidate_tools
	c.id == "chat/notify"
	not to_a_channel_for_agents
}

# A rule of its own, since it must hold: a call that names no channel is denied
# as well. `not input.call.arguments.channel in {…}` would say nothing of it.
to_a_channel_for_agents if input.call.arguments.channel in {"alerts", "security"}

# What an agent has said stands in the log.
obligations[c.id] contains {"type": "log", "level": "info"} if {
	some c in input.candidate_tools
	some capability in c.capabilities
	capability.verb == "notify"
}
