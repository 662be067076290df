package token

import (
	"encoding/binary"
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the tables from the library's vocabularies")

// bucketBits gives each table some two tokens to a bucket.
var bucketBits = map[string]int{"o200k_base": 17, "cl100k_base": 16}

func TestTheTablesHoldTheLibrarysVocabularies(t *testing.T) {
	for encoding, embedded := range map[string]string{"o200k_base": o200kTable, "cl100k_base": cl100kTable} {
		want := tableOf(vocabularyOf(encoding), bucketBits[encoding])
		if *update {
			if err := os.WriteFile(encoding+".table", want, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if embedded != string(want) {
			t.Errorf("%s.table is not what the library's vocabulary gives; run the test with -update", encoding)
		}
	}
}

// tableOf returns the table of these tokens, which are sorted by rank; see vocabularyIn.
func tableOf(tokens []string, bits int) []byte {
	buckets, longest := make([][]byte, 1<<bits), 0
	for rank, text := range tokens {
		longest = max(longest, len(text))
		b := &buckets[bucketOf([]byte(text), bits)]
		*b = append(*b, byte(len(text)), byte(rank), byte(rank>>8), byte(rank>>16))
		*b = append(*b, text...)
	}
	table, end := []byte{byte(bits), byte(longest), 0, 0, 0, 0}, 0
	for _, b := range buckets {
		end += len(b)
		table = binary.LittleEndian.AppendUint32(table, uint32(end))
	}
	for _, b := range buckets {
		table = append(table, b...)
	}
	return table
}
