package sample

// A webPage is one page of the small web that both searches cover. Its address is under the reserved
// domain .example.
type webPage struct {
	url, title string
	date       string // as 2026-01-31
	news       bool
	text       string
}

// corpus is sorted by address.
var corpus = []webPage{
	{
		url: "https://answers.example/dmarc-alignment", title: "Why does DMARC fail when SPF passes?", date: "2025-11-03",
		text: "DMARC asks for alignment: the domain that SPF or DKIM has checked must be the domain that readers see in From. A newsletter service that sends with its own envelope domain passes SPF for itself, and not for you. Sign with DKIM under your own domain, or let the service use a subdomain of yours as the envelope sender.",
	},
	{
		url: "https://answers.example/go-context-leak", title: "My goroutines never end after a timeout", date: "2024-08-19",
		text: "A context that is cancelled stops nobody by itself. Each goroutine must look at ctx.Done, and whoever sends on a channel needs a receiver or a buffer. The leak detector of the race tests shows which goroutine waits, and where it was started.",
	},
	{
		url: "https://bread.example/sourdough", title: "A patient sourdough", date: "2023-02-11",
		text: "Feed the starter in the evening. Mix flour, water and salt in the morning, fold four times in two hours, and let the dough rest in the cold over night. Bake it in a covered pot, and let it cool before you cut it.",
	},
	{
		url: "https://cloudpost.example/bucket-left-open", title: "An open bucket told a town's secrets for a year", date: "2026-05-28", news: true,
		text: "A storage bucket with building plans and tax records could be read by anybody for a year. Nobody had meant it: a policy for one public folder had been copied to the whole bucket. The town now checks all buckets every night, and blocks public access for the whole account.",
	},
	{
		url: "https://cloudpost.example/lambda-cold-starts", title: "Cold starts of functions, measured again", date: "2026-03-09", news: true,
		text: "We measured the first call of a function in four runtimes. A compiled program answered in 90 milliseconds, an interpreted one in 350. Most of the time goes into loading what the first request does not use.",
	},
	{
		url: "https://docs.example/certificate-transparency", title: "Certificate transparency for defenders", date: "2025-06-30",
		text: "Every public certificate is written into logs that anybody can read. Watch the logs for names that look like yours: a certificate for a look-alike domain is often the first visible sign of a spoofing campaign, hours before the first mail is sent. Monitors compare new names with a list of brands by edit distance and by confusable characters.",
	},
	{
		url: "https://docs.example/dkim-basics", title: "DKIM basics", date: "2024-12-01",
		text: "DKIM puts a signature into the header of a mail. The receiver fetches the public key from the DNS of the signing domain, under a selector. A valid signature says that the domain takes responsibility for the message, and that the signed parts have not changed on the way.",
	},
	{
		url: "https://docs.example/dmarc-policy", title: "Publishing a DMARC policy", date: "2025-09-14",
		text: "A DMARC record tells receivers what to do with mail that claims your domain and fails. Begin with p=none and read the reports. Move to quarantine and then to reject once every legitimate sender is aligned. A domain that sends no mail should say reject at once: parked domains are popular with spoofers.",
	},
	{
		url: "https://docs.example/mcp-tools", title: "Tools in the Model Context Protocol", date: "2026-08-02",
		text: "A server lists its tools with a name, a description and a schema of the arguments. A client calls a tool by its name. A result that says isError is an answer of the tool and meant for the model; an error of the protocol is meant for the program.",
	},
	{
		url: "https://docs.example/spf-record", title: "The SPF record, mechanism by mechanism", date: "2024-10-22",
		text: "An SPF record lists who may send mail for a domain. The mechanisms ip4, ip6, a, mx and include are tried from left to right, and all ends the record. More than ten lookups in the DNS make the record invalid, which many domains only notice when their mail is refused.",
	},
	{
		url: "https://gazette.example/airline-lookalike", title: "Look-alike domain cost airline customers their miles", date: "2026-09-17", news: true,
		text: "Criminals registered a domain that differs from the airline's in one letter, and sent mail about expiring miles. The site copied the login page to the pixel. Investigators found forty further domains by the same registrant, most of them not yet in use. The airline has since moved its DMARC policy to reject.",
	},
	{
		url: "https://gazette.example/domain-takedown", title: "Registry takes 3,000 spoofing domains down in one day", date: "2026-10-05", news: true,
		text: "A registry has suspended some 3,000 domains that imitated banks and parcel services. It acted on a list of a group that watches certificate logs. Domain spoofing had doubled within a year, the registry says, and most look-alike domains are used within two days of their registration.",
	},
	{
		url: "https://gazette.example/heat-pumps", title: "Heat pumps outsell boilers for the first time", date: "2026-01-20", news: true,
		text: "More heat pumps than gas boilers were sold last year. Installers say that demand is no longer driven by grants alone. Prices fell by a tenth.",
	},
	{
		url: "https://hills.example/hut-to-hut", title: "Hut to hut in five days", date: "2024-06-06",
		text: "The path follows the ridge for five days and needs no rope. Huts are open from June to September, and beds are booked weeks ahead. Carry water for the third day, on which there is no spring.",
	},
	{
		url: "https://lab.example/homoglyphs", title: "Homoglyphs in domain names", date: "2025-03-18",
		text: "Letters of different scripts can look the same: a Cyrillic o and a Latin o differ in nothing but their number. A domain name with such letters is shown as it is written by some programs and in its ASCII form by others. Investigate a suspicious domain by converting it to its skeleton, in which all look-alike letters are one.",
	},
	{
		url: "https://lab.example/passive-dns", title: "Passive DNS, and what it tells about a domain", date: "2025-07-09",
		text: "Passive DNS keeps what resolvers have seen: which addresses a name had, and which names an address had. To investigate domain spoofing, start with the address of the look-alike, list the other names there, and look for the same name servers and the same day of registration.",
	},
	{
		url: "https://lab.example/typosquatting-survey", title: "A survey of typosquatting", date: "2026-02-26",
		text: "We generated all names within one edit of 500 brands and resolved them daily. A third exist, a tenth receive mail, and one in fifty shows a login page. Spoofing by a missing dot, such as wwwbank, is rarer than ten years ago; added words such as login and secure are more common.",
	},
	{
		url: "https://opsnotes.example/incident-review", title: "How to write an incident review that is read", date: "2025-04-27",
		text: "Write what happened in the order of time, and what people knew at each step. Say what went well. Name no culprit. End with at most five actions, each with an owner and a day. A review that nobody reads changes nothing, so keep it to two pages.",
	},
	{
		url: "https://opsnotes.example/spoofing-runbook", title: "Runbook: a look-alike of our domain sends mail", date: "2026-07-13",
		text: "First, collect the evidence: headers, the domain, its registration, its certificates, screenshots. Second, report the domain to its registrar and its host, and to the lists that browsers use. Third, tell customers by a channel that they know. Fourth, search the certificate logs for further domains of the same campaign. Domain spoofing comes in series.",
	},
	{
		url: "https://stars.example/comet-2026", title: "The comet of autumn", date: "2026-11-01", news: true,
		text: "The comet is low in the west after sunset until the end of November. A pair of binoculars shows its tail. Look for it half an hour after the sun is gone, a hand's breadth above the horizon.",
	},
}
