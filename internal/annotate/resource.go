package annotate

import (
	"slices"
	"strings"
	"sync"

	"github.com/summit-switchboard/switchboard/internal/switchboard"
)

// A subject is a kind of thing that tools act on. Names are the resources of a taxonomy that mean it, best first; the
// first name is the one to add to a taxonomy that has none of them.
type subject struct {
	names []switchboard.Resource

	// products are the programs and services that are about the subject and about nothing else. They count where they
	// are part of the name of a server or of a tool.
	products string

	strong string // words that hardly have another meaning
	weak   string // words that other subjects use too
}

// subjects is the vocabulary of resources. The built-in resources come first.
var subjects = []subject{
	{
		names: []switchboard.Resource{"internet", "web"},
		products: `
			appinsight appstore bing brave brightdata cointelegraph crawl4ai dappier ddg domain duckduckgo enrichment exa
			fetch fetcher firecrawl geeknews hackernew hackernews hn hyperbrowser ipinfo jina kagi linkup marginalia news
			newsfeed oxylabs perplexity scrapi scrapling search1api searchapi searxng seo serpapi serper sitemap tavily
			trends wayback webresearch whodis whois
		`,
		strong: `
			archive article browse crawl crawler dns domain feed headline html http internet news online rss scrape scraper
			scraping serp sitemap url urls wayback web webpage website whois
		`,
		weak: "fetch host link page query result search site",
	},
	{
		names: []switchboard.Resource{"codebase", "code", "source_code"},
		products: `
			apifox bazel cocos dart eslint f2c flutter gdb ghidra godot ida kicad kondo laravel lsp magic mutmut nuanced nx
			openapi postman semgrep shadcn source-map sourcebot sourcegraph starwind swagger vite vscode xcode xcodebuild
			zig
		`,
		strong: `
			assembly ast breakpoint bytecode cells class code codebase compile compiler debugger decompile disassemble
			function golang java javascript jupyter lint mutation notebook python refactor rust sdk segment snippet struct
			symbol typescript variable xref
		`,
		weak: `
			api collection component debug dependency endpoint environment file method mock module monitor package request
			response schema script server source spec test
		`,
	},
	{
		names:    []switchboard.Resource{"knowledge_graph", "memory", "knowledge_base"},
		products: "basic-memory graphiti graphlit mem0 memory needle palace rag ragie rememberizer vectorize zep",
		strong: `
			conversation embedding entities entity graph ingest knowledge memories memory observation rag recall relation
			remember retrieval thought
		`,
		weak: "context node nodes note notes project semantic",
	},
	{
		names: []switchboard.Resource{"cloud"},
		products: `
			alibabacloud alicloud apisix appservice aws azmcp azure cloudflare cloudrun databutton digitalocean dynamodb ec2
			edgeone eventhub eventhubs fly gcp heroku hetzner hypercore keyvault kong lambda linode managedlustre modal
			neondatabase netlify railway render s3 storagesync terraform upstash vercel
		`,
		strong: `
			arn blob bucket cloud compute dyno eventhub fileshare iam instance keyvault lustre quota region resourcegroup
			serverless sku storage subnet subscription tenant terraform vm vpc webapp
		`,
		weak: "app cluster cost deploy group pricing provider resource server service",
	},
	{
		names: []switchboard.Resource{"chat", "messaging"},
		products: `
			chatting dingtalk discord discourse feishu imessage lark line matrix mattermost messages notification notify
			pubnub pushover rocketchat signal slack sms teams telegram twilio waha wapulse wechat whatsapp zulip
		`,
		strong: "channel chat chatroom conversation dm emoji guild message notification presence reaction sms thread webhook",
		weak:   "contact group member reply room send session user",
	},
	{
		names: []switchboard.Resource{"fs", "filesystem", "files"},
		products: `
			box desktop-commander desktopcommander devdocs drive dropbox file-context file-operator filesystem finder gdrive
			onedrive sandbox sharepoint text-editor
		`,
		strong: "csv directory disk drive file filename filesystem folder mkdir onedrive path sharepoint tree unzip zip",
		weak:   "allowed content dir download edit editor line read text upload write",
	},
	{
		names: []switchboard.Resource{"database", "db", "sql"},
		products: `
			adx arango arangodb athena bigquery cassandra chroma clickhouse cockroachdb couchdb databricks dbt duckdb
			dynamodb elasticsearch firebase firestore greptimedb hologres iceberg influxdb kafka keboola kusto libsql
			lightdash mariadb meilisearch memgraph metabase milvus mongo mongodb mssql mysql neo4j neon oceanbase opensearch
			pg pinecone planetscale pocketbase postgres postgresql prisma qdrant questdb rabbitmq redis singlestore
			snowflake sqlite starrocks supabase superset tidb tinybird trino typesense weaviate
		`,
		strong: `
			aggregate collection column cypher database dataset datasource firestore hash index indexes insert primary
			queries query queue replica row select sql table tablespace tenant vector warehouse
		`,
		weak: "cross-reference data document expire facet field key property record schema statement view",
	},
	{
		names: []switchboard.Resource{"issue_tracker", "issues", "tickets", "tasks", "project_management"},
		products: `
			asana basecamp clickup devrev fibery goal goalstory holaspirit jira linear monday openproject planner
			productboard redmine servicenow shortcut taskmanager taskqueue tasks taskwarrior ticktick todo todoist trello
			youtrack zendesk
		`,
		strong: `
			backlog board bug changeset checklist epic goal incident initiative issue kanban milestone objective planner
			sprint stories story subtask task ticket todo
		`,
		weak: `
			assignee bucket comment component cycle due feature item iteration label list priority project roadmap status
			team template
		`,
	},
	{
		names: []switchboard.Resource{"document", "documents", "docs", "spreadsheet"},
		products: `
			airtable alfresco anki bitable cms coda confluence contentful diff docs2prompt docx edubase esignatures evernote
			excel google-docs hugo joplin json kibela llamacloud logseq magicslide markdown markitdown mindmap notion
			obsidian okppt onenote pandoc pdf placid powerpoint ppt pptx quip sanity sheets smartsheet spreadsheet word
			wordpress xmind yuque
		`,
		strong: `
			blog cell cms deck doc document docx entry excel flashcard form markdown mindmap note notebook onenote page
			paragraph pdf pptx presentation question quiz sheet slide spreadsheet template wiki word workbook worksheet
		`,
		weak: "base block comment content field format json post record section table text title",
	},
	{
		names:    []switchboard.Resource{"email", "mail"},
		products: "claudepost email gmail headless-gmail imap mail mailchimp mailgun outlook protonmail resend sendgrid smtp",
		strong:   "attachment email forwarding gmail imap inbox mail mailbox recipient smime smtp vacation",
		weak:     "delegate draft filter folder label message send send_as subject thread",
	},
	{
		names: []switchboard.Resource{"media", "image", "video", "audio"},
		products: `
			ableton after-effects aftereffects animation bilibili blender canva chart cloudinary dalle drawio echarts
			elevenlabs everart excalidraw ffmpeg figma flux framer ghibli godot hugeicons iconify imageextractor imagegen
			kroki lottie lottiefiles mcpollinations meme mermaid minimax painter photoshop piper plotly pollinations qrcode
			quickchart replicate revit roblox sketchup spotify suno svg transcript unity unity3d unreal unrealmcp vega
			video-convert video-editor vizro vrchat wallhaven whisper youtube
		`,
		strong: `
			album animation artist audio avatar barcode canvas chart clip diagram drawing figma frame game gif icon image
			layer level media meme mesh music photo picture playlist plot png podcast qr radio render scene screenshot
			shader shape song sound speech sprite subtitle svg thumbnail track transcript video voice
		`,
		weak: "asset color component design generate material node object play speak style template text texture",
	},
	{
		names:    []switchboard.Resource{"vcs", "git"},
		products: "bitbucket codeberg forgejo gerrit git gitea gitee github gitingest gitlab ingest svn uithub",
		strong: `
			blame branch changelist checkout cherry commit diff fork gist git merge mergerequest pr pull rebase release repo
			repository stash tag
		`,
		weak: "comment discussion file label note project push review star",
	},
	{
		names: []switchboard.Resource{"market_data", "finance", "stocks"},
		products: `
			akshare alphavantage armor-crypto asset-price binance ccxt coinbase coingecko coinmarketcap coinpaprika
			coinranking crypto defillama dexpaprika edgar exchange-rate feargreed financial finnhub fmp forex frankfurter
			hyperliquid ib investment investor kospi kraken octagon okx polygon portfolio price pulse-cn pump-fun quotemedia
			sec stock tushare twelvedata volatility xtquantai yahoo yfinance yfmcp
		`,
		strong: `
			analyst bid bitcoin bond candlestick cik coin commodity crypto cryptocurrency currency dividend earnings equity
			etf exchange filing finance financial forex fund futures income insider investor ipo kline market ohlcv
			orderbook portfolio price quote sec sector stock ticker trade trading tvl valuation volatility yield
		`,
		weak: "balance company growth historical order rank rate ratio recommendation statement symbol token upgrade volume",
	},
	{
		names: []switchboard.Resource{"browser"},
		products: `
			adspower agentql browser browser-use browserbase chrome devtools lighthouse playwright puppeteer selenium
			stagehand
		`,
		strong: `
			browser click clickable cookie css dom element hover iframe keyboard localstorage mouse navigate playwright
			screenshot scroll selector sessionstorage tab viewport xpath
		`,
		weak: "console dialog drag fill form key page press text type url wait",
	},
	{
		names: []switchboard.Resource{"security"},
		products: `
			bicscan burp burpsuite chaitin crowdstrike epss misp nmap opencti pentest rapid7 sbom sentinelone sherlock
			shodan snyk suricata trivy vectra virustotal wazuh wiremcp wireshark zap
		`,
		strong: `
			certificate cve cvss detection entropy exploit firewall injection ioc malware payload pentest phishing safety
			sbom scan secret security threat vulnerabilities vulnerability xss
		`,
		weak: "alert assignment hash host ip packet port risk rule",
	},
	{
		names:    []switchboard.Resource{"identity", "users", "iam"},
		products: "auth0 better-auth clerk cognito entra keycloak okta onelogin",
		strong: `
			account auth authentication authenticator authorization brand credential identity login logout membership mfa
			oauth password permission profile role signin sso user
		`,
		weak: "access admin app assign domain group member organization policy",
	},
	{
		names: []switchboard.Resource{"ci_cd", "ci", "workflow"},
		products: `
			airflow allure argo argocd buildkite circleci cloudbuild codemagic dagster flow github-actions jenkins langflow
			make n8n node-red prefect teamcity tekton zapier
		`,
		strong: "artifact build cicd continuous dag deployment flow job pipeline pipelinerun rollout runner taskrun workflow",
		weak:   "config connection execution pool run schedule task trigger variable",
	},
	{
		names: []switchboard.Resource{"observability", "monitoring", "logs"},
		products: `
			amplitude analytics audiense autospectra clarity datadog elastic-apm grafana honeycomb jaeger kiali langfuse
			logfire loki mixpanel newrelic observability opik pagerduty phoenix posthog prometheus raygun sentry sift
			status-observer velt victoriametrics
		`,
		strong: `
			alert analytics crash dashboard error exception incident latency log loki metric monitor observability oncall
			panel profiling prometheus rum slo sls span telemetry trace uptime
		`,
		weak: "deployment event label page performance query session status traffic visit",
	},
	{
		names:    []switchboard.Resource{"crm"},
		products: "attio close dynamics hdw hubspot intercom linkedin pipedrive salesforce zoho",
		strong:   "ad campaign company contact crm customer deal engagement lead opportunity prospect soql",
		weak:     "account association call communication invoice list meeting note object product property",
	},
	{
		names: []switchboard.Resource{"compute", "math"},
		products: `
			addtwo calc calculator chain-of-draft clear-thought collaborative-reasoning converter datetime debate decision
			deepseek dice echo everything expr json-query math medcalc prolog random reasoning scientific sequential
			sequentialthinking sleep sympy think thinking thought time timer timeserver units wait wolfram
		`,
		strong: `
			arithmetic calculate calculation convert datetime decimal derivative dice equation formula integral logarithm
			math matrix number polynomial probability random reasoning score sine sqrt statistic statistics sum thinking
			thought timezone unit
		`,
		weak: "a add b current date divide echo expression logic multiply result step subtract think time utc value",
	},
	{
		names: []switchboard.Resource{"maps", "geo", "location"},
		products: `
			12306 airbnb amap arcgis aviation baidumap chinarailway flight foursquare geo geocode geoserver google-maps here
			hkbus locations macrostrat mapbox maps navermap ns-travel osm qgis railway subway travel traveler whereami
		`,
		strong: `
			bus coordinate direction distance elevation flight geocode geographic isochrone itinerary latitude location
			longitude map navigation nearby place poi route station traffic train transit
		`,
		weak: "address area city destination hotel layer point region stop travel trip",
	},
	{
		names:    []switchboard.Resource{"weather"},
		products: "accuweather forecast ipma meteo national-weather openweather weather weather360",
		strong:   "climate forecast humidity precipitation rain storm sunrise temperature uv weather wind",
		weak:     "alert city current daily hourly location",
	},
	{
		names:    []switchboard.Resource{"payments", "billing", "commerce"},
		products: "adyen alipay bitrefill ecomm fewsats paypal plaid quickbooks razorpay shopify square stripe wise xero",
		strong:   "bank billing cart charge checkout coupon credit invoice order payment payout payroll refund tax transaction",
		weak:     "account amount balance contact customer plan product purchase",
	},
	{
		names:    []switchboard.Resource{"containers", "kubernetes", "docker"},
		products: "container devcontainers docker helm k8s kubectl kubernetes kubevirt openshift podman portainer rancher",
		strong: `
			cluster configmap container deployment devcontainer docker helm ingress k8s kubectl kubernetes namespace pod
			rollout
		`,
		weak: "context image log network node resource service volume",
	},
	{
		names: []switchboard.Resource{"host", "system", "shell"},
		products: `
			adb applescript clipboard command-line computer env epics fiware hass homeassistant ios-simulator iot iterm
			macos mcp2serial mobile perm-shell powershell raspi serial shell simulator siri-shortcuts ssh super-shell system
			system-mcp terminal windows-cli winterm
		`,
		strong: `
			automation bash battery bluetooth clipboard command cpu device emulator hostname light orientation os powershell
			process ram sensor shell simulator ssh switch system terminal wifi window
		`,
		weak: "app button entity execute install output port run screen session state swipe tap",
	},
	{
		names: []switchboard.Resource{"blockchain", "web3"},
		products: `
			aurora bankless blockscout bridge-rates bsv cryptowallet eth ethereum evm foundry goat hardhat heurist mina
			multichain near nft nostr onchain ordiscan solana starknet sui thirdweb token-info uniswap web3
		`,
		strong: `
			airdrop anvil blockchain bridge chain chisel contract ens erc erc20 eth evm gas inscription lamport mint nft
			onchain ordinals rpc rune sol solana starknet swap token transaction tx utxo validator wallet
		`,
		weak: "account address balance block hash network protocol rent sign transfer",
	},
	{
		names:    []switchboard.Resource{"calendar", "scheduling"},
		products: "cal calendar calendly gcal google-calendar googlecalendar ical scheduler",
		strong:   "appointment attendee availability booking calendar event freebusy meeting reminder schedule",
		weak:     "date end invite slot start time timezone",
	},
	{
		names: []switchboard.Resource{"ml_model", "llm", "ai"},
		products: `
			a2a agent agentkit anthropic any-chat autogen chatgpt crew deepseek-r1 gemini hf huggingface just-prompt
			langchain llm lmstudio mindbridge mlflow ollama openai openrouter opik wandb
		`,
		strong: `
			agent assistant chatbot claude completion experiment fine-tune gpt huggingface hyperparameter inference llm
			model prompt training
		`,
		weak: "ask chat dataset generate run space token version",
	},
	{
		names: []switchboard.Resource{"social", "social_media"},
		products: `
			audiense bluesky douyin facebook farcaster ig instagram linkedin mastodon meta-ads pinterest reddit rednote
			tabnews threads tiktok twitter weibo x-twitter xiaohongshu
		`,
		strong: "cast follower hashtag hotsearch influencer like reel retweet social subreddit timeline tweet",
		weak:   "comment follow post profile trend user",
	},
	{
		names: []switchboard.Resource{"reference", "encyclopedia", "data"},
		products: `
			animal ant-design antd arxiv author bgg bible bibliotheque biomart biomcp book books brasil canvas cat cats cep
			cfbd chembl chess clinicaltrials context7 country datagov deepwiki dictionary disaster docfork docs dog
			earthdata earthquake emoji-hub eve-online f1 film films food formula fruit fruityvice gahmen game-trends games
			genius grounddocs gutenberg holidays howtocook ibge imdb koran leetcode library llms-txt materials-project maven
			mediawiki medicine met-museum minecraft-wiki mlb movie movies mtg nasa nationality nixos npm open-library
			opendota opgg optimade osrs package-registry paper papers paperswithcode poke pokemcp pokemon pubchem pubmed
			pypi quran radio-browser recipe rijksmuseum rubygems runescape scholar scholarly semantic-scholar
			semanticscholar shopify-dev skincare steam swapi ticketmaster tmdb university uns wiki wikipedia world-bank
			ygocdb
		`,
		strong: `
			actor animal artwork author book breed catalog cep champion changelog chapter character chemical citation
			cocktail compound country course dataset definition dictionary disease documentation drug encyclopedia exam
			example fact film food gene genre guide holiday ingredient job league library literature meal menu movie
			municipalities municipality museum npm nutrition package paper patient planet player pokemon postal-code protein
			recipe reference season species standing statcast surah synonym tournament trial university vacancy verse
			wikipedia word
		`,
		weak: "code component country data detail option property publication school search statistic title topic version year",
	},
}

// subjectWords finds the subjects of a word. The index is made at its first use: most starts and commands need none.
var subjectWords = sync.OnceValue(indexSubjects)

// A subjectSign is what a word says about a subject.
type subjectSign struct {
	subject  int // in subjects
	strength int
}

// The strengths of words.
const (
	weakWord    = 1
	strongWord  = 3
	productWord = 5
)

func indexSubjects() map[string][]subjectSign {
	index := map[string][]subjectSign{}
	for i, s := range subjects {
		for w := range strings.FieldsSeq(s.products) {
			addSign(index, w, subjectSign{i, productWord})
		}
		for w := range strings.FieldsSeq(s.strong) {
			addSign(index, w, subjectSign{i, strongWord})
		}
		for w := range strings.FieldsSeq(s.weak) {
			addSign(index, w, subjectSign{i, weakWord})
		}
	}
	return index
}

// addSign adds a sign of a word. A word that is in two lists of one subject has a sign for each, because a product counts
// only in names.
func addSign(index map[string][]subjectSign, word string, s subjectSign) {
	if !slices.Contains(index[word], s) {
		index[word] = append(index[word], s)
	}
}
