package switchboard_test

import data.switchboard

tiers := {
	"order": ["free", "pro", "enterprise"],
	"needs": [{"class": "paid_api", "tier": "pro"}, {"server": "x-*", "tier": "enterprise"}],
}

tiered := [
	tool("a/free", []),
	object.union(tool("b/paid", []), {"class": "paid_api"}),
	object.union(tool("x-1/both", []), {"class": "paid_api"}),
]

left_to(tier) := answer if answer := left with input as object.union(asks(tiered, {"tiers": tiers}), {"user_tier": tier})

test_each_tier_has_what_it_reaches if {
	left_to("free") == {"a/free"}
	left_to("pro") == {"a/free", "b/paid"}
	left_to("enterprise") == {"a/free", "b/paid", "x-1/both"}
}

test_a_tier_that_is_not_known_reaches_nothing if {
	every tier in ["", "Pro", "gold", null] { left_to(tier) == {"a/free"} }
	asked := object.remove(asks(tiered, {"tiers": tiers}), ["user_tier"])
	left == {"a/free"} with input as asked
}

test_it_says_which_tier_a_tool_needs if {
	reasons := switchboard.deny["x-1/both"] with input as asks(tiered, {"tiers": tiers})
	reasons == {"it needs tier enterprise"}
}

test_tiers_that_cannot_be_read_leave_nothing if {
	every bad in [
		null, false, "pro", [], {}, {"order": ["free", "pro"]}, {"needs": []},
		{"order": [], "needs": []}, {"order": ["pro", "pro"], "needs": []}, {"order": "pro", "needs": []},
		{"order": ["pro"], "needs": {}}, {"order": {"x": "pro"}, "needs": []}, {"order": ["pro"], "needs": [], "more": 1},
		{"order": ["pro"], "needs": [{"class": "a", "tier": "prp"}]}, {"order": ["pro"], "needs": [{"class": "a"}]},
		{"order": ["pro"], "needs": [{"tier": "pro"}]}, {"order": ["pro"], "needs": ["pro"]},
	] {
		left == set() with input as asks(tiered, {"tiers": bad})
	}
}

test_it_says_what_cannot_be_read if {
	bad := {"order": ["pro", "pro"], "needs": [{"tier": "pro"}], "more": 1}
	reasons := switchboard.deny["a/free"] with input as asks(tiered, {"tiers": bad})
	reasons == {
		"tenant_policy.tiers: it must have order and needs, and nothing else",
		"tenant_policy.tiers: order must be a list of tiers, each once",
		"tenant_policy.tiers: needs[0] must say which tools, and a tier of the order",
	}
}
