package switchboard_test

import data.switchboard

out_and_in := [
	flowing("mail/send", ["carries"]),
	flowing("mail/attach", ["carries", "sees"]),
	flowing("web/fetch", ["brings", "carries"]),
	flowing("any/thing", ["brings", "carries", "sees"]),
	flowing("files/read", ["sees"]),
	flowing("forge/issue", ["brings"]),
	flowing("clock/now", []),
]

flowing(id, flow) := object.union(tool(id, [cap("read", "fs", ["readonly"])]), {"flow": flow})

all_out := {"mail/send", "mail/attach", "web/fetch", "any/thing"}

touching(touched, mode, flows) := object.union(asks(out_and_in, {}), {"phase": "call", "mode": mode, "flows": flows, "run": {"touched": touched}})

asked_after(touched, mode, flows) := {id | some id, _ in answer} if {
	answer := switchboard.obligations with input as touching(touched, mode, flows)
}

left_after(touched, mode, flows) := answer if answer := left with input as touching(touched, mode, flows)

test_assist_asks_before_data_goes_out if {
	asked_after(["brings", "sees"], "assist", "record") == all_out
	asked_after(["brings", "sees"], "observe", "record") == all_out
	asked_after(["brings", "sees"], "autopilot", "record") == set()
}

test_one_of_the_two_alone_asks_nobody if {
	every mode in ["observe", "assist"] {
		asked_after([], mode, "record") == set()
		asked_after(["sees"], mode, "record") == set()
	}
}

# What the call itself sees can leave with it. What it brings comes too late.
test_what_the_call_sees_counts_and_what_it_brings_does_not if {
	asked_after(["brings"], "assist", "record") == {"mail/attach", "any/thing"}
	asked_after(["sees"], "assist", "record") == set()
}

test_a_tenant_asks_in_every_mode if {
	every mode in ["observe", "assist", "autopilot"] { asked_after(["brings", "sees"], mode, "ask") == all_out }
	asked_after(["sees"], "autopilot", "ask") == set()
}

test_a_tenant_forbids_it_in_every_mode if {
	every mode in ["observe", "assist", "autopilot"] {
		left_after(["brings", "sees"], mode, "never") == {"files/read", "forge/issue", "clock/now"}
		count(left_after(["sees"], mode, "never")) == 7
	}
	count(left_after(["brings", "sees"], "autopilot", "ask")) == 7
}

# Without a call nothing was touched: the tools are listed.
test_a_selection_is_not_asked if {
	every mode in ["observe", "assist", "autopilot"] {
		selection := object.remove(touching([], mode, "never"), ["run"])
		count(left) == 7 with input as selection
		switchboard.obligations == {} with input as selection
	}
}

test_the_tenant_says_who_is_asked if {
	wanted := object.union(touching(["brings", "sees"], "assist", "record"), {"tenant_policy": {"approval": {"who": ["oncall"], "expires": "5m"}}})
	obligations := switchboard.obligations with input as wanted
	some obligation in obligations["mail/send"]
	obligation.who == ["oncall"]
	obligation.expires == "5m"
}
