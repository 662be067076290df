package switchboard

// A Kind is one of the lists that a server offers.
type Kind uint8

// The kinds.
const (
	Tools Kind = iota
	Resources
	Templates // of the URIs of resources
	Prompts

	// NKinds is how many kinds there are.
	NKinds
)

// String gives the kind as people say it.
func (k Kind) String() string {
	return [NKinds]string{"tools", "resources", "resource templates", "prompts"}[k]
}

// Kinds is a set of kinds. The zero value is empty.
type Kinds uint8

// AllKinds holds every kind.
const AllKinds = Kinds(1<<NKinds - 1)

// With returns the set with k in it.
func (ks Kinds) With(k Kind) Kinds { return ks | 1<<k }

// Has reports whether k is in the set.
func (ks Kinds) Has(k Kind) bool { return ks&(1<<k) != 0 }

// An Offer is what one server offers now, in its own bytes.
type Offer struct {
	Server ServerID

	// Capabilities is the capabilities object of the server's answer to
	// initialize or server/discover; nil where the server has none.
	Capabilities []byte

	// Beside is the member BlockName of that answer, beside its capabilities; nil where it has
	// none.
	Beside []byte

	// Instructions is what the server tells models of itself, without its secrets; ""
	// means nothing.
	Instructions string

	// Version is what the server says of its own; "" where it says nothing.
	Version string

	// Modern says that the server speaks the era without sessions.
	Modern bool

	// Tools are the tool objects of tools/list, in the server's order.
	Tools [][]byte

	// Resources, Templates and Prompts are the objects of the other lists.
	Resources, Templates, Prompts [][]byte

	// Stale is set while the server is away and this is its last known word.
	Stale bool
}

// BlockName is the member that holds what a tool's capabilities are, wherever it stands.
const BlockName = "x-summit-capabilities"

// List returns the objects of the kind.
func (o *Offer) List(k Kind) [][]byte {
	return [NKinds][][]byte{o.Tools, o.Resources, o.Templates, o.Prompts}[k]
}
