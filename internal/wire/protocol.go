// Package wire handles MCP as bytes. It reads JSON-RPC messages without decoding their contents, and writes them by
// splicing.
//
// It decides which bytes are a message at all. It scans all of a client's message, so that every later reader reads the
// same message as Switchboard. Of a server's message it reads the envelope, and checks only that the rest is JSON.
// Other packages decide what a method means and who may call it.
package wire

import "strings"

// The versions of the protocol.
const (
	Version20241105 = "2024-11-05"
	Version20250326 = "2025-03-26"
	Version20250618 = "2025-06-18"
	Version20251125 = "2025-11-25"
	Version20260728 = "2026-07-28"

	// LatestLegacy is the last version that starts with initialize.
	LatestLegacy = Version20251125

	// Latest is the newest version that Switchboard speaks.
	Latest = Version20260728
)

// Versions lists the versions that Switchboard speaks, newest first. It is not modified.
var Versions = []string{Version20260728, Version20251125, Version20250618, Version20250326, Version20241105}

// Modern reports whether version has neither a handshake nor sessions. An unknown later version counts as modern:
// versions are dates, and sort as dates.
func Modern(version string) bool { return version >= Version20260728 }

// The methods that Switchboard knows by name.
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

// The notifications between a Switchboard and the bridge of one of its clients. No client ever sees them. See
// gateway.Stdio.Confirms.
const (
	MethodReceived = MetaOurPrefix + "received"
	MethodBegin    = MetaOurPrefix + "begin"
)

// internMethod returns the constant equal to name, so that a common method needs no allocation.
func internMethod(name []byte) string {
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

// The HTTP headers, in the spelling of net/http.
const (
	HeaderProtocolVersion = "Mcp-Protocol-Version"
	HeaderSessionID       = "Mcp-Session-Id"
	HeaderLastEventID     = "Last-Event-Id"
	HeaderMethod          = "Mcp-Method" // the body's method
	HeaderName            = "Mcp-Name"   // the body's params.name, or params.uri
	HeaderParamPrefix     = "Mcp-Param-" // of headers that repeat an argument

	// HeaderIdempotencyKey is only for clients of Switchboard. It is never sent to a server, because net/http retries a
	// POST that has this header.
	HeaderIdempotencyKey = "Idempotency-Key"
)

// The keys of _meta. MetaPrefix marks the protocol's keys, MetaOurPrefix those of Switchboard.
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

	// MetaResults is a key in the _meta of a call. With the value "whole", a program asks for results of any length in
	// one piece.
	MetaResults = MetaOurPrefix + "results"

	// MetaReceipt is a key in the _meta of a call. With the value true, a client asks for the id of the call's receipt.
	// The result has the id under the same key.
	MetaReceipt = MetaOurPrefix + "receipt"
)

// The error codes.
const (
	CodeParse              = -32700 // not JSON
	CodeInvalidRequest     = -32600 // JSON, but not a message that we accept
	CodeMethodNotFound     = -32601
	CodeInvalidParams      = -32602
	CodeInternal           = -32603
	CodeResourceNotFound   = -32002 // legacy; modern servers use CodeInvalidParams
	CodeHeaderMismatch     = -32020 // a header is missing, malformed, or contradicts the body
	CodeMissingCapability  = -32021 // the client did not declare a capability that the request needs
	CodeUnsupportedVersion = -32022
	CodeURLElicitation     = -32042 // legacy; modern servers answer input_required
)

// Reserved reports whether a key of _meta belongs to the protocol or to Switchboard. Servers must not set such a key.
func Reserved(key string) bool {
	return strings.HasPrefix(key, MetaPrefix) || strings.HasPrefix(key, MetaOurPrefix)
}
