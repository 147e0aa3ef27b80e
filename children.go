package dispatcherd

// MaxOpenSpawns is the number of spawns that a session of a worker may have without an
// answer.
const MaxOpenSpawns = 16

// The rules by which a dispatcher itself refuses a spawn. All other rules are names of
// constraints in Postgres, which docs/how-to/flows.md lists.
const (
	RuleParentIsRunning = "parent_is_running" // the session does not run the attempt, or the attempt has ended
	RuleParentIsARow    = "parent_is_a_row"   // a request in memory has no children
	RuleTooManySpawns   = "too_many_spawns"   // too many spawns of the session or of its user have no answer; try again later
	RuleTypeIsPermitted = "type_is_permitted" // the user of the worker may not insert jobs of a type
	RuleDatabaseAnswers = "database_answers"  // Postgres did not execute the statement; try again later
	RuleOutcomeIsKnown  = "outcome_is_known"  // the answer was lost, so the children may exist
)
