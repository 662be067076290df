// Package house checks how the code is written: plain words in comments and documents, and types of a size that a reader can hold in mind.
// Its tests read the sources of the repository and run nothing.
package house
