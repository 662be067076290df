package switchboard

// A ListCost compares what clients read about tools with what the full lists of the same servers would have cost them. Both are counts of tokens,
// never estimates.
type ListCost struct {
	Lists  int64 // lists of tools that clients got
	Tokens int64 // of the definitions in these lists, and of the answers to searches
	Full   int64 // of all definitions of the servers behind these lists: once for each list

	// Uncounted are lists and searches that are in no other number, because too many waited to be counted.
	Uncounted int64
}
