package suspect

// The rules, in the order of findings. What a rule looks at beyond patterns is code: see Find.
var rules = []TextRule{
	{ID: ruleBidi, Tier: Blocking, Words: "characters that change the order of the text around them"},
	{ID: ruleTags, Tier: Blocking, Words: "tag characters, which spell a text that people cannot see"},
	{ID: ruleControl, Tier: Blocking, Words: "control characters, or a sequence that controls a terminal"},
	{ID: ruleWidth, Tier: Blocking, Words: "characters without width, outside emoji and outside scripts that need them"},
	{ID: ruleName, Tier: Blocking, Words: "its name looks like the name of another tool, and is another one"},
	{ID: rulePrivate, Words: "characters without an agreed shape"},
	{ID: ruleMixed, Words: "a word mixes Latin letters with letters of another alphabet that look like them"},
	{
		ID: ruleTool, Words: "an order about a tool of another server, or about all tools",
		patterns: []string{
			"replace 2 builtin", "intercept 4 tool",
			"use 1 before 1 any 2 tool", "any 1 tool 2 broken", "ident|peer 3 broken", "not 2 use 4 tool 3 any", "replace 4 peer", "replace 2 target 2 ident|peer", "before 2 user 9 change 3 target",
			"~before 1 use 1 any 2 tool", "~before 1 use 2 ident|peer", "~before 4 ident|peer 3 use", "~before 2 ident|peer 1 tool", "instead 2 use 2 ident|peer", "instead 2 to 1 ident|peer",
			"ident|peer 1 tool 8 must|replace", "must 3 use 1 peer", "replace 2 ident|peer", "replace 5 ident|peer 1 tool", "use 1 peer 6 before", "must 6 use 3 ident 1 tool",
			"you 3 must 4 use 2 ident", "~also 2 use 3 ident|peer", "~must 2 replace 2 its",
		},
		unless: "detect",
	},
	{ID: ruleEncoded, Words: "text that decodes to orders, commands or addresses"},
	{
		ID: ruleSecrecy, Words: "asks to keep something from the user, or not to ask the user",
		patterns: []string{
			"~skip 1 consent", "consent 2 not 1 need", "not 1 say 0 anything",
			"not 1 let 2 user 1 know", "user 2 not 3 know", "keep 1 pointer 1 private", "not 3 ask 2 user", "not 0 consent 3 need", "without 1 ask 1 pointer",
			"not 1 tell 8 user", "not 1 tell 1 pointer", "not 1 tell 3 your 2 orders", "not 5 user 2 tell", "user 4 not 1 tell", "~without 2 ask 4 user|consent", "~without 3 user 1 consent",
			"~quiet 3 do", "~keep 5 from 2 user",
		},
		unless: "instead",
	},
	{
		ID: rulePlace, Words: "reads secrets, or a place where they are kept",
		patterns: []string{
			"stuff 2 own 2 config",
			"~read|send|give|do 3 userof 2 secret", "stuff 3 env 0 variable", "stuff 2 own 0 env",
			"~read|send|exfil 9 place", "~read|send|reveal 5 env 2 variable", "~also 2 read 4 secret", "command 6 place",
		},
		unless: "detect",
	},
	{
		ID: ruleSend, Words: "sends data elsewhere",
		patterns: []string{
			"~send|give 4 secret 3 into 3 web|url", "image",
			"~send 3 secret 4 to 3 party|web", "~send 4 whole 4 to 2 public", "~send 5 to 1 mail",
			"~exfil", "~send 9 secret|env|place 12 away|url|mail", "~secret|env 9 send 8 away|url|mail", "~also 2 send 8 away|url|mail", "~also 4 mail", "~also 3 write 3 mail",
			"~send 3 whole 9 outside|url|mail", "~send 5 to 3 outside", "~send 6 to 2 away 1 party", "~send 8 party 2 analytics", "~send 5 away 2 analytics", "~kept 2 far",
			"place 14 command", "pipe 2 command 8 dash", "command 8 dash 2 place",
		},
		unless: "detect|consent",
	},
	{
		ID: ruleAuthority, Words: "speaks with an authority that a description does not have, or puts aside other instructions",
		patterns: []string{
			"~ignore 4 told", "modekind 0 model", "you 0 act", "own 1 new 1 task", "~reveal 3 hiddenly 1 rules|orders", "before 1 you 1 answering 3 tell|must",
			"admin 3 preok", "new 0 directive", "safety 1 checks|rules 3 off", "obey 2 any|whole 1 directive", "obey 6 returned 2 without", "you 1 must 1 obey",
			"~ignore 4 previous 3 orders|rules", "~ignore 3 orders", "~ignore 1 whole 1 previous", "~ignore 2 previous", "~ignore 5 safety 3 checks|orders|rules", "mark", "note 0 to 1 model",
			"you 1 are now", "precedence 4 over 5 orders|safety", "orders 4 precedence", "precedence 2 orders", "hiddenly 1 orders", "treat 6 trusted 3 orders", "now 3 modekind 1 mode",
			"modekind 1 mode 3 ignore", "preok 3 by 3 admin", "without 1 whole 3 filters", "without 2 safety", "not 1 ignore 2 pointer 4 context", "preserve 3 orders 4 context",
			"not 2 ignore 3 orders 4 context", "~write 8 agentfile",
		},
		unless: "detect",
	},
	{
		ID: ruleTalk, Words: "asks for the conversation, the prompt or the model",
		patterns: []string{
			"~repeat 3 previous", "any 1 tool 4 available 2 to 1 you", "whole 4 tool 2 you 0 have",
			"~do|send|give 3 previous 1 talk", "~give 3 whole 2 talk", "whole 3 user 3 said", "exact 1 thought", "own 1 exact 1 thought",
			"~reveal 3 your|system 3 prompt", "~do|send|reveal 3 whole 2 talk", "nameword 3 model 4 calling", "model 3 nameword 4 calling", "~send|exfil 6 talk 6 outside|url",
		},
		unless: "detect",
	},
	{
		ID: ruleMe, Words: "asks to be preferred over other tools",
		patterns: []string{
			"use 1 this 2 before 2 answering", "sole 0 tool 3 need", "better 1 than 3 any 2 tool", "prefer 2 than 2 any",
			"this 3 best 2 tool", "best tool 1 in 2 grand", "only 1 use 1 this 1 tool", "use 1 this 1 tool 4 instead", "instead 3 any 2 tool", "use 2 this 1 tool 3 than 2 any",
			"prefer 1 this 1 tool", "not 2 use 2 any 3 tool",
		},
	},
	{ID: ruleHint, Words: "a hint contradicts the tool's name"},
	{
		ID: ruleRun, Words: "a command that hides what it runs, or for whom",
		patterns: []string{"decode 3 pipe 1 shell", "shell 6 decode", "number 6 pipe 1 shell", "shell 6 raw"},
		unless:   "detect",
	},
}

// The ids of the rules.
const (
	ruleBidi      = "bidi"
	ruleTags      = "tags"
	ruleControl   = "control"
	ruleWidth     = "no-width"
	ruleName      = "like-a-name"
	rulePrivate   = "private-use"
	ruleMixed     = "mixed-letters"
	ruleTool      = "other-tool"
	ruleEncoded   = "encoded"
	ruleSecrecy   = "secrecy"
	rulePlace     = "secret-place"
	ruleSend      = "send-away"
	ruleAuthority = "authority"
	ruleTalk      = "conversation"
	ruleMe        = "use-me"
	ruleHint      = "hint-and-name"
	ruleRun       = "hidden-command"
)
