package switchboard.boundaries_test

import data.switchboard.boundaries

# A candidate that provides the capability, with these facts.
tool(facts) := {"id": "s/t", "contract": object.union({"capability": "cap.card.charge@1.0.0", "id": "cap.card.charge"}, facts)}

row(parts) := object.union({"id": "r", "severity": "hard", "decision": "deny", "file": "boundaries.yaml", "line": 7}, parts)

# Whether a row with these clauses fires for these facts.
fires(clauses, facts) if {
	boundaries.deny["s/t"] with input as {"candidate_tools": [tool(facts)]}
		with data.boundaries as [row(clauses)]
}

fired(parts, facts) := rows if {
	rows := boundaries.fired(tool(facts).contract) with data.boundaries as [row(parts)]
}

test_every_candidate_is_allowed if {
	boundaries.allowed_tools == {"a/b", "c/d"} with input as {"candidate_tools": [{"id": "a/b", "contract": {}}, {"id": "c/d", "contract": {}}]}
}

test_a_denial_names_the_row_and_its_place if {
	boundaries.deny == {"s/t": {"policy:r (boundaries.yaml:7)"}} with input as {"candidate_tools": [tool({"risk_level": "high"})]}
		with data.boundaries as [row({"risk_level": ["high", "critical"]})]
}

test_each_clause_is_about_its_own_fact if {
	fires({"side_effects_any": ["costs-money", "external-write"]}, {"side_effects": ["costs-money"]})
	not fires({"side_effects_any": ["external-write"]}, {"side_effects": ["costs-money"]})
	fires({"cost_class": ["metered", "paid"]}, {"cost_class": "metered"})
	not fires({"cost_class": ["paid"]}, {"cost_class": "metered"})
	fires({"risk_level": ["high"]}, {"risk_level": "high"})
	not fires({"risk_level": ["high"]}, {"risk_level": "low"})
	fires({"id_matches": `cap\.card\..*`}, {})
	not fires({"id_matches": `cap\.publish\..*`}, {})
}

test_a_fact_that_no_source_states_fits_no_clause if {
	not fires({"side_effects_any": ["costs-money"]}, {})
	not fires({"cost_class": ["paid"]}, {})
	not fires({"risk_level": ["high"]}, {})
}

test_all_clauses_must_hold if {
	fires({"side_effects_any": ["costs-money"], "cost_class": ["paid"]}, {"side_effects": ["costs-money"], "cost_class": "paid"})
	not fires({"side_effects_any": ["costs-money"], "cost_class": ["paid"]}, {"side_effects": ["costs-money"], "cost_class": "metered"})
	not fires({"side_effects_any": ["costs-money"], "cost_class": ["paid"]}, {"cost_class": "paid"})
}

test_a_pattern_is_for_the_whole_id if {
	not fires({"id_matches": "cap.card"}, {})
	not fires({"id_matches": "card.charge"}, {})
	fires({"id_matches": "other|cap.card.charge"}, {})
	not fires({"id_matches": "other|cap.card"}, {})
}

test_a_tool_without_a_capability_has_no_id if {
	not boundaries.deny["s/t"] with input as {"candidate_tools": [{"id": "s/t", "contract": {}}]}
		with data.boundaries as [row({"id_matches": ".*"})]
}

test_an_exception_skips_its_row_alone if {
	not fires({"risk_level": ["high"], "exceptions": ["cap.card.charge"]}, {"risk_level": "high"})
	fires({"risk_level": ["high"], "exceptions": ["cap.card.other"]}, {"risk_level": "high"})
	boundaries.deny["s/t"] == {"policy:other (boundaries.yaml:7)"} with input as {"candidate_tools": [tool({"risk_level": "high"})]}
		with data.boundaries as [
			row({"risk_level": ["high"], "exceptions": ["cap.card.charge"]}),
			row({"id": "other", "risk_level": ["high"]}),
		]
}

asked(parts) := all if {
	all := boundaries.obligations["s/t"] with input as {"candidate_tools": [tool({"risk_level": "high"})]}
		with data.boundaries as [row(object.union({"decision": "require_approval", "risk_level": ["high"]}, parts))]
}

test_a_row_can_ask_a_person if {
	asked({"who": ["finance"]}) == {{"type": "require_approval", "reason": "policy:r (boundaries.yaml:7)", "who": ["finance"]}}
	asked({}) == {{"type": "require_approval", "reason": "policy:r (boundaries.yaml:7)"}}
}

outcome_of(decision, facts) := [f.effect, f.text] if {
	some f in fired({"decision": decision, "risk_level": ["high"]}, object.union({"risk_level": "high"}, facts))
}

test_deny_unless_account_looks_at_whole_parts_of_accounts if {
	brian := "deny_unless_account:brian"
	outcome_of(brian, {"accounts": ["acc.Brian.fb_page"]}) == ["warn", "acts as brian"]
	outcome_of("deny_unless_account:BRIAN", {"accounts": ["acc.brian"]}) == ["warn", "acts as BRIAN"]
	outcome_of(brian, {"accounts": ["acc.brianna.fb_page"]}) == ["block", "no brian account in deps"]
	outcome_of(brian, {}) == ["block", "no brian account in deps"]
	boundaries.deny["s/t"] == {"policy:r (boundaries.yaml:7): no brian account in deps"} with input as {"candidate_tools": [tool({"risk_level": "high"})]}
		with data.boundaries as [row({"decision": brian, "risk_level": ["high"]})]
}

test_advice_and_soft_rows_only_warn if {
	outcome_of("advise", {}) == ["warn", "advised against"]
	every decision in ["deny", "require_approval", "advise", "deny_unless_account:x"] {
		some f in fired({"decision": decision, "severity": "soft", "risk_level": ["high"]}, {"risk_level": "high"})
		[f.effect, f.text] == ["warn", sprintf("%s, but the row is soft", [decision])]
	}
}

test_what_fired_names_the_row if {
	fired({"risk_level": ["high"], "who": ["finance"]}, {"risk_level": "high"}) == {{
		"row": "r", "effect": "block", "text": "",
		"who": ["finance"], "file": "boundaries.yaml", "line": 7,
	}}
}
