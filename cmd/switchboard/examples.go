package main

// examples are lines for the help of each command. A test parses them all, and requires them for each command.
var examples = map[string][]string{
	"demo": {
		"switchboard demo",
		"switchboard demo --keep    # and serve it for your own client",
	},
	"connect": {
		"switchboard connect",
		"switchboard connect claude-code --dry-run",
		"switchboard connect --print    # what to write into any other client",
	},
	"disconnect": {
		"switchboard disconnect claude-code",
		"switchboard disconnect codex --config work/switchboard.yaml",
	},
	"doctor": {
		"switchboard doctor",
		"switchboard doctor --quiet --wait 2m",
		"switchboard doctor --config work/switchboard.yaml --json",
	},
	"server connect": {
		"switchboard server connect tracker",
		"switchboard server connect tracker --no-browser    # on a machine without one",
		"switchboard server connect tracker --for acme/laptop",
	},
	"server disconnect": {
		"switchboard server disconnect tracker",
		"switchboard server disconnect tracker --for acme/laptop",
	},
	"import": {
		"switchboard import ~/.claude.json",
		"switchboard import mcp.json --dir ~/switchboard --dry-run",
	},
	"serve": {
		"switchboard serve",
		"switchboard serve --mcp-config mcp.json",
		"switchboard serve --config /etc/switchboard/switchboard.yaml --data /var/lib/switchboard",
	},
	"stdio": {
		"switchboard stdio --config /home/ann/switchboard.yaml",
		"switchboard stdio --task review",
	},
	"budget status": {
		"switchboard budget status",
		"switchboard budget status --tenant acme --json",
	},
	"budget what-if": {
		"switchboard budget what-if --limit 5 --since 30d",
		"switchboard budget what-if paid --limit 5 --window 1d",
		"switchboard budget what-if --calls 100 --window 1h --per principal --server 'brave*'",
	},
	"budget adjust": {
		"switchboard budget adjust paid --by -2.50 --reason 'the provider has credited a failed batch'",
		"switchboard budget adjust tenant/paid --of ci --reset --reason 'a test'",
	},
	"validate": {
		"switchboard validate",
		"switchboard validate --config staging/switchboard.yaml --json",
	},
	"tasks": {
		"switchboard tasks",
		"switchboard tasks --tenant acme --json",
	},
	"tools": {
		"switchboard tools --task review",
		"switchboard tools --task review --tokens --budget 8000",
		"switchboard tools --raw",
	},
	"search": {
		"switchboard search read a file",
		"switchboard search --limit 3 weather",
	},
	"call": {
		`switchboard call read_text_file '{"path":"README.md"}'`,
		"switchboard call list_directory --task review --json",
	},
	"try": {
		"switchboard try",
		`switchboard try read_text_file '{"path":"README.md"}' --task review`,
		`switchboard try write_file '{"path":"a.txt","content":"a"}' --yes`,
	},
	"explain": {
		"switchboard explain review",
		"switchboard explain review --tool files/write_file",
		"switchboard explain review --tier free --without files    # what if",
	},
	"now": {
		"switchboard now",
		"switchboard now --json",
	},
	"resolve": {
		"switchboard resolve io.fs.read@^1 --probe && echo yes",
		"switchboard resolve io.fs.read --contracts --tenant acme",
		"switchboard resolve io.fs.read io.fs.write --json",
	},
	"annotate": {
		"switchboard annotate --unlabelled",
		"switchboard annotate --review github",
		"switchboard annotate --accept github get_issue",
	},
	"status": {
		"switchboard status",
		"switchboard status --watch",
		"switchboard status --url http://127.0.0.1:7420 --json",
	},
	"ready": {
		"switchboard ready && echo ready",
		"switchboard ready --url http://127.0.0.1:7420",
	},
	"server add": {
		"switchboard server add files -- npx -y @modelcontextprotocol/server-filesystem /srv/files",
		"switchboard server add github --secret-env GITHUB_TOKEN -- github-mcp-server stdio",
		"switchboard server add search https://mcp.example.com/mcp --secret-header Authorization",
	},
	"server update": {
		"switchboard server update files",
		"switchboard server update files 2025.8.21 --json",
	},
	"server remove": {
		"switchboard server remove files",
		"switchboard server remove files --dry-run",
	},
	"server list": {
		"switchboard server list",
		"switchboard server list --json",
	},
	"server show": {
		"switchboard server show files",
		"switchboard server show files --json",
	},
	"server disable": {
		`switchboard server disable files --reason "moving its disk"`,
		"switchboard server disable files --url http://127.0.0.1:7420",
	},
	"server enable": {
		"switchboard server enable files",
		"switchboard server enable files --url http://127.0.0.1:7420",
	},
	"server restart": {
		"switchboard server restart files",
		"switchboard server restart files --url http://127.0.0.1:7420",
	},
	"server probe": {
		"switchboard server probe files",
		"switchboard server probe files --url http://127.0.0.1:7420",
	},
	"logs": {
		"switchboard logs --follow",
		"switchboard logs files github --since 10m",
		"switchboard logs switchboard --lines 20 --json",
	},
	"capability list": {
		"switchboard capability list",
		"switchboard capability list --json",
	},
	"capability show": {
		"switchboard capability show io.fs.read",
		"switchboard capability show io.fs.read@^1 --json",
	},
	"capability publish": {
		"switchboard capability publish io.fs.read@1.2.0",
		"switchboard capability publish io.fs.read@1.2.0 --config staging/switchboard.yaml",
	},
	"policy test": {
		"switchboard policy test",
		"switchboard policy test policies/ -v",
		"switchboard policy test --coverage --run test_review",
	},
	"policy check": {
		"switchboard policy check",
		"switchboard policy check --config staging/switchboard.yaml",
		"switchboard policy check --tenant acme --url https://switchboard.example.com",
	},
	"policy eval": {
		"switchboard policy eval --input input.json",
		"switchboard policy eval --tenant acme --input - < input.json",
		"switchboard policy eval --tenant acme --decision n1/42 --expressions --url https://switchboard.example.com",
	},
	"policy diff": {
		"switchboard policy diff --against proposal/",
		"switchboard policy diff --against new.rego --tenant acme --since 24h",
	},
	"store check": {
		"switchboard store check",
		"switchboard store check --store file:backup/store.db",
	},
	"store export": {
		"switchboard store export backup.jsonl",
		"switchboard store export - | zstd > backup.jsonl.zst",
	},
	"store import": {
		"switchboard store import backup.jsonl",
		"switchboard store import backup.jsonl --store file:new/store.db",
	},
	"store accept": {
		"switchboard store accept",
		"switchboard store accept --config /etc/switchboard/switchboard.yaml",
	},
	"policy rules": {
		"switchboard policy rules --tenant acme",
		"switchboard policy rules --tenant acme --since 24h --json",
	},
	"policy list": {
		"switchboard policy list --tenant acme",
		"switchboard policy list --tenant acme --json",
	},
	"decisions list": {
		"switchboard decisions list --since 1h",
		"switchboard decisions list --tenant acme --task review --outcome refused",
	},
	"decisions show": {
		"switchboard decisions show n1/42",
		"switchboard decisions show n1/42 --json    # with its inputs' digests",
		"switchboard decisions show n1/42 --tier free --without files    # what if",
	},
	"receipts list": {
		"switchboard receipts list --since 1h",
		"switchboard receipts list --tool 'files/*' --outcome refused",
		"switchboard receipts list --follow --json",
	},
	"receipts show": {
		"switchboard receipts show n1/42",
		"switchboard receipts show n1/42 --json",
	},
	"receipts replay": {
		"switchboard receipts replay n1/42",
		"switchboard receipts replay --since 7d --tenant acme",
		"switchboard receipts replay --url https://switchboard.example.com",
	},
	"receipts verify": {
		"switchboard receipts verify",
		"switchboard receipts verify --checkpoint /backup/anchor.jsonl",
		"switchboard receipts verify --url https://switchboard.example.com",
	},
	"receipts rotate": {
		"switchboard receipts rotate",
		"switchboard receipts rotate --data /var/lib/switchboard",
	},
	"receipts export": {
		"switchboard receipts export > receipts.jsonl",
		"switchboard receipts export --since 24h --tenant acme",
		"switchboard receipts export --url https://switchboard.example.com > receipts.jsonl",
	},
	"approvals list": {
		"switchboard approvals list",
		"switchboard approvals list --state any --principal ci --json",
	},
	"approvals show": {
		"switchboard approvals show k3fqx2mz7ab4cd5e-1",
		"switchboard approvals show k3fqx2mz7ab4cd5e-1 --json | jq -r .arguments.text",
	},
	"approvals approve": {
		"switchboard approvals approve k3fqx2mz7ab4cd5e-1",
		"switchboard approvals approve k3fqx2mz7ab4cd5e-1 --scope task --for 8h    # a capability",
	},
	"approvals refuse": {
		`switchboard approvals refuse k3fqx2mz7ab4cd5e-1 --note "send it to the list, not to all customers"`,
		"switchboard approvals refuse k3fqx2mz7ab4cd5e-1 --tenant acme",
	},
	"approvals revoke": {
		`switchboard approvals revoke k3fqx2mz7ab4cd5e-1 --note "not today"`,
		"switchboard approvals revoke k3fqx2mz7ab4cd5e-1 --tenant acme",
	},
	"approvals standing list": {
		"switchboard approvals standing list",
		"switchboard approvals standing list --tenant acme --json",
	},
	"approvals standing make": {
		`switchboard approvals standing make k3fqx2mz7ab4cd5e-1 --uses 20 --for 2h --arguments '{"/to": {"in": ["ops@example.com"]}, "/body": "any"}'`,
		`switchboard approvals standing make k3fqx2mz7ab4cd5e-1 --uses 5 --for 30m --arguments '{"/id": {"equals": 7}}'`,
	},
	"approvals standing end": {
		"switchboard approvals standing end k3fqx2mz7ab4cd5e",
		"switchboard approvals standing end k3fqx2mz7ab4cd5e --tenant acme",
	},
	"approvals watch": {
		"switchboard approvals watch",
		"switchboard approvals watch --tenant acme --json",
	},
	"events": {
		"switchboard events",
		"switchboard events --tenant acme --json",
	},
	"runs": {
		"switchboard runs",
		"switchboard runs --tenant acme --json",
	},
	"memory tool": {
		"switchboard memory tool brave/search_web",
		"switchboard memory tool brave/search_web --days 7 --tenant acme --json",
	},
	"memory gaps": {
		"switchboard memory gaps",
		"switchboard memory gaps --tenant acme --days 90",
	},
	"memory similar": {
		"switchboard memory similar brave/search_web",
		"switchboard memory similar brave/search_web --tenant acme --json",
	},
	"memory errors": {
		"switchboard memory errors brave/search_web",
		"switchboard memory errors brave/search_web --days 7 --tenant acme",
	},
	"memory rebuild": {
		"switchboard memory rebuild",
		"switchboard memory rebuild --store file:/var/lib/switchboard/store.db",
	},
	"suggest ranking": {
		"switchboard suggest ranking --tenant acme",
		"switchboard suggest ranking --tenant acme > ranking.patch",
		"switchboard suggest ranking --tenant acme --propose",
	},
	"metrics": {
		"switchboard metrics",
		"switchboard metrics --tenant acme",
		"switchboard metrics --history --step 15m --since 3d",
	},
	"acquisitions list": {
		"switchboard acquisitions list",
		"switchboard acquisitions list --json",
	},
	"acquisitions start": {
		"switchboard acquisitions start \"search internet\" --tenant acme",
		"switchboard acquisitions start \"search internet\" --tenant acme --server io.github.brave/search",
	},
	"acquisitions show": {
		"switchboard acquisitions show k3fqx2mz7a",
		"switchboard acquisitions show k3fqx2mz7a --json",
	},
	"acquisitions review": {
		"switchboard acquisitions review k3fqx2mz7a yes",
		"switchboard acquisitions review k3fqx2mz7a changes --note \"which time zone?\"",
		"switchboard acquisitions review k3fqx2mz7a yes --scope task --for 720h",
	},
	"proposals list": {
		"switchboard proposals list",
		"switchboard proposals list --json",
	},
	"proposals create": {
		"switchboard proposals create --file proposal.yaml",
		"switchboard proposals create --file - < proposal.json",
	},
	"proposals show": {
		"switchboard proposals show k3fqx2mz7a",
		"switchboard proposals show k3fqx2mz7a --json",
	},
	"proposals diff": {
		"switchboard proposals diff k3fqx2mz7a",
		"switchboard proposals diff k3fqx2mz7a --json    # as a text, to be applied by git",
	},
	"proposals approve": {
		"switchboard proposals approve k3fqx2mz7a",
		"switchboard proposals approve k3fqx2mz7a --note \"as agreed on Monday\"",
	},
	"proposals refuse": {
		"switchboard proposals refuse k3fqx2mz7a --note \"brave has no contract with us\"",
		"switchboard proposals refuse k3fqx2mz7a --note \"not this week\" --json",
	},
	"proposals apply": {
		"switchboard proposals apply k3fqx2mz7a",
		"switchboard proposals apply k3fqx2mz7a --json",
	},
	"proposals roll-back": {
		"switchboard proposals roll-back k3fqx2mz7a",
		"switchboard proposals roll-back k3fqx2mz7a --note \"searches fail\"",
	},
	"config files": {
		"switchboard config files",
		"switchboard config files --json",
	},
	"config get": {
		"switchboard config get tenants/acme/tenant.yaml",
		"switchboard config get switchboard.yaml --json    # with its entity tag",
	},
	"config put": {
		"switchboard config put tenants/acme/tenant.yaml new.yaml --dry-run    # look first",
		"switchboard config put tenants/acme/tenant.yaml new.yaml --reason \"atlas is slow\"",
		"switchboard config put tenants/acme/tasks/review.yaml review.yaml --new",
	},
	"config delete": {
		"switchboard config delete tenants/acme/tasks/old.yaml --dry-run",
		"switchboard config delete tenants/acme/tasks/old.yaml --reason \"not used\"",
	},
	"config history": {
		"switchboard config history",
		"switchboard config history --json",
	},
	"config show": {
		"switchboard config show 12",
		"switchboard config show 12 --json    # with both texts",
	},
	"config revert": {
		"switchboard config revert 12",
		"switchboard config revert 12 --reason \"searches fail\"",
	},
	"key list": {
		"switchboard key list",
		"switchboard key list --tenant acme --json",
	},
	"key rotate": {
		"switchboard key rotate ci --tenant acme",
		"switchboard key rotate ops --person",
	},
	"config set": {
		"switchboard config set tenants/acme/tenant.yaml mode assist --reason \"a new team\"",
		"switchboard config set tenants/acme/tenant.yaml ranking/prefer/0/servers '[\"atlas\"]' --dry-run",
	},
	"page": {
		"switchboard page",
		"switchboard page --print --url https://switchboard.example.com",
	},
	"verify": {
		"switchboard verify files --plan    # what would be called",
		"switchboard verify files read_text_file",
		"switchboard verify files --show --json",
	},
	"pins list": {
		"switchboard pins list",
		"switchboard pins list --changed",
		"switchboard pins list --server tracker --json",
	},
	"pins diff": {
		"switchboard pins diff tracker/create_issue",
		"switchboard pins diff tracker --kind instructions",
		"switchboard pins diff tracker --kind handshake",
	},
	"pins accept": {
		"switchboard pins accept tracker/create_issue --digest d1:4f6c7d34b1f3ce2c3f7a5e3f1a9d8c1b2e7f60a4b8c3d2e1f0a9b8c7d6e5f4a3",
		"switchboard pins accept tracker/review --kind prompt --digest d1:4f6c7d34b1f3ce2c3f7a5e3f1a9d8c1b2e7f60a4b8c3d2e1f0a9b8c7d6e5f4a3 --reason \"read, and harmless\"",
	},
	"pins suspend": {
		"switchboard pins suspend tracker/create_issue --reason \"it has written to the wrong project\"",
		"switchboard pins suspend tracker/review --kind prompt",
	},
	"pins retire": {
		"switchboard pins retire tracker/create_issue",
		"switchboard pins retire tracker/create_issue --reason \"tracker/add_issue does it\"",
	},
	"pins deprecate": {
		"switchboard pins deprecate tracker/create_issue --successor tracker/add_issue",
		"switchboard pins deprecate tracker/create_issue --successor tracker/add_issue --reason \"since 2.0\"",
	},
	"person block": {
		"switchboard person block acme-idp 00u1x7 --reason \"left the company\"",
		"switchboard person block acme-idp 00u1x7 --url https://switchboard.example.com",
	},
	"person unblock": {
		"switchboard person unblock acme-idp 00u1x7",
		"switchboard person unblock acme-idp 00u1x7 --reason \"it was a mistake\"",
	},
	"person blocked": {
		"switchboard person blocked",
		"switchboard person blocked --json",
	},
	"sessions list": {
		"switchboard sessions list",
		"switchboard sessions list --json",
	},
	"sessions end": {
		"switchboard sessions end 6d64952451d868ca",
		"switchboard sessions end 6d64952451d868ca --url https://switchboard.example.com",
	},
	"key revoke": {
		"switchboard key revoke ci --tenant acme --reason \"in a public repository\"",
		"switchboard key revoke 3f9a0c71d2be",
	},
	"key new": {
		"switchboard key new ann --tenant acme",
		"switchboard key new ci --task review --expires 2027-03-31",
		"switchboard key new ops --operator",
	},
	"schema": {
		"switchboard schema",
		"switchboard schema switchboard > switchboard.schema.json",
	},
	"help": {
		"switchboard help SB-LAZY-001    # the meaning of the code, and the remedy",
		"switchboard help SB-LAZY        # the codes that begin so",
		"switchboard help policy test",
	},
	"docs": {
		"switchboard docs",
		"switchboard docs calls",
		"switchboard docs calls#rate-limits",
	},
	"completion": {
		"switchboard completion bash > ~/.local/share/bash-completion/completions/switchboard",
		`switchboard completion zsh > "${fpath[1]}/_switchboard"`,
		"switchboard completion fish > ~/.config/fish/completions/switchboard.fish",
	},
	"version": {
		"switchboard version",
		"switchboard version --json",
		"switchboard version --licenses",
	},
}
