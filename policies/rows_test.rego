package switchboard_test

import data.switchboard

# tool makes a candidate as Switchboard gives it to a policy, cap a capability.
tool(id, capabilities) := {
	"id": id, "server": server, "tool": name,
	"capabilities": capabilities, "trust": "declared",
} if {
	[server, name] := switchboard.parts_of(id)
}

cap(verb, resource, constraints) := {
	"verb": verb, "resource": resource,
	"constraints": constraints, "source": "overlay",
}

# asks makes an input: these candidates, in a tenant that says this of policy.
asks(candidates, policy) := {
	"phase": "select", "tenant_id": "acme", "tenant_policy": policy,
	"user_tier": "pro", "mode": "autopilot",
	"principal": {"id": "ann", "roles": ["analyst"], "auth": "api_key"},
	"requirement": {"verb": "read", "resource": "fs", "constraints": ["readonly"]},
	"candidate_tools": candidates, "now": "2026-11-20T09:00:00Z",
}

# calls makes the input of a call of one tool.
calls(candidate, policy, arguments) := object.union(
	asks([candidate], policy),
	{"phase": "call", "call": {"arguments": arguments}},
)

# item makes a candidate that is no tool, and reads the input of a call that names it.
item(server, kind, name) := {
	"id": sprintf("%s/%s:%s", [server, kind, name]), "kind": kind, "server": server, "tool": sprintf("%s:%s", [kind, name]),
	"capabilities": [], "trust": "declared",
}

reads(candidate, policy, uri) := object.union(asks([candidate], policy), {"phase": "call", "call": {"arguments": {}, "uri": uri}})

is_named(pattern, c) if glob.match(switchboard.glob_of(pattern), ["/"], c.id)

is_concerned(row, c) if switchboard.concerns(switchboard.about(row), c)

test_a_pattern_names_tools if {
	every pattern in ["a/b", "a/*", "*/b", "*/*", "a*/b", "*a/*b*", "a/**"] {
		is_named(pattern, tool("a/b", []))
	}
	every pattern in ["a", "b", "*", "A/b", "a/B", "a/b/", "a/bb", "a/?", "a/[b]", "a/{b,c}", "", 7, null] {
		not is_named(pattern, tool("a/b", []))
	}
}

test_a_star_stands_for_any_text_but_not_for_the_slash_after_the_server if {
	is_named("a/*", tool("a/b/c.d", []))
	is_named("a/*d", tool("a/b/c.d", []))
	not is_named("*c.d", tool("a/b/c.d", []))
}

test_nothing_but_a_star_is_special if {
	every name in ["a/?", "a/[b]", "a/{b,c}", `a/\`, `a/\*`, "a/b-c!"] { is_named(name, tool(name, [])) }
}

test_a_row_is_about_what_fits_all_that_it_names if {
	c := object.union(tool("cloud/put", [cap("read", "aws", []), cap("write", "fs", [])]), {"class": "paid_api"})
	every row in [
		{"tool": "cloud/*"}, {"server": "cl*"}, {"class": "paid_api"}, {"verb": "write"}, {"resource": "aws"},
		{"verb": "write", "resource": "fs", "tool": "*/put", "class": "paid_api"},
	] {
		is_concerned(row, c)
	}
	every row in [
		{"tool": "cloud/get"}, {"server": "cl"}, {"class": "free_api"}, {"verb": "execute"}, {"resource": "slack"},
		{"verb": "write", "resource": "aws"}, {"tool": "cloud/*", "class": "free_api"},
	] {
		not is_concerned(row, c)
	}
}

test_a_row_is_about_tools_without_class_and_capabilities_too if {
	is_concerned({"tool": "a/*"}, tool("a/b", []))
	not is_concerned({"verb": "read"}, tool("a/b", []))
	not is_concerned({"class": "paid_api"}, tool("a/b", []))
}

test_a_row_that_cannot_be_read_is_no_row if {
	switchboard.good_row({"tool": "a/*", "verb": "read", "x": 1}, {"x"})
	every bad in [
		null, "a/*", {}, {"x": 1}, {"tol": "a/*"}, {"tool": "a"}, {"tool": ""}, {"tool": ["a/*"]},
		{"verb": "wirte"}, {"class": null}, {"server": 7}, {"tool": "a/*", "y": 1}, {"tool": "a/*", "server": "a"}, {"server": "a/b"},
	] {
		not switchboard.good_row(bad, {"x"})
	}
}
