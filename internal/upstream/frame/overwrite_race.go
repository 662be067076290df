//go:build race

package frame

// MaxUnpooled is the largest buffer, in bytes, that is just allocated and not lent.
const MaxUnpooled = 16

// overwrite makes a use of a buffer after its release visible: tests with the race detector then find wrong answers.
func overwrite(room []byte) {
	for i := range room {
		room[i] = '!'
	}
}
