package switchboard_test

import data.switchboard

office := {
	"zone": "Europe/Berlin",
	"days": ["monday", "tuesday", "wednesday", "thursday", "friday"],
	"from": "08:00", "to": "18:00",
	"deny": [{"tool": "aws/s3_*", "verb": "write"}],
}

put := tool("aws/s3_put_object", [cap("write", "aws", [])])

at(candidate, now) := answer if answer := left with input as object.union(calls(candidate, {"business_hours": office}, {}), {"now": now})

put_is_left_at(now) if "aws/s3_put_object" in at(put, now)

# In November, Berlin is an hour ahead of UTC; 2026-11-20 is a Friday.
test_no_writes_to_s3_while_people_work if {
	every now in ["2026-11-20T07:00:00Z", "2026-11-20T12:30:00Z", "2026-11-20T16:59:59.999Z", "2026-11-20T12:00:00+05:00"] {
		not put_is_left_at(now)
	}
}

test_writes_at_night_and_at_the_weekend if {
	every now in ["2026-11-20T06:59:59Z", "2026-11-20T17:00:00Z", "2026-11-21T12:00:00Z", "2026-11-22T12:00:00Z"] {
		put_is_left_at(now)
	}
}

test_hours_are_those_of_the_zone_in_summer_too if {
	not put_is_left_at("2026-07-03T06:00:00Z")
	put_is_left_at("2026-07-03T16:00:00Z")
}

test_the_day_is_the_one_in_the_zone if {
	hours := object.union(office, {"zone": "Pacific/Auckland", "from": "00:00", "to": "24:00"})
	asked := calls(put, {"business_hours": hours}, {})
	left == {"aws/s3_put_object"} with input as object.union(asked, {"now": "2026-11-20T11:30:00Z"})
	left == set() with input as object.union(asked, {"now": "2026-11-22T11:30:00Z"})
}

test_other_tools_are_left_in_business_hours if {
	now := "2026-11-20T12:00:00Z"
	at(tool("aws/s3_get_object", [cap("read", "aws", ["readonly"])]), now) == {"aws/s3_get_object"}
	at(tool("gcp/s3_put_object", [cap("write", "aws", [])]), now) == {"gcp/s3_put_object"}
}

test_nothing_is_expanded_in_business_hours_that_may_not_be_called if {
	asked := object.union(calls(put, {"business_hours": office}, {}), {"phase": "expand"})
	left == set() with input as object.union(asked, {"now": "2026-11-20T12:00:00Z"})
	left == {"aws/s3_put_object"} with input as object.union(asked, {"now": "2026-11-20T20:00:00Z"})
}

test_lists_do_not_change_with_the_clock if {
	left == {"aws/s3_put_object"} with input as asks([put], {"business_hours": office})
}

test_it_says_which_hours if {
	reasons := switchboard.deny["aws/s3_put_object"] with input as calls(put, {"business_hours": office}, {})
	reasons == {"not in business hours, 08:00 to 18:00 in Europe/Berlin"}
}

test_hours_that_cannot_be_read_leave_nothing if {
	every bad in [null, false, "08:00", [], {}] {
		left == set() with input as asks([put], {"business_hours": bad})
	}
	every bad in [
		{"zone": ""}, {"zone": "Local"}, {"zone": "local"}, {"zone": 1}, {"days": []}, {"days": "monday"}, {"days": {"x": "friday"}},
		{"days": ["Monday"]}, {"days": ["mon"]}, {"from": "8:00"}, {"from": 480}, {"to": "25:00"}, {"to": "18:60"},
		{"from": "18:00"}, {"from": "24:00"}, {"to": "07:00"}, {"deny": {}}, {"deny": [{}]}, {"deny": [{"verb": "wirte"}]},
		{"holidays": []},
	] {
		hours := object.union(office, bad)
		left == set() with input as object.union(calls(put, {"business_hours": hours}, {}), {"now": "2026-11-22T12:00:00Z"})
	}
	every key, _ in office {
		left == set() with input as asks([put], {"business_hours": object.remove(office, [key])})
	}
}
