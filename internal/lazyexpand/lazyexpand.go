// Package lazyexpand keeps what a client is shown within a budget of tokens: each
// on-demand group of a task is one small stub, which lists and searches its tools,
// calls them, and adds their definitions to the client's list one by one.
//
// It decides which tools are members of which group (Plan), whether what is shown
// is within the budget and what gives way when it is not (Fit), and what becomes of
// each thing that a client asks of a stub (Desk). What is a member at all is the
// decision's; what is expanded is kept by the run, as part of its surface; tokens
// are counted by others, over the bytes that the client gets.
//
// An expansion is whole: all that was asked for, or nothing and the reason. Nothing
// that is refused changes anything.
package lazyexpand
