# What may not be done in business hours: no writes to S3, say, while people
# work with what is in there.
#
#	policy:
#	  business_hours:
#	    zone: Europe/Berlin                 # as the time zone database names it
#	    days: [monday, tuesday, wednesday, thursday, friday]
#	    from: "08:00"                       # in quotes: YAML may read 08:00 as a number
#	    to: "18:00"                         # not included; "24:00" is the day's end
#	    deny:
#	      - {tool: "aws/s3_*", verb: write}
#
# Calls and expansions are denied, lists are not: a tool that came and went with the clock would
# take the client by surprise, and a call that is refused says why. Hours that go
# over midnight need a rule of your own.
package switchboard

# The setting comes first. Where a tenant has none, Switchboard sees that this
# rule cannot fire, and need not ask again at each call because of input.now.
deny[c.id] contains reason if {
	hours := input.tenant_policy.business_hours
	count(hours_faults) == 0
	input.phase in {"call", "expand"}
	within(hours, time.parse_rfc3339_ns(input.now))
	some row in hours.deny
	which := about(row)
	some c in input.candidate_tools
	concerns(which, c)
	reason := sprintf("not in business hours, %s to %s in %s", [hours.from, hours.to, hours.zone])
}

# A zone that the database does not have is an error in time.weekday. An error
# in a rule denies everything, since Switchboard evaluates strictly: it is never
# "undefined", which would mean no rule.
within(hours, ns) if {
	lower(time.weekday([ns, hours.zone])) in hours.days
	[hour, minute, _] := time.clock([ns, hours.zone])
	clock := sprintf("%02d:%02d", [hour, minute])
	clock >= hours.from # texts of one form stand in the order of the times
	clock < hours.to
}

weekdays := {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

clock_form := `^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$`

deny[c.id] contains reason if {
	some fault in hours_faults
	some c in input.candidate_tools
	reason := sprintf("tenant_policy.business_hours: %s", [fault])
}

hours_faults contains "it must have zone, days, from, to and deny, and nothing else" if {
	hours := input.tenant_policy.business_hours
	not has_all_of_hours(hours)
}

has_all_of_hours(hours) if {
	is_object(hours)
	object.keys(hours) == {"zone", "days", "from", "to", "deny"}
	is_array(hours.deny)
}

# "Local" would be another time on each machine.
hours_faults contains "zone must be the name of a time zone, such as Europe/Berlin" if {
	zone := input.tenant_policy.business_hours.zone
	not is_zone(zone)
}

is_zone(zone) if {
	is_text(zone)
	lower(zone) != "local"
}

hours_faults contains "days must be names of days such as monday" if {
	days := input.tenant_policy.business_hours.days
	not are_days(days)
}

are_days(days) if {
	are_texts(days)
	count({day | some day in days} - weekdays) == 0
}

hours_faults contains `from and to must be times such as "08:00", from before to` if {
	hours := input.tenant_policy.business_hours
	not is_span(hours)
}

is_span(hours) if {
	every key in ["from", "to"] {
		is_string(hours[key])
		regex.match(clock_form, hours[key])
	}
	hours.from < hours.to
}

hours_faults contains fault if {
	some i, row in input.tenant_policy.business_hours.deny
	not good_row(row, set())
	fault := sprintf("deny[%v] must say which tools", [i])
}
