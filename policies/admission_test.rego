package switchboard_test

import data.switchboard

judged(id, evidence, effects) := object.union(tool(id, [cap("read", "fs", ["readonly"])]), {"evidence": evidence, "contract": {"side_effects": effects}})

offered := {"phase": "admit", "candidate_tools": [
	judged("a/safe", {"state": "active", "risk": "safe"}, []),
	judged("a/high", {"state": "active", "risk": "high"}, ["deletes"]),
	judged("a/person", {"state": "active", "risk": "prohibited", "let_in_by": "person"}, ["attacks-accounts", "reads"]),
	judged("a/masses", {"state": "testing", "risk": "prohibited"}, ["mass-messages"]),
	judged("a/own", {"state": "active", "risk": "prohibited"}, ["writes-switchboard"]),
	judged("a/spends", {"state": "active", "risk": "prohibited"}, ["costs-money"]),
	tool("a/unknown", []),
]}

test_what_is_prohibited_is_kept_out if {
	answer := switchboard.keep_out with input as offered
	answer["a/person"] == {"its risk is prohibited: it attacks accounts"}
	answer["a/masses"] == {"its risk is prohibited: it writes to masses of people"}
	answer["a/own"] == {"its risk is prohibited: it writes Switchboard's own configuration"}
	some why in answer["a/spends"]
	contains(why, "it spends money, and no budget is over it")
}

test_nothing_else_is_kept_out if {
	answer := switchboard.keep_out with input as offered
	object.keys(answer) == {"a/person", "a/masses", "a/own", "a/spends"}
}

test_what_a_tenant_calls_prohibited_is_denied if {
	left == {"a/safe", "a/high", "a/unknown"} with input as asks(offered.candidate_tools, {})
}

on_trial := [
	object.union(tool("a/writes", [cap("write", "fs", [])]), {"evidence": {"state": "testing"}}),
	object.union(tool("a/unlabelled", []), {"evidence": {"state": "testing"}}),
	object.union(tool("a/vouched", [{"verb": "read", "resource": "fs", "constraints": ["readonly"], "source": "overlay"}]), {"evidence": {"state": "testing"}}),
	object.union(tool("a/claims", [{"verb": "read", "resource": "fs", "constraints": ["readonly"], "source": "tool"}]), {"evidence": {"state": "testing"}}),
	object.union(tool("a/active", [cap("write", "fs", [])]), {"evidence": {"state": "active"}}),
	tool("a/unknown", [cap("write", "fs", [])]),
]

asked_on_trial(extra) := {id | some id, _ in answer} if {
	answer := switchboard.obligations with input as object.union(asks(on_trial, {}), extra)
}

test_what_may_change_something_asks_on_trial_in_every_mode if {
	asked_on_trial({"mode": "autopilot"}) == {"a/writes", "a/unlabelled", "a/claims"}
}

test_the_servers_own_claim_counts_where_the_operator_says_so if {
	asked_on_trial({"mode": "autopilot", "least_trust": "declared"}) == {"a/writes", "a/unlabelled"}
}

test_the_tenant_says_who_is_asked_about_a_trial if {
	wanted := object.union(asks(on_trial, {}), {"mode": "autopilot", "tenant_policy": {"approval": {"who": ["oncall"], "expires": "5m"}}})
	obligations := switchboard.obligations with input as wanted
	some obligation in obligations["a/writes"]
	obligation.who == ["oncall"]
}
