package permits

// Rate is what one job of a class uses of the window of a key.
type Rate struct {
	Key   string
	Cost  int64
	Per   int64 // microseconds
	Scope Scope
}

// Rates returns what a job of a class uses of windows. It is empty if no key of the class has a rate.
func (b *Book) Rates(name Class) (rates []Rate) {
	for _, n := range needsOf(name.Keys) {
		if l := b.limits.of(n.Key); l.Rate > 0 {
			rates = append(rates, Rate{n.Key, atLeastOne(n.Cost), l.Per, l.Scope})
		}
	}
	return rates
}
