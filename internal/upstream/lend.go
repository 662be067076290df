package upstream

import (
	"math/bits"
	"sync"
)

// Big answers are read into memory that is lent: to allocate and clear a MiB
// for each costs as much as to pass it on.
const (
	unlent = 32 << 10 // up to here memory is just allocated

	// stepBits says into how many steps each doubling is divided, so that at
	// most a quarter of what is lent is not needed.
	stepBits = 2
	nSizes   = (32 + 1) << stepBits
)

// lenders hold what nobody uses, by size.
var lenders [nSizes]sync.Pool

// A loan is memory for one answer. The zero loan is none.
type loan struct {
	room []byte
	from *sync.Pool // nil where nobody wants it back
}

// borrow returns room for at least n bytes. What it holds is another's, and not
// for reading.
func borrow(n int) loan {
	if n <= unlent {
		return loan{room: make([]byte, n)}
	}
	i, size := lender(n)
	if room, ok := lenders[i].Get().(*[]byte); ok {
		return loan{*room, &lenders[i]}
	}
	return loan{make([]byte, size), &lenders[i]}
}

// lender returns who lends n bytes, and how many they really are.
func lender(n int) (i, size int) {
	shift := bits.Len(uint(n-1)) - 1 - stepBits
	steps := (n-1)>>shift + 1 // from 1<<stepBits + 1 to 2<<stepBits
	return shift<<stepBits + steps - 1<<stepBits - 1, steps << shift
}

// repay gives the memory back, which nobody may use any more. It is called once
// at most.
func (l loan) repay() {
	if l.from != nil {
		l.from.Put(&l.room)
	}
}

// repayment returns what repays l once, however often it is called; nil where
// there is no need.
func (l loan) repayment() func() {
	if l.from == nil {
		return nil
	}
	return sync.OnceFunc(l.repay)
}
