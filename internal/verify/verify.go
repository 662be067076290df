// Package verify exercises tools, and says what they were seen to do.
//
// It decides which calls verify a tool (MakePlan: a pure function of the definition, the operator's examples and what is there to work on), what their answers mean, and which
// score follows (Verify, TestReport). It makes no call by itself: the caller of Verify gives it the server, the wrappers with policy, limits and receipts, and the leave to exercise the tool.
// Package bench gives a program walls with nothing behind them.
//
// A report belongs to one definition. It never has arguments or results, only what they mean.
package verify
