package switchboard.tenant_test

import data.switchboard.tenant

notify := {"id": "chat/notify", "capabilities": [{"verb": "notify", "resource": "slack"}]}

read := {"id": "chat/read_messages", "capabilities": [{"verb": "read", "resource": "slack"}]}

call(tool, arguments) := {"phase": "call", "candidate_tools": [tool], "call": {"arguments": arguments}}

test_agents_write_to_their_channels if {
	every channel in ["alerts", "security"] {
		tenant.deny == {} with input as call(notify, {"channel": channel, "text": "hello"})
	}
}

test_and_to_no_other if {
	every arguments in [{"channel": "general"}, {"channel": ["alerts"]}, {"Channel": "alerts"}, {}] {
		tenant.deny["chat/notify"] with input as call(notify, arguments)
	}
}

test_they_read_every_channel if tenant.deny == {} with input as call(read, {"channel": "general"})

test_the_tool_is_listed if {
	"chat/notify" in tenant.allowed_tools with input as {"phase": "select", "candidate_tools": [notify]}
	tenant.deny == {} with input as {"phase": "select", "candidate_tools": [notify]}
}

test_what_they_write_is_logged if {
	logged := {"chat/notify": {{"type": "log", "level": "info"}}}
	tenant.obligations == logged with input as {"phase": "select", "candidate_tools": [notify, read]}
}
