package switchboard_test

import data.switchboard

web := {
	"tool": "web/*", "arguments": ["url"], "lists": ["urls"],
	"hosts": ["example.com", "*.example.org", "api.example.net:8443", "192.0.2.7"],
	"except": ["private.example.org", "*.private.example.org:8443"],
}

files := {"tool": "files/*", "arguments": ["path"], "lists": ["paths"], "roots": ["/srv/data", "/tmp/"]}

egress := {"egress": [web, files]}

passes(id, arguments) if left == {id} with input as calls(tool(id, []), egress, arguments)

test_hosts_that_are_allowed if {
	every url in [
		"https://example.com", "http://example.com/", "HTTPS://EXAMPLE.COM/a?b=c#d", "https://example.com.",
		"https://example.com:443/x", "http://example.com:80", "https://example.com?q=1", "https://a.example.org",
		"https://a.b.example.org/", "https://api.example.net:8443/v1", "https://192.0.2.7/", "https://example.com/@me",
	] {
		passes("web/fetch", {"url": url})
	}
}

test_other_hosts_are_denied if {
	every url in [
		"https://evil.example", "https://example.com.evil.example", "https://notexample.com", "https://example.org",
		"https://xexample.org", "https://private.example.org", "https://x.private.example.org",
		"https://PRIVATE.example.org./", "https://api.example.net", "https://192.0.2.8/",
	] {
		not passes("web/fetch", {"url": url})
	}
}

# PO-03: what another program may read as another host.
test_what_is_written_oddly_is_denied if {
	every url in [
		"https://example.com@evil.example", "https://example.com:443@evil.example/", "https://user@example.com",
		`https://example.com\@evil.example`, `https:\\example.com`, "https:/example.com", "//example.com", "example.com",
		" https://example.com", "https://example.com ", "https://example.com\n", "ht\ntps://example.com",
		"https://exam\tple.com", "https://example.com/a b", "https://example。com", "https://ｅxample.com",
		"https://example.com:80", "http://example.com:443", "https://example.com:", "https://example.com:0443",
		"https://example.com:8443", "https://example.com:٤٤٣", "https://example..com", "https://.example.org",
		"https://-.example.org", "https://exam%70le.com", "ftp://example.com", "file:///etc/passwd",
		"javascript:alert(1)", "data:text/plain,https://example.com", "https://", "", "https://[::1]/",
		"https://[2001:db8::1]/",
	] {
		not passes("web/fetch", {"url": url})
	}
}

test_no_pattern_means_an_address if {
	every host in ["127.0.0.1", "2130706433", "0x7f000001", "0x7f.1", "127.1", "1.example.0x1", "169.254.169.254"] {
		anywhere := {"egress": [object.union(web, {"hosts": ["*", "*.1", "*.254", "*.0x1"]})]}
		url := sprintf("http://%s/", [host])
		left == set() with input as calls(tool("web/fetch", []), anywhere, {"url": url})
		left == {"web/fetch"} with input as calls(tool("web/fetch", []), anywhere, {"url": "http://a.example/"})
	}
}

test_paths_that_are_allowed if {
	every path in ["/srv/data", "/srv/data/", "/srv/data/a", "/srv/data/a/b.txt", "/srv/data/..a/b..", "/tmp", "/tmp/ä ö"] {
		passes("files/read", {"path": path})
	}
	whole := {"egress": [object.union(files, {"roots": ["/"]})]}
	left == {"files/read"} with input as calls(tool("files/read", []), whole, {"path": "/etc/hosts"})
	left == {"files/read"} with input as calls(tool("files/read", []), whole, {"path": "/"})
}

test_other_paths_are_denied if {
	every path in [
		"/", "/srv", "/srv/database", "/etc/passwd", "/SRV/data", "/srv/data/../../etc/passwd", "/srv/data/..",
		"/srv/data/.", "/srv/data/./a", "/srv//data", "//srv/data", "/srv/data//a", "srv/data", "data", "~/data", "",
		"/srv/data/%2e%2e/x", `/srv/data/..\x`, "/srv/data/a\u0000b", "/srv/data/a\n", "/srv/data/．．/x", "/srv/data/‥/x",
		"/srv/data/․․/x", "/srv/data/a／b", "file:///srv/data/a",
	] {
		not passes("files/read", {"path": path})
	}
}

test_a_value_of_another_type_is_denied if {
	every bad in [null, true, 7, {}, {"url": "https://example.com"}, [], ["https://example.com"]] {
		not passes("web/fetch", {"url": bad})
	}
	every bad in [null, 7, ["/srv/data/a"]] { not passes("files/read", {"path": bad}) }
	every bad in [null, []] { not passes("web/fetch", {"url": "https://example.com", "urls": bad}) }
	every bad in [null, "https://example.com", {"0": "https://example.com"}, [], [["https://example.com"]], [7]] {
		not passes("web/fetch", {"urls": bad})
	}
}

test_every_element_of_a_list_is_judged if {
	passes("web/fetch", {"urls": ["https://example.com", "https://a.example.org"]})
	not passes("web/fetch", {"urls": ["https://example.com", "https://evil.example"]})
	passes("files/read", {"paths": ["/srv/data/a", "/tmp/b"]})
	not passes("files/read", {"paths": ["/srv/data/a", "/etc/passwd"]})
}

test_every_spelling_of_a_name_is_judged if {
	not passes("web/fetch", {"url": "https://example.com", "URL": "https://evil.example"})
	not passes("web/fetch", {"url": "https://example.com", "Urls": ["https://evil.example"]})
	passes("web/fetch", {"url": "https://example.com", "headers": {"accept": "text/html"}})
}

test_a_call_without_any_of_the_arguments_is_denied if {
	every arguments in [{}, {"ur": "https://example.com"}, {"nested": {"url": "https://example.com"}}] {
		not passes("web/fetch", arguments)
	}
	left == set() with input as object.remove(calls(tool("web/fetch", []), egress, {}), ["call"])
	passes("mail/send", {"url": "https://evil.example"})
}

test_it_says_which_argument_and_which_row if {
	bad := calls(tool("files/read", []), egress, {"Path": "/etc/passwd"})
	switchboard.deny["files/read"] == {"argument Path leads where tenant_policy.egress[1] does not allow"} with input as bad
	none := calls(tool("web/fetch", []), egress, {})
	switchboard.deny["web/fetch"] == {"the call has none of the arguments of tenant_policy.egress[0]"} with input as none
}

test_lists_do_not_change_with_egress if {
	left == {"web/fetch", "files/read"} with input as asks([tool("web/fetch", []), tool("files/read", [])], egress)
	asked := calls(tool("web/fetch", []), egress, {"url": "https://evil.example"})
	left == {"web/fetch"} with input as object.union(asked, {"phase": "approve"})
}

test_egress_that_cannot_be_read_leaves_nothing if {
	every bad in [null, false, "web/*", web, ["web/*"], [{}]] {
		left == set() with input as asks([tool("a/b", [])], {"egress": bad})
	}
	every bad in [
		{"tool": "web"}, {"arguments": "url"}, {"arguments": []}, {"arguments": [7]}, {"lists": {}}, {"roots": ["/"]},
		{"hosts": []}, {"hosts": "example.com"}, {"hosts": ["Example.com"]}, {"hosts": ["https://example.com"]},
		{"hosts": ["ex*.com"]}, {"hosts": ["example.com:x"]}, {"hosts": ["a b"]}, {"except": ["*:"]}, {"exept": ["a"]},
	] {
		left == set() with input as asks([tool("a/b", [])], {"egress": [object.union(web, bad)]})
		left == set() with input as calls(tool("web/fetch", []), {"egress": [object.union(web, bad)]}, {"url": "https://example.com"})
	}
	every bad in [{"roots": []}, {"roots": ["srv"]}, {"roots": ["/srv/.."]}, {"except": ["a"]}, {"hosts": ["a"]}] {
		left == set() with input as asks([tool("a/b", [])], {"egress": [object.union(files, bad)]})
	}
	every keys in [["arguments", "lists"], ["hosts"], ["tool"], ["hosts", "except"]] {
		left == set() with input as asks([tool("a/b", [])], {"egress": [object.remove(web, keys)]})
	}
}

test_it_says_which_row_cannot_be_read if {
	asked := asks([tool("a/b", [])], {"egress": [web, {"tool": "a/*"}]})
	reasons := {"tenant_policy.egress: [1] must say which tools, arguments or lists, and either hosts or roots"}
	switchboard.deny["a/b"] == reasons with input as asked
}

# What a server offers besides tools leads no further than its tools do.
contained := {"egress": [{"tool": "files/read_file", "arguments": ["path"], "roots": ["/srv/data"], "schemes": ["memo"]}]}

reading(uri) := answer if answer := left with input as reads(item("files", "resource", uri), contained, uri)

test_a_resource_leads_below_the_roots_of_its_server_s_tools if {
	every uri in ["file:///srv/data/a.txt", "file:/srv/data/a", "FILE:///srv/data/b", "file://localhost/srv/data", "/srv/data/x", "memo://anything/at/all"] {
		count(reading(uri)) == 1
	}
}

test_a_resource_leads_nowhere_else if {
	every uri in [
		"file:///etc/passwd", "file:///srv/data/../../etc/passwd", "file:///srv/database", "file://evil/srv/data/a", "file:///srv/data/%2e%2e/x",
		"https://example.com/", "memo", "memos://x", "data:text/plain,x", "", "file:srv/data",
	] {
		reading(uri) == set()
	}
}

test_a_template_is_held_to_the_uri_that_is_read if {
	c := item("files", "template", "file:///{+path}")
	left == {c.id} with input as reads(c, contained, "file:///srv/data/x")
	left == set() with input as reads(c, contained, "file:///etc/passwd")
}

test_a_row_with_hosts_says_which_resources_of_the_web_are_read if {
	rows := {"egress": [{"server": "web", "arguments": ["url"], "hosts": ["example.com"]}]}
	c := item("web", "resource", "x")
	left == {c.id} with input as reads(c, rows, "https://example.com/a")
	left == set() with input as reads(c, rows, "https://evil.example/a")
	left == {"other/resource:x"} with input as reads(item("other", "resource", "x"), rows, "https://evil.example/a")
}

test_a_row_about_a_capability_or_a_class_concerns_the_resources_of_its_servers if {
	c := object.union(item("files", "resource", "x"), {"class": "disk"})
	every row in [{"verb": "read", "resource": "fs"}, {"class": "disk"}, {"server": "f*"}] {
		rows := {"egress": [object.union(row, {"arguments": ["path"], "roots": ["/srv/data"]})]}
		left == set() with input as reads(c, rows, "file:///etc/passwd")
	}
	elsewhere := {"egress": [{"class": "net", "arguments": ["path"], "roots": ["/srv/data"]}]}
	left == {c.id} with input as reads(c, elsewhere, "file:///etc/passwd")
}

test_a_prompt_leads_where_its_arguments_may if {
	c := item("files", "prompt", "summary")
	left == {c.id} with input as calls(c, contained, {"path": "/srv/data/x", "style": "../short"})
	left == {c.id} with input as calls(c, contained, {})
	left == set() with input as calls(c, contained, {"Path": "/etc/passwd"})
}

test_what_is_completed_is_a_word_or_leads_below_the_roots if {
	c := item("files", "completion", "file:///t/{x}")
	every value in ["", "rep", "annual report", "a.txt", ".profile", "/srv/data/a", "Größe"] {
		left == {c.id} with input as calls(c, contained, {"x": value, "path": value})
	}
	every value in ["../../etc/passwd", "..", "/etc/", `a\b`, "a%2fb", "file:///etc", "a:b", 7, null] {
		left == set() with input as calls(c, contained, {"x": value})
	}
}

test_a_scheme_that_is_none_leaves_nothing if {
	every schemes in [["memo:"], ["Memo"], [""], "memo", []] {
		rows := {"egress": [{"tool": "files/*", "arguments": ["path"], "roots": ["/srv"], "schemes": schemes}]}
		left == set() with input as calls(tool("files/read", []), rows, {"path": "/srv/x"})
	}
}
