package main

import (
	"hash/fnv"
	"strconv"
)

// maxResult is the longest text that the backend's tool returns.
const maxResult = 4 << 20

// block is what results are cut from: letters without a pattern, so that a
// piece of it fits nowhere else. None of them is escaped in JSON.
var block = func() []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	b := make([]byte, maxResult+(64<<10))
	x := uint64(0x9e3779b97f4a7c15)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = letters[x%uint64(len(letters))]
	}
	return b
}()

// text returns the two parts of the text that answers the call with this nonce:
// the nonce itself, and a piece of block that depends on it. Together they are
// size bytes long, or as long as the nonce if that is longer. Whoever knows the
// nonce knows every byte of the answer.
func text(nonce string, size int) (head string, piece []byte) {
	head = nonce + ":"
	size = min(max(size-len(head), 0), maxResult)
	h := fnv.New32a()
	_, _ = h.Write([]byte(nonce)) // never fails
	at := int(h.Sum32() % (64 << 10))
	return head, block[at : at+size]
}

// nonce names one call among all of all sessions.
func nonce(session string, call int) string { return session + "." + strconv.Itoa(call) }
