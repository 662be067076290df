# What the other files share: patterns, and rows that say which tools they are
# about.
#
# A row is about the tools for which everything holds that it names:
#
#	tool      a pattern "server/tool", or
#	server    a pattern of the server alone
#	class     the class of the server
#	verb      what one of its capabilities does; closed set
#	resource  what the same capability acts on, as the tool declares it (a term
#	          below it in the taxonomy is another term)
#
# A row that names none of these is a fault, not a rule about every tool.
package switchboard

row_keys := {"tool", "server", "class", "verb", "resource"}

verbs := {"search", "read", "write", "execute", "reason", "notify"}

# glob_of is a pattern as glob.match takes it: * in the server stands for any text
# without a slash, * in the tool for any text, and nothing else is special. (The
# id of a server has no slash; a tool's name may.)
glob_of(pattern) := concat("/", [
	replace(glob.quote_meta(server), `\*`, "*"),
	replace(glob.quote_meta(tool), `\*`, "**"),
]) if {
	[server, tool] := parts_of(pattern)
}

parts_of(pattern) := [substring(pattern, 0, at), substring(pattern, at + 1, -1)] if {
	is_string(pattern)
	at := indexof(pattern, "/")
	at >= 0
}

is_pattern(pattern) if {
	[server, tool] := parts_of(pattern)
	server != ""
	tool != ""
}

are_patterns(list) if {
	is_array(list)
	every pattern in list { is_pattern(pattern) }
}

# is_text and are_texts are for settings: absent, empty and of another type are
# all "no".
is_text(value) if {
	is_string(value)
	value != ""
}

are_texts(list) if {
	is_array(list)
	count(list) > 0
	every value in list { is_text(value) }
}

# has_only(object, keys): a mistyped key is a fault.
has_only(value, keys) if {
	is_object(value)
	count(object.keys(value) - keys) == 0
}

# good_row(row, extra): the row can be read. extra are the keys that it may have
# besides those that say which tools it is about.
good_row(row, extra) if {
	has_only(row, row_keys | extra)
	clauses := object.keys(row) & row_keys
	count(clauses) > 0
	every key in clauses { is_text(row[key]) }
	count(clauses & {"tool", "server"}) < 2
	is_pattern(object.get(row, "tool", "*/*"))
	not contains(object.get(row, "server", ""), "/")
	object.get(row, "verb", "read") in verbs
}

# about(row) is what concerns needs of a row. Take it before you go over the
# candidates: what does not hang on them is then done once.
about(row) := {
	"glob": glob_of(object.get(row, "tool", sprintf("%s/*", [object.get(row, "server", "*")]))),
	"class": object.filter(row, {"class"}),
	"capability": object.filter(row, {"verb", "resource"}),
}

# concerns(about(row), c): the row is about the candidate.
concerns(which, c) if {
	glob.match(which.glob, ["/"], c.id)
	object.subset(c, which.class)
	capability_fits(which.capability, c)
}

capability_fits(wanted, c) if {
	some capability in c.capabilities
	object.subset(capability, wanted)
}

# A tool without any capability is named by a row that asks for none.
capability_fits(wanted, _) if wanted == {}
