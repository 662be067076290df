package switchboard_test

import data.switchboard

claimed(source) := tool(concat("", ["a/", source]), [object.union(cap("read", "fs", ["readonly"]), {"source": source})])

claims := [claimed(source) | some source in ["overlay", "manifest", "handshake", "tool", "tenant_overlay", "rumour"]]

vouched := {"a/overlay", "a/tenant_overlay"}

everything := {c.id | some c in claims}

trusting(rows) := asks(claims, {"trust": rows})

test_the_word_of_a_server_is_not_enough if {
	left == vouched with input as trusting([{"constraints": ["readonly"]}])
}

test_it_is_enough_where_the_operator_vouches_for_the_server if {
	candidates := [object.union(c, {"trust": "operator"}) | some c in claims]
	left == everything with input as asks(candidates, {"trust": [{"constraints": ["readonly"]}]})
}

test_it_is_enough_for_a_constraint_that_no_row_or_no_task_names if {
	left == everything with input as trusting([{"constraints": ["pii_safe"]}])
	asked := object.union(trusting([{"constraints": ["readonly"]}]), {"requirement": {"constraints": []}})
	left == everything with input as asked
}

test_what_switchboard_enforces_needs_no_word if {
	candidates := [object.union(claimed("tool"), {"enforced": ["pii_safe", "readonly"]})]
	left == {"a/tool"} with input as asks(candidates, {"trust": [{"constraints": ["readonly"]}]})
	other := [object.union(claimed("tool"), {"enforced": ["pii_safe"]})]
	left == set() with input as asks(other, {"trust": [{"constraints": ["readonly"]}]})
}

test_it_is_asked_only_of_what_carries_the_constraint if {
	c := tool("a/plain", [cap("read", "fs", ["readonly"]), object.union(cap("read", "aws", []), {"source": "tool"})])
	left == {"a/plain"} with input as asks([c], {"trust": [{"constraints": ["readonly"]}]})
}

test_one_capability_that_only_the_server_claims_is_one_too_many if {
	mixed := tool("a/mixed", [cap("read", "fs", ["readonly"]), object.union(cap("read", "aws", ["readonly"]), {"source": "tool"})])
	asked := asks([mixed], {"trust": [{"constraints": ["readonly"]}]})
	left == set() with input as asked
	switchboard.deny["a/mixed"] == {"only the server itself says that it is readonly"} with input as asked
}

test_rows_except_tiers_and_roles if {
	left == everything with input as trusting([{"constraints": ["readonly"], "except_tiers": ["free", "pro"]}])
	left == everything with input as trusting([{"constraints": ["readonly"], "except_roles": ["analyst"]}])
	left == vouched with input as trusting([{"constraints": ["readonly"], "except_tiers": ["free"], "except_roles": ["admin"]}])
}

test_nobody_who_is_not_known_is_excepted if {
	asked := trusting([{"constraints": ["readonly"], "except_tiers": ["pro"], "except_roles": ["analyst"]}])
	left == vouched with input as object.remove(asked, ["user_tier", "principal"])
}

test_trust_that_cannot_be_read_leaves_nothing if {
	every bad in [
		null, false, "readonly", {"constraints": ["readonly"]}, ["readonly"], [{}], [{"constraints": "readonly"}],
		[{"constraints": []}], [{"constraints": ["readonly"], "tiers": ["pro"]}],
		[{"constraints": ["readonly"], "except_tiers": "pro"}], [{"except_roles": ["x"]}],
	] {
		left == set() with input as trusting(bad)
	}
}
