package migrations

// What tests use of the package.
const Baseline = baseline

var (
	UpTo    = up    // with invented upgrades
	CheckOf = check // of a build that needs another version
)
