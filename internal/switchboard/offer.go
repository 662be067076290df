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

// String returns the kind in words.
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

// An Offer is everything that one server lists now, in the server's own bytes, apart from what packages scan and shape have repaired.
type Offer struct {
	Server ServerID

	// Capabilities is the capabilities object in the server's answer to initialize or server/discover; nil if the
	// server has none.
	Capabilities []byte

	// Beside is the member BlockName of that answer, next to capabilities; nil if there is none.
	Beside []byte

	// Instructions are the server's instructions to models, with its secrets removed; "" means none.
	Instructions string

	// Version is the version that the server reports of itself; "" if it reports none.
	Version string

	// Modern says that the server speaks the modern era, which has no sessions.
	Modern bool

	// Tools are the tool objects of tools/list, in the server's order.
	Tools [][]byte

	// Uncleaned are the tool objects as the server sent them, by the name of the tool, for those from which deceptive characters were removed.
	Uncleaned map[string][]byte `json:",omitempty"`

	// UncleanedOthers are the objects of the other lists, and the instructions, as the server sent them, if deceptive characters were removed from them: see SentKey.
	UncleanedOthers map[string][]byte `json:",omitempty"`

	// Resources, Templates and Prompts are the objects of the other lists.
	Resources, Templates, Prompts [][]byte

	// OfferStanding says how the tools stand.
	OfferStanding `json:"-"`

	// Stale is set while the server is away and this is its last known offer.
	Stale bool
}

// An OfferStanding is what admission knows about the tools of an offer, each by its name.
type OfferStanding struct {
	// Admissions say in which state a tool is, where that is not plainly active.
	Admissions map[string]*Admission

	// Evidence is what is known about a tool, where anything is.
	Evidence map[string]*ToolEvidence

	// Alike are the digests of earlier admitted definitions of a tool that differ from the present one in words alone.
	Alike map[string][]Digest
}

// SentInstructions is the key of the instructions in UncleanedOthers. They are a JSON string there.
const SentInstructions = "instructions"

// SentKey returns the key in UncleanedOthers of an object with a name or URI.
func SentKey(k Kind, id string) string { return k.String() + " " + id }

// BlockName is the name of the member that states the capabilities of tools, in every place where it can occur.
const BlockName = "x-summit-capabilities"

// List returns the objects of the kind.
func (o *Offer) List(k Kind) [][]byte {
	return [NKinds][][]byte{o.Tools, o.Resources, o.Templates, o.Prompts}[k]
}
