// Package licenses holds the licenses of Switchboard and of everything that is in the program, so that the program can print them.
//
// Text is made by a test of this package from the modules that are linked, and another test compares the two. The file stands here and not beside
// LICENSE, because go:embed reads only files below its package. What counts as linked is the matter of package linked.
package licenses

import _ "embed"

// Text names each work in the program, its version and license, and has the full texts.
//
//go:embed THIRD-PARTY-LICENSES
var Text string
