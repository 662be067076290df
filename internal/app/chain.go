package app

import (
	"context"
	"log/slog"
	"slices"

	"github.com/summit-switchboard/switchboard/internal/cache"
	"github.com/summit-switchboard/switchboard/internal/commit"
	"github.com/summit-switchboard/switchboard/internal/constraint"
	"github.com/summit-switchboard/switchboard/internal/contract"
	"github.com/summit-switchboard/switchboard/internal/health"
	"github.com/summit-switchboard/switchboard/internal/history"
	"github.com/summit-switchboard/switchboard/internal/idempotency"
	"github.com/summit-switchboard/switchboard/internal/notice"
	"github.com/summit-switchboard/switchboard/internal/policy"
	"github.com/summit-switchboard/switchboard/internal/preview"
	"github.com/summit-switchboard/switchboard/internal/question"
	"github.com/summit-switchboard/switchboard/internal/receipt"
	"github.com/summit-switchboard/switchboard/internal/scan"
	"github.com/summit-switchboard/switchboard/internal/switchboard"
	"github.com/summit-switchboard/switchboard/internal/telemetry"
	"github.com/summit-switchboard/switchboard/internal/turn"
)

// A wrapper is a function from Caller to Caller, under the name that docs/ARCHITECTURE.md draws.
type wrapper struct {
	name string
	wrap func(switchboard.Caller) switchboard.Caller
}

// wrapCaller wraps the wrappers around caller. The first one is the outermost.
func wrapCaller(caller switchboard.Caller, wrappers []wrapper) switchboard.Caller {
	for _, w := range slices.Backward(wrappers) {
		caller = w.wrap(caller)
	}
	return caller
}

// personWraps are the wrappers that wait for a person.
type personWraps struct {
	approve, connectFirst func(switchboard.Caller) switchboard.Caller
	touch                 func(switchboard.Caller) switchboard.Caller // notes what the run has touched
	admit                 func(switchboard.Caller) switchboard.Caller // by the verdict on the tool's capability
}

// A callChain has the parts that every call to a server passes.
type callChain struct {
	keptResults
	metrics   *telemetry.Recorder
	history   *history.History
	turns     *turn.Turns
	ledger    *receipt.Ledger
	health    *health.Monitor
	guard     func(switchboard.Caller) switchboard.Caller // policy
	persons   personWraps
	limits    *constraint.Limiter
	committer *commit.Committer
	notices   *notice.Outbox

	resultChecks
	inputCheck func(switchboard.ServerID) switchboard.InputCheck
	log        *slog.Logger
}

// resultChecks are how results and questions of servers are checked.
type resultChecks struct {
	cleansResults  func(switchboard.ServerID) bool
	permitQuestion question.PermitFunc
}

// keptResults are the results that are kept, and may be given again.
type keptResults struct {
	previews *preview.Keeper
	cache    *cache.Cache
	keys     *idempotency.Keys
}

// wrappers returns the wrappers of every call, outermost first: a call passes them downwards, and
// its result passes them upwards. Their order is the security model. A wrapper decides only about
// calls that all wrappers above it let pass, and a call that it answers itself reaches none below.
func (c *callChain) wrappers() []wrapper {
	return []wrapper{
		// The whole call, once for each request of a client.

		// Outermost, because it keeps exactly the result that all others let pass.
		{"preview.ShowPreviews", c.previews.ShowPreviews},
		// Above every refusal, because it counts what clients see.
		{"telemetry.Calls", c.metrics.Calls},
		// It counts the same calls, and their latency as clients see it.
		{"history.Count", c.history.Count},
		// Above receipts, because digesting large arguments is the work that takes turns.
		{"turn.Take", c.turns.Take},
		// Above every decision, because each refusal below has a receipt.
		{"receipt.RecordCalls", c.ledger.RecordCalls},
		// Below receipts, because a reread has a receipt too. Above keys and servers, because it
		// makes no call; it asks the guard itself.
		{"preview.AnswerStored", c.previews.AnswerStored},
		// Above the fallback, because a call that moves to another server is still one call. It
		// asks the guard itself before it gives the outcome of an earlier call.
		{"idempotency.Once", c.keys.Once},
		// The last one for the whole call: it makes the attempts, and each attempt passes all below.
		{"health.Fallback", c.health.Fallback},

		// One attempt at one server.

		// Above everything that judges, stores or shows an attempt: all of it is about the tool that is called, and the
		// arguments that its server gets.
		{"contract.Translate", contract.Translate},

		// First, because nothing may answer an attempt that policy denies, not even the cache.
		{"policy.Guard", c.guard},
		// Below policy, because its answer says that the tool exists. Above the approval, because nobody is asked about a call that
		// cannot be made.
		{"verdict.Admit", c.persons.admit},
		// Below policy, because its answer shows parts of the schema.
		{"contract.Arguments", func(next switchboard.Caller) switchboard.Caller { return contract.Arguments(c.inputCheck, next) }},
		// Below policy, which can require an approval. Above the cache, because a call that needs an approval has no cached
		// result. Above limits and breaker, because a call that waits for a person must take neither a permit nor the one trial call.
		{"approval.Approve", c.persons.approve},
		// Above the cache, because a cached result holds a server's data too. Below the approval, because a call that nobody
		// approves touches nothing, and the policy that is asked again must not see what the call itself touches.
		{"policy.Touch", c.persons.touch},
		// Below everything that forbids a call. Above limits and breaker, because a cached result
		// uses neither.
		{"cache.Serve", c.cache.Serve},
		// Below the cache, whose results need no connection. Above limits and breaker, because a call that waits for
		// a person must take neither a permit nor the one trial call.
		{"credential.ConnectFirst", c.persons.connectFirst},
		// Below the cache, because it counts only calls that a server gets. Above the breaker,
		// because a call that is over its limit must not take the one trial call.
		{"constraint.Limit", c.limits.Limit},
		// Close to the server, because it learns from every result. Below the refusals of ours: these, and those
		// of commit.Commit, say nothing about the server.
		{"health.Admit", c.health.Admit},
		// Below every refusal but one, because an attempt that is not sent costs nothing, uses no approval and has no intent. Above
		// everything that is sent, because these are durable before.
		{"commit.Commit", c.committer.Commit},
		// Below every other refusal, because nobody is told of a call that is not made. If the notice cannot be kept, the
		// attempt is refused after all, as one that has not left.
		{"notice.TellFirst", c.notices.TellFirst},
		// Below every wrapper that computes, because the tenant's next call must not wait for
		// this server.
		{"turn.End", turn.End},

		// What is below this line happens only to attempts that are sent.

		// It notes that the server may have the call, so no refusal of ours may follow below.
		{"idempotency.Sent", idempotency.Sent},
		// It counts and times what is sent.
		{"telemetry.Attempts", c.metrics.Attempts},
		// Above the check of results, which must see what the server sent.
		{"scan.CleanResults", func(next switchboard.Caller) switchboard.Caller { return scan.CleanResults(c.cleansResults, next) }},
		// A result that does not fit its schema is a failure of the server, so the breaker above
		// must see it.
		{"contract.Results", contract.Results},
		// Innermost, because only here the server that asks is the server of the call.
		{"question.Vet", func(next switchboard.Caller) switchboard.Caller {
			return question.Vet(c.permitQuestion, c.log, next)
		}},
	}
}

// verifyWrappers returns the wrappers of the calls that verify tools, outermost first. What clients see is left out, and what a call would teach about a server that serves clients:
// metrics, the cache, idempotency keys, health. The arguments are not checked, since the tool must refuse them itself. walled says that nothing is behind the walls
// of the program that is called; otherwise an obligation to ask a person holds.
func (c *callChain) verifyWrappers(current policy.CurrentPolicy, walled bool) []wrapper {
	all := []wrapper{
		{"receipt.RecordCalls", c.ledger.RecordCalls},
		{"policy.Guard", func(next switchboard.Caller) switchboard.Caller { return policy.Guard(current, nil, c.log, next) }},
	}
	if walled { // nothing is behind it: nothing is paid, and nobody need be asked or told
		return append(all, wrapper{"app.needNoPerson", needNoPerson}, wrapper{"constraint.Limit", c.limits.Limit})
	}
	return append(all, wrapper{"app.askNoPerson", askNoPerson}, wrapper{"constraint.Limit", c.limits.Limit}, wrapper{"commit.Commit", c.committer.Commit}, wrapper{"notice.TellFirst", c.notices.TellFirst})
}

// needNoPerson makes calls without the obligations to ask a person or to tell one.
func needNoPerson(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, call *switchboard.Call) (switchboard.Result, error) {
		own := *call
		own.Obligations.Approval, own.Obligations.Notify = nil, nil
		return next.Call(ctx, &own)
	})
}

// askNoPerson refuses calls that a person must approve.
func askNoPerson(next switchboard.Caller) switchboard.Caller {
	return switchboard.CallerFunc(func(ctx context.Context, call *switchboard.Call) (switchboard.Result, error) {
		if call.Obligations.Approval != nil {
			return switchboard.Result{}, switchboard.Refuse(switchboard.CodeApprovalPending, "a person must approve each call of this tool, and a verification asks nobody")
		}
		return next.Call(ctx, call)
	})
}
