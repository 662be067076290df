# What a server may ask of a client while a call is under way: for input of a person (elicitation), for text of the client's model
# (sampling), and for its roots. The phase is "ask"; input.ask is the question, and the candidate is what was called.
#
# The specification forbids forms that ask for secrets: what a person types there passes the client, Switchboard and the server in the
# clear. A secret is asked for on a page of its own, by a URL.
package switchboard

deny[c.id] contains reason if {
	input.ask.method == "elicitation/create" # first: without a question, the rule costs nothing
	input.phase == "ask"
	some fault in ask_faults
	some c in input.candidate_tools
	reason := sprintf("elicitation: %s", [fault])
}

ask_faults contains "the URL must begin with https://, or with http:// and this machine's own name" if {
	by_url
	not url_is_safe
}

# A rule of its own: "not is_safe_url(input.ask.params.url)" is undefined, and no fault, where there is no URL.
url_is_safe if is_safe_url(input.ask.params.url)

by_url if input.ask.params.mode == "url"

# A URL without a user (https://bank.example@evil.example), and with no character that a browser reads otherwise.
is_safe_url(url) if {
	is_string(url)
	regex.match(`^https://[!$&-.0-;=A-Z_a-z~\[\]-]+(?:[/?#][!-\[\]-~]*)?$`, url)
}

is_safe_url(url) if {
	is_string(url)
	regex.match(`^http://(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?(?:[/?#][!-\[\]-~]*)?$`, url)
}

ask_faults contains "a form may not ask for a secret; send the person to a page of yours, by a URL" if {
	not by_url
	asks_for_secret
}

asks_for_secret if {
	walk(input.ask.params.requestedSchema, [_, field])
	is_object(field)
	lower(field.format) in {"password", "secret"}
}

asks_for_secret if {
	walk(input.ask.params.requestedSchema, [_, field])
	is_object(field)
	field.writeOnly == true
}

# The name of a field, as words: apiKey, API_KEY and api-key are "api key".
asks_for_secret if {
	walk(input.ask.params.requestedSchema, [_, properties])
	is_object(properties.properties)
	some name, _ in properties.properties
	regex.match(secret_name, words_of(name))
}

asks_for_secret if {
	walk(input.ask.params.requestedSchema, [_, field])
	is_object(field)
	some key in {"title", "description"}
	regex.match(secret_text, words_of(field[key]))
}

asks_for_secret if regex.match(secret_asked, words_of(input.ask.params.message))

words_of(text) := "" if not is_string(text)

words_of(text) := lower(regex.replace(regex.replace(text, `([a-z0-9])([A-Z])`, "$1 $2"), `[^\pL\pN]+`, " ")) if is_string(text)

secret_words := `pass ?words?|passwd|pass ?phrases?|pass ?codes?|api ?keys?|(?:access|auth|bearer|refresh|session|api|security) ?tokens?|private ?keys?|secret ?keys?|client ?secrets?|credentials?|cvv|cvc|card ?numbers?|social ?security|seed ?phrases?|recovery ?phrases?|mnemonic|one ?time ?(?:codes?|passwords?)`

secret_name := sprintf(`(?:^| )(?:%s|(?:pwd|secrets?|token|pin(?: ?code)?|otp|ssn|mfa ?code|2fa ?code)$)(?: |$)`, [secret_words])

secret_text := sprintf(`(?:^| )(?:%s)(?: |$)`, [secret_words])

# In the message the words alone may speak of a secret without asking for it.
secret_asked := sprintf(`(?:^| )(?:your|enter|type|provide|paste|give|send|needs?|confirm|supply)(?: [\pL\pN]+){0,5} (?:%s)(?: |$)`, [secret_words])
