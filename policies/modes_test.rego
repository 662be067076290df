package switchboard_test

import data.switchboard

modal := [
	tool("a/reads", [cap("read", "fs", ["pii_safe", "readonly"]), cap("search", "internet", ["readonly"])]),
	tool("a/also_writes", [cap("read", "fs", ["readonly"]), cap("write", "fs", [])]),
	tool("a/says_nothing", []),
	tool("a/half_said", [{"verb": "read", "resource": "fs"}]),
]

in_mode(mode, policy) := object.union(asks(modal, policy), {"mode": mode})

all_of_them := {"a/reads", "a/also_writes", "a/says_nothing", "a/half_said"}

asked_before(mode, policy) := answer if answer := switchboard.obligations with input as in_mode(mode, policy)

test_observe_leaves_what_only_reads if {
	left == {"a/reads"} with input as in_mode("observe", {})
	asked_before("observe", {}) == {}
}

test_assist_asks_a_person_before_what_does_more if {
	ask := {{"type": "require_approval", "who": ["approver"], "expires": "1h"}}
	asked_before("assist", {}) == {"a/also_writes": ask, "a/says_nothing": ask, "a/half_said": ask}
	left == all_of_them with input as in_mode("assist", {})
}

test_autopilot_asks_nobody if {
	asked_before("autopilot", {}) == {}
	left == all_of_them with input as in_mode("autopilot", {})
}

test_a_mode_that_is_not_known_leaves_nothing if {
	every mode in ["", "Autopilot", "auto", null] { left == set() with input as in_mode(mode, {}) }
	left == set() with input as object.remove(asks(modal, {}), ["mode"])
}

test_a_tenant_says_who_is_asked_and_how_long_a_grant_holds if {
	obligations := asked_before("assist", {"approval": {"who": ["oncall"], "expires": "15m"}})
	obligations["a/also_writes"] == {{"type": "require_approval", "who": ["oncall"], "expires": "15m"}}
	left == all_of_them with input as in_mode("assist", {"approval": {"who": ["oncall"]}})
}

test_an_approval_that_cannot_be_read_leaves_nothing if {
	every bad in [
		null, false, ["oncall"], {"who": []}, {"who": "oncall"}, {"who": [""]}, {"expires": "0m"},
		{"expires": 60}, {"expires": "1 h"}, {"expires": "1d"}, {"until": "1h"},
	] {
		left == set() with input as in_mode("autopilot", {"approval": bad})
	}
}

# A capability is readonly by somebody's word: whose counts is the operator's to say.
claimed_to_read := [object.union(tool(concat("", ["a/", source]), [object.union(cap("read", "fs", ["readonly"]), {"source": source})]), {"trust": trust}) |
	some [source, trust] in [["tool", "declared"], ["handshake", "declared"], ["manifest", "declared"], ["overlay", "declared"], ["tenant_overlay", "declared"], ["rumour", "operator"]]
]

by_whose_word(mode, least) := object.union(asks(claimed_to_read, {}), {"mode": mode, "least_trust": least})

test_observe_does_not_take_the_word_of_a_server_for_it if {
	every least in ["operator", "", null] {
		left == {"a/overlay", "a/tenant_overlay", "a/rumour"} with input as by_whose_word("observe", least)
	}
	left == {"a/overlay", "a/tenant_overlay", "a/rumour"} with input as object.remove(by_whose_word("observe", ""), ["least_trust"])
}

test_observe_takes_it_where_the_operator_says_so if {
	left == {c.id | some c in claimed_to_read} with input as by_whose_word("observe", "declared")
}

test_assist_asks_a_person_where_only_the_server_says_that_it_reads if {
	{id | some id, _ in switchboard.obligations} == {"a/tool", "a/handshake", "a/manifest"} with input as by_whose_word("assist", "operator")
	switchboard.obligations == {} with input as by_whose_word("assist", "declared")
}

test_observe_reads_what_is_no_tool_of_a_server_that_is_vouched_for if {
	offered := [item("files", kind, "x") | some kind in ["resource", "template", "prompt", "completion", "extension"]]
	reading := {c.id | some c in offered; c.kind != "extension"}
	left == reading with input as observing(offered, "operator", "operator")
	left == reading with input as observing(offered, "declared", "declared")
	left == set() with input as observing(offered, "declared", "operator")
}

observing(candidates, trust, least) := object.union(
	asks([object.union(c, {"trust": trust}) | some c in candidates], {}),
	{"mode": "observe", "least_trust": least},
)
