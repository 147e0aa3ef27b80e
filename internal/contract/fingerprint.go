package contract

// Fingerprint identifies a session without revealing its nonce. A claim records
// for each job the fingerprint of the session that the job is for. A worker that
// offers to resume the job, to this dispatcher or to another one, must know the
// nonce. Zero means no session.
//
// A fingerprint also carries the generation of a resume offer: the generation
// replaces the lowest 16 bits (see [Fingerprint.WithGeneration]).
type Fingerprint int64

// MaxGeneration is the largest generation of a resume offer that can be told
// apart from earlier ones.
const MaxGeneration = 1<<generationBits - 2

const (
	generationBits = 16
	generationMask = 1<<generationBits - 1
)

// WithGeneration returns the fingerprint that the n-th resume offer of an
// execution records. f is the fingerprint that the claim and offers without a
// generation (n = 0) record. For n > 0 the result never equals f, and a larger n,
// up to MaxGeneration, gives a larger result.
func (f Fingerprint) WithGeneration(n int) Fingerprint {
	if n <= 0 {
		return f
	}
	generation := Fingerprint(min(n, MaxGeneration))
	if generation >= f&generationMask {
		generation++
	}
	return f&^generationMask | generation
}

// Supersedes reports whether f and old were recorded for the same session, f by a
// later resume offer than old. origin is the fingerprint of the session itself.
// An offer without a generation supersedes nothing.
func (f Fingerprint) Supersedes(old, origin Fingerprint) bool {
	sameSession := f>>generationBits == origin>>generationBits && old>>generationBits == origin>>generationBits
	return f != origin && sameSession && old&generationMask < f&generationMask
}
