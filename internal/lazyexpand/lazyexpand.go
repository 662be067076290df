// Package lazyexpand holds the tools that a client is shown within a budget of tokens. Each on-demand group of a task
// is one small stub, which lists and searches its tools, calls them, and adds their definitions to the client's list
// one by one.
//
// The package decides which tools are members of which group (Plan), whether a surface is within its budget and which
// tools are collapsed or withheld otherwise (Fit), and how each request to a stub is answered (Desk). The decision
// selects the tools of a task. The run stores the expansions, as part of its surface. Callers count the tokens, over
// the bytes that the client receives.
//
// An expansion is whole: either everything that was requested, or nothing and the reason. A refusal changes nothing.
package lazyexpand
