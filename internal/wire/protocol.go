// Package wire is MCP as bytes: it reads JSON-RPC messages without decoding
// what they carry, and writes them by splicing.
//
// It decides which bytes are a message at all. A client's message is scanned in
// full, so that every reader behind us reads in it what we did; of a server's
// message the envelope is read, and the rest is only known to be JSON. What a
// method means, and who may call it, is left to others.
package wire

import "strings"

// The versions of the protocol.
const (
	Version20241105 = "2024-11-05"
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
	Version20260728 = "2026-07-28"

	// LatestLegacy is the last version that opens with initialize.
	LatestLegacy = Version20251125

	// Latest is the newest version that we speak.
	Latest = Version20260728
)

// Versions are the versions that we speak, newest first. It is not modified.
var Versions = []string{Version20260728, Version20251125, Version20250618, Version20250326, Version20241105}

// Modern reports whether version has neither handshake nor sessions. A version
// that we do not know yet is modern when its date is later: versions are dates,
// and sort as such.
func Modern(version string) bool { return version >= Version20260728 }

// The methods that we know by name.
const (
	MethodInitialize    = "initialize"
	MethodDiscover      = "server/discover"
	MethodPing          = "ping"
	MethodToolsList     = "tools/list"
	MethodToolsCall     = "tools/call"
	MethodPromptsList   = "prompts/list"
	MethodPromptsGet    = "prompts/get"
	MethodResourcesList = "resources/list"
	MethodResourcesRead = "resources/read"
	MethodTemplatesList = "resources/templates/list"
	MethodSubscribe     = "resources/subscribe"
	MethodUnsubscribe   = "resources/unsubscribe"
	MethodListen        = "subscriptions/listen"
	MethodComplete      = "completion/complete"
	MethodSetLevel      = "logging/setLevel"
	MethodSample        = "sampling/createMessage"
	MethodElicit        = "elicitation/create"
	MethodRootsList     = "roots/list"

	MethodInitialized          = "notifications/initialized"
	MethodCancelled            = "notifications/cancelled"
	MethodProgress             = "notifications/progress"
	MethodLog                  = "notifications/message"
	MethodToolsChanged         = "notifications/tools/list_changed"
	MethodPromptsChanged       = "notifications/prompts/list_changed"
	MethodResourcesChanged     = "notifications/resources/list_changed"
	MethodResourceUpdated      = "notifications/resources/updated"
	MethodRootsChanged         = "notifications/roots/list_changed"
	MethodListenAcknowledged   = "notifications/subscriptions/acknowledged"
	MethodElicitationCompleted = "notifications/elicitation/complete"
)

// method returns the constant that spells name, so that reading a message with
// a common method allocates nothing.
func method(name []byte) string {
	switch string(name) {
	case MethodInitialize:
		return MethodInitialize
	case MethodDiscover:
		return MethodDiscover
	case MethodPing:
		return MethodPing
	case MethodToolsList:
		return MethodToolsList
	case MethodToolsCall:
		return MethodToolsCall
	case MethodListen:
		return MethodListen
	case MethodInitialized:
		return MethodInitialized
	case MethodCancelled:
		return MethodCancelled
	case MethodProgress:
		return MethodProgress
	case MethodLog:
		return MethodLog
	case MethodToolsChanged:
		return MethodToolsChanged
	}
	return string(name)
}

// The HTTP headers, as net/http spells them.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version"
	HeaderSessionID       = "Mcp-Session-Id"
	HeaderLastEventID     = "Last-Event-Id"
	HeaderMethod          = "Mcp-Method" // the body's method
	HeaderName            = "Mcp-Name"   // the body's params.name, or params.uri
	HeaderParamPrefix     = "Mcp-Param-" // of the headers that repeat an argument

	// HeaderIdempotencyKey is for us alone: net/http sends a POST that carries
	// it again by itself.
	HeaderIdempotencyKey = "Idempotency-Key"
)

// The keys of _meta. Those that start with MetaPrefix are the protocol's,
// those that start with MetaOurPrefix are Switchboard's.
const (
	MetaPrefix    = "io.modelcontextprotocol/"
	MetaOurPrefix = "io.switchboard/"

	MetaProtocolVersion    = MetaPrefix + "protocolVersion"
	MetaClientInfo         = MetaPrefix + "clientInfo"
	MetaClientCapabilities = MetaPrefix + "clientCapabilities"
	MetaServerInfo         = MetaPrefix + "serverInfo"
	MetaLogLevel           = MetaPrefix + "logLevel"
	MetaSubscriptionID     = MetaPrefix + "subscriptionId"
	MetaRelatedTask        = MetaPrefix + "related-task"
	MetaProgressToken      = "progressToken"

	MetaIdempotencyKey = MetaOurPrefix + "idempotency-key"

	// MetaResults is the key in the _meta of a call under which a program says "whole",
	// to get results of any length whole.
	MetaResults = MetaOurPrefix + "results"

	// MetaReceipt is the key in the _meta of a call under which a client says true to be told the id of the
	// call's receipt. It stands under the same key in the result.
	MetaReceipt = MetaOurPrefix + "receipt"
)

// The codes of errors.
const (
	CodeParse              = -32700 // not JSON
	CodeInvalidRequest     = -32600 // JSON, but no message that we accept
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // legacy; modern says CodeInvalidParams
	CodeHeaderMismatch     = -32020 // a header is missing, malformed, or says other than the body
	CodeMissingCapability  = -32021 // the client did not declare what the request needs
	CodeUnsupportedVersion = -32022
	CodeURLElicitation     = -32042 // legacy; modern answers input_required
)

// Reserved reports whether a key of _meta is the protocol's or Switchboard's, so that no server may say it.
func Reserved(key string) bool {
	return strings.HasPrefix(key, MetaPrefix) || strings.HasPrefix(key, MetaOurPrefix)
}
