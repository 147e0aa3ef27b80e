package dispatcherd

// Share is the part of the rows of a type that one dispatcher asks for first,
// so that several on one table do not race for the same heads of lanes. Shares
// are proportional to capacity. They are a courtesy: what they say of a row
// never decides who may run it, and views of them may differ for a while.
//
// A row belongs to the share that holds the number of its block: neighbouring
// ids share a block, so that a claim finds its rows on few pages, and blocks
// are dealt out by multiples of the golden ratio, so that every share has its
// part of any few blocks in a row. The zero Share holds everything.
type Share struct {
	From, To uint32 // numbers From ≤ n < To, of ShareNumbers
}

// Constants of the dealing; the fetch statement contains them, too.
const (
	ShareNumbers = 1 << 16
	ShareBlock   = 3      // a block is 1 << ShareBlock ids
	ShareStep    = 40_503 // ShareNumbers divided by the golden ratio, odd
)

// All reports whether everything belongs to the share.
func (s Share) All() bool { return s == Share{} }

// Owns reports whether a row belongs to the share.
func (s Share) Owns(id JobID) bool {
	n := uint32(id>>ShareBlock) % ShareNumbers * ShareStep % ShareNumbers
	return s.All() || s.From <= n && n < s.To
}

// ShareOf returns the share of a dispatcher with that many slots of a type,
// when the dispatchers before and behind it in the order of ids have those.
// Nobody else means everything.
func ShareOf(before, own, behind int) Share {
	if before+behind <= 0 || own <= 0 {
		return Share{}
	}
	total := before + own + behind
	from := uint32(before * ShareNumbers / total)
	return Share{From: from, To: max(from+1, uint32((before+own)*ShareNumbers/total))}
}
