# Where the arguments of a call may lead: to which hosts, below which folders.
#
#	policy:
#	  egress:
#	    - tool: "web/*"
#	      arguments: [url]                  # each is one text
#	      lists: [urls]                     # each is a list of texts
#	      hosts: [example.com, "*.example.org", "api.example.net:8443"]
#	      except: [private.example.org]
#	    - tool: "files/*"
#	      arguments: [path]
#	      roots: [/srv/data]
#	      schemes: [memo]                   # resources whose URIs begin so may be read
#
# A row concerns calls of the tools that it is about, and each of them must carry
# at least one of the arguments that it names. It also concerns all that the servers of these tools offer besides: the URI of a
# resource must lead where the row allows (file:///srv/data/a is the path /srv/data/a), or have one of its schemes; what a prompt is
# given in the arguments that the row names, too; and what is to be completed must be a plain word, or lead there. Names count in any case, so that
# {"url": …, "URL": …} is judged twice. A value of another type than the row says
# (a list for a text, a number, nothing) is denied: what the server would make of
# it, nobody here can know.
#
# This is about what is written in the arguments, and what is judged is what is
# sent. What a name resolves to, where a server is redirected, and what a link in
# the file system points to are not visible here; a server that must be contained
# needs walls of its own.
package switchboard

# The setting first, for the reason in hours.rego: a tenant that has none pays
# nothing for these rules.
deny[c.id] contains reason if {
	rows := input.tenant_policy.egress
	count(egress_faults) == 0
	input.phase == "call"
	some i, row in rows
	some [name, value] in egress_values(row, input.call.arguments)
	not leads_within(row, value)
	which := about(row)
	some c in input.candidate_tools
	not is_completion(c)
	concerns_any_kind(which, c)
	reason := sprintf("argument %s leads where tenant_policy.egress[%d] does not allow", [name, i])
}

# What is no tool is concerned with its server, whatever the row says of tools and what they can do.
concerns_any_kind(which, c) if {
	is_tool(c)
	concerns(which, c)
}

concerns_any_kind(which, c) if {
	not is_tool(c)
	glob.match(split(which.glob, "/")[0], ["/"], c.server)
	object.subset(c, which.class)
}

is_completion(c) if c.kind == "completion"

is_tool(c) if object.get(c, "kind", "tool") == "tool"

deny[c.id] contains reason if {
	rows := input.tenant_policy.egress
	count(egress_faults) == 0
	input.phase == "call"
	some i, row in rows
	which := about(row)
	some c in input.candidate_tools
	concerns_any_kind(which, c)
	c.kind in {"resource", "template"}
	not uri_leads_within(row)
	reason := sprintf("the URI leads where tenant_policy.egress[%d] does not allow", [i])
}

# It reads the URI itself, for the reason at carries_any.
uri_leads_within(row) if leads_within(row, input.call.uri)

uri_leads_within(row) if leads_within(row, path_of_uri(input.call.uri))

uri_leads_within(row) if {
	some scheme in row.schemes
	startswith(lower(input.call.uri), concat("", [scheme, ":"]))
}

# The path of a file on this machine: file:/p, file:///p, file://localhost/p.
path_of_uri(uri) := concat("", ["/", rest]) if {
	some prefix in ["file:///", "file://localhost/"]
	startswith(lower(uri), prefix)
	rest := substring(uri, count(prefix), -1)
}

path_of_uri(uri) := substring(uri, 5, -1) if {
	startswith(lower(uri), "file:/")
	not startswith(lower(uri), "file://")
}

deny[c.id] contains reason if {
	rows := input.tenant_policy.egress
	count(egress_faults) == 0
	input.phase == "call"
	some i, row in rows
	which := about(row)
	some c in input.candidate_tools
	concerns_any_kind(which, c)
	is_completion(c)
	some name, value in input.call.arguments
	not is_word(value)
	not leads_within(row, value)
	reason := sprintf("what is to be completed for %s leads where tenant_policy.egress[%d] does not allow", [name, i])
}

is_word(value) if {
	is_string(value)
	regex.match(`^[\pL\pN _-]*(\.[\pL\pN _-]+)*$`, value)
}

deny[c.id] contains reason if {
	rows := input.tenant_policy.egress
	count(egress_faults) == 0
	input.phase == "call"
	some i, row in rows
	not carries_any(row)
	which := about(row)
	some c in input.candidate_tools
	is_tool(c)
	concerns(which, c)
	reason := sprintf("the call has none of the arguments of tenant_policy.egress[%d]", [i])
}

# It reads the arguments itself: `not f(input.call.arguments)` would be undefined
# for a call without arguments, and so deny nothing.
carries_any(row) if count(egress_values(row, input.call.arguments)) > 0

# All that a row wants judged, as pairs of an argument's name and a value.
egress_values(row, arguments) := texts | listed if {
	texts := {[name, value] |
		some name, value in arguments
		lower(name) in lowered(object.get(row, "arguments", []))
	}
	listed := {[name, value] |
		some name, list in arguments
		lower(name) in lowered(object.get(row, "lists", []))
		some value in elements(list)
	}
}

lowered(names) := {lower(name) | some name in names}

# What is no list, or an empty one, has one element that leads nowhere good.
elements(list) := list if {
	is_array(list)
	count(list) > 0
} else := [null]

leads_within(row, value) if {
	url := parsed_url(value)
	some host in row.hosts
	host_fits(host, url)
	port_fits(host, url)
	not is_exception(row, url)
}

leads_within(row, value) if {
	is_plain_path(value)
	some root in row.roots
	startswith(with_slash(value), with_slash(root))
}

# Hosts
#
# Programs disagree on what odd addresses mean: "http://good.example\@evil.example",
# "http://good.example@evil.example", tabs, letters from elsewhere that turn into
# dots. So only the plain form is taken apart, and all else is denied: http or
# https, a name of ASCII letters, digits and hyphens, perhaps a port, no user.
# (An at sign after the first slash is part of the path, and harmless.)
url_form := `^(?i:(https?))://((?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)\.?(?::([0-9]{1,5}))?(?:[/?#][!-\[\]-~]*)?$`

parsed_url(value) := {"host": lower(host), "port": port, "usual": usual} if {
	is_string(value)
	[[_, scheme, host, written]] := regex.find_all_string_submatch_n(url_form, value, -1)
	usual := {"http": "80", "https": "443"}[lower(scheme)]
	port := port_of(written, usual)
}

port_of("", usual) := usual

port_of(written, _) := written if written != ""

# Addresses in place of names are written in many ways (2130706433, 0x7f.1). They
# all end in a number. One is let through only where a row has it to the letter.
is_address(host) if regex.match(`(^|\.)([0-9]+|0x[0-9a-f]*)$`, host)

host_of(pattern) := split(pattern, ":")[0]

host_fits(pattern, url) if host_of(pattern) == url.host

host_fits(pattern, url) if {
	host_of(pattern) == "*"
	not is_address(url.host)
}

# "*.example.org" means every name below example.org, and not that one itself.
host_fits(pattern, url) if {
	startswith(pattern, "*.")
	endswith(url.host, trim_prefix(host_of(pattern), "*"))
	not is_address(url.host)
}

# Without a port the scheme's usual one is meant.
port_fits(pattern, url) if split(pattern, ":")[1] == url.port

port_fits(pattern, url) if {
	not contains(pattern, ":")
	url.port == url.usual
}

# An exception holds on every port.
is_exception(row, url) if {
	some pattern in row.except
	host_fits(pattern, url)
}

# Paths
#
# Absolute and plain: no empty part, no "." or "..", no backslash, no percent sign
# (a server may decode it), no control character, and nothing that Unicode counts
# as another way to write one of these.
path_form := `^(/|(/[^/\\%\x00-\x1f\x7f\x{2024}-\x{2026}\x{fe52}\x{fe68}\x{fe6a}\x{ff05}\x{ff0e}\x{ff0f}\x{ff3c}]+)+/?)$`

is_plain_path(value) if {
	is_string(value)
	regex.match(path_form, value)
	every part in split(value, "/") { not part in {".", ".."} }
}

# With a slash at its end, /srv/data is not the beginning of /srv/database.
with_slash(path) := sprintf("%s/", [trim_suffix(path, "/")])

# Faults

deny[c.id] contains reason if {
	some fault in egress_faults
	some c in input.candidate_tools
	reason := sprintf("tenant_policy.egress: %s", [fault])
}

egress_faults contains "it must be a list of rows" if {
	rows := input.tenant_policy.egress
	not is_array(rows)
}

egress_faults contains fault if {
	some i, row in input.tenant_policy.egress
	not is_egress_row(row)
	fault := sprintf("[%v] must say which tools, arguments or lists, and either hosts or roots", [i])
}

egress_keys := {"arguments", "lists", "hosts", "except", "roots", "schemes"}

is_egress_row(row) if {
	good_row(row, egress_keys)
	given := object.keys(row) & egress_keys
	every key in given { are_texts(row[key]) }
	count(given & {"arguments", "lists"}) > 0
	every scheme in object.get(row, "schemes", []) { regex.match(`^[a-z][a-z0-9+.-]*$`, scheme) }
	leads_somewhere(row, given)
}

leads_somewhere(row, given) if {
	not "roots" in given
	every host in array.concat(row.hosts, object.get(row, "except", [])) {
		regex.match(`^(\*|(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*)(:[0-9]{1,5})?$`, host)
	}
}

leads_somewhere(row, given) if {
	given & {"hosts", "except", "roots"} == {"roots"}
	every root in row.roots { is_plain_path(root) }
}
