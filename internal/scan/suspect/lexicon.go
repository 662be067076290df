package suspect

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// lexicon lists the kinds of words that patterns name, each with its words. Words are in small letters; a word may be of several kinds. Words with signs
// (addresses, paths, names) have their kinds by their shape: see shapeOf.
var lexicon = []struct{ kind, words string }{
	{"not", "not never don't dont doesn't didn't mustn't shouldn't won't cannot can't no nor avoid refrain"},
	{"tell", "report tell mention disclose inform notify acknowledge mentioned disclosed informed notified told reveal revealed telling mentioning disclosing informing notifying revealing alerting"},
	{"user", "user users user's anyone anybody human humans customer customers operator them him her person people"},
	{"without", "without unbeknownst"},
	{"ask", "asking requiring requesting waiting seeking needing telling informing notifying alerting mentioning prompting ask require showing shown"},
	{"consent", "approvals permissions confirmations authorization consent approval permission confirmation knowledge awareness noticing"},
	{"quiet", "silently secretly covertly stealthily invisibly discreetly surreptitiously quietly unnoticed"},
	{"instead", "instead rather"},
	{"keep", "keep hide conceal hidden withhold"},
	{"from", "from"},
	{"do", "send sends append appends forward forwards add adds include includes upload uploads record records log logs copy copies create creates collect collects " +
		"read reads execute executes run runs post posts transmit share embed pass attach write writes install modify transfer submit capture save store"},
	{"send", "hand send sends sending sent forward forwards forwarded forwarding upload uploads uploaded uploading post posts posting posted transmit transmits transmitted " +
		"email emails mail bcc cc submit pass append embed attach copy copies stream streamed streaming synced sync syncs share shared shares relay report ship push pushes " +
		"output redirect reroute route cached deliver publish"},
	{"exfil", "exfiltrate exfiltrates exfiltrated exfiltrating exfiltration exfil harvest harvests harvesting siphon siphons steal steals"},
	{"read", "pack zip compress archive summarize print display encode read reads reading open opens cat load loads extract extracts collect collects gather gathers scan dump dumps retrieve grab grabs access fetch include index indexes contents content upload send copy query select tar find run append pass sqlite3 chmod chown sudo"},
	{"secret", "passphrases bearer authorization credential credentials password passwords passphrase secret secrets token tokens api_key apikey api_keys keys cookies ssh wallet seed mnemonic"},
	{"env", "env environment environ .env"},
	{"variable", "variables vars"},
	{"away", "attacker-controlled external remote attacker attacker's attackers outside third-party third collector endpoint webhook c2 elsewhere offsite remotely externally proxy"},
	{"party", "party parties server host service endpoint site address"},
	{"analytics", "analytics telemetry marketing advertising"},
	{"also", "also additionally automatically always must silently"},
	{"whole", "whole full entire complete all every everything copy copies any"},
	{"must", "must always required mandatory shall should need ensure essential critical important never"},
	{"before", "before after when whenever prior once while upon during first"},
	{"use", "pick picks use uses used using call calls called calling invoke invokes invoked invoking run running execute executing executed select choose trigger"},
	{"ignore", "ignore ignores disregard forget override overrides bypass bypasses overriding circumvent neglect"},
	{"previous", "previous prior above earlier preceding foregoing"},
	{"orders", "instruction instructions directive directives directions guidelines guidance guardrails prompt prompts orders"},
	{"safety", "safety guardrails safeguards moderation censorship"},
	{"checks", "check checks filter filters guideline guidelines instruction instructions policy policies rule rules constraints protocols measures features existing restrictions"},
	{"you", "you assistant agent ai llm model chatbot"},
	{"are", "are"},
	{"now", "now henceforth"},
	{"note", "note notice message attention instruction instructions important"},
	{"to", "to"},
	{"model", "assistant assistants agent agents ai llm llms model claude gpt chatgpt"},
	{"hiddenly", "hidden secret covert concealed undisclosed"},
	{"precedence", "precedence priority highest-priority authoritative supersede supersedes top-priority"},
	{"over", "over override overrides overriding directives directive instructions"},
	{"treat", "treat obey comply follow accept trust honor treated"},
	{"trusted", "authorized authoritative direct mandatory commands command orders directives trusted genuine"},
	{"admin", "admin administrator administrators administration root operators sysadmin compliance"},
	{"preok", "pre-authorized pre-approved preauthorized preapproved pre-validated authorized approved sanctioned"},
	{"by", "by"},
	{"mode", "mode"},
	{"modekind", "developer maintenance god dan jailbreak unrestricted admin root override sudo"},
	{"reveal", "reveal reveals output print show repeat disclose return include expose leak dump tell recite"},
	{"system", "system hidden initial internal"},
	{"prompt", "prompt prompts instructions"},
	{"your", "your its the full entire whole complete verbatim"},
	{"preserve", "preserve retain persist remember keep carry survive"},
	{"context", "context compaction compacted summarized summary summaries memory session sessions"},
	{"agentfile", "claude.md agents.md gemini.md .cursorrules .windsurfrules copilot-instructions.md memory.md"},
	{"write", "write append inject add echo insert put modify edit >>"},
	{"replace", "replace replaces supersede supersedes override overrides intercept intercepts modifies hijack reroute"},
	{"tool", "tool tools function functions"},
	{"its", "its output result results value values"},
	{"any", "any other others another all alternative alternatives every different"},
	{"this", "this"},
	{"best", "best greatest finest superior"},
	{"grand", "world ever available internet"},
	{"in", "in on"},
	{"prefer", "prefer prioritize favor choose"},
	{"than", "than over of"},
	{"talk", "conversation conversations chat dialogue dialog history messages"},
	{"nameword", "name identity version"},
	// Words that govern a text which is reported rather than meant: verbs of detection in the third person or as participles, the things that are detected, and
	// labels of examples. Forms that are orders too (detect, block, report) stand here only where they follow "to", which the reader does not see: keep them few.
	{"detect", "detect detects detected detecting detection detector scanner analyzes analyze flags flagged flagging blocks blocked blocking prevents prevented preventing prevention " +
		"rejects rejected refuses sanitizes redacts redacted masks masked scrubs identifies identifying recognizes recognises catches spots checks tests verifies validates classifies " +
		"evaluates audits warns warning alerts reports reported defend defends defense guards protects mitigates mitigation attempts attempt attack attacks injection injections jailbreak " +
		"jailbreaks phishing vulnerability vulnerabilities attackers teaches explains explaining describes describing documents documentation documented docs changelog tutorial example examples sample " +
		"samples mock fixture fixtures expected illustrates illustrative refers references"},
	{"pipe", "| || && >"},
	{"shell", "bash sh zsh powershell iex eval python python3 node"},
	{"decode", "base64 -d --decode atob xxd"},
	{"dash", "-d --data --data-binary -x --upload-file -t -f"},
	{"pointer", "this that these step steps instruction instructions policy directive action it"},
	{"command", "curl wget invoke-webrequest iwr nc ncat scp"},
	{"outside", "attacker-controlled attacker attacker's attackers outside third-party third c2 elsewhere offsite"},
	{"kept", "stored cached logged saved kept archived"},
	{"far", "remotely externally offsite"},
	{"rules", "rule rules policy policies constraints system commands"},
	{"filters", "filter filters filtering restriction restrictions safety moderation checks"},
	{"only", "always exclusively just"},
	{"calling", "calls calling invoking invokes using requesting"},
	{"broken", "deprecated unreliable outdated broken incomplete incorrect obsolete unsafe compromised insecure"},
	{"change", "change changes swap substitute alter redirect"},
	{"target", "recipient recipients account destination payee beneficiary iban"},
	{"let", "let lets letting allow"},
	{"know", "learns discovers know knows notice notices see sees learn realize aware find"},
	{"private", "confidential private secret hidden quiet"},
	{"need", "need needed needs required necessary"},
	{"userof", "user's users’ users' customer's victim's owner's"},
	{"stuff", "content contents value values dump copy"},
	{"web", "url query request link uri"},
	{"public", "public publicly pastebin gist"},
	{"new", "new updated real actual true"},
	{"directive", "instruction instructions directive directives orders"},
	{"off", "suspended disabled lifted off waived void inapplicable"},
	{"obey", "obey follow comply execute treat carry"},
	{"returned", "returns returned result results output response responses"},
	{"give", "provide give paste put write supply fill insert summarize pass include"},
	{"said", "said says wrote typed written asked"},
	{"answering", "answering responding replying answer respond reply"},
	{"sole", "only sole"},
	{"better", "better superior faster safer"},
	{"thought", "thought thoughts reasoning"},
	{"exact", "verbatim word-for-word full complete entire unredacted"},
	{"skip", "skip bypass omit"},
	{"into", "in into inside within"},
	{"told", "told instructed"},
	{"act", "act behave pretend"},
	{"task", "task job goal mission purpose role"},
	{"repeat", "repeat recite echo"},
	{"have", "have possess"},
	{"available", "available accessible"},
	{"builtin", "built-in builtin native"},
	{"intercept", "intercept intercepts intercepting hijack hijacks"},
	{"say", "say speak talk"},
	{"anything", "anything something"},
	{"config", "configuration config settings"},
	{"own", "your"},
	{"with", "with"},
	{"first", "before first prior"},
	{"atFirst", "first"},
	{"submit", "obey comply submit"},
	{"chat", "conversation chat dialogue dialog"},
	{"after", "after upon once following"},
	// The kinds that only shapes have.
	{"bother", "bother burden disturb trouble alarm worry"},
	{"deny", "deny"},
	{"exist", "exists exist existence"},
	{"see", "see seen notice visible shown"},
	{"notice", "notice noticing trace"},
	{"necessary", "necessary need needed required obligatory"},
	{"obtain", "obtain get seek request ask"},
	{"apply", "apply applies applicable valid"},
	{"disable", "kill evade unhook disable suspend deactivate remove lift circumvent bypass skip"},
	{"alert", "warning warnings alerts prompts confirmation confirmations"},
	{"approve", "approve accept confirm grant allow"},
	{"request", "request requests call calls action actions"},
	{"route", "route redirect send direct pass"},
	{"through", "through via"},
	{"set", "set put"},
	{"capture", "save store capture collect collects record log write harvest copy keep"},
	{"spoken", "message messages prompt prompts input inputs query queries question questions turn turns keystroke keystrokes utterance"},
	{"recorded", "recorded sent logged stored forwarded copied uploaded collected saved captured"},
	{"promote", "recommend promote mention praise favor suggest advertise"},
	{"as", "as"},
	{"contain", "contain contains include includes hold"},
	{"keyOf", "api private access ssh encryption signing secret master"},
	{"keyWord", "key keys"},
	{"on", "on"},
	{"guidance", "instruction instructions directive directives orders guidelines guardrails directions"},
	{"article", "the a any another its"},
	{"every", "every each all any"},
	{"is", "is are"},
	{"agreed", "agreed approved consented authorized accepted confirmed"},
	{"already", "already"},
	{"hesitation", "hesitation question questioning verification"},
	{"youre", "you're"},
	{"background", "background"},
	{"login", "password passwords passphrase passphrases credential credentials otp pin pins cvv"},
	{"waived", "waived lifted suspended"},
	{"covert", "log copy copies record backdoor channel endpoint request upload job script command listener"},
	{"reply", "reply replies response responses answer answers"},
	{"vendor", "anthropic openai deepmind developers creators"},
	{"nobody", "one nobody"},
	{"so", "so"},
	{"soFar", "far"},
	{"otherwise", "otherwise else"},
	{"harm", "destroyed crash crashes corrupted lost deleted fail fails locked"},
	{"later", "later future subsequent next"},
	{"channel", "channel channels group groups"},
	{"check", "check"},
	{"obscured", ""},
	{"has", "has have"},
	{"begin", ""},
	{"question", "question questions"},
	{"regardless", "regardless irrespective"},
	{"nothing", "nothing"},
	{"erase", "erase delete remove wipe clear"},
	{"traces", "trace traces evidence"},
	{"trust", "trust believe"},
	{"transcript", "log logs history transcript"},
	{"about", "about"},
	{"last", "last recent latest previous prior earlier"},
	{"make", "write create build code develop generate make implement craft give"},
	{"malware", "malware virus keylogger ransomware rootkit trojan botnet worm spyware shellcode backdoor dropper beacon infostealer stealer drainer cryptominer exploit payload stage-0"},
	{"defence", "defender antivirus amsi etw edr firewall selinux apparmor sandbox logging"},
	{"activates", "begin begins activate activates activated swap swaps switch switches start starts"},
	{"review", "approved approval reviewed review installed installation"},
	{"veiled", "hidden covert concealed undisclosed"},
	{"end", ""},
	{"url", ""},
	{"mail", ""},
	{"place", ""},
	{"ident", ""},
	{"image", ""},
	{"number", ""},
	{"raw", ""},
	{"peer", ""},
	{"mark", ""},
}

// A wordKinds gives words their kinds. The position of a kind's name is its bit.
type wordKinds struct {
	names []string
	kinds map[string]class
}

var words = sync.OnceValue(func() *wordKinds {
	v := &wordKinds{kinds: map[string]class{}}
	for i, k := range lexicon {
		v.names = append(v.names, k.kind)
		for word := range strings.FieldsSeq(k.words) {
			v.kinds[word] = v.kinds[word].or(bit(i))
		}
	}
	return v
})

// class returns the class of names of kinds, with | between them.
func (v *wordKinds) class(names string) (c class) {
	for name := range strings.SplitSeq(names, "|") {
		i := slices.Index(v.names, name)
		if i < 0 {
			panic(fmt.Sprintf("there is no kind of words %q", name)) // the rules are constants
		}
		c = c.or(bit(i))
	}
	return c
}
