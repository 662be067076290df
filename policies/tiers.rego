# Which tier a tool needs.
#
#	policy:
#	  tiers:
#	    order: [free, pro, enterprise]      # the lowest first
#	    needs:
#	      - {class: paid_api, tier: pro}
#	      - {server: "x-*", tier: enterprise}
#
# A tool that no row is about needs none. Where several rows are about it, all
# of them must be met.
package switchboard

deny[c.id] contains reason if {
	tiers := input.tenant_policy.tiers
	some need in tiers.needs
	not reaches(tiers.order, need.tier)
	which := about(need)
	some c in input.candidate_tools
	concerns(which, c)
	reason := sprintf("it needs tier %s", [need.tier])
}

# Written as what must hold, and denied by its `not`: a tier that is unknown,
# misspelt or absent stands nowhere in the order, and so reaches nothing. The
# other way round, "deny if the tier is lower", would let it pass.
reaches(order, tier) if {
	some needed, mine
	order[needed] == tier
	order[mine] == input.user_tier
	mine >= needed
}

deny[c.id] contains reason if {
	some fault in tiers_faults
	some c in input.candidate_tools
	reason := sprintf("tenant_policy.tiers: %s", [fault])
}

tiers_faults contains "it must have order and needs, and nothing else" if {
	tiers := input.tenant_policy.tiers
	not has_order_and_needs(tiers)
}

has_order_and_needs(tiers) if {
	has_only(tiers, {"order", "needs"})
	is_array(tiers.needs)
	_ := tiers.order
}

tiers_faults contains "order must be a list of tiers, each once" if {
	order := input.tenant_policy.tiers.order
	not is_order(order)
}

is_order(order) if {
	are_texts(order)
	count(order) == count({tier | some tier in order})
}

tiers_faults contains fault if {
	some i, need in input.tenant_policy.tiers.needs
	not is_need(need)
	fault := sprintf("needs[%v] must say which tools, and a tier of the order", [i])
}

is_need(need) if {
	good_row(need, {"tier"})
	need.tier in input.tenant_policy.tiers.order
}
