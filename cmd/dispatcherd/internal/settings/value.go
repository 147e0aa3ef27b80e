package settings

// Value is a flag value with a syntax of its own. It implements pflag.Value.
type Value struct {
	Kind   string             // names the kind of value in help texts
	Parse  func(string) error // stores a value
	Format func() string      // returns the stored value as Parse takes it
}

// Set implements pflag.Value.
func (v Value) Set(text string) error { return v.Parse(text) }

// String implements pflag.Value.
func (v Value) String() string { return v.Format() }

// Type implements pflag.Value.
func (v Value) Type() string { return v.Kind }
