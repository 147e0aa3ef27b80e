package trial

// All returns the experiments in the order in which they run.
func All() []*Trial { return []*Trial{&storm} }
