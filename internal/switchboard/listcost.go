package switchboard

// A ListCost compares two numbers of tokens: those of the lists and searches that clients got, and those of the full lists of the same servers.
// Both are counted, never estimated.
type ListCost struct {
	Lists  int64 // lists of tools that clients got
	Tokens int64 // of the definitions in these lists, and of the answers to searches
	Full   int64 // of all definitions of the servers behind these lists: once for each list

	// Uncounted are lists and searches that are in no other number, because too many waited to be counted.
	Uncounted int64
}
