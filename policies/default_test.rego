package switchboard_test

import data.switchboard

# What these tests look at is what Switchboard does with an answer: a candidate
# is left if it is in allowed_tools and nothing in deny speaks of it.
left := {id | some id in switchboard.allowed_tools; not switchboard.deny[id]}

three := [tool("brave/search", []), tool("files/read_file", []), tool("files/delete_file", [])]

test_every_candidate_is_left_to_a_tenant_that_says_nothing if {
	left == {"brave/search", "files/read_file", "files/delete_file"} with input as asks(three, {})
}

test_allow_leaves_what_it_names if {
	left == {"files/read_file"} with input as asks(three, {"allow": ["files/read_*", "other/*"]})
}

test_an_empty_allow_leaves_nothing if {
	left == set() with input as asks(three, {"allow": []})
}

test_deny_takes_away_what_it_names_and_says_so if {
	asked := asks(three, {"deny": ["*/delete_*"]})
	left == {"brave/search", "files/read_file"} with input as asked
	switchboard.deny == {"files/delete_file": {"tenant_policy.deny names it: */delete_*"}} with input as asked
}

test_deny_has_the_last_word if {
	left == {"files/read_file"} with input as asks(three, {"allow": ["files/*"], "deny": ["files/delete_file"]})
}

test_a_setting_that_cannot_be_read_leaves_nothing if {
	every setting in ["allow", "deny"] {
		every bad in [null, false, "files/*", {"x": "files/*"}, ["files"], ["/x"], ["x/"], [7], [["a/b"]]] {
			left == set() with input as asks(three, {setting: bad})
		}
	}
}

test_it_says_which_setting_it_cannot_read if {
	reasons := switchboard.deny["brave/search"] with input as asks(three, {"deny": "brave/*"})
	reasons == {`tenant_policy.deny must be a list of patterns "server/tool"`}
}
