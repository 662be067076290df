package switchboard_test

asked(method, params) := object.union(asks([tool("files/read", [])], {}), {"phase": "ask", "call": {"arguments": {}}, "ask": {"method": method, "params": params}})

form(message, properties) := {"message": message, "requestedSchema": {"type": "object", "properties": properties}}

may_ask(params) if left == {"files/read"} with input as asked("elicitation/create", params)

test_a_form_may_ask_for_what_is_no_secret if {
	every name in ["username", "city", "tokenizer", "pinned", "secretary", "keyboard", "passenger", "branch", "email", "authorName", "max_tokens", "secretsEnabled"] {
		may_ask(form("Where do you live?", {name: {"type": "string"}}))
	}
	may_ask(form("Which password policy shall the new users get?", {"policy": {"type": "string", "enum": ["strict", "lax"]}}))
	may_ask(form("Go on?", {}))
	may_ask({"message": "Go on?"})
	may_ask(form("Go on?", {"x": {"type": "string", "title": 7}}))
}

test_a_form_may_not_ask_for_a_secret_by_name if {
	every name in ["password", "Password", "userPassword", "user_password", "PASSWD", "apiKey", "API_KEY", "api-key", "token", "accessToken", "client_secret", "pin", "otp", "cardNumber", "seedPhrase", "ssn"] {
		not may_ask(form("Please", {name: {"type": "string"}}))
	}
}

test_nor_by_format_by_title_or_by_what_it_says_of_it if {
	every field in [
		{"type": "string", "format": "password"}, {"type": "string", "format": "PASSWORD"}, {"type": "string", "writeOnly": true},
		{"type": "string", "title": "Your API key"}, {"type": "string", "description": "the password of GitHub"},
	] {
		not may_ask(form("Please", {"x": field}))
	}
	not may_ask(form("Please", {"x": {"type": "object", "properties": {"y": {"title": "private key"}}}}))
}

test_nor_by_words if {
	every message in ["Switchboard needs your GitHub PASSWORD", "Enter the one-time code", "please provide an API-key", "Paste the recovery phrase here"] {
		not may_ask(form(message, {"x": {"type": "string"}}))
	}
}

sends(url) := {"mode": "url", "message": "Sign in with your password there", "url": url}

test_a_url_is_https_or_of_this_machine if {
	every url in ["https://example.com", "https://example.com:8443/login?x=1#y", "https://[2001:db8::1]/", "http://localhost:3000/cb", "http://127.0.0.1/", "http://[::1]:80/x"] {
		may_ask(sends(url))
	}
}

test_any_other_url_is_refused if {
	every url in [
		"javascript:alert(1)", "http://example.com", "http://localhost.evil.example/", "http://localhost@evil.example/", "https://bank.example@evil.example/", "data:text/html,x", "file:///etc/passwd", "HTTPS//x",
		"https://", "https:// x", "https://a\\@b", " https://example.com", "https://example.com/ x", "", null, 7,
	] {
		not may_ask(sends(url))
	}
	not may_ask({"mode": "url", "message": "x"})
}

test_sampling_and_roots_are_left_to_the_client if {
	every method in ["sampling/createMessage", "roots/list"] {
		left == {"files/read"} with input as asked(method, {"messages": [{"content": {"text": "your password"}}]})
	}
}
